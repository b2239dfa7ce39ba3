//! Registers of this GPU from the generated tables, placed at the bases of its discovery table.

use crate::chip::Chip;
use amdev_regs::{Db, Register};

/// Blocks of the discovery table that have register tables, with the table's name and the names
/// that belong to the block (the MP headers hold several processors' mailboxes).
const BLOCKS: [(&str, &str, &[&str]); 7] = [
    ("GC", "gc", &[""]),
    ("MMHUB", "mmhub", &[""]),
    ("OSSSYS", "osssys", &[""]),
    ("HDP", "hdp", &[""]),
    ("NBIF", "nbio", &[""]),
    ("MP0", "mp0", &["MP0_", "MPASP_"]),
    ("MP1", "mp1", &["MP1_"]),
];

/// Calls `add` with each register's block, absolute dword address and description.
pub(crate) fn load(chip: &Chip, mut add: impl FnMut(&'static str, u32, Register<'static>)) {
    for (name, table, prefixes) in BLOCKS {
        let Some(ip) = chip.ip(name) else { continue };
        let Some(db) = Db::for_version(table, ip.version) else { continue };
        for reg in db.iter() {
            let Some(base) = ip.bases.get(usize::from(reg.segment)) else { continue };
            if prefixes.iter().any(|p| reg.name.starts_with(p)) {
                add(name, base.wrapping_add(reg.offset), reg);
            }
        }
    }
}
