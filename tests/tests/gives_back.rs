//! What fails gives back what it took: VRAM, virtual addresses, memory of the host, queues, the bus.

use amdev_cli::sim::SimBus;
use amdev_core::boot::Options;
use amdev_core::bus::fault::{Fault, FaultPlan};
use amdev_core::bus::{BusError, Dma as _};
use amdev_core::device::{Gpu, Probe};
use amdev_core::iface::{AllocFlags, Iface as _};
use amdev_core::ip::Hub;
use amdev_core::mm::pte::PteFlags;
use amdev_core::mm::walk::translate;
use amdev_core::mm::{Block, VaRange};
use amdev_core::program::CodeObject;
use amdev_core::runtime::{Runtime, Sizes};
use amdev_tests::gpus::{self, GPUS, copy, gpu, process, vecadd};

const SIZES: Sizes = Sizes {
    compute_ring: 0x4000,
    sdma_ring: 0x4000,
    kernargs: 1 << 16,
    staging: 1 << 16,
    timeout_us: 2_000_000,
    ..Sizes::DEFAULT
};

type Bus = Fault<SimBus>;

/// What is free: VRAM, reservations of addresses, allocations of the host, queues.
fn free(gpu: &mut Gpu<'_, Bus>, va: &VaRange<'_>) -> (u64, usize, usize, [u32; 3]) {
    let queues = gpu.device().queues;
    let used = [queues.compute, queues.sdma[0].into(), queues.sdma[1].into()];
    (gpu.vm().pool().free_bytes(), va.reservations(), gpu.bus().inner().live_allocations(), used)
}

fn slots() -> Vec<Block> {
    vec![Block::EMPTY; 512]
}

