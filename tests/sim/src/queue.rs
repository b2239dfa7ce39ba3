//! Setting queues up: hardware queue descriptors of the MECs, and SDMA's queue registers.

use crate::cp::{ComputeQueue, ComputeQueueConfig};
use crate::device::Device;
use crate::env::{Access, Hub, Kind};
use crate::gfx::Running;
use crate::isa::Target;
use crate::sdma::{SdmaQueue, SdmaQueueConfig, SdmaVersion};
use crate::violation::Rule;
use crate::watch::QueueId;

/// UTCL2 client of the compute command processor.
const CLIENT_CPC: u16 = 5;

impl Device {
    fn target(&self) -> Target {
        if self.config.chip.gfx12() { Target::Gfx12 } else { Target::Gfx11 }
    }

    /// CP_HQD_ACTIVE was written in the bank that GRBM_GFX_CNTL selects.
    pub(crate) fn hqd_active(&mut self, value: u32) {
        let bank = self.regs.grbm() & 0x70f;
        self.gfx.compute.retain(|q| q.key.0 != bank);
        self.watch.removed(QueueId::Compute(bank));
        if value & 1 == 0 {
            return;
        }
        let (me, pipe, queue) = ((bank >> 2 & 3) as u8, (bank & 3) as u8, (bank >> 8 & 7) as u8);
        let who = format!("queue {me}.{pipe}.{queue}");
        if me == 0 {
            self.violation(
                Rule::QueueSetup,
                format!("{who}: CP_HQD_ACTIVE without a MEC selected in GRBM_GFX_CNTL"),
            );
            return;
        }
        if !self.gfx.mec_started && !self.gfx.mec_wanted {
            self.violation(Rule::EngineBeforeFirmware, format!("{who} activated before its MEC runs"));
            return;
        }
        let v = |n: &str| self.regs.val(n);
        let f = |r: &str, n: &str| self.regs.fld(r, n);
        let pair = |lo: &str, hi: &str| self.regs.pair(lo, hi);
        let dwords = 2u64 << f("CP_HQD_PQ_CONTROL", "QUEUE_SIZE");
        let eop_dwords = 2u64 << f("CP_HQD_EOP_CONTROL", "EOP_SIZE");
        let ring_va = pair("CP_HQD_PQ_BASE", "CP_HQD_PQ_BASE_HI") << 8;
        let eop_va = pair("CP_HQD_EOP_BASE_ADDR", "CP_HQD_EOP_BASE_ADDR_HI") << 8;
        let rptr_report_va = pair("CP_HQD_PQ_RPTR_REPORT_ADDR", "CP_HQD_PQ_RPTR_REPORT_ADDR_HI") & !3;
        let enabled = f("CP_HQD_PQ_DOORBELL_CONTROL", "DOORBELL_EN") != 0;
        let doorbell = f("CP_HQD_PQ_DOORBELL_CONTROL", "DOORBELL_OFFSET");
        let vmid = f("CP_HQD_VMID", "VMID") as u8;
        let (low, high) = (v("CP_MEC_DOORBELL_RANGE_LOWER") & !3, v("CP_MEC_DOORBELL_RANGE_UPPER") & !3);
        let mqd_va = pair("CP_MQD_BASE_ADDR", "CP_MQD_BASE_ADDR_HI");
        let rptr = v("CP_HQD_PQ_RPTR");
        let wptr = pair("CP_HQD_PQ_WPTR_LO", "CP_HQD_PQ_WPTR_HI");
        let mut wrong = Vec::new();
        if ring_va == 0 || ring_va % 256 != 0 {
            wrong.push(format!("ring base {ring_va:#x}"));
        }
        if dwords < 64 || !crate::cp::ring_fits(ring_va, dwords.saturating_mul(4)) {
            wrong.push(format!("ring of {dwords:#x} dwords at {ring_va:#x}"));
        }
        if eop_va == 0 || eop_dwords < 512 {
            wrong.push(format!("end-of-pipe buffer of {eop_dwords:#x} dwords at {eop_va:#x}"));
        }
        if rptr_report_va == 0 {
            wrong.push("no address for the read pointer".into());
        }
        if enabled && !(low..=high).contains(&(doorbell << 2)) {
            wrong.push(format!("doorbell {doorbell:#x} outside of the MEC's range {low:#x}..={high:#x}"));
        }
        if mqd_va == 0 {
            wrong.push("no MQD".into());
        } else if let Some(why) = self.mqd_differs(mqd_va) {
            wrong.push(why);
        }
        let fatal = wrong.len();
        for why in wrong {
            self.violation(Rule::QueueSetup, format!("{who}: {why}"));
        }
        let target = self.target();
        if fatal != 0 && !self.config.judge {
            return;
        }
        let config = ComputeQueueConfig {
            target,
            me,
            pipe,
            queue,
            vmid,
            ring_va,
            ring_dwords: dwords,
            rptr: u64::from(rptr),
            wptr,
            rptr_report_va,
            eop_va,
            eop_dwords: eop_dwords as u32,
        };
        self.gfx.compute.push(Running {
            key: (bank, 0),
            doorbell: enabled.then_some(doorbell),
            queue: Some(ComputeQueue::new(config)),
            busy_until: 0,
            poll_ns: 0,
            long: 0,
            idle: true,
        });
    }

