//! One row per GPU: identity, memory, IP blocks with versions and bases.
//!
//! Where each number comes from is told in `golden/README.md` ("What is real, what is assumed").

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
    /// The table's dwords after its header, in the header's order; the rest is zero.
    pub dwords: &'static [(usize, u32)],
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

const NAVI31_IPS: &[Ip] = &[
    Ip {
        hw_id: 1,
        name: "MP1",
        instance: 0,
        version: (13, 0, 0),
        bases: &[0x16000, 0xdc0000, 0xe00000, 0xe40000, 0x243fc00],
    },
    Ip {
        hw_id: 255,
        name: "MP0",
        instance: 0,
        version: (13, 0, 0),
        bases: &[0x16000, 0xdc0000, 0xe00000, 0xe40000, 0x243fc00],
    },
    Ip { hw_id: 3, name: "THM", instance: 0, version: (13, 0, 0), bases: &[0x16600, 0x2400c00] },
    Ip {
        hw_id: 4,
        name: "SMUIO",
        instance: 0,
        version: (13, 0, 6),
        bases: &[0x16800, 0x16a00, 0x440000, 0x2401000],
    },
    Ip { hw_id: 6, name: "CLKA", instance: 0, version: (13, 0, 1), bases: &[0x16c00] },
    Ip { hw_id: 6, name: "CLKA", instance: 1, version: (13, 0, 1), bases: &[0x16e00] },
    Ip { hw_id: 6, name: "CLKA", instance: 2, version: (13, 0, 1), bases: &[0x17000] },
    Ip { hw_id: 6, name: "CLKA", instance: 3, version: (13, 0, 1), bases: &[0x17200] },
    Ip {
        hw_id: 11,
        name: "GC",
        instance: 0,
        version: (11, 0, 0),
        bases: &[0x1260, 0xa000, 0x1c000, 0x2402c00],
    },
    Ip {
        hw_id: 42,
        name: "SDMA0",
        instance: 0,
        version: (6, 0, 0),
        bases: &[0x1260, 0xa000, 0x1c000, 0x2402c00],
    },
    Ip {
        hw_id: 42,
        name: "SDMA0",
        instance: 1,
        version: (6, 0, 0),
        bases: &[0x1260, 0xa000, 0x1c000, 0x2402c00],
    },
    Ip { hw_id: 12, name: "VCN", instance: 0, version: (4, 0, 0), bases: &[0x7800, 0x7e00, 0x2403000] },
    Ip { hw_id: 34, name: "MMHUB", instance: 0, version: (3, 0, 0), bases: &[0x1a000, 0x2408800] },
    Ip { hw_id: 35, name: "ATHUB", instance: 0, version: (3, 0, 0), bases: &[0xc00, 0x2408c00] },
    Ip { hw_id: 40, name: "OSSSYS", instance: 0, version: (6, 0, 0), bases: &[0x10a0, 0x240a000] },
    Ip { hw_id: 41, name: "HDP", instance: 0, version: (6, 0, 0), bases: &[0xf20, 0x240a400] },
    Ip { hw_id: 46, name: "DF", instance: 0, version: (4, 3, 0), bases: &[0x7000, 0x240b800] },
    Ip { hw_id: 91, name: "LSDMA", instance: 0, version: (6, 0, 0), bases: &[0x45, 0x14c00] },
    Ip { hw_id: 150, name: "UMC", instance: 0, version: (8, 10, 0), bases: &[0x14000, 0x2425800] },
    Ip { hw_id: 150, name: "UMC", instance: 1, version: (8, 10, 0), bases: &[0x14800, 0x2426000] },
    Ip { hw_id: 150, name: "UMC", instance: 2, version: (8, 10, 0), bases: &[0x15000, 0x2426800] },
    Ip { hw_id: 150, name: "UMC", instance: 3, version: (8, 10, 0), bases: &[0x15800, 0x2427000] },
    Ip { hw_id: 150, name: "UMC", instance: 4, version: (8, 10, 0), bases: &[0x16000, 0x2427800] },
    Ip { hw_id: 150, name: "UMC", instance: 5, version: (8, 10, 0), bases: &[0x16800, 0x2428000] },
    Ip { hw_id: 150, name: "UMC", instance: 6, version: (8, 10, 0), bases: &[0x17000, 0x2428800] },
    Ip { hw_id: 150, name: "UMC", instance: 7, version: (8, 10, 0), bases: &[0x17800, 0x2429000] },
    Ip {
        hw_id: 271,
        name: "DMU",
        instance: 0,
        version: (3, 2, 0),
        bases: &[0x12, 0xc0, 0x34c0, 0x9000, 0x2403c00],
    },
    Ip {
        hw_id: 108,
        name: "NBIF",
        instance: 0,
        version: (4, 3, 0),
        bases: &[0x0, 0x14, 0xd20, 0x10400, 0x241b000, 0x4040000],
    },
    Ip {
        hw_id: 70,
        name: "PCIE",
        instance: 0,
        version: (4, 3, 0),
        bases: &[0x0, 0x14, 0xd20, 0x10400, 0x241b000],
    },
];

