//! Memory that the device reaches: the bridge's own.

use super::UsbBus;
use crate::controller::{
    BLOCKS_AT, BLOCKS_LEN, BLOCKS_SEEN, BLOCKS_XRAM, COMPLETIONS_AT, COMPLETIONS_XRAM, Firmware, QUEUE_AT,
    QUEUE_LEN, QUEUE_XRAM,
};
use amdev_core::bus::{BusError, Dma, DmaHandle, Segment};
use std::ops::Range;

const PAGE: u64 = 0x1000;
/// Bus addresses from block memory on that a huge page takes in. Nothing answers behind block memory.
const BLOCKS_SPAN: u64 = 2 << 20;

/// An allocation: a range of block memory, or the queue page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Blocks(Range<u64>),
    Queue,
    /// The page with the completion queue; the open firmware only.
    Completions,
}

impl Place {
    pub(super) fn len(&self) -> u64 {
        match self {
            Place::Blocks(range) => range.end - range.start,
            Place::Queue | Place::Completions => QUEUE_LEN,
        }
    }
}

impl Dma for UsbBus {
    /// From block memory, the queue page for a single page. Not zeroed: that would cost a command for each
    /// byte of the page.
    fn dma_alloc(&mut self, len: u64) -> Result<DmaHandle, BusError> {
        let none = BusError::NoDmaMemory { len };
        if len > 0 && len <= PAGE && !self.allocations.values().any(|p| *p == Place::Queue) {
            return Ok(self.take(Place::Queue));
        }
        let is_free = |place: &Place| !self.allocations.values().any(|p| p == place);
        let has_bell = self.controller.firmware() == Firmware::Custom;
        if len > 0 && len <= PAGE && has_bell && is_free(&Place::Completions) {
            return Ok(self.take(Place::Completions));
        }
        let no_blocks = !self.allocations.values().any(|p| matches!(p, Place::Blocks(_)));
        if len > BLOCKS_LEN && len <= BLOCKS_SPAN && no_blocks {
            return Ok(self.take(Place::Blocks(0..BLOCKS_SPAN)));
        }
        let step = self.controller.block_step();
        let len = len.checked_next_multiple_of(step).filter(|l| *l > 0).ok_or(none)?;
        let mut taken: Vec<Range<u64>> = self
            .allocations
            .values()
            .filter_map(|p| if let Place::Blocks(r) = p { Some(r.clone()) } else { None })
            .collect();
        taken.sort_by_key(|r| r.start);
        let mut start = 0;
        for range in taken {
            if range.start - start >= len {
                break;
            }
            start = range.end;
        }
        let end = start.checked_add(len).filter(|end| *end <= BLOCKS_LEN).ok_or(none)?;
        Ok(self.take(Place::Blocks(start..end)))
    }

    fn dma_free(&mut self, handle: DmaHandle) -> Result<(), BusError> {
        self.place(handle, 0, 0)?;
        if self.allocations.remove(&handle.0) == Some(Place::Queue) {
            self.queue_cacheable.clear();
        }
        Ok(())
    }

    fn dma_len(&self, handle: DmaHandle) -> Result<u64, BusError> {
        Ok(self.place(handle, 0, 0)?.len())
    }

    fn dma_segment(&self, handle: DmaHandle, offset: u64) -> Result<Segment, BusError> {
        let place = self.place(handle, offset, 1)?;
        let base = match &place {
            Place::Blocks(range) => BLOCKS_AT + range.start,
            Place::Queue => QUEUE_AT,
            Place::Completions => COMPLETIONS_AT,
        };
        Ok(Segment { addr: base + offset, len: place.len() - offset })
    }

    fn dma_read(&mut self, handle: DmaHandle, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        let len = buf.len() as u64;
        let place = self.place(handle, offset, len)?;
        self.send_blocks()?;
        match place {
            Place::Queue => self.run(|c| c.xram_read(QUEUE_XRAM + offset as u32, buf)),
            Place::Completions => self.run(|c| c.xram_read(COMPLETIONS_XRAM + offset as u32, buf)),
            Place::Blocks(range) => {
                let at = range.start + offset;
                if self.armed.take() == Some((at, len)) {
                    return self.run(|c| c.blocks_read(buf));
                }
                if at + len > BLOCKS_SEEN {
                    return Err(BusError::Unsupported(
                        "read block memory of the bridge behind its first 4 KiB; copy in smaller steps",
                    ));
                }
                self.run(|c| c.xram_read(BLOCKS_XRAM + at as u32, buf))
            }
        }
    }

    fn dma_write(&mut self, handle: DmaHandle, offset: u64, data: &[u8]) -> Result<(), BusError> {
        match self.place(handle, offset, data.len() as u64)? {
            Place::Queue => {
                self.send_blocks()?;
                let end = offset + data.len() as u64;
                let cached = self.queue_cacheable.iter().any(|r| r.start <= offset && end <= r.end);
                self.run(|c| c.xram_write(QUEUE_XRAM + offset as u32, data, cached))
            }
            Place::Completions => {
                self.send_blocks()?;
                self.run(|c| c.xram_write(COMPLETIONS_XRAM + offset as u32, data, false))
            }
            Place::Blocks(range) => {
                let at = range.start + offset;
                if at + data.len() as u64 > BLOCKS_LEN {
                    return Err(BusError::BadDmaRange { handle, offset, len: data.len() as u64 });
                }
                match &mut self.gathered {
                    Some((start, bytes)) if *start + bytes.len() as u64 == at => bytes.extend(data),
                    _ => {
                        self.send_blocks()?;
                        self.gathered = Some((at, data.to_vec()));
                    }
                }
                Ok(())
            }
        }
    }

    fn sync_for_device(&mut self, handle: DmaHandle, offset: u64, len: u64) -> Result<(), BusError> {
        match self.place(handle, offset, len)? {
            Place::Blocks(_) => self.send_blocks(),
            // Posted before whatever tells the device to look.
            Place::Queue | Place::Completions => Ok(()),
        }
    }
}
