//! From bytes to an [`IpList`].

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::wire::{self, BinaryHeader, BinaryHeaderV2, DieHeader, IpEntry, IpHeader, TableInfo};
use super::{DiscoveryError, Entry, GcInfo, Harvested, HwId, IpList};

/// The largest table read: `DISCOVERY_TMR_SIZE` of Linux (10 KiB). Real ones have one to three.
pub const MAX_BINARY: usize = 10 << 10;

/// Linux keeps the lower 30 bits of a 64-bit base: addresses are in dwords, and the bits above 32
/// follow a format of each chip.
const BASE64_MASK: u64 = 0x3fff_ffff;

/// The revision of VCN has the abilities to encode and decode in its two top bits.
const VCN_REVISION_MASK: u8 = 0x3f;

/// Why a table could not be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadError<E> {
    /// It could not be read.
    #[error("reading the discovery table failed: {0}")]
    Read(E),
    /// It is not right.
    #[error(transparent)]
    Table(#[from] DiscoveryError),
}

pub(super) struct Bytes<'a>(&'a [u8], Part);

impl<'a> Bytes<'a> {
    fn range(&self, offset: usize, len: usize, field: &'static str) -> Result<&'a [u8], DiscoveryError> {
        let end = offset.saturating_add(len);
        self.0.get(offset..end).ok_or(DiscoveryError::OutOfBounds {
            field,
            offset: clamp(offset),
            end: clamp(end),
            limit: clamp(self.0.len()),
        })
    }

    fn view<T: FromBytes + KnownLayout + Immutable + Unaligned>(
        &self,
        offset: usize,
        field: &'static str,
    ) -> Result<&'a T, DiscoveryError> {
        let bytes = self.range(offset, size_of::<T>(), field)?;
        // The length is right and T has no alignment: this cannot fail.
        T::ref_from_bytes(bytes).map_err(|_| DiscoveryError::OutOfBounds {
            field,
            offset: clamp(offset),
            end: clamp(offset + size_of::<T>()),
            limit: clamp(self.0.len()),
        })
    }

    fn checksum(
        &self,
        offset: usize,
        len: usize,
        expected: u16,
        at: usize,
        field: &'static str,
        table: &'static str,
    ) -> Result<(), DiscoveryError> {
        let summed = self.range(offset, len, table)?;
        if self.1 == Part::Needed {
            return Ok(());
        }
        let sum = byte_sum(summed);
        expect(field, at, expected as u32, sum as u32)
    }
}

fn clamp(n: usize) -> u32 {
    n.min(u32::MAX as usize) as u32
}

/// The checksum of a table: its bytes added up.
pub(super) fn byte_sum(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0u16, |sum, b| sum.wrapping_add(*b as u16))
}

fn expect(field: &'static str, offset: usize, found: u32, expected: u32) -> Result<(), DiscoveryError> {
    if found == expected {
        return Ok(());
    }
    Err(DiscoveryError::Mismatch { field, offset: clamp(offset), found, expected })
}

/// Checks the first bytes of a table; returns the length of the whole.
pub(super) fn binary_len(bytes: &[u8]) -> Result<usize, DiscoveryError> {
    let header: &BinaryHeader = Bytes(bytes, Part::All).view(0, "binary_header")?;
    expect("binary_header.binary_signature", 0, header.signature.get(), wire::BINARY_SIGNATURE)?;
    let size = header.size.get() as usize;
    let least = size_of::<BinaryHeader>();
    if size < least {
        return Err(DiscoveryError::OutOfBounds {
            field: "binary_header",
            offset: 0,
            end: least as u32,
            limit: size as u32,
        });
    }
    Ok(size)
}

/// Reads a table through `read` (byte offset from the table's start, buffer to fill) into `buf`.
///
/// Two reads are made, both of whole dwords at dword offsets: the header, then as much as it says.
pub fn load_into<E>(
    buf: &mut [u8],
    mut read: impl FnMut(u32, &mut [u8]) -> Result<(), E>,
) -> Result<&[u8], LoadError<E>> {
    const FIRST: usize = size_of::<BinaryHeader>();
    let have = clamp(buf.len());
    let (head, rest) =
        buf.split_at_mut_checked(FIRST).ok_or(DiscoveryError::Buffer { need: FIRST as u32, have })?;
    read(0, head).map_err(LoadError::Read)?;
    let len = binary_len(head)?;
    let padded = (len - FIRST).next_multiple_of(4);
    let rest = rest.get_mut(..padded).ok_or(DiscoveryError::Buffer { need: clamp(FIRST + padded), have })?;
    if padded > 0 {
        read(FIRST as u32, rest).map_err(LoadError::Read)?;
    }
    Ok(buf.get(..len).unwrap_or(&[]))
}

/// Reads and parses a table; the buffer (10 KiB) is on the stack. See [`load_into`].
pub fn load<E>(read: impl FnMut(u32, &mut [u8]) -> Result<(), E>) -> Result<IpList, LoadError<E>> {
    let mut buf = [0; MAX_BINARY];
    Ok(parse(load_into(&mut buf, read)?)?)
}

