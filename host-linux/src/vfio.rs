//! `--device pci:DDDD:BB:DD.F`: a GPU on this machine's PCI bus, through VFIO's groups.
//!
//! The function is taken from its driver, if it has one, and given back when the process ends, in
//! whatever way. VFIO's reset at opening is switched off: it would undo what the machine's firmware
//! did to the GPU at power-on. At closing VFIO resets the bus of a function that is alone on it, whatever
//! user space does: the next boot of such a GPU is a cold one.

mod amdgpu;
mod bus;
mod claim;
mod device;
mod dma;
#[cfg(test)]
mod fake;
mod guard;
mod hot_reset;
mod ioctl;
mod physical;
mod plan;
mod record;
mod sysfs;

pub use amdgpu::AmdgpuError;
pub use bus::VfioBus;
pub use sysfs::{Function, Group, Sysfs};

use crate::owner::{Key, Owner, OwnerError};
use crate::safety::Refusal;
use amdev_cli::beside;
use amdev_cli::bus_session::BusSession;
use amdev_cli::error::CliError;
use amdev_cli::guard::Guarded;
use amdev_cli::session::{Backend, Found, OpenOptions, Sample, Session};
use amdev_cli::spec::{DeviceSpec, PciAddress};
use std::io;

/// Why a function cannot be taken from its driver, or not be given back.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// The kernel lacks the driver.
    #[error("the driver vfio-pci is not loaded; run `sudo modprobe vfio-pci`")]
    NoVfioPci,
    /// The kernel is too old to open it without a reset.
    #[error(
        "this kernel resets the GPU when it opens it, which the GPU does not survive; use Linux 5.15 or later"
    )]
    ResetsOnOpen,
    /// Another device would come along.
    #[error(
        "{address} ({driver}) is in the same IOMMU group; put the GPU into another slot, or stop what uses \
             that device and run `echo {address} | sudo tee /sys/bus/pci/devices/{address}/driver/unbind`"
    )]
    Companion {
        /// The other device.
        address: PciAddress,
        /// Its driver.
        driver: String,
    },
    /// A file of sysfs cannot be written.
    #[error(
        "writing '{value}' to {path}: {why}; run this as root, or run `echo '{value}' | sudo tee {path}`"
    )]
    Write {
        /// The file.
        path: String,
        /// What was to be written.
        value: String,
        /// Why not.
        why: io::Error,
    },
    /// The driver refuses the function.
    #[error("vfio-pci did not take the device (its driver: {driver}); `sudo dmesg | tail` says why")]
    NotBound {
        /// What has it instead.
        driver: String,
    },
    /// Some of it stays as it is.
    #[error(
        "not everything was given back: {}; mend that, then run `sudo amdev --device pci:{address} release`",
        failures.join("; ")
    )]
    NotGivenBack {
        /// The function.
        address: PciAddress,
        /// What could not be written, and why.
        failures: Vec<String>,
    },
    /// It is not there any more.
    #[error("the device went away")]
    Vanished,
}

/// Why a device cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such function.
    #[error("there is no such PCI device; `lspci -d 1002:` lists AMD's")]
    NoSuchDevice,
    /// It is something else.
    #[error("{0}")]
    Device(String),
    /// Another process has it.
    #[error(transparent)]
    Owned(#[from] OwnerError),
    /// It should be left to who uses it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It cannot be taken.
    #[error(transparent)]
    Take(#[from] TakeError),
    /// The machine has no IOMMU in use.
    #[error(
        "it has no IOMMU group; switch the IOMMU on in the machine's firmware setup, and on the kernel's command \
         line with `intel_iommu=on` or `amd_iommu=on`"
    )]
    NoIommu,
    /// The machine has no IOMMU in use, and moves memory.
    #[error(
        "without an IOMMU the GPU would go on reaching places that the kernel has moved memory from; run \
         `sudo sysctl vm.compact_unevictable_allowed=0`"
    )]
    MovesMemory,
    /// The kernel lacks what is needed of VFIO.
    #[error("VFIO has no support for this machine's IOMMU; run `sudo modprobe vfio_iommu_type1`")]
    NoType1,
    /// Other devices of its group are in use.
    #[error("IOMMU group {group} is in use by others: {others}; unbind their drivers")]
    NotViable {
        /// The group.
        group: u32,
        /// Other functions and their drivers.
        others: String,
    },
    /// A file below `/dev/vfio` cannot be opened.
    #[error("/{node}: {why}; {remedy}")]
    Node {
        /// The file.
        node: String,
        /// Why not.
        why: io::Error,
        /// What mends it.
        remedy: String,
    },
    /// The kernel refused something.
    #[error("{what}: {why}")]
    Os {
        /// What was asked for.
        what: &'static str,
        /// Why not.
        why: io::Error,
    },
}

