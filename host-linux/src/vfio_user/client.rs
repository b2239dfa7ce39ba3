//! Requests and their replies, each with a deadline.

use super::memory::Memory;
use super::wire::{Command, DMA_READ, DMA_WRITE, HEADER, Header};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A server that has not answered by then is given up, as QEMU does.
const DEADLINE: Duration = Duration::from_secs(5);
/// The same for a reset of the device.
const RESET_DEADLINE: Duration = Duration::from_secs(60);
/// Requests under way before their replies are awaited. Their replies fit into the socket's buffer
/// many times, so that neither side waits for the other to read.
pub(super) const MAX_PENDING: usize = 64;
/// The most descriptors taken with one reply.
const MAX_FDS: usize = 8;
/// What other sizes are bounded by: no reply is longer.
pub(super) const MAX_REPLY: usize = (1 << 20) + 256;

/// Why a request was not served.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// Nobody listens at the socket.
    #[error("cannot connect: {0}; start the server first (`amdev-sim serve --gpu navi31 --socket PATH`)")]
    Connect(String),
    /// The server closed the connection.
    #[error("the server is gone; start it again and boot the device anew")]
    Gone,
    /// The server does not answer.
    #[error("the server did not answer within {0:?}; it hangs or is stopped")]
    Timeout(Duration),
    /// The server answered with an error.
    #[error("the server refused {request}: {}", reason(*.errno))]
    Refused {
        /// What was asked.
        request: String,
        /// Its errno.
        errno: i32,
    },
    /// The server breaks the protocol.
    #[error("the server breaks the vfio-user protocol: {0}")]
    Protocol(&'static str),
    /// The device is none that can be driven.
    #[error("{0}")]
    Device(String),
    /// The operating system refused something.
    #[error("{0}: {1}")]
    Os(&'static str, Errno),
}

/// The errno of an error reply is optional.
fn reason(errno: i32) -> String {
    match errno {
        0 => "it does not say why".into(),
        e => io::Error::from_raw_os_error(e).to_string(),
    }
}

/// A server's answer.
#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) payload: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
}

/// A connection to a server.
pub(super) struct Client {
    socket: UnixStream,
    path: PathBuf,
    next_id: u16,
    /// Requests whose replies were not read yet, in order.
    pending: VecDeque<(u16, Command)>,
    /// Memory that the server may access.
    pub(super) memory: Memory,
    /// The connection is of no use any more.
    dead: Option<Failure>,
}

impl Client {
    pub(super) fn connect(path: &Path) -> Result<Client, Failure> {
        let connect = |e: io::Error| Failure::Connect(e.to_string());
        let socket = UnixStream::connect(path).map_err(connect)?;
        socket.set_read_timeout(Some(DEADLINE)).map_err(connect)?;
        socket.set_write_timeout(Some(DEADLINE)).map_err(connect)?;
        Ok(Client {
            socket,
            path: path.to_owned(),
            next_id: 0,
            pending: VecDeque::new(),
            memory: Memory::default(),
            dead: None,
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn alive(&self) -> Result<(), Failure> {
        self.dead.clone().map_or(Ok(()), Err)
    }

    /// Remembers a failure after which nothing can be asked any more.
    fn lost<T>(&mut self, failure: Failure) -> Result<T, Failure> {
        if self.dead.is_none() {
            tracing::warn!("vfio-user:{}: {failure}", self.path.display());
            self.dead = Some(failure.clone());
        }
        Err(failure)
    }

    fn transmit(&mut self, mut parts: &mut [IoSlice<'_>], fds: &[BorrowedFd<'_>]) -> Result<(), Failure> {
        let mut first = true;
        while parts.iter().any(|p| !p.is_empty()) {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if first && !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
                return Err(Failure::Os("sending descriptors", Errno::TOOBIG));
            }
            match sendmsg(self.socket.as_fd(), parts, &mut control, SendFlags::NOSIGNAL) {
                Ok(n) => {
                    IoSlice::advance_slices(&mut parts, n);
                    first = false;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return self.lost(Failure::Timeout(DEADLINE)),
                Err(Errno::PIPE | Errno::CONNRESET) => return self.lost(Failure::Gone),
                Err(e) => return self.lost(Failure::Os("writing to the socket", e)),
            }
        }
        Ok(())
    }

    fn send(
        &mut self,
        command: Command,
        fields: &[u8],
        data: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), Failure> {
        self.alive()?;
        while self.pending.len() >= MAX_PENDING {
            if let Err(e) = self.next_reply(Instant::now() + DEADLINE) {
                return self.lost(e);
            }
        }
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let header = Header::request(id, command, fields.len() + data.len()).bytes();
        let mut parts = [IoSlice::new(&header), IoSlice::new(fields), IoSlice::new(data)];
        self.transmit(&mut parts, fds)?;
        self.pending.push_back((id, command));
        Ok(())
    }

    fn fill(&mut self, buf: &mut [u8], fds: &mut Vec<OwnedFd>, deadline: Instant) -> Result<(), Failure> {
        let mut done = 0;
        while done < buf.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let part = buf.get_mut(done..).unwrap_or_default();
            let mut iov = [IoSliceMut::new(part)];
            let got = recvmsg(self.socket.as_fd(), &mut iov, &mut control, RecvFlags::CMSG_CLOEXEC);
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    fds.extend(rights);
                }
            }
            match got.map(|got| got.bytes) {
                Ok(0) | Err(Errno::CONNRESET) => return self.lost(Failure::Gone),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return self.lost(Failure::Timeout(DEADLINE)),
                Err(e) => return self.lost(Failure::Os("reading from the socket", e)),
            }
            // A server that sends a byte now and then does not hold us either.
            if done < buf.len() && Instant::now() >= deadline {
                return self.lost(Failure::Timeout(DEADLINE));
            }
        }
        Ok(())
    }

