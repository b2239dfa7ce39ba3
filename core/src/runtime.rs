//! Copies and kernels on one device, in the order they were asked for.
//!
//! A [`Runtime`] owns an [`Iface`], a compute queue and an SDMA queue. Both report on one timeline:
//! each submission waits for the one before it, so that a copy sees what the kernel before it wrote
//! and the other way round. A [`Ticket`] names a submission; [`Runtime::wait`] waits for it.
//!
//! Memory that a pending submission may touch is neither freed nor reused: freeing is refused until
//! the work is done ([`IfaceError::InUse`]); pools hand a part out again only after its submission.

use crate::hang::Cause;
use crate::iface::{AllocFlags, Buffer, HwQueue, Iface, IfaceError, QueueKind};
use crate::program::{Kernel, ProgramError};
use crate::queue::QueueError;
use crate::queue::dispatch::Launch;
use crate::queue::pm4::ComputeConfig;
use crate::queue::pool::Pool;
use crate::queue::ring::Ring;
use crate::queue::scratch::{DEFAULT_PER_ITEM, Scratch};
use crate::queue::sdma::SdmaConfig;
use crate::queue::signal::{SLOT_SIZE, Signal, Timeline, reached};
use hang::{History, Submission};

mod hang;
mod launch;
mod made;
mod sizes;
mod transfer;

use made::{Made, PAGE};
pub use sizes::Sizes;

/// Dwords of one submission; a dispatch takes about 120.
const COMMANDS: usize = 512;
/// Kernel arguments and staging parts that can be in use at once.
const PARTS: usize = 256;
/// Looks at a signal before sleeping on the interrupt.
const SPINS: u32 = 200;

/// A submission: the timeline value that it signals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u32);

/// Start and end of a submission by the GPU's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    start: Signal,
    end: Signal,
}

/// Errors of a [`Runtime`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RuntimeError {
    /// A queue, or the interface below.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The code object, or the way it is used.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

impl From<IfaceError> for RuntimeError {
    fn from(e: IfaceError) -> Self {
        RuntimeError::Queue(e.into())
    }
}

/// A code object in GPU memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Program {
    memory: Buffer,
}

impl Program {
    /// GPU address that the addresses of the code object are relative to.
    pub fn address(&self) -> u64 {
        self.memory.va
    }
}

/// One launch of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// Where its code object was loaded.
    pub program: &'a Program,
    /// The kernel, of the same code object.
    pub kernel: &'a Kernel<'a>,
    /// Grid and block.
    pub launch: Launch,
    /// The kernel argument segment, hidden arguments included
    /// ([`Kernel::fill_args`], [`Kernel::fill_hidden`]).
    pub kernargs: &'a [u8],
    /// LDS beyond what the kernel itself has, in bytes.
    pub dynamic_lds: u32,
}

#[derive(Debug)]
struct QueueMemory {
    ring: Buffer,
    pointers: Buffer,
    eop: Option<Buffer>,
    hw: HwQueue,
}

/// Copies and kernels on one device.
#[derive(Debug)]
pub struct Runtime<I> {
    iface: I,
    compute: Ring,
    sdma: Ring,
    memory: [QueueMemory; 2],
    compute_config: ComputeConfig,
    sdma_config: SdmaConfig,
    signals: Buffer,
    timeline: Timeline,
    next_slot: u32,
    kernargs: Pool<PARTS>,
    staging: Buffer,
    /// The allocation that it is a part of.
    staging_memory: Buffer,
    staging_busy: [u32; 2],
    scratch: Option<(Buffer, Scratch)>,
    /// The page of the host's memory that holds several of these.
    page: Option<Buffer>,
    /// The page with the bell, and the bell's address.
    bell: Option<(Buffer, u64)>,
    sizes: Sizes,
    poisoned: bool,
    history: History,
}

impl<I: Iface> Runtime<I> {
    /// Makes the queues and pools of a device. What was made before an error is given back. The
    /// interface is dropped then: who needs it lends it, `Runtime::new(&mut iface, sizes)`, and puts
    /// it in afterwards with [`Runtime::map_iface`].
    pub fn new(mut iface: I, sizes: Sizes) -> Result<Self, QueueError> {
        let mut made = Made::default();
        match Self::make(&mut iface, sizes, &mut made) {
            Ok(runtime) => Ok(runtime.map_iface(|()| iface)),
            Err(e) => {
                made.give_back(&mut iface);
                Err(e)
            }
        }
    }

