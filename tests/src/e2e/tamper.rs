//! A bus that tests can tamper with: mistakes are put into a driver by dropping or altering what it
//! does to its device.

use amdev_cli::sim::SimBus;
use amdev_core::bus::{Bus, BusError, Clock, Dma, DmaHandle, Mmio, Segment, Window};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// How much too fast the clock of an impatient driver runs.
const IMPATIENCE: u64 = 50;

/// A store of the driver on its way to the device.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// Where to.
    pub window: Window,
    /// Byte offset.
    pub offset: u64,
    /// What.
    pub data: &'a [u8],
    /// Byte address of the register, reached directly or through the RSMU's index and data.
    pub register: Option<u64>,
}

impl Access<'_> {
    /// The bytes as a number, if they are 4 or 8.
    pub fn value(&self) -> Option<u64> {
        match *self.data {
            [a, b, c, d] => Some(u32::from_le_bytes([a, b, c, d]).into()),
            [a, b, c, d, e, f, g, h] => Some(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
            _ => None,
        }
    }

    /// True for a store to the register at this byte address.
    pub fn is_reg(&self, address: u64) -> bool {
        self.register == Some(address)
    }
}

/// What becomes of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is made.
    Pass,
    /// It is lost.
    Drop,
    /// Other bytes are stored.
    Replace(Vec<u8>),
    /// These stores are made instead, in order: offset in the same window, bytes.
    Instead(Vec<(u64, Vec<u8>)>),
}

type Hook = Box<dyn FnMut(&Access<'_>) -> Verdict>;
type ReadHook = Box<dyn FnMut(Window, u64, u32) -> u32>;
type BulkHook = Box<dyn FnMut(Window, u64, &mut [u8])>;

#[derive(Default)]
struct Mistakes {
    store: RefCell<Option<Hook>>,
    load: RefCell<Option<ReadHook>>,
    bulk: RefCell<Option<BulkHook>>,
    /// Added to bus addresses of DMA memory.
    dma_shift: Cell<u64>,
    /// Waits are shorter for the device than for the driver.
    impatient: Cell<bool>,
    /// Microseconds that the driver was told have passed, and did not.
    skipped_us: Cell<u64>,
    hits: Cell<usize>,
}

/// What goes wrong on a [`Tamper`]; clones are handles to the same.
#[derive(Clone, Default)]
pub struct Control(Rc<Mistakes>);

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("hits", &self.0.hits.get()).finish()
    }
}

impl Control {
    /// From now on `hook` decides about each store to a window.
    pub fn stores(&self, hook: impl FnMut(&Access<'_>) -> Verdict + 'static) {
        *self.0.store.borrow_mut() = Some(Box::new(hook));
    }

    /// From now on `hook` may change what a 32-bit load gives: window, offset, value.
    pub fn loads(&self, hook: impl FnMut(Window, u64, u32) -> u32 + 'static) {
        *self.0.load.borrow_mut() = Some(Box::new(hook));
    }

    /// From now on `hook` may change what a bulk load gives: window, offset, bytes.
    pub fn bulk_loads(&self, hook: impl FnMut(Window, u64, &mut [u8]) + 'static) {
        *self.0.bulk.borrow_mut() = Some(Box::new(hook));
    }

    /// From now on the bus addresses that the driver is told are off by this much.
    pub fn shift_dma(&self, by: u64) {
        self.0.dma_shift.set(by);
    }

    /// From now on the driver waits too short: its clock runs 50 times too fast while it waits.
    pub fn impatient(&self) {
        self.0.impatient.set(true);
    }

    /// Everything is passed on again; how many stores had been tampered with.
    pub fn clear(&self) -> usize {
        *self.0.store.borrow_mut() = None;
        *self.0.load.borrow_mut() = None;
        *self.0.bulk.borrow_mut() = None;
        self.0.dma_shift.set(0);
        self.0.impatient.set(false);
        self.0.hits.replace(0)
    }
}

/// A simulated GPU's bus with mistakes put in.
pub struct Tamper {
    inner: SimBus,
    control: Control,
    /// Byte offsets of the RSMU's index and data registers, and what the index register holds.
    rsmu: [u64; 2],
    index: u64,
}

impl std::fmt::Debug for Tamper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tamper").field("control", &self.control).finish()
    }
}

impl Tamper {
    /// Puts mistakes into `inner` as `control` says.
    pub fn new(inner: SimBus, control: Control) -> Self {
        let register = |name| inner.gpu().register(name).map_or(u64::MAX, |a| u64::from(a) * 4);
        let rsmu = ["BIF_BX_PF0_RSMU_INDEX", "BIF_BX_PF0_RSMU_DATA"].map(register);
        Tamper { inner, control, rsmu, index: 0 }
    }

    /// The bus below.
    pub fn inner(&self) -> &SimBus {
        &self.inner
    }

    /// Rings a doorbell (or stores elsewhere) past the driver's own bookkeeping.
    pub fn inner_store(&mut self, window: Window, offset: u64, value: u64) {
        let _ = self.inner.write64(window, offset, value);
    }

