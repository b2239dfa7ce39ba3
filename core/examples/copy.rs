//! Copies by SDMA: host to VRAM, VRAM to VRAM, VRAM to host.
//!
//! ```text
//! cargo run -p amdev-core --example copy
//! ```

mod support;

use amdev_core::boot::Options;
use amdev_core::bus::count::Count;
use amdev_core::device::Probe;
use amdev_core::iface::AllocFlags;
use amdev_core::mm::{Block, VaRange};
use amdev_core::runtime::{Runtime, Sizes};
use amdev_fw::{Versions, synthetic};
use std::error::Error;
use support::OsBus;

/// Copies `data` there and back; what came back, and how many bytes the CPU itself wrote to VRAM
/// for it: rings and page tables, not the data.
pub(crate) fn run(data: &[u8]) -> Result<(Vec<u8>, u64), Box<dyn Error>> {
    let bus = OsBus::find("navi48")?;
    let (device, revision) = bus.pci_id();
    // Decorators compose: this one counts accesses.
    let mut probe = Probe::open(Count::new(bus))?;
    let mut firmware = synthetic::set(Versions::of(&probe.ips, device, revision)?)?;
    let report = probe.boot(&mut firmware, Options::default(), &mut |_| ())?;
    let (mut boot, mut pool, mut space) = ([Block::EMPTY; 64], [Block::EMPTY; 256], [Block::EMPTY; 256]);
    let va = VaRange::new(&mut space).map_err(|e| e.to_string())?;
    let gpu = probe.into_gpu(report.ready, &mut boot, &mut pool, &va)?;
    let mut gpu = Runtime::new(gpu, Sizes::default())?;

    let len = data.len() as u64;
    let (from, to) = (gpu.alloc(len, AllocFlags::empty())?, gpu.alloc(len, AllocFlags::empty())?);
    let before = gpu.iface_ref().bus().counts();
    gpu.write(&from, data)?;
    // Nothing is waited for in between: each submission waits for the one before it on the GPU.
    gpu.copy(&to, &from, len)?;
    let mut back = vec![0; data.len()];
    gpu.read(&to, &mut back)?;
    let written = gpu.iface_ref().bus().counts().since(&before).vram.bytes_written;

    gpu.free(from)?;
    gpu.free(to)?;
    gpu.release()?;
    let mut gpu = gpu.into_iface();
    gpu.fini(&mut |_| ())?;
    match gpu.bus().inner().misuse().as_slice() {
        [] => Ok((back, written)),
        misuse => Err(misuse.join("; ").into()),
    }
}

#[allow(dead_code)] // the tests call `run`
fn main() -> Result<(), Box<dyn Error>> {
    let data: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
    let (back, written) = run(&data)?;
    println!("{} bytes there and back: {}", data.len(), if back == data { "right" } else { "WRONG" });
    println!("{written} bytes written to VRAM by the CPU");
    Ok(())
}
