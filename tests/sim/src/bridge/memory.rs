//! The controller's address space (XDATA) and the pieces of it that PCIe devices reach by DMA.
//!
//! | XDATA | PCIe | what |
//! |---|---|---|
//! | 0xF000..0x10000 | 0x200000..0x280000 | block memory; the controller sees its first 4 KiB only |
//! | 0xA000..0xB000 | 0x820000..0x821000 | submission queues of the NVMe engine, free for use |
//! | 0xB800..0xC000 | 0x822000..0x823000 | its completion queue; open firmware only |
//!
//! Sources: the reference driver (`ops_amd.py`, `USBIface`), the open firmware's notes (`registers.h`,
//! `app/README.md`: "first 4KB only").

use crate::gpu::SimGpu;
use crate::host::{DmaAccess, HostMemory, VecMemory};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const BLOCKS_AT: u64 = 0x20_0000;
pub(crate) const BLOCKS_LEN: usize = 0x8_0000;
const QUEUE_AT: u64 = 0x82_0000;
const CQ_AT: u64 = 0x82_2000;
const PAGE: usize = 0x1000;
/// The dword of the first completion entry that holds its phase bit: a write there makes the NVMe
/// engine send what it was armed for.
const CQ_PHASE: std::ops::Range<u64> = 12..16;

/// XDATA addresses: 64 KiB, and a bank of PHY registers behind it.
const LEN: usize = 0x2_0000;

/// The NVMe completion queue. Counts writes of its first entry's phase.
struct CompletionQueue {
    bytes: Arc<VecMemory>,
    completions: AtomicU64,
}

impl HostMemory for CompletionQueue {
    fn read(&self, offset: u64, buf: &mut [u8]) {
        self.bytes.read(offset, buf);
    }

