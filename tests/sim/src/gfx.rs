//! The graphics core around the engines: RLC autoload and safe mode, MEC, hardware queue
//! descriptors, SDMA queues and the running of them all.

use crate::config::Stage;
use crate::cp::{ComputeQueue, ComputeQueueConfig};
use crate::device::{Device, Event};
use crate::env::{Access, Hub, Kind, Progress};
use crate::isa::Target;
use crate::sdma::{SdmaQueue, SdmaQueueConfig, SdmaVersion};
use crate::violation::Rule;

const AUTOLOAD_NS: u64 = 8_000_000;
const SAFE_MODE_NS: u64 = 5_000;
const DEQUEUE_NS: u64 = 50_000;
/// Instructions that a compute queue runs before time is looked at.
const COMPUTE_BUDGET: u32 = 4096;
const SDMA_BUDGET: u32 = 16;
/// A queue that waits looks again after this time.
const POLL_NS: u64 = 1_000;
/// UTCL2 client of the compute command processor.
const CLIENT_CPC: u16 = 5;

/// RLC_RLCS_BOOTLOAD_STATUS when autoload is complete.
const BOOTLOADED: u32 = 0x8000_003f;

/// A running queue.
pub(crate) struct Running<Q> {
    /// GRBM_GFX_CNTL of a compute queue; instance and queue of an SDMA one.
    pub(crate) key: (u32, u32),
    /// Doorbell, as a dword index; `None` if off.
    pub(crate) doorbell: Option<u32>,
    pub(crate) queue: Option<Q>,
    busy_until: u64,
    pub(crate) idle: bool,
}

#[derive(Default)]
pub(crate) struct Gfx {
    pub(crate) autoloaded: bool,
    loading: bool,
    mec_started: bool,
    mec_wanted: bool,
    mec_reset: bool,
    sdma_started: [bool; 2],
    pub(crate) compute: Vec<Running<ComputeQueue>>,
    pub(crate) sdma: Vec<Running<SdmaQueue>>,
}

impl Gfx {
    pub(crate) fn reset(&mut self) {
        *self = Gfx::default();
    }

    pub(crate) fn running() -> Gfx {
        Gfx {
            autoloaded: true,
            mec_started: true,
            mec_reset: true,
            sdma_started: [true; 2],
            ..Gfx::default()
        }
    }
}

impl Device {
    pub(crate) fn gfx_autoload(&mut self) {
        self.gfx.loading = true;
        if !self.config.hangs(Stage::Autoload) {
            self.after(AUTOLOAD_NS, Event::Autoloaded);
        }
    }

    pub(crate) fn gfx_autoloaded(&mut self) {
        self.gfx.loading = false;
        self.gfx.autoloaded = true;
        self.regs.put("RLC_RLCS_BOOTLOAD_STATUS", BOOTLOADED);
        if self.gfx.mec_wanted {
            self.gfx.mec_started = true;
        }
    }

    /// Compute or SDMA work is pending.
    pub(crate) fn engines_busy(&self) -> bool {
        self.gfx.compute.iter().any(|q| !q.idle) || self.gfx.sdma.iter().any(|q| !q.idle)
    }

    pub(crate) fn cp_stat(&self) -> u32 {
        // CP_STAT.MEC_BUSY and CP_BUSY.
        if self.gfx.compute.iter().any(|q| !q.idle) {
            self.regs.place("CP_STAT", "CP_BUSY", 1) | self.regs.place("CP_STAT", "MEC_BUSY", 1)
        } else {
            0
        }
    }

    /// RLC_SAFE_MODE was written.
    pub(crate) fn safe_mode(&mut self, value: u32) {
        if value & 1 == 0 {
            return;
        }
        if !self.gfx.autoloaded {
            self.violation(Rule::EngineBeforeFirmware, "RLC_SAFE_MODE before RLC autoload is complete");
        }
        if !self.config.hangs(Stage::SafeMode) {
            self.after(SAFE_MODE_NS, Event::SafeMode);
        }
    }

