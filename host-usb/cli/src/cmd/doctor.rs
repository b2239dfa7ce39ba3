//! `doctor`

use crate::checks::{Check, State, text};
use crate::output::Outcome;
use amdev_fw::Versions;
use amdev_fw::files::{SearchPath, check};
use serde_json::json;
use std::fmt::Write as _;

pub(crate) fn run(context: &mut crate::Context<'_>) -> anyhow::Result<Outcome> {
    let checks = all(context);
    let count = |state| checks.iter().filter(|c| c.state == state).count();
    let (bad, warnings) = (count(State::Bad), count(State::Warning));
    let mut out = text(&checks);
    let _ = writeln!(out, "{} checks: {bad} bad, {warnings} warnings", checks.len());
    Ok(Outcome::new(out, json!({ "checks": checks, "bad": bad, "warnings": warnings })).with_ok(bad == 0))
}

/// The checks of this machine, those of the host's ways to devices first.
pub(super) fn all(context: &crate::Context<'_>) -> Vec<Check> {
    let mut checks: Vec<Check> = context.program.backends.iter().flat_map(|b| b.checks()).collect();
    checks.push(firmware(&SearchPath::given_or_system(&context.global.firmware)));
    checks
}

/// For which GPUs the firmware is complete.
fn firmware(path: &SearchPath) -> Check {
    let mut complete = Vec::new();
    let mut broken = Vec::new();
    for gpu in super::fw::GPUS {
        let Some(versions) = Versions::by_name(gpu) else { continue };
        let files = check(versions, path);
        let bad = files.iter().filter(|f| f.path.is_some()).find_map(|f| f.file.as_ref().err());
        broken.extend(bad.cloned());
        if files.iter().all(|f| f.file.is_ok()) {
            complete.push(gpu);
        }
    }
    let name = "firmware";
    let remedy = "sudo apt install firmware-amd-graphics (Debian, non-free-firmware), \
                  sudo dnf install amd-gpu-firmware (Fedora), or name a folder with --firmware DIR";
    match (complete.as_slice(), broken.first()) {
        (_, Some(first)) => Check::mend(State::Warning, name, first.clone(), remedy),
        ([], None) => {
            let dirs: Vec<_> = path.dirs().iter().map(|d| d.display().to_string()).collect();
            let found = format!("complete for no GPU; looked in {}", dirs.join(", "));
            Check::mend(State::Warning, name, found, remedy)
        }
        (gpus, None) => Check::good(name, format!("complete for {}", gpus.join(", "))),
    }
}
