//! Cold boots of the simulated GPUs with AMD's own firmware, package by package.

use amdev_cli::progress::Silent;
use amdev_cli::session::{Backend as _, BootOptions, OpenOptions};
use amdev_cli::sim::SimBackend;
use amdev_tests::e2e::cases::{jobs, run};
use amdev_tests::golden_fw::firmware_dirs;

#[test]
fn every_gpu_boots_cold_with_the_firmware_of_each_package_and_runs_a_kernel() {
    let dirs = firmware_dirs();
    if dirs.is_empty() {
        println!("skipped: cold boots with AMD's firmware: tests/fetch.sh firmware has fetched none");
        return;
    }
    let mut boots = 0;
    for dir in &dirs {
        for (gpu, target) in
            [("navi31", "gfx1100"), ("navi33", "gfx1102"), ("navi44", "gfx1200"), ("navi48", "gfx1201")]
        {
            let name = format!("{gpu} with {}", dir.display());
            let options = OpenOptions { firmware: vec![dir.clone()], ..OpenOptions::default() };
            let mut session = SimBackend.open(&format!("sim:{gpu}").parse().unwrap(), &options).unwrap();
            let report = session
                .boot(&BootOptions { cold: true, ..BootOptions::default() }, &mut Silent)
                .unwrap_or_else(|e| panic!("{name}: {e:#}; {:?}", session.violations()));
            assert_eq!(report.path, "cold", "{name}");
            assert!(report.firmware.is_some_and(|f| f.contains(&dir.display().to_string())), "{name}");
            let job = jobs(target).into_iter().find(|j| j.case["object"] == "vecadd").expect("vecadd");
            run(session.as_mut(), &job).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(session.violations(), Some(Vec::new()), "{name}");
            session.release().unwrap();
            boots += 1;
        }
    }
    amdev_tests::summary("e2e-firmware-boots", boots, boots, 0);
}
