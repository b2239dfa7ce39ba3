//! Shader instruction sets: decoder, disassembler and interpreter.
//!
//! A kernel is decoded whole, by following its control flow, before its first wave runs
//! ([`Program`]); an unknown instruction is an error that names address, words and target. Tables of
//! opcodes stand in `table`, the binary layouts in `decode`, what instructions do in one file per
//! class. References: AMD's "RDNA3 Instruction Set Architecture" and "RDNA4 Instruction Set
//! Architecture" guides, and LLVM's AMDGPU documentation.

#![allow(
    clippy::needless_range_loop,
    clippy::precedence,
    clippy::double_comparisons,
    clippy::nonminimal_bool,
    clippy::if_same_then_else,
    reason = "lanes are numbers that index several registers at once; NaN makes comparisons differ \
              from their negation; bit fields read as the guides write them"
)]

/// What an atomic with arithmetic in its name does, by its name and the letter of its type; `$atomic`
/// makes an operation of a width and a `TC_OP_ATOMIC_*` number. Exchanges are named differently in LDS
/// and in memory.
macro_rules! arithmetic_atomic {
    ($named:expr, $atomic:ident, $bits:expr) => {
        match $named {
            ("add", b'u') => $atomic!($bits, 0xf),
            ("sub", b'u') => $atomic!($bits, 0x10),
            ("min", b'i') => $atomic!($bits, 0x11),
            ("min", b'u') => $atomic!($bits, 0x12),
            ("max", b'i') => $atomic!($bits, 0x13),
            ("max", b'u') => $atomic!($bits, 0x14),
            ("and", b'b') => $atomic!($bits, 0x15),
            ("or", b'b') => $atomic!($bits, 0x16),
            ("xor", b'b') => $atomic!($bits, 0x17),
            ("inc", b'u') => $atomic!($bits, 0x18),
            ("dec", b'u') => $atomic!($bits, 0x19),
            _ => return None,
        }
    };
}

mod cmp;
mod ctl;
mod decode;
mod dpp;
mod ds;
mod float;
mod mem;
mod pack;
mod print;
mod program;
mod salu;
mod salu_float;
mod table;
mod valu;
mod valu16;
mod valu64;
mod wave;

pub use decode::{DecodeError, decode};
pub use mem::Ctx;
pub use program::{Program, ProgramError};
pub use table::Row;
pub use wave::{Wave, WaveState};

use crate::env::{Access, Env, Hub, Kind, MemFault};

/// Instruction set of a GPU's shader cores.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Target {
    /// gfx9 (CDNA): packets only, its instructions are not interpreted.
    Gfx9,
    /// gfx11 (RDNA3).
    Gfx11,
    /// gfx12 (RDNA4).
    Gfx12,
}

/// Encoding class.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "named as in the ISA guides")]
pub enum Enc {
    Sop1,
    Sop2,
    Sopk,
    Sopc,
    Sopp,
    Smem,
    Vop1,
    Vop2,
    Vopc,
    Vop3,
    Vop3p,
    Vopd,
    Ds,
    Flat,
    Scratch,
    Global,
    Mubuf,
}

/// Data parallel primitives: where a lane takes its first source from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dpp {
    /// 16-lane rows.
    Row {
        /// Control code.
        ctrl: u16,
        /// Fetch from inactive lanes too.
        fi: bool,
        /// Lanes without a source read zero instead of staying unwritten.
        bound_ctrl: bool,
        /// Banks of four lanes that are written.
        bank_mask: u8,
        /// Rows that are written.
        row_mask: u8,
    },
    /// A selection within eight lanes.
    Eight {
        /// Eight 3-bit lane numbers.
        sel: u32,
        /// Fetch from inactive lanes too.
        fi: bool,
    },
}

/// What an instruction does to a wave.
#[derive(Clone, Copy)]
pub enum Exec {
    /// Works on registers only.
    Alu(fn(&mut Wave, &Inst)),
    /// Works on memory or LDS.
    Mem(fn(&mut Wave, &Inst, &mut Ctx<'_>) -> Result<(), MemFault>),
    /// Changes the program counter or the wave's state.
    Ctl(fn(&mut Wave, &Inst)),
}

impl std::fmt::Debug for Exec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Exec::Alu(_) => "Alu",
            Exec::Mem(_) => "Mem",
            Exec::Ctl(_) => "Ctl",
        })
    }
}

