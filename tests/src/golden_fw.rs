//! Judges firmware slicing against the reference's: `golden/fw.json` says, for each GPU and each of
//! two firmware packages, which ranges of which files the reference loads, in which order.

use std::fmt;
use std::path::{Path, PathBuf};

use amdev_core::firmware::{FirmwareSource, FwType, ImageId};
use amdev_fw::files::sha256_hex;
use amdev_fw::types::sos_component;
use amdev_fw::{FileKind, FirmwareSet, SearchPath, Source, Versions};
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};

/// How the slicing of one GPU's firmware compares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Comparison {
    /// The GPU.
    pub gpu: String,
    /// The package whose files these are.
    pub package: String,
    /// Files and images compared.
    pub compared: usize,
    /// What differs, one line each.
    pub differences: Vec<String>,
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Comparison { gpu, package, compared, differences } = self;
        write!(f, "{gpu}: package {package}, {compared} files and images, {} differ", differences.len())
    }
}

/// The expectations: GPU, package, contents.
fn expected() -> Result<Map<String, Value>> {
    parse(&crate::golden("fw.json").context("golden/fw.json")?)
}

fn parse(json: &[u8]) -> Result<Map<String, Value>> {
    match serde_json::from_slice(json)? {
        Value::Object(gpus) => Ok(gpus),
        _ => bail!("fw.json is not an object"),
    }
}

fn array<'v>(v: &'v Value, key: &str) -> &'v [Value] {
    v[key].as_array().map_or(&[], Vec::as_slice)
}

fn text<'v>(v: &'v Value, key: &str) -> &'v str {
    v[key].as_str().unwrap_or_default()
}

/// Compares the files in `dir` (or `dir/amdgpu`), for every GPU, with the package they are of.
/// Files of no known package are an error.
pub fn judge(dir: &Path) -> Result<Vec<Comparison>> {
    compare(&expected()?, dir)
}

/// As [`judge`], with the bytes of an `fw.json`.
///
/// # Errors
/// A list that is not of this format, files that are missing or of no package in the list.
pub fn judge_with(json: &[u8], dir: &Path) -> Result<Vec<Comparison>> {
    compare(&parse(json)?, dir)
}

fn compare(expected: &Map<String, Value>, dir: &Path) -> Result<Vec<Comparison>> {
    let path = SearchPath::only(&[dir]);
    expected.iter().map(|(gpu, packages)| judge_gpu(gpu, packages, &path)).collect()
}

fn judge_gpu(gpu: &str, packages: &Value, path: &SearchPath) -> Result<Comparison> {
    let set = open(gpu, path)?;
    let hashes = hashes(&set)?;
    let of_package = |contents: &Value| {
        array(contents, "files")
            .iter()
            .all(|f| hashes.iter().any(|h| h.0 == text(f, "file") && h.1 == text(f, "sha256")))
    };
    let known = packages.as_object().into_iter().flatten().find(|(_, contents)| of_package(contents));
    let Some((package, contents)) = known else {
        bail!("{gpu}: the files in {} are of no package that golden/fw.json knows", dirs(path));
    };
    let mut judge = Judge { set, compared: 0, differences: Vec::new() };
    judge.files(contents);
    judge.images(contents)?;
    Ok(Comparison {
        gpu: gpu.to_owned(),
        package: package.clone(),
        compared: judge.compared,
        differences: judge.differences,
    })
}

