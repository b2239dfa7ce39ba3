//! The open firmware: vendor requests on endpoint 0, and bulk transfers that they arm.
//!
//! E4 reads and E5 writes controller memory; F0 sends one PCIe request or streams many; F2 moves blocks
//! between the host and block memory; F3 switches PCIe power. Sources: `handmade/src/main.c` of the
//! firmware, `usb.py` of the reference driver, version 0.14. There is no recorded traffic.

use super::blocks::{SECTOR, SLOT};
use super::config::Firmware;
use super::descriptors::{DATA_IN, DATA_OUT};
use super::machine::{Action, Course, Machine, Pending};
use super::memory::BLOCKS_LEN;
use super::usb::{Setup, Status, Transfer};
use super::{cost, tlp};
use crate::violation::Rule;
use std::collections::VecDeque;

/// Bytes that a control read carries at SuperSpeed.
const MAX_READ: usize = 512;
/// Bytes of a streamed write: longer ones have to be cut.
const MAX_STREAM: usize = 1 << 20;
/// Blocks that may be under way at once.
const MAX_ARMED: usize = 2;
const PACKET: usize = 1024;
/// The firmware's loop for a completion, then it gives up.
const GIVES_UP: u64 = 500_000_000;

/// What a request armed a bulk endpoint for.
#[derive(Clone, Copy, Debug)]
enum Arm {
    /// F0: PCIe address and bytes left.
    Stream { address: u64, left: usize },
    /// F2: offset in block memory and bytes left; for reads how many completions the GPU had written.
    Blocks { offset: usize, left: usize, mark: u64 },
}

impl Arm {
    fn left(&self) -> usize {
        match *self {
            Arm::Stream { left, .. } | Arm::Blocks { left, .. } => left,
        }
    }
}

/// An armed endpoint, since when, and what fault meets it.
#[derive(Clone, Copy, Debug)]
struct Armed {
    arm: Arm,
    at: u64,
    course: Course,
}

#[derive(Default)]
pub(crate) struct Vendor {
    out: VecDeque<Armed>,
    read: VecDeque<Armed>,
    /// A PCIe request was sent whose completion was not asked for yet.
    asked: bool,
}

impl Vendor {
    pub(crate) fn stop(&mut self) {
        self.out.clear();
        self.read.clear();
    }

    /// The firmware drops a stream when an endpoint's halt is cleared.
    pub(crate) fn stop_endpoint(&mut self, endpoint: u8) {
        match endpoint {
            DATA_OUT => self.out.clear(),
            DATA_IN => self.read.clear(),
            _ => {}
        }
        self.drop_streams();
    }

    /// True if one was under way.
    fn drop_streams(&mut self) -> bool {
        let before = self.out.len() + self.read.len();
        self.out.retain(|a| matches!(a.arm, Arm::Blocks { .. }));
        self.read.retain(|a| matches!(a.arm, Arm::Blocks { .. }));
        before != self.out.len() + self.read.len()
    }
}

impl Machine {
    // Requests.

    pub(crate) fn vendor_request(&mut self, start: u64, p: Pending, setup: Setup, data: &[u8]) {
        let course = self.begin_command();
        if course == Course::Gone {
            let at = self.now();
            return self.finish(p, Status::Io, 0, Vec::new(), at);
        }
        let before = self.violations.len();
        let (given, spent) = self.vendor_execute(setup, data, start, course);
        let late = if course == Course::Late { cost::LATE } else { 0 };
        let at = self.work(start, cost::CONTROL + spent + late);
        debug_assert!(given.is_some() || self.violations.len() > before || self.violations.len() >= 1000);
        match (course, given) {
            (Course::Lost, _) => {}
            (Course::Stall, _) | (_, None) => self.finish(p, Status::Stall, 0, Vec::new(), at),
            (_, Some(mut bytes)) if setup.is_in() => {
                if course == Course::Short {
                    bytes.truncate(bytes.len() / 2);
                }
                bytes.truncate(usize::from(setup.length));
                self.finish(p, Status::Success, bytes.len(), bytes, at);
            }
            (_, Some(_)) => {
                let sent = if course == Course::Short { data.len() / 2 } else { data.len() };
                self.finish(p, Status::Success, sent, Vec::new(), at);
            }
        }
    }

    /// Bytes for the host and nanoseconds of work; no bytes if no firmware takes it, which was named.
    fn vendor_execute(
        &mut self,
        s: Setup,
        data: &[u8],
        start: u64,
        course: Course,
    ) -> (Option<Vec<u8>>, u64) {
        let result = match (s.request_type, s.request) {
            (0xc0, 0xe4) => self.vendor_read(s),
            (0x40, 0xe5) => self.vendor_write(s),
            (0x40, 0xf0) => self.vendor_tlp(s, data, start, course),
            (0xc0, 0xf0) => self.vendor_completion(),
            (0x40, 0xf2) => self.vendor_blocks(s, start, course),
            (0x40, 0xf3) => self.vendor_power(s),
            (kind, request) => {
                Err(format!("vendor request {request:#04x} of type {kind:#04x}: there is none"))
            }
        };
        match result {
            Ok((bytes, spent)) => (Some(bytes), spent),
            Err(why) => {
                self.violation(Rule::UsbCommand, why);
                (None, 0)
            }
        }
    }

