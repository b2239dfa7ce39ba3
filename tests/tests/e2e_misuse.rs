//! Each rule of the simulated GPU, broken through the driver's own seams: the core and its runtime
//! over a bus that alters what passes. `e2e_mistakes.rs` has the commonest ones and the run without
//! any.

use amdev_core::boot;
use amdev_core::bus::Window;
use amdev_core::firmware::{FirmwareError, FirmwareSource, Image, ImageId, SosComponent, UcodeStart};
use amdev_core::iface::AllocFlags;
use amdev_core::program::CodeObject;
use amdev_core::queue::dispatch::Launch;
use amdev_core::runtime::{Sizes, Work};
use amdev_fw::FirmwareSet;
use amdev_fw::files::Source;
use amdev_sim::Rule;
use amdev_tests::e2e::{Access, Bench, Queues, Verdict, firmware};

const SOON: Sizes = Sizes {
    compute_ring: 1 << 16,
    sdma_ring: 1 << 16,
    kernargs: 1 << 16,
    staging: 1 << 16,
    timeout_us: 50_000,
    ..Sizes::DEFAULT
};

fn started() -> (Bench, Queues) {
    let bench = Bench::new("navi31");
    let (runtime, _) = bench.start_sized(SOON);
    assert_eq!(bench.rules(), [], "the start breaks no rule");
    (bench, runtime)
}

/// A copy, awaited for a short time; whether it ended.
fn copy(runtime: &mut Queues) -> bool {
    let [a, b] = [(); 2].map(|()| runtime.alloc(0x1000, AllocFlags::empty()).unwrap());
    match runtime.copy(&b, &a, 0x1000) {
        Ok(ticket) => runtime.wait(ticket, 50_000).is_ok(),
        Err(_) => false,
    }
}

/// An empty-handed kernel: `fill` of one element, with the code object given.
fn launch(runtime: &mut Queues, file: &[u8]) -> bool {
    let object = CodeObject::parse(file).unwrap();
    let kernel = object.only_kernel().unwrap();
    let program = runtime.load(&object).unwrap();
    let out = runtime.alloc(0x1000, AllocFlags::empty()).unwrap();
    let mut kernargs = vec![0; kernel.descriptor.kernarg_size as usize];
    kernel.fill_args(&[&out.va.to_le_bytes(), &[7; 4], &[1, 0, 0, 0]], &mut kernargs).unwrap();
    let launch = Launch { grid: [1, 1, 1], block: [256, 1, 1] };
    let work = Work { program: &program, kernel: &kernel, launch, kernargs: &kernargs, dynamic_lds: 0 };
    let ticket = runtime.launch(&work, None).expect("the launch is accepted");
    runtime.wait(ticket, 50_000).is_ok()
}

fn fill_object() -> Vec<u8> {
    amdev_tests::corpus("co/fill.gfx1100.v5.O2.co").unwrap()
}

