//! The bus as the core sees it.

use super::ReplayBus;
use amdev_core::bus::{Bus, BusError, Clock, Dma, DmaHandle, Mmio, Segment, Window};

impl Mmio for ReplayBus {
    fn window_len(&self, window: Window) -> u64 {
        match window {
            Window::Vram => self.vram_len,
            Window::Doorbells => 0x20_0000,
            Window::Registers => 0x10_0000,
        }
    }

    fn read32(&mut self, window: Window, offset: u64) -> Result<u32, BusError> {
        self.check(window, offset, 4)?;
        if window == Window::Registers {
            let value = self.read_register((offset / 4) as u32);
            self.note_mailbox((offset / 4) as u32, value, false);
            return Ok(value);
        }
        let mut bytes = [0; 4];
        self.read_bulk(window, offset, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn write32(&mut self, window: Window, offset: u64, value: u32) -> Result<(), BusError> {
        self.check(window, offset, 4)?;
        if window == Window::Registers {
            return self.write_register((offset / 4) as u32, value);
        }
        self.write_bulk(window, offset, &value.to_le_bytes())
    }

    fn read64(&mut self, window: Window, offset: u64) -> Result<u64, BusError> {
        let mut bytes = [0; 8];
        self.read_bulk(window, offset, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn write64(&mut self, window: Window, offset: u64, value: u64) -> Result<(), BusError> {
        self.write_bulk(window, offset, &value.to_le_bytes())
    }

    fn read_bulk(&mut self, window: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        self.check(window, offset, buf.len() as u64)?;
        if window != Window::Vram {
            return Err(BusError::UnsupportedSize { window, size: buf.len() as u64 });
        }
        self.vram_copy_out(offset, buf);
        Ok(())
    }

    fn write_bulk(&mut self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.check(window, offset, data.len() as u64)?;
        if window != Window::Vram {
            return Err(BusError::UnsupportedSize { window, size: data.len() as u64 });
        }
        if let Some(from) = offset.checked_sub(self.message_at)
            && from < 0x10_0000
        {
            // A message starts at the buffer's start.
            let end = from + data.len() as u64;
            self.message_len = if from == 0 { end } else { self.message_len.max(end) };
        }
        self.vram_copy_in(offset, data);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), BusError> {
        Ok(())
    }

    fn fence(&mut self) -> Result<(), BusError> {
        Ok(())
    }
}

impl Dma for ReplayBus {
    fn dma_alloc(&mut self, _: u64) -> Result<DmaHandle, BusError> {
        Err(BusError::Unsupported("allocate memory in a replay"))
    }
    fn dma_free(&mut self, _: DmaHandle) -> Result<(), BusError> {
        Err(BusError::Unsupported("free memory in a replay"))
    }
    fn dma_len(&self, _: DmaHandle) -> Result<u64, BusError> {
        Err(BusError::Unsupported("use memory of the host in a replay"))
    }
    fn dma_segment(&self, _: DmaHandle, _: u64) -> Result<Segment, BusError> {
        Err(BusError::Unsupported("use memory of the host in a replay"))
    }
    fn dma_read(&mut self, _: DmaHandle, _: u64, _: &mut [u8]) -> Result<(), BusError> {
        Err(BusError::Unsupported("use memory of the host in a replay"))
    }
    fn dma_write(&mut self, _: DmaHandle, _: u64, _: &[u8]) -> Result<(), BusError> {
        Err(BusError::Unsupported("use memory of the host in a replay"))
    }
}

impl Bus for ReplayBus {
    fn clock(&self) -> &dyn Clock {
        &self.clock
    }
}
