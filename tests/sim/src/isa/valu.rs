//! Vector arithmetic on 32 bits: VOP1, VOP2, VOP3 and the halves of dual instructions.

use super::float::{self, f16_from_f64, f16_to_f32, max32, min32, nan32};
use super::wave::Lanes;
use super::{Exec, Inst, Wave, operand};

mod arith;

use arith::{
    add_carry, bfe, bfe_i, cls, div_fixup, div_scale, exponent, i24, legacy_mul, mantissa, median, median_i,
    perm, sad8, sub_borrow, turns, u24,
};

impl Wave {
    pub(super) fn u1(&mut self, i: &Inst, f: impl Fn(u32) -> u32) {
        let a = self.u32s(i, 0);
        self.put32(i, &a.map(f));
    }

    pub(super) fn u2(&mut self, i: &Inst, f: impl Fn(u32, u32) -> u32) {
        let (a, b) = (self.u32s(i, 0), self.u32s(i, 1));
        self.put32(i, &std::array::from_fn(|l| f(a[l], b[l])));
    }

    pub(super) fn u3(&mut self, i: &Inst, f: impl Fn(u32, u32, u32) -> u32) {
        let (a, b, c) = (self.u32s(i, 0), self.u32s(i, 1), self.u32s(i, 2));
        self.put32(i, &std::array::from_fn(|l| f(a[l], b[l], c[l])));
    }

    pub(super) fn f1(&mut self, i: &Inst, f: impl Fn(f32) -> f32) {
        let a = self.f32s(i, 0);
        self.putf32(i, &a.map(|x| nan32(f(x), &[x])));
    }

    pub(super) fn f2(&mut self, i: &Inst, f: impl Fn(f32, f32) -> f32) {
        let (a, b) = (self.f32s(i, 0), self.f32s(i, 1));
        self.putf32(i, &std::array::from_fn(|l| nan32(f(a[l], b[l]), &[a[l], b[l]])));
    }

    pub(super) fn f3(&mut self, i: &Inst, f: impl Fn(f32, f32, f32) -> f32) {
        let (a, b, c) = (self.f32s(i, 0), self.f32s(i, 1), self.f32s(i, 2));
        self.putf32(i, &std::array::from_fn(|l| nan32(f(a[l], b[l], c[l]), &[a[l], b[l], c[l]])));
    }

    /// Results of minima and maxima keep the number when one operand is a NaN.
    fn fm(&mut self, i: &Inst, f: impl Fn(f32, f32) -> f32) {
        let (a, b) = (self.f32s(i, 0), self.f32s(i, 1));
        self.putf32(i, &std::array::from_fn(|l| f(a[l], b[l])));
    }

    fn fm3(&mut self, i: &Inst, f: impl Fn(f32, f32, f32) -> f32) {
        let (a, b, c) = (self.f32s(i, 0), self.f32s(i, 1), self.f32s(i, 2));
        self.putf32(i, &std::array::from_fn(|l| f(a[l], b[l], c[l])));
    }

    /// The destination's old value as a float (accumulators).
    fn acc(&self, i: &Inst) -> Lanes<f32> {
        self.v[usize::from(i.d - operand::V0)].map(f32::from_bits)
    }

    /// Sum or difference with a carry: `f(a, b, carry in)` gives 33 bits.
    fn carry(&mut self, i: &Inst, carry_in: bool, f: impl Fn(u32, u32, u64) -> (u32, bool)) {
        let (a, b) = (self.u32s(i, 0), self.u32s(i, 1));
        let c = if carry_in { self.mask(i.s[2]) } else { 0 };
        let active = self.active(i);
        let mut r = [0; 64];
        let mut out = 0;
        for l in 0..self.lanes as usize {
            let (sum, carry) = f(a[l], b[l], c >> l & 1);
            r[l] = sum;
            if carry && active >> l & 1 != 0 {
                out |= 1 << l;
            }
        }
        self.put32(i, &r);
        self.set_mask(i.sd, out);
    }

    fn first_active(&self) -> usize {
        let e = self.exec();
        if e == 0 { 0 } else { e.trailing_zeros() as usize }
    }
}

