//! Packets and rings equal the reference's, dword by dword.

use amdev_tests::golden;
use amdev_tests::golden_queues::{COPY_COUNT, FAULT_23, FAULT_25, SETUP, USB_HDP, judge};
use serde_json::Value;

fn recording() -> Value {
    serde_json::from_slice(&golden("queues.json").unwrap()).unwrap()
}

#[test]
fn every_recorded_case_equals_the_reference() {
    let verdict = judge(&golden("queues.json").unwrap()).unwrap();
    println!("{verdict}");
    assert!(verdict.passed(), "{verdict}");
    for fault in verdict.deviations.keys() {
        assert!([COPY_COUNT, FAULT_23, FAULT_25, SETUP, USB_HDP].contains(fault), "{fault}");
    }
}

#[test]
fn a_corrupted_recording_is_noticed() {
    let all = recording();
    let changes = [
        ("/targets/gfx1100/compute/am/1/dwords/5", "0x1236"),
        ("/targets/gfx1100/compute/am/22/dwords/20", "0x1"),
        ("/targets/gfx1100/meta/regs/regCOMPUTE_PGM_LO/addr", "0x2e0d"),
        ("/targets/gfx942/compute/kfd_8xcc/0/dwords/9", "0x11004"),
        ("/targets/gfx1030/copy/am_pci/9/dwords/0", "0x5"),
        ("/targets/gfx1201/copy/kfd/1/dwords/1", "0x4"),
    ];
    for (pointer, value) in changes {
        let mut changed = all.clone();
        *changed.pointer_mut(pointer).expect(pointer) = value.into();
        let verdict = judge(changed.to_string().as_bytes()).unwrap();
        assert_eq!(verdict.differences.len(), 1, "{pointer}: {verdict}");
    }
}

/// Every kind of recorded ring state is looked at: a changed word, position or order is noticed.
#[test]
fn a_corrupted_ring_is_noticed() {
    let all = recording();
    for (set, name, key, value) in [
        ("am_pci", "submit_wrap_split", "put_value", Value::from(552)),
        ("am_pci", "submit_simple", "doorbell", Value::from(64)),
        ("am_pci", "submit_simple", "hdp_flushes", Value::from(0)),
        ("am_usb", "submit_wrap_all", "put_value", Value::from(512)),
        ("am_pci", "bind_submit_put12", "ring_nonzero", serde_json::json!({"11": "0x4"})),
    ] {
        let mut changed = all.clone();
        let rows = changed["targets"]["gfx1100"]["copy"][set].as_array_mut().unwrap();
        rows.iter_mut().find(|r| r["name"] == name).unwrap()[key] = value;
        let verdict = judge(changed.to_string().as_bytes()).unwrap();
        assert!(!verdict.passed(), "{set}/{name}/{key}");
    }
}
