//! What a claim has to undo, below `/run`: for `amdev release`, where a process and its guard were
//! killed together, or a step of the way back failed. It does not outlive the machine's uptime, as what
//! it is about.

use super::plan::Step;
use super::sysfs::Sysfs;
use amdev_cli::spec::PciAddress;
use std::fs;
use std::path::{Component, Path, PathBuf};

pub(super) fn path(sysfs: &Sysfs, address: PciAddress) -> PathBuf {
    sysfs.path("run/amdev").join(address.to_string())
}

/// A line for each step: whether it is needed, file, value. False if it cannot be kept.
pub(super) fn write(sysfs: &Sysfs, address: PciAddress, steps: &[Step]) -> bool {
    let path = path(sysfs, address);
    let line = |s: &Step| format!("{}\t{}\t{}\n", u8::from(s.needed), s.path.display(), s.value);
    let text: String = steps.iter().map(line).collect();
    let done = fs::create_dir_all(sysfs.path("run/amdev")).and_then(|()| fs::write(&path, text));
    done.inspect_err(|e| tracing::info!("{}: {e}: `amdev release` will know nothing", path.display())).is_ok()
}

/// What was left to undo for a function.
pub(super) fn read(sysfs: &Sysfs, address: PciAddress) -> Option<Vec<Step>> {
    let text = fs::read_to_string(path(sysfs, address)).ok()?;
    let sys = sysfs.path("sys");
    // Nothing else is written with root's rights.
    let in_sys =
        |path: &Path| path.starts_with(&sys) && !path.components().any(|c| c == Component::ParentDir);
    let step = |line: &str| {
        let mut fields = line.splitn(3, '\t');
        let (needed, path, value) = (fields.next()?, PathBuf::from(fields.next()?), fields.next()?);
        in_sys(&path).then(|| Step { path, value: value.into(), needed: needed == "1" })
    };
    text.lines().map(step).collect()
}

pub(super) fn remove(sysfs: &Sysfs, address: PciAddress) {
    let path = path(sysfs, address);
    if let Err(e) = fs::remove_file(&path)
        && e.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!("{}: {e}; remove it, or `amdev release` repeats what it says", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::Tree;
    use super::*;

    #[test]
    fn what_is_to_be_undone_is_read_as_it_was_written_and_only_below_sys() {
        let tree = Tree::new();
        let (sysfs, address) = (tree.sysfs(), "0000:03:00.0".parse().unwrap());
        assert_eq!(read(&sysfs, address), None);
        let step = |path: &str, value: &str| Step::new(sysfs.path(path), value);
        let optional = Step { needed: false, ..step("sys/c", "flr bus") };
        let steps = [step("sys/a", ""), step("sys/b/c", "0000:03:00.0"), optional];
        write(&sysfs, address, &steps);
        assert_eq!(read(&sysfs, address).unwrap(), steps);
        remove(&sysfs, address);
        remove(&sysfs, address);
        assert_eq!(read(&sysfs, address), None);
        for wrong in ["etc/passwd", "sys/../etc/passwd"] {
            write(&sysfs, address, &[step("sys/a", ""), step(wrong, "x")]);
            assert_eq!(read(&sysfs, address), None, "{wrong}");
        }
        tree.write("run/amdev/0000:03:00.0", "1\n");
        assert_eq!(read(&sysfs, address), None, "cut off");
    }
}
