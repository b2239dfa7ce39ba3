//! From a plain description to bytes with right offsets and checksums.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromZeros, IntoBytes};

use super::parse::byte_sum;
use super::wire::{
    self, BinaryHeader, BinaryHeaderV2, DieHeader, DieInfo, GcHeader, HarvestEntry, HarvestHeader, IpEntry,
    IpHeader, TableInfo,
};
use super::{GcInfo, Harvested, HwId, IpInfo, Version};

/// An IP instance to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ip<'a> {
    /// Hardware id.
    pub hw_id: HwId,
    /// Instance number.
    pub instance: u8,
    /// Version.
    pub version: Version,
    /// The byte after the version: see [`IpEntry::flags`].
    pub flags: u8,
    /// Base addresses in dwords; the upper half is dropped in a table with 32-bit bases.
    pub bases: &'a [u64],
}

/// A die to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Die<'a> {
    /// Its IP instances.
    pub ips: &'a [Ip<'a>],
}

/// A whole discovery binary to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binary<'a> {
    /// Version of the binary header: 1 or 2.
    pub header_version: u16,
    /// Version of the IP table: 1 to 4.
    pub table_version: u16,
    /// Whether base addresses have 64 bits (table version 4 only).
    pub wide_bases: bool,
    /// The dies, at most 16.
    pub dies: &'a [Die<'a>],
    /// Shape of the graphics core.
    pub gc: Option<GcInfo>,
    /// Harvest table; `None` writes none, an empty list an empty table.
    pub harvest: Option<&'a [Harvested]>,
}

/// Why a binary could not be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EmitError {
    /// The buffer is too small.
    #[error("the buffer for the discovery table is too small")]
    Buffer,
    /// A list is longer than the format allows.
    #[error("{0}: more than the format of the discovery table holds")]
    TooMany(&'static str),
    /// A version that is not known, or that cannot hold what is asked for.
    #[error("{0}: not possible in this version of the discovery table")]
    Version(&'static str),
}

struct Out<'a> {
    buf: &'a mut [u8],
    len: usize,
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), EmitError> {
        let end = self.len + bytes.len();
        self.buf.get_mut(self.len..end).ok_or(EmitError::Buffer)?.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    fn patch(&mut self, at: usize, bytes: &[u8]) -> Result<(), EmitError> {
        self.buf.get_mut(at..at + bytes.len()).ok_or(EmitError::Buffer)?.copy_from_slice(bytes);
        Ok(())
    }

    fn align(&mut self) -> Result<(), EmitError> {
        while !self.len.is_multiple_of(4) {
            self.put(&[0])?;
        }
        Ok(())
    }

    /// Offset of what is written next, as the format stores it.
    fn here(&self) -> Result<u16, EmitError> {
        u16::try_from(self.len).map_err(|_| EmitError::TooMany("bytes"))
    }

    /// The list entry of the table that started at `start` and ends here.
    fn table(&self, start: u16) -> Result<TableInfo, EmitError> {
        let bytes = self.buf.get(start as usize..self.len).ok_or(EmitError::Buffer)?;
        Ok(TableInfo {
            offset: start.into(),
            checksum: byte_sum(bytes).into(),
            size: (self.here()? - start).into(),
            padding: 0.into(),
        })
    }
}

