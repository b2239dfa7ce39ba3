//! A GPU behind the simulated USB bridge, both firmwares: the whole driver, what it costs, and faults.

use amdev_cli::progress::Silent;
use amdev_cli::session::{Backend as _, BootOptions, OpenOptions};
use amdev_core::boot::{Path, Rung};
use amdev_core::fault::Fault;
use amdev_core::hang::{Cause, Recovery};
use amdev_core::iface::{AllocFlags, Buffer};
use amdev_core::program::{CodeObject, HiddenValues};
use amdev_core::queue::QueueError;
use amdev_core::queue::dispatch::Launch;
use amdev_core::runtime::Work;
use amdev_sim::bridge::BridgeFault;
use amdev_tests::e2e::cases::{jobs, run};
use amdev_tests::usb::{UsbBench, stop};
use amdev_tests::{golden, summary};
use amdev_usb::backend::SimUsbBackend;
use serde_json::Value;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const GPUS: [&str; 5] = ["navi31", "navi32", "navi33", "navi44", "navi48"];
const FIRMWARES: [&str; 2] = ["patched", "custom"];

/// Copies that differ in length, through staging memory of both halves, and back.
fn copies(bench: &UsbBench, lens: &[usize]) {
    let (mut queues, _) = bench.start().unwrap();
    for &len in lens {
        let data: Vec<u8> = (0..len).map(|i| (i * 7 + i / 255) as u8).collect();
        let a = queues.alloc(len as u64, AllocFlags::empty()).unwrap();
        let b = queues.alloc(len as u64, AllocFlags::empty()).unwrap();
        queues.write(&a, &data).unwrap();
        queues.copy(&b, &a, len as u64).unwrap();
        let mut out = vec![0; len];
        queues.read(&b, &mut out).unwrap();
        assert!(out == data, "{len} bytes");
        queues.free(a).unwrap();
        queues.free(b).unwrap();
    }
    stop(queues).unwrap();
    bench.assert_clean();
}

#[test]
fn copies_of_many_lengths_arrive_through_both_firmwares() {
    for firmware in FIRMWARES {
        let lens = [1, 511, 4096, 4097, 0x4000, 0x4001, 70_000, 0x4_0000, 0x4_0001, 0x8_0000 + 12_345];
        copies(&UsbBench::new(&format!("navi48,bridge={firmware}")), &lens);
    }
}

/// The look at what hangs falls into the time in which the open firmware is armed to carry the copy.
#[test]
fn a_copy_out_behind_work_that_hangs_tells_of_it_and_the_next_one_arrives() {
    for gpu in ["navi31", "navi48"] {
        for firmware in FIRMWARES {
            let bench = UsbBench::new(&format!("{gpu},bridge={firmware}"));
            let (mut queues, _) = bench.start().unwrap();
            let data: Vec<u8> = (0..70_000u32).map(|i| (i * 13) as u8).collect();
            let a = queues.alloc(data.len() as u64, AllocFlags::empty()).unwrap();
            queues.write(&a, &data).unwrap();
            let nowhere = Buffer { va: a.va + (256 << 30), ..a };
            queues.copy(&nowhere, &a, 0x100).unwrap();
            let mut out = vec![0; data.len()];
            let error = queues.read(&a, &mut out).unwrap_err();
            let QueueError::Hang(hang) = error else { panic!("{gpu} {firmware}: {error:?}") };
            let Cause::Fault(Fault::Memory(fault)) = hang.cause else { panic!("{gpu} {firmware}: {hang}") };
            assert_eq!((fault.address, fault.write), (nowhere.va, true), "{gpu} {firmware}");
            assert_eq!(hang.recovery, Recovery::Restarted(Rung::Queue), "{gpu} {firmware}");
            queues.read(&a, &mut out).unwrap();
            assert!(out == data, "{gpu} {firmware}");
            // What the user ends is lost the same way.
            queues.copy(&nowhere, &a, 0x100).unwrap();
            assert_eq!(queues.cancel(200_000), Ok(true), "{gpu} {firmware}");
            assert_eq!(queues.cancel(200_000), Ok(false), "{gpu} {firmware}");
            out.fill(0);
            queues.read(&a, &mut out).unwrap();
            assert!(out == data, "{gpu} {firmware}");
            stop(queues).unwrap();
            bench.assert_clean();
            assert_eq!(bench.start().unwrap().1, Path::Warm, "{gpu} {firmware}");
        }
    }
}

