//! Compares the allocator with recorded allocations of the reference (`tlsf.json`).
//!
//! Compared are success and failure, alignment, range, overlap and the free total. Addresses need
//! not be equal and are counted apart. Listed deviation: fault 22 (the reference refuses a request
//! that fits, because it looks for the size padded by the alignment and rounded up to a class).

use std::collections::BTreeMap;

use amdev_core::mm::tlsf::{Block, Tlsf, TlsfError};
use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::verdict::Verdict;

/// A number given as text in hexadecimal.
pub(crate) fn hex(value: &Value) -> Result<u64> {
    let text = value.as_str().with_context(|| format!("{value} is not a hexadecimal text"))?;
    let digits = text.strip_prefix("0x").with_context(|| format!("{text:?} does not begin with 0x"))?;
    u64::from_str_radix(digits, 16).with_context(|| format!("{text:?} is not a hexadecimal number"))
}

pub(crate) fn list<'a>(value: &'a Value, field: &str) -> Result<&'a Vec<Value>> {
    value[field].as_array().with_context(|| format!("field {field:?} is missing or not a list"))
}

pub(crate) fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str> {
    value[field].as_str().with_context(|| format!("field {field:?} is missing or not a text"))
}

/// Live allocations, as a plain model: address to size.
#[derive(Clone, Default)]
pub struct Layout(pub BTreeMap<u64, u64>);

impl Layout {
    /// Adds an allocation; says what is wrong with it.
    pub fn add(&mut self, addr: u64, size: u64, range: &std::ops::Range<u64>) -> Option<String> {
        let end = addr.checked_add(size);
        let inside = addr >= range.start && end.is_some_and(|end| end <= range.end);
        let before = self.0.range(..=addr).next_back().is_some_and(|(a, s)| a + s > addr);
        let after = end.is_some_and(|end| self.0.range(addr..end).next().is_some());
        self.0.insert(addr, size);
        if !inside {
            Some(format!("{addr:#x}+{size:#x} is out of range"))
        } else if before || after {
            Some(format!("{addr:#x}+{size:#x} overlaps another allocation"))
        } else {
            None
        }
    }

    /// Free stretches in order: address and size.
    pub fn gaps(&self, range: &std::ops::Range<u64>) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for (addr, size) in self.0.iter().map(|(a, s)| (*a, *s)).chain([(range.end, 0)]) {
            if addr > at {
                gaps.push((at, addr - at));
            }
            at = at.max(addr + size);
        }
        gaps
    }

    /// Whether a request fits into some gap.
    pub fn fits(&self, range: &std::ops::Range<u64>, size: u64, align: u64) -> bool {
        self.gaps(range).iter().any(|(addr, len)| addr.next_multiple_of(align) + size <= addr + len)
    }
}

struct Case<'a> {
    name: &'a str,
    range: std::ops::Range<u64>,
    min_block: u64,
    second_level: u64,
}

impl Case<'_> {
    fn read<'a>(value: &'a Value) -> Result<Case<'a>> {
        let (base, size) = (hex(&value["base"])?, hex(&value["size"])?);
        Ok(Case {
            name: text(value, "name")?,
            range: base..base.checked_add(size).context("base + size overflows")?,
            min_block: value["block_size"].as_u64().context("block_size is not a number")?,
            second_level: value["lv2_cnt"].as_u64().filter(|n| *n > 0).context("lv2_cnt is not positive")?,
        })
    }

    /// The size of a block in which the reference is sure to find room for a request.
    fn padded(&self, size: u64, align: u64) -> u64 {
        let padded = (size.max(self.min_block) + align - 1).max(self.min_block);
        let bits = u64::BITS - padded.leading_zeros();
        let level_bits = u64::BITS - self.second_level.leading_zeros();
        padded.next_multiple_of(1 << bits.saturating_sub(level_bits))
    }
}

/// Compares all scenarios of a file.
///
/// # Errors
/// A file that is not of this format.
pub fn judge(json: &[u8]) -> Result<Verdict> {
    let root: Value = serde_json::from_slice(json).context("not JSON")?;
    let mut verdict = Verdict::default();
    for value in root.as_array().context("the top level is not a list of scenarios")? {
        let case = Case::read(value)?;
        scenario(&case, value, &mut verdict).with_context(|| format!("scenario {}", case.name))?;
    }
    Ok(verdict)
}

