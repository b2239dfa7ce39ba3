//! Copies, kernels, rings and pools of the runtime on the simulated Navi31, and what it leaves.

use amdev_core::boot::Path;
use amdev_core::hang::Cause;
use amdev_core::iface::{AllocFlags, Buffer, Iface as _, IfaceError, QueueKind};
use amdev_core::program::{CodeObject, HiddenValues};
use amdev_core::queue::QueueError;
use amdev_core::queue::dispatch::Launch;
use amdev_core::runtime::{Sizes, Ticket, Work};
use amdev_tests::e2e::{Bench, Queues};

fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let next = |x: &u32| Some(x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    std::iter::successors(Some(seed), next).skip(1).take(len).map(|x| (x >> 24) as u8).collect()
}

fn round_trip(runtime: &mut Queues, len: usize) {
    let data = pattern(len, len as u32);
    let [a, b] = [(); 2].map(|()| runtime.alloc(len as u64 + 64, AllocFlags::empty()).unwrap());
    runtime.write(&b, &vec![0xee; len + 64]).unwrap();
    runtime.write(&a, &data).unwrap();
    runtime.copy(&b, &a, len as u64).unwrap();
    let mut out = vec![0; len + 64];
    runtime.read(&b, &mut out).unwrap();
    assert!(out[..len] == data, "{len} bytes");
    assert!(out[len..].iter().all(|b| *b == 0xee), "bytes after {len} are untouched");
    for buffer in [a, b] {
        runtime.free(buffer).unwrap();
    }
}

/// Adds vectors of 512 floats `times` times and checks the sum.
fn kernels(runtime: &mut Queues, times: usize) -> Vec<Ticket> {
    let target = runtime.iface().properties().target;
    let file = amdev_tests::corpus(&format!("co/vecadd.{target}.v5.O2.co")).unwrap();
    let object = CodeObject::parse(&file).unwrap();
    let kernel = object.only_kernel().unwrap();
    let program = runtime.load(&object).unwrap();
    let buffers: Vec<Buffer> = (0..3).map(|_| runtime.alloc(2048, AllocFlags::empty()).unwrap()).collect();
    let floats = |f: fn(usize) -> f32| (0..512).flat_map(|i| f(i).to_le_bytes()).collect::<Vec<u8>>();
    runtime.write(&buffers[1], &floats(|i| i as f32)).unwrap();
    runtime.write(&buffers[2], &floats(|i| 0.5 * i as f32)).unwrap();
    let launch = Launch { grid: [2, 1, 1], block: [256, 1, 1] };
    let vas: Vec<[u8; 8]> = buffers.iter().map(|b| b.va.to_le_bytes()).collect();
    let args: Vec<&[u8]> = vas.iter().map(|v| v.as_slice()).collect();
    let mut kernargs = vec![0; kernel.descriptor.kernarg_size as usize];
    kernel.fill_args(&args, &mut kernargs).unwrap();
    kernel.fill_hidden(&launch, &HiddenValues::default(), &mut kernargs).unwrap();
    let work = Work { program: &program, kernel: &kernel, launch, kernargs: &kernargs, dynamic_lds: 0 };
    let tickets = (0..times).map(|_| runtime.launch(&work, None).unwrap()).collect();
    let mut out = vec![0; 2048];
    runtime.read(&buffers[0], &mut out).unwrap();
    assert_eq!(out, floats(|i| 1.5 * i as f32));
    runtime.unload(program).unwrap();
    for buffer in buffers {
        runtime.free(buffer).unwrap();
    }
    tickets
}

#[test]
fn copies_of_odd_sizes_are_exact_and_touch_nothing_else() {
    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start();
    for len in [1, 2, 3, 4, 5, 7, 63, 64, 65, 255, 4095, 4096, 4097, 65_537, 1_000_003] {
        round_trip(&mut runtime, len);
    }
    assert_eq!(bench.rules(), []);
}

#[test]
fn copies_cross_both_halves_of_the_staging_memory_at_every_alignment() {
    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start_sized(Sizes { staging: 0x4000, ..Sizes::default() });
    for len in [0x1fff, 0x2000, 0x2001, 0x3fff, 0x4000, 0x4001, 0x5fff, 0x6000, 0x6001, 0x2_0007] {
        round_trip(&mut runtime, len);
    }
    assert_eq!(bench.rules(), []);
}

#[test]
fn a_copy_of_more_than_64_mib_is_exact() {
    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start();
    round_trip(&mut runtime, (64 << 20) + 12_345);
    assert_eq!(bench.rules(), []);
}

