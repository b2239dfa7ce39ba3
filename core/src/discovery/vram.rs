//! Where the table is, and reading it from a device.

use super::{DiscoveryError, IpList, LoadError, load, load_sparse};
use crate::bus::{BusError, Mmio, Window};

/// `mmRCC_CONFIG_MEMSIZE`: dword address of the register with the VRAM size in MiB. It stands at a
/// fixed place because base addresses are not known yet (`amdgpu_discovery.c`).
pub const MEMSIZE_REG: u32 = 0xde3;
/// `mmMP0_SMN_C2PMSG_33`: dword address of the mailbox whose bit 31 says that the PSP's bootloader
/// has set the device up, the table included. A card that was just plugged in needs up to two
/// seconds (`amdgpu_discovery.c`).
pub const PSP_READY_REG: u32 = 0x16061;
/// `mmMM_INDEX`: dword address; VRAM offset bits 30:0, bit 31 set.
pub const MM_INDEX_REG: u32 = 0;
/// `mmMM_INDEX_HI`: dword address; VRAM offset from bit 31 on.
pub const MM_INDEX_HI_REG: u32 = 6;
/// `mmMM_DATA`: dword address; the dword that the index points to.
pub const MM_DATA_REG: u32 = 1;

/// The table starts this far before the end of VRAM (`DISCOVERY_TMR_OFFSET`).
const TABLE_FROM_END: u64 = 64 << 10;

/// Size of the VRAM, as the register [`MEMSIZE_REG`] gives it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MemSize {
    mib: u32,
}

impl MemSize {
    /// From the register's value; all ones and 0 mean that the device does not answer.
    pub const fn from_register(value: u32) -> Result<Self, DiscoveryError> {
        match value {
            0 | u32::MAX => Err(DiscoveryError::NotResponding { value }),
            mib => Ok(MemSize { mib }),
        }
    }

    /// Size in MiB.
    pub const fn mib(self) -> u32 {
        self.mib
    }

    /// Size in bytes.
    pub const fn bytes(self) -> u64 {
        (self.mib as u64) << 20
    }

    /// Offset of the discovery table in VRAM, in bytes.
    pub const fn table_offset(self) -> u64 {
        self.bytes() - TABLE_FROM_END
    }

    /// Whether a BAR0 of `bar_len` bytes shows the whole VRAM. It may be larger: BAR sizes are
    /// powers of two, VRAM sizes are not.
    pub const fn is_large_bar(self, bar_len: u64) -> bool {
        bar_len >= self.bytes()
    }
}

/// Why a device's table could not be had.
pub type DiscoverError = LoadError<BusError>;

/// Reads the memory size and the discovery table of a device.
///
/// A device that does not answer is an error before any access to VRAM.
pub fn discover<M: Mmio + ?Sized>(mmio: &mut M) -> Result<(MemSize, IpList), DiscoverError> {
    let (size, table) = locate(mmio)?;
    let list = load(|offset, buf| read_vram(mmio, table + offset as u64, buf))?;
    Ok((size, list))
}

/// [`discover`], reading of the table only what a boot needs: see [`load_sparse`].
pub fn discover_sparse<M: Mmio + ?Sized>(mmio: &mut M) -> Result<(MemSize, IpList), DiscoverError> {
    let (size, table) = locate(mmio)?;
    let list = load_sparse(|offset, buf| read_vram(mmio, table + offset as u64, buf))?;
    Ok((size, list))
}

fn locate<M: Mmio + ?Sized>(mmio: &mut M) -> Result<(MemSize, u64), DiscoverError> {
    let value = mmio.read32(Window::Registers, MEMSIZE_REG as u64 * 4).map_err(LoadError::Read)?;
    let size = MemSize::from_register(value)?;
    Ok((size, size.table_offset()))
}

/// Reads VRAM at any offset: through BAR0 where it reaches, else dword by dword through
/// MM_INDEX and MM_DATA. In the latter case offset and length are multiples of 4.
pub fn read_vram<M: Mmio + ?Sized>(mmio: &mut M, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
    let len = buf.len() as u64;
    let window_len = mmio.window_len(Window::Vram);
    if offset.checked_add(len).is_some_and(|end| end <= window_len) {
        return mmio.read_bulk(Window::Vram, offset, buf);
    }
    if !offset.is_multiple_of(4) || !len.is_multiple_of(4) || offset.checked_add(len).is_none() {
        return Err(BusError::OutOfWindow { window: Window::Vram, offset, len, window_len });
    }
    let mut high = None;
    let mut at = offset;
    for dword in buf.chunks_exact_mut(4) {
        mmio.write32(Window::Registers, MM_INDEX_REG as u64 * 4, at as u32 | 1 << 31)?;
        let hi = (at >> 31) as u32;
        if high != Some(hi) {
            mmio.write32(Window::Registers, MM_INDEX_HI_REG as u64 * 4, hi)?;
            high = Some(hi);
        }
        let value = mmio.read32(Window::Registers, MM_DATA_REG as u64 * 4)?;
        dword.copy_from_slice(&value.to_le_bytes());
        at += 4;
    }
    Ok(())
}