#[test]
fn every_gpu_boots_cold_and_warm_and_runs_kernels_behind_both_firmwares() {
    let (mut checked, mut right) = (0, 0);
    for gpu in GPUS {
        for firmware in FIRMWARES {
            let bench = UsbBench::new(&format!("{gpu},bridge={firmware}"));
            for path in [Path::Cold, Path::Warm] {
                let (queues, taken) = bench.start().unwrap_or_else(|e| panic!("{gpu} {firmware}: {e:#}"));
                assert_eq!(taken, path, "{gpu} {firmware}");
                stop(queues).unwrap();
                bench.assert_clean();
                checked += 1;
                right += 1;
            }
        }
    }
    summary("usb-boots", checked, right, 0);
}

#[test]
fn kernels_of_the_corpus_give_exact_results_behind_the_bridge() {
    let mut checked = 0;
    for (gpu, target, firmware) in [("navi48", "gfx1201", "patched"), ("navi31", "gfx1100", "custom")] {
        let spec = format!("sim-usb:{gpu},bridge={firmware}").parse().unwrap();
        let options = OpenOptions { synthetic_firmware: true, ..OpenOptions::default() };
        let mut session = SimUsbBackend.open(&spec, &options).unwrap();
        session.boot(&BootOptions::default(), &mut Silent).unwrap();
        // Every fourth: over USB each byte of a code object counts.
        for job in jobs(target).iter().step_by(4) {
            run(session.as_mut(), job).unwrap();
            checked += 1;
        }
        assert_eq!(session.violations().unwrap(), Vec::<String>::new());
        session.release().unwrap();
    }
    assert!(checked >= 12, "{checked}");
    summary("usb-kernels", checked, checked, 0);
}

/// The reference's commands for a part of its work.
fn reference(part: &str) -> u64 {
    let all: Value = serde_json::from_slice(&golden("usb.json").unwrap()).unwrap();
    all["full_boot"]["navi48"][part]["cdbs"].as_u64().unwrap()
}

/// README has this table.
#[test]
fn commands_and_transfers_stay_within_their_goals() {
    let mut rows = Vec::new();
    for firmware in FIRMWARES {
        let bench = UsbBench::new(&format!("navi48,bridge={firmware}"));
        let mut parts = Vec::new();
        for path in [Path::Cold, Path::Warm] {
            let bus = bench.open().unwrap();
            bench.take_counts();
            let mut probe = amdev_core::device::Probe::open(bus).unwrap();
            let found = bench.take_counts();
            let (report, stages) = bench.boot_in_stages(&mut probe).unwrap();
            println!("{firmware}, {path}: {stages:?}");
            let booted = bench.take_counts();
            assert_eq!(report.path, path);
            parts.push((found, booted));
            let sizes = amdev_tests::usb::sizes(&probe.device.bus);
            let gpu = amdev_tests::usb::into_gpu(probe, &report).unwrap();
            let queues = amdev_core::runtime::Runtime::new(gpu, sizes).unwrap();
            let queued = bench.take_counts();
            parts.push((queued, queued));
            stop(queues).unwrap();
        }
        bench.assert_clean();
        let total = |i: usize| parts[i].0.usb_commands + parts[i].1.usb_commands;
        let (cold, warm, queues) = (total(0), total(2), parts[1].0.usb_commands);
        let discovery = parts[0].0.usb_commands;
        println!("{firmware}: discovery {discovery}, cold boot {cold}, warm boot {warm}, queues {queues}");
        rows.push((firmware, cold, warm));
    }
    let (cold, warm) = (reference("amdev_cold_boot"), reference("amdev_warm_boot"));
    println!("reference: cold boot {cold}, warm boot {warm}");
    assert_eq!((cold, warm), (81_556, 39_602));
    for (firmware, cold, warm) in rows {
        assert!(cold <= 8_000, "cold boot behind {firmware}: {cold} commands");
        assert!(warm <= 2_500, "warm boot behind {firmware}: {warm} commands");
    }
}

