//! The accesses of a boot that goes well.

use amdev_cli::sim::SimBus;
use amdev_core::boot::Options;
use amdev_core::bus::{Bus, BusError, Clock, Dma, Mmio, Window};
use amdev_core::device::Probe;
use amdev_core::ip::Stage;
use amdev_sim::SimGpu;
use amdev_tests::gpus;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The state in which a boot finds its GPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Flow {
    Cold,
    Warm,
}

impl Flow {
    pub(crate) const ALL: [Flow; 2] = [Flow::Cold, Flow::Warm];

    /// The value of the simulator's key `state`.
    pub(crate) fn state(self) -> &'static str {
        match self {
            Flow::Cold => "cold",
            Flow::Warm => "amdev",
        }
    }
}

/// An access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Access {
    pub(crate) window: Window,
    pub(crate) offset: u64,
    pub(crate) write: bool,
    /// Where in the boot it was made; `None` before its first stage.
    pub(crate) stage: Option<Stage>,
}

/// A bus that tells what is done, before it is done.
pub(crate) struct Watched<B> {
    inner: B,
    hook: Box<dyn FnMut(Window, u64, bool)>,
}

impl<B> Watched<B> {
    /// `hook` is told window, offset, and whether it is a write.
    pub(crate) fn new(inner: B, hook: impl FnMut(Window, u64, bool) + 'static) -> Self {
        Watched { inner, hook: Box::new(hook) }
    }

    fn note(&mut self, window: Window, offset: u64, write: bool) {
        (self.hook)(window, offset, write);
    }
}

/// A boot of this GPU in this state; `settings` are further keys of it.
pub(crate) fn accesses(gpu: &str, flow: Flow, settings: &str) -> anyhow::Result<Vec<Access>> {
    let gpu: SimGpu = gpus::gpu(&format!("{gpu},state={}{settings}", flow.state()))?;
    let log = Rc::new(RefCell::new(Vec::new()));
    let stage = Rc::new(Cell::new(None));
    let (to, at) = (Rc::clone(&log), Rc::clone(&stage));
    let bus = Watched::new(SimBus::new(gpu), move |window, offset, write| {
        to.borrow_mut().push(Access { window, offset, write, stage: at.get() });
    });
    let mut probe = Probe::open(bus)?;
    let mut fw = gpus::firmware(&probe.ips)?;
    probe.boot(&mut fw, Options::default(), &mut |event| stage.set(event.stage))?;
    drop(probe);
    Ok(log.take())
}

/// Numbers accesses so that polls do not count: how often a register is read until it has its value
/// differs from run to run.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    last: Option<(Window, u64, bool)>,
    count: u64,
}

impl Steps {
    /// The number of an access.
    pub(crate) fn of(&mut self, window: Window, offset: u64, write: bool) -> u64 {
        let this = Some((window, offset, write));
        if self.last != this || write {
            self.count += 1;
        }
        self.last = this;
        self.count - 1
    }
}

impl<B: Mmio> Mmio for Watched<B> {
    fn window_len(&self, window: Window) -> u64 {
        self.inner.window_len(window)
    }
    fn read32(&mut self, window: Window, offset: u64) -> Result<u32, BusError> {
        self.note(window, offset, false);
        self.inner.read32(window, offset)
    }
    fn write32(&mut self, window: Window, offset: u64, value: u32) -> Result<(), BusError> {
        self.note(window, offset, true);
        self.inner.write32(window, offset, value)
    }
    fn read64(&mut self, window: Window, offset: u64) -> Result<u64, BusError> {
        self.note(window, offset, false);
        self.inner.read64(window, offset)
    }
    fn write64(&mut self, window: Window, offset: u64, value: u64) -> Result<(), BusError> {
        self.note(window, offset, true);
        self.inner.write64(window, offset, value)
    }
    fn read_bulk(&mut self, window: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        self.note(window, offset, false);
        self.inner.read_bulk(window, offset, buf)
    }
    fn write_bulk(&mut self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.note(window, offset, true);
        self.inner.write_bulk(window, offset, data)
    }
    fn zero(&mut self, window: Window, offset: u64, len: u64) -> Result<(), BusError> {
        self.note(window, offset, true);
        self.inner.zero(window, offset, len)
    }
    fn read_group(&mut self, window: Window, offsets: &[u64], out: &mut [u32]) -> Result<(), BusError> {
        self.note(window, offsets.first().copied().unwrap_or(0), false);
        self.inner.read_group(window, offsets, out)
    }
    fn flush(&mut self) -> Result<(), BusError> {
        self.inner.flush()
    }
    fn fence(&mut self) -> Result<(), BusError> {
        self.inner.fence()
    }
}

impl<B: Dma> Dma for Watched<B> {
    amdev_core::delegate_dma!();
}

impl<B: Bus> Bus for Watched<B> {
    fn clock(&self) -> &dyn Clock {
        self.inner.clock()
    }
    fn wait_interrupt(&mut self, timeout_us: u64) -> Result<bool, BusError> {
        self.inner.wait_interrupt(timeout_us)
    }
    amdev_core::delegate_resets!();
    amdev_core::delegate_traits!();
}
