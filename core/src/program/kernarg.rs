//! Kernel arguments: the caller's, the hidden ones, and the dispatch packet behind them.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::descriptor::{KernelDescriptor, UserSgpr};
use super::metadata::ValueKind;
use super::{Kernel, Name, ProgramError};
use crate::queue::dispatch::{Launch, MAX_USER_SGPRS, ScratchMem};
use crate::slices::copy;

/// `hsa_kernel_dispatch_packet_t` of `hsa.h`: where kernels look up sizes of grid and workgroup.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DispatchPacket {
    /// Packet type and barriers; unused, since no packet processor reads it.
    pub header: U16,
    /// Number of dimensions.
    pub setup: U16,
    /// Work-items of a workgroup in x, y, z.
    pub workgroup_size: [U16; 3],
    /// Zero.
    pub reserved0: U16,
    /// Work-items in x, y, z.
    pub grid_size: [U32; 3],
    /// Bytes of scratch for a work-item.
    pub private_segment_size: U32,
    /// Bytes of LDS for a workgroup.
    pub group_segment_size: U32,
    /// Address of the kernel descriptor.
    pub kernel_object: U64,
    /// Address of the kernel arguments.
    pub kernarg_address: U64,
    /// Zero.
    pub reserved2: U64,
    /// Unused.
    pub completion_signal: U64,
}

impl DispatchPacket {
    /// The packet of a launch with arguments at `kernargs`. Fields that only a packet processor
    /// reads (header, kernel object, completion signal) stay 0.
    pub fn new(kernel: &KernelDescriptor, launch: &Launch, kernargs: u64, dynamic_lds: u32) -> Self {
        DispatchPacket {
            setup: grid_dims(launch).into(),
            workgroup_size: launch.block.map(|n| U16::new(n as u16)),
            grid_size: launch.global().map(U32::new),
            private_segment_size: kernel.private_segment_size.into(),
            group_segment_size: kernel.group_segment_size.saturating_add(dynamic_lds).into(),
            kernarg_address: kernargs.into(),
            ..DispatchPacket::default()
        }
    }
}

/// Size of a dispatch packet in bytes.
pub const DISPATCH_PACKET_SIZE: usize = 64;
const _: () = assert!(size_of::<DispatchPacket>() == DISPATCH_PACKET_SIZE);

/// What hidden arguments can hold beyond what the launch says. Addresses are 0 where a kernel cannot
/// use the thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HiddenValues {
    /// First global id in x, y, z.
    pub global_offset: [u64; 3],
    /// Dimensions of the grid; derived from the launch if 0.
    pub grid_dims: u16,
    /// Bytes of LDS beyond what the kernel itself has.
    pub dynamic_lds: u32,
    /// Address of the printf buffer.
    pub printf_buffer: u64,
    /// Address of the hostcall buffer.
    pub hostcall_buffer: u64,
    /// Address of the device heap.
    pub heap: u64,
}

/// Dimensions of a launch: those up to the last one larger than one workgroup of one work-item.
pub fn grid_dims(launch: &Launch) -> u16 {
    match launch.global() {
        [_, _, z] if z > 1 => 3,
        [_, y, _] if y > 1 => 2,
        _ => 1,
    }
}

/// Addresses that go into user SGPRs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SgprSources<'a> {
    /// Address of the kernel arguments.
    pub kernargs: u64,
    /// Their bytes, for those that are preloaded.
    pub kernarg_bytes: &'a [u8],
    /// Address of the dispatch packet.
    pub dispatch_packet: u64,
    /// Running number of the dispatch.
    pub dispatch_id: u64,
    /// Scratch memory.
    pub scratch: ScratchMem,
}

impl<'a> Kernel<'a> {
    /// Bytes to allocate for the arguments, with the dispatch packet if the kernel wants one.
    pub fn kernarg_alloc_size(&self) -> u64 {
        match self.dispatch_packet_offset() {
            Some(offset) => offset + DISPATCH_PACKET_SIZE as u64,
            None => self.descriptor.kernarg_size as u64,
        }
    }

    /// Where the dispatch packet stands behind the arguments, if the kernel wants one.
    pub fn dispatch_packet_offset(&self) -> Option<u64> {
        let wants = self.descriptor.has_user_sgpr(UserSgpr::DispatchPtr);
        wants.then(|| (self.descriptor.kernarg_size as u64).next_multiple_of(8))
    }

    /// The dispatch packet of a launch of this kernel, its object loaded at `base`.
    pub fn dispatch_packet(
        &self,
        launch: &Launch,
        base: u64,
        kernargs: u64,
        dynamic_lds: u32,
    ) -> DispatchPacket {
        DispatchPacket {
            kernel_object: base.wrapping_add(self.descriptor_vaddr).into(),
            ..DispatchPacket::new(&self.descriptor, launch, kernargs, dynamic_lds)
        }
    }

