//! A whole boot, command by command, into the bridge before a simulated GPU.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use amdev_sim::bridge::usb::UsbPort;
use amdev_sim::bridge::{Access, BridgeConfig, Firmware, Place as Where};
use amdev_sim::{Config, firmware};
use anyhow::{Context, Result, anyhow};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::host::{Command, Host};
use super::unit::hex;
use crate::golden_sim::{fault_of, images};
use crate::golden_tlsf::hex as tlsf_hex;
use crate::replay::Place;
use crate::verdict::Verdict;

/// Nanoseconds between two tries of a polled read, and until they end.
const STEP: u64 = 50_000;
const DEADLINE: u64 = 500_000_000;
const SLOT: usize = 0x4000;
const PIECE: usize = 0x1_0000;
/// Reads that differ for ever are not waited for for ever.
const PATIENCE: usize = 20;

/// The trigger and the acknowledgement of a PCIe request.
const TRIGGER: u16 = 0xb254;
const STATUS: u16 = 0xb296;
const STATUS_AT: u32 = STATUS as u32;
const COMPLETE: u8 = 2;
/// The completion's header.
const HEADER_AT: u32 = 0xb22a;

/// Commands that are sent at once, and the digests of their data.
type Batch = Vec<(Command, Option<String>)>;

/// The commands of a boot, as its file has them.
fn parse(text: &str) -> Result<Vec<Batch>> {
    let (mut batches, mut batch) = (Vec::new(), Vec::new());
    for (n, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            batches.push(std::mem::take(&mut batch));
            continue;
        }
        let bad = || format!("line {}: {line:?}", n + 1);
        let mut words = line.split_whitespace();
        let mut c =
            Command { cdb: hex(words.next().unwrap_or_default()).with_context(bad)?, ..Command::default() };
        let mut digest = None;
        for word in words {
            if let Some(len) = word.strip_prefix('i') {
                c.room = len.parse::<u8>().with_context(bad)?.into();
            } else {
                let (len, d) = word.strip_prefix('o').and_then(|w| w.split_once(':')).with_context(bad)?;
                let len: usize = len.parse().with_context(bad)?;
                if len > PIECE {
                    return Err(anyhow!("{}: a block has at most {PIECE} bytes", bad()));
                }
                c.out = Some(vec![0; len]);
                digest = Some(d.to_owned());
            }
        }
        batch.push((c, digest));
    }
    batches.push(batch);
    batches.retain(|b| !b.is_empty());
    Ok(batches)
}

/// A message as it goes through the window: in sectors, or in whole pieces.
fn padded(mut message: Vec<u8>) -> Vec<u8> {
    let unit = if message.len() > SLOT { PIECE } else { 512 };
    message.resize(message.len().next_multiple_of(unit), 0);
    message
}

