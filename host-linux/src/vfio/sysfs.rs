//! PCI functions as sysfs shows them.

use crate::safety::Roots;
use amdev_cli::spec::PciAddress;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// AMD's vendor id.
pub(super) const AMD: u16 = 0x1002;
/// Base classes of GPUs: display controllers, and processing accelerators without displays.
pub(super) const DISPLAY: u8 = 0x03;
pub(super) const ACCELERATOR: u8 = 0x12;
/// Name of the groups that VFIO makes up where there is no IOMMU.
const NO_IOMMU: &str = "vfio-noiommu";

/// Files below a root: `/`, or what a test has made.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
}

impl Default for Sysfs {
    fn default() -> Self {
        Sysfs::at("/")
    }
}

/// A group of functions that the IOMMU cannot tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its number.
    pub number: u32,
    /// There is no IOMMU: the device reaches all of memory.
    pub no_iommu: bool,
}

impl Group {
    /// The file that stands for the group, below the root.
    pub fn node(&self) -> String {
        let prefix = if self.no_iommu { "noiommu-" } else { "" };
        format!("dev/vfio/{prefix}{}", self.number)
    }
}

/// A PCI function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Where it is.
    pub address: PciAddress,
    /// Who made it.
    pub vendor: u16,
    /// The maker's number.
    pub device: u16,
    /// Its revision.
    pub revision: u8,
    /// Base class, subclass and programming interface.
    pub class: u32,
    /// The driver bound to it.
    pub driver: Option<String>,
    /// Its IOMMU group.
    pub group: Option<Group>,
}

impl Function {
    /// Whether it is a GPU of AMD's with a display engine, as all that amdev boots are.
    pub fn is_gpu(&self) -> bool {
        self.vendor == AMD && (self.class >> 16) as u8 == DISPLAY
    }

    /// Whether it is one of AMD's accelerators, which the kernel's driver serves.
    pub fn is_accelerator(&self) -> bool {
        self.vendor == AMD && (self.class >> 16) as u8 == ACCELERATOR
    }
}

impl Sysfs {
    /// Files below `root` instead of `/`.
    pub fn at(root: impl Into<PathBuf>) -> Sysfs {
        Sysfs { root: root.into() }
    }

    /// A path below the root.
    pub fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.root.join(below)
    }

    /// Where the use of devices is read.
    pub fn roots(&self) -> Roots {
        Roots { sys: self.path("sys"), proc: self.path("proc") }
    }

    /// The folder of a function.
    pub fn dir(&self, address: PciAddress) -> PathBuf {
        self.path("sys/bus/pci/devices").join(address.to_string())
    }

    /// All PCI functions, in the order of their addresses.
    pub fn functions(&self) -> Vec<Function> {
        let names = fs::read_dir(self.path("sys/bus/pci/devices")).into_iter().flatten().flatten();
        let addresses = names.filter_map(|e| e.file_name().to_str()?.parse().ok());
        // One that goes away meanwhile is none.
        let mut found: Vec<Function> = addresses.filter_map(|a| self.function(a).ok()).collect();
        found.sort_by_key(|f| f.address.to_string());
        found
    }

    /// A function.
    pub fn function(&self, address: PciAddress) -> io::Result<Function> {
        let dir = self.dir(address);
        let class = number(&dir.join("class"))?;
        Ok(Function {
            address,
            vendor: number(&dir.join("vendor"))? as u16,
            device: number(&dir.join("device"))? as u16,
            // Linux before 4.10 has no such file.
            revision: number(&dir.join("revision")).unwrap_or(0) as u8,
            class: class as u32,
            driver: link_name(&dir.join("driver")),
            group: link_name(&dir.join("iommu_group")).and_then(|n| {
                let name = fs::read_to_string(dir.join("iommu_group/name")).unwrap_or_default();
                Some(Group { number: n.parse().ok()?, no_iommu: name.trim() == NO_IOMMU })
            }),
        })
    }

    /// The only driver that may have a function; empty if any may.
    pub(super) fn driver_override(&self, address: PciAddress) -> String {
        let text = fs::read_to_string(self.dir(address).join("driver_override")).unwrap_or_default();
        // So the kernel writes none.
        text.trim().trim_start_matches("(null)").to_owned()
    }

    /// The other functions of a group.
    pub fn companions(&self, of: &Function) -> Vec<Function> {
        let same = |f: &Function| f.address != of.address && of.group.is_some() && f.group == of.group;
        self.functions().into_iter().filter(same).collect()
    }

    /// Whether VFIO hands out devices that no IOMMU watches.
    pub fn no_iommu_allowed(&self) -> bool {
        let text = fs::read_to_string(self.path("sys/module/vfio/parameters/enable_unsafe_noiommu_mode"));
        text.is_ok_and(|t| matches!(t.trim(), "Y" | "1"))
    }

    /// Length of a window in bytes; 0 if it has none or no address.
    pub fn bar_len(&self, address: PciAddress, bar: usize) -> u64 {
        let text = fs::read_to_string(self.dir(address).join("resource")).unwrap_or_default();
        let field = |word: Option<&str>| u64::from_str_radix(word?.trim_start_matches("0x"), 16).ok();
        let line = text.lines().nth(bar).unwrap_or_default();
        let mut words = line.split_whitespace();
        match (field(words.next()), field(words.next())) {
            (Some(start), Some(end)) if start > 0 && end > start => end - start + 1,
            _ => 0,
        }
    }

    /// The power of two of the largest size in MiB that BAR0 can be given; `None` where the kernel
    /// or the device knows only one.
    pub fn largest_bar0(&self, address: PciAddress) -> Option<u32> {
        let text = fs::read_to_string(self.dir(address).join("resource0_resize")).ok()?;
        u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()?.checked_ilog2()
    }
}

/// A number with or without `0x`, as sysfs writes them: hexadecimal.
fn number(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    let digits = text.trim().trim_start_matches("0x");
    u64::from_str_radix(digits, 16).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: '{digits}' is no number", path.display()))
    })
}

/// Last part of where a link points.
fn link_name(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_str()?.to_owned())
}
