//! Registers: dense ids, one table per IP version, and the operations on them.
//!
//! A [`Reg`] names a register that some part of the core uses; a [`Field`] names one of its bit
//! fields. Where a register stands and where its fields lie differs from one IP version to the
//! next: a [`RegTable`] (generated from the Linux headers by `tests/regs-gen`) says it for one
//! version, a [`RegFile`] joins the tables of one device with the base addresses its discovery
//! table gave.
//!
//! Addresses are *dword* addresses, as in AMD's headers. An address beyond BAR5 is reached through
//! the RSMU index/data pair; [`crate::ip`] does that.
//!
//! # Naming
//! - [`r`]: one constant for each register, with its name in the Linux headers; a role whose name
//!   changed between versions has one name here (`PSP_C2PMSG_35`, `GPU_HDP_FLUSH_REQ`).
//! - [`ra`]: registers that differ by a number as arrays (`ra::SDMA_QUEUE_RB_CNTL[engine][queue]`).
//! - [`f`]: one module for each register with one constant for each field. Registers that differ
//!   by a number share their fields: `f::sdma_queue_rb_cntl` goes with all of
//!   `ra::SDMA_QUEUE_RB_CNTL`.
//! - [`r::hub`], [`ra::hub`], [`f::hub`]: what both memory hubs have, indexed by [`Hub`]:
//!   `r::hub::VM_L2_CNTL[hub]`, `f::hub::vm_l2_cntl::ENABLE_L2_CACHE[hub]`.

use core::fmt;
use core::ops::Index;

#[rustfmt::skip]
mod ids;
pub mod smu;
pub mod tables;
pub use ids::{f, r, ra};

/// An IP block that has registers of its own, with its own version and base addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Block {
    /// Graphics and compute (GC), with its RLC, CP, SPI and, from gfx11 on, SDMA registers.
    Gc,
    /// Platform security processor mailboxes (MP0).
    Mp0,
    /// System management unit mailboxes (MP1).
    Mp1,
    /// Bus interface (NBIO, from gfx12 on NBIF).
    Nbio,
    /// Memory hub of everything but graphics.
    Mmhub,
    /// Interrupt handler (OSSSYS).
    Osssys,
    /// Host data path.
    Hdp,
    /// System DMA where it is a block of its own (before gfx11).
    Sdma,
}

impl Block {
    /// Number of blocks.
    pub const COUNT: usize = 8;
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Block::Gc => "GC",
            Block::Mp0 => "MP0",
            Block::Mp1 => "MP1",
            Block::Nbio => "NBIO",
            Block::Mmhub => "MMHUB",
            Block::Osssys => "OSSSYS",
            Block::Hdp => "HDP",
            Block::Sdma => "SDMA",
        })
    }
}

/// A memory hub: what translates addresses for a group of engines, with TLBs of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Hub {
    /// Graphics, compute and (from gfx11 on) SDMA; registers in [`Block::Gc`].
    Gc = 0,
    /// Everything else; registers in [`Block::Mmhub`].
    Mm = 1,
}

impl Hub {
    /// Both hubs.
    pub const ALL: [Hub; 2] = [Hub::Gc, Hub::Mm];
}

impl fmt::Display for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hub::Gc => "GC hub",
            Hub::Mm => "MM hub",
        })
    }
}

/// One of something for each memory hub.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PerHub<T> {
    /// The one of the GC hub.
    pub gc: T,
    /// The one of the MM hub.
    pub mm: T,
}

impl<T> PerHub<T> {
    /// The one of a hub.
    pub const fn at(&self, hub: Hub) -> &T {
        match hub {
            Hub::Gc => &self.gc,
            Hub::Mm => &self.mm,
        }
    }
}

impl<T> Index<Hub> for PerHub<T> {
    type Output = T;
    fn index(&self, hub: Hub) -> &T {
        self.at(hub)
    }
}

/// A register the core uses. Dense: `0..Reg::COUNT`, constants in the generated `ids`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reg(pub u16);

/// A bit field of one register. Dense over all registers: `0..Field::COUNT`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Field(pub u16);

/// Where one register of a table stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegDef {
    /// Base address index (`_BASE_IDX` in the headers); [`RegDef::ABSENT`] if this version has no
    /// such register.
    pub segment: u8,
    /// Dword offset from that base.
    pub offset: u32,
}

impl RegDef {
    /// Segment of a register that a version lacks.
    pub const ABSENT: u8 = 0xff;
}

/// Where one field of a table lies: lowest bit and width in bits; width 0 means the version lacks it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FieldDef {
    /// Lowest bit.
    pub lsb: u8,
    /// Width in bits.
    pub width: u8,
}

impl FieldDef {
    const fn mask(self) -> u32 {
        if self.width == 0 || self.lsb > 31 {
            0
        } else {
            (u32::MAX >> (32 - if self.width > 32 { 32 } else { self.width as u32 })) << self.lsb
        }
    }
}

