//! Judges the simulated USB bridge by the reference's recorded traffic (`usb.json`, and
//! `boot_usb_cdbs.txt` in the folders of the GPUs beside it): every command runs through, answers are
//! the recorded ones, and what reaches PCIe is what the trace of the same boot has, in order.

mod boot;
mod host;
mod unit;

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::replay::Place;
use crate::verdict::Verdict;

/// Judges a file like `golden/usb.json`, and the boots beside it.
///
/// # Errors
/// Files that are not of their format.
pub fn judge(file: &Path) -> Result<(Verdict, Vec<String>)> {
    let bytes = crate::read(file)?;
    let value: Value = serde_json::from_slice(&bytes)?;
    let mut verdict = Verdict::default();
    unit::judge(&value, &mut verdict)?;
    let mut notes = Vec::new();
    let dir = file.parent().unwrap_or(Path::new("."));
    for gpu in value["full_boot"].as_object().context("no full_boot")?.keys() {
        let place = dir.join(gpu);
        if !place.is_dir() {
            notes.push(format!("no folder {} with the boot's commands", place.display()));
            continue;
        }
        let recorded = &value["full_boot"][gpu];
        notes.push(boot::judge(&Place::new(&place), &place, gpu, recorded, &mut verdict)?);
    }
    Ok((verdict, notes))
}
