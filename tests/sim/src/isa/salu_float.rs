//! Scalar floating point of gfx12.

use super::float::{max32, min32, nan32};
use super::{Exec, Inst, Wave};

impl Wave {
    fn sf(&self, i: &Inst, n: usize) -> f32 {
        f32::from_bits(self.scalar(i.s[n], i.lit))
    }

    fn out_f(&mut self, i: &Inst, value: f32) {
        self.set_s(i.d, value.to_bits());
    }

    fn sf1(&mut self, i: &Inst, f: impl Fn(f32) -> f32) {
        let a = self.sf(i, 0);
        self.out_f(i, nan32(f(a), &[a]));
    }

    fn sf2(&mut self, i: &Inst, f: impl Fn(f32, f32) -> f32) {
        let (a, b) = (self.sf(i, 0), self.sf(i, 1));
        self.out_f(i, nan32(f(a, b), &[a, b]));
    }

    fn fma(&mut self, i: &Inst, a: f32, b: f32, c: f32) {
        self.out_f(i, nan32(a.mul_add(b, c), &[a, b, c]));
    }

    fn cmp_f(&mut self, i: &Inst, f: impl Fn(f32, f32) -> bool) {
        self.scc = f(self.sf(i, 0), self.sf(i, 1));
    }
}

/// What a scalar float instruction does.
#[allow(clippy::neg_cmp_op_on_partial_ord, reason = "NaN makes them differ")]
pub(super) fn lookup(name: &str) -> Option<Exec> {
    macro_rules! alu {
        (|$w:ident, $i:ident| $body:expr) => {
            Exec::Alu(|$w: &mut Wave, $i: &Inst| $body)
        };
    }
    Some(match name {
        "s_add_f32" => alu!(|w, i| w.sf2(i, |a, b| a + b)),
        "s_sub_f32" => alu!(|w, i| w.sf2(i, |a, b| a - b)),
        "s_mul_f32" => alu!(|w, i| w.sf2(i, |a, b| a * b)),
        "s_min_num_f32" | "s_min_f32" => alu!(|w, i| w.sf2(i, min32)),
        "s_max_num_f32" | "s_max_f32" => alu!(|w, i| w.sf2(i, max32)),
        "s_fmac_f32" => alu!(|w, i| {
            let (a, b, c) = (w.sf(i, 0), w.sf(i, 1), f32::from_bits(w.scalar(i.d, 0)));
            w.fma(i, a, b, c)
        }),
        "s_fmaak_f32" => alu!(|w, i| {
            let (a, b) = (w.sf(i, 0), w.sf(i, 1));
            w.fma(i, a, b, f32::from_bits(i.lit))
        }),
        "s_fmamk_f32" => alu!(|w, i| {
            let (a, b) = (w.sf(i, 0), w.sf(i, 1));
            w.fma(i, a, f32::from_bits(i.lit), b)
        }),
        "s_ceil_f32" => alu!(|w, i| w.sf1(i, f32::ceil)),
        "s_floor_f32" => alu!(|w, i| w.sf1(i, f32::floor)),
        "s_trunc_f32" => alu!(|w, i| w.sf1(i, f32::trunc)),
        "s_rndne_f32" => alu!(|w, i| w.sf1(i, f32::round_ties_even)),
        "s_cvt_f32_i32" => alu!(|w, i| {
            let a = w.scalar(i.s[0], i.lit) as i32 as f32;
            w.out_f(i, a)
        }),
        "s_cvt_f32_u32" => alu!(|w, i| {
            let a = w.scalar(i.s[0], i.lit) as f32;
            w.out_f(i, a)
        }),
        "s_cvt_i32_f32" => alu!(|w, i| {
            let a = w.sf(i, 0) as i32 as u32;
            w.set_s(i.d, a)
        }),
        "s_cvt_u32_f32" => alu!(|w, i| {
            let a = w.sf(i, 0) as u32;
            w.set_s(i.d, a)
        }),
        "s_cmp_lt_f32" => alu!(|w, i| w.cmp_f(i, |a, b| a < b)),
        "s_cmp_eq_f32" => alu!(|w, i| w.cmp_f(i, |a, b| a == b)),
        "s_cmp_le_f32" => alu!(|w, i| w.cmp_f(i, |a, b| a <= b)),
        "s_cmp_gt_f32" => alu!(|w, i| w.cmp_f(i, |a, b| a > b)),
        "s_cmp_lg_f32" => alu!(|w, i| w.cmp_f(i, |a, b| a < b || a > b)),
        "s_cmp_ge_f32" => alu!(|w, i| w.cmp_f(i, |a, b| a >= b)),
        "s_cmp_o_f32" => alu!(|w, i| w.cmp_f(i, |a, b| !a.is_nan() && !b.is_nan())),
        "s_cmp_u_f32" => alu!(|w, i| w.cmp_f(i, |a, b| a.is_nan() || b.is_nan())),
        "s_cmp_nge_f32" => alu!(|w, i| w.cmp_f(i, |a, b| !(a >= b))),
        "s_cmp_nlg_f32" => alu!(|w, i| w.cmp_f(i, |a, b| !(a < b || a > b))),
        "s_cmp_ngt_f32" => alu!(|w, i| w.cmp_f(i, |a, b| !(a > b))),
        "s_cmp_nle_f32" => alu!(|w, i| w.cmp_f(i, |a, b| !(a <= b))),
        "s_cmp_neq_f32" => alu!(|w, i| w.cmp_f(i, |a, b| a != b)),
        "s_cmp_nlt_f32" => alu!(|w, i| w.cmp_f(i, |a, b| !(a < b))),
        // Transcendentals on scalars, of the vector unit.
        "v_s_rcp_f32" => alu!(|w, i| w.sf1(i, |a| 1.0 / a)),
        "v_s_sqrt_f32" => alu!(|w, i| w.sf1(i, f32::sqrt)),
        "v_s_rsq_f32" => alu!(|w, i| w.sf1(i, |a| (1.0 / f64::from(a).sqrt()) as f32)),
        "v_s_exp_f32" => alu!(|w, i| w.sf1(i, |a| f64::from(a).exp2() as f32)),
        "v_s_log_f32" => alu!(|w, i| w.sf1(i, |a| f64::from(a).log2() as f32)),
        _ => return None,
    })
}