    pub(crate) fn safe_mode_done(&mut self) {
        let v = self.regs.val("RLC_SAFE_MODE");
        self.regs.put("RLC_SAFE_MODE", v & !1);
    }

    fn before_autoload(&mut self, what: &str) -> bool {
        if self.gfx.autoloaded {
            return false;
        }
        let state = if self.gfx.loading { "is running" } else { "was not started" };
        self.violation(Rule::EngineBeforeFirmware, format!("{what} written while RLC autoload {state}"));
        true
    }

    pub(crate) fn mec_start_addr(&mut self) {
        self.before_autoload("CP_MEC_RS64_PRGRM_CNTR_START");
    }

    /// CP_MEC_RS64_CNTL was written.
    pub(crate) fn mec_cntl(&mut self, value: u32) {
        let name = "CP_MEC_RS64_CNTL";
        let early = self.before_autoload(name);
        let f = |field| self.regs.extract(name, field, value) != 0;
        let (reset, active, halt) = (f("MEC_PIPE0_RESET"), f("MEC_PIPE0_ACTIVE"), f("MEC_HALT"));
        if reset {
            self.gfx.mec_reset = true;
            self.gfx.mec_started = false;
            return;
        }
        if !active || halt {
            self.gfx.mec_started = false;
            return;
        }
        // ME 1, pipe 0: MEID is bits 3:2 of GRBM_GFX_CNTL.
        let start = self.regs.val_at("CP_MEC_RS64_PRGRM_CNTR_START", 4);
        let image = self.psp.images.contains_key(&89);
        let why = match (start, image, self.gfx.mec_reset) {
            (_, false, _) => Some("its firmware was not loaded"),
            (0, ..) => Some("its start address is 0"),
            (_, _, false) => Some("pipe 0 was not reset after its start address was set"),
            _ => None,
        };
        if let Some(why) = why {
            self.violation(Rule::EngineBeforeFirmware, format!("MEC started: {why}"));
            return;
        }
        if early {
            self.gfx.mec_wanted = self.config.judge;
        } else {
            self.gfx.mec_started = true;
        }
    }

    /// SDMAn_F32_CNTL or SDMAn_MCU_CNTL was written.
    pub(crate) fn sdma_cntl(&mut self, instance: u8, value: u32) {
        let mcu = self.config.chip.gfx12();
        let name = format!("SDMA{instance}_{}_CNTL", if mcu { "MCU" } else { "F32" });
        let f = |field: &str| self.regs.extract(&name, field, value) != 0;
        let stopped = f("HALT") || if mcu { f("RESET") } else { f("TH0_RESET") || f("TH1_RESET") };
        if stopped {
            self.gfx.sdma_started[usize::from(instance)] = false;
            return;
        }
        let needed: &[u32] = if mcu { &[71] } else { &[71, 72] };
        let missing = needed.iter().any(|t| !self.psp.images.contains_key(t));
        if missing || !self.gfx.autoloaded {
            self.violation(
                Rule::EngineBeforeFirmware,
                format!("SDMA{instance} started before its firmware was there"),
            );
            if !self.config.judge {
                return;
            }
        }
        self.gfx.sdma_started[usize::from(instance)] = true;
    }

    /// GRBM_SOFT_RESET was written.
    pub(crate) fn soft_reset(&mut self, value: u32) {
        for instance in 0..2u32 {
            if self.regs.extract("GRBM_SOFT_RESET", &format!("SOFT_RESET_SDMA{instance}"), value) != 0 {
                self.gfx.sdma.retain(|q| q.key.0 != instance);
                for q in 0..8 {
                    self.regs.put(&format!("SDMA{instance}_QUEUE{q}_RB_CNTL"), 0);
                }
            }
        }
    }

    fn target(&self) -> Target {
        if self.config.chip.gfx12() { Target::Gfx12 } else { Target::Gfx11 }
    }

