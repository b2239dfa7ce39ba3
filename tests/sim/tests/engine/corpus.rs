//! Kernels of the corpus, run through a compute queue as a driver would: packets in a ring.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses a part")]

use super::{Plain, data, json, read};
use amdev_sim::cp::{ComputeQueue, ComputeQueueConfig};
use amdev_sim::env::Progress;
use amdev_sim::isa::Target;
use serde_json::Value;
use sha2::Digest;

/// Where things lie.
pub const IMAGE: u64 = 0x7f12_3400_0000;
pub const KERNARG: u64 = 0x2000_0000_0000;
pub const PACKET: u64 = 0x2000_0001_0000;
pub const RING: u64 = 0x2000_1000_0000;
pub const RPTR: u64 = 0x2000_2000_0000;
pub const SIGNAL: u64 = 0x2000_2000_1000;
pub const BUFFERS: u64 = 0x2000_4000_0000;
pub const SCRATCH: u64 = 0x2000_8000_0000;
pub const RING_DWORDS: u64 = 1024;

pub fn num(v: &Value) -> u64 {
    v.as_u64().unwrap_or_else(|| panic!("number expected: {v}"))
}

fn size_of(dtype: &str) -> usize {
    dtype[1..].parse::<usize>().expect("dtype") / 8
}

fn lcg(x: u32) -> u32 {
    x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)
}

fn scalar(dtype: &str, v: f64) -> Vec<u8> {
    match dtype {
        "f16" => half::f16::from_f64(v).to_bits().to_le_bytes().to_vec(),
        "f32" => (v as f32).to_le_bytes().to_vec(),
        "f64" => v.to_le_bytes().to_vec(),
        _ => (v as i128).to_le_bytes()[..size_of(dtype)].to_vec(),
    }
}

/// A buffer's initial contents.
pub fn generate(dtype: &str, count: usize, init: &Value) -> Vec<u8> {
    let mut x = init["seed"].as_u64().unwrap_or(0) as u32;
    let modulus = init["mod"].as_u64().unwrap_or(1) as u32;
    let mut next = || {
        x = lcg(x);
        x
    };
    let mut out = Vec::new();
    for n in 0..count {
        let value = match init["gen"].as_str().expect("gen") {
            "zero" => 0.0,
            "const" => init["value"].as_f64().expect("value"),
            "iota" => init["start"].as_f64().unwrap_or(0.0) + init["step"].as_f64().unwrap_or(1.0) * n as f64,
            "lcg" if size_of(dtype) == 8 => {
                out.extend_from_slice(&next().to_le_bytes());
                out.extend_from_slice(&next().to_le_bytes());
                continue;
            }
            "lcg" => next().into(),
            "lcg_mod" => (next() % modulus).into(),
            "lcg_unit" => f64::from(next() >> 8) / f64::from(1 << 24),
            "lcg_small" => f64::from((next() >> 24) % modulus) - f64::from(modulus / 2),
            "lcg_eighth" => (f64::from(next() >> 20 & 0xff) - 128.0) * 0.125,
            other => panic!("generator {other}"),
        };
        out.extend(scalar(dtype, value));
    }
    out
}

