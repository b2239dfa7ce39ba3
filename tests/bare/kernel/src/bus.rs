//! The bus: everything that amdev-core needs of a machine. This is the file to copy.
//!
//! It finds the GPU in PCI configuration space, places its windows where firmware has not, and
//! implements the traits: windows are memory at fixed addresses ([`Mmio`]), DMA memory is physical
//! memory at the same bus address ([`Dma`]), time comes from the processor ([`Clock`]). There are
//! no interrupts here: [`Bus::wait_interrupt`] keeps its default, and the core looks at memory.

use crate::machine::{Timer, in32, map_device, out32};
use amdev_core::bus::{Bus, BusError, Clock, Dma, DmaHandle, Mmio, Segment, Window};

/// Where windows go that firmware has not placed: 64-bit ones above all memory, the others into the
/// hole below 4 GiB. A real system would take both from ACPI.
const HIGH: u64 = 0x80_0000_0000;
const LOW: u64 = 0xd000_0000;

/// A function of a device on the PCI bus.
#[derive(Clone, Copy)]
struct Function {
    bus: u8,
    device: u8,
    function: u8,
}

impl Function {
    /// Configuration space through ports 0xcf8 and 0xcfc (PCI Local Bus 3.0, 3.2.2.3.2).
    fn select(self, at: u8) {
        let [bus, device, function] = [self.bus, self.device, self.function].map(u32::from);
        out32(0xcf8, 1 << 31 | bus << 16 | device << 11 | function << 8 | u32::from(at & 0xfc));
    }
    fn read(self, at: u8) -> u32 {
        self.select(at);
        in32(0xcfc)
    }
    fn write(self, at: u8, value: u32) {
        self.select(at);
        out32(0xcfc, value);
    }
    fn enable(self) {
        // Memory accesses and bus mastering; the upper half has write-one-to-clear bits.
        self.write(4, self.read(4) & 0xffff | 6);
    }
}

/// The first AMD GPU, and the bridge above it.
fn find(bus: u8, bridge: Option<Function>, next_bus: &mut u8) -> Option<(Function, Option<Function>)> {
    for (device, function) in (0..32).flat_map(|d| (0..8).map(move |f| (d, f))) {
        let at = Function { bus, device, function };
        let id = at.read(0);
        if id == 0xffff_ffff {
            continue;
        }
        let class = at.read(8) >> 16;
        if id & 0xffff == 0x1002 && class >> 8 == 3 {
            return Some((at, bridge));
        }
        if class == 0x0604 {
            let mut secondary = (at.read(0x18) >> 8) as u8;
            if secondary == 0 {
                // Firmware has not numbered the buses.
                secondary = *next_bus;
                at.write(0x18, 0xff << 16 | u32::from(secondary) << 8 | u32::from(bus));
            }
            *next_bus = (*next_bus).max(secondary).saturating_add(1);
            let found = find(secondary, Some(at), next_bus);
            if found.is_some() {
                at.enable();
                return found;
            }
        }
    }
    None
}

/// A base address register: where it leads and how much it spans.
#[derive(Clone, Copy, Default)]
struct Bar {
    start: u64,
    len: u64,
    wide: bool,
}

fn read_bar(at: Function, index: u8) -> Bar {
    let reg = 0x10 + 4 * index;
    let low = at.read(reg);
    if low & 1 != 0 {
        return Bar::default();
    }
    let wide = low & 6 == 4;
    let high = if wide { at.read(reg + 4) } else { 0 };
    // Ones that do not stick are the address bits that it decodes itself. Decoding is off meanwhile.
    let command = at.read(4) & 0xffff;
    at.write(4, command & !7);
    at.write(reg, !0);
    let mut mask = u64::from(at.read(reg) & !0xf) | !0 << 32;
    if wide {
        at.write(reg + 4, !0);
        mask = mask & 0xffff_ffff | u64::from(at.read(reg + 4)) << 32;
        at.write(reg + 4, high);
    }
    at.write(reg, low);
    at.write(4, command);
    let len = if mask & 0xffff_ffff == 0 && !wide { 0 } else { (!mask).wrapping_add(1) };
    Bar { start: u64::from(low & !0xf) | u64::from(high) << 32, len, wide }
}

