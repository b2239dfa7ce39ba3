//! What queues and programs need from below: memory, queues, doorbells, waiting, properties.
//!
//! Two implementers are in view from the start: the core's own device over a [`crate::bus::Bus`],
//! and Linux's KFD. Memory need not be mapped into the CPU's address space (over USB it is not):
//! a [`Buffer`] is a value, and its bytes are read and written through the interface.
//!
//! # Order of a submission
//! [`crate::queue::ring`] keeps it, in one place for all implementers: ring words, write-pointer
//! memory, [`Iface::fence`], [`Iface::flush_hdp`], doorbells.

use core::fmt;

use crate::boot::Rung;
use crate::fault::Fault;
use crate::hang::QueueState;
use crate::reg::RegFile;

mod error;
mod forward;

pub use error::IfaceError;

bitflags::bitflags! {
    /// Where memory shall lie and how it is used.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct AllocFlags: u32 {
        /// System memory of the host instead of VRAM.
        const HOST = 1 << 0;
        /// Not cached by the GPU: the CPU sees what the GPU writes, and the other way round.
        const UNCACHED = 1 << 1;
        /// The CPU reads and writes it through the interface.
        const CPU_ACCESS = 1 << 2;
        /// Physically contiguous.
        const CONTIGUOUS = 1 << 3;
        /// The command processor may fetch instructions from it.
        const EXECUTABLE = 1 << 4;
        /// Engines and kernels cannot write to it; the CPU can.
        const READ_ONLY = 1 << 5;
    }
}

/// An allocation, as its interface names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BufferHandle(pub u64);

/// Memory at a GPU virtual address: an allocation or a part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Buffer {
    /// GPU virtual address of the first byte.
    pub va: u64,
    /// Length in bytes.
    pub size: u64,
    /// The allocation this is (a part of).
    pub handle: BufferHandle,
    /// Where this part starts in the allocation, in bytes.
    pub base: u64,
    /// How it was allocated.
    pub flags: AllocFlags,
}

impl Buffer {
    /// A part of this buffer; an error if it does not lie inside.
    pub fn slice(&self, offset: u64, len: u64) -> Result<Buffer, IfaceError> {
        self.check(offset, len)?;
        Ok(Buffer {
            va: self.va.wrapping_add(offset),
            size: len,
            base: self.base.wrapping_add(offset),
            ..*self
        })
    }

    /// An error unless `offset..offset + len` lies inside this buffer.
    pub fn check(&self, offset: u64, len: u64) -> Result<(), IfaceError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(IfaceError::OutOfBuffer { va: self.va, size: self.size, offset, len }),
        }
    }
}

/// What a shader core executes: the `gfx` target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Target {
    /// Generation: 9 to 12.
    pub major: u8,
    /// Minor version.
    pub minor: u8,
    /// Stepping.
    pub stepping: u8,
}

impl Target {
    /// From its three numbers, as in `gfx1100` = 11, 0, 0 and `gfx90a` = 9, 0, 10.
    pub const fn new(major: u8, minor: u8, stepping: u8) -> Self {
        Target { major, minor, stepping }
    }

    /// From KFD's `gfx_target_version`, decimal: 110001 is gfx1101, 90402 gfx942, 90010 gfx90a.
    pub fn from_kfd(version: u32) -> Option<Target> {
        let part = |v: u32| u8::try_from(v).ok();
        Some(Target {
            major: part(version / 10_000)?,
            minor: part(version / 100 % 100)?,
            stepping: part(version % 100)?,
        })
    }

    /// Whether waves find the scratch address in registers of their own ("architected flat
    /// scratch"): gfx942, gfx950 and everything from gfx11 on.
    pub fn has_architected_scratch(self) -> bool {
        self.major >= 11 || self == Target::new(9, 4, 2) || self == Target::new(9, 5, 0)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gfx{}{:x}{:x}", self.major, self.minor, self.stepping)
    }
}

/// What a GPU has, in the terms and units of KFD's topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Properties {
    /// The target its shader cores execute.
    pub target: Target,
    /// SIMDs of all XCCs together.
    pub simd_count: u32,
    /// SIMDs of one compute unit.
    pub simd_per_cu: u32,
    /// Shader arrays of all XCCs together.
    pub array_count: u32,
    /// Shader arrays of one shader engine.
    pub arrays_per_engine: u32,
    /// Waves of one compute unit that can have scratch memory.
    pub max_scratch_slots_per_cu: u32,
    /// Waves one SIMD holds.
    pub max_waves_per_simd: u32,
    /// LDS of one compute unit (on RDNA: what one workgroup can have), in KiB.
    pub lds_kib: u32,
    /// Accelerator dies that execute together as one device; 1 except on CDNA3.
    pub xcc_count: u32,
}

