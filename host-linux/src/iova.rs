//! Bus addresses for memory that the device reaches.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The GPUs reach 44 bits (`amdgpu`: DMA_BIT_MASK(44)).
const DEVICE_LAST: u64 = (1 << 44) - 1;
/// Addresses above 4 GiB are taken first, so that one that was cut to 32 bits is not one of ours.
const FIRST: u64 = 1 << 32;
/// Allocations start at multiples of this, and so much is left free behind each: running over the
/// end of one reaches nothing, and large pages fit.
const ALIGN: u64 = 2 << 20;

/// Which bus addresses are free. An address is used again only after all others were.
#[derive(Debug)]
pub(crate) struct IovaSpace {
    ranges: Vec<(u64, u64)>,
    /// Start and length of what is used.
    used: BTreeMap<u64, u64>,
    next: u64,
}

impl IovaSpace {
    /// The addresses that an IOMMU translates: first and last of each range.
    pub(crate) fn new(ranges: &[RangeInclusive<u64>]) -> IovaSpace {
        let mut cut: Vec<_> = ranges
            .iter()
            .map(|r| (*r.start(), (*r.end()).min(DEVICE_LAST)))
            .filter(|(start, last)| start <= last)
            .collect();
        cut.sort_unstable();
        // Address 0 stands for no memory in too many places.
        if let Some(first) = cut.first_mut() {
            first.0 = first.0.max(ALIGN);
        }
        IovaSpace { ranges: cut, used: BTreeMap::new(), next: FIRST }
    }

    /// Addresses of `len` bytes; `None` if there are none left.
    pub(crate) fn alloc(&mut self, len: u64) -> Option<u64> {
        let start = self.find(self.next, len).or_else(|| self.find(0, len))?;
        self.used.insert(start, len);
        self.next = start.checked_add(len)?.checked_next_multiple_of(ALIGN)?.checked_add(ALIGN)?;
        Some(start)
    }

    /// Gives addresses back.
    pub(crate) fn free(&mut self, start: u64) {
        self.used.remove(&start);
    }

    /// The first place at or above `from`.
    fn find(&self, from: u64, len: u64) -> Option<u64> {
        self.ranges.iter().find_map(|(first, last)| {
            let mut at = from.max(*first).checked_next_multiple_of(ALIGN)?;
            loop {
                let end = at.checked_add(len)?;
                if len == 0 || end - 1 > *last {
                    return None;
                }
                // The one that starts last before the end, with what is left free behind it.
                let limit = end.checked_add(ALIGN)?;
                match self.used.range(..limit).next_back() {
                    Some((used, used_len)) if used + used_len + ALIGN > at => {
                        at = used
                            .checked_add(*used_len)?
                            .checked_next_multiple_of(ALIGN)?
                            .checked_add(ALIGN)?;
                    }
                    _ => return Some(at),
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn addresses_lie_in_the_ranges_apart_from_each_other_and_above_4_gib_first() {
        // As Intel's IOMMU in QEMU tells: 39 bits without the interrupts' window.
        let mut space = IovaSpace::new(&[0..=0xfedf_ffff, 0xfef0_0000..=(1 << 39) - 1]);
        let a = space.alloc(4096).unwrap();
        let b = space.alloc(16 * MIB).unwrap();
        assert_eq!((a, b), (FIRST, FIRST + 4 * MIB));
        space.free(a);
        assert!(space.alloc(4096).unwrap() > b, "not used again while there are others");
    }

    #[test]
    fn a_full_space_is_told_and_freed_addresses_are_found_again() {
        let mut space = IovaSpace::new(&[0..=20 * MIB - 1]);
        let all: Vec<u64> = std::iter::from_fn(|| space.alloc(2 * MIB)).collect();
        assert_eq!(all, [2 * MIB, 6 * MIB, 10 * MIB, 14 * MIB, 18 * MIB]);
        space.free(10 * MIB);
        assert_eq!(space.alloc(4 * MIB), None, "the next one would follow at once");
        assert_eq!(space.alloc(MIB), Some(10 * MIB));
        for len in [0, u64::MAX, 1 << 45] {
            assert_eq!(space.alloc(len), None);
        }
    }

    #[test]
    fn nothing_beyond_what_the_device_reaches_is_given() {
        let mut space = IovaSpace::new(&[1 << 44..=u64::MAX]);
        assert_eq!(space.alloc(4096), None);
        assert_eq!(IovaSpace::new(&[]).alloc(4096), None);
    }
}
