//! Reading only what a boot needs of a table, over a bus where each dword costs.
//!
//! Headers are followed as they come, and base addresses of other blocks skipped. What is not read counts
//! as zeros; no sum can be checked, which the transport's own checks must make up for.

use super::parse::{LoadError, MAX_BINARY, Part, binary_len, is_needed, parse_part};
use super::wire;
use super::{DiscoveryError, GcInfo, HwId, IpList};

const WORDS: usize = MAX_BINARY / 4;
/// Dwords that are read at once at most, so that runs become one message.
const RUN: usize = 64;

/// A table of which dwords come when they are asked for.
struct Sparse<R> {
    buf: [u8; MAX_BINARY],
    have: [u32; WORDS / 32],
    read: R,
}

impl<E, R: FnMut(u32, &mut [u8]) -> Result<(), E>> Sparse<R> {
    fn has(&self, word: usize) -> bool {
        self.have.get(word / 32).is_some_and(|w| w & 1 << (word % 32) != 0)
    }

    /// Reads what is missing of a range. What lies beyond the buffer is left to the parser to refuse.
    fn want(&mut self, at: usize, len: usize) -> Result<(), LoadError<E>> {
        let end = at.saturating_add(len).min(MAX_BINARY).div_ceil(4);
        let mut word = at / 4;
        while word < end {
            if self.has(word) {
                word += 1;
                continue;
            }
            let run = (word..end.min(word + RUN)).take_while(|w| !self.has(*w)).count().max(1);
            let Some(bytes) = self.buf.get_mut(4 * word..4 * (word + run)) else { break };
            (self.read)(4 * word as u32, bytes).map_err(LoadError::Read)?;
            for w in word..word + run {
                if let Some(bits) = self.have.get_mut(w / 32) {
                    *bits |= 1 << (w % 32);
                }
            }
            word += run;
        }
        Ok(())
    }

    fn u16(&mut self, at: usize) -> Result<usize, LoadError<E>> {
        self.want(at, 2)?;
        let bytes = self.buf.get(at..at.saturating_add(2));
        Ok(bytes.map_or(0, |b| usize::from(u16::from_le_bytes([b[0], b[1]]))))
    }

    fn u8(&mut self, at: usize) -> Result<usize, LoadError<E>> {
        self.want(at, 1)?;
        Ok(self.buf.get(at).copied().unwrap_or(0).into())
    }

    /// Offset of a table; 0 if there is none.
    fn table(&mut self, first: usize, count: usize, index: usize) -> Result<usize, LoadError<E>> {
        if index >= count {
            return Ok(0);
        }
        let at = first + index * size_of::<wire::TableInfo>();
        self.want(at, size_of::<wire::TableInfo>())?;
        self.u16(at)
    }

    fn ip_table(&mut self, at: usize) -> Result<(), LoadError<E>> {
        /// Offsets in [`wire::IpHeader`].
        const DIES: usize = 14;
        const FLAGS: usize = DIES + 4 * wire::MAX_DIES;
        self.want(at, DIES)?;
        let version = self.u16(at + 4)?;
        let wide = version >= 4 && self.u8(at + FLAGS)? & 1 != 0;
        let dies = self.u16(at + 12)?.min(wire::MAX_DIES);
        for die in 0..dies {
            self.want(at + DIES + 4 * die, 4)?;
            let die_at = self.u16(at + DIES + 4 * die + 2)?;
            self.die(die_at, if wide { 8 } else { 4 })?;
        }
        Ok(())
    }

    fn die(&mut self, at: usize, width: usize) -> Result<(), LoadError<E>> {
        self.want(at, size_of::<wire::DieHeader>())?;
        let mut entry = at + size_of::<wire::DieHeader>();
        for _ in 0..self.u16(at + 2)? {
            self.want(entry, size_of::<wire::IpEntry>())?;
            let (hw_id, instance, bases) = (self.u16(entry)?, self.u8(entry + 2)?, self.u8(entry + 3)?);
            entry += size_of::<wire::IpEntry>();
            if is_needed(HwId(hw_id as u16), instance as u8) {
                self.want(entry, bases * width)?;
            }
            entry += bases * width;
            if entry >= MAX_BINARY {
                break;
            }
        }
        Ok(())
    }

    fn gc_table(&mut self, at: usize) -> Result<(), LoadError<E>> {
        self.want(at, size_of::<wire::GcHeader>())?;
        let version = (self.u16(at + 4)? as u16, self.u16(at + 6)? as u16);
        let words = GcInfo::words(version).unwrap_or(0);
        self.want(at + size_of::<wire::GcHeader>(), 4 * words)
    }

    fn harvest_table(&mut self, at: usize) -> Result<(), LoadError<E>> {
        self.want(at, size_of::<wire::HarvestHeader>())?;
        for index in 0..super::MAX_HARVEST {
            let entry = at + size_of::<wire::HarvestHeader>() + index * size_of::<wire::HarvestEntry>();
            self.want(entry, size_of::<wire::HarvestEntry>())?;
            if self.u16(entry)? == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// Reads and parses what a boot needs of a table: as [`super::load`], but other blocks have no base
/// addresses, and sums are not checked. Reads are of whole dwords at dword offsets.
pub fn load_sparse<E>(read: impl FnMut(u32, &mut [u8]) -> Result<(), E>) -> Result<IpList, LoadError<E>> {
    let mut table = Sparse { buf: [0; MAX_BINARY], have: [0; WORDS / 32], read };
    let fixed = size_of::<wire::BinaryHeader>();
    table.want(0, fixed)?;
    let len = binary_len(&table.buf)?;
    if len > MAX_BINARY {
        return Err(DiscoveryError::Buffer { need: len as u32, have: MAX_BINARY as u32 }.into());
    }
    let (first, count) = match table.u16(4)? {
        2 => (fixed + size_of::<wire::BinaryHeaderV2>(), table.u16(fixed)?),
        _ => (fixed, wire::TABLES_V1),
    };
    match table.table(first, count, wire::TABLE_IP)? {
        0 => return Err(DiscoveryError::NoIpTable.into()),
        at => table.ip_table(at)?,
    }
    match table.table(first, count, wire::TABLE_GC)? {
        0 => {}
        at => table.gc_table(at)?,
    }
    match table.table(first, count, wire::TABLE_HARVEST)? {
        0 => {}
        at => table.harvest_table(at)?,
    }
    Ok(parse_part(table.buf.get(..len).unwrap_or(&table.buf), Part::Needed)?)
}
