//! Pools of memory that engines use for a while: kernel arguments, staging areas, signal slots.
//!
//! Each part handed out is marked with the timeline value after which nothing touches it any more;
//! it is handed out again only when that value has been reached.

use heapless::Deque;

use crate::iface::Buffer;
use crate::queue::QueueError;
use crate::queue::signal::reached;

/// Size of the kernel argument pool in bytes.
pub const KERNARG_POOL: u64 = 16 << 20;
/// Size of the kernel argument pool over USB in bytes.
pub const KERNARG_POOL_USB: u64 = 8 << 10;
/// Size of the signal pool in bytes.
pub const SIGNAL_POOL: u64 = 0x1000;
/// Size of the signal pool over USB in bytes.
pub const SIGNAL_POOL_USB: u64 = 0x100;

/// A pool that hands memory out in turn. At most `N` parts can be in use by the GPU at once.
#[derive(Debug)]
pub struct Pool<const N: usize> {
    what: &'static str,
    buffer: Buffer,
    /// Where the next part starts, counted on without end; modulo the size it is the offset.
    head: u64,
    /// Up to where everything is free again, counted like `head`.
    tail: u64,
    /// Ends of the parts in use and the timeline value that frees each, oldest first.
    users: Deque<(u64, u32), N>,
}

impl<const N: usize> Pool<N> {
    /// A pool over a buffer.
    pub fn new(what: &'static str, buffer: Buffer) -> Self {
        Pool { what, buffer, head: 0, tail: 0, users: Deque::new() }
    }

    /// The memory of the pool.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Takes back what is out of use when the timeline stands at `value`.
    pub fn retire(&mut self, value: u32) {
        while let Some(&(end, until)) = self.users.front() {
            if !reached(value, until) {
                break;
            }
            self.tail = end;
            self.users.pop_front();
        }
        if self.users.is_empty() {
            // Nothing is in use: the next part may start at offset 0, with the whole pool behind it.
            self.head = self.head.checked_next_multiple_of(self.buffer.size.max(1)).unwrap_or(0);
            self.tail = self.head;
        }
    }

    /// Timeline value that frees the oldest part in use.
    pub fn oldest(&self) -> Option<u32> {
        self.users.front().map(|u| u.1)
    }

    /// Hands out `size` bytes, aligned to `align` (a power of two), which work up to timeline value
    /// `until` uses. If nothing is free the error names the value to wait for.
    pub fn take(&mut self, size: u64, align: u64, until: u32) -> Result<Buffer, QueueError> {
        let total = self.buffer.size;
        let align = align.max(1);
        let too_small = QueueError::PoolTooSmall { what: self.what, needed: size, size: total };
        if size == 0 || size > total || total == 0 || !align.is_power_of_two() {
            return Err(too_small);
        }
        let offset = self.head % total;
        let aligned = offset.checked_next_multiple_of(align).ok_or(too_small)?;
        let start = match aligned.checked_add(size) {
            Some(end) if end <= total => self.head + (aligned - offset),
            _ => self.head + (total - offset), // the rest is too small: start at offset 0
        };
        let end = start.checked_add(size).ok_or(too_small)?;
        let busy = |pool: &Self| match pool.oldest() {
            Some(until) => QueueError::PoolBusy { what: pool.what, size: total, until },
            None => too_small,
        };
        if end - self.tail > total || self.users.is_full() {
            return Err(busy(self));
        }
        if self.users.push_back((end, until)).is_err() {
            return Err(busy(self));
        }
        self.head = end;
        self.buffer.slice(start % total, size).map_err(QueueError::Iface)
    }
}
