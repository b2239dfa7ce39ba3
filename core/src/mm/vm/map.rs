//! Mapping: check that the range is free, write entries, flush; or take everything back.

use core::ops::{ControlFlow, Range};

use super::{Flush, MapFlags, Phase, Twice, Vm, VmError};
use crate::bus::Segment;
use crate::mm::pte::{ENTRIES, Kind, Level, MAX_FRAGMENT, PAGE_SIZE, PHYSICAL_BITS, PteError};
use crate::mm::tlsf::Tlsf;
use crate::mm::walk::{CHUNK, TableMemory, Visit, walk};

/// Pages are 4 KiB, 2 MiB or 1 GiB; an entry of the root always points at a table.
const PAGE_LEVELS: [Level; 3] = [Level::Pdb1, Level::Pdb0, Level::Ptb];

/// Where a mapping's memory lies: asked in order of offset.
pub(super) trait Source<M: TableMemory> {
    /// The segment that starts at `offset` bytes.
    fn next(&mut self, pool: &Tlsf<'_>, mem: &mut M, offset: u64) -> Result<Segment, VmError<M::Error>>;
}

struct Slice<'a> {
    rest: &'a [Segment],
    size: u64,
}

impl<M: TableMemory> Source<M> for Slice<'_> {
    fn next(&mut self, _: &Tlsf<'_>, _: &mut M, offset: u64) -> Result<Segment, VmError<M::Error>> {
        let (first, rest) =
            self.rest.split_first().ok_or(VmError::SizeMismatch { size: self.size, segments: offset })?;
        self.rest = rest;
        Ok(*first)
    }
}

struct Asked<F>(F);

impl<M: TableMemory, F: FnMut(&mut M, u64) -> Result<Segment, M::Error>> Source<M> for Asked<F> {
    fn next(&mut self, _: &Tlsf<'_>, mem: &mut M, offset: u64) -> Result<Segment, VmError<M::Error>> {
        (self.0)(mem, offset).map_err(VmError::Bus)
    }
}

/// The tables on the way to the last place visited, so that they are not read again for the next.
struct Path {
    tables: [u64; 4],
    /// How many of them are known.
    known: usize,
    offset: u64,
}

