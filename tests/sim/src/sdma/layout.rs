//! Which bits of which packet mean something: everything else must be zero.

use super::SdmaVersion::{self, V4_4, V5_2, V6_0, V7_0};

/// A packet's layout: fixed length in dwords and the bits allowed in each.
pub(super) struct Layout {
    pub(super) name: &'static str,
    pub(super) op: u8,
    pub(super) sub: u8,
    /// First version that has this layout and the last.
    pub(super) from: SdmaVersion,
    pub(super) to: SdmaVersion,
    /// Allowed bits of the header beyond op and sub-op, then of the following dwords.
    pub(super) masks: &'static [u32],
}

const ALL: u32 = u32::MAX;

const fn row(
    name: &'static str,
    op: u8,
    sub: u8,
    from: SdmaVersion,
    to: SdmaVersion,
    masks: &'static [u32],
) -> Layout {
    Layout { name, op, sub, from, to, masks }
}

/// All packets that are accepted. Rows of one packet differ by version only.
pub(super) static LAYOUTS: &[Layout] = &[
    row("NOP", 0, 0, V4_4, V7_0, &[0x3fff_0000]),
    row("COPY_LINEAR", 1, 0, V4_4, V4_4, &[0x0805_0000, 0x3f_ffff, 0x0303_0000, ALL, ALL, ALL, ALL]),
    // navi10_sdma_pkt_open.h still gives 22 bits of count, but 5.2 counts 30 as 6.0 does: the
    // reference relies on it (its copies are up to 1 GiB long from 5.2 on).
    row("COPY_LINEAR", 1, 0, V5_2, V5_2, &[0x0a05_0000, 0x3fff_ffff, 0x0303_0000, ALL, ALL, ALL, ALL]),
    row("COPY_LINEAR", 1, 0, V6_0, V6_0, &[0x0a0d_0000, 0x3fff_ffff, 0x1f1f_0000, ALL, ALL, ALL, ALL]),
    // SDMA 7 puts compression controls (SDMA_DCC_*) into an eighth dword that hardware reads only
    // with CPV set; without it the packet is seven dwords long as before.
    row("COPY_LINEAR", 1, 0, V7_0, V7_0, &[0x0a05_0000, 0x3fff_ffff, 0x1f1f_0000, ALL, ALL, ALL, ALL]),
    row("WRITE_LINEAR", 2, 0, V4_4, V5_2, &[0x0005_0000, ALL, ALL, 0x030f_ffff]),
    row("WRITE_LINEAR", 2, 0, V6_0, V7_0, &[0x1005_0000, ALL, ALL, 0x1f0f_ffff]),
    row("INDIRECT", 4, 0, V4_4, V4_4, &[0x000f_0000, ALL & !0x1f, ALL, 0xf_ffff, ALL, ALL]),
    row("INDIRECT", 4, 0, V5_2, V7_0, &[0x800f_0000, ALL & !0x1f, ALL, 0xf_ffff, ALL, ALL]),
    row("FENCE", 5, 0, V4_4, V4_4, &[0, ALL & !3, ALL, ALL]),
    row("FENCE", 5, 0, V5_2, V5_2, &[0x03df_0000, ALL & !3, ALL, ALL]),
    row("FENCE", 5, 0, V6_0, V7_0, &[0x17df_0000, ALL & !3, ALL, ALL]),
    row("TRAP", 6, 0, V4_4, V7_0, &[0, 0x0fff_ffff]),
    row("POLL_REGMEM", 8, 0, V4_4, V5_2, &[0xf400_0000, ALL & !3, ALL, ALL, ALL, 0x0fff_ffff]),
    row("POLL_REGMEM", 8, 0, V6_0, V7_0, &[0xf570_0000, ALL & !3, ALL, ALL, ALL, 0x0fff_ffff]),
    row("COND_EXE", 9, 0, V4_4, V5_2, &[0, ALL & !3, ALL, ALL, 0x3fff]),
    row("COND_EXE", 9, 0, V6_0, V7_0, &[0x1700_0000, ALL & !3, ALL, ALL, 0x3fff]),
    row("ATOMIC", 10, 0, V4_4, V5_2, &[0xfe05_0000, ALL & !3, ALL, ALL, ALL, ALL, ALL, 0x1fff]),
    row("ATOMIC", 10, 0, V6_0, V7_0, &[0xff75_0000, ALL & !3, ALL, ALL, ALL, ALL, ALL, 0x1fff]),
    row("CONST_FILL", 11, 0, V4_4, V4_4, &[0xc003_0000, ALL, ALL, ALL, 0x3f_ffff]),
    row("CONST_FILL", 11, 0, V5_2, V5_2, &[0xc003_0000, ALL, ALL, ALL, 0x3fff_ffff]),
    row("CONST_FILL", 11, 0, V6_0, V7_0, &[0xd703_0000, ALL, ALL, ALL, 0x3fff_ffff]),
    row("TIMESTAMP_GET", 13, 1, V4_4, V5_2, &[0, ALL & !7, ALL]),
    row("TIMESTAMP_GET", 13, 1, V6_0, V7_0, &[0x1700_0000, ALL & !7, ALL]),
    row("TIMESTAMP_GET_GLOBAL", 13, 2, V4_4, V5_2, &[0, ALL & !7, ALL]),
    row("TIMESTAMP_GET_GLOBAL", 13, 2, V6_0, V7_0, &[0x1700_0000, ALL & !7, ALL]),
    row("SRBM_WRITE", 14, 0, V4_4, V4_4, &[0xf000_0000, 0x3_ffff, ALL]),
    row("SRBM_WRITE", 14, 0, V5_2, V7_0, &[0xf000_0000, 0xfff3_ffff, ALL]),
    row("GCR_REQ", 17, 0, V5_2, V7_0, &[0, ALL & !0x7f, ALL, 0xffff_ff87, 0x0f00_ffff]),
];

/// The layout of a header, or what is wrong with it.
pub(super) fn find(version: SdmaVersion, header: u32) -> Result<&'static Layout, String> {
    let (op, sub) = (header as u8, (header >> 8) as u8);
    LAYOUTS
        .iter()
        .find(|l| l.op == op && l.sub == sub && l.from <= version && version <= l.to)
        .ok_or_else(|| format!("unknown packet {header:#010x} (op {op}, sub-op {sub})"))
}
