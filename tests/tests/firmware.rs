//! Firmware files: names, slicing, search order, compression, pinned versions. Damaged files:
//! `firmware_faults.rs`.
//!
//! What needs AMD's files runs against unpacked packages (`tests/fetch.sh firmware`, or the folder
//! that `AMDEV_FIRMWARE` names) and says `skipped` without.

use std::fs;
use std::path::{Path, PathBuf};

use amdev_core::discovery;
use amdev_core::firmware::{FirmwareSource, FwType, ImageId, SosComponent};
use amdev_fw::files::{Pin, check};
use amdev_fw::{
    File, FileKind, FindError, FirmwareSet, OpenError, PINNED, Piece, Role, SearchPath, Versions, is_kicker,
    synthetic, types,
};
use amdev_tests::golden_fw::{firmware_dirs, judge, judge_structure, read_image};

const GPUS: [&str; 5] = ["navi31", "navi32", "navi33", "navi44", "navi48"];

fn names(versions: Versions) -> Vec<String> {
    versions.files().iter().map(|k| versions.file_name(*k).to_string()).collect()
}

#[test]
fn ip_versions_of_the_discovery_table_give_the_file_names() {
    for gpu in GPUS {
        let ips = discovery::parse(&amdev_tests::golden(&format!("{gpu}/discovery.bin")).unwrap()).unwrap();
        assert_eq!(Versions::of(&ips, 0, 0).unwrap(), Versions::by_name(gpu).unwrap(), "{gpu}");
    }
    assert_eq!(
        names(Versions::by_name("navi31").unwrap()),
        [
            "psp_13_0_0_sos.bin",
            "smu_13_0_0.bin",
            "sdma_6_0_0.bin",
            "gc_11_0_0_mec.bin",
            "gc_11_0_0_imu.bin",
            "gc_11_0_0_rlc.bin"
        ]
    );
    assert_eq!(
        names(Versions::by_name("navi48").unwrap()),
        [
            "psp_14_0_3_sos.bin",
            "smu_14_0_3.bin",
            "sdma_7_0_1.bin",
            "gc_12_0_1_pfp.bin",
            "gc_12_0_1_me.bin",
            "gc_12_0_1_mec.bin",
            "gc_12_0_1_imu.bin",
            "gc_12_0_1_rlc.bin"
        ]
    );
}

#[test]
fn kicker_boards_take_the_kicker_images_of_sos_smu_imu_and_rlc_only() {
    let name = |gpu, device, revision| {
        let kicker = is_kicker(device, revision);
        let kickers = names(Versions { kicker, ..Versions::by_name(gpu).unwrap() });
        kickers.into_iter().filter(|n| n.contains("kicker")).collect::<Vec<_>>()
    };
    assert_eq!(
        name("navi48", 0x7551, 0xc8),
        [
            "psp_14_0_3_sos_kicker.bin",
            "smu_14_0_3_kicker.bin",
            "gc_12_0_1_imu_kicker.bin",
            "gc_12_0_1_rlc_kicker.bin"
        ]
    );
    assert!(name("navi48", 0x7551, 0xc0).is_empty());
    assert_eq!(
        name("navi31", 0x744b, 0x00),
        [
            "psp_13_0_0_sos_kicker.bin",
            "smu_13_0_0_kicker.bin",
            "gc_11_0_0_imu_kicker.bin",
            "gc_11_0_0_rlc_kicker.bin"
        ]
    );
    assert!(name("navi31", 0x744c, 0x00).is_empty());
}

