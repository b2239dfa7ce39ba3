//! Kernels and copies that do not end: each reported as what it is, within its time, and the next
//! kernel runs in the same memory.

use amdev_core::boot::Rung;
use amdev_core::fault::{EngineFault, Fault, Permission, WaveError};
use amdev_core::hang::{Cause, HangError, Recovery};
use amdev_core::iface::{AllocFlags, Buffer, Iface as _, IfaceError, QueueKind};
use amdev_core::ip::Hub;
use amdev_core::program::{CodeObject, HiddenValues};
use amdev_core::queue::QueueError;
use amdev_core::queue::dispatch::Launch;
use amdev_core::runtime::{Sizes, Ticket, Work};
use amdev_sim::Rule;
use amdev_tests::e2e::{Bench, Queues, Verdict};

const GPUS: [&str; 2] = ["navi31", "navi48"];
/// Seconds that a kernel may take here, so that the simulated one does not loop for long.
const TIMEOUT_US: u64 = 4_000_000;
const N: usize = 512;
/// `s_branch -1`: to itself.
const LOOP: u32 = 0xbfa0_ffff;
/// No instruction of gfx11 or gfx12.
const ILLEGAL: u32 = 0xffff_ffff;

fn sizes() -> Sizes {
    Sizes { timeout_us: TIMEOUT_US, ..Sizes::default() }
}

fn floats(f: fn(usize) -> f32) -> Vec<u8> {
    (0..N).flat_map(|i| f(i).to_le_bytes()).collect()
}

/// A vector addition and its memory.
struct Add {
    file: Vec<u8>,
    buffers: [Buffer; 3],
}

impl Add {
    fn new(runtime: &mut Queues) -> Add {
        let target = runtime.iface().properties().target;
        let file = amdev_tests::corpus(&format!("co/vecadd.{target}.v5.O2.co")).unwrap();
        let buffers = [(); 3].map(|()| runtime.alloc(4 * N as u64, AllocFlags::empty()).unwrap());
        runtime.write(&buffers[1], &floats(|i| i as f32)).unwrap();
        runtime.write(&buffers[2], &floats(|i| 0.5 * i as f32)).unwrap();
        Add { file, buffers }
    }

    /// The same kernel with another first instruction.
    fn starting_with(&self, instruction: u32) -> Vec<u8> {
        let object = CodeObject::parse(&self.file).unwrap();
        let kernel = object.only_kernel().unwrap();
        let mut code = [0; 64];
        object.read_image(kernel.entry, &mut code);
        let at: Vec<usize> =
            (0..self.file.len() - 64).filter(|at| self.file[*at..*at + 64] == code).collect();
        assert_eq!(at.len(), 1, "the kernel's code stands once in its file");
        let mut patched = self.file.clone();
        patched[at[0]..at[0] + 4].copy_from_slice(&instruction.to_le_bytes());
        patched
    }

    fn launch(&self, runtime: &mut Queues, file: &[u8], vas: [u64; 3]) -> Ticket {
        let object = CodeObject::parse(file).unwrap();
        let kernel = object.only_kernel().unwrap();
        let program = runtime.load(&object).unwrap();
        let launch = Launch { grid: [2, 1, 1], block: [256, 1, 1] };
        let vas = vas.map(u64::to_le_bytes);
        let args: Vec<&[u8]> = vas.iter().map(|v| v.as_slice()).collect();
        let mut kernargs = vec![0; kernel.descriptor.kernarg_size as usize];
        kernel.fill_args(&args, &mut kernargs).unwrap();
        kernel.fill_hidden(&launch, &HiddenValues::default(), &mut kernargs).unwrap();
        let work = Work { program: &program, kernel: &kernel, launch, kernargs: &kernargs, dynamic_lds: 0 };
        runtime.launch(&work, None).unwrap()
    }

    fn vas(&self) -> [u64; 3] {
        self.buffers.map(|b| b.va)
    }

