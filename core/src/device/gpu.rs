//! A booted GPU: memory, queues and doorbells, as [`Iface`] asks for them.

use super::Probe;
use super::recover::place_of;
use crate::boot::Rung;
use crate::bus::{Bus, DmaHandle, Segment, Window};
use crate::discovery::IpList;
use crate::error::Error;
use crate::fault::{EngineFault, Fault, VmFault};
use crate::hang::QueueState;
use crate::iface::{
    AllocFlags, Buffer, BufferHandle, HwQueue, Iface, IfaceError, IpVersions, Properties, QueueKind,
    QueueRequest,
};
use crate::ip::{Device, Event, Hub, Stage, gfx, gmc, sdma};
use crate::layout::Ready;
use crate::mm::walk::translate;
use crate::mm::{AllocOptions, MapFlags, Running, Vm, VmError};
use crate::reg::RegFile;

/// The most hardware queues of a [`Gpu`]: those of MEC pipe 0 and one of SDMA engine 0.
const MAX_QUEUES: usize = 9;
/// Byte offset of the read pointer in a queue's pointer memory.
pub(super) const READ_PTR: u32 = 0;
/// Byte offset of the write pointer; a cache line apart would be better, this is where the
/// reference has it.
pub(super) const WRITE_PTR: u32 = 0x10;

/// A hardware queue and the memory only the hardware knows of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    pub(super) queue: HwQueue,
    pub(super) mqd: Option<Buffer>,
    pub(super) eop: Option<Buffer>,
}

/// A booted GPU with its memory manager.
#[derive(Debug)]
pub struct Gpu<'s, B> {
    pub(super) probe: Probe<B>,
    pub(super) ready: Ready,
    pub(super) vm: Vm<'s, Running>,
    properties: Properties,
    versions: IpVersions,
    pub(super) queues: heapless::Vec<Slot, MAX_QUEUES>,
    pub(super) overflowed: u32,
    /// The first error that an engine reported by interrupt since it was last asked for.
    pub(super) engine_fault: Option<EngineFault>,
}

/// Where the bytes of a buffer are: the form of a [`BufferHandle`] of this interface.
pub(super) enum Place {
    /// Contiguous VRAM from this offset on.
    Vram(u64),
    /// Host memory.
    Host(DmaHandle),
    /// VRAM in pieces: only the GPU's own engines reach it.
    Scattered,
}

impl Place {
    pub(super) fn handle(&self) -> BufferHandle {
        BufferHandle(match self {
            Place::Vram(offset) => offset | 1,
            Place::Host(dma) => u64::from(dma.0) << 12 | 2,
            Place::Scattered => 0,
        })
    }

    pub(super) fn of(handle: BufferHandle) -> Place {
        match handle.0 & 3 {
            1 => Place::Vram(handle.0 & !0xfff),
            2 => Place::Host(DmaHandle((handle.0 >> 12) as u32)),
            _ => Place::Scattered,
        }
    }
}

impl<'s, B: Bus> Gpu<'s, B> {
    pub(super) fn new(
        probe: Probe<B>,
        ready: Ready,
        vm: Vm<'s, Running>,
        properties: Properties,
        versions: IpVersions,
    ) -> Self {
        let queues = heapless::Vec::new();
        Gpu { probe, ready, vm, properties, versions, queues, overflowed: 0, engine_fault: None }
    }

    /// What the discovery table says.
    pub fn ips(&self) -> &IpList {
        &self.probe.ips
    }

    /// The bus, to look at.
    pub fn bus(&self) -> &B {
        &self.probe.device.bus
    }

    /// The device in the hands of the IP machines.
    pub fn device(&mut self) -> &mut Device<B> {
        &mut self.probe.device
    }

