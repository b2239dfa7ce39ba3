//! Opcodes by encoding class and target.

mod gfx11;
mod gfx12;

use super::{Enc, Exec, Target, cmp, ctl, ds, mem, pack, salu, salu_float, valu, valu16, valu64};
use std::collections::HashMap;
use std::sync::OnceLock;

/// Width of a lane mask: one dword in wave32, two in wave64.
pub(super) const M: u8 = 255;

/// An instruction's name and operand widths.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// Opcode within its class.
    pub op: u16,
    /// Name without an encoding suffix.
    pub name: &'static str,
    /// Width of the destination in dwords; zero when there is none.
    pub d: u8,
    /// Width of the second destination.
    pub sd: u8,
    /// Widths of the sources.
    pub s: [u8; 3],
}

const fn row(op: u16, name: &'static str, d: u8, sd: u8, s: [u8; 3]) -> Row {
    Row { op, name, d, sd, s }
}

/// What an instruction of this name does, in this class; `None` where nobody has written it.
fn exec_of(enc: Enc, name: &str) -> Option<Exec> {
    match enc {
        Enc::Sop1 | Enc::Sop2 | Enc::Sopk | Enc::Sopc => {
            salu::lookup(name).or_else(|| ctl::lookup(name)).or_else(|| salu_float::lookup(name))
        }
        Enc::Sopp => ctl::lookup(name),
        Enc::Smem => mem::smem(name),
        Enc::Vop1 | Enc::Vop2 | Enc::Vopc | Enc::Vop3 | Enc::Vopd => valu::lookup(name)
            .or_else(|| cmp::lookup(name))
            .or_else(|| valu64::lookup(name))
            .or_else(|| valu16::lookup(name))
            .or_else(|| salu_float::lookup(name)),
        Enc::Vop3p => pack::lookup(name),
        Enc::Ds => ds::lookup(name),
        Enc::Flat | Enc::Scratch | Enc::Global => mem::flat(name),
        Enc::Mubuf => mem::mubuf(name),
    }
}

/// An opcode known to a target; `exec` is missing where the simulator lacks it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) row: &'static Row,
    pub(super) exec: Option<Exec>,
}

type Map = HashMap<(Enc, u16), Entry>;

fn build(tables: &[(Enc, &'static [Row])]) -> Map {
    let mut map = HashMap::new();
    for (enc, rows) in tables {
        for row in *rows {
            map.insert((*enc, row.op), Entry { row, exec: exec_of(*enc, row.name) });
        }
    }
    map
}

/// Looks an opcode up.
pub(super) fn find(target: Target, enc: Enc, op: u16) -> Option<Entry> {
    static GFX11: OnceLock<Map> = OnceLock::new();
    static GFX12: OnceLock<Map> = OnceLock::new();
    macro_rules! tables {
        ($m:ident) => {
            build(&[
                (Enc::Sop1, $m::SOP1),
                (Enc::Sop2, $m::SOP2),
                (Enc::Sopk, $m::SOPK),
                (Enc::Sopc, $m::SOPC),
                (Enc::Sopp, $m::SOPP),
                (Enc::Smem, $m::SMEM),
                (Enc::Vop1, $m::VOP1),
                (Enc::Vop2, $m::VOP2),
                (Enc::Vopc, $m::VOPC),
                (Enc::Vop3, $m::VOP3),
                (Enc::Vop3p, $m::VOP3P),
                (Enc::Vopd, VOPD),
                (Enc::Ds, $m::DS),
                (Enc::Flat, $m::FLAT),
                (Enc::Scratch, $m::SCRATCH),
                (Enc::Global, $m::GLOBAL),
                (Enc::Mubuf, $m::MUBUF),
            ])
        };
    }
    let map = match target {
        Target::Gfx9 => return None,
        Target::Gfx11 => GFX11.get_or_init(|| tables!(gfx11)),
        Target::Gfx12 => GFX12.get_or_init(|| tables!(gfx12)),
    };
    map.get(&(enc, op)).copied()
}

/// Halves of dual instructions; the first half has no opcodes above 15. Names as those of the single
/// instructions that do the same.
static VOPD: &[Row] = &[
    row(0, "v_fmac_f32", 1, 0, [1, 1, 0]),
    row(1, "v_fmaak_f32", 1, 0, [1, 1, 0]),
    row(2, "v_fmamk_f32", 1, 0, [1, 1, 0]),
    row(3, "v_mul_f32", 1, 0, [1, 1, 0]),
    row(4, "v_add_f32", 1, 0, [1, 1, 0]),
    row(5, "v_sub_f32", 1, 0, [1, 1, 0]),
    row(6, "v_subrev_f32", 1, 0, [1, 1, 0]),
    row(7, "v_mul_dx9_zero_f32", 1, 0, [1, 1, 0]),
    row(8, "v_mov_b32", 1, 0, [1, 0, 0]),
    row(9, "v_cndmask_b32", 1, 0, [1, 1, M]),
    row(10, "v_max_f32", 1, 0, [1, 1, 0]),
    row(11, "v_min_f32", 1, 0, [1, 1, 0]),
    row(12, "v_dot2acc_f32_f16", 1, 0, [1, 1, 0]),
    row(16, "v_add_nc_u32", 1, 0, [1, 1, 0]),
    row(17, "v_lshlrev_b32", 1, 0, [1, 1, 0]),
    row(18, "v_and_b32", 1, 0, [1, 1, 0]),
];
