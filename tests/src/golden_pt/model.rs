//! Plain models of an address space, and readers of tables that share no code with the driver.

use std::collections::{BTreeMap, BTreeSet};

use amdev_core::bus::Segment;
use amdev_core::mm::pte::PteFormat;
use anyhow::{Context, Result};
use serde_json::Value;

use crate::golden_tlsf::{hex, list};
use crate::table_memory::TableVram;

const SIZES: [u64; 4] = [512 << 30, 1 << 30, 2 << 20, 4 << 10];

/// How a page is mapped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Attr {
    /// Memory on the bus.
    pub system: bool,
    /// Snoops the CPU's caches.
    pub snooped: bool,
    /// Memory type UC.
    pub uncached: bool,
}

impl Attr {
    /// From the flags of a recorded step.
    pub fn read(flags: &Value, args: &Value) -> Attr {
        let is = |name| flags[name].as_bool().or(args[name].as_bool()).unwrap_or(false);
        Attr { system: is("system"), snooped: is("snooped"), uncached: is("uncached") }
    }
}

/// A mapped page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// Bytes: 4 KiB, 2 MiB or 1 GiB.
    pub size: u64,
    /// Physical address.
    pub pa: u64,
    /// How it is mapped.
    pub attr: Attr,
    /// TLB hint.
    pub fragment: u32,
}

/// All mapped pages by virtual address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pages(pub BTreeMap<u64, Page>);

/// Joins segments that follow each other.
pub fn join(segments: &[Segment]) -> Vec<Segment> {
    let mut out: Vec<Segment> = Vec::new();
    for s in segments {
        match out.last_mut() {
            Some(last) if last.addr + last.len == s.addr => last.len += s.len,
            _ => out.push(*s),
        }
    }
    out
}

fn low_bits(values: &[u64]) -> u32 {
    values.iter().fold(0, |all, v| all | v).trailing_zeros().saturating_sub(12).min(31)
}

impl Pages {
    /// Maps as is right: pages as large as both addresses allow; within a table one fragment for
    /// each run of pages, as wide as both addresses and the length of the run allow (case C16).
    pub fn map(&mut self, base: u64, va: u64, segments: &[Segment], attr: Attr) {
        let mut at = va - base;
        for Segment { addr, len } in join(segments) {
            let (mut pa, mut rest) = (addr, len);
            while rest > 0 {
                let size = SIZES[1..]
                    .iter()
                    .copied()
                    .find(|s| at.is_multiple_of(*s) && pa.is_multiple_of(*s) && *s <= rest)
                    .unwrap_or(4096);
                let table_end = (at / (size * 512) + 1) * size * 512;
                let run = (rest / size * size).min(table_end - at);
                let fragment = low_bits(&[at, pa, run]);
                for k in 0..run / size {
                    self.0.insert(base + at + k * size, Page { size, pa: pa + k * size, attr, fragment });
                }
                (at, pa, rest) = (at + run, pa + run, rest - run);
            }
        }
    }

    /// Unmaps; what stays of a fragment gets a narrower one.
    pub fn unmap(&mut self, base: u64, va: u64, size: u64) {
        let edges = [self.0.get(&va).copied(), self.0.range(..va + size).next_back().map(|p| *p.1)];
        self.forget(va, size);
        for (edge, is_first) in edges.into_iter().zip([true, false]) {
            let Some(edge) = edge else { continue };
            let block = 4096u64 << edge.fragment;
            let inside = if is_first { va } else { va + size - edge.size };
            let start = base + (inside - base) / block * block;
            let (lo, hi) = if is_first { (start, va) } else { (va + size, start + block) };
            if block <= edge.size || lo >= hi {
                continue;
            }
            let first = self.0[&lo];
            let fragment = low_bits(&[lo - base, first.pa, hi - lo]);
            for (_, page) in self.0.range_mut(lo..hi) {
                page.fragment = fragment;
            }
        }
    }

    /// Maps as the reference does: pages by the virtual address alone (fault 17), fragments from a
    /// doubled offset and without the physical address (fault 18), up to the first error.
    pub fn map_as_reference(&mut self, base: u64, va: u64, segments: &[Segment], attr: Attr) {
        let mut at = va - base;
        for Segment { addr, len } in segments {
            let mut off = 0;
            while off < *len {
                let size =
                    SIZES.into_iter().find(|s| at.is_multiple_of(*s) && *s <= len - off).unwrap_or(4096);
                let table_end = (at / (size * 512) + 1) * size * 512;
                let run = ((len - off) / size * size).min(table_end - at);
                let fragment = low_bits(&[at + off, run]);
                for k in 0..run / size {
                    let (va, pa) = (base + at + k * size, addr + off + k * size);
                    let taken = self.0.range(va..va + size).next().is_some();
                    if taken || pa >> 44 != 0 {
                        return;
                    }
                    self.0.insert(va, Page { size, pa, attr, fragment });
                }
                (at, off) = (at + run, off + run);
            }
        }
    }

