//! A device opened through its group and a container: windows, configuration space, interrupts.

use super::OpenError;
use super::ioctl::{self, u32_at, u64_at};
use super::sysfs::{Function, Group, Sysfs};
use crate::config::Config;
use crate::iova::IovaSpace;
use crate::shared::{Mapping, areas};
use crate::wait::Msi;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use vfio_bindings::bindings::vfio as abi;

/// Without what the kernel says of them, all that these IOMMUs translate but the interrupts' window.
const USUAL_IOVA: [RangeInclusive<u64>; 2] = [0..=0xfedf_ffff, 0xfef0_0000..=(1 << 39) - 1];

/// The open files of a device.
pub(super) struct Files {
    pub(super) device: File,
    pub(super) group: File,
    pub(super) container: File,
}

fn open_node(sysfs: &Sysfs, node: &str) -> Result<File, OpenError> {
    File::options().read(true).write(true).open(sysfs.path(node)).map_err(|why| OpenError::node(node, why))
}

/// Opens a group, which one process can at a time.
pub(super) fn try_group(sysfs: &Sysfs, group: Group) -> Result<File, OpenError> {
    open_node(sysfs, &group.node())
}

/// Opens a function that is bound to vfio-pci; what the IOMMU translates, if there is one.
pub(super) fn open(sysfs: &Sysfs, function: &Function) -> Result<(Files, Option<IovaSpace>), OpenError> {
    let group = function.group.ok_or(OpenError::NoIommu)?;
    let container = open_node(sysfs, "dev/vfio/vfio")?;
    let group_file = try_group(sysfs, group)?;
    let os = |what: &'static str| move |e: Errno| OpenError::Os { what, why: e.into() };
    let iommu = if group.no_iommu { abi::VFIO_NOIOMMU_IOMMU } else { abi::VFIO_TYPE1v2_IOMMU };
    let supported = ioctl::supports(&container, iommu).map_err(os("asking VFIO for its version"))?;
    if !supported {
        return Err(OpenError::NoType1);
    }
    let status = ioctl::group_status(&group_file).map_err(os("the state of the IOMMU group"))?;
    if status & abi::VFIO_GROUP_FLAGS_VIABLE == 0 {
        let used = |f: &Function| f.driver.as_ref().map(|d| format!("{} ({d})", f.address));
        let others: Vec<_> = sysfs.companions(function).iter().filter_map(used).collect();
        return Err(OpenError::NotViable { group: group.number, others: others.join(", ") });
    }
    ioctl::set_container(&group_file, container.as_fd()).map_err(os("adding the group to a container"))?;
    ioctl::set_iommu(&container, iommu).map_err(os("setting up the IOMMU"))?;
    let device = ioctl::device_fd(&group_file, &function.address.to_string());
    let device = File::from(device.map_err(os("opening the device"))?);
    let flags = ioctl::device_flags(&device).map_err(os("information on the device"))?;
    if flags & abi::VFIO_DEVICE_FLAGS_PCI == 0 {
        return Err(OpenError::Device("it is no PCI device".into()));
    }
    let space = if group.no_iommu {
        tracing::warn!("there is no IOMMU: nothing keeps the device from other memory than its own");
        None
    } else {
        let info = ioctl::iommu_info(&container).map_err(os("information on the IOMMU"))?;
        let ranges = iova_ranges(&info).unwrap_or_default();
        Some(IovaSpace::new(if ranges.is_empty() { &USUAL_IOVA } else { &ranges }))
    };
    Ok((Files { device, group: group_file, container }, space))
}

/// What the IOMMU translates, from `vfio_iommu_type1_info_cap_iova_range`.
fn iova_ranges(info: &[u8]) -> Result<Vec<RangeInclusive<u64>>, Errno> {
    let mut at = match u32_at(info, 4)? & abi::VFIO_IOMMU_INFO_CAPS {
        0 => 0,
        _ => u32_at(info, 16)? as usize,
    };
    // A chain that runs in a circle ends with the room for it.
    for _ in 0..info.len() / 8 {
        if at == 0 {
            break;
        }
        let (head, next) = (u32_at(info, at)?, u32_at(info, at + 4)? as usize);
        if head & 0xffff == abi::VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE {
            let count = u32_at(info, at + 8)?;
            let range = |i| Ok(u64_at(info, at + 16 + 16 * i)?..=u64_at(info, at + 24 + 16 * i)?);
            return (0..count.min(256) as usize).map(range).collect();
        }
        at = next;
    }
    Ok(Vec::new())
}

/// A mapped part of a region.
struct Area {
    start: u64,
    memory: Mapping,
}

/// A region of the device.
pub(super) struct Region {
    pub(super) len: u64,
    /// Where it is in the device's file.
    offset: u64,
    areas: Vec<Area>,
}

impl Region {
    pub(super) fn query(device: &File, index: u32) -> Result<Region, OpenError> {
        let os =
            |why: Errno| OpenError::Os { what: "information on a window of the device", why: why.into() };
        let info = ioctl::region_info(device, index).map_err(os)?;
        let (flags, len, offset) =
            (u32_at(&info, 4).map_err(os)?, u64_at(&info, 16).map_err(os)?, u64_at(&info, 24).map_err(os)?);
        let mut region = Region { len, offset, areas: Vec::new() };
        if flags & abi::VFIO_REGION_INFO_FLAG_MMAP != 0 && len > 0 {
            let whole = || vec![(0, len)];
            for (start, len) in areas(&info).ok_or_else(|| os(Errno::INVAL))?.unwrap_or_else(whole) {
                // What cannot be mapped is reached by reading and writing the file.
                match Mapping::new(device, offset.saturating_add(start), len) {
                    Ok(memory) => region.areas.push(Area { start, memory }),
                    Err(e) => tracing::info!("region {index} at {start:#x}: not mapped: {e}"),
                }
            }
        }
        Ok(region)
    }

