//! What the boot needs to know of firmware: kinds of images, their order, and where bytes come
//! from.
//!
//! The images themselves are found, checked and sliced outside (crate `amdev-fw` for files in
//! Linux's format). The core asks a [`FirmwareSource`] for the images of a device and copies them
//! piece by piece into the PSP's message buffer, so that no image needs to be in memory whole.

use core::fmt;

/// A component of the PSP's SOS container that the bootloader loads, or its TOC.
/// Values: `enum psp_fw_type` of `amdgpu_ucode.h`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u32)]
#[non_exhaustive]
pub enum SosComponent {
    /// Secure OS.
    Sos = 1,
    /// System driver.
    SysDrv = 2,
    /// Key database.
    Kdb = 3,
    /// Table of contents, input of `LOAD_TOC`.
    Toc = 4,
    /// Security policy level table.
    Spl = 5,
    /// RL, unused here.
    Rl = 6,
    /// SOC driver.
    SocDrv = 7,
    /// Interface driver.
    IntfDrv = 8,
    /// Debug driver.
    DbgDrv = 9,
    /// RAS driver.
    RasDrv = 10,
    /// IP key manager driver (MP0 14.x).
    IpKeyMgrDrv = 11,
}

/// A firmware type of `LOAD_IP_FW`. Values: `enum psp_gfx_fw_type` of `psp_gfx_if.h`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FwType(pub u32);

impl fmt::Debug for FwType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FwType({})", self.0)
    }
}

/// Which image: a component of the SOS container, or the n-th image in `LOAD_IP_FW` order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ImageId {
    /// A component of the SOS container.
    Sos(SosComponent),
    /// The SMU's image, which is loaded before the TMR is set up.
    Smu,
    /// An image of the ordered list (SDMA, PFP, ME, MEC, IMU, RLC...), by its index.
    Ip(u8),
}

/// One image as the PSP takes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Image<'a> {
    /// How to ask for its bytes.
    pub id: ImageId,
    /// Length in bytes.
    pub len: u32,
    /// The types to load it as, in order; a data image of a MEC is loaded once for each pipe.
    /// Empty for components of the SOS container.
    pub types: &'a [FwType],
}

/// Start address of an RS64 engine's program, in bytes, from its image's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UcodeStart {
    /// Prefetch parser (gfx12).
    pub pfp: Option<u64>,
    /// Micro engine (gfx12).
    pub me: Option<u64>,
    /// Compute micro engine.
    pub mec: Option<u64>,
}

/// Why firmware could not be had. The source's own error tells file and field.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("firmware image {id:?} cannot be read at offset {offset:#x}: {reason}")]
pub struct FirmwareError {
    /// The image asked for.
    pub id: ImageId,
    /// Offset of the first byte that could not be read.
    pub offset: u32,
    /// What went wrong, in a few words.
    pub reason: &'static str,
}

/// Where a device's firmware comes from.
pub trait FirmwareSource {
    /// A component of the SOS container, if the container has it.
    fn sos(&self, component: SosComponent) -> Option<Image<'_>>;

    /// The SMU's image.
    fn smu(&self) -> Option<Image<'_>>;

    /// The `index`-th image of the `LOAD_IP_FW` list, in the order to load; `None` past its end.
    fn ip_image(&self, index: u8) -> Option<Image<'_>>;

    /// Start addresses of the RS64 engines.
    fn ucode_start(&self) -> UcodeStart;

    /// Fills `buf` from byte `offset` of an image on.
    fn read(&mut self, id: ImageId, offset: u32, buf: &mut [u8]) -> Result<(), FirmwareError>;
}