/// The registers of one block in one IP version; generated.
#[derive(Debug)]
pub struct RegTable {
    /// The block described.
    pub block: Block,
    /// The version the headers are of.
    pub version: (u8, u8, u8),
    /// First register id of the block; `regs[i]` describes `Reg(first_reg + i)`.
    pub first_reg: u16,
    /// One entry for each register id of the block.
    pub regs: &'static [RegDef],
    /// First field id of the block.
    pub first_field: u16,
    /// One entry for each field id of the block.
    pub fields: &'static [FieldDef],
}

/// An error in the use of registers: always a fault of the program or of its tables, never of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegError {
    /// No table is loaded for the block the register belongs to.
    #[error("no register table is loaded for the block of {reg}")]
    NoTable {
        /// The register.
        reg: Reg,
    },
    /// This IP version has no such register.
    #[error("{reg} does not exist in version {}.{}.{} of its block", version.0, version.1, version.2)]
    NoSuchRegister {
        /// The register.
        reg: Reg,
        /// Version of the table.
        version: (u8, u8, u8),
    },
    /// This IP version has no such field.
    #[error("{field} does not exist in this IP version")]
    NoSuchField {
        /// The field.
        field: Field,
    },
    /// A field of another register was given.
    #[error("{field} is not a field of {reg}")]
    ForeignField {
        /// The register.
        reg: Reg,
        /// The field.
        field: Field,
    },
    /// The value does not fit into the field.
    #[error("{value:#x} does not fit into {field} ({width} bits)")]
    TooWide {
        /// The field.
        field: Field,
        /// The value given.
        value: u32,
        /// Width of the field in bits.
        width: u8,
    },
    /// The discovery table gave no such base address.
    #[error("discovery gave no base address {segment} for instance {instance} of the block of {reg}")]
    NoBase {
        /// The register.
        reg: Reg,
        /// The base address index.
        segment: u8,
        /// The instance.
        instance: u8,
    },
}

/// The most base addresses an IP instance has: MP0 and MP1 of MP 14 list 15, and the highest base
/// index in any header is 8 (NBIO 7.9).
pub const MAX_BASES: usize = 16;

/// Base addresses (in dwords) of one instance of a block, from the discovery table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bases {
    /// The addresses; entries from `len` on are unused.
    pub addr: [u32; MAX_BASES],
    /// How many there are.
    pub len: u8,
}

impl Bases {
    /// The `segment`-th base address.
    pub fn get(&self, segment: u8) -> Option<u32> {
        if segment < self.len { self.addr.get(segment as usize).copied() } else { None }
    }
}

/// The registers of one device: a table and base addresses for each block.
///
/// Instance 0 of each block is kept here; blocks with several instances that core drives (SDMA
/// from gfx11 on) have their registers in GC, under names of their own.
#[derive(Clone, Debug)]
pub struct RegFile {
    tables: [Option<&'static RegTable>; Block::COUNT],
    bases: [Bases; Block::COUNT],
}

impl Default for RegFile {
    fn default() -> Self {
        Self::new()
    }
}

impl RegFile {
    /// Without any table.
    pub const fn new() -> Self {
        RegFile {
            tables: [None; Block::COUNT],
            bases: [Bases { addr: [0; MAX_BASES], len: 0 }; Block::COUNT],
        }
    }

    /// Loads the table and base addresses of a block.
    pub fn set(&mut self, table: &'static RegTable, bases: Bases) {
        let i = table.block as usize;
        if let (Some(t), Some(b)) = (self.tables.get_mut(i), self.bases.get_mut(i)) {
            *t = Some(table);
            *b = bases;
        }
    }

    /// The table loaded for a block.
    pub fn table(&self, block: Block) -> Option<&'static RegTable> {
        self.tables.get(block as usize).copied().flatten()
    }

    /// Dword address of a register.
    pub fn addr(&self, reg: Reg) -> Result<u32, RegError> {
        let block = reg.block();
        let table = self.table(block).ok_or(RegError::NoTable { reg })?;
        let def = reg.def(table)?;
        let base = self.bases.get(block as usize).and_then(|b| b.get(def.segment));
        let base = base.ok_or(RegError::NoBase { reg, segment: def.segment, instance: 0 })?;
        Ok(base.wrapping_add(def.offset))
    }

    /// Base address index and dword offset of a register, without base addresses.
    pub fn place(&self, reg: Reg) -> Result<RegDef, RegError> {
        reg.def(self.table(reg.block()).ok_or(RegError::NoTable { reg })?)
    }

    /// Whether this device has the register.
    pub fn has(&self, reg: Reg) -> bool {
        self.addr(reg).is_ok()
    }

    /// Whether this device has the field.
    pub fn has_field(&self, field: Field) -> bool {
        self.field_def(field).is_ok()
    }

