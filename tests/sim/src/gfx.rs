//! The graphics core around the engines: RLC autoload and safe mode, MEC, hardware queue
//! descriptors, SDMA queues and the running of them all.

use crate::config::{ClockKind, Stage};
use crate::cp::ComputeQueue;
use crate::device::{Device, Event};
use crate::env::{Hub, Progress};
use crate::sdma::SdmaQueue;
use crate::violation::Rule;
use crate::watch::QueueId;

const AUTOLOAD_NS: u64 = 8_000_000;
const SAFE_MODE_NS: u64 = 5_000;
const DEQUEUE_NS: u64 = 50_000;
/// Instructions that a compute queue runs before time is looked at.
const COMPUTE_BUDGET: u32 = 4096;
const SDMA_BUDGET: u32 = 16;
/// Turns at one packet after which a kernel gets less of the simulator's time: with a virtual clock
/// each further one stands for [`LONG_TURN_NS`], so that a kernel without an end is given up soon.
const LONG_TURNS: u32 = 4_000;
const LONG_TURN_NS: u64 = 500_000;
/// A queue that waits looks again after this time; twice as long each time that nothing happened
/// meanwhile, up to the second.
const POLL_NS: u64 = 1_000;
const MAX_POLL_NS: u64 = 64_000;

/// RLC_RLCS_BOOTLOAD_STATUS when autoload is complete.
const BOOTLOADED: u32 = 0x8000_003f;

/// A running queue.
pub(crate) struct Running<Q> {
    /// GRBM_GFX_CNTL of a compute queue; instance and queue of an SDMA one.
    pub(crate) key: (u32, u32),
    /// Doorbell, as a dword index; `None` if off.
    pub(crate) doorbell: Option<u32>,
    pub(crate) queue: Option<Q>,
    pub(crate) busy_until: u64,
    pub(crate) idle: bool,
    /// When it looks again if it waits; 0 if it does not.
    pub(crate) poll_ns: u64,
    /// Turns in a row that were used up without coming to another packet.
    pub(crate) long: u32,
}

impl<Q> Running<Q> {
    /// The queue has had its turn; the next is due then at the earliest.
    fn ran(&mut self, queue: Q, progress: Progress, moved: bool, due: u64) {
        self.poll_ns = match progress {
            Progress::Waiting if moved => POLL_NS,
            Progress::Waiting => (2 * self.poll_ns).clamp(POLL_NS, MAX_POLL_NS),
            _ => 0,
        };
        self.busy_until = due + self.poll_ns.saturating_sub(POLL_NS);
        self.idle = matches!(progress, Progress::Idle | Progress::Halted);
        self.queue = Some(queue);
    }

    fn wake(&mut self, now: u64) {
        if self.poll_ns > POLL_NS {
            self.poll_ns = POLL_NS;
            self.busy_until = self.busy_until.min(now + POLL_NS);
        }
    }
}

#[derive(Default)]
pub(crate) struct Gfx {
    pub(crate) autoloaded: bool,
    loading: bool,
    pub(crate) mec_started: bool,
    pub(crate) mec_wanted: bool,
    mec_reset: bool,
    pub(crate) sdma_started: [bool; 2],
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
        for pipe in 0..4 {
            if self.regs.extract(name, &format!("MEC_PIPE{pipe}_RESET"), value) != 0 {
                self.mec_pipe_reset(pipe);
            }
        }
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