const NAVI32_IPS: &[Ip] = &[
    Ip {
        hw_id: 1,
        name: "MP1",
        instance: 0,
        version: (13, 0, 10),
        bases: &[0x16000, 0xdc0000, 0xe00000, 0xe40000, 0x243fc00],
    },
    Ip {
        hw_id: 255,
        name: "MP0",
        instance: 0,
        version: (13, 0, 10),
        bases: &[0x16000, 0xdc0000, 0xe00000, 0xe40000, 0x243fc00],
    },
    Ip { hw_id: 3, name: "THM", instance: 0, version: (13, 0, 10), bases: &[0x16600, 0x2400c00] },
    Ip {
        hw_id: 4,
        name: "SMUIO",
        instance: 0,
        version: (13, 0, 6),
        bases: &[0x16800, 0x16a00, 0x440000, 0x2401000],
    },
    Ip { hw_id: 6, name: "CLKA", instance: 0, version: (13, 0, 1), bases: &[0x16c00] },
    Ip { hw_id: 6, name: "CLKA", instance: 1, version: (13, 0, 1), bases: &[0x16e00] },
    Ip { hw_id: 6, name: "CLKA", instance: 2, version: (13, 0, 1), bases: &[0x17000] },
    Ip { hw_id: 6, name: "CLKA", instance: 3, version: (13, 0, 1), bases: &[0x17200] },
    Ip {
        hw_id: 11,
        name: "GC",
        instance: 0,
        version: (11, 0, 3),
        bases: &[0x1260, 0xa000, 0x1c000, 0x2402c00],
    },
    Ip {
        hw_id: 42,
        name: "SDMA0",
        instance: 0,
        version: (6, 0, 3),
        bases: &[0x1260, 0xa000, 0x1c000, 0x2402c00],
    },
    Ip {
        hw_id: 42,
        name: "SDMA0",
        instance: 1,
        version: (6, 0, 3),
        bases: &[0x1260, 0xa000, 0x1c000, 0x2402c00],
    },
    Ip { hw_id: 12, name: "VCN", instance: 0, version: (4, 0, 0), bases: &[0x7800, 0x7e00, 0x2403000] },
    Ip { hw_id: 34, name: "MMHUB", instance: 0, version: (3, 0, 0), bases: &[0x1a000, 0x2408800] },
    Ip { hw_id: 35, name: "ATHUB", instance: 0, version: (3, 0, 0), bases: &[0xc00, 0x2408c00] },
    Ip { hw_id: 40, name: "OSSSYS", instance: 0, version: (6, 0, 0), bases: &[0x10a0, 0x240a000] },
    Ip { hw_id: 41, name: "HDP", instance: 0, version: (6, 0, 0), bases: &[0xf20, 0x240a400] },
    Ip { hw_id: 46, name: "DF", instance: 0, version: (4, 3, 0), bases: &[0x7000, 0x240b800] },
    Ip { hw_id: 91, name: "LSDMA", instance: 0, version: (6, 0, 0), bases: &[0x45, 0x14c00] },
    Ip { hw_id: 150, name: "UMC", instance: 0, version: (8, 10, 0), bases: &[0x14000, 0x2425800] },
    Ip { hw_id: 150, name: "UMC", instance: 1, version: (8, 10, 0), bases: &[0x14800, 0x2426000] },
    Ip { hw_id: 150, name: "UMC", instance: 2, version: (8, 10, 0), bases: &[0x15000, 0x2426800] },
    Ip { hw_id: 150, name: "UMC", instance: 3, version: (8, 10, 0), bases: &[0x15800, 0x2427000] },
    Ip { hw_id: 150, name: "UMC", instance: 4, version: (8, 10, 0), bases: &[0x16000, 0x2427800] },
    Ip { hw_id: 150, name: "UMC", instance: 5, version: (8, 10, 0), bases: &[0x16800, 0x2428000] },
    Ip { hw_id: 150, name: "UMC", instance: 6, version: (8, 10, 0), bases: &[0x17000, 0x2428800] },
    Ip { hw_id: 150, name: "UMC", instance: 7, version: (8, 10, 0), bases: &[0x17800, 0x2429000] },
    Ip {
        hw_id: 271,
        name: "DMU",
        instance: 0,
        version: (3, 2, 0),
        bases: &[0x12, 0xc0, 0x34c0, 0x9000, 0x2403c00],
    },
    Ip {
        hw_id: 108,
        name: "NBIF",
        instance: 0,
        version: (4, 3, 0),
        bases: &[0x0, 0x14, 0xd20, 0x10400, 0x241b000, 0x4040000],
    },
    Ip {
        hw_id: 70,
        name: "PCIE",
        instance: 0,
        version: (4, 3, 0),
        bases: &[0x0, 0x14, 0xd20, 0x10400, 0x241b000],
    },
];

