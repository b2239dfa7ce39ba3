//! Memory that the device reaches: anonymous memory of this process, pinned by VFIO.

use super::ioctl;
use super::physical;
use crate::iova::IovaSpace;
use crate::shared::Mapping;
use amdev_core::bus::{BusError, DmaHandle, Segment};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::fs::File;

/// Smallest unit.
const PAGE: u64 = 4096;

/// How the device finds an allocation.
enum Reach {
    /// Through the IOMMU, from this address on.
    Iova(u64),
    /// At the physical address of each page, as there is no IOMMU.
    Pages(Vec<u64>),
}

struct Allocation {
    memory: Mapping,
    reach: Reach,
    len: u64,
}

/// The allocations of a device.
pub(super) struct Allocations {
    container: File,
    /// `None` without an IOMMU.
    space: Option<IovaSpace>,
    live: BTreeMap<u32, Allocation>,
    next_handle: u32,
}

impl Allocations {
    pub(super) fn new(container: File, space: Option<IovaSpace>) -> Allocations {
        Allocations { container, space, live: BTreeMap::new(), next_handle: 0 }
    }

    /// Zeroed memory, mapped here and for the device.
    pub(super) fn alloc(&mut self, len: u64) -> Result<DmaHandle, BusError> {
        let none = BusError::NoDmaMemory { len };
        let len = len.checked_next_multiple_of(PAGE).filter(|l| *l > 0).ok_or(none)?;
        let memory = Mapping::anonymous(usize::try_from(len).map_err(|_| none)?).map_err(|_| none)?;
        let reach = match &mut self.space {
            None => {
                memory.lock().map_err(|_| memlock())?;
                Reach::Pages(physical::pages("/proc/self/pagemap".as_ref(), &memory).map_err(BusError::Host)?)
            }
            Some(space) => {
                let iova = space.alloc(len).ok_or(none)?;
                if let Err(e) = ioctl::map(&self.container, &memory, iova) {
                    space.free(iova);
                    return Err(refusal(e, len));
                }
                Reach::Iova(iova)
            }
        };
        let handle = DmaHandle(self.next_handle);
        self.next_handle = self.next_handle.wrapping_add(1);
        self.live.insert(handle.0, Allocation { memory, reach, len });
        Ok(handle)
    }

    pub(super) fn free(&mut self, handle: DmaHandle) -> Result<(), BusError> {
        self.find(handle, 0, 0)?;
        let Some(gone) = self.live.remove(&handle.0) else { return Ok(()) };
        if let (Reach::Iova(iova), Some(space)) = (&gone.reach, &mut self.space) {
            if let Err(e) = ioctl::unmap(&self.container, *iova, gone.len) {
                // The device may still reach it: nobody else gets it.
                std::mem::forget(gone.memory);
                return Err(BusError::Os(e.raw_os_error()));
            }
            space.free(*iova);
        }
        Ok(())
    }

    fn find(&self, handle: DmaHandle, offset: u64, len: u64) -> Result<&Allocation, BusError> {
        let inside = |a: &&Allocation| offset.checked_add(len).is_some_and(|end| end <= a.len);
        self.live.get(&handle.0).filter(inside).ok_or(BusError::BadDmaRange { handle, offset, len })
    }

    pub(super) fn len(&self, handle: DmaHandle) -> Result<u64, BusError> {
        Ok(self.find(handle, 0, 0)?.len)
    }

    pub(super) fn segment(&self, handle: DmaHandle, offset: u64) -> Result<Segment, BusError> {
        let a = self.find(handle, offset, 1)?;
        match &a.reach {
            Reach::Iova(iova) => Ok(Segment { addr: iova + offset, len: a.len - offset }),
            Reach::Pages(pages) => {
                let segment = physical::segment(pages, offset);
                segment.ok_or(BusError::BadDmaRange { handle, offset, len: 1 })
            }
        }
    }

    pub(super) fn read(&self, handle: DmaHandle, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        let a = self.find(handle, offset, buf.len() as u64)?;
        a.memory.read(offset as usize, buf);
        // What follows is read after it: a signal, then what it stands for.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        Ok(())
    }

    pub(super) fn write(&self, handle: DmaHandle, offset: u64, data: &[u8]) -> Result<(), BusError> {
        let a = self.find(handle, offset, data.len() as u64)?;
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        a.memory.write(offset as usize, data);
        Ok(())
    }
}

fn memlock() -> BusError {
    BusError::Host(
        "this process may not lock more memory for the device: raise the limit with `ulimit -l unlimited` \
         (for good: `LimitMEMLOCK=infinity` in a service, `* - memlock unlimited` in /etc/security/limits.conf)",
    )
}

/// Why VFIO does not map memory, from its errno.
fn refusal(error: Errno, len: u64) -> BusError {
    match error {
        // vfio_iommu_type1: no entry left of `dma_entry_limit`.
        Errno::NOSPC => BusError::Host(
            "VFIO maps no more pieces of memory for this process: raise the limit with \
             `echo 1000000 | sudo tee /sys/module/vfio_iommu_type1/parameters/dma_entry_limit`",
        ),
        // Pinning counts against the limit on locked memory.
        Errno::NOMEM if getrlimit(Resource::Memlock).current.is_some() => memlock(),
        Errno::NOMEM => BusError::NoDmaMemory { len },
        e => BusError::Os(e.raw_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_told_with_the_command_that_raises_them() {
        let text = |e: BusError| e.to_string();
        assert!(text(refusal(Errno::NOSPC, 1)).contains("dma_entry_limit"));
        assert!(text(memlock()).contains("ulimit -l unlimited"));
        let expected = match getrlimit(Resource::Memlock).current {
            Some(_) => memlock(),
            None => BusError::NoDmaMemory { len: 8192 },
        };
        assert_eq!(refusal(Errno::NOMEM, 8192), expected);
        assert_eq!(refusal(Errno::INVAL, 1), BusError::Os(22));
    }

    #[test]
    fn memory_that_vfio_does_not_map_is_not_kept() {
        let file = File::open("/dev/null").unwrap();
        let mut a = Allocations::new(file, Some(IovaSpace::new(&[0..=u64::MAX])));
        assert_eq!(a.alloc(4096), Err(BusError::Os(Errno::NOTTY.raw_os_error())));
        assert!(a.live.is_empty());
        assert_eq!(a.alloc(0), Err(BusError::NoDmaMemory { len: 0 }));
    }
}
