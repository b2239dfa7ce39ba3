//! Compares register tables with the registers that the reference driver used on a device.
//!
//! `regs_used.json` lists every register that the reference touched, with absolute address, base
//! index, offset and bit fields; `device.json` gives the IP versions and base addresses.

use amdev_core::reg::{Bases, Block, MAX_BASES, Reg, RegFile, tables};
use amdev_regs::{Db, core_name};
use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A register as the reference had it.
#[derive(Clone, Debug, Deserialize)]
pub struct UsedRegister {
    /// Prefix of the headers: `gc`, `mp`, `nbio`, `nbif`, ...
    pub ip: String,
    /// Absolute dword address.
    pub addr: u32,
    /// Base address index.
    pub base_idx: u8,
    /// Dword offset from the base.
    pub offset: u32,
    /// Field name in lower case to its lowest and highest bit.
    pub fields: BTreeMap<String, (u8, u8)>,
}

#[derive(Debug, Deserialize)]
struct Ip {
    name: String,
    instance: u32,
    version: (u8, u8, u8),
    bases: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Device {
    ips: Vec<Ip>,
}

/// How many registers and fields there were and how many were equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Registers whose address, base index and offset were equal.
    pub registers: usize,
    /// Fields whose bits were equal.
    pub fields: usize,
}

/// The outcome of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What the reference used.
    pub total: Tally,
    /// What core's tables have the same way.
    pub core: Tally,
    /// What the complete database has the same way.
    pub database: Tally,
    /// Every difference, one line each.
    pub differences: Vec<String>,
}

/// The block of a register, by the header's prefix and the name: MP1's mailboxes come from the
/// header of MP 11.0 with its `mm` prefix.
fn block(ip: &str, name: &str) -> Result<(Block, &'static str, &'static str)> {
    Ok(match ip {
        "gc" => (Block::Gc, "gc", "GC_HWID"),
        "mp" if name.starts_with("mm") => (Block::Mp1, "mp1", "MP1_HWID"),
        "mp" => (Block::Mp0, "mp0", "MP0_HWID"),
        "nbio" | "nbif" => (Block::Nbio, "nbio", "NBIF_HWID"),
        "mmhub" => (Block::Mmhub, "mmhub", "MMHUB_HWID"),
        "osssys" => (Block::Osssys, "osssys", "OSSSYS_HWID"),
        "hdp" => (Block::Hdp, "hdp", "HDP_HWID"),
        other => bail!("{name}: unknown block `{other}`"),
    })
}

fn find<'d>(device: &'d Device, hw: &str) -> Result<&'d Ip> {
    device
        .ips
        .iter()
        .find(|i| i.name == hw && i.instance == 0)
        .ok_or_else(|| anyhow!("device.json has no {hw}"))
}

fn bases(ip: &Ip) -> Result<Bases> {
    let mut out = Bases::default();
    for (slot, text) in out.addr.iter_mut().zip(&ip.bases) {
        let digits = text.strip_prefix("0x").with_context(|| format!("{}: base `{text}`", ip.name))?;
        *slot = u32::from_str_radix(digits, 16).with_context(|| format!("{}: base `{text}`", ip.name))?;
    }
    out.len = ip.bases.len().min(MAX_BASES) as u8;
    Ok(out)
}

/// Core's registers on the device that a `device.json` describes.
pub fn reg_file(device_json: &[u8]) -> Result<RegFile> {
    let device: Device = serde_json::from_slice(device_json).context("device.json")?;
    let mut file = RegFile::new();
    for (block, hw) in [
        (Block::Gc, "GC_HWID"),
        (Block::Mp0, "MP0_HWID"),
        (Block::Mp1, "MP1_HWID"),
        (Block::Nbio, "NBIF_HWID"),
        (Block::Mmhub, "MMHUB_HWID"),
        (Block::Osssys, "OSSSYS_HWID"),
        (Block::Hdp, "HDP_HWID"),
    ] {
        let ip = find(&device, hw)?;
        file.set(tables::for_version(block, ip.version)?, bases(ip)?);
    }
    Ok(file)
}

