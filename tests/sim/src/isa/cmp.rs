//! Vector comparisons: V_CMP and V_CMPX of every type.

use super::float::{class16, class32, class64, f16_to_f32};
use super::{Exec, Inst, Wave, operand};

impl Wave {
    /// Sets the destination mask (or EXEC) from a predicate on lane numbers.
    fn compare(&mut self, i: &Inst, f: impl Fn(usize) -> bool) {
        let active = self.active(i);
        let mut mask = 0;
        for l in 0..self.lanes as usize {
            if active >> l & 1 != 0 && f(l) {
                mask |= 1 << l;
            }
        }
        if i.row.name.starts_with("v_cmpx") {
            self.set_mask(operand::EXEC, mask);
        } else {
            self.set_mask(i.d, mask);
        }
    }
}

/// Builds the closures of one type: how to fetch, how values compare.
macro_rules! integers {
    ($op:expr, $fetch:ident, $t:ty) => {
        Some(match $op {
            "f" => Exec::Alu(|w: &mut Wave, i: &Inst| w.compare(i, |_| false)),
            "lt" => integers!(@ $fetch, $t, <),
            "eq" => integers!(@ $fetch, $t, ==),
            "le" => integers!(@ $fetch, $t, <=),
            "gt" => integers!(@ $fetch, $t, >),
            "ne" => integers!(@ $fetch, $t, !=),
            "ge" => integers!(@ $fetch, $t, >=),
            "t" => Exec::Alu(|w: &mut Wave, i: &Inst| w.compare(i, |_| true)),
            _ => return None,
        })
    };
    (@ $fetch:ident, $t:ty, $cmp:tt) => {
        Exec::Alu(|w: &mut Wave, i: &Inst| {
            let (a, b) = (w.$fetch(i, 0), w.$fetch(i, 1));
            w.compare(i, |l| (a[l] as $t) $cmp (b[l] as $t))
        })
    };
}

macro_rules! floats {
    ($op:expr, $fetch:ident, $conv:expr) => {
        Some(match $op {
            "f" => Exec::Alu(|w: &mut Wave, i: &Inst| w.compare(i, |_| false)),
            "lt" => floats!(@ $fetch, $conv, |a, b| a < b),
            "eq" => floats!(@ $fetch, $conv, |a, b| a == b),
            "le" => floats!(@ $fetch, $conv, |a, b| a <= b),
            "gt" => floats!(@ $fetch, $conv, |a, b| a > b),
            "lg" => floats!(@ $fetch, $conv, |a, b| a < b || a > b),
            "ge" => floats!(@ $fetch, $conv, |a, b| a >= b),
            "o" => floats!(@ $fetch, $conv, |a, b| !a.is_nan() && !b.is_nan()),
            "u" => floats!(@ $fetch, $conv, |a, b| a.is_nan() || b.is_nan()),
            "nge" => floats!(@ $fetch, $conv, |a, b| !(a >= b)),
            "nlg" => floats!(@ $fetch, $conv, |a, b| !(a < b || a > b)),
            "ngt" => floats!(@ $fetch, $conv, |a, b| !(a > b)),
            "nle" => floats!(@ $fetch, $conv, |a, b| !(a <= b)),
            "neq" => floats!(@ $fetch, $conv, |a, b| a != b),
            "nlt" => floats!(@ $fetch, $conv, |a, b| !(a < b)),
            "t" => Exec::Alu(|w: &mut Wave, i: &Inst| w.compare(i, |_| true)),
            _ => return None,
        })
    };
    (@ $fetch:ident, $conv:expr, |$a:ident, $b:ident| $cmp:expr) => {
        Exec::Alu(|w: &mut Wave, i: &Inst| {
            let (x, y) = (w.$fetch(i, 0), w.$fetch(i, 1));
            w.compare(i, |l| {
                let ($a, $b) = ($conv(x[l]), $conv(y[l]));
                $cmp
            })
        })
    };
}

/// What a comparison does.
#[allow(
    clippy::neg_cmp_op_on_partial_ord,
    clippy::unnecessary_cast,
    reason = "NaN makes them differ; one macro for all types"
)]
pub(super) fn lookup(name: &str) -> Option<Exec> {
    let rest = name.strip_prefix("v_cmpx_").or_else(|| name.strip_prefix("v_cmp_"))?;
    let (op, kind) = rest.split_once('_')?;
    if op == "class" {
        return Some(match kind {
            "f32" => Exec::Alu(|w, i| {
                let (a, b) = (w.u32s(i, 0).map(|x| modify(i, x.into(), 31) as u32), w.u32s(i, 1));
                w.compare(i, |l| class32(a[l]) & b[l] != 0)
            }),
            "f64" => Exec::Alu(|w, i| {
                let (a, b) = (w.u64s(i, 0).map(|x| modify(i, x, 63)), w.u32s(i, 1));
                w.compare(i, |l| class64(a[l]) & b[l] != 0)
            }),
            "f16" => Exec::Alu(|w, i| {
                let (a, b) = (w.u16s(i, 0).map(|x| modify(i, x.into(), 15) as u16), w.u32s(i, 1));
                w.compare(i, |l| class16(a[l]) & b[l] != 0)
            }),
            _ => return None,
        });
    }
    match kind {
        "i16" => integers!(op, u16s, i16),
        "u16" => integers!(op, u16s, u16),
        "i32" => integers!(op, u32s, i32),
        "u32" => integers!(op, u32s, u32),
        "i64" => integers!(op, u64s, i64),
        "u64" => integers!(op, u64s, u64),
        "f16" => floats!(op, f16s, f16_to_f32),
        "f32" => floats!(op, f32s, |x: f32| x),
        "f64" => floats!(op, f64s, |x: f64| x),
        _ => None,
    }
}

/// Absolute value and negation of the first source by its sign bit.
fn modify(i: &Inst, x: u64, sign: u32) -> u64 {
    let x = if i.abs & 1 != 0 { x & !(1 << sign) } else { x };
    if i.neg & 1 != 0 { x ^ 1 << sign } else { x }
}
