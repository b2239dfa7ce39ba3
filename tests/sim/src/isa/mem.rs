//! Memory: SMEM, FLAT, GLOBAL, SCRATCH, and the cache instructions of MUBUF.

use super::{Enc, Exec, GLC, Inst, SVE, Wave, operand};
use crate::cp;
use crate::env::{Access, Env, Kind, MemFault};

/// What a wave reaches besides its registers.
pub struct Ctx<'a> {
    /// The device.
    pub env: &'a mut dyn Env,
    /// For accesses of the shader's vector memory unit; its kind is replaced.
    pub who: Access,
    /// LDS of the workgroup.
    pub lds: &'a mut [u8],
    /// The first access outside LDS or scratch, as a sentence.
    pub strayed: Option<String>,
}

/// UTCL2 client of the scalar data cache (`gfxhub_client_ids_v3_0`).
const CLIENT_SQC_DATA: u16 = 10;

impl Ctx<'_> {
    fn who(&self, kind: Kind) -> Access {
        Access { kind, ..self.who }
    }

    fn stray(&mut self, i: &Inst, what: &str, at: u64, limit: u64) {
        if self.strayed.is_none() {
            self.strayed =
                Some(format!("{} at {:#x} reaches {what} byte {at:#x} of {limit:#x}", i.row.name, i.pc));
        }
    }
}

/// Where a lane's bytes lie.
enum Place {
    Memory(u64),
    Lds(u32),
    /// Private memory, by its offset.
    Private(u32),
}

impl Wave {
    /// Address of a lane's byte of private memory: dwords of the lanes are interleaved.
    fn private(&self, lane: usize, offset: u32) -> u64 {
        self.scratch
            + u64::from(offset & !3) * u64::from(self.lanes)
            + lane as u64 * 4
            + u64::from(offset & 3)
    }

    fn place(&self, i: &Inst, lane: usize) -> Place {
        let vaddr = |n: usize| {
            let code = usize::from(i.s[0] - operand::V0);
            self.v[code + n][lane]
        };
        let has_saddr = i.saddr != operand::NULL;
        match i.enc {
            Enc::Global if has_saddr => Place::Memory(
                self.s64(i.saddr).wrapping_add(u64::from(vaddr(0))).wrapping_add_signed(i.imm.into()),
            ),
            Enc::Scratch => {
                let mut at = if i.flags & SVE != 0 { vaddr(0) } else { 0 };
                if has_saddr {
                    at = at.wrapping_add(self.scalar(i.saddr, 0));
                }
                Place::Private(at.wrapping_add(i.imm as u32))
            }
            _ => {
                let at = (u64::from(vaddr(0)) | u64::from(vaddr(1)) << 32).wrapping_add_signed(i.imm.into());
                let high = (at >> 32) as u32;
                // The low 32 bits of a flat address in an aperture are the offset.
                if i.enc == Enc::Flat && self.apertures[0] != 0 && high == self.apertures[0] {
                    Place::Lds(at as u32)
                } else if i.enc == Enc::Flat && self.apertures[1] != 0 && high == self.apertures[1] {
                    Place::Private(at as u32)
                } else {
                    Place::Memory(at)
                }
            }
        }
    }

    fn load(&self, c: &mut Ctx<'_>, i: &Inst, lane: usize, out: &mut [u8]) -> Result<(), MemFault> {
        match self.place(i, lane) {
            Place::Memory(va) => c.env.read(c.who(Kind::Read), va, out),
            Place::Lds(at) => {
                let (limit, at) = (c.lds.len() as u64, at as usize);
                match c.lds.get(at..at + out.len()) {
                    Some(b) => out.copy_from_slice(b),
                    None => {
                        out.fill(0);
                        c.stray(i, "LDS", at as u64, limit);
                    }
                }
                Ok(())
            }
            Place::Private(at) => {
                if !self.in_scratch(c, i, at, out.len()) {
                    out.fill(0);
                    return Ok(());
                }
                for (n, part) in pieces(at, out.len()) {
                    let va = self.private(lane, at.wrapping_add(n as u32));
                    c.env.read(c.who(Kind::Read), va, &mut out[n..n + part])?;
                }
                Ok(())
            }
        }
    }

    fn store(&self, c: &mut Ctx<'_>, i: &Inst, lane: usize, data: &[u8]) -> Result<(), MemFault> {
        match self.place(i, lane) {
            Place::Memory(va) => c.env.write(c.who(Kind::Write), va, data),
            Place::Lds(at) => {
                let (limit, at) = (c.lds.len() as u64, at as usize);
                match c.lds.get_mut(at..at + data.len()) {
                    Some(b) => b.copy_from_slice(data),
                    None => c.stray(i, "LDS", at as u64, limit),
                }
                Ok(())
            }
            Place::Private(at) => {
                if !self.in_scratch(c, i, at, data.len()) {
                    return Ok(());
                }
                for (n, part) in pieces(at, data.len()) {
                    let va = self.private(lane, at.wrapping_add(n as u32));
                    c.env.write(c.who(Kind::Write), va, &data[n..n + part])?;
                }
                Ok(())
            }
        }
    }