/// Compares a `regs_used.json` with core's tables and with the complete database.
pub fn compare(regs_used_json: &[u8], device_json: &[u8]) -> Result<Report> {
    let used: BTreeMap<String, UsedRegister> =
        serde_json::from_slice(regs_used_json).context("regs_used.json")?;
    let device: Device = serde_json::from_slice(device_json).context("device.json")?;
    let file = reg_file(device_json)?;
    let mut report = Report::default();
    for (name, want) in &used {
        let (block, block_name, hw) = block(&want.ip, name)?;
        let ip = find(&device, hw)?;
        report.total.registers += 1;
        report.total.fields += want.fields.len();
        let plain = name.strip_prefix("reg").or_else(|| name.strip_prefix("mm")).unwrap_or(name);
        compare_core(&mut report, &file, block, (block_name, ip.version, plain), want);
        compare_database(&mut report, (block_name, ip.version, plain), &bases(ip)?, want);
    }
    Ok(report)
}

fn compare_core(
    report: &mut Report,
    file: &RegFile,
    block: Block,
    (block_name, version, name): (&str, (u8, u8, u8), &str),
    want: &UsedRegister,
) {
    let table = file.table(block).map_or(version, |t| t.version);
    let role = core_name(block_name, table, name);
    let Some(reg) = Reg::from_name(&role.name) else {
        report.differences.push(format!("{name}: core has no {}", role.name));
        return;
    };
    match (file.place(reg), file.addr(reg)) {
        (Ok(place), Ok(addr)) => {
            let have = (addr, place.segment, place.offset);
            let wanted = (want.addr, want.base_idx, want.offset);
            if reg.block() == block && have == wanted {
                report.core.registers += 1;
            } else {
                report.differences.push(format!("{name}: core has {have:x?}, the reference {wanted:x?}"));
            }
        }
        (Err(e), _) | (_, Err(e)) => report.differences.push(format!("{name}: {e}")),
    }
    for (field_name, &(low, high)) in &want.fields {
        let stripped = role.strip.as_ref().and_then(|s| field_name.strip_prefix(&s.to_lowercase()));
        let wanted = stripped.unwrap_or(field_name);
        let field = reg.fields().find(|f| f.name().eq_ignore_ascii_case(wanted));
        let have = field.and_then(|f| file.field_def(f).ok()).map(|d| (d.lsb, d.lsb + d.width - 1));
        if have == Some((low, high)) {
            report.core.fields += 1;
        } else {
            report
                .differences
                .push(format!("{name}.{field_name}: core has {have:?}, the reference {low}..={high}"));
        }
    }
    // What the reference does not know, core must not claim for this version.
    for field in reg.fields().filter(|f| file.has_field(*f)) {
        let strip = role.strip.as_deref().unwrap_or("");
        let full = format!("{strip}{}", field.name()).to_lowercase();
        if !want.fields.contains_key(&full) {
            report.differences.push(format!("{name}: core has a field {full} that the reference lacks"));
        }
    }
}

fn compare_database(
    report: &mut Report,
    (block_name, version, name): (&str, (u8, u8, u8), &str),
    bases: &Bases,
    want: &UsedRegister,
) {
    let Some(db) = Db::for_version(block_name, version) else {
        report.differences.push(format!("the database has no {block_name} {version:?}"));
        return;
    };
    let Some(reg) = db.get(name) else {
        report.differences.push(format!("{name}: not in the database {}", db.header()));
        return;
    };
    let addr = bases.get(reg.segment).map(|b| b.wrapping_add(reg.offset));
    let named_back = db.at(want.base_idx, want.offset).any(|r| r.name == name);
    if (addr, reg.segment, reg.offset) == (Some(want.addr), want.base_idx, want.offset) && named_back {
        report.database.registers += 1;
    } else {
        report.differences.push(format!(
            "{name}: the database has {addr:x?} ({}, {:#x}), the reference {:#x} ({}, {:#x})",
            reg.segment, reg.offset, want.addr, want.base_idx, want.offset
        ));
    }
    for field in reg.fields() {
        let bits = (field.lsb, field.lsb + field.width - 1);
        match want.fields.get(&field.name.to_lowercase()) {
            Some(&want) if want == bits => report.database.fields += 1,
            want => report
                .differences
                .push(format!("{name}.{}: the database has {bits:?}, the reference {want:?}", field.name)),
        }
    }
}
