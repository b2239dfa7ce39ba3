//! The discovery table: golden tables, tables of real GPUs, and faults reported from the field.
//! Damaged tables and reading from a device: `discovery_faults.rs`.

use std::path::PathBuf;

use amdev_core::discovery::{Binary, Die, GcInfo, GfxTarget, Harvested, HwId, Ip, IpList, parse};
use amdev_core::reg::Block;
use amdev_tests::golden;
use serde_json::Value;

const GPUS: [&str; 5] = ["navi31", "navi32", "navi33", "navi44", "navi48"];

fn table(gpu: &str) -> Vec<u8> {
    golden(&format!("{gpu}/discovery.bin")).unwrap()
}

fn number(v: &Value) -> u64 {
    match v {
        Value::String(s) => u64::from_str_radix(s.trim_start_matches("0x"), 16).unwrap(),
        _ => v.as_u64().unwrap(),
    }
}

/// One IP instance as plain data: id, instance, version, base addresses.
type Row = (u16, u8, (u8, u8, u8), Vec<u32>);

fn rows(list: &IpList) -> Vec<Row> {
    list.iter().map(|ip| (ip.hw_id.0, ip.instance, ip.version, ip.bases.to_vec())).collect()
}

/// What the device description beside the golden table says.
fn described(gpu: &str) -> (Vec<Row>, Value) {
    let device: Value = serde_json::from_slice(&golden(&format!("{gpu}/device.json")).unwrap()).unwrap();
    let rows = device["ips"].as_array().unwrap().iter().map(|ip| {
        let v: Vec<u8> = ip["version"].as_array().unwrap().iter().map(|n| number(n) as u8).collect();
        let bases = ip["bases"].as_array().unwrap().iter().map(|b| number(b) as u32).collect();
        (number(&ip["hw_id"]) as u16, number(&ip["instance"]) as u8, (v[0], v[1], v[2]), bases)
    });
    (rows.collect(), device)
}

#[test]
fn a_golden_table_lists_every_ip_of_the_device_description() {
    for gpu in GPUS {
        let list = parse(&table(gpu)).unwrap();
        let (expected, device) = described(gpu);
        assert_eq!(rows(&list), expected, "{gpu}");
        assert!(list.harvested().is_empty(), "{gpu}");
        let gc = list.gc.unwrap();
        let info = &device["gc_info"];
        let fields = [
            ("gc_num_se", gc.num_se),
            ("gc_num_sa_per_se", gc.sa_per_se),
            ("gc_num_wgp0_per_sa", gc.wgp0_per_sa),
            ("gc_num_wgp1_per_sa", gc.wgp1_per_sa),
            ("gc_num_rb_per_se", gc.rb_per_se),
            ("gc_num_gl2c", gc.num_l2),
            ("gc_num_gprs", gc.num_gprs),
            ("gc_wave_size", gc.wave_size),
            ("gc_max_waves_per_simd", gc.max_waves_per_simd),
            ("gc_max_scratch_slots_per_cu", gc.max_scratch_slots_per_cu),
            ("gc_lds_size", gc.lds_size_kib),
            ("gc_num_sc_per_se", gc.sc_per_se),
            ("gc_num_packer_per_sc", gc.packer_per_sc),
            ("gc_num_gl2a", gc.num_gl2a),
            ("gc_num_sdp_interface", gc.num_sdp_interface),
        ];
        for (name, value) in fields {
            assert_eq!(number(&info[name]) as u32, value, "{gpu} {name}");
        }
    }
}

#[test]
fn each_gpu_has_its_versions_target_and_compute_units() {
    let facts = [
        ("navi31", (11, 0, 0), (13, 0, 0), (6, 0, 0), "gfx1100", 96),
        ("navi32", (11, 0, 3), (13, 0, 10), (6, 0, 3), "gfx1101", 60),
        ("navi33", (11, 0, 2), (13, 0, 7), (6, 0, 2), "gfx1102", 32),
        ("navi44", (12, 0, 0), (14, 0, 2), (7, 0, 0), "gfx1200", 32),
        ("navi48", (12, 0, 1), (14, 0, 3), (7, 0, 1), "gfx1201", 64),
    ];
    for (gpu, gc, mp0, sdma, target, cus) in facts {
        let list = parse(&table(gpu)).unwrap();
        assert_eq!(list.require(Block::Gc), Ok(gc), "{gpu}");
        assert_eq!(list.version(Block::Mp0), Some(mp0), "{gpu}");
        assert_eq!(list.version(Block::Sdma), Some(sdma), "{gpu}");
        assert_eq!(list.instances(Block::Sdma), 2, "{gpu}");
        assert_eq!(list.gfx_target().unwrap().to_string(), target);
        assert_eq!(list.max_cus(), Some(cus), "{gpu}");
    }
}

