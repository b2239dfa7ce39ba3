//! Two-level segregated fit: an allocator over a range of addresses that it never touches.
//!
//! Free blocks stand in lists by size class: the first level is the power of two, the second
//! divides it into 16. A request is rounded up to the next class, so that the head of any list at
//! or above it fits, and is found with two bit scans. Where that finds nothing, the few classes
//! between the request and its rounded size are searched block by block, so that a request that
//! fits exactly is never refused.
//!
//! Blocks live in a slice that the caller lends; the number of slots bounds the number of blocks,
//! free and used together. Freed neighbours are joined at once.

use core::fmt;
use core::ops::Range;

mod lists;
mod marks;

/// Each power of two is divided into at most 2^4 classes.
const SL_BITS: u32 = 4;
const SL_COUNT: usize = 1 << SL_BITS;
const FL_COUNT: usize = 64;
const NIL: u32 = u32::MAX;

/// Storage for one block of an allocator; lent by the caller.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    addr: u64,
    size: u64,
    /// Neighbours by address.
    left: u32,
    right: u32,
    /// Neighbours in the circular list of a size class, in the queue of marked blocks, or in the
    /// list of vacant slots.
    prev: u32,
    next: u32,
    /// Next used block with the same hash of its address.
    hash_next: u32,
    /// First used block whose address hashes to this slot's index.
    bucket: u32,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Vacant,
    Free,
    Used,
    /// Used, and in the queue of marked blocks.
    Marked,
}

impl Block {
    /// A slot without a block.
    pub const EMPTY: Block = Block {
        addr: 0,
        size: 0,
        left: NIL,
        right: NIL,
        prev: NIL,
        next: NIL,
        hash_next: NIL,
        bucket: NIL,
        state: State::Vacant,
    };
}

impl Default for Block {
    fn default() -> Self {
        Block::EMPTY
    }
}

/// Why an allocator refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsfError {
    /// The range given is empty or ends before it starts.
    #[error("an allocator needs a range that is not empty, not {start:#x}..{end:#x}")]
    EmptyRange {
        /// First address.
        start: u64,
        /// Address after the last.
        end: u64,
    },
    /// Nothing was asked for.
    #[error("an allocation of 0 bytes was asked for; ask for at least 1")]
    ZeroSize,
    /// The alignment is not a power of two.
    #[error("an alignment of {align:#x} was asked for; it must be a power of two")]
    BadAlign {
        /// The alignment in bytes.
        align: u64,
    },
    /// No free block is large enough.
    #[error(
        "no free block holds {size:#x} bytes aligned to {align:#x} ({free:#x} bytes free, largest block {largest:#x}); free something or ask for less"
    )]
    OutOfMemory {
        /// Bytes asked for.
        size: u64,
        /// Alignment in bytes.
        align: u64,
        /// Bytes free in all.
        free: u64,
        /// Bytes of the largest free block.
        largest: u64,
    },
    /// All block slots are in use.
    #[error("all {slots} block slots of the allocator are in use; lend it more or free something")]
    OutOfSlots {
        /// The number of slots lent.
        slots: usize,
    },
    /// No allocation starts at this address: it was freed before, or never came from here.
    #[error("{addr:#x} is not an allocation of this range (freed twice, or allocated elsewhere)")]
    NotAllocated {
        /// The address given.
        addr: u64,
    },
}

/// A block as [`Tlsf::blocks`] shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockInfo {
    /// First address.
    pub addr: u64,
    /// Length in bytes.
    pub size: u64,
    /// Whether it is free.
    pub free: bool,
}

/// The allocator.
pub struct Tlsf<'s> {
    range: Range<u64>,
    min_block: u64,
    sl_bits: u32,
    blocks: &'s mut [Block],
    free_bytes: u64,
    used: usize,
    vacant: u32,
    vacant_count: usize,
    marked_first: u32,
    marked_last: u32,
    fl_map: u64,
    sl_map: [u16; FL_COUNT],
    heads: [[u32; SL_COUNT]; FL_COUNT],
}

impl fmt::Debug for Tlsf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:#x}..{:#x}: {} allocations, {:#x} bytes free, largest block {:#x}, {} block slots left",
            self.range.start,
            self.range.end,
            self.used,
            self.free_bytes,
            self.largest_free(),
            self.vacant_count
        )
    }
}

fn align_up(value: u64, align: u64) -> Option<u64> {
    let mask = align.checked_sub(1)?;
    Some(value.checked_add(mask)? & !mask)
}

impl<'s> Tlsf<'s> {
    /// An allocator over `range`, with all of it free. Requests below `min_block` bytes are
    /// enlarged to it.
    ///
    /// # Errors
    /// [`TlsfError::EmptyRange`], or [`TlsfError::OutOfSlots`] if no slot was lent.
    pub fn new(range: Range<u64>, min_block: u64, blocks: &'s mut [Block]) -> Result<Self, TlsfError> {
        Self::with_classes(range, min_block, SL_BITS, blocks)
    }

