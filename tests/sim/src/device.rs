//! One GPU: memory, registers, blocks and time behind a lock.

use crate::config::{ClockKind, Config, Fault};
use crate::discovery;
use crate::gpu::{BusFault, Counts};
use crate::host::DmaMap;
use crate::pci::{BAR2_LEN, BAR5_LEN, ConfigEvent, ConfigSpace};
use crate::regs::RegFile;
use crate::violation::{Rule, Violation};
use crate::vram::Vram;
use std::time::Instant;

/// More violations than anybody reads are dropped.
const MAX_VIOLATIONS: usize = 1000;

/// A PCIe read is a round trip; a write is posted.
const READ_NS: u64 = 800;
const WRITE_NS: u64 = 60;
/// Bulk traffic through BAR0, nanoseconds per KiB: about 1 GB/s in, a tenth of it out.
const VRAM_WRITE_NS_PER_KIB: u64 = 1000;
const VRAM_READ_NS_PER_KIB: u64 = 10_000;
/// Reset time of mode-1 and FLR.
pub(crate) const RESET_NS: u64 = 200_000_000;

pub(crate) struct Device {
    pub(crate) config: Config,
    pub(crate) pci: ConfigSpace,
    pub(crate) regs: RegFile,
    pub(crate) vram: Vram,
    pub(crate) dma: DmaMap,
    pub(crate) violations: Vec<Violation>,
    pub(crate) counts: Counts,
    pub(crate) present: bool,
    pub(crate) msi_hook: Option<Box<dyn Fn() + Send>>,
    interrupts: u64,
    time_ns: u64,
    started: Instant,
}

impl Device {
    pub(crate) fn new(config: Config) -> Device {
        let chip = config.chip;
        let mut d = Device {
            pci: ConfigSpace::new(chip, config.bar0, config.index),
            regs: RegFile::new(chip),
            vram: Vram::new(chip.vram_bytes()),
            dma: DmaMap::default(),
            violations: Vec::new(),
            counts: Counts::default(),
            present: true,
            msi_hook: None,
            interrupts: 0,
            time_ns: 0,
            started: Instant::now(),
            config,
        };
        d.vram.fresh = d.config.judge;
        d.post();
        d
    }

    /// What VBIOS and firmware set up before any driver.
    fn post(&mut self) {
        let binary = discovery::binary(self.config.chip);
        self.vram.engine_write(self.vram.size() - discovery::FROM_END, &binary);
    }

    pub(crate) fn violation(&mut self, rule: Rule, detail: impl Into<String>) {
        let v = Violation::new(rule, detail);
        if self.violations.len() < MAX_VIOLATIONS && !self.violations.contains(&v) {
            self.violations.push(v);
        }
    }

    pub(crate) fn now_us(&mut self) -> u64 {
        self.spend(100);
        self.time_ns / 1000
    }

    fn spend(&mut self, ns: u64) {
        match self.config.clock {
            ClockKind::Virtual => self.time_ns += ns,
            ClockKind::Real => {
                self.time_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
            }
        }
    }

    pub(crate) fn advance_ns(&mut self, ns: u64) {
        self.spend(ns);
    }

    pub(crate) fn take_interrupts(&mut self) -> u64 {
        std::mem::take(&mut self.interrupts)
    }

    /// Counts an access; false if the device does not answer any more.
    fn alive(&mut self) -> bool {
        self.counts.accesses += 1;
        let n = self.counts.accesses;
        for fault in self.config.faults.clone() {
            match fault {
                Fault::Unplug(at) if n > at => self.present = false,
                Fault::Ones(at) if n > at => return false,
                _ => {}
            }
        }
        self.present && self.pci.memory_enabled()
    }

    fn check(&self, bar: u8, offset: u64, len: usize) -> Result<(), BusFault> {
        let size = match bar {
            0 => self.pci.bar0(),
            2 => BAR2_LEN,
            5 => BAR5_LEN,
            _ => 0,
        };
        match offset.checked_add(len as u64) {
            Some(end) if end <= size => Ok(()),
            _ => Err(BusFault::OutOfWindow { bar, offset }),
        }
    }

