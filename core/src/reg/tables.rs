//! Which table serves which IP version.
//!
//! The tables and the list of aliases are generated from `tests/regs-gen/versions.txt`, where the
//! reason of every alias stands.

use super::{Block, FieldDef, RegDef, RegTable};

#[rustfmt::skip]
mod generated;

/// Versions that another version's table serves.
#[derive(Debug)]
struct Alias {
    block: Block,
    /// All versions that start with these numbers.
    prefix: &'static [u8],
    to: (u8, u8, u8),
}

/// A register of a table.
const fn d(segment: u8, offset: u32) -> RegDef {
    RegDef { segment, offset }
}

/// A field of a table.
const fn w(lsb: u8, width: u8) -> FieldDef {
    FieldDef { lsb, width }
}

/// A register that the version lacks.
const A: RegDef = d(RegDef::ABSENT, 0);
/// A field that the version lacks.
const N: FieldDef = w(0, 0);

/// No table serves a version of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "no register table for {block} {}.{}.{}; this GPU is not supported (known: {})",
    version.0, version.1, version.2, Known(*block)
)]
pub struct UnsupportedVersion {
    /// The block.
    pub block: Block,
    /// The version that the discovery table gives.
    pub version: (u8, u8, u8),
}

/// The versions with a table, for a message.
struct Known(Block);

impl core::fmt::Display for Known {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (i, t) in all().filter(|t| t.block == self.0).enumerate() {
            let (major, minor, revision) = t.version;
            write!(f, "{}{major}.{minor}.{revision}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// Every table there is.
pub fn all() -> impl Iterator<Item = &'static RegTable> {
    generated::TABLES.iter().copied()
}

/// The table that serves a version of a block: aliases first, then the version itself, then
/// MAJOR.MINOR.0, then MAJOR.0.0 (AMD makes one header for a family of versions).
pub fn for_version(block: Block, version: (u8, u8, u8)) -> Result<&'static RegTable, UnsupportedVersion> {
    let numbers = [version.0, version.1, version.2];
    let alias = generated::ALIASES.iter().find(|a| a.block == block && numbers.starts_with(a.prefix));
    let (major, minor, revision) = alias.map_or(version, |a| a.to);
    [(major, minor, revision), (major, minor, 0), (major, 0, 0)]
        .into_iter()
        .find_map(|v| all().find(|t| t.block == block && t.version == v))
        .ok_or(UnsupportedVersion { block, version })
}
