//! Devices that are driven by amdev's own core over a bus.

use crate::discovery;
use crate::error::CliError;
use crate::progress::{Progress, Silent};
use crate::session::{
    BootOptions, BootReport, DeviceBuffer, DeviceState, Info, KernelArg, KernelInfo, OpenOptions, RegValue,
    RingImage, Session, SmiReport, UsbCounts,
};
use crate::trace_file::TraceFile;
use amdev_core::boot;
use amdev_core::bus::Mmio;
use amdev_core::bus::count::Counts;
use amdev_core::device::{Found, Gpu, OpenError, Probe};
use amdev_core::discovery::MemSize;
use amdev_core::hang::Cause;
use amdev_core::iface::{AllocFlags, Buffer, Iface, QueueKind};
use amdev_core::mm::{Block, VaRange};
use amdev_core::queue::QueueError;
use amdev_core::runtime::{Runtime, RuntimeError, Sizes, Ticket};
use anyhow::Context as _;

mod firmware;
mod group;
mod host;
mod look;
mod program;
mod serve;
mod shutdown;
mod smi;
mod stages;
mod start;

use firmware::Firmware;
#[cfg(feature = "sim")]
pub(crate) use firmware::firmware_of;
pub use group::BusGroup;
pub use host::HostBus;
use program::Loaded;
#[cfg(target_os = "linux")]
pub(crate) use serve::Answer;
use serve::Watched;
use stages::Stages;
use start::{boot_failed, boot_report, resets, with_ladder};

/// Allocator slots of a device's VRAM and of the virtual range: as many allocations can live.
const SLOTS: usize = 1 << 16;
/// What single work gets beyond `--timeout` by this machine's clock: between the parts of work that
/// has several, the time is looked at anyway, and that says more.
const LATE_US: u64 = 500_000;
/// Allocator slots of the boot region.
const BOOT_SLOTS: usize = 64;

/// How far a device was brought.
// One value of it lives for a whole command: its size does not matter.
#[allow(clippy::large_enum_variant)]
enum State<B: HostBus> {
    /// Nothing is known of it.
    Closed(Watched<B>),
    /// Its discovery table was read.
    Found(Probe<Watched<B>>),
    /// It was booted and has queues.
    Running(Runtime<Gpu<'static, Watched<B>>>),
    /// On the way from one to the other, or lost on it.
    Lost,
}

/// An open device on a bus.
pub struct BusSession<B: HostBus> {
    state: State<B>,
    found: Option<Found>,
    device: String,
    options: OpenOptions,
    buffers: Vec<Option<Buffer>>,
    loaded: Option<Loaded>,
}

impl<B: HostBus> BusSession<B> {
    /// Opens a device; nothing is done to it yet.
    pub fn new(bus: B, device: String, options: &OpenOptions) -> anyhow::Result<Self> {
        let trace = match &options.trace {
            None => TraceFile::default(),
            Some(path) => TraceFile::create(path, &device, &options.flow)
                .map_err(|e| CliError::Usage(format!("--trace {}: {e}", path.display())))?,
        };
        Ok(BusSession {
            state: State::Closed(Watched::new(bus, trace)),
            found: None,
            device,
            options: options.clone(),
            buffers: Vec::new(),
            loaded: None,
        })
    }

    /// The bus, in any state but the lost one.
    fn bus(&self) -> Option<&Watched<B>> {
        match &self.state {
            State::Closed(bus) => Some(bus),
            State::Found(probe) => Some(&probe.device.bus),
            State::Running(runtime) => Some(runtime.iface_ref().bus()),
            State::Lost => None,
        }
    }

    fn lost() -> anyhow::Error {
        anyhow::anyhow!("the device was lost by an earlier error; open it anew")
    }

    fn bus_mut(&mut self) -> Option<&mut Watched<B>> {
        match &mut self.state {
            State::Closed(bus) => Some(bus),
            State::Found(probe) => Some(&mut probe.device.bus),
            State::Running(runtime) => Some(&mut runtime.iface().device().bus),
            State::Lost => None,
        }
    }

