//! RLC: its program and all that comes with it.

use zerocopy::little_endian::U32;

use super::{AT, Parser, Role, view};
use crate::error::Problem;
use crate::types;
use crate::wire::{RlcV1_0, RlcV2_0, RlcV2_1, RlcV2_2, RlcV2_3, RlcV2_4};

/// Where headers stand: behind the part that an earlier minor version defines.
const RLC_V2_1_AT: usize = AT + size_of::<RlcV2_0>();
const RLC_V2_2_AT: usize = RLC_V2_1_AT + size_of::<RlcV2_1>();
const RLC_V2_3_AT: usize = RLC_V2_2_AT + size_of::<RlcV2_2>();
const RLC_V2_4_AT: usize = RLC_V2_3_AT + size_of::<RlcV2_3>();

impl Parser<'_> {
    pub(super) fn rlc(&mut self) -> Result<(), Problem> {
        match self.version() {
            (1, 0) => {
                let _: &RlcV1_0 = self.view(AT, "rlc_firmware_header_v1_0")?;
                self.payload_piece(Role::Ip(types::RLC_G))
            }
            (2, minor @ 0..=4) => self.rlc_v2(minor),
            _ => Err(self.unknown_version("1.0 and 2.0 to 2.4")),
        }
    }

    fn rlc_v2(&mut self, minor: u16) -> Result<(), Problem> {
        let _: &RlcV2_0 = self.view(AT, "rlc_firmware_header_v2_0")?;
        let head = (self.head, self.len);
        let mut part = |ty, field, offset: U32, size: U32| {
            self.piece(Role::Ip(ty), field, offset.get() as u64, size.get())
        };
        if minor >= 1 {
            let v: &RlcV2_1 = view(head.0, head.1, RLC_V2_1_AT, "rlc_firmware_header_v2_1")?;
            part(
                types::RLC_RESTORE_LIST_SRM_CNTL,
                "save_restore_list_cntl_offset_bytes/size_bytes",
                v.save_restore_list_cntl_offset_bytes,
                v.save_restore_list_cntl_size_bytes,
            )?;
            part(
                types::RLC_RESTORE_LIST_GPM_MEM,
                "save_restore_list_gpm_offset_bytes/size_bytes",
                v.save_restore_list_gpm_offset_bytes,
                v.save_restore_list_gpm_size_bytes,
            )?;
            part(
                types::RLC_RESTORE_LIST_SRM_MEM,
                "save_restore_list_srm_offset_bytes/size_bytes",
                v.save_restore_list_srm_offset_bytes,
                v.save_restore_list_srm_size_bytes,
            )?;
        }
        if minor >= 2 {
            let v: &RlcV2_2 = view(head.0, head.1, RLC_V2_2_AT, "rlc_firmware_header_v2_2")?;
            part(
                types::RLC_IRAM,
                "rlc_iram_ucode_offset_bytes/size_bytes",
                v.rlc_iram_ucode_offset_bytes,
                v.rlc_iram_ucode_size_bytes,
            )?;
            part(
                types::RLC_DRAM_BOOT,
                "rlc_dram_ucode_offset_bytes/size_bytes",
                v.rlc_dram_ucode_offset_bytes,
                v.rlc_dram_ucode_size_bytes,
            )?;
        }
        if minor >= 3 {
            let v: &RlcV2_3 = view(head.0, head.1, RLC_V2_3_AT, "rlc_firmware_header_v2_3")?;
            part(
                types::RLC_P,
                "rlcp_ucode_offset_bytes/size_bytes",
                v.rlcp_ucode_offset_bytes,
                v.rlcp_ucode_size_bytes,
            )?;
            part(
                types::RLC_V,
                "rlcv_ucode_offset_bytes/size_bytes",
                v.rlcv_ucode_offset_bytes,
                v.rlcv_ucode_size_bytes,
            )?;
        }
        if minor >= 4 {
            let v: &RlcV2_4 = view(head.0, head.1, RLC_V2_4_AT, "rlc_firmware_header_v2_4")?;
            let taps = [
                (
                    types::GLOBAL_TAP_DELAYS,
                    v.global_tap_delays_ucode_offset_bytes,
                    v.global_tap_delays_ucode_size_bytes,
                ),
                (
                    types::SE0_TAP_DELAYS,
                    v.se0_tap_delays_ucode_offset_bytes,
                    v.se0_tap_delays_ucode_size_bytes,
                ),
                (
                    types::SE1_TAP_DELAYS,
                    v.se1_tap_delays_ucode_offset_bytes,
                    v.se1_tap_delays_ucode_size_bytes,
                ),
                (
                    types::SE2_TAP_DELAYS,
                    v.se2_tap_delays_ucode_offset_bytes,
                    v.se2_tap_delays_ucode_size_bytes,
                ),
                (
                    types::SE3_TAP_DELAYS,
                    v.se3_tap_delays_ucode_offset_bytes,
                    v.se3_tap_delays_ucode_size_bytes,
                ),
            ];
            for (ty, offset, size) in taps {
                part(ty, "tap_delays_ucode_offset_bytes/size_bytes", offset, size)?;
            }
        }
        self.payload_piece(Role::Ip(types::RLC_G))
    }
}