    /// Like [`Tlsf::new`], but each power of two is divided into `2^class_bits` size classes (at
    /// most 16): fewer classes refuse fewer blocks unseen and fragment more.
    ///
    /// # Errors
    /// As [`Tlsf::new`].
    pub fn with_classes(
        range: Range<u64>,
        min_block: u64,
        class_bits: u32,
        blocks: &'s mut [Block],
    ) -> Result<Self, TlsfError> {
        if range.end <= range.start {
            return Err(TlsfError::EmptyRange { start: range.start, end: range.end });
        }
        // Indices are 32 bits wide and the last one means "none": slots beyond are left unused.
        let count = blocks.len().min(NIL as usize);
        for (i, block) in blocks.iter_mut().enumerate() {
            *block = Block::EMPTY;
            block.next = if i + 1 < count { i as u32 + 1 } else { NIL };
        }
        let mut tlsf = Tlsf {
            min_block: min_block.max(1),
            sl_bits: class_bits.min(SL_BITS),
            vacant: if count == 0 { NIL } else { 0 },
            vacant_count: count,
            blocks,
            free_bytes: range.end - range.start,
            used: 0,
            marked_first: NIL,
            marked_last: NIL,
            fl_map: 0,
            sl_map: [0; FL_COUNT],
            heads: [[NIL; SL_COUNT]; FL_COUNT],
            range,
        };
        let first = tlsf.take_slot().ok_or(TlsfError::OutOfSlots { slots: 0 })?;
        let (addr, size) = (tlsf.range.start, tlsf.free_bytes);
        tlsf.edit(first, |b| (b.addr, b.size) = (addr, size));
        tlsf.list(first);
        Ok(tlsf)
    }

    /// Allocates `size` bytes at an address that is a multiple of `align`.
    ///
    /// # Errors
    /// [`TlsfError::ZeroSize`], [`TlsfError::BadAlign`], [`TlsfError::OutOfMemory`],
    /// [`TlsfError::OutOfSlots`]; nothing has changed then.
    pub fn alloc(&mut self, size: u64, align: u64) -> Result<u64, TlsfError> {
        if size == 0 {
            return Err(TlsfError::ZeroSize);
        }
        if !align.is_power_of_two() {
            return Err(TlsfError::BadAlign { align });
        }
        let size = size.max(self.min_block);
        let found = self.find_fast(size, align).or_else(|| self.find_exact(size, align));
        let (index, start) = found.ok_or_else(|| TlsfError::OutOfMemory {
            size,
            align,
            free: self.free_bytes,
            largest: self.largest_free(),
        })?;
        let block = self.at(index);
        let front = start - block.addr;
        let back = block.size - front - size;
        if usize::from(front > 0) + usize::from(back > 0) > self.vacant_count {
            return Err(TlsfError::OutOfSlots { slots: self.blocks.len() });
        }
        self.unlist(index);
        let mut used = index;
        if front > 0 {
            used = self.split(index, front);
            self.list(index);
        }
        if back > 0 {
            let rest = self.split(used, size);
            self.list(rest);
        }
        self.edit(used, |b| b.state = State::Used);
        self.hash_insert(used);
        self.free_bytes -= size;
        self.used += 1;
        Ok(start)
    }

    /// Gives an allocation back; returns its size in bytes.
    ///
    /// # Errors
    /// [`TlsfError::NotAllocated`] if no allocation starts at `addr`.
    pub fn free(&mut self, addr: u64) -> Result<u64, TlsfError> {
        let index = self.lookup(addr).ok_or(TlsfError::NotAllocated { addr })?;
        let size = self.at(index).size;
        if self.at(index).state == State::Marked {
            self.unqueue(index);
        }
        self.release(index);
        Ok(size)
    }

    /// Size in bytes of the allocation that starts at `addr`.
    ///
    /// # Errors
    /// [`TlsfError::NotAllocated`] if no allocation starts there.
    pub fn size_of(&self, addr: u64) -> Result<u64, TlsfError> {
        let index = self.lookup(addr).ok_or(TlsfError::NotAllocated { addr })?;
        Ok(self.at(index).size)
    }

    /// The range managed.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Whether an address lies in the range managed.
    pub fn contains(&self, addr: u64) -> bool {
        self.range.contains(&addr)
    }

    /// Bytes free in all.
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Bytes of the largest free block; 0 if nothing is free.
    pub fn largest_free(&self) -> u64 {
        let Some(fl) = 63u32.checked_sub(self.fl_map.leading_zeros()) else { return 0 };
        let sl = 15u32.saturating_sub(self.sl_map.get(fl as usize).map_or(0, |m| m.leading_zeros()));
        self.class_list(fl as usize, sl as usize).map(|(_, b)| b.size).max().unwrap_or(0)
    }

    /// Number of live allocations.
    pub fn allocations(&self) -> usize {
        self.used
    }

    /// Block slots not in use; an allocation takes up to two.
    pub fn slots_left(&self) -> usize {
        self.vacant_count
    }

    /// All blocks in order of address.
    pub fn blocks(&self) -> impl Iterator<Item = BlockInfo> + '_ {
        // The block at the start of the range has no left neighbour; it is searched for, because
        // joining to the left may have moved it to any slot.
        let mut at = self
            .blocks
            .iter()
            .position(|b| b.state != State::Vacant && b.left == NIL)
            .map_or(NIL, |i| i as u32);
        core::iter::from_fn(move || {
            let block = self.blocks.get(at as usize)?;
            at = block.right;
            Some(BlockInfo { addr: block.addr, size: block.size, free: block.state == State::Free })
        })
    }
}
