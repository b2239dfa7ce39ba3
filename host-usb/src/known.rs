//! What stands in memory that only this driver writes: it is not written again, and not read.

use std::collections::HashMap;
use std::ops::Range;

/// Ranges of bus addresses, and what their dwords hold as far as it is known.
#[derive(Debug, Default)]
pub struct Known {
    /// Each with whether all of it was zero when it came here.
    ranges: Vec<(Range<u64>, bool)>,
    dwords: HashMap<u64, u32>,
}

impl Known {
    /// Nothing is known.
    pub fn new() -> Self {
        Known::default()
    }

    /// From now on nobody else writes to a range; `zero` if it holds nothing but zeros.
    pub fn add(&mut self, range: Range<u64>, zero: bool) {
        self.remove(&range);
        self.ranges.push((range, zero));
    }

    /// Others may write to the range. Ranges that it cuts are forgotten as a whole.
    pub fn remove(&mut self, range: &Range<u64>) {
        let dwords = &mut self.dwords;
        self.ranges.retain(|(r, _)| {
            let apart = r.end <= range.start || r.start >= range.end;
            if !apart {
                dwords.retain(|at, _| !r.contains(at));
            }
            apart
        });
    }

    /// Everything is unknown, and nothing ours.
    pub fn clear(&mut self) {
        *self = Known::default();
    }

    fn range_of(&self, at: u64) -> Option<bool> {
        self.ranges.iter().find(|(r, _)| r.start <= at && at + 4 <= r.end).map(|(_, zero)| *zero)
    }

    /// What the dword at a multiple of 4 holds.
    pub fn get(&self, at: u64) -> Option<u32> {
        let zero = self.range_of(at)?;
        self.dwords.get(&at).copied().or(zero.then_some(0))
    }

    /// The dword is written, or was read; whether it held the value already.
    pub fn set(&mut self, at: u64, value: u32) -> bool {
        let same = self.get(at) == Some(value);
        if !same && self.range_of(at).is_some() {
            self.dwords.insert(at, value);
        }
        same
    }

    /// Whether any of these bytes is in a range.
    pub fn touches(&self, range: &Range<u64>) -> bool {
        self.ranges.iter().any(|(r, _)| r.start < range.end && range.start < r.end)
    }

    /// A dword of which a part is written is not known any more.
    pub fn forget(&mut self, at: u64) {
        if let Some((r, _)) = self.ranges.iter().find(|(r, zero)| *zero && r.contains(&at)).cloned() {
            // A range of zeros has no way to say "but not here": it is given up.
            self.remove(&r);
        }
        self.dwords.remove(&at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dwords_of_a_range_are_known() {
        let mut k = Known::new();
        k.add(0x1000..0x1008, false);
        assert!(!k.set(0x1000, 7));
        assert!(k.set(0x1000, 7), "the second time");
        assert!(!k.set(0x1008, 7) && !k.set(0x1008, 7), "beyond its end");
        assert_eq!((k.get(0x1000), k.get(0x1004), k.get(0x1008)), (Some(7), None, None));
        k.add(0x1000..0x1008, false);
        assert_eq!(k.get(0x1000), None, "a ring that begins anew");
    }

    #[test]
    fn a_range_of_zeros_holds_zeros_until_they_are_overwritten() {
        let mut k = Known::new();
        k.add(0x1000..0x2000, true);
        assert!(k.set(0x1ffc, 0));
        assert!(!k.set(0x1010, 5));
        assert_eq!((k.get(0x1010), k.get(0x1014)), (Some(5), Some(0)));
        k.remove(&(0x1800..0x1804));
        assert_eq!(k.get(0x1014), None);
        k.add(0x1000..0x2000, true);
        k.forget(0x1010);
        assert_eq!(k.get(0x1014), None, "nothing is taken for known that is not");
    }
}
