//! Instructions as text, in the notation of LLVM's disassembler.

use super::{Enc, Inst, operand, table::M};
use std::fmt::Write;

/// Names of inline float constants 240 to 248.
const FLOATS: [&str; 9] = ["0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494"];

/// A register or constant of `width` dwords.
fn source(code: u16, width: u8, lit: u32) -> String {
    let pair = |lo: &str| if width == 2 { lo.to_string() } else { format!("{lo}_lo") };
    match code {
        0..=105 | 108..=123 if width <= 1 => {
            if code < 106 {
                format!("s{code}")
            } else {
                format!("ttmp{}", code - 108)
            }
        }
        0..=105 => format!("s[{}:{}]", code, code + u16::from(width) - 1),
        108..=123 => format!("ttmp[{}:{}]", code - 108, code - 108 + u16::from(width) - 1),
        106 => pair("vcc"),
        107 => "vcc_hi".into(),
        124 => "null".into(),
        125 => "m0".into(),
        126 => pair("exec"),
        127 => "exec_hi".into(),
        128..=192 => format!("{}", code - 128),
        193..=208 => format!("{}", 192 - i32::from(code)),
        235 => "src_shared_base".into(),
        236 => "src_shared_limit".into(),
        237 => "src_private_base".into(),
        238 => "src_private_limit".into(),
        240..=248 => FLOATS[usize::from(code) - 240].into(),
        253 => "src_scc".into(),
        255 => literal(lit),
        operand::V0.. if width <= 1 => format!("v{}", code - operand::V0),
        operand::V0.. => {
            let n = code - operand::V0;
            format!("v[{}:{}]", n, n + u16::from(width) - 1)
        }
        _ => format!("<{code}>"),
    }
}

