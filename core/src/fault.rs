//! Decoding of faults: who accessed which address how, and why it was refused; which engine stopped.

use crate::error::Error;
use crate::ip::Hub;
use crate::reg::{Block, RegFile, f};
use core::fmt;

mod engine;

pub use engine::{EngineFault, WaveError};

/// An error that the hardware has reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A memory hub refused an access.
    Memory(VmFault),
    /// An engine stopped.
    Engine(EngineFault),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Memory(fault) => write!(f, "memory fault at {fault}"),
            Fault::Engine(fault) => fault.fmt(f),
        }
    }
}

/// A fault that a memory hub has latched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmFault {
    /// The hub.
    pub hub: Hub,
    /// Faulting virtual address; faults are latched by page, so that the lower 12 bits are 0.
    pub address: u64,
    /// VMID.
    pub vmid: u8,
    /// Client number.
    pub client: u16,
    /// Name of the client.
    pub client_name: &'static str,
    /// It was a write.
    pub write: bool,
    /// It was an atomic.
    pub atomic: bool,
    /// Which permissions were missing.
    pub permission: Permission,
    /// Where the page table walk failed (0: it did not).
    pub walker_error: u8,
    /// The address was outside the mapped range.
    pub mapping_error: bool,
    /// More faults followed this one.
    pub more: bool,
    /// The page is marked as partially resident.
    pub prt: bool,
}

bitflags::bitflags! {
    /// `PERMISSION_FAULTS`: what the page table entry did not allow.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Permission: u8 {
        /// The entry is not valid.
        const VALID = 1 << 0;
        /// Reading.
        const READ = 1 << 1;
        /// Writing.
        const WRITE = 1 << 2;
        /// Executing.
        const EXECUTE = 1 << 3;
    }
}

/// gfxhub_v3_0.c, `gfxhub_client_ids`.
const GC_11: [&str; 18] = [
    "CB/DB",
    "",
    "GE1",
    "GE2",
    "CPF",
    "CPC",
    "CPG",
    "RLC",
    "TCP",
    "SQC (inst)",
    "SQC (data)",
    "SQG",
    "",
    "SDMA0",
    "SDMA1",
    "GCR",
    "SDMA2",
    "SDMA3",
];
/// gfxhub_v12_0.c, `gfxhub_client_ids`.
const GC_12: [&str; 21] = [
    "CB",
    "DB",
    "GE1",
    "GE2",
    "CPF",
    "CPC",
    "CPG",
    "RLC",
    "TCP",
    "SQC (inst)",
    "SQC (data)",
    "SQG/PC/SC",
    "",
    "SDMA0",
    "SDMA1",
    "GCR",
    "",
    "",
    "WGS",
    "DSM",
    "PA",
];
/// mmhub_v3_0.c and mmhub_v3_0_2.c: (client, name of reads, name of writes).
const MM_3: [(u16, &str, &str); 20] = [
    (0, "VMC", ""),
    (2, "", "DBGUNBIO"),
    (3, "", "DCEDWB"),
    (4, "DCEDMC", "DCEDMC"),
    (5, "DCEVGA", "DCEVGA"),
    (6, "MP0", "MP0"),
    (7, "MP1", "MP1"),
    (8, "MPIO", "MPIO"),
    (10, "", "DBGU0"),
    (11, "", "DBGU1"),
    (12, "", "DBGU2"),
    (13, "", "DBGU3"),
    (14, "", "XDP"),
    (15, "", "OSSSYS"),
    (16, "HDP", "HDP"),
    (17, "LSDMA", "LSDMA"),
    (18, "JPEG", "JPEG"),
    (19, "VCNU0", "VCNU0"),
    (20, "", "VCN0"),
    (21, "VSCH", "VSCH"),
];
/// The rest of that table.
const MM_3_HIGH: [(u16, &str, &str); 3] = [(22, "VCNU1", "VCNU1"), (23, "VCN1", "VCN1"), (52, "VCN0", "")];
/// mmhub_v4_1_0.c.
const MM_4: [(u16, &str, &str); 18] = [
    (0, "VMC", ""),
    (3, "", "DCEDWB"),
    (4, "DCEDMC", "DCEDMC"),
    (6, "MP0", "MP0"),
    (7, "MP1", "MP1"),
    (8, "MPIO", "MPIO"),
    (10, "", "DBGU0"),
    (11, "", "DBGU1"),
    (12, "", "DBGUNBIO"),
    (14, "", "XDP"),
    (15, "", "OSSSYS"),
    (16, "LSDMA", "LSDMA"),
    (17, "JPEG", "JPEG"),
    (18, "", "VCNWR"),
    (19, "VCNU", "VCNU"),
    (22, "VSCH", "VSCH"),
    (23, "HDP", "HDP"),
    (55, "VCNRD", ""),
];

