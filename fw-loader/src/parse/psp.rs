//! PSP: the SOS container.

use amdev_core::firmware::SosComponent;

use super::{AT, Parser, Role};
use crate::error::Problem;
use crate::types::sos_component;
use crate::wire::{PspDesc, PspLegacyDesc, PspV1_0, PspV1_1, PspV1_2, PspV1_3, PspV2_0, PspV2_1};

/// `UCODE_MAX_PSP_PACKAGING` of Linux: components of a PSP v2 container.
const MAX_PSP_DESCS: u32 = 26;
/// Where headers stand: behind the part that an earlier minor version defines.
const PSP_V1_AT: usize = AT + size_of::<PspV1_0>();
const PSP_V1_3_AT: usize = PSP_V1_AT + size_of::<PspV1_1>();

impl Parser<'_> {
    pub(super) fn psp(&mut self) -> Result<(), Problem> {
        let (major, minor) = self.version();
        match (major, minor) {
            (1, 0..=3) => self.psp_v1(minor),
            (2, 0) => {
                let v2: &PspV2_0 = self.view(AT, "psp_firmware_header_v2_0")?;
                let count = v2.psp_fw_bin_count.get();
                self.psp_descs(AT + size_of::<PspV2_0>(), count, count)
            }
            (2, 1) => {
                let v2: &PspV2_1 = self.view(AT, "psp_firmware_header_v2_1")?;
                let count = v2.psp_fw_bin_count.get();
                let aux = match v2.psp_aux_fw_bin_index.get() {
                    0 => count,
                    aux if aux <= count => aux,
                    aux => {
                        return Err(Problem::TooMany {
                            field: "psp_aux_fw_bin_index",
                            found: aux,
                            limit: count,
                        });
                    }
                };
                self.psp_descs(AT + size_of::<PspV2_1>(), count, aux)
            }
            _ => Err(self.unknown_version("1.0 to 1.3, 2.0 and 2.1")),
        }
    }

    fn legacy(&mut self, role: Role, field: &'static str, desc: &PspLegacyDesc) -> Result<(), Problem> {
        let offset = self.payload as u64 + desc.offset_bytes.get() as u64;
        self.piece(role, field, offset, desc.size_bytes.get())
    }

    fn psp_v1(&mut self, minor: u16) -> Result<(), Problem> {
        let v1: &PspV1_0 = self.view(AT, "psp_firmware_header_v1_0")?;
        // The system driver is what precedes the SOS in the payload.
        let sys_len = v1.sos.offset_bytes.get();
        self.piece(Role::Sos(SosComponent::SysDrv), "sos.offset_bytes", self.payload as u64, sys_len)?;
        self.legacy(Role::Sos(SosComponent::Sos), "sos.size_bytes", &v1.sos)?;
        if minor == 1 || minor == 3 {
            let v: &PspV1_1 = self.view(PSP_V1_AT, "psp_firmware_header_v1_1")?;
            self.legacy(Role::Sos(SosComponent::Toc), "toc.size_bytes", &v.toc)?;
            self.legacy(Role::Sos(SosComponent::Kdb), "kdb.size_bytes", &v.kdb)?;
        }
        if minor == 2 {
            let v: &PspV1_2 = self.view(PSP_V1_AT, "psp_firmware_header_v1_2")?;
            self.legacy(Role::Sos(SosComponent::Kdb), "kdb.size_bytes", &v.kdb)?;
        }
        if minor == 3 {
            let v: &PspV1_3 = self.view(PSP_V1_3_AT, "psp_firmware_header_v1_3")?;
            self.legacy(Role::Sos(SosComponent::Spl), "spl.size_bytes", &v.spl)?;
            self.legacy(Role::Sos(SosComponent::Rl), "rl.size_bytes", &v.rl)?;
            self.legacy(Role::Aux(SosComponent::SysDrv as u32), "sys_drv_aux.size_bytes", &v.sys_drv_aux)?;
            self.legacy(Role::Aux(SosComponent::Sos as u32), "sos_aux.size_bytes", &v.sos_aux)?;
        }
        Ok(())
    }

    fn psp_descs(&mut self, at: usize, count: u32, aux: u32) -> Result<(), Problem> {
        if count > MAX_PSP_DESCS {
            return Err(Problem::TooMany { field: "psp_fw_bin_count", found: count, limit: MAX_PSP_DESCS });
        }
        for index in 0..count {
            let desc: &PspDesc = self.view(at + index as usize * size_of::<PspDesc>(), "psp_fw_bin")?;
            let number = desc.fw_type.get();
            let role = match sos_component(number) {
                _ if index >= aux => Role::Aux(number),
                Some(component) => Role::Sos(component),
                None => Role::Unknown(number),
            };
            let offset = self.payload as u64 + desc.offset_bytes.get() as u64;
            self.piece(role, "psp_fw_bin.offset_bytes/size_bytes", offset, desc.size_bytes.get())?;
        }
        Ok(())
    }
}
