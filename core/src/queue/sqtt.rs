//! Instruction traces (SQTT): start, stop, and the markers that tell a viewer which dispatch is which.
//!
//! Each shader engine writes its own buffer. Instructions can be traced on one SIMD of an engine;
//! [`Start::detailed`] says on which engines that happens. Register values follow Mesa
//! (`ac_sqtt.c`, `radv_sqtt.c`); register layouts are those of `gc_{10_3_0,11_0_0,12_0_0}_sh_mask.h`.

use crate::iface::Target;
use crate::queue::pm4::op::{event, opcode};
use crate::queue::pm4::{Compare, Pm4, WaitOn};
use crate::queue::{QueueError, lo_hi};
use crate::reg::{RegError, RegFile, r};

/// Registers of the thread trace, by absolute dword address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SqttRegs {
    /// `SPI_CONFIG_CNTL`.
    pub spi_config_cntl: u32,
    /// `GRBM_GFX_INDEX`.
    pub grbm_gfx_index: u32,
    /// `SQ_THREAD_TRACE_BUF0_SIZE`.
    pub buf0_size: u32,
    /// `SQ_THREAD_TRACE_BUF0_BASE`; on gfx12 `SQ_THREAD_TRACE_BUF0_BASE_LO`, followed by `_HI`.
    pub buf0_base: u32,
    /// `SQ_THREAD_TRACE_MASK`.
    pub mask: u32,
    /// `SQ_THREAD_TRACE_TOKEN_MASK`.
    pub token_mask: u32,
    /// `SQ_THREAD_TRACE_CTRL`.
    pub ctrl: u32,
    /// `SQ_THREAD_TRACE_STATUS`.
    pub status: u32,
    /// `SQ_THREAD_TRACE_WPTR`.
    pub wptr: u32,
    /// `COMPUTE_THREAD_TRACE_ENABLE`.
    pub enable: u32,
}

impl SqttRegs {
    /// The addresses on a device; an error where a generation traces by other registers (gfx9).
    pub fn new(regs: &RegFile) -> Result<SqttRegs, RegError> {
        let base = regs.addr(r::SQ_THREAD_TRACE_BUF0_BASE);
        Ok(SqttRegs {
            spi_config_cntl: regs.addr(r::SPI_CONFIG_CNTL)?,
            grbm_gfx_index: regs.addr(r::GRBM_GFX_INDEX)?,
            buf0_size: regs.addr(r::SQ_THREAD_TRACE_BUF0_SIZE)?,
            buf0_base: base.or_else(|_| regs.addr(r::SQ_THREAD_TRACE_BUF0_BASE_LO))?,
            mask: regs.addr(r::SQ_THREAD_TRACE_MASK)?,
            token_mask: regs.addr(r::SQ_THREAD_TRACE_TOKEN_MASK)?,
            ctrl: regs.addr(r::SQ_THREAD_TRACE_CTRL)?,
            status: regs.addr(r::SQ_THREAD_TRACE_STATUS)?,
            wptr: regs.addr(r::SQ_THREAD_TRACE_WPTR)?,
            enable: regs.addr(r::COMPUTE_THREAD_TRACE_ENABLE)?,
        })
    }
}

/// Size of the trace buffer of one shader engine unless the user chooses another, in bytes.
pub const DEFAULT_BUFFER_SIZE: u64 = 256 << 20;

/// Engines whose instructions are traced unless the user chooses others: the second, where compute
/// work starts.
pub const DEFAULT_DETAILED: u32 = 1 << 1;

/// The buffer address and size are in units of 4 KiB.
const BUFFER_SHIFT: u32 = 12;

/// What a trace needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start<'a> {
    /// GPU address of each shader engine's buffer, a multiple of 4 KiB.
    pub buffers: &'a [u64],
    /// Size of each, a multiple of 4 KiB.
    pub size: u64,
    /// Bit mask of the engines whose instructions are traced.
    pub detailed: u32,
}

/// What a trace knows of a dispatch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker {
    /// Hash of the code object, under which a viewer finds the program.
    pub code_hash: u64,
    /// Running number of the dispatch.
    pub command: u32,
    /// Workgroups in x, y, z.
    pub grid: [u32; 3],
}

/// `rgp_sqtt_marker_identifier` BIND_PIPELINE, in bits 0 to 3; bit 7 is the compute bind point.
const BIND_PIPELINE_COMPUTE: u32 = 0xc | 1 << 7;
/// `rgp_sqtt_marker_event` (identifier 0) with `has_thread_dims`.
const EVENT_WITH_DIMS: u32 = 1 << 31;

/// Generations that differ in the layout of the trace registers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Gfx10,
    Gfx11,
    Gfx12,
}

impl Layout {
    fn of(target: Target) -> Result<Layout, QueueError> {
        match target.major {
            10 => Ok(Layout::Gfx10),
            11 => Ok(Layout::Gfx11),
            12 => Ok(Layout::Gfx12),
            _ => Err(QueueError::Unsupported("instruction traces need gfx10 or later")),
        }
    }

