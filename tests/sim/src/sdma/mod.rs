//! The system DMA engine: a queue of packets, each checked bit by bit against the layouts in
//! `sdma_v6_0_0_pkt_open.h`, `navi10_sdma_pkt_open.h` and `vega10_sdma_pkt_open.h`.

mod exec;
mod layout;

use crate::env::{Access, Env, Hub, Interrupt, Kind, MemFault, Progress};
use crate::violation::{Rule, Violation};

/// Generation of the engine; decides packet fields, size limits and the interrupt's client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SdmaVersion {
    /// SDMA 4.4.x (gfx90a, gfx942).
    V4_4,
    /// SDMA 5.2 (gfx103x).
    V5_2,
    /// SDMA 6.x (gfx11).
    V6_0,
    /// SDMA 7.x (gfx12).
    V7_0,
}

/// What a queue is made of, as its HQD or ring registers say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SdmaQueueConfig {
    /// Generation of the engine.
    pub version: SdmaVersion,
    /// Instance of the engine (SDMA0, SDMA1).
    pub instance: u8,
    /// Queue of the engine: 0 to 7.
    pub queue: u8,
    /// Ring base address.
    pub ring_va: u64,
    /// Ring size in bytes, a power of two.
    pub ring_bytes: u64,
    /// Read pointer in bytes at the start.
    pub rptr: u64,
    /// Write pointer in bytes at the start.
    pub wptr: u64,
    /// Where the read pointer is reported; `None` when write-back is off.
    pub rptr_report_va: Option<u64>,
    /// Virtual memory context of ring and packets.
    pub vmid: u8,
    /// True when the ring is privileged (indirect buffers may then choose their VMID, registers may
    /// be written).
    pub privileged: bool,
}

/// An indirect buffer being executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ib {
    va: u64,
    dwords: u32,
    at: u32,
    vmid: u8,
}

/// One SDMA queue.
#[derive(Clone, Debug)]
pub struct SdmaQueue {
    config: SdmaQueueConfig,
    rptr: u64,
    wptr: u64,
    ib: Option<Ib>,
    halted: bool,
    /// Retries that a bounded poll has used up.
    polls: u32,
    /// Bytes that a long copy or fill has done.
    done: u64,
}

/// Why a packet did not complete.
enum Stop {
    /// Not yet: try the same packet again.
    Wait,
    /// More of the same packet is to be done.
    Again,
    /// Refused.
    Bad(String),
    /// A memory fault, already reported by the environment.
    Fault,
}

impl From<MemFault> for Stop {
    fn from(_: MemFault) -> Self {
        Stop::Fault
    }
}

/// Bytes of a copy or fill done at a time.
const CHUNK: u64 = 64 << 10;
/// Longest packet kept in one piece besides data of a WRITE: a copy with many parameters.
const MAX_DWORDS: usize = 16;
/// UTCL2 client ids of SDMA0 and SDMA1 on GFXHUB (`gfxhub_client_ids_v3_0` in `gfxhub_v3_0.c`).
const CLIENT_SDMA0: u16 = 13;

impl SdmaQueue {
    /// A queue as configured; nothing is fetched yet.
    pub fn new(config: SdmaQueueConfig) -> Self {
        SdmaQueue { rptr: config.rptr, wptr: config.wptr, config, ib: None, halted: false, polls: 0, done: 0 }
    }

    /// The configuration.
    pub fn config(&self) -> &SdmaQueueConfig {
        &self.config
    }

    /// Read pointer in bytes.
    pub fn rptr(&self) -> u64 {
        self.rptr
    }

    /// Write pointer in bytes.
    pub fn wptr(&self) -> u64 {
        self.wptr
    }

    /// True after a fault or a malformed packet.
    pub fn is_halted(&self) -> bool {
        self.halted
    }

    /// A doorbell: a new write pointer in bytes. Pointers that cannot be are violations.
    pub fn set_wptr(&mut self, env: &mut dyn Env, wptr: u64) {
        let pending = wptr.wrapping_sub(self.rptr);
        if wptr & 3 != 0 || pending > self.config.ring_bytes {
            env.violation(Violation::new(
                Rule::RingOverrun,
                format!(
                    "{}: write pointer {wptr:#x} with read pointer {:#x} in a ring of {:#x} bytes",
                    self.name(),
                    self.rptr,
                    self.config.ring_bytes
                ),
            ));
            if wptr & 3 != 0 {
                self.halted = true;
            }
        }
        self.wptr = wptr;
    }

    /// Name for reports.
    fn name(&self) -> String {
        format!("SDMA{} queue {}", self.config.instance, self.config.queue)
    }

