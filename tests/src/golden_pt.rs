//! Compares page tables with recorded ones of the reference (`pt.json`).
//!
//! Two small models stand between the two: what is right (the largest page that both addresses
//! allow, fragments by case C16) and what the reference does, its faults included. This driver must
//! equal the first; the file must equal the second; where the models differ, a listed fault is
//! noted: 14 (unmapping is not flushed), 15 (unmapped entries are not zero), 17 (pages with unaligned
//! physical addresses), 18 (fragments), 19 (a boot table freed to the wrong allocator), 20 (virtual
//! addresses leak), C14 (a failed call leaves something behind).

use std::collections::BTreeMap;
use std::ops::Range;

use amdev_core::bus::Segment;
use amdev_core::mm::pte::PteFormat;
use amdev_core::mm::tlsf::Block;
use amdev_core::mm::vm::{AllocOptions, Booting, Running, VaRange, Vm, VmConfig, VmError};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::golden_tlsf::{hex, list, text};
use crate::table_memory::{Injected, TableVram};
use crate::verdict::Verdict;

mod flags;
pub mod model;

use flags::flag_table;
use model::{Attr, Pages, read_tables};

const PAGE: u64 = 0x1000;

/// Compares all scenarios and flag tables of a file.
///
/// # Errors
/// A file that is not of this format.
pub fn judge(json: &[u8]) -> Result<Verdict> {
    let root: Value = serde_json::from_slice(json).context("not JSON")?;
    let base = hex(&root["va_base"]).context("va_base")?;
    let formats = root["formats"].as_object().context("field \"formats\" is missing")?;
    ensure!(!formats.is_empty(), "there are no formats");
    let mut verdict = Verdict::default();
    for (name, value) in formats {
        let format = match name.as_str() {
            "gfx11" => PteFormat::Gfx11,
            "gfx12" => PteFormat::Gfx12,
            other => bail!("unknown format {other:?}"),
        };
        flag_table(name, format, &value["pte_flags"], &mut verdict)
            .with_context(|| format!("{name} pte_flags"))?;
        for scenario in list(value, "scenarios")? {
            let place = format!("{name} {}", text(scenario, "name")?);
            Judge::new(&place, format, base, scenario)?
                .run(scenario, &mut verdict)
                .with_context(|| format!("scenario {place}"))?;
        }
    }
    Ok(verdict)
}

/// The driver, before and after its boot.
enum AnyVm<'s> {
    Booting(Vm<'s, Booting>),
    Running(Vm<'s, Running>),
}

/// Both sides' state in a scenario.
struct Judge {
    place: String,
    format: PteFormat,
    base: u64,
    pool: Range<u64>,
    /// What is right, and what the reference has.
    right: Pages,
    theirs: Pages,
    /// Live allocations by handle: recorded (va, size, segments), ours (va, size).
    live: BTreeMap<u64, (u64, u64, Vec<Segment>, u64)>,
    /// Bytes that the reference has taken, by its log.
    taken: i128,
    /// The recorded memory of tables.
    image: BTreeMap<u64, u64>,
    failed_alloc: bool,
    boot_mapped: bool,
}

/// One recorded step.
struct Step<'a> {
    value: &'a Value,
    op: &'a str,
    va: u64,
    size: u64,
    segments: Vec<Segment>,
    error: Option<&'a str>,
}

fn segments(value: &Value) -> Result<Vec<Segment>> {
    if let Some(rows) = value.as_array() {
        return rows.iter().map(|r| Ok(Segment { addr: hex(&r[0])?, len: hex(&r[1])? })).collect();
    }
    if value.is_null() {
        return Ok(Vec::new());
    }
    let (first, stride, len) = (hex(&value["first"])?, hex(&value["stride"])?, hex(&value["size"])?);
    let count = value["count"].as_u64().filter(|n| *n < 1 << 20).context("paddrs.count")?;
    Ok((0..count).map(|k| Segment { addr: first.wrapping_add(k.wrapping_mul(stride)), len }).collect())
}

