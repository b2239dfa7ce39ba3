//! Judges the reading of code objects: against recorded facts (`corpus/facts`), and by what must be
//! refused (`corpus/malformed`).

use std::path::{Path, PathBuf};

use amdev_core::program::{CodeObject, Kernel};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::verdict::Verdict;

/// Hexadecimal SHA-256.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// The memory image of an object, relocated for `base` if one is given. Assembled as a loader does:
/// segment by segment, then the patches.
pub fn image(object: &CodeObject<'_>, base: Option<u64>) -> Result<Vec<u8>, String> {
    let mut image = vec![0u8; object.image_size() as usize];
    for s in object.segments() {
        let at = s.vaddr as usize;
        image[at..at + s.data.len()].copy_from_slice(s.data);
    }
    if let Some(base) = base {
        for patch in object.patches(base) {
            let patch = patch.map_err(|e| e.to_string())?;
            let (bytes, len) = patch.bytes();
            let at = patch.offset as usize;
            image[at..at + len].copy_from_slice(&bytes[..len]);
        }
    }
    Ok(image)
}

/// Everything this driver knows of an object, in the form of the facts; `relocated_at` is the load
/// address for the relocated image.
pub fn describe(name: &str, bytes: &[u8], relocated_at: Option<u64>) -> Result<Value, String> {
    let error = |e: amdev_core::program::ProgramError| e.to_string();
    let object = CodeObject::parse(bytes).map_err(error)?;
    let sections: Vec<_> = object
        .sections()
        .map(|s| {
            json!({"name": s.name, "type": s.kind, "flags": s.flags, "addr": s.addr, "offset": s.offset,
                   "size": s.size, "entsize": s.entsize})
        })
        .collect();
    let mut kernels = Vec::new();
    for kernel in object.kernels() {
        kernels.push(describe_kernel(&object, &kernel.map_err(error)?)?);
    }
    kernels.sort_by_key(|k| k["descriptor"]["vaddr"].as_u64());
    let plain = image(&object, None)?;
    let mut out = json!({"file": name, "size": bytes.len(), "sha256": sha256(bytes), "kernels": kernels});
    let Some(isa) = object.isa() else {
        // Hand-assembled: the header says nothing.
        out["format"] = json!("tinygrad-minimal-elf");
        out["sections"] = json!(sections);
        out["image_size"] = json!(object.image_size());
        out["image_sha256"] = json!(sha256(&plain));
        return Ok(out);
    };
    let header = object.header();
    let mut relocations = Vec::new();
    for r in object.relocations() {
        let r = r.map_err(error)?;
        relocations.push(json!({"section": r.section, "offset": r.offset, "type": r.kind,
            "type_name": r.kind_name(), "sym": r.symbol, "sym_value": r.symbol_value, "addend": r.addend}));
    }
    let mut notes = Vec::new();
    for n in object.notes() {
        let n = n.map_err(error)?;
        notes.push(json!({"name": n.name, "type": n.kind, "offset": n.offset, "descsz": n.data.len()}));
    }
    let segments: Vec<_> = object
        .segments()
        .map(|s| {
            json!({"offset": s.offset, "vaddr": s.vaddr, "filesz": s.data.len(), "memsz": s.size,
                   "flags": s.flags, "align": s.align})
        })
        .collect();
    let le = object::LittleEndian;
    out["elf"] = json!({
        "e_type": header.e_type.get(le).0, "e_machine": header.e_machine.get(le).0,
        "osabi": header.e_ident.os_abi.0, "abi_version": header.e_ident.abi_version,
        "code_object_version": object.version(), "e_flags": header.e_flags.get(le).0, "mach": isa.mach,
        "target": isa.name,
        "features": {"xnack": isa.xnack.to_string(), "sramecc": isa.sramecc.to_string()},
        "generic_version": isa.generic_version, "e_entry": header.e_entry.get(le),
        "load_segments": segments, "image_size": object.image_size(), "image_sha256": sha256(&plain),
        "sections": sections, "relocations": relocations, "notes": notes,
    });
    if let Some(base) = relocated_at {
        out["elf"]["relocated_at"] = json!(base);
        out["elf"]["image_sha256_relocated"] = json!(sha256(&image(&object, Some(base))?));
    }
    let first = object.sections().find(|s| s.name == ".rodata").map(|s| s.addr);
    let lowest = out["kernels"][0]["descriptor"]["vaddr"].as_u64();
    out["rodata_first_is_descriptor"] = json!(lowest.is_some() && first == lowest);
    let mut metadata = object.metadata();
    let text = |e: amdev_core::program::msgpack::MsgPackError| e.to_string();
    match metadata.next() {
        Some(m) => {
            let m = m.map_err(error)?;
            let version = m.version().map_err(text)?.map(|(a, b)| [a, b]);
            out["metadata_version"] = json!(version);
            out["metadata_target"] = json!(m.target().map_err(text)?);
            out["has_metadata_note"] = json!(true);
        }
        None => {
            out["metadata_version"] = Value::Null;
            out["metadata_target"] = Value::Null;
            out["has_metadata_note"] = json!(false);
        }
    }
    Ok(out)
}

