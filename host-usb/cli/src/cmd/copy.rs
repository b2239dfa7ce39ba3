//! `copy`

use super::violations;
use crate::args::CopyArgs;
use crate::dtype::DType;
use crate::error::CliError;
use crate::generate::Generator;
use crate::output::{Outcome, bytes, micros, rate, table};
use crate::progress::Progress;
use crate::session::{BootOptions, Session};
use anyhow::ensure;
use serde_json::json;

/// The most that is copied at once: larger copies are made of several. Host and simulated VRAM hold
/// two of it each, however much is copied.
const PART: u64 = 8 << 20;

/// Time of each leg in nanoseconds, summed over parts and repetitions, and what was wrong.
#[derive(Default)]
struct Legs {
    up: u64,
    across: u64,
    down: u64,
    wrong: u64,
}

pub(crate) fn run(context: &mut crate::Context<'_>, args: &CopyArgs) -> anyhow::Result<Outcome> {
    ensure!(args.size > 0, CliError::Usage("--size 0 copies nothing".into()));
    let timeout = context.global.timeout;
    let (legs, (bad_text, bad_json, clean)) = context.with_session("copy", true, |session, progress| {
        let vram = session.info()?.vram_bytes;
        ensure!(
            args.size <= vram,
            CliError::Usage(format!(
                "--size {} is more than the device's {} of VRAM; --repeat copies as much as you like",
                bytes(args.size),
                bytes(vram)
            ))
        );
        session.boot(&BootOptions::default(), progress)?;
        let legs = measure(session, args, &crate::Limit::new(timeout), progress)?;
        Ok((legs, violations(session)))
    })?;
    let moved = args.size.saturating_mul(u64::from(args.repeat));
    let leg = |name: &str, ns: u64| vec![name.to_owned(), micros(ns / 1000), rate(moved, ns)];
    let rows =
        [leg("host to VRAM", legs.up), leg("VRAM to VRAM", legs.across), leg("VRAM to host", legs.down)];
    let parts = args.size.div_ceil(PART);
    let in_parts = if parts > 1 { format!(" in {parts} parts") } else { String::new() };
    let text = format!(
        "{}{} x {}{in_parts}: {}\n{bad_text}",
        table(&["copy", "time>", "rate>"], &rows),
        bytes(args.size),
        args.repeat,
        if legs.wrong == 0 { "every byte right".to_owned() } else { format!("{} bytes WRONG", legs.wrong) }
    );
    let json = json!({
        "size": args.size, "repeat": args.repeat, "parts": parts, "wrong_bytes": legs.wrong,
        "violations": bad_json, "host_to_vram_ns": legs.up, "vram_to_vram_ns": legs.across,
        "vram_to_host_ns": legs.down,
    });
    Ok(Outcome::new(text, json).with_ok(legs.wrong == 0 && clean))
}

/// Copies there and back, part by part.
fn measure(
    session: &mut dyn Session,
    args: &CopyArgs,
    limit: &crate::Limit,
    progress: &mut dyn Progress,
) -> anyhow::Result<Legs> {
    let part = args.size.min(PART);
    let (from, to) = (session.alloc(part)?, session.alloc(part)?);
    let mut back = Vec::new();
    back.try_reserve_exact(part as usize).map_err(|_| anyhow::anyhow!("no memory for {part} bytes"))?;
    back.resize(part as usize, 0);
    let mut legs = Legs::default();
    let total = args.size.saturating_mul(u64::from(args.repeat));
    let (mut done, mut seed) = (0u64, 0u32);
    progress.begin("copy", Some(total));
    for _ in 0..args.repeat {
        let mut left = args.size;
        while left > 0 {
            limit.check(|| format!("{} of {} were copied", bytes(done), bytes(total)))?;
            let len = left.min(part);
            // Another pattern each time, so that old data cannot pass for new.
            seed = seed.wrapping_add(1);
            let data = Generator::Lcg { seed }.bytes(DType::U8, len as usize).map_err(anyhow::Error::msg)?;
            let back = back.get_mut(..len as usize).unwrap_or_default();
            legs.up += session.upload(from, &data)?;
            legs.across += session.copy(to, from, len)?;
            legs.down += session.download(to, back)?;
            legs.wrong += data.iter().zip(back.iter()).filter(|(a, b)| a != b).count() as u64;
            left -= len;
            done += len;
            progress.step(done);
        }
    }
    progress.end((legs.up + legs.across + legs.down) / 1000);
    session.free(to)?;
    session.free(from)?;
    Ok(legs)
}
