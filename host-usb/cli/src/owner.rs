//! One owner for each device, and others that only look.
//!
//! The lock is a listening Unix socket with an abstract name made of the device's address. The kernel
//! takes it away with the process, however that ends, so that none can stay behind; there is no file
//! whose permissions could be wrong, and every user sees the same names. Whoever finds a device taken
//! learns from the socket which process has it. (A lock on `/dev/vfio/N` would tell nothing of devices
//! that are reached by other ways, and one on a file in `/run` would need a directory that everybody can
//! write to.) Names are seen within one network namespace: containers that share a device share theirs,
//! or VFIO itself refuses the second.
//!
//! Two more names belong to a device. At `:smi` its owner hears who wants to know what the device
//! measures, and answers ([`Owner::asked`]). `:look` is held by who looks at a device without an owner,
//! for a moment: a new owner waits until it is free, instead of being refused.

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
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

/// What locks are named by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    name: String,
    device: String,
}

impl Key {
    /// Of the PCI device at an address (`0000:03:00.0`).
    pub fn pci(address: &str) -> Key {
        Key { name: format!("amdev:pci:{address}"), device: format!("pci:{address}") }
    }

    /// Of the device on a USB port (`2-1.4`).
    pub fn usb(place: &str) -> Key {
        Key { name: format!("amdev:usb:{place}"), device: format!("the bridge on USB port {place}") }
    }

    /// Of the device that is served at a socket, by whatever path that is reached.
    pub fn socket(path: &Path) -> Result<Key, OwnerError> {
        let device = format!("vfio-user:{}", path.display());
        match path.metadata() {
            Ok(meta) => Ok(Key { name: format!("amdev:socket:{:x}:{:x}", meta.dev(), meta.ino()), device }),
            Err(why) => Err(OwnerError::System { device, why }),
        }
    }

    /// Listens under its name; `None` if somebody does already.
    fn listen(&self, what: &str) -> Result<Option<UnixListener>, OwnerError> {
        let address = SocketAddr::from_abstract_name(format!("{}{what}", self.name));
        match address.and_then(|at| UnixListener::bind_addr(&at)) {
            Ok(listener) => Ok(Some(listener)),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => Ok(None),
            Err(e) => Err(self.system(e)),
        }
    }

