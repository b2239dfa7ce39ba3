//! Memory that the device reaches: files in memory, mapped here and sent to the server.

use super::client::{Client, Failure};
use super::wire::{Command, words};
use crate::allocations::{Allocation, Table, whole_pages};
use crate::iova::IovaSpace;
use crate::shared::Mapping;
use amdev_core::bus::{BusError, DmaHandle, Segment};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::Arc;

/// The device may read and write.
const READ_WRITE: u32 = 3;

/// The allocations of a device.
pub(super) struct Allocations {
    /// With the address at which the device finds each.
    pub(super) table: Table<u64>,
    space: IovaSpace,
}

impl Default for Allocations {
    fn default() -> Self {
        Allocations { table: Table::default(), space: IovaSpace::new(&[0..=u64::MAX]) }
    }
}

impl Allocations {
    /// Zeroed memory, mapped here and for the device.
    pub(super) fn alloc(&mut self, client: &mut Client, len: u64) -> Result<Option<DmaHandle>, Failure> {
        let Some(len) = whole_pages(len) else { return Ok(None) };
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
        let memory = Arc::new(memory);
        client.memory.add(iova, Arc::clone(&memory));
        Ok(Some(self.table.insert(memory, iova, len)))
    }

    /// Takes from the device what was taken out of the table.
    pub(super) fn free(&mut self, client: &mut Client, gone: &Allocation<u64>) -> Result<(), Failure> {
        let mut request = words(&[24, 0]);
        request.extend([gone.reach, gone.len].iter().flat_map(|v| v.to_le_bytes()));
        client.ask(Command::DmaUnmap, &request, &[])?;
        client.memory.remove(gone.reach);
        self.space.free(gone.reach);
        Ok(())
    }

    pub(super) fn segment(&self, handle: DmaHandle, offset: u64) -> Result<Segment, BusError> {
        let a = self.table.find(handle, offset, 1)?;
        Ok(Segment { addr: a.reach + offset, len: a.len - offset })
    }
}
