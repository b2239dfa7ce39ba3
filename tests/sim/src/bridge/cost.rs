//! What things cost on the bridge's virtual clock, in nanoseconds.
//!
//! Nothing here was measured for this project. The numbers are of the size that the open firmware's
//! notes give (`README.md`, `USBGPU.md`: 700 MB/s into bridge memory at 10 Gbit/s; 3.6 MB/s written
//! and 1.8 MB/s read through the TLP engine; single bytes at 10 to 50 KB/s), and of a host controller's
//! usual latency. A GPU with a real clock is served as fast as it goes: its transport takes the time.

/// From the host's submission until the device sees it.
pub(crate) const SEND: u64 = 10_000;
/// From the device's answer until the host sees it.
pub(crate) const RETURN: u64 = 10_000;
/// The controller takes in a command and answers it.
pub(crate) const COMMAND: u64 = 25_000;
/// A control transfer: three stages.
pub(crate) const CONTROL: u64 = 30_000;
/// One byte of bridge memory copied into an answer by the 8051.
pub(crate) const COPY_BYTE: u64 = 200;
/// One double word written through the TLP engine in a stream.
pub(crate) const STREAM_WRITE: u64 = 1_110;
/// One double word read through it.
pub(crate) const STREAM_READ: u64 = 2_220;
/// Power on until the link is stable: the firmware samples it three times, 100 ms apart.
pub(crate) const POWER_ON: u64 = 300_000_000;
/// Training of the link after PERST#.
pub(crate) const TRAINING: u64 = 100_000_000;
/// What `usb-late` adds.
pub(crate) const LATE: u64 = 2_000_000_000;

/// `len` bytes on the wire and into memory.
pub(crate) fn wire(len: usize) -> u64 {
    (len as u64) * 10 / 7
}
