//! `ring dump`

use super::violations;
use crate::args::{QueueName, RingCommand, RingDumpArgs};
use crate::dtype::DType;
use crate::error::CliError;
use crate::files;
use crate::generate::Generator;
use crate::kernels::{VECADD_BLOCK, vecadd};
use crate::output::{Outcome, table};
use crate::packets::{PacketRow, rows};
use crate::session::{BootOptions, KernelArg, RingImage, Session};
use amdev_core::iface::QueueKind;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Largest ring: 1 GiB, the most a ring pointer can count (`RB_SIZE`), 64 MiB of which are read.
const MAX_RING: u64 = 64 << 20;

impl From<QueueName> for QueueKind {
    fn from(name: QueueName) -> Self {
        match name {
            QueueName::Compute => QueueKind::Compute,
            QueueName::Sdma => QueueKind::Sdma,
        }
    }
}

pub(crate) fn run(context: &mut crate::Context<'_>, command: &RingCommand) -> anyhow::Result<Outcome> {
    let RingCommand::Dump(args) = command;
    if let (Some(path), Some(queue)) = (&args.file, args.queue) {
        return from_file(path, queue.into(), args);
    }
    let (rings, (bad_text, bad_json, ok)) = context.with_session("ring", true, |session, progress| {
        session.boot(&BootOptions::default(), progress)?;
        exercise(session)?;
        let wanted = [QueueName::Compute, QueueName::Sdma].into_iter().map(QueueKind::from);
        let wanted = wanted.filter(|kind| args.queue.is_none_or(|q| QueueKind::from(q) == *kind));
        let rings = wanted.map(|kind| session.ring(kind)).collect::<anyhow::Result<Vec<_>>>()?;
        Ok((rings, violations(session)))
    })?;
    let (mut text, mut list) = (String::new(), Vec::new());
    for ring in &rings {
        let (lines, json) = show(ring, args.last);
        text += &lines;
        list.push(json);
    }
    Ok(Outcome::new(text + &bad_text, json!({ "rings": list, "violations": bad_json })).with_ok(ok))
}

/// Work that leaves packets in both rings: a copy and the demo's kernel.
fn exercise(session: &mut dyn Session) -> anyhow::Result<()> {
    let len = u64::from(VECADD_BLOCK) * 4;
    let data = Generator::LcgUnit { seed: 1 }.bytes(DType::F32, VECADD_BLOCK as usize);
    let data = data.map_err(anyhow::Error::msg)?;
    let target = session.info()?.target;
    let (a, b) = (session.alloc(len)?, session.alloc(len)?);
    session.upload(a, &data)?;
    session.copy(b, a, len)?;
    if let Some(image) = vecadd(&target) {
        session.load(image, None)?;
        session.run([1, 1, 1], [VECADD_BLOCK, 1, 1], &[b, a, a].map(KernelArg::Buffer))?;
    }
    session.free(b)?;
    session.free(a)
}

fn from_file(path: &std::path::Path, kind: QueueKind, args: &RingDumpArgs) -> anyhow::Result<Outcome> {
    let data = files::read(path, MAX_RING).map_err(CliError::Usage)?;
    let (words, rest) = data.as_chunks::<4>();
    if !rest.is_empty() || words.is_empty() {
        let text = format!("{}: {} bytes are no whole dwords", path.display(), data.len());
        return Err(CliError::Usage(text).into());
    }
    let dwords: Vec<u32> = words.iter().map(|w| u32::from_le_bytes(*w)).collect();
    let (packets, error) = rows(kind, &dwords, &|_| None);
    let ring = RingImage {
        kind,
        size: data.len() as u64,
        read: 0,
        write: dwords.len() as u64,
        packets,
        error: error.map(|e| e.to_string()),
    };
    let ok = ring.error.is_none();
    let (text, json) = show(&ring, args.last);
    Ok(Outcome::new(text, json!({ "rings": [json] })).with_ok(ok))
}

fn show(ring: &RingImage, last: Option<u32>) -> (String, Value) {
    let skip = last.map_or(0, |n| ring.packets.len().saturating_sub(n as usize));
    let packets: &[PacketRow] = ring.packets.get(skip..).unwrap_or_default();
    let mut text = format!(
        "{} ring of {:#x} bytes: read pointer {:#x}, write pointer {:#x}\n",
        ring.kind, ring.size, ring.read, ring.write
    );
    let row =
        |p: &PacketRow| vec![format!("{:#x}", p.at), p.dwords.to_string(), p.name.clone(), p.text.clone()];
    let lines: Vec<_> = packets.iter().map(row).collect();
    text += &table(&["dword>", "length>", "packet", "says"], &lines);
    if let Some(error) = &ring.error {
        let _ = writeln!(text, "the rest is no packet: {error}");
    }
    let json = json!({
        "queue": ring.kind.to_string(), "size": ring.size, "read_pointer": ring.read,
        "write_pointer": ring.write, "packets": packets, "error": ring.error,
    });
    (text, json)
}