    fn make(iface: &mut I, sizes: Sizes, made: &mut Made) -> Result<Runtime<()>, QueueError> {
        let device = AllocFlags::UNCACHED | AllocFlags::CPU_ACCESS;
        let host = AllocFlags::HOST | AllocFlags::UNCACHED | AllocFlags::CPU_ACCESS;
        if let Some(first) = sizes.host_page {
            made.page = Some((made.alloc(iface, PAGE, host)?, first));
        }
        let bell = match sizes.bell {
            Some(at) => {
                let page = made.alloc(iface, PAGE, host)?;
                Some((page, page.va.wrapping_add(at)))
            }
            None => None,
        };
        let signals = made.small(iface, sizes.signals, host)?;
        let timeline = Timeline::new(iface, Signal::new(&signals, 0)?)?;
        let kernargs = made.alloc(iface, sizes.kernargs, device)?;
        let wanted = sizes.staging.max(0x2000);
        let staging_memory = made.alloc(iface, wanted.max(sizes.staging_span), host)?;
        let staging = staging_memory.slice(0, wanted)?;
        let in_page = sizes.queues_in_page;
        let compute_memory = made.queue(iface, QueueKind::Compute, sizes.compute_ring, in_page)?;
        let sdma_memory = made.queue(iface, QueueKind::Sdma, sizes.sdma_ring, in_page)?;
        let compute_config = ComputeConfig::new(iface, None)?;
        let sdma_config = SdmaConfig { version: iface.versions().sdma, notify: iface.notify() };
        let scratch = Scratch::for_kernel(iface.properties(), DEFAULT_PER_ITEM)?;
        let scratch_memory = made.alloc(iface, scratch.size, AllocFlags::empty())?;
        Ok(Runtime {
            compute: Ring::new(&[compute_memory.hw])?,
            sdma: Ring::new(&[sdma_memory.hw])?,
            memory: [compute_memory, sdma_memory],
            compute_config,
            sdma_config,
            signals,
            timeline,
            next_slot: 1,
            kernargs: Pool::new("kernel argument", kernargs),
            staging,
            staging_memory,
            staging_busy: [0; 2],
            scratch: Some((scratch_memory, scratch)),
            page: made.page.map(|(page, _)| page),
            bell,
            sizes,
            poisoned: false,
            history: History::after(iface.take_error()?),
            iface: (),
        })
    }

    /// The interface below.
    pub fn iface(&mut self) -> &mut I {
        &mut self.iface
    }

    /// The interface below, to look at.
    pub fn iface_ref(&self) -> &I {
        &self.iface
    }

    /// The ring of one of the two queues, to look at.
    pub fn ring(&self, kind: QueueKind) -> &Ring {
        match kind {
            QueueKind::Compute => &self.compute,
            QueueKind::Sdma => &self.sdma,
        }
    }

    /// Allocates memory.
    pub fn alloc(&mut self, size: u64, flags: AllocFlags) -> Result<Buffer, QueueError> {
        Ok(self.iface.alloc(size, flags)?)
    }

    /// Frees memory. Refused while any submission is pending: wait first.
    pub fn free(&mut self, buffer: Buffer) -> Result<(), QueueError> {
        let last = self.timeline.last_value();
        let seen = self.timeline.poll(&mut self.iface)?;
        if !reached(seen, last) {
            return Err(IfaceError::InUse { va: buffer.va, until: last.into() }.into());
        }
        Ok(self.iface.free(buffer)?)
    }

    /// The value the next submission waits for, and the one it signals.
    fn begin(&mut self) -> Result<(u32, u32), QueueError> {
        self.check_poisoned()?;
        let before = self.timeline.last_value();
        // Engines compare unsigned: long before the counter would wrap it starts anew.
        if before > u32::MAX / 2 {
            self.synchronize()?;
            self.timeline.restart(&mut self.iface)?;
            self.history.restart();
            self.staging_busy = [0; 2];
        }
        self.put_stray_aside()?;
        Ok((self.timeline.last_value(), self.timeline.next_value()))
    }

    /// Refuses to go on after a hang from which the queues could not be restarted.
    fn check_poisoned(&mut self) -> Result<(), QueueError> {
        // A submission that was late may have ended since.
        if self.poisoned && self.timeline.poll(&mut self.iface)? == self.timeline.last_value() {
            self.poisoned = false;
        }
        if self.poisoned {
            return Err(IfaceError::Hang("an earlier submission did not end").into());
        }
        Ok(())
    }

    fn finish(&mut self, done: Result<(), QueueError>, submission: Submission) -> Result<Ticket, QueueError> {
        if let Err(QueueError::RingFull { waited_us, .. }) = done {
            // Nothing was submitted: what is in the ring does not end.
            let cause = self.iface.take_error()?.map_or(Cause::Busy, Cause::Fault);
            return Err(self.hung(cause, waited_us));
        }
        done?;
        self.timeline.advance()?;
        let value = submission.value;
        self.history.submitted(submission);
        Ok(Ticket(value))
    }