#[test]
fn kfd_target_numbers_and_names_agree() {
    for (kfd, name) in [(90402, "gfx942"), (90010, "gfx90a"), (120001, "gfx1201"), (110001, "gfx1101")] {
        let target = GfxTarget::from_kfd_version(kfd).unwrap();
        assert_eq!((target.to_string().as_str(), target.kfd_version()), (name, kfd));
    }
    assert_eq!(GfxTarget::from_kfd_version(0), None);
}

#[test]
fn wide_bases_and_harvest_give_the_plain_list_without_the_harvested_instances() {
    for gpu in ["navi31", "navi48"] {
        let plain = parse(&table(gpu)).unwrap();
        let wide = parse(&golden(&format!("{gpu}/discovery_base64_harvest.bin")).unwrap()).unwrap();
        let gone = [(HwId::UMC, 7), (HwId::SDMA0, 1)];
        let expected: Vec<Row> =
            rows(&plain).into_iter().filter(|r| !gone.contains(&(HwId(r.0), r.1))).collect();
        assert_eq!(rows(&wide), expected, "{gpu}");
        let harvested: Vec<_> = wide.harvested().iter().map(|h| (h.hw_id, h.instance)).collect();
        assert_eq!(harvested, gone);
        assert_eq!(wide.instances(Block::Sdma), 1);
        assert_eq!(wide.gc, plain.gc);
        assert_eq!(wide.bases(Block::Gc, 0), plain.bases(Block::Gc, 0));
    }
}

/// Rows written as a table; `high` goes into the upper part of 64-bit bases.
fn emit(rows: &[Row], table_version: u16, high: Option<u64>, harvest: Option<&[Harvested]>) -> Vec<u8> {
    let wide: Vec<Vec<u64>> =
        rows.iter().map(|r| r.3.iter().map(|b| *b as u64 | high.unwrap_or(0)).collect()).collect();
    let ips: Vec<Ip<'_>> = rows
        .iter()
        .zip(&wide)
        .map(|(r, bases)| Ip { hw_id: HwId(r.0), instance: r.1, version: r.2, flags: 0, bases })
        .collect();
    let binary = Binary {
        header_version: 1,
        table_version,
        wide_bases: high.is_some(),
        dies: &[Die { ips: &ips }],
        gc: None,
        harvest,
    };
    written(&binary)
}

fn written(binary: &Binary<'_>) -> Vec<u8> {
    let mut buf = vec![0; 65536];
    let len = binary.emit(&mut buf).unwrap();
    buf.truncate(len);
    buf
}

/// A listing of a Radeon AI PRO R9700 (id, instance, version, harvest, bases) where it is at hand;
/// else the golden description of the same chip with what is special about that listing: an IP
/// without base addresses, and an id for each SDMA engine.
fn listing() -> Vec<Row> {
    let Ok(text) = amdev_tests::corpus("uncommitted/discovery/r9700_ip_discovery.txt") else {
        let mut rows = described("navi48").0;
        for row in rows.iter_mut().filter(|r| (r.0, r.1) == (42, 1)) {
            (row.0, row.1) = (43, 0);
        }
        rows.push((10, 0, (9, 0, 0), vec![]));
        return rows;
    };
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let v: Vec<u8> = words[2].split('.').map(|n| n.parse().unwrap()).collect();
        let bases = words[4..].iter().map(|b| u32::from_str_radix(&b[2..], 16).unwrap()).collect();
        (words[0].parse().unwrap(), words[1].parse().unwrap(), (v[0], v[1], v[2]), bases)
    };
    String::from_utf8(text).unwrap().lines().filter(|l| !l.is_empty()).map(row).collect()
}

