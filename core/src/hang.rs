//! Hangs: noticing that work does not end, saying why, and the state in which it was found.
//!
//! [`Runtime::wait`](crate::runtime::Runtime::wait) looks from [`NOTICE_US`] on. A fault that the
//! hardware has latched, or a queue that stands idle with work pending, ends the wait at once: neither
//! will change by itself. A queue that works may be slow, and has the caller's time.

use crate::boot::Rung;
use crate::fault::Fault;
use crate::iface::QueueKind;
use crate::queue::pm4::{self, decode::View, op};
use crate::queue::sdma;
use core::fmt;

/// When a wait looks for a fault or a queue that stands still, in microseconds.
pub const NOTICE_US: u64 = 2_000_000;
/// Packets of the submission that are kept.
const PACKETS: usize = 4;
/// Bytes of a kernel's name that are kept.
const NAME: usize = 64;

/// Why work does not end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The hardware reported an error.
    Fault(Fault),
    /// The engine has nothing to do though its queue is not empty: it stopped, or was not told.
    Idle,
    /// The engine is busy and did not come to an end in the time given.
    Busy,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Fault(fault) => fault.fmt(f),
            Cause::Idle => f.write_str("the engine stands idle though work is pending"),
            Cause::Busy => f.write_str("the engine is still busy"),
        }
    }
}

/// What was done about a hang.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// The queues work again; all memory is as it was. What was submitted to them is lost.
    Restarted(Rung),
    /// The queues could not be restarted.
    Failed,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Recovery::Restarted(rung) => {
                write!(f, "queues restarted by {rung}, memory kept, submitted work lost")
            }
            Recovery::Failed => {
                f.write_str("the queues cannot be restarted: reset the device, which loses its memory")
            }
        }
    }
}

/// A hang, as an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HangError {
    /// The queue that holds what did not end.
    pub kind: QueueKind,
    /// Why.
    pub cause: Cause,
    /// How long was waited, in microseconds.
    pub after_us: u64,
    /// What was done about it.
    pub recovery: Recovery,
}

impl fmt::Display for HangError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "work on the {} queue did not end within {} us: {}; {}",
            self.kind, self.after_us, self.cause, self.recovery
        )
    }
}

/// What the registers of a queue say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueState {
    /// The hardware serves it (`CP_HQD_ACTIVE`, `RB_ENABLE`).
    pub active: bool,
    /// Its engine is doing something.
    pub busy: bool,
    /// Status of its engine: `CP_STAT`, or `CONTEXT_STATUS` of an SDMA queue.
    pub status: u32,
    /// Read pointer, in the queue's unit.
    pub read: u64,
    /// Write pointer, in the queue's unit.
    pub write: u64,
    /// `CP_HQD_DEQUEUE_REQUEST`; 0 for SDMA.
    pub dequeue: u32,
}

/// A packet of the submission that did not end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketAt {
    /// Position in the ring, counted without wrapping, in the queue's unit.
    pub at: u64,
    /// Name of its opcode.
    pub name: &'static str,
    /// What it is about: address polled, written or copied to; workgroups of a dispatch.
    pub about: Option<u64>,
    /// The engine has passed it.
    pub passed: bool,
}

/// Name of a kernel, cut off where it is too long.
pub type KernelName = heapless::String<NAME>;

/// Everything known of a hang.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hang {
    /// The error that was returned for it.
    pub error: HangError,
    /// Timeline value that was not reached.
    pub value: u32,
    /// The kernel, if it was one.
    pub kernel: Option<KernelName>,
    /// Read pointer that the engine reported to memory, in the queue's unit, modulo the ring.
    pub read: u64,
    /// Write pointer, in the queue's unit.
    pub put: u64,
    /// What the registers said, where they can be read.
    pub state: Option<QueueState>,
    /// Packets around the read pointer.
    pub packets: heapless::Vec<PacketAt, PACKETS>,
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let e = &self.error;
        match &self.kernel {
            Some(name) => write!(f, "kernel {name} did not end within {} us: {}", e.after_us, e.cause)?,
            None => {
                write!(f, "work on the {} queue did not end within {} us: {}", e.kind, e.after_us, e.cause)?
            }
        }
        write!(f, "; {} queue: read pointer {:#x}, write pointer {:#x}", e.kind, self.read, self.put)?;
        if let Some(s) = &self.state {
            let (active, status) = match e.kind {
                QueueKind::Compute => ("CP_HQD_ACTIVE", "CP_STAT"),
                QueueKind::Sdma => ("RB_ENABLE", "CONTEXT_STATUS"),
            };
            write!(
                f,
                ", {active} {}, registers at {:#x} of {:#x}, {status} {:#x}",
                u8::from(s.active),
                s.read,
                s.write,
                s.status
            )?;
            if s.dequeue != 0 {
                write!(f, ", CP_HQD_DEQUEUE_REQUEST {:#x}", s.dequeue)?;
            }
        }
        for (i, p) in self.packets.iter().enumerate() {
            let what = match (i, p.passed) {
                (0, true) => "; executed ",
                (_, true) => ", ",
                (_, false) => "; not passed: ",
            };
            write!(f, "{what}{} at {:#x}", p.name, p.at)?;
            if let Some(about) = p.about {
                write!(f, " ({about:#x})")?;
            }
        }
        write!(f, "; {}", e.recovery)
    }
}

