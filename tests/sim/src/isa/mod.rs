//! Shader instruction sets: decoder, disassembler and interpreter.

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
