//! Judges programs and scratch memory against the reference's (`golden/program.json`,
//! `golden/scratch.json`).

use std::collections::HashMap;

use amdev_core::iface::{Properties, Target};
use amdev_core::program::CodeObject;
use amdev_core::queue::scratch::Scratch;
use serde_json::Value;

use crate::golden_facts::{image, sha256};
use crate::verdict::Verdict;

/// A number: JSON's own, or hexadecimal text.
pub(crate) fn number(v: &Value) -> Option<u64> {
    match v {
        Value::String(s) => u64::from_str_radix(s.strip_prefix("0x")?, 16).ok(),
        Value::Bool(b) => Some(u64::from(*b)),
        v => v.as_u64(),
    }
}

/// A target by its name, `gfx1100` or `gfx90a`.
pub(crate) fn target(name: &str) -> Option<Target> {
    let digits = name.strip_prefix("gfx")?;
    let (major, rest) = digits.split_at(digits.len().checked_sub(2)?);
    let (minor, stepping) = rest.split_at(1);
    let hex = |s: &str| u8::from_str_radix(s, 16).ok();
    Some(Target::new(major.parse().ok()?, hex(minor)?, hex(stepping)?))
}

fn unhex(text: &str) -> Result<Vec<u8>, String> {
    let digits = text.as_bytes();
    digits
        .chunks(2)
        .map(|c| std::str::from_utf8(c).ok().and_then(|c| u8::from_str_radix(c, 16).ok()))
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(|| "an ELF image is not hexadecimal".to_owned())
}

/// LDS that every device of the recording has, in KiB.
const LDS_KIB: u32 = 64;

/// Judges the bytes of a `program.json`. The images are the same bytes for all targets, so their
/// flags do not name the device, and the target is not held against them.
pub fn judge(json: &[u8]) -> Result<Verdict, String> {
    let rows: Value = serde_json::from_slice(json).map_err(|e| format!("not JSON: {e}"))?;
    let rows = rows.as_array().ok_or("not a list of programs")?;
    let mut images: HashMap<&str, Vec<u8>> = HashMap::new();
    let mut verdict = Verdict::default();
    for row in rows {
        let name = row["name"].as_str().ok_or("a row without name")?;
        let device = row["target"].as_str().ok_or("a row without target")?;
        let place = format!("{device}/{name}");
        if let Some(Ok(bytes)) = row["elf"].as_str().filter(|e| !e.contains(' ')).map(unhex) {
            images.insert(name, bytes);
        }
        let Some(bytes) = images.get(name) else {
            verdict.row(&place, vec!["its ELF image is in no row before it".into()]);
            continue;
        };
        let target = target(device).ok_or_else(|| format!("{device} is no target"))?;
        verdict.row(&place, program(row, bytes, target).unwrap_or_else(|e| vec![e]));
    }
    Ok(verdict)
}

fn program(row: &Value, bytes: &[u8], target: Target) -> Result<Vec<String>, String> {
    let props = Properties { target, lds_kib: LDS_KIB, ..Properties::default() };
    let base = number(&row["lib_gpu_va"]).unwrap_or(0);
    let object = CodeObject::parse(bytes).map_err(|e| e.to_string())?;
    let kernel = object.only_kernel().map_err(|e| e.to_string())?;
    let regs = match (kernel.regs(&props, base, 0), row.get("error")) {
        (Err(_), Some(_)) => return Ok(Vec::new()),
        (Err(e), None) => return Err(format!("refused: {e}")),
        (Ok(_), Some(error)) => return Err(format!("accepted, the reference says {error}")),
        (Ok(regs), None) => regs,
    };
    let d = &kernel.descriptor;
    let mut out = Vec::new();
    if let Some(kd) = row["kd"].as_str() {
        let ours: String = d.emit().iter().map(|b| format!("{b:02x}")).collect();
        // Reserved bytes of the recorded descriptor are zero, so that it must come back whole.
        if ours != kd {
            out.push(format!("descriptor {ours}, recorded {kd}"));
        }
    }
    let image = image(&object, None)?;
    let fields: [(&str, u64); 15] = [
        ("group_segment_size", d.group_segment_size.into()),
        ("private_segment_size", d.private_segment_size.into()),
        ("kernargs_segment_size", d.kernarg_size.into()),
        ("wave32", u64::from(d.wave32())),
        ("rsrc1", regs.rsrc1.into()),
        ("rsrc2", regs.rsrc2.into()),
        ("rsrc3", regs.rsrc3.into()),
        ("prog_addr", regs.entry),
        ("enable_dispatch_ptr", u64::from(d.properties) & 2),
        ("enable_private_segment_sgpr", u64::from(d.properties) & 1),
        ("kernargs_alloc_size", kernel.kernarg_alloc_size()),
        ("lib_gpu_size", object.image_size().next_multiple_of(0x1000)),
        ("image_len", object.image_size()),
        ("lib_gpu_va", base),
        ("scratch_in_sgprs", u64::from(kernel.scratch_in_sgprs())),
    ];
    for (field, ours) in fields {
        let fact = if field == "scratch_in_sgprs" { "enable_private_segment_sgpr" } else { field };
        let recorded = number(&row[fact]);
        if recorded != Some(ours) {
            out.push(format!("{field} is {ours:#x}, recorded {}", row[fact]));
        }
    }
    if row["image_sha256"].as_str() != Some(&sha256(&image)) {
        out.push("the memory image differs".into());
    }
    let private: Option<Vec<u64>> =
        row["required_private"].as_array().map(|l| l.iter().filter_map(number).collect());
    if private != Some(vec![u64::from(d.private_segment_size)]) {
        out.push(format!("private memory {}, recorded {private:?}", d.private_segment_size));
    }
    Ok(out)
}

