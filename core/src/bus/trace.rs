//! Records what is done to a device, in program order.
//!
//! [`Trace`] turns accesses into [`Event`]s, a [`TraceSink`] takes them; [`JsonLines`] writes them
//! as rows that can be compared with a trace of another driver. Consecutive reads of one register
//! (a poll) are one event.

use super::{Bus, BusError, Clock, Dma, DmaHandle, Mmio, Window};
use core::cell::Cell;

mod json;
pub use json::{Digest, JsonLines, Names};

/// Dword address of `RSMU_INDEX` (`regBIF_BX_PF0_RSMU_INDEX` 0x0000 in segment 1, whose base is
/// 0x14; the same in nbio 4.3 and nbif 6.3.1).
pub const RSMU_INDEX: u32 = 0x14;
/// Dword address of `RSMU_DATA`.
pub const RSMU_DATA: u32 = 0x15;

/// One thing that was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// Reads of one register, without any other access in between.
    RegRead {
        /// Dword address.
        addr: u32,
        /// Target of an RSMU access, as a dword address.
        indirect: Option<u32>,
        /// How many reads.
        n: u32,
        /// What all reads but the last returned.
        first: u32,
        /// What the last read returned.
        value: u32,
        /// Microseconds waited between the reads.
        waited_us: u64,
    },
    /// A register write.
    RegWrite {
        /// Dword address.
        addr: u32,
        /// Target of an RSMU access, as a dword address.
        indirect: Option<u32>,
        /// The value.
        value: u32,
    },
    /// VRAM was read through the aperture.
    VramRead {
        /// Offset in VRAM in bytes.
        addr: u64,
        /// What was read.
        data: &'a [u8],
    },
    /// VRAM was written through the aperture.
    VramWrite {
        /// Offset in VRAM in bytes.
        addr: u64,
        /// What was written.
        data: &'a [u8],
    },
    /// VRAM was filled with zeros.
    VramZero {
        /// Offset in VRAM in bytes.
        addr: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A doorbell was written.
    Doorbell {
        /// Offset in the doorbell BAR in bytes.
        offset: u64,
        /// 4 or 8 bytes, little endian.
        data: &'a [u8],
    },
    /// A CPU barrier.
    Fence,
    /// The driver waited.
    Sleep {
        /// Microseconds.
        us: u64,
    },
    /// The driver waited for an interrupt.
    WaitInterrupt {
        /// True if one came.
        came: bool,
    },
    /// Memory was made reachable for the device.
    DmaAlloc {
        /// Which.
        handle: DmaHandle,
        /// Its length in bytes.
        len: u64,
    },
    /// It was given back.
    DmaFree {
        /// Which.
        handle: DmaHandle,
    },
    /// An access failed.
    Failed {
        /// How.
        error: BusError,
    },
    /// The driver entered a part of its work.
    Mark {
        /// Its name.
        name: &'a str,
    },
}

/// Takes the events. A sink that cannot keep one remembers why and goes on: a full disk must not
/// stop a boot half-way.
pub trait TraceSink {
    /// Takes one event.
    fn event(&mut self, event: Event<'_>);
}

impl<S: TraceSink + ?Sized> TraceSink for &mut S {
    fn event(&mut self, event: Event<'_>) {
        (**self).event(event);
    }
}

#[derive(Debug, Clone, Copy)]
struct PendingRead {
    addr: u32,
    indirect: Option<u32>,
    n: u32,
    first: u32,
    value: u32,
    waited_us: u64,
}

/// A bus that records.
#[derive(Debug)]
pub struct Trace<B, S> {
    inner: B,
    sink: S,
    pending: Option<PendingRead>,
    rsmu_target: Option<u32>,
    slept_us: Cell<u64>,
}

impl<B, S: TraceSink> Trace<B, S> {
    /// Sends what is done to `inner` to `sink`.
    pub fn new(inner: B, sink: S) -> Self {
        Trace { inner, sink, pending: None, rsmu_target: None, slept_us: Cell::new(0) }
    }

