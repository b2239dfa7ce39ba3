//! A small USB host for the simulated bridge: what a driver does first, in its plainest form.

use amdev_sim::bridge::usb::{Completion, Setup, Status, Transfer, UsbPort};
use amdev_sim::bridge::{Bridge, BridgeConfig};

/// One command of a batch: block, bytes expected, bytes sent.
pub(crate) struct Cdb(pub(crate) [u8; 16], pub(crate) usize, pub(crate) Vec<u8>);

pub(crate) struct Host {
    pub(crate) bridge: Bridge,
}

pub(crate) fn e5(at: u32, value: u8) -> Cdb {
    let a = at & 0x1ffff | 0x50_0000;
    let mut c = [0; 16];
    c[..5].copy_from_slice(&[0xe5, value, (a >> 16) as u8, (a >> 8) as u8, a as u8]);
    Cdb(c, 0, Vec::new())
}

pub(crate) fn e4(at: u32, len: u8) -> Cdb {
    let Cdb(mut c, ..) = e5(at, len);
    c[0] = 0xe4;
    Cdb(c, usize::from(len), Vec::new())
}

pub(crate) fn write16(data: Vec<u8>) -> Cdb {
    let mut c = [0; 16];
    c[0] = 0x8a;
    c[10..14].copy_from_slice(&(data.len() as u32 / 512).to_be_bytes());
    Cdb(c, 0, data)
}

impl Host {
    pub(crate) fn new(text: &str) -> Host {
        Host { bridge: Bridge::new(BridgeConfig::parse(text).unwrap()) }
    }

    /// Configured, alternate setting 1 with 31 streams.
    pub(crate) fn uas(text: &str) -> Host {
        let h = Host::new(text);
        h.configure();
        h.set(0x01, 11, 1, 0);
        assert_eq!(h.bridge.alloc_streams(&[0x02, 0x81, 0x83], 31), Status::Success);
        h
    }

    pub(crate) fn configure(&self) {
        assert_eq!(self.set(0x00, 9, 1, 0), Status::Success);
    }

    pub(crate) fn end(&self, id: u64) -> Completion {
        loop {
            while let Some(c) = self.bridge.poll() {
                if c.id == id {
                    return c;
                }
            }
            assert!(self.bridge.wait(), "transfer {id} never ends");
        }
    }

    pub(crate) fn control(
        &self,
        request_type: u8,
        request: u8,
        value: u16,
        index: u16,
        data: &[u8],
    ) -> Completion {
        let setup = Setup { request_type, request, value, index, length: data.len() as u16 };
        let data = if setup.is_in() { Vec::new() } else { data.to_vec() };
        self.end(self.bridge.submit(Transfer::Control { setup, data }))
    }

    /// A control write without data.
    pub(crate) fn set(&self, request_type: u8, request: u8, value: u16, index: u16) -> Status {
        self.control(request_type, request, value, index, &[]).status
    }

    pub(crate) fn get(&self, request_type: u8, request: u8, value: u16, index: u16, len: usize) -> Vec<u8> {
        let c = self.control(request_type, request, value, index, &vec![0; len]);
        assert_eq!(c.status, Status::Success);
        c.data
    }

    /// A batch as the reference sends it: each command on its own stream, all at once. Data, and the
    /// status byte of each.
    pub(crate) fn batch(&self, cdbs: &[Cdb]) -> Vec<(Vec<u8>, u8)> {
        let mut all = Vec::new();
        for window in cdbs.chunks(31) {
            let mut ids = Vec::new();
            for (i, Cdb(cdb, room, out)) in window.iter().enumerate() {
                let tag = i as u32 + 1;
                let mut iu = vec![0u8; 32];
                (iu[0], iu[3]) = (1, tag as u8);
                iu[16..].copy_from_slice(cdb);
                self.bridge.submit(Transfer::Out { endpoint: 4, stream: 0, data: iu });
                let status = Transfer::In { endpoint: 0x83, stream: tag, length: 64 };
                let status = self.bridge.submit(status);
                let read = Transfer::In { endpoint: 0x81, stream: tag, length: *room };
                let read = (*room > 0).then(|| self.bridge.submit(read));
                if !out.is_empty() {
                    self.bridge.submit(Transfer::Out { endpoint: 2, stream: tag, data: out.clone() });
                }
                ids.push((status, read));
            }
            let mut ended = std::collections::BTreeMap::new();
            for (status, read) in &ids {
                for id in [Some(*status), *read].into_iter().flatten() {
                    while !ended.contains_key(&id) {
                        match self.bridge.poll() {
                            Some(c) => {
                                ended.insert(c.id, c);
                            }
                            None => assert!(self.bridge.wait(), "transfer {id} never ends"),
                        }
                    }
                }
                let data = read.map_or(Vec::new(), |id| ended[&id].data.clone());
                all.push((data, ended[status].data[6]));
            }
        }
        all
    }

