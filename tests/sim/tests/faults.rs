//! Faults on demand and starting states, each seen by a driver that does everything right.

mod common;

use amdev_sim::{Rule, Stage};
use common::{Driver, HEAP, VA};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a boot dies of: the message of the driver's deadline.
fn dies(text: &str) -> String {
    let mut d = Driver::new(text);
    let error = catch_unwind(AssertUnwindSafe(|| d.boot())).expect_err("the boot hangs");
    error.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn each_hang_stops_a_boot_at_its_stage() {
    for (stage, shows) in [
        ("bootloader", "MP0_SMN_C2PMSG_35 is 0x0"),
        ("sos", "MP0_SMN_C2PMSG_64 is 0x0"),
        ("psp-ring", "MP0_SMN_C2PMSG_64 is 0x20000"),
        ("psp-command", "no fence for command 0x20"),
        ("smu", "MP1_SMN_C2PMSG_90 is 0x0"),
        ("autoload", "RLC_RLCS_BOOTLOAD_STATUS is 0x0"),
    ] {
        let message = dies(&format!("navi31,fault=hang:{stage}"));
        assert!(message.contains(shows), "{stage}: {message}");
    }
}

#[test]
fn hangs_after_the_boot_leave_their_request_unanswered() {
    let at = |stage: &str| {
        let mut d = Driver::new(&format!("navi31,fault=hang:{stage}"));
        d.boot();
        d
    };
    for (stage, hub) in [("tlb-mm", "MM"), ("tlb-gc", "GC")] {
        let d = at(stage);
        d.w(&format!("{hub}VM_INVALIDATE_ENG17_REQ"), 0x00f8_0001);
        d.gpu.advance_us(1_000_000);
        assert_eq!(d.r(&format!("{hub}VM_INVALIDATE_ENG17_ACK")), 0, "{stage}");
    }
    let d = at("safe-mode");
    d.w("RLC_SAFE_MODE", 3);
    d.gpu.advance_us(1_000_000);
    assert_eq!(d.r("RLC_SAFE_MODE") & 1, 1);
    for stage in ["compute", "dequeue"] {
        let d = at(stage);
        d.compute_queue(VA + 0x4000, 0x400);
        // NOP with one dword.
        d.vram(HEAP + 0x4000, &[0, 0x10, 0, 0xc0, 0, 0, 0, 0]);
        d.hdp();
        d.ring(6, 2);
        d.w("GRBM_GFX_CNTL", 4);
        d.w("CP_HQD_DEQUEUE_REQUEST", 1);
        d.gpu.advance_us(1_000_000);
        assert_eq!(d.r("CP_HQD_ACTIVE"), u32::from(stage == "dequeue"), "{stage}");
        assert_eq!(d.read(HEAP + 0x1000, 1), [2 * u8::from(stage == "dequeue")], "{stage}");
    }
    let d = at("sdma");
    d.sdma_queue(VA + 0x5000, 0x1000);
    d.ring(512, 4);
    d.gpu.advance_us(1_000_000);
    assert_eq!(d.r("SDMA0_QUEUE0_RB_RPTR"), 0);
    assert_eq!(Stage::all().len(), 12, "every stage is tested here");
}

#[test]
fn error_codes_reach_the_driver() {
    let mut d = Driver::new("navi31,fault=psp:0xffff000a");
    let error = catch_unwind(AssertUnwindSafe(|| d.boot())).unwrap_err();
    let message = error.downcast_ref::<String>().unwrap();
    assert!(message.contains(&0xffff_000au32.to_string()), "{message}");
    assert!(dies("navi31,fault=smu:0xff").contains("MP1_SMN_C2PMSG_90 is 0xff"));
    let d = Driver::new("navi31,fault=psp-bl:0x7");
    d.component(0x8_0000);
    assert_eq!(d.r("MP0_SMN_C2PMSG_35"), 0x8000_0007);
}

#[test]
fn everything_slow_is_still_right() {
    let time = |text: &str| {
        let mut d = Driver::new(text);
        d.boot();
        assert_eq!(d.gpu.violations(), [], "{text}");
        d.gpu.now_us()
    };
    let (fast, slow) = (time("navi31"), time("navi31,fault=slow:5"));
    assert!(slow > 3 * fast, "{fast} us, slow {slow} us");
}

#[test]
fn a_lost_interrupt_leaves_the_ring_entry() {
    for (text, count) in [("navi31", 1), ("navi31,fault=lost-irq", 0)] {
        let mut d = Driver::new(text);
        d.boot();
        d.sdma_queue(VA + 0x5000, 0x1000);
        d.vram(HEAP + 0x5000, &[6, 0, 0, 0, 0, 0, 0, 0]);
        d.hdp();
        d.ring(512, 8);
        d.gpu.advance_us(1000);
        assert_eq!(d.gpu.take_interrupts(), count, "{text}");
        assert_eq!(d.r("IH_RB_WPTR"), 32, "{text}");
    }
}

#[test]
fn interrupts_are_raised_again_only_when_the_read_pointer_moves() {
    let mut d = Driver::new("navi31");
    d.boot();
    d.sdma_queue(VA + 0x5000, 0x1000);
    d.vram(HEAP + 0x5000, &[6, 0, 0, 0, 0, 0, 0, 0].repeat(3));
    d.hdp();
    d.ring(512, 16);
    d.gpu.advance_us(1000);
    assert_eq!(d.gpu.take_interrupts(), 1, "two entries, one MSI");
    d.w("IH_RB_RPTR", 32);
    assert_eq!(d.gpu.take_interrupts(), 1, "one entry is left");
    d.w("IH_RB_RPTR", 64);
    assert_eq!(d.gpu.take_interrupts(), 0);
    d.ring(512, 24);
    d.gpu.advance_us(1000);
    assert_eq!(d.gpu.take_interrupts(), 1);
}

#[test]
fn a_full_interrupt_ring_overflows() {
    let mut d = Driver::new("navi31");
    d.boot();
    d.sdma_queue(VA + 0x5000, 0x1000);
    // 4 << 6 bytes: 8 entries.
    let size = d.f("IH_RB_CNTL", &[("RB_SIZE", 6)]);
    let cntl = d.r("IH_RB_CNTL") & !d.f("IH_RB_CNTL", &[("RB_SIZE", 31)]) | size;
    d.w("IH_RB_CNTL", cntl);
    d.vram(HEAP + 0x5000, &[6, 0, 0, 0, 0, 0, 0, 0].repeat(8));
    d.hdp();
    d.ring(512, 64);
    d.gpu.advance_us(1000);
    assert_eq!(d.r("IH_RB_WPTR"), 1, "back at the read pointer, with the overflow bit");
    d.w("IH_RB_CNTL", cntl | 1 << 31);
    assert_eq!(d.r("IH_RB_WPTR"), 0);
}

#[test]
fn states_show_in_the_registers_that_drivers_look_at() {
    for (state, sos, scratch, hub) in [
        ("cold", 0, 0, 0),
        ("amdgpu", 0x32_0061, 0, 1),
        ("amdev", 0x32_0061, 0x1234, 0),
        ("malformed", 0x32_0061, 0x1234, 1),
    ] {
        let d = Driver::new(&format!("navi31,state={state},scratch7=0x1234"));
        assert_eq!(d.r("MP0_SMN_C2PMSG_81"), sos, "{state}");
        assert_eq!(d.r("SCRATCH_REG7"), scratch, "{state}");
        assert_eq!(d.r("GCVM_CONTEXT0_CNTL") & 1, hub, "{state}");
        assert_eq!(d.r("RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE"), 24560, "{state}");
    }
    let d = Driver::new("navi31,state=amdgpu");
    assert_eq!(d.r("BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL"), 0x7f000, "amdgpu remaps the flush register");
    d.hdp();
    assert_eq!((d.gpu.counts().hdp_flushes, d.gpu.violations()), (1, vec![]));
    assert_eq!(d.smu(2, 0) >> 16, 0x4e, "the SMU is alive");
}

#[test]
fn the_smu_answers_one_message_at_a_time() {
    let mut d = Driver::new("navi31");
    d.boot();
    assert_eq!(d.smu(0x1f, 0xff), 0x8000_0002, "two levels of GFXCLK, anything between");
    assert_eq!(d.smu(0x1f, 2 << 16 | 3), 1249);
    d.smu(0x12, 5);
    let table = d.read(0x22_0000, 392);
    assert_eq!(table[0..4], 500u32.to_le_bytes(), "GFXCLK");
    d.w("MP1_SMN_C2PMSG_90", 0);
    d.w("MP1_SMN_C2PMSG_66", 2);
    d.w("MP1_SMN_C2PMSG_66", 3);
    assert_eq!(d.gpu.take_violations().iter().map(|v| v.rule).collect::<Vec<_>>(), [Rule::SmuProtocol]);
}
