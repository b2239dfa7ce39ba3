//! Writes the seeds of the fuzz targets from the test data: `cargo run -p amdev-tests --example
//! fuzz_seeds`. Inputs that once made a target fail (`regression-*`) are left alone.

use amdev_core::ip::ih::Entry;
use amdev_core::ip::psp::wire::{Command, CommandBuffer, Frame};
use amdev_core::program::CodeObject;
use amdev_tests::fuzz::{self, Tree};
use amdev_tests::{corpus, golden, root};
use anyhow::{Context as _, Result};
use serde_json::Value;

const GPUS: [&str; 5] = ["navi31", "navi32", "navi33", "navi44", "navi48"];

/// Code objects of a few kilobytes that differ in target, version and features.
const OBJECTS: [&str; 12] = [
    "co/fill.gfx1030.v5.O2.co",
    "co/fill.gfx1100.v5.O2.co",
    "co/vecadd.gfx9-generic.v6.O2.co",
    "co/vecadd.gfx1100_w64.v5.O2.co",
    "co/vecadd.gfx942_preload.v5.O2.co",
    "co/vecadd.gfx1201.v4.O2.co",
    "co/dispatchptr.gfx1100.v6.O2.co",
    "co/implicit.gfx1100.v5.O2.co",
    "co/globals.gfx1100.v5.O2.co",
    "co/reduce_lds.gfx1201.v5.O2.co",
    "malformed/45-reloc-offset-outside.co",
    "malformed/40-note-huge-map.co",
];

fn main() -> Result<()> {
    code_objects()?;
    firmware()?;
    discovery()?;
    records()?;
    queues()?;
    for (i, text) in ARGUMENTS.iter().enumerate() {
        write("arguments", &format!("{i:02}"), text.as_bytes())?;
    }
    Ok(())
}

fn write(target: &str, name: &str, bytes: &[u8]) -> Result<()> {
    let dir = root().join("fuzz/seeds").join(target);
    std::fs::create_dir_all(&dir)?;
    std::fs::write(dir.join(name), bytes).with_context(|| dir.join(name).display().to_string())
}

