//! VRAM that holds page tables: sparse, counting, and failing on demand.

use std::collections::BTreeMap;

use amdev_core::mm::walk::{Flush, TableMemory};

/// What a failing access returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Injected;

impl std::fmt::Display for Injected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("injected bus error")
    }
}

impl std::error::Error for Injected {}

/// Memory by 8-byte words; what was never written is zero.
#[derive(Clone, Debug, Default)]
pub struct TableVram {
    words: BTreeMap<u64, u64>,
    /// Accesses so far: each read, write, zeroing and flush is one.
    pub accesses: u64,
    /// Flushes that succeeded.
    pub flushes: u64,
    /// Accesses with these numbers fail; a write that fails has written its first half.
    pub fail: std::ops::Range<u64>,
}

impl TableVram {
    /// A word, without counting.
    pub fn word(&self, pa: u64) -> u64 {
        self.words.get(&pa).copied().unwrap_or(0)
    }

    /// All words that are not zero.
    pub fn words(&self) -> &BTreeMap<u64, u64> {
        &self.words
    }

    fn put(&mut self, pa: u64, value: u64) {
        if value == 0 {
            self.words.remove(&pa);
        } else {
            self.words.insert(pa, value);
        }
    }

    fn access(&mut self) -> Result<(), Injected> {
        self.accesses += 1;
        if self.fail.contains(&(self.accesses - 1)) { Err(Injected) } else { Ok(()) }
    }
}

impl TableMemory for TableVram {
    type Error = Injected;

    fn read(&mut self, pa: u64, out: &mut [u64]) -> Result<(), Injected> {
        assert_eq!(pa % 8, 0);
        self.access()?;
        for (k, word) in (0..).zip(out) {
            *word = self.word(pa + 8 * k);
        }
        Ok(())
    }

    fn write(&mut self, pa: u64, entries: &[u64]) -> Result<(), Injected> {
        assert_eq!(pa % 8, 0);
        assert!(pa % 4096 + 8 * entries.len() as u64 <= 4096, "a write leaves its table");
        let result = self.access();
        let count = if result.is_ok() { entries.len() } else { entries.len() / 2 };
        for (k, word) in (0..).zip(&entries[..count]) {
            self.put(pa + 8 * k, *word);
        }
        result
    }

    fn zero(&mut self, pa: u64, len: u64) -> Result<(), Injected> {
        let result = self.access();
        let len = if result.is_ok() { len } else { len / 2 };
        let gone: Vec<u64> = self.words.range(pa..pa + len).map(|(pa, _)| *pa).collect();
        for pa in gone {
            self.words.remove(&pa);
        }
        result
    }
}

impl Flush for TableVram {
    fn flush_tlb(&mut self) -> Result<(), Injected> {
        self.access()?;
        self.flushes += 1;
        Ok(())
    }
}
