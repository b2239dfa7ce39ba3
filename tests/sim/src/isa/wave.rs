//! A wave: registers and how instructions reach them.

use super::float::{self, F64_INLINE, flush16, flush32, flush64};
use super::{Inst, operand};

/// One value a lane; a wave32 uses the first 32.
pub(crate) type Lanes<T> = [T; 64];

/// Whether a wave runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaveState {
    /// Runs.
    Ready,
    /// Waits at a barrier.
    Barrier,
    /// Has ended.
    Ended,
    /// Stopped for good by a memory fault or a trap: on hardware, it waits for a handler for ever.
    Stuck,
}

/// A wave of 32 or 64 lanes.
#[derive(Clone, Debug)]
pub struct Wave {
    /// Scalar registers by operand code: 0 to 105, VCC, TTMP, NULL (never read), M0, EXEC.
    pub s: [u32; 128],
    /// Vector registers.
    pub v: Vec<Lanes<u32>>,
    /// Scalar condition code.
    pub scc: bool,
    /// Address of the next instruction.
    pub pc: u64,
    /// 32 or 64.
    pub lanes: u32,
    /// MODE register: round 3:0, denormals 7:4, clamp 8, IEEE 9.
    pub mode: u32,
    /// State.
    pub state: WaveState,
    /// Base address of this wave's scratch.
    pub scratch: u64,
    /// Bytes of scratch of this wave.
    pub scratch_bytes: u32,
    /// LDS and scratch apertures: high halves of SHARED_BASE and PRIVATE_BASE.
    pub apertures: [u32; 2],
    /// Number of the wave in its workgroup.
    pub index: u32,
}

/// 256 registers, and what an operand of 16 dwords can reach beyond.
const VGPRS: usize = 256 + 16;

/// Inline float constants 240 to 247 and 248 (1/2π) of 32 bits.
const F32_INLINE: [u32; 9] = [
    0x3f00_0000,
    0xbf00_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x4000_0000,
    0xc000_0000,
    0x4080_0000,
    0xc080_0000,
    0x3e22_f983,
];
/// The same of 16 bits.
const F16_INLINE: [u16; 9] = [0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118];

impl Wave {
    /// A wave with all its lanes active and its registers zero. It has every register that an
    /// instruction can name, however many its kernel allocates: what is beyond is refused when the
    /// kernel is decoded.
    pub fn new(lanes: u32) -> Self {
        let mut w = Wave {
            s: [0; 128],
            v: vec![[0; 64]; VGPRS],
            scc: false,
            pc: 0,
            lanes,
            mode: 0xf0,
            state: WaveState::Ready,
            scratch: 0,
            scratch_bytes: 0,
            apertures: [0; 2],
            index: 0,
        };
        w.set_exec(w.full());
        w
    }

    /// A mask of all lanes.
    pub fn full(&self) -> u64 {
        if self.lanes == 64 { u64::MAX } else { 0xffff_ffff }
    }

    /// The EXEC mask, as wide as the wave.
    pub fn exec(&self) -> u64 {
        self.s64(operand::EXEC) & self.full()
    }

    /// Sets the EXEC mask.
    pub fn set_exec(&mut self, mask: u64) {
        self.set_mask(operand::EXEC, mask);
    }

    /// A pair of scalar registers.
    pub(crate) fn s64(&self, code: u16) -> u64 {
        let i = usize::from(code);
        let at = |i: usize| u64::from(self.s.get(i).copied().unwrap_or(0));
        at(i) | at(i + 1) << 32
    }

    /// A lane mask in scalar registers.
    pub(crate) fn mask(&self, code: u16) -> u64 {
        match code {
            operand::NULL => 0,
            0..128 if self.lanes == 64 => self.s64(code),
            0..128 => u64::from(self.s[usize::from(code)]),
            // Inline constants serve as masks too.
            _ if self.lanes == 64 => self.scalar64(code, 0, false),
            _ => u64::from(self.scalar(code, 0)),
        }
    }

    /// Writes a lane mask.
    pub(crate) fn set_mask(&mut self, code: u16, mask: u64) {
        self.set_s(code, mask as u32);
        if self.lanes == 64 {
            self.set_s(code + 1, (mask >> 32) as u32);
        }
    }

    /// Writes a scalar register.
    pub(crate) fn set_s(&mut self, code: u16, value: u32) {
        if code != operand::NULL
            && let Some(s) = self.s.get_mut(usize::from(code))
        {
            *s = value;
        }
    }

    /// Sets a scalar register by its operand code.
    pub fn set_sgpr(&mut self, code: u16, value: u32) {
        self.set_s(code, value);
    }

    /// Writes a pair of scalar registers.
    pub(crate) fn set_s64(&mut self, code: u16, value: u64) {
        if code != operand::NULL {
            self.set_s(code, value as u32);
            self.set_s(code + 1, (value >> 32) as u32);
        }
    }

