//! The discovery table of devices that do not answer, and damaged tables.

use amdev_core::bus::{BusError, Mmio, Window};
use amdev_core::discovery::{
    Binary, Die, DiscoverError, DiscoveryError, HwId, Ip, MAX_BINARY, MAX_IPS, MemSize, discover, load,
    load_into, parse,
};
use amdev_tests::golden;
use proptest::prelude::*;

/// GPU, MiB of VRAM as its register gives it.
const GPUS: [(&str, u32); 5] =
    [("navi31", 24560), ("navi32", 16368), ("navi33", 8176), ("navi44", 16304), ("navi48", 16304)];

fn table(gpu: &str) -> Vec<u8> {
    golden(&format!("{gpu}/discovery.bin")).unwrap()
}

#[test]
fn memory_size_gives_the_place_of_the_table() {
    // C05
    for value in [u32::MAX, 0] {
        assert_eq!(MemSize::from_register(value), Err(DiscoveryError::NotResponding { value }));
    }
    for (mib, offset) in [(0x5ff0, 0x5_feff_0000u64), (0x7f70, 0x7_f6ff_0000), (0x1fd0, 0x1_fcff_0000)] {
        assert_eq!(MemSize::from_register(mib).unwrap().table_offset(), offset);
    }
    let size = MemSize::from_register(0x7f70).unwrap();
    assert!(size.is_large_bar(32 << 30));
    assert!(!size.is_large_bar(256 << 20));
}

#[test]
fn only_what_the_header_says_is_read() {
    let bytes = table("navi48");
    let mut vram = bytes.clone();
    vram.resize(64 << 10, 0xff);
    let mut reads = Vec::new();
    let mut buf = [0; MAX_BINARY];
    let got = load_into(&mut buf, |offset, out: &mut [u8]| {
        reads.push((offset, out.len()));
        out.copy_from_slice(&vram[offset as usize..][..out.len()]);
        Ok::<(), ()>(())
    });
    assert_eq!(got.unwrap(), bytes);
    assert_eq!(reads, [(0, 12), (12, bytes.len() - 12)]);
}

#[test]
fn a_failing_read_and_a_table_larger_than_the_buffer_are_errors() {
    assert!(load(|_, _: &mut [u8]| Err("gone")).unwrap_err().to_string().contains("gone"));
    let bytes = table("navi31");
    let mut buf = [0; 500];
    let read = |offset: u32, out: &mut [u8]| {
        out.copy_from_slice(&bytes[offset as usize..][..out.len()]);
        Ok::<(), &str>(())
    };
    let error = load_into(&mut buf, read).unwrap_err().to_string();
    assert!(error.contains("992") && error.contains("500"), "{error}");
}

/// A device with a memory size register, an index/data pair, and VRAM behind a BAR of some size.
struct Dev {
    memsize: u32,
    bar: u64,
    table: Vec<u8>,
    index: (u32, u32),
    vram_accesses: usize,
}

impl Dev {
    fn new(memsize: u32, bar: u64, gpu: &str) -> Self {
        Dev { memsize, bar, table: table(gpu), index: (0, 0), vram_accesses: 0 }
    }

    fn vram(&self, offset: u64) -> u8 {
        let at = offset.wrapping_sub(((self.memsize as u64) << 20).wrapping_sub(0x10000));
        self.table.get(at as usize).copied().unwrap_or(0)
    }
}

