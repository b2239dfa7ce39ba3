//! `regs read|write|dump`

use crate::args::RegsCommand;
use crate::output::{Outcome, table};
use crate::session::RegValue;
use serde_json::json;

pub(crate) fn run(context: &mut crate::Context<'_>, command: &RegsCommand) -> anyhow::Result<Outcome> {
    let values = context.with_session("regs", false, |session, _| {
        Ok(match command {
            RegsCommand::Read { names } => {
                names.iter().map(|n| session.reg_read(n)).collect::<anyhow::Result<_>>()?
            }
            // What it reads afterwards: read-only bits and registers do not take everything.
            RegsCommand::Write { name, value } => {
                session.reg_write(name, *value)?;
                vec![session.reg_read(name)?]
            }
            RegsCommand::Dump { ip } => {
                let names = session.reg_names(Some(ip))?;
                names.iter().map(|n| session.reg_read(n)).collect::<anyhow::Result<_>>()?
            }
        })
    })?;
    let rows: Vec<_> = values.iter().map(row).collect();
    let text = table(&["register", "address>", "value>", "fields"], &rows);
    Ok(Outcome::new(text, json!({ "registers": values })))
}

fn row(v: &RegValue) -> Vec<String> {
    let fields: Vec<_> = v.fields.iter().map(|(name, value)| format!("{name}={value:#x}")).collect();
    vec![
        format!("{}.{}", v.block, v.name),
        format!("{:#x}", v.addr),
        format!("{:#010x}", v.value),
        fields.join(" "),
    ]
}