const NAVI33_IPS: &[Ip] = &[
    Ip {
        hw_id: 1,
        name: "MP1",
        instance: 0,
        version: (13, 0, 7),
        bases: &[0x16000, 0xdc0000, 0xe00000, 0xe40000, 0x243fc00],
    },
    Ip {
        hw_id: 255,
        name: "MP0",
        instance: 0,
        version: (13, 0, 7),
        bases: &[0x16000, 0xdc0000, 0xe00000, 0xe40000, 0x243fc00],
    },
    Ip { hw_id: 3, name: "THM", instance: 0, version: (13, 0, 7), bases: &[0x16600, 0x2400c00] },
    Ip {
        hw_id: 4,
        name: "SMUIO",
        instance: 0,
        version: (13, 0, 6),
        bases: &[0x16800, 0x16a00, 0x440000, 0x2401000],
    },
    Ip { hw_id: 6, name: "CLKA", instance: 0, version: (13, 0, 1), bases: &[0x16c00] },
    Ip { hw_id: 6, name: "CLKA", instance: 1, version: (13, 0, 1), bases: &[0x16e00] },
    Ip { hw_id: 6, name: "CLKA", instance: 2, version: (13, 0, 1), bases: &[0x17000] },
    Ip { hw_id: 6, name: "CLKA", instance: 3, version: (13, 0, 1), bases: &[0x17200] },
    Ip {
        hw_id: 11,
        name: "GC",
        instance: 0,
        version: (11, 0, 2),
        bases: &[0x1260, 0xa000, 0x1c000, 0x2402c00],
    },
    Ip {
        hw_id: 42,
        name: "SDMA0",
        instance: 0,
        version: (6, 0, 2),
        bases: &[0x1260, 0xa000, 0x1c000, 0x2402c00],
    },
    Ip {
        hw_id: 42,
        name: "SDMA0",
        instance: 1,
        version: (6, 0, 2),
        bases: &[0x1260, 0xa000, 0x1c000, 0x2402c00],
    },
    Ip { hw_id: 12, name: "VCN", instance: 0, version: (4, 0, 0), bases: &[0x7800, 0x7e00, 0x2403000] },
    Ip { hw_id: 34, name: "MMHUB", instance: 0, version: (3, 0, 2), bases: &[0x1a000, 0x2408800] },
    Ip { hw_id: 35, name: "ATHUB", instance: 0, version: (3, 0, 2), bases: &[0xc00, 0x2408c00] },
    Ip { hw_id: 40, name: "OSSSYS", instance: 0, version: (6, 0, 0), bases: &[0x10a0, 0x240a000] },
    Ip { hw_id: 41, name: "HDP", instance: 0, version: (6, 0, 0), bases: &[0xf20, 0x240a400] },
    Ip { hw_id: 46, name: "DF", instance: 0, version: (4, 3, 0), bases: &[0x7000, 0x240b800] },
    Ip { hw_id: 91, name: "LSDMA", instance: 0, version: (6, 0, 0), bases: &[0x45, 0x14c00] },
    Ip { hw_id: 150, name: "UMC", instance: 0, version: (8, 10, 0), bases: &[0x14000, 0x2425800] },
    Ip { hw_id: 150, name: "UMC", instance: 1, version: (8, 10, 0), bases: &[0x14800, 0x2426000] },
    Ip { hw_id: 150, name: "UMC", instance: 2, version: (8, 10, 0), bases: &[0x15000, 0x2426800] },
    Ip { hw_id: 150, name: "UMC", instance: 3, version: (8, 10, 0), bases: &[0x15800, 0x2427000] },
    Ip { hw_id: 150, name: "UMC", instance: 4, version: (8, 10, 0), bases: &[0x16000, 0x2427800] },
    Ip { hw_id: 150, name: "UMC", instance: 5, version: (8, 10, 0), bases: &[0x16800, 0x2428000] },
    Ip { hw_id: 150, name: "UMC", instance: 6, version: (8, 10, 0), bases: &[0x17000, 0x2428800] },
    Ip { hw_id: 150, name: "UMC", instance: 7, version: (8, 10, 0), bases: &[0x17800, 0x2429000] },
    Ip {
        hw_id: 271,
        name: "DMU",
        instance: 0,
        version: (3, 2, 0),
        bases: &[0x12, 0xc0, 0x34c0, 0x9000, 0x2403c00],
    },
    Ip {
        hw_id: 108,
        name: "NBIF",
        instance: 0,
        version: (4, 3, 1),
        bases: &[0x0, 0x14, 0xd20, 0x10400, 0x241b000, 0x4040000],
    },
    Ip {
        hw_id: 70,
        name: "PCIE",
        instance: 0,
        version: (4, 3, 1),
        bases: &[0x0, 0x14, 0xd20, 0x10400, 0x241b000],
    },
];

