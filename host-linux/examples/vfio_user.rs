//! Drives a GPU that another process serves over a vfio-user socket.
//!
//! ```text
//! amdev-sim serve --gpu navi31 --socket /tmp/gpu.sock &
//! cargo run -p amdev-linux --example vfio_user -- /tmp/gpu.sock
//! ```

use amdev_core::boot::Options;
use amdev_core::device::Probe;
use amdev_core::iface::AllocFlags;
use amdev_core::mm::{Block, VaRange};
use amdev_core::runtime::{Runtime, Sizes};
use amdev_fw::files::SearchPath;
use amdev_fw::{FirmwareSet, Versions, synthetic};
use amdev_linux::vfio_user::VfioUserBus;
use std::error::Error;
use std::path::Path;

/// Boots the GPU behind a socket, copies `data` there and back, and shuts it down; what came back,
/// and what was done.
pub(crate) fn run(socket: &Path, data: &[u8]) -> Result<(Vec<u8>, String), Box<dyn Error>> {
    let mut probe = Probe::open(VfioUserBus::open(socket)?)?;
    let (device, revision) = amdev_cli::bus_session::HostBus::pci_id(&mut probe.device.bus);
    let versions = Versions::of(&probe.ips, device, revision)?;

    // AMD's firmware where this machine has it. Only a simulated GPU takes the synthetic images.
    let options = Options::default();
    let report = match FirmwareSet::from_dirs(versions, &SearchPath::system()) {
        Ok(mut files) => probe.boot(&mut files, options, &mut |_| ())?,
        Err(_) => probe.boot(&mut synthetic::set(versions)?, options, &mut |_| ())?,
    };
    let done = format!("{} boot: {}", report.path, report.reason);

    let (mut boot, mut pool, mut space) = ([Block::EMPTY; 64], [Block::EMPTY; 256], [Block::EMPTY; 256]);
    let va = VaRange::new(&mut space).map_err(|e| e.to_string())?;
    let gpu = probe.into_gpu(report.ready, &mut boot, &mut pool, &va)?;
    let mut gpu = Runtime::new(gpu, Sizes::default())?;

    let buffer = gpu.alloc(data.len() as u64, AllocFlags::empty())?;
    gpu.write(&buffer, data)?;
    let mut back = vec![0; data.len()];
    gpu.read(&buffer, &mut back)?;

    // Nothing does device I/O when it is dropped: going without this, the next boot would find the
    // GPU in disorder, and say so.
    gpu.free(buffer)?;
    gpu.release()?;
    gpu.into_iface().fini(&mut |_| ())?;
    Ok((back, done))
}

#[allow(dead_code)] // the tests call `run`
fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args_os().nth(1).ok_or("name the socket, for example /tmp/gpu.sock")?;
    let data: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
    let (back, done) = run(Path::new(&socket), &data)?;
    println!("{done}");
    println!("{} bytes there and back: {}", data.len(), if back == data { "right" } else { "WRONG" });
    Ok(())
}
