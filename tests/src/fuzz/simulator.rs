//! The simulator's decoders as robustness targets: whatever a driver puts into a queue or a kernel,
//! the simulator says what is wrong and goes on. And what amdev's encoders write is accepted.

use amdev_core::queue::pm4::decode::{Packet, packets};
use amdev_core::queue::pm4::{Caches, Compare, ComputeConfig, DataSel, IntSel, Pm4, Release, WaitOn};
use amdev_core::queue::sdma::{Sdma, SdmaConfig, decode as dma};
use amdev_sim::cp::{ComputeQueue, ComputeQueueConfig};
use amdev_sim::env::Progress;
use amdev_sim::isa::{self, Program, Wave, decode};
use amdev_sim::sdma::{SdmaQueue, SdmaQueueConfig, SdmaVersion};
use amdev_sim::violation::Rule;

use super::dwords;
use super::plain::{MEMORY, Plain};

/// Where rings, other commands and pointers lie.
const RING: u64 = MEMORY;
const RING_DWORDS: u64 = 0x1000;
const EOP: u64 = MEMORY + 0x8000;
const REPORT: u64 = MEMORY + 0x9000;
/// Memory that packets of the encoders name.
const DATA: u64 = MEMORY + 0x1_0000;

fn target(byte: u8) -> isa::Target {
    if byte & 1 == 0 { isa::Target::Gfx11 } else { isa::Target::Gfx12 }
}

/// First byte: target (bit 0), waves of 64 (bit 1), whether the code is followed as a program (bit 2);
/// then instructions.
pub(super) fn instructions(data: &[u8]) {
    let Some((mode, code)) = data.split_first() else { return };
    let words = dwords(code);
    let target = target(*mode);
    let lanes = if mode & 2 == 0 { 32 } else { 64 };
    if mode & 4 != 0 {
        let mut fetch = |va: u64| {
            let at = va.checked_sub(MEMORY)? / 4;
            words.get(usize::try_from(at).ok()?).copied()
        };
        if let Ok(program) = Program::new(target, MEMORY, 256, &mut fetch) {
            for (n, inst) in program.instructions().iter().enumerate() {
                assert_eq!(program.find(inst.pc), Some(n as u32));
                assert!(inst.vgprs() <= 256 && !inst.text(lanes).is_empty());
            }
        }
        return;
    }
    let mut device = Plain::new();
    let mut wave = Wave::new(lanes);
    // Addresses that exist, in pairs of scalar and of vector registers.
    for pair in 0..8 {
        wave.set_sgpr(2 * pair, DATA as u32);
    }
    for pair in 0..8 {
        wave.v[2 * pair] = std::array::from_fn(|lane| DATA as u32 + 64 * lane as u32);
    }
    let mut lds = vec![0; 4096];
    let mut at = 0;
    while at < words.len() {
        let rest = &words[at..];
        let pc = MEMORY + 4 * at as u64;
        let Ok(inst) = decode(target, pc, rest) else {
            at += 1;
            continue;
        };
        let n = usize::from(inst.words);
        assert!((1..=3).contains(&n) && n <= rest.len());
        // What follows does not change an instruction; what is missing is noticed.
        let alone = decode(target, pc, &rest[..n]).expect("it is complete");
        assert_eq!(alone.text(lanes), inst.text(lanes));
        assert!(decode(target, pc, &rest[..n - 1]).is_err());
        assert!(inst.vgprs() <= 512 && !inst.row.name.is_empty());
        if inst.vgprs() <= 256 {
            wave.step(&inst, &mut device, &mut lds);
        }
        at += n;
    }
}

fn compute_queue(target: isa::Target, wptr: u64) -> ComputeQueue {
    ComputeQueue::new(ComputeQueueConfig {
        target,
        me: 1,
        pipe: 0,
        queue: 0,
        vmid: 0,
        ring_va: RING,
        ring_dwords: RING_DWORDS,
        rptr: 0,
        wptr,
        rptr_report_va: REPORT,
        eop_va: EOP,
        eop_dwords: 0x400,
    })
}

fn sdma_queue(version: SdmaVersion, wptr: u64) -> SdmaQueue {
    SdmaQueue::new(SdmaQueueConfig {
        version,
        instance: 0,
        queue: 0,
        ring_va: RING,
        ring_bytes: RING_DWORDS * 4,
        rptr: 0,
        wptr,
        rptr_report_va: Some(REPORT),
        vmid: 0,
        privileged: true,
    })
}

