//! `release`: what a process left behind is ended.

use super::violations;
use crate::error::CliError;
use crate::output::Outcome;
use crate::session::{BootOptions, DeviceState};
use serde_json::json;

pub(crate) fn run(context: &mut crate::Context<'_>) -> anyhow::Result<Outcome> {
    let spec = context.global.device.clone();
    let backend = context.program.backends.iter().find(|b| b.serves(&spec)).ok_or_else(|| {
        CliError::Device(format!("{} is built without support for {spec}", context.program.name))
    })?;
    if let Some(done) = backend.give_back(&spec) {
        let what = done?;
        let json = json!({ "device": spec.to_string(), "done": what });
        return Ok(Outcome::new(format!("{spec}: {what}\n"), json));
    }
    let (before, done, (bad_text, bad_json, ok)) =
        context.with_session("release", true, |session, progress| {
            let before = session.state()?;
            if before != DeviceState::Disorder {
                return Ok((before, "nothing to do", violations(session)));
            }
            // A boot knows how to end what the dead process left with the least loss; the release of
            // the session then shuts the device down.
            session.boot(&BootOptions::default(), progress)?;
            session.fini(progress)?;
            Ok((before, "queues were taken down, translation is off", violations(session)))
        })?;
    let text = format!("{spec}: {before}; {done}\n{bad_text}");
    let json = json!({ "device": spec.to_string(), "state": before.to_string(), "done": done, "violations": bad_json });
    Ok(Outcome::new(text, json).with_ok(ok))
}
