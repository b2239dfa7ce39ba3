//! Walking page tables: what is mapped, without any policy.

use core::ops::{ControlFlow, Range};

use super::pte::{ENTRIES, Entry, Kind, Level, Mtype, PteFlags, PteFormat, VIRTUAL_BITS};

/// Entries that are read or written at once.
pub(crate) const CHUNK: usize = 64;

/// Where page tables lie: VRAM, by physical address. Addresses and lengths are multiples of 8.
///
/// Written entries may be posted; [`Flush::flush_tlb`] makes them happen.
pub trait TableMemory {
    /// What can go wrong.
    type Error;

    /// Reads consecutive entries.
    fn read(&mut self, pa: u64, out: &mut [u64]) -> Result<(), Self::Error>;

    /// Writes consecutive entries; each in one access.
    fn write(&mut self, pa: u64, entries: &[u64]) -> Result<(), Self::Error>;

    /// Writes `count` consecutive entries: `first`, `first + step`, ...
    fn write_run(&mut self, pa: u64, first: u64, step: u64, count: u64) -> Result<(), Self::Error> {
        let mut done = 0;
        while done < count {
            let mut chunk = [0; CHUNK];
            let len = (count - done).min(CHUNK as u64);
            for (k, entry) in (done..).zip(chunk.iter_mut()) {
                *entry = first.wrapping_add(k.wrapping_mul(step));
            }
            self.write(pa + done * 8, chunk.get(..len as usize).unwrap_or(&chunk))?;
            done += len;
        }
        Ok(())
    }

    /// Fills `len` bytes with zeros.
    fn zero(&mut self, pa: u64, len: u64) -> Result<(), Self::Error> {
        self.write_run(pa, 0, 0, len / 8)
    }
}

/// Memory of page tables together with the TLBs that cache them.
pub trait Flush: TableMemory {
    /// Makes all table writes visible to the GPU (flush of posted writes, HDP flush) and
    /// invalidates the TLBs of all hubs.
    fn flush_tlb(&mut self) -> Result<(), Self::Error>;
}

impl<T: TableMemory + ?Sized> TableMemory for &mut T {
    type Error = T::Error;
    fn read(&mut self, pa: u64, out: &mut [u64]) -> Result<(), Self::Error> {
        (**self).read(pa, out)
    }
    fn write(&mut self, pa: u64, entries: &[u64]) -> Result<(), Self::Error> {
        (**self).write(pa, entries)
    }
    fn write_run(&mut self, pa: u64, first: u64, step: u64, count: u64) -> Result<(), Self::Error> {
        (**self).write_run(pa, first, step, count)
    }
    fn zero(&mut self, pa: u64, len: u64) -> Result<(), Self::Error> {
        (**self).zero(pa, len)
    }
}

impl<T: Flush + ?Sized> Flush for &mut T {
    fn flush_tlb(&mut self) -> Result<(), Self::Error> {
        (**self).flush_tlb()
    }
}

/// A set of page tables: where its root lies and how to read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Format of the entries.
    pub format: PteFormat,
    /// Physical address of the root table (a [`Level::Pdb2`]).
    pub root: u64,
    /// First virtual address; a multiple of 512 GiB.
    pub base: u64,
}

impl Space {
    /// All virtual addresses that these tables can translate.
    pub fn range(&self) -> Range<u64> {
        self.base..self.base.saturating_add(1 << VIRTUAL_BITS)
    }
}

/// What a walk comes across, in order of virtual address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visit {
    /// A page; it may begin before or end after the range that is walked.
    Page {
        /// First virtual address of the page.
        va: u64,
        /// Level of the table it stands in, hence its size.
        level: Level,
        /// The entry.
        entry: Entry,
    },
    /// Nothing is mapped; clipped to the range that is walked. Adjacent holes are not joined.
    Hole {
        /// First virtual address.
        va: u64,
        /// Length in bytes.
        size: u64,
    },
}

