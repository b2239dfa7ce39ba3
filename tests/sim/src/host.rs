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

/// The IOMMU's view: bus address ranges and what lies behind them.
#[derive(Default)]
pub(crate) struct DmaMap {
    ranges: BTreeMap<u64, (u64, Arc<dyn HostMemory>)>,
}

impl DmaMap {
    /// False if the range overlaps an existing one or wraps.
    pub(crate) fn map(&mut self, iova: u64, len: u64, memory: Arc<dyn HostMemory>) -> bool {
        let Some(end) = iova.checked_add(len) else { return false };
        let overlaps = self.ranges.range(..end).next_back().is_some_and(|(s, (l, _))| s + l > iova);
        if len == 0 || overlaps {
            return false;
        }
        self.ranges.insert(iova, (len, memory));
        true
    }

    /// Removes every range that lies inside; true if one did.
    pub(crate) fn unmap(&mut self, iova: u64, len: u64) -> bool {
        let end = iova.saturating_add(len);
        let gone: Vec<u64> =
            self.ranges.range(iova..end).filter(|(s, (l, _))| **s + l <= end).map(|(s, _)| *s).collect();
        for start in &gone {
            self.ranges.remove(start);
        }
        !gone.is_empty()
    }

    /// The mapping at `addr`: memory, offset in it, bytes left.
    fn find(&self, addr: u64) -> Option<(&Arc<dyn HostMemory>, u64, u64)> {
        let (start, (len, memory)) = self.ranges.range(..=addr).next_back()?;
        let offset = addr - start;
        (offset < *len).then(|| (memory, offset, len - offset))
    }

    pub(crate) fn read(&self, mut addr: u64, mut buf: &mut [u8]) -> bool {
        while !buf.is_empty() {
            let Some((memory, offset, left)) = self.find(addr) else { return false };
            let n = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let (head, tail) = buf.split_at_mut(n);
            memory.read(offset, head);
            buf = tail;
            addr += n as u64;
        }
        true
    }

    pub(crate) fn write(&self, mut addr: u64, mut data: &[u8]) -> bool {
        while !data.is_empty() {
            let Some((memory, offset, left)) = self.find(addr) else { return false };
            let n = data.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            memory.write(offset, &data[..n]);
            data = &data[n..];
            addr += n as u64;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dma_reaches_mapped_ranges_only_and_across_adjacent_ones() {
        let (a, b) = (VecMemory::new(16), VecMemory::new(16));
        let mut map = DmaMap::default();
        assert!(map.map(0x1000, 16, a.clone()));
        assert!(map.map(0x1010, 16, b.clone()));
        assert!(!map.map(0x100f, 4, a.clone()), "overlap is refused");
        assert!(map.write(0x100c, &[1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!((a.bytes(12, 4), b.bytes(0, 4)), (vec![1, 2, 3, 4], vec![5, 6, 7, 8]));
        assert!(!map.read(0x101c, &mut [0; 8]), "runs over the end");
        assert!(map.unmap(0x1000, 16));
        assert!(!map.read(0x1000, &mut [0; 4]));
        assert!(map.read(0x1010, &mut [0; 4]));
    }
}
