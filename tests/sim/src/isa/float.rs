//! Floating point as the shader cores do it: rounding to nearest even, NaN rules, conversions.

/// Inline double constants 240 to 248.
pub(super) const F64_INLINE: [u64; 9] = [
    0x3fe0_0000_0000_0000,
    0xbfe0_0000_0000_0000,
    0x3ff0_0000_0000_0000,
    0xbff0_0000_0000_0000,
    0x4000_0000_0000_0000,
    0xc000_0000_0000_0000,
    0x4010_0000_0000_0000,
    0xc010_0000_0000_0000,
    0x3fc4_5f30_6dc9_c882,
];

/// A denormal becomes a zero of its sign.
pub(super) fn flush32(x: u32) -> u32 {
    if x & 0x7f80_0000 == 0 { x & 0x8000_0000 } else { x }
}

/// The same of 64 bits.
pub(super) fn flush64(x: u64) -> u64 {
    if x & 0x7ff0_0000_0000_0000 == 0 { x & 1 << 63 } else { x }
}

/// The same of 16 bits.
pub(super) fn flush16(x: u16) -> u16 {
    if x & 0x7c00 == 0 { x & 0x8000 } else { x }
}

/// Clamp to [0, 1]; NaN stays.
pub(super) fn clamp01_32(x: f32) -> f32 {
    if x.is_nan() {
        x
    } else if x > 0.0 {
        x.min(1.0)
    } else {
        0.0
    }
}

/// Clamp to [0, 1]; NaN stays.
pub(super) fn clamp01_64(x: f64) -> f64 {
    if x.is_nan() {
        x
    } else if x > 0.0 {
        x.min(1.0)
    } else {
        0.0
    }
}

/// The result of an operation: the first NaN operand made quiet, or the default NaN where the
/// operation itself was invalid (the host's default NaN has its sign set, the device's has not).
pub(super) fn nan32(r: f32, operands: &[f32]) -> f32 {
    if !r.is_nan() {
        return r;
    }
    match operands.iter().find(|x| x.is_nan()) {
        Some(x) => f32::from_bits(x.to_bits() | 0x0040_0000),
        None => f32::from_bits(0x7fc0_0000),
    }
}

/// The same of 64 bits.
pub(super) fn nan64(r: f64, operands: &[f64]) -> f64 {
    if !r.is_nan() {
        return r;
    }
    match operands.iter().find(|x| x.is_nan()) {
        Some(x) => f64::from_bits(x.to_bits() | 1 << 51),
        None => f64::from_bits(0x7ff8 << 48),
    }
}

/// Minimum as IEEE 754-2008 `minNum`, with -0 below +0.
pub(super) fn min32(a: f32, b: f32) -> f32 {
    if a.is_nan() && b.is_nan() {
        nan32(f32::NAN, &[a])
    } else if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else if a < b || (a == b && a.is_sign_negative()) {
        a
    } else {
        b
    }
}

/// Maximum as IEEE 754-2008 `maxNum`, with -0 below +0.
pub(super) fn max32(a: f32, b: f32) -> f32 {
    if a.is_nan() && b.is_nan() {
        nan32(f32::NAN, &[a])
    } else if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else if a > b || (a == b && a.is_sign_positive()) {
        a
    } else {
        b
    }
}

/// Minimum of doubles.
pub(super) fn min64(a: f64, b: f64) -> f64 {
    if a.is_nan() && b.is_nan() {
        nan64(f64::NAN, &[a])
    } else if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else if a < b || (a == b && a.is_sign_negative()) {
        a
    } else {
        b
    }
}

/// Maximum of doubles.
pub(super) fn max64(a: f64, b: f64) -> f64 {
    if a.is_nan() && b.is_nan() {
        nan64(f64::NAN, &[a])
    } else if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else if a > b || (a == b && a.is_sign_positive()) {
        a
    } else {
        b
    }
}

/// A half as a double; exact.
pub(super) fn f16_to_f64(x: u16) -> f64 {
    half::f16::from_bits(x).to_f64()
}

/// A half as a single; exact.
pub(super) fn f16_to_f32(x: u16) -> f32 {
    half::f16::from_bits(x).to_f32()
}