    fn in_scratch(&self, c: &mut Ctx<'_>, i: &Inst, at: u32, len: usize) -> bool {
        let limit = u64::from(self.scratch_bytes / self.lanes);
        let fits = u64::from(at) + len as u64 <= limit;
        if !fits {
            c.stray(i, "private", at.into(), limit);
        }
        fits
    }

    /// Loads `N` dwords a lane, in lane order.
    fn load_dwords(&mut self, i: &Inst, c: &mut Ctx<'_>, n: usize) -> Result<(), MemFault> {
        let mask = self.exec();
        let d = usize::from(i.d - operand::V0);
        let mut results: Vec<[u8; 16]> = vec![[0; 16]; self.lanes as usize];
        for (lane, buf) in results.iter_mut().enumerate() {
            if mask >> lane & 1 != 0 {
                self.load(c, i, lane, &mut buf[..4 * n])?;
            }
        }
        for (lane, buf) in results.iter().enumerate() {
            if mask >> lane & 1 != 0 {
                for k in 0..n {
                    self.v[d + k][lane] =
                        u32::from_le_bytes([buf[4 * k], buf[4 * k + 1], buf[4 * k + 2], buf[4 * k + 3]]);
                }
            }
        }
        Ok(())
    }

    fn store_dwords(&mut self, i: &Inst, c: &mut Ctx<'_>, n: usize) -> Result<(), MemFault> {
        let mask = self.exec();
        let d = usize::from(i.s[1] - operand::V0);
        for lane in 0..self.lanes as usize {
            if mask >> lane & 1 != 0 {
                let mut buf = [0; 16];
                for k in 0..n {
                    buf[4 * k..4 * k + 4].copy_from_slice(&self.v[d + k][lane].to_le_bytes());
                }
                self.store(c, i, lane, &buf[..4 * n])?;
            }
        }
        Ok(())
    }

    /// Loads one or two bytes and merges them into the destination.
    fn load_small(
        &mut self,
        i: &Inst,
        c: &mut Ctx<'_>,
        bytes: usize,
        f: impl Fn(u16, u32) -> u32,
    ) -> Result<(), MemFault> {
        let mask = self.exec();
        let d = usize::from(i.d - operand::V0);
        let old = self.v[d];
        let mut r = old;
        for lane in 0..self.lanes as usize {
            if mask >> lane & 1 != 0 {
                let mut buf = [0; 2];
                self.load(c, i, lane, &mut buf[..bytes])?;
                r[lane] = f(u16::from_le_bytes(buf), old[lane]);
            }
        }
        self.v[d] = r;
        Ok(())
    }

    fn store_small(&mut self, i: &Inst, c: &mut Ctx<'_>, bytes: usize, shift: u32) -> Result<(), MemFault> {
        let mask = self.exec();
        let d = usize::from(i.s[1] - operand::V0);
        for lane in 0..self.lanes as usize {
            if mask >> lane & 1 != 0 {
                let x = (self.v[d][lane] >> shift).to_le_bytes();
                self.store(c, i, lane, &x[..bytes])?;
            }
        }
        Ok(())
    }

    /// An atomic on memory or LDS, lane after lane. `f(old, data, compare)` gives the new value.
    fn atomic(
        &mut self,
        i: &Inst,
        c: &mut Ctx<'_>,
        size: usize,
        f: impl Fn(u64, u64, u64) -> u64,
    ) -> Result<(), MemFault> {
        let mask = self.exec();
        let data = usize::from(i.s[1] - operand::V0);
        let words = size / 4;
        let get = |w: &Wave, first: usize, lane: usize| {
            let lo = u64::from(w.v[first][lane]);
            if words == 2 { lo | u64::from(w.v[first + 1][lane]) << 32 } else { lo }
        };
        let compares = i.row.name.contains("cmpswap");
        for lane in 0..self.lanes as usize {
            if mask >> lane & 1 == 0 {
                continue;
            }
            let src = get(self, data, lane);
            let cmp = if compares { get(self, data + words, lane) } else { 0 };
            let mut b = [0; 8];
            if let Place::Memory(va) = self.place(i, lane) {
                c.env.read(c.who(Kind::Atomic), va, &mut b[..size])?;
                let new = f(u64::from_le_bytes(b), src, cmp);
                c.env.write(c.who(Kind::Atomic), va, &new.to_le_bytes()[..size])?;
            } else {
                self.load(c, i, lane, &mut b[..size])?;
                let new = f(u64::from_le_bytes(b), src, cmp);
                self.store(c, i, lane, &new.to_le_bytes()[..size])?;
            }
            if i.flags & GLC != 0 {
                let old = u64::from_le_bytes(b);
                let d = usize::from(i.d - operand::V0);
                self.v[d][lane] = old as u32;
                if words == 2 {
                    self.v[d + 1][lane] = (old >> 32) as u32;
                }
            }
        }
        Ok(())
    }

