//! The core's bus over VFIO.

use super::claim::Claim;
use super::device::{self, ConfigFile, Files, Irqs, Region};
use super::dma::Allocations;
use super::sysfs::{Function, Sysfs};
use super::{OpenError, hot_reset};
use crate::allocations;
use crate::config::{self, Config as _, Saved};
use crate::owner::Owner;
use crate::wait::{RealClock, Woken};
use amdev_cli::bus_session::HostBus;
use amdev_core::bus::{Bus, BusError, Clock, Dma, DmaHandle, Mmio, Segment, Window};
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};
use vfio_bindings::bindings::vfio as abi;

/// Waits and flushes look that often whether the device is still there.
const LOOK: Duration = Duration::from_millis(90);

/// A GPU on this machine's PCI bus. Closing it, by dropping this, ends its access to memory; its
/// driver gets it back, if it had one.
// Fields are dropped in order. Its windows, which keep the device open, and its files go before the memory
// that it reaches: as it is closed the kernel ends what it does. Then it goes back to its driver.
pub struct VfioBus {
    vram: Region,
    doorbells: Region,
    registers: Region,
    config: Region,
    irqs: Irqs,
    files: Files,
    dma: Allocations,
    /// Configuration space as root can write it.
    raw_config: Option<File>,
    claim: Option<Claim>,
    /// To be dropped last: the next owner finds the device given back.
    owner: Option<Owner>,
    saved: Option<Saved>,
    sysfs: Sysfs,
    function: Function,
    clock: RealClock,
    looked: Instant,
    gone: bool,
}

impl VfioBus {
    /// Takes a function from its driver, and makes it usable.
    pub fn open(sysfs: &Sysfs, function: Function, owner: Owner) -> Result<VfioBus, OpenError> {
        let claim = Claim::take(sysfs, &function, Some(&owner))?;
        // Its group is made up when it is bound, where there is no IOMMU.
        let function = sysfs.function(function.address).map_err(|_| super::TakeError::Vanished)?;
        let (files, space) = device::open(sysfs, &function)?;
        let region = |index| Region::query(&files.device, index);
        let container =
            files.container.try_clone().map_err(|why| OpenError::Os { what: "a descriptor", why })?;
        let raw = File::options().read(true).write(true).open(sysfs.dir(function.address).join("config"));
        let mut bus = VfioBus {
            vram: region(abi::VFIO_PCI_BAR0_REGION_INDEX)?,
            doorbells: region(abi::VFIO_PCI_BAR2_REGION_INDEX)?,
            registers: region(abi::VFIO_PCI_BAR5_REGION_INDEX)?,
            config: region(abi::VFIO_PCI_CONFIG_REGION_INDEX)?,
            dma: Allocations::new(container, space),
            irqs: Irqs::none(),
            files,
            raw_config: raw.ok(),
            claim: Some(claim),
            owner: Some(owner),
            saved: None,
            sysfs: sysfs.clone(),
            function,
            clock: RealClock::default(),
            looked: Instant::now(),
            gone: false,
        };
        for window in [Window::Vram, Window::Doorbells, Window::Registers] {
            if bus.region(window).len == 0 {
                return Err(OpenError::Device(format!(
                    "{window} has no address: enable `Above 4G Decoding` in the machine's firmware setup"
                )));
            }
        }
        let os = |what| move |why| OpenError::Os { what, why };
        config::enable(&mut bus.config_space()).map_err(os("waking the device"))?;
        bus.irqs = Irqs::request(&bus.files.device)?;
        if !bus.present() {
            return Err(OpenError::Device("it does not answer; switch the machine off and on again".into()));
        }
        Ok(bus)
    }

