//! The core's bus over the bridge.
//!
//! Writes are posted down to the bridge's command queue and go out with the next read. A doorbell's upper
//! half, and what rings hold already, are not written again. Memory that the device reaches is the
//! bridge's: 512 KiB of block memory, and one page for signals, pointers and a ring.

use crate::controller::{BELL, BLOCKS_LEN, BLOCKS_SEEN, Controller, Firmware, QUEUE_XRAM};
use crate::error::UsbError;
use crate::known::Known;
use crate::link::WireCounts;
use crate::pci::Pci;
use amdev_cli::bus_session::HostBus;
use amdev_cli::session::UsbCounts;
use amdev_core::bus::{Bus, BusError, Clock, DmaHandle, Mmio, Window};
use amdev_core::runtime::Sizes;
use dma::Place;
use std::collections::HashMap;
use std::ops::Range;

mod dma;

/// The lower half of the queue page belongs to the controller's NVMe engine.
const QUEUE_RESERVED: u64 = 0x800;
/// Interrupts do not come over USB: a wait looks again after so many microseconds.
const LOOK_AGAIN_US: u64 = 100;

/// A GPU behind a bridge.
pub struct UsbBus {
    controller: Box<dyn Controller>,
    pci: Pci,
    allocations: HashMap<u32, Place>,
    next_handle: u32,
    /// What a block write has gathered: offset in block memory, and the bytes.
    gathered: Option<(u64, Vec<u8>)>,
    /// The range of block memory that the bridge is armed to carry.
    armed: Option<(u64, u64)>,
    known: Known,
    /// Ranges of the queue page that only this driver writes.
    queue_cacheable: Vec<Range<u64>>,
    /// Upper halves of doorbells, as the device has them.
    doorbells: HashMap<u64, u32>,
    failed: Option<BusError>,
    is_simulated: bool,
    /// Held as long as the port is: to be dropped last.
    #[cfg(target_os = "linux")]
    owner: Option<amdev_cli::owner::Owner>,
}

impl UsbBus {
    /// Configures what is behind the bridge.
    ///
    /// # Errors
    /// [`UsbError`]
    pub fn new(mut controller: Box<dyn Controller>) -> Result<Self, UsbError> {
        let pci = Pci::configure(controller.as_mut())?;
        let is_simulated = controller.link().port().violations().is_some();
        Ok(UsbBus {
            controller,
            pci,
            allocations: HashMap::new(),
            next_handle: 0,
            gathered: None,
            armed: None,
            known: Known::new(),
            queue_cacheable: Vec::new(),
            doorbells: HashMap::new(),
            failed: None,
            is_simulated,
            #[cfg(target_os = "linux")]
            owner: None,
        })
    }

    /// Keeps the lock on the bridge as long as its port.
    #[cfg(target_os = "linux")]
    pub fn owned_by(mut self, owner: Option<amdev_cli::owner::Owner>) -> Self {
        self.owner = owner;
        self
    }

    /// The bridge.
    pub fn controller(&mut self) -> &mut dyn Controller {
        self.controller.as_mut()
    }

    /// What is behind it.
    pub fn pci(&self) -> &Pci {
        &self.pci
    }

    /// What was done over the wire.
    pub fn counts(&self) -> WireCounts {
        self.controller.link().counts
    }