/// Parses a table. Bytes after its end (as its header gives it) are ignored.
pub fn parse(bytes: &[u8]) -> Result<IpList, DiscoveryError> {
    parse_part(bytes, Part::All)
}

/// How much of a table is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// All of it.
    All,
    /// What [`super::sparse`] reads: no sums can be checked, and only blocks that a boot needs have base
    /// addresses.
    Needed,
}

pub(super) fn parse_part(bytes: &[u8], part: Part) -> Result<IpList, DiscoveryError> {
    let len = binary_len(bytes)?;
    let binary = Bytes(Bytes(bytes, part).range(0, len, "binary_header.binary_size")?, part);
    let header: &BinaryHeader = binary.view(0, "binary_header")?;
    // The sum covers what follows the checksum field, the size field first.
    const SUMMED: usize = 10;
    binary.checksum(
        SUMMED,
        len - SUMMED,
        header.checksum.get(),
        8,
        "binary_header.binary_checksum",
        "binary",
    )?;

    let tables = Tables::of(&binary, header)?;
    let (ip, ip_at) = tables.get(&binary, wire::TABLE_IP)?.ok_or(DiscoveryError::NoIpTable)?;
    let mut list = IpList::default();
    ip_table(&binary, &ip, ip_at, &mut list)?;
    if let Some((info, at)) = tables.get(&binary, wire::TABLE_GC)? {
        list.gc = Some(gc_table(&binary, &info, at)?);
    }
    if let Some((info, at)) = tables.get(&binary, wire::TABLE_HARVEST)? {
        harvest_table(&binary, &info, at, &mut list)?;
    }
    Ok(list)
}

struct Tables {
    first: usize,
    count: usize,
}

impl Tables {
    fn of(binary: &Bytes<'_>, header: &BinaryHeader) -> Result<Self, DiscoveryError> {
        let fixed = size_of::<BinaryHeader>();
        match header.version_major.get() {
            0 | 1 => Ok(Tables { first: fixed, count: wire::TABLES_V1 }),
            2 => {
                let v2: &BinaryHeaderV2 = binary.view(fixed, "binary_header_v2.num_tables")?;
                Ok(Tables { first: fixed + size_of_val(v2), count: v2.num_tables.get() as usize })
            }
            found => Err(DiscoveryError::Unsupported {
                field: "binary_header.version_major",
                offset: 4,
                found: found as u32,
                supported: "0 to 2",
            }),
        }
    }

    /// Entry `index` of the list and its offset; `None` if the list has no such table.
    fn get(&self, binary: &Bytes<'_>, index: usize) -> Result<Option<(TableInfo, usize)>, DiscoveryError> {
        if index >= self.count {
            return Ok(None);
        }
        let at = self.first + index * size_of::<TableInfo>();
        let info: &TableInfo = binary.view(at, "binary_header.table_list")?;
        Ok((info.offset.get() != 0).then_some((*info, at)))
    }
}

fn ip_table(
    binary: &Bytes<'_>,
    info: &TableInfo,
    info_at: usize,
    list: &mut IpList,
) -> Result<(), DiscoveryError> {
    let at = info.offset.get() as usize;
    let header: &IpHeader = binary.view(at, "ip_discovery_header")?;
    expect("ip_discovery_header.signature", at, header.signature.get(), wire::IP_SIGNATURE)?;
    let size = header.size.get() as usize;
    let sum = info.checksum.get();
    binary.checksum(
        at,
        size,
        sum,
        info_at + 2,
        "table_list[IP_DISCOVERY].checksum",
        "ip_discovery_header.size",
    )?;

    let version = header.version.get();
    if !(1..=4).contains(&version) {
        return Err(DiscoveryError::Unsupported {
            field: "ip_discovery_header.version",
            offset: clamp(at + 4),
            found: version as u32,
            supported: "1 to 4",
        });
    }
    let dies = header.num_dies.get() as usize;
    let Some(die_info) = header.die_info.get(..dies) else {
        return Err(DiscoveryError::TooMany {
            field: "ip_discovery_header.num_dies",
            offset: clamp(at + 12),
            limit: wire::MAX_DIES as u32,
        });
    };
    list.table_version = version;
    list.dies = dies as u8;
    let wide = version >= 4 && header.flags & 1 != 0;
    for (index, die) in die_info.iter().enumerate() {
        die_ips(binary, die.die_offset.get() as usize, index as u8, wide, list)?;
    }
    Ok(())
}

/// Whether a boot uses the base addresses of a block.
pub(super) fn is_needed(hw_id: HwId, instance: u8) -> bool {
    use crate::reg::Block::*;
    instance == 0 && [Gc, Mp0, Mp1, Nbio, Mmhub, Osssys, Hdp].map(HwId::of).contains(&hw_id)
}

