//! `list`

use crate::Context;
use crate::args::ListArgs;
use crate::error::exit_code;
use crate::output::{Outcome, bytes, table};
use crate::session::Found;
use crate::spec::{self, DeviceSpec};
use serde_json::json;

pub(crate) fn run(context: &mut Context<'_>, args: &ListArgs) -> anyhow::Result<Outcome> {
    let mut found: Vec<Found> = context.program.backends.iter().flat_map(|b| b.list()).collect();
    // A device that was named is looked at; what only stands in a list is not touched.
    let chosen = context.global.device.clone();
    let is_default = chosen.to_string() == spec::DEFAULT;
    let named = (!is_default).then_some(&chosen).into_iter().chain(&args.devices);
    let mut looked_at: Vec<Found> = Vec::new();
    // Who asks about a device wants to know by the exit code, too.
    let mut worst = None;
    for spec in named {
        if !looked_at.iter().any(|f| f.device == spec.to_string()) {
            looked_at.push(look(context, spec, &mut worst));
        }
    }
    // Names of listed devices are kept, what is wrong with them is known better now.
    found.retain(|f| !looked_at.iter().any(|l| l.device == f.device));
    found.extend(looked_at);
    let row = |f: &Found| {
        vec![f.device.clone(), f.name.clone(), f.problem.clone().unwrap_or_else(|| "usable".into())]
    };
    let rows: Vec<_> = found.iter().map(row).collect();
    let outcome = Outcome::new(table(&["device", "what", "state"], &rows), json!({ "devices": found }));
    Ok(match worst {
        Some(code) => outcome.with_code(code),
        None => outcome,
    })
}

/// Opens a device and reads what it is; `worst` gets the exit code of the first failure.
fn look(context: &mut Context<'_>, spec: &DeviceSpec, worst: &mut Option<u8>) -> Found {
    let before = std::mem::replace(&mut context.global.device, spec.clone());
    let info = context.with_session("list", false, |session, _| session.info());
    context.global.device = before;
    let device = spec.to_string();
    match info {
        Ok(info) => {
            let name = format!("{} ({}), {} VRAM", info.name, info.target, bytes(info.vram_bytes));
            Found { device, name, problem: None }
        }
        Err(e) => {
            worst.get_or_insert(exit_code(&e));
            Found { device, name: "?".into(), problem: Some(crate::output::error_text(&e)) }
        }
    }
}
