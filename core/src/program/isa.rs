//! Which processor a code object is for: the `EF_AMDGPU_MACH` numbers of ELF flags and the targets
//! they stand for. Source: LLVM's AMDGPUUsage ("ELF Header e_flags").

use core::fmt;

use crate::iface::Target;

/// A processor, or a family that one object serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fits {
    /// One target.
    One(Target),
    /// Every target of one generation between two minor versions.
    Family { major: u8, minor: (u8, u8) },
}

/// Whether a code object depends on a feature of the processor (xnack, sramecc).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Feature {
    /// The processor does not have it.
    Unsupported,
    /// It runs with and without.
    Any,
    /// It must be off.
    Off,
    /// It must be on.
    On,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Feature::Unsupported => "unsupported",
            Feature::Any => "any",
            Feature::Off => "off",
            Feature::On => "on",
        })
    }
}

/// The processor a code object is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Isa {
    /// Number in the ELF flags.
    pub mach: u8,
    /// Its name.
    pub name: &'static str,
    /// Whether page-fault retry is expected.
    pub xnack: Feature,
    /// Whether SRAM ECC is expected.
    pub sramecc: Feature,
    /// Version of a generic target; 0 for others.
    pub generic_version: u8,
    fits: Fits,
}

impl Isa {
    /// From ELF flags and ABI version; `None` for an unknown processor.
    pub fn from_flags(flags: u32, abi_version: u8) -> Option<Isa> {
        let mach = flags as u8;
        let (_, name, fits) = *TABLE.iter().find(|e| e.0 == mach)?;
        // Code object version 3 has one bit for each feature, later versions have two.
        let feature = |bit: u32, v3_bit: u32| match (abi_version, flags >> bit & 3) {
            (..=1, _) if flags >> v3_bit & 1 == 1 => Feature::On,
            (..=1, _) => Feature::Off,
            (_, 0) => Feature::Unsupported,
            (_, 1) => Feature::Any,
            (_, 2) => Feature::Off,
            (_, _) => Feature::On,
        };
        let (xnack, sramecc) = (feature(8, 8), feature(10, 9));
        Some(Isa { mach, name, xnack, sramecc, generic_version: (flags >> 24) as u8, fits })
    }

    /// The exact target; `None` for a generic one.
    pub fn target(&self) -> Option<Target> {
        match self.fits {
            Fits::One(t) => Some(t),
            Fits::Family { .. } => None,
        }
    }

    /// Whether a device with this target can execute it.
    pub fn runs_on(&self, device: Target) -> bool {
        match self.fits {
            Fits::One(t) => t == device,
            Fits::Family { major, minor: (low, high) } => {
                device.major == major && (low..=high).contains(&device.minor)
            }
        }
    }

    /// Generation: 6 to 12.
    pub fn major(&self) -> u8 {
        match self.fits {
            Fits::One(t) => t.major,
            Fits::Family { major, .. } => major,
        }
    }

    /// LDS of one workgroup at most, in bytes.
    pub fn max_lds(&self) -> u32 {
        if self.target() == Some(Target::new(9, 5, 0)) { 160 << 10 } else { 64 << 10 }
    }

    /// Registers in which vector registers are allocated for waves of 32 or 64.
    pub fn vgpr_granule(&self, wave32: bool) -> u32 {
        let many = match self.fits {
            Fits::One(t) => t.major == 9 && (t.minor >= 4 || t == Target::new(9, 0, 10)),
            Fits::Family { major: 9, minor } => minor.0 >= 4,
            Fits::Family { .. } => false,
        };
        if many || (self.major() >= 10 && wave32) { 8 } else { 4 }
    }
}

const fn one(mach: u8, name: &'static str, major: u8, minor: u8, stepping: u8) -> (u8, &'static str, Fits) {
    (mach, name, Fits::One(Target::new(major, minor, stepping)))
}

const fn family(mach: u8, name: &'static str, major: u8, minor: (u8, u8)) -> (u8, &'static str, Fits) {
    (mach, name, Fits::Family { major, minor })
}

#[rustfmt::skip]
static TABLE: &[(u8, &str, Fits)] = &[
    one(0x20, "gfx600", 6, 0, 0), one(0x21, "gfx601", 6, 0, 1), one(0x3a, "gfx602", 6, 0, 2),
    one(0x22, "gfx700", 7, 0, 0), one(0x23, "gfx701", 7, 0, 1), one(0x24, "gfx702", 7, 0, 2),
    one(0x25, "gfx703", 7, 0, 3), one(0x26, "gfx704", 7, 0, 4), one(0x3b, "gfx705", 7, 0, 5),
    one(0x28, "gfx801", 8, 0, 1), one(0x29, "gfx802", 8, 0, 2), one(0x2a, "gfx803", 8, 0, 3),
    one(0x3c, "gfx805", 8, 0, 5), one(0x2b, "gfx810", 8, 1, 0),
    one(0x2c, "gfx900", 9, 0, 0), one(0x2d, "gfx902", 9, 0, 2), one(0x2e, "gfx904", 9, 0, 4),
    one(0x2f, "gfx906", 9, 0, 6), one(0x30, "gfx908", 9, 0, 8), one(0x31, "gfx909", 9, 0, 9),
    one(0x3f, "gfx90a", 9, 0, 10), one(0x32, "gfx90c", 9, 0, 12),
    one(0x40, "gfx940", 9, 4, 0), one(0x4b, "gfx941", 9, 4, 1), one(0x4c, "gfx942", 9, 4, 2),
    one(0x4f, "gfx950", 9, 5, 0),
    one(0x33, "gfx1010", 10, 1, 0), one(0x34, "gfx1011", 10, 1, 1), one(0x35, "gfx1012", 10, 1, 2),
    one(0x42, "gfx1013", 10, 1, 3),
    one(0x36, "gfx1030", 10, 3, 0), one(0x37, "gfx1031", 10, 3, 1), one(0x38, "gfx1032", 10, 3, 2),
    one(0x39, "gfx1033", 10, 3, 3), one(0x3e, "gfx1034", 10, 3, 4), one(0x3d, "gfx1035", 10, 3, 5),
    one(0x45, "gfx1036", 10, 3, 6),
    one(0x41, "gfx1100", 11, 0, 0), one(0x46, "gfx1101", 11, 0, 1), one(0x47, "gfx1102", 11, 0, 2),
    one(0x44, "gfx1103", 11, 0, 3),
    one(0x43, "gfx1150", 11, 5, 0), one(0x4a, "gfx1151", 11, 5, 1), one(0x55, "gfx1152", 11, 5, 2),
    one(0x58, "gfx1153", 11, 5, 3),
    one(0x48, "gfx1200", 12, 0, 0), one(0x4e, "gfx1201", 12, 0, 1),
    family(0x51, "gfx9-generic", 9, (0, 0)), family(0x5f, "gfx9-4-generic", 9, (4, 5)),
    family(0x52, "gfx10-1-generic", 10, (1, 1)), family(0x53, "gfx10-3-generic", 10, (3, 3)),
    family(0x54, "gfx11-generic", 11, (0, 5)), family(0x59, "gfx12-generic", 12, (0, 0)),
];
