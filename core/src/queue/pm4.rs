//! PM4 packets for compute queues.
//!
//! A type-3 packet is a header, `0b11 << 30 | (n - 1) << 16 | opcode << 8`, followed by `n` dwords.
//! Sources: `nvd.h` (gfx10 and later) and `soc15d.h` (gfx9) of Linux's amdgpu.

use crate::iface::{Iface, Notify, Target};
use crate::queue::regs::QueueRegs;
use crate::queue::{Dwords, QueueError, lo_hi};

pub mod decode;
pub mod op;

use op::{copy_data, event, opcode};

/// What compute packets of one device depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ComputeConfig {
    /// The target: gfx9 and later generations differ in cache control.
    pub target: Target,
    /// Register addresses.
    pub regs: QueueRegs,
    /// XCCs that execute the queue together: 1, or 8.
    pub xcc_count: u32,
    /// Two 32-bit counters in memory, zeroed, at which the XCCs meet.
    pub xcc_sync: Option<[u64; 2]>,
    /// How timeline signals wake the host.
    pub notify: Notify,
    /// Whether instruction tracing is on: dispatches then carry markers.
    pub tracing: bool,
}

impl ComputeConfig {
    /// What an interface says, for a queue of one XCC or all of them. `xcc_sync` is needed for
    /// several.
    pub fn new(iface: &impl Iface, xcc_sync: Option<[u64; 2]>) -> Result<Self, QueueError> {
        let props = iface.properties();
        let xcc_count = if xcc_sync.is_some() { props.xcc_count.max(1) } else { 1 };
        Ok(ComputeConfig {
            target: props.target,
            regs: QueueRegs::new(iface.regs())?,
            xcc_count,
            xcc_sync,
            notify: iface.notify(),
            tracing: false,
        })
    }
}

/// Header of a type-3 packet that `len` dwords follow.
pub const fn header(op: u8, len: usize) -> u32 {
    3 << 30 | ((len.wrapping_sub(1) as u32) & 0x3fff) << 16 | (op as u32) << 8
}

/// The largest number of dwords that can follow a header.
pub const MAX_BODY: usize = 0x4000;

bitflags::bitflags! {
    /// Caches that [`Pm4::acquire_mem`] invalidates (and writes back where they hold dirty lines).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Caches: u8 {
        /// Instruction cache.
        const GLI = 1 << 0;
        /// Metadata cache (gfx10 and later).
        const GLM = 1 << 1;
        /// Scalar data cache.
        const GLK = 1 << 2;
        /// Vector L0 cache (gfx10 and later).
        const GLV = 1 << 3;
        /// L1 cache.
        const GL1 = 1 << 4;
        /// L2 cache.
        const GL2 = 1 << 5;
    }
}

/// How `WAIT_REG_MEM` compares (value & mask) with the reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Compare {
    /// Equal.
    Eq = 3,
    /// Not equal.
    Ne = 4,
    /// Greater or equal, unsigned.
    Ge = 5,
}

/// What `WAIT_REG_MEM` looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitOn {
    /// A dword in memory.
    Memory(u64),
    /// A register.
    Register(u32),
    /// Writes the reference to a request register, then waits for the register that reports it done.
    Request {
        /// Register that receives the reference value.
        req: u32,
        /// Register that is polled.
        done: u32,
    },
}

/// What `RELEASE_MEM` stores when everything before it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum DataSel {
    /// Nothing.
    #[default]
    None = 0,
    /// The low 32 bits of the value.
    Low32 = 1,
    /// All 64 bits of the value.
    Value64 = 2,
    /// The GPU's 100 MHz clock counter.
    ClockCounter = 3,
}

/// Which interrupt `RELEASE_MEM` raises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum IntSel {
    /// None.
    None = 0,
    /// One, without a store.
    Only = 1,
    /// One after the store is confirmed.
    #[default]
    AfterWrite = 2,
}

/// Operands of `RELEASE_MEM`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Release {
    /// Where to store.
    pub address: u64,
    /// What to store.
    pub value: u64,
    /// How to store it.
    pub data: DataSel,
    /// Which interrupt to raise.
    pub interrupt: IntSel,
    /// Context of the interrupt (gfx10 and later; ignored on gfx9).
    pub context: u32,
    /// Write back and invalidate caches first.
    pub flush: bool,
}

/// Encoder of compute packets into a buffer of the caller.
#[derive(Debug)]
pub struct Pm4<'c, 'b> {
    pub(crate) config: &'c ComputeConfig,
    out: Dwords<'b>,
}

