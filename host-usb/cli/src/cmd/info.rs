//! `info`

use crate::args::InfoArgs;
use crate::output::{Outcome, bytes, table};
use crate::session::Info;
use serde_json::json;
use std::fmt::Write as _;

pub(crate) fn run(context: &mut crate::Context<'_>, args: &InfoArgs) -> anyhow::Result<Outcome> {
    let info = match &args.discovery {
        Some(path) => crate::discovery::from_file(path)?,
        None => context.with_session("info", true, |session, _| session.info())?,
    };
    Ok(Outcome::new(text(&info), json!(info)))
}

pub(super) fn text(info: &Info) -> String {
    let mut out = format!("{} ({})\n", info.name, info.target);
    if info.vram_bytes > 0 {
        let _ = writeln!(out, "VRAM           {}", bytes(info.vram_bytes));
    }
    let _ = writeln!(
        out,
        "compute units  up to {} in {} shader engines x {} arrays, wave{}, {} LDS",
        info.compute_units,
        info.shader_engines,
        info.arrays_per_engine,
        info.wave_size,
        bytes(info.lds_bytes.into())
    );
    let rows: Vec<Vec<String>> = info
        .ips
        .iter()
        .map(|ip| {
            let bases: Vec<String> = ip.bases.iter().map(|b| format!("{b:#x}")).collect();
            let harvested = if ip.harvested { "harvested" } else { "" };
            let instance = ip.instance.to_string();
            vec![ip.name.clone(), instance, ip.version.clone(), bases.join(" "), harvested.into()]
        })
        .collect();
    out += &table(&["ip", "instance>", "version", "bases (dwords)", ""], &rows);
    if !info.firmware.is_empty() {
        let _ = writeln!(out, "firmware: {}", info.firmware.join(" "));
    }
    for note in &info.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}