    /// `SQ_THREAD_TRACE_CTRL`: draw events, stall instead of losing data, watermark, timers.
    fn ctrl(self, on: bool) -> u32 {
        let common = on as u32 | 1 << 6 | 1 << 31; // MODE, HIWATER 1, DRAW_EVENT_EN
        match self {
            // REG_STALL 9, SPI_STALL 10, SQ_STALL 11, UTIL_TIMER 13, RT_FREQ 2 at 16, LOWATER_OFFSET 4 at 20
            Layout::Gfx10 => common | 7 << 9 | 1 << 13 | 2 << 16 | 4 << 20,
            // REG_AT_HWM 2 at 9, SPI_STALL 11, SQ_STALL 12, UTIL_TIMER 13, RT_FREQ 2 (4096 clocks) at 16
            Layout::Gfx11 => common | 2 << 9 | 3 << 11 | 1 << 13 | 2 << 16,
            // REG_AT_HWM 2 at 9, SPI_STALL 11, SQ_STALL 12, UTIL_TIMER 14; RT_FREQ does not exist
            Layout::Gfx12 => common | 2 << 9 | 3 << 11 | 1 << 14,
        }
    }

    /// `SQ_THREAD_TRACE_TOKEN_MASK`: which tokens and register writes are in the trace.
    fn tokens(self, detailed: bool) -> u32 {
        // REG_INCLUDE: SQDEC, SHDEC, GFXUDEC, COMP, CONTEXT (`SQ_TT_TOKEN_MASK_*_BIT`)
        let reg_include = 0x1f << 16;
        // `SQ_TT_TOKEN_EXCLUDE_*_SHIFT`: PERF 11; VMEMEXEC 0, ALUEXEC 1, VALUINST 2, IMMEDIATE 5, INST 8
        let perf = 1 << 11;
        let instructions = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 5 | 1 << 8;
        let exclude = if detailed { perf } else { perf | instructions };
        // BOP_EVENTS_TOKEN_INCLUDE
        let bop = if self == Layout::Gfx12 { 1 << 13 } else { 1 << 12 };
        reg_include | exclude | bop
    }
}

/// `SQ_THREAD_TRACE_STATUS` fields: `FINISH_PENDING`, `FINISH_DONE`, `BUSY`.
const STATUS_FINISH_PENDING: u32 = 0xfff;
const STATUS_FINISH_DONE: u32 = 0xfff << 12;
const STATUS_BUSY: u32 = 1 << 25;

/// `SQ_THREAD_TRACE_MASK`: compute waves (`SQ_TT_WTYPE_INCLUDE_CS_BIT` 0x40 at 10) of SIMD 0, WGP 0, SA 0.
const MASK_COMPUTE: u32 = 0x40 << 10;

/// `GRBM_GFX_INDEX` with all instances, arrays and engines.
const BROADCAST_ALL: u32 = 7 << 29;

impl Pm4<'_, '_> {
    /// Data for the trace, two dwords a write.
    pub fn sqtt_userdata(&mut self, data: &[u32]) -> Result<&mut Self, QueueError> {
        let reg =
            self.config.regs.sqtt_userdata_2.ok_or(QueueError::NoRegister("SQ_THREAD_TRACE_USERDATA_2"))?;
        for pair in data.chunks(2) {
            self.set_regs(reg, pair)?;
        }
        Ok(self)
    }

    /// Says which program the next dispatch runs, and its number and size.
    pub fn sqtt_marker(&mut self, m: &Marker) -> Result<&mut Self, QueueError> {
        let [lo, hi] = lo_hi(m.code_hash);
        self.sqtt_userdata(&[BIND_PIPELINE_COMPUTE, lo, hi])?;
        let [x, y, z] = m.grid;
        self.sqtt_userdata(&[EVENT_WITH_DIMS, 0, m.command, x, y, z])
    }

    /// `SPI_CONFIG_CNTL`: whether pipeline events enter the trace.
    pub fn spi_config(&mut self, regs: &SqttRegs, tracing: bool) -> Result<&mut Self, QueueError> {
        // GPR_WRITE_PRIORITY 0x2c688, EXP_PRIORITY_ORDER 3, PS_PKR_PRIORITY_CNTL 3; SQG top and bottom events
        let events = if tracing { 3 << 24 } else { 0 };
        self.set_trace_reg(regs.spi_config_cntl, 0x2c688 | 3 << 21 | 3 << 30 | events)
    }

    /// `SQ_THREAD_TRACE_CTRL` of the engines selected.
    pub fn sqtt_config(&mut self, regs: &SqttRegs, tracing: bool) -> Result<&mut Self, QueueError> {
        let layout = Layout::of(self.config.target)?;
        self.set_trace_reg(regs.ctrl, layout.ctrl(tracing))
    }

