//! What a trace must be by itself, before anything is compared with it: rows in order, and frames,
//! commands, fences and responses as the list of PSP messages has them.

use serde_json::Value;

use super::bus::{number, unhex};

/// Row numbers that do not follow each other: a row is missing, doubled or out of its order.
pub fn rows(rows: &[Value]) -> Vec<String> {
    if rows.iter().all(|row| row["i"].is_null()) {
        return Vec::new();
    }
    let wrong = rows.iter().enumerate().filter(|(n, row)| row["i"].as_u64() != Some(*n as u64));
    wrong.take(1).map(|(n, row)| format!("row {n} of the trace has the number {}", row["i"])).collect()
}

/// Bytes of a VRAM row, where the trace has them.
fn data(row: &Value) -> Vec<u8> {
    unhex(row["data"].as_str().or(row["data_rstrip"].as_str()).unwrap_or(""))
}

fn address(value: &Value) -> u64 {
    value.as_str().and_then(|s| u64::from_str_radix(s.strip_prefix("0x")?, 16).ok()).unwrap_or(u64::MAX)
}

/// Length of a ring frame (`struct psp_gfx_rb_frame`, psp_gfx_if.h) and of a command.
const FRAME: u64 = 64;
const COMMAND: u64 = 1024;
/// Where the response starts in a command (`struct psp_gfx_cmd_resp`).
const RESPONSE: usize = 864;

fn without_zeros(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|b| *b != 0).map_or(0, |n| n + 1);
    bytes.get(..end).unwrap_or(&[])
}

/// Compares the frames, commands, fences and responses that stand in a trace with the list.
pub(super) fn psp(rows: &[Value], list: &Value) -> Vec<String> {
    let entries: Vec<&Value> = list.as_array().into_iter().flatten().filter(|e| e["kind"] == "cmd").collect();
    let Some(first) = entries.first() else { return Vec::new() };
    let (command_at, fence_at) = (address(&first["cmd_pa"]), address(&first["fence_pa"]));
    let of = |op: &str, len: u64, at: Option<u64>| -> Vec<&Value> {
        let fits = |r: &&Value| {
            r["op"] == op && number(&r["len"]) == len && at.is_none_or(|at| number(&r["pa"]) == at)
        };
        rows.iter().filter(fits).collect()
    };
    let commands = of("vw", COMMAND, Some(command_at));
    let frames = of("vw", FRAME, None);
    let fences = of("vr", 4, Some(fence_at));
    let responses = of("vr", COMMAND, Some(command_at));
    let mut out = Vec::new();
    for (what, found) in
        [("commands", &commands), ("frames", &frames), ("fences", &fences), ("responses", &responses)]
    {
        if found.len() != entries.len() {
            let (n, listed) = (found.len(), entries.len());
            out.push(format!("the trace has {n} PSP {what}, the list of messages {listed}"));
        }
    }
    for (n, entry) in entries.iter().enumerate() {
        let name = entry["cmd"].as_str().unwrap_or("?");
        let mut differs = |what: &str, row: Option<&&Value>, equal: &dyn Fn(&Value) -> bool| {
            if let Some(row) = row.filter(|row| !equal(row)) {
                out.push(format!(
                    "row {}: {what} of PSP command {n} ({name}) is not the listed one",
                    row["i"]
                ));
            }
        };
        let command = unhex(entry["cmd_buf"].as_str().unwrap_or(""));
        let frame = unhex(entry["frame"].as_str().unwrap_or(""));
        differs("the command", commands.get(n), &|row| {
            without_zeros(&data(row)) == without_zeros(&command) && has_digest(row)
        });
        differs("the frame", frames.get(n), &|row| data(row) == frame);
        differs("the fence", fences.get(n), &|row| {
            data(row) == (number(&entry["fence_value"]) as u32).to_le_bytes()
        });
        differs("the response", responses.get(n), &|row| {
            let bytes = data(row);
            let command = without_zeros(&command);
            let kept = bytes.get(..RESPONSE).unwrap_or(&bytes);
            let tmr = bytes.get(RESPONSE + 16..RESPONSE + 20);
            let tmr = tmr.map_or(0, |b| b.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b)));
            let size = &entry["resp_tmr_size"];
            without_zeros(kept) == command && has_digest(row) && (size.is_null() || address(size) == tmr)
        });
    }
    out
}

/// Whether the digest of a row is that of its bytes, where it has both.
fn has_digest(row: &Value) -> bool {
    let (Some(digest), Some(_)) = (row["sha256"].as_str(), row["data_rstrip"].as_str()) else { return true };
    let mut bytes = data(row);
    bytes.resize(number(&row["len"]).min(1 << 20) as usize, 0);
    crate::golden_facts::sha256(&bytes) == digest
}