    fn place<'o>(&self, out: &'o mut [u8], offset: u32, size: u32) -> Result<&'o mut [u8], ProgramError> {
        let limit = self.descriptor.kernarg_size;
        let end = offset.checked_add(size).filter(|e| *e <= limit);
        let range = end.map(|e| offset as usize..e as usize);
        range.and_then(|r| out.get_mut(r)).ok_or_else(|| ProgramError::ArgOutside {
            name: Name::new(self.name),
            offset,
            size: limit as u64,
        })
    }

    fn metadata_or_error(&self) -> Result<&super::metadata::KernelMetadata<'a>, ProgramError> {
        self.metadata.as_ref().ok_or_else(|| ProgramError::NoMetadata { name: Name::new(self.name) })
    }

    /// Writes the caller's arguments, in order; the metadata says where and how large each is.
    pub fn fill_args(&self, args: &[&[u8]], out: &mut [u8]) -> Result<(), ProgramError> {
        let mut given = args.iter();
        let mut takes = 0usize;
        for arg in self.metadata_or_error()?.args() {
            let arg = arg?;
            if arg.value_kind.is_hidden() {
                continue;
            }
            let index = takes;
            takes = takes.saturating_add(1);
            let Some(bytes) = given.next() else { continue };
            if bytes.len() != arg.size as usize {
                return Err(ProgramError::ArgSize {
                    name: Name::new(self.name),
                    index,
                    size: arg.size,
                    given: bytes.len(),
                });
            }
            copy(self.place(out, arg.offset, arg.size)?, bytes);
        }
        if takes != args.len() {
            return Err(ProgramError::ArgCount { name: Name::new(self.name), takes, given: args.len() });
        }
        Ok(())
    }

    /// Writes bytes at an offset, for kernels without metadata.
    pub fn fill_raw(&self, offset: u32, bytes: &[u8], out: &mut [u8]) -> Result<(), ProgramError> {
        let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        copy(self.place(out, offset, size)?, bytes);
        Ok(())
    }

    /// Writes the hidden arguments. A kernel without metadata has none.
    pub fn fill_hidden(
        &self,
        launch: &Launch,
        values: &HiddenValues,
        out: &mut [u8],
    ) -> Result<(), ProgramError> {
        use ValueKind as K;
        let Some(metadata) = &self.metadata else { return Ok(()) };
        let dims = if values.grid_dims == 0 { grid_dims(launch) } else { values.grid_dims };
        let [bx, by, bz] = launch.grid.map(|n| n as u64);
        let [gx, gy, gz] = launch.block.map(|n| n as u64);
        let [ox, oy, oz] = values.global_offset;
        for arg in metadata.args() {
            let arg = arg?;
            if !arg.value_kind.is_hidden() {
                continue;
            }
            let value = match arg.value_kind {
                K::BlockCountX => bx,
                K::BlockCountY => by,
                K::BlockCountZ => bz,
                K::GroupSizeX => gx,
                K::GroupSizeY => gy,
                K::GroupSizeZ => gz,
                K::GlobalOffsetX => ox,
                K::GlobalOffsetY => oy,
                K::GlobalOffsetZ => oz,
                K::GridDims => dims as u64,
                K::DynamicLdsSize => values.dynamic_lds as u64,
                K::PrintfBuffer => values.printf_buffer,
                K::HostcallBuffer => values.hostcall_buffer,
                K::HeapV1 => values.heap,
                // Grids are whole workgroups, so that remainders are 0; the rest does not exist here.
                _ => 0,
            };
            let to = self.place(out, arg.offset, arg.size)?;
            for (i, b) in to.iter_mut().enumerate() {
                *b = value.to_le_bytes().get(i).copied().unwrap_or(0);
            }
        }
        Ok(())
    }

    /// The values of the user SGPRs; returns how many there are.
    pub fn fill_user_sgprs(
        &self,
        from: &SgprSources<'_>,
        out: &mut [u32; MAX_USER_SGPRS],
    ) -> Result<usize, ProgramError> {
        self.descriptor
            .fill_user_sgprs(from, out)
            .map_err(|what| ProgramError::UserSgpr { name: Name::new(self.name), what: what.name() })
    }
}

impl KernelDescriptor {
    /// The values of the user SGPRs; returns how many there are, or the one that cannot be filled:
    /// because nothing like it exists here, or because 16 SGPRs are full.
    pub fn fill_user_sgprs(
        &self,
        from: &SgprSources<'_>,
        out: &mut [u32; MAX_USER_SGPRS],
    ) -> Result<usize, UserSgpr> {
        let mut used = 0usize;
        for (what, first, count) in self.user_sgprs() {
            let (first, count) = (first as usize, count as usize);
            let to = out.get_mut(first..first + count).ok_or(what)?;
            let pair = |v: u64| [v as u32, (v >> 32) as u32];
            match what {
                UserSgpr::PrivateSegmentBuffer => copy(to, &from.scratch.descriptor()),
                UserSgpr::DispatchPtr => copy(to, &pair(from.dispatch_packet)),
                UserSgpr::KernargSegmentPtr => copy(to, &pair(from.kernargs)),
                UserSgpr::DispatchId => copy(to, &pair(from.dispatch_id)),
                UserSgpr::FlatScratchInit => copy(to, &pair(from.scratch.va)),
                UserSgpr::PrivateSegmentSize => copy(to, &[self.private_segment_size]),
                UserSgpr::KernargPreload => {
                    let (_, skip) = self.preload();
                    let words = from.kernarg_bytes.chunks_exact(4).skip(skip as usize);
                    let words = words.map(|w| w.iter().rev().fold(0u32, |v, b| v << 8 | *b as u32));
                    let mut words = words.chain(core::iter::repeat(0));
                    to.fill_with(|| words.next().unwrap_or(0));
                }
                UserSgpr::QueuePtr => return Err(what),
            }
            used = first + count;
        }
        Ok(used)
    }
}
