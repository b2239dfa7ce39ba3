//! A kernel's code, decoded by following its control flow.

use super::{DecodeError, Inst, Target, ctl, decode};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Why a kernel cannot run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProgramError {
    /// An unknown instruction.
    Decode(DecodeError),
    /// Code memory cannot be read; the fault is already reported.
    Fault {
        /// Address of the word.
        va: u64,
    },
    /// More instructions than a kernel can have.
    TooLong,
    /// An instruction names vector registers that the kernel does not allocate.
    Registers {
        /// Address of the instruction.
        pc: u64,
        /// Registers it needs.
        needs: u16,
        /// Registers there are.
        has: u16,
    },
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramError::Decode(e) => e.fmt(f),
            ProgramError::Fault { va } => write!(f, "no instructions at {va:#x}"),
            ProgramError::TooLong => write!(f, "the kernel has more than {MAX_INSTRUCTIONS} instructions"),
            ProgramError::Registers { pc, needs, has } => {
                write!(f, "instruction at {pc:#x} needs {needs} vector registers of {has}")
            }
        }
    }
}

impl std::error::Error for ProgramError {}

/// A kernel of hand-written and generated code stays far below.
const MAX_INSTRUCTIONS: usize = 1 << 20;

/// Decoded code.
#[derive(Debug)]
pub struct Program {
    target: Target,
    vgprs: u16,
    code: Vec<Inst>,
    at: HashMap<u64, u32>,
}

/// What is known of scalar registers while code is followed: addresses made by S_GETPC and additions
/// of literals, so that calls of functions in the same image can be followed.
type Known = BTreeMap<u16, u32>;

impl Program {
    /// Decodes from `entry` on. `fetch` gives the word at an address, or `None` where there is none.
    pub fn new(
        target: Target,
        entry: u64,
        vgprs: u16,
        fetch: &mut dyn FnMut(u64) -> Option<u32>,
    ) -> Result<Self, ProgramError> {
        let mut p = Program { target, vgprs, code: Vec::new(), at: HashMap::new() };
        p.follow(entry, fetch)?;
        Ok(p)
    }

    /// The instruction at an address, if it is decoded.
    pub fn find(&self, pc: u64) -> Option<u32> {
        self.at.get(&pc).copied()
    }

    /// The instruction with a number.
    pub fn get(&self, index: u32) -> Option<&Inst> {
        self.code.get(index as usize)
    }

    /// All instructions, in the order in which they were found.
    pub fn instructions(&self) -> &[Inst] {
        &self.code
    }

    /// Decodes what a computed jump has reached.
    pub fn follow(
        &mut self,
        entry: u64,
        fetch: &mut dyn FnMut(u64) -> Option<u32>,
    ) -> Result<(), ProgramError> {
        let mut todo = vec![entry];
        while let Some(mut pc) = todo.pop() {
            let mut known = Known::new();
            while !self.at.contains_key(&pc) {
                let inst = self.decode_at(pc, fetch)?;
                if self.code.len() >= MAX_INSTRUCTIONS {
                    return Err(ProgramError::TooLong);
                }
                let next = inst.next();
                let name = inst.row.name;
                let ends = matches!(name, "s_endpgm" | "s_branch" | "s_setpc_b64");
                if name == "s_branch" || name.starts_with("s_cbranch") || name == "s_call_b64" {
                    todo.push(ctl::target(&inst));
                }
                if matches!(name, "s_swappc_b64" | "s_setpc_b64")
                    && let (Some(lo), Some(hi)) = (known.get(&inst.s[0]), known.get(&(inst.s[0] + 1)))
                {
                    todo.push(ctl::aligned(u64::from(*hi) << 32 | u64::from(*lo)));
                }
                track(&mut known, &inst);
                self.at.insert(pc, self.code.len() as u32);
                self.code.push(inst);
                if ends {
                    break;
                }
                pc = next;
            }
        }
        Ok(())
    }

    fn decode_at(&self, pc: u64, fetch: &mut dyn FnMut(u64) -> Option<u32>) -> Result<Inst, ProgramError> {
        let mut words = [0; 3];
        words[0] = fetch(pc).ok_or(ProgramError::Fault { va: pc })?;
        // Most instructions need one word: the others are fetched when they are missed.
        let mut have = 1;
        loop {
            match decode(self.target, pc, &words[..have]) {
                Err(e) if have < 3 && e.reason == "cut off" => {
                    let va = pc.wrapping_add(4 * have as u64);
                    words[have] = fetch(va).ok_or(ProgramError::Fault { va })?;
                    have += 1;
                }
                Err(e) => return Err(ProgramError::Decode(e)),
                Ok(inst) if inst.vgprs() > self.vgprs => {
                    return Err(ProgramError::Registers { pc, needs: inst.vgprs(), has: self.vgprs });
                }
                Ok(inst) => return Ok(inst),
            }
        }
    }
}

/// Updates what is known of scalar registers.
fn track(known: &mut Known, i: &Inst) {
    let value = |known: &Known, code: u16| match code {
        super::operand::LITERAL => Some(i.lit),
        128..=192 => Some(u32::from(code) - 128),
        193..=208 => Some(192u32.wrapping_sub(u32::from(code))),
        _ => known.get(&code).copied(),
    };
    /// Key of the carry of the last addition.
    const CARRY: u16 = u16::MAX;
    match i.row.name {
        "s_getpc_b64" => {
            known.insert(i.d, i.next() as u32);
            known.insert(i.d + 1, (i.next() >> 32) as u32);
        }
        "s_add_u32" | "s_addc_u32" | "s_add_co_u32" | "s_add_co_ci_u32" => {
            let with_carry = i.row.name.contains("addc") || i.row.name.contains("ci");
            let carry = if with_carry { known.get(&CARRY).copied() } else { Some(0) };
            match (value(known, i.s[0]), value(known, i.s[1]), carry) {
                (Some(a), Some(b), Some(c)) => {
                    let sum = u64::from(a) + u64::from(b) + u64::from(c);
                    known.insert(i.d, sum as u32);
                    known.insert(CARRY, (sum >> 32) as u32);
                }
                _ => {
                    known.remove(&i.d);
                    known.remove(&CARRY);
                }
            }
        }
        _ => {
            // Anything else forgets its scalar destination; most scalar instructions set SCC.
            if i.d < 128 {
                for k in 0..16.min(u16::from(i.row.d)) {
                    known.remove(&(i.d + k));
                }
            }
            if matches!(i.enc, super::Enc::Sop1 | super::Enc::Sop2 | super::Enc::Sopc | super::Enc::Sopk)
                && !i.row.name.starts_with("s_mov")
            {
                known.remove(&CARRY);
            }
        }
    }
}