/// Lets each access of `work` fail once, until it succeeds; `work` gives back itself what it made when
/// it succeeds. The number of accesses that failed.
fn fail_each(name: &str, step: u64, mut work: impl FnMut(&mut Gpu<'_, Bus>) -> Result<(), String>) -> u64 {
    let sim = gpu(name).unwrap();
    let bus = Fault::new(SimBus::new(sim.clone()), FaultPlan::default());
    let (probe, report) = gpus::boot(bus, Options::default()).unwrap();
    let (mut boot, mut pool, mut virt) = (slots(), slots(), slots());
    let va = VaRange::new(&mut virt).unwrap();
    let mut gpu = probe.into_gpu(report.ready, &mut boot, &mut pool, &va).unwrap();
    let before = free(&mut gpu, &va);
    let mut failed = 0;
    let mut k = 0;
    loop {
        let first = gpu.device().bus.accesses();
        let fail = Some((first + k, BusError::Timeout { after_us: 1 }));
        gpu.device().bus.set_plan(FaultPlan { fail, ..FaultPlan::default() });
        let result = work(&mut gpu);
        let ended = gpu.device().bus.accesses() <= first + k;
        gpu.device().bus.set_plan(FaultPlan::default());
        failed += u64::from(result.is_err());
        assert_eq!(free(&mut gpu, &va), before, "{name}: after access {k} failed: {result:?}");
        if ended {
            assert_eq!(result, Ok(()), "{name}: nothing failed");
            break;
        }
        k += step;
    }
    // All of it works afterwards.
    work(&mut gpu).unwrap();
    let mut runtime = Runtime::new(&mut gpu, SIZES).unwrap();
    runtime.release().unwrap();
    assert_eq!(free(&mut gpu, &va), before);
    assert_eq!(sim.violations(), [], "{name}");
    failed
}

#[test]
fn queues_and_pools_that_cannot_be_made_leave_nothing_allocated() {
    for (name, step) in [("navi31", 1), ("navi48", 3)] {
        let failed = fail_each(name, step, |gpu| {
            let mut runtime = Runtime::new(&mut *gpu, SIZES).map_err(|e| e.to_string())?;
            // What is made is given back without any fault.
            let gpu = runtime.iface();
            gpu.device().bus.set_plan(FaultPlan::default());
            runtime.release().map_err(|e| e.to_string())
        });
        assert!(failed > 150 / step, "{name}: {failed}");
    }
}

#[test]
fn memory_that_cannot_be_mapped_leaves_nothing_allocated() {
    let kinds = [
        AllocFlags::empty(),
        AllocFlags::CONTIGUOUS,
        AllocFlags::CPU_ACCESS | AllocFlags::UNCACHED,
        AllocFlags::HOST | AllocFlags::CPU_ACCESS,
    ];
    for flags in kinds {
        let failed = fail_each("navi33", 1, |gpu| {
            let buffer = gpu.alloc(0x5000, flags).map_err(|e| e.to_string())?;
            gpu.device().bus.set_plan(FaultPlan::default());
            gpu.free(buffer).map_err(|e| e.to_string())
        });
        assert!(failed > 5, "{flags:?}: {failed}");
    }
}

#[test]
fn memory_that_is_not_there_takes_no_addresses() {
    for name in ["navi31", "navi48"] {
        let bus = Fault::new(SimBus::new(gpu(name).unwrap()), FaultPlan::default());
        let (probe, report) = gpus::boot(bus, Options::default()).unwrap();
        let (mut boot, mut pool, mut virt) = (slots(), slots(), slots());
        let va = VaRange::new(&mut virt).unwrap();
        let mut gpu = probe.into_gpu(report.ready, &mut boot, &mut pool, &va).unwrap();
        let before = free(&mut gpu, &va);
        let most = gpu.vm().pool().free_bytes();
        for (size, flags) in [
            (most + 0x1000, AllocFlags::empty()),
            (most + 0x1000, AllocFlags::CONTIGUOUS),
            (u64::MAX - 0x1000, AllocFlags::empty()),
            (u64::MAX - 0x1000, AllocFlags::HOST),
            (8 << 30, AllocFlags::HOST),
        ] {
            let refused = gpu.alloc(size, flags);
            assert!(refused.is_err(), "{name}: {size:#x} {flags:?}: {refused:?}");
            assert_eq!(free(&mut gpu, &va), before, "{name}: {size:#x} {flags:?}");
        }
        let buffer = gpu.alloc(most / 2, AllocFlags::empty()).unwrap();
        gpu.free(buffer).unwrap();
        assert_eq!(free(&mut gpu, &va), before, "{name}");
    }
}

#[test]
fn a_program_that_cannot_be_loaded_leaves_nothing_allocated() {
    let sim = gpu("navi31").unwrap();
    let bus = Fault::new(SimBus::new(sim.clone()), FaultPlan::default());
    let (probe, report) = gpus::boot(bus, Options::default()).unwrap();
    let (mut boot, mut pool, mut virt) = (slots(), slots(), slots());
    let va = VaRange::new(&mut virt).unwrap();
    let gpu = probe.into_gpu(report.ready, &mut boot, &mut pool, &va).unwrap();
    let mut runtime = Runtime::new(gpu, SIZES).unwrap();
    let file = amdev_tests::corpus("co/vecadd.gfx1100.v5.O2.co").unwrap();
    let object = CodeObject::parse(&file).unwrap();
    let before = free(runtime.iface(), &va);
    let mut k = 0;
    loop {
        let bus = &mut runtime.iface().device().bus;
        let first = bus.accesses();
        let fail = Some((first + k, BusError::Timeout { after_us: 1 }));
        bus.set_plan(FaultPlan { fail, ..FaultPlan::default() });
        let result = runtime.load(&object);
        let bus = &mut runtime.iface().device().bus;
        let ended = bus.accesses() <= first + k;
        bus.set_plan(FaultPlan::default());
        if let Ok(program) = result {
            runtime.unload(program).unwrap();
        }
        assert_eq!(free(runtime.iface(), &va), before, "after access {k} failed");
        if ended {
            break;
        }
        k += 1;
    }
    assert!(k > 5, "{k}");
    vecadd(&mut runtime).unwrap();
    runtime.release().unwrap();
}

#[test]
fn a_device_that_is_not_understood_gives_its_bus_back() {
    let sim = gpu("navi31").unwrap();
    let mut bus = Fault::new(SimBus::new(sim), FaultPlan::default());
    let dma = bus.dma_alloc(0x1000).unwrap();
    for k in 0..40 {
        let fail = Some((bus.accesses() + k, BusError::Timeout { after_us: 1 }));
        bus.set_plan(FaultPlan { fail, ..FaultPlan::default() });
        let opened = Probe::open(&mut bus).map(|p| p.detach());
        bus.set_plan(FaultPlan::default());
        if opened.is_ok() {
            assert!(k > 0, "the first access failed");
            break;
        }
    }
    // The host can release what it has, and go on.
    bus.dma_free(dma).unwrap();
    let found = Probe::open(&mut bus).unwrap().detach();
    let probe = found.on(bus);
    assert_eq!(probe.device.chip.name, "Navi31");
    process(probe.device.into_bus()).unwrap();
}

#[test]
fn a_runtime_over_a_lent_gpu_goes_on_over_the_gpu_itself() {
    let (probe, report) = gpus::boot(SimBus::new(gpu("navi44").unwrap()), Options::default()).unwrap();
    let (mut boot, mut pool, mut virt) = (slots(), slots(), slots());
    let va = VaRange::new(&mut virt).unwrap();
    let mut gpu = probe.into_gpu(report.ready, &mut boot, &mut pool, &va).unwrap();
    let runtime = Runtime::new(&mut gpu, SIZES).unwrap().map_iface(|_| ());
    let mut runtime = runtime.map_iface(|()| gpu);
    copy(&mut runtime).unwrap();
    vecadd(&mut runtime).unwrap();
    runtime.release().unwrap();
}

#[test]
fn only_the_memory_of_programs_is_executable() {
    for name in GPUS {
        let (probe, report) = gpus::boot(SimBus::new(gpu(name).unwrap()), Options::default()).unwrap();
        let (mut boot, mut pool, mut virt) = (slots(), slots(), slots());
        let va = VaRange::new(&mut virt).unwrap();
        let mut gpu = probe.into_gpu(report.ready, &mut boot, &mut pool, &va).unwrap();
        let space = gpu.vm().space();
        for (flags, executable) in [
            (AllocFlags::empty(), false),
            (AllocFlags::HOST, false),
            (AllocFlags::CPU_ACCESS | AllocFlags::UNCACHED, false),
            (AllocFlags::EXECUTABLE, true),
            (AllocFlags::EXECUTABLE | AllocFlags::CPU_ACCESS, true),
        ] {
            let buffer = gpu.alloc(0x3000, flags).unwrap();
            let (_, _, entry) = translate(gpu.device(), &space, buffer.va).unwrap().unwrap();
            assert_eq!(entry.flags.contains(PteFlags::EXECUTABLE), executable, "{name} {flags:?}");
            gpu.free(buffer).unwrap();
        }
        assert!(gpu.device().is_hub_on(Hub::Gc));
    }
}