    fn vendor_read(&mut self, s: Setup) -> Result<(Vec<u8>, u64), String> {
        let (len, at) = (usize::from(s.length), self.xdata_at(s)?);
        if len == 0 || len > MAX_READ || (at & 0xffff) + len > 0x1_0000 {
            return Err(format!("E4 of {len} bytes at {at:#x}: 1 to {MAX_READ}, inside of 64 KiB"));
        }
        Ok((self.xdata_read(at, len), cost::COPY_BYTE * len as u64))
    }

    fn vendor_write(&mut self, s: Setup) -> Result<(Vec<u8>, u64), String> {
        let at = self.xdata_at(s)?;
        if s.length != 0 {
            return Err(format!("E5 with {} bytes of data: the value is in wIndex", s.length));
        }
        self.xdata_write(at, s.index as u8);
        // A register that nobody writes was named; the firmware acknowledges all the same.
        Ok((Vec::new(), 0))
    }

    /// The high byte of wIndex selects the bank: 0, or 1 for the PHY.
    fn xdata_at(&self, s: Setup) -> Result<usize, String> {
        match s.index >> 8 {
            bank @ (0 | 1) => Ok(usize::from(bank) << 16 | usize::from(s.value)),
            bank => Err(format!("bank {bank} of controller memory: there are 0 and 1")),
        }
    }

    fn vendor_tlp(
        &mut self,
        s: Setup,
        data: &[u8],
        start: u64,
        course: Course,
    ) -> Result<(Vec<u8>, u64), String> {
        let Ok(words) = <[u8; 12]>::try_from(data) else {
            return Err(format!("F0 with {} bytes: address, its high half and value are 12", data.len()));
        };
        let word = |i: usize| u32::from_le_bytes([0, 1, 2, 3].map(|k| words[i + k]));
        let (low, high, value) = (word(0), word(4), word(8));
        let [fmt, enable] = s.value.to_le_bytes();
        if self.vendor.drop_streams() {
            self.violation(Rule::UsbCommand, "F0 while a stream was not at its end: the rest is lost");
        }
        self.memory.set(tlp::FMT, fmt);
        self.memory.set(tlp::ENABLE, enable);
        self.set_dword(tlp::ADDRESS, low);
        self.set_dword(tlp::ADDRESS + 4, high);
        let address = u64::from(high) << 32 | u64::from(low);
        match s.index {
            0 => {
                if fmt & 0x40 != 0 {
                    self.set_dword(tlp::DATA, value);
                }
                self.memory.set(tlp::STATUS, 0);
                self.tlp_send();
                let posted = fmt & 0xdf == 0x40;
                self.vendor.asked = !posted;
                Ok((Vec::new(), 0))
            }
            1 | 2 => {
                let (want, left) = ([tlp::MEMORY_WRITE, tlp::MEMORY_READ], value as usize * 4);
                if fmt != want[usize::from(s.index) - 1] || enable != 0xf || address & 3 != 0 || left == 0 {
                    return Err(format!(
                        "stream of {left} bytes at {address:#x} with type {fmt:#04x}, enables {enable:#x}: 0x60 \
                         writes, 0x20 reads, whole dwords"
                    ));
                }
                if s.index == 1 && left > MAX_STREAM {
                    return Err(format!("streamed write of {left} bytes: at most 1 MiB, cut it"));
                }
                let queue = if s.index == 1 { &mut self.vendor.out } else { &mut self.vendor.read };
                if !queue.is_empty() {
                    return Err("stream while blocks are under way on its endpoint".into());
                }
                queue.push_back(Armed { arm: Arm::Stream { address, left }, at: start, course });
                Ok((Vec::new(), 0))
            }
            i => Err(format!("F0 with wIndex {i:#x}: 0 one request, 1 streamed write, 2 streamed read")),
        }
    }

    fn vendor_completion(&mut self) -> Result<(Vec<u8>, u64), String> {
        if !std::mem::take(&mut self.vendor.asked) {
            return Err("F0 read without a request that has a completion".into());
        }
        let status = self.memory.get(tlp::STATUS);
        if status & tlp::ERROR != 0 {
            self.tlp_acknowledge(tlp::ERROR);
            return Ok((vec![0, 0, 0, 0, 0, 0, 0, 1], 0));
        }
        if status & tlp::COMPLETE == 0 {
            return Ok((vec![0, 0, 0, 0, 0, 0, 0, 0xff], GIVES_UP));
        }
        let mut bytes: Vec<u8> = (0..4).rev().map(|k| self.memory.get(tlp::DATA + k)).collect();
        bytes.extend([0xb22a, 0xb22b, 0xb284].map(|at| self.memory.get(at)));
        bytes.push(0);
        Ok((bytes, 0))
    }

