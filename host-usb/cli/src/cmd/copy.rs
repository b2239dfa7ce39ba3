//! `copy`

use super::violations;
use crate::args::CopyArgs;
use crate::dtype::DType;
use crate::generate::Generator;
use crate::output::{Outcome, bytes, micros, rate, table};
use crate::session::{BootOptions, Session};
use anyhow::{Context as _, ensure};
use serde_json::json;

/// Time of each leg in nanoseconds, summed over the repetitions.
#[derive(Default)]
struct Legs {
    up: u64,
    across: u64,
    down: u64,
}

pub(crate) fn run(context: &mut crate::Context<'_>, args: &CopyArgs) -> anyhow::Result<Outcome> {
    ensure!(args.size > 0, crate::error::CliError::Usage("--size 0 copies nothing".into()));
    let len = usize::try_from(args.size).context("--size does not fit into this machine's memory")?;
    let (legs, wrong, (bad_text, bad_json, clean)) =
        context.with_session("copy", true, |session, progress| {
            session.boot(&BootOptions::default(), progress)?;
            let (legs, wrong) = measure(session, len, args.repeat)?;
            Ok((legs, wrong, violations(session)))
        })?;
    let moved = args.size.saturating_mul(u64::from(args.repeat));
    let leg = |name: &str, ns: u64| vec![name.to_owned(), micros(ns / 1000), rate(moved, ns)];
    let rows =
        [leg("host to VRAM", legs.up), leg("VRAM to VRAM", legs.across), leg("VRAM to host", legs.down)];
    let text = format!(
        "{}{} x {}: {}\n{bad_text}",
        table(&["copy", "time>", "rate>"], &rows),
        bytes(args.size),
        args.repeat,
        if wrong == 0 { "every byte right".to_owned() } else { format!("{wrong} bytes WRONG") }
    );
    let json = json!({
        "size": args.size, "repeat": args.repeat, "wrong_bytes": wrong, "violations": bad_json,
        "host_to_vram_ns": legs.up, "vram_to_vram_ns": legs.across, "vram_to_host_ns": legs.down,
    });
    Ok(Outcome::new(text, json).with_ok(wrong == 0 && clean))
}

/// Copies there and back; the time of each leg and the number of wrong bytes.
fn measure(session: &mut dyn Session, len: usize, repeat: u32) -> anyhow::Result<(Legs, u64)> {
    let size = len as u64;
    let from = session.alloc(size)?;
    let to = session.alloc(size)?;
    let mut back = Vec::new();
    back.try_reserve_exact(len).map_err(|_| anyhow::anyhow!("no memory for {len} bytes"))?;
    back.resize(len, 0);
    let mut legs = Legs::default();
    let mut wrong = 0u64;
    for round in 0..repeat {
        // Another pattern each time, so that old data cannot pass for new.
        let data = Generator::Lcg { seed: round + 1 }.bytes(DType::U8, len).map_err(anyhow::Error::msg)?;
        legs.up += session.upload(from, &data)?;
        legs.across += session.copy(to, from, size)?;
        legs.down += session.download(to, &mut back)?;
        wrong += data.iter().zip(&back).filter(|(a, b)| a != b).count() as u64;
    }
    session.free(to)?;
    session.free(from)?;
    Ok((legs, wrong))
}