/// What a vector instruction on 32 bits does.
#[expect(clippy::too_many_lines, reason = "a table: one line an instruction")]
pub(super) fn lookup(name: &str) -> Option<Exec> {
    macro_rules! alu {
        (|$w:ident, $i:ident| $body:expr) => {
            Exec::Alu(|$w: &mut Wave, $i: &Inst| $body)
        };
    }
    Some(match name {
        "v_nop" | "v_pipeflush" => alu!(|_w, _i| ()),
        "v_mov_b32" => alu!(|w, i| w.u1(i, |a| a)),
        "v_not_b32" => alu!(|w, i| w.u1(i, |a| !a)),
        "v_bfrev_b32" => alu!(|w, i| w.u1(i, u32::reverse_bits)),
        "v_clz_i32_u32" => alu!(|w, i| w.u1(i, |a| if a == 0 { u32::MAX } else { a.leading_zeros() })),
        "v_ctz_i32_b32" => alu!(|w, i| w.u1(i, |a| if a == 0 { u32::MAX } else { a.trailing_zeros() })),
        "v_cls_i32" => alu!(|w, i| w.u1(i, cls)),
        "v_readfirstlane_b32" => alu!(|w, i| {
            let a = w.u32s(i, 0);
            let value = a[w.first_active()];
            w.set_s(i.d, value)
        }),
        "v_readlane_b32" => alu!(|w, i| {
            let lane = w.scalar(i.s[1], i.lit) & (w.lanes - 1);
            let value = w.u32s(i, 0)[lane as usize];
            w.set_s(i.d, value)
        }),
        "v_writelane_b32" => alu!(|w, i| {
            let value = w.scalar(i.s[0], i.lit);
            let lane = w.scalar(i.s[1], i.lit) & (w.lanes - 1);
            w.v[usize::from(i.d - operand::V0)][lane as usize] = value
        }),
        "v_swap_b32" => alu!(|w, i| {
            let (d, s) = (usize::from(i.d - operand::V0), usize::from(i.s[0] - operand::V0));
            let mask = w.active(i);
            for l in 0..64 {
                if mask >> l & 1 != 0 {
                    let t = w.v[d][l];
                    w.v[d][l] = w.v[s][l];
                    w.v[s][l] = t;
                }
            }
        }),
        "v_permlane16_b32" | "v_permlanex16_b32" => alu!(|w, i| {
            let a = w.u32s(i, 0);
            let sel = u64::from(w.scalar(i.s[1], i.lit)) | u64::from(w.scalar(i.s[2], i.lit)) << 32;
            let flip = if i.row.name.contains('x') { 16 } else { 0 };
            let (exec, fi, bc) = (w.exec(), i.op_sel & 1 != 0, i.op_sel & 2 != 0);
            let d = usize::from(i.d - operand::V0);
            for l in 0..w.lanes as usize {
                if exec >> l & 1 == 0 {
                    continue;
                }
                let from = (l & !15 | (sel >> (4 * (l & 15)) & 15) as usize) ^ flip;
                if fi || exec >> from & 1 != 0 {
                    w.v[d][l] = a[from];
                } else if bc {
                    w.v[d][l] = 0;
                }
            }
        }),
        "v_permlane64_b32" => alu!(|w, i| {
            let a = w.u32s(i, 0);
            let r = std::array::from_fn(|l| if w.lanes == 64 { a[l ^ 32] } else { a[l] });
            w.put32(i, &r)
        }),
        "v_add_nc_u32" => {
            alu!(|w, i| { if i.clamp { w.u2(i, u32::saturating_add) } else { w.u2(i, u32::wrapping_add) } })
        }
        "v_sub_nc_u32" => {
            alu!(|w, i| { if i.clamp { w.u2(i, u32::saturating_sub) } else { w.u2(i, u32::wrapping_sub) } })
        }
        "v_subrev_nc_u32" => alu!(|w, i| w.u2(i, |a, b| b.wrapping_sub(a))),
        "v_add_nc_i32" => alu!(|w, i| {
            if i.clamp {
                w.u2(i, |a, b| (a as i32).saturating_add(b as i32) as u32)
            } else {
                w.u2(i, u32::wrapping_add)
            }
        }),
        "v_sub_nc_i32" => alu!(|w, i| {
            if i.clamp {
                w.u2(i, |a, b| (a as i32).saturating_sub(b as i32) as u32)
            } else {
                w.u2(i, u32::wrapping_sub)
            }
        }),
        "v_add_co_u32" => alu!(|w, i| w.carry(i, false, add_carry)),
        "v_add_co_ci_u32" => alu!(|w, i| w.carry(i, true, add_carry)),
        "v_sub_co_u32" => alu!(|w, i| w.carry(i, false, sub_borrow)),
        "v_sub_co_ci_u32" => alu!(|w, i| w.carry(i, true, sub_borrow)),
        "v_subrev_co_u32" => alu!(|w, i| w.carry(i, false, |a, b, c| sub_borrow(b, a, c))),
        "v_subrev_co_ci_u32" => alu!(|w, i| w.carry(i, true, |a, b, c| sub_borrow(b, a, c))),
        "v_cndmask_b32" => alu!(|w, i| {
            let (mut a, mut b, c) = (w.u32s(i, 0), w.u32s(i, 1), w.mask(i.s[2]));
            for (n, x) in [&mut a, &mut b].into_iter().enumerate() {
                if i.abs >> n & 1 != 0 {
                    *x = x.map(|v| v & 0x7fff_ffff);
                }
                if i.neg >> n & 1 != 0 {
                    *x = x.map(|v| v ^ 0x8000_0000);
                }
            }
            let r = std::array::from_fn(|l| if c >> l & 1 != 0 { b[l] } else { a[l] });
            w.put32(i, &r)
        }),
        "v_and_b32" => alu!(|w, i| w.u2(i, |a, b| a & b)),
        "v_or_b32" => alu!(|w, i| w.u2(i, |a, b| a | b)),
        "v_xor_b32" => alu!(|w, i| w.u2(i, |a, b| a ^ b)),
        "v_xnor_b32" => alu!(|w, i| w.u2(i, |a, b| !(a ^ b))),
        "v_lshlrev_b32" => alu!(|w, i| w.u2(i, |a, b| b << (a & 31))),
        "v_lshrrev_b32" => alu!(|w, i| w.u2(i, |a, b| b >> (a & 31))),
        "v_ashrrev_i32" => alu!(|w, i| w.u2(i, |a, b| (b as i32 >> (a & 31)) as u32)),
        "v_min_i32" => alu!(|w, i| w.u2(i, |a, b| (a as i32).min(b as i32) as u32)),
        "v_max_i32" => alu!(|w, i| w.u2(i, |a, b| (a as i32).max(b as i32) as u32)),
        "v_min_u32" => alu!(|w, i| w.u2(i, u32::min)),
        "v_max_u32" => alu!(|w, i| w.u2(i, u32::max)),
        "v_mul_lo_u32" => alu!(|w, i| w.u2(i, u32::wrapping_mul)),
        "v_mul_hi_u32" => alu!(|w, i| w.u2(i, |a, b| (u64::from(a) * u64::from(b) >> 32) as u32)),
        "v_mul_hi_i32" => {
            alu!(|w, i| w.u2(i, |a, b| (i64::from(a as i32) * i64::from(b as i32) >> 32) as u32))
        }
        "v_mul_u32_u24" => alu!(|w, i| w.u2(i, |a, b| u24(a).wrapping_mul(u24(b)))),
        "v_mul_i32_i24" => alu!(|w, i| w.u2(i, |a, b| (i24(a) * i24(b)) as u32)),
        "v_mul_hi_u32_u24" => {
            alu!(|w, i| w.u2(i, |a, b| (u64::from(u24(a)) * u64::from(u24(b)) >> 32) as u32))
        }
        "v_mul_hi_i32_i24" => alu!(|w, i| w.u2(i, |a, b| (i24(a) * i24(b) >> 32) as u32)),
        "v_mad_u32_u24" => alu!(|w, i| w.u3(i, |a, b, c| u24(a).wrapping_mul(u24(b)).wrapping_add(c))),
        "v_mad_i32_i24" => alu!(|w, i| w.u3(i, |a, b, c| ((i24(a) * i24(b)) as u32).wrapping_add(c))),
        "v_bfe_u32" => alu!(|w, i| w.u3(i, bfe)),
        "v_bfe_i32" => alu!(|w, i| w.u3(i, bfe_i)),
        "v_bfi_b32" => alu!(|w, i| w.u3(i, |a, b, c| a & b | !a & c)),
        "v_bfm_b32" => alu!(|w, i| w.u2(i, |a, b| ((1u32 << (a & 31)) - 1) << (b & 31))),
        "v_bcnt_u32_b32" => alu!(|w, i| w.u2(i, |a, b| a.count_ones().wrapping_add(b))),
        "v_mbcnt_lo_u32_b32" | "v_mbcnt_hi_u32_b32" => alu!(|w, i| {
            let (a, b) = (w.u32s(i, 0), w.u32s(i, 1));
            let hi = i.row.name.contains("hi");
            let r = std::array::from_fn(|l| {
                let below: u64 = (1 << l) - 1;
                let m = if hi { (below >> 32) as u32 } else { below as u32 };
                (a[l] & m).count_ones().wrapping_add(b[l])
            });
            w.put32(i, &r)
        }),
        "v_alignbit_b32" => {
            alu!(|w, i| w.u3(i, |a, b, c| (((u64::from(a) << 32) | u64::from(b)) >> (c & 31)) as u32))
        }
        "v_alignbyte_b32" => {
            alu!(|w, i| w.u3(i, |a, b, c| (((u64::from(a) << 32) | u64::from(b)) >> (8 * (c & 3))) as u32))
        }
        "v_perm_b32" => alu!(|w, i| w.u3(i, perm)),
        "v_add3_u32" => alu!(|w, i| w.u3(i, |a, b, c| a.wrapping_add(b).wrapping_add(c))),
        "v_lshl_add_u32" => alu!(|w, i| w.u3(i, |a, b, c| (a << (b & 31)).wrapping_add(c))),
        "v_add_lshl_u32" => alu!(|w, i| w.u3(i, |a, b, c| a.wrapping_add(b) << (c & 31))),
        "v_lshl_or_b32" => alu!(|w, i| w.u3(i, |a, b, c| a << (b & 31) | c)),
        "v_and_or_b32" => alu!(|w, i| w.u3(i, |a, b, c| a & b | c)),
        "v_or3_b32" => alu!(|w, i| w.u3(i, |a, b, c| a | b | c)),
        "v_xor3_b32" => alu!(|w, i| w.u3(i, |a, b, c| a ^ b ^ c)),
        "v_xad_u32" => alu!(|w, i| w.u3(i, |a, b, c| (a ^ b).wrapping_add(c))),
        "v_min3_u32" => alu!(|w, i| w.u3(i, |a, b, c| a.min(b).min(c))),
        "v_max3_u32" => alu!(|w, i| w.u3(i, |a, b, c| a.max(b).max(c))),
        "v_med3_u32" => alu!(|w, i| w.u3(i, median)),
        "v_min3_i32" => alu!(|w, i| w.u3(i, |a, b, c| (a as i32).min(b as i32).min(c as i32) as u32)),
        "v_max3_i32" => alu!(|w, i| w.u3(i, |a, b, c| (a as i32).max(b as i32).max(c as i32) as u32)),
        "v_med3_i32" => alu!(|w, i| w.u3(i, |a, b, c| median_i(a as i32, b as i32, c as i32) as u32)),
        "v_maxmin_u32" => alu!(|w, i| w.u3(i, |a, b, c| a.max(b).min(c))),
        "v_minmax_u32" => alu!(|w, i| w.u3(i, |a, b, c| a.min(b).max(c))),
        "v_maxmin_i32" => alu!(|w, i| w.u3(i, |a, b, c| (a as i32).max(b as i32).min(c as i32) as u32)),
        "v_minmax_i32" => alu!(|w, i| w.u3(i, |a, b, c| (a as i32).min(b as i32).max(c as i32) as u32)),
        "v_sad_u32" => alu!(|w, i| w.u3(i, |a, b, c| a.abs_diff(b).wrapping_add(c))),
        "v_sad_u8" => alu!(|w, i| w.u3(i, |a, b, c| sad8(a, b).wrapping_add(c))),
        "v_add_f32" => alu!(|w, i| w.f2(i, |a, b| a + b)),
        "v_sub_f32" => alu!(|w, i| w.f2(i, |a, b| a - b)),
        "v_subrev_f32" => alu!(|w, i| w.f2(i, |a, b| b - a)),
        "v_mul_f32" => alu!(|w, i| w.f2(i, |a, b| a * b)),
        "v_mul_dx9_zero_f32" => alu!(|w, i| w.f2(i, legacy_mul)),
        "v_min_f32" | "v_min_num_f32" => alu!(|w, i| w.fm(i, min32)),
        "v_max_f32" | "v_max_num_f32" => alu!(|w, i| w.fm(i, max32)),
        "v_min3_f32" | "v_min3_num_f32" => alu!(|w, i| w.fm3(i, |a, b, c| min32(min32(a, b), c))),
        "v_max3_f32" | "v_max3_num_f32" => alu!(|w, i| w.fm3(i, |a, b, c| max32(max32(a, b), c))),
        "v_med3_f32" | "v_med3_num_f32" => alu!(|w, i| w.fm3(i, |a, b, c| {
            if a.is_nan() || b.is_nan() || c.is_nan() {
                min32(min32(a, b), c)
            } else {
                min32(max32(a, b), max32(min32(a, b), c))
            }
        })),
        "v_maxmin_f32" | "v_maxmin_num_f32" => alu!(|w, i| w.fm3(i, |a, b, c| min32(max32(a, b), c))),
        "v_minmax_f32" | "v_minmax_num_f32" => alu!(|w, i| w.fm3(i, |a, b, c| max32(min32(a, b), c))),
        "v_fma_f32" => alu!(|w, i| w.f3(i, f32::mul_add)),
        "v_fma_dx9_zero_f32" => {
            alu!(|w, i| w.f3(i, |a, b, c| { if a == 0.0 || b == 0.0 { c } else { a.mul_add(b, c) } }))
        }
        "v_fmac_f32" => alu!(|w, i| {
            let (a, b, c) = (w.f32s(i, 0), w.f32s(i, 1), w.acc(i));
            let r = std::array::from_fn(|l| nan32(a[l].mul_add(b[l], c[l]), &[a[l], b[l], c[l]]));
            w.putf32(i, &r)
        }),
        "v_fmac_dx9_zero_f32" => alu!(|w, i| {
            let (a, b, c) = (w.f32s(i, 0), w.f32s(i, 1), w.acc(i));
            let r = std::array::from_fn(|l| {
                if a[l] == 0.0 || b[l] == 0.0 {
                    c[l]
                } else {
                    nan32(a[l].mul_add(b[l], c[l]), &[a[l], b[l], c[l]])
                }
            });
            w.putf32(i, &r)
        }),
        "v_fmamk_f32" => alu!(|w, i| {
            let k = f32::from_bits(i.lit);
            w.f2(i, |a, b| a.mul_add(k, b))
        }),
        "v_fmaak_f32" => alu!(|w, i| {
            let k = f32::from_bits(i.lit);
            w.f2(i, |a, b| a.mul_add(b, k))
        }),
        "v_dot2acc_f32_f16" => alu!(|w, i| {
            let (a, b, c) = (w.u32s(i, 0), w.u32s(i, 1), w.acc(i));
            let r = std::array::from_fn(|l| {
                let h = |x: u32, n: u32| f16_to_f32((x >> (16 * n)) as u16);
                h(a[l], 1).mul_add(h(b[l], 1), h(a[l], 0).mul_add(h(b[l], 0), c[l]))
            });
            w.putf32(i, &r)
        }),
        // One unit in the last place on hardware; correctly rounded here.
        "v_rcp_f32" | "v_rcp_iflag_f32" => alu!(|w, i| w.f1(i, |a| 1.0 / a)),
        "v_rsq_f32" => alu!(|w, i| w.f1(i, |a| (1.0 / f64::from(a).sqrt()) as f32)),
        "v_sqrt_f32" => alu!(|w, i| w.f1(i, f32::sqrt)),
        "v_exp_f32" => alu!(|w, i| w.f1(i, |a| f64::from(a).exp2() as f32)),
        "v_log_f32" => alu!(|w, i| w.f1(i, |a| f64::from(a).log2() as f32)),
        "v_sin_f32" => alu!(|w, i| w.f1(i, |a| turns(a, f64::sin))),
        "v_cos_f32" => alu!(|w, i| w.f1(i, |a| turns(a, f64::cos))),
        "v_fract_f32" => alu!(|w, i| w.f1(i, |a| (a - a.floor()).min(f32::from_bits(0x3f7f_ffff)))),
        "v_trunc_f32" => alu!(|w, i| w.f1(i, f32::trunc)),
        "v_ceil_f32" => alu!(|w, i| w.f1(i, f32::ceil)),
        "v_floor_f32" => alu!(|w, i| w.f1(i, f32::floor)),
        "v_rndne_f32" => alu!(|w, i| w.f1(i, f32::round_ties_even)),
        "v_frexp_mant_f32" => alu!(|w, i| w.f1(i, mantissa)),
        "v_frexp_exp_i32_f32" => alu!(|w, i| {
            let r = w.f32s(i, 0).map(exponent);
            w.put32(i, &r)
        }),
        "v_ldexp_f32" => alu!(|w, i| {
            let (a, b) = (w.f32s(i, 0), w.u32s(i, 1));
            let r = std::array::from_fn(|l| nan32(float::ldexp32(a[l], b[l] as i32), &[a[l]]));
            w.putf32(i, &r)
        }),
        "v_div_scale_f32" => alu!(|w, i| {
            let (a, b, c) = (w.f32s(i, 0), w.f32s(i, 1), w.f32s(i, 2));
            let active = w.active(i);
            let mut flags = 0;
            let mut r = [0.0; 64];
            for l in 0..w.lanes as usize {
                let (x, flag) = div_scale(a[l], b[l], c[l]);
                r[l] = x;
                flags |= u64::from(flag && active >> l & 1 != 0) << l;
            }
            w.putf32(i, &r);
            w.set_mask(i.sd, flags)
        }),
        "v_div_fmas_f32" => alu!(|w, i| {
            let vcc = w.mask(operand::VCC);
            let (a, b, c) = (w.f32s(i, 0), w.f32s(i, 1), w.f32s(i, 2));
            let r = std::array::from_fn(|l| {
                let x = nan32(a[l].mul_add(b[l], c[l]), &[a[l], b[l], c[l]]);
                if vcc >> l & 1 == 0 {
                    x
                } else {
                    float::ldexp32(x, if c[l].to_bits() >> 23 & 0xff > 127 { 64 } else { -64 })
                }
            });
            w.putf32(i, &r)
        }),
        "v_div_fixup_f32" => alu!(|w, i| w.fm3(i, div_fixup)),
        "v_cvt_f32_i32" => alu!(|w, i| {
            let r = w.u32s(i, 0).map(|a| a as i32 as f32);
            w.putf32(i, &r)
        }),
        "v_cvt_f32_u32" => alu!(|w, i| {
            let r = w.u32s(i, 0).map(|a| a as f32);
            w.putf32(i, &r)
        }),
        "v_cvt_i32_f32" => alu!(|w, i| {
            let r = w.f32s(i, 0).map(|a| a as i32 as u32);
            w.put32(i, &r)
        }),
        "v_cvt_u32_f32" => alu!(|w, i| {
            let r = w.f32s(i, 0).map(|a| a as u32);
            w.put32(i, &r)
        }),
        "v_cvt_nearest_i32_f32" => alu!(|w, i| {
            let r = w.f32s(i, 0).map(|a| (a + 0.5).floor() as i32 as u32);
            w.put32(i, &r)
        }),
        "v_cvt_floor_i32_f32" => alu!(|w, i| {
            let r = w.f32s(i, 0).map(|a| a.floor() as i32 as u32);
            w.put32(i, &r)
        }),
        "v_cvt_f32_ubyte0" | "v_cvt_f32_ubyte1" | "v_cvt_f32_ubyte2" | "v_cvt_f32_ubyte3" => alu!(|w, i| {
            let n = 8 * u32::from(i.row.name.as_bytes()[15] - b'0');
            let r = w.u32s(i, 0).map(|a| (a >> n & 0xff) as f32);
            w.putf32(i, &r)
        }),
        "v_cvt_f16_f32" => alu!(|w, i| {
            let r = w.f32s(i, 0).map(|a| f16_from_f64(f64::from(a)));
            w.putf16(i, &r)
        }),
        "v_cvt_f32_f16" => alu!(|w, i| {
            let r = w.f16s(i, 0).map(f16_to_f32);
            w.putf32(i, &r)
        }),
        "v_cvt_pk_rtz_f16_f32" | "v_cvt_pkrtz_f16_f32" => alu!(|w, i| {
            let (a, b) = (w.f32s(i, 0), w.f32s(i, 1));
            let r = std::array::from_fn(|l| u32::from(rtz16(a[l])) | u32::from(rtz16(b[l])) << 16);
            w.put32(i, &r)
        }),
        "v_pack_b32_f16" => alu!(|w, i| {
            let (a, b) = (w.f16s(i, 0), w.f16s(i, 1));
            let r = std::array::from_fn(|l| u32::from(a[l]) | u32::from(b[l]) << 16);
            w.put32(i, &r)
        }),
        "v_cvt_i32_i16" => alu!(|w, i| {
            let r = w.u16s(i, 0).map(|a| a as i16 as i32 as u32);
            w.put32(i, &r)
        }),
        "v_cvt_u32_u16" => alu!(|w, i| {
            let r = w.u16s(i, 0).map(u32::from);
            w.put32(i, &r)
        }),
        "v_mad_u32_u16" => alu!(|w, i| {
            let (a, b, c) = (w.u16s(i, 0), w.u16s(i, 1), w.u32s(i, 2));
            let r = std::array::from_fn(|l| (u32::from(a[l]) * u32::from(b[l])).wrapping_add(c[l]));
            w.put32(i, &r)
        }),
        "v_mad_i32_i16" => alu!(|w, i| {
            let (a, b, c) = (w.u16s(i, 0), w.u16s(i, 1), w.u32s(i, 2));
            let r = std::array::from_fn(|l| {
                ((i32::from(a[l] as i16) * i32::from(b[l] as i16)) as u32).wrapping_add(c[l])
            });
            w.put32(i, &r)
        }),
        _ => return None,
    })
}

