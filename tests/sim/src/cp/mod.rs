//! The compute command processor: a queue of PM4 packets and the dispatcher behind it.
//!
//! Packet layouts are from `nvd.h` and `soc15d.h`. Caches are not modelled: every access of every
//! engine goes through the environment, so that cache control packets are checked and then do
//! nothing.

mod atomic;
mod dispatch;
mod exec;
mod group;
mod packet;

pub(crate) use atomic::{apply, atomic, atomic_is_64, atomic_is_cmpswap};

use crate::env::{Access, Env, Hub, Interrupt, Kind, MemFault, Progress};
use crate::isa::Target;
use crate::violation::{Rule, Violation};
use dispatch::Dispatch;

/// What a compute queue is made of, as its HQD says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ComputeQueueConfig {
    /// Instruction set of the shader cores.
    pub target: Target,
    /// Micro engine: 1 for the first MEC.
    pub me: u8,
    /// Pipe.
    pub pipe: u8,
    /// Queue.
    pub queue: u8,
    /// Virtual memory context of ring, packets and shaders.
    pub vmid: u8,
    /// Ring base address.
    pub ring_va: u64,
    /// Ring size in dwords, a power of two.
    pub ring_dwords: u64,
    /// Read pointer in dwords at the start.
    pub rptr: u64,
    /// Write pointer in dwords at the start.
    pub wptr: u64,
    /// Where the read pointer is reported.
    pub rptr_report_va: u64,
    /// End-of-pipe buffer.
    pub eop_va: u64,
    /// Its size in dwords.
    pub eop_dwords: u32,
}

/// A stream of packets: an indirect buffer being executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ib {
    va: u64,
    dwords: u32,
    at: u32,
    vmid: u8,
}

/// One compute queue.
#[derive(Debug)]
pub struct ComputeQueue {
    config: ComputeQueueConfig,
    rptr: u64,
    wptr: u64,
    ib: Vec<Ib>,
    dispatch: Option<Dispatch>,
    halted: bool,
    /// Half-done state of the packet at the read pointer (a request that was written).
    begun: bool,
}

/// Why a packet did not complete.
#[derive(Debug)]
enum Stop {
    /// Not yet: try the same packet again.
    Wait,
    /// Refused: rule and reason.
    Bad(Rule, String),
    /// A memory fault, already reported by the environment.
    Fault,
}

impl From<MemFault> for Stop {
    fn from(_: MemFault) -> Self {
        Stop::Fault
    }
}

/// Indirect buffers may be nested once: an IB2 from an IB1.
const MAX_NESTING: usize = 2;
/// UTCL2 client of the compute command processor (`gfxhub_client_ids_v3_0` in `gfxhub_v3_0.c`).
const CLIENT_CPC: u16 = 5;
/// `SOC21_IH_CLIENTID_GRBM_CP`.
const IH_CLIENT_GRBM_CP: u8 = 0x14;
/// `GFX_11_0_0__SRCID__CP_EOP_INTERRUPT`.
const SOURCE_CP_EOP: u8 = 181;
/// `GFX_11_0_0__SRCID__CP_BAD_OPCODE_ERROR`.
const SOURCE_CP_BAD_OPCODE: u8 = 183;
/// `GFX_11_0_0__SRCID__SQ_INTERRUPT_ID`.
const SOURCE_SQ: u8 = 239;
/// An illegal instruction: error type 1 in bits 24:21, encoding 2 (error) in bits 39:38, of the first
/// wave of the first compute unit (`kfd_int_process_v11.c`).
const SQ_ILLEGAL_INST: [u32; 2] = [1 << 21, 2 << 6];

/// Whether a ring lies within the 48 bits of a virtual address.
pub(crate) fn ring_fits(va: u64, bytes: u64) -> bool {
    va.checked_add(bytes).is_some_and(|end| end <= 1 << 48)
}

