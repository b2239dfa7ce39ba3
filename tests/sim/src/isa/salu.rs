//! Scalar arithmetic: SOP1, SOP2, SOPK, SOPC.

use super::{Exec, Inst, Wave, operand};

mod bits;

use bits::{add_signed, bfe, bfe_signed, cls, field, quad, sub_signed, wqm};

impl Wave {
    fn a(&self, i: &Inst) -> u32 {
        self.scalar(i.s[0], i.lit)
    }
    fn b(&self, i: &Inst) -> u32 {
        self.scalar(i.s[1], i.lit)
    }
    fn a64(&self, i: &Inst) -> u64 {
        self.scalar64(i.s[0], i.lit, i.row.name.ends_with("i64"))
    }
    fn b64(&self, i: &Inst) -> u64 {
        self.scalar64(i.s[1], i.lit, i.row.name.ends_with("i64"))
    }
    /// Result and condition code.
    fn out(&mut self, i: &Inst, (value, scc): (u32, bool)) {
        self.set_s(i.d, value);
        self.scc = scc;
    }
    fn out64(&mut self, i: &Inst, (value, scc): (u64, bool)) {
        self.set_s64(i.d, value);
        self.scc = scc;
    }
    /// Result whose condition code says that it is not zero.
    fn outz(&mut self, i: &Inst, value: u32) {
        self.out(i, (value, value != 0));
    }
    fn outz64(&mut self, i: &Inst, value: u64) {
        self.out64(i, (value, value != 0));
    }
    /// EXEC combined with a source; the old EXEC goes to the destination. Masks of 32 or 64 bits.
    fn saveexec(&mut self, i: &Inst, f: impl Fn(u64, u64) -> u64) {
        if i.row.name.ends_with("b64") {
            let (s, e) = (self.a64(i), self.s64(operand::EXEC));
            self.set_s64(i.d, e);
            let r = f(s, e);
            self.set_s64(operand::EXEC, r);
            self.scc = r != 0;
        } else {
            let (s, e) = (self.a(i), self.s[usize::from(operand::EXEC)]);
            self.set_s(i.d, e);
            let r = f(u64::from(s), u64::from(e)) as u32;
            self.set_s(operand::EXEC, r);
            self.scc = r != 0;
        }
    }
    /// The same where the new EXEC goes to the destination too.
    fn wrexec(&mut self, i: &Inst, f: impl Fn(u64, u64) -> u64) {
        if i.row.name.ends_with("b64") {
            let r = f(self.a64(i), self.s64(operand::EXEC));
            self.set_s64(operand::EXEC, r);
            self.set_s64(i.d, r);
            self.scc = r != 0;
        } else {
            let r = f(u64::from(self.a(i)), u64::from(self.s[usize::from(operand::EXEC)])) as u32;
            self.set_s(operand::EXEC, r);
            self.set_s(i.d, r);
            self.scc = r != 0;
        }
    }
}

