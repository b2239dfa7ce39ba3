//! The seam between a USB host and the simulated bridge: transfers go in, completions come out.
//!
//! It is what a host controller would carry, and no more, so that a driver in this process and a
//! usbredir peer in another one use the same device. Nothing here blocks: a transfer is submitted, and
//! its completion is collected when its time has come. Time is the GPU's.

use serde::Serialize;

/// The eight bytes that begin a control transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Setup {
    /// `bmRequestType`: bit 7 set for device to host.
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

impl Setup {
    /// The data stage goes from the device to the host.
    pub fn is_in(&self) -> bool {
        self.request_type & 0x80 != 0
    }
}

/// What a host asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// On endpoint 0. `data` is what goes out, empty for a read.
    Control {
        /// The request.
        setup: Setup,
        /// Bytes of an outgoing data stage, as many as `setup.length` says.
        data: Vec<u8>,
    },
    /// Bulk from the host to the device.
    Out {
        /// Address of the endpoint, bit 7 clear.
        endpoint: u8,
        /// Stream from 1, or 0 for none.
        stream: u32,
        /// The bytes.
        data: Vec<u8>,
    },
    /// Bulk from the device to the host.
    In {
        /// Address of the endpoint, bit 7 set.
        endpoint: u8,
        /// Stream from 1, or 0 for none.
        stream: u32,
        /// Bytes that the host has room for.
        length: usize,
    },
}

/// How a transfer ended. The numbers are those of usbredir.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Status {
    /// Done; it may be shorter than asked for.
    Success = 0,
    /// Taken back by the host, or swept away by a reset.
    Cancelled = 1,
    /// No such endpoint, stream or length: a host controller would not even have sent it.
    Invalid = 2,
    /// The device is gone.
    Io = 3,
    /// The endpoint is halted, or the request is one that the device does not know.
    Stall = 4,
    /// The device never answered.
    Timeout = 5,
    /// The device had more to say than there was room for.
    Babble = 6,
}

/// The end of a transfer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// What [`UsbPort::submit`] returned.
    pub id: u64,
    /// How it ended.
    pub status: Status,
    /// Bytes that moved, in either direction.
    pub actual: usize,
    /// Bytes from the device; empty for what went out.
    pub data: Vec<u8>,
    /// When, in nanoseconds of the GPU's clock.
    pub at_ns: u64,
}

/// An endpoint of the present alternate setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Its address.
    pub address: u8,
    /// Largest packet in bytes.
    pub max_packet: u16,
    /// Streams that it can have, 0 for an endpoint without.
    pub max_streams: u32,
}

/// What the present alternate setting of interface 0 is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Alternate setting.
    pub alternate: u8,
    /// Class, subclass and protocol.
    pub class: (u8, u8, u8),
    /// Bulk endpoints.
    pub endpoints: Vec<Endpoint>,
}

/// What a driver cost at the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct UsbCounts {
    /// Commands: command blocks (UAS, Bulk-Only) and vendor requests.
    pub usb_commands: u64,
    /// Transfers of any kind that came to an end.
    pub usb_transfers: u64,
    /// Bytes from the host, commands included.
    pub bytes_out: u64,
    /// Bytes to the host, status included.
    pub bytes_in: u64,
    /// Reads of bridge memory and registers (E4).
    pub reads: u64,
    /// Writes of bridge memory and registers (E5).
    pub writes: u64,
    /// Blocks for bridge memory (8A, F2).
    pub blocks: u64,
    /// Bytes of those blocks.
    pub block_bytes: u64,
    /// PCIe requests that were sent.
    pub tlps: u64,
    /// Nanoseconds in which the bridge worked or the wire was busy.
    pub busy_ns: u64,
}

/// The socket that a device is plugged into, as a host controller sees it. `SET_CONFIGURATION`,
/// `SET_INTERFACE` and `CLEAR_FEATURE(ENDPOINT_HALT)` are control transfers like others.
pub trait UsbPort: Send + Sync {
    /// Hands a transfer over; the number comes back with its completion. Each gets one, also when the
    /// device is gone ([`Status::Io`]). Transfers of one endpoint and stream end in this order.
    fn submit(&self, transfer: Transfer) -> u64;

    /// Takes a transfer back: it ends as [`Status::Cancelled`], unless it has ended already.
    fn cancel(&self, id: u64);

    /// A transfer that has ended by now.
    fn poll(&self) -> Option<Completion>;

    /// Lets time pass until a transfer can have ended. False if none is under way that will end by
    /// itself: then a host would wait for ever, and has to use its deadline.
    fn wait(&self) -> bool;

    /// Lets time pass, in nanoseconds.
    fn pass(&self, ns: u64);

    /// Now, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Gives each of these endpoints streams 1 to `streams`. [`Status::Invalid`] if they have none or
    /// not so many.
    fn alloc_streams(&self, endpoints: &[u8], streams: u32) -> Status;

    /// Takes the streams away.
    fn free_streams(&self, endpoints: &[u8]) -> Status;

    /// The present alternate setting; `None` while not configured or gone.
    fn interface(&self) -> Option<Interface>;

    /// Reset of the port: pending transfers are cancelled, streams and halts are gone, alternate
    /// setting 0; the bridge's memory and what is behind it stay.
    fn reset(&self);

    /// False while unplugged.
    fn present(&self) -> bool;
}
