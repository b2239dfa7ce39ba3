//! The bus decorators against a bus of plain memory.

mod fake;

use amdev_core::bus::count::{Count, WindowCounts};
use amdev_core::bus::fault::{Fault, FaultPlan};
use amdev_core::bus::trace::{Event, JsonLines, Names, Trace, TraceSink};
use amdev_core::bus::window::SmallBar;
use amdev_core::bus::{Bus, BusError, Dma, Mmio, Window};
use fake::FakeBus;
use proptest::prelude::*;

const MIB: usize = 1 << 20;

fn small() -> FakeBus {
    FakeBus::new(0x4000, 0x4000)
}

#[test]
fn count_counts_accesses_and_bytes_per_window() {
    let mut bus = Count::new(small());
    bus.write32(Window::Registers, 0x10, 7).unwrap();
    assert_eq!(bus.read32(Window::Registers, 0x10), Ok(7));
    let mut out = [0; 3];
    bus.read_group(Window::Registers, &[0x10, 0x14], &mut out).unwrap();
    assert_eq!(out, [7, 0, 0]);
    bus.write64(Window::Doorbells, 8, 1).unwrap();
    bus.write_bulk(Window::Vram, 3, &[1; 100]).unwrap();
    bus.zero(Window::Vram, 0, 0x1000).unwrap();
    bus.fence().unwrap();
    bus.flush().unwrap();
    assert!(bus.read32(Window::Vram, 0x4000).is_err());
    let counts = bus.counts();
    assert_eq!(
        *counts.window(Window::Registers),
        WindowCounts { reads: 3, writes: 1, bytes_read: 12, bytes_written: 4 }
    );
    assert_eq!(
        *counts.window(Window::Vram),
        WindowCounts { reads: 0, writes: 2, bytes_read: 0, bytes_written: 100 + 0x1000 }
    );
    assert_eq!((counts.doorbells.writes, counts.doorbells.bytes_written), (1, 8));
    assert_eq!((counts.fences, counts.flushes, counts.errors), (1, 1, 1));
    bus.write32(Window::Registers, 0, 0).unwrap();
    let later = bus.counts().since(&counts);
    assert_eq!((later.registers.writes, later.vram.writes, later.errors), (1, 0, 0));
}

#[test]
fn every_decorator_hands_syncs_on_so_that_a_missing_one_shows() {
    fn check(mut bus: impl Bus) {
        let h = bus.dma_alloc(0x1000).unwrap();
        bus.dma_write(h, 8, &[1, 2, 3, 4]).unwrap();
        bus.sync_for_device(h, 8, 2).unwrap();
        // Only what was synced reached the device; syncing back brings the rest's old value.
        bus.sync_for_cpu(h, 0, 0x1000).unwrap();
        let mut got = [0; 4];
        bus.dma_read(h, 8, &mut got).unwrap();
        assert_eq!(got, [1, 2, 0, 0]);
        assert_eq!(bus.peer_vram_base(), Some(0xfd_0000_0000));
        assert_eq!(bus.dma_segment(h, 0x10).unwrap().len, 0xff0);
        assert_eq!(bus.wait_interrupt(5), Ok(true));
        bus.dma_free(h).unwrap();
        assert_eq!(bus.dma_len(h), Err(BusError::BadDmaRange { handle: h, offset: 0, len: 0 }));
    }
    check(small());
    check(Count::new(small()));
    check(Fault::new(small(), FaultPlan::default()));
    check(SmallBar::new(small(), 0x8000));
    check(Trace::new(small(), Rows::default()));
}

#[test]
fn fault_fails_one_access_and_the_device_does_not_see_it() {
    let error = BusError::Timeout { after_us: 100 };
    let mut bus = Fault::new(small(), FaultPlan { fail: Some((1, error)), ..FaultPlan::default() });
    bus.write32(Window::Registers, 0x20, 1).unwrap();
    assert_eq!(bus.write32(Window::Registers, 0x20, 2), Err(error));
    assert_eq!(bus.read32(Window::Registers, 0x20), Ok(1));
    assert_eq!(bus.accesses(), 3);
}

#[test]
fn fault_all_ones_answers_reads_and_swallows_writes() {
    let mut bus = Fault::new(small(), FaultPlan { all_ones_from: Some(1), ..FaultPlan::default() });
    bus.write32(Window::Registers, 0x20, 1).unwrap();
    bus.write32(Window::Registers, 0x20, 2).unwrap();
    bus.zero(Window::Registers, 0x20, 4).unwrap();
    assert_eq!(bus.read32(Window::Registers, 0x20), Ok(u32::MAX));
    assert_eq!(bus.read64(Window::Vram, 0), Ok(u64::MAX));
    let mut buf = [0; 5];
    bus.read_bulk(Window::Vram, 0, &mut buf).unwrap();
    assert_eq!(buf, [0xff; 5]);
    let mut group = [0; 3];
    bus.read_group(Window::Registers, &[0, 4], &mut group).unwrap();
    assert_eq!(group, [u32::MAX, u32::MAX, 0]);
    assert_eq!(bus.into_inner().registers[0x20], 1);
}

