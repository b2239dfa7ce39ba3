//! VRAM as sparse pages, and the HDP in front of it: what the CPU writes through BAR0 stays in the
//! HDP's write path until it is flushed, so engines do not see it before.

use std::collections::BTreeMap;
#[cfg(target_os = "linux")]
use {crate::shared::SharedMemory, std::collections::BTreeSet};

const PAGE: usize = 4096;

/// Pages in a directory.
const DIR: usize = 512;

struct Page {
    bytes: [u8; PAGE],
    /// The page was walked as a page table.
    table: bool,
}

type Dir = Box<[Option<Box<Page>>; DIR]>;

struct Pending {
    data: Box<[u8; PAGE]>,
    /// One bit for each byte that waits.
    mask: [u64; PAGE / 64],
}

impl Pending {
    fn has(&self, at: usize) -> bool {
        self.mask[at / 64] >> (at % 64) & 1 != 0
    }
}

/// Simulated VRAM.
pub(crate) struct Vram {
    size: u64,
    dirs: Vec<Option<Dir>>,
    pending: BTreeMap<u64, Pending>,
    /// The bytes are in a file that the host may have mapped, not in `dirs`; with its page tables.
    #[cfg(target_os = "linux")]
    shared: Option<(SharedMemory, BTreeSet<u64>)>,
    /// Engines and the CPU see the same (a foreign trace is judged).
    pub(crate) fresh: bool,
    /// Counts stores to page tables.
    pub(crate) table_generation: u64,
}

impl Vram {
    pub(crate) fn new(size: u64) -> Vram {
        Vram {
            size,
            dirs: Self::directories(size),
            pending: BTreeMap::new(),
            #[cfg(target_os = "linux")]
            shared: None,
            fresh: false,
            table_generation: 0,
        }
    }

    fn directories(size: u64) -> Vec<Option<Dir>> {
        let count = size.div_ceil((PAGE * DIR) as u64);
        (0..count).map(|_| None).collect()
    }

    /// The bytes move into `memory`, as long as the VRAM, where the host can write unseen: nothing
    /// waits in the HDP any more.
    #[cfg(target_os = "linux")]
    pub(crate) fn share(&mut self, memory: SharedMemory) {
        self.flush();
        let mut tables = BTreeSet::new();
        for (d, dir) in self.dirs.iter().enumerate() {
            let pages = dir.iter().flat_map(|dir| dir.iter().enumerate());
            for (p, page) in pages.filter_map(|(p, page)| Some((p, page.as_deref()?))) {
                let number = (d * DIR + p) as u64;
                memory.store(number * PAGE as u64, &page.bytes);
                if page.table {
                    tables.insert(number);
                }
            }
        }
        self.dirs = Self::directories(0);
        self.shared = Some((memory, tables));
    }

    fn page(&self, page: u64) -> Option<&Page> {
        let page = page as usize;
        self.dirs.get(page / DIR)?.as_ref()?[page % DIR].as_deref()
    }

    /// The page, made if it is not there; `None` past the end.
    fn page_mut(&mut self, page: u64) -> Option<&mut Page> {
        let page = page as usize;
        let dir = self.dirs.get_mut(page / DIR)?;
        let dir = dir.get_or_insert_with(|| Box::new([const { None }; DIR]));
        Some(dir[page % DIR].get_or_insert_with(|| Box::new(Page { bytes: [0; PAGE], table: false })))
    }

    /// The page is used as a page table: stores to it make cached translations suspect.
    pub(crate) fn mark_table(&mut self, page: u64) {
        #[cfg(target_os = "linux")]
        if let Some((_, tables)) = &mut self.shared {
            tables.insert(page);
            return;
        }
        if let Some(p) = self.page_mut(page) {
            p.table = true;
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    fn chunks(at: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            if done >= len {
                return None;
            }
            let pos = at + done as u64;
            let (page, off) = (pos / PAGE as u64, (pos % PAGE as u64) as usize);
            let n = (PAGE - off).min(len - done);
            let range = done..done + n;
            done += n;
            Some((page, off, range))
        })
    }

    /// True if the whole range lies in VRAM.
    pub(crate) fn contains(&self, at: u64, len: usize) -> bool {
        at.checked_add(len as u64).is_some_and(|end| end <= self.size)
    }

    fn load(&self, at: u64, buf: &mut [u8]) {
        #[cfg(target_os = "linux")]
        if let Some((memory, _)) = &self.shared {
            memory.load(at, buf);
            return;
        }
        for (page, off, range) in Self::chunks(at, buf.len()) {
            let n = range.len();
            match self.page(page) {
                Some(p) => buf[range].copy_from_slice(&p.bytes[off..off + n]),
                None => buf[range].fill(0),
            }
        }
    }

    fn store(&mut self, at: u64, data: &[u8]) {
        #[cfg(target_os = "linux")]
        if let Some((memory, tables)) = &self.shared {
            memory.store(at, data);
            let (first, last) = (at / PAGE as u64, (at + data.len() as u64) / PAGE as u64);
            self.table_generation += u64::from(tables.range(first..=last).next().is_some());
            return;
        }
        for (page, off, range) in Self::chunks(at, data.len()) {
            let n = range.len();
            if self.page(page).is_none() && data[range.clone()].iter().all(|b| *b == 0) {
                continue;
            }
            let Some(p) = self.page_mut(page) else { continue };
            p.bytes[off..off + n].copy_from_slice(&data[range]);
            self.table_generation += u64::from(p.table);
        }
    }

