//! Memory that the device reaches: anonymous memory of this process, pinned by VFIO.

use super::ioctl;
use super::physical;
use crate::allocations::{Table, whole_pages};
use crate::iova::IovaSpace;
use crate::shared::Mapping;
use amdev_core::bus::{BusError, DmaHandle, Segment};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::sync::Arc;

/// How the device finds an allocation.
pub(super) enum Reach {
    /// Through the IOMMU, from this address on.
    Iova(u64),
    /// At the physical address of each page, as there is no IOMMU.
    Pages(Vec<u64>),
}

/// The allocations of a device.
pub(super) struct Allocations {
    container: File,
    /// `None` without an IOMMU.
    space: Option<IovaSpace>,
    pub(super) table: Table<Reach>,
}

impl Allocations {
    pub(super) fn new(container: File, space: Option<IovaSpace>) -> Allocations {
        Allocations { container, space, table: Table::default() }
    }

    /// Zeroed memory, mapped here and for the device.
    pub(super) fn alloc(&mut self, len: u64) -> Result<DmaHandle, BusError> {
        let none = BusError::NoDmaMemory { len };
        let len = whole_pages(len).ok_or(none)?;
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
        Ok(self.table.insert(Arc::new(memory), reach, len))
    }

    pub(super) fn free(&mut self, handle: DmaHandle) -> Result<(), BusError> {
        let gone = self.table.remove(handle)?;
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

    pub(super) fn segment(&self, handle: DmaHandle, offset: u64) -> Result<Segment, BusError> {
        let a = self.table.find(handle, offset, 1)?;
        match &a.reach {
            Reach::Iova(iova) => Ok(Segment { addr: iova + offset, len: a.len - offset }),
            Reach::Pages(pages) => {
                let segment = physical::segment(pages, offset);
                segment.ok_or(BusError::BadDmaRange { handle, offset, len: 1 })
            }
        }
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
        assert!(a.table.is_empty());
        assert_eq!(a.alloc(0), Err(BusError::NoDmaMemory { len: 0 }));
    }
}
