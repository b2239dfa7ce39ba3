//! One client: its packets become transfers, and completions become packets.

use super::super::Bridge;
use super::super::usb::{Completion, Setup, Status, Transfer, UsbPort as _};
use super::wire::{self, CAPS, Packet, kind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

const NAME: &str = concat!("amdev-sim ", env!("CARGO_PKG_VERSION"));
/// Bytes of one read.
const CHUNK: usize = 1 << 16;
/// The thread sleeps at least that long, and looks after the cable at least that often.
const SHORTEST_NS: u64 = 50_000;
const LONGEST_NS: u64 = 50_000_000;
/// Bytes that a client may ask for in one transfer.
const MAX_IN: usize = 16 << 20;

/// A data packet without an answer.
struct Open {
    id: u64,
    kind: u32,
    /// The packet's own fields, echoed.
    fields: Vec<u8>,
}

pub(super) struct Session<'a> {
    bridge: &'a Bridge,
    socket: UnixStream,
    cable: &'a AtomicBool,
    received: Vec<u8>,
    /// What both sides can do, once both have said it.
    caps: Option<u32>,
    connected: bool,
    open: BTreeMap<u64, Open>,
    out: VecDeque<Packet>,
}

fn malformed(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl<'a> Session<'a> {
    pub(super) fn new(bridge: &'a Bridge, socket: UnixStream, cable: &'a AtomicBool) -> Session<'a> {
        Session {
            bridge,
            socket,
            cable,
            received: Vec::new(),
            caps: None,
            connected: false,
            open: BTreeMap::new(),
            out: VecDeque::new(),
        }
    }

    /// Until the client goes or says nonsense.
    pub(super) fn serve(mut self) -> io::Result<()> {
        // Another host's port: whatever the last one left is reset.
        self.bridge.reset();
        let result = self.talk();
        self.bridge.reset();
        while self.bridge.poll().is_some() {}
        result
    }

    fn talk(&mut self) -> io::Result<()> {
        self.out.push_back(wire::hello(NAME, CAPS));
        loop {
            self.look_after_cable();
            while let Some(c) = self.bridge.poll() {
                self.complete(c);
            }
            self.flush()?;
            if !self.readable()? {
                continue;
            }
            let mut chunk = vec![0; CHUNK];
            let n = self.socket.read(&mut chunk)?;
            if n == 0 {
                return Ok(());
            }
            self.received.extend(&chunk[..n]);
            loop {
                // A hello changes how the next packet is read.
                let wide = self.has(wire::IDS_64);
                let Some(p) = wire::take(&mut self.received, wide).map_err(malformed)? else { break };
                self.packet(p)?;
            }
        }
    }

    /// Waits for the client, no longer than until something happens here.
    fn readable(&mut self) -> io::Result<bool> {
        let now = self.bridge.now_ns();
        let own = self.bridge.next_ns().map(|at| at.saturating_sub(now));
        let gpu = self.bridge.gpu().run_due();
        let ns = [own, gpu].into_iter().flatten().min().unwrap_or(LONGEST_NS);
        let ns = ns.clamp(SHORTEST_NS, LONGEST_NS);
        let timeout = Timespec { tv_sec: 0, tv_nsec: ns as _ };
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(n) => Ok(n > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let wide = self.has(wire::IDS_64);
        let bytes: Vec<u8> = self.out.drain(..).flat_map(|p| p.bytes(wide)).collect();
        self.socket.write_all(&bytes)
    }

    fn has(&self, cap: u32) -> bool {
        self.caps.is_some_and(|c| c & cap != 0)
    }

    fn send(&mut self, kind: u32, id: u64, body: Vec<u8>) {
        self.out.push_back(Packet { kind, id, body });
    }

    // The device.

    fn look_after_cable(&mut self) {
        if self.cable.swap(false, Ordering::SeqCst) {
            if self.bridge.present() { self.bridge.unplug() } else { self.bridge.plug() }
        }
        if self.caps.is_none() || self.connected == self.bridge.present() {
            return;
        }
        self.connected = self.bridge.present();
        if self.connected {
            self.connect();
        } else {
            // The device's last words, then it is gone.
            while let Some(c) = self.bridge.poll() {
                self.complete(c);
            }
            self.open.clear();
            self.send(kind::DEVICE_DISCONNECT, 0, Vec::new());
        }
    }

    fn connect(&mut self) {
        self.describe();
        let (vid, pid, bcd) = (0xadd1u16, 0x0001u16, 0x0001u16);
        let mut body = vec![3, 0, 0, 0];
        body.extend([vid, pid].into_iter().flat_map(u16::to_le_bytes));
        if self.has(wire::VERSION) {
            body.extend(bcd.to_le_bytes());
        }
        self.send(kind::DEVICE_CONNECT, 0, body);
    }

    /// Endpoints and the interface of the present alternate setting.
    fn describe(&mut self) {
        let Some(interface) = self.bridge.described() else { return };
        let (mut types, mut packets, mut streams) = ([255u8; 32], [0u16; 32], [0u32; 32]);
        (types[0], types[16]) = (0, 0);
        (packets[0], packets[16]) = (512, 512);
        for e in &interface.endpoints {
            let i = wire::index(e.address);
            (types[i], packets[i], streams[i]) = (2, e.max_packet, e.max_streams);
        }
        let mut body = types.to_vec();
        body.extend([0; 64]);
        if self.has(wire::PACKET_SIZE) {
            body.extend(packets.into_iter().flat_map(u16::to_le_bytes));
        }
        if self.has(wire::STREAMS) {
            body.extend(streams.into_iter().flat_map(u32::to_le_bytes));
        }
        self.send(kind::EP_INFO, 0, body);
        let (class, subclass, protocol) = interface.class;
        let mut body = 1u32.to_le_bytes().to_vec();
        for first in [0, class, subclass, protocol] {
            let mut table = [0; 32];
            table[0] = first;
            body.extend(table);
        }
        self.send(kind::INTERFACE_INFO, 0, body);
    }

    // Packets.

    fn packet(&mut self, p: Packet) -> io::Result<()> {
        if self.caps.is_none() && p.kind != kind::HELLO {
            return Err(malformed(format!("packet of type {} before the hello", p.kind)));
        }
        let exactly = |n: usize| match p.body.len() {
            len if len == n => Ok(()),
            len => Err(malformed(format!("packet of type {} with {len} bytes, not {n}", p.kind))),
        };
        match p.kind {
            kind::HELLO if self.caps.is_some() => return Err(malformed("a second hello".into())),
            kind::HELLO => self.caps = Some(wire::caps(&p.body).map_err(malformed)? & CAPS),
            kind::RESET => {
                exactly(0)?;
                self.open.clear();
                self.bridge.reset();
            }
            kind::SET_CONFIGURATION => {
                exactly(1)?;
                let good = self.bridge.configure(p.body[0]);
                self.describe();
                self.configuration_status(p.id, good);
            }
            kind::GET_CONFIGURATION => {
                exactly(0)?;
                self.configuration_status(p.id, true);
            }
            kind::SET_ALT_SETTING => {
                exactly(2)?;
                let good = p.body[0] == 0 && self.bridge.select(p.body[1]);
                self.describe();
                self.alt_setting_status(p.id, p.body[0], good);
            }
            kind::GET_ALT_SETTING => {
                exactly(1)?;
                self.alt_setting_status(p.id, p.body[0], p.body[0] == 0);
            }
            kind::ALLOC_BULK_STREAMS => {
                exactly(8)?;
                let (mask, n) = (word(&p.body, 0), word(&p.body, 4));
                // The client counts the reserved stream 0, too.
                let status = self.bridge.alloc_streams(&wire::endpoints(mask), n.saturating_sub(1));
                self.streams_status(p.id, mask, n, status);
            }
            kind::FREE_BULK_STREAMS => {
                exactly(4)?;
                let mask = word(&p.body, 0);
                let status = self.bridge.free_streams(&wire::endpoints(mask));
                self.streams_status(p.id, mask, 0, status);
            }
            kind::CANCEL_DATA_PACKET => {
                exactly(0)?;
                let found = self.open.iter().find(|(_, o)| o.id == p.id).map(|(id, _)| *id);
                if let Some(id) = found {
                    self.bridge.cancel(id);
                }
            }
            kind::CONTROL => self.control(p)?,
            kind::BULK => self.bulk(p)?,
            kind::FILTER_REJECT | kind::FILTER_FILTER | kind::DISCONNECT_ACK => {}
            other => {
                return Err(malformed(format!("packet of type {other}, which this device has no use for")));
            }
        }
        Ok(())
    }

    fn configuration_status(&mut self, id: u64, good: bool) {
        let status = if good { Status::Success } else { Status::Invalid };
        self.send(kind::CONFIGURATION_STATUS, id, vec![status as u8, self.bridge.configuration()]);
    }

    fn alt_setting_status(&mut self, id: u64, interface: u8, good: bool) {
        let status = if good { Status::Success } else { Status::Invalid };
        let alternate = self.bridge.described().map_or(0, |i| i.alternate);
        self.send(kind::ALT_SETTING_STATUS, id, vec![status as u8, interface, alternate]);
    }

    fn streams_status(&mut self, id: u64, mask: u32, n: u32, status: Status) {
        let mut body = mask.to_le_bytes().to_vec();
        body.extend(n.to_le_bytes());
        body.push(status as u8);
        self.send(kind::BULK_STREAMS_STATUS, id, body);
    }

    fn control(&mut self, p: Packet) -> io::Result<()> {
        const FIELDS: usize = 10;
        if p.body.len() < FIELDS {
            return Err(malformed(format!("control packet of {} bytes", p.body.len())));
        }
        let (fields, data) = p.body.split_at(FIELDS);
        let half = |at: usize| u16::from_le_bytes([fields[at], fields[at + 1]]);
        let setup = Setup {
            request: fields[1],
            request_type: fields[2],
            value: half(4),
            index: half(6),
            length: half(8),
        };
        let want = if setup.is_in() { 0 } else { usize::from(setup.length) };
        if data.len() != want {
            return Err(malformed(format!("control packet with {} bytes of data, not {want}", data.len())));
        }
        let (fields, data) = (fields.to_vec(), data.to_vec());
        self.begin(p.id, p.kind, fields, Transfer::Control { setup, data });
        Ok(())
    }

    fn bulk(&mut self, p: Packet) -> io::Result<()> {
        let fixed = if self.has(wire::LENGTH_32) { 10 } else { 8 };
        if p.body.len() < fixed {
            return Err(malformed(format!("bulk packet of {} bytes", p.body.len())));
        }
        let (fields, data) = p.body.split_at(fixed);
        let (endpoint, stream) = (fields[0], word(fields, 4));
        let mut length = usize::from(u16::from_le_bytes([fields[2], fields[3]]));
        if fixed == 10 {
            length |= usize::from(u16::from_le_bytes([fields[8], fields[9]])) << 16;
        }
        let is_in = endpoint & 0x80 != 0;
        if data.len() != if is_in { 0 } else { length } {
            return Err(malformed(format!("bulk packet for {length} bytes with {} of data", data.len())));
        }
        let fields = fields.to_vec();
        let transfer = if !is_in {
            Transfer::Out { endpoint, stream, data: data.to_vec() }
        } else if length <= MAX_IN {
            Transfer::In { endpoint, stream, length }
        } else {
            self.answer(&Open { id: p.id, kind: p.kind, fields }, Status::Invalid, 0, &[]);
            return Ok(());
        };
        self.begin(p.id, p.kind, fields, transfer);
        Ok(())
    }

    fn begin(&mut self, id: u64, kind: u32, fields: Vec<u8>, transfer: Transfer) {
        let ours = self.bridge.submit(transfer);
        self.open.insert(ours, Open { id, kind, fields });
    }

    /// The end of a transfer, unless it was swept away by a reset.
    fn complete(&mut self, c: Completion) {
        if let Some(open) = self.open.remove(&c.id) {
            self.answer(&open, c.status, c.actual, &c.data);
        }
    }

    fn answer(&mut self, open: &Open, status: Status, actual: usize, data: &[u8]) {
        let mut body = open.fields.clone();
        let length = (actual as u32).to_le_bytes();
        if open.kind == kind::CONTROL {
            body[3] = status as u8;
            body[8..10].copy_from_slice(&length[..2]);
        } else {
            body[1] = status as u8;
            body[2..4].copy_from_slice(&length[..2]);
            if let Some(high) = body.get_mut(8..10) {
                high.copy_from_slice(&length[2..]);
            }
        }
        body.extend(data);
        self.send(open.kind, open.id, body);
    }
}

fn word(body: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]])
}
