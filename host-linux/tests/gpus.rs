//! Every GPU, every state and several at once, as a person at the command line has them.

use amdev_fw::{Versions, synthetic};
use serde_json::Value;
use std::path::Path;

mod common;

use common::{amdev, stderr};

const GPUS: [&str; 5] = ["navi31", "navi32", "navi33", "navi44", "navi48"];

/// The JSON object that a command prints, which must end with this exit code.
fn json(code: i32, args: &[&str]) -> Value {
    let out = amdev(&[&["--json"], args].concat());
    let text = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(code), "{args:?}: {text}{}", stderr(&out));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}"))
}

fn stages_us(boot: &Value) -> u64 {
    boot["stages"].as_array().unwrap().iter().map(|s| s["us"].as_u64().unwrap()).sum()
}

#[test]
fn the_demo_passes_on_every_gpu_from_every_state_with_a_large_and_a_small_bar() {
    for gpu in GPUS {
        for (state, path) in [("cold", "cold"), ("amdgpu", "reset"), ("amdev", "warm"), ("malformed", "warm")]
        {
            for bar in ["", ",bar=256M"] {
                let device = format!("sim:{gpu},state={state}{bar}");
                let out = json(0, &["--device", &device, "demo"]);
                assert_eq!((&out["checked"], &out["wrong"]), (&8192.into(), &0.into()), "{device}");
                assert_eq!(out["boot"]["path"], path, "{device}: {}", out["boot"]["why"]);
                assert_eq!(out["boot"]["reset_done"], path == "reset", "{device}");
                assert_eq!(out["violations"], Value::Array(Vec::new()), "{device}");
            }
        }
    }
}

#[test]
fn a_demo_on_eight_gpus_boots_them_in_at_most_1_2_times_the_time_of_one_and_copies_between_them() {
    for gpu in ["navi31", "navi48"] {
        let one = stages_us(&json(0, &["--device", &format!("sim:{gpu}"), "boot"]));
        let eight = json(0, &["--device", &format!("sim:{gpu},count=8"), "demo"]);
        let took = eight["boot_us"].as_u64().unwrap();
        assert!(took >= one && took * 10 <= one * 12, "{gpu}: eight take {took} us, one {one} us");
        let gpus = eight["gpus"].as_array().unwrap();
        assert_eq!(gpus.len(), 8, "{gpu}");
        for (index, one) in gpus.iter().enumerate() {
            assert_eq!(one["boot"]["path"], "cold", "{gpu} {index}");
            // Copy and kernel, then to the next GPU's memory and back.
            assert_eq!((&one["checked"], &one["wrong"]), (&(4 * 4096).into(), &0.into()), "{gpu} {index}");
            let steps = one["steps"].as_array().unwrap();
            let names: Vec<&str> = steps.iter().map(|s| s["name"].as_str().unwrap()).collect();
            assert_eq!(names[names.len() - 2..], ["to the next", "from the next"], "{gpu} {index}");
            assert_eq!(one["violations"], Value::Array(Vec::new()), "{gpu} {index}");
        }
    }
}

#[test]
fn several_gpus_run_the_demo_from_every_state_and_with_small_bars() {
    for device in [
        "sim:navi33,count=2,state=amdgpu",
        "sim:navi44,count=2,state=amdev,bar=256M",
        "sim:navi32,count=3,state=malformed",
    ] {
        let out = amdev(&["--device", device, "demo", "--elements", "512"]);
        let text = String::from_utf8_lossy(&out.stdout);
        assert_eq!(out.status.code(), Some(0), "{device}: {text}{}", stderr(&out));
        let count = if device.contains("=3") { 3 } else { 2 };
        let summary = format!("all right: {} values checked, 0 wrong", count * 4 * 512);
        assert!(text.contains(&summary), "{device}: {text}");
        // One table: its header, and a row for each GPU.
        let header = text.lines().position(|l| l.starts_with("GPU ")).expect(&text);
        let rows = text.lines().skip(header + 1).take_while(|l| l.ends_with("  0")).count();
        assert_eq!(rows, count, "{device}: {text}");
    }
}

#[test]
fn one_of_several_gpus_that_hangs_is_named_and_the_command_fails() {
    let out = amdev(&["--device", "sim:navi31,count=2,fault=hang:psp-ring", "demo"]);
    assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
    assert!(stderr(&out).contains("GPU 0: booting the device"), "{}", stderr(&out));
    assert!(stderr(&out).contains("PSP_C2PMSG_64"), "{}", stderr(&out));
}

#[test]
fn a_command_for_one_device_refuses_several() {
    let out = amdev(&["--device", "sim:navi31,count=8", "copy", "--size", "4K"]);
    assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
    assert!(stderr(&out).contains("`copy` uses one device"), "{}", stderr(&out));
}

#[test]
fn each_gpu_of_several_has_a_trace_file_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("boot.jsonl");
    let args = ["--device", "sim:navi33,count=2", "--trace", trace.to_str().unwrap(), "boot"];
    assert_eq!(amdev(&args).status.code(), Some(0));
    for (name, device) in [("boot.jsonl", "sim:navi33#0"), ("boot.1.jsonl", "sim:navi33#1")] {
        let text = std::fs::read_to_string(dir.path().join(name)).unwrap();
        let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(header["device"], device);
        assert!(text.lines().count() > 500, "{name}");
    }
}