#[test]
fn synthetic_files_give_every_image_that_each_gpu_needs_in_order() {
    use types::*;
    let sdma6 = [SDMA_UCODE_TH1, SDMA_UCODE_TH0];
    let mec = [RS64_MEC, RS64_MEC_P0_STACK];
    let imu_rlc = [IMU_I, IMU_D, RLC_IRAM, RLC_DRAM_BOOT];
    let gfx11: Vec<FwType> = [&sdma6[..], &mec, &imu_rlc, &[RLC_P, RLC_V, RLC_G]].concat();
    let pfp_me = [RS64_PFP, RS64_PFP_P0_STACK, RS64_ME, RS64_ME_P0_STACK];
    let gfx12: Vec<FwType> = [&[SDMA_UCODE_TH0][..], &pfp_me, &mec, &imu_rlc, &[RLC_G]].concat();
    for gpu in GPUS {
        let versions = Versions::by_name(gpu).unwrap();
        let mut set = synthetic::set(versions).unwrap();
        assert!(synthetic::is_synthetic(&set));
        let found: Vec<FwType> = (0..).map_while(|i| set.ip_image(i).map(|im| im.types[0])).collect();
        assert_eq!(found, if versions.gc.0 == 11 { gfx11.clone() } else { gfx12.clone() }, "{gpu}");
        let start = set.ucode_start();
        assert_eq!(start.mec, Some(0x7_0000_0000_3000));
        assert_eq!(
            (start.pfp, start.me),
            if versions.gc.0 == 11 { (None, None) } else { (start.mec, start.mec) }
        );
        assert_eq!(set.sos(SosComponent::IpKeyMgrDrv).is_some(), versions.mp0.0 == 14, "{gpu}");

        // Every image says what it is not.
        let mut ids: Vec<(ImageId, u32)> = vec![(ImageId::Smu, set.smu().unwrap().len)];
        ids.extend((0..).map_while(|i| set.ip_image(i).map(|im| (im.id, im.len))));
        ids.push((ImageId::Sos(SosComponent::Sos), set.sos(SosComponent::Sos).unwrap().len));
        for (id, len) in ids {
            let bytes = read_image(&mut set, id, len).unwrap();
            assert!(bytes.windows(synthetic::MARK.len()).any(|w| w == synthetic::MARK), "{gpu} {id:?}");
        }
    }
}

#[test]
fn a_read_past_the_end_of_an_image_is_refused() {
    let mut set = synthetic::set(Versions::by_name("navi48").unwrap()).unwrap();
    let len = set.ip_image(0).unwrap().len;
    let mut buf = [0; 4];
    assert!(set.read(ImageId::Ip(0), len - 4, &mut buf).is_ok());
    for offset in [len - 3, len, u32::MAX] {
        let error = set.read(ImageId::Ip(0), offset, &mut buf).unwrap_err().to_string();
        assert!(error.contains("Ip(0)") && error.contains("after the image"), "{error}");
    }
    assert!(set.read(ImageId::Ip(99), 0, &mut buf).is_err());
    assert!(set.read(ImageId::Sos(SosComponent::Rl), 0, &mut []).is_ok());
}

#[test]
fn images_that_are_not_loaded_are_listed_too() {
    let set = synthetic::set(Versions::by_name("navi31").unwrap()).unwrap();
    let tables: Vec<_> = set.list().filter(|l| matches!(l.piece.role, Role::PpTable(_))).collect();
    assert_eq!(tables.len(), 1);
    assert!(!tables[0].loaded);
    assert!(set.list().filter(|l| matches!(l.piece.role, Role::Ip(_))).all(|l| l.loaded));
}

// ---- folders ----

/// Writes the synthetic files of a GPU to a folder.
fn write_files(dir: &Path, gpu: &str) -> Versions {
    let versions = Versions::by_name(gpu).unwrap();
    fs::create_dir_all(dir).unwrap();
    for kind in versions.files() {
        let bytes = synthetic::file(versions, kind).emit().unwrap();
        fs::write(dir.join(versions.file_name(kind).as_str()), bytes).unwrap();
    }
    versions
}

fn temp() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_folder_may_hold_the_files_or_a_folder_amdgpu() {
    for inner in ["", "amdgpu"] {
        let dir = temp();
        let versions = write_files(&dir.path().join(inner), "navi33");
        let path = SearchPath::given_or_system(&[dir.path()]);
        assert_eq!(FirmwareSet::from_dirs(versions, &path).unwrap().files().len(), 6);
    }
}

#[test]
fn folders_are_searched_as_linux_does() {
    let dir = temp();
    let base = dir.path();
    let path = SearchPath::below(&[base], "6.12.1");
    let places = ["updates/6.12.1", "updates", "6.12.1", ""].map(|p| base.join(p).join("amdgpu"));
    assert_eq!(path.dirs(), places);
    // From the last place to the first: each that comes before wins.
    for place in places.iter().rev() {
        fs::create_dir_all(place).unwrap();
        fs::write(place.join("x.bin"), b"").unwrap();
        assert_eq!(path.find("x.bin").unwrap(), place.join("x.bin"));
    }
    // A plain file anywhere wins over a packed one, .zst over .xz.
    fs::write(places[0].join("y.bin.xz"), b"").unwrap();
    assert_eq!(path.find("y.bin").unwrap(), places[0].join("y.bin.xz"));
    fs::write(places[3].join("y.bin.zst"), b"").unwrap();
    assert_eq!(path.find("y.bin").unwrap(), places[3].join("y.bin.zst"));
    fs::write(places[3].join("y.bin"), b"").unwrap();
    assert_eq!(path.find("y.bin").unwrap(), places[3].join("y.bin"));
}

