//! Compiled kernels on the whole strict device: page tables, doorbell, command processor, shader
//! cores, release packet, interrupt.

mod common;
mod engine;

use common::{Driver, HEAP, VA};
use engine::corpus::{cases, generate, num, packet, set_sh, sha256};
use engine::{data, read};

const CODE: u64 = 0x1_0000;
const KERNARG: u64 = 0x8000;
const SIGNAL: u64 = 0x9000;
const BUFFERS: u64 = 0x4_0000;

fn run(gpu: &str, target: &str) {
    let mut d = Driver::new(gpu);
    d.boot();
    d.compute_queue(VA + 0x4000, 0x400);
    let mut wptr = 0u64;
    let all = cases(target).into_iter().filter(|(c, _)| c["object"] == "vecadd");
    let mut count = 0;
    for (case, fact) in all {
        let kernels = fact["kernels"].as_array().unwrap();
        let kernel = kernels.iter().find(|k| k["name"] == case["kernel"]).unwrap();
        // Unoptimised objects want more than their arguments in registers; `kernels.rs` has them.
        if kernel["user_sgprs"][0][0] != "kernarg_segment_ptr" {
            continue;
        }
        count += 1;
        let file = read(&data("corpus/co").join(fact["file"].as_str().unwrap()));
        for s in fact["elf"]["load_segments"].as_array().unwrap() {
            let (at, len) = (num(&s["offset"]) as usize, num(&s["filesz"]) as usize);
            d.vram(HEAP + CODE + num(&s["vaddr"]), &file[at..at + len]);
        }
        let mut next = BUFFERS;
        let mut kernarg = vec![0u8; num(&kernel["kernarg_size"]) as usize];
        let mut buffers = Vec::new();
        for (arg, meta) in
            case["args"].as_array().unwrap().iter().zip(kernel["metadata"]["args"].as_array().unwrap())
        {
            let at = num(&meta["offset"]) as usize;
            if arg["kind"] == "value" {
                let value = num(&arg["value"]) as u32;
                kernarg[at..at + 4].copy_from_slice(&value.to_le_bytes());
                continue;
            }
            let bytes = generate(arg["dtype"].as_str().unwrap(), num(&arg["count"]) as usize, &arg["init"]);
            d.vram(HEAP + next, &bytes);
            kernarg[at..at + 8].copy_from_slice(&(VA + next).to_le_bytes());
            buffers.push((next, bytes.len(), arg["expect"]["sha256"].as_str().unwrap().to_owned()));
            next += (bytes.len() as u64 + 0xfff) & !0xfff;
        }
        d.vram(HEAP + KERNARG, &kernarg);
        d.vram(HEAP + SIGNAL, &[0; 8]);
        let (grid, block) = (&case["grid"], &case["block"]);
        let at = |v: &serde_json::Value, n: usize| num(&v[n]) as u32;
        let mut w = Vec::new();
        let entry = (VA + CODE + num(&kernel["entry"]["vaddr"])) >> 8;
        set_sh(&mut w, 0x2e0c, &[entry as u32, (entry >> 32) as u32]);
        let rsrc = |n: &str| num(&kernel[n]) as u32;
        set_sh(&mut w, 0x2e12, &[rsrc("compute_pgm_rsrc1"), rsrc("compute_pgm_rsrc2")]);
        set_sh(&mut w, 0x2e18, &[0]);
        set_sh(&mut w, 0x2e16, &[u32::MAX, u32::MAX]);
        let arg = VA + KERNARG;
        set_sh(&mut w, 0x2e40, &[arg as u32, (arg >> 32) as u32]);
        set_sh(&mut w, 0x2e04, &[0, 0, 0, at(block, 0), at(block, 1), at(block, 2), 0, 0]);
        let wave32 = u32::from(kernel["wavefront32"].as_bool().unwrap());
        packet(&mut w, 0x15, &[at(grid, 0), at(grid, 1), at(grid, 2), 5 | wave32 << 15]);
        packet(&mut w, 0x46, &[0x407]);
        let signal = VA + SIGNAL;
        packet(&mut w, 0x49, &[0x70_f514, 0x2200_0000, signal as u32, (signal >> 32) as u32, 0x1234, 0, 7]);
        for (i, word) in w.iter().enumerate() {
            let at = (wptr + i as u64) % 0x400;
            d.vram(HEAP + 0x4000 + at * 4, &word.to_le_bytes());
        }
        wptr += w.len() as u64;
        d.hdp();
        d.ring(6, wptr);
        let mut waited = 0;
        while d.read(HEAP + SIGNAL, 2) != [0x34, 0x12] {
            d.gpu.advance_us(100);
            waited += 1;
            assert!(waited < 1000, "{gpu} {}: no signal; {:?}", case["id"], d.gpu.violations());
        }
        for (at, len, want) in buffers {
            assert_eq!(sha256(&d.read(HEAP + at, len)), want, "{gpu} {} {}", case["id"], fact["file"]);
        }
        assert_eq!(d.gpu.violations(), [], "{gpu} {}", case["id"]);
        d.w("IH_RB_RPTR", d.r("IH_RB_WPTR"));
    }
    assert!(count > 0, "no cases for {target}");
    assert!(d.gpu.take_interrupts() > 0, "the release packet asks for an interrupt");
}

#[test]
fn vecadd_runs_on_navi31_without_a_violation() {
    run("navi31", "gfx1100");
}

#[test]
fn vecadd_runs_on_navi48_without_a_violation() {
    run("navi48", "gfx1201");
}
