//! One GPU: memory, registers, blocks and time behind a lock.

use crate::config::{ClockKind, Config, Fault, State};
use crate::discovery;
use crate::env::{Access, Env, Hub, Interrupt, MemFault};
use crate::gfx::Gfx;
use crate::gmc::{Gmc, who_name};
use crate::gpu::Counts;
use crate::host::{DmaMap, Unmapped};
use crate::ih::Ih;
use crate::pci::ConfigSpace;
use crate::psp::Psp;
use crate::regs::RegFile;
use crate::smu::Smu;
use crate::violation::{Rule, Violation};
use crate::vram::Vram;
use crate::watch::Watch;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Instant;

/// More violations than anybody reads are dropped.
const MAX_VIOLATIONS: usize = 1000;

/// Reset time of mode-1 and FLR.
const RESET_NS: u64 = 200_000_000;
/// Engine turns in one stretch of time, after which an endless kernel counts as waiting.
const MAX_TURNS: u32 = 20_000;

/// What happens later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Event {
    Bootloader { component: u32, addr: u64 },
    SosAlive,
    PspControl { command: u32 },
    PspFrame,
    Smu { message: u32, debug: bool },
    Mode1,
    ResetDone { posted: bool },
    Autoloaded,
    SafeMode,
    Invalidated { hub: Hub, engine: u8, vmids: u32 },
    Dequeued { bank: u32 },
}

pub(crate) struct Device {
    pub(crate) config: Config,
    pub(crate) pci: ConfigSpace,
    pub(crate) regs: RegFile,
    pub(crate) vram: Vram,
    pub(crate) dma: DmaMap,
    pub(crate) gmc: Gmc,
    pub(crate) psp: Psp,
    pub(crate) smu: Smu,
    pub(crate) gfx: Gfx,
    pub(crate) ih: Ih,
    pub(crate) watch: Watch,
    pub(crate) violations: Vec<Violation>,
    pub(crate) counts: Counts,
    pub(crate) present: bool,
    pub(crate) msi_hook: Option<Box<dyn Fn() + Send>>,
    /// Time that the engine which runs has spent, nanoseconds.
    pub(crate) engine_ns: u64,
    /// Known hardware structures: name, space (true: VRAM, false: virtual), start, length.
    structures: BTreeMap<String, (bool, u64, u64)>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    interrupts: u64,
    pub(crate) resetting: bool,
    time_ns: u64,
    started: Instant,
}

impl Device {
    pub(crate) fn new(config: Config) -> Device {
        let chip = config.chip;
        let mut d = Device {
            pci: ConfigSpace::new(&config),
            regs: RegFile::new(chip, config.seeded),
            vram: Vram::new(chip.vram_bytes()),
            dma: DmaMap::default(),
            gmc: Gmc::default(),
            psp: Psp::default(),
            smu: Smu::default(),
            gfx: Gfx::default(),
            ih: Ih::default(),
            watch: Watch::default(),
            violations: Vec::new(),
            counts: Counts::default(),
            present: true,
            msi_hook: None,
            engine_ns: 0,
            structures: BTreeMap::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            interrupts: 0,
            resetting: false,
            time_ns: 0,
            started: Instant::now(),
            config,
        };
        d.vram.fresh = d.config.judge;
        d.post();
        d.enter_state();
        d
    }

    /// What VBIOS and firmware set up before any driver.
    fn post(&mut self) {
        let binary = discovery::binary(self.config.chip);
        let size = self.vram.size();
        self.vram.engine_write(size - discovery::FROM_END, &binary);
        let mib = self.config.chip.vram_mib;
        self.regs.put("RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE", mib);
        // FB_LOCATION counts in 16 MiB; 512 GiB is where these GPUs have it.
        let base = 0x8000u32;
        let top = base + ((size - 1) >> 24) as u32;
        for hub in ["MM", "GC"] {
            self.regs.put(&format!("{hub}MC_VM_FB_LOCATION_BASE"), base);
            self.regs.put(&format!("{hub}MC_VM_FB_LOCATION_TOP"), top);
        }
        // Byte offset of the flush register (`nbio_2_3_default.h`).
        self.regs.put("BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL", 0x385c);
        self.regs.put("SCRATCH_REG7", 0);
        self.psp_cold();
    }

