//! Vector arithmetic on 16 bits.

use super::float::{self, f16_from_f64, f16_to_f64, fma16, max32, min32, nan16, op16};
use super::{Exec, Inst, Wave, operand};

impl Wave {
    fn w2(&mut self, i: &Inst, f: impl Fn(u16, u16) -> u16) {
        let (a, b) = (self.u16s(i, 0), self.u16s(i, 1));
        self.put16(i, &std::array::from_fn(|l| f(a[l], b[l])));
    }

    fn w3(&mut self, i: &Inst, f: impl Fn(u16, u16, u16) -> u16) {
        let (a, b, c) = (self.u16s(i, 0), self.u16s(i, 1), self.u16s(i, 2));
        self.put16(i, &std::array::from_fn(|l| f(a[l], b[l], c[l])));
    }

    fn h1(&mut self, i: &Inst, f: impl Fn(f64) -> f64) {
        let a = self.f16s(i, 0);
        self.putf16(i, &a.map(|x| op16(x, 0, |x, _| f(x))));
    }

    fn h2(&mut self, i: &Inst, f: impl Fn(f64, f64) -> f64) {
        let (a, b) = (self.f16s(i, 0), self.f16s(i, 1));
        self.putf16(i, &std::array::from_fn(|l| op16(a[l], b[l], &f)));
    }

    fn hm(&mut self, i: &Inst, f: impl Fn(f32, f32) -> f32) {
        let (a, b) = (self.f16s(i, 0), self.f16s(i, 1));
        self.putf16(i, &std::array::from_fn(|l| minmax16(a[l], b[l], &f)));
    }

    /// The destination's selected half (accumulators).
    fn acc16(&self, i: &Inst) -> [u16; 64] {
        let (d, high) =
            if i.enc == super::Enc::Vop3 { (i.d, i.op_sel & 8 != 0) } else { (i.d & !0x80, i.d & 0x80 != 0) };
        self.v[usize::from(d - operand::V0)].map(|x| if high { (x >> 16) as u16 } else { x as u16 })
    }
}

/// Minimum or maximum of halves by the rule for singles.
pub(super) fn minmax16(a: u16, b: u16, f: impl Fn(f32, f32) -> f32) -> u16 {
    let r = f(float::f16_to_f32(a), float::f16_to_f32(b));
    if r.is_nan() { nan16(&[a, b]) } else { f16_from_f64(f64::from(r)) }
}