impl OpenError {
    fn node(node: &str, why: io::Error) -> OpenError {
        let remedy = match why.kind() {
            io::ErrorKind::NotFound => "run `sudo modprobe vfio-pci`".into(),
            io::ErrorKind::PermissionDenied => format!("run this as root, or run `sudo chown $USER /{node}`"),
            io::ErrorKind::ResourceBusy => {
                format!("another process has the device; `sudo fuser -v /{node}` says which")
            }
            _ => format!("`ls -l /{node}` may tell more"),
        };
        OpenError::Node { node: node.into(), why, remedy }
    }
}

/// GPUs on the PCI bus.
#[derive(Debug, Default)]
pub struct PciBackend {
    /// Where sysfs and `/dev` are.
    pub sysfs: Sysfs,
}

impl PciBackend {
    /// Opens a function; `force` takes it although it drives a screen or programs use it. From another
    /// owner it is never taken.
    pub fn open_bus(&self, address: PciAddress, force: bool) -> Result<VfioBus, OpenError> {
        let function = self.function(address)?;
        let owner = Owner::of(&Key::pci(&address.to_string()))?;
        if !force {
            self.sysfs.roots().may_take(&address.to_string())?;
        }
        self.reaches_memory(&function)?;
        VfioBus::open(&self.sysfs, function, owner)
    }

    /// Whether a function can be given memory. Where there is no IOMMU its group is made up when
    /// vfio-pci gets it.
    fn reaches_memory(&self, f: &Function) -> Result<(), OpenError> {
        match f.group {
            None if !self.sysfs.no_iommu_allowed() => Err(OpenError::NoIommu),
            Some(Group { no_iommu: false, .. }) => Ok(()),
            _ if physical::stays(&self.sysfs) => Ok(()),
            _ => Err(OpenError::MovesMemory),
        }
    }

    /// Why a function cannot be used.
    fn hindrance(&self, f: &Function) -> Option<String> {
        if let Some(problem) = problem(f) {
            return Some(problem);
        }
        let address = f.address.to_string();
        if let Some(owner) = Key::pci(&address).owner() {
            return Some(OwnerError::Taken { device: format!("pci:{address}"), owner }.to_string());
        }
        let may = self.sysfs.roots().may_take(&address).map_err(OpenError::from);
        let may = may.and_then(|()| self.reaches_memory(f));
        may.and_then(|()| Ok(plan::plan(&self.sysfs, f).map(drop)?)).err().map(|e| e.to_string())
    }

    /// Measures. What sleeps is left asleep, and what a driver has, with it: the driver is asked.
    fn sample(&self, address: PciAddress, options: &OpenOptions) -> anyhow::Result<Sample> {
        let spec = DeviceSpec::Pci(address);
        let failed = |e: &dyn std::fmt::Display| CliError::Device(format!("{spec}: {e}"));
        let function = self.function(address).map_err(|e| failed(&e))?;
        if let Some(state) = self.sysfs.roots().sleeps(&address.to_string()) {
            return Ok(Sample::Asleep(state));
        }
        let key = Key::pci(&address.to_string());
        match function.driver.as_deref() {
            Some(amdgpu::AMDGPU) if key.owner().is_none() => {
                let report = amdgpu::sample(&self.sysfs, address);
                Ok(Sample::Report(report.map_err(|e| failed(&e))?))
            }
            Some(driver) if driver != plan::VFIO_PCI && key.owner().is_none() => {
                Err(failed(&format!("its driver is {driver}, which measures nothing")).into())
            }
            _ => beside::sample(&key, |look| {
                let bus =
                    self.reaches_memory(&function).and_then(|()| VfioBus::open(&self.sysfs, function, look));
                session(&spec, bus, options)
            }),
        }
    }

