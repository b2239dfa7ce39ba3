//! Buffer contents against the checksums in the corpus' case files.

use amdev_cli::argspec::ArgSpec;
use amdev_cli::output::sha256;
use serde_json::Value;
use std::path::Path;

/// A case file's initial contents as an argument of `run`.
fn spec(arg: &Value) -> String {
    let init = &arg["init"];
    let params: Vec<String> = init
        .as_object()
        .expect("init is an object")
        .iter()
        .filter(|(key, _)| *key != "gen")
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let generator = format!("{}({})", init["gen"].as_str().unwrap(), params.join(","));
    format!("inout:{}:{generator}:{}", arg["dtype"].as_str().unwrap(), arg["count"])
}

#[test]
fn every_buffer_of_every_case_starts_as_its_checksum_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/cases");
    let mut checked = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let cases: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        for case in cases.as_array().unwrap() {
            for arg in case["args"].as_array().unwrap().iter().filter(|a| a["kind"] == "buffer") {
                let text = spec(arg);
                let spec: ArgSpec = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
                let bytes = spec.initial().unwrap();
                assert_eq!(sha256(&bytes), arg["init_sha256"], "{} {text}", case["id"]);
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 47, "buffers in the corpus");
}

#[test]
fn every_value_of_every_case_is_an_argument() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/cases");
    for file in std::fs::read_dir(folder).unwrap() {
        let cases: Value = serde_json::from_slice(&std::fs::read(file.unwrap().path()).unwrap()).unwrap();
        for case in cases.as_array().unwrap() {
            for arg in case["args"].as_array().unwrap().iter().filter(|a| a["kind"] == "value") {
                let text = format!("{}={}", arg["dtype"].as_str().unwrap(), arg["value"]);
                let parsed = text.parse::<ArgSpec>();
                assert!(matches!(parsed, Ok(ArgSpec::Value { .. })), "{} {text}", case["id"]);
            }
        }
    }
}
