//! The `amdev-usb` command as a person calls it.

use std::process::{Command, Output};

fn amdev_usb(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_amdev-usb"));
    command.args(args).env_remove("AMDEV_DEVICE").env_remove("AMDEV_FIRMWARE");
    command.output().expect("the command starts")
}

fn json(args: &[&str]) -> serde_json::Value {
    let out = amdev_usb(args);
    assert_eq!(out.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}"))
}

#[test]
fn the_main_job_is_done_behind_both_firmwares_of_the_bridge() {
    for gpu in ["navi31", "navi32", "navi33", "navi44", "navi48"] {
        for bridge in ["patched", "custom"] {
            let device = format!("sim-usb:{gpu},bridge={bridge}");
            let demo = json(&["--json", "--device", &device, "demo"]);
            assert_eq!(demo["wrong"], 0, "{device}: {demo}");
            assert_eq!(demo["ok"], true, "{device}: {demo}");
        }
    }
}

#[test]
fn a_boot_tells_its_commands_and_transfers() {
    for (state, path, most) in
        [("cold", "cold", 8_500), ("amdev", "warm", 4_500), ("amdgpu", "reset", 10_000)]
    {
        let boot = json(&["--json", "--device", &format!("sim-usb:navi48,state={state}"), "boot"]);
        assert_eq!(boot["path"], path, "{boot}");
        let (commands, transfers) = (boot["usb_commands"].as_u64(), boot["usb_transfers"].as_u64());
        assert!(commands > Some(2_000) && commands < Some(most), "{state}: {commands:?}");
        assert!(transfers > commands, "each command is several transfers");
        assert_eq!(boot["violations"], serde_json::json!([]), "{state}");
    }
    let text = amdev_usb(&["--device", "sim-usb:navi48,bridge=custom", "boot"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("USB commands in"));
}

#[test]
fn scan_tells_firmware_speed_link_and_gpu_of_an_enclosure() {
    for (bridge, firmware, link) in [("patched", "vendor's", "x4"), ("custom", "open", "x2")] {
        let scan = json(&["--json", "--device", &format!("sim-usb:navi48,bridge={bridge}"), "scan"]);
        let found = &scan["enclosures"][0];
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        assert!(text("firmware").contains(firmware) && text("link").contains(link), "{found}");
        assert!(text("gpu").contains("1002:7550") && text("usb").contains("10 Gbit/s"), "{found}");
        assert!(found["problem"].is_null(), "{found}");
    }
    let dead = amdev_usb(&["--device", "sim-usb:navi48,fault=link-down:0", "scan"]);
    assert_eq!(dead.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&dead.stdout).contains("PCIe"), "{dead:?}");
    let bus = amdev_usb(&["--device", "sim:navi48", "scan"]);
    assert_eq!(bus.status.code(), Some(5), "no enclosure in between: {bus:?}");
}

#[test]
fn other_commands_work_behind_a_bridge() {
    let device = "sim-usb:navi48,state=amdev";
    let info = json(&["--json", "--device", device, "info"]);
    assert_eq!(info["target"], "gfx1201", "{info}");
    let smi = json(&["--json", "--device", device, "smi"]);
    assert!(smi["power_limit_w"].as_u64() > Some(0), "{smi}");
    let copy = json(&["--json", "--device", "sim-usb:navi48,bridge=custom", "copy", "--size", "1M"]);
    assert_eq!(copy["ok"], true, "{copy}");
    let reset = json(&["--json", "--device", device, "reset"]);
    assert_eq!(reset["reset_done"], true, "{reset}");
    let regs = json(&["--json", "--device", device, "regs", "read", "SCRATCH_REG7"]);
    assert!(regs.to_string().contains("SCRATCH_REG7"), "{regs}");
}

#[test]
fn faults_of_the_bridge_end_in_an_error_with_what_to_do() {
    for (fault, word) in [
        ("usb-unplug:900", "plug"),
        ("usb-lost:900", "plug"),
        ("usb-stall:900", "plug"),
        ("usb-short:900", "plug"),
        ("link-down:60", "link"),
    ] {
        let out = amdev_usb(&["--device", &format!("sim-usb:navi48,fault={fault}"), "demo"]);
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(matches!(out.status.code(), Some(1 | 3)), "{fault}: {out:?}");
        assert!(text.contains(word), "{fault}: {text}");
    }
}

#[test]
fn a_bridge_that_is_not_there_is_waited_for_as_long_as_asked() {
    let out = amdev_usb(&["--device", "usb:7", "--wait=0.2", "info"]);
    assert_eq!(out.status.code(), Some(3), "{out:?}");
    let out = amdev_usb(&["--device", "usb:7", "info"]);
    assert_eq!(out.status.code(), Some(3), "{out:?}");
}
