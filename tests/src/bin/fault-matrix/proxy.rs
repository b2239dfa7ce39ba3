//! Between a client and a server of vfio-user: passes messages on, but one.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const HEADER: usize = 16;
const MAX_FDS: usize = 8;
/// Well below the client's deadline.
const LATE: Duration = Duration::from_millis(300);

/// What happens to one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mishap {
    /// Neither it nor its answer arrive.
    Lost,
    /// The answer takes longer.
    Late,
    /// It is answered with an error.
    Refused,
    /// The connection ends.
    Gone,
}

/// A request as it passed: what it is about. Command, and region and offset of accesses.
pub(crate) type Seen = (u16, u32, u64);

/// A socket that leads to a server.
pub(crate) struct Proxy {
    pub(crate) socket: PathBuf,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Proxy {
    /// Leads one client to `server`; `mishap` happens to the request of that number.
    pub(crate) fn start(server: &Path, mishap: Option<(u64, Mishap)>) -> Result<Proxy, String> {
        let socket = server.with_extension("proxy");
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).map_err(|e| format!("proxy: {e}"))?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (log, to) = (Arc::clone(&seen), server.to_owned());
        std::thread::spawn(move || {
            let Ok((client, _)) = listener.accept() else { return };
            let Ok(server) = UnixStream::connect(to) else { return };
            // Either side ends it.
            let _ = pass(&client, &server, mishap, &log);
        });
        Ok(Proxy { socket, seen })
    }

    /// The requests that passed.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

struct Message {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

fn receive(from: &UnixStream) -> Option<Message> {
    let mut message = Message { bytes: vec![0; HEADER], fds: Vec::new() };
    let mut done = 0;
    while done < message.bytes.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut iov = [IoSliceMut::new(&mut message.bytes[done..])];
        let got = recvmsg(from.as_fd(), &mut iov, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?.bytes;
        for m in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = m {
                message.fds.extend(rights);
            }
        }
        if got == 0 {
            return None;
        }
        done += got;
        if done == HEADER {
            let b = &message.bytes;
            let len = u32::from_le_bytes([b[4], b[5], b[6], b[7]]) as usize;
            message.bytes.resize(len.clamp(HEADER, 2 << 20), 0);
        }
    }
    Some(message)
}

fn send(to: &UnixStream, message: &Message) -> Option<()> {
    let mut sent = 0;
    while sent < message.bytes.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<_> = message.fds.iter().map(|fd| fd.as_fd()).collect();
        if sent == 0 && !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&fds));
        }
        let iov = [IoSlice::new(&message.bytes[sent..])];
        sent += sendmsg(to.as_fd(), &iov, &mut control, SendFlags::NOSIGNAL).ok()?;
    }
    Some(())
}

fn about(bytes: &[u8]) -> Seen {
    let command = u16::from_le_bytes([bytes[2], bytes[3]]);
    // REGION_READ and REGION_WRITE: offset, region, length.
    match (command, bytes.get(16..28)) {
        (9 | 10, Some(f)) => {
            let offset = f[..8].iter().rev().fold(0, |v, b| v << 8 | u64::from(*b));
            (command, u32::from_le_bytes([f[8], f[9], f[10], f[11]]), offset)
        }
        _ => (command, 0, 0),
    }
}

fn pass(
    client: &UnixStream,
    server: &UnixStream,
    mishap: Option<(u64, Mishap)>,
    log: &Mutex<Vec<Seen>>,
) -> Option<()> {
    for n in 0.. {
        let request = receive(client)?;
        log.lock().unwrap_or_else(PoisonError::into_inner).push(about(&request.bytes));
        match mishap.filter(|(at, _)| *at == n).map(|(_, mishap)| mishap) {
            Some(Mishap::Lost) => continue,
            Some(Mishap::Gone) => return None,
            Some(Mishap::Refused) => {
                // The header again as a reply with EIO.
                let mut bytes = request.bytes[..HEADER].to_vec();
                bytes[4..8].copy_from_slice(&(HEADER as u32).to_le_bytes());
                bytes[8..12].copy_from_slice(&0x21u32.to_le_bytes());
                bytes[12..16].copy_from_slice(&5u32.to_le_bytes());
                send(client, &Message { bytes, fds: Vec::new() })?;
                continue;
            }
            Some(Mishap::Late) => std::thread::sleep(LATE),
            None => {}
        }
        send(server, &request)?;
        let reply = receive(server)?;
        send(client, &reply)?;
    }
    None
}
