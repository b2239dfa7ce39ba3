//! The memory controller: one translator for every engine, TLBs of both hubs, fault latches.
//!
//! Formats: `amdgpu_vm.h`; registers by name from the GC and MMHUB headers. A virtual address is
//! looked up relative to the context's PAGE_TABLE_START_ADDR.

use crate::device::Device;
use crate::env::{Access, Hub, Interrupt, Kind, MemFault};
use crate::violation::Rule;
use std::collections::HashMap;

pub(crate) const PAGE: u64 = 4096;

const VALID: u64 = 1;
pub(crate) const SYSTEM: u64 = 1 << 1;
const EXECUTABLE: u64 = 1 << 4;
const READABLE: u64 = 1 << 5;
const WRITEABLE: u64 = 1 << 6;
const PDE_PTE: u64 = 1 << 54;
/// On GFX12 the same bit marks a leaf at every level.
const LEAF_GFX12: u64 = 1 << 63;
pub(crate) const ADDRESS: u64 = 0x0000_ffff_ffff_f000;

/// What a translation is known by: hub, VMID, page.
pub(crate) type Key = (Hub, u8, u64);

/// Slots for recent translations.
const RECENT: usize = 1024;

/// Where an address leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Vram(u64),
    System(u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The leaf, its address replaced by this page's.
    pub(crate) pte: u64,
    generation: u64,
}

/// Why a translation failed: the bits of the status register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    /// Outside of START..END, or the context is off.
    Range,
    /// Walker error at this level, 1-based from the root.
    Walk(u32),
    /// Permission bits that were missing: 1 valid, 2 read, 4 write, 8 execute.
    Permission(u32),
    /// A leaf or pointer that makes no sense.
    Mapping,
}

#[derive(Default)]
pub(crate) struct Gmc {
    pub(crate) tlb: HashMap<Key, Entry>,
    /// The last translations, by page; only a copy of `tlb`.
    pub(crate) recent: Vec<Option<(Key, Entry)>>,
    /// Semaphores taken, by hub and engine.
    pub(crate) sems: HashMap<(Hub, u8), bool>,
    reporting: bool,
    /// VRAM offset of the entry at which the last walk ended.
    missed: Option<u64>,
    /// Apertures by hub, until a register changes.
    apertures: [Option<Apertures>; 2],
}

/// MC address ranges that need no tables.
#[derive(Clone, Copy, Debug)]
struct Apertures {
    /// First address of VRAM.
    fb: u64,
    /// First and last address of the system aperture.
    system: (u64, u64),
    /// First and last address of AGP, and the bus address behind the first.
    agp: Option<(u64, u64, u64)>,
}

impl Gmc {
    pub(crate) fn reset(&mut self) {
        *self = Gmc::default();
    }

    /// A register was written.
    pub(crate) fn registers_changed(&mut self) {
        self.apertures = [None; 2];
    }
}

pub(crate) fn prefix(hub: Hub) -> &'static str {
    match hub {
        Hub::Gc => "GC",
        Hub::Mm => "MM",
    }
}

impl Device {
    fn hub_val(&self, hub: Hub, name: &str) -> u32 {
        self.regs.val(&format!("{}{name}", prefix(hub)))
    }

    pub(crate) fn hub_pair(&self, hub: Hub, name: &str) -> u64 {
        let p = prefix(hub);
        self.regs.pair(&format!("{p}{name}_LO32"), &format!("{p}{name}_HI32"))
    }

    /// First and last MC address of VRAM. FB_LOCATION counts in 16 MiB.
    pub(crate) fn fb(&self) -> (u64, u64) {
        let base = u64::from(self.regs.val("MMMC_VM_FB_LOCATION_BASE") & 0xff_ffff) << 24;
        (base, base + self.vram.size() - 1)
    }

    /// VRAM offset of an MC address.
    pub(crate) fn fb_offset(&self, mc: u64) -> Option<u64> {
        let (base, last) = self.fb();
        (base..=last).contains(&mc).then(|| mc - base)
    }

