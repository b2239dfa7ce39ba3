//! Resets the bus that a device is on, with whatever else is on it.
//!
//! The kernel wants all functions there to be with vfio-pci, and the groups of all of them in the hands
//! of the caller (vfio_pci_dev_set_hot_reset): the audio of a card as well, which has no driver while
//! the GPU is claimed, for its sake see [`super::plan`]. It is lent to vfio-pci for the time of the reset.

use super::OpenError;
use super::device::{Files, try_group};
use super::ioctl;
use super::plan::{Step, VFIO_PCI, back, to_vfio};
use super::sysfs::{Function, Group, Sysfs};
use amdev_cli::spec::PciAddress;
use amdev_core::bus::BusError;
use std::os::fd::AsFd as _;

/// What a reset takes besides the device.
#[derive(Debug, Default, PartialEq, Eq)]
struct Others {
    /// Functions that no driver has, to be lent to vfio-pci.
    lend: Vec<Function>,
    /// Functions that are with vfio-pci.
    there: Vec<Function>,
}

/// Looks who else is on the bus; a function that another driver has is an error.
fn others(sysfs: &Sysfs, of: &Function, affected: &[PciAddress]) -> Result<Others, String> {
    let mut others = Others::default();
    for address in affected.iter().filter(|a| **a != of.address) {
        let function = sysfs.function(*address).map_err(|e| format!("{address}: {e}"))?;
        match function.driver.as_deref() {
            None => others.lend.push(function),
            Some(VFIO_PCI) => others.there.push(function),
            Some(driver) => {
                let file = format!("/sys/bus/pci/devices/{address}/driver/unbind");
                return Err(format!(
                    "{address} ({driver}) is on the same bus; stop what uses it and run `echo {address} | sudo tee {file}`"
                ));
            }
        }
    }
    Ok(others)
}

/// Functions that are lent to vfio-pci, until this is dropped.
struct Lent(Vec<Step>);

impl Lent {
    fn new(sysfs: &Sysfs, functions: &[Function]) -> Result<Lent, String> {
        let mut lent = Lent(Vec::new());
        for function in functions {
            lent.0.extend(back(sysfs, function));
            for step in to_vfio(sysfs, function.address) {
                step.run().map_err(|e| e.to_string())?;
            }
        }
        Ok(lent)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        for error in self.0.iter().filter_map(|step| step.run().err()) {
            tracing::warn!("after the reset of the bus: {error}");
        }
    }
}

/// Groups other than the device's own, each once.
fn groups(own: Option<Group>, functions: &[Function]) -> Vec<Group> {
    let mut groups: Vec<Group> = functions.iter().filter_map(|f| f.group).collect();
    groups.sort_by_key(|g| g.number);
    groups.dedup();
    groups.retain(|g| Some(*g) != own);
    groups
}

/// Resets the bus. What hinders that is told in the log, and in general by the error.
pub(super) fn reset(sysfs: &Sysfs, function: &Function, files: &Files) -> Result<(), BusError> {
    let os = |e: rustix::io::Errno| BusError::Os(e.raw_os_error());
    let hindered = |why: String| {
        tracing::warn!("pci:{}: its bus cannot be reset: {why}", function.address);
        BusError::Host(
            "the bus of the device cannot be reset because of what else is on it, which the log names: free that, \
             or switch the machine off and on",
        )
    };
    let affected = ioctl::hot_reset_info(&files.device).map_err(os)?;
    let others = others(sysfs, function, &affected).map_err(hindered)?;
    let lent = Lent::new(sysfs, &others.lend).map_err(hindered)?;
    // Their groups are known, where there is no IOMMU, once they are with vfio-pci.
    let now = others.lend.iter().chain(&others.there).map(|f| sysfs.function(f.address));
    let now: Vec<Function> = now.collect::<Result<_, _>>().map_err(|e| hindered(e.to_string()))?;
    let open = |group| -> Result<_, OpenError> {
        let file = try_group(sysfs, group)?;
        // Kernels before 6.2 take no group that has no container.
        ioctl::set_container(&file, files.container.as_fd())
            .map_err(|e| OpenError::Os { what: "adding a group to the container", why: e.into() })?;
        Ok(file)
    };
    let opened: Vec<_> = groups(function.group, &now)
        .into_iter()
        .map(open)
        .collect::<Result<_, _>>()
        .map_err(|e| hindered(e.to_string()))?;
    let fds: Vec<_> = std::iter::once(&files.group).chain(&opened).map(|f| f.as_fd()).collect();
    let done = ioctl::hot_reset(&files.device, &fds).map_err(os);
    // vfio-pci gives nothing up that is open.
    drop(opened);
    drop(lent);
    done
}