#[test]
fn a_missing_file_is_an_error_that_lists_folders_and_packages() {
    let dir = temp();
    let path = SearchPath::only(&[dir.path().join("a"), dir.path().join("b")]);
    let error = FirmwareSet::from_dirs(Versions::by_name("navi31").unwrap(), &path).unwrap_err();
    assert!(matches!(error, OpenError::Open(FindError::NotFound { .. })));
    let text = error.to_string();
    let folder = |n: &str| dir.path().join(n).display().to_string();
    for word in
        ["psp_13_0_0_sos.bin", &folder("a"), &folder("b/amdgpu"), "firmware-amd-graphics", "amd-gpu-firmware"]
    {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
    assert!(!text.contains('\n'));
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    lzma_rs::xz_compress(&mut &bytes[..], &mut out).unwrap();
    out
}

fn zst(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// What a program on this machine makes of the bytes, if it is there.
fn packed_by(program: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut args = vec!["-c"];
    if program == "xz" {
        // As firmware packages are made for the kernel's decoder.
        args.extend(["--check=crc32", "--lzma2=dict=1MiB"]);
    }
    let child = Command::new(program).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.ok()?;
    let mut stdin = child.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&bytes));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    output.status.success().then_some(output.stdout)
}

#[test]
fn packed_files_are_unpacked() {
    let versions = Versions::by_name("navi48").unwrap();
    for suffix in ["xz", "zst"] {
        let dir = temp();
        for kind in versions.files() {
            let bytes = synthetic::file(versions, kind).emit().unwrap();
            let packed = if suffix == "xz" { xz(&bytes) } else { zst(&bytes) };
            fs::write(dir.path().join(format!("{}.{suffix}", versions.file_name(kind))), packed).unwrap();
        }
        let mut set = FirmwareSet::from_dirs(versions, &SearchPath::only(&[dir.path()])).unwrap();
        let mut plain = synthetic::set(versions).unwrap();
        for index in 0..12 {
            let (id, len) = (ImageId::Ip(index), plain.ip_image(index).unwrap().len);
            assert_eq!(read_image(&mut set, id, len).unwrap(), read_image(&mut plain, id, len).unwrap());
        }
    }
}

#[test]
fn files_packed_by_the_usual_programs_are_unpacked() {
    let dir = temp();
    // Well compressible and badly compressible parts, several LZMA2 chunks.
    let mut bytes = vec![0x5a; 3 << 20];
    let mut x = 1u32;
    for b in &mut bytes[1 << 20..2 << 20] {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *b = (x >> 24) as u8;
    }
    for (program, suffix) in [("xz", "xz"), ("zstd", "zst")] {
        let Some(packed) = packed_by(program, &bytes) else {
            eprintln!("skipped: {program} is not installed");
            continue;
        };
        let path = dir.path().join(format!("f.bin.{suffix}"));
        fs::write(&path, packed).unwrap();
        assert!(amdev_fw::files::unpack(&path).unwrap() == bytes, "{program}");
    }
}

#[test]
fn a_packed_file_that_would_grow_beyond_any_firmware_is_refused() {
    let dir = temp();
    let bytes = vec![0; (16 << 20) + 1];
    let mut bombs = vec![("xz", xz(&bytes)), ("zst", zst(&bytes))];
    bombs.extend(packed_by("xz", &bytes).map(|b| ("xz", b)));
    bombs.extend(packed_by("zstd", &bytes).map(|b| ("zst", b)));
    for (suffix, packed) in bombs {
        let path = dir.path().join(format!("bomb.bin.{suffix}"));
        fs::write(&path, packed).unwrap();
        let error = amdev_fw::Source::open(path).unwrap_err().to_string();
        assert!(error.contains("bomb.bin") && error.contains("16 MiB"), "{error}");
    }
}