    /// The MQD image against the registers that were loaded from it.
    fn mqd_differs(&mut self, va: u64) -> Option<String> {
        let who = Access { hub: Hub::Gc, vmid: 0, client: CLIENT_CPC, kind: Kind::Read };
        let mut mqd = [0; 2048];
        if let Err(f) = self.mem_read(who, va, &mut mqd) {
            return Some(format!("MQD at {va:#x}: memory fault at {:#x}", f.va));
        }
        let word =
            |i: usize| u32::from_le_bytes([mqd[i * 4], mqd[i * 4 + 1], mqd[i * 4 + 2], mqd[i * 4 + 3]]);
        if word(0) != 0xC031_0800 {
            return Some(format!("MQD at {va:#x} starts with {:#x}", word(0)));
        }
        // `struct v11_compute_mqd`: dword 0x80 on are the registers from CP_MQD_BASE_ADDR on.
        let first = self.regs.addr("CP_MQD_BASE_ADDR")?;
        for name in [
            "CP_MQD_BASE_ADDR",
            "CP_HQD_VMID",
            "CP_HQD_PQ_BASE",
            "CP_HQD_PQ_BASE_HI",
            "CP_HQD_PQ_CONTROL",
            "CP_HQD_PQ_DOORBELL_CONTROL",
            "CP_HQD_PQ_RPTR_REPORT_ADDR",
            "CP_HQD_EOP_BASE_ADDR",
            "CP_HQD_EOP_CONTROL",
        ] {
            let addr = self.regs.addr(name)?;
            let (image, reg) = (word(0x80 + (addr - first) as usize), self.regs.get(addr));
            if image != reg {
                return Some(format!("{name} is {reg:#x}, {image:#x} in its MQD"));
            }
        }
        None
    }

    /// A register of an SDMA queue was written.
    pub(crate) fn sdma_queue(&mut self, instance: u8, queue: u8, name: &str, old: u32, value: u32) {
        let p = format!("SDMA{instance}_QUEUE{queue}_");
        let key = (u32::from(instance), u32::from(queue));
        let Some(which) = name.strip_prefix(p.as_str()) else { return };
        match which {
            "RB_CNTL" => {
                let cntl = format!("{p}RB_CNTL");
                let on = |v| self.regs.extract(&cntl, "RB_ENABLE", v) != 0;
                if on(value) && !on(old) {
                    self.sdma_activate(instance, queue, value);
                } else if !on(value) {
                    self.watch.removed(QueueId::Sdma(key.0, key.1));
                    self.gfx.sdma.retain(|q| q.key != key);
                }
            }
            "RB_WPTR" | "RB_WPTR_HI" => {
                let wptr = self.regs.pair(&format!("{p}RB_WPTR"), &format!("{p}RB_WPTR_HI"));
                let update = self.regs.val(&format!("{p}MINOR_PTR_UPDATE")) == 0;
                if update && self.gfx.sdma.iter().any(|q| q.key == key) {
                    self.ring_sdma(key, wptr);
                }
            }
            "DOORBELL" | "DOORBELL_OFFSET" => {
                let doorbell = self.sdma_doorbell(instance, queue);
                if let Some(q) = self.gfx.sdma.iter_mut().find(|q| q.key == key) {
                    q.doorbell = doorbell;
                }
            }
            _ => {}
        }
    }

