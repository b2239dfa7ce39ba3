//! What has to be written to sysfs to take a function away from its driver, and to give it back.
//!
//! It is planned first, from what sysfs shows: so that nothing is touched where it cannot work, and
//! so that the way back is known before the first step.

use super::TakeError;
use super::sysfs::{Function, Sysfs};
use amdev_cli::spec::PciAddress;
use std::fs;
use std::io;
use std::path::PathBuf;

/// The driver that hands a function to a process.
pub(super) const VFIO_PCI: &str = "vfio-pci";
/// Drivers that do not use what they are bound to.
const HARMLESS: [&str; 3] = [VFIO_PCI, "pci-stub", "pcieport"];

/// One file of sysfs to write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Step {
    pub(super) path: PathBuf,
    pub(super) value: String,
    /// Whether it is a failure if it cannot be done.
    pub(super) needed: bool,
}

impl Step {
    pub(super) fn new(path: PathBuf, value: impl ToString) -> Step {
        Step { path, value: value.to_string(), needed: true }
    }

    fn optional(self) -> Step {
        Step { needed: false, ..self }
    }

    /// Writes the file; why not, if that matters.
    pub(super) fn run(&self) -> Result<(), TakeError> {
        // A line, in one write, as the kernel wants it.
        let write = || -> io::Result<()> {
            let mut file = fs::OpenOptions::new().write(true).truncate(true).open(&self.path)?;
            io::Write::write_all(&mut file, format!("{}\n", self.value).as_bytes())
        };
        match write() {
            Ok(()) => tracing::debug!("{} <- {}", self.path.display(), self.value),
            Err(why) if self.needed => {
                let (path, value) = (self.path.display().to_string(), self.value.clone());
                return Err(TakeError::Write { path, value, why });
            }
            Err(why) => tracing::info!("{} <- {}: {why}", self.path.display(), self.value),
        }
        Ok(())
    }
}

/// The way there and back.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Plan {
    pub(super) take: Vec<Step>,
    pub(super) give_back: Vec<Step>,
}

/// Has the kernel look for a driver.
fn probe(sysfs: &Sysfs, address: PciAddress) -> Step {
    Step::new(sysfs.path("sys/bus/pci/drivers_probe"), address)
}

/// Names the only driver that may have a function; none: any that knows it.
fn only(sysfs: &Sysfs, address: PciAddress, driver: &str) -> Step {
    Step::new(sysfs.dir(address).join("driver_override"), driver)
}

/// Takes a function from vfio-pci, which may not have it.
fn unbind(sysfs: &Sysfs, address: PciAddress) -> Step {
    Step::new(sysfs.path("sys/bus/pci/drivers").join(VFIO_PCI).join("unbind"), address).optional()
}

/// Binds a function to vfio-pci.
pub(super) fn to_vfio(sysfs: &Sysfs, address: PciAddress) -> [Step; 2] {
    [only(sysfs, address, VFIO_PCI), probe(sysfs, address)]
}

/// From vfio-pci to the driver that a function was found with, if it had one.
pub(super) fn back(sysfs: &Sysfs, found: &Function) -> Vec<Step> {
    let address = found.address;
    let before = sysfs.driver_override(address);
    match &found.driver {
        None => vec![only(sysfs, address, &before), unbind(sysfs, address)],
        Some(driver) => vec![
            only(sysfs, address, driver),
            unbind(sysfs, address),
            probe(sysfs, address),
            only(sysfs, address, &before),
        ],
    }
}

/// From vfio-pci to the driver that the kernel chooses.
pub(super) fn to_any(sysfs: &Sysfs, address: PciAddress) -> Vec<Step> {
    let mut steps = vec![only(sysfs, address, ""), unbind(sysfs, address)];
    let methods = sysfs.dir(address).join("reset_method");
    if methods.exists() {
        steps.push(Step::new(methods, "default"));
    }
    steps.push(probe(sysfs, address));
    steps
}

/// What functions of one card share.
fn card(a: PciAddress) -> (u32, u8, u8) {
    (a.domain, a.bus, a.device)
}