    fn vendor_blocks(&mut self, s: Setup, start: u64, course: Course) -> Result<(Vec<u8>, u64), String> {
        let reads = s.value & 0x8000 != 0;
        let left = usize::from(s.value & 0x7fff) * SECTOR;
        let (slot, slots) = (usize::from(s.index & 0xff), usize::from(s.index >> 8).max(1));
        if s.length != 0 || left == 0 || left > slots * SLOT || (slot + slots) * SLOT > BLOCKS_LEN {
            return Err(format!(
                "F2 of {left} bytes in {slots} slots from {slot}: slots have {SLOT:#x} bytes, there are {}",
                BLOCKS_LEN / SLOT
            ));
        }
        let mark = self.memory.completions();
        let queue = if reads { &mut self.vendor.read } else { &mut self.vendor.out };
        if queue.len() >= MAX_ARMED || queue.iter().any(|a| matches!(a.arm, Arm::Stream { .. })) {
            return Err(format!("F2 while {} transfers are under way on its endpoint", queue.len()));
        }
        let arm = Arm::Blocks { offset: slot * SLOT, left, mark };
        queue.push_back(Armed { arm, at: start, course });
        self.counts.blocks += 1;
        self.counts.block_bytes += left as u64;
        Ok((Vec::new(), 0))
    }

    fn vendor_power(&mut self, s: Setup) -> Result<(Vec<u8>, u64), String> {
        if s.value > 1 || s.index != 0 || s.length != 0 {
            return Err(format!("F3 with wValue {}: 0 switches PCIe power off, 1 on", s.value));
        }
        let on = s.value == 1;
        let changes = on != self.link.power;
        self.set_power(on);
        Ok((Vec::new(), if on && changes { cost::POWER_ON } else { 0 }))
    }

    // Bulk.