impl<'c, 'b> Pm4<'c, 'b> {
    /// An empty command buffer.
    pub fn new(config: &'c ComputeConfig, buf: &'b mut [u32]) -> Self {
        Pm4 { config, out: Dwords::new(buf) }
    }

    /// What was encoded so far.
    pub fn dwords(&self) -> &[u32] {
        self.out.as_slice()
    }

    /// Forgets everything encoded.
    pub fn clear(&mut self) {
        self.out.clear();
    }

    /// A type-3 packet with the given body.
    pub fn packet(&mut self, op: u8, body: &[u32]) -> Result<&mut Self, QueueError> {
        self.packet2(op, body, &[])
    }

    fn packet2(&mut self, op: u8, head: &[u32], tail: &[u32]) -> Result<&mut Self, QueueError> {
        let len = head.len().saturating_add(tail.len());
        if len == 0 || len > MAX_BODY {
            return Err(QueueError::PacketTooLong(len));
        }
        let before = self.out.len();
        let mut write = || {
            self.out.push(&[header(op, len)])?;
            self.out.push(head)?;
            self.out.push(tail)
        };
        if let Err(e) = write() {
            self.out.len = before; // no half packets
            return Err(e);
        }
        Ok(self)
    }

    /// Sets consecutive registers, the first at dword address `addr`.
    pub fn set_regs(&mut self, addr: u32, values: &[u32]) -> Result<&mut Self, QueueError> {
        match addr {
            op::SH_REG_START..op::SH_REG_END => {
                self.packet2(opcode::SET_SH_REG, &[addr - op::SH_REG_START], values)
            }
            op::UCONFIG_REG_START..op::UCONFIG_REG_END => {
                self.packet2(opcode::SET_UCONFIG_REG, &[addr - op::UCONFIG_REG_START], values)
            }
            _ => Err(QueueError::NotSettable { addr }),
        }
    }

    /// Sets a register that the `SET_*` packets cannot reach, by a confirmed copy into the
    /// privileged range (thread trace registers before gfx11).
    pub fn set_privileged_reg(&mut self, addr: u32, value: u32) -> Result<&mut Self, QueueError> {
        let control = copy_data::SRC_IMM | copy_data::DST_PERF << 8;
        self.packet(opcode::COPY_DATA, &[control, value, 0, addr, 0])
    }

    /// Runs `body` on the XCCs in `xcc_mask` only; without several XCCs it is just run.
    pub fn pred_exec(
        &mut self,
        xcc_mask: u8,
        body: impl FnOnce(&mut Self) -> Result<(), QueueError>,
    ) -> Result<&mut Self, QueueError> {
        if self.config.xcc_count <= 1 {
            body(self)?;
            return Ok(self);
        }
        self.packet(opcode::PRED_EXEC, &[(xcc_mask as u32) << 24])?;
        let start = self.out.len();
        body(self)?;
        let count = self.out.len().saturating_sub(start);
        if count > 0x3fff {
            return Err(QueueError::PacketTooLong(count));
        }
        if let Some(dw) = start.checked_sub(1).and_then(|i| self.out.get_mut(i)) {
            *dw |= count as u32;
        }
        Ok(self)
    }

    /// `NOP` that skips `body` dwords of any content after its header; at least one.
    pub fn nop(&mut self, body: &[u32]) -> Result<&mut Self, QueueError> {
        self.packet(opcode::NOP, body)
    }

    /// Waits until a dword compares; `interval` is in units of 16 clocks.
    pub fn wait_reg_mem(
        &mut self,
        on: WaitOn,
        compare: Compare,
        reference: u32,
        mask: u32,
        interval: u32,
    ) -> Result<&mut Self, QueueError> {
        let function = compare as u32;
        let (info, lo, hi) = match on {
            WaitOn::Memory(va) => {
                if va & 3 != 0 {
                    return Err(QueueError::Misaligned { what: "address to wait on", value: va, align: 4 });
                }
                let [lo, hi] = lo_hi(va);
                (function | 1 << 4, lo, hi)
            }
            WaitOn::Register(reg) => (function, reg, 0),
            WaitOn::Request { req, done } => (function | 1 << 6, req, done),
        };
        self.packet(opcode::WAIT_REG_MEM, &[info, lo, hi, reference, mask, interval])
    }

