//! From words to [`Inst`]: the binary layouts of the encoding classes.

use super::{DLC, Dpp, Enc, Exec, GLC, Inst, SLC, SVE, Target, operand, table};
use std::fmt;

/// Words that are no instruction of the target, or one that the simulator lacks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecodeError {
    /// The target.
    pub target: Target,
    /// Address.
    pub pc: u64,
    /// Words from there on.
    pub words: Vec<u32>,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instruction at {:#x} for {:?}:", self.pc, self.target)?;
        for w in &self.words {
            write!(f, " {w:08x}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for DecodeError {}

fn bits(word: u32, low: u32, count: u32) -> u32 {
    word >> low & ((1u64 << count) - 1) as u32
}

fn sext(value: u32, count: u32) -> i32 {
    (value << (32 - count)) as i32 >> (32 - count)
}

const V0: u16 = operand::V0;
const DPP16: u16 = 250;
const DPP8: u16 = 233;
const DPP8_FI: u16 = 234;

fn nop(_: &mut super::Wave, _: &Inst) {}

struct Reader<'a> {
    target: Target,
    pc: u64,
    words: &'a [u32],
}

impl Reader<'_> {
    fn error(&self, reason: impl Into<String>) -> DecodeError {
        DecodeError {
            target: self.target,
            pc: self.pc,
            words: self.words.iter().take(3).copied().collect(),
            reason: reason.into(),
        }
    }

    fn word(&self, n: usize) -> Result<u32, DecodeError> {
        self.words.get(n).copied().ok_or_else(|| self.error("cut off"))
    }

    /// An instruction with no operands yet.
    fn start(&self, enc: Enc, op: u32, words: u8) -> Result<Inst, DecodeError> {
        let entry = table::find(self.target, enc, op as u16)
            .ok_or_else(|| self.error(format!("no {enc:?} opcode {op}")))?;
        let exec = entry
            .exec
            .ok_or_else(|| self.error(format!("{} is not implemented in this simulator", entry.row.name)))?;
        Ok(Inst {
            pc: self.pc,
            words,
            enc,
            row: entry.row,
            exec,
            d: operand::NULL,
            sd: operand::NULL,
            s: [operand::NULL; 3],
            saddr: operand::NULL,
            lit: 0,
            imm: 0,
            neg: 0,
            abs: 0,
            op_sel: 0,
            op_sel_hi: 0,
            omod: 0,
            clamp: false,
            flags: 0,
            dpp: None,
            dual: None,
        })
    }

    /// Reads the literal that a source asks for.
    fn literal(&self, mut i: Inst) -> Result<Inst, DecodeError> {
        let used = |n: usize| i.row.s[n] != 0 && i.s[n] == operand::LITERAL;
        if used(0) || used(1) || used(2) {
            i.lit = self.word(usize::from(i.words))?;
            i.words += 1;
        }
        self.check_sources(&i)?;
        Ok(i)
    }

    fn check_sources(&self, i: &Inst) -> Result<(), DecodeError> {
        for (n, &code) in i.s.iter().enumerate() {
            if i.row.s[n] != 0 && matches!(code, 209..=232 | 239 | 249 | 250..=252 | 254 | 233 | 234) {
                return Err(self.error(format!("source {n} has the reserved operand code {code}")));
            }
        }
        Ok(())
    }

    /// Reads the DPP word where the first source asks for one.
    fn dpp(&self, mut i: Inst) -> Result<Inst, DecodeError> {
        if !matches!(i.s[0], DPP16 | DPP8 | DPP8_FI) || i.row.s[0] == 0 {
            return self.literal(i);
        }
        let w = self.word(usize::from(i.words))?;
        i.words += 1;
        let dpp = if i.s[0] == DPP16 {
            if i.enc != Enc::Vop3 && i.enc != Enc::Vop3p {
                i.neg = (bits(w, 20, 1) | bits(w, 22, 1) << 1) as u8;
                i.abs = (bits(w, 21, 1) | bits(w, 23, 1) << 1) as u8;
            }
            Dpp::Row {
                ctrl: bits(w, 8, 9) as u16,
                fi: bits(w, 18, 1) != 0,
                bound_ctrl: bits(w, 19, 1) != 0,
                bank_mask: bits(w, 24, 4) as u8,
                row_mask: bits(w, 28, 4) as u8,
            }
        } else {
            Dpp::Eight { sel: w >> 8, fi: i.s[0] == DPP8_FI }
        };
        if !dpp.is_valid() {
            return Err(self.error(format!("DPP word {w:08x} has an unknown control code")));
        }
        i.s[0] = V0 + bits(w, 0, 8) as u16;
        i.dpp = Some(dpp);
        self.check_sources(&i)?;
        Ok(i)
    }

    fn salu(&self, w: u32) -> Result<Inst, DecodeError> {
        let (s0, s1, d) = (bits(w, 0, 8) as u16, bits(w, 8, 8) as u16, bits(w, 16, 7) as u16);
        match bits(w, 23, 9) {
            0x17d => {
                let mut i = self.start(Enc::Sop1, bits(w, 8, 8), 1)?;
                (i.d, i.s[0]) = (d, s0);
                self.literal(i)
            }
            0x17e => {
                let mut i = self.start(Enc::Sopc, bits(w, 16, 7), 1)?;
                (i.s[0], i.s[1]) = (s0, s1);
                self.literal(i)
            }
            0x17f => {
                let mut i = self.start(Enc::Sopp, bits(w, 16, 7), 1)?;
                i.imm = sext(w, 16);
                Ok(i)
            }
            _ if bits(w, 28, 4) == 0xb => {
                let mut i = self.start(Enc::Sopk, bits(w, 23, 5), 1)?;
                i.imm = sext(w, 16);
                i.d = d;
                i.s[0] = operand::LITERAL;
                i.lit = i.imm as u32;
                if i.row.name == "s_setreg_imm32_b32" {
                    i.lit = self.word(1)?;
                    i.words = 2;
                }
                Ok(i)
            }
            _ => {
                let mut i = self.start(Enc::Sop2, bits(w, 23, 7), 1)?;
                (i.d, i.s[0], i.s[1]) = (d, s0, s1);
                if i.row.name.contains("fmamk") || i.row.name.contains("fmaak") {
                    i.lit = self.word(1)?;
                    i.words = 2;
                    self.check_sources(&i)?;
                    return Ok(i);
                }
                self.literal(i)
            }
        }
    }

    fn vop_short(&self, w: u32) -> Result<Inst, DecodeError> {
        let s0 = bits(w, 0, 9) as u16;
        match bits(w, 25, 6) {
            0x3f => {
                let mut i = self.start(Enc::Vop1, bits(w, 9, 8), 1)?;
                let d = bits(w, 17, 8) as u16;
                i.d = if is_scalar_result(i.row.name) { d } else { V0 + d };
                i.s[0] = s0;
                if i.row.name == "v_swap_b32" && s0 < V0 {
                    return Err(self.error("v_swap_b32 needs a vector register"));
                }
                self.dpp(i)
            }
            0x3e => {
                let mut i = self.start(Enc::Vopc, bits(w, 17, 8), 1)?;
                i.d = operand::VCC;
                (i.s[0], i.s[1]) = (s0, V0 + bits(w, 9, 8) as u16);
                self.dpp(i)
            }
            op => {
                let mut i = self.start(Enc::Vop2, op, 1)?;
                i.d = V0 + bits(w, 17, 8) as u16;
                (i.s[0], i.s[1]) = (s0, V0 + bits(w, 9, 8) as u16);
                if i.row.s[2] == table::M {
                    i.s[2] = operand::VCC;
                }
                if i.row.sd == table::M {
                    i.sd = operand::VCC;
                }
                if i.row.name.contains("fmamk") || i.row.name.contains("fmaak") {
                    i.lit = self.word(1)?;
                    i.words = 2;
                    self.check_sources(&i)?;
                    return Ok(i);
                }
                self.dpp(i)
            }
        }
    }

    fn vop3(&self, w: u32) -> Result<Inst, DecodeError> {
        let x = self.word(1)?;
        let mut i = self.start(Enc::Vop3, bits(w, 16, 10), 2)?;
        let d = bits(w, 0, 8) as u16;
        i.d = if i.row.d == table::M || is_scalar_result(i.row.name) { d } else { V0 + d };
        i.s = [bits(x, 0, 9) as u16, bits(x, 9, 9) as u16, bits(x, 18, 9) as u16];
        i.clamp = bits(w, 15, 1) != 0;
        i.omod = bits(x, 27, 2) as u8;
        i.neg = bits(x, 29, 3) as u8;
        if i.row.sd != 0 {
            i.sd = bits(w, 8, 7) as u16;
        } else {
            i.abs = bits(w, 8, 3) as u8;
            i.op_sel = bits(w, 11, 4) as u8;
        }
        if i.row.name.starts_with("v_s_") && ((i.neg | i.abs | i.omod) != 0 || i.clamp) {
            return Err(
                self.error(format!("modifiers of {} are not implemented in this simulator", i.row.name))
            );
        }
        self.dpp(i)
    }

    fn vop3p(&self, w: u32) -> Result<Inst, DecodeError> {
        let x = self.word(1)?;
        let mut i = self.start(Enc::Vop3p, bits(w, 16, 7), 2)?;
        i.d = V0 + bits(w, 0, 8) as u16;
        i.abs = bits(w, 8, 3) as u8;
        i.op_sel = bits(w, 11, 3) as u8;
        i.op_sel_hi = (bits(x, 27, 2) | bits(w, 14, 1) << 2) as u8;
        i.clamp = bits(w, 15, 1) != 0;
        i.s = [bits(x, 0, 9) as u16, bits(x, 9, 9) as u16, bits(x, 18, 9) as u16];
        i.neg = bits(x, 29, 3) as u8;
        self.dpp(i)
    }

    fn vopd(&self, w: u32) -> Result<Inst, DecodeError> {
        let x = self.word(1)?;
        let (op_x, op_y) = (bits(w, 22, 4), bits(w, 17, 5));
        let mut first = self.start(Enc::Vopd, op_x, 2)?;
        let mut second = self.start(Enc::Vopd, op_y, 2)?;
        first.d = V0 + bits(x, 24, 8) as u16;
        // The two destinations differ in parity: bit 0 is not stored.
        second.d = V0 + (bits(x, 17, 7) << 1 | (bits(x, 24, 1) ^ 1)) as u16;
        first.s = [bits(w, 0, 9) as u16, V0 + bits(w, 9, 8) as u16, operand::VCC];
        second.s = [bits(x, 0, 9) as u16, V0 + bits(x, 9, 8) as u16, operand::VCC];
        let takes = |i: &Inst| {
            i.row.name.contains("fmamk") || i.row.name.contains("fmaak") || i.s[0] == operand::LITERAL
        };
        if takes(&first) || takes(&second) {
            let lit = self.word(2)?;
            (first.lit, second.lit) = (lit, lit);
            first.words = 3;
        }
        self.check_sources(&first)?;
        self.check_sources(&second)?;
        first.dual = Some(Box::new(second));
        Ok(first)
    }

    fn smem(&self, w: u32) -> Result<Inst, DecodeError> {
        let x = self.word(1)?;
        let gfx12 = self.target >= Target::Gfx12;
        let op = if gfx12 { bits(w, 13, 6) } else { bits(w, 18, 8) };
        let mut i = self.start(Enc::Smem, op, 2)?;
        i.s[0] = (bits(w, 0, 6) << 1) as u16;
        i.d = bits(w, 6, 7) as u16;
        i.imm = if gfx12 { sext(x, 24) } else { sext(x, 21) };
        i.saddr = bits(x, 25, 7) as u16;
        if !gfx12 {
            i.flags = (bits(w, 14, 1) as u8 * GLC) | (bits(w, 13, 1) as u8 * DLC);
        }
        Ok(i)
    }

    fn ds(&self, w: u32) -> Result<Inst, DecodeError> {
        let x = self.word(1)?;
        if bits(w, 17, 1) != 0 {
            return Err(self.error("global data share is not there for compute"));
        }
        let mut i = self.start(Enc::Ds, bits(w, 18, 8), 2)?;
        i.imm = bits(w, 0, 16) as i32;
        i.s = [0, 8, 16].map(|low| V0 + bits(x, low, 8) as u16);
        i.d = V0 + bits(x, 24, 8) as u16;
        Ok(i)
    }

    fn flat11(&self, w: u32) -> Result<Inst, DecodeError> {
        let x = self.word(1)?;
        let enc = match bits(w, 16, 2) {
            0 => Enc::Flat,
            1 => Enc::Scratch,
            2 => Enc::Global,
            _ => return Err(self.error("memory segment 3")),
        };
        let mut i = self.start(enc, bits(w, 18, 7), 2)?;
        // Flat offsets are unsigned, the others signed.
        i.imm = if enc == Enc::Flat { bits(w, 0, 12) as i32 } else { sext(w, 13) };
        i.s = [V0 + bits(x, 0, 8) as u16, V0 + bits(x, 8, 8) as u16, V0];
        i.saddr = bits(x, 16, 7) as u16;
        if enc == Enc::Flat {
            i.saddr = operand::NULL;
        }
        i.d = V0 + bits(x, 24, 8) as u16;
        i.flags = (bits(w, 14, 1) as u8 * GLC)
            | (bits(w, 13, 1) as u8 * DLC)
            | (bits(w, 15, 1) as u8 * SLC)
            | (bits(x, 23, 1) as u8 * SVE);
        Ok(i)
    }

    fn flat12(&self, w: u32) -> Result<Inst, DecodeError> {
        let (x, y) = (self.word(1)?, self.word(2)?);
        let enc = match w >> 24 {
            0xec => Enc::Flat,
            0xed => Enc::Scratch,
            _ => Enc::Global,
        };
        let mut i = self.start(enc, bits(w, 14, 8), 3)?;
        i.imm = sext(y >> 8, 24);
        i.s = [V0 + bits(y, 0, 8) as u16, V0 + bits(x, 23, 8) as u16, V0];
        i.saddr = bits(w, 0, 7) as u16;
        i.d = V0 + bits(x, 0, 8) as u16;
        // An atomic returns with the lowest bit of its temporal hint.
        i.flags = (bits(x, 20, 1) as u8 * GLC) | (bits(x, 17, 1) as u8 * SVE);
        Ok(i)
    }

    fn any(&self) -> Result<Inst, DecodeError> {
        let w = self.word(0)?;
        if w >> 31 == 0 {
            return self.vop_short(w);
        }
        if w >> 30 == 2 {
            return self.salu(w);
        }
        let gfx12 = self.target >= Target::Gfx12;
        match w >> 24 {
            0xc8..=0xcb => self.vopd(w),
            0xcc => self.vop3p(w),
            0xd4..=0xd7 => self.vop3(w),
            0xd8..=0xdb => self.ds(w),
            0xdc..=0xdf if !gfx12 => self.flat11(w),
            0xe0..=0xe3 if !gfx12 => {
                self.word(1)?;
                self.start(Enc::Mubuf, bits(w, 18, 8), 2)
            }
            0xec..=0xee if gfx12 => self.flat12(w),
            0xf4..=0xf7 => self.smem(w),
            _ => Err(self.error("no encoding of the target begins like this")),
        }
    }
}

fn is_scalar_result(name: &str) -> bool {
    matches!(name, "v_readlane_b32" | "v_readfirstlane_b32") || name.starts_with("v_s_")
}

/// Decodes the instruction that `words` begin with.
pub fn decode(target: Target, pc: u64, words: &[u32]) -> Result<Inst, DecodeError> {
    let mut i = Reader { target, pc, words }.any()?;
    if i.enc == Enc::Vop1 && i.row.name == "v_nop" {
        i.exec = Exec::Alu(nop);
    }
    Ok(i)
}

impl Inst {
    /// The vector register after the last one that the instruction names.
    pub fn vgprs(&self) -> u16 {
        // Short encodings of 16-bit instructions keep the half in bit 7.
        let halves = matches!(self.enc, Enc::Vop1 | Enc::Vop2 | Enc::Vopc) && self.row.name.contains("16");
        let end = |code: u16, width: u8| match (code, width) {
            (V0.., 1..=254) => {
                let number = if halves { (code - V0) & 0x7f } else { code - V0 };
                number + u16::from(width)
            }
            _ => 0,
        };
        let memory = matches!(self.enc, Enc::Flat | Enc::Global | Enc::Scratch);
        let mut n = end(self.d, self.row.d);
        if memory && self.row.name.contains("atomic") && self.flags & GLC == 0 {
            n = 0;
        }
        for k in 0..3 {
            let width = match (self.enc, k) {
                // With a scalar base the address is one register.
                (Enc::Global, 0) if self.saddr != operand::NULL => 1,
                (Enc::Scratch, 0) => u8::from(self.flags & SVE != 0),
                _ => self.row.s[k],
            };
            n = n.max(end(self.s[k], width));
        }
        n.max(self.dual.as_ref().map_or(0, |d| d.vgprs()))
    }
}
