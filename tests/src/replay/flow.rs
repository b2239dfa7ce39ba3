//! Running the flow that a trace recorded.

use super::Report;
use super::bus::ReplayBus;
use super::consistency;
use super::deviations::Deviations;
use super::firmware::{Source, Stock};
use amdev_core::bus::BusError;
use amdev_core::error::Error;
use amdev_core::firmware::{FirmwareSource, SosComponent};
use amdev_core::ip::sdma::SdmaQueue;
use amdev_core::ip::smu::{DpmTable, Level};
use amdev_core::ip::{Cx, Device, Hub, gfx, gmc, ih, sdma, smu};
use amdev_core::layout::Ready;
use amdev_core::queue::mqd::{ComputeQueue, Mqd};
use amdev_core::reg::{Block, Reg, RegFile, r, tables};
use amdev_core::{boot, chip, discovery};
use anyhow::{Context, anyhow, bail, ensure};
use serde_json::Value;
use std::path::PathBuf;

type Dev = Device<ReplayBus>;

fn hex(value: &Value) -> u64 {
    value.as_str().and_then(|s| u64::from_str_radix(s.trim_start_matches("0x"), 16).ok()).unwrap_or(0)
}

/// The files of a device: traces and what describes it.
#[derive(Clone, Debug)]
pub struct Place {
    dir: PathBuf,
}

impl Place {
    /// A folder that is laid out like `golden/navi31`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Place { dir: dir.into() }
    }

    /// The committed files of a GPU.
    pub fn golden(gpu: &str) -> Self {
        Place::new(crate::root().join("golden").join(gpu))
    }

    fn bytes(&self, name: &str) -> std::io::Result<Vec<u8>> {
        crate::read(self.dir.join(name))
    }

    /// A JSON file of this folder.
    ///
    /// # Errors
    /// A file that is not there, or not JSON.
    pub fn json(&self, name: &str) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.bytes(name)?)
            .with_context(|| format!("{} is not JSON", self.dir.join(name).display()))
    }

    /// The rows of a trace of this folder, by its name without `.jsonl`.
    ///
    /// # Errors
    /// A file that is not there, or a line that is not JSON.
    pub fn trace(&self, flow: &str) -> anyhow::Result<Vec<Value>> {
        let name = format!("{flow}.jsonl");
        let bytes = self.bytes(&name)?;
        let place = |n: usize| format!("{}, line {n}", self.dir.join(&name).display());
        let text = std::str::from_utf8(&bytes).with_context(|| format!("{name} is not text"))?;
        text.lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
            .map(|(n, line)| serde_json::from_str(line).with_context(|| place(n + 1)))
            .collect()
    }

    /// The list of firmware files: beside the device's folder, in it, or the committed one.
    pub(crate) fn firmware_list(&self) -> anyhow::Result<Value> {
        let places =
            [self.dir.join("fw.json"), self.dir.join("../fw.json"), crate::root().join("golden/fw.json")];
        let found = places.iter().find_map(|p| Some((p, crate::read(p).ok()?)));
        let (path, bytes) = found.context("there is no fw.json")?;
        serde_json::from_slice(&bytes).with_context(|| format!("{} is not JSON", path.display()))
    }

    /// Registers of the device, from its discovery table.
    ///
    /// # Errors
    /// A table that is missing or wrong, or an unknown GPU.
    pub fn registers(&self) -> anyhow::Result<(RegFile, &'static chip::Chip)> {
        let place = self.dir.join("discovery.bin");
        let table = crate::read(&place)?;
        let ips = discovery::parse(&table).map_err(|e| anyhow!("{}: {e}", place.display()))?;
        let mut regs = RegFile::new();
        for block in [Block::Gc, Block::Mp0, Block::Mp1, Block::Nbio, Block::Mmhub, Block::Osssys, Block::Hdp]
        {
            let found = ips.version(block).zip(ips.bases(block, 0));
            let (version, bases) = found.with_context(|| format!("{}: no {block:?}", place.display()))?;
            regs.set(tables::for_version(block, version).map_err(|e| anyhow!("{e}"))?, bases);
        }
        let gc = ips.version(Block::Gc).context("no GC")?;
        Ok((regs, chip::find(gc).with_context(|| format!("GC {gc:?} is not supported"))?))
    }
}

