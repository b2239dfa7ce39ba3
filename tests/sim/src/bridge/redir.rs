//! The bridge as a usbredir device: QEMU's `usb-redir` plugs it into a guest, or a client drives it.
//!
//! The server listens; the client is the protocol's "usb-guest". One client at a time; the bridge and
//! its GPU keep their state between them. Time is real. SIGUSR1 pulls the cable, and plugs it in again.

mod session;
mod wire;

use super::config::BridgeConfigError;
use super::{Bridge, BridgeConfig, Firmware};
use crate::config::ClockKind;
use crate::serve::{ServeError, listen};
use session::Session;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thiserror::Error;

/// What cannot be served.
#[derive(Debug, Error)]
pub enum RedirError {
    /// The description is wrong.
    #[error("--gpu: {0}")]
    Config(#[from] BridgeConfigError),
    /// A key that makes no sense here.
    #[error("--gpu: {0}")]
    Key(&'static str),
    /// The socket or the system.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Parses `GPU[,key=value]...` for a bridge with this firmware: the keys of [`BridgeConfig::parse`]
/// but for the clock, which is real.
pub fn options(text: &str, firmware: Firmware) -> Result<BridgeConfig, RedirError> {
    if text.split(',').any(|part| part == "clock=virtual") {
        return Err(RedirError::Key("the clock of a served bridge is real"));
    }
    if text.split(',').any(|part| part.starts_with("bridge=")) {
        return Err(RedirError::Key("the firmware is told by --bridge"));
    }
    let name = if firmware == Firmware::Custom { "custom" } else { "patched" };
    let mut config = BridgeConfig::parse(&format!("{text},bridge={name}"))?;
    config.gpu.clock = ClockKind::Real;
    Ok(config)
}

/// Serves until SIGTERM or SIGINT, which end the process with exit code 0 after a line of JSON on
/// stdout: what the bridge was asked to do (`usb_commands`, `usb_transfers`, bytes), what the GPU was
/// (`gpu`), and misuse of both (`violations`). `ready` is called when a client can connect.
pub fn serve(config: BridgeConfig, path: &Path, ready: impl FnOnce()) -> Result<(), RedirError> {
    let system = |what| move |e: io::Error| ServeError::System(what, e);
    let bridge = Bridge::new(config);
    let listener = listen(path)?;
    let cable = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGUSR1]).map_err(system("signal handlers"))?;
    let (at_end, socket, pulled) = (bridge.clone(), path.to_owned(), Arc::clone(&cable));
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if signal == SIGUSR1 {
                pulled.store(true, Ordering::SeqCst);
                continue;
            }
            // A socket that is gone already is as good.
            let _ = std::fs::remove_file(&socket);
            println!("{}", summary(&at_end));
            std::process::exit(0);
        }
    });
    ready();
    let mut known = 0;
    loop {
        let (socket, _) = listener.accept().map_err(system("accepting a client"))?;
        if let Err(e) = Session::new(&bridge, socket, &cable).serve() {
            eprintln!("client lost: {e}");
        }
        let violations = bridge.violations();
        for v in violations.iter().skip(known) {
            eprintln!("violation: {v}");
        }
        known = violations.len();
    }
}

/// The counts in one object.
fn summary(bridge: &Bridge) -> serde_json::Value {
    let mut all = serde_json::json!(bridge.counts());
    all["gpu"] = serde_json::json!(bridge.gpu().counts());
    all["violations"] = serde_json::json!(bridge.violations());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_served_bridge_has_a_real_clock_and_one_firmware() {
        let c = options("navi48,fault=usb-late:3", Firmware::Custom).unwrap();
        assert_eq!((c.gpu.clock, c.firmware, c.faults.len()), (ClockKind::Real, Firmware::Custom, 1));
        for (text, word) in [
            ("navi48,clock=virtual", "real"),
            ("navi48,bridge=custom", "--bridge"),
            ("navi99", "navi31"),
            ("navi48,count=2", "one GPU"),
        ] {
            let e = options(text, Firmware::Patched).unwrap_err().to_string();
            assert!(e.contains(word), "{text}: {e}");
        }
    }
}