    /// CP_HQD_ACTIVE was written in the bank that GRBM_GFX_CNTL selects.
    pub(crate) fn hqd_active(&mut self, value: u32) {
        let bank = self.regs.grbm() & 0x70f;
        self.gfx.compute.retain(|q| q.key.0 != bank);
        if value & 1 == 0 {
            return;
        }
        let (me, pipe, queue) = ((bank >> 2 & 3) as u8, (bank & 3) as u8, (bank >> 8 & 7) as u8);
        let who = format!("queue {me}.{pipe}.{queue}");
        if me == 0 {
            self.violation(
                Rule::QueueSetup,
                format!("{who}: CP_HQD_ACTIVE without a MEC selected in GRBM_GFX_CNTL"),
            );
            return;
        }
        if !self.gfx.mec_started && !self.gfx.mec_wanted {
            self.violation(Rule::EngineBeforeFirmware, format!("{who} activated before its MEC runs"));
            return;
        }
        let v = |n: &str| self.regs.val(n);
        let f = |r: &str, n: &str| self.regs.fld(r, n);
        let pair = |lo: &str, hi: &str| self.regs.pair(lo, hi);
        let dwords = 2u64 << f("CP_HQD_PQ_CONTROL", "QUEUE_SIZE");
        let eop_dwords = 2u64 << f("CP_HQD_EOP_CONTROL", "EOP_SIZE");
        let ring_va = pair("CP_HQD_PQ_BASE", "CP_HQD_PQ_BASE_HI") << 8;
        let eop_va = pair("CP_HQD_EOP_BASE_ADDR", "CP_HQD_EOP_BASE_ADDR_HI") << 8;
        let rptr_report_va = pair("CP_HQD_PQ_RPTR_REPORT_ADDR", "CP_HQD_PQ_RPTR_REPORT_ADDR_HI") & !3;
        let enabled = f("CP_HQD_PQ_DOORBELL_CONTROL", "DOORBELL_EN") != 0;
        let doorbell = f("CP_HQD_PQ_DOORBELL_CONTROL", "DOORBELL_OFFSET");
        let vmid = f("CP_HQD_VMID", "VMID") as u8;
        let (low, high) = (v("CP_MEC_DOORBELL_RANGE_LOWER") & !3, v("CP_MEC_DOORBELL_RANGE_UPPER") & !3);
        let mqd_va = pair("CP_MQD_BASE_ADDR", "CP_MQD_BASE_ADDR_HI");
        let rptr = v("CP_HQD_PQ_RPTR");
        let wptr = pair("CP_HQD_PQ_WPTR_LO", "CP_HQD_PQ_WPTR_HI");
        let mut wrong = Vec::new();
        if ring_va == 0 || ring_va % 256 != 0 {
            wrong.push(format!("ring base {ring_va:#x}"));
        }
        if dwords < 64 {
            wrong.push(format!("ring of {dwords:#x} dwords"));
        }
        if eop_va == 0 || eop_dwords < 512 {
            wrong.push(format!("end-of-pipe buffer of {eop_dwords:#x} dwords at {eop_va:#x}"));
        }
        if rptr_report_va == 0 {
            wrong.push("no address for the read pointer".into());
        }
        if enabled && !(low..=high).contains(&(doorbell << 2)) {
            wrong.push(format!("doorbell {doorbell:#x} outside of the MEC's range {low:#x}..={high:#x}"));
        }
        if mqd_va == 0 {
            wrong.push("no MQD".into());
        } else if let Some(why) = self.mqd_differs(mqd_va) {
            wrong.push(why);
        }
        let fatal = wrong.len();
        for why in wrong {
            self.violation(Rule::QueueSetup, format!("{who}: {why}"));
        }
        let target = self.target();
        if fatal != 0 && !self.config.judge {
            return;
        }
        let config = ComputeQueueConfig {
            target,
            me,
            pipe,
            queue,
            vmid,
            ring_va,
            ring_dwords: dwords,
            rptr: u64::from(rptr),
            wptr,
            rptr_report_va,
            eop_va,
            eop_dwords: eop_dwords as u32,
        };
        self.gfx.compute.push(Running {
            key: (bank, 0),
            doorbell: enabled.then_some(doorbell),
            queue: Some(ComputeQueue::new(config)),
            busy_until: 0,
            idle: true,
        });
    }