/// The resets that a command tried: which, and whether it helped.
fn resets(out: &Value) -> Vec<(String, bool)> {
    let list = out["resets"].as_array().unwrap();
    list.iter().map(|r| (r["reset"].as_str().unwrap().to_owned(), r["helped"] == true)).collect()
}

#[test]
fn boot_tells_each_reset_that_it_tried_and_what_came_of_it() {
    for (device, tried, reset_done) in [
        ("sim:navi31", &[][..], false),
        ("sim:navi48,state=malformed", &[("queue reset", true)], false),
        ("sim:navi48,state=amdgpu", &[("mode-1 reset", true)], true),
    ] {
        let out = json(0, &["--device", device, "boot"]);
        let expected: Vec<_> = tried.iter().map(|(name, helped)| ((*name).to_owned(), *helped)).collect();
        assert_eq!(resets(&out), expected, "{device}");
        assert_eq!(out["reset_done"], reset_done, "{device}");
    }
    // Also where the boot fails in the end.
    let out = amdev(&["--device", "sim:navi31,state=amdgpu,fault=smu-dead", "boot"]);
    assert_eq!(out.status.code(), Some(1));
    let tried = "resets tried: mode-1 reset: not possible, the SMU does not answer; bus reset: helped";
    assert!(stderr(&out).contains(tried), "{}", stderr(&out));
}

#[test]
fn reset_brings_every_gpu_back_to_power_on_from_every_state() {
    for (device, by) in [
        ("sim:navi31", "bus reset"),
        ("sim:navi48", "bus reset"),
        ("sim:navi31,state=amdgpu", "mode-1 reset"),
        ("sim:navi44,state=amdev", "mode-1 reset"),
        ("sim:navi33,state=malformed", "mode-1 reset"),
        ("sim:navi48,state=amdgpu,fault=smu-dead", "bus reset"),
    ] {
        let out = json(0, &["--device", device, "reset"]);
        assert_eq!(out["path"], "reset", "{device}");
        assert_eq!(resets(&out).last(), Some(&(by.to_owned(), true)), "{device}");
        assert_eq!(out["reset_done"], true, "{device}");
    }
}

/// A folder with synthetic firmware for a board.
fn firmware(dir: &Path, gpu: &str, device: u16, revision: u8) {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/golden/{gpu}/discovery.bin"));
    let ips = amdev_core::discovery::parse(&std::fs::read(table).unwrap()).unwrap();
    let versions = Versions::of(&ips, device, revision).unwrap();
    for kind in versions.files() {
        let bytes = synthetic::file(versions, kind).emit().unwrap();
        std::fs::write(dir.join(versions.file_name(kind).to_string()), bytes).unwrap();
    }
}

#[test]
fn kicker_boards_boot_with_their_own_images_and_only_they() {
    // C11: PCI 0x7551 rev 0xC8 and 0x744B rev 0 take kicker images for sos, smu, imu and rlc; 0x7551 rev
    // 0xC0 takes the standard ones.
    for (gpu, pci, revision, kicker, sos) in [
        ("navi48", 0x7551, 0xc8, true, "psp_14_0_3_sos"),
        ("navi48", 0x7551, 0xc0, false, "psp_14_0_3_sos"),
        ("navi31", 0x744b, 0, true, "psp_13_0_0_sos"),
    ] {
        let device = format!("sim:{gpu},pci={pci:x},rev={revision:x}");
        let info = json(0, &["--device", &device, "info"]);
        let names: Vec<&str> =
            info["firmware"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
        let special = names.iter().filter(|n| n.ends_with("_kicker.bin")).count();
        assert_eq!(special, if kicker { 4 } else { 0 }, "{device}: {names:?}");

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        firmware(dir.path(), gpu, pci, revision);
        let boot = json(0, &["--device", &device, "--firmware", path, "boot"]);
        assert_eq!(boot["firmware"], path, "{device}");
        // The images of the other kind of board are no substitute.
        let suffix = if kicker { "_kicker" } else { "" };
        let other = if kicker { "" } else { "_kicker" };
        let own = format!("{sos}{suffix}.bin");
        std::fs::rename(dir.path().join(&own), dir.path().join(format!("{sos}{other}.bin"))).unwrap();
        let out = amdev(&["--device", &device, "--firmware", path, "boot"]);
        assert_eq!(out.status.code(), Some(4), "{device}: {}", stderr(&out));
        assert!(stderr(&out).contains(&own), "{device}: {}", stderr(&out));
    }
}

#[test]
fn a_gpu_is_taken_by_its_discovery_table_whatever_its_pci_id() {
    for pci in ["7551", "73bf", "1", "ffff"] {
        let out = json(0, &["--device", &format!("sim:navi48,pci={pci},rev=0"), "demo"]);
        assert_eq!((&out["target"], &out["wrong"]), (&"gfx1201".into(), &0.into()), "{pci}");
    }
}