    fn config_space(&self) -> ConfigFile<'_> {
        self.config.config(&self.files.device)
    }

    /// Whether the device answers: one that is gone reads as all ones, or as what a hypervisor made of
    /// that. The class is looked at: ids are what the kernel remembers of them (vfio_pci_config.c).
    fn present(&self) -> bool {
        self.config_space().read32(8).is_ok_and(|class| class != u32::MAX)
    }

    fn region(&self, window: Window) -> &Region {
        match window {
            Window::Vram => &self.vram,
            Window::Doorbells => &self.doorbells,
            Window::Registers => &self.registers,
        }
    }

    fn check(&self, window: Window, offset: u64, len: u64, align: u64) -> Result<(), BusError> {
        if self.gone {
            return Err(BusError::Gone);
        }
        let window_len = self.region(window).len;
        match offset.checked_add(len) {
            Some(end) if end <= window_len && offset.is_multiple_of(align) => Ok(()),
            _ => Err(BusError::OutOfWindow { window, offset, len, window_len }),
        }
    }

    /// The most bytes of an access where a window is not mapped: registers are dwords.
    fn most(window: Window) -> usize {
        match window {
            Window::Vram => 1 << 20,
            Window::Doorbells => 8,
            Window::Registers => 4,
        }
    }

    fn read(&mut self, window: Window, offset: u64, buf: &mut [u8], align: u64) -> Result<(), BusError> {
        self.check(window, offset, buf.len() as u64, align)?;
        let done = self.region(window).read(&self.files.device, offset, buf, Self::most(window));
        self.judge(done)?;
        // All ones may be a value, or a device that is not there any more.
        if buf.iter().all(|b| *b == 0xff) && !buf.is_empty() {
            self.look()?;
        }
        Ok(())
    }

    fn write(&mut self, window: Window, offset: u64, data: &[u8], align: u64) -> Result<(), BusError> {
        self.check(window, offset, data.len() as u64, align)?;
        let done = self.region(window).write(&self.files.device, offset, data, Self::most(window));
        self.judge(done)
    }

    /// An access that failed: of a device that is gone?
    fn judge(&mut self, done: io::Result<()>) -> Result<(), BusError> {
        done.or_else(|e| {
            self.look()?;
            Err(os_error(&e))
        })
    }

    /// Looks whether the device is there, if the last look was a while ago.
    fn glance(&mut self) -> Result<(), BusError> {
        if self.gone || self.looked.elapsed() >= LOOK { self.look() } else { Ok(()) }
    }

    /// Fails once the device is gone.
    fn look(&mut self) -> Result<(), BusError> {
        // A device that resets itself answers nothing for a while.
        if self.saved.is_some() {
            return Ok(());
        }
        self.looked = Instant::now();
        if !self.gone && (self.irqs.lost() || !self.present()) {
            tracing::warn!("pci:{}: the device is gone", self.function.address);
            self.gone = true;
        }
        if self.gone { Err(BusError::Gone) } else { Ok(()) }
    }

    /// Writes configuration space: what sysfs lets us write, then what VFIO keeps.
    fn restore(&mut self, saved: &Saved) -> io::Result<()> {
        if let Some(file) = &self.raw_config {
            config::restore(&mut ConfigFile { file, offset: 0 }, saved)?;
        }
        // VFIO notices at the command register that BARs are lost, and restores those.
        config::enable(&mut self.config_space())
    }
}

fn os_error(e: &io::Error) -> BusError {
    BusError::Os(e.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error()))
}

impl Mmio for VfioBus {
    fn window_len(&self, window: Window) -> u64 {
        self.region(window).len
    }
    fn read32(&mut self, window: Window, offset: u64) -> Result<u32, BusError> {
        let mut b = [0; 4];
        self.read(window, offset, &mut b, 4)?;
        Ok(u32::from_le_bytes(b))
    }
    fn write32(&mut self, window: Window, offset: u64, value: u32) -> Result<(), BusError> {
        self.write(window, offset, &value.to_le_bytes(), 4)
    }
    fn read64(&mut self, window: Window, offset: u64) -> Result<u64, BusError> {
        let mut b = [0; 8];
        self.read(window, offset, &mut b, 8)?;
        Ok(u64::from_le_bytes(b))
    }
    fn write64(&mut self, window: Window, offset: u64, value: u64) -> Result<(), BusError> {
        self.write(window, offset, &value.to_le_bytes(), 8)
    }
    fn read_bulk(&mut self, window: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        self.read(window, offset, buf, 1)
    }
    fn write_bulk(&mut self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.write(window, offset, data, 1)
    }
    fn zero(&mut self, window: Window, offset: u64, len: u64) -> Result<(), BusError> {
        allocations::zero(self, window, offset, len)
    }
    // The CPU keeps the order of stores to device memory.
    fn flush(&mut self) -> Result<(), BusError> {
        self.glance()
    }
    fn fence(&mut self) -> Result<(), BusError> {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.flush()
    }
}

