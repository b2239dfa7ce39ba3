//! Every state a GPU can be found in, each booted and used.

use amdev_cli::progress::Silent;
use amdev_cli::session::{Backend as _, BootOptions, BootReport, OpenOptions};
use amdev_cli::sim::{Assigned, SimBackend, SimBus};
use amdev_core::boot::{Options, Outcome, Path, Reason, Rung};
use amdev_core::bus::fault::{Fault, FaultPlan};
use amdev_core::bus::{Clock as _, Mmio as _, Window};
use amdev_core::device::Probe;
use amdev_tests::gpus::{self, GPUS, gpu, process, reopen};

/// Boots a simulated device, copies through SDMA and back, and wants no violation.
fn boot_and_copy(device: &str) -> BootReport {
    let options = OpenOptions { synthetic_firmware: true, ..OpenOptions::default() };
    let spec = format!("sim:{device}").parse().unwrap();
    let mut session = SimBackend.open(&spec, &options).unwrap_or_else(|e| panic!("{device}: {e:#}"));
    let report = session
        .boot(&BootOptions::default(), &mut Silent)
        .unwrap_or_else(|e| panic!("{device}: {e:#}; {:?}", session.violations()));
    let data: Vec<u8> = (0..20_000u32).flat_map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    let (a, b) = (session.alloc(1 << 20).unwrap(), session.alloc(1 << 20).unwrap());
    session.upload(a, &data).unwrap();
    session.copy(b, a, data.len() as u64).unwrap();
    let mut back = vec![0; data.len()];
    session.download(b, &mut back).unwrap();
    assert_eq!(back, data, "{device}: the copy differs");
    assert_eq!(session.violations(), Some(Vec::new()), "{device}");
    session.fini(&mut Silent).unwrap();
    assert_eq!(session.violations(), Some(Vec::new()), "{device}: after fini");
    session.release().unwrap();
    report
}

#[test]
fn every_gpu_boots_and_copies_from_every_state_by_the_path_that_the_state_asks_for() {
    let states = [
        ("cold", "cold", "no secure OS was running"),
        ("amdgpu", "reset", "another driver had set the GPU up"),
        ("amdev", "warm", "this driver had left the GPU in order"),
        ("malformed", "warm", "queue reset: helped"),
    ];
    for gpu in GPUS {
        for (state, path, why) in states {
            let report = boot_and_copy(&format!("{gpu},state={state}"));
            assert_eq!(report.path, path, "{gpu} {state}: {}", report.why);
            assert!(report.why.contains(why), "{gpu} {state}: {}", report.why);
        }
    }
}

#[test]
fn a_small_bar_serves_every_gpu_in_every_state() {
    for gpu in GPUS {
        for state in ["cold", "amdgpu", "amdev", "malformed"] {
            boot_and_copy(&format!("{gpu},state={state},bar=256M"));
        }
    }
}

#[test]
fn a_warm_boot_writes_no_more_registers_than_the_reference_and_takes_under_15_percent_of_a_cold_one() {
    // `warm` of the traces, rows that write a register.
    for (name, most) in [("navi31", 228), ("navi48", 233)] {
        let gpu = gpu(name).unwrap();
        let mut took = Vec::new();
        let mut writes = Vec::new();
        for _ in 0..2 {
            let bus = SimBus::new(gpu.clone());
            let start = bus.now_us();
            let (probe, report) = gpus::boot(bus, Options::default()).unwrap();
            took.push(probe.device.bus.now_us() - start);
            writes.push(probe.device.counters().register_writes);
            let path = if took.len() == 1 { Path::Cold } else { Path::Warm };
            assert_eq!(report.path, path, "{name}");
            let mut probe = probe;
            probe.device.run(async |cx| amdev_core::boot::fini(cx, &mut |_| ()).await).unwrap();
        }
        assert!(writes[1] <= most, "{name}: {} register writes, the reference makes {most}", writes[1]);
        assert!(took[1] * 100 < took[0] * 15, "{name}: warm {} us, cold {} us", took[1], took[0]);
    }
}

/// What the rungs of the ladder came to for this device.
fn ladder(text: &str) -> (Path, Reason, Vec<(Rung, Outcome)>) {
    let gpu = gpu(text).unwrap();
    let (_, report) = gpus::boot(SimBus::new(gpu.clone()), Options::default()).unwrap();
    assert_eq!(gpu.violations(), [], "{text}");
    (report.path, report.reason, report.ladder.iter().collect())
}

#[test]
fn queues_left_by_a_dead_process_are_taken_down_without_a_reset_of_the_gpu() {
    for name in GPUS {
        let (path, reason, rungs) = ladder(&format!("{name},state=malformed"));
        assert_eq!((path, reason), (Path::Warm, Reason::ContextOn), "{name}");
        assert_eq!(rungs, [(Rung::Queue, Outcome::Helped)], "{name}");
    }
}