/// What a vector instruction on 16 bits does.
pub(super) fn lookup(name: &str) -> Option<Exec> {
    macro_rules! alu {
        (|$w:ident, $i:ident| $body:expr) => {
            Exec::Alu(|$w: &mut Wave, $i: &Inst| $body)
        };
    }
    Some(match name {
        "v_mov_b16" => alu!(|w, i| {
            let r = w.u16s(i, 0);
            w.put16(i, &r)
        }),
        "v_not_b16" => alu!(|w, i| {
            let r = w.u16s(i, 0).map(|a| !a);
            w.put16(i, &r)
        }),
        "v_cndmask_b16" => alu!(|w, i| {
            let (a, b, c) = (w.u16s(i, 0), w.u16s(i, 1), w.mask(i.s[2]));
            let r = std::array::from_fn(|l| if c >> l & 1 != 0 { b[l] } else { a[l] });
            w.put16(i, &r)
        }),
        "v_and_b16" => alu!(|w, i| w.w2(i, |a, b| a & b)),
        "v_or_b16" => alu!(|w, i| w.w2(i, |a, b| a | b)),
        "v_xor_b16" => alu!(|w, i| w.w2(i, |a, b| a ^ b)),
        "v_add_nc_u16" => {
            alu!(|w, i| { if i.clamp { w.w2(i, u16::saturating_add) } else { w.w2(i, u16::wrapping_add) } })
        }
        "v_sub_nc_u16" => {
            alu!(|w, i| { if i.clamp { w.w2(i, u16::saturating_sub) } else { w.w2(i, u16::wrapping_sub) } })
        }
        "v_add_nc_i16" => alu!(|w, i| {
            if i.clamp {
                w.w2(i, |a, b| (a as i16).saturating_add(b as i16) as u16)
            } else {
                w.w2(i, u16::wrapping_add)
            }
        }),
        "v_sub_nc_i16" => alu!(|w, i| {
            if i.clamp {
                w.w2(i, |a, b| (a as i16).saturating_sub(b as i16) as u16)
            } else {
                w.w2(i, u16::wrapping_sub)
            }
        }),
        "v_mul_lo_u16" => alu!(|w, i| w.w2(i, u16::wrapping_mul)),
        "v_lshlrev_b16" => alu!(|w, i| w.w2(i, |a, b| b << (a & 15))),
        "v_lshrrev_b16" => alu!(|w, i| w.w2(i, |a, b| b >> (a & 15))),
        "v_ashrrev_i16" => alu!(|w, i| w.w2(i, |a, b| (b as i16 >> (a & 15)) as u16)),
        "v_min_u16" => alu!(|w, i| w.w2(i, u16::min)),
        "v_max_u16" => alu!(|w, i| w.w2(i, u16::max)),
        "v_min_i16" => alu!(|w, i| w.w2(i, |a, b| (a as i16).min(b as i16) as u16)),
        "v_max_i16" => alu!(|w, i| w.w2(i, |a, b| (a as i16).max(b as i16) as u16)),
        "v_mad_u16" | "v_mad_i16" => alu!(|w, i| w.w3(i, |a, b, c| a.wrapping_mul(b).wrapping_add(c))),
        "v_min3_u16" => alu!(|w, i| w.w3(i, |a, b, c| a.min(b).min(c))),
        "v_max3_u16" => alu!(|w, i| w.w3(i, |a, b, c| a.max(b).max(c))),
        "v_min3_i16" => alu!(|w, i| w.w3(i, |a, b, c| (a as i16).min(b as i16).min(c as i16) as u16)),
        "v_max3_i16" => alu!(|w, i| w.w3(i, |a, b, c| (a as i16).max(b as i16).max(c as i16) as u16)),
        "v_add_f16" => alu!(|w, i| w.h2(i, |a, b| a + b)),
        "v_sub_f16" => alu!(|w, i| w.h2(i, |a, b| a - b)),
        "v_subrev_f16" => alu!(|w, i| w.h2(i, |a, b| b - a)),
        "v_mul_f16" => alu!(|w, i| w.h2(i, |a, b| a * b)),
        "v_min_f16" | "v_min_num_f16" => alu!(|w, i| w.hm(i, min32)),
        "v_max_f16" | "v_max_num_f16" => alu!(|w, i| w.hm(i, max32)),
        "v_fma_f16" => alu!(|w, i| {
            let (a, b, c) = (w.f16s(i, 0), w.f16s(i, 1), w.f16s(i, 2));
            let r = std::array::from_fn(|l| fma16(a[l], b[l], c[l]));
            w.putf16(i, &r)
        }),
        "v_fmac_f16" => alu!(|w, i| {
            let (a, b, c) = (w.f16s(i, 0), w.f16s(i, 1), w.acc16(i));
            let r = std::array::from_fn(|l| fma16(a[l], b[l], c[l]));
            w.putf16(i, &r)
        }),
        "v_fmamk_f16" => alu!(|w, i| {
            let (a, b, k) = (w.f16s(i, 0), w.f16s(i, 1), i.lit as u16);
            let r = std::array::from_fn(|l| fma16(a[l], k, b[l]));
            w.putf16(i, &r)
        }),
        "v_fmaak_f16" => alu!(|w, i| {
            let (a, b, k) = (w.f16s(i, 0), w.f16s(i, 1), i.lit as u16);
            let r = std::array::from_fn(|l| fma16(a[l], b[l], k));
            w.putf16(i, &r)
        }),
        "v_rcp_f16" => alu!(|w, i| w.h1(i, |a| 1.0 / a)),
        "v_rsq_f16" => alu!(|w, i| w.h1(i, |a| 1.0 / a.sqrt())),
        "v_sqrt_f16" => alu!(|w, i| w.h1(i, f64::sqrt)),
        "v_exp_f16" => alu!(|w, i| w.h1(i, f64::exp2)),
        "v_log_f16" => alu!(|w, i| w.h1(i, f64::log2)),
        "v_trunc_f16" => alu!(|w, i| w.h1(i, f64::trunc)),
        "v_ceil_f16" => alu!(|w, i| w.h1(i, f64::ceil)),
        "v_floor_f16" => alu!(|w, i| w.h1(i, f64::floor)),
        "v_rndne_f16" => alu!(|w, i| w.h1(i, f64::round_ties_even)),
        "v_ldexp_f16" => alu!(|w, i| {
            let (a, b) = (w.f16s(i, 0), w.u16s(i, 1));
            let r = std::array::from_fn(|l| {
                let n = i32::from(b[l] as i16);
                op16(a[l], 0, |x, _| float::ldexp64(x, n))
            });
            w.putf16(i, &r)
        }),
        "v_cvt_f16_u16" => alu!(|w, i| {
            let r = w.u16s(i, 0).map(|a| f16_from_f64(f64::from(a)));
            w.putf16(i, &r)
        }),
        "v_cvt_f16_i16" => alu!(|w, i| {
            let r = w.u16s(i, 0).map(|a| f16_from_f64(f64::from(a as i16)));
            w.putf16(i, &r)
        }),
        "v_cvt_u16_f16" => alu!(|w, i| {
            let r = w.f16s(i, 0).map(|a| f16_to_f64(a) as u16);
            w.put16(i, &r)
        }),
        "v_cvt_i16_f16" => alu!(|w, i| {
            let r = w.f16s(i, 0).map(|a| f16_to_f64(a) as i16 as u16);
            w.put16(i, &r)
        }),
        _ => return None,
    })
}
