//! A bus that answers out of a trace and judges what is written.

use super::deviations::{Deviations, Row as DeviationRow};
use amdev_core::bus::{BusError, Clock, Mmio as _, Window};
use amdev_core::firmware::ImageId;
use amdev_core::reg::{Reg, RegFile, r};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, VecDeque};

mod firmware;
mod judge;
mod windows;

/// An access of the trace. Keys are dword addresses, those of indirect accesses with bit 32 set.
#[derive(Clone, Debug)]
enum Row {
    Read { key: u64, first: u32, left: u64, last: u32 },
    Write { addr: u32, key: u64, value: u32 },
}

/// What the firmware's side of a replay knows and has seen.
#[derive(Debug, Default)]
pub(super) struct Psp {
    /// Commands of `psp.json` still to come.
    pub(super) commands: VecDeque<Value>,
    /// Bootloader components of `psp.json` still to come.
    pub(super) components: VecDeque<Value>,
    /// Recorded responses: bytes from 864 on.
    responses: VecDeque<Vec<u8>>,
    /// Recorded messages: length and hash.
    messages: VecDeque<(u64, String)>,
    /// Every image with its length and types, to recognise stand-ins.
    pub(super) images: Vec<(ImageId, u32, Vec<u32>)>,
    /// Whether images are the real ones.
    pub(super) real: bool,
    pub(super) compared: usize,
    pub(super) images_compared: usize,
    /// What was sent, in the form of `psp.json`.
    pub(super) sent: Vec<Value>,
    /// The image in the last message, where it is a stand-in.
    pub(super) image: Option<ImageId>,
}

const PAGE: u64 = 4096;

/// The bus. Its clock is virtual.
#[derive(Debug)]
pub struct ReplayBus {
    name: String,
    rows: Vec<Row>,
    at: usize,
    regs: RegFile,
    names: HashMap<u32, Reg>,
    recorded: HashMap<(u64, u32), u32>,
    written: HashMap<(u64, u32), u32>,
    initial: HashMap<String, u32>,
    seeded: bool,
    bank: u32,
    banked: HashMap<u64, bool>,
    deviations: Deviations,
    pub(super) used: BTreeMap<String, usize>,
    pub(super) differences: Vec<String>,
    pub(super) matched: usize,
    pub(super) made: usize,
    pub(super) reads: usize,
    pub(super) ended: bool,
    indirect: u32,
    vram: HashMap<u64, Box<[u8; PAGE as usize]>>,
    vram_len: u64,
    mc_base: u64,
    message_at: u64,
    message_len: u64,
    pub(super) psp: Psp,
    clock: VirtualClock,
    /// Accesses to the SMU's mailbox: register, value, whether it is a write.
    pub(super) mailbox: Vec<(Reg, u32, bool)>,
}

#[derive(Debug, Default)]
struct VirtualClock(Cell<u64>);

impl Clock for VirtualClock {
    fn now_us(&self) -> u64 {
        self.0.get()
    }
    fn wait_us(&self, us: u64) {
        self.0.set(self.0.get() + us);
    }
}

pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

pub(super) fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).filter_map(|i| u8::from_str_radix(text.get(i * 2..i * 2 + 2)?, 16).ok()).collect()
}

const INDIRECT: u64 = 1 << 32;
/// Where the answer starts in a command buffer (`struct psp_gfx_cmd_resp`).
const RESPONSE_AT: u64 = 864;
const COMMAND_LEN: u64 = 1024;

impl ReplayBus {
    /// A bus with nothing recorded; `regs` serves to name registers.
    pub(super) fn new(regs: RegFile, deviations: Deviations, vram_len: u64, mc_base: u64) -> Self {
        let names = Reg::all().filter_map(|reg| Some((regs.addr(reg).ok()?, reg))).collect();
        ReplayBus {
            name: String::new(),
            rows: Vec::new(),
            at: 0,
            regs,
            names,
            recorded: HashMap::new(),
            written: HashMap::new(),
            initial: HashMap::new(),
            seeded: false,
            bank: 0,
            banked: HashMap::new(),
            deviations,
            used: BTreeMap::new(),
            differences: Vec::new(),
            matched: 0,
            made: 0,
            reads: 0,
            ended: false,
            indirect: 0,
            vram: HashMap::new(),
            vram_len,
            mc_base,
            message_at: 0x20_0000,
            message_len: 0,
            psp: Psp::default(),
            clock: VirtualClock::default(),
            mailbox: Vec::new(),
        }
    }

    /// Puts bytes into the VRAM, as if they had been there.
    pub(super) fn preload(&mut self, at: u64, bytes: &[u8]) {
        self.vram_copy_in(at, bytes);
    }

    /// Bytes of the VRAM.
    pub(super) fn peek(&self, at: u64, len: u64) -> Vec<u8> {
        let mut out = vec![0; len as usize];
        self.vram_copy_out(at, &mut out);
        out
    }