    fn verdict(&mut self, window: Window, offset: u64, data: &[u8]) -> Verdict {
        let register = match window {
            Window::Registers if offset == self.rsmu[1] => Some(self.index),
            Window::Registers => Some(offset),
            _ => None,
        };
        let access = Access { window, offset, data, register };
        if access.is_reg(self.rsmu[0]) {
            self.index = access.value().unwrap_or(0);
        }
        let mut hook = self.control.0.store.borrow_mut();
        let verdict = hook.as_mut().map_or(Verdict::Pass, |h| h(&access));
        if verdict != Verdict::Pass {
            self.control.0.hits.set(self.control.0.hits.get() + 1);
        }
        verdict
    }

    fn put(&mut self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        match *data {
            [a, b, c, d] => self.inner.write32(window, offset, u32::from_le_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => {
                self.inner.write64(window, offset, u64::from_le_bytes([a, b, c, d, e, f, g, h]))
            }
            _ => self.inner.write_bulk(window, offset, data),
        }
    }

    fn store(&mut self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        match self.verdict(window, offset, data) {
            Verdict::Pass => self.put(window, offset, data),
            Verdict::Drop => Ok(()),
            Verdict::Replace(other) => self.put(window, offset, &other),
            Verdict::Instead(list) => {
                list.iter().try_for_each(|(offset, data)| self.put(window, *offset, data))
            }
        }
    }
}

impl Mmio for Tamper {
    fn window_len(&self, window: Window) -> u64 {
        self.inner.window_len(window)
    }
    fn read32(&mut self, window: Window, offset: u64) -> Result<u32, BusError> {
        let value = self.inner.read32(window, offset)?;
        let mut hook = self.control.0.load.borrow_mut();
        Ok(hook.as_mut().map_or(value, |h| h(window, offset, value)))
    }
    fn write32(&mut self, window: Window, offset: u64, value: u32) -> Result<(), BusError> {
        self.store(window, offset, &value.to_le_bytes())
    }
    fn read64(&mut self, window: Window, offset: u64) -> Result<u64, BusError> {
        self.inner.read64(window, offset)
    }
    fn write64(&mut self, window: Window, offset: u64, value: u64) -> Result<(), BusError> {
        self.store(window, offset, &value.to_le_bytes())
    }
    fn read_bulk(&mut self, window: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        self.inner.read_bulk(window, offset, buf)?;
        if let Some(hook) = self.control.0.bulk.borrow_mut().as_mut() {
            hook(window, offset, buf);
        }
        Ok(())
    }
    fn write_bulk(&mut self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.store(window, offset, data)
    }
    fn zero(&mut self, window: Window, offset: u64, len: u64) -> Result<(), BusError> {
        self.inner.zero(window, offset, len)
    }
    fn flush(&mut self) -> Result<(), BusError> {
        self.inner.flush()
    }
    fn fence(&mut self) -> Result<(), BusError> {
        self.inner.fence()
    }
}

impl Dma for Tamper {
    fn dma_alloc(&mut self, len: u64) -> Result<DmaHandle, BusError> {
        self.inner.dma_alloc(len)
    }
    fn dma_free(&mut self, handle: DmaHandle) -> Result<(), BusError> {
        self.inner.dma_free(handle)
    }
    fn dma_len(&self, handle: DmaHandle) -> Result<u64, BusError> {
        self.inner.dma_len(handle)
    }
    fn dma_segment(&self, handle: DmaHandle, offset: u64) -> Result<Segment, BusError> {
        let found = self.inner.dma_segment(handle, offset)?;
        Ok(Segment { addr: found.addr + self.control.0.dma_shift.get(), ..found })
    }
    fn dma_read(&mut self, handle: DmaHandle, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        self.inner.dma_read(handle, offset, buf)
    }
    fn dma_write(&mut self, handle: DmaHandle, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.inner.dma_write(handle, offset, data)
    }
    fn sync_for_device(&mut self, handle: DmaHandle, offset: u64, len: u64) -> Result<(), BusError> {
        self.inner.sync_for_device(handle, offset, len)
    }
    fn sync_for_cpu(&mut self, handle: DmaHandle, offset: u64, len: u64) -> Result<(), BusError> {
        self.inner.sync_for_cpu(handle, offset, len)
    }
}

impl Clock for Tamper {
    fn now_us(&self) -> u64 {
        self.inner.now_us() + self.control.0.skipped_us.get()
    }
    fn wait_us(&self, us: u64) {
        let skipped = if self.control.0.impatient.get() { us - us / IMPATIENCE } else { 0 };
        self.control.0.skipped_us.set(self.control.0.skipped_us.get() + skipped);
        self.inner.wait_us(us - skipped);
    }
}

impl Bus for Tamper {
    fn clock(&self) -> &dyn Clock {
        self
    }
    fn wait_interrupt(&mut self, timeout_us: u64) -> Result<bool, BusError> {
        self.inner.wait_interrupt(timeout_us)
    }
    fn before_reset(&mut self) -> Result<(), BusError> {
        self.inner.before_reset()
    }
    fn after_reset(&mut self) -> Result<(), BusError> {
        self.inner.after_reset()
    }
}