    /// After an error of the transport nothing is known of what was posted: the device counts as gone.
    fn run<T>(
        &mut self,
        work: impl FnOnce(&mut dyn Controller) -> Result<T, UsbError>,
    ) -> Result<T, BusError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        work(self.controller.as_mut()).map_err(|e| {
            let error = e.to_bus();
            if !matches!(e, UsbError::Unsupported(_)) {
                self.failed = Some(error);
            }
            error
        })
    }

    fn address(&self, window: Window, offset: u64, len: u64) -> Result<u64, BusError> {
        let window_len = self.pci.len(window);
        if offset.checked_add(len).is_none_or(|end| end > window_len) {
            return Err(BusError::OutOfWindow { window, offset, len, window_len });
        }
        Ok(self.pci.base(window) + offset)
    }

    fn aligned(&self, window: Window, offset: u64, len: u64) -> Result<u64, BusError> {
        if !offset.is_multiple_of(len) {
            let window_len = self.pci.len(window);
            return Err(BusError::OutOfWindow { window, offset, len, window_len });
        }
        self.address(window, offset, len)
    }

    /// Writes memory behind the bridge; dwords that are known to hold the value already are left out.
    fn post(&mut self, address: u64, data: &[u8]) -> Result<(), BusError> {
        self.send_blocks()?;
        let range = address..address + data.len() as u64;
        if !self.known.touches(&range) {
            return self.run(|c| c.memory_write(address, data));
        }
        if !address.is_multiple_of(4) || !data.len().is_multiple_of(4) {
            (range.start & !3..range.end).step_by(4).for_each(|at| self.known.forget(at));
            return self.run(|c| c.memory_write(address, data));
        }
        // What is left: runs of dwords that change. A stream of the open firmware costs the same however
        // long it is, so that what lies in between is written, too.
        let is_stream = self.controller.firmware() == Firmware::Custom;
        let changed: Vec<bool> = (address..)
            .step_by(4)
            .zip(data.chunks_exact(4))
            .map(|(at, dword)| !self.known.set(at, dword_of(dword)))
            .collect();
        let (Some(first), Some(last)) = (changed.iter().position(|c| *c), changed.iter().rposition(|c| *c))
        else {
            return Ok(());
        };
        if is_stream {
            let part = data.get(4 * first..4 * last + 4).unwrap_or(data);
            return self.run(|c| c.memory_write(address + 4 * first as u64, part));
        }
        for (i, dword) in data.chunks_exact(4).enumerate() {
            if changed.get(i) == Some(&true) {
                self.run(|c| c.memory_write(address + 4 * i as u64, dword))?;
            }
        }
        Ok(())
    }

    fn read(&mut self, address: u64, buf: &mut [u8]) -> Result<(), BusError> {
        self.send_blocks()?;
        let range = address..address + buf.len() as u64;
        let aligned = address.is_multiple_of(4) && buf.len().is_multiple_of(4);
        if !aligned || !self.known.touches(&range) {
            return self.run(|c| c.memory_read(address, buf));
        }
        if let Some(all) = range.clone().step_by(4).map(|at| self.known.get(at)).collect::<Option<Vec<u32>>>()
        {
            for (to, value) in buf.chunks_exact_mut(4).zip(all) {
                to.copy_from_slice(&value.to_le_bytes());
            }
            // What was posted and fails shows at a read.
            return match self.failed {
                Some(error) => Err(error),
                None => Ok(()),
            };
        }
        self.run(|c| c.memory_read(address, buf))?;
        for (at, dword) in range.step_by(4).zip(buf.chunks_exact(4)) {
            self.known.set(at, dword_of(dword));
        }
        Ok(())
    }

    /// Sends the block that was gathered.
    fn send_blocks(&mut self) -> Result<(), BusError> {
        match self.gathered.take() {
            Some((offset, data)) => self.run(|c| c.blocks_write(offset, &data)),
            None => Ok(()),
        }
    }

    fn place(&self, handle: DmaHandle, offset: u64, len: u64) -> Result<Place, BusError> {
        let inside = |p: &&Place| offset.checked_add(len).is_some_and(|end| end <= p.len());
        let found = self.allocations.get(&handle.0).filter(inside);
        found.cloned().ok_or(BusError::BadDmaRange { handle, offset, len })
    }

    fn take(&mut self, place: Place) -> DmaHandle {
        let handle = DmaHandle(self.next_handle);
        self.next_handle += 1;
        self.allocations.insert(handle.0, place);
        handle
    }

    /// What a reset of the GPU makes unknown.
    fn forget(&mut self) {
        self.known.clear();
        self.queue_cacheable.clear();
        self.doorbells.clear();
    }
}

impl Mmio for UsbBus {
    fn window_len(&self, window: Window) -> u64 {
        self.pci.len(window)
    }