    /// Invalidates caches for an address range; all of memory with `0, u64::MAX`.
    pub fn acquire_mem(&mut self, caches: Caches, va: u64, size: u64) -> Result<&mut Self, QueueError> {
        let bit = |c: Caches, bits: u32| if caches.contains(c) { bits } else { 0 };
        let [size_lo, size_hi] = lo_hi(size);
        let [va_lo, va_hi] = lo_hi(va);
        if self.config.target.major >= 10 {
            // GCR_CNTL; GLM, GLK and GL2 are written back and invalidated.
            let cntl = bit(Caches::GLI, 1)
                | bit(Caches::GLM, 3 << 4)
                | bit(Caches::GLK, 3 << 6)
                | bit(Caches::GLV, 1 << 8)
                | bit(Caches::GL1, 1 << 9)
                | bit(Caches::GL2, 3 << 14);
            self.packet(opcode::ACQUIRE_MEM, &[0, size_lo, size_hi, va_lo, va_hi, 0, cntl])
        } else {
            // CP_COHER_CNTL: SH_ICACHE 29, SH_KCACHE 27, TC 23, TCL1 22, TC_WB 18.
            let cntl = bit(Caches::GLI, 1 << 29)
                | bit(Caches::GLK, 1 << 27)
                | bit(Caches::GL2, 1 << 23 | 1 << 18)
                | bit(Caches::GL1, 1 << 22);
            self.packet(opcode::ACQUIRE_MEM, &[cntl, size_lo, size_hi, va_lo, va_hi, 0xa])
        }
    }

    /// When all before it is done: flush, store, interrupt.
    pub fn release_mem(&mut self, r: Release) -> Result<&mut Self, QueueError> {
        let gfx10 = self.config.target.major >= 10;
        let flush = match (r.flush, gfx10) {
            (false, _) => 0,
            // GLM_WB 12, GLM_INV 13, GLV_INV 14, GL1_INV 15, GL2_INV 20, GL2_WB 21, SEQ 22
            (true, true) => 0xf << 12 | 7 << 20,
            // EOP_TC_WB_ACTION_EN 15, EOP_TC_NC_ACTION_EN 19
            (true, false) => 1 << 15 | 1 << 19,
        };
        let ev = event::CACHE_FLUSH_AND_INV_TS | event::INDEX_END_OF_PIPE << 8 | flush;
        let sel = (r.data as u32) << 29 | (r.interrupt as u32) << 24;
        let [a_lo, a_hi] = lo_hi(r.address);
        let [v_lo, v_hi] = lo_hi(r.value);
        let context = if gfx10 { r.context } else { 0 };
        self.packet(opcode::RELEASE_MEM, &[ev, sel, a_lo, a_hi, v_lo, v_hi, context])
    }

    /// Makes CPU writes visible: HDP flush from the engine's side, then all caches.
    pub fn memory_barrier(&mut self) -> Result<&mut Self, QueueError> {
        let on =
            WaitOn::Request { req: self.config.regs.hdp_flush_req, done: self.config.regs.hdp_flush_done };
        self.wait_reg_mem(on, Compare::Ge, u32::MAX, u32::MAX, 4)?;
        self.acquire_mem(Caches::all(), 0, u64::MAX)
    }

    /// `EVENT_WRITE` without an address.
    pub fn event_write(&mut self, event_type: u32, index: u32) -> Result<&mut Self, QueueError> {
        self.packet(opcode::EVENT_WRITE, &[event_type & 0x3f | (index & 0xf) << 8])
    }

    /// Executes `len` dwords at `va`.
    pub fn indirect_buffer(&mut self, va: u64, len: u32) -> Result<&mut Self, QueueError> {
        let body = indirect_body(va, len)?;
        self.packet(opcode::INDIRECT_BUFFER, &body)
    }

    /// An atomic on memory; `op` is a `TC_OP`.
    pub fn atomic_mem(&mut self, op: u32, va: u64, data: u64, compare: u64) -> Result<&mut Self, QueueError> {
        let ([a, b], [c, d], [e, f]) = (lo_hi(va), lo_hi(data), lo_hi(compare));
        self.packet(opcode::ATOMIC_MEM, &[op, a, b, c, d, e, f, 0x10])
    }

    /// Copies a performance or privileged register to memory, confirmed.
    pub fn copy_perf_reg_to_mem(&mut self, reg: u32, va: u64) -> Result<&mut Self, QueueError> {
        let control = copy_data::WR_CONFIRM | copy_data::DST_TC_L2 << 8 | copy_data::SRC_PERF;
        let [lo, hi] = lo_hi(va);
        self.packet(opcode::COPY_DATA, &[control, reg, 0, lo, hi])
    }