    /// A trace register: through `SET_UCONFIG_REG` where it lies in that range (gfx11 and later),
    /// else through the privileged path.
    fn set_trace_reg(&mut self, addr: u32, value: u32) -> Result<&mut Self, QueueError> {
        match self.set_regs(addr, &[value]) {
            Err(QueueError::NotSettable { .. }) => self.set_privileged_reg(addr, value),
            Err(e) => Err(e),
            Ok(_) => Ok(self),
        }
    }

    fn select_engine(&mut self, regs: &SqttRegs, engine: usize) -> Result<&mut Self, QueueError> {
        self.set_regs(regs.grbm_gfx_index, &[1 << 30 | (engine as u32 & 0xff) << 16])
    }

    /// Starts a trace on all shader engines.
    pub fn sqtt_start(&mut self, regs: &SqttRegs, start: &Start<'_>) -> Result<&mut Self, QueueError> {
        let layout = Layout::of(self.config.target)?;
        let pages = start.size >> BUFFER_SHIFT;
        for (what, v) in [("trace buffer size", &start.size)]
            .into_iter()
            .chain(start.buffers.iter().map(|b| ("trace buffer", b)))
        {
            if v & 0xfff != 0 {
                return Err(QueueError::Misaligned { what, value: *v, align: 4096 });
            }
        }
        if pages == 0 || pages > 0x3f_ffff {
            return Err(QueueError::TooLarge {
                what: "trace buffer size",
                value: start.size,
                max: 0x3f_ffff << BUFFER_SHIFT,
            });
        }
        self.memory_barrier()?;
        self.spi_config(regs, true)?;
        for (engine, buffer) in start.buffers.iter().enumerate() {
            self.select_engine(regs, engine)?;
            let [lo, hi] = lo_hi(buffer >> BUFFER_SHIFT);
            if layout == Layout::Gfx12 {
                self.set_trace_reg(regs.buf0_size, pages as u32)?;
                self.set_regs(regs.buf0_base, &[lo, hi & 0x1fff])?;
            } else {
                // BASE_HI in bits 0 to 3, SIZE from bit 8 on
                self.set_trace_reg(regs.buf0_size, (hi & 0xf) | (pages as u32) << 8)?;
                self.set_trace_reg(regs.buf0_base, lo)?;
            }
            self.set_trace_reg(regs.mask, MASK_COMPUTE)?;
            let detailed = start.detailed.checked_shr(engine as u32).unwrap_or(0) & 1 == 1;
            self.set_trace_reg(regs.token_mask, layout.tokens(detailed))?;
            self.sqtt_config(regs, true)?; // last: it starts the trace
        }
        self.set_regs(regs.grbm_gfx_index, &[BROADCAST_ALL])?;
        self.set_regs(regs.enable, &[1])?;
        self.memory_barrier()
    }

    /// Ends a trace on `engines` shader engines and stores each write pointer, 4 bytes apart, at
    /// `wptrs`; [`trace_len`] makes a length of it.
    pub fn sqtt_stop(
        &mut self,
        regs: &SqttRegs,
        engines: usize,
        wptrs: u64,
    ) -> Result<&mut Self, QueueError> {
        Layout::of(self.config.target)?;
        self.memory_barrier()?;
        self.set_regs(regs.enable, &[0])?;
        self.packet(opcode::EVENT_WRITE, &[event::THREAD_TRACE_FINISH])?;
        let status = WaitOn::Register(regs.status);
        for engine in 0..engines {
            self.select_engine(regs, engine)?;
            self.wait_reg_mem(status, Compare::Eq, 0, STATUS_FINISH_PENDING, 4)?;
            self.wait_reg_mem(status, Compare::Ne, 0, STATUS_FINISH_DONE, 4)?;
            self.sqtt_config(regs, false)?;
            self.wait_reg_mem(status, Compare::Eq, 0, STATUS_BUSY, 4)?;
            self.copy_perf_reg_to_mem(regs.wptr, wptrs.wrapping_add(engine as u64 * 4))?;
        }
        self.set_regs(regs.grbm_gfx_index, &[BROADCAST_ALL])?;
        self.spi_config(regs, false)?;
        self.memory_barrier()
    }
}

/// How much of a trace buffer was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceLen {
    /// Bytes of trace.
    pub len: u64,
    /// The buffer was too small: the end of the trace is missing.
    pub full: bool,
}

/// Length of a trace from `SQ_THREAD_TRACE_WPTR` and the buffer. The pointer counts units of 32
/// bytes in 29 bits, from address 0 on; it stops at the last unit when the buffer is full.
pub fn trace_len(wptr: u32, buffer: u64, size: u64) -> Result<TraceLen, QueueError> {
    const MASK: u64 = 0x1fff_ffff;
    let units = (wptr as u64 & MASK).wrapping_sub((buffer / 32) & MASK) & MASK;
    let len = units * 32;
    if len > size {
        return Err(QueueError::TooLarge { what: "trace length", value: len, max: size });
    }
    Ok(TraceLen { len, full: len.saturating_add(32) >= size })
}
