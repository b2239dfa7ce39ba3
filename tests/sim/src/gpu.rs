//! The handle a host holds: windows, configuration space, DMA, interrupts and time of one GPU.

use crate::config::{Config, Fault};
use crate::device::Device;
use crate::gmc::Place;
use crate::host::{DmaAccess, DmaMap, HostMemory, Unmapped};
use crate::pci::{BAR2_LEN, BAR5_LEN, ROM_LEN};
use crate::violation::Violation;
use std::sync::{Arc, Mutex, MutexGuard};
use thiserror::Error;

/// Why an access was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BusFault {
    /// Not a window of this device, or past its end.
    #[error("access to BAR{bar} at {offset:#x} is outside of its window")]
    OutOfWindow {
        /// The window.
        bar: u8,
        /// Byte offset in it.
        offset: u64,
    },
    /// Size or alignment that the window does not support.
    #[error("access of {len} bytes to BAR{bar} at {offset:#x}: size or alignment not supported")]
    Unsupported {
        /// The window.
        bar: u8,
        /// Byte offset in it.
        offset: u64,
        /// Length in bytes.
        len: usize,
    },
    /// The device is unplugged.
    #[error("the device is gone")]
    Gone,
}

/// What a driver cost so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Counts {
    /// Register reads through BAR5.
    pub register_reads: u64,
    /// Register writes through BAR5.
    pub register_writes: u64,
    /// Bytes read through BAR0.
    pub vram_bytes_read: u64,
    /// Bytes written through BAR0.
    pub vram_bytes_written: u64,
    /// Doorbells rung.
    pub doorbells: u64,
    /// HDP flushes.
    pub hdp_flushes: u64,
    /// TLB invalidations.
    pub tlb_flushes: u64,
    /// Interrupts raised.
    pub interrupts: u64,
    /// Accesses of any kind, the count that `ones:N` and `unplug:N` refer to.
    pub accesses: u64,
}

/// One simulated GPU. Clones are handles to the same one; its state outlives them all but the
/// last, so a driver can leave and come back.
#[derive(Clone)]
pub struct SimGpu(Arc<Mutex<Device>>);

impl SimGpu {
    /// Builds the GPU in the state that `config` names.
    pub fn new(config: Config) -> SimGpu {
        SimGpu(Arc::new(Mutex::new(Device::new(config))))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Device> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// What it was built from.
    pub fn config(&self) -> Config {
        self.lock().config.clone()
    }

    /// Length of a window in bytes: 0 VRAM, 2 doorbells, 5 registers, 6 the
    /// expansion ROM; 0 for any other.
    pub fn bar_len(&self, bar: u8) -> u64 {
        match bar {
            0 => self.lock().pci.bar0(),
            2 => BAR2_LEN,
            5 => BAR5_LEN,
            6 => ROM_LEN,
            _ => 0,
        }
    }

    /// Reads from a window. Registers: 4 bytes, aligned, or a run of them; VRAM: anything.
    /// A device that is unplugged or in reset answers with all ones.
    pub fn read(&self, bar: u8, offset: u64, buf: &mut [u8]) -> Result<(), BusFault> {
        self.lock().bar_read(bar, offset, buf)
    }

    /// Writes to a window. Registers: 4 bytes, aligned, or a run of them; doorbells: 4 or 8 bytes,
    /// aligned; VRAM: anything.
    pub fn write(&self, bar: u8, offset: u64, data: &[u8]) -> Result<(), BusFault> {
        self.lock().bar_write(bar, offset, data)
    }

    /// Reads configuration space.
    pub fn config_read(&self, offset: u16, buf: &mut [u8]) {
        self.lock().config_read(offset, buf)
    }

    /// Writes configuration space. Device control can ask for a function-level reset.
    pub fn config_write(&self, offset: u16, data: &[u8]) {
        self.lock().config_write(offset, data)
    }

    /// Lets the device reach `len` bytes of `memory` at bus address `iova`; false if the range is
    /// taken.
    pub fn dma_map(&self, iova: u64, len: u64, memory: Arc<dyn HostMemory>) -> bool {
        self.dma_map_for(iova, len, DmaAccess::BOTH, memory)
    }

    /// As [`SimGpu::dma_map`], for reading or writing only.
    pub fn dma_map_for(&self, iova: u64, len: u64, access: DmaAccess, memory: Arc<dyn HostMemory>) -> bool {
        self.lock().dma.map(iova, len, access, memory)
    }

    /// Takes the mappings inside the range away; false if there was none.
    pub fn dma_unmap(&self, iova: u64, len: u64) -> bool {
        matches!(self.lock().dma_unmap(iova, len), Unmapped::Gone(n) if n > 0)
    }

    /// As [`SimGpu::dma_unmap`]; how many mappings were there, or `None` if the range would cut one
    /// in two, and then nothing is done.
    pub fn dma_unmap_range(&self, iova: u64, len: u64) -> Option<usize> {
        match self.lock().dma_unmap(iova, len) {
            Unmapped::Gone(n) => Some(n),
            Unmapped::Cuts => None,
        }
    }

    /// Takes all of the host's mappings away, as when the process that drove the device ends. What
    /// its engines still do with that memory faults.
    pub fn dma_unmap_all(&self) {
        self.lock().dma = DmaMap::default();
    }

    /// From now on these faults happen, and accesses are counted anew: what was done to the device
    /// so far belongs to its past.
    pub fn start_anew(&self, faults: Vec<Fault>) {
        let mut device = self.lock();
        device.config.faults = faults;
        device.counts = Counts::default();
        device.take_interrupts();
    }

    /// The CPU has read `len` bytes of memory that is mapped at this bus address.
    pub fn host_reads(&self, iova: u64, len: usize) {
        self.lock().cpu_loads(Place::System(iova), len)
    }

    /// The CPU has written `len` bytes of memory that is mapped at this bus address.
    pub fn host_writes(&self, iova: u64, len: usize) {
        let mut device = self.lock();
        let now = device.time();
        device.wake_queues(now);
        device.cpu_stores(Place::System(iova), len);
    }

    /// Microseconds since power on.
    pub fn now_us(&self) -> u64 {
        self.lock().now_us()
    }

    /// Lets time pass (virtual clock), or catches up with it (real clock).
    pub fn advance_us(&self, us: u64) {
        self.lock().advance_ns(us.saturating_mul(1000))
    }

    /// Lets happen what is due, and tells how many nanoseconds later something more is; `None` if
    /// nothing is under way.
    pub fn run_due(&self) -> Option<u64> {
        let mut d = self.lock();
        d.advance_ns(0);
        d.next_due()
    }

    /// Nanoseconds until something happens without an access; `None` if nothing is under way.
    pub fn next_due(&self) -> Option<u64> {
        self.lock().next_due()
    }

    /// Puts the VRAM into `file`, which a host may then map: its accesses are not seen any more.
    /// Lost by that: a missing HDP flush serves fresh data and is not reported, as are page tables
    /// changed without a TLB invalidation and firmware that is overwritten.
    #[cfg(target_os = "linux")]
    pub fn share_vram(&self, file: std::fs::File) -> std::io::Result<()> {
        let mut d = self.lock();
        let len = d.vram.size();
        d.vram.share(crate::shared::SharedMemory::map(file, 0, len, true)?);
        Ok(())
    }

    /// Nanoseconds since power on; the question takes no time.
    pub fn time_ns(&self) -> u64 {
        self.lock().time()
    }

    /// Lets time pass until this moment, in nanoseconds since power on.
    pub fn advance_to_ns(&self, ns: u64) {
        let mut device = self.lock();
        let left = ns.saturating_sub(device.time());
        device.advance_ns(left);
    }

    /// The VRAM window as other devices on the bus reach it: through the HDP, as the CPU does, so
    /// that what they write has to be flushed. Two threads must not drive two GPUs that reach each
    /// other.
    pub fn window_memory(&self) -> Arc<dyn HostMemory> {
        Arc::new(Window(Arc::downgrade(&self.0)))
    }

    /// MSIs raised since the last call.
    pub fn take_interrupts(&self) -> u64 {
        self.lock().take_interrupts()
    }

    /// Calls `hook` for each MSI, from within the access that caused it: it must not call back
    /// into this GPU.
    pub fn on_interrupt(&self, hook: impl Fn() + Send + 'static) {
        self.lock().msi_hook = Some(Box::new(hook));
    }

    /// Misuse so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.lock().violations.clone()
    }

