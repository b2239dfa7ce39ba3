//! A bus as an operating system would write it, with a simulated GPU where the hardware would be.
//!
//! What an OS has instead: three mapped PCI windows, an allocator of DMA memory, a timer, an
//! interrupt. Everything that is different there is marked with "OS:".

use amdev_core::bus::{Bus, BusError, Clock, Dma, DmaHandle, Mmio, Segment, Window};

use amdev_sim::{BusFault, Config, SimGpu, VecMemory};
use std::collections::HashMap;
use std::sync::Arc;

/// Bus addresses are given out from here on.
const FIRST_ADDRESS: u64 = 0x1_0000_0000;
const PAGE: u64 = 4096;

/// The bus of one GPU.
pub(crate) struct OsBus {
    gpu: SimGpu,
    memory: HashMap<u32, (Arc<VecMemory>, Segment)>,
    next_handle: u32,
    next_address: u64,
}

impl OsBus {
    /// Finds the GPU. OS: walk the PCI bus for vendor 0x1002 and class 0x03, switch memory space and
    /// bus mastering on, map BAR0 write-combined, BAR2 and BAR5 uncached.
    pub(crate) fn find(model: &str) -> Result<OsBus, amdev_sim::ConfigError> {
        let gpu = SimGpu::new(Config::new(model)?);
        Ok(OsBus { gpu, memory: HashMap::new(), next_handle: 0, next_address: FIRST_ADDRESS })
    }

    /// PCI device id and revision: which firmware the GPU needs depends on them.
    pub(crate) fn pci_id(&self) -> (u16, u8) {
        let (mut device, mut revision) = ([0; 2], [0; 1]);
        self.gpu.config_read(2, &mut device);
        self.gpu.config_read(8, &mut revision);
        (u16::from_le_bytes(device), revision[0])
    }

    /// What the simulated GPU has seen the driver do wrong: nothing, we hope.
    #[allow(dead_code)] // not every example asks
    pub(crate) fn misuse(&self) -> Vec<String> {
        self.gpu.violations().iter().map(ToString::to_string).collect()
    }

    fn load(&self, window: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        let len = buf.len() as u64;
        // OS: a volatile load from the mapped window, after a check of the range.
        self.gpu.read(window.bar(), offset, buf).map_err(|f| self.error(f, window, offset, len))
    }

    fn store(&self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        let len = data.len() as u64;
        self.gpu.write(window.bar(), offset, data).map_err(|f| self.error(f, window, offset, len))
    }

    fn error(&self, fault: BusFault, window: Window, offset: u64, len: u64) -> BusError {
        match fault {
            BusFault::Gone => BusError::Gone,
            BusFault::Unsupported { .. } => BusError::UnsupportedSize { window, size: len },
            BusFault::OutOfWindow { .. } => {
                BusError::OutOfWindow { window, offset, len, window_len: self.window_len(window) }
            }
        }
    }

    fn dma(&self, handle: DmaHandle, offset: u64, len: u64) -> Result<&(Arc<VecMemory>, Segment), BusError> {
        let inside = |end: u64, all: u64| end <= all;
        let found = self
            .memory
            .get(&handle.0)
            .filter(|(_, s)| offset.checked_add(len).is_some_and(|end| inside(end, s.len)));
        found.ok_or(BusError::BadDmaRange { handle, offset, len })
    }
}

