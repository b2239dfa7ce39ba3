//! Small files with valid headers for every image a device needs, for demonstrations and tests
//! without AMD's firmware. Their contents say that they are no firmware: a real GPU refuses them
//! (they are not signed), a simulated one only looks at headers and lengths.

use amdev_core::firmware::SosComponent;

use crate::emit::Repr;
use crate::files::Source;
use crate::parse::{FileKind, Role};
use crate::types;
use crate::{FirmwareSet, FwError, OpenError, Versions};

/// How the payload of every synthetic image begins.
pub const MARK: &[u8] = b"amdev synthetic image, not AMD firmware: ";

/// `ucode_version` of synthetic files: "SYNT".
pub const VERSION: u32 = 0x5359_4e54;

/// Start address that the RS64 images of linux-firmware have.
const UCODE_START: u64 = 0x7_0000_0000_3000;

/// A file of a device.
pub fn file(versions: Versions, kind: FileKind) -> Repr {
    use FileKind::*;
    let gfx12 = versions.gc >= (12, 0, 0);
    let (header_version, ip, roles): (_, _, Vec<Role>) = match kind {
        Sos => ((2, 0), versions.mp0, sos_components(versions).into_iter().map(Role::Sos).collect()),
        Toc => ((1, 0), versions.mp0, ip_roles(&[types::TOC])),
        Smu if gfx12 => ((2, 0), versions.mp1, vec![Role::Ip(types::SMU), Role::PpTable(0)]),
        Smu => ((2, 1), versions.mp1, vec![Role::Ip(types::SMU), Role::PpTable(3664)]),
        Sdma if versions.sdma.0 >= 7 => ((3, 0), versions.sdma, ip_roles(&[types::SDMA_UCODE_TH0])),
        Sdma => ((2, 0), versions.sdma, ip_roles(&[types::SDMA_UCODE_TH0, types::SDMA_UCODE_TH1])),
        Pfp => ((2, 0), versions.gc, ip_roles(&[types::RS64_PFP, types::RS64_PFP_P0_STACK])),
        Me => ((2, 0), versions.gc, ip_roles(&[types::RS64_ME, types::RS64_ME_P0_STACK])),
        Mec => ((2, 0), versions.gc, ip_roles(&[types::RS64_MEC, types::RS64_MEC_P0_STACK])),
        Imu => ((1, 0), versions.gc, ip_roles(&[types::IMU_I, types::IMU_D])),
        Rlc => {
            let mut roles = ip_roles(&[types::RLC_G, types::RLC_IRAM, types::RLC_DRAM_BOOT]);
            if !gfx12 {
                roles.extend(ip_roles(&[types::RLC_P, types::RLC_V]));
            }
            ((2, if gfx12 { 2 } else { 3 }), versions.gc, roles)
        }
    };
    let name = versions.file_name(kind);
    let parts =
        roles.iter().enumerate().map(|(i, role)| (*role, contents(versions, &name, *role, i))).collect();
    Repr {
        kind,
        header_version,
        ip_version: (ip.0 as u16, ip.1 as u16),
        ucode_version: VERSION,
        parts,
        ucode_start: matches!(kind, Pfp | Me | Mec).then_some(UCODE_START),
    }
}

fn ip_roles(types: &[amdev_core::firmware::FwType]) -> Vec<Role> {
    types.iter().map(|ty| Role::Ip(*ty)).collect()
}

/// The components that the real containers have.
fn sos_components(versions: Versions) -> Vec<SosComponent> {
    use SosComponent::*;
    match versions.mp0 {
        (13, _, 0) => vec![SysDrv, Sos, Toc, Kdb, Spl, Rl],
        (13, _, 7) => vec![SysDrv, Sos, Toc, Kdb, Spl],
        (13, ..) => vec![Kdb, SysDrv, Sos, SocDrv, IntfDrv, DbgDrv, Toc, RasDrv, Rl],
        (_, _, 2) => vec![Kdb, SysDrv, Sos, SocDrv, IntfDrv, DbgDrv, Toc, IpKeyMgrDrv, Spl],
        _ => vec![Kdb, SysDrv, Sos, SocDrv, IntfDrv, DbgDrv, Toc, IpKeyMgrDrv, Spl, RasDrv, Rl],
    }
}

/// Length of the header that every image for the PSP starts with, and of the signature behind it.
const PSP_HEADER: usize = 0x100;

