//! The open firmware: vendor requests E4 and E5 for controller memory, F0 for PCIe, F2 for blocks, F3 for
//! the power of the slot. Facts: `usb.py` of tinygrad 0.14 and `handmade/src/main.c` of asm2464pd-firmware.
//! No traffic of it was recorded anywhere that this project could check against.

use crate::controller::{self, BLOCKS_LEN, Controller, Firmware, LTSSM, LTSSM_UP};
use crate::error::UsbError;
use crate::link::Link;
use crate::port::{Setup, Transfer};
use crate::tlp::{Completion, MEMORY_READ, MEMORY_WRITE, Request, pieces};
use std::collections::HashMap;

const DATA_IN: u8 = 0x81;
const DATA_OUT: u8 = 0x02;
/// `bmRequestType` of vendor requests.
const WRITE: u8 = 0x40;
const READ: u8 = 0xc0;
/// Requests.
const E4_READ: u8 = 0xe4;
const E5_WRITE: u8 = 0xe5;
const F0_PCIE: u8 = 0xf0;
const F2_BLOCKS: u8 = 0xf2;
const F3_POWER: u8 = 0xf3;
/// Longest read of controller memory at once.
const MAX_READ: usize = 0xff;
/// `wIndex` of F0: one request, or a stream of dwords.
const ONE: u16 = 0;
const STREAM_WRITE: u16 = 1;
const STREAM_READ: u16 = 2;
/// Longest stream: the firmware counts its dwords in fewer bits than the request has (C28 a).
const MAX_STREAM: usize = 1 << 20;
/// A completion as F0 reads it: data, header, kind, result.
const COMPLETION_LEN: usize = 8;
/// F2 reads instead of writing.
const READ_BLOCKS: u16 = 0x8000;
/// Blocks: sectors, slots, and what one request moves. Two are under way at once.
const SECTOR: usize = 512;
const SLOT: usize = 0x4000;
const BLOCK: usize = 0x2_0000;
const UNDER_WAY: usize = 2;
/// Transfers under way at once: the event ring of a slow host controller (QEMU's) overflows with some
/// hundreds, and their ends are lost.
const MAX_UNDER_WAY: usize = 32;
/// Tries of a request that fails in the engine, and the time between two.
const TRIES: u32 = 10;
const AGAIN_US: u64 = 1_000;
/// A function may ask for patience for 1 s after a reset (`PCI_RESET_WAIT`, pci.h).
const RETRY_US: u64 = 1_500_000;

/// A bridge with this firmware.
pub struct Custom {
    link: Link,
    /// Transfers that are to be sent, and how many of them are requests.
    posted: Vec<Transfer>,
    /// Address behind the stream that was posted last, and its dwords.
    tail: Option<(u64, u32)>,
    /// A read of blocks was armed and not fetched.
    armed: bool,
    known: HashMap<u32, u8>,
}

fn setup(request_type: u8, request: u8, value: u16, index: u16, length: usize) -> Setup {
    Setup { request_type, request, value, index, length: length as u16 }
}

/// The request F2 for so many bytes from a slot on: sectors in `wValue`, slot and slots in `wIndex`.
pub(crate) fn blocks_setup(len: usize, slot: u8) -> Setup {
    let (sectors, slots) = (len.div_ceil(SECTOR) as u16, len.div_ceil(SLOT) as u16);
    setup(WRITE, F2_BLOCKS, sectors, slots << 8 | u16::from(slot), 0)
}

impl Custom {
    /// Selects the interface and switches the slot's power on.
    ///
    /// # Errors
    /// [`UsbError`]
    pub fn open(mut link: Link) -> Result<Self, UsbError> {
        link.port_mut().select(0, 0, &[])?;
        let mut bridge = Custom { link, posted: Vec::new(), tail: None, armed: false, known: HashMap::new() };
        let mut ltssm = [0];
        bridge.xram_read(LTSSM, &mut ltssm)?;
        if ltssm[0] != LTSSM_UP {
            bridge.control(setup(WRITE, F3_POWER, 1, 0, 0), Vec::new());
            bridge.flush()?;
            controller::link_up(&mut bridge)?;
        }
        Ok(bridge)
    }

