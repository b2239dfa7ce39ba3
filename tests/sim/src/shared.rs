//! Memory that this process shares with another one: VRAM behind a mapped window, memory that a
//! driver mapped for DMA.

use crate::host::HostMemory;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::io;
use std::sync::atomic::{Ordering, fence};

/// A mapped piece of a file.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    map: MmapRaw,
    file: File,
    offset: u64,
}

impl SharedMemory {
    /// Maps `len` bytes of `file`; refuses what is not there, for touching it would end the process.
    pub(crate) fn map(file: File, offset: u64, len: u64, writable: bool) -> io::Result<SharedMemory> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let meta = file.metadata()?;
        let end = offset.checked_add(len).ok_or_else(invalid)?;
        if len == 0 || (meta.is_file() && end > meta.len()) {
            return Err(invalid());
        }
        let mut options = MmapOptions::new();
        options.offset(offset).len(usize::try_from(len).map_err(|_| invalid())?).no_reserve_swap();
        let map = if writable { options.map_raw(&file)? } else { options.map_raw_read_only(&file)? };
        Ok(SharedMemory { map, file, offset })
    }

    fn range(&self, at: u64, len: usize) -> Option<usize> {
        let at = usize::try_from(at).ok()?;
        (at.checked_add(len)? <= self.map.len()).then_some(at)
    }

    /// Reads; what lies outside is all ones. Aligned dwords and quadwords are read at once.
    pub(crate) fn load(&self, at: u64, buf: &mut [u8]) {
        let Some(at) = self.range(at, buf.len()) else {
            buf.fill(0xff);
            return;
        };
        // SAFETY: `range` has checked that the bytes lie in the mapping, which lives as long as
        // `self`; other processes may write them meanwhile, so no reference to them is made, and
        // every bit pattern is a valid byte.
        unsafe {
            let from = self.map.as_ptr().add(at);
            match buf.len() {
                4 if from.addr().is_multiple_of(4) => {
                    buf.copy_from_slice(&from.cast::<u32>().read_volatile().to_ne_bytes())
                }
                8 if from.addr().is_multiple_of(8) => {
                    buf.copy_from_slice(&from.cast::<u64>().read_volatile().to_ne_bytes())
                }
                len => from.copy_to_nonoverlapping(buf.as_mut_ptr(), len),
            }
        }
        fence(Ordering::Acquire);
    }

    /// Writes, only to memory that was mapped writable; what lies outside is dropped.
    pub(crate) fn store(&self, at: u64, data: &[u8]) {
        let Some(at) = self.range(at, data.len()) else { return };
        fence(Ordering::Release);
        // SAFETY: as in `load`; read-only mappings are never written, which the DMA map sees to.
        unsafe {
            let to = self.map.as_mut_ptr().add(at);
            match *data {
                [a, b, c, d] if to.addr().is_multiple_of(4) => {
                    to.cast::<u32>().write_volatile(u32::from_ne_bytes([a, b, c, d]))
                }
                [a, b, c, d, e, f, g, h] if to.addr().is_multiple_of(8) => {
                    to.cast::<u64>().write_volatile(u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
                }
                _ => to.copy_from_nonoverlapping(data.as_ptr(), data.len()),
            }
        }
    }

    /// Zeroes everything by giving the pages back.
    pub(crate) fn clear(&self) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if fallocate(&self.file, flags, self.offset, self.map.len() as u64).is_err() {
            const ZEROS: [u8; 4096] = [0; 4096];
            for at in (0..self.map.len()).step_by(ZEROS.len()) {
                self.store(at as u64, &ZEROS[..ZEROS.len().min(self.map.len() - at)]);
            }
        }
    }
}

impl HostMemory for SharedMemory {
    fn read(&self, offset: u64, buf: &mut [u8]) {
        self.load(offset, buf);
    }

    fn write(&self, offset: u64, data: &[u8]) {
        self.store(offset, data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    fn file(len: u64) -> File {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, len).unwrap();
        fd.into()
    }

    #[test]
    fn two_mappings_of_a_file_see_each_other_and_only_their_part() {
        let f = file(0x3000);
        let whole = SharedMemory::map(f.try_clone().unwrap(), 0, 0x3000, true).unwrap();
        let part = SharedMemory::map(f, 0x1004, 8, false).unwrap();
        whole.store(0x1002, &[1, 2, 3, 4, 5, 6, 7]);
        whole.store(0x1008, &[9; 4]);
        let mut b = [0; 8];
        part.load(0, &mut b);
        assert_eq!(b, [3, 4, 5, 6, 9, 9, 9, 9]);
        part.load(1, &mut b);
        assert_eq!(b, [0xff; 8], "past the end");
        whole.clear();
        whole.load(0x1000, &mut b);
        assert_eq!(b, [0; 8]);
    }

    #[test]
    fn more_than_the_file_has_is_not_mapped() {
        for (offset, len) in [(0, 0x1001), (0x1000, 1), (u64::MAX, 2), (0, 0)] {
            assert!(SharedMemory::map(file(0x1000), offset, len, true).is_err(), "{offset:#x} {len:#x}");
        }
    }
}
