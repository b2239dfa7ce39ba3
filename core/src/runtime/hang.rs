//! Work that does not end: noticing it, describing it, going on without it.

use super::{COMMANDS, Runtime, SPINS, Ticket};
use crate::fault::Fault;
use crate::hang::{Cause, Hang, HangError, KernelName, NOTICE_US, QueueState, Recovery, packets};
use crate::iface::{Iface, IfaceError, QueueKind};
use crate::queue::QueueError;
use crate::queue::ring::Ring;

/// Submissions that are remembered.
const RECENT: usize = 8;
/// Losses that are remembered: tickets of earlier ones are taken for done.
const LOSSES: usize = 8;
/// Between two looks at work that takes long, in microseconds. Two of them see the same standstill.
const LOOK_US: u64 = NOTICE_US / 2;

/// A submission, as far as needed should it hang.
#[derive(Clone, Debug)]
pub(super) struct Submission {
    pub(super) value: u32,
    pub(super) kind: QueueKind,
    /// Where it starts in its ring, counted without wrapping, in the queue's unit.
    pub(super) from: u64,
    /// Where it ends.
    pub(super) to: u64,
    pub(super) kernel: Option<KernelName>,
}

/// What is remembered of submissions and hangs.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    recent: heapless::Deque<Submission, RECENT>,
    lost: heapless::Deque<(u32, u32), LOSSES>,
    last: Option<Hang>,
    /// A fault that was found when nothing was under way.
    stray: Option<Fault>,
}

impl History {
    /// The history of a runtime that finds a fault, or none.
    pub(super) fn after(stray: Option<Fault>) -> Self {
        History { stray, ..History::default() }
    }

    pub(super) fn submitted(&mut self, submission: Submission) {
        if self.recent.is_full() {
            self.recent.pop_front();
        }
        let _ = self.recent.push_back(submission);
    }

    /// Tickets start anew.
    pub(super) fn restart(&mut self) {
        self.recent.clear();
        self.lost.clear();
    }

    fn find(&self, value: u32) -> Option<&Submission> {
        self.recent.iter().find(|s| s.value == value)
    }

    fn is_lost(&self, value: u32) -> bool {
        self.lost.iter().any(|(first, last)| (*first..=*last).contains(&value))
    }

    fn lose(&mut self, first: u32, last: u32) {
        self.recent.clear();
        if first <= last {
            if self.lost.is_full() {
                self.lost.pop_front();
            }
            let _ = self.lost.push_back((first, last));
        }
    }
}

impl<I: Iface> Runtime<I> {
    /// Everything known of the last hang.
    pub fn hang(&self) -> Option<&Hang> {
        self.history.last.as_ref()
    }

    /// A fault that the device reported while nothing was under way: of work that ended all the same, or
    /// from before this runtime. It is told once, and not blamed on what is submitted next.
    pub fn take_stray_fault(&mut self) -> Option<Fault> {
        self.history.stray.take()
    }

    /// Puts aside what the device reports of work that has ended. Where a look costs much it is only done
    /// at the start.
    pub(super) fn put_stray_aside(&mut self) -> Result<(), IfaceError> {
        if self.timeline.seen() == self.timeline.last_value()
            && !self.iface.align_submissions()
            && let Some(fault) = self.iface.take_error()?
        {
            self.history.stray = Some(fault);
        }
        Ok(())
    }

    /// The error of a submission that ended with a hang, its own or that of one before it.
    pub(super) fn check_lost(&self, ticket: Ticket) -> Result<(), QueueError> {
        match &self.history.last {
            Some(hang) if self.history.is_lost(ticket.0) => Err(QueueError::Hang(hang.error)),
            _ => Ok(()),
        }
    }

    /// Waits for a timeline value; see [`Runtime::wait`].
    pub(super) fn await_value(&mut self, value: u32, timeout_us: u64) -> Result<(), QueueError> {
        let start = self.iface.now_us();
        let mut before = None;
        loop {
            let passed = self.iface.now_us().saturating_sub(start);
            let slice = LOOK_US.min(timeout_us.saturating_sub(passed));
            let waited = self.timeline.wait(&mut self.iface, value, SPINS, slice);
            let Err(IfaceError::Timeout { what, expected, last, .. }) = waited else { return Ok(waited?) };
            let after_us = self.iface.now_us().saturating_sub(start);
            let over = after_us >= timeout_us;
            if (over || after_us >= NOTICE_US)
                && let Some(fault) = self.iface.take_error()?
            {
                return Err(self.hung(Cause::Fault(fault), after_us));
            }
            let now = self.standstill(last as u32)?;
            let stands = now.is_some() && now == before;
            before = now;
            // A caller that only looks, with a short time, says nothing about the device.
            if over && timeout_us < self.sizes.timeout_us {
                return Err(IfaceError::Timeout { what, expected, last, after_us }.into());
            }
            if stands && (over || after_us >= NOTICE_US) {
                return Err(self.hung(Cause::Idle, after_us));
            }
            if over {
                return Err(self.hung(Cause::Busy, after_us));
            }
        }
    }

