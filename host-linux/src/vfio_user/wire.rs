//! Numbers of the protocol, and the header of a message.

use super::client::Failure;
use rustix::io::Errno;

/// Length of a header in bytes.
pub(super) const HEADER: usize = 16;

const TYPE_REPLY: u32 = 1;
const TYPE_MASK: u32 = 0xf;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub(super) enum Command {
    Version = 1,
    DmaMap = 2,
    DmaUnmap = 3,
    DeviceGetInfo = 4,
    GetRegionInfo = 5,
    GetIrqInfo = 7,
    SetIrqs = 8,
    RegionRead = 9,
    RegionWrite = 10,
    Reset = 13,
}

/// What a server may ask for: memory that was mapped for it.
pub(super) const DMA_READ: u16 = 11;
/// The same, to be written.
pub(super) const DMA_WRITE: u16 = 12;

/// The fields before a message's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) id: u16,
    pub(super) command: u16,
    /// Of the whole message, this header included.
    pub(super) size: u32,
    pub(super) flags: u32,
    pub(super) errno: u32,
}

impl Header {
    pub(super) fn request(id: u16, command: Command, payload: usize) -> Header {
        Header { id, command: command as u16, size: (HEADER + payload) as u32, flags: 0, errno: 0 }
    }

    /// The answer to a request of the server.
    pub(super) fn reply(of: &Header, answer: &Result<Vec<u8>, Errno>) -> Header {
        match answer {
            Ok(payload) => {
                Header { size: (HEADER + payload.len()) as u32, flags: TYPE_REPLY, errno: 0, ..*of }
            }
            Err(e) => {
                let errno = e.raw_os_error() as u32;
                Header { size: HEADER as u32, flags: TYPE_REPLY | ERROR, errno, ..*of }
            }
        }
    }

    /// Whether the sender waits for an answer.
    pub(super) fn wants_reply(&self) -> bool {
        self.flags & NO_REPLY == 0
    }

    pub(super) fn bytes(&self) -> [u8; HEADER] {
        let mut b = [0; HEADER];
        b[0..2].copy_from_slice(&self.id.to_le_bytes());
        b[2..4].copy_from_slice(&self.command.to_le_bytes());
        b[4..8].copy_from_slice(&self.size.to_le_bytes());
        b[8..12].copy_from_slice(&self.flags.to_le_bytes());
        b[12..16].copy_from_slice(&self.errno.to_le_bytes());
        b
    }

    pub(super) fn parse(b: &[u8; HEADER]) -> Header {
        Header {
            id: u16::from_le_bytes([b[0], b[1]]),
            command: u16::from_le_bytes([b[2], b[3]]),
            size: u32::from_le_bytes([b[4], b[5], b[6], b[7]]),
            flags: u32::from_le_bytes([b[8], b[9], b[10], b[11]]),
            errno: u32::from_le_bytes([b[12], b[13], b[14], b[15]]),
        }
    }

    pub(super) fn is_reply(&self) -> bool {
        self.flags & TYPE_MASK == TYPE_REPLY
    }

    /// The errno of an error reply.
    pub(super) fn error(&self) -> Option<i32> {
        (self.flags & ERROR != 0).then_some(self.errno as i32)
    }
}

/// Offset, region and length of an access.
pub(super) fn access(region: u32, offset: u64, count: u32) -> [u8; 16] {
    let mut b = [0; 16];
    b[0..8].copy_from_slice(&offset.to_le_bytes());
    b[8..12].copy_from_slice(&region.to_le_bytes());
    b[12..16].copy_from_slice(&count.to_le_bytes());
    b
}

/// Dwords one after another.
pub(super) fn words(w: &[u32]) -> Vec<u8> {
    w.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// A dword of a reply.
pub(super) fn u32_at(payload: &[u8], at: usize) -> Result<u32, Failure> {
    let field = payload.get(at..).and_then(|p| p.first_chunk());
    field.map(|f| u32::from_le_bytes(*f)).ok_or(Failure::Protocol("a reply is too short"))
}

/// A quadword of a reply.
pub(super) fn u64_at(payload: &[u8], at: usize) -> Result<u64, Failure> {
    let field = payload.get(at..).and_then(|p| p.first_chunk());
    field.map(|f| u64::from_le_bytes(*f)).ok_or(Failure::Protocol("a reply is too short"))
}
