//! The register file: which registers this GPU has, their values, their banks.

use crate::chip::Chip;
use crate::env::Hub;
use amdev_regs::Register;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

mod index;

use index::Places;

/// One register of this GPU.
#[derive(Clone, Copy, Debug)]
struct RegDef {
    ip: &'static str,
    reg: Register<'static>,
}

/// What is the same for all GPUs of a model.
#[derive(Default)]
struct Tables {
    defs: HashMap<u32, RegDef>,
    /// Address, and the register under that name (several names may share an address).
    names: HashMap<&'static str, (u32, Register<'static>)>,
    actions: HashMap<u32, Action>,
    banks: HashMap<u32, Bank>,
    grbm: u32,
    index: u32,
    /// First and last register of a hardware queue descriptor: a range that is loaded from its
    /// image as a whole, holes included.
    hqd: (u32, u32),
}

/// What a register does beyond keeping its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Mailbox of the PSP (MP0 or MPASP C2PMSG).
    Psp(u8),
    /// Mailbox of the SMU (MP1 C2PMSG).
    Smu(u8),
    RsmuIndex,
    RsmuData,
    PcieIndex(u8),
    PcieData(u8),
    MmIndex,
    MmData,
    HdpFlush,
    /// An engine asks for a flush by its bit; DONE tells when it happened.
    HdpFlushReq,
    /// Keeps what reset gave it.
    ReadOnly,
    InvReq(Hub, u8),
    InvAck(Hub, u8),
    InvSem(Hub, u8),
    FaultCntl(Hub),
    FaultStatus(Hub),
    ContextCntl(Hub, u8),
    CpStat,
    BootloadStatus,
    SafeMode,
    MecCntl,
    MecStart,
    SdmaCntl(u8),
    SoftReset,
    HqdActive,
    HqdDequeue,
    SdmaQueue(u8, u8),
    IhCntl(u8),
    IhWptr(u8),
    IhRptr(u8),
}

impl Action {
    /// Registers that tell a state start with 0 also where others are seeded.
    fn seeded(self) -> bool {
        matches!(self, Action::FaultCntl(_) | Action::MecCntl | Action::MecStart | Action::SdmaCntl(_))
            || matches!(
                self,
                Action::SdmaQueue(..) | Action::IhCntl(_) | Action::IhRptr(_) | Action::SoftReset
            )
            || matches!(self, Action::InvReq(..) | Action::PcieData(_) | Action::RsmuData | Action::MmData)
    }
}

/// CRC-32 (IEEE), as the seeded traces use it.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, b| {
        (0..8).fold(crc ^ u32::from(*b), |c, _| if c & 1 != 0 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 })
    })
}

/// How a register is banked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bank {
    None,
    /// By ME, pipe and queue of GRBM_GFX_CNTL.
    Queue,
    /// By VMID of GRBM_GFX_CNTL.
    Vmid,
    /// By GRBM_GFX_INDEX.
    Shader,
}

pub(crate) struct RegFile {
    tables: Arc<Tables>,
    values: HashMap<u32, u32>,
    banked: HashMap<(u32, u32), u32>,
    shader: HashMap<u32, Places>,
    grbm: u32,
    index: u32,
    seeded: bool,
}

fn suffix(name: &str, prefix: &str) -> Option<u8> {
    name.strip_prefix(prefix)?.parse().ok()
}

/// Splits `PREFIXnSUFFIX`.
fn infix(name: &str, prefix: &str, end: &str) -> Option<u8> {
    name.strip_prefix(prefix)?.strip_suffix(end)?.parse().ok()
}

