//! The ladder of resets: from the one that loses least to the one that loses everything.
//!
//! ```text
//! queue    the hardware queues of the last process are taken down; memory and firmware stay
//! MEC      the compute engine and the DMA engines are reset; memory and firmware stay
//! mode-1   the SMU resets the whole GPU; PCI configuration space is restored by the host
//! bus      the host resets the device from outside, where it can
//! ```

use crate::bus::{Bus, BusError};
use crate::error::Error;
use crate::ip::{Cx, Stage, gfx, gmc, is_told_by_host, sdma, smu};
use core::fmt;

/// A rung of the ladder.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Rung {
    /// Queues are taken down.
    #[default]
    Queue,
    /// Compute and DMA engines are reset.
    Mec,
    /// The GPU resets itself.
    Mode1,
    /// The host resets the GPU.
    Bus,
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rung::Queue => "queue reset",
            Rung::Mec => "MEC reset",
            Rung::Mode1 => "mode-1 reset",
            Rung::Bus => "bus reset",
        })
    }
}

/// What came of a rung.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The GPU could be booted afterwards.
    Helped,
    /// It went through, but the GPU is still not in order.
    NotEnough(super::Reason),
    /// It failed.
    Failed(Error),
    /// It could not be tried.
    Impossible(&'static str),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Helped => f.write_str("helped"),
            Outcome::NotEnough(reason) => write!(f, "not enough, {reason}"),
            Outcome::Failed(e) => write!(f, "failed, {e}"),
            Outcome::Impossible(why) => write!(f, "not possible, {why}"),
        }
    }
}

/// The rungs that were tried, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ladder([Option<(Rung, Outcome)>; 4]);

impl Ladder {
    pub(super) fn push(&mut self, rung: Rung, outcome: Outcome) {
        // Each rung is tried once at most.
        if let Some(slot) = self.0.get_mut(rung as usize) {
            *slot = Some((rung, outcome));
        }
    }

    /// The rungs tried and what came of them.
    pub fn iter(&self) -> impl Iterator<Item = (Rung, Outcome)> + '_ {
        self.0.iter().flatten().copied()
    }

    /// Whether the whole GPU was reset.
    pub fn lost_everything(&self) -> bool {
        self.helped(Rung::Mode1) || self.helped(Rung::Bus)
    }

    /// Whether a rung helped.
    pub fn helped(&self, rung: Rung) -> bool {
        self.iter().any(|tried| tried == (rung, Outcome::Helped))
    }
}

impl fmt::Display for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (rung, outcome)) in self.iter().enumerate() {
            write!(f, "{}{rung}: {outcome}", if i == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

/// Takes down what the last process left on: DMA queues, compute queues, GFXHUB's translation and
/// latched faults.
pub(super) async fn reset_queues<B: Bus>(cx: &mut Cx<'_, B>) -> Result<(), Error> {
    cx.enter(Stage::Queue).await;
    sdma::attach(cx)?;
    gfx::attach(cx)?;
    sdma::fini(cx).await?;
    gfx::fini(cx).await?;
    gmc::clear_faults(cx)
}

/// Resets the engines that queues run on, whatever the queues do.
pub(super) async fn reset_mec<B: Bus>(cx: &mut Cx<'_, B>) -> Result<(), Error> {
    cx.enter(Stage::MecReset).await;
    gfx::reset_mec(cx).await?;
    sdma::soft_reset(cx, [true; 2]).await?;
    cx.queues = Default::default();
    gfx::translation_off(cx)?;
    gmc::clear_faults(cx)
}

/// The rungs that lose everything: the first that goes through ends it. True if one did. `sos` is
/// whether the secure OS runs.
pub(super) async fn reset_all<B: Bus>(
    cx: &mut Cx<'_, B>,
    sos: bool,
    ladder: &mut Ladder,
) -> Result<bool, Error> {
    let outcome = if !sos {
        Outcome::Impossible("no secure OS runs")
    } else if !smu::is_alive(cx).await? {
        Outcome::Impossible("the SMU does not answer")
    } else {
        match smu::mode1_reset(cx).await {
            Ok(()) => Outcome::Helped,
            Err(e) if is_told_by_host(&e) => {
                ladder.push(Rung::Mode1, Outcome::Failed(e));
                return Err(e);
            }
            Err(e) => Outcome::Failed(e),
        }
    };
    ladder.push(Rung::Mode1, outcome);
    if outcome == Outcome::Helped {
        return Ok(true);
    }
    cx.enter(Stage::BusReset).await;
    match smu::bus_reset(cx).await {
        Ok(()) => {
            ladder.push(Rung::Bus, Outcome::Helped);
            Ok(true)
        }
        Err(Error::Bus(e @ (BusError::Unsupported(_) | BusError::Host(_)))) => {
            let why = if let BusError::Host(why) = e { why } else { "this host cannot reset the bus" };
            ladder.push(Rung::Bus, Outcome::Impossible(why));
            match outcome {
                // Half a reset is worse than none.
                Outcome::Failed(e) => Err(e),
                _ => Ok(false),
            }
        }
        Err(e) => {
            ladder.push(Rung::Bus, Outcome::Failed(e));
            Err(e)
        }
    }
}
