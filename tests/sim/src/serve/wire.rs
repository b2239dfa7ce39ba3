//! Messages on the socket: whole ones in and out, with their descriptors.

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Length of a header.
pub(super) const HEADER: usize = 16;
/// The most bytes of data in one message.
pub(super) const MAX_DATA: u32 = 1 << 20;
/// The longest message that is taken in: data, and the fields before it.
const MAX_MESSAGE: usize = MAX_DATA as usize + 256;
/// The most descriptors with one message.
pub(super) const MAX_FDS: usize = 8;
/// A client that stops in the middle of a message, or takes no answer, is given up after this.
const DEADLINE: Duration = Duration::from_secs(10);

/// A reply.
const TYPE_REPLY: u32 = 1;
const TYPE_MASK: u32 = 0xf;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// The fields before a message's payload: id, command, size, flags, errno.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    id: u16,
    pub(super) command: u16,
    size: u32,
    flags: u32,
}

impl Header {
    fn parse(b: &[u8; HEADER]) -> Header {
        Header {
            id: u16::from_le_bytes([b[0], b[1]]),
            command: u16::from_le_bytes([b[2], b[3]]),
            size: u32::from_le_bytes([b[4], b[5], b[6], b[7]]),
            flags: u32::from_le_bytes([b[8], b[9], b[10], b[11]]),
        }
    }

    fn reply(&self, len: usize, error: Option<Errno>) -> [u8; HEADER] {
        let mut b = [0; HEADER];
        b[0..2].copy_from_slice(&self.id.to_le_bytes());
        b[2..4].copy_from_slice(&self.command.to_le_bytes());
        b[4..8].copy_from_slice(&((HEADER + len) as u32).to_le_bytes());
        let flags = TYPE_REPLY | if error.is_some() { ERROR } else { 0 };
        b[8..12].copy_from_slice(&flags.to_le_bytes());
        b[12..16].copy_from_slice(&error.map_or(0, Errno::raw_os_error).to_le_bytes());
        b
    }

    /// It asks for something, rather than answering.
    pub(super) fn is_command(&self) -> bool {
        self.flags & TYPE_MASK == 0
    }

    pub(super) fn is_reply(&self) -> bool {
        self.flags & TYPE_MASK == TYPE_REPLY
    }

    pub(super) fn wants_reply(&self) -> bool {
        self.flags & NO_REPLY == 0
    }
}

/// What came in.
pub(super) struct Message {
    pub(super) header: Header,
    /// `None` if its length is impossible; then it was read past.
    pub(super) payload: Option<Vec<u8>>,
    pub(super) fds: Vec<OwnedFd>,
}

/// A client's socket.
pub(super) struct Channel(UnixStream);

impl Channel {
    pub(super) fn new(socket: UnixStream) -> std::io::Result<Channel> {
        socket.set_read_timeout(Some(DEADLINE))?;
        socket.set_write_timeout(Some(DEADLINE))?;
        Ok(Channel(socket))
    }

    /// Fills `buf`; false if the client went away before its first byte. Bytes of one message only
    /// are asked for, so that the descriptors that come with them are that message's.
    fn fill(&self, buf: &mut [u8], fds: &mut Vec<OwnedFd>, idle: bool) -> Result<bool, Errno> {
        let mut done = 0;
        while done < buf.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut iov = [IoSliceMut::new(&mut buf[done..])];
            let n = match recvmsg(self.0.as_fd(), &mut iov, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(got) => got.bytes,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) if idle && done == 0 => continue,
                Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT),
                Err(e) => return Err(e),
            };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    fds.extend(rights);
                }
            }
            if n == 0 {
                return if idle && done == 0 { Ok(false) } else { Err(Errno::CONNRESET) };
            }
            done += n;
        }
        Ok(true)
    }

    /// The next message; `None` if the client has closed the connection.
    pub(super) fn receive(&self) -> Result<Option<Message>, Errno> {
        let mut fds = Vec::new();
        let mut bytes = [0; HEADER];
        if !self.fill(&mut bytes, &mut fds, true)? {
            return Ok(None);
        }
        let header = Header::parse(&bytes);
        let Some(len) = (header.size as usize).checked_sub(HEADER) else {
            return Ok(Some(Message { header, payload: None, fds }));
        };
        if len > MAX_MESSAGE {
            let mut left = len;
            let mut sink = vec![0; 1 << 16];
            while left > 0 {
                let part = left.min(sink.len());
                self.fill(&mut sink[..part], &mut fds, false)?;
                fds.clear();
                left -= part;
            }
            return Ok(Some(Message { header, payload: None, fds }));
        }
        let mut payload = vec![0; len];
        self.fill(&mut payload, &mut fds, false)?;
        Ok(Some(Message { header, payload: Some(payload), fds }))
    }

    /// Answers a message.
    pub(super) fn reply(
        &self,
        to: &Header,
        payload: &[u8],
        fd: Option<BorrowedFd<'_>>,
        error: Option<Errno>,
    ) -> Result<(), Errno> {
        let header = to.reply(payload.len(), error);
        let total = HEADER + payload.len();
        let mut sent = 0;
        while sent < total {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fds = fd.map(|fd| [fd]);
            if let Some(fds) = fds.as_ref().filter(|_| sent == 0) {
                control.push(SendAncillaryMessage::ScmRights(fds));
            }
            let head = &header[sent.min(HEADER)..];
            let body = &payload[sent.saturating_sub(HEADER).min(payload.len())..];
            let iov = [IoSlice::new(head), IoSlice::new(body)];
            match sendmsg(self.0.as_fd(), &iov, &mut control, SendFlags::NOSIGNAL) {
                Ok(n) => sent += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