    /// Lowest bit and width of a field in this device's version.
    pub fn field_def(&self, field: Field) -> Result<FieldDef, RegError> {
        let reg = field.reg();
        let table = self.table(reg.block()).ok_or(RegError::NoTable { reg })?;
        let def = field
            .0
            .checked_sub(table.first_field)
            .and_then(|i| table.fields.get(i as usize))
            .copied()
            .filter(|d| d.width != 0);
        def.ok_or(RegError::NoSuchField { field })
    }

    /// Joins field values into a register value; all other bits are 0.
    pub fn encode(&self, reg: Reg, fields: &[(Field, u32)]) -> Result<u32, RegError> {
        self.merge(reg, 0, fields)
    }

    /// Replaces fields in a register value and leaves the other bits alone.
    pub fn merge(&self, reg: Reg, old: u32, fields: &[(Field, u32)]) -> Result<u32, RegError> {
        let mut value = old;
        for &(field, v) in fields {
            if field.reg() != reg.field_owner() {
                return Err(RegError::ForeignField { reg, field });
            }
            let def = self.field_def(field)?;
            if def.width < 32 && v >> def.width != 0 {
                return Err(RegError::TooWide { field, value: v, width: def.width });
            }
            value = (value & !def.mask()) | (v.wrapping_shl(def.lsb as u32) & def.mask());
        }
        Ok(value)
    }

    /// Takes a field out of a register value.
    pub fn get(&self, value: u32, field: Field) -> Result<u32, RegError> {
        let def = self.field_def(field)?;
        Ok((value & def.mask()) >> def.lsb)
    }

    /// The bits a field occupies.
    pub fn mask(&self, field: Field) -> Result<u32, RegError> {
        Ok(self.field_def(field)?.mask())
    }
}

impl Reg {
    fn def(self, table: &RegTable) -> Result<RegDef, RegError> {
        let def = self.0.checked_sub(table.first_reg).and_then(|i| table.regs.get(i as usize));
        match def {
            Some(d) if d.segment != RegDef::ABSENT => Ok(*d),
            _ => Err(RegError::NoSuchRegister { reg: self, version: table.version }),
        }
    }
}

impl Reg {
    /// Number of registers.
    pub const COUNT: u16 = ids::REG_OWNER.len() as u16;

    /// Every register.
    pub fn all() -> impl Iterator<Item = Reg> {
        (0..Self::COUNT).map(Reg)
    }

    /// The block this register belongs to.
    pub fn block(self) -> Block {
        let after = ids::BLOCKS.partition_point(|&(_, first)| first <= self.0);
        after.checked_sub(1).and_then(|i| ids::BLOCKS.get(i)).map_or(Block::Gc, |b| b.0)
    }

    /// The register whose fields this one uses: itself, or the first of its family.
    pub fn field_owner(self) -> Reg {
        Reg(ids::REG_OWNER.get(self.0 as usize).copied().unwrap_or(u16::MAX))
    }

    /// The fields that this register has in some version.
    pub fn fields(self) -> impl Iterator<Item = Field> {
        let owner = self.field_owner().0;
        let first = ids::FIELD_REG.partition_point(|&r| r < owner);
        let end = ids::FIELD_REG.partition_point(|&r| r <= owner);
        (first as u16..end as u16).map(Field)
    }

    /// Name in the Linux headers, without the `reg`/`mm` prefix; a placeholder without the
    /// `names` feature.
    pub fn name(self) -> &'static str {
        #[cfg(feature = "names")]
        return ids::REG_NAME.get(self.0 as usize).copied().unwrap_or("?");
        #[cfg(not(feature = "names"))]
        "register"
    }

    /// The register of a name (as in [`r`]); for command lines and tests.
    #[cfg(feature = "names")]
    pub fn from_name(name: &str) -> Option<Reg> {
        ids::REG_NAME.iter().position(|n| *n == name).map(|i| Reg(i as u16))
    }
}

impl Field {
    /// Number of fields.
    pub const COUNT: u16 = ids::FIELD_REG.len() as u16;

    /// The register this field belongs to; the first of a family that shares its fields.
    pub fn reg(self) -> Reg {
        Reg(ids::FIELD_REG.get(self.0 as usize).copied().unwrap_or(u16::MAX))
    }

    /// Name in the Linux headers; a placeholder without the `names` feature.
    pub fn name(self) -> &'static str {
        #[cfg(feature = "names")]
        return ids::FIELD_NAME.get(self.0 as usize).copied().unwrap_or("?");
        #[cfg(not(feature = "names"))]
        "field"
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if cfg!(feature = "names") { f.write_str(self.name()) } else { write!(f, "register #{}", self.0) }
    }
}

impl fmt::Debug for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if cfg!(feature = "names") {
            write!(f, "{}.{}", self.reg(), self.name())
        } else {
            write!(f, "field #{} of {}", self.0, self.reg())
        }
    }
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
