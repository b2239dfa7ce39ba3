//! The core's bus over a vfio-user connection.

use super::client::{Client, Failure, MAX_REPLY};
use super::dma::Allocations;
use super::region::{CONFIG, Region};
use super::wire::{Command, u32_at, words};
use crate::allocations;
use crate::config::{self, Config, Saved};
use crate::owner::Owner;
use crate::wait::{Msi, RealClock, Woken};
use amdev_cli::bus_session::HostBus;
use amdev_core::bus::{Bus, BusError, Clock, Dma, DmaHandle, Mmio, Segment, Window};
use std::path::Path;
use std::time::{Duration, Instant};

const MSI: u32 = 1;
/// DATA_EVENTFD | ACTION_TRIGGER (`linux/vfio.h`).
const SET_EVENTFD: u32 = 0x24;
/// The device can be reset (`VFIO_DEVICE_FLAGS_RESET`).
const FLAG_RESET: u32 = 1;
/// The device can be a PCI one (`VFIO_DEVICE_FLAGS_PCI`).
const FLAG_PCI: u32 = 2;
const AMD: u16 = 0x1002;
/// Display controllers of any kind.
const CLASS_DISPLAY: u8 = 3;
/// What both sides take in one message unless they say otherwise.
const MAX_DATA: usize = 1 << 20;
/// Memory is mapped for the device in pages of this size.
const PAGE: u64 = 4096;

/// Configuration space by messages.
struct ConfigSpace<'a> {
    client: &'a mut Client,
    region: &'a Region,
}

impl Config for ConfigSpace<'_> {
    type Error = Failure;
    fn read(&mut self, offset: u16, buf: &mut [u8]) -> Result<(), Failure> {
        self.region.read(self.client, offset.into(), buf, buf.len())
    }
    fn write(&mut self, offset: u16, data: &[u8]) -> Result<(), Failure> {
        self.region.write(self.client, offset.into(), data, data.len())?;
        self.client.drain()
    }
}

/// A GPU behind a vfio-user socket. Closing the connection, by dropping this, takes DMA mappings and
/// the interrupt away; the device itself stays as it is.
pub struct VfioUserBus {
    client: Client,
    vram: Region,
    doorbells: Region,
    registers: Region,
    config: Region,
    dma: Allocations,
    msi: Option<Msi>,
    saved: Option<Saved>,
    can_reset: bool,
    max_data: usize,
    pci_id: (u16, u8),
    clock: RealClock,
    owner: Option<Owner>,
}

impl VfioUserBus {
    /// Connects, agrees on a version, finds the windows, and makes the device usable.
    pub fn open(path: &Path) -> Result<VfioUserBus, Failure> {
        let mut client = Client::connect(path)?;
        let max_data = negotiate(&mut client)?;
        let info = client.ask(Command::DeviceGetInfo, &words(&[16, 0, 0, 0]), &[])?.payload;
        let flags = u32_at(&info, 4)?;
        if flags & FLAG_PCI == 0 {
            return Err(Failure::Device("what is served there is no PCI device".into()));
        }
        let [vram, doorbells, registers, config] = [0, 2, 5, CONFIG].map(|i| Region::query(&mut client, i));
        let mut bus = VfioUserBus {
            vram: vram?,
            doorbells: doorbells?,
            registers: registers?,
            config: config?,
            client,
            dma: Allocations::default(),
            msi: None,
            saved: None,
            can_reset: flags & FLAG_RESET != 0,
            max_data,
            pci_id: (0, 0),
            clock: RealClock::default(),
            owner: None,
        };
        bus.identify()?;
        config::enable(&mut bus.config_space())?;
        bus.request_msi()?;
        Ok(bus)
    }

    /// Keeps the lock on the device as long as the connection.
    pub(super) fn owned_by(mut self, owner: Option<Owner>) -> Self {
        self.owner = owner;
        self
    }

