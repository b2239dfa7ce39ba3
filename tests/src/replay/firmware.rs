//! Firmware for a replay: the real images where the pinned package is there, images of the
//! recorded lengths otherwise.

use amdev_core::firmware::{FirmwareError, FirmwareSource, FwType, Image, ImageId, SosComponent, UcodeStart};
use amdev_fw::{FirmwareSet, Memory, Versions};
use anyhow::Context;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::Path;

/// The images of one device in one package, as `fw.json` lists them.
#[derive(Clone, Debug)]
pub struct Stock {
    sos: Vec<(SosComponent, u32)>,
    smu: u32,
    ip: Vec<(Vec<FwType>, u32)>,
    start: UcodeStart,
    files: Vec<(String, String)>,
}

const COMPONENTS: [SosComponent; 11] = [
    SosComponent::Sos,
    SosComponent::SysDrv,
    SosComponent::Kdb,
    SosComponent::Toc,
    SosComponent::Spl,
    SosComponent::Rl,
    SosComponent::SocDrv,
    SosComponent::IntfDrv,
    SosComponent::DbgDrv,
    SosComponent::RasDrv,
    SosComponent::IpKeyMgrDrv,
];

fn number(value: &Value) -> u64 {
    match value {
        Value::String(s) => u64::from_str_radix(s.trim_start_matches("0x"), 16).unwrap_or(0),
        other => other.as_u64().unwrap_or(0),
    }
}

impl Stock {
    /// The list of a device (`navi31`) and package (`2026` or `2025`).
    pub fn load(device: &str, package: &str) -> anyhow::Result<Self> {
        Self::from_list(&serde_json::from_slice(&crate::golden("fw.json")?)?, device, package)
    }

    /// As [`Stock::load`], from the contents of an `fw.json`.
    ///
    /// # Errors
    /// A list without the device or package.
    pub fn from_list(all: &Value, device: &str, package: &str) -> anyhow::Result<Self> {
        let fw = &all[device][package];
        anyhow::ensure!(fw.is_object(), "fw.json has no package {package} of {device}");
        let list = |key: &str| fw[key].as_array().cloned().unwrap_or_default();
        let sos = list("sos")
            .iter()
            .filter_map(|s| {
                let ty = number(&s["psp_fw_type"]) as usize;
                Some((*COMPONENTS.get(ty.checked_sub(1)?)?, number(&s["size"]) as u32))
            })
            .collect();
        let ip = list("descs")
            .iter()
            .map(|d| {
                let types = d["fw_types"].as_array().cloned().unwrap_or_default();
                (types.iter().map(|t| FwType(number(t) as u32)).collect(), number(&d["size"]) as u32)
            })
            .collect();
        let start = |name: &str| fw["ucode_start"].get(name).map(number);
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        Ok(Stock {
            sos,
            smu: number(&fw["smu"]["size"]) as u32,
            ip,
            start: UcodeStart { pfp: start("PFP"), me: start("ME"), mec: start("MEC") },
            files: list("files").iter().map(|f| (text(&f["file"]), text(&f["sha256"]))).collect(),
        })
    }

    /// Opens the real files in `dir` if they are exactly those of this list.
    fn open(&self, device: &str, dir: &Path) -> anyhow::Result<FirmwareSet<Memory<Vec<u8>>>> {
        let versions = Versions::by_name(device).context("unknown device")?;
        let set = FirmwareSet::open(versions, |_, name| -> Result<_, String> {
            let bytes = std::fs::read(dir.join(name)).map_err(|e| format!("{name}: {e}"))?;
            let sha: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
            match self.files.iter().find(|(file, _)| file == name) {
                Some((_, pinned)) if *pinned == sha => Ok(Memory::new(bytes)),
                _ => Err(format!("{name} is not the pinned version")),
            }
        });
        set.map_err(|e| anyhow::anyhow!("{e}"))
    }
}

/// Where a replay's images come from.
#[derive(Debug)]
pub enum Source {
    /// The pinned package itself.
    Real(Box<FirmwareSet<Memory<Vec<u8>>>>),
    /// Images of the recorded lengths, filled with a pattern.
    StandIn(Stock),
}

impl Source {
    /// The real package if one of `dirs` has it, a stand-in otherwise.
    pub fn find(device: &str, stock: Stock, dirs: &[std::path::PathBuf]) -> Self {
        match dirs.iter().find_map(|dir| stock.open(device, dir).ok()) {
            Some(set) => Source::Real(Box::new(set)),
            None => Source::StandIn(stock),
        }
    }

    /// Whether this is the real package.
    pub fn is_real(&self) -> bool {
        matches!(self, Source::Real(_))
    }
}

/// A byte of a stand-in image: different for each image and along it.
fn pattern(id: ImageId, offset: u32) -> u8 {
    let seed = match id {
        ImageId::Sos(component) => component as u32,
        ImageId::Smu => 64,
        ImageId::Ip(index) => 128 + u32::from(index),
    };
    let x = (offset / 4).wrapping_mul(0x9e37_79b1) ^ seed.wrapping_mul(0x85eb_ca6b);
    (x >> 24) as u8 ^ offset as u8
}

impl FirmwareSource for Source {
    fn sos(&self, component: SosComponent) -> Option<Image<'_>> {
        match self {
            Source::Real(set) => set.sos(component),
            Source::StandIn(stock) => {
                let (_, len) = stock.sos.iter().find(|(c, _)| *c == component)?;
                Some(Image { id: ImageId::Sos(component), len: *len, types: &[] })
            }
        }
    }

    fn smu(&self) -> Option<Image<'_>> {
        match self {
            Source::Real(set) => set.smu(),
            Source::StandIn(stock) => Some(Image { id: ImageId::Smu, len: stock.smu, types: &[FwType(18)] }),
        }
    }

    fn ip_image(&self, index: u8) -> Option<Image<'_>> {
        match self {
            Source::Real(set) => set.ip_image(index),
            Source::StandIn(stock) => {
                let (types, len) = stock.ip.get(usize::from(index))?;
                Some(Image { id: ImageId::Ip(index), len: *len, types })
            }
        }
    }

    fn ucode_start(&self) -> UcodeStart {
        match self {
            Source::Real(set) => set.ucode_start(),
            Source::StandIn(stock) => stock.start,
        }
    }

    fn read(&mut self, id: ImageId, offset: u32, buf: &mut [u8]) -> Result<(), FirmwareError> {
        match self {
            Source::Real(set) => set.read(id, offset, buf),
            Source::StandIn(_) => {
                for (byte, at) in buf.iter_mut().zip(offset..) {
                    *byte = pattern(id, at);
                }
                Ok(())
            }
        }
    }
}

/// Whether `bytes` are the whole of a stand-in image.
pub(super) fn is_stand_in(id: ImageId, bytes: &[u8]) -> bool {
    bytes.iter().zip(0..).all(|(byte, at)| *byte == pattern(id, at))
}
