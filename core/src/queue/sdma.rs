//! SDMA packets, for versions 4.4.2, 5.x, 6.x and 7.x.
//!
//! A packet is a header (opcode in bits 0 to 7, sub-opcode in bits 8 to 15, flags above) and a body
//! whose length the opcode decides. Sources: `vega10_sdma_pkt_open.h`, `navi10_sdma_pkt_open.h`,
//! `sdma_v6_0_0_pkt_open.h`; version 7 keeps the layout of 6 for the packets used here
//! (`sdma_v7_0.c`).

use crate::iface::{Iface, Notify};
use crate::queue::{Dwords, QueueError, lo_hi};

pub mod decode;

/// Opcodes (`SDMA_OP_*`).
#[allow(missing_docs)] // the names are those of the headers
pub mod opcode {
    pub const NOP: u8 = 0;
    pub const COPY: u8 = 1;
    pub const WRITE: u8 = 2;
    pub const INDIRECT: u8 = 4;
    pub const FENCE: u8 = 5;
    pub const TRAP: u8 = 6;
    pub const SEM: u8 = 7;
    pub const POLL_REGMEM: u8 = 8;
    pub const COND_EXE: u8 = 9;
    pub const ATOMIC: u8 = 10;
    pub const CONST_FILL: u8 = 11;
    pub const PTEPDE: u8 = 12;
    pub const TIMESTAMP: u8 = 13;
    pub const SRBM_WRITE: u8 = 14;
    pub const PRE_EXE: u8 = 15;
    pub const GPUVM_INV: u8 = 16;
    pub const GCR_REQ: u8 = 17;
}

/// `SDMA_SUBOP_TIMESTAMP_GET_GLOBAL`: the 100 MHz counter all engines share.
pub const SUBOP_TIMESTAMP_GET_GLOBAL: u32 = 2;

/// Sub-opcode of a linear copy.
pub const SUBOP_COPY_LINEAR: u32 = 0;

/// What SDMA packets of one device depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SdmaConfig {
    /// Version of the SDMA IP.
    pub version: (u8, u8, u8),
    /// How completion wakes the host.
    pub notify: Notify,
}

impl SdmaConfig {
    /// What an interface says.
    pub fn new(iface: &impl Iface) -> Self {
        SdmaConfig { version: iface.versions().sdma, notify: iface.notify() }
    }

    /// The most bytes one copy packet moves: a 22-bit count before version 6, a 30-bit one from
    /// there on (`SDMA_PKT_COPY_LINEAR_COUNT_count_mask` of the `*_pkt_open.h` headers). The
    /// reference splits at 1 GiB on version 5 as well, where the header's field cuts the count off.
    pub fn max_copy(&self) -> u64 {
        if self.version.0 >= 6 { 0x4000_0000 } else { 0x40_0000 }
    }

    /// The most bytes one fill packet sets (`fill_max_bytes` in every `sdma_v*.c` of Linux).
    pub const MAX_FILL: u64 = 0x40_0000;

    /// Flags of a fence: `MTYPE` uncached from version 5 (gfx10) on, so that the host sees the value.
    fn fence_flags(&self) -> u32 {
        if self.version.0 >= 5 { 3 << 16 } else { 0 }
    }

    /// Dwords that [`Sdma::copy`] of `size` bytes needs.
    pub fn copy_dwords(&self, size: u64) -> u64 {
        size.div_ceil(self.max_copy()).saturating_mul(7)
    }
}

/// Encoder of SDMA packets into a buffer of the caller.
///
/// [`decode::lengths`] gives the length of each packet again, which the ring needs because a packet
/// must not be split at its end.
#[derive(Debug)]
pub struct Sdma<'c, 'b> {
    config: &'c SdmaConfig,
    out: Dwords<'b>,
}

impl<'c, 'b> Sdma<'c, 'b> {
    /// An empty command buffer.
    pub fn new(config: &'c SdmaConfig, buf: &'b mut [u32]) -> Self {
        Sdma { config, out: Dwords::new(buf) }
    }

    /// What was encoded so far.
    pub fn dwords(&self) -> &[u32] {
        self.out.as_slice()
    }

    /// Forgets everything encoded.
    pub fn clear(&mut self) {
        self.out.clear();
    }

    fn push(&mut self, dwords: &[u32]) -> Result<&mut Self, QueueError> {
        self.out.push(dwords)?;
        Ok(self)
    }

    /// Copies `size` bytes, in as many packets as needed.
    pub fn copy(&mut self, dst: u64, src: u64, size: u64) -> Result<&mut Self, QueueError> {
        let mut done = 0u64;
        while done < size {
            let step = (size - done).min(self.config.max_copy());
            let [src_lo, src_hi] = lo_hi(src.wrapping_add(done));
            let [dst_lo, dst_hi] = lo_hi(dst.wrapping_add(done));
            let head = opcode::COPY as u32 | SUBOP_COPY_LINEAR << 8;
            self.push(&[head, (step - 1) as u32, 0, src_lo, src_hi, dst_lo, dst_hi])?;
            done += step;
        }
        Ok(self)
    }

