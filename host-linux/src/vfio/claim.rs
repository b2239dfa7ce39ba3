//! Taking a function away from its driver, and giving it back.

use super::guard::Guard;
use super::plan::{Step, VFIO_PCI, plan, to_any};
use super::sysfs::{Function, Sysfs};
use super::{OpenError, TakeError, device, record};
use crate::owner::Owner;
use amdev_cli::spec::PciAddress;
use std::io;

/// Gives a function that was left with vfio-pci back to the kernel's drivers, and what was taken with it
/// to its own; what was done, in a few words.
pub(super) fn release(sysfs: &Sysfs, function: &Function) -> Result<&'static str, OpenError> {
    let bound = function.driver.as_deref() == Some(VFIO_PCI);
    // The kernel would wait until nobody has it open.
    if bound
        && let Some(group) = function.group
        && let Err(e) = device::try_group(sysfs, group)
        && matches!(&e, OpenError::Node { why, .. } if why.kind() == io::ErrorKind::ResourceBusy)
    {
        return Err(e);
    }
    let address = function.address;
    match record::read(sysfs, address) {
        Some(steps) => {
            undo(address, &steps)?;
            record::remove(sysfs, address);
            Ok("given back to what had it before")
        }
        // Somebody else bound it. What goes with it has no driver because of them, or never had one.
        None if bound => {
            undo(address, &to_any(sysfs, address))?;
            Ok("given back to the kernel's drivers")
        }
        None => Ok("nothing to give back: vfio-pci does not have it"),
    }
}

/// Takes all steps, those behind one that fails as well.
fn undo(address: PciAddress, steps: &[Step]) -> Result<(), TakeError> {
    let failures: Vec<String> =
        steps.iter().filter_map(|step| step.run().err()).map(|e| e.to_string()).collect();
    if failures.is_empty() { Ok(()) } else { Err(TakeError::NotGivenBack { address, failures }) }
}

/// A function bound to vfio-pci for this process. It goes back where it came from with
/// [`Claim::release`], when this is dropped, and when the process dies.
pub(super) struct Claim {
    sysfs: Sysfs,
    address: PciAddress,
    give_back: Vec<Step>,
    guard: Option<Guard>,
}