    pub(crate) fn vendor_next(&self) -> Option<(u64, Action)> {
        let ready = |queue: &VecDeque<Armed>, endpoint: u8| {
            let (armed, p) = (queue.front()?, self.head(endpoint, 0)?);
            let free = match armed.arm {
                Arm::Stream { .. } => self.busy,
                Arm::Blocks { mark, .. } if endpoint == DATA_IN && self.memory.completions() <= mark => {
                    return None;
                }
                Arm::Blocks { .. } => self.wire,
            };
            Some(p.at.max(armed.at).max(free))
        };
        let out = ready(&self.vendor.out, DATA_OUT).map(|at| (at, Action::VendorOut));
        let read = ready(&self.vendor.read, DATA_IN).map(|at| (at, Action::VendorIn));
        [out, read].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// A read of blocks waits for the GPU to say that they are there.
    pub(crate) fn vendor_waits_for_gpu(&self) -> bool {
        self.config.firmware == Firmware::Custom
            && self.head(DATA_IN, 0).is_some()
            && matches!(self.vendor.read.front(), Some(Armed { arm: Arm::Blocks { .. }, .. }))
    }

    /// A bulk transfer is taken back that nothing was armed for: it could only run into its deadline.
    pub(crate) fn vendor_cancelled(&mut self, p: &Pending) {
        let what = match &p.transfer {
            Transfer::Out { data, .. } if self.vendor.out.is_empty() => {
                format!("write of {} bytes", data.len())
            }
            Transfer::In { length, .. } if self.vendor.read.is_empty() => format!("read of {length} bytes"),
            _ => return,
        };
        self.violation(Rule::UsbStream, format!("bulk {what} that no F0 or F2 has armed"));
    }

    pub(crate) fn vendor_out(&mut self, start: u64) {
        let (Some(p), Some(mut armed)) = (self.take(DATA_OUT, 0), self.vendor.out.pop_front()) else {
            return;
        };
        let Transfer::Out { data, .. } = &p.transfer else { return };
        let (mut data, whole) = (data.clone(), data.len());
        if whole > armed.arm.left() || !whole.is_multiple_of(4) {
            let left = armed.arm.left();
            self.violation(
                Rule::UsbStream,
                format!("{whole} bytes where {left} more were announced, in dwords"),
            );
            self.halted.insert(DATA_OUT);
            return self.finish(p, Status::Stall, 0, Vec::new(), start);
        }
        match armed.course {
            Course::Stall => {
                self.halted.insert(DATA_OUT);
                return self.finish(p, Status::Stall, 0, Vec::new(), start);
            }
            Course::Lost => return,
            Course::Short => data.truncate(whole / 8 * 4),
            _ => {}
        }
        let at = match &mut armed.arm {
            Arm::Stream { address, left } => {
                let at =
                    self.work(start, cost::STREAM_WRITE * (data.len() as u64 / 4) + cost::wire(data.len()));
                self.stream_write(*address, &data);
                *address += whole as u64;
                *left -= whole;
                at
            }
            Arm::Blocks { offset, left, .. } => {
                self.memory.write_block(&self.gpu, *offset, &data);
                *offset += whole;
                *left -= whole;
                self.carry(start, data.len())
            }
        };
        if armed.arm.left() > 0 {
            self.vendor.out.push_front(armed);
        }
        self.finish(p, Status::Success, data.len(), Vec::new(), at);
    }

    pub(crate) fn vendor_in(&mut self, start: u64) {
        let (Some(p), Some(mut armed)) = (self.take(DATA_IN, 0), self.vendor.read.pop_front()) else {
            return;
        };
        let Transfer::In { length, .. } = &p.transfer else { return };
        let (room, left) = (*length, armed.arm.left());
        let n = room.min(left);
        if room < left && !room.is_multiple_of(PACKET) || room > left && left.is_multiple_of(PACKET) {
            self.violation(
                Rule::UsbStream,
                format!(
                    "room for {room} bytes where {left} come in packets of {PACKET}: it never ends right"
                ),
            );
        }
        match armed.course {
            Course::Stall => {
                self.halted.insert(DATA_IN);
                return self.finish(p, Status::Stall, 0, Vec::new(), start);
            }
            Course::Lost => return,
            _ => {}
        }
        let (mut data, at) = match &mut armed.arm {
            Arm::Stream { address, left } => {
                let at = self.work(start, cost::STREAM_READ * (n as u64).div_ceil(4) + cost::wire(n));
                let data = self.stream_read(*address, n);
                *address += n as u64;
                *left -= n;
                (data, at)
            }
            Arm::Blocks { offset, left, .. } => {
                let data = self.memory.read_block(&self.gpu, *offset, n).unwrap_or_default();
                *offset += n;
                *left -= n;
                (data, self.carry(start, n))
            }
        };
        if armed.arm.left() > 0 {
            self.vendor.read.push_front(armed);
        }
        if armed.course == Course::Short {
            data.truncate(data.len() / 2);
        }
        self.finish(p, Status::Success, data.len(), data, at);
    }

    /// The wire carries `len` bytes from `start` on, without the controller.
    fn carry(&mut self, start: u64, len: usize) -> u64 {
        let cost = self.ns(cost::wire(len));
        self.counts.busy_ns += cost;
        self.wire = start + cost;
        self.wire
    }

    /// Writes of one dword each, at rising addresses.
    fn stream_write(&mut self, address: u64, data: &[u8]) {
        if let Some(offset) = self.stream_is_plain(address, data.len()) {
            self.counts.tlps += data.len() as u64 / 4;
            // The window was checked; a device that is gone swallows it.
            let _ = self.gpu.write(0, offset, data);
            return;
        }
        for (i, word) in data.chunks_exact(4).enumerate() {
            self.stream_address(address + 4 * i as u64);
            self.set_dword(tlp::DATA, u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
            self.memory.set(tlp::STATUS, 0);
            self.tlp_send();
        }
    }

    fn stream_read(&mut self, address: u64, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        if let Some(offset) = self.stream_is_plain(address, len) {
            self.counts.tlps += len as u64 / 4;
            if self.gpu.read(0, offset, &mut data).is_err() {
                data.fill(0xff);
            }
            return data;
        }
        for (i, word) in data.chunks_mut(4).enumerate() {
            self.stream_address(address + 4 * i as u64);
            self.memory.set(tlp::STATUS, 0);
            self.tlp_send();
            // What did not complete well is what the registers held: the firmware does not look.
            for (k, b) in word.iter_mut().enumerate() {
                *b = self.memory.get(tlp::DATA + 3 - k);
            }
        }
        data
    }

    fn stream_address(&mut self, address: u64) {
        self.set_dword(tlp::ADDRESS, address as u32);
        self.set_dword(tlp::ADDRESS + 4, (address >> 32) as u32);
    }

    /// The offset in VRAM where the whole stream lands, if nothing can happen to it on the way: the link
    /// is up, no fault is asked for, nobody looks at each request.
    fn stream_is_plain(&self, address: u64, len: usize) -> Option<u64> {
        let last = address.checked_add(len as u64)?.checked_sub(1)?;
        let quiet = self.link_up() && self.config.faults.is_empty() && self.record.is_none();
        match [address, last].map(|a| self.pcie.claim(&self.gpu, a).ok()) {
            [Some((0, offset)), Some((0, _))] if quiet => Some(offset),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
