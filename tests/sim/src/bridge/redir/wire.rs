//! Packets of the usbredir protocol, version 0.7: the part that a SuperSpeed bulk device needs.
//!
//! Little endian, packed. Numbers and layouts are those of `usb-redirection-protocol.md` of the
//! usbredir project.

/// What this side can do: bulk streams, device version, packet sizes, 64-bit ids, long bulk transfers.
pub(super) const CAPS: u32 = STREAMS | VERSION | PACKET_SIZE | IDS_64 | LENGTH_32;
pub(super) const STREAMS: u32 = 0x01;
pub(super) const VERSION: u32 = 0x02;
pub(super) const PACKET_SIZE: u32 = 0x10;
pub(super) const IDS_64: u32 = 0x20;
pub(super) const LENGTH_32: u32 = 0x40;

/// Types of packets.
pub(super) mod kind {
    pub(in super::super) const HELLO: u32 = 0;
    pub(in super::super) const DEVICE_CONNECT: u32 = 1;
    pub(in super::super) const DEVICE_DISCONNECT: u32 = 2;
    pub(in super::super) const RESET: u32 = 3;
    pub(in super::super) const INTERFACE_INFO: u32 = 4;
    pub(in super::super) const EP_INFO: u32 = 5;
    pub(in super::super) const SET_CONFIGURATION: u32 = 6;
    pub(in super::super) const GET_CONFIGURATION: u32 = 7;
    pub(in super::super) const CONFIGURATION_STATUS: u32 = 8;
    pub(in super::super) const SET_ALT_SETTING: u32 = 9;
    pub(in super::super) const GET_ALT_SETTING: u32 = 10;
    pub(in super::super) const ALT_SETTING_STATUS: u32 = 11;
    pub(in super::super) const ALLOC_BULK_STREAMS: u32 = 18;
    pub(in super::super) const FREE_BULK_STREAMS: u32 = 19;
    pub(in super::super) const BULK_STREAMS_STATUS: u32 = 20;
    pub(in super::super) const CANCEL_DATA_PACKET: u32 = 21;
    pub(in super::super) const FILTER_REJECT: u32 = 22;
    pub(in super::super) const FILTER_FILTER: u32 = 23;
    pub(in super::super) const DISCONNECT_ACK: u32 = 24;
    pub(in super::super) const CONTROL: u32 = 100;
    pub(in super::super) const BULK: u32 = 101;
}

/// Length of the version text in a hello.
const TEXT: usize = 64;
/// Longer packets are no packets: what libusb carries in one transfer, and some.
const MAX_LENGTH: usize = 64 << 20;

/// One packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    pub(super) kind: u32,
    pub(super) id: u64,
    pub(super) body: Vec<u8>,
}

impl Packet {
    /// As it goes over the socket.
    pub(super) fn bytes(&self, wide: bool) -> Vec<u8> {
        let mut out = self.kind.to_le_bytes().to_vec();
        out.extend((self.body.len() as u32).to_le_bytes());
        if wide && self.kind != kind::HELLO {
            out.extend(self.id.to_le_bytes());
        } else {
            out.extend((self.id as u32).to_le_bytes());
        }
        out.extend(&self.body);
        out
    }
}

/// Takes a packet off the front of what was received; `Ok(None)` if it is not all there.
pub(super) fn take(buffer: &mut Vec<u8>, wide: bool) -> Result<Option<Packet>, String> {
    let word = |at: usize| Some(u32::from_le_bytes(buffer.get(at..at + 4)?.try_into().ok()?));
    let (Some(kind), Some(length)) = (word(0), word(4)) else { return Ok(None) };
    let length = length as usize;
    if length > MAX_LENGTH {
        return Err(format!("packet of type {kind} with {length} bytes: at most {MAX_LENGTH}"));
    }
    let header = if wide && kind != kind::HELLO { 16 } else { 12 };
    if buffer.len() < header + length {
        return Ok(None);
    }
    let mut id = [0; 8];
    id[..header - 8].copy_from_slice(&buffer[8..header]);
    let body = buffer[header..header + length].to_vec();
    buffer.drain(..header + length);
    Ok(Some(Packet { kind, id: u64::from_le_bytes(id), body }))
}

/// The first packet of either side.
pub(super) fn hello(version: &str, caps: u32) -> Packet {
    let mut body = version.as_bytes().to_vec();
    body.resize(TEXT, 0);
    body[TEXT - 1] = 0;
    body.extend(caps.to_le_bytes());
    Packet { kind: kind::HELLO, id: 0, body }
}

/// What the other side can do; words beyond the first are of a later protocol.
pub(super) fn caps(hello: &[u8]) -> Result<u32, String> {
    match hello.get(TEXT..) {
        Some([]) => Ok(0),
        Some([a, b, c, d, ..]) => Ok(u32::from_le_bytes([*a, *b, *c, *d])),
        _ => Err(format!("hello of {} bytes: a version text has {TEXT}", hello.len())),
    }
}

/// Endpoint addresses of a mask: bits 0 to 15 out, 16 to 31 in.
pub(super) fn endpoints(mask: u32) -> Vec<u8> {
    (0..32u8).filter(|i| mask >> i & 1 != 0).map(|i| (i & 0x10) << 3 | i & 0xf).collect()
}

/// The place of an endpoint in tables and masks.
pub(super) fn index(address: u8) -> usize {
    usize::from((address & 0x80) >> 3 | address & 0xf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_keep_their_ids_of_32_and_64_bits() {
        let p = Packet { kind: 101, id: 0x1_2345_6789, body: vec![1, 2, 3] };
        let mut buffer = p.bytes(true);
        assert_eq!(buffer.len(), 19);
        let rest = buffer.split_off(18);
        assert_eq!(take(&mut buffer, true), Ok(None), "not all there");
        buffer.extend(rest);
        buffer.push(9);
        assert_eq!(take(&mut buffer, true), Ok(Some(p.clone())));
        assert_eq!(buffer, [9]);
        let mut narrow = p.bytes(false);
        assert_eq!(narrow.len(), 15);
        assert_eq!(take(&mut narrow, false).unwrap().unwrap().id, 0x2345_6789);
        // A hello has a narrow id whatever was agreed on.
        let mut h = hello("x", CAPS).bytes(true);
        assert_eq!(h.len(), 12 + 68);
        assert_eq!(caps(&take(&mut h, true).unwrap().unwrap().body), Ok(0x73));
    }

    #[test]
    fn a_length_that_no_transfer_has_is_refused() {
        let mut b = Packet { kind: 101, id: 0, body: vec![] }.bytes(true);
        b[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(take(&mut b, true).unwrap_err().contains("type 101"));
        assert!(caps(&[0; 60]).is_err());
    }

    #[test]
    fn masks_and_tables_agree_on_endpoints() {
        assert_eq!(endpoints(0xa0004), [0x02, 0x81, 0x83]);
        let mask = [0x02u8, 0x81, 0x83].iter().fold(0u32, |m, e| m | 1 << index(*e));
        assert_eq!(mask, 0xa0004);
    }
}
