//! One device's address space: what is mapped where, with which pages, from which memory.
//!
//! Every call either does all it was asked for or changes nothing: an error on the way takes back
//! what was written and allocated. Where even that fails (a device that is gone), the address space
//! is *lost* and refuses everything until the device is booted anew.
//!
//! Nothing that page tables record is kept a second time. What stands in them is read back: the
//! pieces of a scattered allocation, the tables to free.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;

use bitflags::bitflags;

use super::pte::{Entry, Kind, Mtype, PAGE_SIZE, PteError, PteFlags, PteFormat};
use super::tlsf::{Block, Tlsf, TlsfError};
use super::walk::{Flush, Space, TableMemory};
use stock::Stock;

mod alloc;
mod map;
mod stock;
mod unmap;

pub use alloc::{AllocOptions, Allocation};

/// Bytes at the start of VRAM that a warm boot finds again: the root table, firmware buffers, rings.
pub const BOOT_REGION: u64 = crate::layout::BOOT_LEN;
/// Bytes at the end of VRAM that are never handed out: discovery table, TMR, firmware's own.
pub const RESERVED_TAIL: u64 = crate::layout::TAIL_LEN;
/// First virtual address of the range shared by all devices.
pub const VA_BASE: u64 = 0x2000_0000_0000;
/// Bytes of that range.
pub const VA_SIZE: u64 = 512 << 30;

/// Why the memory manager refuses. `E` is the error of the table memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VmError<E> {
    /// An address or length is not a multiple of 4 KiB.
    #[error("{0:#x} is not a multiple of 0x1000; align addresses and lengths of mappings to pages")]
    Unaligned(u64),
    /// Nothing was asked for.
    #[error("a mapping or allocation of 0 bytes was asked for; ask for at least 1")]
    ZeroSize,
    /// Not all of the range can be translated.
    #[error(
        "virtual addresses {va:#x} (length {size:#x}) are outside of the address space {start:#x}..{end:#x}"
    )]
    OutOfSpace {
        /// First virtual address asked for.
        va: u64,
        /// Length in bytes.
        size: u64,
        /// First virtual address of the space.
        start: u64,
        /// Address after the last of the space.
        end: u64,
    },
    /// The segments do not add up to the size of the mapping.
    #[error("the segments of a mapping hold {segments:#x} bytes, not {size:#x}")]
    SizeMismatch {
        /// Length of the mapping in bytes.
        size: u64,
        /// Bytes of all segments.
        segments: u64,
    },
    /// A physical address that cannot stand in a page table.
    #[error("cannot be mapped: {0}")]
    Physical(PteError),
    /// Something is mapped there.
    #[error("{va:#x} is already mapped; unmap it first or choose another address")]
    AlreadyMapped {
        /// First virtual address that is mapped.
        va: u64,
    },
    /// Nothing is mapped there.
    #[error("{va:#x} is not mapped; unmap only what was mapped")]
    NotMapped {
        /// First virtual address that is not mapped.
        va: u64,
    },
    /// The range begins or ends inside a huge page.
    #[error("{va:#x} is inside of a page of {page:#x} bytes; unmap the whole page")]
    PartialPage {
        /// First virtual address of the page.
        va: u64,
        /// Size of the page in bytes.
        page: u64,
    },
    /// No virtual addresses are left, or the address given is not an allocation of the range.
    #[error("virtual addresses: {0}")]
    Virtual(TlsfError),
    /// No VRAM is left, or the address given is not an allocation.
    #[error("VRAM: {0}")]
    Memory(TlsfError),
    /// The memory mapped there did not come from this device's VRAM pool.
    #[error(
        "{va:#x} maps {pa:#x}, which is not an allocation of this device; unmap it instead of freeing it"
    )]
    Foreign {
        /// Virtual address.
        va: u64,
        /// Physical or bus address mapped there.
        pa: u64,
    },
    /// The table memory could not be accessed.
    #[error("page tables cannot be accessed: {0}")]
    Bus(E),
    /// An earlier error could not be taken back.
    #[error("an earlier error left the page tables in an unknown state; reset the device and boot it anew")]
    Lost,
}

