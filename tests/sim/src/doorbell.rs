//! Doorbells: from a store to BAR2 through the S2A ranges to the engine that listens.

use crate::device::Device;
use crate::violation::Rule;

/// S2A entries (`nbio_4_3_0`, `nbif_6_3_1`).
const PORTS: u8 = 16;
/// AWIDs that the drivers program: which client an entry sends doorbells to.
const AWID_SDMA: u32 = 0xe;
const AWID_IH: u32 = 0;

impl Device {
    fn s2a(&self, port: u8) -> Option<(u32, u32, u32)> {
        let g = if self.config.chip.gfx12() { "GDC_S2A0_" } else { "" };
        let reg = format!("{g}S2A_DOORBELL_ENTRY_{port}_CTRL");
        let value = self.regs.val(&reg);
        let f = |field: &str| self.regs.extract(&reg, &format!("S2A_DOORBELL_PORT{port}_{field}"), value);
        (f("ENABLE") != 0).then(|| (f("AWID"), f("RANGE_OFFSET"), f("RANGE_SIZE")))
    }

    /// A store to BAR2; `index` counts dwords.
    pub(crate) fn doorbell(&mut self, index: u32, value: u64, len: usize) {
        self.counts.doorbells += 1;
        if self.regs.val("RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN") & 1 == 0 {
            self.violation(
                Rule::DoorbellBeforeActivation,
                format!("doorbell {index:#x} while the aperture is disabled"),
            );
            return;
        }
        let entries: Vec<_> = (0..PORTS).filter_map(|p| self.s2a(p)).collect();
        let ranged = entries.iter().find(|(_, at, size)| *size != 0 && (*at..at + size).contains(&index));
        match ranged {
            Some((AWID_IH, ..)) => self.doorbell_ih(index, value),
            Some((AWID_SDMA, ..)) => self.doorbell_sdma(index, value, len),
            Some(_) => self.doorbell_cp(index, value, len),
            // Entries without a range are the command processors': they take what is left.
            None if entries.iter().any(|(_, _, size)| *size == 0) => self.doorbell_cp(index, value, len),
            None => self.violation(
                Rule::DoorbellBeforeActivation,
                format!("doorbell {index:#x} is in no range of the S2A entries"),
            ),
        }
    }

    fn doorbell_ih(&mut self, index: u32, value: u64) {
        for (ring, suffix) in [(0, ""), (1, "_RING1")] {
            let reg = format!("IH_DOORBELL_RPTR{suffix}");
            if self.regs.fld(&reg, "ENABLE") != 0 && self.regs.fld(&reg, "OFFSET") == index {
                self.regs.put(&format!("IH_RB_RPTR{suffix}"), value as u32);
                self.ih_rptr(ring);
                return;
            }
        }
        self.violation(Rule::DoorbellBeforeActivation, format!("IH doorbell {index:#x} belongs to no ring"));
    }

    fn wide(&mut self, index: u32, len: usize) {
        if len != 8 || !index.is_multiple_of(2) {
            self.violation(
                Rule::BadAccess,
                format!("doorbell {index:#x} of a queue rung with {len} bytes: it is 8 bytes, aligned"),
            );
        }
    }

    fn doorbell_sdma(&mut self, index: u32, value: u64, len: usize) {
        self.wide(index, len);
        match self.gfx.sdma.iter().find(|q| q.doorbell == Some(index)).map(|q| q.key) {
            Some(key) => {
                let p = format!("SDMA{}_QUEUE{}_RB_WPTR", key.0, key.1);
                self.regs.put(&p, value as u32);
                self.regs.put(&format!("{p}_HI"), (value >> 32) as u32);
                self.ring_sdma(key, value);
            }
            None => self.violation(
                Rule::DoorbellBeforeActivation,
                format!("SDMA doorbell {index:#x} belongs to no enabled queue"),
            ),
        }
    }

    fn doorbell_cp(&mut self, index: u32, value: u64, len: usize) {
        self.wide(index, len);
        let low = self.regs.val("CP_MEC_DOORBELL_RANGE_LOWER") & !3;
        let high = self.regs.val("CP_MEC_DOORBELL_RANGE_UPPER") & !3;
        let inside = (low..=high).contains(&(index << 2));
        match self.gfx.compute.iter().position(|q| q.doorbell == Some(index)) {
            Some(at) if inside => {
                let bank = self.gfx.compute[at].key.0;
                for (name, v) in
                    [("CP_HQD_PQ_WPTR_LO", value as u32), ("CP_HQD_PQ_WPTR_HI", (value >> 32) as u32)]
                {
                    if let Some(a) = self.regs.addr(name) {
                        self.regs.set_at(a, bank, v);
                    }
                }
                self.ring_compute(at, value);
            }
            _ => self.violation(
                Rule::DoorbellBeforeActivation,
                format!(
                    "doorbell {index:#x} belongs to no active compute queue (MEC range {low:#x}..={high:#x})"
                ),
            ),
        }
    }
}
