//! `reset`

use super::{report_json, report_text, violations};
use crate::output::Outcome;

pub(crate) fn run(context: &mut crate::Context<'_>) -> anyhow::Result<Outcome> {
    let (report, (bad_text, bad_json, ok)) = context.with_session("reset", false, |session, progress| {
        Ok((session.reset(progress)?, violations(session)))
    })?;
    let mut json = report_json(&report);
    json["violations"] = bad_json;
    Ok(Outcome::new(report_text("reset", &report) + &bad_text, json).with_ok(ok))
}