impl Judge {
    fn new(place: &str, format: PteFormat, base: u64, scenario: &Value) -> Result<Self> {
        // The reference's pool reaches 32 MiB into the tail that is reserved.
        let vram = hex(&scenario["vram_size"]).context("vram_size")?;
        let pool = 32 << 20..vram.checked_sub(32 << 20).context("vram_size is too small")?;
        Ok(Judge {
            place: place.to_owned(),
            format,
            base,
            pool,
            right: Pages::default(),
            theirs: Pages::default(),
            live: BTreeMap::new(),
            taken: 0,
            image: BTreeMap::new(),
            failed_alloc: false,
            boot_mapped: false,
        })
    }

    fn run(mut self, scenario: &Value, verdict: &mut Verdict) -> Result<()> {
        let config =
            VmConfig { format: self.format, va_base: self.base, boot: 0..32 << 20, pool: self.pool.clone() };
        let mut storage = vec![Block::EMPTY; 3 << 12];
        let (va_blocks, rest) = storage.split_at_mut(1 << 12);
        let (boot_blocks, pool_blocks) = rest.split_at_mut(1 << 12);
        let va = VaRange::over(self.base..self.base + (512 << 30), va_blocks)?;
        let mut mem = TableVram::default();
        let mut vm = AnyVm::Booting(Vm::new(&mut mem, &config, boot_blocks, pool_blocks, &va)?);
        for (row, value) in list(scenario, "steps")?.iter().enumerate() {
            let step = Step {
                value,
                op: text(value, "op")?,
                va: if value["vaddr"].is_null() { 0 } else { hex(&value["vaddr"])? },
                size: if value["size"].is_null() { 0 } else { hex(&value["size"])? },
                segments: segments(&value["paddrs"])?,
                error: value["error"].as_str(),
            };
            let place = format!("{} step {row} ({})", self.place, step.op);
            let boot = value["flags"]["boot"].as_bool().unwrap_or(false);
            if !boot && !self.boot_mapped {
                vm = match vm {
                    AnyVm::Booting(vm) => AnyVm::Running(vm.boot_done()),
                    running => running,
                };
            }
            self.boot_mapped |= boot;
            let mut wrong = Vec::new();
            mem.flushes = 0;
            let own = self.call(&step, &mut vm, &mut mem, &mut wrong)?;
            self.outcome(&step, own, mem.flushes, &place, &mut wrong, verdict);
            self.recorded(&step, &place, &mut wrong, verdict)?;
            match &vm {
                AnyVm::Booting(vm) => self.ours(vm, &mem, &mut wrong),
                AnyVm::Running(vm) => self.ours(vm, &mem, &mut wrong),
            }
            self.compare(&step, &vm, &place, &mut wrong, verdict)?;
            verdict.row(&place, wrong);
        }
        Ok(())
    }

