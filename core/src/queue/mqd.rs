//! Memory queue descriptors (MQD) of compute queues: what the MEC loads into a hardware queue.
//!
//! `struct v11_compute_mqd` and `struct v12_compute_mqd` (v11_structs.h, v12_structs.h) agree in
//! every word set here; word 128 on is the image of the HQD registers.

use crate::error::Error;
use crate::reg::{RegFile, f, r};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

/// Length of an MQD in dwords.
pub const MQD_DWORDS: usize = 512;
/// First word of the image of the HQD registers (`cp_mqd_base_addr_lo`).
pub const HQD_FIRST: usize = 128;
/// Last word of it that the registers have (`cp_hqd_pq_wptr_hi`).
pub const HQD_LAST: usize = 183;

/// `header`: PM4 type 3, the mark of a compute MQD (`gfx_v11_0_compute_mqd_init`).
const HEADER: u32 = 0xc031_0800;
/// `cp_hqd_hq_status0`: Linux's `hqd_hq_status0` reset value with the doorbell bits.
const HQ_STATUS0: u32 = 0x2000_4000;

/// Words of an MQD, by their offset in dwords.
pub mod word {
    #![allow(missing_docs)]
    pub const HEADER: usize = 0;
    pub const MQD_BASE_ADDR_LO: usize = 128;
    pub const MQD_BASE_ADDR_HI: usize = 129;
    pub const HQD_ACTIVE: usize = 130;
    pub const HQD_VMID: usize = 131;
    pub const HQD_PERSISTENT_STATE: usize = 132;
    pub const HQD_PIPE_PRIORITY: usize = 133;
    pub const HQD_QUEUE_PRIORITY: usize = 134;
    pub const HQD_QUANTUM: usize = 135;
    pub const HQD_PQ_BASE_LO: usize = 136;
    pub const HQD_PQ_BASE_HI: usize = 137;
    pub const HQD_PQ_RPTR: usize = 138;
    pub const HQD_PQ_RPTR_REPORT_ADDR_LO: usize = 139;
    pub const HQD_PQ_RPTR_REPORT_ADDR_HI: usize = 140;
    pub const HQD_PQ_WPTR_POLL_ADDR_LO: usize = 141;
    pub const HQD_PQ_WPTR_POLL_ADDR_HI: usize = 142;
    pub const HQD_PQ_DOORBELL_CONTROL: usize = 143;
    pub const HQD_PQ_CONTROL: usize = 145;
    pub const HQD_IB_CONTROL: usize = 149;
    pub const HQD_HQ_STATUS0: usize = 160;
    pub const MQD_CONTROL: usize = 162;
    pub const HQD_EOP_BASE_ADDR_LO: usize = 165;
    pub const HQD_EOP_BASE_ADDR_HI: usize = 166;
    pub const HQD_EOP_CONTROL: usize = 167;
    pub const HQD_AQL_CONTROL: usize = 181;
    pub const HQD_PQ_WPTR_LO: usize = 182;
    pub const HQD_PQ_WPTR_HI: usize = 183;
}

/// What a compute queue is made of. Addresses are virtual, of VMID 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ComputeQueue {
    /// Address of the MQD itself, aligned to 4 KiB.
    pub mqd: u64,
    /// Address of the ring, aligned to 256 bytes.
    pub ring: u64,
    /// Length of the ring in bytes, a power of two of at least 8.
    pub len: u32,
    /// Where the MEC writes its read pointer (8 bytes, in dwords).
    pub rptr: u64,
    /// Where the MEC polls the write pointer (8 bytes, in dwords).
    pub wptr: u64,
    /// Address of the end-of-pipe buffer, aligned to 256 bytes.
    pub eop: u64,
    /// Length of the end-of-pipe buffer in bytes, a power of two of at least 8.
    pub eop_len: u32,
    /// Index of the doorbell, in units of 8 bytes.
    pub doorbell: u32,
}

