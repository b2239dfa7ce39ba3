//! Layouts of the discovery table as they stand in memory (Linux `discovery.h`), little-endian
//! and unaligned.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `BINARY_SIGNATURE`: bytes 07 14 21 28.
pub const BINARY_SIGNATURE: u32 = 0x2821_1407;
/// `DISCOVERY_TABLE_SIGNATURE`: "IPDS".
pub const IP_SIGNATURE: u32 = 0x5344_5049;
/// `GC_TABLE_ID`: "GC".
pub const GC_TABLE_ID: u32 = 0x4347;
/// `HARVEST_TABLE_SIGNATURE`: "HARV".
pub const HARVEST_SIGNATURE: u32 = 0x5652_4148;
/// Length of the harvest table: header and 32 entries (`struct harvest_table`).
pub const HARVEST_LEN: usize = 8 + 4 * 32;
/// Number of tables in a version 1 header (`TOTAL_TABLES`).
pub const TABLES_V1: usize = 6;
/// The most dies an IP table can list.
pub const MAX_DIES: usize = 16;

/// Index of the IP table in the list of tables.
pub const TABLE_IP: usize = 0;
/// Index of the description of the graphics core.
pub const TABLE_GC: usize = 1;
/// Index of the harvest table.
pub const TABLE_HARVEST: usize = 2;

/// `struct binary_header` up to its list of tables; in version 2 (`struct binary_header_v2`) a
/// [`BinaryHeaderV2`] follows, then the list.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BinaryHeader {
    /// [`BINARY_SIGNATURE`].
    pub signature: U32,
    /// 0 and 1: six tables; 2: as many as it says.
    pub version_major: U16,
    /// Minor version.
    pub version_minor: U16,
    /// Byte sum of everything after this field, up to `size`.
    pub checksum: U16,
    /// Length of the binary in bytes, this header included.
    pub size: U16,
}

/// What a version 2 header adds.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BinaryHeaderV2 {
    /// Number of tables.
    pub num_tables: U16,
    /// Unused.
    pub padding: U16,
}

/// `struct table_info`: where a table is.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TableInfo {
    /// Byte offset from the start of the binary; 0: no such table.
    pub offset: U16,
    /// Byte sum of the table.
    pub checksum: U16,
    /// Length in bytes. The table's own header counts.
    pub size: U16,
    /// Unused.
    pub padding: U16,
}

/// `struct die_info`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DieInfo {
    /// Number of the die.
    pub die_id: U16,
    /// Byte offset of its [`DieHeader`] from the start of the binary.
    pub die_offset: U16,
}

/// `struct ip_discovery_header`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IpHeader {
    /// [`IP_SIGNATURE`].
    pub signature: U32,
    /// Table version, 1 to 4.
    pub version: U16,
    /// Length of the table in bytes.
    pub size: U16,
    /// An id without meaning here.
    pub id: U32,
    /// Number of dies.
    pub num_dies: U16,
    /// Where the dies are.
    pub die_info: [DieInfo; MAX_DIES],
    /// From version 4 on bit 0: base addresses have 64 bits.
    pub flags: u8,
    /// Unused.
    pub reserved: u8,
}

/// `struct die_header`; its IP instances follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DieHeader {
    /// Number of the die.
    pub die_id: U16,
    /// Number of IP instances.
    pub num_ips: U16,
}

/// `struct ip`, `ip_v3`, `ip_v4`; its base addresses follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IpEntry {
    /// Hardware id.
    pub hw_id: U16,
    /// Instance number.
    pub instance: u8,
    /// Number of base addresses.
    pub num_bases: u8,
    /// Major version.
    pub major: u8,
    /// Minor version.
    pub minor: u8,
    /// Revision.
    pub revision: u8,
    /// Version 1 and 2: harvest bits (low half). Later: sub-revision (low), variant (high half).
    pub flags: u8,
}

/// `struct gpu_info_header`: in front of the description of the graphics core.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct GcHeader {
    /// [`GC_TABLE_ID`].
    pub table_id: U32,
    /// Major version.
    pub version_major: U16,
    /// Minor version.
    pub version_minor: U16,
    /// Length of header and data in bytes.
    pub size: U32,
}

/// `struct harvest_info_header`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct HarvestHeader {
    /// [`HARVEST_SIGNATURE`].
    pub signature: U32,
    /// Table version.
    pub version: U32,
}

/// `struct harvest_info`; the first with `hw_id` 0 ends the list.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct HarvestEntry {
    /// Hardware id.
    pub hw_id: U16,
    /// Instance number.
    pub instance: u8,
    /// Unused.
    pub reserved: u8,
}