    /// The queue whose turn it is: that of the oldest submission which has not ended.
    fn hanging(&self, seen: u32) -> QueueKind {
        self.history.find(seen.wrapping_add(1)).map_or(QueueKind::Compute, |s| s.kind)
    }

    fn state(&mut self, kind: QueueKind) -> Result<Option<QueueState>, IfaceError> {
        let [compute, sdma] = &self.memory;
        let hw = match kind {
            QueueKind::Compute => compute.hw,
            QueueKind::Sdma => sdma.hw,
        };
        self.iface.queue_state(&hw)
    }

    /// Where the queue stands that should be working, if its engine is idle.
    fn standstill(&mut self, seen: u32) -> Result<Option<(u32, u64)>, QueueError> {
        // Where the oldest one is not remembered, which queue should be working nobody knows.
        let Some(kind) = self.history.find(seen.wrapping_add(1)).map(|s| s.kind) else { return Ok(None) };
        Ok(self.state(kind)?.filter(|s| !s.busy || !s.active).map(|s| (seen, s.read)))
    }

    /// Describes a hang and restarts the queues.
    // Seldom called from many places; what it is made of stays out of them.
    #[inline(never)]
    pub(super) fn hung(&mut self, cause: Cause, after_us: u64) -> QueueError {
        let seen = match self.timeline.poll(&mut self.iface) {
            Ok(seen) => seen,
            Err(e) => return e.into(),
        };
        let value = seen.wrapping_add(1);
        let kind = self.hanging(seen);
        let submission = self.history.find(value).cloned();
        let state = self.state(kind).ok().flatten();
        let [compute, sdma] = &self.memory;
        let hw = match kind {
            QueueKind::Compute => compute.hw,
            QueueKind::Sdma => sdma.hw,
        };
        let read = self.iface.read64(&hw.pointers, hw.read_ptr.into()).unwrap_or(0);
        let put = self.ring(kind).put();
        let mut found = heapless::Vec::new();
        if let Some(s) = &submission {
            let mut dwords = [0; COMMANDS];
            let ring = self.ring(kind).clone();
            let len = usize::try_from(s.to.saturating_sub(s.from).saturating_mul(ring.unit()) / 4)
                .unwrap_or(0)
                .min(dwords.len());
            let part = dwords.get_mut(..len).unwrap_or(&mut []);
            if ring.read_back(&mut self.iface, s.from, part).is_ok() {
                found = packets(kind, part, s.from, ring.position(read, s.from));
            }
        }
        let recovery = match self.restart(value) {
            Ok(rung) => Recovery::Restarted(rung),
            Err(_) => {
                self.poisoned = true;
                Recovery::Failed
            }
        };
        let error = HangError { kind, cause, after_us, recovery };
        let kernel = submission.and_then(|s| s.kernel);
        self.history.last = Some(Hang { error, value, kernel, read, put, state, packets: found });
        QueueError::Hang(error)
    }

    /// Ends what is under way after at most `grace_us`: as after a hang, queues are restarted, and what was
    /// submitted is lost; memory and programs stay. False if everything had ended by itself.
    ///
    /// # Errors
    /// What the device or the bus says; queues that cannot be restarted serve no more work.
    pub fn cancel(&mut self, grace_us: u64) -> Result<bool, QueueError> {
        let start = self.iface.now_us();
        let last = self.timeline.last_value();
        loop {
            let left = grace_us.saturating_sub(self.iface.now_us().saturating_sub(start));
            match self.timeline.wait(&mut self.iface, last, SPINS, left.min(LOOK_US)) {
                Ok(_) => {
                    self.kernargs.retire(last);
                    return Ok(false);
                }
                Err(IfaceError::Timeout { .. }) if left > LOOK_US => {}
                Err(IfaceError::Timeout { .. }) => break,
                Err(e) => return Err(e.into()),
            }
        }
        let seen = self.timeline.poll(&mut self.iface)?;
        let restarted = self.restart(seen.wrapping_add(1));
        self.poisoned = restarted.is_err();
        restarted.map(|_| true)
    }

    /// Makes the queues work again without what was submitted to them.
    fn restart(&mut self, first: u32) -> Result<crate::boot::Rung, QueueError> {
        let rung = self.iface.restart_queues()?;
        let last = self.timeline.last_value();
        self.timeline.abandon(&mut self.iface)?;
        self.history.lose(first, last);
        let [compute, sdma] = &self.memory;
        self.compute = Ring::new(&[compute.hw])?;
        self.sdma = Ring::new(&[sdma.hw])?;
        self.kernargs.retire(last);
        self.staging_busy = [0; 2];
        self.poisoned = false;
        Ok(rung)
    }
}

/// A kernel's name, cut off where it is too long.
pub(super) fn kernel_name(name: &str) -> KernelName {
    let mut kept = KernelName::new();
    for c in name.chars() {
        if kept.push(c).is_err() {
            break;
        }
    }
    kept
}