/// Boots with stores tampered with; what rules that broke.
fn boot_altered(alter: impl FnMut(&Bench, &Access<'_>) -> Verdict + 'static) -> Vec<Rule> {
    let bench = Bench::new("navi31");
    let mut probe = bench.probe();
    let mut source = firmware(&probe);
    let (inside, mut alter) = (bench.clone(), alter);
    bench.control.stores(move |s| alter(&inside, s));
    let _ = bench.boot_with(&mut probe, &mut source, false);
    assert!(bench.control.clear() > 0, "nothing was altered");
    bench.rules()
}

/// Replaces the value that a register gets.
fn altered(name: &'static str, value: impl Fn(u32) -> u32 + 'static) -> Vec<Rule> {
    let offset = Bench::new("navi31").reg(name);
    boot_altered(move |_, s| match s.value() {
        Some(v) if s.is_reg(offset) => {
            let new = value(v as u32);
            if new == v as u32 { Verdict::Pass } else { Verdict::Replace(new.to_le_bytes().into()) }
        }
        _ => Verdict::Pass,
    })
}

#[test]
fn unknown_register() {
    let (bench, mut runtime) = started();
    runtime.iface().device().read_at(0x3_fff0).unwrap();
    assert_eq!(bench.rules(), [Rule::UnknownRegister]);
    runtime.iface().device().write_at(0x3_fff0, 1).unwrap();
    assert_eq!(bench.rules(), [Rule::UnknownRegister]);
    assert!(copy(&mut runtime), "nothing else is disturbed");
}

#[test]
fn read_only_register() {
    let (bench, mut runtime) = started();
    let addr = bench.gpu.register("RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE").unwrap();
    runtime.iface().device().write_at(addr, 1).unwrap();
    assert_eq!(bench.rules(), [Rule::ReadOnlyRegister]);
}

#[test]
fn doorbell_before_activation() {
    let (bench, mut runtime) = started();
    // Compute doorbell 4 belongs to no queue; then a queue that was taken down.
    runtime.iface().device().bus.inner_store(Window::Doorbells, 4 * 8, 16);
    assert_eq!(bench.rules(), [Rule::DoorbellBeforeActivation]);
    runtime.release().unwrap();
    assert_eq!(bench.rules(), []);
    for doorbell in [3, 0x100] {
        runtime.iface().device().bus.inner_store(Window::Doorbells, doorbell * 8, 16);
        assert_eq!(bench.rules(), [Rule::DoorbellBeforeActivation], "{doorbell:#x}");
    }
}

#[test]
fn ring_overrun() {
    let (bench, mut runtime) = started();
    bench.control.stores(|s| match (s.window, s.value()) {
        (Window::Doorbells, Some(v)) => Verdict::Replace((v + (1 << 30)).to_le_bytes().into()),
        _ => Verdict::Pass,
    });
    copy(&mut runtime);
    assert!(bench.rules().contains(&Rule::RingOverrun), "SDMA");

    let (bench, mut runtime) = started();
    bench.control.stores(|s| match (s.window, s.value()) {
        (Window::Doorbells, Some(v)) => Verdict::Replace((v + (1 << 30)).to_le_bytes().into()),
        _ => Verdict::Pass,
    });
    launch(&mut runtime, &fill_object());
    assert!(bench.rules().contains(&Rule::RingOverrun), "compute");

    let rules = altered("MP0_SMN_C2PMSG_67", |v| if v == 0x30 { 0 } else { v });
    assert!(rules.contains(&Rule::RingOverrun) || rules.contains(&Rule::PspProtocol), "PSP: {rules:?}");
}

#[test]
fn ring_words_overwritten_before_they_are_executed_are_memory_in_use() {
    let (bench, mut runtime) = started();
    let len = 16u64 << 20;
    let [a, b] = [(); 2].map(|()| runtime.alloc(len, AllocFlags::empty()).unwrap());
    // The first store to VRAM of the second copy is its first ring word.
    assert!(copy(&mut runtime));
    let first = std::rc::Rc::new(std::cell::Cell::new(None));
    let seen = first.clone();
    bench.control.stores(move |s| {
        if s.window == Window::Vram && seen.get().is_none() {
            seen.set(Some(s.offset));
        }
        Verdict::Pass
    });
    runtime.copy(&b, &a, len).unwrap();
    bench.control.clear();
    let at = first.get().expect("ring words are in VRAM");
    runtime.iface().device().vram_write(at, &[0; 16]).unwrap();
    assert!(bench.rules().contains(&Rule::MemoryInUse));
}

#[test]
fn firmware_overwritten() {
    let (bench, mut runtime) = started();
    let device = runtime.iface().device();
    let (tmr, table) = (device.layout.tmr.start, device.layout.discovery.start);
    device.vram_write(tmr + 0x1000, &[1]).unwrap();
    assert_eq!(bench.rules(), [Rule::FirmwareOverwritten], "TMR");
    device.vram_write(table, &[1]).unwrap();
    assert_eq!(bench.rules(), [Rule::FirmwareOverwritten], "discovery table");
}

/// Firmware with its bytes, order or lengths changed.
struct Changed<F> {
    inner: FirmwareSet<Source>,
    order: fn(u8) -> u8,
    bytes: F,
}

impl<F: FnMut(ImageId, u32, &mut [u8])> FirmwareSource for Changed<F> {
    fn sos(&self, component: SosComponent) -> Option<Image<'_>> {
        self.inner.sos(component)
    }
    fn smu(&self) -> Option<Image<'_>> {
        self.inner.smu()
    }
    fn ip_image(&self, index: u8) -> Option<Image<'_>> {
        self.inner.ip_image(index).and_then(|_| self.inner.ip_image((self.order)(index)))
    }
    fn ucode_start(&self) -> UcodeStart {
        self.inner.ucode_start()
    }
    fn read(&mut self, id: ImageId, offset: u32, buf: &mut [u8]) -> Result<(), FirmwareError> {
        self.inner.read(id, offset, buf)?;
        (self.bytes)(id, offset, buf);
        Ok(())
    }
}