    pub(crate) fn bar_read(&mut self, bar: u8, offset: u64, buf: &mut [u8]) -> Result<(), BusFault> {
        self.check(bar, offset, buf.len())?;
        if !self.alive() {
            buf.fill(0xff);
            return Ok(());
        }
        let len = buf.len();
        match bar {
            0 => {
                self.spend(READ_NS + VRAM_READ_NS_PER_KIB * (len as u64) / 1024);
                self.counts.vram_bytes_read += len as u64;
                if !self.vram.contains(offset, len) {
                    self.violation(
                        Rule::BadAccess,
                        format!("read of BAR0 at {offset:#x} past the end of VRAM"),
                    );
                    buf.fill(0xff);
                    return Ok(());
                }
                self.vram.cpu_read(offset, buf);
            }
            5 => {
                self.aligned(bar, offset, len)?;
                for (i, word) in buf.chunks_exact_mut(4).enumerate() {
                    let value = self.cpu_reg_read((offset / 4) as u32 + i as u32);
                    word.copy_from_slice(&value.to_le_bytes());
                }
            }
            _ => {
                self.violation(Rule::BadAccess, format!("read of a doorbell at {offset:#x}"));
                buf.fill(0);
            }
        }
        Ok(())
    }

    fn aligned(&mut self, bar: u8, offset: u64, len: usize) -> Result<(), BusFault> {
        if offset % 4 != 0 || len == 0 || len % 4 != 0 {
            self.violation(
                Rule::BadAccess,
                format!("{len} bytes at {offset:#x} of BAR{bar}: registers are 4 bytes, aligned"),
            );
            return Err(BusFault::Unsupported { bar, offset, len });
        }
        Ok(())
    }

    pub(crate) fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) -> Result<(), BusFault> {
        self.check(bar, offset, data.len())?;
        if !self.alive() {
            return Ok(());
        }
        let len = data.len();
        match bar {
            0 => {
                self.spend(WRITE_NS + VRAM_WRITE_NS_PER_KIB * (len as u64) / 1024);
                self.counts.vram_bytes_written += len as u64;
                if !self.vram.contains(offset, len) {
                    self.violation(
                        Rule::BadAccess,
                        format!("write to BAR0 at {offset:#x} past the end of VRAM"),
                    );
                    return Ok(());
                }
                self.vram.cpu_write(offset, data);
            }
            5 => {
                self.aligned(bar, offset, len)?;
                for (i, word) in data.chunks_exact(4).enumerate() {
                    let value = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
                    self.cpu_reg_write((offset / 4) as u32 + i as u32, value);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn cpu_reg_read(&mut self, addr: u32) -> u32 {
        self.counts.register_reads += 1;
        self.spend(READ_NS);
        if !self.regs.known(addr) {
            self.violation(Rule::UnknownRegister, format!("read of {addr:#x}"));
        }
        self.regs.get(addr)
    }

    fn cpu_reg_write(&mut self, addr: u32, value: u32) {
        self.counts.register_writes += 1;
        self.spend(WRITE_NS);
        if !self.regs.known(addr) {
            self.violation(Rule::UnknownRegister, format!("write of {value:#x} to {addr:#x}"));
        }
        self.regs.set(addr, value);
    }

    pub(crate) fn config_read(&mut self, offset: u16, buf: &mut [u8]) {
        if self.present {
            self.pci.read(usize::from(offset), buf);
        } else {
            buf.fill(0xff);
        }
    }

    pub(crate) fn config_write(&mut self, offset: u16, data: &[u8]) {
        if self.present {
            match self.pci.write(usize::from(offset), data) {
                Some(ConfigEvent::Flr) => self.flr(),
                Some(ConfigEvent::Bar0(_)) | None => {}
            }
        }
    }

    pub(crate) fn plug(&mut self) {
        self.present = true;
        self.flr();
    }

    pub(crate) fn flr(&mut self) {
        self.regs.reset();
        self.vram.clear();
        self.post();
    }
}
