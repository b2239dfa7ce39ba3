//! A strict simulated AMD GPU.
//!
//! It is written from AMD's headers, the Linux driver and traces of a reference driver, and knows
//! nothing of amdev: a driver that is wrong on hardware shall fail here.

pub mod env;
pub mod violation;
