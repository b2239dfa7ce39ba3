//! Rings, signals and pools: what engines read is what was submitted, in every state of the ring.

use amdev_core::iface::{Buffer, QueueKind};
use amdev_core::queue::QueueError;
use amdev_core::queue::pm4::{ComputeConfig, Pm4, decode as pm4_decode};
use amdev_core::queue::pool::Pool;
use amdev_core::queue::ring::Ring;
use amdev_core::queue::sdma::{Sdma, SdmaConfig, decode};
use amdev_core::queue::signal::{reached, ticks_to_us};
use amdev_core::queue::sqtt::trace_len;
use amdev_tests::golden_queues::{Event, Memory};
use proptest::prelude::*;

const VA: u64 = 0x2000_0100_0000;

fn ring(memory: &Memory, kind: QueueKind, queues: u32) -> Ring {
    Ring::new(&memory.queues(kind, VA, queues)).unwrap()
}

#[test]
fn a_submission_keeps_the_order_ring_pointer_fence_hdp_doorbell() {
    let mut memory = Memory::new(0x1000, 0, 0);
    ring(&memory, QueueKind::Compute, 1).submit_pm4(&mut memory, &[1, 2, 3], 0).unwrap();
    let expected = [Event::Ring, Event::WritePointer(3), Event::Fence, Event::Hdp, Event::Doorbell(3)];
    assert_eq!(memory.events, expected);
}

#[test]
fn a_full_ring_waits_for_the_engine_and_gives_up_at_the_deadline() {
    let mut memory = Memory::new(0x100, 0, 0);
    let mut full = ring(&memory, QueueKind::Compute, 1);
    full.submit_pm4(&mut memory, &[7; 60], 0).unwrap();
    let error = full.submit_pm4(&mut memory, &[8; 4], 5000).unwrap_err();
    match error {
        QueueError::RingFull { needed, free, read, put, waited_us, .. } => {
            assert_eq!((needed, free, read, put), (16, 12, 0, 60));
            assert!(waited_us >= 5000);
        }
        other => panic!("{other}"),
    }
    assert!(error.to_string().contains("read pointer"), "{error}");
    memory.consume = 1;
    full.submit_pm4(&mut memory, &[8; 4], 5000).unwrap();
    assert_eq!(full.put(), 64);
}

#[test]
fn one_dword_of_a_ring_stays_free() {
    let mut memory = Memory::new(0x100, 0, 0);
    let mut r = ring(&memory, QueueKind::Compute, 1);
    assert!(matches!(
        r.submit_pm4(&mut memory, &[0; 64], 0),
        Err(QueueError::SubmissionTooLarge { needed: 256, size: 256, .. })
    ));
    r.submit_pm4(&mut memory, &[0; 63], 0).unwrap();
}

#[test]
fn of_several_xccs_the_one_furthest_behind_decides() {
    let mut memory = Memory::new(0x400, 0, 0);
    let mut r = ring(&memory, QueueKind::Compute, 8);
    r.submit_pm4(&mut memory, &[7; 100], 0).unwrap();
    for queue in 0..8 {
        memory.set_read(queue, 105);
    }
    memory.set_read(5, 0);
    assert_eq!(r.used(&mut memory).unwrap(), 105 * 4);
    assert!(matches!(r.submit_pm4(&mut memory, &[7; 146], 10), Err(QueueError::RingFull { .. })));
    memory.set_read(5, 105);
    r.submit_pm4(&mut memory, &[7; 146], 10).unwrap();
}

#[test]
fn read_pointers_may_count_on_or_start_anew_at_each_lap() {
    let mut memory = Memory::new(0x400, 0, 0);
    let mut r = ring(&memory, QueueKind::Compute, 1);
    for lap in 1..=5u64 {
        r.submit_pm4(&mut memory, &[7; 200], 0).unwrap();
        memory.set_read(0, if lap % 2 == 0 { lap * 200 } else { lap * 200 % 256 });
        assert_eq!(r.used(&mut memory).unwrap(), 0, "lap {lap}");
    }
}