fn action(name: &str) -> Option<Action> {
    if let Some(n) = suffix(name, "MP0_SMN_C2PMSG_").or_else(|| suffix(name, "MPASP_SMN_C2PMSG_")) {
        return Some(Action::Psp(n));
    }
    if let Some(n) = suffix(name, "MP1_SMN_C2PMSG_") {
        return Some(Action::Smu(n));
    }
    for (hub, p) in [(Hub::Gc, "GC"), (Hub::Mm, "MM")] {
        if let Some(rest) = name.strip_prefix(p) {
            let e = "VM_INVALIDATE_ENG";
            if let Some(n) = infix(rest, e, "_REQ") {
                return Some(Action::InvReq(hub, n));
            }
            if let Some(n) = infix(rest, e, "_ACK") {
                return Some(Action::InvAck(hub, n));
            }
            if let Some(n) = infix(rest, e, "_SEM") {
                return Some(Action::InvSem(hub, n));
            }
            if let Some(n) = infix(rest, "VM_CONTEXT", "_CNTL") {
                return Some(Action::ContextCntl(hub, n));
            }
            match rest {
                "VM_L2_PROTECTION_FAULT_CNTL" | "VM_L2_PROTECTION_FAULT_CNTL_LO32" => {
                    return Some(Action::FaultCntl(hub));
                }
                "VM_L2_PROTECTION_FAULT_STATUS"
                | "VM_L2_PROTECTION_FAULT_STATUS_LO32"
                | "VM_L2_PROTECTION_FAULT_STATUS_HI32"
                | "VM_L2_PROTECTION_FAULT_ADDR_LO32"
                | "VM_L2_PROTECTION_FAULT_ADDR_HI32" => return Some(Action::FaultStatus(hub)),
                _ => {}
            }
        }
    }
    if let Some(rest) = name.strip_prefix("SDMA") {
        let (inst, rest) = (rest.as_bytes().first()?.wrapping_sub(b'0'), rest.get(1..)?);
        if inst < 2 {
            if matches!(rest, "_F32_CNTL" | "_MCU_CNTL") {
                return Some(Action::SdmaCntl(inst));
            }
            if let Some(q) = rest.strip_prefix("_QUEUE") {
                let queue = q.as_bytes().first()?.wrapping_sub(b'0');
                if queue < 8 {
                    return Some(Action::SdmaQueue(inst, queue));
                }
            }
        }
    }
    if name.ends_with("GPU_HDP_FLUSH_REQ") {
        return Some(Action::HdpFlushReq);
    }
    if name.ends_with("GPU_HDP_FLUSH_DONE") {
        return Some(Action::ReadOnly);
    }
    Some(match name {
        "BIF_BX_PF0_RSMU_INDEX" => Action::RsmuIndex,
        "BIF_BX_PF0_RSMU_DATA" => Action::RsmuData,
        "BIF_BX0_PCIE_INDEX" => Action::PcieIndex(0),
        "BIF_BX0_PCIE_DATA" => Action::PcieData(0),
        "BIF_BX0_PCIE_INDEX2" => Action::PcieIndex(1),
        "BIF_BX0_PCIE_DATA2" => Action::PcieData(1),
        "BIF_BX_PF0_MM_INDEX" => Action::MmIndex,
        "BIF_BX_PF0_MM_DATA" => Action::MmData,
        "BIF_BX_PF0_HDP_MEM_COHERENCY_FLUSH_CNTL" => Action::HdpFlush,
        "RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE" => Action::ReadOnly,
        "MMMC_VM_FB_LOCATION_BASE" | "MMMC_VM_FB_LOCATION_TOP" => Action::ReadOnly,
        "CP_STAT" => Action::CpStat,
        "RLC_RLCS_BOOTLOAD_STATUS" => Action::BootloadStatus,
        "RLC_SAFE_MODE" => Action::SafeMode,
        "CP_MEC_RS64_CNTL" => Action::MecCntl,
        "CP_MEC_RS64_PRGRM_CNTR_START" | "CP_MEC_RS64_PRGRM_CNTR_START_HI" => Action::MecStart,
        "GRBM_SOFT_RESET" => Action::SoftReset,
        "CP_HQD_ACTIVE" => Action::HqdActive,
        "CP_HQD_DEQUEUE_REQUEST" => Action::HqdDequeue,
        "IH_RB_CNTL" => Action::IhCntl(0),
        "IH_RB_CNTL_RING1" => Action::IhCntl(1),
        "IH_RB_WPTR" => Action::IhWptr(0),
        "IH_RB_WPTR_RING1" => Action::IhWptr(1),
        "IH_RB_RPTR" => Action::IhRptr(0),
        "IH_RB_RPTR_RING1" => Action::IhRptr(1),
        _ => return None,
    })
}

fn bank(name: &str) -> Bank {
    if name.starts_with("SH_MEM_") {
        Bank::Vmid
    } else if name.starts_with("CP_HQD_")
        || name.starts_with("CP_MQD_")
        || name.starts_with("CP_MEC_RS64_PRGRM_CNTR_START")
    {
        Bank::Queue
    } else if index::is_indexed(name) {
        Bank::Shader
    } else {
        Bank::None
    }
}

fn tables(chip: &'static Chip) -> Arc<Tables> {
    static CACHE: Mutex<Vec<(&str, Arc<Tables>)>> = Mutex::new(Vec::new());
    let mut cache = CACHE.lock().unwrap_or_else(|e| e.into_inner());
    if let Some((_, t)) = cache.iter().find(|(name, _)| *name == chip.name) {
        return t.clone();
    }
    let mut t = Tables::default();
    crate::regdb::load(chip, |ip, addr, reg| {
        t.names.entry(reg.name).or_insert((addr, reg));
        if let Some(a) = action(reg.name) {
            t.actions.insert(addr, a);
        }
        match bank(reg.name) {
            Bank::None => {}
            b => {
                t.banks.insert(addr, b);
            }
        }
        t.defs.entry(addr).or_insert(RegDef { ip, reg });
    });
    let addr = |name| t.names.get(name).map_or(u32::MAX, |n| n.0);
    (t.grbm, t.hqd) = (addr("GRBM_GFX_CNTL"), (addr("CP_MQD_BASE_ADDR"), addr("CP_HQD_PQ_WPTR_HI")));
    t.index = addr("GRBM_GFX_INDEX");
    for hole in t.hqd.0..=t.hqd.1 {
        t.banks.entry(hole).or_insert(Bank::Queue);
    }
    let t = Arc::new(t);
    cache.push((chip.name, t.clone()));
    t
}