    fn enter_state(&mut self) {
        let state = self.config.state;
        if state == State::Cold {
            return;
        }
        self.psp = Psp::loaded(self.config.chip.gfx12());
        self.psp_alive();
        self.smu.alive = true;
        self.gfx = Gfx::running();
        self.regs.put("RLC_RLCS_BOOTLOAD_STATUS", 0x8000_003f);
        self.regs.put("CP_MEC_RS64_CNTL", 1 << 26);
        match state {
            State::Cold => {}
            State::Amdgpu => {
                // Its PSP ring is still there, its hubs are on, the flush register is remapped to
                // the hole in the register space (`nbio_v4_3_remap_hdp_registers`).
                self.psp_put(69, 0x10_7000);
                self.psp_put(70, 0x80);
                self.psp_put(71, 0x1_0000);
                self.regs.put("BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL", 0x7f000);
                for hub in ["MM", "GC"] {
                    self.regs.put(&format!("{hub}VM_CONTEXT0_CNTL"), 0x01ff_fe07);
                }
            }
            State::Amdev | State::Malformed => {
                let scratch = self.config.scratch7;
                self.regs.put("SCRATCH_REG7", scratch);
                // What the reference leaves behind (`fini` of `initial_regs.json`).
                self.regs.put("RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", 1);
                let g = if self.config.chip.gfx12() { "GDC_S2A0_" } else { "" };
                for (port, value) in [(0, 0x3000_0007), (1, 0x0005_7801), (2, 0x3009_001d), (3, 0x3000_000d)]
                {
                    self.regs.put(&format!("{g}S2A_DOORBELL_ENTRY_{port}_CTRL"), value);
                }
                if state == State::Malformed {
                    self.regs.put("GCVM_CONTEXT0_CNTL", 0x01ff_fe07);
                }
            }
        }
    }

    pub(crate) fn violation(&mut self, rule: Rule, detail: impl Into<String>) {
        let v = Violation::new(rule, detail);
        if self.violations.len() < MAX_VIOLATIONS && !self.violations.contains(&v) {
            self.violations.push(v);
        }
    }

    // Structures in memory.

    fn space(&self, addr: u64) -> (bool, u64) {
        match self.fb_offset(addr) {
            Some(offset) => (true, offset),
            None => (false, addr),
        }
    }

    /// A hardware structure lies at this address; overlaps with others are reported.
    pub(crate) fn structure(&mut self, name: &str, addr: u64, len: u64) {
        let (vram, start) = self.space(addr);
        let new = (vram, start, len);
        if self.structures.get(name) == Some(&new) {
            return;
        }
        let hits: Vec<String> = self
            .structures
            .iter()
            .filter(|(n, (v, s, l))| n.as_str() != name && *v == vram && start < s + l && *s < start + len)
            .map(|(n, (_, s, l))| {
                format!("{name} ({start:#x}, {len:#x} bytes) and {n} ({s:#x}, {l:#x} bytes)")
            })
            .collect();
        for hit in hits {
            self.violation(Rule::OverlappingStructures, hit);
        }
        self.structures.insert(name.to_owned(), new);
    }

    /// The structure is gone.
    pub(crate) fn forget(&mut self, name: &str) {
        self.structures.remove(name);
    }

    /// Memory that nobody but firmware may write.
    pub(crate) fn guard(&mut self, offset: u64, len: usize, who: impl Into<Option<Access>>) {
        let end = offset + len as u64;
        let what = match self.psp.tmr {
            _ if end > self.vram.size() - discovery::FROM_END => "discovery table",
            Some((tmr, size)) if offset < tmr + size && tmr < end => "TMR",
            _ => return,
        };
        let who = who.into().map_or_else(|| "the CPU".to_owned(), who_name);
        self.violation(Rule::FirmwareOverwritten, format!("{who} writes the {what} at {offset:#x}"));
    }

    // Time.

    pub(crate) fn time(&self) -> u64 {
        self.time_ns
    }

    pub(crate) fn clock(&self) -> u64 {
        (self.time_ns + self.engine_ns) / 10
    }

    pub(crate) fn now_us(&mut self) -> u64 {
        self.spend(100);
        self.time_ns / 1000
    }

    /// Lets `event` happen `ns` from now.
    pub(crate) fn after(&mut self, ns: u64, event: Event) {
        let slow = self.config.faults.iter().find_map(|f| match f {
            Fault::Slow(factor) => Some(u64::from(*factor)),
            _ => None,
        });
        self.sequence += 1;
        let ns = if self.config.delays { ns } else { 0 };
        let due = self.time_ns.saturating_add(ns.saturating_mul(slow.unwrap_or(1)));
        self.events.push(Reverse((due, self.sequence, event)));
    }

    pub(crate) fn spend(&mut self, ns: u64) {
        let target = match self.config.clock {
            ClockKind::Virtual => self.time_ns + ns,
            ClockKind::Real => self.real_ns(),
        };
        self.settle(target);
    }

    fn real_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// From when on a queue's next turn counts that found nothing to do at `now`: time that has
    /// passed meanwhile need not be made up for.
    pub(crate) fn polled_at(&self, now: u64) -> u64 {
        match self.config.clock {
            ClockKind::Virtual => now,
            ClockKind::Real => now.max(self.real_ns()),
        }
    }

