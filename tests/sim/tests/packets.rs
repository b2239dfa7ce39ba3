//! The queues' packets: what the reference submits is accepted, what is malformed is refused.

mod engine;

use amdev_sim::cp::{ComputeQueue, ComputeQueueConfig};
use amdev_sim::env::Progress;
use amdev_sim::isa::{Target, decode};
use amdev_sim::sdma::{SdmaQueue, SdmaQueueConfig, SdmaVersion};
use amdev_sim::violation::Rule;
use engine::Plain;
use engine::corpus::{self, RING, RING_DWORDS, RPTR, SIGNAL, packet};
use proptest::prelude::*;

fn words(case: &serde_json::Value) -> Vec<u32> {
    let list = case["dwords"].as_array().expect("dwords");
    list.iter()
        .map(|w| u32::from_str_radix(w.as_str().expect("hex").trim_start_matches("0x"), 16).expect("hex"))
        .collect()
}

fn compute(w: &[u32]) -> (Plain, ComputeQueue, Progress) {
    let mut env = Plain::default();
    let mut queue = corpus::queue(&mut env, Target::Gfx11, 3);
    corpus::submit(&mut env, &mut queue, w);
    let progress = queue.run(&mut env, 1000);
    (env, queue, progress)
}

fn refused(w: &[u32], part: &str) {
    let (env, queue, progress) = compute(w);
    assert_eq!(progress, Progress::Halted, "{w:x?}");
    assert_eq!(env.violations.len(), 1, "{:?}", env.violations);
    assert_eq!(env.violations[0].rule, Rule::MalformedPacket);
    assert!(env.violations[0].detail.contains(part), "{}", env.violations[0]);
    // Bad opcode interrupt of the queue: client GRBM_CP, me 1.
    assert_eq!((env.interrupts[0].client, env.interrupts[0].source, env.interrupts[0].ring), (0x14, 183, 4));
    assert_eq!(queue.rptr(), 0);
}

#[test]
fn the_references_compute_packets_are_accepted() {
    let golden = engine::json(&engine::data("golden/queues.json"));
    let mut count = 0;
    for case in golden["targets"]["gfx1100"]["compute"]["am"].as_array().expect("cases") {
        let name = case["name"].as_str().expect("name");
        // Dispatches of made-up programs, and streams that wait, are judged elsewhere. Addresses of
        // zero are the encoder's defaults.
        let tested = ["signal", "timestamp", "acquire_mem", "release_mem_full", "pred_exec"];
        if !tested.iter().any(|t| name.starts_with(t)) || case["dwords"].is_null() {
            continue;
        }
        let mut env = Plain::default();
        env.map(0x2000_0001_0000, 4096);
        let mut queue = corpus::queue(&mut env, Target::Gfx11, 3);
        corpus::submit(&mut env, &mut queue, &words(case));
        assert_eq!(
            queue.run(&mut env, 1000),
            Progress::Idle,
            "{name}: {:?} {:x?}",
            env.violations,
            env.faults
        );
        assert!(env.violations.is_empty(), "{name}: {:?}", env.violations);
        count += 1;
    }
    assert!(count >= 14, "{count} cases");
}

#[test]
fn release_mem_writes_its_value_and_interrupts_with_its_context() {
    let mut w = Vec::new();
    packet(&mut w, 0x49, &[0x514, 0x4200_0000, SIGNAL as u32, (SIGNAL >> 32) as u32, 0x2345_6789, 1, 9]);
    let (env, queue, progress) = compute(&w);
    assert_eq!(progress, Progress::Idle);
    assert_eq!(env.get(SIGNAL, 8), 0x1_2345_6789u64.to_le_bytes());
    let i = env.interrupts[0];
    assert_eq!((i.client, i.source, i.ring, i.vmid, i.data[0]), (0x14, 181, 4, 3, 9));
    assert_eq!(env.get(RPTR, 8), queue.rptr().to_le_bytes());
}

