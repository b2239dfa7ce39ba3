//! Descriptors of both firmwares at SuperSpeed.
//!
//! Patched: the vendor's Bulk-Only and USB Attached SCSI settings with the identity that the patch
//! writes. Custom: `handmade/src/usb.h` of the open firmware.

use super::config::Firmware;
use super::usb::{Endpoint, Interface};

const VID: [u8; 2] = 0xadd1u16.to_le_bytes();
const PID: [u8; 2] = 0x0001u16.to_le_bytes();
const PACKET: u16 = 1024;
/// 2^5 streams, as the companion descriptors say.
pub(crate) const STREAMS: u32 = 32;

pub(crate) const DATA_IN: u8 = 0x81;
pub(crate) const DATA_OUT: u8 = 0x02;
pub(crate) const STATUS_IN: u8 = 0x83;
pub(crate) const COMMAND_OUT: u8 = 0x04;

/// Endpoint, its pipe usage (USB Attached SCSI: 1 command, 2 status, 3 data in, 4 data out).
const PIPES: [(u8, u8); 4] = [(DATA_IN, 3), (DATA_OUT, 4), (STATUS_IN, 2), (COMMAND_OUT, 1)];

fn class(firmware: Firmware, alternate: u8) -> (u8, u8, u8) {
    match (firmware, alternate) {
        (Firmware::Patched, 0) => (8, 6, 0x50),
        (Firmware::Patched, _) => (8, 6, 0x62),
        (Firmware::Custom, _) => (0xff, 0xff, 0xff),
    }
}

/// What an alternate setting has; `None` if there is no such.
pub(crate) fn interface(firmware: Firmware, alternate: u8) -> Option<Interface> {
    let pipes = match alternate {
        0 => &PIPES[..2],
        1 => &PIPES[..],
        _ => return None,
    };
    let streams = |address| if alternate == 1 && address != COMMAND_OUT { STREAMS } else { 0 };
    let endpoint = |(address, _): &(u8, u8)| Endpoint {
        address: *address,
        max_packet: PACKET,
        max_streams: streams(*address),
    };
    Some(Interface {
        alternate,
        class: class(firmware, alternate),
        endpoints: pipes.iter().map(endpoint).collect(),
    })
}

fn device() -> Vec<u8> {
    let mut d = vec![18, 1, 0x20, 0x03, 0, 0, 0, 9];
    d.extend(VID);
    d.extend(PID);
    d.extend([0x01, 0x00, 1, 2, 3, 1]);
    d
}

fn configuration(firmware: Firmware) -> Vec<u8> {
    let mut body = Vec::new();
    for alternate in [0u8, 1] {
        let Some(i) = interface(firmware, alternate) else { continue };
        let (class, subclass, protocol) = i.class;
        body.extend([9, 4, 0, alternate, i.endpoints.len() as u8, class, subclass, protocol, 0]);
        for e in &i.endpoints {
            body.extend([7, 5, e.address, 2]);
            body.extend(e.max_packet.to_le_bytes());
            // Companion: bursts of 16 packets, except for the command pipe; log2 of the streams.
            let burst = if e.address == COMMAND_OUT { 0 } else { 15 };
            body.extend([0, 6, 0x30, burst, e.max_streams.checked_ilog2().unwrap_or(0) as u8, 0, 0]);
            if alternate == 1 {
                let usage = PIPES.iter().find(|(a, _)| *a == e.address).map_or(0, |(_, u)| *u);
                body.extend([4, 0x24, usage, 0]);
            }
        }
    }
    let mut all = vec![9, 2];
    all.extend((body.len() as u16 + 9).to_le_bytes());
    all.extend([1, 1, 0, 0xc0, 0]);
    all.extend(body);
    all
}

/// USB 2.0 extension and SuperSpeed capability.
const BOS: [u8; 22] = [5, 0x0f, 22, 0, 2, 7, 0x10, 2, 2, 0, 0, 0, 10, 0x10, 3, 0, 0x0e, 0, 3, 0, 0, 0];

fn string(firmware: Firmware, index: u8) -> Option<Vec<u8>> {
    let text = match (index, firmware) {
        (0, _) => return Some(vec![4, 3, 0x09, 0x04]),
        (1, _) => "tiny",
        (2, Firmware::Patched) => "USB 3.2 PCIe TinyEnclosure",
        (2, Firmware::Custom) => "custom v0.1",
        (3, _) => "00000001",
        _ => return None,
    };
    let mut d = vec![2 + 2 * text.len() as u8, 3];
    d.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
    Some(d)
}

/// The descriptor of this type and index, whole.
pub(crate) fn descriptor(firmware: Firmware, kind: u8, index: u8) -> Option<Vec<u8>> {
    match (kind, index) {
        (1, 0) => Some(device()),
        (2, 0) => Some(configuration(firmware)),
        (3, i) => string(firmware, i),
        (15, 0) => Some(BOS.to_vec()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_firmwares_describe_two_alternate_settings_in_121_bytes() {
        for (firmware, first) in [(Firmware::Patched, [8, 6, 0x50]), (Firmware::Custom, [0xff; 3])] {
            let c = descriptor(firmware, 2, 0).unwrap();
            assert_eq!((c.len(), u16::from_le_bytes([c[2], c[3]])), (121, 121));
            assert_eq!(c[14..17], first);
            // Walks by length to the end.
            let (mut at, mut kinds) = (0, Vec::new());
            while at < c.len() {
                kinds.push(c[at + 1]);
                at += usize::from(c[at]);
            }
            assert_eq!(kinds.iter().filter(|k| **k == 5).count(), 6);
            assert_eq!(at, c.len());
        }
        let d = descriptor(Firmware::Patched, 1, 0).unwrap();
        assert_eq!(d, [18, 1, 0x20, 3, 0, 0, 0, 9, 0xd1, 0xad, 1, 0, 1, 0, 1, 2, 3, 1]);
    }

    #[test]
    fn streams_are_on_three_of_four_endpoints_of_setting_1() {
        let i = interface(Firmware::Patched, 1).unwrap();
        let streams: Vec<_> = i.endpoints.iter().map(|e| (e.address, e.max_streams)).collect();
        assert_eq!(streams, [(0x81, 32), (0x02, 32), (0x83, 32), (0x04, 0)]);
        assert!(interface(Firmware::Patched, 2).is_none());
    }
}
