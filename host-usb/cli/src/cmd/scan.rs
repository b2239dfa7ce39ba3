//! `scan`

use crate::Context;
use crate::error::CliError;
use crate::output::{Outcome, table};
use crate::session::Scanned;
use crate::spec;
use serde_json::json;

/// The exit code where no enclosure can be used.
const NONE: u8 = 3;

pub(crate) fn run(context: &mut Context<'_>) -> anyhow::Result<Outcome> {
    let device = &context.global.device;
    let chosen = (device.to_string() != spec::DEFAULT).then_some(device);
    let backends = context.program.backends.iter();
    let able: Vec<_> = backends.filter(|b| chosen.is_none_or(|c| b.serves(c))).collect();
    if let (Some(seconds), Some(spec)) = (context.global.wait, chosen) {
        able.iter().try_for_each(|b| b.wait_for(spec, seconds))?;
    }
    let results: Vec<_> = able.iter().filter_map(|b| b.scan(chosen)).collect();
    if results.is_empty() {
        let (device, command) = (device.to_string(), "scan");
        let why = match chosen {
            Some(_) => "there is no enclosure in between; `scan` is for usb[:N] and sim-usb:GPU".into(),
            None => format!("{} is built without USB", context.program.name),
        };
        return Err(CliError::Unsupported { device, command, why }.into());
    }
    let mut found: Vec<Scanned> = Vec::new();
    for result in results {
        found.extend(result?);
    }
    let text: String = if found.is_empty() {
        "no enclosure with an ASM2464PD bridge is plugged in (see `doctor`)\n".into()
    } else {
        found.iter().map(describe).collect()
    };
    let usable = found.iter().any(|s| s.problem.is_none());
    let outcome = Outcome::new(text, json!({ "enclosures": found }));
    Ok(if usable { outcome } else { outcome.with_code(NONE) })
}

fn describe(s: &Scanned) -> String {
    let row = |name: &str, value: Option<&String>| {
        vec![format!("  {name}"), value.cloned().unwrap_or_else(|| "unknown".into())]
    };
    let mut rows = vec![
        vec![s.device.clone(), s.enclosure.clone()],
        row("USB", Some(&s.usb)),
        row("firmware", s.firmware.as_ref()),
        row("PCIe link", s.link.as_ref()),
        row("GPU", s.gpu.as_ref()),
    ];
    rows.push(row("state", Some(s.problem.as_ref().unwrap_or(&"usable".into()))));
    table(&["device", "what"], &rows)
}