/// The flow of a trace by its name: the longest known one that it begins with, so that `boot_seeded`
/// is a `boot`.
pub fn base_flow(name: &str) -> Option<&'static str> {
    const FLOWS: [&str; 13] = [
        "boot_fw2025",
        "boot",
        "warm",
        "reset_smu_dead",
        "reset",
        "malformed",
        "fini",
        "setup_ring",
        "flush_tlb_gc",
        "flush_tlb_mm",
        "ih_overflow",
        "smu_read_metrics",
        "smu_set_clocks_0",
    ];
    FLOWS.into_iter().find(|flow| {
        name.strip_prefix(flow).is_some_and(|rest| rest.is_empty() || rest.starts_with("_seeded"))
    })
}

/// Replays `gpu/flow` (for example `navi31`, `boot_seeded`) with the firmware of one of `dirs`, or
/// with stand-ins where none of them has the pinned package.
pub fn replay(gpu: &str, flow: &str, dirs: &[PathBuf]) -> anyhow::Result<Report> {
    replay_with(gpu, flow, dirs, &Deviations::load()?)
}

/// [`replay`] with deviations of the caller's choice.
pub fn replay_with(
    gpu: &str,
    flow: &str,
    dirs: &[PathBuf],
    deviations: &Deviations,
) -> anyhow::Result<Report> {
    replay_at(&Place::golden(gpu), flow, dirs, deviations)
}

