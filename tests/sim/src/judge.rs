//! Drives a recorded trace of a foreign driver into a simulated GPU: the trace must run through,
//! and the misuse that it shows is what the driver does wrong.
//!
//! Writes are applied. A read is repeated until it gives the recorded value or its deadline has
//! passed where the driver polled; other values that differ are listed. Row format:
//! `golden/README.md`.

use crate::firmware;
use crate::gpu::{BusFault, SimGpu};
use crate::violation::Violation;
use serde_json::Value;
use thiserror::Error;

/// How long a polled value is waited for, microseconds.
const DEADLINE_US: u64 = 500_000;
const STEP_US: u64 = 50;

/// A read that gave another value than recorded.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Difference {
    /// Row number in the trace.
    pub row: u64,
    /// Register, or `VRAM`.
    pub name: String,
    /// Dword address of the register or place in VRAM.
    pub addr: u64,
    /// What the trace has (the first 64 bytes, hexadecimal, of memory).
    pub recorded: String,
    /// What the simulator gave.
    pub found: String,
}

/// What came of a trace.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Report {
    /// Rows that were driven into the GPU.
    pub rows: u64,
    /// Polled reads that had to be repeated.
    pub repeated: u64,
    /// Reads that gave other values.
    pub differences: Vec<Difference>,
    /// Polled reads among them that never gave the recorded value.
    pub timeouts: u64,
    /// Misuse that the trace shows.
    pub violations: Vec<Violation>,
}

/// Why a trace cannot be judged.
#[derive(Debug, Error)]
pub enum JudgeError {
    /// A line that is no JSON object.
    #[error("line {line}: {source}")]
    Json {
        /// Line number from 1.
        line: usize,
        /// What serde says.
        source: serde_json::Error,
    },
    /// A row without a field that its operation needs.
    #[error("line {line}: no {field}")]
    Field {
        /// Line number from 1.
        line: usize,
        /// The field.
        field: &'static str,
    },
    /// An access that no window takes.
    #[error("line {line}: {source}")]
    Bus {
        /// Line number from 1.
        line: usize,
        /// Why.
        source: BusFault,
    },
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).filter_map(|i| u8::from_str_radix(text.get(i * 2..i * 2 + 2)?, 16).ok()).collect()
}

fn show(bytes: &[u8]) -> String {
    bytes.iter().take(64).map(|b| format!("{b:02x}")).collect()
}

/// Registers that drivers poll even where the trace has one read only.
fn polled(name: &str) -> bool {
    name.contains("C2PMSG") || name.ends_with("_ACK")
}

/// A trace and where its unrecorded payloads come from.
pub struct Judge<'a> {
    gpu: &'a SimGpu,
    payload: &'a dyn Fn(&str, usize) -> Option<Vec<u8>>,
    report: Report,
}

/// Judges a trace. Payloads longer than the trace records (firmware) are replaced by synthetic
/// images of their length.
pub fn judge(trace: &str, gpu: &SimGpu) -> Result<Report, JudgeError> {
    judge_with(trace, gpu, &|_, _| None)
}

/// As [`judge`]; `payload` may give the bytes for a SHA-256 and a length.
pub fn judge_with(
    trace: &str,
    gpu: &SimGpu,
    payload: &dyn Fn(&str, usize) -> Option<Vec<u8>>,
) -> Result<Report, JudgeError> {
    let mut j = Judge { gpu, payload, report: Report::default() };
    for (i, line) in trace.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let row: Value =
            serde_json::from_str(line).map_err(|source| JudgeError::Json { line: i + 1, source })?;
        j.row(i + 1, &row)?;
    }
    j.report.violations = gpu.take_violations();
    Ok(j.report)
}

