//! VRAM beyond a small BAR.
//!
//! Without a resized BAR0 the aperture shows the first 256 MiB of VRAM only, yet the discovery
//! table stands at its end. The rest is reached one dword at a time through a pair of registers:
//! `MM_INDEX` takes the low 31 address bits with bit 31 set ("frame buffer"), `MM_INDEX_HI` the
//! bits from 31 on, and `MM_DATA` then is that dword. Linux does the same in
//! `amdgpu_device_mm_access` (amdgpu_device.c). Without this decorator an access beyond the
//! aperture is refused with [`BusError::OutOfWindow`].

use super::{Bus, BusError, Clock, Dma, Mmio, Window};
use crate::discovery::{MM_DATA_REG, MM_INDEX_HI_REG, MM_INDEX_REG};

const MM_INDEX: u64 = MM_INDEX_REG as u64 * 4;
const MM_DATA: u64 = MM_DATA_REG as u64 * 4;
const MM_INDEX_HI: u64 = MM_INDEX_HI_REG as u64 * 4;
/// `MM_INDEX` bit 31: the address is in the frame buffer, not in register space.
const MM_APERTURE: u32 = 1 << 31;

/// A bus whose VRAM window spans the whole VRAM, whatever the BAR's size.
///
/// Behind the aperture an 8-byte access is two accesses of 4; a write stores the upper half first,
/// so that a page-table entry becomes valid (bit 0) only when it is complete.
#[derive(Debug)]
pub struct SmallBar<B> {
    inner: B,
    vram_len: u64,
    hi: Option<u32>,
}

impl<B> SmallBar<B> {
    /// Extends the VRAM window of `inner` to `vram_len` bytes.
    pub fn new(inner: B, vram_len: u64) -> Self {
        SmallBar { inner, vram_len, hi: None }
    }

    /// The length of the VRAM is known now: usually only discovery tells it.
    pub fn set_vram_len(&mut self, vram_len: u64) {
        self.vram_len = vram_len;
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
}

impl<B: Mmio> SmallBar<B> {
    fn aperture(&self) -> u64 {
        self.inner.window_len(Window::Vram)
    }

    /// True if an access goes through the index registers, false if through the aperture.
    fn is_beyond(&mut self, window: Window, offset: u64, len: u64) -> Result<bool, BusError> {
        let end = offset.checked_add(len);
        if window != Window::Vram || end.is_some_and(|e| e <= self.aperture()) {
            return Ok(false);
        }
        if end.is_none_or(|e| e > self.window_len(window)) {
            return Err(BusError::OutOfWindow { window, offset, len, window_len: self.window_len(window) });
        }
        // Known for one call only: a reset in between clears the register.
        self.hi = None;
        Ok(true)
    }

    fn aligned(&self, offset: u64, size: u64) -> Result<(), BusError> {
        if offset.is_multiple_of(size) {
            return Ok(());
        }
        Err(BusError::OutOfWindow {
            window: Window::Vram,
            offset,
            len: size,
            window_len: self.window_len(Window::Vram),
        })
    }

    fn select(&mut self, addr: u64) -> Result<(), BusError> {
        let hi = (addr >> 31) as u32;
        self.inner.write32(Window::Registers, MM_INDEX, (addr as u32 & !MM_APERTURE) | MM_APERTURE)?;
        if self.hi != Some(hi) {
            self.inner.write32(Window::Registers, MM_INDEX_HI, hi)?;
            self.hi = Some(hi);
        }
        Ok(())
    }

    fn read_dword(&mut self, addr: u64) -> Result<u32, BusError> {
        self.select(addr)?;
        self.inner.read32(Window::Registers, MM_DATA)
    }

    fn write_dword(&mut self, addr: u64, value: u32) -> Result<(), BusError> {
        self.select(addr)?;
        self.inner.write32(Window::Registers, MM_DATA, value)
    }

