//! Invalidation of the hubs' TLBs: 18 engines each, semaphores, acknowledgement by VMID; and what
//! is in them.

use crate::config::Stage;
use crate::device::{Device, Event};
use crate::env::Hub;
use crate::gmc::{ADDRESS, PAGE, SYSTEM, prefix};
use crate::violation::Rule;

/// Invalidation takes this long.
const INVALIDATE_NS: u64 = 2_000;

impl Device {
    /// The VRAM page behind a virtual page, if it is in the TLB.
    pub(crate) fn cached_vram(&self, hub: Hub, vmid: u8, va: u64) -> Option<u64> {
        let pte = self.gmc.tlb.get(&(hub, vmid, va / PAGE))?.pte;
        (pte & SYSTEM == 0).then_some((pte & ADDRESS) + va % PAGE)
    }

    /// True if a translation leads into this range of bus addresses.
    pub(crate) fn cached_system(&self, addr: u64, len: u64) -> bool {
        let inside = |pte: u64| pte & SYSTEM != 0 && (pte & ADDRESS).wrapping_sub(addr) < len;
        self.gmc.tlb.values().any(|e| inside(e.pte))
    }

    /// INVALIDATE_ENGn_REQ was written.
    pub(crate) fn invalidate(&mut self, hub: Hub, engine: u8, value: u32) {
        self.counts.tlb_flushes += 1;
        let (p, n) = (prefix(hub), engine);
        let req = format!("{p}VM_INVALIDATE_ENG{n}_REQ");
        let vmids = self.regs.extract(&req, "PER_VMID_INVALIDATE_REQ", value);
        let complete = ["INVALIDATE_L2_PTES", "INVALIDATE_L2_PDE0", "INVALIDATE_L1_PTES"]
            .iter()
            .all(|f| self.regs.extract(&req, f, value) != 0);
        // ACK is cleared by a request and set, by VMID, when it is done.
        let ack = format!("{p}VM_INVALIDATE_ENG{n}_ACK");
        let old = self.regs.val(&ack);
        self.regs.put(&ack, old & !vmids);
        if self.regs.extract(&req, "CLEAR_PROTECTION_FAULT_STATUS_ADDR", value) != 0 {
            self.clear_fault(hub);
        }
        let range_lo = self.hub_pair(hub, &format!("VM_INVALIDATE_ENG{n}_ADDR_RANGE"));
        let hang = if hub == Hub::Mm { Stage::TlbMm } else { Stage::TlbGc };
        if self.config.hangs(hang) {
            return;
        }
        // Without all caches named, or without an address range, only part would be invalidated:
        // entries stay, so that their use shows.
        if complete && range_lo != 0 {
            self.after(INVALIDATE_NS, Event::Invalidated { hub, engine, vmids });
        } else {
            self.after(INVALIDATE_NS, Event::Invalidated { hub, engine, vmids: 0 });
            self.violation(
                Rule::Other,
                format!(
                    "{req} = {value:#x}: does not invalidate PTEs, PDE0 and L1, or the address range is empty"
                ),
            );
        }
    }

    /// An invalidation is done.
    pub(crate) fn invalidated(&mut self, hub: Hub, engine: u8, vmids: u32) {
        self.gmc.recent.clear();
        self.gmc.tlb.retain(|(h, vmid, _), _| *h != hub || vmids >> vmid & 1 == 0);
        let ack = format!("{}VM_INVALIDATE_ENG{engine}_ACK", prefix(hub));
        let old = self.regs.val(&ack);
        self.regs.put(&ack, old | vmids);
    }

    /// L2_CNTL2.INVALIDATE_ALL_L1_TLBS and INVALIDATE_L2_CACHE, or a context that is rewritten.
    pub(crate) fn drop_tlb(&mut self, hub: Hub, vmid: Option<u8>) {
        self.gmc.recent.clear();
        self.gmc.tlb.retain(|(h, v, _), _| *h != hub || vmid.is_some_and(|m| m != *v));
    }

    /// Reading the semaphore takes it: 1 means it is ours.
    pub(crate) fn sem_read(&mut self, hub: Hub, engine: u8) -> u32 {
        let taken = self.gmc.sems.entry((hub, engine)).or_insert(false);
        u32::from(!std::mem::replace(taken, true))
    }

    /// Writing 0 gives it back.
    pub(crate) fn sem_write(&mut self, hub: Hub, engine: u8, value: u32) {
        if value == 0 {
            self.gmc.sems.insert((hub, engine), false);
        }
    }

    /// CLEAR_PROTECTION_FAULT_STATUS_ADDR.
    pub(crate) fn clear_fault(&mut self, hub: Hub) {
        let p = prefix(hub);
        for name in ["STATUS", "STATUS_LO32", "STATUS_HI32", "ADDR_LO32", "ADDR_HI32"] {
            self.regs.put(&format!("{p}VM_L2_PROTECTION_FAULT_{name}"), 0);
        }
    }
}
