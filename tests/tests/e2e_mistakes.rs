//! Mistakes put into the driver, each of which the simulated GPU must name.

use amdev_core::bus::Window;
use amdev_core::firmware::{FirmwareError, FirmwareSource, Image, ImageId, SosComponent, UcodeStart};
use amdev_core::iface::{AllocFlags, Iface as _};
use amdev_core::runtime::Sizes;
use amdev_fw::FirmwareSet;
use amdev_fw::files::Source;
use amdev_sim::Rule;
use amdev_tests::e2e::{Bench, Queues, Verdict, firmware};

const N: usize = 4096;
/// A mistake shall show quickly.
const SOON: Sizes = Sizes {
    compute_ring: 1 << 16,
    sdma_ring: 1 << 16,
    kernargs: 1 << 16,
    staging: 1 << 16,
    timeout_us: 100_000,
    ..Sizes::DEFAULT
};

/// Copies in, by SDMA and out again: what every driver does. The bytes that came out, if any did.
fn work(runtime: &mut Queues) -> Option<Vec<u8>> {
    let [a, b] = [(); 2].map(|()| runtime.alloc(N as u64, AllocFlags::empty()).unwrap());
    let mut out = vec![0; N];
    runtime.write(&a, &[0x5a; N]).ok()?;
    runtime.copy(&b, &a, N as u64).ok()?;
    runtime.read(&b, &mut out).ok()?;
    Some(out)
}

#[test]
fn a_driver_without_mistakes_breaks_no_rule() {
    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start_sized(SOON);
    assert_eq!(work(&mut runtime), Some(vec![0x5a; N]));
    runtime.release().unwrap();
    assert_eq!((bench.rules(), bench.control.clear()), (vec![], 0));
}

#[test]
fn mistake_no_hdp_flush_is_stale_hdp() {
    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start_sized(SOON);
    let flush = u64::from(bench.flush_register());
    bench.control.stores(move |s| if s.is_reg(flush) { Verdict::Drop } else { Verdict::Pass });
    work(&mut runtime);
    assert!(bench.control.clear() > 0, "the driver flushes");
    assert!(bench.rules().contains(&Rule::StaleHdp));
}

#[test]
fn mistake_no_tlb_flush_is_stale_tlb() {
    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start_sized(SOON);
    // Memory is used and given back, so that its translations are in the TLB.
    let a = runtime.alloc(N as u64, AllocFlags::empty()).unwrap();
    let host = runtime.alloc(N as u64, AllocFlags::HOST | AllocFlags::CPU_ACCESS).unwrap();
    let ticket = runtime.copy(&host, &a, N as u64).unwrap();
    runtime.wait(ticket, 100_000).unwrap();
    let reqs = ["GC", "MM"].map(|hub| bench.reg(&format!("{hub}VM_INVALIDATE_ENG17_REQ")));
    bench
        .control
        .stores(move |s| if reqs.iter().any(|r| s.is_reg(*r)) { Verdict::Drop } else { Verdict::Pass });
    let (va, va_host) = (a.va, host.va);
    runtime.free(host).unwrap();
    runtime.free(a).unwrap();
    // The same addresses, other memory.
    let mut again = Vec::new();
    for _ in 0..8 {
        again.push(runtime.alloc(N as u64, AllocFlags::HOST | AllocFlags::CPU_ACCESS).unwrap());
    }
    for b in again.iter().filter(|b| b.va == va || b.va == va_host) {
        let ticket = runtime.copy(b, b, 64).unwrap();
        let _ = runtime.wait(ticket, 100_000);
    }
    assert!(bench.control.clear() > 0, "the driver invalidates");
    assert!(bench.rules().contains(&Rule::StaleTlb), "{:?}", bench.gpu.violations());
}

/// Firmware without one of its images.
struct Without {
    inner: FirmwareSet<Source>,
    sos: Option<SosComponent>,
    ip: Option<u8>,
    smu: bool,
}

