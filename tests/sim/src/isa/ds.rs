//! LDS and cross-lane instructions: DS.

use super::wave::Lanes;
use super::{Ctx, Exec, Inst, Wave, operand};
use crate::cp;
use crate::env::MemFault;

impl Wave {
    fn ds_addr(&self, i: &Inst) -> Lanes<u32> {
        self.v[usize::from(i.s[0] - operand::V0)]
    }

    fn lds_load(c: &mut Ctx<'_>, i: &Inst, at: u32, out: &mut [u8]) {
        let from = at as usize;
        let limit = c.lds.len();
        match c.lds.get(from..from + out.len()) {
            Some(b) => out.copy_from_slice(b),
            None => {
                out.fill(0);
                stray(c, i, at, limit);
            }
        }
    }

    fn lds_store(c: &mut Ctx<'_>, i: &Inst, at: u32, data: &[u8]) {
        let from = at as usize;
        let limit = c.lds.len();
        match c.lds.get_mut(from..from + data.len()) {
            Some(b) => b.copy_from_slice(data),
            None => stray(c, i, at, limit),
        }
    }

    /// Loads `n` dwords from the address plus the 16-bit offset.
    fn ds_load(&mut self, i: &Inst, c: &mut Ctx<'_>, n: usize) {
        let (mask, addr) = (self.exec(), self.ds_addr(i));
        let d = usize::from(i.d - operand::V0);
        for lane in 0..self.lanes as usize {
            if mask >> lane & 1 != 0 {
                let mut b = [0; 16];
                Self::lds_load(c, i, addr[lane].wrapping_add(i.imm as u32), &mut b[..4 * n]);
                for k in 0..n {
                    self.v[d + k][lane] =
                        u32::from_le_bytes([b[4 * k], b[4 * k + 1], b[4 * k + 2], b[4 * k + 3]]);
                }
            }
        }
    }

    fn ds_store(&mut self, i: &Inst, c: &mut Ctx<'_>, n: usize) {
        let (mask, addr) = (self.exec(), self.ds_addr(i));
        let d = usize::from(i.s[1] - operand::V0);
        for lane in 0..self.lanes as usize {
            if mask >> lane & 1 != 0 {
                for k in 0..n {
                    let at = addr[lane].wrapping_add(i.imm as u32 + 4 * k as u32);
                    Self::lds_store(c, i, at, &self.v[d + k][lane].to_le_bytes());
                }
            }
        }
    }

    fn ds_small(&mut self, i: &Inst, c: &mut Ctx<'_>, bytes: usize, f: impl Fn(u16, u32) -> u32) {
        let (mask, addr) = (self.exec(), self.ds_addr(i));
        let d = usize::from(i.d - operand::V0);
        for lane in 0..self.lanes as usize {
            if mask >> lane & 1 != 0 {
                let mut b = [0; 2];
                Self::lds_load(c, i, addr[lane].wrapping_add(i.imm as u32), &mut b[..bytes]);
                self.v[d][lane] = f(u16::from_le_bytes(b), self.v[d][lane]);
            }
        }
    }

    fn ds_store_small(&mut self, i: &Inst, c: &mut Ctx<'_>, bytes: usize, shift: u32) {
        let (mask, addr) = (self.exec(), self.ds_addr(i));
        let d = usize::from(i.s[1] - operand::V0);
        for lane in 0..self.lanes as usize {
            if mask >> lane & 1 != 0 {
                let x = (self.v[d][lane] >> shift).to_le_bytes();
                Self::lds_store(c, i, addr[lane].wrapping_add(i.imm as u32), &x[..bytes]);
            }
        }
    }

    /// Two loads at offsets in units of `unit` bytes; `n` dwords each.
    fn ds_load2(&mut self, i: &Inst, c: &mut Ctx<'_>, n: usize, unit: u32) {
        let (mask, addr) = (self.exec(), self.ds_addr(i));
        let d = usize::from(i.d - operand::V0);
        for (half, offset) in offsets(i).into_iter().enumerate() {
            for lane in 0..self.lanes as usize {
                if mask >> lane & 1 != 0 {
                    for k in 0..n {
                        let mut b = [0; 4];
                        Self::lds_load(c, i, addr[lane].wrapping_add(offset * unit + 4 * k as u32), &mut b);
                        self.v[d + half * n + k][lane] = u32::from_le_bytes(b);
                    }
                }
            }
        }
    }

    fn ds_store2(&mut self, i: &Inst, c: &mut Ctx<'_>, n: usize, unit: u32) {
        let (mask, addr) = (self.exec(), self.ds_addr(i));
        for (half, offset) in offsets(i).into_iter().enumerate() {
            let d = usize::from(i.s[1 + half] - operand::V0);
            for lane in 0..self.lanes as usize {
                if mask >> lane & 1 != 0 {
                    for k in 0..n {
                        let at = addr[lane].wrapping_add(offset * unit + 4 * k as u32);
                        Self::lds_store(c, i, at, &self.v[d + k][lane].to_le_bytes());
                    }
                }
            }
        }
    }

