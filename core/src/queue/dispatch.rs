//! Launching kernels: the registers a dispatch needs, in PM4.

use crate::queue::pm4::op::{event, opcode};
use crate::queue::pm4::{Caches, Pm4, Release};
use crate::queue::scratch::Scratch;
use crate::queue::sqtt::Marker;
use crate::queue::{QueueError, lo_hi};

/// The most user SGPRs a dispatch can set (`COMPUTE_USER_DATA_0` to `_15`).
pub const MAX_USER_SGPRS: usize = 16;

/// The largest number of work-items in one workgroup.
pub const MAX_WORKGROUP: u32 = 1024;

/// Work-items: how many workgroups, and how large they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Launch {
    /// Workgroups in x, y, z.
    pub grid: [u32; 3],
    /// Work-items of a workgroup in x, y, z.
    pub block: [u32; 3],
}

impl Launch {
    /// Checks that no dimension is 0 and a workgroup has at most [`MAX_WORKGROUP`] work-items.
    pub fn check(&self) -> Result<(), QueueError> {
        let zero = |what| QueueError::BadLaunch { what, value: 0, max: u32::MAX as u64 };
        if self.grid.contains(&0) {
            return Err(zero("a grid dimension of"));
        }
        if self.block.contains(&0) {
            return Err(zero("a block dimension of"));
        }
        let items = self.block.iter().fold(1u64, |n, d| n.saturating_mul(*d as u64));
        if items > MAX_WORKGROUP as u64 {
            return Err(QueueError::BadLaunch {
                what: "a block of work-items:",
                value: items,
                max: MAX_WORKGROUP as u64,
            });
        }
        for (g, b) in self.grid.iter().zip(self.block) {
            let items = *g as u64 * b as u64;
            if items > u32::MAX as u64 {
                return Err(QueueError::BadLaunch {
                    what: "work-items in one dimension:",
                    value: items,
                    max: u32::MAX as u64,
                });
            }
        }
        Ok(())
    }

    /// Work-items in x, y, z.
    pub fn global(&self) -> [u32; 3] {
        let mut out = self.grid;
        for (o, b) in out.iter_mut().zip(self.block) {
            *o = o.saturating_mul(b);
        }
        out
    }
}

/// A kernel ready to be dispatched: where it is and what its registers hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KernelRegs {
    /// Address of the first instruction; a multiple of 256.
    pub entry: u64,
    /// `COMPUTE_PGM_RSRC1`.
    pub rsrc1: u32,
    /// `COMPUTE_PGM_RSRC2`, with the LDS size.
    pub rsrc2: u32,
    /// `COMPUTE_PGM_RSRC3`.
    pub rsrc3: u32,
    /// Waves of 32 work-items (gfx10 and later).
    pub wave32: bool,
}

/// Scratch memory of a queue, as a dispatch uses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScratchMem {
    /// GPU address of the memory of all XCCs; a multiple of 256.
    pub va: u64,
    /// Its size in bytes, all XCCs together.
    pub size: u64,
    /// Value of `COMPUTE_TMPRING_SIZE`.
    pub tmpring_size: u32,
}

impl ScratchMem {
    /// Scratch memory at `va`.
    pub fn new(va: u64, scratch: &Scratch) -> Self {
        ScratchMem { va, size: scratch.size, tmpring_size: scratch.tmpring_size }
    }

    /// The buffer descriptor that kernels without architected flat scratch get in four SGPRs:
    /// swizzle in word 1, `num_records` unlimited, and in word 3 the format bits
    /// (0x14 << 12: `DATA_FORMAT` 32, `ADD_TID_ENABLE` 1 << 23, `INDEX_STRIDE` 2 << 21, 2 << 28).
    pub fn descriptor(&self) -> [u32; 4] {
        let [lo, hi] = lo_hi(self.va);
        [lo, hi | 1 << 31, u32::MAX, 0x20c1_4000]
    }
}

/// Everything of one dispatch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dispatch<'a> {
    /// The kernel.
    pub kernel: KernelRegs,
    /// Grid and block.
    pub launch: Launch,
    /// The user SGPRs, in the order the kernel descriptor asks for
    /// (`crate::program::Kernel::user_sgprs`).
    pub user_sgprs: &'a [u32],
    /// Whether the scratch descriptor is among them (an error with several XCCs).
    pub scratch_in_sgprs: bool,
    /// Scratch memory.
    pub scratch: ScratchMem,
    /// What an instruction trace shall know of this dispatch, where tracing is on.
    pub marker: Option<Marker>,
    /// Compute units that may run it: bit masks for `COMPUTE_STATIC_THREAD_MGMT_SE0` to `SE7`.
    pub cu_masks: [u32; 8],
}

/// All compute units of all shader engines.
pub const ALL_CUS: [u32; 8] = [u32::MAX; 8];