    fn config_space(&mut self) -> ConfigSpace<'_> {
        ConfigSpace { client: &mut self.client, region: &self.config }
    }

    fn identify(&mut self) -> Result<(), Failure> {
        let mut head = [0; 12];
        self.config_space().read(0, &mut head)?;
        let [v0, v1, d0, d1, _, _, _, _, revision, _, _, class] = head;
        let (vendor, device) = (u16::from_le_bytes([v0, v1]), u16::from_le_bytes([d0, d1]));
        if vendor != AMD || class != CLASS_DISPLAY {
            return Err(Failure::Device(format!(
                "what is served there is PCI device {vendor:04x}:{device:04x} of class {class:#04x}, no AMD GPU"
            )));
        }
        for region in [Window::Vram, Window::Doorbells, Window::Registers] {
            if self.region(region).len == 0 {
                return Err(Failure::Device(format!("the device has no {region}")));
            }
        }
        self.pci_id = (device, revision);
        Ok(())
    }

    /// Without MSI waits look at memory now and then.
    fn request_msi(&mut self) -> Result<(), Failure> {
        let info = self.client.ask(Command::GetIrqInfo, &words(&[16, 0, MSI, 0]), &[])?.payload;
        if u32_at(&info, 12)? == 0 {
            return Ok(());
        }
        let msi = Msi::new().map_err(|e| Failure::Os("an eventfd", e))?;
        self.client.ask(Command::SetIrqs, &words(&[20, SET_EVENTFD, MSI, 0, 1]), &[msi.fd()])?;
        // VFIO in the kernel does this with the request; a server may leave it to the client.
        config::enable_msi(&mut self.config_space())?;
        self.msi = Some(msi);
        Ok(())
    }

    fn region(&self, window: Window) -> &Region {
        match window {
            Window::Vram => &self.vram,
            Window::Doorbells => &self.doorbells,
            Window::Registers => &self.registers,
        }
    }

    fn parts(&mut self, window: Window) -> (&Region, &mut Client) {
        let region = match window {
            Window::Vram => &self.vram,
            Window::Doorbells => &self.doorbells,
            Window::Registers => &self.registers,
        };
        (region, &mut self.client)
    }

    fn check(&self, window: Window, offset: u64, len: u64, align: u64) -> Result<(), BusError> {
        let window_len = self.region(window).len;
        match offset.checked_add(len) {
            Some(end) if end <= window_len && offset.is_multiple_of(align) => Ok(()),
            _ => Err(BusError::OutOfWindow { window, offset, len, window_len }),
        }
    }

    /// The most bytes of one message to a window: registers are dwords.
    fn most(&self, window: Window) -> usize {
        match window {
            Window::Vram => self.max_data,
            Window::Registers => 4,
            Window::Doorbells => 8,
        }
    }

    fn read_from(&mut self, window: Window, offset: u64, buf: &mut [u8], align: u64) -> Result<(), BusError> {
        self.check(window, offset, buf.len() as u64, align)?;
        let most = self.most(window).max(align as usize);
        let (region, client) = self.parts(window);
        Ok(region.read(client, offset, buf, most)?)
    }

    fn write_to(&mut self, window: Window, offset: u64, data: &[u8], align: u64) -> Result<(), BusError> {
        self.check(window, offset, data.len() as u64, align)?;
        let most = self.most(window).max(align as usize);
        let (region, client) = self.parts(window);
        Ok(region.write(client, offset, data, most)?)
    }
}

/// Agrees on a version; the most data of a message.
fn negotiate(client: &mut Client) -> Result<usize, Failure> {
    let ours = serde_json::json!({ "capabilities": {
        "max_msg_fds": 8, "max_data_xfer_size": MAX_DATA, "pgsizes": PAGE,
    } });
    let mut request = vec![0; 4];
    request.extend(ours.to_string().into_bytes());
    request.push(0);
    let reply = client.ask(Command::Version, &request, &[])?.payload;
    if u32_at(&reply, 0)? as u16 != 0 {
        return Err(Failure::Device("the server speaks a version other than 0 of vfio-user".into()));
    }
    let text = reply.get(4..).unwrap_or_default();
    let text = text.strip_suffix(&[0]).unwrap_or(text);
    if text.is_empty() {
        return Ok(MAX_DATA);
    }
    let theirs: serde_json::Value =
        serde_json::from_slice(text).map_err(|_| Failure::Protocol("the version data is no JSON"))?;
    let limit =
        |name: &str| theirs.pointer(&format!("/capabilities/{name}")).and_then(serde_json::Value::as_u64);
    // A mask of sizes, each of which is its own bit.
    if let Some(sizes) = limit("pgsizes").filter(|sizes| sizes & PAGE == 0) {
        return Err(Failure::Device(format!(
            "the server maps no memory in pages of 4 KiB (pgsizes {sizes:#x}); configure it for them"
        )));
    }
    if limit("max_msg_fds") == Some(0) {
        return Err(Failure::Device(
            "the server takes no descriptors (max_msg_fds 0), by which it gets memory and interrupts; use one that does"
                .into(),
        ));
    }
    let most = limit("max_data_xfer_size");
    let most = most.map_or(MAX_DATA, |m| usize::try_from(m).unwrap_or(MAX_DATA).min(MAX_DATA));
    debug_assert!(most <= MAX_REPLY);
    // A doorbell is 8 bytes, at once.
    if most < 8 {
        Err(Failure::Device("the server takes less than 8 bytes at once".into()))
    } else {
        Ok(most & !7)
    }
}

impl From<Failure> for BusError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Gone | Failure::Connect(_) => BusError::Gone,
            Failure::Timeout(after) => {
                BusError::Timeout { after_us: u64::try_from(after.as_micros()).unwrap_or(u64::MAX) }
            }
            Failure::Refused { errno, .. } => BusError::Os(errno),
            Failure::Os(_, e) => BusError::Os(e.raw_os_error()),
            Failure::Protocol(_) => BusError::Unsupported("make sense of what the vfio-user server says"),
            Failure::Device(_) => BusError::Unsupported("make this access to the device"),
        }
    }
}

