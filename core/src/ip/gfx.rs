//! GFX: run list controller, compute micro engine (MEC) and its hardware queues.
//!
//! The command processor runs from firmware that the RLC loads out of the TMR ("autoload") after
//! the PSP's last command. A hardware queue (HQD) is a bank of registers, chosen by ME, pipe and
//! queue; it is activated by loading a queue description (MQD) into it.

use super::wait::{Stage, Until};
use super::{Cx, Device, Hub, gmc, soc};
use crate::bus::Bus;
use crate::error::Error;
use crate::firmware::UcodeStart;
use crate::hang::QueueState;
use crate::layout::Ready;
use crate::queue::mqd::Mqd;
use crate::reg::{Field, Reg, f, r, ra};

/// RLC autoload; Linux waits `usec_timeout` (100 ms) for it, hardware takes tens of milliseconds.
const AUTOLOAD_US: u64 = 5_000_000;
/// A queue's waves are reset in microseconds; KFD waits 2 s for a preemption.
const DEQUEUE_US: u64 = 2_000_000;
/// RLC safe mode; Linux waits `usec_timeout`.
const SAFE_MODE_US: u64 = 1_000_000;
/// The MEC needs a while after its start: 50 us in Linux (`gfx_v11_0_cp_compute_enable`, udelay 50).
const MEC_START_US: u64 = 1_000;
/// Time that a pipe stays in reset (`gfx_v11_0_cp_compute_enable`, udelay 50).
const PIPE_RESET_US: u64 = 50;
/// Doorbells that the MEC listens to, in bytes: all of the compute queues'.
const MEC_DOORBELLS_END: u32 = 0x450;
/// `SH_MEM_ADDRESS_MODE_64` (soc21_enum.h).
const ADDRESS_MODE_64: u32 = 0;
/// `SH_MEM_ALIGNMENT_MODE_UNALIGNED` (soc21_enum.h).
const ALIGNMENT_UNALIGNED: u32 = 3;
/// Upper 16 bits of the LDS aperture.
pub const SHARED_BASE: u16 = 1;
/// Upper 16 bits of the scratch aperture.
pub const PRIVATE_BASE: u16 = 2;
/// `TCP_CNTL` bit that `gfx_v11_0_init_golden_registers` sets; the headers do not name it.
const TCP_GOLDEN: u32 = 0x2000_0000;
/// `RESET_WAVES` (`enum hqd_dequeue_request_type`).
const RESET_WAVES: u32 = 2;

/// A bank of the command processor's registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bank {
    /// Micro engine: 0 = graphics, 1 = first MEC.
    pub me: u8,
    /// Pipe.
    pub pipe: u8,
    /// Queue.
    pub queue: u8,
    /// VMID, for the registers that are banked by it.
    pub vmid: u8,
}

/// Chooses the bank that the next accesses go to.
pub fn select<B: Bus>(device: &mut Device<B>, bank: Bank) -> Result<(), Error> {
    use f::grbm_gfx_cntl as g;
    device.write_fields(
        r::GRBM_GFX_CNTL,
        &[
            (g::MEID, bank.me.into()),
            (g::PIPEID, bank.pipe.into()),
            (g::VMID, bank.vmid.into()),
            (g::QUEUEID, bank.queue.into()),
        ],
    )
}

/// Awaits the firmware, then sets up GFXHUB, shader memory and the MEC.
pub async fn init<B: Bus>(cx: &mut Cx<'_, B>, start: UcodeStart) -> Result<(), Error> {
    cx.enter(Stage::Gfx).await;
    let complete = cx.regs.mask(f::rlc_rlcs_bootload_status::BOOTLOAD_COMPLETE)?;
    cx.wait_reg(r::RLC_RLCS_BOOTLOAD_STATUS, complete, Until::Equal(complete), AUTOLOAD_US).await?;
    cx.wait_reg(r::CP_STAT, u32::MAX, Until::Equal(0), AUTOLOAD_US).await?;

    start_programs(cx, start).await?;
    gmc::init_hub(&mut *cx, Hub::Gc)?;
    let tcp = cx.read(r::TCP_CNTL)?;
    cx.write(r::TCP_CNTL, tcp | TCP_GOLDEN)?;
    cx.update(r::RLC_SRM_CNTL, &[(f::rlc_srm_cntl::SRM_ENABLE, 1), (f::rlc_srm_cntl::AUTO_INCR_ADDR, 1)])?;
    soc::route(cx, soc::ROUTE_CP)?;
    soc::route(cx, soc::ROUTE_MEC)?;
    cx.update(r::GRBM_CNTL, &[(f::grbm_cntl::READ_TIMEOUT, 0xff)])?;
    init_shader_memory(cx)?;

    cx.write(r::CP_MEC_DOORBELL_RANGE_LOWER, 0)?;
    cx.write(r::CP_MEC_DOORBELL_RANGE_UPPER, MEC_DOORBELLS_END)?;
    start_mec(cx).await
}

