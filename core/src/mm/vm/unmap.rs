//! Unmapping: check, invalidate, flush, then zero and free; or make valid again.
//!
//! Entries are invalidated in place by clearing their VALID bit alone, so that until the TLB flush
//! succeeded everything can be taken back from what stands in the tables. Only then are they
//! zeroed and the tables below them freed.

use core::ops::{ControlFlow, Range};

use super::map::fragment;
use super::{Flush, Phase, Twice, Vm, VmError};
use crate::mm::pte::{ENTRIES, Kind, Level, PteFlags, PteFormat};
use crate::mm::walk::{CHUNK, TableMemory, Visit, walk};

/// Consecutive entries of a table.
#[derive(Clone, Copy)]
struct Stretch {
    table: u64,
    level: Level,
    /// Offset in the address space that entry 0 translates.
    start: u64,
    first: u64,
    count: u64,
}

/// What a call invalidated: one stretch where both ends of the range share a table, and at most
/// two on each level below.
type Journal = heapless::Vec<Stretch, 8>;

impl<P: Phase> Vm<'_, P> {
    /// Unmaps a range in which everything is mapped, frees the tables that became empty, and
    /// flushes the TLBs once. The range may be part of what was mapped in one call, but holds only
    /// whole pages.
    ///
    /// # Errors
    /// Any of [`VmError`]; nothing has changed then.
    pub fn unmap<M: Flush>(&mut self, mem: &mut M, va: u64, size: u64) -> Result<(), VmError<M::Error>> {
        self.usable()?;
        let range = self.offsets(va, size)?;
        self.check_mapped(mem, va, size)?;
        self.unmap_checked(mem, range)
    }

    /// The part of [`Vm::unmap`] after its checks. Frees everything marked in the allocators with
    /// the tables, or unmarks it.
    pub(super) fn unmap_checked<M: Flush>(
        &mut self,
        mem: &mut M,
        range: Range<u64>,
    ) -> Result<(), VmError<M::Error>> {
        let mut journal = Journal::new();
        let root = self.space.root;
        let done = self
            .invalidate(mem, &mut journal, root, Level::Pdb2, range)
            .and_then(|_| mem.flush_tlb().map_err(VmError::Bus));
        let mut again = Twice(mem);
        if let Err(error) = done {
            self.stock.unmark_all();
            self.boot.unmark_all();
            self.pool.unmark_all();
            for stretch in &journal {
                let restored = set_valid(&mut again, stretch, true)
                    .and_then(|()| fit_neighbours(&mut again, self.space.format, stretch, true));
                self.lost |= restored.is_err();
            }
            return Err(error);
        }
        // The unmapping is in force from here on and cannot be taken back.
        self.stock.free_marked();
        self.boot.free_marked();
        self.pool.free_marked();
        for Stretch { table, first, count, .. } in &journal {
            if let Err(error) = again.zero(table + first * 8, count * 8) {
                self.lost = true;
                return Err(VmError::Bus(error));
            }
        }
        Ok(())
    }

    pub(super) fn check_mapped<M: TableMemory>(
        &self,
        mem: &mut M,
        va: u64,
        size: u64,
    ) -> Result<(), VmError<M::Error>> {
        let flow = walk(mem, &self.space, va..va + size, |visit| match visit {
            Visit::Hole { va, .. } => ControlFlow::Break(VmError::NotMapped { va }),
            Visit::Page { va: page, level, .. } if page < va || page + level.covers() > va + size => {
                ControlFlow::Break(VmError::PartialPage { va: page, page: level.covers() })
            }
            Visit::Page { .. } => ControlFlow::Continue(()),
        });
        match flow.map_err(VmError::Bus)? {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(()),
        }
    }

    /// Invalidates the entries of a range. Returns true, and leaves the table alone, if nothing
    /// else is in it: then the entry that points at it is the one to invalidate.
    fn invalidate<M: TableMemory>(
        &mut self,
        mem: &mut M,
        journal: &mut Journal,
        table: u64,
        level: Level,
        range: Range<u64>,
    ) -> Result<bool, VmError<M::Error>> {
        let start = range.start & !(level.covers() * ENTRIES - 1);
        let (mut lo, mut hi) = (level.index(range.start), level.index(range.end - 1) + 1);
        let all = lo..hi;
        // Only the first and the last entry can be covered in part, and stay then if their table
        // holds something else.
        for index in [all.start, all.end - 1] {
            let at = start + index * level.covers();
            let part = range.start.max(at)..range.end.min(at + level.covers());
            let seen = index < lo || index >= hi;
            if seen || part.end - part.start == level.covers() {
                continue;
            }
            let mut raw = [0];
            mem.read(table + index * 8, &mut raw).map_err(VmError::Bus)?;
            let below = level.child().zip(self.space.format.decode(level, raw[0]));
            let Some((child, entry)) = below else {
                return Err(VmError::NotMapped { va: self.space.base + part.start });
            };
            if !self.invalidate(mem, journal, entry.addr, child, part)? {
                if index == all.start {
                    lo += 1;
                } else {
                    hi -= 1;
                }
            }
            if all.end - all.start == 1 {
                break;
            }
        }
        if lo >= hi {
            return Ok(false);
        }
        let stretch = Stretch { table, level, start, first: lo, count: hi - lo };
        if level != Level::Pdb2 && all == (lo..hi) && only(mem, &stretch).map_err(VmError::Bus)? {
            return Ok(true);
        }
        self.mark_below(mem, &stretch)?;
        // The journal holds all that can come; nothing is written if that should be wrong.
        journal.push(stretch).map_err(|_| VmError::Lost)?;
        set_valid(mem, &stretch, false)
            .and_then(|()| fit_neighbours(mem, self.space.format, &stretch, false))
            .map_err(VmError::Bus)?;
        Ok(false)
    }

    /// Marks all tables below some entries, to be freed after the flush.
    fn mark_below<M: TableMemory>(
        &mut self,
        mem: &mut M,
        stretch: &Stretch,
    ) -> Result<(), VmError<M::Error>> {
        let Some(child) = stretch.level.child() else { return Ok(()) };
        let mut done = 0;
        while done < stretch.count {
            let mut chunk = [0; CHUNK];
            let len = (stretch.count - done).min(CHUNK as u64);
            let Some(entries) = chunk.get_mut(..len as usize) else { break };
            mem.read(stretch.table + (stretch.first + done) * 8, entries).map_err(VmError::Bus)?;
            for raw in entries.iter() {
                let Some(entry) = self.space.format.decode(stretch.level, *raw) else { continue };
                if entry.kind == Kind::Table {
                    self.mark_table(entry.addr).map_err(VmError::Memory)?;
                    let all = Stretch { table: entry.addr, level: child, start: 0, first: 0, count: ENTRIES };
                    self.mark_below(mem, &all)?;
                }
            }
            done += len;
        }
        Ok(())
    }
}