    /// A pipe in reset loses its queues (`gfx_v11_0_reset_compute_pipe`).
    fn mec_pipe_reset(&mut self, pipe: u32) {
        let hit = |bank: u32| bank >> 2 & 3 == 1 && bank & 3 == pipe;
        let banks: Vec<u32> = self.gfx.compute.iter().map(|q| q.key.0).filter(|b| hit(*b)).collect();
        for bank in banks {
            self.hqd_dequeued(bank);
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

    /// CP_HQD_DEQUEUE_REQUEST was written.
    pub(crate) fn hqd_dequeue(&mut self, value: u32) {
        if value & 7 != 0 && !self.config.hangs(Stage::Dequeue) {
            let bank = self.regs.grbm() & 0x70f;
            self.after(DEQUEUE_NS, Event::Dequeued { bank });
        }
    }

    pub(crate) fn hqd_dequeued(&mut self, bank: u32) {
        self.watch.removed(QueueId::Compute(bank));
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

    /// A new write pointer for a compute queue, in dwords.
    pub(crate) fn ring_compute(&mut self, index: usize, wptr: u64) {
        let now = self.time();
        let Some(mut q) = self.gfx.compute.get_mut(index).and_then(|r| r.queue.take()) else { return };
        q.set_wptr(self, wptr);
        let bank = self.gfx.compute[index].key.0;
        self.watch.submitted(QueueId::Compute(bank), wptr);
        // The queue descriptor takes the doorbell's value over.
        for (name, half) in [("CP_HQD_PQ_WPTR_LO", wptr as u32), ("CP_HQD_PQ_WPTR_HI", (wptr >> 32) as u32)] {
            if let Some(addr) = self.regs.addr(name) {
                self.regs.set_at(addr, bank, half);
            }
        }
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
        self.watch.submitted(QueueId::Sdma(key.0, key.1), wptr);
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
            let bytes = |dwords: u64| dwords.wrapping_mul(4);
            rings.push((c.vmid, c.ring_va, bytes(c.ring_dwords), bytes(q.rptr()), bytes(q.wptr())));
        }
        for q in self.gfx.sdma.iter().filter(|q| !q.idle).filter_map(|q| q.queue.as_ref()) {
            let c = q.config();
            rings.push((c.vmid, c.ring_va, c.ring_bytes, q.rptr(), q.wptr()));
        }
        for (vmid, base, size, rptr, wptr) in rings {
            let pending = wptr.wrapping_sub(rptr).min(size);
            let mut at = 0;
            while at < pending {
                let va = base.wrapping_add(rptr.wrapping_add(at) & (size - 1));
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

    /// Memory or a register changed, on which a queue may wait.
    pub(crate) fn wake_queues(&mut self, now: u64) {
        self.gfx.compute.iter_mut().for_each(|q| q.wake(now));
        self.gfx.sdma.iter_mut().for_each(|q| q.wake(now));
    }

    /// When the next queue has something to do.
    pub(crate) fn next_engine(&self) -> Option<u64> {
        let compute = self.gfx.compute.iter().filter(|q| !q.idle).map(|q| q.busy_until);
        let sdma = self.gfx.sdma.iter().filter(|q| !q.idle).map(|q| q.busy_until);
        compute.chain(sdma).min()
    }

    /// When a queue that came this far at `now` has its next turn.
    fn next_turn(&self, now: u64, progress: Progress) -> u64 {
        let took = if self.config.delays { self.engine_ns.max(POLL_NS) } else { POLL_NS };
        took + if progress == Progress::Waiting { self.polled_at(now) } else { now }
    }

    /// Runs the queues that are due at `now`.
    pub(crate) fn run_engines(&mut self, now: u64) {
        for i in 0..self.gfx.compute.len() {
            // A packet may have taken queues away.
            let Some(r) = self.gfx.compute.get_mut(i) else { break };
            if r.idle || r.busy_until > now {
                continue;
            }
            let key = r.key;
            let Some(mut q) = r.queue.take() else { continue };
            let before = q.rptr();
            let progress = if self.config.hangs(Stage::Compute) {
                Progress::Waiting
            } else {
                self.engine_ns = 0;
                self.watch.runs(Some(QueueId::Compute(key.0)));
                self.watch.executes(q.rptr());
                q.run(self, COMPUTE_BUDGET)
            };
            self.watch.runs(None);
            let (mut due, rptr) = (self.next_turn(now, progress), q.rptr());
            let moved = progress != Progress::Waiting || rptr != before;
            if let Some(r) = self.gfx.compute.iter_mut().find(|r| r.key == key) {
                let same = progress == Progress::Busy && rptr == before;
                r.long = if same { r.long.saturating_add(1) } else { 0 };
                if r.long > LONG_TURNS && self.config.clock == ClockKind::Virtual {
                    due = due.max(now + LONG_TURN_NS);
                }
                r.ran(q, progress, moved, due);
            }
            if moved {
                self.wake_queues(due);
            }
            if let Some(a) = self.regs.addr("CP_HQD_PQ_RPTR") {
                self.regs.set_at(a, key.0, rptr as u32);
            }
        }
        for i in 0..self.gfx.sdma.len() {
            let Some(r) = self.gfx.sdma.get_mut(i) else { break };
            if r.idle || r.busy_until > now {
                continue;
            }
            let key = r.key;
            let Some(mut q) = r.queue.take() else { continue };
            let before = q.rptr();
            let progress = if self.config.hangs(Stage::Sdma) {
                Progress::Waiting
            } else {
                self.engine_ns = 0;
                self.watch.runs(Some(QueueId::Sdma(key.0, key.1)));
                self.watch.executes(q.rptr());
                q.run(self, SDMA_BUDGET)
            };
            self.watch.runs(None);
            let (due, rptr) = (self.next_turn(now, progress), q.rptr());
            let moved = progress != Progress::Waiting || rptr != before;
            if let Some(r) = self.gfx.sdma.iter_mut().find(|r| r.key == key) {
                r.ran(q, progress, moved, due);
            }
            if !moved {
                continue;
            }
            self.wake_queues(due);
            let p = format!("SDMA{}_QUEUE{}_RB_RPTR", key.0, key.1);
            self.regs.put(&p, rptr as u32);
            self.regs.put(&format!("{p}_HI"), (rptr >> 32) as u32);
        }
    }
}
