//! The recorded cases, by name.

use amdev_core::iface::QueueKind;
use amdev_core::program::{DispatchPacket, KernelDescriptor, SgprSources};
use amdev_core::queue::QueueError;
use amdev_core::queue::dispatch::{ALL_CUS, Dispatch, KernelRegs, Launch, ScratchMem};
use amdev_core::queue::pm4::{Caches, Compare, DataSel, IntSel, Pm4, Release, WaitOn};
use amdev_core::queue::ring::Ring;
use amdev_core::queue::sdma::{Sdma, decode};
use amdev_core::queue::sqtt::{Marker, SqttRegs, Start};
use serde_json::Value;

use super::{COPY_COUNT, Event, FAULT_25, Host, Memory, SETUP, Setup, USB_HDP};
use crate::golden_program::number;
use crate::verdict::Verdict;

mod submit;

use submit::{sdma_bind, sdma_submit};

type Rows = Vec<String>;

/// Signal slot of the timeline in the recording.
const TIMELINE: u64 = 0x2000_0001_0020;
/// Source and destination of its copies.
const COPY_DST: u64 = 0x2000_5000_0000;
const COPY_SRC: u64 = 0x2000_9000_0000;
/// Hash and number of its trace markers.
const CODE_HASH: u64 = 0x1122_3344_5566_7788;
const COMMAND: u32 = 7;

fn need(row: &Value, key: &str) -> Result<u64, String> {
    number(&row[key]).ok_or_else(|| format!("{key} is {}, which is no number", row[key]))
}

fn words(v: &Value) -> Option<Vec<u32>> {
    v.as_array()?.iter().map(|n| number(n).map(|n| n as u32)).collect()
}

fn numbers(v: &Value) -> Vec<u64> {
    v.as_array().into_iter().flatten().filter_map(number).collect()
}

fn dims(v: &Value) -> Result<[u32; 3], String> {
    words(v).and_then(|w| w.try_into().ok()).ok_or_else(|| format!("{v} is no triple"))
}

/// Compares dwords and names the first that differ.
fn equal(what: &str, ours: &[u32], recorded: &Value) -> Rows {
    let Some(recorded) = words(recorded) else { return vec![format!("{what}: nothing was recorded")] };
    if ours == recorded {
        return Rows::new();
    }
    let at = ours.iter().zip(&recorded).take_while(|(a, b)| a == b).count();
    let at_end = |d: &[u32]| d.get(at).map_or("nothing".into(), |d| format!("{d:#x}"));
    vec![format!(
        "{what}: dword {at} is {}, recorded {} ({} and {} dwords)",
        at_end(ours),
        at_end(&recorded),
        ours.len(),
        recorded.len()
    )]
}

fn number_is(what: &str, ours: u64, recorded: &Value) -> Rows {
    match number(recorded) {
        Some(n) if n == ours => Rows::new(),
        _ => vec![format!("{what} is {ours:#x}, recorded {recorded}")],
    }
}

pub(super) fn compute(
    setup: &Setup,
    rows: &[Value],
    row: &Value,
    place: &str,
    verdict: &mut Verdict,
) -> Result<Rows, String> {
    let name = row["name"].as_str().unwrap_or("");
    if name.starts_with("submit_") {
        return compute_submit(setup, row);
    }
    let mut config = setup.compute;
    config.tracing = name == "exec_sqtt";
    let mut buf = vec![0u32; 4096];
    let mut q = Pm4::new(&config, &mut buf);
    let mut out = Rows::new();
    let result = encode(setup, &mut q, rows, row, place, verdict, &mut out);
    let recorded_error = row["error"].as_str();
    match (result, recorded_error) {
        (Err(Fail::Case(e)), _) => return Err(e),
        (Err(Fail::Refused(_)), Some(_)) => return Ok(out),
        (Err(Fail::Refused(e)), None) => return Err(format!("refused: {e}")),
        (Ok(()), Some(_)) if name.starts_with("sqtt_") || name.starts_with("spi_config") => {
            verdict.deviation(FAULT_25, place);
            return Ok(out);
        }
        (Ok(()), Some(e)) => return Err(format!("accepted, the reference says {e}")),
        (Ok(()), None) => {}
    }
    out.extend(equal("packets", q.dwords(), &row["dwords"]));
    // What was encoded must also be understood.
    for packet in amdev_core::queue::pm4::decode::packets(q.dwords()) {
        if let Err(e) = packet {
            out.push(format!("cannot be decoded: {e}"));
        }
    }
    if name == "bind_and_submit_wrap" {
        out.extend(compute_bind(setup, row, q.dwords().len() as u32)?);
    }
    Ok(out)
}

