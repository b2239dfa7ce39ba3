//! Requests on endpoint 0 that both firmwares have.

use super::config::Firmware;
use super::cost;
use super::descriptors;
use super::machine::{Machine, Pending};
use super::usb::{Setup, Status, Transfer};
use crate::violation::Rule;

/// What a request gives: bytes, or nothing that can be given.
pub(crate) type Given = Option<Vec<u8>>;

impl Machine {
    pub(crate) fn control_request(&mut self, start: u64, p: Pending) {
        let Transfer::Control { setup, data } = &p.transfer else { return };
        let (setup, data) = (*setup, data.clone());
        if !setup.is_in() && data.len() != usize::from(setup.length) {
            let what = format!("control write of {} bytes that announces {}", data.len(), setup.length);
            self.violation(Rule::UsbCommand, what);
            return self.finish(p, Status::Invalid, 0, Vec::new(), start);
        }
        if setup.request_type & 0x60 == 0x40 && self.config.firmware == Firmware::Custom {
            return self.vendor_request(start, p, setup, &data);
        }
        let at = self.work(start, cost::CONTROL);
        self.answer_control(p, setup, data.len(), at);
    }

    fn answer_control(&mut self, p: Pending, setup: Setup, sent: usize, at: u64) {
        match self.standard_request(setup) {
            Some(mut bytes) if setup.is_in() => {
                bytes.truncate(usize::from(setup.length));
                self.finish(p, Status::Success, bytes.len(), bytes, at);
            }
            Some(_) => self.finish(p, Status::Success, sent, Vec::new(), at),
            None => self.finish(p, Status::Stall, 0, Vec::new(), at),
        }
    }

    fn standard_request(&mut self, setup: Setup) -> Given {
        let [low, high] = setup.value.to_le_bytes();
        let endpoint = setup.index as u8;
        match (setup.request_type, setup.request) {
            (0x80, 6) => descriptors::descriptor(self.config.firmware, high, low),
            (0x00, 9) if setup.value <= 1 => self.configure(low).then(Vec::new),
            (0x80, 8) => Some(vec![self.configuration]),
            (0x01, 11) if setup.index == 0 && high == 0 => self.select(low).then(Vec::new),
            (0x81, 10) if self.configuration != 0 && setup.index == 0 => Some(vec![self.alternate]),
            // CLEAR_FEATURE and SET_FEATURE of ENDPOINT_HALT.
            (0x02, 1) if setup.value == 0 && self.has(endpoint) => {
                self.clear_halt(endpoint);
                Some(Vec::new())
            }
            (0x02, 3) if setup.value == 0 && self.has(endpoint) => {
                self.halted.insert(endpoint);
                Some(Vec::new())
            }
            // GET_STATUS: self-powered; halted or not.
            (0x80, 0) => Some(vec![1, 0]),
            (0x81, 0) => Some(vec![0, 0]),
            (0x82, 0) if self.has(endpoint) => Some(vec![u8::from(self.halted.contains(&endpoint)), 0]),
            // Power states of the link, function suspend, exit latencies, isochronous delay.
            (0x00, 1 | 3) if (48..=50).contains(&setup.value) => Some(Vec::new()),
            (0x01, 1 | 3) if setup.value == 0 => Some(Vec::new()),
            (0x00, 48 | 49) => Some(Vec::new()),
            // Bulk-Only: GET_MAX_LUN and reset.
            (0xa1, 0xfe) if self.is_bulk_only() => Some(vec![0]),
            (0x21, 0xff) if self.is_bulk_only() => {
                self.bot = Default::default();
                Some(Vec::new())
            }
            _ => None,
        }
    }

    pub(crate) fn configure(&mut self, configuration: u8) -> bool {
        let good = self.present && configuration <= 1;
        if good {
            self.set_alternate(0);
            self.configuration = configuration;
        }
        good
    }

    pub(crate) fn select(&mut self, alternate: u8) -> bool {
        let good = self.present && self.configuration != 0 && alternate <= 1;
        if good {
            self.set_alternate(alternate);
        }
        good
    }

    fn has(&self, endpoint: u8) -> bool {
        self.interface().is_some_and(|i| i.endpoints.iter().any(|e| e.address == endpoint))
    }

    fn is_bulk_only(&self) -> bool {
        self.config.firmware == Firmware::Patched && self.alternate == 0
    }
}
