//! The vendor's firmware with its identity patched.

use crate::host::{Cdb, Host, e4, e5, write16};
use amdev_sim::Rule;
use amdev_sim::bridge::usb::{Status, Transfer, UsbPort};

const BAR5: u64 = 0x1000_0000;
const BAR0: u64 = 0x8_0000_0000;

fn ready(text: &str) -> Host {
    let h = Host::uas(text);
    h.init();
    h.setup_pci(|bus, at, value, size| h.cfg(bus, at, value, size));
    h
}

#[test]
fn identity_and_descriptors() {
    let h = Host::new("navi48");
    assert_eq!(h.bridge.interface(), None, "not configured");
    h.configure();
    assert_eq!(h.get(0x80, 6, 0x0100, 0, 18)[8..12], [0xd1, 0xad, 1, 0]);
    let c = h.get(0x80, 6, 0x0200, 0, 9);
    assert_eq!((c.len(), c[2]), (9, 121), "a descriptor is cut to what was asked for");
    assert_eq!(h.get(0x80, 6, 0x0f00, 0, 64).len(), 22);
    assert_eq!(h.get(0x80, 6, 0x0301, 0x409, 255)[2..], *b"t\0i\0n\0y\0");
    assert_eq!(h.set(0x80, 6, 0x0600, 0), Status::Stall, "no device qualifier at SuperSpeed");
    assert_eq!(h.set(0xc0, 0xe4, 0xb450, 0), Status::Stall, "no vendor requests: it is recognised by that");
    let i = h.bridge.interface().unwrap();
    assert_eq!((i.class, i.endpoints.len()), ((8, 6, 0x50), 2));
    assert_eq!(h.set(1, 11, 1, 0), Status::Success);
    assert_eq!(h.bridge.interface().unwrap().class, (8, 6, 0x62));
    assert_eq!(h.get(0x81, 10, 0, 0, 1), [1]);
    assert_eq!(h.set(1, 11, 2, 0), Status::Stall);
    assert!(h.bridge.violations().is_empty());
}

#[test]
fn memory_reads_back_what_was_written_and_stale_bytes_behind_a_command_do_not_matter() {
    let h = Host::uas("navi48");
    let Cdb(mut stale, ..) = e5(0x4000, 1);
    stale[6..].fill(0xee);
    h.batch(&[Cdb(stale, 0, Vec::new()), e5(0x4001, 2), e5(0xf000, 3), e5(0xa800, 4), e5(0x1ffff, 5)]);
    let read = h.batch(&[e4(0x4000, 3), e4(0xf000, 1), e4(0xa800, 8), e4(0x1ffff, 1)]);
    let data: Vec<_> = read.iter().map(|(d, s)| (d.as_slice(), *s)).collect();
    assert_eq!(data, [(&[1, 2, 0][..], 0), (&[3], 0), (&[4, 0, 0, 0, 0, 0, 0, 0], 0), (&[5], 0)]);
    assert!(h.bridge.violations().is_empty());
    let c = h.bridge.counts();
    assert_eq!((c.usb_commands, c.reads, c.writes), (9, 4, 5));
    // Two control transfers; a command and a status each, and data of the reads.
    assert_eq!((c.usb_transfers, c.bytes_in), (2 + 18 + 4, 9 * 16 + 13));
}

#[test]
fn a_window_of_32_commands_reuses_a_stream_after_its_status() {
    let h = Host::uas("navi48");
    let reads: Vec<Cdb> = (0..40).map(|i| e4(0x4000 + i, 1)).collect();
    h.batch(&(0..40).map(|i| e5(0x4000 + i, i as u8)).collect::<Vec<_>>());
    let got: Vec<u8> = h.batch(&reads).iter().map(|(d, _)| d[0]).collect();
    assert_eq!(got, (0..40).collect::<Vec<u8>>());
    assert!(h.bridge.violations().is_empty());
}

