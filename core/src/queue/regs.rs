//! Addresses of the registers that packets name.

use crate::reg::{RegError, RegFile, r};

/// Registers that compute packets name, by absolute dword address.
///
/// A value with `None` means that the generation lacks the register.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueRegs {
    /// `COMPUTE_PGM_LO`, followed by `COMPUTE_PGM_HI`.
    pub pgm_lo: u32,
    /// `COMPUTE_PGM_RSRC1`, followed by `COMPUTE_PGM_RSRC2`.
    pub pgm_rsrc1: u32,
    /// `COMPUTE_PGM_RSRC3`.
    pub pgm_rsrc3: u32,
    /// `COMPUTE_TMPRING_SIZE`.
    pub tmpring_size: u32,
    /// `COMPUTE_DISPATCH_SCRATCH_BASE_LO`, followed by `_HI`.
    pub scratch_base_lo: Option<u32>,
    /// `CP_COHER_START_DELAY` (gfx10).
    pub coher_start_delay: Option<u32>,
    /// `COMPUTE_RESTART_X`, followed by `_Y` and `_Z`.
    pub restart_x: u32,
    /// `COMPUTE_STATIC_THREAD_MGMT_SE0`, followed by that of SE1.
    pub thread_mgmt_se0: u32,
    /// `COMPUTE_STATIC_THREAD_MGMT_SE2`, followed by that of SE3.
    pub thread_mgmt_se2: u32,
    /// `COMPUTE_STATIC_THREAD_MGMT_SE4`, followed by those of SE5 to SE7 (gfx11 and later).
    pub thread_mgmt_se4: Option<u32>,
    /// `COMPUTE_USER_DATA_0`, followed by those up to 15.
    pub user_data_0: u32,
    /// `COMPUTE_RESOURCE_LIMITS`.
    pub resource_limits: u32,
    /// `COMPUTE_START_X`, followed by Y, Z, `NUM_THREAD_X`, Y, Z and two pipeline statistics switches.
    pub start_x: u32,
    /// `COMPUTE_TG_CHUNK_SIZE` (multi-XCC).
    pub tg_chunk_size: Option<u32>,
    /// `COMPUTE_CURRENT_LOGIC_XCC_ID` (multi-XCC).
    pub current_logic_xcc_id: Option<u32>,
    /// `BIF_BX_PF_GPU_HDP_FLUSH_REQ` (NBIO 2.x), `BIF_BX_PF1_...` (7.11) or `BIF_BX_PF0_...`.
    pub hdp_flush_req: u32,
    /// The matching `..._GPU_HDP_FLUSH_DONE`.
    pub hdp_flush_done: u32,
    /// `SQ_THREAD_TRACE_USERDATA_2`: data that instruction traces carry.
    pub sqtt_userdata_2: Option<u32>,
}

impl QueueRegs {
    /// The addresses on a device. Its register file needs tables of GC and NBIO.
    ///
    /// On gfx9 the discovery table lists NBIO's base addresses without the first, which is 0: whoever
    /// makes the register file puts it there.
    pub fn new(regs: &RegFile) -> Result<QueueRegs, RegError> {
        Ok(QueueRegs {
            pgm_lo: regs.addr(r::COMPUTE_PGM_LO)?,
            pgm_rsrc1: regs.addr(r::COMPUTE_PGM_RSRC1)?,
            pgm_rsrc3: regs.addr(r::COMPUTE_PGM_RSRC3)?,
            tmpring_size: regs.addr(r::COMPUTE_TMPRING_SIZE)?,
            scratch_base_lo: regs.addr(r::COMPUTE_DISPATCH_SCRATCH_BASE_LO).ok(),
            coher_start_delay: regs.addr(r::CP_COHER_START_DELAY).ok(),
            restart_x: regs.addr(r::COMPUTE_RESTART_X)?,
            thread_mgmt_se0: regs.addr(r::COMPUTE_STATIC_THREAD_MGMT_SE0)?,
            thread_mgmt_se2: regs.addr(r::COMPUTE_STATIC_THREAD_MGMT_SE2)?,
            thread_mgmt_se4: regs.addr(r::COMPUTE_STATIC_THREAD_MGMT_SE4).ok(),
            user_data_0: regs.addr(r::COMPUTE_USER_DATA_0)?,
            resource_limits: regs.addr(r::COMPUTE_RESOURCE_LIMITS)?,
            start_x: regs.addr(r::COMPUTE_START_X)?,
            tg_chunk_size: regs.addr(r::COMPUTE_TG_CHUNK_SIZE).ok(),
            current_logic_xcc_id: regs.addr(r::COMPUTE_CURRENT_LOGIC_XCC_ID).ok(),
            hdp_flush_req: regs.addr(r::GPU_HDP_FLUSH_REQ)?,
            hdp_flush_done: regs.addr(r::GPU_HDP_FLUSH_DONE)?,
            sqtt_userdata_2: regs.addr(r::SQ_THREAD_TRACE_USERDATA_2).ok(),
        })
    }
}
