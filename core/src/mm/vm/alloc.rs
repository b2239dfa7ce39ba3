//! Allocation: virtual addresses, VRAM in pieces as large as there are, and the mapping of both.
//!
//! The pieces of an allocation are kept nowhere but in the page tables. While they are allocated or
//! freed they are *marked*, which threads a list through the allocator's own blocks.

use core::ops::ControlFlow;

use super::map::Source;
use super::{Flush, MapFlags, Phase, Running, Vm, VmError, round_up};
use crate::bus::Segment;
use crate::mm::pte::{Level, PAGE_SIZE, PteFlags};
use crate::mm::tlsf::{Tlsf, TlsfError};
use crate::mm::walk::{TableMemory, Visit, walk};

/// How to allocate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocOptions {
    /// Alignment of the virtual address in bytes; a power of two. At least 4 KiB; large
    /// allocations get at least what their pages need.
    pub align: u64,
    /// How to map.
    pub flags: MapFlags,
    /// In one piece of VRAM, for what the GPU addresses physically.
    pub contiguous: bool,
    /// Filled with zeros (through the table memory, slowly).
    pub zero: bool,
}

impl Default for AllocOptions {
    fn default() -> Self {
        AllocOptions { align: PAGE_SIZE, flags: MapFlags::empty(), contiguous: false, zero: false }
    }
}

/// Memory with its address on the GPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Allocation {
    /// First virtual address.
    pub va: u64,
    /// Length in bytes; a multiple of 4 KiB.
    pub size: u64,
}

/// The marked blocks of the pool, in order.
struct Marked(Option<u32>);

impl<M: TableMemory> Source<M> for Marked {
    fn next(&mut self, pool: &Tlsf<'_>, _: &mut M, offset: u64) -> Result<Segment, VmError<M::Error>> {
        let (slot, addr, len) =
            pool.next_marked(self.0).ok_or(VmError::SizeMismatch { size: offset, segments: offset })?;
        self.0 = Some(slot);
        Ok(Segment { addr, len })
    }
}

impl<P: Phase> Vm<'_, P> {
    /// Reserves virtual addresses and maps segments there (host memory, a peer's VRAM).
    ///
    /// # Errors
    /// Any of [`VmError`]; nothing has changed then.
    pub fn map_new<M: Flush>(
        &mut self,
        mem: &mut M,
        align: u64,
        segments: &[Segment],
        flags: MapFlags,
    ) -> Result<Allocation, VmError<M::Error>> {
        let size = segments.iter().fold(0u64, |sum, s| sum.saturating_add(s.len));
        self.usable()?;
        let va = self.reserve(size, align).map_err(VmError::Virtual)?;
        let mapped = self.map(mem, va, size, segments, flags);
        self.or_release(va, mapped)?;
        Ok(Allocation { va, size })
    }

    /// Like [`Vm::map_new`] for `size` bytes, asking for the segments as [`Vm::map_with`] does.
    ///
    /// # Errors
    /// Any of [`VmError`]; nothing has changed then.
    pub fn map_new_with<M: Flush>(
        &mut self,
        mem: &mut M,
        size: u64,
        align: u64,
        segment_at: impl FnMut(&mut M, u64) -> Result<Segment, M::Error>,
        flags: MapFlags,
    ) -> Result<Allocation, VmError<M::Error>> {
        self.usable()?;
        let va = self.reserve(size, align).map_err(VmError::Virtual)?;
        let mapped = self.map_with(mem, va, size, segment_at, flags);
        self.or_release(va, mapped)?;
        Ok(Allocation { va, size })
    }

    /// Unmaps what [`Vm::map_new`] mapped and gives its virtual addresses back. Where several
    /// devices share an address, each unmaps it with [`Vm::unmap`], and one of them with this.
    ///
    /// # Errors
    /// Any of [`VmError`]; nothing has changed then.
    pub fn unmap_new<M: Flush>(&mut self, mem: &mut M, va: u64) -> Result<(), VmError<M::Error>> {
        let size = self.va.reserved(va).map_err(VmError::Virtual)?;
        self.unmap(mem, va, size)?;
        self.va.release(va).map(drop).map_err(VmError::Virtual)
    }

    /// Virtual addresses for `size` bytes, aligned so that the largest pages can be used.
    fn reserve(&self, size: u64, align: u64) -> Result<u64, TlsfError> {
        let natural = 1 << (63 - (size | PAGE_SIZE).leading_zeros()).min(Level::Pdb1.shift());
        self.va.reserve(size, align.max(natural))
    }

    fn or_release<T, E>(&self, va: u64, result: Result<T, E>) -> Result<T, E> {
        if result.is_err() {
            let _ = self.va.release(va);
        }
        result
    }
}