#[test]
fn a_queue_that_cannot_be_taken_down_ends_with_the_reset_of_its_mec() {
    for name in GPUS {
        let (path, _, rungs) = ladder(&format!("{name},state=malformed,fault=hang:dequeue"));
        assert_eq!(path, Path::Warm, "{name}");
        assert!(matches!(rungs[0], (Rung::Queue, Outcome::Failed(_))), "{name}: {rungs:?}");
        assert_eq!(rungs[1..], [(Rung::Mec, Outcome::Helped)], "{name}");
    }
}

#[test]
fn another_drivers_gpu_is_reset_by_the_smu_and_where_that_is_dead_by_the_bus() {
    for name in GPUS {
        let (path, reason, rungs) = ladder(&format!("{name},state=amdgpu"));
        assert_eq!((path, reason), (Path::Reset, Reason::Foreign), "{name}");
        assert_eq!(rungs, [(Rung::Mode1, Outcome::Helped)], "{name}");
    }
    let gpu = gpu("navi31,state=amdgpu,fault=smu-dead").unwrap();
    let error = gpus::boot(SimBus::new(gpu.clone()), Options::default()).err().unwrap().to_string();
    // The bus reset went through, the boot came as far as the SMU, which is still dead.
    assert!(error.contains("stage smu: MP1_SMN_C2PMSG_90"), "{error}");
    assert_eq!(gpu.violations(), []);
}

/// Configuration space, with what the host's firmware set up in it.
fn config_space(gpu: &amdev_sim::SimGpu) -> Vec<u8> {
    let mut bytes = vec![0; 0x300];
    gpu.config_read(0, &mut bytes);
    bytes
}

#[test]
fn configuration_space_and_bars_are_as_before_after_each_reset_of_the_whole_gpu() {
    for name in GPUS {
        for (state, rung) in [
            ("amdgpu", Rung::Mode1),
            ("amdgpu,bar=256M", Rung::Mode1),
            ("amdgpu,fault=smu-dead", Rung::Bus),
            ("cold", Rung::Bus),
        ] {
            let gpu = gpu(&format!("{name},state={state}")).unwrap();
            // MSI and bus mastering as a host has them that uses the device.
            gpu.config_write(0xa4, &[0x00, 0x10, 0xe0, 0xfe, 0, 0, 0, 0, 0x25, 0]);
            gpu.config_write(0xa2, &[0x81, 0]);
            let before = config_space(&gpu);
            let mut probe = Probe::open(SimBus::new(gpu.clone())).unwrap();
            probe.reset(&mut |_| ()).unwrap();
            assert_eq!(probe.ladder().iter().last(), Some((rung, Outcome::Helped)), "{name} {state}");
            assert!(probe.ladder().lost_everything());
            assert!(config_space(&gpu) == before, "{name} {state}: configuration space differs");
            assert_eq!(gpu.violations(), [], "{name} {state}");
        }
    }
}

#[test]
fn after_a_warm_boot_both_hubs_are_told_of_changed_page_tables() {
    for name in ["navi31", "navi48"] {
        let gpu = gpu(&format!("{name},state=amdev")).unwrap();
        let (mut probe, report) = gpus::boot(SimBus::new(gpu.clone()), Options::default()).unwrap();
        assert_eq!(report.path, Path::Warm);
        let register = |name| u64::from(gpu.register(name).unwrap()) * 4;
        let requests = ["GCVM_INVALIDATE_ENG17_REQ", "MMVM_INVALIDATE_ENG17_REQ"].map(register);
        let seen = |at: u64| {
            let mut value = [0; 4];
            gpu.read(5, at, &mut value).unwrap();
            u32::from_le_bytes(value)
        };
        for at in requests {
            // Nothing is asked for: VMID 15 alone, which nobody uses.
            gpu.write(5, at, &0x8000u32.to_le_bytes()).unwrap();
        }
        probe.device.run(async |cx| amdev_core::ip::gmc::flush_tlbs(cx, 0).await).unwrap();
        for at in requests {
            assert_eq!(seen(at) & 0xffff, 1, "{name}: {at:#x}");
        }
    }
}

#[test]
fn a_failed_boot_still_tells_the_resets_that_it_tried() {
    let gpu = gpu("navi31,state=amdgpu,fault=smu-dead").unwrap();
    let mut probe = Probe::open(SimBus::new(gpu)).unwrap();
    let mut fw = gpus::firmware(&probe.ips).unwrap();
    probe.boot(&mut fw, Options::default(), &mut |_| ()).unwrap_err();
    let tried = "mode-1 reset: not possible, the SMU does not answer; bus reset: helped";
    assert_eq!(probe.ladder().to_string(), tried);
}

