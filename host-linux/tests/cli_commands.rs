//! Commands of `amdev`, their exit codes and what they say with `--json`.

use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::process::Stdio;
use std::time::{Duration, Instant};

mod common;

use common::{amdev, command, fill, stderr, stdout};

fn json(args: &[&str]) -> Value {
    let out = amdev(&[&["--json"], args].concat());
    let text = stdout(&out);
    assert_eq!(text.lines().count(), 1, "{args:?}: {text}{}", stderr(&out));
    serde_json::from_str(&text).unwrap()
}

#[test]
fn every_failure_has_its_exit_code_with_and_without_json() {
    let fill = fill();
    let elf = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let run = |file| vec!["run", file, "--grid", "1", "--block", "1"];
    for (args, code) in [
        (vec!["boot", "--warm"], 2),
        (vec!["demo", "--elements", "0"], 2),
        (vec![], 2),
        (run(elf), 2),
        (run(&fill), 2),
        (
            vec![
                "run",
                &fill,
                "--grid",
                "1",
                "--block",
                "4096",
                "--arg",
                "out:u32:4",
                "--arg",
                "u32=1",
                "--arg",
                "u32=1",
            ],
            2,
        ),
        (vec!["--device", "sim:navi33", "run", &fill, "--grid", "1", "--block", "1"], 2),
        (vec!["--firmware", "/no/such/dir", "fw", "list"], 4),
        (vec!["--firmware", "/no/such/dir", "boot"], 4),
        (vec!["fw", "check", "/no/such/dir"], 4),
        (vec!["--device", "sim:navi99", "list"], 2),
        (vec!["copy", "--size", "25G"], 2),
        (vec!["--device", "usb:7", "info"], 3),
        (vec!["--device", "vfio-user:/no/such/socket", "info"], 3),
    ] {
        let out = amdev(&args);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {}", stderr(&out));
        let value = json(&args);
        assert_eq!(value["ok"], false, "{args:?}: {value}");
        if !matches!(args.get(2), Some(&"fw" | &"list")) {
            assert_eq!(value["exit_code"], code, "{args:?}: {value}");
        }
    }
}

#[test]
fn an_error_says_everything_once() {
    for args in [
        &["--device", "vfio-user:/no/such/socket", "info"][..],
        &["--device", "sim:navi31,fault=hang:sos", "boot"],
        &["--device", "sim:navi99", "info"],
        &["--firmware", "/no/such/dir", "boot"],
    ] {
        let text = stderr(&amdev(args));
        let parts: Vec<&str> = text.trim().split(": ").collect();
        let mut once = parts.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), parts.len(), "{text}");
    }
}

#[test]
fn variables_that_are_empty_count_as_unset() {
    let mut command = command(&["info"]);
    let out = command.env("AMDEV_DEVICE", "").env("AMDEV_FIRMWARE", "").output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    assert!(stdout(&out).contains("gfx1100"), "{}", stdout(&out));
}

#[test]
fn devices_that_are_named_are_looked_at() {
    let value = json(&["--device", "sim:navi48,bar=256M", "list", "vfio-user:/no/such/socket"]);
    let devices = value["devices"].as_array().unwrap();
    let find = |name: &str| devices.iter().find(|d| d["device"] == name).unwrap_or(&Value::Null);
    let small = find("sim:navi48,bar=256M");
    assert!(small["name"].as_str().unwrap().contains("gfx1201"), "{value}");
    assert_eq!(small["problem"], Value::Null);
    let socket = find("vfio-user:/no/such/socket");
    assert!(socket["problem"].as_str().unwrap().contains("/no/such/socket"), "{value}");
    assert!(find("sim:navi31").is_object(), "{value}");
}

#[test]
fn every_warning_of_the_doctor_has_a_remedy() {
    let value = json(&["doctor"]);
    let checks = value["checks"].as_array().unwrap();
    for name in ["IOMMU", "vfio-pci", "locked memory", "huge pages", "memory compaction", "firmware"] {
        assert!(checks.iter().any(|c| c["name"] == name), "{name}: {value}");
    }
    for check in checks {
        let (good, remedy) = (check["state"] == "good", check["remedy"].as_str().unwrap());
        assert!(good == remedy.is_empty() || check["name"] == "AMD GPUs", "{check}");
    }
}

