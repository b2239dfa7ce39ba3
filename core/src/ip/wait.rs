//! Waits as plain data, and the one loop that lets time pass.
//!
//! A machine is an `async fn`. Where it must wait it publishes a [`Wait`] in its [`Slot`] and gives
//! up control; [`drive`] polls any number of machines, decides how long to sleep and when a
//! deadline has passed. No executor and no allocation: a machine's future is pinned on the caller's
//! stack. The slot is the only thing the loop and the machine share.

use crate::bus::DmaHandle;
use crate::error::Error;
use crate::reg::Reg;
use core::cell::Cell;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

/// What the time between two looks grows to.
const MAX_INTERVAL_US: u64 = 1000;

/// A step of bringing a device up, resetting it or shutting it down.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum Stage {
    /// Finding out in which state the device is.
    Probe,
    /// Mode-1 reset.
    Reset,
    /// Bus interface.
    Soc,
    /// Memory hub.
    Gmc,
    /// Interrupt rings.
    Ih,
    /// Secure OS and firmware.
    Psp,
    /// Power management.
    Smu,
    /// Graphics and compute.
    Gfx,
    /// DMA engines.
    Sdma,
    /// Pinning clocks to a level.
    Clocks,
    /// Clock gating.
    ClockGating,
    /// Filling table pages with zeros by DMA, on a slow bus.
    Scrub,
    /// Invalidating TLBs.
    Tlb,
    /// Setting up or taking down a queue.
    Queue,
    /// Serving interrupts.
    Interrupt,
    /// Reading metrics.
    Metrics,
    /// Resetting compute and DMA engines.
    MecReset,
    /// The host resets the device.
    BusReset,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Probe => "probe",
            Stage::Reset => "mode-1 reset",
            Stage::Soc => "soc",
            Stage::Gmc => "gmc",
            Stage::Ih => "ih",
            Stage::Psp => "psp",
            Stage::Smu => "smu",
            Stage::Gfx => "gfx",
            Stage::Sdma => "sdma",
            Stage::Clocks => "clocks",
            Stage::ClockGating => "clock gating",
            Stage::Scrub => "scrub",
            Stage::Tlb => "tlb flush",
            Stage::Queue => "queue",
            Stage::Interrupt => "interrupt",
            Stage::Metrics => "metrics",
            Stage::MecReset => "mec reset",
            Stage::BusReset => "bus reset",
        })
    }
}

/// What a wait looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// A register.
    Reg(Reg),
    /// The dword at a byte offset of the VRAM.
    Vram(u64),
    /// The dword at a byte offset of an allocation of the host.
    Dma(DmaHandle, u64),
    /// Nothing: the time itself must pass.
    Time,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Reg(reg) => fmt::Display::fmt(reg, f),
            Target::Vram(offset) => write!(f, "VRAM at {offset:#x}"),
            Target::Dma(handle, offset) => write!(f, "buffer {handle} at {offset:#x}"),
            Target::Time => f.write_str("time"),
        }
    }
}

/// When a wait is over, by the masked value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// Equal to this.
    Equal(u32),
    /// Different from this.
    Differs(u32),
}

impl Until {
    fn holds(self, value: u32) -> bool {
        match self {
            Until::Equal(v) => value == v,
            Until::Differs(v) => value != v,
        }
    }
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Until::Equal(v) => write!(f, "{v:#x}"),
            Until::Differs(v) => write!(f, "something other than {v:#x}"),
        }
    }
}

/// A wait record: what a machine waits for, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// What is looked at.
    pub target: Target,
    /// Bits that count.
    pub mask: u32,
    /// Value that ends the wait.
    pub until: Until,
    /// Longest time to wait in microseconds; for [`Target::Time`] the time that passes.
    pub timeout_us: u64,
    /// Time between two looks in microseconds, at least 1. It grows to a quarter of the time waited
    /// so far, up to 1 ms: a look costs more on a slow bus than a late end of a long wait.
    pub interval_us: u64,
    /// Where in the boot this is.
    pub stage: Stage,
}

impl Wait {
    pub(crate) fn is_over(&self, value: u32) -> bool {
        self.until.holds(value & self.mask)
    }
}

/// A wait that missed its deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missed {
    /// The record.
    pub wait: Wait,
    /// The last value seen, without the mask.
    pub last: u32,
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "stage {}: {} (mask {:#x}) did not become {} within {} us; it was {:#x} at last",
            self.wait.stage,
            self.wait.target,
            self.wait.mask,
            self.wait.until,
            self.wait.timeout_us,
            self.last
        )
    }
}

/// What was done so far on a device's bus.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Register reads, the two accesses of an indirect one counted as such.
    pub register_reads: u64,
    /// Register writes.
    pub register_writes: u64,
    /// Bytes read from VRAM.
    pub vram_bytes_read: u64,
    /// Bytes written to VRAM.
    pub vram_bytes_written: u64,
}

/// A machine entered a stage, or left the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The stage entered; `None` when the work is done.
    pub stage: Option<Stage>,
    /// When, by the device's clock, in microseconds.
    pub at_us: u64,
    /// The counters at that moment.
    pub counters: Counters,
}

