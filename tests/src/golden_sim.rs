//! Judges the simulator by traces of the reference driver: each runs through, after the traces that
//! make its starting state, and the misuse that shows is that of the reference's known faults.

mod findings;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use amdev_sim::judge::judge_with;
use amdev_sim::{Config, Rule, SimGpu, VecMemory, Violation};
use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::replay::{Deviations, Place, base_flow, replay_at};

/// What came of a trace.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Rows that were driven into the simulator.
    pub rows: usize,
    /// Rows that gave another value, explained or not.
    pub differing: usize,
    /// Polled reads that were repeated until the recorded value came.
    pub repeated: u64,
    /// Faults of the reference that show, by number, with their places.
    pub faults: BTreeMap<u32, Vec<String>>,
    /// What differs without a reason.
    pub differences: Vec<String>,
    /// Values that differ for a reason.
    pub explained: Vec<String>,
    /// Images that were real ones.
    pub real_images: usize,
}

/// How a flow is driven: the traces before it, and how the GPU is found.
struct Plan {
    before: &'static [&'static str],
    config: &'static str,
    faults: &'static [u32],
    /// Names of values that differ, and why.
    explained: &'static [(&'static str, &'static str)],
}

/// Faults of every cold boot: IH rings twice too long (1), RLC autoload not awaited (2), PSP command
/// and frame not flushed (6), 4 bytes behind each message (7).
const BOOT: &[u32] = &[1, 2, 6, 7];
const NO_INTERRUPT: &str = "the recording fake made the overflow up; here no interrupt was raised";

/// The flow of a trace by its name, for the simulator: those that can be replayed, and opening over PCI.
pub fn sim_flow(name: &str) -> Option<&'static str> {
    if name == "open_pci" { Some("open_pci") } else { base_flow(name) }
}

fn plan(flow: &str) -> Option<Plan> {
    let plan = |before, config, faults| Plan { before, config, faults, explained: &[] };
    Some(match flow {
        "boot" | "boot_fw2025" => plan(&[], "", BOOT),
        "fini" | "setup_ring" => plan(&["boot"], "", &[]),
        "warm" => plan(&["boot", "fini"], "", &[]),
        "smu_set_clocks_0" | "flush_tlb_gc" => plan(&["boot", "fini", "warm"], "", &[]),
        "flush_tlb_mm" => plan(&["boot", "fini", "warm"], "", &[8]),
        "smu_read_metrics" => Plan {
            explained: &[("VRAM", "the recording fake has a metrics table of zeros, the simulator values")],
            ..plan(&["boot", "fini", "warm"], "", &[])
        },
        "malformed" => plan(&["boot", "fini", "warm"], "", BOOT),
        "reset" => plan(&[], ",state=amdgpu", BOOT),
        "reset_smu_dead" => plan(&[], ",state=amdgpu,fault=smu-dead", &[3]),
        "ih_overflow" => Plan {
            explained: &[("VRAM", NO_INTERRUPT), ("regIH_RB_WPTR", NO_INTERRUPT)],
            ..plan(&["boot"], "", &[])
        },
        // Ring contents are system memory and not in the trace: the engines must not fetch them.
        "open_pci" => plan(&[], ",fault=hang:compute,fault=hang:sdma", &[1, 2, 6, 7, 12]),
        _ => return None,
    })
}

/// Which fault of the reference a misuse is (`REFERENCE.md` lists them), if it is one.
pub(crate) fn fault_of(v: &Violation) -> Option<u32> {
    let d = v.detail.as_str();
    match v.rule {
        Rule::OverlappingStructures if d.contains("IH") => Some(1),
        Rule::EngineBeforeFirmware if d.contains("RLC autoload") => Some(2),
        // The PSP is client 14 of MMHUB (`mmhub_client_ids_v3_0_0`, mmhub_v3_0.c).
        Rule::StaleHdp if d.contains("MmHUB client 14 ") => Some(6),
        Rule::FirmwareOrder if d.ends_with("without component 0xf0000 before it") => Some(10),
        Rule::MemoryInUse if d.contains("switched off while a queue of it works") => Some(12),
        _ => None,
    }
}