    /// The MQD image against the registers that were loaded from it.
    fn mqd_differs(&mut self, va: u64) -> Option<String> {
        let who = Access { hub: Hub::Gc, vmid: 0, client: CLIENT_CPC, kind: Kind::Read };
        let mut mqd = [0; 2048];
        if let Err(f) = self.mem_read(who, va, &mut mqd) {
            return Some(format!("MQD at {va:#x}: memory fault at {:#x}", f.va));
        }
        let word =
            |i: usize| u32::from_le_bytes([mqd[i * 4], mqd[i * 4 + 1], mqd[i * 4 + 2], mqd[i * 4 + 3]]);
        if word(0) != 0xC031_0800 {
            return Some(format!("MQD at {va:#x} starts with {:#x}", word(0)));
        }
        // `struct v11_compute_mqd`: dword 0x80 on are the registers from CP_MQD_BASE_ADDR on.
        let first = self.regs.addr("CP_MQD_BASE_ADDR")?;
        for name in [
            "CP_MQD_BASE_ADDR",
            "CP_HQD_VMID",
            "CP_HQD_PQ_BASE",
            "CP_HQD_PQ_BASE_HI",
            "CP_HQD_PQ_CONTROL",
            "CP_HQD_PQ_DOORBELL_CONTROL",
            "CP_HQD_PQ_RPTR_REPORT_ADDR",
            "CP_HQD_EOP_BASE_ADDR",
            "CP_HQD_EOP_CONTROL",
        ] {
            let addr = self.regs.addr(name)?;
            let (image, reg) = (word(0x80 + (addr - first) as usize), self.regs.get(addr));
            if image != reg {
                return Some(format!("{name} is {reg:#x}, {image:#x} in its MQD"));
            }
        }
        None
    }

    /// CP_HQD_DEQUEUE_REQUEST was written.
    pub(crate) fn hqd_dequeue(&mut self, value: u32) {
        if value & 7 != 0 && !self.config.hangs(Stage::Dequeue) {
            let bank = self.regs.grbm() & 0x70f;
            self.after(DEQUEUE_NS, Event::Dequeued { bank });
        }
    }

    pub(crate) fn hqd_dequeued(&mut self, bank: u32) {
        self.gfx.compute.retain(|q| q.key.0 != bank);
        for name in ["CP_HQD_ACTIVE", "CP_HQD_DEQUEUE_REQUEST"] {
            if let Some(a) = self.regs.addr(name) {
                self.regs.set_at(a, bank, 0);
            }
        }
    }

    /// A context of GFXHUB is switched off or changed while queues of that VMID run.
    pub(crate) fn context_cntl(&mut self, hub: Hub, vmid: u8, value: u32) {
        self.drop_tlb(hub, Some(vmid));
        if hub == Hub::Gc && value & 1 == 0 {
            let busy = self
                .gfx
                .compute
                .iter()
                .any(|q| !q.idle && q.queue.as_ref().is_some_and(|q| q.config().vmid == vmid));
            if busy {
                self.violation(
                    Rule::MemoryInUse,
                    format!("GFXHUB context {vmid} switched off while a queue of it works"),
                );
            }
        }
    }

    /// A register of an SDMA queue was written.
    pub(crate) fn sdma_queue(&mut self, instance: u8, queue: u8, name: &str, old: u32, value: u32) {
        let p = format!("SDMA{instance}_QUEUE{queue}_");
        let key = (u32::from(instance), u32::from(queue));
        let Some(which) = name.strip_prefix(p.as_str()) else { return };
        match which {
            "RB_CNTL" => {
                let cntl = format!("{p}RB_CNTL");
                let on = |v| self.regs.extract(&cntl, "RB_ENABLE", v) != 0;
                if on(value) && !on(old) {
                    self.sdma_activate(instance, queue, value);
                } else if !on(value) {
                    self.gfx.sdma.retain(|q| q.key != key);
                }
            }
            "RB_WPTR" | "RB_WPTR_HI" => {
                let wptr = self.regs.pair(&format!("{p}RB_WPTR"), &format!("{p}RB_WPTR_HI"));
                let update = self.regs.val(&format!("{p}MINOR_PTR_UPDATE")) == 0;
                if update && self.gfx.sdma.iter().any(|q| q.key == key) {
                    self.ring_sdma(key, wptr);
                }
            }
            "DOORBELL" | "DOORBELL_OFFSET" => {
                let doorbell = self.sdma_doorbell(instance, queue);
                if let Some(q) = self.gfx.sdma.iter_mut().find(|q| q.key == key) {
                    q.doorbell = doorbell;
                }
            }
            _ => {}
        }
    }

