//! The open firmware.

use crate::host::Host;
use amdev_sim::Rule;
use amdev_sim::bridge::usb::{Completion, Status, Transfer, UsbPort};

const BAR5: u64 = 0x1000_0000;
const BAR0: u64 = 0x8_0000_0000;

fn f0(address: u64, value: u32) -> Vec<u8> {
    [address.to_le_bytes().to_vec(), value.to_le_bytes().to_vec()].concat()
}

fn tlp(h: &Host, fmt: u8, address: u64, value: Option<u32>, size: u32) -> (u16, u32) {
    let offset = address & 3;
    let enable = ((1u16 << size) - 1) << offset;
    let value_word = value.map_or(0, |v| v << (8 * offset));
    let sent = h.control(0x40, 0xf0, u16::from(fmt) | enable << 8, 0, &f0(address & !3, value_word));
    assert_eq!(sent.status, Status::Success);
    if fmt & 0xdf == 0x40 {
        return (0, 0);
    }
    let b = h.get(0xc0, 0xf0, 0, 0, 8);
    assert_eq!(b[7], 0, "the engine's status");
    let word = u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    (u16::from(b[4] >> 5), word >> (8 * offset) & (u32::MAX >> (32 - 8 * size)))
}

fn ready(text: &str) -> Host {
    let h = Host::new(text);
    h.configure();
    assert_eq!(h.set(0x40, 0xf3, 1, 0), Status::Success);
    h.setup_pci(|bus, at, value, size| {
        let fmt = if value.is_some() { 0x44 } else { 4 } | u8::from(bus > 0);
        tlp(&h, fmt, u64::from(u32::from(bus) << 24 | at), value, size)
    });
    h
}

fn out(h: &Host, data: Vec<u8>) -> Completion {
    h.end(h.bridge.submit(Transfer::Out { endpoint: 2, stream: 0, data }))
}

