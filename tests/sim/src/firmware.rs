//! What the PSP can tell about a firmware image without its keys: the signed header that every
//! image of these GPUs starts with.
//!
//! The header (256 bytes) was read off the images of Debian's `firmware-amd-graphics`: `$PS1` at
//! 0x10 (zeros in the key databases of MP0 13.0.0 and 13.0.7), signed payload length at 0x14, image
//! type at 0x58, version at 0x60, whole length at 0x6c where it is not 0. Header, payload and a
//! signature of 256 bytes make the image, so that a LOAD_IP_FW command's size and type are known
//! from the image itself; data images of RS64 processors are padded behind that. Synthetic images
//! (see [`synthetic`]) carry the same header and no secrets; an image type of 0 fits everywhere.

/// Header and signature around the signed payload.
pub const OVERHEAD: usize = 0x200;
const MAGIC: &[u8; 4] = b"$PS1";
const TYPE_KDB: u8 = 0x4f;

/// What an image's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Length of the signed payload in bytes.
    pub signed: u32,
    /// Firmware version.
    pub version: u32,
    /// Length of the whole image, or 0.
    pub whole: u32,
    /// Image type; 0 in synthetic images that fit everywhere.
    pub kind: u8,
}

fn word(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?))
}

impl Header {
    /// Reads the header of an image; `None` if it does not start with one.
    pub fn parse(image: &[u8]) -> Option<Header> {
        let header = Header {
            signed: word(image, 0x14)?,
            version: word(image, 0x60)?,
            whole: word(image, 0x6c)?,
            kind: *image.get(0x58)?,
        };
        let magic = image.get(0x10..0x14)?;
        let bare_kdb = magic == [0; 4] && header.kind == TYPE_KDB && u64::from(header.whole) == header.len();
        (magic == MAGIC || bare_kdb).then_some(header)
    }

    /// Length of the image as the header gives it.
    pub fn len(&self) -> u64 {
        u64::from(self.signed) + OVERHEAD as u64
    }

    /// True for an image without payload.
    pub fn is_empty(&self) -> bool {
        self.signed == 0
    }
}

/// The image types that a `psp_gfx_fw_type` may have; none known: any.
pub fn types_of_firmware(kind: u32) -> &'static [u8] {
    match kind {
        7 => &[0x0a],        // RLC_V
        8 => &[0x09],        // RLC_G
        18 => &[0x01],       // SMU
        25 => &[0x0f],       // RLC_P
        26 => &[0x16],       // RLC_IRAM
        48 => &[0x17],       // RLC_DRAM_BOOT
        68 => &[0x3b],       // IMU_I
        69 => &[0x3c],       // IMU_D
        71 => &[0x3e, 0x25], // SDMA_UCODE_TH0 on gfx11, on gfx12
        72 => &[0x3f],       // SDMA_UCODE_TH1
        87 => &[0x44],       // RS64_PFP
        88 => &[0x46],       // RS64_ME
        89 => &[0x48],       // RS64_MEC
        90 | 91 => &[0x45],  // RS64_PFP stacks
        92 | 93 => &[0x47],  // RS64_ME stacks
        94..=97 => &[0x49],  // RS64_MEC stacks
        _ => &[],
    }
}

/// The image types that a bootloader component may have; none known: any.
pub fn types_of_component(component: u32) -> &'static [u8] {
    match component {
        0x8_0000 => &[TYPE_KDB],
        // SPL table; on MP0 13.x Linux sends the key database here (psp_v13_0_bootloader_load_spl).
        0x1000_0000 => &[0x56, TYPE_KDB],
        0x1_0000 => &[0x0a], // SYS_DRV
        0x2_0000 => &[0x09], // SOS
        0xB_0000 => &[0x4a], // SOC_DRV
        0xC_0000 => &[0x4b], // DBG_DRV
        0xD_0000 => &[0x4c], // INTF_DRV
        0xE_0000 => &[0x52], // RAS_DRV
        0xF_0000 => &[0xe1], // IPKEYMGR_DRV
        _ => &[],
    }
}

/// True if data behind the image may pad it to the command's size.
pub fn may_be_padded(kind: u32) -> bool {
    (90..=97).contains(&kind)
}

/// An image of `len` bytes with a right header of the given image type and contents that `seed`
/// tells apart, for tests without real firmware. Shorter ones than header and signature are only
/// contents.
pub fn synthetic(image_type: u8, seed: u32, len: usize) -> Vec<u8> {
    let mut image: Vec<u8> = (0..len as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(40_503)) >> 24) as u8)
        .collect();
    if len >= OVERHEAD {
        image[..0x100].fill(0);
        image[..16].copy_from_slice(b"amdev synthetic\0");
        image[0x10..0x14].copy_from_slice(MAGIC);
        image[0x14..0x18].copy_from_slice(&((len - OVERHEAD) as u32).to_le_bytes());
        image[0x58] = image_type;
        image[0x60..0x64].copy_from_slice(&1u32.to_le_bytes());
        image[0x6c..0x70].copy_from_slice(&(len as u32).to_le_bytes());
    }
    image
}

/// FNV-1a, to tell whether two images are the same.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_synthetic_image_knows_its_length_and_type() {
        let h = Header::parse(&synthetic(0x48, 89, 0x4000)).unwrap();
        assert_eq!((h.len(), h.whole, h.signed, h.kind), (0x4000, 0x4000, 0x3e00, 0x48));
        assert_eq!(Header::parse(&[0; 0x200]), None);
        assert_ne!(hash(&synthetic(0, 1, 0x400)), hash(&synthetic(0, 2, 0x400)));
    }

    #[test]
    fn a_key_database_without_magic_is_an_image() {
        let mut image = synthetic(TYPE_KDB, 0, 0x1700);
        image[..0x14].fill(0);
        assert_eq!(Header::parse(&image).unwrap().len(), 0x1700);
        image[0x58] = 0x48;
        assert_eq!(Header::parse(&image), None);
    }
}
