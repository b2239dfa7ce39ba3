//! Physical addresses of this process's memory, for machines without an IOMMU.

use super::sysfs::Sysfs;
use crate::shared::Mapping;
use amdev_core::bus::Segment;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Size of a page.
const PAGE: u64 = 4096;
/// Entries of `/proc/PID/pagemap` (`Documentation/admin-guide/mm/pagemap.rst`): the page's frame in
/// bits 0 to 54, and whether it is in memory.
const FRAME: u64 = (1 << 55) - 1;
const PRESENT: u64 = 1 << 63;

/// Whether memory that is locked stays where it is: where no IOMMU follows it, the device would go on
/// reaching the place that it was moved from (`Documentation/admin-guide/sysctl/vm.rst`).
pub(super) fn stays(sysfs: &Sysfs) -> bool {
    let allowed = fs::read_to_string(sysfs.path("proc/sys/vm/compact_unevictable_allowed"));
    // Kernels without the file do not move memory to make room.
    allowed.is_err() || allowed.is_ok_and(|a| a.trim() == "0")
}

/// Physical address of each page of memory that was locked; why not, otherwise.
pub(super) fn pages(pagemap: &Path, memory: &Mapping) -> Result<Vec<u64>, &'static str> {
    const NOT_READABLE: &str = "without an IOMMU only root can find memory for the device: run this as root";
    let first = memory.address() as u64 / PAGE;
    let count = memory.len().div_ceil(PAGE as usize);
    let mut bytes = vec![0; 8 * count];
    let file = File::open(pagemap).map_err(|_| NOT_READABLE)?;
    file.read_exact_at(&mut bytes, 8 * first).map_err(|_| NOT_READABLE)?;
    bytes.as_chunks::<8>().0.iter().map(|e| address(u64::from_le_bytes(*e)).ok_or(NOT_READABLE)).collect()
}

/// Physical address in an entry. Without the right to know frames, they read as 0.
fn address(entry: u64) -> Option<u64> {
    (entry & PRESENT != 0 && entry & FRAME != 0).then_some((entry & FRAME) * PAGE)
}

/// The piece of memory that holds an offset, as far as its pages follow each other.
pub(super) fn segment(pages: &[u64], offset: u64) -> Option<Segment> {
    let rest = pages.get(usize::try_from(offset / PAGE).ok()?..)?;
    let first = *rest.first()?;
    let run = rest.iter().zip(0..).take_while(|(page, i)| **page == first + i * PAGE).count() as u64;
    Some(Segment { addr: first + offset % PAGE, len: run * PAGE - offset % PAGE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_follow_each_other_are_one_segment() {
        let pages = [0x5000, 0x6000, 0x9000];
        assert_eq!(segment(&pages, 0x10), Some(Segment { addr: 0x5010, len: 0x1ff0 }));
        assert_eq!(segment(&pages, 0x1000), Some(Segment { addr: 0x6000, len: 0x1000 }));
        assert_eq!(segment(&pages, 0x2fff), Some(Segment { addr: 0x9fff, len: 1 }));
        assert_eq!(segment(&pages, 0x3000), None);
    }

    #[test]
    fn hidden_and_absent_frames_are_no_addresses() {
        assert_eq!(address(PRESENT | 0x1234), Some(0x123_4000));
        assert_eq!((address(PRESENT), address(0x1234)), (None, None));
    }
}
