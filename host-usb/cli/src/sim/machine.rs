//! Several simulated GPUs in one machine.

use super::{MachineTime, SimBus, states};
use crate::bus_session::{BusGroup, BusSession};
use crate::error::CliError;
use crate::guard::Guarded;
use crate::session::OpenOptions;
use amdev_sim::Config;
use anyhow::Context as _;
use std::path::{Path, PathBuf};

/// Opens all GPUs of a description. They share their time, and each reaches the VRAM windows of the
/// others.
pub(super) fn open(config: &Config, options: &OpenOptions) -> anyhow::Result<BusGroup<Guarded<SimBus>>> {
    let time = MachineTime::default();
    let mut buses = Vec::new();
    for each in config.each() {
        let index = each.index;
        let gpu = states::prepare(each, options).with_context(|| format!("GPU {index}"))?;
        buses.push(SimBus::in_machine(gpu, &time));
    }
    for a in &buses {
        for b in buses.iter().filter(|b| !std::ptr::eq(*b, a)) {
            if !a.reach_peer(b) {
                return Err(CliError::Device("the windows of two simulated GPUs overlap".into()).into());
            }
        }
    }
    let mut members = Vec::new();
    for (index, bus) in buses.into_iter().enumerate() {
        let trace = options.trace.as_deref().map(|path| trace_of(path, index));
        let options = OpenOptions { trace, ..options.clone() };
        let name = format!("sim:{}#{index}", config.chip.name);
        members.push(BusSession::new(Guarded::new(bus), name, &options)?);
    }
    BusGroup::new(members)
}

/// The trace of each device is a file of its own: `boot.jsonl`, `boot.1.jsonl`, ...
fn trace_of(path: &Path, index: usize) -> PathBuf {
    if index == 0 {
        return path.to_owned();
    }
    let ending = path.extension().map(|e| format!("{index}.{}", e.display()));
    path.with_extension(ending.unwrap_or_else(|| index.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gpu_of_a_machine_has_a_trace_of_its_own() {
        let traces =
            [("a/boot.jsonl", 0), ("a/boot.jsonl", 2), ("boot", 1)].map(|(p, i)| trace_of(p.as_ref(), i));
        assert_eq!(traces, ["a/boot.jsonl", "a/boot.2.jsonl", "boot.1"].map(PathBuf::from));
    }
}
