//! Vector arithmetic on 64 bits.

use super::float::{self, max64, min64, nan64};
use super::{Exec, Inst, Wave, operand};

impl Wave {
    fn d1(&mut self, i: &Inst, f: impl Fn(f64) -> f64) {
        let a = self.f64s(i, 0);
        self.putf64(i, &a.map(|x| nan64(f(x), &[x])));
    }

    fn d2(&mut self, i: &Inst, f: impl Fn(f64, f64) -> f64) {
        let (a, b) = (self.f64s(i, 0), self.f64s(i, 1));
        self.putf64(i, &std::array::from_fn(|l| nan64(f(a[l], b[l]), &[a[l], b[l]])));
    }

    fn dm(&mut self, i: &Inst, f: impl Fn(f64, f64) -> f64) {
        let (a, b) = (self.f64s(i, 0), self.f64s(i, 1));
        self.putf64(i, &std::array::from_fn(|l| f(a[l], b[l])));
    }

    /// A shift: 32-bit amount, 64-bit value.
    fn shift64(&mut self, i: &Inst, f: impl Fn(u32, u64) -> u64) {
        let (a, b) = (self.u32s(i, 0), self.u64s(i, 1));
        self.put64(i, &std::array::from_fn(|l| f(a[l] & 63, b[l])));
    }

    /// A 32 by 32 multiplication with a 64-bit addend; the carry goes to the mask.
    fn mad64(&mut self, i: &Inst, f: impl Fn(u32, u32, u64) -> (u64, bool)) {
        let (a, b, c) = (self.u32s(i, 0), self.u32s(i, 1), self.u64s(i, 2));
        let active = self.active(i);
        let mut flags = 0;
        let mut r = [0; 64];
        for l in 0..self.lanes as usize {
            let (x, carry) = f(a[l], b[l], c[l]);
            r[l] = x;
            flags |= u64::from(carry && active >> l & 1 != 0) << l;
        }
        self.put64(i, &r);
        self.set_mask(i.sd, flags);
    }
}

fn exp(x: f64) -> i32 {
    (x.to_bits() >> 52 & 0x7ff) as i32
}

fn exponent(x: f64) -> i32 {
    if x.is_nan() || x.is_infinite() || x == 0.0 {
        0
    } else if exp(x) == 0 {
        -1022 - (x.to_bits() & ((1 << 52) - 1)).leading_zeros() as i32 + 12
    } else {
        exp(x) - 1022
    }
}

fn div_scale(s0: f64, den: f64, num: f64) -> (f64, bool) {
    let denormal = |x: f64| x != 0.0 && exp(x) == 0;
    if num == 0.0 || den == 0.0 {
        return (f64::NAN, false);
    }
    let is_den = s0.to_bits() == den.to_bits();
    let is_num = s0.to_bits() == num.to_bits();
    if exp(num) - exp(den) >= 768 {
        return (if is_den { float::ldexp64(s0, 128) } else { s0 }, true);
    }
    if denormal(den) {
        return (float::ldexp64(s0, 128), false);
    }
    if denormal(1.0 / den) && denormal(num / den) {
        return (if is_den { float::ldexp64(s0, 128) } else { s0 }, true);
    }
    if denormal(1.0 / den) {
        return (float::ldexp64(s0, -128), false);
    }
    if denormal(num / den) {
        return (if is_num { float::ldexp64(s0, 128) } else { s0 }, true);
    }
    if exp(num) <= 53 {
        return (float::ldexp64(s0, 128), false);
    }
    (s0, false)
}

fn div_fixup(s0: f64, den: f64, num: f64) -> f64 {
    let sign = den.is_sign_negative() != num.is_sign_negative();
    let with = |x: f64| if sign { -x.abs() } else { x.abs() };
    if num.is_nan() {
        return nan64(f64::NAN, &[num]);
    }
    if den.is_nan() {
        return nan64(f64::NAN, &[den]);
    }
    if (den == 0.0 && num == 0.0) || (den.is_infinite() && num.is_infinite()) {
        return f64::from_bits(0xfff8 << 48);
    }
    if den == 0.0 || num.is_infinite() {
        return with(f64::INFINITY);
    }
    if den.is_infinite() || num == 0.0 || exp(num) - exp(den) < -1075 {
        return with(0.0);
    }
    with(s0)
}

