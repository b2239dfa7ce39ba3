//! What of a Linux machine decides whether amdev can drive its GPUs.

use amdev_cli::checks::{Check, State};
use amdev_cli::error::CliError;
use amdev_cli::session::{Backend, Found, OpenOptions, Session};
use amdev_cli::spec::DeviceSpec;
use std::path::{Path, PathBuf};

/// AMD's PCI vendor id.
const AMD: &str = "0x1002";
/// MEMLOCK that a demo with the reference's ring sizes needs: rings, pools and staging pinned.
const MEMLOCK_NEEDED: u64 = 64 << 20;

/// Checks of this machine, for `doctor`. It has no devices of its own.
#[derive(Debug)]
pub struct Machine {
    root: PathBuf,
    is_root: bool,
}

impl Default for Machine {
    fn default() -> Self {
        Machine { root: "/".into(), is_root: rustix::process::geteuid().is_root() }
    }
}

impl Machine {
    /// A machine whose `proc`, `sys` and `dev` stand below another folder.
    pub fn at(root: impl Into<PathBuf>, is_root: bool) -> Self {
        Machine { root: root.into(), is_root }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    fn read(&self, below: &str) -> Option<String> {
        Some(std::fs::read_to_string(self.path(below)).ok()?.trim().to_owned())
    }

    fn names(&self, below: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(below)).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// PCI addresses of AMD's GPUs: display controllers and accelerators.
    fn gpus(&self) -> Vec<String> {
        let mut names = self.names("sys/bus/pci/devices");
        names.retain(|name| {
            let attribute = |what: &str| self.read(&format!("sys/bus/pci/devices/{name}/{what}"));
            let class = attribute("class").unwrap_or_default();
            attribute("vendor").as_deref() == Some(AMD)
                && (class.starts_with("0x03") || class.starts_with("0x1200"))
        });
        names
    }

    /// All checks, in the order in which one would mend them.
    pub fn checks(&self) -> Vec<Check> {
        let mut checks = vec![self.devices(), self.iommu(), self.module("vfio_pci", "vfio-pci")];
        checks.push(self.module("vfio_iommu_type1", "vfio_iommu_type1"));
        checks.push(self.vfio_nodes());
        checks.push(self.memlock());
        checks.push(self.hugepages());
        checks.push(self.compaction());
        for gpu in self.gpus() {
            checks.push(self.window(&gpu));
            checks.push(self.driver(&gpu));
        }
        checks
    }

    fn devices(&self) -> Check {
        match self.gpus().as_slice() {
            [] => Check::mend(
                State::Warning,
                "AMD GPUs",
                "none on the PCI bus; simulated ones and those behind sockets can be used",
                "",
            ),
            gpus => Check::good("AMD GPUs", gpus.join(", ")),
        }
    }

    /// What lacks is bad where there is a GPU that would need it.
    fn lacking(&self) -> State {
        if self.gpus().is_empty() { State::Warning } else { State::Bad }
    }

    fn iommu(&self) -> Check {
        let groups = self.names("sys/kernel/iommu_groups").len();
        if groups > 0 {
            return Check::good("IOMMU", format!("on, {groups} groups"));
        }
        let cpu = self.read("proc/cpuinfo").unwrap_or_default();
        let option =
            if cpu.contains("GenuineIntel") { "intel_iommu=on iommu=pt" } else { "amd_iommu=on iommu=pt" };
        let remedy = format!(
            "switch the IOMMU (VT-d, AMD-Vi) on in the firmware's setup, add `{option}` to GRUB_CMDLINE_LINUX in \
             /etc/default/grub, then `sudo update-grub` and reboot"
        );
        Check::mend(self.lacking(), "IOMMU", "no IOMMU group: VFIO cannot be used", remedy)
    }

    fn module(&self, module: &str, name: &str) -> Check {
        if self.path(&format!("sys/module/{module}")).exists() {
            return Check::good(name, "loaded");
        }
        Check::mend(self.lacking(), name, "not loaded", format!("sudo modprobe {name}"))
    }

    fn vfio_nodes(&self) -> Check {
        let mut groups = self.names("dev/vfio");
        groups.retain(|n| n != "vfio" && n != "devices");
        let usable = groups.iter().filter(|g| self.is_writable(&self.path(&format!("dev/vfio/{g}")))).count();
        let name = "VFIO groups";
        match (groups.as_slice(), usable) {
            (_, n) if n > 0 => Check::good(name, format!("{n} of {} can be opened", groups.len())),
            ([], _) if self.is_root => {
                Check::good(name, "none yet; a GPU is bound to vfio-pci when it is opened")
            }
            ([], _) => Check::mend(
                self.lacking(),
                name,
                "none; binding a GPU to vfio-pci needs root",
                "run amdev with sudo",
            ),
            ([first, ..], _) => Check::mend(
                self.lacking(),
                name,
                format!("{} may not be opened by this user", groups.join(", ")),
                format!("sudo chown $USER /dev/vfio/{first}"),
            ),
        }
    }

    fn is_writable(&self, path: &Path) -> bool {
        rustix::fs::access(path, rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK).is_ok()
    }

    fn memlock(&self) -> Check {
        let limits = self.read("proc/self/limits").unwrap_or_default();
        let line = limits.lines().find_map(|l| l.strip_prefix("Max locked memory"));
        let soft = line.and_then(|l| l.split_whitespace().next()).unwrap_or("unknown");
        let name = "locked memory";
        match soft.parse::<u64>() {
            _ if self.is_root => Check::good(name, "without limit for root"),
            Ok(bytes) if bytes < MEMLOCK_NEEDED => Check::mend(
                self.lacking(),
                name,
                format!("{} KiB may be locked, {} KiB are needed", bytes >> 10, MEMLOCK_NEEDED >> 10),
                "echo \"$USER - memlock unlimited\" | sudo tee /etc/security/limits.d/amdev.conf, then log in again",
            ),
            Ok(bytes) => Check::good(name, format!("{} KiB", bytes >> 10)),
            Err(_) if soft == "unlimited" => Check::good(name, "without limit"),
            Err(_) => Check::mend(State::Warning, name, "the limit cannot be read", "ulimit -l"),
        }
    }

    fn hugepages(&self) -> Check {
        let info = self.read("proc/meminfo").unwrap_or_default();
        let value = |key: &str| {
            let line = info.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':'));
            line.and_then(|l| l.split_whitespace().next()).and_then(|v| v.parse::<u64>().ok())
        };
        let (free, size) = (value("HugePages_Free").unwrap_or(0), value("Hugepagesize").unwrap_or(2048));
        if free > 0 {
            return Check::good("huge pages", format!("{free} free of {size} KiB each"));
        }
        Check::mend(
            State::Warning,
            "huge pages",
            "none free: host memory is mapped for the GPU in small pages, which takes longer",
            "sudo sysctl vm.nr_hugepages=128",
        )
    }

    /// Memory that is pinned must not be moved: on kernels that compact unevictable memory, accesses
    /// by address of a moved page would go astray where no IOMMU follows.
    fn compaction(&self) -> Check {
        let name = "memory compaction";
        match self.read("proc/sys/vm/compact_unevictable_allowed").as_deref() {
            Some("1") => Check::mend(
                State::Warning,
                name,
                "locked pages may be moved: without an IOMMU (unsafe no-IOMMU mode) the GPU would reach wrong memory",
                "sudo sysctl vm.compact_unevictable_allowed=0",
            ),
            Some(_) => Check::good(name, "locked pages stay where they are"),
            None => Check::good(name, "the kernel does not move locked pages"),
        }
    }

    /// A resized BAR0 shows all of VRAM.
    fn window(&self, gpu: &str) -> Check {
        let name = format!("{gpu} BAR0");
        let resource = self.read(&format!("sys/bus/pci/devices/{gpu}/resource")).unwrap_or_default();
        let mut ends = resource
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .map(|t| u64::from_str_radix(t.trim_start_matches("0x"), 16).unwrap_or(0));
        let len = match (ends.next(), ends.next()) {
            (Some(start), Some(end)) if end > start => end - start + 1,
            _ => 0,
        };
        match len {
            0 => Check::mend(
                State::Bad,
                name,
                "the host gave the GPU's VRAM window no address",
                format!("add `pci=realloc` to the kernel's command line; `sudo dmesg | grep {gpu}` says why"),
            ),
            len if len <= 256 << 20 => Check::mend(
                State::Warning,
                name,
                format!("{} MiB: VRAM beyond it is reached slowly", len >> 20),
                "switch \"Above 4G decoding\" and \"Resizable BAR\" on in the firmware's setup",
            ),
            len => Check::good(name, format!("{} MiB", len >> 20)),
        }
    }

    fn driver(&self, gpu: &str) -> Check {
        let name = format!("{gpu} driver");
        let link = std::fs::read_link(self.path(&format!("sys/bus/pci/devices/{gpu}/driver")));
        let driver = link.ok().and_then(|l| Some(l.file_name()?.to_string_lossy().into_owned()));
        match driver.as_deref() {
            None => Check::good(name, "none"),
            Some("vfio-pci") => Check::good(name, "vfio-pci"),
            Some(other) => Check::mend(
                State::Warning,
                name,
                format!("{other} has the GPU"),
                format!("echo {gpu} | sudo tee /sys/bus/pci/drivers/{other}/unbind (its screens go dark)"),
            ),
        }
    }
}

