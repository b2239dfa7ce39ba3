//! `boot`

use super::{report_json, report_text, violations};
use crate::args::BootArgs;
use crate::error::CliError;
use crate::output::{Outcome, micros};
use crate::session::{BootOptions, DeviceState};
use crate::spec::DeviceSpec;
use serde_json::json;

pub(crate) fn run(context: &mut crate::Context<'_>, args: &BootArgs) -> anyhow::Result<Outcome> {
    if args.dry_run {
        return dry_run(context, args);
    }
    let options = BootOptions { cold: args.cold, dry_run: args.dry_run };
    if context.device_count()? > 1 {
        return many(context, &options);
    }
    let (report, (bad_text, bad_json, ok)) = context.with_session("boot", true, |session, progress| {
        Ok((session.boot(&options, progress)?, violations(session)))
    })?;
    let mut json = report_json(&report);
    json["violations"] = bad_json;
    Ok(Outcome::new(report_text("boot", &report) + &bad_text, json).with_ok(ok))
}

/// What a boot would write. That depends on what the device answers, so that a device which is not
/// touched cannot tell: it is looked at, and a simulated GPU of its kind in its state is booted.
fn dry_run(context: &mut crate::Context<'_>, args: &BootArgs) -> anyhow::Result<Outcome> {
    let device = context.global.device.clone();
    let (name, state) = context
        .with_session("boot --dry-run", false, |session, _| Ok((session.info()?.name, session.state()?)))?;
    let twin = twin(&device, &name, state)?;
    context.global.device = twin.clone();
    // The trace is of the device that was looked at.
    context.global.trace = None;
    let options = BootOptions { cold: args.cold, dry_run: true };
    let (report, (bad_text, bad_json, ok)) = context.with_session("boot", true, |session, progress| {
        Ok((session.boot(&options, progress)?, violations(session)))
    })?;
    let mut json = report_json(&report);
    json["violations"] = bad_json;
    json["device"] = json!(device.to_string());
    json["state"] = json!(state.to_string());
    json["answered_by"] = json!(twin.to_string());
    json["writes"] = json!(report.writes);
    let text = format!(
        "# {device} is {state}; it was only read.\n# What a boot ({}) writes if it answers as {twin} does:\n{}\n{bad_text}",
        report.path,
        report.writes.join("\n"),
    );
    Ok(Outcome::new(text, json).with_ok(ok))
}

/// Several devices, booted at once.
fn many(context: &mut crate::Context<'_>, options: &BootOptions) -> anyhow::Result<Outcome> {
    let (boot, seen) = context.with_group("boot", true, |group, progress| {
        let boot = group.boot(options, progress)?;
        let mut seen = Vec::new();
        for index in 0..group.count() {
            seen.push(violations(group.member(index)?));
        }
        Ok((boot, seen))
    })?;
    let (mut text, mut list, mut ok) = (String::new(), Vec::new(), true);
    for (index, (report, (bad_text, bad_json, clean))) in boot.reports.iter().zip(seen).enumerate() {
        let mut json = report_json(report);
        json["violations"] = bad_json;
        list.push(json);
        text += &format!("GPU {index} ");
        text += &(report_text("boot", report) + &bad_text);
        ok &= clean;
    }
    text += &format!("all booted at once in {}\n", micros(boot.us));
    Ok(Outcome::new(text, json!({ "boot_us": boot.us, "gpus": list })).with_ok(ok))
}

/// A simulated GPU like a device that was looked at.
fn twin(device: &DeviceSpec, name: &str, state: DeviceState) -> anyhow::Result<DeviceSpec> {
    if let DeviceSpec::Sim(_) | DeviceSpec::SimUsb(_) = device {
        return Ok(device.clone());
    }
    // `Navi 31` is `navi31`.
    let model = name.to_ascii_lowercase().replace(' ', "");
    let state = match state {
        DeviceState::Cold => "cold".to_owned(),
        DeviceState::Foreign => "amdgpu".to_owned(),
        DeviceState::InOrder => "amdev".to_owned(),
        DeviceState::Disorder => "malformed".to_owned(),
        DeviceState::OtherLayout(version) => {
            let mark = (amdev_core::boot::MAGIC & 0xffff_0000) | (version & 0xffff);
            format!("amdev,scratch7={mark:#x}")
        }
    };
    if !cfg!(feature = "sim") || !crate::cmd::fw::GPUS.contains(&model.as_str()) {
        return Err(CliError::Unsupported {
            device: device.to_string(),
            command: "boot --dry-run",
            why: "what a boot writes depends on the device's answers, and there is no simulated GPU of this kind"
                .into(),
        }
        .into());
    }
    let twin = format!("{model},state={state}");
    // Over USB other things are written, and in another order.
    Ok(if let DeviceSpec::Usb(_) = device { DeviceSpec::SimUsb(twin) } else { DeviceSpec::Sim(twin) })
}
