//! `boot`

use super::{report_json, report_text, violations};
use crate::args::BootArgs;
use crate::output::Outcome;
use crate::session::BootOptions;
use serde_json::json;

pub(crate) fn run(context: &mut crate::Context<'_>, args: &BootArgs) -> anyhow::Result<Outcome> {
    let options = BootOptions { cold: args.cold, dry_run: args.dry_run };
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
