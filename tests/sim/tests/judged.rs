//! The simulator is judged by the reference's own traces: they run through, and what they do wrong
//! shows, and nothing else.

use amdev_sim::judge::{Report, judge};
use amdev_sim::{Config, Rule, SimGpu};
use std::collections::BTreeMap;
use std::io::Read;

fn golden(name: &str) -> String {
    let path = format!("{}/../golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if let Ok(text) = std::fs::read_to_string(&path) {
        return text;
    }
    let mut text = String::new();
    let file = std::fs::File::open(format!("{path}.gz")).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text
}

fn gpu(text: &str) -> SimGpu {
    let mut config = Config::parse(text).unwrap();
    config.judge = true;
    SimGpu::new(config)
}

fn run(gpu: &SimGpu, trace: &str) -> Report {
    let report = judge(&golden(trace), gpu).unwrap();
    println!("{trace}: {} rows, {} repeated, {} timeouts", report.rows, report.repeated, report.timeouts);
    for d in &report.differences {
        println!("  differs: {d:?}");
    }
    for v in &report.violations {
        println!("  {v}");
    }
    report
}

fn rules(report: &Report) -> BTreeMap<Rule, usize> {
    report.violations.iter().fold(BTreeMap::new(), |mut m, v| {
        *m.entry(v.rule).or_default() += 1;
        m
    })
}

/// What the reference's cold boot does wrong: IH rings twice too long (fault 1), RLC autoload not
/// awaited (2), PSP command and frame not flushed (6), key database sent as SPL table (10).
const BOOT_FAULTS: [Rule; 4] =
    [Rule::StaleHdp, Rule::EngineBeforeFirmware, Rule::FirmwareImage, Rule::OverlappingStructures];

fn only(report: &Report, expected: &[Rule]) {
    let found: Vec<Rule> = rules(report).into_keys().collect();
    let mut expected = expected.to_vec();
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(report.timeouts, 0, "every polled value comes");
}

#[test]
fn cold_boots_of_navi31_run_through_with_the_known_faults_only() {
    for trace in ["boot", "boot_fw2025"] {
        let gpu = gpu("navi31");
        let report = run(&gpu, &format!("navi31/{trace}.jsonl"));
        only(&report, &BOOT_FAULTS);
        assert_eq!(report.differences, []);
    }
}

#[test]
fn navi31_is_driven_through_its_life() {
    let gpu = gpu("navi31");
    run(&gpu, "navi31/boot.jsonl");
    for trace in [
        "fini",
        "warm",
        "smu_read_metrics",
        "smu_set_clocks_0",
        "flush_tlb_gc",
        "flush_tlb_mm",
        "ih_overflow",
        "malformed",
    ] {
        run(&gpu, &format!("navi31/{trace}.jsonl"));
    }
}

#[test]
fn navi31_after_amdgpu_is_reset_and_boots() {
    let gpu = gpu("navi31,state=amdgpu");
    run(&gpu, "navi31/reset.jsonl");
}

#[test]
fn a_dead_smu_ends_the_references_boot() {
    let gpu = gpu("navi31,state=amdgpu,fault=smu-dead");
    run(&gpu, "navi31/reset_smu_dead.jsonl");
}

#[test]
fn queues_of_navi31_are_set_up() {
    let gpu = gpu("navi31");
    run(&gpu, "navi31/boot.jsonl");
    run(&gpu, "navi31/setup_ring.jsonl");
}

#[test]
fn open_pci_of_navi31() {
    let gpu = gpu("navi31");
    run(&gpu, "navi31/open_pci.jsonl");
}

#[test]
fn other_gpus_boot() {
    for g in ["navi32", "navi33", "navi44", "navi48"] {
        let gpu = gpu(g);
        run(&gpu, &format!("{g}/boot.jsonl"));
        run(&gpu, &format!("{g}/fini.jsonl"));
    }
}
