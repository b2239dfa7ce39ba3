//! Submissions to SDMA rings, and what fault 23 explains of their recordings.

use amdev_core::iface::QueueKind;
use amdev_core::queue::QueueError;
use amdev_core::queue::sdma;
use serde_json::Value;

use super::super::{FAULT_23, Setup};
use super::{FILLER, Rig, Rows, contents, equal, need, numbers, order, pattern, rig};
use crate::golden_program::number;
use crate::verdict::Verdict;

/// What an engine reads from the ring between two positions in bytes; `None` if it is more than the
/// ring holds.
fn consumed(ring: &[u32], from: u64, to: u64) -> Option<Vec<u32>> {
    let size = ring.len() as u64 * 4;
    (to.checked_sub(from)? < size)
        .then(|| (from..to).step_by(4).map(|at| ring[(at % size) as usize / 4]).collect())
}

/// Whether an engine that starts at `put` would execute exactly these packets, none of them split at
/// the ring's end, with nothing but zeros between.
fn executes(ring: &[u32], put: u64, end: u64, packets: &[&[u32]]) -> bool {
    let Some(read) = consumed(ring, put, end) else { return false };
    let in_ring = ring.len() - (put as usize / 4) % ring.len();
    let mut at = 0;
    for packet in packets {
        while read.get(at) == Some(&0) && packet.first() != Some(&0) {
            at += 1;
        }
        let split = at < in_ring && at + packet.len() > in_ring;
        if split || read.get(at..at + packet.len()) != Some(packet) {
            return false;
        }
        at += packet.len();
    }
    read[at..].is_empty()
}

/// The ring of the recording after a submission.
fn recorded_ring(row: &Value, size: u64) -> Vec<u32> {
    let (key, filler) =
        if row["ring_changed"].is_object() { ("ring_changed", FILLER) } else { ("ring_nonzero", 0) };
    let mut ring = vec![filler; size as usize / 4];
    for (index, value) in row[key].as_object().into_iter().flatten() {
        if let (Some(word), Some(v)) =
            (index.parse::<usize>().ok().and_then(|i| ring.get_mut(i)), number(value))
        {
            *word = v as u32;
        }
    }
    ring
}

/// Whether the reference wrote at least a whole ring, over what it had just submitted.
fn overran(rig: &Rig, row: &Value) -> bool {
    number(&row["put_value"]).is_some_and(|end| end.saturating_sub(rig.put) >= rig.ring.size())
}

/// Whether fault 23 explains that the recording differs: an engine would execute the packets from our
/// ring, and the reference either overran its own, or moved to the ring's start a packet that fits
/// exactly before its end.
fn fault_23(rig: &Rig, row: &Value, packets: &[&[u32]]) -> bool {
    let (size, ours, end) = (rig.ring.size(), rig.memory.dwords(), rig.ring.put());
    let recorded_end = number(&row["put_value"]).unwrap_or(0);
    let last_used = ours.last().is_some_and(|w| *w != 0 || end % size == 0);
    let exact_fit = end < recorded_end
        && last_used
        && end - rig.put >= size - rig.put % size
        && executes(&recorded_ring(row, size), rig.put, recorded_end, packets);
    executes(&ours, rig.put, end, packets) && (exact_fit || overran(rig, row))
}

pub(super) fn sdma_submit(
    setup: &Setup,
    row: &Value,
    place: &str,
    verdict: &mut Verdict,
) -> Result<Rows, String> {
    let mut rig = rig(setup, row, QueueKind::Sdma, FILLER)?;
    let sizes: Vec<usize> = numbers(&row["packet_sizes"]).iter().map(|n| *n as usize).collect();
    let dwords = pattern(sizes.iter().sum::<usize>() as u64);
    let mut packets = Vec::new();
    let mut rest = dwords.as_slice();
    for size in &sizes {
        let (packet, after) = rest.split_at(*size);
        packets.push(packet);
        rest = after;
    }
    match rig.ring.submit_sdma_packets(&mut rig.memory, &dwords, sizes.iter().copied(), 1000) {
        Err(_) if row["error"].is_string() => return Ok(Rows::new()),
        Err(QueueError::SubmissionTooLarge { .. }) => {
            if !overran(&rig, row) {
                return Err("refused, although the reference submits it unharmed".into());
            }
            if !rig.memory.events.is_empty() {
                return Err("refused, but something was written".into());
            }
            verdict.deviation(FAULT_23, place);
            return Ok(Rows::new());
        }
        Err(e) => return Err(format!("refused: {e}")),
        Ok(()) if row["error"].is_string() => return Err("accepted what the reference refuses".into()),
        Ok(()) => {}
    }
    finish(setup, &rig, row, &packets, place, verdict)
}

pub(super) fn sdma_bind(
    setup: &Setup,
    row: &Value,
    buffer: &[u32],
    place: &str,
    verdict: &mut Verdict,
) -> Result<Rows, String> {
    let mut rig = rig(setup, row, QueueKind::Sdma, 0)?;
    let mut out = equal("indirect buffer", buffer, &row["ib"]);
    let (va, len) = (need(row, "ib_addr")?, buffer.len() as u32);
    let packet = sdma::indirect(va, len).map_err(|e| e.to_string())?;
    out.extend(equal("packet", &packet, &row["indirect_cmd"]));
    rig.ring.submit_sdma_indirect(&mut rig.memory, va, len, 1000).map_err(|e| e.to_string())?;
    if rig.ring.put() % 32 != 0 {
        out.push("the packet does not end at a multiple of 8 dwords".into());
    }
    out.extend(finish(setup, &rig, row, &[&packet], place, verdict)?);
    Ok(out)
}

/// Compares a ring after a submission; what fault 23 explains is a deviation.
fn finish(
    setup: &Setup,
    rig: &Rig,
    row: &Value,
    packets: &[&[u32]],
    place: &str,
    verdict: &mut Verdict,
) -> Result<Rows, String> {
    let mut out = contents(&rig.memory, row);
    let mut told = row.clone();
    if !out.is_empty() && fault_23(rig, row, packets) {
        verdict.deviation(FAULT_23, place);
        out.clear();
        for key in ["put_value", "write_ptr", "doorbell"] {
            told[key] = Value::Null;
        }
    }
    out.extend(order(setup, rig, &told, place, verdict));
    Ok(out)
}
