//! The driver behind the simulated USB bridge.

use amdev_cli::bus_session::HostBus as _;
use amdev_core::boot;
use amdev_core::device::{Gpu, Probe};
use amdev_core::mm::{Block, VaRange};
use amdev_core::runtime::{Runtime, Sizes};
use amdev_fw::files::Source;
use amdev_fw::{FirmwareSet, Versions, synthetic};
use amdev_sim::bridge::usb::UsbCounts;
use amdev_sim::bridge::{Bridge, BridgeConfig};
use amdev_usb::bus::UsbBus;
use amdev_usb::error::UsbError;
use amdev_usb::sim::SimPort;

/// Allocator slots: as many allocations and gaps can live. They are never given back, and there are tests
/// that boot tens of thousands of times.
const SLOTS: usize = 1 << 8;

/// What the driver is to its users.
pub type Queues = Runtime<Gpu<'static, UsbBus>>;

/// A bridge with its GPU; it outlives drivers.
pub struct UsbBench {
    /// The bridge.
    pub bridge: Bridge,
}

fn slots(count: usize) -> &'static mut [Block] {
    Box::leak(vec![Block::EMPTY; count].into_boxed_slice())
}

impl UsbBench {
    /// As `--device sim-usb:` names it.
    pub fn new(config: &str) -> UsbBench {
        let config = BridgeConfig::parse(config).unwrap_or_else(|e| panic!("{config}: {e}"));
        UsbBench { bridge: Bridge::new(config) }
    }

    /// Opens the bridge and configures what is behind it.
    ///
    /// # Errors
    /// [`UsbError`]
    pub fn open(&self) -> Result<UsbBus, UsbError> {
        amdev_usb::backend::bus(Box::new(SimPort::new(self.bridge.clone())))
    }

    /// The device, found but not booted.
    pub fn probe(&self) -> anyhow::Result<Probe<UsbBus>> {
        Ok(Probe::open(self.open()?)?)
    }

    /// Boots with synthetic firmware.
    ///
    /// # Errors
    /// What the device does not do.
    pub fn boot(&self, probe: &mut Probe<UsbBus>) -> anyhow::Result<boot::Report> {
        Ok(self.boot_in_stages(probe)?.0)
    }

    /// [`UsbBench::boot`], and the commands of each stage.
    ///
    /// # Errors
    /// What the device does not do.
    pub fn boot_in_stages(
        &self,
        probe: &mut Probe<UsbBus>,
    ) -> anyhow::Result<(boot::Report, Vec<(String, u64)>)> {
        let mut firmware = firmware(probe)?;
        let mut stages: Vec<(String, u64)> = Vec::new();
        let mut before = self.bridge.counts().usb_commands;
        let report = probe.boot(&mut firmware, boot::Options::default(), &mut |event| {
            let now = self.bridge.counts().usb_commands;
            if let Some((_, commands)) = stages.last_mut() {
                *commands = now - before;
            }
            before = now;
            if let Some(stage) = event.stage {
                stages.push((stage.to_string(), 0));
            }
        })?;
        Ok((report, stages))
    }

    /// Boots and makes queues.
    pub fn start(&self) -> anyhow::Result<(Queues, boot::Path)> {
        let mut probe = self.probe()?;
        let report = self.boot(&mut probe)?;
        let sizes = probe.device.bus.sizes();
        Ok((Runtime::new(into_gpu(probe, &report)?, sizes)?, report.path))
    }

    /// What it cost at the wire since the last call of this.
    pub fn take_counts(&self) -> UsbCounts {
        let counts = self.bridge.counts();
        self.bridge.start_anew(Vec::new());
        counts
    }

    /// Asserts that neither bridge nor GPU were misused.
    pub fn assert_clean(&self) {
        let misuse = self.bridge.take_violations();
        assert!(misuse.is_empty(), "{misuse:#?}");
    }
}

/// Adds the memory manager.
///
/// # Errors
/// What the bus does not do.
pub fn into_gpu(probe: Probe<UsbBus>, report: &boot::Report) -> anyhow::Result<Gpu<'static, UsbBus>> {
    let va = Box::leak(Box::new(VaRange::new(slots(SLOTS))?));
    Ok(probe.into_gpu(report.ready, slots(64), slots(SLOTS), va)?)
}

/// Synthetic firmware for a device.
///
/// # Errors
/// Versions without firmware.
pub fn firmware(probe: &Probe<UsbBus>) -> anyhow::Result<FirmwareSet<Source>> {
    Ok(synthetic::set(Versions::of(&probe.ips, 0x744c, 0xc8)?)?)
}

/// Sizes that suit a bridge.
pub fn sizes(bus: &UsbBus) -> Sizes {
    bus.sizes()
}

/// Shuts down in order.
///
/// # Errors
/// What the device does not do.
pub fn stop(mut queues: Queues) -> anyhow::Result<()> {
    queues.synchronize()?;
    queues.release()?;
    let mut gpu = queues.into_iface();
    gpu.fini(&mut |_| ())?;
    gpu.into_probe().device.into_bus().close()
}