impl Backend for Machine {
    fn serves(&self, _: &DeviceSpec) -> bool {
        false
    }

    fn list(&self) -> Vec<Found> {
        Vec::new()
    }

    fn checks(&self) -> Vec<Check> {
        Machine::checks(self)
    }

    fn open(&self, spec: &DeviceSpec, _: &OpenOptions) -> anyhow::Result<Box<dyn Session>> {
        Err(CliError::Device(format!("{spec} is no device of the machine's checks")).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine made of files.
    struct Fake(tempfile::TempDir);

    impl Fake {
        fn new() -> Self {
            Fake(tempfile::tempdir().unwrap())
        }
        fn file(self, path: &str, text: &str) -> Self {
            let path = self.0.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
            self
        }
        fn gpu(self, resource: &str, driver: Option<&str>) -> Self {
            let dir = "sys/bus/pci/devices/0000:03:00.0";
            let fake = self
                .file(&format!("{dir}/vendor"), "0x1002\n")
                .file(&format!("{dir}/class"), "0x030000\n")
                .file(&format!("{dir}/resource"), resource);
            if let Some(driver) = driver {
                let link = fake.0.path().join(dir).join("driver");
                std::os::unix::fs::symlink(format!("../../drivers/{driver}"), link).unwrap();
            }
            fake
        }
        fn checks(&self, is_root: bool) -> Vec<Check> {
            Machine::at(self.0.path(), is_root).checks()
        }
    }

    fn find<'a>(checks: &'a [Check], name: &str) -> &'a Check {
        checks.iter().find(|c| c.name == name).unwrap_or_else(|| panic!("{name}: {checks:?}"))
    }

