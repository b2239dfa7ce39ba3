//! A bus without a device behind it: windows are plain memory, VRAM beyond the aperture hangs on
//! `MM_INDEX`/`MM_DATA`, and DMA memory exists twice, once for the CPU and once for the device, so
//! that a forgotten sync shows as old data.

use amdev_core::bus::{Bus, BusError, Clock, Dma, DmaHandle, Mmio, Segment, Window};
use std::cell::Cell;

pub(crate) struct FakeClock(Cell<u64>);

impl Clock for FakeClock {
    fn now_us(&self) -> u64 {
        self.0.get()
    }
    fn wait_us(&self, us: u64) {
        self.0.set(self.0.get() + us);
    }
}

#[derive(Default)]
struct Buffer {
    cpu: Vec<u8>,
    device: Vec<u8>,
}

pub(crate) struct FakeBus {
    pub(crate) vram: Vec<u8>,
    aperture: usize,
    pub(crate) doorbells: Vec<u8>,
    pub(crate) registers: Vec<u8>,
    buffers: Vec<Option<Buffer>>,
    clock: FakeClock,
    /// Values that reads of register 0x100 (dword) return, one after the other.
    pub(crate) poll: Vec<u32>,
    pub(crate) fences: u32,
}

impl FakeBus {
    pub(crate) fn new(vram: usize, aperture: usize) -> Self {
        FakeBus {
            vram: vec![0; vram],
            aperture,
            doorbells: vec![0; 0x1000],
            registers: vec![0; 0x1000],
            buffers: Vec::new(),
            clock: FakeClock(Cell::new(0)),
            poll: Vec::new(),
            fences: 0,
        }
    }

    fn reg(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.registers[offset..offset + 4].try_into().unwrap())
    }

    fn indexed(&self) -> usize {
        assert_ne!(self.reg(0) >> 31, 0, "MM_INDEX without the frame buffer bit");
        ((u64::from(self.reg(0x18)) << 31) | u64::from(self.reg(0) & 0x7fff_ffff)) as usize
    }

    fn range(&mut self, window: Window, offset: u64, len: usize) -> Result<&mut [u8], BusError> {
        let window_len = self.window_len(window);
        if offset + len as u64 > window_len {
            return Err(BusError::OutOfWindow { window, offset, len: len as u64, window_len });
        }
        let memory = match window {
            Window::Vram => &mut self.vram,
            Window::Doorbells => &mut self.doorbells,
            Window::Registers => &mut self.registers,
        };
        Ok(&mut memory[offset as usize..offset as usize + len])
    }

    fn buffer(&mut self, handle: DmaHandle, offset: u64, len: u64) -> Result<&mut Buffer, BusError> {
        match self.buffers.get_mut(handle.0 as usize) {
            Some(Some(b)) if offset + len <= b.cpu.len() as u64 => Ok(b),
            _ => Err(BusError::BadDmaRange { handle, offset, len }),
        }
    }
}

impl Mmio for FakeBus {
    fn window_len(&self, window: Window) -> u64 {
        match window {
            Window::Vram => self.aperture as u64,
            Window::Doorbells => self.doorbells.len() as u64,
            Window::Registers => self.registers.len() as u64,
        }
    }
    fn read32(&mut self, window: Window, offset: u64) -> Result<u32, BusError> {
        if (window, offset) == (Window::Registers, 4) {
            let at = self.indexed();
            return Ok(u32::from_le_bytes(self.vram[at..at + 4].try_into().unwrap()));
        }
        if (window, offset) == (Window::Registers, 0x400) && !self.poll.is_empty() {
            return Ok(self.poll.remove(0));
        }
        Ok(u32::from_le_bytes((&*self.range(window, offset, 4)?).try_into().unwrap()))
    }
    fn write32(&mut self, window: Window, offset: u64, value: u32) -> Result<(), BusError> {
        if (window, offset) == (Window::Registers, 4) {
            let at = self.indexed();
            self.vram[at..at + 4].copy_from_slice(&value.to_le_bytes());
            return Ok(());
        }
        self.range(window, offset, 4)?.copy_from_slice(&value.to_le_bytes());
        Ok(())
    }
    fn read64(&mut self, window: Window, offset: u64) -> Result<u64, BusError> {
        Ok(u64::from_le_bytes((&*self.range(window, offset, 8)?).try_into().unwrap()))
    }
    fn write64(&mut self, window: Window, offset: u64, value: u64) -> Result<(), BusError> {
        self.range(window, offset, 8)?.copy_from_slice(&value.to_le_bytes());
        Ok(())
    }
    fn read_bulk(&mut self, window: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        buf.copy_from_slice(self.range(window, offset, buf.len())?);
        Ok(())
    }
    fn write_bulk(&mut self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.range(window, offset, data.len())?.copy_from_slice(data);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), BusError> {
        Ok(())
    }
    fn fence(&mut self) -> Result<(), BusError> {
        self.fences += 1;
        Ok(())
    }
}

impl Dma for FakeBus {
    fn dma_alloc(&mut self, len: u64) -> Result<DmaHandle, BusError> {
        let len = len as usize;
        self.buffers.push(Some(Buffer { cpu: vec![0; len], device: vec![0; len] }));
        Ok(DmaHandle(self.buffers.len() as u32 - 1))
    }
    fn dma_free(&mut self, handle: DmaHandle) -> Result<(), BusError> {
        self.buffer(handle, 0, 0)?;
        self.buffers[handle.0 as usize] = None;
        Ok(())
    }
    fn dma_len(&self, handle: DmaHandle) -> Result<u64, BusError> {
        match self.buffers.get(handle.0 as usize) {
            Some(Some(b)) => Ok(b.cpu.len() as u64),
            _ => Err(BusError::BadDmaRange { handle, offset: 0, len: 0 }),
        }
    }
    fn dma_segment(&self, handle: DmaHandle, offset: u64) -> Result<Segment, BusError> {
        let len = self.dma_len(handle)?;
        Ok(Segment { addr: u64::from(handle.0) << 32 | offset, len: len - offset })
    }
    fn dma_read(&mut self, handle: DmaHandle, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        let b = self.buffer(handle, offset, buf.len() as u64)?;
        buf.copy_from_slice(&b.cpu[offset as usize..][..buf.len()]);
        Ok(())
    }
    fn dma_write(&mut self, handle: DmaHandle, offset: u64, data: &[u8]) -> Result<(), BusError> {
        let b = self.buffer(handle, offset, data.len() as u64)?;
        b.cpu[offset as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }
    fn sync_for_device(&mut self, handle: DmaHandle, offset: u64, len: u64) -> Result<(), BusError> {
        let b = self.buffer(handle, offset, len)?;
        let range = offset as usize..(offset + len) as usize;
        b.device[range.clone()].copy_from_slice(&b.cpu[range]);
        Ok(())
    }
    fn sync_for_cpu(&mut self, handle: DmaHandle, offset: u64, len: u64) -> Result<(), BusError> {
        let b = self.buffer(handle, offset, len)?;
        let range = offset as usize..(offset + len) as usize;
        b.cpu[range.clone()].copy_from_slice(&b.device[range]);
        Ok(())
    }
    fn peer_vram_base(&self) -> Option<u64> {
        Some(0xfd_0000_0000)
    }
    fn peer_vram_len(&self) -> u64 {
        self.window_len(Window::Vram)
    }
}

impl Bus for FakeBus {
    fn clock(&self) -> &dyn Clock {
        &self.clock
    }
    fn wait_interrupt(&mut self, timeout_us: u64) -> Result<bool, BusError> {
        self.clock.wait_us(timeout_us);
        Ok(true)
    }
}
