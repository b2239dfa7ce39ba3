//! Whether a PCI device may be taken from whoever uses it now.
//!
//! Everything is read below roots that the caller gives (`/sys`, `/proc`): tests make their own.

use std::path::{Path, PathBuf};

/// Why a device should be left alone.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The firmware of the machine shows its screen there.
    #[error("{0} is the display that the machine booted with; --force takes it all the same")]
    BootDisplay(String),
    /// A connector shows a picture.
    #[error("{device} drives the screen at {connector}; --force takes it all the same")]
    Screen {
        /// The device.
        device: String,
        /// The connector, `card0-DP-1`.
        connector: String,
    },
    /// Programs use it through its kernel driver.
    #[error("{device} is in use by {clients}; end them, or take it all the same with --force")]
    Clients {
        /// The device.
        device: String,
        /// Processes, by name and number.
        clients: String,
    },
}

/// Where the state of the machine is read.
#[derive(Clone, Debug)]
pub struct Roots {
    /// `/sys`.
    pub sys: PathBuf,
    /// `/proc`.
    pub proc: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Roots { sys: "/sys".into(), proc: "/proc".into() }
    }
}

/// Names of clients that are told before the rest is only counted.
const NAMED: usize = 5;

impl Roots {
    /// Directory of a PCI device.
    pub fn device(&self, address: &str) -> PathBuf {
        self.sys.join("bus/pci/devices").join(address)
    }

    /// Whether the device at a PCI address (`0000:03:00.0`) may be taken.
    pub fn may_take(&self, address: &str) -> Result<(), Refusal> {
        let dir = self.device(address);
        let device = format!("pci:{address}");
        if text(&dir.join("boot_vga")).is_some_and(|v| v == "1") {
            return Err(Refusal::BootDisplay(device));
        }
        let nodes = names(&dir.join("drm"));
        for card in &nodes {
            let connectors = dir.join("drm").join(card);
            for connector in names(&connectors) {
                let at = connectors.join(&connector);
                let is = |file: &str, value: &str| text(&at.join(file)).is_some_and(|v| v == value);
                if is("status", "connected") && is("enabled", "enabled") {
                    return Err(Refusal::Screen { device, connector });
                }
            }
        }
        let mut nodes: Vec<String> = nodes.iter().map(|n| format!("/dev/dri/{n}")).collect();
        if nodes.is_empty() {
            return Ok(());
        }
        // KFD's node serves all of its devices: whoever has it open may be using this one.
        nodes.push("/dev/kfd".into());
        let clients = self.clients(&nodes);
        if clients.is_empty() {
            return Ok(());
        }
        let mut text = clients.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        if clients.len() > NAMED {
            text += &format!(" and {} more", clients.len() - NAMED);
        }
        Err(Refusal::Clients { device, clients: text })
    }

    /// Processes that have one of these device nodes open, this one left out.
    fn clients(&self, nodes: &[String]) -> Vec<String> {
        let me = std::process::id().to_string();
        let mut found = Vec::new();
        for pid in names(&self.proc).into_iter().filter(|n| n.bytes().all(|b| b.is_ascii_digit()) && *n != me)
        {
            let dir = self.proc.join(&pid);
            let opened = names(&dir.join("fd"))
                .into_iter()
                .filter_map(|fd| std::fs::read_link(dir.join("fd").join(fd)).ok())
                .any(|to| nodes.iter().any(|node| Path::new(node) == to));
            if opened {
                let name = text(&dir.join("comm")).unwrap_or_else(|| "process".into());
                found.push(format!("{name} ({pid})"));
            }
        }
        found
    }

    /// The state in which the device sleeps, if it does: reading a register would wake it, or return
    /// nothing but ones.
    pub fn sleeps(&self, address: &str) -> Option<String> {
        let dir = self.device(address);
        let state = text(&dir.join("power_state"));
        let runtime = text(&dir.join("power/runtime_status"));
        state
            .filter(|s| s.starts_with("D3") || s == "D1" || s == "D2")
            .or(runtime.filter(|s| s == "suspended" || s == "suspending"))
    }
}