    /// The right kernel on the inputs that were written before anything went wrong.
    fn works(&self, runtime: &mut Queues) {
        let out = runtime.alloc(4 * N as u64, AllocFlags::empty()).unwrap();
        let [_, a, b] = self.vas();
        let ticket = self.launch(runtime, &self.file, [out.va, a, b]);
        runtime.wait(ticket, TIMEOUT_US).unwrap();
        let mut sum = vec![0; 4 * N];
        runtime.read(&out, &mut sum).unwrap();
        assert!(sum == floats(|i| 1.5 * i as f32), "the sum is right, from memory written before the hang");
        runtime.free(out).unwrap();
    }
}

/// Waits for something that must hang; asserts when that was noticed.
fn hangs(runtime: &mut Queues, ticket: Ticket, within_us: std::ops::Range<u64>) -> HangError {
    let start = runtime.iface().now_us();
    let error = runtime.wait(ticket, TIMEOUT_US).unwrap_err();
    let QueueError::Hang(hang) = error else { panic!("{error:?}") };
    let took = runtime.iface().now_us() - start;
    assert!(within_us.contains(&hang.after_us), "{hang}");
    assert!(took < hang.after_us + 200_000, "recovery took {} us", took - hang.after_us);
    assert_eq!(runtime.wait(ticket, TIMEOUT_US), Err(QueueError::Hang(hang)), "its ticket stays lost");
    hang
}

const AT_2_S: std::ops::Range<u64> = 2_000_000..2_100_000;

#[test]
fn a_kernel_that_loops_is_reported_at_the_timeout_by_name_and_the_next_one_runs() {
    for gpu in GPUS {
        let bench = Bench::new(gpu);
        let (mut runtime, _) = bench.start_sized(sizes());
        let add = Add::new(&mut runtime);
        let ticket = add.launch(&mut runtime, &add.starting_with(LOOP), add.vas());
        let hang = hangs(&mut runtime, ticket, TIMEOUT_US..TIMEOUT_US + 100_000);
        assert_eq!((hang.kind, hang.cause), (QueueKind::Compute, Cause::Busy), "{gpu}");
        assert_eq!(hang.recovery, Recovery::Restarted(Rung::Queue), "{gpu}");
        let details = runtime.hang().unwrap();
        assert_eq!(details.kernel.as_deref(), Some("vecadd"));
        let state = details.state.unwrap();
        assert!(state.active && state.busy && state.status != 0, "{details}");
        assert!(state.read < state.write && details.put == state.write, "{details}");
        let names: Vec<_> = details.packets.iter().map(|p| (p.name, p.passed)).collect();
        assert!(names.contains(&("DISPATCH_DIRECT", true)), "{details}");
        assert_eq!(names.iter().filter(|n| !n.1).count(), 1, "{details}");
        let text = details.to_string();
        for part in ["kernel vecadd", "CP_HQD_ACTIVE 1", "CP_STAT 0x", "write pointer", "DISPATCH_DIRECT"] {
            assert!(text.contains(part), "{text}");
        }
        add.works(&mut runtime);
        assert_eq!(bench.rules(), [], "{gpu}");
        runtime.release().unwrap();
        runtime.into_iface().fini(&mut |_| ()).unwrap();
        assert_eq!(bench.start().1, amdev_core::boot::Path::Warm, "{gpu}");
    }
}

#[test]
fn a_kernel_that_reads_unmapped_memory_is_reported_at_2_s_with_the_address() {
    for gpu in GPUS {
        let bench = Bench::new(gpu);
        let (mut runtime, _) = bench.start_sized(sizes());
        let add = Add::new(&mut runtime);
        let [out, a, _] = add.vas();
        let nowhere = a + (256 << 30);
        let ticket = add.launch(&mut runtime, &add.file.clone(), [out, a, nowhere]);
        let hang = hangs(&mut runtime, ticket, AT_2_S);
        let Cause::Fault(Fault::Memory(fault)) = hang.cause else { panic!("{gpu}: {hang}") };
        assert_eq!((fault.hub, fault.address, fault.vmid), (Hub::Gc, nowhere & !0xfff, 0), "{gpu}");
        assert_eq!((fault.client_name, fault.write, fault.atomic), ("TCP", false, false), "{gpu}");
        assert!(hang.to_string().contains(&format!("{nowhere:#x}")), "{hang}");
        add.works(&mut runtime);
        assert_eq!(bench.rules(), [], "{gpu}");
    }
}

