//! The seam a host implements: windows onto the device, memory the device reaches, and time.
//!
//! A device is three PCI windows ([`Window`]), memory it can reach by bus address ([`Dma`]) and a
//! clock ([`Clock`]). Everything can fail: a device may be unplugged between any two accesses.
//!
//! # Ordering
//! Writes are *posted*. A host may gather them, but keeps their order across all windows of a
//! device. A read, a [`Mmio::flush`] or a [`Mmio::fence`] makes them happen; a posted write that
//! fails surfaces there, and the device counts as gone from then on.
//!
//! Before a doorbell the order is: ring words, write-pointer memory, fence, HDP flush, doorbell.

use core::fmt;

#[macro_use]
mod delegate;
pub mod count;
pub mod fault;
pub mod trace;
pub mod window;

/// A memory window (PCI BAR) of the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Window {
    /// BAR0: the VRAM aperture; the whole VRAM with a resized BAR, its first 256 MiB otherwise.
    Vram,
    /// BAR2: doorbells, 8 bytes each.
    Doorbells,
    /// BAR5: registers, one dword each.
    Registers,
}

impl Window {
    /// Number of the PCI base address register.
    pub const fn bar(self) -> u8 {
        match self {
            Window::Vram => 0,
            Window::Doorbells => 2,
            Window::Registers => 5,
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Window::Vram => "VRAM aperture (BAR0)",
            Window::Doorbells => "doorbells (BAR2)",
            Window::Registers => "registers (BAR5)",
        })
    }
}

