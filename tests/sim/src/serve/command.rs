//! What each command does to the device.

use super::irq::{self, Irqs};
use super::ticker::Ticker;
use super::wire::{Channel, MAX_DATA, MAX_FDS, Message};
use crate::gpu::SimGpu;
use crate::host::{DmaAccess, HostMemory};
use crate::shared::SharedMemory;
use rustix::io::Errno;
use serde_json::{Value, json};
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

// Commands of the protocol. Those that a server sends, and migration, are not among them.
const VERSION: u16 = 1;
const DMA_MAP: u16 = 2;
const DMA_UNMAP: u16 = 3;
const DEVICE_GET_INFO: u16 = 4;
const DEVICE_GET_REGION_INFO: u16 = 5;
const DEVICE_GET_IRQ_INFO: u16 = 7;
const DEVICE_SET_IRQS: u16 = 8;
const REGION_READ: u16 = 9;
const REGION_WRITE: u16 = 10;
const DEVICE_RESET: u16 = 13;

// Regions, as in VFIO's PCI devices.
const BAR0: u32 = 0;
const ROM: u32 = 6;
const CONFIG: u32 = 7;
const REGIONS: u32 = 9;
const CONFIG_LEN: u64 = 4096;

const REGION_FLAG_READ: u32 = 1;
const REGION_FLAG_WRITE: u32 = 1 << 1;
const REGION_FLAG_MMAP: u32 = 1 << 2;
const REGION_FLAG_CAPS: u32 = 1 << 3;
/// Bytes of region information without capabilities.
const REGION_INFO: usize = 32;
/// Bytes of the sparse-mmap capability with one area.
const SPARSE_ONE: usize = 32;

/// The device can be reset, and is a PCI device.
const DEVICE_FLAGS: u32 = 3;
const DMA_READ: u32 = 1;
const DMA_WRITE: u32 = 1 << 1;
const UNMAP_DIRTY: u32 = 1;
const UNMAP_ALL: u32 = 1 << 1;
/// The most mappings of a client.
const MAX_MAPS: usize = 65_535;

/// Memory of a mapping that came without any: nothing reaches it.
struct Nothing;

impl HostMemory for Nothing {
    fn read(&self, _: u64, buf: &mut [u8]) {
        buf.fill(0xff);
    }
    fn write(&self, _: u64, _: &[u8]) {}
}

/// A successful answer.
#[derive(Default)]
struct Reply<'a> {
    payload: Vec<u8>,
    fd: Option<BorrowedFd<'a>>,
}

impl From<Vec<u8>> for Reply<'_> {
    fn from(payload: Vec<u8>) -> Self {
        Reply { payload, fd: None }
    }
}

/// The fields of a payload, in order.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// All of a payload, which has to be `len` bytes long.
    fn exactly(payload: &'a [u8], len: usize) -> Result<Fields<'a>, Errno> {
        if payload.len() == len { Ok(Fields(payload)) } else { Err(Errno::INVAL) }
    }
    fn u16(&mut self) -> Result<u16, Errno> {
        let (field, rest) = self.0.split_first_chunk().ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(u16::from_le_bytes(*field))
    }
    fn u32(&mut self) -> Result<u32, Errno> {
        let (field, rest) = self.0.split_first_chunk().ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*field))
    }
    fn u64(&mut self) -> Result<u64, Errno> {
        let (field, rest) = self.0.split_first_chunk().ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*field))
    }
}

fn bytes(fields: &[u32]) -> Vec<u8> {
    fields.iter().flat_map(|f| f.to_le_bytes()).collect()
}

/// One connection.
pub(super) struct Client<'a> {
    gpu: &'a SimGpu,
    vram: Option<&'a File>,
    irqs: &'a Irqs,
    ticker: &'a Ticker,
    /// The version was agreed on.
    ready: bool,
    /// The client takes descriptors.
    takes_fds: bool,
    maps: usize,
}

