//! SDMA packets taken apart.

use super::opcode;
use crate::queue::QueueError;

/// A packet, as plain data. Flags that encoders never set are kept in `header`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packet {
    /// Nothing; zeros are this.
    Nop,
    /// A linear copy.
    Copy {
        /// Destination address.
        dst: u64,
        /// Source address.
        src: u64,
        /// Bytes.
        size: u64,
        /// Swizzle and cache parameters; 0 from encoders.
        parameter: u32,
    },
    /// Dwords stored from the packet.
    Write {
        /// Destination address.
        dst: u64,
        /// Dwords that follow the packet's head.
        count: u32,
    },
    /// Memory set to a value.
    Fill {
        /// Destination address.
        dst: u64,
        /// The value.
        value: u32,
        /// Bytes.
        size: u64,
    },
    /// Commands elsewhere.
    Indirect {
        /// Their address.
        va: u64,
        /// Their length in dwords.
        len: u32,
    },
    /// A value stored after all before it.
    Fence {
        /// Where.
        va: u64,
        /// The value.
        value: u32,
        /// Memory type (gfx10 and later): 3 is uncached.
        mtype: u8,
    },
    /// An interrupt.
    Trap {
        /// Its context.
        context: u32,
    },
    /// A wait for memory or a register.
    Poll {
        /// Address in memory, or of the register.
        va: u64,
        /// True for memory.
        memory: bool,
        /// Comparison: 3 equal, 4 not equal, 5 greater or equal.
        function: u8,
        /// Reference value.
        reference: u32,
        /// Mask.
        mask: u32,
        /// Interval between polls.
        interval: u16,
        /// Number of polls; 0xfff is without end.
        retry: u16,
    },
    /// The clock counter stored.
    Timestamp {
        /// Where.
        va: u64,
        /// 1 local, 2 global counter.
        sub_op: u8,
    },
    /// A packet that is not taken apart further.
    Other {
        /// Its header.
        header: u32,
    },
}

/// Length in dwords of the packet at the start of `dwords`; an error if it is unknown or incomplete.
pub fn length(dwords: &[u32], at: usize) -> Result<usize, QueueError> {
    let bad = |what| QueueError::Malformed { at, what };
    let header = dwords.first().copied().ok_or(bad("no packet"))?;
    let sub = header >> 8 & 0xff;
    let len = match header as u8 {
        // COUNT in bits 16 to 29: dwords that follow
        opcode::NOP => 1 + (header >> 16 & 0x3fff) as usize,
        opcode::COPY if sub == 0 && header >> 27 & 1 == 1 => 9, // broadcast: two destinations
        opcode::COPY if sub == 0 => 7,
        opcode::WRITE if sub == 0 => {
            let count = dwords.get(3).copied().ok_or(bad("a WRITE packet ends early"))? & 0xf_ffff;
            5 + count as usize
        }
        opcode::INDIRECT => super::INDIRECT_DWORDS,
        opcode::FENCE => 4,
        opcode::TRAP => 2,
        opcode::POLL_REGMEM if sub == 0 => 6,
        opcode::COND_EXE => 5,
        opcode::ATOMIC => 8,
        opcode::CONST_FILL if sub == 0 => 5,
        opcode::TIMESTAMP => 3,
        opcode::SRBM_WRITE => 3,
        opcode::GCR_REQ => 5,
        _ => return Err(bad("an SDMA opcode that is not known")),
    };
    if len > dwords.len() { Err(bad("an SDMA packet ends after the buffer")) } else { Ok(len) }
}

/// Lengths of the packets in `dwords`, in order. Ends after the first error.
pub fn lengths(dwords: &[u32]) -> impl Iterator<Item = Result<usize, QueueError>> + Clone + '_ {
    let mut at = 0;
    core::iter::from_fn(move || {
        let rest = dwords.get(at..).filter(|r| !r.is_empty())?;
        let len = length(rest, at);
        at = match len {
            Ok(n) => at.saturating_add(n),
            Err(_) => dwords.len(),
        };
        Some(len)
    })
}

impl Packet {
    /// Takes the packet at the start of `dwords` apart; `at` is its index, for errors.
    pub fn parse(dwords: &[u32], at: usize) -> Result<(Packet, usize), QueueError> {
        let len = length(dwords, at)?;
        let w = |i: usize| dwords.get(i).copied().unwrap_or(0);
        let addr = |i: usize| w(i) as u64 | (w(i + 1) as u64) << 32;
        let header = w(0);
        let sub = (header >> 8) as u8;
        let packet = match (header as u8, sub) {
            (opcode::NOP, _) => Packet::Nop,
            (opcode::COPY, 0) if len == 7 => Packet::Copy {
                src: addr(3),
                dst: addr(5),
                size: (w(1) & 0x3fff_ffff) as u64 + 1,
                parameter: w(2),
            },
            (opcode::WRITE, 0) => Packet::Write { dst: addr(1), count: (w(3) & 0xf_ffff) + 1 },
            (opcode::CONST_FILL, 0) => {
                // FILLSIZE 0 counts bytes less one; 2 counts to the last dword's first byte.
                let unit = 1u64 << (header >> 30);
                Packet::Fill { dst: addr(1), value: w(3), size: (w(4) & 0x3fff_ffff) as u64 + unit }
            }
            (opcode::INDIRECT, _) => Packet::Indirect { va: addr(1), len: w(3) & 0xf_ffff },
            (opcode::FENCE, _) => Packet::Fence { va: addr(1), value: w(3), mtype: (header >> 16 & 7) as u8 },
            (opcode::TRAP, _) => Packet::Trap { context: w(1) & 0x0fff_ffff },
            (opcode::POLL_REGMEM, 0) => Packet::Poll {
                va: addr(1),
                memory: header >> 31 == 1,
                function: (header >> 28 & 7) as u8,
                reference: w(3),
                mask: w(4),
                interval: w(5) as u16,
                retry: (w(5) >> 16 & 0xfff) as u16,
            },
            (opcode::TIMESTAMP, _) => Packet::Timestamp { va: addr(1), sub_op: sub },
            _ => Packet::Other { header },
        };
        Ok((packet, len))
    }

    /// Name of the opcode.
    pub fn name(&self) -> &'static str {
        match self {
            Packet::Nop => "NOP",
            Packet::Copy { .. } => "COPY_LINEAR",
            Packet::Write { .. } => "WRITE",
            Packet::Fill { .. } => "CONST_FILL",
            Packet::Indirect { .. } => "INDIRECT",
            Packet::Fence { .. } => "FENCE",
            Packet::Trap { .. } => "TRAP",
            Packet::Poll { .. } => "POLL_REGMEM",
            Packet::Timestamp { .. } => "TIMESTAMP",
            Packet::Other { .. } => "other",
        }
    }
}

/// Packets of a command buffer or ring, with the index of their header.
pub fn packets(dwords: &[u32]) -> impl Iterator<Item = Result<(usize, Packet), QueueError>> + '_ {
    let mut at = 0;
    core::iter::from_fn(move || {
        let rest = dwords.get(at..).filter(|r| !r.is_empty())?;
        let here = at;
        match Packet::parse(rest, at) {
            Ok((packet, len)) => {
                at = at.saturating_add(len);
                Some(Ok((here, packet)))
            }
            Err(e) => {
                at = dwords.len();
                Some(Err(e))
            }
        }
    })
}
