//! The vendor's firmware: command blocks E4 (read), E5 (write a byte) and 8A (write a block).
//!
//! Every byte of a PCIe request is a command, so what stands in a register already is not written again,
//! and what is posted goes out together with the read that follows it.

use crate::controller::{self, BLOCKS_LEN, BLOCKS_SEEN, BLOCKS_XRAM, Controller, Firmware, LTSSM};
use crate::error::UsbError;
use crate::link::Link;
use crate::tlp::{Completion, Request, pieces};
use crate::uas::{self, Command, Payload};
use std::collections::HashMap;

/// What makes the firmware take SCSI writes for block memory, as the reference driver sets it up.
const INIT: [(u32, &[u8]); 7] = [
    (0x54b, &[0x20]),
    (0x54e, &[0x04]),
    (0x5a8, &[0x02]),
    (0x5f8, &[0x04]),
    (0x7ec, &[0x01, 0, 0, 0]),
    (0xc422, &[0x02]),
    (0x0, &[0x33]),
];
/// Registers of the TLP engine.
const FMT: u32 = 0xb210;
const ENABLE: u32 = 0xb217;
const ADDRESS_LOW: u32 = 0xb218;
const ADDRESS_HIGH: u32 = 0xb21c;
const DATA: u32 = 0xb220;
const HEADER: u32 = 0xb22a;
const TRIGGER: u32 = 0xb254;
const KIND: u32 = 0xb284;
const STATUS: u32 = 0xb296;
/// Status bits; they are cleared by ones.
const ERROR: u8 = 1;
const COMPLETE: u8 = 2;
const SENT: u8 = 4;
/// All that tells of a completion, in one read: from the data to the status register.
const ANSWER_LEN: usize = (STATUS - DATA) as usize + 1;
/// Longest read of one command.
const MAX_READ: usize = 0xff;
/// Tries of a request that the bridge reports an error for, and the time between two.
const TRIES: u32 = 10;
const AGAIN_US: u64 = 1_000;
/// A completion takes 50 ms at most by the specification's default; the bridge may be slower.
const COMPLETE_US: u64 = 200_000;
/// A function may ask for patience for 1 s after a reset (`PCI_RESET_WAIT`, pci.h).
const RETRY_US: u64 = 1_500_000;
/// Block memory: sectors, what a small block has at most, and a piece of a larger one.
const SECTOR: usize = 512;
const SMALL: usize = 0x4000;
const PIECE: usize = 0x1_0000;
/// The window is let go of by the first, and goes back to the start by the second.
const RELEASE: [(u32, &[u8]); 2] = [(0x171, &[0xff, 0xff, 0xff]), (0xce6e, &[0, 0])];
const REWIND: (u32, &[u8]) = (0xce40, &[0, 0, 0, 0]);
/// As many dwords are read more cheaply with a look at each status than by asking again for those that might
/// be old.
const MANY: usize = 32;
/// Posted commands are sent when there are so many.
const MAX_POSTED: usize = 32 * uas::WINDOW;

/// How completions are read. On bridges where one command tells all of it, one is enough; that is found
/// out with the first completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answers {
    Untried,
    Together,
    Apart,
}

/// A completion's registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Answer {
    status: u8,
    header: u16,
    has_data: bool,
    data: u32,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Answer {
        let byte = |at: u32| bytes.get((at - DATA) as usize).copied().unwrap_or(0);
        Answer {
            status: byte(STATUS),
            header: u16::from_be_bytes([byte(HEADER), byte(HEADER + 1)]),
            has_data: byte(KIND) & 1 != 0,
            data: u32::from_be_bytes([0, 1, 2, 3].map(|k| byte(DATA + k))),
        }
    }
}

/// A bridge with this firmware.
pub struct Patched {
    link: Link,
    posted: Vec<Command>,
    /// What stands in controller memory after all that is posted.
    known: HashMap<u32, u8>,
    answers: Answers,
    /// Where the next block lands.
    next_block: u64,
}