    /// Makes the call; returns what is ours of the result, and follows it in the right model.
    fn call(
        &mut self,
        step: &Step<'_>,
        vm: &mut AnyVm<'_>,
        mem: &mut TableVram,
        wrong: &mut Vec<String>,
    ) -> Result<Result<u64, VmError<Injected>>> {
        let flags = Attr::read(&step.value["flags"], &step.value["args"]);
        Ok(match (step.op, vm) {
            ("map", vm) => {
                let done = match vm {
                    AnyVm::Booting(vm) => vm.map(mem, step.va, step.size, &step.segments, flags.map_flags()),
                    AnyVm::Running(vm) => vm.map(mem, step.va, step.size, &step.segments, flags.map_flags()),
                };
                if done.is_ok() {
                    self.right.map(self.base, step.va, &step.segments, flags);
                }
                done.map(|()| step.va)
            }
            ("unmap", vm) => {
                let done = match vm {
                    AnyVm::Booting(vm) => vm.unmap(mem, step.va, step.size),
                    AnyVm::Running(vm) => vm.unmap(mem, step.va, step.size),
                };
                if done.is_ok() {
                    self.right.unmap(self.base, step.va, step.size);
                }
                done.map(|()| step.va)
            }
            ("valloc", AnyVm::Running(vm)) => {
                let args = &step.value["args"];
                let contiguous = args["contiguous"].as_bool().unwrap_or(false);
                let align = args["align"].as_u64().unwrap_or(PAGE);
                let options = AllocOptions { align, flags: flags.map_flags(), contiguous, zero: contiguous };
                let done = vm.valloc(mem, step.size, &options);
                if let Ok(own) = done {
                    let size = step.size.next_multiple_of(PAGE);
                    if own.size != size || own.va % align != 0 {
                        wrong.push(format!("{own:x?} is not {size:#x} bytes aligned to {align:#x}"));
                    }
                    let pages = read_tables(mem, self.format, self.base, vm.space().root).pages;
                    let pieces = pages.segments(own.va, own.size);
                    if contiguous && pieces.len() != 1 {
                        wrong.push(format!("{} pieces where one was asked for", pieces.len()));
                    }
                    for s in &pieces {
                        if s.addr < self.pool.start || s.addr + s.len > self.pool.end {
                            wrong.push(format!("{:#x}+{:#x} is outside of the pool", s.addr, s.len));
                        }
                        if self.right.uses(s.addr, s.len) {
                            wrong.push(format!("{:#x}+{:#x} is in use", s.addr, s.len));
                        }
                    }
                    self.right.map(self.base, own.va, &pieces, flags);
                }
                done.map(|own| own.va)
            }
            ("vfree", AnyVm::Running(vm)) => {
                let handle = step.value["vm"].as_u64().context("vfree without a handle")?;
                let Some((_, size, _, own)) = self.live.get(&handle) else {
                    bail!("vfree of {handle}, which was not allocated")
                };
                let done = vm.vfree(mem, *own);
                if done.is_ok() {
                    self.right.unmap(self.base, *own, *size);
                }
                done.map(|()| *own)
            }
            (op, _) => bail!("operation {op:?} is unknown, or comes before the end of the boot"),
        })
    }

    /// Compares success, failure and flushes.
    fn outcome(
        &mut self,
        step: &Step<'_>,
        own: Result<u64, VmError<Injected>>,
        flushes: u64,
        place: &str,
        wrong: &mut Vec<String>,
        verdict: &mut Verdict,
    ) {
        match (&own, step.error) {
            (Ok(_), None) => {}
            (Err(ours), Some(theirs)) if same_kind(ours, theirs) => {}
            (Ok(_), Some(error)) if error.starts_with("KeyError") && self.boot_mapped => {
                verdict.deviation("19", place);
            }
            (own, error) => wrong.push(format!("{own:x?}, recorded is {error:?}")),
        }
        if flushes != u64::from(own.is_ok()) {
            wrong.push(format!("{flushes} TLB flushes"));
        }
        let recorded = &step.value["tlb_flushes"];
        let both = serde_json::json!([["GC", 0], ["MM", 0]]);
        let none = serde_json::json!([]);
        match (step.op, step.error) {
            ("unmap" | "vfree", None) if *recorded == none => verdict.deviation("14", place),
            (_, None) if *recorded == both => {}
            (_, Some(_)) if *recorded == none => {}
            _ => wrong.push(format!("recorded flushes are {recorded}")),
        }
        if step.op == "valloc" {
            self.failed_alloc |= step.error.is_some();
            if let (Ok(own), Ok(va)) = (own, hex(&step.value["va_addr"])) {
                verdict.address(own == va);
                if own != va {
                    if self.failed_alloc {
                        verdict.deviation("20", place);
                    } else {
                        wrong.push(format!("virtual address {own:#x}, recorded is {va:#x}"));
                    }
                }
                let handle = step.value["vm"].as_u64().unwrap_or(u64::MAX);
                let size = step.size.next_multiple_of(PAGE);
                if self.live.insert(handle, (va, size, step.segments.clone(), own)).is_some() {
                    wrong.push(format!("handle {handle} is recorded twice"));
                }
            }
        }
    }