impl RegFile {
    pub(crate) fn new(chip: &'static Chip, seeded: bool) -> RegFile {
        let mut file = RegFile {
            tables: tables(chip),
            values: HashMap::new(),
            banked: HashMap::new(),
            shader: HashMap::new(),
            grbm: 0,
            index: 0,
            seeded,
        };
        file.reset();
        file
    }

    /// What a register holds that nothing has set.
    fn initial(&self, addr: u32) -> u32 {
        if !self.seeded || self.tables.actions.get(&addr).is_some_and(|a| !a.seeded()) {
            return 0;
        }
        crc32(&addr.to_le_bytes())
    }

    /// True if this GPU has the register.
    pub(crate) fn known(&self, addr: u32) -> bool {
        let t = &self.tables;
        t.defs.contains_key(&addr) || (t.hqd.0..=t.hqd.1).contains(&addr)
    }

    pub(crate) fn action(&self, addr: u32) -> Option<Action> {
        self.tables.actions.get(&addr).copied()
    }

    pub(crate) fn addr(&self, name: &str) -> Option<u32> {
        self.tables.names.get(name).map(|n| n.0)
    }

    /// Name for messages.
    pub(crate) fn name(&self, addr: u32) -> String {
        match self.tables.defs.get(&addr) {
            Some(d) => format!("{} ({}, {addr:#x})", d.reg.name, d.ip),
            None => format!("{addr:#x}"),
        }
    }

    pub(crate) fn short_name(&self, addr: u32) -> Option<&'static str> {
        self.tables.defs.get(&addr).map(|d| d.reg.name)
    }

    pub(crate) fn field(&self, reg: &str, field: &str) -> Option<(u8, u8)> {
        let (_, register) = self.tables.names.get(reg)?;
        register.field(field).map(|f| (f.lsb, f.width))
    }

    fn key(&self, addr: u32, grbm: u32) -> Option<(u32, u32)> {
        // GRBM_GFX_CNTL: PIPEID 1:0, MEID 3:2, VMID 7:4, QUEUEID 10:8 (gc_11_0_0_sh_mask.h).
        match self.tables.banks.get(&addr)? {
            Bank::Queue => Some((addr, grbm & 0x70f)),
            Bank::Vmid => Some((addr, grbm & 0xf0)),
            Bank::Shader | Bank::None => None,
        }
    }

    fn is_indexed(&self, addr: u32) -> bool {
        self.tables.banks.get(&addr) == Some(&Bank::Shader)
    }

    pub(crate) fn get_at(&self, addr: u32, grbm: u32) -> u32 {
        let value = match self.key(addr, grbm) {
            Some(k) => self.banked.get(&k).copied(),
            None if self.is_indexed(addr) => self.shader.get(&addr).and_then(|p| p.get(self.index)),
            None => self.values.get(&addr).copied(),
        };
        value.unwrap_or_else(|| self.initial(addr))
    }

    pub(crate) fn set_at(&mut self, addr: u32, grbm: u32, value: u32) {
        match self.key(addr, grbm) {
            Some(k) => {
                self.banked.insert(k, value);
            }
            None if self.is_indexed(addr) => self.shader.entry(addr).or_default().set(self.index, value),
            None => {
                self.values.insert(addr, value);
            }
        }
    }

    /// The raw value, in the bank that GRBM_GFX_CNTL selects.
    pub(crate) fn get(&self, addr: u32) -> u32 {
        self.get_at(addr, self.grbm)
    }

    pub(crate) fn set(&mut self, addr: u32, value: u32) {
        if addr == self.tables.grbm {
            self.grbm = value;
        }
        if addr == self.tables.index {
            self.index = value;
        }
        self.set_at(addr, self.grbm, value);
    }

    /// The bank that GRBM_GFX_CNTL selects.
    pub(crate) fn grbm(&self) -> u32 {
        self.grbm
    }

    /// Value by name; 0 where this GPU has no such register.
    pub(crate) fn val(&self, name: &str) -> u32 {
        self.addr(name).map_or(0, |a| self.get(a))
    }

    /// Value by name in the bank `grbm`.
    pub(crate) fn val_at(&self, name: &str, grbm: u32) -> u32 {
        self.addr(name).map_or(0, |a| self.get_at(a, grbm))
    }

    pub(crate) fn put(&mut self, name: &str, value: u32) {
        if let Some(a) = self.addr(name) {
            self.set(a, value);
        }
    }

    /// Value of two registers as one 64-bit number.
    pub(crate) fn pair(&self, lo: &str, hi: &str) -> u64 {
        u64::from(self.val(hi)) << 32 | u64::from(self.val(lo))
    }

    /// Extracts a field of `value`; 0 where it does not exist.
    pub(crate) fn extract(&self, reg: &str, field: &str, value: u32) -> u32 {
        match self.field(reg, field) {
            Some((shift, width)) => value >> shift & mask(width),
            None => 0,
        }
    }

    /// A field's value by name.
    pub(crate) fn fld(&self, reg: &str, field: &str) -> u32 {
        self.extract(reg, field, self.val(reg))
    }

    /// `value` placed in a field.
    pub(crate) fn place(&self, reg: &str, field: &str, value: u32) -> u32 {
        match self.field(reg, field) {
            Some((shift, width)) => (value & mask(width)) << shift,
            None => 0,
        }
    }

    /// Forgets everything, as a reset does.
    pub(crate) fn reset(&mut self) {
        self.values.clear();
        self.banked.clear();
        self.shader.clear();
        self.grbm = 0;
        self.index = index::BROADCAST;
        self.values.insert(self.tables.index, self.index);
    }
}

