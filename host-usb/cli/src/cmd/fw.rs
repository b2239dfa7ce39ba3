//! `fw list|check`

use crate::args::FwCommand;
use crate::output::Outcome;

pub(crate) fn run(context: &mut crate::Context<'_>, command: &FwCommand) -> anyhow::Result<Outcome> {
    let _ = (context, command);
    anyhow::bail!("not yet")
}
