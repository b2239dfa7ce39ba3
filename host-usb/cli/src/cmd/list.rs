//! `list`

use crate::output::{Outcome, table};
use serde_json::json;

pub(crate) fn run(context: &crate::Context<'_>) -> anyhow::Result<Outcome> {
    let found: Vec<_> = context.program.backends.iter().flat_map(|b| b.list()).collect();
    let row = |f: &crate::session::Found| {
        vec![f.device.clone(), f.name.clone(), f.problem.clone().unwrap_or_else(|| "usable".into())]
    };
    let rows: Vec<_> = found.iter().map(row).collect();
    Ok(Outcome::new(table(&["device", "what", "state"], &rows), json!({ "devices": found })))
}
