//! From a header to the images of a file.

use amdev_core::firmware::{FwType, SosComponent};
use heapless::Vec;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::error::Problem;
use crate::types;
use crate::wire::*;

mod psp;
mod rlc;

/// Bytes that [`File::parse`] needs at most from the start of a file.
pub const HEAD: usize = 512;
/// The most images of one file.
pub const MAX_PIECES: usize = 32;
/// The largest file accepted (real ones have at most about 1 MiB).
pub const MAX_FILE: u64 = 16 << 20;

/// Power play tables of an SMU file; real ones have up to 6.
const MAX_PPTABLES: u32 = 16;

/// What a file is for; decides which headers are possible.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileKind {
    /// The PSP's SOS container.
    Sos,
    /// SMU (SMC).
    Smu,
    /// SDMA engines.
    Sdma,
    /// Prefetch parser.
    Pfp,
    /// Micro engine.
    Me,
    /// Compute micro engine.
    Mec,
    /// IMU.
    Imu,
    /// RLC.
    Rlc,
    /// A table of contents in a file of its own (APUs).
    Toc,
}

impl FileKind {
    /// All kinds.
    pub const ALL: [FileKind; 9] = [
        FileKind::Sos,
        FileKind::Smu,
        FileKind::Sdma,
        FileKind::Pfp,
        FileKind::Me,
        FileKind::Mec,
        FileKind::Imu,
        FileKind::Rlc,
        FileKind::Toc,
    ];

    /// Name in a message.
    pub const fn name(self) -> &'static str {
        match self {
            FileKind::Sos => "SOS",
            FileKind::Smu => "SMU",
            FileKind::Sdma => "SDMA",
            FileKind::Pfp => "PFP",
            FileKind::Me => "ME",
            FileKind::Mec => "MEC",
            FileKind::Imu => "IMU",
            FileKind::Rlc => "RLC",
            FileKind::Toc => "TOC",
        }
    }
}

/// What an image of a file is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// A component of the SOS container.
    Sos(SosComponent),
    /// A component for an auxiliary kind of device, by its number in `enum psp_fw_type`.
    Aux(u32),
    /// A component of the SOS container that this crate does not know, by its number.
    Unknown(u32),
    /// An image of this type.
    Ip(FwType),
    /// A power play table of the SMU, by its id.
    PpTable(u32),
}

/// An image inside a file; never empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// What it is.
    pub role: Role,
    /// Offset in the file in bytes.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
}

/// A checked header and the images it describes. All of them lie inside the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// What the file is for.
    pub kind: FileKind,
    /// The common header.
    pub header: CommonHeader,
    /// The images, in the order of the header.
    pub pieces: Vec<Piece, MAX_PIECES>,
    /// Start address of an RS64 engine's program in bytes.
    pub ucode_start: Option<u64>,
}

impl File {
    /// Version of the header.
    pub fn header_version(&self) -> (u16, u16) {
        (self.header.header_version_major.get(), self.header.header_version_minor.get())
    }

    /// Version of the firmware.
    pub fn ucode_version(&self) -> u32 {
        self.header.ucode_version.get()
    }

    /// The first image with this role.
    pub fn piece(&self, role: Role) -> Option<Piece> {
        self.pieces.iter().find(|p| p.role == role).copied()
    }

    /// What a PSP cannot do without and this file lacks; `None` for other kinds of files.
    pub fn missing_component(&self) -> Option<&'static str> {
        let needed = [
            (SosComponent::Sos, "PSP_SOS"),
            (SosComponent::SysDrv, "PSP_SYS_DRV"),
            (SosComponent::Toc, "PSP_TOC"),
        ];
        let lacks = |(component, _): &&_| self.piece(Role::Sos(*component)).is_none();
        needed.iter().find(lacks).filter(|_| self.kind == FileKind::Sos).map(|(_, name)| *name)
    }

    /// Parses a file that is in memory whole.
    pub fn parse(kind: FileKind, bytes: &[u8]) -> Result<File, Problem> {
        let head = bytes.get(..bytes.len().min(HEAD)).unwrap_or(&[]);
        Self::parse_with(kind, head, bytes.len() as u64, |offset, buf| {
            let end = offset as usize + buf.len();
            let from = bytes.get(offset as usize..end);
            buf.copy_from_slice(from.ok_or(Problem::Read { offset, reason: "end of file" })?);
            Ok(())
        })
    }

    /// Parses the header of a file of `len` bytes. `head` is its start, [`HEAD`] bytes or all of a
    /// shorter file; `read` (offset, buffer to fill) is asked for lists that stand elsewhere.
    pub fn parse_with(
        kind: FileKind,
        head: &[u8],
        len: u64,
        read: impl FnMut(u64, &mut [u8]) -> Result<(), Problem>,
    ) -> Result<File, Problem> {
        let header: CommonHeader = *view(head, len, 0, "common_firmware_header")?;
        if len > MAX_FILE {
            return Err(Problem::Value { field: "file length", found: len, expected: "at most 16 MiB" });
        }
        let size_bytes = header.size_bytes.get();
        if size_bytes as u64 != len {
            return Err(Problem::Size { size_bytes, have: len });
        }
        let header_size = header.header_size_bytes.get() as u64;
        if header_size < size_of::<CommonHeader>() as u64 || header_size > len {
            return Err(Problem::Value {
                field: "header_size_bytes",
                found: header_size,
                expected: "at least 32, at most the file's length",
            });
        }
        let mut parser = Parser {
            head,
            len,
            payload: header.ucode_array_offset_bytes.get(),
            payload_len: header.ucode_size_bytes.get(),
            file: File { kind, header, pieces: Vec::new(), ucode_start: None },
        };
        parser.check(
            "ucode_array_offset_bytes/ucode_size_bytes",
            parser.payload as u64,
            parser.payload_len,
        )?;
        match kind {
            FileKind::Sos => parser.psp()?,
            FileKind::Toc => parser.toc()?,
            FileKind::Smu => parser.smu(read)?,
            FileKind::Sdma => parser.sdma()?,
            FileKind::Pfp => parser.cp(types::CP_PFP, types::RS64_PFP, types::RS64_PFP_P0_STACK)?,
            FileKind::Me => parser.cp(types::CP_ME, types::RS64_ME, types::RS64_ME_P0_STACK)?,
            FileKind::Mec => parser.cp(types::CP_MEC, types::RS64_MEC, types::RS64_MEC_P0_STACK)?,
            FileKind::Imu => parser.imu()?,
            FileKind::Rlc => parser.rlc()?,
        }
        Ok(parser.file)
    }
}