    /// Executes packets until `budget` of them are done (a long copy counts once per 64 KiB) or
    /// nothing more can be done.
    pub fn run(&mut self, env: &mut dyn Env, budget: u32) -> Progress {
        if self.halted {
            return Progress::Halted;
        }
        if let Err(why) = self.check_setup() {
            env.violation(Violation::new(Rule::QueueSetup, format!("{}: {why}", self.name())));
            self.halted = true;
            return Progress::Halted;
        }
        for _ in 0..budget {
            if self.ib.is_none() && self.rptr == self.wptr {
                return Progress::Idle;
            }
            if self.ib.is_none() {
                env.executing(self.rptr);
            }
            match self.step(env) {
                Ok(()) => {}
                Err(Stop::Wait) => return Progress::Waiting,
                Err(Stop::Again) => {}
                Err(Stop::Fault) => {
                    self.halted = true;
                    return Progress::Halted;
                }
                Err(Stop::Bad(why)) => {
                    env.violation(Violation::new(Rule::MalformedPacket, format!("{}: {why}", self.name())));
                    self.halted = true;
                    return Progress::Halted;
                }
            }
        }
        if self.ib.is_none() && self.rptr == self.wptr { Progress::Idle } else { Progress::Busy }
    }

    fn check_setup(&self) -> Result<(), String> {
        let c = &self.config;
        if !c.ring_bytes.is_power_of_two() || c.ring_bytes < 64 {
            return Err(format!("ring of {:#x} bytes is no power of two", c.ring_bytes));
        }
        if !crate::cp::ring_fits(c.ring_va, c.ring_bytes) {
            return Err(format!(
                "ring of {:#x} bytes at {:#x} reaches past 48 bits of address",
                c.ring_bytes, c.ring_va
            ));
        }
        if c.ring_va & 0xff != 0 {
            return Err(format!("ring base {:#x} is not 256-byte aligned", c.ring_va));
        }
        if c.vmid > 15 {
            return Err(format!("VMID {}", c.vmid));
        }
        Ok(())
    }

    fn access(&self, vmid: u8, kind: Kind) -> Access {
        let hub = if self.config.version == SdmaVersion::V4_4 { Hub::Mm } else { Hub::Gc };
        Access { hub, vmid, client: CLIENT_SDMA0 + u16::from(self.config.instance), kind }
    }

    fn vmid(&self) -> u8 {
        self.ib.map_or(self.config.vmid, |ib| ib.vmid)
    }

    fn read_u32(&self, env: &mut dyn Env, va: u64) -> Result<u32, Stop> {
        let mut b = [0; 4];
        env.read(self.access(self.vmid(), Kind::Read), va, &mut b)?;
        Ok(u32::from_le_bytes(b))
    }

    fn write(&self, env: &mut dyn Env, va: u64, data: &[u8]) -> Result<(), Stop> {
        Ok(env.write(self.access(self.vmid(), Kind::Write), va, data)?)
    }

    /// Dwords that may still be fetched in the current stream.
    fn available(&self) -> u64 {
        match self.ib {
            Some(ib) => u64::from(ib.dwords - ib.at),
            None => self.wptr.wrapping_sub(self.rptr) / 4,
        }
    }

    /// Reads the `n`-th dword after the current position.
    fn fetch(&self, env: &mut dyn Env, n: u64) -> Result<u32, Stop> {
        if n >= self.available() {
            return Err(Stop::Bad(format!(
                "packet at {} is cut off after {} dwords by the end of the {}",
                self.position(),
                self.available(),
                if self.ib.is_some() { "indirect buffer" } else { "submitted ring words" }
            )));
        }
        let va = match self.ib {
            Some(ib) => ib.va.wrapping_add(4 * (u64::from(ib.at) + n)),
            None => self.config.ring_va + (self.rptr.wrapping_add(4 * n) & (self.config.ring_bytes - 1)),
        };
        self.read_u32(env, va)
    }

    fn position(&self) -> String {
        match self.ib {
            Some(ib) => format!("dword {} of the indirect buffer at {:#x}", ib.at, ib.va),
            None => format!("ring byte {:#x}", self.rptr),
        }
    }

    /// Consumes dwords, leaves an indirect buffer that is used up and reports the read pointer.
    fn advance(&mut self, env: &mut dyn Env, dwords: u64) -> Result<(), Stop> {
        self.polls = 0;
        self.done = 0;
        if let Some(ib) = &mut self.ib {
            ib.at += dwords as u32;
            if ib.at >= ib.dwords {
                self.ib = None;
            }
            return Ok(());
        }
        self.rptr = self.rptr.wrapping_add(4 * dwords);
        if let Some(va) = self.config.rptr_report_va {
            let who = self.access(self.config.vmid, Kind::Write);
            env.write(who, va, &self.rptr.to_le_bytes())?;
        }
        Ok(())
    }

    fn interrupt(&self, env: &mut dyn Env, context: u32) {
        let c = &self.config;
        // gfx11 on: SDMA_TRAP (49) of client GFX, ring id = instance << 4 | queue
        // (`sdma_v6_0_process_trap_irq`); before: source 224 of the instance's own client.
        let (client, source, ring) = match c.version {
            SdmaVersion::V6_0 | SdmaVersion::V7_0 => (0x0a, 49, c.instance << 4 | c.queue),
            SdmaVersion::V4_4 | SdmaVersion::V5_2 => (0x08 + c.instance, 224, c.queue),
        };
        env.interrupt(Interrupt {
            client,
            source,
            ring,
            vmid: self.vmid(),
            data: [context, 0, 0, 0],
            ..Interrupt::default()
        });
    }
}