/// Gives blocks their contents: the real images where they are here, else ones with a right header.
/// How many messages were real, of how many.
fn fill(batches: &mut [Batch], psp: &[Value], images: &BTreeMap<String, Vec<u8>>) -> Result<(usize, usize)> {
    let mut pieces: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for message in images.values() {
        for piece in padded(message.clone()).chunks(PIECE) {
            let digest: String = Sha256::digest(piece).iter().take(8).map(|b| format!("{b:02x}")).collect();
            pieces.insert(digest, piece.to_vec());
        }
    }
    // Which commands carry one message: those that no request to the GPU stands between.
    let mut groups: Vec<Vec<(usize, usize)>> = vec![Vec::new()];
    for (i, batch) in batches.iter().enumerate() {
        for (j, (c, digest)) in batch.iter().enumerate() {
            if digest.is_some() {
                if let Some(group) = groups.last_mut() {
                    group.push((i, j));
                }
            } else if c.address() == u32::from(TRIGGER) && groups.last().is_some_and(|g| !g.is_empty()) {
                groups.push(Vec::new());
            }
        }
    }
    groups.retain(|g| !g.is_empty());
    let messages: Vec<&Value> = psp
        .iter()
        .filter(|m| m["kind"] == "bootloader" || m["toc_size"].is_u64() || m["fw_size"].is_u64())
        .collect();
    if groups.len() != messages.len() {
        return Err(anyhow!("{} messages in blocks, {} in psp_usb.json", groups.len(), messages.len()));
    }
    let mut real = 0;
    for (seed, (group, message)) in groups.iter().zip(messages).enumerate() {
        let at = |(i, j): &(usize, usize)| batches.get(*i).and_then(|b| b.get(*j));
        let known: Option<Vec<Vec<u8>>> = group
            .iter()
            .map(|g| at(g).and_then(|(_, d)| pieces.get(d.as_deref().unwrap_or_default()).cloned()))
            .collect();
        let whole: usize = group.iter().filter_map(|g| at(g)?.0.out.as_ref().map(Vec::len)).sum();
        real += usize::from(known.is_some());
        let parts = known.unwrap_or_else(|| {
            // The reference puts 4 bytes behind each message (fault 7).
            let size = message["toc_size"].as_u64().or(message["fw_size"].as_u64());
            let size = size.map_or(whole.saturating_sub(4), |s| s.min(whole as u64) as usize);
            let mut image = firmware::synthetic(0, seed as u32, size);
            image.resize(whole, 0);
            image.chunks(PIECE).map(<[u8]>::to_vec).collect()
        });
        for ((i, j), part) in group.iter().zip(parts) {
            if let Some((c, _)) = batches.get_mut(*i).and_then(|b| b.get_mut(*j)) {
                let len = c.out.as_ref().map_or(0, Vec::len);
                if part.len() != len {
                    return Err(anyhow!("a block of {len} bytes gets {}", part.len()));
                }
                c.out = Some(part);
            }
        }
    }
    Ok((real, groups.len()))
}

/// What the commands ask of PCIe, told from the commands alone.
#[derive(Default)]
struct Engine {
    registers: BTreeMap<u32, u8>,
}

impl Engine {
    fn dword(&self, at: u32) -> u32 {
        (at..at + 4).fold(0, |v, a| v << 8 | u32::from(self.registers.get(&a).copied().unwrap_or(0)))
    }

    /// The request that a command sends: format, address, enables, data.
    fn command(&mut self, c: &Command) -> Option<(u8, u64, u8, u32)> {
        if c.opcode() != 0xe5 {
            return None;
        }
        self.registers.insert(c.address(), c.byte());
        let byte = |at: u32| self.registers.get(&at).copied().unwrap_or(0);
        let address = u64::from(self.dword(0xb21c)) << 32 | u64::from(self.dword(0xb218));
        (c.address() == u32::from(TRIGGER)).then(|| (byte(0xb210), address, byte(0xb217), self.dword(0xb220)))
    }
}

/// Where the reference put the windows: number, first address, length.
struct Bars(Vec<(u8, u64, u64)>);

impl Bars {
    fn parse(bars: &Value) -> Result<Bars> {
        let one = |(bar, place): (&String, &Value)| -> Result<(u8, u64, u64)> {
            Ok((bar.parse()?, tlsf_hex(&place[0])?, tlsf_hex(&place[1])?))
        };
        bars.as_object().context("no bars")?.iter().map(one).collect::<Result<_>>().map(Bars)
    }

    fn place_of(&self, address: u64) -> Option<Where> {
        self.0.iter().find_map(|(bar, base, len)| {
            let offset = address.checked_sub(*base).filter(|o| o < len)?;
            Some(Where::Window { bar: *bar, offset })
        })
    }
}

/// A row of the trace, made ready to be compared.
struct Row {
    i: u64,
    write: bool,
    place: Where,
    value: u32,
    /// Reads of this row that are still to come.
    left: u64,
    polled: bool,
}

/// An entry of the trace: an access, or time that passes.
enum Entry {
    Row(Row),
    Sleep(u64),
}

