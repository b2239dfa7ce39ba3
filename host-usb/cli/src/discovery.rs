//! Discovery as people see it.

use crate::error::CliError;
use crate::session::{Info, IpInfo};
use amdev_core::discovery::{self, GcInfo, IpList, MemSize, Version};
use amdev_core::reg::Block;
use std::path::Path;

/// The largest file that can be a discovery table; a real one has less than 64 KiB.
const MAX_FILE: u64 = 1 << 20;

/// Reads a table from a file.
pub fn from_file(path: &Path) -> anyhow::Result<Info> {
    let usage = |e: &dyn std::fmt::Display| CliError::Usage(format!("{}: {e}", path.display()));
    let bytes = crate::files::read(path, MAX_FILE).map_err(CliError::Usage)?;
    let list = discovery::parse(&bytes).map_err(|e| usage(&e))?;
    Ok(describe(&list, None))
}

/// What a table says, together with the memory size if a device told it.
pub fn describe(list: &IpList, memory: Option<MemSize>) -> Info {
    let gc = list.gc.unwrap_or_default();
    let mut notes = Vec::new();
    if list.gc.is_none() {
        notes.push("the table does not describe the graphics core".to_owned());
    }
    let mut ips: Vec<IpInfo> = list
        .iter()
        .map(|ip| IpInfo {
            name: ip.hw_id.name().map_or_else(|| format!("id {}", ip.hw_id.0), str::to_owned),
            instance: ip.instance,
            version: version(ip.version),
            bases: ip.bases.iter().map(|b| u64::from(*b)).collect(),
            harvested: false,
        })
        .collect();
    ips.extend(list.harvested().iter().map(|h| IpInfo {
        name: h.hw_id.name().map_or_else(|| format!("id {}", h.hw_id.0), str::to_owned),
        instance: h.instance,
        version: "-".into(),
        bases: Vec::new(),
        harvested: true,
    }));
    Info {
        name: name(list).into(),
        target: list.gfx_target().map_or_else(|| "unknown target".into(), |t| t.to_string()),
        vram_bytes: memory.map_or(0, MemSize::bytes),
        compute_units: list.max_cus().unwrap_or(0),
        shader_engines: gc.num_se,
        arrays_per_engine: gc.sa_per_se,
        wave_size: gc.wave_size,
        lds_bytes: lds_bytes(&gc),
        ips,
        firmware: Vec::new(),
        notes,
    }
}

fn lds_bytes(gc: &GcInfo) -> u32 {
    gc.lds_size_kib.saturating_mul(1024)
}

/// `11.0.0`
pub fn version((major, minor, revision): Version) -> String {
    format!("{major}.{minor}.{revision}")
}

/// Code name by the graphics core's version.
fn name(list: &IpList) -> &'static str {
    match list.version(Block::Gc) {
        Some((11, 0, 0)) => "Navi 31",
        Some((11, 0, 2)) => "Navi 33",
        Some((11, 0, 3)) => "Navi 32",
        Some((12, 0, 0)) => "Navi 44",
        Some((12, 0, 1)) => "Navi 48",
        Some((9, 4, 3)) => "Aqua Vanjaram (MI300)",
        Some((9, 5, 0)) => "MI350",
        Some((9, 4, 2)) => "Aldebaran (MI200)",
        _ => "AMD GPU",
    }
}