#[test]
fn a_kernel_that_writes_a_read_only_page_is_reported_as_that() {
    for gpu in GPUS {
        let bench = Bench::new(gpu);
        let (mut runtime, _) = bench.start_sized(sizes());
        let add = Add::new(&mut runtime);
        let [_, a, b] = add.vas();
        let flags = AllocFlags::READ_ONLY | AllocFlags::CPU_ACCESS;
        let constant = runtime.alloc(0x1000, flags).unwrap();
        runtime.write(&constant, &[7; 0x1000]).unwrap();
        let ticket = add.launch(&mut runtime, &add.file.clone(), [constant.va, a, b]);
        let hang = hangs(&mut runtime, ticket, AT_2_S);
        let Cause::Fault(Fault::Memory(fault)) = hang.cause else { panic!("{gpu}: {hang}") };
        assert_eq!((fault.address, fault.write, fault.permission), (constant.va, true, Permission::WRITE));
        assert!(hang.to_string().contains("not writable"), "{hang}");
        let mut bytes = [0; 0x1000];
        runtime.read(&constant, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 0x1000], "{gpu}: nothing was written");
        add.works(&mut runtime);
        assert_eq!(bench.rules(), [], "{gpu}");
    }
}

#[test]
fn an_illegal_instruction_is_reported_as_one() {
    for gpu in GPUS {
        let bench = Bench::new(gpu);
        let (mut runtime, _) = bench.start_sized(sizes());
        let add = Add::new(&mut runtime);
        let ticket = add.launch(&mut runtime, &add.starting_with(ILLEGAL), add.vas());
        let hang = hangs(&mut runtime, ticket, AT_2_S);
        let Cause::Fault(Fault::Engine(EngineFault::Wave { error, vmid: 0, .. })) = hang.cause else {
            panic!("{gpu}: {hang}")
        };
        assert_eq!(error, WaveError::IllegalInstruction, "{gpu}");
        add.works(&mut runtime);
        assert_eq!(bench.rules(), [Rule::IllegalInstruction], "{gpu}");
    }
}

#[test]
fn a_copy_to_unmapped_memory_is_reported_with_client_and_address_and_the_next_copy_runs() {
    for gpu in GPUS {
        let bench = Bench::new(gpu);
        let (mut runtime, _) = bench.start_sized(sizes());
        let add = Add::new(&mut runtime);
        let a = add.buffers[1];
        let nowhere = Buffer { va: a.va + (256 << 30), ..a };
        let ticket = runtime.copy(&nowhere, &a, 0x100).unwrap();
        let hang = hangs(&mut runtime, ticket, AT_2_S);
        assert_eq!(hang.kind, QueueKind::Sdma, "{gpu}");
        let Cause::Fault(Fault::Memory(fault)) = hang.cause else { panic!("{gpu}: {hang}") };
        assert_eq!((fault.address, fault.write, fault.client_name), (nowhere.va, true, "SDMA0"), "{gpu}");
        let details = runtime.hang().unwrap();
        let at = details.packets.last().unwrap();
        assert_eq!((at.name, at.about, at.passed), ("COPY_LINEAR", Some(nowhere.va), false), "{details}");
        add.works(&mut runtime);
        assert_eq!(bench.rules(), [], "{gpu}");
    }
}

