//! `fini`

use super::{report_json, report_text, violations};
use crate::output::Outcome;
use crate::session::BootOptions;
use crate::spec::DeviceSpec;

pub(crate) fn run(context: &mut crate::Context<'_>) -> anyhow::Result<Outcome> {
    let simulated = matches!(context.global.device, DeviceSpec::Sim(_) | DeviceSpec::SimUsb(_));
    let (report, (bad_text, bad_json, ok)) =
        context.with_session("fini", simulated, |session, progress| {
            if simulated {
                // It exists since this moment only: there is nothing to shut down yet.
                session.boot(&BootOptions::default(), progress)?;
            }
            Ok((session.fini(progress)?, violations(session)))
        })?;
    let mut json = report_json(&report);
    json["violations"] = bad_json;
    Ok(Outcome::new(report_text("fini", &report) + &bad_text, json).with_ok(ok))
}