    /// The device, found but not running.
    fn probe(&mut self) -> anyhow::Result<&mut Probe<Watched<B>>> {
        if let State::Closed(bus) = &mut self.state {
            // Lent only: a device that is not understood is still released, its trace completed.
            let found = Probe::open(bus).map_err(|e| open_error(&self.device, e))?.detach();
            let State::Closed(bus) = std::mem::replace(&mut self.state, State::Lost) else {
                return Err(Self::lost());
            };
            self.found = Some(found.clone());
            let mut probe = found.on(bus);
            let vram_len = probe.device.layout.vram_len();
            probe.device.bus.set_vram_len(vram_len);
            probe.device.bus.trace().discovered(&probe.ips);
            self.state = State::Found(probe);
        }
        match &mut self.state {
            State::Found(probe) => Ok(probe),
            State::Running(_) => Err(anyhow::anyhow!("{} is already booted", self.device)),
            _ => Err(Self::lost()),
        }
    }

    fn runtime(&mut self) -> anyhow::Result<&mut Runtime<Gpu<'static, Watched<B>>>> {
        match &mut self.state {
            State::Running(runtime) => Ok(runtime),
            State::Lost => Err(Self::lost()),
            _ => Err(anyhow::anyhow!("{} is not booted", self.device)),
        }
    }

    fn buffer(&self, buffer: DeviceBuffer) -> anyhow::Result<Buffer> {
        let found = self.buffers.get(buffer.id).copied().flatten();
        found.ok_or_else(|| anyhow::anyhow!("buffer {} was already given back", buffer.id))
    }

    /// Runs something on the runtime; nanoseconds by the device's clock.
    fn timed(
        &mut self,
        what: impl FnOnce() -> String,
        work: impl FnOnce(&mut Runtime<Gpu<'static, Watched<B>>>) -> anyhow::Result<Option<Ticket>>,
    ) -> anyhow::Result<u64> {
        let timeout = self.timeout_us();
        let runtime = self.runtime()?;
        let start = runtime.iface_ref().now_us();
        let done = work(runtime).and_then(|ticket| match ticket {
            Some(ticket) => Ok(runtime.wait(ticket, timeout)?),
            None => Ok(()),
        });
        let done = done.map_err(|e| explain(runtime, e)).with_context(what);
        if let Err(e) = done {
            return Err(self.limited(e));
        }
        let runtime = self.runtime()?;
        if let Some(fault) = runtime.take_stray_fault() {
            tracing::warn!("the GPU reported a fault of earlier work, or of another process: {fault}");
        }
        Ok((runtime.iface_ref().now_us() - start).saturating_mul(1000))
    }

    /// Names `--timeout` where that ended the wait for work that goes on.
    fn limited(&self, error: anyhow::Error) -> anyhow::Error {
        let State::Running(runtime) = &self.state else { return error };
        let busy = runtime.hang().is_some_and(|hang| hang.error.cause == Cause::Busy);
        match self.options.timeout_s {
            Some(s) if busy => error.context(format!("--timeout {s} allows no more time")),
            _ => error,
        }
    }

    fn timeout_us(&self) -> u64 {
        self.options.timeout_s.map_or(Sizes::default().timeout_us, |s| (s * 1e6) as u64)
    }
}

/// Virtual addresses for one device, or for several that share them.
fn virtual_range() -> anyhow::Result<&'static VaRange<'static>> {
    Ok(Box::leak(Box::new(VaRange::new(slots(SLOTS)).map_err(|e| anyhow::anyhow!("{e}"))?)))
}

/// Memory for allocator state. A process opens a device once and needs this until it ends, and the
/// core borrows what it is lent: so it is never given back.
fn slots(count: usize) -> &'static mut [Block] {
    Box::leak(vec![Block::EMPTY; count].into_boxed_slice())
}

/// What is known of a hang, with the error that it is.
fn explain<B: HostBus>(runtime: &Runtime<Gpu<'static, Watched<B>>>, error: anyhow::Error) -> anyhow::Error {
    let is_hang = error.chain().any(|e| {
        let queue = match e.downcast_ref::<RuntimeError>() {
            Some(RuntimeError::Queue(e)) => Some(e),
            _ => e.downcast_ref::<QueueError>(),
        };
        matches!(queue, Some(QueueError::Hang(_)))
    });
    match runtime.hang() {
        Some(hang) if is_hang => anyhow::anyhow!("{hang}"),
        _ => error,
    }
}

fn open_error(device: &str, error: OpenError) -> anyhow::Error {
    CliError::Device(format!("{device}: {error}")).into()
}

impl<B: HostBus> Session for BusSession<B> {
    fn device(&self) -> String {
        self.device.clone()
    }

    fn info(&mut self) -> anyhow::Result<Info> {
        if let State::Running(runtime) = &mut self.state {
            return Ok(discovery::describe(runtime.iface_ref().ips(), None));
        }
        let options = self.options.clone();
        let probe = self.probe()?;
        let mib = (probe.device.layout.vram_len() >> 20) as u32;
        let mut info = discovery::describe(&probe.ips, MemSize::from_register(mib).ok());
        info.firmware = firmware::names(probe, &options)?;
        Ok(info)
    }