fn boot_changed(order: fn(u8) -> u8, bytes: impl FnMut(ImageId, u32, &mut [u8])) -> Vec<Rule> {
    let bench = Bench::new("navi31");
    let mut probe = bench.probe();
    let mut source = Changed { inner: firmware(&probe), order, bytes };
    let _ = bench.boot_with(&mut probe, &mut source, false);
    bench.rules()
}

#[test]
fn firmware_order() {
    assert_eq!(boot_changed(|i| i, |_, _, _| ()), [], "unchanged");
    // RLC_G, which starts the autoload, is to be the last.
    let count = {
        let set = firmware(&Bench::new("navi31").probe());
        (0..64).take_while(|i| set.ip_image(*i).is_some()).count()
    };
    assert!(count < 64);
    let rules = boot_changed(|i| if i == 0 { 1 } else { u8::from(i != 1) * i }, |_, _, _| ());
    assert_eq!(rules, [], "the first two may change places");
    // Components of the secure OS in the wrong order.
    let rules = altered("MP0_SMN_C2PMSG_35", |v| if v == 0x8_0000 { 0x1_0000 } else { v });
    assert!(rules.contains(&Rule::FirmwareOrder) || rules.contains(&Rule::FirmwareImage), "{rules:?}");
}

#[test]
fn firmware_image() {
    for id in [ImageId::Smu, ImageId::Ip(0), ImageId::Sos(SosComponent::SysDrv)] {
        let rules = boot_changed(
            |i| i,
            move |which, offset, buf| {
                if which == id && offset == 0 {
                    buf.iter_mut().take(256).for_each(|b| *b = 0);
                }
            },
        );
        assert!(rules.contains(&Rule::FirmwareImage), "{id:?} without its header: {rules:?}");
    }
}

#[test]
fn psp_protocol() {
    let rules = altered("MP0_SMN_C2PMSG_67", |v| v + 1);
    assert!(rules.contains(&Rule::PspProtocol), "write pointer inside a frame: {rules:?}");
    let rules = altered("MP0_SMN_C2PMSG_71", |_| 17);
    assert!(rules.contains(&Rule::PspProtocol), "ring length: {rules:?}");
    let rules = altered("MP0_SMN_C2PMSG_64", |_| 0x99_0000);
    assert!(rules.contains(&Rule::PspProtocol), "control command: {rules:?}");
    let command = Bench::new("navi31").probe().device.layout.psp_command.start;
    let rules = boot_altered(move |_, s| {
        if s.window == Window::Vram && s.offset == command && s.data.len() > 64 {
            let mut other = s.data.to_vec();
            other[8] = 0x77;
            return Verdict::Replace(other);
        }
        Verdict::Pass
    });
    assert!(rules.contains(&Rule::PspProtocol), "unknown command: {rules:?}");
}

