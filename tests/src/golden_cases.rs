//! Runs kernels of the corpus through the whole driver, on the simulated GPU of their target or a
//! device of the caller's choice, and compares every buffer (`corpus/cases`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use amdev_cli::dtype::DType;
use amdev_cli::generate::Generator;
use amdev_cli::progress::Silent;
use amdev_cli::session::{Backend, BootOptions, DeviceBuffer, KernelArg, OpenOptions, Session};
use amdev_cli::sim::SimBackend;
use amdev_cli::spec::DeviceSpec;
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;

use crate::golden_facts::sha256;
use crate::verdict::Verdict;

/// Buffers of a case that are longer than this are refused.
const LONGEST: u64 = 1 << 28;

/// Devices that were booted, by their name.
#[derive(Default)]
pub struct Devices {
    open: BTreeMap<String, Box<dyn Session>>,
    chosen: Option<(String, String)>,
}

impl Devices {
    /// All runs on one device, for example `sim:navi31`; objects of other targets are left out.
    ///
    /// # Errors
    /// A device that cannot be opened or booted.
    pub fn only(device: &str) -> Result<Self> {
        let mut all = Devices::default();
        let target = all.session(device)?.info()?.target;
        all.chosen = Some((device.to_owned(), target));
        Ok(all)
    }

    /// The device for a target, if there is one.
    fn name_for(&self, target: &str) -> Option<String> {
        match &self.chosen {
            Some((device, own)) => (own == target).then(|| device.clone()),
            None => {
                amdev_sim::chip::CHIPS.iter().find(|c| c.target == target).map(|c| format!("sim:{}", c.name))
            }
        }
    }

    fn session(&mut self, device: &str) -> Result<&mut Box<dyn Session>> {
        if !self.open.contains_key(device) {
            let spec: DeviceSpec = device.parse().map_err(|e: String| anyhow!("{e}"))?;
            ensure!(SimBackend.serves(&spec), "{device}: cases run on simulated GPUs (sim:GPU) only");
            let options =
                OpenOptions { synthetic_firmware: true, flow: "run".into(), ..OpenOptions::default() };
            let mut session = SimBackend.open(&spec, &options)?;
            session
                .boot(&BootOptions::default(), &mut Silent)
                .with_context(|| format!("booting {device}"))?;
            self.open.insert(device.to_owned(), session);
        }
        self.open.get_mut(device).context("the device is gone")
    }

    /// Ends everything; misuse that the devices saw, a line each.
    pub fn finish(self) -> Vec<String> {
        let mut out = Vec::new();
        for (device, mut session) in self.open {
            out.extend(session.violations().into_iter().flatten().map(|v| format!("{device}: misuse: {v}")));
            if let Err(e) = session.release() {
                out.push(format!("{device}: {e:#}"));
            }
        }
        out
    }
}

/// What a name like `vecadd.gfx1100_w64.v5.O2.co` says.
struct Name {
    target: String,
    version: Option<u64>,
}

fn parse_name(file: &str, object: &str) -> Option<Name> {
    let file = file.strip_suffix(".gz").unwrap_or(file);
    let rest = file.strip_prefix(object)?.strip_prefix('.')?.strip_suffix(".co")?;
    let mut parts = rest.split('.');
    let target = parts.next()?;
    let target = target.split('_').next().unwrap_or(target).to_owned();
    let version = parts.next().and_then(|v| v.strip_prefix('v')).and_then(|v| v.parse().ok());
    Some(Name { target, version })
}

/// Judges the bytes of a case file on the objects in `dirs`. The second value says what was left out.
///
/// # Errors
/// A file that is not of this format.
pub fn judge(json: &[u8], dirs: &[PathBuf], devices: &mut Devices) -> Result<(Verdict, Vec<String>)> {
    let all: Value = serde_json::from_slice(json).context("not JSON")?;
    let mut verdict = Verdict::default();
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    let files = objects(dirs)?;
    for case in all.as_array().context("not a list of cases")? {
        let id = case["id"].as_str().context("a case without id")?;
        let object = case["object"].as_str().with_context(|| format!("{id}: no object"))?;
        let wanted = &case["code_object_version"];
        let mut runs = 0;
        for file in &files {
            let file_name = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let Some(name) = parse_name(&file_name, object) else { continue };
            if !fits(wanted, name.version) {
                continue;
            }
            let Some(device) = devices.name_for(&name.target) else {
                *left.entry(format!("objects for {}: no such device", name.target)).or_default() += 1;
                continue;
            };
            let image = crate::read(file)?;
            let session = devices.session(&device)?;
            let place = format!("{id} on {file_name}");
            runs += 1;
            match run(session.as_mut(), case, &image) {
                Ok(buffers) => {
                    for (buffer, wrong) in buffers {
                        verdict.row(&format!("{place}: {buffer}"), wrong);
                    }
                }
                Err(e) => {
                    verdict.row(&place, vec![format!("{e:#}")]);
                    // What is left of the run must not disturb the next one.
                    devices.open.remove(&device);
                }
            }
        }
        let known =
            files.iter().filter_map(|f| f.file_name()?.to_str()).any(|f| parse_name(f, object).is_some());
        if !known {
            verdict.row(id, vec![format!("no object {object}.TARGET*.co is in the folders")]);
        } else if runs == 0 {
            *left.entry(format!("{id}: no object of a device's target")).or_default() += 1;
        }
    }
    Ok((verdict, left.into_iter().map(|(what, n)| format!("left out: {n} × {what}")).collect()))
}

