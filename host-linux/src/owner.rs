//! One owner for each device.
//!
//! The lock is a listening Unix socket with an abstract name made of the device's address. The kernel
//! takes it away with the process, however that ends, so that none can stay behind; there is no file
//! whose permissions could be wrong, and every user sees the same names. Whoever finds a device taken
//! learns from the socket which process has it. (A lock on `/dev/vfio/N` would tell nothing of devices
//! that are reached by other ways, and one on a file in `/run` would need a directory that everybody can
//! write to.) Names are seen within one network namespace: containers that share a device share theirs,
//! or VFIO itself refuses the second.

use rustix::net::sockopt::socket_peercred;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// Why a device cannot be owned.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// Another process has it.
    #[error("{device} is in use by {owner}; wait until it ends, or stop it")]
    Taken {
        /// The device.
        device: String,
        /// The process that has it.
        owner: String,
    },
    /// The system refused something.
    #[error("taking {device}: {why}")]
    System {
        /// The device.
        device: String,
        /// Why.
        why: io::Error,
    },
}

/// A device that this process owns, until this is dropped or the process ends.
#[derive(Debug)]
pub struct Owner(UnixListener);

/// How long what a dead owner left is waited for: somebody gives the device back in its name.
const GIVING_BACK: Duration = Duration::from_secs(5);

impl Owner {
    /// The lock, for who gives the device back after the death of this process: it is held until that
    /// is closed as well.
    pub(crate) fn lock(&self) -> io::Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned()
    }

    /// Takes the PCI device at an address (`0000:03:00.0`).
    pub fn of_pci(address: &str) -> Result<Owner, OwnerError> {
        take(&format!("amdev:pci:{address}"), &format!("pci:{address}"))
    }

    /// Takes the device that is served at a socket, by whatever path that is reached.
    pub fn of_socket(path: &Path) -> Result<Owner, OwnerError> {
        let device = format!("vfio-user:{}", path.display());
        match path.metadata() {
            Ok(meta) => take(&format!("amdev:socket:{:x}:{:x}", meta.dev(), meta.ino()), &device),
            Err(why) => Err(OwnerError::System { device, why }),
        }
    }

    /// The process that owns the PCI device at an address, if any.
    pub fn who_has_pci(address: &str) -> Option<String> {
        Some(who(&SocketAddr::from_abstract_name(format!("amdev:pci:{address}")).ok()?)?.name)
    }
}

fn take(name: &str, device: &str) -> Result<Owner, OwnerError> {
    let system = |why| OwnerError::System { device: device.to_owned(), why };
    let address = SocketAddr::from_abstract_name(name).map_err(system)?;
    let start = Instant::now();
    loop {
        match UnixListener::bind_addr(&address) {
            Ok(listener) => return Ok(Owner(listener)),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            Err(e) => return Err(system(e)),
        }
        match who(&address) {
            Some(owner) if owner.lives || start.elapsed() >= GIVING_BACK => {
                return Err(OwnerError::Taken { device: device.to_owned(), owner: owner.name });
            }
            // It has died, and its device is being given back.
            Some(_) => std::thread::sleep(Duration::from_millis(20)),
            // It has ended between the two.
            None => {}
        }
    }
}

/// Who has a lock.
struct Process {
    name: String,
    lives: bool,
}

/// The process that listens at an address, as far as it can be seen.
fn who(address: &SocketAddr) -> Option<Process> {
    let unknown = || Process { name: "another process".into(), lives: true };
    let socket = match UnixStream::connect_addr(address) {
        Ok(socket) => socket,
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => return None,
        // As many have asked already as can wait.
        Err(_) => return Some(unknown()),
    };
    // Processes of other namespaces have no number here.
    let Ok(peer) = socket_peercred(&socket) else { return Some(unknown()) };
    let pid = peer.pid.as_raw_nonzero();
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    let lives = !comm.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    let name = match comm.unwrap_or_default().trim() {
        "" => format!("process {pid}"),
        name => format!("process {pid} ({name})"),
    };
    Some(Process { name, lives })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_one_owner_at_a_time_who_is_named() {
        let address = format!("fake:{}:00.0", std::process::id());
        assert_eq!(Owner::who_has_pci(&address), None);
        let first = Owner::of_pci(&address).unwrap();
        for _ in 0..300 {
            // More than can wait at a listening socket.
            let second = Owner::of_pci(&address).unwrap_err().to_string();
            assert!(second.contains("is in use by"), "{second}");
        }
        assert!(Owner::of_pci(&format!("{address}1")).is_ok(), "another device is free");
        drop(first);
        let again = Owner::of_pci(&address).unwrap();
        let me = format!("process {}", std::process::id());
        assert!(Owner::who_has_pci(&address).is_some_and(|who| who.contains(&me)));
        drop(again);
    }

    #[test]
    fn a_lock_is_free_once_who_gives_the_device_back_is_done_too() {
        let address = format!("fake:{}:01.0", std::process::id());
        let owner = Owner::of_pci(&address).unwrap();
        let kept = owner.lock().unwrap();
        drop(owner);
        assert!(matches!(Owner::of_pci(&address), Err(OwnerError::Taken { .. })));
        drop(kept);
        assert!(Owner::of_pci(&address).is_ok());
    }

    #[test]
    #[allow(clippy::zombie_processes, reason = "the child outlives its parent: that is what is tested")]
    fn what_a_dead_owner_left_is_waited_for() {
        use std::process::{Command, Stdio};
        let address = format!("fake:{}:02.0", std::process::id());
        // This very test again, as a process that takes the lock, gives it to a child and dies.
        let name = "AMDEV_TEST_OWNER";
        if let Ok(address) = std::env::var(name) {
            let owner = Owner::of_pci(&address).unwrap();
            let mut child = Command::new("sleep");
            let child =
                child.arg("1").stdin(Stdio::null()).stderr(Stdio::null()).stdout(owner.lock().unwrap());
            child.spawn().unwrap();
            return;
        }
        let mut dies = Command::new(std::env::current_exe().unwrap());
        dies.args(["--exact", "owner::tests::what_a_dead_owner_left_is_waited_for"]).env(name, &address);
        assert!(dies.output().unwrap().status.success());
        assert!(Owner::who_has_pci(&address).is_some(), "the child has it");
        let start = Instant::now();
        assert!(Owner::of_pci(&address).is_ok());
        assert!(start.elapsed() > Duration::from_millis(100), "{:?}", start.elapsed());
    }

    #[test]
    fn a_socket_is_the_same_device_under_each_of_its_names() {
        let dir = std::env::temp_dir().join(format!("amdev-owner-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (socket, link) = (dir.join("a.sock"), dir.join("b.sock"));
        let _listener = UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        let owner = Owner::of_socket(&socket).unwrap();
        assert!(matches!(Owner::of_socket(&link), Err(OwnerError::Taken { .. })));
        drop(owner);
        assert!(Owner::of_socket(&link).is_ok());
        assert!(matches!(Owner::of_socket(&dir.join("none")), Err(OwnerError::System { .. })));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