fn file_offset(object: &CodeObject<'_>, vaddr: u64) -> Option<u64> {
    object.segments().find_map(|s| {
        let at = vaddr.checked_sub(s.vaddr)?;
        (at < s.data.len() as u64).then_some(s.offset + at)
    })
}

fn describe_kernel(object: &CodeObject<'_>, k: &Kernel<'_>) -> Result<Value, String> {
    let d = &k.descriptor;
    let user: Vec<_> = d.user_sgprs().map(|(what, first, n)| json!([what.name(), first, n])).collect();
    let mut out = json!({
        "descriptor": {"vaddr": k.descriptor_vaddr},
        "entry": {"vaddr": k.entry},
        "group_segment_size": d.group_segment_size, "private_segment_size": d.private_segment_size,
        "kernarg_size": d.kernarg_size, "kernel_code_entry_byte_offset": d.entry_offset,
        "compute_pgm_rsrc1": d.rsrc1, "compute_pgm_rsrc2": d.rsrc2, "compute_pgm_rsrc3": d.rsrc3,
        "kernel_code_properties": d.properties, "wavefront32": d.wave32(),
        "user_sgprs": user, "user_sgpr_count": d.user_sgpr_count(),
    });
    if k.name.is_empty() {
        return Ok(out);
    }
    out["name"] = json!(k.name);
    out["symbol"] = json!(format!("{}.kd", k.name));
    out["descriptor"] = json!({"vaddr": k.descriptor_vaddr,
        "file_offset": file_offset(object, k.descriptor_vaddr), "align64": k.descriptor_vaddr.is_multiple_of(64)});
    out["entry"] = json!({"vaddr": k.entry, "file_offset": file_offset(object, k.entry),
        "size": k.code_size, "align256": k.entry.is_multiple_of(256)});
    out["kernarg_preload"] = json!(d.kernarg_preload);
    out["uses_dynamic_stack"] = json!(d.uses_dynamic_stack());
    out["enable_private_segment"] = json!(d.scratch_enabled());
    out["workgroup_id"] = json!(d.workgroup_ids());
    out["workgroup_info"] = json!(d.workgroup_info());
    out["workitem_id"] = json!(d.workitem_id());
    out["lds_granulated_in_rsrc2"] = json!(d.lds_granules());
    out["float_mode"] = json!(d.float_mode());
    out["vgprs_allocated"] = json!(k.vgprs());
    if let Some(m) = &k.metadata {
        let mut args = Vec::new();
        for a in m.args() {
            let a = a.map_err(|e| e.to_string())?;
            let mut arg = json!({"offset": a.offset, "size": a.size, "value_kind": a.value_kind.name()});
            let texts = [
                ("name", a.name),
                ("type_name", a.type_name),
                ("address_space", a.address_space),
                ("access", a.access),
                ("actual_access", a.actual_access),
            ];
            for (key, text) in texts {
                if let Some(t) = text {
                    arg[key] = json!(t);
                }
            }
            let flags = [
                ("is_const", a.is_const),
                ("is_restrict", a.is_restrict),
                ("is_volatile", a.is_volatile),
                ("is_pipe", a.is_pipe),
            ];
            for (key, flag) in flags {
                if flag {
                    arg[key] = json!(true);
                }
            }
            if let Some(n) = a.pointee_align {
                arg["pointee_align"] = json!(n);
            }
            args.push(arg);
        }
        let mut meta = json!({"args": args});
        let numbers = [
            ("max_flat_workgroup_size", m.max_flat_workgroup_size),
            ("sgpr_count", m.sgpr_count),
            ("vgpr_count", m.vgpr_count),
            ("agpr_count", m.agpr_count),
            ("sgpr_spill_count", m.sgpr_spill_count),
            ("vgpr_spill_count", m.vgpr_spill_count),
            ("wavefront_size", m.wavefront_size),
            ("kernarg_segment_size", m.kernarg_segment_size),
            ("kernarg_segment_align", m.kernarg_segment_align),
            ("group_segment_fixed_size", m.group_segment_fixed_size),
            ("private_segment_fixed_size", m.private_segment_fixed_size),
            ("uniform_work_group_size", m.uniform_work_group_size),
            ("workgroup_processor_mode", m.workgroup_processor_mode),
        ];
        for (key, n) in numbers {
            if let Some(n) = n {
                meta[key] = json!(n);
            }
        }
        if let Some(b) = m.uses_dynamic_stack {
            meta["uses_dynamic_stack"] = json!(b);
        }
        if let Some(s) = m.reqd_workgroup_size {
            meta["reqd_workgroup_size"] = json!(s);
        }
        if let Some(s) = m.language {
            meta["language"] = json!(s);
        }
        out["metadata"] = meta;
    }
    Ok(out)
}