#[test]
fn a_real_r9700_reads_the_same_with_32_bit_and_64_bit_bases() {
    let rows_in = listing();
    let v3 = parse(&emit(&rows_in, 3, None, None)).unwrap();
    let v4 = parse(&emit(&rows_in, 4, Some(0x1_c000_0000), None)).unwrap();
    assert_eq!((v3.table_version, v4.table_version), (3, 4));
    for list in [&v3, &v4] {
        assert_eq!(rows(list), rows_in);
        let gc = list.bases(Block::Gc, 0).unwrap();
        assert_eq!(&gc.addr[..gc.len as usize], [0x1260, 0xa000, 0x1c000, 0x2402c00]);
        assert_eq!(list.find(HwId::MP0, 0).unwrap().bases.len(), 15);
        assert_eq!(list.find(HwId(10), 0).unwrap().bases.len(), 0, "an IP without registers");
        // C2PMSG_90 is at offset 0x29a from base 0 (mp_14_0_2_offset.h).
        assert_eq!(list.bases(Block::Mp1, 0).unwrap().get(0).unwrap() + 0x29a, 0x1629a);
        assert_eq!(list.instances(Block::Sdma), 2, "two hardware ids, one engine each");
        assert_eq!(list.instance(Block::Sdma, 1).unwrap().hw_id, HwId::SDMA1);
        assert_eq!(list.gfx_target(), Some(GfxTarget::new(12, 0, 1)));
    }
}

#[test]
fn the_harvest_list_ends_at_its_first_zero_id() {
    // C04
    let rows_in: Vec<Row> = listing()
        .into_iter()
        .filter(|r| r.0 != 150)
        .chain((0..8).map(|i| (150, i, (8, 14, 0), vec![0x14000 + 0x40000 * i as u32])))
        .collect();
    let gone = |hw_id, instance| Harvested { hw_id: HwId(hw_id), instance };
    let list = parse(&emit(&rows_in, 4, None, Some(&[gone(150, 7), gone(0, 0), gone(11, 0)]))).unwrap();
    let expected: Vec<Row> = rows_in.iter().filter(|r| (r.0, r.1) != (150, 7)).cloned().collect();
    assert_eq!(rows(&list), expected);
    assert_eq!(list.harvested(), [gone(150, 7)]);
    assert_eq!(list.version(Block::Gc), Some((12, 0, 1)));
}

#[test]
fn a_harvested_first_sdma_engine_leaves_the_second_as_the_first() {
    let rows_in: Vec<Row> =
        vec![(11, 0, (11, 0, 0), vec![1]), (42, 0, (6, 0, 0), vec![2]), (42, 1, (6, 0, 0), vec![3])];
    let gone = [Harvested { hw_id: HwId::SDMA0, instance: 0 }];
    let list = parse(&emit(&rows_in, 4, None, Some(&gone))).unwrap();
    assert_eq!(list.instances(Block::Sdma), 1);
    assert_eq!(list.instance(Block::Sdma, 0).unwrap().instance, 1);
    assert_eq!(list.bases(Block::Sdma, 0).unwrap().get(0), Some(3));
}

#[test]
fn the_harvest_table_of_old_gpus_is_not_heeded() {
    let gone = [Harvested { hw_id: HwId::SDMA0, instance: 1 }];
    let sdma_of = |gc| {
        let rows_in: Vec<Row> =
            vec![(11, 0, gc, vec![]), (42, 0, (4, 0, 0), vec![]), (42, 1, (4, 0, 0), vec![])];
        parse(&emit(&rows_in, 2, None, Some(&gone))).unwrap().instances(Block::Sdma)
    };
    assert_eq!([(10, 1, 10), (9, 4, 2), (9, 4, 3), (10, 3, 0)].map(sdma_of), [2, 2, 1, 1]);
}

/// An unpacked firmware package that has discovery tables.
fn firmware_dir() -> Option<PathBuf> {
    let dirs = amdev_tests::golden_fw::firmware_dirs();
    dirs.into_iter().find(|d| d.join("vega10_ip_discovery.bin").exists())
}