fn view<'a, T: FromBytes + KnownLayout + Immutable + Unaligned>(
    head: &'a [u8],
    len: u64,
    offset: usize,
    field: &'static str,
) -> Result<&'a T, Problem> {
    let end = offset + size_of::<T>();
    let short = Problem::TooShort { field, need: end as u64, have: len };
    T::ref_from_bytes(head.get(offset..end).ok_or(short)?).map_err(|_| short)
}

/// Where headers stand: behind the common one, and behind the part that an earlier minor version
/// defines.
const AT: usize = size_of::<CommonHeader>();
const SMC_AT: usize = AT + size_of::<SmcV1_0>();

struct Parser<'a> {
    head: &'a [u8],
    len: u64,
    payload: u32,
    payload_len: u32,
    file: File,
}

impl<'a> Parser<'a> {
    fn version(&self) -> (u16, u16) {
        self.file.header_version()
    }

    fn unknown_version(&self, supported: &'static str) -> Problem {
        let (major, minor) = self.version();
        Problem::Version { kind: self.file.kind.name(), major, minor, supported }
    }

    fn view<T: FromBytes + KnownLayout + Immutable + Unaligned>(
        &self,
        offset: usize,
        field: &'static str,
    ) -> Result<&'a T, Problem> {
        view(self.head, self.len, offset, field)
    }

    fn check(&self, field: &'static str, offset: u64, size: u32) -> Result<(), Problem> {
        let size = size as u64;
        if offset.saturating_add(size) > self.len {
            return Err(Problem::OutOfFile { field, offset, size, have: self.len });
        }
        Ok(())
    }

    /// Notes an image at a file offset. Empty ones are none: RLC v2.3 of GC 11.5.0 has an RLCV of
    /// size 0.
    fn piece(&mut self, role: Role, field: &'static str, offset: u64, len: u32) -> Result<(), Problem> {
        self.check(field, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        // Inside the file, hence below 16 MiB.
        let piece = Piece { role, offset: offset as u32, len };
        let limit = MAX_PIECES as u32;
        self.file.pieces.push(piece).map_err(|_| Problem::TooMany { field, found: limit + 1, limit })
    }

    fn payload_piece(&mut self, role: Role) -> Result<(), Problem> {
        self.piece(role, "ucode_size_bytes", self.payload as u64, self.payload_len)
    }

    fn toc(&mut self) -> Result<(), Problem> {
        match self.version() {
            (1, 0) => self.payload_piece(Role::Ip(types::TOC)),
            _ => Err(self.unknown_version("1.0")),
        }
    }

    fn smu(&mut self, mut read: impl FnMut(u64, &mut [u8]) -> Result<(), Problem>) -> Result<(), Problem> {
        let version = self.version();
        if !matches!(version, (1, 0) | (2, 0) | (2, 1)) {
            return Err(self.unknown_version("1.0, 2.0 and 2.1"));
        }
        let _: &SmcV1_0 = self.view(AT, "smc_firmware_header_v1_0")?;
        self.payload_piece(Role::Ip(types::SMU))?;
        if version == (2, 0) {
            let v2: &SmcV2_0 = self.view(SMC_AT, "smc_firmware_header_v2_0")?;
            let offset = v2.ppt_offset_bytes.get() as u64;
            self.piece(Role::PpTable(0), "ppt_offset_bytes/ppt_size_bytes", offset, v2.ppt_size_bytes.get())?;
        }
        if version == (2, 1) {
            let v2: &SmcV2_1 = self.view(SMC_AT, "smc_firmware_header_v2_1")?;
            let count = v2.pptable_count.get();
            if count > MAX_PPTABLES {
                return Err(Problem::TooMany { field: "pptable_count", found: count, limit: MAX_PPTABLES });
            }
            let mut at = v2.pptable_entry_offset.get() as u64;
            let mut bytes = [0; size_of::<SmcPptEntry>()];
            for _ in 0..count {
                self.check("pptable_entry_offset", at, bytes.len() as u32)?;
                read(at, &mut bytes)?;
                let entry: &SmcPptEntry = view(&bytes, self.len, 0, "smc_soft_pptable_entry")?;
                let offset = entry.ppt_offset_bytes.get() as u64;
                let role = Role::PpTable(entry.id.get());
                self.piece(role, "ppt_offset_bytes/ppt_size_bytes", offset, entry.ppt_size_bytes.get())?;
                at += bytes.len() as u64;
            }
        }
        Ok(())
    }

    fn sdma(&mut self) -> Result<(), Problem> {
        match self.version() {
            (1, 0) => {
                let _: &SdmaV1_0 = self.view(AT, "sdma_firmware_header_v1_0")?;
                self.payload_piece(Role::Ip(types::SDMA0))
            }
            (1, 1) => {
                let _: &SdmaV1_1 = self.view(AT + size_of::<SdmaV1_0>(), "sdma_firmware_header_v1_1")?;
                self.payload_piece(Role::Ip(types::SDMA0))
            }
            (2, 0) => {
                let v2: &SdmaV2_0 = self.view(AT, "sdma_firmware_header_v2_0")?;
                let ctl = v2.ctl_ucode_offset.get() as u64;
                let (ctl_len, ctx_len) = (v2.ctl_ucode_size_bytes.get(), v2.ctx_ucode_size_bytes.get());
                let ctx = self.payload as u64;
                self.piece(
                    Role::Ip(types::SDMA_UCODE_TH1),
                    "ctl_ucode_offset/ctl_ucode_size_bytes",
                    ctl,
                    ctl_len,
                )?;
                self.piece(Role::Ip(types::SDMA_UCODE_TH0), "ctx_ucode_size_bytes", ctx, ctx_len)
            }
            (3, 0) => {
                let v3: &SdmaV3_0 = self.view(AT, "sdma_firmware_header_v3_0")?;
                let (offset, len) = (v3.ucode_offset_bytes.get(), v3.ucode_size_bytes.get());
                if offset != self.payload {
                    return Err(Problem::Value {
                        field: "ucode_offset_bytes",
                        found: offset as u64,
                        expected: "the value of ucode_array_offset_bytes",
                    });
                }
                self.piece(Role::Ip(types::SDMA_UCODE_TH0), "ucode_size_bytes", offset as u64, len)
            }
            _ => Err(self.unknown_version("1.0, 1.1, 2.0 and 3.0")),
        }
    }

    fn cp(&mut self, legacy: FwType, program: FwType, stack: FwType) -> Result<(), Problem> {
        match self.version() {
            (1, 0) => {
                let _: &GfxV1_0 = self.view(AT, "gfx_firmware_header_v1_0")?;
                self.payload_piece(Role::Ip(legacy))
            }
            (2, 0) => {
                let v2: &GfxV2_0 = self.view(AT, "gfx_firmware_header_v2_0")?;
                let (code, data) = (v2.ucode_size_bytes.get(), v2.data_size_bytes.get());
                let data_at = v2.data_offset_bytes.get() as u64;
                self.piece(Role::Ip(program), "ucode_size_bytes", self.payload as u64, code)?;
                self.piece(Role::Ip(stack), "data_offset_bytes/data_size_bytes", data_at, data)?;
                let (lo, hi) = (v2.ucode_start_addr_lo.get(), v2.ucode_start_addr_hi.get());
                self.file.ucode_start = Some((hi as u64) << 32 | lo as u64);
                Ok(())
            }
            _ => Err(self.unknown_version("1.0 and 2.0")),
        }
    }

    fn imu(&mut self) -> Result<(), Problem> {
        if self.version() != (1, 0) {
            return Err(self.unknown_version("1.0"));
        }
        let v1: &ImuV1_0 = self.view(AT, "imu_firmware_header_v1_0")?;
        // As Linux: the instructions are first in the payload, the data follow.
        let (code, data) = (v1.imu_iram_ucode_size_bytes.get(), v1.imu_dram_ucode_size_bytes.get());
        let at = self.payload as u64;
        self.piece(Role::Ip(types::IMU_I), "imu_iram_ucode_size_bytes", at, code)?;
        self.piece(Role::Ip(types::IMU_D), "imu_dram_ucode_size_bytes", at + code as u64, data)
    }
}
