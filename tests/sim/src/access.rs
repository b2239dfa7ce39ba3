//! What the host does to the device: the three windows, registers with their side effects,
//! configuration space.

use crate::config::Fault;
use crate::device::Device;
use crate::gmc::Place;
use crate::gpu::BusFault;
use crate::pci::{BAR2_LEN, BAR5_LEN, ConfigEvent, ROM_LEN};
use crate::regs::Action;
use crate::violation::Rule;

/// A PCIe read is a round trip; a write is posted.
const READ_NS: u64 = 800;
const WRITE_NS: u64 = 60;
/// Bulk traffic through BAR0, nanoseconds per KiB: about 1 GB/s in, a tenth of it out.
const VRAM_WRITE_NS_PER_KIB: u64 = 1000;
const VRAM_READ_NS_PER_KIB: u64 = 10_000;

impl Device {
    /// Counts an access; false if the device does not answer.
    fn alive(&mut self) -> bool {
        self.counts.accesses += 1;
        let n = self.counts.accesses;
        for i in 0..self.config.faults.len() {
            match self.config.faults[i] {
                Fault::Unplug(at) if n > at && self.present => self.unplug(),
                Fault::Ones(at) if n > at => return false,
                _ => {}
            }
        }
        if !self.present {
            return false;
        }
        if self.resetting {
            self.violation(Rule::AccessDuringReset, "a window was accessed while a reset was running");
            return false;
        }
        if !self.pci.memory_enabled() {
            self.violation(
                Rule::AccessDuringReset,
                "a window was accessed while memory space is off in the command register",
            );
            return false;
        }
        true
    }

    fn check(&self, bar: u8, offset: u64, len: usize) -> Result<(), BusFault> {
        let size = match bar {
            0 => self.pci.bar0(),
            2 => BAR2_LEN,
            5 => BAR5_LEN,
            6 => ROM_LEN,
            _ => 0,
        };
        match offset.checked_add(len as u64) {
            Some(end) if end <= size => Ok(()),
            _ => Err(BusFault::OutOfWindow { bar, offset }),
        }
    }

    fn aligned(&mut self, bar: u8, offset: u64, len: usize) -> Result<(), BusFault> {
        if !offset.is_multiple_of(4) || len == 0 || !len.is_multiple_of(4) {
            self.violation(
                Rule::BadAccess,
                format!("{len} bytes at {offset:#x} of BAR{bar}: accesses are 4 bytes, aligned"),
            );
            return Err(BusFault::Unsupported { bar, offset, len });
        }
        Ok(())
    }

    pub(crate) fn bar_read(&mut self, bar: u8, offset: u64, buf: &mut [u8]) -> Result<(), BusFault> {
        self.check(bar, offset, buf.len())?;
        self.spend(READ_NS);
        if !self.alive() {
            buf.fill(0xff);
            return Ok(());
        }
        let len = buf.len();
        match bar {
            0 => {
                self.spend(VRAM_READ_NS_PER_KIB * (len as u64) / 1024);
                self.counts.vram_bytes_read += len as u64;
                if !self.vram.contains(offset, len) {
                    self.violation(
                        Rule::BadAccess,
                        format!("read of BAR0 at {offset:#x} past the end of VRAM"),
                    );
                    buf.fill(0xff);
                    return Ok(());
                }
                self.psp_memory_read_early(offset, len);
                self.cpu_loads(Place::Vram(offset), len);
                self.vram.cpu_read(offset, buf);
            }
            5 => {
                self.aligned(bar, offset, len)?;
                for (i, word) in buf.chunks_exact_mut(4).enumerate() {
                    if i > 0 {
                        self.spend(READ_NS);
                    }
                    self.counts.register_reads += 1;
                    let value = self.register_read((offset / 4) as u32 + i as u32);
                    word.copy_from_slice(&value.to_le_bytes());
                }
            }
            6 => {
                // An option ROM without contents: signature and length only.
                for (i, b) in buf.iter_mut().enumerate() {
                    *b = *[0x55, 0xaa, (ROM_LEN / 512) as u8].get(offset as usize + i).unwrap_or(&0);
                }
            }
            _ => {
                self.violation(Rule::BadAccess, format!("read of a doorbell at {offset:#x}"));
                buf.fill(0);
            }
        }
        Ok(())
    }