    fn apertures(&mut self, hub: Hub) -> Apertures {
        let slot = usize::from(hub == Hub::Mm);
        if let Some(known) = self.gmc.apertures[slot] {
            return known;
        }
        let low = u64::from(self.hub_val(hub, "MC_VM_SYSTEM_APERTURE_LOW_ADDR")) << 18;
        let high = (u64::from(self.hub_val(hub, "MC_VM_SYSTEM_APERTURE_HIGH_ADDR")) << 18) | 0x3_ffff;
        let bot = u64::from(self.hub_val(hub, "MC_VM_AGP_BOT")) << 24;
        let top = (u64::from(self.hub_val(hub, "MC_VM_AGP_TOP")) << 24) | 0xff_ffff;
        let base = u64::from(self.hub_val(hub, "MC_VM_AGP_BASE")) << 24;
        let found = Apertures {
            fb: self.fb().0,
            system: (low, high),
            agp: (bot != 0 && bot < top).then_some((bot, top, base)),
        };
        self.gmc.apertures[slot] = Some(found);
        found
    }

    /// Addresses that no page table translates: VRAM's and AGP's apertures of VMID 0.
    fn aperture(&mut self, who: Access, va: u64) -> Option<(Place, u64)> {
        if who.vmid != 0 {
            return None;
        }
        let a = self.apertures(who.hub);
        if va >= a.fb && va - a.fb < self.vram.size() {
            // Engines behind GFXHUB need its system aperture set; PSP and IH come with theirs.
            if who.hub == Hub::Mm || (a.system.0..=a.system.1).contains(&va) {
                let offset = va - a.fb;
                return Some((Place::Vram(offset), self.vram.size() - offset));
            }
        }
        let (bot, top, base) = a.agp?;
        (bot..=top).contains(&va).then(|| (Place::System(base + (va - bot)), top - va + 1))
    }

    /// Reads one entry of a table.
    fn table_entry(&mut self, base: u64, system: bool, index: u64, level: u32) -> Result<u64, Cause> {
        let at = base + index * 8;
        let mut b = [0; 8];
        if system {
            if self.dma.read(at, &mut b).is_err() {
                self.violation(Rule::UnmappedDma, format!("page table in system memory at {at:#x}"));
                return Err(Cause::Walk(level));
            }
        } else {
            if !self.vram.contains(at, 8) {
                return Err(Cause::Walk(level));
            }
            if self.vram.unflushed(at, 8).is_some() {
                self.violation(
                    Rule::StaleHdp,
                    format!("page table entry at VRAM {at:#x} is walked before an HDP flush"),
                );
            }
            self.vram.mark_table(at / PAGE);
            self.vram.engine_read(at, &mut b);
        }
        Ok(u64::from_le_bytes(b))
    }