#[test]
fn everything_submitted_after_what_hangs_is_lost_and_named_as_that() {
    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start_sized(sizes());
    let add = Add::new(&mut runtime);
    let before = runtime.copy(&add.buffers[0], &add.buffers[1], 64).unwrap();
    runtime.wait(before, TIMEOUT_US).unwrap();
    let kernel = add.launch(&mut runtime, &add.starting_with(ILLEGAL), add.vas());
    let copy = runtime.copy(&add.buffers[0], &add.buffers[2], 4 * N as u64).unwrap();
    let hang = hangs(&mut runtime, copy, AT_2_S);
    assert_eq!(hang.kind, QueueKind::Compute, "the kernel before it is what hangs");
    assert_eq!(runtime.wait(kernel, 1000), Err(QueueError::Hang(hang)));
    assert_eq!(runtime.wait(before, 1000), Ok(()), "what had ended stays done");
    let mut out = vec![0; 64];
    runtime.read(&add.buffers[0], &mut out).unwrap();
    assert_eq!(out, floats(|i| i as f32)[..64], "the copy after the kernel was not made");
    add.works(&mut runtime);
}

#[test]
fn work_goes_on_without_any_interrupt() {
    let bench = Bench::new("navi31,fault=lost-irq");
    let (mut runtime, _) = bench.start_sized(sizes());
    let add = Add::new(&mut runtime);
    add.works(&mut runtime);
    assert_eq!(bench.gpu.counts().interrupts, 0);
    // Errors that come by interrupt are found in the ring all the same.
    let ticket = add.launch(&mut runtime, &add.starting_with(ILLEGAL), add.vas());
    let hang = hangs(&mut runtime, ticket, AT_2_S);
    assert!(matches!(hang.cause, Cause::Fault(Fault::Engine(EngineFault::Wave { .. }))), "{hang}");
    add.works(&mut runtime);
}

#[test]
fn a_lost_doorbell_leaves_the_queue_idle_with_work_pending_and_is_noticed_at_2_s() {
    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start_sized(sizes());
    let add = Add::new(&mut runtime);
    bench.control.stores(|access| match access.window {
        amdev_core::bus::Window::Doorbells => Verdict::Drop,
        _ => Verdict::Pass,
    });
    let ticket = add.launch(&mut runtime, &add.file.clone(), add.vas());
    let hang = hangs(&mut runtime, ticket, AT_2_S);
    assert_eq!((hang.kind, hang.cause), (QueueKind::Compute, Cause::Idle));
    bench.control.clear();
    add.works(&mut runtime);
    assert_eq!(bench.rules(), []);
}

#[test]
fn a_queue_that_does_not_let_go_is_freed_by_the_reset_of_its_engine_and_memory_is_kept() {
    for gpu in GPUS {
        let bench = Bench::new(&format!("{gpu},fault=hang:dequeue"));
        let (mut runtime, _) = bench.start_sized(sizes());
        let add = Add::new(&mut runtime);
        let ticket = add.launch(&mut runtime, &add.starting_with(LOOP), add.vas());
        let error = runtime.wait(ticket, TIMEOUT_US).unwrap_err();
        let QueueError::Hang(hang) = error else { panic!("{gpu}: {error:?}") };
        assert_eq!(hang.recovery, Recovery::Restarted(Rung::Mec), "{gpu}: {hang}");
        add.works(&mut runtime);
        assert_eq!(bench.rules(), [], "{gpu}");
    }
}

#[test]
fn an_engine_that_stays_busy_after_its_reset_is_told_and_a_reset_of_the_device_helps() {
    let bench = Bench::new("navi31,fault=hang:dequeue");
    let (mut runtime, _) = bench.start_sized(sizes());
    let add = Add::new(&mut runtime);
    let ticket = add.launch(&mut runtime, &add.starting_with(LOOP), add.vas());
    let busy = bench.reg("CP_STAT");
    bench.control.loads(move |_, offset, value| if offset == busy { value | 1 << 31 } else { value });
    let error = runtime.wait(ticket, TIMEOUT_US).unwrap_err();
    let QueueError::Hang(hang) = error else { panic!("{error:?}") };
    assert_eq!(hang.recovery, Recovery::Failed, "{hang}");
    assert!(hang.to_string().contains("reset the device, which loses its memory"), "{hang}");
    let start = runtime.iface().now_us();
    let next = runtime.copy(&add.buffers[0], &add.buffers[1], 16);
    assert!(matches!(next, Err(QueueError::Iface(IfaceError::Hang(_)))), "{next:?}");
    let sync = runtime.synchronize();
    assert!(matches!(sync, Err(QueueError::Iface(IfaceError::Hang(_)))), "{sync:?}");
    assert!(runtime.iface().now_us() - start < 1_000_000, "nothing is waited for again");
    bench.control.clear();
    let mut probe = runtime.into_iface().into_probe();
    probe.reset(&mut |_| ()).unwrap();
    let mut firmware = amdev_tests::e2e::firmware(&probe);
    let report = bench.boot_with(&mut probe, &mut firmware, false).unwrap();
    assert_eq!(report.path, amdev_core::boot::Path::Cold);
    let mut runtime = Queues::new(amdev_tests::e2e::into_gpu(probe, &report), sizes()).unwrap();
    let add = Add::new(&mut runtime);
    add.works(&mut runtime);
}

