//! Memory of this process that the server may access, as it was mapped for it.

use crate::shared::Mapping;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most bytes of one access: the default of the protocol, and what this side told the server.
const MAX_DATA: u64 = 1 << 20;

/// What is mapped, by its bus address.
#[derive(Default)]
pub(super) struct Memory(BTreeMap<u64, Arc<Mapping>>);

impl Memory {
    pub(super) fn add(&mut self, iova: u64, memory: Arc<Mapping>) {
        self.0.insert(iova, memory);
    }

    pub(super) fn remove(&mut self, iova: u64) {
        self.0.remove(&iova);
    }

    /// The memory of an access: address and length in 8 bytes each, then data.
    fn find(&self, request: &[u8]) -> Result<(&Mapping, usize, usize), Errno> {
        let field = |at: usize| request.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b));
        let (address, len) = (field(0).ok_or(Errno::INVAL)?, field(8).ok_or(Errno::INVAL)?);
        if len > MAX_DATA {
            return Err(Errno::INVAL);
        }
        let (start, memory) = self.0.range(..=address).next_back().ok_or(Errno::FAULT)?;
        let (at, len) = ((address - start) as usize, len as usize);
        if at.checked_add(len).is_none_or(|end| end > memory.len()) {
            return Err(Errno::FAULT);
        }
        Ok((memory, at, len))
    }

    /// Answers DMA_READ: the request's fields, then what was read.
    pub(super) fn read(&self, request: &[u8]) -> Result<Vec<u8>, Errno> {
        let (memory, at, len) = self.find(request)?;
        if request.len() != 16 {
            return Err(Errno::INVAL);
        }
        let mut reply = request.to_vec();
        reply.resize(16 + len, 0);
        memory.read(at, reply.get_mut(16..).unwrap_or_default());
        Ok(reply)
    }

    /// Answers DMA_WRITE: the request's fields.
    // All 16 bytes of them: the protocol's table of the reply can be read as 12, its count having 4 bytes
    // there and 8 in the request; libvfio-user awaits a `struct vfio_user_dma_region_access`, which is 16.
    pub(super) fn write(&self, request: &[u8]) -> Result<Vec<u8>, Errno> {
        let (memory, at, len) = self.find(request)?;
        let (fields, data) = request.split_at_checked(16).ok_or(Errno::INVAL)?;
        if data.len() != len {
            return Err(Errno::INVAL);
        }
        memory.write(at, data);
        Ok(fields.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(address: u64, len: u64, data: &[u8]) -> Vec<u8> {
        [&address.to_le_bytes()[..], &len.to_le_bytes(), data].concat()
    }

    #[test]
    fn memory_is_read_and_written_only_where_it_is_mapped() {
        let mut memory = Memory::default();
        memory.add(0x10000, Arc::new(Mapping::anonymous(0x2000).unwrap()));
        let ask = request(0x11ffc, 4, &[1, 2, 3, 4]);
        assert_eq!(memory.write(&ask), Ok(ask[..16].to_vec()));
        assert_eq!(memory.read(&ask[..16]), Ok(ask.clone()));
        for (address, len) in [(0xffff, 1), (0x11ffd, 4), (0x12000, 1), (u64::MAX, 1), (0x10000, 0x2001)] {
            assert_eq!(memory.read(&request(address, len, &[])), Err(Errno::FAULT), "{address:#x}+{len}");
        }
        assert_eq!(memory.read(&request(0x10000, u64::MAX, &[])), Err(Errno::INVAL));
        assert_eq!(memory.write(&request(0x10000, 5, &[1])), Err(Errno::INVAL));
        assert_eq!(memory.read(&[0; 15]), Err(Errno::INVAL));
        memory.remove(0x10000);
        assert_eq!(memory.read(&ask[..16]), Err(Errno::FAULT));
    }
}