/// Why a case was not encoded.
enum Fail {
    /// It is not understood.
    Case(String),
    /// The encoder refused.
    Refused(QueueError),
}

impl From<QueueError> for Fail {
    fn from(e: QueueError) -> Self {
        Fail::Refused(e)
    }
}

impl From<String> for Fail {
    fn from(e: String) -> Self {
        Fail::Case(e)
    }
}

/// Encodes a case by its name; `out` receives differences in memory.
fn encode(
    setup: &Setup,
    q: &mut Pm4<'_, '_>,
    rows: &[Value],
    row: &Value,
    place: &str,
    verdict: &mut Verdict,
    out: &mut Rows,
) -> Result<(), Fail> {
    let name = row["name"].as_str().unwrap_or("");
    let tracing = || setup.sqtt.ok_or(QueueError::Unsupported("instruction traces need gfx10 or later"));
    let args = &row["args"];
    let arg = |key: &str, default: u64| number(&args[key]).unwrap_or(default);
    match name {
        "wait" => q.wait(need(row, "signal")?, need(row, "value")? as u32),
        "signal" | "signal_timeline" | "signal_no_owner" => {
            let timeline = name == "signal_timeline";
            q.signal(need(row, "signal")?, need(row, "value")? as u32, timeline)
        }
        "timestamp" => q.timestamp(need(row, "timestamp_addr")?),
        "memory_barrier" => q.memory_barrier(),
        n if n.starts_with("acquire_mem") => {
            let mut caches = Caches::empty();
            let all = [
                ("gli", Caches::GLI),
                ("glm", Caches::GLM),
                ("glk", Caches::GLK),
                ("glv", Caches::GLV),
                ("gl1", Caches::GL1),
                ("gl2", Caches::GL2),
            ];
            for (key, cache) in all {
                caches.set(cache, arg(key, 1) == 1);
            }
            q.acquire_mem(caches, arg("addr", 0), arg("sz", u64::MAX))
        }
        n if n.starts_with("release_mem") => {
            let data = [DataSel::None, DataSel::Low32, DataSel::Value64, DataSel::ClockCounter];
            let interrupt = [IntSel::None, IntSel::Only, IntSel::AfterWrite];
            let pick = |key, default, max: u64| arg(key, default).min(max) as usize;
            q.release_mem(Release {
                address: arg("address", 0),
                value: arg("value", 0),
                data: data[pick("data_sel", 0, 3)],
                interrupt: interrupt[pick("int_sel", 2, 2)],
                context: arg("ctxid", 0) as u32,
                flush: arg("cache_flush", 0) == 1,
            })
        }
        n if n.starts_with("wait_reg_mem") => {
            let on = match number(&args["mem"]) {
                Some(va) => WaitOn::Memory(va),
                None => WaitOn::Request {
                    req: need(args, "reg_req")? as u32,
                    done: need(args, "reg_done")? as u32,
                },
            };
            let mask = arg("mask", u32::MAX.into()) as u32;
            q.wait_reg_mem(on, Compare::Ge, need(args, "value")? as u32, mask, 4)
        }
        "xcc_barrier" => q.xcc_barrier(),
        "xcc_config" => q.xcc_config(),
        "pred_exec_nop3" => {
            let mask = row["xcc_mask"].as_str().and_then(|m| m.strip_prefix("0b"));
            let mask =
                mask.and_then(|m| u8::from_str_radix(m, 2).ok()).ok_or_else(|| "no mask".to_owned())?;
            q.pred_exec(mask, |q| q.nop(&[1, 2, 3]).map(drop))
        }
        "program_call_sequence" => {
            q.wait(TIMELINE, 6)?;
            q.memory_barrier()?;
            let launch = Launch { grid: [2, 1, 1], block: [32, 1, 1] };
            exec(q, rows, row, Some(launch), place, verdict, out)?;
            q.signal(TIMELINE, 7, true)
        }
        "bind_and_submit_wrap" => {
            q.wait(TIMELINE, 3)?;
            q.memory_barrier()?;
            q.signal(TIMELINE, 4, true)
        }
        n if n == "exec" || n.starts_with("exec_") => return exec(q, rows, row, None, place, verdict, out),
        "sqtt_start" => {
            let buffers = numbers(&row["bufs"]);
            let size = need(row, "buf_size")?;
            let start = Start { buffers: &buffers, size, detailed: need(row, "se_mask")? as u32 };
            q.sqtt_start(&tracing()?, &start)
        }
        "sqtt_stop" => q.sqtt_stop(&tracing()?, need(row, "ses")? as usize, need(row, "wptrs")?),
        n if n.starts_with("sqtt_config") => q.sqtt_config(&tracing()?, arg("tracing", 0) == 1),
        n if n.starts_with("spi_config") => {
            // Of the trace registers it names only this one, which gfx9 has as well.
            let regs = SqttRegs { spi_config_cntl: setup.spi_config_cntl, ..SqttRegs::default() };
            q.spi_config(&regs, arg("tracing", 0) == 1)
        }
        "sqtt_prg_marker" => q.sqtt_marker(&Marker {
            code_hash: CODE_HASH,
            command: need(row, "cmd_id")? as u32,
            grid: dims(&row["global_size"])?,
        }),
        "sqtt_userdata_5dw" => q.sqtt_userdata(&[0x0302_0100, 0x0706_0504, 0x0b0a_0908, 0xaa, 0xbb]),
        other => return Err(Fail::Case(format!("case {other} is not known"))),
    }
    .map(drop)
    .map_err(Fail::from)
}