    /// Loads `n` dwords into scalar registers.
    fn scalar_load(&mut self, i: &Inst, c: &mut Ctx<'_>, n: u16) -> Result<(), MemFault> {
        let mut at = self.s64(i.s[0]).wrapping_add_signed(i.imm.into());
        if i.saddr != operand::NULL {
            at = at.wrapping_add(self.scalar(i.saddr, 0).into());
        }
        // The low two bits of address and offset are ignored.
        at &= !3;
        let mut buf = [0; 64];
        let buf = &mut buf[..4 * usize::from(n)];
        c.env.read(Access { client: CLIENT_SQC_DATA, kind: Kind::Read, ..c.who }, at, buf)?;
        for k in 0..n {
            let b = usize::from(k) * 4;
            self.set_s(i.d + k, u32::from_le_bytes([buf[b], buf[b + 1], buf[b + 2], buf[b + 3]]));
        }
        Ok(())
    }

    fn scalar_load_small(
        &mut self,
        i: &Inst,
        c: &mut Ctx<'_>,
        bytes: usize,
        signed: bool,
    ) -> Result<(), MemFault> {
        let mut at = self.s64(i.s[0]).wrapping_add_signed(i.imm.into());
        if i.saddr != operand::NULL {
            at = at.wrapping_add(self.scalar(i.saddr, 0).into());
        }
        let mut buf = [0; 4];
        c.env.read(Access { client: CLIENT_SQC_DATA, kind: Kind::Read, ..c.who }, at, &mut buf[..bytes])?;
        let x = u32::from_le_bytes(buf);
        let shift = 32 - 8 * bytes as u32;
        self.set_s(i.d, if signed { ((x << shift) as i32 >> shift) as u32 } else { x });
        Ok(())
    }
}

/// Parts of `len` bytes from offset `at` that do not cross a dword.
fn pieces(at: u32, len: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut n = 0;
    std::iter::from_fn(move || {
        (n < len).then(|| {
            let part = (4 - (at as usize + n) % 4).min(len - n);
            n += part;
            (n - part, part)
        })
    })
}

fn sx8(x: u16) -> u32 {
    x as i8 as i32 as u32
}

fn sx16(x: u16) -> u32 {
    x as i16 as i32 as u32
}

fn low(x: u32, old: u32) -> u32 {
    old & 0xffff_0000 | x & 0xffff
}

fn high(x: u32, old: u32) -> u32 {
    old & 0xffff | x << 16
}

