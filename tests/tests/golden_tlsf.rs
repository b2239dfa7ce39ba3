//! The allocator against recorded allocations of the reference.

use amdev_tests::{golden, golden_tlsf::judge};
use serde_json::Value;

fn pristine() -> Value {
    serde_json::from_slice(&golden("tlsf.json").unwrap()).unwrap()
}

fn fails(value: &Value) -> bool {
    !judge(&serde_json::to_vec(value).unwrap()).is_ok_and(|v| v.passed())
}

#[test]
fn every_recorded_allocation_succeeds_or_fails_as_recorded() {
    let verdict = judge(&golden("tlsf.json").unwrap()).unwrap();
    println!("{verdict}");
    assert!(verdict.passed(), "{verdict}");
    assert_eq!(verdict.total, 1778);
    // Not asked for, but placement is the reference's, so that boot allocations are too.
    assert_eq!(verdict.equal_addresses, (1047, 1047));
    // The listed deviation must be met, and nothing else.
    assert_eq!(verdict.deviations.keys().copied().collect::<Vec<_>>(), ["22"]);
}

fn second_success(case: &Value) -> usize {
    let ops = case["ops"].as_array().unwrap();
    let good = |op: &Value| op[0] == "alloc" && op[3].is_string();
    ops.iter().enumerate().filter(|(_, op)| good(op)).nth(1).unwrap().0
}

#[test]
fn a_changed_value_is_noticed() {
    for case in 0..7 {
        let mut value = pristine();
        let row = second_success(&value[case]);
        let addr = &mut value[case]["ops"][row][3];
        let n = u64::from_str_radix(addr.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
        *addr = format!("{:#x}", n - 0x10).into();
        assert!(fails(&value), "address in scenario {case}");

        let mut value = pristine();
        let free = &mut value[case]["final_blocks"][0][2];
        *free = (!free.as_bool().unwrap()).into();
        assert!(fails(&value), "final block in scenario {case}");

        let mut value = pristine();
        value[case]["ops"][row][3] = Value::Null;
        assert!(fails(&value), "a success recorded as failure in scenario {case}");
    }
}

#[test]
fn a_missing_row_is_noticed() {
    for case in 0..7 {
        for field in ["ops", "final_blocks"] {
            let mut value = pristine();
            value[case][field].as_array_mut().unwrap().remove(1);
            assert!(fails(&value), "{field} of scenario {case}");
        }
    }
}

#[test]
fn a_foreign_file_is_an_error() {
    for bytes in [&b"{}"[..], b"", b"[{}]", b"[{\"name\":\"x\",\"size\":\"1\"}]", b"[1]"] {
        assert!(judge(bytes).is_err());
    }
}