#[test]
fn fault_corrupts_exactly_one_read() {
    let mut bus = Fault::new(small(), FaultPlan { corrupt_read: Some((2, 0x8001)), ..FaultPlan::default() });
    bus.write_bulk(Window::Vram, 0, &[0x10; 8]).unwrap();
    let mut buf = [0; 6];
    bus.read_bulk(Window::Vram, 0, &mut buf).unwrap();
    assert_eq!(buf, [0x10; 6]);
    bus.read_bulk(Window::Vram, 0, &mut buf).unwrap();
    assert_eq!(buf, [0x11, 0x90, 0x10, 0x10, 0x10, 0x10]);
    assert_eq!(bus.read32(Window::Vram, 0), Ok(0x1010_1010));
}

#[test]
fn fault_gone_stays_gone_but_dma_memory_stays_usable() {
    let mut bus = Fault::new(small(), FaultPlan { gone_from: Some(1), ..FaultPlan::default() });
    let h = bus.dma_alloc(0x1000).unwrap();
    assert_eq!(bus.fence(), Ok(()));
    bus.read32(Window::Registers, 0).unwrap();
    assert_eq!(bus.read32(Window::Registers, 0), Err(BusError::Gone));
    assert_eq!(bus.write64(Window::Doorbells, 0, 0), Err(BusError::Gone));
    assert_eq!(bus.flush(), Err(BusError::Gone));
    assert_eq!(bus.wait_interrupt(1), Err(BusError::Gone));
    assert_eq!(bus.dma_free(h), Ok(()));
}

/// VRAM of 5 GiB would show `MM_INDEX_HI`; sparse here: only the addresses count.
#[derive(Default)]
struct Indexed(Vec<(u64, u32)>);

impl Mmio for Indexed {
    fn window_len(&self, window: Window) -> u64 {
        if window == Window::Vram { 0x1000_0000 } else { 0x10_0000 }
    }
    fn read32(&mut self, _: Window, offset: u64) -> Result<u32, BusError> {
        self.0.push((offset | 1 << 63, 0));
        Ok(0x1234)
    }
    fn write32(&mut self, window: Window, offset: u64, value: u32) -> Result<(), BusError> {
        assert_eq!(window, Window::Registers);
        self.0.push((offset, value));
        Ok(())
    }
    fn read64(&mut self, window: Window, _: u64) -> Result<u64, BusError> {
        Err(BusError::UnsupportedSize { window, size: 8 })
    }
    fn write64(&mut self, window: Window, _: u64, _: u64) -> Result<(), BusError> {
        Err(BusError::UnsupportedSize { window, size: 8 })
    }
    fn read_bulk(&mut self, _: Window, _: u64, _: &mut [u8]) -> Result<(), BusError> {
        Err(BusError::Unsupported("read in bulk"))
    }
    fn write_bulk(&mut self, _: Window, _: u64, _: &[u8]) -> Result<(), BusError> {
        Err(BusError::Unsupported("write in bulk"))
    }
    fn flush(&mut self) -> Result<(), BusError> {
        Ok(())
    }
    fn fence(&mut self) -> Result<(), BusError> {
        Ok(())
    }
}

#[test]
fn small_bar_reaches_the_discovery_table_through_mm_index() {
    // 24560 MiB: the table stands at 0x5FEFF0000.
    let mut bus = SmallBar::new(Indexed::default(), 24560 << 20);
    assert_eq!(bus.window_len(Window::Vram), 0x5_ff00_0000);
    assert_eq!(bus.read32(Window::Vram, 0x5_feff_0000), Ok(0x1234));
    // Bits 30:0 with the frame buffer bit, bits from 31 on, data.
    assert_eq!(bus.inner().0, [(0, 0xfeff_0000), (0x18, 0xb), (4 | 1 << 63, 0)]);
}

#[test]
fn small_bar_sets_the_upper_address_once_per_access_and_anew_for_the_next() {
    let mut bus = SmallBar::new(Indexed::default(), 1 << 33);
    bus.write_bulk(Window::Vram, 0x7fff_fffc, &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]).unwrap();
    let expected =
        [(0, 0xffff_fffc), (0x18, 0), (4, 1), (0, 0x8000_0000), (0x18, 1), (4, 2), (0, 0x8000_0004), (4, 3)];
    assert_eq!(bus.inner().0, expected);
    bus.inner_mut().0.clear();
    bus.write32(Window::Vram, 0x8000_0008, 4).unwrap();
    assert_eq!(bus.inner().0, [(0, 0x8000_0008), (0x18, 1), (4, 4)]);
}