impl Vm<'_, Running> {
    /// Allocates VRAM and maps it at new virtual addresses. `size` is rounded up to 4 KiB.
    ///
    /// # Errors
    /// Any of [`VmError`]; nothing has changed then.
    pub fn valloc<M: Flush>(
        &mut self,
        mem: &mut M,
        size: u64,
        options: &AllocOptions,
    ) -> Result<Allocation, VmError<M::Error>> {
        self.usable()?;
        if size == 0 {
            return Err(VmError::ZeroSize);
        }
        let out_of_memory = TlsfError::OutOfMemory {
            size,
            align: PAGE_SIZE,
            free: self.pool.free_bytes(),
            largest: self.pool.largest_free(),
        };
        // What can never fit is not begun with; its pieces would take all block slots first.
        let size = round_up(size, PAGE_SIZE)
            .filter(|size| *size <= self.pool.free_bytes())
            .ok_or(VmError::Memory(out_of_memory))?;
        let va = self.reserve(size, options.align).map_err(VmError::Virtual)?;
        let done = self
            .allocate_pieces(size, options.contiguous)
            .map_err(VmError::Memory)
            .and_then(|()| self.zero_pieces(mem, options.zero))
            .and_then(|()| self.map_source(mem, va, size, &mut Marked(None), options.flags));
        match done {
            Ok(()) => self.pool.unmark_all(),
            Err(_) => self.pool.free_marked(),
        }
        self.or_release(va, done)?;
        Ok(Allocation { va, size })
    }

    /// A page of the stock, or of the pool if there is none, mapped at a new virtual address: memory that
    /// is cheap to clear, in one piece. Also its physical address.
    ///
    /// # Errors
    /// Any of [`VmError`]; nothing has changed then.
    pub fn valloc_clean<M: Flush>(
        &mut self,
        mem: &mut M,
        flags: MapFlags,
    ) -> Result<(Allocation, u64), VmError<M::Error>> {
        self.usable()?;
        let page = self.table_page().map_err(VmError::Memory)?;
        let segment = Segment { addr: page, len: PAGE_SIZE };
        let mapped = self.map_new(mem, PAGE_SIZE, &[segment], flags);
        if mapped.is_err() && !self.lost {
            let _ = self.pfree(page);
        }
        Ok((mapped?, page))
    }

    /// Unmaps and frees what [`Vm::valloc_clean`] gave.
    ///
    /// # Errors
    /// Any of [`VmError`]; nothing has changed then.
    pub fn vfree_clean<M: Flush>(
        &mut self,
        mem: &mut M,
        va: u64,
        page: u64,
    ) -> Result<(), VmError<M::Error>> {
        self.unmap_new(mem, va)?;
        self.pfree(page).map(drop).map_err(VmError::Memory)
    }

    /// Unmaps and frees what [`Vm::valloc`] allocated at `va`.
    ///
    /// # Errors
    /// Any of [`VmError`]; nothing has changed then.
    pub fn vfree<M: Flush>(&mut self, mem: &mut M, va: u64) -> Result<(), VmError<M::Error>> {
        self.usable()?;
        let size = self.va.reserved(va).map_err(VmError::Virtual)?;
        let range = self.offsets(va, size)?;
        self.check_mapped(mem, va, size)?;
        if let Err(error) = self.mark_pieces(mem, va, size) {
            self.pool.unmark_all();
            return Err(error);
        }
        self.unmap_checked(mem, range)?;
        self.va.release(va).map(drop).map_err(VmError::Virtual)
    }

    /// Allocates and marks pieces that add up to `size`: the largest that are left, each aligned to
    /// its size as far as pages profit from it.
    fn allocate_pieces(&mut self, size: u64, contiguous: bool) -> Result<(), TlsfError> {
        let mut rest = size;
        let mut piece = if contiguous { size } else { 1 << (63 - size.leading_zeros()) };
        while rest > 0 {
            if piece > rest {
                piece = 1 << (63 - rest.leading_zeros());
            }
            match self.allocate_piece(piece, contiguous) {
                Ok(addr) => {
                    self.pool.mark(addr)?;
                    rest -= piece;
                }
                Err(TlsfError::OutOfMemory { .. }) if !contiguous && piece > PAGE_SIZE => {
                    piece = (piece / 2).max(PAGE_SIZE);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn allocate_piece(&mut self, size: u64, contiguous: bool) -> Result<u64, TlsfError> {
        let natural = 63 - size.leading_zeros();
        // Aligned for the pages of 1 GiB and of 2 MiB that the piece has room for, else for as
        // wide a fragment as it can have.
        for shift in [Level::Pdb1.shift(), Level::Pdb0.shift()] {
            if natural >= shift {
                match self.pool.alloc(size, 1 << shift) {
                    // Smaller pieces are better than a large one that needs small pages.
                    Err(TlsfError::OutOfMemory { .. }) if shift > Level::Pdb0.shift() || contiguous => {}
                    other => return other,
                }
            }
        }
        match self.pool.alloc(size, 1 << natural.min(Level::Pdb0.shift())) {
            Err(TlsfError::OutOfMemory { .. }) => self.pool.alloc(size, PAGE_SIZE),
            other => other,
        }
    }

    fn zero_pieces<M: TableMemory>(&mut self, mem: &mut M, wanted: bool) -> Result<(), VmError<M::Error>> {
        let mut at = None;
        while let Some((slot, addr, len)) = self.pool.next_marked(at).filter(|_| wanted) {
            mem.zero(addr, len).map_err(VmError::Bus)?;
            at = Some(slot);
        }
        Ok(())
    }

    /// Marks the pieces that a range maps. A page may hold several, and a piece several pages.
    fn mark_pieces<M: TableMemory>(
        &mut self,
        mem: &mut M,
        va: u64,
        size: u64,
    ) -> Result<(), VmError<M::Error>> {
        let mut next = va;
        let pool = &mut self.pool;
        let flow = walk(mem, &self.space, va..va + size, |visit| {
            let Visit::Page { va: page, level, entry } = visit else { return ControlFlow::Continue(()) };
            while next < page + level.covers() {
                let pa = entry.addr + (next - page);
                let foreign = VmError::Foreign { va: next, pa };
                if entry.flags.contains(PteFlags::SYSTEM) {
                    return ControlFlow::Break(foreign);
                }
                match pool.mark(pa) {
                    Ok(len) if len <= va + size - next => next += len,
                    _ => return ControlFlow::Break(foreign),
                }
            }
            ControlFlow::Continue(())
        });
        match flow.map_err(VmError::Bus)? {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(()),
        }
    }
}