    /// Stores dwords to memory through L2, confirmed (`DST_SEL` 5: memory).
    pub fn write_data(&mut self, va: u64, data: &[u32]) -> Result<&mut Self, QueueError> {
        let [lo, hi] = lo_hi(va);
        self.packet2(opcode::WRITE_DATA, &[5 << 8 | copy_data::WR_CONFIRM, lo, hi], data)
    }

    /// Lets all XCCs meet, so that none runs ahead; nothing with a single XCC.
    ///
    /// Each adds 1 to a counter and waits until it is a multiple of 8; a second counter makes the
    /// first one safe to use again.
    pub fn xcc_barrier(&mut self) -> Result<&mut Self, QueueError> {
        let Some(counters) = self.config.xcc_sync.filter(|_| self.config.xcc_count > 1) else {
            return Ok(self);
        };
        if self.config.xcc_count != 8 {
            return Err(QueueError::XccCount(self.config.xcc_count));
        }
        for va in counters {
            self.atomic_mem(op::ATOMIC_ADD_RTN_32, va, 1, 0)?;
            self.wait_reg_mem(WaitOn::Memory(va), Compare::Eq, 0, 7, 0x80)?;
        }
        Ok(self)
    }

    /// Tells each XCC its number and makes workgroups go to them in turn. Once after a queue of
    /// several XCCs is made.
    pub fn xcc_config(&mut self) -> Result<&mut Self, QueueError> {
        let chunk = self.config.regs.tg_chunk_size.ok_or(QueueError::NoRegister("COMPUTE_TG_CHUNK_SIZE"))?;
        let id = self
            .config
            .regs
            .current_logic_xcc_id
            .ok_or(QueueError::NoRegister("COMPUTE_CURRENT_LOGIC_XCC_ID"))?;
        self.set_regs(chunk, &[1])?;
        for xcc in 0..self.config.xcc_count.clamp(1, 8) {
            self.pred_exec(1 << xcc, |q| q.set_regs(id, &[xcc]).map(drop))?;
        }
        Ok(self)
    }

    /// Waits until the signal at `va` has at least `value` (32 bits, unsigned).
    pub fn wait(&mut self, va: u64, value: u32) -> Result<&mut Self, QueueError> {
        self.wait_reg_mem(WaitOn::Memory(va), Compare::Ge, value, u32::MAX, 4)?;
        self.xcc_barrier()
    }

    /// When all before it is done, stores `value` at `va` (32 bits) and raises an interrupt. A
    /// timeline signal also writes KFD's event mailbox where there is one.
    ///
    /// The queue needs an end-of-pipe buffer for it.
    pub fn signal(&mut self, va: u64, value: u32, timeline: bool) -> Result<&mut Self, QueueError> {
        let notify = self.config.notify;
        self.pred_exec(1, |q| {
            let store = Release {
                address: va,
                value: value as u64,
                data: DataSel::Low32,
                flush: true,
                ..Release::default()
            };
            q.release_mem(store)?;
            if let (true, Notify::Kfd(mailbox)) = (timeline, notify) {
                q.release_mem(Release {
                    address: mailbox.va,
                    value: mailbox.event as u64,
                    data: DataSel::Low32,
                    context: mailbox.event,
                    ..Release::default()
                })?;
            }
            Ok(())
        })
    }

    /// When all before it is done, stores the 100 MHz clock counter at `va`.
    pub fn timestamp(&mut self, va: u64) -> Result<&mut Self, QueueError> {
        self.pred_exec(1, |q| {
            q.release_mem(Release {
                address: va,
                data: DataSel::ClockCounter,
                interrupt: IntSel::None,
                ..Release::default()
            })
            .map(drop)
        })
    }
}

/// Body of an `INDIRECT_BUFFER` packet.
pub(crate) fn indirect_body(va: u64, len: u32) -> Result<[u32; 3], QueueError> {
    if va & 3 != 0 {
        return Err(QueueError::Misaligned { what: "indirect buffer", value: va, align: 4 });
    }
    if len == 0 || len > 0xf_ffff {
        return Err(QueueError::TooLarge { what: "indirect buffer", value: len as u64, max: 0xf_ffff });
    }
    let [lo, hi] = lo_hi(va);
    Ok([lo, hi, len | op::INDIRECT_BUFFER_VALID])
}