#[test]
fn a_wait_is_retried_until_memory_has_the_value() {
    let mut w = Vec::new();
    packet(&mut w, 0x3c, &[0x15, SIGNAL as u32, (SIGNAL >> 32) as u32, 5, u32::MAX, 4]);
    let (mut env, mut queue, progress) = compute(&w);
    assert_eq!(progress, Progress::Waiting);
    assert_eq!(queue.run(&mut env, 1000), Progress::Waiting);
    env.put_words(SIGNAL, &[6]);
    assert_eq!(queue.run(&mut env, 1000), Progress::Idle);
    assert!(env.violations.is_empty());
}

#[test]
fn a_flush_writes_its_request_once_and_waits_for_the_answer() {
    let mut w = Vec::new();
    packet(&mut w, 0x3c, &[0x45, 0xe26, 0xe27, u32::MAX, u32::MAX, 4]);
    let (mut env, mut queue, progress) = compute(&w);
    assert_eq!(progress, Progress::Waiting);
    assert_eq!(env.regs.insert(0xe26, 0), Some(u32::MAX));
    assert_eq!(queue.run(&mut env, 1000), Progress::Waiting);
    assert_eq!(env.regs[&0xe26], 0);
    env.regs.insert(0xe27, u32::MAX);
    assert_eq!(queue.run(&mut env, 1000), Progress::Idle);
}

#[test]
fn packets_run_on_after_an_indirect_buffer_and_across_the_rings_end() {
    let mut env = Plain::default();
    let mut ib = Vec::new();
    packet(&mut ib, 0x37, &[0x10_0500, SIGNAL as u32, (SIGNAL >> 32) as u32, 77]);
    env.put_words(0x5000_0000, &ib);
    let mut queue = corpus::queue(&mut env, Target::Gfx11, 3);
    corpus::submit(&mut env, &mut queue, &vec![0xffff_1000; RING_DWORDS as usize - 2]);
    while queue.run(&mut env, 4096) == Progress::Busy {}
    let mut w = Vec::new();
    packet(&mut w, 0x3f, &[0x5000_0000, 0, 0x80_0000 | ib.len() as u32]);
    packet(&mut w, 0x37, &[0x10_0500, SIGNAL as u32 + 4, (SIGNAL >> 32) as u32, 78]);
    corpus::submit(&mut env, &mut queue, &w);
    assert_eq!(queue.run(&mut env, 4096), Progress::Idle, "{:?}", env.violations);
    assert_eq!((env.word(SIGNAL), env.word(SIGNAL + 4)), (77, 78));
}

#[test]
fn malformed_compute_packets_are_refused() {
    refused(&[0x8000_0000], "type 2");
    refused(&[0xc000_ff00, 0], "unknown operation");
    refused(&[0xc000_1080, 0], "reserved bits");
    refused(&[0xc004_4900, 0x514, 0, 0, 0, 0], "not (7, 7)");
    refused(&[0xc006_4900, 0x514, 0x2200_0000], "cut off");
    refused(&[0xc001_7600, 0x400, 1], "outside");
    refused(&[0xc001_7600, 0x1_0000, 1], "reserved");
    refused(&[0xc006_5800, 0, 0, 0, 0, 0, 0, 0x8_0000], "reserved");
    refused(&[0xc000_4600, 0x7], "needs index 4");
    refused(&[0xc006_4900, 0x528 | 1 << 7, 0, 0, 0, 0, 0, 0], "reserved");
    refused(&[0xc002_3f00, 0x5000_0000, 0, 8], "valid bit");
    // Registers have 18 bits of address, wherever a packet names one.
    refused(&[0xc004_4000, 0x1_0000, u32::MAX, 0, 0, 0], "reserved");
    refused(&[0xc004_4000, 0x1_0005, 1, 0, u32::MAX, 0], "reserved");
    refused(&[0xc003_3700, 0, u32::MAX, 0, 1], "reserved");
    refused(&[0xc005_3c00, 0x43, 0xe26, u32::MAX, 1, 1, 4], "reserved");
    refused(&[0xc005_5000, 0x2000_0000, 0, 0, 0, 0, 4], "source 1");
}

