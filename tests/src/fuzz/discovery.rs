//! The discovery table: first byte 1 = checksums are mended before the table is read, so that what
//! lies behind them is reached; 0 = the table as it is.

use amdev_core::discovery::{self, Binary, Die, Ip, IpInfo, IpList, MAX_BINARY, wire};
use amdev_core::reg::Block;

const BLOCKS: [Block; 8] =
    [Block::Gc, Block::Mp0, Block::Mp1, Block::Nbio, Block::Mmhub, Block::Osssys, Block::Hdp, Block::Sdma];

pub(super) fn run(data: &[u8]) {
    let Some((mode, table)) = data.split_first() else { return };
    let mut table = table.to_vec();
    if mode & 1 == 1 {
        mend(&mut table);
    }
    let parsed = discovery::parse(&table);
    // Reading it piecewise from a device gives the same.
    let mut buf = [0; MAX_BINARY];
    let loaded = discovery::load_into(&mut buf, |offset, out| {
        let offset = offset as usize;
        assert!(offset + out.len() <= MAX_BINARY && offset.is_multiple_of(4) && out.len().is_multiple_of(4));
        // Behind the table there is other memory.
        for (i, b) in out.iter_mut().enumerate() {
            *b = table.get(offset + i).copied().unwrap_or(0xee);
        }
        Ok::<_, ()>(())
    });
    let Ok(list) = parsed else { return };
    if let Ok(loaded) = loaded {
        assert!(loaded.len() <= table.len());
        assert_eq!(discovery::parse(loaded).as_ref(), Ok(&list));
    }
    consistent(&list);
    written_again(&list);
}

fn consistent(list: &IpList) {
    for ip in list.iter() {
        assert!(list.find(ip.hw_id, ip.instance).is_some());
        assert!(ip.die < list.dies);
        // A heeded harvest table has removed the instance.
        assert!(!list.harvested().iter().any(|h| (h.hw_id, h.instance) == (ip.hw_id, ip.instance)));
        assert!(ip.bases.len() <= 255 && !ip.hw_id.to_string().is_empty());
    }
    for block in BLOCKS {
        let n = list.instances(block);
        assert_eq!(list.instance(block, n).is_some(), n == 255 && list.instance(block, 255).is_some());
        assert_eq!(list.version(block).is_some(), list.require(block).is_ok());
        assert_eq!(list.bases(block, 0).is_some(), n > 0);
    }
    if let Some(target) = list.gfx_target() {
        assert_eq!(discovery::GfxTarget::from_kfd_version(target.kfd_version()), Some(target));
    }
    if let (Some(gc), Some(cus)) = (list.gc, list.max_cus()) {
        assert!(cus >= gc.max_cus());
        assert_eq!(gc.active_cus_in_array(u32::MAX), 0);
    }
}

/// What was read is written and read again, with either header and, where the version has them, with
/// wide bases.
fn written_again(list: &IpList) {
    let infos: Vec<IpInfo<'_>> = list.iter().collect();
    let bases: Vec<Vec<u64>> = infos.iter().map(|i| i.bases.iter().map(|b| *b as u64).collect()).collect();
    let dies: Vec<Vec<Ip<'_>>> = (0..list.dies)
        .map(|die| {
            let mine = infos.iter().zip(&bases).filter(|(i, _)| i.die == die);
            mine.map(|(i, bases)| Ip {
                hw_id: i.hw_id,
                instance: i.instance,
                version: i.version,
                flags: i.flags(),
                bases,
            })
            .collect()
        })
        .collect();
    let dies: Vec<Die<'_>> = dies.iter().map(|ips| Die { ips }).collect();
    // Whether a harvest table is heeded depends on the GC that is left: after a harvested one it
    // could be another.
    let heeded = !list.harvested().iter().any(|h| h.hw_id == discovery::HwId::GC);
    let narrow = infos.iter().all(|i| i.bases.iter().all(|b| *b < 1 << 30));
    for (header_version, wide) in [(1, false), (2, false), (1, true)] {
        if wide && (list.table_version < 4 || !narrow) {
            continue;
        }
        let binary = Binary {
            header_version,
            table_version: list.table_version,
            wide_bases: wide,
            dies: &dies,
            gc: list.gc,
            harvest: heeded.then_some(list.harvested()),
        };
        let mut out = vec![0; 64 << 10];
        let len = binary.emit(&mut out).expect("a list that was read can be written");
        let back = discovery::parse(&out[..len]).expect("what was written can be read");
        assert!(back.iter().eq(infos.iter().copied()));
        assert_eq!((back.table_version, back.dies, back.gc), (list.table_version, list.dies, list.gc));
        if heeded {
            assert_eq!(back.harvested(), list.harvested());
        }
    }
}

fn get16(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..at + 2).map_or(0, |b| usize::from(u16::from_le_bytes([b[0], b[1]])))
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(b) = bytes.get_mut(at..at + 2) {
        b.copy_from_slice(&value.to_le_bytes());
    }
}

fn sum(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |s: u16, b| s.wrapping_add(u16::from(*b)))
}

/// Puts right signature, length and every checksum, whatever the tables hold.
pub fn mend(bytes: &mut [u8]) {
    if bytes.len() < 12 {
        return;
    }
    bytes[..4].copy_from_slice(&wire::BINARY_SIGNATURE.to_le_bytes());
    let size = bytes.len().min(usize::from(u16::MAX));
    put16(bytes, 10, size as u16);
    let list = if get16(bytes, 4) == 2 { 16 } else { 12 };
    for table in 0..3 {
        let info = list + 8 * table;
        let at = get16(bytes, info);
        let len = match table {
            wire::TABLE_IP => get16(bytes, at + 6),
            wire::TABLE_GC => get16(bytes, at + 8) | get16(bytes, at + 10) << 16,
            _ => wire::HARVEST_LEN,
        };
        let of_table = bytes.get(at..at.saturating_add(len).min(size)).map_or(0, sum);
        put16(bytes, info + 2, of_table);
    }
    let whole = sum(bytes.get(10..size).unwrap_or(&[]));
    put16(bytes, 8, whole);
}