    /// Follows a step in the model of the reference, and compares it with what is recorded.
    fn recorded(
        &mut self,
        step: &Step<'_>,
        place: &str,
        wrong: &mut Vec<String>,
        verdict: &mut Verdict,
    ) -> Result<()> {
        let flags = Attr::read(&step.value["flags"], &step.value["args"]);
        let total: u64 = step.segments.iter().map(|s| s.len).sum();
        match step.op {
            "map" if total == step.size => {
                self.theirs.map_as_reference(self.base, step.va, &step.segments, flags)
            }
            "map" => {}
            "unmap" => self.theirs.unmap_as_reference(step.va, step.size),
            "valloc" if step.error.is_none() => {
                let va = hex(&step.value["va_addr"])?;
                let size = step.size.next_multiple_of(PAGE);
                if total != size || hex(&step.value["vm_size"])? != size {
                    wrong.push(format!("recorded pieces hold {total:#x} bytes, not {size:#x}"));
                }
                self.theirs.map_as_reference(self.base, va, &step.segments, flags);
            }
            "vfree" => {
                let handle = step.value["vm"].as_u64().unwrap_or(u64::MAX);
                if let Some((va, size, pieces, _)) = self.live.remove(&handle) {
                    self.theirs.unmap_as_reference(va, size);
                    self.taken -= i128::from(pieces.iter().map(|s| s.len).sum::<u64>());
                }
            }
            _ => {}
        }
        if let Some(writes) = step.value["vram_writes"].as_array() {
            if step.value["n_vram_writes"].as_u64() != Some(writes.len() as u64) {
                wrong.push("n_vram_writes is not the number of recorded writes".into());
            }
            for write in writes {
                let pa = hex(&write[0])?;
                match write[1].as_str().and_then(|t| t.strip_prefix("zero[")?.strip_suffix(']')?.parse().ok())
                {
                    Some(len) => {
                        let len: u64 = len;
                        self.image.retain(|at, _| *at < pa || *at >= pa.saturating_add(len));
                    }
                    None => {
                        self.image.insert(pa, hex(&write[1])?);
                    }
                }
            }
        }
        let tables = model::recorded_tables(&step.value["tables"], self.format, self.base)?;
        wrong.extend(tables.wrong.iter().cloned());
        if tables.stale > 0 {
            verdict.deviation("15", place);
        }
        if tables.pages != self.theirs {
            wrong.push(format!("recorded pages: {}", self.theirs.first_difference(&tables.pages)));
        }
        if step.value["vram_writes"].is_array() {
            let listed: BTreeMap<u64, u64> = self
                .image
                .iter()
                .filter(|(pa, word)| tables.addrs.contains(&(**pa & !0xfff)) && **word != 0)
                .map(|(pa, word)| (*pa, *word))
                .collect();
            if listed != tables.words {
                wrong.push("the recorded writes do not leave the recorded tables".into());
            }
        }
        self.image = tables.words;
        // What the reference took and gave back, by its own log.
        let log = list(step.value, "pa_log")?;
        if step.op != "valloc" || step.error.is_none() {
            // The reference zeros what it allocates in one piece, and only that.
            let contiguous = step.value["args"]["contiguous"].as_bool().unwrap_or(false);
            if step.op == "valloc" && log.first().is_none_or(|l| l[3] != contiguous) {
                wrong.push("the log and \"contiguous\" do not agree".into());
            }
            for entry in log {
                match entry[0].as_str() {
                    Some("palloc") => self.taken += i128::from(hex(&entry[1])?),
                    Some("pfree") => self.taken -= i128::from(PAGE),
                    _ => bail!("pa_log holds {entry}"),
                }
            }
        }
        let data: u64 = self.live.values().map(|l| l.1).sum();
        let held = i128::from(data) + i128::from(PAGE) * (tables.addrs.len() as i128 - 1);
        let wrong_free = step.error.is_some_and(|e| e.starts_with("KeyError"));
        if self.taken != held && !wrong_free {
            wrong.push(format!("the log leaves {:#x} bytes in use, the tables {held:#x}", self.taken));
        }
        if tables.addrs.len() > self.theirs.tables(self.base) {
            verdict.deviation(if wrong_free { "19" } else { "C14" }, place);
        }
        Ok(())
    }

