//! Judges what is recorded of one device beside its traces: queue descriptors (`mqd.json`) and VM
//! faults (`faults.json`).

use amdev_core::fault::{VmFault, decode};
use amdev_core::queue::mqd::{ComputeQueue, MQD_DWORDS, Mqd};
use amdev_core::reg::{Block, Hub, RegFile, r};
use amdev_regs::Db;
use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::golden_program::number;
use crate::replay::Place;
use crate::verdict::Verdict;

/// First VRAM address behind the boot region, and the virtual address that it is mapped at.
const POOL: u64 = 32 << 20;
const VA_BASE: u64 = 0x2000_0000_0000;

/// Judges the bytes of an `mqd.json`; cases that `setup_ring.jsonl` beside it has are compared with
/// that too.
///
/// # Errors
/// Files that are missing or not of their format.
pub fn mqd(json: &[u8], place: &Place) -> Result<Verdict> {
    let all: Value = serde_json::from_slice(json).context("not JSON")?;
    let cases = all["cases"].as_object().or(all.as_object()).context("not an object of cases")?;
    let (regs, _) = place.registers()?;
    let trace = place.trace("setup_ring").unwrap_or_default();
    let mut verdict = Verdict::default();
    for (name, case) in cases {
        let mut out = Vec::new();
        let mut arg = |key: &str| {
            number(&case["args"][key]).unwrap_or_else(|| {
                out.push(format!("args.{key} is {}, not a number", case["args"][key]));
                0
            })
        };
        let at = number(&case["mqd_paddr"]).unwrap_or(0);
        let queue = ComputeQueue {
            mqd: (VA_BASE + at).wrapping_sub(POOL),
            ring: arg("ring_addr"),
            len: arg("ring_size") as u32,
            rptr: arg("rptr_addr"),
            wptr: arg("wptr_addr"),
            eop: arg("eop_addr"),
            eop_len: arg("eop_size") as u32,
            doorbell: arg("doorbell") as u32,
        };
        arg("pipe");
        arg("queue");
        let hex = case["mqd_hex"].as_str().unwrap_or("");
        let recorded = words(hex);
        // Where the recorded allocation is not the first, its address is only known from the MQD.
        let low = recorded.get(128).zip(recorded.get(129));
        let recorded_at = low.map_or(0, |(lo, hi)| u64::from(*lo) | u64::from(*hi) << 32);
        let queue = if at == POOL { queue } else { ComputeQueue { mqd: recorded_at, ..queue } };
        match Mqd::compute(&regs, &queue) {
            Err(e) => out.push(e.to_string()),
            Ok(mqd) => {
                let ours = words(&mqd.as_bytes().iter().map(|b| format!("{b:02x}")).collect::<String>());
                for (n, own) in ours.iter().enumerate() {
                    let theirs = recorded.get(n).copied().unwrap_or(0);
                    if *own != theirs {
                        out.push(format!("dword {n} is {own:#x}, recorded {theirs:#x}"));
                    }
                }
            }
        }
        if recorded.len() > MQD_DWORDS || hex.len() % 8 != 0 {
            out.push(format!("mqd_hex has {} digits", hex.len()));
        }
        if number(&case["mqd_len"]) != Some(MQD_DWORDS as u64 * 4) {
            out.push(format!("mqd_len is {}", case["mqd_len"]));
        }
        let nonzero: Value = recorded
            .iter()
            .enumerate()
            .filter(|(_, w)| **w != 0)
            .map(|(n, w)| (n.to_string(), json!(format!("{w:#x}"))))
            .collect::<serde_json::Map<_, _>>()
            .into();
        if case["mqd_dwords_nonzero"] != nonzero {
            out.push("mqd_dwords_nonzero is not what mqd_hex has".into());
        }
        out.extend(fields(&case["fields_nonzero"], &recorded));
        let rows: Vec<&Value> = trace
            .iter()
            .skip_while(|row| row["op"] != "case" || row["name"] != name.as_str())
            .enumerate()
            .take_while(|(n, row)| *n == 0 || row["op"] != "case")
            .map(|(_, row)| row)
            .collect();
        if let Some(row) = rows.first() {
            if row["args"] != case["args"] {
                out.push("args are not those of setup_ring.jsonl".into());
            }
            let image = rows.iter().find(|r| r["op"] == "vw" && r["len"] == 2048);
            if image.is_none_or(|r| number(&r["pa"]) != Some(at)) {
                out.push(format!("setup_ring.jsonl has no MQD at mqd_paddr {at:#x}"));
            }
        }
        verdict.row(name, out);
    }
    Ok(verdict)
}