/// [`replay`] with a folder of the caller's choice. Deviations go by the name of the chip, whatever
/// the folder is called.
///
/// # Errors
/// Files that are missing or not of their format, a GPU or flow that is not known.
pub fn replay_at(
    place: &Place,
    flow: &str,
    dirs: &[PathBuf],
    deviations: &Deviations,
) -> anyhow::Result<Report> {
    let base = base_flow(flow).with_context(|| format!("{flow} is no flow that can be replayed"))?;
    let (regs, chip) = place.registers()?;
    let gpu = chip.name.to_lowercase();
    let gpu = gpu.as_str();
    // Seeds change values, not what happens: they share the counts of deviations.
    let seeded = flow.len() > base.len();
    let name = format!("{gpu}/{base}{}", if seeded { "_seeded" } else { "" });
    let about = place.json("device.json")?;
    let (vram, fb) = (hex(&about["vram_size"]), hex(&about["fb_location_base"]));
    ensure!(vram >= 64 << 20, "device.json: vram_size is {}", about["vram_size"]);
    let package = if base.contains("fw2025") { "2025" } else { "2026" };
    let list = place.firmware_list()?;
    let mut fw = Source::find(gpu, Stock::from_list(&list, gpu, package)?, dirs);

    let initial = place.json("initial_regs.json")?;
    let mut bus = ReplayBus::new(regs.clone(), deviations.clone(), vram, fb);
    bus.psp.real = fw.is_real();
    bus.psp.images = images(&fw);
    let (start, start_name) =
        if base == "setup_ring" { ("boot", format!("{gpu}/boot")) } else { (flow, name.clone()) };
    let state = initial.get(start).with_context(|| format!("initial_regs.json: no state before {start}"))?;
    ensure!(
        matches!(state["default"].as_str(), Some("zero" | "crc32")),
        "initial_regs.json: {start} has the default {}, known are zero and crc32",
        state["default"]
    );
    let rows = place.trace(start)?;
    bus.load(&start_name, &rows, Some(state));
    let mut wrong = consistency::rows(&rows);
    if let Some(list) = load_psp(&mut bus, place, base)? {
        wrong.extend(consistency::psp(&rows, &list));
    }
    let mut device = Device::new(bus, regs, chip, vram)?;

    let mut mqds = 0;
    let result = match base {
        "boot" | "boot_fw2025" | "warm" | "malformed" | "reset" | "reset_smu_dead" => {
            run_boot(&mut device, &mut fw, base)
        }
        "fini" => {
            device.dpm = levels(place)?;
            device
                .run(async |cx: &mut Cx<'_, ReplayBus>| boot::fini(cx, &mut |_| ()).await)
                .map_err(Into::into)
        }
        "setup_ring" => {
            let ready = boot_ready(&mut device, &mut fw)?;
            ensure!(device.bus.differences.is_empty(), "the boot before it differs");
            let rows = place.trace(flow)?;
            wrong.extend(consistency::rows(&rows));
            device.bus.load(&name, &rows, None);
            setup_rings(&mut device, ready, place, &rows).map(|count| mqds = count)
        }
        "flush_tlb_gc" | "flush_tlb_mm" => {
            let hub = if base.ends_with("gc") { Hub::Gc } else { Hub::Mm };
            gmc::attach(&mut device)?;
            device
                .run(async |cx: &mut Cx<'_, ReplayBus>| gmc::flush_tlb(cx, hub, 0).await)
                .map_err(Into::into)
        }
        "ih_overflow" => match ih::service(&mut device, &mut |_| ()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(anyhow!("the overflow was not noticed")),
            Err(e) => Err(e.into()),
        },
        "smu_read_metrics" => device
            .run(async |cx: &mut Cx<'_, ReplayBus>| smu::read_metrics(cx).await)
            .map(|_| ())
            .map_err(Into::into),
        "smu_set_clocks_0" => {
            device.dpm = levels(place)?;
            device
                .run(async |cx: &mut Cx<'_, ReplayBus>| smu::set_clocks(cx, Level::Lowest).await)
                .map_err(Into::into)
        }
        _ => bail!("{flow} is no flow of a trace"),
    };

    let mut bus = device.into_bus();
    if let Err(e) = result
        && !bus.ended
    {
        bus.differences.push(format!("the flow failed: {e}"));
    }
    bus.finish();
    if !bus.psp.commands.is_empty() && !bus.ended {
        let left = bus.psp.commands.len();
        bus.differences.push(format!("{left} PSP commands of psp.json were not sent"));
    }
    let mut report = Report {
        name: name.clone(),
        matched: bus.matched,
        total: bus.total(),
        made: bus.made,
        reads: bus.reads,
        recorded_reads: bus.recorded_reads(),
        psp_commands: bus.psp.compared,
        images: bus.psp.images_compared,
        real_firmware: bus.psp.real,
        mqds,
        differences: std::mem::take(&mut bus.differences),
        psp_sent: std::mem::take(&mut bus.psp.sent),
        smu_sent: smu_messages(&bus.mailbox),
        used: std::mem::take(&mut bus.used),
    };
    report.differences.extend(wrong);
    report.differences.extend(deviations.check(&name, &report.used));
    Ok(report)
}

/// Messages in the accesses to the SMU's mailbox: the argument comes before the number, the answer
/// stands in the argument's register.
fn smu_messages(mailbox: &[(Reg, u32, bool)]) -> Vec<(u32, u32, Option<u32>)> {
    let (mut out, mut argument) = (Vec::new(), 0);
    for (reg, value, write) in mailbox {
        match (*reg, *write) {
            (r::MP1_SMN_C2PMSG_82, true) => argument = *value,
            (r::MP1_SMN_C2PMSG_66, true) => out.push((*value, argument, None)),
            (r::MP1_SMN_C2PMSG_82, false) => {
                if let Some((_, _, answer)) = out.last_mut() {
                    *answer = Some(*value);
                }
            }
            _ => {}
        }
    }
    out
}

fn images(fw: &Source) -> Vec<(amdev_core::firmware::ImageId, u32, Vec<u32>)> {
    use SosComponent::{DbgDrv, IntfDrv, IpKeyMgrDrv, Kdb, RasDrv, SocDrv, Sos, Spl, SysDrv, Toc};
    let sos = [Sos, SysDrv, Kdb, Toc, Spl, SocDrv, IntfDrv, DbgDrv, RasDrv, IpKeyMgrDrv];
    let ip = (0..32).map_while(|i| fw.ip_image(i));
    let all = sos.iter().filter_map(|c| fw.sos(*c)).chain(fw.smu()).chain(ip);
    all.map(|image| (image.id, image.len, image.types.iter().map(|t| t.0).collect())).collect()
}

/// The list of PSP messages of a flow that loads firmware.
pub fn psp_list(flow: &str) -> Option<&'static str> {
    match flow {
        "boot" | "setup_ring" => Some("psp.json"),
        "boot_fw2025" => Some("psp_fw2025.json"),
        "reset" | "malformed" => Some("reset_psp.json"),
        _ => None,
    }
}

fn load_psp(bus: &mut ReplayBus, place: &Place, flow: &str) -> anyhow::Result<Option<Value>> {
    let Some(file) = psp_list(flow) else { return Ok(None) };
    let list = place.json(file)?;
    let of = |kind: &str| {
        list.as_array().into_iter().flatten().filter(|e| e["kind"] == kind).cloned().collect::<Vec<_>>()
    };
    bus.psp.commands = of("cmd").into();
    bus.psp.components = of("bootloader").into();
    Ok(Some(list))
}

fn boot_report(device: &mut Dev, fw: &mut Source) -> Result<boot::Report, Error> {
    // The reference knows one reset only.
    let options = boot::Options { first: boot::Rung::Mode1, ..boot::Options::default() };
    device.run(async |cx: &mut Cx<'_, ReplayBus>| boot::boot(cx, fw, options).await)
}

fn boot_ready(device: &mut Dev, fw: &mut Source) -> anyhow::Result<Ready> {
    Ok(boot_report(device, fw)?.ready)
}

fn run_boot(device: &mut Dev, fw: &mut Source, flow: &str) -> anyhow::Result<()> {
    let report = match boot_report(device, fw) {
        Ok(report) => report,
        Err(Error::Bus(BusError::Unsupported(_))) if device.bus.ended => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    let path = match flow {
        "warm" => boot::Path::Warm,
        "reset" | "malformed" => boot::Path::Reset,
        _ => boot::Path::Cold,
    };
    ensure!(report.path == path, "path {} ({}) instead of {path}", report.path, report.reason);
    ensure!(report.warm_error.is_none(), "the warm boot failed: {:?}", report.warm_error);
    Ok(())
}

/// Clock levels as the boot before asked for them, from `smu.json`.
fn levels(place: &Place) -> anyhow::Result<DpmTable> {
    let list = place.json("smu.json")?;
    let (_, chip) = place.registers()?;
    let clocks = smu::CLOCKS.map(|clock| chip.smu().and_then(|smu| smu.clock(clock)));
    let mut levels: [Vec<u16>; 4] = Default::default();
    for message in list.as_array().into_iter().flatten() {
        let argument = hex(&message["arg"]);
        if message["name"] != "PPSMC_MSG_GetDpmFreqByIndex" || argument & 0xffff == 0xff {
            continue;
        }
        let index = clocks.iter().position(|clock| clock.map(u64::from) == Ok(argument >> 16));
        let levels = index.and_then(|i| levels.get_mut(i)).context("an unknown clock in smu.json")?;
        if levels.len() as u64 == argument & 0xffff {
            levels.push(hex(&message["ret"]) as u16);
        }
    }
    Ok(DpmTable::from_levels(levels.each_ref().map(Vec::as_slice)))
}

/// The six cases of `mqd.json`; the number of MQDs compared.
fn setup_rings(device: &mut Dev, ready: Ready, place: &Place, rows: &[Value]) -> anyhow::Result<usize> {
    let mqds = place.json("mqd.json")?;
    let cases: Vec<&Value> = rows.iter().filter(|row| row["op"] == "case").collect();
    ensure!(!cases.is_empty(), "no cases");
    let mut compared = 0;
    for case in cases {
        let arg = |key: &str| hex(&case["args"][key]);
        let name = case["name"].as_str().unwrap_or("");
        let (pipe, queue) = (arg("pipe") as u8, arg("queue") as u8);
        // Each case is a new queue, as it would be for the next process.
        device.queues = Default::default();
        if case["kind"] == "sdma" {
            let q = SdmaQueue {
                ring: arg("ring_addr"),
                len: arg("ring_size") as u32,
                rptr: arg("rptr_addr"),
                wptr: arg("wptr_addr"),
                doorbell: arg("doorbell") as u32,
            };
            sdma::activate(device, ready, pipe, queue, &q).with_context(|| name.to_owned())?;
            continue;
        }
        // The reference allocates and maps the MQD here; mapping flushes both hubs.
        for hub in [Hub::Gc, Hub::Mm] {
            device.run(async |cx: &mut Cx<'_, ReplayBus>| gmc::flush_tlb(cx, hub, 0).await)?;
        }
        let golden = mqds["cases"].get(name).or_else(|| mqds.get(name)).context("a case without an MQD")?;
        let bytes = golden["mqd_hex"].as_str().unwrap_or("");
        let word = |i: usize| {
            let text = bytes.get(i * 8..i * 8 + 8).unwrap_or("00000000");
            u64::from(u32::from_str_radix(text, 16).unwrap_or(0).swap_bytes())
        };
        let q = ComputeQueue {
            mqd: word(128) | word(129) << 32,
            ring: arg("ring_addr"),
            len: arg("ring_size") as u32,
            rptr: arg("rptr_addr"),
            wptr: arg("wptr_addr"),
            eop: arg("eop_addr"),
            eop_len: arg("eop_size") as u32,
            doorbell: arg("doorbell") as u32,
        };
        let mqd = Mqd::compute(&device.regs, &q).with_context(|| name.to_owned())?;
        let at = hex(&golden["mqd_paddr"]);
        gfx::activate(device, ready, pipe, queue, &mqd, at).with_context(|| name.to_owned())?;
        let ours: String = device.bus.peek(at, 2048).iter().map(|b| format!("{b:02x}")).collect();
        ensure!(
            ours.starts_with(bytes) && ours.bytes().skip(bytes.len()).all(|b| b == b'0'),
            "{name}: the MQD differs"
        );
        compared += 1;
    }
    Ok(compared)
}