#[test]
fn small_bar_stores_the_valid_bit_of_an_entry_last() {
    let mut bus = SmallBar::new(Indexed::default(), 1 << 33);
    bus.write64(Window::Vram, 0x2000_0000, 0xaaaa_bbbb_0000_0071).unwrap();
    let data: Vec<u32> = bus.inner().0.iter().filter(|(o, _)| *o == 4).map(|(_, v)| *v).collect();
    assert_eq!(data, [0xaaaa_bbbb, 0x71]);
}

#[test]
fn small_bar_refuses_what_is_beyond_the_vram() {
    let mut bus = SmallBar::new(FakeBus::new(2 * MIB, MIB), 2 * MIB as u64);
    for (offset, len) in [(2 * MIB as u64, 1), (2 * MIB as u64 - 1, 2), (u64::MAX, 4)] {
        let mut buf = vec![0; len];
        assert!(matches!(
            bus.read_bulk(Window::Vram, offset, &mut buf),
            Err(BusError::OutOfWindow { window_len: 0x20_0000, .. })
        ));
    }
    assert!(bus.read32(Window::Vram, MIB as u64 + 2).is_err(), "unaligned");
}

proptest! {
    #[test]
    fn small_bar_reads_and_writes_what_a_large_bar_does(
        ops in prop::collection::vec((0u64..0x1800, 0usize..200, 0u8..3, any::<u8>()), 1..20)
    ) {
        let mut whole = FakeBus::new(0x2000, 0x2000);
        let mut split = SmallBar::new(FakeBus::new(0x2000, 0x1000), 0x2000);
        for (offset, len, op, fill) in ops {
            match op {
                0 => {
                    let data: Vec<u8> = (0..len).map(|i| fill.wrapping_add(i as u8)).collect();
                    whole.write_bulk(Window::Vram, offset, &data).unwrap();
                    split.write_bulk(Window::Vram, offset, &data).unwrap();
                }
                1 => {
                    whole.zero(Window::Vram, offset, len as u64).unwrap();
                    split.zero(Window::Vram, offset, len as u64).unwrap();
                }
                _ => {
                    let (mut a, mut b) = (vec![0; len], vec![1; len]);
                    whole.read_bulk(Window::Vram, offset, &mut a).unwrap();
                    split.read_bulk(Window::Vram, offset, &mut b).unwrap();
                    prop_assert_eq!(a, b);
                }
            }
        }
        prop_assert_eq!(whole.vram, split.into_inner().vram);
    }
}

#[derive(Debug)]
struct Full;

impl core::fmt::Display for Full {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("no space left")
    }
}
impl core::error::Error for Full {}
impl embedded_io::Error for Full {
    fn kind(&self) -> embedded_io::ErrorKind {
        embedded_io::ErrorKind::OutOfMemory
    }
}

/// Keeps what is written, up to a size.
struct Disk {
    kept: Vec<u8>,
    size: usize,
}

impl embedded_io::ErrorType for Disk {
    type Error = Full;
}
impl embedded_io::Write for Disk {
    fn write(&mut self, buf: &[u8]) -> Result<usize, Full> {
        if self.kept.len() + buf.len() > self.size {
            return Err(Full);
        }
        self.kept.extend_from_slice(buf);
        Ok(buf.len())
    }
    fn flush(&mut self) -> Result<(), Full> {
        Ok(())
    }
}

#[derive(Default)]
struct Rows(Vec<String>);

impl TraceSink for Rows {
    fn event(&mut self, event: Event<'_>) {
        self.0.push(format!("{event:?}"));
    }
}

struct Table;

impl Names for Table {
    fn lookup(&self, addr: u32) -> Option<(&str, &str)> {
        match addr {
            0x14 => Some(("nbio", "regBIF_BX_PF0_RSMU_INDEX")),
            0x15 => Some(("nbio", "regBIF_BX_PF0_RSMU_DATA")),
            0x100 => Some(("mp", "regMP0_SMN_C2PMSG_35")),
            67_424_514 => Some(("nbio", "regRCC_DEV0_EPF2_STRAP2")),
            _ => None,
        }
    }
}

