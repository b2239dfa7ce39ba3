//! The IP blocks: a machine each, and what they share.
//!
//! A machine is an `async fn` on a [`Cx`]: the [`Device`] and the [`Slot`] through which it shows
//! what it waits for. It never blocks; [`drive`] (or [`Device::run`] for one machine) polls it and
//! lets time pass. `boot.rs` composes machines into boots and resets.
//!
//! ```text
//! soc   bus interface: doorbell routing          gmc   memory hubs: apertures, VM context 0, TLB
//! ih    interrupt rings                          psp   secure OS, firmware
//! smu   mailbox, clocks, metrics, mode-1 reset   gfx   RLC, MEC, compute queues
//! sdma  DMA engines and their queues
//! ```

mod access;
mod cx;
pub mod gfx;
pub mod gmc;
pub mod ih;
pub mod psp;
pub mod sdma;
pub mod smu;
pub mod soc;
mod wait;

pub use crate::reg::Hub;
pub use access::{Device, QueuesInUse, StageTime};
pub use cx::Cx;
pub(crate) use cx::{ends_all, is_told_by_host};
pub use wait::{Counters, Event, Missed, Slot, Stage, Target, Task, Until, Wait, drive};

#[cfg(test)]
pub(crate) mod scripted;
#[cfg(test)]
mod tests;
