//! Addresses of the registers that packets name.

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
    /// `COMPUTE_CURRENT_LOGIC_XCC_ID` (multi-XCC; the headers lack it: offset 0xe25 of GC base 0).
    pub current_logic_xcc_id: Option<u32>,
    /// `BIF_BX_PF*_GPU_HDP_FLUSH_REQ` of the bus interface.
    pub hdp_flush_req: u32,
    /// `BIF_BX_PF*_GPU_HDP_FLUSH_DONE`.
    pub hdp_flush_done: u32,
    /// `SQ_THREAD_TRACE_USERDATA_2`: data that instruction traces carry.
    pub sqtt_userdata_2: Option<u32>,
}

/// Offset of `COMPUTE_CURRENT_LOGIC_XCC_ID` from GC's first base address. The Linux headers do not
/// define it; ROCm's runtime and the reference use this value on gfx942 and gfx950.
pub const CURRENT_LOGIC_XCC_ID_OFFSET: u32 = 0xe25;

/// Dword offset of `BIF_BX_PF*_GPU_HDP_FLUSH_REQ` from NBIO base address 2; `..._DONE` follows it.
/// The same in every version's header; only the name differs: `BIF_BX_PF_` in NBIO 2.3,
/// `BIF_BX_PF1_` in 7.11, `BIF_BX_PF0_` elsewhere.
pub const HDP_FLUSH_REQ_OFFSET: u32 = 0x106;
