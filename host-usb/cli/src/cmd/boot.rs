//! `boot`

use super::{report_json, report_text, violations};
use crate::args::BootArgs;
use crate::output::{Outcome, micros};
use crate::session::BootOptions;
use serde_json::json;

pub(crate) fn run(context: &mut crate::Context<'_>, args: &BootArgs) -> anyhow::Result<Outcome> {
    let options = BootOptions { cold: args.cold, dry_run: args.dry_run };
    if context.device_count()? > 1 {
        return many(context, &options);
    }
    let (report, (bad_text, bad_json, ok)) = context.with_session("boot", true, |session, progress| {
        Ok((session.boot(&options, progress)?, violations(session)))
    })?;
    let mut json = report_json(&report);
    json["violations"] = bad_json;
    let text = if args.dry_run {
        json["writes"] = json!(report.writes);
        report.writes.join("\n") + "\n"
    } else {
        report_text("boot", &report) + &bad_text
    };
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
