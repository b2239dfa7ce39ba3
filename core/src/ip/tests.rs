//! Tests of the machines on a scripted device.

extern crate std;

use super::scripted::{TestBus, device};
use super::*;
use crate::error::Error;
use crate::layout::{Booting, IH_RING_LEN, Ready};
use crate::queue::mqd::{ComputeQueue, Mqd};
use crate::reg::{RegError, f, r, ra};
use core::pin::pin;
use std::string::ToString;
use std::vec::Vec;

mod psp_commands;

type TestCx<'a> = Cx<'a, TestBus>;

fn ready(device: &Device<TestBus>) -> Ready {
    Booting::new(&device.layout).finish()
}

async fn wait_for_35(cx: &mut TestCx<'_>) -> Result<u32, Error> {
    cx.enter(Stage::Psp).await;
    cx.wait_reg(r::PSP_C2PMSG_35, 0x8000_0000, Until::Equal(0x8000_0000), 1000).await
}

#[test]
fn a_missed_deadline_names_stage_register_mask_expected_and_last_value() {
    let mut d = device();
    d.put(r::PSP_C2PMSG_35, 0x1234);
    let error = d.run(wait_for_35).unwrap_err();
    assert_eq!(
        error.to_string(),
        "stage psp: PSP_C2PMSG_35 (mask 0x80000000) did not become 0x80000000 within 1000 us; \
         it was 0x1234 at last"
    );
}

#[test]
fn a_wait_looks_at_once_then_every_interval_and_last_at_its_deadline() {
    let mut d = device();
    let times = std::rc::Rc::new(core::cell::RefCell::new(Vec::new()));
    let seen = times.clone();
    d.on_read(r::PSP_C2PMSG_35, move |state, _| seen.borrow_mut().push(state.now));
    let result = d.run(async |cx: &mut TestCx<'_>| {
        let target = Target::Reg(r::PSP_C2PMSG_35);
        let until = Until::Differs(0);
        let stage = Stage::Psp;
        cx.wait(Wait { target, mask: u32::MAX, until, timeout_us: 250, interval_us: 100, stage }).await
    });
    assert!(matches!(result, Err(Error::Timeout(_))));
    assert_eq!(*times.borrow(), [0, 100, 200, 250]);
}

#[test]
fn a_value_that_comes_in_time_ends_the_wait() {
    let mut d = device();
    let addr = d.regs.addr(r::PSP_C2PMSG_35).unwrap();
    d.on_read(r::PSP_C2PMSG_35, move |state, _| {
        if state.now >= 500 {
            state.regs.insert(addr, 0x8000_0001);
        }
    });
    assert_eq!(d.run(wait_for_35), Ok(0x8000_0001));
    // The time between two looks grows to a quarter of the time waited.
    assert!((500..=625).contains(&d.bus.clock.0.get()), "{}", d.bus.clock.0.get());
    assert!(d.bus.state.reads.len() < 20, "{}", d.bus.state.reads.len());
}

#[test]
fn all_ones_satisfy_no_wait_and_are_reported_as_a_device_that_does_not_respond() {
    let mut d = device();
    d.put(r::PSP_C2PMSG_35, u32::MAX);
    assert_eq!(d.run(wait_for_35), Err(Error::NotResponding { stage: Stage::Psp }));
}