#[test]
fn a_long_dma_copies_in_parts_and_needs_no_memory_for_what_is_not_there() {
    let bytes: Vec<u8> = (0..0x3_0004u32).map(|n| ((n * 7) >> 3) as u8).collect();
    let (src, dst) = (0x5000_0000u32, 0x6000_0000u32);
    let run = |control: u32, src: u32, len: u32| {
        let mut env = Plain::default();
        env.put(0x5000_0000, &bytes);
        env.map(dst.into(), 0x3_0010);
        let mut queue = corpus::queue(&mut env, Target::Gfx11, 3);
        let mut w = Vec::new();
        packet(&mut w, 0x50, &[control, src, 0, dst, 0, len]);
        corpus::submit(&mut env, &mut queue, &w);
        let progress = queue.run(&mut env, 1000);
        (env, progress)
    };
    let (env, progress) = run(0, src, 0x3_0003);
    assert_eq!(progress, Progress::Idle, "{:?}", env.violations);
    assert_eq!(env.get(dst.into(), 0x3_0003), bytes[..0x3_0003]);
    assert_eq!(env.get(u64::from(dst) + 0x3_0003, 1), [0]);
    // A fill repeats its four bytes over the borders of the parts.
    let (env, progress) = run(0x4000_0000, 0x0403_0201, 0x3_0003);
    assert_eq!(progress, Progress::Idle, "{:?}", env.violations);
    assert_eq!(env.get(u64::from(dst) + 0x1_fffe, 8), [3, 4, 1, 2, 3, 4, 1, 2]);
    assert_eq!(env.get(u64::from(dst) + 0x3_0000, 4), [1, 2, 3, 0]);
    let (env, progress) = run(0x4000_0000, 1, 0x3ff_ffff);
    assert_eq!((progress, env.faults[0].1), (Progress::Halted, u64::from(dst) + 0x3_1000));
}

#[test]
fn addresses_of_more_than_48_bits_are_refused_when_a_kernel_starts() {
    let case = |sh: &dyn Fn(&mut Vec<u32>), part: &str| {
        let mut w = Vec::new();
        corpus::set_sh(&mut w, 0x2e0c, &[0x50_0000, 0]);
        corpus::set_sh(&mut w, 0x2e07, &[1, 1, 1]);
        corpus::set_sh(&mut w, 0x2e16, &[1]);
        sh(&mut w);
        packet(&mut w, 0x15, &[1, 1, 1, 0x8005]);
        let (env, _, progress) = compute(&w);
        assert_eq!(progress, Progress::Halted);
        assert_eq!(env.violations[0].rule, Rule::QueueSetup);
        assert!(env.violations[0].detail.contains(part), "{}", env.violations[0]);
    };
    case(&|w| corpus::set_sh(w, 0x2e0d, &[0x100]), "COMPUTE_PGM_HI");
    let scratch = |w: &mut Vec<u32>| {
        corpus::set_sh(w, 0x2e10, &[u32::MAX, u32::MAX]);
        corpus::set_sh(w, 0x2e13, &[1]);
        corpus::set_sh(w, 0x2e18, &[0x1020]);
    };
    case(&scratch, "COMPUTE_DISPATCH_SCRATCH_BASE_HI");
}

