//! Regions of the device: what the server says of them, and accesses by message or mapping.

use super::client::{Client, Failure, Reply};
use super::wire::{Command, access, u32_at, u64_at, words};
use crate::shared::{Mapping, areas};
use std::fs::File;
use std::os::fd::OwnedFd;

/// Configuration space.
pub(super) const CONFIG: u32 = 7;

// `struct vfio_region_info` of `linux/vfio.h`.
const FLAG_READ: u32 = 1;
const FLAG_WRITE: u32 = 1 << 1;
const FLAG_MMAP: u32 = 1 << 2;
const INFO_LEN: u32 = 32;
/// No server needs more for what it has to say of a region.
const MAX_INFO: u32 = 4096;

/// A mapped part of a region.
struct Area {
    start: u64,
    len: u64,
    memory: Mapping,
}

/// A region.
#[derive(Default)]
pub(super) struct Region {
    index: u32,
    flags: u32,
    pub(super) len: u64,
    areas: Vec<Area>,
}

impl Region {
    /// Asks for a region, and maps of it what can be mapped.
    pub(super) fn query(client: &mut Client, index: u32) -> Result<Region, Failure> {
        let ask = |client: &mut Client, argsz: u32| {
            let request = words(&[argsz, 0, index, 0, 0, 0, 0, 0]);
            client.ask(Command::GetRegionInfo, &request, &[])
        };
        let mut reply = ask(client, INFO_LEN)?;
        let needed = u32_at(&reply.payload, 0)?;
        if needed > MAX_INFO {
            return Err(Failure::Protocol("information on a region is longer than any"));
        }
        if needed > INFO_LEN {
            reply = ask(client, needed)?;
        }
        let info = &reply.payload;
        let flags = u32_at(info, 4)?;
        let mut region = Region { index, flags, len: u64_at(info, 16)?, areas: Vec::new() };
        if u32_at(info, 8)? != index {
            return Err(Failure::Protocol("information on another region than asked for"));
        }
        if flags & FLAG_MMAP != 0 && region.len > 0 {
            region.map(reply)?;
        }
        Ok(region)
    }

    /// Maps the areas that the server offers; without a descriptor messages are used.
    fn map(&mut self, reply: Reply) -> Result<(), Failure> {
        let info = &reply.payload;
        let areas = areas(info).ok_or(Failure::Protocol("information on a region is cut off"))?;
        let areas = match areas {
            None => vec![(0, self.len)],
            Some(areas) => areas,
        };
        let base = u64_at(info, 24)?;
        let files: Vec<File> = reply.fds.into_iter().map(|fd: OwnedFd| File::from(fd)).collect();
        for (i, (start, len)) in areas.into_iter().enumerate() {
            // One descriptor for the region, or one for each area.
            let file = if files.len() == 1 { files.first() } else { files.get(i) };
            let Some(file) = file else { continue };
            let inside = start.checked_add(len).is_some_and(|end| end <= self.len);
            let at = base.checked_add(start).filter(|_| inside);
            let at = at.ok_or(Failure::Protocol("a mappable area lies outside of its region"))?;
            // What cannot be mapped is reached by messages.
            match Mapping::new(file, at, len) {
                Ok(memory) => self.areas.push(Area { start, len, memory }),
                Err(e) => tracing::info!("region {} at {start:#x}: not mapped: {e}", self.index),
            }
        }
        Ok(())
    }

    /// The mapping that holds a range, and the offset in it.
    fn mapped(&self, offset: u64, len: usize) -> Option<(&Mapping, usize)> {
        let end = offset.checked_add(len as u64)?;
        let area = self.areas.iter().find(|a| a.start <= offset && end <= a.start + a.len)?;
        Some((&area.memory, usize::try_from(offset - area.start).ok()?))
    }

    fn check(&self, flag: u32) -> Result<(), Failure> {
        if self.flags & flag != 0 {
            return Ok(());
        }
        let what = if flag == FLAG_READ { "read" } else { "written" };
        Err(Failure::Device(format!("region {} cannot be {what}", self.index)))
    }

    /// Reads, in messages of at most `most` bytes.
    pub(super) fn read(
        &self,
        client: &mut Client,
        offset: u64,
        buf: &mut [u8],
        most: usize,
    ) -> Result<(), Failure> {
        self.check(FLAG_READ)?;
        if let Some((memory, at)) = self.mapped(offset, buf.len()) {
            client.drain()?;
            memory.read(at, buf);
            return Ok(());
        }
        let mut at = offset;
        for part in buf.chunks_mut(most.max(1)) {
            let request = access(self.index, at, part.len() as u32);
            let reply = client.ask(Command::RegionRead, &request, &[])?;
            part.copy_from_slice(data(&reply, part.len())?);
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Reads dwords at several places.
    pub(super) fn read_group(
        &self,
        client: &mut Client,
        offsets: &[u64],
        out: &mut [u32],
    ) -> Result<(), Failure> {
        self.check(FLAG_READ)?;
        let requests: Vec<[u8; 16]> = offsets.iter().map(|at| access(self.index, *at, 4)).collect();
        let step = super::client::MAX_PENDING / 2;
        for (requests, out) in requests.chunks(step).zip(out.chunks_mut(step)) {
            let mut values = out.iter_mut();
            client.ask_all(Command::RegionRead, requests.iter().map(|r| &r[..]), |reply| {
                if let Some(value) = values.next() {
                    *value = u32_at(data(reply, 4)?, 0)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Writes, in messages of at most `most` bytes; their replies are awaited later.
    pub(super) fn write(
        &self,
        client: &mut Client,
        offset: u64,
        data: &[u8],
        most: usize,
    ) -> Result<(), Failure> {
        self.check(FLAG_WRITE)?;
        if let Some((memory, at)) = self.mapped(offset, data.len()) {
            // Behind everything that was written before.
            client.drain()?;
            memory.write(at, data);
            return Ok(());
        }
        let mut at = offset;
        for part in data.chunks(most.max(1)) {
            let request = access(self.index, at, part.len() as u32);
            client.post(Command::RegionWrite, &request, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }
}

/// What a read brought.
fn data(reply: &Reply, len: usize) -> Result<&[u8], Failure> {
    let data = reply.payload.get(16..).filter(|d| d.len() == len);
    data.ok_or(Failure::Protocol("a read brought another number of bytes than asked for"))
}