    /// `CONTEXT_STATUS`: what a driver that stops a queue waits for (`hqd_sdma_destroy_v11`).
    pub(crate) fn sdma_context_status(&self, instance: u8, queue: u8) -> u32 {
        let key = (u32::from(instance), u32::from(queue));
        let idle = self.gfx.sdma.iter().find(|q| q.key == key).is_none_or(|q| q.idle);
        let bit =
            |field| self.regs.field("SDMA0_QUEUE0_CONTEXT_STATUS", field).map_or(0, |(lsb, _)| 1 << lsb);
        if idle { bit("IDLE") } else { bit("SELECTED") }
    }

    fn sdma_doorbell(&self, instance: u8, queue: u8) -> Option<u32> {
        let p = format!("SDMA{instance}_QUEUE{queue}_");
        (self.regs.fld(&format!("{p}DOORBELL"), "ENABLE") != 0)
            .then(|| self.regs.fld(&format!("{p}DOORBELL_OFFSET"), "OFFSET"))
    }

    fn sdma_activate(&mut self, instance: u8, queue: u8, cntl: u32) {
        let p = format!("SDMA{instance}_QUEUE{queue}_");
        let who = format!("SDMA{instance} queue {queue}");
        if !self.gfx.sdma_started[usize::from(instance)] {
            self.violation(Rule::EngineBeforeFirmware, format!("{who} enabled before its engine runs"));
            return;
        }
        let name = format!("{p}RB_CNTL");
        let f = |field: &str| self.regs.extract(&name, field, cntl);
        let pair = |a: &str, b: &str| self.regs.pair(&format!("{p}{a}"), &format!("{p}{b}"));
        let ring_va = pair("RB_BASE", "RB_BASE_HI") << 8;
        let ring_bytes = 4u64 << f("RB_SIZE");
        let report = pair("RB_RPTR_ADDR_LO", "RB_RPTR_ADDR_HI") & !3;
        let writeback = f("RPTR_WRITEBACK_ENABLE") != 0;
        let (vmid, privileged) = (f("RB_VMID") as u8, f("RB_PRIV") != 0);
        let (rptr, wptr) = (pair("RB_RPTR", "RB_RPTR_HI"), pair("RB_WPTR", "RB_WPTR_HI"));
        if ring_va == 0 || ring_bytes < 256 {
            self.violation(Rule::QueueSetup, format!("{who}: ring of {ring_bytes:#x} bytes at {ring_va:#x}"));
            return;
        }
        if writeback && report == 0 {
            self.violation(Rule::QueueSetup, format!("{who}: read pointer write-back without an address"));
            return;
        }
        let version = if self.config.chip.gfx12() { SdmaVersion::V7_0 } else { SdmaVersion::V6_0 };
        let config = SdmaQueueConfig {
            version,
            instance,
            queue,
            ring_va,
            ring_bytes,
            rptr,
            wptr,
            rptr_report_va: writeback.then_some(report),
            vmid,
            privileged,
        };
        let doorbell = self.sdma_doorbell(instance, queue);
        let key = (u32::from(instance), u32::from(queue));
        self.watch.removed(QueueId::Sdma(key.0, key.1));
        self.gfx.sdma.retain(|q| q.key != key);
        self.gfx.sdma.push(Running {
            key,
            doorbell,
            queue: Some(SdmaQueue::new(config)),
            busy_until: 0,
            poll_ns: 0,
            long: 0,
            idle: rptr == wptr,
        });
    }
}
