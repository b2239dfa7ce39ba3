//! Boots, resets and shutdowns: compositions of the IP machines.
//!
//! A GPU is found in one of several states. *Cold*: nothing runs; everything is set up.
//! *Foreign*: another driver (or none of this version) has set it up; it is reset first. *Warm*:
//! this driver has set it up and left it in order; bus interface, MMHUB, interrupts, PSP and SMU
//! still run out of the boot region, only graphics and DMA are set up again. *Malformed*: this
//! driver has set it up and died; it is reset first, by the reset that loses least.
//!
//! Which it is, is written in a scratch register that only a reset clears.

use crate::bus::Bus;
use crate::error::Error;
use crate::firmware::FirmwareSource;
use crate::ip::{Cx, Hub, Stage, ends_all, gfx, gmc, ih, psp, sdma, smu, soc};
use crate::layout::{Booting, Ready};
use crate::reg::{f, r, ra};
use core::fmt;

mod ladder;
mod near;

pub use ladder::{Ladder, Outcome, Rung};

/// Version of what survives a warm boot: the layout of the boot region and how blocks are set up.
/// It changes with either.
pub const LAYOUT_VERSION: u32 = 1;
/// What `SCRATCH_REG7` holds once this driver has booted a GPU.
pub const MAGIC: u32 = 0xad5e_0000 | LAYOUT_VERSION;
const MAGIC_MASK: u32 = 0xffff_0000;

/// How a GPU was brought up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Path {
    /// Everything was set up.
    Cold,
    /// Only graphics and DMA were set up again.
    Warm,
    /// The GPU was reset, then everything was set up.
    Reset,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Path::Cold => "cold",
            Path::Warm => "warm",
            Path::Reset => "reset",
        })
    }
}

/// Why a path was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// No secure OS runs.
    Untouched,
    /// This driver left it in order.
    LeftInOrder,
    /// The caller asked for it.
    Asked,
    /// A secure OS runs that this driver did not start.
    Foreign,
    /// This driver started it, with another layout of the boot region.
    OtherLayout {
        /// Version of that layout.
        version: u32,
    },
    /// GFXHUB still translates: the process that used it did not shut it down.
    ContextOn,
    /// MMHUB does not translate any more.
    MmhubOff,
    /// A VM fault is latched.
    FaultLatched {
        /// The hub that has it.
        hub: Hub,
        /// Raw fault status.
        status: u32,
    },
    /// A DMA queue is still on.
    QueueActive,
    /// The warm boot failed.
    WarmFailed,
}

impl Reason {
    /// This driver set the GPU up, and the process that used it did not shut it down.
    fn is_disorder(self) -> bool {
        matches!(self, Reason::ContextOn | Reason::FaultLatched { .. } | Reason::QueueActive)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Untouched => f.write_str("no secure OS was running"),
            Reason::LeftInOrder => f.write_str("this driver had left the GPU in order"),
            Reason::Asked => f.write_str("asked for"),
            Reason::Foreign => f.write_str("another driver had set the GPU up"),
            Reason::OtherLayout { version } => {
                write!(f, "the GPU was set up with layout version {version}, this is {LAYOUT_VERSION}")
            }
            Reason::ContextOn => {
                f.write_str("GFXHUB was still translating: the last process did not shut down")
            }
            Reason::MmhubOff => f.write_str("MMHUB was not translating any more"),
            Reason::FaultLatched { hub, status } => {
                write!(f, "a VM fault was latched in the {hub} (status {status:#x})")
            }
            Reason::QueueActive => f.write_str("a DMA queue was still active"),
            Reason::WarmFailed => f.write_str("the warm boot failed"),
        }
    }
}

/// What a boot did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// The path taken.
    pub path: Path,
    /// Why.
    pub reason: Reason,
    /// False if the GPU should have been reset, but its SMU did not answer; it was set up as it was.
    pub reset_done: bool,
    /// The resets that were tried.
    pub ladder: Ladder,
    /// What ended a warm boot that was tried first.
    pub warm_error: Option<Error>,
    /// Proof for what comes after the boot.
    pub ready: Ready,
}

/// What the caller wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Set everything up anew, even where a warm boot would do.
    pub cold: bool,
    /// Leave the clocks as they are instead of pinning them to their highest levels.
    pub leave_clocks: bool,
    /// The reset that is tried first on a GPU which this driver left in disorder.
    pub first: Rung,
}