fn with(first: u8, rest: &[u8]) -> Vec<u8> {
    [&[first], rest].concat()
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Objects; their notes; their instructions.
fn code_objects() -> Result<()> {
    for path in OBJECTS {
        let bytes = corpus(path)?;
        write("code_object", name_of(path), &bytes)?;
        let Ok(object) = CodeObject::parse(&bytes) else { continue };
        for m in object.metadata() {
            write("metadata", name_of(path), m?.data)?;
        }
        let Some(major) = object.isa().map(|isa| isa.major()) else { continue };
        if major < 11 {
            continue;
        }
        let gfx12 = u8::from(major == 12);
        for kernel in object.kernels() {
            let kernel = kernel?;
            let mut code = vec![0; kernel.code_size.unwrap_or(0) as usize];
            object.read_image(kernel.entry, &mut code);
            write("sim_isa", &format!("{}-step", name_of(path)), &with(gfx12, &code))?;
            write("sim_isa", &format!("{}-follow", name_of(path)), &with(gfx12 | 4, &code))?;
        }
    }
    let relocations = [(0, 5, 4, 0x10), (8, 3, 2, -8), (16, 10, 1, 0), (20, 11, 1, 0), (24, 4, 4, 4)];
    write("code_object", "relocatable", &fuzz::relocatable(&relocations))?;
    let every_kind = Tree::Array(vec![
        Tree::Nil,
        Tree::Bool(true),
        Tree::Uint(200),
        Tree::Uint(1 << 40),
        Tree::Int(-5),
        Tree::Int(-70_000),
        Tree::Float(1.5f64.to_bits()),
        Tree::Str("x".repeat(40)),
        Tree::Bin(vec![1, 2, 3]),
        Tree::Ext(-1, vec![0; 8]),
        Tree::Ext(7, vec![0; 3]),
        Tree::Map(vec![(Tree::Str("k".into()), Tree::Array(Vec::new()))]),
    ]);
    let mut bytes = Vec::new();
    every_kind.emit(&mut bytes);
    write("metadata", "every-kind", &bytes)
}

/// A small file of each header version.
fn firmware() -> Result<()> {
    for (n, format) in fuzz::formats().iter().enumerate() {
        let kind = amdev_fw::FileKind::ALL.iter().position(|k| *k == format.0).unwrap_or(0) as u8;
        let bytes = fuzz::sample(format, &[8, 4, 12]).emit()?;
        let (major, minor) = format.1;
        let name = format!("{n:02}-{}-{major}.{minor}", format.0.name());
        write("firmware", &name, &with(0x80 | kind, &bytes))?;
    }
    Ok(())
}

fn discovery() -> Result<()> {
    for gpu in GPUS {
        write("discovery", gpu, &with(1, &golden(&format!("{gpu}/discovery.bin"))?))?;
    }
    let wide = golden("navi31/discovery_base64_harvest.bin")?;
    write("discovery", "navi31-base64-harvest", &with(1, &wide))?;
    write("discovery", "navi31-base64-harvest-as-it-is", &with(0, &wide))
}

fn hex(value: &Value) -> Result<Vec<u8>> {
    let text = value.as_str().context("no hexadecimal text")?;
    (0..text.len() / 2).map(|i| Ok(u8::from_str_radix(&text[2 * i..2 * i + 2], 16)?)).collect()
}

fn records() -> Result<()> {
    // What the reference sends when it boots.
    let rows: Vec<Value> = serde_json::from_slice(&golden("navi31/psp.json")?)?;
    let sent = |id: u64| rows.iter().find(|r| r["kind"] == "cmd" && r["cmd_id"] == id);
    for id in [5, 6, 32, 33] {
        let row = sent(id).with_context(|| format!("no command {id}"))?;
        write("records", &format!("frame-{id}"), &with(fuzz::FRAME, &hex(&row["frame"])?))?;
        let mut command = hex(&row["cmd_buf"])?;
        command.resize(1024, 0);
        write("records", &format!("command-{id}"), &with(fuzz::COMMAND, &command))?;
    }
    let frame = Frame { command: u64::MAX, fence: 0x80_0010_6000, fence_value: 0xe1 };
    write("records", "frame-high", &with(fuzz::FRAME, &frame.emit()))?;
    let mut answered = CommandBuffer::new(&Command::Unknown(0x77));
    answered.response_bytes_mut().fill(0xa5);
    write("records", "command-answered", &with(fuzz::COMMAND, answered.as_bytes()))?;
    let entry = Entry {
        client: 0x14,
        source: 181,
        ring: 0x48,
        vmid: 7,
        vmid_mm: true,
        timestamp: 0x1234_5678_9abc,
        pasid: 0x8001,
        node: 3,
        data: [1, u32::MAX, 0, 0xdead_beef],
    };
    write("records", "ih-entry", &with(fuzz::IH_ENTRY, &entry.emit()))?;
    let span = |rptr: u32, wptr: u32, log: u8, overflow: u8| {
        [&rptr.to_le_bytes()[..], &wptr.to_le_bytes(), &[log, overflow]].concat()
    };
    write("records", "ih-span", &with(fuzz::IH_SPAN, &span(0, 0x40, 13, 0)))?;
    write("records", "ih-span-overflow", &with(fuzz::IH_SPAN, &span(0x3ffe0, 0x21, 13, 1)))?;
    let object = corpus("co/vecadd.gfx942_preload.v5.O2.co")?;
    let kernel = CodeObject::parse(&object)?.only_kernel()?;
    write("records", "descriptor", &with(fuzz::DESCRIPTOR, &kernel.descriptor.emit()))?;
    let mqds: Value = serde_json::from_slice(&golden("navi31/mqd.json")?)?;
    let mut words = vec![0u32; 512];
    for (index, value) in mqds["compute_pci"]["mqd_dwords_nonzero"].as_object().context("no MQD")? {
        let text = value.as_str().context("no word")?.trim_start_matches("0x");
        words[index.parse::<usize>()?] = u32::from_str_radix(text, 16)?;
    }
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    write("records", "mqd", &with(fuzz::MQD, &bytes))?;
    write("records", "dispatch-packet", &with(fuzz::DISPATCH, &(0..64).collect::<Vec<u8>>()))
}

/// Packets that the reference sends, for the decoders of driver and simulator.
fn queues() -> Result<()> {
    let all: Value = serde_json::from_slice(&golden("queues.json")?)?;
    let words = |case: &Value| -> Vec<u8> {
        let list = case["dwords"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let list = list.filter_map(|w| u32::from_str_radix(w.trim_start_matches("0x"), 16).ok());
        list.flat_map(u32::to_le_bytes).collect()
    };
    // Engine of the simulator: compute of gfx11, gfx12, gfx9, then SDMA 4.4, 5.2, 6, 7.
    for (gpu, compute, sdma) in [("gfx942", 2, 3), ("gfx1030", 0, 4), ("gfx1100", 0, 5), ("gfx1201", 1, 6)] {
        for (kind, engine, decoder) in [("compute", compute, 0), ("copy", sdma, 1)] {
            let cases = all["targets"][gpu][kind]["kfd"].as_array().context("no packets")?;
            for (n, case) in cases.iter().enumerate().filter(|(n, _)| n % 4 == 0) {
                let bytes = words(case);
                if bytes.is_empty() || bytes.len() > 4096 {
                    continue;
                }
                let name = format!("{gpu}-{kind}-{n:02}");
                write("packets", &name, &with(decoder, &bytes))?;
                write("sim_queues", &name, &with(engine, &bytes))?;
            }
        }
    }
    for which in [2, 3] {
        let bytes: Vec<u8> =
            (0..8 * 4u32).flat_map(|i| (i / 4 + i % 4 * 0x1111_1111).to_le_bytes()).collect();
        write("packets", &format!("encoders-{which}"), &with(which, &bytes))?;
    }
    Ok(())
}

const ARGUMENTS: &[&str] = &[
    "u32=7",
    "f32=1.5",
    "f16=-0.000061",
    "f64=1e-320",
    "i8=-128",
    "u64=0xffff_ffff_ffff_ffff",
    "f32=nan",
    "f32=inf",
    "in:f32:iota:1024",
    "in:u64:const(value=0x10):3",
    "in:i16:iota(start=-5,step=3):100",
    "inout:f32:lcg_unit(seed=5):308",
    "inout:f32:lcg_eighth(5):308:@y.bin",
    "in:u32:lcg_mod(seed=1,mod=7):4K",
    "in:i32:lcg_small(seed=1,mod=16):64",
    "in:u32:@file",
    "inout:i8:@a:@b",
    "out:f32:1024",
    "out:u8:4K:@file",
    "1G",
    "sim:navi31,bar=256M",
    "sim-usb:navi48,bridge=patched",
    "sim-kfd:gfx942",
    "pci:0000:03:00.0",
    "0000:1f.7",
    "vfio-user:/run/gpu",
    "kfd:1",
    "usb",
];