#[test]
fn tables_of_real_gpus_read_as_published() {
    let Some(dir) = firmware_dir() else {
        eprintln!("skipped: no firmware package with *_ip_discovery.bin (tests/fetch.sh firmware)");
        return;
    };
    let facts = [
        ("vega10", (9, 0, 1), "gfx900", Some((4, 16, 64)), 22),
        ("vega12", (9, 2, 1), "gfx904", Some((4, 5, 20)), 22),
        ("vega20", (9, 4, 0), "gfx906", None, 19),
        ("raven2", (9, 2, 2), "gfx902", Some((1, 3, 3)), 20),
        ("picasso", (9, 1, 0), "gfx902", Some((1, 11, 11)), 20),
        ("arcturus", (9, 4, 1), "gfx908", Some((8, 16, 128)), 29),
        ("aldebaran", (9, 4, 2), "gfx90a", None, 22),
    ];
    for (gpu, gc, target, shape, ips) in facts {
        let bytes = amdev_tests::read(dir.join(format!("{gpu}_ip_discovery.bin"))).unwrap();
        let list = parse(&bytes).unwrap();
        assert_eq!(list.version(Block::Gc), Some(gc), "{gpu}");
        assert_eq!(list.gfx_target().unwrap().to_string(), target);
        assert_eq!(list.iter().count(), ips, "{gpu}");
        assert_eq!(list.table_version, 2);
        let got = list.gc.map(|g| (g.num_se, g.cus_per_sa(), list.max_cus().unwrap()));
        assert_eq!(got, shape, "{gpu}");
        if let Some(g) = list.gc {
            assert_eq!((g.version, g.wave_size, g.max_waves_per_simd), ((2, 0), 64, 10), "{gpu}");
        }
        assert_eq!(parse(&rewrite(&list, 1)).unwrap(), list, "{gpu} written again");
    }
}

/// A list written as a table of the same version.
fn rewrite(list: &IpList, header_version: u16) -> Vec<u8> {
    let infos: Vec<_> = list.iter().collect();
    let bases: Vec<Vec<u64>> = infos.iter().map(|i| i.bases.iter().map(|b| *b as u64).collect()).collect();
    let of_die = |die: u8| -> Vec<Ip<'_>> {
        let mine = infos.iter().zip(&bases).filter(|(i, _)| i.die == die);
        mine.map(|(i, bases)| Ip {
            hw_id: i.hw_id,
            instance: i.instance,
            version: i.version,
            flags: i.flags(),
            bases,
        })
        .collect()
    };
    let dies: Vec<Vec<Ip<'_>>> = (0..list.dies).map(of_die).collect();
    let dies: Vec<Die<'_>> = dies.iter().map(|ips| Die { ips }).collect();
    written(&Binary {
        header_version,
        table_version: list.table_version,
        wide_bases: false,
        dies: &dies,
        gc: list.gc,
        harvest: Some(list.harvested()),
    })
}

#[test]
fn golden_tables_survive_being_written_again_with_either_header() {
    for gpu in GPUS {
        let list = parse(&table(gpu)).unwrap();
        for header_version in [1, 2] {
            assert_eq!(parse(&rewrite(&list, header_version)).unwrap(), list, "{gpu} v{header_version}");
        }
    }
}