impl Patched {
    /// Opens the pipes and sets the controller up.
    ///
    /// # Errors
    /// [`UsbError`]
    pub fn open(mut link: Link) -> Result<Self, UsbError> {
        uas::open(&mut link)?;
        let mut bridge = Patched {
            link,
            posted: Vec::new(),
            known: HashMap::new(),
            answers: Answers::Untried,
            next_block: 0,
        };
        // Nothing is written to what does not answer a read: it may be somebody's disks.
        bridge.xram_read(LTSSM, &mut [0])?;
        for (at, data) in INIT {
            bridge.post(at, data, false);
        }
        // A process that died may have left a request unacknowledged and the window anywhere.
        bridge.post(STATUS, &[SENT], false);
        bridge.rewind();
        bridge.flush()?;
        controller::link_up(&mut bridge)?;
        Ok(bridge)
    }

    fn post(&mut self, at: u32, data: &[u8], cached: bool) {
        for (at, value) in (at..).zip(data) {
            if cached && self.known.get(&at) == Some(value) {
                continue;
            }
            let [_, a, b, c] = (0x50_0000 | at & 0x1_ffff).to_be_bytes();
            let mut cdb = [0; 16];
            cdb[..6].copy_from_slice(&[0xe5, *value, a, b, c, 0]);
            self.posted.push(Command { cdb, payload: Payload::None });
            self.known.insert(at, *value);
        }
    }

    fn post_read(&mut self, at: u32, len: usize) {
        let [_, a, b, c] = (0x50_0000 | at & 0x1_ffff).to_be_bytes();
        let mut cdb = [0; 16];
        cdb[..6].copy_from_slice(&[0xe4, len as u8, a, b, c, 0]);
        self.posted.push(Command { cdb, payload: Payload::In(len) });
    }

    fn rewind(&mut self) {
        self.post(REWIND.0, REWIND.1, false);
        self.next_block = 0;
    }

    /// Sends what is posted; the answers to the reads among it.
    fn send(&mut self) -> Result<Vec<Vec<u8>>, UsbError> {
        let posted = std::mem::take(&mut self.posted);
        match uas::send(&mut self.link, &posted) {
            Ok(answers) => Ok(answers.into_iter().filter(|a| !a.is_empty()).collect()),
            Err(e) => {
                // What of it happened is not known.
                self.known.clear();
                Err(e)
            }
        }
    }

    /// Describes a request to the engine and lets it be sent.
    fn post_request(&mut self, request: &Request) {
        if request.is_write() {
            self.post(DATA, &request.value.to_be_bytes(), true);
        }
        self.post(ADDRESS_LOW, &(request.address as u32).to_be_bytes(), true);
        self.post(ADDRESS_HIGH, &((request.address >> 32) as u32).to_be_bytes(), true);
        self.post(ENABLE, &[request.enable], true);
        self.post(FMT, &[request.fmt], true);
        self.post(TRIGGER, &[0x0f], false);
        self.post(STATUS, &[SENT], false);
    }

    /// Whether an answer's data may be what stood there before: they are copied before the status is, and the
    /// completion may have come in between. Data that have changed are the completion's.
    fn may_be_stale(&self, answer: &Answer) -> bool {
        let bytes = answer.data.to_be_bytes();
        let before = [0, 1, 2, 3].map(|k| self.known.get(&(DATA + k)).copied());
        answer.has_data && before.iter().zip(bytes).all(|(b, now)| b.is_none_or(|b| b == now))
    }

    /// A completion's data stand where the data of writes do.
    fn data_changed(&mut self, answer: Option<&Answer>) {
        for (k, byte) in answer.map_or([0; 4], |a| a.data.to_be_bytes()).into_iter().enumerate() {
            let at = DATA + k as u32;
            match answer {
                Some(a) if a.has_data => drop(self.known.insert(at, byte)),
                Some(_) => {}
                None => drop(self.known.remove(&at)),
            }
        }
    }

