//! Lists devices and checks this machine, as `amdev list` and `amdev doctor` do.
//!
//! ```text
//! cargo run -p amdev-linux --example devices
//! ```

use amdev_cli::checks::{Check, State};
use amdev_cli::session::Found;

/// Devices of all ways to reach one, and the checks of this machine.
pub(crate) fn run() -> (Vec<Found>, Vec<Check>) {
    let backends = amdev_linux::backends();
    let devices = backends.iter().flat_map(|b| b.list()).collect();
    let checks = backends.iter().flat_map(|b| b.checks()).collect();
    (devices, checks)
}

#[allow(dead_code)] // the tests call `run`
fn main() {
    let (devices, checks) = run();
    for device in devices {
        let state = device.problem.unwrap_or_else(|| "usable".into());
        println!("{}: {} ({state})", device.device, device.name);
    }
    for check in checks.iter().filter(|c| c.state != State::Good) {
        println!("{}: {}; {}", check.name, check.found, check.remedy);
    }
}