impl Inst {
    /// The text, for a wave of 32 or 64 lanes.
    pub fn text(&self, lanes: u32) -> String {
        let width = |w: u8| if w == M { if lanes == 64 { 2 } else { 1 } } else { w };
        match self.enc {
            Enc::Sop1 | Enc::Sop2 | Enc::Sopc => {
                let mut ops = Vec::new();
                if self.row.d != 0 {
                    ops.push(source(self.d, self.row.d, 0));
                }
                for n in 0..3 {
                    if self.row.s[n] != 0 {
                        ops.push(source(self.s[n], self.row.s[n], self.lit));
                    }
                }
                join(self.row.name, &ops)
            }
            Enc::Sopk => self.sopk(),
            Enc::Sopp => self.sopp(),
            Enc::Smem => {
                if self.row.d == 0 {
                    return self.row.name.into();
                }
                let base = source(self.s[0], self.row.s[0].max(2), 0);
                let offset = match (self.saddr, self.imm) {
                    (operand::NULL, 0) => "null".into(),
                    (operand::NULL, n) => hex(n),
                    (s, 0) => source(s, 1, 0),
                    (s, n) => format!("{} offset:{}", source(s, 1, 0), hex(n)),
                };
                let mut t = join(self.row.name, &[source(self.d, self.row.d, 0), base, offset]);
                if self.flags & super::GLC != 0 {
                    t.push_str(" glc");
                }
                if self.flags & super::DLC != 0 {
                    t.push_str(" dlc");
                }
                t
            }
            Enc::Vop1 | Enc::Vop2 | Enc::Vopc => {
                let suffix = match self.dpp {
                    Some(_) => "_dpp",
                    None if long_form(self.row.name, self.enc) => "_e32",
                    None => "",
                };
                let mut ops = Vec::new();
                if self.row.d != 0 {
                    ops.push(source(self.d, width(self.row.d), 0));
                }
                if self.row.sd != 0 {
                    ops.push(source(self.sd, width(self.row.sd), 0));
                }
                let k = self.row.name.contains("fmamk");
                for n in 0..3 {
                    if self.row.s[n] != 0 {
                        ops.push(self.modified(n, width(self.row.s[n])));
                    }
                    if n == 0 && k {
                        ops.push(format!("{:#x}", self.lit));
                    }
                }
                if self.row.name.contains("fmaak") {
                    ops.push(format!("{:#x}", self.lit));
                }
                let mut t = join(&format!("{}{suffix}", self.row.name), &ops);
                self.dpp_text(&mut t);
                t
            }
            Enc::Vop3 => {
                let mut suffix = if long_form3(self.row.op) { "_e64".to_string() } else { String::new() };
                if self.dpp.is_some() {
                    suffix = "_e64_dpp".into();
                }
                let mut ops = Vec::new();
                if self.row.d != 0 {
                    ops.push(source(self.d, width(self.row.d), 0));
                }
                if self.row.sd != 0 {
                    ops.push(source(self.sd, width(self.row.sd), 0));
                }
                for n in 0..3 {
                    if self.row.s[n] != 0 {
                        ops.push(self.modified(n, width(self.row.s[n])));
                    }
                }
                let mut t = join(&format!("{}{suffix}", self.row.name), &ops);
                if self.op_sel != 0 {
                    let mut bits: Vec<String> = (0..3)
                        .filter(|n| self.row.s[*n] != 0)
                        .map(|n| (self.op_sel >> n & 1).to_string())
                        .collect();
                    bits.push((self.op_sel >> 3 & 1).to_string());
                    let _ = write!(t, " op_sel:[{}]", bits.join(","));
                }
                if self.clamp {
                    t.push_str(" clamp");
                }
                t.push_str(["", " mul:2", " mul:4", " div:2"][usize::from(self.omod & 3)]);
                self.dpp_text(&mut t);
                t
            }
            Enc::Vop3p => self.vop3p_text(),
            Enc::Vopd => {
                let half = |i: &Inst| {
                    let name = i.row.name.replacen("v_", "v_dual_", 1);
                    let mut ops = vec![source(i.d, 1, 0)];
                    for n in 0..2 {
                        if i.row.s[n] != 0 {
                            ops.push(source(i.s[n], 1, i.lit));
                        }
                        if n == 0 && name.contains("fmamk") {
                            ops.push(format!("{:#x}", i.lit));
                        }
                    }
                    if name.contains("fmaak") {
                        ops.push(format!("{:#x}", i.lit));
                    }
                    join(&name, &ops)
                };
                let second = self.dual.as_ref().map_or(String::new(), |d| half(d));
                format!("{} :: {second}", half(self))
            }
            Enc::Ds => {
                let mut ops = Vec::new();
                if self.row.d != 0 {
                    ops.push(source(self.d, self.row.d, 0));
                }
                for n in 0..3 {
                    if self.row.s[n] != 0 {
                        ops.push(source(self.s[n], self.row.s[n], 0));
                    }
                }
                let mut t = join(self.row.name, &ops);
                if self.row.name.contains("2addr") {
                    for n in 0..2 {
                        let offset = self.imm >> (8 * n) & 0xff;
                        if offset != 0 {
                            let _ = write!(t, " offset{n}:{offset}");
                        }
                    }
                } else if self.imm != 0 {
                    let _ = write!(t, " offset:{}", self.imm);
                }
                t
            }
            Enc::Flat | Enc::Global | Enc::Scratch => self.flat_text(),
            Enc::Mubuf => self.row.name.into(),
        }
    }

    fn modified(&self, n: usize, width: u8) -> String {
        let mut t = source(self.s[n], width, self.lit);
        if self.abs >> n & 1 != 0 {
            t = format!("|{t}|");
        }
        if self.neg >> n & 1 != 0 {
            t = format!("-{t}");
        }
        t
    }

    fn sopk(&self) -> String {
        let name = self.row.name;
        let d = source(self.d, self.row.d.max(1), 0);
        let imm = format!("{:#x}", self.imm as u32 & 0xffff);
        match name {
            "s_version" => format!("{name} {}", self.imm),
            "s_getreg_b32" => format!("{name} {d}, hwreg({imm})"),
            "s_setreg_b32" => format!("{name} hwreg({imm}), {d}"),
            "s_setreg_imm32_b32" => format!("{name} hwreg({imm}), {:#x}", self.lit),
            _ if name.starts_with("s_waitcnt") => format!("{name} {d}, {imm}"),
            _ => format!("{name} {d}, {imm}"),
        }
    }