#[test]
fn packets_for_the_other_kind_of_engine_are_refused() {
    let mut memory = Memory::new(0x400, 0, 0);
    let mut r = ring(&memory, QueueKind::Sdma, 1);
    assert!(matches!(r.submit_pm4(&mut memory, &[0], 0), Err(QueueError::BadRing { .. })));
    let unknown = [0xff];
    assert!(matches!(r.submit_sdma(&mut memory, &unknown, 0), Err(QueueError::Malformed { .. })));
    assert!(memory.events.is_empty());
}

/// An SDMA engine: reads packets up to the write position, refuses one that crosses the ring's end.
fn execute(memory: &Memory, from: u64, to: u64) -> Vec<Vec<u32>> {
    let words = memory.dwords();
    let at = |i: u64| words[(i / 4 % words.len() as u64) as usize];
    let (mut pos, mut out) = (from, Vec::new());
    while pos < to {
        if at(pos) == 0 {
            pos += 4;
            continue;
        }
        let len = u64::from(at(pos) & 0xff);
        let end = pos + len * 4;
        assert!(end <= to, "a packet ends after the write position");
        assert!(pos / memory.ring.len() as u64 == (end - 4) / memory.ring.len() as u64, "split at the end");
        out.push((0..len).map(|i| at(pos + i * 4)).collect());
        pos = end;
    }
    out
}

proptest! {
    #[test]
    fn sdma_packets_arrive_whole_and_in_order(
        submissions in prop::collection::vec(prop::collection::vec(2usize..9, 1..6), 1..60),
        start in 0u64..128,
        align: bool,
    ) {
        let put = start * 4;
        let mut memory = Memory::new(0x200, 0xee, put);
        memory.align = align;
        let mut r = ring(&memory, QueueKind::Sdma, 1).with_put(put);
        let mut id = 0;
        let mut read = put;
        for lengths in submissions {
            let mut dwords = Vec::new();
            let mut packets = Vec::new();
            for len in &lengths {
                id += 1;
                let mut packet = vec![id << 8 | *len as u32];
                packet.resize(*len, id << 8 | 0xff);
                dwords.extend_from_slice(&packet);
                packets.push(packet);
            }
            r.submit_sdma_packets(&mut memory, &dwords, lengths.iter().copied(), 0).unwrap();
            prop_assert!(r.put() - read < 0x200);
            prop_assert_eq!(execute(&memory, read, r.put()), packets);
            read = r.put();
            memory.set_read(0, read);
        }
    }

    #[test]
    fn pm4_dwords_arrive_in_order(lengths in prop::collection::vec(1usize..60, 1..80), start in 0u64..1000) {
        let mut memory = Memory::new(0x100, 0, start);
        let mut r = ring(&memory, QueueKind::Compute, 1).with_put(start);
        let (mut next, mut read) = (1u32, start);
        for len in lengths {
            let dwords: Vec<u32> = (next..).take(len).collect();
            r.submit_pm4(&mut memory, &dwords, 0).unwrap();
            let words = memory.dwords();
            let seen: Vec<u32> = (read..r.put()).map(|i| words[(i % 64) as usize]).collect();
            prop_assert_eq!(&seen, &dwords);
            next += len as u32;
            read = r.put();
            memory.set_read(0, read);
        }
    }

    #[test]
    fn a_pool_hands_out_nothing_that_is_in_use(
        takes in prop::collection::vec((1u64..400, 0u32..4, 0u32..6), 1..200),
    ) {
        let buffer = Buffer { va: VA, size: 1024, ..Buffer::default() };
        let mut pool: Pool<16> = Pool::new("test", buffer);
        let (mut timeline, mut done) = (0u32, 0u32);
        let mut live: Vec<(u64, u64, u32)> = Vec::new();
        for (size, align, finished) in takes {
            let align = 1 << (align * 2);
            match pool.take(size, align, timeline + 1) {
                Ok(part) => {
                    timeline += 1;
                    prop_assert_eq!((part.size, part.va % align), (size, 0));
                    prop_assert!(part.va >= VA && part.va + size <= VA + 1024);
                    let (a, b) = (part.va, part.va + size);
                    prop_assert!(live.iter().all(|(c, d, _)| b <= *c || *d <= a), "{:x?} {:x}", live, a);
                    live.push((a, b, timeline));
                }
                Err(QueueError::PoolBusy { until, .. }) => {
                    prop_assert!(!reached(done, until));
                    done = until;
                }
                Err(e) => prop_assert!(false, "{}", e),
            }
            done = timeline.min(done + finished / 3);
            pool.retire(done);
            live.retain(|l| l.2 > done);
        }
    }

    #[test]
    fn decoders_never_panic(dwords in prop::collection::vec(any::<u32>(), 0..64)) {
        pm4_decode::packets(&dwords).count();
        decode::packets(&dwords).count();
    }
}