    fn control(&mut self, setup: Setup, data: Vec<u8>) {
        self.tail = None;
        self.posted.push(Transfer::Control { setup, data });
    }

    /// Describes a request, or the first of a stream of `count`.
    fn post_request(&mut self, request: &Request, mode: u16, count: Option<u32>) {
        let mut data = Vec::with_capacity(12);
        data.extend((request.address as u32).to_le_bytes());
        data.extend(((request.address >> 32) as u32).to_le_bytes());
        data.extend(count.unwrap_or(request.value).to_le_bytes());
        let value = u16::from_le_bytes([request.fmt, request.enable]);
        self.control(setup(WRITE, F0_PCIE, value, mode, data.len()), data);
    }

    /// Sends what is posted; what came in with the last transfer.
    fn send(&mut self) -> Result<Vec<u8>, UsbError> {
        let posted = std::mem::take(&mut self.posted);
        self.tail = None;
        let mut last = Vec::new();
        // A stream and the request behind it may not meet: the request would end the stream.
        for group in groups(posted) {
            last = self.send_group(group)?;
        }
        Ok(last)
    }

    fn send_group(&mut self, group: Vec<Transfer>) -> Result<Vec<u8>, UsbError> {
        let wants: Vec<(String, usize)> = group.iter().map(|t| (name(t), wanted(t))).collect();
        let requests = group.iter().filter(|t| matches!(t, Transfer::Control { .. })).count();
        self.link.counts.commands += requests as u64;
        let named = |at: usize| wants.get(at).map_or_else(String::new, |(name, _)| name.clone());
        let done = self.link.run(group, named).inspect_err(|_| self.known.clear())?;
        for (completion, (what, want)) in done.iter().zip(&wants) {
            if completion.actual < *want {
                let (what, got, want) = (what.clone(), completion.actual, *want);
                self.known.clear();
                return Err(UsbError::Length { what, got, want });
            }
        }
        Ok(done.into_iter().next_back().map(|c| c.data).unwrap_or_default())
    }

    fn request(&mut self, request: &Request) -> Result<u32, UsbError> {
        let start = self.link.port().now_us();
        let mut tries = 0;
        loop {
            self.post_request(request, ONE, None);
            self.control(setup(READ, F0_PCIE, 0, 0, COMPLETION_LEN), Vec::new());
            let answer = self.send()?;
            let byte = |at: usize| answer.get(at).copied().unwrap_or(0);
            if byte(7) != 0 {
                tries += 1;
                if tries >= TRIES || byte(7) == 0xff && tries > 1 {
                    controller::link_up(self)?;
                    return Err(request.failed("no completion came; plug the enclosure in again"));
                }
                self.link.port().wait_us(AGAIN_US);
                continue;
            }
            let data = u32::from_le_bytes([0, 1, 2, 3].map(byte));
            let header = u16::from_be_bytes([byte(4), byte(5)]);
            match Completion::decode(request, header, byte(6) & 1 != 0) {
                Completion::Good => return Ok(request.extract(data)),
                Completion::Retry if self.link.port().now_us() - start < RETRY_US => {
                    self.link.port().wait_us(10 * AGAIN_US);
                }
                Completion::Retry => return Err(request.failed("the function was not ready within 1.5 s")),
                Completion::Bad(why) => return Err(request.failed(why)),
            }
        }
    }