#[test]
fn small_rings_wrap_hundreds_of_times() {
    let bench = Bench::new("navi31");
    let sizes = Sizes {
        compute_ring: 0x1000,
        sdma_ring: 0x200,
        staging: 0x2000,
        kernargs: 0x1000,
        ..Sizes::default()
    };
    let (mut runtime, _) = bench.start_sized(sizes);
    round_trip(&mut runtime, 0x10_0001);
    let tickets = kernels(&mut runtime, 300);
    let spread = tickets.last().unwrap().0 - tickets[0].0;
    assert_eq!(spread, 299, "each submission is one step of the timeline");
    round_trip(&mut runtime, 0x8001);
    assert_eq!(bench.rules(), []);
}

#[test]
fn freeing_memory_is_refused_while_work_is_pending_and_fine_afterwards() {
    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start();
    let [a, b] = [(); 2].map(|()| runtime.alloc(1 << 20, AllocFlags::empty()).unwrap());
    let ticket = runtime.copy(&b, &a, 1 << 20).unwrap();
    let refused = runtime.free(a);
    assert!(
        matches!(refused, Err(QueueError::Iface(IfaceError::InUse { va, .. })) if va == a.va),
        "{refused:?}"
    );
    runtime.wait(ticket, 1_000_000).unwrap();
    runtime.free(a).unwrap();
    runtime.free(b).unwrap();
    assert_eq!(bench.rules(), []);
}

#[test]
fn memory_is_freed_once_and_only_as_a_whole() {
    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start();
    for flags in [AllocFlags::empty(), AllocFlags::HOST | AllocFlags::CPU_ACCESS] {
        let a = runtime.alloc(0x3000, flags).unwrap();
        let part = runtime.free(a.slice(0x1000, 0x1000).unwrap());
        assert!(matches!(part, Err(QueueError::Iface(IfaceError::NotAllocated { .. }))), "{part:?}");
        runtime.free(a).unwrap();
        let again = runtime.free(a);
        assert!(again.is_err(), "freed twice: {again:?}");
    }
    round_trip(&mut runtime, 4096);
    assert_eq!(bench.rules(), []);
}

#[test]
fn running_out_of_memory_is_an_error_and_changes_nothing() {
    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start();
    let free = runtime.iface().vm().pool().free_bytes();
    let too_much = runtime.alloc(free + 0x1000, AllocFlags::empty());
    assert!(
        matches!(too_much, Err(QueueError::Iface(IfaceError::OutOfMemory { what: "VRAM", .. }))),
        "{too_much:?}"
    );
    let host = runtime.alloc(1 << 40, AllocFlags::HOST);
    assert!(host.is_err(), "{host:?}");
    let none = runtime.alloc(0, AllocFlags::empty());
    assert!(none.is_err(), "{none:?}");
    assert_eq!(runtime.iface().vm().pool().free_bytes(), free);
    round_trip(&mut runtime, 4096);
    assert_eq!(bench.rules(), []);
}

#[test]
fn timestamps_grow_and_agree_with_the_clock_of_the_device() {
    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start();
    let file = amdev_tests::corpus("co/fill.gfx1100.v5.O2.co").unwrap();
    let object = CodeObject::parse(&file).unwrap();
    let kernel = object.only_kernel().unwrap();
    let program = runtime.load(&object).unwrap();
    let n = 1u32 << 14;
    let buffer = runtime.alloc(u64::from(n) * 4, AllocFlags::empty()).unwrap();
    let mut times = Vec::new();
    for groups in [1u32, 64] {
        let launch = Launch { grid: [groups, 1, 1], block: [256, 1, 1] };
        let mut kernargs = vec![0; kernel.descriptor.kernarg_size as usize];
        kernel
            .fill_args(&[&buffer.va.to_le_bytes(), &7u32.to_le_bytes(), &n.to_le_bytes()], &mut kernargs)
            .unwrap();
        kernel.fill_hidden(&launch, &HiddenValues::default(), &mut kernargs).unwrap();
        let work = Work { program: &program, kernel: &kernel, launch, kernargs: &kernargs, dynamic_lds: 0 };
        let timing = runtime.timing().unwrap();
        let before = bench.gpu.now_us();
        let ticket = runtime.launch(&work, Some(&timing)).unwrap();
        runtime.wait(ticket, 10_000_000).unwrap();
        let (took, outside) = (runtime.elapsed_us(&timing).unwrap(), bench.gpu.now_us() - before);
        // The clock counts whole microseconds: up to one is missing at each end.
        assert!(took > 0.0 && took <= outside as f64 + 2.0, "{took} us inside {outside} us");
        times.push(took);
    }
    assert!(times[1] > times[0], "64 workgroups take longer than one: {times:?}");
    assert_eq!(bench.rules(), []);
}