impl ComputeQueue {
    /// A queue as configured; nothing is fetched yet.
    pub fn new(config: ComputeQueueConfig) -> Self {
        ComputeQueue {
            rptr: config.rptr,
            wptr: config.wptr,
            config,
            ib: Vec::new(),
            dispatch: None,
            halted: false,
            begun: false,
        }
    }

    /// The configuration.
    pub fn config(&self) -> &ComputeQueueConfig {
        &self.config
    }

    /// Read pointer in dwords.
    pub fn rptr(&self) -> u64 {
        self.rptr
    }

    /// Write pointer in dwords.
    pub fn wptr(&self) -> u64 {
        self.wptr
    }

    /// True after a fault, an illegal instruction or a malformed packet.
    pub fn is_halted(&self) -> bool {
        self.halted
    }

    /// True while waves of a dispatch run (or hang).
    pub fn has_waves(&self) -> bool {
        self.dispatch.is_some()
    }

    /// A doorbell: a new write pointer in dwords. More than a ring ahead is an overrun.
    pub fn set_wptr(&mut self, env: &mut dyn Env, wptr: u64) {
        let pending = wptr.wrapping_sub(self.rptr);
        if pending > self.config.ring_dwords {
            env.violation(Violation::new(
                Rule::RingOverrun,
                format!(
                    "{}: write pointer {wptr:#x} with read pointer {:#x} in a ring of {:#x} dwords",
                    self.name(),
                    self.rptr,
                    self.config.ring_dwords
                ),
            ));
        }
        self.wptr = wptr;
    }

    fn name(&self) -> String {
        let c = &self.config;
        format!("compute queue {}.{}.{}", c.me, c.pipe, c.queue)
    }

    /// Executes packets and waves. `budget` counts wave instructions (a packet costs 16), so that an
    /// endless loop in a kernel gives [`Progress::Busy`] for ever instead of hanging the simulator.
    pub fn run(&mut self, env: &mut dyn Env, budget: u32) -> Progress {
        if self.halted {
            return Progress::Halted;
        }
        if let Err(why) = self.check_setup() {
            env.violation(Violation::new(Rule::QueueSetup, format!("{}: {why}", self.name())));
            self.halted = true;
            return Progress::Halted;
        }
        let mut left = budget;
        while left > 0 {
            let result = if let Some(dispatch) = &mut self.dispatch {
                let before = left;
                match dispatch.run(env, &mut left) {
                    Ok(true) => {
                        self.dispatch = None;
                        Ok(())
                    }
                    Ok(false) if left == 0 => return Progress::Busy,
                    Ok(false) if left == before => {
                        // Every wave is stopped for good: the queue hangs, as on hardware.
                        self.halted = true;
                        return Progress::Halted;
                    }
                    Ok(false) => Ok(()),
                    Err(stop) => Err(stop),
                }
            } else {
                if self.ib.is_empty() && self.rptr == self.wptr {
                    return Progress::Idle;
                }
                left = left.saturating_sub(16);
                if self.ib.is_empty() {
                    env.executing(self.rptr);
                }
                self.step(env)
            };
            match result {
                Ok(()) => {}
                Err(Stop::Wait) => return Progress::Waiting,
                Err(Stop::Fault) => {
                    self.halted = true;
                    return Progress::Halted;
                }
                Err(Stop::Bad(rule, why)) => {
                    env.violation(Violation::new(rule, format!("{}: {why}", self.name())));
                    match rule {
                        Rule::IllegalInstruction => self.interrupt(env, SOURCE_SQ, SQ_ILLEGAL_INST),
                        _ => self.interrupt(env, SOURCE_CP_BAD_OPCODE, [0; 2]),
                    }
                    self.halted = true;
                    return Progress::Halted;
                }
            }
        }
        if self.dispatch.is_none() && self.ib.is_empty() && self.rptr == self.wptr {
            Progress::Idle
        } else {
            Progress::Busy
        }
    }

