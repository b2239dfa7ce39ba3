//! Packed and mixed-precision arithmetic: VOP3P.

use super::float::{f16_to_f32, fma16, max32, min32, nan32, op16};
use super::valu16::minmax16;
use super::wave::Lanes;
use super::{Exec, Inst, Wave, operand};

impl Wave {
    /// A source as 32 bits; float constants are halves in the low part.
    fn packed(&self, i: &Inst, n: usize) -> Lanes<u32> {
        let code = i.s[n];
        if (240..=248).contains(&code) { self.u16s(i, n).map(u32::from) } else { self.u32s(i, n) }
    }

    /// The operand halves for the low or the high result.
    fn halves(&self, i: &Inst, n: usize, high: bool, float: bool) -> Lanes<u16> {
        let sel = if high { i.op_sel_hi } else { i.op_sel };
        // `abs` holds NEG_HI.
        let neg = if high { i.abs } else { i.neg };
        let shift = if sel >> n & 1 != 0 { 16 } else { 0 };
        let flip = if float && neg >> n & 1 != 0 { 0x8000 } else { 0 };
        self.packed(i, n).map(|x| (x >> shift) as u16 ^ flip)
    }

    fn pk2(&mut self, i: &Inst, float: bool, f: impl Fn(u16, u16) -> u16) {
        let mut r = [0u32; 64];
        for high in [false, true] {
            let (a, b) = (self.halves(i, 0, high, float), self.halves(i, 1, high, float));
            for l in 0..64 {
                let x = f(a[l], b[l]);
                let x = if float { self.finish16(x, 0, i.clamp) } else { x };
                r[l] |= u32::from(x) << if high { 16 } else { 0 };
            }
        }
        self.put32(i, &r);
    }

    fn pk3(&mut self, i: &Inst, float: bool, f: impl Fn(u16, u16, u16) -> u16) {
        let mut r = [0u32; 64];
        for high in [false, true] {
            let [a, b, c] = [0, 1, 2].map(|n| self.halves(i, n, high, float));
            for l in 0..64 {
                let x = f(a[l], b[l], c[l]);
                let x = if float { self.finish16(x, 0, i.clamp) } else { x };
                r[l] |= u32::from(x) << if high { 16 } else { 0 };
            }
        }
        self.put32(i, &r);
    }

    /// A source of a mixed instruction: a single, or a half where OP_SEL_HI says so. `abs` is
    /// absolute value here.
    fn mixed(&self, i: &Inst, n: usize) -> Lanes<f32> {
        let x = self.u32s(i, n);
        let r: Lanes<f32> = if i.op_sel_hi >> n & 1 != 0 {
            let shift = if i.op_sel >> n & 1 != 0 { 16 } else { 0 };
            self.packed(i, n).map(|x| f16_to_f32((x >> shift) as u16))
        } else {
            x.map(f32::from_bits)
        };
        let abs = i.abs >> n & 1 != 0;
        let neg = i.neg >> n & 1 != 0;
        r.map(|x| {
            let x = if abs { x.abs() } else { x };
            if neg { -x } else { x }
        })
    }

    fn mix(&self, i: &Inst) -> Lanes<f32> {
        let [a, b, c] = [0, 1, 2].map(|n| self.mixed(i, n));
        std::array::from_fn(|l| nan32(a[l].mul_add(b[l], c[l]), &[a[l], b[l], c[l]]))
    }

    fn mix_half(&mut self, i: &Inst, high: bool) {
        let r = self.mix(i);
        let mask = self.active(i);
        let d = usize::from(i.d - operand::V0);
        for l in 0..64 {
            if mask >> l & 1 != 0 {
                let x = u32::from(self.finish16(super::float::f16_from_f64(f64::from(r[l])), 0, i.clamp));
                let old = self.v[d][l];
                self.v[d][l] = if high { old & 0xffff | x << 16 } else { old & !0xffff | x };
            }
        }
    }