/// Brings a GPU up from whatever state it is in.
///
/// The root page table is empty afterwards. Interrupts are on, clocks at their highest levels
/// (unless [`Options::leave_clocks`]), no queue exists.
pub async fn boot<B: Bus>(
    cx: &mut Cx<'_, B>,
    fw: &mut dyn FirmwareSource,
    options: Options,
) -> Result<Report, Error> {
    boot_telling(cx, fw, options, &mut Ladder::default()).await
}

/// [`boot`], which tells in `ladder` what resets it tried also where it fails.
pub async fn boot_telling<B: Bus>(
    cx: &mut Cx<'_, B>,
    fw: &mut dyn FirmwareSource,
    options: Options,
    ladder: &mut Ladder,
) -> Result<Report, Error> {
    *ladder = Ladder::default();
    cx.clear_stages();
    cx.enter(Stage::Probe).await;
    let mut reason = probe(cx)?;
    if options.cold && reason == Reason::LeftInOrder {
        reason = Reason::Asked;
    }
    let mut warm_error = None;
    if reason.is_disorder() && !options.cold {
        gentle(cx, options.first, ladder).await?;
    }
    let in_order = ladder.helped(Rung::Queue) || ladder.helped(Rung::Mec);
    if in_order || reason == Reason::LeftInOrder {
        match warm(cx, fw, options).await {
            Ok(ready) => {
                let path = Path::Warm;
                let ladder = *ladder;
                return Ok(Report { path, reason, reset_done: false, ladder, warm_error, ready });
            }
            // A device that is gone will not come back by a reset, and who wants the end wants none;
            // after everything else it may.
            Err(e) if ends_all(&e) => return Err(e),
            Err(e) => {
                warm_error = Some(e);
                reason = Reason::WarmFailed;
            }
        }
    }
    let (mut path, mut reset_done) = (Path::Cold, false);
    if psp::is_sos_alive(cx)? {
        if reason == Reason::Untouched {
            reason = Reason::Foreign;
        }
        if ladder::reset_all(cx, true, ladder).await? {
            (path, reset_done) = (Path::Reset, true);
        } else {
            ih::switch_off(cx)?;
        }
        if !reset_done && reason != Reason::Foreign {
            // What follows is no warm boot: should it not reach its end, nobody must take the GPU
            // for one that was left in order.
            cx.write(r::SCRATCH_REG7, 0)?;
        }
    }
    let ready = full(cx, fw, options).await?;
    Ok(Report { path, reason, reset_done, ladder: *ladder, warm_error, ready })
}

/// In which state a GPU is found: why the next boot takes the path it takes. Only reads.
///
/// # Errors
/// [`Error::NotResponding`] if registers read as all ones.
pub fn state<B: Bus>(cx: &mut Cx<'_, B>) -> Result<Reason, Error> {
    let reason = probe(cx)?;
    if reason == Reason::Untouched && psp::is_sos_alive(cx)? {
        return Ok(Reason::Foreign);
    }
    Ok(reason)
}

/// The rungs after which a warm boot is possible.
async fn gentle<B: Bus>(cx: &mut Cx<'_, B>, first: Rung, ladder: &mut Ladder) -> Result<(), Error> {
    for rung in [Rung::Queue, Rung::Mec] {
        if rung < first {
            continue;
        }
        let done = match rung {
            Rung::Queue => ladder::reset_queues(cx).await,
            _ => ladder::reset_mec(cx).await,
        };
        let outcome = match done {
            Ok(()) => match probe(cx)? {
                Reason::LeftInOrder => Outcome::Helped,
                other => Outcome::NotEnough(other),
            },
            Err(e) if ends_all(&e) => return Err(e),
            Err(e) => Outcome::Failed(e),
        };
        ladder.push(rung, outcome);
        if outcome == Outcome::Helped {
            break;
        }
    }
    Ok(())
}

