//! What a boot over USB writes to registers, against the reference's trace of the same boot: the same
//! registers in the same order, and what differs explained.

use std::collections::BTreeMap;
use std::fmt;

use amdev_sim::bridge::{Access, Place};
use anyhow::Context as _;
use serde_json::Value;

/// A write of a register: dword address and value.
pub type Write = (u64, u32);

/// Register writes among what reached PCIe, in order.
pub fn writes(record: &[Access]) -> Vec<Write> {
    let register = |a: &Access| match a.place {
        Place::Window { bar: 5, offset } if a.write => Some((offset / 4, a.value)),
        _ => None,
    };
    record.iter().filter_map(register).collect()
}

/// Registers that one of the two writes and the other does not, or elsewhere, or with another value, and
/// why. A trailing `*` stands for any ending.
const EXPLAINED: &[(&str, &str)] = &[
    (
        "BIF_BX_PF0_HDP_MEM_COHERENCY_FLUSH_CNTL",
        "the HDP is flushed before each doorbell and mailbox that tells an engine to look into VRAM, and \
         nowhere else",
    ),
    ("MMVM_L2_CNTL", DUMMY_PAGE),
    ("GCVM_L2_CNTL", DUMMY_PAGE),
    (
        "IH_RB_CNTL*",
        "fault 1 of the reference: RB_SIZE is the logarithm of the length in dwords, and the edge",
    ),
    ("MP0_SMN_C2PMSG_69", PSP_RING),
    ("MPASP_SMN_C2PMSG_69", PSP_RING),
    // The one value of these two that the reference does not write.
    ("MPASP_SMN_C2PMSG_35", KEY_MANAGER),
    ("MPASP_SMN_C2PMSG_36", KEY_MANAGER),
    // Also where the table is, which has another address in the boot region.
    ("MP1_SMN_C2PMSG_82", LEVELS),
    ("MP1_SMN_C2PMSG_66", LEVELS),
    ("MP1_SMN_C2PMSG_90", LEVELS),
    ("SCRATCH_REG7", "this driver's own mark"),
    (
        "SDMA0_QUEUE0_*",
        "table pages are filled with zeros by a DMA queue of the boot's own, taken down again",
    ),
    ("MMVM_INVALIDATE_ENG17_*", MESSAGE),
    ("MMVM_L2_BANK_SELECT_RESERVED_CID2", MESSAGE),
    ("GCVM_INVALIDATE_ENG17_*", MESSAGE),
];

const DUMMY_PAGE: &str = "the dummy page is one of VRAM: faulting writes do not go to the host's memory";
const LEVELS: &str = "of each clock only the level that is set is asked for";
const PSP_RING: &str = "the PSP's ring has another address in the boot region";
const KEY_MANAGER: &str = "MP0 14.x loads the IP key manager, too (psp_v14_0_bootloader_load_ipkeymgr_drv)";
const MESSAGE: &str = "the PSP's message buffer is mapped by one huge page and taken away behind its use: one \
                       invalidation, behind the boot's PSP part instead of before it";

/// What came of a comparison.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Writes of the reference.
    pub total: usize,
    /// Those that were made with the same value at the same place in the order.
    pub same: usize,
    /// How often each explanation was needed.
    pub explained: BTreeMap<&'static str, usize>,
    /// What has none.
    pub unexplained: Vec<String>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} of {} register writes are the reference's, in order", self.same, self.total)?;
        self.explained.iter().try_for_each(|(why, n)| writeln!(f, "  {n} x {why}"))?;
        self.unexplained.iter().try_for_each(|d| writeln!(f, "  unexplained: {d}"))
    }
}

impl Verdict {
    fn differs(&mut self, name: &str, what: String) {
        let fits = |pattern: &str| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        };
        match EXPLAINED.iter().find(|(pattern, _)| fits(pattern)) {
            Some((_, why)) => *self.explained.entry(why).or_default() += 1,
            None => self.unexplained.push(what),
        }
    }
}

/// A write of the reference.
struct Row {
    addr: u64,
    value: u32,
    name: String,
    /// Not what comes behind it.
    in_boot: bool,
}

