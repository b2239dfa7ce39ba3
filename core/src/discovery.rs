//! IP discovery: which blocks a GPU has, in which version, and where their registers are.
//!
//! The GPU's firmware leaves a table in the last 64 KiB of VRAM. [`MemSize`] says where it is,
//! [`load`] reads as much of it as its header says, [`parse`] checks it and gives an [`IpList`].
//! [`Binary`] writes such a table, for tests and simulated devices.
//!
//! Everything in a table is bounds-checked, checksums are verified, and harvested (fused off)
//! IPs are left out of the list. Layouts: Linux `discovery.h`; behaviour: `amdgpu_discovery.c`.

use core::fmt;

use heapless::Vec;

use crate::reg::{Bases, Block, MAX_BASES};

mod emit;
mod gc;
mod names;
mod parse;
mod sparse;
mod vram;
pub mod wire;

pub use emit::{Binary, Die, EmitError, Ip};
pub use gc::GcInfo;
pub use parse::{LoadError, MAX_BINARY, load, load_into, parse};
pub use sparse::load_sparse;
pub use vram::{
    DiscoverError, MEMSIZE_REG, MM_DATA_REG, MM_INDEX_HI_REG, MM_INDEX_REG, MemSize, PSP_READY_REG, discover,
    discover_sparse, read_vram,
};

/// A version of an IP block: major, minor, revision.
pub type Version = (u8, u8, u8);

/// The most IP instances of one device, over all dies.
pub const MAX_IPS: usize = 256;
/// The most base addresses of one device, over all instances.
pub const MAX_ALL_BASES: usize = 1280;
/// The most entries of the harvest table (`struct harvest_table`).
pub const MAX_HARVEST: usize = 32;

/// A hardware id of the discovery table (`soc15_hw_ip.h`). Unknown ones are kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HwId(pub u16);

impl HwId {
    /// System management unit.
    pub const MP1: HwId = HwId(1);
    /// Thermal controller.
    pub const THM: HwId = HwId(3);
    /// Graphics and compute.
    pub const GC: HwId = HwId(11);
    /// Video codec (VCN, formerly UVD).
    pub const VCN: HwId = HwId(12);
    /// Memory hub.
    pub const MMHUB: HwId = HwId(34);
    /// Interrupt handler.
    pub const OSSSYS: HwId = HwId(40);
    /// Host data path.
    pub const HDP: HwId = HwId(41);
    /// System DMA; the only id of SDMA where instances share one.
    pub const SDMA0: HwId = HwId(42);
    /// Second SDMA engine where each has an id of its own.
    pub const SDMA1: HwId = HwId(43);
    /// Third SDMA engine where each has an id of its own.
    pub const SDMA2: HwId = HwId(68);
    /// Fourth SDMA engine where each has an id of its own.
    pub const SDMA3: HwId = HwId(69);
    /// Bus interface (NBIO, NBIF).
    pub const NBIF: HwId = HwId(108);
    /// Memory controller.
    pub const UMC: HwId = HwId(150);
    /// Platform security processor.
    pub const MP0: HwId = HwId(255);

    /// The id of a block's instance 0.
    pub const fn of(block: Block) -> HwId {
        match block {
            Block::Gc => HwId::GC,
            Block::Mp0 => HwId::MP0,
            Block::Mp1 => HwId::MP1,
            Block::Nbio => HwId::NBIF,
            Block::Mmhub => HwId::MMHUB,
            Block::Osssys => HwId::OSSSYS,
            Block::Hdp => HwId::HDP,
            Block::Sdma => HwId::SDMA0,
        }
    }

    /// Name in the Linux headers, without `_HWID`; `None` for ids Linux does not know and without
    /// the `names` feature.
    pub fn name(self) -> Option<&'static str> {
        names::name(self.0)
    }
}

impl fmt::Display for HwId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "HWID {}", self.0),
        }
    }
}

impl fmt::Debug for HwId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What is wrong with a discovery table. Offsets are bytes from the table's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoveryError {
    /// The memory size register does not hold a size.
    #[error(
        "the device is not responding (register 0xde3, memory size, reads {value:#x}); check power and link, then reset it"
    )]
    NotResponding {
        /// What the register read.
        value: u32,
    },
    /// A field, table or list does not lie inside what surrounds it.
    #[error(
        "discovery table: {field} at offset {offset:#x} ends at {end:#x}, beyond the {limit:#x} bytes there are"
    )]
    OutOfBounds {
        /// The field.
        field: &'static str,
        /// Its offset.
        offset: u32,
        /// Where it would end.
        end: u32,
        /// Where it has to end at the latest.
        limit: u32,
    },
    /// A signature, id or checksum is not what it has to be.
    #[error("discovery table: {field} at offset {offset:#x} is {found:#x}, expected {expected:#x}")]
    Mismatch {
        /// The field.
        field: &'static str,
        /// Its offset.
        offset: u32,
        /// What stands there.
        found: u32,
        /// What has to stand there.
        expected: u32,
    },
    /// A version or count that this reader does not know.
    #[error("discovery table: {field} at offset {offset:#x} is {found}, supported is {supported}")]
    Unsupported {
        /// The field.
        field: &'static str,
        /// Its offset.
        offset: u32,
        /// What stands there.
        found: u32,
        /// What is supported, in words.
        supported: &'static str,
    },
    /// A list is longer than this reader can hold.
    #[error("discovery table: {field} at offset {offset:#x}: more than {limit}")]
    TooMany {
        /// The list.
        field: &'static str,
        /// Where the first entry too many stands.
        offset: u32,
        /// How many fit.
        limit: u32,
    },
    /// There is no IP table.
    #[error("discovery table: it has no IP table (its offset is 0)")]
    NoIpTable,
    /// The device has no such block, or it is harvested.
    #[error("discovery table: the device has no {0}, or all of them are harvested")]
    NoBlock(HwId),
    /// The buffer lent is too small for the table.
    #[error("discovery table: it has {need} bytes, the buffer for it {have}")]
    Buffer {
        /// Bytes needed.
        need: u32,
        /// Bytes lent.
        have: u32,
    },
}

