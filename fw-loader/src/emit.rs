//! From a plain description to a firmware file.

use zerocopy::little_endian::U32;
use zerocopy::{FromZeros, IntoBytes};

use crate::parse::{FileKind, Role};
use crate::types;
use crate::wire::*;
use amdev_core::firmware::{FwType, SosComponent};

/// A firmware file to write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repr {
    /// What the file is for.
    pub kind: FileKind,
    /// Version of the header.
    pub header_version: (u16, u16),
    /// IP version in the header.
    pub ip_version: (u16, u16),
    /// Version of the firmware.
    pub ucode_version: u32,
    /// The images.
    pub parts: Vec<(Role, Vec<u8>)>,
    /// Start address of an RS64 engine's program.
    pub ucode_start: Option<u64>,
}

/// Why a file could not be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EmitError {
    /// The header version is not known for this kind of file.
    #[error("header version {0}.{1} is not known for this kind of file")]
    Version(u16, u16),
    /// An image that this header cannot describe.
    #[error("this header cannot describe {0:?}")]
    Role(Role),
    /// More bytes or images than the format can describe.
    #[error("more than the format holds")]
    TooLarge,
}

/// Where the payload starts in files of all but the largest SOS headers.
const PAYLOAD: usize = 256;

struct Layout<'a> {
    repr: &'a Repr,
    used: Vec<Role>,
    body: Vec<u8>,
    payload: usize,
}