impl Dma for VfioBus {
    fn dma_alloc(&mut self, len: u64) -> Result<DmaHandle, BusError> {
        self.dma.alloc(len)
    }
    fn dma_free(&mut self, handle: DmaHandle) -> Result<(), BusError> {
        self.dma.free(handle)
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

impl Bus for VfioBus {
    fn clock(&self) -> &dyn Clock {
        &self.clock
    }

    fn wait_interrupt(&mut self, timeout_us: u64) -> Result<bool, BusError> {
        self.glance()?;
        let end = Instant::now() + Duration::from_micros(timeout_us);
        loop {
            let Some(msi) = &self.irqs.msi else {
                self.clock.wait_us(timeout_us.min(50));
                self.look()?;
                return Ok(false);
            };
            // A device that is pulled out raises nothing: so it is looked at now and then.
            match msi.wait(end.min(Instant::now() + LOOK), &self.irqs.lost_fds())? {
                Woken::Interrupt => return Ok(true),
                Woken::Timeout if Instant::now() >= end => return Ok(false),
                Woken::Timeout | Woken::Other => self.look()?,
            }
        }
    }

    fn before_reset(&mut self) -> Result<(), BusError> {
        let raw = self.raw_config.as_ref().map(|file| ConfigFile { file, offset: 0 });
        let saved = config::save(&mut raw.unwrap_or_else(|| self.config_space()));
        self.saved = Some(saved.map_err(|e| os_error(&e))?);
        Ok(())
    }

    fn after_reset(&mut self) -> Result<(), BusError> {
        let Some(saved) = self.saved.take() else { return Ok(()) };
        self.restore(&saved).map_err(|e| os_error(&e))
    }

    fn reset_bus(&mut self) -> Result<(), BusError> {
        hot_reset::reset(&self.sysfs, &self.function, &self.files)?;
        config::enable(&mut self.config_space()).map_err(|e| os_error(&e))
    }
}

impl Drop for VfioBus {
    fn drop(&mut self) {
        // Without an IOMMU nothing else keeps the device from memory that is another's from now on.
        if let Err(e) = config::end_dma(&mut self.config_space()) {
            tracing::info!("pci:{}: bus mastering: {e}", self.function.address);
        }
    }
}

impl HostBus for VfioBus {
    fn may_be_asked(&self) -> bool {
        self.owner.as_ref().is_some_and(Owner::may_be_asked)
    }
    fn asked(&mut self) -> Option<Box<dyn std::io::Write>> {
        Some(Box::new(self.owner.as_ref()?.asked()?))
    }
    fn pci_id(&mut self) -> (u16, u8) {
        (self.function.device, self.function.revision)
    }
    fn close(mut self) -> anyhow::Result<()> {
        let (claim, owner) = (self.claim.take(), self.owner.take());
        // vfio-pci gives nothing up that is open.
        drop(self);
        let done = claim.map_or(Ok(()), |mut claim| claim.release());
        drop(owner);
        Ok(done?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::Tree;
    use super::*;
    use crate::wait::Msi;
    use std::os::unix::fs::FileExt as _;

    const LEN: u64 = 0x1000;

    /// A GPU of files: all of its windows show the same one, which configuration space stands in.
    fn gpu(file: &File) -> VfioBus {
        let tree = Tree::new();
        tree.function("0000:03:00.0", (0x1002, 0x744c), 0x03_0000, "vfio-pci", "5");
        let function = tree.sysfs().function("0000:03:00.0".parse().unwrap()).unwrap();
        let file = || file.try_clone().unwrap();
        let irqs = Irqs::of(Some(Msi::new().unwrap()), vec![Msi::new().unwrap()]);
        VfioBus {
            vram: Region::whole(LEN),
            doorbells: Region::whole(LEN),
            registers: Region::whole(LEN),
            config: Region::whole(LEN),
            irqs,
            files: Files { device: file(), group: file(), container: file() },
            dma: Allocations::new(file(), None),
            raw_config: None,
            claim: None,
            owner: None,
            saved: None,
            sysfs: tree.sysfs(),
            function,
            clock: RealClock::default(),
            looked: Instant::now(),
            gone: false,
        }
    }

    fn file() -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(LEN).unwrap();
        file.write_all_at(&[0x02, 0x10, 0x4c, 0x74, 6, 0, 0, 0, 0xc8, 0, 0, 3], 0).unwrap();
        file
    }

    #[test]
    fn closing_ends_what_the_device_does_to_memory() {
        let file = file();
        let bus = gpu(&file);
        let mut command = [0; 2];
        file.read_exact_at(&mut command, 4).unwrap();
        assert_eq!(command, [6, 0]);
        bus.close().unwrap();
        file.read_exact_at(&mut command, 4).unwrap();
        assert_eq!(command, [2, 0], "no bus mastering");
    }

    #[test]
    fn a_device_that_resets_itself_may_answer_nothing_but_is_not_gone() {
        let file = file();
        let mut bus = gpu(&file);
        bus.before_reset().unwrap();
        let mut before = vec![0; LEN as usize];
        file.read_exact_at(&mut before, 0).unwrap();
        file.write_all_at(&vec![0xff; LEN as usize], 0).unwrap();
        assert_eq!(bus.read32(Window::Registers, 0x800), Ok(u32::MAX));
        file.write_all_at(&before, 0).unwrap();
        bus.after_reset().unwrap();
        assert_eq!(bus.read32(Window::Registers, 0x800), Ok(0));
        file.write_all_at(&vec![0xff; LEN as usize], 0).unwrap();
        assert_eq!(bus.read32(Window::Registers, 0x800), Err(BusError::Gone));
    }

    /// How long after `lose` a wait of 20 s ends, which has to be because the device is gone.
    fn noticed(bus: &mut VfioBus, lose: impl FnOnce() + Send) -> Duration {
        std::thread::scope(|scope| {
            let lost = scope.spawn(|| {
                // In the middle of the wait, between two looks.
                std::thread::sleep(Duration::from_millis(130));
                lose();
                Instant::now()
            });
            assert_eq!(bus.wait_interrupt(20_000_000), Err(BusError::Gone));
            let end = Instant::now();
            end.saturating_duration_since(lost.join().unwrap())
        })
    }

    /// What it may take, with what a loaded machine may add.
    const IN_TIME: Duration = Duration::from_millis(100 + 100);

    #[test]
    fn a_device_that_answers_all_ones_during_a_wait_is_noticed_within_100_ms() {
        let file = file();
        let mut bus = gpu(&file);
        let took = noticed(&mut bus, || file.write_all_at(&[0xff; 64], 0).unwrap());
        assert!(took < IN_TIME, "{took:?}");
        assert_eq!(bus.flush(), Err(BusError::Gone), "and stays gone");
        assert_eq!(bus.write32(Window::Registers, 0, 1), Err(BusError::Gone));
    }

    #[test]
    fn a_device_that_interrupts_all_the_time_is_looked_at_all_the_same() {
        let file = file();
        let mut bus = gpu(&file);
        file.write_all_at(&[0xff; 64], 0).unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(5) {
            let msi = bus.irqs.msi.as_ref().unwrap().fd();
            rustix::io::write(msi, &1u64.to_ne_bytes()).unwrap();
            if bus.wait_interrupt(1000) == Err(BusError::Gone) {
                break;
            }
        }
        assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    }

    #[test]
    fn a_device_that_the_kernel_wants_back_or_lost_ends_a_wait_at_once() {
        let file = file();
        let mut bus = gpu(&file);
        let lost = rustix::io::fcntl_dupfd_cloexec(bus.irqs.lost_fds()[0], 0).unwrap();
        let took = noticed(&mut bus, || assert_eq!(rustix::io::write(&lost, &1u64.to_ne_bytes()), Ok(8)));
        assert!(took < Duration::from_millis(100), "{took:?}");
    }
}