fn read(h: &Host, length: usize) -> Completion {
    h.end(h.bridge.submit(Transfer::In { endpoint: 0x81, stream: 0, length }))
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn power_is_off_until_it_is_asked_for_and_takes_its_time() {
    let h = Host::new("navi48,bridge=custom");
    h.configure();
    assert_eq!(h.get(0xc0, 0xe4, 0xb450, 0, 1), [0]);
    h.control(0x40, 0xf0, 0x0f04, 0, &f0(0, 0));
    assert_eq!(h.get(0xc0, 0xf0, 0, 0, 8)[7], 1, "an error");
    assert_eq!(h.rules(), [Rule::LinkDown]);
    let start = h.bridge.now_ns();
    assert_eq!(h.set(0x40, 0xf3, 1, 0), Status::Success);
    assert!(h.bridge.now_ns() - start >= 300_000_000);
    assert_eq!(h.get(0xc0, 0xe4, 0xb450, 0, 1), [0x78]);
    assert_eq!(h.get(0xc0, 0xe4, 0x4092, 0x100, 1), [0x24], "16 GT/s, two lanes, in the other bank");
    assert_eq!(h.set(0x40, 0xf3, 0, 0), Status::Success);
    assert!(!h.bridge.gpu().present());
    assert_eq!(h.get(0x80, 6, 0x0302, 0x409, 255)[2..14], *b"c\0u\0s\0t\0o\0m\0");
    assert!(h.bridge.violations().is_empty());
}

#[test]
fn memory_is_read_in_blocks_and_written_in_bytes() {
    let h = Host::new("navi48,bridge=custom");
    h.configure();
    for (at, v) in [(0xa800u16, 1u16), (0xa801, 2), (0x4000, 3)] {
        assert_eq!(h.set(0x40, 0xe5, at, v), Status::Success);
    }
    assert_eq!(h.get(0xc0, 0xe4, 0xa800, 0, 3), [1, 2, 0]);
    assert_eq!(h.get(0xc0, 0xe4, 0x3fff, 0, 512)[..3], [0, 3, 0]);
    assert!(h.bridge.violations().is_empty());
    let c = h.bridge.counts();
    assert_eq!((c.usb_commands, c.usb_transfers), (5, 6));
    for (kind, request, value, index, len) in [
        (0xc0, 0xe4, 0xfff0, 0, 17),
        (0xc0, 0xe4, 0, 0, 513),
        (0xc0, 0xe4, 0, 0x200, 1),
        (0x40, 0xe5, 0, 0, 1),
        (0x40, 0xe6, 0, 0, 0),
        (0x40, 0xf3, 2, 0, 0),
    ] {
        let c = h.control(kind, request, value, index, &vec![0; len]);
        assert_eq!(c.status, Status::Stall, "{request:#x}");
        assert_eq!(h.rules(), [Rule::UsbCommand], "{request:#x}");
    }
    assert_eq!(h.set(0x40, 0xe5, 0xc800, 1), Status::Success, "acknowledged, and named");
    assert_eq!(h.rules(), [Rule::UsbCommand]);
}

#[test]
fn single_requests_reach_the_gpu() {
    let h = ready("navi48,bridge=custom");
    assert_eq!(tlp(&h, 0x20, BAR5 + 0xde3 * 4, None, 4), (0, 16304));
    tlp(&h, 0x60, BAR0 + 0x2000, Some(0x1122_3344), 4);
    tlp(&h, 0x60, BAR0 + 0x2002, Some(0xbeef), 2);
    assert_eq!(tlp(&h, 0x20, BAR0 + 0x2000, None, 4), (0, 0xbeef_3344));
    assert_eq!(tlp(&h, 0x05, 0x0900_0000, None, 4).0, 1, "unsupported request");
    assert_eq!(h.get(0xc0, 0xe4, 0xb22a, 0, 2), [0x20, 4]);
    // More room than the eight bytes there are: short, and good.
    h.control(0x40, 0xf0, 0x0f20, 0, &f0(BAR0 + 0x2000, 0));
    assert_eq!(h.get(0xc0, 0xf0, 0, 0, 16).len(), 8);
    assert!(h.bridge.violations().is_empty(), "{:?}", h.bridge.violations());
    let c = h.control(0xc0, 0xf0, 0, 0, &[0; 8]);
    assert_eq!((c.status, h.rules()), (Status::Stall, vec![Rule::UsbCommand]), "nothing was asked");
    h.control(0x40, 0xf0, 0x0f20, 0, &f0(0x2000_0000, 0));
    assert_eq!(h.get(0xc0, 0xf0, 0, 0, 8)[4] >> 5, 1);
    assert_eq!(h.rules(), [Rule::TlpNowhere]);
}

#[test]
fn streams_write_and_read_memory_in_rising_dwords() {
    let h = ready("navi48,bridge=custom");
    let data = pattern(0x2004);
    let start = h.bridge.now_ns();
    assert_eq!(h.control(0x40, 0xf0, 0x0f60, 1, &f0(BAR0 + 0xffc, 0x801)).status, Status::Success);
    assert_eq!(out(&h, data[..0x1000].to_vec()).actual, 0x1000, "in pieces");
    assert_eq!(out(&h, data[0x1000..].to_vec()).status, Status::Success);
    let ns = h.bridge.now_ns() - start;
    assert!((2_000_000..4_000_000).contains(&ns), "about 3.6 MB/s: {ns} ns");
    h.control(0x40, 0xf0, 0x0f20, 2, &f0(BAR0 + 0xffc, 0x801));
    assert_eq!(read(&h, 0x2004).data, data);
    // Registers, too; and a doorbell's upper half comes after the lower one without harm.
    h.control(0x40, 0xf0, 0x0f20, 2, &f0(BAR5 + 0xde3 * 4, 1));
    assert_eq!(read(&h, 4).data, 16304u32.to_le_bytes());
    assert!(h.bridge.violations().is_empty(), "{:?}", h.bridge.violations());
}

#[test]
fn a_streamed_write_has_at_most_1_mib() {
    let h = ready("navi48,bridge=custom");
    let c = h.control(0x40, 0xf0, 0x0f60, 1, &f0(BAR0, 0x10_0000));
    assert_eq!((c.status, h.rules()), (Status::Stall, vec![Rule::UsbCommand]), "4 MiB");
    for piece in 0..4u64 {
        h.control(0x40, 0xf0, 0x0f60, 1, &f0(BAR0 + (piece << 20), 0x4_0000));
        assert_eq!(out(&h, vec![piece as u8 + 1; 1 << 20]).actual, 1 << 20);
    }
    let mut last = [0; 4];
    h.bridge.gpu().read(0, 0x3f_fffc, &mut last).unwrap();
    assert_eq!(last, [4; 4]);
}

#[test]
fn mistakes_with_streams_are_named() {
    let h = ready("navi48,bridge=custom");
    let start = |h: &Host, mode: u16, fmt: u16, address: u64, dwords: u32| {
        h.control(0x40, 0xf0, 0x0f00 | fmt, mode, &f0(address, dwords)).status
    };
    for (mode, fmt, address, dwords) in [
        (1, 0x20, BAR0, 1),
        (2, 0x60, BAR0, 1),
        (1, 0x60, BAR0 + 2, 1),
        (1, 0x60, BAR0, 0),
        (3, 0x60, BAR0, 1),
    ] {
        assert_eq!(start(&h, mode, fmt, address, dwords), Status::Stall);
        assert_eq!(h.rules(), [Rule::UsbCommand]);
    }
    // More than was announced.
    start(&h, 1, 0x60, BAR0, 1);
    assert_eq!(out(&h, vec![0; 8]).status, Status::Stall);
    assert_eq!(h.rules(), [Rule::UsbStream]);
    assert_eq!(h.set(2, 1, 0, 2), Status::Success);
    // Another request before the stream's end.
    start(&h, 1, 0x60, BAR0, 2);
    out(&h, vec![0; 4]);
    start(&h, 1, 0x60, BAR0, 1);
    out(&h, vec![0; 4]);
    assert_eq!(h.rules(), [Rule::UsbCommand]);
    // Nothing was armed: it runs into the host's deadline.
    let id = h.bridge.submit(Transfer::Out { endpoint: 2, stream: 0, data: vec![0; 4] });
    assert!(!h.bridge.wait(), "it never ends");
    h.bridge.cancel(id);
    assert_eq!(h.end(id).status, Status::Cancelled);
    assert_eq!(h.rules(), [Rule::UsbStream]);
}

#[test]
fn blocks_fill_slots_of_16_kib_two_under_way() {
    let h = ready("navi48,bridge=custom");
    let data = pattern(0x40000);
    // 0x3FFFC bytes and a sentinel of four: 512 sectors in 16 slots, into the upper half.
    assert_eq!(h.set(0x40, 0xf2, 0x200, 0x1000), Status::Success);
    let first = h.bridge.submit(Transfer::Out { endpoint: 2, stream: 0, data: data.clone() });
    assert_eq!(h.set(0x40, 0xf2, 0x200, 0x1010), Status::Success);
    let second = h.bridge.submit(Transfer::Out { endpoint: 2, stream: 0, data: vec![3; 0x40000] });
    let (first, second) = (h.end(first), h.end(second));
    assert_eq!((first.actual, second.actual), (0x40000, 0x40000));
    let ns = second.at_ns - first.at_ns;
    assert!((300_000..500_000).contains(&ns), "256 KiB at 700 MB/s: {ns} ns");
    assert_eq!(h.get(0xc0, 0xe4, 0xf000, 0, 8), data[..8]);
    // One byte and a sentinel: a sector.
    assert_eq!(h.set(0x40, 0xf2, 1, 0x0100), Status::Success);
    assert_eq!(out(&h, vec![1; 512]).status, Status::Success);
    assert!(h.bridge.violations().is_empty());
    for (value, index) in [(0, 0x100), (33, 0x100), (1, 0x0120), (0x401, 0x2000)] {
        assert_eq!(h.set(0x40, 0xf2, value, index), Status::Stall, "{value:#x} {index:#x}");
        assert_eq!(h.rules(), [Rule::UsbCommand]);
    }
}

#[test]
fn a_short_or_stalled_bulk_transfer_comes_with_the_request_that_armed_it() {
    let h = ready("navi48,bridge=custom");
    let n = h.bridge.counts().usb_commands;
    let faulty = |name: &str| {
        let h = ready(&format!("navi48,bridge=custom,fault={name}:{n}"));
        h.set(0x40, 0xf2, 1, 0x100);
        h
    };
    assert_eq!(out(&faulty("usb-short"), vec![1; 512]).actual, 256);
    let h = faulty("usb-stall");
    assert_eq!(h.set(0x40, 0xe5, 0xa800, 1), Status::Success, "endpoint 0 stalls for one request");
}
