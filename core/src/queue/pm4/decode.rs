//! PM4 packets taken apart: a checked view, then a representation as plain data.

use super::op::{self, opcode};
use crate::queue::QueueError;

/// A type-3 packet inside a buffer, its length checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View<'a> {
    /// Opcode.
    pub op: u8,
    /// Header as it stands.
    pub header: u32,
    /// The dwords after the header.
    pub body: &'a [u32],
}

impl<'a> View<'a> {
    /// The packet at the start of `dwords`; `at` is its index, for errors.
    pub fn parse(dwords: &'a [u32], at: usize) -> Result<View<'a>, QueueError> {
        let bad = |what| QueueError::Malformed { at, what };
        let header = dwords.first().copied().ok_or(bad("no packet"))?;
        match header >> 30 {
            3 => {}
            // A type-2 packet is one dword of filler.
            2 => return Ok(View { op: opcode::NOP, header, body: &[] }),
            _ => return Err(bad("neither a type-2 nor a type-3 PM4 packet")),
        }
        let op = (header >> 8) as u8;
        // A NOP with the largest count is one dword long (used as filler).
        let len = match header >> 16 & 0x3fff {
            0x3fff if op == opcode::NOP => 0,
            n => n as usize + 1,
        };
        let body = dwords.get(1..=len).ok_or(bad("a PM4 packet ends after the buffer"))?;
        Ok(View { op, header, body })
    }

    /// Dwords of the packet with its header.
    pub fn len(&self) -> usize {
        self.body.len() + 1
    }

    /// Never: a packet has at least its header.
    pub fn is_empty(&self) -> bool {
        false
    }

    fn w(&self, i: usize) -> u32 {
        self.body.get(i).copied().unwrap_or(0)
    }

    fn addr(&self, i: usize) -> u64 {
        self.w(i) as u64 | (self.w(i + 1) as u64) << 32
    }

    /// As plain data; `at` is the packet's index, for errors.
    pub fn packet(&self, at: usize) -> Result<Packet<'a>, QueueError> {
        let need = |n: usize| {
            if self.body.len() < n {
                Err(QueueError::Malformed { at, what: "a PM4 packet is shorter than its opcode needs" })
            } else {
                Ok(())
            }
        };
        let regs = |base: u32| {
            need(2)?;
            let values = self.body.get(1..).unwrap_or(&[]);
            Ok(Packet::SetRegs { addr: base + (self.w(0) & 0xffff), values })
        };
        Ok(match self.op {
            opcode::NOP => Packet::Nop { len: self.body.len() },
            opcode::SET_SH_REG => return regs(op::SH_REG_START),
            opcode::SET_UCONFIG_REG => return regs(op::UCONFIG_REG_START),
            opcode::WAIT_REG_MEM => {
                need(6)?;
                let info = self.w(0);
                Packet::WaitRegMem {
                    memory: info >> 4 & 3 == 1,
                    request: info >> 6 & 3 == 1,
                    function: (info & 7) as u8,
                    addr: self.addr(1),
                    reference: self.w(3),
                    mask: self.w(4),
                    interval: self.w(5),
                }
            }
            opcode::ACQUIRE_MEM if self.body.len() >= 7 => {
                Packet::AcquireMem { size: self.addr(1), va: self.addr(3), cntl: self.w(6) }
            }
            opcode::ACQUIRE_MEM => {
                need(6)?;
                Packet::AcquireMem { size: self.addr(1), va: self.addr(3), cntl: self.w(0) }
            }
            opcode::RELEASE_MEM => {
                need(7)?;
                Packet::ReleaseMem {
                    event: self.w(0),
                    data_sel: (self.w(1) >> 29) as u8,
                    int_sel: (self.w(1) >> 24 & 7) as u8,
                    va: self.addr(2),
                    value: self.addr(4),
                    context: self.w(6),
                }
            }
            opcode::EVENT_WRITE => {
                need(1)?;
                Packet::EventWrite { event: (self.w(0) & 0x3f) as u8, index: (self.w(0) >> 8 & 0xf) as u8 }
            }
            opcode::INDIRECT_BUFFER => {
                need(3)?;
                Packet::IndirectBuffer { va: self.addr(0), len: self.w(2) & 0xf_ffff }
            }
            opcode::PRED_EXEC => {
                need(1)?;
                Packet::PredExec { xcc_mask: (self.w(0) >> 24) as u8, len: self.w(0) & 0x3fff }
            }
            opcode::ATOMIC_MEM => {
                need(8)?;
                Packet::AtomicMem { op: self.w(0) & 0x7f, va: self.addr(1), data: self.addr(3) }
            }
            opcode::COPY_DATA => {
                need(5)?;
                Packet::CopyData { control: self.w(0), src: self.addr(1), dst: self.addr(3) }
            }
            opcode::WRITE_DATA => {
                need(4)?;
                let data = self.body.get(3..).unwrap_or(&[]);
                Packet::WriteData { control: self.w(0), dst: self.addr(1), data }
            }
            opcode::DISPATCH_DIRECT => {
                need(4)?;
                Packet::Dispatch { grid: [self.w(0), self.w(1), self.w(2)], initiator: self.w(3) }
            }
            _ => Packet::Other { op: self.op, body: self.body },
        })
    }
}

/// A packet as plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // fields are those of the packet descriptions in the headers
pub enum Packet<'a> {
    /// Filler of `len` dwords after the header.
    Nop { len: usize },
    /// Consecutive registers from a dword address on.
    SetRegs { addr: u32, values: &'a [u32] },
    /// Wait for a dword in memory or a register. With `request`, `addr` holds the request register
    /// in its low and the polled one in its high half.
    WaitRegMem {
        memory: bool,
        request: bool,
        function: u8,
        addr: u64,
        reference: u32,
        mask: u32,
        interval: u32,
    },
    /// Cache invalidation; `cntl` is `GCR_CNTL` (gfx10 and later) or `CP_COHER_CNTL`.
    AcquireMem { size: u64, va: u64, cntl: u32 },
    /// Store and interrupt at the end of the pipe.
    ReleaseMem { event: u32, data_sel: u8, int_sel: u8, va: u64, value: u64, context: u32 },
    /// An event.
    EventWrite { event: u8, index: u8 },
    /// Commands elsewhere.
    IndirectBuffer { va: u64, len: u32 },
    /// The next `len` dwords are for some XCCs only.
    PredExec { xcc_mask: u8, len: u32 },
    /// An atomic on memory.
    AtomicMem { op: u32, va: u64, data: u64 },
    /// A copy between registers and memory.
    CopyData { control: u32, src: u64, dst: u64 },
    /// Dwords stored from the packet.
    WriteData { control: u32, dst: u64, data: &'a [u32] },
    /// A launch.
    Dispatch { grid: [u32; 3], initiator: u32 },
    /// A packet that is not taken apart further.
    Other { op: u8, body: &'a [u32] },
}

/// Packets of a command buffer, with the index of their header.
pub fn packets(dwords: &[u32]) -> impl Iterator<Item = Result<(usize, Packet<'_>), QueueError>> {
    let mut at = 0;
    core::iter::from_fn(move || {
        let rest = dwords.get(at..).filter(|r| !r.is_empty())?;
        let here = at;
        let view = match View::parse(rest, at) {
            Ok(v) => v,
            Err(e) => {
                at = dwords.len();
                return Some(Err(e));
            }
        };
        at = at.saturating_add(view.len());
        Some(view.packet(here).map(|p| (here, p)))
    })
}
