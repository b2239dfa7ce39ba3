//! The interrupt handler: entries of 32 bytes in rings, write pointer, overflow, MSI.
//!
//! Entry layout: `amdgpu_ih_decode_iv_helper`; registers: `osssys_6_0_0`.

use crate::config::Fault;
use crate::device::Device;
use crate::env::{Access, Hub, Interrupt, Kind};
use crate::violation::Rule;

const ENTRY: u32 = 32;
/// UTCL2 client of the interrupt handler on MMHUB (`mmhub_client_ids_v3_0_0`).
const CLIENT_IH: u16 = 3;
const SUFFIX: [&str; 2] = ["", "_RING1"];

#[derive(Default)]
pub(crate) struct Ih {
    /// The MSI for ring 0 was sent and the read pointer has not moved since.
    sent: bool,
    busy: bool,
}

impl Ih {
    pub(crate) fn reset(&mut self) {
        *self = Ih::default();
    }
}

impl Device {
    fn ih_size(&self, ring: u8) -> u64 {
        let name = format!("IH_RB_CNTL{}", SUFFIX[usize::from(ring)]);
        4 << self.regs.fld(&name, "RB_SIZE")
    }

    fn ih_base(&self, ring: u8) -> u64 {
        let s = SUFFIX[usize::from(ring)];
        let lo = u64::from(self.regs.val(&format!("IH_RB_BASE{s}")));
        let hi = u64::from(self.regs.val(&format!("IH_RB_BASE_HI{s}")));
        (hi << 32 | lo) << 8
    }

    /// IH_RB_CNTL was written.
    pub(crate) fn ih_cntl(&mut self, ring: u8, old: u32, value: u32) {
        let name = format!("IH_RB_CNTL{}", SUFFIX[usize::from(ring)]);
        if self.regs.extract(&name, "WPTR_OVERFLOW_CLEAR", value) != 0 {
            let wptr = format!("IH_RB_WPTR{}", SUFFIX[usize::from(ring)]);
            let v = self.regs.val(&wptr);
            self.regs.put(&wptr, v & !1);
        }
        let on = |v| self.regs.extract(&name, "RB_ENABLE", v) != 0;
        if on(value) && !on(old) {
            let (base, size) = (self.ih_base(ring), self.ih_size(ring));
            if base == 0 {
                self.violation(Rule::QueueSetup, format!("{name}: the ring is enabled without a base"));
            }
            self.structure(&format!("IH ring {ring}"), base, size);
            if ring == 0 {
                let wptr = self.regs.pair("IH_RB_WPTR_ADDR_LO", "IH_RB_WPTR_ADDR_HI");
                if wptr != 0 {
                    self.structure("IH write pointer", wptr, 8);
                }
            }
        } else if on(old) && !on(value) {
            self.forget(&format!("IH ring {ring}"));
        }
    }

    /// The read pointer moved.
    pub(crate) fn ih_rptr(&mut self, ring: u8) {
        let s = SUFFIX[usize::from(ring)];
        let rptr = self.regs.val(&format!("IH_RB_RPTR{s}")) & !3;
        let wptr = self.regs.val(&format!("IH_RB_WPTR{s}")) & !3;
        if u64::from(rptr) >= self.ih_size(ring) || !rptr.is_multiple_of(ENTRY) {
            if self.regs.fld(&format!("IH_RB_CNTL{s}"), "RB_ENABLE") != 0 && !self.config.judge {
                self.violation(
                    Rule::RingOverrun,
                    format!("IH_RB_RPTR{s} = {rptr:#x} is no entry of the ring"),
                );
            }
            return;
        }
        if ring == 0 {
            self.ih.sent = false;
            if rptr != wptr {
                self.msi();
            }
        }
    }

    fn msi(&mut self) {
        if self.regs.fld("IH_RB_CNTL", "ENABLE_INTR") == 0 || std::mem::replace(&mut self.ih.sent, true) {
            return;
        }
        if !self.config.faults.contains(&Fault::LostInterrupt) {
            self.send_msi();
        }
    }

    /// Any block's event: into ring 0, write pointer, MSI.
    pub(crate) fn raise(&mut self, i: Interrupt) {
        if self.regs.fld("IH_RB_CNTL", "RB_ENABLE") == 0 || std::mem::replace(&mut self.ih.busy, true) {
            return;
        }
        let ts = self.clock();
        let dw = [
            u32::from(i.client)
                | u32::from(i.source) << 8
                | u32::from(i.ring) << 16
                | u32::from(i.vmid & 0xf) << 24
                | u32::from(i.vmid_mm) << 31,
            ts as u32,
            (ts >> 32) as u32 & 0xffff,
            u32::from(i.pasid) | u32::from(i.node) << 16,
            i.data[0],
            i.data[1],
            i.data[2],
            i.data[3],
        ];
        let bytes: Vec<u8> = dw.iter().flat_map(|d| d.to_le_bytes()).collect();
        let who = Access { hub: Hub::Mm, vmid: 0, client: CLIENT_IH, kind: Kind::Write };
        let (base, size) = (self.ih_base(0), self.ih_size(0) as u32);
        let old = self.regs.val("IH_RB_WPTR");
        let at = (old & !3) % size.max(ENTRY);
        if self.mem_write(who, base.wrapping_add(at.into()), &bytes).is_ok() {
            let next = (at + ENTRY) % size.max(ENTRY);
            let rptr = self.regs.val("IH_RB_RPTR") & !3;
            let overflow =
                old & 1 | u32::from(next == rptr && self.regs.fld("IH_RB_CNTL", "WPTR_OVERFLOW_ENABLE") != 0);
            self.regs.put("IH_RB_WPTR", next | overflow);
            if self.regs.fld("IH_RB_CNTL", "WPTR_WRITEBACK_ENABLE") != 0 {
                let addr = self.regs.pair("IH_RB_WPTR_ADDR_LO", "IH_RB_WPTR_ADDR_HI");
                // A failed write-back has latched its fault; the ring goes on.
                let _ = self.mem_write(who, addr, &(next | overflow).to_le_bytes());
            }
            self.msi();
        }
        self.ih.busy = false;
    }
}