fn dirs(path: &SearchPath) -> String {
    path.dirs().iter().map(|d| d.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn open(gpu: &str, path: &SearchPath) -> Result<FirmwareSet<Source>> {
    let versions = Versions::by_name(gpu).with_context(|| format!("{gpu} is not supported"))?;
    Ok(FirmwareSet::from_dirs(versions, path)?)
}

/// Name and SHA-256 of every file of a set.
fn hashes(set: &FirmwareSet<Source>) -> Result<Vec<(String, String)>> {
    let of = |f: &amdev_fw::SetFile<Source>| -> Result<(String, String)> {
        Ok((f.name.to_string(), sha256_hex(&std::fs::read(f.source().path())?)))
    };
    set.files().iter().map(of).collect()
}

/// Compares what does not depend on the package's version: that every file parses, and the types
/// of the images in their order. For packages newer than the known ones.
pub fn judge_structure(dir: &Path) -> Result<Vec<Comparison>> {
    let path = SearchPath::only(&[dir]);
    let mut out = Vec::new();
    for (gpu, packages) in &expected()? {
        let set = open(gpu, &path)?;
        let newest = packages.as_object().and_then(|p| p.iter().max_by_key(|(name, _)| *name));
        let (_, contents) = newest.with_context(|| format!("{gpu} has no package in golden/fw.json"))?;
        let wanted: Vec<Vec<FwType>> = array(contents, "descs").iter().map(types).collect();
        let found: Vec<Vec<FwType>> =
            (0..).map_while(|i| set.ip_image(i).map(|image| image.types.to_vec())).collect();
        let differences =
            if wanted == found { vec![] } else { vec![format!("types {found:?}, expected {wanted:?}")] };
        out.push(Comparison {
            gpu: gpu.clone(),
            package: "unknown".to_owned(),
            compared: found.len(),
            differences,
        });
    }
    Ok(out)
}

fn types(desc: &Value) -> Vec<FwType> {
    array(desc, "fw_types").iter().filter_map(Value::as_u64).map(|n| FwType(n as u32)).collect()
}

struct Judge {
    set: FirmwareSet<Source>,
    compared: usize,
    differences: Vec<String>,
}

impl Judge {
    fn equal<T: PartialEq + fmt::Debug>(&mut self, what: &str, found: T, wanted: T) {
        if found != wanted {
            self.differences.push(format!("{what}: {found:?}, expected {wanted:?}"));
        }
    }

    fn files(&mut self, contents: &Value) {
        let names =
            |set: &FirmwareSet<Source>| set.files().iter().map(|f| f.name.to_string()).collect::<Vec<_>>();
        let wanted: Vec<String> =
            array(contents, "files").iter().map(|f| text(f, "file").to_owned()).collect();
        let found = names(&self.set);
        self.equal("files", found, wanted);
        let mut headers = Vec::new();
        for (file, wanted) in self.set.files().iter().zip(array(contents, "files")) {
            let h = &file.file.header;
            let fields = [
                ("size_bytes", h.size_bytes.get()),
                ("header_size_bytes", h.header_size_bytes.get()),
                ("header_version_major", h.header_version_major.get() as u32),
                ("header_version_minor", h.header_version_minor.get() as u32),
                ("ip_version_major", h.ip_version_major.get() as u32),
                ("ip_version_minor", h.ip_version_minor.get() as u32),
                ("ucode_version", h.ucode_version.get()),
                ("ucode_size_bytes", h.ucode_size_bytes.get()),
                ("ucode_array_offset_bytes", h.ucode_array_offset_bytes.get()),
                ("crc32", h.crc32.get()),
            ];
            for (field, found) in fields {
                let wanted = wanted["header"][field].as_u64();
                headers.push((format!("{} {field}", file.name), Some(found as u64), wanted));
            }
        }
        self.compared += self.set.files().len();
        for (what, found, wanted) in headers {
            self.equal(&what, found, wanted);
        }
    }

    fn images(&mut self, contents: &Value) -> Result<()> {
        let components = array(contents, "sos");
        for wanted in components {
            let number = wanted["psp_fw_type"].as_u64().unwrap_or(0) as u32;
            let component = sos_component(number).with_context(|| format!("component {number}"))?;
            let found = self.set.sos(component).map(|i| i.types.to_vec());
            self.image(ImageId::Sos(component), found, vec![], wanted)?;
        }
        let sos = self.set.files().iter().find(|f| f.file.kind == FileKind::Sos).map(|f| f.file.pieces.len());
        self.equal("number of SOS components", sos, Some(components.len()));

        let smu = self.set.smu().map(|i| i.types.to_vec());
        self.image(ImageId::Smu, smu, types(&contents["smu"]), &contents["smu"])?;
        let images = array(contents, "descs");
        for (index, wanted) in images.iter().enumerate() {
            let index = index as u8;
            let found = self.set.ip_image(index).map(|i| i.types.to_vec());
            self.image(ImageId::Ip(index), found, types(wanted), wanted)?;
        }
        let more = self.set.ip_image(images.len() as u8).map(|i| i.types.to_vec());
        self.equal("images after the last", more, None);

        let start = self.set.ucode_start();
        for (engine, found) in [("PFP", start.pfp), ("ME", start.me), ("MEC", start.mec)] {
            let wanted = contents["ucode_start"][engine].as_str();
            let wanted = wanted.map(|t| u64::from_str_radix(t.trim_start_matches("0x"), 16)).transpose()?;
            self.equal(&format!("start address of {engine}"), found, wanted);
        }
        Ok(())
    }

    fn image(
        &mut self,
        id: ImageId,
        types: Option<Vec<FwType>>,
        wanted_types: Vec<FwType>,
        wanted: &Value,
    ) -> Result<()> {
        self.compared += 1;
        let what = format!("{id:?}");
        self.equal(&format!("{what} types"), types, Some(wanted_types));
        let Some((file, piece)) = self.set.locate(id).map(|(f, p)| (f.to_owned(), p)) else { return Ok(()) };
        self.equal(&format!("{what} file"), file.as_str(), text(wanted, "file"));
        self.equal(&format!("{what} offset"), Some(piece.offset as u64), wanted["offset"].as_u64());
        self.equal(&format!("{what} size"), Some(piece.len as u64), wanted["size"].as_u64());
        let sha256 = sha256_hex(&read_image(&mut self.set, id, piece.len)?);
        self.equal(&format!("{what} sha256"), sha256.as_str(), text(wanted, "sha256"));
        Ok(())
    }
}

/// Reads an image as the PSP driver does: piece by piece.
pub fn read_image(source: &mut impl FirmwareSource, id: ImageId, len: u32) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    for (index, piece) in bytes.chunks_mut(4096).enumerate() {
        source.read(id, index as u32 * 4096, piece)?;
    }
    Ok(bytes)
}

/// Folders with unpacked firmware packages: what `AMDEV_FIRMWARE` names (separated by `:`), then
/// what `tests/fetch.sh firmware` has fetched, newest first. Each holds the files themselves.
pub fn firmware_dirs() -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> =
        std::env::var_os("AMDEV_FIRMWARE").iter().flat_map(std::env::split_paths).collect();
    let fetched = crate::root().join("../target/fetch/firmware");
    let mut packages: Vec<PathBuf> =
        std::fs::read_dir(fetched).into_iter().flatten().flatten().map(|e| e.path()).collect();
    packages.sort();
    dirs.extend(packages.into_iter().rev());
    dirs.into_iter()
        .map(|d| {
            let inner = d.join("amdgpu");
            if inner.is_dir() { inner } else { d }
        })
        .filter(|d| d.is_dir())
        .collect()
}