/// A queue descriptor.
#[derive(Clone, PartialEq, Eq)]
pub struct Mqd {
    words: [u32; MQD_DWORDS],
    bytes: [U32; MQD_DWORDS],
}

impl core::fmt::Debug for Mqd {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_map().entries(self.words.iter().enumerate().filter(|(_, v)| **v != 0)).finish()
    }
}

/// Encodes a length as the hardware wants it: 2^(value + 1) dwords.
fn size_code(what: &'static str, len: u32) -> Result<u32, Error> {
    if !len.is_power_of_two() || len < 8 {
        return Err(Error::BadValue { what, value: len.into(), need: "a power of two of at least 8 bytes" });
    }
    Ok((len / 4).trailing_zeros() - 1)
}

fn aligned(what: &'static str, value: u64, to: u64, need: &'static str) -> Result<u64, Error> {
    if value.is_multiple_of(to) { Ok(value) } else { Err(Error::BadValue { what, value, need }) }
}

impl Mqd {
    /// The descriptor of a compute queue.
    pub fn compute(regs: &RegFile, q: &ComputeQueue) -> Result<Mqd, Error> {
        use word as w;
        let mqd_va = aligned("the address of an MQD", q.mqd, 4096, "a multiple of 4096")?;
        let ring = aligned("the address of a compute ring", q.ring, 256, "a multiple of 256")? >> 8;
        let eop = aligned("the address of an EOP buffer", q.eop, 256, "a multiple of 256")? >> 8;
        let mut mqd = Mqd { words: [0; MQD_DWORDS], bytes: [U32::ZERO; MQD_DWORDS] };
        mqd.set(w::HEADER, HEADER);
        mqd.set_pair(w::MQD_BASE_ADDR_LO, mqd_va);
        {
            use f::cp_hqd_persistent_state as p;
            let value =
                regs.encode(r::CP_HQD_PERSISTENT_STATE, &[(p::PRELOAD_SIZE, 0x55), (p::PRELOAD_REQ, 1)])?;
            mqd.set(w::HQD_PERSISTENT_STATE, value);
        }
        mqd.set(w::HQD_PIPE_PRIORITY, 2);
        mqd.set(w::HQD_QUEUE_PRIORITY, 0xf);
        mqd.set(w::HQD_QUANTUM, 0x111);
        mqd.set_pair(w::HQD_PQ_BASE_LO, ring);
        mqd.set_pair(w::HQD_PQ_RPTR_REPORT_ADDR_LO, q.rptr);
        mqd.set_pair(w::HQD_PQ_WPTR_POLL_ADDR_LO, q.wptr);
        {
            use f::cp_hqd_pq_doorbell_control as d;
            let offset = q.doorbell.saturating_mul(2);
            let value = regs.encode(
                r::CP_HQD_PQ_DOORBELL_CONTROL,
                &[(d::DOORBELL_OFFSET, offset), (d::DOORBELL_EN, 1)],
            )?;
            mqd.set(w::HQD_PQ_DOORBELL_CONTROL, value);
        }
        {
            use f::cp_hqd_pq_control as c;
            let size = size_code("the length of a compute ring", q.len)?;
            let value = regs.encode(
                r::CP_HQD_PQ_CONTROL,
                &[(c::RPTR_BLOCK_SIZE, 5), (c::UNORD_DISPATCH, 0), (c::QUEUE_SIZE, size)],
            )?;
            mqd.set(w::HQD_PQ_CONTROL, value);
        }
        let ib = regs.encode(r::CP_HQD_IB_CONTROL, &[(f::cp_hqd_ib_control::MIN_IB_AVAIL_SIZE, 3)])?;
        mqd.set(w::HQD_IB_CONTROL, ib);
        mqd.set(w::HQD_HQ_STATUS0, HQ_STATUS0);
        let control = regs.encode(r::CP_MQD_CONTROL, &[(f::cp_mqd_control::PRIV_STATE, 1)])?;
        mqd.set(w::MQD_CONTROL, control);
        mqd.set_pair(w::HQD_EOP_BASE_ADDR_LO, eop);
        let size = size_code("the length of an EOP buffer", q.eop_len)?;
        let eop_control = regs.encode(r::CP_HQD_EOP_CONTROL, &[(f::cp_hqd_eop_control::EOP_SIZE, size)])?;
        mqd.set(w::HQD_EOP_CONTROL, eop_control);
        Ok(mqd)
    }

