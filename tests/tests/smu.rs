//! Clocks, limits and measurements of every simulated GPU's power management.

use amdev_core::boot::{self, Options};
use amdev_core::error::Error;
use amdev_core::iface::AllocFlags;
use amdev_core::ip::{Stage, smu};
use amdev_core::reg::smu::Clock;
use amdev_sim::Fault;
use amdev_sim::Stage as Hang;
use amdev_tests::e2e::Bench;
use amdev_tests::gpus::{self, GPUS};

#[test]
fn clocks_are_pinned_from_boot_to_fini_and_can_be_ranged_and_unpinned() {
    for gpu in GPUS {
        let bench = Bench::new(gpu);
        let (mut runtime, _) = bench.start();
        let device = runtime.iface().device();
        let levels = smu::dpm(device).clone();
        let (low, high) = (levels.levels(0)[0], *levels.levels(0).last().unwrap());
        assert!(low < high, "{gpu}: {levels:?}");
        let m = device.run(async |cx| smu::read_metrics(cx).await).unwrap();
        assert_eq!((m.gfxclk_mhz, m.memclk_mhz), (high, *levels.levels(1).last().unwrap()), "{gpu}: pinned");
        let middle = low + 100;
        let m = device
            .run(async |cx| {
                smu::set_range(cx, Clock::Gfx, low, middle).await?;
                smu::read_metrics(cx).await
            })
            .unwrap();
        assert_eq!(m.gfxclk_mhz, middle, "{gpu}");
        for (min, max) in [(middle, low), (low - 1, high), (low, high + 1)] {
            let error = device.run(async |cx| smu::set_range(cx, Clock::Gfx, min, max).await).unwrap_err();
            assert!(matches!(error, Error::BadValue { .. }), "{gpu}: {error}");
        }
        let limits = device
            .run(async |cx| {
                smu::unpin(cx).await?;
                smu::limits(cx, Clock::Gfx).await
            })
            .unwrap();
        assert_eq!(limits, (low, high), "{gpu}");
        runtime.release().unwrap();
        runtime.into_iface().fini(&mut |_| ()).unwrap();
        assert_eq!(bench.rules(), [], "{gpu}");
    }
}

#[test]
fn a_boot_that_leaves_the_clocks_alone_sets_none() {
    for gpu in ["navi31", "navi48"] {
        let gpu = gpus::gpu(gpu).unwrap();
        let bus = amdev_cli::sim::SimBus::new(gpu.clone());
        let (mut probe, _) = gpus::boot(bus, Options { leave_clocks: true, ..Options::default() }).unwrap();
        let m = probe.device.run(async |cx| smu::read_metrics(cx).await).unwrap();
        let low = probe.device.run(async |cx| smu::limits(cx, Clock::Gfx).await).unwrap().0;
        assert_eq!(m.gfxclk_mhz, low, "what an idle GPU runs at");
        probe.device.run(async |cx| boot::fini(cx, &mut |_| ()).await).unwrap();
        assert!(smu::dpm(&probe.device).levels(0).is_empty(), "levels were not even asked for");
        assert_eq!(gpu.violations(), []);
    }
}

#[test]
fn the_power_limit_is_set_and_restored_and_what_the_board_cannot_take_is_refused() {
    for gpu in GPUS {
        let bench = Bench::new(gpu);
        let (mut runtime, _) = bench.start();
        let device = runtime.iface().device();
        let usual = device.run(async |cx| smu::power_limit(cx).await).unwrap();
        assert!(usual > 50, "{gpu}: {usual} W");
        let old = device.run(async |cx| smu::set_power_limit(cx, usual - 40).await).unwrap();
        assert_eq!(old, usual, "{gpu}");
        assert_eq!(device.run(async |cx| smu::power_limit(cx).await).unwrap(), usual - 40, "{gpu}");
        let error = device.run(async |cx| smu::set_power_limit(cx, 5000).await).unwrap_err();
        assert!(matches!(error, Error::Smu { argument: 5000, .. }), "{gpu}: {error}");
        for watts in [0, 0x1_0000] {
            let error = device.run(async |cx| smu::set_power_limit(cx, watts).await).unwrap_err();
            assert!(matches!(error, Error::BadValue { .. }), "{gpu}: {error}");
        }
        device.run(async |cx| smu::set_power_limit(cx, old).await).unwrap();
        assert_eq!(device.run(async |cx| smu::power_limit(cx).await).unwrap(), usual, "{gpu}");
        assert_eq!(bench.rules(), [], "{gpu}");
    }
}

#[test]
fn measurements_and_versions_are_read_in_the_layout_of_each_firmware() {
    for gpu in GPUS {
        let bench = Bench::new(gpu);
        let (mut runtime, _) = bench.start();
        let device = runtime.iface().device();
        let version = device.run(async |cx| smu::version(cx).await).unwrap();
        let mp1 = device.chip.smu().unwrap().version;
        assert_eq!(version.known, device.chip.smu().unwrap().driver_if_version, "{gpu} {mp1:?}");
        assert!(version.firmware != 0 && version.interface != 0, "{gpu}: {version:?}");
        let samples = [(); 3].map(|()| device.run(async |cx| smu::read_metrics(cx).await).unwrap());
        let m = samples[0];
        // What the simulated firmware measures while nothing runs.
        assert_eq!((m.edge_c, m.hotspot_c, m.mem_c, m.power_w), (41, 46, 52, 21), "{gpu} {mp1:?}");
        assert_eq!((m.gfx_activity, m.mem_activity), (0, 0), "{gpu} {mp1:?}");
        assert!(samples.windows(2).all(|w| w[0].counter < w[1].counter), "{gpu}: {samples:?}");
        assert_eq!(bench.rules(), [], "{gpu}");
    }
}

#[test]
fn a_dead_smu_is_named_within_its_deadline_and_kernels_and_copies_go_on() {
    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start();
    bench.gpu.start_anew(vec![Fault::Hang(Hang::Smu)]);
    let start = bench.gpu.now_us();
    let error = runtime.iface().device().run(async |cx| smu::read_metrics(cx).await).unwrap_err();
    let took = bench.gpu.now_us() - start;
    let Error::Timeout(missed) = error else { panic!("{error}") };
    assert_eq!(missed.wait.stage, Stage::Metrics);
    assert!(error.to_string().contains("MP1_SMN_C2PMSG_90") && took < 11_000_000, "{error}, {took} us");
    let [a, b] = [(); 2].map(|()| runtime.alloc(0x1000, AllocFlags::empty()).unwrap());
    runtime.write(&a, &[3; 0x1000]).unwrap();
    let ticket = runtime.copy(&b, &a, 0x1000).unwrap();
    runtime.wait(ticket, 1_000_000).unwrap();
    let mut back = [0; 0x1000];
    runtime.read(&b, &mut back).unwrap();
    assert_eq!(back, [3; 0x1000]);
    // The shutdown says so too, and the next process comes up when the SMU is back.
    runtime.release().unwrap();
    let error = runtime.into_iface().fini(&mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("MP1_SMN_C2PMSG_90"), "{error}");
    bench.gpu.start_anew(Vec::new());
    drop(bench.start());
}