/// `DISPATCH_INITIATOR`: `COMPUTE_SHADER_EN`, `FORCE_START_AT_000`, and `CS_W32_EN`.
const COMPUTE_SHADER_EN: u32 = 1 << 0;
const FORCE_START_AT_000: u32 = 1 << 2;
const CS_W32_EN: u32 = 1 << 15;

impl Pm4<'_, '_> {
    /// Launches a kernel and waits, in the engine, until its waves are done.
    ///
    /// Vector and scalar caches are invalidated before it. With several XCCs the caches are flushed
    /// and the XCCs meet after it.
    pub fn exec(&mut self, d: &Dispatch<'_>) -> Result<&mut Self, QueueError> {
        let config = self.config;
        let regs = &config.regs;
        let target = config.target;
        d.launch.check()?;
        if d.kernel.entry & 0xff != 0 {
            return Err(QueueError::Misaligned { what: "kernel entry", value: d.kernel.entry, align: 256 });
        }
        if d.scratch.va & 0xff != 0 {
            return Err(QueueError::Misaligned { what: "scratch memory", value: d.scratch.va, align: 256 });
        }
        if d.user_sgprs.len() > MAX_USER_SGPRS {
            return Err(QueueError::TooLarge {
                what: "number of user SGPRs",
                value: d.user_sgprs.len() as u64,
                max: MAX_USER_SGPRS as u64,
            });
        }
        let xccs = config.xcc_count.max(1);
        if xccs > 1 && d.scratch_in_sgprs {
            return Err(QueueError::ScratchSgprs);
        }

        self.acquire_mem(Caches::all().difference(Caches::GLI.union(Caches::GL2)), 0, u64::MAX)?;
        if let (true, Some(marker)) = (config.tracing, &d.marker) {
            self.sqtt_marker(marker)?;
        }
        self.set_regs(regs.pgm_lo, &lo_hi(d.kernel.entry >> 8))?;
        self.set_regs(regs.pgm_rsrc1, &[d.kernel.rsrc1, d.kernel.rsrc2])?;
        self.set_regs(regs.pgm_rsrc3, &[d.kernel.rsrc3])?;
        self.set_regs(regs.tmpring_size, &[d.scratch.tmpring_size])?;
        if target.has_architected_scratch() {
            let base =
                regs.scratch_base_lo.ok_or(QueueError::NoRegister("COMPUTE_DISPATCH_SCRATCH_BASE_LO"))?;
            let share = d.scratch.size / xccs as u64;
            for xcc in 0..xccs.min(8) {
                let va = d.scratch.va.wrapping_add(share.wrapping_mul(xcc as u64));
                self.pred_exec(1 << xcc, |q| q.set_regs(base, &lo_hi(va >> 8)).map(drop))?;
            }
        }
        if target.major == 10 {
            // Value as the reference and ROCm's runtime write it on gfx10.
            let delay = regs.coher_start_delay.ok_or(QueueError::NoRegister("CP_COHER_START_DELAY"))?;
            self.set_regs(delay, &[0x20])?;
        }
        self.set_regs(regs.restart_x, &[0, 0, 0])?;
        let [m0, m1, m2, m3, m4, m5, m6, m7] = d.cu_masks;
        self.set_regs(regs.thread_mgmt_se0, &[m0, m1])?;
        self.set_regs(regs.thread_mgmt_se2, &[m2, m3])?;
        if target.major >= 11 {
            let se4 = regs.thread_mgmt_se4.ok_or(QueueError::NoRegister("COMPUTE_STATIC_THREAD_MGMT_SE4"))?;
            self.set_regs(se4, &[m4, m5, m6, m7])?;
        }
        if !d.user_sgprs.is_empty() {
            self.set_regs(regs.user_data_0, d.user_sgprs)?;
        }
        self.set_regs(regs.resource_limits, &[0])?;
        let [bx, by, bz] = d.launch.block;
        self.set_regs(regs.start_x, &[0, 0, 0, bx, by, bz, 0, 0])?;

        let w32 = if target.major >= 10 && d.kernel.wave32 { CS_W32_EN } else { 0 };
        let [gx, gy, gz] = d.launch.grid;
        let initiator = COMPUTE_SHADER_EN | FORCE_START_AT_000 | w32;
        self.packet(opcode::DISPATCH_DIRECT, &[gx, gy, gz, initiator])?;
        if config.tracing {
            self.event_write(event::THREAD_TRACE_MARKER, event::INDEX_OTHER)?;
        }
        self.event_write(event::CS_PARTIAL_FLUSH, event::INDEX_PARTIAL_FLUSH)?;
        if xccs > 1 {
            self.release_mem(Release { flush: true, ..Release::default() })?;
            self.acquire_mem(Caches::all().difference(Caches::GLI), 0, u64::MAX)?;
            self.xcc_barrier()?;
        }
        Ok(self)
    }
}
