//! Which files a device needs.

use core::fmt::Write;

use amdev_core::discovery::{DiscoveryError, IpList, Version};
use amdev_core::reg::Block;
use heapless::Vec;

use crate::error::FileName;
use crate::parse::FileKind;

/// What decides which firmware a device needs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Versions {
    /// Graphics core.
    pub gc: Version,
    /// PSP.
    pub mp0: Version,
    /// SMU.
    pub mp1: Version,
    /// SDMA.
    pub sdma: Version,
    /// Whether the board needs the kicker variants: see [`is_kicker`].
    pub kicker: bool,
}

impl Versions {
    /// From the discovery table and the PCI device id and revision.
    pub fn of(ips: &IpList, pci_device: u16, pci_revision: u8) -> Result<Self, DiscoveryError> {
        Ok(Versions {
            gc: ips.require(Block::Gc)?,
            mp0: ips.require(Block::Mp0)?,
            mp1: ips.require(Block::Mp1)?,
            sdma: ips.require(Block::Sdma)?,
            kicker: is_kicker(pci_device, pci_revision),
        })
    }

    /// By the name of a supported GPU: navi31, navi32, navi33, navi44, navi48.
    pub fn by_name(name: &str) -> Option<Self> {
        let (gc, mp, sdma) = match name {
            "navi31" => ((11, 0, 0), (13, 0, 0), (6, 0, 0)),
            "navi32" => ((11, 0, 3), (13, 0, 10), (6, 0, 3)),
            "navi33" => ((11, 0, 2), (13, 0, 7), (6, 0, 2)),
            "navi44" => ((12, 0, 0), (14, 0, 2), (7, 0, 0)),
            "navi48" => ((12, 0, 1), (14, 0, 3), (7, 0, 1)),
            _ => return None,
        };
        Some(Versions { gc, mp0: mp, mp1: mp, sdma, kicker: false })
    }

    /// The files whose images are loaded, in the order in which they are needed.
    pub fn files(&self) -> Vec<FileKind, 8> {
        let mut files = Vec::new();
        let cp: &[FileKind] = if self.gc >= (12, 0, 0) {
            &[FileKind::Pfp, FileKind::Me, FileKind::Mec]
        } else {
            &[FileKind::Mec]
        };
        let all = [FileKind::Sos, FileKind::Smu, FileKind::Sdma]
            .iter()
            .chain(cp)
            .chain(&[FileKind::Imu, FileKind::Rlc]);
        for kind in all {
            // At most eight.
            let _ = files.push(*kind);
        }
        files
    }

    /// Name of a file as linux-firmware has it below `amdgpu/`.
    pub fn file_name(&self, kind: FileKind) -> FileName {
        let ((a, b, c), prefix, suffix) = match kind {
            FileKind::Sos => (self.mp0, "psp", "_sos"),
            FileKind::Toc => (self.mp0, "psp", "_toc"),
            FileKind::Smu => (self.mp1, "smu", ""),
            FileKind::Sdma => (self.sdma, "sdma", ""),
            FileKind::Pfp => (self.gc, "gc", "_pfp"),
            FileKind::Me => (self.gc, "gc", "_me"),
            FileKind::Mec => (self.gc, "gc", "_mec"),
            FileKind::Imu => (self.gc, "gc", "_imu"),
            FileKind::Rlc => (self.gc, "gc", "_rlc"),
        };
        let has_kicker = matches!(kind, FileKind::Sos | FileKind::Smu | FileKind::Imu | FileKind::Rlc);
        let kicker = if self.kicker && has_kicker { "_kicker" } else { "" };
        let mut name = FileName::new();
        // The longest is 35 characters, the name holds 48.
        let _ = write!(name, "{prefix}_{a}_{b}_{c}{suffix}{kicker}.bin");
        name
    }
}

/// Whether a board takes the kicker variants of SOS, SMU, IMU and RLC (`kicker_device_list` of
/// `amdgpu_ucode.c`).
pub const fn is_kicker(pci_device: u16, pci_revision: u8) -> bool {
    matches!((pci_device, pci_revision), (0x744b, 0x00) | (0x7551, 0xc8))
}