/// What the registers tell of the state; [`Reason::Untouched`] stands for "not by this driver".
fn probe<B: Bus>(cx: &mut Cx<'_, B>) -> Result<Reason, Error> {
    let mark = cx.read(r::SCRATCH_REG7)?;
    if mark == u32::MAX {
        return Err(Error::NotResponding { stage: Stage::Probe });
    }
    if mark != MAGIC {
        let ours = mark & MAGIC_MASK == MAGIC & MAGIC_MASK;
        return Ok(if ours {
            Reason::OtherLayout { version: mark & !MAGIC_MASK }
        } else {
            Reason::Untouched
        });
    }
    if gmc::is_context_on(cx, Hub::Gc)? {
        return Ok(Reason::ContextOn);
    }
    for hub in [Hub::Gc, Hub::Mm] {
        let status = gmc::fault_status(cx, hub)?;
        if status != 0 {
            return Ok(Reason::FaultLatched { hub, status });
        }
    }
    if !gmc::is_context_on(cx, Hub::Mm)? {
        return Ok(Reason::MmhubOff);
    }
    for [queue0, ..] in ra::SDMA_QUEUE_RB_CNTL {
        let cntl = cx.read(queue0)?;
        if cx.regs.get(cntl, f::sdma_queue_rb_cntl::RB_ENABLE)? != 0 {
            return Ok(Reason::QueueActive);
        }
    }
    Ok(Reason::LeftInOrder)
}

fn zero_root<B: Bus>(cx: &mut Cx<'_, B>) -> Result<(), Error> {
    let root = cx.layout.root_page_table.clone();
    // On a slow bus the rest of it is filled by DMA before anything is mapped: see `near`.
    let len = if cx.bus.is_slow() { NEEDED } else { root.end - root.start };
    cx.vram_zero(root.start, len)
}

/// What has to be zero at once of a page that a slow bus does not fill: an entry, a pointer, a fence.
pub(crate) const NEEDED: u64 = 8;

async fn full<B: Bus>(
    cx: &mut Cx<'_, B>,
    fw: &mut dyn FirmwareSource,
    options: Options,
) -> Result<Ready, Error> {
    let mut booting = Booting::new(&cx.layout);
    zero_root(cx)?;
    // What power-on or the last driver left there would be taken for interrupts.
    for pointer in cx.layout.ih_wptr.clone() {
        let len = if cx.bus.is_slow() { NEEDED } else { pointer.end - pointer.start };
        cx.vram_zero(pointer.start, len)?;
    }
    soc::init(cx).await?;
    gmc::init(cx).await?;
    ih::init(cx).await?;
    let near = near::lend(cx, &mut booting)?;
    let loaded = psp::init(cx, fw).await;
    let taken_back = near::take_back(cx, near).await;
    loaded.and(taken_back)?;
    smu::init(cx).await?;
    finish(cx, fw, options, booting, true).await
}

async fn warm<B: Bus>(
    cx: &mut Cx<'_, B>,
    fw: &mut dyn FirmwareSource,
    options: Options,
) -> Result<Ready, Error> {
    let booting = Booting::new(&cx.layout);
    zero_root(cx)?;
    cx.hub_on(Hub::Mm, true);
    finish(cx, fw, options, booting, false).await
}

async fn finish<B: Bus>(
    cx: &mut Cx<'_, B>,
    fw: &mut dyn FirmwareSource,
    options: Options,
    booting: Booting,
    cold: bool,
) -> Result<Ready, Error> {
    gfx::init(cx, fw.ucode_start()).await?;
    sdma::init(cx).await?;
    cx.leave_clocks = options.leave_clocks;
    if !options.leave_clocks {
        smu::set_clocks(cx, smu::Level::Highest).await?;
    }
    cx.enter(Stage::ClockGating).await;
    soc::clock_gating(cx)?;
    gfx::clock_gating(cx).await?;
    cx.write(r::SCRATCH_REG7, MAGIC)?;
    cx.bus.flush()?;
    let ready = booting.finish();
    if cx.bus.is_slow() {
        near::scrub(cx, ready, cold).await?;
    }
    Ok(ready)
}

/// Resets a GPU and leaves it as after power-on, without booting it; `ladder` tells what was tried.
/// A GPU that nobody has booted is reset where the host can do it from outside; elsewhere it is as
/// after power-on already, or nothing of this side can change that.
pub async fn reset<B: Bus>(cx: &mut Cx<'_, B>, ladder: &mut Ladder) -> Result<(), Error> {
    *ladder = Ladder::default();
    cx.clear_stages();
    cx.enter(Stage::Probe).await;
    let booted = psp::is_sos_alive(cx)?;
    if !ladder::reset_all(cx, booted, ladder).await? && booted {
        return Err(Error::State(
            "neither the SMU nor the host can reset the GPU; switch the machine off and on again",
        ));
    }
    Ok(())
}