fn scenario(case: &Case<'_>, value: &Value, verdict: &mut Verdict) -> Result<()> {
    let ops = list(value, "ops")?;
    let mut blocks = vec![Block::EMPTY; 2 * ops.len() + 4];
    let class_bits = case.second_level.ilog2();
    let mut tlsf = Tlsf::with_classes(case.range.clone(), case.min_block, class_bits, &mut blocks)?;
    let (mut theirs, mut ours) = (Layout::default(), Layout::default());
    // Their address to ours.
    let mut pairs = BTreeMap::new();
    // Calls that both sides made, for starting again after one that only we could serve.
    let mut history: Vec<(u64, u64)> = Vec::new();
    for (row, op) in ops.iter().enumerate() {
        let place = format!("{} op {row}", case.name);
        let mut wrong = Vec::new();
        match op[0].as_str() {
            Some("alloc") => {
                let (size, align) = (hex(&op[1])?, hex(&op[2])?);
                if size == 0 || !align.is_power_of_two() {
                    bail!("op {row}: size {size:#x} or align {align:#x} is not sensible");
                }
                let taken = size.max(case.min_block);
                let expected = if op[3].is_null() { None } else { Some(hex(&op[3])?) };
                if let Some(addr) = expected {
                    if (addr - case.range.start.min(addr)) % align != 0 {
                        wrong.push(format!("the recorded address {addr:#x} is not aligned to {align:#x}"));
                    }
                    wrong.extend(theirs.add(addr, taken, &case.range).map(|w| format!("recorded: {w}")));
                } else if theirs.gaps(&case.range).iter().any(|g| g.1 >= case.padded(size, align)) {
                    wrong.push("no fault of the reference explains the recorded failure".into());
                }
                let result = tlsf.alloc(size, align);
                if let Ok(addr) = result {
                    if addr % align != 0 {
                        wrong.push(format!("{addr:#x} is not aligned to {align:#x}"));
                    }
                    wrong.extend(ours.add(addr, taken, &case.range));
                }
                match (expected, result) {
                    (Some(theirs), Ok(addr)) => {
                        verdict.address(theirs == addr);
                        pairs.insert(theirs, addr);
                        history.push((size, align));
                    }
                    (None, Err(TlsfError::OutOfMemory { .. })) => {
                        if ours.fits(&case.range, taken, align) {
                            wrong.push(format!("refused {size:#x} bytes, which fit"));
                        }
                    }
                    (None, Ok(addr)) => {
                        if theirs.fits(&case.range, taken, align) {
                            verdict.deviation("22", &place);
                        } else {
                            wrong.push(format!("got {addr:#x}, recorded is a failure"));
                        }
                        // Both sides go on with the same allocations: replay without this one.
                        ours.0.remove(&addr);
                        tlsf =
                            Tlsf::with_classes(case.range.clone(), case.min_block, class_bits, &mut blocks)?;
                        for (size, align) in &history {
                            let replayed =
                                if *align == 0 { tlsf.free(*size) } else { tlsf.alloc(*size, *align) };
                            replayed.context("replaying the history")?;
                        }
                    }
                    (expected, result) => {
                        wrong.push(format!("{result:x?}, recorded is {expected:x?}"));
                    }
                }
            }
            Some("free") => {
                let addr = hex(&op[1])?;
                theirs.0.remove(&addr);
                match pairs.remove(&addr) {
                    None => wrong.push(format!("frees {addr:#x}, which was not recorded as allocated")),
                    Some(own) => {
                        ours.0.remove(&own);
                        history.push((own, 0));
                        if let Err(error) = tlsf.free(own) {
                            wrong.push(error.to_string());
                        }
                        if tlsf.free(own).is_ok() {
                            wrong.push("freed twice".into());
                        }
                    }
                }
            }
            _ => bail!("op {row} is neither alloc nor free"),
        }
        verdict.row(&place, wrong);
    }
    let place = format!("{} final_blocks", case.name);
    let mut wrong = Vec::new();
    let mut recorded = Vec::new();
    for block in list(value, "final_blocks")? {
        let free = block[2].as_bool().context("final_blocks: the third value is not a bool")?;
        recorded.push((case.range.start.wrapping_add(hex(&block[0])?), hex(&block[1])?, free));
    }
    let gaps = theirs.gaps(&case.range);
    let mut derived: Vec<_> = theirs.0.iter().map(|(a, s)| (*a, *s, false)).collect();
    derived.extend(gaps.iter().map(|(a, s)| (*a, *s, true)));
    derived.sort_unstable();
    if recorded != derived {
        wrong.push("the recorded blocks are not what the recorded operations leave".into());
    }
    let total: u64 = recorded.iter().filter(|b| b.2).map(|b| b.1).sum();
    if tlsf.free_bytes() != total {
        wrong.push(format!("{:#x} bytes are free, recorded are {total:#x}", tlsf.free_bytes()));
    }
    verdict.row(&place, wrong);
    Ok(())
}
