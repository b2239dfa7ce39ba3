//! What `--help` shows as examples works as it stands there.

use amdev_cli::args::Cli;
use amdev_sim::serve::{Options, serve};
use clap::CommandFactory as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The examples of a command and of those below it.
fn examples(command: &clap::Command, found: &mut Vec<String>) {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let text = help.split_once("Example").map_or("", |(_, rest)| rest);
    // One that goes on in the next line.
    let text =
        text.split("\\\n").map(|part| part.trim_end().trim_start_matches(' ')).collect::<Vec<_>>().join(" ");
    for line in text.lines().map(str::trim).filter(|l| l.starts_with("amdev")) {
        // Behind it stands what it is for, or where its output goes.
        let line = line.split("  ").next().unwrap_or(line).split(" > ").next().unwrap_or(line);
        found.push(line.trim().to_owned());
    }
    command.get_subcommands().for_each(|below| examples(below, found));
}

#[test]
fn every_example_in_the_help_works() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("gpu.sock");
    let (ready, is_ready) = std::sync::mpsc::channel();
    let served = socket.clone();
    std::thread::spawn(move || {
        serve(Options::parse("navi31,delays=off").unwrap(), &served, || ready.send(()).unwrap()).unwrap();
    });
    is_ready.recv().unwrap();
    // Files of the project are named from its folder; what is written goes elsewhere.
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests");
    std::os::unix::fs::symlink(tests, dir.path().join("tests")).unwrap();
    std::fs::create_dir(dir.path().join("DIR")).unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_amdev")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());

    let mut found = Vec::new();
    examples(&Cli::command(), &mut found);
    let mut ran = 0;
    for example in &found {
        // What needs a device, a file or a directory of the user's.
        if ["pci:", "DIR", "/usr/lib/firmware", "table.bin", "ring.bin", "usb:0"]
            .iter()
            .any(|n| example.contains(n))
        {
            continue;
        }
        let socket = format!("vfio-user:{}", socket.display());
        let mut line = example.replace("vfio-user:/tmp/gpu.sock", &socket).replace("amdev-usb ", "amdev ");
        if line.ends_with("--watch") {
            line += " --count 2";
        }
        // What another one wrote is not overwritten.
        let _ = std::fs::remove_file(dir.path().join("amdev-report.txt"));
        let mut command = Command::new("sh");
        command.args(["-c", &line]).current_dir(dir.path()).env("PATH", &path).stdin(Stdio::null());
        let out = command.env_remove("AMDEV_DEVICE").env_remove("AMDEV_FIRMWARE").output().unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        let code = out.status.code();
        // These tell of the machine, whatever that has.
        let of_the_machine = ["doctor", "fw list", "scan"].iter().any(|c| example.contains(c));
        assert!(
            code == Some(0) || (of_the_machine && matches!(code, Some(1 | 3 | 4))),
            "{example}: {code:?}: {said}"
        );
        ran += 1;
    }
    println!("{ran} of {} examples ran", found.len());
    assert!(ran >= 25, "{found:#?}");
}
