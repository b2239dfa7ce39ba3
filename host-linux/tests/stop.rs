//! Owners, signals and measurements: the `amdev` command on a GPU that this test serves.

use amdev_sim::serve::{Options, serve};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// A GPU that is served as long as this process lives.
struct Served(PathBuf);

impl Served {
    fn new(name: &str, gpu: &str) -> Served {
        let socket = std::env::temp_dir().join(format!("amdev-stop-{name}-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let options = Options::parse(gpu).unwrap();
        let (ready, is_ready) = channel();
        let path = socket.clone();
        std::thread::spawn(move || serve(options, &path, move || ready.send(()).unwrap()).unwrap());
        is_ready.recv_timeout(Duration::from_secs(30)).unwrap();
        Served(socket)
    }

    fn amdev(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_amdev"));
        command.arg("--device").arg(format!("vfio-user:{}", self.0.display())).args(args);
        command.env_remove("AMDEV_DEVICE").env_remove("AMDEV_FIRMWARE");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn json(&self, args: &[&str]) -> Value {
        let out = self.amdev(&[&["--json"], args].concat()).output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{args:?}: {}", text(&out));
        serde_json::from_slice(&out.stdout).unwrap()
    }

    /// So many samples, as `smi --watch` has them.
    fn watch(&self, count: usize) -> Vec<Value> {
        let number = count.to_string();
        let args = ["--json", "smi", "--watch", "--count", &number, "--interval", "0.05"];
        let out = self.amdev(&args).output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{}", text(&out));
        let lines: Vec<Value> =
            out.stdout.split(|b| *b == b'\n').filter_map(|l| serde_json::from_slice(l).ok()).collect();
        assert_eq!(lines.len(), count, "{}", text(&out));
        lines
    }

    /// Whether the device has an owner: its lock is one of the system's sockets (see `owner.rs`). To take
    /// the lock, or to connect to it, would be in the way of who comes for it.
    fn is_owned(&self) -> bool {
        let meta = self.0.metadata().unwrap();
        let lock = format!("@amdev:socket:{:x}:{:x}", meta.dev(), meta.ino());
        std::fs::read_to_string("/proc/net/unix").unwrap().lines().any(|l| l.ends_with(&lock))
    }

    /// A command that copies until it is stopped, in the middle of its work.
    fn at_work(&self) -> Child {
        let child = self.amdev(&["copy", "--size", "1M", "--repeat", "100000000"]).spawn().unwrap();
        // It owns the device from before the boot on.
        let start = Instant::now();
        while !self.is_owned() {
            assert!(start.elapsed() < Duration::from_secs(60), "the command does not take the device");
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(1500));
        child
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_signal_ends_the_work_in_order_and_the_next_boot_is_warm() {
    let served = Served::new("signal", "navi31,delays=off");
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut child = served.at_work();
        assert!(child.try_wait().unwrap().is_none(), "it works");
        send(&child, signal);
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(1), "{}", text(&out));
        assert!(text(&out).contains("stopped by a signal"), "{}", text(&out));
        let boot = served.json(&["boot"]);
        assert_eq!(boot["path"], "warm", "{boot}");
        assert!(boot["why"].as_str().unwrap().contains("in order"), "{boot}");
    }
}

#[test]
fn a_signal_ends_a_kernel_that_does_not_end_by_itself_and_the_next_boot_is_warm() {
    for gpu in ["navi31,delays=off,fault=hang:compute", "navi48,delays=off,fault=hang:compute"] {
        let served = Served::new("kernel", gpu);
        let child = served.amdev(&["demo"]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(1500));
        send(&child, Signal::INT);
        let sent = Instant::now();
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(1), "{}", text(&out));
        assert!(text(&out).contains("stopped by a signal"), "{}", text(&out));
        assert!(sent.elapsed() < Duration::from_secs(8), "{:?}, not until --timeout", sent.elapsed());
        let boot = served.json(&["boot"]);
        assert_eq!(boot["path"], "warm", "{boot}");
        assert!(boot["why"].as_str().unwrap().contains("in order"), "{boot}");
    }
}

#[test]
fn a_signal_in_a_boot_of_a_served_gpu_ends_it_and_the_next_boot_works() {
    let served = Served::new("boot", "navi31,state=amdgpu");
    let mut stopped = 0;
    for ms in (20..1600).step_by(75) {
        let child = served.amdev(&["boot", "--cold"]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(ms));
        send(&child, Signal::TERM);
        let out = child.wait_with_output().unwrap();
        match out.status.code() {
            // Before its handlers are there.
            None => {}
            Some(0) => {}
            code => {
                assert_eq!(code, Some(1), "{ms} ms: {}", text(&out));
                assert!(text(&out).contains("stopped by a signal"), "{ms} ms: {}", text(&out));
                stopped += 1;
            }
        }
        served.json(&["boot"]);
        assert_eq!(served.json(&["boot"])["path"], "warm");
    }
    assert!(stopped > 2, "{stopped} boots were stopped");
}

#[test]
fn the_second_signal_ends_the_process_at_once() {
    // The kernel never ends, and the orderly end waits for it.
    let served = Served::new("second", "navi31,delays=off,fault=hang:compute,fault=hang:dequeue");
    let mut child = served.amdev(&["demo"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    assert!(child.try_wait().unwrap().is_none(), "it waits for the kernel");
    send(&child, Signal::TERM);
    std::thread::sleep(Duration::from_millis(700));
    assert!(child.try_wait().unwrap().is_none(), "it shuts down");
    send(&child, Signal::TERM);
    let second = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert!(second.elapsed() < Duration::from_secs(5), "{:?}", second.elapsed());
}

#[test]
fn a_device_at_work_is_refused_to_a_second_process_which_is_told_who_has_it() {
    let served = Served::new("owner", "navi31,delays=off");
    assert!(!served.is_owned(), "nobody has it yet");
    let child = served.at_work();
    for command in ["demo", "boot", "regs read SCRATCH_REG7"] {
        let start = Instant::now();
        let out = served.amdev(&command.split(' ').collect::<Vec<_>>()).output().unwrap();
        assert_eq!(out.status.code(), Some(3), "{command}: {}", text(&out));
        let owner = format!("in use by process {} (amdev)", child.id());
        assert!(text(&out).contains(&owner), "{command}: {}", text(&out));
        assert!(start.elapsed() < Duration::from_secs(4), "{command}: at once, not after a timeout");
    }
    // To measure is no use of it that the owner would mind: it does so itself.
    let smi = served.json(&["smi"]);
    assert_eq!((&smi["measured"], &smi["power_limit_w"]), (&"owner".into(), &303.into()), "{smi}");
    assert!(smi["levels_mhz"][0].as_array().unwrap().len() > 1, "the owner knows the levels: {smi}");
    let watched = served.watch(3);
    assert!(watched.iter().all(|s| s["measured"] == "owner"), "{watched:?}");
    // However the owner ends, nothing of it is left.
    send(&child, Signal::KILL);
    child.wait_with_output().unwrap();
    assert!(!served.is_owned(), "the lock goes with its process");
    let fini = served.amdev(&["fini"]).output().unwrap();
    assert_eq!(fini.status.code(), Some(3), "{}", text(&fini));
    assert!(text(&fini).contains("release` shuts it down"), "{}", text(&fini));
    let boot = served.json(&["boot"]);
    assert_eq!(boot["path"], "warm", "{boot}");
}

#[test]
fn measurements_need_a_booted_device_and_change_nothing() {
    let served = Served::new("smi", "navi48,delays=off");
    let out = served.amdev(&["smi"]).output().unwrap();
    assert_eq!(out.status.code(), Some(3), "{}", text(&out));
    assert!(text(&out).contains("not booted by amdev"), "{}", text(&out));
    served.json(&["boot"]);
    let smi = served.json(&["smi"]);
    for (key, value) in [("edge_c", 41), ("hotspot_c", 46), ("power_w", 21), ("power_limit_w", 303)] {
        assert_eq!(smi[key], value, "{smi}");
    }
    let lines = served.watch(3);
    assert!(lines.windows(2).all(|w| w[0]["counter"].as_u64() < w[1]["counter"].as_u64()), "{lines:?}");
    assert_eq!(served.json(&["boot"])["path"], "warm");
    let fini = served.json(&["fini"]);
    assert_eq!(fini["why"], "left in order by this driver", "each command shuts down itself: {fini}");
    let shown = text(&served.amdev(&["smi"]).output().unwrap());
    for word in ["graphics clock", "MHz", "21 W of 303 W", "41 C, 46 C"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
}

#[test]
fn smi_answers_while_a_kernel_runs_and_its_watching_hinders_nobody() {
    let served = Served::new("beside", "navi31,delays=off,fault=hang:compute");
    served.json(&["boot"]);
    // Watches from before the others come, without owning the device.
    let watch = served.amdev(&["--json", "smi", "--watch", "--interval", "0.02"]).spawn().unwrap();
    let trace = served.0.with_extension("jsonl");
    let start = Instant::now();
    let args = ["--timeout", "3", "--trace", trace.to_str().unwrap(), "demo"];
    let demo = served.amdev(&args).spawn().unwrap();
    // The kernel never ends; its process waits for it and answers all the same.
    while !served.is_owned() {
        assert!(start.elapsed() < Duration::from_secs(20), "the demo does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut slowest = Duration::ZERO;
    let mut heard = 0;
    while served.is_owned() && heard < 20 {
        let asked = Instant::now();
        let smi = served.json(&["smi"]);
        if smi["measured"] == "owner" {
            heard += 1;
            slowest = slowest.max(asked.elapsed());
        }
    }
    assert_eq!(heard, 20, "samples while the demo has the device");
    let out = demo.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", text(&out));
    assert!(text(&out).contains("did not end within"), "{}", text(&out));
    println!("slowest of {heard} samples beside a kernel that hangs: {slowest:?}");
    // What the owner did for others stands in its trace, in the order in which it was done.
    let traced = std::fs::read_to_string(&trace).unwrap();
    std::fs::remove_file(&trace).unwrap();
    let asked = traced.lines().filter(|l| l.contains("C2PMSG_66") && l.contains("\"w\"")).count();
    assert!(asked > 4 * heard, "{asked} messages to the SMU in the trace");
    send(&watch, Signal::INT);
    let out = watch.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
}

#[test]
fn watching_goes_on_over_a_reset_and_the_next_boot() {
    let served = Served::new("watch", "navi48,delays=off");
    served.json(&["boot"]);
    let watch = served.amdev(&["--json", "smi", "--watch", "--interval", "0.02"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    served.json(&["reset"]);
    std::thread::sleep(Duration::from_millis(500));
    served.json(&["boot"]);
    std::thread::sleep(Duration::from_millis(500));
    send(&watch, Signal::INT);
    let out = watch.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    let lines: Vec<Value> =
        out.stdout.split(|b| *b == b'\n').filter_map(|l| serde_json::from_slice(l).ok()).collect();
    let missed = |line: &Value| line["error"].as_str().is_some_and(|e| e.contains("not booted by amdev"));
    let first = lines.iter().position(missed).expect("a sample that cannot be had");
    let last = lines.iter().rposition(missed).unwrap();
    let measured = |lines: &[Value]| lines.iter().any(|l| l["power_limit_w"] == 303);
    assert!(measured(&lines[..first]) && measured(&lines[last..]), "{}", text(&out));
}