impl Judge<'_> {
    fn row(&mut self, line: usize, row: &Value) -> Result<(), JudgeError> {
        let number = |field: &'static str| row[field].as_u64().ok_or(JudgeError::Field { line, field });
        let bus = |source| JudgeError::Bus { line, source };
        match row["op"].as_str().unwrap_or_default() {
            "w" => {
                let (addr, val) = (number("addr")?, number("val")? as u32);
                self.gpu.write(5, addr * 4, &val.to_le_bytes()).map_err(bus)?;
            }
            "r" => self.read(line, row, number("addr")?, number("val")? as u32)?,
            "vw" => {
                let (pa, len) = (number("pa")?, number("len")? as usize);
                let bytes = self.bytes(row, len);
                self.gpu.write(0, pa, &bytes).map_err(bus)?;
            }
            "vr" => self.read_vram(line, row, number("pa")?, number("len")? as usize)?,
            "db" => {
                let data = hex(row["data"].as_str().unwrap_or_default());
                self.gpu.write(2, number("off")?, &data).map_err(bus)?;
            }
            "cfg_w" => {
                let len = number("size")?.min(4) as usize;
                self.gpu.config_write(number("off")? as u16, &number("val")?.to_le_bytes()[..len]);
            }
            "sleep" => self.gpu.advance_us(number("us")?),
            _ => return Ok(()),
        }
        self.report.rows += 1;
        Ok(())
    }

    /// The bytes of a VRAM row; synthetic where the trace has only their digest.
    fn bytes(&self, row: &Value, len: usize) -> Vec<u8> {
        if let (Some(n), Some(first)) = (row["n"].as_u64(), row["data"].as_str()) {
            // Run-length coded page table entries.
            let start = hex(first).iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b));
            let step = row["step"].as_u64().unwrap_or(0);
            return (0..n).flat_map(|k| start.wrapping_add(k * step).to_le_bytes()).collect();
        }
        if let Some(known) = self.recorded(row, len) {
            return known;
        }
        let digest = row["sha256"].as_str().unwrap_or_default();
        if let Some(bytes) = (self.payload)(digest, len) {
            return bytes;
        }
        // The reference appends 4 bytes to each message (fault 7).
        let seed = firmware::hash(digest.as_bytes()) as u32;
        let mut image = firmware::synthetic(0, seed, len.saturating_sub(4));
        image.resize(len, 0);
        image
    }

    fn recorded(&self, row: &Value, len: usize) -> Option<Vec<u8>> {
        if row["zero"].as_bool() == Some(true) {
            return Some(vec![0; len]);
        }
        let mut bytes = hex(row["data"].as_str().or(row["data_rstrip"].as_str())?);
        bytes.resize(len, 0);
        Some(bytes)
    }

    fn read(&mut self, line: usize, row: &Value, addr: u64, val: u32) -> Result<(), JudgeError> {
        let name = row["name"].as_str().unwrap_or("?").to_owned();
        let poll = row["n"].as_u64().unwrap_or(1) > 1 || polled(&name);
        let read = |gpu: &SimGpu| {
            let mut b = [0; 4];
            gpu.read(5, addr * 4, &mut b).map_err(|source| JudgeError::Bus { line, source })?;
            Ok(u32::from_le_bytes(b))
        };
        let first = read(self.gpu)?;
        if first == val {
            return Ok(());
        }
        let mut found = first;
        if poll {
            let end = self.gpu.now_us() + DEADLINE_US;
            while found != val && self.gpu.now_us() < end {
                self.gpu.advance_us(STEP_US);
                found = read(self.gpu)?;
            }
            if found == val {
                self.report.repeated += 1;
                return Ok(());
            }
            self.report.timeouts += 1;
        }
        self.report.differences.push(Difference {
            row: row["i"].as_u64().unwrap_or(0),
            name: row["for"].as_str().map(str::to_owned).unwrap_or(name),
            addr: row["ind"].as_u64().unwrap_or(addr),
            recorded: format!("{val:#x}"),
            found: format!("{found:#x}"),
        });
        Ok(())
    }

    fn read_vram(&mut self, line: usize, row: &Value, pa: u64, len: usize) -> Result<(), JudgeError> {
        let mut found = vec![0; len];
        let bus = |source| JudgeError::Bus { line, source };
        self.gpu.read(0, pa, &mut found).map_err(bus)?;
        let Some(expected) = self.recorded(row, len) else { return Ok(()) };
        if found == expected {
            return Ok(());
        }
        if len <= 8 {
            let end = self.gpu.now_us() + DEADLINE_US;
            while found != expected && self.gpu.now_us() < end {
                self.gpu.advance_us(STEP_US);
                self.gpu.read(0, pa, &mut found).map_err(bus)?;
            }
            if found == expected {
                self.report.repeated += 1;
                return Ok(());
            }
            self.report.timeouts += 1;
        }
        self.report.differences.push(Difference {
            row: row["i"].as_u64().unwrap_or(0),
            name: "VRAM".into(),
            addr: pa,
            recorded: show(&expected),
            found: show(&found),
        });
        Ok(())
    }
}