fn reference(gpu: &str, trace: &str) -> anyhow::Result<Vec<Row>> {
    let bytes = crate::golden(&format!("{gpu}/{trace}.jsonl"))?;
    let (mut rows, mut in_boot, mut ends) = (Vec::new(), true, false);
    for line in std::str::from_utf8(&bytes)?.lines() {
        let row: Value = serde_json::from_str(line)?;
        if row["op"] == "mark" {
            ends = ends || row["fn"] == "AM_GFX.set_clockgating_state";
            // The boot ends with clock gating: what is mapped next is for queues.
            in_boot = in_boot && !(ends && row["fn"] == "AM_GMC.flush_tlb");
        }
        if row["op"] == "w" {
            let name = row["name"].as_str().unwrap_or("?");
            rows.push(Row {
                addr: row["addr"].as_u64().context("addr")?,
                value: row["val"].as_u64().context("val")? as u32,
                name: name.trim_start_matches("mm").trim_start_matches("reg").into(),
                in_boot,
            });
        }
    }
    Ok(rows)
}

/// Configuration writes among what reached PCIe, in order: bus, offset, bytes, value.
pub fn config_writes(record: &[Access]) -> Vec<(u8, u16, u8, u32)> {
    let config = |a: &Access| match a.place {
        Place::Config { bus, at } if a.write => Some((bus, at, a.len, a.value)),
        _ => None,
    };
    record.iter().filter_map(config).collect()
}

/// Those of the reference where it configures what is behind the bridge (`setup_pci_bars` of `usb.json`).
///
/// # Errors
/// A file that cannot be read.
pub fn reference_config_writes() -> anyhow::Result<Vec<(u8, u16, u8, u32)>> {
    let all: Value = serde_json::from_slice(&crate::golden("usb.json")?)?;
    let cases = all["unit"].as_array().context("unit")?;
    let case = cases.iter().find(|c| c["name"] == "setup_pci_bars").context("setup_pci_bars")?;
    let number = |v: &Value| {
        let text = v.as_str().unwrap_or_default().trim_start_matches("0x");
        u64::from_str_radix(text, 16).with_context(|| format!("{v}"))
    };
    let mut writes = Vec::new();
    for tlp in case["tlps"].as_array().context("tlps")?.iter().filter(|t| t["data"].is_string()) {
        let (address, enable) = (number(&tlp["addr"])?, number(&tlp["be"])? as u8);
        let (first, len) = (enable.trailing_zeros(), enable.count_ones());
        let value = number(&tlp["data"])? as u32 >> (8 * first) & u32::MAX >> (32 - 8 * len);
        writes.push(((address >> 24) as u8, (address & 0xfff) as u16 + first as u16, len as u8, value));
    }
    Ok(writes)
}

/// Compares the writes of a boot with those of one of the reference's traces.
///
/// # Errors
/// A trace that cannot be read.
pub fn judge(gpu: &str, trace: &str, ours: &[Write]) -> anyhow::Result<Verdict> {
    let all = reference(gpu, trace)?;
    // The longest trace names what the others do not write.
    let longest_trace = reference(gpu, "boot_usb")?;
    let names: BTreeMap<u64, &str> =
        longest_trace.iter().chain(&all).map(|r| (r.addr, r.name.as_str())).collect();
    let theirs: Vec<&Row> = all.iter().filter(|r| r.in_boot).collect();
    let name_of = |addr: u64| names.get(&addr).map_or_else(|| format!("{addr:#x}"), |n| (*n).to_owned());
    let mut verdict = Verdict { total: theirs.len(), ..Verdict::default() };
    // Longest common subsequence of the addresses.
    let (n, m) = (ours.len(), theirs.len());
    let mut longest = vec![vec![0u32; m + 1]; n + 1];
    for i in (0..n).rev() {
        for j in (0..m).rev() {
            longest[i][j] = if ours[i].0 == theirs[j].addr {
                longest[i + 1][j + 1] + 1
            } else {
                longest[i + 1][j].max(longest[i][j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < n || j < m {
        if i < n && j < m && ours[i].0 == theirs[j].addr {
            let (value, row) = (ours[i].1, theirs[j]);
            if value == row.value {
                verdict.same += 1;
            } else {
                verdict.differs(&row.name, format!("{} is {value:#x}, there {:#x}", row.name, row.value));
            }
            (i, j) = (i + 1, j + 1);
        } else if j == m || i < n && longest[i + 1][j] >= longest[i][j + 1] {
            let name = name_of(ours[i].0);
            verdict.differs(&name, format!("{name} = {:#x} is written here only", ours[i].1));
            i += 1;
        } else {
            let row = theirs[j];
            verdict.differs(&row.name, format!("{} = {:#x} is written there only", row.name, row.value));
            j += 1;
        }
    }
    Ok(verdict)
}
