//! The simulated ASM2464PD: a USB device with PCI Express behind it, and the simulated GPU at its end.
//!
//! Two firmwares are known: the vendor's with its identity patched (USB Attached SCSI with 31
//! streams, commands E4, E5 and 8A), and the open one (vendor requests E4, E5, F0, F2, F3 and bulk).
//! See [`usb`] for what goes over the wire.

pub mod usb;