#[test]
fn a_ring_beyond_the_last_address_is_no_ring() {
    for (ring_va, ring_dwords) in [(0xffff_ffff_ffff_ff00, 1024), (RING, 1 << 62), ((1 << 48) - 256, 128)] {
        let mut env = Plain::default();
        let config = ComputeQueueConfig {
            ring_va,
            ring_dwords,
            ..*corpus::queue(&mut env, Target::Gfx11, 3).config()
        };
        let mut queue = ComputeQueue::new(config);
        queue.set_wptr(&mut env, 8);
        assert_eq!(queue.run(&mut env, 1000), Progress::Halted);
        assert_eq!(env.violations[0].rule, Rule::QueueSetup, "{ring_va:#x} {ring_dwords:#x}");
        let mut queue = SdmaQueue::new(SdmaQueueConfig {
            ring_va,
            ring_bytes: 4 * ring_dwords.min(1 << 60),
            ..*sdma(&mut env, SdmaVersion::V6_0, &[]).0.config()
        });
        queue.set_wptr(&mut env, 32);
        assert_eq!(queue.run(&mut env, 1000), Progress::Halted);
        assert_eq!(env.violations[1].rule, Rule::QueueSetup, "{ring_va:#x} {ring_dwords:#x}");
    }
}

#[test]
fn a_write_pointer_more_than_a_ring_ahead_is_an_overrun() {
    let mut env = Plain::default();
    let mut queue = corpus::queue(&mut env, Target::Gfx11, 3);
    queue.set_wptr(&mut env, RING_DWORDS);
    assert!(env.violations.is_empty());
    queue.set_wptr(&mut env, RING_DWORDS + 1);
    assert_eq!(env.violations[0].rule, Rule::RingOverrun);
}

#[test]
fn a_kernel_with_an_unknown_instruction_is_refused_before_its_first_wave() {
    let fact =
        corpus::facts("vecadd").into_iter().find(|f| f["file"] == "vecadd.gfx1100.v5.O2.co").expect("fact");
    let mut env = Plain::default();
    corpus::load(&mut env, &fact);
    let kernel = &fact["kernels"][0];
    let entry = corpus::IMAGE + corpus::num(&kernel["entry"]["vaddr"]);
    // VOP2 opcode 0 does not exist on gfx11.
    env.put_words(entry + 4 * 8, &[0x0000_0100]);
    let mut queue = corpus::queue(&mut env, Target::Gfx11, 3);
    corpus::submit(&mut env, &mut queue, &corpus::dispatch_packets(kernel, true, [2, 1, 1], [256, 1, 1]));
    assert_eq!(queue.run(&mut env, 10_000), Progress::Halted);
    assert_eq!(env.violations[0].rule, Rule::IllegalInstruction, "{:?}", env.violations);
    assert!(env.violations[0].detail.contains("Gfx11"), "{:?}", env.violations);
    assert_eq!(env.interrupts[0].source, 239);
    assert!(!queue.has_waves());
}

#[test]
fn an_endless_kernel_keeps_the_simulator_responsive() {
    let fact =
        corpus::facts("vecadd").into_iter().find(|f| f["file"] == "vecadd.gfx1100.v5.O2.co").expect("fact");
    let mut env = Plain::default();
    corpus::load(&mut env, &fact);
    let kernel = &fact["kernels"][0];
    let entry = corpus::IMAGE + corpus::num(&kernel["entry"]["vaddr"]);
    // s_branch to itself.
    env.put_words(entry, &[0xbfa0_ffff]);
    let mut queue = corpus::queue(&mut env, Target::Gfx11, 3);
    corpus::submit(&mut env, &mut queue, &corpus::dispatch_packets(kernel, true, [1, 1, 1], [32, 1, 1]));
    for _ in 0..10 {
        assert_eq!(queue.run(&mut env, 10_000), Progress::Busy);
    }
    assert!(queue.has_waves());
    assert_eq!(env.word(SIGNAL), 0);
}

#[test]
fn a_kernel_that_faults_stops_its_queue() {
    let fact =
        corpus::facts("vecadd").into_iter().find(|f| f["file"] == "vecadd.gfx1100.v5.O2.co").expect("fact");
    let mut env = Plain::default();
    corpus::load(&mut env, &fact);
    env.put(corpus::KERNARG, &[0x11; 64]);
    let kernel = &fact["kernels"][0];
    let mut queue = corpus::queue(&mut env, Target::Gfx11, 3);
    corpus::submit(&mut env, &mut queue, &corpus::dispatch_packets(kernel, true, [1, 1, 1], [256, 1, 1]));
    assert_eq!(queue.run(&mut env, 10_000), Progress::Halted);
    let (who, _) = env.faults[0];
    assert_eq!((who.vmid, who.client), (3, 8));
    assert_eq!(env.word(SIGNAL), 0);
}

