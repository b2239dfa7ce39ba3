//! Registers by name, for people: every register that the headers name.

use crate::error::CliError;
use crate::session::RegValue;
use amdev_core::discovery::IpList;
use amdev_core::reg::Block;
use amdev_regs::{Db, Register};

/// Blocks with the header prefix that people and traces know them by. MP1's mailboxes are those of
/// `mp_11_0` whatever its version, as the driver uses them.
const BLOCKS: [(&str, Block); 7] = [
    ("nbio", Block::Nbio),
    ("gc", Block::Gc),
    ("mp0", Block::Mp0),
    ("mp1", Block::Mp1),
    ("mmhub", Block::Mmhub),
    ("osssys", Block::Osssys),
    ("hdp", Block::Hdp),
];

/// A register of a device.
pub struct Found {
    block: &'static str,
    register: Register<'static>,
    /// Dword address.
    pub addr: u32,
}

impl Found {
    /// The register with a value.
    pub fn value(&self, value: u32) -> RegValue {
        RegValue {
            block: self.block.to_owned(),
            name: self.register.name.to_owned(),
            addr: self.addr,
            value,
            fields: self.register.fields().map(|f| (f.name.to_owned(), f.get(value))).collect(),
        }
    }
}

fn db(list: &IpList, name: &str, block: Block) -> Option<&'static Db> {
    let version = list.version(block)?;
    match block {
        Block::Mp1 => Db::for_version("mp", (11, 0, 0)),
        Block::Mp0 => Db::for_version("mp", version),
        Block::Nbio if version.0 == 6 => Db::for_version("nbif", version),
        _ => Db::for_version(name, version),
    }
}

fn registers(list: &IpList) -> impl Iterator<Item = Found> + '_ {
    BLOCKS.iter().filter_map(|&(name, block)| Some((name, block, db(list, name, block)?))).flat_map(
        move |(name, block, db)| {
            let bases = list.bases(block, 0).unwrap_or_default();
            db.iter().filter_map(move |register| {
                let addr = bases.get(register.segment)?.wrapping_add(register.offset);
                Some(Found { block: name, register, addr })
            })
        },
    )
}

/// Calls `each` with header prefix, name and dword address of every known register of a device.
pub fn each_register(list: &IpList, mut each: impl FnMut(&'static str, String, u32)) {
    for found in registers(list) {
        let block = if found.block.starts_with("mp") { "mp" } else { found.block };
        each(block, format!("reg{}", found.register.name), found.addr);
    }
}

/// A register by name (with or without block and `reg` or `mm`) or by dword address (`0x...`).
pub fn find(list: &IpList, text: &str) -> anyhow::Result<Found> {
    let unknown =
        || CliError::Usage(format!("no register {text} on this device; `regs dump IP` lists names"));
    if let Some(digits) = text.strip_prefix("0x") {
        let addr = u32::from_str_radix(digits, 16).map_err(|e| CliError::Usage(format!("{text}: {e}")))?;
        return Ok(registers(list).find(|f| f.addr == addr).ok_or_else(unknown)?);
    }
    let (block, name) = match text.split_once('.') {
        Some((block, name)) => (Some(block.to_ascii_lowercase()), name),
        None => (None, text),
    };
    let wanted = BLOCKS.iter().filter(|(b, _)| block.as_ref().is_none_or(|want| want == b));
    for &(prefix, id) in wanted {
        let Some(register) = db(list, prefix, id).and_then(|db| db.get(name)) else { continue };
        let base = list.bases(id, 0).and_then(|b| b.get(register.segment));
        if let Some(base) = base {
            return Ok(Found { block: prefix, addr: base.wrapping_add(register.offset), register });
        }
    }
    Err(unknown().into())
}

/// Names of the registers of a block, or of all.
pub fn names(list: &IpList, block: Option<&str>) -> anyhow::Result<Vec<String>> {
    let block = block.map(str::to_ascii_lowercase);
    if let Some(want) = &block
        && !BLOCKS.iter().any(|(b, _)| b == want)
    {
        let known: Vec<_> = BLOCKS.iter().map(|(b, _)| *b).collect();
        let text = format!("no block {want}; there are {}", known.join(", "));
        return Err(CliError::Usage(text).into());
    }
    let of_block = |f: &Found| block.as_ref().is_none_or(|want| want == f.block);
    Ok(registers(list).filter(of_block).map(|f| format!("{}.{}", f.block, f.register.name)).collect())
}
