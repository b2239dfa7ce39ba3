//! PCI Express requests as both firmwares send them: type, byte enables, address, data.

use crate::error::UsbError;

/// Format and type of a request; the low bit of a configuration request says "beyond the first bus".
const CONFIG_READ: u8 = 0x04;
const CONFIG_WRITE: u8 = 0x44;
/// With addresses of 64 bits.
pub const MEMORY_READ: u8 = 0x20;
/// See [`MEMORY_READ`].
pub const MEMORY_WRITE: u8 = 0x60;

/// One request for bytes of one dword.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Format and type.
    pub fmt: u8,
    /// Byte enables of the dword.
    pub enable: u8,
    /// Address of the dword.
    pub address: u64,
    /// What is written, its bytes where the enables say; 0 for a read.
    pub value: u32,
}

impl Request {
    fn new(fmt: u8, address: u64, size: u8, value: Option<u32>) -> Result<Self, UsbError> {
        let offset = (address & 3) as u8;
        let wide = value.is_some_and(|v| size < 4 && v >> (8 * size) != 0);
        if size == 0 || size + offset > 4 || wide {
            let why = "1 to 4 bytes of one dword; cut it";
            return Err(UsbError::Pcie { what: "request", address, why });
        }
        let enable = ((1u16 << size) - 1) as u8;
        let value = value.unwrap_or(0) << (8 * offset);
        Ok(Request { fmt, enable: enable << offset, address: address & !3, value })
    }

    /// `size` bytes at `at` of the configuration space of device 0 on a bus; a write if there is a value.
    ///
    /// # Errors
    /// [`UsbError::Pcie`] for bytes of two dwords, or beyond 4 KiB.
    pub fn config(bus: u8, at: u16, size: u8, value: Option<u32>) -> Result<Self, UsbError> {
        let address = u64::from(bus) << 24 | u64::from(at);
        if at >= 0x1000 {
            let why = "configuration space has 4096 bytes";
            return Err(UsbError::Pcie { what: "request", address, why });
        }
        let fmt = if value.is_some() { CONFIG_WRITE } else { CONFIG_READ };
        Request::new(fmt | u8::from(bus > 0), address, size, value)
    }

    /// `size` bytes of memory in one dword; a write if there is a value.
    ///
    /// # Errors
    /// [`UsbError::Pcie`] for bytes of two dwords.
    pub fn memory(address: u64, size: u8, value: Option<u32>) -> Result<Self, UsbError> {
        let fmt = if value.is_some() { MEMORY_WRITE } else { MEMORY_READ };
        Request::new(fmt, address, size, value)
    }

    /// Whether it is for configuration space.
    pub fn is_config(&self) -> bool {
        self.fmt & 0xbe == CONFIG_READ
    }

    /// Whether it writes.
    pub fn is_write(&self) -> bool {
        self.fmt & 0x40 != 0
    }

    /// Memory writes get no completion.
    pub fn is_posted(&self) -> bool {
        self.is_write() && !self.is_config()
    }

    /// Bytes that a completion counts; those of configuration requests always 4.
    pub fn count(&self) -> u16 {
        if self.is_config() { 4 } else { self.enable.count_ones() as u16 }
    }

    /// The bytes asked for, out of the dword that came.
    pub fn extract(&self, dword: u32) -> u32 {
        let mask = u32::MAX >> (32 - 8 * self.enable.count_ones());
        dword >> (8 * self.enable.trailing_zeros()) & mask
    }

    /// For errors.
    pub fn what(&self) -> &'static str {
        match (self.is_config(), self.is_write()) {
            (true, true) => "configuration write",
            (true, false) => "configuration read",
            (false, true) => "memory write",
            (false, false) => "memory read",
        }
    }

    /// An error of this request.
    pub fn failed(&self, why: &'static str) -> UsbError {
        UsbError::Pcie { what: self.what(), address: self.address, why }
    }
}

/// What a completion's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// It was carried out.
    Good,
    /// The function asks to try later: it was reset and is not ready.
    Retry,
    /// It was not.
    Bad(&'static str),
}

impl Completion {
    /// Status in bits 15:13 and byte count in bits 11:0 of the header's second dword; `has_data` as the
    /// bridge tells it.
    pub fn decode(request: &Request, header: u16, has_data: bool) -> Completion {
        match header >> 13 {
            0 if header & 0xfff != request.count() => Completion::Bad("the completion is for other bytes"),
            0 if request.is_config() && has_data == request.is_write() => {
                Completion::Bad("the completion is of another kind of request")
            }
            0 => Completion::Good,
            1 => Completion::Bad("unsupported request: nothing answers there"),
            2 => Completion::Retry,
            4 => Completion::Bad("completer abort: the device cannot carry it out"),
            _ => Completion::Bad("reserved completion status"),
        }
    }
}

/// Cuts a range into requests of at most a dword: offset into the range and length of each.
pub fn pieces(address: u64, len: usize) -> impl Iterator<Item = (usize, u8)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let skip = (address.wrapping_add(at as u64) & 3) as usize;
        let size = (4 - skip).min(len - at);
        // Three bytes that start at an odd one are still neighbours of one dword.
        let piece = (at, size as u8);
        at += size;
        (size > 0).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_one_dword_are_enabled_and_put_in_place() {
        let r = Request::config(0, 0x22, 2, Some(0xffff)).unwrap();
        assert_eq!((r.fmt, r.enable, r.address, r.value), (0x44, 0xc, 0x20, 0xffff_0000));
        let r = Request::config(3, 4, 1, Some(7)).unwrap();
        assert_eq!((r.fmt, r.enable, r.address, r.value), (0x45, 1, 0x300_0004, 7));
        let r = Request::memory(0x8_0000_0001, 1, None).unwrap();
        assert_eq!((r.fmt, r.enable, r.address), (0x20, 2, 0x8_0000_0000));
        assert_eq!(r.extract(0x4433_2211), 0x22);
    }

    #[test]
    fn bytes_of_two_dwords_are_rejected_in_a_request_and_cut_in_a_range() {
        assert!(Request::memory(0x1003, 2, None).is_err(), "C28 d");
        assert!(Request::memory(0x1000, 5, None).is_err());
        assert!(Request::memory(0x1000, 0, None).is_err());
        assert!(Request::memory(0x1000, 1, Some(0x100)).is_err());
        assert!(Request::config(0, 0x1000, 1, None).is_err());
        let cut: Vec<_> = pieces(0x1003, 8).collect();
        assert_eq!(cut, [(0, 1), (1, 4), (5, 3)]);
        assert_eq!(pieces(0x1000, 8).collect::<Vec<_>>(), [(0, 4), (4, 4)]);
    }

    #[test]
    fn completions_are_decoded() {
        let read = Request::memory(0x1000, 4, None).unwrap();
        assert_eq!(Completion::decode(&read, 4, true), Completion::Good);
        assert_eq!(Completion::decode(&read, 2 << 13 | 4, true), Completion::Retry);
        assert!(
            matches!(Completion::decode(&read, 1 << 13 | 4, true), Completion::Bad(w) if w.contains("nothing"))
        );
        assert!(matches!(Completion::decode(&read, 3, true), Completion::Bad(_)));
        let write = Request::config(1, 4, 1, Some(7)).unwrap();
        assert_eq!(Completion::decode(&write, 4, false), Completion::Good);
        assert!(matches!(Completion::decode(&write, 4, true), Completion::Bad(_)));
    }
}
