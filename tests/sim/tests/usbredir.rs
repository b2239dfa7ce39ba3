//! `amdev-sim usb` by the text of the protocol: a client of raw bytes against the real binary, as QEMU
//! was seen to speak.
#![cfg(target_os = "linux")]

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

mod served;

use served::Server;

/// What QEMU announces.
const QEMU: u32 = 0xff;
const STREAMS_MASK: u32 = 0xa0004;

impl Server {
    fn start(name: &str, gpu: &str, bridge: &str) -> Server {
        let socket = std::env::temp_dir().join(format!("amdev-usb-{name}-{}.sock", std::process::id()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_amdev-sim"));
        command.args(["usb", "--gpu", gpu, "--bridge", bridge, "--socket"]).stderr(Stdio::null());
        Server::spawn(&mut command, socket)
    }

    fn raw(&self) -> Client {
        let socket = UnixStream::connect(&self.socket).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Client { socket, id: 0x1_0000_0000, wide: false, ahead: VecDeque::new() }
    }

    /// A client that has seen the device come.
    fn client(&self) -> Client {
        let mut c = self.raw();
        c.hello(QEMU);
        let kinds: Vec<u32> = (0..3).map(|_| c.read().kind).collect();
        assert_eq!(kinds, [5, 4, 1], "endpoints, interface, then the device");
        c
    }
}

#[derive(Debug)]
struct Packet {
    kind: u32,
    id: u64,
    body: Vec<u8>,
}

struct Client {
    socket: UnixStream,
    id: u64,
    wide: bool,
    ahead: VecDeque<Packet>,
}

impl Client {
    fn write(&mut self, kind: u32, body: &[u8]) -> u64 {
        self.id += 1;
        self.write_as(self.id, kind, body);
        self.id
    }

    fn write_as(&mut self, id: u64, kind: u32, body: &[u8]) {
        let mut b = kind.to_le_bytes().to_vec();
        b.extend((body.len() as u32).to_le_bytes());
        let id = id.to_le_bytes();
        b.extend(if self.wide && kind != 0 { &id[..] } else { &id[..4] });
        b.extend(body);
        self.socket.write_all(&b).unwrap();
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        let mut b = vec![0; n];
        self.socket.read_exact(&mut b).unwrap();
        b
    }

    /// The next packet from the socket.
    fn read(&mut self) -> Packet {
        let head = self.bytes(8);
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        let (kind, length) = (word(0), word(4));
        let narrow = kind == 0 || !self.wide;
        let mut id = self.bytes(if narrow { 4 } else { 8 });
        id.resize(8, 0);
        let body = self.bytes(length as usize);
        Packet { kind, id: u64::from_le_bytes(id.try_into().unwrap()), body }
    }

    /// The answer to a packet of ours; others wait.
    fn answer(&mut self, id: u64) -> Packet {
        if let Some(i) = self.ahead.iter().position(|p| p.id == id) {
            return self.ahead.remove(i).unwrap();
        }
        loop {
            let p = self.read();
            if p.id == id {
                return p;
            }
            self.ahead.push_back(p);
        }
    }

    fn hello(&mut self, caps: u32) {
        let h = self.read();
        assert_eq!((h.kind, h.body.len()), (0, 68));
        assert_eq!(h.body[64..], 0x73u32.to_le_bytes());
        let mut body = b"test".to_vec();
        body.resize(64, 0);
        body.extend(caps.to_le_bytes());
        self.write(0, &body);
        self.wide = caps & 0x20 != 0;
        // Ids of 32 bits have to come back whole.
        self.id = if self.wide { 0x1_0000_0000 } else { 0 };
    }

    fn control(
        &mut self,
        request_type: u8,
        request: u8,
        value: u16,
        index: u16,
        length: u16,
    ) -> (u8, Vec<u8>) {
        let mut body = vec![request_type & 0x80, request, request_type, 0];
        body.extend([value, index, length].into_iter().flat_map(u16::to_le_bytes));
        let sent = body.clone();
        let id = self.write(100, &body);
        let a = self.answer(id);
        assert_eq!(
            (a.kind, &a.body[..3], &a.body[4..8]),
            (100, &sent[..3], &sent[4..8]),
            "fields are echoed"
        );
        let len = usize::from(u16::from_le_bytes([a.body[8], a.body[9]]));
        let data = a.body[10..].to_vec();
        assert_eq!(data.len(), if request_type & 0x80 != 0 { len } else { 0 });
        (a.body[3], data)
    }

    fn bulk(&mut self, endpoint: u8, stream: u32, length: usize, data: &[u8]) -> u64 {
        let l = (length as u32).to_le_bytes();
        let mut body = vec![endpoint, 0, l[0], l[1]];
        body.extend(stream.to_le_bytes());
        body.extend(&l[2..]);
        body.extend(data);
        self.write(101, &body)
    }

    /// Status, bytes moved, data.
    fn end(&mut self, id: u64) -> (u8, usize, Vec<u8>) {
        let a = self.answer(id);
        assert_eq!(a.kind, 101);
        let b = &a.body;
        let n = u32::from_le_bytes([b[2], b[3], b[8], b[9]]) as usize;
        let data = b[10..].to_vec();
        assert_eq!(data.len(), if b[0] & 0x80 != 0 { n } else { 0 }, "data travels in its own direction");
        (b[1], n, data)
    }

    fn set_configuration(&mut self) {
        let id = self.write(6, &[1]);
        assert_eq!([self.read().kind, self.read().kind], [5, 4], "described before it is told");
        assert_eq!(self.answer(id).body, [0, 1]);
    }

    /// Alternate setting 1 with streams.
    fn uas(&mut self) {
        self.set_configuration();
        let id = self.write(9, &[0, 1]);
        let (endpoints, interface) = (self.read(), self.read());
        assert_eq!((endpoints.kind, interface.kind), (5, 4));
        assert_eq!(self.answer(id).body, [0, 0, 1]);
        // Types, packet sizes and streams of the four pipes; the tables are by direction and number.
        let e = &endpoints.body;
        assert_eq!(e.len(), 288);
        assert_eq!([2, 4, 17, 19, 0, 16, 1].map(|i| e[i]), [2, 2, 2, 2, 0, 0, 255]);
        let packet = |i: usize| u16::from_le_bytes([e[96 + 2 * i], e[97 + 2 * i]]);
        assert_eq!([2, 4, 17, 19].map(packet), [1024; 4]);
        let streams = |i: usize| u32::from_le_bytes(e[160 + 4 * i..164 + 4 * i].try_into().unwrap());
        assert_eq!([2, 4, 17, 19].map(streams), [32, 0, 32, 32]);
        assert_eq!([36, 68, 100].map(|at| interface.body[at]), [8, 6, 0x62]);
        self.streams();
    }

    fn streams(&mut self) {
        let body = [STREAMS_MASK.to_le_bytes(), 32u32.to_le_bytes()].concat();
        let id = self.write(18, &body);
        assert_eq!(self.answer(id).body, [&body[..], &[0]].concat());
    }

    /// One command by USB Attached SCSI; its data.
    fn command(&mut self, cdb: &[u8], room: usize) -> Vec<u8> {
        let mut iu = vec![0; 32];
        (iu[0], iu[3]) = (1, 5);
        iu[16..16 + cdb.len()].copy_from_slice(cdb);
        let status = self.bulk(0x83, 5, 64, &[]);
        let data = (room > 0).then(|| self.bulk(0x81, 5, room, &[]));
        let command = self.bulk(0x04, 0, 32, &iu);
        assert_eq!(self.end(command), (0, 32, Vec::new()));
        let data = data.map_or(Vec::new(), |id| self.end(id).2);
        let (code, n, status) = self.end(status);
        assert_eq!((code, n, status[0], status[3], status[6]), (0, 16, 3, 5, 0));
        data
    }

    fn e5(&mut self, at: u16, value: u8) {
        let [high, low] = at.to_be_bytes();
        self.command(&[0xe5, value, 0x50, high, low, 0], 0);
    }

    fn e4(&mut self, at: u16, len: u8) -> Vec<u8> {
        let [high, low] = at.to_be_bytes();
        self.command(&[0xe4, len, 0x50, high, low, 0], 255)
    }
}

#[test]
fn a_client_enumerates_and_runs_commands_on_streams() {
    let server = Server::start("uas", "navi48", "patched");
    let mut c = server.client();
    // A guest resets the port at boot, several times, and gets no answer.
    for _ in 0..5 {
        c.write(3, &[]);
    }
    let (status, device) = c.control(0x80, 6, 0x0100, 0, 18);
    assert_eq!((status, device.len(), &device[8..12]), (0, 18, &[0xd1, 0xad, 1, 0][..]));
    assert_eq!(c.control(0x80, 6, 0x0200, 0, 512).1.len(), 121);
    assert_eq!(c.control(0xc0, 0xe4, 0, 0, 1), (4, vec![]), "unknown requests stall");
    c.uas();
    c.e5(0xa800, 0x5a);
    assert_eq!(c.e4(0xa800, 2), [0x5a, 0], "a short packet: exactly what was asked for");
    // A configuration read of bus 0 through the TLP engine.
    for at in (0xb218..0xb220).chain([0xb217, 0xb210, 0xb254, 0xb296]) {
        c.e5(
            at,
            match at {
                0xb217 | 0xb254 => 0x0f,
                0xb210 | 0xb296 => 4,
                _ => 0,
            },
        );
    }
    assert_eq!(
        [c.e4(0xb296, 1), c.e4(0xb22a, 2), c.e4(0xb220, 4)].concat(),
        [2, 0, 4, 0x24, 0x61, 0x1b, 0x21]
    );
    assert_eq!(c.control(2, 1, 0, 0x83, 0).0, 0, "a halt is cleared by a control request");
    // Nothing answers a command that has not come; it is cancelled, once.
    let waits = c.bulk(0x83, 9, 64, &[]);
    c.write_as(waits, 21, &[]);
    assert_eq!(c.end(waits), (1, 0, vec![]));
    c.write_as(0x77, 21, &[]);
    assert_eq!(c.control(0x80, 8, 0, 0, 1), (0, vec![1]));
    let id = c.write(19, &STREAMS_MASK.to_le_bytes());
    assert_eq!(c.answer(id).body[8], 0);
    drop(c);
    let counts = server.stop();
    assert_eq!(counts["usb_commands"], 1 + 1 + 12 + 3);
    assert_eq!(counts["tlps"], 1);
    assert!(counts["usb_transfers"].as_u64().unwrap() > 40, "{counts}");
    assert!(counts["violations"].as_array().unwrap().is_empty(), "{counts}");
    assert_eq!(counts["gpu"]["register_reads"], 0);
}

#[test]
fn bulk_only_transfers_end_in_the_order_of_their_submission() {
    let server = Server::start("bot", "navi31", "patched");
    let mut c = server.client();
    c.set_configuration();
    for round in 0..3u8 {
        let mut cbw = b"USBC".to_vec();
        cbw.extend([round, 0, 0, 0, 36, 0, 0, 0, 0x80, 0, 6, 0x12, 0, 0, 0, 36, 0]);
        cbw.resize(31, 0);
        let ids = [c.bulk(2, 0, 31, &cbw), c.bulk(0x81, 0, 36, &[]), c.bulk(0x81, 0, 13, &[])];
        let seen: Vec<Packet> = (0..3).map(|_| c.read()).collect();
        let data: Vec<u64> = seen.iter().filter(|p| p.body[0] == 0x81).map(|p| p.id).collect();
        assert_eq!(data, ids[1..]);
        assert_eq!(&seen.iter().find(|p| p.id == ids[1]).unwrap().body[18..22], b"ASMT");
    }
    assert!(server.stop()["violations"].as_array().unwrap().is_empty());
}

#[test]
fn the_open_firmware_answers_vendor_requests() {
    let server = Server::start("custom", "navi48", "custom");
    let mut c = server.client();
    c.set_configuration();
    assert_eq!(c.control(0xc0, 0xe4, 0xb450, 0, 1), (0, vec![0]));
    assert_eq!(c.control(0x40, 0xf3, 1, 0, 0).0, 0);
    assert_eq!(c.control(0xc0, 0xe4, 0xb450, 0, 1), (0, vec![0x78]));
    assert_eq!(c.control(0x40, 0xf2, 16, 0x100, 0).0, 0);
    let id = c.bulk(2, 0, 0x2000, &[7; 0x2000]);
    assert_eq!(c.end(id), (0, 0x2000, vec![]));
    assert_eq!(c.control(0xc0, 0xe4, 0xfff0, 0, 16), (0, vec![7; 16]));
    let counts = server.stop();
    assert_eq!((&counts["block_bytes"], &counts["usb_commands"]), (&0x2000.into(), &5.into()));
}

#[test]
fn a_pulled_cable_is_told_and_a_plugged_one_comes_anew() {
    let server = Server::start("cable", "navi48", "patched");
    let mut c = server.client();
    c.uas();
    let waits = c.bulk(0x83, 3, 64, &[]);
    // Let it arrive before the cable goes.
    assert_eq!(c.control(0x80, 8, 0, 0, 1), (0, vec![1]));
    server.signal("USR1");
    assert_eq!(c.end(waits), (3, 0, vec![]), "the device is gone");
    assert_eq!(c.read().kind, 2);
    server.signal("USR1");
    assert_eq!([c.read().kind, c.read().kind, c.read().kind], [5, 4, 1]);
    c.uas();
    c.e5(0x4000, 3);
    // A fault pulls it, too.
    drop((c, server));
    let server = Server::start("fault", "navi48,fault=usb-unplug:1", "patched");
    let mut c = server.client();
    c.uas();
    c.e5(0x4000, 3);
    let status = c.bulk(0x83, 1, 64, &[]);
    let mut iu = vec![0; 32];
    (iu[0], iu[3]) = (1, 1);
    iu[16..22].copy_from_slice(&[0xe5, 1, 0x50, 0, 0, 0]);
    c.bulk(4, 0, 32, &iu);
    assert_eq!(c.end(status).0, 3);
}

#[test]
fn nonsense_ends_the_conversation_and_not_the_server() {
    let server = Server::start("bad", "navi48", "patched");
    let hello = |c: &mut Client| c.hello(QEMU);
    type Case = fn(&mut Client) -> u64;
    let cases: [(&str, Case); 5] = [
        ("a packet before the hello", |c| c.write(3, &[])),
        ("a bulk packet that is too short", |c| c.write(101, &[0; 4])),
        ("less data than announced", |c| c.bulk(2, 0, 31, &[0; 30])),
        ("an unknown type", |c| c.write(250, &[])),
        ("an endless packet", |c| {
            let header = [101, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0];
            c.socket.write_all(&header).unwrap();
            0
        }),
    ];
    for (name, case) in cases {
        let mut c = server.raw();
        if name != "a packet before the hello" {
            hello(&mut c);
        }
        case(&mut c);
        let mut rest = Vec::new();
        // The server may close while bytes of ours are unread.
        let _ = c.socket.read_to_end(&mut rest);
    }
    // A client of the protocol's first version: short ids, short lengths, no streams.
    let mut c = server.raw();
    c.hello(0);
    let endpoints = c.read();
    assert_eq!((endpoints.kind, endpoints.body.len()), (5, 96));
    assert_eq!(c.read().body.len(), 132);
    assert_eq!(c.read().body, [3, 0, 0, 0, 0xd1, 0xad, 1, 0]);
    assert_eq!(c.control(0x80, 8, 0, 0, 1), (0, vec![0]));
}