#[test]
fn work_that_is_cancelled_ends_at_once_and_the_next_kernel_runs() {
    for gpu in GPUS {
        for fault in ["", ",fault=hang:dequeue"] {
            let bench = Bench::new(&format!("{gpu}{fault}"));
            let (mut runtime, _) = bench.start_sized(sizes());
            let add = Add::new(&mut runtime);
            assert_eq!(runtime.cancel(100_000), Ok(false), "nothing is under way");
            // What ends in time is not lost.
            let ticket = add.launch(&mut runtime, &add.file.clone(), add.vas());
            assert_eq!(runtime.cancel(100_000), Ok(false));
            runtime.wait(ticket, 0).unwrap();
            add.launch(&mut runtime, &add.starting_with(LOOP), add.vas());
            let start = runtime.iface().now_us();
            assert_eq!(runtime.cancel(100_000), Ok(true), "{gpu}{fault}");
            let took = runtime.iface().now_us() - start;
            // A queue that does not let go is waited for before its engine is reset.
            let most = if fault.is_empty() { 200_000 } else { 2_500_000 };
            assert!((100_000..most).contains(&took), "{gpu}{fault}: {took} us");
            add.works(&mut runtime);
            assert_eq!(bench.rules(), [], "{gpu}{fault}");
        }
    }
}

#[test]
fn a_short_look_at_a_long_kernel_changes_nothing() {
    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start_sized(sizes());
    let add = Add::new(&mut runtime);
    let ticket = add.launch(&mut runtime, &add.starting_with(LOOP), add.vas());
    let look = runtime.wait(ticket, 10_000);
    assert!(matches!(look, Err(QueueError::Iface(IfaceError::Timeout { .. }))), "{look:?}");
    assert!(runtime.hang().is_none());
    let again = runtime.wait(ticket, 10_000);
    assert!(matches!(again, Err(QueueError::Iface(IfaceError::Timeout { .. }))), "{again:?}");
}

#[test]
fn a_fault_that_was_latched_before_is_not_blamed_on_a_kernel_that_is_only_slow() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start_sized(sizes());
    let add = Add::new(&mut runtime);
    add.works(&mut runtime);
    // An access of work that has ended meanwhile was refused: hardware without retries goes on.
    let (status, control) =
        (bench.reg("GCVM_L2_PROTECTION_FAULT_STATUS"), bench.reg("GCVM_L2_PROTECTION_FAULT_CNTL"));
    let latched = Arc::new(AtomicBool::new(true));
    let cleared = Arc::clone(&latched);
    bench.control.stores(move |access| {
        if access.offset == control {
            cleared.store(false, Ordering::Relaxed);
        }
        Verdict::Pass
    });
    bench.control.loads(move |_, offset, value| {
        if offset == status && latched.load(Ordering::Relaxed) { value | 0x11 } else { value }
    });
    let ticket = add.launch(&mut runtime, &add.starting_with(LOOP), add.vas());
    let hang = hangs(&mut runtime, ticket, TIMEOUT_US..TIMEOUT_US + 100_000);
    assert_eq!(hang.cause, Cause::Busy);
}
