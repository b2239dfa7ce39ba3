//! System memory as the GPU reaches it: what the host mapped for DMA, and nothing else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A piece of system memory that the host lends to the device.
pub trait HostMemory: Send + Sync {
    /// The device reads `buf.len()` bytes at `offset`; the range lies inside the mapping.
    fn read(&self, offset: u64, buf: &mut [u8]);
    /// The device writes `data` at `offset`; the range lies inside the mapping.
    fn write(&self, offset: u64, data: &[u8]);
}

/// Plain bytes behind a lock, for tests and simple hosts.
#[derive(Debug, Default)]
pub struct VecMemory(Mutex<Vec<u8>>);

impl VecMemory {
    /// Zeroed memory of `len` bytes.
    pub fn new(len: usize) -> Arc<VecMemory> {
        Arc::new(VecMemory(Mutex::new(vec![0; len])))
    }

    /// Copies out `len` bytes at `offset`; panics outside of the memory.
    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        self.lock()[offset..offset + len].to_vec()
    }

    /// Stores `data` at `offset` as the CPU; panics outside of the memory.
    pub fn store(&self, offset: usize, data: &[u8]) {
        self.lock()[offset..offset + data.len()].copy_from_slice(data);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl HostMemory for VecMemory {
    fn read(&self, offset: u64, buf: &mut [u8]) {
        let bytes = self.lock();
        for (i, b) in buf.iter_mut().enumerate() {
            *b = bytes.get(offset as usize + i).copied().unwrap_or(0xff);
        }
    }

    fn write(&self, offset: u64, data: &[u8]) {
        let mut bytes = self.lock();
        for (i, b) in data.iter().enumerate() {
            if let Some(slot) = bytes.get_mut(offset as usize + i) {
                *slot = *b;
            }
        }
    }
}

/// What a device may do with a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DmaAccess {
    /// The device may read.
    pub read: bool,
    /// The device may write.
    pub write: bool,
}

impl DmaAccess {
    /// Reads and writes.
    pub const BOTH: DmaAccess = DmaAccess { read: true, write: true };
    /// A range that is taken, behind which there is no memory.
    pub const NONE: DmaAccess = DmaAccess { read: false, write: false };
}

/// Why the IOMMU let an access not pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DmaRefusal {
    /// Nothing is mapped there.
    #[error("not mapped for DMA")]
    Unmapped,
    /// A write to what is mapped for reading.
    #[error("mapped for DMA without leave to write")]
    NotWritable,
    /// A read of what is mapped for writing.
    #[error("mapped for DMA without leave to read")]
    NotReadable,
    /// The range is mapped, but no memory was given for it.
    #[error("mapped for DMA without memory behind it")]
    NoMemory,
}

/// What [`DmaMap::unmap`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unmapped {
    /// This many mappings lay inside the range and are gone.
    Gone(usize),
    /// The range would cut a mapping in two; nothing was done.
    Cuts,
}

struct Mapping {
    len: u64,
    access: DmaAccess,
    memory: Arc<dyn HostMemory>,
}

/// The IOMMU's view: bus address ranges and what lies behind them.
#[derive(Default)]
pub(crate) struct DmaMap {
    ranges: BTreeMap<u64, Mapping>,
}

impl DmaMap {
    /// False if the range overlaps an existing one or wraps.
    pub(crate) fn map(
        &mut self,
        iova: u64,
        len: u64,
        access: DmaAccess,
        memory: Arc<dyn HostMemory>,
    ) -> bool {
        let Some(end) = iova.checked_add(len) else { return false };
        let overlaps = self.ranges.range(..end).next_back().is_some_and(|(s, m)| s + m.len > iova);
        if len == 0 || overlaps {
            return false;
        }
        self.ranges.insert(iova, Mapping { len, access, memory });
        true
    }