/// Places windows that have no address, and opens the bridge's windows to them.
fn place(at: Function, bridge: Option<Function>, bars: &mut [(u8, Bar); 3]) {
    let (mut high, mut low) = (HIGH, LOW);
    for (index, bar) in bars.iter_mut().filter(|(_, bar)| bar.len != 0) {
        let next = if bar.wide { &mut high } else { &mut low };
        bar.start = next.next_multiple_of(bar.len);
        *next = bar.start + bar.len;
        at.write(0x10 + 4 * *index, bar.start as u32);
        if bar.wide {
            at.write(0x14 + 4 * *index, (bar.start >> 32) as u32);
        }
    }
    if let Some(bridge) = bridge {
        // Bases and limits in units of 1 MiB; 64-bit windows are the prefetchable ones.
        let window = |start: u64, end: u64| (start >> 16) as u32 & 0xfff0 | (end - 1) as u32 & 0xfff0_0000;
        bridge.write(0x20, window(LOW, low.max(LOW + 1)));
        bridge.write(0x24, window(HIGH, high.max(HIGH + 1)));
        bridge.write(0x28, (HIGH >> 32) as u32);
        bridge.write(0x2c, ((high.max(HIGH + 1) - 1) >> 32) as u32);
    }
}

/// The most DMA allocations at once.
const MAX_DMA: usize = 64;

/// A GPU on this machine's bus.
pub struct MachineBus {
    windows: [Bar; 3],
    timer: Timer,
    /// Free physical memory: next byte and end.
    free: (u64, u64),
    allocations: [Segment; MAX_DMA],
    /// PCI device id and revision.
    pub pci_id: (u16, u8),
    /// True if the windows had to be placed here.
    pub placed: bool,
}

impl MachineBus {
    /// Finds the GPU. `free` is physical memory for it and nobody else, start and end.
    pub fn find(free: (u64, u64)) -> Result<MachineBus, &'static str> {
        let (at, bridge) = find(0, None, &mut 1).ok_or("no AMD GPU is on the PCI bus")?;
        let mut bars =
            [Window::Vram, Window::Doorbells, Window::Registers].map(|w| (w.bar(), Bar::default()));
        for (index, bar) in &mut bars {
            *bar = read_bar(at, *index);
        }
        let placed = bars.iter().any(|(_, bar)| bar.start == 0 && bar.len != 0);
        if placed {
            place(at, bridge, &mut bars);
        }
        at.enable();
        let windows = bars.map(|(_, bar)| bar);
        if windows.iter().any(|bar| bar.len == 0 || !map_device(bar.start, bar.len)) {
            return Err("the GPU lacks a window (BAR 0, 2 or 5), or it cannot be mapped");
        }
        let pci_id = ((at.read(0) >> 16) as u16, at.read(8) as u8);
        let allocations = [Segment::default(); MAX_DMA];
        Ok(MachineBus { windows, timer: Timer::new(), free, allocations, pci_id, placed })
    }

    fn window(&self, window: Window) -> Bar {
        let [vram, doorbells, registers] = self.windows;
        match window {
            Window::Vram => vram,
            Window::Doorbells => doorbells,
            Window::Registers => registers,
        }
    }

    /// Address of an access that was checked to lie inside its window.
    fn at(&self, window: Window, offset: u64, len: u64, align: u64) -> Result<*mut u8, BusError> {
        let bar = self.window(window);
        let inside = offset.checked_add(len).is_some_and(|end| end <= bar.len);
        if inside && offset.is_multiple_of(align) {
            Ok((bar.start + offset) as *mut u8)
        } else {
            Err(BusError::OutOfWindow { window, offset, len, window_len: bar.len })
        }
    }

    fn dma_at(&self, handle: DmaHandle, offset: u64, len: u64) -> Result<*mut u8, BusError> {
        let a = self.allocations.get(handle.0 as usize).copied().unwrap_or_default();
        let inside = offset.checked_add(len).is_some_and(|end| end <= a.len);
        if inside {
            Ok((a.addr + offset) as *mut u8)
        } else {
            Err(BusError::BadDmaRange { handle, offset, len })
        }
    }
}

/// Copies in units of 8 bytes where the address allows it: an access to a device costs the same
/// whatever its size. Volatile, because a device stands behind one side or may change it.
fn read_from(from: *const u8, buf: &mut [u8]) {
    let mut done = 0;
    while done < buf.len() {
        let at = from.wrapping_add(done);
        match buf.get_mut(done..done + 8) {
            // SAFETY: the callers checked the whole range against its window or allocation.
            Some(to) if (at as usize).is_multiple_of(8) => {
                to.copy_from_slice(&unsafe { at.cast::<u64>().read_volatile() }.to_le_bytes());
                done += 8;
            }
            _ => {
                // SAFETY: as above.
                buf[done] = unsafe { at.read_volatile() };
                done += 1;
            }
        }
    }
}