#[test]
fn releasing_the_runtime_leaves_nothing_allocated() {
    let bench = Bench::new("navi31");
    let mut probe = bench.probe();
    let mut firmware = amdev_tests::e2e::firmware(&probe);
    let report = bench.boot_with(&mut probe, &mut firmware, false).unwrap();
    let gpu = amdev_tests::e2e::into_gpu(probe, &report);
    let free = gpu.vm().pool().free_bytes();
    let boot = gpu.vm().boot_region().free_bytes();
    assert_eq!(gpu.bus().inner().live_allocations(), 0);
    let mut runtime = Queues::new(gpu, Sizes::default()).unwrap();
    assert!(runtime.iface().vm().pool().free_bytes() < free);
    assert!(runtime.iface().bus().inner().live_allocations() > 0);
    round_trip(&mut runtime, 100_001);
    kernels(&mut runtime, 3);
    runtime.release().unwrap();
    let gpu = runtime.into_iface();
    assert_eq!(gpu.vm().pool().free_bytes(), free, "VRAM");
    assert_eq!(gpu.vm().boot_region().free_bytes(), boot, "boot region");
    assert_eq!(gpu.bus().inner().live_allocations(), 0, "DMA memory");
    assert_eq!(bench.rules(), []);
}

/// A boot, work, and an orderly end.
fn live(bench: &Bench) -> Path {
    let (mut runtime, path) = bench.start();
    round_trip(&mut runtime, 10_001);
    kernels(&mut runtime, 2);
    runtime.release().unwrap();
    let mut gpu = runtime.into_iface();
    gpu.fini(&mut |_| ()).unwrap();
    path
}

#[test]
fn the_boot_after_an_orderly_end_is_warm_and_works() {
    for gpu in ["navi31", "navi33"] {
        let bench = Bench::new(gpu);
        let paths = [live(&bench), live(&bench), live(&bench)];
        assert_eq!(paths, [Path::Cold, Path::Warm, Path::Warm], "{gpu}");
        assert_eq!(bench.rules(), [], "{gpu}");
    }
}

#[test]
fn a_hang_is_noticed_in_virtual_time_within_seconds_of_real_time() {
    let bench = Bench::new("navi31,fault=hang:sdma");
    let (mut runtime, _) = bench.start();
    let start = std::time::Instant::now();
    let a = runtime.alloc(0x1000, AllocFlags::empty()).unwrap();
    let ticket = runtime.copy(&a, &a, 16).unwrap();
    let error = runtime.wait(ticket, 30_000_000).unwrap_err();
    assert!(start.elapsed().as_secs() < 10, "30 s of virtual time took {:?}", start.elapsed());
    let QueueError::Hang(hang) = error else { panic!("{error:?}") };
    assert_eq!((hang.kind, hang.cause), (QueueKind::Sdma, Cause::Busy));
    assert!((30_000_000..31_000_000).contains(&hang.after_us), "{hang}");
}

#[test]
fn a_device_can_be_booted_again_by_the_process_that_shut_it_down() {
    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start();
    runtime.release().unwrap();
    let mut gpu = runtime.into_iface();
    gpu.fini(&mut |_| ()).unwrap();
    let mut probe = gpu.into_probe();
    for (cold, path) in [(false, Path::Warm), (true, Path::Reset)] {
        let mut firmware = amdev_tests::e2e::firmware(&probe);
        let report = bench.boot_with(&mut probe, &mut firmware, cold).unwrap();
        assert_eq!(report.path, path);
        let mut runtime = Queues::new(amdev_tests::e2e::into_gpu(probe, &report), Sizes::default()).unwrap();
        round_trip(&mut runtime, 5000);
        runtime.release().unwrap();
        let mut gpu = runtime.into_iface();
        gpu.fini(&mut |_| ()).unwrap();
        probe = gpu.into_probe();
    }
    assert_eq!(bench.rules(), []);
}

#[test]
fn queues_of_a_process_that_ends_without_an_orderly_end_are_taken_down_by_the_next_boot() {
    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start();
    round_trip(&mut runtime, 100);
    drop(runtime);
    let (mut runtime, path) = bench.start();
    assert_eq!(path, Path::Warm);
    round_trip(&mut runtime, 100);
    assert_eq!(bench.rules(), []);
}