bitflags! {
    /// How memory is mapped. Without any flag: this device's VRAM, cached.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct MapFlags: u8 {
        /// The segments are bus addresses: memory of the host, or a peer's VRAM window.
        const SYSTEM = 1 << 0;
        /// Not cached by the GPU.
        const UNCACHED = 1 << 1;
        /// Accesses snoop the CPU's caches.
        const SNOOPED = 1 << 2;
        /// The GPU cannot write to it.
        const READ_ONLY = 1 << 3;
        /// The GPU cannot execute it.
        const NO_EXECUTE = 1 << 4;

        /// Memory of the host, coherent with the CPU.
        const HOST = Self::SYSTEM.bits() | Self::UNCACHED.bits() | Self::SNOOPED.bits();
        /// VRAM of a peer, by its address on the bus.
        const PEER = Self::SYSTEM.bits();
    }
}

impl MapFlags {
    fn entry(self, addr: u64) -> Entry {
        let mut flags = PteFlags::VALID | PteFlags::RWX;
        flags.set(PteFlags::SYSTEM, self.contains(MapFlags::SYSTEM));
        flags.set(PteFlags::SNOOPED, self.contains(MapFlags::SNOOPED));
        flags.set(PteFlags::WRITEABLE, !self.contains(MapFlags::READ_ONLY));
        flags.set(PteFlags::EXECUTABLE, !self.contains(MapFlags::NO_EXECUTE));
        let mtype = if self.contains(MapFlags::UNCACHED) { Mtype::UNCACHED } else { Mtype::CACHED };
        Entry { kind: Kind::Page, addr, flags, mtype, fragment: 0 }
    }
}

/// Where virtual addresses come from.
pub trait VirtualRange {
    /// Reserves `size` bytes at a multiple of `align`.
    ///
    /// # Errors
    /// Those of [`Tlsf::alloc`].
    fn reserve(&self, size: u64, align: u64) -> Result<u64, TlsfError>;

    /// Gives a reservation back; returns its size in bytes.
    ///
    /// # Errors
    /// [`TlsfError::NotAllocated`]
    fn release(&self, va: u64) -> Result<u64, TlsfError>;

    /// Size in bytes of the reservation that starts at `va`.
    ///
    /// # Errors
    /// [`TlsfError::NotAllocated`]
    fn reserved(&self, va: u64) -> Result<u64, TlsfError>;
}

/// A range of virtual addresses that several devices may share.
pub struct VaRange<'s>(spin::Mutex<Tlsf<'s>>);

impl<'s> VaRange<'s> {
    /// The range every device translates: [`VA_SIZE`] bytes from [`VA_BASE`] on.
    ///
    /// # Errors
    /// [`TlsfError::OutOfSlots`] if no block slot was lent.
    pub fn new(blocks: &'s mut [Block]) -> Result<Self, TlsfError> {
        Self::over(VA_BASE..VA_BASE + VA_SIZE, blocks)
    }

    /// Another range.
    ///
    /// # Errors
    /// Those of [`Tlsf::new`].
    pub fn over(range: Range<u64>, blocks: &'s mut [Block]) -> Result<Self, TlsfError> {
        Ok(VaRange(spin::Mutex::new(Tlsf::new(range, PAGE_SIZE, blocks)?)))
    }

    /// Bytes not reserved.
    pub fn free_bytes(&self) -> u64 {
        self.0.lock().free_bytes()
    }

    /// Number of reservations.
    pub fn reservations(&self) -> usize {
        self.0.lock().allocations()
    }
}

impl fmt::Debug for VaRange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.lock().fmt(f)
    }
}

impl VirtualRange for VaRange<'_> {
    fn reserve(&self, size: u64, align: u64) -> Result<u64, TlsfError> {
        self.0.lock().alloc(size, align)
    }
    fn release(&self, va: u64) -> Result<u64, TlsfError> {
        self.0.lock().free(va)
    }
    fn reserved(&self, va: u64) -> Result<u64, TlsfError> {
        self.0.lock().size_of(va)
    }
}

/// What VRAM is used for, and the format of the page tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VmConfig {
    /// Format of the entries.
    pub format: PteFormat,
    /// First virtual address that the tables translate; a multiple of 512 GiB.
    pub va_base: u64,
    /// Physical addresses of the boot region.
    pub boot: Range<u64>,
    /// Physical addresses of the pool.
    pub pool: Range<u64>,
}