    /// Reads a descriptor; `None` unless there are 2048 bytes.
    pub fn parse(bytes: &[u8]) -> Option<Mqd> {
        let bytes = <[U32; MQD_DWORDS]>::read_from_bytes(bytes).ok()?;
        Some(Mqd { words: bytes.map(|w| w.get()), bytes })
    }

    /// What compute queue this describes; an error if it is not one that [`Mqd::compute`] makes.
    /// Settings of the queue that the description does not hold are not looked at.
    pub fn queue(&self, regs: &RegFile) -> Result<ComputeQueue, Error> {
        use word as w;
        if self.get(w::HEADER) != HEADER {
            let value = self.get(w::HEADER).into();
            return Err(Error::BadValue { what: "the header of an MQD", value, need: "0xc0310800" });
        }
        let bytes = |code: u32| {
            let shift = code.saturating_add(3);
            1u32.checked_shl(shift).ok_or(Error::BadValue {
                what: "a queue's size code",
                value: code.into(),
                need: "at most 28",
            })
        };
        let shifted = |what, value: u64| {
            let fits = value < 1 << 56;
            if fits { Ok(value << 8) } else { Err(Error::BadValue { what, value, need: "at most 56 bits" }) }
        };
        let doorbell = self.get(w::HQD_PQ_DOORBELL_CONTROL);
        let doorbell = regs.get(doorbell, f::cp_hqd_pq_doorbell_control::DOORBELL_OFFSET)?;
        let size = regs.get(self.get(w::HQD_PQ_CONTROL), f::cp_hqd_pq_control::QUEUE_SIZE)?;
        let eop_size = regs.get(self.get(w::HQD_EOP_CONTROL), f::cp_hqd_eop_control::EOP_SIZE)?;
        let mqd = self.pair(w::MQD_BASE_ADDR_LO);
        Ok(ComputeQueue {
            mqd: aligned("the address of an MQD", mqd, 4096, "a multiple of 4096")?,
            ring: shifted("the address of a compute ring", self.pair(w::HQD_PQ_BASE_LO))?,
            len: bytes(size)?,
            rptr: self.pair(w::HQD_PQ_RPTR_REPORT_ADDR_LO),
            wptr: self.pair(w::HQD_PQ_WPTR_POLL_ADDR_LO),
            eop: shifted("the address of an EOP buffer", self.pair(w::HQD_EOP_BASE_ADDR_LO))?,
            eop_len: bytes(eop_size)?,
            doorbell: doorbell / 2,
        })
    }

    fn pair(&self, index: usize) -> u64 {
        u64::from(self.get(index)) | u64::from(self.get(index + 1)) << 32
    }

    fn set(&mut self, index: usize, value: u32) {
        if let (Some(word), Some(bytes)) = (self.words.get_mut(index), self.bytes.get_mut(index)) {
            *word = value;
            *bytes = U32::new(value);
        }
    }

    fn set_pair(&mut self, index: usize, value: u64) {
        self.set(index, value as u32);
        self.set(index + 1, (value >> 32) as u32);
    }

    /// A word.
    pub fn get(&self, index: usize) -> u32 {
        self.words.get(index).copied().unwrap_or(0)
    }

    /// The words that are loaded into the HQD registers, in their order.
    pub fn hqd_words(&self) -> &[u32] {
        self.words.get(HQD_FIRST..=HQD_LAST).unwrap_or(&[])
    }

    /// The bytes as they stand in memory.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_bytes()
    }
}