    /// Takes a trace; what was found so far is forgotten, the state of registers and VRAM is not,
    /// unless `initial` (an entry of `initial_regs.json`) replaces it.
    pub(super) fn load(&mut self, name: &str, rows: &[Value], initial: Option<&Value>) {
        name.clone_into(&mut self.name);
        self.rows.clear();
        self.at = 0;
        self.used.clear();
        self.differences.clear();
        (self.matched, self.made, self.reads, self.ended) = (0, 0, 0, false);
        self.psp.responses.clear();
        self.psp.messages.clear();
        self.mailbox.clear();
        if let Some(initial) = initial {
            self.recorded.clear();
            self.written.clear();
            self.seeded = initial["default"] == "crc32";
            self.initial.clear();
            for (key, value) in initial["regs"].as_object().into_iter().flatten() {
                if let Some((addr, bank)) = key.split_once('@') {
                    let addr: u64 = addr.parse().unwrap_or(0);
                    self.banked.insert(addr, bank.starts_with("vmid"));
                }
                self.initial.insert(key.clone(), number(value) as u32);
            }
        }
        for row in rows {
            self.load_row(row);
        }
    }

    fn load_row(&mut self, row: &Value) {
        let (addr, value) = (number(&row["addr"]) as u32, number(&row["val"]) as u32);
        let is_data = row["name"].as_str().is_some_and(|n| n.ends_with("RSMU_DATA"));
        let key = if is_data { INDIRECT | number(&row["ind"]) } else { u64::from(addr) };
        match row["op"].as_str() {
            Some("r") => self.rows.push(Row::Read {
                key,
                first: row.get("first").map_or(value, |v| number(v) as u32),
                left: row.get("n").map_or(1, number),
                last: value,
            }),
            Some("w") => self.rows.push(Row::Write { addr, key, value }),
            Some("vr") if number(&row["len"]) == COMMAND_LEN => {
                let bytes = unhex(row["data_rstrip"].as_str().unwrap_or(""));
                self.psp.responses.push_back(bytes.get(RESPONSE_AT as usize..).unwrap_or(&[]).to_vec());
            }
            Some("vw") if number(&row["pa"]) == self.message_at => {
                let sha = row["sha256"].as_str().unwrap_or("").to_owned();
                self.psp.messages.push_back((number(&row["len"]), sha));
            }
            Some("vr") if number(&row["len"]) == 8 => {
                // Pointers that the device wrote before the trace starts.
                if let Some(data) = row["data"].as_str() {
                    let at = number(&row["pa"]);
                    if at < self.message_at && at >= PAGE && self.peek(at, 8).iter().all(|b| *b == 0) {
                        self.preload(at, &unhex(data));
                    }
                }
            }
            _ => {}
        }
    }

    /// Register writes of the trace.
    pub(super) fn total(&self) -> usize {
        self.rows.iter().filter(|r| matches!(r, Row::Write { .. })).count()
    }

    /// Register reads of the trace, repeated ones counted once.
    pub(super) fn recorded_reads(&self) -> usize {
        self.rows.len() - self.total()
    }

    /// Notes the rows that were never reached.
    pub(super) fn finish(&mut self) {
        let left = self.rows.get(self.at..).unwrap_or(&[]);
        let left = left.iter().filter(|r| matches!(r, Row::Write { .. })).count();
        if left > 0 && !self.try_missing(None) {
            let next = self.writes().next().map(|(_, addr, value)| self.describe(addr, value));
            self.differences.push(format!("{left} writes of the trace were not made; next: {next:?}"));
        }
    }

    fn reg_name(&self, addr: u32) -> String {
        self.names.get(&addr).map_or_else(|| format!("{addr:#x}"), |reg| reg.name().to_owned())
    }

    fn describe(&self, addr: u32, value: u32) -> String {
        format!("{} = {value:#x}", self.reg_name(addr))
    }

    fn is(&self, addr: u32, register: &str) -> bool {
        self.names.get(&addr).is_some_and(|reg| reg.name() == register)
    }

    /// The bank part of a register's key, by the last write of GRBM_GFX_CNTL.
    fn bank_of(&self, key: u64) -> u32 {
        match self.banked.get(&key) {
            Some(true) => self.bank >> 4 & 0xf,
            Some(false) => self.bank & 0x70f,
            None => 0,
        }
    }

    fn before(&self, key: u64) -> u32 {
        let addr = (key & 0xffff_ffff) as u32;
        let (me, pipe) = (self.bank >> 2 & 3, self.bank & 3);
        let (vmid, queue) = (self.bank >> 4 & 0xf, self.bank >> 8 & 7);
        let names =
            [format!("{addr}@mpq.{me}.{pipe}.{queue}"), format!("{addr}@vmid.{vmid}"), format!("{addr}")];
        if let Some(value) = names.iter().find_map(|n| self.initial.get(n)) {
            return *value;
        }
        if self.seeded {
            let mut crc = flate2::Crc::new();
            crc.update(&addr.to_le_bytes());
            return crc.sum();
        }
        0
    }

    /// What a register holds for all that the trace and our writes say.
    fn known(&self, key: u64) -> Option<u32> {
        let place = (key, self.bank_of(key));
        self.recorded.get(&place).or_else(|| self.written.get(&place)).copied()
    }