    /// Misuse so far; the list starts anew.
    pub fn take_violations(&self) -> Vec<Violation> {
        std::mem::take(&mut self.lock().violations)
    }

    /// What the driver cost so far.
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Pulls the device out: reads return all ones, writes are lost.
    pub fn unplug(&self) {
        self.lock().unplug();
    }

    /// Puts it back in, powered on anew.
    pub fn plug(&self) {
        self.lock().plug()
    }

    /// False while unplugged.
    pub fn present(&self) -> bool {
        self.lock().present
    }

    /// Absolute dword address of a register by its name in the headers, without `reg` or `mm`.
    pub fn register(&self, name: &str) -> Option<u32> {
        self.lock().regs.addr(name)
    }

    /// Lowest bit and width of a register's field.
    pub fn field(&self, register: &str, field: &str) -> Option<(u8, u8)> {
        self.lock().regs.field(register, field)
    }

    /// Reset of the bus that the device is on, as a bridge's secondary bus reset does it: all state
    /// is lost, configuration space too, and firmware posts the GPU again.
    pub fn reset_bus(&self) {
        self.lock().bus_reset()
    }

    /// Function-level reset, as writing it to device control does.
    pub fn reset_function(&self) {
        self.lock().flr()
    }
}

/// See [`SimGpu::window_memory`]. A device that is gone, in reset or switched off answers with ones.
struct Window(std::sync::Weak<Mutex<Device>>);

impl Window {
    fn with(&self, work: impl FnOnce(&mut Device)) -> bool {
        let Some(device) = self.0.upgrade() else { return false };
        let mut device = device.lock().unwrap_or_else(|e| e.into_inner());
        if !device.present || device.resetting || !device.pci.memory_enabled() {
            return false;
        }
        work(&mut device);
        true
    }
}

impl HostMemory for Window {
    fn read(&self, offset: u64, buf: &mut [u8]) {
        if !self.with(|device| device.vram.cpu_read(offset, buf)) {
            buf.fill(0xff);
        }
    }

    fn write(&self, offset: u64, data: &[u8]) {
        self.with(|device| {
            device.guard(offset, data.len(), None);
            device.vram.cpu_write(offset, data);
        });
    }
}

impl std::fmt::Debug for SimGpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let d = self.lock();
        f.debug_struct("SimGpu")
            .field("chip", &d.config.chip.name)
            .field("violations", &d.violations.len())
            .finish()
    }
}