    /// Of a file that is nothing but the region.
    #[cfg(test)]
    pub(super) fn whole(len: u64) -> Region {
        Region { len, offset: 0, areas: Vec::new() }
    }

    fn mapped(&self, offset: u64, len: usize) -> Option<(&Mapping, usize)> {
        self.areas.iter().find_map(|a| {
            let at = usize::try_from(offset.checked_sub(a.start)?).ok()?;
            (at.checked_add(len)? <= a.memory.len()).then_some((&a.memory, at))
        })
    }

    /// Reads, at most `most` bytes at once where the region is not mapped.
    pub(super) fn read(&self, device: &File, offset: u64, buf: &mut [u8], most: usize) -> io::Result<()> {
        if let Some((memory, at)) = self.mapped(offset, buf.len()) {
            memory.read(at, buf);
            return Ok(());
        }
        for (part, at) in buf.chunks_mut(most).zip((self.offset + offset..).step_by(most)) {
            device.read_exact_at(part, at)?;
        }
        Ok(())
    }

    /// Writes, like [`Region::read`].
    pub(super) fn write(&self, device: &File, offset: u64, data: &[u8], most: usize) -> io::Result<()> {
        if let Some((memory, at)) = self.mapped(offset, data.len()) {
            memory.write(at, data);
            return Ok(());
        }
        for (part, at) in data.chunks(most).zip((self.offset + offset..).step_by(most)) {
            device.write_all_at(part, at)?;
        }
        Ok(())
    }
}

/// Configuration space as a file: the device's through VFIO, which keeps some of it to itself, or
/// sysfs's, which root can write as it is.
pub(super) struct ConfigFile<'a> {
    pub(super) file: &'a File,
    pub(super) offset: u64,
}

impl Config for ConfigFile<'_> {
    type Error = io::Error;
    fn read(&mut self, offset: u16, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, self.offset + u64::from(offset))
    }
    fn write(&mut self, offset: u16, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, self.offset + u64::from(offset))
    }
}

impl Region {
    /// The region, which is configuration space, as such.
    pub(super) fn config<'a>(&self, device: &'a File) -> ConfigFile<'a> {
        ConfigFile { file: device, offset: self.offset }
    }
}

/// The eventfds of a device.
pub(super) struct Irqs {
    /// `None` if it has no MSI: waits then look at memory now and then.
    pub(super) msi: Option<Msi>,
    /// A fatal error of the link, and the kernel's wish to have the device back.
    lost: Vec<Msi>,
}

impl Irqs {
    pub(super) fn none() -> Irqs {
        Irqs { msi: None, lost: Vec::new() }
    }

    /// Those of a device that a test plays.
    #[cfg(test)]
    pub(super) fn of(msi: Option<Msi>, lost: Vec<Msi>) -> Irqs {
        Irqs { msi, lost }
    }

    pub(super) fn request(device: &File) -> Result<Irqs, OpenError> {
        let os = |why: Errno| OpenError::Os { what: "an interrupt of the device", why: why.into() };
        let request = |index| {
            // Kernels without an index refuse it.
            if ioctl::irq_count(device, index).unwrap_or(0) == 0 {
                return Ok(None);
            }
            let msi = Msi::new()?;
            ioctl::set_irq(device, index, msi.fd())?;
            Ok(Some(msi))
        };
        let msi = request(abi::VFIO_PCI_MSI_IRQ_INDEX).map_err(os)?;
        let lost = [abi::VFIO_PCI_ERR_IRQ_INDEX, abi::VFIO_PCI_REQ_IRQ_INDEX];
        // Nice to have.
        let lost = lost.into_iter().filter_map(|index| request(index).ok().flatten()).collect();
        Ok(Irqs { msi, lost })
    }

    /// Descriptors that become readable when the device is lost.
    pub(super) fn lost_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.lost.iter().map(Msi::fd).collect()
    }

    /// Whether the device was lost.
    pub(super) fn lost(&self) -> bool {
        self.lost.iter().any(|fd| fd.taken().unwrap_or(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_the_iommu_are_found_behind_other_capabilities_and_in_no_circle() {
        let mut info = ioctl::words(&[72, 3, 0x1000, 0, 24, 0]);
        info.extend(ioctl::words(&[3 | 1 << 16, 36, 65535]));
        info.extend(ioctl::words(&[1 | 1 << 16, 0, 2, 0]));
        for v in [0, 0xfedf_ffff, 0xfef0_0000, (1u64 << 48) - 1] {
            info.extend(v.to_le_bytes());
        }
        let ranges = iova_ranges(&info).unwrap();
        assert_eq!(ranges, [0..=0xfedf_ffff, 0xfef0_0000..=0xffff_ffff_ffff]);
        info[28] = 24;
        assert_eq!(iova_ranges(&info), Ok(Vec::new()), "a circle");
        info[28] = 36;
        assert!(iova_ranges(&info[..60]).is_err(), "cut off");
        info[4] = 1;
        assert_eq!(iova_ranges(&info), Ok(Vec::new()), "no capabilities");
    }

    #[test]
    fn without_a_mapping_a_region_is_read_and_written_in_the_file() {
        let file = tempfile::tempfile().unwrap();
        let region = Region { len: 0x100, offset: 0x40, areas: Vec::new() };
        region.write(&file, 8, &[1, 2, 3, 4, 5, 6, 7, 8, 9], 4).unwrap();
        let mut back = [0; 9];
        region.read(&file, 8, &mut back, 4).unwrap();
        assert_eq!(back, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        file.read_exact_at(&mut back, 0x48).unwrap();
        assert_eq!(back[8], 9);
    }
}