    /// Bytes of an access that the aperture still serves.
    fn split(&self, offset: u64, len: usize) -> usize {
        let inside = self.aperture().saturating_sub(offset);
        usize::try_from(inside).unwrap_or(len).min(len)
    }
}

impl<B: Mmio> Mmio for SmallBar<B> {
    fn window_len(&self, window: Window) -> u64 {
        match window {
            Window::Vram => self.vram_len.max(self.aperture()),
            _ => self.inner.window_len(window),
        }
    }
    fn read32(&mut self, window: Window, offset: u64) -> Result<u32, BusError> {
        if !self.is_beyond(window, offset, 4)? {
            return self.inner.read32(window, offset);
        }
        self.aligned(offset, 4)?;
        self.read_dword(offset)
    }
    fn write32(&mut self, window: Window, offset: u64, value: u32) -> Result<(), BusError> {
        if !self.is_beyond(window, offset, 4)? {
            return self.inner.write32(window, offset, value);
        }
        self.aligned(offset, 4)?;
        self.write_dword(offset, value)
    }
    fn read64(&mut self, window: Window, offset: u64) -> Result<u64, BusError> {
        if !self.is_beyond(window, offset, 8)? {
            return self.inner.read64(window, offset);
        }
        self.aligned(offset, 8)?;
        let low = self.read_dword(offset)?;
        let high = self.read_dword(offset + 4)?;
        Ok(u64::from(high) << 32 | u64::from(low))
    }
    fn write64(&mut self, window: Window, offset: u64, value: u64) -> Result<(), BusError> {
        if !self.is_beyond(window, offset, 8)? {
            return self.inner.write64(window, offset, value);
        }
        self.aligned(offset, 8)?;
        self.write_dword(offset + 4, (value >> 32) as u32)?;
        self.write_dword(offset, value as u32)
    }
    fn read_bulk(&mut self, window: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        if !self.is_beyond(window, offset, buf.len() as u64)? {
            return self.inner.read_bulk(window, offset, buf);
        }
        let at = self.split(offset, buf.len());
        let Some((inside, mut rest)) = buf.split_at_mut_checked(at) else { return Ok(()) };
        if !inside.is_empty() {
            self.inner.read_bulk(window, offset, inside)?;
        }
        let mut addr = offset + at as u64;
        while !rest.is_empty() {
            let word = self.read_dword(addr & !3)?.to_le_bytes();
            let skip = (addr & 3) as usize;
            let n = rest.len().min(4 - skip);
            for (to, from) in rest.iter_mut().zip(word.iter().skip(skip)) {
                *to = *from;
            }
            rest = rest.get_mut(n..).unwrap_or_default();
            addr += n as u64;
        }
        Ok(())
    }
    fn write_bulk(&mut self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        if !self.is_beyond(window, offset, data.len() as u64)? {
            return self.inner.write_bulk(window, offset, data);
        }
        let at = self.split(offset, data.len());
        let Some((inside, mut rest)) = data.split_at_checked(at) else { return Ok(()) };
        if !inside.is_empty() {
            self.inner.write_bulk(window, offset, inside)?;
        }
        let mut addr = offset + at as u64;
        while !rest.is_empty() {
            let skip = (addr & 3) as usize;
            let n = rest.len().min(4 - skip);
            // A dword that is written in part keeps its other bytes.
            let mut word = if n == 4 { [0; 4] } else { self.read_dword(addr & !3)?.to_le_bytes() };
            for (to, from) in word.iter_mut().skip(skip).zip(rest) {
                *to = *from;
            }
            self.write_dword(addr & !3, u32::from_le_bytes(word))?;
            rest = rest.get(n..).unwrap_or_default();
            addr += n as u64;
        }
        Ok(())
    }
    fn zero(&mut self, window: Window, offset: u64, len: u64) -> Result<(), BusError> {
        if !self.is_beyond(window, offset, len)? {
            return self.inner.zero(window, offset, len);
        }
        let inside = self.aperture().saturating_sub(offset);
        if inside > 0 {
            self.inner.zero(window, offset, inside)?;
        }
        let (mut addr, end) = (offset + inside, offset + len);
        const ZEROS: [u8; 64] = [0; 64];
        while addr < end {
            // The first piece ends at a dword boundary, so that only the ends are read back.
            let n = (end - addr).min(ZEROS.len() as u64 - (addr & 3));
            self.write_bulk(window, addr, ZEROS.get(..n as usize).unwrap_or_default())?;
            addr += n;
        }
        Ok(())
    }
    fn read_group(&mut self, window: Window, offsets: &[u64], out: &mut [u32]) -> Result<(), BusError> {
        if window != Window::Vram {
            return self.inner.read_group(window, offsets, out);
        }
        for (value, offset) in out.iter_mut().zip(offsets) {
            *value = self.read32(window, *offset)?;
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<(), BusError> {
        self.inner.flush()
    }
    fn fence(&mut self) -> Result<(), BusError> {
        self.inner.fence()
    }
}

impl<B: Dma> Dma for SmallBar<B> {
    delegate_dma!();
}

impl<B: Bus> Bus for SmallBar<B> {
    fn clock(&self) -> &dyn Clock {
        self.inner.clock()
    }
    fn wait_interrupt(&mut self, timeout_us: u64) -> Result<bool, BusError> {
        self.inner.wait_interrupt(timeout_us)
    }
    delegate_resets!();
    delegate_traits!();
}
