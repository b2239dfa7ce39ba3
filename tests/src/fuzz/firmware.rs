//! Firmware files: the first byte chooses the kind, the rest is the file. With bit 7 the length that
//! the header gives is put right, so that what lies behind that check is reached.

use amdev_core::firmware::SosComponent;
use amdev_fw::{EmitError, File, FileKind, HEAD, MAX_PIECES, Repr, Role, types};

pub(super) fn run(data: &[u8]) {
    let Some((kind, file)) = data.split_first() else { return };
    let all = FileKind::ALL;
    let kind_of = all[usize::from(kind & 0x7f) % all.len()];
    let mut bytes = file.to_vec();
    if kind & 0x80 != 0
        && let Some(size) = bytes.get_mut(..4)
    {
        size.copy_from_slice(&(file.len() as u32).to_le_bytes());
    }
    let parsed = File::parse(kind_of, &bytes);
    let in_pieces =
        File::parse_with(kind_of, &bytes[..bytes.len().min(HEAD)], bytes.len() as u64, |offset, buf| {
            let from = offset as usize;
            buf.copy_from_slice(&bytes[from..from + buf.len()]);
            Ok(())
        });
    assert_eq!(parsed, in_pieces);
    let Ok(file) = parsed else {
        let text = parsed.expect_err("is one").to_string();
        assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
        return;
    };
    assert_eq!(file.kind, kind_of);
    assert!(file.pieces.len() <= MAX_PIECES);
    for p in &file.pieces {
        assert!(p.len > 0 && p.offset as usize + p.len as usize <= bytes.len(), "{p:?}");
        assert!(file.piece(p.role).is_some());
    }
    written_again(&bytes, &file);
}

/// What was parsed, as a description.
pub fn describe(bytes: &[u8], file: &File) -> Repr {
    let h = &file.header;
    let part = |offset: u32, len: u32| bytes[offset as usize..][..len as usize].to_vec();
    Repr {
        kind: file.kind,
        header_version: file.header_version(),
        ip_version: (h.ip_version_major.get(), h.ip_version_minor.get()),
        ucode_version: file.ucode_version(),
        parts: file.pieces.iter().map(|p| (p.role, part(p.offset, p.len))).collect(),
        ucode_start: file.ucode_start,
    }
}

fn written_again(bytes: &[u8], file: &File) {
    let repr = describe(bytes, file);
    let aux_first = matches!(repr.parts.first(), Some((Role::Aux(_), _)));
    let again = match repr.emit() {
        Ok(bytes) => bytes,
        // More components than fit before the payload, as this crate lays files out.
        Err(EmitError::TooLarge) => return,
        // An index of 0 says that there are none of an auxiliary kind.
        Err(EmitError::Role(Role::Aux(_))) if aux_first => return,
        Err(e) => panic!("{repr:?}: {e}"),
    };
    let back = File::parse(file.kind, &again).unwrap_or_else(|e| panic!("{repr:?}: {e}"));
    assert_eq!(describe(&again, &back), repr);
}

/// A kind of file, a version of its header, and the images that it can describe.
pub type Format = (FileKind, (u16, u16), Vec<Role>);

/// Every header version that is known.
pub fn formats() -> Vec<Format> {
    use FileKind::*;
    use SosComponent as S;
    let ip = |types: &[_]| types.iter().map(|t| Role::Ip(*t)).collect::<Vec<_>>();
    let sos = |list: &[S]| list.iter().map(|c| Role::Sos(*c)).collect::<Vec<_>>();
    let all: Vec<Role> = sos(&[
        S::Kdb,
        S::SysDrv,
        S::Sos,
        S::SocDrv,
        S::IntfDrv,
        S::DbgDrv,
        S::Toc,
        S::IpKeyMgrDrv,
        S::Spl,
        S::RasDrv,
        S::Rl,
    ]);
    let mut formats = vec![
        (Sos, (1, 0), sos(&[S::SysDrv, S::Sos])),
        (Sos, (1, 1), sos(&[S::SysDrv, S::Sos, S::Toc, S::Kdb])),
        (Sos, (1, 2), sos(&[S::SysDrv, S::Sos, S::Kdb])),
        (
            Sos,
            (1, 3),
            [sos(&[S::SysDrv, S::Sos, S::Toc, S::Kdb, S::Spl, S::Rl]), vec![Role::Aux(2), Role::Aux(1)]]
                .concat(),
        ),
        (Sos, (2, 0), [all.clone(), vec![Role::Unknown(77)]].concat()),
        (Sos, (2, 1), [all, vec![Role::Aux(2), Role::Aux(1), Role::Aux(3)]].concat()),
        (Toc, (1, 0), ip(&[types::TOC])),
        (Smu, (1, 0), ip(&[types::SMU])),
        (Smu, (2, 0), vec![Role::Ip(types::SMU), Role::PpTable(0)]),
        (Smu, (2, 1), vec![Role::Ip(types::SMU), Role::PpTable(3664), Role::PpTable(36641)]),
        (Sdma, (1, 0), ip(&[types::SDMA0])),
        (Sdma, (1, 1), ip(&[types::SDMA0])),
        (Sdma, (2, 0), ip(&[types::SDMA_UCODE_TH1, types::SDMA_UCODE_TH0])),
        (Sdma, (3, 0), ip(&[types::SDMA_UCODE_TH0])),
        (Pfp, (1, 0), ip(&[types::CP_PFP])),
        (Pfp, (2, 0), ip(&[types::RS64_PFP, types::RS64_PFP_P0_STACK])),
        (Me, (1, 0), ip(&[types::CP_ME])),
        (Me, (2, 0), ip(&[types::RS64_ME, types::RS64_ME_P0_STACK])),
        (Mec, (1, 0), ip(&[types::CP_MEC])),
        (Mec, (2, 0), ip(&[types::RS64_MEC, types::RS64_MEC_P0_STACK])),
        (Imu, (1, 0), ip(&[types::IMU_I, types::IMU_D])),
        (Rlc, (1, 0), ip(&[types::RLC_G])),
    ];
    let rlc = [
        vec![],
        ip(&[
            types::RLC_RESTORE_LIST_SRM_CNTL,
            types::RLC_RESTORE_LIST_GPM_MEM,
            types::RLC_RESTORE_LIST_SRM_MEM,
        ]),
        ip(&[types::RLC_IRAM, types::RLC_DRAM_BOOT]),
        ip(&[types::RLC_P, types::RLC_V]),
        ip(&[
            types::GLOBAL_TAP_DELAYS,
            types::SE0_TAP_DELAYS,
            types::SE1_TAP_DELAYS,
            types::SE2_TAP_DELAYS,
            types::SE3_TAP_DELAYS,
        ]),
    ];
    for minor in 0..=4 {
        let roles = [rlc[..=minor].concat(), ip(&[types::RLC_G])].concat();
        formats.push((Rlc, (2, minor as u16), roles));
    }
    formats
}

/// A file of a format with images of these lengths, in turn.
pub fn sample(format: &Format, lens: &[usize]) -> Repr {
    let (kind, header_version, roles) = format;
    let part = |(i, role): (usize, &Role)| (*role, vec![i as u8 + 1; lens[i % lens.len()]]);
    let rs64 = matches!(kind, FileKind::Pfp | FileKind::Me | FileKind::Mec) && header_version.0 == 2;
    Repr {
        kind: *kind,
        header_version: *header_version,
        ip_version: (11, 5),
        ucode_version: 0xabcd,
        parts: roles.iter().enumerate().map(part).collect(),
        ucode_start: rs64.then_some(0x7_0000_0000_3000),
    }
}
