//! Page-table entries: a plain representation and the formats of the GPU generations.
//!
//! Bits and shifts are those of `amdgpu_vm.h` (`AMDGPU_PTE_*`, `AMDGPU_PDE_*`); memory types those
//! of `enum MTYPE` in `soc21_enum.h` and `soc24_enum.h`.

use bitflags::bitflags;

/// Entries of a table; each is 8 bytes.
pub const ENTRIES: u64 = 512;
/// Bytes of a table, and of the smallest page.
pub const PAGE_SIZE: u64 = 0x1000;
/// Address bits of an entry.
pub const ADDRESS_MASK: u64 = 0x0000_FFFF_FFFF_F000;
/// Physical addresses have 44 bits (the DMA mask that `gmc_v11_0.c` and `gmc_v12_0.c` set).
pub const PHYSICAL_BITS: u32 = 44;
/// Bits of a virtual address that the four levels translate.
pub const VIRTUAL_BITS: u32 = 48;
/// The widest fragment an entry can state (`AMDGPU_PTE_FRAG`, 5 bits).
pub const MAX_FRAGMENT: u8 = 31;

const FRAGMENT_SHIFT: u32 = 7;

/// Level of a table. Each level translates 9 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// Root: 512 GiB for each entry.
    Pdb2,
    /// 1 GiB for each entry.
    Pdb1,
    /// 2 MiB for each entry.
    Pdb0,
    /// Page table block: 4 KiB for each entry.
    Ptb,
}

impl Level {
    /// All levels from the root down.
    pub const ALL: [Level; 4] = [Level::Pdb2, Level::Pdb1, Level::Pdb0, Level::Ptb];

    /// log2 of the bytes an entry of this level covers.
    pub const fn shift(self) -> u32 {
        39 - 9 * self as u32
    }

    /// Bytes an entry of this level covers.
    pub const fn covers(self) -> u64 {
        1 << self.shift()
    }

    /// The level below; `None` for the last.
    pub const fn child(self) -> Option<Level> {
        match self {
            Level::Pdb2 => Some(Level::Pdb1),
            Level::Pdb1 => Some(Level::Pdb0),
            Level::Pdb0 => Some(Level::Ptb),
            Level::Ptb => None,
        }
    }

    /// Index of the entry for `offset` (a virtual address less the base of the address space).
    pub const fn index(self, offset: u64) -> u64 {
        (offset >> self.shift()) % ENTRIES
    }
}

bitflags! {
    /// The flags that stand at the same bits in all formats.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub struct PteFlags: u64 {
        /// `AMDGPU_PTE_VALID`
        const VALID = 1 << 0;
        /// `AMDGPU_PTE_SYSTEM`: the address is one of the bus, not of VRAM.
        const SYSTEM = 1 << 1;
        /// `AMDGPU_PTE_SNOOPED`: accesses snoop the CPU's caches.
        const SNOOPED = 1 << 2;
        /// `AMDGPU_PTE_TMZ`: encrypted memory.
        const TMZ = 1 << 3;
        /// `AMDGPU_PTE_EXECUTABLE`
        const EXECUTABLE = 1 << 4;
        /// `AMDGPU_PTE_READABLE`
        const READABLE = 1 << 5;
        /// `AMDGPU_PTE_WRITEABLE`
        const WRITEABLE = 1 << 6;
    }
}

impl PteFlags {
    /// Readable, writable, executable.
    pub const RWX: PteFlags = PteFlags::READABLE.union(PteFlags::WRITEABLE).union(PteFlags::EXECUTABLE);
}

bitflags! {
    /// What only the GFX10/GFX11 format has (apart from the memory type in bits 48–50).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Gfx11Bits: u64 {
        /// `AMDGPU_PDE_PTE`: a directory entry that is a page.
        const PDE_PTE = 1 << 54;
    }
}

bitflags! {
    /// What only the GFX12 format has (apart from the memory type in bits 54–55).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Gfx12Bits: u64 {
        /// `AMDGPU_PTE_IS_PTE`, in directories `AMDGPU_PDE_PTE_GFX12`: the entry is a page.
        const IS_PTE = 1 << 63;
    }
}

/// How the GPU's caches treat a page (`enum MTYPE`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Mtype(pub u8);

impl Mtype {
    /// `MTYPE_C_RW_US`: cached, the default.
    pub const CACHED: Mtype = Mtype(0);
    /// `MTYPE_UC`: uncached.
    pub const UNCACHED: Mtype = Mtype(3);
}

/// Whether an entry points at a table or is a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Points at a table of the next level.
    Table,
    /// Maps a page: of 4 KiB in a [`Level::Ptb`], a huge one above.
    Page,
}