    /// Compares this driver's tables with what is right.
    fn ours<P: amdev_core::mm::vm::Phase>(&self, vm: &Vm<'_, P>, mem: &TableVram, wrong: &mut Vec<String>) {
        let tables = read_tables(mem, self.format, self.base, vm.space().root);
        wrong.extend(tables.wrong.iter().cloned());
        if tables.stale > 0 {
            wrong.push(format!("{} unmapped entries are not zero", tables.stale));
        }
        if tables.pages != self.right {
            wrong.push(format!("pages: {}", self.right.first_difference(&tables.pages)));
        }
        if tables.addrs.len() != self.right.tables(self.base) {
            wrong.push(format!("{} tables, {} are needed", tables.addrs.len(), self.right.tables(self.base)));
        }
        let data: u64 = self.live.values().map(|l| l.1).sum();
        let held = data + PAGE * tables.addrs.len() as u64;
        if used(vm) != held {
            wrong.push(format!("{:#x} bytes are taken, tables and data are {held:#x}", used(vm)));
        }
    }

    /// Compares the two sides with each other; what differs needs a listed reason.
    fn compare(
        &mut self,
        step: &Step<'_>,
        vm: &AnyVm<'_>,
        place: &str,
        wrong: &mut Vec<String>,
        verdict: &mut Verdict,
    ) -> Result<()> {
        // Ours by the addresses of the recorded allocations.
        let mut moved = self.right.clone();
        for (va, size, pieces, own) in self.live.values() {
            let (ours, theirs) = (self.right.segments(*own, *size), model::join(pieces));
            for (a, b) in ours.iter().zip(&theirs) {
                verdict.address(a == b);
            }
            if va != own || ours != theirs {
                moved.forget(*own, *size);
            }
        }
        let mut recorded = self.theirs.clone();
        for (va, size, pieces, own) in self.live.values() {
            if va != own || self.right.segments(*own, *size) != model::join(pieces) {
                // Chosen otherwise: attributes and length are what must be equal.
                let (ours, theirs) = (self.right.attrs(*own, *size), self.theirs.attrs(*va, *size));
                if ours != theirs {
                    wrong.push(format!("allocation at {own:#x}: {ours:x?}, recorded is {theirs:x?}"));
                }
                recorded.forget(*va, *size);
            }
        }
        for (fault, detail) in moved.explain(&recorded) {
            match fault {
                Some("C14") if step.error.is_none() && !verdict.deviations.contains_key("C14") => {
                    wrong.push(detail);
                }
                Some(fault) => verdict.deviation(fault, place),
                None => wrong.push(detail),
            }
        }
        let own = match vm {
            AnyVm::Booting(vm) => used(vm),
            AnyVm::Running(vm) => used(vm),
        };
        let root = i128::from(PAGE);
        if i128::from(own) - root != self.taken {
            let tables = self.right.tables(self.base) as i128 - self.theirs.tables(self.base) as i128;
            let kept = self.image_tables(step)? - self.theirs.tables(self.base) as i128;
            let explained = (tables - kept) * i128::from(PAGE);
            let boot_bug = step.error.is_some_and(|e| e.starts_with("KeyError"));
            if i128::from(own) - root - self.taken != explained && !boot_bug {
                wrong.push(format!("{:#x} bytes in use, recorded are {:#x}", own - PAGE, self.taken));
            }
        }
        Ok(())
    }

    fn image_tables(&self, step: &Step<'_>) -> Result<i128> {
        Ok(list(step.value, "tables")?.len() as i128)
    }
}

/// Whether an error says what the reference's text says.
fn same_kind(ours: &VmError<Injected>, theirs: &str) -> bool {
    match ours {
        VmError::AlreadyMapped { .. } => theirs.contains("already mapped"),
        VmError::Physical(_) => theirs.contains("Invalid physical address"),
        VmError::NotMapped { .. } => {
            theirs.contains("not mapped") || theirs.contains("Not allowed to create")
        }
        VmError::PartialPage { .. } => theirs.contains("Invalid entries"),
        VmError::SizeMismatch { .. } => theirs.contains("Size mismatch"),
        VmError::Memory(_) => theirs.contains("MemoryError"),
        _ => false,
    }
}

fn used<P: amdev_core::mm::vm::Phase>(vm: &Vm<'_, P>) -> u64 {
    [vm.pool(), vm.boot_region()].iter().map(|t| t.range().end - t.range().start - t.free_bytes()).sum()
}
