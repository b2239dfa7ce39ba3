//! One row per GPU: identity, memory, IP blocks with versions and bases.
//!
//! Where each number comes from is told in `golden/README.md` ("What is real, what is assumed").

mod ips;

use ips::{Gfx11, Gfx12};

/// One IP block of a GPU, as its discovery table lists it.
#[derive(Clone, Copy, Debug)]
pub struct Ip {
    /// Hardware id (`soc15_hw_ip.h`).
    pub hw_id: u16,
    /// Name of the hardware id without `_HWID`.
    pub name: &'static str,
    /// Instance number.
    pub instance: u8,
    /// Major, minor, revision.
    pub version: (u8, u8, u8),
    /// Segment bases in dwords.
    pub bases: &'static [u32],
}

/// The graphics core's shape (`gc_info_v1_2`, `gc_info_v1_3` in `discovery.h`).
#[derive(Clone, Copy, Debug)]
pub struct GcInfo {
    /// Minor version of the table (1.minor).
    pub minor: u16,
    /// The first of the table's dwords after its header, in the header's order; the rest is zero.
    pub dwords: [u32; 21],
    /// Dwords of the table after its header.
    pub len: usize,
}

/// A GPU model.
#[derive(Clone, Copy, Debug)]
pub struct Chip {
    /// Name as in `sim:NAME`.
    pub name: &'static str,
    /// What it is sold as.
    pub product: &'static str,
    /// LLVM target.
    pub target: &'static str,
    /// PCI device id (vendor 0x1002).
    pub device_id: u16,
    /// VRAM in MiB, the value of RCC_CONFIG_MEMSIZE.
    pub vram_mib: u32,
    /// Length of BAR0 when it is fully resized.
    pub bar0: u64,
    /// IP blocks in the order of the discovery table.
    pub ips: &'static [Ip],
    /// The GC info table.
    pub gc: GcInfo,
}

impl Chip {
    /// The first block with this name.
    pub fn ip(&self, name: &str) -> Option<&'static Ip> {
        self.ips.iter().find(|i| i.name == name)
    }

    /// Version of the graphics core.
    pub fn gc_version(&self) -> (u8, u8, u8) {
        self.ip("GC").map(|i| i.version).unwrap_or((0, 0, 0))
    }

    /// True for GFX12 parts, which differ in mailboxes, TMR and table formats.
    pub fn gfx12(&self) -> bool {
        self.gc_version().0 >= 12
    }

    /// The SMU has a debug mailbox: registers 75, 53 and 54 (`smu_v13_0_0_ppt.c`, which serves MP1
    /// 13.0.0 and 13.0.10, and `smu_v14_0_2_ppt.c`; not `smu_v13_0_7_ppt.c`).
    pub fn debug_mailbox(&self) -> bool {
        self.ip("MP1").is_some_and(|mp1| mp1.version.0 >= 14 || matches!(mp1.version, (13, 0, 0 | 10)))
    }

    /// VRAM in bytes.
    pub fn vram_bytes(&self) -> u64 {
        u64::from(self.vram_mib) << 20
    }
}

/// The model called `name`.
pub fn chip(name: &str) -> Option<&'static Chip> {
    CHIPS.iter().find(|c| c.name == name)
}

const NAVI31: &[Ip] =
    &ips::gfx11(&Gfx11 { gc: (11, 0, 0), sdma: (6, 0, 0), mp: (13, 0, 0), hub: (3, 0, 0), nbif: (4, 3, 0) });
const NAVI32: &[Ip] =
    &ips::gfx11(&Gfx11 { gc: (11, 0, 3), sdma: (6, 0, 3), mp: (13, 0, 10), hub: (3, 0, 0), nbif: (4, 3, 0) });
const NAVI33: &[Ip] =
    &ips::gfx11(&Gfx11 { gc: (11, 0, 2), sdma: (6, 0, 2), mp: (13, 0, 7), hub: (3, 0, 2), nbif: (4, 3, 1) });
