//! Measuring beside the owner of a device.

use crate::bus_session::Answer;
use crate::error::CliError;
use crate::owner::{Key, Owner, OwnerError};
use crate::session::{Measured, Sample, Session, SmiReport};
use std::io::Read as _;
use std::time::{Duration, Instant};

/// How long an owner may take to answer: it does so between two accesses of its own.
const ANSWERS: Duration = Duration::from_secs(5);
/// An answer is shorter.
const LONGEST: u64 = 64 << 10;

/// A sample from the owner of a device; if nobody owns it, `open` opens it for a moment.
///
/// # Errors
/// What the owner says, or that it says nothing; what opening and measuring say.
pub fn sample(
    key: &Key,
    open: impl FnOnce(Owner) -> anyhow::Result<Box<dyn Session>>,
) -> anyhow::Result<Sample> {
    let start = Instant::now();
    let look = loop {
        if let Some(report) = ask(key)? {
            return Ok(Sample::Report(report));
        }
        match Owner::to_look(key) {
            Ok(look) => break look,
            // Somebody has taken it since.
            Err(OwnerError::Taken { .. }) if start.elapsed() < ANSWERS => {}
            Err(e) => return Err(CliError::Device(e.to_string()).into()),
        }
    };
    let mut session = open(look)?;
    let report = session.smi();
    let released = session.release();
    let report = report?;
    released?;
    Ok(Sample::Report(report))
}

/// Asks the owner; `None` if there is none.
fn ask(key: &Key) -> anyhow::Result<Option<SmiReport>> {
    let device = |e: String| anyhow::Error::from(CliError::Device(e));
    let Some(stream) = key.ask().map_err(|e| device(e.to_string()))? else { return Ok(None) };
    let owner = key.owner().unwrap_or_else(|| "its owner".into());
    stream.set_read_timeout(Some(ANSWERS))?;
    let mut text = Vec::new();
    let heard = stream.take(LONGEST).read_to_end(&mut text);
    if heard.is_err() || text.is_empty() {
        let silent = match key.owner() {
            // It has ended meanwhile.
            None => return Ok(None),
            Some(owner) => format!(
                "{owner} has the device and did not answer within {} s: it boots, resets or shuts the device \
                 down, or does other work; try again",
                ANSWERS.as_secs()
            ),
        };
        return Err(device(silent));
    }
    match serde_json::from_slice(&text) {
        Ok(Answer::Report(report)) => Ok(Some(SmiReport { measured: Measured::Owner, ..report })),
        Ok(Answer::Error(why)) => Err(device(format!("{owner}, which has the device, says: {why}"))),
        Err(e) => Err(device(format!("{owner}, which has the device, answers what is no sample: {e}"))),
    }
}
