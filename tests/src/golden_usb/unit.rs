//! The unit cases: what each sent and was answered.

use amdev_sim::bridge::{BridgeConfig, BridgeFault};
use amdev_sim::{Rule, Violation};
use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::host::{Command, Host};
use crate::verdict::Verdict;

const STATUS: u32 = 0xb296;

/// Answers of the recording fake that no engine gives by itself, and the fault that gives them.
fn faults(name: &str) -> Vec<BridgeFault> {
    match name {
        "cfg_read_retry" => vec![BridgeFault::TlpError(0)],
        "cfg_read_retry_exhausted" => (0..10).map(BridgeFault::TlpError).collect(),
        "cfg_read_crs" => vec![BridgeFault::TlpRetry(0)],
        "cfg_read_ca" => vec![BridgeFault::TlpAbort(0)],
        _ => Vec::new(),
    }
}

/// Cases whose answers cannot be made.
const INVENTED: [(&str, &str); 5] = [
    ("cfg_read_bad_count", "a byte count that no completion has"),
    ("cfg_read_retry_exhausted", "a request that fails, and then completes all the same"),
    ("cfg_read_crs", "a completion with an error, and data all the same"),
    ("cfg_read_ca", "a completion with an error, and data all the same"),
    ("setup_pci_bars", "configuration space of the recording fake"),
];

/// Requests to the doorbell window that no queue would take: the cases are about caching.
fn is_expected(case: &str, v: &Violation) -> bool {
    v.rule == Rule::DoorbellBeforeActivation || v.rule == Rule::BadAccess && case.starts_with("cacheable_")
}

pub(super) fn hex(text: &str) -> Result<Vec<u8>> {
    let digit = |i: usize| text.get(i..i + 2).and_then(|d| u8::from_str_radix(d, 16).ok());
    (0..text.len())
        .step_by(2)
        .map(digit)
        .collect::<Option<_>>()
        .with_context(|| format!("{text:?} is no hexadecimal"))
}

/// One `send_batch`: its commands, and what each that reads was answered.
fn batch(value: &Value) -> Result<(Vec<Command>, Vec<Vec<u8>>)> {
    let (mut commands, mut answers) = (Vec::new(), Vec::new());
    for row in value.as_array().context("a batch is no list")? {
        if let Some(results) = row["results"].as_array() {
            answers = results.iter().map(|r| hex(r.as_str().unwrap_or("?"))).collect::<Result<_>>()?;
            continue;
        }
        let out = row["out_len"].is_u64().then(Vec::new);
        commands.push(Command {
            cdb: hex(row["cdb"].as_str().context("a command without cdb")?)?,
            room: row["in"].as_u64().unwrap_or(0).min(255) as usize,
            out,
        });
    }
    Ok((commands, answers))
}

pub(super) fn judge(file: &Value, verdict: &mut Verdict) -> Result<()> {
    let cases = file["unit"].as_array().context("no unit cases")?;
    let mut host = Host::new(BridgeConfig::parse("navi48").map_err(anyhow::Error::from)?)?;
    for case in cases {
        let name = case["name"].as_str().context("a case without name")?;
        if name == "cfg_read_4_bus0" {
            // The recording fake had its buses numbered from the start. The set-up was sent later, and
            // leaves away what the registers held by then.
            host.send(&[Command::write(0xb217, 0x0f)])?;
            let setup = cases.iter().find(|c| c["name"] == "setup_pci_bars").context("no setup_pci_bars")?;
            run(&mut host, setup, &mut Verdict::default()).context("setup_pci_bars, ahead")?;
        }
        host.bridge.start_anew(faults(name));
        if let Err(e) = run(&mut host, case, verdict) {
            verdict.row(name, vec![format!("{e:#}")]);
        }
        let misuse = host.bridge.take_violations();
        let misuse = misuse.into_iter().filter(|v| !is_expected(name, v));
        verdict.row(name, misuse.map(|v| format!("misuse: {v}")).collect());
    }
    Ok(())
}

/// The blocks of a case: counting bytes, as many as its name says, or zeros; told by their digests.
fn payload(case: &Value) -> Result<Vec<Vec<u8>>> {
    let rows = case["batches"].as_array().into_iter().flatten().filter_map(Value::as_array).flatten();
    let name = case["name"].as_str().unwrap_or_default();
    let total = name.strip_prefix("scsi_write_0x").map_or(Ok(0), |n| usize::from_str_radix(n, 16))?;
    let data: Vec<u8> = (0..total).map(|i| i as u8).collect();
    let (mut at, mut out) = (0, Vec::new());
    for row in rows.filter(|r| r["out_len"].is_u64()) {
        let len = row["out_len"].as_u64().unwrap_or(0).min(1 << 16) as usize;
        let mut block = data.iter().skip(at).take(len).copied().collect::<Vec<u8>>();
        block.resize(len, 0);
        if row["out_sha256"] != crate::golden_facts::sha256(&block).as_str() {
            bail!("block {} of {name} is not counting bytes, nor zeros", out.len());
        }
        at += len;
        out.push(block);
    }
    Ok(out)
}

fn run(host: &mut Host, case: &Value, verdict: &mut Verdict) -> Result<()> {
    let name = case["name"].as_str().unwrap_or("?");
    // Some are left out, with the reason.
    let Some(batches) = case["batches"].as_array() else { return Ok(()) };
    let mut blocks = payload(case)?.into_iter();
    for (n, b) in batches.iter().enumerate() {
        let (mut commands, answers) = batch(b)?;
        for c in &mut commands {
            if let Some(out) = &mut c.out {
                *out = blocks.next().context("more blocks than data")?;
            }
        }
        let place = format!("{name}, batch {n}");
        if case["name"] == "cfg_read_retry" && answers == [[0]] {
            verdict.deviation("polls of an engine that is busy: here it has answered", &place);
            continue;
        }
        let reads: Vec<Command> = commands.iter().filter(|c| c.room > 0).cloned().collect();
        let found = host.send(&commands).with_context(|| place.clone())?;
        let found = commands.iter().zip(found).filter(|(c, _)| c.room > 0).map(|(_, d)| d);
        for ((c, found), want) in reads.iter().zip(found).zip(&answers) {
            if found == *want {
                verdict.row(&place, Vec::new());
            } else if let Some((_, why)) = INVENTED.iter().find(|(case, _)| *case == name) {
                verdict.deviation(why, &place);
            } else {
                let what = if c.address() == STATUS { "status" } else { "answer" };
                let text = format!("{what} at {:#07x} is {found:02x?}, recorded {want:02x?}", c.address());
                verdict.row(&place, vec![text]);
            }
        }
    }
    Ok(())
}
