//! Page tables in VRAM, reached through the aperture, and the TLBs that cache them.

use crate::bus::Bus;
use crate::error::Error;
use crate::ip::{Device, gmc};
use crate::mm::{Flush, TableMemory};

impl<B: Bus> TableMemory for Device<B> {
    type Error = Error;

    fn read(&mut self, pa: u64, out: &mut [u64]) -> Result<(), Error> {
        let mut at = pa;
        for chunk in out.chunks_mut(64) {
            let mut bytes = [0; 512];
            let len = chunk.len().saturating_mul(8);
            self.vram_read(at, bytes.get_mut(..len).unwrap_or(&mut []))?;
            for (entry, b) in chunk.iter_mut().zip(bytes.as_chunks().0) {
                *entry = u64::from_le_bytes(*b);
            }
            at = at.saturating_add(len as u64);
        }
        Ok(())
    }

    fn write(&mut self, pa: u64, entries: &[u64]) -> Result<(), Error> {
        let mut at = pa;
        for entry in entries {
            self.vram_write64(at, *entry)?;
            at = at.saturating_add(8);
        }
        Ok(())
    }

    fn zero(&mut self, pa: u64, len: u64) -> Result<(), Error> {
        self.vram_zero(pa, len)
    }
}

impl<B: Bus> Flush for Device<B> {
    fn flush_tlb(&mut self) -> Result<(), Error> {
        self.run(async |cx| gmc::flush_tlbs(cx, 0).await)
    }
}