    fn sdma_doorbell(&self, instance: u8, queue: u8) -> Option<u32> {
        let p = format!("SDMA{instance}_QUEUE{queue}_");
        (self.regs.fld(&format!("{p}DOORBELL"), "ENABLE") != 0)
            .then(|| self.regs.fld(&format!("{p}DOORBELL_OFFSET"), "OFFSET"))
    }

    fn sdma_activate(&mut self, instance: u8, queue: u8, cntl: u32) {
        let p = format!("SDMA{instance}_QUEUE{queue}_");
        let who = format!("SDMA{instance} queue {queue}");
        if !self.gfx.sdma_started[usize::from(instance)] {
            self.violation(Rule::EngineBeforeFirmware, format!("{who} enabled before its engine runs"));
            return;
        }
        let name = format!("{p}RB_CNTL");
        let f = |field: &str| self.regs.extract(&name, field, cntl);
        let pair = |a: &str, b: &str| self.regs.pair(&format!("{p}{a}"), &format!("{p}{b}"));
        let ring_va = pair("RB_BASE", "RB_BASE_HI") << 8;
        let ring_bytes = 4u64 << f("RB_SIZE");
        let report = pair("RB_RPTR_ADDR_LO", "RB_RPTR_ADDR_HI") & !3;
        let writeback = f("RPTR_WRITEBACK_ENABLE") != 0;
        let (vmid, privileged) = (f("RB_VMID") as u8, f("RB_PRIV") != 0);
        let (rptr, wptr) = (pair("RB_RPTR", "RB_RPTR_HI"), pair("RB_WPTR", "RB_WPTR_HI"));
        if ring_va == 0 || ring_bytes < 256 {
            self.violation(Rule::QueueSetup, format!("{who}: ring of {ring_bytes:#x} bytes at {ring_va:#x}"));
            return;
        }
        if writeback && report == 0 {
            self.violation(Rule::QueueSetup, format!("{who}: read pointer write-back without an address"));
            return;
        }
        let version = if self.config.chip.gfx12() { SdmaVersion::V7_0 } else { SdmaVersion::V6_0 };
        let config = SdmaQueueConfig {
            version,
            instance,
            queue,
            ring_va,
            ring_bytes,
            rptr,
            wptr,
            rptr_report_va: writeback.then_some(report),
            vmid,
            privileged,
        };
        let doorbell = self.sdma_doorbell(instance, queue);
        let key = (u32::from(instance), u32::from(queue));
        self.gfx.sdma.retain(|q| q.key != key);
        self.gfx.sdma.push(Running {
            key,
            doorbell,
            queue: Some(SdmaQueue::new(config)),
            busy_until: 0,
            idle: rptr == wptr,
        });
    }

    /// A new write pointer for a compute queue, in dwords.
    pub(crate) fn ring_compute(&mut self, index: usize, wptr: u64) {
        let now = self.time();
        let Some(mut q) = self.gfx.compute.get_mut(index).and_then(|r| r.queue.take()) else { return };
        q.set_wptr(self, wptr);
        let running = &mut self.gfx.compute[index];
        running.queue = Some(q);
        running.idle = false;
        running.busy_until = running.busy_until.max(now + POLL_NS);
    }

    /// A new write pointer for an SDMA queue, in bytes.
    pub(crate) fn ring_sdma(&mut self, key: (u32, u32), wptr: u64) {
        let now = self.time();
        let Some(index) = self.gfx.sdma.iter().position(|q| q.key == key) else { return };
        let Some(mut q) = self.gfx.sdma[index].queue.take() else { return };
        q.set_wptr(self, wptr);
        let running = &mut self.gfx.sdma[index];
        running.queue = Some(q);
        running.idle = false;
        running.busy_until = running.busy_until.max(now + POLL_NS);
    }