/// The half nearest to a double, ties to even. (`half::f16::from_f64` rounds twice on some hosts.)
pub(super) fn f16_from_f64(x: f64) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 48) as u16 & 0x8000;
    let exp = (bits >> 52 & 0x7ff) as i32;
    let man = bits & ((1 << 52) - 1);
    if exp == 0x7ff {
        return if man == 0 { sign | 0x7c00 } else { sign | 0x7e00 | (man >> 42) as u16 };
    }
    let e = exp - 1023;
    if e < -25 {
        return sign;
    }
    // Mantissa with its leading one, and how many of its 53 bits fall off.
    let full = man | if exp == 0 { 0 } else { 1 << 52 };
    let drop = if e < -14 { 42 + (-14 - e) as u32 } else { 42 };
    let kept = full >> drop;
    let rest = full & ((1 << drop) - 1);
    let half = 1 << (drop - 1);
    let rounded = kept + u64::from(rest > half || (rest == half && kept & 1 != 0));
    // With the hidden bit in `rounded`, adding the exponent carries as it should.
    let magnitude = if e < -14 { rounded } else { rounded + (((e + 14) as u64) << 10) };
    if e > 15 || magnitude >= 0x7c00 { sign | 0x7c00 } else { sign | magnitude as u16 }
}

/// `a * b + c` of halves, rounded once: the product is exact in a double, the sum is rounded to odd
/// before the last rounding.
pub(super) fn fma16(a: u16, b: u16, c: u16) -> u16 {
    let (x, y, z) = (f16_to_f64(a), f16_to_f64(b), f16_to_f64(c));
    let p = x * y;
    let s = p + z;
    if s.is_nan() {
        return nan16(&[a, b, c]);
    }
    if s.is_infinite() {
        return f16_from_f64(s);
    }
    let bb = s - p;
    let err = (p - (s - bb)) + (z - bb);
    let mut bits = s.to_bits();
    if err != 0.0 && bits & 1 == 0 {
        // The exact sum lies beside `s`: take the odd neighbour on that side.
        if (err > 0.0) == (s > 0.0) { bits += 1 } else { bits -= 1 }
    }
    f16_from_f64(f64::from_bits(bits))
}

/// The NaN of an operation on halves.
pub(super) fn nan16(operands: &[u16]) -> u16 {
    operands.iter().find(|x| *x & 0x7fff > 0x7c00).map_or(0x7e00, |x| x | 0x0200)
}

/// An operation on halves done in double precision (exact or innocuous double rounding).
pub(super) fn op16(a: u16, b: u16, f: impl Fn(f64, f64) -> f64) -> u16 {
    let r = f(f16_to_f64(a), f16_to_f64(b));
    if r.is_nan() { nan16(&[a, b]) } else { f16_from_f64(r) }
}

/// Class of a float as V_CMP_CLASS numbers them: bit of signalling NaN, quiet NaN, -inf, -normal,
/// -denormal, -0, +0, +denormal, +normal, +inf.
pub(super) fn class(sign: bool, exp_max: bool, exp_zero: bool, man: u64, quiet: bool) -> u32 {
    if exp_max && man != 0 {
        return if quiet { 2 } else { 1 };
    }
    let (n, p) = match (exp_max, exp_zero, man == 0) {
        (true, _, _) => (2, 9),
        (_, true, true) => (5, 6),
        (_, true, false) => (4, 7),
        _ => (3, 8),
    };
    1 << if sign { n } else { p }
}

/// [`class`] of a single.
pub(super) fn class32(x: u32) -> u32 {
    let e = x >> 23 & 0xff;
    class(x >> 31 != 0, e == 0xff, e == 0, u64::from(x & 0x7f_ffff), x & 0x40_0000 != 0)
}

/// [`class`] of a double.
pub(super) fn class64(x: u64) -> u32 {
    let e = x >> 52 & 0x7ff;
    class(x >> 63 != 0, e == 0x7ff, e == 0, x & ((1 << 52) - 1), x >> 51 & 1 != 0)
}