/// Lets pipe 0 of the first MEC run, after its reset.
pub(crate) async fn start_mec<B: Bus>(cx: &mut Cx<'_, B>) -> Result<(), Error> {
    use f::cp_mec_rs64_cntl as m;
    cx.update(
        r::CP_MEC_RS64_CNTL,
        &[(m::MEC_INVALIDATE_ICACHE, 0), (m::MEC_PIPE0_RESET, 0), (m::MEC_PIPE0_ACTIVE, 1), (m::MEC_HALT, 0)],
    )?;
    cx.delay(MEC_START_US).await
}

/// What the registers of a compute queue of the first MEC say.
pub(crate) fn queue_state<B: Bus>(device: &mut Device<B>, pipe: u8, queue: u8) -> Result<QueueState, Error> {
    let status = device.read(r::CP_STAT)?;
    select(device, Bank { me: 1, pipe, queue, vmid: 0 })?;
    let state = QueueState {
        active: device.get(f::cp_hqd_active::ACTIVE)? != 0,
        busy: status != 0,
        status,
        read: device.read(r::CP_HQD_PQ_RPTR)?.into(),
        write: device.read_pair(r::CP_HQD_PQ_WPTR_LO, r::CP_HQD_PQ_WPTR_HI)?,
        dequeue: device.read(r::CP_HQD_DEQUEUE_REQUEST)?,
    };
    select(device, Bank::default())?;
    Ok(state)
}

/// Gives the RS64 engines the addresses where their programs start, and resets pipe 0 of each, so
/// that it takes them over.
async fn start_programs<B: Bus>(cx: &mut Cx<'_, B>, start: UcodeStart) -> Result<(), Error> {
    use f::{cp_me_cntl as me, cp_mec_rs64_cntl as mec};
    let none = Bank::default();
    if cx.chip.rs64_gfx {
        let pfp = start.pfp.ok_or(Error::MissingImage("PFP"))?;
        select(cx, none)?;
        cx.write_pair(r::CP_PFP_PRGRM_CNTR_START, r::CP_PFP_PRGRM_CNTR_START_HI, pfp >> 2)?;
        select(cx, none)?;
        pulse(cx, r::CP_ME_CNTL, me::PFP_PIPE0_RESET)?;

        let addr = start.me.ok_or(Error::MissingImage("ME"))?;
        select(cx, none)?;
        cx.write_pair(r::CP_ME_PRGRM_CNTR_START, r::CP_ME_PRGRM_CNTR_START_HI, addr >> 2)?;
        select(cx, none)?;
        pulse(cx, r::CP_ME_CNTL, me::ME_PIPE0_RESET)?;
    }
    let addr = start.mec.ok_or(Error::MissingImage("MEC"))?;
    select(cx, Bank { me: 1, ..none })?;
    // A queue that a dead process left active would wedge the next one.
    if cx.get(f::cp_hqd_active::ACTIVE)? != 0 {
        return Err(Error::State("compute queue 0 is still active; the GPU needs a reset"));
    }
    // Instructions are 4 bytes long.
    cx.write_pair(r::CP_MEC_RS64_PRGRM_CNTR_START, r::CP_MEC_RS64_PRGRM_CNTR_START_HI, addr >> 2)?;
    select(cx, none)?;
    pulse(cx, r::CP_MEC_RS64_CNTL, mec::MEC_PIPE0_RESET)
}

/// Sets a bit and clears it again; the register is read once.
fn pulse<B: Bus>(device: &mut Device<B>, reg: Reg, bit: Field) -> Result<(), Error> {
    let old = device.read(reg)?;
    for value in [1, 0] {
        let new = device.regs.merge(reg, old, &[(bit, value)])?;
        device.write(reg, new)?;
    }
    Ok(())
}

fn init_shader_memory<B: Bus>(device: &mut Device<B>) -> Result<(), Error> {
    use f::{sh_mem_bases as b, sh_mem_config as c};
    for vmid in 0..16 {
        select(device, Bank { vmid, ..Bank::default() })?;
        device.write_fields(
            r::SH_MEM_CONFIG,
            &[
                (c::ADDRESS_MODE, ADDRESS_MODE_64),
                (c::ALIGNMENT_MODE, ALIGNMENT_UNALIGNED),
                (c::INITIAL_INST_PREFETCH, 3),
            ],
        )?;
        device.write_fields(
            r::SH_MEM_BASES,
            &[(b::SHARED_BASE, SHARED_BASE.into()), (b::PRIVATE_BASE, PRIVATE_BASE.into())],
        )?;
    }
    select(device, Bank::default())
}