/// Changes entries that are not zero, a chunk at a time.
fn change<M: TableMemory>(
    mem: &mut M,
    table: u64,
    indices: Range<u64>,
    mut to: impl FnMut(u64) -> u64,
) -> Result<(), M::Error> {
    let mut index = indices.start;
    while index < indices.end {
        let mut chunk = [0; CHUNK];
        let len = (indices.end - index).min(CHUNK as u64);
        let Some(entries) = chunk.get_mut(..len as usize) else { break };
        mem.read(table + index * 8, entries)?;
        for raw in entries.iter_mut().filter(|raw| **raw != 0) {
            *raw = to(*raw);
        }
        mem.write(table + index * 8, entries)?;
        index += len;
    }
    Ok(())
}

/// Sets or clears the VALID bit of all entries that are not zero.
fn set_valid<M: TableMemory>(mem: &mut M, stretch: &Stretch, valid: bool) -> Result<(), M::Error> {
    let bit = PteFlags::VALID.bits();
    change(mem, stretch.table, stretch.first..stretch.first + stretch.count, |raw| {
        if valid { raw | bit } else { raw & !bit }
    })
}

/// Where a stretch begins or ends inside of a fragment, the pages that stay mapped in it must no
/// longer claim the whole of it: a TLB could keep translating what was unmapped. With `restore`
/// they claim it again.
fn fit_neighbours<M: TableMemory>(
    mem: &mut M,
    format: PteFormat,
    stretch: &Stretch,
    restore: bool,
) -> Result<(), M::Error> {
    let Stretch { table, level, start, first, count } = *stretch;
    for (edge, is_first) in [(first, true), (first + count - 1, false)] {
        let mut raw = [0];
        mem.read(table + edge * 8, &mut raw)?;
        let Some(old) = format.decode(level, raw[0] | PteFlags::VALID.bits()) else { continue };
        // Entries of one fragment; a fragment never leaves its table.
        let width = 1 << (u32::from(old.fragment) + 12).saturating_sub(level.shift()).min(9);
        let whole = edge & !(width - 1)..(edge & !(width - 1)) + width;
        let rest = if is_first { whole.start..first } else { first + count..whole.end };
        if old.kind != Kind::Page || rest.is_empty() {
            continue;
        }
        let mut neighbour = [0];
        mem.read(table + rest.start * 8, &mut neighbour)?;
        let Some(page) = format.decode(level, neighbour[0]) else { continue };
        let wide = if restore {
            old.fragment
        } else {
            let va = start + rest.start * level.covers();
            fragment(va, page.addr, (rest.end - rest.start) * level.covers())
        };
        change(mem, table, rest, |raw| PteFormat::with_fragment(raw, wide))?;
    }
    Ok(())
}

/// Whether a table holds nothing but a stretch.
fn only<M: TableMemory>(mem: &mut M, stretch: &Stretch) -> Result<bool, M::Error> {
    let inside = stretch.first..stretch.first + stretch.count;
    let mut chunk = [0; CHUNK];
    for first in (0..ENTRIES).step_by(CHUNK) {
        if inside.contains(&first) && inside.contains(&(first + CHUNK as u64 - 1)) {
            continue;
        }
        mem.read(stretch.table + first * 8, &mut chunk)?;
        if (first..).zip(&chunk).any(|(index, raw)| *raw != 0 && !inside.contains(&index)) {
            return Ok(false);
        }
    }
    Ok(true)
}
