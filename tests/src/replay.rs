//! Replays a trace of the reference driver against amdev's own machines.
//!
//! [`replay`] runs the flow that a trace recorded on a bus that answers out of that trace, by the
//! rules of `golden/README.md`, and compares: register writes in order and value, PSP components
//! and commands with `psp.json`, images with the firmware, MQDs with `mqd.json`. What may differ
//! stands in `deviations.json`, with reason and count.

mod bus;
mod consistency;
mod deviations;
mod firmware;
mod flow;
mod psp;

pub use bus::ReplayBus;
pub use consistency::rows as row_order;
pub use deviations::{Deviations, MAX_ENTRIES};
pub use firmware::{Source, Stock};
pub use flow::{Place, base_flow, psp_list, replay, replay_at, replay_with};

use std::collections::BTreeMap;

/// What a replay found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The trace, as `navi31/boot`.
    pub name: String,
    /// Register writes that are equal or covered by a deviation.
    pub matched: usize,
    /// Register writes in the trace.
    pub total: usize,
    /// Register writes made.
    pub made: usize,
    /// Register reads made.
    pub reads: usize,
    /// Register reads in the trace, repeated ones counted once.
    pub recorded_reads: usize,
    /// PSP commands compared with `psp.json`.
    pub psp_commands: usize,
    /// Images whose content was compared, and whether by the real firmware.
    pub images: usize,
    /// Whether the real firmware was used.
    pub real_firmware: bool,
    /// MQDs compared with `mqd.json`.
    pub mqds: usize,
    /// Differences that no deviation covers.
    pub differences: Vec<String>,
    /// PSP messages that were sent, in the form of `psp.json`.
    pub psp_sent: Vec<serde_json::Value>,
    /// SMU messages that were sent: number, argument and, where it was read, the answer.
    pub smu_sent: Vec<(u32, u32, Option<u32>)>,
    /// Deviations used, by id, with their counts.
    pub used: BTreeMap<String, usize>,
}

impl Report {
    /// Whether everything is equal or covered.
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty() && self.matched == self.total
    }
}