/// Plans how to bind a function to vfio-pci.
pub(super) fn plan(sysfs: &Sysfs, function: &Function) -> Result<Plan, TakeError> {
    let address = function.address;
    let dir = sysfs.dir(address);
    if !sysfs.path("sys/bus/pci/drivers").join(VFIO_PCI).is_dir() {
        return Err(TakeError::NoVfioPci);
    }
    let mut plan = Plan::default();

    // VFIO resets what it opens and closes, if it can: that would undo what the machine's firmware
    // did to the GPU at power-on, which only the machine's firmware can do.
    let methods = dir.join("reset_method");
    match fs::read_to_string(&methods).map(|m| m.trim().to_owned()) {
        Ok(enabled) if enabled.is_empty() => {}
        Ok(enabled) => {
            plan.take.push(Step::new(methods.clone(), ""));
            // What it was is refused where it holds `bus`, which the kernel offered before it had found the
            // other functions on the bus: then all that can be used now.
            plan.give_back.push(Step::new(methods.clone(), "default"));
            plan.give_back.push(Step::new(methods, enabled).optional());
        }
        // Linux before 5.15.
        Err(_) if dir.join("reset").exists() => return Err(TakeError::ResetsOnOpen),
        Err(_) => {}
    }

    for other in sysfs.companions(function) {
        let Some(driver) = other.driver.clone().filter(|d| !HARMLESS.contains(&d.as_str())) else { continue };
        if card(other.address) != card(address) {
            return Err(TakeError::Companion { address: other.address, driver });
        }
        // The GPU's audio. It is left without a driver: bound to vfio-pci as well, both together
        // would be a bus that VFIO resets when it closes them.
        plan.take.push(Step::new(sysfs.dir(other.address).join("driver/unbind"), other.address));
        plan.give_back.extend(back(sysfs, &other));
    }

    let larger = sysfs.largest_bar0(address).filter(|n| *n < 44 && 1 << (n + 20) > sysfs.bar_len(address, 0));
    let bound = function.driver.as_deref() == Some(VFIO_PCI);
    // One that somebody bound for users without root's rights stays as it is.
    let may_unbind = || fs::OpenOptions::new().write(true).open(dir.join("driver/unbind")).is_ok();
    if bound && (larger.is_none() || !may_unbind()) {
        return Ok(plan);
    }
    if function.driver.is_some() {
        plan.take.push(Step::new(dir.join("driver/unbind"), address));
    }
    if let Some(n) = larger {
        // Only possible without a driver, and only where the bridges above have room.
        plan.take.push(Step::new(dir.join("resource0_resize"), n).optional());
    }
    plan.take.extend(to_vfio(sysfs, address));
    let mut back = back(sysfs, function);
    if bound {
        // It stays with vfio-pci.
        back.retain(|step| step != &unbind(sysfs, address));
    }
    // The function first, then what goes with it.
    plan.give_back.splice(0..0, back);
    Ok(plan)
}
#[cfg(test)]
mod tests {
    use super::super::fake::{DIR, Tree};
    use super::*;

    fn planned(tree: &Tree) -> Result<Plan, TakeError> {
        plan(&tree.sysfs(), &tree.gpu())
    }

    fn shown(tree: &Tree, steps: &[Step]) -> Vec<String> {
        let devices = tree.path("sys/bus/pci");
        let line = |s: &Step| format!("{}={}", s.path.strip_prefix(&devices).unwrap().display(), s.value);
        steps.iter().map(line).collect()
    }

    #[test]
    fn a_gpu_with_a_driver_is_taken_with_its_audio_and_both_go_back_to_their_drivers() {
        let tree = Tree::card("amdgpu");
        let plan = planned(&tree).unwrap();
        assert_eq!(
            shown(&tree, &plan.take),
            [
                "devices/0000:03:00.0/reset_method=",
                "devices/0000:03:00.1/driver/unbind=0000:03:00.1",
                "devices/0000:03:00.0/driver/unbind=0000:03:00.0",
                "devices/0000:03:00.0/resource0_resize=15",
                "devices/0000:03:00.0/driver_override=vfio-pci",
                "drivers_probe=0000:03:00.0",
            ]
        );
        assert_eq!(
            shown(&tree, &plan.give_back),
            [
                "devices/0000:03:00.0/driver_override=amdgpu",
                "drivers/vfio-pci/unbind=0000:03:00.0",
                "drivers_probe=0000:03:00.0",
                "devices/0000:03:00.0/driver_override=",
                "devices/0000:03:00.0/reset_method=default",
                "devices/0000:03:00.0/reset_method=flr bus",
                "devices/0000:03:00.1/driver_override=snd_hda_intel",
                "drivers/vfio-pci/unbind=0000:03:00.1",
                "drivers_probe=0000:03:00.1",
                "devices/0000:03:00.1/driver_override=",
            ]
        );
    }

