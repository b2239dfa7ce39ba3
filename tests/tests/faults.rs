//! Interrupts and memory faults of every simulated GPU, as the driver reports them.

use amdev_core::fault::Fault;
use amdev_core::hang::Cause;
use amdev_core::iface::{AllocFlags, Buffer, Iface as _};
use amdev_core::ip::{Hub, smu};
use amdev_core::queue::QueueError;
use amdev_core::reg::smu::Message;
use amdev_tests::e2e::Bench;
use amdev_tests::gpus::GPUS;

#[test]
fn faults_on_both_hubs_of_every_gpu_name_hub_vmid_client_address_and_access() {
    for gpu in GPUS {
        let bench = Bench::new(gpu);
        let (mut runtime, _) = bench.start();
        let a = runtime.alloc(0x2000, AllocFlags::empty()).unwrap();
        let nowhere = Buffer { va: a.va + (300 << 30), ..a };
        for (to, from, write) in [(nowhere, a, true), (a, nowhere, false)] {
            let ticket = runtime.copy(&to, &from, 0x1000).unwrap();
            let error = runtime.wait(ticket, 30_000_000).unwrap_err();
            let QueueError::Hang(hang) = error else { panic!("{gpu}: {error:?}") };
            let Cause::Fault(Fault::Memory(f)) = hang.cause else { panic!("{gpu}: {hang}") };
            let seen = (f.hub, f.address, f.vmid, f.client_name, f.write, f.atomic);
            assert_eq!(seen, (Hub::Gc, nowhere.va, 0, "SDMA0", write, false), "{gpu}");
        }
        // MMHUB: the SMU is told to put its tables where nothing is.
        let gpu_ = runtime.iface();
        let bogus = 0x30_0000_0000u64;
        let metrics = gpu_.device().run(async |cx| {
            smu::send(cx, Message::SetDriverDramAddrHigh, (bogus >> 32) as u32).await?;
            smu::send(cx, Message::SetDriverDramAddrLow, bogus as u32).await?;
            smu::read_metrics(cx).await
        });
        assert!(metrics.is_err(), "{gpu}: {metrics:?}");
        let fault = gpu_.take_error().unwrap();
        let Some(Fault::Memory(f)) = fault else { panic!("{gpu}: {fault:?}") };
        assert_eq!((f.hub, f.address, f.vmid, f.write), (Hub::Mm, bogus, 0, true), "{gpu}");
        assert!(f.to_string().starts_with("MM hub: write of 0x3000000000 by "), "{gpu}: {f}");
        assert_eq!(gpu_.take_error().unwrap(), None, "{gpu}: told once");
        assert_eq!(bench.rules(), [], "{gpu}");
    }
}

#[test]
fn a_full_interrupt_ring_is_told_loses_no_work_and_later_errors_are_still_reported() {
    let bench = Bench::new("navi31");
    let (mut runtime, _) = bench.start();
    let a = runtime.alloc(0x1000, AllocFlags::empty()).unwrap();
    let b = runtime.alloc(0x1000, AllocFlags::empty()).unwrap();
    runtime.write(&a, &[0x5a; 0x1000]).unwrap();
    runtime.synchronize().unwrap();
    assert_eq!(runtime.iface().interrupt_overflows(), 0);
    // Each copy ends with an interrupt; nobody serves them meanwhile.
    let entries = amdev_core::layout::IH_RING_LEN / amdev_core::ip::ih::ENTRY_LEN as u64;
    let mut last = None;
    for _ in 0..entries + 100 {
        last = Some(runtime.copy(&b, &a, 64).unwrap());
    }
    // All of them end before anybody looks.
    bench.gpu.advance_us(1_000_000);
    runtime.wait(last.unwrap(), 30_000_000).unwrap();
    let mut back = [0; 64];
    runtime.read(&b, &mut back).unwrap();
    assert_eq!(back, [0x5a; 64]);
    assert_eq!(runtime.iface().take_error().unwrap(), None, "serves what is in the ring");
    assert_eq!(runtime.iface().interrupt_overflows(), 1, "an overflow is counted once");
    for _ in 0..200 {
        let ticket = runtime.copy(&b, &a, 64).unwrap();
        runtime.wait(ticket, 30_000_000).unwrap();
    }
    assert_eq!(runtime.iface().interrupt_overflows(), 1, "the ring works again");
    let nowhere = Buffer { va: a.va + (300 << 30), ..a };
    let ticket = runtime.copy(&nowhere, &a, 64).unwrap();
    assert!(matches!(runtime.wait(ticket, 30_000_000), Err(QueueError::Hang(_))));
    let ticket = runtime.copy(&b, &a, 64).unwrap();
    runtime.wait(ticket, 30_000_000).unwrap();
    assert_eq!(bench.rules(), []);
}
