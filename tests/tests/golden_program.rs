//! Programs and scratch memory equal the reference's.

use amdev_tests::{golden, golden_program};
use serde_json::Value;

#[test]
fn every_program_equals_the_reference() {
    let verdict = golden_program::judge(&golden("program.json").unwrap()).unwrap();
    assert!(verdict.passed(), "{verdict}");
    assert_eq!(verdict.total, 49);
}

#[test]
fn every_scratch_size_equals_the_reference() {
    let verdict = golden_program::judge_scratch(&golden("scratch.json").unwrap()).unwrap();
    assert!(verdict.passed(), "{verdict}");
    assert_eq!(verdict.total, 20);
    let deviations: usize = verdict.deviations.values().map(Vec::len).sum();
    assert_eq!(deviations, 1, "only the overflow on 8 XCCs: {verdict}");
}

#[test]
fn a_corrupted_recording_is_noticed() {
    let rows: Value = serde_json::from_slice(&golden("program.json").unwrap()).unwrap();
    for (pointer, value) in [
        ("/0/rsrc1", "0x60af0002"),
        ("/9/prog_addr", "0x200003001700"),
        ("/12/image_sha256", "00"),
        ("/19/kernargs_alloc_size", "0x9"),
    ] {
        let mut changed = rows.clone();
        *changed.pointer_mut(pointer).unwrap() = value.into();
        let verdict = golden_program::judge(changed.to_string().as_bytes()).unwrap();
        assert!(!verdict.passed(), "{pointer}");
    }
    let rows: Value = serde_json::from_slice(&golden("scratch.json").unwrap()).unwrap();
    for (pointer, value) in [("/0/tmpring_size", "0x10201"), ("/5/scratch_alloc", "0x440001")] {
        let mut changed = rows.clone();
        *changed.pointer_mut(pointer).unwrap() = value.into();
        assert!(
            !golden_program::judge_scratch(changed.to_string().as_bytes()).unwrap().passed(),
            "{pointer}"
        );
    }
}
