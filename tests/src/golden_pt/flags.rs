//! The table of an entry's flags at each level, and the flags that a mapping is asked for with.

use std::collections::BTreeSet;

use amdev_core::mm::pte::{Entry, Kind, Level, Mtype, PteFlags, PteFormat};
use amdev_core::mm::vm::MapFlags;
use anyhow::{Context, Result};
use serde_json::Value;

use super::model::Attr;
use crate::golden_tlsf::{hex, list};
use crate::verdict::Verdict;

/// Compares every row, and wants every combination to be there once.
pub(super) fn flag_table(name: &str, format: PteFormat, table: &Value, verdict: &mut Verdict) -> Result<()> {
    let mut seen = BTreeSet::new();
    for (row, value) in list(table, "rows")?.iter().enumerate() {
        let place = format!("{name} pte_flags row {row}");
        let mut field = [0; 7];
        for (i, f) in field.iter_mut().enumerate() {
            *f = value[i].as_u64().with_context(|| format!("row {row} column {i}"))?;
        }
        let [lv, is_table, frag, uncached, system, snooped, valid] = field;
        let level = *Level::ALL.get(lv as usize).with_context(|| format!("row {row}: level {lv}"))?;
        let mut flags = if is_table == 0 { PteFlags::RWX } else { PteFlags::empty() };
        flags.set(PteFlags::SYSTEM, system != 0);
        flags.set(PteFlags::SNOOPED, snooped != 0);
        flags.set(PteFlags::VALID, valid != 0);
        let entry = Entry {
            kind: if is_table == 0 { Kind::Page } else { Kind::Table },
            addr: 0,
            flags,
            mtype: if uncached == 0 { Mtype::CACHED } else { Mtype::UNCACHED },
            fragment: frag as u8,
        };
        let mut wrong = Vec::new();
        let (ours, theirs) = (format.encode(level, &entry)?, hex(&value[7])?);
        if ours != theirs {
            wrong.push(format!("{entry:?} is {ours:#x}, recorded is {theirs:#x}"));
        }
        if valid != 0 && format.decode(level, ours) != Some(entry) {
            wrong.push(format!("{ours:#x} does not decode to {entry:?}"));
        }
        if !seen.insert(field) {
            wrong.push("the row stands there twice".into());
        }
        verdict.row(&place, wrong);
    }
    // Every combination: last-level entries are pages only.
    let tables = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)];
    let mut missing = Vec::new();
    for (lv, is_table) in tables {
        for (frag, bits) in [0, 4, 9].into_iter().flat_map(|f| (0..16).map(move |b| (f, b))) {
            let row = [lv, is_table, frag, bits >> 3 & 1, bits >> 2 & 1, bits >> 1 & 1, bits & 1];
            if !seen.contains(&row) {
                missing.push(format!("row {row:?} is missing"));
            }
        }
    }
    verdict.row(&format!("{name} pte_flags"), missing);
    Ok(())
}

impl Attr {
    /// What a mapping is asked for with.
    pub(super) fn map_flags(self) -> MapFlags {
        let mut flags = MapFlags::empty();
        flags.set(MapFlags::SYSTEM, self.system);
        flags.set(MapFlags::SNOOPED, self.snooped);
        flags.set(MapFlags::UNCACHED, self.uncached);
        flags
    }
}