const NAVI44_IPS: &[Ip] = &[
    Ip {
        hw_id: 1,
        name: "MP1",
        instance: 0,
        version: (14, 0, 2),
        bases: &[
            0x16000, 0x16200, 0x1ce00, 0xdc0000, 0xe00000, 0xe40000, 0xe80000, 0xec0000, 0xf00000, 0x2400400,
            0x243fc00, 0x244d400, 0x3200000, 0x3240000, 0x3280000,
        ],
    },
    Ip {
        hw_id: 255,
        name: "MP0",
        instance: 0,
        version: (14, 0, 2),
        bases: &[
            0x16000, 0x16200, 0x1ce00, 0xdc0000, 0xe00000, 0xe40000, 0xe80000, 0xec0000, 0xf00000, 0x2400400,
            0x243fc00, 0x244d400, 0x3200000, 0x3240000, 0x3280000,
        ],
    },
    Ip { hw_id: 3, name: "THM", instance: 0, version: (14, 0, 2), bases: &[0x16600, 0x2400c00] },
    Ip {
        hw_id: 4,
        name: "SMUIO",
        instance: 0,
        version: (14, 0, 2),
        bases: &[0x16800, 0x16a00, 0x440000, 0x2401000],
    },
    Ip { hw_id: 6, name: "CLKA", instance: 0, version: (14, 0, 1), bases: &[0x16c00] },
    Ip { hw_id: 6, name: "CLKA", instance: 1, version: (14, 0, 1), bases: &[0x16e00] },
    Ip { hw_id: 6, name: "CLKA", instance: 2, version: (14, 0, 1), bases: &[0x17000] },
    Ip { hw_id: 6, name: "CLKA", instance: 3, version: (14, 0, 1), bases: &[0x17200] },
    Ip {
        hw_id: 11,
        name: "GC",
        instance: 0,
        version: (12, 0, 0),
        bases: &[0x1260, 0xa000, 0x1c000, 0x2402c00],
    },
    Ip {
        hw_id: 42,
        name: "SDMA0",
        instance: 0,
        version: (7, 0, 0),
        bases: &[0x1260, 0xa000, 0x1c000, 0x2402c00],
    },
    Ip {
        hw_id: 42,
        name: "SDMA0",
        instance: 1,
        version: (7, 0, 0),
        bases: &[0x1260, 0xa000, 0x1c000, 0x2402c00],
    },
    Ip { hw_id: 12, name: "VCN", instance: 0, version: (5, 0, 0), bases: &[0x7800, 0x7e00, 0x2403000] },
    Ip { hw_id: 34, name: "MMHUB", instance: 0, version: (4, 1, 0), bases: &[0x1a000, 0x2408800] },
    Ip { hw_id: 35, name: "ATHUB", instance: 0, version: (4, 1, 0), bases: &[0xc00, 0x2408c00] },
    Ip { hw_id: 40, name: "OSSSYS", instance: 0, version: (7, 0, 0), bases: &[0x10a0, 0x240a000] },
    Ip { hw_id: 41, name: "HDP", instance: 0, version: (7, 0, 0), bases: &[0xf20, 0x240a400] },
    Ip { hw_id: 46, name: "DF", instance: 0, version: (4, 15, 0), bases: &[0x7000, 0x240b800] },
    Ip { hw_id: 91, name: "LSDMA", instance: 0, version: (7, 0, 0), bases: &[0x45, 0x14c00] },
    Ip { hw_id: 150, name: "UMC", instance: 0, version: (8, 14, 0), bases: &[0x14000, 0x2425800] },
    Ip { hw_id: 150, name: "UMC", instance: 1, version: (8, 14, 0), bases: &[0x14800, 0x2426000] },
    Ip { hw_id: 150, name: "UMC", instance: 2, version: (8, 14, 0), bases: &[0x15000, 0x2426800] },
    Ip { hw_id: 150, name: "UMC", instance: 3, version: (8, 14, 0), bases: &[0x15800, 0x2427000] },
    Ip { hw_id: 150, name: "UMC", instance: 4, version: (8, 14, 0), bases: &[0x16000, 0x2427800] },
    Ip { hw_id: 150, name: "UMC", instance: 5, version: (8, 14, 0), bases: &[0x16800, 0x2428000] },
    Ip { hw_id: 150, name: "UMC", instance: 6, version: (8, 14, 0), bases: &[0x17000, 0x2428800] },
    Ip { hw_id: 150, name: "UMC", instance: 7, version: (8, 14, 0), bases: &[0x17800, 0x2429000] },
    Ip {
        hw_id: 271,
        name: "DMU",
        instance: 0,
        version: (4, 1, 0),
        bases: &[0x12, 0xc0, 0x34c0, 0x9000, 0x2403c00],
    },
    Ip {
        hw_id: 108,
        name: "NBIF",
        instance: 0,
        version: (6, 3, 1),
        bases: &[0x0, 0x14, 0xd20, 0x10400, 0x241b000, 0x4040000],
    },
    Ip {
        hw_id: 70,
        name: "PCIE",
        instance: 0,
        version: (6, 3, 1),
        bases: &[0x0, 0x14, 0xd20, 0x10400, 0x241b000],
    },
];