impl Mmio for Dev {
    fn window_len(&self, window: Window) -> u64 {
        if window == Window::Vram { self.bar } else { 1 << 20 }
    }
    fn read32(&mut self, _: Window, offset: u64) -> Result<u32, BusError> {
        Ok(match offset / 4 {
            0xde3 => self.memsize,
            1 => {
                self.vram_accesses += 1;
                assert!(self.index.0 & 1 << 31 != 0);
                let at = (self.index.1 as u64) << 31 | (self.index.0 & !(1 << 31)) as u64;
                u32::from_le_bytes([0, 1, 2, 3].map(|i| self.vram(at + i)))
            }
            _ => 0,
        })
    }
    fn write32(&mut self, _: Window, offset: u64, value: u32) -> Result<(), BusError> {
        match offset / 4 {
            0 => self.index.0 = value,
            6 => self.index.1 = value,
            _ => {}
        }
        Ok(())
    }
    fn read64(&mut self, _: Window, _: u64) -> Result<u64, BusError> {
        Err(BusError::Gone)
    }
    fn write64(&mut self, _: Window, _: u64, _: u64) -> Result<(), BusError> {
        Err(BusError::Gone)
    }
    fn read_bulk(&mut self, window: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        assert_eq!(window, Window::Vram);
        assert!(offset + buf.len() as u64 <= self.bar);
        self.vram_accesses += 1;
        for (i, b) in buf.iter_mut().enumerate() {
            *b = self.vram(offset + i as u64);
        }
        Ok(())
    }
    fn write_bulk(&mut self, _: Window, _: u64, _: &[u8]) -> Result<(), BusError> {
        Err(BusError::Gone)
    }
    fn flush(&mut self) -> Result<(), BusError> {
        Ok(())
    }
    fn fence(&mut self) -> Result<(), BusError> {
        Ok(())
    }
}

#[test]
fn the_table_is_found_through_a_large_bar_and_through_a_small_one() {
    for (gpu, mib) in GPUS {
        let expected = parse(&table(gpu)).unwrap();
        for bar in [32 << 30, 256 << 20] {
            let (size, list) = discover(&mut Dev::new(mib, bar, gpu)).unwrap();
            assert_eq!((size.mib(), &list), (mib, &expected), "{gpu}");
        }
    }
}

#[test]
fn a_dead_device_is_reported_without_touching_vram() {
    for memsize in [0, u32::MAX] {
        let mut dev = Dev::new(memsize, 1 << 30, "navi31");
        let error = discover(&mut dev).unwrap_err();
        assert!(matches!(error, DiscoverError::Table(DiscoveryError::NotResponding { .. })));
        assert!(error.to_string().contains("not responding"), "{error}");
        assert_eq!(dev.vram_accesses, 0);
    }
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

fn get16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn sum(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |s, b| s.wrapping_add(*b as u16))
}

/// Makes the checksum of the whole right again.
fn mend_whole(bytes: &mut [u8]) {
    let whole = sum(&bytes[10..]);
    put16(bytes, 8, whole);
}

/// Makes all checksums right again after a change to a table with a version 1 header.
fn mend(bytes: &mut [u8]) {
    for (list_at, len_at) in [(12, Some(6)), (20, Some(8)), (28, None)] {
        let offset = get16(bytes, list_at) as usize;
        let len = len_at.map_or(136, |at| get16(bytes, offset + at) as usize);
        if let Some(part) = bytes.get(offset..offset + len) {
            let sum = sum(part);
            put16(bytes, list_at + 2, sum);
        }
    }
    mend_whole(bytes);
}

#[track_caller]
fn rejects(change: impl FnOnce(&mut Vec<u8>), words: &[&str]) {
    let mut bytes = table("navi31");
    change(&mut bytes);
    let error = parse(&bytes).unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "{error:?} does not say {word:?}");
    }
    assert!(!error.contains('\n'));
}

/// A 16-bit field changed, everything else consistent with the change.
#[track_caller]
fn rejects_field(at: usize, value: u16, words: &[&str]) {
    rejects(
        |b| {
            put16(b, at, value);
            mend(b)
        },
        words,
    );
}