    /// The memory manager, to look at.
    pub fn vm(&self) -> &Vm<'s, Running> {
        &self.vm
    }

    /// How often interrupts were lost because the interrupt ring was full.
    pub fn interrupt_overflows(&self) -> u32 {
        self.overflowed
    }

    /// A VM fault that the hardware has latched, if any; clears it.
    pub fn take_fault(&mut self) -> Result<Option<VmFault>, Error> {
        for hub in [Hub::Mm, Hub::Gc] {
            if let Some(fault) = gmc::take_fault(&mut self.probe.device, hub)? {
                return Ok(Some(fault));
            }
        }
        Ok(None)
    }

    /// Shuts the GPU down so that the next boot can be warm. Nothing of it may be used afterwards
    /// but [`Gpu::into_probe`].
    pub fn fini(&mut self, progress: &mut dyn FnMut(&Event)) -> Result<(), Error> {
        self.probe.fini(progress)?;
        self.queues.clear();
        Ok(())
    }

    /// Gives the device back as it is: queues keep running, nothing is shut down.
    pub fn into_probe(self) -> Probe<B> {
        self.probe
    }

    pub(super) fn map_flags(flags: AllocFlags) -> MapFlags {
        let mut map = if flags.contains(AllocFlags::HOST) { MapFlags::HOST } else { MapFlags::empty() };
        map.set(MapFlags::UNCACHED, flags.intersects(AllocFlags::HOST | AllocFlags::UNCACHED));
        map.set(MapFlags::NO_EXECUTE, !flags.contains(AllocFlags::EXECUTABLE));
        map.set(MapFlags::READ_ONLY, flags.contains(AllocFlags::READ_ONLY));
        map
    }

    fn alloc_host(&mut self, size: u64, flags: AllocFlags) -> Result<Buffer, IfaceError> {
        let dma = self.probe.device.bus.dma_alloc(size)?;
        let segment = |device: &mut Device<B>, offset| Ok(device.bus.dma_segment(dma, offset)?);
        let mapped = self.vm.map_new_with(&mut self.probe.device, size, 0, segment, Self::map_flags(flags));
        match mapped {
            Ok(a) => Ok(Buffer { va: a.va, size: a.size, handle: Place::Host(dma).handle(), base: 0, flags }),
            Err(e) => {
                // Tables in an unknown state may still point there.
                if !self.vm.is_lost() {
                    // What matters is why there is no memory.
                    let _ = self.probe.device.bus.dma_free(dma);
                }
                Err(e.into())
            }
        }
    }

    fn alloc_vram(&mut self, size: u64, flags: AllocFlags) -> Result<Buffer, IfaceError> {
        let contiguous = flags.intersects(AllocFlags::CONTIGUOUS | AllocFlags::CPU_ACCESS);
        let options = AllocOptions { flags: Self::map_flags(flags), contiguous, ..AllocOptions::default() };
        let device = &mut self.probe.device;
        let a = self.vm.valloc(device, size, &options)?;
        let place = if contiguous {
            match translate(device, &self.vm.space(), a.va) {
                Ok(at) => {
                    at.map_or(Place::Scattered, |(page, _, entry)| Place::Vram(entry.addr + (a.va - page)))
                }
                Err(e) => {
                    let _ = self.vm.vfree(device, a.va);
                    return Err(VmError::Bus(e).into());
                }
            }
        } else {
            Place::Scattered
        };
        Ok(Buffer { va: a.va, size: a.size, handle: place.handle(), base: 0, flags })
    }

    fn in_use(&self, buffer: &Buffer) -> bool {
        let end = |b: &Buffer| b.va.saturating_add(b.size);
        let overlaps = |b: &Buffer| b.va < end(buffer) && buffer.va < end(b);
        self.queues.iter().any(|s| {
            let own = [s.mqd, s.eop];
            overlaps(&s.queue.ring) || overlaps(&s.queue.pointers) || own.iter().flatten().any(overlaps)
        })
    }

    pub(super) fn hw_queue(request: &QueueRequest, id: u32, doorbell: u32) -> HwQueue {
        HwQueue {
            kind: request.kind,
            id,
            ring: request.ring,
            pointers: request.pointers,
            read_ptr: READ_PTR,
            write_ptr: WRITE_PTR,
            doorbell: u64::from(doorbell) * 8,
        }
    }
}

