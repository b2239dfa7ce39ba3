//! Queues: encoders for the packets that compute and SDMA engines execute, the rings that carry
//! them, and the memory slots in which they report back.
//!
//! Encoders ([`pm4::Pm4`], [`sdma::Sdma`]) write dwords into a buffer of the caller and never
//! allocate; what does not fit is an error. [`ring::Ring`] copies finished packets into a ring and
//! keeps the order *ring words, write-pointer memory, fence, HDP flush, doorbell*. The same packets
//! can be taken apart again ([`pm4::decode`], [`sdma::decode`]), for ring dumps and traces.
//!
//! Addresses are GPU virtual addresses in bytes, register addresses absolute dword addresses.

use crate::iface::{IfaceError, QueueKind};
use crate::reg::RegError;

pub mod dispatch;
pub mod mqd;
pub mod pm4;
pub mod pool;
pub mod regs;
pub mod ring;
pub mod scratch;
pub mod sdma;
pub mod signal;
pub mod sqtt;

/// Errors of encoders and rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The interface below failed.
    #[error(transparent)]
    Iface(#[from] IfaceError),
    /// Work did not end.
    #[error("{0}")]
    Hang(crate::hang::HangError),
    /// A register has no address in this IP version.
    #[error(transparent)]
    Reg(#[from] RegError),
    /// The caller's buffer is full.
    #[error("the command buffer holds {capacity} dwords, {needed} are needed; lend a larger one")]
    Overflow {
        /// Dwords needed, with what the buffer already holds.
        needed: usize,
        /// Dwords the buffer holds.
        capacity: usize,
    },
    /// A packet would have more dwords than its count field can say (14 bits).
    #[error("a packet of {0} dwords is longer than a PM4 packet can be; split it")]
    PacketTooLong(usize),
    /// The register is in no range that packets can set.
    #[error("register {addr:#x} can be set neither by SET_SH_REG nor by SET_UCONFIG_REG")]
    NotSettable {
        /// Dword address.
        addr: u32,
    },
    /// This generation has no such register.
    #[error("this GPU generation has no {0}")]
    NoRegister(&'static str),
    /// A field does not fit.
    #[error("{what} is {value:#x}, the largest possible value is {max:#x}")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// The value.
        value: u64,
        /// The largest value possible.
        max: u64,
    },
    /// An address or size with the wrong alignment.
    #[error("{what} {value:#x} is not a multiple of {align:#x}")]
    Misaligned {
        /// What it is.
        what: &'static str,
        /// The value.
        value: u64,
        /// The alignment needed, in bytes.
        align: u64,
    },
    /// More XCCs than one, and not eight.
    #[error("{0} XCCs cannot be synchronised, only 8 can; use one of them")]
    XccCount(u32),
    /// A kernel wants the scratch descriptor in SGPRs and several XCCs would share it.
    #[error("a kernel with the scratch descriptor in SGPRs cannot run on several XCCs; use one")]
    ScratchSgprs,
    /// A submission that no ring state can hold.
    #[error(
        "a submission of {needed:#x} bytes does not fit the {kind} ring of {size:#x} bytes; submit it in parts"
    )]
    SubmissionTooLarge {
        /// Kind of ring.
        kind: QueueKind,
        /// Bytes needed, padding included.
        needed: u64,
        /// Size of the ring in bytes.
        size: u64,
    },
    /// The engine did not consume the ring in time.
    #[error(
        "the {kind} ring stayed full for {waited_us} us: {needed:#x} bytes needed, {free:#x} free, read pointer {read:#x}, write pointer {put:#x}; the queue hangs"
    )]
    RingFull {
        /// Kind of ring.
        kind: QueueKind,
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
        /// Read pointer last seen, in the ring's unit.
        read: u64,
        /// Write pointer, in the ring's unit.
        put: u64,
        /// Time waited, in microseconds.
        waited_us: u64,
    },
    /// A ring that cannot be used.
    #[error("the {kind} ring cannot be used: {why}")]
    BadRing {
        /// Kind of ring.
        kind: QueueKind,
        /// What is wrong.
        why: &'static str,
    },
    /// Packet lengths that do not add up to the submission.
    #[error("packets of {sum} dwords were announced for a submission of {len}")]
    BadPackets {
        /// Sum of the packet lengths.
        sum: usize,
        /// Length of the submission.
        len: usize,
    },
    /// Dwords that are no packet.
    #[error("dword {at}: {what}")]
    Malformed {
        /// Index of the dword.
        at: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The launch is impossible.
    #[error("{what} {value} is not allowed (at most {max})")]
    BadLaunch {
        /// Which dimension or size.
        what: &'static str,
        /// The value.
        value: u64,
        /// The largest possible value.
        max: u64,
    },
    /// This generation cannot do it.
    #[error("{0}")]
    Unsupported(&'static str),
    /// A pool has nothing left that is surely out of use.
    #[error("the {what} pool of {size:#x} bytes is in use up to timeline value {until}; wait for it")]
    PoolBusy {
        /// Which pool.
        what: &'static str,
        /// Its size in bytes.
        size: u64,
        /// Timeline value that frees the oldest part.
        until: u32,
    },
    /// A pool that can never serve the request.
    #[error("{needed:#x} bytes cannot be had from the {what} pool of {size:#x} bytes")]
    PoolTooSmall {
        /// Which pool.
        what: &'static str,
        /// Bytes asked for.
        needed: u64,
        /// Its size in bytes.
        size: u64,
    },
}

/// A buffer of the caller that is filled with dwords from the front.
#[derive(Debug)]
pub struct Dwords<'b> {
    buf: &'b mut [u32],
    len: usize,
}

impl<'b> Dwords<'b> {
    /// An empty command buffer over memory of the caller.
    pub fn new(buf: &'b mut [u32]) -> Self {
        Dwords { buf, len: 0 }
    }

    /// Appends dwords, all or none.
    pub fn push(&mut self, dwords: &[u32]) -> Result<(), QueueError> {
        let needed = self.len.saturating_add(dwords.len());
        let capacity = self.buf.len();
        let to = self.buf.get_mut(self.len..needed).ok_or(QueueError::Overflow { needed, capacity })?;
        crate::slices::copy(to, dwords);
        self.len = needed;
        Ok(())
    }

    /// What was written so far.
    pub fn as_slice(&self) -> &[u32] {
        self.buf.get(..self.len).unwrap_or(&[])
    }

    /// How many dwords were written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets everything written.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    fn get_mut(&mut self, at: usize) -> Option<&mut u32> {
        if at < self.len { self.buf.get_mut(at) } else { None }
    }
}

/// Low and high half of an address or value, as packets hold them.
pub(crate) const fn lo_hi(v: u64) -> [u32; 2] {
    [v as u32, (v >> 32) as u32]
}
