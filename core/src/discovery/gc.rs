//! The shape of the graphics core: `struct gc_info_v1_0` to `v1_3`, `v2_0`, `v2_1`.

/// The shape of the graphics core, as designed: units fused off are still counted.
///
/// Fields that a version lacks are 0. Version 1 describes WGPs (two compute units each) and shader
/// arrays, version 2 (GFX9) compute units and shader engines' SHs, which are the same as arrays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GcInfo {
    /// Version of the description: major, minor.
    pub version: (u16, u16),
    /// Shader engines.
    pub num_se: u32,
    /// Shader arrays in each engine.
    pub sa_per_se: u32,
    /// WGPs of the first kind in each array (version 1).
    pub wgp0_per_sa: u32,
    /// WGPs of the second kind in each array (version 1).
    pub wgp1_per_sa: u32,
    /// Compute units in each array (version 2; version 1 has WGPs: see [`GcInfo::cus_per_sa`]).
    pub cu_per_sh: u32,
    /// Render backends in each engine.
    pub rb_per_se: u32,
    /// L2 channels (GL2C, TCC).
    pub num_l2: u32,
    /// Vector registers of a SIMD lane group.
    pub num_gprs: u32,
    /// Geometry shader threads.
    pub max_gs_threads: u32,
    /// Depth of the geometry shader table.
    pub gs_table_depth: u32,
    /// Depth of the geometry primitive buffer.
    pub gs_prim_buffer_depth: u32,
    /// Depth of the parameter cache.
    pub parameter_cache_depth: u32,
    /// Whether the off-chip LDS buffer is doubled.
    pub double_offchip_lds_buffer: u32,
    /// Native wave size in lanes.
    pub wave_size: u32,
    /// Waves that a SIMD holds.
    pub max_waves_per_simd: u32,
    /// Waves with scratch memory that a compute unit holds.
    pub max_scratch_slots_per_cu: u32,
    /// LDS of a compute unit in KiB.
    pub lds_size_kib: u32,
    /// Scan converters in each engine.
    pub sc_per_se: u32,
    /// Packers of each scan converter.
    pub packer_per_sc: u32,
    /// GL2A blocks (version 1).
    pub num_gl2a: u32,
    /// Vector L1 caches in each array (1.1, 2.1).
    pub tcp_per_sa: u32,
    /// SDP interfaces (1.1, 2.1).
    pub num_sdp_interface: u32,
    /// Vector L1 caches (1.1).
    pub num_tcps: u32,
    /// Vector L1 caches in each WGP (1.2).
    pub tcp_per_wgp: u32,
    /// Size of a vector L1 cache (1.2).
    pub tcp_l1_size: u32,
    /// Sequencer caches in each WGP (1.2).
    pub sqc_per_wgp: u32,
    /// L1 instruction cache of each sequencer cache (1.2).
    pub l1_instruction_cache_size_per_sqc: u32,
    /// L1 data cache of each sequencer cache (1.2).
    pub l1_data_cache_size_per_sqc: u32,
    /// GL1 caches in each array (1.2).
    pub gl1c_per_sa: u32,
    /// Size of a GL1 cache (1.2).
    pub gl1c_size_per_instance: u32,
    /// GL2 channels of the GPU (1.2).
    pub gl2c_per_gpu: u32,
    /// Vector L1 cache of a compute unit (1.3, 2.1).
    pub tcp_size_per_cu: u32,
    /// Its line size (1.3).
    pub tcp_cache_line_size: u32,
    /// Instruction cache of a sequencer cache (1.3, 2.1).
    pub instruction_cache_size_per_sqc: u32,
    /// Its line size (1.3).
    pub instruction_cache_line_size: u32,
    /// Scalar data cache of a sequencer cache (1.3, 2.1).
    pub scalar_data_cache_size_per_sqc: u32,
    /// Its line size (1.3).
    pub scalar_data_cache_line_size: u32,
    /// Size of the L2 cache (1.3, 2.1).
    pub tcc_size: u32,
    /// Its line size (1.3).
    pub tcc_cache_line_size: u32,
    /// Compute units that share a sequencer cache (2.1).
    pub cu_per_sqc: u32,
}

