//! Memory shared with a device or with the process that plays one.

use memmap2::{Advice, MmapOptions, MmapRaw};
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use volatile::VolatilePtr;

/// A large page of x86 and ARM.
const LARGE_PAGE: usize = 2 << 20;

/// A mapped piece of a file: a window of a device, or memory that it reaches.
#[derive(Debug)]
pub(crate) struct Mapping(MmapRaw);

impl Mapping {
    /// Maps `len` bytes of `file`. Of a regular file only what it has is mapped, for touching more
    /// would end the process.
    pub(crate) fn new(file: &File, offset: u64, len: u64) -> io::Result<Mapping> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let meta = file.metadata()?;
        let end = offset.checked_add(len).ok_or_else(invalid)?;
        if len == 0 || (meta.is_file() && end > meta.len()) {
            return Err(invalid());
        }
        let len = usize::try_from(len).map_err(|_| invalid())?;
        Ok(Mapping(MmapOptions::new().offset(offset).len(len).no_reserve_swap().map_raw(file)?))
    }

    /// Zeroed memory of this process alone, in large pages where there are some. Children do not get
    /// it: a device writes to it.
    pub(crate) fn anonymous(len: usize) -> io::Result<Mapping> {
        let map = |huge: bool| {
            let mut options = MmapOptions::new();
            options.len(len);
            if huge {
                options.huge(Some(LARGE_PAGE.ilog2() as u8));
            }
            options.map_anon()
        };
        let reserved = if len.is_multiple_of(LARGE_PAGE) { map(true).ok() } else { None };
        let memory = match reserved {
            Some(memory) => memory,
            None => {
                let memory = map(false)?;
                // The kernel may know no large pages: small ones do.
                let _ = memory.advise(Advice::HugePage);
                memory
            }
        };
        memory.advise(Advice::DontFork)?;
        Ok(Mapping(memory.into()))
    }

    /// Keeps it in memory, and its pages where they are: the kernel shall not gather them into large ones
    /// later (khugepaged).
    pub(crate) fn lock(&self) -> io::Result<()> {
        self.0.lock()?;
        // Kernels without large pages refuse this.
        let _ = self.0.advise(Advice::NoHugePage);
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Where it is in this process.
    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }

    /// A value in the mapping; panics outside of it and where it is not aligned.
    fn at<T: Copy>(&self, offset: usize) -> VolatilePtr<'_, T> {
        let inside = offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.0.len());
        let address = NonNull::new(self.0.as_mut_ptr().wrapping_add(offset)).filter(|_| inside);
        let pointer = address.expect("an offset in the mapping").cast::<T>();
        assert!(pointer.is_aligned(), "an aligned offset");
        // SAFETY: the value lies in the mapping, which outlives the pointer, and is aligned; only
        // integers are accessed, of which any bit pattern is one. The other side may write it at
        // any time: that is what volatile accesses of single integers are for.
        unsafe { VolatilePtr::new(pointer) }
    }

    pub(crate) fn read32(&self, offset: usize) -> u32 {
        self.at::<u32>(offset).read()
    }

    pub(crate) fn write32(&self, offset: usize, value: u32) {
        self.at::<u32>(offset).write(value);
    }

    pub(crate) fn read64(&self, offset: usize) -> u64 {
        self.at::<u64>(offset).read()
    }

    pub(crate) fn write64(&self, offset: usize, value: u64) {
        self.at::<u64>(offset).write(value);
    }

    /// Bytes up to the next multiple of 8, at most `len`.
    fn head(offset: usize, len: usize) -> usize {
        (offset.wrapping_neg() & 7).min(len)
    }

    /// Reads; aligned dwords and quadwords at once. Panics outside of the mapping.
    pub(crate) fn read(&self, offset: usize, buf: &mut [u8]) {
        if buf.len() == 4 && offset.is_multiple_of(4) {
            buf.copy_from_slice(&self.read32(offset).to_ne_bytes());
            return;
        }
        let (head, rest) = buf.split_at_mut(Self::head(offset, buf.len()));
        let mut at = offset;
        let bytes = |part: &mut [u8], at: &mut usize| {
            for b in part {
                *b = self.at::<u8>(*at).read();
                *at += 1;
            }
        };
        bytes(head, &mut at);
        let (words, tail) = rest.as_chunks_mut::<8>();
        for word in words {
            *word = self.read64(at).to_ne_bytes();
            at += 8;
        }
        bytes(tail, &mut at);
    }

    /// Writes; aligned dwords and quadwords at once. Panics outside of the mapping.
    pub(crate) fn write(&self, offset: usize, data: &[u8]) {
        if let &[a, b, c, d] = data
            && offset.is_multiple_of(4)
        {
            self.write32(offset, u32::from_ne_bytes([a, b, c, d]));
            return;
        }
        let (head, rest) = data.split_at(Self::head(offset, data.len()));
        let mut at = offset;
        let bytes = |part: &[u8], at: &mut usize| {
            for b in part {
                self.at::<u8>(*at).write(*b);
                *at += 1;
            }
        };
        bytes(head, &mut at);
        let (words, tail) = rest.as_chunks::<8>();
        for word in words {
            self.write64(at, u64::from_ne_bytes(*word));
            at += 8;
        }
        bytes(tail, &mut at);
    }
}

