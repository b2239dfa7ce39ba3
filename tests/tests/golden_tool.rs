//! The `golden` command: committed files pass, corrupted copies do not, odd input is an error and
//! never a panic.

use std::path::{Path, PathBuf};
use std::process::Command;

use amdev_tests::{read, root};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Exit code and everything printed.
fn golden(args: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_golden"));
    command.env_remove("AMDEV_FIRMWARE").args(args);
    let out = command.output().expect("the command starts");
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(!text.contains("panicked"), "{args:?}: {text}");
    (out.status.code().expect("it ends by itself"), text)
}

fn expect(code: i32, args: &[&str]) -> String {
    let (found, text) = golden(args);
    assert_eq!(found, code, "{args:?}: {text}");
    text
}

fn at(path: &str) -> String {
    let path = root().join(path);
    let packed = PathBuf::from(format!("{}.gz", path.display()));
    if path.exists() { path } else { packed }.display().to_string()
}

/// A folder with unpacked copies of a committed folder's files.
fn copy(dir: &str, names: &[&str]) -> TempDir {
    let to = TempDir::new().unwrap();
    for name in names {
        let bytes = read(root().join(dir).join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        std::fs::write(to.path().join(name), bytes).unwrap();
    }
    to
}

const DEVICE: [&str; 5] = ["device.json", "discovery.bin", "initial_regs.json", "psp.json", "smu.json"];

/// A device's folder with traces beside its description.
fn device(gpu: &str, more: &[&str]) -> TempDir {
    copy(&format!("golden/{gpu}"), &[&DEVICE, more].concat())
}

fn path(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).display().to_string()
}

fn load(file: &str) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// Changes a file by `change`, which must change something, and gives it back at the end.
fn with_change(file: &str, change: &dyn Fn(&mut Vec<Value>), judge: &dyn Fn()) {
    let before = std::fs::read_to_string(file).unwrap();
    let lines = file.ends_with(".jsonl");
    let mut rows: Vec<Value> = if lines {
        before.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    } else {
        vec![serde_json::from_str(&before).unwrap()]
    };
    let old = rows.clone();
    change(&mut rows);
    assert_ne!(old, rows, "nothing was changed in {file}");
    let text: Vec<String> = rows.iter().map(Value::to_string).collect();
    std::fs::write(file, text.join("\n")).unwrap();
    judge();
    std::fs::write(file, before).unwrap();
}

/// A trace with one changed value, one row left out and two rows exchanged must not pass.
fn corrupted_trace_fails(command: &str, file: &str) {
    let judge = || {
        let text = expect(1, &[command, file]);
        assert!(text.contains("differs:"), "{text}");
    };
    let writes =
        |rows: &[Value]| -> Vec<usize> { (0..rows.len()).filter(|n| rows[*n]["op"] == "w").collect() };
    with_change(
        file,
        &|rows| {
            let n = writes(rows)[writes(rows).len() / 2];
            rows[n]["val"] = (rows[n]["val"].as_u64().unwrap() ^ 1).into();
        },
        &judge,
    );
    with_change(
        file,
        &|rows| {
            let n = writes(rows)[writes(rows).len() / 2];
            rows.remove(n);
        },
        &judge,
    );
    with_change(
        file,
        &|rows| {
            let n = writes(rows)[writes(rows).len() / 2];
            rows.swap(n, n - 1);
        },
        &judge,
    );
    expect(0, &[command, file]);
}

#[test]
fn a_corrupted_trace_is_no_replay() {
    let dir = device("navi31", &["boot.jsonl", "fini.jsonl"]);
    corrupted_trace_fails("replay", &path(&dir, "boot.jsonl"));
    corrupted_trace_fails("replay", &path(&dir, "fini.jsonl"));
}

#[test]
fn what_a_trace_says_of_the_psp_and_of_reads_counts() {
    let dir = device("navi31", &["boot.jsonl"]);
    let file = path(&dir, "boot.jsonl");
    let first = |rows: &[Value], op: &str, len: u64| {
        rows.iter().position(|r| r["op"] == op && r["len"] == len).unwrap()
    };
    type Change<'c> = &'c dyn Fn(&mut Vec<Value>);
    let changes: [Change<'_>; 6] = [
        // A fence, a response, a frame, a command, the length of a message, a clock level.
        &|rows| rows[185]["data"] = "02000000".into(),
        &|rows| {
            let n = first(rows, "vr", 1024);
            rows[n]["data_rstrip"] = "00".into();
        },
        &|rows| {
            let n = first(rows, "vw", 64);
            rows[n]["data"] = "00".into();
        },
        &|rows| {
            let n = first(rows, "vw", 1024);
            rows[n]["sha256"] = "00".into();
        },
        &|rows| rows[127]["len"] = 5893.into(),
        &|rows| {
            let n = rows.iter().position(|r| r["op"] == "r" && r["val"] == 2525).unwrap();
            rows[n]["val"] = 2526.into();
        },
    ];
    for change in changes {
        with_change(&file, change, &|| drop(expect(1, &["replay", &file])));
    }
}