/// Shuts a GPU down so that the next boot can be warm: queues taken down, translation of GFXHUB
/// off, clocks at their lowest levels. Pending interrupts go to `handle`.
pub async fn fini<B: Bus>(cx: &mut Cx<'_, B>, handle: &mut dyn FnMut(&ih::Entry)) -> Result<(), Error> {
    cx.clear_stages();
    sdma::fini(cx).await?;
    gfx::fini(cx).await?;
    if !cx.leave_clocks {
        smu::set_clocks(cx, smu::Level::Lowest).await?;
    }
    cx.enter(Stage::Interrupt).await;
    ih::service(cx, handle)?;
    cx.bus.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::ip::Device;
    use crate::ip::scripted::{TestBus, device};
    use crate::reg::Reg;
    use std::string::ToString;
    use std::vec::Vec;

    /// A device that this driver has left in order, with some registers changed.
    fn left(change: &[(Reg, u32)]) -> Device<TestBus> {
        let mut d = device();
        d.put(r::SCRATCH_REG7, MAGIC);
        d.put(ra::hub::VM_CONTEXT_CNTL.mm[0], 1);
        for (reg, value) in change {
            d.put(*reg, *value);
        }
        d
    }

    fn reason(mut d: Device<TestBus>) -> Result<Reason, Error> {
        d.run(async |cx: &mut Cx<'_, TestBus>| probe(cx))
    }

    #[test]
    fn the_state_of_a_gpu_is_read_from_its_registers() {
        let table: [(&[(Reg, u32)], Reason); 9] = [
            (&[], Reason::LeftInOrder),
            (&[(r::SCRATCH_REG7, 0)], Reason::Untouched),
            (&[(r::SCRATCH_REG7, 0xa000_0006)], Reason::Untouched),
            (&[(r::SCRATCH_REG7, MAGIC + 1)], Reason::OtherLayout { version: LAYOUT_VERSION + 1 }),
            (&[(ra::hub::VM_CONTEXT_CNTL.gc[0], 1)], Reason::ContextOn),
            (
                &[(r::GCVM_L2_PROTECTION_FAULT_STATUS, 0x10)],
                Reason::FaultLatched { hub: Hub::Gc, status: 0x10 },
            ),
            (
                &[(r::MMVM_L2_PROTECTION_FAULT_STATUS, 0x20)],
                Reason::FaultLatched { hub: Hub::Mm, status: 0x20 },
            ),
            (&[(ra::hub::VM_CONTEXT_CNTL.mm[0], 0)], Reason::MmhubOff),
            (&[(ra::SDMA_QUEUE_RB_CNTL[1][0], 1)], Reason::QueueActive),
        ];
        for (change, expected) in table {
            assert_eq!(reason(left(change)), Ok(expected));
        }
    }

    #[test]
    fn a_scratch_register_of_all_ones_is_a_device_that_does_not_respond() {
        let gone = left(&[(r::SCRATCH_REG7, u32::MAX)]);
        assert_eq!(reason(gone), Err(Error::NotResponding { stage: Stage::Probe }));
    }

    #[test]
    fn another_layout_is_named_with_both_versions() {
        let text = Reason::OtherLayout { version: 9 }.to_string();
        assert_eq!(text, "the GPU was set up with layout version 9, this is 1");
    }

    #[test]
    fn a_gpu_that_nothing_can_reset_is_an_error_only_if_it_was_booted() {
        for (sos, fails) in [(0, false), (1, true)] {
            let mut d = left(&[(r::PSP_C2PMSG_81, sos)]);
            let mut ladder = Ladder::default();
            let result = d.run(async |cx: &mut Cx<'_, TestBus>| reset(cx, &mut ladder).await);
            assert_eq!(matches!(result, Err(Error::State(_))), fails, "{result:?}");
            assert_eq!(result.is_err(), fails);
            let rungs: Vec<_> = ladder.iter().collect();
            let impossible =
                |rung| rungs.iter().any(|t| t.0 == rung && matches!(t.1, Outcome::Impossible(_)));
            assert!(rungs.len() == 2 && impossible(Rung::Mode1) && impossible(Rung::Bus), "{ladder}");
            assert!(!ladder.lost_everything());
        }
    }
}