/// The most words any version has.
pub(super) const MAX_WORDS: usize = 38;

impl GcInfo {
    /// How many words the version has; later minor versions only append. `None`: unknown version.
    pub(super) const fn words(version: (u16, u16)) -> Option<usize> {
        Some(match version {
            (1, 0) => 19,
            (1, 1) => 22,
            (1, 2) => 30,
            (1, _) => 38,
            (2, 0) => 17,
            (2, _) => 24,
            _ => return None,
        })
    }

    /// The fields of this version in the order in which they stand in memory. The one list serves
    /// reading and writing.
    pub(super) fn fields(&mut self) -> [Option<&mut u32>; MAX_WORDS] {
        let g = self;
        let mut out = [const { None }; MAX_WORDS];
        macro_rules! order {
            ($($field:ident)*) => {{
                let mut slots = out.iter_mut();
                $(if let Some(slot) = slots.next() { *slot = Some(&mut g.$field); })*
            }};
        }
        if g.version.0 == 1 {
            order!(num_se wgp0_per_sa wgp1_per_sa rb_per_se num_l2 num_gprs max_gs_threads gs_table_depth
                gs_prim_buffer_depth parameter_cache_depth double_offchip_lds_buffer wave_size
                max_waves_per_simd max_scratch_slots_per_cu lds_size_kib sc_per_se sa_per_se packer_per_sc
                num_gl2a
                tcp_per_sa num_sdp_interface num_tcps
                tcp_per_wgp tcp_l1_size sqc_per_wgp l1_instruction_cache_size_per_sqc
                l1_data_cache_size_per_sqc gl1c_per_sa gl1c_size_per_instance gl2c_per_gpu
                tcp_size_per_cu tcp_cache_line_size instruction_cache_size_per_sqc
                instruction_cache_line_size scalar_data_cache_size_per_sqc scalar_data_cache_line_size
                tcc_size tcc_cache_line_size);
        } else {
            order!(num_se cu_per_sh sa_per_se rb_per_se num_l2 num_gprs max_gs_threads gs_table_depth
                gs_prim_buffer_depth parameter_cache_depth double_offchip_lds_buffer wave_size
                max_waves_per_simd max_scratch_slots_per_cu lds_size_kib sc_per_se packer_per_sc
                tcp_per_sa tcp_size_per_cu num_sdp_interface cu_per_sqc instruction_cache_size_per_sqc
                scalar_data_cache_size_per_sqc tcc_size);
        }
        out
    }

    /// WGPs in each shader array; 0 where the core has compute units only (version 2).
    pub const fn wgps_per_sa(&self) -> u32 {
        self.wgp0_per_sa.saturating_add(self.wgp1_per_sa)
    }

    /// Compute units in each shader array.
    pub const fn cus_per_sa(&self) -> u32 {
        if self.version.0 >= 2 { self.cu_per_sh } else { self.wgps_per_sa().saturating_mul(2) }
    }

    /// Compute units of one core as designed.
    pub const fn max_cus(&self) -> u32 {
        self.num_se.saturating_mul(self.sa_per_se).saturating_mul(self.cus_per_sa())
    }

    /// Compute units active in a shader array, given the `INACTIVE_WGPS` bits of its
    /// `CC_GC_SHADER_ARRAY_CONFIG` (ored with `GC_USER_SHADER_ARRAY_CONFIG`), one bit for each WGP.
    pub const fn active_cus_in_array(&self, inactive_wgps: u32) -> u32 {
        let wgps = self.wgps_per_sa();
        let all = if wgps >= 32 { u32::MAX } else { (1u32 << wgps).wrapping_sub(1) };
        (all & !inactive_wgps).count_ones() * 2
    }
}