const NAVI48_IPS: &[Ip] = &[
    Ip {
        hw_id: 1,
        name: "MP1",
        instance: 0,
        version: (14, 0, 3),
        bases: &[
            0x16000, 0x16200, 0x1ce00, 0xdc0000, 0xe00000, 0xe40000, 0xe80000, 0xec0000, 0xf00000, 0x2400400,
            0x243fc00, 0x244d400, 0x3200000, 0x3240000, 0x3280000,
        ],
    },
    Ip {
        hw_id: 255,
        name: "MP0",
        instance: 0,
        version: (14, 0, 3),
        bases: &[
            0x16000, 0x16200, 0x1ce00, 0xdc0000, 0xe00000, 0xe40000, 0xe80000, 0xec0000, 0xf00000, 0x2400400,
            0x243fc00, 0x244d400, 0x3200000, 0x3240000, 0x3280000,
        ],
    },
    Ip { hw_id: 3, name: "THM", instance: 0, version: (14, 0, 3), bases: &[0x16600, 0x2400c00] },
    Ip {
        hw_id: 4,
        name: "SMUIO",
        instance: 0,
        version: (14, 0, 2),
        bases: &[0x16800, 0x16a00, 0x440000, 0x2401000],
    },
    Ip { hw_id: 6, name: "CLKA", instance: 0, version: (14, 0, 1), bases: &[0x16c00] },
    Ip { hw_id: 6, name: "CLKA", instance: 1, version: (14, 0, 1), bases: &[0x16e00] },
    Ip { hw_id: 6, name: "CLKA", instance: 2, version: (14, 0, 1), bases: &[0x17000] },
    Ip { hw_id: 6, name: "CLKA", instance: 3, version: (14, 0, 1), bases: &[0x17200] },
    Ip {
        hw_id: 11,
        name: "GC",
        instance: 0,
        version: (12, 0, 1),
        bases: &[0x1260, 0xa000, 0x1c000, 0x2402c00],
    },
    Ip {
        hw_id: 42,
        name: "SDMA0",
        instance: 0,
        version: (7, 0, 1),
        bases: &[0x1260, 0xa000, 0x1c000, 0x2402c00],
    },
    Ip {
        hw_id: 42,
        name: "SDMA0",
        instance: 1,
        version: (7, 0, 1),
        bases: &[0x1260, 0xa000, 0x1c000, 0x2402c00],
    },
    Ip { hw_id: 12, name: "VCN", instance: 0, version: (5, 0, 0), bases: &[0x7800, 0x7e00, 0x2403000] },
    Ip { hw_id: 34, name: "MMHUB", instance: 0, version: (4, 1, 0), bases: &[0x1a000, 0x2408800] },
    Ip { hw_id: 35, name: "ATHUB", instance: 0, version: (4, 1, 0), bases: &[0xc00, 0x2408c00] },
    Ip { hw_id: 40, name: "OSSSYS", instance: 0, version: (7, 0, 0), bases: &[0x10a0, 0x240a000] },
    Ip { hw_id: 41, name: "HDP", instance: 0, version: (7, 0, 0), bases: &[0xf20, 0x240a400] },
    Ip { hw_id: 46, name: "DF", instance: 0, version: (4, 15, 0), bases: &[0x7000, 0x240b800] },
    Ip { hw_id: 91, name: "LSDMA", instance: 0, version: (7, 0, 0), bases: &[0x45, 0x14c00] },
    Ip { hw_id: 150, name: "UMC", instance: 0, version: (8, 14, 0), bases: &[0x14000, 0x2425800] },
    Ip { hw_id: 150, name: "UMC", instance: 1, version: (8, 14, 0), bases: &[0x14800, 0x2426000] },
    Ip { hw_id: 150, name: "UMC", instance: 2, version: (8, 14, 0), bases: &[0x15000, 0x2426800] },
    Ip { hw_id: 150, name: "UMC", instance: 3, version: (8, 14, 0), bases: &[0x15800, 0x2427000] },
    Ip { hw_id: 150, name: "UMC", instance: 4, version: (8, 14, 0), bases: &[0x16000, 0x2427800] },
    Ip { hw_id: 150, name: "UMC", instance: 5, version: (8, 14, 0), bases: &[0x16800, 0x2428000] },
    Ip { hw_id: 150, name: "UMC", instance: 6, version: (8, 14, 0), bases: &[0x17000, 0x2428800] },
    Ip { hw_id: 150, name: "UMC", instance: 7, version: (8, 14, 0), bases: &[0x17800, 0x2429000] },
    Ip {
        hw_id: 271,
        name: "DMU",
        instance: 0,
        version: (4, 1, 0),
        bases: &[0x12, 0xc0, 0x34c0, 0x9000, 0x2403c00],
    },
    Ip {
        hw_id: 108,
        name: "NBIF",
        instance: 0,
        version: (6, 3, 1),
        bases: &[0x0, 0x14, 0xd20, 0x10400, 0x241b000, 0x4040000],
    },
    Ip {
        hw_id: 70,
        name: "PCIE",
        instance: 0,
        version: (6, 3, 1),
        bases: &[0x0, 0x14, 0xd20, 0x10400, 0x241b000],
    },
];