#[test]
fn a_corrupted_trace_does_not_run_through_the_simulator() {
    let dir = device("navi31", &["boot.jsonl", "fini.jsonl"]);
    corrupted_trace_fails("sim", &path(&dir, "boot.jsonl"));
    corrupted_trace_fails("sim", &path(&dir, "fini.jsonl"));
}

#[test]
fn folders_of_another_name_are_taken() {
    let dir = device("navi48", &["boot.jsonl", "fini.jsonl"]);
    let folder = dir.path().display().to_string();
    let text = expect(0, &["replay", &folder]);
    assert!(text.contains("2 files: "), "{text}");
    let text = expect(0, &["sim", &folder]);
    assert!(text.contains("known faults that show: 1, 2, 6, 7, 10"), "{text}");
}

/// Known faults by flow, as `sim` prints them.
#[test]
fn the_simulator_reports_the_known_faults_of_each_flow() {
    for (trace, faults) in [
        ("navi31/boot.jsonl", "1, 2, 6, 7"),
        ("navi31/fini.jsonl", "none"),
        ("navi31/flush_tlb_mm.jsonl", "8"),
        ("navi31/reset_smu_dead.jsonl", "3"),
        ("navi31/open_pci.jsonl", "1, 2, 6, 7, 12"),
        ("navi32/boot.jsonl", "1, 2, 6, 7, 10"),
    ] {
        let text = expect(0, &["sim", &at(&format!("golden/{trace}"))]);
        assert!(text.contains(&format!("known faults that show: {faults};")), "{trace}: {text}");
    }
}

/// Changes one value after another of a JSON file; each must be noticed.
fn values_count(command: &str, file: &str, more: &[&str], pointers: &[(&str, Value)]) {
    let args = [&[command, file], more].concat();
    expect(0, &args);
    for (pointer, value) in pointers {
        with_change(
            file,
            &|rows| *rows[0].pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value.clone(),
            &|| {
                let text = expect(1, &args);
                assert!(text.contains("differs:"), "{pointer}: {text}");
            },
        );
    }
}

/// Leaves a row of a list out, then exchanges two; both must be noticed.
fn rows_count(command: &str, file: &str, more: &[&str], list: &str, row: usize) {
    let args = [&[command, file], more].concat();
    with_change(
        file,
        &|rows| drop(rows[0].pointer_mut(list).unwrap().as_array_mut().unwrap().remove(row)),
        &|| drop(expect(1, &args)),
    );
    with_change(
        file,
        &|rows| rows[0].pointer_mut(list).unwrap().as_array_mut().unwrap().swap(row, row + 1),
        &|| drop(expect(1, &args)),
    );
}

#[test]
fn corrupted_psp_messages_fail() {
    let dir = device("navi31", &["boot.jsonl"]);
    let file = path(&dir, "psp.json");
    values_count(
        "psp",
        &file,
        &[],
        &[
            ("/0/compid", "0x90000".into()),
            ("/1/msg1_addr", "0x8000200001".into()),
            ("/4/ring_size", "0x20000".into()),
            ("/5/toc_sha256", "00".into()),
            ("/6/fw_type", 19.into()),
            ("/6/fw_type_name", "GFX_FW_TYPE_NONE".into()),
            ("/8/fw_sha256", "00".into()),
            ("/7/buf_size", "0x1300001".into()),
            ("/9/cmd_buf", "00".into()),
            ("/19/fence_value", 226.into()),
        ],
    );
    rows_count("psp", &file, &[], "", 8);
}

#[test]
fn corrupted_smu_messages_fail() {
    let dir = device("navi31", &["boot.jsonl"]);
    let file = path(&dir, "smu.json");
    values_count(
        "smu",
        &file,
        &[],
        &[
            ("/0/arg", "0x81".into()),
            ("/3/msg", 30.into()),
            ("/4/ret", "0x1f5".into()),
            ("/4/name", "PPSMC_MSG_None".into()),
            ("/20/ret", "0x1".into()),
            ("/9/debug", true.into()),
        ],
    );
    rows_count("smu", &file, &[], "", 4);
}