/// What can go wrong between the core and the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BusError {
    /// The device no longer answers (unplugged, server gone, all-ones reads).
    #[error("the device is gone; plug it in again or reset it, then boot it anew")]
    Gone,
    /// The transport below did not answer in time.
    #[error("the transport did not answer within {after_us} us")]
    Timeout {
        /// How long the host waited, in microseconds.
        after_us: u64,
    },
    /// The host cannot make an access of this size here.
    #[error("an access of {size} bytes to {window} is not possible on this host")]
    UnsupportedSize {
        /// The window accessed.
        window: Window,
        /// The size in bytes.
        size: u64,
    },
    /// The access does not lie inside the window, or is not aligned to its size.
    #[error(
        "offset {offset:#x} (length {len:#x}) is outside {window}, which has {window_len:#x} bytes, or unaligned"
    )]
    OutOfWindow {
        /// The window accessed.
        window: Window,
        /// First byte of the access.
        offset: u64,
        /// Length of the access in bytes.
        len: u64,
        /// Length of the window in bytes.
        window_len: u64,
    },
    /// No memory that the device can reach is left.
    #[error("the host has no {len:#x} bytes of device-reachable memory left")]
    NoDmaMemory {
        /// The length asked for.
        len: u64,
    },
    /// A handle that is not (or no longer) an allocation of this bus, or a range outside it.
    #[error("DMA buffer {handle} has no range {offset:#x}+{len:#x}")]
    BadDmaRange {
        /// The buffer.
        handle: DmaHandle,
        /// First byte of the range.
        offset: u64,
        /// Length of the range.
        len: u64,
    },
    /// The host cannot do this at all.
    #[error("this host cannot {0}")]
    Unsupported(&'static str),
    /// What the host says in its own words, with what mends it.
    #[error("{0}")]
    Host(&'static str),
    /// The user asked for the end of the work.
    #[error("stopped by a signal")]
    Stopped,
    /// The machine slept meanwhile, and the device with it.
    #[error("the machine was suspended meanwhile and the device has lost its state; boot it anew")]
    Slept,
    /// An error of the operating system, by its number.
    #[error("operating system error {0} while accessing the device")]
    Os(i32),
}

/// Access to the device's windows. Offsets are in bytes from the start of the window; an access is
/// aligned to its size.
pub trait Mmio {
    /// Length of a window in bytes; 0 if the device has no such window.
    fn window_len(&self, window: Window) -> u64;

    /// Reads a dword.
    fn read32(&mut self, window: Window, offset: u64) -> Result<u32, BusError>;

    /// Writes a dword (posted).
    fn write32(&mut self, window: Window, offset: u64, value: u32) -> Result<(), BusError>;

    /// Reads 8 bytes in one access.
    fn read64(&mut self, window: Window, offset: u64) -> Result<u64, BusError>;

    /// Writes 8 bytes in one access (posted): a doorbell or a page-table entry.
    fn write64(&mut self, window: Window, offset: u64, value: u64) -> Result<(), BusError>;

    /// Reads a range of any alignment and length.
    fn read_bulk(&mut self, window: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError>;

    /// Writes a range of any alignment and length (posted).
    fn write_bulk(&mut self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError>;

    /// Fills `len` bytes with zeros (posted). Hosts with a cheaper way override it.
    fn zero(&mut self, window: Window, offset: u64, len: u64) -> Result<(), BusError> {
        const ZEROS: [u8; 256] = [0; 256];
        let mut done = 0;
        while done < len {
            let step = (len - done).min(ZEROS.len() as u64);
            self.write_bulk(window, offset + done, ZEROS.get(..step as usize).unwrap_or(&ZEROS))?;
            done += step;
        }
        Ok(())
    }

    /// Reads several dwords in the order given; a host with a slow transport sends them together.
    ///
    /// `out` receives one value for each of `offsets`; the shorter of the two slices decides.
    fn read_group(&mut self, window: Window, offsets: &[u64], out: &mut [u32]) -> Result<(), BusError> {
        for (value, offset) in out.iter_mut().zip(offsets) {
            *value = self.read32(window, *offset)?;
        }
        Ok(())
    }

    /// Makes all posted writes happen and reports the first that failed.
    fn flush(&mut self) -> Result<(), BusError>;

    /// Everything the CPU wrote, write-combined stores included, is visible before what follows.
    fn fence(&mut self) -> Result<(), BusError>;
}

/// An allocation of memory the device can reach.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DmaHandle(pub u32);

impl fmt::Display for DmaHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A piece of device-reachable memory that is contiguous for the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// Bus address, as the device has to use it.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Memory of the host that the device reaches over the bus.
pub trait Dma {
    /// Allocates `len` zeroed bytes; `len` and every segment are multiples of 4 KiB.
    fn dma_alloc(&mut self, len: u64) -> Result<DmaHandle, BusError>;

    /// Makes existing memory of the caller reachable. `cpu_addr` is the address in the caller's
    /// own address space; the host checks and pins it. Hosts that cannot do this say so.
    fn dma_pin(&mut self, cpu_addr: usize, len: u64) -> Result<DmaHandle, BusError> {
        let _ = (cpu_addr, len);
        Err(BusError::Unsupported("pin memory of the caller"))
    }

    /// Gives an allocation back. The device must no longer use it.
    fn dma_free(&mut self, handle: DmaHandle) -> Result<(), BusError>;

    /// Length of an allocation in bytes.
    fn dma_len(&self, handle: DmaHandle) -> Result<u64, BusError>;

    /// The segment that holds byte `offset`: its bus address at that byte and the bytes that
    /// follow contiguously. Walk an allocation by advancing `offset` by the returned length.
    fn dma_segment(&self, handle: DmaHandle, offset: u64) -> Result<Segment, BusError>;

    /// Reads what the CPU sees. Call [`Dma::sync_for_cpu`] first if the device wrote it.
    fn dma_read(&mut self, handle: DmaHandle, offset: u64, buf: &mut [u8]) -> Result<(), BusError>;

    /// Writes as the CPU. An aligned write of 4 or 8 bytes is one store.
    fn dma_write(&mut self, handle: DmaHandle, offset: u64, data: &[u8]) -> Result<(), BusError>;

    /// What the CPU wrote to the range becomes visible to the device.
    fn sync_for_device(&mut self, handle: DmaHandle, offset: u64, len: u64) -> Result<(), BusError> {
        let _ = (handle, offset, len);
        Ok(())
    }

    /// What the device wrote to the range becomes visible to the CPU.
    fn sync_for_cpu(&mut self, handle: DmaHandle, offset: u64, len: u64) -> Result<(), BusError> {
        let _ = (handle, offset, len);
        Ok(())
    }

    /// Bus address under which *other* devices reach this device's VRAM window, where they can.
    fn peer_vram_base(&self) -> Option<u64> {
        None
    }

    /// Length in bytes of what stands at [`Dma::peer_vram_base`]: BAR0, however far a decorator
    /// extends [`Window::Vram`]. 0 where other devices cannot reach it.
    fn peer_vram_len(&self) -> u64 {
        0
    }
}

/// Time. A simulated device brings its own, so that tests never sleep.
pub trait Clock {
    /// Microseconds since some fixed moment; never goes backwards.
    fn now_us(&self) -> u64;

    /// Lets at least `us` microseconds pass.
    fn wait_us(&self, us: u64);
}

/// A device as the core sees it.
pub trait Bus: Mmio + Dma {
    /// The clock by which this device's deadlines are measured.
    fn clock(&self) -> &dyn Clock;

    /// Waits until the device raises an interrupt or `timeout_us` passed; true if one came.
    /// Hosts without interrupts return at once with `Ok(false)` after letting a short time pass.
    fn wait_interrupt(&mut self, timeout_us: u64) -> Result<bool, BusError> {
        self.clock().wait_us(timeout_us.min(50));
        Ok(false)
    }

    /// The device is about to be told to reset itself: the host saves what only it can restore
    /// (PCI configuration space, BARs, settings of a bridge).
    fn before_reset(&mut self) -> Result<(), BusError> {
        Ok(())
    }

    /// What follows, until this is called with false as often as with true, is not to be broken off at the
    /// user's wish: the device would be left in the middle of something that cannot begin anew.
    fn keep_whole(&mut self, on: bool) {
        let _ = on;
    }

    /// Resets the device from outside (a secondary bus reset, or the power of an enclosure), with
    /// what belongs to it: afterwards the windows are accessible and configuration space is as
    /// before. A function-level reset will not do: it leaves these GPUs without what their firmware
    /// set up at power-on. Hosts that cannot do this say [`BusError::Unsupported`].
    fn reset_bus(&mut self) -> Result<(), BusError> {
        Err(BusError::Unsupported("reset the bus of the device"))
    }

    /// Each access is a message of its own, which takes a fraction of a millisecond (USB): what need
    /// not be done is left out, and memory of the host is nearer than the VRAM.
    fn is_slow(&self) -> bool {
        false
    }

    /// From now on nobody but this driver writes to this range (a ring, page tables): the host may
    /// leave a write out whose dwords hold the value already, and answer a read itself, as far as it
    /// wrote them since.
    fn cacheable(&mut self, window: Window, offset: u64, len: u64) {
        let _ = (window, offset, len);
    }

    /// [`Bus::cacheable`], and the device itself has just filled the range with zeros.
    fn scrubbed(&mut self, window: Window, offset: u64, len: u64) {
        let _ = (window, offset, len);
    }

    /// The range is like others again.
    fn uncacheable(&mut self, window: Window, offset: u64, len: u64) {
        let _ = (window, offset, len);
    }

    /// [`Bus::cacheable`] for a range of an allocation, until that is freed.
    fn dma_cacheable(&mut self, handle: DmaHandle, offset: u64, len: u64) {
        let _ = (handle, offset, len);
    }

    /// The device is about to write to a range of host memory: a host that carries such data itself (a USB
    /// bridge) makes ready to. It does so when the device has written to the *bell* behind it, see
    /// [`crate::runtime::Sizes::bell`]; [`Dma::dma_read`] of the range follows. False if nothing is needed.
    fn dma_arm(&mut self, handle: DmaHandle, offset: u64, len: u64) -> Result<bool, BusError> {
        let _ = (handle, offset, len);
        Ok(false)
    }

    /// The device has reset itself: the host restores what it saved. No window is accessed between
    /// [`Bus::before_reset`] and this but to tell the device to reset.
    fn after_reset(&mut self) -> Result<(), BusError> {
        Ok(())
    }
}

impl<T: Mmio + ?Sized> Mmio for &mut T {
    fn window_len(&self, window: Window) -> u64 {
        (**self).window_len(window)
    }
    fn read32(&mut self, window: Window, offset: u64) -> Result<u32, BusError> {
        (**self).read32(window, offset)
    }
    fn write32(&mut self, window: Window, offset: u64, value: u32) -> Result<(), BusError> {
        (**self).write32(window, offset, value)
    }
    fn read64(&mut self, window: Window, offset: u64) -> Result<u64, BusError> {
        (**self).read64(window, offset)
    }
    fn write64(&mut self, window: Window, offset: u64, value: u64) -> Result<(), BusError> {
        (**self).write64(window, offset, value)
    }
    fn read_bulk(&mut self, window: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        (**self).read_bulk(window, offset, buf)
    }
    fn write_bulk(&mut self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        (**self).write_bulk(window, offset, data)
    }
    fn zero(&mut self, window: Window, offset: u64, len: u64) -> Result<(), BusError> {
        (**self).zero(window, offset, len)
    }
    fn read_group(&mut self, window: Window, offsets: &[u64], out: &mut [u32]) -> Result<(), BusError> {
        (**self).read_group(window, offsets, out)
    }
    fn flush(&mut self) -> Result<(), BusError> {
        (**self).flush()
    }
    fn fence(&mut self) -> Result<(), BusError> {
        (**self).fence()
    }
}

impl<T: Dma + ?Sized> Dma for &mut T {
    fn dma_alloc(&mut self, len: u64) -> Result<DmaHandle, BusError> {
        (**self).dma_alloc(len)
    }
    fn dma_pin(&mut self, cpu_addr: usize, len: u64) -> Result<DmaHandle, BusError> {
        (**self).dma_pin(cpu_addr, len)
    }
    fn dma_free(&mut self, handle: DmaHandle) -> Result<(), BusError> {
        (**self).dma_free(handle)
    }
    fn dma_len(&self, handle: DmaHandle) -> Result<u64, BusError> {
        (**self).dma_len(handle)
    }
    fn dma_segment(&self, handle: DmaHandle, offset: u64) -> Result<Segment, BusError> {
        (**self).dma_segment(handle, offset)
    }
    fn dma_read(&mut self, handle: DmaHandle, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        (**self).dma_read(handle, offset, buf)
    }
    fn dma_write(&mut self, handle: DmaHandle, offset: u64, data: &[u8]) -> Result<(), BusError> {
        (**self).dma_write(handle, offset, data)
    }
    fn sync_for_device(&mut self, handle: DmaHandle, offset: u64, len: u64) -> Result<(), BusError> {
        (**self).sync_for_device(handle, offset, len)
    }
    fn sync_for_cpu(&mut self, handle: DmaHandle, offset: u64, len: u64) -> Result<(), BusError> {
        (**self).sync_for_cpu(handle, offset, len)
    }
    fn peer_vram_base(&self) -> Option<u64> {
        (**self).peer_vram_base()
    }
    fn peer_vram_len(&self) -> u64 {
        (**self).peer_vram_len()
    }
}

impl<T: Bus + ?Sized> Bus for &mut T {
    fn clock(&self) -> &dyn Clock {
        (**self).clock()
    }
    fn wait_interrupt(&mut self, timeout_us: u64) -> Result<bool, BusError> {
        (**self).wait_interrupt(timeout_us)
    }
    fn before_reset(&mut self) -> Result<(), BusError> {
        (**self).before_reset()
    }
    fn after_reset(&mut self) -> Result<(), BusError> {
        (**self).after_reset()
    }
    fn reset_bus(&mut self) -> Result<(), BusError> {
        (**self).reset_bus()
    }
    fn keep_whole(&mut self, on: bool) {
        (**self).keep_whole(on);
    }
    fn is_slow(&self) -> bool {
        (**self).is_slow()
    }
    fn cacheable(&mut self, window: Window, offset: u64, len: u64) {
        (**self).cacheable(window, offset, len);
    }
    fn scrubbed(&mut self, window: Window, offset: u64, len: u64) {
        (**self).scrubbed(window, offset, len);
    }
    fn uncacheable(&mut self, window: Window, offset: u64, len: u64) {
        (**self).uncacheable(window, offset, len);
    }
    fn dma_cacheable(&mut self, handle: DmaHandle, offset: u64, len: u64) {
        (**self).dma_cacheable(handle, offset, len);
    }
    fn dma_arm(&mut self, handle: DmaHandle, offset: u64, len: u64) -> Result<bool, BusError> {
        (**self).dma_arm(handle, offset, len)
    }
}
