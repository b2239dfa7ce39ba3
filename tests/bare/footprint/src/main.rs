//! An image that is linked and measured, never run: it finds a GPU, boots it with firmware from
//! memory, copies and launches a kernel, over a bus as thin as a bus can be.
//!
//! Nothing here formats text. So what is left of panics, strings and tables belongs to the driver.
#![no_std]
#![no_main]

use amdev_core::boot::Options;
use amdev_core::bus::{Bus, BusError, Clock, Dma, DmaHandle, Mmio, Segment, Window};
use amdev_core::device::{Gpu, Probe};
use amdev_core::iface::AllocFlags;
use amdev_core::mm::{Block, VaRange};
use amdev_core::program::{CodeObject, HiddenValues};
use amdev_core::queue::dispatch::Launch;
use amdev_core::runtime::{Runtime, Sizes, Work};
use amdev_fw::{FirmwareSet, Memory, Versions};
use core::hint::black_box;
use core::mem::size_of;

/// Three windows at fixed addresses, and memory at bus address = CPU address.
struct Machine {
    windows: [(usize, u64); 3],
    timer: usize,
    dma: (usize, u64),
    used: u64,
    lens: [(u64, u64); 8],
    count: usize,
}

impl Machine {
    fn at(&self, window: Window, offset: u64, len: u64) -> Result<usize, BusError> {
        let [vram, doorbells, registers] = self.windows;
        let (base, window_len) = match window {
            Window::Vram => vram,
            Window::Doorbells => doorbells,
            Window::Registers => registers,
        };
        match offset.checked_add(len) {
            Some(end) if end <= window_len => Ok(base.wrapping_add(offset as usize)),
            _ => Err(BusError::OutOfWindow { window, offset, len, window_len }),
        }
    }

    fn dma_at(&self, handle: DmaHandle, offset: u64, len: u64) -> Result<u64, BusError> {
        let bad = BusError::BadDmaRange { handle, offset, len };
        let (start, size) = *self.lens.get(handle.0 as usize).ok_or(bad)?;
        match offset.checked_add(len) {
            Some(end) if end <= size => Ok(start.wrapping_add(offset)),
            _ => Err(bad),
        }
    }
}

fn load<T: Copy>(at: usize) -> T {
    // SAFETY: the image never runs; in its place would stand the reason why `at` is mapped.
    unsafe { core::ptr::read_volatile(at as *const T) }
}

fn store<T: Copy>(at: usize, value: T) {
    // SAFETY: as in `load`.
    unsafe { core::ptr::write_volatile(at as *mut T, value) }
}

fn load_all(at: usize, buf: &mut [u8]) {
    for (i, byte) in buf.iter_mut().enumerate() {
        *byte = load(at.wrapping_add(i));
    }
}

fn store_all(at: usize, data: &[u8]) {
    for (i, byte) in data.iter().enumerate() {
        store(at.wrapping_add(i), *byte);
    }
}

impl Mmio for Machine {
    fn window_len(&self, window: Window) -> u64 {
        let [vram, doorbells, registers] = self.windows;
        match window {
            Window::Vram => vram.1,
            Window::Doorbells => doorbells.1,
            Window::Registers => registers.1,
        }
    }
    fn read32(&mut self, window: Window, offset: u64) -> Result<u32, BusError> {
        self.at(window, offset, 4).map(load)
    }
    fn write32(&mut self, window: Window, offset: u64, value: u32) -> Result<(), BusError> {
        self.at(window, offset, 4).map(|at| store(at, value))
    }
    fn read64(&mut self, window: Window, offset: u64) -> Result<u64, BusError> {
        self.at(window, offset, 8).map(load)
    }
    fn write64(&mut self, window: Window, offset: u64, value: u64) -> Result<(), BusError> {
        self.at(window, offset, 8).map(|at| store(at, value))
    }
    fn read_bulk(&mut self, window: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        self.at(window, offset, buf.len() as u64).map(|at| load_all(at, buf))
    }
    fn write_bulk(&mut self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.at(window, offset, data.len() as u64).map(|at| store_all(at, data))
    }
    fn flush(&mut self) -> Result<(), BusError> {
        Ok(())
    }
    fn fence(&mut self) -> Result<(), BusError> {
        core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
        Ok(())
    }
}

