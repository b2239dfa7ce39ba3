//! The simulated bridge at the USB level: both firmwares, misuse, faults.

mod custom;
mod host;
mod patched;
