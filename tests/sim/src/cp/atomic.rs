//! Memory atomics by their L2 operation number (`GL2_OP` in `soc21_enum.h`), used by ATOMIC_MEM,
//! SDMA's ATOMIC packet and the shaders.

use crate::env::{Access, Env, MemFault};

/// Bit of operation numbers that work on 64 bits (`GL2_OP_MASK_64`).
const MASK_64: u32 = 0x20;
/// Bit of operation numbers that return nothing (`GL2_OP_MASK_NO_RTN`).
const MASK_NO_RTN: u32 = 0x40;

/// Whether an operation works on 64 bits; `None` if it is no integer atomic.
pub(crate) fn atomic_is_64(op: u32) -> Option<bool> {
    match op & !(MASK_64 | MASK_NO_RTN) {
        7 | 8 | 0xf..=0x19 => Some(op & MASK_64 != 0),
        _ => None,
    }
}

/// Whether an operation is a compare and swap.
pub(crate) fn atomic_is_cmpswap(op: u32) -> bool {
    op & !(MASK_64 | MASK_NO_RTN) == 8
}

/// The new value of an integer atomic.
pub(crate) fn apply(op: u32, old: u64, src: u64, cmp: u64) -> u64 {
    let wide = op & MASK_64 != 0;
    let sx = |v: u64| if wide { v as i64 } else { i64::from(v as u32 as i32) };
    let m = |v: u64| if wide { v } else { v & 0xffff_ffff };
    let (src, cmp) = (m(src), m(cmp));
    m(match op & !(MASK_64 | MASK_NO_RTN) {
        0x7 => src,
        0x8 => {
            if old == cmp {
                src
            } else {
                old
            }
        }
        0xf => old.wrapping_add(src),
        0x10 => old.wrapping_sub(src),
        0x11 => {
            if sx(src) < sx(old) {
                src
            } else {
                old
            }
        }
        0x12 => old.min(src),
        0x13 => {
            if sx(src) > sx(old) {
                src
            } else {
                old
            }
        }
        0x14 => old.max(src),
        0x15 => old & src,
        0x16 => old | src,
        0x17 => old ^ src,
        0x18 => {
            if old >= src {
                0
            } else {
                old + 1
            }
        }
        0x19 => {
            if old == 0 || old > src {
                src
            } else {
                old - 1
            }
        }
        _ => old,
    })
}

/// Does an integer atomic on memory and returns the old value.
pub(crate) fn atomic(
    env: &mut dyn Env,
    who: Access,
    va: u64,
    op: u32,
    src: u64,
    cmp: u64,
) -> Result<u64, MemFault> {
    let size = if op & MASK_64 != 0 { 8 } else { 4 };
    let mut b = [0u8; 8];
    env.read(who, va, &mut b[..size])?;
    let old = u64::from_le_bytes(b);
    env.write(who, va, &apply(op, old, src, cmp).to_le_bytes()[..size])?;
    Ok(old)
}

#[cfg(test)]
mod tests {
    use super::apply;

    #[test]
    fn signed_minimum_on_32_bits_extends_the_sign() {
        assert_eq!(apply(0x11, 5, 0xffff_ffff, 0), 0xffff_ffff);
        assert_eq!(apply(0x12, 5, 0xffff_ffff, 0), 5);
    }

    #[test]
    fn increment_wraps_at_the_limit_and_decrement_below_zero() {
        assert_eq!(apply(0x18, 7, 7, 0), 0);
        assert_eq!(apply(0x18, 6, 7, 0), 7);
        assert_eq!(apply(0x19, 0, 7, 0), 7);
        assert_eq!(apply(0x19, 8, 7, 0), 7);
        assert_eq!(apply(0x19, 3, 7, 0), 2);
    }

    #[test]
    fn compare_and_swap_on_32_bits_ignores_the_high_half_of_its_operands() {
        assert_eq!(apply(8, 3, 0xff_0000_0009, 0xff_0000_0003), 9);
    }
}