    /// The sink, with every event up to now.
    pub fn sink_mut(&mut self) -> &mut S {
        self.settle();
        &mut self.sink
    }

    /// The bus below.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// The bus below. What is done there is not recorded.
    pub fn inner_mut(&mut self) -> &mut B {
        &mut self.inner
    }

    /// Takes the decorator off.
    pub fn into_parts(mut self) -> (B, S) {
        self.settle();
        (self.inner, self.sink)
    }

    /// Records that a part of the work begins.
    pub fn mark(&mut self, name: &str) {
        self.emit(Event::Mark { name });
    }

    fn settle(&mut self) {
        if let Some(p) = self.pending.take() {
            let PendingRead { addr, indirect, n, first, value, waited_us } = p;
            self.sink.event(Event::RegRead { addr, indirect, n, first, value, waited_us });
        }
        let us = self.slept_us.take();
        if us > 0 {
            self.sink.event(Event::Sleep { us });
        }
    }

    fn emit(&mut self, event: Event<'_>) {
        self.settle();
        self.sink.event(event);
    }

    /// Hands on a result; a failure is an event.
    fn check<T>(&mut self, result: Result<T, BusError>) -> Result<T, BusError> {
        if let Err(error) = &result {
            self.emit(Event::Failed { error: *error });
        }
        result
    }

    fn reg_read(&mut self, addr: u32, value: u32) {
        let indirect = if addr == RSMU_DATA { self.rsmu_target } else { None };
        if let Some(p) = &mut self.pending
            && p.addr == addr
            && p.value == p.first
        {
            // A poll. Only the last value may differ: once it does, the next read is a new event.
            p.n = p.n.saturating_add(1);
            p.value = value;
            p.waited_us = p.waited_us.saturating_add(self.slept_us.take());
            return;
        }
        self.settle();
        self.pending = Some(PendingRead { addr, indirect, n: 1, first: value, value, waited_us: 0 });
    }

    fn reg_write(&mut self, addr: u32, value: u32) {
        let indirect = match addr {
            RSMU_INDEX => {
                self.rsmu_target = Some(value / 4);
                self.rsmu_target
            }
            RSMU_DATA => self.rsmu_target,
            _ => None,
        };
        self.emit(Event::RegWrite { addr, indirect, value });
    }

    fn saw_read(&mut self, window: Window, offset: u64, data: &[u8]) {
        match window {
            Window::Vram => self.emit(Event::VramRead { addr: offset, data }),
            Window::Registers => each_dword(offset, data, |addr, value| self.reg_read(addr, value)),
            // Nothing is to be learnt from reading doorbells, and no driver does.
            Window::Doorbells => {}
        }
    }