/// A half, rounded toward zero.
fn rtz16(x: f32) -> u16 {
    let r = f16_from_f64(f64::from(x));
    let back = f16_to_f32(r);
    // One step back where rounding went away from zero (an infinity from a finite number included).
    if x.is_finite() && back.abs() > x.abs() { r - 1 } else { r }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permute_bytes_selects_from_both_words_signs_and_constants() {
        assert_eq!(perm(0x4433_2211, 0x8877_6655, 0x0004_0c0d), 0x5511_00ff);
    }

    #[test]
    fn conversion_toward_zero_stays_below_infinity() {
        assert_eq!(rtz16(65519.99), 0x7bff);
        assert_eq!(rtz16(1e9), 0x7bff);
        assert_eq!(rtz16(1.0009), 0x3c00);
        assert_eq!(rtz16(f32::INFINITY), 0x7c00);
    }

    #[test]
    fn a_division_by_steps_is_correctly_rounded() {
        // The sequence compilers emit for a / b.
        for (a, b) in [(1.0f32, 3.0f32), (7.5, 0.1), (1e-38, 3.0), (3e38, 1e-5), (5.0, 1e38), (2.0, 7e-39)] {
            let (d, _) = div_scale(b, b, a);
            let (n, flag) = div_scale(a, b, a);
            let mut r = 1.0 / d;
            let e = (-d).mul_add(r, 1.0);
            r = e.mul_add(r, r);
            let mut q = n * r;
            let e = (-d).mul_add(q, n);
            q = e.mul_add(r, q);
            let e = (-d).mul_add(q, n);
            let mut x = e.mul_add(r, q);
            if flag {
                x = float::ldexp32(x, if q.to_bits() >> 23 & 0xff > 127 { 64 } else { -64 });
            }
            assert_eq!(div_fixup(x, b, a), a / b, "{a} / {b}");
        }
    }

    #[test]
    fn splitting_and_scaling_a_float_gives_it_back() {
        for x in [1.0f32, -0.75, 3e38, 1e-45, 1e-40, 123.456] {
            assert!((0.5..1.0).contains(&mantissa(x).abs()));
            assert_eq!(float::ldexp32(mantissa(x), exponent(x) as i32), x);
        }
    }
}