/// Keys of facts that say where an object comes from, not what is in it; and symbol type and size of
/// descriptors and the alignment of sections, which no loader needs.
const UNCHECKED: [&str; 7] = ["source", "variant", "origin", "note", "sym_type", "sym_size", "addralign"];

/// Compares recursively; every fact must be found with the same value.
fn compare(path: &str, fact: &Value, ours: &Value, out: &mut Vec<String>) {
    match (fact, ours) {
        (Value::Object(f), Value::Object(o)) => {
            for (key, value) in f {
                if UNCHECKED.contains(&key.as_str()) {
                    continue;
                }
                match o.get(key) {
                    Some(ours) => compare(&format!("{path}.{key}"), value, ours, out),
                    None => out.push(format!("{path}.{key}: fact {value} is not known")),
                }
            }
            for key in o.keys() {
                let optional = key == "entsize" || key.starts_with("image_sha256_relocated");
                if !f.contains_key(key) && !optional {
                    out.push(format!("{path}.{key}: {} is not in the facts", o[key]));
                }
            }
        }
        (Value::Array(f), Value::Array(o)) if f.len() == o.len() => {
            for (i, (f, o)) in f.iter().zip(o).enumerate() {
                compare(&format!("{path}[{i}]"), f, o, out);
            }
        }
        // Metadata writes some truth values as numbers.
        (Value::Bool(b), Value::Number(n)) | (Value::Number(n), Value::Bool(b))
            if n.as_u64() == Some(u64::from(*b)) => {}
        (f, o) if f == o => {}
        (f, o) => out.push(format!("{path}: fact {f}, read {o}")),
    }
}

/// Finds an object in one of the folders, plain or compressed.
fn find(dirs: &[PathBuf], file: &str) -> Option<Vec<u8>> {
    dirs.iter().find_map(|d| crate::read(d.join(file)).ok())
}

/// Judges `facts` (the bytes of a JSON file) on the objects in `dirs`. Objects that are in none of
/// them are counted as missing and reported in the second value.
pub fn judge(facts: &[u8], dirs: &[PathBuf]) -> Result<(Verdict, Vec<String>), String> {
    let facts: Value = serde_json::from_slice(facts).map_err(|e| format!("the facts are not JSON: {e}"))?;
    let records = facts.as_array().ok_or("the facts are not a list")?;
    let mut verdict = Verdict::default();
    let mut missing = Vec::new();
    for record in records {
        let file = record["file"].as_str().ok_or("a record has no file")?;
        let Some(bytes) = find(dirs, file) else {
            missing.push(file.to_owned());
            continue;
        };
        let mut differences = Vec::new();
        match describe(file, &bytes, record["elf"]["relocated_at"].as_u64()) {
            Ok(ours) => compare("", record, &ours, &mut differences),
            Err(e) => differences.push(format!("rejected: {e}")),
        }
        if differences.is_empty() {
            differences.extend(by_name(record, &bytes));
        }
        verdict.row(file, differences);
    }
    Ok((verdict, missing))
}

/// Every kernel is found by its name, at the address of the facts.
fn by_name(record: &Value, bytes: &[u8]) -> Vec<String> {
    let Ok(object) = CodeObject::parse(bytes) else { return vec!["rejected".into()] };
    let mut out = Vec::new();
    for fact in record["kernels"].as_array().into_iter().flatten() {
        let Some(name) = fact["name"].as_str() else { continue };
        match object.kernel(name) {
            Ok(k) if Some(k.descriptor_vaddr) == fact["descriptor"]["vaddr"].as_u64() => {}
            Ok(k) => out.push(format!("{name} is found at {:#x}", k.descriptor_vaddr)),
            Err(e) => out.push(format!("{name}: {e}")),
        }
    }
    out
}

/// What `expected.json` says of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    /// An error.
    Reject,
    /// An error, or the same as the unbroken object.
    RejectOrEqual,
}

/// The longest that rejecting may take.
pub const REJECT_TIME: std::time::Duration = std::time::Duration::from_millis(10);

