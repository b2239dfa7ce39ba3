//! Simulated GPUs as devices: the adapter between the core's bus and the simulator.

use crate::bus_session::{BusGroup, BusSession, HostBus};
use crate::error::CliError;
use crate::group::Group;
use crate::guard::Guarded;
use crate::session::{Backend, Found, OpenOptions, Session};
use crate::spec::DeviceSpec;
use amdev_core::bus::{Bus, BusError, Clock, Dma, DmaHandle, Mmio, Segment, Window};
use amdev_sim::config::ClockKind;
use amdev_sim::{BusFault, Config, HostMemory, SimGpu};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

mod machine;
mod patience;
mod pci;
mod states;

use patience::Patience;
pub use states::prepare;

/// DMA memory stands at bus addresses above 4 GiB, so that a driver that cuts addresses fails.
const FIRST_IOVA: u64 = 0x1_0000_0000;
/// Contiguous for the device are pieces of this length, with gaps in between: a driver must not
/// take an allocation for one piece.
const PIECE: u64 = 64 << 10;
/// Smallest unit of a DMA allocation.
const PAGE: u64 = 4096;
/// How long a host waits for a device after a bus reset: 1 s (`PCI_RESET_WAIT`, pci.h).
const RESET_US: u64 = 1_000_000;
/// The most DMA memory of one device.
const MAX_DMA: u64 = 4 << 30;

