//! A vfio-user client of raw bytes: what it sends may be wrong.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub(crate) struct Reply {
    pub(crate) id: u16,
    pub(crate) command: u16,
    pub(crate) flags: u32,
    pub(crate) error: u32,
    pub(crate) data: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}

impl Reply {
    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.data[at..at + 4].try_into().unwrap())
    }
    pub(crate) fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.data[at..at + 8].try_into().unwrap())
    }
}

pub(crate) struct Client {
    pub(crate) socket: UnixStream,
    pub(crate) id: u16,
}

impl Client {
    pub(crate) fn connect(socket: &Path) -> Client {
        let socket = UnixStream::connect(socket).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client { socket, id: 0 }
    }

    pub(crate) fn message(&mut self, command: u16, flags: u32, size: u32, data: &[u8]) -> Vec<u8> {
        self.id += 1;
        let mut m = Vec::new();
        m.extend(self.id.to_le_bytes());
        m.extend(command.to_le_bytes());
        m.extend(size.to_le_bytes());
        m.extend(flags.to_le_bytes());
        m.extend([0; 4]);
        m.extend(data);
        m
    }

    pub(crate) fn send_fds(&mut self, command: u16, data: &[u8], fds: &[BorrowedFd<'_>]) {
        let m = self.message(command, 0, 16 + data.len() as u32, data);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let sent = sendmsg(self.socket.as_fd(), &[IoSlice::new(&m)], &mut control, SendFlags::empty());
        assert_eq!(sent, Ok(m.len()));
    }

    pub(crate) fn send(&mut self, command: u16, data: &[u8]) {
        self.send_fds(command, data, &[]);
    }

    pub(crate) fn receive(&mut self) -> Reply {
        let mut head = [0; 16];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut iov = [IoSliceMut::new(&mut head)];
        let got = recvmsg(self.socket.as_fd(), &mut iov, &mut control, RecvFlags::WAITALL).unwrap();
        assert_eq!(got.bytes, 16, "the server went away");
        let mut fds = Vec::new();
        for m in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = m {
                fds.extend(rights);
            }
        }
        let field = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        let mut data = vec![0; field(4) as usize - 16];
        self.socket.read_exact(&mut data).unwrap();
        let (flags, error) = (field(8), field(12));
        assert_eq!(
            flags,
            if error == 0 { 1 } else { 0x21 },
            "a reply, with the error bit if it has an errno"
        );
        assert!(error == 0 || data.is_empty(), "an error is the header alone");
        Reply { id: field(0) as u16, command: (field(0) >> 16) as u16, flags, error, data, fds }
    }

    pub(crate) fn ask_fds(&mut self, command: u16, data: &[u8], fds: &[BorrowedFd<'_>]) -> Reply {
        self.send_fds(command, data, fds);
        let reply = self.receive();
        assert_eq!((reply.id, reply.command), (self.id, command), "id and command are echoed");
        reply
    }

    pub(crate) fn ask(&mut self, command: u16, data: &[u8]) -> Reply {
        self.ask_fds(command, data, &[])
    }

    pub(crate) fn read(&mut self, region: u32, offset: u64, count: u32) -> Result<Vec<u8>, u32> {
        let reply = self.ask(9, &access(region, offset, count, &[]));
        if reply.error != 0 {
            return Err(reply.error);
        }
        assert_eq!(reply.data[..16], access(region, offset, count, &[])[..]);
        assert_eq!(reply.data.len(), 16 + count as usize);
        Ok(reply.data[16..].to_vec())
    }

    pub(crate) fn write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), u32> {
        let reply = self.ask(10, &access(region, offset, data.len() as u32, data));
        if reply.error != 0 {
            return Err(reply.error);
        }
        assert_eq!(reply.data, access(region, offset, data.len() as u32, &[]));
        Ok(())
    }
}

pub(crate) fn version(json: &str) -> Vec<u8> {
    [&[0, 0, 0, 0], json.as_bytes(), &[0]].concat()
}

pub(crate) fn access(region: u32, offset: u64, count: u32, data: &[u8]) -> Vec<u8> {
    [&offset.to_le_bytes()[..], &region.to_le_bytes(), &count.to_le_bytes(), data].concat()
}

pub(crate) fn words(w: &[u32]) -> Vec<u8> {
    w.iter().flat_map(|w| w.to_le_bytes()).collect()
}

pub(crate) fn map(flags: u32, offset: u64, iova: u64, size: u64) -> Vec<u8> {
    [words(&[32, flags]), [offset, iova, size].iter().flat_map(|v| v.to_le_bytes()).collect()].concat()
}

pub(crate) fn unmap(flags: u32, iova: u64, size: u64) -> Vec<u8> {
    [words(&[24, flags]), [iova, size].iter().flat_map(|v| v.to_le_bytes()).collect()].concat()
}

pub(crate) fn region(argsz: u32, index: u32) -> Vec<u8> {
    words(&[argsz, 0, index, 0, 0, 0, 0, 0])
}