#[test]
fn check_reports_each_file_with_place_checksum_and_pin() {
    let dir = temp();
    let versions = write_files(dir.path(), "navi44");
    fs::remove_file(dir.path().join("smu_14_0_2.bin")).unwrap();
    fs::write(dir.path().join("gc_12_0_0_imu.bin"), [0; 20]).unwrap();
    let reports = check(versions, &SearchPath::only(&[dir.path()]));
    assert_eq!(reports.len(), 8);
    for r in &reports {
        match r.kind {
            FileKind::Smu => {
                assert!(r.file.as_ref().unwrap_err().contains("smu_14_0_2.bin") && r.path.is_none())
            }
            FileKind::Imu => assert!(r.file.as_ref().unwrap_err().contains("gc_12_0_0_imu.bin")),
            _ => {
                assert_eq!(r.file.as_ref().unwrap().kind, r.kind);
                assert_eq!((r.pin, r.sha256.len()), (Pin::Other, 64));
            }
        }
    }
}

/// A bit of the first byte of a SOS container's list, or of its last image, is another.
#[test]
fn check_finds_damage_by_the_crc_in_the_header() {
    let dir = temp();
    let versions = write_files(dir.path(), "navi48");
    let path = dir.path().join(versions.file_name(FileKind::Sos).as_str());
    let of_sos = || {
        let reports = check(versions, &SearchPath::only(&[dir.path()]));
        let sos = reports.into_iter().find(|r| r.kind == FileKind::Sos).unwrap();
        sos.file.map(|_| ()).map_err(|e| e.split("crc32").nth(1).unwrap_or(&e).to_owned())
    };
    let mut bytes = fs::read(&path).unwrap();
    let crc = crc32fast::hash(&bytes[32..]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    assert_eq!(of_sos(), Ok(()));
    // psp_fw_type of the first component (a key database, which nothing else would miss), data.
    for at in [36, bytes.len() - 1] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        fs::write(&path, &damaged).unwrap();
        let found = crc32fast::hash(&damaged[32..]);
        let text = format!(
            " is {crc:#010x}, but the file has {found:#010x}: it is damaged; install the package again"
        );
        assert_eq!(of_sos(), Err(text), "byte {at}");
    }
}

#[test]
fn check_misses_what_no_psp_can_do_without() {
    let dir = temp();
    let versions = write_files(dir.path(), "navi48");
    for (lost, name) in [(SosComponent::Sos, "PSP_SOS"), (SosComponent::Toc, "PSP_TOC")] {
        let mut sos = synthetic::file(versions, FileKind::Sos);
        sos.parts.retain(|(role, _)| *role != Role::Sos(lost));
        fs::write(dir.path().join(versions.file_name(FileKind::Sos).as_str()), sos.emit().unwrap()).unwrap();
        let reports = check(versions, &SearchPath::only(&[dir.path()]));
        let bad: Vec<_> = reports.iter().filter_map(|r| r.file.as_ref().err()).collect();
        assert!(bad.len() == 1 && bad[0].contains(name), "{bad:?}");
    }
}

#[test]
fn the_pinned_checksums_are_those_of_the_golden_record() {
    let golden = amdev_tests::golden("fw.json").unwrap();
    let golden: serde_json::Value = serde_json::from_slice(&golden).unwrap();
    let mut wanted = std::collections::BTreeSet::new();
    for (package, date) in [("2025", "20250410"), ("2026", "20260916")] {
        for gpu in GPUS {
            for f in golden[gpu][package]["files"].as_array().unwrap() {
                let text = |k: &str| f[k].as_str().unwrap().to_owned();
                wanted.insert((text("file"), text("sha256"), date.to_owned()));
            }
        }
    }
    let pinned: std::collections::BTreeSet<_> = PINNED
        .iter()
        .flat_map(|p| p.packages.iter().map(|d| (p.file.to_owned(), p.sha256.to_owned(), (*d).to_owned())))
        .collect();
    assert_eq!(pinned, wanted);
}

// ---- AMD's own files ----

/// Unpacked packages; says so if there is none.
fn packages() -> Vec<PathBuf> {
    let dirs = firmware_dirs();
    if dirs.is_empty() {
        eprintln!("skipped: no firmware package unpacked (tests/fetch.sh firmware)");
    }
    dirs
}