    /// Sets memory to a dword, in as many packets as needed. Address and size are multiples of 4.
    pub fn fill(&mut self, dst: u64, size: u64, value: u32) -> Result<&mut Self, QueueError> {
        for (what, v) in [("fill address", dst), ("fill size", size)] {
            if v & 3 != 0 {
                return Err(QueueError::Misaligned { what, value: v, align: 4 });
            }
        }
        let mut done = 0u64;
        while done < size {
            let step = (size - done).min(SdmaConfig::MAX_FILL);
            let [lo, hi] = lo_hi(dst.wrapping_add(done));
            // As Linux sends it: FILLSIZE 0, the count in bytes, less one.
            self.push(&[opcode::CONST_FILL as u32, lo, hi, value, (step - 1) as u32])?;
            done += step;
        }
        Ok(self)
    }

    /// Stores dwords from the packet itself.
    pub fn write(&mut self, dst: u64, data: &[u32]) -> Result<&mut Self, QueueError> {
        if data.is_empty() || data.len() > 0xf_ffff {
            return Err(QueueError::TooLarge {
                what: "dwords of a write",
                value: data.len() as u64,
                max: 0xf_ffff,
            });
        }
        let [lo, hi] = lo_hi(dst);
        let before = self.out.len();
        self.out.push(&[opcode::WRITE as u32, lo, hi, (data.len() as u32) - 1])?;
        if let Err(e) = self.out.push(data) {
            self.out.len = before;
            return Err(e);
        }
        Ok(self)
    }

    /// Stores `value` at `va` after all writes before it.
    pub fn fence(&mut self, va: u64, value: u32) -> Result<&mut Self, QueueError> {
        let [lo, hi] = lo_hi(va);
        self.push(&[opcode::FENCE as u32 | self.config.fence_flags(), lo, hi, value])
    }

    /// Raises an interrupt with a context of 28 bits.
    pub fn trap(&mut self, context: u32) -> Result<&mut Self, QueueError> {
        self.push(&[opcode::TRAP as u32, context & 0x0fff_ffff])
    }

    /// When all before it is done, stores `value` at `va` and raises an interrupt. `notify_host` is
    /// false for signals that only other queues wait for. A timeline signal on KFD also writes the
    /// event mailbox.
    pub fn signal(
        &mut self,
        va: u64,
        value: u32,
        timeline: bool,
        notify_host: bool,
    ) -> Result<&mut Self, QueueError> {
        self.fence(va, value)?;
        match (self.config.notify, notify_host) {
            (Notify::Own, true) => self.trap(0),
            (Notify::Kfd(mailbox), true) if timeline => {
                self.fence(mailbox.va, mailbox.event)?;
                self.trap(mailbox.event)
            }
            _ => Ok(self),
        }
    }

    /// Waits until the dword at `va` is at least `value` (unsigned): interval 4, 0xfff retries.
    pub fn wait(&mut self, va: u64, value: u32) -> Result<&mut Self, QueueError> {
        if va & 3 != 0 {
            return Err(QueueError::Misaligned { what: "address to wait on", value: va, align: 4 });
        }
        let [lo, hi] = lo_hi(va);
        // FUNC 5 (greater or equal) in bits 28 to 30, MEM_POLL in bit 31.
        let head = opcode::POLL_REGMEM as u32 | 5 << 28 | 1 << 31;
        self.push(&[head, lo, hi, value, u32::MAX, 0xfff << 16 | 4])
    }

    /// Stores the 100 MHz clock counter at `va`.
    pub fn timestamp(&mut self, va: u64) -> Result<&mut Self, QueueError> {
        let [lo, hi] = lo_hi(va);
        self.push(&[opcode::TIMESTAMP as u32 | SUBOP_TIMESTAMP_GET_GLOBAL << 8, lo, hi])
    }

    /// One dword of nothing, `count` times.
    pub fn nop(&mut self, count: usize) -> Result<&mut Self, QueueError> {
        for _ in 0..count {
            self.push(&[0])?;
        }
        Ok(self)
    }

    /// Fills up to a multiple of 8 dwords, as the memory of an indirect buffer needs it.
    pub fn pad(&mut self) -> Result<&mut Self, QueueError> {
        let len = self.out.len();
        self.nop(len.next_multiple_of(8) - len)
    }
}

/// Dwords of an `INDIRECT` packet.
pub const INDIRECT_DWORDS: usize = 6;

/// An `INDIRECT` packet: executes `len` dwords (a multiple of 8) at `va` (a multiple of 32 bytes)
/// with the queue's own VMID. In the ring it must end at a multiple of 8 dwords, which
/// [`crate::queue::ring::Ring::submit_sdma_indirect`] takes care of.
pub fn indirect(va: u64, len: u32) -> Result<[u32; INDIRECT_DWORDS], QueueError> {
    if va & 31 != 0 {
        return Err(QueueError::Misaligned { what: "indirect buffer", value: va, align: 32 });
    }
    if len & 7 != 0 {
        return Err(QueueError::Misaligned {
            what: "indirect buffer size in dwords",
            value: len as u64,
            align: 8,
        });
    }
    if len == 0 || len > 0xf_ffff {
        return Err(QueueError::TooLarge { what: "indirect buffer", value: len as u64, max: 0xf_ffff });
    }
    let [lo, hi] = lo_hi(va);
    Ok([opcode::INDIRECT as u32, lo, hi, len, 0, 0])
}