/// Calls `visit` for each page and hole in `range` until it breaks. What lies outside of the
/// address space is left out.
///
/// # Errors
/// Those of the memory.
pub fn walk<M: TableMemory, B>(
    mem: &mut M,
    space: &Space,
    range: Range<u64>,
    mut visit: impl FnMut(Visit) -> ControlFlow<B>,
) -> Result<ControlFlow<B>, M::Error> {
    let all = space.range();
    let (lo, hi) = (range.start.max(all.start), range.end.min(all.end));
    if lo >= hi {
        return Ok(ControlFlow::Continue(()));
    }
    walk_table(mem, space, space.root, Level::Pdb2, lo..hi, &mut visit)
}

fn walk_table<M: TableMemory, B>(
    mem: &mut M,
    space: &Space,
    table: u64,
    level: Level,
    range: Range<u64>,
    visit: &mut dyn FnMut(Visit) -> ControlFlow<B>,
) -> Result<ControlFlow<B>, M::Error> {
    let mut va = range.start & !(level.covers() - 1);
    let mut chunk = [0; CHUNK];
    while va < range.end {
        let index = level.index(va - space.base);
        let wanted = (range.end - va).div_ceil(level.covers());
        let len = wanted.min(CHUNK as u64).min(ENTRIES - index);
        let Some(entries) = chunk.get_mut(..len as usize) else { break };
        mem.read(table + index * 8, entries)?;
        for raw in entries.iter().copied() {
            let (lo, hi) = (va.max(range.start), va.saturating_add(level.covers()).min(range.end));
            let flow = match (space.format.decode(level, raw), level.child()) {
                (Some(Entry { kind: Kind::Table, addr, .. }), Some(child)) => {
                    walk_table(mem, space, addr, child, lo..hi, visit)?
                }
                (Some(entry), _) => visit(Visit::Page { va, level, entry }),
                (None, _) => visit(Visit::Hole { va: lo, size: hi - lo }),
            };
            if flow.is_break() {
                return Ok(flow);
            }
            va = va.saturating_add(level.covers());
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// A stretch of addresses that is mapped contiguously and alike.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Run {
    /// First virtual address.
    pub va: u64,
    /// Length in bytes.
    pub size: u64,
    /// Physical (or bus) address of the first byte.
    pub pa: u64,
    /// Flags.
    pub flags: PteFlags,
    /// Memory type.
    pub mtype: Mtype,
    /// Fragment of every entry.
    pub fragment: u8,
    /// Size of the pages in bytes.
    pub page: u64,
}

/// Calls `emit` for each [`Run`] that touches `range`; pages are shown whole.
///
/// # Errors
/// Those of the memory.
pub fn dump<M: TableMemory>(
    mem: &mut M,
    space: &Space,
    range: Range<u64>,
    mut emit: impl FnMut(Run),
) -> Result<(), M::Error> {
    let mut open: Option<Run> = None;
    let _ = walk(mem, space, range, |visit| {
        let Visit::Page { va, level, entry } = visit else { return ControlFlow::<()>::Continue(()) };
        let page = level.covers();
        let next = Run {
            va,
            size: page,
            pa: entry.addr,
            flags: entry.flags,
            mtype: entry.mtype,
            fragment: entry.fragment,
            page,
        };
        match open.as_mut() {
            Some(run)
                if Run { va: run.va, size: run.size, pa: run.pa, ..next } == *run
                    && run.va + run.size == va
                    && run.pa + run.size == entry.addr =>
            {
                run.size += page;
            }
            _ => {
                if let Some(run) = open.replace(next) {
                    emit(run);
                }
            }
        }
        ControlFlow::Continue(())
    })?;
    if let Some(run) = open {
        emit(run);
    }
    Ok(())
}

/// The page that translates `va`, with its first virtual address and level; `None` if unmapped.
///
/// # Errors
/// Those of the memory.
pub fn translate<M: TableMemory>(
    mem: &mut M,
    space: &Space,
    va: u64,
) -> Result<Option<(u64, Level, Entry)>, M::Error> {
    let flow = walk(mem, space, va..va.saturating_add(1), |visit| match visit {
        Visit::Page { va, level, entry } => ControlFlow::Break((va, level, entry)),
        Visit::Hole { .. } => ControlFlow::Continue(()),
    })?;
    Ok(flow.break_value())
}