impl Dma for Machine {
    fn dma_alloc(&mut self, len: u64) -> Result<DmaHandle, BusError> {
        let none = BusError::NoDmaMemory { len };
        let end = self.used.checked_add(len).filter(|end| *end <= self.dma.1).ok_or(none)?;
        let slot = self.lens.get_mut(self.count).ok_or(none)?;
        *slot = ((self.dma.0 as u64).wrapping_add(self.used), len);
        let handle = DmaHandle(self.count as u32);
        (self.used, self.count) = (end, self.count.wrapping_add(1));
        Ok(handle)
    }
    fn dma_free(&mut self, _: DmaHandle) -> Result<(), BusError> {
        Ok(())
    }
    fn dma_len(&self, handle: DmaHandle) -> Result<u64, BusError> {
        let bad = BusError::BadDmaRange { handle, offset: 0, len: 0 };
        self.lens.get(handle.0 as usize).map(|a| a.1).ok_or(bad)
    }
    fn dma_segment(&self, handle: DmaHandle, offset: u64) -> Result<Segment, BusError> {
        let addr = self.dma_at(handle, offset, 1)?;
        Ok(Segment { addr, len: self.dma_len(handle)?.saturating_sub(offset) })
    }
    fn dma_read(&mut self, handle: DmaHandle, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        self.dma_at(handle, offset, buf.len() as u64).map(|at| load_all(at as usize, buf))
    }
    fn dma_write(&mut self, handle: DmaHandle, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.dma_at(handle, offset, data.len() as u64).map(|at| store_all(at as usize, data))
    }
}

impl Clock for Machine {
    fn now_us(&self) -> u64 {
        load(self.timer)
    }
    fn wait_us(&self, us: u64) {
        let end = self.now_us().saturating_add(us);
        while self.now_us() < end {}
    }
}

impl Bus for Machine {
    fn clock(&self) -> &dyn Clock {
        self
    }
}

/// What a machine lends the driver.
struct Lent {
    machine: Machine,
    files: [&'static [u8]; 8],
    object: &'static [u8],
    boot_blocks: [Block; 64],
    pool_blocks: [Block; 1024],
    va_blocks: [Block; 1024],
    kernargs: [u8; 256],
}

/// Everything from finding the device to a finished kernel.
fn job(lent: &'static mut Lent) -> Option<()> {
    let Lent { machine, files, object, boot_blocks, pool_blocks, va_blocks, kernargs } = lent;
    let mut probe = Probe::open(machine).ok()?;
    let versions = Versions::of(&probe.ips, 0x744c, 0xc8).ok()?;
    let mut files = files.iter();
    let next = |_, _: &str| files.next().map(|f| Memory::new(*f)).ok_or(());
    let mut firmware = FirmwareSet::open(versions, next).ok()?;
    let report = probe.boot(&mut firmware, Options::default(), &mut |_| ()).ok()?;
    let va = VaRange::new(va_blocks).ok()?;
    let gpu = probe.into_gpu(report.ready, boot_blocks, pool_blocks, &va).ok()?;
    let mut runtime = Runtime::new(gpu, Sizes::default()).ok()?;

    let a = runtime.alloc(4096, AllocFlags::empty()).ok()?;
    let b = runtime.alloc(4096, AllocFlags::empty()).ok()?;
    runtime.write(&a, kernargs).ok()?;
    let ticket = runtime.copy(&b, &a, 256).ok()?;
    runtime.wait(ticket, 1_000_000).ok()?;

    let object = CodeObject::parse(object).ok()?;
    let kernel = object.only_kernel().ok()?;
    let program = runtime.load(&object).ok()?;
    let launch = Launch { grid: [1; 3], block: [64, 1, 1] };
    kernel.fill_args(&[&a.va.to_le_bytes(), &b.va.to_le_bytes()], kernargs).ok()?;
    kernel.fill_hidden(&launch, &HiddenValues::default(), kernargs).ok()?;
    let work = Work { program: &program, kernel: &kernel, launch, kernargs, dynamic_lds: 0 };
    let ticket = runtime.launch(&work, None).ok()?;
    runtime.wait(ticket, 1_000_000).ok()?;
    runtime.read(&b, kernargs).ok()?;
    runtime.unload(program).ok()?;
    runtime.free(a).ok()?;
    runtime.release().ok()?;
    runtime.into_iface().fini(&mut |_| ()).ok()
}

/// Symbols whose length is the length of a type: `tests/bare-targets.sh` reads them.
macro_rules! states {
    ($($name:ident: $ty:ty),* $(,)?) => {
        $(#[unsafe(no_mangle)]
        static $name: [u8; size_of::<$ty>()] = [0; size_of::<$ty>()];)*
        fn keep_states() {
            $(black_box(&$name);)*
        }
    };
}

states! {
    STATE_Gpu: Gpu<'static, ()>,
    STATE_Runtime: Runtime<Gpu<'static, ()>>,
    STATE_FirmwareSet: FirmwareSet<Memory<&'static [u8]>>,
    STATE_Block: Block,
}

/// Never called by anybody: the linker's entry.
#[unsafe(no_mangle)]
extern "C" fn _start(lent: &'static mut Lent) -> bool {
    keep_states();
    job(lent).is_some()
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    static REACHED: u8 = 0;
    loop {
        // An effect, so that no call to this is taken for unreachable.
        black_box(load::<u8>(&raw const REACHED as usize));
    }
}