/// One IP instance of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpInfo<'a> {
    /// Hardware id.
    pub hw_id: HwId,
    /// Die it is on.
    pub die: u8,
    /// Instance number among those of the same id.
    pub instance: u8,
    /// Version.
    pub version: Version,
    /// Variant (IP table version 3 and later; 0 before).
    pub variant: u8,
    /// Sub-revision (IP table version 3 and later; 0 before).
    pub sub_revision: u8,
    /// Harvest bits of the entry (IP table version 1 and 2; 0 later). Informative: Linux heeds
    /// them on a few Navi1x boards only.
    pub harvest: u8,
    /// Base addresses in dwords.
    pub bases: &'a [u32],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    hw_id: HwId,
    die: u8,
    instance: u8,
    version: Version,
    flags: u8,
    first_base: u16,
    num_bases: u8,
}

/// An IP instance that the harvest table says is fused off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Harvested {
    /// Hardware id.
    pub hw_id: HwId,
    /// Instance number.
    pub instance: u8,
}

/// The IP blocks of a device, harvested ones left out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IpList {
    entries: Vec<Entry, MAX_IPS>,
    bases: Vec<u32, MAX_ALL_BASES>,
    harvested: Vec<Harvested, MAX_HARVEST>,
    /// Version of the IP table (1 to 4).
    pub table_version: u16,
    /// Number of dies.
    pub dies: u8,
    /// Shape of the graphics core, if the table has it.
    pub gc: Option<GcInfo>,
}

impl IpList {
    fn info(&self, e: &Entry) -> IpInfo<'_> {
        let first = e.first_base as usize;
        let (low, high) = (e.flags & 0xf, e.flags >> 4);
        let v3 = self.table_version >= 3;
        IpInfo {
            hw_id: e.hw_id,
            die: e.die,
            instance: e.instance,
            version: e.version,
            variant: if v3 { high } else { 0 },
            sub_revision: if v3 { low } else { 0 },
            harvest: if v3 { 0 } else { low },
            bases: self.bases.get(first..first + e.num_bases as usize).unwrap_or(&[]),
        }
    }

    /// All IP instances in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = IpInfo<'_>> {
        self.entries.iter().map(|e| self.info(e))
    }

    /// An instance by its hardware id. Where dies repeat an instance the last one counts, as in
    /// Linux.
    pub fn find(&self, hw_id: HwId, instance: u8) -> Option<IpInfo<'_>> {
        let entry = self.entries.iter().rev().find(|e| e.hw_id == hw_id && e.instance == instance);
        entry.map(|e| self.info(e))
    }

    /// The `nth` instance of a block that is there, counting from 0.
    ///
    /// Instance numbers and positions differ only where an instance is harvested. SDMA engines are
    /// numbered over their four hardware ids: some devices have several instances of one id,
    /// others an id for each engine.
    pub fn instance(&self, block: Block, nth: u8) -> Option<IpInfo<'_>> {
        let ids: &[HwId] = match block {
            Block::Sdma => &[HwId::SDMA0, HwId::SDMA1, HwId::SDMA2, HwId::SDMA3],
            _ => &[HwId::of(block)],
        };
        let mut left = nth;
        for id in ids {
            let mut next = 0;
            // In the order of instance numbers, whatever the order of the table.
            while let Some(instance) = self
                .entries
                .iter()
                .filter(|e| e.hw_id == *id && u16::from(e.instance) >= next)
                .map(|e| e.instance)
                .min()
            {
                if left == 0 {
                    return self.find(*id, instance);
                }
                left -= 1;
                next = u16::from(instance) + 1;
            }
        }
        None
    }

    /// How many instances of a block there are.
    pub fn instances(&self, block: Block) -> u8 {
        (0..=u8::MAX).take_while(|n| self.instance(block, *n).is_some()).count().min(255) as u8
    }

    /// Version of a block (of its first instance), if the device has it.
    pub fn version(&self, block: Block) -> Option<Version> {
        self.instance(block, 0).map(|ip| ip.version)
    }

    /// Version of a block, or an error that names what is missing.
    pub fn require(&self, block: Block) -> Result<Version, DiscoveryError> {
        self.version(block).ok_or(DiscoveryError::NoBlock(HwId::of(block)))
    }

    /// Base addresses of a block's `nth` instance (see [`IpList::instance`]), in the form that
    /// [`crate::reg::RegFile::set`] takes: the first [`MAX_BASES`]. MP0 and MP1 of MP 14 list 15;
    /// registers use the first few.
    pub fn bases(&self, block: Block, nth: u8) -> Option<Bases> {
        let ip = self.instance(block, nth)?;
        let mut out = Bases::default();
        for (slot, base) in out.addr.iter_mut().zip(ip.bases) {
            *slot = *base;
        }
        out.len = ip.bases.len().min(MAX_BASES) as u8;
        Some(out)
    }

    /// What the harvest table says is fused off.
    pub fn harvested(&self) -> &[Harvested] {
        &self.harvested
    }

    /// The compilation target of this GPU's kernels.
    pub fn gfx_target(&self) -> Option<GfxTarget> {
        GfxTarget::of_gc(self.version(Block::Gc)?)
    }

    /// The most compute units the device can have active: the shape of the graphics core times the
    /// number of its instances that are not harvested (a version 2 description is of one XCC).
    ///
    /// Units fused off inside a shader array are not in this table but in the register
    /// `CC_GC_SHADER_ARRAY_CONFIG` of each array: see [`GcInfo::active_cus_in_array`].
    pub fn max_cus(&self) -> Option<u32> {
        let gc = self.gc?;
        let cores = if gc.version.0 >= 2 { self.instances(Block::Gc).max(1) as u32 } else { 1 };
        Some(gc.max_cus().saturating_mul(cores))
    }
}