    /// A 32-bit scalar operand.
    pub(crate) fn scalar(&self, code: u16, lit: u32) -> u32 {
        match code {
            operand::NULL => 0,
            0..128 => self.s[usize::from(code)],
            128..=192 => u32::from(code) - 128,
            193..=208 => 192u32.wrapping_sub(u32::from(code)),
            235 => 0,
            236 => 0xffff_ffff,
            237 => 0,
            238 => 0xffff_ffff,
            240..=248 => F32_INLINE[usize::from(code) - 240],
            253 => u32::from(self.scc),
            operand::LITERAL => lit,
            _ => 0,
        }
    }

    /// A 64-bit scalar operand; `signed` says how a literal is extended.
    pub(crate) fn scalar64(&self, code: u16, lit: u32, signed: bool) -> u64 {
        match code {
            operand::NULL => 0,
            0..128 => self.s64(code),
            193..=208 => (192 - i64::from(code)) as u64,
            235 => u64::from(self.apertures[0]) << 32,
            236 => u64::from(self.apertures[0]) << 32 | 0xffff_ffff,
            237 => u64::from(self.apertures[1]) << 32,
            238 => u64::from(self.apertures[1]) << 32 | 0xffff_ffff,
            240..=248 => F64_INLINE[usize::from(code) - 240],
            operand::LITERAL if signed => i64::from(lit as i32) as u64,
            _ => u64::from(self.scalar(code, lit)),
        }
    }

    /// Lanes that an instruction writes.
    pub(crate) fn active(&self, i: &Inst) -> u64 {
        match &i.dpp {
            None => self.exec(),
            Some(dpp) => dpp.writes(self.exec(), self.lanes),
        }
    }

    /// A 32-bit source of a vector instruction, no modifiers.
    pub(crate) fn u32s(&self, i: &Inst, n: usize) -> Lanes<u32> {
        let code = i.s[n];
        if code < operand::V0 {
            return [self.scalar(code, i.lit); 64];
        }
        let v = self.v[usize::from(code - operand::V0)];
        match &i.dpp {
            Some(dpp) if n == 0 => dpp.gather(&v, self.exec(), self.lanes),
            _ => v,
        }
    }

    /// A 64-bit source, no modifiers. Literals: the high half of doubles, else extended.
    pub(crate) fn u64s(&self, i: &Inst, n: usize) -> Lanes<u64> {
        let code = i.s[n];
        if code < operand::V0 {
            let value = if code == operand::LITERAL && i.row.name.ends_with("f64") {
                u64::from(i.lit) << 32
            } else {
                self.scalar64(code, i.lit, i.row.name.ends_with("i64"))
            };
            return [value; 64];
        }
        let r = usize::from(code - operand::V0);
        let (lo, hi) = (&self.v[r], &self.v[r + 1]);
        let (lo, hi) = match &i.dpp {
            Some(dpp) if n == 0 => {
                let e = self.exec();
                (dpp.gather(lo, e, self.lanes), dpp.gather(hi, e, self.lanes))
            }
            _ => (*lo, *hi),
        };
        std::array::from_fn(|l| u64::from(lo[l]) | u64::from(hi[l]) << 32)
    }

    /// A 16-bit source, halves selected, no other modifiers.
    pub(crate) fn u16s(&self, i: &Inst, n: usize) -> Lanes<u16> {
        let code = i.s[n];
        let high = match i.enc {
            super::Enc::Vop3 => i.op_sel >> n & 1 != 0,
            // Bit 7 of a vector register number selects the high half in the short encodings.
            _ => code >= operand::V0 && code & 0x80 != 0,
        };
        if (240..=248).contains(&code) {
            return [F16_INLINE[usize::from(code) - 240]; 64];
        }
        if code < operand::V0 {
            let value = self.scalar(code, i.lit);
            return [if high { (value >> 16) as u16 } else { value as u16 }; 64];
        }
        let code = if i.enc == super::Enc::Vop3 { code } else { code & !0x80 };
        let v = self.v[usize::from(code - operand::V0)];
        let v = match &i.dpp {
            Some(dpp) if n == 0 => dpp.gather(&v, self.exec(), self.lanes),
            _ => v,
        };
        v.map(|x| if high { (x >> 16) as u16 } else { x as u16 })
    }

    /// A 32-bit float source with its modifiers, denormals flushed as the mode says.
    pub(crate) fn f32s(&self, i: &Inst, n: usize) -> Lanes<f32> {
        let mut x = self.u32s(i, n);
        if i.abs >> n & 1 != 0 {
            x = x.map(|v| v & 0x7fff_ffff);
        }
        if i.neg >> n & 1 != 0 {
            x = x.map(|v| v ^ 0x8000_0000);
        }
        if self.mode >> 4 & 1 == 0 {
            x = x.map(flush32);
        }
        x.map(f32::from_bits)
    }