    /// Unmaps as the reference does: page by page up to the first error.
    pub fn unmap_as_reference(&mut self, va: u64, size: u64) {
        let mut at = va;
        while at < va + size {
            match self.0.get(&at).copied() {
                Some(page) if at + page.size <= va + size => {
                    self.0.remove(&at);
                    at += page.size;
                }
                _ => return,
            }
        }
    }

    /// Drops the pages of a range.
    pub fn forget(&mut self, va: u64, size: u64) {
        self.0.retain(|at, _| *at < va || *at >= va + size);
    }

    /// Physical pieces behind a range.
    pub fn segments(&self, va: u64, size: u64) -> Vec<Segment> {
        let pages: Vec<_> =
            self.0.range(va..va + size).map(|(_, p)| Segment { addr: p.pa, len: p.size }).collect();
        join(&pages)
    }

    /// Bytes and attributes of the pages of a range.
    pub fn attrs(&self, va: u64, size: u64) -> BTreeMap<Attr, u64> {
        let mut all = BTreeMap::new();
        for (_, page) in self.0.range(va..va + size) {
            *all.entry(page.attr).or_default() += page.size;
        }
        all
    }

    /// Whether a page uses some of this VRAM.
    pub fn uses(&self, pa: u64, len: u64) -> bool {
        self.0.values().any(|p| !p.attr.system && p.pa < pa + len && pa < p.pa + p.size)
    }

    /// Tables needed, with the root.
    pub fn tables(&self, base: u64) -> usize {
        let mut all = BTreeSet::from([(0, 0)]);
        for (va, page) in &self.0 {
            for size in SIZES.into_iter().filter(|s| *s > page.size) {
                all.insert((size, (va - base) / size));
            }
        }
        all.len()
    }

    /// The first page in which `other` differs.
    pub fn first_difference(&self, other: &Pages) -> String {
        for va in self.0.keys().chain(other.0.keys()).collect::<BTreeSet<_>>() {
            let show = |p: Option<&Page>| p.map_or("nothing".into(), |p| p.to_string());
            if self.0.get(va) != other.0.get(va) {
                return format!("{va:#x} should be {}, is {}", show(self.0.get(va)), show(other.0.get(va)));
            }
        }
        "equal".into()
    }

    fn at(&self, va: u64) -> Option<(u64, Attr)> {
        let (start, page) = self.0.range(..=va).next_back()?;
        (va - start < page.size).then(|| (page.pa + (va - start), page.attr))
    }

    /// Why the reference's pages differ from these, one line for each page that does; without a
    /// fault where there is no listed reason.
    pub fn explain(&self, theirs: &Pages) -> Vec<(Option<&'static str>, String)> {
        let mut reasons = Vec::new();
        for (va, page) in &theirs.0 {
            let ours = self.0.get(va);
            let same = ours.is_some_and(|o| (o.size, o.pa, o.attr) == (page.size, page.pa, page.attr));
            let step = (page.size / 512).max(4096);
            let translated = (0..page.size)
                .step_by(step as usize)
                .all(|k| self.at(va + k) == Some((page.pa + k, page.attr)));
            let detail = || format!("{va:#x}: recorded is {page}");
            if same && ours.is_some_and(|o| o.fragment == page.fragment) {
                continue;
            } else if same {
                reasons.push((Some("18"), detail()));
            } else if translated && page.pa % page.size != 0 {
                reasons.push((Some("17"), detail()));
            } else {
                reasons.push((None, detail()));
            }
        }
        for (va, page) in &self.0 {
            if theirs.at(*va) != Some((page.pa, page.attr)) {
                reasons.push((Some("C14"), format!("{va:#x}: {page} is not recorded")));
            }
        }
        reasons
    }
}

/// What tables hold.
#[derive(Default)]
pub struct Tables {
    /// All valid pages.
    pub pages: Pages,
    /// Addresses of the tables, with the root.
    pub addrs: BTreeSet<u64>,
    /// Entries that are not valid and not zero.
    pub stale: usize,
    /// All entries that are not zero, by address.
    pub words: BTreeMap<u64, u64>,
    /// What is wrong in itself.
    pub wrong: Vec<String>,
}

const ADDR: u64 = 0x0000_ffff_ffff_f000;

