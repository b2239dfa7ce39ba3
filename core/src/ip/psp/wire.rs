//! Frames and command buffers of the PSP's ring (`psp_gfx_if.h`), as views over plain bytes.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Length of a frame in bytes.
pub const FRAME_LEN: usize = 64;
/// Length of a command buffer in bytes.
pub const COMMAND_LEN: usize = 1024;
/// Where the response starts in a command buffer.
pub const RESPONSE_AT: usize = 864;
/// Length of the response that is read back, in bytes: up to and including the TMR size.
pub const RESPONSE_LEN: usize = 20;

/// `struct psp_gfx_rb_frame`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy)]
#[repr(C)]
struct RawFrame {
    cmd_buf_addr_lo: U32,
    cmd_buf_addr_hi: U32,
    cmd_buf_size: U32,
    fence_addr_lo: U32,
    fence_addr_hi: U32,
    fence_value: U32,
    sid_lo: U32,
    sid_hi: U32,
    vmid: u8,
    frame_type: u8,
    reserved1: [u8; 2],
    reserved2: [U32; 7],
}

/// A frame: where the command and its fence are. All addresses are of VMID 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Memory controller address of the command buffer.
    pub command: u64,
    /// Memory controller address of the fence.
    pub fence: u64,
    /// What the PSP writes to the fence when it is done.
    pub fence_value: u32,
}

fn halves(value: u64) -> (U32, U32) {
    (U32::new(value as u32), U32::new((value >> 32) as u32))
}

fn whole(lo: U32, hi: U32) -> u64 {
    u64::from(lo.get()) | u64::from(hi.get()) << 32
}

impl Frame {
    /// The bytes of the frame.
    pub fn emit(&self) -> [u8; FRAME_LEN] {
        let mut raw = RawFrame::new_zeroed();
        (raw.cmd_buf_addr_lo, raw.cmd_buf_addr_hi) = halves(self.command);
        (raw.fence_addr_lo, raw.fence_addr_hi) = halves(self.fence);
        raw.fence_value = U32::new(self.fence_value);
        zerocopy::transmute!(raw)
    }

    /// Reads a frame; `None` unless there are 64 bytes.
    pub fn parse(bytes: &[u8]) -> Option<Frame> {
        let raw = RawFrame::read_from_bytes(bytes).ok()?;
        Some(Frame {
            command: whole(raw.cmd_buf_addr_lo, raw.cmd_buf_addr_hi),
            fence: whole(raw.fence_addr_lo, raw.fence_addr_hi),
            fence_value: raw.fence_value.get(),
        })
    }
}

/// A command; addresses are of VMID 0, lengths in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Hands over the table of contents; the answer says how large the TMR must be.
    LoadToc {
        /// Where the table is.
        addr: u64,
        /// Its length.
        len: u32,
    },
    /// Hands over the trusted memory region.
    SetupTmr {
        /// Memory controller address.
        virt: u64,
        /// Offset in VRAM.
        phys: u64,
        /// Its length.
        len: u32,
    },
    /// Loads an image.
    LoadIpFw {
        /// Where the image is.
        addr: u64,
        /// Its length.
        len: u32,
        /// Its type (`enum psp_gfx_fw_type`).
        fw_type: u32,
    },
    /// All graphics firmware is there; the RLC may load it.
    AutoloadRlc,
    /// A command that this driver does not send.
    Unknown(u32),
}

impl Command {
    /// `enum psp_gfx_cmd_id`.
    pub fn id(&self) -> u32 {
        match self {
            Command::SetupTmr { .. } => 0x05,
            Command::LoadIpFw { .. } => 0x06,
            Command::LoadToc { .. } => 0x20,
            Command::AutoloadRlc => 0x21,
            Command::Unknown(id) => *id,
        }
    }

    /// The firmware type of `LOAD_IP_FW`, 0 for other commands.
    pub fn fw_type(&self) -> u32 {
        match self {
            Command::LoadIpFw { fw_type, .. } => *fw_type,
            _ => 0,
        }
    }
}

/// `struct psp_gfx_cmd_resp`; `args` is the union of the commands' arguments.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone)]
#[repr(C)]
struct RawCommand {
    buf_size: U32,
    buf_version: U32,
    cmd_id: U32,
    resp_buf_addr_lo: U32,
    resp_buf_addr_hi: U32,
    resp_offset: U32,
    resp_buf_size: U32,
    args: [U32; 209],
    status: U32,
    session_id: U32,
    fw_addr_lo: U32,
    fw_addr_hi: U32,
    tmr_size: U32,
    rest: [U32; 35],
}

/// What the PSP answered (`struct psp_gfx_resp`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response {
    /// 0 for success.
    pub status: u32,
    /// Answer to `LOAD_TOC`: size of the TMR in bytes.
    pub tmr_size: u32,
}

/// A command buffer.
#[derive(Clone)]
pub struct CommandBuffer(RawCommand);

impl core::fmt::Debug for CommandBuffer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("CommandBuffer").field(&self.command()).field(&self.response()).finish()
    }
}

/// Bit 1 of `tmr_flags`: both addresses are given.
const VIRT_PHY_ADDR: u32 = 1 << 1;