    fn dot2(&mut self, i: &Inst, f: impl Fn([u16; 2], [u16; 2], u32) -> u32) {
        let (a0, b0) = (self.halves(i, 0, false, false), self.halves(i, 1, false, false));
        let (a1, b1) = (self.halves(i, 0, true, false), self.halves(i, 1, true, false));
        let c = self.u32s(i, 2);
        let r = std::array::from_fn(|l| f([a0[l], a1[l]], [b0[l], b1[l]], c[l]));
        self.put32(i, &r);
    }
}

/// What a packed instruction does.
pub(super) fn lookup(name: &str) -> Option<Exec> {
    macro_rules! alu {
        (|$w:ident, $i:ident| $body:expr) => {
            Exec::Alu(|$w: &mut Wave, $i: &Inst| $body)
        };
    }
    Some(match name {
        "v_pk_add_f16" => alu!(|w, i| w.pk2(i, true, |a, b| op16(a, b, |a, b| a + b))),
        "v_pk_mul_f16" => alu!(|w, i| w.pk2(i, true, |a, b| op16(a, b, |a, b| a * b))),
        "v_pk_min_f16" | "v_pk_min_num_f16" => alu!(|w, i| w.pk2(i, true, |a, b| minmax16(a, b, min32))),
        "v_pk_max_f16" | "v_pk_max_num_f16" => alu!(|w, i| w.pk2(i, true, |a, b| minmax16(a, b, max32))),
        "v_pk_fma_f16" => alu!(|w, i| w.pk3(i, true, fma16)),
        "v_pk_add_u16" => {
            alu!(|w, i| {
                if i.clamp {
                    w.pk2(i, false, u16::saturating_add)
                } else {
                    w.pk2(i, false, u16::wrapping_add)
                }
            })
        }
        "v_pk_add_i16" => alu!(|w, i| {
            if i.clamp {
                w.pk2(i, false, |a, b| (a as i16).saturating_add(b as i16) as u16)
            } else {
                w.pk2(i, false, u16::wrapping_add)
            }
        }),
        "v_pk_sub_u16" => alu!(|w, i| {
            if i.clamp { w.pk2(i, false, u16::saturating_sub) } else { w.pk2(i, false, u16::wrapping_sub) }
        }),
        "v_pk_sub_i16" => alu!(|w, i| {
            if i.clamp {
                w.pk2(i, false, |a, b| (a as i16).saturating_sub(b as i16) as u16)
            } else {
                w.pk2(i, false, u16::wrapping_sub)
            }
        }),
        "v_pk_mul_lo_u16" => alu!(|w, i| w.pk2(i, false, u16::wrapping_mul)),
        "v_pk_lshlrev_b16" => alu!(|w, i| w.pk2(i, false, |a, b| b << (a & 15))),
        "v_pk_lshrrev_b16" => alu!(|w, i| w.pk2(i, false, |a, b| b >> (a & 15))),
        "v_pk_ashrrev_i16" => alu!(|w, i| w.pk2(i, false, |a, b| (b as i16 >> (a & 15)) as u16)),
        "v_pk_min_u16" => alu!(|w, i| w.pk2(i, false, u16::min)),
        "v_pk_max_u16" => alu!(|w, i| w.pk2(i, false, u16::max)),
        "v_pk_min_i16" => alu!(|w, i| w.pk2(i, false, |a, b| (a as i16).min(b as i16) as u16)),
        "v_pk_max_i16" => alu!(|w, i| w.pk2(i, false, |a, b| (a as i16).max(b as i16) as u16)),
        "v_pk_mad_u16" | "v_pk_mad_i16" => {
            alu!(|w, i| w.pk3(i, false, |a, b, c| a.wrapping_mul(b).wrapping_add(c)))
        }
        "v_fma_mix_f32" => alu!(|w, i| {
            let r = w.mix(i);
            w.putf32(i, &r)
        }),
        "v_fma_mixlo_f16" => alu!(|w, i| w.mix_half(i, false)),
        "v_fma_mixhi_f16" => alu!(|w, i| w.mix_half(i, true)),
        "v_dot2_f32_f16" => alu!(|w, i| w.dot2(i, |a, b, c| {
            let p = |n: usize, c: f32| f16_to_f32(a[n]).mul_add(f16_to_f32(b[n]), c);
            p(1, p(0, f32::from_bits(c))).to_bits()
        })),
        _ => return None,
    })
}