impl Binary<'_> {
    /// Writes the binary to the start of `buf`; returns its length.
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, EmitError> {
        if !(1..=2).contains(&self.header_version) {
            return Err(EmitError::Version("header_version"));
        }
        if !(1..=4).contains(&self.table_version) {
            return Err(EmitError::Version("table_version"));
        }
        if self.wide_bases && self.table_version < 4 {
            return Err(EmitError::Version("64-bit base addresses"));
        }
        let mut out = Out { buf, len: 0 };
        let mut header = BinaryHeader::new_zeroed();
        header.signature = wire::BINARY_SIGNATURE.into();
        header.version_major = self.header_version.into();
        out.put(header.as_bytes())?;
        if self.header_version == 2 {
            out.put(
                BinaryHeaderV2 { num_tables: (wire::TABLES_V1 as u16).into(), padding: 0.into() }.as_bytes(),
            )?;
        }
        let tables_at = out.len;
        let mut tables = [TableInfo::new_zeroed(); wire::TABLES_V1];
        out.put(tables.as_bytes())?;

        let [ip, gc, harvest, ..] = &mut tables;
        *ip = self.ip_table(&mut out)?;
        if let Some(info) = self.gc {
            *gc = gc_table(&mut out, info)?;
        }
        if let Some(list) = self.harvest {
            *harvest = harvest_table(&mut out, list)?;
        }
        out.patch(tables_at, tables.as_bytes())?;

        header.size = out.here()?.into();
        out.patch(0, header.as_bytes())?;
        header.checksum = byte_sum(out.buf.get(10..out.len).ok_or(EmitError::Buffer)?).into();
        out.patch(0, header.as_bytes())?;
        Ok(out.len)
    }

    fn ip_table(&self, out: &mut Out<'_>) -> Result<TableInfo, EmitError> {
        let start = out.here()?;
        let mut header = IpHeader::new_zeroed();
        header.signature = wire::IP_SIGNATURE.into();
        header.version = self.table_version.into();
        header.num_dies = (self.dies.len() as u16).into();
        header.flags = self.wide_bases as u8;
        if self.dies.len() > wire::MAX_DIES {
            return Err(EmitError::TooMany("dies"));
        }
        out.put(header.as_bytes())?;
        for (id, (die, info)) in self.dies.iter().zip(header.die_info.iter_mut()).enumerate() {
            let id = U16::new(id as u16);
            *info = DieInfo { die_id: id, die_offset: out.here()?.into() };
            let num_ips = u16::try_from(die.ips.len()).map_err(|_| EmitError::TooMany("ips"))?;
            out.put(DieHeader { die_id: id, num_ips: num_ips.into() }.as_bytes())?;
            for ip in die.ips {
                self.ip(out, ip)?;
            }
        }
        header.size = (out.here()? - start).into();
        out.patch(start as usize, header.as_bytes())?;
        let info = out.table(start)?;
        out.align()?;
        Ok(info)
    }

    fn ip(&self, out: &mut Out<'_>, ip: &Ip<'_>) -> Result<(), EmitError> {
        let (major, minor, revision) = ip.version;
        let entry = IpEntry {
            hw_id: ip.hw_id.0.into(),
            instance: ip.instance,
            num_bases: u8::try_from(ip.bases.len()).map_err(|_| EmitError::TooMany("bases"))?,
            major,
            minor,
            revision,
            flags: ip.flags,
        };
        out.put(entry.as_bytes())?;
        for base in ip.bases {
            let bytes = base.to_le_bytes();
            out.put(if self.wide_bases { &bytes } else { bytes.get(..4).unwrap_or(&[]) })?;
        }
        Ok(())
    }
}

fn gc_table(out: &mut Out<'_>, mut gc: GcInfo) -> Result<TableInfo, EmitError> {
    let words = GcInfo::words(gc.version).ok_or(EmitError::Version("gc"))?;
    let start = out.here()?;
    let header = GcHeader {
        table_id: wire::GC_TABLE_ID.into(),
        version_major: gc.version.0.into(),
        version_minor: gc.version.1.into(),
        size: ((size_of::<GcHeader>() + words * 4) as u32).into(),
    };
    out.put(header.as_bytes())?;
    for word in gc.fields().into_iter().flatten().take(words) {
        out.put(U32::new(*word).as_bytes())?;
    }
    out.table(start)
}

fn harvest_table(out: &mut Out<'_>, list: &[Harvested]) -> Result<TableInfo, EmitError> {
    let start = out.here()?;
    out.put(HarvestHeader { signature: wire::HARVEST_SIGNATURE.into(), version: 0.into() }.as_bytes())?;
    let mut entries = [HarvestEntry::new_zeroed(); super::MAX_HARVEST];
    if list.len() > entries.len() {
        return Err(EmitError::TooMany("harvest"));
    }
    for (entry, gone) in entries.iter_mut().zip(list) {
        *entry = HarvestEntry { hw_id: gone.hw_id.0.into(), instance: gone.instance, reserved: 0 };
    }
    out.put(entries.as_bytes())?;
    out.table(start)
}

impl IpInfo<'_> {
    /// The byte after the version, as [`Ip::flags`] wants it.
    pub fn flags(&self) -> u8 {
        self.variant << 4 | (self.sub_revision & 0xf) | (self.harvest & 0xf)
    }
}
