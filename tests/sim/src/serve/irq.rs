//! Interrupts: eventfds of the client.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Index of the legacy interrupt.
pub(super) const INTX: u32 = 0;
/// Index of message signalled interrupts.
pub(super) const MSI: u32 = 1;
/// INTx, MSI, MSI-X, error, request.
pub(super) const TYPES: u32 = 5;

// `struct vfio_irq_set` and `vfio_irq_info` of `linux/vfio.h`.
const DATA_NONE: u32 = 1;
const DATA_BOOL: u32 = 1 << 1;
const DATA_EVENTFD: u32 = 1 << 2;
const ACTION_MASK: u32 = 1 << 3;
const ACTION_UNMASK: u32 = 1 << 4;
const ACTION_TRIGGER: u32 = 1 << 5;
const INFO_EVENTFD: u32 = 1;
const INFO_MASKABLE: u32 = 1 << 1;
const INFO_AUTOMASKED: u32 = 1 << 2;
const INFO_NORESIZE: u32 = 1 << 3;

/// Flags and number of interrupts of an index. The simulated GPU has one MSI vector; its INTx can
/// be set up, and is never raised.
pub(super) fn info(index: u32) -> (u32, u32) {
    match index {
        INTX => (INFO_EVENTFD | INFO_MASKABLE | INFO_AUTOMASKED, 1),
        MSI => (INFO_EVENTFD | INFO_NORESIZE, 1),
        _ => (0, 0),
    }
}

/// The eventfds of INTx and MSI.
#[derive(Default)]
pub(super) struct Irqs([Mutex<Option<OwnedFd>>; 2]);

impl Irqs {
    fn slot(&self, index: u32) -> Option<MutexGuard<'_, Option<OwnedFd>>> {
        Some(self.0.get(index as usize)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn trigger(&self, index: u32) {
        if let Some(slot) = self.slot(index)
            && let Some(fd) = &*slot
        {
            // The device must not wait for a client that does not read its descriptor.
            let mut fds = [PollFd::new(fd, PollFlags::OUT)];
            if poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n == 1) {
                let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
            }
        }
    }

    fn put(&self, index: u32, fd: Option<OwnedFd>) {
        if let Some(mut slot) = self.slot(index) {
            *slot = fd;
        }
    }

    /// The client is gone.
    pub(super) fn clear(&self) {
        self.put(INTX, None);
        self.put(MSI, None);
    }

    /// DEVICE_SET_IRQS.
    pub(super) fn set(
        &self,
        flags: u32,
        index: u32,
        start: u32,
        count: u32,
        data: &[u8],
        mut fds: Vec<OwnedFd>,
    ) -> Result<(), Errno> {
        if index >= TYPES {
            return Err(Errno::INVAL);
        }
        let (kind, action) = (flags & 7, flags & 0x38);
        let (_, available) = info(index);
        let end = start.checked_add(count).ok_or(Errno::INVAL)?;
        if flags & !0x3f != 0 || kind.count_ones() != 1 || action.count_ones() != 1 || end > available {
            return Err(Errno::INVAL);
        }
        if kind != DATA_EVENTFD && !fds.is_empty() {
            return Err(Errno::INVAL);
        }
        let set = match kind {
            DATA_NONE if data.is_empty() => true,
            DATA_BOOL if data.len() == count as usize => data.first().is_some_and(|b| *b != 0),
            // Without a descriptor the one that is there is taken away.
            DATA_EVENTFD if data.is_empty() && fds.len() <= count as usize => true,
            _ => return Err(Errno::INVAL),
        };
        match (action, count) {
            // All of the index is switched off.
            (ACTION_TRIGGER, 0) if kind == DATA_NONE => self.put(index, None),
            (_, 0) => return Err(Errno::INVAL),
            (ACTION_TRIGGER, _) if kind == DATA_EVENTFD => self.put(index, fds.pop()),
            (ACTION_TRIGGER, _) => {
                if set {
                    self.trigger(index);
                }
            }
            (ACTION_MASK | ACTION_UNMASK, _) if index == INTX => {}
            _ => return Err(Errno::NOTSUP),
        }
        Ok(())
    }
}
