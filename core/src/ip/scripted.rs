//! A device of plain registers and memory for tests: what a register does is scripted.

extern crate std;

use super::Device;
use crate::bus::{Bus, BusError, Clock, Dma, DmaHandle, Mmio, Segment, Window};
use crate::reg::{Reg, RegFile, r, tables};
use crate::{chip, discovery, reg};
use core::cell::Cell;
use std::boxed::Box;
use std::collections::HashMap;
use std::vec::Vec;

pub(crate) const VRAM: u64 = 24560 << 20;
const MC_BASE: u32 = 0x8000;
const PAGE: u64 = 4096;

#[derive(Default)]
pub(crate) struct TestClock(pub(crate) Cell<u64>);

impl Clock for TestClock {
    fn now_us(&self) -> u64 {
        self.0.get()
    }
    fn wait_us(&self, us: u64) {
        self.0.set(self.0.get() + us);
    }
}

type Hook = Box<dyn FnMut(&mut State, u32)>;

/// What hooks may change.
#[derive(Default)]
pub(crate) struct State {
    /// Registers by dword address.
    pub(crate) regs: HashMap<u32, u32>,
    /// Every register write, in order: (dword address, value).
    pub(crate) writes: Vec<(u32, u32)>,
    /// Every register read, in order.
    pub(crate) reads: Vec<u32>,
    vram: HashMap<u64, [u8; PAGE as usize]>,
    /// `before_reset` and `after_reset`, by name.
    pub(crate) resets: Vec<&'static str>,
    pub(crate) now: u64,
}

impl State {
    pub(crate) fn read_vram(&self, at: u64, buf: &mut [u8]) {
        for (byte, at) in buf.iter_mut().zip(at..) {
            *byte = self.vram.get(&(at / PAGE)).map_or(0, |p| p[(at % PAGE) as usize]);
        }
    }

    pub(crate) fn write_vram(&mut self, at: u64, data: &[u8]) {
        for (byte, at) in data.iter().zip(at..) {
            self.vram.entry(at / PAGE).or_insert([0; PAGE as usize])[(at % PAGE) as usize] = *byte;
        }
    }
}

#[derive(Default)]
pub(crate) struct TestBus {
    pub(crate) state: State,
    pub(crate) clock: TestClock,
    on_write: HashMap<u32, Hook>,
    on_read: HashMap<u32, Hook>,
}

impl core::fmt::Debug for TestBus {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TestBus")
    }
}

/// Registers of Navi31 as its golden discovery table gives them.
pub(crate) fn navi31() -> RegFile {
    use reg::Block::{Gc, Hdp, Mmhub, Mp0, Mp1, Nbio, Osssys};
    let ips = discovery::parse(include_bytes!("../../../tests/golden/navi31/discovery.bin")).unwrap();
    let mut regs = RegFile::new();
    for block in [Gc, Mp0, Mp1, Nbio, Mmhub, Osssys, Hdp] {
        let table = tables::for_version(block, ips.version(block).unwrap()).unwrap();
        regs.set(table, ips.bases(block, 0).unwrap());
    }
    regs
}

/// A Navi31 whose registers are all 0 but for those that must not be.
pub(crate) fn device() -> Device<TestBus> {
    let regs = navi31();
    let mut bus = TestBus::default();
    bus.state.regs.insert(regs.addr(r::MMMC_VM_FB_LOCATION_BASE).unwrap(), MC_BASE);
    bus.state.regs.insert(regs.addr(r::RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE).unwrap(), 24560);
    bus.state.regs.insert(regs.addr(r::BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL).unwrap(), 0x385c);
    Device::new(bus, regs, chip::find((11, 0, 0)).unwrap(), VRAM).unwrap()
}

impl Device<TestBus> {
    pub(crate) fn put(&mut self, reg: Reg, value: u32) {
        let addr = self.regs.addr(reg).unwrap();
        self.bus.state.regs.insert(addr, value);
    }

