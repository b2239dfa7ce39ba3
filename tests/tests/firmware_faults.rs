//! Damaged firmware files: truncated, overlong, lying about sizes, of unknown versions, random.
//! Also: what is written is read back the same, for every header version.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use amdev_core::firmware::SosComponent;
use amdev_fw::{
    File, FileKind, FirmwareSet, FwError, Memory, OpenError, Problem, Repr, Role, Versions, synthetic, types,
};
use amdev_tests::fuzz::{describe, formats, sample};
use amdev_tests::golden_fw::firmware_dirs;
use proptest::prelude::*;

const GPUS: [&str; 5] = ["navi31", "navi32", "navi33", "navi44", "navi48"];

/// Notes the largest single allocation.
struct Largest;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every request goes to the system allocator unchanged.
unsafe impl GlobalAlloc for Largest {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Largest = Largest;

/// Damaged packed files tried of each kind.
const ROUNDS: usize = 500;

/// No firmware file is larger than 16 MiB; growing a buffer may ask for twice as much.
const ALLOCATION_LIMIT: usize = 48 << 20;

fn versions(gpu: &str) -> Versions {
    Versions::by_name(gpu).unwrap()
}

fn bytes(gpu: &str, kind: FileKind) -> Vec<u8> {
    synthetic::file(versions(gpu), kind).emit().unwrap()
}

/// Opens a GPU's set with one file changed.
fn open_with(gpu: &str, kind: FileKind, change: impl Fn(&mut Vec<u8>)) -> Result<(), FwError> {
    let set = FirmwareSet::open(versions(gpu), |k, _| {
        let mut file = bytes(gpu, k);
        if k == kind {
            change(&mut file);
        }
        Ok::<_, ()>(Memory::new(file))
    });
    match set {
        Ok(_) => Ok(()),
        Err(OpenError::File(e)) => Err(e),
        Err(OpenError::Open(())) => unreachable!(),
    }
}

#[track_caller]
fn rejects(gpu: &str, kind: FileKind, change: impl Fn(&mut Vec<u8>), words: &[&str]) {
    let error = open_with(gpu, kind, change).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.file, versions(gpu).file_name(kind));
    for word in words.iter().chain(&[error.file.as_str()]) {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
    assert!(!text.contains('\n'));
}

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

// Offsets in the common header.
const MAJOR: usize = 8;
const UCODE_SIZE: usize = 20;
const UCODE_OFFSET: usize = 24;

#[test]
fn a_truncated_and_an_overlong_file_are_refused_by_name_and_field() {
    for gpu in GPUS {
        for kind in versions(gpu).files() {
            open_with(gpu, kind, |_| {}).unwrap();
            rejects(gpu, kind, |b| b.truncate(b.len() - 1), &["size_bytes"]);
            rejects(gpu, kind, |b| b.push(0), &["size_bytes"]);
            rejects(gpu, kind, |b| b.truncate(20), &["common_firmware_header", "32", "20"]);
            rejects(gpu, kind, |b| b.clear(), &["common_firmware_header", "0"]);
        }
    }
}

#[test]
fn sizes_and_offsets_that_leave_the_file_are_refused_with_the_field() {
    for kind in versions("navi48").files() {
        rejects("navi48", kind, |b| put32(b, UCODE_SIZE, u32::MAX), &["ucode_size_bytes", "0xffffffff"]);
        rejects("navi48", kind, |b| put32(b, UCODE_OFFSET, u32::MAX), &["ucode_array_offset_bytes"]);
        rejects("navi48", kind, |b| put32(b, 4, 31), &["header_size_bytes", "0x1f"]);
        rejects("navi48", kind, |b| put32(b, 4, u32::MAX), &["header_size_bytes", "0xffffffff"]);
    }
    let huge = |at: usize| move |b: &mut Vec<u8>| put32(b, at, u32::MAX);
    // Offsets of `gfx_firmware_header_v2_0`, `sdma_firmware_header_v2_0`, ...
    rejects("navi31", FileKind::Mec, huge(36), &["ucode_size_bytes"]);
    rejects("navi31", FileKind::Mec, huge(44), &["data_size_bytes"]);
    rejects("navi31", FileKind::Mec, huge(48), &["data_offset_bytes"]);
    rejects("navi31", FileKind::Sdma, huge(36), &["ctx_ucode_size_bytes"]);
    rejects("navi31", FileKind::Sdma, huge(48), &["ctl_ucode_offset"]);
    rejects("navi48", FileKind::Sdma, huge(36), &["ucode_offset_bytes"]);
    rejects("navi48", FileKind::Sdma, huge(40), &["ucode_size_bytes"]);
    rejects("navi48", FileKind::Imu, huge(32), &["imu_iram_ucode_size_bytes"]);
    rejects("navi48", FileKind::Imu, huge(40), &["imu_dram_ucode_size_bytes"]);
    rejects("navi31", FileKind::Sos, huge(32), &["psp_fw_bin_count", "4294967295", "26"]);
    rejects("navi31", FileKind::Sos, huge(44), &["psp_fw_bin"]);
    rejects("navi31", FileKind::Smu, huge(36), &["pptable_count"]);
    rejects("navi31", FileKind::Smu, huge(40), &["pptable_entry_offset"]);
    rejects("navi48", FileKind::Smu, huge(36), &["ppt_offset_bytes"]);
    rejects("navi48", FileKind::Rlc, huge(156), &["rlc_iram_ucode_offset_bytes/size_bytes"]);
    rejects("navi31", FileKind::Rlc, huge(184), &["rlcp_ucode_offset_bytes"]);
}

#[test]
fn unknown_header_versions_are_refused_with_what_is_known() {
    for kind in versions("navi48").files() {
        rejects("navi48", kind, |b| put32(b, MAJOR, 9), &["header_version", "9.0", kind.name()]);
        rejects("navi48", kind, |b| put32(b, MAJOR, 0x0007_0002), &["header_version", "2.7"]);
    }
    rejects("navi48", FileKind::Sdma, |b| b[MAJOR] = 4, &["4.0", "1.0, 1.1, 2.0 and 3.0"]);
}

#[test]
fn a_known_format_without_the_images_a_device_needs_is_refused() {
    // A file of the time before RS64 engines.
    let old = Repr {
        kind: FileKind::Mec,
        header_version: (1, 0),
        ip_version: (10, 3),
        ucode_version: 1,
        parts: vec![(Role::Ip(types::CP_MEC), vec![1; 64])],
        ucode_start: None,
    };
    let old = old.emit().unwrap();
    rejects("navi31", FileKind::Mec, |b| *b = old.clone(), &["RS64_MEC"]);
    // A SOS container whose only secure OS is for an auxiliary device.
    let sos = Repr {
        kind: FileKind::Sos,
        header_version: (2, 1),
        ip_version: (13, 0),
        ucode_version: 1,
        parts: vec![(Role::Sos(SosComponent::SysDrv), vec![1; 64]), (Role::Aux(1), vec![2; 64])],
        ucode_start: None,
    };
    let sos = sos.emit().unwrap();
    rejects("navi31", FileKind::Sos, |b| *b = sos.clone(), &["PSP_SOS"]);
}

#[test]
fn real_files_one_byte_short_or_long_are_refused() {
    let dirs = firmware_dirs();
    if dirs.is_empty() {
        eprintln!("skipped: no firmware package unpacked (tests/fetch.sh firmware)");
    }
    for dir in dirs {
        let mec = fs::read(dir.join("gc_11_0_0_mec.bin")).unwrap();
        assert!(File::parse(FileKind::Mec, &mec).is_ok());
        let short = File::parse(FileKind::Mec, &mec[..mec.len() - 1]);
        assert!(matches!(short, Err(Problem::Size { size_bytes, have }) if size_bytes as u64 == have + 1));
        let long = File::parse(FileKind::Mec, &[&mec[..], &[0]].concat());
        assert!(matches!(long, Err(Problem::Size { size_bytes, have }) if size_bytes as u64 + 1 == have));
        let mut sdma = fs::read(dir.join("sdma_7_0_1.bin")).unwrap();
        sdma[MAJOR] = 4;
        assert!(matches!(File::parse(FileKind::Sdma, &sdma), Err(Problem::Version { major: 4, .. })));
    }
}

#[test]
fn every_header_version_survives_a_round_trip() {
    for format in formats() {
        let repr = sample(&format, &[96, 32, 160]);
        let bytes = repr.emit().unwrap_or_else(|e| panic!("{:?} {:?}: {e}", format.0, format.1));
        let file =
            File::parse(format.0, &bytes).unwrap_or_else(|e| panic!("{:?} {:?}: {e}", format.0, format.1));
        assert_eq!(describe(&bytes, &file), repr);
    }
}

#[test]
fn an_image_that_a_header_cannot_describe_is_not_written() {
    let mut repr = sample(&(FileKind::Imu, (1, 0), vec![Role::Ip(types::IMU_I)]), &[4]);
    repr.parts.push((Role::Ip(types::RLC_G), vec![1]));
    assert!(repr.emit().unwrap_err().to_string().contains("FwType(8)"));
}

#[test]
fn damaged_packed_files_are_errors_without_large_allocations() {
    let dir = tempfile::tempdir().unwrap();
    let plain = bytes("navi48", FileKind::Sos);
    let mut xz = Vec::new();
    lzma_rs::xz_compress(&mut &plain[..], &mut xz).unwrap();
    let zst = ruzstd::encoding::compress_to_vec(&plain[..], ruzstd::encoding::CompressionLevel::Fastest);
    let unpack = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        amdev_fw::files::unpack(&path)
    };
    let mut seed = 7u32;
    let mut random = move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as usize
    };
    LARGEST.store(0, Ordering::Relaxed);
    let mut files = vec![("f.bin.xz", xz), ("f.bin.zst", zst)];
    // The programs compress harder than the libraries.
    for (program, name) in [("xz", "f.bin.xz"), ("zstd", "f.bin.zst")] {
        let input = dir.path().join("plain");
        fs::write(&input, &plain).unwrap();
        match std::process::Command::new(program).arg("-kc").arg(&input).output() {
            Ok(output) if output.status.success() => files.push((name, output.stdout)),
            _ => eprintln!("skipped: {program} is not installed"),
        }
    }
    for (name, packed) in files {
        assert!(unpack(name, &packed).unwrap() == plain);
        for cut in [0, 1, 7, 12, 13, packed.len() / 2, packed.len() - 1] {
            let _ = unpack(name, &packed[..cut]);
        }
        for cut in [0, 5, packed.len() / 2] {
            let error = unpack(name, &packed[..cut]).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        for round in 0..ROUNDS {
            let mut broken = packed.clone();
            for _ in 0..1 + round % 4 {
                // Half of the changes fall on headers.
                let at = if random() % 2 == 0 { random() % 40 } else { random() % packed.len() };
                broken[at] = random() as u8;
            }
            let _ = unpack(name, &broken);
        }
    }
    let largest = LARGEST.load(Ordering::Relaxed);
    assert!(largest <= ALLOCATION_LIMIT, "{largest} bytes at once");
}

