//! A device for the simulator's engines: a few pages of memory, registers that keep what is written.

use amdev_sim::env::{Access, Env, Interrupt, MemFault};
use amdev_sim::violation::{Rule, Violation};
use std::collections::HashMap;

/// First address of the memory.
pub(super) const MEMORY: u64 = 0x10_0000;
/// Bytes of memory.
pub(super) const SIZE: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Plain {
    pub(super) memory: Vec<u8>,
    regs: HashMap<u32, u32>,
    pub(super) rules: Vec<Rule>,
    pub(super) interrupts: usize,
    ns: u64,
}

impl Plain {
    pub(super) fn new() -> Plain {
        Plain { memory: vec![0; SIZE], regs: HashMap::new(), rules: Vec::new(), interrupts: 0, ns: 0 }
    }

    pub(super) fn put_words(&mut self, va: u64, words: &[u32]) {
        for (i, word) in words.iter().enumerate() {
            let at = (va - MEMORY) as usize + 4 * i;
            self.memory[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
    }

    fn range(va: u64, len: usize) -> Result<std::ops::Range<usize>, MemFault> {
        let at = va.checked_sub(MEMORY).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| Some(at..at.checked_add(len)?)).filter(|r| r.end <= SIZE).ok_or(MemFault { va })
    }
}

impl Env for Plain {
    fn read(&mut self, _: Access, va: u64, buf: &mut [u8]) -> Result<(), MemFault> {
        buf.copy_from_slice(&self.memory[Self::range(va, buf.len())?]);
        Ok(())
    }

    fn write(&mut self, _: Access, va: u64, data: &[u8]) -> Result<(), MemFault> {
        self.memory[Self::range(va, data.len())?].copy_from_slice(data);
        Ok(())
    }

    fn reg_read(&mut self, addr: u32) -> u32 {
        self.regs.get(&addr).copied().unwrap_or(0)
    }

    fn reg_write(&mut self, addr: u32, value: u32) {
        self.regs.insert(addr, value);
    }

    fn reg_addr(&self, name: &str) -> Option<u32> {
        // gfx11 (gc_11_0_0_offset.h, with GC's base addresses of Navi31).
        Some(match name {
            "COMPUTE_START_X" => 0x2e04,
            "COMPUTE_START_Y" => 0x2e05,
            "COMPUTE_START_Z" => 0x2e06,
            "COMPUTE_NUM_THREAD_X" => 0x2e07,
            "COMPUTE_NUM_THREAD_Y" => 0x2e08,
            "COMPUTE_NUM_THREAD_Z" => 0x2e09,
            "COMPUTE_PGM_LO" => 0x2e0c,
            "COMPUTE_PGM_HI" => 0x2e0d,
            "COMPUTE_DISPATCH_SCRATCH_BASE_LO" => 0x2e10,
            "COMPUTE_DISPATCH_SCRATCH_BASE_HI" => 0x2e11,
            "COMPUTE_PGM_RSRC1" => 0x2e12,
            "COMPUTE_PGM_RSRC2" => 0x2e13,
            "COMPUTE_STATIC_THREAD_MGMT_SE0" => 0x2e16,
            "COMPUTE_STATIC_THREAD_MGMT_SE1" => 0x2e17,
            "COMPUTE_TMPRING_SIZE" => 0x2e18,
            _ => {
                let n: u32 = name.strip_prefix("COMPUTE_USER_DATA_")?.parse().ok().filter(|n| *n < 16)?;
                0x2e40 + n
            }
        })
    }

    fn field(&self, reg: &str, field: &str) -> Option<(u8, u8)> {
        match (reg, field) {
            ("COMPUTE_TMPRING_SIZE", "WAVES") => Some((0, 12)),
            ("COMPUTE_TMPRING_SIZE", "WAVESIZE") => Some((12, 15)),
            _ => None,
        }
    }

    fn interrupt(&mut self, _: Interrupt) {
        self.interrupts += 1;
    }

    fn clock_100mhz(&self) -> u64 {
        self.ns / 10
    }

    fn spend_ns(&mut self, ns: u64) {
        self.ns = self.ns.saturating_add(ns);
    }

    fn violation(&mut self, violation: Violation) {
        self.rules.push(violation.rule);
    }
}