/// Clock gating of graphics and of the memory hub, with the RLC in safe mode meanwhile.
pub async fn clock_gating<B: Bus>(cx: &mut Cx<'_, B>) -> Result<(), Error> {
    use f::{cp_int_cntl as i, rlc_cgcg_cgls_ctrl as c, rlc_cgtt_mgcg_override as o, rlc_safe_mode as s};
    if cx.regs.has(r::MM_ATC_L2_MISC_CG) {
        use f::mm_atc_l2_misc_cg as a;
        cx.write_fields(r::MM_ATC_L2_MISC_CG, &[(a::ENABLE, 1), (a::MEM_LS_ENABLE, 1)])?;
    }
    cx.write_fields(r::RLC_SAFE_MODE, &[(s::MESSAGE, 1), (s::CMD, 1)])?;
    let cmd = cx.regs.mask(s::CMD)?;
    cx.wait_reg(r::RLC_SAFE_MODE, cmd, Until::Equal(0), SAFE_MODE_US).await?;

    cx.update(
        r::RLC_CGCG_CGLS_CTRL,
        &[
            (c::CGCG_GFX_IDLE_THRESHOLD, 0x36),
            (c::CGCG_EN, 1),
            (c::CGLS_REP_COMPANSAT_DELAY, 0xf),
            (c::CGLS_EN, 1),
        ],
    )?;
    {
        use f::cp_rb_wptr_poll_cntl as p;
        cx.update(r::CP_RB_WPTR_POLL_CNTL, &[(p::POLL_FREQUENCY, 0x100), (p::IDLE_POLL_COUNT, 0x90)])?;
    }
    cx.update(
        r::CP_INT_CNTL,
        &[
            (i::CNTX_BUSY_INT_ENABLE, 1),
            (i::CNTX_EMPTY_INT_ENABLE, 1),
            (i::CMP_BUSY_INT_ENABLE, 1),
            (i::GFX_IDLE_INT_ENABLE, 1),
        ],
    )?;
    for reg in ra::SDMA_RLC_CGCG_CTRL {
        cx.update(reg, &[(f::sdma_rlc_cgcg_ctrl::CGCG_INT_ENABLE, 1)])?;
    }
    cx.update(
        r::RLC_CGTT_MGCG_OVERRIDE,
        &[
            (o::PERFMON_CLOCK_STATE, 0),
            (o::GFXIP_FGCG_OVERRIDE, 0),
            (o::GFXIP_REPEATER_FGCG_OVERRIDE, 0),
            (o::GRBM_CGTT_SCLK_OVERRIDE, 0),
            (o::RLC_CGTT_SCLK_OVERRIDE, 0),
            (o::GFXIP_MGCG_OVERRIDE, 0),
            (o::GFXIP_CGLS_OVERRIDE, 0),
            (o::GFXIP_CGCG_OVERRIDE, 0),
        ],
    )?;
    cx.write_fields(r::RLC_SAFE_MODE, &[(s::MESSAGE, 0), (s::CMD, 1)])
}

fn hqd_bit<B: Bus>(device: &Device<B>, pipe: u8, queue: u8) -> Result<u32, Error> {
    if pipe >= device.chip.mec_pipes || queue >= device.chip.mec_queues {
        return Err(Error::BadValue {
            what: "a compute queue (pipe * 256 + queue)",
            value: u64::from(pipe) << 8 | u64::from(queue),
            need: "a pipe and a queue that the MEC has",
        });
    }
    Ok(1 << (u32::from(pipe) * 8 + u32::from(queue)))
}

/// Stores a queue description at a VRAM offset and loads it into a hardware queue of MEC 1.
///
/// The description is in memory before the queue runs, since the MEC saves the queue there.
/// The memory of the ring's read and write pointers must be zero, all 8 bytes of each.
pub fn activate<B: Bus>(
    device: &mut Device<B>,
    _: Ready,
    pipe: u8,
    queue: u8,
    mqd: &Mqd,
    mqd_at: u64,
) -> Result<(), Error> {
    let bit = hqd_bit(device, pipe, queue)?;
    if device.queues.compute & bit != 0 {
        return Err(Error::State("this compute queue is in use; take it down first"));
    }
    device.vram_write(mqd_at, mqd.as_bytes())?;
    device.flush_hdp()?;
    // In use from the first register on: who takes a half-made queue down must know of it.
    device.queues.compute |= bit;
    load(device, pipe, queue, mqd)?;
    let cntl = ra::CP_ME1_PIPE_INT_CNTL.get(usize::from(pipe)).copied().unwrap_or(r::CP_ME1_PIPE0_INT_CNTL);
    use f::cp_me1_pipe_int_cntl as i;
    device.update(cntl, &[(i::TIME_STAMP_INT_ENABLE, 1), (i::GENERIC0_INT_ENABLE, 1)])
}

