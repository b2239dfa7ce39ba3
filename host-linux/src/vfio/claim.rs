//! Taking a function away from its driver, and giving it back.
//!
//! What has to be written to sysfs is planned first, from what sysfs shows: so that nothing is
//! touched where it cannot work, and so that the way back is known before the first step.

use super::guard::Guard;
use super::sysfs::{Function, Sysfs};
use super::{OpenError, TakeError};
use amdev_cli::spec::PciAddress;
use std::fs;
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
    /// Whether there is no use in going on without it.
    needed: bool,
}

impl Step {
    fn new(path: PathBuf, value: impl ToString) -> Step {
        Step { path, value: value.to_string(), needed: true }
    }

    fn optional(self) -> Step {
        Step { needed: false, ..self }
    }

    fn run(&self) -> std::io::Result<()> {
        // A line, in one write, as the kernel wants it.
        fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&self.path)
            .and_then(|mut file| std::io::Write::write_all(&mut file, format!("{}\n", self.value).as_bytes()))
    }
}

/// The way there and back.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Plan {
    pub(super) take: Vec<Step>,
    pub(super) give_back: Vec<Step>,
}

/// Plans how to bind a function to vfio-pci.
pub(super) fn plan(sysfs: &Sysfs, function: &Function) -> Result<Plan, TakeError> {
    let address = function.address;
    let dir = sysfs.dir(address);
    let vfio = sysfs.path("sys/bus/pci/drivers").join(VFIO_PCI);
    if !vfio.is_dir() {
        return Err(TakeError::NoVfioPci);
    }
    let probe = |address: PciAddress| Step::new(sysfs.path("sys/bus/pci/drivers_probe"), address);
    let mut plan = Plan::default();

    // VFIO resets what it opens and closes, if it can: that would undo what the machine's firmware
    // did to the GPU at power-on, which only the machine's firmware can do.
    let methods = dir.join("reset_method");
    match fs::read_to_string(&methods).map(|m| m.trim().to_owned()) {
        Ok(enabled) if enabled.is_empty() => {}
        Ok(enabled) => {
            plan.take.push(Step::new(methods.clone(), ""));
            plan.give_back.push(Step::new(methods, enabled).optional());
        }
        // Linux before 5.15.
        Err(_) if dir.join("reset").exists() => return Err(TakeError::ResetsOnOpen),
        Err(_) => {}
    }

    for other in sysfs.companions(function) {
        let Some(driver) = other.driver.filter(|d| !HARMLESS.contains(&d.as_str())) else { continue };
        let ours = |a: PciAddress| (a.domain, a.bus, a.device);
        if ours(other.address) != ours(address) {
            return Err(TakeError::Companion { address: other.address, driver });
        }
        // The GPU's audio. It is left without a driver: bound to vfio-pci as well, both together
        // would be a bus that VFIO resets when it closes them.
        plan.take.push(Step::new(sysfs.dir(other.address).join("driver/unbind"), other.address));
        plan.give_back.push(probe(other.address).optional());
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
    plan.take.push(Step::new(dir.join("driver_override"), VFIO_PCI));
    plan.take.push(probe(address));
    if !bound {
        let mut back = give_back(sysfs, address);
        if function.driver.is_none() {
            back.pop();
        }
        // The function first, then what goes with it.
        plan.give_back.splice(0..0, back);
    }
    Ok(plan)
}

/// From vfio-pci to the driver that the kernel chooses; the last step binds it.
fn give_back(sysfs: &Sysfs, address: PciAddress) -> Vec<Step> {
    vec![
        Step::new(sysfs.dir(address).join("driver_override"), ""),
        Step::new(sysfs.path("sys/bus/pci/drivers").join(VFIO_PCI).join("unbind"), address).optional(),
        Step::new(sysfs.path("sys/bus/pci/drivers_probe"), address),
    ]
}

/// Gives a function that was left with vfio-pci, and what goes with it, back to the kernel's drivers.
pub(super) fn release(sysfs: &Sysfs, function: &Function) -> Result<(), TakeError> {
    let mut steps = give_back(sysfs, function.address);
    let methods = sysfs.dir(function.address).join("reset_method");
    if methods.exists() {
        steps.insert(2, Step::new(methods, "default").optional());
    }
    for other in sysfs.companions(function) {
        if other.driver.is_none() {
            let probe = sysfs.path("sys/bus/pci/drivers_probe");
            steps.push(Step::new(probe, other.address).optional());
        }
    }
    run(&steps)
}

fn run(steps: &[Step]) -> Result<(), TakeError> {
    for step in steps {
        match step.run() {
            Ok(()) => tracing::debug!("{} <- {}", step.path.display(), step.value),
            Err(why) if step.needed => {
                let (path, value) = (step.path.display().to_string(), step.value.clone());
                return Err(TakeError::Write { path, value, why });
            }
            Err(why) => tracing::info!("{} <- {}: {why}", step.path.display(), step.value),
        }
    }
    Ok(())
}

/// A function bound to vfio-pci for this process. It goes back where it came from with
/// [`Claim::release`], when this is dropped, and when the process dies.
pub(super) struct Claim {
    give_back: Vec<Step>,
    guard: Option<Guard>,
}

impl Claim {
    /// Nothing was taken.
    pub(super) fn none() -> Claim {
        Claim { give_back: Vec::new(), guard: None }
    }

    /// Binds a function to vfio-pci.
    pub(super) fn take(sysfs: &Sysfs, function: &Function) -> Result<Claim, OpenError> {
        let plan = plan(sysfs, function)?;
        let guard = if plan.give_back.is_empty() { None } else { Guard::start(&plan.give_back) };
        let claim = Claim { give_back: plan.give_back, guard };
        // What was done is undone with the claim if a later step fails.
        run(&plan.take)?;
        if plan.take.iter().any(|s| s.path.ends_with("drivers_probe")) {
            let now = sysfs.function(function.address).map_err(|_| TakeError::Vanished)?;
            if now.driver.as_deref() != Some(VFIO_PCI) {
                return Err(
                    TakeError::NotBound { driver: now.driver.unwrap_or_else(|| "none".into()) }.into()
                );
            }
        }
        Ok(claim)
    }

    /// Gives the function back. Its files have to be closed before.
    pub(super) fn release(&mut self) -> Result<(), TakeError> {
        let steps = std::mem::take(&mut self.give_back);
        let done = run(&steps);
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
        }
        done
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Err(e) = self.release() {
            tracing::warn!("giving the device back: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::Tree;
    use super::*;

    const GPU: &str = "0000:03:00.0";
    const DIR: &str = "sys/bus/pci/devices/0000:03:00.0";

    fn card(driver: &str) -> Tree {
        let tree = Tree::new();
        tree.function(GPU, (0x1002, 0x744c), 0x03_0000, driver, "5");
        tree.function("0000:03:00.1", (0x1002, 0xab30), 0x04_0300, "snd_hda_intel", "5");
        tree.write(&format!("{DIR}/reset_method"), "flr bus\n");
        tree.write(&format!("{DIR}/resource"), "0x0000000080000000 0x000000008fffffff 0x000000000014220c\n");
        tree.write(&format!("{DIR}/resource0_resize"), "000000000000ff00\n");
        tree
    }

    fn planned(tree: &Tree) -> Result<Plan, TakeError> {
        let sysfs = tree.sysfs();
        plan(&sysfs, &sysfs.function(GPU.parse().unwrap()).unwrap())
    }

    fn shown(tree: &Tree, steps: &[Step]) -> Vec<String> {
        let devices = tree.path("sys/bus/pci");
        let line = |s: &Step| format!("{}={}", s.path.strip_prefix(&devices).unwrap().display(), s.value);
        steps.iter().map(line).collect()
    }

    #[test]
    fn a_gpu_with_a_driver_is_taken_with_its_audio_and_goes_back_the_same_way() {
        let tree = card("amdgpu");
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
                "devices/0000:03:00.0/driver_override=",
                "drivers/vfio-pci/unbind=0000:03:00.0",
                "drivers_probe=0000:03:00.0",
                "devices/0000:03:00.0/reset_method=flr bus",
                "drivers_probe=0000:03:00.1",
            ]
        );
    }

    #[test]
    fn what_is_ready_for_vfio_is_left_there_but_is_never_reset() {
        let tree = card("vfio-pci");
        tree.write(&format!("{DIR}/resource0_resize"), "0000000000000100\n");
        let plan = planned(&tree).unwrap();
        assert_eq!(shown(&tree, &plan.take)[0], "devices/0000:03:00.0/reset_method=");
        assert!(!shown(&tree, &plan.take).iter().any(|s| s.contains("00.0/driver")), "{plan:?}");
        tree.write(&format!("{DIR}/reset_method"), "\n");
        assert_eq!(planned(&tree).unwrap().take.len(), 1, "only the audio");
    }

    #[test]
    fn a_kernel_that_would_reset_the_gpu_when_it_is_opened_is_refused() {
        let tree = card("");
        std::fs::remove_file(tree.path(&format!("{DIR}/reset_method"))).unwrap();
        assert!(planned(&tree).is_ok(), "no reset at all");
        tree.write(&format!("{DIR}/reset"), "");
        assert!(matches!(planned(&tree), Err(TakeError::ResetsOnOpen)));
    }

    #[test]
    fn a_gpu_without_driver_is_left_without_one() {
        let tree = card("");
        let back = shown(&tree, &planned(&tree).unwrap().give_back);
        assert!(!back.contains(&"drivers_probe=0000:03:00.0".to_owned()), "{back:?}");
    }

    #[test]
    fn a_group_with_other_cards_is_refused() {
        let tree = card("amdgpu");
        tree.function("0000:04:00.0", (0x144d, 0xa80a), 0x01_0802, "nvme", "5");
        let e = planned(&tree).unwrap_err().to_string();
        assert!(e.contains("0000:04:00.0") && e.contains("nvme"), "{e}");
    }

    #[test]
    fn a_machine_without_vfio_is_told_the_command() {
        let tree = card("amdgpu");
        std::fs::remove_dir_all(tree.path("sys/bus/pci/drivers/vfio-pci")).unwrap();
        assert!(planned(&tree).unwrap_err().to_string().contains("modprobe vfio-pci"));
    }

    #[test]
    fn a_function_that_vfio_does_not_take_is_given_back_at_once() {
        // Nothing binds in this tree: the driver stays as it is.
        let tree = card("amdgpu");
        let sysfs = tree.sysfs();
        let function = sysfs.function(GPU.parse().unwrap()).unwrap();
        let error = Claim::take(&sysfs, &function).err().unwrap().to_string();
        assert!(error.contains("amdgpu"), "{error}");
        assert_eq!(tree.read(&format!("{DIR}/driver_override")), "\n");
        assert_eq!(tree.read("sys/bus/pci/drivers/vfio-pci/unbind"), "0000:03:00.0\n");
        assert_eq!(tree.read(&format!("{DIR}/reset_method")), "flr bus\n");
        assert_eq!(tree.read("sys/bus/pci/drivers/amdgpu/unbind"), "0000:03:00.0\n");
    }

    #[test]
    fn release_hands_a_function_that_was_left_behind_to_the_kernel() {
        let tree = card("vfio-pci");
        let sysfs = tree.sysfs();
        release(&sysfs, &sysfs.function(GPU.parse().unwrap()).unwrap()).unwrap();
        assert_eq!(tree.read(&format!("{DIR}/driver_override")), "\n");
        assert_eq!(tree.read(&format!("{DIR}/reset_method")), "default\n");
        assert_eq!(tree.read("sys/bus/pci/drivers_probe"), "0000:03:00.0\n");
    }
}