/// What a scalar instruction does.
#[expect(clippy::too_many_lines, reason = "a table: one line an instruction")]
pub(super) fn lookup(name: &str) -> Option<Exec> {
    macro_rules! alu {
        (|$w:ident, $i:ident| $body:expr) => {
            Exec::Alu(|$w: &mut Wave, $i: &Inst| $body)
        };
    }
    Some(match name {
        "s_mov_b32" | "s_movk_i32" => alu!(|w, i| {
            let r = w.a(i);
            w.set_s(i.d, r)
        }),
        "s_mov_b64" => alu!(|w, i| {
            let r = w.a64(i);
            w.set_s64(i.d, r)
        }),
        "s_cmov_b32" | "s_cmovk_i32" => alu!(|w, i| {
            if w.scc {
                let r = w.a(i);
                w.set_s(i.d, r)
            }
        }),
        "s_cmov_b64" => alu!(|w, i| {
            if w.scc {
                let r = w.a64(i);
                w.set_s64(i.d, r)
            }
        }),
        "s_add_u32" | "s_add_co_u32" => alu!(|w, i| {
            let r = w.a(i).overflowing_add(w.b(i));
            w.out(i, r)
        }),
        "s_sub_u32" | "s_sub_co_u32" => alu!(|w, i| {
            let r = w.a(i).overflowing_sub(w.b(i));
            w.out(i, r)
        }),
        "s_add_i32" | "s_add_co_i32" => alu!(|w, i| {
            let r = add_signed(w.a(i), w.b(i));
            w.out(i, r)
        }),
        "s_sub_i32" | "s_sub_co_i32" => alu!(|w, i| {
            let r = sub_signed(w.a(i), w.b(i));
            w.out(i, r)
        }),
        "s_addc_u32" | "s_add_co_ci_u32" => alu!(|w, i| {
            let r = u64::from(w.a(i)) + u64::from(w.b(i)) + u64::from(w.scc);
            w.out(i, (r as u32, r >> 32 != 0))
        }),
        "s_subb_u32" | "s_sub_co_ci_u32" => alu!(|w, i| {
            let (a, b) = (u64::from(w.a(i)), u64::from(w.b(i)) + u64::from(w.scc));
            w.out(i, (a.wrapping_sub(b) as u32, b > a))
        }),
        "s_add_nc_u64" => alu!(|w, i| {
            let r = w.a64(i).wrapping_add(w.b64(i));
            w.set_s64(i.d, r)
        }),
        "s_sub_nc_u64" => alu!(|w, i| {
            let r = w.a64(i).wrapping_sub(w.b64(i));
            w.set_s64(i.d, r)
        }),
        "s_mul_u64" => alu!(|w, i| {
            let r = w.a64(i).wrapping_mul(w.b64(i));
            w.set_s64(i.d, r)
        }),
        "s_absdiff_i32" => alu!(|w, i| {
            let r = (w.a(i) as i32).wrapping_sub(w.b(i) as i32).wrapping_abs() as u32;
            w.outz(i, r)
        }),
        "s_abs_i32" => alu!(|w, i| {
            let r = (w.a(i) as i32).wrapping_abs() as u32;
            w.outz(i, r)
        }),
        "s_lshl_b32" => alu!(|w, i| {
            let r = w.a(i) << (w.b(i) & 31);
            w.outz(i, r)
        }),
        "s_lshl_b64" => alu!(|w, i| {
            let r = w.a64(i) << (w.b(i) & 63);
            w.outz64(i, r)
        }),
        "s_lshr_b32" => alu!(|w, i| {
            let r = w.a(i) >> (w.b(i) & 31);
            w.outz(i, r)
        }),
        "s_lshr_b64" => alu!(|w, i| {
            let r = w.a64(i) >> (w.b(i) & 63);
            w.outz64(i, r)
        }),
        "s_ashr_i32" => alu!(|w, i| {
            let r = (w.a(i) as i32 >> (w.b(i) & 31)) as u32;
            w.outz(i, r)
        }),
        "s_ashr_i64" => alu!(|w, i| {
            let r = (w.a64(i) as i64 >> (w.b(i) & 63)) as u64;
            w.outz64(i, r)
        }),
        "s_lshl1_add_u32" | "s_lshl2_add_u32" | "s_lshl3_add_u32" | "s_lshl4_add_u32" => alu!(|w, i| {
            let n = u32::from(i.row.name.as_bytes()[6] - b'0');
            let r = (u64::from(w.a(i)) << n) + u64::from(w.b(i));
            w.out(i, (r as u32, r >> 32 != 0))
        }),
        "s_min_i32" => alu!(|w, i| {
            let (a, b) = (w.a(i) as i32, w.b(i) as i32);
            w.out(i, (a.min(b) as u32, a < b))
        }),
        "s_min_u32" => alu!(|w, i| {
            let (a, b) = (w.a(i), w.b(i));
            w.out(i, (a.min(b), a < b))
        }),
        "s_max_i32" => alu!(|w, i| {
            let (a, b) = (w.a(i) as i32, w.b(i) as i32);
            w.out(i, (a.max(b) as u32, a >= b))
        }),
        "s_max_u32" => alu!(|w, i| {
            let (a, b) = (w.a(i), w.b(i));
            w.out(i, (a.max(b), a >= b))
        }),
        "s_and_b32" => alu!(|w, i| {
            let r = w.a(i) & w.b(i);
            w.outz(i, r)
        }),
        "s_and_b64" => alu!(|w, i| {
            let r = w.a64(i) & w.b64(i);
            w.outz64(i, r)
        }),
        "s_or_b32" => alu!(|w, i| {
            let r = w.a(i) | w.b(i);
            w.outz(i, r)
        }),
        "s_or_b64" => alu!(|w, i| {
            let r = w.a64(i) | w.b64(i);
            w.outz64(i, r)
        }),
        "s_xor_b32" => alu!(|w, i| {
            let r = w.a(i) ^ w.b(i);
            w.outz(i, r)
        }),
        "s_xor_b64" => alu!(|w, i| {
            let r = w.a64(i) ^ w.b64(i);
            w.outz64(i, r)
        }),
        "s_nand_b32" => alu!(|w, i| {
            let r = !(w.a(i) & w.b(i));
            w.outz(i, r)
        }),
        "s_nand_b64" => alu!(|w, i| {
            let r = !(w.a64(i) & w.b64(i));
            w.outz64(i, r)
        }),
        "s_nor_b32" => alu!(|w, i| {
            let r = !(w.a(i) | w.b(i));
            w.outz(i, r)
        }),
        "s_nor_b64" => alu!(|w, i| {
            let r = !(w.a64(i) | w.b64(i));
            w.outz64(i, r)
        }),
        "s_xnor_b32" => alu!(|w, i| {
            let r = !(w.a(i) ^ w.b(i));
            w.outz(i, r)
        }),
        "s_xnor_b64" => alu!(|w, i| {
            let r = !(w.a64(i) ^ w.b64(i));
            w.outz64(i, r)
        }),
        "s_and_not1_b32" => alu!(|w, i| {
            let r = w.a(i) & !w.b(i);
            w.outz(i, r)
        }),
        "s_and_not1_b64" => alu!(|w, i| {
            let r = w.a64(i) & !w.b64(i);
            w.outz64(i, r)
        }),
        "s_or_not1_b32" => alu!(|w, i| {
            let r = w.a(i) | !w.b(i);
            w.outz(i, r)
        }),
        "s_or_not1_b64" => alu!(|w, i| {
            let r = w.a64(i) | !w.b64(i);
            w.outz64(i, r)
        }),
        "s_not_b32" => alu!(|w, i| {
            let r = !w.a(i);
            w.outz(i, r)
        }),
        "s_not_b64" => alu!(|w, i| {
            let r = !w.a64(i);
            w.outz64(i, r)
        }),
        "s_bfe_u32" => alu!(|w, i| {
            let r = bfe(w.a(i).into(), w.b(i), 32) as u32;
            w.outz(i, r)
        }),
        "s_bfe_i32" => alu!(|w, i| {
            let r = bfe_signed(w.a(i).into(), w.b(i), 32) as u32;
            w.outz(i, r)
        }),
        "s_bfe_u64" => alu!(|w, i| {
            let r = bfe(w.a64(i), w.b(i), 64);
            w.outz64(i, r)
        }),
        "s_bfe_i64" => alu!(|w, i| {
            let r = bfe_signed(w.a64(i), w.b(i), 64);
            w.outz64(i, r)
        }),
        "s_bfm_b32" => alu!(|w, i| {
            let r = (field(w.a(i) & 31) as u32) << (w.b(i) & 31);
            w.set_s(i.d, r)
        }),
        "s_bfm_b64" => alu!(|w, i| {
            let r = field(w.a(i) & 63) << (w.b(i) & 63);
            w.set_s64(i.d, r)
        }),
        "s_mul_i32" => alu!(|w, i| {
            let r = w.a(i).wrapping_mul(w.b(i));
            w.set_s(i.d, r)
        }),
        "s_mul_hi_u32" => alu!(|w, i| {
            let r = u64::from(w.a(i)) * u64::from(w.b(i));
            w.set_s(i.d, (r >> 32) as u32)
        }),
        "s_mul_hi_i32" => alu!(|w, i| {
            let r = i64::from(w.a(i) as i32) * i64::from(w.b(i) as i32);
            w.set_s(i.d, (r >> 32) as u32)
        }),
        "s_cselect_b32" => alu!(|w, i| {
            let r = if w.scc { w.a(i) } else { w.b(i) };
            w.set_s(i.d, r)
        }),
        "s_cselect_b64" => alu!(|w, i| {
            let r = if w.scc { w.a64(i) } else { w.b64(i) };
            w.set_s64(i.d, r)
        }),
        "s_pack_ll_b32_b16" => alu!(|w, i| {
            let r = w.a(i) & 0xffff | w.b(i) << 16;
            w.set_s(i.d, r)
        }),
        "s_pack_lh_b32_b16" => alu!(|w, i| {
            let r = w.a(i) & 0xffff | w.b(i) & 0xffff_0000;
            w.set_s(i.d, r)
        }),
        "s_pack_hh_b32_b16" => alu!(|w, i| {
            let r = w.a(i) >> 16 | w.b(i) & 0xffff_0000;
            w.set_s(i.d, r)
        }),
        "s_pack_hl_b32_b16" => alu!(|w, i| {
            let r = w.a(i) >> 16 | w.b(i) << 16;
            w.set_s(i.d, r)
        }),
        "s_addk_i32" | "s_addk_co_i32" => alu!(|w, i| {
            let r = add_signed(w.scalar(i.d, 0), i.imm as u32);
            w.out(i, r)
        }),
        "s_mulk_i32" => alu!(|w, i| {
            let r = w.scalar(i.d, 0).wrapping_mul(i.imm as u32);
            w.set_s(i.d, r)
        }),
        "s_brev_b32" => alu!(|w, i| {
            let r = w.a(i).reverse_bits();
            w.set_s(i.d, r)
        }),
        "s_brev_b64" => alu!(|w, i| {
            let r = w.a64(i).reverse_bits();
            w.set_s64(i.d, r)
        }),
        "s_ctz_i32_b32" => alu!(|w, i| {
            let a = w.a(i);
            w.set_s(i.d, if a == 0 { u32::MAX } else { a.trailing_zeros() })
        }),
        "s_ctz_i32_b64" => alu!(|w, i| {
            let a = w.a64(i);
            w.set_s(i.d, if a == 0 { u32::MAX } else { a.trailing_zeros() })
        }),
        "s_clz_i32_u32" => alu!(|w, i| {
            let a = w.a(i);
            w.set_s(i.d, if a == 0 { u32::MAX } else { a.leading_zeros() })
        }),
        "s_clz_i32_u64" => alu!(|w, i| {
            let a = w.a64(i);
            w.set_s(i.d, if a == 0 { u32::MAX } else { a.leading_zeros() })
        }),
        "s_cls_i32" => alu!(|w, i| {
            let r = cls(w.a(i).into(), 32);
            w.set_s(i.d, r)
        }),
        "s_cls_i32_i64" => alu!(|w, i| {
            let r = cls(w.a64(i), 64);
            w.set_s(i.d, r)
        }),
        "s_sext_i32_i8" => alu!(|w, i| {
            let r = w.a(i) as i8 as i32 as u32;
            w.set_s(i.d, r)
        }),
        "s_sext_i32_i16" => alu!(|w, i| {
            let r = w.a(i) as i16 as i32 as u32;
            w.set_s(i.d, r)
        }),
        "s_bitset0_b32" => alu!(|w, i| {
            let r = w.scalar(i.d, 0) & !(1 << (w.a(i) & 31));
            w.set_s(i.d, r)
        }),
        "s_bitset1_b32" => alu!(|w, i| {
            let r = w.scalar(i.d, 0) | 1 << (w.a(i) & 31);
            w.set_s(i.d, r)
        }),
        "s_bitset0_b64" => alu!(|w, i| {
            let r = w.scalar64(i.d, 0, false) & !(1 << (w.a(i) & 63));
            w.set_s64(i.d, r)
        }),
        "s_bitset1_b64" => alu!(|w, i| {
            let r = w.scalar64(i.d, 0, false) | 1 << (w.a(i) & 63);
            w.set_s64(i.d, r)
        }),
        "s_bitreplicate_b64_b32" => alu!(|w, i| {
            let a = w.a(i);
            let r = (0..32).fold(0u64, |r, n| r | u64::from(a >> n & 1) * 3 << (2 * n));
            w.set_s64(i.d, r)
        }),
        "s_bcnt0_i32_b32" => alu!(|w, i| {
            let r = w.a(i).count_zeros();
            w.outz(i, r)
        }),
        "s_bcnt0_i32_b64" => alu!(|w, i| {
            let r = w.a64(i).count_zeros();
            w.outz(i, r)
        }),
        "s_bcnt1_i32_b32" => alu!(|w, i| {
            let r = w.a(i).count_ones();
            w.outz(i, r)
        }),
        "s_bcnt1_i32_b64" => alu!(|w, i| {
            let r = w.a64(i).count_ones();
            w.outz(i, r)
        }),
        "s_quadmask_b32" => alu!(|w, i| {
            let r = quad(w.a(i).into()) as u32;
            w.outz(i, r)
        }),
        "s_quadmask_b64" => alu!(|w, i| {
            let r = quad(w.a64(i));
            w.outz64(i, r)
        }),
        "s_wqm_b32" => alu!(|w, i| {
            let r = wqm(w.a(i).into()) as u32;
            w.outz(i, r)
        }),
        "s_wqm_b64" => alu!(|w, i| {
            let r = wqm(w.a64(i));
            w.outz64(i, r)
        }),
        "s_and_saveexec_b32" | "s_and_saveexec_b64" => alu!(|w, i| w.saveexec(i, |s, e| s & e)),
        "s_or_saveexec_b32" | "s_or_saveexec_b64" => alu!(|w, i| w.saveexec(i, |s, e| s | e)),
        "s_xor_saveexec_b32" | "s_xor_saveexec_b64" => alu!(|w, i| w.saveexec(i, |s, e| s ^ e)),
        "s_nand_saveexec_b32" | "s_nand_saveexec_b64" => alu!(|w, i| w.saveexec(i, |s, e| !(s & e))),
        "s_nor_saveexec_b32" | "s_nor_saveexec_b64" => alu!(|w, i| w.saveexec(i, |s, e| !(s | e))),
        "s_xnor_saveexec_b32" | "s_xnor_saveexec_b64" => alu!(|w, i| w.saveexec(i, |s, e| !(s ^ e))),
        "s_and_not0_saveexec_b32" | "s_and_not0_saveexec_b64" => alu!(|w, i| w.saveexec(i, |s, e| !s & e)),
        "s_and_not1_saveexec_b32" | "s_and_not1_saveexec_b64" => alu!(|w, i| w.saveexec(i, |s, e| s & !e)),
        "s_or_not0_saveexec_b32" | "s_or_not0_saveexec_b64" => alu!(|w, i| w.saveexec(i, |s, e| !s | e)),
        "s_or_not1_saveexec_b32" | "s_or_not1_saveexec_b64" => alu!(|w, i| w.saveexec(i, |s, e| s | !e)),
        "s_and_not0_wrexec_b32" | "s_and_not0_wrexec_b64" => alu!(|w, i| w.wrexec(i, |s, e| !s & e)),
        "s_and_not1_wrexec_b32" | "s_and_not1_wrexec_b64" => alu!(|w, i| w.wrexec(i, |s, e| s & !e)),
        "s_cmp_eq_i32" | "s_cmp_eq_u32" => alu!(|w, i| w.scc = w.a(i) == w.b(i)),
        "s_cmp_lg_i32" | "s_cmp_lg_u32" => alu!(|w, i| w.scc = w.a(i) != w.b(i)),
        "s_cmp_gt_i32" => alu!(|w, i| w.scc = w.a(i) as i32 > w.b(i) as i32),
        "s_cmp_ge_i32" => alu!(|w, i| w.scc = w.a(i) as i32 >= w.b(i) as i32),
        "s_cmp_lt_i32" => alu!(|w, i| w.scc = (w.a(i) as i32) < w.b(i) as i32),
        "s_cmp_le_i32" => alu!(|w, i| w.scc = w.a(i) as i32 <= w.b(i) as i32),
        "s_cmp_gt_u32" => alu!(|w, i| w.scc = w.a(i) > w.b(i)),
        "s_cmp_ge_u32" => alu!(|w, i| w.scc = w.a(i) >= w.b(i)),
        "s_cmp_lt_u32" => alu!(|w, i| w.scc = w.a(i) < w.b(i)),
        "s_cmp_le_u32" => alu!(|w, i| w.scc = w.a(i) <= w.b(i)),
        "s_cmp_eq_u64" => alu!(|w, i| w.scc = w.a64(i) == w.b64(i)),
        "s_cmp_lg_u64" => alu!(|w, i| w.scc = w.a64(i) != w.b64(i)),
        "s_bitcmp0_b32" => alu!(|w, i| w.scc = w.a(i) >> (w.b(i) & 31) & 1 == 0),
        "s_bitcmp1_b32" => alu!(|w, i| w.scc = w.a(i) >> (w.b(i) & 31) & 1 != 0),
        "s_bitcmp0_b64" => alu!(|w, i| w.scc = w.a64(i) >> (w.b(i) & 63) & 1 == 0),
        "s_bitcmp1_b64" => alu!(|w, i| w.scc = w.a64(i) >> (w.b(i) & 63) & 1 != 0),
        // The short forms compare the register with the immediate, unsigned ones zero-extended.
        "s_cmpk_eq_i32" => alu!(|w, i| w.scc = w.scalar(i.d, 0) as i32 == i.imm),
        "s_cmpk_lg_i32" => alu!(|w, i| w.scc = w.scalar(i.d, 0) as i32 != i.imm),
        "s_cmpk_gt_i32" => alu!(|w, i| w.scc = w.scalar(i.d, 0) as i32 > i.imm),
        "s_cmpk_ge_i32" => alu!(|w, i| w.scc = w.scalar(i.d, 0) as i32 >= i.imm),
        "s_cmpk_lt_i32" => alu!(|w, i| w.scc = (w.scalar(i.d, 0) as i32) < i.imm),
        "s_cmpk_le_i32" => alu!(|w, i| w.scc = w.scalar(i.d, 0) as i32 <= i.imm),
        "s_cmpk_eq_u32" => alu!(|w, i| w.scc = w.scalar(i.d, 0) == i.imm as u32 & 0xffff),
        "s_cmpk_lg_u32" => alu!(|w, i| w.scc = w.scalar(i.d, 0) != i.imm as u32 & 0xffff),
        "s_cmpk_gt_u32" => alu!(|w, i| w.scc = w.scalar(i.d, 0) > i.imm as u32 & 0xffff),
        "s_cmpk_ge_u32" => alu!(|w, i| w.scc = w.scalar(i.d, 0) >= i.imm as u32 & 0xffff),
        "s_cmpk_lt_u32" => alu!(|w, i| w.scc = w.scalar(i.d, 0) < i.imm as u32 & 0xffff),
        "s_cmpk_le_u32" => alu!(|w, i| w.scc = w.scalar(i.d, 0) <= i.imm as u32 & 0xffff),
        _ => return None,
    })
}