pub fn sha256(bytes: &[u8]) -> String {
    sha2::Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// Records of facts about the objects of a kernel.
pub fn facts(object: &str) -> Vec<Value> {
    json(&data(&format!("corpus/facts/{object}.json"))).as_array().expect("list").clone()
}

/// Loads an object: segments, relocations.
pub fn load(env: &mut Plain, fact: &Value) {
    let file = read(&data("corpus/co").join(fact["file"].as_str().expect("file")));
    let elf = &fact["elf"];
    env.map(IMAGE, num(&elf["image_size"]));
    for s in elf["load_segments"].as_array().expect("segments") {
        let (offset, size) = (num(&s["offset"]) as usize, num(&s["filesz"]) as usize);
        env.put(IMAGE + num(&s["vaddr"]), &file[offset..offset + size]);
    }
    for r in elf["relocations"].as_array().expect("relocations") {
        let symbol = r["sym_value"].as_u64().unwrap_or(0);
        let value = IMAGE.wrapping_add(symbol).wrapping_add_signed(r["addend"].as_i64().unwrap_or(0));
        env.put(IMAGE + num(&r["offset"]), &value.to_le_bytes());
    }
}

/// Appends a type-3 packet.
pub fn packet(words: &mut Vec<u32>, op: u32, body: &[u32]) {
    words.push(0xc000_0000 | (body.len() as u32 - 1) << 16 | op << 8);
    words.extend_from_slice(body);
}

/// SET_SH_REG by absolute dword address.
pub fn set_sh(words: &mut Vec<u32>, addr: u32, values: &[u32]) {
    let mut body = vec![addr - 0x2c00];
    body.extend_from_slice(values);
    packet(words, 0x76, &body);
}

/// A compute queue on [`RING`].
pub fn queue(env: &mut Plain, target: Target, vmid: u8) -> ComputeQueue {
    env.map(RING, 4 * RING_DWORDS);
    env.map(RPTR, 0x2000);
    ComputeQueue::new(ComputeQueueConfig {
        target,
        me: 1,
        pipe: 0,
        queue: 0,
        vmid,
        ring_va: RING,
        ring_dwords: RING_DWORDS,
        rptr: 0,
        wptr: 0,
        rptr_report_va: RPTR,
        eop_va: RPTR + 0x1000,
        eop_dwords: 512,
    })
}

/// Writes packets into the ring and rings the doorbell.
pub fn submit(env: &mut Plain, queue: &mut ComputeQueue, words: &[u32]) {
    for (n, w) in words.iter().enumerate() {
        let at = (queue.wptr() + n as u64) % RING_DWORDS;
        env.put_words(RING + 4 * at, &[*w]);
    }
    let wptr = queue.wptr() + words.len() as u64;
    queue.set_wptr(env, wptr);
}

/// Fills kernel arguments from a case; returns the buffers' addresses in order of arguments.
fn arguments(env: &mut Plain, case: &Value, kernel: &Value) -> (Vec<u8>, Vec<Option<u64>>) {
    let mut kernarg = vec![0u8; num(&kernel["kernarg_size"]) as usize];
    let metadata = kernel["metadata"]["args"].as_array().expect("args");
    let mut put = |offset: u64, bytes: &[u8]| {
        kernarg[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
    };
    let mut buffers = Vec::new();
    let mut next = BUFFERS;
    for (arg, meta) in case["args"].as_array().expect("args").iter().zip(metadata) {
        let (offset, size) = (num(&meta["offset"]), num(&meta["size"]) as usize);
        let dtype = arg["dtype"].as_str().expect("dtype");
        if arg["kind"] == "value" {
            put(offset, &scalar(dtype, arg["value"].as_f64().expect("value"))[..size]);
            buffers.push(None);
        } else {
            let bytes = generate(dtype, num(&arg["count"]) as usize, &arg["init"]);
            assert_eq!(
                sha256(&bytes),
                arg["init_sha256"].as_str().expect("sha"),
                "generator of {}",
                arg["name"]
            );
            env.put(next, &bytes);
            put(offset, &next.to_le_bytes());
            buffers.push(Some(next));
            // A hole after each buffer: what runs over its end faults.
            next = (next + bytes.len() as u64 + 0x2fff) & !0xfff;
        }
    }
    let implicit = &case["implicit"];
    for meta in metadata {
        let kind = meta["value_kind"].as_str().expect("kind");
        let axis = match kind.as_bytes().last() {
            Some(b'y') => 1,
            Some(b'z') => 2,
            _ => 0,
        };
        let name = match kind {
            "hidden_grid_dims" => "grid_dims",
            _ => kind.strip_prefix("hidden_").map_or("", |k| &k[..k.len() - 2]),
        };
        let value = if implicit[name].is_array() { &implicit[name][axis] } else { &implicit[name] };
        if let Some(value) = value.as_u64() {
            put(num(&meta["offset"]), &value.to_le_bytes()[..num(&meta["size"]) as usize]);
        }
    }
    (kernarg, buffers)
}

/// Packets of a dispatch.
pub fn dispatch_packets(kernel: &Value, wave32: bool, grid: [u32; 3], block: [u32; 3]) -> Vec<u32> {
    let mut w = Vec::new();
    let entry = (IMAGE + num(&kernel["entry"]["vaddr"])) >> 8;
    set_sh(&mut w, 0x2e0c, &[entry as u32, (entry >> 32) as u32]);
    let lds = num(&kernel["group_segment_size"]).div_ceil(512) as u32;
    let rsrc2 = num(&kernel["compute_pgm_rsrc2"]) as u32 | lds << 15;
    set_sh(&mut w, 0x2e12, &[num(&kernel["compute_pgm_rsrc1"]) as u32, rsrc2]);
    set_sh(&mut w, 0x2e10, &[(SCRATCH >> 8) as u32, (SCRATCH >> 40) as u32]);
    let per_wave = (num(&kernel["private_segment_size"]) * if wave32 { 32 } else { 64 }).div_ceil(256) as u32;
    set_sh(&mut w, 0x2e18, &[64 | per_wave << 12]);
    set_sh(&mut w, 0x2e16, &[u32::MAX, u32::MAX]);
    let mut user = Vec::new();
    for sgpr in kernel["user_sgprs"].as_array().expect("user_sgprs") {
        let address = match sgpr[0].as_str().expect("name") {
            "kernarg_segment_ptr" => KERNARG,
            "dispatch_ptr" => PACKET,
            "dispatch_id" | "queue_ptr" => 0,
            other => panic!("user register {other}"),
        };
        user.extend_from_slice(&[address as u32, (address >> 32) as u32]);
    }
    set_sh(&mut w, 0x2e40, &user);
    set_sh(&mut w, 0x2e04, &[0, 0, 0, block[0], block[1], block[2], 0, 0]);
    let initiator = 0x5 | if wave32 { 0x8000 } else { 0 };
    packet(&mut w, 0x15, &[grid[0], grid[1], grid[2], initiator]);
    packet(&mut w, 0x46, &[0x407]);
    packet(&mut w, 0x49, &[0x70_f514, 0x2200_0000, SIGNAL as u32, (SIGNAL >> 32) as u32, 0x1234, 0, 7]);
    w
}

/// Runs a case on an object; an error says what differs.
pub fn run(case: &Value, fact: &Value, target: Target) -> Result<(), String> {
    let mut env = Plain::default();
    load(&mut env, fact);
    let kernels = fact["kernels"].as_array().expect("kernels");
    let kernel = kernels.iter().find(|k| k["name"] == case["kernel"]).expect("kernel");
    let three = |v: &Value| [0, 1, 2].map(|n| num(&v[n]) as u32);
    let (grid, block) = (three(&case["grid"]), three(&case["block"]));
    let (kernarg, buffers) = arguments(&mut env, case, kernel);
    env.put(KERNARG, &kernarg);
    // hsa_kernel_dispatch_packet_t.
    let mut aql = [0u8; 64];
    for n in 0..3 {
        aql[4 + 2 * n..6 + 2 * n].copy_from_slice(&(block[n] as u16).to_le_bytes());
        aql[12 + 4 * n..16 + 4 * n].copy_from_slice(&(grid[n] * block[n]).to_le_bytes());
    }
    aql[40..48].copy_from_slice(&KERNARG.to_le_bytes());
    env.put(PACKET, &aql);
    let wave32 = kernel["wavefront32"].as_bool().expect("wavefront32");
    let private = num(&kernel["private_segment_size"]);
    if private != 0 {
        env.map(SCRATCH, 64 * (private * 64).next_multiple_of(256));
    }
    let mut queue = queue(&mut env, target, 3);
    submit(&mut env, &mut queue, &dispatch_packets(kernel, wave32, grid, block));
    let mut progress = Progress::Busy;
    for _ in 0..10_000 {
        progress = queue.run(&mut env, 10_000);
        if progress != Progress::Busy {
            break;
        }
    }
    if progress != Progress::Idle || !env.violations.is_empty() || !env.faults.is_empty() {
        return Err(format!(
            "{progress:?}, violations {:?}, faults {:x?}",
            env.violations,
            env.faults.first()
        ));
    }
    if env.word(SIGNAL) != 0x1234 {
        return Err("the signal was not written".into());
    }
    for (arg, va) in case["args"].as_array().expect("args").iter().zip(buffers) {
        let Some(va) = va else { continue };
        let size = size_of(arg["dtype"].as_str().expect("dtype"));
        let bytes = env.get(va, num(&arg["count"]) as usize * size);
        if sha256(&bytes) != arg["expect"]["sha256"].as_str().expect("sha256") {
            let first: Vec<String> = bytes
                .chunks(size)
                .take(8)
                .map(|c| c.iter().rev().map(|b| format!("{b:02x}")).collect())
                .collect();
            return Err(format!("{}: {first:?}, expected {}", arg["name"], arg["expect"]["first8_bits"]));
        }
    }
    Ok(())
}

/// All cases with the objects of a target that they are for.
pub fn cases(target: &str) -> Vec<(Value, Value)> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(data("corpus/cases")).expect("cases") {
        for case in json(&entry.expect("entry").path()).as_array().expect("list") {
            for fact in facts(case["object"].as_str().expect("object")) {
                if fact["elf"]["target"] != target {
                    continue;
                }
                let version = num(&fact["elf"]["code_object_version"]);
                let versions = case["code_object_version"].as_array();
                if versions.is_none_or(|v| v.iter().any(|x| num(x) == version)) {
                    out.push((case.clone(), fact));
                }
            }
        }
    }
    out
}