    /// Walks the tables; the leaf with the address of the page that holds `va`.
    fn walk(&mut self, hub: Hub, vmid: u8, va: u64) -> Result<u64, Cause> {
        self.gmc.missed = None;
        let ctx = format!("VM_CONTEXT{vmid}_");
        let gfx12 = self.config.chip.gfx12();
        let name = format!("{}{ctx}CNTL", prefix(hub));
        let cntl = self.regs.val(&name);
        if self.regs.extract(&name, "ENABLE_CONTEXT", cntl) == 0 {
            return Err(Cause::Range);
        }
        let start = self.hub_pair(hub, &format!("{ctx}PAGE_TABLE_START_ADDR"));
        let end = self.hub_pair(hub, &format!("{ctx}PAGE_TABLE_END_ADDR"));
        let page = va / PAGE;
        if page < start || page > end {
            return Err(Cause::Range);
        }
        let mut level = self.regs.extract(&name, "PAGE_TABLE_DEPTH", cntl);
        let block = self.regs.extract(&name, "PAGE_TABLE_BLOCK_SIZE", cntl);
        let depth = level;
        let root = self.hub_pair(hub, &format!("{ctx}PAGE_TABLE_BASE_ADDR"));
        if root & VALID == 0 {
            return Err(Cause::Walk(1));
        }
        let rel = page - start;
        let (mut table, mut system) = (root & 0x0000_ffff_ffff_ffc0, root & SYSTEM != 0);
        loop {
            // A PTB has 512 entries, times 2^BLOCK_SIZE; directories have 512.
            let shift = if level == 0 { 0 } else { 9 * level + block };
            let index = match level {
                // The flat GART table of depth 0 is as long as its range.
                0 if depth == 0 => rel,
                0 => rel & ((512 << block) - 1),
                _ if level == depth => rel >> shift,
                _ => (rel >> shift) & 511,
            };
            if level != 0 && index >= 512 {
                return Err(Cause::Range);
            }
            let entry = self.table_entry(table, system, index, depth - level + 1)?;
            if entry & VALID == 0 {
                self.gmc.missed = (!system).then_some(table + index * 8);
                return Err(if level == 0 { Cause::Permission(1) } else { Cause::Walk(depth - level + 1) });
            }
            let leaf = match (gfx12, level) {
                (true, _) => entry & LEAF_GFX12 != 0,
                (false, 0) => true,
                (false, _) => entry & PDE_PTE != 0,
            };
            if leaf {
                let size = PAGE << shift;
                let base = entry & ADDRESS;
                if base & (size - 1) != 0 {
                    self.violation(
                        Rule::Other,
                        format!("page of {size:#x} bytes for {va:#x} at {base:#x}: not aligned to its size"),
                    );
                    return Err(Cause::Mapping);
                }
                let inside = (rel & ((1 << shift) - 1)) * PAGE;
                let here = base + inside;
                let fragment = PAGE << ((entry >> 7 & 0x1f).min(31));
                if shift == 0 && fragment > PAGE && ((rel * PAGE) ^ here) & (fragment - 1) != 0 {
                    self.violation(
                        Rule::Other,
                        format!("fragment of {fragment:#x} bytes for {va:#x} at {here:#x}: address and memory are not aligned alike"),
                    );
                }
                return Ok(entry & !ADDRESS | here & ADDRESS);
            }
            if level == 0 {
                return Err(Cause::Mapping);
            }
            table = entry & 0x0000_ffff_ffff_ffc0;
            system = entry & SYSTEM != 0;
            level -= 1;
        }
    }

    /// The leaf for a page, through the TLB.
    fn lookup(&mut self, hub: Hub, vmid: u8, va: u64) -> Result<u64, Cause> {
        let key = (hub, vmid, va / PAGE);
        let generation = self.vram.table_generation;
        let slot = key.2 as usize % RECENT;
        if let Some(Some((known, entry))) = self.gmc.recent.get(slot)
            && *known == key
            && entry.generation == generation
        {
            return Ok(entry.pte);
        }
        let pte = self.lookup_tlb(key, va)?;
        self.gmc.recent.resize(RECENT, None);
        self.gmc.recent[slot] = self.gmc.tlb.get(&key).map(|e| (key, *e));
        Ok(pte)
    }

    fn lookup_tlb(&mut self, key: Key, va: u64) -> Result<u64, Cause> {
        let (hub, vmid, _) = key;
        let generation = self.vram.table_generation;
        if let Some(entry) = self.gmc.tlb.get(&key).copied() {
            if entry.generation == generation {
                return Ok(entry.pte);
            }
            let now = self.walk(hub, vmid, va);
            if now == Ok(entry.pte) {
                self.gmc.tlb.insert(key, Entry { pte: entry.pte, generation });
                return Ok(entry.pte);
            }
            self.violation(
                Rule::StaleTlb,
                format!("{hub:?}HUB VMID {vmid} uses {va:#x}: its entry changed and was not invalidated"),
            );
            if !self.config.judge {
                return Ok(entry.pte);
            }
        }
        let pte = self.walk(hub, vmid, va)?;
        self.gmc.tlb.insert(key, Entry { pte, generation: self.vram.table_generation });
        Ok(pte)
    }

