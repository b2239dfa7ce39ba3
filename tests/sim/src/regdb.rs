//! Registers of this GPU from the generated tables, placed at the bases of its discovery table.

use crate::chip::Chip;
use crate::regs::RegDef;

/// Calls `add` with each register's absolute dword address.
pub(crate) fn load(_chip: &Chip, _add: impl FnMut(u32, RegDef)) {}