fn words(hex: &str) -> Vec<u32> {
    (0..hex.len() / 8)
        .map(|i| {
            hex.get(i * 8..i * 8 + 8).and_then(|t| u32::from_str_radix(t, 16).ok()).map_or(0, u32::swap_bytes)
        })
        .collect()
}

/// Dwords of `struct v11_compute_mqd` (v11_structs.h) that a queue of this driver sets, by name.
const FIELDS: [(&str, usize); 26] = [
    ("header", 0),
    ("cp_mqd_base_addr_lo", 128),
    ("cp_mqd_base_addr_hi", 129),
    ("cp_hqd_active", 130),
    ("cp_hqd_vmid", 131),
    ("cp_hqd_persistent_state", 132),
    ("cp_hqd_pipe_priority", 133),
    ("cp_hqd_queue_priority", 134),
    ("cp_hqd_quantum", 135),
    ("cp_hqd_pq_base_lo", 136),
    ("cp_hqd_pq_base_hi", 137),
    ("cp_hqd_pq_rptr", 138),
    ("cp_hqd_pq_rptr_report_addr_lo", 139),
    ("cp_hqd_pq_rptr_report_addr_hi", 140),
    ("cp_hqd_pq_wptr_poll_addr_lo", 141),
    ("cp_hqd_pq_wptr_poll_addr_hi", 142),
    ("cp_hqd_pq_doorbell_control", 143),
    ("cp_hqd_pq_control", 145),
    ("cp_hqd_ib_control", 149),
    ("cp_hqd_hq_status0", 160),
    ("cp_mqd_control", 162),
    ("cp_hqd_eop_base_addr_lo", 165),
    ("cp_hqd_eop_base_addr_hi", 166),
    ("cp_hqd_eop_control", 167),
    ("cp_hqd_aql_control", 181),
    ("cp_hqd_pq_wptr_lo", 182),
];

fn fields(recorded: &Value, words: &[u32]) -> Vec<String> {
    let Some(recorded) = recorded.as_object() else { return vec!["fields_nonzero is not an object".into()] };
    let mut out = Vec::new();
    for (name, value) in recorded {
        let at = FIELDS.iter().find(|(n, _)| n == name).map(|(_, at)| *at);
        let word = at.and_then(|at| words.get(at)).copied();
        if word.map(u64::from) != number(value) {
            out.push(format!("fields_nonzero.{name} is {value}, mqd_hex has {word:x?}"));
        }
    }
    let nonzero = words.iter().filter(|w| **w != 0).count();
    if recorded.len() != nonzero {
        out.push(format!("fields_nonzero has {} fields, mqd_hex {nonzero}", recorded.len()));
    }
    out
}

/// Judges the bytes of a `faults.json`.
///
/// # Errors
/// Files that are missing or not of their format.
pub fn faults(json: &[u8], place: &Place) -> Result<Verdict> {
    let all: Value = serde_json::from_slice(json).context("not JSON")?;
    let (regs, _) = place.registers()?;
    let mut verdict = Verdict::default();
    for (n, fault) in all.as_array().context("not a list of faults")?.iter().enumerate() {
        let hub = match fault["ip"].as_str() {
            Some("GC") => Hub::Gc,
            Some("MM") => Hub::Mm,
            _ => {
                verdict.row(&format!("fault {n}"), vec![format!("{} is no hub", fault["ip"])]);
                continue;
            }
        };
        let get = |key: &str| number(&fault[key]).unwrap_or(u64::MAX);
        let page = get("addr_hi") << 32 | get("addr_lo");
        let status = get("status") as u32;
        let out = match decode(&regs, hub, status, page) {
            Err(e) => vec![e.to_string()],
            Ok(f) => message(fault, &f, &status_fields(&regs, hub, status)?),
        };
        let mut out = out;
        out.extend(reads(fault, &regs, hub));
        verdict.row(&format!("fault {n}"), out);
    }
    Ok(verdict)
}

/// Name of the status register: split in two on hubs that have more fields (`*_STATUS_LO32`).
fn status_name(regs: &RegFile, hub: Hub) -> Result<(&'static str, (u8, u8, u8), String)> {
    let (block, name, prefix) =
        if hub == Hub::Gc { (Block::Gc, "gc", "GCVM") } else { (Block::Mmhub, "mmhub", "MMVM") };
    let version = regs.table(block).context("the hub has no registers")?.version;
    let db = Db::for_version(name, version).with_context(|| format!("no registers of {name} {version:?}"))?;
    let plain = format!("{prefix}_L2_PROTECTION_FAULT_STATUS");
    let split = format!("{plain}_LO32");
    let found = if db.get(&plain).is_some() { plain } else { split };
    Ok((name, version, found))
}