#[test]
fn rings_are_shown_as_packets() {
    let value = json(&["ring", "dump"]);
    let rings = value["rings"].as_array().unwrap();
    let names = |queue: &str| -> Vec<&str> {
        let ring = rings.iter().find(|r| r["queue"] == queue).unwrap();
        assert_eq!(ring["error"], Value::Null);
        assert_eq!(ring["read_pointer"], ring["write_pointer"], "everything was executed");
        ring["packets"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect()
    };
    assert!(names("SDMA").contains(&"COPY_LINEAR") && names("SDMA").contains(&"FENCE"), "{value}");
    let compute = names("compute");
    assert_eq!(compute.iter().filter(|n| **n == "DISPATCH_DIRECT").count(), 1, "{value}");
    assert!(value.to_string().contains("regCOMPUTE_NUM_THREAD_X = 0x100"), "{value}");
    let last = json(&["ring", "dump", "--queue", "sdma", "--last", "1"]);
    assert_eq!(last["rings"][0]["packets"].as_array().unwrap().len(), 1);
}

#[test]
fn registers_are_read_written_and_dumped() {
    let value = json(&["regs", "read", "SCRATCH_REG7", "GRBM_STATUS"]);
    let names: Vec<&Value> = value["registers"].as_array().unwrap().iter().map(|r| &r["name"]).collect();
    assert_eq!(names, ["SCRATCH_REG7", "GRBM_STATUS"]);
    let value = json(&["regs", "write", "SCRATCH_REG7", "0x1234"]);
    assert_eq!(value["registers"][0]["value"], 0x1234);
    let out = amdev(&["regs", "dump", "osssys"]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    assert!(stdout(&out).contains("IH_RB_CNTL"), "{}", stdout(&out));
    let unknown = amdev(&["regs", "read", "NO_SUCH_REG"]);
    assert_eq!(unknown.status.code(), Some(2), "{}", stderr(&unknown));
}

#[test]
fn registers_of_a_device_that_is_gone_are_an_error() {
    for fault in ["ones", "unplug"] {
        // Discovery needs some thousand accesses; after them the device goes.
        for after in ["2800", "3000"] {
            let device = format!("sim:navi31,fault={fault}:{after}");
            let out = amdev(&["--device", &device, "regs", "dump", "gc"]);
            assert!(matches!(out.status.code(), Some(1 | 3)), "{device}: {}", stdout(&out));
            let said = stderr(&out);
            assert!(said.contains("gone") || said.contains("respond") || said.contains("ones"), "{said}");
        }
    }
}

#[test]
fn a_dry_run_only_reads_the_device() {
    let trace = tempfile::NamedTempFile::new().unwrap();
    let path = trace.path().to_str().unwrap();
    let value = json(&["--trace", path, "--device", "sim:navi31,state=amdgpu", "boot", "--dry-run"]);
    assert_eq!((&value["path"], &value["state"]), (&"reset".into(), &"set up by another driver".into()));
    assert!(value["writes"].as_array().unwrap().len() > 380, "{value}");
    let rows = std::fs::read_to_string(trace.path()).unwrap();
    assert!(rows.lines().count() > 5);
    let wrote = rows
        .lines()
        .find(|l| ["w", "vw", "vz", "db"].iter().any(|op| l.contains(&format!("\"op\":\"{op}\""))));
    assert_eq!(wrote, None);
}

#[test]
fn release_ends_what_a_dead_process_left() {
    let value = json(&["--device", "sim:navi31,state=malformed", "release"]);
    assert!(value["done"].as_str().unwrap().contains("taken down") && value["ok"] == true, "{value}");
    let value = json(&["--device", "sim:navi31", "release"]);
    assert_eq!((&value["done"], &value["state"]), (&"nothing to do".into(), &"as after power-on".into()));
}

#[test]
fn verbosity_tells_stages_then_waits_then_accesses() {
    let log = |level: &str| stderr(&amdev(&[level, "boot"]));
    let (v, vv, vvv) = (log("-v"), log("-vv"), log("-vvv"));
    assert!(v.contains("stage psp done") && v.contains("booted: cold") && !v.contains("DEBUG"), "{v}");
    assert!(vv.contains("us for regMP0_SMN_C2PMSG_81") && !vv.contains("TRACE"), "{vv}");
    assert!(vvv.contains("write regSCRATCH_REG7 = 0xad5e0001"), "no register accesses in -vvv");
    assert!(stderr(&amdev(&["boot"])).is_empty());
}

#[test]
fn the_time_of_repetitions_is_bounded() {
    let fill = fill();
    let started = Instant::now();
    let args = ["--timeout", "1", "run", &fill, "--grid", "4", "--block", "256", "--repeat", "4000000000"];
    let out = amdev(&[&args[..], &["--arg", "out:u32:1024", "--arg", "u32=7", "--arg", "u32=1000"]].concat());
    assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
    assert!(stderr(&out).contains("of 4000000000 runs were done"), "{}", stderr(&out));
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

#[test]
fn one_signal_ends_repetitions() {
    let fill = fill();
    let run = ["run", &fill, "--grid", "4", "--block", "256", "--repeat", "4000000000"];
    let run = [&run[..], &["--arg", "out:u32:1024", "--arg", "u32=7", "--arg", "u32=1000"]].concat();
    for args in [run, vec!["copy", "--size", "64K", "--repeat", "4000000000"]] {
        let mut child = command(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_secs(3));
        assert!(child.try_wait().unwrap().is_none(), "{args:?}: it works");
        rustix::process::kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let asked = Instant::now();
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
        assert!(stderr(&out).contains("stopped by a signal"), "{}", stderr(&out));
        assert!(asked.elapsed() < Duration::from_secs(5), "{args:?}: {:?}", asked.elapsed());
    }
}

#[test]
fn a_hang_names_the_work_and_the_queue_and_ends_in_time() {
    for (fault, args, word) in [
        ("hang:compute", &["demo"][..], "running kernel vecadd"),
        ("hang:sdma", &["copy", "--size", "64K"], "SDMA queue"),
    ] {
        let device = format!("sim:navi31,fault={fault}");
        let started = Instant::now();
        let out = amdev(&[&["--device", &device, "--timeout", "2"], args].concat());
        assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
        assert!(stderr(&out).contains(word), "{}", stderr(&out));
        assert!(started.elapsed() < Duration::from_secs(60), "{fault}: {:?}", started.elapsed());
    }
}

#[test]
fn a_large_copy_is_made_in_parts() {
    let value = json(&["copy", "--size", "9M"]);
    assert_eq!((&value["parts"], &value["wrong_bytes"]), (&2.into(), &0.into()), "{value}");
}
