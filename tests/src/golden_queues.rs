//! Judges packet encoders and rings against the reference's (`golden/queues.json`), dword by dword.

mod cases;
mod memory;

use amdev_core::iface::{EventMailbox, Notify, Target};
use amdev_core::queue::pm4::ComputeConfig;
use amdev_core::queue::regs::QueueRegs;
use amdev_core::queue::sdma::SdmaConfig;
use amdev_core::queue::sqtt::SqttRegs;
use amdev_core::reg::{Bases, Block, MAX_BASES, Reg, RegFile, r, tables};
use serde_json::Value;

use crate::golden_program::number;
use crate::verdict::Verdict;

pub use memory::{Event, Memory};

/// The SDMA ring of the reference overwrites itself, and never uses an exact fit to its end.
pub const FAULT_23: &str = "fault 23: the reference's SDMA ring overwrites itself or skips an exact fit";
/// Traces fail on everything but gfx1100 and gfx1102.
pub const FAULT_25: &str = "fault 25: the reference cannot trace this generation";
/// The reference leaves the HDP flush out over USB.
pub const USB_HDP: &str = "HDP flush over USB: this driver flushes once a submission, the reference never";
/// Copies of more than 4 MiB with SDMA 5.x.
pub const COPY_COUNT: &str = "SDMA 5.x: the reference splits copies at 1 GiB, but the count has 22 bits \
    (navi10_sdma_pkt_open.h) and is cut off; this driver splits at 4 MiB";
/// `setup` of the dispatch packet.
pub const SETUP: &str =
    "dispatch packet: setup holds the number of dimensions (hsa.h), the reference leaves 0";

/// How a set of recorded cases was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Host {
    /// The driver's own device.
    Own,
    /// The same over USB.
    Usb,
    /// The kernel driver.
    Kfd,
}

/// What the cases of a target share.
struct Setup {
    compute: ComputeConfig,
    sdma: SdmaConfig,
    sqtt: Option<SqttRegs>,
    spi_config_cntl: u32,
    host: Host,
}

/// The mailbox of the recording.
const MAILBOX: EventMailbox = EventMailbox { va: 0x7f00_1234_0028, event: 5 };
/// The XCCs' counters of the recording.
const XCC_SYNC: [u64; 2] = [0x2000_0001_1000, 0x2000_0001_1100];

/// Judges the bytes of a `queues.json`.
pub fn judge(json: &[u8]) -> Result<Verdict, String> {
    let all: Value = serde_json::from_slice(json).map_err(|e| format!("not JSON: {e}"))?;
    let targets = all["targets"].as_object().ok_or("no targets")?;
    let mut verdict = Verdict::default();
    for (name, target) in targets {
        let regs = register_file(&target["meta"])?;
        registers(name, &target["meta"], &regs, &mut verdict);
        for (engine, sets) in [("compute", &target["compute"]), ("copy", &target["copy"])] {
            for (set, rows) in sets.as_object().into_iter().flatten() {
                let setup = setup(&target["meta"], &regs, set)?;
                let rows = rows.as_array().ok_or("a set that is no list")?;
                for row in rows {
                    let case = row["name"].as_str().ok_or("a case without name")?;
                    let place = format!("{name}/{engine}/{set}/{case}");
                    let out = match engine {
                        "compute" => cases::compute(&setup, rows, row, &place, &mut verdict),
                        _ => cases::copy(&setup, row, &place, &mut verdict),
                    };
                    verdict.row(&place, out.unwrap_or_else(|e| vec![e]));
                }
            }
        }
    }
    Ok(verdict)
}

fn version(v: &Value) -> Result<(u8, u8, u8), String> {
    let n: Vec<u8> = v.as_array().into_iter().flatten().filter_map(number).map(|n| n as u8).collect();
    match n[..] {
        [a, b, c] => Ok((a, b, c)),
        _ => Err(format!("{v} is no version")),
    }
}

fn bases(v: &Value, pad: bool) -> Bases {
    let mut out = Bases::default();
    let listed = v.as_array().into_iter().flatten().filter_map(number).map(|n| n as u32);
    for addr in pad.then_some(0).into_iter().chain(listed).take(MAX_BASES) {
        out.addr[usize::from(out.len)] = addr;
        out.len += 1;
    }
    out
}

/// The registers of a target, from this driver's own tables.
fn register_file(meta: &Value) -> Result<RegFile, String> {
    let mut regs = RegFile::new();
    let gc = tables::for_version(Block::Gc, version(&meta["gc_ip"])?).map_err(|e| e.to_string())?;
    regs.set(gc, bases(&meta["gc_bases"], false));
    let nbio = tables::for_version(Block::Nbio, version(&meta["nbio_ip"])?).map_err(|e| e.to_string())?;
    // gfx9 lists NBIO's base addresses without the first one.
    let pad = number(&meta["target"][0]) == Some(9);
    regs.set(nbio, bases(&meta["nbio_bases_iface"], pad));
    Ok(regs)
}

fn setup(meta: &Value, regs: &RegFile, set: &str) -> Result<Setup, String> {
    let (major, minor, stepping) = version(&meta["target"])?;
    let host = match set {
        "am" | "am_pci" => Host::Own,
        "am_usb" => Host::Usb,
        "kfd" | "kfd_8xcc" => Host::Kfd,
        other => return Err(format!("set {other} is not known")),
    };
    let notify = if host == Host::Kfd { Notify::Kfd(MAILBOX) } else { Notify::Own };
    let xccs = if set == "kfd_8xcc" { 8 } else { 1 };
    Ok(Setup {
        compute: ComputeConfig {
            target: Target::new(major, minor, stepping),
            regs: QueueRegs::new(regs).map_err(|e| e.to_string())?,
            xcc_count: xccs,
            xcc_sync: (xccs > 1).then_some(XCC_SYNC),
            notify,
            tracing: false,
        },
        sdma: SdmaConfig { version: version(&meta["sdma_ip"])?, notify },
        sqtt: SqttRegs::new(regs).ok(),
        spi_config_cntl: regs.addr(r::SPI_CONFIG_CNTL).map_err(|e| e.to_string())?,
        host,
    })
}

/// Addresses of the registers that the recording lists.
fn registers(target: &str, meta: &Value, regs: &RegFile, verdict: &mut Verdict) {
    let named =
        |name: &str| (0..=u16::MAX).map(Reg).take_while(|r| r.name() != "?").find(|r| r.name() == name);
    for (name, entry) in meta["regs"].as_object().into_iter().flatten() {
        let plain = name.strip_prefix("reg").or_else(|| name.strip_prefix("mm")).unwrap_or(name);
        let ours = named(plain).and_then(|r| regs.addr(r).ok()).map(u64::from);
        let recorded = number(&entry["addr"]);
        // A register that the recording looked for only under gfx10's prefix says nothing of others.
        if recorded.is_none() && name.starts_with("mm") {
            continue;
        }
        let out =
            if ours == recorded { vec![] } else { vec![format!("at {ours:x?}, recorded {recorded:x?}")] };
        verdict.row(&format!("{target}/{name}"), out);
    }
}