impl VmConfig {
    /// The usual layout for a device with `vram_size` bytes: [`BOOT_REGION`], the pool, and
    /// [`RESERVED_TAIL`], which belongs to neither.
    pub const fn for_vram(format: PteFormat, vram_size: u64) -> Self {
        VmConfig {
            format,
            va_base: VA_BASE,
            boot: 0..BOOT_REGION,
            pool: BOOT_REGION..vram_size.saturating_sub(RESERVED_TAIL),
        }
    }
}

/// Type state of [`Vm`]: the boot has begun; memory comes from the boot region.
#[derive(Clone, Copy, Debug)]
pub enum Booting {}
/// Type state of [`Vm`]: the boot is done; memory comes from the pool.
#[derive(Clone, Copy, Debug)]
pub enum Running {}

/// A phase of the device's life: [`Booting`] or [`Running`].
pub trait Phase: sealed::Sealed {
    /// Whether memory comes from the boot region.
    const BOOT: bool;
}
impl Phase for Booting {
    const BOOT: bool = true;
}
impl Phase for Running {
    const BOOT: bool = false;
}
mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Booting {}
    impl Sealed for super::Running {}
}

/// A device's address space and the VRAM behind it.
///
/// The table memory is handed to each call that needs it, so that this type borrows no bus.
pub struct Vm<'s, P> {
    space: Space,
    boot: Tlsf<'s>,
    pool: Tlsf<'s>,
    va: &'s (dyn VirtualRange + Sync + 's),
    /// Clean pages for tables; empty unless [`Vm::with_stock`] gave some.
    stock: Stock,
    lost: bool,
    phase: PhantomData<P>,
}

impl<P> fmt::Debug for Vm<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vm")
            .field("space", &self.space)
            .field("boot", &self.boot)
            .field("pool", &self.pool)
            .field("lost", &self.lost)
            .finish()
    }
}

impl<'s> Vm<'s, Booting> {
    /// An empty address space; its root table is the first allocation of the boot region, which
    /// begins empty too, so that the same sequence of allocations finds the same addresses after a
    /// warm boot.
    ///
    /// # Errors
    /// [`VmError::Memory`] if a region is empty or has no slots, [`VmError::Bus`].
    pub fn new<M: TableMemory>(
        mem: &mut M,
        config: &VmConfig,
        boot_blocks: &'s mut [Block],
        pool_blocks: &'s mut [Block],
        va: &'s (dyn VirtualRange + Sync + 's),
    ) -> Result<Self, VmError<M::Error>> {
        let mut boot = Tlsf::new(config.boot.clone(), PAGE_SIZE, boot_blocks).map_err(VmError::Memory)?;
        let pool = Tlsf::new(config.pool.clone(), PAGE_SIZE, pool_blocks).map_err(VmError::Memory)?;
        let root = boot.alloc(PAGE_SIZE, PAGE_SIZE).map_err(VmError::Memory)?;
        mem.zero(root, PAGE_SIZE).map_err(VmError::Bus)?;
        let space = Space { format: config.format, root, base: config.va_base };
        let stock = Stock::default();
        Ok(Vm { space, boot, pool, va, stock, lost: false, phase: PhantomData })
    }

    /// The boot is done: from now on memory comes from the pool.
    pub fn boot_done(self) -> Vm<'s, Running> {
        let Vm { space, boot, pool, va, stock, lost, .. } = self;
        Vm { space, boot, pool, va, stock, lost, phase: PhantomData }
    }
}

impl<'s, P: Phase> Vm<'s, P> {
    /// The tables, for [`super::walk`].
    pub fn space(&self) -> Space {
        self.space
    }