#[test]
fn a_delay_takes_its_time_and_no_register_access() {
    let mut d = device();
    let before = d.counters();
    d.run(async |cx: &mut TestCx<'_>| cx.delay(20_000).await).unwrap();
    assert_eq!((d.bus.clock.0.get(), d.counters()), (20_000, before));
}

#[test]
fn two_machines_on_one_thread_wait_at_the_same_time() {
    let (mut a, mut b) = (device(), device());
    let (slot_a, slot_b) = (Slot::new(), Slot::new());
    let mut stages = Vec::new();
    {
        let (mut cx_a, mut cx_b) = (Cx::new(&mut a, &slot_a), Cx::new(&mut b, &slot_b));
        let fut_a = pin!(async {
            cx_a.enter(Stage::Gfx).await;
            cx_a.delay(700).await?;
            cx_a.enter(Stage::Sdma).await;
            cx_a.delay(700).await
        });
        let fut_b = pin!(async {
            cx_b.enter(Stage::Gfx).await;
            cx_b.delay(1000).await?;
            cx_b.enter(Stage::Sdma).await;
            wait_for_35(&mut cx_b).await.map(|_| ())
        });
        let mut tasks = [Task::new(fut_a, &slot_a), Task::new(fut_b, &slot_b)];
        drive(&mut tasks, &mut |task, event| stages.push((task, event.stage)));
        assert_eq!(tasks[0].result(), Some(Ok(())));
        assert!(
            matches!(tasks[1].result(), Some(Err(Error::Timeout(_)))),
            "one failure does not end the other"
        );
    }
    use Stage::{Gfx, Psp, Sdma};
    let expected = [(0, Gfx), (1, Gfx), (0, Sdma), (1, Sdma), (1, Psp)];
    assert_eq!(stages, expected.map(|(task, stage)| (task, Some(stage))));
    assert_eq!((a.bus.clock.0.get(), b.bus.clock.0.get()), (1400, 2000));
}

#[test]
fn a_machine_that_waits_for_something_else_is_an_error_and_no_hang() {
    let mut d = device();
    let result: Result<(), Error> = d.run(async |_: &mut TestCx<'_>| core::future::pending().await);
    assert_eq!(result, Err(Error::NoWaitRecord));
}

#[test]
fn stages_are_reported_with_times_and_costs() {
    let mut d = device();
    d.run(async |cx: &mut TestCx<'_>| {
        cx.enter(Stage::Smu).await;
        cx.write(r::MP1_SMN_C2PMSG_90, 0)?;
        cx.read(r::MP1_SMN_C2PMSG_90)?;
        cx.delay(30).await?;
        cx.enter(Stage::Gfx).await;
        cx.vram_zero(0, 4096)
    })
    .unwrap();
    let [smu, gfx] = d.stages() else { panic!("{:?}", d.stages()) };
    assert_eq!((smu.stage, smu.took_us), (Stage::Smu, 30));
    assert_eq!((smu.cost.register_reads, smu.cost.register_writes), (1, 1));
    assert_eq!((gfx.stage, gfx.cost.vram_bytes_written), (Stage::Gfx, 4096));
}

#[test]
fn the_first_register_beyond_bar5_is_reached_by_index_and_data() {
    let mut d = device();
    let index = d.regs.addr(r::BIF_BX_PF0_RSMU_INDEX).unwrap();
    let data = d.regs.addr(r::BIF_BX_PF0_RSMU_DATA).unwrap();
    d.write_at(0x3_ffff, 7).unwrap();
    d.write_at(0x4_0000, 8).unwrap();
    assert_eq!(d.bus.state.writes, [(0x3_ffff, 7), (index, 0x10_0000), (data, 8)]);
    d.read_at(0x4_0001).unwrap();
    assert_eq!(d.bus.state.writes.last(), Some(&(index, 0x10_0004)));
    assert_eq!(d.bus.state.reads.last(), Some(&data));
    assert!(matches!(d.write_at(0x4000_0000, 0), Err(Error::BadValue { .. })));
}

#[test]
fn a_value_too_wide_for_its_field_is_an_error_and_nothing_is_written() {
    let mut d = device();
    let error = gfx::select(&mut d, gfx::Bank { queue: 8, ..Default::default() }).unwrap_err();
    assert!(matches!(error, Error::Reg(RegError::TooWide { value: 8, width: 3, .. })), "{error}");
    assert!(d.bus.state.writes.is_empty());
}

#[test]
fn an_hdp_flush_before_a_doorbell_is_read_back_so_that_it_has_arrived() {
    let mut d = device();
    let size = d.regs.addr(r::RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE).unwrap();
    d.flush_hdp_through().unwrap();
    assert_eq!(d.bus.state.reads.last(), Some(&size));
    d.put(r::RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE, u32::MAX);
    assert_eq!(d.flush_hdp_through(), Err(Error::NotResponding { stage: Stage::Queue }));
}

#[test]
fn the_address_of_the_hdp_flush_is_not_kept_of_a_device_that_does_not_answer() {
    let mut d = device();
    d.put(r::BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL, u32::MAX);
    assert_eq!(d.flush_hdp(), Err(Error::NotResponding { stage: Stage::Queue }));
    assert!(d.bus.state.writes.is_empty());
    d.put(r::BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL, 0x385c);
    d.flush_hdp().unwrap();
    assert_eq!(d.bus.state.writes, [(0x385c / 4, 0)]);
}

#[test]
fn a_dead_smu_is_found_out_within_100_ms_and_is_no_error() {
    let mut d = device();
    assert_eq!(d.run(smu::is_alive), Ok(false));
    assert_eq!(d.bus.clock.0.get(), 100_000);
}

#[test]
fn an_smu_answer_other_than_1_is_an_error() {
    let mut d = device();
    let response = d.regs.addr(r::MP1_SMN_C2PMSG_90).unwrap();
    d.on_write(r::MP1_SMN_C2PMSG_66, move |state, _| {
        state.regs.insert(response, 0xfe);
    });
    let result =
        d.run(async |cx: &mut TestCx<'_>| smu::send(cx, crate::reg::smu::Message::SetSoftMinByFreq, 5).await);
    assert_eq!(result, Err(Error::Smu { message: 0x19, argument: 5, response: 0xfe }));
}

#[test]
fn a_reset_lets_the_host_save_and_restore_and_forgets_what_was_known() {
    let mut d = device();
    let response = d.regs.addr(r::MP1_SMN_C2PMSG_90).unwrap();
    let remap = d.regs.addr(r::BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL).unwrap();
    d.put(r::BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL, 0x7_f000);
    d.flush_hdp().unwrap();
    d.on_write(r::MP1_SMN_C2PMSG_66, move |state, _| {
        state.regs.insert(response, 1);
        state.regs.insert(remap, 0x385c);
    });
    d.run(smu::mode1_reset).unwrap();
    assert_eq!(d.bus.state.resets, ["before", "after"]);
    assert_eq!(d.bus.clock.0.get(), 500_000);
    d.flush_hdp().unwrap();
    let flushes: Vec<u32> = d.bus.state.writes.iter().map(|w| w.0).collect();
    assert_eq!((flushes.first(), flushes.last()), (Some(&0x1_fc00), Some(&0xe17)));
}

#[test]
fn a_device_that_does_not_come_back_from_its_reset_is_reported() {
    let mut d = device();
    let response = d.regs.addr(r::MP1_SMN_C2PMSG_90).unwrap();
    let size = d.regs.addr(r::RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE).unwrap();
    d.on_write(r::MP1_SMN_C2PMSG_66, move |state, _| {
        state.regs.insert(response, 1);
        state.regs.insert(size, u32::MAX);
    });
    assert_eq!(d.run(smu::mode1_reset), Err(Error::NotResponding { stage: Stage::Reset }));
}

#[test]
fn an_autoload_that_never_ends_is_a_timeout_that_names_the_register() {
    let mut d = device();
    let error = d.run(async |cx: &mut TestCx<'_>| gfx::init(cx, Default::default()).await).unwrap_err();
    assert!(error.to_string().contains("RLC_RLCS_BOOTLOAD_STATUS (mask 0x80000000)"), "{error}");
}

#[test]
fn an_autoload_that_ends_with_a_busy_command_processor_is_a_timeout_too() {
    let mut d = device();
    d.put(r::RLC_RLCS_BOOTLOAD_STATUS, 0x8000_003f);
    d.put(r::CP_STAT, 0x8000_0000);
    let error = d.run(async |cx: &mut Cx<'_, TestBus>| gfx::init(cx, Default::default()).await).unwrap_err();
    assert!(error.to_string().contains("CP_STAT"), "{error}");
}

#[test]
fn interrupts_are_handed_over_in_order_and_their_room_is_given_back() {
    let mut d = device();
    let (ring, pointer) = (d.layout.ih_ring[0].start, d.layout.ih_wptr[0].start);
    let entry = |source| ih::Entry {
        client: 0x14,
        source,
        ring: 0,
        vmid: 0,
        vmid_mm: false,
        timestamp: 0,
        pasid: 0,
        node: 0,
        data: [0; 4],
    };
    // The ring wraps between the two.
    let last = IH_RING_LEN - 32;
    d.bus.state.write_vram(ring + last, &entry(1).emit());
    d.bus.state.write_vram(ring, &entry(2).emit());
    d.bus.state.write_vram(pointer, &0x20u64.to_le_bytes());
    d.put(r::IH_RB_RPTR, last as u32);
    d.put(r::IH_RB_WPTR, 0x20);
    let mut sources = Vec::new();
    assert_eq!(ih::service(&mut d, &mut |e| sources.push(e.source)), Ok(false));
    assert_eq!(sources, [1, 2]);
    assert_eq!(d.written(r::IH_RB_RPTR), [0x20]);
    assert!(d.written(r::IH_RB_CNTL).is_empty());
}

#[test]
fn an_ih_overflow_is_reported_reading_goes_on_behind_the_write_pointer_and_the_clear_bit_is_pulsed() {
    let mut d = device();
    let (ring, pointer) = (d.layout.ih_ring[0].start, d.layout.ih_wptr[0].start);
    d.bus.state.write_vram(ring + 0x40, &[0x14, 77]);
    d.bus.state.write_vram(pointer, &0x21u64.to_le_bytes());
    d.put(r::IH_RB_WPTR, 0x21);
    let mut first = None;
    let lost = ih::service(&mut d, &mut |e| {
        first.get_or_insert(e.source);
    });
    assert_eq!((lost, first), (Ok(true), Some(77)));
    assert_eq!(d.written(r::IH_RB_CNTL), [0x8000_0000, 0]);
    assert_eq!(d.written(r::IH_RB_RPTR), [0x20]);
    assert!(d.written(r::IH_RB_WPTR).is_empty());
}

fn compute(d: &Device<TestBus>) -> Mqd {
    let q = ComputeQueue {
        mqd: 0x2000_0000_0000,
        ring: 0x2000_0040_0000,
        len: 0x2000,
        rptr: 0x2000_1000_0000,
        wptr: 0x2000_1000_0010,
        eop: 0x2000_1000_2000,
        eop_len: 0x1000,
        doorbell: 3,
    };
    Mqd::compute(&d.regs, &q).unwrap()
}

#[test]
fn fini_awaits_every_queue_in_use() {
    let mut d = device();
    let ready = ready(&d);
    let mqd = compute(&d);
    for (pipe, queue) in [(0, 0), (2, 3)] {
        gfx::activate(&mut d, ready, pipe, queue, &mqd, 0x200_0000).unwrap();
    }
    // A queue goes idle some time after the request.
    let active = d.regs.addr(r::CP_HQD_ACTIVE).unwrap();
    let mut asked = 0;
    d.on_read(r::CP_HQD_ACTIVE, move |state, _| {
        asked += 1;
        state.regs.insert(active, u32::from(asked % 3 != 0));
    });
    d.run(gfx::fini).unwrap();
    assert_eq!(d.written(r::CP_HQD_DEQUEUE_REQUEST).iter().filter(|v| **v == 2).count(), 2);
    let reads = d.bus.state.reads.iter().filter(|a| **a == active).count();
    assert_eq!((reads, d.queues), (6, QueuesInUse::default()));
}

#[test]
fn a_queue_that_stays_active_is_a_timeout_and_the_bank_is_put_back() {
    let mut d = device();
    d.on_write(r::CP_HQD_DEQUEUE_REQUEST, |_, _| ());
    d.put(r::CP_HQD_ACTIVE, 1);
    let error = d.run(gfx::fini).unwrap_err();
    assert!(error.to_string().contains("CP_HQD_ACTIVE"), "{error}");
    assert_eq!(d.written(r::GRBM_GFX_CNTL).last(), Some(&0));
}

#[test]
fn a_compute_queue_cannot_be_set_up_twice_or_where_the_mec_has_none() {
    let mut d = device();
    let ready = ready(&d);
    let mqd = compute(&d);
    gfx::activate(&mut d, ready, 1, 2, &mqd, 0x200_0000).unwrap();
    let again = gfx::activate(&mut d, ready, 1, 2, &mqd, 0x200_0000);
    assert!(matches!(again, Err(Error::State(_))));
    for (pipe, queue) in [(4, 0), (0, 4)] {
        let none = gfx::activate(&mut d, ready, pipe, queue, &mqd, 0x200_0000);
        assert!(matches!(none, Err(Error::BadValue { .. })));
    }
}

#[test]
fn an_sdma_ring_with_a_length_that_is_no_power_of_two_is_refused_before_any_write() {
    let mut d = device();
    let ready = ready(&d);
    let q = sdma::SdmaQueue { ring: 0x2000_0000_0000, len: 0x300, rptr: 0, wptr: 0, doorbell: 0x100 };
    for q in [q, sdma::SdmaQueue { len: 0x400, ring: 0x80, ..q }] {
        assert!(matches!(sdma::activate(&mut d, ready, 0, 0, &q), Err(Error::BadValue { .. })));
    }
    assert!(d.bus.state.writes.is_empty());
}

#[test]
fn an_sdma_engine_that_stays_busy_is_a_timeout() {
    let mut d = device();
    let cntl = ra::SDMA_QUEUE_RB_CNTL[1][2];
    let on = d.regs.encode(cntl, &[(f::sdma_queue_rb_cntl::RB_ENABLE, 1)]).unwrap();
    d.put(cntl, on);
    d.queues.sdma = [0, 1 << 2];
    let error = d.run(sdma::fini).unwrap_err();
    assert!(error.to_string().contains("SDMA1_QUEUE2_CONTEXT_STATUS (mask 0x4)"), "{error}");
}

#[test]
fn a_hub_that_is_off_is_not_asked_to_invalidate() {
    let mut d = device();
    d.run(async |cx: &mut TestCx<'_>| gmc::flush_tlb(cx, Hub::Mm, 0).await).unwrap();
    assert_eq!(d.bus.state.writes, [(0xe17, 0)]);
    d.put(ra::hub::VM_CONTEXT_CNTL.mm[0], 1);
    gmc::attach(&mut d).unwrap();
    let error = d.run(async |cx: &mut TestCx<'_>| gmc::flush_tlb(cx, Hub::Mm, 0).await).unwrap_err();
    assert!(error.to_string().starts_with("stage tlb flush: MMVM_INVALIDATE_ENG17_SEM"), "{error}");
}

#[test]
fn a_fault_latched_by_gfxhub_is_decoded() {
    let mut d = device();
    d.put(r::GCVM_L2_PROTECTION_FAULT_STATUS, 1 << 20 | 1 << 18 | 8 << 9 | 4 << 4);
    d.put(r::GCVM_L2_PROTECTION_FAULT_ADDR_LO32, 0x123);
    d.put(r::GCVM_L2_PROTECTION_FAULT_ADDR_HI32, 2);
    let fault = gmc::take_fault(&mut d, Hub::Gc).unwrap().unwrap();
    assert_eq!(
        fault.to_string(),
        "GC hub: write of 0x200000123000 by TCP (client 0x8), VMID 1, refused: not writable, walker error 0"
    );
    assert_eq!(gmc::take_fault(&mut d, Hub::Mm), Ok(None));
}
