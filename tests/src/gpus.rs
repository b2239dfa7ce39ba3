//! Simulated GPUs driven by the core, as the tests of whole devices need them.

use amdev_cli::session::OpenOptions;
use amdev_cli::sim::{SimBus, prepare};
use amdev_core::boot::{Options, Report};
use amdev_core::bus::Bus;
use amdev_core::device::{Gpu, Probe};
use amdev_core::discovery::IpList;
use amdev_core::iface::{AllocFlags, Iface as _};
use amdev_core::mm::{Block, VaRange};
use amdev_core::program::{CodeObject, HiddenValues};
use amdev_core::queue::dispatch::Launch;
use amdev_core::runtime::{Runtime, Sizes, Work};
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

/// Adds vectors of 512 floats with a kernel of the corpus and checks the sum.
pub fn vecadd<B: Bus>(runtime: &mut Runtime<Gpu<'_, B>>) -> anyhow::Result<()> {
    let target = runtime.iface().properties().target;
    let file = crate::corpus(&format!("co/vecadd.gfx{}-generic.v6.O2.co", target.major))?;
    let object = CodeObject::parse(&file)?;
    let kernel = object.only_kernel()?;
    let program = runtime.load(&object)?;
    let mut buffers = Vec::new();
    for _ in 0..3 {
        buffers.push(runtime.alloc(2048, AllocFlags::empty())?);
    }
    let [out, a, b] = buffers[..] else { anyhow::bail!("three buffers") };
    let floats = |f: fn(usize) -> f32| (0..512).flat_map(|i| f(i).to_le_bytes()).collect::<Vec<u8>>();
    runtime.write(&a, &floats(|i| i as f32))?;
    runtime.write(&b, &floats(|i| 0.5 * i as f32))?;
    let launch = Launch { grid: [2, 1, 1], block: [256, 1, 1] };
    let vas = [out, a, b].map(|b| b.va.to_le_bytes());
    let args: Vec<&[u8]> = vas.iter().map(|v| v.as_slice()).collect();
    let mut kernargs = vec![0; kernel.descriptor.kernarg_size as usize];
    kernel.fill_args(&args, &mut kernargs)?;
    kernel.fill_hidden(&launch, &HiddenValues::default(), &mut kernargs)?;
    let work = Work { program: &program, kernel: &kernel, launch, kernargs: &kernargs, dynamic_lds: 0 };
    let ticket = runtime.launch(&work, None)?;
    runtime.wait(ticket, 2_000_000)?;
    let mut sum = vec![0; 2048];
    runtime.read(&out, &mut sum)?;
    ensure!(sum == floats(|i| 1.5 * i as f32), "the sum differs");
    runtime.synchronize()?;
    runtime.unload(program)?;
    for buffer in buffers {
        runtime.free(buffer)?;
    }
    Ok(())
}

/// A bus on a GPU that a process has used before.
pub fn reopen(gpu: &SimGpu, assigned: &amdev_cli::sim::Assigned) -> SimBus {
    SimBus::reopen(gpu.clone(), assigned)
}
