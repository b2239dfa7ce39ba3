//! SDMA: two DMA engines, each with up to eight queues that are set up by registers alone.

use super::wait::{Stage, Until};
use super::{Cx, Device, soc};
use crate::bus::Bus;
use crate::error::Error;
use crate::hang::QueueState;
use crate::layout::Ready;
use crate::reg::{Field, Reg, f, r, ra};

/// A queue counts as hung after 10 s, in units of 100 ms.
const QUEUE_HANG_COUNT: u32 = 100;
/// `hqd_sdma_destroy_v11` waits 2 s by default.
const IDLE_US: u64 = 2_000_000;
/// Time in reset (`sdma_v6_0_soft_reset`, udelay 50 there; the reference takes 10 ms).
const RESET_US: u64 = 10_000;
/// Engines.
const ENGINES: u8 = 2;

/// A ring of a DMA engine. Addresses are virtual, of VMID 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SdmaQueue {
    /// Address of the ring, aligned to 256 bytes.
    pub ring: u64,
    /// Length of the ring in bytes, a power of two of at least 256.
    pub len: u32,
    /// Where the engine writes its read pointer (8 bytes).
    pub rptr: u64,
    /// Where the engine polls the write pointer (8 bytes).
    pub wptr: u64,
    /// Index of its doorbell, in units of 8 bytes.
    pub doorbell: u32,
}

fn at<T: Copy, const E: usize>(regs: &[T; E], engine: u8) -> Result<T, Error> {
    regs.get(usize::from(engine)).copied().ok_or(Error::BadValue {
        what: "an SDMA engine",
        value: engine.into(),
        need: "0 or 1",
    })
}

fn of(regs: [[Reg; 8]; 2], engine: u8, queue: u8) -> Result<Reg, Error> {
    at(&regs, engine)?.get(usize::from(queue)).copied().ok_or(Error::BadValue {
        what: "an SDMA queue",
        value: queue.into(),
        need: "at most 7",
    })
}

/// Takes both engines out of halt and opens their doorbells.
pub async fn init<B: Bus>(cx: &mut Cx<'_, B>) -> Result<(), Error> {
    use f::sdma_utcl1_page as page;
    cx.enter(Stage::Sdma).await;
    for engine in 0..ENGINES {
        cx.update(
            at(&ra::SDMA_WATCHDOG_CNTL, engine)?,
            &[(f::sdma_watchdog_cntl::QUEUE_HANG_COUNT, QUEUE_HANG_COUNT)],
        )?;
        cx.update(
            at(&ra::SDMA_UTCL1_CNTL, engine)?,
            &[(f::sdma_utcl1_cntl::RESP_MODE, 3), (f::sdma_utcl1_cntl::REDO_DELAY, 9)],
        )?;
        // Reads do not allocate in L2, writes bypass it.
        let f32 = at(&ra::SDMA_F32_CNTL, engine)?;
        let utcl1 = at(&ra::SDMA_UTCL1_PAGE, engine)?;
        if cx.regs.has(f32) {
            cx.update(utcl1, &[(page::RD_L2_POLICY, 2), (page::WR_L2_POLICY, 3), (page::LLC_NOALLOC, 1)])?;
            cx.update(f32, &[(f::sdma_f32_cntl::HALT, 0), (f::sdma_f32_cntl::TH1_RESET, 0)])?;
        } else {
            // From SDMA 7 on a RISC-V core runs the firmware.
            cx.update(utcl1, &[(page::RD_L2_POLICY, 2), (page::WR_L2_POLICY, 3)])?;
            let mcu = at(&ra::SDMA_MCU_CNTL, engine)?;
            cx.update(mcu, &[(f::sdma_mcu_cntl::HALT, 0), (f::sdma_mcu_cntl::RESET, 0)])?;
        }
        cx.update(
            at(&ra::SDMA_CNTL, engine)?,
            &[(f::sdma_cntl::CTXEMPTY_INT_ENABLE, 1), (f::sdma_cntl::TRAP_ENABLE, 1)],
        )?;
    }
    soc::route(cx, soc::ROUTE_SDMA)
}

