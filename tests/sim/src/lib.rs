//! A strict simulated AMD GPU.
//!
//! It is written from AMD's headers, the Linux driver and traces of a reference driver, and knows
//! nothing of amdev: a driver that is wrong on hardware shall fail here.
//!
//! [`SimGpu`] is one GPU as a host sees it: PCI configuration space, three windows, DMA, MSI and
//! time. [`Config`] says which model it is, in which state it is found and what goes wrong.

mod access;
pub mod bridge;
pub mod chip;
pub mod config;
pub mod cp;
mod device;
pub mod discovery;
mod doorbell;
pub mod env;
pub mod firmware;
mod gfx;
mod gmc;
mod gpu;
mod host;
mod ih;
pub mod isa;
pub mod judge;
mod pci;
mod psp;
mod psp_command;
mod queue;
mod regdb;
mod regs;
pub mod sdma;
#[cfg(target_os = "linux")]
pub mod serve;
#[cfg(target_os = "linux")]
mod shared;
mod smu;
mod tlb;
pub mod violation;
mod vram;
mod watch;

pub use config::{Config, ConfigError, Fault, Stage, State};
pub use gpu::{BusFault, Counts, SimGpu};
pub use host::{DmaAccess, DmaRefusal, HostMemory, VecMemory};
pub use violation::{Rule, Violation};