/// First byte: which engine; then its ring. Nothing hangs or panics, and a halted queue was refused
/// for a reason.
pub(super) fn queues(data: &[u8]) {
    let Some((which, ring)) = data.split_first() else { return };
    let words = dwords(&ring[..ring.len().min(RING_DWORDS as usize * 4 - 4)]);
    let mut device = Plain::new();
    device.put_words(RING, &words);
    let n = words.len() as u64;
    let end = match which % 7 {
        gfx @ 0..3 => {
            let target = [isa::Target::Gfx11, isa::Target::Gfx12, isa::Target::Gfx9][usize::from(gfx)];
            let mut queue = compute_queue(target, 0);
            queue.set_wptr(&mut device, n);
            let end = run(|| queue.run(&mut device, 2000));
            assert!(queue.rptr() <= n && queue.is_halted() == (end == Progress::Halted));
            end
        }
        other => {
            let versions = [SdmaVersion::V4_4, SdmaVersion::V5_2, SdmaVersion::V6_0, SdmaVersion::V7_0];
            let mut queue = sdma_queue(versions[usize::from(other - 3)], 0);
            queue.set_wptr(&mut device, 4 * n);
            let end = run(|| queue.run(&mut device, 50));
            assert!(queue.rptr() <= 4 * n && queue.is_halted() == (end == Progress::Halted));
            end
        }
    };
    assert!(
        device.rules.is_empty() || end == Progress::Halted || !device.rules.contains(&Rule::MalformedPacket)
    );
}

/// Lets an engine go on a few times.
fn run(mut step: impl FnMut() -> Progress) -> Progress {
    let mut last = Progress::Busy;
    for _ in 0..4 {
        last = step();
        if last != Progress::Busy {
            break;
        }
    }
    last
}

/// Takes four words for each call; they choose the packet and its operands.
fn calls(words: &[u32]) -> impl Iterator<Item = [u32; 4]> + '_ {
    words.chunks_exact(4).take(64).map(|c| [c[0], c[1], c[2], c[3]])
}

/// A dword's address in the data area.
fn place(word: u32) -> u64 {
    DATA + u64::from(word & 0xffff) * 4 % 0x1_0000
}

/// An address of 48 bits.
fn far(lo: u32, hi: u32) -> u64 {
    u64::from(lo) | u64::from(hi & 0xffff) << 32
}

