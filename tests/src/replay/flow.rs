//! Running the flow that a trace recorded.

use super::Report;
use super::bus::ReplayBus;
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
use amdev_core::reg::{Block, RegFile, tables};
use amdev_core::{boot, chip, discovery};
use anyhow::{Context, anyhow, bail, ensure};
use serde_json::Value;
use std::path::PathBuf;

type Dev = Device<ReplayBus>;

fn hex(value: &Value) -> u64 {
    value.as_str().and_then(|s| u64::from_str_radix(s.trim_start_matches("0x"), 16).ok()).unwrap_or(0)
}

fn json(name: &str) -> anyhow::Result<Value> {
    Ok(serde_json::from_slice(&crate::golden(name)?)?)
}

fn trace(name: &str) -> anyhow::Result<Vec<Value>> {
    let bytes = crate::golden(&format!("{name}.jsonl"))?;
    let text = std::str::from_utf8(&bytes)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Registers of a golden device, from its discovery table.
fn reg_file(gpu: &str) -> anyhow::Result<(RegFile, &'static chip::Chip)> {
    let ips = discovery::parse(&crate::golden(&format!("{gpu}/discovery.bin"))?)
        .map_err(|e| anyhow!("{gpu}/discovery.bin: {e}"))?;
    let mut regs = RegFile::new();
    for block in [Block::Gc, Block::Mp0, Block::Mp1, Block::Nbio, Block::Mmhub, Block::Osssys, Block::Hdp] {
        let (version, bases) = ips.version(block).zip(ips.bases(block, 0)).context("a block is missing")?;
        regs.set(tables::for_version(block, version).map_err(|e| anyhow!("{e}"))?, bases);
    }
    let gc = ips.version(Block::Gc).context("no GC")?;
    Ok((regs, chip::find(gc).context("unknown chip")?))
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
    let name = format!("{gpu}/{flow}");
    let (regs, chip) = reg_file(gpu)?;
    let about = json(&format!("{gpu}/device.json"))?;
    let (vram, fb) = (hex(&about["vram_size"]), hex(&about["fb_location_base"]));
    let package = if flow.contains("fw2025") { "2025" } else { "2026" };
    let mut fw = Source::find(gpu, Stock::load(gpu, package)?, dirs);

    let initial = json(&format!("{gpu}/initial_regs.json"))?;
    let mut bus = ReplayBus::new(regs.clone(), deviations.clone(), vram, fb);
    bus.psp.real = fw.is_real();
    bus.psp.images = images(&fw);
    let start = if flow == "setup_ring" { "boot" } else { flow };
    let state = initial.get(start).with_context(|| format!("no state before {start}"))?;
    bus.load(&format!("{gpu}/{start}"), &trace(&format!("{gpu}/{start}"))?, Some(state));
    load_psp(&mut bus, gpu, start)?;
    let mut device = Device::new(bus, regs, chip, vram)?;

    let base = flow.trim_end_matches("_seeded");
    let mut mqds = 0;
    let result = match base {
        "boot" | "boot_fw2025" | "warm" | "malformed" | "reset" | "reset_smu_dead" => {
            run_boot(&mut device, &mut fw, base)
        }
        "fini" => {
            device.dpm = levels(gpu)?;
            device
                .run(async |cx: &mut Cx<'_, ReplayBus>| boot::fini(cx, &mut |_| ()).await)
                .map_err(Into::into)
        }
        "setup_ring" => {
            let ready = boot_ready(&mut device, &mut fw)?;
            ensure!(device.bus.differences.is_empty(), "the boot before it differs");
            device.bus.load(&name, &trace(&name)?, None);
            setup_rings(&mut device, ready, gpu).map(|count| mqds = count)
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
            device.dpm = levels(gpu)?;
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
        used: std::mem::take(&mut bus.used),
    };
    report.differences.extend(deviations.check(&name, &report.used));
    Ok(report)
}

fn images(fw: &Source) -> Vec<(amdev_core::firmware::ImageId, u32, Vec<u32>)> {
    use SosComponent::{DbgDrv, IntfDrv, IpKeyMgrDrv, Kdb, RasDrv, SocDrv, Sos, Spl, SysDrv, Toc};
    let sos = [Sos, SysDrv, Kdb, Toc, Spl, SocDrv, IntfDrv, DbgDrv, RasDrv, IpKeyMgrDrv];
    let ip = (0..32).map_while(|i| fw.ip_image(i));
    let all = sos.iter().filter_map(|c| fw.sos(*c)).chain(fw.smu()).chain(ip);
    all.map(|image| (image.id, image.len, image.types.iter().map(|t| t.0).collect())).collect()
}

/// `psp.json` of a flow that loads firmware.
fn load_psp(bus: &mut ReplayBus, gpu: &str, flow: &str) -> anyhow::Result<()> {
    let file = match flow.trim_end_matches("_seeded") {
        "boot" => "psp.json",
        "boot_fw2025" => "psp_fw2025.json",
        "reset" | "malformed" => "reset_psp.json",
        _ => return Ok(()),
    };
    let list = json(&format!("{gpu}/{file}"))?;
    let of = |kind: &str| {
        list.as_array().into_iter().flatten().filter(|e| e["kind"] == kind).cloned().collect::<Vec<_>>()
    };
    bus.psp.commands = of("cmd").into();
    bus.psp.components = of("bootloader").into();
    Ok(())
}

fn boot_report(device: &mut Dev, fw: &mut Source) -> Result<boot::Report, Error> {
    device.run(async |cx: &mut Cx<'_, ReplayBus>| boot::boot(cx, fw, boot::Options::default()).await)
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
fn levels(gpu: &str) -> anyhow::Result<DpmTable> {
    let list = json(&format!("{gpu}/smu.json"))?;
    let mut levels: [Vec<u16>; 4] = Default::default();
    for message in list.as_array().into_iter().flatten() {
        let argument = hex(&message["arg"]);
        if message["name"] != "PPSMC_MSG_GetDpmFreqByIndex" || argument & 0xffff == 0xff {
            continue;
        }
        let index = smu::CLOCKS.iter().position(|(clock, _)| u64::from(*clock) == argument >> 16);
        let levels = index.and_then(|i| levels.get_mut(i)).context("an unknown clock in smu.json")?;
        if levels.len() as u64 == argument & 0xffff {
            levels.push(hex(&message["ret"]) as u16);
        }
    }
    Ok(DpmTable::from_levels(levels.each_ref().map(Vec::as_slice)))
}

/// The six cases of `mqd.json`; the number of MQDs compared.
fn setup_rings(device: &mut Dev, ready: Ready, gpu: &str) -> anyhow::Result<usize> {
    let mqds = json(&format!("{gpu}/mqd.json"))?;
    let cases: Vec<Value> =
        trace(&format!("{gpu}/setup_ring"))?.into_iter().filter(|row| row["op"] == "case").collect();
    ensure!(!cases.is_empty(), "no cases");
    let mut compared = 0;
    for case in &cases {
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
            ours.starts_with(bytes) && ours[bytes.len()..].bytes().all(|b| b == b'0'),
            "{name}: the MQD differs"
        );
        compared += 1;
    }
    Ok(compared)
}
