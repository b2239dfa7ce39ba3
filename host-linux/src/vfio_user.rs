//! `--device vfio-user:SOCKET`: a GPU that another process serves over a Unix socket.
//!
//! The protocol is that of QEMU's `docs/interop/vfio-user.rst`. Every request has a deadline; a
//! server that refuses, goes away or falls silent is an error, never a hang.

mod bus;
mod client;
mod dma;
mod memory;
mod region;
mod wire;

pub use bus::VfioUserBus;
pub use client::Failure;

use crate::owner::{Key, Owner};
use amdev_cli::beside;
use amdev_cli::bus_session::BusSession;
use amdev_cli::error::CliError;
use amdev_cli::guard::Guarded;
use amdev_cli::session::{Backend, Found, OpenOptions, Sample, Session};
use amdev_cli::spec::DeviceSpec;
use std::path::Path;
use std::time::{Duration, Instant};

/// Devices served over vfio-user sockets. None is listed: a socket can be anywhere.
#[derive(Debug, Default)]
pub struct VfioUserBackend;

/// Whether a process listens at a socket, by the system's list of them, which has the names that they were
/// given: another folder of the same file may stand there.
fn is_served(path: &Path) -> bool {
    // Flags in the fourth column: a socket that accepts (`__SO_ACCEPTCON`).
    const ACCEPTS: &str = "00010000";
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    path.exists()
        && sockets.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.nth(3) == Some(ACCEPTS)
                && words.last().is_some_and(|name| Path::new(name).file_name() == path.file_name())
        })
}

fn session(
    spec: &DeviceSpec,
    path: &Path,
    owner: Option<Owner>,
    options: &OpenOptions,
) -> anyhow::Result<Box<dyn Session>> {
    let bus = VfioUserBus::open(path).map_err(|e| CliError::Device(format!("{spec}: {e}")))?;
    Ok(Box::new(BusSession::new(Guarded::new(bus.owned_by(owner)), spec.to_string(), options)?))
}

impl Backend for VfioUserBackend {
    fn serves(&self, spec: &DeviceSpec) -> bool {
        matches!(spec, DeviceSpec::VfioUser(_))
    }

    fn list(&self) -> Vec<Found> {
        Vec::new()
    }

    fn open(&self, spec: &DeviceSpec, options: &OpenOptions) -> anyhow::Result<Box<dyn Session>> {
        let DeviceSpec::VfioUser(path) = spec else {
            return Err(CliError::Device(format!("{spec} is not a vfio-user socket")).into());
        };
        // A server takes one client at a time, and would let this one wait.
        let owner = match path.exists() {
            true => Some(Key::socket(path).and_then(|key| Owner::of(&key))),
            false => None,
        };
        let owner = owner.transpose().map_err(|e| CliError::Device(e.to_string()))?;
        session(spec, path, owner, options)
    }

    fn wait_for(&self, spec: &DeviceSpec, seconds: f64) -> anyhow::Result<()> {
        let DeviceSpec::VfioUser(path) = spec else { return Ok(()) };
        let start = Instant::now();
        // A connection would be in the way of a server's first client.
        while !is_served(path) {
            if start.elapsed().as_secs_f64() >= seconds {
                let text = format!(
                    "{spec}: nobody serves it after {seconds} s; start `amdev-sim serve` or another server"
                );
                return Err(CliError::Device(text).into());
            }
            if amdev_cli::guard::stop_asked() {
                return Err(amdev_core::bus::BusError::Stopped.into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn smi(&self, spec: &DeviceSpec, options: &OpenOptions) -> Option<anyhow::Result<Sample>> {
        let DeviceSpec::VfioUser(path) = spec else { return None };
        let key = Key::socket(path).map_err(|e| CliError::Device(e.to_string()).into());
        Some(key.and_then(|key| beside::sample(&key, |look| session(spec, path, Some(look), options))))
    }
}
