//! The driver's process is killed; the device lives on in another process and must be usable.

use crate::recorded::{Flow, Steps, Watched};
use amdev_linux::vfio_user::VfioUserBus;
use amdev_tests::gpus;
use rustix::process::{Signal, getpid, kill_process};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// This program as a server.
pub(crate) fn serve(gpu: &str, socket: &Path) -> ExitCode {
    use amdev_sim::serve::{Options, serve};
    let done = Options::parse(gpu).and_then(|options| serve(options, socket, || println!("serving")));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

/// This program as a driver that is killed before its access number `at` (see [`Steps`]). Exit code 0:
/// the boot ended before that.
pub(crate) fn victim(socket: &Path, at: u64) -> ExitCode {
    let bus = match VfioUserBus::open(socket) {
        Ok(bus) => bus,
        Err(e) => {
            eprintln!("error: {e}");
            return ExitCode::from(2);
        }
    };
    let mut steps = Steps::default();
    let bus = Watched::new(bus, move |window, offset, write| {
        if steps.of(window, offset, write) == at {
            let _ = kill_process(getpid(), Signal::KILL);
        }
    });
    match gpus::boot(bus, Default::default()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::from(3)
        }
    }
}

/// A served GPU.
pub(crate) struct Server {
    child: Child,
    pub(crate) socket: PathBuf,
}

impl Server {
    pub(crate) fn start(gpu: &str) -> Result<Server, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let n = NUMBER.fetch_add(1, Ordering::Relaxed);
        let socket = std::env::temp_dir().join(format!("amdev-matrix-{}-{n}.sock", std::process::id()));
        let mut child = this()?
            .arg("serve")
            .arg(gpu)
            .arg(&socket)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("starting a server: {e}"))?;
        let mut line = String::new();
        let out = child.stdout.take().ok_or("a server without output")?;
        let read = BufReader::new(out).read_line(&mut line);
        let server = Server { child, socket };
        match read {
            Ok(_) if line.starts_with("serving") => Ok(server),
            _ => Err(format!("the server of {gpu} did not start: {line}")),
        }
    }

    /// A server of a GPU in the state that a boot of this flow finds.
    pub(crate) fn in_state(gpu: &str, flow: Flow) -> Result<Server, String> {
        let server = Server::start(&format!("{gpu},delays=off,map=off"))?;
        if flow == Flow::Warm {
            server.boots("the boot before")?;
        }
        Ok(server)
    }

    /// A process that boots, copies and shuts down, as the next one after a fault.
    pub(crate) fn boots(&self, what: &str) -> Result<(), String> {
        let bus = VfioUserBus::open(&self.socket).map_err(|e| format!("{what}: {e}"))?;
        gpus::process(bus).map(drop).map_err(|e| format!("{what}: {e:#}"))
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn this() -> Result<Command, String> {
    std::env::current_exe().map(Command::new).map_err(|e| e.to_string())
}

/// One death: at this step of a boot in this state; `late` if the boot may end before it.
pub(crate) fn die(gpu: &str, flow: Flow, at: u64, late: bool) -> Result<(), String> {
    let server = Server::in_state(gpu, flow)?;
    let victim = this()?
        .arg("victim")
        .arg(&server.socket)
        .arg(at.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|e| format!("starting a driver: {e}"))?;
    match (victim.status.signal(), victim.status.code()) {
        (Some(9), _) => {}
        (_, Some(0)) if late => {}
        (_, Some(0)) => return Err("the boot ended before the driver could die there".into()),
        _ => {
            let text = String::from_utf8_lossy(&victim.stderr);
            return Err(format!("the driver ended with {}: {}", victim.status, text.trim()));
        }
    }
    server.boots("the next boot")?;
    server.boots("the boot after the next")
}