    /// The CPU writes through BAR0.
    pub(crate) fn cpu_write(&mut self, at: u64, data: &[u8]) {
        #[cfg(target_os = "linux")]
        if self.shared.is_some() {
            self.store(at, data);
            return;
        }
        for (page, off, range) in Self::chunks(at, data.len()) {
            let p = self
                .pending
                .entry(page)
                .or_insert_with(|| Pending { data: Box::new([0; PAGE]), mask: [0; PAGE / 64] });
            p.data[off..off + range.len()].copy_from_slice(&data[range.clone()]);
            for i in off..off + range.len() {
                p.mask[i / 64] |= 1 << (i % 64);
            }
        }
    }

    /// The CPU reads through BAR0: its own writes are seen.
    pub(crate) fn cpu_read(&self, at: u64, buf: &mut [u8]) {
        self.load(at, buf);
        self.overlay(at, buf);
    }

    fn overlay(&self, at: u64, buf: &mut [u8]) {
        if self.pending.is_empty() {
            return;
        }
        for (page, off, range) in Self::chunks(at, buf.len()) {
            if let Some(p) = self.pending.get(&page) {
                for (i, b) in buf[range].iter_mut().enumerate() {
                    if p.has(off + i) {
                        *b = p.data[off + i];
                    }
                }
            }
        }
    }

    /// First byte in the range that the CPU wrote and did not flush.
    pub(crate) fn unflushed(&self, at: u64, len: usize) -> Option<u64> {
        if self.pending.is_empty() {
            return None;
        }
        Self::chunks(at, len).find_map(|(page, off, range)| {
            let p = self.pending.get(&page)?;
            (off..off + range.len()).find(|i| p.has(*i)).map(|i| page * PAGE as u64 + i as u64)
        })
    }

    /// An engine reads: stale where a flush is missing, unless judging.
    pub(crate) fn engine_read(&self, at: u64, buf: &mut [u8]) {
        self.load(at, buf);
        if self.fresh {
            self.overlay(at, buf);
        }
    }

    /// An engine writes. Bytes that still wait in the HDP are dropped there: the engine came last.
    pub(crate) fn engine_write(&mut self, at: u64, data: &[u8]) {
        self.store(at, data);
        if self.pending.is_empty() {
            return;
        }
        for (page, off, range) in Self::chunks(at, data.len()) {
            if let Some(p) = self.pending.get_mut(&page) {
                for i in off..off + range.len() {
                    p.mask[i / 64] &= !(1 << (i % 64));
                }
            }
        }
    }

    /// The HDP flush: everything written becomes visible.
    pub(crate) fn flush(&mut self) {
        for (page, p) in std::mem::take(&mut self.pending) {
            let base = page * PAGE as u64;
            let mut i = 0;
            while i < PAGE {
                if !p.has(i) {
                    i += 1;
                    continue;
                }
                let start = i;
                while i < PAGE && p.has(i) {
                    i += 1;
                }
                self.store(base + start as u64, &p.data[start..i]);
            }
        }
    }

    /// Loses everything, as a reset does.
    pub(crate) fn clear(&mut self) {
        self.table_generation += 1;
        #[cfg(target_os = "linux")]
        if let Some((memory, tables)) = &mut self.shared {
            memory.clear();
            tables.clear();
            return;
        }
        self.dirs = Self::directories(self.size);
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_see_cpu_writes_after_the_flush_only() {
        let mut v = Vram::new(1 << 20);
        v.cpu_write(0xffe, &[1, 2, 3, 4]);
        let mut b = [9; 4];
        v.engine_read(0xffe, &mut b);
        assert_eq!(b, [0; 4], "stale");
        v.cpu_read(0xffe, &mut b);
        assert_eq!(b, [1, 2, 3, 4], "the CPU sees its own writes");
        assert_eq!(v.unflushed(0, 0x2000), Some(0xffe));
        v.flush();
        v.engine_read(0xffe, &mut b);
        assert_eq!(b, [1, 2, 3, 4]);
        assert_eq!(v.unflushed(0, 0x2000), None);
    }

    #[test]
    fn a_judged_trace_is_served_fresh_data() {
        let mut v = Vram::new(1 << 20);
        v.fresh = true;
        v.cpu_write(8, &[7]);
        let mut b = [0];
        v.engine_read(8, &mut b);
        assert_eq!((b, v.unflushed(8, 1)), ([7], Some(8)));
    }

    #[test]
    fn an_engines_store_is_not_undone_by_a_later_flush() {
        let mut v = Vram::new(1 << 20);
        v.cpu_write(0, &[0; 8]);
        v.engine_write(0, &[5; 4]);
        v.flush();
        let mut b = [0; 8];
        v.cpu_read(0, &mut b);
        assert_eq!(b, [5, 5, 5, 5, 0, 0, 0, 0]);
    }
}