    /// Removes every mapping that lies inside, unless one lies there in part.
    pub(crate) fn unmap(&mut self, iova: u64, len: u64) -> Unmapped {
        let end = iova.saturating_add(len);
        let before = self.ranges.range(..iova).next_back().is_some_and(|(s, m)| s + m.len > iova);
        let inside: Vec<(u64, u64)> = self.ranges.range(iova..end).map(|(s, m)| (*s, s + m.len)).collect();
        if before || inside.iter().any(|(_, e)| *e > end) {
            return Unmapped::Cuts;
        }
        for (start, _) in &inside {
            self.ranges.remove(start);
        }
        Unmapped::Gone(inside.len())
    }

    /// The mapping at `addr`, offset in it, bytes left.
    fn find(&self, addr: u64) -> Result<(&Mapping, u64, u64), DmaRefusal> {
        let (start, m) = self.ranges.range(..=addr).next_back().ok_or(DmaRefusal::Unmapped)?;
        let offset = addr - start;
        match m.access {
            _ if offset >= m.len => Err(DmaRefusal::Unmapped),
            DmaAccess::NONE => Err(DmaRefusal::NoMemory),
            _ => Ok((m, offset, m.len - offset)),
        }
    }

    pub(crate) fn read(&self, mut addr: u64, mut buf: &mut [u8]) -> Result<(), DmaRefusal> {
        while !buf.is_empty() {
            let (m, offset, left) = self.find(addr)?;
            if !m.access.read {
                return Err(DmaRefusal::NotReadable);
            }
            let n = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let (head, tail) = buf.split_at_mut(n);
            m.memory.read(offset, head);
            buf = tail;
            addr += n as u64;
        }
        Ok(())
    }

    pub(crate) fn write(&self, mut addr: u64, mut data: &[u8]) -> Result<(), DmaRefusal> {
        while !data.is_empty() {
            let (m, offset, left) = self.find(addr)?;
            if !m.access.write {
                return Err(DmaRefusal::NotWritable);
            }
            let n = data.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            m.memory.write(offset, &data[..n]);
            data = &data[n..];
            addr += n as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dma_reaches_mapped_ranges_only_and_across_adjacent_ones() {
        let (a, b) = (VecMemory::new(16), VecMemory::new(16));
        let mut map = DmaMap::default();
        assert!(map.map(0x1000, 16, DmaAccess::BOTH, a.clone()));
        assert!(map.map(0x1010, 16, DmaAccess::BOTH, b.clone()));
        assert!(!map.map(0x100f, 4, DmaAccess::BOTH, a.clone()), "overlap is refused");
        assert_eq!(map.write(0x100c, &[1, 2, 3, 4, 5, 6, 7, 8]), Ok(()));
        assert_eq!((a.bytes(12, 4), b.bytes(0, 4)), (vec![1, 2, 3, 4], vec![5, 6, 7, 8]));
        assert_eq!(map.read(0x101c, &mut [0; 8]), Err(DmaRefusal::Unmapped), "runs over the end");
        assert_eq!(map.unmap(0x1000, 24), Unmapped::Cuts);
        assert_eq!(map.unmap(0x1000, 16), Unmapped::Gone(1));
        assert_eq!(map.read(0x1000, &mut [0; 4]), Err(DmaRefusal::Unmapped));
        assert_eq!(map.read(0x1010, &mut [0; 4]), Ok(()));
    }

    #[test]
    fn each_refusal_has_its_name() {
        let memory = VecMemory::new(16);
        let mut map = DmaMap::default();
        let only = |read, write| DmaAccess { read, write };
        assert!(map.map(0x1000, 16, only(true, false), memory.clone()));
        assert!(map.map(0x2000, 16, only(false, true), memory.clone()));
        assert!(map.map(0x3000, 16, DmaAccess::NONE, memory));
        assert_eq!(map.write(0x1000, &[0]), Err(DmaRefusal::NotWritable));
        assert_eq!(map.read(0x2000, &mut [0]), Err(DmaRefusal::NotReadable));
        assert_eq!(map.read(0x3000, &mut [0]), Err(DmaRefusal::NoMemory));
        assert_eq!(map.read(0x4000, &mut [0]), Err(DmaRefusal::Unmapped));
    }
}
