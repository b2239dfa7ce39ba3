//! Gives a function back to its driver when the process dies before it could do so itself.
//!
//! A signal leaves no time for it: the kernel does not take a function from vfio-pci while a process
//! holds it open. So a shell waits for the end of the process, however it ends, and then writes
//! what has to be written. It listens to a pipe whose other end closes with the process.

use super::plan::Step;
use crate::owner::Owner;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Without a word from the process each pair of arguments is a file and what to write to it; the file
/// before them says that there is something to do, and goes.
const SCRIPT: &str = r#"trap '' INT TERM HUP
read -r _ && exit 0
record=$1
shift
while [ $# -ge 2 ]; do printf '%s\n' "$2" > "$1"; shift 2; done 2>/dev/null
rm -f "$record""#;

/// The shell that waits.
pub(super) struct Guard(Child);

impl Guard {
    /// Starts it; `None` where there is no shell: then only a process that is killed leaves the
    /// function where it is.
    pub(super) fn start(owner: Option<&Owner>, record: &Path, give_back: &[Step]) -> Option<Guard> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", SCRIPT, "amdev-guard"]).arg(record);
        for step in give_back {
            shell.arg(&step.path).arg(&step.value);
        }
        // Interrupts from the terminal are for the process, not for this.
        shell.process_group(0).current_dir("/");
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // It says nothing: what it has there is the lock, so that nobody takes the function meanwhile.
        if let Some(lock) = owner.and_then(|owner| owner.lock().ok()) {
            shell.stdout(lock);
        }
        let child = shell.spawn();
        child
            .inspect_err(|e| tracing::warn!("/bin/sh: {e}: killed, this process gives nothing back"))
            .ok()
            .map(Guard)
    }

    /// The function was given back: nothing is left to do.
    pub(super) fn dismiss(mut self) {
        if let Some(mut pipe) = self.0.stdin.take() {
            let _ = pipe.write_all(b"done\n");
        }
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::plan;
    use super::super::{fake::Tree, record};
    use super::*;
    use crate::owner::Key;

    fn guarded(owner: Option<&Owner>) -> (Tree, Guard) {
        let tree = Tree::new();
        tree.function("0000:03:00.0", (0x1002, 0x744c), 0x03_0000, "amdgpu", "5");
        let sysfs = tree.sysfs();
        let function = sysfs.function("0000:03:00.0".parse().unwrap()).unwrap();
        let steps = plan(&sysfs, &function).unwrap().give_back;
        assert!(record::write(&sysfs, function.address, &steps));
        let guard = Guard::start(owner, &record::path(&sysfs, function.address), &steps).unwrap();
        (tree, guard)
    }

    #[test]
    fn a_process_that_dies_has_its_device_given_back() {
        let (tree, mut guard) = guarded(None);
        // As the end of the process does.
        drop(guard.0.stdin.take());
        assert!(guard.0.wait().unwrap().success());
        assert_eq!(tree.read("sys/bus/pci/drivers/vfio-pci/unbind"), "0000:03:00.0\n");
        assert_eq!(tree.read("sys/bus/pci/drivers_probe"), "0000:03:00.0\n");
        assert!(!tree.path("run/amdev/0000:03:00.0").exists(), "nothing is left for `amdev release`");
    }

    #[test]
    fn the_device_has_its_owner_until_it_is_given_back() {
        let address = format!("fake:{}:03.0", std::process::id());
        let owner = Owner::of(&Key::pci(&address)).unwrap();
        let (_tree, mut guard) = guarded(Some(&owner));
        drop(owner);
        assert!(Key::pci(&address).owner().is_some());
        drop(guard.0.stdin.take());
        guard.0.wait().unwrap();
        assert_eq!(Key::pci(&address).owner(), None);
    }

    #[test]
    fn a_guard_that_is_dismissed_writes_nothing() {
        let (tree, guard) = guarded(None);
        guard.dismiss();
        assert_eq!(tree.read("sys/bus/pci/drivers_probe"), "");
    }
}
