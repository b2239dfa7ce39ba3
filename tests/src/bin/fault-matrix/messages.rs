//! A served device whose messages fail.

use crate::death::Server;
use crate::proxy::{Mishap, Proxy, Seen};
use crate::recorded::Flow;
use amdev_linux::vfio_user::VfioUserBus;
use amdev_tests::gpus;

fn boot(proxy: &Proxy) -> Result<(), String> {
    let bus = VfioUserBus::open(&proxy.socket).map_err(|e| e.to_string())?;
    gpus::boot(bus, Default::default()).map(drop).map_err(|e| format!("{e:#}"))
}

/// The messages of a boot that goes well.
pub(crate) fn seen(gpu: &str, flow: Flow) -> Result<Vec<Seen>, String> {
    let server = Server::in_state(gpu, flow)?;
    let proxy = Proxy::start(&server.socket, None)?;
    boot(&proxy)?;
    Ok(proxy.seen())
}

/// One mishap.
pub(crate) fn fail(gpu: &str, flow: Flow, at: u64, mishap: Mishap) -> Result<(), String> {
    let mut server = Server::in_state(gpu, flow)?;
    let proxy = Proxy::start(&server.socket, Some((at, mishap)))?;
    let result = boot(&proxy);
    match (mishap, result) {
        (Mishap::Late, Err(e)) => return Err(format!("a late answer made the boot fail: {e}")),
        (Mishap::Lost | Mishap::Gone, Ok(())) if proxy.seen().len() as u64 > at + 1 => {
            return Err("the boot succeeded without an answer".into());
        }
        _ => {}
    }
    drop(proxy);
    if mishap == Mishap::Gone {
        // What is left of the server's socket is no hindrance.
        server.kill();
        return Ok(());
    }
    server.boots("the next boot")
}