    fn translate(&mut self, who: Access, va: u64) -> Result<(Place, u64), Cause> {
        if let Some(found) = self.aperture(who, va) {
            return Ok(found);
        }
        let pte = self.lookup(who.hub, who.vmid, va)?;
        let need = match who.kind {
            Kind::Read => READABLE,
            Kind::Write => WRITEABLE,
            Kind::Execute => EXECUTABLE,
            Kind::Atomic => READABLE | WRITEABLE,
        };
        let missing = need & !pte;
        if missing != 0 {
            let bits = [(READABLE, 2), (WRITEABLE, 4), (EXECUTABLE, 8)];
            return Err(Cause::Permission(bits.iter().filter(|b| missing & b.0 != 0).map(|b| b.1).sum()));
        }
        let here = (pte & ADDRESS) + va % PAGE;
        let place = if pte & SYSTEM != 0 { Place::System(here) } else { Place::Vram(here) };
        Ok((place, PAGE - va % PAGE))
    }

    fn fault(&mut self, who: Access, va: u64, cause: Cause) -> MemFault {
        let fault = MemFault { va };
        if std::mem::replace(&mut self.gmc.reporting, true) {
            return fault;
        }
        let p = prefix(who.hub);
        let gfx12 = self.config.chip.gfx12();
        let status = format!("{p}VM_L2_PROTECTION_FAULT_STATUS{}", if gfx12 { "_LO32" } else { "" });
        let write = matches!(who.kind, Kind::Write | Kind::Atomic);
        let old = self.regs.val(&status);
        if old == 0 {
            let (walker, permission, mapping) = match cause {
                Cause::Range => (0, 0, 1),
                Cause::Walk(level) => (level.min(7), 0, 0),
                Cause::Permission(bits) => (0, bits, 0),
                Cause::Mapping => (0, 0, 1),
            };
            let fields = [
                ("WALKER_ERROR", walker),
                ("PERMISSION_FAULTS", permission),
                ("MAPPING_ERROR", mapping),
                ("CID", u32::from(who.client)),
                ("RW", u32::from(write)),
                ("ATOMIC", u32::from(who.kind == Kind::Atomic)),
                ("VMID", u32::from(who.vmid)),
            ];
            let value = fields.iter().fold(0, |v, (f, x)| v | self.regs.place(&status, f, *x));
            self.regs.put(&status, value);
            self.regs.put(&format!("{p}VM_L2_PROTECTION_FAULT_ADDR_LO32"), (va >> 12) as u32);
            self.regs.put(&format!("{p}VM_L2_PROTECTION_FAULT_ADDR_HI32"), (va >> 44) as u32);
        } else {
            let more = self.regs.place(&status, "MORE_FAULTS", 1);
            self.regs.put(&status, old | more);
        }
        let cntl = format!("{p}VM_CONTEXT{}_CNTL", who.vmid);
        let enabled = match cause {
            Cause::Range => "RANGE_PROTECTION_FAULT_ENABLE_INTERRUPT",
            Cause::Walk(_) => "PDE0_PROTECTION_FAULT_ENABLE_INTERRUPT",
            Cause::Permission(2) => "READ_PROTECTION_FAULT_ENABLE_INTERRUPT",
            Cause::Permission(4 | 6) => "WRITE_PROTECTION_FAULT_ENABLE_INTERRUPT",
            Cause::Permission(8) => "EXECUTE_PROTECTION_FAULT_ENABLE_INTERRUPT",
            _ => "VALID_PROTECTION_FAULT_ENABLE_INTERRUPT",
        };
        if self.regs.fld(&cntl, enabled) != 0 {
            // `gmc_v11_0_process_interrupt`: client UTCL2 or VMC, source 0, address and flags.
            self.raise(Interrupt {
                client: if who.hub == Hub::Gc { 0x1b } else { 0x12 },
                source: 0,
                vmid: who.vmid,
                vmid_mm: who.hub == Hub::Mm,
                data: [(va >> 12) as u32, (va >> 44) as u32 & 0xf | u32::from(write) << 5, 0, 0],
                ..Interrupt::default()
            });
        }
        if let Some(entry) = self.gmc.missed.take() {
            self.engine_misses(who, entry, va);
        }
        self.gmc.reporting = false;
        fault
    }

