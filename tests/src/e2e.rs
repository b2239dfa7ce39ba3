//! The driver on the simulated GPU, for end-to-end tests: a machine that boots with synthetic
//! firmware, a bus that tests can tamper with, and the corpus' cases as work for it.

pub mod cases;
pub mod tamper;

use amdev_cli::sim::SimBus;
use amdev_core::boot;
use amdev_core::device::{Gpu, Probe};
use amdev_core::firmware::FirmwareSource;
use amdev_core::mm::{Block, VaRange};
use amdev_core::runtime::{Runtime, Sizes};
use amdev_fw::files::Source;
use amdev_fw::{FirmwareSet, Versions, synthetic};
use amdev_sim::{Config, Rule, SimGpu};
pub use tamper::{Access, Control, Tamper, Verdict};

/// Allocator slots: as many allocations and gaps can live.
const SLOTS: usize = 1 << 14;
const BOOT_SLOTS: usize = 64;

/// What the driver is to its users.
pub type Queues = Runtime<Gpu<'static, Tamper>>;

fn slots(count: usize) -> &'static mut [Block] {
    Box::leak(vec![Block::EMPTY; count].into_boxed_slice())
}

/// A simulated GPU, and how to tamper with what the driver does to it. It outlives drivers.
#[derive(Clone)]
pub struct Bench {
    /// The GPU.
    pub gpu: SimGpu,
    /// What goes wrong.
    pub control: Control,
}

impl Bench {
    /// A GPU as `--device sim:` names it.
    pub fn new(config: &str) -> Bench {
        let config = Config::parse(config).unwrap_or_else(|e| panic!("{config}: {e}"));
        Bench { gpu: SimGpu::new(config), control: Control::default() }
    }

    /// The device, found but not booted.
    pub fn probe(&self) -> Probe<Tamper> {
        let bus = Tamper::new(SimBus::new(self.gpu.clone()), self.control.clone());
        Probe::open(bus).expect("the device is found")
    }

    /// Boots with the firmware given.
    pub fn boot_with(
        &self,
        probe: &mut Probe<Tamper>,
        firmware: &mut dyn FirmwareSource,
        cold: bool,
    ) -> Result<boot::Report, amdev_core::error::Error> {
        probe.boot(firmware, boot::Options { cold }, &mut |_| ())
    }

    /// Boots with synthetic firmware and makes queues.
    pub fn start(&self) -> (Queues, boot::Path) {
        self.start_sized(Sizes::default())
    }

    /// [`Bench::start`] with sizes of rings and pools.
    pub fn start_sized(&self, sizes: Sizes) -> (Queues, boot::Path) {
        let mut probe = self.probe();
        let mut firmware = firmware(&probe);
        let report = self.boot_with(&mut probe, &mut firmware, false).expect("the device boots");
        let gpu = into_gpu(probe, &report);
        (Runtime::new(gpu, sizes).expect("queues are made"), report.path)
    }

    /// Rules broken so far, each once, sorted; they are forgotten.
    pub fn rules(&self) -> Vec<Rule> {
        let mut rules: Vec<Rule> = self.gpu.take_violations().iter().map(|v| v.rule).collect();
        rules.sort();
        rules.dedup();
        rules
    }

    /// Byte offset in BAR5 of the register that flushes the HDP.
    pub fn flush_register(&self) -> u32 {
        let offset = self.reg("BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL");
        let mut bytes = [0; 4];
        self.gpu.read(5, offset, &mut bytes).expect("BAR5");
        u32::from_le_bytes(bytes)
    }

    /// Byte offset in BAR5 of a register.
    pub fn reg(&self, name: &str) -> u64 {
        let addr = self.gpu.register(name).unwrap_or_else(|| panic!("no register {name}"));
        u64::from(addr) * 4
    }
}

/// Adds the memory manager to a booted device.
pub fn into_gpu(probe: Probe<Tamper>, report: &boot::Report) -> Gpu<'static, Tamper> {
    let va = Box::leak(Box::new(VaRange::new(slots(SLOTS)).expect("slots for the virtual range")));
    probe.into_gpu(report.ready, slots(BOOT_SLOTS), slots(SLOTS), va).expect("memory is managed")
}

/// Synthetic firmware for a device.
pub fn firmware(probe: &Probe<Tamper>) -> FirmwareSet<Source> {
    let versions = Versions::of(&probe.ips, 0x744c, 0xc8).expect("versions");
    synthetic::set(versions).expect("synthetic firmware")
}
