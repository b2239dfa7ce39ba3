//! Compiled kernels on the simulated shader cores, with exact results.

mod engine;

use amdev_sim::isa::Target;

fn run_all(name: &str, target: Target, least: usize) {
    let cases = engine::corpus::cases(name);
    assert!(cases.len() >= least, "{} cases of {name}", cases.len());
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|(case, fact)| {
            engine::corpus::run(case, fact, target)
                .err()
                .map(|e| format!("{} on {}: {e}", case["id"], fact["file"]))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn every_gfx1100_case_gives_exact_results() {
    run_all("gfx1100", Target::Gfx11, 30);
}

#[test]
fn every_gfx1102_case_gives_exact_results() {
    run_all("gfx1102", Target::Gfx11, 19);
}

#[test]
fn every_gfx1200_case_gives_exact_results() {
    run_all("gfx1200", Target::Gfx12, 19);
}

#[test]
fn every_gfx1201_case_gives_exact_results() {
    run_all("gfx1201", Target::Gfx12, 25);
}
