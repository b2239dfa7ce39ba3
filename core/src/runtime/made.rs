//! What a runtime takes from its interface while it is made, so that it can be given back.

use super::QueueMemory;
use crate::iface::{AllocFlags, Buffer, HwQueue, Iface, QueueKind, QueueRequest};
use crate::queue::QueueError;
use crate::queue::ring::{EOP_SIZE, POINTERS_SIZE};

/// Bytes of a queue's pointers that an interface uses: the read pointer, and the write pointer at 0x10.
const POINTERS_USED: usize = 0x18;
/// Smallest unit of an allocation.
pub(super) const PAGE: u64 = 0x1000;

/// What a runtime in the making has taken from its interface.
#[derive(Default)]
pub(super) struct Made {
    /// The page for what is small, and its first byte that is free.
    pub(super) page: Option<(Buffer, u64)>,
    buffers: heapless::Vec<Buffer, 12>,
    queues: heapless::Vec<HwQueue, 2>,
}

impl Made {
    pub(super) fn alloc<I: Iface>(
        &mut self,
        iface: &mut I,
        size: u64,
        flags: AllocFlags,
    ) -> Result<Buffer, QueueError> {
        let buffer = iface.alloc(size, flags)?;
        // There is room for all that a runtime allocates.
        let _ = self.buffers.push(buffer);
        Ok(buffer)
    }

    /// A part of the page, or an allocation of its own. Rings are aligned to 256 bytes.
    pub(super) fn small<I: Iface>(
        &mut self,
        iface: &mut I,
        size: u64,
        flags: AllocFlags,
    ) -> Result<Buffer, QueueError> {
        const ALIGN: u64 = 0x100;
        let Some((page, at)) = &mut self.page else { return self.alloc(iface, size, flags) };
        let part = page.slice(*at, size)?;
        *at = at.saturating_add(size).next_multiple_of(ALIGN);
        Ok(part)
    }

    pub(super) fn queue<I: Iface>(
        &mut self,
        iface: &mut I,
        kind: QueueKind,
        len: u64,
        in_page: bool,
    ) -> Result<QueueMemory, QueueError> {
        let flags = AllocFlags::UNCACHED | AllocFlags::CPU_ACCESS;
        let ring = match kind {
            QueueKind::Sdma if in_page => self.small(iface, len, flags)?,
            _ => self.alloc(iface, len, flags)?,
        };
        let pointers = match in_page {
            true => self.small(iface, POINTERS_SIZE, flags)?,
            false => self.alloc(iface, POINTERS_SIZE, flags)?,
        };
        // All bytes of both pointers: a stale upper half would make the engine run off. More of them
        // where it costs nothing.
        let used = if self.page.is_some() { POINTERS_USED } else { POINTERS_SIZE as usize };
        iface.write(&pointers, 0, [0; POINTERS_SIZE as usize].get(..used).unwrap_or(&[]))?;
        let eop = match kind {
            QueueKind::Compute => Some(self.alloc(iface, EOP_SIZE, AllocFlags::empty())?),
            QueueKind::Sdma => None,
        };
        iface.fence()?;
        iface.flush_hdp()?;
        let hw = iface.create_queue(&QueueRequest { kind, ring, pointers, eop, cwsr: None, xcc: 0 })?;
        let _ = self.queues.push(hw);
        Ok(QueueMemory { ring, pointers, eop, hw })
    }

    /// Gives everything back that the device lets go of; memory of a queue that does not stop stays
    /// taken, for the interface refuses to free it.
    pub(super) fn give_back<I: Iface>(&self, iface: &mut I) {
        for queue in &self.queues {
            let _ = iface.destroy_queue(queue);
        }
        for buffer in self.buffers.iter().rev() {
            let _ = iface.free(*buffer);
        }
    }
}
