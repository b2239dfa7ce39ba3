//! What can go wrong below queues and programs.

use super::QueueKind;
use crate::bus::BusError;
use crate::error::Error;
use crate::mm::{TlsfError, VmError};
use crate::reg::RegError;

/// Errors of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IfaceError {
    /// The bus or the device failed.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// A register is missing.
    #[error(transparent)]
    Reg(#[from] RegError),
    /// The IP machines failed.
    #[error(transparent)]
    Device(Error),
    /// The memory manager refuses.
    #[error(transparent)]
    Vm(VmError<Error>),
    /// No memory is left.
    #[error("no {what} of {size:#x} bytes is left; free buffers or use smaller ones")]
    OutOfMemory {
        /// Kind of memory.
        what: &'static str,
        /// Size asked for, in bytes.
        size: u64,
    },
    /// The range is not in the buffer.
    #[error("range {offset:#x}+{len:#x} is outside the buffer at {va:#x}, which has {size:#x} bytes")]
    OutOfBuffer {
        /// GPU address of the buffer.
        va: u64,
        /// Size of the buffer in bytes.
        size: u64,
        /// First byte asked for.
        offset: u64,
        /// Length asked for.
        len: u64,
    },
    /// The buffer is not (or no longer) one of this interface.
    #[error("the buffer at {va:#x} is not, or no longer, allocated here")]
    NotAllocated {
        /// GPU address of the buffer.
        va: u64,
    },
    /// Something that a queue may still touch would be freed or reused.
    #[error(
        "the memory at {va:#x} may still be in use (timeline value {until} is not reached); wait for the queue first"
    )]
    InUse {
        /// GPU address.
        va: u64,
        /// Timeline value after which it is free.
        until: u64,
    },
    /// Memory was not allocated for access by the CPU.
    #[error("the buffer at {va:#x} was allocated without CPU access; copy it through a staging buffer")]
    NoCpuAccess {
        /// GPU address of the buffer.
        va: u64,
    },
    /// No hardware queue of the kind is left.
    #[error("no {0} queue is left")]
    NoQueue(QueueKind),
    /// The queue cannot be made like this.
    #[error("the {kind} queue cannot be made: {why}")]
    BadQueue {
        /// Kind of queue.
        kind: QueueKind,
        /// What is wrong.
        why: &'static str,
    },
    /// The implementer cannot do this.
    #[error("this interface cannot {0}")]
    Unsupported(&'static str),
    /// A deadline passed while waiting for something of the device.
    #[error("{what} did not happen within {after_us} us: value {last:#x}, expected {expected:#x}")]
    Timeout {
        /// What was awaited.
        what: &'static str,
        /// Value expected.
        expected: u64,
        /// Value last seen.
        last: u64,
        /// Time waited, in microseconds.
        after_us: u64,
    },
    /// The device stopped executing.
    #[error("the device hangs: {0}; reset it")]
    Hang(&'static str),
}

impl From<VmError<Error>> for IfaceError {
    fn from(e: VmError<Error>) -> Self {
        match e {
            VmError::Memory(TlsfError::OutOfMemory { size, .. }) => {
                IfaceError::OutOfMemory { what: "VRAM", size }
            }
            VmError::Virtual(TlsfError::OutOfMemory { size, .. }) => {
                IfaceError::OutOfMemory { what: "virtual addresses", size }
            }
            VmError::Bus(Error::Bus(e)) => IfaceError::Bus(e),
            other => IfaceError::Vm(other),
        }
    }
}

impl From<Error> for IfaceError {
    fn from(e: Error) -> Self {
        match e {
            Error::Bus(e) => IfaceError::Bus(e),
            Error::NotResponding { .. } => IfaceError::Bus(BusError::Gone),
            Error::Reg(e) => IfaceError::Reg(e),
            other => IfaceError::Device(other),
        }
    }
}