    pub(crate) fn init(&self) {
        let pairs = [
            (0x54b, 0x20),
            (0x54e, 4),
            (0x5a8, 2),
            (0x5f8, 4),
            (0x7ec, 1),
            (0x7ed, 0),
            (0x7ee, 0),
            (0x7ef, 0),
            (0xc422, 2),
            (0, 0x33),
        ];
        self.batch(&pairs.map(|(at, v)| e5(at, v)));
    }

    /// One PCIe request over the vendor's firmware; completion status and value.
    pub(crate) fn tlp(&self, fmt: u8, address: u64, value: Option<u32>, size: u32) -> (u16, u32) {
        let (offset, at) = (address & 3, address & !3);
        let enable = (((1u32 << size) - 1) << offset) as u8;
        let mut c = Vec::new();
        let mut put = |at: u32, bytes: &[u8]| {
            bytes.iter().enumerate().for_each(|(i, b)| c.push(e5(at + i as u32, *b)));
        };
        if let Some(v) = value {
            put(0xb220, &(v << (8 * offset)).to_be_bytes());
        }
        put(0xb218, &(at as u32).to_be_bytes());
        put(0xb21c, &((at >> 32) as u32).to_be_bytes());
        put(0xb217, &[enable]);
        put(0xb210, &[fmt]);
        put(0xb254, &[0x0f]);
        put(0xb296, &[4]);
        self.batch(&c);
        if fmt & 0xdf == 0x40 {
            return (0, 0);
        }
        let status = self.batch(&[e4(0xb296, 1)])[0].0[0];
        assert_eq!(status, 2, "status of a completed request");
        let b = self.batch(&[e4(0xb22a, 2), e4(0xb220, 4), e4(0xb284, 1)]);
        let header = u16::from_be_bytes([b[0].0[0], b[0].0[1]]);
        let config = fmt & 0xbe == 4;
        assert_eq!(u32::from(header & 0xfff), if config { 4 } else { size }, "byte count");
        assert_eq!(b[2].0[0] & 1 != 0, value.is_none() && header >> 13 == 0, "completion with data");
        let word = u32::from_be_bytes([b[1].0[0], b[1].0[1], b[1].0[2], b[1].0[3]]);
        (header >> 13, word >> (8 * offset) & (u32::MAX >> (32 - 8 * size)))
    }

    pub(crate) fn cfg(&self, bus: u8, at: u32, value: Option<u32>, size: u32) -> (u16, u32) {
        let fmt = if value.is_some() { 0x44 } else { 4 } | u8::from(bus > 0);
        self.tlp(fmt, u64::from(u32::from(bus) << 24 | at), value, size)
    }

    /// Bus numbers, windows, BARs and commands as the reference sets them, through `cfg`.
    pub(crate) fn setup_pci(&self, cfg: impl Fn(u8, u32, Option<u32>, u32) -> (u16, u32)) {
        for bus in 0..4u8 {
            for (at, value, size) in [
                (0x18, u32::from(bus + 1) << 8 | 4 << 16, 4),
                (0x20, 0x1000, 2),
                (0x22, 0xffff, 2),
                (0x24, 0, 2),
                (0x26, 0xffff, 2),
                (0x28, 8, 4),
                (0x2c, 0xffff_ffff, 4),
                (0x04, 7, 1),
            ] {
                assert_eq!(cfg(bus, at, Some(value), size).0, 0, "bus {bus}, register {at:#x}");
            }
        }
        for (at, value) in [(0x10, 0), (0x14, 8), (0x18, 0), (0x1c, 0xc), (0x24, 0x1000_0000), (4, 7)] {
            assert_eq!(cfg(4, at, Some(value), 4).0, 0, "GPU register {at:#x}");
        }
    }

    pub(crate) fn rules(&self) -> Vec<amdev_sim::Rule> {
        self.bridge.take_violations().into_iter().map(|v| v.rule).collect()
    }
}
