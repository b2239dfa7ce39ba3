//! Devices that are driven by amdev's own core over a bus.

use crate::discovery;
use crate::error::CliError;
use crate::session::{Info, OpenOptions, Session};
use crate::trace_file::TraceFile;
use amdev_core::bus::Bus;
use amdev_core::bus::count::{Count, Counts};
use amdev_core::bus::trace::Trace;

/// What a host's bus tells beyond [`Bus`].
pub trait HostBus: Bus {
    /// Misuse that a simulated device saw; `None` if the device does not watch.
    fn violations(&self) -> Option<Vec<String>> {
        None
    }

    /// Whether the device takes firmware that nobody signed.
    fn synthetic_firmware_allowed(&self) -> bool {
        false
    }
}

/// A device with everything that watches it.
type Watched<B> = Count<Trace<B, TraceFile>>;

/// An open device on a bus.
pub struct BusSession<B: HostBus> {
    bus: Watched<B>,
    device: String,
}

impl<B: HostBus> BusSession<B> {
    /// Opens a device; nothing is done to it yet.
    pub fn new(bus: B, device: String, options: &OpenOptions) -> anyhow::Result<Self> {
        let trace = match &options.trace {
            None => TraceFile::default(),
            Some(path) => TraceFile::create(path, &device, &options.flow)
                .map_err(|e| CliError::Usage(format!("--trace {}: {e}", path.display())))?,
        };
        Ok(BusSession { bus: Count::new(Trace::new(bus, trace)), device })
    }
}

impl<B: HostBus> Session for BusSession<B> {
    fn device(&self) -> String {
        self.device.clone()
    }

    fn info(&mut self) -> anyhow::Result<Info> {
        let (memory, list) = amdev_core::discovery::discover(&mut self.bus)?;
        self.bus.inner_mut().sink_mut().discovered(&list);
        Ok(discovery::describe(&list, Some(memory)))
    }

    fn counts(&self) -> Counts {
        self.bus.counts()
    }

    fn violations(&mut self) -> Option<Vec<String>> {
        self.bus.inner().inner().violations()
    }

    fn release(self: Box<Self>) -> anyhow::Result<()> {
        let (_, trace) = self.bus.into_inner().into_parts();
        trace.finish()
    }
}
