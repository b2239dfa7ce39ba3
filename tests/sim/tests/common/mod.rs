//! A small driver that does everything right, to show what the strict device accepts.
#![allow(dead_code, reason = "each test binary uses a part")]

use amdev_sim::firmware::{synthetic, types_of_component, types_of_firmware};
use amdev_sim::{Config, SimGpu};

pub(crate) struct Driver {
    pub(crate) gpu: SimGpu,
    gfx12: bool,
    fence: u32,
}

// VRAM layout.
const ROOT: u64 = 0x0;
const IH: u64 = 0x10_0000;
const IH_WPTR: u64 = 0x20_0000;
const CMD: u64 = 0x20_1000;
const FENCE: u64 = 0x20_2000;
const RING: u64 = 0x21_0000;
const SMU_TABLE: u64 = 0x22_0000;
const MSG1: u64 = 0x30_0000;
const TMR: u64 = 0x40_0000;
const TABLES: u64 = 0x200_0000;
pub(crate) const HEAP: u64 = 0x300_0000;

const MC: u64 = 0x80_0000_0000;
/// Where the driver maps the heap, page by page.
pub(crate) const VA: u64 = 0x2000_0000_0000;
pub(crate) const PAGES: u64 = 512;

impl Driver {
    pub(crate) fn new(text: &str) -> Driver {
        let config = Config::parse(text).unwrap();
        let gfx12 = config.chip.gfx12();
        Driver { gpu: SimGpu::new(config), gfx12, fence: 0 }
    }

    fn addr(&self, name: &str) -> u32 {
        self.gpu.register(name).unwrap_or_else(|| panic!("no register {name}"))
    }

    pub(crate) fn w(&self, name: &str, value: u32) {
        let addr = self.addr(name);
        if addr >= 0x4_0000 {
            self.w("BIF_BX_PF0_RSMU_INDEX", addr * 4);
            self.w("BIF_BX_PF0_RSMU_DATA", value);
        } else {
            self.gpu.write(5, u64::from(addr) * 4, &value.to_le_bytes()).unwrap();
        }
    }

    pub(crate) fn r(&self, name: &str) -> u32 {
        let mut b = [0; 4];
        self.gpu.read(5, u64::from(self.addr(name)) * 4, &mut b).unwrap();
        u32::from_le_bytes(b)
    }

    pub(crate) fn f(&self, reg: &str, fields: &[(&str, u32)]) -> u32 {
        fields.iter().fold(0, |v, (f, x)| {
            let (shift, _) = self.gpu.field(reg, f).unwrap_or_else(|| panic!("no field {reg}.{f}"));
            v | x << shift
        })
    }

    pub(crate) fn wait(&self, name: &str, mask: u32, value: u32) {
        for _ in 0..100_000 {
            if self.r(name) & mask == value {
                return;
            }
            self.gpu.advance_us(10);
        }
        panic!("{name} is {:#x}, not {value:#x} under {mask:#x}; {:?}", self.r(name), self.gpu.violations());
    }

    pub(crate) fn vram(&self, at: u64, data: &[u8]) {
        self.gpu.write(0, at, data).unwrap();
    }