    const LARGE: &str = "0x0000001000000000 0x00000015ffffffff 0x000000000014220c\n";
    const SMALL: &str = "0x00000000c0000000 0x00000000cfffffff 0x000000000014220c\n";
    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
                          Max locked memory         8388608              8388608              bytes     \n";

    #[test]
    fn a_machine_where_nothing_is_prepared_gets_a_command_for_each_thing() {
        let fake = Fake::new()
            .gpu(SMALL, Some("amdgpu"))
            .file("proc/cpuinfo", "vendor_id : GenuineIntel\n")
            .file("proc/self/limits", LIMITS)
            .file("proc/meminfo", "HugePages_Free:        0\nHugepagesize:       2048 kB\n")
            .file("proc/sys/vm/compact_unevictable_allowed", "1\n")
            .file("dev/vfio/vfio", "");
        let checks = fake.checks(false);
        for (name, state, found, remedy) in [
            ("AMD GPUs", State::Good, "0000:03:00.0", ""),
            ("IOMMU", State::Bad, "no IOMMU group", "intel_iommu=on"),
            ("vfio-pci", State::Bad, "not loaded", "sudo modprobe vfio-pci"),
            ("vfio_iommu_type1", State::Bad, "not loaded", "sudo modprobe vfio_iommu_type1"),
            ("VFIO groups", State::Bad, "needs root", "sudo"),
            ("locked memory", State::Bad, "8192 KiB may be locked, 65536 KiB", "memlock unlimited"),
            ("huge pages", State::Warning, "none free", "vm.nr_hugepages"),
            ("memory compaction", State::Warning, "may be moved", "compact_unevictable_allowed=0"),
            ("0000:03:00.0 BAR0", State::Warning, "256 MiB", "Resizable BAR"),
            ("0000:03:00.0 driver", State::Warning, "amdgpu has the GPU", "drivers/amdgpu/unbind"),
        ] {
            let check = find(&checks, name);
            assert_eq!(check.state, state, "{check:?}");
            assert!(check.found.contains(found) && check.remedy.contains(remedy), "{check:?}");
        }
    }

    #[test]
    fn a_machine_in_order_has_nothing_to_mend() {
        let fake = Fake::new()
            .gpu(LARGE, Some("vfio-pci"))
            .file("sys/kernel/iommu_groups/5/type", "DMA\n")
            .file("sys/module/vfio_pci/refcnt", "0\n")
            .file("sys/module/vfio_iommu_type1/refcnt", "0\n")
            .file("proc/self/limits", &LIMITS.replace("8388608", "unlimited"))
            .file("proc/meminfo", "HugePages_Free:      128\nHugepagesize:       2048 kB\n")
            .file("proc/sys/vm/compact_unevictable_allowed", "0\n")
            .file("dev/vfio/vfio", "")
            .file("dev/vfio/5", "");
        for is_root in [false, true] {
            for check in fake.checks(is_root) {
                assert_eq!((check.state, check.remedy.as_str()), (State::Good, ""), "{check:?}");
            }
        }
        let checks = fake.checks(false);
        assert_eq!(find(&checks, "0000:03:00.0 BAR0").found, "24576 MiB");
        assert_eq!(find(&checks, "VFIO groups").found, "1 of 1 can be opened");
    }

    #[test]
    fn without_a_gpu_what_is_missing_is_a_warning_only() {
        let fake = Fake::new().file("sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n");
        let checks = fake.checks(false);
        assert!(checks.iter().all(|c| c.state != State::Bad), "{checks:?}");
        assert!(find(&checks, "IOMMU").remedy.contains("amd_iommu=on"));
    }

    #[test]
    fn a_window_without_an_address_is_bad() {
        let checks = Fake::new().gpu("0x0 0x0 0x0\n", None).checks(true);
        let window = find(&checks, "0000:03:00.0 BAR0");
        assert!(window.state == State::Bad && window.remedy.contains("pci=realloc"), "{window:?}");
    }
}
