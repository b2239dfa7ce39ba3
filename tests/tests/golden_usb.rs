//! The simulated USB bridge against the reference's recorded traffic.

use amdev_tests::{golden, golden_usb, root, summary};
use serde_json::Value;

/// A folder with a changed `usb.json`, and the boots of no GPU.
fn judge(file: &Value) -> amdev_tests::verdict::Verdict {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("usb.json");
    std::fs::write(&path, file.to_string()).unwrap();
    golden_usb::judge(&path).unwrap().0
}

fn file() -> Value {
    serde_json::from_slice(&golden("usb.json").unwrap()).unwrap()
}

#[test]
fn recorded_commands_run_through_and_reach_the_gpu_as_recorded() {
    let (verdict, notes) = golden_usb::judge(&root().join("golden/usb.json")).unwrap();
    notes.iter().for_each(|n| println!("{n}"));
    assert!(verdict.passed(), "{verdict}");
    assert_eq!(notes.len(), 2, "two boots");
    // Two boots have 46,000 requests, and each completion is looked at.
    assert!(verdict.total > 75_000, "{}", verdict.total);
    let deviations = verdict.deviations.values().map(Vec::len).sum();
    summary("golden-usb", verdict.total, verdict.matched, deviations);
}

#[test]
fn an_answer_that_was_not_recorded_shows() {
    assert!(judge(&file()).passed());
    let mut changed = file();
    let cases = changed["unit"].as_array_mut().unwrap();
    let case = cases.iter_mut().find(|c| c["name"] == "mem_read_2_off2").unwrap();
    let last = case["batches"].as_array_mut().unwrap().last_mut().unwrap();
    assert_eq!(last[1]["results"][0], "11220000");
    last[1]["results"][0] = "11223344".into();
    let verdict = judge(&changed);
    assert_eq!(verdict.differences.len(), 1, "{verdict}");
    assert!(verdict.differences[0].contains("mem_read_2_off2"), "{verdict}");
}

#[test]
fn a_command_that_no_bridge_takes_shows() {
    let mut changed = file();
    let cases = changed["unit"].as_array_mut().unwrap();
    let case = cases.iter_mut().find(|c| c["name"] == "write_1").unwrap();
    case["batches"][0][0]["cdb"] = "e5ab00123400".into();
    let verdict = judge(&changed);
    assert!(verdict.differences.iter().any(|d| d.contains("refused")), "{verdict}");
    assert!(verdict.differences.iter().any(|d| d.contains("0x500000")), "{verdict}");
}
