//! `run`

use super::violations;
use crate::args::RunArgs;
use crate::argspec::{ArgSpec, Direction};
use crate::dtype::DType;
use crate::error::CliError;
use crate::files;
use crate::output::{Outcome, micros, sha256};
use crate::progress::Progress;
use crate::session::{BootOptions, DeviceBuffer, KernelArg, KernelInfo, Session};
use anyhow::Context as _;
use serde_json::{Value, json};
use std::path::Path;

/// A buffer argument on its way through the run.
struct Buffer<'a> {
    index: usize,
    direction: Direction,
    dtype: DType,
    save: Option<&'a Path>,
    before: Vec<u8>,
    device: DeviceBuffer,
}

/// How many elements of an output are shown.
const FIRST: usize = 8;

pub(crate) fn run(context: &mut crate::Context<'_>, args: &RunArgs) -> anyhow::Result<Outcome> {
    let usage = |e: String| anyhow::Error::from(CliError::Usage(e));
    // Everything that can be wrong on this side is found before the device is touched.
    let image = files::read(&args.file, files::MAX_CODE_OBJECT).map_err(usage)?;
    let initial = args.args.iter().map(ArgSpec::initial).collect::<Result<Vec<_>, _>>().map_err(usage)?;

    let timeout = context.global.timeout;
    context.with_session("run", true, |session, progress| {
        session.boot(&BootOptions::default(), progress)?;
        let kernel = session
            .load(&image, args.kernel.as_deref())
            .with_context(|| format!("loading {}", args.file.display()))?;
        let limit = crate::Limit::new(timeout);
        execute(session, args, kernel, initial, &limit, progress)
    })
}

/// Everything after the boot.
fn execute(
    session: &mut dyn Session,
    args: &RunArgs,
    kernel: KernelInfo,
    initial: Vec<Vec<u8>>,
    limit: &crate::Limit,
    progress: &mut dyn Progress,
) -> anyhow::Result<Outcome> {
    let mut buffers = Vec::new();
    let mut kernel_args = Vec::new();
    for (index, (spec, bytes)) in args.args.iter().zip(initial).enumerate() {
        match spec {
            ArgSpec::Value { .. } => kernel_args.push(KernelArg::Value(bytes)),
            ArgSpec::Buffer { direction, dtype, save, .. } => {
                let device = session.alloc(bytes.len() as u64)?;
                session.upload(device, &bytes)?;
                kernel_args.push(KernelArg::Buffer(device));
                let (direction, dtype, save) = (*direction, *dtype, save.as_deref());
                buffers.push(Buffer { index, direction, dtype, save, before: bytes, device });
            }
        }
    }
    let mut times = Times::default();
    progress.begin("run", Some(args.repeat.into()));
    for n in 0..args.repeat {
        limit.check(|| format!("{n} of {} runs were done", args.repeat))?;
        times.push(session.run(args.grid, args.block, &kernel_args)?);
        progress.step(u64::from(n) + 1);
    }
    progress.end(times.sum / 1000);

    let mut text = format!("kernel {}: {}\n", kernel.name, times.text());
    let mut outputs = Vec::new();
    let mut ok = true;
    for buffer in &buffers {
        let (line, row, right) = collect(session, buffer)?;
        text += &line;
        outputs.extend(row);
        ok &= right;
    }
    for buffer in buffers.iter().rev() {
        session.free(buffer.device)?;
    }
    let (bad_text, bad_json, clean) = violations(session);
    let json = json!({
        "kernel": kernel, "grid": args.grid, "block": args.block, "times_ns": times.first,
        "runs": times.count, "shortest_ns": times.least, "longest_ns": times.most, "total_ns": times.sum,
        "outputs": outputs, "violations": bad_json,
    });
    Ok(Outcome::new(text + &bad_text, json).with_ok(ok && clean))
}

/// Reads a buffer back. An input must be unchanged; an output is shown and saved.
fn collect(session: &mut dyn Session, buffer: &Buffer<'_>) -> anyhow::Result<(String, Option<Value>, bool)> {
    let len = buffer.before.len();
    let mut after = Vec::new();
    after.try_reserve_exact(len).map_err(|_| anyhow::anyhow!("no memory for {len} bytes"))?;
    after.resize(len, 0);
    session.download(buffer.device, &mut after)?;
    let (index, dtype) = (buffer.index, buffer.dtype);
    if buffer.direction == Direction::In {
        let right = after == buffer.before;
        let text = format!("argument {index}: the kernel wrote to an input buffer\n");
        return Ok((if right { String::new() } else { text }, None, right));
    }
    if let Some(path) = buffer.save {
        std::fs::write(path, &after).with_context(|| format!("writing {}", path.display()))?;
    }
    let elements = || after.chunks_exact(dtype.size()).take(FIRST);
    let first: Vec<String> = elements().map(|e| dtype.show(e)).collect();
    let bits: Vec<String> = elements().map(|e| dtype.show_bits(e)).collect();
    let (count, sha) = (after.len() / dtype.size(), sha256(&after));
    let more = if count > FIRST { ", ..." } else { "" };
    let text = format!("argument {index} ({dtype} x {count}): {}{more}\n  sha256 {sha}\n", first.join(", "));
    let row = json!({
        "arg": index, "type": dtype.name(), "count": count, "sha256": sha, "first": first, "first_bits": bits,
    });
    Ok((text, Some(row), true))
}

/// How long runs took, in nanoseconds.
#[derive(Default)]
struct Times {
    /// The first ones: how many there are, nobody limits.
    first: Vec<u64>,
    count: u64,
    least: u64,
    most: u64,
    sum: u64,
}

impl Times {
    fn push(&mut self, ns: u64) {
        const KEPT: usize = 10_000;
        if self.first.len() < KEPT {
            self.first.push(ns);
        }
        self.least = if self.count == 0 { ns } else { self.least.min(ns) };
        self.most = self.most.max(ns);
        self.sum = self.sum.saturating_add(ns);
        self.count += 1;
    }

    fn text(&self) -> String {
        match self.count {
            1 => micros(self.sum / 1000),
            n => format!("{n} runs, shortest {}", micros(self.least / 1000)),
        }
    }
}