impl Mmio for OsBus {
    fn window_len(&self, window: Window) -> u64 {
        self.gpu.bar_len(window.bar())
    }
    fn read32(&mut self, window: Window, offset: u64) -> Result<u32, BusError> {
        let mut buf = [0; 4];
        self.load(window, offset, &mut buf)?;
        Ok(u32::from_le_bytes(buf))
    }
    fn write32(&mut self, window: Window, offset: u64, value: u32) -> Result<(), BusError> {
        self.store(window, offset, &value.to_le_bytes())
    }
    fn read64(&mut self, window: Window, offset: u64) -> Result<u64, BusError> {
        let mut buf = [0; 8];
        self.load(window, offset, &mut buf)?;
        Ok(u64::from_le_bytes(buf))
    }
    fn write64(&mut self, window: Window, offset: u64, value: u64) -> Result<(), BusError> {
        // One store: a doorbell or a page-table entry must not be torn.
        self.store(window, offset, &value.to_le_bytes())
    }
    fn read_bulk(&mut self, window: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        self.load(window, offset, buf)
    }
    fn write_bulk(&mut self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.store(window, offset, data)
    }
    fn flush(&mut self) -> Result<(), BusError> {
        // OS: nothing is gathered here; a host that gathers sends it now.
        if self.gpu.present() { Ok(()) } else { Err(BusError::Gone) }
    }
    fn fence(&mut self) -> Result<(), BusError> {
        // OS: `sfence` on x86, `dsb st` on ARM: write-combined stores, too, must be visible.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.flush()
    }
}

impl Dma for OsBus {
    fn dma_alloc(&mut self, len: u64) -> Result<DmaHandle, BusError> {
        let none = BusError::NoDmaMemory { len };
        let len = len.checked_next_multiple_of(PAGE).filter(|l| *l > 0).ok_or(none)?;
        // OS: pages that stay where they are, mapped in the IOMMU; zeroed, since the GPU reads them.
        let memory = VecMemory::new(usize::try_from(len).map_err(|_| none)?);
        let segment = Segment { addr: self.next_address, len };
        if !self.gpu.dma_map(segment.addr, len, memory.clone()) {
            return Err(none);
        }
        self.next_address += len + PAGE;
        self.next_handle += 1;
        self.memory.insert(self.next_handle, (memory, segment));
        Ok(DmaHandle(self.next_handle))
    }
    fn dma_free(&mut self, handle: DmaHandle) -> Result<(), BusError> {
        let segment = self.dma(handle, 0, 0)?.1;
        self.gpu.dma_unmap(segment.addr, segment.len);
        self.memory.remove(&handle.0);
        Ok(())
    }
    fn dma_len(&self, handle: DmaHandle) -> Result<u64, BusError> {
        Ok(self.dma(handle, 0, 0)?.1.len)
    }
    fn dma_segment(&self, handle: DmaHandle, offset: u64) -> Result<Segment, BusError> {
        let segment = self.dma(handle, offset, 1)?.1;
        Ok(Segment { addr: segment.addr + offset, len: segment.len - offset })
    }
    fn dma_read(&mut self, handle: DmaHandle, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        let (memory, segment) = self.dma(handle, offset, buf.len() as u64)?;
        buf.copy_from_slice(&memory.bytes(offset as usize, buf.len()));
        self.gpu.host_reads(segment.addr + offset, buf.len());
        Ok(())
    }
    fn dma_write(&mut self, handle: DmaHandle, offset: u64, data: &[u8]) -> Result<(), BusError> {
        let (memory, segment) = self.dma(handle, offset, data.len() as u64)?;
        memory.store(offset as usize, data);
        self.gpu.host_writes(segment.addr + offset, data.len());
        Ok(())
    }
}

impl Clock for OsBus {
    fn now_us(&self) -> u64 {
        // OS: any counter that never goes backwards.
        self.gpu.now_us()
    }
    fn wait_us(&self, us: u64) {
        self.gpu.advance_us(us);
    }
}

impl Bus for OsBus {
    fn clock(&self) -> &dyn Clock {
        self
    }
    fn wait_interrupt(&mut self, timeout_us: u64) -> Result<bool, BusError> {
        // OS: sleep until the MSI's handler wakes this thread, or until the time is over.
        let mut left = timeout_us;
        loop {
            if self.gpu.take_interrupts() > 0 {
                return Ok(true);
            }
            self.flush()?;
            if left == 0 {
                return Ok(false);
            }
            let step = left.min(50);
            self.wait_us(step);
            left -= step;
        }
    }
}
