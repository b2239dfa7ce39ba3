//! What can go wrong between the host and what is behind the bridge.

use amdev_core::bus::BusError;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsbError {
    /// The device was unplugged, or lost its power.
    #[error("the USB device is gone; plug it in again, then boot it anew")]
    Gone,
    /// No answer in time.
    #[error("{what}: no answer within {after_ms} ms; unplug the enclosure, plug it in again and boot anew")]
    Timeout {
        /// What was asked.
        what: String,
        /// How long it was waited for, in milliseconds.
        after_ms: u64,
    },
    /// An endpoint was halted.
    #[error("{what}: the bridge refused it (stall)")]
    Stall {
        /// What was asked.
        what: String,
    },
    /// Fewer or more bytes than there have to be.
    #[error("{what}: {got} bytes instead of {want}")]
    Length {
        /// What was asked.
        what: String,
        /// Bytes that came or went.
        got: usize,
        /// Bytes that should have.
        want: usize,
    },
    /// An answer that the protocol does not have.
    #[error("{what}: {why}")]
    Protocol {
        /// What was asked.
        what: String,
        /// What is wrong with the answer.
        why: String,
    },
    /// A PCI Express request did not do what it should.
    #[error("PCIe {what} at {address:#x}: {why}")]
    Pcie {
        /// Read or write, of memory or configuration.
        what: &'static str,
        /// Its address as it stands in the request.
        address: u64,
        /// Why.
        why: &'static str,
    },
    /// The link to the GPU is down.
    #[error(
        "the PCIe link behind the bridge is down (LTSSM {ltssm:#04x}, 0x78 is up); check the card's power \
         and its seat in the enclosure, then plug it in again"
    )]
    LinkDown {
        /// State of the link's training (register 0xB450).
        ltssm: u8,
    },
    /// What is there is not what this driver knows.
    #[error("{0}")]
    Unknown(String),
    /// The system refuses; the text says what to do.
    #[error("{0}")]
    Refused(String),
    /// Not what this bridge can do.
    #[error("this bridge cannot {0}")]
    Unsupported(&'static str),
}

impl UsbError {
    /// The error of the bus seam. The core's has no room for text: what it leaves out goes to the log.
    pub fn to_bus(&self) -> BusError {
        match self {
            UsbError::Gone => return BusError::Gone,
            UsbError::Unsupported(what) => return BusError::Unsupported(what),
            _ => tracing::error!("{self}"),
        }
        match self {
            UsbError::Timeout { after_ms, .. } => BusError::Timeout { after_us: after_ms * 1000 },
            UsbError::Stall { .. } => BusError::Host(
                "the USB bridge refused a command (details in the log above); unplug it, plug it in again \
                 and boot anew",
            ),
            UsbError::Length { .. } | UsbError::Protocol { .. } => BusError::Host(
                "the USB bridge gave an answer that is not of its protocol (details in the log above); \
                 unplug it, plug it in again and boot anew",
            ),
            UsbError::Pcie { .. } => BusError::Host(
                "a PCIe request behind the USB bridge failed (details in the log above); `amdev-usb doctor` \
                 shows the state of the link",
            ),
            UsbError::LinkDown { .. } => BusError::Host(
                "the PCIe link behind the USB bridge is down; check the card's power and its seat, then \
                 plug the enclosure in again",
            ),
            _ => BusError::Host("the USB bridge cannot be used (details in the log above)"),
        }
    }
}