macro_rules! mem {
    (|$w:ident, $i:ident, $c:ident| $body:expr) => {
        Exec::Mem(|$w: &mut Wave, $i: &Inst, $c: &mut Ctx<'_>| $body)
    };
}

/// What a scalar memory instruction does.
pub(super) fn smem(name: &str) -> Option<Exec> {
    Some(match name {
        "s_load_b32" => mem!(|w, i, c| w.scalar_load(i, c, 1)),
        "s_load_b64" => mem!(|w, i, c| w.scalar_load(i, c, 2)),
        "s_load_b96" => mem!(|w, i, c| w.scalar_load(i, c, 3)),
        "s_load_b128" => mem!(|w, i, c| w.scalar_load(i, c, 4)),
        "s_load_b256" => mem!(|w, i, c| w.scalar_load(i, c, 8)),
        "s_load_b512" => mem!(|w, i, c| w.scalar_load(i, c, 16)),
        "s_load_u8" => mem!(|w, i, c| w.scalar_load_small(i, c, 1, false)),
        "s_load_i8" => mem!(|w, i, c| w.scalar_load_small(i, c, 1, true)),
        "s_load_u16" => mem!(|w, i, c| w.scalar_load_small(i, c, 2, false)),
        "s_load_i16" => mem!(|w, i, c| w.scalar_load_small(i, c, 2, true)),
        "s_gl1_inv" | "s_dcache_inv" => Exec::Alu(|_, _| {}),
        _ if name.starts_with("s_prefetch") => Exec::Alu(|_, _| {}),
        _ => return None,
    })
}

/// What a buffer instruction does: cache control only, nothing compiled for the driver uses buffers.
pub(super) fn mubuf(name: &str) -> Option<Exec> {
    matches!(name, "buffer_gl0_inv" | "buffer_gl1_inv").then_some(Exec::Alu(|_, _| {}))
}

/// Builds an integer atomic from its L2 operation (32-bit number; 64-bit ones have bit 5 set).
macro_rules! atomic {
    ($bits:expr, $op:expr) => {
        if $bits == 64 {
            mem!(|w, i, c| w.atomic(i, c, 8, |old, src, cmp| cp::apply($op | 0x20, old, src, cmp)))
        } else {
            mem!(|w, i, c| w.atomic(i, c, 4, |old, src, cmp| cp::apply($op, old, src, cmp)))
        }
    };
}

/// What a flat, global or scratch instruction does.
pub(super) fn flat(name: &str) -> Option<Exec> {
    let op = ["flat_", "global_", "scratch_"].iter().find_map(|p| name.strip_prefix(p))?;
    Some(match op {
        "load_b32" => mem!(|w, i, c| w.load_dwords(i, c, 1)),
        "load_b64" => mem!(|w, i, c| w.load_dwords(i, c, 2)),
        "load_b96" => mem!(|w, i, c| w.load_dwords(i, c, 3)),
        "load_b128" => mem!(|w, i, c| w.load_dwords(i, c, 4)),
        "store_b32" => mem!(|w, i, c| w.store_dwords(i, c, 1)),
        "store_b64" => mem!(|w, i, c| w.store_dwords(i, c, 2)),
        "store_b96" => mem!(|w, i, c| w.store_dwords(i, c, 3)),
        "store_b128" => mem!(|w, i, c| w.store_dwords(i, c, 4)),
        "load_u8" => mem!(|w, i, c| w.load_small(i, c, 1, |x, _| x.into())),
        "load_i8" => mem!(|w, i, c| w.load_small(i, c, 1, |x, _| sx8(x))),
        "load_u16" => mem!(|w, i, c| w.load_small(i, c, 2, |x, _| x.into())),
        "load_i16" => mem!(|w, i, c| w.load_small(i, c, 2, |x, _| sx16(x))),
        "load_d16_u8" => mem!(|w, i, c| w.load_small(i, c, 1, |x, old| low(x.into(), old))),
        "load_d16_i8" => mem!(|w, i, c| w.load_small(i, c, 1, |x, old| low(sx8(x), old))),
        "load_d16_b16" => mem!(|w, i, c| w.load_small(i, c, 2, |x, old| low(x.into(), old))),
        "load_d16_hi_u8" => mem!(|w, i, c| w.load_small(i, c, 1, |x, old| high(x.into(), old))),
        "load_d16_hi_i8" => mem!(|w, i, c| w.load_small(i, c, 1, |x, old| high(sx8(x), old))),
        "load_d16_hi_b16" => mem!(|w, i, c| w.load_small(i, c, 2, |x, old| high(x.into(), old))),
        "store_b8" => mem!(|w, i, c| w.store_small(i, c, 1, 0)),
        "store_b16" => mem!(|w, i, c| w.store_small(i, c, 2, 0)),
        "store_d16_hi_b8" => mem!(|w, i, c| w.store_small(i, c, 1, 16)),
        "store_d16_hi_b16" => mem!(|w, i, c| w.store_small(i, c, 2, 16)),
        "wb" | "wbinv" | "inv" => Exec::Alu(|_, _| {}),
        "atomic_add_f32" => mem!(|w, i, c| w.atomic(i, c, 4, |old, src, _| {
            let (a, b) = (f32::from_bits(old as u32), f32::from_bits(src as u32));
            super::float::nan32(a + b, &[a, b]).to_bits().into()
        })),
        "atomic_min_f32" | "atomic_min_num_f32" => mem!(|w, i, c| w.atomic(i, c, 4, |old, src, _| {
            super::float::min32(f32::from_bits(old as u32), f32::from_bits(src as u32)).to_bits().into()
        })),
        "atomic_max_f32" | "atomic_max_num_f32" => mem!(|w, i, c| w.atomic(i, c, 4, |old, src, _| {
            super::float::max32(f32::from_bits(old as u32), f32::from_bits(src as u32)).to_bits().into()
        })),
        _ => {
            let (op, kind) = op.strip_prefix("atomic_")?.rsplit_once('_')?;
            let bits: u32 = kind.get(1..)?.parse().ok()?;
            if bits != 32 && bits != 64 {
                return None;
            }
            match (op, kind.as_bytes().first()?) {
                ("swap", b'b') => atomic!(bits, 0x7),
                ("cmpswap", b'b') => atomic!(bits, 0x8),
                named => arithmetic_atomic!(named, atomic, bits),
            }
        }
    })
}