    /// A 64-bit float source with its modifiers.
    pub(crate) fn f64s(&self, i: &Inst, n: usize) -> Lanes<f64> {
        let mut x = self.u64s(i, n);
        if i.abs >> n & 1 != 0 {
            x = x.map(|v| v & !(1 << 63));
        }
        if i.neg >> n & 1 != 0 {
            x = x.map(|v| v ^ 1 << 63);
        }
        if self.mode >> 6 & 1 == 0 {
            x = x.map(flush64);
        }
        x.map(f64::from_bits)
    }

    /// A 16-bit float source with its modifiers, as bits.
    pub(crate) fn f16s(&self, i: &Inst, n: usize) -> Lanes<u16> {
        let mut x = self.u16s(i, n);
        if i.enc == super::Enc::Vop3 {
            if i.abs >> n & 1 != 0 {
                x = x.map(|v| v & 0x7fff);
            }
            if i.neg >> n & 1 != 0 {
                x = x.map(|v| v ^ 0x8000);
            }
        }
        if self.mode >> 6 & 1 == 0 {
            x = x.map(flush16);
        }
        x
    }

    /// Writes 32-bit results to the active lanes.
    pub(crate) fn put32(&mut self, i: &Inst, r: &Lanes<u32>) {
        let mask = self.active(i);
        let v = &mut self.v[usize::from(i.d - operand::V0)];
        for l in 0..64 {
            if mask >> l & 1 != 0 {
                v[l] = r[l];
            }
        }
    }

    /// Writes 64-bit results.
    pub(crate) fn put64(&mut self, i: &Inst, r: &Lanes<u64>) {
        let mask = self.active(i);
        let d = usize::from(i.d - operand::V0);
        for l in 0..64 {
            if mask >> l & 1 != 0 {
                self.v[d][l] = r[l] as u32;
                self.v[d + 1][l] = (r[l] >> 32) as u32;
            }
        }
    }

    /// Writes 16-bit results to the selected half; the other half stays.
    pub(crate) fn put16(&mut self, i: &Inst, r: &Lanes<u16>) {
        let mask = self.active(i);
        let (d, high) =
            if i.enc == super::Enc::Vop3 { (i.d, i.op_sel & 8 != 0) } else { (i.d & !0x80, i.d & 0x80 != 0) };
        let v = &mut self.v[usize::from(d - operand::V0)];
        for l in 0..64 {
            if mask >> l & 1 != 0 {
                v[l] = if high {
                    v[l] & 0xffff | u32::from(r[l]) << 16
                } else {
                    v[l] & !0xffff | u32::from(r[l])
                };
            }
        }
    }

    /// Writes 32-bit float results: output modifier, denormals, clamp.
    pub(crate) fn putf32(&mut self, i: &Inst, r: &Lanes<f32>) {
        let denormals = self.mode >> 5 & 1 != 0;
        let r = r.map(|x| {
            let mut x = match i.omod {
                1 => x * 2.0,
                2 => x * 4.0,
                3 => x * 0.5,
                _ => x,
            };
            if !denormals {
                x = f32::from_bits(flush32(x.to_bits()));
            }
            if i.clamp {
                x = if x.is_nan() && self.mode >> 8 & 1 != 0 { 0.0 } else { float::clamp01_32(x) };
            }
            x.to_bits()
        });
        self.put32(i, &r);
    }

    /// Writes 64-bit float results.
    pub(crate) fn putf64(&mut self, i: &Inst, r: &Lanes<f64>) {
        let denormals = self.mode >> 7 & 1 != 0;
        let r = r.map(|x| {
            let mut x = match i.omod {
                1 => x * 2.0,
                2 => x * 4.0,
                3 => x * 0.5,
                _ => x,
            };
            if !denormals {
                x = f64::from_bits(flush64(x.to_bits()));
            }
            if i.clamp {
                x = if x.is_nan() && self.mode >> 8 & 1 != 0 { 0.0 } else { float::clamp01_64(x) };
            }
            x.to_bits()
        });
        self.put64(i, &r);
    }

    /// Writes 16-bit float results, given as bits.
    pub(crate) fn putf16(&mut self, i: &Inst, r: &Lanes<u16>) {
        let r = r.map(|x| self.finish16(x, i.omod, i.clamp));
        self.put16(i, &r);
    }

    /// Output modifier, denormals and clamp of a 16-bit float.
    pub(crate) fn finish16(&self, x: u16, omod: u8, clamp: bool) -> u16 {
        let mut x = x;
        if omod != 0 {
            let f = [1.0, 2.0, 4.0, 0.5][usize::from(omod & 3)];
            x = float::f16_from_f64(float::f16_to_f64(x) * f);
        }
        if self.mode >> 7 & 1 == 0 {
            x = flush16(x);
        }
        if clamp {
            let f = float::f16_to_f64(x);
            x = if f.is_nan() && self.mode >> 8 & 1 != 0 {
                0
            } else {
                float::f16_from_f64(float::clamp01_64(f))
            };
        }
        x
    }
}