fn sdma(env: &mut Plain, version: SdmaVersion, w: &[u32]) -> (SdmaQueue, Progress) {
    env.map(RING, 4096);
    env.map(RPTR, 4096);
    env.put_words(RING, w);
    let mut queue = SdmaQueue::new(SdmaQueueConfig {
        version,
        instance: 0,
        queue: 0,
        ring_va: RING,
        ring_bytes: 4096,
        rptr: 0,
        wptr: 0,
        rptr_report_va: Some(RPTR),
        vmid: 2,
        privileged: false,
    });
    queue.set_wptr(env, 4 * w.len() as u64);
    let progress = queue.run(env, 1000);
    (queue, progress)
}

#[test]
fn the_references_sdma_copy_fence_and_trap_do_their_work() {
    let golden = engine::json(&engine::data("golden/queues.json"));
    for (target, version) in [
        ("gfx942", SdmaVersion::V4_4),
        ("gfx1030", SdmaVersion::V5_2),
        ("gfx1100", SdmaVersion::V6_0),
        ("gfx1201", SdmaVersion::V7_0),
    ] {
        for case in golden["targets"][target]["copy"]["am_pci"].as_array().expect("cases") {
            let name = case["name"].as_str().expect("name");
            if !matches!(name, "copy_0x1000" | "copy_0x1" | "signal" | "timestamp" | "copyin_sequence") {
                continue;
            }
            let mut env = Plain { ns: 1_000_000, ..Plain::default() };
            let bytes: Vec<u8> = (0..0x8_0000u32).map(|n| ((n * 7) >> 3) as u8).collect();
            env.put(0x2000_9000_0000, &bytes);
            env.map(0x2000_9008_0000, 4096);
            env.map(0x2000_5000_0000, 0x8_1000);
            env.put_words(0x2000_0001_0020, &[6]);
            env.map(0x2000_0001_0000, 4096);
            let (queue, progress) = sdma(&mut env, version, &words(case));
            assert_eq!(progress, Progress::Idle, "{target} {name}: {:?} {:x?}", env.violations, env.faults);
            assert!(env.violations.is_empty(), "{target} {name}");
            assert_eq!(env.get(RPTR, 8), queue.rptr().to_le_bytes());
            match name {
                "copy_0x1000" => assert_eq!(env.get(0x2000_5000_0000, 4096), &bytes[0x10..0x1010]),
                "copyin_sequence" => assert_eq!(env.get(0x2000_5000_0000, 0x8_0000), bytes),
                "signal" => {
                    assert_eq!(env.word(0x2000_0001_0010), 0x1235);
                    let i = env.interrupts[0];
                    let expected = if version >= SdmaVersion::V6_0 { (0x0a, 49) } else { (0x08, 224) };
                    assert_eq!((i.client, i.source), expected, "{target}");
                }
                "timestamp" => assert!(env.word(0x2000_0001_0018) >= 100_000),
                _ => {}
            }
        }
    }
}

#[test]
fn malformed_sdma_packets_are_refused() {
    let mut ib = vec![0; 2];
    ib.extend([4, 0x1000_0000, 0, 9, 0, 0]);
    let cases: &[(&[u32], &str)] = &[
        (&[0xff], "unknown packet"),
        (&[0x1, 0x4000_0000, 0, 0, 0, 0, 0], "reserved"),
        (&[0x1, 3, 0], "cut off"),
        (&[0x5, 0x1002, 0x2000, 1], "reserved"),
        (&[0x6, 0x1000_0000], "reserved"),
        (&[0x4, 0x1000_0000, 0, 8, 0, 0], "8-dword boundary"),
        (&ib, "not a multiple of 8"),
        (&[0xf000_000e, 0x100, 1], "unprivileged"),
        (&[0x4000_000b, 0, 0, 0, 3], "fill size 1"),
        (&[0x2_0000, 0], "skips 3 dwords"),
    ];
    for (w, part) in cases {
        let mut env = Plain::default();
        let (_, progress) = sdma(&mut env, SdmaVersion::V6_0, w);
        assert_eq!(progress, Progress::Halted, "{w:x?}");
        assert_eq!(env.violations[0].rule, Rule::MalformedPacket);
        assert!(env.violations[0].detail.contains(part), "{}", env.violations[0]);
    }
}