impl FirmwareSource for Without {
    fn sos(&self, component: SosComponent) -> Option<Image<'_>> {
        if self.sos == Some(component) { None } else { self.inner.sos(component) }
    }
    fn smu(&self) -> Option<Image<'_>> {
        if self.smu { None } else { self.inner.smu() }
    }
    fn ip_image(&self, index: u8) -> Option<Image<'_>> {
        let shift = u8::from(self.ip.is_some_and(|left_out| index >= left_out));
        self.inner.ip_image(index + shift)
    }
    fn ucode_start(&self) -> UcodeStart {
        self.inner.ucode_start()
    }
    fn read(&mut self, id: ImageId, offset: u32, buf: &mut [u8]) -> Result<(), FirmwareError> {
        self.inner.read(id, offset, buf)
    }
}

#[test]
fn mistake_any_image_left_out_is_firmware_order() {
    let count = {
        let set = firmware(&Bench::new("navi31").probe());
        (0..64).take_while(|i| set.ip_image(*i).is_some()).count() as u8
    };
    assert!(count > 8, "{count} images");
    let mut named = 0;
    for left_out in 0..count {
        let bench = Bench::new("navi31");
        let mut probe = bench.probe();
        let inner = firmware(&probe);
        let types: Vec<u32> = inner.ip_image(left_out).unwrap().types.iter().map(|t| t.0).collect();
        let mut source = Without { inner, sos: None, ip: Some(left_out), smu: false };
        let booted = bench.boot_with(&mut probe, &mut source, false);
        let rules = bench.rules();
        // Not every image is needed for compute; what is not needed, hardware does not miss either.
        if booted.is_ok() {
            assert_eq!(rules, [], "image {types:?}");
            continue;
        }
        named += 1;
        assert!(rules.contains(&Rule::FirmwareOrder), "without {types:?}: {rules:?}, {booted:?}");
    }
    assert!(named >= 8, "{named} of {count} images are missed");
}

#[test]
fn mistake_a_component_of_the_secure_os_left_out_is_firmware_order() {
    for component in [SosComponent::Kdb, SosComponent::SysDrv] {
        let bench = Bench::new("navi31");
        let mut probe = bench.probe();
        let mut source = Without { inner: firmware(&probe), sos: Some(component), ip: None, smu: false };
        // The driver says itself which component is missing where another is loaded from it.
        let booted = bench.boot_with(&mut probe, &mut source, false);
        let rules = bench.rules();
        assert!(
            rules.contains(&Rule::FirmwareOrder) || booted.is_err() && rules.is_empty(),
            "{component:?}: {rules:?} {booted:?}"
        );
        assert!(!rules.is_empty() || component == SosComponent::Kdb, "{component:?}: {booted:?}");
    }
}

#[test]
fn mistake_doorbell_range_not_set_is_named() {
    // The MEC's own range: already the queue's set-up shows it.
    let bench = Bench::new("navi31");
    let (mut runtime, _) = {
        let regs = ["LOWER", "UPPER"].map(|r| bench.reg(&format!("CP_MEC_DOORBELL_RANGE_{r}")));
        bench
            .control
            .stores(move |s| if regs.iter().any(|r| s.is_reg(*r)) { Verdict::Drop } else { Verdict::Pass });
        bench.start_sized(SOON)
    };
    work(&mut runtime);
    assert!(bench.control.clear() > 0, "the driver sets the range");
    assert!(bench.rules().contains(&Rule::QueueSetup));

    // The entry that routes doorbells to SDMA: the doorbell shows it.
    let bench = Bench::new("navi31");
    let reg = bench.reg("S2A_DOORBELL_ENTRY_2_CTRL");
    bench.control.stores(move |s| if s.is_reg(reg) { Verdict::Drop } else { Verdict::Pass });
    let (mut runtime, _) = bench.start_sized(SOON);
    work(&mut runtime);
    assert!(bench.control.clear() > 0, "the driver sets the entry");
    assert!(bench.rules().contains(&Rule::DoorbellBeforeActivation));

    // The aperture as a whole.
    let bench = Bench::new("navi31");
    let reg = bench.reg("RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN");
    bench.control.stores(move |s| if s.is_reg(reg) { Verdict::Drop } else { Verdict::Pass });
    let (mut runtime, _) = bench.start_sized(SOON);
    work(&mut runtime);
    assert!(bench.rules().contains(&Rule::DoorbellBeforeActivation));
}

