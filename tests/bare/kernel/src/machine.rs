//! The machine below: serial port, ports, time, page tables, boot information. Nothing of it
//! knows of GPUs; an operating system has all of this already.

use core::arch::{asm, global_asm};
use core::fmt;

global_asm!(include_str!("start.s"), options(att_syntax));

/// Writes a byte to an I/O port.
pub fn out8(port: u16, value: u8) {
    // SAFETY: ports do not touch memory; this image owns the machine.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack)) }
}

/// Reads a byte from an I/O port.
pub fn in8(port: u16) -> u8 {
    let value: u8;
    // SAFETY: as in `out8`.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack)) }
    value
}

/// Writes 4 bytes to an I/O port.
pub fn out32(port: u16, value: u32) {
    // SAFETY: as in `out8`.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack)) }
}

/// Reads 4 bytes from an I/O port.
pub fn in32(port: u16) -> u32 {
    let value: u32;
    // SAFETY: as in `out8`.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack)) }
    value
}

/// The serial port (COM1).
pub struct Serial;

impl fmt::Write for Serial {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for byte in s.bytes() {
            while in8(0x3fd) & 0x20 == 0 {}
            out8(0x3f8, byte);
        }
        Ok(())
    }
}

/// Prints a line on the serial port.
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => {{
        use core::fmt::Write as _;
        let _ = writeln!($crate::machine::Serial, $($arg)*);
    }};
}

/// Ends QEMU through its isa-debug-exit device: exit code 33 if all is right, else 35.
pub fn exit(ok: bool) -> ! {
    out32(0xf4, if ok { 0x10 } else { 0x11 });
    loop {
        core::hint::spin_loop();
    }
}

fn ticks() -> u64 {
    // SAFETY: reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Time by the processor's counter.
pub struct Timer {
    start: u64,
    ticks_per_ms: u64,
}

impl Timer {
    /// Measures the counter against 10 ms of the interval timer (8254, channel 2, 1.193182 MHz).
    pub fn new() -> Timer {
        const COUNT: u16 = 11_932;
        out8(0x61, in8(0x61) & !2 | 1);
        out8(0x43, 0xb0);
        out8(0x42, COUNT as u8);
        out8(0x42, (COUNT >> 8) as u8);
        let start = ticks();
        while in8(0x61) & 0x20 == 0 {}
        let ticks_per_ms = ((ticks() - start) / 10).max(1000);
        Timer { start, ticks_per_ms }
    }

    /// Microseconds since it was made.
    pub fn now_us(&self) -> u64 {
        let passed = u128::from(ticks().saturating_sub(self.start));
        (passed * 1000 / u128::from(self.ticks_per_ms)) as u64
    }
}

unsafe extern "C" {
    static mut top_pages: [u64; 512];
    static mut spare_pages: [[u64; 512]; 4];
    static image_end: u8;
}

/// Maps device memory to its own address, uncached, in pages of 1 GiB. False if no table is left.
pub fn map_device(start: u64, len: u64) -> bool {
    const GIB: u64 = 1 << 30;
    let mut page = start & !(GIB - 1);
    while page < start.saturating_add(len) {
        let (top, low) = ((page >> 39) as usize, (page >> 30) as usize % 512);
        // SAFETY: one thread; the tables are those that start.s made, and identity-mapped.
        unsafe {
            let entry = (&raw mut top_pages).cast::<u64>().add(top % 512);
            if *entry == 0 {
                let spare = (0..4).map(|i| (&raw mut spare_pages).cast::<u64>().add(512 * i));
                let Some(table) = spare.into_iter().find(|t| !in_use(*t as u64)) else { return false };
                *entry = table as u64 | 3;
            }
            let table = (*entry & !0xfff) as *mut u64;
            // Present, writable, write-through and uncached, large.
            *table.add(low) = page | 0x9b;
            asm!("mov {0}, cr3", "mov cr3, {0}", out(reg) _, options(nostack));
        }
        page += GIB;
    }
    true
}

fn in_use(table: u64) -> bool {
    // SAFETY: reads the table that start.s made.
    unsafe { (0..512).any(|i| *(&raw const top_pages).cast::<u64>().add(i) & !0xfff == table) }
}

/// What the loader tells: `hvm_start_info` of Xen's `arch-x86/hvm/start_info.h`.
#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    nr_modules: u32,
    modlist: u64,
    cmdline: u64,
    rsdp: u64,
    memmap: u64,
    memmap_entries: u32,
}

/// Start address, length, and what follows in the tables of modules and of memory.
type Entry = [u64; 3];

/// What the loader put beside the image, and free memory.
pub struct Boot {
    /// The first module (QEMU's `-initrd`); empty if there is none.
    pub module: &'static [u8],
    /// Memory that nothing else uses: start and end.
    pub free: (u64, u64),
}

/// Reads what the loader tells; `None` if it is no PVH loader, or tells of no memory.
pub fn boot_info(start_info: u64) -> Option<Boot> {
    // SAFETY: the boot protocol hands over this address; it is below 4 GiB and mapped.
    let info = unsafe { &*(start_info as *const StartInfo) };
    if info.magic != 0x336e_c578 || info.version == 0 {
        return None;
    }
    let mut module: &'static [u8] = &[];
    if info.nr_modules > 0 {
        // SAFETY: the protocol says that a list of 32-byte entries is there; nobody writes to it.
        let [start, len] = unsafe { *(info.modlist as *const [u64; 2]) };
        // SAFETY: the loader put the module there, in memory that this image leaves alone.
        module = unsafe { core::slice::from_raw_parts(start as *const u8, len as usize) };
    }
    let image = &raw const image_end as u64;
    for i in 0..info.memmap_entries as u64 {
        // SAFETY: as for modules; entries have 24 bytes.
        let [start, len, kind] = unsafe { *((info.memmap + 24 * i) as *const Entry) };
        if kind as u32 == 1 && (start..start + len).contains(&image) {
            let module_start = module.as_ptr() as u64;
            let end = if module_start > image { module_start } else { start + len };
            let page = |at: u64| at & !0xfff;
            return Some(Boot { module, free: (page(image + 0xfff), page(end.min(start + len))) });
        }
    }
    None
}

/// What the compiler calls for copies. Written as string instructions, so that the compiler does
/// not make calls to themselves of them.
mod memory {
    use core::arch::asm;

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
        // SAFETY: the caller promises both ranges.
        unsafe {
            asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _);
        }
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
        if (to as usize).wrapping_sub(from as usize) >= len {
            // SAFETY: forward is right where the target does not start inside the source.
            return unsafe { memcpy(to, from, len) };
        }
        // SAFETY: backward, from the last byte on.
        unsafe {
            asm!("std", "rep movsb", "cld", inout("rcx") len => _,
                inout("rdi") to.wrapping_add(len).wrapping_sub(1) => _,
                inout("rsi") from.wrapping_add(len).wrapping_sub(1) => _);
        }
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memset(to: *mut u8, value: i32, len: usize) -> *mut u8 {
        // SAFETY: the caller promises the range.
        unsafe {
            asm!("rep stosb", inout("rcx") len => _, inout("rdi") to => _, in("al") value as u8);
        }
        to
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
        for i in 0..len {
            // SAFETY: the caller promises both ranges.
            let (a, b) = unsafe { (a.add(i).read_volatile(), b.add(i).read_volatile()) };
            if a != b {
                return i32::from(a) - i32::from(b);
            }
        }
        0
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
        // SAFETY: as the caller of this promises.
        unsafe { memcmp(a, b, len) }
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say!("{info}\n0 passed, 1 failed");
    exit(false)
}
