//! Reading AMD's register headers (`*_offset.h`, `*_sh_mask.h`).

use std::collections::HashMap;

/// A bit field as the headers give it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeaderField {
    /// Name.
    pub name: String,
    /// Lowest bit.
    pub lsb: u8,
    /// Width in bits.
    pub width: u8,
}

/// A register as the headers give it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeaderReg {
    /// Name without the `reg` or `mm` prefix.
    pub name: String,
    /// `reg` or `mm`.
    pub prefix: String,
    /// Base address index.
    pub segment: u8,
    /// Dword offset from the base.
    pub offset: u32,
    /// Its fields, in the header's order.
    pub fields: Vec<HeaderField>,
}

/// What a pair of headers says, and what in it is odd.
#[derive(Debug, Default)]
pub struct Header {
    /// The registers, sorted by name.
    pub regs: Vec<HeaderReg>,
    /// Oddities: registers without a base index, masks with holes, shifts that do not fit masks.
    pub notes: Vec<String>,
}

impl Header {
    /// A register by its name without prefix.
    pub fn get(&self, name: &str) -> Option<&HeaderReg> {
        self.regs.binary_search_by(|r| r.name.as_str().cmp(name)).ok().and_then(|i| self.regs.get(i))
    }
}

fn number(text: &str) -> Option<u64> {
    let text = text.trim_end_matches(['L', 'l', 'U', 'u']);
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// `#define NAME NUMBER` lines, in order.
fn defines(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        if words.next() != Some("#define") {
            return None;
        }
        let name = words.next()?;
        Some((name, number(words.next()?)?))
    })
}

/// Splits `reg` or `mm` off a name.
fn split_prefix(name: &str) -> Option<(&str, &str)> {
    ["reg", "mm"].iter().find_map(|p| {
        let rest = name.strip_prefix(p)?;
        rest.starts_with(|c: char| c.is_ascii_uppercase()).then_some((*p, rest))
    })
}

/// Parses a pair of headers.
///
/// Only `reg` and `mm` names count: `cfg` names are PCI configuration space, `ix` and `smn` ones
/// are reached through index registers. A name without `_BASE_IDX` is left out, as its address
/// cannot be told.
pub fn parse(offsets: &str, masks: &str) -> Header {
    let mut header = Header::default();
    let mut bases: HashMap<&str, u64> = HashMap::new();
    let mut regs: Vec<(&str, &str, u64)> = Vec::new();
    for (name, value) in defines(offsets) {
        let Some((prefix, rest)) = split_prefix(name) else { continue };
        match rest.strip_suffix("_BASE_IDX") {
            Some(reg) => {
                bases.insert(reg, value);
            }
            None => regs.push((prefix, rest, value)),
        }
    }
    let mut index: HashMap<&str, usize> = HashMap::new();
    for &(prefix, name, offset) in &regs {
        let Some(&segment) = bases.get(name) else {
            header.notes.push(format!("{name}: no base index, left out"));
            continue;
        };
        let (Ok(segment), Ok(offset)) = (u8::try_from(segment), u32::try_from(offset)) else {
            header.notes.push(format!("{name}: segment {segment} or offset {offset:#x} too large, left out"));
            continue;
        };
        let reg = HeaderReg {
            name: name.to_owned(),
            prefix: prefix.to_owned(),
            segment,
            offset,
            fields: Vec::new(),
        };
        // A header that defines a name twice means the last, as the preprocessor does.
        match index.get(name) {
            Some(&i) => header.regs[i] = reg,
            None => {
                index.insert(name, header.regs.len());
                header.regs.push(reg);
            }
        }
    }
    let mut shifts: HashMap<(&str, &str), u64> = HashMap::new();
    for (name, value) in defines(masks) {
        let Some((reg, rest)) = name.split_once("__") else { continue };
        if let Some(field) = rest.strip_suffix("__SHIFT") {
            shifts.insert((reg, field), value);
            continue;
        }
        let Some(field) = rest.strip_suffix("_MASK") else { continue };
        let Some(&i) = index.get(reg) else { continue };
        if value == 0 || value > u64::from(u32::MAX) {
            header.notes.push(format!("{reg}.{field}: mask {value:#x}, left out"));
            continue;
        }
        let value = value as u32;
        let lsb = value.trailing_zeros() as u8;
        let width = (32 - value.leading_zeros()) as u8 - lsb;
        if value.count_ones() != u32::from(width) {
            header.notes.push(format!("{reg}.{field}: mask {value:#x} has holes"));
        }
        if shifts.get(&(reg, field)).is_some_and(|&s| s != u64::from(lsb)) {
            header.notes.push(format!("{reg}.{field}: mask {value:#x} does not begin at its shift"));
        }
        let fields = &mut header.regs[i].fields;
        let new = HeaderField { name: field.to_owned(), lsb, width };
        match fields.iter_mut().find(|f| f.name == field) {
            Some(old) => *old = new,
            None => fields.push(new),
        }
    }
    header.regs.sort_by(|a, b| a.name.cmp(&b.name));
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFSETS: &str = "#define regA_B 0x0010\n#define regA_B_BASE_IDX 1\n#define regLOST 0x3\n\
        #define cfgX 0x4\n#define cfgX_BASE_IDX 5\n#define mmC 7\n#define mmC_BASE_IDX 0\n";
    const MASKS: &str = "#define A_B__LOW__SHIFT 0x0\n#define A_B__TOP_MASK__SHIFT 0x1f\n\
        #define A_B__LOW_MASK 0x0000000FL\n#define A_B__TOP_MASK_MASK 0x80000000L\n\
        #define OTHER__X_MASK 0x1L\n";

    #[test]
    fn registers_need_a_base_index_and_a_known_prefix() {
        let header = parse(OFFSETS, MASKS);
        let names: Vec<_> = header.regs.iter().map(|r| (r.name.as_str(), r.segment, r.offset)).collect();
        assert_eq!(names, [("A_B", 1, 0x10), ("C", 0, 7)]);
        assert_eq!(header.notes, ["LOST: no base index, left out"]);
    }

    #[test]
    fn a_field_whose_name_ends_in_mask_keeps_its_name() {
        let header = parse(OFFSETS, MASKS);
        let fields: Vec<_> =
            header.get("A_B").unwrap().fields.iter().map(|f| (f.name.as_str(), f.lsb, f.width)).collect();
        assert_eq!(fields, [("LOW", 0, 4), ("TOP_MASK", 31, 1)]);
    }
}