    /// The CPU writes VRAM; ring words that a queue has still to execute must stay.
    pub(crate) fn ring_memory_in_use(&mut self, offset: u64, len: usize) {
        let end = offset + len as u64;
        let mut rings = Vec::new();
        for q in self.gfx.compute.iter().filter(|q| !q.idle).filter_map(|q| q.queue.as_ref()) {
            let c = q.config();
            rings.push((c.vmid, c.ring_va, c.ring_dwords * 4, q.rptr() * 4, q.wptr() * 4));
        }
        for q in self.gfx.sdma.iter().filter(|q| !q.idle).filter_map(|q| q.queue.as_ref()) {
            let c = q.config();
            rings.push((c.vmid, c.ring_va, c.ring_bytes, q.rptr(), q.wptr()));
        }
        for (vmid, base, size, rptr, wptr) in rings {
            let pending = wptr.wrapping_sub(rptr).min(size);
            let mut at = 0;
            while at < pending {
                let va = base + (rptr.wrapping_add(at) & (size - 1));
                let piece = (4096 - va % 4096).min(pending - at);
                if self.cached_vram(Hub::Gc, vmid, va).is_some_and(|pa| pa < end && offset < pa + piece) {
                    self.violation(
                        Rule::MemoryInUse,
                        format!("the CPU writes VRAM {offset:#x} over ring words that are not executed yet"),
                    );
                    return;
                }
                at += piece;
            }
        }
    }

    /// When the next queue has something to do.
    pub(crate) fn next_engine(&self) -> Option<u64> {
        let compute = self.gfx.compute.iter().filter(|q| !q.idle).map(|q| q.busy_until);
        let sdma = self.gfx.sdma.iter().filter(|q| !q.idle).map(|q| q.busy_until);
        compute.chain(sdma).min()
    }

    /// Runs the queues that are due at `now`.
    pub(crate) fn run_engines(&mut self, now: u64) {
        for i in 0..self.gfx.compute.len() {
            let r = &mut self.gfx.compute[i];
            if r.idle || r.busy_until > now {
                continue;
            }
            let key = r.key;
            let Some(mut q) = r.queue.take() else { continue };
            let progress = if self.config.hangs(Stage::Compute) {
                Progress::Waiting
            } else {
                self.engine_ns = 0;
                q.run(self, COMPUTE_BUDGET)
            };
            let took = self.engine_ns.max(POLL_NS);
            let rptr = q.rptr();
            if let Some(r) = self.gfx.compute.iter_mut().find(|r| r.key == key) {
                r.busy_until = now + took;
                r.idle = matches!(progress, Progress::Idle | Progress::Halted);
                r.queue = Some(q);
            }
            if let Some(a) = self.regs.addr("CP_HQD_PQ_RPTR") {
                self.regs.set_at(a, key.0, rptr as u32);
            }
        }
        for i in 0..self.gfx.sdma.len() {
            let r = &mut self.gfx.sdma[i];
            if r.idle || r.busy_until > now {
                continue;
            }
            let key = r.key;
            let Some(mut q) = r.queue.take() else { continue };
            let progress = if self.config.hangs(Stage::Sdma) {
                Progress::Waiting
            } else {
                self.engine_ns = 0;
                q.run(self, SDMA_BUDGET)
            };
            let took = self.engine_ns.max(POLL_NS);
            let (rptr, p) = (q.rptr(), format!("SDMA{}_QUEUE{}_RB_RPTR", key.0, key.1));
            if let Some(r) = self.gfx.sdma.iter_mut().find(|r| r.key == key) {
                r.busy_until = now + took;
                r.idle = matches!(progress, Progress::Idle | Progress::Halted);
                r.queue = Some(q);
            }
            self.regs.put(&p, rptr as u32);
            self.regs.put(&format!("{p}_HI"), (rptr >> 32) as u32);
        }
    }
}
