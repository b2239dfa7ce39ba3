//! Page tables against recorded ones of the reference.

use amdev_tests::{golden, golden_pt::judge};
use serde_json::Value;

fn pristine() -> Value {
    serde_json::from_slice(&golden("pt.json").unwrap()).unwrap()
}

fn fails(value: &Value) -> bool {
    !judge(&serde_json::to_vec(value).unwrap()).is_ok_and(|v| v.passed())
}

#[test]
fn every_recorded_mapping_is_equal_or_has_a_listed_reason() {
    let verdict = judge(&golden("pt.json").unwrap()).unwrap();
    println!("{verdict}");
    assert!(verdict.passed(), "{verdict}");
    let faults: Vec<_> = verdict.deviations.keys().copied().collect();
    assert_eq!(faults, ["14", "15", "17", "18", "19", "20", "C14"]);
}

/// A file with one scenario of the recorded one.
fn only(name: &str) -> Value {
    let mut value = pristine();
    let gfx12 = value["formats"]["gfx12"].take();
    value["formats"] = serde_json::json!({ "gfx12": gfx12 });
    value["formats"]["gfx12"]["scenarios"].as_array_mut().unwrap().retain(|s| s["name"] == name);
    value
}

const SOME: [&str; 8] = [
    "64k_pa_unaligned",
    "1g_va_2m_aligned",
    "multi_segment",
    "system_snooped_uncached",
    "unmap_half_then_rest",
    "double_map_error",
    "valloc_align_2m",
    "valloc_mqd",
];

/// Paths to all values below a value.
fn values(value: &Value, path: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(k, v)| values(v, &format!("{path}/{k}"), out)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, v)| values(v, &format!("{path}/{i}"), out))
        }
        _ => out.push(path.to_owned()),
    }
}

/// Paths to all rows of lists below a value.
fn rows(value: &Value, path: &str, out: &mut Vec<(String, usize)>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(k, v)| rows(v, &format!("{path}/{k}"), out)),
        Value::Array(list) => {
            for (i, v) in list.iter().enumerate() {
                out.push((path.to_owned(), i));
                rows(v, &format!("{path}/{i}"), out);
            }
        }
        _ => {}
    }
}

/// Whether the comparison depends on a value. Not on the size of the VRAM, the names of allocations,
/// the log of table allocations but for the sizes of what is allocated, what is written to tables
/// that are freed, writes of zeros over zeros, where the memory of a failed call lies, and how many writes there are that are not listed.
fn compared(root: &Value, path: &str) -> bool {
    let parent = |levels: usize| path.rsplitn(levels + 1, '/').last().and_then(|p| root.pointer(p)).unwrap();
    let field = path.rsplit('/').next().unwrap();
    if path.contains("/pa_log/") {
        return field == "1" && parent(1)[0] == "palloc";
    }
    if path.contains("/vram_writes/") {
        let maps = parent(3)["op"] == "map" || parent(3)["op"] == "valloc";
        return maps && !(field == "0" && parent(1)[1].as_str().unwrap().starts_with("zero["));
    }
    if path.contains("/paddrs/") && !parent(3)["error"].is_null() {
        return field == "1";
    }
    match field {
        "name" | "vram_size" | "vm" => false,
        "n_vram_writes" => parent(1)["vram_writes"].is_array(),
        "leaf" => !parent(1)["pte"].as_str().unwrap().ends_with('0'),
        _ => true,
    }
}

#[test]
fn any_changed_value_is_noticed() {
    for name in SOME {
        let value = only(name);
        assert!(!fails(&value), "{name}");
        let mut paths = Vec::new();
        values(&value["formats"]["gfx12"]["scenarios"], "/formats/gfx12/scenarios", &mut paths);
        let mut unnoticed = Vec::new();
        for path in paths.iter().filter(|p| compared(&value, p)) {
            let mut changed = value.clone();
            let v = changed.pointer_mut(path).unwrap();
            *v = match v {
                Value::Bool(b) => (!*b).into(),
                Value::Number(n) => (n.as_u64().unwrap() + 1).into(),
                Value::String(s) => match s.strip_prefix("0x").map(|d| u64::from_str_radix(d, 16).unwrap()) {
                    Some(n) => format!("{:#x}", n ^ 0x1000).into(),
                    None => Value::Null,
                },
                _ => "0x7000".into(),
            };
            if !fails(&changed) {
                unnoticed.push(path.clone());
            }
        }
        assert!(unnoticed.is_empty(), "{name}: {unnoticed:#?}");
        assert!(paths.len() > 20);
    }
}

#[test]
fn any_missing_row_is_noticed() {
    for name in SOME {
        let value = only(name);
        let mut all = Vec::new();
        rows(
            &value["formats"]["gfx12"]["scenarios"][0]["steps"],
            "/formats/gfx12/scenarios/0/steps",
            &mut all,
        );
        let last = value["formats"]["gfx12"]["scenarios"][0]["steps"].as_array().unwrap().len() - 1;
        let mut unnoticed = Vec::new();
        for (path, i) in all {
            // A file that ends early is whole, as is one without a failed step.
            let step = path.ends_with("/steps");
            let failed = step && !value.pointer(&path).unwrap()[i]["error"].is_null();
            if step && i == last || failed || path.contains("/pa_log/") {
                continue;
            }
            let mut changed = value.clone();
            changed.pointer_mut(&path).unwrap().as_array_mut().unwrap().remove(i);
            if !fails(&changed) {
                unnoticed.push((path, i));
            }
        }
        assert!(unnoticed.is_empty(), "{name}: {unnoticed:#?}");
    }
}

#[test]
fn a_changed_or_missing_flag_row_is_noticed() {
    let value = only("64k_pa_unaligned");
    for row in [0, 100, 335] {
        for column in 0..8 {
            let mut changed = value.clone();
            let v = &mut changed["formats"]["gfx12"]["pte_flags"]["rows"][row][column];
            *v = if column == 7 { "0x8000000000000073".into() } else { (v.as_u64().unwrap() ^ 1).into() };
            assert!(fails(&changed), "row {row} column {column}");
        }
        let mut changed = value.clone();
        changed["formats"]["gfx12"]["pte_flags"]["rows"].as_array_mut().unwrap().remove(row);
        assert!(fails(&changed), "row {row}");
    }
}

#[test]
fn a_foreign_file_is_an_error() {
    for bytes in [&b"{}"[..], b"", b"[]", b"{\"va_base\":\"0x0\",\"formats\":{\"gfx9\":{}}}"] {
        assert!(judge(bytes).is_err());
    }
}
