//! Memory that the device reaches: files in memory, mapped here and sent to the server.

use super::client::{Client, Failure};
use super::wire::{Command, words};
use crate::iova::IovaSpace;
use crate::shared::Mapping;
use amdev_core::bus::{BusError, DmaHandle, Segment};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::Arc;

/// Smallest unit.
const PAGE: u64 = 4096;
/// The device may read and write.
const READ_WRITE: u32 = 3;

struct Allocation {
    memory: Arc<Mapping>,
    iova: u64,
    len: u64,
}

/// The allocations of a device.
pub(super) struct Allocations {
    live: BTreeMap<u32, Allocation>,
    next_handle: u32,
    space: IovaSpace,
}

impl Default for Allocations {
    fn default() -> Self {
        Allocations { live: BTreeMap::new(), next_handle: 0, space: IovaSpace::new(&[0..=u64::MAX]) }
    }
}

impl Allocations {
    /// Zeroed memory, mapped here and for the device.
    pub(super) fn alloc(&mut self, client: &mut Client, len: u64) -> Result<Option<DmaHandle>, Failure> {
        let Some(len) = len.checked_next_multiple_of(PAGE).filter(|l| *l > 0) else { return Ok(None) };
        let os = |what| move |e: Errno| Failure::Os(what, e);
        let fd = memfd_create("amdev", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(os("memory for the device"))?;
        ftruncate(&fd, len).map_err(os("memory for the device"))?;
        // So that the server can map it without fear that it shrinks.
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(os("sealing memory for the device"))?;
        let file = File::from(fd);
        let Ok(memory) = Mapping::new(&file, 0, len) else { return Ok(None) };
        let Some(iova) = self.space.alloc(len) else { return Ok(None) };
        let mut request = words(&[32, READ_WRITE]);
        request.extend([0, iova, len].iter().flat_map(|v: &u64| v.to_le_bytes()));
        if let Err(e) = client.ask(Command::DmaMap, &request, &[file.as_fd()]) {
            self.space.free(iova);
            return Err(e);
        }
        let handle = DmaHandle(self.next_handle);
        self.next_handle = self.next_handle.wrapping_add(1);
        let memory = Arc::new(memory);
        client.memory.add(iova, Arc::clone(&memory));
        self.live.insert(handle.0, Allocation { memory, iova, len });
        Ok(Some(handle))
    }

    pub(super) fn free(&mut self, client: &mut Client, handle: DmaHandle) -> Result<(), Failure> {
        if let Some(a) = self.live.remove(&handle.0) {
            let mut request = words(&[24, 0]);
            request.extend([a.iova, a.len].iter().flat_map(|v| v.to_le_bytes()));
            client.ask(Command::DmaUnmap, &request, &[])?;
            client.memory.remove(a.iova);
            self.space.free(a.iova);
        }
        Ok(())
    }

    fn find(&self, handle: DmaHandle, offset: u64, len: u64) -> Result<&Allocation, BusError> {
        let inside = |a: &&Allocation| offset.checked_add(len).is_some_and(|end| end <= a.len);
        self.live.get(&handle.0).filter(inside).ok_or(BusError::BadDmaRange { handle, offset, len })
    }

    pub(super) fn len(&self, handle: DmaHandle) -> Result<u64, BusError> {
        Ok(self.find(handle, 0, 0)?.len)
    }

    pub(super) fn segment(&self, handle: DmaHandle, offset: u64) -> Result<Segment, BusError> {
        let a = self.find(handle, offset, 1)?;
        Ok(Segment { addr: a.iova + offset, len: a.len - offset })
    }

    pub(super) fn read(&self, handle: DmaHandle, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        let a = self.find(handle, offset, buf.len() as u64)?;
        a.memory.read(offset as usize, buf);
        // What follows is read after it: a signal, then what it stands for.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        Ok(())
    }

    pub(super) fn write(&self, handle: DmaHandle, offset: u64, data: &[u8]) -> Result<(), BusError> {
        let a = self.find(handle, offset, data.len() as u64)?;
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        a.memory.write(offset as usize, data);
        Ok(())
    }
}