/// Judges one broken object; `unbroken` is what it was made from, where it may be equal.
pub fn judge_reject(name: &str, bytes: &[u8], expect: Expect, unbroken: Option<&[u8]>) -> Vec<String> {
    let mut out = Vec::new();
    let started = std::time::Instant::now();
    let parsed = std::panic::catch_unwind(|| CodeObject::parse(bytes).map(drop));
    let mut took = started.elapsed();
    if took > REJECT_TIME {
        // Once more, since another program may have had the processor.
        let started = std::time::Instant::now();
        let _ = std::panic::catch_unwind(|| CodeObject::parse(bytes).map(drop));
        took = took.min(started.elapsed());
    }
    if took > REJECT_TIME {
        out.push(format!("took {took:?}, at most {REJECT_TIME:?} is allowed"));
    }
    match (parsed, expect) {
        (Err(_), _) => out.push("panicked".into()),
        (Ok(Err(e)), _) => {
            let text = e.to_string();
            if text.is_empty() || text.contains('\n') {
                out.push(format!("the error is not one line: {text:?}"));
            }
        }
        (Ok(Ok(())), Expect::Reject) => out.push("accepted, but must be rejected".into()),
        (Ok(Ok(())), Expect::RejectOrEqual) => {
            let Some(unbroken) = unbroken else {
                return vec![format!("{name} was accepted and what it was made from is not known")];
            };
            out.extend(differs(bytes, unbroken));
        }
    }
    out
}

/// The load address of relocated images in the facts.
const BASE: u64 = 0x7f12_0000_0000;

/// Differences in what is loaded: image, relocated image, kernels. The ELF header itself, which may be
/// part of the first segment and which nothing reads there, is what was broken.
fn differs(broken: &[u8], unbroken: &[u8]) -> Option<String> {
    let load = |bytes: &[u8]| -> Result<(Value, Vec<u8>), String> {
        let mut facts = describe("", bytes, None)?;
        for key in ["sha256", "size", "rodata_first_is_descriptor"] {
            facts[key] = Value::Null;
        }
        for key in ["sections", "e_flags", "image_sha256"] {
            facts["elf"][key] = Value::Null;
        }
        let object = CodeObject::parse(bytes).map_err(|e| e.to_string())?;
        let mut image = image(&object, Some(BASE))?;
        for segment in object.segments().filter(|s| s.offset == 0) {
            let at = segment.vaddr as usize;
            image[at..at + segment.data.len().min(64)].fill(0);
        }
        Ok((facts, image))
    };
    match (load(broken), load(unbroken)) {
        (Ok(a), Ok(b)) if a == b => None,
        (Ok(a), Ok(b)) => {
            let mut out = Vec::new();
            compare("", &b.0, &a.0, &mut out);
            let images = if a.1 == b.1 { "equal" } else { "different" };
            Some(format!("is loaded differently from the unbroken object: {out:?}, {images} images"))
        }
        (Err(e), _) | (_, Err(e)) => Some(e),
    }
}

/// Judges all files of a folder by the `expected.json` in it, or one file: by the list beside it, and
/// as to be rejected without one. `objects` holds what broken objects were made from.
pub fn judge_reject_path(path: &Path, objects: &[PathBuf]) -> Result<Verdict, String> {
    let dir = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
    let expected: Value = match crate::read(dir.join("expected.json")) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| format!("expected.json: {e}"))?,
        Err(_) => json!([]),
    };
    let expected = expected.as_array().cloned().unwrap_or_default();
    let files: Vec<PathBuf> = if path.is_dir() {
        let named: Vec<_> = expected.iter().filter_map(|e| Some(dir.join(e["file"].as_str()?))).collect();
        if named.is_empty() {
            let mut all: Vec<_> = std::fs::read_dir(dir)
                .map_err(|e| format!("{}: {e}", dir.display()))?
                .filter_map(|e| Some(e.ok()?.path()))
                .filter(|p| p.is_file())
                .collect();
            all.sort();
            all
        } else {
            named
        }
    } else {
        vec![path.to_owned()]
    };
    let mut verdict = Verdict::default();
    for file in files {
        let name = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        let bytes = crate::read(&file).map_err(|e| e.to_string())?;
        let entry = expected.iter().find(|e| e["file"] == plain);
        let expect = match entry.and_then(|e| e["expect"].as_str()) {
            Some("reject_or_equal") => Expect::RejectOrEqual,
            Some("must_reject") | None => Expect::Reject,
            Some(other) => return Err(format!("{plain}: expectation {other} is not known")),
        };
        // The three objects that all broken ones were made from.
        const MADE_FROM: [&str; 3] =
            ["vecadd.gfx1100.v5.O2.co", "reduce_lds.gfx1201.v5.O2.co", "globals.gfx1100.v5.O2.co"];
        let sources: Vec<_> = MADE_FROM.iter().filter_map(|f| find(objects, f)).collect();
        let mut differences = judge_reject(&name, &bytes, expect, None);
        if expect == Expect::RejectOrEqual && !differences.is_empty() {
            let equal = sources.iter().any(|s| judge_reject(&name, &bytes, expect, Some(s)).is_empty());
            if equal {
                differences.clear();
            }
        }
        verdict.row(&name, differences);
    }
    Ok(verdict)
}