    /// The writes still to come: row, address, value.
    fn writes(&self) -> impl Iterator<Item = (usize, u32, u32)> {
        self.rows.iter().enumerate().skip(self.at).filter_map(|(i, row)| match row {
            Row::Write { addr, value, .. } => Some((i, *addr, *value)),
            Row::Read { .. } => None,
        })
    }

    /// Everything up to and including row `end` has happened.
    fn pass(&mut self, end: usize) {
        for i in self.at..=end {
            match self.rows.get(i).cloned() {
                Some(Row::Read { key, left, last, .. }) if left > 0 => {
                    let bank = self.bank_of(key);
                    self.recorded.insert((key, bank), last);
                }
                Some(Row::Write { key, value, .. }) => {
                    let bank = self.bank_of(key);
                    self.written.insert((key, bank), value);
                }
                _ => {}
            }
        }
        self.at = end + 1;
    }

    /// The key of an access: what stands behind the index where it goes to the data register.
    fn key_of(&self, addr: u32) -> u64 {
        let is_data = self.regs.addr(r::BIF_BX_PF0_RSMU_DATA) == Ok(addr);
        if is_data { INDIRECT | u64::from(self.indirect) } else { u64::from(addr) }
    }

    fn read_register(&mut self, addr: u32) -> u32 {
        self.reads += 1;
        let key = self.key_of(addr);
        let bank = self.bank_of(key);
        for row in self.rows.iter_mut().skip(self.at) {
            if let Row::Read { key: k, first, left, last } = row
                && *k == key
                && *left > 0
            {
                *left -= 1;
                let value = if *left > 0 { *first } else { *last };
                self.recorded.insert((key, bank), value);
                return self.translate(addr, value, true);
            }
        }
        for (id, row) in self.applicable() {
            if let DeviationRow::Answer { register, value } = row
                && self.is(addr, &register)
            {
                self.use_deviation(&id, 1);
                return value;
            }
        }
        let value = self.known(key).unwrap_or_else(|| self.before(key));
        self.translate(addr, value, true)
    }

    fn note_mailbox(&mut self, addr: u32, value: u32, write: bool) {
        if let Some(reg) = self.names.get(&addr).filter(|r| r.name().starts_with("MP1_SMN_C2PMSG")) {
            self.mailbox.push((*reg, value, write));
        }
    }

    fn write_register(&mut self, addr: u32, value: u32) -> Result<(), BusError> {
        self.made += 1;
        self.note_mailbox(addr, value, true);
        let old_wptr = (self.is(addr, "PSP_C2PMSG_67")).then(|| {
            let key = u64::from(addr);
            self.known(key).unwrap_or_else(|| self.before(key))
        });
        let recorded = self.judge(addr, value)?;
        let key = self.key_of(addr);
        let bank = self.bank_of(key);
        self.written.insert((key, bank), value);
        if self.regs.addr(r::BIF_BX_PF0_RSMU_INDEX) == Ok(addr) {
            self.indirect = value / 4;
        }
        if self.regs.addr(r::GRBM_GFX_CNTL) == Ok(addr) {
            self.bank = value;
        }
        if self.is(addr, "PSP_C2PMSG_35") {
            self.bootloader(value, recorded);
        }
        if let Some(old) = old_wptr {
            self.psp_command(old);
        }
        if self.is(addr, "PSP_C2PMSG_64") {
            let get = |name: &str| {
                let addr = Reg::from_name(name).and_then(|reg| self.regs.addr(reg).ok()).unwrap_or(0);
                u64::from(self.written.get(&(u64::from(addr), 0)).copied().unwrap_or(0))
            };
            let ring = get("PSP_C2PMSG_69") | get("PSP_C2PMSG_70") << 32;
            let len = get("PSP_C2PMSG_71");
            self.psp.sent.push(json!({"kind": "ring_create", "val": format!("{value:#x}"),
                "ring_mc": format!("{ring:#x}"), "ring_size": format!("{len:#x}")}));
        }
        Ok(())
    }

    fn vram_copy_in(&mut self, at: u64, bytes: &[u8]) {
        for (byte, at) in bytes.iter().zip(at..) {
            let page = self.vram.entry(at / PAGE).or_insert_with(|| Box::new([0; PAGE as usize]));
            page[(at % PAGE) as usize] = *byte;
        }
    }

    fn vram_copy_out(&self, at: u64, bytes: &mut [u8]) {
        for (byte, at) in bytes.iter_mut().zip(at..) {
            *byte = self.vram.get(&(at / PAGE)).map_or(0, |page| page[(at % PAGE) as usize]);
        }
    }

    fn check(&self, window: Window, offset: u64, len: u64) -> Result<(), BusError> {
        let window_len = self.window_len(window);
        match offset.checked_add(len) {
            Some(end) if end <= window_len => Ok(()),
            _ => Err(BusError::OutOfWindow { window, offset, len, window_len }),
        }
    }
}
