//! Several devices of one machine, driven on one thread.

use crate::progress::Progress;
use crate::session::{BootOptions, BootReport, DeviceBuffer, Session};

/// A buffer and the device whose memory it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shared {
    /// Index of the device.
    pub owner: usize,
    /// The buffer, as the device's session knows it.
    pub buffer: DeviceBuffer,
}

/// What booting a group did.
#[derive(Clone, Debug, Default)]
pub struct GroupBoot {
    /// What was done to each device.
    pub reports: Vec<BootReport>,
    /// Time from the start of the first to the end of the last, in microseconds of the devices' clock.
    pub us: u64,
}

/// Open devices of one machine, which share their virtual addresses.
pub trait Group {
    /// How many there are.
    fn count(&self) -> usize;

    /// One of them, from 0.
    fn member(&mut self, index: usize) -> anyhow::Result<&mut dyn Session>;

    /// Boots all of them at once, interleaved on this thread.
    fn boot(&mut self, options: &BootOptions, progress: &mut dyn Progress) -> anyhow::Result<GroupBoot>;

    /// Allocates VRAM of one device that the others can reach.
    fn alloc_shared(&mut self, owner: usize, len: u64) -> anyhow::Result<Shared>;

    /// The SDMA of device `by` copies between buffers of any devices, reaching what is not its own
    /// through the other's window on the bus; nanoseconds.
    fn peer_copy(&mut self, by: usize, to: Shared, from: Shared, len: u64) -> anyhow::Result<u64>;

    /// Errors that the hardware of any of them has reported since the last look: after a failure the cause
    /// may stand in another one than the one that waits.
    fn faults(&mut self) -> Vec<String>;

    /// Ends all sessions, as [`Session::release`] does.
    fn release(self: Box<Self>) -> anyhow::Result<()>;
}
