//! amdev on Linux: the ways to reach a GPU from a Linux machine.
#![warn(missing_docs)]

mod allocations;
mod config;
pub mod doctor;
mod iova;
pub use amdev_cli::owner;
pub mod safety;
mod shared;
pub mod vfio;
pub mod vfio_user;
mod wait;

use amdev_cli::session::Backend;

/// Every way this host has to reach devices, in the order in which they are listed.
pub fn backends() -> Vec<Box<dyn Backend>> {
    vec![
        #[cfg(feature = "sim")]
        Box::new(amdev_cli::sim::SimBackend),
        #[cfg(feature = "sim")]
        Box::new(amdev_usb::backend::SimUsbBackend),
        #[cfg(feature = "usb")]
        Box::new(amdev_usb::backend::UsbBackend),
        Box::new(vfio::PciBackend::default()),
        Box::new(vfio_user::VfioUserBackend),
        Box::new(doctor::Machine::default()),
    ]
}