    fn stream(&mut self, address: u64, data: &[u8]) -> Result<(), UsbError> {
        if let Some((end, dwords)) = self.tail
            && end == address
            && (dwords as usize * 4) + data.len() <= MAX_STREAM
            && self.extend(dwords, data)
        {
            self.tail = Some((end + data.len() as u64, dwords + (data.len() / 4) as u32));
            return Ok(());
        }
        let mut at = address;
        for part in data.chunks(MAX_STREAM) {
            let request = Request { fmt: MEMORY_WRITE, enable: 0xf, address: at, value: 0 };
            self.post_request(&request, STREAM_WRITE, Some((part.len() / 4) as u32));
            self.posted.push(Transfer::Out { endpoint: DATA_OUT, stream: 0, data: part.to_vec() });
            at += part.len() as u64;
            self.tail = Some((at, (part.len() / 4) as u32));
        }
        Ok(())
    }

    /// Lets the stream that was posted last go on: the count is the last dword of its request.
    fn extend(&mut self, dwords: u32, more: &[u8]) -> bool {
        let [.., Transfer::Control { data: request, .. }, Transfer::Out { data, .. }] = &mut self.posted[..]
        else {
            return false;
        };
        let count = (dwords + (more.len() / 4) as u32).to_le_bytes();
        if request.len() != 12 {
            return false;
        }
        request.truncate(8);
        request.extend(count);
        data.extend(more);
        true
    }
}

/// Cuts behind each bulk transfer, and where more would be under way than a host controller has room to tell
/// the ends of.
fn groups(posted: Vec<Transfer>) -> Vec<Vec<Transfer>> {
    let mut groups = vec![Vec::new()];
    for transfer in posted {
        let ends = !matches!(transfer, Transfer::Control { .. });
        if let Some(group) = groups.last_mut() {
            group.push(transfer);
        }
        if ends || groups.last().is_some_and(|group| group.len() >= MAX_UNDER_WAY) {
            groups.push(Vec::new());
        }
    }
    groups.retain(|group| !group.is_empty());
    groups
}

fn name(transfer: &Transfer) -> String {
    match transfer {
        Transfer::Control { setup, .. } => format!(
            "vendor request {:#04x} (wValue {:#06x}, wIndex {:#06x})",
            setup.request, setup.value, setup.index
        ),
        Transfer::Out { data, .. } => format!("{} bytes of bulk out", data.len()),
        Transfer::In { length, .. } => format!("{length} bytes of bulk in"),
    }
}

/// Bytes that have to move.
fn wanted(transfer: &Transfer) -> usize {
    match transfer {
        Transfer::Control { setup, data } if setup.request_type == WRITE => data.len(),
        other => other.len(),
    }
}

impl Controller for Custom {
    fn firmware(&self) -> Firmware {
        Firmware::Custom
    }

    fn link(&self) -> &Link {
        &self.link
    }

    fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }

    fn xram_read(&mut self, at: u32, buf: &mut [u8]) -> Result<(), UsbError> {
        let mut at = at;
        for part in buf.chunks_mut(MAX_READ) {
            let [_, bank, ..] = at.to_be_bytes();
            self.control(setup(READ, E4_READ, at as u16, u16::from(bank) << 8, part.len()), Vec::new());
            let read = self.send()?;
            if let Some(bytes) = read.get(..part.len()) {
                part.copy_from_slice(bytes);
            }
            at += part.len() as u32;
        }
        Ok(())
    }

    fn xram_write(&mut self, at: u32, data: &[u8], cached: bool) -> Result<(), UsbError> {
        for (at, value) in (at..).zip(data) {
            if cached && self.known.get(&at) == Some(value) {
                continue;
            }
            let [_, bank, ..] = at.to_be_bytes();
            let index = u16::from(bank) << 8 | u16::from(*value);
            self.control(setup(WRITE, E5_WRITE, at as u16, index, 0), Vec::new());
            self.known.insert(at, *value);
        }
        Ok(())
    }

    fn config_read(&mut self, bus: u8, at: u16, size: u8) -> Result<u32, UsbError> {
        self.request(&Request::config(bus, at, size, None)?)
    }

    fn config_write(&mut self, bus: u8, at: u16, size: u8, value: u32) -> Result<(), UsbError> {
        self.request(&Request::config(bus, at, size, Some(value))?).map(drop)
    }

    fn memory_read(&mut self, address: u64, buf: &mut [u8]) -> Result<(), UsbError> {
        let whole = address.is_multiple_of(4) && buf.len().is_multiple_of(4);
        // Until an armed block has come in, a stream has no place on its endpoint.
        if whole && buf.len() > 4 && !self.armed {
            let mut at = address;
            for part in buf.chunks_mut(MAX_STREAM) {
                let request = Request { fmt: MEMORY_READ, enable: 0xf, address: at, value: 0 };
                self.post_request(&request, STREAM_READ, Some((part.len() / 4) as u32));
                self.posted.push(Transfer::In { endpoint: DATA_IN, stream: 0, length: part.len() });
                let read = self.send()?;
                if let Some(bytes) = read.get(..part.len()) {
                    part.copy_from_slice(bytes);
                }
                at += part.len() as u64;
            }
            // The firmware does not look at the completions of a stream: a device that is gone shows as
            // ones, or as what came before.
            return Ok(());
        }
        for (at, size) in pieces(address, buf.len()) {
            let value = self.request(&Request::memory(address + at as u64, size, None)?)?;
            for (to, from) in buf.iter_mut().skip(at).take(size.into()).zip(value.to_le_bytes()) {
                *to = from;
            }
        }
        Ok(())
    }

    fn memory_write(&mut self, address: u64, data: &[u8]) -> Result<(), UsbError> {
        if address.is_multiple_of(4) && data.len().is_multiple_of(4) && data.len() > 4 {
            return self.stream(address, data);
        }
        for (at, size) in pieces(address, data.len()) {
            let bytes = data.iter().skip(at).take(size.into());
            let value = bytes.rev().fold(0, |v, b| v << 8 | u32::from(*b));
            self.post_request(&Request::memory(address + at as u64, size, Some(value))?, ONE, None);
        }
        Ok(())
    }

    fn blocks_write(&mut self, offset: u64, data: &[u8]) -> Result<(), UsbError> {
        self.flush()?;
        if !offset.is_multiple_of(SLOT as u64) || offset + data.len() as u64 > BLOCKS_LEN {
            return Err(UsbError::Unsupported(
                "write block memory there: blocks start at multiples of 16 KiB",
            ));
        }
        let mut slot = (offset / SLOT as u64) as u8;
        let chunks: Vec<&[u8]> = data.chunks(BLOCK).collect();
        for pair in chunks.chunks(UNDER_WAY) {
            let mut group = Vec::new();
            for chunk in pair {
                let mut block = chunk.to_vec();
                block.resize(chunk.len().next_multiple_of(SECTOR), 0);
                group.push(Transfer::Control { setup: blocks_setup(block.len(), slot), data: Vec::new() });
                slot += (BLOCK / SLOT) as u8;
                self.link.counts.block_bytes += block.len() as u64;
                group.push(Transfer::Out { endpoint: DATA_OUT, stream: 0, data: block });
            }
            self.send_group(group)?;
        }
        self.known.retain(|at, _| *at < controller::BLOCKS_XRAM);
        Ok(())
    }

    fn blocks_arm(&mut self, offset: u64, len: u64) -> Result<bool, UsbError> {
        self.flush()?;
        if !offset.is_multiple_of(SLOT as u64) || len == 0 || offset + len > BLOCKS_LEN {
            return Ok(false);
        }
        if self.armed {
            // What was armed before was never fetched: the firmware drops it.
            self.link.port_mut().clear_halt(DATA_IN)?;
        }
        let mut setup = blocks_setup(len as usize, (offset / SLOT as u64) as u8);
        setup.value |= READ_BLOCKS;
        self.armed = true;
        self.control(setup, Vec::new());
        Ok(true)
    }

    fn blocks_read(&mut self, buf: &mut [u8]) -> Result<(), UsbError> {
        self.flush()?;
        let length = buf.len().next_multiple_of(SECTOR);
        self.armed = false;
        self.link.counts.block_bytes += length as u64;
        let read = self.send_group(vec![Transfer::In { endpoint: DATA_IN, stream: 0, length }])?;
        let (want, got) = (buf.len(), read.len());
        let bytes = read.get(..want).ok_or(UsbError::Length { what: "a block".into(), got, want })?;
        buf.copy_from_slice(bytes);
        Ok(())
    }

    fn block_step(&self) -> u64 {
        SLOT as u64
    }

    fn flush(&mut self) -> Result<(), UsbError> {
        self.send().map(drop)
    }

    fn forget_range(&mut self, at: u32, len: u32) {
        self.known.retain(|a, _| *a < at || *a >= at + len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bridge that is never asked anything.
    fn offline() -> Custom {
        let link = Link::new(Box::new(crate::port::tests::NoPort));
        Custom { link, posted: Vec::new(), tail: None, armed: false, known: HashMap::new() }
    }

    #[test]
    fn blocks_are_asked_for_in_sectors_and_slots() {
        // C28 b.
        let s = blocks_setup(0x3_fffc, 0);
        assert_eq!((s.value, s.index, s.length), (0x200, 0x1000, 0));
        assert_eq!(blocks_setup(0x3_fffc, 16).index, 0x1010);
        let s = blocks_setup(1 + 4, 0);
        assert_eq!((s.value, s.index), (1, 0x100));
    }

    #[test]
    fn a_write_of_4_mib_goes_in_pieces_of_a_mib_at_rising_addresses() {
        // C28 a: the firmware counts the dwords of a stream in fewer bits than its request has.
        let mut bridge = offline();
        bridge.memory_write(0x8_0000_0000, &vec![7; 4 << 20]).unwrap();
        let mut streams = Vec::new();
        for pair in bridge.posted.chunks(2) {
            let [Transfer::Control { setup, data: request }, Transfer::Out { data, .. }] = pair else {
                panic!()
            };
            assert_eq!((setup.request, setup.value, setup.index), (0xf0, 0x0f60, 1));
            let word = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().unwrap());
            assert_eq!(word(8) as usize * 4, data.len());
            streams.push((u64::from(word(4)) << 32 | u64::from(word(0)), data.len()));
        }
        let mib = 1 << 20;
        let at = |n: u64| 0x8_0000_0000 + n * mib as u64;
        assert_eq!(streams, [(at(0), mib), (at(1), mib), (at(2), mib), (at(3), mib)]);
    }

    #[test]
    fn writes_that_follow_each_other_become_one_stream() {
        let mut bridge = offline();
        bridge.memory_write(0x1000, &[1; 64]).unwrap();
        bridge.memory_write(0x1040, &[2; 32]).unwrap();
        let [Transfer::Control { data: request, .. }, Transfer::Out { data, .. }] = &bridge.posted[..] else {
            panic!("{:?}", bridge.posted)
        };
        assert_eq!((data.len(), request[8]), (96, 24));
        bridge.memory_write(0x2000, &[3; 32]).unwrap();
        assert_eq!(bridge.posted.len(), 4, "elsewhere: another stream");
        // Parts of a dword are requests of their own.
        bridge.memory_write(0x3001, &[4, 5]).unwrap();
        assert_eq!(bridge.posted.len(), 5);
    }

    #[test]
    fn a_request_behind_a_stream_waits_for_its_end() {
        let control = || Transfer::Control { setup: Setup::default(), data: Vec::new() };
        let bulk = || Transfer::Out { endpoint: 2, stream: 0, data: vec![0; 4] };
        let cut = |all: Vec<Transfer>| groups(all).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(cut(vec![control(), control(), bulk(), control()]), [3, 1]);
        assert_eq!(cut((0..70).map(|_| control()).collect()), [32, 32, 6]);
    }
}