#[test]
fn smu_protocol() {
    let rules = altered("MP1_SMN_C2PMSG_66", |_| 0x7f);
    assert!(rules.contains(&Rule::SmuProtocol), "unknown message: {rules:?}");
    let message = Bench::new("navi31").reg("MP1_SMN_C2PMSG_66");
    let rules = boot_altered(move |_, s| {
        if s.is_reg(message) {
            let data = s.data.to_vec();
            return Verdict::Instead(vec![(message, data.clone()), (message, data)]);
        }
        Verdict::Pass
    });
    assert!(rules.contains(&Rule::SmuProtocol), "sent before the answer: {rules:?}");
}

#[test]
fn engine_before_firmware() {
    let bench = Bench::new("navi31");
    let mut probe = bench.probe();
    let mut source = firmware(&probe);
    let status = bench.reg("RLC_RLCS_BOOTLOAD_STATUS");
    bench.control.loads(
        move |window, offset, value| {
            if window == Window::Registers && offset == status { 0x8000_003f } else { value }
        },
    );
    let _ = bench.boot_with(&mut probe, &mut source, false);
    let rules = bench.rules();
    assert!(rules.contains(&Rule::EngineBeforeFirmware), "autoload not awaited: {rules:?}");
}

#[test]
fn malformed_packet() {
    // Reserved bits in the header of each packet that is fetched: SDMA's, then PM4's.
    for (compute, flip) in [(false, 0x8000_0000u32), (true, 0x4000_0000)] {
        let (bench, mut runtime) = started();
        let a = runtime.alloc(0x1000, AllocFlags::empty()).unwrap();
        let mut done = false;
        bench.control.stores(move |s| {
            // Packets are the only bulk stores to VRAM of a copy.
            let bulk = s.window == Window::Vram && s.data.len() > 64 && !done;
            let header = s.data.first_chunk().map(|b| u32::from_le_bytes(*b)).unwrap_or(0);
            if bulk && (!compute || header >> 30 == 3) {
                done = true;
                let mut other = s.data.to_vec();
                other[..4].copy_from_slice(&(header ^ flip).to_le_bytes());
                return Verdict::Replace(other);
            }
            Verdict::Pass
        });
        let ended = if compute {
            launch(&mut runtime, &fill_object())
        } else {
            runtime.copy(&a, &a, 0x40).is_ok_and(|t| runtime.wait(t, 50_000).is_ok())
        };
        assert!(bench.control.clear() > 0 && !ended);
        assert_eq!(bench.rules(), [Rule::MalformedPacket], "compute: {compute}");
    }
}

#[test]
fn illegal_instruction() {
    let (bench, mut runtime) = started();
    let mut file = fill_object();
    assert!(launch(&mut runtime, &file));
    assert_eq!(bench.rules(), []);
    let entry = {
        let object = CodeObject::parse(&file).unwrap();
        let kernel = object.only_kernel().unwrap();
        let text = object.sections().find(|s| s.name == ".text").expect(".text");
        (text.offset + (kernel.entry - text.addr)) as usize
    };
    file[entry..entry + 4].copy_from_slice(&0xffff_ffffu32.to_le_bytes());
    assert!(!launch(&mut runtime, &file));
    assert_eq!(bench.rules(), [Rule::IllegalInstruction]);
}