    fn saw_write(&mut self, window: Window, offset: u64, data: &[u8]) {
        match window {
            Window::Vram => self.emit(Event::VramWrite { addr: offset, data }),
            Window::Registers => each_dword(offset, data, |addr, value| self.reg_write(addr, value)),
            Window::Doorbells => self.emit(Event::Doorbell { offset, data }),
        }
    }
}

fn each_dword(offset: u64, data: &[u8], mut f: impl FnMut(u32, u32)) {
    for (i, word) in data.chunks_exact(4).enumerate() {
        if let Ok(bytes) = word.try_into() {
            f((offset / 4).saturating_add(i as u64) as u32, u32::from_le_bytes(bytes));
        }
    }
}

impl<B: Mmio, S: TraceSink> Mmio for Trace<B, S> {
    fn window_len(&self, window: Window) -> u64 {
        self.inner.window_len(window)
    }
    fn read32(&mut self, window: Window, offset: u64) -> Result<u32, BusError> {
        let result = self.inner.read32(window, offset);
        let value = self.check(result)?;
        self.saw_read(window, offset, &value.to_le_bytes());
        Ok(value)
    }
    fn write32(&mut self, window: Window, offset: u64, value: u32) -> Result<(), BusError> {
        self.saw_write(window, offset, &value.to_le_bytes());
        let result = self.inner.write32(window, offset, value);
        self.check(result)
    }
    fn read64(&mut self, window: Window, offset: u64) -> Result<u64, BusError> {
        let result = self.inner.read64(window, offset);
        let value = self.check(result)?;
        self.saw_read(window, offset, &value.to_le_bytes());
        Ok(value)
    }
    fn write64(&mut self, window: Window, offset: u64, value: u64) -> Result<(), BusError> {
        self.saw_write(window, offset, &value.to_le_bytes());
        let result = self.inner.write64(window, offset, value);
        self.check(result)
    }
    fn read_bulk(&mut self, window: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        let result = self.inner.read_bulk(window, offset, buf);
        self.check(result)?;
        self.saw_read(window, offset, buf);
        Ok(())
    }
    fn write_bulk(&mut self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.saw_write(window, offset, data);
        let result = self.inner.write_bulk(window, offset, data);
        self.check(result)
    }
    fn zero(&mut self, window: Window, offset: u64, len: u64) -> Result<(), BusError> {
        if window == Window::Vram {
            self.emit(Event::VramZero { addr: offset, len });
        } else {
            // No driver clears registers or doorbells in bulk; recorded dword by dword all the same.
            for at in (0..len / 4).map(|i| offset.saturating_add(4 * i)) {
                self.saw_write(window, at, &[0; 4]);
            }
        }
        let result = self.inner.zero(window, offset, len);
        self.check(result)
    }
    fn read_group(&mut self, window: Window, offsets: &[u64], out: &mut [u32]) -> Result<(), BusError> {
        let result = self.inner.read_group(window, offsets, out);
        self.check(result)?;
        for (value, offset) in out.iter().zip(offsets) {
            self.saw_read(window, *offset, &value.to_le_bytes());
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<(), BusError> {
        let result = self.inner.flush();
        self.check(result)
    }
    fn fence(&mut self) -> Result<(), BusError> {
        self.emit(Event::Fence);
        let result = self.inner.fence();
        self.check(result)
    }
}

impl<B: Dma, S: TraceSink> Dma for Trace<B, S> {
    fn dma_alloc(&mut self, len: u64) -> Result<DmaHandle, BusError> {
        let result = self.inner.dma_alloc(len);
        let handle = self.check(result)?;
        self.emit(Event::DmaAlloc { handle, len });
        Ok(handle)
    }
    fn dma_pin(&mut self, cpu_addr: usize, len: u64) -> Result<DmaHandle, BusError> {
        let result = self.inner.dma_pin(cpu_addr, len);
        let handle = self.check(result)?;
        self.emit(Event::DmaAlloc { handle, len });
        Ok(handle)
    }
    fn dma_free(&mut self, handle: DmaHandle) -> Result<(), BusError> {
        self.emit(Event::DmaFree { handle });
        let result = self.inner.dma_free(handle);
        self.check(result)
    }
    delegate_dma!(no_alloc);
}

impl<B: Bus, S: TraceSink> Clock for Trace<B, S> {
    fn now_us(&self) -> u64 {
        self.inner.clock().now_us()
    }
    fn wait_us(&self, us: u64) {
        self.slept_us.set(self.slept_us.get().saturating_add(us));
        self.inner.clock().wait_us(us);
    }
}

impl<B: Bus, S: TraceSink> Bus for Trace<B, S> {
    fn clock(&self) -> &dyn Clock {
        self
    }
    fn wait_interrupt(&mut self, timeout_us: u64) -> Result<bool, BusError> {
        let result = self.inner.wait_interrupt(timeout_us);
        let came = self.check(result)?;
        self.emit(Event::WaitInterrupt { came });
        Ok(came)
    }
    delegate_resets!();
    delegate_traits!();
}