/// What a machine and the loop share.
#[derive(Debug, Default)]
pub struct Slot {
    wait: Cell<Option<Wait>>,
    event: Cell<Option<Event>>,
    now: Cell<u64>,
    due: Cell<u64>,
    since: Cell<u64>,
    deadline: Cell<u64>,
    looked_at: Cell<u64>,
    last: Cell<u32>,
    sleep: Cell<u64>,
    missed: Cell<bool>,
}

impl Slot {
    /// An empty slot.
    pub const fn new() -> Self {
        Slot {
            wait: Cell::new(None),
            event: Cell::new(None),
            now: Cell::new(0),
            due: Cell::new(0),
            since: Cell::new(0),
            deadline: Cell::new(0),
            looked_at: Cell::new(0),
            last: Cell::new(0),
            sleep: Cell::new(0),
            missed: Cell::new(false),
        }
    }

    /// The record a machine waits on now.
    pub fn wait(&self) -> Option<Wait> {
        self.wait.get()
    }

    pub(super) fn publish_event(&self, event: Event) {
        self.event.set(Some(event));
    }

    /// How long the loop wants the device's clock to run before the next look.
    pub(super) fn take_sleep(&self) -> u64 {
        self.sleep.take()
    }

    pub(super) fn arm(&self, wait: Wait, now: u64) {
        self.wait.set(Some(wait));
        self.missed.set(false);
        self.since.set(now);
        self.deadline.set(now.saturating_add(wait.timeout_us));
        self.due.set(if wait.target == Target::Time { self.deadline.get() } else { now });
        self.last.set(0);
        self.looked_at.set(now);
    }

    pub(super) fn disarm(&self) {
        self.wait.set(None);
    }

    /// What to do at time `now`: wait on, look, or give up.
    pub(super) fn verdict(&self, now: u64) -> Verdict {
        self.now.set(now);
        if self.missed.get() {
            Verdict::Missed(self.last.get())
        } else if now < self.due.get() {
            Verdict::Wait
        } else {
            Verdict::Look
        }
    }

    pub(super) fn looked(&self, wait: &Wait, now: u64, value: u32) {
        self.last.set(value);
        self.looked_at.set(now);
        // The last look falls on the deadline, however long the interval.
        let grown = (now.saturating_sub(self.since.get()) / 4).min(MAX_INTERVAL_US);
        let next = now.saturating_add(wait.interval_us.max(1).max(grown));
        let deadline = self.deadline.get();
        self.due.set(if now < deadline { next.min(deadline) } else { next });
    }
}

/// What a waiting machine has to do when it is polled.
pub(super) enum Verdict {
    Wait,
    Look,
    Missed(u32),
}

/// One machine in the hands of [`drive`].
pub struct Task<'t> {
    future: Pin<&'t mut dyn Future<Output = Result<(), Error>>>,
    slot: &'t Slot,
    result: Option<Result<(), Error>>,
}

impl fmt::Debug for Task<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("slot", &self.slot).field("result", &self.result).finish_non_exhaustive()
    }
}

impl<'t> Task<'t> {
    /// A machine and the slot it was made with.
    pub fn new(future: Pin<&'t mut dyn Future<Output = Result<(), Error>>>, slot: &'t Slot) -> Self {
        Task { future, slot, result: None }
    }

    /// How it ended; `None` while it runs.
    pub fn result(&self) -> Option<Result<(), Error>> {
        self.result
    }

    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        if let Poll::Ready(result) = self.future.as_mut().poll(cx) {
            self.result = Some(result);
            return Step::Done;
        }
        let slot = self.slot;
        if slot.wait.get().is_none() {
            return if slot.event.get().is_some() { Step::Again } else { Step::Lost };
        }
        let (now, deadline) = (slot.now.get(), slot.deadline.get());
        let is_delay = slot.wait.get().is_some_and(|w| w.target == Target::Time);
        if !is_delay && slot.looked_at.get() >= deadline && now >= deadline {
            slot.missed.set(true);
            return Step::Again;
        }
        Step::Sleep(slot.due.get().saturating_sub(now))
    }
}

enum Step {
    Done,
    Again,
    Sleep(u64),
    Lost,
}

/// Drives machines to their ends, interleaved, on this thread.
///
/// `progress` is told which task entered which stage. Every task has a result afterwards. Time
/// passes only on the clock of the device whose machine is due first; the others look at their
/// clocks again before they are put to sleep.
pub fn drive(tasks: &mut [Task<'_>], progress: &mut dyn FnMut(usize, &Event)) {
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        let mut nearest: Option<(&Slot, u64)> = None;
        let mut running = false;
        for (index, task) in tasks.iter_mut().enumerate() {
            if task.result.is_some() {
                continue;
            }
            let step = task.step(&mut cx);
            if let Some(event) = task.slot.event.take() {
                progress(index, &event);
            }
            let sleep = match step {
                Step::Done => continue,
                Step::Lost => {
                    task.result = Some(Err(Error::NoWaitRecord));
                    continue;
                }
                Step::Again => 0,
                Step::Sleep(us) => us,
            };
            running = true;
            if nearest.is_none_or(|(_, us)| sleep < us) {
                nearest = Some((task.slot, sleep));
            }
        }
        if !running {
            return;
        }
        if let Some((slot, us)) = nearest {
            slot.sleep.set(us);
        }
    }
}
