//! GPUs behind USB bridges: an ASM2464PD with the vendor's patched firmware or the open one.
//!
//! ```text
//! bus         the core's bus: windows, bridge memory as DMA memory, what need not be written again
//! pci         hierarchy behind the bridge: buses, windows, BARs, resets
//! controller  what both firmwares can do      patched, custom: each of them      tlp: PCIe requests
//! uas, link   command blocks on streams; transfers with deadlines
//! port        a device on a USB port          libusb: of this machine            sim: simulated
//! ```
//!
//! Every byte of a PCIe request is a USB command on the vendor's firmware: what is not sent is what makes
//! it fast.
#![warn(missing_docs)]

pub mod backend;
pub mod bus;
pub mod controller;
pub mod custom;
pub mod error;
pub mod known;
#[cfg(feature = "libusb")]
pub mod libusb;
pub mod link;
pub mod patched;
pub mod pci;
pub mod port;
#[cfg(feature = "sim")]
pub mod sim;
pub mod tlp;
pub mod uas;

use amdev_cli::session::Backend;

/// Every way this host has to reach devices, in the order in which they are listed.
pub fn backends() -> Vec<Box<dyn Backend>> {
    vec![
        #[cfg(feature = "sim")]
        Box::new(amdev_cli::sim::SimBackend),
        #[cfg(feature = "sim")]
        Box::new(backend::SimUsbBackend),
        #[cfg(feature = "libusb")]
        Box::new(backend::UsbBackend),
    ]
}