#[test]
fn corrupted_queue_descriptors_and_faults_fail() {
    let dir = device("navi31", &["mqd.json", "faults.json", "setup_ring.jsonl"]);
    let file = path(&dir, "mqd.json");
    let hex = load(&file)["compute_usb"]["mqd_hex"].as_str().unwrap().replacen("0155", "0156", 1);
    values_count(
        "mqd",
        &file,
        &[],
        &[
            ("/compute_pci/args/ring_addr", "0x200000400100".into()),
            ("/compute_pci/args/queue", "0x1".into()),
            ("/compute_pci/mqd_paddr", "0x2000100".into()),
            ("/compute_usb/mqd_hex", hex.into()),
            ("/compute_usb/mqd_dwords_nonzero/136", "0x4001".into()),
            ("/compute_pipe1_queue3/fields_nonzero/cp_hqd_quantum", "0x112".into()),
        ],
    );
    let file = path(&dir, "faults.json");
    values_count(
        "faults",
        &file,
        &[],
        &[
            ("/0/status", "0xc41b56".into()),
            ("/1/addr_hi", "0x3".into()),
            ("/0/ip", "GC".into()),
            ("/1/trace/3/val", 3.into()),
            ("/0/trace/1/addr", 108302.into()),
        ],
    );
}

#[test]
fn corrupted_tables_of_registers_and_scratch_fail() {
    let dir = copy("golden/navi31", &["device.json", "regs_used.json"]);
    let file = path(&dir, "regs_used.json");
    values_count(
        "regs",
        &file,
        &[],
        &[("/regCP_HQD_ACTIVE/addr", 12810.into()), ("/regCP_HQD_ACTIVE/base_idx", 1.into())],
    );
    let dir = copy("golden", &["scratch.json", "program.json", "tlsf.json", "queues.json", "pt.json"]);
    values_count("scratch", &path(&dir, "scratch.json"), &[], &[("/0/tmpring_size", "0x10201".into())]);
    let file = path(&dir, "program.json");
    values_count("program", &file, &[], &[("/0/rsrc1", "0x60af0002".into())]);
    let file = path(&dir, "tlsf.json");
    values_count(
        "tlsf",
        &file,
        &[],
        &[("/0/final_blocks/0/2", json!(true)), ("/1/ops/0/1", json!("0x3000"))],
    );
    rows_count("tlsf", &file, &[], "/0/final_blocks", 0);
    let file = path(&dir, "queues.json");
    let (list, dword) = ("/targets/gfx1100/compute/am/1/dwords", "/targets/gfx1100/compute/am/1/dwords/5");
    values_count("queues", &file, &[], &[(dword, "0x1236".into())]);
    rows_count("queues", &file, &[], list, 4);
    let file = path(&dir, "pt.json");
    let (steps, va) = ("/formats/gfx11/scenarios/1/steps", "/formats/gfx11/scenarios/1/steps/0/vaddr");
    values_count("pt", &file, &[], &[(va, "0x200000007000".into())]);
    // The order of a truth table says nothing; that of steps does.
    with_change(
        &file,
        &|rows| {
            drop(
                rows[0]
                    .pointer_mut("/formats/gfx12/pte_flags/rows")
                    .unwrap()
                    .as_array_mut()
                    .unwrap()
                    .remove(3),
            )
        },
        &|| drop(expect(1, &["pt", &file])),
    );
    rows_count("pt", &file, &[], "/formats/gfx11/scenarios/24/steps", 0);
    assert!(!load(&file).pointer(steps).unwrap().as_array().unwrap().is_empty());
}

#[test]
fn corrupted_facts_and_cases_fail() {
    let objects = root().join("corpus/co").display().to_string();
    let dir = copy("corpus/facts", &["fill.json"]);
    let file = path(&dir, "fill.json");
    let more = ["--objects", &objects];
    values_count("facts", &file, &more, &[("/0/kernels/0/entry/vaddr", 1.into())]);

    let few = copy("corpus/co", &["fill.gfx1100.v5.O2.co", "vecadd.gfx1100.v5.O2.co"]);
    let objects = few.path().display().to_string();
    let more = ["--objects", &objects, "--device", "sim:navi31"];
    let dir = copy("corpus/cases", &["fill.json"]);
    let file = path(&dir, "fill.json");
    let old = load(&file)[0]["args"][0]["expect"]["first8_bits"][0].clone();
    assert!(old.is_string());
    values_count(
        "cases",
        &file,
        &more,
        &[
            ("/0/args/0/expect/sha256", "00".into()),
            ("/0/args/0/init_sha256", "00".into()),
            ("/0/args/0/expect/first8_bits/0", "00".into()),
            ("/0/grid/0", 1000.into()),
            ("/0/object", "no_such_object".into()),
        ],
    );
    rows_count("cases", &file, &more, "/0/args", 0);
}