/// The HQD registers follow each other like the words of an MQD from `CP_MQD_BASE_ADDR` on.
fn load<B: Bus>(device: &mut Device<B>, pipe: u8, queue: u8, mqd: &Mqd) -> Result<(), Error> {
    let first = device.regs.addr(r::CP_MQD_BASE_ADDR)?;
    let last = device.regs.addr(r::CP_HQD_PQ_WPTR_HI)?;
    select(device, Bank { me: 1, pipe, queue, vmid: 0 })?;
    for (addr, &word) in (first..=last).zip(mqd.hqd_words()) {
        device.write_at(addr, word)?;
    }
    device.write(r::CP_HQD_ACTIVE, 1)?;
    select(device, Bank::default())
}

/// Takes a hardware queue down: its waves are reset, and this awaits that the queue is idle.
pub async fn deactivate<B: Bus>(cx: &mut Cx<'_, B>, pipe: u8, queue: u8) -> Result<(), Error> {
    let bit = hqd_bit(cx, pipe, queue)?;
    select(cx, Bank { me: 1, pipe, queue, vmid: 0 })?;
    cx.write(r::CP_HQD_DEQUEUE_REQUEST, RESET_WAVES)?;
    cx.write(r::SPI_COMPUTE_QUEUE_RESET, 1)?;
    let active = cx.regs.mask(f::cp_hqd_active::ACTIVE)?;
    let outer = cx.attribute(Stage::Queue);
    let idle = cx.wait_reg(r::CP_HQD_ACTIVE, active, Until::Equal(0), DEQUEUE_US).await;
    cx.attribute(outer);
    select(cx, Bank::default())?;
    idle?;
    cx.queues.compute &= !bit;
    Ok(())
}

/// Takes down every queue in use, and queue 0 in any case, then switches GFXHUB's translation off:
/// page tables do not outlive the driver.
pub async fn fini<B: Bus>(cx: &mut Cx<'_, B>) -> Result<(), Error> {
    cx.enter(Stage::Gfx).await;
    let used = cx.queues.compute | 1;
    for pipe in 0..cx.chip.mec_pipes {
        for queue in 0..cx.chip.mec_queues {
            if used & hqd_bit(cx, pipe, queue)? != 0 {
                deactivate(cx, pipe, queue).await?;
            }
        }
    }
    translation_off(cx)
}

/// Switches GFXHUB's translation off.
pub(crate) fn translation_off<B: Bus>(device: &mut Device<B>) -> Result<(), Error> {
    let [context0, ..]: [Reg; 16] = ra::hub::VM_CONTEXT_CNTL.gc;
    device.write(context0, 0)?;
    device.hub_on(Hub::Gc, false);
    Ok(())
}

/// Finds the queues that are active, for a device that another process has used.
pub(crate) fn attach<B: Bus>(device: &mut Device<B>) -> Result<(), Error> {
    let mut on = 0;
    for pipe in 0..device.chip.mec_pipes {
        for queue in 0..device.chip.mec_queues {
            select(device, Bank { me: 1, pipe, queue, vmid: 0 })?;
            if device.get(f::cp_hqd_active::ACTIVE)? != 0 {
                on |= hqd_bit(device, pipe, queue)?;
            }
        }
    }
    device.queues.compute = on;
    select(device, Bank::default())
}

/// Resets the pipes of the first MEC and leaves it halted; [`init`] starts it again. Its queues are
/// gone afterwards (`gfx_v11_0_reset_compute_pipe`, gfx_v11_0.c).
pub(crate) async fn reset_mec<B: Bus>(cx: &mut Cx<'_, B>) -> Result<(), Error> {
    use f::cp_mec_rs64_cntl as m;
    let resets = [m::MEC_PIPE0_RESET, m::MEC_PIPE1_RESET, m::MEC_PIPE2_RESET, m::MEC_PIPE3_RESET];
    select(cx, Bank::default())?;
    let old = cx.read(r::CP_MEC_RS64_CNTL)?;
    let halted =
        cx.regs.merge(r::CP_MEC_RS64_CNTL, old, &[(m::MEC_HALT, 1), (m::MEC_INVALIDATE_ICACHE, 1)])?;
    for bit in [1, 0] {
        let value = cx.regs.merge(r::CP_MEC_RS64_CNTL, halted, &resets.map(|field| (field, bit)))?;
        cx.write(r::CP_MEC_RS64_CNTL, value)?;
        cx.delay(PIPE_RESET_US).await?;
    }
    // A request that the old queue never served must not meet the next one.
    for pipe in 0..cx.chip.mec_pipes {
        for queue in 0..cx.chip.mec_queues {
            select(cx, Bank { me: 1, pipe, queue, vmid: 0 })?;
            cx.write(r::CP_HQD_DEQUEUE_REQUEST, 0)?;
            cx.write(r::CP_HQD_ACTIVE, 0)?;
        }
    }
    select(cx, Bank::default())
}
