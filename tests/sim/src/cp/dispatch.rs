//! The dispatcher: from COMPUTE_* registers to running workgroups.
//!
//! Workgroups run a few at a time and their waves in turns, so that waves which wait for each other
//! make progress. Packets behind a dispatch wait for its end: every dispatch is complete before the
//! next packet is looked at.

use super::group::Group;
use super::{ComputeQueueConfig, Stop};
use crate::env::{Access, Env, Hub, Kind};
use crate::isa::{Program, ProgramError, Target};
use crate::violation::{Rule, Violation};

/// Workgroups that run at the same time.
const CONCURRENT: usize = 4;
/// UTCL2 clients (`gfxhub_client_ids_v3_0`): texture cache, instruction cache.
const CLIENT_TCP: u16 = 8;
const CLIENT_SQC_INST: u16 = 9;
/// Most work-items of a workgroup.
const MAX_ITEMS: u32 = 1024;
/// LDS of a workgroup at most, in bytes.
const MAX_LDS: u32 = 64 << 10;
/// Bits of COMPUTE_DISPATCH_INITIATOR that mean something (gfx11 header).
const INITIATOR_BITS: u32 = 0x3_fc7f;

/// What every wave of a dispatch is started with.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    pub(super) target: Target,
    pub(super) entry: u64,
    pub(super) lanes: u32,
    pub(super) block: [u32; 3],
    pub(super) user_data: Vec<u32>,
    /// Workgroup ids and size that follow the user data.
    pub(super) group_ids: [bool; 3],
    pub(super) group_size: bool,
    /// Components of the work-item id beyond X: 0 to 2.
    pub(super) item_ids: u32,
    pub(super) lds_bytes: u32,
    pub(super) mode: u32,
    pub(super) scratch_base: u64,
    pub(super) scratch_wave_bytes: u32,
    pub(super) scratch_waves: u32,
    pub(super) apertures: [u32; 2],
    pub(super) who: Access,
}

impl Launch {
    pub(super) fn items(&self) -> u32 {
        self.block.iter().product()
    }

    pub(super) fn waves(&self) -> u32 {
        self.items().div_ceil(self.lanes)
    }
}

/// A dispatch that runs.
#[derive(Debug)]
pub(super) struct Dispatch {
    launch: Launch,
    program: Program,
    start: [u32; 3],
    dims: [u32; 3],
    next: u64,
    total: u64,
    groups: Vec<Option<Group>>,
    strayed: bool,
}

fn setup<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Bad(Rule::QueueSetup, why.into()))
}

/// The word at an address, read as the instruction cache does, a line at a time.
pub(super) struct Fetch<'a> {
    env: &'a mut dyn Env,
    who: Access,
    line: Option<(u64, [u8; 64])>,
}

impl<'a> Fetch<'a> {
    pub(super) fn new(env: &'a mut dyn Env, who: Access) -> Self {
        Fetch { env, who: Access { client: CLIENT_SQC_INST, kind: Kind::Execute, ..who }, line: None }
    }

    pub(super) fn word(&mut self, va: u64) -> Option<u32> {
        let base = va & !63;
        if self.line.is_none_or(|(at, _)| at != base) {
            let mut bytes = [0; 64];
            self.env.read(self.who, base, &mut bytes).ok()?;
            self.line = Some((base, bytes));
        }
        let (_, bytes) = self.line?;
        let at = (va & 63) as usize;
        let b = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }
}

impl Dispatch {
    /// Starts a dispatch; `None` if it has no workgroups.
    pub(super) fn new(
        env: &mut dyn Env,
        config: &ComputeQueueConfig,
        vmid: u8,
        dims: [u32; 3],
        initiator: u32,
    ) -> Result<Option<Dispatch>, Stop> {
        if initiator & !INITIATOR_BITS != 0 {
            return Err(Stop::Bad(
                Rule::MalformedPacket,
                format!("dispatch initiator {initiator:#x} has reserved bits set"),
            ));
        }
        if initiator & 1 == 0 {
            return setup("dispatch with COMPUTE_SHADER_EN clear starts nothing");
        }
        if config.target == Target::Gfx9 {
            return setup("gfx9 shaders are not simulated");
        }
        let mut regs = Regs { env };
        let (launch, vgprs) = regs.launch(config, vmid, initiator)?;
        let mut start = [0; 3];
        // FORCE_START_AT_000.
        if initiator & 4 == 0 {
            start = [regs.get("COMPUTE_START_X"), regs.get("COMPUTE_START_Y"), regs.get("COMPUTE_START_Z")];
        }
        let mut dims = dims;
        // USE_THREAD_DIMENSIONS: sizes are in work-items.
        if initiator & 1 << 5 != 0 {
            for n in 0..3 {
                if !dims[n].is_multiple_of(launch.block[n]) {
                    return setup(format!(
                        "dispatch of {dims:?} work-items is no multiple of the workgroup {:?}",
                        launch.block
                    ));
                }
                dims[n] /= launch.block[n];
            }
        }
        let mut total = 1u64;
        for n in 0..3 {
            let count = dims[n].saturating_sub(start[n]);
            total = total.saturating_mul(count.into());
        }
        if total == 0 {
            return Ok(None);
        }
        let mut fetch = Fetch::new(regs.env, launch.who);
        let program = Program::new(launch.target, launch.entry, vgprs, &mut |va| fetch.word(va))
            .map_err(|e| program_error(&e))?;
        let slots = if launch.scratch_wave_bytes == 0 {
            CONCURRENT
        } else {
            CONCURRENT.min((launch.scratch_waves / launch.waves()) as usize)
        };
        if slots == 0 {
            return setup(format!(
                "a workgroup of {} waves does not fit into scratch for {} (COMPUTE_TMPRING_SIZE)",
                launch.waves(),
                launch.scratch_waves
            ));
        }
        Ok(Some(Dispatch {
            launch,
            program,
            start,
            dims,
            next: 0,
            total,
            groups: (0..slots).map(|_| None).collect(),
            strayed: false,
        }))
    }

