//! `amdev` and files: what a person names may be anything, and nothing that is there is lost.

use std::path::{Path, PathBuf};
use std::process::Command;

mod common;

use common::{amdev, command, fill, stderr, stdout};

fn at(dir: &tempfile::TempDir, name: &str) -> (PathBuf, String) {
    let path = dir.path().join(name);
    let text = path.to_str().unwrap().to_owned();
    (path, text)
}

fn fifo(dir: &tempfile::TempDir) -> String {
    let (path, text) = at(dir, "fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    text
}

#[test]
fn endless_and_silent_files_are_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (fifo, fill) = (fifo(&dir), fill());
    for bad in ["/dev/zero", fifo.as_str()] {
        let input = format!("in:u32:@{bad}");
        for args in [
            vec!["run", bad, "--grid", "1", "--block", "1"],
            vec!["run", fill.as_str(), "--grid", "1", "--block", "1", "--arg", input.as_str()],
            vec!["info", "--discovery", bad],
            vec!["ring", "dump", "--queue", "sdma", "--file", bad],
        ] {
            let out = amdev(&args);
            assert_eq!(out.status.code(), Some(2), "{args:?}: {}", stderr(&out));
            assert!(
                stderr(&out).contains(bad) && stderr(&out).contains("no regular file"),
                "{}",
                stderr(&out)
            );
        }
    }
}

#[test]
fn outputs_are_checked_before_the_device_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let ((_, trace), fill) = (at(&dir, "t.jsonl"), fill());
    let (_, twice) = at(&dir, "twice");
    let run = |more: &[&str]| {
        let mut args = vec!["--trace", trace.as_str(), "run", fill.as_str(), "--grid", "4", "--block", "256"];
        args.extend(more);
        amdev(&args)
    };
    let out = |path: &str| format!("out:u32:1000:@{path}");
    // Two names of one file, which only their inode tells.
    let ((copy, _), (link, linked)) = (at(&dir, "input.bin"), at(&dir, "link.bin"));
    std::fs::write(&copy, [7; 4000]).unwrap();
    std::fs::hard_link(&copy, &link).unwrap();
    let input = format!("in:u32:@{}", copy.display());
    for (args, word) in [
        (vec![input, out(&linked)], "an input as well"),
        (vec![out("/no/such/dir/f")], "/no/such/dir/f"),
        (vec![out(&twice), out(&twice)], "an output as well"),
        (vec![out(&fill)], "the code object as well"),
    ] {
        let args: Vec<&str> = args.iter().flat_map(|a| ["--arg", a.as_str()]).collect();
        let out = run(&args);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {}", stderr(&out));
        assert!(stderr(&out).contains(word), "{args:?}: {}", stderr(&out));
        assert!(!Path::new(&trace).exists(), "no device was opened");
    }
}

#[test]
fn notes_that_cannot_be_written_end_nothing() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let out = command(&["-vv", "demo"]).stderr(full).output().unwrap();
    assert_eq!(out.status.code(), Some(0));
    assert!(stdout(&out).contains(" 0 wrong"), "{}", stdout(&out));
}

#[test]
fn a_trace_overwrites_nothing_but_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let (path, text) = at(&dir, "notes.txt");
    std::fs::write(&path, "important").unwrap();
    let out = amdev(&["--trace", &text, "info"]);
    assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
    assert!(stderr(&out).contains("no trace"), "{}", stderr(&out));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "important");
    let (path, text) = at(&dir, "t.jsonl");
    for _ in 0..2 {
        assert_eq!(amdev(&["--trace", &text, "info"]).status.code(), Some(0));
    }
    let trace = std::fs::read_to_string(&path).unwrap();
    assert!(trace.starts_with(r#"{"op":"header""#));
    // Nothing was done to a device: what was recorded before is not lost for it.
    for args in [&["--device", "vfio-user:/no/such/socket"][..], &["--firmware", "/no/such/dir"]] {
        let out = amdev(
            &[args, &["--trace", &text, "run", "/no/such/file.co", "--grid", "1", "--block", "1"]].concat(),
        );
        assert_ne!(out.status.code(), Some(0));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), trace, "{args:?}");
    }
}

#[test]
fn firmware_that_is_no_file_is_reported_not_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::rename(fifo(&dir), dir.path().join("psp_13_0_0_sos.bin")).unwrap();
    let place = dir.path().to_str().unwrap();
    let check = amdev(&["fw", "check", place]);
    assert_eq!(check.status.code(), Some(4), "{}{}", stdout(&check), stderr(&check));
    assert!(stdout(&check).contains("no regular file"), "{}{}", stdout(&check), stderr(&check));
    let boot = amdev(&["--firmware", place, "boot"]);
    assert_eq!(boot.status.code(), Some(4), "{}", stderr(&boot));
    assert!(stderr(&boot).contains("no regular file"), "{}", stderr(&boot));
}

#[test]
fn a_report_holds_versions_checks_devices_and_the_trace_of_a_boot() {
    let dir = tempfile::tempdir().unwrap();
    let (path, text) = at(&dir, "report.txt");
    let out = amdev(&["--json", "report", "--output", &text]);
    assert_eq!(out.status.code(), Some(0), "{}{}", stdout(&out), stderr(&out));
    assert!(stdout(&out).contains(r#""device_works":true"#), "{}", stdout(&out));
    let report = std::fs::read_to_string(&path).unwrap();
    for part in [
        "amdev 0.",
        "== checks\n",
        "IOMMU",
        "== devices\n",
        "== sim:navi31\n",
        "boot: cold",
        "== trace\n{\"op\":\"header\"",
    ] {
        assert!(report.contains(part), "{part}");
    }
    let again = amdev(&["report", "--output", &text]);
    assert_eq!(again.status.code(), Some(2), "{}", stderr(&again));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), report);
}

#[test]
fn there_is_no_report_of_a_device_that_cannot_be() {
    let dir = tempfile::tempdir().unwrap();
    let (path, text) = at(&dir, "report.txt");
    let out = amdev(&["--device", "sim:navi99", "report", "--output", &text]);
    assert_eq!(out.status.code(), Some(2), "{}", stdout(&out));
    assert!(stderr(&out).contains("navi99") && !path.exists(), "{}", stderr(&out));
}

#[test]
fn a_report_of_a_device_that_hangs_says_where() {
    let dir = tempfile::tempdir().unwrap();
    let (path, text) = at(&dir, "report.txt");
    let out = amdev(&["--json", "--device", "sim:navi31,fault=hang:sos", "report", "--output", &text]);
    assert_eq!(out.status.code(), Some(0), "{}{}", stdout(&out), stderr(&out));
    assert!(stdout(&out).contains(r#""device_works":false"#), "{}", stdout(&out));
    let report = std::fs::read_to_string(&path).unwrap();
    assert!(report.contains("error: booting the device") && report.contains("C2PMSG_81"));
}