    fn write(&self, offset: u64, data: &[u8]) {
        self.bytes.write(offset, data);
        if offset < CQ_PHASE.end && offset + data.len() as u64 > CQ_PHASE.start {
            self.completions.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Where an XDATA address leads.
enum Window {
    Blocks(usize),
    Queue(usize),
    Completions(usize),
    Plain,
}

pub(crate) struct Memory {
    plain: Vec<u8>,
    blocks: Arc<VecMemory>,
    queue: Arc<VecMemory>,
    cq: Option<Arc<CompletionQueue>>,
    mapped: bool,
}

impl Memory {
    /// `cq`: the completion queue can be reached, too.
    pub(crate) fn new(cq: bool) -> Memory {
        Memory {
            plain: vec![0; LEN],
            blocks: VecMemory::new(BLOCKS_LEN),
            queue: VecMemory::new(PAGE),
            cq: cq.then(|| {
                Arc::new(CompletionQueue { bytes: VecMemory::new(PAGE), completions: AtomicU64::new(0) })
            }),
            mapped: false,
        }
    }

    /// Lets the GPU reach the windows, or not: requests upstream pass bridges that may master the bus.
    pub(crate) fn let_dma(&mut self, gpu: &SimGpu, allowed: bool) {
        if allowed == self.mapped {
            return;
        }
        self.mapped = allowed;
        if allowed {
            gpu.dma_map_for(BLOCKS_AT, BLOCKS_LEN as u64, DmaAccess::BOTH, self.blocks.clone());
            gpu.dma_map_for(QUEUE_AT, PAGE as u64, DmaAccess::BOTH, self.queue.clone());
            if let Some(cq) = &self.cq {
                gpu.dma_map_for(CQ_AT, PAGE as u64, DmaAccess::BOTH, cq.clone());
            }
        } else {
            gpu.dma_unmap_all();
        }
    }

    /// Completions that the GPU has written so far.
    pub(crate) fn completions(&self) -> u64 {
        self.cq.as_ref().map_or(0, |cq| cq.completions.load(Ordering::Relaxed))
    }

    fn window(&self, at: usize) -> Window {
        match at {
            0xf000..0x1_0000 => Window::Blocks(at - 0xf000),
            0xa000..0xb000 => Window::Queue(at - 0xa000),
            0xb800..0xc000 if self.cq.is_some() => Window::Completions(at - 0xb800),
            _ => Window::Plain,
        }
    }

    /// The bus address behind an XDATA address, if PCIe devices reach it.
    fn bus(&self, at: usize) -> Option<u64> {
        match self.window(at) {
            Window::Blocks(o) => Some(BLOCKS_AT + o as u64),
            Window::Queue(o) => Some(QUEUE_AT + o as u64),
            Window::Completions(o) => Some(CQ_AT + o as u64),
            Window::Plain => None,
        }
    }

    pub(crate) fn get(&self, at: usize) -> u8 {
        let one = |m: &VecMemory, o: usize| {
            let mut b = [0];
            m.read(o as u64, &mut b);
            b[0]
        };
        match (self.window(at), &self.cq) {
            (Window::Blocks(o), _) => one(&self.blocks, o),
            (Window::Queue(o), _) => one(&self.queue, o),
            (Window::Completions(o), Some(cq)) => one(&cq.bytes, o),
            _ => self.plain.get(at).copied().unwrap_or(0xff),
        }
    }

    pub(crate) fn set(&mut self, at: usize, value: u8) {
        match (self.window(at), &self.cq) {
            (Window::Blocks(o), _) => self.blocks.store(o, &[value]),
            (Window::Queue(o), _) => self.queue.store(o, &[value]),
            (Window::Completions(o), Some(cq)) => cq.bytes.store(o, &[value]),
            _ => {
                if let Some(slot) = self.plain.get_mut(at) {
                    *slot = value;
                }
            }
        }
    }

    /// Bytes for the host; what it reads of shared memory, it reads after the GPU wrote it.
    pub(crate) fn read(&self, gpu: &SimGpu, at: usize, len: usize) -> Vec<u8> {
        if let (Some(bus), true) = (self.bus(at), self.mapped) {
            gpu.host_reads(bus, len);
        }
        (at..at + len).map(|a| self.get(a)).collect()
    }

    /// A byte from the host.
    pub(crate) fn write(&mut self, gpu: &SimGpu, at: usize, value: u8) {
        self.set(at, value);
        if let (Some(bus), true) = (self.bus(at), self.mapped) {
            gpu.host_writes(bus, 1);
        }
    }

    /// A block from the host; false if it does not fit.
    pub(crate) fn write_block(&mut self, gpu: &SimGpu, at: usize, data: &[u8]) -> bool {
        if at.checked_add(data.len()).is_none_or(|end| end > BLOCKS_LEN) {
            return false;
        }
        self.blocks.store(at, data);
        if self.mapped {
            gpu.host_writes(BLOCKS_AT + at as u64, data.len());
        }
        true
    }

    /// A block for the host; `None` if it would reach past the end.
    pub(crate) fn read_block(&self, gpu: &SimGpu, at: usize, len: usize) -> Option<Vec<u8>> {
        if at.checked_add(len).is_none_or(|end| end > BLOCKS_LEN) {
            return None;
        }
        if self.mapped {
            gpu.host_reads(BLOCKS_AT + at as u64, len);
        }
        Some(self.blocks.bytes(at, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_sees_the_first_page_of_block_memory_and_the_queue_page() {
        let gpu = SimGpu::new(crate::Config::new("navi48").unwrap());
        let mut m = Memory::new(false);
        m.let_dma(&gpu, true);
        assert!(m.write_block(&gpu, 0, &[1, 2, 3, 4]));
        assert!(m.write_block(&gpu, 0x1000, &[9]));
        assert!(!m.write_block(&gpu, BLOCKS_LEN - 1, &[1, 2]));
        assert_eq!(m.read(&gpu, 0xf000, 4), [1, 2, 3, 4]);
        m.write(&gpu, 0xa7ff, 0x5a);
        assert_eq!(m.queue.bytes(0x7ff, 1), [0x5a]);
        m.write(&gpu, 0x1_ffff, 0x77);
        assert_eq!((m.get(0x1_ffff), m.get(0xffff)), (0x77, 0));
        // The page behind the windows is not mapped for DMA, the windows are.
        let d = gpu.lock();
        assert!(d.dma.read(0x28_0000, &mut [0; 4]).is_err());
        assert!(d.dma.read(0x82_1000, &mut [0; 4]).is_err());
        assert!(d.dma.read(0x82_2000, &mut [0; 4]).is_err(), "vendor firmware: no completion queue");
        assert!(d.dma.read(0x27_fffc, &mut [0; 4]).is_ok());
    }

    #[test]
    fn a_write_of_the_phase_dword_counts_as_a_completion() {
        let m = Memory::new(true);
        let cq = m.cq.clone().unwrap();
        cq.write(0, &[0; 12]);
        assert_eq!(m.completions(), 0);
        cq.write(12, &[0; 4]);
        cq.write(0, &[0; 0x1000]);
        assert_eq!(m.completions(), 2);
    }
}
