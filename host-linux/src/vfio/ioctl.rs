//! VFIO's requests to the kernel: numbers, layouts and the one place that makes the calls.
//!
//! Structures are laid out as bytes: most of them end in arrays of any length, and every one starts
//! with its own length (`argsz` of `linux/vfio.h`).

use crate::shared::Mapping;
use amdev_cli::spec::PciAddress;
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};
use std::ffi::{CString, c_void};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};
use vfio_bindings::bindings::vfio as abi;

// Offsets from VFIO_BASE: `linux/vfio.h`, which writes them as macros that bindings cannot hold.
const GET_API_VERSION: u8 = 0;
const CHECK_EXTENSION: u8 = 1;
const SET_IOMMU: u8 = 2;
const GROUP_GET_STATUS: u8 = 3;
const GROUP_SET_CONTAINER: u8 = 4;
const GROUP_GET_DEVICE_FD: u8 = 6;
const DEVICE_GET_INFO: u8 = 7;
const DEVICE_GET_REGION_INFO: u8 = 8;
const DEVICE_GET_IRQ_INFO: u8 = 9;
const DEVICE_SET_IRQS: u8 = 10;
// Of a device; the same numbers mean other things to a container.
const DEVICE_GET_PCI_HOT_RESET_INFO: u8 = 12;
const DEVICE_PCI_HOT_RESET: u8 = 13;
const IOMMU_GET_INFO: u8 = 12;
const IOMMU_MAP_DMA: u8 = 13;
const IOMMU_UNMAP_DMA: u8 = 14;

/// No answer of the kernel is longer.
const MAX_ANSWER: usize = 1 << 16;

/// What goes with a request.
enum Arg<'a> {
    Value(u32),
    Bytes(&'a mut [u8]),
}

struct Call<'a> {
    number: u8,
    arg: Arg<'a>,
}

// SAFETY: the numbers above are requests of VFIO's files. Their argument is a plain value, or bytes
// of which the kernel reads and writes no more than the functions below hand over; none of them
// keeps the pointer. What is returned is a number.
unsafe impl Ioctl for Call<'_> {
    type Output = i32;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::none(abi::VFIO_TYPE, abi::VFIO_BASE as u8 + self.number)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        match &mut self.arg {
            Arg::Value(v) => std::ptr::without_provenance_mut(*v as usize),
            Arg::Bytes(b) => b.as_mut_ptr().cast(),
        }
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> Result<i32, Errno> {
        Ok(out)
    }
}

fn call(fd: BorrowedFd<'_>, number: u8, arg: Arg<'_>) -> Result<i32, Errno> {
    // SAFETY: see `Ioctl for Call`; the callers below pass what the number asks for.
    unsafe { rustix::ioctl::ioctl(fd, Call { number, arg }) }
}

/// A request with a structure that starts with its length.
fn structure(fd: BorrowedFd<'_>, number: u8, bytes: &mut [u8]) -> Result<i32, Errno> {
    let len = u32::try_from(bytes.len()).map_err(|_| Errno::INVAL)?;
    bytes.get_mut(..4).ok_or(Errno::INVAL)?.copy_from_slice(&len.to_le_bytes());
    call(fd, number, Arg::Bytes(bytes))
}

/// Asks again with as much room as the kernel wants for its answer.
fn growing(fd: BorrowedFd<'_>, number: u8, request: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut bytes = request.to_vec();
    for _ in 0..4 {
        let done = structure(fd, number, &mut bytes);
        let needed = u32_at(&bytes, 0)? as usize;
        match done {
            Ok(_) if needed > bytes.len() && needed <= MAX_ANSWER => {
                bytes = request.to_vec();
                bytes.resize(needed, 0);
            }
            other => return other.map(|_| bytes),
        }
    }
    Err(Errno::INVAL)
}