impl Claim {
    /// Binds a function to vfio-pci.
    pub(super) fn take(
        sysfs: &Sysfs,
        function: &Function,
        owner: Option<&Owner>,
    ) -> Result<Claim, OpenError> {
        let address = function.address;
        let plan = plan(sysfs, function)?;
        let mut left = Vec::new();
        if function.driver.as_deref() == Some(VFIO_PCI) {
            // Somebody else may have it open: then nothing is touched.
            device::try_group(sysfs, function.group.ok_or(OpenError::NoIommu)?)?;
            // A process that died, and its guard with it, left it there: it goes back with this one.
            left = record::read(sysfs, address).unwrap_or_default();
        }
        let mut from_before = left.len();
        let mut give_back = [left, plan.give_back].concat();
        if !give_back.is_empty() && !record::write(sysfs, address, &give_back) {
            // What others left is theirs who may write there.
            give_back.drain(..std::mem::take(&mut from_before));
        }
        let mut claim = Claim { sysfs: sysfs.clone(), address, give_back, guard: None };
        if !claim.give_back.is_empty() {
            claim.guard = Guard::start(owner, &record::path(sysfs, address), &claim.give_back);
        }
        // What was done is undone with the claim if a later step fails.
        for (i, step) in plan.take.iter().enumerate() {
            step.run().inspect_err(|_| {
                if i == 0 {
                    claim.give_back.truncate(from_before);
                }
            })?;
        }
        if plan.take.iter().any(|s| s.path.ends_with("drivers_probe")) {
            let now = sysfs.function(address).map_err(|_| TakeError::Vanished)?;
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
        let done = undo(self.address, &steps);
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
            // After a failure `amdev release` finds there what to do.
            if done.is_ok() {
                record::remove(&self.sysfs, self.address);
            }
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
    use super::super::fake::{AUDIO, DIR, GPU, Tree};
    use super::*;
    use std::os::unix::net::UnixListener;

    const RECORD: &str = "run/amdev/0000:03:00.0";
    const UNBIND: &str = "sys/bus/pci/drivers/vfio-pci/unbind";
    const PROBE: &str = "sys/bus/pci/drivers_probe";

    fn taken(tree: &Tree) -> Result<Claim, OpenError> {
        Claim::take(&tree.sysfs(), &tree.gpu(), None)
    }

    /// A card that vfio-pci has and that needs no larger window: taking it succeeds in this tree.
    fn bound() -> Tree {
        let tree = Tree::card("vfio-pci");
        tree.write(&format!("{DIR}/resource0_resize"), "0000000000000100\n");
        tree
    }

    fn line(text: &str) -> String {
        format!("{text}\n")
    }

    #[test]
    fn a_function_that_vfio_does_not_take_is_given_back_at_once() {
        // Nothing binds in this tree: the driver stays as it is.
        let tree = Tree::card("amdgpu");
        let error = taken(&tree).err().unwrap().to_string();
        assert!(error.contains("amdgpu"), "{error}");
        assert_eq!(tree.read("sys/bus/pci/drivers/amdgpu/unbind"), line(GPU));
        assert_eq!(tree.read(&format!("{DIR}/driver_override")), "\n");
        assert_eq!(tree.read(UNBIND), line(AUDIO), "the last that was taken from vfio-pci, if it was there");
        assert_eq!(tree.read(&format!("{DIR}/reset_method")), "flr bus\n");
        assert!(!tree.path(RECORD).exists());
    }

    #[test]
    fn a_function_whose_group_cannot_be_opened_is_not_touched() {
        let tree = bound();
        std::fs::remove_file(tree.path("dev/vfio/5")).unwrap();
        let _socket = UnixListener::bind(tree.path("dev/vfio/5")).unwrap();
        let error = taken(&tree).err().unwrap();
        assert!(matches!(error, OpenError::Node { .. }), "{error}");
        assert_eq!(tree.read(&format!("{DIR}/reset_method")), "flr bus\n");
        assert_eq!(tree.read("sys/bus/pci/drivers/snd_hda_intel/unbind"), "");
        assert!(!tree.path(RECORD).exists());
    }

    #[test]
    fn a_first_step_that_is_refused_leaves_nothing_to_give_back() {
        let tree = bound();
        std::fs::remove_file(tree.path(&format!("{DIR}/reset_method"))).unwrap();
        std::fs::remove_file(tree.path("sys/bus/pci/drivers/snd_hda_intel/unbind")).unwrap();
        std::fs::create_dir(tree.path("sys/bus/pci/drivers/snd_hda_intel/unbind")).unwrap();
        let error = taken(&tree).err().unwrap();
        assert!(matches!(error, OpenError::Take(TakeError::Write { .. })), "{error}");
        assert_eq!(tree.read(PROBE), "");
        assert!(!tree.path(RECORD).exists());
    }

    #[test]
    fn giving_back_goes_on_behind_what_fails_and_tells_all_of_it() {
        let tree = bound();
        let mut claim = taken(&tree).unwrap();
        assert_eq!(tree.read(&format!("{DIR}/reset_method")), "\n");
        assert!(tree.path(RECORD).exists());
        let audio = "sys/bus/pci/devices/0000:03:00.1/driver_override";
        for file in [&format!("{DIR}/reset_method"), audio] {
            std::fs::remove_file(tree.path(file)).unwrap();
        }
        let error = claim.release().unwrap_err().to_string();
        for word in
            ["reset_method", "0000:03:00.1/driver_override", "amdev --device pci:0000:03:00.0 release"]
        {
            assert!(error.contains(word), "{word}: {error}");
        }
        assert_eq!(tree.read(PROBE), line(AUDIO), "the audio has its driver all the same");
        // What has failed is done by `amdev release`, once it can.
        for file in [&format!("{DIR}/reset_method"), audio] {
            tree.write(file, "");
        }
        drop(claim);
        release(&tree.sysfs(), &tree.gpu()).unwrap();
        assert_eq!(tree.read(&format!("{DIR}/reset_method")), "flr bus\n");
        assert!(!tree.path(RECORD).exists());
    }

    #[test]
    fn what_a_process_that_was_killed_with_its_guard_left_goes_back_with_the_next_claim() {
        let tree = bound();
        std::mem::forget(taken(&tree).unwrap());
        // As the kernel has it then: the audio without a driver.
        std::fs::remove_file(tree.path("sys/bus/pci/devices/0000:03:00.1/driver")).unwrap();
        taken(&tree).unwrap().release().unwrap();
        assert_eq!(tree.read(&format!("{DIR}/reset_method")), "flr bus\n");
        assert_eq!(tree.read(PROBE), line(AUDIO));
        assert!(!tree.path(RECORD).exists());
    }

    #[test]
    fn release_hands_what_somebody_bound_to_vfio_to_the_kernel_and_nothing_else() {
        let tree = Tree::card("vfio-pci");
        std::fs::remove_file(tree.path("sys/bus/pci/devices/0000:03:00.1/driver")).unwrap();
        let done = release(&tree.sysfs(), &tree.gpu()).unwrap();
        assert!(done.contains("kernel's drivers"), "{done}");
        assert_eq!(tree.read(&format!("{DIR}/driver_override")), "\n");
        assert_eq!(tree.read(&format!("{DIR}/reset_method")), "default\n");
        assert_eq!(tree.read(PROBE), line(GPU), "the audio never had a driver, for all that is known");
    }

    #[test]
    fn release_does_not_touch_what_vfio_does_not_have() {
        for driver in ["", "amdgpu"] {
            let tree = Tree::card(driver);
            let done = release(&tree.sysfs(), &tree.gpu()).unwrap();
            assert!(done.contains("nothing to give back"), "{done}");
            assert_eq!((tree.read(PROBE), tree.read(UNBIND)), (String::new(), String::new()));
            assert_eq!(tree.read(&format!("{DIR}/driver_override")), "(null)\n");
        }
    }
}