fn json(work: impl FnOnce(&mut Trace<FakeBus, JsonLines<Disk, Table>>)) -> Vec<String> {
    let digest: fn(&[u8]) -> [u8; 32] = |data| [data.len() as u8; 32];
    let sink =
        JsonLines::new(Disk { kept: Vec::new(), size: 1 << 20 }, Table, Some(digest), "navi31", "boot");
    let mut bus = Trace::new(small(), sink);
    work(&mut bus);
    let (_, sink) = bus.into_parts();
    let text = String::from_utf8(sink.finish().unwrap().kept).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn trace_starts_with_device_and_flow() {
    assert_eq!(
        json(|_| ()),
        [r#"{"op":"header","format":1,"driver":"amdev","device":"navi31","flow":"boot"}"#]
    );
}

#[test]
fn trace_rows_of_an_rsmu_access_equal_the_golden_ones() {
    let rows = json(|bus| {
        bus.write32(Window::Registers, 80, 269_698_056).unwrap();
        bus.read32(Window::Registers, 84).unwrap();
        bus.write32(Window::Registers, 80, 269_698_056).unwrap();
        bus.write32(Window::Registers, 84, 0).unwrap();
    });
    let index = r#""ip":"nbio","name":"regBIF_BX_PF0_RSMU_INDEX","addr":20,"val":269698056,"for":"regRCC_DEV0_EPF2_STRAP2","ind":67424514"#;
    let data = r#""ip":"nbio","name":"regBIF_BX_PF0_RSMU_DATA","addr":21,"val":0,"for":"regRCC_DEV0_EPF2_STRAP2","ind":67424514"#;
    let expected = [("w", index), ("r", data), ("w", index), ("w", data)];
    for (i, (op, fields)) in expected.iter().enumerate() {
        assert_eq!(rows[i + 1], format!(r#"{{"op":"{op}",{fields},"i":{i}}}"#));
    }
}

#[test]
fn trace_joins_the_reads_of_a_poll() {
    let rows = json(|bus| {
        bus.inner_mut().poll = vec![0, 0, 0, 0x8000_0000, 0x8000_0000];
        while bus.read32(Window::Registers, 0x400).unwrap() == 0 {
            bus.clock().wait_us(10);
        }
        bus.clock().wait_us(7);
        bus.read32(Window::Registers, 0x400).unwrap();
    });
    assert_eq!(
        rows[1..],
        [
            r#"{"op":"r","ip":"mp","name":"regMP0_SMN_C2PMSG_35","addr":256,"val":2147483648,"n":4,"first":0,"us":30,"i":0}"#,
            r#"{"op":"sleep","us":7,"i":1}"#,
            r#"{"op":"r","ip":"mp","name":"regMP0_SMN_C2PMSG_35","addr":256,"val":2147483648,"i":2}"#,
        ]
    );
}

#[test]
fn trace_keeps_program_order_over_windows_and_waits() {
    let rows = json(|bus| {
        bus.write_bulk(Window::Vram, 0x40, &[0xab, 0xcd]).unwrap();
        bus.clock().wait_us(10_000);
        bus.write_bulk(Window::Vram, 0, &[9; 65]).unwrap();
        bus.zero(Window::Vram, 0, 4096).unwrap();
        bus.read32(Window::Vram, 0).unwrap();
        bus.fence().unwrap();
        bus.write64(Window::Doorbells, 24, 0x17).unwrap();
        bus.write32(Window::Doorbells, 28, 1).unwrap();
        assert!(bus.write32(Window::Vram, 1 << 40, 1).is_err());
        bus.mark("psp \"boot\"");
    });
    let sha = "41".repeat(32);
    let expected = [
        r#"{"op":"vw","pa":64,"len":2,"data":"abcd","i":0}"#.to_owned(),
        r#"{"op":"sleep","us":10000,"i":1}"#.to_owned(),
        format!(r#"{{"op":"vw","pa":0,"len":65,"sha256":"{sha}","i":2}}"#),
        r#"{"op":"vw","pa":0,"len":4096,"zero":true,"i":3}"#.to_owned(),
        r#"{"op":"vr","pa":0,"len":4,"zero":true,"i":4}"#.to_owned(),
        r#"{"op":"fence","i":5}"#.to_owned(),
        r#"{"op":"db","off":24,"data":"1700000000000000","i":6}"#.to_owned(),
        r#"{"op":"db","off":28,"data":"01000000","i":7}"#.to_owned(),
        r#"{"op":"vw","pa":1099511627776,"len":4,"data":"01000000","i":8}"#.to_owned(),
    ];
    assert_eq!(rows[1..10], expected);
    assert!(
        rows[10].starts_with(r#"{"op":"error","text":"offset 0x10000000000 (length 0x4)"#),
        "{}",
        rows[10]
    );
    assert_eq!(rows[11], r#"{"op":"mark","fn":"psp \"boot\"","i":10}"#);
}

#[test]
fn a_full_disk_ends_the_trace_but_not_the_work() {
    let mut bus =
        Trace::new(small(), JsonLines::new(Disk { kept: Vec::new(), size: 100 }, (), None, "navi31", "boot"));
    for _ in 0..10 {
        bus.write32(Window::Registers, 0x20, 5).unwrap();
    }
    assert!(!bus.sink_mut().is_ok());
    let (bus, sink) = bus.into_parts();
    assert!(sink.finish().is_err());
    assert_eq!(bus.registers[0x20], 5);
}
