//! What the PSP can tell about a firmware image without its keys: the signed header that every
//! image of these GPUs starts with.
//!
//! The header (256 bytes) was read off the images of Debian's `firmware-amd-graphics`: `$PS1` at
//! 0x10, signed payload length at 0x14, image type at 0x5c's neighbours, version at 0x60, whole
//! length at 0x6c where it is not 0. Header, payload and a signature of 256 bytes make the image,
//! so that a LOAD_IP_FW command's size is known from the image itself. Synthetic images (see
//! [`synthetic`]) carry the same header and no secrets.

/// Header and signature around the signed payload.
pub const OVERHEAD: usize = 0x200;
const MAGIC: &[u8; 4] = b"$PS1";

/// What an image's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Length of the signed payload in bytes.
    pub signed: u32,
    /// Firmware version.
    pub version: u32,
    /// Length of the whole image, or 0.
    pub whole: u32,
}

fn word(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?))
}

impl Header {
    /// Reads the header of an image; `None` if it does not start with one.
    pub fn parse(image: &[u8]) -> Option<Header> {
        (image.get(0x10..0x14)? == MAGIC).then_some(())?;
        Some(Header { signed: word(image, 0x14)?, version: word(image, 0x60)?, whole: word(image, 0x6c)? })
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

/// An image of `len` bytes with a right header and recognizable contents, for tests without real
/// firmware. Shorter ones than header and signature are only contents.
pub fn synthetic(kind: u32, len: usize) -> Vec<u8> {
    let mut image: Vec<u8> = (0..len as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(kind.wrapping_mul(40_503)) >> 24) as u8)
        .collect();
    if len >= OVERHEAD {
        image[..0x100].fill(0);
        image[..16].copy_from_slice(b"amdev synthetic\0");
        image[0x10..0x14].copy_from_slice(MAGIC);
        image[0x14..0x18].copy_from_slice(&((len - OVERHEAD) as u32).to_le_bytes());
        image[0x5c..0x60].copy_from_slice(&kind.to_le_bytes());
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
    fn a_synthetic_image_knows_its_length() {
        let h = Header::parse(&synthetic(89, 0x4000)).unwrap();
        assert_eq!((h.len(), h.whole, h.signed), (0x4000, 0x4000, 0x3e00));
        assert_eq!(Header::parse(&[0; 0x200]), None);
        assert_ne!(hash(&synthetic(1, 0x400)), hash(&synthetic(2, 0x400)));
    }
}