#[test]
fn a_good_object_among_the_broken_ones_fails() {
    let dir = copy("corpus/co", &["vecadd.gfx1100.v5.O2.co"]);
    let file = path(&dir, "vecadd.gfx1100.v5.O2.co");
    expect(1, &["reject", &file]);
    std::fs::write(&file, b"no ELF").unwrap();
    expect(0, &["reject", &file]);
    let bad = root().join("corpus/malformed").display().to_string();
    expect(0, &["reject", &bad]);
}

#[test]
fn firmware_of_no_known_package_is_an_error() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path().display().to_string();
    let (code, text) = golden(&["fw", &at("golden/fw.json"), "--firmware", &folder]);
    assert_ne!(code, 0, "{text}");
    for dir in amdev_tests::golden_fw::firmware_dirs() {
        let list = copy("golden", &["fw.json"]);
        let (file, dir) = (path(&list, "fw.json"), dir.display().to_string());
        if golden(&["fw", &file, "--firmware", &dir]).0 == 0 {
            with_change(
                &file,
                &|rows| {
                    for package in ["2025", "2026"] {
                        rows[0]["navi31"][package]["descs"][0]["size"] = 1.into();
                    }
                },
                &|| drop(expect(1, &["fw", &file, "--firmware", &dir])),
            );
            return;
        }
    }
    println!("skipped: no pinned firmware package is here to corrupt its list");
}

#[test]
fn exit_codes_tell_usage_from_difference() {
    expect(2, &["usb", "/no/such/file"]);
    expect(2, &["pt", "/no/such/file"]);
    expect(2, &["pt"]);
    expect(2, &["nonsense"]);
    expect(0, &["--help"]);
    let text = expect(0, &["replay", "--help"]);
    assert!(text.contains("--firmware"), "{text}");
    // A trace without its device beside it cannot be judged.
    let dir = copy("golden/navi31", &["fini.jsonl"]);
    expect(2, &["replay", &path(&dir, "fini.jsonl")]);
    expect(2, &["sim", &path(&dir, "fini.jsonl")]);
}

#[test]
fn packed_files_folders_and_missing_gz_are_found() {
    let plain = root().join("golden/pt.json").display().to_string();
    for name in [plain.clone(), format!("{plain}.gz"), root().join("golden").display().to_string()] {
        expect(0, &["pt", &name]);
    }
    let text = expect(0, &["regs", &root().join("golden").display().to_string()]);
    assert!(text.contains("5 files: "), "{text}");
}

#[test]
fn odd_input_is_said_to_be_wrong() {
    let texts = [
        "",
        "{",
        "{}",
        "[]",
        "null",
        "[1]",
        "[{}]",
        "{\"a\":{}}",
        "[[]]",
        "\u{0}\u{1}",
        "{\"targets\":{\"x\":{}}}",
    ];
    let dir = device("navi31", &["boot.jsonl"]);
    let objects = root().join("corpus/malformed").display().to_string();
    for text in texts {
        for command in [
            "psp", "smu", "mqd", "faults", "scratch", "regs", "pt", "tlsf", "queues", "program", "fw",
            "facts", "cases",
        ] {
            let name = if command == "regs" { "regs_used" } else { command };
            let file = path(&dir, &format!("{name}.json"));
            let kept = std::fs::read(&file).ok();
            std::fs::write(&file, text).unwrap();
            let mut args = vec![command, file.as_str()];
            if command == "facts" || command == "cases" {
                args.extend(["--objects", &objects]);
            }
            let (code, said) = golden(&args);
            assert!(code == 1 || code == 2, "{command} of {text:?}: {code} {said}");
            match kept {
                Some(bytes) => std::fs::write(&file, bytes).unwrap(),
                None => std::fs::remove_file(&file).unwrap(),
            }
        }
        for command in ["replay", "sim"] {
            let file = path(&dir, "fini.jsonl");
            std::fs::write(&file, text).unwrap();
            let (code, said) = golden(&[command, &file]);
            assert!(code == 1 || code == 2, "{command} of {text:?}: {code} {said}");
        }
    }
    assert!(Path::new(&objects).exists());
}
