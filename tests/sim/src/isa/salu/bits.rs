//! What scalar instructions do to the bits of a value.

pub(super) fn add_signed(a: u32, b: u32) -> (u32, bool) {
    let (r, o) = (a as i32).overflowing_add(b as i32);
    (r as u32, o)
}

pub(super) fn sub_signed(a: u32, b: u32) -> (u32, bool) {
    let (r, o) = (a as i32).overflowing_sub(b as i32);
    (r as u32, o)
}

pub(super) fn field(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// Unsigned bit field: offset in bits 4:0 (5:0), width in 22:16.
pub(super) fn bfe(value: u64, spec: u32, bits: u32) -> u64 {
    let (offset, width) = (spec & (bits - 1), spec >> 16 & 0x7f);
    value >> offset & field(width)
}

pub(super) fn bfe_signed(value: u64, spec: u32, bits: u32) -> u64 {
    let (offset, width) = (spec & (bits - 1), spec >> 16 & 0x7f);
    if width == 0 {
        return 0;
    }
    let value = if bits == 32 { i64::from(value as u32 as i32) as u64 } else { value };
    let field = value >> offset & field(width);
    if width < 64 && field >> (width - 1) & 1 != 0 { field | !self::field(width) } else { field }
}

/// First bit that differs from the sign, counted from the top; -1 if none does.
pub(super) fn cls(x: u64, bits: u32) -> u32 {
    let x = x << (64 - bits);
    let n = if x >> 63 != 0 { (!x).leading_zeros() } else { x.leading_zeros() };
    if n >= bits { u32::MAX } else { n }
}

pub(super) fn quad(x: u64) -> u64 {
    (0..16).fold(0, |r, q| if x >> (4 * q) & 0xf != 0 { r | 1 << q } else { r })
}

pub(super) fn wqm(x: u64) -> u64 {
    (0..16).fold(0, |r, q| if x >> (4 * q) & 0xf != 0 { r | 0xf << (4 * q) } else { r })
}