    /// The id of the `n`-th workgroup.
    fn group_id(&self, n: u64) -> [u32; 3] {
        let span = |k: usize| u64::from(self.dims[k] - self.start[k]);
        [
            self.start[0] + (n % span(0)) as u32,
            self.start[1] + (n / span(0) % span(1)) as u32,
            self.start[2] + (n / span(0) / span(1)) as u32,
        ]
    }

    /// Runs waves for at most `left` instructions, which it counts down; true when all have ended.
    /// False with instructions left over: what is not ended never will be.
    pub(super) fn run(&mut self, env: &mut dyn Env, left: &mut u32) -> Result<bool, Stop> {
        loop {
            let mut progress = false;
            for slot in 0..self.groups.len() {
                if self.groups[slot].is_none() && self.next < self.total {
                    let id = self.group_id(self.next);
                    self.next += 1;
                    self.groups[slot] = Some(Group::new(&self.launch, slot as u32, id));
                }
                let Some(group) = &mut self.groups[slot] else { continue };
                let before = *left;
                let strayed =
                    group.run(env, &self.launch, &mut self.program, left).map_err(|e| program_error(&e))?;
                progress |= *left != before;
                if let (Some(what), false) = (strayed, self.strayed) {
                    self.strayed = true;
                    env.violation(Violation::new(Rule::Other, what));
                }
                if group.is_done() {
                    self.groups[slot] = None;
                    progress = true;
                }
                if *left == 0 {
                    break;
                }
            }
            if self.next == self.total && self.groups.iter().all(Option::is_none) {
                return Ok(true);
            }
            if *left == 0 || !progress {
                return Ok(false);
            }
        }
    }
}

fn program_error(e: &ProgramError) -> Stop {
    match e {
        ProgramError::Fault { .. } => Stop::Fault,
        e => Stop::Bad(Rule::IllegalInstruction, e.to_string()),
    }
}

/// Compute registers by name.
struct Regs<'a> {
    env: &'a mut dyn Env,
}

