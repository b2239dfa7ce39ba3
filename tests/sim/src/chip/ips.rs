//! The IP blocks of a generation, in the order of the discovery table. Its GPUs differ in versions
//! only.

use super::Ip;

type Version = (u8, u8, u8);

/// Bases of GC and of the SDMA engines, which live in its address space.
const GC: &[u32] = &[0x1260, 0xa000, 0x1c000, 0x2402c00];

const fn ip(hw_id: u16, name: &'static str, instance: u8, version: Version, bases: &'static [u32]) -> Ip {
    Ip { hw_id, name, instance, version, bases }
}

/// Versions in which GFX11 parts differ.
pub(super) struct Gfx11 {
    pub(super) gc: Version,
    pub(super) sdma: Version,
    /// MP0, MP1 and THM.
    pub(super) mp: Version,
    /// MMHUB and ATHUB.
    pub(super) hub: Version,
    /// NBIF and PCIE.
    pub(super) nbif: Version,
}

pub(super) const fn gfx11(v: &Gfx11) -> [Ip; 29] {
    const MP: &[u32] = &[0x16000, 0xdc0000, 0xe00000, 0xe40000, 0x243fc00];
    [
        ip(1, "MP1", 0, v.mp, MP),
        ip(255, "MP0", 0, v.mp, MP),
        ip(3, "THM", 0, v.mp, &[0x16600, 0x2400c00]),
        ip(4, "SMUIO", 0, (13, 0, 6), &[0x16800, 0x16a00, 0x440000, 0x2401000]),
        ip(6, "CLKA", 0, (13, 0, 1), &[0x16c00]),
        ip(6, "CLKA", 1, (13, 0, 1), &[0x16e00]),
        ip(6, "CLKA", 2, (13, 0, 1), &[0x17000]),
        ip(6, "CLKA", 3, (13, 0, 1), &[0x17200]),
        ip(11, "GC", 0, v.gc, GC),
        ip(42, "SDMA0", 0, v.sdma, GC),
        ip(42, "SDMA0", 1, v.sdma, GC),
        ip(12, "VCN", 0, (4, 0, 0), &[0x7800, 0x7e00, 0x2403000]),
        ip(34, "MMHUB", 0, v.hub, &[0x1a000, 0x2408800]),
        ip(35, "ATHUB", 0, v.hub, &[0xc00, 0x2408c00]),
        ip(40, "OSSSYS", 0, (6, 0, 0), &[0x10a0, 0x240a000]),
        ip(41, "HDP", 0, (6, 0, 0), &[0xf20, 0x240a400]),
        ip(46, "DF", 0, (4, 3, 0), &[0x7000, 0x240b800]),
        ip(91, "LSDMA", 0, (6, 0, 0), &[0x45, 0x14c00]),
        ip(150, "UMC", 0, (8, 10, 0), &[0x14000, 0x2425800]),
        ip(150, "UMC", 1, (8, 10, 0), &[0x14800, 0x2426000]),
        ip(150, "UMC", 2, (8, 10, 0), &[0x15000, 0x2426800]),
        ip(150, "UMC", 3, (8, 10, 0), &[0x15800, 0x2427000]),
        ip(150, "UMC", 4, (8, 10, 0), &[0x16000, 0x2427800]),
        ip(150, "UMC", 5, (8, 10, 0), &[0x16800, 0x2428000]),
        ip(150, "UMC", 6, (8, 10, 0), &[0x17000, 0x2428800]),
        ip(150, "UMC", 7, (8, 10, 0), &[0x17800, 0x2429000]),
        ip(271, "DMU", 0, (3, 2, 0), &[0x12, 0xc0, 0x34c0, 0x9000, 0x2403c00]),
        ip(108, "NBIF", 0, v.nbif, &[0x0, 0x14, 0xd20, 0x10400, 0x241b000, 0x4040000]),
        ip(70, "PCIE", 0, v.nbif, &[0x0, 0x14, 0xd20, 0x10400, 0x241b000]),
    ]
}

/// Versions in which GFX12 parts differ.
pub(super) struct Gfx12 {
    pub(super) gc: Version,
    pub(super) sdma: Version,
    /// MP0, MP1 and THM.
    pub(super) mp: Version,
}

pub(super) const fn gfx12(v: &Gfx12) -> [Ip; 29] {
    const MP: &[u32] = &[
        0x16000, 0x16200, 0x1ce00, 0xdc0000, 0xe00000, 0xe40000, 0xe80000, 0xec0000, 0xf00000, 0x2400400,
        0x243fc00, 0x244d400, 0x3200000, 0x3240000, 0x3280000,
    ];
    [
        ip(1, "MP1", 0, v.mp, MP),
        ip(255, "MP0", 0, v.mp, MP),
        ip(3, "THM", 0, v.mp, &[0x16600, 0x2400c00]),
        ip(4, "SMUIO", 0, (14, 0, 2), &[0x16800, 0x16a00, 0x440000, 0x2401000]),
        ip(6, "CLKA", 0, (14, 0, 1), &[0x16c00]),
        ip(6, "CLKA", 1, (14, 0, 1), &[0x16e00]),
        ip(6, "CLKA", 2, (14, 0, 1), &[0x17000]),
        ip(6, "CLKA", 3, (14, 0, 1), &[0x17200]),
        ip(11, "GC", 0, v.gc, GC),
        ip(42, "SDMA0", 0, v.sdma, GC),
        ip(42, "SDMA0", 1, v.sdma, GC),
        ip(12, "VCN", 0, (5, 0, 0), &[0x7800, 0x7e00, 0x2403000]),
        ip(34, "MMHUB", 0, (4, 1, 0), &[0x1a000, 0x2408800]),
        ip(35, "ATHUB", 0, (4, 1, 0), &[0xc00, 0x2408c00]),
        ip(40, "OSSSYS", 0, (7, 0, 0), &[0x10a0, 0x240a000]),
        ip(41, "HDP", 0, (7, 0, 0), &[0xf20, 0x240a400]),
        ip(46, "DF", 0, (4, 15, 0), &[0x7000, 0x240b800]),
        ip(91, "LSDMA", 0, (7, 0, 0), &[0x45, 0x14c00]),
        ip(150, "UMC", 0, (8, 14, 0), &[0x14000, 0x2425800]),
        ip(150, "UMC", 1, (8, 14, 0), &[0x14800, 0x2426000]),
        ip(150, "UMC", 2, (8, 14, 0), &[0x15000, 0x2426800]),
        ip(150, "UMC", 3, (8, 14, 0), &[0x15800, 0x2427000]),
        ip(150, "UMC", 4, (8, 14, 0), &[0x16000, 0x2427800]),
        ip(150, "UMC", 5, (8, 14, 0), &[0x16800, 0x2428000]),
        ip(150, "UMC", 6, (8, 14, 0), &[0x17000, 0x2428800]),
        ip(150, "UMC", 7, (8, 14, 0), &[0x17800, 0x2429000]),
        ip(271, "DMU", 0, (4, 1, 0), &[0x12, 0xc0, 0x34c0, 0x9000, 0x2403c00]),
        ip(108, "NBIF", 0, (6, 3, 1), &[0x0, 0x14, 0xd20, 0x10400, 0x241b000, 0x4040000]),
        ip(70, "PCIE", 0, (6, 3, 1), &[0x0, 0x14, 0xd20, 0x10400, 0x241b000]),
    ]
}