impl Properties {
    /// Compute units of one XCC.
    pub fn cus_per_xcc(&self) -> u32 {
        let cus = self.simd_count.checked_div(self.simd_per_cu).unwrap_or(0);
        cus.checked_div(self.xcc_count.max(1)).unwrap_or(0)
    }

    /// Shader engines.
    pub fn engines(&self) -> u32 {
        self.array_count.checked_div(self.arrays_per_engine).unwrap_or(0)
    }

    /// Waves that one compute unit (gfx10 and later) or one shader engine (gfx9) tells apart by
    /// number. Source: `kfd_queue.c`, size of the control stack.
    pub fn wave_ids(&self) -> u32 {
        if self.target >= Target::new(10, 1, 0) {
            self.max_waves_per_simd.saturating_mul(self.simd_per_cu)
        } else {
            self.cus_per_xcc().saturating_mul(40).min(self.engines().saturating_mul(512))
        }
    }
}

/// Versions of the IPs that packets depend on, from the discovery table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IpVersions {
    /// Graphics and compute.
    pub gc: (u8, u8, u8),
    /// System DMA.
    pub sdma: (u8, u8, u8),
    /// Bus interface (NBIO, NBIF).
    pub nbio: (u8, u8, u8),
}

/// What a queue executes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QueueKind {
    /// PM4 packets on a compute micro engine. Pointers count dwords.
    Compute,
    /// SDMA packets. Pointers count bytes.
    Sdma,
}

impl fmt::Display for QueueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QueueKind::Compute => "compute",
            QueueKind::Sdma => "SDMA",
        })
    }
}

/// What a queue is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueRequest {
    /// What it executes.
    pub kind: QueueKind,
    /// The ring; its size is a power of two.
    pub ring: Buffer,
    /// At least 0x100 bytes for the read and write pointers, zeroed. The interface says in
    /// [`HwQueue`] where in it they are.
    pub pointers: Buffer,
    /// End-of-pipe event memory of a compute queue (0x1000 bytes).
    pub eop: Option<Buffer>,
    /// Context save area of a compute queue, for KFD.
    pub cwsr: Option<Cwsr>,
    /// The XCC that serves it.
    pub xcc: u8,
}

/// Context save area (compute wave save and restore).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cwsr {
    /// The memory.
    pub buffer: Buffer,
    /// Bytes for saved waves and control stack.
    pub save_size: u32,
    /// Bytes for the control stack.
    pub ctl_stack_size: u32,
}

/// A queue that the hardware serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HwQueue {
    /// What it executes.
    pub kind: QueueKind,
    /// The interface's own number for it.
    pub id: u32,
    /// The ring.
    pub ring: Buffer,
    /// The memory of its pointers.
    pub pointers: Buffer,
    /// Byte offset of the 64-bit read pointer in `pointers`.
    pub read_ptr: u32,
    /// Byte offset of the 64-bit write pointer in `pointers`.
    pub write_ptr: u32,
    /// Byte offset of its doorbell in the doorbell window.
    pub doorbell: u64,
}

/// How a KFD queue wakes its process: the interrupt handler reads an event slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventMailbox {
    /// GPU virtual address of the event's slot.
    pub va: u64,
    /// The event's number: written to the slot and sent as the interrupt's context.
    pub event: u32,
}

/// How completion interrupts reach the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Notify {
    /// The driver itself serves interrupts: SDMA sends a trap with context 0.
    #[default]
    Own,
    /// KFD: timeline signals also write an event mailbox.
    Kfd(EventMailbox),
}

/// What queues and programs need from below.
pub trait Iface {
    /// What the GPU has.
    fn properties(&self) -> &Properties;

    /// Versions of the IPs that packets depend on.
    fn versions(&self) -> IpVersions;

    /// Register addresses, for packets that name registers.
    fn regs(&self) -> &RegFile;

    /// How completion interrupts reach the host.
    fn notify(&self) -> Notify {
        Notify::Own
    }

    /// True if CPU access to ring memory is slow and gathered (USB): submissions then start at the
    /// ring's start instead of being split at its end.
    fn align_submissions(&self) -> bool {
        false
    }

    /// Allocates memory that is mapped for this GPU. `size` is rounded up to 4 KiB.
    fn alloc(&mut self, size: u64, flags: AllocFlags) -> Result<Buffer, IfaceError>;

    /// Gives an allocation back. Refused while a queue may still touch it; pass the whole
    /// allocation, not a part.
    fn free(&mut self, buffer: Buffer) -> Result<(), IfaceError>;

    /// Maps a buffer of another device, `segments` by bus address, at the same GPU address here.
    fn map_peer(&mut self, buffer: &Buffer, segments: &[crate::bus::Segment]) -> Result<(), IfaceError> {
        let _ = (buffer, segments);
        Err(IfaceError::Unsupported("map memory of another device"))
    }