impl Layout<'_> {
    /// Appends the image with this role; returns offset in the file and length, (0, 0) if the
    /// description has none.
    fn put(&mut self, role: Role) -> Result<(U32, U32), EmitError> {
        let part = self.repr.parts.iter().find(|(r, _)| *r == role);
        self.used.push(role);
        match part {
            Some((_, bytes)) => self.append(bytes),
            None => Ok((0.into(), 0.into())),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(U32, U32), EmitError> {
        let at = self.payload + self.body.len();
        self.body.extend_from_slice(bytes);
        let number = |n: usize| u32::try_from(n).map(U32::new).map_err(|_| EmitError::TooLarge);
        Ok((number(at)?, number(bytes.len())?))
    }

    fn ip(&mut self, ty: FwType) -> Result<(U32, U32), EmitError> {
        self.put(Role::Ip(ty))
    }

    /// A component whose offset counts from the payload.
    fn legacy(&mut self, role: Role) -> Result<PspLegacyDesc, EmitError> {
        let (at, size_bytes) = self.put(role)?;
        let offset_bytes = at.get().saturating_sub(self.payload as u32).into();
        Ok(PspLegacyDesc { fw_version: 0.into(), offset_bytes, size_bytes })
    }
}

impl Repr {
    /// Writes the file.
    pub fn emit(&self) -> Result<Vec<u8>, EmitError> {
        let payload = if self.kind == FileKind::Sos && self.header_version.0 == 2 { 512 } else { PAYLOAD };
        let mut out = Layout { repr: self, used: Vec::new(), body: Vec::new(), payload };
        // The part of the header behind the common one, and the length of the payload.
        let (header, payload_len) = self.header(&mut out)?;
        if let Some((role, _)) = self.parts.iter().find(|(r, _)| !out.used.contains(r)) {
            return Err(EmitError::Role(*role));
        }
        let number = |n: usize| u32::try_from(n).map(U32::new).map_err(|_| EmitError::TooLarge);
        let mut common = CommonHeader::new_zeroed();
        common.size_bytes = number(payload + out.body.len())?;
        common.header_size_bytes = number(size_of::<CommonHeader>() + header.len())?;
        (common.header_version_major, common.header_version_minor) =
            (self.header_version.0.into(), self.header_version.1.into());
        (common.ip_version_major, common.ip_version_minor) =
            (self.ip_version.0.into(), self.ip_version.1.into());
        common.ucode_version = self.ucode_version.into();
        common.ucode_size_bytes = number(payload_len)?;
        common.ucode_array_offset_bytes = number(payload)?;

        let mut file = common.as_bytes().to_vec();
        file.extend_from_slice(&header);
        if file.len() > payload {
            return Err(EmitError::TooLarge);
        }
        file.resize(payload, 0);
        file.extend_from_slice(&out.body);
        Ok(file)
    }

    fn header(&self, out: &mut Layout<'_>) -> Result<(Vec<u8>, usize), EmitError> {
        let version = self.header_version;
        match self.kind {
            FileKind::Sos if version.0 == 1 && version.1 <= 3 => psp_v1(out, version.1),
            FileKind::Sos if matches!(version, (2, 0 | 1)) => psp_v2(out, version.1),
            FileKind::Toc if version == (1, 0) => {
                let (_, len) = out.ip(types::TOC)?;
                Ok((PspV1_0::new_zeroed().as_bytes().to_vec(), len.get() as usize))
            }
            FileKind::Smu if matches!(version, (1, 0) | (2, 0 | 1)) => smu(out, version),
            FileKind::Sdma => sdma(out, version),
            FileKind::Pfp => cp(out, version, types::CP_PFP, types::RS64_PFP, types::RS64_PFP_P0_STACK),
            FileKind::Me => cp(out, version, types::CP_ME, types::RS64_ME, types::RS64_ME_P0_STACK),
            FileKind::Mec => cp(out, version, types::CP_MEC, types::RS64_MEC, types::RS64_MEC_P0_STACK),
            FileKind::Imu if version == (1, 0) => {
                let mut header = ImuV1_0::new_zeroed();
                (_, header.imu_iram_ucode_size_bytes) = out.ip(types::IMU_I)?;
                (_, header.imu_dram_ucode_size_bytes) = out.ip(types::IMU_D)?;
                header.imu_dram_ucode_offset_bytes = header.imu_iram_ucode_size_bytes;
                Ok((header.as_bytes().to_vec(), out.body.len()))
            }
            FileKind::Rlc => rlc(out, version),
            _ => Err(EmitError::Version(version.0, version.1)),
        }
    }
}

fn psp_v1(out: &mut Layout<'_>, minor: u16) -> Result<(Vec<u8>, usize), EmitError> {
    use SosComponent::*;
    let mut header = Vec::new();
    let (_, sys_len) = out.put(Role::Sos(SysDrv))?;
    // The secure OS follows the system driver, whose length is known from this alone.
    let sos = PspLegacyDesc { offset_bytes: sys_len, ..out.legacy(Role::Sos(Sos))? };
    header.extend_from_slice(sos.as_bytes());
    if minor == 1 || minor == 3 {
        header.extend_from_slice(out.legacy(Role::Sos(Toc))?.as_bytes());
        header.extend_from_slice(out.legacy(Role::Sos(Kdb))?.as_bytes());
    }
    if minor == 2 {
        header.extend_from_slice(PspLegacyDesc::new_zeroed().as_bytes());
        header.extend_from_slice(out.legacy(Role::Sos(Kdb))?.as_bytes());
    }
    if minor == 3 {
        for role in [Role::Sos(Spl), Role::Sos(Rl), Role::Aux(SysDrv as u32), Role::Aux(Sos as u32)] {
            header.extend_from_slice(out.legacy(role)?.as_bytes());
        }
    }
    Ok((header, out.body.len()))
}

fn psp_v2(out: &mut Layout<'_>, minor: u16) -> Result<(Vec<u8>, usize), EmitError> {
    let parts = &out.repr.parts;
    let aux = parts.iter().position(|(r, _)| matches!(r, Role::Aux(_))).unwrap_or(parts.len());
    // An index of 0 says that there is none: an image of that kind cannot be the first.
    if let (0, Some((role, _))) = (aux, parts.first()) {
        return Err(EmitError::Role(*role));
    }
    let count = U32::new(parts.len() as u32);
    let mut header = Vec::new();
    if minor == 0 {
        header.extend_from_slice(PspV2_0 { psp_fw_bin_count: count }.as_bytes());
    } else {
        let psp_aux_fw_bin_index = U32::new(aux as u32);
        header.extend_from_slice(PspV2_1 { psp_fw_bin_count: count, psp_aux_fw_bin_index }.as_bytes());
    }
    for (index, (role, bytes)) in parts.iter().enumerate() {
        let number = match role {
            Role::Sos(component) if index < aux => *component as u32,
            Role::Unknown(number) if index < aux => *number,
            Role::Aux(number) if minor == 1 => *number,
            _ => return Err(EmitError::Role(*role)),
        };
        out.used.push(*role);
        let (at, size_bytes) = out.append(bytes)?;
        let desc = PspDesc {
            fw_type: number.into(),
            fw_version: 0.into(),
            offset_bytes: (at.get() - out.payload as u32).into(),
            size_bytes,
        };
        header.extend_from_slice(desc.as_bytes());
    }
    Ok((header, out.body.len()))
}

fn smu(out: &mut Layout<'_>, version: (u16, u16)) -> Result<(Vec<u8>, usize), EmitError> {
    let (_, len) = out.ip(types::SMU)?;
    // Where the SMU's RAM for programs starts, as in the files of linux-firmware.
    let mut header = SmcV1_0 { ucode_start_addr: 0x20000.into() }.as_bytes().to_vec();
    if version == (2, 0) {
        let (ppt_offset_bytes, ppt_size_bytes) = out.put(Role::PpTable(0))?;
        header.extend_from_slice(SmcV2_0 { ppt_offset_bytes, ppt_size_bytes }.as_bytes());
    }
    if version == (2, 1) {
        let parts = &out.repr.parts;
        let tables: Vec<_> = parts.iter().filter(|(r, _)| matches!(r, Role::PpTable(_))).collect();
        let list = out.payload + out.body.len();
        let mut at = list + tables.len() * size_of::<SmcPptEntry>();
        for (role, bytes) in &tables {
            let Role::PpTable(id) = role else { continue };
            let entry = SmcPptEntry {
                id: (*id).into(),
                ppt_offset_bytes: (at as u32).into(),
                ppt_size_bytes: (bytes.len() as u32).into(),
            };
            at += bytes.len();
            out.append(entry.as_bytes())?;
            out.used.push(*role);
        }
        for (_, bytes) in &tables {
            out.append(bytes)?;
        }
        let v2 = SmcV2_1 {
            pptable_count: (tables.len() as u32).into(),
            pptable_entry_offset: (list as u32).into(),
        };
        header.extend_from_slice(v2.as_bytes());
    }
    Ok((header, len.get() as usize))
}

fn sdma(out: &mut Layout<'_>, version: (u16, u16)) -> Result<(Vec<u8>, usize), EmitError> {
    let header = match version {
        (1, 0) | (1, 1) => {
            out.ip(types::SDMA0)?;
            let len = size_of::<SdmaV1_0>() + if version.1 == 1 { size_of::<SdmaV1_1>() } else { 0 };
            vec![0; len]
        }
        (2, 0) => {
            let mut header = SdmaV2_0::new_zeroed();
            (_, header.ctx_ucode_size_bytes) = out.ip(types::SDMA_UCODE_TH0)?;
            (header.ctl_ucode_offset, header.ctl_ucode_size_bytes) = out.ip(types::SDMA_UCODE_TH1)?;
            header.as_bytes().to_vec()
        }
        (3, 0) => {
            let mut header = SdmaV3_0::new_zeroed();
            (_, header.ucode_size_bytes) = out.ip(types::SDMA_UCODE_TH0)?;
            header.ucode_offset_bytes = (out.payload as u32).into();
            header.as_bytes().to_vec()
        }
        (major, minor) => return Err(EmitError::Version(major, minor)),
    };
    Ok((header, out.body.len()))
}

fn cp(
    out: &mut Layout<'_>,
    version: (u16, u16),
    legacy: FwType,
    program: FwType,
    stack: FwType,
) -> Result<(Vec<u8>, usize), EmitError> {
    let header = match version {
        (1, 0) => {
            out.ip(legacy)?;
            GfxV1_0::new_zeroed().as_bytes().to_vec()
        }
        (2, 0) => {
            let mut header = GfxV2_0::new_zeroed();
            (header.ucode_offset_bytes, header.ucode_size_bytes) = out.ip(program)?;
            (header.data_offset_bytes, header.data_size_bytes) = out.ip(stack)?;
            let start = out.repr.ucode_start.unwrap_or(0);
            header.ucode_start_addr_lo = (start as u32).into();
            header.ucode_start_addr_hi = ((start >> 32) as u32).into();
            header.as_bytes().to_vec()
        }
        (major, minor) => return Err(EmitError::Version(major, minor)),
    };
    Ok((header, out.body.len()))
}

fn rlc(out: &mut Layout<'_>, version: (u16, u16)) -> Result<(Vec<u8>, usize), EmitError> {
    let (_, len) = out.ip(types::RLC_G)?;
    let (2, minor @ 0..=4) = version else {
        return match version {
            (1, 0) => Ok((RlcV1_0::new_zeroed().as_bytes().to_vec(), len.get() as usize)),
            (major, minor) => Err(EmitError::Version(major, minor)),
        };
    };
    let mut header = RlcV2_0::new_zeroed().as_bytes().to_vec();
    if minor >= 1 {
        let mut v = RlcV2_1::new_zeroed();
        (v.save_restore_list_cntl_offset_bytes, v.save_restore_list_cntl_size_bytes) =
            out.ip(types::RLC_RESTORE_LIST_SRM_CNTL)?;
        (v.save_restore_list_gpm_offset_bytes, v.save_restore_list_gpm_size_bytes) =
            out.ip(types::RLC_RESTORE_LIST_GPM_MEM)?;
        (v.save_restore_list_srm_offset_bytes, v.save_restore_list_srm_size_bytes) =
            out.ip(types::RLC_RESTORE_LIST_SRM_MEM)?;
        header.extend_from_slice(v.as_bytes());
    }
    if minor >= 2 {
        let mut v = RlcV2_2::new_zeroed();
        (v.rlc_iram_ucode_offset_bytes, v.rlc_iram_ucode_size_bytes) = out.ip(types::RLC_IRAM)?;
        (v.rlc_dram_ucode_offset_bytes, v.rlc_dram_ucode_size_bytes) = out.ip(types::RLC_DRAM_BOOT)?;
        header.extend_from_slice(v.as_bytes());
    }
    if minor >= 3 {
        let mut v = RlcV2_3::new_zeroed();
        (v.rlcp_ucode_offset_bytes, v.rlcp_ucode_size_bytes) = out.ip(types::RLC_P)?;
        (v.rlcv_ucode_offset_bytes, v.rlcv_ucode_size_bytes) = out.ip(types::RLC_V)?;
        header.extend_from_slice(v.as_bytes());
    }
    if minor >= 4 {
        let taps = [
            types::GLOBAL_TAP_DELAYS,
            types::SE0_TAP_DELAYS,
            types::SE1_TAP_DELAYS,
            types::SE2_TAP_DELAYS,
            types::SE3_TAP_DELAYS,
        ];
        for ty in taps {
            let (offset, size) = out.ip(ty)?;
            header.extend_from_slice(size.as_bytes());
            header.extend_from_slice(offset.as_bytes());
        }
    }
    Ok((header, len.get() as usize))
}