    /// A function that can be driven.
    fn function(&self, address: PciAddress) -> Result<Function, OpenError> {
        let function = self.sysfs.function(address).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => OpenError::NoSuchDevice,
            _ => OpenError::Os { what: "reading sysfs", why: e },
        })?;
        match problem(&function) {
            Some(problem) => Err(OpenError::Device(problem)),
            None => Ok(function),
        }
    }

    /// Gives a function that was left with vfio-pci back; what was done, in a few words. No process may
    /// have it open.
    pub fn release(&self, address: PciAddress) -> Result<&'static str, OpenError> {
        let function = self.sysfs.function(address).map_err(|_| OpenError::NoSuchDevice)?;
        let _owner = Owner::of(&Key::pci(&address.to_string()))?;
        claim::release(&self.sysfs, &function)
    }
}

/// What keeps a function from being driven, as far as its configuration space tells. Which GPU it
/// is, its discovery table says, once it is open.
fn problem(function: &Function) -> Option<String> {
    if function.is_gpu() {
        return None;
    }
    let (vendor, device, class) = (function.vendor, function.device, function.class);
    Some(if function.is_accelerator() {
        "it is an accelerator, which amdev drives through the kernel's driver; use `--device kfd:N`".into()
    } else {
        format!("{vendor:04x}:{device:04x} of class {class:06x} is no GPU of AMD's")
    })
}

fn session(
    spec: &DeviceSpec,
    bus: Result<VfioBus, OpenError>,
    options: &OpenOptions,
) -> anyhow::Result<Box<dyn Session>> {
    let bus = bus.map_err(|e| CliError::Device(format!("{spec}: {e}")))?;
    Ok(Box::new(BusSession::new(Guarded::new(bus), spec.to_string(), options)?))
}

impl Backend for PciBackend {
    fn serves(&self, spec: &DeviceSpec) -> bool {
        matches!(spec, DeviceSpec::Pci(_))
    }

    fn list(&self) -> Vec<Found> {
        let functions = self.sysfs.functions().into_iter();
        functions
            .filter(|f| f.is_gpu() || f.is_accelerator())
            .map(|f| Found {
                device: DeviceSpec::Pci(f.address).to_string(),
                name: format!(
                    "AMD GPU {:04x}:{:04x} revision {:02x}, driver {}",
                    f.vendor,
                    f.device,
                    f.revision,
                    f.driver.as_deref().unwrap_or("none")
                ),
                problem: self.hindrance(&f),
            })
            .collect()
    }

    fn give_back(&self, spec: &DeviceSpec) -> Option<anyhow::Result<String>> {
        let DeviceSpec::Pci(address) = spec else { return None };
        let done = self.release(*address).map(str::to_owned);
        Some(done.map_err(|e| CliError::Device(format!("{spec}: {e}")).into()))
    }

    fn smi(&self, spec: &DeviceSpec, options: &OpenOptions) -> Option<anyhow::Result<Sample>> {
        let DeviceSpec::Pci(address) = spec else { return None };
        Some(self.sample(*address, options))
    }

    fn open(&self, spec: &DeviceSpec, options: &OpenOptions) -> anyhow::Result<Box<dyn Session>> {
        let DeviceSpec::Pci(address) = spec else {
            return Err(CliError::Device(format!("{spec} is not a PCI device")).into());
        };
        session(spec, self.open_bus(*address, options.force), options)
    }
}

#[cfg(test)]
mod tests {
    use super::fake::Tree;
    use super::*;