/// Whether a case's `code_object_version`, a number or a list, has an object's.
fn fits(wanted: &Value, version: Option<u64>) -> bool {
    let Some(version) = version else { return true };
    match wanted {
        Value::Null => true,
        Value::Array(list) => list.iter().any(|v| v.as_u64() == Some(version)),
        one => one.as_u64() == Some(version),
    }
}

fn objects(dirs: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut out = Vec::new();
    for dir in dirs {
        if dir.is_file() {
            out.push(dir.clone());
            continue;
        }
        let entries = std::fs::read_dir(dir)
            .map_err(|e| std::io::Error::new(e.kind(), format!("{}: {e}", dir.display())))?;
        out.extend(entries.flatten().map(|e| e.path()).filter(|p: &PathBuf| Path::is_file(p)));
    }
    out.sort();
    Ok(out)
}

fn three(v: &Value) -> Result<[u32; 3]> {
    let n: Vec<u32> =
        v.as_array().into_iter().flatten().filter_map(|n| n.as_u64()?.try_into().ok()).collect();
    n.try_into().map_err(|_| anyhow!("{v} is not three numbers"))
}

/// A generator by its JSON form.
fn generator(init: &Value) -> Result<Generator> {
    let init = init.as_object().context("init is not an object")?;
    let gen_name = init.get("gen").and_then(Value::as_str).context("init has no gen")?;
    let params: Vec<String> =
        init.iter().filter(|(k, _)| *k != "gen").map(|(k, v)| format!("{k}={v}")).collect();
    format!("{gen_name}({})", params.join(",")).parse().map_err(|e: String| anyhow!("{e}"))
}

struct Arg<'c> {
    case: &'c Value,
    name: String,
    dtype: DType,
    before: Vec<u8>,
    buffer: DeviceBuffer,
}

/// Runs a case; what is wrong with each buffer.
fn run(session: &mut dyn Session, case: &Value, image: &[u8]) -> Result<Vec<(String, Vec<String>)>> {
    let (grid, block) = (three(&case["grid"])?, three(&case["block"])?);
    if !case["global_size"].is_null() {
        let size = three(&case["global_size"])?;
        let own: Vec<u64> = grid.iter().zip(&block).map(|(g, b)| u64::from(*g) * u64::from(*b)).collect();
        ensure!(size.iter().zip(&own).all(|(a, b)| u64::from(*a) == *b), "global_size is not grid × block");
    }
    let (mut args, mut buffers) = (Vec::new(), Vec::new());
    for arg in case["args"].as_array().context("no args")? {
        let dtype = arg["dtype"].as_str().context("an argument without dtype")?;
        let dtype: DType = dtype.parse().map_err(|_| anyhow!("{dtype} is no element type"))?;
        if arg["kind"] == "value" {
            let bytes = dtype.parse_value(&arg["value"].to_string()).map_err(|e| anyhow!("{e}"))?;
            args.push(KernelArg::Value(bytes));
            continue;
        }
        ensure!(arg["kind"] == "buffer", "{} is no kind of argument", arg["kind"]);
        let name = arg["name"].as_str().unwrap_or("?").to_owned();
        let count = arg["count"].as_u64().filter(|n| n.saturating_mul(8) <= LONGEST);
        let count = count.with_context(|| format!("{name}: count is {}", arg["count"]))?;
        let before = generator(&arg["init"])?.bytes(dtype, count as usize);
        let before = before.map_err(|e| anyhow!("{name}: {e}"))?;
        let buffer = session.alloc(before.len() as u64)?;
        session.upload(buffer, &before)?;
        args.push(KernelArg::Buffer(buffer));
        buffers.push(Arg { case: arg, name, dtype, before, buffer });
    }
    session.load(image, case["kernel"].as_str())?;
    session.run(grid, block, &args)?;
    let mut out = Vec::new();
    for b in &buffers {
        let mut after = vec![0; b.before.len()];
        session.download(b.buffer, &mut after)?;
        out.push((b.name.clone(), compare(b, &after)?));
    }
    for b in buffers {
        session.free(b.buffer)?;
    }
    Ok(out)
}

fn compare(b: &Arg<'_>, after: &[u8]) -> Result<Vec<String>> {
    let mut out = Vec::new();
    let before = sha256(&b.before);
    if b.case["init_sha256"].as_str().is_some_and(|s| s != before) {
        out.push(format!("starts with {before}, recorded {}", b.case["init_sha256"]));
    }
    match b.case["written"].as_bool() {
        None => bail!("{}: written is {}", b.name, b.case["written"]),
        Some(false) if after != b.before => out.push("changed, although it is only read".to_owned()),
        Some(_) => {}
    }
    let found = sha256(after);
    if b.case["expect"]["sha256"].as_str() != Some(&found) {
        let size = b.dtype.size();
        let first: Vec<String> = after.chunks(size).take(8).map(|e| b.dtype.show(e)).collect();
        out.push(format!(
            "has {found} ({}), recorded {} ({})",
            first.join(" "),
            b.case["expect"]["sha256"],
            b.case["expect"]["first8"]
        ));
    }
    let bits: Vec<String> = after
        .chunks(b.dtype.size())
        .take(8)
        .map(|e| e.iter().rev().map(|x| format!("{x:02x}")).collect())
        .collect();
    let recorded = b.case["expect"]["first8_bits"].as_array();
    let recorded =
        recorded.map(|l| l.iter().map(|v| v.as_str().unwrap_or("").to_owned()).collect::<Vec<_>>());
    if recorded.is_some_and(|r| r != bits) {
        out.push(format!("begins with {bits:?}, recorded {}", b.case["expect"]["first8_bits"]));
    }
    Ok(out)
}
