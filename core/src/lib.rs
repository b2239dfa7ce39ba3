//! A driver core for AMD GPUs that needs no kernel driver.
#![no_std]
#![forbid(unsafe_code)]

pub mod bus;
pub mod discovery;
pub mod firmware;
pub mod iface;
pub mod mm;
pub mod program;
pub mod queue;
pub mod reg;