#[test]
fn queue_setup() {
    for (name, value) in [("CP_HQD_PQ_BASE", 0u32), ("CP_HQD_EOP_BASE_ADDR", 0), ("CP_MQD_BASE_ADDR", 0x1000)]
    {
        let bench = Bench::new("navi31");
        let reg = bench.reg(name);
        bench.control.stores(move |s| {
            if s.is_reg(reg) { Verdict::Replace(value.to_le_bytes().into()) } else { Verdict::Pass }
        });
        let _ = bench.start_sized(SOON);
        assert!(bench.control.clear() > 0, "{name}");
        assert!(bench.rules().contains(&Rule::QueueSetup), "{name}");
    }
    let bench = Bench::new("navi31");
    let reg = bench.reg("SDMA0_QUEUE0_RB_BASE");
    bench.control.stores(move |s| if s.is_reg(reg) { Verdict::Replace(vec![0; 4]) } else { Verdict::Pass });
    let hi = bench.reg("SDMA0_QUEUE0_RB_BASE_HI");
    let lo = reg;
    bench.control.stores(move |s| {
        if s.is_reg(lo) || s.is_reg(hi) { Verdict::Replace(vec![0; 4]) } else { Verdict::Pass }
    });
    let _ = bench.start_sized(SOON);
    assert!(bench.rules().contains(&Rule::QueueSetup), "SDMA ring without a base");
}

#[test]
fn overlapping_structures() {
    // The interrupt ring's base moved onto the second ring's.
    let bench = Bench::new("navi31");
    let layout = bench.probe().device.layout.clone();
    let distance = ((layout.ih_ring[1].start - layout.ih_ring[0].start) >> 8) as u32;
    let rules = altered("IH_RB_BASE", move |v| v + distance);
    assert!(rules.contains(&Rule::OverlappingStructures), "{rules:?}");
}

#[test]
fn unmapped_dma() {
    let bench = Bench::new("navi31");
    bench.control.shift_dma(1 << 36);
    let (mut runtime, _) = bench.start_sized(SOON);
    assert!(!copy(&mut runtime), "the signal cannot be reached");
    assert!(bench.rules().contains(&Rule::UnmappedDma));
}

#[test]
fn bad_access() {
    // Doorbells in two halves, as a host without 8-byte stores would ring them.
    let (bench, mut runtime) = started();
    bench.control.stores(|s| match s.data {
        [a, b, c, d, e, f, g, h] if s.window == Window::Doorbells => {
            let halves = [vec![*a, *b, *c, *d], vec![*e, *f, *g, *h]];
            let [low, high] = halves;
            Verdict::Instead(vec![(s.offset, low), (s.offset + 4, high)])
        }
        _ => Verdict::Pass,
    });
    copy(&mut runtime);
    assert!(bench.rules().contains(&Rule::BadAccess));
}

#[test]
fn other_an_invalidation_that_leaves_caches_out() {
    let (bench, mut runtime) = started();
    let req = bench.reg("GCVM_INVALIDATE_ENG17_REQ");
    bench.control.stores(move |s| match s.value() {
        Some(v) if s.is_reg(req) => Verdict::Replace((v as u32 & 0xffff).to_le_bytes().into()),
        _ => Verdict::Pass,
    });
    // Nothing acknowledges it.
    assert!(runtime.alloc(0x1000, AllocFlags::empty()).is_err());
    assert!(bench.control.clear() > 0);
    assert_eq!(bench.rules(), [Rule::Other]);
}

#[test]
fn a_gpu_in_use_is_reset_without_breaking_a_rule() {
    let (bench, runtime) = started();
    drop(runtime);
    let mut probe = bench.probe();
    let mut source = firmware(&probe);
    let report = bench.boot_with(&mut probe, &mut source, true).unwrap();
    assert_eq!((report.path, bench.rules()), (boot::Path::Reset, vec![]));
}

#[test]
fn access_during_reset() {
    let bench = Bench::new("navi31,state=amdgpu");
    let mut probe = bench.probe();
    probe.reset(&mut |_| ()).unwrap();
    assert_eq!(bench.rules(), [], "a reset that is waited for");
    let bench = Bench::new("navi31,state=amdgpu");
    let mut probe = bench.probe();
    bench.control.impatient();
    let _ = probe.reset(&mut |_| ());
    assert!(bench.rules().contains(&Rule::AccessDuringReset));
}