#[test]
fn a_dispatch_of_a_loaded_kernel_takes_8_transfers_on_the_open_firmware() {
    let bench = UsbBench::new("navi48,bridge=custom");
    let (mut queues, _) = bench.start().unwrap();
    let file = amdev_tests::corpus("co/vecadd.gfx1201.v5.O2.co").unwrap();
    let object = CodeObject::parse(&file).unwrap();
    let kernel = object.only_kernel().unwrap();
    let program = queues.load(&object).unwrap();
    let buffers: Vec<_> = (0..3).map(|_| queues.alloc(0x1000, AllocFlags::empty()).unwrap()).collect();
    let floats = |f: fn(usize) -> f32| (0..1024).flat_map(|i| f(i).to_le_bytes()).collect::<Vec<u8>>();
    queues.write(&buffers[1], &floats(|i| i as f32)).unwrap();
    queues.write(&buffers[2], &floats(|i| 2.0 * i as f32)).unwrap();
    let vas: Vec<[u8; 8]> = buffers.iter().map(|b| b.va.to_le_bytes()).collect();
    let args: Vec<&[u8]> = vas.iter().map(|v| v.as_slice()).collect();
    let mut costs = Vec::new();
    for _ in 0..6 {
        let launch = Launch { grid: [4, 1, 1], block: [256, 1, 1] };
        let mut kernargs = vec![0; kernel.descriptor.kernarg_size as usize];
        kernel.fill_args(&args, &mut kernargs).unwrap();
        kernel.fill_hidden(&launch, &HiddenValues::default(), &mut kernargs).unwrap();
        let work = Work { program: &program, kernel: &kernel, launch, kernargs: &kernargs, dynamic_lds: 0 };
        bench.take_counts();
        let ticket = queues.launch(&work, None).unwrap();
        queues.wait(ticket, 10_000_000).unwrap();
        costs.push(bench.take_counts().usb_transfers);
    }
    println!("transfers of a dispatch, its wait included: {costs:?}");
    assert!(costs[1..].iter().all(|c| *c <= 8), "{costs:?}");
    let mut out = vec![0; 0x1000];
    queues.read(&buffers[0], &mut out).unwrap();
    assert_eq!(out, floats(|i| 3.0 * i as f32));
    stop(queues).unwrap();
    bench.assert_clean();
}

#[test]
fn metrics_are_read_over_usb_for_a_few_hundred_commands() {
    for firmware in FIRMWARES {
        let spec = format!("sim-usb:navi48,bridge={firmware},state=amdev").parse().unwrap();
        let options = OpenOptions { synthetic_firmware: true, ..OpenOptions::default() };
        let mut session = SimUsbBackend.open(&spec, &options).unwrap();
        session.info().unwrap();
        let before = session.usb_counts().unwrap();
        let metrics = session.smi().unwrap();
        let cost = session.usb_counts().unwrap().since(&before).usb_commands;
        println!("{firmware}: metrics take {cost} commands");
        assert!(metrics.gfxclk_mhz > 0 && metrics.power_limit_w > 0, "{metrics:?}");
        assert!(cost < 1_500, "{firmware}: {cost}");
        session.release().unwrap();
    }
}

#[test]
fn most_of_what_a_copy_in_sends_is_payload() {
    for (firmware, least) in [("patched", 0.97), ("custom", 0.97)] {
        let bench = UsbBench::new(&format!("navi48,bridge={firmware}"));
        let (mut queues, _) = bench.start().unwrap();
        let data = vec![0x5a; 8 << 20];
        let a = queues.alloc(data.len() as u64, AllocFlags::empty()).unwrap();
        bench.take_counts();
        queues.write(&a, &data).unwrap();
        queues.synchronize().unwrap();
        let counts = bench.take_counts();
        let part = data.len() as f64 / (counts.bytes_out + counts.bytes_in) as f64;
        println!(
            "{firmware}: {:.2} % payload, {} commands, {:.0} MB/s",
            part * 100.0,
            counts.usb_commands,
            data.len() as f64 * 1000.0 / counts.busy_ns as f64
        );
        assert!(part >= least, "{firmware}: {part}");
        stop(queues).unwrap();
        bench.assert_clean();
    }
}

#[test]
fn a_copy_out_is_carried_in_large_blocks_where_the_firmware_can() {
    let mut times = Vec::new();
    for firmware in FIRMWARES {
        let bench = UsbBench::new(&format!("navi48,bridge={firmware}"));
        let (mut queues, _) = bench.start().unwrap();
        let data: Vec<u8> = (0..4u32 << 20).map(|i| (i ^ i >> 9) as u8).collect();
        let a = queues.alloc(data.len() as u64, AllocFlags::empty()).unwrap();
        queues.write(&a, &data).unwrap();
        queues.synchronize().unwrap();
        bench.take_counts();
        let start = bench.bridge.gpu().now_us();
        let mut out = vec![0; data.len()];
        queues.read(&a, &mut out).unwrap();
        let us = bench.bridge.gpu().now_us() - start;
        assert!(out == data);
        let counts = bench.take_counts();
        let rate = data.len() as f64 / us as f64;
        println!(
            "{firmware}: copy-out {rate:.1} MB/s by the bridge's clock, {} commands",
            counts.usb_commands
        );
        times.push((rate, counts.usb_commands));
        stop(queues).unwrap();
        bench.assert_clean();
    }
    let [(_, _), (rate, commands)] = times[..] else { panic!() };
    assert!(rate > 100.0 && commands < 400, "{times:?}");
}