/// All models.
pub const CHIPS: &[Chip] = &[
    Chip {
        name: "navi31",
        product: "Radeon RX 7900 XTX",
        target: "gfx1100",
        device_id: 0x744c,
        vram_mib: 24560,
        bar0: 0x800000000,
        ips: NAVI31_IPS,
        gc: GcInfo {
            minor: 2,
            dwords: &[
                (0, 6),
                (1, 4),
                (2, 0),
                (3, 4),
                (4, 24),
                (5, 1024),
                (6, 32),
                (7, 32),
                (8, 1792),
                (9, 1024),
                (10, 1),
                (11, 32),
                (12, 16),
                (13, 32),
                (14, 64),
                (15, 1),
                (16, 2),
                (17, 4),
                (18, 4),
                (20, 16),
            ],
            len: 30,
        },
    },
    Chip {
        name: "navi32",
        product: "Radeon RX 7800 XT",
        target: "gfx1101",
        device_id: 0x747e,
        vram_mib: 16368,
        bar0: 0x400000000,
        ips: NAVI32_IPS,
        gc: GcInfo {
            minor: 2,
            dwords: &[
                (0, 3),
                (1, 5),
                (2, 0),
                (3, 4),
                (4, 16),
                (5, 1024),
                (6, 32),
                (7, 32),
                (8, 1792),
                (9, 1024),
                (10, 1),
                (11, 32),
                (12, 16),
                (13, 32),
                (14, 64),
                (15, 1),
                (16, 2),
                (17, 4),
                (18, 4),
                (20, 16),
            ],
            len: 30,
        },
    },
    Chip {
        name: "navi33",
        product: "Radeon RX 7600",
        target: "gfx1102",
        device_id: 0x7480,
        vram_mib: 8176,
        bar0: 0x200000000,
        ips: NAVI33_IPS,
        gc: GcInfo {
            minor: 2,
            dwords: &[
                (0, 2),
                (1, 4),
                (2, 0),
                (3, 4),
                (4, 8),
                (5, 1024),
                (6, 32),
                (7, 32),
                (8, 1792),
                (9, 1024),
                (10, 1),
                (11, 32),
                (12, 16),
                (13, 32),
                (14, 64),
                (15, 1),
                (16, 2),
                (17, 4),
                (18, 2),
                (20, 16),
            ],
            len: 30,
        },
    },
    Chip {
        name: "navi44",
        product: "Radeon RX 9060 XT",
        target: "gfx1200",
        device_id: 0x7590,
        vram_mib: 16304,
        bar0: 0x400000000,
        ips: NAVI44_IPS,
        gc: GcInfo {
            minor: 3,
            dwords: &[
                (0, 2),
                (1, 4),
                (2, 0),
                (3, 8),
                (4, 8),
                (5, 1024),
                (6, 32),
                (7, 32),
                (8, 1792),
                (9, 1024),
                (10, 1),
                (11, 32),
                (12, 16),
                (13, 32),
                (14, 64),
                (15, 1),
                (16, 2),
                (17, 4),
                (18, 2),
                (20, 16),
            ],
            len: 38,
        },
    },
    Chip {
        name: "navi48",
        product: "Radeon RX 9070 XT",
        target: "gfx1201",
        device_id: 0x7550,
        vram_mib: 16304,
        bar0: 0x400000000,
        ips: NAVI48_IPS,
        gc: GcInfo {
            minor: 3,
            dwords: &[
                (0, 4),
                (1, 4),
                (2, 0),
                (3, 8),
                (4, 16),
                (5, 1024),
                (6, 32),
                (7, 32),
                (8, 1792),
                (9, 1024),
                (10, 1),
                (11, 32),
                (12, 16),
                (13, 32),
                (14, 64),
                (15, 1),
                (16, 2),
                (17, 4),
                (18, 4),
                (20, 16),
            ],
            len: 38,
        },
    },
];
