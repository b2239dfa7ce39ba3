//! Writes core's register tables and the register database from the Linux headers.

use amdev_regs::list::Table;
use amdev_regs::{emit, headers, list, smu, versions};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const USAGE: &str = "usage: regs-gen --linux DIR [--check] [--notes]\n\n\
    DIR      an unpacked Linux 6.12, or its drivers/gpu/drm/amd\n\
    --check  write nothing; fail if what is checked in differs\n\
    --notes  print what is odd in the headers";

fn asic_reg(dir: &Path) -> Result<PathBuf, String> {
    ["drivers/gpu/drm/amd/include/asic_reg", "include/asic_reg"]
        .iter()
        .map(|d| dir.join(d))
        .find(|d| d.join("gc").is_dir())
        .ok_or_else(|| format!("{}: no drivers/gpu/drm/amd/include/asic_reg below it", dir.display()))
}

fn read(path: &Path) -> Result<String, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    String::from_utf8(bytes).map_err(|_| format!("{}: not text", path.display()))
}

/// What is checked in: written, or compared with what there is.
struct Output {
    check: bool,
    written: Vec<PathBuf>,
    different: Vec<PathBuf>,
}

impl Output {
    fn put(&mut self, path: PathBuf, text: &str, packed: bool) -> Result<(), String> {
        let old = std::fs::read(&path).ok();
        // Compressed files are compared unpacked: another version of the packer is no difference.
        let old = match (old, packed) {
            (Some(bytes), true) => {
                let mut text = String::new();
                flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).ok().map(|_| text)
            }
            (Some(bytes), false) => String::from_utf8(bytes).ok(),
            (None, _) => None,
        };
        if old.as_deref() != Some(text) {
            self.different.push(path.clone());
            if !self.check {
                let bytes = if packed { pack(text)? } else { text.as_bytes().to_vec() };
                if let Some(dir) = path.parent() {
                    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
                }
                std::fs::write(&path, bytes).map_err(|e| format!("{}: {e}", path.display()))?;
            }
        }
        self.written.push(path);
        Ok(())
    }

    /// Files of a folder that are no longer generated.
    fn stale(&self, dir: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|e| e.path()).filter(|p| p.is_file() && !self.written.contains(p)).collect()
    }
}

fn pack(text: &str) -> Result<Vec<u8>, String> {
    let mut encoder = flate2::GzBuilder::new().write(Vec::new(), flate2::Compression::best());
    encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish()).map_err(|e| e.to_string())
}

fn run() -> Result<(), String> {
    let (mut linux, mut check, mut notes) = (None, false, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--linux" => linux = args.next(),
            "--check" => check = true,
            "--notes" => notes = true,
            _ => return Err(USAGE.into()),
        }
    }
    let dir = asic_reg(Path::new(&linux.ok_or(USAGE)?))?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let core = here.join("../../core/src/reg");
    let versions_text: &'static str = read(&here.join("versions.txt"))?.leak();
    let versions = versions::parse(versions_text)?;

    let mut parsed: BTreeMap<&str, headers::Header> = BTreeMap::new();
    for spec in &versions.tables {
        if parsed.contains_key(spec.header) {
            continue;
        }
        let text = |suffix: &str| read(&dir.join(format!("{}_{suffix}.h", spec.header)));
        let mut header = headers::parse(&text("offset")?, &text("sh_mask")?);
        for x in versions.extras.iter().filter(|x| x.block == spec.block && x.version == spec.version) {
            if header.get(x.name).is_some() {
                return Err(format!("versions.txt: {} exists in {}", x.name, spec.header));
            }
            header.regs.push(headers::HeaderReg {
                name: x.name.into(),
                prefix: "reg".into(),
                segment: x.segment,
                offset: x.offset,
                fields: Vec::new(),
            });
            header.regs.sort_by(|a, b| a.name.cmp(&b.name));
        }
        if notes {
            header.notes.iter().for_each(|n| println!("{}: {n}", spec.header));
        }
        parsed.insert(spec.header, header);
    }
    let tables: Vec<Table<'_>> = versions
        .tables
        .iter()
        .filter_map(|spec| Some(Table { spec, header: parsed.get(spec.header)? }))
        .collect();
    let model = list::build(&read(&here.join("registers.txt"))?, &tables)?;

    let mut out = Output { check, written: Vec::new(), different: Vec::new() };
    out.put(core.join("ids.rs"), &emit::ids(&model, &tables), false)?;
    let swsmu = dir.join("../../pm/swsmu");
    out.put(core.join("smu/generated.rs"), &smu::emit(&|name| read(&swsmu.join(name)))?, false)?;
    let table_dir = core.join("tables/generated");
    out.put(core.join("tables/generated.rs"), &emit::table_list(&tables, &versions), false)?;
    for (t, table) in tables.iter().enumerate() {
        let path = table_dir.join(format!("{}.rs", emit::table_module(table)));
        out.put(path, &emit::table(&model, &tables, t), false)?;
    }
    let data = here.join("data");
    let mut files = Vec::new();
    for (header, contents) in &parsed {
        let Some(spec) = versions.tables.iter().find(|t| t.header == *header) else { continue };
        let name = spec.header_name();
        out.put(data.join(format!("{name}.gz")), &emit::data_text(contents), true)?;
        let prefix = contents.regs.first().map_or("reg", |r| r.prefix.as_str());
        files.push((name, prefix, spec.version));
    }
    files.sort_unstable();
    out.put(data.join("index.rs"), &emit::data_index(&files), false)?;

    let stale: Vec<PathBuf> = [&table_dir, &data].iter().flat_map(|d| out.stale(d)).collect();
    println!(
        "{} registers, {} fields in core; {} tables; {} registers in the database",
        model.entries.len(),
        model.fields.len(),
        tables.len(),
        parsed.values().map(|h| h.regs.len()).sum::<usize>()
    );
    for path in &out.different {
        println!("{} {}", if check { "differs:" } else { "wrote" }, path.display());
    }
    for path in &stale {
        println!("no longer generated: {}", path.display());
    }
    if check && !(out.different.is_empty() && stale.is_empty()) {
        return Err(
            "what is checked in differs from what the headers give; run regs-gen without --check".into()
        );
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            std::process::ExitCode::FAILURE
        }
    }
}