/// Type of a signed image, at byte 0x58 of its header. AMD does not document it; these values stand
/// in the images of linux-firmware for MP0 13 and 14. Sub-types of a role share one.
fn psp_image_type(role: Role) -> u8 {
    use SosComponent::*;
    match role {
        Role::Sos(Sos) => 0x09,
        Role::Sos(SysDrv) => 0x0a,
        Role::Sos(Toc) => 0x0e,
        Role::Sos(Rl) => 0x35,
        Role::Sos(SocDrv) => 0x4a,
        Role::Sos(DbgDrv) => 0x4b,
        Role::Sos(IntfDrv) => 0x4c,
        Role::Sos(Kdb) => 0x4f,
        Role::Sos(RasDrv) => 0x52,
        Role::Sos(Spl) => 0x56,
        Role::Sos(IpKeyMgrDrv) => 0xe1,
        Role::Ip(types::SMU) => 0x01,
        Role::Ip(types::RLC_G) => 0x09,
        Role::Ip(types::RLC_V) => 0x0a,
        Role::Ip(types::RLC_P) => 0x0f,
        Role::Ip(types::RLC_IRAM) => 0x16,
        Role::Ip(types::RLC_DRAM_BOOT) => 0x17,
        Role::Ip(types::SDMA_UCODE_TH0) => 0x3e,
        Role::Ip(types::SDMA_UCODE_TH1) => 0x3f,
        Role::Ip(types::IMU_I) => 0x3b,
        Role::Ip(types::IMU_D) => 0x3c,
        Role::Ip(types::RS64_PFP) => 0x44,
        Role::Ip(types::RS64_PFP_P0_STACK) => 0x45,
        Role::Ip(types::RS64_ME) => 0x46,
        Role::Ip(types::RS64_ME_P0_STACK) => 0x47,
        Role::Ip(types::RS64_MEC) => 0x48,
        Role::Ip(types::RS64_MEC_P0_STACK) => 0x49,
        _ => 0,
    }
}

/// An image as the PSP sees it: header (`$PS1` at 0x10, length of the payload at 0x14, type at 0x58,
/// length of everything at 0x6c), payload, and a "signature" of zeros that no real PSP accepts. The
/// payload is the mark, file and role, then bytes that differ from image to image. Lengths differ
/// too, so that images mixed up are noticed.
fn contents(versions: Versions, name: &str, role: Role, index: usize) -> Vec<u8> {
    let mut payload = MARK.to_vec();
    payload.extend_from_slice(format!("{name} {role:?}\n").as_bytes());
    let seed = payload.iter().fold(0u32, |s, b| s.wrapping_mul(31).wrapping_add(*b as u32));
    let len = 512 + 32 * (seed as usize % 29) + 1024 * (index % 3);
    let mut state = seed;
    while payload.len() < len {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        payload.push((state >> 24) as u8);
    }
    payload.truncate(len);

    let whole = len + 2 * PSP_HEADER;
    let mut image = vec![0; PSP_HEADER];
    image[0x10..0x14].copy_from_slice(b"$PS1");
    image[0x14..0x18].copy_from_slice(&(len as u32).to_le_bytes());
    // SDMA 7 has one image for both threads, with a type of its own.
    let sdma7 = versions.sdma.0 >= 7 && role == Role::Ip(types::SDMA_UCODE_TH0);
    image[0x58] = if sdma7 { 0x25 } else { psp_image_type(role) };
    image[0x60..0x64].copy_from_slice(&VERSION.to_le_bytes());
    image[0x6c..0x70].copy_from_slice(&(whole as u32).to_le_bytes());
    image.extend_from_slice(&payload);
    image.resize(whole, 0);
    image
}

/// All firmware of a device, in memory.
pub fn set(versions: Versions) -> Result<FirmwareSet<Source>, FwError> {
    let opened = FirmwareSet::open(versions, |kind, name| {
        // These descriptions are all possible: see the tests.
        file(versions, kind).emit().map(|bytes| Source::from_bytes(format!("synthetic/{name}"), bytes))
    });
    opened.map_err(|e| match e {
        OpenError::File(e) => e,
        OpenError::Open(_) => {
            FwError { file: versions.file_name(FileKind::Sos), problem: crate::Problem::Missing("synthetic") }
        }
    })
}

/// Whether a set is synthetic: no real GPU takes it.
pub fn is_synthetic(set: &FirmwareSet<Source>) -> bool {
    set.files().iter().any(|f| f.file.ucode_version() == VERSION)
}