impl Mmio for VfioUserBus {
    fn window_len(&self, window: Window) -> u64 {
        self.region(window).len
    }
    fn read32(&mut self, window: Window, offset: u64) -> Result<u32, BusError> {
        let mut b = [0; 4];
        self.read_from(window, offset, &mut b, 4)?;
        Ok(u32::from_le_bytes(b))
    }
    fn write32(&mut self, window: Window, offset: u64, value: u32) -> Result<(), BusError> {
        self.write_to(window, offset, &value.to_le_bytes(), 4)
    }
    fn read64(&mut self, window: Window, offset: u64) -> Result<u64, BusError> {
        let mut b = [0; 8];
        self.read_from(window, offset, &mut b, 8)?;
        Ok(u64::from_le_bytes(b))
    }
    fn write64(&mut self, window: Window, offset: u64, value: u64) -> Result<(), BusError> {
        self.write_to(window, offset, &value.to_le_bytes(), 8)
    }
    fn read_bulk(&mut self, window: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        self.read_from(window, offset, buf, 1)
    }
    fn write_bulk(&mut self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.write_to(window, offset, data, 1)
    }
    fn zero(&mut self, window: Window, offset: u64, len: u64) -> Result<(), BusError> {
        allocations::zero(self, window, offset, len)
    }
    fn read_group(&mut self, window: Window, offsets: &[u64], out: &mut [u32]) -> Result<(), BusError> {
        for offset in offsets {
            self.check(window, *offset, 4, 4)?;
        }
        let (region, client) = self.parts(window);
        Ok(region.read_group(client, offsets, out)?)
    }
    // Posted writes are on their way at once; what is outstanding are the server's answers.
    fn flush(&mut self) -> Result<(), BusError> {
        Ok(self.client.drain()?)
    }
    fn fence(&mut self) -> Result<(), BusError> {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.flush()
    }
}

impl Dma for VfioUserBus {
    fn dma_alloc(&mut self, len: u64) -> Result<DmaHandle, BusError> {
        self.dma.alloc(&mut self.client, len)?.ok_or(BusError::NoDmaMemory { len })
    }
    fn dma_free(&mut self, handle: DmaHandle) -> Result<(), BusError> {
        let gone = self.dma.table.remove(handle)?;
        Ok(self.dma.free(&mut self.client, &gone)?)
    }
    fn dma_len(&self, handle: DmaHandle) -> Result<u64, BusError> {
        self.dma.table.len(handle)
    }
    fn dma_segment(&self, handle: DmaHandle, offset: u64) -> Result<Segment, BusError> {
        self.dma.segment(handle, offset)
    }
    fn dma_read(&mut self, handle: DmaHandle, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        self.dma.table.read(handle, offset, buf)
    }
    fn dma_write(&mut self, handle: DmaHandle, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.dma.table.write(handle, offset, data)
    }
}

impl Bus for VfioUserBus {
    fn clock(&self) -> &dyn Clock {
        &self.clock
    }

    fn wait_interrupt(&mut self, timeout_us: u64) -> Result<bool, BusError> {
        self.client.drain()?;
        let end = Instant::now() + Duration::from_micros(timeout_us);
        loop {
            let Some(msi) = &self.msi else {
                self.clock.wait_us(timeout_us.min(50));
                self.client.look()?;
                return Ok(false);
            };
            // The socket, too: a server that goes away wakes nobody otherwise.
            match msi.wait(end, &[self.client.fd()])? {
                Woken::Interrupt => return Ok(true),
                Woken::Timeout => return Ok(false),
                Woken::Other => self.client.look()?,
            }
        }
    }

    fn before_reset(&mut self) -> Result<(), BusError> {
        self.client.drain()?;
        self.saved = Some(config::save(&mut self.config_space())?);
        Ok(())
    }

    /// The server's reset: that of a machine as a rule, and the device shows whether it was.
    fn reset_bus(&mut self) -> Result<(), BusError> {
        if !self.can_reset {
            return Err(BusError::Unsupported("reset the device: its server cannot"));
        }
        self.client.drain()?;
        let saved = config::save(&mut self.config_space())?;
        self.client.reset()?;
        Ok(config::restore(&mut self.config_space(), &saved)?)
    }

    fn after_reset(&mut self) -> Result<(), BusError> {
        if let Some(saved) = self.saved.take() {
            config::restore(&mut self.config_space(), &saved)?;
        }
        Ok(())
    }
}

impl HostBus for VfioUserBus {
    // What is served on a socket is a program: a simulated device, as a rule, which has no keys.
    fn synthetic_firmware_allowed(&self) -> bool {
        true
    }
    fn may_be_asked(&self) -> bool {
        self.owner.as_ref().is_some_and(Owner::may_be_asked)
    }
    fn asked(&mut self) -> Option<Box<dyn std::io::Write>> {
        Some(Box::new(self.owner.as_ref()?.asked()?))
    }
    fn pci_id(&mut self) -> (u16, u8) {
        self.pci_id
    }
}