/// Lets an engine go on that something has stopped since [`init`], or that this never started: Linux leaves
/// TH0_RESET as it finds it, so that it would outlive every warm boot.
pub(crate) fn unstop<B: Bus>(device: &mut Device<B>, engine: u8) -> Result<(), Error> {
    use f::{sdma_f32_cntl as f32, sdma_mcu_cntl as mcu};
    let (f32_cntl, mcu_cntl) = (at(&ra::SDMA_F32_CNTL, engine)?, at(&ra::SDMA_MCU_CNTL, engine)?);
    let (cntl, stops): (Reg, &[Field]) = match device.regs.has(f32_cntl) {
        true => (f32_cntl, &[f32::HALT, f32::TH0_RESET, f32::TH1_RESET]),
        false => (mcu_cntl, &[mcu::HALT, mcu::RESET]),
    };
    let old = device.read(cntl)?;
    let mut value = old;
    for stop in stops {
        value = device.regs.merge(cntl, value, &[(*stop, 0)])?;
    }
    if value == old { Ok(()) } else { device.write(cntl, value) }
}

/// Sets up a queue and switches it on. The memory of its pointers must be zero, all 8 bytes of each.
pub fn activate<B: Bus>(
    device: &mut Device<B>,
    _: Ready,
    engine: u8,
    queue: u8,
    q: &SdmaQueue,
) -> Result<(), Error> {
    use f::{
        sdma_queue_doorbell as d, sdma_queue_doorbell_offset as o, sdma_queue_ib_cntl as ib,
        sdma_queue_rb_cntl as c,
    };
    if !q.len.is_power_of_two() || q.len < 256 {
        return Err(Error::BadValue {
            what: "the length of an SDMA ring",
            value: q.len.into(),
            need: "a power of two of at least 256",
        });
    }
    if !q.ring.is_multiple_of(256) {
        return Err(Error::BadValue {
            what: "the address of an SDMA ring",
            value: q.ring,
            need: "a multiple of 256",
        });
    }
    let used = at(&device.queues.sdma, engine)?;
    let bit = 1u8.checked_shl(queue.into()).unwrap_or(0);
    if used & bit != 0 {
        return Err(Error::State("this SDMA queue is in use; take it down first"));
    }
    let reg = |regs: [[Reg; 8]; 2]| of(regs, engine, queue);
    let minor = reg(ra::SDMA_QUEUE_MINOR_PTR_UPDATE)?;
    // In use from the first register on: who takes a half-made queue down must know of it.
    if let Some(used) = device.queues.sdma.get_mut(usize::from(engine)) {
        *used |= bit;
    }
    device.write(minor, 1)?;
    device.write_pair(reg(ra::SDMA_QUEUE_RB_RPTR)?, reg(ra::SDMA_QUEUE_RB_RPTR_HI)?, 0)?;
    device.write_pair(reg(ra::SDMA_QUEUE_RB_WPTR)?, reg(ra::SDMA_QUEUE_RB_WPTR_HI)?, 0)?;
    device.write_pair(reg(ra::SDMA_QUEUE_RB_BASE)?, reg(ra::SDMA_QUEUE_RB_BASE_HI)?, q.ring >> 8)?;
    device.write_pair(reg(ra::SDMA_QUEUE_RB_RPTR_ADDR_LO)?, reg(ra::SDMA_QUEUE_RB_RPTR_ADDR_HI)?, q.rptr)?;
    device.write_pair(
        reg(ra::SDMA_QUEUE_RB_WPTR_POLL_ADDR_LO)?,
        reg(ra::SDMA_QUEUE_RB_WPTR_POLL_ADDR_HI)?,
        q.wptr,
    )?;
    // In dwords.
    device.update(reg(ra::SDMA_QUEUE_DOORBELL_OFFSET)?, &[(o::OFFSET, q.doorbell * 2)])?;
    device.update(reg(ra::SDMA_QUEUE_DOORBELL)?, &[(d::ENABLE, 1)])?;
    device.write(minor, 0)?;
    let poll = if device.regs.has_field(c::F32_WPTR_POLL_ENABLE) {
        c::F32_WPTR_POLL_ENABLE
    } else {
        c::MCU_WPTR_POLL_ENABLE
    };
    device.write_fields(
        reg(ra::SDMA_QUEUE_RB_CNTL)?,
        &[
            (c::RB_VMID, 0),
            (c::RPTR_WRITEBACK_ENABLE, 1),
            (c::RPTR_WRITEBACK_TIMER, 4),
            (poll, 1),
            (c::RB_SIZE, (q.len / 4).trailing_zeros()),
            (c::RB_ENABLE, 1),
            (c::RB_PRIV, 1),
        ],
    )?;
    device.update(reg(ra::SDMA_QUEUE_IB_CNTL)?, &[(ib::IB_ENABLE, 1)])?;
    Ok(())
}