// `struct vfio_region_info` of `linux/vfio.h`, which vfio-user shares.
const REGION_FLAG_CAPS: u32 = 1 << 3;
const CAP_SPARSE_MMAP: u16 = 1;
/// No answer has room for a longer chain of capabilities.
const MAX_CAPS: usize = 512;
/// More areas than that are not mapped.
const MAX_AREAS: u32 = 64;

/// The areas of a region that can be mapped, if it tells them: the sparse-mmap capability of its
/// information. The outer `None`: the information makes no sense.
pub(crate) fn areas(info: &[u8]) -> Option<Option<Vec<(u64, u64)>>> {
    let u32_at = |at: usize| info.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b));
    let u64_at = |at: usize| info.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b));
    if u32_at(4)? & REGION_FLAG_CAPS == 0 {
        return Some(None);
    }
    let mut at = u32_at(12)? as usize;
    // A chain that runs in a circle ends, too.
    for _ in 0..MAX_CAPS {
        if at == 0 {
            break;
        }
        let (head, next) = (u32_at(at)?, u32_at(at + 4)? as usize);
        if head as u16 == CAP_SPARSE_MMAP {
            let count = u32_at(at + 8)?.min(MAX_AREAS) as usize;
            let area = |i: usize| Some((u64_at(at + 16 + 16 * i)?, u64_at(at + 24 + 16 * i)?));
            return (0..count).map(area).collect::<Option<_>>().map(Some);
        }
        at = next;
    }
    Some(None)
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
    fn any_range_is_read_as_it_was_written() {
        let m = Mapping::new(&file(0x2000), 0, 0x2000).unwrap();
        let data: Vec<u8> = (0..64).collect();
        for start in 0..9 {
            for len in 0..33 {
                m.write(0, &[0; 64]);
                m.write(start, &data[..len]);
                let mut back = vec![9; len];
                m.read(start, &mut back);
                assert_eq!(back, data[..len], "{start}+{len}");
                let mut around = [1; 64];
                m.read(0, &mut around);
                assert!(around[start + len..].iter().all(|b| *b == 0), "{start}+{len}");
            }
        }
        m.write64(0x1ff8, 1 << 32 | 7);
        assert_eq!((m.read32(0x1ff8), m.read32(0x1ffc), m.read64(0x1ff8)), (7, 1, 1 << 32 | 7));
    }

    #[test]
    fn more_than_the_file_has_is_not_mapped() {
        for (offset, len) in [(0, 0x1001), (0x1000, 1), (u64::MAX, 2), (0, 0)] {
            assert!(Mapping::new(&file(0x1000), offset, len).is_err());
        }
    }

    #[test]
    fn memory_for_a_device_is_zeroed_and_starts_at_a_page() {
        for len in [4096, 3 << 20, 4 << 20] {
            let m = Mapping::anonymous(len).unwrap();
            let mut all = vec![1; len];
            m.read(0, &mut all);
            assert!(all.iter().all(|b| *b == 0));
            assert_eq!((m.len(), m.address() % 4096), (len, 0));
        }
    }

    #[test]
    fn the_sparse_capability_is_found_behind_others_and_in_no_circle() {
        let words = |w: &[u32]| w.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        let mut info = words(&[80, 0xf, 0, 32, 0, 0, 0, 0, 7 | 1 << 16, 40]);
        info.extend(words(&[1 | 1 << 16, 0, 1, 0, 0x1000, 0, 0x2000, 0]));
        assert_eq!(areas(&info), Some(Some(vec![(0x1000, 0x2000)])));
        let circle = words(&[40, 0xf, 0, 32, 0, 0, 0, 0, 7 | 1 << 16, 32]);
        assert_eq!(areas(&circle), Some(None));
        assert_eq!(areas(&info[..60]), None, "cut off");
        info[4] = 7;
        assert_eq!(areas(&info), Some(None), "no capabilities");
    }
}
