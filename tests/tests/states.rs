//! Every state a GPU can be found in, each booted and used.

use amdev_cli::progress::Silent;
use amdev_cli::session::{Backend as _, BootOptions, BootReport, OpenOptions};
use amdev_cli::sim::SimBackend;

const GPUS: [&str; 5] = ["navi31", "navi32", "navi33", "navi44", "navi48"];

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
        ("malformed", "reset", "GFXHUB was still translating"),
    ];
    for gpu in GPUS {
        for (state, path, why) in states {
            let report = boot_and_copy(&format!("{gpu},state={state}"));
            assert_eq!(report.path, path, "{gpu} {state}: {}", report.why);
            assert!(report.why.contains(why), "{gpu} {state}: {}", report.why);
        }
    }
}