/// Packets of a submission around the engine's read pointer: the last ones it has passed, and the one
/// it is at. `dwords` start at position `from`; positions are in the queue's unit.
pub fn packets(kind: QueueKind, dwords: &[u32], from: u64, read: u64) -> heapless::Vec<PacketAt, PACKETS> {
    let mut last = heapless::Deque::<PacketAt, PACKETS>::new();
    let unit = match kind {
        QueueKind::Compute => 1,
        QueueKind::Sdma => 4,
    };
    let mut at = 0usize;
    while let Some(rest) = dwords.get(at..).filter(|r| !r.is_empty()) {
        let described = match kind {
            QueueKind::Compute => pm4_packet(rest),
            QueueKind::Sdma => sdma::decode::Packet::parse(rest, at)
                .ok()
                .map(|(packet, len)| (packet.name(), sdma_about(&packet), len)),
        };
        let Some((name, about, len)) = described else { break };
        let start = from.saturating_add((at as u64).saturating_mul(unit));
        let end = start.saturating_add((len as u64).saturating_mul(unit));
        let passed = end <= read;
        if last.is_full() {
            last.pop_front();
        }
        let _ = last.push_back(PacketAt { at: start, name, about, passed });
        if !passed {
            break;
        }
        at = at.saturating_add(len.max(1));
    }
    let mut found = heapless::Vec::new();
    for packet in &last {
        let _ = found.push(*packet);
    }
    found
}

fn pm4_packet(dwords: &[u32]) -> Option<(&'static str, Option<u64>, usize)> {
    use pm4::decode::Packet as P;
    let view = View::parse(dwords, 0).ok()?;
    let about = match view.packet(0).ok()? {
        P::WaitRegMem { addr, .. } => Some(addr),
        P::ReleaseMem { va, .. } | P::AtomicMem { va, .. } | P::IndirectBuffer { va, .. } => Some(va),
        P::CopyData { dst, .. } | P::WriteData { dst, .. } => Some(dst),
        P::Dispatch { grid: [x, y, z], .. } => {
            Some(u64::from(x).saturating_mul(y.into()).saturating_mul(z.into()))
        }
        _ => None,
    };
    Some((op::name(view.op).unwrap_or("unknown packet"), about, view.len()))
}

fn sdma_about(packet: &sdma::decode::Packet) -> Option<u64> {
    use sdma::decode::Packet as P;
    match *packet {
        P::Copy { dst, .. } | P::Write { dst, .. } | P::Fill { dst, .. } => Some(dst),
        P::Fence { va, .. } | P::Poll { va, .. } | P::Timestamp { va, .. } | P::Indirect { va, .. } => {
            Some(va)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::string::ToString as _;
    use std::vec::Vec;

    #[test]
    fn the_packet_at_the_read_pointer_and_three_before_it_are_named() {
        // NOP, NOP, NOP, WAIT_REG_MEM, DISPATCH_DIRECT, NOP
        let nop = pm4::header(op::opcode::NOP, 1);
        let mut dwords = std::vec![nop, 0, nop, 0, nop, 0];
        dwords.extend([pm4::header(op::opcode::WAIT_REG_MEM, 6), 0x13, 0x5000, 0x20, 7, !0, 4]);
        dwords.extend([pm4::header(op::opcode::DISPATCH_DIRECT, 4), 2, 3, 4, 1, nop, 0]);
        let names = |read| {
            let found = packets(QueueKind::Compute, &dwords, 0x1000, read);
            found.iter().map(|p| (p.name, p.at, p.about, p.passed)).collect::<Vec<_>>()
        };
        assert_eq!(names(0x1000), [("NOP", 0x1000, None, false)]);
        let wait = ("WAIT_REG_MEM", 0x1006, Some(0x20_0000_5000), false);
        assert_eq!(names(0x1006)[3], wait);
        assert_eq!(names(0x1009)[3], wait, "a pointer inside of a packet has not passed it");
        assert_eq!(names(0x100d).len(), 4);
        assert_eq!(names(0x100d)[3], ("DISPATCH_DIRECT", 0x100d, Some(24), false));
        assert_eq!(names(0x2000).last(), Some(&("NOP", 0x1012, None, true)));
    }

    #[test]
    fn garbage_in_a_ring_ends_the_list() {
        assert!(packets(QueueKind::Compute, &[0x1234_5678; 8], 0, 0).is_empty());
        assert!(packets(QueueKind::Sdma, &[u32::MAX; 8], 0, 0).is_empty());
        assert!(packets(QueueKind::Compute, &[], 0, 0).is_empty());
    }

    #[test]
    fn a_hang_is_one_line_with_kernel_pointers_registers_and_packets() {
        let error = HangError {
            kind: QueueKind::Compute,
            cause: Cause::Idle,
            after_us: 2_000_000,
            recovery: Recovery::Restarted(Rung::Queue),
        };
        let hang = Hang {
            error,
            value: 7,
            kernel: KernelName::try_from("spin").ok(),
            read: 0x40,
            put: 0x80,
            state: Some(QueueState {
                active: true,
                read: 0x40,
                write: 0x80,
                status: 0x8000_0000,
                ..Default::default()
            }),
            packets: packets(QueueKind::Sdma, &[0], 0x40, 0x40),
        };
        assert_eq!(
            hang.to_string(),
            "kernel spin did not end within 2000000 us: the engine stands idle though work is pending; \
             compute queue: read pointer 0x40, write pointer 0x80, CP_HQD_ACTIVE 1, registers at 0x40 of 0x80, \
             CP_STAT 0x80000000; not passed: NOP at 0x40; \
             queues restarted by queue reset, memory kept, submitted work lost"
        );
    }
}
