//! A kernel image that owns the whole machine: no operating system, no allocator, no `std`.
//!
//! It finds an AMD GPU on the PCI bus, boots it with firmware that was loaded beside the image,
//! copies, runs a compiled kernel and prints what came out on the serial port. The driver is
//! `amdev-core`, unchanged; what it needs of this machine stands in `bus.rs`.
#![no_std]
#![no_main]

mod bus;
mod machine;
mod tar;

use amdev_core::boot::Options;
use amdev_core::bus::window::SmallBar;
use amdev_core::device::Probe;
use amdev_core::iface::AllocFlags;
use amdev_core::ip::Event;
use amdev_core::mm::{Block, VaRange};
use amdev_core::program::{CodeObject, HiddenValues};
use amdev_core::queue::dispatch::Launch;
use amdev_core::runtime::{Runtime, Sizes, Work};
use amdev_fw::{FirmwareSet, Memory, Versions};
use bus::MachineBus;
use core::fmt::Display;

/// Values in each vector, and work-items of a group of the kernel `vecadd`.
const N: usize = 4096;
const BLOCK: u32 = 256;

/// Checks done so far: the last line counts them.
struct Score {
    passed: u32,
}

impl Score {
    fn pass(&mut self, what: impl Display) {
        self.passed += 1;
        say!("ok: {what}");
    }
}

/// Any error as text on the serial port: without an allocator this is the simplest common form.
fn failed<E: Display>(doing: &'static str) -> impl Fn(E) {
    move |e| say!("FAILED: {doing}: {e}")
}

#[unsafe(no_mangle)]
extern "C" fn kernel_main(start_info: u64) -> ! {
    let mut score = Score { passed: 0 };
    let ok = job(start_info, &mut score).is_ok();
    say!("{} passed, {} failed", score.passed, if ok { 0 } else { 1 });
    machine::exit(ok)
}

fn job(start_info: u64, score: &mut Score) -> Result<(), ()> {
    let boot = machine::boot_info(start_info).ok_or("not started by a PVH loader with a memory map");
    let boot = boot.map_err(failed("reading the boot information"))?;
    let file =
        |name: &str| tar::find(boot.module, name).ok_or("not in the archive beside the image (-initrd)");

    // The device. A small BAR 0 shows only the start of VRAM: the decorator reaches the rest.
    let bus = MachineBus::find(boot.free).map_err(failed("finding the GPU"))?;
    let (device, revision) = bus.pci_id;
    let by = if bus.placed { "this image" } else { "firmware" };
    score.pass(format_args!("found 1002:{device:04x}, windows placed by {by}"));
    let mut probe = Probe::open(SmallBar::new(bus, 0)).map_err(failed("reading the discovery table"))?;
    let vram_len = probe.device.layout.vram_len();
    probe.device.bus.set_vram_len(vram_len);
    let versions = Versions::of(&probe.ips, device, revision).map_err(failed("choosing firmware"))?;
    score.pass(format_args!("GC {:?}, {} MiB of VRAM", versions.gc, vram_len >> 20));

    // Firmware: opened through embedded-io, read piece by piece out of the archive.
    let open = |_, name: &str| file(name).map(Memory::new);
    let mut firmware = FirmwareSet::open(versions, open).map_err(failed("opening firmware"))?;
    let progress = &mut |event: &Event| match event.stage {
        Some(stage) => say!("  {:7} us  {stage}", event.at_us),
        None => say!("  {:7} us  done, {} register writes", event.at_us, event.counters.register_writes),
    };
    let report = probe.boot(&mut firmware, Options::default(), progress).map_err(failed("booting"))?;
    score.pass(format_args!("booted ({}: {})", report.path, report.reason));

    // Storage for the allocators' state is lent by whoever owns the memory: here, by this stack.
    let (mut boot_blocks, mut pool, mut virt) =
        ([Block::EMPTY; 64], [Block::EMPTY; 512], [Block::EMPTY; 512]);
    let va = VaRange::new(&mut virt).map_err(failed("virtual addresses"))?;
    let gpu =
        probe.into_gpu(report.ready, &mut boot_blocks, &mut pool, &va).map_err(failed("page tables"))?;
    let mut gpu = Runtime::new(gpu, Sizes::default()).map_err(failed("queues"))?;

    // Copies: in, from VRAM to VRAM, out.
    let (mut a, mut b, mut out) = ([0; 4 * N], [0; 4 * N], [0; 4 * N]);
    for (i, (x, y)) in a.as_chunks_mut().0.iter_mut().zip(b.as_chunks_mut().0).enumerate() {
        *x = (i as f32).to_le_bytes();
        *y = (0.5 * i as f32 + 1.0).to_le_bytes();
    }
    let len = out.len() as u64;
    let mut alloc = || gpu.alloc(len, AllocFlags::empty()).map_err(failed("allocating VRAM"));
    let (va_a, va_b, va_c, va_out) = (alloc()?, alloc()?, alloc()?, alloc()?);
    gpu.write(&va_a, &a).and_then(|()| gpu.write(&va_b, &b)).map_err(failed("copying in"))?;
    gpu.copy(&va_c, &va_a, len).map_err(failed("copying in VRAM"))?;
    gpu.read(&va_c, &mut out).map_err(failed("copying out"))?;
    if out != a {
        say!("FAILED: what was copied is not what was there");
        return Err(());
    }
    score.pass(format_args!("copied {len} bytes into VRAM, in VRAM and out"));

    // A kernel that clang compiled: out[i] = c[i] + b[i].
    let object = file("vecadd.co").map_err(failed("vecadd.co"))?;
    let object = CodeObject::parse(object).map_err(failed("vecadd.co"))?;
    let kernel = object.only_kernel().map_err(failed("vecadd.co"))?;
    let program = gpu.load(&object).map_err(failed("loading the kernel"))?;
    let launch = Launch { grid: [N as u32 / BLOCK, 1, 1], block: [BLOCK, 1, 1] };
    let mut args = [0; 512];
    let args =
        args.get_mut(..kernel.descriptor.kernarg_size as usize).ok_or("more than 512 bytes of arguments");
    let args = args.map_err(failed("vecadd.co"))?;
    let pointers = [va_out, va_c, va_b].map(|buffer| buffer.va.to_le_bytes());
    let [p0, p1, p2] = &pointers;
    kernel
        .fill_args(&[p0, p1, p2], args)
        .and_then(|()| kernel.fill_hidden(&launch, &HiddenValues::default(), args))
        .map_err(failed("arguments"))?;
    let work = Work { program: &program, kernel: &kernel, launch, kernargs: args, dynamic_lds: 0 };
    gpu.launch(&work, None).map_err(failed("launching the kernel"))?;
    gpu.read(&va_out, &mut out).map_err(failed("running the kernel"))?;
    for (i, value) in out.as_chunks().0.iter().enumerate() {
        let (value, expected) = (f32::from_le_bytes(*value), 1.5 * i as f32 + 1.0);
        if value != expected {
            say!("FAILED: the kernel's result {i} is {value}, not {expected}");
            return Err(());
        }
    }
    score.pass(format_args!("ran {} on {N} values, all right", kernel.name));

    // Down again, so that the next boot can be warm.
    gpu.unload(program).map_err(failed("unloading"))?;
    for buffer in [va_a, va_b, va_c, va_out] {
        gpu.free(buffer).map_err(failed("freeing"))?;
    }
    gpu.release().map_err(failed("taking the queues down"))?;
    gpu.into_iface().fini(&mut |_| ()).map_err(failed("shutting down"))?;
    score.pass("shut down");
    Ok(())
}
