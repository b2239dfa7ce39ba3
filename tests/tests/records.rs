//! Records of fixed length that the reference made: read, compared, written again.

use amdev_core::discovery;
use amdev_core::ip::psp::wire::{Command, CommandBuffer, Frame};
use amdev_core::queue::mqd::{MQD_DWORDS, Mqd, word};
use amdev_core::reg::{Block, RegFile, tables};
use amdev_tests::golden;
use serde_json::Value;

const GPUS: [&str; 5] = ["navi31", "navi32", "navi33", "navi44", "navi48"];

/// A file of each GPU that has it.
fn given(name: &str) -> Vec<(&'static str, Value)> {
    let read = |gpu| golden(&format!("{gpu}/{name}")).ok();
    let files = GPUS.into_iter().filter_map(|gpu| Some((gpu, read(gpu)?)));
    files.map(|(gpu, bytes)| (gpu, serde_json::from_slice(&bytes).unwrap())).collect()
}

fn number(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

fn bytes(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap();
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

fn registers(gpu: &str) -> RegFile {
    let ips = discovery::parse(&golden(&format!("{gpu}/discovery.bin")).unwrap()).unwrap();
    let mut regs = RegFile::new();
    let table = tables::for_version(Block::Gc, ips.version(Block::Gc).unwrap()).unwrap();
    regs.set(table, ips.bases(Block::Gc, 0).unwrap());
    regs
}

#[test]
fn frames_and_commands_of_a_boot_are_written_as_they_were_read() {
    let mut count = 0;
    for (gpu, rows) in given("psp.json") {
        for row in rows.as_array().unwrap().iter().filter(|r| r["kind"] == "cmd") {
            let frame = bytes(&row["frame"]);
            let parsed = Frame::parse(&frame).unwrap();
            assert_eq!(u64::from(parsed.fence_value), row["fence_value"].as_u64().unwrap());
            assert_eq!(parsed.emit()[..], frame);

            let mut raw = bytes(&row["cmd_buf"]);
            raw.resize(1024, 0);
            let buffer = CommandBuffer::parse(&raw).unwrap();
            let command = buffer.command();
            assert_eq!(u64::from(command.id()), row["cmd_id"].as_u64().unwrap());
            assert!(!matches!(command, Command::Unknown(_)), "{gpu}: {command:?}");
            assert_eq!(CommandBuffer::new(&command).as_bytes(), raw, "{gpu}: {command:?}");
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
}

#[test]
fn the_queue_of_a_golden_mqd_is_read_out_of_it() {
    let mut count = 0;
    for (gpu, cases) in given("mqd.json") {
        let regs = registers(gpu);
        for (name, case) in cases.as_object().unwrap() {
            let mut words = [0u32; MQD_DWORDS];
            for (index, value) in case["mqd_dwords_nonzero"].as_object().unwrap() {
                words[index.parse::<usize>().unwrap()] = number(value) as u32;
            }
            if words[word::HEADER] == 0 {
                continue; // SDMA queues have another layout
            }
            let raw: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            let mqd = Mqd::parse(&raw).unwrap();
            assert_eq!(mqd.as_bytes(), raw);
            let queue = mqd.queue(&regs).unwrap_or_else(|e| panic!("{gpu} {name}: {e}"));
            let args = &case["args"];
            let said = |key: &str| number(&args[key]);
            assert_eq!(queue.ring, said("ring_addr"), "{gpu} {name}");
            assert_eq!(u64::from(queue.len), said("ring_size"), "{gpu} {name}");
            assert_eq!((queue.rptr, queue.wptr), (said("rptr_addr"), said("wptr_addr")), "{gpu} {name}");
            assert_eq!((queue.eop, u64::from(queue.eop_len)), (said("eop_addr"), said("eop_size")));
            assert_eq!(u64::from(queue.doorbell), said("doorbell"), "{gpu} {name}");
            // What is made of it says the same.
            let made = Mqd::compute(&regs, &queue).unwrap();
            assert_eq!(Mqd::parse(made.as_bytes()).unwrap().queue(&regs).unwrap(), queue);
            count += 1;
        }
    }
    assert!(count >= 3, "{count}");
}

#[test]
fn an_mqd_that_is_none_is_refused() {
    let regs = registers("navi31");
    assert!(Mqd::parse(&[0; 2047]).is_none());
    let error = Mqd::parse(&[0; 2048]).unwrap().queue(&regs).unwrap_err().to_string();
    assert!(error.contains("header"), "{error}");
}
