//! Looking at a device: what state it is in, whether it is there at all, what its rings hold.

use super::{HostBus, Watched};
use crate::packets;
use crate::session::{DeviceState, RingImage};
use crate::trace_file::RegNames;
use amdev_core::boot::Reason;
use amdev_core::bus::trace::Names as _;
use amdev_core::bus::{BusError, Mmio, Window};
use amdev_core::device::Gpu;
use amdev_core::discovery::MEMSIZE_REG;
use amdev_core::iface::{Iface as _, QueueKind};
use amdev_core::runtime::Runtime;

/// A state in the command line's terms.
pub(super) fn state(reason: Reason) -> DeviceState {
    match reason {
        Reason::Untouched => DeviceState::Cold,
        Reason::LeftInOrder => DeviceState::InOrder,
        Reason::Foreign => DeviceState::Foreign,
        Reason::OtherLayout { version } => DeviceState::OtherLayout(version),
        _ => DeviceState::Disorder,
    }
}

/// An error if the device is gone. All ones may be a register's value; the memory size never is.
pub(super) fn answers(bus: &mut impl Mmio) -> Result<(), BusError> {
    match bus.read32(Window::Registers, u64::from(MEMSIZE_REG) * 4)? {
        u32::MAX => Err(BusError::Gone),
        _ => Ok(()),
    }
}

/// Reads a queue's ring back and takes it apart.
pub(super) fn ring<B: HostBus>(
    runtime: &mut Runtime<Gpu<'static, Watched<B>>>,
    kind: QueueKind,
) -> anyhow::Result<RingImage> {
    let names = RegNames::of(runtime.iface_ref().ips());
    let ring = runtime.ring(kind);
    let (size, unit, write) = (ring.size(), ring.unit(), ring.put());
    let queue = *ring.queues().first().ok_or_else(|| anyhow::anyhow!("the ring has no queue"))?;
    let iface = runtime.iface();
    let read = iface.read64(&queue.pointers, queue.read_ptr.into())?;
    // What was written since the ring was last filled from its start.
    let len = (write * unit).checked_rem(size).unwrap_or(0);
    let mut bytes = vec![0; usize::try_from(len)?];
    iface.read(&queue.ring, 0, &mut bytes)?;
    let dwords: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w)).collect();
    let name = |addr| names.lookup(addr).map(|(_, name)| name.to_owned());
    let (packets, error) = packets::rows(kind, &dwords, &name);
    Ok(RingImage { kind, size, read, write, packets, error: error.map(|e| e.to_string()) })
}