fn entries(rows: &[Value]) -> Result<VecDeque<Entry>> {
    let mut out = VecDeque::new();
    for row in rows {
        let number =
            |field: &str| row[field].as_u64().with_context(|| format!("row {}: no {field}", row["i"]));
        let i = row["i"].as_u64().unwrap_or(0);
        let op = row["op"].as_str().unwrap_or_default();
        let name = row["name"].as_str().unwrap_or_default();
        let left = row["n"].as_u64().unwrap_or(1);
        let word = || -> Result<u32> {
            if row["zero"] == true {
                return Ok(0);
            }
            let data = hex(row["data"].as_str().context("no data")?)?;
            Ok(data.iter().rev().fold(0, |v, b| v << 8 | u32::from(*b)))
        };
        let entry = match op {
            "r" | "w" => Row {
                i,
                write: op == "w",
                place: Where::Window { bar: 5, offset: number("addr")? * 4 },
                value: number("val")? as u32,
                left,
                polled: left > 1 || name.contains("C2PMSG") || name.ends_with("_ACK"),
            },
            "vr" | "vw" => {
                let place = Where::Window { bar: 0, offset: number("pa")? };
                let value = word().with_context(|| format!("row {i}"))?;
                Row { i, write: op == "vw", place, value, left, polled: true }
            }
            "sleep" => {
                out.push_back(Entry::Sleep(number("us")?));
                continue;
            }
            _ => continue,
        };
        out.push_back(Entry::Row(entry));
    }
    Ok(out)
}

struct Judge<'a> {
    host: Host,
    entries: VecDeque<Entry>,
    verdict: &'a mut Verdict,
    waited: usize,
    repeated: u64,
}

impl Judge<'_> {
    /// An access of the boot itself against its row; a polled read is repeated.
    fn access(&mut self, found: Access) -> Result<()> {
        while let Some(Entry::Sleep(us)) = self.entries.front() {
            self.host.bridge.pass(us.saturating_mul(1000));
            self.entries.pop_front();
        }
        let Some(Entry::Row(row)) = self.entries.front_mut() else {
            self.verdict.row("after the last row", vec![format!("{found:x?}")]);
            return Ok(());
        };
        let same = found.write == row.write && found.place == row.place && found.len == 4;
        let (i, want, polled) = (row.i, row.value, row.polled);
        row.left = row.left.saturating_sub(1);
        if same && row.left > 0 {
            // One of several reads of a row: what comes between is not compared.
            return Ok(());
        }
        self.entries.pop_front();
        let mut value = found.value;
        if same && !found.write && polled && value != want && self.waited < PATIENCE {
            let end = self.host.bridge.now_ns() + DEADLINE;
            while value != want && self.host.bridge.now_ns() < end {
                self.host.bridge.pass(STEP);
                self.host.send(&[Command::write(TRIGGER, 0x0f), Command::write(STATUS, 4)])?;
                let again = self.host.bridge.take_record();
                value = again.last().map_or(value, |a| a.value);
            }
            self.repeated += 1;
            self.waited += usize::from(value != want);
        }
        let place = format!("row {i}");
        let text = || format!("{found:x?} gives {value:#x}, recorded {want:#x}");
        self.verdict.row(&place, if same && value == want { vec![] } else { vec![text()] });
        Ok(())
    }
}

