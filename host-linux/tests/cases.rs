//! `amdev run` against the corpus' case files, argument for argument.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus")
}

fn joined(list: &Value) -> String {
    list.as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>().join(",")
}

/// A case's argument as `--arg` takes it, and its expected checksum if it is an output.
fn argument(arg: &Value) -> (String, Option<String>) {
    let dtype = arg["dtype"].as_str().unwrap();
    if arg["kind"] == "value" {
        return (format!("{dtype}={}", arg["value"]), None);
    }
    let init = arg["init"].as_object().unwrap();
    let params: Vec<String> =
        init.iter().filter(|(k, _)| *k != "gen").map(|(k, v)| format!("{k}={v}")).collect();
    let generator = format!("{}({})", init["gen"].as_str().unwrap(), params.join(","));
    let written = arg["written"] == true;
    let direction = if written { "inout" } else { "in" };
    let expected = written.then(|| arg["expect"]["sha256"].as_str().unwrap().to_owned());
    (format!("{direction}:{dtype}:{generator}:{}", arg["count"]), expected)
}

/// Runs every case of a kernel; an input that the kernel changed makes `run` fail.
fn run_cases(name: &str) {
    let file = corpus().join(format!("cases/{name}.json"));
    let cases: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    for case in cases.as_array().unwrap() {
        let (specs, expected): (Vec<_>, Vec<_>) =
            case["args"].as_array().unwrap().iter().map(argument).unzip();
        let mut command = Command::new(env!("CARGO_BIN_EXE_amdev"));
        command.env_remove("AMDEV_DEVICE").env_remove("AMDEV_FIRMWARE");
        command.arg("--json").arg("run").arg(corpus().join(format!("co/{name}.gfx1100.v5.O2.co")));
        command.args(["--grid", &joined(&case["grid"]), "--block", &joined(&case["block"])]);
        for spec in &specs {
            command.args(["--arg", spec]);
        }
        let out = command.output().expect("the command starts");
        let json: Value = serde_json::from_slice(&out.stdout).expect("one JSON object");
        assert_eq!(json["ok"], true, "{}: {json}", case["id"]);
        let got: Vec<&str> =
            json["outputs"].as_array().unwrap().iter().map(|o| o["sha256"].as_str().unwrap()).collect();
        let expected: Vec<String> = expected.into_iter().flatten().collect();
        assert_eq!(got, expected, "{}", case["id"]);
    }
}

#[test]
fn fill_gives_its_cases_outputs() {
    run_cases("fill");
}

#[test]
fn vecadd_gives_its_cases_outputs() {
    run_cases("vecadd");
}

#[test]
fn saxpy_gives_its_cases_outputs() {
    run_cases("saxpy");
}

#[test]
fn iota2d_gives_its_cases_outputs() {
    run_cases("iota2d");
}

#[test]
fn gridstride_gives_its_cases_outputs() {
    run_cases("gridstride");
}

#[test]
fn reduce_lds_gives_its_cases_outputs() {
    run_cases("reduce_lds");
}