impl<P: Phase> Vm<'_, P> {
    /// Maps segments one after the other at `va`, with the largest pages and fragments that the
    /// alignment of both addresses allows; adjacent segments are joined. One TLB flush.
    ///
    /// The virtual addresses are the caller's business; see [`Vm::map_new`] for reserved ones.
    ///
    /// # Errors
    /// Any of [`VmError`]; nothing has changed then.
    pub fn map<M: Flush>(
        &mut self,
        mem: &mut M,
        va: u64,
        size: u64,
        segments: &[Segment],
        flags: MapFlags,
    ) -> Result<(), VmError<M::Error>> {
        let sum = segments.iter().fold(0u64, |sum, s| sum.saturating_add(s.len));
        if sum != size {
            return Err(VmError::SizeMismatch { size, segments: sum });
        }
        self.map_source(mem, va, size, &mut Slice { rest: segments, size }, flags)
    }

    /// Like [`Vm::map`], but asks for the segments: `segment_at` gets the table memory and an
    /// offset and tells the segment that starts there (see [`crate::bus::Dma::dma_segment`]).
    /// Offsets grow; what is beyond `size` is cut off.
    ///
    /// # Errors
    /// Any of [`VmError`]; nothing has changed then.
    pub fn map_with<M: Flush>(
        &mut self,
        mem: &mut M,
        va: u64,
        size: u64,
        segment_at: impl FnMut(&mut M, u64) -> Result<Segment, M::Error>,
        flags: MapFlags,
    ) -> Result<(), VmError<M::Error>> {
        self.map_source(mem, va, size, &mut Asked(segment_at), flags)
    }

    pub(super) fn map_source<M: Flush>(
        &mut self,
        mem: &mut M,
        va: u64,
        size: u64,
        source: &mut dyn Source<M>,
        flags: MapFlags,
    ) -> Result<(), VmError<M::Error>> {
        self.usable()?;
        let range = self.offsets(va, size)?;
        let taken = walk(mem, &self.space, va..va + size, |visit| match visit {
            Visit::Hole { .. } => ControlFlow::Continue(()),
            Visit::Page { va: page, .. } => ControlFlow::Break(page.max(va)),
        });
        if let ControlFlow::Break(va) = taken.map_err(VmError::Bus)? {
            return Err(VmError::AlreadyMapped { va });
        }
        let done = self
            .write_entries(mem, range.clone(), source, flags)
            .and_then(|()| mem.flush_tlb().map_err(VmError::Bus));
        if done.is_err() && self.prune(&mut Twice(mem), range).is_err() {
            self.lost = true;
        }
        done
    }

    fn write_entries<M: TableMemory>(
        &mut self,
        mem: &mut M,
        range: Range<u64>,
        source: &mut dyn Source<M>,
        flags: MapFlags,
    ) -> Result<(), VmError<M::Error>> {
        let mut path = Path { tables: [self.space.root, 0, 0, 0], known: 1, offset: range.start };
        let size = range.end - range.start;
        let mut at = 0;
        let mut ahead: Option<Segment> = None;
        while at < size {
            let mut segment = match ahead.take() {
                Some(segment) => segment,
                None => self.next_segment(mem, source, at, size)?,
            };
            // Joined segments get larger pages than each would have had.
            while at + segment.len < size {
                let next = self.next_segment(mem, source, at + segment.len, size)?;
                if segment.addr + segment.len != next.addr {
                    ahead = Some(next);
                    break;
                }
                segment.len += next.len;
            }
            self.write_segment(mem, &mut path, range.start + at, segment, flags)?;
            at += segment.len;
        }
        Ok(())
    }

    fn next_segment<M: TableMemory>(
        &mut self,
        mem: &mut M,
        source: &mut dyn Source<M>,
        at: u64,
        size: u64,
    ) -> Result<Segment, VmError<M::Error>> {
        let Segment { addr, len } = source.next(&self.pool, mem, at)?;
        let len = len.min(size - at);
        if len == 0 {
            return Err(VmError::SizeMismatch { size, segments: at });
        }
        for value in [addr, len] {
            if value % PAGE_SIZE != 0 {
                return Err(VmError::Unaligned(value));
            }
        }
        if addr.checked_add(len).is_none_or(|end| end > 1 << PHYSICAL_BITS) {
            return Err(VmError::Physical(PteError::BadAddress { addr }));
        }
        Ok(Segment { addr, len })
    }

    fn write_segment<M: TableMemory>(
        &mut self,
        mem: &mut M,
        path: &mut Path,
        mut offset: u64,
        mut segment: Segment,
        flags: MapFlags,
    ) -> Result<(), VmError<M::Error>> {
        while segment.len > 0 {
            let fits =
                |l: &Level| (offset | segment.addr).is_multiple_of(l.covers()) && segment.len >= l.covers();
            let level = PAGE_LEVELS.into_iter().find(fits).unwrap_or(Level::Ptb);
            let table = self.descend(mem, path, offset, level)?;
            let index = level.index(offset);
            let count = (segment.len / level.covers()).min(ENTRIES - index);
            let len = count * level.covers();
            let mut entry = flags.entry(segment.addr);
            entry.fragment = fragment(offset, segment.addr, len);
            let first = self.space.format.encode(level, &entry).map_err(VmError::Physical)?;
            mem.write_run(table + index * 8, first, level.covers(), count).map_err(VmError::Bus)?;
            offset += len;
            segment.addr += len;
            segment.len -= len;
        }
        Ok(())
    }

    /// The table of `level` that translates `offset`; tables that are missing on the way are made.
    fn descend<M: TableMemory>(
        &mut self,
        mem: &mut M,
        path: &mut Path,
        offset: u64,
        level: Level,
    ) -> Result<u64, VmError<M::Error>> {
        // A table stays on the way as long as the entry that points at it does.
        let shared =
            Level::ALL.iter().take_while(|l| path.offset >> l.shift() == offset >> l.shift()).count();
        path.known = path.known.min(shared + 1);
        path.offset = offset;
        for parent in Level::ALL {
            let depth = parent as usize;
            if parent >= level || depth + 1 < path.known {
                continue;
            }
            let table = path.tables.get(depth).copied().unwrap_or(self.space.root);
            let child = self.child(mem, parent, table + parent.index(offset) * 8, offset)?;
            if let Some(known) = path.tables.get_mut(depth + 1) {
                *known = child;
            }
            path.known = depth + 2;
        }
        Ok(path.tables.get(level as usize).copied().unwrap_or(self.space.root))
    }

    /// The table that the entry at `slot` points at; made if there is none.
    fn child<M: TableMemory>(
        &mut self,
        mem: &mut M,
        parent: Level,
        slot: u64,
        offset: u64,
    ) -> Result<u64, VmError<M::Error>> {
        let mut raw = [0];
        mem.read(slot, &mut raw).map_err(VmError::Bus)?;
        match self.space.format.decode(parent, raw[0]) {
            Some(entry) if entry.kind == Kind::Table => return Ok(entry.addr),
            Some(_) => return Err(VmError::AlreadyMapped { va: self.space.base + offset }),
            None => {}
        }
        let table = self.table_page().map_err(VmError::Memory)?;
        let linked = self.link(mem, parent, slot, table);
        if linked.is_err() && !self.is_linked(mem, parent, slot, table) {
            // A table that is linked will be found and freed by `prune`.
            let _ = self.pfree(table);
        }
        linked.map(|()| table)
    }

    fn link<M: TableMemory>(
        &mut self,
        mem: &mut M,
        parent: Level,
        slot: u64,
        table: u64,
    ) -> Result<(), VmError<M::Error>> {
        let entry = self.space.format.table(parent, table).map_err(VmError::Physical)?;
        mem.zero(table, PAGE_SIZE).map_err(VmError::Bus)?;
        mem.write(slot, &[entry]).map_err(VmError::Bus)
    }

    /// Whether the failed write of a link happened after all.
    fn is_linked<M: TableMemory>(&mut self, mem: &mut M, parent: Level, slot: u64, table: u64) -> bool {
        let mut raw = [0];
        match Twice(mem).read(slot, &mut raw) {
            Ok(()) => self.space.format.decode(parent, raw[0]).is_some_and(|e| e.addr == table),
            Err(_) => {
                self.lost = true;
                false
            }
        }
    }

    /// Removes whatever is in a range, valid or not, and frees the tables that became empty.
    fn prune<M: TableMemory>(&mut self, mem: &mut M, range: Range<u64>) -> Result<(), M::Error> {
        self.prune_table(mem, self.space.root, Level::Pdb2, range).map(drop)
    }

    /// Returns whether the table is empty now.
    fn prune_table<M: TableMemory>(
        &mut self,
        mem: &mut M,
        table: u64,
        level: Level,
        range: Range<u64>,
    ) -> Result<bool, M::Error> {
        let mut at = range.start & !(level.covers() - 1);
        while at < range.end {
            let index = level.index(at);
            let wanted = (range.end - at).div_ceil(level.covers());
            let count = wanted.min(CHUNK as u64).min(ENTRIES - index);
            let mut chunk = [0; CHUNK];
            let Some(entries) = chunk.get_mut(..count as usize) else { break };
            mem.read(table + index * 8, entries)?;
            let mut tables = [0; CHUNK];
            let mut changed = false;
            for (raw, child) in entries.iter_mut().zip(&mut tables) {
                let (lo, hi) = (at.max(range.start), (at + level.covers()).min(range.end));
                at += level.covers();
                let gone = match level.child().zip(self.space.format.decode(level, *raw)) {
                    Some((below, entry)) if entry.kind == Kind::Table => {
                        let empty = self.prune_table(mem, entry.addr, below, lo..hi)?;
                        *child = if empty { entry.addr } else { 0 };
                        empty
                    }
                    _ => *raw != 0,
                };
                if gone {
                    *raw = 0;
                    changed = true;
                }
            }
            if changed {
                mem.write(table + index * 8, entries)?;
                for child in tables.into_iter().filter(|t| *t != 0) {
                    let _ = self.pfree(child);
                }
            }
        }
        is_empty(mem, table)
    }
}

fn is_empty<M: TableMemory>(mem: &mut M, table: u64) -> Result<bool, M::Error> {
    let mut chunk = [0; CHUNK];
    for first in (0..ENTRIES).step_by(CHUNK) {
        mem.read(table + first * 8, &mut chunk)?;
        if chunk.iter().any(|raw| *raw != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The fragment of a run of pages: as wide as the alignment of both addresses and of the length
/// allows, so that the run consists of whole fragments.
pub(super) fn fragment(va: u64, pa: u64, len: u64) -> u8 {
    ((va | pa | len).trailing_zeros().saturating_sub(12) as u8).min(MAX_FRAGMENT)
}