/// [`class`] of a half.
pub(super) fn class16(x: u16) -> u32 {
    let e = x >> 10 & 0x1f;
    class(x >> 15 != 0, e == 0x1f, e == 0, u64::from(x & 0x3ff), x & 0x200 != 0)
}

/// `x * 2^n` of a single without intermediate rounding.
pub(super) fn ldexp32(x: f32, n: i32) -> f32 {
    // In double the scaling is exact for every exponent that matters, and the conversion rounds once.
    let n = n.clamp(-400, 400);
    (f64::from(x) * f64::from_bits(((1023 + n as i64) as u64) << 52)) as f32
}

/// `x * 2^n` of a double, rounded once.
pub(super) fn ldexp64(x: f64, n: i32) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let n = n.clamp(-2200, 2200);
    let two = |e: i32| f64::from_bits(((1023 + i64::from(e)) as u64) << 52);
    let (mut x, mut n) = (x, n);
    // Up first in exact steps; the last step down rounds.
    while n > 1000 {
        x *= two(1000);
        n -= 1000;
        if x.is_infinite() {
            return x;
        }
    }
    if n >= -1000 {
        return x * two(n);
    }
    // Normalise, then go down through the normal range exactly and round in the last step only.
    let e = (x.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    if e == -1023 {
        x *= two(60);
        n -= 60;
    }
    let e = (x.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    let exact = (-1022 - e).max(-1022).max(n);
    x *= two(exact);
    n -= exact;
    if n < -1022 { 0.0_f64.copysign(x) } else { x * two(n) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_the_way_through_a_double() {
        for x in 0..=u16::MAX {
            if x & 0x7c00 == 0x7c00 && x & 0x3ff != 0 {
                continue;
            }
            assert_eq!(f16_from_f64(f16_to_f64(x)), x, "{x:#x}");
        }
    }

    #[test]
    fn halves_round_to_even_and_see_the_last_bit_of_a_double() {
        assert_eq!(f16_from_f64(1.0 + 1.0 / 2048.0), 0x3c00);
        assert_eq!(f16_from_f64(1.0 + 3.0 / 2048.0), 0x3c02);
        assert_eq!(f16_from_f64(f64::from_bits((1.0_f64 + 1.0 / 2048.0).to_bits() + 1)), 0x3c01);
        assert_eq!(f16_from_f64(65519.99), 0x7bff);
        assert_eq!(f16_from_f64(65520.0), 0x7c00);
        assert_eq!(f16_from_f64(2.0_f64.powi(-25)), 0);
        assert_eq!(f16_from_f64(2.0_f64.powi(-25) * 1.0001), 1);
        assert_eq!(f16_from_f64(-2.0_f64.powi(-24)), 0x8001);
    }

    #[test]
    fn fused_multiply_add_of_halves_rounds_once() {
        // 1 * 1.0009766 + 2^-24: a tie would go to even, the tail decides upwards.
        assert_eq!(fma16(0x3c00, 0x3c01, 0x0001), 0x3c01);
        // (1 + 2^-10)^2 = 1 + 2^-9 + 2^-20, minus 2^-11: just above the tie.
        assert_eq!(fma16(0x3c01, 0x3c01, 0x9000), 0x3c02);
    }

    #[test]
    fn scaling_by_powers_of_two_rounds_once_into_the_denormals() {
        assert_eq!(ldexp32(1.5, -149), f32::from_bits(2));
        assert_eq!(ldexp32(1.0, -150), 0.0);
        assert_eq!(ldexp32(1.25, 127), 1.25 * 2.0_f32.powi(127));
        assert_eq!(ldexp64(1.0, -1074), f64::from_bits(1));
        assert_eq!(ldexp64(1.0, 1023), 2.0_f64.powi(1023));
        assert_eq!(ldexp64(f64::from_bits(1), 1074), 1.0);
        assert_eq!(ldexp64(1.0, -1100), 0.0);
    }

    #[test]
    fn minimum_orders_zeros_and_ignores_one_nan() {
        assert!(min32(0.0, -0.0).is_sign_negative());
        assert!(max32(-0.0, 0.0).is_sign_positive());
        assert_eq!(min32(f32::NAN, 2.0), 2.0);
        assert_eq!(max32(3.0, f32::NAN), 3.0);
    }
}