    pub(crate) fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) -> Result<(), BusFault> {
        self.check(bar, offset, data.len())?;
        self.spend(WRITE_NS);
        if !self.alive() {
            return Ok(());
        }
        let (len, now) = (data.len(), self.time());
        self.wake_queues(now);
        match bar {
            0 => {
                self.spend(VRAM_WRITE_NS_PER_KIB * (len as u64) / 1024);
                self.counts.vram_bytes_written += len as u64;
                if !self.vram.contains(offset, len) {
                    self.violation(
                        Rule::BadAccess,
                        format!("write to BAR0 at {offset:#x} past the end of VRAM"),
                    );
                    return Ok(());
                }
                self.guard(offset, len, None);
                self.psp_memory_in_use(offset, len);
                self.ring_memory_in_use(offset, len);
                self.cpu_stores(Place::Vram(offset), len);
                self.cpu_stores_entry(offset, data);
                self.vram.cpu_write(offset, data);
            }
            5 => {
                self.aligned(bar, offset, len)?;
                for (i, word) in data.chunks_exact(4).enumerate() {
                    if i > 0 {
                        self.spend(WRITE_NS);
                    }
                    let value = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
                    self.counts.register_writes += 1;
                    self.register_write((offset / 4) as u32 + i as u32, value);
                }
            }
            6 => self.violation(Rule::BadAccess, "write to the expansion ROM"),
            _ => {
                self.aligned(bar, offset, len)?;
                let value = match *data {
                    [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
                    [a, b, c, d, e, f, g, h] if offset.is_multiple_of(8) => {
                        u64::from_le_bytes([a, b, c, d, e, f, g, h])
                    }
                    _ => {
                        self.violation(
                            Rule::BadAccess,
                            format!("doorbell at {offset:#x} rung with {len} bytes"),
                        );
                        return Err(BusFault::Unsupported { bar, offset, len });
                    }
                };
                self.doorbell((offset / 4) as u32, value, len);
            }
        }
        Ok(())
    }

    // Registers.

    fn is_flush(&self, addr: u32) -> bool {
        self.regs.val("BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL") / 4 == addr
            || self.regs.action(addr) == Some(Action::HdpFlush)
    }

    pub(crate) fn register_read(&mut self, addr: u32) -> u32 {
        if !self.regs.known(addr) {
            if !self.is_flush(addr) {
                self.violation(Rule::UnknownRegister, format!("read of {addr:#x}"));
            }
            return 0;
        }
        let raw = self.regs.get(addr);
        match self.regs.action(addr) {
            Some(Action::RsmuData) => {
                let index = self.regs.val("BIF_BX_PF0_RSMU_INDEX");
                self.register_read_indirect(index)
            }
            Some(Action::PcieData(n)) => {
                let index = self.regs.val(if n == 0 { "BIF_BX0_PCIE_INDEX" } else { "BIF_BX0_PCIE_INDEX2" });
                self.register_read_indirect(index)
            }
            Some(Action::MmData) => match self.mm_index() {
                Err(at) => {
                    let mut b = [0; 4];
                    if self.vram.contains(at, 4) {
                        self.vram.cpu_read(at, &mut b);
                    }
                    u32::from_le_bytes(b)
                }
                Ok(index) => self.register_read_indirect(index),
            },
            Some(Action::InvSem(hub, engine)) => self.sem_read(hub, engine),
            Some(Action::CpStat) => self.cp_stat(),
            Some(Action::SdmaQueue(instance, queue))
                if self.regs.short_name(addr).is_some_and(|n| n.ends_with("_CONTEXT_STATUS")) =>
            {
                self.sdma_context_status(instance, queue)
            }
            _ => raw,
        }
    }

    /// MM_INDEX: a register's byte address, or with bit 31 a place in VRAM.
    fn mm_index(&self) -> Result<u32, u64> {
        let index = self.regs.val("BIF_BX_PF0_MM_INDEX");
        if index >> 31 != 0 {
            let hi = u64::from(self.regs.val("BIF_BX_PF0_MM_INDEX_HI"));
            return Err(hi << 31 | u64::from(index & 0x7fff_ffff));
        }
        Ok(index)
    }

    fn register_read_indirect(&mut self, byte: u32) -> u32 {
        match self.regs.action(byte / 4) {
            Some(Action::RsmuData | Action::PcieData(_) | Action::MmData) => 0,
            _ => self.register_read(byte / 4),
        }
    }

    fn register_write_indirect(&mut self, byte: u32, value: u32) {
        match self.regs.action(byte / 4) {
            Some(Action::RsmuData | Action::PcieData(_) | Action::MmData) => {}
            _ => self.register_write(byte / 4, value),
        }
    }

    pub(crate) fn register_write(&mut self, addr: u32, value: u32) {
        if self.is_flush(addr) {
            self.counts.hdp_flushes += 1;
            self.vram.flush();
            return;
        }
        if !self.regs.known(addr) {
            self.violation(Rule::UnknownRegister, format!("write of {value:#x} to {addr:#x}"));
            return;
        }
        let old = self.regs.get(addr);
        let action = self.regs.action(addr);
        if matches!(
            action,
            Some(
                Action::ReadOnly
                    | Action::FaultStatus(_)
                    | Action::InvAck(..)
                    | Action::CpStat
                    | Action::BootloadStatus
            )
        ) {
            let name = self.regs.name(addr);
            self.violation(Rule::ReadOnlyRegister, format!("{name} = {value:#x}"));
            return;
        }
        self.regs.set(addr, value);
        self.gmc.registers_changed();
        let Some(action) = action else { return };
        match action {
            Action::Psp(n) => self.psp_write(n, old, value),
            Action::Smu(n) => self.smu_write(n, value),
            Action::RsmuData => {
                let index = self.regs.val("BIF_BX_PF0_RSMU_INDEX");
                self.register_write_indirect(index, value);
            }
            Action::PcieData(n) => {
                let index = self.regs.val(if n == 0 { "BIF_BX0_PCIE_INDEX" } else { "BIF_BX0_PCIE_INDEX2" });
                self.register_write_indirect(index, value);
            }
            Action::MmData => match self.mm_index() {
                Err(at) if self.vram.contains(at, 4) => {
                    self.guard(at, 4, None);
                    self.vram.cpu_write(at, &value.to_le_bytes());
                }
                Err(_) => {}
                Ok(index) => self.register_write_indirect(index, value),
            },
            Action::HdpFlushReq => {
                self.counts.hdp_flushes += 1;
                self.vram.flush();
                let done = self.regs.short_name(addr).map(|n| n.replace("_REQ", "_DONE"));
                if let Some(done) = done.and_then(|n| self.regs.addr(&n)) {
                    self.regs.set(done, value);
                }
            }
            Action::InvReq(hub, engine) => self.invalidate(hub, engine, value),
            Action::InvSem(hub, engine) => self.sem_write(hub, engine, value),
            Action::FaultCntl(hub) if value & 1 != 0 => self.clear_fault(hub),
            Action::ContextCntl(hub, vmid) => self.context_cntl(hub, vmid, value),
            Action::SafeMode => self.safe_mode(value),
            Action::MecCntl => self.mec_cntl(value),
            Action::MecStart => self.mec_start_addr(),
            Action::SdmaCntl(instance) => self.sdma_cntl(instance, value),
            Action::SoftReset => self.soft_reset(value),
            Action::HqdActive => self.hqd_active(value),
            Action::HqdDequeue => self.hqd_dequeue(value),
            Action::SdmaQueue(instance, queue) => {
                if let Some(name) = self.regs.short_name(addr) {
                    self.sdma_queue(instance, queue, name, old, value);
                }
            }
            Action::IhCntl(ring) => self.ih_cntl(ring, old, value),
            Action::IhRptr(ring) => self.ih_rptr(ring),
            _ => {}
        }
    }

    pub(crate) fn config_read(&mut self, offset: u16, buf: &mut [u8]) {
        self.spend(READ_NS);
        if self.present {
            self.pci.read(usize::from(offset), buf);
        } else {
            buf.fill(0xff);
        }
    }

    pub(crate) fn config_write(&mut self, offset: u16, data: &[u8]) {
        self.spend(READ_NS);
        if self.present {
            match self.pci.write(usize::from(offset), data) {
                Some(ConfigEvent::Flr) => self.flr(),
                Some(ConfigEvent::Bar0(_)) | None => {}
            }
        }
    }
}