    fn read32(&mut self, window: Window, offset: u64) -> Result<u32, BusError> {
        let address = self.aligned(window, offset, 4)?;
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn write32(&mut self, window: Window, offset: u64, value: u32) -> Result<(), BusError> {
        let address = self.aligned(window, offset, 4)?;
        self.post(address, &value.to_le_bytes())
    }

    fn read64(&mut self, window: Window, offset: u64) -> Result<u64, BusError> {
        let address = self.aligned(window, offset, 8)?;
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Two requests: the upper half first, so that an entry is valid, or a doorbell rings, when both are
    /// there.
    fn write64(&mut self, window: Window, offset: u64, value: u64) -> Result<(), BusError> {
        let address = self.aligned(window, offset, 8)?;
        let (low, high) = (value as u32, (value >> 32) as u32);
        let is_known = window == Window::Doorbells && self.doorbells.insert(offset, high) == Some(high);
        if !is_known {
            self.post(address + 4, &high.to_le_bytes())?;
        }
        self.post(address, &low.to_le_bytes())
    }

    fn read_bulk(&mut self, window: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        let address = self.address(window, offset, buf.len() as u64)?;
        if buf.is_empty() {
            return Ok(());
        }
        self.read(address, buf)
    }

    fn write_bulk(&mut self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        let address = self.address(window, offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        self.post(address, data)
    }

    fn flush(&mut self) -> Result<(), BusError> {
        self.send_blocks()?;
        self.run(|c| c.flush())
    }

    fn fence(&mut self) -> Result<(), BusError> {
        self.flush()
    }
}

impl Clock for UsbBus {
    fn now_us(&self) -> u64 {
        self.controller.link().port().now_us()
    }

    fn wait_us(&self, us: u64) {
        self.controller.link().port().wait_us(us);
    }
}

impl Bus for UsbBus {
    fn clock(&self) -> &dyn Clock {
        self
    }

    fn wait_interrupt(&mut self, timeout_us: u64) -> Result<bool, BusError> {
        self.flush()?;
        self.wait_us(timeout_us.min(LOOK_AGAIN_US));
        Ok(false)
    }

    fn before_reset(&mut self) -> Result<(), BusError> {
        self.flush()
    }

    fn after_reset(&mut self) -> Result<(), BusError> {
        self.forget();
        let pci = self.run(|c| Pci::configure(c))?;
        self.pci = pci;
        Ok(())
    }

    fn reset_bus(&mut self) -> Result<(), BusError> {
        self.flush()?;
        self.forget();
        let before = self.pci;
        self.pci = self.run(|c| before.reset(c))?;
        Ok(())
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn dma_cacheable(&mut self, handle: DmaHandle, offset: u64, len: u64) {
        if let Ok(Place::Queue) = self.place(handle, offset, len) {
            self.queue_cacheable.retain(|r| r.end <= offset || r.start >= offset + len);
            self.queue_cacheable.push(offset..offset + len);
            self.controller.forget_range(QUEUE_XRAM + offset as u32, len as u32);
        }
    }

    fn dma_arm(&mut self, handle: DmaHandle, offset: u64, len: u64) -> Result<bool, BusError> {
        let Place::Blocks(range) = self.place(handle, offset, len)? else { return Ok(false) };
        self.send_blocks()?;
        let at = range.start + offset;
        let armed = self.run(|c| c.blocks_arm(at, len))?;
        self.armed = armed.then_some((at, len));
        Ok(armed)
    }

    fn cacheable(&mut self, window: Window, offset: u64, len: u64) {
        if let Ok(start) = self.address(window, offset, len) {
            self.known.add(start..start + len, false);
        }
    }

    fn scrubbed(&mut self, window: Window, offset: u64, len: u64) {
        if let Ok(start) = self.address(window, offset, len) {
            self.known.add(start..start + len, true);
        }
    }

    fn uncacheable(&mut self, window: Window, offset: u64, len: u64) {
        if let Ok(start) = self.address(window, offset, len) {
            self.known.remove(&(start..start + len));
        }
    }
}

fn dword_of(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |v, b| v << 8 | u32::from(*b))
}

impl HostBus for UsbBus {
    fn violations(&self) -> Option<Vec<String>> {
        self.controller.link().port().violations()
    }

    fn synthetic_firmware_allowed(&self) -> bool {
        self.is_simulated
    }

    fn sizes(&self) -> Sizes {
        // The open firmware streams dwords into VRAM, and writes its own memory byte by byte.
        // It also carries block memory back.
        let queues_in_page = self.controller.firmware() == Firmware::Patched;
        let bell = (self.controller.firmware() == Firmware::Custom).then_some(BELL);
        Sizes { bell, ..Sizes::usb(BLOCKS_LEN, BLOCKS_SEEN, QUEUE_RESERVED, queues_in_page) }
    }

    #[cfg(target_os = "linux")]
    fn may_be_asked(&self) -> bool {
        // Until an armed block has come in, nothing else may be sent on its endpoint.
        self.armed.is_none() && self.owner.as_ref().is_some_and(amdev_cli::owner::Owner::may_be_asked)
    }

    #[cfg(target_os = "linux")]
    fn asked(&mut self) -> Option<Box<dyn std::io::Write>> {
        Some(Box::new(self.owner.as_ref()?.asked()?))
    }

    fn usb_counts(&self) -> Option<UsbCounts> {
        let counts = self.counts();
        Some(UsbCounts { usb_commands: counts.commands, usb_transfers: counts.transfers })
    }

    fn close(mut self) -> anyhow::Result<()> {
        // A device that is gone has nothing to be given back.
        if self.failed.is_none() {
            self.flush()?;
        }
        self.controller.link_mut().port_mut().release().or_else(|e| match e {
            UsbError::Gone => Ok(()),
            e => Err(e.into()),
        })
    }

    fn pci_id(&mut self) -> (u16, u8) {
        (self.pci.device, self.pci.revision)
    }
}