/// Stops a queue and awaits that its engine has let go of it.
pub async fn deactivate<B: Bus>(cx: &mut Cx<'_, B>, engine: u8, queue: u8) -> Result<(), Error> {
    use f::{sdma_queue_context_status as s, sdma_queue_ib_cntl as ib, sdma_queue_rb_cntl as c};
    let cntl = of(ra::SDMA_QUEUE_RB_CNTL, engine, queue)?;
    let old = cx.read(cntl)?;
    let was_on = cx.regs.get(old, c::RB_ENABLE)? != 0;
    let off = cx.regs.merge(cntl, old, &[(c::RB_ENABLE, 0)])?;
    cx.write(cntl, off)?;
    cx.update(of(ra::SDMA_QUEUE_IB_CNTL, engine, queue)?, &[(ib::IB_ENABLE, 0)])?;
    if was_on {
        let idle = cx.regs.mask(s::IDLE)?;
        let status = of(ra::SDMA_QUEUE_CONTEXT_STATUS, engine, queue)?;
        let outer = cx.attribute(Stage::Queue);
        let stopped = cx.wait_reg(status, idle, Until::Equal(idle), IDLE_US).await;
        cx.attribute(outer);
        stopped?;
    }
    if let Some(used) = cx.queues.sdma.get_mut(usize::from(engine)) {
        *used &= !1u8.checked_shl(queue.into()).unwrap_or(0);
    }
    Ok(())
}

/// What the registers of a queue say.
pub(crate) fn queue_state<B: Bus>(
    device: &mut Device<B>,
    engine: u8,
    queue: u8,
) -> Result<QueueState, Error> {
    use f::{sdma_queue_context_status as s, sdma_queue_rb_cntl as c};
    let reg = |regs: [[Reg; 8]; 2]| of(regs, engine, queue);
    let cntl = device.read(reg(ra::SDMA_QUEUE_RB_CNTL)?)?;
    let status = device.read(reg(ra::SDMA_QUEUE_CONTEXT_STATUS)?)?;
    Ok(QueueState {
        active: device.regs.get(cntl, c::RB_ENABLE)? != 0,
        busy: device.regs.get(status, s::IDLE)? == 0,
        status,
        read: device.read_pair(reg(ra::SDMA_QUEUE_RB_RPTR)?, reg(ra::SDMA_QUEUE_RB_RPTR_HI)?)?,
        write: device.read_pair(reg(ra::SDMA_QUEUE_RB_WPTR)?, reg(ra::SDMA_QUEUE_RB_WPTR_HI)?)?,
        dequeue: 0,
    })
}

/// Stops every queue in use, and engine 0's first in any case, and resets the engines.
pub async fn fini<B: Bus>(cx: &mut Cx<'_, B>) -> Result<(), Error> {
    cx.enter(Stage::Sdma).await;
    let [used0, used1] = cx.queues.sdma;
    for (engine, used) in [(0, used0 | 1), (1, used1)] {
        for queue in 0..8 {
            if used >> queue & 1 != 0 {
                deactivate(cx, engine, queue).await?;
            }
        }
    }
    soft_reset(cx, [true, used1 != 0]).await
}

/// Resets engines, whatever their queues do.
pub(crate) async fn soft_reset<B: Bus>(cx: &mut Cx<'_, B>, engines: [bool; 2]) -> Result<(), Error> {
    use f::grbm_soft_reset as g;
    let [zero, one] = engines.map(u32::from);
    cx.write_fields(r::GRBM_SOFT_RESET, &[(g::SOFT_RESET_SDMA0, zero), (g::SOFT_RESET_SDMA1, one)])?;
    cx.delay(RESET_US).await?;
    cx.write(r::GRBM_SOFT_RESET, 0)
}

/// Finds the queues that are on, for a device that another process has used.
pub(crate) fn attach<B: Bus>(device: &mut Device<B>) -> Result<(), Error> {
    for (engine, regs) in ra::SDMA_QUEUE_RB_CNTL.into_iter().enumerate() {
        let mut on = 0;
        for (queue, reg) in regs.into_iter().enumerate() {
            let cntl = device.read(reg)?;
            on |= (device.regs.get(cntl, f::sdma_queue_rb_cntl::RB_ENABLE)? as u8) << queue;
        }
        if let Some(used) = device.queues.sdma.get_mut(engine) {
            *used = on;
        }
    }
    Ok(())
}