#[test]
fn the_gpu_is_on_bus_4_and_its_registers_and_memory_answer() {
    let h = ready("navi48");
    assert_eq!(h.cfg(0, 0, None, 4), (0, 0x2461_1b21));
    assert_eq!(h.cfg(1, 0, None, 4), (0, 0x1479_1002));
    assert_eq!(h.cfg(4, 2, None, 2), (0, 0x7550));
    assert_eq!(h.cfg(2, 0xe, None, 1), (0, 1), "a bridge");
    assert_eq!(h.cfg(9, 0, None, 4).0, 1, "unsupported request");
    assert_eq!(h.tlp(0x20, BAR5 + 0xde3 * 4, None, 4), (0, 16304), "RCC_CONFIG_MEMSIZE");
    h.tlp(0x60, BAR0 + 0x1000, Some(0x1122_3344), 4);
    h.tlp(0x60, BAR0 + 0x1002, Some(0xbeef), 2);
    h.tlp(0x60, BAR0 + 0x1001, Some(0x5a), 1);
    assert_eq!(h.tlp(0x20, BAR0 + 0x1000, None, 4), (0, 0xbeef_5a44));
    assert_eq!(h.tlp(0x20, BAR0 + 0x1003, None, 1), (0, 0xbe));
    // Link: 16 GT/s, four lanes, between the controller and the card.
    assert_eq!(h.cfg(1, 0x92, None, 2), (0, 0x44));
    assert_eq!(h.batch(&[e4(0xb450, 1)])[0].0, [0x78]);
    assert!(h.bridge.violations().is_empty(), "{:?}", h.bridge.violations());
}

#[test]
fn resizable_bar_is_found_and_resized_through_the_bridges() {
    let h = ready("navi48,bar=256M");
    let mut at = 0x100;
    let found = loop {
        let header = h.cfg(4, at, None, 4).1;
        if header & 0xffff == 0x15 {
            break at;
        }
        at = header >> 20;
        assert_ne!(at, 0, "no resizable BAR");
    };
    let sizes = h.cfg(4, found + 4, None, 4).1 >> 4;
    let control = h.cfg(4, found + 8, None, 4).1 & !0x1f00 | (31 - sizes.leading_zeros()) << 8;
    assert_eq!(h.cfg(4, found + 8, Some(control), 4).0, 0);
    assert_eq!(h.bridge.gpu().bar_len(0), 16 << 30);
    h.cfg(4, 0x10, Some(0xffff_ffff), 4);
    h.cfg(4, 0x14, Some(0xffff_ffff), 4);
    assert_eq!((h.cfg(4, 0x10, None, 4).1, h.cfg(4, 0x14, None, 4).1), (0xc, 0xffff_fffc));
}

#[test]
fn blocks_land_in_block_memory_and_the_controller_sees_the_first_4_kib() {
    let h = ready("navi48");
    let release: Vec<Cdb> = [(0x171, 0xff), (0x172, 0xff), (0x173, 0xff), (0xce6e, 0), (0xce6f, 0)]
        .map(|(at, v)| e5(at, v))
        .into();
    let data: Vec<u8> = (0..0x10000u32).map(|i| (i % 251) as u8).collect();
    assert_eq!(h.batch(&[write16(data.clone())])[0].1, 0);
    h.batch(&release);
    assert_eq!(h.batch(&[write16(vec![7; 0x10000])])[0].1, 0);
    h.batch(&release);
    assert_eq!(
        h.batch(&[e4(0xf000, 4), e4(0xfffc, 4)]).concat_data(),
        [&data[..4], &data[0xffc..0x1000]].concat()
    );
    assert!(h.bridge.violations().is_empty());
    assert_eq!(h.bridge.counts().block_bytes, 0x20000);
    assert_eq!(h.batch(&[write16(vec![7; 512])])[0].1, 2, "a small block where the window has moved on");
    assert_eq!(h.rules(), [Rule::UsbCommand]);
}

trait Concat {
    fn concat_data(&self) -> Vec<u8>;
}

impl Concat for Vec<(Vec<u8>, u8)> {
    fn concat_data(&self) -> Vec<u8> {
        self.iter().flat_map(|(d, _)| d.clone()).collect()
    }
}

#[test]
fn command_blocks_that_no_bridge_takes_are_refused_and_named() {
    let h = ready("navi48");
    let raw = |bytes: &[u8], room: usize| {
        let mut c = [0; 16];
        c[..bytes.len()].copy_from_slice(bytes);
        Cdb(c, room, Vec::new())
    };
    for (name, cdb) in [
        ("address without 0x50", raw(&[0xe5, 1, 0x00, 0x12, 0x34, 0], 0)),
        ("byte 5 set", raw(&[0xe5, 1, 0x50, 0x12, 0x34, 1], 0)),
        ("a read of nothing", raw(&[0xe4, 0, 0x50, 0x12, 0x34, 0], 0)),
        ("a read past the end", raw(&[0xe4, 2, 0x51, 0xff, 0xff, 0], 0)),
        ("a block address", raw(&[0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1], 0)),
        ("33 sectors", raw(&[0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 33], 0)),
        ("an unknown command", raw(&[0xe9], 0)),
        ("a register that nobody writes", e5(0xc800, 1)),
    ] {
        assert_eq!(h.batch(&[cdb])[0].1, 2, "{name}: check condition");
        assert_eq!(h.rules(), [Rule::UsbCommand], "{name}");
    }
}