    /// Takes a mapping of [`Iface::map_peer`] away, before the other device frees the buffer.
    fn unmap_peer(&mut self, buffer: &Buffer) -> Result<(), IfaceError> {
        let _ = buffer;
        Err(IfaceError::Unsupported("map memory of another device"))
    }

    /// Where other devices reach a contiguous buffer of this one on the bus.
    fn peer_segment(&mut self, buffer: &Buffer) -> Result<crate::bus::Segment, IfaceError> {
        let _ = buffer;
        Err(IfaceError::Unsupported("show memory to another device"))
    }

    /// The device is about to write to a range of host memory that is read next; see
    /// [`crate::bus::Bus::dma_arm`].
    fn arm_read(&mut self, buffer: &Buffer, len: u64) -> Result<bool, IfaceError> {
        let _ = (buffer, len);
        Ok(false)
    }

    /// Reads bytes as the CPU.
    fn read(&mut self, buffer: &Buffer, offset: u64, out: &mut [u8]) -> Result<(), IfaceError>;

    /// Writes bytes as the CPU. An aligned write of 4 or 8 bytes is one store.
    fn write(&mut self, buffer: &Buffer, offset: u64, data: &[u8]) -> Result<(), IfaceError>;

    /// Reads 4 aligned bytes in one load.
    fn read32(&mut self, buffer: &Buffer, offset: u64) -> Result<u32, IfaceError> {
        let mut b = [0; 4];
        self.read(buffer, offset, &mut b)?;
        Ok(u32::from_le_bytes(b))
    }

    /// Reads 8 aligned bytes in one load.
    fn read64(&mut self, buffer: &Buffer, offset: u64) -> Result<u64, IfaceError> {
        let mut b = [0; 8];
        self.read(buffer, offset, &mut b)?;
        Ok(u64::from_le_bytes(b))
    }

    /// Writes 8 aligned bytes in one store.
    fn write64(&mut self, buffer: &Buffer, offset: u64, value: u64) -> Result<(), IfaceError> {
        self.write(buffer, offset, &value.to_le_bytes())
    }

    /// Writes dwords. Implementers with mapped memory override it.
    fn write_dwords(&mut self, buffer: &Buffer, offset: u64, dwords: &[u32]) -> Result<(), IfaceError> {
        let mut at = offset;
        let mut bytes = [0u8; 256];
        for chunk in dwords.chunks(64) {
            for (to, from) in bytes.chunks_exact_mut(4).zip(chunk) {
                crate::slices::copy(to, &from.to_le_bytes());
            }
            let len = chunk.len().saturating_mul(4);
            self.write(buffer, at, bytes.get(..len).unwrap_or(&[]))?;
            at = at.saturating_add(len as u64);
        }
        Ok(())
    }

    /// Makes the hardware serve a queue.
    fn create_queue(&mut self, request: &QueueRequest) -> Result<HwQueue, IfaceError>;

    /// Stops serving a queue; waits until it is idle or dequeued.
    fn destroy_queue(&mut self, queue: &HwQueue) -> Result<(), IfaceError>;

    /// Everything the CPU wrote is visible before what follows.
    fn fence(&mut self) -> Result<(), IfaceError>;

    /// Everything the CPU wrote to VRAM is visible to the engines. Nothing to do where the kernel
    /// driver keeps rings in system memory (KFD).
    fn flush_hdp(&mut self) -> Result<(), IfaceError>;

    /// Tells a queue its new write position, in the queue's own unit.
    fn ring_doorbell(&mut self, queue: &HwQueue, value: u64) -> Result<(), IfaceError>;

    /// Microseconds since some fixed moment; never goes backwards.
    fn now_us(&self) -> u64;

    /// An error that the hardware has reported since the last call, which may be why work does not
    /// end; `None` also where the interface cannot tell.
    fn take_error(&mut self) -> Result<Option<Fault>, IfaceError> {
        Ok(None)
    }

    /// What the registers of a queue say; `None` where the interface cannot read them.
    fn queue_state(&mut self, queue: &HwQueue) -> Result<Option<QueueState>, IfaceError> {
        let _ = queue;
        Ok(None)
    }

    /// Takes every queue of the device down, whatever it does, and makes the hardware serve each anew
    /// from the start of its ring; the rung of the ladder of resets that it took. What was submitted
    /// is lost, memory is not. On an error no queue works any more.
    fn restart_queues(&mut self) -> Result<Rung, IfaceError> {
        Err(IfaceError::Unsupported("restart queues"))
    }

    /// Sleeps until the device raises an interrupt or `timeout_us` passed; true if one came.
    /// Serves the interrupt ring where the interface owns it.
    fn wait(&mut self, timeout_us: u64) -> Result<bool, IfaceError>;
}
