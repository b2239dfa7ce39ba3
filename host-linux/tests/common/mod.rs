//! The `amdev` command as tests call it: without the caller's settings.
#![allow(dead_code, reason = "no test uses all of it")]

use std::path::Path;
use std::process::{Command, Output};

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_amdev"));
    command.args(args).env_remove("AMDEV_DEVICE").env_remove("AMDEV_FIRMWARE");
    command
}

pub(crate) fn amdev(args: &[&str]) -> Output {
    command(args).output().expect("the command starts")
}

pub(crate) fn stdout(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub(crate) fn stderr(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// The code object of the kernel `fill` for Navi31.
pub(crate) fn fill() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus/co/fill.gfx1100.v5.O2.co");
    path.to_str().unwrap().to_owned()
}
