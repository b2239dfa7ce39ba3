//! The dispatcher: from COMPUTE_* registers to running workgroups.

use super::{ComputeQueueConfig, Stop};
use crate::env::Env;
use crate::violation::Rule;

/// A dispatch that runs.
#[derive(Debug)]
pub(super) struct Dispatch {}

impl Dispatch {
    /// Starts a dispatch; `None` if it has no workgroups.
    pub(super) fn new(
        _env: &mut dyn Env,
        _config: &ComputeQueueConfig,
        _vmid: u8,
        dims: [u32; 3],
        _initiator: u32,
    ) -> Result<Option<Dispatch>, Stop> {
        if dims.contains(&0) {
            return Ok(None);
        }
        Err(Stop::Bad(Rule::Other, "shader execution is not part of the simulator yet".into()))
    }

    /// Runs waves; true when all have ended.
    pub(super) fn run(&mut self, _env: &mut dyn Env, _left: &mut u32) -> Result<bool, Stop> {
        Ok(true)
    }
}
