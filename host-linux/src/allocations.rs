//! What every way to a device keeps of the memory that the device reaches.

use crate::shared::Mapping;
use amdev_core::bus::{BusError, DmaHandle, Mmio, Window};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Smallest unit of memory for a device, in bytes.
const PAGE: u64 = 4096;

/// One allocation; `R` is how the device finds it.
pub(crate) struct Allocation<R> {
    pub(crate) memory: Arc<Mapping>,
    pub(crate) reach: R,
    /// In bytes, a multiple of a page.
    pub(crate) len: u64,
}

/// The live allocations of a device by their handles.
pub(crate) struct Table<R> {
    live: BTreeMap<u32, Allocation<R>>,
    next_handle: u32,
}

impl<R> Default for Table<R> {
    fn default() -> Self {
        Table { live: BTreeMap::new(), next_handle: 0 }
    }
}

/// Bytes of an allocation of `len` bytes: whole pages. `None` for nothing and for too much.
pub(crate) fn whole_pages(len: u64) -> Option<u64> {
    len.checked_next_multiple_of(PAGE).filter(|l| *l > 0)
}

impl<R> Table<R> {
    pub(crate) fn insert(&mut self, memory: Arc<Mapping>, reach: R, len: u64) -> DmaHandle {
        let handle = DmaHandle(self.next_handle);
        self.next_handle = self.next_handle.wrapping_add(1);
        self.live.insert(handle.0, Allocation { memory, reach, len });
        handle
    }

    pub(crate) fn remove(&mut self, handle: DmaHandle) -> Result<Allocation<R>, BusError> {
        self.live.remove(&handle.0).ok_or(BusError::BadDmaRange { handle, offset: 0, len: 0 })
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// An allocation, in which the range must lie.
    pub(crate) fn find(&self, handle: DmaHandle, offset: u64, len: u64) -> Result<&Allocation<R>, BusError> {
        let inside = |a: &&Allocation<R>| offset.checked_add(len).is_some_and(|end| end <= a.len);
        self.live.get(&handle.0).filter(inside).ok_or(BusError::BadDmaRange { handle, offset, len })
    }

    pub(crate) fn len(&self, handle: DmaHandle) -> Result<u64, BusError> {
        Ok(self.find(handle, 0, 0)?.len)
    }

    pub(crate) fn read(&self, handle: DmaHandle, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        let a = self.find(handle, offset, buf.len() as u64)?;
        a.memory.read(offset as usize, buf);
        // What follows is read after it: a signal, then what it stands for.
        fence(Ordering::Acquire);
        Ok(())
    }

    pub(crate) fn write(&self, handle: DmaHandle, offset: u64, data: &[u8]) -> Result<(), BusError> {
        let a = self.find(handle, offset, data.len() as u64)?;
        fence(Ordering::Release);
        a.memory.write(offset as usize, data);
        Ok(())
    }
}

/// Fills a range of a window with zeros, in pieces that suit messages and system calls.
pub(crate) fn zero(bus: &mut impl Mmio, window: Window, offset: u64, len: u64) -> Result<(), BusError> {
    static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
    let mut done = 0;
    while done < len {
        let step = (len - done).min(ZEROS.len() as u64);
        bus.write_bulk(window, offset + done, &ZEROS[..step as usize])?;
        done += step;
    }
    Ok(())
}
