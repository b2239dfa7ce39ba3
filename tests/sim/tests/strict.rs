//! What the strict device accepts from a driver that does everything right, and what it does not.

mod common;

use amdev_sim::{Rule, VecMemory};
use common::{Driver, HEAP, VA};

const GPUS: [&str; 5] = ["navi31", "navi32", "navi33", "navi44", "navi48"];

fn words(w: &[u32]) -> Vec<u8> {
    w.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn rules(d: &Driver) -> Vec<Rule> {
    let mut r: Vec<Rule> = d.gpu.take_violations().into_iter().map(|v| v.rule).collect();
    r.sort();
    r.dedup();
    r
}

/// WRITE_DATA to memory (`nvd.h`: DST_SEL 5, WR_CONFIRM).
fn write_data(va: u64, value: u32) -> Vec<u32> {
    vec![0xC003_3700, 5 << 8 | 1 << 20, va as u32, (va >> 32) as u32, value]
}

#[test]
fn a_right_driver_boots_every_gpu_without_a_violation() {
    for name in GPUS {
        let mut d = Driver::new(name);
        d.boot();
        assert_eq!(d.gpu.violations(), [], "{name}");
    }
}

#[test]
fn a_compute_queue_executes_what_its_doorbell_announces() {
    for name in GPUS {
        let mut d = Driver::new(name);
        d.boot();
        d.compute_queue(VA + 0x4000, 0x400);
        let packet = words(&write_data(VA + 0x3000, 0x1234_5678));
        d.vram(HEAP + 0x4000, &packet);
        d.hdp();
        d.ring(6, packet.len() as u64 / 4);
        d.gpu.advance_us(100);
        assert_eq!(d.gpu.violations(), [], "{name}");
        assert_eq!(d.read(HEAP + 0x3000, 4), 0x1234_5678u32.to_le_bytes(), "{name}");
        assert_eq!(d.read(HEAP + 0x1000, 4), 5u32.to_le_bytes(), "{name}: read pointer is reported");
    }
}

#[test]
fn sdma_copies_from_system_memory_and_interrupts() {
    for name in ["navi31", "navi48"] {
        let mut d = Driver::new(name);
        d.boot();
        let host = VecMemory::new(0x1000);
        host.store(0, &[7; 256]);
        assert!(d.gpu.dma_map(0xdead_0000, 0x1000, host.clone()));
        // Page 9: system, snooped.
        d.map(9, 0xdead_0000, 0x77);
        d.invalidate("GC");
        d.sdma_queue(VA + 0x5000, 0x1000);
        let (src, dst) = (VA + 0x9000, VA + 0x6000);
        let copy = [1, 255, 0, src as u32, (src >> 32) as u32, dst as u32, (dst >> 32) as u32];
        let trap = [6, 0];
        let mut ring = copy.to_vec();
        ring.extend(trap);
        d.vram(HEAP + 0x5000, &words(&ring));
        d.hdp();
        d.ring(512, ring.len() as u64 * 4);
        d.gpu.advance_us(1000);
        assert_eq!(d.gpu.violations(), [], "{name}");
        assert_eq!(d.read(HEAP + 0x6000, 256), vec![7; 256], "{name}");
        assert_eq!(d.gpu.take_interrupts(), 1, "{name}");
        // The entry: client GFX (0x0a), source 49 (SDMA trap).
        assert_eq!(d.read(0x10_0000, 2), [0x0a, 49], "{name}");
        assert_eq!(d.read(0x20_0000, 4), 32u32.to_le_bytes(), "{name}: write pointer is written back");
    }
}

#[test]
fn ring_words_that_were_not_flushed_are_not_executed() {
    let mut d = Driver::new("navi31");
    d.boot();
    d.compute_queue(VA + 0x4000, 0x400);
    d.vram(HEAP + 0x4000, &words(&write_data(VA + 0x3000, 1)));
    d.ring(6, 5);
    d.gpu.advance_us(100);
    assert!(rules(&d).contains(&Rule::StaleHdp));
    assert_eq!(d.read(HEAP + 0x3000, 4), [0; 4]);
}

#[test]
fn a_changed_mapping_is_used_only_after_invalidation() {
    let mut d = Driver::new("navi31");
    d.boot();
    d.compute_queue(VA + 0x4000, 0x400);
    d.vram(
        HEAP + 0x4000,
        &words(
            &[write_data(VA + 0x3000, 1), write_data(VA + 0x3000, 2), write_data(VA + 0x3000, 3)].concat(),
        ),
    );
    d.hdp();
    d.ring(6, 5);
    d.gpu.advance_us(100);
    // The page moves; the next store still goes to the old one.
    d.map(3, HEAP + 0x7000, 0x71);
    d.hdp();
    d.ring(6, 10);
    d.gpu.advance_us(100);
    assert_eq!(rules(&d), [Rule::StaleTlb]);
    assert_eq!((d.read(HEAP + 0x3000, 1), d.read(HEAP + 0x7000, 1)), (vec![2], vec![0]));
    d.invalidate("GC");
    d.ring(6, 15);
    d.gpu.advance_us(100);
    assert_eq!(rules(&d), []);
    assert_eq!((d.read(HEAP + 0x3000, 1), d.read(HEAP + 0x7000, 1)), (vec![2], vec![3]));
}

#[test]
fn a_fault_latches_status_and_address_and_interrupts() {
    let mut d = Driver::new("navi31");
    d.boot();
    d.compute_queue(VA + 0x4000, 0x400);
    d.map(3, HEAP + 0x3000, 0x31); // readable and executable only
    d.invalidate("GC");
    d.vram(HEAP + 0x4000, &words(&write_data(VA + 0x3000, 1)));
    d.hdp();
    d.ring(6, 5);
    d.gpu.advance_us(100);
    let status = d.r("GCVM_L2_PROTECTION_FAULT_STATUS");
    assert_eq!(status >> 4 & 0xf, 4, "write permission");
    assert_eq!(status >> 18 & 1, 1, "a write");
    assert_eq!(d.r("GCVM_L2_PROTECTION_FAULT_ADDR_LO32"), ((VA + 0x3000) >> 12) as u32);
    assert_eq!(d.r("GCVM_L2_PROTECTION_FAULT_ADDR_HI32"), (VA >> 44) as u32);
    assert_eq!(d.gpu.take_interrupts(), 1);
    d.w("GCVM_L2_PROTECTION_FAULT_CNTL", 1);
    assert_eq!(d.r("GCVM_L2_PROTECTION_FAULT_STATUS"), 0);
}

#[test]
fn doorbells_of_nobody_are_reported() {
    let mut d = Driver::new("navi31");
    d.ring(6, 1);
    assert_eq!(rules(&d), [Rule::DoorbellBeforeActivation]);
    d.boot();
    d.ring(6, 1);
    d.ring(512, 1);
    assert_eq!(rules(&d), [Rule::DoorbellBeforeActivation]);
}

#[test]
fn what_a_working_queue_uses_may_not_be_taken_away() {
    let mut d = Driver::new("navi31");
    d.boot();
    let host = VecMemory::new(0x1000);
    assert!(d.gpu.dma_map(0x7000_0000, 0x1000, host));
    d.map(9, 0x7000_0000, 0x77);
    d.invalidate("GC");
    d.compute_queue(VA + 0x4000, 0x400);
    // WAIT_REG_MEM: memory at page 9 equal 1, which never comes.
    let va = VA + 0x9000;
    let wait = [0xC005_3C00, 3 | 1 << 4, va as u32, (va >> 32) as u32, 1, u32::MAX, 4];
    d.vram(HEAP + 0x4000, &words(&wait));
    d.hdp();
    d.ring(6, 7);
    d.gpu.advance_us(100);
    assert_eq!(rules(&d), []);
    d.vram(HEAP + 0x4000, &words(&wait));
    d.hdp();
    assert_eq!(rules(&d), [Rule::MemoryInUse], "ring words that are not executed yet");
    assert!(d.gpu.dma_unmap(0x7000_0000, 0x1000));
    assert_eq!(rules(&d), [Rule::MemoryInUse]);
    d.gpu.advance_us(100);
    // The queue has come to the words that were written again, and to the memory taken away.
    assert_eq!(rules(&d), [Rule::MemoryInUse, Rule::UnmappedDma]);
}

#[test]
fn dequeuing_ends_a_queue() {
    let mut d = Driver::new("navi31");
    d.boot();
    d.compute_queue(VA + 0x4000, 0x400);
    d.w("GRBM_GFX_CNTL", 4);
    assert_eq!(d.r("CP_HQD_ACTIVE"), 1);
    d.w("CP_HQD_DEQUEUE_REQUEST", 2);
    d.wait("CP_HQD_ACTIVE", 1, 0);
    d.w("GRBM_GFX_CNTL", 0);
    assert_eq!(rules(&d), []);
    d.ring(6, 1);
    assert_eq!(rules(&d), [Rule::DoorbellBeforeActivation]);
}

#[test]
fn a_queue_whose_packet_takes_itself_away_leaves_the_others() {
    let mut d = Driver::new("navi31");
    d.boot();
    d.sdma_queue_of(0, VA + 0x5000, 0x1000);
    d.sdma_queue_of(1, VA + 0x6000, 0x1000);
    let cntl = d.gpu.register("SDMA0_QUEUE0_RB_CNTL").unwrap();
    let fence = [5, (VA + 0x3000) as u32, (VA >> 32) as u32, 0x1234];
    // SRBM_WRITE, all bytes enabled.
    d.vram(HEAP + 0x5000, &words(&[0xf000_000e, cntl, 0]));
    d.vram(HEAP + 0x6000, &words(&fence));
    d.hdp();
    d.ring(512, 12);
    d.gpu.advance_us(100);
    assert_eq!(rules(&d), []);
    d.ring(514, 16);
    d.gpu.advance_us(100);
    assert_eq!(d.read(HEAP + 0x3000, 4), 0x1234u32.to_le_bytes());
    d.ring(512, 12);
    assert_eq!(rules(&d), [Rule::DoorbellBeforeActivation]);
}

#[test]
fn a_write_pointer_without_sense_is_an_overrun_and_no_more() {
    let mut d = Driver::new("navi31");
    d.boot();
    d.compute_queue(VA + 0x4000, 0x400);
    d.ring(6, u64::MAX / 2);
    d.vram(HEAP + 0x9000, &[0; 4]);
    assert_eq!(rules(&d), [Rule::RingOverrun]);
}

#[test]
fn firmware_is_checked() {
    let mut d = Driver::new("navi31");
    d.boot();
    assert_eq!(rules(&d), []);
    assert_ne!(d.load(63, 0x1000), 0, "no such type");
    assert_eq!(rules(&d), [Rule::FirmwareImage]);
    d.vram(0x30_0000, &amdev_sim::firmware::synthetic(0x48, 1, 0x1000));
    d.hdp();
    assert_ne!(d.command(6, &[0x30_0000, 0x80, 0x1000, 8]), 0, "a MEC image as RLC_G");
    assert_ne!(d.command(6, &[0x30_0000, 0x80, 0x1100, 89]), 0, "longer than its header says");
    assert_eq!(rules(&d), [Rule::FirmwareOrder, Rule::FirmwareImage], "and after autoload");
    assert_eq!(d.command(0x77, &[]), 0x100, "unknown command");
    assert_eq!(rules(&d), [Rule::PspProtocol]);
    d.vram(0x40_0000, &[1]);
    assert_eq!(rules(&d), [Rule::FirmwareOverwritten]);
}

#[test]
fn components_out_of_order_stop_the_bootloader() {
    let d = Driver::new("navi31");
    d.component(0x1_0000);
    assert_eq!(rules(&d), [Rule::FirmwareOrder]);
}

#[test]
fn an_unknown_register_is_reported_and_reads_zero() {
    let d = Driver::new("navi31");
    let mut b = [1; 4];
    d.gpu.read(5, 0xf_fffc, &mut b).unwrap();
    assert_eq!((b, rules(&d)), ([0; 4], vec![Rule::UnknownRegister]));
    d.w("RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE", 1);
    assert_eq!(rules(&d), [Rule::ReadOnlyRegister]);
    assert_eq!(d.r("RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE"), 24560);
}

#[test]
fn a_mode_1_reset_takes_time_and_everything_with_it() {
    let mut d = Driver::new("navi31");
    d.boot();
    d.smu(0x2f, 0);
    d.gpu.advance_us(10_000);
    assert_eq!(d.r("SCRATCH_REG7"), u32::MAX);
    assert_eq!(rules(&d), [Rule::AccessDuringReset]);
    d.gpu.advance_us(300_000);
    // Configuration space is lost too: until memory space is on again nothing answers.
    assert_eq!(d.r("SCRATCH_REG7"), u32::MAX);
    d.gpu.config_write(4, &[7, 0]);
    assert_eq!(d.r("MP0_SMN_C2PMSG_81"), 0, "no SOS");
    d.gpu.take_violations();
    d.boot();
    assert_eq!(rules(&d), []);
}

#[test]
fn flr_unposts_the_gpu() {
    let d = Driver::new("navi31");
    d.gpu.reset_function();
    d.gpu.advance_us(300_000);
    d.gpu.config_write(4, &[7, 0]);
    assert_eq!(d.r("RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE"), 0);
}

#[test]
fn faults_on_demand() {
    let d = Driver::new("navi31,fault=ones:3");
    let mut b = [0; 4];
    for want in [24560, 24560, 24560, u32::MAX] {
        d.gpu.read(5, 0xde3 * 4, &mut b).unwrap();
        assert_eq!(u32::from_le_bytes(b), want);
    }
    let d = Driver::new("navi31,fault=unplug:0");
    d.gpu.config_read(0, &mut b);
    assert!(d.gpu.present());
    d.gpu.read(5, 0, &mut b).unwrap();
    assert_eq!((b, d.gpu.present()), ([0xff; 4], false));
    d.gpu.plug();
    assert!(d.gpu.present());
    let mut d = Driver::new("navi31,fault=lost-irq");
    d.boot();
    assert_eq!(rules(&d), []);
}

#[test]
fn state_survives_a_disconnect_of_its_client() {
    let mut d = Driver::new("navi31");
    d.boot();
    d.w("SCRATCH_REG7", 0xA000_0006);
    let again = d.gpu.clone();
    drop(d);
    let mut b = [0; 4];
    again.read(5, u64::from(again.register("SCRATCH_REG7").unwrap()) * 4, &mut b).unwrap();
    assert_eq!(u32::from_le_bytes(b), 0xA000_0006);
}

#[test]
fn windows_refuse_what_they_do_not_support() {
    let mut d = Driver::new("navi31,bar=256M");
    assert_eq!((d.gpu.bar_len(0), d.gpu.bar_len(2), d.gpu.bar_len(5)), (256 << 20, 2 << 20, 1 << 20));
    let mut b = [0; 4];
    assert!(d.gpu.read(0, (256 << 20) - 2, &mut b).is_err(), "past the end of a small BAR");
    assert!(d.gpu.read(5, (1 << 20) - 2, &mut b).is_err());
    assert!(d.gpu.read(1, 0, &mut b).is_err(), "no such window");
    assert_eq!(rules(&d), []);
    assert!(d.gpu.read(5, 2, &mut b).is_err(), "unaligned register");
    assert!(d.gpu.write(2, 4, &[0; 8]).is_err(), "unaligned doorbell");
    assert_eq!(rules(&d), [Rule::BadAccess]);
    d.boot();
    d.compute_queue(VA + 0x4000, 0x400);
    d.gpu.write(2, 24, &[1, 0, 0, 0]).unwrap();
    assert_eq!(rules(&d), [Rule::BadAccess], "a queue's doorbell is 8 bytes");
}

#[test]
fn vram_past_a_small_bar_is_reached_through_mm_index() {
    let d = Driver::new("navi31,bar=256M");
    let at = 0x5_ff00_0000u64 - 0x1_0000;
    d.w("BIF_BX_PF0_MM_INDEX_HI", (at >> 31) as u32);
    d.w("BIF_BX_PF0_MM_INDEX", at as u32 & 0x7fff_ffff | 1 << 31);
    assert_eq!(d.r("BIF_BX_PF0_MM_DATA"), 0x2821_1407, "the discovery table's signature");
    d.w("BIF_BX0_PCIE_INDEX2", d.gpu.register("MP0_SMN_C2PMSG_35").unwrap() * 4);
    assert_eq!(d.r("BIF_BX0_PCIE_DATA2"), 0x8000_0000, "the bootloader is ready");
    assert_eq!(rules(&d), []);
}

#[test]
fn resizing_the_bar_shows_all_of_vram() {
    let d = Driver::new("navi31,bar=256M");
    // Resizable BAR control of BAR0: 2^15 MiB.
    d.gpu.config_write(0x208, &(1 << 5 | 15u32 << 8).to_le_bytes());
    assert_eq!(d.gpu.bar_len(0), 32 << 30);
    assert_eq!(d.read(0x5_ff00_0000 - 0x1_0000, 4), 0x2821_1407u32.to_le_bytes());
}

#[test]
fn gpus_of_one_machine_do_not_share_state_and_run_alike() {
    let config = amdev_sim::Config::parse("navi31,count=3").unwrap();
    let gpus: Vec<_> = config.each().map(amdev_sim::SimGpu::new).collect();
    let (a, b) = (Driver::new("navi31"), Driver::new("navi31"));
    a.w("SCRATCH_REG7", 1);
    assert_eq!(b.r("SCRATCH_REG7"), 0);
    let bar = |g: &amdev_sim::SimGpu| {
        let mut b = [0; 8];
        g.config_read(0x10, &mut b);
        u64::from_le_bytes(b)
    };
    let mut bars: Vec<u64> = gpus.iter().map(bar).collect();
    bars.dedup();
    assert_eq!(bars.len(), 3, "each has its own place in the address space");
    let time = || {
        let mut d = Driver::new("navi31");
        d.boot();
        (d.gpu.now_us(), d.gpu.counts())
    };
    assert_eq!(time(), time(), "virtual time is deterministic");
}

#[test]
fn ih_read_pointers_can_be_moved_by_doorbell() {
    let mut d = Driver::new("navi31");
    d.boot();
    d.w("IH_DOORBELL_RPTR", d.f("IH_DOORBELL_RPTR", &[("OFFSET", 752), ("ENABLE", 1)]));
    d.gpu.write(2, 752 * 4, &64u32.to_le_bytes()).unwrap();
    assert_eq!((d.r("IH_RB_RPTR"), rules(&d)), (64, vec![]));
    d.gpu.write(2, 753 * 4, &64u32.to_le_bytes()).unwrap();
    assert_eq!(rules(&d), [Rule::DoorbellBeforeActivation]);
}

#[test]
fn overlapping_structures_are_found() {
    let mut d = Driver::new("navi31");
    d.boot();
    // 512 KiB from here hold the write pointer's page and the PSP's buffers.
    let cntl = d.r("IH_RB_CNTL");
    d.w("IH_RB_CNTL", cntl & !1);
    d.w("IH_RB_BASE", (0x80_0019_0000u64 >> 8) as u32);
    d.w("IH_RB_CNTL", cntl);
    assert_eq!(rules(&d), [Rule::OverlappingStructures]);
}

#[test]
fn engines_do_not_start_before_their_firmware() {
    let d = Driver::new("navi31");
    d.w("CP_MEC_RS64_CNTL", 1 << 26);
    d.w("SDMA0_F32_CNTL", 0);
    d.w("RLC_SAFE_MODE", 3);
    assert_eq!(rules(&d), [Rule::EngineBeforeFirmware]);
    d.sdma_queue(VA + 0x5000, 0x1000);
    assert_eq!(rules(&d), [Rule::EngineBeforeFirmware]);
}