    fn ds_atomic(&mut self, i: &Inst, c: &mut Ctx<'_>, size: usize, f: impl Fn(u64, u64, u64) -> u64) {
        let (mask, addr) = (self.exec(), self.ds_addr(i));
        let words = size / 4;
        let get = |w: &Wave, code: u16, lane: usize| {
            let first = usize::from(code - operand::V0);
            let lo = u64::from(w.v[first][lane]);
            if words == 2 { lo | u64::from(w.v[first + 1][lane]) << 32 } else { lo }
        };
        let compares = i.row.name.contains("cmpstore");
        for lane in 0..self.lanes as usize {
            if mask >> lane & 1 == 0 {
                continue;
            }
            let at = addr[lane].wrapping_add(i.imm as u32);
            let src = get(self, i.s[1], lane);
            // Compare and store: the value to store comes first, then the one to compare with.
            let cmp = if compares { get(self, i.s[2], lane) } else { 0 };
            let mut b = [0; 8];
            Self::lds_load(c, i, at, &mut b[..size]);
            let old = u64::from_le_bytes(b);
            Self::lds_store(c, i, at, &f(old, src, cmp).to_le_bytes()[..size]);
            if i.row.d != 0 {
                let d = usize::from(i.d - operand::V0);
                self.v[d][lane] = old as u32;
                if words == 2 {
                    self.v[d + 1][lane] = (old >> 32) as u32;
                }
            }
        }
    }

    /// Lane numbers from an address in bytes: each lane reads another's value.
    fn bpermute(&mut self, i: &Inst) {
        let (mask, addr) = (self.exec(), self.ds_addr(i));
        let data = self.v[usize::from(i.s[1] - operand::V0)];
        let d = usize::from(i.d - operand::V0);
        for lane in 0..self.lanes {
            if mask >> lane & 1 != 0 {
                let from = addr[lane as usize].wrapping_add(i.imm as u32) >> 2;
                // Within 32 lanes, also in wave64.
                let from = (from & 31 | lane & !31) as usize;
                self.v[d][lane as usize] = if mask >> from & 1 != 0 { data[from] } else { 0 };
            }
        }
    }

    /// Each lane writes another's value; the highest lane wins.
    fn permute(&mut self, i: &Inst) {
        let (mask, addr) = (self.exec(), self.ds_addr(i));
        let data = self.v[usize::from(i.s[1] - operand::V0)];
        let mut r = [0; 64];
        for lane in 0..self.lanes {
            if mask >> lane & 1 != 0 {
                let to = addr[lane as usize].wrapping_add(i.imm as u32) >> 2;
                r[(to & 31 | lane & !31) as usize] = data[lane as usize];
            }
        }
        self.put32(i, &r);
    }

    fn swizzle(&mut self, i: &Inst) {
        let mask = self.exec();
        let a = self.ds_addr(i);
        let pattern = i.imm as u32;
        let r = std::array::from_fn(|lane| {
            let l = lane as u32;
            let from = if pattern & 0x8000 != 0 {
                // Quad permutation.
                l & !3 | pattern >> (2 * (l & 3)) & 3
            } else {
                let (and, or, xor) = (pattern & 31, pattern >> 5 & 31, pattern >> 10 & 31);
                l & !31 | ((l & 31 & and | or) ^ xor)
            };
            if mask >> from & 1 != 0 { a[from as usize] } else { 0 }
        });
        self.put32(i, &r);
    }
}

fn offsets(i: &Inst) -> [u32; 2] {
    [i.imm as u32 & 0xff, i.imm as u32 >> 8 & 0xff]
}

fn stray(c: &mut Ctx<'_>, i: &Inst, at: u32, limit: usize) {
    if c.strayed.is_none() {
        c.strayed = Some(format!("{} at {:#x} reaches LDS byte {at:#x} of {limit:#x}", i.row.name, i.pc));
    }
}

macro_rules! ds {
    (|$w:ident, $i:ident, $c:ident| $body:expr) => {
        Exec::Mem(|$w: &mut Wave, $i: &Inst, $c: &mut Ctx<'_>| -> Result<(), MemFault> {
            $body;
            Ok(())
        })
    };
}

macro_rules! atomic {
    ($bits:expr, $op:expr) => {
        if $bits == 64 {
            ds!(|w, i, c| w.ds_atomic(i, c, 8, |old, src, cmp| cp::apply($op | 0x20, old, src, cmp)))
        } else {
            ds!(|w, i, c| w.ds_atomic(i, c, 4, |old, src, cmp| cp::apply($op, old, src, cmp)))
        }
    };
}