impl<'a> Client<'a> {
    pub(super) fn new(gpu: &'a SimGpu, vram: Option<&'a File>, irqs: &'a Irqs, ticker: &'a Ticker) -> Self {
        Client { gpu, vram, irqs, ticker, ready: false, takes_fds: true, maps: 0 }
    }

    /// Serves until the client goes.
    pub(super) fn serve(mut self, socket: UnixStream) -> Result<(), Errno> {
        let done = Channel::new(socket).map_err(|_| Errno::IO).and_then(|channel| self.messages(&channel));
        self.irqs.clear();
        self.gpu.dma_unmap_all();
        done
    }

    fn messages(&mut self, channel: &Channel) -> Result<(), Errno> {
        while let Some(Message { header, payload, fds }) = channel.receive()? {
            // The server asks for nothing, so that an answer is none of its business.
            if header.is_reply() {
                continue;
            }
            let done = match payload {
                Some(payload) if header.is_command() => self.command(header.command, &payload, fds),
                _ => Err(Errno::INVAL),
            };
            self.ticker.touched();
            // "or closes the connection if it cannot support the advertised version".
            if done.as_ref().is_err_and(|e| *e == Errno::PROTONOSUPPORT) {
                return Err(Errno::PROTONOSUPPORT);
            }
            if !header.wants_reply() {
                continue;
            }
            match done {
                Ok(reply) => channel.reply(&header, &reply.payload, reply.fd, None)?,
                Err(error) => channel.reply(&header, &[], None, Some(error))?,
            }
        }
        Ok(())
    }

