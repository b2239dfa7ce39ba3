//! Arithmetic of vector instructions that Rust has no operator for.

use super::super::float::{self, nan32};

pub(super) fn add_carry(a: u32, b: u32, c: u64) -> (u32, bool) {
    let r = u64::from(a) + u64::from(b) + c;
    (r as u32, r >> 32 != 0)
}

pub(super) fn sub_borrow(a: u32, b: u32, c: u64) -> (u32, bool) {
    let take = u64::from(b) + c;
    (u64::from(a).wrapping_sub(take) as u32, take > u64::from(a))
}

pub(super) fn u24(x: u32) -> u32 {
    x & 0xff_ffff
}

pub(super) fn i24(x: u32) -> i64 {
    i64::from((x << 8) as i32 >> 8)
}

pub(super) fn median(a: u32, b: u32, c: u32) -> u32 {
    a.max(b).min(a.min(b).max(c))
}

pub(super) fn median_i(a: i32, b: i32, c: i32) -> i32 {
    a.max(b).min(a.min(b).max(c))
}

/// Zero times anything is zero.
pub(super) fn legacy_mul(a: f32, b: f32) -> f32 {
    if a == 0.0 || b == 0.0 { 0.0 } else { a * b }
}

/// Sine or cosine of a number of turns.
pub(super) fn turns(x: f32, f: impl Fn(f64) -> f64) -> f32 {
    let x = f64::from(x);
    f(std::f64::consts::TAU * (x - x.floor())) as f32
}

pub(super) fn perm(a: u32, b: u32, sel: u32) -> u32 {
    let bytes = u64::from(a) << 32 | u64::from(b);
    let mut r = 0;
    for n in 0..4 {
        let s = sel >> (8 * n) & 0xff;
        let byte = match s {
            0..=7 => (bytes >> (8 * s)) as u32 & 0xff,
            8..=11 => {
                let bit = [15, 31, 47, 63][s as usize - 8];
                if bytes >> bit & 1 != 0 { 0xff } else { 0 }
            }
            12 => 0,
            _ => 0xff,
        };
        r |= byte << (8 * n);
    }
    r
}

pub(super) fn sad8(a: u32, b: u32) -> u32 {
    (0..4).map(|n| (a >> (8 * n) & 0xff).abs_diff(b >> (8 * n) & 0xff)).sum()
}

pub(super) fn bfe(value: u32, offset: u32, width: u32) -> u32 {
    (value >> (offset & 31)) & ((1u32 << (width & 31)) - 1)
}

pub(super) fn bfe_i(value: u32, offset: u32, width: u32) -> u32 {
    let (offset, width) = (offset & 31, width & 31);
    if width == 0 {
        return 0;
    }
    let x = (value as i32 >> offset) as u32;
    ((x << (32 - width)) as i32 >> (32 - width)) as u32
}

/// Number of the first bit from the top that differs from the sign.
pub(super) fn cls(x: u32) -> u32 {
    let n = if x >> 31 != 0 { (!x).leading_zeros() } else { x.leading_zeros() };
    if n == 32 { u32::MAX } else { n }
}

pub(super) fn exponent(x: f32) -> u32 {
    if x.is_nan() || x.is_infinite() || x == 0.0 {
        return 0;
    }
    let bits = x.to_bits();
    let e = (bits >> 23 & 0xff) as i32;
    (if e == 0 { -126 - (bits & 0x7f_ffff).leading_zeros() as i32 + 9 } else { e - 126 }) as u32
}

pub(super) fn mantissa(x: f32) -> f32 {
    if x.is_nan() || x.is_infinite() || x == 0.0 {
        return x;
    }
    float::ldexp32(x, -(exponent(x) as i32))
}

/// DIV_SCALE: scales numerator or denominator so that the division's steps stay in range; the flag
/// says that DIV_FMAS scales back.
pub(super) fn div_scale(s0: f32, den: f32, num: f32) -> (f32, bool) {
    let exp = |x: f32| (x.to_bits() >> 23 & 0xff) as i32;
    let denormal = |x: f32| x != 0.0 && exp(x) == 0;
    if num == 0.0 || den == 0.0 {
        return (f32::NAN, false);
    }
    let is_den = s0.to_bits() == den.to_bits();
    let is_num = s0.to_bits() == num.to_bits();
    if exp(num) - exp(den) >= 96 {
        return (if is_den { float::ldexp32(s0, 64) } else { s0 }, true);
    }
    if denormal(den) {
        return (float::ldexp32(s0, 64), false);
    }
    if denormal(1.0 / den) && denormal(num / den) {
        return (if is_den { float::ldexp32(s0, 64) } else { s0 }, true);
    }
    if denormal(1.0 / den) {
        return (float::ldexp32(s0, -64), false);
    }
    if denormal(num / den) {
        return (if is_num { float::ldexp32(s0, 64) } else { s0 }, true);
    }
    if exp(num) <= 23 {
        return (float::ldexp32(s0, 64), false);
    }
    (s0, false)
}

pub(super) fn div_fixup(s0: f32, den: f32, num: f32) -> f32 {
    let sign = den.is_sign_negative() != num.is_sign_negative();
    let with = |x: f32| if sign { -x.abs() } else { x.abs() };
    let exp = |x: f32| (x.to_bits() >> 23 & 0xff) as i32;
    if num.is_nan() {
        return nan32(f32::NAN, &[num]);
    }
    if den.is_nan() {
        return nan32(f32::NAN, &[den]);
    }
    if (den == 0.0 && num == 0.0) || (den.is_infinite() && num.is_infinite()) {
        return f32::from_bits(0xffc0_0000);
    }
    if den == 0.0 || num.is_infinite() {
        return with(f32::INFINITY);
    }
    if den.is_infinite() || num == 0.0 {
        return with(0.0);
    }
    if exp(num) - exp(den) < -150 {
        return with(0.0);
    }
    if exp(den) == 255 {
        return with(f32::INFINITY);
    }
    with(s0)
}