    /// Waits for a submission, at most `timeout_us`.
    ///
    /// A submission that hangs is an error as soon as that is certain (see [`crate::hang`]); if that is
    /// not before `timeout_us`, and this is less than [`Sizes::timeout_us`], the error is
    /// [`IfaceError::Timeout`] and nothing has changed. After a hang the queues are restarted: what was
    /// submitted is lost, memory and programs stay, and new work can be submitted.
    /// [`Runtime::hang`] tells more of it.
    pub fn wait(&mut self, ticket: Ticket, timeout_us: u64) -> Result<(), QueueError> {
        self.check_lost(ticket)?;
        self.wait_for(ticket, timeout_us)
    }

    fn wait_for(&mut self, ticket: Ticket, timeout_us: u64) -> Result<(), QueueError> {
        let waited = self.await_value(ticket.0, timeout_us);
        if ticket.0 == self.timeline.last_value() && waited.is_ok() {
            self.compute.note_idle();
            self.sdma.note_idle();
        }
        self.kernargs.retire(self.timeline.seen());
        waited
    }

    /// Waits for everything submitted. What was lost by a hang has been told of, and is not waited for.
    pub fn synchronize(&mut self) -> Result<(), QueueError> {
        self.check_poisoned()?;
        self.wait_for(Ticket(self.timeline.last_value()), self.sizes.timeout_us)
    }

    /// Two signal slots for the times of one submission after another. They are used in turn: read
    /// the times before as many further timings were taken as there are slots (127).
    pub fn timing(&mut self) -> Result<Timing, QueueError> {
        let slots = (self.signals.size / SLOT_SIZE) as u32;
        let first = if self.next_slot + 2 > slots { 1 } else { self.next_slot };
        self.next_slot = first + 2;
        let start = Signal::new(&self.signals, first)?;
        let end = Signal::new(&self.signals, first + 1)?;
        Ok(Timing { start, end })
    }

    /// Microseconds between start and end of a submission that is done.
    pub fn elapsed_us(&mut self, timing: &Timing) -> Result<f64, QueueError> {
        let start = timing.start.timestamp_us(&mut self.iface)?;
        let end = timing.end.timestamp_us(&mut self.iface)?;
        Ok(end - start)
    }

    /// Waits for everything, takes the queues down and frees what this runtime allocated. Nothing
    /// of it may be used afterwards but [`Runtime::into_iface`].
    pub fn release(&mut self) -> Result<(), QueueError> {
        let synced = self.synchronize();
        // All queues are taken down, also after a hang: their memory is given to others next.
        let mut down = Ok(());
        for m in &self.memory {
            down = down.and(self.iface.destroy_queue(&m.hw));
        }
        synced?;
        down?;
        let memory = self.memory.each_ref().map(|m| [Some(m.ring), Some(m.pointers), m.eop]);
        for buffer in memory.into_iter().flatten().flatten() {
            self.free_own(buffer)?;
        }
        if let Some((scratch, _)) = self.scratch.take() {
            self.iface.free(scratch)?;
        }
        self.iface.free(self.staging_memory)?;
        self.iface.free(*self.kernargs.buffer())?;
        self.free_own(self.signals)?;
        if let Some((bell, _)) = self.bell.take() {
            self.iface.free(bell)?;
        }
        self.page.take().map_or(Ok(()), |page| Ok(self.iface.free(page)?))
    }

    /// Frees memory unless it is a part of the page.
    fn free_own(&mut self, buffer: Buffer) -> Result<(), QueueError> {
        if self.page.is_some_and(|page| page.handle == buffer.handle) {
            return Ok(());
        }
        Ok(self.iface.free(buffer)?)
    }

    /// The interface, with everything that was not released.
    pub fn into_iface(self) -> I {
        self.iface
    }
}

impl<I> Runtime<I> {
    /// The same runtime over what `f` makes of its interface: a borrowed one is exchanged for the
    /// one it was borrowed from. Anything but the same device is a mistake.
    pub fn map_iface<J>(self, f: impl FnOnce(I) -> J) -> Runtime<J> {
        let Runtime {
            iface,
            compute,
            sdma,
            memory,
            compute_config,
            sdma_config,
            signals,
            timeline,
            next_slot,
            kernargs,
            staging,
            staging_memory,
            staging_busy,
            scratch,
            page,
            bell,
            sizes,
            poisoned,
            history,
        } = self;
        Runtime {
            iface: f(iface),
            compute,
            sdma,
            memory,
            compute_config,
            sdma_config,
            signals,
            timeline,
            next_slot,
            kernargs,
            staging,
            staging_memory,
            staging_busy,
            scratch,
            page,
            bell,
            sizes,
            poisoned,
            history,
        }
    }
}