/// A compilation target: `gfx` and major, minor (decimal) and stepping (hexadecimal).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GfxTarget {
    /// Major version: 11 in gfx1100.
    pub major: u8,
    /// Minor version.
    pub minor: u8,
    /// Stepping: 10 in gfx90a.
    pub stepping: u8,
}

impl GfxTarget {
    /// A target by its parts.
    pub const fn new(major: u8, minor: u8, stepping: u8) -> Self {
        GfxTarget { major, minor, stepping }
    }

    /// The target of a GC version; not the same numbers in general (`kfd_device.c`).
    pub const fn of_gc(gc: Version) -> Option<Self> {
        Some(match gc {
            (9, 0, 1) => Self::new(9, 0, 0),
            (9, 1, 0) | (9, 2, 2) => Self::new(9, 0, 2),
            (9, 2, 1) => Self::new(9, 0, 4),
            (9, 3, 0) => Self::new(9, 0, 12),
            (9, 4, 0) => Self::new(9, 0, 6),
            (9, 4, 1) => Self::new(9, 0, 8),
            (9, 4, 2) => Self::new(9, 0, 10),
            (9, 4, 3) | (9, 4, 4) => Self::new(9, 4, 2),
            (9, 5, 0) => Self::new(9, 5, 0),
            (10, 1, 10) => Self::new(10, 1, 0),
            (10, 1, 2) => Self::new(10, 1, 1),
            (10, 1, 1) => Self::new(10, 1, 2),
            (10, 1, 3) | (10, 1, 4) => Self::new(10, 1, 3),
            (10, 3, 0) => Self::new(10, 3, 0),
            (10, 3, 2) => Self::new(10, 3, 1),
            (10, 3, 4) => Self::new(10, 3, 2),
            (10, 3, 1) => Self::new(10, 3, 3),
            (10, 3, 5) => Self::new(10, 3, 4),
            (10, 3, 3) => Self::new(10, 3, 5),
            (10, 3, 6) | (10, 3, 7) => Self::new(10, 3, 6),
            (11, 0, 0) => Self::new(11, 0, 0),
            // Navi32: gfx1101, not gfx1103.
            (11, 0, 3) => Self::new(11, 0, 1),
            (11, 0, 2) => Self::new(11, 0, 2),
            (11, 0, 1) | (11, 0, 4) => Self::new(11, 0, 3),
            (11, 5, 0) => Self::new(11, 5, 0),
            (11, 5, 1) => Self::new(11, 5, 1),
            (11, 5, 2) => Self::new(11, 5, 2),
            (12, 0, 0) => Self::new(12, 0, 0),
            (12, 0, 1) => Self::new(12, 0, 1),
            _ => return None,
        })
    }

    /// The form KFD shows as `gfx_target_version`: 110001 for gfx1101.
    pub const fn kfd_version(self) -> u32 {
        self.major as u32 * 10_000 + self.minor as u32 * 100 + self.stepping as u32
    }

    /// From KFD's `gfx_target_version`.
    pub const fn from_kfd_version(v: u32) -> Option<Self> {
        if v < 10_000 || v / 10_000 > 255 {
            return None;
        }
        Some(Self::new((v / 10_000) as u8, (v / 100 % 100) as u8, (v % 100) as u8))
    }
}

impl fmt::Display for GfxTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gfx{}{}{:x}", self.major, self.minor, self.stepping)
    }
}
