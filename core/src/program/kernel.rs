//! A kernel of a code object: its checks, registers and needs.

use super::descriptor::{KernelDescriptor, UserSgpr};
use super::{CodeObject, DYNAMIC_STACK, Isa, KernelMetadata, MAX_KERNARG, Name, ProgramError, Segment};
use crate::iface::{Properties, Target};
use crate::queue::dispatch::{KernelRegs, Launch};

/// A kernel of a code object. Addresses are relative to the load address.
#[derive(Clone, Copy, Debug)]
pub struct Kernel<'a> {
    /// Its name; empty if the object has no symbols.
    pub name: &'a str,
    /// Address of its descriptor.
    pub descriptor_vaddr: u64,
    /// The descriptor.
    pub descriptor: KernelDescriptor,
    /// Address of its first instruction.
    pub entry: u64,
    /// Bytes of its code, from its symbol.
    pub code_size: Option<u64>,
    /// What the note says of it.
    pub metadata: Option<KernelMetadata<'a>>,
    pub(super) isa: Option<Isa>,
}

/// LDS is given to workgroups in units of this many bytes (`COMPUTE_PGM_RSRC2.LDS_SIZE`).
const LDS_GRANULE: u32 = 512;

impl<'a> Kernel<'a> {
    pub(super) fn check(&self, object: &CodeObject<'_>) -> Result<(), ProgramError> {
        let fault =
            |field, value, why| Err(ProgramError::Kernel { name: Name::new(self.name), field, value, why });
        let d = &self.descriptor;
        if !self.descriptor_vaddr.is_multiple_of(64) {
            return fault("address of the descriptor", self.descriptor_vaddr, "it is not a multiple of 64");
        }
        let linked = object.tables.has_segments();
        if d.entry_offset == 0 && (linked || object.tables.has_symbols()) {
            return fault("kernel_code_entry_byte_offset", 0, "the descriptor itself is no code");
        }
        let inside = |s: &Segment<'_>| {
            s.executable && self.entry.checked_sub(s.vaddr).is_some_and(|at| at < s.data.len() as u64)
        };
        if !object.segments().any(|s| inside(&s)) {
            return fault(
                "kernel_code_entry_byte_offset",
                d.entry_offset as u64,
                "the entry is not in an executable part of the image",
            );
        }
        if linked && !self.entry.is_multiple_of(256) {
            return fault("entry address", self.entry, "it is not a multiple of 256");
        }
        if d.kernarg_size > MAX_KERNARG {
            return fault("kernarg_size", d.kernarg_size as u64, "more than 1 MiB of arguments");
        }
        let max = self.isa.map_or(64 << 10, |isa| isa.max_lds());
        // Objects loaded by sections are held against the device's LDS when they are used.
        if linked && d.group_segment_size > max {
            return Err(ProgramError::TooMuchLds {
                name: Name::new(self.name),
                need: d.group_segment_size as u64,
                max: max as u64,
            });
        }
        Ok(())
    }

    pub(super) fn check_metadata(&self, m: &KernelMetadata<'_>) -> Result<(), ProgramError> {
        let size = self.descriptor.kernarg_size as u64;
        if m.kernarg_segment_size.is_some_and(|said| said != size) {
            return Err(ProgramError::Kernel {
                name: Name::new(self.name),
                field: "kernarg_size",
                value: size,
                why: "the metadata says another size",
            });
        }
        Ok(())
    }

    /// Vector registers of a work-item.
    pub fn vgprs(&self) -> u32 {
        let granule = self.isa.map_or(8, |isa| isa.vgpr_granule(self.descriptor.wave32()));
        ((self.descriptor.rsrc1 & 63) + 1) * granule
    }

    /// Whether it finds the scratch descriptor in SGPRs.
    pub fn scratch_in_sgprs(&self) -> bool {
        self.descriptor.has_user_sgpr(UserSgpr::PrivateSegmentBuffer)
    }

    /// Scratch that [`crate::queue::scratch::Scratch::for_kernel`] has to provide for, in bytes per
    /// work-item: its private memory, at least [`DYNAMIC_STACK`] if its stack grows as it runs.
    /// Waves of 64 on gfx10 and later count twice, since slots are sized for waves of 32.
    pub fn scratch_per_item(&self, device: Target) -> u32 {
        let d = &self.descriptor;
        let stack = if d.uses_dynamic_stack() { DYNAMIC_STACK } else { 0 };
        let need = d.private_segment_size.max(stack);
        if device.major >= 10 && !d.wave32() { need.saturating_mul(2) } else { need }
    }

    /// Register values for a dispatch of this kernel from an object loaded at `base`, with
    /// `dynamic_lds` bytes of LDS beyond its own.
    pub fn regs(&self, props: &Properties, base: u64, dynamic_lds: u32) -> Result<KernelRegs, ProgramError> {
        let d = &self.descriptor;
        let need = d.group_segment_size as u64 + dynamic_lds as u64;
        let max = props.lds_kib as u64 * 1024;
        if need > max {
            return Err(ProgramError::TooMuchLds { name: Name::new(self.name), need, max });
        }
        let granules = need.div_ceil(LDS_GRANULE as u64) as u32 & 0x1ff;
        // PRIV on gfx11: without it a wave that is saved and restored by CWSR (compute wave save and
        // restore) would lose state that only privileged waves keep; the reference sets it as well.
        let privileged = if props.target.major == 11 { 1 << 20 } else { 0 };
        Ok(KernelRegs {
            entry: base.wrapping_add(self.entry),
            rsrc1: d.rsrc1 | privileged,
            rsrc2: d.rsrc2 | granules << 15,
            rsrc3: d.rsrc3,
            wave32: d.wave32(),
        })
    }

    /// An error if the kernel was not compiled for this launch.
    pub fn check_launch(&self, launch: &Launch) -> Result<(), ProgramError> {
        let Some(m) = &self.metadata else { return Ok(()) };
        if let Some(size) = m.reqd_workgroup_size.filter(|s| *s != launch.block && *s != [0; 3]) {
            return Err(ProgramError::BlockSize { name: Name::new(self.name), size });
        }
        let given = launch.block.iter().fold(1u64, |n, d| n.saturating_mul(*d as u64));
        match m.max_flat_workgroup_size {
            Some(max) if given > max => {
                Err(ProgramError::BlockTooLarge { name: Name::new(self.name), max, given })
            }
            _ => Ok(()),
        }
    }
}
