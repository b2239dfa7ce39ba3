//! Which GPUs are taken, by what their discovery tables say, and with which firmware.

use amdev_cli::sim::SimBus;
use amdev_core::device::{OpenError, Probe};
use amdev_fw::{FileKind, Versions};
use amdev_sim::SimGpu;
use amdev_tests::gpus::{GPUS, gpu, process};

/// Gives the first entry of a hardware id in the discovery table of a GPU another version.
fn alter(gpu: &SimGpu, hw_id: u16, version: [u8; 3]) {
    let chip = gpu.config().chip;
    let at = chip.vram_bytes() - (64 << 10);
    let mut table = vec![0; 10 << 10];
    gpu.read(0, at, &mut table).unwrap();
    let name = if hw_id == 11 { "GC" } else { "MP0" };
    let (a, b, c) = chip.ip(name).unwrap().version;
    let [low, high] = hw_id.to_le_bytes();
    let entry = table
        .windows(7)
        .position(|w| w[..3] == [low, high, 0] && w[4..] == [a, b, c])
        .expect("the block is in the table");
    table[entry + 4..entry + 7].copy_from_slice(&version);
    let u16_at = |t: &[u8], i: usize| usize::from(u16::from_le_bytes([t[i], t[i + 1]]));
    let (start, len, size) = (u16_at(&table, 12), u16_at(&table, 16), u16_at(&table, 10));
    let sum = amdev_sim::discovery::checksum(&table[start..start + len]);
    table[14..16].copy_from_slice(&sum.to_le_bytes());
    let sum = amdev_sim::discovery::checksum(&table[10..size]);
    table[8..10].copy_from_slice(&sum.to_le_bytes());
    gpu.write(0, at, &table).unwrap();
}

#[test]
fn every_gpu_boots_copies_and_shuts_down_with_synthetic_firmware() {
    for name in GPUS {
        let gpu = gpu(name).unwrap();
        process(SimBus::new(gpu.clone())).unwrap_or_else(|e| panic!("{name}: {e:#}"));
        assert_eq!(gpu.violations(), [], "{name}");
    }
}

#[test]
fn an_unsupported_gpu_is_named_with_its_ip_versions() {
    let gpu = gpu("navi31").unwrap();
    alter(&gpu, 11, [11, 0, 1]);
    let error = Probe::open(SimBus::new(gpu)).err().unwrap();
    assert!(matches!(error, OpenError::UnknownChip { gc: (11, 0, 1), .. }));
    assert_eq!(
        error.to_string(),
        "GPUs with GC 11.0.1 are not supported; supported are GC 11.0.0, 11.0.2, 11.0.3, 12.0.0 and 12.0.1; \
         the device has GC 11.0.1, MP0 13.0.0, MP1 13.0.0, NBIO 4.3.0, MMHUB 3.0.0, OSSSYS 6.0.0, HDP 6.0.0"
    );
}

#[test]
fn a_block_without_register_tables_is_named() {
    let gpu = gpu("navi31").unwrap();
    alter(&gpu, 255, [9, 9, 9]);
    let error = Probe::open(SimBus::new(gpu)).err().unwrap().to_string();
    assert!(error.contains("MP0 9.9.9") && error.contains("GC 11.0.0"), "{error}");
}

#[test]
fn kicker_boards_get_the_kicker_images_of_sos_smu_imu_and_rlc_only() {
    // C11
    let navi48 = Probe::open(SimBus::new(gpu("navi48").unwrap())).unwrap().ips;
    let navi31 = Probe::open(SimBus::new(gpu("navi31").unwrap())).unwrap().ips;
    for (ips, device, revision, kicker) in
        [(&navi48, 0x7551, 0xc8, true), (&navi48, 0x7551, 0xc0, false), (&navi31, 0x744b, 0, true)]
    {
        let versions = Versions::of(ips, device, revision).unwrap();
        for kind in versions.files() {
            let name = versions.file_name(kind);
            let has = matches!(kind, FileKind::Sos | FileKind::Smu | FileKind::Imu | FileKind::Rlc);
            assert_eq!(name.ends_with("_kicker.bin"), kicker && has, "{device:#x} rev {revision:#x}: {name}");
        }
    }
}