/// Operand codes that are no register (9-bit source encoding).
pub mod operand {
    /// VCC, low half.
    pub const VCC: u16 = 106;
    /// The null register.
    pub const NULL: u16 = 124;
    /// M0.
    pub const M0: u16 = 125;
    /// EXEC, low half.
    pub const EXEC: u16 = 126;
    /// A 32-bit literal follows.
    pub const LITERAL: u16 = 255;
    /// The first vector register.
    pub const V0: u16 = 256;
}

/// A decoded instruction.
#[derive(Clone, Debug)]
pub struct Inst {
    /// Address.
    pub pc: u64,
    /// Length in dwords, 1 to 3.
    pub words: u8,
    /// Encoding class.
    pub enc: Enc,
    /// Name and operand widths.
    pub row: &'static Row,
    /// What it does.
    pub exec: Exec,
    /// Destination, an operand code.
    pub d: u16,
    /// Second destination (carry out).
    pub sd: u16,
    /// Sources, operand codes. Memory instructions: address, data, second data.
    pub s: [u16; 3],
    /// Scalar address or offset of memory instructions.
    pub saddr: u16,
    /// Literal constant.
    pub lit: u32,
    /// Immediate: SIMM16 of scalar instructions, byte offset of memory instructions.
    pub imm: i32,
    /// Negated sources, a bit each.
    pub neg: u8,
    /// Absolute sources, a bit each; the high halves' negation of packed instructions.
    pub abs: u8,
    /// Operand select.
    pub op_sel: u8,
    /// Operand select of the high half (packed instructions).
    pub op_sel_hi: u8,
    /// Output modifier: 1 times two, 2 times four, 3 divided by two.
    pub omod: u8,
    /// Clamp.
    pub clamp: bool,
    /// Memory: an atomic returns the old value. Scratch: the vector address is used (bit 1).
    pub flags: u8,
    /// Data parallel primitive.
    pub dpp: Option<Dpp>,
    /// The second half of a dual instruction.
    pub dual: Option<Box<Inst>>,
}

impl Inst {
    /// Address of what follows.
    pub(crate) fn next(&self) -> u64 {
        self.pc.wrapping_add(4 * u64::from(self.words))
    }
}

/// [`Inst::flags`]: globally coherent; atomics return the old value.
pub(crate) const GLC: u8 = 1;
/// [`Inst::flags`]: scratch uses its vector address.
pub(crate) const SVE: u8 = 2;
/// [`Inst::flags`]: system coherent level 1 bit.
pub(crate) const DLC: u8 = 4;
/// [`Inst::flags`]: streaming.
pub(crate) const SLC: u8 = 8;

impl Wave {
    /// Executes one instruction; a memory fault stops the wave.
    pub(crate) fn execute(&mut self, inst: &Inst, ctx: &mut Ctx<'_>) {
        match inst.exec {
            Exec::Alu(x) => match &inst.dual {
                None => x(self, inst),
                Some(second) => {
                    let Exec::Alu(y) = second.exec else { return };
                    // Both read before either writes.
                    let d = usize::from(inst.d - operand::V0);
                    let before = self.v[d];
                    x(self, inst);
                    let after = std::mem::replace(&mut self.v[d], before);
                    y(self, second);
                    self.v[d] = after;
                }
            },
            Exec::Ctl(f) => f(self, inst),
            Exec::Mem(f) => {
                if f(self, inst, ctx).is_err() {
                    // The wave waits for a trap handler that is not there.
                    self.state = WaveState::Stuck;
                }
            }
        }
    }

    /// Executes one instruction outside any workgroup, with VMID 0 and an LDS of one's own.
    pub fn step(&mut self, inst: &Inst, env: &mut dyn Env, lds: &mut [u8]) {
        let who = Access { hub: Hub::Gc, vmid: 0, client: 0, kind: Kind::Read };
        self.pc = inst.next();
        self.execute(inst, &mut Ctx { env, who, lds, strayed: None });
    }
}