#[test]
fn a_transfer_that_makes_its_own_packet_shorter_ends_early() {
    // Forwards the first 64 KiB of a copy go first, backwards the second: over the packet either way.
    for (direction, first) in [(0, 0), (1 << 25, 0x1_0000)] {
        let mut env = Plain::default();
        let dst = RING - 0x40 - first;
        let copy = |count: u32| [1 | direction, count, 0, 0x5000_0000, 0, dst as u32, (dst >> 32) as u32];
        env.map(RING - 0x2_0000, 0x4_0000);
        env.put(0x5000_0000, &[0xaa; 0x2_0000]);
        env.put_words(0x5000_0000 + first + 0x40, &copy(15));
        let (queue, progress) = sdma(&mut env, SdmaVersion::V6_0, &copy(0x1_ffff));
        assert_eq!(progress, Progress::Idle, "{:?} {:x?}", env.violations, env.faults);
        assert_eq!((queue.rptr(), env.violations.len(), env.word(RING + 4)), (28, 0, 15));
        // One half is there, of the other nothing.
        assert_eq!(env.get(dst + first, 16), [0xaa; 16]);
        assert_eq!(env.get(dst + (first ^ 0x1_0000) + 0x8000, 16), [0; 16]);
    }
    // A fill from its own count on: of 128 KiB, then of 16 bytes.
    let mut env = Plain::default();
    env.map(RING, 0x3_0000);
    let fill = [0x8000_000b, RING as u32 + 16, (RING >> 32) as u32, 15, 0x1_ffff];
    let (queue, progress) = sdma(&mut env, SdmaVersion::V6_0, &fill);
    assert_eq!(progress, Progress::Idle, "{:?} {:x?}", env.violations, env.faults);
    assert_eq!((queue.rptr(), env.violations.len()), (20, 0));
    assert_eq!((env.word(RING + 0x1_000c), env.word(RING + 0x1_0010)), (15, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn random_words_never_panic_decoder_or_printer(w in any::<[u32; 3]>(), len in 0usize..4) {
        for target in [Target::Gfx9, Target::Gfx11, Target::Gfx12] {
            if let Ok(i) = decode(target, 0x1000, &w[..len]) {
                prop_assert!(usize::from(i.words) <= len);
                let _ = (i.text(32), i.text(64), i.vgprs());
            }
        }
    }

    #[test]
    fn random_instructions_never_panic_the_interpreter(w in any::<[u32; 3]>(), wave64: bool, seed: u32) {
        for target in [Target::Gfx11, Target::Gfx12] {
            let Ok(i) = decode(target, 0x1000, &w) else { continue };
            let mut wave = amdev_sim::isa::Wave::new(if wave64 { 64 } else { 32 });
            let mut x = seed;
            for v in wave.v.iter_mut().flatten().chain(wave.s.iter_mut().take(124)) {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *v = x;
            }
            wave.step(&i, &mut Plain::default(), &mut [0; 256]);
        }
    }

    #[test]
    fn random_packets_never_panic_the_queues(w in proptest::collection::vec(any::<u32>(), 1..20), op in any::<u8>()) {
        let mut w = w;
        w[0] = 0xc000_0000 | (w.len() as u32 - 1).saturating_sub(1) << 16 | u32::from(op) << 8;
        let _ = compute(&w);
        w[0] = u32::from(op & 31);
        let _ = sdma(&mut Plain::default(), SdmaVersion::V6_0, &w);
    }
}