    /// Runs `hook` after each write of a register, with the value written.
    pub(crate) fn on_write(&mut self, reg: Reg, hook: impl FnMut(&mut State, u32) + 'static) {
        self.bus.on_write.insert(self.regs.addr(reg).unwrap(), Box::new(hook));
    }

    /// Runs `hook` before each read of a register, with its value.
    pub(crate) fn on_read(&mut self, reg: Reg, hook: impl FnMut(&mut State, u32) + 'static) {
        self.bus.on_read.insert(self.regs.addr(reg).unwrap(), Box::new(hook));
    }

    /// Values written to a register, in order.
    pub(crate) fn written(&self, reg: Reg) -> Vec<u32> {
        let addr = self.regs.addr(reg).unwrap();
        self.bus.state.writes.iter().filter(|w| w.0 == addr).map(|w| w.1).collect()
    }
}

impl Mmio for TestBus {
    fn window_len(&self, window: Window) -> u64 {
        match window {
            Window::Vram => VRAM,
            Window::Doorbells => 0x20_0000,
            Window::Registers => 0x10_0000,
        }
    }

    fn read32(&mut self, _: Window, offset: u64) -> Result<u32, BusError> {
        let addr = (offset / 4) as u32;
        self.state.now = self.clock.now_us();
        self.state.reads.push(addr);
        if let Some(hook) = self.on_read.get_mut(&addr) {
            let value = self.state.regs.get(&addr).copied().unwrap_or(0);
            hook(&mut self.state, value);
        }
        Ok(self.state.regs.get(&addr).copied().unwrap_or(0))
    }

    fn write32(&mut self, _: Window, offset: u64, value: u32) -> Result<(), BusError> {
        let addr = (offset / 4) as u32;
        self.state.now = self.clock.now_us();
        self.state.writes.push((addr, value));
        self.state.regs.insert(addr, value);
        if let Some(hook) = self.on_write.get_mut(&addr) {
            hook(&mut self.state, value);
        }
        Ok(())
    }

    fn read64(&mut self, window: Window, _: u64) -> Result<u64, BusError> {
        Err(BusError::UnsupportedSize { window, size: 8 })
    }

    fn write64(&mut self, window: Window, _: u64, _: u64) -> Result<(), BusError> {
        Err(BusError::UnsupportedSize { window, size: 8 })
    }

    fn read_bulk(&mut self, _: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        self.state.read_vram(offset, buf);
        Ok(())
    }

    fn write_bulk(&mut self, _: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.state.write_vram(offset, data);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), BusError> {
        Ok(())
    }

    fn fence(&mut self) -> Result<(), BusError> {
        Ok(())
    }
}

const NO_DMA: BusError = BusError::Unsupported("use memory of the host in this test");

impl Dma for TestBus {
    fn dma_alloc(&mut self, _: u64) -> Result<DmaHandle, BusError> {
        Err(NO_DMA)
    }
    fn dma_free(&mut self, _: DmaHandle) -> Result<(), BusError> {
        Err(NO_DMA)
    }
    fn dma_len(&self, _: DmaHandle) -> Result<u64, BusError> {
        Err(NO_DMA)
    }
    fn dma_segment(&self, _: DmaHandle, _: u64) -> Result<Segment, BusError> {
        Err(NO_DMA)
    }
    fn dma_read(&mut self, _: DmaHandle, _: u64, _: &mut [u8]) -> Result<(), BusError> {
        Err(NO_DMA)
    }
    fn dma_write(&mut self, _: DmaHandle, _: u64, _: &[u8]) -> Result<(), BusError> {
        Err(NO_DMA)
    }
}

impl Bus for TestBus {
    fn clock(&self) -> &dyn Clock {
        &self.clock
    }
    fn before_reset(&mut self) -> Result<(), BusError> {
        self.state.resets.push("before");
        Ok(())
    }
    fn after_reset(&mut self) -> Result<(), BusError> {
        self.state.resets.push("after");
        Ok(())
    }
}