#[test]
fn real_files_are_sliced_as_the_reference_slices_them() {
    for dir in packages() {
        match judge(&dir) {
            Ok(comparisons) => {
                assert_eq!(comparisons.len(), 5);
                for c in comparisons {
                    assert!(c.differences.is_empty(), "{c}\n{}", c.differences.join("\n"));
                    assert!(c.compared >= 22, "{c}");
                }
            }
            Err(e) => {
                eprintln!("{e}: comparing what does not depend on the version");
                for c in judge_structure(&dir).unwrap() {
                    assert!(c.differences.is_empty(), "{c}\n{}", c.differences.join("\n"));
                }
            }
        }
    }
}

#[test]
fn every_real_file_of_a_known_format_parses() {
    let rules: [(&str, FileKind); 10] = [
        ("_sos", FileKind::Sos),
        ("_asd", FileKind::Toc),
        ("smu_", FileKind::Smu),
        ("sdma", FileKind::Sdma),
        ("_pfp", FileKind::Pfp),
        ("_me.", FileKind::Me),
        ("_mec", FileKind::Mec),
        ("_imu", FileKind::Imu),
        ("_rlc", FileKind::Rlc),
        ("_toc", FileKind::Toc),
    ];
    for dir in packages() {
        let mut seen = 0;
        for entry in fs::read_dir(&dir).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            let Some((_, kind)) = rules.iter().find(|(part, _)| name.contains(part)) else { continue };
            // Before the IP-version names, files had other headers under the same names.
            if *kind == FileKind::Toc && name.contains("_asd") {
                continue;
            }
            let bytes = fs::read(entry.path()).unwrap();
            let file = File::parse(*kind, &bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
            for p in &file.pieces {
                assert!(p.len > 0 && p.offset as usize + p.len as usize <= bytes.len(), "{name} {p:?}");
            }
            seen += 1;
        }
        assert!(seen > 300, "{} has {seen} files", dir.display());
    }
}

#[test]
fn the_header_version_decides_which_images_an_rlc_file_has() {
    use types::*;
    for dir in packages() {
        // Offsets and lengths of one version of each file; later ones may differ.
        let parsed = |name: &str| {
            let bytes = fs::read(dir.join(name)).unwrap();
            let known =
                PINNED.iter().any(|p| p.file == name && p.sha256 == amdev_fw::files::sha256_hex(&bytes));
            (File::parse(FileKind::Rlc, &bytes).unwrap(), known)
        };
        let piece = |f: &File, ty| f.piece(Role::Ip(ty)).map(|Piece { offset, len, .. }| (len, offset));
        let (gfx12, known) = parsed("gc_12_0_1_rlc.bin");
        assert_eq!((gfx12.header_version(), gfx12.header.header_size_bytes.get()), ((2, 2), 172));
        assert_eq!((piece(&gfx12, RLC_P), piece(&gfx12, RLC_V)), (None, None));
        if known {
            assert_eq!(piece(&gfx12, RLC_IRAM), Some((0x10200, 0xc940)));
            assert_eq!(piece(&gfx12, RLC_DRAM_BOOT), Some((0x8200, 0x1cb40)));
        }
        let (gfx11, known) = parsed("gc_11_0_0_rlc.bin");
        assert_eq!((gfx11.header_version(), gfx11.header.header_size_bytes.get()), ((2, 3), 204));
        if known {
            assert_eq!(piece(&gfx11, RLC_P), Some((0x2200, 0x28020)));
            assert_eq!(piece(&gfx11, RLC_V), Some((0x3200, 0x2a220)));
        }
        let (apu, _) = parsed("gc_11_5_0_rlc.bin");
        assert_eq!(apu.header_version(), (2, 3));
        assert!(piece(&apu, RLC_P).is_some());
        assert_eq!(piece(&apu, RLC_V), None, "an image of length 0 is none");
    }
}

#[test]
fn the_ip_version_in_a_header_is_not_trusted() {
    for dir in packages() {
        let bytes = fs::read(dir.join("psp_14_0_0_toc.bin")).unwrap();
        let file = File::parse(FileKind::Toc, &bytes).unwrap();
        assert_eq!(file.header.ip_version_major.get(), 13);
    }
}

#[test]
fn known_packages_are_recognised_by_check() {
    for dir in packages() {
        if judge(&dir).is_err() {
            continue;
        }
        for gpu in GPUS {
            for r in check(Versions::by_name(gpu).unwrap(), &SearchPath::only(&[&dir])) {
                assert!(matches!(r.pin, Pin::Known(_)) && r.file.is_ok(), "{gpu} {r:?}");
            }
        }
    }
}
