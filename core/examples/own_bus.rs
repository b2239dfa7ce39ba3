//! Brings a GPU up from an operating system's own bus, and down again.
//!
//! ```text
//! cargo run -p amdev-core --example own_bus
//! ```
//!
//! The bus stands in `support/mod.rs`: it is all that an OS has to write. Here a simulated GPU takes
//! the place of the hardware, and firmware is synthetic; `tests/bare` does the same on a bare machine.

mod support;

use amdev_core::boot::Options;
use amdev_core::bus::window::SmallBar;
use amdev_core::device::Probe;
use amdev_core::mm::{Block, VaRange};
use amdev_fw::{Versions, synthetic};
use std::error::Error;
use support::OsBus;

/// Boots the GPU; what was done, a line each.
pub(crate) fn run() -> Result<Vec<String>, Box<dyn Error>> {
    let mut said = Vec::new();
    let bus = OsBus::find("navi31")?;
    let (device, revision) = bus.pci_id();

    // Discovery: reads only. The decorator reaches VRAM beyond a BAR0 that was not resized.
    let mut probe = Probe::open(SmallBar::new(bus, 0))?;
    let vram = probe.device.layout.vram_len();
    probe.device.bus.set_vram_len(vram);
    said.push(format!("found {device:04x}, GC {:?}, {} MiB of VRAM", probe.device.chip.gc, vram >> 20));
    said.push(format!("state: {}", probe.state()?));

    // Firmware: an OS opens AMD's files with `FirmwareSet::open` and any `embedded_io` reader.
    let mut firmware = synthetic::set(Versions::of(&probe.ips, device, revision)?)?;
    let report = probe.boot(&mut firmware, Options::default(), &mut |event| {
        if let Some(stage) = event.stage {
            said.push(format!("{stage} at {} us", event.at_us));
        }
    })?;
    said.push(format!("booted ({}: {})", report.path, report.reason));

    // State of the allocators lives in memory that the caller lends.
    let (mut boot, mut pool, mut space) = ([Block::EMPTY; 64], [Block::EMPTY; 256], [Block::EMPTY; 256]);
    let va = VaRange::new(&mut space).map_err(|e| e.to_string())?;
    let mut gpu = probe.into_gpu(report.ready, &mut boot, &mut pool, &va)?;
    // From here on `Runtime::new(gpu, ..)` copies and runs kernels: see the other examples.
    gpu.fini(&mut |_| ())?;
    let mut probe = gpu.into_probe();
    said.push(format!("shut down; state: {}", probe.state()?));
    match probe.device.bus.inner().misuse().as_slice() {
        [] => Ok(said),
        misuse => Err(misuse.join("; ").into()),
    }
}

#[allow(dead_code)] // the tests call `run`
fn main() -> Result<(), Box<dyn Error>> {
    run()?.iter().for_each(|line| println!("{line}"));
    Ok(())
}