/// A file's line.
fn text(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Names in a directory, sorted; none if it cannot be read.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    const ADDRESS: &str = "0000:03:00.0";

    /// A machine with one GPU, driven by amdgpu, that nobody uses.
    struct Machine(Roots, PathBuf);

    impl Machine {
        fn new(name: &str) -> Machine {
            let dir = std::env::temp_dir().join(format!("amdev-safety-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            let machine = Machine(Roots { sys: dir.join("sys"), proc: dir.join("proc") }, dir);
            machine.put("boot_vga", "0\n");
            machine.put("drm/card1/card1-DP-1/status", "connected\n");
            machine.put("drm/card1/card1-DP-1/enabled", "disabled\n");
            machine.put("drm/card1/card1-HDMI-A-1/status", "disconnected\n");
            machine.put("drm/renderD129/uevent", "");
            machine.process(7, "idle", "/dev/null");
            machine
        }

        fn put(&self, file: &str, contents: &str) {
            let path = self.0.device(ADDRESS).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, contents).unwrap();
        }

        fn process(&self, pid: u32, name: &str, opened: &str) {
            let dir = self.0.proc.join(pid.to_string());
            fs::create_dir_all(dir.join("fd")).unwrap();
            fs::write(dir.join("comm"), format!("{name}\n")).unwrap();
            symlink(opened, dir.join("fd/3")).unwrap();
        }

        fn refusal(&self) -> String {
            self.0.may_take(ADDRESS).unwrap_err().to_string()
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.1);
        }
    }

    #[test]
    fn a_card_that_nobody_uses_may_be_taken() {
        let machine = Machine::new("free");
        assert_eq!(machine.0.may_take(ADDRESS), Ok(()));
        assert_eq!(machine.0.may_take("0000:04:00.0"), Ok(()), "without any of these files too");
    }

    #[test]
    fn the_boot_display_and_a_card_with_a_screen_are_refused() {
        let machine = Machine::new("screen");
        machine.put("drm/card1/card1-DP-1/enabled", "enabled\n");
        assert!(machine.refusal().contains("card1-DP-1"), "{}", machine.refusal());
        machine.put("boot_vga", "1\n");
        assert!(machine.refusal().contains("booted with"), "{}", machine.refusal());
    }

    #[test]
    fn a_card_with_open_clients_is_refused_and_they_are_named() {
        for (node, name) in
            [("/dev/dri/renderD129", "blender"), ("/dev/dri/card1", "Xorg"), ("/dev/kfd", "ollama")]
        {
            let machine = Machine::new(name);
            machine.process(12, "other", "/dev/dri/renderD128");
            assert_eq!(machine.0.may_take(ADDRESS), Ok(()), "another card is in use");
            machine.process(4711, name, node);
            assert!(machine.refusal().contains(&format!("{name} (4711)")), "{}", machine.refusal());
        }
    }

    #[test]
    fn many_clients_are_counted() {
        let machine = Machine::new("many");
        (100..109).for_each(|pid| machine.process(pid, "app", "/dev/dri/renderD129"));
        assert!(machine.refusal().contains("and 4 more"), "{}", machine.refusal());
    }

    #[test]
    fn a_card_in_d3_or_runtime_suspend_sleeps() {
        let machine = Machine::new("sleep");
        assert_eq!(machine.0.sleeps(ADDRESS), None);
        for (file, value, sleeps) in [
            ("power/runtime_status", "active", None),
            ("power/runtime_status", "suspended", Some("suspended")),
            ("power_state", "D3cold", Some("D3cold")),
            ("power_state", "unknown", Some("suspended")),
            ("power/runtime_status", "unsupported", None),
            ("power_state", "D0", None),
            ("power_state", "D3hot", Some("D3hot")),
        ] {
            machine.put(file, value);
            assert_eq!(machine.0.sleeps(ADDRESS).as_deref(), sleeps, "{file} {value}");
        }
    }
}
