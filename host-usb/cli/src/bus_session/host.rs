//! What a host's bus tells a session.

use crate::session::UsbCounts;
use amdev_core::bus::Bus;
use amdev_core::runtime::Sizes;

/// What a host's bus tells beyond [`Bus`].
pub trait HostBus: Bus {
    /// Misuse that a simulated device saw; `None` if the device does not watch.
    fn violations(&self) -> Option<Vec<String>> {
        None
    }

    /// Whether the device takes firmware that nobody signed.
    fn synthetic_firmware_allowed(&self) -> bool {
        false
    }

    /// From now on what takes longer than this many microseconds of this machine's time counts as
    /// late, and again after it: for a device with a clock of its own, which may stand still.
    fn bound_real_time(&mut self, limit_us: u64) {
        let _ = limit_us;
    }

    /// Sizes of queues and pools that suit the way to the device.
    fn sizes(&self) -> Sizes {
        Sizes::default()
    }

    /// What was done over USB; `None` for other ways.
    fn usb_counts(&self) -> Option<UsbCounts> {
        None
    }

    /// Whether the user wants the end: each wait is an error, unless [`HostBus::finishing`].
    fn stop_asked(&self) -> bool {
        false
    }

    /// From now on (or not any more) what is done is brought to its end also where the user has asked for
    /// the end of the work. What it was before.
    fn finishing(&mut self, on: bool) -> bool {
        let _ = on;
        false
    }

    /// Whether others can ask now what the device measures, with [`HostBus::asked`]: false where none can at
    /// all, and while the host is in the middle of something that bears no other access.
    fn may_be_asked(&self) -> bool {
        false
    }

    /// Who wants to know what the device measures, if anybody does: the answer is written there. Never
    /// waits.
    fn asked(&mut self) -> Option<Box<dyn std::io::Write>> {
        None
    }

    /// Gives up what the host holds of the device: what can go wrong in it is told, unlike in a drop.
    fn close(self) -> anyhow::Result<()>
    where
        Self: Sized,
    {
        Ok(())
    }

    /// PCI device id and revision, which decide between variants of firmware.
    fn pci_id(&mut self) -> (u16, u8);
}
