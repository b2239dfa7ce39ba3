//! A sysfs of a test's own making.

use super::sysfs::{Function, Sysfs};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// A GPU and its audio, in one group.
pub(super) const GPU: &str = "0000:03:00.0";
pub(super) const AUDIO: &str = "0000:03:00.1";
pub(super) const DIR: &str = "sys/bus/pci/devices/0000:03:00.0";

pub(super) struct Tree(tempfile::TempDir);

impl Tree {
    pub(super) fn new() -> Tree {
        let tree = Tree(tempfile::tempdir().unwrap());
        tree.write("sys/bus/pci/drivers_probe", "");
        tree.driver("vfio-pci");
        tree
    }

    /// A card whose GPU has this driver, and 256 MiB of 32 GiB in its window.
    pub(super) fn card(driver: &str) -> Tree {
        let tree = Tree::new();
        tree.function(GPU, (0x1002, 0x744c), 0x03_0000, driver, "5");
        tree.function(AUDIO, (0x1002, 0xab30), 0x04_0300, "snd_hda_intel", "5");
        tree.write(&format!("{DIR}/reset_method"), "flr bus\n");
        tree.write(&format!("{DIR}/resource"), "0x0000000080000000 0x000000008fffffff 0x000000000014220c\n");
        tree.write(&format!("{DIR}/resource0_resize"), "000000000000ff00\n");
        tree.write("dev/vfio/5", "");
        tree
    }

    pub(super) fn gpu(&self) -> Function {
        self.sysfs().function(GPU.parse().unwrap()).unwrap()
    }

    pub(super) fn sysfs(&self) -> Sysfs {
        Sysfs::at(self.0.path())
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(super) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    pub(super) fn driver(&self, name: &str) {
        self.write(&format!("sys/bus/pci/drivers/{name}/unbind"), "");
    }

    /// A function with its ids, class, driver and group.
    pub(super) fn function(&self, address: &str, ids: (u16, u16), class: u32, driver: &str, group: &str) {
        let dir = format!("sys/bus/pci/devices/{address}");
        for (name, text) in [
            ("vendor", format!("{:#06x}\n", ids.0)),
            ("device", format!("{:#06x}\n", ids.1)),
            ("revision", "0xc8\n".into()),
            ("class", format!("{class:#08x}\n")),
            ("driver_override", "(null)\n".into()),
        ] {
            self.write(&format!("{dir}/{name}"), &text);
        }
        if !driver.is_empty() {
            self.driver(driver);
            symlink(format!("../../drivers/{driver}"), self.path(&format!("{dir}/driver"))).unwrap();
        }
        if !group.is_empty() {
            fs::create_dir_all(self.path(&format!("sys/kernel/iommu_groups/{group}"))).unwrap();
            let link = self.path(&format!("{dir}/iommu_group"));
            symlink(format!("../../../../kernel/iommu_groups/{group}"), link).unwrap();
        }
    }
}
