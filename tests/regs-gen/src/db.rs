//! The complete register database: every register and field of the supported headers.
//!
//! One gzip-compressed text per header stands below `data/`, written by `regs-gen`; a line is
//! `NAME SEGMENT OFFSET FIELD:LSB.WIDTH ...`, numbers in hexadecimal except LSB and WIDTH, lines
//! sorted by name. A text is unpacked when it is first asked for; fields are parsed where they are
//! looked at.

use crate::versions::{Version, versions};
use std::io::Read;
use std::sync::OnceLock;

include!("../data/index.rs");

/// The registers of one IP version.
#[derive(Debug)]
pub struct Db {
    name: &'static str,
    prefix: &'static str,
    version: Version,
    text: String,
    /// Start and length of each line, in order of names.
    lines: Vec<(u32, u32)>,
    /// (segment, offset, line), sorted.
    addresses: Vec<(u8, u32, u32)>,
}

/// A register of the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Register<'a> {
    /// Name in the headers, without the `reg` or `mm` prefix.
    pub name: &'a str,
    /// Base address index.
    pub segment: u8,
    /// Dword offset from that base.
    pub offset: u32,
    fields: &'a str,
}

/// A bit field of the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field<'a> {
    /// Name in the headers.
    pub name: &'a str,
    /// Lowest bit.
    pub lsb: u8,
    /// Width in bits.
    pub width: u8,
}

impl Field<'_> {
    /// The bits the field occupies.
    pub fn mask(&self) -> u32 {
        (((1u64 << self.width) - 1) << self.lsb) as u32
    }

    /// The field's value within a register value.
    pub fn get(&self, value: u32) -> u32 {
        (value & self.mask()) >> self.lsb
    }

    /// The register value with this field replaced; bits that do not fit are cut off.
    pub fn set(&self, value: u32, field: u32) -> u32 {
        (value & !self.mask()) | ((u64::from(field) << self.lsb) as u32 & self.mask())
    }
}

impl<'a> Register<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut parts = line.splitn(4, ' ');
        Some(Register {
            name: parts.next()?,
            segment: u8::from_str_radix(parts.next()?, 16).ok()?,
            offset: u32::from_str_radix(parts.next()?, 16).ok()?,
            fields: parts.next().unwrap_or(""),
        })
    }

    /// The register's fields, in the header's order.
    pub fn fields(&self) -> impl Iterator<Item = Field<'a>> + use<'a> {
        self.fields.split_ascii_whitespace().filter_map(|f| {
            let (name, place) = f.rsplit_once(':')?;
            let (lsb, width) = place.split_once('.')?;
            Some(Field { name, lsb: lsb.parse().ok()?, width: width.parse().ok()? })
        })
    }

    /// A field by its name, whatever the case.
    pub fn field(&self, name: &str) -> Option<Field<'a>> {
        self.fields().find(|f| f.name.eq_ignore_ascii_case(name))
    }
}

/// Unpacks a text of the database.
pub(crate) fn unpack(packed: &[u8]) -> std::io::Result<String> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text)?;
    Ok(text)
}

impl Db {
    fn load(entry: &DataFile) -> Db {
        let text = unpack(entry.packed).expect("data/ holds gzip texts written by regs-gen");
        let mut lines = Vec::new();
        let mut addresses = Vec::new();
        let mut start = 0usize;
        for line in text.split_inclusive('\n') {
            let body = line.trim_end_matches('\n');
            if let Some(reg) = Register::parse(body) {
                addresses.push((reg.segment, reg.offset, lines.len() as u32));
                lines.push((start as u32, body.len() as u32));
            }
            start += line.len();
        }
        addresses.sort_unstable();
        Db { name: entry.name, prefix: entry.prefix, version: entry.version, text, lines, addresses }
    }

    /// The database for a version of a block: `gc`, `mp0` (or `mp`), `mp1`, `nbio` (or `nbif`),
    /// `mmhub`, `osssys`, `hdp`, `sdma`. Which header serves which version is the contents of
    /// `versions.txt`; `None` if none does.
    pub fn for_version(block: &str, version: Version) -> Option<&'static Db> {
        Self::of_header(versions().select(&block.to_ascii_lowercase(), version)?.header_name())
    }

    /// The database of a header, for example `gc_11_0_0`.
    pub fn of_header(name: &str) -> Option<&'static Db> {
        static LOADED: [OnceLock<Db>; DATA.len()] = [const { OnceLock::new() }; DATA.len()];
        let i = DATA.iter().position(|d| d.name == name)?;
        Some(LOADED.get(i)?.get_or_init(|| Db::load(&DATA[i])))
    }

    /// Names of all headers in the database.
    pub fn headers() -> impl Iterator<Item = &'static str> {
        DATA.iter().map(|d| d.name)
    }

    /// Name of the header, for example `gc_11_0_0`.
    pub fn header(&self) -> &'static str {
        self.name
    }

    /// Version of the header.
    pub fn version(&self) -> Version {
        self.version
    }

    /// What stands before names in this header: `reg` or `mm`.
    pub fn prefix(&self) -> &'static str {
        self.prefix
    }

    /// Number of registers.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there is no register at all.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn line(&self, i: usize) -> Option<Register<'_>> {
        let &(start, len) = self.lines.get(i)?;
        Register::parse(self.text.get(start as usize..(start + len) as usize)?)
    }

    /// All registers, by name.
    pub fn iter(&self) -> impl Iterator<Item = Register<'_>> {
        (0..self.lines.len()).filter_map(|i| self.line(i))
    }

    /// A register by its name, with or without the `reg` or `mm` prefix.
    pub fn get(&self, name: &str) -> Option<Register<'_>> {
        let plain = ["reg", "mm"]
            .iter()
            .find_map(|p| name.strip_prefix(p).filter(|n| n.starts_with(|c: char| c.is_ascii_uppercase())));
        let name = plain.unwrap_or(name);
        let at = self.lines.binary_search_by(|&(start, len)| {
            let line = &self.text.as_bytes()[start as usize..(start + len) as usize];
            let end = line.iter().position(|&b| b == b' ').unwrap_or(line.len());
            line[..end].cmp(name.as_bytes())
        });
        self.line(at.ok()?)
    }

    /// The registers at an address: some have several names.
    pub fn at(&self, segment: u8, offset: u32) -> impl Iterator<Item = Register<'_>> {
        let from = self.addresses.partition_point(|&(s, o, _)| (s, o) < (segment, offset));
        self.addresses[from..]
            .iter()
            .take_while(move |&&(s, o, _)| (s, o) == (segment, offset))
            .filter_map(|&(_, _, line)| self.line(line as usize))
    }
}