/// Memory that driver and device share.
#[derive(Debug)]
struct Shared(Mutex<Vec<u8>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A piece of [`Shared`] as the device sees it.
struct Piece {
    memory: Arc<Shared>,
    start: u64,
}

impl HostMemory for Piece {
    fn read(&self, offset: u64, buf: &mut [u8]) {
        let memory = self.memory.lock();
        let at = (self.start + offset) as usize;
        match memory.get(at..at.saturating_add(buf.len())) {
            Some(bytes) => buf.copy_from_slice(bytes),
            None => buf.fill(0xff),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) {
        let mut memory = self.memory.lock();
        let at = (self.start + offset) as usize;
        if let Some(bytes) = memory.get_mut(at..at.saturating_add(data.len())) {
            bytes.copy_from_slice(data);
        }
    }
}

struct Allocation {
    memory: Arc<Shared>,
    iova: u64,
    len: u64,
}

impl Allocation {
    /// Bus address of the piece that holds byte `offset`.
    fn piece(&self, offset: u64) -> u64 {
        self.iova + offset / PIECE * (2 * PIECE)
    }

    /// A range as the device sees it: bus addresses and lengths.
    fn segments(&self, offset: u64, len: usize) -> impl Iterator<Item = (u64, usize)> {
        let end = offset + len as u64;
        let mut at = offset;
        std::iter::from_fn(move || {
            let within = at % PIECE;
            let size = (PIECE - within).min(end - at);
            let segment = (self.piece(at) + within, size as usize);
            at += size;
            (size > 0).then_some(segment)
        })
    }
}

/// The core's bus for a simulated GPU.
pub struct SimBus {
    gpu: SimGpu,
    allocations: BTreeMap<u32, Allocation>,
    next_handle: u32,
    next_iova: u64,
    allocated: u64,
    real_time: bool,
    saved: Option<pci::Saved>,
    machine: Option<MachineTime>,
    patience: Option<Patience>,
}

/// The time of a machine with several simulated GPUs: what one thread does to one of them takes
/// time for all.
#[derive(Clone, Debug, Default)]
pub struct MachineTime(Arc<AtomicU64>);

impl MachineTime {
    /// Nanoseconds since the machine was switched on.
    pub fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the host's firmware assigned to a GPU, which the kernel keeps for it.
#[derive(Clone, Debug)]
pub struct Assigned(pci::Saved);

impl Assigned {
    /// Reads it from a GPU that is in order.
    pub fn of(gpu: &SimGpu) -> Self {
        Assigned(pci::Saved::of(gpu))
    }
}

impl pci::ConfigSpace for SimGpu {
    fn read(&self, offset: u16, buf: &mut [u8]) {
        self.config_read(offset, buf);
    }
    fn write(&self, offset: u16, data: &[u8]) {
        self.config_write(offset, data);
    }
}

impl SimBus {
    /// Drives `gpu`.
    pub fn new(gpu: SimGpu) -> Self {
        let real_time = gpu.config().clock == ClockKind::Real;
        SimBus {
            gpu,
            allocations: BTreeMap::new(),
            next_handle: 0,
            next_iova: FIRST_IOVA,
            allocated: 0,
            real_time,
            saved: None,
            machine: None,
            patience: None,
        }
    }

    /// Drives `gpu` after another process did, which may have died at any moment: as the kernel
    /// does when a device is opened, waits for a reset that is under way and gives back what it
    /// took.
    pub fn reopen(gpu: SimGpu, assigned: &Assigned) -> Self {
        /// A process does not start faster.
        const START_US: u64 = 10_000;
        gpu.advance_us(START_US);
        let is_off = pci::is_memory_off(&gpu);
        if is_off {
            gpu.advance_us(RESET_US);
            assigned.0.restore(&gpu);
        }
        SimBus::new(gpu)
    }

    /// Drives `gpu` in a machine that has other GPUs.
    pub fn in_machine(gpu: SimGpu, time: &MachineTime) -> Self {
        let mut bus = SimBus::new(gpu);
        bus.machine = Some(time.clone());
        bus
    }

    /// Lets the GPU of this bus reach the VRAM window of another one.
    pub fn reach_peer(&self, peer: &SimBus) -> bool {
        let window = peer.gpu.window_memory();
        let len = peer.gpu.bar_len(Window::Vram.bar());
        peer.peer_vram_base().is_some_and(|base| self.gpu.dma_map(base, len, window))
    }

    /// The GPU catches up with its machine.
    fn enter(&self) {
        if let Some(time) = &self.machine {
            self.gpu.advance_to_ns(time.now_ns());
        }
    }

    /// What was done took time for the whole machine.
    fn leave(&self) {
        if let Some(time) = &self.machine {
            time.0.fetch_max(self.gpu.time_ns(), Ordering::Relaxed);
        }
    }

    /// The GPU.
    pub fn gpu(&self) -> &SimGpu {
        &self.gpu
    }

    /// DMA allocations that were not given back.
    pub fn live_allocations(&self) -> usize {
        self.allocations.len()
    }

    fn read(&mut self, window: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        let len = buf.len() as u64;
        self.enter();
        let done = self.gpu.read(window.bar(), offset, buf);
        self.leave();
        done.map_err(|f| self.error(f, window, offset, len))
    }

    fn write(&mut self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        let len = data.len() as u64;
        self.enter();
        let done = self.gpu.write(window.bar(), offset, data);
        self.leave();
        done.map_err(|f| self.error(f, window, offset, len))
    }

    fn error(&self, fault: BusFault, window: Window, offset: u64, len: u64) -> BusError {
        match fault {
            BusFault::OutOfWindow { .. } => {
                BusError::OutOfWindow { window, offset, len, window_len: self.window_len(window) }
            }
            BusFault::Unsupported { .. } => BusError::UnsupportedSize { window, size: len },
            BusFault::Gone => BusError::Gone,
        }
    }

    fn allocation(&self, handle: DmaHandle, offset: u64, len: u64) -> Result<&Allocation, BusError> {
        let inside = |a: &&Allocation| offset.checked_add(len).is_some_and(|end| end <= a.len);
        self.allocations.get(&handle.0).filter(inside).ok_or(BusError::BadDmaRange { handle, offset, len })
    }
}

impl Mmio for SimBus {
    fn window_len(&self, window: Window) -> u64 {
        self.gpu.bar_len(window.bar())
    }
    fn read32(&mut self, window: Window, offset: u64) -> Result<u32, BusError> {
        let mut buf = [0; 4];
        self.read(window, offset, &mut buf)?;
        Ok(u32::from_le_bytes(buf))
    }
    fn write32(&mut self, window: Window, offset: u64, value: u32) -> Result<(), BusError> {
        self.write(window, offset, &value.to_le_bytes())
    }
    fn read64(&mut self, window: Window, offset: u64) -> Result<u64, BusError> {
        let mut buf = [0; 8];
        self.read(window, offset, &mut buf)?;
        Ok(u64::from_le_bytes(buf))
    }
    fn write64(&mut self, window: Window, offset: u64, value: u64) -> Result<(), BusError> {
        self.write(window, offset, &value.to_le_bytes())
    }
    fn read_bulk(&mut self, window: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        self.read(window, offset, buf)
    }
    fn write_bulk(&mut self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.write(window, offset, data)
    }
    fn zero(&mut self, window: Window, offset: u64, len: u64) -> Result<(), BusError> {
        static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
        let mut done = 0;
        while done < len {
            let step = (len - done).min(ZEROS.len() as u64);
            self.write(window, offset + done, &ZEROS[..step as usize])?;
            done += step;
        }
        Ok(())
    }
    // Accesses happen at once, in the order of the calls.
    fn flush(&mut self) -> Result<(), BusError> {
        if self.gpu.present() { Ok(()) } else { Err(BusError::Gone) }
    }
    fn fence(&mut self) -> Result<(), BusError> {
        self.flush()
    }
}

impl Dma for SimBus {
    fn dma_alloc(&mut self, len: u64) -> Result<DmaHandle, BusError> {
        let none = BusError::NoDmaMemory { len };
        let len = len.checked_next_multiple_of(PAGE).filter(|l| *l > 0).ok_or(none)?;
        let allocated = self.allocated.checked_add(len).filter(|a| *a <= MAX_DMA).ok_or(none)?;
        let memory = Arc::new(Shared(Mutex::new(vec![0; len as usize])));
        let allocation = Allocation { memory, iova: self.next_iova, len };
        for start in (0..len).step_by(PIECE as usize) {
            let piece = Piece { memory: Arc::clone(&allocation.memory), start };
            let size = PIECE.min(len - start);
            if !self.gpu.dma_map(allocation.piece(start), size, Arc::new(piece)) {
                return Err(none);
            }
        }
        // Addresses are not used twice: a device that keeps using freed memory shows.
        self.next_iova = allocation.piece(len) + 2 * PIECE;
        self.allocated = allocated;
        let handle = DmaHandle(self.next_handle);
        self.next_handle += 1;
        self.allocations.insert(handle.0, allocation);
        Ok(handle)
    }
    fn dma_free(&mut self, handle: DmaHandle) -> Result<(), BusError> {
        self.allocation(handle, 0, 0)?;
        if let Some(a) = self.allocations.remove(&handle.0) {
            self.gpu.dma_unmap(a.iova, a.piece(a.len) + PIECE - a.iova);
            self.allocated -= a.len;
        }
        Ok(())
    }
    fn dma_len(&self, handle: DmaHandle) -> Result<u64, BusError> {
        Ok(self.allocation(handle, 0, 0)?.len)
    }
    fn dma_segment(&self, handle: DmaHandle, offset: u64) -> Result<Segment, BusError> {
        let a = self.allocation(handle, offset, 1)?;
        let within = offset % PIECE;
        Ok(Segment { addr: a.piece(offset) + within, len: (PIECE - within).min(a.len - offset) })
    }
    fn dma_read(&mut self, handle: DmaHandle, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        let a = self.allocation(handle, offset, buf.len() as u64)?;
        buf.copy_from_slice(&a.memory.lock()[offset as usize..][..buf.len()]);
        for (addr, len) in a.segments(offset, buf.len()) {
            self.gpu.host_reads(addr, len);
        }
        Ok(())
    }
    fn dma_write(&mut self, handle: DmaHandle, offset: u64, data: &[u8]) -> Result<(), BusError> {
        let a = self.allocation(handle, offset, data.len() as u64)?;
        a.memory.lock()[offset as usize..][..data.len()].copy_from_slice(data);
        for (addr, len) in a.segments(offset, data.len()) {
            self.gpu.host_writes(addr, len);
        }
        Ok(())
    }
    fn peer_vram_base(&self) -> Option<u64> {
        pci::bar0(&self.gpu)
    }
    fn peer_vram_len(&self) -> u64 {
        self.gpu.bar_len(Window::Vram.bar())
    }
}

impl Clock for SimBus {
    fn now_us(&self) -> u64 {
        self.enter();
        let now = self.gpu.now_us();
        self.leave();
        now.saturating_add(self.patience.as_ref().map_or(0, Patience::ahead_us))
    }
    fn wait_us(&self, us: u64) {
        if self.real_time {
            std::thread::sleep(Duration::from_micros(us));
        }
        self.enter();
        self.gpu.advance_us(us);
        self.leave();
    }
}

impl Bus for SimBus {
    fn clock(&self) -> &dyn Clock {
        self
    }
    fn wait_interrupt(&mut self, timeout_us: u64) -> Result<bool, BusError> {
        // Short steps first, so that a quick answer costs little device time; longer ones later, so
        // that a device that hangs does not take long to find out about.
        const LONGEST_STEP_US: u64 = 1_000;
        let mut step_us = 10;
        let deadline = self.now_us().saturating_add(timeout_us);
        loop {
            if self.gpu.take_interrupts() > 0 {
                return Ok(true);
            }
            self.flush()?;
            let left = deadline.saturating_sub(self.now_us());
            if left == 0 {
                return Ok(false);
            }
            self.wait_us(left.min(step_us));
            step_us = (2 * step_us).min(LONGEST_STEP_US);
        }
    }
    fn reset_bus(&mut self) -> Result<(), BusError> {
        self.before_reset()?;
        self.gpu.reset_bus();
        self.wait_us(RESET_US);
        self.after_reset()
    }
    fn before_reset(&mut self) -> Result<(), BusError> {
        self.flush()?;
        self.saved = Some(pci::Saved::of(&self.gpu));
        Ok(())
    }
    fn after_reset(&mut self) -> Result<(), BusError> {
        self.flush()?;
        if let Some(saved) = self.saved.take() {
            saved.restore(&self.gpu);
        }
        Ok(())
    }
}

/// The process that drove the device is over: its IOMMU mappings are gone. This touches nothing of
/// the device.
impl Drop for SimBus {
    fn drop(&mut self) {
        self.gpu.dma_unmap_all();
    }
}

impl HostBus for SimBus {
    fn violations(&self) -> Option<Vec<String>> {
        Some(self.gpu.violations().iter().map(ToString::to_string).collect())
    }
    fn synthetic_firmware_allowed(&self) -> bool {
        true
    }
    fn bound_real_time(&mut self, limit_us: u64) {
        self.patience = Some(Patience::new(limit_us));
    }
    fn pci_id(&mut self) -> (u16, u8) {
        // Configuration space: device id at 2, revision at 8.
        let (mut device, mut revision) = ([0; 2], [0; 1]);
        self.gpu.config_read(2, &mut device);
        self.gpu.config_read(8, &mut revision);
        (u16::from_le_bytes(device), revision[0])
    }
}

/// The simulator as a backend: `sim:GPU`.
#[derive(Debug, Default)]
pub struct SimBackend;

impl SimBackend {
    /// The GPUs of one machine, described as behind `sim:`.
    pub(crate) fn group(text: &str, options: &OpenOptions) -> anyhow::Result<BusGroup<Guarded<SimBus>>> {
        let config = Config::parse(text).map_err(|e| CliError::Usage(format!("sim:{text}: {e}")))?;
        machine::open(&config, options)
    }
}

impl Backend for SimBackend {
    fn serves(&self, spec: &DeviceSpec) -> bool {
        matches!(spec, DeviceSpec::Sim(_))
    }

    fn list(&self) -> Vec<Found> {
        amdev_sim::chip::CHIPS
            .iter()
            .map(|chip| Found {
                device: format!("sim:{}", chip.name),
                name: format!("simulated {} ({})", chip.product, chip.target),
                problem: None,
            })
            .collect()
    }

    fn open(&self, spec: &DeviceSpec, options: &OpenOptions) -> anyhow::Result<Box<dyn Session>> {
        let DeviceSpec::Sim(text) = spec else {
            return Err(CliError::Device(format!("{spec} is not a simulated GPU")).into());
        };
        let config = Config::parse(text).map_err(|e| CliError::Usage(format!("{spec}: {e}")))?;
        let bus = Guarded::new(SimBus::new(states::prepare(config, options)?));
        Ok(Box::new(BusSession::new(bus, spec.to_string(), options)?))
    }

    fn count(&self, spec: &DeviceSpec) -> usize {
        let DeviceSpec::Sim(text) = spec else { return 1 };
        Config::parse(text).map_or(1, |config| config.count as usize)
    }

    fn open_group(&self, spec: &DeviceSpec, options: &OpenOptions) -> anyhow::Result<Box<dyn Group>> {
        let DeviceSpec::Sim(text) = spec else {
            return Err(CliError::Device(format!("{spec} is not a simulated GPU")).into());
        };
        Ok(Box::new(SimBackend::group(text, options)?))
    }
}