#[test]
fn requests_that_no_engine_sends_are_refused_and_named() {
    let h = ready("navi48");
    let send = |fmt: u8, enable: u8, address: u32| {
        let mut c: Vec<Cdb> = address.to_be_bytes().iter().zip(0xb218..).map(|(b, at)| e5(at, *b)).collect();
        c.extend((0xb21c..0xb220).map(|at| e5(at, 0)));
        c.extend([e5(0xb217, enable), e5(0xb210, fmt), e5(0xb254, 0x0f), e5(0xb296, 4)]);
        h.batch(&c);
        let status = h.batch(&[e4(0xb296, 1)])[0].0[0];
        (status, h.rules())
    };
    assert_eq!(send(0x20, 0xf, 0x1000_0000), (2, vec![]));
    assert_eq!(send(0x20, 0xf, 0x1000_0003), (1, vec![Rule::TlpMalformed]), "address & 3");
    assert_eq!(send(0x20, 0x5, 0x1000_0000), (1, vec![Rule::TlpMalformed]), "a gap in the enables");
    assert_eq!(send(0x20, 0x18, 0x1000_0000), (1, vec![Rule::TlpMalformed]), "beyond the dword");
    assert_eq!(send(0x04, 0xf, 0x0100_0000), (1, vec![Rule::TlpMalformed]), "type 0 for bus 1");
    assert_eq!(send(0x02, 0xf, 0), (1, vec![Rule::TlpMalformed]), "an I/O request");
    assert_eq!(send(0x20, 0xf, 0x2000_0000), (2, vec![Rule::TlpNowhere]));
    assert_eq!(send(0x60, 0xf, 0x0000_1000), (0, vec![Rule::TlpNowhere]));
    assert_eq!(send(0x20, 0x3, 0x1000_0000), (2, vec![Rule::BadAccess]), "half a register");
    // A trigger before the last request was acknowledged.
    h.batch(&[e5(0xb210, 0x20), e5(0xb254, 0x0f), e5(0xb254, 0x0f), e5(0xb296, 4)]);
    assert!(h.rules().contains(&Rule::TlpMalformed));
}

#[test]
fn transfers_without_their_stream_are_refused_and_named() {
    let h = Host::new("navi48");
    let bulk = |endpoint: u8, stream: u32| h.bridge.submit(Transfer::In { endpoint, stream, length: 64 });
    assert_eq!(h.end(bulk(0x81, 0)).status, Status::Invalid, "not configured");
    h.configure();
    assert_eq!(h.end(bulk(0x83, 0)).status, Status::Invalid, "alternate setting 0 has no status pipe");
    h.set(1, 11, 1, 0);
    assert_eq!(h.end(bulk(0x83, 1)).status, Status::Invalid, "no streams yet");
    assert_eq!(h.bridge.alloc_streams(&[0x04], 31), Status::Invalid, "none for commands");
    assert_eq!(h.bridge.alloc_streams(&[0x81], 32), Status::Invalid, "31 is the most");
    assert_eq!(h.bridge.alloc_streams(&[0x81, 0x83], 31), Status::Success);
    assert_eq!(h.end(bulk(0x83, 0)).status, Status::Invalid, "a stream is needed");
    assert_eq!(h.end(bulk(0x83, 32)).status, Status::Invalid);
    assert_eq!(h.rules(), [Rule::UsbStream; 7]);
    // A tag that is still in use, one without stream, and data that a command does not have.
    let h = Host::uas("navi48");
    let iu = |tag: u8| {
        let mut iu = vec![0; 32];
        (iu[0], iu[3]) = (1, tag);
        iu[16..].copy_from_slice(&e5(0x4000, 1).0);
        Transfer::Out { endpoint: 4, stream: 0, data: iu }
    };
    for tag in [1, 1, 0, 32] {
        h.end(h.bridge.submit(iu(tag)));
    }
    assert_eq!(h.rules(), [Rule::UsbStream; 3]);
    let data = h.bridge.submit(Transfer::In { endpoint: 0x81, stream: 1, length: 4 });
    let status = h.bridge.submit(Transfer::In { endpoint: 0x83, stream: 1, length: 64 });
    assert_eq!(h.end(status).status, Status::Success);
    assert_eq!(h.end(data).status, Status::Stall);
    assert_eq!(h.rules(), [Rule::UsbStream]);
}