fn kinds() -> impl Strategy<Value = FileKind> {
    (0..FileKind::ALL.len()).prop_map(|i| FileKind::ALL[i])
}

proptest! {
    #[test]
    fn random_bytes_never_panic(kind in kinds(), bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(File::parse(kind, &bytes).is_err());
    }

    #[test]
    fn changed_headers_never_panic_and_images_stay_inside(
        format in 0usize..27,
        lens in proptest::collection::vec(0usize..300, 1..4),
        changes in proptest::collection::vec((8usize..300, any::<u8>()), 0..6),
        words in proptest::collection::vec((2usize..75, prop_oneof![Just(u32::MAX), Just(0), any::<u32>(), 0u32..5000]), 0..4),
        other in kinds(),
    ) {
        let formats = formats();
        let format = &formats[format % formats.len()];
        let mut bytes = sample(format, &lens).emit().unwrap();
        for (at, value) in changes {
            if let Some(b) = bytes.get_mut(at) {
                *b = value;
            }
        }
        for (at, value) in words {
            if at * 4 + 4 <= bytes.len() {
                put32(&mut bytes, at * 4, value);
            }
        }
        for kind in [format.0, other] {
            if let Ok(file) = File::parse(kind, &bytes) {
                for p in &file.pieces {
                    prop_assert!(p.len > 0 && p.offset as usize + p.len as usize <= bytes.len());
                }
            }
        }
        prop_assert!(LARGEST.load(Ordering::Relaxed) <= ALLOCATION_LIMIT);
    }

    #[test]
    fn formats_of_any_lengths_survive_a_round_trip(
        format in 0usize..27,
        lens in proptest::collection::vec(1usize..5000, 1..5),
    ) {
        let formats = formats();
        let repr = sample(&formats[format % formats.len()], &lens);
        let bytes = repr.emit().unwrap();
        let file = File::parse(repr.kind, &bytes).unwrap();
        prop_assert_eq!(describe(&bytes, &file), repr);
    }
}