    fn sopp(&self) -> String {
        let name = self.row.name;
        let x = self.imm as u32 & 0xffff;
        match name {
            "s_endpgm" | "s_barrier" | "s_icache_inv" | "s_code_end" | "s_wakeup" | "s_wait_idle" => {
                name.into()
            }
            "s_branch" => format!("{name} {x}"),
            _ if name.starts_with("s_cbranch") => format!("{name} {x}"),
            "s_waitcnt" => {
                let (vm, lgkm, exp) = (x >> 10 & 0x3f, x >> 4 & 0x3f, x & 7);
                let mut parts = Vec::new();
                if vm != 0x3f {
                    parts.push(format!("vmcnt({vm})"));
                }
                if exp != 7 {
                    parts.push(format!("expcnt({exp})"));
                }
                if lgkm != 0x3f {
                    parts.push(format!("lgkmcnt({lgkm})"));
                }
                if parts.is_empty() {
                    parts = vec!["vmcnt(63)".into(), "expcnt(7)".into(), "lgkmcnt(63)".into()];
                }
                format!("{name} {}", parts.join(" "))
            }
            "s_delay_alu" => delay_alu(x),
            "s_sendmsg" if x == 3 => format!("{name} sendmsg(MSG_DEALLOC_VGPRS)"),
            "s_nop" | "s_sleep" | "s_setprio" => format!("{name} {}", short(x)),
            _ => format!("{name} {x:#x}"),
        }
    }

    fn dpp_text(&self, t: &mut String) {
        use super::Dpp;
        match self.dpp {
            None => {}
            Some(Dpp::Eight { sel, fi }) => {
                let lanes: Vec<String> = (0..8).map(|n| (sel >> (3 * n) & 7).to_string()).collect();
                let _ = write!(t, " dpp8:[{}]", lanes.join(","));
                if fi {
                    t.push_str(" fi:1");
                }
            }
            Some(Dpp::Row { ctrl, fi, bound_ctrl, bank_mask, row_mask }) => {
                let n = ctrl & 15;
                let _ = match ctrl {
                    0..=0xff => write!(
                        t,
                        " quad_perm:[{},{},{},{}]",
                        ctrl & 3,
                        ctrl >> 2 & 3,
                        ctrl >> 4 & 3,
                        ctrl >> 6 & 3
                    ),
                    0x101..=0x10f => write!(t, " row_shl:{n}"),
                    0x111..=0x11f => write!(t, " row_shr:{n}"),
                    0x121..=0x12f => write!(t, " row_ror:{n}"),
                    0x140 => write!(t, " row_mirror"),
                    0x141 => write!(t, " row_half_mirror"),
                    0x150..=0x15f => write!(t, " row_share:{n}"),
                    _ => write!(t, " row_xmask:{n}"),
                };
                let _ = write!(t, " row_mask:{row_mask:#x} bank_mask:{bank_mask:#x}");
                if bound_ctrl {
                    t.push_str(" bound_ctrl:1");
                }
                if fi {
                    t.push_str(" fi:1");
                }
            }
        }
    }

    fn vop3p_text(&self) -> String {
        let used = (0..3).filter(|n| self.row.s[*n] != 0).count();
        let mix = self.row.name.contains("_mix");
        let mut ops = vec![source(self.d, self.row.d, 0)];
        for n in 0..used {
            ops.push(if mix {
                self.modified(n, self.row.s[n])
            } else {
                source(self.s[n], self.row.s[n], self.lit)
            });
        }
        let mut t = join(self.row.name, &ops);
        let list = |x: u8| (0..used).map(|n| (x >> n & 1).to_string()).collect::<Vec<_>>().join(",");
        let all = (1u8 << used) - 1;
        if self.op_sel & all != 0 {
            let _ = write!(t, " op_sel:[{}]", list(self.op_sel));
        }
        // The default is all ones for packed and all zeros for mixed instructions.
        let default = if mix { 0 } else { all };
        if self.op_sel_hi & all != default {
            let _ = write!(t, " op_sel_hi:[{}]", list(self.op_sel_hi));
        }
        if !mix {
            if self.neg & all != 0 {
                let _ = write!(t, " neg_lo:[{}]", list(self.neg));
            }
            if self.abs & all != 0 {
                let _ = write!(t, " neg_hi:[{}]", list(self.abs));
            }
        }
        if self.clamp {
            t.push_str(" clamp");
        }
        t
    }