/// An entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// Table or page.
    pub kind: Kind,
    /// Address of the table or the page; a multiple of 4 KiB below 2^44.
    pub addr: u64,
    /// Flags.
    pub flags: PteFlags,
    /// Memory type.
    pub mtype: Mtype,
    /// log2 of the number of 4 KiB pages around this one that are mapped alike and contiguously
    /// (a hint for the TLB).
    pub fragment: u8,
}

/// Why an entry cannot be written down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PteError {
    /// Not a multiple of 4 KiB, or 2^44 or above.
    #[error("{addr:#x} cannot stand in a page table; it must be a multiple of 0x1000 below 2^44")]
    BadAddress {
        /// The address.
        addr: u64,
    },
    /// The fragment has 5 bits.
    #[error("fragment {fragment} cannot stand in a page table; the largest is 31")]
    BadFragment {
        /// The fragment.
        fragment: u8,
    },
    /// The format has fewer memory types.
    #[error("memory type {mtype} cannot stand in a page table of this format")]
    BadMtype {
        /// The memory type.
        mtype: u8,
    },
}

/// Format of the entries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PteFormat {
    /// GFX10 and GFX11 (`AMDGPU_PTE_MTYPE_NV10`).
    Gfx11,
    /// GFX12.
    Gfx12,
}

impl PteFormat {
    const fn mtype_shift(self) -> u32 {
        match self {
            PteFormat::Gfx11 => 48,
            PteFormat::Gfx12 => 54,
        }
    }

    const fn mtype_mask(self) -> u8 {
        match self {
            PteFormat::Gfx11 => 7,
            PteFormat::Gfx12 => 3,
        }
    }

    /// The bit that makes an entry of this level a page.
    const fn page_bit(self, level: Level) -> u64 {
        match (self, level) {
            // The last level holds nothing but pages and does without the bit.
            (PteFormat::Gfx11, Level::Ptb) => 0,
            (PteFormat::Gfx11, _) => Gfx11Bits::PDE_PTE.bits(),
            (PteFormat::Gfx12, _) => Gfx12Bits::IS_PTE.bits(),
        }
    }

    /// The bits of an entry, without its address.
    ///
    /// # Errors
    /// A fragment or memory type too large.
    pub fn flag_bits(self, level: Level, entry: &Entry) -> Result<u64, PteError> {
        if entry.fragment > MAX_FRAGMENT {
            return Err(PteError::BadFragment { fragment: entry.fragment });
        }
        if entry.mtype.0 > self.mtype_mask() {
            return Err(PteError::BadMtype { mtype: entry.mtype.0 });
        }
        let page = if entry.kind == Kind::Page { self.page_bit(level) } else { 0 };
        Ok(entry.flags.bits()
            | u64::from(entry.fragment) << FRAGMENT_SHIFT
            | u64::from(entry.mtype.0) << self.mtype_shift()
            | page)
    }

    /// Writes an entry down.
    ///
    /// # Errors
    /// An address, fragment or memory type that does not fit.
    pub fn encode(self, level: Level, entry: &Entry) -> Result<u64, PteError> {
        if entry.addr & !ADDRESS_MASK != 0 || entry.addr >> PHYSICAL_BITS != 0 {
            return Err(PteError::BadAddress { addr: entry.addr });
        }
        Ok(self.flag_bits(level, entry)? | entry.addr)
    }

    /// An entry that points at a table in VRAM.
    ///
    /// # Errors
    /// [`PteError::BadAddress`]
    pub fn table(self, level: Level, addr: u64) -> Result<u64, PteError> {
        let entry =
            Entry { kind: Kind::Table, addr, flags: PteFlags::VALID, mtype: Mtype::CACHED, fragment: 0 };
        self.encode(level, &entry)
    }

    /// An entry with another fragment (not above [`MAX_FRAGMENT`]).
    pub(crate) const fn with_fragment(raw: u64, fragment: u8) -> u64 {
        raw & !((MAX_FRAGMENT as u64) << FRAGMENT_SHIFT)
            | ((fragment & MAX_FRAGMENT) as u64) << FRAGMENT_SHIFT
    }

    /// Reads an entry; `None` if it is not valid.
    pub fn decode(self, level: Level, raw: u64) -> Option<Entry> {
        if raw & PteFlags::VALID.bits() == 0 {
            return None;
        }
        let page = level == Level::Ptb || raw & self.page_bit(level) != 0;
        Some(Entry {
            kind: if page { Kind::Page } else { Kind::Table },
            addr: raw & ADDRESS_MASK,
            flags: PteFlags::from_bits_truncate(raw),
            mtype: Mtype((raw >> self.mtype_shift()) as u8 & self.mtype_mask()),
            fragment: (raw >> FRAGMENT_SHIFT) as u8 & MAX_FRAGMENT,
        })
    }
}