    /// The reply to the oldest request under way.
    fn next_reply(&mut self, deadline: Instant) -> Result<Reply, Failure> {
        self.alive()?;
        let Some((id, command)) = self.pending.pop_front() else {
            return Err(Failure::Protocol("no request is under way"));
        };
        loop {
            let (header, reply) = self.message(deadline)?;
            if !header.is_reply() {
                self.serve(&header, &reply.payload)?;
                // A server that asks without end must not keep us from noticing that it answers nothing.
                if Instant::now() >= deadline {
                    return self.lost(Failure::Timeout(DEADLINE));
                }
                continue;
            }
            if (header.id, header.command) != (id, command as u16) {
                return self.lost(Failure::Protocol("a reply does not belong to the oldest request"));
            }
            return match header.error() {
                None => Ok(reply),
                Some(errno) => Err(Failure::Refused { request: format!("{command:?}"), errno }),
            };
        }
    }

    /// Reads a message: its header and payload, with its descriptors.
    fn message(&mut self, deadline: Instant) -> Result<(Header, Reply), Failure> {
        let mut reply = Reply::default();
        let mut bytes = [0; HEADER];
        self.fill(&mut bytes, &mut reply.fds, deadline)?;
        let header = Header::parse(&bytes);
        let len = (header.size as usize).checked_sub(HEADER).filter(|len| *len <= MAX_REPLY);
        let Some(len) = len else {
            return self.lost(Failure::Protocol("a message has an impossible length"));
        };
        let mut payload = vec![0; len];
        self.fill(&mut payload, &mut reply.fds, deadline)?;
        reply.payload = payload;
        Ok((header, reply))
    }

    /// Does what the server asks for: a server may access memory by messages, also where it has the
    /// descriptor of it.
    fn serve(&mut self, request: &Header, payload: &[u8]) -> Result<(), Failure> {
        let answer = match request.command {
            DMA_READ => self.memory.read(payload),
            DMA_WRITE => self.memory.write(payload),
            _ => Err(Errno::NOTSUP),
        };
        if !request.wants_reply() {
            return Ok(());
        }
        let header = Header::reply(request, &answer).bytes();
        let payload = answer.unwrap_or_default();
        self.transmit(&mut [IoSlice::new(&header), IoSlice::new(&payload)], &[])
    }

    /// Sends a request whose reply [`Client::drain`] looks at.
    pub(super) fn post(&mut self, command: Command, fields: &[u8], data: &[u8]) -> Result<(), Failure> {
        self.send(command, fields, data, &[])
    }

    /// Awaits the replies to what was posted. A refusal of one of them makes the connection useless:
    /// nobody knows what the device has missed.
    pub(super) fn drain(&mut self) -> Result<(), Failure> {
        self.alive()?;
        let deadline = Instant::now() + DEADLINE;
        while !self.pending.is_empty() {
            if let Err(e) = self.next_reply(deadline) {
                return self.lost(e);
            }
        }
        Ok(())
    }

    /// Asks several things at once, no more than [`MAX_PENDING`], and hands the replies to `take` in order.
    pub(super) fn ask_all<'p>(
        &mut self,
        command: Command,
        requests: impl Iterator<Item = &'p [u8]>,
        mut take: impl FnMut(&Reply) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.drain()?;
        let deadline = Instant::now() + DEADLINE;
        let mut failed = Ok(());
        for fields in requests {
            self.send(command, fields, &[], &[])?;
        }
        while !self.pending.is_empty() {
            let done = self.next_reply(deadline).and_then(|reply| take(&reply));
            failed = failed.and(done);
            self.alive()?;
        }
        failed
    }

    /// Resets the device, which may take its time.
    pub(super) fn reset(&mut self) -> Result<(), Failure> {
        self.drain()?;
        let timeout = |client: &Client, t| client.socket.set_read_timeout(Some(t));
        let os = |e: io::Error| Failure::Connect(e.to_string());
        timeout(self, RESET_DEADLINE).map_err(os)?;
        let done = self.send(Command::Reset, &[], &[], &[]);
        let done = done.and_then(|()| self.next_reply(Instant::now() + RESET_DEADLINE));
        timeout(self, DEADLINE).map_err(os)?;
        done.map(drop)
    }

    /// Asks for something and awaits the reply, after those of everything posted.
    pub(super) fn ask(
        &mut self,
        command: Command,
        fields: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Reply, Failure> {
        self.send(command, fields, &[], fds)?;
        let deadline = Instant::now() + DEADLINE;
        while self.pending.len() > 1 {
            if let Err(e) = self.next_reply(deadline) {
                return self.lost(e);
            }
        }
        self.next_reply(deadline)
    }

    /// The socket became readable though nothing was asked: does the server ask for something, or is
    /// it gone?
    pub(super) fn look(&mut self) -> Result<(), Failure> {
        self.alive()?;
        let mut byte = [0; 1];
        let mut iov = [IoSliceMut::new(&mut byte)];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recvmsg(self.socket.as_fd(), &mut iov, &mut RecvAncillaryBuffer::default(), flags) {
            Ok(got) if got.bytes > 0 => {
                let (header, message) = self.message(Instant::now() + DEADLINE)?;
                if header.is_reply() {
                    return self.lost(Failure::Protocol("a reply to nothing"));
                }
                self.serve(&header, &message.payload)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Ok(_) | Err(_) => self.lost(Failure::Gone),
        }
    }
}
