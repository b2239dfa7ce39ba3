//! The TLP engine: a request is described in registers, sent by a trigger, and its completion found
//! there. Registers and bits: the reference driver's `pcie_request`, the open firmware's `registers.h`.

use super::config::BridgeFault;
use super::machine::Machine;
use super::pcie::{Answer, Effect};
use super::{Access, Place};
use crate::violation::Rule;

pub(crate) const FMT: usize = 0xb210;
pub(crate) const ENABLE: usize = 0xb217;
/// Low half of the address, then its high half, each most significant byte first.
pub(crate) const ADDRESS: usize = 0xb218;
pub(crate) const DATA: usize = 0xb220;
/// Completion header: status in bits 15:13, byte count in 11:0.
const HEADER: usize = 0xb22a;
pub(crate) const TRIGGER: usize = 0xb254;
/// Bit 0: the completion carried data.
const KIND: usize = 0xb284;
pub(crate) const STATUS: usize = 0xb296;

/// Bits of the status register; they are cleared by writing them.
pub(crate) const ERROR: u8 = 1;
pub(crate) const COMPLETE: u8 = 2;
/// The request left the engine; the host acknowledges it.
pub(crate) const SENT: u8 = 4;

/// Format and type of requests.
const CONFIG_READ: u8 = 0x04;
const CONFIG_WRITE: u8 = 0x44;
pub(crate) const MEMORY_READ: u8 = 0x20;
pub(crate) const MEMORY_WRITE: u8 = 0x60;
const MEMORY_READ_SHORT: u8 = 0x00;
const MEMORY_WRITE_SHORT: u8 = 0x40;

/// One request, taken from the registers.
struct Request {
    fmt: u8,
    enable: u8,
    address: u64,
    data: u32,
}

impl Request {
    fn first(&self) -> usize {
        self.enable.trailing_zeros() as usize & 3
    }

    fn count(&self) -> usize {
        self.enable.count_ones() as usize
    }

    fn is_config(&self) -> bool {
        self.fmt & 0xbe == CONFIG_READ
    }

    fn is_write(&self) -> bool {
        self.fmt & 0x40 != 0
    }

    /// The enabled bytes.
    fn bytes(&self) -> Vec<u8> {
        self.data.to_le_bytes().into_iter().skip(self.first()).take(self.count()).collect()
    }

    /// What a real engine could not have sent.
    fn refusal(&self) -> Option<String> {
        let Request { fmt, enable, address, .. } = *self;
        let known = [
            CONFIG_READ,
            CONFIG_READ | 1,
            CONFIG_WRITE,
            CONFIG_WRITE | 1,
            MEMORY_READ,
            MEMORY_WRITE,
            MEMORY_READ_SHORT,
            MEMORY_WRITE_SHORT,
        ];
        if !known.contains(&fmt) {
            return Some(format!("format and type {fmt:#04x}: no request that this bridge is known to send"));
        }
        let run = enable >> self.first();
        if enable == 0 || enable > 0xf || run & (run + 1) != 0 {
            return Some(format!("byte enables {enable:#04x}: one to four neighbouring bytes of a dword"));
        }
        if address & 3 != 0 {
            return Some(format!("address {address:#x} is not a multiple of 4: byte enables pick bytes"));
        }
        if self.is_config() {
            let bus = address >> 24 & 0xff;
            if address >> 32 != 0 || address & 0xf000 != 0 {
                return Some(format!("configuration address {address:#x} has bits that no register has"));
            }
            if (fmt & 1 != 0) != (bus > 0) {
                return Some(format!("type {} configuration request for bus {bus}", fmt & 1));
            }
        } else if fmt & 0x20 == 0 && address >> 32 != 0 {
            return Some(format!("short header with address {address:#x} above 4 GiB"));
        }
        None
    }
}

impl Machine {
    /// For those who look at each request.
    fn note(&mut self, write: bool, place: Place, bytes: &[u8]) {
        if let Some(record) = &mut self.record {
            let value = bytes.iter().rev().fold(0, |v, b| v << 8 | u32::from(*b));
            record.push(Access { write, place, value, len: bytes.len() as u8 });
        }
    }

    fn dword(&self, at: usize) -> u32 {
        u32::from_be_bytes([0, 1, 2, 3].map(|k| self.memory.get(at + k)))
    }

    pub(crate) fn set_dword(&mut self, at: usize, value: u32) {
        for (k, b) in value.to_be_bytes().into_iter().enumerate() {
            self.memory.set(at + k, b);
        }
    }

    /// A write to the status register: bits are cleared by ones.
    pub(crate) fn tlp_acknowledge(&mut self, value: u8) {
        let left = self.memory.get(STATUS) & !value;
        self.memory.set(STATUS, left);
    }

    /// A write to the trigger: the request that the registers describe is sent.
    pub(crate) fn tlp_trigger(&mut self, value: u8) {
        if value != 0x0f {
            self.violation(Rule::TlpMalformed, format!("trigger {value:#04x}: 0x0f sends a request"));
            return;
        }
        if self.memory.get(STATUS) & SENT != 0 {
            self.violation(
                Rule::TlpMalformed,
                "a request was triggered before the last one was acknowledged (bit 2 of 0xB296)",
            );
        }
        self.tlp_send();
    }