/// What an LDS instruction does.
pub(super) fn lookup(name: &str) -> Option<Exec> {
    Some(match name {
        "ds_nop" => Exec::Alu(|_, _| {}),
        "ds_load_b32" => ds!(|w, i, c| w.ds_load(i, c, 1)),
        "ds_load_b64" => ds!(|w, i, c| w.ds_load(i, c, 2)),
        "ds_load_b96" => ds!(|w, i, c| w.ds_load(i, c, 3)),
        "ds_load_b128" => ds!(|w, i, c| w.ds_load(i, c, 4)),
        "ds_store_b32" => ds!(|w, i, c| w.ds_store(i, c, 1)),
        "ds_store_b64" => ds!(|w, i, c| w.ds_store(i, c, 2)),
        "ds_store_b96" => ds!(|w, i, c| w.ds_store(i, c, 3)),
        "ds_store_b128" => ds!(|w, i, c| w.ds_store(i, c, 4)),
        "ds_load_2addr_b32" => ds!(|w, i, c| w.ds_load2(i, c, 1, 4)),
        "ds_load_2addr_b64" => ds!(|w, i, c| w.ds_load2(i, c, 2, 8)),
        "ds_load_2addr_stride64_b32" => ds!(|w, i, c| w.ds_load2(i, c, 1, 256)),
        "ds_load_2addr_stride64_b64" => ds!(|w, i, c| w.ds_load2(i, c, 2, 512)),
        "ds_store_2addr_b32" => ds!(|w, i, c| w.ds_store2(i, c, 1, 4)),
        "ds_store_2addr_b64" => ds!(|w, i, c| w.ds_store2(i, c, 2, 8)),
        "ds_store_2addr_stride64_b32" => ds!(|w, i, c| w.ds_store2(i, c, 1, 256)),
        "ds_store_2addr_stride64_b64" => ds!(|w, i, c| w.ds_store2(i, c, 2, 512)),
        "ds_load_u8" => ds!(|w, i, c| w.ds_small(i, c, 1, |x, _| x.into())),
        "ds_load_i8" => ds!(|w, i, c| w.ds_small(i, c, 1, |x, _| x as i8 as i32 as u32)),
        "ds_load_u16" => ds!(|w, i, c| w.ds_small(i, c, 2, |x, _| x.into())),
        "ds_load_i16" => ds!(|w, i, c| w.ds_small(i, c, 2, |x, _| x as i16 as i32 as u32)),
        "ds_load_u16_d16" => ds!(|w, i, c| w.ds_small(i, c, 2, |x, old| old & !0xffff | u32::from(x))),
        "ds_load_u16_d16_hi" => {
            ds!(|w, i, c| w.ds_small(i, c, 2, |x, old| old & 0xffff | u32::from(x) << 16))
        }
        "ds_load_u8_d16" => ds!(|w, i, c| w.ds_small(i, c, 1, |x, old| old & !0xffff | u32::from(x))),
        "ds_load_u8_d16_hi" => ds!(|w, i, c| w.ds_small(i, c, 1, |x, old| old & 0xffff | u32::from(x) << 16)),
        "ds_store_b8" => ds!(|w, i, c| w.ds_store_small(i, c, 1, 0)),
        "ds_store_b16" => ds!(|w, i, c| w.ds_store_small(i, c, 2, 0)),
        "ds_store_b8_d16_hi" => ds!(|w, i, c| w.ds_store_small(i, c, 1, 16)),
        "ds_store_b16_d16_hi" => ds!(|w, i, c| w.ds_store_small(i, c, 2, 16)),
        "ds_bpermute_b32" => ds!(|w, i, _c| w.bpermute(i)),
        "ds_permute_b32" => ds!(|w, i, _c| w.permute(i)),
        "ds_swizzle_b32" => ds!(|w, i, _c| w.swizzle(i)),
        "ds_add_f32" | "ds_add_rtn_f32" => ds!(|w, i, c| w.ds_atomic(i, c, 4, |old, src, _| {
            let (a, b) = (f32::from_bits(old as u32), f32::from_bits(src as u32));
            super::float::nan32(a + b, &[a, b]).to_bits().into()
        })),
        _ => {
            let rest = name.strip_prefix("ds_")?;
            let (op, kind) = rest.rsplit_once('_')?;
            let op = op.strip_suffix("_rtn").unwrap_or(op);
            let bits: u32 = kind.get(1..)?.parse().ok()?;
            if bits != 32 && bits != 64 {
                return None;
            }
            match (op, kind.as_bytes().first()?) {
                ("storexchg", b'b') => atomic!(bits, 0x7),
                ("cmpstore", b'b') => atomic!(bits, 0x8),
                named => arithmetic_atomic!(named, atomic, bits),
            }
        }
    })
}
