//! The seam below the bridge: a device on a USB port, and the transfers that it takes.
//!
//! A [`Port`] is what a host controller carries and no more. Two implement it: [`crate::libusb`] for
//! devices on this machine, and [`crate::sim`] for the simulated bridge.

use crate::error::UsbError;
use std::fmt;

/// The eight bytes that begin a control transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Setup {
    /// `bmRequestType`: bit 7 is set where data go from the device to the host.
    pub request_type: u8,
    /// `bRequest`.
    pub request: u8,
    /// `wValue`.
    pub value: u16,
    /// `wIndex`.
    pub index: u16,
    /// `wLength`: bytes that the data stage may have.
    pub length: u16,
}

/// A transfer as a host asks for it. Stream 0 is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// On endpoint 0; `data` goes out.
    Control {
        /// The request.
        setup: Setup,
        /// What goes out with it, `setup.length` bytes; empty for a read.
        data: Vec<u8>,
    },
    /// Bulk to the device.
    Out {
        /// Address of the endpoint.
        endpoint: u8,
        /// Its stream.
        stream: u32,
        /// The bytes.
        data: Vec<u8>,
    },
    /// Bulk from the device.
    In {
        /// Address of the endpoint, bit 7 set.
        endpoint: u8,
        /// Its stream.
        stream: u32,
        /// Bytes that there is room for.
        length: usize,
    },
}

impl Transfer {
    /// Bytes that it moves at most.
    pub fn len(&self) -> usize {
        match self {
            Transfer::Control { setup, .. } => usize::from(setup.length),
            Transfer::Out { data, .. } => data.len(),
            Transfer::In { length, .. } => *length,
        }
    }

    /// Whether it moves none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The endpoint, 0 for control.
    pub fn endpoint(&self) -> u8 {
        match self {
            Transfer::Control { .. } => 0,
            Transfer::Out { endpoint, .. } | Transfer::In { endpoint, .. } => *endpoint,
        }
    }
}

/// How a transfer ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Done; it may be shorter than asked for.
    Done,
    /// The endpoint is halted, or the device does not know the request.
    Stalled,
    /// The host took it back.
    Cancelled,
    /// The device is not there any more.
    Gone,
    /// The device sent more than there was room for.
    Overflow,
    /// The host controller reports an error.
    Failed,
}

/// A transfer that ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// What [`Port::submit`] returned.
    pub id: u64,
    /// How.
    pub end: End,
    /// Bytes that moved.
    pub actual: usize,
    /// What came in.
    pub data: Vec<u8>,
}

/// Speed of a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Speed {
    /// 1.5 or 12 Mbit/s.
    Low,
    /// 480 Mbit/s: no streams.
    High,
    /// 5 Gbit/s.
    Super,
    /// 10 Gbit/s.
    SuperPlus,
    /// 20 Gbit/s and more.
    SuperPlusX2,
    /// The host does not tell.
    Unknown,
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Speed::Low => "USB 1 (12 Mbit/s or less)",
            Speed::High => "USB 2 (480 Mbit/s)",
            Speed::Super => "USB 3 (5 Gbit/s)",
            Speed::SuperPlus => "USB 3 (10 Gbit/s)",
            Speed::SuperPlusX2 => "USB 3 (20 Gbit/s)",
            Speed::Unknown => "USB at unknown speed",
        })
    }
}

/// What the descriptors say of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Description {
    /// Where it is plugged in, `bus-port.port`.
    pub place: String,
    /// Vendor and product id.
    pub id: (u16, u16),
    /// Manufacturer, empty if there is none.
    pub manufacturer: String,
    /// Product.
    pub product: String,
    /// Serial number.
    pub serial: String,
    /// Speed at which it runs.
    pub speed: Speed,
    /// Class, subclass and protocol of each alternate setting of interface 0, by number.
    pub settings: Vec<(u8, u8, u8)>,
}

/// A device that was opened.
///
/// Transfers of one endpoint and stream end in the order of their submission. Everything that can take
/// time has a deadline; a device that goes away ends every transfer as [`End::Gone`].
pub trait Port {
    /// What it is.
    fn description(&self) -> &Description;

    /// Detaches the system's driver if one has it, selects configuration 1 and this alternate setting
    /// of interface 0, with so many streams on each of these endpoints.
    ///
    /// # Errors
    /// [`UsbError::Gone`], [`UsbError::Refused`] with what the user can do.
    fn select(&mut self, alternate: u8, streams: u32, endpoints: &[u8]) -> Result<(), UsbError>;

    /// Hands a transfer over; the number comes back with its completion.
    ///
    /// # Errors
    /// [`UsbError::Gone`], or what the system says.
    fn submit(&mut self, transfer: Transfer) -> Result<u64, UsbError>;

    /// The next transfer that has ended; waits for one at most `timeout_us` microseconds.
    ///
    /// # Errors
    /// What the system says; a device that goes away is told by the completions.
    fn reap(&mut self, timeout_us: u64) -> Result<Option<Completion>, UsbError>;

    /// Takes a transfer back; its completion comes all the same.
    fn cancel(&mut self, id: u64);

    /// Lets a halted endpoint go on.
    ///
    /// # Errors
    /// [`UsbError::Gone`]
    fn clear_halt(&mut self, endpoint: u8) -> Result<(), UsbError>;

    /// Resets the device on its port: alternate setting 0, no streams. [`Port::select`] follows.
    ///
    /// # Errors
    /// [`UsbError::Gone`], also if it comes back as another device.
    fn reset(&mut self) -> Result<(), UsbError>;

    /// Whether the device still answers. A host controller reports errors before the system notices that a
    /// device was unplugged, so that this may take up to a second.
    fn is_present(&mut self) -> bool;

    /// Microseconds since some moment.
    fn now_us(&self) -> u64;

    /// Lets time pass.
    fn wait_us(&self, us: u64);

    /// Gives the device back to the system's driver where it was taken from one.
    ///
    /// # Errors
    /// What could not be given back.
    fn release(&mut self) -> Result<(), UsbError>;

    /// Misuse that a simulated device saw; `None` if the device does not watch.
    fn violations(&self) -> Option<Vec<String>> {
        None
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A port that must not be used.
    pub(crate) struct NoPort;

    impl Port for NoPort {
        fn description(&self) -> &Description {
            unreachable!()
        }
        fn select(&mut self, _: u8, _: u32, _: &[u8]) -> Result<(), UsbError> {
            unreachable!()
        }
        fn submit(&mut self, _: Transfer) -> Result<u64, UsbError> {
            unreachable!()
        }
        fn reap(&mut self, _: u64) -> Result<Option<Completion>, UsbError> {
            unreachable!()
        }
        fn cancel(&mut self, _: u64) {}
        fn clear_halt(&mut self, _: u8) -> Result<(), UsbError> {
            unreachable!()
        }
        fn reset(&mut self) -> Result<(), UsbError> {
            unreachable!()
        }
        fn is_present(&mut self) -> bool {
            true
        }
        fn now_us(&self) -> u64 {
            0
        }
        fn wait_us(&self, _: u64) {}
        fn release(&mut self) -> Result<(), UsbError> {
            Ok(())
        }
    }
}
