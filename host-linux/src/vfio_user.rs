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

use crate::owner::Owner;
use amdev_cli::bus_session::BusSession;
use amdev_cli::error::CliError;
use amdev_cli::guard::Guarded;
use amdev_cli::session::{Backend, Found, OpenOptions, Session};
use amdev_cli::spec::DeviceSpec;

/// Devices served over vfio-user sockets. None is listed: a socket can be anywhere.
#[derive(Debug, Default)]
pub struct VfioUserBackend;

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
            true => Some(Owner::of_socket(path).map_err(|e| CliError::Device(e.to_string()))?),
            false => None,
        };
        let bus =
            VfioUserBus::open(path).map_err(|e| CliError::Device(format!("{spec}: {e}")))?.owned_by(owner);
        Ok(Box::new(BusSession::new(Guarded::new(bus), spec.to_string(), options)?))
    }
}