#[test]
fn mistake_a_fence_not_awaited_is_named_for_host_memory_and_for_vram() {
    for flags in [AllocFlags::HOST | AllocFlags::CPU_ACCESS, AllocFlags::CPU_ACCESS] {
        let bench = Bench::new("navi31");
        let (mut runtime, _) = bench.start_sized(SOON);
        let len = 1u64 << 20;
        let src = runtime.alloc(len, AllocFlags::empty()).unwrap();
        let dst = runtime.alloc(len, flags).unwrap();
        let mut out = vec![0; 64];
        // Awaited: nothing.
        let ticket = runtime.copy(&dst, &src, len).unwrap();
        runtime.wait(ticket, 100_000).unwrap();
        runtime.iface().read(&dst, len - 64, &mut out).unwrap();
        assert_eq!(bench.rules(), []);
        // Looked at while the copy has still to get there.
        let ticket = runtime.copy(&dst, &src, len).unwrap();
        runtime.iface().read(&dst, len - 64, &mut out).unwrap();
        runtime.wait(ticket, 100_000).unwrap();
        assert_eq!(bench.rules(), [Rule::FenceNotAwaited], "{flags:?}");
    }
}

#[test]
fn mistake_an_answer_of_the_psp_read_before_its_fence_is_named() {
    let bench = Bench::new("navi31");
    let mut probe = bench.probe();
    let mut source = firmware(&probe);
    // The driver polls the fence; these polls see the value at once.
    let fence = probe.device.layout.psp_fence.start;
    let wptr = bench.reg("MP0_SMN_C2PMSG_67");
    let next = std::rc::Rc::new(std::cell::Cell::new(0u32));
    let seen = next.clone();
    bench.control.stores(move |s| {
        if s.is_reg(wptr) {
            seen.set((s.value().unwrap_or(0) as u32 + 0x4000 - 16) % 0x4000 + 1);
        }
        Verdict::Pass
    });
    bench.control.bulk_loads(move |window, offset, data| {
        if window == Window::Vram && offset == fence && data.len() == 4 {
            data.copy_from_slice(&next.get().to_le_bytes());
        }
    });
    let _ = bench.boot_with(&mut probe, &mut source, false);
    bench.control.clear();
    assert!(bench.rules().contains(&Rule::FenceNotAwaited), "{:?}", bench.gpu.violations());
}

#[test]
fn memory_written_again_while_a_copy_from_it_is_pending_is_memory_in_use() {
    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start_sized(SOON);
    let len = 1u64 << 20;
    let src = runtime.alloc(len, AllocFlags::HOST | AllocFlags::CPU_ACCESS).unwrap();
    let dst = runtime.alloc(len, AllocFlags::empty()).unwrap();
    runtime.iface().write(&src, 0, &[1; 64]).unwrap();
    let ticket = runtime.copy(&dst, &src, len).unwrap();
    runtime.wait(ticket, 100_000).unwrap();
    assert_eq!(bench.rules(), []);
    let ticket = runtime.copy(&dst, &src, len).unwrap();
    runtime.iface().write(&src, len - 64, &[2; 64]).unwrap();
    runtime.wait(ticket, 100_000).unwrap();
    assert_eq!(bench.rules(), [Rule::MemoryInUse]);
}

#[test]
fn memory_freed_under_a_pending_copy_is_memory_in_use() {
    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start_sized(SOON);
    let len = 32u64 << 20;
    let src = runtime.alloc(len, AllocFlags::empty()).unwrap();
    let dst = runtime.alloc(len, AllocFlags::empty()).unwrap();
    runtime.copy(&dst, &src, len).unwrap();
    // The runtime refuses; the interface below does not know of the copy.
    assert!(runtime.free(dst).is_err());
    runtime.iface().free(dst).unwrap();
    let _ = runtime.synchronize();
    assert!(bench.rules().contains(&Rule::MemoryInUse), "VRAM");

    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start_sized(SOON);
    let host = runtime.alloc(len, AllocFlags::HOST | AllocFlags::CPU_ACCESS).unwrap();
    let dst = runtime.alloc(len, AllocFlags::empty()).unwrap();
    let first = runtime.copy(&dst, &host, 0x1000).unwrap();
    runtime.wait(first, 100_000).unwrap();
    runtime.copy(&dst, &host, len).unwrap();
    runtime.iface().free(host).unwrap();
    let _ = runtime.synchronize();
    assert!(bench.rules().contains(&Rule::MemoryInUse), "DMA memory");
}
