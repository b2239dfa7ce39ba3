//! Faults that the device cannot see by itself, but a reader of the trace can.

use amdev_core::reg::Block;
use amdev_sim::SimGpu;
use anyhow::Result;
use serde_json::Value;

use crate::replay::Place;

fn number(v: &Value) -> u64 {
    v.as_u64().unwrap_or(0)
}

/// Whether a boot has fault 10: MP0 14 loads an IP key manager that the reference leaves out; MP0 13
/// gets the key database as policy table, which is a fault where the container has none.
pub(super) fn has_fault_10(place: &Place, gpu: &str, flow: &str) -> Result<bool> {
    let (regs, _) = place.registers()?;
    let package = if flow.ends_with("fw2025") { "2025" } else { "2026" };
    let list = place.firmware_list()?;
    let sos = list[gpu][package]["sos"].as_array().cloned().unwrap_or_default();
    let has = |ty: u64| sos.iter().any(|s| s["psp_fw_type"] == ty);
    Ok(match regs.table(Block::Mp0).map(|t| t.version.0) {
        Some(13) => !has(5),
        _ => has(11),
    })
}

/// Faults by number, with their places. Asks the GPU, which is in the state before the trace.
pub(super) fn find(rows: &[Value], gpu: &SimGpu, place: &Place, name: &str) -> Result<Vec<(u32, String)>> {
    let mut out = Vec::new();
    out.extend(dead_smu(rows).map(|what| (3, what)));
    out.extend(long_messages(rows).into_iter().map(|what| (7, what)));
    out.extend(skipped_flushes(rows, gpu).into_iter().map(|what| (8, what)));
    let policy = rows.iter().find(|r| is_write(r, "C2PMSG_35") && number(&r["val"]) == 0x1000_0000);
    let (regs, _) = place.registers()?;
    let mp0 = regs.table(Block::Mp0).map(|t| t.version.0);
    if let Some(row) = policy
        && mp0 == Some(13)
        && has_fault_10(place, name, "boot")?
    {
        out.push((10, format!("row {}: a policy table is sent that the container does not have", row["i"])));
    }
    Ok(out)
}

fn is_write(row: &Value, name: &str) -> bool {
    row["op"] == "w" && row["name"].as_str().is_some_and(|n| n.ends_with(name))
}

/// Fault 3: the secure OS is alive, the SMU does not answer, and the driver gives up.
fn dead_smu(rows: &[Value]) -> Option<String> {
    let last = rows.last().filter(|r| r["op"] == "exception")?;
    let is_sos = |r: &&Value| r["op"] == "r" && r["name"].as_str().is_some_and(|n| n.ends_with("C2PMSG_81"));
    let sos = rows.iter().rfind(is_sos)?;
    let polled = rows.iter().rfind(|r| r["op"] == "r")?;
    let mailbox = polled["name"].as_str().is_some_and(|n| n.ends_with("C2PMSG_90"));
    (number(&sos["val"]) != 0 && mailbox && number(&polled["val"]) == 0)
        .then(|| format!("row {}: the driver gives up at a dead SMU: {}", last["i"], last["err"]))
}

/// Fault 7: a message is longer than the image that the PSP is then told of.
fn long_messages(rows: &[Value]) -> Vec<String> {
    let mut out = Vec::new();
    let mut message = (0, 0, 0);
    for row in rows.iter().filter(|r| r["op"] == "vw") {
        let len = number(&row["len"]);
        let data = row["data_rstrip"].as_str().unwrap_or("");
        let dword = |at: usize| {
            let text = data.get(at * 2..).unwrap_or("");
            let text = format!("{:0<8}", text.get(..8.min(text.len())).unwrap_or(""));
            u32::from_str_radix(&text, 16).unwrap_or(0).swap_bytes()
        };
        // LOAD_TOC and LOAD_IP_FW (psp_gfx_if.h) have the image's length in dword 9.
        if len == 1024 && matches!(dword(8), 0x20 | 0x06) {
            let size = u64::from(dword(36));
            if message.0 > size {
                out.push(format!(
                    "row {}: {} bytes are written for an image of {size}",
                    message.1, message.0
                ));
            }
        } else if row["sha256"].is_string() && len != 2048 && len != 1024 {
            message = (len, number(&row["i"]), number(&row["pa"]));
        }
    }
    out
}

/// Fault 8: a flush of MMHUB's TLB that makes no request although the hub is on.
fn skipped_flushes(rows: &[Value], gpu: &SimGpu) -> Vec<String> {
    let mut context = [0; 4];
    let at = gpu.register("MMVM_CONTEXT0_CNTL");
    let enabled = at.is_some_and(|at| gpu.read(5, u64::from(at) * 4, &mut context).is_ok())
        && u32::from_le_bytes(context) & 1 != 0;
    let mut out = Vec::new();
    for (n, row) in rows.iter().enumerate().filter(|(_, r)| r["fn"] == "AM_GMC.flush_tlb") {
        let hub = row["args"].get(0).or_else(|| row["kw"].get("ip"));
        let own = rows.iter().skip(n + 1).take_while(|r| r["op"] != "mark");
        let requested = own.into_iter().any(|r| is_write(r, "MMVM_INVALIDATE_ENG17_REQ"));
        // What the trace itself switches on counts too.
        let on = enabled
            || rows.iter().take(n).any(|r| is_write(r, "MMVM_CONTEXT0_CNTL") && number(&r["val"]) & 1 != 0);
        if hub.is_some_and(|h| h == "MM") && on && !requested {
            out.push(format!("row {}: the flush of MMHUB makes no request", row["i"]));
        }
    }
    out
}