/// Dwords one after another.
pub(super) fn words(w: &[u32]) -> Vec<u8> {
    w.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// A dword of an answer.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Errno> {
    let field = bytes.get(at..).and_then(|b| b.first_chunk());
    field.map(|f| u32::from_le_bytes(*f)).ok_or(Errno::INVAL)
}

/// A quadword of an answer.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Result<u64, Errno> {
    let field = bytes.get(at..).and_then(|b| b.first_chunk());
    field.map(|f| u64::from_le_bytes(*f)).ok_or(Errno::INVAL)
}

/// Whether the container speaks version 0 and has this kind of IOMMU.
pub(super) fn supports(container: impl AsFd, iommu: u32) -> Result<bool, Errno> {
    let fd = container.as_fd();
    Ok(call(fd, GET_API_VERSION, Arg::Value(0))? == abi::VFIO_API_VERSION as i32
        && call(fd, CHECK_EXTENSION, Arg::Value(iommu))? > 0)
}

pub(super) fn set_iommu(container: impl AsFd, iommu: u32) -> Result<(), Errno> {
    call(container.as_fd(), SET_IOMMU, Arg::Value(iommu)).map(drop)
}

/// `VFIO_GROUP_FLAGS_*`.
pub(super) fn group_status(group: impl AsFd) -> Result<u32, Errno> {
    let mut status = words(&[8, 0]);
    structure(group.as_fd(), GROUP_GET_STATUS, &mut status)?;
    u32_at(&status, 4)
}

pub(super) fn set_container(group: impl AsFd, container: BorrowedFd<'_>) -> Result<(), Errno> {
    use std::os::fd::AsRawFd as _;
    let mut fd = container.as_raw_fd().to_ne_bytes();
    call(group.as_fd(), GROUP_SET_CONTAINER, Arg::Bytes(&mut fd)).map(drop)
}

