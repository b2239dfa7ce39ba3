//! The simulated GPU as a vfio-user server: another process drives it over a Unix socket.
//!
//! The protocol is that of QEMU's `docs/interop/vfio-user.rst`, version 0.0. One client at a time;
//! the device keeps its state between them. What a client mapped for DMA and its eventfds go with
//! it. Time is real: answers come and interrupts are raised without any access.
//!
//! Clients can map VRAM, unless [`Options::map`] is off. The simulator does not see what they write
//! through a mapping, and is less strict: see [`crate::SimGpu::share_vram`].

mod command;
mod irq;
mod ticker;
mod wire;

use crate::config::{ClockKind, Config, ConfigError};
use crate::gpu::SimGpu;
use command::Client;
use irq::Irqs;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;
use ticker::Ticker;

/// What cannot be served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The GPU's description is wrong.
    #[error("--gpu: {0}")]
    Gpu(#[from] ConfigError),
    /// A key of the GPU that makes no sense here.
    #[error("--gpu: {0}")]
    Key(&'static str),
    /// The socket cannot be made.
    #[error("socket {path}: {why}")]
    Socket {
        /// Its path.
        path: PathBuf,
        /// Why not.
        why: io::Error,
    },
    /// The system refused something.
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
}

/// What is served.
#[derive(Clone, Debug)]
pub struct Options {
    /// The GPU.
    pub config: Config,
    /// VRAM can be mapped by the client.
    pub map: bool,
}

impl Options {
    /// Parses `GPU[,key=value]...`: the keys of [`Config::parse`], and `map=on|off`.
    pub fn parse(text: &str) -> Result<Options, ServeError> {
        let mut map = true;
        let mut rest = Vec::new();
        for part in text.split(',') {
            match part.strip_prefix("map=") {
                Some("on") => map = true,
                Some("off") => map = false,
                Some(_) => return Err(ServeError::Key("map is on or off")),
                None if part == "clock=virtual" => {
                    return Err(ServeError::Key("the clock of a served GPU is real"));
                }
                None => rest.push(part),
            }
        }
        let mut config = Config::parse(&rest.join(","))?;
        if config.count != 1 {
            return Err(ServeError::Key("a server serves one GPU; start one for each"));
        }
        config.clock = ClockKind::Real;
        Ok(Options { config, map })
    }
}

/// Listens at a path; a socket that a dead server left there is replaced.
pub(crate) fn listen(path: &Path) -> Result<UnixListener, ServeError> {
    let error = |why| ServeError::Socket { path: path.to_owned(), why };
    match UnixListener::bind(path) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
            let stale = path.symlink_metadata().is_ok_and(|m| m.file_type().is_socket())
                && UnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
            if !stale {
                return Err(error(e));
            }
            std::fs::remove_file(path).map_err(error)?;
            UnixListener::bind(path).map_err(error)
        }
        other => other.map_err(error),
    }
}

/// Serves until SIGTERM or SIGINT, which end the process with exit code 0 after a line of JSON on
/// stdout: what the device was asked to do, and its violations. `ready` is called when clients can
/// connect.
pub fn serve(options: Options, path: &Path, ready: impl FnOnce()) -> Result<(), ServeError> {
    let system = |what| move |e: io::Error| ServeError::System(what, e);
    let gpu = SimGpu::new(options.config.clone());
    let vram = if options.map { Some(share(&gpu).map_err(system("VRAM in shared memory"))?) } else { None };
    let irqs = Arc::new(Irqs::default());
    let hook = Arc::clone(&irqs);
    gpu.on_interrupt(move || hook.trigger(irq::MSI));
    let listener = listen(path)?;
    let mut signals =
        Signals::new([SIGTERM, SIGINT]).map_err(|e| ServeError::System("signal handlers", e))?;
    let (at_end, socket) = (gpu.clone(), path.to_owned());
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            // A socket that is gone already is as good.
            let _ = std::fs::remove_file(&socket);
            println!("{}", summary(&at_end));
            std::process::exit(0);
        }
    });
    let ticker = Ticker::start(gpu.clone());
    ready();
    let mut known = 0;
    loop {
        let (socket, _) = listener.accept().map_err(system("accepting a client"))?;
        let client = Client::new(&gpu, vram.as_ref(), &irqs, &ticker);
        if let Err(e) = client.serve(socket) {
            eprintln!("client lost: {e}");
        }
        let violations = gpu.violations();
        for v in violations.iter().skip(known) {
            eprintln!("violation: {v}");
        }
        known = violations.len();
    }
}

/// VRAM in a file, as long as the largest window onto it.
fn share(gpu: &SimGpu) -> io::Result<File> {
    let fd = memfd_create("amdev-sim VRAM", MemfdFlags::CLOEXEC)?;
    let chip = gpu.config().chip;
    ftruncate(&fd, chip.bar0.max(chip.vram_bytes()))?;
    let file = File::from(fd);
    gpu.share_vram(file.try_clone()?)?;
    Ok(file)
}

fn summary(gpu: &SimGpu) -> serde_json::Value {
    serde_json::json!({ "counts": gpu.counts(), "violations": gpu.violations() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_server_are_told_from_those_of_the_gpu() {
        let o = Options::parse("navi31,map=off,state=amdgpu,delays=off").unwrap();
        assert!(!o.map && !o.config.delays && o.config.clock == ClockKind::Real);
        assert!(Options::parse("navi48").unwrap().map);
        for (text, word) in [
            ("navi31,map=yes", "on or off"),
            ("navi31,clock=virtual", "real"),
            ("navi31,count=2", "one GPU"),
            ("navi99", "navi31"),
        ] {
            let e = Options::parse(text).unwrap_err().to_string();
            assert!(e.contains(word), "{text}: {e}");
        }
    }
}