#[test]
fn timelines_compare_across_the_wrap() {
    assert!(reached(5, 5) && reached(6, 5) && !reached(4, 5));
    assert!(reached(3, u32::MAX - 2) && !reached(u32::MAX - 2, 3));
}

#[test]
fn timestamps_count_a_hundred_a_microsecond() {
    assert_eq!(ticks_to_us(12_345), 123.45);
}

#[test]
fn trace_lengths_use_29_bits_of_the_pointer() {
    let buffer = 0x2000_4000_0000u64;
    let wptr = (buffer / 32 + 100) as u32 & 0x1fff_ffff | 1 << 31;
    let len = trace_len(wptr, buffer, 0x10000).unwrap();
    assert_eq!((len.len, len.full), (3200, false));
    let end = (buffer / 32 + 0x7ff) as u32;
    assert!(trace_len(end, buffer, 0x10000).unwrap().full);
    assert!(trace_len((buffer / 32 + 0x801) as u32, buffer, 0x10000).is_err());
    // The pointer's 29 bits wrap inside the buffer.
    let high = 0x2003_ffff_f000u64;
    let wrapped = trace_len(((high / 32 + 0x100) & 0x1fff_ffff) as u32, high, 0x10000).unwrap();
    assert_eq!(wrapped.len, 0x2000);
}

#[test]
fn sdma_packets_decode_to_what_was_encoded() {
    use decode::Packet;
    let config = SdmaConfig { version: (6, 0, 0), notify: Default::default() };
    let mut buf = [0; 64];
    let mut q = Sdma::new(&config, &mut buf);
    q.copy(0x1_0000_0000, 0x2_0000_0000, 0x1234).unwrap();
    q.fill(0x3_0000_0000, 0x100, 0xabcd).unwrap().write(0x4_0000_0000, &[1, 2, 3]).unwrap();
    q.fence(0x5_0000_0000, 9).unwrap().trap(3).unwrap().wait(0x6_0000_0000, 8).unwrap();
    q.timestamp(0x7_0000_0000).unwrap();
    let packets: Vec<_> = decode::packets(q.dwords()).map(|p| p.unwrap().1).collect();
    let expected = [
        Packet::Copy { dst: 0x1_0000_0000, src: 0x2_0000_0000, size: 0x1234, parameter: 0 },
        Packet::Fill { dst: 0x3_0000_0000, value: 0xabcd, size: 0x100 },
        Packet::Write { dst: 0x4_0000_0000, count: 3 },
        Packet::Fence { va: 0x5_0000_0000, value: 9, mtype: 3 },
        Packet::Trap { context: 3 },
        Packet::Poll {
            va: 0x6_0000_0000,
            memory: true,
            function: 5,
            reference: 8,
            mask: u32::MAX,
            interval: 4,
            retry: 0xfff,
        },
        Packet::Timestamp { va: 0x7_0000_0000, sub_op: 2 },
    ];
    assert_eq!(packets, expected);
}

#[test]
fn an_overflowing_buffer_is_an_error_and_keeps_whole_packets() {
    let config = ComputeConfig::default();
    let mut buf = [0; 10];
    let mut q = Pm4::new(&config, &mut buf);
    q.nop(&[1, 2, 3]).unwrap();
    let error = q.write_data(VA, &[1, 2, 3]).unwrap_err();
    assert!(matches!(error, QueueError::Overflow { capacity: 10, .. }), "{error}");
    assert_eq!(q.dwords().len(), 4);
    assert_eq!(pm4_decode::packets(q.dwords()).count(), 1);
}