fn write_to(to: *mut u8, data: &[u8]) {
    let mut rest = data;
    let mut at = to;
    while let Some((first, after)) = rest.split_first() {
        // SAFETY: as in `read_from`.
        unsafe {
            match (at as usize % 8, rest.split_first_chunk::<8>(), rest.split_first_chunk::<4>()) {
                (0, Some((bytes, after)), _) => {
                    at.cast::<u64>().write_volatile(u64::from_le_bytes(*bytes));
                    (at, rest) = (at.wrapping_add(8), after);
                }
                (0 | 4, _, Some((bytes, after))) => {
                    at.cast::<u32>().write_volatile(u32::from_le_bytes(*bytes));
                    (at, rest) = (at.wrapping_add(4), after);
                }
                _ => {
                    at.write_volatile(*first);
                    (at, rest) = (at.wrapping_add(1), after);
                }
            }
        }
    }
}

impl Mmio for MachineBus {
    fn window_len(&self, window: Window) -> u64 {
        self.window(window).len
    }
    fn read32(&mut self, window: Window, offset: u64) -> Result<u32, BusError> {
        let at = self.at(window, offset, 4, 4)?;
        // SAFETY: `at` lies in a mapped window.
        Ok(unsafe { at.cast::<u32>().read_volatile() })
    }
    fn write32(&mut self, window: Window, offset: u64, value: u32) -> Result<(), BusError> {
        let at = self.at(window, offset, 4, 4)?;
        // SAFETY: `at` lies in a mapped window; windows hold nothing of this program.
        unsafe { at.cast::<u32>().write_volatile(value) };
        Ok(())
    }
    fn read64(&mut self, window: Window, offset: u64) -> Result<u64, BusError> {
        let at = self.at(window, offset, 8, 8)?;
        // SAFETY: as in `read32`.
        Ok(unsafe { at.cast::<u64>().read_volatile() })
    }
    fn write64(&mut self, window: Window, offset: u64, value: u64) -> Result<(), BusError> {
        let at = self.at(window, offset, 8, 8)?;
        // SAFETY: as in `write32`.
        unsafe { at.cast::<u64>().write_volatile(value) };
        Ok(())
    }
    fn read_bulk(&mut self, window: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        read_from(self.at(window, offset, buf.len() as u64, 1)?, buf);
        Ok(())
    }
    fn write_bulk(&mut self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        write_to(self.at(window, offset, data.len() as u64, 1)?, data);
        Ok(())
    }
    // The pages are uncached: writes go out in order, at once.
    fn flush(&mut self) -> Result<(), BusError> {
        Ok(())
    }
    fn fence(&mut self) -> Result<(), BusError> {
        core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
        Ok(())
    }
}

/// No IOMMU, and caches that snoop: a bus address is a physical address, and nothing is to be synced.
impl Dma for MachineBus {
    fn dma_alloc(&mut self, len: u64) -> Result<DmaHandle, BusError> {
        let none = BusError::NoDmaMemory { len };
        let slot = self.allocations.iter().position(|a| a.len == 0).ok_or(none)?;
        let len = len.checked_next_multiple_of(0x1000).filter(|len| *len > 0).ok_or(none)?;
        let start = self.free.0;
        self.free.0 = start.checked_add(len).filter(|end| *end <= self.free.1).ok_or(none)?;
        self.allocations[slot] = Segment { addr: start, len };
        // SAFETY: free memory, which nobody else has.
        unsafe { (start as *mut u8).write_bytes(0, len as usize) };
        Ok(DmaHandle(slot as u32))
    }
    fn dma_free(&mut self, handle: DmaHandle) -> Result<(), BusError> {
        self.dma_at(handle, 0, 1)?;
        let a = core::mem::take(&mut self.allocations[handle.0 as usize]);
        // Only the last one makes room again: enough for one job.
        if a.addr + a.len == self.free.0 {
            self.free.0 = a.addr;
        }
        Ok(())
    }
    fn dma_len(&self, handle: DmaHandle) -> Result<u64, BusError> {
        self.dma_at(handle, 0, 1)?;
        Ok(self.allocations[handle.0 as usize].len)
    }
    fn dma_segment(&self, handle: DmaHandle, offset: u64) -> Result<Segment, BusError> {
        let addr = self.dma_at(handle, offset, 1)? as u64;
        Ok(Segment { addr, len: self.dma_len(handle)? - offset })
    }
    fn dma_read(&mut self, handle: DmaHandle, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        read_from(self.dma_at(handle, offset, buf.len() as u64)?, buf);
        Ok(())
    }
    fn dma_write(&mut self, handle: DmaHandle, offset: u64, data: &[u8]) -> Result<(), BusError> {
        write_to(self.dma_at(handle, offset, data.len() as u64)?, data);
        Ok(())
    }
}

impl Clock for MachineBus {
    fn now_us(&self) -> u64 {
        self.timer.now_us()
    }
    fn wait_us(&self, us: u64) {
        let end = self.now_us().saturating_add(us);
        while self.now_us() < end {
            core::hint::spin_loop();
        }
    }
}

impl Bus for MachineBus {
    fn clock(&self) -> &dyn Clock {
        self
    }
}
