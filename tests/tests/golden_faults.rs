//! VM faults as the reference decoded them.

use amdev_core::discovery;
use amdev_core::fault::{Permission, decode};
use amdev_core::reg::{Block, Hub, RegFile, tables};
use serde_json::Value;

fn registers(gpu: &str) -> RegFile {
    let table = amdev_tests::golden(&format!("{gpu}/discovery.bin")).unwrap();
    let ips = discovery::parse(&table).unwrap();
    let mut regs = RegFile::new();
    for block in [Block::Gc, Block::Mmhub] {
        let table = tables::for_version(block, ips.version(block).unwrap()).unwrap();
        regs.set(table, ips.bases(block, 0).unwrap());
    }
    regs
}

fn hex(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

/// A field of the reference's message, `'cid': 13`.
fn field(text: &str, name: &str) -> u64 {
    let key = format!("'{name}': ");
    let rest = &text[text.find(&key).unwrap() + key.len()..];
    rest[..rest.find([',', '}']).unwrap()].parse().unwrap()
}

#[test]
fn faults_of_both_hubs_have_the_fields_and_the_address_that_the_reference_reads() {
    for (gpu, names) in [("navi31", ["DBGU3", "SDMA0"]), ("navi48", ["unknown", "SDMA0"])] {
        let regs = registers(gpu);
        let faults: Vec<Value> =
            serde_json::from_slice(&amdev_tests::golden(&format!("{gpu}/faults.json")).unwrap()).unwrap();
        assert_eq!(faults.len(), 2);
        for (golden, client) in faults.iter().zip(names) {
            let hub = if golden["ip"] == "GC" { Hub::Gc } else { Hub::Mm };
            let page = hex(&golden["addr_hi"]) << 32 | hex(&golden["addr_lo"]);
            let fault = decode(&regs, hub, hex(&golden["status"]) as u32, page).unwrap();
            let text = golden["error"].as_str().unwrap();
            assert_eq!(u64::from(fault.more), field(text, "more_faults"));
            assert_eq!(u64::from(fault.walker_error), field(text, "walker_error"));
            assert_eq!(u64::from(fault.permission.bits()), field(text, "permission_faults"));
            assert_eq!(u64::from(fault.mapping_error), field(text, "mapping_error"));
            assert_eq!(u64::from(fault.client), field(text, "cid"));
            assert_eq!(u64::from(fault.write), field(text, "rw"));
            assert_eq!(u64::from(fault.atomic), field(text, "atomic"));
            assert_eq!(u64::from(fault.vmid), field(text, "vmid"));
            assert_eq!(u64::from(fault.prt), field(text, "prt"));
            assert!(text.ends_with(&format!("{:#x}", fault.address)), "{text}: {:#x}", fault.address);
            assert_eq!(fault.permission, Permission::VALID | Permission::WRITE);
            assert_eq!((fault.hub, fault.client_name), (hub, client));
        }
    }
}
