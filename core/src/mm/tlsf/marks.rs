//! Marks: a queue of allocations in flight, threaded through the blocks themselves. A caller that
//! allocates or frees several blocks as one step marks each, and in the end frees or unmarks them all.

use super::{Block, NIL, State, Tlsf, TlsfError};

impl Tlsf<'_> {
    /// Appends the allocation at `addr` to the queue of marked ones; returns its size.
    pub(crate) fn mark(&mut self, addr: u64) -> Result<u64, TlsfError> {
        let index = self.lookup(addr).ok_or(TlsfError::NotAllocated { addr })?;
        if self.at(index).state == State::Marked {
            return Err(TlsfError::NotAllocated { addr });
        }
        let last = self.marked_last;
        self.edit(index, |b| (b.state, b.prev, b.next) = (State::Marked, last, NIL));
        if last == NIL {
            self.marked_first = index;
        } else {
            self.edit(last, |b| b.next = index);
        }
        self.marked_last = index;
        Ok(self.at(index).size)
    }

    /// The marked allocation after the one in `slot` (the first if `None`): slot, address, size.
    pub(crate) fn next_marked(&self, slot: Option<u32>) -> Option<(u32, u64, u64)> {
        let index = match slot {
            None => self.marked_first,
            Some(slot) => self.at(slot).next,
        };
        self.blocks.get(index as usize).map(|b| (index, b.addr, b.size))
    }

    /// Frees all marked allocations.
    pub(crate) fn free_marked(&mut self) {
        while self.marked_first != NIL {
            let index = self.marked_first;
            self.unqueue(index);
            self.release(index);
        }
    }

    /// Empties the queue of marked allocations, which stay allocated.
    pub(crate) fn unmark_all(&mut self) {
        while self.marked_first != NIL {
            let index = self.marked_first;
            self.unqueue(index);
            self.edit(index, |b| b.state = State::Used);
        }
    }

    pub(super) fn unqueue(&mut self, index: u32) {
        let Block { prev, next, .. } = self.at(index);
        if prev == NIL {
            self.marked_first = next;
        } else {
            self.edit(prev, |b| b.next = next);
        }
        if next == NIL {
            self.marked_last = prev;
        } else {
            self.edit(next, |b| b.prev = prev);
        }
    }
}