/// Judges a boot; a line about it.
pub(super) fn judge(
    place: &Place,
    dir: &Path,
    gpu: &str,
    recorded: &Value,
    verdict: &mut Verdict,
) -> Result<String> {
    let (totals, bars) = (&recorded["boot_total"], Bars::parse(&recorded["bars"])?);
    let text = crate::read(dir.join("boot_usb_cdbs.txt"))?;
    let mut batches = parse(std::str::from_utf8(&text).context("boot_usb_cdbs.txt is no text")?)?;
    let psp: Vec<Value> = serde_json::from_slice(&crate::read(dir.join("psp_usb.json"))?)?;
    let known = images(place, gpu, &crate::golden_fw::firmware_dirs())?;
    let (real, messages) = fill(&mut batches, &psp, &known)?;
    let mut config = Config::new(gpu)?;
    config.judge = true;
    let host = Host::new(BridgeConfig::new(Firmware::Patched, config))?;
    host.bridge.take_record();
    host.bridge.start_anew(Vec::new());
    let entries = entries(&place.trace("boot_usb")?)?;
    let mut j = Judge { host, entries, verdict, waited: 0, repeated: 0 };
    let mut engine = Engine::default();
    let (mut commands, mut requests) = (0u64, 0usize);
    for (n, batch) in batches.iter().enumerate() {
        let batch: Vec<Command> = batch.iter().map(|(c, _)| c.clone()).collect();
        commands += batch.len() as u64;
        // Without the result of a batch the reference would not have sent the next one.
        let answers = j.host.send(&batch).with_context(|| format!("{gpu}, batch {n}"))?;
        let reached = j.host.bridge.take_record();
        let asked: Vec<_> = batch.iter().filter_map(|c| engine.command(c)).collect();
        let at = format!("{gpu}, batch {n}");
        for (c, answer) in batch.iter().zip(&answers).filter(|(c, _)| c.room > 0) {
            let good = match c.address() {
                STATUS_AT => answer == &[COMPLETE],
                // Status and byte count; the reference insists on both.
                HEADER_AT => answer == &[0, 4],
                _ => continue,
            };
            let text = || format!("answer at {:#x} is {answer:02x?}", c.address());
            j.verdict.row(&at, if good { vec![] } else { vec![text()] });
        }
        if asked.len() != reached.len() {
            let what = format!("{} requests were sent, {} reached a device", asked.len(), reached.len());
            j.verdict.row(&at, vec![what]);
        }
        requests += reached.len();
        for ((fmt, address, enable, data), found) in asked.into_iter().zip(reached) {
            let first = enable.trailing_zeros();
            let write = fmt & 0x40 != 0;
            if fmt & 4 != 0 {
                let bus = (address >> 24) as u8;
                let place = Where::Config { bus, at: (address & 0xfff) as u16 + first as u16 };
                let bits = 8 * enable.count_ones();
                let value = (u64::from(data) >> (8 * first) & ((1 << bits) - 1)) as u32;
                let same = found.write == write && found.place == place && (!write || found.value == value);
                let text = format!("configuration {place:x?} = {value:#x} arrives as {found:x?}");
                j.verdict.row(&at, if same { vec![] } else { vec![text] });
                continue;
            }
            let same = found.write == write
                && Some(found.place) == bars.place_of(address)
                && (!write || found.value == data);
            if !same {
                j.verdict.row(&at, vec![format!("request for {address:#x} arrives as {found:x?}")]);
            }
            j.access(found)?;
        }
    }
    let left = j.entries.iter().filter(|e| matches!(e, Entry::Row(_))).count();
    if left > 0 {
        j.verdict.row(gpu, vec![format!("{left} rows of the trace were never reached")]);
    }
    let counted = totals
        .as_object()
        .map(|t| ["E5_write", "E4_read", "8A_scsi_write"].map(|k| t[k].as_u64().unwrap_or(0)));
    if counted.map(|c| c.iter().sum::<u64>()) != Some(commands) {
        j.verdict.row(gpu, vec![format!("{commands} commands in the file, {totals} in usb.json")]);
    }
    for v in j.host.bridge.take_violations() {
        match fault_of(&v) {
            Some(1) => j.verdict.deviation("fault 1 of the reference", &v.detail),
            Some(2) => j.verdict.deviation("fault 2 of the reference", &v.detail),
            Some(6) => j.verdict.deviation("fault 6 of the reference", &v.detail),
            Some(10) => j.verdict.deviation("fault 10 of the reference", &v.detail),
            _ => j.verdict.row(gpu, vec![format!("misuse: {v}")]),
        }
    }
    let c = j.host.bridge.counts();
    Ok(format!(
        "{gpu}: {} commands, {} transfers, {requests} PCIe requests, {} polled reads repeated, {real} of {messages} \
         messages real, {:.1} s of the bridge's time",
        commands,
        c.usb_transfers,
        j.repeated,
        j.host.bridge.now_ns() as f64 / 1e9
    ))
}