/// Faults at one command of many: an error or a recovery, no hang, and the next boot works.
#[test]
fn faults_at_sampled_commands_end_in_an_error_or_are_overcome() {
    type Make = fn(u64) -> BridgeFault;
    let kinds: [(&str, Make); 10] = [
        ("stall", BridgeFault::Stall),
        ("short", BridgeFault::Short),
        ("unplug", BridgeFault::Unplug),
        ("late", BridgeFault::Late),
        ("lost", BridgeFault::Lost),
        ("tlp-error", BridgeFault::TlpError),
        ("tlp-lost", BridgeFault::TlpLost),
        ("tlp-retry", BridgeFault::TlpRetry),
        ("tlp-unsupported", BridgeFault::TlpUnsupported),
        ("link-down", BridgeFault::LinkDown),
    ];
    let every = std::env::var("AMDEV_USB_FAULTS").ok().and_then(|v| v.parse().ok()).unwrap_or(331);
    let mut cases = Vec::new();
    for firmware in FIRMWARES {
        let bench = UsbBench::new(&format!("navi48,bridge={firmware}"));
        stop(bench.start().unwrap().0).unwrap();
        let total = bench.take_counts().usb_commands;
        let step = if firmware == "custom" { every / 8 + 1 } else { every };
        for (n, at) in (0..total).step_by(step as usize).enumerate() {
            let two = kinds.iter().cycle().skip(n % kinds.len()).take(2);
            cases.extend(two.map(|(name, make)| (firmware, *name, at, make(at))));
        }
    }
    let (next, survived) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failures = Mutex::new(Vec::new());
    let work = || {
        while let Some((firmware, name, at, fault)) = cases.get(next.fetch_add(1, Relaxed)) {
            let bench = UsbBench::new(&format!("navi48,bridge={firmware}"));
            bench.bridge.start_anew(vec![*fault]);
            let done = bench.start().and_then(|(queues, _)| stop(queues));
            survived.fetch_add(usize::from(done.is_ok()), Relaxed);
            bench.bridge.take_violations();
            bench.bridge.start_anew(Vec::new());
            // Unplugged by the fault or now; powered on anew.
            bench.bridge.unplug();
            bench.bridge.plug();
            let again = bench.start().and_then(|(queues, _)| stop(queues));
            let misuse = bench.bridge.take_violations();
            if again.is_err() || !misuse.is_empty() {
                let then = again.err().map_or_else(|| format!("{misuse:?}"), |e| format!("{e:#}"));
                failures.lock().unwrap().push(format!("{firmware}, {name} at {at}: then {then}"));
            }
        }
    };
    std::thread::scope(|scope| {
        let count = std::thread::available_parallelism().map_or(1, |n| n.get());
        (0..count).for_each(|_| drop(scope.spawn(work)));
    });
    let (checked, survived) = (cases.len(), survived.into_inner());
    let failures = failures.into_inner().unwrap();
    println!("{survived} of {checked} faults were overcome");
    failures.iter().for_each(|failure| println!("{failure}"));
    summary("usb-faults", checked, checked - failures.len(), 0);
    assert!(failures.is_empty(), "{} of {checked} faults left something behind", failures.len());
}

/// What reaches PCIe against the reference's traces of the same boots: registers in order.
#[test]
fn registers_are_written_in_the_order_of_the_reference() {
    for (gpu, boots) in [
        ("navi31", [("boot_usb", 316, 374), ("warm_usb", 179, 230)]),
        ("navi48", [("boot_usb", 331, 390), ("warm_usb", 184, 235)]),
    ] {
        let bench = UsbBench::new(gpu);
        for (trace, same, total) in boots {
            let mut probe = bench.probe().unwrap();
            bench.bridge.take_record();
            let report = bench.boot(&mut probe).unwrap();
            let ours = amdev_tests::usb_order::writes(&bench.bridge.take_record());
            let verdict = amdev_tests::usb_order::judge(gpu, trace, &ours).unwrap();
            println!("{gpu}, {trace}: {verdict}");
            assert!(verdict.unexplained.is_empty(), "{gpu}, {trace}: {verdict}");
            assert_eq!((verdict.same, verdict.total), (same, total), "{gpu}, {trace}: {verdict}");
            let sizes = amdev_tests::usb::sizes(&probe.device.bus);
            let gpu = amdev_tests::usb::into_gpu(probe, &report).unwrap();
            stop(amdev_core::runtime::Runtime::new(gpu, sizes).unwrap()).unwrap();
        }
    }
}

#[test]
fn configuration_space_is_written_in_the_order_of_the_reference() {
    let bench = UsbBench::new("navi48");
    bench.bridge.take_record();
    let bus = bench.open().unwrap();
    let ours = amdev_tests::usb_order::config_writes(&bench.bridge.take_record());
    let theirs = amdev_tests::usb_order::reference_config_writes().unwrap();
    assert_eq!(theirs.len(), 44);
    assert_eq!(ours, theirs);
    drop(bus);
}