fn mask(width: u8) -> u32 {
    if width >= 32 { u32::MAX } else { (1 << width) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chip::chip;

    fn file() -> RegFile {
        RegFile::new(chip("navi31").unwrap(), false)
    }

    #[test]
    fn registers_stand_where_discovery_and_headers_put_them() {
        let f = file();
        // Addresses of the reference's trace on the same bases.
        for (name, addr) in [
            ("MP0_SMN_C2PMSG_81", 0x16091),
            ("MP1_SMN_C2PMSG_90", 0x1629a),
            ("SCRATCH_REG7", 49223),
            ("BIF_BX_PF0_RSMU_INDEX", 20),
            ("S2A_DOORBELL_ENTRY_2_CTRL", 5_274_178),
            ("IH_RB_WPTR", 4388),
            ("HDP_MEM_POWER_CTRL", 4084),
            ("MMMC_VM_FB_LOCATION_BASE", 108_780),
        ] {
            assert_eq!(f.addr(name), Some(addr), "{name}");
        }
        assert!(!f.known(0x3_ffff));
    }

    #[test]
    fn queue_and_vmid_registers_are_banked() {
        let mut f = file();
        f.put("GRBM_GFX_CNTL", 4);
        f.put("CP_HQD_VMID", 3);
        f.put("GRBM_GFX_CNTL", 4 | 1 << 8);
        assert_eq!(f.val("CP_HQD_VMID"), 0);
        f.put("GRBM_GFX_CNTL", 0xf0);
        f.put("SH_MEM_BASES", 7);
        f.put("GRBM_GFX_CNTL", 0);
        assert_eq!((f.val("SH_MEM_BASES"), f.val_at("CP_HQD_VMID", 4)), (0, 3));
    }

    #[test]
    fn registers_of_shader_arrays_are_banked_by_grbm_gfx_index() {
        for gpu in ["navi31", "navi48"] {
            let mut f = RegFile::new(chip(gpu).unwrap(), false);
            assert_eq!(f.val("GRBM_GFX_INDEX"), 0xe000_0000, "{gpu}");
            f.put("GC_USER_SHADER_ARRAY_CONFIG", 0x1_0000);
            // Engine 1, array 1, all instances.
            f.put("GRBM_GFX_INDEX", 0x4001_0100);
            f.put("GC_USER_SHADER_ARRAY_CONFIG", 0x6_0000);
            assert_eq!(f.val("GC_USER_SHADER_ARRAY_CONFIG"), 0x6_0000, "{gpu}");
            f.put("GRBM_GFX_INDEX", 0x4001_0000);
            assert_eq!(f.val("GC_USER_SHADER_ARRAY_CONFIG"), 0x1_0000, "{gpu}");
            // Others do not care.
            f.put("SCRATCH_REG7", 5);
            f.put("GRBM_GFX_INDEX", 0xe000_0000);
            assert_eq!(f.val("SCRATCH_REG7"), 5, "{gpu}");
        }
    }

    #[test]
    fn seeded_registers_hold_the_crc_of_their_address() {
        let f = RegFile::new(chip("navi31").unwrap(), true);
        // RCC_DEV0_EPF2_STRAP2 in `boot_seeded`.
        assert_eq!(f.get(67_424_514), 1_678_199_181);
        assert_eq!(f.val("CP_STAT"), 0);
    }
}
