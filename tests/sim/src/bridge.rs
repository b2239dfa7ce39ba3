//! The simulated ASM2464PD: a USB device with PCI Express behind it, and the simulated GPU at its end.
//!
//! Two firmwares are known: the vendor's with its identity patched (USB Attached SCSI with 31
//! streams, commands E4, E5 and 8A), and the open one (vendor requests E4, E5, F0, F2, F3 and bulk).
//! See [`usb`] for what goes over the wire, [`BridgeConfig::parse`] for what can be asked for.
//!
//! Behind both: two ports of the controller's switch and two of the card's, the GPU on bus 4. The GPU
//! reaches 512 KiB of block memory and a page of queue memory by DMA, and nothing else.
//!
//! The bridge is strict: what neither the recorded boot of the reference driver nor the open firmware
//! shows is refused and named, see [`Bridge::violations`].

mod blocks;
mod bot;
mod config;
mod control;
mod cost;
mod descriptors;
mod link;
mod machine;
mod memory;
mod pcie;
#[cfg(target_os = "linux")]
pub mod redir;
mod registers;
mod scsi;
mod tlp;
mod uas;
pub mod usb;
mod vendor;

pub use config::{BridgeConfig, BridgeConfigError, BridgeFault, Firmware};

use crate::gpu::SimGpu;
use crate::violation::Violation;
use machine::Machine;
use std::sync::{Arc, Mutex, MutexGuard};
use usb::{Completion, Interface, Status, Transfer, UsbCounts, UsbPort};

/// Where a PCIe request went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Configuration space of device 0 on a bus.
    Config {
        /// The bus.
        bus: u8,
        /// Byte offset.
        at: u16,
    },
    /// A window of the GPU.
    Window {
        /// 0 memory, 2 doorbells, 5 registers.
        bar: u8,
        /// Byte offset.
        offset: u64,
    },
}

/// A PCIe request that somebody answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// A write.
    pub write: bool,
    /// Where it went.
    pub place: Place,
    /// What was written or read.
    pub value: u32,
    /// Bytes, 1 to 4.
    pub len: u8,
}

/// One simulated bridge with its GPU. Clones are handles to the same one.
#[derive(Clone)]
pub struct Bridge(Arc<Mutex<Machine>>);

impl Bridge {
    /// A bridge, plugged in.
    pub fn new(config: BridgeConfig) -> Bridge {
        Bridge(Arc::new(Mutex::new(Machine::new(config))))
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The GPU behind it, as if one stood beside it: for tests that compare, and for its counts.
    pub fn gpu(&self) -> SimGpu {
        self.lock().gpu.clone()
    }

    /// What it was built from.
    pub fn config(&self) -> BridgeConfig {
        self.lock().config.clone()
    }

    /// What the driver cost at the wire.
    pub fn counts(&self) -> UsbCounts {
        self.lock().counts
    }

    /// Misuse of the bridge, then of the GPU.
    pub fn violations(&self) -> Vec<Violation> {
        let m = self.lock();
        m.violations.iter().cloned().chain(m.gpu.violations()).collect()
    }

    /// As [`Bridge::violations`]; the lists start anew.
    pub fn take_violations(&self) -> Vec<Violation> {
        let mut m = self.lock();
        let mut all = std::mem::take(&mut m.violations);
        all.extend(m.gpu.take_violations());
        all
    }

    /// From now on these faults happen; commands and requests are counted anew.
    pub fn start_anew(&self, faults: Vec<BridgeFault>) {
        let mut m = self.lock();
        m.config.faults = faults;
        m.counts = UsbCounts::default();
    }

    /// PCIe requests that were answered since the last call; the first call begins to note them.
    pub fn take_record(&self) -> Vec<Access> {
        self.lock().record.replace(Vec::new()).unwrap_or_default()
    }

    /// Pulls the cable: transfers end as [`Status::Io`].
    pub fn unplug(&self) {
        self.lock().unplug()
    }

    /// Plugs it in again, powered on anew.
    pub fn plug(&self) {
        self.lock().plug()
    }

    /// As `SET_CONFIGURATION`; false if there is no such configuration.
    pub fn configure(&self, configuration: u8) -> bool {
        self.lock().configure(configuration)
    }

    /// As `SET_INTERFACE` of interface 0; false if there is no such alternate setting, or no
    /// configuration.
    pub fn select(&self, alternate: u8) -> bool {
        self.lock().select(alternate)
    }

    /// The present configuration, 0 for none.
    pub fn configuration(&self) -> u8 {
        self.lock().configuration
    }

    /// What descriptors say of the present alternate setting, configured or not; `None` if unplugged.
    pub fn described(&self) -> Option<Interface> {
        let m = self.lock();
        m.present.then(|| descriptors::interface(m.config.firmware, m.alternate)).flatten()
    }

    /// When something ends or happens next by itself, in nanoseconds; for hosts that sleep.
    pub fn next_ns(&self) -> Option<u64> {
        self.lock().next_ns()
    }
}

impl UsbPort for Bridge {
    fn submit(&self, transfer: Transfer) -> u64 {
        self.lock().submit(transfer)
    }

    fn cancel(&self, id: u64) {
        self.lock().cancel(id)
    }

    fn poll(&self) -> Option<Completion> {
        self.lock().poll()
    }

    fn wait(&self) -> bool {
        self.lock().wait()
    }

    fn pass(&self, ns: u64) {
        self.lock().pass(ns)
    }

    fn now_ns(&self) -> u64 {
        self.lock().now()
    }

    fn alloc_streams(&self, endpoints: &[u8], streams: u32) -> Status {
        self.lock().alloc_streams(endpoints, streams)
    }

    fn free_streams(&self, endpoints: &[u8]) -> Status {
        self.lock().free_streams(endpoints)
    }

    fn interface(&self) -> Option<Interface> {
        self.lock().interface()
    }

    fn reset(&self) {
        self.lock().reset()
    }

    fn present(&self) -> bool {
        self.lock().present
    }
}

impl std::fmt::Debug for Bridge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let m = self.lock();
        f.debug_struct("Bridge")
            .field("firmware", &m.config.firmware)
            .field("chip", &m.config.gpu.chip.name)
            .field("counts", &m.counts)
            .finish()
    }
}