/// What a vector instruction on 64 bits does.
pub(super) fn lookup(name: &str) -> Option<Exec> {
    macro_rules! alu {
        (|$w:ident, $i:ident| $body:expr) => {
            Exec::Alu(|$w: &mut Wave, $i: &Inst| $body)
        };
    }
    Some(match name {
        "v_lshlrev_b64" => alu!(|w, i| w.shift64(i, |a, b| b << a)),
        "v_lshrrev_b64" => alu!(|w, i| w.shift64(i, |a, b| b >> a)),
        "v_ashrrev_i64" => alu!(|w, i| w.shift64(i, |a, b| (b as i64 >> a) as u64)),
        "v_mad_u64_u32" | "v_mad_co_u64_u32" => {
            alu!(|w, i| w.mad64(i, |a, b, c| (u64::from(a) * u64::from(b)).overflowing_add(c)))
        }
        "v_mad_i64_i32" | "v_mad_co_i64_i32" => alu!(|w, i| w.mad64(i, |a, b, c| {
            let (r, o) = (i64::from(a as i32) * i64::from(b as i32)).overflowing_add(c as i64);
            (r as u64, o)
        })),
        "v_add_f64" => alu!(|w, i| w.d2(i, |a, b| a + b)),
        "v_mul_f64" => alu!(|w, i| w.d2(i, |a, b| a * b)),
        "v_min_f64" | "v_min_num_f64" => alu!(|w, i| w.dm(i, min64)),
        "v_max_f64" | "v_max_num_f64" => alu!(|w, i| w.dm(i, max64)),
        "v_fma_f64" => alu!(|w, i| {
            let (a, b, c) = (w.f64s(i, 0), w.f64s(i, 1), w.f64s(i, 2));
            let r = std::array::from_fn(|l| nan64(a[l].mul_add(b[l], c[l]), &[a[l], b[l], c[l]]));
            w.putf64(i, &r)
        }),
        "v_rcp_f64" => alu!(|w, i| w.d1(i, |a| 1.0 / a)),
        "v_rsq_f64" => alu!(|w, i| w.d1(i, |a| 1.0 / a.sqrt())),
        "v_sqrt_f64" => alu!(|w, i| w.d1(i, f64::sqrt)),
        "v_trunc_f64" => alu!(|w, i| w.d1(i, f64::trunc)),
        "v_ceil_f64" => alu!(|w, i| w.d1(i, f64::ceil)),
        "v_floor_f64" => alu!(|w, i| w.d1(i, f64::floor)),
        "v_rndne_f64" => alu!(|w, i| w.d1(i, f64::round_ties_even)),
        "v_fract_f64" => {
            alu!(|w, i| w.d1(i, |a| (a - a.floor()).min(f64::from_bits(0x3fef_ffff_ffff_ffff))))
        }
        "v_frexp_mant_f64" => alu!(|w, i| w
            .d1(i, |a| { if a == 0.0 || !a.is_finite() { a } else { float::ldexp64(a, -exponent(a)) } })),
        "v_frexp_exp_i32_f64" => alu!(|w, i| {
            let r = w.f64s(i, 0).map(|a| exponent(a) as u32);
            w.put32(i, &r)
        }),
        "v_ldexp_f64" => alu!(|w, i| {
            let (a, b) = (w.f64s(i, 0), w.u32s(i, 1));
            let r = std::array::from_fn(|l| nan64(float::ldexp64(a[l], b[l] as i32), &[a[l]]));
            w.putf64(i, &r)
        }),
        "v_div_scale_f64" => alu!(|w, i| {
            let (a, b, c) = (w.f64s(i, 0), w.f64s(i, 1), w.f64s(i, 2));
            let active = w.active(i);
            let mut flags = 0;
            let mut r = [0.0; 64];
            for l in 0..w.lanes as usize {
                let (x, flag) = div_scale(a[l], b[l], c[l]);
                r[l] = x;
                flags |= u64::from(flag && active >> l & 1 != 0) << l;
            }
            w.putf64(i, &r);
            w.set_mask(i.sd, flags)
        }),
        "v_div_fmas_f64" => alu!(|w, i| {
            let vcc = w.mask(operand::VCC);
            let (a, b, c) = (w.f64s(i, 0), w.f64s(i, 1), w.f64s(i, 2));
            let r = std::array::from_fn(|l| {
                let x = nan64(a[l].mul_add(b[l], c[l]), &[a[l], b[l], c[l]]);
                if vcc >> l & 1 == 0 {
                    x
                } else {
                    float::ldexp64(x, if exp(c[l]) > 1023 { 128 } else { -128 })
                }
            });
            w.putf64(i, &r)
        }),
        "v_div_fixup_f64" => alu!(|w, i| {
            let (a, b, c) = (w.f64s(i, 0), w.f64s(i, 1), w.f64s(i, 2));
            let r = std::array::from_fn(|l| div_fixup(a[l], b[l], c[l]));
            w.putf64(i, &r)
        }),
        "v_cvt_f64_i32" => alu!(|w, i| {
            let r = w.u32s(i, 0).map(|a| f64::from(a as i32));
            w.putf64(i, &r)
        }),
        "v_cvt_f64_u32" => alu!(|w, i| {
            let r = w.u32s(i, 0).map(f64::from);
            w.putf64(i, &r)
        }),
        "v_cvt_f64_f32" => alu!(|w, i| {
            let r = w.f32s(i, 0).map(f64::from);
            w.putf64(i, &r)
        }),
        "v_cvt_f32_f64" => alu!(|w, i| {
            let r = w.f64s(i, 0).map(|a| a as f32);
            w.putf32(i, &r)
        }),
        "v_cvt_i32_f64" => alu!(|w, i| {
            let r = w.f64s(i, 0).map(|a| a as i32 as u32);
            w.put32(i, &r)
        }),
        "v_cvt_u32_f64" => alu!(|w, i| {
            let r = w.f64s(i, 0).map(|a| a as u32);
            w.put32(i, &r)
        }),
        _ => return None,
    })
}