    #[test]
    fn of_an_nvidia_card_an_amd_card_and_its_audio_one_gpu_is_listed() {
        let tree = Tree::new();
        tree.function("0000:01:00.0", (0x10de, 0x2684), 0x03_0000, "nvidia", "1");
        tree.function("0000:03:00.0", (0x1002, 0x744c), 0x03_0000, "", "5");
        tree.function("0000:03:00.1", (0x1002, 0xab30), 0x04_0300, "", "5");
        let backend = PciBackend { sysfs: tree.sysfs() };
        let found = backend.list();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].device.as_str(), &found[0].problem), ("pci:0000:03:00.0", &None));
        for (address, word) in [
            ("0000:01:00.0", "no GPU of AMD's"),
            ("0000:03:00.1", "no GPU of AMD's"),
            ("0000:09:00.0", "no such PCI device"),
        ] {
            let e = backend.open_bus(address.parse().unwrap(), false).err().unwrap().to_string();
            assert!(e.contains(word), "{address}: {e}");
        }
    }

    #[test]
    fn why_a_gpu_cannot_be_used_is_listed_with_it() {
        let tree = Tree::new();
        tree.function("0000:03:00.0", (0x1002, 0x744c), 0x03_0000, "amdgpu", "");
        tree.function("0000:04:00.0", (0x1002, 0x74a1), 0x12_0000, "amdgpu", "6");
        let found = PciBackend { sysfs: tree.sysfs() }.list();
        let problems: Vec<_> = found.iter().map(|f| f.problem.clone().unwrap_or_default()).collect();
        assert!(problems[0].contains("intel_iommu=on") && problems[1].contains("kfd:N"), "{problems:?}");
        tree.write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n");
        assert_eq!(PciBackend { sysfs: tree.sysfs() }.list()[0].problem, None);
        tree.write("proc/sys/vm/compact_unevictable_allowed", "1\n");
        let problem = PciBackend { sysfs: tree.sysfs() }.list()[0].problem.clone().unwrap_or_default();
        assert!(problem.contains("vm.compact_unevictable_allowed=0"), "{problem}");
    }

    #[test]
    fn a_card_that_is_in_use_is_listed_so_and_taken_by_force_only_and_never_from_an_owner() {
        // Owners are known to all of the machine: an address of this process's own.
        let address = format!("{:04x}:03:00.0", std::process::id() & 0xffff);
        let tree = Tree::new();
        tree.function(&address, (0x1002, 0x744c), 0x03_0000, "amdgpu", "5");
        let dir = format!("sys/bus/pci/devices/{address}");
        let backend = PciBackend { sysfs: tree.sysfs() };
        let told = |force: bool| {
            let opened = backend.open_bus(address.parse().unwrap(), force);
            (opened.err().unwrap().to_string(), backend.list()[0].problem.clone().unwrap_or_default())
        };
        // Nothing binds in this tree: taking it gets no further.
        let taken = |what: &str| assert!(told(true).0.contains("did not take the device"), "{what}");
        let refused = |what: &str| {
            let (opened, listed) = told(false);
            assert!(opened.contains(what) && opened.contains("--force"), "{what}: {opened}");
            assert_eq!(opened, listed);
            assert_eq!(tree.read(&format!("{dir}/driver_override")), "(null)\n", "nothing is touched");
        };
        tree.write(&format!("{dir}/boot_vga"), "1\n");
        refused("machine booted with");
        tree.write(&format!("{dir}/boot_vga"), "0\n");
        for (file, text) in [("status", "connected\n"), ("enabled", "enabled\n")] {
            tree.write(&format!("{dir}/drm/card1/card1-DP-1/{file}"), text);
        }
        refused("card1-DP-1");
        tree.write(&format!("{dir}/drm/card1/card1-DP-1/enabled"), "disabled\n");
        tree.write("proc/4711/comm", "blender\n");
        std::fs::create_dir(tree.path("proc/4711/fd")).unwrap();
        std::os::unix::fs::symlink("/dev/dri/card1", tree.path("proc/4711/fd/3")).unwrap();
        refused("blender (4711)");
        let owner = Owner::of(&Key::pci(&address)).unwrap();
        for force in [false, true] {
            let (opened, listed) = told(force);
            assert!(opened.contains("is in use by process") && opened == listed, "{opened}, {listed}");
        }
        assert!(backend.release(address.parse().unwrap()).is_err(), "nor is it given back under its owner");
        assert_eq!(tree.read(&format!("{dir}/driver_override")), "(null)\n", "nothing is touched");
        drop(owner);
        taken("by force");
        assert_eq!(tree.read("sys/bus/pci/drivers/amdgpu/unbind"), format!("{address}\n"));
        assert_eq!(Key::pci(&address).owner(), None, "who fails to open it does not keep it");
    }

    #[test]
    fn smi_leaves_a_gpu_asleep_and_with_its_driver() {
        let address = format!("{:04x}:04:00.0", std::process::id() & 0xffff);
        let tree = Tree::new();
        tree.function(&address, (0x1002, 0x744c), 0x03_0000, "amdgpu", "5");
        let dir = format!("sys/bus/pci/devices/{address}");
        let backend = PciBackend { sysfs: tree.sysfs() };
        let spec: DeviceSpec = format!("pci:{address}").parse().unwrap();
        let sample = || backend.smi(&spec, &OpenOptions::default()).unwrap();
        let mut table = [0; 120];
        table[2..4].copy_from_slice(&[1, 3]);
        table[22..24].copy_from_slice(&73u16.to_le_bytes());
        std::fs::write(tree.path(&format!("{dir}/gpu_metrics")), table).unwrap();
        let Sample::Report(report) = sample().unwrap() else { panic!("it does not sleep") };
        assert_eq!(report.power_w, 73);
        tree.write(&format!("{dir}/power_state"), "D3cold\n");
        let Sample::Asleep(state) = sample().unwrap() else { panic!("it sleeps") };
        assert_eq!(state, "D3cold");
        tree.write(&format!("{dir}/power_state"), "D0\n");
        std::fs::remove_file(tree.path(&format!("{dir}/driver"))).unwrap();
        std::os::unix::fs::symlink("../../drivers/radeon", tree.path(&format!("{dir}/driver"))).unwrap();
        let other = sample().unwrap_err().to_string();
        assert!(other.contains("its driver is radeon"), "{other}");
        // An owner that says nothing is named, and not pushed aside.
        let owner = Owner::of(&Key::pci(&address)).unwrap();
        let silent = sample().unwrap_err().to_string();
        let me = format!("process {}", std::process::id());
        assert!(silent.contains(&me) && silent.contains("did not answer within 5 s"), "{silent}");
        drop(owner);
        assert_eq!(tree.read(&format!("{dir}/driver_override")), "(null)\n", "nothing is touched");
    }

    #[test]
    fn the_largest_size_of_a_window_is_taken_from_its_mask() {
        let tree = Tree::new();
        let (sysfs, address) = (tree.sysfs(), "0000:03:00.0".parse().unwrap());
        assert_eq!(sysfs.largest_bar0(address), None, "no file");
        for (mask, largest) in
            [("ff00", Some(15)), ("0000000000007f00\n", Some(14)), ("0", None), ("x", None)]
        {
            tree.write("sys/bus/pci/devices/0000:03:00.0/resource0_resize", mask);
            assert_eq!(sysfs.largest_bar0(address), largest, "{mask}");
        }
    }

    #[test]
    fn a_group_without_iommu_has_another_node() {
        let tree = Tree::new();
        tree.function("0000:03:00.0", (0x1002, 0x744c), 0x03_0000, "vfio-pci", "5");
        let group = || tree.sysfs().function("0000:03:00.0".parse().unwrap()).unwrap().group.unwrap();
        assert_eq!(group().node(), "dev/vfio/5");
        tree.write("sys/kernel/iommu_groups/5/name", "vfio-noiommu\n");
        assert_eq!(group().node(), "dev/vfio/noiommu-5");
    }

    #[test]
    fn a_node_that_cannot_be_opened_is_told_with_the_remedy() {
        for (kind, word) in [
            (io::ErrorKind::NotFound, "modprobe vfio-pci"),
            (io::ErrorKind::PermissionDenied, "chown $USER /dev/vfio/5"),
            (io::ErrorKind::ResourceBusy, "another process"),
        ] {
            let text = OpenError::node("dev/vfio/5", kind.into()).to_string();
            assert!(text.contains(word), "{text}");
        }
    }
}
