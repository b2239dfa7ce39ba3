//! The commands, one file each.

pub mod boot;
pub mod completions;
pub mod copy;
pub mod demo;
pub mod doctor;
pub mod fini;
pub mod fw;
pub mod info;
pub mod list;
pub mod regs;
pub mod release;
pub mod report;
pub mod reset;
pub mod ring;
pub mod run;
pub mod scan;
pub mod smi;

use crate::output::{bytes, micros, table};
use crate::session::{BootReport, Session};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// A boot, fini or reset as text.
fn report_text(what: &str, report: &BootReport) -> String {
    let mut out = format!("{what}: {} ({})\n", report.path, report.why);
    if let Some(firmware) = &report.firmware {
        let _ = writeln!(out, "firmware: {firmware}");
    }
    let mut rows: Vec<Vec<String>> =
        report.stages.iter().map(|s| vec![s.name.clone(), micros(s.us)]).collect();
    rows.push(vec!["total".into(), micros(report.stages.iter().map(|s| s.us).sum())]);
    out += &table(&["stage", "time>"], &rows);
    let c = &report.counts;
    let _ = writeln!(
        out,
        "{} register reads, {} register writes, {} written to VRAM",
        c.registers.reads,
        c.registers.writes,
        bytes(c.vram.bytes_written)
    );
    if let Some(usb) = &report.usb {
        let _ = writeln!(out, "{} USB commands in {} transfers", usb.usb_commands, usb.usb_transfers);
    }
    out
}

/// The same as JSON.
fn report_json(report: &BootReport) -> Value {
    let mut all = json!({
        "path": report.path,
        "why": report.why,
        "firmware": report.firmware,
        "reset_done": report.reset_done,
        "resets": report.resets,
        "stages": report.stages,
        "register_reads": report.counts.registers.reads,
        "register_writes": report.counts.registers.writes,
        "vram_bytes_read": report.counts.vram.bytes_read,
        "vram_bytes_written": report.counts.vram.bytes_written,
        "doorbells": report.counts.doorbells.writes,
    });
    if let Some(usb) = &report.usb {
        all["usb_commands"] = json!(usb.usb_commands);
        all["usb_transfers"] = json!(usb.usb_transfers);
    }
    all
}

/// The misuse that a simulated device saw: lines for people, JSON, and whether there was none.
fn violations(session: &mut dyn Session) -> (String, Value, bool) {
    match session.violations() {
        None => (String::new(), Value::Null, true),
        Some(list) => {
            let text = list.iter().map(|v| format!("violation: {v}\n")).collect();
            let ok = list.is_empty();
            (text, json!(list), ok)
        }
    }
}