    /// Nanoseconds until the next event or turn of an engine.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let now = match self.config.clock {
            ClockKind::Virtual => self.time_ns,
            ClockKind::Real => self.real_ns(),
        };
        let event = self.events.peek().map(|Reverse((due, ..))| *due);
        let next = event.into_iter().chain(self.next_engine()).min()?;
        Some(next.saturating_sub(now))
    }

    /// Everything that is due until `target` happens, in order.
    fn settle(&mut self, target: u64) {
        let mut turns = 0;
        loop {
            let event = self.events.peek().map(|Reverse((due, ..))| *due);
            let engine = if turns < MAX_TURNS { self.next_engine() } else { None };
            match (event, engine) {
                (Some(due), e) if due <= target && e.is_none_or(|e| due <= e) => {
                    self.time_ns = self.time_ns.max(due);
                    if let Some(Reverse((_, _, event))) = self.events.pop() {
                        self.happen(event);
                    }
                }
                (_, Some(due)) if due <= target => {
                    turns += 1;
                    self.time_ns = self.time_ns.max(due);
                    let now = self.time_ns;
                    self.run_engines(now);
                    self.engine_ns = 0;
                }
                _ => break,
            }
        }
        self.time_ns = self.time_ns.max(target);
    }

    pub(crate) fn advance_ns(&mut self, ns: u64) {
        self.spend(ns);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Bootloader { component, addr } => self.psp_component(component, addr),
            Event::SosAlive => self.psp_alive(),
            Event::PspControl { command } => self.psp_control_done(command),
            Event::PspFrame => self.psp_frame(),
            Event::Smu { message, debug } => self.smu_answer(message, debug),
            Event::Mode1 => {
                self.begin_reset(true);
                if !self.config.judge {
                    self.pci.reset();
                }
            }
            Event::ResetDone { posted } => {
                self.resetting = false;
                if posted {
                    self.post();
                }
            }
            Event::Autoloaded => self.gfx_autoloaded(),
            Event::SafeMode => self.safe_mode_done(),
            Event::Invalidated { hub, engine, vmids } => self.invalidated(hub, engine, vmids),
            Event::Dequeued { bank } => self.hqd_dequeued(bank),
        }
    }

    // Reset.

    /// Everything is lost; with `posted`, firmware sets the GPU up again at the end.
    fn begin_reset(&mut self, posted: bool) {
        self.regs.reset();
        self.vram.clear();
        self.gmc.reset();
        self.psp.reset();
        self.smu.reset();
        self.gfx.reset();
        self.ih.reset();
        self.watch.reset();
        self.structures.clear();
        self.events.clear();
        self.resetting = true;
        self.after(RESET_NS, Event::ResetDone { posted });
    }

    /// Function-level reset: unposts the GPU (only power or a mode-1 reset posts it again).
    pub(crate) fn flr(&mut self) {
        self.begin_reset(false);
        self.pci.reset();
    }

    /// Reset of the bus the device is on: as power-on, firmware posts the GPU again.
    pub(crate) fn bus_reset(&mut self) {
        self.begin_reset(true);
        self.pci.reset();
    }

    /// Taken out: without power nothing goes on.
    pub(crate) fn unplug(&mut self) {
        self.begin_reset(false);
        self.events.clear();
        self.present = false;
    }

    pub(crate) fn plug(&mut self) {
        let interrupts = self.interrupts;
        self.begin_reset(true);
        self.events.clear();
        self.resetting = false;
        self.present = true;
        self.interrupts = interrupts;
        self.pci = ConfigSpace::new(&self.config);
        self.post();
    }

    /// System memory is taken away; a queue that works may not lose what it uses.
    pub(crate) fn dma_unmap(&mut self, iova: u64, len: u64) -> Unmapped {
        if self.engines_busy() && self.cached_system(iova, len) {
            self.violation(
                Rule::MemoryInUse,
                format!("system memory at {iova:#x} is unmapped while a queue works that used it"),
            );
        }
        self.dma.unmap(iova, len)
    }

    // Interrupts.

    pub(crate) fn send_msi(&mut self) {
        self.interrupts += 1;
        self.counts.interrupts += 1;
        if let Some(hook) = &self.msi_hook {
            hook();
        }
    }

    pub(crate) fn take_interrupts(&mut self) -> u64 {
        std::mem::take(&mut self.interrupts)
    }
}

impl Env for Device {
    fn read(&mut self, who: Access, va: u64, buf: &mut [u8]) -> Result<(), MemFault> {
        self.mem_read(who, va, buf)
    }

    fn write(&mut self, who: Access, va: u64, data: &[u8]) -> Result<(), MemFault> {
        self.mem_write(who, va, data)
    }

    fn reg_read(&mut self, addr: u32) -> u32 {
        self.register_read(addr)
    }

    fn reg_write(&mut self, addr: u32, value: u32) {
        self.register_write(addr, value)
    }

    fn reg_addr(&self, name: &str) -> Option<u32> {
        self.regs.addr(name)
    }

    fn field(&self, reg: &str, field: &str) -> Option<(u8, u8)> {
        self.regs.field(reg, field)
    }

    fn executing(&mut self, position: u64) {
        self.watch.executes(position);
    }

    fn interrupt(&mut self, interrupt: Interrupt) {
        self.raise(interrupt)
    }

    fn clock_100mhz(&self) -> u64 {
        self.clock()
    }

    fn spend_ns(&mut self, ns: u64) {
        self.engine_ns += ns;
    }

    fn violation(&mut self, violation: Violation) {
        Device::violation(self, violation.rule, violation.detail)
    }
}
