//! A driver core for AMD GPUs that needs no kernel driver.
#![no_std]
#![forbid(unsafe_code)]

pub mod boot;
pub mod bus;
pub mod chip;
pub mod device;
pub mod discovery;
pub mod error;
pub mod fault;
pub mod firmware;
pub mod hang;
pub mod iface;
pub mod ip;
pub mod layout;
pub mod mm;
pub mod program;
pub mod queue;
pub mod reg;
pub mod runtime;
mod slices;
