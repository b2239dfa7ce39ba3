//! Judges recorded messages to the firmware (`psp.json`, `smu.json`) against those that this driver
//! sends in the same flow.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use amdev_core::reg::Block;
use amdev_core::reg::smu::Message;
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use crate::golden_program::number;
use crate::replay::{Deviations, Place, replay_at};
use crate::verdict::Verdict;

/// Fault 10 of the reference: which components the bootloader gets.
pub const FAULT_10: &str = "fault 10: bootloader components (key database as policy table on MP0 13 without \
    one; IP key manager left out on MP0 14)";

/// The flow whose PSP messages a list holds, by the list's name without `.json`.
fn psp_flow(name: &str) -> Result<(&'static str, &'static str)> {
    Ok(match name {
        "psp" => ("boot", "2026"),
        "psp_fw2025" => ("boot_fw2025", "2025"),
        "reset_psp" => ("reset", "2026"),
        other => bail!("{other} is none of psp, psp_fw2025, reset_psp"),
    })
}

/// Judges a list of PSP messages (its name without `.json`) with the trace beside it.
///
/// # Errors
/// Files that are missing or not of their format.
pub fn psp(name: &str, json: &[u8], place: &Place) -> Result<Verdict> {
    let (flow, package) = psp_flow(name)?;
    let list: Value = serde_json::from_slice(json).context("not JSON")?;
    let listed = list.as_array().context("not a list of messages")?;
    let report = replay_at(place, flow, &[], &Deviations::load()?)?;
    let (regs, chip) = place.registers()?;
    let mp0 = regs.table(Block::Mp0).map_or(0, |t| t.version.0);
    let firmware = &place.firmware_list()?[chip.name.to_lowercase()][package];
    let mut verdict = Verdict::default();
    let mut sent = report.psp_sent.iter().peekable();
    let has_policy = firmware["sos"].as_array().into_iter().flatten().any(|s| s["psp_fw_type"] == 5);
    for (n, entry) in listed.iter().enumerate() {
        let place = format!("message {n}");
        let spl = entry["kind"] == "bootloader" && entry["compid"] == "0x10000000";
        if spl && mp0 == 13 && !has_policy && sent.peek().is_some_and(|s| s["compid"] != entry["compid"]) {
            verdict.deviation(FAULT_10, &place);
            verdict.row(&place, vec![]);
            continue;
        }
        let mut own = sent.next();
        let key_manager = |s: &Value| s["kind"] == "bootloader" && s["compid"] == "0xf0000";
        if mp0 == 14 && own.is_some_and(key_manager) && entry["compid"] != "0xf0000" {
            verdict.deviation(FAULT_10, &place);
            own = sent.next();
        }
        verdict.row(
            &place,
            match own {
                None => vec!["this driver sends no such message".into()],
                Some(own) => message(entry, own, firmware),
            },
        );
    }
    let more = sent.count();
    let more = if more > 0 { vec![format!("this driver sends {more} messages more")] } else { vec![] };
    verdict.row("number of messages", more);
    Ok(verdict)
}

fn message(entry: &Value, own: &Value, firmware: &Value) -> Vec<String> {
    let empty = Map::new();
    let (theirs, ours) = (entry.as_object().unwrap_or(&empty), own.as_object().unwrap_or(&empty));
    let mut out = Vec::new();
    for (key, value) in theirs {
        let found = match key.as_str() {
            "fw_type_name" => {
                let known = number(&ours.get("fw_type").cloned().unwrap_or_default()).and_then(type_name);
                known.map_or_else(|| value.clone(), |name| json!(name))
            }
            "fw_sha256" | "toc_sha256" => digest(ours, firmware).unwrap_or_default(),
            key => ours.get(key).cloned().unwrap_or_default(),
        };
        if found != *value {
            out.push(format!("{key} is {found}, recorded {value}"));
        }
    }
    let missing = ours.keys().filter(|k| *k != "image" && !theirs.contains_key(*k));
    out.extend(missing.map(|key| format!("{key} is not recorded")));
    out
}

