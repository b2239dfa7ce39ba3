//! `completions SHELL`

use crate::args::Cli;
use crate::output::Outcome;
use clap::CommandFactory as _;
use serde_json::json;

pub(crate) fn run(context: &crate::Context<'_>, shell: clap_complete::Shell) -> anyhow::Result<Outcome> {
    let name = context.program.name;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), name, &mut script);
    let script = String::from_utf8(script)?;
    let json = json!({ "shell": shell.to_string(), "script": script });
    Ok(Outcome::new(script, json))
}