#[test]
fn another_layout_version_is_reset_and_named() {
    let (path, reason, rungs) = ladder("navi31,state=amdev,scratch7=0xad5e0063");
    assert_eq!((path, reason), (Path::Reset, Reason::OtherLayout { version: 0x63 }));
    assert_eq!(rungs, [(Rung::Mode1, Outcome::Helped)]);
}

#[test]
fn stale_queue_pointers_of_a_dead_process_do_not_reach_its_successor() {
    // C20: all 8 bytes of both pointers are reset, or the new queue would not run.
    let gpu = gpu("navi31,state=malformed").unwrap();
    // Whatever the new process allocates for its pointers is full of 0xDEADBEEF_00001234.
    let stale: Vec<u8> = 0xdead_beef_0000_1234u64.to_le_bytes().repeat(1 << 17);
    for at in 0..40 {
        gpu.write(0, (32 << 20) + (at << 20), &stale).unwrap();
    }
    let flush = gpu.register("BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL").unwrap();
    let mut at = [0; 4];
    gpu.read(5, u64::from(flush) * 4, &mut at).unwrap();
    gpu.write(5, u32::from_le_bytes(at).into(), &[0; 4]).unwrap();
    process(SimBus::new(gpu.clone())).unwrap();
}

/// A process is killed at its access number `k`; the next one must come up. False if the process
/// ended before that access.
fn kill(text: &str, k: u64) -> bool {
    let gpu = gpu(text).unwrap();
    let assigned = Assigned::of(&gpu);
    let plan = FaultPlan { gone_from: Some(k), ..FaultPlan::default() };
    if process(Fault::new(SimBus::new(gpu.clone()), plan)).is_ok() {
        return false;
    }
    let before = gpu.violations();
    // Twice: the first may come up by a path that hides what is left.
    for turn in 0..2 {
        let report = process(reopen(&gpu, &assigned)).unwrap_or_else(|e| {
            panic!("{text}, killed at access {k}, boot {turn}: {e:#}; {:?}", gpu.violations())
        });
        if turn == 1 {
            assert_eq!(report.path, Path::Warm, "{text}, killed at access {k}: {}", report.reason);
        }
    }
    // The dead process's engines may still run into its memory; that is not its successor's fault. A
    // bootloader that was interrupted refuses what it has already: nothing tells the successor how
    // far it came, and without a secure OS there is no mode-1 reset.
    let new: Vec<_> = gpu.violations().into_iter().filter(|v| !before.contains(v)).collect();
    let inherited = [amdev_sim::Rule::UnmappedDma, amdev_sim::Rule::FirmwareOrder];
    let own = |v: &&amdev_sim::Violation| !inherited.contains(&v.rule);
    assert_eq!(
        new.iter().filter(own).collect::<Vec<_>>(),
        Vec::<&amdev_sim::Violation>::new(),
        "{text}, killed at {k}"
    );
    true
}

fn kill_every(step: u64, offset: u64) {
    for (name, state) in [
        ("navi31", "cold"),
        ("navi31", "amdev"),
        ("navi31", "amdgpu"),
        ("navi31", "malformed"),
        ("navi48", "cold"),
        ("navi48", "malformed"),
    ] {
        let mut k = offset;
        while kill(&format!("{name},state={state}"), k) {
            k += step;
        }
        assert!(k > 300, "{name} {state}: only {k} accesses");
    }
}

#[test]
fn a_process_killed_anywhere_leaves_a_gpu_that_boots_again() {
    kill_every(97, 13);
}

#[test]
#[ignore = "every access, minutes: full tier"]
fn a_process_killed_at_any_access_leaves_a_gpu_that_boots_again() {
    kill_every(1, 0);
}

/// One wrong bit read before an update stays in the register: it must not outlive the next boot.
#[test]
fn an_sdma_engine_that_was_stopped_by_any_of_its_bits_runs_after_the_next_boot() {
    for (name, register, stops) in [
        ("navi31", "SDMA0_F32_CNTL", &["HALT", "TH0_RESET", "TH1_RESET"][..]),
        ("navi48", "SDMA0_MCU_CNTL", &["HALT", "RESET"]),
    ] {
        for stop in stops {
            let gpu = gpu(&format!("{name},state=amdev")).unwrap();
            let assigned = Assigned::of(&gpu);
            let mut bus = reopen(&gpu, &assigned);
            let (bit, width) = gpu.field(register, stop).unwrap();
            assert_eq!(width, 1);
            let at = u64::from(gpu.register(register).unwrap()) * 4;
            bus.write32(Window::Registers, at, 1 << bit).unwrap();
            drop(bus);
            let report = process(reopen(&gpu, &assigned));
            let report = report.unwrap_or_else(|e| panic!("{name}, {stop}: {e:#}; {:?}", gpu.violations()));
            assert_eq!(report.path, Path::Warm, "{name}, {stop}");
            assert_eq!(gpu.violations(), [], "{name}, {stop}");
        }
    }
}
