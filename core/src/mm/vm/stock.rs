//! Pages that are used for tables and nothing else.

use core::ops::Range;

use crate::mm::pte::PAGE_SIZE;

/// As many as one word has bits for each of these words.
const WORDS: usize = 4;

/// Pages of a range and which of them are taken.
#[derive(Clone, Debug)]
pub(super) struct Stock {
    pages: Range<u64>,
    taken: [u64; WORDS],
    /// Those that are to be given back together.
    marked: [u64; WORDS],
}

impl Default for Stock {
    fn default() -> Self {
        Stock::new(0..0)
    }
}

impl Stock {
    /// The pages of a range; those beyond what can be kept account of are left alone.
    pub(super) fn new(range: Range<u64>) -> Self {
        let most = range.start + WORDS as u64 * u64::from(u64::BITS) * PAGE_SIZE;
        Stock {
            pages: range.start..range.end.min(most).max(range.start),
            taken: [0; WORDS],
            marked: [0; WORDS],
        }
    }

    pub(super) fn contains(&self, pa: u64) -> bool {
        self.pages.contains(&pa)
    }

    /// The first page that is free.
    pub(super) fn take(&mut self) -> Option<u64> {
        let mut first = self.pages.start;
        for word in &mut self.taken {
            let bit = word.trailing_ones();
            let page = first + u64::from(bit) * PAGE_SIZE;
            if bit < u64::BITS && page < self.pages.end {
                *word |= 1 << bit;
                return Some(page);
            }
            first += u64::from(u64::BITS) * PAGE_SIZE;
        }
        None
    }

    /// Word and bit of a page that is taken.
    fn find(&self, page: u64) -> Option<(usize, u64)> {
        let index = page.checked_sub(self.pages.start)? / PAGE_SIZE;
        let (word, bit) = ((index / u64::from(u64::BITS)) as usize, 1 << (index % u64::from(u64::BITS)));
        let taken = self.contains(page) && self.taken.get(word)? & bit != 0;
        taken.then_some((word, bit))
    }

    /// False if the page was not taken.
    pub(super) fn give_back(&mut self, page: u64) -> bool {
        let Some((word, bit)) = self.find(page) else { return false };
        self.taken.get_mut(word).is_some_and(|w| {
            *w &= !bit;
            true
        })
    }

    /// Marks a page; false if it was not taken.
    pub(super) fn mark(&mut self, page: u64) -> bool {
        let Some((word, bit)) = self.find(page) else { return false };
        self.marked.get_mut(word).is_some_and(|w| {
            *w |= bit;
            true
        })
    }

    /// No page is marked any more.
    pub(super) fn unmark_all(&mut self) {
        self.marked = [0; WORDS];
    }

    /// Gives back what is marked.
    pub(super) fn free_marked(&mut self) {
        for (taken, marked) in self.taken.iter_mut().zip(&self.marked) {
            *taken &= !marked;
        }
        self.unmark_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_handed_out_once_until_they_come_back() {
        let mut stock = Stock::new(0x10_0000..0x10_0000 + 70 * PAGE_SIZE);
        let pages: [u64; 70] = core::array::from_fn(|_| stock.take().unwrap());
        assert_eq!(stock.take(), None);
        assert!(pages.windows(2).all(|w| w[1] == w[0] + PAGE_SIZE), "lowest first");
        assert!(stock.give_back(pages[66]));
        assert!(!stock.give_back(pages[66]), "twice");
        assert!(!stock.give_back(0x10_0000 - PAGE_SIZE));
        assert_eq!(stock.take(), Some(pages[66]));
        assert_eq!(stock.take(), None);
        assert!(stock.mark(pages[3]) && stock.mark(pages[9]) && !stock.mark(0));
        stock.unmark_all();
        stock.free_marked();
        assert_eq!(stock.take(), None);
        assert!(stock.mark(pages[9]));
        stock.free_marked();
        assert_eq!((stock.take(), stock.take()), (Some(pages[9]), None));
    }

    #[test]
    fn a_range_larger_than_the_bitmap_is_used_as_far_as_that_reaches() {
        let mut stock = Stock::new(0..1 << 30);
        assert_eq!(core::iter::from_fn(|| stock.take()).count(), 256);
        assert_eq!(Stock::default().take(), None);
    }
}