impl Tables {
    fn entry(&mut self, format: PteFormat, lv: usize, va: u64, raw: u64) -> Option<u64> {
        let (page_bit, mtype_shift) = match format {
            PteFormat::Gfx11 => (1 << 54, 48),
            PteFormat::Gfx12 => (1 << 63, 54),
        };
        // In the last level gfx11 has no such bit, and gfx12 always.
        let is_page = lv == 3 || raw & page_bit != 0;
        if raw & 1 == 0 {
            self.stale += 1;
            return None;
        }
        let needs_bit = lv < 3 || format == PteFormat::Gfx12;
        let rest = raw & !ADDR;
        if !is_page {
            if rest != 1 {
                self.wrong.push(format!("entry {raw:#x} of a table at {va:#x} has flags"));
            }
            return Some(raw & ADDR);
        }
        let attr =
            Attr { system: raw & 2 != 0, snooped: raw & 4 != 0, uncached: raw >> mtype_shift & 3 == 3 };
        let fragment = (raw >> 7 & 31) as u32;
        let again = 0x71
            | u64::from(attr.system) << 1
            | u64::from(attr.snooped) << 2
            | (u64::from(attr.uncached) * 3) << mtype_shift
            | u64::from(fragment) << 7
            | if needs_bit { page_bit } else { 0 };
        if again != rest {
            self.wrong.push(format!("page {raw:#x} at {va:#x} has unexpected bits"));
        }
        self.pages.0.insert(va, Page { size: SIZES[lv], pa: raw & ADDR, attr, fragment });
        None
    }
}

/// Reads the tables in a memory.
pub fn read_tables(mem: &TableVram, format: PteFormat, base: u64, root: u64) -> Tables {
    let mut tables = Tables::default();
    let mut todo = vec![(root, 0, base)];
    while let Some((addr, lv, va)) = todo.pop() {
        if !tables.addrs.insert(addr) {
            tables.wrong.push(format!("table {addr:#x} is linked twice"));
            continue;
        }
        for (pa, raw) in mem.words().range(addr..addr + 4096) {
            let va = va + (pa - addr) / 8 * SIZES[lv];
            tables.words.insert(*pa, *raw);
            if let Some(child) = tables.entry(format, lv, va, *raw) {
                todo.push((child, lv + 1, va));
            }
        }
    }
    tables
}

/// Reads recorded tables.
pub fn recorded_tables(value: &Value, format: PteFormat, base: u64) -> Result<Tables> {
    let mut tables = Tables::default();
    // Tables that recorded entries point at: address to level and first virtual address.
    let mut linked = BTreeMap::new();
    for table in value.as_array().context("field \"tables\" is missing")? {
        let addr = hex(&table["pt_paddr"])?;
        let lv = table["lv"].as_u64().filter(|l| *l < 4).context("lv is not 0 to 3")? as usize;
        let place = if tables.addrs.is_empty() { Some((0, base)) } else { linked.remove(&addr) };
        if tables.addrs.is_empty() && addr != 0 {
            tables.wrong.push(format!("the root table is at {addr:#x}, not at 0"));
        }
        tables.addrs.insert(addr);
        let Some((expected, start)) = place else {
            tables.wrong.push(format!("no recorded entry points at table {addr:#x}"));
            continue;
        };
        if expected != lv {
            tables.wrong.push(format!("table {addr:#x} should be of level {expected}"));
        }
        for entry in list(table, "entries")? {
            let index = entry["idx"].as_u64().context("idx")?;
            let count = entry["n"].as_u64().unwrap_or(1).min(512);
            let step = if entry["step"].is_null() { 0 } else { hex(&entry["step"])? };
            let (first, leaf) = (hex(&entry["pte"])?, entry["leaf"].as_bool().context("leaf")?);
            if hex(&entry["va"])? != start + index * SIZES[lv] || index + count > 512 {
                tables.wrong.push(format!("entry {index} of table {addr:#x} is not at the recorded address"));
            }
            for k in 0..count {
                let (raw, va) = (first.wrapping_add(k.wrapping_mul(step)), start + (index + k) * SIZES[lv]);
                if tables.words.insert(addr + (index + k) * 8, raw).is_some() {
                    tables.wrong.push(format!("entry {} of table {addr:#x} is recorded twice", index + k));
                }
                let child = tables.entry(format, lv, va, raw);
                if raw & 1 != 0 && child.is_some() == leaf {
                    tables.wrong.push(format!("entry {raw:#x} at {va:#x} is not what \"leaf\" says"));
                }
                if let Some(child) = child {
                    linked.insert(child, (lv + 1, va));
                }
            }
        }
    }
    for addr in linked.keys() {
        tables.wrong.push(format!("table {addr:#x} is not recorded"));
    }
    Ok(tables)
}

/// For messages.
impl std::fmt::Display for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x} bytes at {:#x}, {:?}, fragment {}", self.size, self.pa, self.attr, self.fragment)
    }
}