    pub(crate) fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut b = vec![0; len];
        self.gpu.read(0, at, &mut b).unwrap();
        b
    }

    pub(crate) fn hdp(&self) {
        let at = self.r("BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL");
        self.gpu.write(5, u64::from(at), &[0; 4]).unwrap();
    }

    fn psp(&self, n: u32) -> String {
        format!("{}_SMN_C2PMSG_{n}", if self.gfx12 { "MPASP" } else { "MP0" })
    }

    pub(crate) fn component(&self, id: u32) {
        self.wait(&self.psp(35), 0x8000_0000, 0x8000_0000);
        self.vram(MSG1, &synthetic(types_of_component(id)[0], id, 0x4000));
        self.hdp();
        self.w(&self.psp(36), ((MC + MSG1) >> 20) as u32);
        self.w(&self.psp(35), id);
        if id != 0x2_0000 {
            self.wait(&self.psp(35), 0x8000_0000, 0x8000_0000);
        }
    }

    /// Sends a command; its status.
    pub(crate) fn command(&mut self, id: u32, words: &[u32]) -> u32 {
        let mut cmd = [0u8; 1024];
        cmd[8..12].copy_from_slice(&id.to_le_bytes());
        for (i, w) in words.iter().enumerate() {
            cmd[28 + i * 4..32 + i * 4].copy_from_slice(&w.to_le_bytes());
        }
        self.vram(CMD, &cmd);
        let wptr = self.r(&self.psp(67));
        self.fence += 1;
        let fence = self.fence;
        let (cmd_mc, fence_mc) = (MC + CMD, MC + FENCE);
        let frame =
            [cmd_mc as u32, (cmd_mc >> 32) as u32, 0, fence_mc as u32, (fence_mc >> 32) as u32, fence];
        let mut bytes: Vec<u8> = frame.iter().flat_map(|w| w.to_le_bytes()).collect();
        bytes.resize(64, 0);
        self.vram(RING + u64::from(wptr) * 4, &bytes);
        self.hdp();
        self.w(&self.psp(67), (wptr + 16) % 0x400);
        for _ in 0..10_000 {
            if self.read(FENCE, 4) == fence.to_le_bytes() {
                let status = self.read(CMD + 864, 4);
                return u32::from_le_bytes([status[0], status[1], status[2], status[3]]);
            }
            self.gpu.advance_us(10);
        }
        panic!("no fence for command {id:#x}: {:?}", self.gpu.violations());
    }

    pub(crate) fn load(&mut self, kind: u32, len: usize) -> u32 {
        // On gfx12 SDMA's image has another type.
        let types = types_of_firmware(kind);
        let image_type = if self.gfx12 { types.last() } else { types.first() };
        self.vram(MSG1, &synthetic(image_type.copied().unwrap_or(0), kind, len));
        self.hdp();
        self.command(6, &[(MC + MSG1) as u32, 0x80, len as u32, kind])
    }

    pub(crate) fn smu(&self, message: u32, arg: u32) -> u32 {
        self.w("MP1_SMN_C2PMSG_90", 0);
        self.w("MP1_SMN_C2PMSG_82", arg);
        self.w("MP1_SMN_C2PMSG_66", message);
        self.wait("MP1_SMN_C2PMSG_90", u32::MAX, 1);
        self.r("MP1_SMN_C2PMSG_82")
    }

    pub(crate) fn hub(&self, p: &str) {
        let mc_end = MC + 0x5_ff00_0000 - 1;
        self.w(&format!("{p}MC_VM_AGP_BOT"), 0xff_ffff);
        self.w(&format!("{p}MC_VM_AGP_TOP"), 0);
        self.w(&format!("{p}MC_VM_SYSTEM_APERTURE_LOW_ADDR"), (MC >> 18) as u32);
        self.w(&format!("{p}MC_VM_SYSTEM_APERTURE_HIGH_ADDR"), (mc_end >> 18) as u32);
        let ctx = format!("{p}VM_CONTEXT0_");
        self.w(&format!("{ctx}PAGE_TABLE_START_ADDR_LO32"), (VA >> 12) as u32);
        self.w(&format!("{ctx}PAGE_TABLE_START_ADDR_HI32"), (VA >> 44) as u32);
        self.w(&format!("{ctx}PAGE_TABLE_END_ADDR_LO32"), u32::MAX);
        self.w(&format!("{ctx}PAGE_TABLE_END_ADDR_HI32"), 7);
        self.w(&format!("{ctx}PAGE_TABLE_BASE_ADDR_LO32"), ROOT as u32 | 1);
        self.w(&format!("{ctx}PAGE_TABLE_BASE_ADDR_HI32"), 0);
        self.w(&format!("{ctx}CNTL"), 0x01ff_fe07);
        for e in 0..18 {
            self.w(&format!("{p}VM_INVALIDATE_ENG{e}_ADDR_RANGE_LO32"), u32::MAX);
            self.w(&format!("{p}VM_INVALIDATE_ENG{e}_ADDR_RANGE_HI32"), 0x1f);
        }
    }

    pub(crate) fn invalidate(&self, p: &str) {
        self.hdp();
        self.w(&format!("{p}VM_INVALIDATE_ENG17_REQ"), 0x00f8_0001);
        self.wait(&format!("{p}VM_INVALIDATE_ENG17_ACK"), 1, 1);
    }

    fn pte(&self, pa: u64, flags: u64, leaf: bool) -> u64 {
        pa | flags | if self.gfx12 && leaf { 1 << 63 } else { 0 }
    }

    /// Maps page `i` of the window at [`VA`] to `pa`; flags as in a PTE.
    pub(crate) fn map(&self, i: u64, pa: u64, flags: u64) {
        self.vram(TABLES + 0x2000 + i * 8, &self.pte(pa, flags, true).to_le_bytes());
    }

    fn tables(&self) {
        self.vram(ROOT, &[0; 4096]);
        self.vram(TABLES, &[0; 0x3000]);
        self.vram(ROOT, &(TABLES | 1).to_le_bytes());
        self.vram(TABLES, &((TABLES + 0x1000) | 1).to_le_bytes());
        self.vram(TABLES + 0x1000, &((TABLES + 0x2000) | 1).to_le_bytes());
        for i in 0..PAGES {
            self.map(i, HEAP + i * 4096, 0x71);
        }
        self.hdp();
    }

    pub(crate) fn s2a(&self, port: u32, awid: u32, offset: u32, size: u32) {
        let reg = format!("{}S2A_DOORBELL_ENTRY_{port}_CTRL", if self.gfx12 { "GDC_S2A0_" } else { "" });
        let p = format!("S2A_DOORBELL_PORT{port}_");
        let value = self.f(
            &reg,
            &[
                (&format!("{p}ENABLE"), 1),
                (&format!("{p}AWID"), awid),
                (&format!("{p}RANGE_OFFSET"), offset),
                (&format!("{p}RANGE_SIZE"), size),
            ],
        );
        self.w(&reg, value);
    }

    pub(crate) fn boot(&mut self) {
        self.tables();
        self.w("RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN", 1);
        self.hub("MM");
        self.w("IH_RB_BASE", ((MC + IH) >> 8) as u32);
        self.w("IH_RB_BASE_HI", ((MC + IH) >> 40) as u32);
        self.w("IH_RB_WPTR_ADDR_LO", (MC + IH_WPTR) as u32);
        self.w("IH_RB_WPTR_ADDR_HI", ((MC + IH_WPTR) >> 32) as u32);
        // 512 KiB: 2^17 dwords.
        let cntl =
            [("RB_SIZE", 17), ("WPTR_WRITEBACK_ENABLE", 1), ("WPTR_OVERFLOW_ENABLE", 1), ("RPTR_REARM", 1)];
        let cntl = self.f("IH_RB_CNTL", &cntl);
        self.w("IH_RB_CNTL", cntl);
        self.w("IH_RB_CNTL", cntl | self.f("IH_RB_CNTL", &[("RB_ENABLE", 1), ("ENABLE_INTR", 1)]));
        self.s2a(1, 0, 752, 2);
        self.psp_boot();
        self.smu(0xe, 0x80);
        self.smu(0xf, SMU_TABLE as u32);
        self.smu(6, 0);
        self.wait("RLC_RLCS_BOOTLOAD_STATUS", 0x8000_0000, 0x8000_0000);
        self.gfx();
    }

    pub(crate) fn psp_boot(&mut self) {
        let all: &[u32] = if self.gfx12 {
            &[0x8_0000, 0x1000_0000, 0x1_0000, 0xB_0000, 0xD_0000, 0xC_0000, 0xE_0000, 0xF_0000, 0x2_0000]
        } else {
            &[0x8_0000, 0x1_0000, 0x2_0000]
        };
        all.iter().for_each(|c| self.component(*c));
        for _ in 0..1000 {
            if self.r(&self.psp(81)) != 0 {
                break;
            }
            self.gpu.advance_us(1000);
        }
        self.wait(&self.psp(64), 0x8000_0000, 0x8000_0000);
        self.w(&self.psp(69), (MC + RING) as u32);
        self.w(&self.psp(70), ((MC + RING) >> 32) as u32);
        self.w(&self.psp(71), 0x1000);
        self.w(&self.psp(64), 0x2_0000);
        self.wait(&self.psp(64), 0x8000_ffff, 0x8000_0000);
        self.vram(MSG1, &synthetic(0x0e, 0, 0x900));
        self.hdp();
        assert_eq!(self.command(0x20, &[(MC + MSG1) as u32, 0x80, 0x900]), 0);
        assert_eq!(self.load(18, 0x8000), 0);
        if !self.gfx12 {
            assert_eq!(self.command(5, &[(MC + TMR) as u32, 0x80, 0x130_0000, 2, TMR as u32, 0]), 0);
        }
        let images: &[u32] = if self.gfx12 {
            &[71, 87, 90, 88, 92, 89, 94, 68, 69, 26, 48, 8]
        } else {
            &[72, 71, 89, 94, 68, 69, 26, 48, 25, 7, 8]
        };
        for kind in images {
            assert_eq!(self.load(*kind, 0x2000 + *kind as usize * 16), 0);
        }
        assert_eq!(self.command(0x21, &[]), 0);
    }

    fn gfx(&self) {
        self.w("GRBM_GFX_CNTL", 4);
        self.w("CP_MEC_RS64_PRGRM_CNTR_START", 0xc00);
        self.w("CP_MEC_RS64_PRGRM_CNTR_START_HI", 0);
        self.w("GRBM_GFX_CNTL", 0);
        self.w("CP_MEC_RS64_CNTL", 1 << 16);
        self.w("CP_MEC_RS64_CNTL", 0);
        self.hub("GC");
        self.s2a(0, 3, 0, 0);
        self.s2a(2, 0xe, 512, 4);
        for vmid in 0..16 {
            self.w("GRBM_GFX_CNTL", vmid << 4);
            self.w("SH_MEM_CONFIG", 0xc00c);
            self.w("SH_MEM_BASES", 0x1_0002);
        }
        self.w("GRBM_GFX_CNTL", 0);
        self.w("CP_MEC_DOORBELL_RANGE_LOWER", 0);
        self.w("CP_MEC_DOORBELL_RANGE_UPPER", 0x450);
        self.w("CP_MEC_RS64_CNTL", 1 << 26);
        self.gpu.advance_us(1000);
        let cntl = if self.gfx12 { "MCU" } else { "F32" };
        for i in 0..2 {
            self.w(&format!("SDMA{i}_{cntl}_CNTL"), 0);
            self.w(&format!("SDMA{i}_CNTL"), 1);
        }
    }

    /// A compute queue 1.0.0 whose MQD is heap page 0, with its ring at `ring` and pointers on page
    /// 1, and its end-of-pipe buffer on page 2; doorbell 6.
    pub(crate) fn compute_queue(&self, ring: u64, dwords: u32) {
        let first = self.addr("CP_MQD_BASE_ADDR");
        let mut mqd = vec![0u32; 512];
        mqd[0] = 0xC031_0800;
        let mut set = |name: &str, value: u64| mqd[0x80 + (self.addr(name) - first) as usize] = value as u32;
        let wide = |set: &mut dyn FnMut(&str, u64), lo: &str, hi: &str, v: u64| {
            set(lo, v & 0xffff_ffff);
            set(hi, v >> 32);
        };
        wide(&mut set, "CP_MQD_BASE_ADDR", "CP_MQD_BASE_ADDR_HI", VA);
        set("CP_HQD_PERSISTENT_STATE", 0x5501);
        wide(&mut set, "CP_HQD_PQ_BASE", "CP_HQD_PQ_BASE_HI", ring >> 8);
        wide(&mut set, "CP_HQD_PQ_RPTR_REPORT_ADDR", "CP_HQD_PQ_RPTR_REPORT_ADDR_HI", VA + 0x1000);
        wide(&mut set, "CP_HQD_PQ_WPTR_POLL_ADDR", "CP_HQD_PQ_WPTR_POLL_ADDR_HI", VA + 0x1010);
        set("CP_HQD_PQ_DOORBELL_CONTROL", 0x4000_0018);
        set("CP_HQD_PQ_CONTROL", u64::from(0x500 | (dwords.ilog2() - 1)));
        wide(&mut set, "CP_HQD_EOP_BASE_ADDR", "CP_HQD_EOP_BASE_ADDR_HI", (VA + 0x2000) >> 8);
        set("CP_HQD_EOP_CONTROL", 9);
        let bytes: Vec<u8> = mqd.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.vram(HEAP, &bytes);
        self.hdp();
        self.w("GRBM_GFX_CNTL", 4);
        let last = self.addr("CP_HQD_PQ_WPTR_HI");
        for (i, value) in (first..=last).zip(&mqd[0x80..]) {
            self.gpu.write(5, u64::from(i) * 4, &value.to_le_bytes()).unwrap();
        }
        self.w("CP_HQD_ACTIVE", 1);
        self.w("GRBM_GFX_CNTL", 0);
    }

    /// SDMA0 queue 0 with its ring at `ring` and its read pointer on page 1; doorbell 512.
    pub(crate) fn sdma_queue(&self, ring: u64, bytes: u32) {
        self.sdma_queue_of(0, ring, bytes);
    }

    /// The same of another queue; doorbells are 2 apart.
    pub(crate) fn sdma_queue_of(&self, queue: u32, ring: u64, bytes: u32) {
        let p = format!("SDMA0_QUEUE{queue}_");
        let report = VA + 0x1100 + 16 * u64::from(queue);
        let w = |n: &str, v: u64| self.w(&format!("{p}{n}"), v as u32);
        w("MINOR_PTR_UPDATE", 1);
        for n in ["RB_RPTR", "RB_RPTR_HI", "RB_WPTR", "RB_WPTR_HI"] {
            w(n, 0);
        }
        w("RB_BASE", ring >> 8);
        w("RB_BASE_HI", ring >> 40);
        w("RB_RPTR_ADDR_LO", report);
        w("RB_RPTR_ADDR_HI", report >> 32);
        w("DOORBELL_OFFSET", u64::from(512 + 2 * queue) << 2);
        w("DOORBELL", 1 << 28);
        w("MINOR_PTR_UPDATE", 0);
        let cntl = format!("{p}RB_CNTL");
        let value =
            [("RB_ENABLE", 1), ("RB_SIZE", bytes.ilog2() - 2), ("RPTR_WRITEBACK_ENABLE", 1), ("RB_PRIV", 1)];
        self.w(&cntl, self.f(&cntl, &value));
    }

    pub(crate) fn ring(&self, index: u64, value: u64) {
        self.gpu.write(2, index * 4, &value.to_le_bytes()).unwrap();
    }
}
