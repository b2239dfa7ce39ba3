//! The `amdev` command as a person calls it.

use std::path::{Path, PathBuf};
use std::process::Command;

mod common;

use common::{amdev, stderr, stdout};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests").join(name)
}

#[test]
fn help_names_every_command_and_the_exit_codes() {
    let out = amdev(&["--help"]);
    assert_eq!(out.status.code(), Some(0));
    let text = stdout(&out);
    for word in ["demo", "boot", "fini", "reset", "run", "copy", "regs", "fw", "info", "Exit codes"] {
        assert!(text.contains(word), "{word}");
    }
}

#[test]
fn wrong_usage_exits_with_2_and_says_why() {
    for (args, word) in [
        (&["--device", "moon", "info"][..], "the forms are"),
        (&["--device", "sim:navi99", "info"], "navi31"),
        (&["--device", "sim:navi31,colour=red", "info"], "colour"),
        (&["run", "no-such-file.co", "--grid", "1", "--block", "1"], "no-such-file.co"),
        (&["run", "k.co", "--grid", "1", "--block", "1", "--arg", "in:f32:what:4"], "unknown generator"),
        (&["info", "--discovery", "no-such-file.bin"], "no-such-file.bin"),
        (&["boot", "--warm"], "--warm"),
    ] {
        let out = amdev(args);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {}", stderr(&out));
        assert!(stderr(&out).contains(word), "{args:?}: {}", stderr(&out));
        assert!(out.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_device_that_this_build_cannot_reach_exits_with_3() {
    let out = amdev(&["--device", "usb:7", "info"]);
    assert_eq!(out.status.code(), Some(3), "{}", stderr(&out));
    assert!(stderr(&out).contains("usb:7"), "{}", stderr(&out));
}

#[test]
fn missing_firmware_exits_with_4_and_names_file_or_place() {
    let empty = std::env::temp_dir().join(format!("amdev-no-firmware-{}", std::process::id()));
    std::fs::create_dir_all(&empty).unwrap();
    let dir = empty.to_str().unwrap();
    let boot = amdev(&["--firmware", dir, "boot"]);
    assert_eq!(boot.status.code(), Some(4), "{}", stderr(&boot));
    assert!(stderr(&boot).contains("psp_13_0_0_sos.bin"), "{}", stderr(&boot));
    let check = amdev(&["fw", "check", dir]);
    assert_eq!(check.status.code(), Some(4), "{}", stderr(&check));
    assert!(stderr(&check).contains(dir), "{}", stderr(&check));
    std::fs::remove_dir_all(&empty).unwrap();
}

#[test]
fn an_error_with_json_is_one_object_on_stdout() {
    let out = amdev(&["--json", "--device", "sim:navi99", "info"]);
    let text = stdout(&out);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        text.starts_with('{') && text.contains(r#""ok":false"#) && text.contains(r#""exit_code":2"#),
        "{text}"
    );
}

#[test]
fn every_simulated_gpu_is_listed() {
    let text = stdout(&amdev(&["list"]));
    for gpu in ["navi31", "navi32", "navi33", "navi44", "navi48"] {
        assert!(text.contains(&format!("sim:{gpu} ")), "{gpu}: {text}");
    }
}

#[test]
fn a_discovery_table_in_a_file_is_shown_without_a_device() {
    let file = data("golden/navi48/discovery.bin");
    let out = amdev(&["info", "--discovery", file.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    let text = stdout(&out);
    assert!(text.contains("gfx1201") && text.contains("12.0.1") && text.contains("0x1260"), "{text}");
}

#[test]
fn a_file_that_is_no_discovery_table_is_refused_by_name() {
    let file = data("golden/navi48/device.json");
    let out = amdev(&["info", "--discovery", file.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(2));
    assert!(stderr(&out).contains("device.json"), "{}", stderr(&out));
}

#[test]
fn the_device_can_come_from_the_environment() {
    let out = Command::new(env!("CARGO_BIN_EXE_amdev"))
        .args(["info"])
        .env("AMDEV_DEVICE", "sim:navi33")
        .output()
        .expect("the command starts");
    assert!(stdout(&out).contains("gfx1102"), "{}{}", stdout(&out), stderr(&out));
}

#[test]
fn completions_exist_for_the_common_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let out = amdev(&["completions", shell]);
        assert_eq!(out.status.code(), Some(0));
        assert!(stdout(&out).contains("amdev"), "{shell}");
    }
}

#[test]
fn a_trace_starts_with_its_header_and_reads_the_memory_size_first() {
    let file = std::env::temp_dir().join(format!("amdev-trace-{}.jsonl", std::process::id()));
    let out = amdev(&["--trace", file.to_str().unwrap(), "info"]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    let text = std::fs::read_to_string(&file).unwrap();
    let mut rows = text.lines();
    assert_eq!(
        rows.next(),
        Some(r#"{"op":"header","format":1,"driver":"amdev","device":"sim:navi31","flow":"info"}"#)
    );
    assert_eq!(
        rows.next(),
        Some(r#"{"op":"r","ip":"nbio","name":"mmRCC_CONFIG_MEMSIZE","addr":3555,"val":24560,"i":0}"#)
    );
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn the_demo_checks_every_value_and_says_so() {
    let out = amdev(&["demo", "--elements", "5000"]);
    assert_eq!(out.status.code(), Some(0), "{}{}", stdout(&out), stderr(&out));
    // 5000 elements are 20 whole workgroups of 256; checked once after the copy, once after the kernel.
    assert!(stdout(&out).contains("all right: 10240 values checked, 0 wrong"), "{}", stdout(&out));
    let json = stdout(&amdev(&["--json", "demo"]));
    for pair in
        [r#""checked":8192"#, r#""wrong":0"#, r#""ok":true"#, r#""path":"cold""#, r#""violations":[]"#]
    {
        assert!(json.contains(pair), "{pair}: {json}");
    }
}

#[test]
fn a_small_bar_serves_copies_as_a_large_one_does() {
    let out = amdev(&["--device", "sim:navi31,bar=256M", "copy", "--size", "1M", "--repeat", "2"]);
    assert_eq!(out.status.code(), Some(0), "{}{}", stdout(&out), stderr(&out));
    assert!(stdout(&out).contains("1 MiB x 2: every byte right"), "{}", stdout(&out));
}

#[test]
fn a_kernel_gives_its_case_files_checksum() {
    let object = data("corpus/co/fill.gfx1100.v5.O2.co");
    let out = amdev(&[
        "run",
        object.to_str().unwrap(),
        "--grid",
        "4",
        "--block",
        "256",
        "--arg",
        "inout:u32:const(286331153):1064",
        "--arg",
        "u32=3735928559",
        "--arg",
        "u32=1000",
    ]);
    assert_eq!(out.status.code(), Some(0), "{}{}", stdout(&out), stderr(&out));
    // `fill/n1000` of tests/corpus/cases/fill.json.
    let sha = "9da1de55059050305c5842e2862c707039fe48208af05b924305edc7d892b2b7";
    assert!(stdout(&out).contains(sha), "{}", stdout(&out));
}

#[test]
fn a_dry_run_lists_writes_and_ends_with_the_mark_in_the_scratch_register() {
    let out = amdev(&["boot", "--dry-run"]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    let text = stdout(&out);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.first(), Some(&"# sim:navi31 is as after power-on; it was only read."));
    assert_eq!(lines.get(2), Some(&"vram 0x0: 4096 bytes of zeros"));
    assert_eq!(
        lines.iter().rfind(|l| l.starts_with("register")),
        Some(&"register regSCRATCH_REG7 = 0xad5e0001")
    );
}

#[test]
fn a_hang_ends_with_the_register_that_was_waited_for() {
    let out = amdev(&["--device", "sim:navi31,fault=hang:sos", "boot"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(stderr(&out).contains("C2PMSG_81") && stderr(&out).contains("psp"), "{}", stderr(&out));
}