/// What the byte after the version means depends on the table's version: harvest bits before version
/// 3, variant and sub-revision from there on.
#[test]
fn every_table_version_survives_a_round_trip_with_either_header() {
    let bases = [[0x1260u64, 0xa000], [0x1c000, 0]];
    let ip = |hw_id: u16, instance, flags, bases| Ip {
        hw_id: HwId(hw_id),
        instance,
        version: (10, 3, 0),
        flags,
        bases,
    };
    let first = [ip(11, 0, 0x05, &bases[0]), ip(42, 1, 0x03, &[])];
    let second = [ip(0xffff, 7, 0, &bases[1])];
    let dies = [Die { ips: &first }, Die { ips: &second }];
    let gone = [Harvested { hw_id: HwId(42), instance: 1 }];
    for (table_version, wide_bases) in [(1, false), (2, false), (3, false), (4, false), (4, true)] {
        for header_version in [1, 2] {
            for harvest in [None, Some(&gone[..])] {
                let binary =
                    Binary { header_version, table_version, wide_bases, dies: &dies, gc: None, harvest };
                let list = parse(&written(&binary)).unwrap();
                assert_eq!((list.table_version, list.dies), (table_version, 2));
                let found: Vec<_> = list.iter().map(|ip| (ip.hw_id.0, ip.die, ip.bases.to_vec())).collect();
                let mut expected =
                    vec![(11, 0, vec![0x1260, 0xa000]), (42, 0, vec![]), (0xffff, 1, vec![0x1c000, 0])];
                if harvest.is_some() {
                    expected.remove(1);
                }
                assert_eq!(found, expected, "version {table_version}, header {header_version}");
                let gc = list.find(HwId::GC, 0).unwrap();
                let (sub_revision, bits) = if table_version >= 3 { (5, 0) } else { (0, 5) };
                assert_eq!((gc.variant, gc.sub_revision, gc.harvest), (0, sub_revision, bits));
                assert_eq!(parse(&rewrite(&list, header_version)).unwrap(), list);
            }
        }
    }
    let newest = [ip(11, 0, 0xa5, &bases[0])];
    let dies = [Die { ips: &newest }];
    let binary = Binary {
        header_version: 2,
        table_version: 3,
        wide_bases: false,
        dies: &dies,
        gc: None,
        harvest: None,
    };
    let list = parse(&written(&binary)).unwrap();
    let gc = list.find(HwId::GC, 0).unwrap();
    assert_eq!((gc.variant, gc.sub_revision), (0xa, 5));
}

#[test]
fn every_version_of_the_core_description_survives_a_round_trip() {
    let rows_in: Vec<Row> = vec![(11, 0, (9, 4, 3), vec![]), (11, 1, (9, 4, 3), vec![])];
    for version in [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1)] {
        let mut gc = GcInfo { version, num_se: 4, sa_per_se: 2, wave_size: 64, ..GcInfo::default() };
        if version.0 == 1 {
            (gc.wgp0_per_sa, gc.wgp1_per_sa) = (3, 1);
        } else {
            gc.cu_per_sh = 8;
        }
        if version.1 >= 1 {
            gc.tcp_per_sa = 7;
        }
        if version == (1, 3) || version == (2, 1) {
            gc.tcc_size = 0x1234;
        }
        let mut list = parse(&emit(&rows_in, 4, None, None)).unwrap();
        list.gc = Some(gc);
        let back = parse(&rewrite(&list, 1)).unwrap();
        assert_eq!(back.gc, Some(gc), "{version:?}");
        assert_eq!(gc.max_cus(), 64);
        // A version 2 description is of one XCC, and there are two.
        assert_eq!(back.max_cus(), Some(if version.0 == 2 { 128 } else { 64 }));
    }
}

#[test]
fn inactive_wgps_reduce_the_compute_units_of_a_shader_array() {
    let gc = parse(&table("navi31")).unwrap().gc.unwrap();
    assert_eq!([0, 0b0100, 0xffff].map(|inactive| gc.active_cus_in_array(inactive)), [8, 6, 0]);
}

#[test]
fn several_dies_are_listed_with_their_die() {
    let bases = [0x100u64];
    let ip = |instance| [Ip { hw_id: HwId::GC, instance, version: (9, 4, 3), flags: 0x21, bases: &bases }];
    let (first, second) = (ip(0), ip(1));
    let list = parse(&written(&Binary {
        header_version: 2,
        table_version: 3,
        wide_bases: false,
        dies: &[Die { ips: &first }, Die { ips: &second }],
        gc: None,
        harvest: None,
    }))
    .unwrap();
    assert_eq!((list.dies, list.instances(Block::Gc)), (2, 2));
    let seen: Vec<_> =
        list.iter().map(|i| (i.die, i.instance, i.variant, i.sub_revision, i.harvest)).collect();
    assert_eq!(seen, [(0, 0, 2, 1, 0), (1, 1, 2, 1, 0)]);
}

#[test]
fn the_ability_bits_in_the_revision_of_vcn_are_no_part_of_its_version() {
    let list = parse(&emit(&[(12, 0, (4, 0, 0x84), vec![])], 4, None, None)).unwrap();
    assert_eq!(list.find(HwId::VCN, 0).unwrap().version, (4, 0, 4));
}
