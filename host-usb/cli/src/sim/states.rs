//! The states a GPU can be found in, made as they come about.
//!
//! What this driver leaves behind is not modelled by the simulator, which knows nothing of it: the
//! driver boots the fresh device and shuts it down (`state=amdev`), or its process dies with queues
//! running (`state=malformed`).

use super::SimBus;
use crate::bus_session::firmware_of;
use crate::error::CliError;
use crate::session::OpenOptions;
use amdev_core::boot::Options;
use amdev_core::bus::Bus;
use amdev_core::device::{Gpu, Probe};
use amdev_core::mm::{Block, VaRange};
use amdev_core::runtime::{Runtime, Sizes};
use amdev_sim::{Config, SimGpu, State};
use anyhow::Context as _;

/// Allocator slots of the process that ran before: it allocates queues and pools only.
const SLOTS: usize = 256;

/// A GPU in the state that its description names.
///
/// # Errors
/// Where making the state failed, or the driver misused the device on the way.
pub fn prepare(config: Config, options: &OpenOptions) -> anyhow::Result<SimGpu> {
    let state = config.state;
    let (State::Amdev | State::Malformed) = state else { return Ok(SimGpu::new(config)) };
    // Faults are for who opens the device now.
    let faults = config.faults.clone();
    let foreign_mark = Some(config.scratch7).filter(|v| *v != Config::REFERENCE_SCRATCH7);
    let gpu = SimGpu::new(Config { state: State::Cold, faults: Vec::new(), ..config });
    run_before(&gpu, state, options).with_context(|| format!("making the state {state:?} of the device"))?;
    let violations = gpu.take_violations();
    if let Some(first) = violations.first() {
        return Err(
            CliError::Device(format!("the driver that ran before misused the device: {first}")).into()
        );
    }
    if let (Some(mark), Some(addr)) = (foreign_mark, gpu.register("SCRATCH_REG7")) {
        gpu.write(5, u64::from(addr) * 4, &mark.to_le_bytes())?;
    }
    gpu.start_anew(faults);
    Ok(gpu)
}

/// The process that drove the device before.
fn run_before(gpu: &SimGpu, state: State, options: &OpenOptions) -> anyhow::Result<()> {
    let mut probe = Probe::open(SimBus::new(gpu.clone()))?;
    let id = crate::bus_session::HostBus::pci_id(&mut probe.device.bus);
    // Whatever the command asks for: it does not see this process.
    let options = OpenOptions { synthetic_firmware: true, ..options.clone() };
    let (mut fw, _) = firmware_of(&probe.ips, id, &options, true)?;
    let report = probe.boot(&mut fw, Options::default(), &mut |_| ())?;
    let (mut boot, mut pool, mut blocks) =
        (vec![Block::EMPTY; SLOTS], vec![Block::EMPTY; SLOTS], vec![Block::EMPTY; SLOTS]);
    let va = VaRange::new(&mut blocks).map_err(|e| anyhow::anyhow!("{e}"))?;
    let gpu = probe.into_gpu(report.ready, &mut boot, &mut pool, &va)?;
    let mut runtime = Runtime::new(gpu, Sizes::default())?;
    if state == State::Malformed {
        // The process dies here; its IOMMU mappings go with it.
        return Ok(());
    }
    runtime.synchronize()?;
    runtime.release()?;
    finish(runtime.into_iface())
}

fn finish<B: Bus>(mut gpu: Gpu<'_, B>) -> anyhow::Result<()> {
    gpu.fini(&mut |_| ())?;
    Ok(())
}
