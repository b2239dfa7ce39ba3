//! Counts what is done to a device: the cost of a boot, of a copy, of a submission.

use super::{Bus, BusError, Clock, Dma, DmaHandle, Mmio, Window};

/// Accesses to one window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WindowCounts {
    /// Reads, a bulk read counting as one.
    pub reads: u64,
    /// Writes, a bulk write counting as one.
    pub writes: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

impl WindowCounts {
    fn since(self, earlier: Self) -> Self {
        WindowCounts {
            reads: self.reads.saturating_sub(earlier.reads),
            writes: self.writes.saturating_sub(earlier.writes),
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            bytes_written: self.bytes_written.saturating_sub(earlier.bytes_written),
        }
    }
}

/// Everything counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Register accesses. A grouped read counts each of its registers.
    pub registers: WindowCounts,
    /// Accesses to the VRAM aperture.
    pub vram: WindowCounts,
    /// Doorbell accesses: `writes` is the number of doorbells rung.
    pub doorbells: WindowCounts,
    /// Fences.
    pub fences: u64,
    /// Flushes of posted writes.
    pub flushes: u64,
    /// DMA allocations made or pinned.
    pub dma_allocs: u64,
    /// DMA allocations given back.
    pub dma_frees: u64,
    /// Waits for an interrupt.
    pub interrupt_waits: u64,
    /// Accesses that failed.
    pub errors: u64,
}

impl Counts {
    /// Counts of one window.
    pub fn window(&self, window: Window) -> &WindowCounts {
        match window {
            Window::Vram => &self.vram,
            Window::Doorbells => &self.doorbells,
            Window::Registers => &self.registers,
        }
    }

    fn window_mut(&mut self, window: Window) -> &mut WindowCounts {
        match window {
            Window::Vram => &mut self.vram,
            Window::Doorbells => &mut self.doorbells,
            Window::Registers => &mut self.registers,
        }
    }

    /// What was counted after `earlier`, an older copy of the same counts.
    pub fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            registers: self.registers.since(earlier.registers),
            vram: self.vram.since(earlier.vram),
            doorbells: self.doorbells.since(earlier.doorbells),
            fences: self.fences.saturating_sub(earlier.fences),
            flushes: self.flushes.saturating_sub(earlier.flushes),
            dma_allocs: self.dma_allocs.saturating_sub(earlier.dma_allocs),
            dma_frees: self.dma_frees.saturating_sub(earlier.dma_frees),
            interrupt_waits: self.interrupt_waits.saturating_sub(earlier.interrupt_waits),
            errors: self.errors.saturating_sub(earlier.errors),
        }
    }
}

/// A bus that counts. Failed accesses count as errors only.
#[derive(Debug)]
pub struct Count<B> {
    inner: B,
    counts: Counts,
}

impl<B> Count<B> {
    /// Counts what is done to `inner`.
    pub fn new(inner: B) -> Self {
        Count { inner, counts: Counts::default() }
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The bus below.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// The bus below.
    pub fn inner_mut(&mut self) -> &mut B {
        &mut self.inner
    }

    /// Takes the decorator off.
    pub fn into_inner(self) -> B {
        self.inner
    }

    fn tally<T>(
        &mut self,
        result: Result<T, BusError>,
        on_success: impl FnOnce(&mut Counts),
    ) -> Result<T, BusError> {
        match result {
            Ok(_) => on_success(&mut self.counts),
            Err(_) => self.counts.errors += 1,
        }
        result
    }

    fn tally_read<T>(
        &mut self,
        window: Window,
        n: u64,
        bytes: u64,
        result: Result<T, BusError>,
    ) -> Result<T, BusError> {
        self.tally(result, |c| {
            let w = c.window_mut(window);
            w.reads += n;
            w.bytes_read = w.bytes_read.saturating_add(bytes);
        })
    }

    fn tally_write(
        &mut self,
        window: Window,
        bytes: u64,
        result: Result<(), BusError>,
    ) -> Result<(), BusError> {
        self.tally(result, |c| {
            let w = c.window_mut(window);
            w.writes += 1;
            w.bytes_written = w.bytes_written.saturating_add(bytes);
        })
    }
}

impl<B: Mmio> Mmio for Count<B> {
    fn window_len(&self, window: Window) -> u64 {
        self.inner.window_len(window)
    }
    fn read32(&mut self, window: Window, offset: u64) -> Result<u32, BusError> {
        let result = self.inner.read32(window, offset);
        self.tally_read(window, 1, 4, result)
    }
    fn write32(&mut self, window: Window, offset: u64, value: u32) -> Result<(), BusError> {
        let result = self.inner.write32(window, offset, value);
        self.tally_write(window, 4, result)
    }
    fn read64(&mut self, window: Window, offset: u64) -> Result<u64, BusError> {
        let result = self.inner.read64(window, offset);
        self.tally_read(window, 1, 8, result)
    }
    fn write64(&mut self, window: Window, offset: u64, value: u64) -> Result<(), BusError> {
        let result = self.inner.write64(window, offset, value);
        self.tally_write(window, 8, result)
    }
    fn read_bulk(&mut self, window: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        let bytes = buf.len() as u64;
        let result = self.inner.read_bulk(window, offset, buf);
        self.tally_read(window, 1, bytes, result)
    }
    fn write_bulk(&mut self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        let result = self.inner.write_bulk(window, offset, data);
        self.tally_write(window, data.len() as u64, result)
    }
    fn zero(&mut self, window: Window, offset: u64, len: u64) -> Result<(), BusError> {
        let result = self.inner.zero(window, offset, len);
        self.tally_write(window, len, result)
    }
    fn read_group(&mut self, window: Window, offsets: &[u64], out: &mut [u32]) -> Result<(), BusError> {
        let n = offsets.len().min(out.len()) as u64;
        let result = self.inner.read_group(window, offsets, out);
        self.tally_read(window, n, 4 * n, result)
    }
    fn flush(&mut self) -> Result<(), BusError> {
        let result = self.inner.flush();
        self.tally(result, |c| c.flushes += 1)
    }
    fn fence(&mut self) -> Result<(), BusError> {
        let result = self.inner.fence();
        self.tally(result, |c| c.fences += 1)
    }
}

impl<B: Dma> Dma for Count<B> {
    fn dma_alloc(&mut self, len: u64) -> Result<DmaHandle, BusError> {
        let result = self.inner.dma_alloc(len);
        self.tally(result, |c| c.dma_allocs += 1)
    }
    fn dma_pin(&mut self, cpu_addr: usize, len: u64) -> Result<DmaHandle, BusError> {
        let result = self.inner.dma_pin(cpu_addr, len);
        self.tally(result, |c| c.dma_allocs += 1)
    }
    fn dma_free(&mut self, handle: DmaHandle) -> Result<(), BusError> {
        let result = self.inner.dma_free(handle);
        self.tally(result, |c| c.dma_frees += 1)
    }
    delegate_dma!(no_alloc);
}

impl<B: Bus> Bus for Count<B> {
    fn clock(&self) -> &dyn Clock {
        self.inner.clock()
    }
    fn wait_interrupt(&mut self, timeout_us: u64) -> Result<bool, BusError> {
        let result = self.inner.wait_interrupt(timeout_us);
        self.tally(result, |c| c.interrupt_waits += 1)
    }
    delegate_resets!();
    delegate_traits!();
}