    fn state(&mut self) -> anyhow::Result<DeviceState> {
        Ok(look::state(self.probe()?.state()?))
    }

    fn boot(&mut self, options: &BootOptions, progress: &mut dyn Progress) -> anyhow::Result<BootReport> {
        let open = self.options.clone();
        let open_device = self.device.clone();
        let probe = self.probe()?;
        let mut fw = Firmware::find(probe, &open)?;
        if options.dry_run {
            if probe.device.bus.host().violations().is_none() {
                return Err(dry_run_refused(&open_device));
            }
            probe.device.bus.trace().collect_writes(&probe.ips);
        }
        let before = probe.device.bus.counts();
        let how =
            boot::Options { cold: options.cold, leave_clocks: open.leave_clocks, ..boot::Options::default() };
        let mut stages = Stages::new(progress);
        let report = match probe.boot(fw.source(), how, &mut |e| stages.event(e)) {
            Ok(report) => report,
            Err(e) => return Err(boot_failed(e, probe.ladder())),
        };
        let mut out = boot_report(&report, &fw, stages.finish());
        out.counts = probe.device.bus.counts().since(&before);
        out.writes = probe.device.bus.trace().take_writes();
        self.start(report.ready, virtual_range()?)?;
        // All since the device was opened: finding out what it is belongs to it.
        out.usb = self.usb_counts();
        tracing::info!("booted: {} ({})", out.path, out.why);
        Ok(out)
    }

    fn fini(&mut self, progress: &mut dyn Progress) -> anyhow::Result<BootReport> {
        if !matches!(self.state, State::Running(_)) {
            anyhow::bail!("{} is not booted: there is nothing to shut down", self.device);
        }
        self.shut_down(progress)
    }

    fn reset(&mut self, progress: &mut dyn Progress) -> anyhow::Result<BootReport> {
        if let State::Running(_) = &self.state
            && let State::Running(runtime) = std::mem::replace(&mut self.state, State::Lost)
        {
            // A reset ends whatever runs: nothing is waited for.
            self.buffers.clear();
            self.loaded = None;
            let mut probe = runtime.into_iface().into_probe();
            probe.device.bus.stop_serving();
            self.state = State::Found(probe);
        }
        let probe = self.probe()?;
        let before = probe.device.bus.counts();
        let mut stages = Stages::new(progress);
        let done = probe.reset(&mut |e| stages.event(e));
        let ladder = probe.ladder();
        done.map_err(|e| with_ladder(e, ladder, "resetting the device"))?;
        let reset_done = ladder.lost_everything();
        Ok(BootReport {
            path: if reset_done { "reset" } else { "none" }.into(),
            why: match reset_done {
                true => format!("asked for; {ladder}"),
                false => format!("nothing to reset: the GPU is as after power-on ({ladder})"),
            },
            stages: stages.finish(),
            reset_done,
            resets: resets(&ladder),
            counts: probe.device.bus.counts().since(&before),
            ..BootReport::default()
        })
    }

    fn alloc(&mut self, len: u64) -> anyhow::Result<DeviceBuffer> {
        let buffer = self.runtime()?.alloc(len, AllocFlags::empty())?;
        let id = self.buffers.len();
        self.buffers.push(Some(buffer));
        Ok(DeviceBuffer { va: buffer.va, len, id })
    }

    fn free(&mut self, buffer: DeviceBuffer) -> anyhow::Result<()> {
        let found = self.buffer(buffer)?;
        let runtime = self.runtime()?;
        runtime.synchronize()?;
        runtime.free(found)?;
        if let Some(slot) = self.buffers.get_mut(buffer.id) {
            *slot = None;
        }
        Ok(())
    }

    fn upload(&mut self, to: DeviceBuffer, data: &[u8]) -> anyhow::Result<u64> {
        let to = self.buffer(to)?;
        let what = || format!("copying {} bytes from the host to VRAM by the SDMA queue", data.len());
        self.timed(what, |runtime| {
            runtime.write(&to, data)?;
            runtime.synchronize()?;
            Ok(None)
        })
    }

    fn download(&mut self, from: DeviceBuffer, data: &mut [u8]) -> anyhow::Result<u64> {
        let from = self.buffer(from)?;
        let len = data.len();
        let what = || format!("copying {len} bytes from VRAM to the host by the SDMA queue");
        self.timed(what, |runtime| {
            runtime.read(&from, data)?;
            Ok(None)
        })
    }

