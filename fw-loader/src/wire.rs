//! Headers of firmware files as they stand in memory (Linux `amdgpu_ucode.h`), little-endian and
//! unaligned. Offsets and sizes are in bytes.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $ty:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name { $($(#[$fdoc])* pub $field: $ty,)* }
    )*};
}

wire! {
    /// `struct common_firmware_header`: in front of every file.
    CommonHeader {
        /// Length of the whole file.
        size_bytes: U32,
        /// Length of the header; too small in some files of RLC v2.1.
        header_size_bytes: U32,
        /// Version of the header that follows this one.
        header_version_major: U16,
        /// Minor version of it.
        header_version_minor: U16,
        /// IP version, not to be trusted: `psp_14_0_0_toc.bin` says 13.0.
        ip_version_major: U16,
        /// Minor IP version.
        ip_version_minor: U16,
        /// Version of the firmware.
        ucode_version: U32,
        /// Length of the payload.
        ucode_size_bytes: U32,
        /// Offset of the payload.
        ucode_array_offset_bytes: U32,
        /// A checksum whose rule is not public; Linux does not check it.
        crc32: U32,
    }

    /// `struct psp_fw_legacy_bin_desc`: a component of a PSP v1 container.
    PspLegacyDesc {
        /// Version of the component.
        fw_version: U32,
        /// Offset from the payload.
        offset_bytes: U32,
        /// Length.
        size_bytes: U32,
    }

    /// `struct psp_firmware_header_v1_0`; TOC and ASD files have it too.
    PspV1_0 {
        /// Secure OS; what precedes it in the payload is the system driver.
        sos: PspLegacyDesc,
    }

    /// What `psp_firmware_header_v1_1` adds.
    PspV1_1 {
        /// Table of contents.
        toc: PspLegacyDesc,
        /// Key database.
        kdb: PspLegacyDesc,
    }

    /// What `psp_firmware_header_v1_2` adds to version 1.0.
    PspV1_2 {
        /// Reserved.
        res: PspLegacyDesc,
        /// Key database.
        kdb: PspLegacyDesc,
    }

    /// What `psp_firmware_header_v1_3` adds to version 1.1.
    PspV1_3 {
        /// Security policy level table.
        spl: PspLegacyDesc,
        /// RL.
        rl: PspLegacyDesc,
        /// System driver of an auxiliary kind of device.
        sys_drv_aux: PspLegacyDesc,
        /// Secure OS of an auxiliary kind of device.
        sos_aux: PspLegacyDesc,
    }

    /// `struct psp_fw_bin_desc`: a component of a PSP v2 container.
    PspDesc {
        /// `enum psp_fw_type`.
        fw_type: U32,
        /// Version of the component.
        fw_version: U32,
        /// Offset from the payload.
        offset_bytes: U32,
        /// Length.
        size_bytes: U32,
    }

    /// `struct psp_firmware_header_v2_0`; [`PspDesc`]s follow.
    PspV2_0 {
        /// How many components there are.
        psp_fw_bin_count: U32,
    }

    /// `struct psp_firmware_header_v2_1`; [`PspDesc`]s follow.
    PspV2_1 {
        /// How many components there are.
        psp_fw_bin_count: U32,
        /// From this one on they are for an auxiliary kind of device.
        psp_aux_fw_bin_index: U32,
    }

    /// `struct smc_firmware_header_v1_0`.
    SmcV1_0 {
        /// Where the SMU runs it.
        ucode_start_addr: U32,
    }

    /// What `smc_firmware_header_v2_0` adds.
    SmcV2_0 {
        /// Offset of the power play table.
        ppt_offset_bytes: U32,
        /// Length of it.
        ppt_size_bytes: U32,
    }

    /// What `smc_firmware_header_v2_1` adds to version 1.0.
    SmcV2_1 {
        /// Number of power play tables.
        pptable_count: U32,
        /// Offset of their list, of [`SmcPptEntry`].
        pptable_entry_offset: U32,
    }

    /// `struct smc_soft_pptable_entry`.
    SmcPptEntry {
        /// Which board it is for.
        id: U32,
        /// Offset of the table.
        ppt_offset_bytes: U32,
        /// Length of it.
        ppt_size_bytes: U32,
    }

    /// `struct sdma_firmware_header_v1_0`.
    SdmaV1_0 {
        /// Feature version.
        ucode_feature_version: U32,
        /// Change version.
        ucode_change_version: U32,
        /// Jump table: offset in dwords.
        jt_offset: U32,
        /// Jump table: length in dwords.
        jt_size: U32,
    }

    /// What `sdma_firmware_header_v1_1` adds.
    SdmaV1_1 {
        /// Length of a digest.
        digest_size: U32,
    }

    /// `struct sdma_firmware_header_v2_0`.
    SdmaV2_0 {
        /// Feature version.
        ucode_feature_version: U32,
        /// Context thread: length; it starts at the payload.
        ctx_ucode_size_bytes: U32,
        /// Its jump table.
        ctx_jt_offset: U32,
        /// Its jump table's length.
        ctx_jt_size: U32,
        /// Control thread: offset.
        ctl_ucode_offset: U32,
        /// Control thread: length.
        ctl_ucode_size_bytes: U32,
        /// Its jump table.
        ctl_jt_offset: U32,
        /// Its jump table's length.
        ctl_jt_size: U32,
    }

    /// `struct sdma_firmware_header_v3_0`.
    SdmaV3_0 {
        /// Feature version.
        ucode_feature_version: U32,
        /// Offset of the program.
        ucode_offset_bytes: U32,
        /// Length of it.
        ucode_size_bytes: U32,
    }

    /// `struct gfx_firmware_header_v1_0`.
    GfxV1_0 {
        /// Feature version.
        ucode_feature_version: U32,
        /// Jump table: offset in dwords.
        jt_offset: U32,
        /// Jump table: length in dwords.
        jt_size: U32,
    }

    /// `struct gfx_firmware_header_v2_0`: an RS64 engine.
    GfxV2_0 {
        /// Feature version.
        ucode_feature_version: U32,
        /// Length of the program.
        ucode_size_bytes: U32,
        /// Offset of the program; Linux takes the payload's offset, which is the same.
        ucode_offset_bytes: U32,
        /// Length of the data (the engine's stack).
        data_size_bytes: U32,
        /// Offset of the data.
        data_offset_bytes: U32,
        /// Start address in bytes, low half.
        ucode_start_addr_lo: U32,
        /// High half.
        ucode_start_addr_hi: U32,
    }

    /// `struct imu_firmware_header_v1_0`.
    ImuV1_0 {
        /// Length of the instructions; they start at the payload.
        imu_iram_ucode_size_bytes: U32,
        /// Their offset from the payload.
        imu_iram_ucode_offset_bytes: U32,
        /// Length of the data, which follow the instructions.
        imu_dram_ucode_size_bytes: U32,
        /// Their offset from the payload.
        imu_dram_ucode_offset_bytes: U32,
    }

    /// `struct rlc_firmware_header_v1_0`.
    RlcV1_0 {
        /// Feature version.
        ucode_feature_version: U32,
        /// Save and restore list.
        save_and_restore_offset: U32,
        /// Clear state descriptor.
        clear_state_descriptor_offset: U32,
        /// Scratch RAM.
        avail_scratch_ram_locations: U32,
        /// Master packet description.
        master_pkt_description_offset: U32,
    }

    /// `struct rlc_firmware_header_v2_0`.
    RlcV2_0 {
        /// Feature version.
        ucode_feature_version: U32,
        /// Jump table.
        jt_offset: U32,
        /// Jump table's length.
        jt_size: U32,
        /// Save and restore list.
        save_and_restore_offset: U32,
        /// Clear state descriptor.
        clear_state_descriptor_offset: U32,
        /// Scratch RAM.
        avail_scratch_ram_locations: U32,
        /// Length of the register restore list.
        reg_restore_list_size: U32,
        /// Start of the register list format.
        reg_list_format_start: U32,
        /// Start of its separate part.
        reg_list_format_separate_start: U32,
        /// Start of its offsets.
        starting_offsets_start: U32,
        /// Register list format: length.
        reg_list_format_size_bytes: U32,
        /// Register list format: offset.
        reg_list_format_array_offset_bytes: U32,
        /// Register list: length.
        reg_list_size_bytes: U32,
        /// Register list: offset.
        reg_list_array_offset_bytes: U32,
        /// Separate register list format: length.
        reg_list_format_separate_size_bytes: U32,
        /// Separate register list format: offset.
        reg_list_format_separate_array_offset_bytes: U32,
        /// Separate register list: length.
        reg_list_separate_size_bytes: U32,
        /// Separate register list: offset.
        reg_list_separate_array_offset_bytes: U32,
    }

    /// What `rlc_firmware_header_v2_1` adds.
    RlcV2_1 {
        /// Length of the direct register list.
        reg_list_format_direct_reg_list_length: U32,
        /// Control list: version.
        save_restore_list_cntl_ucode_ver: U32,
        /// Control list: feature version.
        save_restore_list_cntl_feature_ver: U32,
        /// Control list: length.
        save_restore_list_cntl_size_bytes: U32,
        /// Control list: offset.
        save_restore_list_cntl_offset_bytes: U32,
        /// GPM list: version.
        save_restore_list_gpm_ucode_ver: U32,
        /// GPM list: feature version.
        save_restore_list_gpm_feature_ver: U32,
        /// GPM list: length.
        save_restore_list_gpm_size_bytes: U32,
        /// GPM list: offset.
        save_restore_list_gpm_offset_bytes: U32,
        /// SRM list: version.
        save_restore_list_srm_ucode_ver: U32,
        /// SRM list: feature version.
        save_restore_list_srm_feature_ver: U32,
        /// SRM list: length.
        save_restore_list_srm_size_bytes: U32,
        /// SRM list: offset.
        save_restore_list_srm_offset_bytes: U32,
    }

    /// What `rlc_firmware_header_v2_2` adds.
    RlcV2_2 {
        /// IRAM: length.
        rlc_iram_ucode_size_bytes: U32,
        /// IRAM: offset.
        rlc_iram_ucode_offset_bytes: U32,
        /// DRAM: length.
        rlc_dram_ucode_size_bytes: U32,
        /// DRAM: offset.
        rlc_dram_ucode_offset_bytes: U32,
    }

    /// What `rlc_firmware_header_v2_3` adds.
    RlcV2_3 {
        /// RLCP: version.
        rlcp_ucode_version: U32,
        /// RLCP: feature version.
        rlcp_ucode_feature_version: U32,
        /// RLCP: length.
        rlcp_ucode_size_bytes: U32,
        /// RLCP: offset.
        rlcp_ucode_offset_bytes: U32,
        /// RLCV: version.
        rlcv_ucode_version: U32,
        /// RLCV: feature version.
        rlcv_ucode_feature_version: U32,
        /// RLCV: length.
        rlcv_ucode_size_bytes: U32,
        /// RLCV: offset.
        rlcv_ucode_offset_bytes: U32,
    }

    /// What `rlc_firmware_header_v2_4` adds.
    RlcV2_4 {
        /// Tap delays of the GPU: length.
        global_tap_delays_ucode_size_bytes: U32,
        /// Tap delays of the GPU: offset.
        global_tap_delays_ucode_offset_bytes: U32,
        /// Tap delays of shader engine 0: length.
        se0_tap_delays_ucode_size_bytes: U32,
        /// Tap delays of shader engine 0: offset.
        se0_tap_delays_ucode_offset_bytes: U32,
        /// Tap delays of shader engine 1: length.
        se1_tap_delays_ucode_size_bytes: U32,
        /// Tap delays of shader engine 1: offset.
        se1_tap_delays_ucode_offset_bytes: U32,
        /// Tap delays of shader engine 2: length.
        se2_tap_delays_ucode_size_bytes: U32,
        /// Tap delays of shader engine 2: offset.
        se2_tap_delays_ucode_offset_bytes: U32,
        /// Tap delays of shader engine 3: length.
        se3_tap_delays_ucode_size_bytes: U32,
        /// Tap delays of shader engine 3: offset.
        se3_tap_delays_ucode_offset_bytes: U32,
    }
}