#[test]
fn a_block_waits_for_its_data_and_commands_behind_it_wait_too() {
    let h = ready("navi48");
    let command = |tag: u8, Cdb(cdb, ..): Cdb| {
        let mut iu = vec![0; 32];
        (iu[0], iu[3]) = (1, tag);
        iu[16..].copy_from_slice(&cdb);
        h.bridge.submit(Transfer::Out { endpoint: 4, stream: 0, data: iu });
        h.bridge.submit(Transfer::In { endpoint: 0x83, stream: u32::from(tag), length: 64 })
    };
    let block = command(1, write16(vec![9; 512]));
    let read = command(2, e4(0xf000, 1));
    let data = h.bridge.submit(Transfer::In { endpoint: 0x81, stream: 2, length: 255 });
    while h.bridge.wait() {
        let c = h.bridge.poll().unwrap();
        assert!(c.id != block && c.id != read && c.id != data, "nothing ends before the data");
    }
    h.bridge.submit(Transfer::Out { endpoint: 2, stream: 1, data: vec![9; 512] });
    assert_eq!(h.end(data).data, [9], "a short packet");
    assert_eq!(h.end(read).data[6], 0);
    assert!(h.bridge.violations().is_empty());
}

#[test]
fn faults_come_at_their_command() {
    // The tenth command is the last of the set-up: 0x0 = 0x33.
    let outcome = |fault: &str| {
        let h = Host::uas(&format!("navi48,fault={fault}:0"));
        let mut iu = vec![0; 32];
        (iu[0], iu[3]) = (1, 1);
        iu[16..].copy_from_slice(&e4(0x4000, 8).0);
        let start = h.bridge.now_ns();
        h.bridge.submit(Transfer::Out { endpoint: 4, stream: 0, data: iu });
        let data = h.bridge.submit(Transfer::In { endpoint: 0x81, stream: 1, length: 8 });
        let status = h.bridge.submit(Transfer::In { endpoint: 0x83, stream: 1, length: 64 });
        let mut ends = [None, None];
        while ends.contains(&None) {
            match h.bridge.poll() {
                Some(c) if c.id == data => ends[0] = Some((c.status, c.actual)),
                Some(c) if c.id == status => ends[1] = Some((c.status, c.actual)),
                Some(_) => {}
                None if h.bridge.wait() => {}
                None => break,
            }
        }
        (ends, h.bridge.now_ns() - start, h)
    };
    let ok = |n| Some((Status::Success, n));
    let (ends, ns, _) = outcome("tlp-error");
    assert_eq!(ends, [ok(8), ok(16)]);
    assert!(ns < 200_000, "{ns} ns");
    assert_eq!(outcome("usb-short").0, [ok(4), ok(16)]);
    let (ends, ns, _) = outcome("usb-late");
    assert_eq!(ends, [ok(8), ok(16)]);
    assert!(ns > 2_000_000_000, "{ns} ns");
    assert_eq!(outcome("usb-lost").0, [None, None]);
    let gone = Some((Status::Io, 0));
    let (ends, _, h) = outcome("usb-unplug");
    assert_eq!(ends, [gone, gone]);
    assert!(!h.bridge.present() && !h.bridge.gpu().present());
    // Plugged in again it is a bridge like any other.
    h.bridge.plug();
    h.configure();
    h.set(1, 11, 1, 0);
    h.bridge.alloc_streams(&[2, 0x81, 0x83], 31);
    h.init();
    h.setup_pci(|bus, at, value, size| h.cfg(bus, at, value, size));
    assert_eq!(h.tlp(0x20, BAR5 + 0xde3 * 4, None, 4), (0, 16304));
    let (ends, _, h) = outcome("usb-stall");
    assert_eq!(ends, [None, Some((Status::Stall, 0))]);
    assert_eq!(h.set(2, 1, 0, 0x83), Status::Success, "the halt is cleared");
    assert_eq!(h.batch(&[e5(0x4000, 7)])[0].1, 0);
}