/// Opens a device of the group; its name is its PCI address.
pub(super) fn device_fd(group: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    let mut name = CString::new(name).map_err(|_| Errno::INVAL)?.into_bytes_with_nul();
    let fd = call(group.as_fd(), GROUP_GET_DEVICE_FD, Arg::Bytes(&mut name))?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `VFIO_DEVICE_FLAGS_*`.
pub(super) fn device_flags(device: impl AsFd) -> Result<u32, Errno> {
    let mut info = words(&[20, 0, 0, 0, 0]);
    structure(device.as_fd(), DEVICE_GET_INFO, &mut info)?;
    u32_at(&info, 4)
}

/// `struct vfio_region_info` with its capabilities.
pub(super) fn region_info(device: impl AsFd, index: u32) -> Result<Vec<u8>, Errno> {
    growing(device.as_fd(), DEVICE_GET_REGION_INFO, &words(&[32, 0, index, 0, 0, 0, 0, 0]))
}

/// Number of interrupts of a kind.
pub(super) fn irq_count(device: impl AsFd, index: u32) -> Result<u32, Errno> {
    let mut info = words(&[16, 0, index, 0]);
    structure(device.as_fd(), DEVICE_GET_IRQ_INFO, &mut info)?;
    u32_at(&info, 12)
}

/// `struct vfio_irq_set` that lets the first interrupt of a kind write to an eventfd.
fn irq_set(index: u32, eventfd: i32) -> Vec<u8> {
    let flags = abi::VFIO_IRQ_SET_DATA_EVENTFD | abi::VFIO_IRQ_SET_ACTION_TRIGGER;
    words(&[24, flags, index, 0, 1, eventfd as u32])
}

pub(super) fn set_irq(device: impl AsFd, index: u32, eventfd: BorrowedFd<'_>) -> Result<(), Errno> {
    use std::os::fd::AsRawFd as _;
    structure(device.as_fd(), DEVICE_SET_IRQS, &mut irq_set(index, eventfd.as_raw_fd())).map(drop)
}

/// All functions that a hot reset takes.
pub(super) fn hot_reset_info(device: impl AsFd) -> Result<Vec<PciAddress>, Errno> {
    // Where the room does not suffice the kernel says so by an error and tells the count only
    // (vfio_pci_ioctl_get_pci_hot_reset_info); newer ones tell nothing: room for a bus full of functions.
    let mut info = vec![0; 12 + 8 * 256];
    structure(device.as_fd(), DEVICE_GET_PCI_HOT_RESET_INFO, &mut info)?;
    let count = u32_at(&info, 8)? as usize;
    // `struct vfio_pci_dependent_device`: the group; domain, bus, device and function.
    (0..count.min(256)).map(|i| Ok(address(u32_at(&info, 16 + 8 * i)?))).collect()
}

/// Domain, bus, device and function as the kernel packs them.
fn address(packed: u32) -> PciAddress {
    let [d0, d1, bus, devfn] = packed.to_le_bytes();
    let domain = u16::from_le_bytes([d0, d1]).into();
    PciAddress { domain, bus, device: devfn >> 3, function: devfn & 7 }
}

/// Resets the bus of a device; all that is reset belongs to these groups.
pub(super) fn hot_reset(device: impl AsFd, groups: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    use std::os::fd::AsRawFd as _;
    let count = groups.len() as u32;
    let mut request = words(&[12 + 4 * count, 0, count]);
    request.extend(groups.iter().flat_map(|fd| fd.as_raw_fd().to_ne_bytes()));
    structure(device.as_fd(), DEVICE_PCI_HOT_RESET, &mut request).map(drop)
}

/// `struct vfio_iommu_type1_info` with its capabilities.
pub(super) fn iommu_info(container: impl AsFd) -> Result<Vec<u8>, Errno> {
    growing(container.as_fd(), IOMMU_GET_INFO, &[0; 24])
}

/// Lets the device read and write memory at a bus address, until [`unmap`].
pub(super) fn map(container: impl AsFd, memory: &Mapping, iova: u64) -> Result<(), Errno> {
    let flags = abi::VFIO_DMA_MAP_FLAG_READ | abi::VFIO_DMA_MAP_FLAG_WRITE;
    let mut request = words(&[32, flags]);
    for field in [memory.address() as u64, iova, memory.len() as u64] {
        request.extend(field.to_le_bytes());
    }
    structure(container.as_fd(), IOMMU_MAP_DMA, &mut request).map(drop)
}

pub(super) fn unmap(container: impl AsFd, iova: u64, len: u64) -> Result<(), Errno> {
    let mut request = words(&[24, 0]);
    request.extend([iova, len].iter().flat_map(|v| v.to_le_bytes()));
    structure(container.as_fd(), IOMMU_UNMAP_DMA, &mut request).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eventfd_is_appended_to_the_interrupt_request() {
        let set = irq_set(abi::VFIO_PCI_MSI_IRQ_INDEX, 9);
        let fields: Vec<u32> = (0..6).map(|i| u32_at(&set, 4 * i).unwrap()).collect();
        assert_eq!((set.len(), fields), (24, vec![24, 0x24, 1, 0, 1, 9]));
    }

    #[test]
    fn requests_have_the_numbers_of_the_kernel_header() {
        let number = |number| Call { number, arg: Arg::Value(0) }.opcode();
        // VFIO_GET_API_VERSION, VFIO_DEVICE_SET_IRQS, VFIO_IOMMU_MAP_DMA.
        assert_eq!((number(0), number(10), number(13)), (0x3b64, 0x3b6e, 0x3b71));
    }

    #[test]
    fn the_address_of_a_function_is_unpacked() {
        assert_eq!(address(0x0903_0002).to_string(), "0002:03:01.1");
    }

    #[test]
    fn a_file_that_is_not_of_vfio_refuses_every_request() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(supports(&file, abi::VFIO_TYPE1v2_IOMMU).is_err());
        assert!(region_info(&file, 0).is_err() && hot_reset_info(&file).is_err());
    }
}