const NAVI44: &[Ip] = &ips::gfx12(&Gfx12 { gc: (12, 0, 0), sdma: (7, 0, 0), mp: (14, 0, 2) });
const NAVI48: &[Ip] = &ips::gfx12(&Gfx12 { gc: (12, 0, 1), sdma: (7, 0, 1), mp: (14, 0, 3) });

/// In what the graphics cores differ.
struct Shape {
    se: u32,
    wgp0_per_sa: u32,
    rb_per_se: u32,
    gl2c: u32,
    gl2a: u32,
}

/// The table of version 1.2 or 1.3; the names are those of `struct gc_info_v1_0` and `v1_1` without
/// their prefix.
const fn gc_info(minor: u16, s: Shape) -> GcInfo {
    let mut dwords = [0; 21];
    dwords[0] = s.se;
    dwords[1] = s.wgp0_per_sa;
    dwords[2] = 0; // wgp1_per_sa
    dwords[3] = s.rb_per_se;
    dwords[4] = s.gl2c;
    dwords[5] = 1024; // gprs
    dwords[6] = 32; // max_gs_thds
    dwords[7] = 32; // gs_table_depth
    dwords[8] = 1792; // gsprim_buff_depth
    dwords[9] = 1024; // parameter_cache_depth
    dwords[10] = 1; // double_offchip_lds_buffer
    dwords[11] = 32; // wave_size
    dwords[12] = 16; // max_waves_per_simd
    dwords[13] = 32; // max_scratch_slots_per_cu
    dwords[14] = 64; // lds_size
    dwords[15] = 1; // sc_per_se
    dwords[16] = 2; // sa_per_se
    dwords[17] = 4; // packer_per_sc
    dwords[18] = s.gl2a;
    dwords[20] = 16; // sdp_interface
    GcInfo { minor, dwords, len: if minor == 2 { 30 } else { 38 } }
}

/// All models.
pub const CHIPS: &[Chip] = &[
    Chip {
        name: "navi31",
        product: "Radeon RX 7900 XTX",
        target: "gfx1100",
        device_id: 0x744c,
        vram_mib: 24560,
        bar0: 0x800000000,
        ips: NAVI31,
        gc: gc_info(2, Shape { se: 6, wgp0_per_sa: 4, rb_per_se: 4, gl2c: 24, gl2a: 4 }),
    },
    Chip {
        name: "navi32",
        product: "Radeon RX 7800 XT",
        target: "gfx1101",
        device_id: 0x747e,
        vram_mib: 16368,
        bar0: 0x400000000,
        ips: NAVI32,
        gc: gc_info(2, Shape { se: 3, wgp0_per_sa: 5, rb_per_se: 4, gl2c: 16, gl2a: 4 }),
    },
    Chip {
        name: "navi33",
        product: "Radeon RX 7600",
        target: "gfx1102",
        device_id: 0x7480,
        vram_mib: 8176,
        bar0: 0x200000000,
        ips: NAVI33,
        gc: gc_info(2, Shape { se: 2, wgp0_per_sa: 4, rb_per_se: 4, gl2c: 8, gl2a: 2 }),
    },
    Chip {
        name: "navi44",
        product: "Radeon RX 9060 XT",
        target: "gfx1200",
        device_id: 0x7590,
        vram_mib: 16304,
        bar0: 0x400000000,
        ips: NAVI44,
        gc: gc_info(3, Shape { se: 2, wgp0_per_sa: 4, rb_per_se: 8, gl2c: 8, gl2a: 2 }),
    },
    Chip {
        name: "navi48",
        product: "Radeon RX 9070 XT",
        target: "gfx1201",
        device_id: 0x7550,
        vram_mib: 16304,
        bar0: 0x400000000,
        ips: NAVI48,
        gc: gc_info(3, Shape { se: 4, wgp0_per_sa: 4, rb_per_se: 8, gl2c: 16, gl2a: 4 }),
    },
];