fn die_ips(
    binary: &Bytes<'_>,
    at: usize,
    die: u8,
    wide: bool,
    list: &mut IpList,
) -> Result<(), DiscoveryError> {
    let header: &DieHeader = binary.view(at, "die_header")?;
    expect("die_header.die_id", at, header.die_id.get() as u32, die as u32)?;
    let width = if wide { size_of::<U64>() } else { size_of::<U32>() };
    let mut at = at + size_of::<DieHeader>();
    for _ in 0..header.num_ips.get() {
        let ip: &IpEntry = binary.view(at, "ip")?;
        let bases_at = at + size_of::<IpEntry>();
        let count = ip.num_bases as usize;
        let bytes = binary.range(bases_at, count * width, "ip.base_address")?;
        let too_many =
            |field, limit: usize| DiscoveryError::TooMany { field, offset: clamp(at), limit: limit as u32 };

        let first_base = list.bases.len() as u16;
        let hw_id = HwId(ip.hw_id.get());
        let is_there = binary.1 == Part::All || is_needed(hw_id, ip.instance);
        for base in bytes.chunks_exact(width).filter(|_| is_there) {
            let base = match U64::ref_from_bytes(base) {
                Ok(base) if wide => (base.get() & BASE64_MASK) as u32,
                _ => U32::ref_from_bytes(base).map(|b| b.get()).unwrap_or(0),
            };
            list.bases.push(base).map_err(|_| too_many("base addresses", super::MAX_ALL_BASES))?;
        }
        let mask = if hw_id == HwId::VCN { VCN_REVISION_MASK } else { 0xff };
        let entry = Entry {
            hw_id,
            die,
            instance: ip.instance,
            version: (ip.major, ip.minor, ip.revision & mask),
            flags: ip.flags,
            first_base,
            num_bases: if is_there { ip.num_bases } else { 0 },
        };
        list.entries.push(entry).map_err(|_| too_many("die_header.num_ips", super::MAX_IPS))?;
        at = bases_at + count * width;
    }
    Ok(())
}

fn gc_table(binary: &Bytes<'_>, info: &TableInfo, info_at: usize) -> Result<GcInfo, DiscoveryError> {
    let at = info.offset.get() as usize;
    let header: &wire::GcHeader = binary.view(at, "gc_info.header")?;
    expect("gc_info.header.table_id", at, header.table_id.get(), wire::GC_TABLE_ID)?;
    let size = header.size.get() as usize;
    binary.checksum(
        at,
        size,
        info.checksum.get(),
        info_at + 2,
        "table_list[GC].checksum",
        "gc_info.header.size",
    )?;

    let version = (header.version_major.get(), header.version_minor.get());
    let words = GcInfo::words(version).ok_or(DiscoveryError::Unsupported {
        field: "gc_info.header.version_major",
        offset: clamp(at + 4),
        found: version.0 as u32,
        supported: "1 and 2",
    })?;
    let data_at = at + size_of::<wire::GcHeader>();
    let end = data_at + words * 4;
    if end > at + size {
        return Err(DiscoveryError::OutOfBounds {
            field: "gc_info",
            offset: clamp(at),
            end: clamp(end),
            limit: clamp(at + size),
        });
    }
    let data = binary.range(data_at, words * 4, "gc_info")?;
    let mut gc = GcInfo { version, ..GcInfo::default() };
    for (field, word) in gc.fields().into_iter().flatten().zip(data.chunks_exact(4)) {
        *field = U32::ref_from_bytes(word).map(|w| w.get()).unwrap_or(0);
    }
    Ok(gc)
}

/// Removes what the harvest table lists.
fn harvest_table(
    binary: &Bytes<'_>,
    info: &TableInfo,
    info_at: usize,
    list: &mut IpList,
) -> Result<(), DiscoveryError> {
    let at = info.offset.get() as usize;
    let header: &wire::HarvestHeader = binary.view(at, "harvest_info_header")?;
    expect("harvest_info_header.signature", at, header.signature.get(), wire::HARVEST_SIGNATURE)?;
    let sum = info.checksum.get();
    binary.checksum(
        at,
        wire::HARVEST_LEN,
        sum,
        info_at + 2,
        "table_list[HARVEST_INFO].checksum",
        "harvest_table",
    )?;
    if !harvest_table_counts(list) {
        return Ok(());
    }
    for index in 0..super::MAX_HARVEST {
        let at = at + size_of_val(header) + index * size_of::<wire::HarvestEntry>();
        let entry: &wire::HarvestEntry = binary.view(at, "harvest_table.list")?;
        if entry.hw_id.get() == 0 {
            break;
        }
        let gone = Harvested { hw_id: HwId(entry.hw_id.get()), instance: entry.instance };
        list.entries.retain(|e| (e.hw_id, e.instance) != (gone.hw_id, gone.instance));
        // As long as the wire list: it fits.
        let _ = list.harvested.push(gone);
    }
    Ok(())
}

/// Linux does not heed the table before GC 10.2, except on 9.4.3 and its successors: it "does not
/// fit Navi1x and legacy GPUs".
fn harvest_table_counts(list: &IpList) -> bool {
    match list.version(crate::reg::Block::Gc) {
        Some(gc) => gc >= (10, 2, 0) || ((9, 4, 3)..(10, 0, 0)).contains(&gc),
        None => true,
    }
}
