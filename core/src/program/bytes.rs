//! Structures of the `object` crate inside a file, bounds-checked.
//!
//! The crate's own reader needs `alloc`; its structures and their casts do not.

use object::pod::{Pod, from_bytes, slice_from_bytes};

/// Parts of a file. An error says only that the part does not lie in the file.
pub(super) trait Bytes<'a> {
    /// `size` bytes from `offset` on.
    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()>;

    /// A structure.
    fn read_at<T: Pod>(self, offset: u64) -> Result<&'a T, ()>;

    /// `count` structures in a row.
    fn read_slice_at<T: Pod>(self, offset: u64, count: usize) -> Result<&'a [T], ()>;
}

impl<'a> Bytes<'a> for &'a [u8] {
    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        let start = usize::try_from(offset).map_err(drop)?;
        let end = usize::try_from(size).ok().and_then(|size| start.checked_add(size)).ok_or(())?;
        self.get(start..end).ok_or(())
    }

    fn read_at<T: Pod>(self, offset: u64) -> Result<&'a T, ()> {
        let start = usize::try_from(offset).map_err(drop)?;
        Ok(from_bytes(self.get(start..).ok_or(())?)?.0)
    }

    fn read_slice_at<T: Pod>(self, offset: u64, count: usize) -> Result<&'a [T], ()> {
        let start = usize::try_from(offset).map_err(drop)?;
        Ok(slice_from_bytes(self.get(start..).ok_or(())?, count)?.0)
    }
}
