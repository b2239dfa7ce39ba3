//! Firmware types of `LOAD_IP_FW` (`enum psp_gfx_fw_type` of `psp_gfx_if.h`) and their names.

use amdev_core::firmware::{FwType, SosComponent};

macro_rules! fw_types {
    ($($name:ident = $value:literal),* $(,)?) => {
        $(#[doc = concat!("`GFX_FW_TYPE_", stringify!($name), "`.")] pub const $name: FwType = FwType($value);)*

        /// Name of a type in the Linux header, without `GFX_FW_TYPE_`.
        pub const fn type_name(ty: FwType) -> Option<&'static str> {
            match ty.0 {
                $($value => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

fw_types! {
    CP_ME = 1,
    CP_PFP = 2,
    CP_MEC = 4,
    CP_MEC_ME1 = 5,
    RLC_V = 7,
    RLC_G = 8,
    SDMA0 = 9,
    SMU = 18,
    RLC_RESTORE_LIST_GPM_MEM = 20,
    RLC_RESTORE_LIST_SRM_MEM = 21,
    RLC_RESTORE_LIST_SRM_CNTL = 22,
    TOC = 24,
    RLC_P = 25,
    RLC_IRAM = 26,
    GLOBAL_TAP_DELAYS = 27,
    SE0_TAP_DELAYS = 28,
    SE1_TAP_DELAYS = 29,
    RLC_DRAM_BOOT = 48,
    SE2_TAP_DELAYS = 65,
    SE3_TAP_DELAYS = 66,
    IMU_I = 68,
    IMU_D = 69,
    SDMA_UCODE_TH0 = 71,
    SDMA_UCODE_TH1 = 72,
    PPTABLE = 73,
    RS64_PFP = 87,
    RS64_ME = 88,
    RS64_MEC = 89,
    RS64_PFP_P0_STACK = 90,
    RS64_ME_P0_STACK = 92,
    RS64_MEC_P0_STACK = 94,
}

/// The component with a number of `enum psp_fw_type`.
pub const fn sos_component(number: u32) -> Option<SosComponent> {
    use SosComponent::*;
    Some(match number {
        1 => Sos,
        2 => SysDrv,
        3 => Kdb,
        4 => Toc,
        5 => Spl,
        6 => Rl,
        7 => SocDrv,
        8 => IntfDrv,
        9 => DbgDrv,
        10 => RasDrv,
        11 => IpKeyMgrDrv,
        _ => return None,
    })
}
