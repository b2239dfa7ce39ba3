//! A 256 MiB window onto the VRAM: what lies beyond it is reached by index registers or by SDMA.

use amdev_cli::sim::SimBus;
use amdev_core::boot::Options;
use amdev_core::bus::count::Count;
use amdev_core::bus::window::SmallBar;
use amdev_core::device::Gpu;
use amdev_core::iface::{AllocFlags, Buffer, Iface as _, IfaceError};
use amdev_core::mm::{Block, VaRange};
use amdev_core::runtime::{Runtime, Sizes};
use amdev_sim::SimGpu;
use amdev_tests::gpus::{self, GPUS, gpu, vecadd};

const APERTURE: u64 = 256 << 20;
const SIZES: Sizes = Sizes {
    compute_ring: 0x4000,
    sdma_ring: 0x4000,
    kernargs: 1 << 16,
    staging: 4 << 20,
    timeout_us: 2_000_000,
    ..Sizes::DEFAULT
};

type Bus = SmallBar<Count<SimBus>>;

fn storage() -> &'static mut [Block] {
    Box::leak(vec![Block::EMPTY; 512].into_boxed_slice())
}

/// A booted GPU whose window shows the first 256 MiB.
fn booted(name: &str) -> (SimGpu, Gpu<'static, Bus>) {
    let sim = gpu(&format!("{name},bar=256M")).unwrap();
    let bus = SmallBar::new(Count::new(SimBus::new(sim.clone())), sim.config().chip.vram_bytes());
    let (probe, report) = gpus::boot(bus, Options::default()).unwrap();
    let va = Box::leak(Box::new(VaRange::new(storage()).unwrap()));
    (sim, probe.into_gpu(report.ready, storage(), storage(), va).unwrap())
}

/// Takes all VRAM that the window shows.
fn fill(gpu: &mut Gpu<'static, Bus>) -> Buffer {
    let start = gpu.vm().pool().range().start;
    let visible = gpu.alloc(APERTURE - start, AllocFlags::CONTIGUOUS).unwrap();
    let segment = gpu.peer_segment(&visible).unwrap();
    let base = amdev_core::bus::Dma::peer_vram_base(gpu.bus()).unwrap();
    assert_eq!(segment.addr - base + segment.len, APERTURE, "the window is taken to its end");
    visible
}

fn register_writes(runtime: &mut Runtime<Gpu<'static, Bus>>) -> u64 {
    runtime.iface().bus().inner().counts().registers.writes
}

#[test]
fn queues_pools_and_kernels_beyond_the_window_work() {
    for name in GPUS {
        let (sim, mut gpu) = booted(name);
        let visible = fill(&mut gpu);
        // Rings, pointers, MQD and kernel arguments lie beyond now, page tables too.
        let mut runtime = Runtime::new(gpu, SIZES).unwrap();
        let before = register_writes(&mut runtime);
        vecadd(&mut runtime).unwrap_or_else(|e| panic!("{name}: {e:#}"));
        assert!(register_writes(&mut runtime) > before + 1000, "{name}: the index registers were used");
        runtime.free(visible).unwrap();
        runtime.release().unwrap();
        assert_eq!(sim.violations(), [], "{name}");
    }
}

#[test]
fn data_beyond_the_window_goes_by_sdma_and_not_dword_by_dword() {
    for name in ["navi31", "navi48"] {
        let (sim, gpu) = booted(name);
        let mut runtime = Runtime::new(gpu, SIZES).unwrap();
        // Queues and pools lie inside, data beyond.
        let free = runtime.iface().vm().pool().largest_free();
        let most = runtime.alloc((APERTURE - (48 << 20)).min(free), AllocFlags::CONTIGUOUS).unwrap();
        let rest = runtime.alloc(64 << 20, AllocFlags::CONTIGUOUS).unwrap();
        let refused = runtime.iface().peer_segment(&rest);
        assert!(matches!(refused, Err(IfaceError::Unsupported(_))), "{name}: {refused:?}");
        let data: Vec<u8> = (0..2u32 << 20).flat_map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
        let part = rest.slice(32 << 20, data.len() as u64).unwrap();
        let before = register_writes(&mut runtime);
        runtime.write(&part, &data).unwrap();
        let mut back = vec![0; data.len()];
        runtime.read(&part, &mut back).unwrap();
        assert!(back == data, "{name}");
        let writes = register_writes(&mut runtime) - before;
        assert!(writes < 1000, "{name}: {writes} register writes for 8 MiB there and back");
        runtime.synchronize().unwrap();
        runtime.free(rest).unwrap();
        runtime.free(most).unwrap();
        runtime.release().unwrap();
        assert_eq!(sim.violations(), [], "{name}");
    }
}

#[test]
fn memory_beyond_the_window_is_read_and_written_by_the_cpu_all_the_same() {
    let (sim, mut gpu) = booted("navi44");
    let visible = fill(&mut gpu);
    let beyond = gpu.alloc(0x3000, AllocFlags::CPU_ACCESS | AllocFlags::UNCACHED).unwrap();
    let data: Vec<u8> = (0..0x2345u32).map(|i| (i * 7 + 3) as u8).collect();
    gpu.write(&beyond, 0x103, &data).unwrap();
    let mut back = vec![0; data.len()];
    gpu.read(&beyond, 0x103, &mut back).unwrap();
    assert!(back == data);
    gpu.write64(&beyond, 0x108, 0x1122_3344_5566_7788).unwrap();
    assert_eq!(gpu.read64(&beyond, 0x108), Ok(0x1122_3344_5566_7788));
    gpu.free(beyond).unwrap();
    gpu.free(visible).unwrap();
    assert_eq!(sim.violations(), []);
}
