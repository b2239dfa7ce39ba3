//! The blocks inside: lists of free ones by size class, slots, neighbours, and the table that finds
//! a used one by its address.

use super::{Block, FL_COUNT, NIL, SL_COUNT, State, Tlsf, align_up};

impl Tlsf<'_> {
    /// First and second level of a size.
    fn class(&self, size: u64) -> (usize, usize) {
        let fl = 63 - size.max(1).leading_zeros();
        let bits = self.sl_bits;
        let sl = if fl >= bits { size >> (fl - bits) } else { size << (bits - fl) };
        (fl as usize, sl as usize & ((1 << bits) - 1))
    }

    /// The head of the first list whose blocks all hold `size` bytes wherever they start.
    pub(super) fn find_fast(&self, size: u64, align: u64) -> Option<(u32, u64)> {
        let padded = size.checked_add(align - 1)?;
        let shift = (63 - padded.leading_zeros()).saturating_sub(self.sl_bits);
        let rounded = align_up(padded, 1 << shift)?;
        let (fl, sl) = self.class(rounded);
        let in_level = self.sl_map.get(fl)? & (u16::MAX << sl);
        let (fl, sl) = if in_level != 0 {
            (fl, in_level.trailing_zeros())
        } else {
            let above = if fl + 1 < FL_COUNT { self.fl_map & (u64::MAX << (fl + 1)) } else { 0 };
            if above == 0 {
                return None;
            }
            let fl = above.trailing_zeros() as usize;
            (fl, self.sl_map.get(fl)?.trailing_zeros())
        };
        let (index, block) = self.class_list(fl, sl as usize).next()?;
        Some((index, align_up(block.addr, align)?))
    }

    /// Any block that holds the request, block by block; only where [`Self::find_fast`] found none.
    pub(super) fn find_exact(&self, size: u64, align: u64) -> Option<(u32, u64)> {
        let (first_fl, first_sl) = self.class(size);
        for fl in first_fl..FL_COUNT {
            let map = self.sl_map.get(fl).copied().unwrap_or(0);
            for sl in if fl == first_fl { first_sl } else { 0 }..SL_COUNT {
                if map & (1 << sl) == 0 {
                    continue;
                }
                for (index, block) in self.class_list(fl, sl) {
                    let fits = align_up(block.addr, align)
                        .filter(|s| s.checked_add(size).is_some_and(|end| end <= block.addr + block.size));
                    if let Some(start) = fits {
                        return Some((index, start));
                    }
                }
            }
        }
        None
    }

    pub(super) fn class_list(&self, fl: usize, sl: usize) -> impl Iterator<Item = (u32, Block)> + '_ {
        let head = self.heads.get(fl).and_then(|l| l.get(sl)).copied().unwrap_or(NIL);
        let mut at = head;
        core::iter::from_fn(move || {
            let block = *self.blocks.get(at as usize)?;
            let index = at;
            at = if block.next == head { NIL } else { block.next };
            Some((index, block))
        })
    }

    pub(super) fn at(&self, index: u32) -> Block {
        self.blocks.get(index as usize).copied().unwrap_or(Block::EMPTY)
    }

    pub(super) fn edit(&mut self, index: u32, change: impl FnOnce(&mut Block)) {
        if let Some(block) = self.blocks.get_mut(index as usize) {
            change(block);
        }
    }

    fn set_head(&mut self, fl: usize, sl: usize, index: u32) {
        if let Some(head) = self.heads.get_mut(fl).and_then(|l| l.get_mut(sl)) {
            *head = index;
        }
    }

    /// Takes a vacant slot. Its `bucket` belongs to the hash table and stays.
    pub(super) fn take_slot(&mut self) -> Option<u32> {
        let index = self.vacant;
        let slot = self.blocks.get_mut(index as usize)?;
        self.vacant = slot.next;
        *slot = Block { bucket: slot.bucket, ..Block::EMPTY };
        self.vacant_count -= 1;
        Some(index)
    }

    fn give_slot(&mut self, index: u32) {
        let next = self.vacant;
        self.edit(index, |b| *b = Block { bucket: b.bucket, next, ..Block::EMPTY });
        self.vacant = index;
        self.vacant_count += 1;
    }

    /// Appends a block to the list of its class and makes it free.
    pub(super) fn list(&mut self, index: u32) {
        let (fl, sl) = self.class(self.at(index).size);
        let head = self.heads.get(fl).and_then(|l| l.get(sl)).copied().unwrap_or(NIL);
        if head == NIL {
            self.edit(index, |b| (b.prev, b.next) = (index, index));
            self.set_head(fl, sl, index);
            self.fl_map |= 1 << fl;
            if let Some(map) = self.sl_map.get_mut(fl) {
                *map |= 1 << sl;
            }
        } else {
            let last = self.at(head).prev;
            self.edit(index, |b| (b.prev, b.next) = (last, head));
            self.edit(last, |b| b.next = index);
            self.edit(head, |b| b.prev = index);
        }
        self.edit(index, |b| b.state = State::Free);
    }

    /// Takes a block out of the list of its class.
    pub(super) fn unlist(&mut self, index: u32) {
        let Block { size, prev, next, .. } = self.at(index);
        let (fl, sl) = self.class(size);
        if next == index {
            self.set_head(fl, sl, NIL);
            if let Some(map) = self.sl_map.get_mut(fl) {
                *map &= !(1 << sl);
                if *map == 0 {
                    self.fl_map &= !(1 << fl);
                }
            }
            return;
        }
        self.edit(prev, |b| b.next = next);
        self.edit(next, |b| b.prev = prev);
        if self.heads.get(fl).and_then(|l| l.get(sl)) == Some(&index) {
            self.set_head(fl, sl, next);
        }
    }

    /// Cuts a block after `size` bytes; returns the slot of what follows. The caller made sure
    /// that a slot is vacant.
    pub(super) fn split(&mut self, index: u32, size: u64) -> u32 {
        let Some(new) = self.take_slot() else { return NIL };
        let block = self.at(index);
        self.edit(new, |b| {
            (b.addr, b.size) = (block.addr + size, block.size - size);
            (b.left, b.right) = (index, block.right);
        });
        self.edit(block.right, |b| b.left = new);
        self.edit(index, |b| (b.size, b.right) = (size, new));
        new
    }

    /// Makes a used block free and joins it with free neighbours.
    pub(super) fn release(&mut self, index: u32) {
        self.hash_remove(index);
        let size = self.at(index).size;
        self.free_bytes += size;
        self.used -= 1;
        let mut start = index;
        let left = self.at(index).left;
        if left != NIL && self.at(left).state == State::Free {
            self.unlist(left);
            self.join(left);
            start = left;
        }
        let right = self.at(start).right;
        if right != NIL && self.at(right).state == State::Free {
            self.unlist(right);
            self.join(start);
        }
        self.list(start);
    }

    /// Joins a block with its right neighbour, whose slot becomes vacant.
    fn join(&mut self, index: u32) {
        let right = self.at(index).right;
        let Block { size, right: after, .. } = self.at(right);
        self.edit(index, |b| (b.size, b.right) = (b.size + size, after));
        self.edit(after, |b| b.left = index);
        self.give_slot(right);
    }

    fn hash(&self, addr: u64) -> usize {
        // Fibonacci hashing: the product's high half is scaled to the number of slots.
        let mixed = addr.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        ((mixed * self.blocks.len().min(NIL as usize) as u64) >> 32) as usize
    }

    pub(super) fn lookup(&self, addr: u64) -> Option<u32> {
        let mut at = self.blocks.get(self.hash(addr))?.bucket;
        while let Some(block) = self.blocks.get(at as usize) {
            if block.addr == addr {
                return Some(at);
            }
            at = block.hash_next;
        }
        None
    }

    pub(super) fn hash_insert(&mut self, index: u32) {
        let bucket = self.hash(self.at(index).addr) as u32;
        let first = self.at(bucket).bucket;
        self.edit(index, |b| b.hash_next = first);
        self.edit(bucket, |b| b.bucket = index);
    }

    fn hash_remove(&mut self, index: u32) {
        let bucket = self.hash(self.at(index).addr) as u32;
        let after = self.at(index).hash_next;
        let mut at = self.at(bucket).bucket;
        if at == index {
            self.edit(bucket, |b| b.bucket = after);
            return;
        }
        while at != NIL {
            let next = self.at(at).hash_next;
            if next == index {
                self.edit(at, |b| b.hash_next = after);
                return;
            }
            at = next;
        }
    }
}