    /// Sends what is posted and reads the completion of its last request.
    fn answer(&mut self) -> Result<Answer, UsbError> {
        let together = match self.answers {
            Answers::Together | Answers::Untried => {
                self.post_read(DATA, ANSWER_LEN);
                self.send()?.last().map(|bytes| Answer::parse(bytes))
            }
            Answers::Apart => None,
        };
        match together {
            Some(answer) if self.answers == Answers::Together => {
                if answer.status & COMPLETE == 0 || !self.may_be_stale(&answer) {
                    return Ok(answer);
                }
                self.post_read(DATA, 4);
                let again = self.send()?;
                let data = again.last().and_then(|bytes| bytes.as_slice().try_into().ok());
                Ok(Answer { data: data.map_or(answer.data, u32::from_be_bytes), ..answer })
            }
            _ => {
                let apart = self.answer_apart()?;
                if self.answers == Answers::Untried && apart.status & COMPLETE != 0 {
                    let same = together == Some(apart);
                    self.answers = if same { Answers::Together } else { Answers::Apart };
                    tracing::debug!("completions are read {:?}", self.answers);
                }
                Ok(apart)
            }
        }
    }

    /// As the reference does it.
    fn answer_apart(&mut self) -> Result<Answer, UsbError> {
        for (at, len) in [(STATUS, 1), (KIND, 1), (HEADER, 2), (DATA, 4)] {
            self.post_read(at, len);
        }
        let read = self.send()?;
        let mut all = [0; ANSWER_LEN];
        for (at, bytes) in [STATUS, KIND, HEADER, DATA].into_iter().zip(read) {
            for (to, byte) in all.iter_mut().skip((at - DATA) as usize).zip(bytes) {
                *to = byte;
            }
        }
        Ok(Answer::parse(&all))
    }

    /// Sends a request and waits for its completion; the bytes asked for.
    fn request(&mut self, request: &Request) -> Result<u32, UsbError> {
        let start = self.link.port().now_us();
        let mut tries = 0;
        loop {
            self.post_request(request);
            let sent = self.link.port().now_us();
            let mut answer = self.answer()?;
            while answer.status & (COMPLETE | ERROR) == 0 {
                if self.link.port().now_us() - sent > COMPLETE_US {
                    return Err(self.no_completion(request));
                }
                answer = self.answer()?;
            }
            self.data_changed(Some(&answer));
            let now = self.link.port().now_us();
            if answer.status & COMPLETE == 0 {
                self.post(STATUS, &[ERROR], false);
                tries += 1;
                if tries >= TRIES {
                    controller::link_up(self)?;
                    return Err(request.failed("the bridge reports an error each time"));
                }
                self.flush()?;
                self.link.port().wait_us(AGAIN_US);
                continue;
            }
            match Completion::decode(request, answer.header, answer.has_data) {
                Completion::Good => return Ok(request.extract(answer.data)),
                Completion::Retry if now - start < RETRY_US => self.link.port().wait_us(10 * AGAIN_US),
                Completion::Retry => return Err(request.failed("the function was not ready within 1.5 s")),
                Completion::Bad(why) => return Err(request.failed(why)),
            }
        }
    }

    fn no_completion(&mut self, request: &Request) -> UsbError {
        self.data_changed(None);
        match controller::link_up(self) {
            Err(e) => e,
            Ok(()) => request.failed("no completion came; reset the device, or plug the enclosure in again"),
        }
    }

    /// Many dwords at once; `None` where one of them has no good completion.
    fn read_dwords(&mut self, address: u64, count: usize) -> Result<Option<Vec<u32>>, UsbError> {
        // With the status looked at before, data are never what stood there before.
        let look_first = count >= MANY;
        let mut requests = Vec::with_capacity(count);
        for i in 0..count as u64 {
            let request = Request::memory(address + 4 * i, 4, None)?;
            self.post_request(&request);
            if look_first {
                self.post_read(STATUS, 1);
            }
            self.post_read(DATA, ANSWER_LEN);
            requests.push(request);
        }
        let read = self.send()?;
        let in_time =
            !look_first || read.iter().step_by(2).all(|s| s.first().is_some_and(|s| s & COMPLETE != 0));
        let answers: Vec<Answer> =
            read.iter().filter(|bytes| bytes.len() > 1).map(|bytes| Answer::parse(bytes)).collect();
        let mut values = Vec::with_capacity(count);
        for (request, answer) in requests.iter().zip(&answers) {
            let stale = !look_first && self.may_be_stale(answer);
            self.data_changed(Some(answer));
            let good = answer.status & COMPLETE != 0
                && Completion::decode(request, answer.header, answer.has_data) == Completion::Good;
            if !good || !in_time {
                self.data_changed(None);
                return Ok(None);
            }
            values.push((!stale).then_some(answer.data));
        }
        // The few that equal what came before them are asked for once more.
        let mut sure = Vec::with_capacity(count);
        for (request, value) in requests.iter().zip(values) {
            sure.push(match value {
                Some(value) => value,
                None => self.request(request)?,
            });
        }
        Ok(Some(sure))
    }
}