/// A dispatch, with the arguments and the kernel of the row or, where it has none, of case `exec`.
fn exec(
    q: &mut Pm4<'_, '_>,
    rows: &[Value],
    row: &Value,
    launch: Option<Launch>,
    place: &str,
    verdict: &mut Verdict,
    out: &mut Rows,
) -> Result<(), Fail> {
    let default = rows.iter().find(|r| r["name"] == "exec").unwrap_or(&Value::Null);
    let of = |key: &str| if row[key].is_null() { &default[key] } else { &row[key] };
    let prg = of("prg");
    let launch = match launch {
        Some(l) => l,
        None => Launch { grid: dims(of("global_size"))?, block: dims(of("local_size"))? },
    };
    let flag = |key: &str| need(prg, key).map(|n| u16::from(n != 0));
    let descriptor = KernelDescriptor {
        group_segment_size: need(prg, "group_segment_size")? as u32,
        private_segment_size: need(prg, "private_segment_size")? as u32,
        kernarg_size: need(prg, "kernargs_segment_size")? as u32,
        properties: flag("enable_private_segment_sgpr")? | flag("enable_dispatch_ptr")? << 1 | 1 << 3,
        ..KernelDescriptor::default()
    };
    let scratch = ScratchMem {
        va: number(of("scratch")).ok_or_else(|| "no scratch".to_owned())?,
        size: number(of("scratch_size")).unwrap_or(0),
        tmpring_size: number(of("tmpring_size")).unwrap_or(0) as u32,
    };
    let kernargs = number(of("kernargs")).unwrap_or(0);
    let packet = kernargs + u64::from(descriptor.kernarg_size);
    let sources = SgprSources { kernargs, dispatch_packet: packet, scratch, ..SgprSources::default() };
    let mut sgprs = [0; 16];
    let used = descriptor
        .fill_user_sgprs(&sources, &mut sgprs)
        .map_err(|what| Fail::Case(format!("{} cannot be filled", what.name())))?;
    let kernel = KernelRegs {
        entry: need(prg, "prog_addr")?,
        rsrc1: need(prg, "rsrc1")? as u32,
        rsrc2: need(prg, "rsrc2")? as u32,
        rsrc3: need(prg, "rsrc3")? as u32,
        wave32: need(prg, "wave32")? == 1,
    };
    q.exec(&Dispatch {
        kernel,
        launch,
        user_sgprs: &sgprs[..used],
        scratch_in_sgprs: need(prg, "enable_private_segment_sgpr")? != 0,
        scratch,
        marker: Some(Marker { code_hash: CODE_HASH, command: COMMAND, grid: launch.grid }),
        cu_masks: ALL_CUS,
    })?;
    if let Some(recorded) = row["kernarg_mem"].as_str() {
        let with_packet = need(prg, "enable_dispatch_ptr")? != 0;
        out.extend(kernarg_memory(row, &descriptor, &launch, with_packet, recorded, place, verdict));
    }
    Ok(())
}