/// The deviation of scratch sizes: a wave's size that does not fit its field.
pub const WAVESIZE: &str = "COMPUTE_TMPRING_SIZE.WAVESIZE overflows: the reference writes the low bits, \
    this driver refuses (field width of gc_*_sh_mask.h)";

/// Width of `COMPUTE_TMPRING_SIZE.WAVESIZE` in the headers of a generation.
fn wavesize_bits(major: u64) -> u32 {
    match major {
        ..=10 => 13,
        11 => 15,
        _ => 18,
    }
}

/// Judges the bytes of a `scratch.json`.
pub fn judge_scratch(json: &[u8]) -> Result<Verdict, String> {
    let rows: Value = serde_json::from_slice(json).map_err(|e| format!("not JSON: {e}"))?;
    let mut verdict = Verdict::default();
    for row in rows.as_array().ok_or("not a list")? {
        let numbers = |v: &Value, key: &str| number(&v[key]).map(|n| n as u32);
        let p = &row["props"];
        let t: Vec<u64> = row["target"].as_array().into_iter().flatten().filter_map(number).collect();
        let [major, minor, stepping] = t[..] else { return Err("a row without target".into()) };
        let need = |key: &str| numbers(p, key).ok_or_else(|| format!("a row without {key}"));
        let props = Properties {
            target: Target::new(major as u8, minor as u8, stepping as u8),
            simd_count: need("simd_count")?,
            simd_per_cu: need("simd_per_cu")?,
            array_count: need("array_count")?,
            arrays_per_engine: need("simd_arrays_per_engine")?,
            max_scratch_slots_per_cu: need("max_slots_scratch_cu")?,
            max_waves_per_simd: need("max_waves_per_simd")?,
            lds_kib: LDS_KIB,
            xcc_count: numbers(p, "num_xcc").unwrap_or(1),
        };
        let required = number(&row["required"]).ok_or("a row without required")? as u32;
        let place = format!("{} with {required} bytes", row["device"].as_str().unwrap_or("?"));
        let mut out = Vec::new();
        let mut expect = |what: &str, ours: u64, key: &str| {
            if number(&row[key]) != Some(ours) {
                out.push(format!("{what} is {ours:#x}, recorded {}", row[key]));
            }
        };
        expect("last compute unit", u64::from(props.cus_per_xcc()) - 1, "max_cu_id");
        expect("last wave", u64::from(props.wave_ids()) - 1, "max_wave_id");
        let recorded = number(&row["tmpring_size"]).unwrap_or(0);
        match Scratch::for_kernel(&props, required) {
            Ok(s) => {
                expect("scratch memory", s.size, "scratch_alloc");
                expect("COMPUTE_TMPRING_SIZE", s.tmpring_size.into(), "tmpring_size");
            }
            Err(_) if recorded >> 12 >= 1 << wavesize_bits(major) => verdict.deviation(WAVESIZE, &place),
            Err(e) => out.push(format!("refused: {e}")),
        }
        verdict.row(&place, out);
    }
    Ok(verdict)
}
