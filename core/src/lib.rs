//! A driver core for AMD GPUs that needs no kernel driver.
#![no_std]
#![forbid(unsafe_code)]

pub mod bus;
pub mod discovery;
pub mod firmware;
pub mod reg;
