//! What the tests of the engines share: corpus data, and a device made of plain memory and registers.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses a part")]

pub mod corpus;

use amdev_sim::env::{Access, Env, Interrupt, MemFault};
use amdev_sim::violation::Violation;
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The folder of test data with a name.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

/// Reads a file, decompressed if only its `.gz` is there.
pub fn read(path: &Path) -> Vec<u8> {
    if let Ok(bytes) = std::fs::read(path) {
        return bytes;
    }
    let gz = PathBuf::from(format!("{}.gz", path.display()));
    let packed = std::fs::read(&gz).unwrap_or_else(|e| panic!("{}: {e}", gz.display()));
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut out).expect("gzip");
    out
}

/// Reads a JSON file.
pub fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&read(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Registers of gfx11's compute block by name: first address and how many follow.
const REGISTERS: &[(&str, u32)] = &[
    ("COMPUTE_START_X", 0x2e04),
    ("COMPUTE_START_Y", 0x2e05),
    ("COMPUTE_START_Z", 0x2e06),
    ("COMPUTE_NUM_THREAD_X", 0x2e07),
    ("COMPUTE_NUM_THREAD_Y", 0x2e08),
    ("COMPUTE_NUM_THREAD_Z", 0x2e09),
    ("COMPUTE_PGM_LO", 0x2e0c),
    ("COMPUTE_PGM_HI", 0x2e0d),
    ("COMPUTE_DISPATCH_SCRATCH_BASE_LO", 0x2e10),
    ("COMPUTE_DISPATCH_SCRATCH_BASE_HI", 0x2e11),
    ("COMPUTE_PGM_RSRC1", 0x2e12),
    ("COMPUTE_PGM_RSRC2", 0x2e13),
    ("COMPUTE_STATIC_THREAD_MGMT_SE0", 0x2e16),
    ("COMPUTE_STATIC_THREAD_MGMT_SE1", 0x2e17),
    ("COMPUTE_TMPRING_SIZE", 0x2e18),
];

/// A device without page tables: memory where it was mapped, registers that keep what is written.
#[derive(Default)]
pub struct Plain {
    pub pages: BTreeMap<u64, Box<[u8; 4096]>>,
    pub regs: HashMap<u32, u32>,
    /// Answers of registers that are read, in order; then what was written.
    pub answers: HashMap<u32, Vec<u32>>,
    pub interrupts: Vec<Interrupt>,
    pub violations: Vec<Violation>,
    pub faults: Vec<(Access, u64)>,
    pub ns: u64,
}

impl Plain {
    pub fn map(&mut self, va: u64, len: u64) {
        for page in va >> 12..=(va + len - 1) >> 12 {
            self.pages.entry(page).or_insert_with(|| Box::new([0; 4096]));
        }
    }

    pub fn put(&mut self, va: u64, bytes: &[u8]) {
        self.map(va, bytes.len().max(1) as u64);
        for (n, b) in bytes.iter().enumerate() {
            let at = va + n as u64;
            self.pages.get_mut(&(at >> 12)).expect("mapped")[(at & 4095) as usize] = *b;
        }
    }

    pub fn put_words(&mut self, va: u64, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.put(va, &bytes);
    }

    pub fn get(&self, va: u64, len: usize) -> Vec<u8> {
        (0..len as u64)
            .map(|n| self.pages.get(&((va + n) >> 12)).expect("mapped")[((va + n) & 4095) as usize])
            .collect()
    }

    pub fn word(&self, va: u64) -> u32 {
        u32::from_le_bytes(self.get(va, 4).try_into().expect("4 bytes"))
    }
}

impl Env for Plain {
    fn read(&mut self, who: Access, va: u64, buf: &mut [u8]) -> Result<(), MemFault> {
        for (n, b) in buf.iter_mut().enumerate() {
            let at = va.wrapping_add(n as u64);
            let Some(page) = self.pages.get(&(at >> 12)) else {
                self.faults.push((who, at));
                return Err(MemFault { va: at });
            };
            *b = page[(at & 4095) as usize];
        }
        Ok(())
    }

    fn write(&mut self, who: Access, va: u64, data: &[u8]) -> Result<(), MemFault> {
        for (n, b) in data.iter().enumerate() {
            let at = va.wrapping_add(n as u64);
            let Some(page) = self.pages.get_mut(&(at >> 12)) else {
                self.faults.push((who, at));
                return Err(MemFault { va: at });
            };
            page[(at & 4095) as usize] = *b;
        }
        Ok(())
    }

    fn reg_read(&mut self, addr: u32) -> u32 {
        if let Some(answers) = self.answers.get_mut(&addr)
            && !answers.is_empty()
        {
            return answers.remove(0);
        }
        self.regs.get(&addr).copied().unwrap_or(0)
    }

    fn reg_write(&mut self, addr: u32, value: u32) {
        self.regs.insert(addr, value);
    }

    fn reg_addr(&self, name: &str) -> Option<u32> {
        if let Some(n) = name.strip_prefix("COMPUTE_USER_DATA_") {
            return n.parse::<u32>().ok().filter(|n| *n < 16).map(|n| 0x2e40 + n);
        }
        REGISTERS.iter().find(|(n, _)| *n == name).map(|(_, addr)| *addr)
    }

    fn field(&self, reg: &str, field: &str) -> Option<(u8, u8)> {
        match (reg, field) {
            ("COMPUTE_TMPRING_SIZE", "WAVES") => Some((0, 12)),
            ("COMPUTE_TMPRING_SIZE", "WAVESIZE") => Some((12, 15)),
            _ => None,
        }
    }

    fn interrupt(&mut self, interrupt: Interrupt) {
        self.interrupts.push(interrupt);
    }

    fn clock_100mhz(&self) -> u64 {
        self.ns / 10
    }

    fn spend_ns(&mut self, ns: u64) {
        self.ns += ns;
    }

    fn violation(&mut self, violation: Violation) {
        self.violations.push(violation);
    }
}