/// All fields of a fault status, by the complete tables, from the lowest bit on.
fn status_fields(regs: &RegFile, hub: Hub, status: u32) -> Result<Vec<(String, u32)>> {
    let (block, version, name) = status_name(regs, hub)?;
    let db = Db::for_version(block, version).context("the hub has no registers")?;
    let reg = db.get(&name).with_context(|| format!("{block} has no {name}"))?;
    let mut fields: Vec<_> = reg.fields().map(|f| (f.lsb, f.width, f.name.to_lowercase())).collect();
    fields.sort();
    let value = |lsb: u8, width: u8| (u64::from(status) >> lsb & ((1 << width) - 1)) as u32;
    Ok(fields.into_iter().map(|(lsb, width, name)| (name, value(lsb, width))).collect())
}

/// Compares what core decodes with the recorded message, field by field.
fn message(fault: &Value, f: &VmFault, fields: &[(String, u32)]) -> Vec<String> {
    let own = [
        ("more_faults", u32::from(f.more)),
        ("walker_error", u32::from(f.walker_error)),
        ("permission_faults", u32::from(f.permission.bits())),
        ("mapping_error", u32::from(f.mapping_error)),
        ("cid", u32::from(f.client)),
        ("rw", u32::from(f.write)),
        ("atomic", u32::from(f.atomic)),
        ("vmid", u32::from(f.vmid)),
        ("prt", u32::from(f.prt)),
    ];
    let mut out = Vec::new();
    for (name, value) in own {
        if !fields.iter().any(|(n, v)| n == name && *v == value) {
            out.push(format!("{name} is decoded as {value:#x}"));
        }
    }
    let text = fault["error"].as_str().unwrap_or("");
    let pairs: Vec<String> = fields.iter().map(|(n, v)| format!("'{n}': {v}")).collect();
    let prefix = if f.hub == Hub::Gc { "GCVM" } else { "MMVM" };
    let own = format!("{prefix}_L2_PROTECTION_FAULT_STATUS: {{{}}} {:#x}", pairs.join(", "), f.address);
    if text != own {
        out.push(format!("decoded as {own:?}, recorded {text:?}"));
    }
    out
}

/// The recorded reads: the registers are this driver's, the values those of the fault.
fn reads(fault: &Value, regs: &RegFile, hub: Hub) -> Vec<String> {
    let mut out = Vec::new();
    let mut found = 0;
    for row in fault["trace"].as_array().into_iter().flatten() {
        let name = row["name"].as_str().unwrap_or("?");
        let is_gc = row["ip"] == "gc";
        let plain = name.strip_prefix("regGCVM_").or(name.strip_prefix("regMMVM_")).unwrap_or(name);
        let (gc, mm, key) = match plain {
            "L2_PROTECTION_FAULT_ADDR_HI32" => {
                (r::GCVM_L2_PROTECTION_FAULT_ADDR_HI32, r::MMVM_L2_PROTECTION_FAULT_ADDR_HI32, "addr_hi")
            }
            "L2_PROTECTION_FAULT_ADDR_LO32" => {
                (r::GCVM_L2_PROTECTION_FAULT_ADDR_LO32, r::MMVM_L2_PROTECTION_FAULT_ADDR_LO32, "addr_lo")
            }
            "L2_PROTECTION_FAULT_STATUS" | "L2_PROTECTION_FAULT_STATUS_LO32" => {
                (r::GCVM_L2_PROTECTION_FAULT_STATUS, r::MMVM_L2_PROTECTION_FAULT_STATUS, "status")
            }
            _ => continue,
        };
        let addr = regs.addr(if is_gc { gc } else { mm }).ok().map(u64::from);
        if addr != row["addr"].as_u64() || is_gc != name.starts_with("regGCVM_") {
            out.push(format!("{name} is at {addr:?}, recorded {}", row["addr"]));
        }
        let own_hub = is_gc == (hub == Hub::Gc);
        found += usize::from(own_hub);
        // A hub without a fault reads as zeros.
        let wanted = if own_hub { number(&fault[key]) } else { Some(0) };
        if row["val"].as_u64() != wanted {
            out.push(format!("{name} was read as {}, {key} is {}", row["val"], fault[key]));
        }
    }
    if found != 3 {
        out.push(format!("{found} of the 3 registers of the hub were read"));
    }
    out
}