    /// Reaches who listens under its name; never waits for that process.
    fn connect(&self, what: &str) -> Result<UnixStream, Errno> {
        let address = SocketAddrUnix::new_abstract_name(format!("{}{what}", self.name).as_bytes())?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &address)?;
        Ok(socket.into())
    }

    fn system(&self, why: io::Error) -> OwnerError {
        OwnerError::System { device: self.device.clone(), why }
    }

    fn taken(&self, owner: String) -> OwnerError {
        OwnerError::Taken { device: self.device.clone(), owner }
    }

    /// The process that owns the device, if any.
    pub fn owner(&self) -> Option<String> {
        Some(self.who("")?.name)
    }

    /// A connection to the owner, over which it tells what the device measures. `None` if nobody owns the
    /// device.
    pub fn ask(&self) -> Result<Option<UnixStream>, OwnerError> {
        let start = Instant::now();
        let (owner, stream) = loop {
            let Some(owner) = self.who("") else { return Ok(None) };
            match self.connect(SMI) {
                Ok(stream) => break (owner, stream),
                // It does not listen yet, or any more, or too many ask it.
                Err(Errno::CONNREFUSED | Errno::AGAIN) if start.elapsed() < GIVING_BACK => {}
                Err(Errno::CONNREFUSED | Errno::AGAIN) => return Err(self.taken(owner.name)),
                Err(why) => return Err(self.system(why.into())),
            }
            std::thread::sleep(AGAIN);
        };
        stream.set_nonblocking(false).map_err(|why| self.system(why))?;
        // Names belong to who comes first: another user's process may pretend to have the device.
        if !trusted(&stream) {
            return Err(self.taken(owner.name));
        }
        Ok(Some(stream))
    }

    /// The process that listens under its name, as far as it can be seen.
    fn who(&self, what: &str) -> Option<Process> {
        let unknown = || Process { name: "another process".into(), lives: true };
        let socket = match self.connect(what) {
            Ok(socket) => socket,
            Err(Errno::CONNREFUSED) => return None,
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
}

/// A device that this process owns, until this is dropped or the process ends.
#[derive(Debug)]
pub struct Owner {
    lock: UnixListener,
    questions: Option<UnixListener>,
}

/// Where an owner is asked what its device measures.
const SMI: &str = ":smi";
/// What is held to look at a device that nobody owns.
const LOOK: &str = ":look";
/// How long what a dead owner left is waited for: somebody gives the device back in its name. As long
/// for who looks at it.
const GIVING_BACK: Duration = Duration::from_secs(5);
/// How often is looked whether a name is free.
const AGAIN: Duration = Duration::from_millis(10);
/// The most that an owner waits for who asked it.
const HEARS: Duration = Duration::from_millis(100);

impl Owner {
    /// Takes a device.
    pub fn of(key: &Key) -> Result<Owner, OwnerError> {
        let start = Instant::now();
        let lock = take(key, start)?;
        // Whoever looks at it has seen no owner, and is done soon.
        drop(free(key, start)?);
        // Without it, others cannot ask; the device works all the same.
        let questions = key.listen(SMI).ok().flatten().filter(|q| q.set_nonblocking(true).is_ok());
        Ok(Owner { lock, questions })
    }

    /// Takes a device that nobody owns for a moment, to look at it: others that want to own it wait.
    pub fn to_look(key: &Key) -> Result<Owner, OwnerError> {
        let lock = free(key, Instant::now())?;
        match key.who("") {
            Some(owner) => Err(key.taken(owner.name)),
            None => Ok(Owner { lock, questions: None }),
        }
    }

    /// The lock, for who gives the device back after the death of this process: it is held until that
    /// is closed as well.
    pub fn lock(&self) -> io::Result<OwnedFd> {
        self.lock.as_fd().try_clone_to_owned()
    }

    /// Whether others can ask.
    pub fn may_be_asked(&self) -> bool {
        self.questions.is_some()
    }

    /// Who wants to know what the device measures, if anybody does; an answer is written there. Never
    /// waits.
    pub fn asked(&self) -> Option<UnixStream> {
        let (stream, _) = self.questions.as_ref()?.accept().ok()?;
        stream.set_nonblocking(false).ok()?;
        stream.set_write_timeout(Some(HEARS)).ok()?;
        trusted(&stream).then_some(stream)
    }
}

/// Whether the process at the other end is this user's or root's.
fn trusted(stream: &UnixStream) -> bool {
    let me = rustix::process::geteuid();
    socket_peercred(stream).is_ok_and(|peer| me.is_root() || peer.uid.is_root() || peer.uid == me)
}

/// Takes the lock itself.
fn take(key: &Key, start: Instant) -> Result<UnixListener, OwnerError> {
    loop {
        if let Some(listener) = key.listen("")? {
            return Ok(listener);
        }
        match key.who("") {
            Some(owner) if owner.lives || start.elapsed() >= GIVING_BACK => {
                return Err(key.taken(owner.name));
            }
            // It has died, and its device is being given back.
            Some(_) => std::thread::sleep(AGAIN),
            // It has ended between the two.
            None => {}
        }
    }
}

/// Waits until nobody looks at a device, and then holds the right to.
fn free(key: &Key, start: Instant) -> Result<UnixListener, OwnerError> {
    loop {
        if let Some(listener) = key.listen(LOOK)? {
            return Ok(listener);
        }
        if start.elapsed() >= GIVING_BACK {
            let looks = key.who(LOOK).map_or_else(|| "another process".into(), |p| p.name);
            return Err(key.taken(looks));
        }
        std::thread::sleep(AGAIN);
    }
}

/// Who has a lock.
struct Process {
    name: String,
    lives: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_one_owner_at_a_time_who_is_named() {
        let address = format!("fake:{}:00.0", std::process::id());
        assert_eq!(Key::pci(&address).owner(), None);
        let first = Owner::of(&Key::pci(&address)).unwrap();
        for _ in 0..5000 {
            // More than can wait at a listening socket (net.core.somaxconn: 4096).
            let second = Owner::of(&Key::pci(&address)).unwrap_err().to_string();
            assert!(second.contains("is in use by"), "{second}");
        }
        assert!(Owner::of(&Key::pci(&format!("{address}1"))).is_ok(), "another device is free");
        drop(first);
        let again = Owner::of(&Key::pci(&address)).unwrap();
        let me = format!("process {}", std::process::id());
        assert!(Key::pci(&address).owner().is_some_and(|who| who.contains(&me)));
        drop(again);
    }

    #[test]
    fn a_lock_is_free_once_who_gives_the_device_back_is_done_too() {
        let address = format!("fake:{}:01.0", std::process::id());
        let owner = Owner::of(&Key::pci(&address)).unwrap();
        let kept = owner.lock().unwrap();
        drop(owner);
        assert!(matches!(Owner::of(&Key::pci(&address)), Err(OwnerError::Taken { .. })));
        drop(kept);
        assert!(Owner::of(&Key::pci(&address)).is_ok());
    }

    #[test]
    #[allow(clippy::zombie_processes, reason = "the child outlives its parent: that is what is tested")]
    fn what_a_dead_owner_left_is_waited_for() {
        use std::process::{Command, Stdio};
        let address = format!("fake:{}:02.0", std::process::id());
        // This very test again, as a process that takes the lock, gives it to a child and dies.
        let name = "AMDEV_TEST_OWNER";
        if let Ok(address) = std::env::var(name) {
            let owner = Owner::of(&Key::pci(&address)).unwrap();
            let mut child = Command::new("sleep");
            let child =
                child.arg("1").stdin(Stdio::null()).stderr(Stdio::null()).stdout(owner.lock().unwrap());
            child.spawn().unwrap();
            return;
        }
        let mut dies = Command::new(std::env::current_exe().unwrap());
        dies.args(["--exact", "owner::tests::what_a_dead_owner_left_is_waited_for"]).env(name, &address);
        assert!(dies.output().unwrap().status.success());
        assert!(Key::pci(&address).owner().is_some(), "the child has it");
        let start = Instant::now();
        assert!(Owner::of(&Key::pci(&address)).is_ok());
        assert!(start.elapsed() > Duration::from_millis(100), "{:?}", start.elapsed());
    }

    #[test]
    fn a_socket_is_the_same_device_under_each_of_its_names() {
        let dir = std::env::temp_dir().join(format!("amdev-owner-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (socket, link) = (dir.join("a.sock"), dir.join("b.sock"));
        let _listener = UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        let owner = Key::socket(&socket).and_then(|k| Owner::of(&k)).unwrap();
        assert!(matches!(Key::socket(&link).and_then(|k| Owner::of(&k)), Err(OwnerError::Taken { .. })));
        drop(owner);
        assert!(Key::socket(&link).and_then(|k| Owner::of(&k)).is_ok());
        assert!(matches!(Key::socket(&dir.join("none")), Err(OwnerError::System { .. })));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn who_looks_makes_an_owner_wait_and_none_looks_beside_an_owner() {
        let key = Key::pci(&format!("fake:{}:03.0", std::process::id()));
        let look = Owner::to_look(&key).unwrap();
        assert_eq!(key.owner(), None, "who looks owns nothing");
        let taking = std::thread::spawn({
            let key = key.clone();
            move || {
                let start = Instant::now();
                (Owner::of(&key).unwrap(), start.elapsed())
            }
        });
        std::thread::sleep(Duration::from_millis(200));
        drop(look);
        let (owner, waited) = taking.join().unwrap();
        assert!(waited > Duration::from_millis(100), "{waited:?}");
        assert!(matches!(Owner::to_look(&key), Err(OwnerError::Taken { .. })));
        drop(owner);
        assert!(Owner::to_look(&key).is_ok());
    }

    #[test]
    fn an_owner_hears_who_asks_and_answers() {
        use std::io::{Read as _, Write as _};
        let key = Key::pci(&format!("fake:{}:04.0", std::process::id()));
        assert!(key.ask().unwrap().is_none(), "there is nobody to ask");
        let owner = Owner::of(&key).unwrap();
        assert!(owner.asked().is_none(), "nobody has asked");
        let mut question = key.ask().unwrap().unwrap();
        let mut answer = owner.asked().unwrap();
        answer.write_all(b"315 W").unwrap();
        drop(answer);
        let mut heard = String::new();
        question.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "315 W");
        drop(owner);
        assert!(key.ask().unwrap().is_none());
        assert!(Owner::to_look(&key).unwrap().asked().is_none(), "who looks is not asked");
    }
}
