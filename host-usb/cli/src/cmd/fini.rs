//! `fini`

use super::{report_json, report_text, violations};
use crate::error::CliError;
use crate::output::Outcome;
use crate::session::{BootOptions, DeviceState};
use crate::spec::DeviceSpec;
use serde_json::json;

pub(crate) fn run(context: &mut crate::Context<'_>) -> anyhow::Result<Outcome> {
    let simulated = matches!(context.global.device, DeviceSpec::Sim(_) | DeviceSpec::SimUsb(_));
    context.with_session("fini", simulated, |session, progress| {
        if !simulated {
            // Whoever booted it has ended: what it left there is not this process's to shut down.
            let (device, state) = (session.device(), session.state()?);
            if state == DeviceState::Disorder {
                let text = format!("{device} is {state}; `amdev --device {device} release` shuts it down");
                return Err(CliError::Device(text).into());
            }
            let text = format!("fini: nothing to shut down, the device is {state}\n");
            return Ok(Outcome::new(text, json!({ "path": "none", "why": state.to_string() })));
        }
        // It exists since this moment only: there is nothing to shut down yet.
        session.boot(&BootOptions::default(), progress)?;
        let report = session.fini(progress)?;
        let (bad_text, bad_json, ok) = violations(session);
        let mut json = report_json(&report);
        json["violations"] = bad_json;
        Ok(Outcome::new(report_text("fini", &report) + &bad_text, json).with_ok(ok))
    })
}