    fn flat_text(&self) -> String {
        let store = self.row.d == 0;
        let atomic = self.row.name.contains("atomic");
        let has_saddr = self.saddr != operand::NULL;
        let addr = match self.enc {
            Enc::Scratch if self.flags & super::SVE == 0 => "off".into(),
            Enc::Scratch => source(self.s[0], 1, 0),
            Enc::Global if has_saddr => source(self.s[0], 1, 0),
            _ => source(self.s[0], 2, 0),
        };
        let mut ops = Vec::new();
        if !store && (!atomic || self.flags & super::GLC != 0) {
            ops.push(source(self.d, self.row.d, 0));
        }
        ops.push(addr);
        if self.row.s[1] != 0 {
            ops.push(source(self.s[1], self.row.s[1], 0));
        }
        match self.enc {
            Enc::Flat => {}
            Enc::Scratch if has_saddr => ops.push(source(self.saddr, 1, 0)),
            Enc::Global if has_saddr => ops.push(source(self.saddr, 2, 0)),
            _ => ops.push("off".into()),
        }
        let mut t = join(self.row.name, &ops);
        if self.imm != 0 {
            let _ = write!(t, " offset:{}", self.imm);
        }
        for (flag, text) in [(super::GLC, " glc"), (super::SLC, " slc"), (super::DLC, " dlc")] {
            if self.flags & flag != 0 {
                t.push_str(text);
            }
        }
        t
    }
}

fn join(name: &str, ops: &[String]) -> String {
    if ops.is_empty() { name.into() } else { format!("{name} {}", ops.join(", ")) }
}

fn hex(n: i32) -> String {
    if n < 0 { format!("-{:#x}", n.unsigned_abs()) } else { format!("{n:#x}") }
}

fn short(x: u32) -> String {
    if x < 10 { x.to_string() } else { format!("{x:#x}") }
}

/// Whether a short instruction has a long form too, and therefore a suffix.
fn long_form(name: &str, enc: Enc) -> bool {
    if enc == Enc::Vop1 {
        return !matches!(
            name,
            "v_swap_b32" | "v_swap_b16" | "v_swaprel_b32" | "v_readfirstlane_b32" | "v_permlane64_b32"
        );
    }
    !(name.contains("fmamk")
        || name.contains("fmaak")
        || matches!(name, "v_dot2acc_f32_f16" | "v_pk_fmac_f16"))
}

/// Whether a long form belongs to a short instruction.
fn long_form3(op: u16) -> bool {
    op < 512
}

const DELAYS: [&str; 12] = [
    "NO_DEP",
    "VALU_DEP_1",
    "VALU_DEP_2",
    "VALU_DEP_3",
    "VALU_DEP_4",
    "TRANS32_DEP_1",
    "TRANS32_DEP_2",
    "TRANS32_DEP_3",
    "FMA_ACCUM_CYCLE_1",
    "SALU_CYCLE_1",
    "SALU_CYCLE_2",
    "SALU_CYCLE_3",
];
const SKIPS: [&str; 6] = ["SAME", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4"];

fn delay_alu(x: u32) -> String {
    let name = |n: u32| DELAYS.get(n as usize).copied().unwrap_or("?");
    let mut parts = Vec::new();
    let (id0, skip, id1) = (x & 15, x >> 4 & 7, x >> 7 & 15);
    if id0 != 0 {
        parts.push(format!("instid0({})", name(id0)));
    }
    if skip != 0 {
        parts.push(format!("instskip({})", SKIPS.get(skip as usize).copied().unwrap_or("?")));
    }
    if id1 != 0 {
        parts.push(format!("instid1({})", name(id1)));
    }
    if parts.is_empty() { "s_delay_alu 0".into() } else { format!("s_delay_alu {}", parts.join(" | ")) }
}

/// A literal; where an inline constant would have done, LLVM prints it like one.
fn literal(lit: u32) -> String {
    match lit as i32 {
        n @ -16..=64 => n.to_string(),
        _ => format!("{lit:#x}"),
    }
}