#[test]
fn faults_of_requests_show_in_status_and_completion() {
    for (fault, status, completion) in [
        ("tlp-error", 1, None),
        ("tlp-lost", 0, None),
        ("tlp-crs", 2, Some(2)),
        ("tlp-ur", 2, Some(1)),
        ("tlp-ca", 2, Some(4)),
    ] {
        let h = Host::uas(&format!("navi48,fault={fault}:0"));
        let mut c: Vec<Cdb> = (0xb218..0xb220).map(|at| e5(at, 0)).collect();
        c.extend([e5(0xb217, 0xf), e5(0xb210, 4), e5(0xb254, 0x0f), e5(0xb296, 4)]);
        h.batch(&c);
        assert_eq!(h.batch(&[e4(0xb296, 1)])[0].0, [status], "{fault}");
        if let Some(want) = completion {
            assert_eq!(h.batch(&[e4(0xb22a, 2)])[0].0, [want << 5, 4], "{fault}");
        }
        assert_eq!(h.cfg(0, 0, None, 4), (0, 0x2461_1b21), "the next request is a good one");
        assert!(h.bridge.violations().is_empty());
    }
}

#[test]
fn a_dead_link_is_named_and_comes_back_with_perst() {
    let h = ready("navi48,fault=link-down:80");
    while h.bridge.counts().tlps < 80 {
        h.cfg(0, 0, None, 4);
    }
    h.batch(&[e5(0xb210, 4), e5(0xb254, 0x0f), e5(0xb296, 4)]);
    assert_eq!(h.batch(&[e4(0xb296, 1), e4(0xb450, 1)]).concat_data(), [1, 0]);
    assert_eq!(h.rules(), [Rule::LinkDown]);
    h.batch(&[e5(0xb480, 1), e5(0xb480, 0)]);
    assert_eq!(h.batch(&[e4(0xb450, 1)])[0].0, [0], "training");
    h.bridge.pass(400_000_000);
    assert_eq!(h.batch(&[e4(0xb450, 1)])[0].0, [0x78]);
    assert_eq!(h.cfg(4, 0, None, 4).0, 1, "the card's ports are not configured any more");
    h.setup_pci(|bus, at, value, size| h.cfg(bus, at, value, size));
    assert_eq!(h.tlp(0x20, BAR5 + 0xde3 * 4, None, 4), (0, 16304));
    assert!(h.bridge.violations().is_empty());
}

#[test]
fn bulk_only_answers_what_a_bios_asks_and_not_the_bridges_own_commands() {
    let h = Host::new("navi48");
    h.configure();
    let ask = |cdb: &[u8], room: u32| {
        let mut cbw = b"USBC\x01\0\0\0".to_vec();
        cbw.extend(room.to_le_bytes());
        cbw.extend([if room > 0 { 0x80 } else { 0 }, 0, cdb.len() as u8]);
        cbw.extend(cdb);
        cbw.resize(31, 0);
        h.end(h.bridge.submit(Transfer::Out { endpoint: 2, stream: 0, data: cbw }));
        let read = |len| h.end(h.bridge.submit(Transfer::In { endpoint: 0x81, stream: 0, length: len })).data;
        let data = if room > 0 { read(room as usize) } else { Vec::new() };
        let csw = read(13);
        assert_eq!(csw[..8], *b"USBS\x01\0\0\0");
        (data, csw[12])
    };
    let (inquiry, status) = ask(&[0x12, 0, 0, 0, 36, 0], 36);
    assert_eq!((inquiry.len(), &inquiry[8..12], status), (36, &b"ASMT"[..], 0));
    assert_eq!(ask(&[0, 0, 0, 0, 0, 0], 0).1, 1, "no medium");
    let (sense, status) = ask(&[3, 0, 0, 0, 18, 0], 18);
    assert_eq!((sense[2], sense[12], status), (2, 0x3a, 0));
    assert_eq!(h.get(0xa1, 0xfe, 0, 0, 1), [0], "one unit");
    assert!(h.bridge.violations().is_empty());
    assert_eq!(ask(&[0xe4, 1, 0x50, 0, 0, 0], 1).1, 1);
    assert_eq!(h.rules(), [Rule::UsbCommand]);
}
