//! Traces of the reference driver, replayed against amdev's machines.

use amdev_tests::golden_fw::firmware_dirs;
use amdev_tests::replay::{Deviations, replay, replay_with};

fn check(gpu: &str, flow: &str) {
    let report = replay(gpu, flow, &firmware_dirs()).unwrap();
    println!("{report:#?}");
    assert!(report.is_equal(), "{}: {:#?}", report.name, report.differences);
}

macro_rules! traces {
    ($($gpu:ident: $($flow:ident)*;)*) => {$(
        mod $gpu {$(
            #[test]
            fn $flow() {
                super::check(stringify!($gpu), stringify!($flow));
            }
        )*}
    )*};
}

traces! {
    navi31: boot boot_seeded boot_fw2025 fini fini_seeded warm warm_seeded malformed malformed_seeded
        reset reset_smu_dead setup_ring flush_tlb_gc flush_tlb_mm ih_overflow smu_read_metrics smu_set_clocks_0;
    navi32: boot fini;
    navi33: boot fini;
    navi44: boot fini;
    navi48: boot boot_seeded boot_fw2025 fini fini_seeded warm warm_seeded malformed malformed_seeded
        reset reset_smu_dead setup_ring flush_tlb_gc flush_tlb_mm ih_overflow smu_read_metrics smu_set_clocks_0;
}

/// A trace in which each deviation applies.
const WHERE: [(&str, &str, &str); 12] = [
    ("ih-ring-size", "navi31", "boot"),
    ("ih-overflow-edge", "navi31", "boot"),
    ("dummy-page-in-vram", "navi31", "boot"),
    ("psp-hdp-flush", "navi31", "boot"),
    ("psp-message-length", "navi31", "boot"),
    ("rlc-autoload", "navi31", "boot"),
    ("own-mark", "navi31", "boot"),
    ("mmhub-flush-when-warm", "navi31", "flush_tlb_mm"),
    ("no-policy-table", "navi32", "boot"),
    ("ip-key-manager", "navi48", "boot"),
    ("ih-write-pointer", "navi31", "ih_overflow"),
    ("dead-smu", "navi31", "reset_smu_dead"),
];

#[test]
fn no_deviation_can_be_left_out() {
    let all = Deviations::load().unwrap();
    let listed: Vec<&str> = all.entries.iter().map(|e| e.id.as_str()).collect();
    assert_eq!(listed, WHERE.map(|(id, ..)| id));
    for (id, gpu, flow) in WHERE {
        let mut fewer = all.clone();
        fewer.entries.retain(|e| e.id != id);
        let report = replay_with(gpu, flow, &[], &fewer).unwrap();
        assert!(!report.differences.is_empty(), "{gpu}/{flow} is equal without {id}");
    }
}

#[test]
fn a_deviation_with_a_wrong_count_fails() {
    let mut all = Deviations::load().unwrap();
    for entry in &mut all.entries {
        for count in entry.counts.values_mut() {
            *count += 1;
        }
    }
    let report = replay_with("navi31", "boot", &[], &all).unwrap();
    assert_eq!(report.differences.len(), 7, "{:#?}", report.differences);
}

#[test]
fn a_boot_makes_no_more_writes_than_the_reference_and_its_deviations() {
    for (gpu, flow, writes, extra) in [
        ("navi31", "boot", 372, 2),
        ("navi32", "boot", 384, 2 - 3),
        ("navi33", "boot", 371, 2),
        ("navi44", "boot", 385, 1 + 3),
        ("navi48", "boot", 388, 1 + 3),
        ("navi31", "warm", 228, 0),
    ] {
        let report = replay(gpu, flow, &[]).unwrap();
        assert_eq!(report.total as i64, writes, "{gpu}/{flow}");
        assert_eq!(report.made as i64, writes + extra, "{gpu}/{flow}");
    }
}

#[test]
fn a_cold_boot_makes_fewer_reads_than_the_reference() {
    for (gpu, reads) in [("navi31", 141), ("navi32", 157), ("navi33", 141), ("navi44", 158), ("navi48", 162)]
    {
        let report = replay(gpu, "boot", &[]).unwrap();
        assert!(report.reads < reads, "{gpu}: {} reads, the reference makes {reads}", report.reads);
    }
}