impl CommandBuffer {
    /// The buffer of a command.
    pub fn new(command: &Command) -> Self {
        let mut raw = RawCommand::new_zeroed();
        raw.cmd_id = U32::new(command.id());
        let mut put = |index: usize, value: u32| {
            if let Some(arg) = raw.args.get_mut(index) {
                *arg = U32::new(value);
            }
        };
        match *command {
            Command::LoadToc { addr, len } => {
                put(0, addr as u32);
                put(1, (addr >> 32) as u32);
                put(2, len);
            }
            Command::SetupTmr { virt, phys, len } => {
                put(0, virt as u32);
                put(1, (virt >> 32) as u32);
                put(2, len);
                put(3, VIRT_PHY_ADDR);
                put(4, phys as u32);
                put(5, (phys >> 32) as u32);
            }
            Command::LoadIpFw { addr, len, fw_type } => {
                put(0, addr as u32);
                put(1, (addr >> 32) as u32);
                put(2, len);
                put(3, fw_type);
            }
            Command::AutoloadRlc | Command::Unknown(_) => {}
        }
        CommandBuffer(raw)
    }

    /// Reads a buffer; `None` unless there are 1024 bytes.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        RawCommand::read_from_bytes(bytes).ok().map(CommandBuffer)
    }

    /// The command in it.
    pub fn command(&self) -> Command {
        let arg = |i: usize| self.0.args.get(i).map_or(0, |v| v.get());
        let addr = |i: usize| u64::from(arg(i)) | u64::from(arg(i + 1)) << 32;
        match self.0.cmd_id.get() {
            0x05 => Command::SetupTmr { virt: addr(0), phys: addr(4), len: arg(2) },
            0x06 => Command::LoadIpFw { addr: addr(0), len: arg(2), fw_type: arg(3) },
            0x20 => Command::LoadToc { addr: addr(0), len: arg(2) },
            0x21 => Command::AutoloadRlc,
            id => Command::Unknown(id),
        }
    }

    /// The answer in it.
    pub fn response(&self) -> Response {
        Response { status: self.0.status.get(), tmr_size: self.0.tmr_size.get() }
    }

    /// All bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The bytes of the answer, to be read into.
    pub fn response_bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes().get_mut(RESPONSE_AT..RESPONSE_AT + RESPONSE_LEN).unwrap_or(&mut [])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_64_bytes_and_command_buffers_1024_with_the_response_at_864() {
        assert_eq!(size_of::<RawFrame>(), FRAME_LEN);
        assert_eq!(size_of::<RawCommand>(), COMMAND_LEN);
        assert_eq!(core::mem::offset_of!(RawCommand, args), 28);
        assert_eq!(core::mem::offset_of!(RawCommand, status), RESPONSE_AT);
        assert_eq!(core::mem::offset_of!(RawCommand, tmr_size), RESPONSE_AT + 16);
    }

    #[test]
    fn setup_tmr_of_the_golden_boot_has_both_addresses_and_the_flag() {
        let command = Command::SetupTmr { virt: 0x80_0030_0000, phys: 0x30_0000, len: 0x130_0000 };
        let buffer = CommandBuffer::new(&command);
        let b = buffer.as_bytes();
        assert_eq!(&b[8..12], [5, 0, 0, 0]);
        assert_eq!(
            &b[28..52],
            [0, 0, 0x30, 0, 0x80, 0, 0, 0, 0, 0, 0x30, 1, 2, 0, 0, 0, 0, 0, 0x30, 0, 0, 0, 0, 0]
        );
        assert!(b[52..].iter().all(|&x| x == 0));
    }

    #[test]
    fn every_command_survives_emit_and_parse() {
        for command in [
            Command::LoadToc { addr: 0x80_0020_0000, len: 2304 },
            Command::SetupTmr { virt: 0x80_0030_0000, phys: 0x30_0000, len: 0x130_0000 },
            Command::LoadIpFw { addr: 0x80_0020_0000, len: 0x3fe00, fw_type: 18 },
            Command::AutoloadRlc,
            Command::Unknown(0x77),
        ] {
            let buffer = CommandBuffer::new(&command);
            let back = CommandBuffer::parse(buffer.as_bytes()).map(|b| b.command());
            assert_eq!(back, Some(command));
        }
        let frame = Frame { command: 0x80_0010_5000, fence: 0x80_0010_6000, fence_value: 0xe1 };
        assert_eq!(Frame::parse(&frame.emit()), Some(frame));
        assert_eq!(Frame::parse(&[0; 63]), None);
        assert!(CommandBuffer::parse(&[0; 1023]).is_none());
    }

    #[test]
    fn status_and_tmr_size_are_read_from_the_answer() {
        let mut buffer = CommandBuffer::new(&Command::AutoloadRlc);
        let answer = buffer.response_bytes_mut();
        answer[..4].copy_from_slice(&0xffff_000au32.to_le_bytes());
        answer[16..].copy_from_slice(&0x130_0000u32.to_le_bytes());
        assert_eq!(buffer.response(), Response { status: 0xffff_000a, tmr_size: 0x130_0000 });
    }
}
