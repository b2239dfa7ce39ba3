//! Simulated GPUs driven by the core, as the tests of whole devices need them.

use amdev_cli::session::OpenOptions;
use amdev_cli::sim::{SimBus, prepare};
use amdev_core::boot::{Options, Report};
use amdev_core::bus::Bus;
use amdev_core::device::{Gpu, Probe};
use amdev_core::discovery::IpList;
use amdev_core::iface::AllocFlags;
use amdev_core::mm::{Block, VaRange};
use amdev_core::runtime::{Runtime, Sizes};
use amdev_fw::files::Source;
use amdev_fw::{FirmwareSet, Versions, synthetic};
use amdev_sim::{Config, SimGpu};
use anyhow::{Context as _, ensure};

/// All GPUs that are simulated.
pub const GPUS: [&str; 5] = ["navi31", "navi32", "navi33", "navi44", "navi48"];

/// Synthetic firmware of a device.
pub fn firmware(ips: &IpList) -> anyhow::Result<FirmwareSet<Source>> {
    Ok(synthetic::set(Versions::of(ips, 0, 0)?)?)
}

/// A simulated GPU by what stands after `sim:`, in the state that it names.
pub fn gpu(text: &str) -> anyhow::Result<SimGpu> {
    let options = OpenOptions { synthetic_firmware: true, ..OpenOptions::default() };
    prepare(Config::parse(text)?, &options)
}

/// Opens and boots a device on this bus.
pub fn boot<B: Bus>(bus: B, options: Options) -> anyhow::Result<(Probe<B>, Report)> {
    let mut probe = Probe::open(bus)?;
    let mut fw = firmware(&probe.ips)?;
    let report = probe.boot(&mut fw, options, &mut |_| ())?;
    Ok((probe, report))
}

/// A process that boots a device, copies, and shuts it down; what the boot did.
pub fn process<B: Bus>(bus: B) -> anyhow::Result<Report> {
    let (probe, report) = boot(bus, Options::default()).context("boot")?;
    let slots = || vec![Block::EMPTY; 256];
    let (mut boot, mut pool, mut virt) = (slots(), slots(), slots());
    let va = VaRange::new(&mut virt).map_err(|e| anyhow::anyhow!("{e}"))?;
    let gpu = probe.into_gpu(report.ready, &mut boot, &mut pool, &va)?;
    let sizes = Sizes { staging: 1 << 16, kernargs: 1 << 16, timeout_us: 2_000_000, ..Sizes::default() };
    let mut runtime = Runtime::new(gpu, sizes)?;
    copy(&mut runtime).context("copy")?;
    runtime.release()?;
    runtime.into_iface().fini(&mut |_| ()).context("fini")?;
    Ok(report)
}

/// Host to VRAM to VRAM to host.
pub fn copy<B: Bus>(runtime: &mut Runtime<Gpu<'_, B>>) -> anyhow::Result<()> {
    let data: Vec<u8> = (0..5_000u32).flat_map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    let len = data.len() as u64;
    let a = runtime.alloc(len, AllocFlags::empty())?;
    let b = runtime.alloc(len, AllocFlags::empty())?;
    runtime.write(&a, &data)?;
    let ticket = runtime.copy(&b, &a, len)?;
    runtime.wait(ticket, 2_000_000)?;
    let mut back = vec![0; data.len()];
    runtime.read(&b, &mut back)?;
    ensure!(back == data, "the copy differs");
    runtime.synchronize()?;
    runtime.free(b)?;
    Ok(runtime.free(a)?)
}

/// A bus on a GPU that a process has used before.
pub fn reopen(gpu: &SimGpu, assigned: &amdev_cli::sim::Assigned) -> SimBus {
    SimBus::reopen(gpu.clone(), assigned)
}