    #[test]
    fn what_is_ready_for_vfio_is_left_there_but_is_never_reset() {
        let tree = Tree::card("vfio-pci");
        tree.write(&format!("{DIR}/resource0_resize"), "0000000000000100\n");
        let plan = planned(&tree).unwrap();
        assert_eq!(shown(&tree, &plan.take)[0], "devices/0000:03:00.0/reset_method=");
        for steps in [&plan.take, &plan.give_back] {
            assert!(!shown(&tree, steps).iter().any(|s| s.contains("00.0/driver")), "{plan:?}");
        }
        tree.write(&format!("{DIR}/reset_method"), "\n");
        assert_eq!(planned(&tree).unwrap().take.len(), 1, "only the audio");
    }

    #[test]
    fn what_vfio_has_is_with_vfio_again_after_its_window_was_enlarged_and_found_as_it_was() {
        let tree = Tree::card("vfio-pci");
        std::fs::remove_file(tree.path(&format!("{DIR}/reset_method"))).unwrap();
        let plan = planned(&tree).unwrap();
        assert_eq!(
            shown(&tree, &plan.take)[1..],
            [
                "devices/0000:03:00.0/driver/unbind=0000:03:00.0",
                "devices/0000:03:00.0/resource0_resize=15",
                "devices/0000:03:00.0/driver_override=vfio-pci",
                "drivers_probe=0000:03:00.0",
            ]
        );
        // Bound by its id: whoever bound it did not name the only driver.
        let back = &shown(&tree, &plan.give_back)[..3];
        assert_eq!(
            back,
            [
                "devices/0000:03:00.0/driver_override=vfio-pci",
                "drivers_probe=0000:03:00.0",
                "devices/0000:03:00.0/driver_override=",
            ]
        );
    }

    #[test]
    fn a_gpu_without_driver_is_left_without_one_and_with_the_override_that_it_had() {
        let tree = Tree::card("");
        tree.write(&format!("{DIR}/driver_override"), "pci-stub\n");
        let back = shown(&tree, &planned(&tree).unwrap().give_back);
        assert_eq!(back[0], "devices/0000:03:00.0/driver_override=pci-stub");
        assert!(!back.contains(&"drivers_probe=0000:03:00.0".to_owned()), "{back:?}");
    }

    #[test]
    fn a_kernel_that_would_reset_the_gpu_when_it_is_opened_is_refused() {
        let tree = Tree::card("");
        std::fs::remove_file(tree.path(&format!("{DIR}/reset_method"))).unwrap();
        assert!(planned(&tree).is_ok(), "no reset at all");
        tree.write(&format!("{DIR}/reset"), "");
        assert!(matches!(planned(&tree), Err(TakeError::ResetsOnOpen)));
    }

    #[test]
    fn a_group_with_other_cards_is_refused() {
        let tree = Tree::card("amdgpu");
        tree.function("0000:04:00.0", (0x144d, 0xa80a), 0x01_0802, "nvme", "5");
        let e = planned(&tree).unwrap_err().to_string();
        assert!(e.contains("0000:04:00.0") && e.contains("nvme"), "{e}");
    }

    #[test]
    fn a_machine_without_vfio_is_told_the_command() {
        let tree = Tree::card("amdgpu");
        std::fs::remove_dir_all(tree.path("sys/bus/pci/drivers/vfio-pci")).unwrap();
        assert!(planned(&tree).unwrap_err().to_string().contains("modprobe vfio-pci"));
    }
}
