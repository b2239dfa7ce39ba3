//! Memory that the CPU and submitted work use at the same time: loads that did not wait for a fence,
//! stores to memory that work still needs, and memory that was freed under it.
//!
//! What the CPU does while queues work is kept in order with the doorbells. When an engine later
//! touches the same memory for work that was submitted before, the CPU came too early.

use crate::device::Device;
use crate::env::{Access, Hub};
use crate::gmc::{Place, who_name};
use crate::violation::Rule;
use std::collections::{HashMap, VecDeque};

/// Ranges, table entries and doorbells that are remembered; the oldest are forgotten.
const MAX_RANGES: usize = 256;
const MAX_ENTRIES: usize = 4096;
const MAX_SUBMISSIONS: usize = 1024;
/// Loads and stores up to this length are polls and updates of signals, fences and pointers, which
/// are made while engines work.
const POLL: usize = 8;

/// Which queue runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum QueueId {
    /// By GRBM_GFX_CNTL.
    Compute(u32),
    /// Instance and queue.
    Sdma(u32, u32),
}

/// What the CPU did, and when.
#[derive(Clone, Copy, Debug)]
struct Range {
    vram: bool,
    start: u64,
    end: u64,
    sequence: u64,
}

impl Range {
    fn overlaps(&self, place: Place, len: u64) -> bool {
        let (vram, at) = split(place);
        self.vram == vram && self.start < at + len && at < self.end
    }

    fn name(&self) -> String {
        let space = if self.vram { "VRAM" } else { "system memory" };
        format!("{:#x} bytes of {space} at {:#x}", self.end - self.start, self.start)
    }
}

fn split(place: Place) -> (bool, u64) {
    match place {
        Place::Vram(at) => (true, at),
        Place::System(at) => (false, at),
    }
}

#[derive(Default)]
pub(crate) struct Watch {
    sequence: u64,
    loads: VecDeque<Range>,
    stores: VecDeque<Range>,
    /// Page table entries, by VRAM offset, that were made invalid.
    cleared: HashMap<u64, u64>,
    /// Doorbells of each queue that are not executed yet: write pointer and sequence.
    submissions: HashMap<QueueId, VecDeque<(u64, u64)>>,
    running: Option<QueueId>,
    /// When the work that runs was submitted.
    submitted: Option<u64>,
}

impl Watch {
    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn forget(&mut self) {
        self.loads.clear();
        self.stores.clear();
        self.cleared.clear();
    }

    pub(crate) fn reset(&mut self) {
        *self = Watch::default();
    }

    /// A doorbell.
    pub(crate) fn submitted(&mut self, queue: QueueId, wptr: u64) {
        let sequence = self.next();
        let list = self.submissions.entry(queue).or_default();
        if list.back().is_some_and(|last| last.0 == wptr) {
            return;
        }
        if list.len() >= MAX_SUBMISSIONS {
            // Two are taken for one made now: rather nothing is seen than something that is not.
            list.pop_back();
        }
        list.push_back((wptr, sequence));
    }

    /// The queue is taken away.
    pub(crate) fn removed(&mut self, queue: QueueId) {
        self.submissions.remove(&queue);
    }

    /// This queue's engine runs now; `None` when it has done its turn.
    pub(crate) fn runs(&mut self, queue: Option<QueueId>) {
        self.running = queue;
        self.submitted = None;
    }

    /// The engine that runs goes on to the packet at `at`, in the unit of its write pointer.
    pub(crate) fn executes(&mut self, at: u64) {
        let list = self.running.and_then(|q| self.submissions.get_mut(&q));
        self.submitted = list.and_then(|list| {
            while list.front().is_some_and(|(wptr, _)| wptr.wrapping_sub(at) as i64 <= 0) {
                list.pop_front();
            }
            list.front().map(|(_, sequence)| *sequence)
        });
    }

    fn quiet(&self) -> bool {
        self.loads.is_empty() && self.stores.is_empty()
    }
}

fn remember(list: &mut VecDeque<Range>, range: Range) {
    if list.len() >= MAX_RANGES {
        list.pop_front();
    }
    list.push_back(range);
}

impl Device {
    fn range(&mut self, place: Place, len: usize) -> Range {
        let ((vram, start), sequence) = (split(place), self.watch.next());
        Range { vram, start, end: start.saturating_add(len as u64), sequence }
    }

    /// Nothing that the CPU does while no queue works can be too early.
    fn unwatched(&mut self, len: usize) -> bool {
        if !self.engines_busy() {
            self.watch.forget();
            return true;
        }
        len <= POLL
    }

    /// The CPU loads from memory that engines reach.
    pub(crate) fn cpu_loads(&mut self, place: Place, len: usize) {
        if !self.unwatched(len) {
            let range = self.range(place, len);
            remember(&mut self.watch.loads, range);
        }
    }

    /// The CPU stores to memory that engines reach.
    pub(crate) fn cpu_stores(&mut self, place: Place, len: usize) {
        if !self.unwatched(len) {
            let range = self.range(place, len);
            remember(&mut self.watch.stores, range);
        }
    }

    /// The CPU stores 8 bytes to VRAM, before they are there: it may be freeing memory.
    pub(crate) fn cpu_stores_entry(&mut self, at: u64, data: &[u8]) {
        if data.len() != 8 || !at.is_multiple_of(8) || data[0] & 1 != 0 || !self.engines_busy() {
            return;
        }
        let mut old = [0; 8];
        self.vram.cpu_read(at, &mut old);
        if old[0] & 1 != 0 && self.watch.cleared.len() < MAX_ENTRIES {
            let sequence = self.watch.next();
            self.watch.cleared.insert(at, sequence);
        }
    }

    /// An engine reads or writes memory.
    pub(crate) fn engine_touches(&mut self, who: Access, place: Place, len: usize, write: bool) {
        let Some(submitted) = self.watch.submitted else { return };
        if self.watch.quiet() || who.hub != Hub::Gc {
            return;
        }
        let early = |list: &mut VecDeque<Range>| {
            let at = list.iter().position(|r| r.sequence > submitted && r.overlaps(place, len as u64))?;
            list.remove(at)
        };
        if write && let Some(range) = early(&mut self.watch.loads) {
            let what = format!(
                "the CPU read {} before {} had written there; that work was already submitted",
                range.name(),
                who_name(who)
            );
            self.violation(Rule::FenceNotAwaited, what);
        }
        if let Some(range) = early(&mut self.watch.stores) {
            let does = if write { "writes" } else { "reads" };
            let what = format!(
                "the CPU wrote {} while work was submitted in which {} {does} it",
                range.name(),
                who_name(who)
            );
            self.violation(Rule::MemoryInUse, what);
        }
    }

    /// An engine finds the page table entry at this VRAM offset invalid.
    pub(crate) fn engine_misses(&mut self, who: Access, entry: u64, va: u64) {
        let Some(submitted) = self.watch.submitted else { return };
        if self.watch.cleared.get(&entry).is_some_and(|cleared| *cleared > submitted) {
            self.violation(
                Rule::MemoryInUse,
                format!(
                    "memory at {va:#x} was unmapped after work that uses it was submitted and before {} came to it",
                    who_name(who)
                ),
            );
        }
    }
}