#[cfg(test)]
mod tests {
    use super::super::fake::{AUDIO, GPU, Tree};
    use super::*;

    const DIR: &str = "sys/bus/pci/devices/0000:03:00.1";

    fn card(audio_driver: &str, audio_group: &str) -> (Tree, Function) {
        let tree = Tree::new();
        tree.function(GPU, (0x1002, 0x744c), 0x03_0000, "vfio-pci", "5");
        tree.function(AUDIO, (0x1002, 0xab30), 0x04_0300, audio_driver, audio_group);
        let gpu = tree.sysfs().function(GPU.parse().unwrap()).unwrap();
        (tree, gpu)
    }

    fn looked(tree: &Tree, gpu: &Function) -> Result<Others, String> {
        others(&tree.sysfs(), gpu, &[GPU.parse().unwrap(), AUDIO.parse().unwrap()])
    }

    #[test]
    fn the_audio_without_driver_is_lent_to_vfio_for_the_reset_and_taken_back() {
        let (tree, gpu) = card("", "5");
        let others = looked(&tree, &gpu).unwrap();
        assert_eq!((others.lend.len(), others.there.len()), (1, 0));
        let lent = Lent::new(&tree.sysfs(), &others.lend).unwrap();
        assert_eq!(tree.read(&format!("{DIR}/driver_override")), "vfio-pci\n");
        assert_eq!(tree.read("sys/bus/pci/drivers_probe"), format!("{AUDIO}\n"));
        tree.write("sys/bus/pci/drivers_probe", "");
        drop(lent);
        assert_eq!(tree.read(&format!("{DIR}/driver_override")), "\n");
        assert_eq!(tree.read("sys/bus/pci/drivers/vfio-pci/unbind"), format!("{AUDIO}\n"));
        assert_eq!(tree.read("sys/bus/pci/drivers_probe"), "", "it had no driver");
        assert!(groups(gpu.group, &others.lend).is_empty(), "the group is the GPU's");
    }

    #[test]
    fn audio_that_is_with_vfio_in_a_group_of_its_own_brings_its_group_along() {
        let (tree, gpu) = card("vfio-pci", "6");
        let others = looked(&tree, &gpu).unwrap();
        assert_eq!((others.lend.len(), others.there.len()), (0, 1));
        let groups = groups(gpu.group, &[others.there[0].clone(), others.there[0].clone()]);
        assert_eq!(groups, [Group { number: 6, no_iommu: false }]);
    }

    #[test]
    fn what_another_driver_has_is_named_with_the_command_that_frees_it() {
        let (tree, gpu) = card("snd_hda_intel", "6");
        let why = looked(&tree, &gpu).unwrap_err();
        assert!(why.contains("0000:03:00.1 (snd_hda_intel)") && why.contains("driver/unbind"), "{why}");
    }

    #[test]
    fn a_reset_that_the_kernel_refuses_is_an_error_of_the_system() {
        let (tree, gpu) = card("", "5");
        let null = || std::fs::File::open("/dev/null").unwrap();
        let files = Files { device: null(), group: null(), container: null() };
        assert!(matches!(reset(&tree.sysfs(), &gpu, &files), Err(BusError::Os(_))));
    }
}