/// The memory of the arguments: buffers, values, and behind them the dispatch packet.
fn kernarg_memory(
    row: &Value,
    descriptor: &KernelDescriptor,
    launch: &Launch,
    with_packet: bool,
    recorded: &str,
    place: &str,
    verdict: &mut Verdict,
) -> Rows {
    let mut ours: Vec<u8> = numbers(&row["bufs"]).iter().flat_map(|n| n.to_le_bytes()).collect();
    ours.extend(numbers(&row["vals"]).iter().flat_map(|n| (*n as u32).to_le_bytes()));
    ours.resize(descriptor.kernarg_size as usize, 0);
    let kernargs = number(&row["kernargs"]).unwrap_or(0);
    if with_packet {
        let packet = DispatchPacket::new(descriptor, launch, kernargs, 0);
        let at = ours.len();
        ours.extend(zerocopy::IntoBytes::as_bytes(&packet));
        if packet.setup.get() != 0 {
            ours[at + 2..at + 4].fill(0);
            verdict.deviation(SETUP, place);
        }
    }
    let text: String = ours.iter().map(|b| format!("{b:02x}")).collect();
    if text.trim_end_matches("00") == recorded.trim_end_matches("00") {
        Rows::new()
    } else {
        vec![format!("argument memory {text}, recorded {recorded}")]
    }
}

/// A ring of the recording, its write position and the memory it lies in.
struct Rig {
    memory: Memory,
    ring: Ring,
    put: u64,
}

fn rig(setup: &Setup, row: &Value, kind: QueueKind, fill: u32) -> Result<Rig, String> {
    let (size, put) = (need(row, "ring_size")?, need(row, "put")?);
    // Where the rings of the recording lie.
    let va = match kind {
        QueueKind::Compute => number(&row["ring_addr"]).unwrap_or(0x2000_0100_0000),
        QueueKind::Sdma => 0x2000_0200_0000,
    };
    let mut memory = Memory::new(size, fill, put);
    memory.align = setup.host == Host::Usb;
    let count = if kind == QueueKind::Compute { setup.compute.xcc_count } else { 1 };
    let ring = Ring::new(&memory.queues(kind, va, count)).map_err(|e| e.to_string())?.with_put(put);
    Ok(Rig { memory, ring, put })
}

/// The order that every submission keeps, and what the last steps were told.
fn order(setup: &Setup, rig: &Rig, row: &Value, place: &str, verdict: &mut Verdict) -> Rows {
    let mut out = Rows::new();
    let events: Vec<_> = rig.memory.events.iter().filter(|e| **e != Event::Ring).copied().collect();
    let put = rig.ring.put();
    let xccs = rig.ring.queues().len();
    let mut expected = vec![Event::WritePointer(put); xccs];
    expected.extend([Event::Fence, Event::Hdp]);
    expected.extend(vec![Event::Doorbell(put); xccs]);
    let ring_first = rig.memory.events.iter().take_while(|e| **e == Event::Ring).count();
    if events != expected || ring_first + events.len() != rig.memory.events.len() {
        out.push(format!("the order is {:?}", rig.memory.events));
    }
    for key in ["put_value", "write_ptr", "doorbell"] {
        if !row[key].is_null() {
            out.extend(number_is(key, put, &row[key]));
        }
    }
    // The kernel driver's rings lie in system memory: flushing is nothing there.
    let flushes = if setup.host == Host::Kfd { 0 } else { 1 };
    match number(&row["hdp_flushes"]) {
        Some(0) if setup.host == Host::Usb => verdict.deviation(USB_HDP, place),
        Some(n) if n == flushes => {}
        None => {}
        other => out.push(format!("{flushes} HDP flushes, recorded {other:?}")),
    }
    out
}

/// Contents of the ring: `ring_nonzero` names all words that are not zero, `ring_changed` all that
/// are not the filler.
fn contents(memory: &Memory, row: &Value) -> Rows {
    let (key, filler) =
        if row["ring_changed"].is_object() { ("ring_changed", FILLER) } else { ("ring_nonzero", 0) };
    let mut expected = vec![filler; memory.ring.len() / 4];
    for (index, value) in row[key].as_object().into_iter().flatten() {
        let index: usize = index.parse().unwrap_or(usize::MAX);
        match (expected.get_mut(index), number(value)) {
            (Some(word), Some(value)) => *word = value as u32,
            _ => return vec![format!("{key}: {index} is outside the ring")],
        }
    }
    let ours = memory.dwords();
    match ours.iter().zip(&expected).position(|(a, b)| a != b) {
        Some(at) => vec![format!("ring word {at} is {:#x}, recorded {:#x}", ours[at], expected[at])],
        None => Rows::new(),
    }
}

/// What SDMA rings of the recording are filled with.
const FILLER: u32 = 0xeeee_eeee;

/// Contents of recorded submissions.
fn pattern(len: u64) -> Vec<u32> {
    (0..len as u32).map(|i| 0xa000_0000 + i).collect()
}