    /// The allocator of the boot region, to look at.
    pub fn boot_region(&self) -> &Tlsf<'s> {
        &self.boot
    }

    /// The allocator of the pool, to look at.
    pub fn pool(&self) -> &Tlsf<'s> {
        &self.pool
    }

    /// Whether an earlier error could not be taken back; every call is refused then.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// Allocates physically contiguous VRAM: from the boot region while booting, else from the
    /// pool. `size` is rounded up to 4 KiB; `align` is at least 4 KiB.
    ///
    /// # Errors
    /// Those of [`Tlsf::alloc`].
    pub fn palloc(&mut self, size: u64, align: u64) -> Result<u64, TlsfError> {
        let rounded = round_up(size, PAGE_SIZE).ok_or_else(|| TlsfError::OutOfMemory {
            size,
            align,
            free: self.pool.free_bytes(),
            largest: self.pool.largest_free(),
        })?;
        let align = align.max(PAGE_SIZE);
        if P::BOOT { self.boot.alloc(rounded, align) } else { self.pool.alloc(rounded, align) }
    }

    /// Gives VRAM back to where it came from; returns its size in bytes.
    ///
    /// # Errors
    /// [`TlsfError::NotAllocated`]
    pub fn pfree(&mut self, pa: u64) -> Result<u64, TlsfError> {
        if self.stock.contains(pa) {
            return if self.stock.give_back(pa) {
                Ok(PAGE_SIZE)
            } else {
                Err(TlsfError::NotAllocated { addr: pa })
            };
        }
        self.home(pa).free(pa)
    }

    /// Pages of VRAM that are cheaper to fill with zeros than others, for tables first of all. Whoever
    /// hands them over keeps them out of everything else.
    pub fn with_stock(mut self, pages: Range<u64>) -> Self {
        self.stock = Stock::new(pages);
        self
    }

    /// A page for a table.
    fn table_page(&mut self) -> Result<u64, TlsfError> {
        match self.stock.take() {
            Some(page) => Ok(page),
            None => self.palloc(PAGE_SIZE, PAGE_SIZE),
        }
    }

    /// Marks a table, to be freed with others.
    fn mark_table(&mut self, pa: u64) -> Result<(), TlsfError> {
        if self.stock.mark(pa) {
            return Ok(());
        }
        self.home(pa).mark(pa).map(drop)
    }

    /// The allocator that an address belongs to.
    fn home(&mut self, pa: u64) -> &mut Tlsf<'s> {
        if self.boot.contains(pa) { &mut self.boot } else { &mut self.pool }
    }

    fn usable<E>(&self) -> Result<(), VmError<E>> {
        if self.lost { Err(VmError::Lost) } else { Ok(()) }
    }

    /// Checks a range of virtual addresses and tells it as offsets from the base.
    fn offsets<E>(&self, va: u64, size: u64) -> Result<Range<u64>, VmError<E>> {
        for value in [va, size] {
            if value % PAGE_SIZE != 0 {
                return Err(VmError::Unaligned(value));
            }
        }
        if size == 0 {
            return Err(VmError::ZeroSize);
        }
        let Range { start, end } = self.space.range();
        match va.checked_add(size) {
            Some(last) if va >= start && last <= end => Ok(va - start..last - start),
            _ => Err(VmError::OutOfSpace { va, size, start, end }),
        }
    }
}

fn round_up(value: u64, to: u64) -> Option<u64> {
    value.checked_next_multiple_of(to)
}

/// Tries every access a second time: what takes an error back shall not fail of a passing one.
struct Twice<'a, M>(&'a mut M);

impl<M: TableMemory> TableMemory for Twice<'_, M> {
    type Error = M::Error;
    fn read(&mut self, pa: u64, out: &mut [u64]) -> Result<(), M::Error> {
        self.0.read(pa, out).or_else(|_| self.0.read(pa, out))
    }
    fn write(&mut self, pa: u64, entries: &[u64]) -> Result<(), M::Error> {
        self.0.write(pa, entries).or_else(|_| self.0.write(pa, entries))
    }
    fn write_run(&mut self, pa: u64, first: u64, step: u64, count: u64) -> Result<(), M::Error> {
        self.0.write_run(pa, first, step, count).or_else(|_| self.0.write_run(pa, first, step, count))
    }
    fn zero(&mut self, pa: u64, len: u64) -> Result<(), M::Error> {
        self.0.zero(pa, len).or_else(|_| self.0.zero(pa, len))
    }
}

impl<M: Flush> Flush for Twice<'_, M> {
    fn flush_tlb(&mut self) -> Result<(), M::Error> {
        self.0.flush_tlb()
    }
}
