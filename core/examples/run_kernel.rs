//! Runs a compiled kernel: `out[i] = a[i] + b[i]`.
//!
//! ```text
//! cargo run -p amdev-core --example run_kernel
//! ```

mod support;

use amdev_core::boot::Options;
use amdev_core::device::Probe;
use amdev_core::iface::AllocFlags;
use amdev_core::mm::{Block, VaRange};
use amdev_core::program::{CodeObject, HiddenValues};
use amdev_core::queue::dispatch::Launch;
use amdev_core::runtime::{Runtime, Sizes, Work};
use amdev_fw::{Versions, synthetic};
use std::error::Error;
use support::OsBus;

/// Compiled by clang for gfx1100 from `tests/corpus/src/vecadd.cl`.
const VECADD: &[u8] = include_bytes!("../../tests/corpus/co/vecadd.gfx1100.v5.O2.co");
/// Work-items of a group, and groups.
const BLOCK: u32 = 256;
const GROUPS: u32 = 4;

/// Runs the kernel; how long it took by the GPU's clock, in microseconds, and the sums.
pub(crate) fn run() -> Result<(f64, Vec<f32>), Box<dyn Error>> {
    // As in `own_bus.rs`.
    let bus = OsBus::find("navi31")?;
    let (device, revision) = bus.pci_id();
    let mut probe = Probe::open(bus)?;
    let mut firmware = synthetic::set(Versions::of(&probe.ips, device, revision)?)?;
    let report = probe.boot(&mut firmware, Options::default(), &mut |_| ())?;
    let (mut boot, mut pool, mut space) = ([Block::EMPTY; 64], [Block::EMPTY; 256], [Block::EMPTY; 256]);
    let va = VaRange::new(&mut space).map_err(|e| e.to_string())?;
    let gpu = probe.into_gpu(report.ready, &mut boot, &mut pool, &va)?;
    let mut gpu = Runtime::new(gpu, Sizes::default())?;

    // Memory, and what is in it.
    let n = BLOCK * GROUPS;
    let floats = |f: fn(f32) -> f32| (0..n).flat_map(|i| f(i as f32).to_le_bytes()).collect::<Vec<u8>>();
    let bytes = u64::from(n) * 4;
    let a = gpu.alloc(bytes, AllocFlags::empty())?;
    let b = gpu.alloc(bytes, AllocFlags::empty())?;
    let out = gpu.alloc(bytes, AllocFlags::empty())?;
    gpu.write(&a, &floats(|i| i))?;
    gpu.write(&b, &floats(|i| 0.5 * i))?;

    // The kernel, and its arguments: pointers here, then what the compiler adds.
    let object = CodeObject::parse(VECADD)?;
    let kernel = object.only_kernel()?;
    let program = gpu.load(&object)?;
    let launch = Launch { grid: [GROUPS, 1, 1], block: [BLOCK, 1, 1] };
    let mut args = vec![0; kernel.descriptor.kernarg_size as usize];
    let pointers = [out.va, a.va, b.va].map(u64::to_le_bytes);
    kernel.fill_args(&pointers.each_ref().map(|p| p.as_slice()), &mut args)?;
    kernel.fill_hidden(&launch, &HiddenValues::default(), &mut args)?;

    let timing = gpu.timing()?;
    let work = Work { program: &program, kernel: &kernel, launch, kernargs: &args, dynamic_lds: 0 };
    let ticket = gpu.launch(&work, Some(&timing))?;
    gpu.wait(ticket, 1_000_000)?;
    let took = gpu.elapsed_us(&timing)?;

    let mut sums = vec![0; bytes as usize];
    gpu.read(&out, &mut sums)?;
    let sums = sums.as_chunks::<4>().0.iter().map(|v| f32::from_le_bytes(*v)).collect();

    // Down, so that the next boot can be warm.
    gpu.unload(program)?;
    for buffer in [a, b, out] {
        gpu.free(buffer)?;
    }
    gpu.release()?;
    let mut gpu = gpu.into_iface();
    gpu.fini(&mut |_| ())?;
    match gpu.bus().misuse().as_slice() {
        [] => Ok((took, sums)),
        misuse => Err(misuse.join("; ").into()),
    }
}

#[allow(dead_code)] // the tests call `run`
fn main() -> Result<(), Box<dyn Error>> {
    let (took, sums) = run()?;
    println!("{} sums in {took} us: {:?} ...", sums.len(), sums.get(..8).unwrap_or_default());
    Ok(())
}