impl<B: Bus> Iface for Gpu<'_, B> {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn versions(&self) -> IpVersions {
        self.versions
    }

    fn regs(&self) -> &RegFile {
        &self.probe.device.regs
    }

    fn align_submissions(&self) -> bool {
        self.probe.device.bus.is_slow()
    }

    fn alloc(&mut self, size: u64, flags: AllocFlags) -> Result<Buffer, IfaceError> {
        if size == 0 {
            return Err(IfaceError::Vm(VmError::ZeroSize));
        }
        let size =
            size.checked_next_multiple_of(0x1000).ok_or(IfaceError::OutOfMemory { what: "memory", size })?;
        if flags.contains(AllocFlags::HOST) {
            self.alloc_host(size, flags)
        } else {
            self.alloc_vram(size, flags)
        }
    }

    fn free(&mut self, buffer: Buffer) -> Result<(), IfaceError> {
        if buffer.base != 0 {
            return Err(IfaceError::NotAllocated { va: buffer.va });
        }
        if self.in_use(&buffer) {
            return Err(IfaceError::InUse { va: buffer.va, until: u64::MAX });
        }
        match Place::of(buffer.handle) {
            Place::Host(dma) => {
                self.vm.unmap_new(&mut self.probe.device, buffer.va)?;
                Ok(self.probe.device.bus.dma_free(dma)?)
            }
            _ => Ok(self.vm.vfree(&mut self.probe.device, buffer.va)?),
        }
    }

    fn map_peer(&mut self, buffer: &Buffer, segments: &[Segment]) -> Result<(), IfaceError> {
        Ok(self.vm.map(&mut self.probe.device, buffer.va, buffer.size, segments, MapFlags::PEER)?)
    }

    fn unmap_peer(&mut self, buffer: &Buffer) -> Result<(), IfaceError> {
        Ok(self.vm.unmap(&mut self.probe.device, buffer.va, buffer.size)?)
    }

    fn peer_segment(&mut self, buffer: &Buffer) -> Result<Segment, IfaceError> {
        match (Place::of(buffer.handle), self.probe.device.bus.peer_vram_base()) {
            (Place::Vram(pa), Some(base)) => {
                let at = pa.saturating_add(buffer.base);
                let aperture = self.probe.device.bus.peer_vram_len();
                if at.checked_add(buffer.size).is_none_or(|end| end > aperture) {
                    return Err(IfaceError::Unsupported(
                        "reach this memory through the window of the device",
                    ));
                }
                Ok(Segment { addr: base.saturating_add(at), len: buffer.size })
            }
            _ => Err(IfaceError::Unsupported("show this memory to another device")),
        }
    }

    fn arm_read(&mut self, buffer: &Buffer, len: u64) -> Result<bool, IfaceError> {
        buffer.check(0, len)?;
        match Place::of(buffer.handle) {
            Place::Host(dma) => Ok(self.probe.device.bus.dma_arm(dma, buffer.base, len)?),
            _ => Ok(false),
        }
    }

    fn read(&mut self, buffer: &Buffer, offset: u64, out: &mut [u8]) -> Result<(), IfaceError> {
        let len = out.len() as u64;
        buffer.check(offset, len)?;
        let at = buffer.base.saturating_add(offset);
        let device = &mut self.probe.device;
        match Place::of(buffer.handle) {
            Place::Vram(pa) => Ok(device.vram_read(pa.saturating_add(at), out)?),
            Place::Host(dma) => {
                device.bus.sync_for_cpu(dma, at, len)?;
                Ok(device.bus.dma_read(dma, at, out)?)
            }
            Place::Scattered => Err(IfaceError::NoCpuAccess { va: buffer.va }),
        }
    }

    fn write(&mut self, buffer: &Buffer, offset: u64, data: &[u8]) -> Result<(), IfaceError> {
        let len = data.len() as u64;
        buffer.check(offset, len)?;
        let at = buffer.base.saturating_add(offset);
        let device = &mut self.probe.device;
        match Place::of(buffer.handle) {
            Place::Vram(pa) => {
                let pa = pa.saturating_add(at);
                match <[u8; 8]>::try_from(data) {
                    Ok(bytes) if pa.is_multiple_of(8) => {
                        Ok(device.vram_write64(pa, u64::from_le_bytes(bytes))?)
                    }
                    _ => Ok(device.vram_write(pa, data)?),
                }
            }
            Place::Host(dma) => {
                device.bus.dma_write(dma, at, data)?;
                Ok(device.bus.sync_for_device(dma, at, len)?)
            }
            Place::Scattered => Err(IfaceError::NoCpuAccess { va: buffer.va }),
        }
    }

    fn create_queue(&mut self, request: &QueueRequest) -> Result<HwQueue, IfaceError> {
        if self.queues.is_full() {
            return Err(IfaceError::NoQueue(request.kind));
        }
        let slot = match request.kind {
            QueueKind::Compute => self.create_compute(request)?,
            QueueKind::Sdma => self.create_sdma(request)?,
        };
        self.let_cache(&request.ring, 0, request.ring.size);
        self.let_cache(&request.pointers, WRITE_PTR.into(), 8);
        let _ = self.queues.push(slot);
        Ok(slot.queue)
    }

    fn destroy_queue(&mut self, queue: &HwQueue) -> Result<(), IfaceError> {
        let index = self
            .queues
            .iter()
            .position(|s| s.queue == *queue)
            .ok_or(IfaceError::BadQueue { kind: queue.kind, why: "it is not a queue of this device" })?;
        let device = &mut self.probe.device;
        match queue.kind {
            QueueKind::Compute => {
                let (pipe, number) = place_of(queue);
                device.run(async |cx| {
                    cx.attribute(Stage::Queue);
                    gfx::deactivate(cx, pipe, number).await
                })?;
            }
            QueueKind::Sdma => device.run(async |cx| {
                cx.attribute(Stage::Queue);
                sdma::deactivate(cx, 0, 0).await
            })?,
        }
        self.end_cache(&queue.ring);
        self.end_cache(&queue.pointers);
        let slot = self.queues.swap_remove(index);
        slot.mqd.map_or(Ok(()), |mqd| self.free_mqd(&mqd))
    }

    fn fence(&mut self) -> Result<(), IfaceError> {
        Ok(self.probe.device.bus.fence()?)
    }

    fn flush_hdp(&mut self) -> Result<(), IfaceError> {
        Ok(self.probe.device.flush_hdp_through()?)
    }

    fn ring_doorbell(&mut self, queue: &HwQueue, value: u64) -> Result<(), IfaceError> {
        Ok(self.probe.device.bus.write64(Window::Doorbells, queue.doorbell, value)?)
    }

    fn now_us(&self) -> u64 {
        self.probe.device.bus.clock().now_us()
    }

    fn wait(&mut self, timeout_us: u64) -> Result<bool, IfaceError> {
        let device = &mut self.probe.device;
        device.bus.flush()?;
        if !device.bus.wait_interrupt(timeout_us)? {
            return Ok(false);
        }
        self.serve_interrupts()?;
        Ok(true)
    }

    fn take_error(&mut self) -> Result<Option<Fault>, IfaceError> {
        Ok(self.reported()?)
    }

    fn queue_state(&mut self, queue: &HwQueue) -> Result<Option<QueueState>, IfaceError> {
        Ok(Some(self.registers_of(queue)?))
    }

    fn restart_queues(&mut self) -> Result<Rung, IfaceError> {
        self.restart_all()
    }
}