    /// Sends what the registers describe. The status register tells how it went.
    pub(crate) fn tlp_send(&mut self) {
        let high = u64::from(self.dword(ADDRESS + 4));
        let request = Request {
            fmt: self.memory.get(FMT),
            enable: self.memory.get(ENABLE),
            address: high << 32 | u64::from(self.dword(ADDRESS)),
            data: self.dword(DATA),
        };
        let n = self.counts.tlps;
        self.counts.tlps += 1;
        if let Some(why) = request.refusal() {
            self.violation(Rule::TlpMalformed, why);
            return self.memory.set(STATUS, SENT | ERROR);
        }
        let hit = |f: fn(u64) -> BridgeFault| self.config.faults.contains(&f(n));
        if hit(BridgeFault::LinkDown) {
            self.link_down();
        }
        if !self.link_up() {
            self.violation(Rule::LinkDown, format!("request for {:#x} on a dead link", request.address));
            return self.memory.set(STATUS, SENT | if request.is_posted() { 0 } else { ERROR });
        }
        let hit = |f: fn(u64) -> BridgeFault| self.config.faults.contains(&f(n));
        if !request.is_posted() {
            if hit(BridgeFault::TlpError) {
                return self.memory.set(STATUS, SENT | ERROR);
            }
            if hit(BridgeFault::TlpLost) {
                return self.memory.set(STATUS, SENT);
            }
            for (fault, answer) in [
                (BridgeFault::TlpRetry as fn(u64) -> BridgeFault, Answer::Retry),
                (BridgeFault::TlpUnsupported, Answer::Unsupported),
                (BridgeFault::TlpAbort, Answer::Abort),
            ] {
                if hit(fault) {
                    return self.tlp_complete(&request, answer, None);
                }
            }
        }
        if request.is_config() { self.tlp_config(&request) } else { self.tlp_memory(&request) }
    }

    fn tlp_complete(&mut self, request: &Request, answer: Answer, data: Option<u32>) {
        let count = if request.is_config() { 4 } else { request.count() as u16 };
        let header = (answer as u16) << 13 | count;
        for (k, b) in header.to_be_bytes().into_iter().enumerate() {
            self.memory.set(HEADER + k, b);
        }
        self.memory.set(KIND, u8::from(data.is_some()));
        if let Some(data) = data {
            self.set_dword(DATA, data);
        }
        self.memory.set(STATUS, SENT | COMPLETE);
    }

    fn tlp_config(&mut self, request: &Request) {
        let a = request.address;
        let bdf = ((a >> 24) as u8, (a >> 19 & 31) as u8, (a >> 16 & 7) as u8);
        let at = (a & 0xffc) as u16;
        if request.is_write() {
            let data = request.bytes();
            let at = at + request.first() as u16;
            let (answer, effect) = self.pcie.config_write(&self.config, &self.gpu, bdf, at, &data);
            if effect != Effect::None {
                self.upstream_changed();
            }
            self.note(true, Place::Config { bus: bdf.0, at }, &data);
            self.tlp_complete(request, answer, None);
        } else {
            let (answer, word) = self.pcie.config_read(&self.gpu, bdf, at);
            let (first, n) = (request.first(), request.count());
            let place = Place::Config { bus: bdf.0, at: at + first as u16 };
            self.note(false, place, &word.to_le_bytes()[first..first + n]);
            self.tlp_complete(request, answer, (answer == Answer::Success).then_some(word));
        }
    }

    fn tlp_memory(&mut self, request: &Request) {
        let (bar, offset) = match self.pcie.claim(&self.gpu, request.address) {
            Ok(place) => place,
            Err(why) => {
                // A device that was pulled out is no mistake of the driver.
                if self.gpu.present() {
                    let kind = if request.is_write() { "write" } else { "read" };
                    self.violation(Rule::TlpNowhere, format!("memory {kind} to nowhere: {why}"));
                }
                if request.is_posted() {
                    return self.memory.set(STATUS, SENT);
                }
                return self.tlp_complete(request, Answer::Unsupported, None);
            }
        };
        let (at, n) = (request.first(), request.count());
        // Registers and doorbells are dwords.
        if bar != 0 && n != 4 {
            self.violation(
                Rule::BadAccess,
                format!(
                    "{n} bytes at {offset:#x} of BAR{bar}, which has dwords (enables {:#x})",
                    request.enable
                ),
            );
            if request.is_posted() {
                return self.memory.set(STATUS, SENT);
            }
            return self.tlp_complete(request, Answer::Abort, None);
        }
        let place = Place::Window { bar, offset: offset + at as u64 };
        // The window was checked above; what remains is a device that went away, which reads as ones.
        if request.is_write() {
            self.note(true, place, &request.bytes());
            let ring = if bar == 2 { self.pcie.doorbell(offset, request.data) } else { None };
            let _ = match (bar, ring) {
                (2, Some((offset, value))) => self.gpu.write(2, offset, &value.to_le_bytes()),
                (2, None) => Ok(()),
                _ => self.gpu.write(bar, offset + at as u64, &request.bytes()),
            };
            self.memory.set(STATUS, SENT);
        } else {
            let mut word = [0; 4];
            if self.gpu.read(bar, offset + at as u64, &mut word[at..at + n]).is_err() {
                word[at..at + n].fill(0xff);
            }
            self.note(false, place, &word[at..at + n]);
            self.tlp_complete(request, Answer::Success, Some(u32::from_le_bytes(word)));
        }
    }
}

impl Request {
    /// Memory writes get no completion.
    fn is_posted(&self) -> bool {
        self.is_write() && !self.is_config()
    }
}