    fn copy(&mut self, to: DeviceBuffer, from: DeviceBuffer, len: u64) -> anyhow::Result<u64> {
        let (to, from) = (self.buffer(to)?, self.buffer(from)?);
        let what = || format!("copying {len} bytes in VRAM by the SDMA queue");
        self.timed(what, |runtime| Ok(Some(runtime.copy(&to, &from, len)?)))
    }

    fn load(&mut self, image: &[u8], kernel: Option<&str>) -> anyhow::Result<KernelInfo> {
        let old = self.loaded.take();
        let runtime = self.runtime()?;
        if let Some(old) = old {
            runtime.synchronize()?;
            runtime.unload(old.program)?;
        }
        let loaded = Loaded::load(runtime, image, kernel)?;
        let info = loaded.info();
        // Kept also where its metadata is broken: what is kept is given back in the end.
        self.loaded = Some(loaded);
        info
    }

    fn run(&mut self, grid: [u32; 3], block: [u32; 3], args: &[KernelArg]) -> anyhow::Result<u64> {
        let timeout = self.timeout_us();
        let loaded = self.loaded.take().ok_or_else(|| anyhow::anyhow!("no kernel is loaded"))?;
        let done = self.runtime().and_then(|runtime| loaded.run(runtime, grid, block, args, timeout));
        self.loaded = Some(loaded);
        done.map_err(|e| self.limited(e))
    }

    fn ring(&mut self, kind: QueueKind) -> anyhow::Result<RingImage> {
        look::ring(self.runtime()?, kind)
    }

    fn reg_read(&mut self, name: &str) -> anyhow::Result<RegValue> {
        let probe = self.probe()?;
        let reg = crate::regnames::find(&probe.ips, name)?;
        let value = probe.device.read_at(reg.addr)?;
        if value == u32::MAX {
            look::answers(&mut probe.device.bus)?;
        }
        Ok(reg.value(value))
    }

    fn reg_write(&mut self, name: &str, value: u32) -> anyhow::Result<RegValue> {
        let probe = self.probe()?;
        let reg = crate::regnames::find(&probe.ips, name)?;
        probe.device.write_at(reg.addr, value)?;
        probe.device.bus.flush()?;
        Ok(reg.value(value))
    }

    fn reg_names(&mut self, block: Option<&str>) -> anyhow::Result<Vec<String>> {
        let probe = self.probe()?;
        crate::regnames::names(&probe.ips, block)
    }

    fn smi(&mut self) -> anyhow::Result<SmiReport> {
        self.measure()
    }

    fn firmware_versions(&mut self) -> anyhow::Result<amdev_fw::Versions> {
        firmware::versions(self.probe()?)
    }

    fn counts(&self) -> Counts {
        self.bus().map(Watched::counts).unwrap_or_default()
    }

    fn usb_counts(&self) -> Option<UsbCounts> {
        self.bus()?.host().usb_counts()
    }

    fn violations(&mut self) -> Option<Vec<String>> {
        self.bus()?.host().violations()
    }

    fn release(mut self: Box<Self>) -> anyhow::Result<()> {
        let before = self.violations().unwrap_or_default().len();
        // The next process shall find the device in order: it boots warm.
        let mut stopped = match self.state {
            State::Running(_) => self.shut_down(&mut Silent).map(drop),
            _ => Ok(()),
        };
        let after = self.violations().unwrap_or_default();
        if let (Ok(()), Some(new)) = (&stopped, after.get(before..).filter(|new| !new.is_empty())) {
            stopped = Err(anyhow::anyhow!("while shutting down the simulated GPU saw {}", new.join("; ")));
        }
        let bus = match self.state {
            State::Closed(bus) => bus,
            State::Found(probe) => probe.device.into_bus(),
            State::Running(runtime) => runtime.into_iface().into_probe().device.into_bus(),
            State::Lost => return stopped,
        };
        let (bus, trace) = bus.into_parts();
        let (closed, written) = (bus.close(), trace.finish());
        stopped?;
        closed?;
        written
    }
}

/// What a boot writes depends on what the device answers. A simulated device may be booted for
/// nothing; another one may not.
fn dry_run_refused(device: &str) -> anyhow::Error {
    CliError::Unsupported {
        device: device.to_owned(),
        command: "boot --dry-run",
        why: "what a boot writes depends on the device's answers; try it on a simulated GPU".into(),
    }
    .into()
}