fn compute_submit(setup: &Setup, row: &Value) -> Result<Rows, String> {
    let mut rig = rig(setup, row, QueueKind::Compute, 0)?;
    let dwords = pattern(need(row, "n")?);
    rig.ring.submit_pm4(&mut rig.memory, &dwords, 1000).map_err(|e| e.to_string())?;
    let mut out = order(setup, &rig, row, "", &mut Verdict::default());
    out.extend(contents(&rig.memory, row));
    Ok(out)
}

fn compute_bind(setup: &Setup, row: &Value, len: u32) -> Result<Rows, String> {
    let mut rig = rig(setup, row, QueueKind::Compute, 0)?;
    let va = need(row, "ib_addr")?;
    let mut out = number_is("length of the buffer", len.into(), &row["ib_len"]);
    rig.ring.submit_pm4_indirect(&mut rig.memory, va, len, 1000).map_err(|e| e.to_string())?;
    out.extend(order(setup, &rig, row, "", &mut Verdict::default()));
    out.extend(contents(&rig.memory, row));
    Ok(out)
}

pub(super) fn copy(setup: &Setup, row: &Value, place: &str, verdict: &mut Verdict) -> Result<Rows, String> {
    let name = row["name"].as_str().unwrap_or("");
    if name.starts_with("submit_") {
        return sdma_submit(setup, row, place, verdict);
    }
    let mut buf = vec![0u32; 1 << 16];
    let mut q = Sdma::new(&setup.sdma, &mut buf);
    let error = |e: QueueError| format!("refused: {e}");
    match name {
        "copy_0" => q.copy(COPY_DST, COPY_SRC, 0).map(drop),
        n if n.starts_with("copy_") => {
            let (max, size) = (need(row, "max_copy_size")?, need(row, "size")?);
            let (dst, src) = (need(row, "dest")?, need(row, "src")?);
            let ours = setup.sdma.max_copy();
            if max != ours && (setup.sdma.version.0, ours) != (5, 0x40_0000) {
                return Err(format!("one packet copies {ours:#x}, recorded {max:#x}"));
            }
            if max != ours && size > ours {
                verdict.deviation(COPY_COUNT, place);
                q.copy(dst, src, size).map_err(error)?;
                return Ok(covers(q.dwords(), dst, src, size, ours));
            }
            q.copy(dst, src, size).map(drop)
        }
        "signal" | "signal_timeline" | "signal_no_owner" => {
            let (timeline, owned) = (name == "signal_timeline", name != "signal_no_owner");
            q.signal(need(row, "signal")?, need(row, "value")? as u32, timeline, owned).map(drop)
        }
        "wait" => q.wait(need(row, "signal")?, need(row, "value")? as u32).map(drop),
        "timestamp" => q.timestamp(need(row, "timestamp_addr")?).map(drop),
        "copyin_sequence" => (|| {
            q.wait(TIMELINE, 6)?.copy(COPY_DST, COPY_SRC, 0x8_0000)?.signal(TIMELINE, 7, true, true).map(drop)
        })(),
        n if n.starts_with("bind_submit_") => (|| {
            q.wait(TIMELINE, 3)?.copy(COPY_DST, COPY_SRC, 0x1000)?.signal(TIMELINE, 4, true, true)?;
            q.pad().map(drop)
        })(),
        other => return Err(format!("case {other} is not known")),
    }
    .map_err(error)?;
    let lengths: Result<Vec<usize>, _> = decode::lengths(q.dwords()).collect();
    let lengths = lengths.map_err(|e| format!("cannot be decoded: {e}"))?;
    if name.starts_with("bind_submit_") {
        return sdma_bind(setup, row, q.dwords(), place, verdict);
    }
    let mut out = equal("packets", q.dwords(), &row["dwords"]);
    let recorded: Vec<usize> = numbers(&row["internal_cmd_sizes"]).iter().map(|n| *n as usize).collect();
    if lengths != recorded {
        out.push(format!("packet lengths {lengths:?}, recorded {recorded:?}"));
    }
    Ok(out)
}

/// Whether copy packets move exactly one range, none of them more than `max` bytes.
fn covers(dwords: &[u32], dst: u64, src: u64, size: u64, max: u64) -> Rows {
    let mut done = 0;
    for packet in decode::packets(dwords) {
        match packet {
            Ok((_, decode::Packet::Copy { dst: d, src: s, size: n, parameter: 0 }))
                if (d, s) == (dst + done, src + done) && n <= max =>
            {
                done += n;
            }
            other => return vec![format!("after {done:#x} bytes: {other:?}")],
        }
    }
    if done == size { Rows::new() } else { vec![format!("{done:#x} of {size:#x} bytes are copied")] }
}