/// The digest that `fw.json` has for the image of a command.
fn digest(ours: &Map<String, Value>, firmware: &Value) -> Option<Value> {
    let list = |key: &str| firmware[key].as_array().into_iter().flatten();
    let found = match ours.get("fw_type").and_then(number) {
        None => list("sos").find(|s| s["psp_fw_type"] == 4),
        Some(18) => Some(&firmware["smu"]),
        Some(ty) => list("descs").find(|d| d["fw_types"].as_array().is_some_and(|t| t.contains(&json!(ty)))),
    };
    found.map(|image| image["sha256"].clone())
}

/// `GFX_FW_TYPE_*` (psp_gfx_if.h) of the images that the supported GPUs load.
fn type_name(ty: u64) -> Option<&'static str> {
    Some(match ty {
        7 => "GFX_FW_TYPE_RLC_V",
        8 => "GFX_FW_TYPE_RLC_G",
        18 => "GFX_FW_TYPE_SMU",
        25 => "GFX_FW_TYPE_RLC_P",
        26 => "GFX_FW_TYPE_RLC_IRAM",
        48 => "GFX_FW_TYPE_RLC_DRAM_BOOT",
        68 => "GFX_FW_TYPE_IMU_I",
        69 => "GFX_FW_TYPE_IMU_D",
        71 => "GFX_FW_TYPE_SDMA_UCODE_TH0",
        72 => "GFX_FW_TYPE_SDMA_UCODE_TH1",
        87 => "GFX_FW_TYPE_RS64_PFP",
        88 => "GFX_FW_TYPE_RS64_ME",
        89 => "GFX_FW_TYPE_RS64_MEC",
        90 => "GFX_FW_TYPE_RS64_PFP_P0_STACK",
        92 => "GFX_FW_TYPE_RS64_ME_P0_STACK",
        94 => "GFX_FW_TYPE_RS64_MEC_P0_STACK",
        _ => return None,
    })
}

/// Judges a list of SMU messages with the boot's trace beside it.
///
/// # Errors
/// Files that are missing or not of their format.
pub fn smu(json: &[u8], place: &Place) -> Result<Verdict> {
    let list: Value = serde_json::from_slice(json).context("not JSON")?;
    let listed = list.as_array().context("not a list of messages")?;
    let report = replay_at(place, "boot", &[], &Deviations::load()?)?;
    let (_, chip) = place.registers()?;
    let interface = chip.smu()?;
    let mut names = BTreeMap::new();
    for (message, name) in [
        (Message::SetDriverDramAddrHigh, "PPSMC_MSG_SetDriverDramAddrHigh"),
        (Message::SetDriverDramAddrLow, "PPSMC_MSG_SetDriverDramAddrLow"),
        (Message::EnableAllSmuFeatures, "PPSMC_MSG_EnableAllSmuFeatures"),
        (Message::GetDpmFreqByIndex, "PPSMC_MSG_GetDpmFreqByIndex"),
        (Message::SetSoftMinByFreq, "PPSMC_MSG_SetSoftMinByFreq"),
        (Message::SetSoftMaxByFreq, "PPSMC_MSG_SetSoftMaxByFreq"),
    ] {
        names.insert(interface.message(message)?, name);
    }
    let mut verdict = Verdict::default();
    for (n, entry) in listed.iter().enumerate() {
        let mut out = Vec::new();
        match report.smu_sent.get(n) {
            None => out.push("this driver sends no such message".into()),
            Some((message, argument, answer)) => {
                // A message without an answer leaves its argument in the register.
                let own = json!({
                    "msg": message, "name": names.get(message), "arg": format!("{argument:#x}"),
                    "ret": format!("{:#x}", answer.unwrap_or(*argument)), "debug": false,
                });
                for key in ["msg", "name", "arg", "ret", "debug"] {
                    if entry[key] != own[key] {
                        out.push(format!("{key} is {}, recorded {}", own[key], entry[key]));
                    }
                }
            }
        }
        verdict.row(&format!("message {n}"), out);
    }
    let more = report.smu_sent.len().saturating_sub(listed.len());
    let more = if more > 0 { vec![format!("this driver sends {more} messages more")] } else { vec![] };
    verdict.row("number of messages", more);
    Ok(verdict)
}

/// The folder of a file.
pub fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p.to_owned(),
        _ => PathBuf::from("."),
    }
}