#[test]
fn an_error_names_field_offset_and_both_values() {
    rejects(|b| b[0] = 0xff, &["binary_signature", "0x0", "0x282114ff", "0x28211407"]);
    rejects(|b| b[700] ^= 1, &["binary_checksum", "0x8"]);
    rejects(|b| b.truncate(991), &["binary_size", "0x3e0", "0x3df"]);
    rejects(|b| b.truncate(7), &["binary_header", "0x7"]);
    rejects_field(4, 3, &["version_major", "0x4", "3", "0 to 2"]);
    rejects_field(0x40, 0, &["ip_discovery_header.signature", "0x40", "0x53440000", "0x53445049"]);
    rejects_field(0x44, 9, &["ip_discovery_header.version", "0x44", "9", "1 to 4"]);
    rejects_field(0x4c, 17, &["num_dies", "0x4c", "16"]);
    rejects_field(0x90, 5, &["die_header.die_id", "0x90", "0x5", "0x0"]);
    rejects_field(0x92, 0xffff, &["ip", "0x3e0"]);
    rejects_field(0x2c4, 7, &["gc_info.header.version_major", "0x2c4", "7"]);
    rejects_field(0x2c8, 40, &["gc_info", "0x2c0", "0x2e8"]);
    rejects_field(0x350, 0, &["harvest_info_header.signature", "0x350"]);
    let list_field = |at, value: u16, words: &[&str]| {
        rejects(
            |b| {
                put16(b, at, value);
                mend_whole(b)
            },
            words,
        )
    };
    list_field(12, 0xfff0, &["ip_discovery_header", "0xfff0", "0x3e0"]);
    list_field(12, 0, &["no IP table"]);
    list_field(14, 0, &["table_list[IP_DISCOVERY].checksum", "0xe"]);
    list_field(22, 1, &["table_list[GC].checksum", "0x16"]);
    list_field(28, 0x3d8, &["harvest", "0x3d8"]);
}

fn emit(ips: &[Ip<'_>]) -> Vec<u8> {
    let dies = [Die { ips }];
    let binary = Binary {
        header_version: 1,
        table_version: 3,
        wide_bases: false,
        dies: &dies,
        gc: None,
        harvest: None,
    };
    let mut buf = vec![0; 65536];
    let len = binary.emit(&mut buf).unwrap();
    buf.truncate(len);
    buf
}

#[test]
fn more_ips_than_fit_are_an_error_that_names_the_field() {
    let ip = |i: usize, bases| Ip {
        hw_id: HwId(300 + i as u16),
        instance: 0,
        version: (1, 0, 0),
        flags: 0,
        bases,
    };
    let ips: Vec<_> = (0..MAX_IPS).map(|i| ip(i, &[])).collect();
    assert_eq!(parse(&emit(&ips)).unwrap().iter().count(), MAX_IPS);
    let ips: Vec<_> = (0..MAX_IPS + 1).map(|i| ip(i, &[])).collect();
    let error = parse(&emit(&ips)).unwrap_err();
    assert!(
        matches!(error, DiscoveryError::TooMany { field: "die_header.num_ips", limit: 256, .. }),
        "{error}"
    );
    let ips: Vec<_> = (0..6).map(|i| ip(i, &[1; 255])).collect();
    let error = parse(&emit(&ips)).unwrap_err();
    assert!(matches!(error, DiscoveryError::TooMany { field: "base addresses", .. }), "{error}");
}

proptest! {
    #[test]
    fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..2048), signed: bool) {
        if signed && bytes.len() > 12 {
            bytes[..4].copy_from_slice(&0x2821_1407u32.to_le_bytes());
            put16(&mut bytes, 4, 1);
            let len = bytes.len() as u16;
            put16(&mut bytes, 10, len);
            mend_whole(&mut bytes);
        }
        let _ = parse(&bytes);
    }

    #[test]
    fn changed_bytes_with_mended_checksums_never_panic(
        gpu in 0..GPUS.len(),
        // Behind the list of tables, so that mending finds them.
        changes in proptest::collection::vec((60usize..992, any::<u8>()), 1..8),
        cut in 0usize..1000,
    ) {
        let mut bytes = table(GPUS[gpu].0);
        for (at, value) in changes {
            bytes[at] = value;
        }
        mend(&mut bytes);
        let _ = parse(&bytes);
        let _ = parse(&bytes[..cut.min(bytes.len())]);
    }

    #[test]
    fn a_flipped_bit_is_noticed(gpu in 0..GPUS.len(), at in 8usize..992, bit in 0u8..8) {
        let mut bytes = table(GPUS[gpu].0);
        bytes[at] ^= 1 << bit;
        prop_assert!(parse(&bytes).is_err());
    }
}