/// Drives a trace (a file like `golden/navi31/boot.jsonl`) into the simulator. `firmware` are folders
/// that may hold the images that the trace only has digests of.
///
/// # Errors
/// Files that are missing or not of their format, a GPU that the simulator does not have.
pub fn judge(dir: &Path, name: &str, firmware: &[PathBuf]) -> Result<Report> {
    let flow =
        sim_flow(name).with_context(|| format!("{name} is no flow that the simulator is judged by"))?;
    let plan = plan(flow).with_context(|| format!("{name}: nothing is known of the state before it"))?;
    let place = Place::new(dir);
    let (_, chip) = place.registers()?;
    let gpu_name = chip.name.to_lowercase();
    let seeded = name.len() > flow.len();
    let suffix = name.get(flow.len()..).unwrap_or("");
    let seed = if seeded { ",seed=crc32" } else { "" };
    let config = format!("{gpu_name}{}{seed}", plan.config);
    let mut config = Config::parse(&config).map_err(|e| anyhow!("{e}"))?;
    config.judge = true;
    let gpu = SimGpu::new(config);
    if flow == "open_pci" && !gpu.dma_map(0, 1 << 40, VecMemory::new(1 << 20)) {
        bail!("the simulator maps no system memory");
    }
    let images = images(&place, &gpu_name, firmware)?;
    for earlier in plan.before {
        let trace = text(dir, &format!("{earlier}{suffix}"))?;
        let before = judge_with(&trace, &gpu, &|digest, _| images.get(digest).cloned());
        before.map_err(|e| anyhow!("{earlier}{suffix}.jsonl, which comes before it: {e}"))?;
    }
    let trace = text(dir, name)?;
    let rows = place.trace(name)?;
    let mut report = Report::default();
    report.differences.extend(recording(&place, name, flow, &rows)?);
    let mqds = mqds(&rows);
    let payload = |digest: &str, _: usize| mqds.get(digest).or_else(|| images.get(digest)).cloned();
    let shown = findings::find(&rows, &gpu, &place, &gpu_name)?;
    let found = judge_with(&trace, &gpu, &payload).map_err(|e| anyhow!("{name}.jsonl: {e}"))?;
    report.rows = found.rows as usize;
    report.repeated = found.repeated;
    report.differing = found.differences.len();
    report.real_images =
        rows.iter().filter(|r| r["sha256"].as_str().is_some_and(|d| images.contains_key(d))).count();
    for d in &found.differences {
        let line = format!("row {}: {} is {}, recorded {}", d.row, d.name, d.found, d.recorded);
        match plan.explained.iter().find(|(n, _)| *n == d.name) {
            Some((_, why)) => report.explained.push(format!("{line}: {why}")),
            None => report.differences.push(line),
        }
    }
    for v in &found.violations {
        match fault_of(v) {
            Some(n) => report.faults.entry(n).or_default().push(v.to_string()),
            None => report.differences.push(format!("misuse that is no known fault: {v}")),
        }
    }
    for (n, what) in shown {
        report.faults.entry(n).or_default().push(what);
    }
    let boots = plan.faults.contains(&7);
    let mut expected: Vec<u32> = plan.faults.to_vec();
    if boots && findings::has_fault_10(&place, &gpu_name, flow)? {
        expected.push(10);
    }
    for n in &expected {
        if !report.faults.contains_key(n) {
            report.differences.push(format!("fault {n} of the reference does not show"));
        }
    }
    for (n, places) in &report.faults {
        if !expected.contains(n) {
            let first = places.first().map_or("", String::as_str);
            report.differences.push(format!("fault {n} shows, which this flow should not have: {first}"));
        }
    }
    Ok(report)
}

/// What is wrong with the recording itself: a row out of its order, messages that are not the listed
/// ones, and writes that the reference does not make, told by this driver's own replay.
fn recording(place: &Place, name: &str, flow: &str, rows: &[Value]) -> Result<Vec<String>> {
    let mut out = crate::replay::row_order(rows);
    if base_flow(flow).is_some() {
        let replayed = replay_at(place, name, &[], &Deviations::load()?)?;
        out.extend(replayed.differences.iter().map(|d| format!("the recording: {d}")));
    }
    Ok(out)
}

fn text(dir: &Path, name: &str) -> Result<String> {
    let bytes = crate::read(dir.join(format!("{name}.jsonl")))?;
    String::from_utf8(bytes).with_context(|| format!("{name}.jsonl is not text"))
}

/// The MQD images of a trace, by their digest: what the driver then writes into the registers from
/// `CP_MQD_BASE_ADDR` to `CP_HQD_PQ_WPTR_HI` is dword 0x80 on.
fn mqds(rows: &[Value]) -> BTreeMap<String, Vec<u8>> {
    const MQD: u64 = 2048;
    const FIRST: u64 = 0x80;
    let mut found = BTreeMap::new();
    for (i, row) in rows.iter().enumerate().filter(|(_, r)| r["op"] == "vw" && r["len"] == MQD) {
        let mut image = vec![0u32; MQD as usize / 4];
        if let Some(header) = image.first_mut() {
            *header = 0xc031_0800;
        }
        let later = rows.get(i..).unwrap_or(&[]);
        let base = later.iter().find(|w| w["op"] == "w" && w["name"] == "regCP_MQD_BASE_ADDR");
        let Some(base) = base.and_then(|w| w["addr"].as_u64()) else { continue };
        let mut next = FIRST;
        for w in later.iter().filter(|w| w["op"] == "w") {
            let at = w["addr"].as_u64().and_then(|a| a.checked_sub(base)).map(|a| FIRST + a);
            if at == Some(next)
                && let Some(word) = image.get_mut(next as usize)
                && next < FIRST + 0x38
            {
                *word = w["val"].as_u64().unwrap_or(0) as u32;
                next += 1;
            }
        }
        let bytes: Vec<u8> = image.iter().flat_map(|w| w.to_le_bytes()).collect();
        let digest = crate::golden_facts::sha256(&bytes);
        if row["sha256"] == digest.as_str() {
            found.insert(digest, bytes);
        }
    }
    found
}

/// The images of every package that `fw.json` lists for a GPU and a folder holds, as the reference
/// sends them: with 4 bytes behind (fault 7). By the digest of the whole.
pub(crate) fn images(place: &Place, gpu: &str, dirs: &[PathBuf]) -> Result<BTreeMap<String, Vec<u8>>> {
    let list = place.firmware_list()?;
    let mut found = BTreeMap::new();
    for package in list[gpu].as_object().into_iter().flat_map(|p| p.values()) {
        let listed = ["sos", "descs"].map(|l| package[l].as_array().cloned().unwrap_or_default());
        for image in listed.into_iter().flatten().chain([package["smu"].clone()]) {
            let Some(file) = image["file"].as_str() else { continue };
            let range = image["offset"].as_u64().zip(image["size"].as_u64());
            let Some((at, len)) = range else { continue };
            for dir in dirs {
                let bytes = std::fs::read(dir.join(file)).unwrap_or_default();
                let end = at.saturating_add(len) as usize;
                let Some(slice) = bytes.get(at as usize..end) else { continue };
                let mut message = slice.to_vec();
                message.extend([0; 4]);
                let digest = Sha256::digest(&message).iter().map(|b| format!("{b:02x}")).collect();
                found.insert(digest, message);
            }
        }
    }
    Ok(found)
}