    fn command(&mut self, command: u16, payload: &[u8], fds: Vec<OwnedFd>) -> Result<Reply<'a>, Errno> {
        if !matches!(command, DMA_MAP | DEVICE_SET_IRQS) && !fds.is_empty() {
            return Err(Errno::INVAL);
        }
        // Nothing is served before the two sides have agreed on a version, and they do so once.
        if (command == VERSION) == self.ready {
            return Err(Errno::INVAL);
        }
        match command {
            VERSION => self.version(payload),
            DMA_MAP => self.dma_map(payload, fds),
            DMA_UNMAP => self.dma_unmap(payload),
            DEVICE_GET_INFO => {
                let argsz = Fields::exactly(payload, 16)?.u32()?;
                if argsz < 16 {
                    return Err(Errno::INVAL);
                }
                Ok(bytes(&[16, DEVICE_FLAGS, REGIONS, irq::TYPES]).into())
            }
            DEVICE_GET_REGION_INFO => self.region_info(payload),
            DEVICE_GET_IRQ_INFO => {
                let mut f = Fields::exactly(payload, 16)?;
                let (argsz, _, index) = (f.u32()?, f.u32()?, f.u32()?);
                if argsz < 16 || index >= irq::TYPES {
                    return Err(Errno::INVAL);
                }
                let (flags, count) = irq::info(index);
                Ok(bytes(&[16, flags, index, count]).into())
            }
            DEVICE_SET_IRQS => {
                let mut f = Fields(payload);
                let (argsz, flags, index) = (f.u32()?, f.u32()?, f.u32()?);
                let (start, count) = (f.u32()?, f.u32()?);
                if argsz < 20 {
                    return Err(Errno::INVAL);
                }
                self.irqs.set(flags, index, start, count, f.0, fds)?;
                Ok(Reply::default())
            }
            REGION_READ => self.region_read(payload),
            REGION_WRITE => self.region_write(payload),
            DEVICE_RESET => {
                Fields::exactly(payload, 0)?;
                // As a machine that is reset: power-on state, posted by the firmware.
                self.gpu.plug();
                Ok(Reply::default())
            }
            _ => Err(Errno::NOTSUP),
        }
    }

    fn version(&mut self, payload: &[u8]) -> Result<Reply<'a>, Errno> {
        let mut f = Fields(payload);
        let (major, _minor) = (f.u16()?, f.u16()?);
        if major != 0 {
            return Err(Errno::PROTONOSUPPORT);
        }
        if !f.0.is_empty() {
            let text = f.0.strip_suffix(&[0]).ok_or(Errno::INVAL)?;
            let data: Value = serde_json::from_slice(text).map_err(|_| Errno::INVAL)?;
            let wrong = match data.get("capabilities") {
                None => !data.is_object(),
                Some(Value::Object(c)) => {
                    let keys = ["max_msg_fds", "max_data_xfer_size", "max_dma_maps", "pgsizes"];
                    keys.iter().any(|k| c.get(*k).is_some_and(|v| !v.is_u64()))
                }
                Some(_) => true,
            };
            if wrong {
                return Err(Errno::INVAL);
            }
            // One descriptor a message is what every client takes that does not say otherwise.
            self.takes_fds = data.pointer("/capabilities/max_msg_fds").is_none_or(|n| n.as_u64() != Some(0));
        }
        self.ready = true;
        let capabilities = json!({
            "max_msg_fds": MAX_FDS,
            "max_data_xfer_size": MAX_DATA,
            "max_dma_maps": MAX_MAPS,
            "pgsizes": 4096,
        });
        let mut reply = vec![0; 4];
        reply.extend(json!({ "capabilities": capabilities }).to_string().into_bytes());
        reply.push(0);
        Ok(reply.into())
    }

    fn dma_map(&mut self, payload: &[u8], mut fds: Vec<OwnedFd>) -> Result<Reply<'a>, Errno> {
        let mut f = Fields::exactly(payload, 32)?;
        let (argsz, flags) = (f.u32()?, f.u32()?);
        let (offset, iova, size) = (f.u64()?, f.u64()?, f.u64()?);
        let page = |v: u64| v.is_multiple_of(4096);
        let wrong = argsz < 32 || flags & !(DMA_READ | DMA_WRITE) != 0 || fds.len() > 1;
        if wrong || size == 0 || !page(iova) || !page(size) || iova.checked_add(size - 1).is_none() {
            return Err(Errno::INVAL);
        }
        if self.maps >= MAX_MAPS {
            return Err(Errno::NOSPC);
        }
        let access = DmaAccess { read: flags & DMA_READ != 0, write: flags & DMA_WRITE != 0 };
        let (access, memory): (_, Arc<dyn HostMemory>) = match fds.pop() {
            None => (DmaAccess::NONE, Arc::new(Nothing)),
            Some(fd) => {
                let memory = SharedMemory::map(fd.into(), offset, size, access.write);
                let code =
                    |e: std::io::Error| e.raw_os_error().map_or(Errno::INVAL, Errno::from_raw_os_error);
                (access, Arc::new(memory.map_err(code)?))
            }
        };
        if !self.gpu.dma_map_for(iova, size, access, memory) {
            return Err(Errno::EXIST);
        }
        self.maps += 1;
        Ok(Reply::default())
    }

    fn dma_unmap(&mut self, payload: &[u8]) -> Result<Reply<'a>, Errno> {
        let mut f = Fields::exactly(payload, 24)?;
        let (argsz, flags, iova, size) = (f.u32()?, f.u32()?, f.u64()?, f.u64()?);
        if flags & UNMAP_DIRTY != 0 {
            return Err(Errno::NOTSUP);
        }
        let all = flags & UNMAP_ALL != 0;
        let range_wrong = if all { iova != 0 || size != 0 } else { size == 0 };
        // The last byte counts: QEMU takes the whole address space away in two halves.
        let wraps = iova.checked_add(size.saturating_sub(1)).is_none();
        if argsz < 24 || flags & !UNMAP_ALL != 0 || range_wrong || wraps {
            return Err(Errno::INVAL);
        }
        let size = if all { u64::MAX } else { size };
        // As the kernel's type1v2: ranges over many mappings or none are fine, parts of one are not.
        let gone = self.gpu.dma_unmap_range(iova, size).ok_or(Errno::INVAL)?;
        self.maps = self.maps.saturating_sub(gone);
        Ok(payload.to_vec().into())
    }

    fn region_len(&self, region: u32) -> u64 {
        match region {
            CONFIG => CONFIG_LEN,
            0..=ROM => self.gpu.bar_len(region as u8),
            _ => 0,
        }
    }

    fn region_info(&self, payload: &[u8]) -> Result<Reply<'a>, Errno> {
        let mut f = Fields(payload);
        let (argsz, _, index) = (f.u32()?, f.u32()?, f.u32()?);
        // A client may send as much room as it says it has for the answer.
        if payload.len() != REGION_INFO && payload.len() != argsz as usize {
            return Err(Errno::INVAL);
        }
        if (argsz as usize) < REGION_INFO || payload.len() < REGION_INFO || index >= REGIONS {
            return Err(Errno::INVAL);
        }
        let size = self.region_len(index);
        let mut flags = match index {
            _ if size == 0 => 0,
            ROM => REGION_FLAG_READ,
            _ => REGION_FLAG_READ | REGION_FLAG_WRITE,
        };
        // Without descriptors nothing can be mapped: such a client reads and writes by messages.
        let vram = self.vram.filter(|_| index == BAR0 && self.takes_fds);
        let (mut needed, mut caps_at) = (REGION_INFO, 0);
        if vram.is_some() {
            flags |= REGION_FLAG_MMAP | REGION_FLAG_CAPS;
            needed += SPARSE_ONE;
            // Also where the client left no room for it: QEMU takes 0 for a broken answer before it
            // looks at `argsz` and asks again with more room.
            caps_at = REGION_INFO as u32;
        }
        let complete = argsz as usize >= needed;
        let mut reply = bytes(&[needed as u32, flags, index, caps_at]);
        reply.extend(size.to_le_bytes());
        reply.extend(0u64.to_le_bytes());
        if caps_at != 0 && complete {
            // Capability 1, version 1, no next one; one area: the whole window.
            reply.extend(bytes(&[1 | 1 << 16, 0, 1, 0]));
            reply.extend(0u64.to_le_bytes());
            reply.extend(size.to_le_bytes());
        }
        Ok(Reply { payload: reply, fd: vram.filter(|_| complete).map(|f| f.as_fd()) })
    }

    /// Offset and region of an access, checked against the region.
    fn access(&self, f: &mut Fields<'_>) -> Result<(u64, u32, usize), Errno> {
        let (offset, region, count) = (f.u64()?, f.u32()?, f.u32()?);
        let end = offset.checked_add(u64::from(count)).ok_or(Errno::INVAL)?;
        if count == 0 || count > MAX_DATA || region >= REGIONS || end > self.region_len(region) {
            return Err(Errno::INVAL);
        }
        Ok((offset, region, count as usize))
    }

    fn region_read(&self, payload: &[u8]) -> Result<Reply<'a>, Errno> {
        let (offset, region, count) = self.access(&mut Fields::exactly(payload, 16)?)?;
        let mut reply = payload.to_vec();
        reply.resize(16 + count, 0);
        let data = reply.get_mut(16..).ok_or(Errno::INVAL)?;
        match region {
            CONFIG => self.gpu.config_read(offset as u16, data),
            _ => self.gpu.read(region as u8, offset, data).map_err(|_| Errno::INVAL)?,
        }
        Ok(reply.into())
    }

    fn region_write(&self, payload: &[u8]) -> Result<Reply<'a>, Errno> {
        let mut f = Fields(payload);
        let (offset, region, count) = self.access(&mut f)?;
        if f.0.len() != count || region == ROM {
            return Err(Errno::INVAL);
        }
        match region {
            CONFIG => self.gpu.config_write(offset as u16, f.0),
            _ => self.gpu.write(region as u8, offset, f.0).map_err(|_| Errno::INVAL)?,
        }
        Ok(payload.get(..16).unwrap_or_default().to_vec().into())
    }
}