/// PM4: each call gives one packet, which is taken apart into what was asked for. Those that can run
/// at once are accepted by the command processor.
pub(super) fn encoded_pm4(words: &[u32]) {
    let config = ComputeConfig {
        target: amdev_core::iface::Target::new(11, 0, 0),
        xcc_count: 1,
        ..Default::default()
    };
    let mut device = Plain::new();
    for [op, a, b, c] in calls(words) {
        let mut buf = [0; 64];
        let mut pm4 = Pm4::new(&config, &mut buf);
        let values = [a, b, c];
        let mut runs = true;
        let (made, expected) = match op % 8 {
            0 => {
                (pm4.nop(&values[..1 + (a % 3) as usize]).is_ok(), Packet::Nop { len: 1 + (a % 3) as usize })
            }
            1 => {
                // Registers that hold data only: COMPUTE_USER_DATA.
                let addr = 0x2e40 + a % 8;
                (pm4.set_regs(addr, &values).is_ok(), Packet::SetRegs { addr, values: &values })
            }
            2 => {
                let dst = place(a);
                let ok = pm4.write_data(dst, &values).is_ok();
                let control = pm4.dwords().get(1).copied().unwrap_or(0);
                (ok, Packet::WriteData { control, dst, data: &values })
            }
            3 => {
                runs = false;
                let addr = far(a & !3, b);
                let ok = pm4.wait_reg_mem(WaitOn::Memory(addr), Compare::Ge, b, c, 4).is_ok();
                let expected = Packet::WaitRegMem {
                    memory: true,
                    request: false,
                    function: Compare::Ge as u8,
                    addr,
                    reference: b,
                    mask: c,
                    interval: 4,
                };
                (ok, expected)
            }
            4 => {
                let caches = Caches::from_bits_truncate(c as u8);
                let (va, size) = (far(a, b), far(b, c));
                let ok = pm4.acquire_mem(caches, va, size).is_ok();
                let cntl = pm4.dwords().last().copied().unwrap_or(0);
                (ok, Packet::AcquireMem { size, va, cntl })
            }
            5 => {
                let release = Release {
                    address: place(a) & !7,
                    value: far(b, c),
                    data: DataSel::Value64,
                    interrupt: if c & 1 == 1 { IntSel::AfterWrite } else { IntSel::None },
                    context: a & 0x0fff_ffff,
                    flush: b & 1 == 1,
                };
                let ok = pm4.release_mem(release).is_ok();
                let event = pm4.dwords().get(1).copied().unwrap_or(0);
                let expected = Packet::ReleaseMem {
                    event,
                    data_sel: DataSel::Value64 as u8,
                    int_sel: release.interrupt as u8,
                    va: release.address,
                    value: release.value,
                    context: release.context,
                };
                (ok, expected)
            }
            6 => {
                runs = false;
                let (va, len) = (far(a & !3, b), 1 + c % 0xf_ffff);
                (pm4.indirect_buffer(va, len).is_ok(), Packet::IndirectBuffer { va, len })
            }
            _ => {
                runs = false;
                let (event, index) = (a & 0x3f, b & 0xf);
                let expected = Packet::EventWrite { event: event as u8, index: index as u8 };
                (pm4.event_write(event, index).is_ok(), expected)
            }
        };
        assert!(made, "{expected:?} was refused");
        let found: Vec<_> = packets(pm4.dwords()).collect();
        assert_eq!(found, [Ok((0, expected))]);
        if runs {
            device.put_words(RING, pm4.dwords());
            let mut queue = compute_queue(isa::Target::Gfx11, pm4.dwords().len() as u64);
            assert_eq!(queue.run(&mut device, 2000), Progress::Idle, "{expected:?}: {:?}", device.rules);
        }
    }
    assert!(device.rules.is_empty(), "{:?}", device.rules);
}

/// SDMA, as [`encoded_pm4`].
pub(super) fn encoded_sdma(words: &[u32]) {
    let config = SdmaConfig { version: (6, 0, 0), notify: Default::default() };
    let mut device = Plain::new();
    for [op, a, b, c] in calls(words) {
        let mut buf = [0; 64];
        let mut sdma = Sdma::new(&config, &mut buf);
        let (made, expected) = match op % 6 {
            0 => {
                let (dst, src, size) = (place(a), place(b), u64::from(c % 0x1000) + 1);
                (sdma.copy(dst, src, size).is_ok(), dma::Packet::Copy { dst, src, size, parameter: 0 })
            }
            1 => {
                let (dst, size) = (place(a), u64::from(b % 0x400 + 1) * 4);
                (sdma.fill(dst, size, c).is_ok(), dma::Packet::Fill { dst, value: c, size })
            }
            2 => {
                let (dst, count) = (place(a), 1 + c % 3);
                (sdma.write(dst, &[a, b, c][..count as usize]).is_ok(), dma::Packet::Write { dst, count })
            }
            3 => {
                let va = place(a);
                let ok = sdma.fence(va, b).is_ok();
                let mtype = (sdma.dwords().first().copied().unwrap_or(0) >> 16 & 7) as u8;
                (ok, dma::Packet::Fence { va, value: b, mtype })
            }
            4 => (sdma.trap(a).is_ok(), dma::Packet::Trap { context: a & 0x0fff_ffff }),
            _ => {
                let va = place(a) & !7;
                (sdma.timestamp(va).is_ok(), dma::Packet::Timestamp { va, sub_op: 2 })
            }
        };
        assert!(made, "{expected:?} was refused");
        let found: Vec<_> = dma::packets(sdma.dwords()).collect();
        assert_eq!(found, [Ok((0, expected))]);
        device.put_words(RING, sdma.dwords());
        let mut queue = sdma_queue(SdmaVersion::V6_0, 4 * sdma.dwords().len() as u64);
        assert_eq!(queue.run(&mut device, 50), Progress::Idle, "{expected:?}: {:?}", device.rules);
    }
    assert!(device.rules.is_empty(), "{:?}", device.rules);
}