    fn check_setup(&self) -> Result<(), String> {
        let c = &self.config;
        if !c.ring_dwords.is_power_of_two() || c.ring_dwords < 64 {
            return Err(format!("ring of {:#x} dwords is no power of two", c.ring_dwords));
        }
        if !ring_fits(c.ring_va, c.ring_dwords.saturating_mul(4)) {
            return Err(format!(
                "ring of {:#x} dwords at {:#x} reaches past 48 bits of address",
                c.ring_dwords, c.ring_va
            ));
        }
        if c.ring_va & 0xff != 0 {
            return Err(format!("ring base {:#x} is not 256-byte aligned", c.ring_va));
        }
        if c.vmid > 15 {
            return Err(format!("VMID {}", c.vmid));
        }
        if c.eop_va & 0xff != 0 {
            return Err(format!("end-of-pipe buffer {:#x} is not 256-byte aligned", c.eop_va));
        }
        Ok(())
    }

    fn vmid(&self) -> u8 {
        self.ib.last().map_or(self.config.vmid, |ib| ib.vmid)
    }

    fn access(&self, kind: Kind) -> Access {
        Access { hub: Hub::Gc, vmid: self.vmid(), client: CLIENT_CPC, kind }
    }

    fn interrupt(&self, env: &mut dyn Env, source: u8, [context, context1]: [u32; 2]) {
        let c = &self.config;
        // ring_id: pipe in bits 1:0, me in 3:2, queue in 6:4 (`gfx_v11_0_eop_irq`).
        env.interrupt(Interrupt {
            client: IH_CLIENT_GRBM_CP,
            source,
            ring: c.pipe & 3 | (c.me & 3) << 2 | (c.queue & 7) << 4,
            vmid: self.vmid(),
            data: [context, context1, 0, 0],
            ..Interrupt::default()
        });
    }

    fn position(&self) -> String {
        match self.ib.last() {
            Some(ib) => format!("dword {} of the indirect buffer at {:#x}", ib.at, ib.va),
            None => format!("ring dword {:#x}", self.rptr),
        }
    }

    fn available(&self) -> u64 {
        match self.ib.last() {
            Some(ib) => u64::from(ib.dwords - ib.at),
            None => self.wptr.wrapping_sub(self.rptr),
        }
    }

    fn fetch(&self, env: &mut dyn Env, n: u64) -> Result<u32, Stop> {
        if n >= self.available() {
            return Err(Stop::Bad(
                Rule::MalformedPacket,
                format!("packet at {} is cut off: {} dwords are there", self.position(), self.available()),
            ));
        }
        let va = match self.ib.last() {
            Some(ib) => ib.va.wrapping_add(4 * (u64::from(ib.at) + n)),
            None => self.config.ring_va + 4 * (self.rptr.wrapping_add(n) & (self.config.ring_dwords - 1)),
        };
        let mut b = [0; 4];
        env.read(self.access(Kind::Read), va, &mut b)?;
        Ok(u32::from_le_bytes(b))
    }

    fn advance(&mut self, env: &mut dyn Env, dwords: u64) -> Result<(), Stop> {
        self.begun = false;
        if let Some(ib) = self.ib.last_mut() {
            ib.at += dwords as u32;
        } else {
            self.rptr = self.rptr.wrapping_add(dwords);
        }
        Ok(self.report(env)?)
    }

    /// Leaves finished indirect buffers and reports the ring's read pointer.
    fn report(&mut self, env: &mut dyn Env) -> Result<(), MemFault> {
        let nested = !self.ib.is_empty();
        while self.ib.last().is_some_and(|ib| ib.at >= ib.dwords) {
            self.ib.pop();
        }
        if nested || self.config.rptr_report_va == 0 {
            return Ok(());
        }
        let who = Access { vmid: self.config.vmid, ..self.access(Kind::Write) };
        // A 64-bit count of dwords that does not wrap, as the write pointer is.
        env.write(who, self.config.rptr_report_va, &self.rptr.to_le_bytes())
    }
}
