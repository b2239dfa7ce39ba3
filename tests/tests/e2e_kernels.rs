//! Every case of the corpus through the whole driver on the simulated GPU of its target: boot,
//! code object, arguments, copies, dispatch, exact results, no violation.

use amdev_cli::progress::Silent;
use amdev_cli::session::{Backend as _, BootOptions, OpenOptions};
use amdev_cli::sim::SimBackend;
use amdev_tests::e2e::cases::{jobs, run};

fn all_cases(gpu: &str, target: &str, least: usize) {
    let jobs = jobs(target);
    assert!(jobs.len() >= least, "{} cases for {target}", jobs.len());
    let options = OpenOptions { synthetic_firmware: true, ..OpenOptions::default() };
    let spec = format!("sim:{gpu}").parse().unwrap();
    let mut session = SimBackend.open(&spec, &options).unwrap();
    session.boot(&BootOptions::default(), &mut Silent).unwrap();
    let mut wrong = Vec::new();
    for job in &jobs {
        if let Err(e) = run(session.as_mut(), job) {
            wrong.push(e);
            // A queue that was stopped stays stopped: the next case gets a device of its own.
            session = SimBackend.open(&spec, &options).unwrap();
            session.boot(&BootOptions::default(), &mut Silent).unwrap();
            continue;
        }
        let misuse = session.violations().unwrap_or_default();
        assert!(misuse.is_empty(), "{} on {}: {misuse:?}", job.case["id"], job.file);
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), jobs.len(), wrong.join("\n"));
    session.release().unwrap();
    amdev_tests::summary(&format!("e2e-kernels-{target}"), jobs.len(), jobs.len() - wrong.len(), 0);
}

#[test]
fn every_gfx1100_case_gives_exact_results_on_navi31() {
    all_cases("navi31", "gfx1100", 30);
}

#[test]
fn every_gfx1102_case_gives_exact_results_on_navi33() {
    all_cases("navi33", "gfx1102", 19);
}

#[test]
fn every_gfx1200_case_gives_exact_results_on_navi44() {
    all_cases("navi44", "gfx1200", 19);
}

#[test]
fn every_gfx1201_case_gives_exact_results_on_navi48() {
    all_cases("navi48", "gfx1201", 25);
}
