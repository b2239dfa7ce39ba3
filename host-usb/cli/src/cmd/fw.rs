//! `fw list|check`

use crate::args::FwCommand;
use crate::error::CliError;
use crate::output::{Outcome, bytes, table};
use amdev_fw::files::{FileReport, Pin, SearchPath, check};
use amdev_fw::{Role, Versions};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// GPUs whose firmware is known by name.
pub(super) const GPUS: [&str; 5] = ["navi31", "navi32", "navi33", "navi44", "navi48"];

pub(crate) fn run(context: &mut crate::Context<'_>, command: &FwCommand) -> anyhow::Result<Outcome> {
    match command {
        FwCommand::List => list(context),
        FwCommand::Check { dir } => check_dir(dir),
    }
}

/// What the device needs.
fn list(context: &mut crate::Context<'_>) -> anyhow::Result<Outcome> {
    let versions = context.with_session("fw", true, |session, _| session.firmware_versions())?;
    let path = SearchPath::given_or_system(&context.global.firmware);
    let reports = check(versions, &path);
    let bad = reports.iter().filter(|r| r.file.is_err()).count();
    let json = json!({ "dirs": path.dirs(), "files": reports.iter().map(to_json).collect::<Vec<_>>() });
    let mut text = show(&reports, true);
    if reports.iter().any(|r| r.path.is_none()) {
        let dirs: Vec<_> = path.dirs().iter().map(|d| d.display().to_string()).collect();
        text += &format!("searched: {}; --firmware DIR names another directory\n", dirs.join(", "));
    }
    Ok(judged(Outcome::new(text, json), bad))
}

/// Firmware that is missing or bad has an exit code of its own.
fn judged(outcome: Outcome, bad: usize) -> Outcome {
    if bad == 0 { outcome } else { outcome.with_code(4) }
}

/// What a directory has of all known GPUs. What it lacks is no fault; what it has must be right.
fn check_dir(dir: &Path) -> anyhow::Result<Outcome> {
    crate::files::is_directory(dir).map_err(|e| CliError::Firmware(format!("{}: {e}", dir.display())))?;
    let path = SearchPath::only(&[dir]);
    let mut seen = BTreeSet::new();
    let mut reports = Vec::new();
    let mut complete = Vec::new();
    for gpu in GPUS {
        let Some(versions) = Versions::by_name(gpu) else { continue };
        let needed = check(versions, &path);
        if needed.iter().all(|r| r.file.is_ok()) {
            complete.push(gpu);
        }
        // GPUs share files.
        reports.extend(needed.into_iter().filter(|r| r.path.is_some() && seen.insert(r.name.to_string())));
    }
    if reports.is_empty() {
        let text = format!("{}: no firmware of a known GPU is here, nor in amdgpu below it", dir.display());
        return Err(CliError::Firmware(text).into());
    }
    let bad = reports.iter().filter(|r| r.file.is_err()).count();
    let for_whom = if complete.is_empty() { "no GPU".to_owned() } else { complete.join(", ") };
    let text =
        show(&reports, false) + &format!("{} files, {bad} bad; complete for {for_whom}\n", reports.len());
    let files: Vec<Value> = reports.iter().map(to_json).collect();
    Ok(judged(Outcome::new(text, json!({ "files": files, "bad": bad, "complete": complete })), bad))
}

fn show(reports: &[FileReport], places: bool) -> String {
    let mut rows = Vec::new();
    for report in reports {
        let (version, images, state) = match &report.file {
            // Where it was looked for is said once, below.
            Err(_) if report.path.is_none() => (String::new(), String::new(), "missing".into()),
            Err(reason) => (String::new(), String::new(), format!("BAD: {reason}")),
            Ok(file) => {
                let images = file.pieces.iter().map(|p| role(p.role)).collect::<Vec<_>>().join(" ");
                let (major, minor) = file.header_version();
                (format!("{:#x} (header {major}.{minor})", file.ucode_version()), images, pin(report.pin))
            }
        };
        let mut row = vec![report.name.to_string(), bytes(report.len), version, state];
        if places {
            row.push(report.path.as_ref().map_or_else(|| "-".into(), |p| p.display().to_string()));
        }
        row.push(images);
        rows.push(row);
    }
    let header: &[&str] = if places {
        &["file", "size>", "version", "state", "path", "images"]
    } else {
        &["file", "size>", "version", "state", "images"]
    };
    table(header, &rows)
}

fn pin(pin: Pin) -> String {
    match pin {
        Pin::Known(packages) => format!("as in {}", packages.join(", ")),
        Pin::Other => "right, not one of the pinned versions".into(),
        Pin::Unpinned => "right".into(),
    }
}

fn role(role: Role) -> String {
    match role {
        Role::Sos(component) => format!("{component:?}"),
        Role::Ip(ty) => {
            amdev_fw::types::type_name(ty).map_or_else(|| format!("type {}", ty.0), str::to_owned)
        }
        other => format!("{other:?}"),
    }
}

fn to_json(report: &FileReport) -> Value {
    let (error, images) = match &report.file {
        Err(reason) => (Some(reason.clone()), Vec::new()),
        Ok(file) => {
            let image =
                |p: &amdev_fw::Piece| json!({ "image": role(p.role), "offset": p.offset, "len": p.len });
            (None, file.pieces.iter().map(image).collect())
        }
    };
    let packages = match report.pin {
        Pin::Known(packages) => packages,
        _ => &[],
    };
    json!({
        "name": report.name.as_str(), "path": report.path, "len": report.len, "sha256": report.sha256,
        "packages": packages, "version": report.file.as_ref().ok().map(|f| f.ucode_version()),
        "images": images, "error": error,
    })
}