fn client_name(regs: &RegFile, hub: Hub, client: u16, write: bool) -> &'static str {
    let find = |table: &[(u16, &'static str, &'static str)]| {
        table.iter().find(|e| e.0 == client).map(|e| if write { e.2 } else { e.1 })
    };
    let major = |block| regs.table(block).map_or(0, |t| t.version.0);
    let name = match hub {
        Hub::Gc if major(Block::Gc) >= 12 => GC_12.get(usize::from(client)).copied(),
        Hub::Gc => GC_11.get(usize::from(client)).copied(),
        Hub::Mm if major(Block::Mmhub) >= 4 => find(&MM_4),
        Hub::Mm => find(&MM_3).or_else(|| find(&MM_3_HIGH)),
    };
    match name {
        Some(name) if !name.is_empty() => name,
        _ => "unknown",
    }
}

/// Decodes the status register of a hub; `page` is the page number from its address registers.
pub fn decode(regs: &RegFile, hub: Hub, status: u32, page: u64) -> Result<VmFault, Error> {
    use f::hub::vm_l2_protection_fault_status as s;
    let get = |field| regs.get(status, field);
    let client = get(s::CID[hub])? as u16;
    let write = get(s::RW[hub])? != 0;
    Ok(VmFault {
        hub,
        address: page << 12,
        vmid: get(s::VMID[hub])? as u8,
        client,
        client_name: client_name(regs, hub, client, write),
        write,
        atomic: get(s::ATOMIC[hub])? != 0,
        permission: Permission::from_bits_retain(get(s::PERMISSION_FAULTS[hub])? as u8),
        walker_error: get(s::WALKER_ERROR[hub])? as u8,
        mapping_error: get(s::MAPPING_ERROR[hub])? != 0,
        more: get(s::MORE_FAULTS[hub])? != 0,
        prt: get(s::PRT[hub])? != 0,
    })
}

impl fmt::Display for VmFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match (self.atomic, self.write) {
            (true, _) => "atomic",
            (false, true) => "write",
            (false, false) => "read",
        };
        write!(
            f,
            "{}: {kind} of {:#x} by {} (client {:#x}), VMID {}, refused:",
            self.hub, self.address, self.client_name, self.client, self.vmid
        )?;
        let mut reasons = [
            (self.permission.contains(Permission::VALID), " page not mapped,"),
            (self.permission.contains(Permission::READ), " not readable,"),
            (self.permission.contains(Permission::WRITE), " not writable,"),
            (self.permission.contains(Permission::EXECUTE), " not executable,"),
            (self.mapping_error, " outside the mapped range,"),
        ]
        .into_iter()
        .filter_map(|(set, text)| set.then_some(text));
        let first = reasons.next().unwrap_or(" no reason given,");
        f.write_str(first)?;
        for reason in reasons {
            f.write_str(reason)?;
        }
        write!(f, " walker error {}", self.walker_error)?;
        if self.more { f.write_str("; more faults followed") } else { Ok(()) }
    }
}
