//! One row for each GPU generation: what differs, and why.
//!
//! A new GPU is a row here, its register tables and, where a block works differently, a branch in
//! that block's file. Registers and fields that a version lacks are not listed: the tables say so.

use crate::firmware::SosComponent;
use crate::reg::smu::{self, Messages, SmuError};

/// A component that the PSP's bootloader loads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BootloaderStep {
    /// The step is left out unless the container has this component.
    pub component: SosComponent,
    /// The image that is sent.
    pub image: SosComponent,
    /// Command (`PSP_BL__*`, amdgpu_psp.h).
    pub command: u32,
}

/// A GPU generation.
#[derive(PartialEq, Eq, Debug)]
pub struct Chip {
    /// Code name.
    pub name: &'static str,
    /// Version of the graphics block.
    pub gc: (u8, u8, u8),
    /// Name of the compiler's target.
    pub target: &'static str,
    /// Whether the driver must provide the trusted memory region; from GC 12 on the PSP reserves it
    /// at power-on (`boot_time_tmr`, amdgpu_psp.c).
    pub driver_tmr: bool,
    /// Components in the order in which the bootloader takes them.
    pub bootloader: &'static [BootloaderStep],
    /// Version of the SMU's firmware interface (MP1).
    pub mp1: (u8, u8, u8),
    /// GFX engines whose RS64 program start must be set before the MEC's.
    pub rs64_gfx: bool,
    /// Pipes of the first MEC (`num_pipe_per_mec`, gfx_v11_0.c, gfx_v12_0.c).
    pub mec_pipes: u8,
    /// Queues of a MEC pipe (`num_queue_per_pipe`).
    pub mec_queues: u8,
    /// Fixed bits of `VM_CONTEXT0_CNTL` beside the named fields; see [`VM_CONTEXT_FIXED`].
    pub vm_context_fixed: u32,
}

/// Bits 23 and 24 of `VM_CONTEXT0_CNTL`. The headers of GC 11 name no field there; in those of
/// MMHUB 4.1 they are the upper execute bit and the first of the secure fault bits. The reference
/// sets them on all generations.
pub const VM_CONTEXT_FIXED: u32 = 0x0180_0000;

use SosComponent::{DbgDrv, IntfDrv, IpKeyMgrDrv, Kdb, RasDrv, SocDrv, Sos, Spl, SysDrv};

const fn step(component: SosComponent, command: u32) -> BootloaderStep {
    BootloaderStep { component, image: component, command }
}

/// On MP0 13.x the policy step gets the key database once more, and only where the container has a
/// policy table (`psp_v13_0_bootloader_load_spl`, psp_v13_0.c).
const SPL_13: BootloaderStep = BootloaderStep { component: Spl, image: Kdb, command: 0x1000_0000 };

/// MP0 13.x. The order is that of `psp_hw_start` (amdgpu_psp.c).
const BOOTLOADER_13: &[BootloaderStep] = &[
    step(Kdb, 0x8_0000),
    SPL_13,
    step(SysDrv, 0x1_0000),
    step(SocDrv, 0xb_0000),
    step(IntfDrv, 0xd_0000),
    step(DbgDrv, 0xc_0000),
    step(RasDrv, 0xe_0000),
    step(Sos, 0x2_0000),
];

/// MP0 14.x loads an IP key manager between the RAS driver and the secure OS.
const BOOTLOADER_14: &[BootloaderStep] = &[
    step(Kdb, 0x8_0000),
    step(Spl, 0x1000_0000),
    step(SysDrv, 0x1_0000),
    step(SocDrv, 0xb_0000),
    step(IntfDrv, 0xd_0000),
    step(DbgDrv, 0xc_0000),
    step(RasDrv, 0xe_0000),
    step(IpKeyMgrDrv, 0xf_0000),
    step(Sos, 0x2_0000),
];

const fn gfx11(name: &'static str, gc: (u8, u8, u8), mp1: (u8, u8, u8), target: &'static str) -> Chip {
    Chip {
        name,
        gc,
        target,
        driver_tmr: true,
        bootloader: BOOTLOADER_13,
        mp1,
        rs64_gfx: false,
        mec_pipes: 4,
        mec_queues: 4,
        vm_context_fixed: VM_CONTEXT_FIXED,
    }
}

const fn gfx12(name: &'static str, gc: (u8, u8, u8), mp1: (u8, u8, u8), target: &'static str) -> Chip {
    Chip {
        name,
        gc,
        target,
        driver_tmr: false,
        bootloader: BOOTLOADER_14,
        mp1,
        rs64_gfx: true,
        mec_pipes: 2,
        mec_queues: 4,
        vm_context_fixed: VM_CONTEXT_FIXED,
    }
}

impl Chip {
    /// Numbers and layouts of the SMU's interface.
    ///
    /// # Errors
    /// [`SmuError::Unsupported`], for a row with a version that the generated tables lack.
    pub fn smu(&self) -> Result<&'static Messages, SmuError> {
        smu::for_version(self.mp1)
    }
}

/// All supported generations.
pub static CHIPS: [Chip; 5] = [
    gfx11("Navi31", (11, 0, 0), (13, 0, 0), "gfx1100"),
    gfx11("Navi33", (11, 0, 2), (13, 0, 7), "gfx1102"),
    // Not gfx1103, which is an APU (GC 11.0.1).
    gfx11("Navi32", (11, 0, 3), (13, 0, 10), "gfx1101"),
    gfx12("Navi44", (12, 0, 0), (14, 0, 2), "gfx1200"),
    gfx12("Navi48", (12, 0, 1), (14, 0, 3), "gfx1201"),
];

/// The row for a version of the graphics block.
pub fn find(gc: (u8, u8, u8)) -> Option<&'static Chip> {
    CHIPS.iter().find(|c| c.gc == gc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gc_11_0_3_is_gfx1101_and_gc_11_0_1_is_unknown() {
        assert_eq!(find((11, 0, 3)).map(|c| c.target), Some("gfx1101"));
        assert!(find((11, 0, 1)).is_none());
    }

    #[test]
    fn the_ip_key_manager_is_loaded_before_the_secure_os_on_mp0_14() {
        let chip = find((12, 0, 1)).unwrap();
        let order: Vec<_> = chip.bootloader.iter().map(|s| s.component).collect();
        assert_eq!(&order[order.len() - 2..], [IpKeyMgrDrv, Sos]);
    }

    extern crate std;
    use std::vec::Vec;
}