impl Controller for Patched {
    fn firmware(&self) -> Firmware {
        Firmware::Patched
    }

    fn link(&self) -> &Link {
        &self.link
    }

    fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }

    fn xram_read(&mut self, at: u32, buf: &mut [u8]) -> Result<(), UsbError> {
        // What was asked for before has no answers: requests read theirs at once.
        for (i, part) in buf.chunks(MAX_READ).enumerate() {
            self.post_read(at + (i * MAX_READ) as u32, part.len());
        }
        let read = self.send()?;
        for (to, from) in buf.chunks_mut(MAX_READ).zip(read) {
            to.copy_from_slice(from.get(..to.len()).unwrap_or(&vec![0; to.len()]));
        }
        Ok(())
    }

    fn xram_write(&mut self, at: u32, data: &[u8], cached: bool) -> Result<(), UsbError> {
        self.post(at, data, cached);
        Ok(())
    }

    fn config_read(&mut self, bus: u8, at: u16, size: u8) -> Result<u32, UsbError> {
        self.request(&Request::config(bus, at, size, None)?)
    }

    fn config_write(&mut self, bus: u8, at: u16, size: u8, value: u32) -> Result<(), UsbError> {
        self.request(&Request::config(bus, at, size, Some(value))?).map(drop)
    }

    fn memory_read(&mut self, address: u64, buf: &mut [u8]) -> Result<(), UsbError> {
        let aligned = address.is_multiple_of(4) && buf.len().is_multiple_of(4);
        if aligned && buf.len() > 4 && self.answers == Answers::Together {
            // Reading twice does no harm to memory; registers are read one by one.
            if let Some(values) = self.read_dwords(address, buf.len() / 4)? {
                for (to, value) in buf.chunks_exact_mut(4).zip(values) {
                    to.copy_from_slice(&value.to_le_bytes());
                }
                return Ok(());
            }
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
        for (at, size) in pieces(address, data.len()) {
            let bytes = data.iter().skip(at).take(size.into());
            let value = bytes.rev().fold(0, |v, b| v << 8 | u32::from(*b));
            self.post_request(&Request::memory(address + at as u64, size, Some(value))?);
            if self.posted.len() > MAX_POSTED {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn blocks_write(&mut self, offset: u64, data: &[u8]) -> Result<(), UsbError> {
        if offset == 0 && self.next_block != 0 {
            self.rewind();
        }
        if offset != self.next_block || offset + data.len() as u64 > BLOCKS_LEN {
            return Err(UsbError::Unsupported(
                "write block memory there: its window starts at 0 and moves on by 64 KiB",
            ));
        }
        let piece = if offset == 0 && data.len() <= SMALL { SMALL } else { PIECE };
        for chunk in data.chunks(piece) {
            let unit = if piece == SMALL { SECTOR } else { PIECE };
            let mut block = chunk.to_vec();
            block.resize(chunk.len().next_multiple_of(unit), 0);
            let mut cdb = [0; 16];
            cdb[0] = 0x8a;
            cdb[10..14].copy_from_slice(&((block.len() / SECTOR) as u32).to_be_bytes());
            self.posted.push(Command { cdb, payload: Payload::Out(block) });
            for (at, values) in RELEASE {
                self.post(at, values, false);
            }
            if piece == PIECE {
                self.next_block += PIECE as u64;
            }
        }
        // The controller sees the first page of it.
        self.known.retain(|at, _| *at < BLOCKS_XRAM || *at >= BLOCKS_XRAM + BLOCKS_SEEN as u32);
        self.flush()
    }

    fn block_step(&self) -> u64 {
        PIECE as u64
    }

    fn flush(&mut self) -> Result<(), UsbError> {
        if self.posted.is_empty() {
            return Ok(());
        }
        self.send().map(drop)
    }

    fn forget_range(&mut self, at: u32, len: u32) {
        self.known.retain(|a, _| *a < at || *a >= at + len);
    }
}
