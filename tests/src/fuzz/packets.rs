//! Command packets. First byte 0: PM4 is taken apart; 1: SDMA is taken apart; 2 and 3: calls of the
//! encoders, whose packets must be taken apart into what was asked for and be accepted by the
//! simulator's engines.

use amdev_core::queue::pm4::decode::{Packet, View, packets};
use amdev_core::queue::sdma::decode as sdma;

use super::dwords;

pub(super) fn run(data: &[u8]) {
    let Some((which, data)) = data.split_first() else { return };
    let words = dwords(data);
    match which % 4 {
        0 => pm4(&words),
        1 => dma(&words),
        2 => super::simulator::encoded_pm4(&words),
        _ => super::simulator::encoded_sdma(&words),
    }
}

/// Every packet lies inside the buffer and they cover it up to the first error.
fn pm4(words: &[u32]) {
    let mut next = 0;
    let mut failed = false;
    for packet in packets(words) {
        assert!(!failed || packet.is_err(), "an error of structure ends the list");
        match packet {
            Ok((at, packet)) => {
                assert_eq!(at, next);
                let view = View::parse(&words[at..], at).expect("it was just parsed");
                assert!(!view.is_empty() && at + view.len() <= words.len());
                assert_eq!(view.packet(at), Ok(packet));
                contents(&view, &packet);
                next = at + view.len();
            }
            Err(e) => {
                assert!(!e.to_string().is_empty());
                // A packet that is only too short for its opcode is passed over.
                match words.get(next..).map(|w| View::parse(w, next)) {
                    Some(Ok(view)) => next += view.len(),
                    _ => failed = true,
                }
            }
        }
    }
    assert!(failed || next == words.len());
}

fn contents(view: &View<'_>, packet: &Packet<'_>) {
    match *packet {
        Packet::Nop { len } => assert_eq!(len, view.body.len()),
        Packet::SetRegs { values, .. } => assert_eq!(values, &view.body[1..]),
        Packet::WriteData { data, .. } => assert_eq!(data, &view.body[3..]),
        Packet::Other { op, body } => assert_eq!((op, body), (view.op, view.body)),
        Packet::Dispatch { grid, initiator } => {
            assert_eq!([grid[0], grid[1], grid[2], initiator], view.body[..4])
        }
        Packet::WaitRegMem { function, .. } => assert!(function < 8),
        Packet::IndirectBuffer { len, .. } => assert!(len < 1 << 20),
        _ => {}
    }
}

fn dma(words: &[u32]) {
    let lengths: Vec<_> = sdma::lengths(words).collect();
    let mut next = 0;
    for (packet, length) in sdma::packets(words).zip(&lengths) {
        match (packet, length) {
            (Ok((at, packet)), Ok(len)) => {
                assert_eq!(at, next);
                assert!(*len >= 1 && at + len <= words.len() && !packet.name().is_empty());
                if let sdma::Packet::Write { count, .. } = packet {
                    assert_eq!(count as usize + 4, *len);
                }
                next = at + len;
            }
            (Err(a), Err(b)) => {
                assert_eq!(&a, b);
                return;
            }
            (a, b) => panic!("{a:?}, but the length is {b:?}"),
        }
    }
    assert_eq!((lengths.len(), next), (sdma::packets(words).count(), words.len()));
}
