//! `report`: one file for a bug report.

use super::{report_text, violations};
use crate::args::ReportArgs;
use crate::error::{CliError, USAGE, exit_code};
use crate::output::{Outcome, bytes, error_text};
use crate::session::BootOptions;
use anyhow::Context as _;
use serde_json::json;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// What a report keeps of a trace at most, from its end: the failure stands there.
const MAX_TRACE: u64 = 64 << 20;

pub(crate) fn run(context: &mut crate::Context<'_>, args: &ReportArgs) -> anyhow::Result<Outcome> {
    let shown = args.output.display();
    let usage = |e: io::Error| match e.kind() {
        io::ErrorKind::AlreadyExists => CliError::Usage(format!("{shown} exists; name another --output")),
        _ => CliError::Usage(format!("{shown}: {e}")),
    };
    let mut file = OpenOptions::new().write(true).create_new(true).open(&args.output).map_err(usage)?;
    let result = fill(context, args, &mut file);
    if result.is_err() {
        // What is not there does not keep the next one from being written.
        let _ = std::fs::remove_file(&args.output);
    }
    result
}

fn fill(context: &mut crate::Context<'_>, args: &ReportArgs, file: &mut File) -> anyhow::Result<Outcome> {
    let shown = args.output.display();
    let mut text = heading(context);
    text += "\n== checks\n";
    text += &crate::checks::text(&super::doctor::all(context));
    text += "\n== devices\n";
    text += &super::list::run(context, &crate::args::ListArgs { devices: Vec::new() })?.text;

    let (trace, own) = match context.global.trace.clone() {
        Some(path) => (path, false),
        None => (temporary()?, true),
    };
    context.global.trace = Some(trace.clone());
    let device = context.global.device.to_string();
    let booted = boot(context, args.no_boot);
    let discard = || if own { std::fs::remove_file(&trace) } else { Ok(()) };
    let (result, ok) = booted.inspect_err(|_| drop(discard()))?;
    let _ = write!(text, "\n== {device}\n{result}\n== trace\n");
    let written = file.write_all(text.as_bytes()).and_then(|()| append_end(&trace, file));
    let _ = discard();
    let length = written.and_then(|()| file.metadata()).with_context(|| format!("writing {shown}"))?.len();
    let verdict = match ok {
        _ if args.no_boot => "the device was not tried",
        true => "the device boots",
        false => "the device does NOT work: the report shows why",
    };
    let out = format!("{shown}: {}; {verdict}\nRead it before you send it.\n", bytes(length));
    let json = json!({ "file": args.output, "bytes": length, "device": device, "device_works": (!args.no_boot).then_some(ok) });
    // The report is what was asked for; that the device fails is what it is about.
    Ok(Outcome::new(out, json))
}

fn heading(context: &crate::Context<'_>) -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{} {} report\nsystem: {} {} {}\nsimulator: {}\n",
        context.program.name,
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH,
        release.trim(),
        if cfg!(feature = "sim") { "built in" } else { "not built in" },
    )
}

/// What the device is, and how its boot went.
fn boot(context: &mut crate::Context<'_>, no_boot: bool) -> anyhow::Result<(String, bool)> {
    let mut text = String::new();
    let outcome = context.with_session("report", true, |session, progress| {
        text += &super::info::text(&session.info()?);
        if no_boot {
            return Ok(true);
        }
        let report = session.boot(&BootOptions::default(), progress)?;
        let (bad, _, ok) = violations(session);
        text += &(report_text("boot", &report) + &bad);
        Ok(ok)
    });
    match outcome {
        Ok(ok) => Ok((text, ok)),
        // There can be no such device: a report of it would help nobody.
        Err(e) if exit_code(&e) == USAGE => Err(e),
        Err(e) => {
            let _ = writeln!(text, "error: {}", error_text(&e));
            Ok((text, false))
        }
    }
}

/// A file of this process's own.
fn temporary() -> anyhow::Result<PathBuf> {
    let path = std::env::temp_dir().join(format!("amdev-report-{}.jsonl", std::process::id()));
    let made = OpenOptions::new().write(true).create_new(true).open(&path);
    made.with_context(|| format!("making {}", path.display()))?;
    Ok(path)
}

/// Appends the last part of a trace, whole lines of it.
fn append_end(trace: &Path, to: &mut File) -> io::Result<()> {
    use std::io::{BufRead as _, Seek as _};
    let mut file = File::open(trace)?;
    let len = file.metadata()?.len();
    if let Some(skipped) = len.checked_sub(MAX_TRACE).filter(|n| *n > 0) {
        file.seek(io::SeekFrom::Start(skipped))?;
        writeln!(to, "... {skipped} bytes left out")?;
    }
    let mut reader = io::BufReader::new(file);
    if len > MAX_TRACE {
        reader.skip_until(b'\n')?;
    }
    io::copy(&mut reader, to).map(drop)
}
