//! The `amdev-usb` command.

use amdev_cli::Program;
use std::process::ExitCode;

fn main() -> ExitCode {
    amdev_cli::run(&Program { name: "amdev-usb", backends: amdev_usb::backends() })
}