impl Regs<'_> {
    /// A register's value; zero if this GPU has none of the name.
    fn get(&mut self, name: &str) -> u32 {
        self.env.reg_addr(name).map_or(0, |addr| self.env.reg_read(addr))
    }

    /// Bits 47:8 of an address; the second register has eight bits (`gc_11_0_0_sh_mask.h`).
    fn address(&mut self, low: &str, high: &str) -> Result<u64, Stop> {
        let (lo, hi) = (self.get(low), self.get(high));
        if hi > 0xff {
            return setup(format!("{high} is {hi:#x}: an address has 48 bits"));
        }
        Ok((u64::from(hi) << 32 | u64::from(lo)) << 8)
    }

    fn launch(
        &mut self,
        config: &ComputeQueueConfig,
        vmid: u8,
        initiator: u32,
    ) -> Result<(Launch, u16), Stop> {
        let target = config.target;
        let entry = self.address("COMPUTE_PGM_LO", "COMPUTE_PGM_HI")?;
        if entry == 0 {
            return setup("COMPUTE_PGM_LO and _HI are zero");
        }
        let [rsrc1, rsrc2] = ["COMPUTE_PGM_RSRC1", "COMPUTE_PGM_RSRC2"].map(|r| self.get(r));
        let lanes = if initiator & 1 << 15 != 0 { 32 } else { 64 };
        // Blocks of 8 registers in wave32, of 4 in wave64.
        let vgprs = ((rsrc1 & 0x3f) + 1) * if lanes == 32 { 8 } else { 4 };
        if vgprs > 256 {
            return setup(format!("COMPUTE_PGM_RSRC1 {rsrc1:#x} allocates {vgprs} vector registers"));
        }
        // Drivers of gfx11 run waves privileged, against a fault of their context switch (CWSR).
        if rsrc1 & 1 << 20 != 0 && target != Target::Gfx11 {
            return setup("COMPUTE_PGM_RSRC1.PRIV is set");
        }
        let float_mode = rsrc1 >> 12 & 0xff;
        if float_mode & 0xf != 0 {
            return setup(format!(
                "rounding mode {:#x} is not modelled: only to nearest even",
                float_mode & 0xf
            ));
        }
        let count = (rsrc2 >> 1 & 0x1f) as usize;
        if count > 16 {
            return setup(format!("COMPUTE_PGM_RSRC2 asks for {count} user registers of 16"));
        }
        let user_data = (0..count).map(|n| self.get(&format!("COMPUTE_USER_DATA_{n}"))).collect();
        // In blocks of 128 dwords.
        let lds_bytes = (rsrc2 >> 15 & 0x1ff) * 512;
        if lds_bytes > MAX_LDS {
            return setup(format!("COMPUTE_PGM_RSRC2 asks for {lds_bytes:#x} bytes of LDS"));
        }
        let block = ["COMPUTE_NUM_THREAD_X", "COMPUTE_NUM_THREAD_Y", "COMPUTE_NUM_THREAD_Z"]
            .map(|r| self.get(r) & 0xffff);
        let items = block.iter().try_fold(1u32, |n, b| n.checked_mul(*b)).unwrap_or(0);
        if items == 0 || items > MAX_ITEMS {
            return setup(format!("workgroup of {block:?} work-items: 1 to {MAX_ITEMS} are possible"));
        }
        let enabled = (0..8).any(|n| self.get(&format!("COMPUTE_STATIC_THREAD_MGMT_SE{n}")) != 0);
        if !enabled {
            return setup("no compute unit is enabled in COMPUTE_STATIC_THREAD_MGMT_SE*");
        }
        let mut launch = Launch {
            target,
            entry,
            lanes,
            block,
            user_data,
            group_ids: [7, 8, 9].map(|bit| rsrc2 >> bit & 1 != 0),
            group_size: rsrc2 >> 10 & 1 != 0,
            item_ids: rsrc2 >> 11 & 3,
            lds_bytes,
            // gfx12 has no DX10_CLAMP and IEEE bits any more: both are on.
            mode: if target >= Target::Gfx12 {
                float_mode | 0x300
            } else {
                float_mode | (rsrc1 >> 21 & 1) << 8 | (rsrc1 >> 23 & 1) << 9
            },
            scratch_base: 0,
            scratch_wave_bytes: 0,
            scratch_waves: 0,
            apertures: [0; 2],
            who: Access { hub: Hub::Gc, vmid, client: CLIENT_TCP, kind: Kind::Read },
        };
        let bases = self.get("SH_MEM_BASES");
        launch.apertures = [bases & 0xffff_0000, bases << 16];
        if rsrc2 & 1 != 0 {
            self.scratch(&mut launch)?;
        }
        Ok((launch, vgprs as u16))
    }

    /// Private memory: base, and waves and bytes of each from COMPUTE_TMPRING_SIZE.
    fn scratch(&mut self, launch: &mut Launch) -> Result<(), Stop> {
        let ring = self.get("COMPUTE_TMPRING_SIZE");
        launch.scratch_base =
            self.address("COMPUTE_DISPATCH_SCRATCH_BASE_LO", "COMPUTE_DISPATCH_SCRATCH_BASE_HI")?;
        let (waves_low, waves_bits) = self.env.field("COMPUTE_TMPRING_SIZE", "WAVES").unwrap_or((0, 12));
        let (size_low, size_bits) = self.env.field("COMPUTE_TMPRING_SIZE", "WAVESIZE").unwrap_or((12, 15));
        let field = |low: u8, bits: u8| ring >> low & ((1u64 << bits) - 1) as u32;
        launch.scratch_waves = field(waves_low, waves_bits);
        // In units of 64 dwords from gfx11 on.
        launch.scratch_wave_bytes = field(size_low, size_bits) * 256;
        // A kernel may ask for scratch and need none (one whose callees are unknown does): without a
        // size it has none, and an access shows. A size without a place is a mistake.
        if launch.scratch_wave_bytes != 0 && (launch.scratch_base == 0 || launch.scratch_waves == 0) {
            return setup(format!(
                "scratch of {:#x} bytes a wave at {:#x}, COMPUTE_TMPRING_SIZE {ring:#x}",
                launch.scratch_wave_bytes, launch.scratch_base
            ));
        }
        Ok(())
    }
}