    /// An engine reads.
    pub(crate) fn mem_read(&mut self, who: Access, va: u64, buf: &mut [u8]) -> Result<(), MemFault> {
        let mut done = 0;
        while done < buf.len() {
            let at = va.wrapping_add(done as u64);
            let (place, left) = self.translate(who, at).map_err(|c| self.fault(who, at, c))?;
            let n = (buf.len() - done).min(usize::try_from(left).unwrap_or(usize::MAX));
            let part = &mut buf[done..done + n];
            match place {
                Place::Vram(offset) => {
                    if !self.vram.contains(offset, n) {
                        return Err(self.fault(who, at, Cause::Mapping));
                    }
                    if let Some(stale) = self.vram.unflushed(offset, n) {
                        self.violation(
                            Rule::StaleHdp,
                            format!(
                                "{} reads VRAM {stale:#x}, which the CPU wrote and did not flush",
                                who_name(who)
                            ),
                        );
                    }
                    self.vram.engine_read(offset, part);
                    self.engine_touches(who, place, n, false);
                }
                Place::System(addr) => {
                    if let Err(why) = self.bus_read(addr, part) {
                        self.refused(who, at, addr, why);
                        return Err(self.fault(who, at, Cause::Mapping));
                    }
                    self.engine_touches(who, place, n, false);
                }
            }
            done += n;
        }
        Ok(())
    }

    /// An engine writes.
    pub(crate) fn mem_write(&mut self, who: Access, va: u64, data: &[u8]) -> Result<(), MemFault> {
        let mut done = 0;
        while done < data.len() {
            let at = va.wrapping_add(done as u64);
            let (place, left) = self.translate(who, at).map_err(|c| self.fault(who, at, c))?;
            let n = (data.len() - done).min(usize::try_from(left).unwrap_or(usize::MAX));
            let part = &data[done..done + n];
            match place {
                Place::Vram(offset) => {
                    if !self.vram.contains(offset, n) {
                        return Err(self.fault(who, at, Cause::Mapping));
                    }
                    self.guard(offset, n, who);
                    self.vram.engine_write(offset, part);
                    self.engine_touches(who, place, n, true);
                }
                Place::System(addr) => {
                    if let Err(why) = self.bus_write(addr, part) {
                        self.refused(who, at, addr, why);
                        return Err(self.fault(who, at, Cause::Mapping));
                    }
                    self.engine_touches(who, place, n, true);
                }
            }
            done += n;
        }
        Ok(())
    }

    fn bus_read(&self, addr: u64, buf: &mut [u8]) -> Result<(), String> {
        if !self.pci.bus_master() {
            return Err("bus mastering is off".into());
        }
        self.dma.read(addr, buf).map_err(|e| e.to_string())
    }

    fn bus_write(&self, addr: u64, data: &[u8]) -> Result<(), String> {
        if !self.pci.bus_master() {
            return Err("bus mastering is off".into());
        }
        self.dma.write(addr, data).map_err(|e| e.to_string())
    }

    fn refused(&mut self, who: Access, va: u64, addr: u64, why: String) {
        self.violation(
            Rule::UnmappedDma,
            format!("{} at {va:#x}: bus address {addr:#x}: {why}", who_name(who)),
        );
    }
}

/// An accessor's name for reports.
pub(crate) fn who_name(who: Access) -> String {
    format!("{:?}HUB client {} VMID {}", who.hub, who.client, who.vmid)
}
