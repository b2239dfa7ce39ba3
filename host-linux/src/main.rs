//! The `amdev` command.

use amdev_cli::Program;
use std::process::ExitCode;

fn main() -> ExitCode {
    amdev_cli::run(&Program { name: "amdev", backends: amdev_linux::backends() })
}
