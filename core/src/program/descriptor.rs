//! Kernel descriptors: 64 bytes that say how the hardware has to be set up for a kernel.
//! Source: LLVM's AMDGPUUsage ("Kernel Descriptor").

use zerocopy::little_endian::{I64, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A kernel descriptor as it lies in memory.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawDescriptor {
    /// Bytes of LDS for a workgroup.
    pub group_segment_fixed_size: U32,
    /// Bytes of scratch for a work-item.
    pub private_segment_fixed_size: U32,
    /// Bytes of kernel arguments.
    pub kernarg_size: U32,
    /// Zero.
    pub reserved0: [u8; 4],
    /// Entry, relative to the descriptor.
    pub kernel_code_entry_byte_offset: I64,
    /// Zero.
    pub reserved1: [u8; 20],
    /// `COMPUTE_PGM_RSRC3`.
    pub compute_pgm_rsrc3: U32,
    /// `COMPUTE_PGM_RSRC1`.
    pub compute_pgm_rsrc1: U32,
    /// `COMPUTE_PGM_RSRC2`, without the LDS size.
    pub compute_pgm_rsrc2: U32,
    /// Which SGPRs are set up, wave size, dynamic stack.
    pub kernel_code_properties: U16,
    /// Kernel arguments in SGPRs: dwords in bits 0 to 6, first dword in bits 7 to 15.
    pub kernarg_preload: U16,
    /// Zero.
    pub reserved3: [u8; 4],
}

/// Size of a descriptor in bytes.
pub const DESCRIPTOR_SIZE: usize = 64;
const _: () = assert!(size_of::<RawDescriptor>() == DESCRIPTOR_SIZE);

/// What a kernel finds in its first SGPRs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UserSgpr {
    /// Scratch buffer descriptor.
    PrivateSegmentBuffer,
    /// Address of the dispatch packet.
    DispatchPtr,
    /// Address of the AQL queue.
    QueuePtr,
    /// Address of the kernel arguments.
    KernargSegmentPtr,
    /// Number of the dispatch.
    DispatchId,
    /// Scratch address for flat accesses.
    FlatScratchInit,
    /// Bytes of scratch for a work-item.
    PrivateSegmentSize,
    /// Kernel arguments themselves.
    KernargPreload,
}

impl UserSgpr {
    /// Those of `kernel_code_properties`, by bit number, with their dwords.
    const BY_BIT: [(UserSgpr, u8); 7] = [
        (UserSgpr::PrivateSegmentBuffer, 4),
        (UserSgpr::DispatchPtr, 2),
        (UserSgpr::QueuePtr, 2),
        (UserSgpr::KernargSegmentPtr, 2),
        (UserSgpr::DispatchId, 2),
        (UserSgpr::FlatScratchInit, 2),
        (UserSgpr::PrivateSegmentSize, 1),
    ];

    /// Name as in LLVM's documentation.
    pub fn name(self) -> &'static str {
        match self {
            UserSgpr::PrivateSegmentBuffer => "private_segment_buffer",
            UserSgpr::DispatchPtr => "dispatch_ptr",
            UserSgpr::QueuePtr => "queue_ptr",
            UserSgpr::KernargSegmentPtr => "kernarg_segment_ptr",
            UserSgpr::DispatchId => "dispatch_id",
            UserSgpr::FlatScratchInit => "flat_scratch_init",
            UserSgpr::PrivateSegmentSize => "private_segment_size",
            UserSgpr::KernargPreload => "kernarg_preload",
        }
    }
}

/// A kernel descriptor, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KernelDescriptor {
    /// Bytes of LDS for a workgroup.
    pub group_segment_size: u32,
    /// Bytes of scratch for a work-item.
    pub private_segment_size: u32,
    /// Bytes of kernel arguments.
    pub kernarg_size: u32,
    /// Entry, relative to the descriptor.
    pub entry_offset: i64,
    /// `COMPUTE_PGM_RSRC1`.
    pub rsrc1: u32,
    /// `COMPUTE_PGM_RSRC2`, without the LDS size.
    pub rsrc2: u32,
    /// `COMPUTE_PGM_RSRC3`.
    pub rsrc3: u32,
    /// `kernel_code_properties`.
    pub properties: u16,
    /// `kernarg_preload`.
    pub kernarg_preload: u16,
}

impl From<&RawDescriptor> for KernelDescriptor {
    fn from(r: &RawDescriptor) -> Self {
        KernelDescriptor {
            group_segment_size: r.group_segment_fixed_size.get(),
            private_segment_size: r.private_segment_fixed_size.get(),
            kernarg_size: r.kernarg_size.get(),
            entry_offset: r.kernel_code_entry_byte_offset.get(),
            rsrc1: r.compute_pgm_rsrc1.get(),
            rsrc2: r.compute_pgm_rsrc2.get(),
            rsrc3: r.compute_pgm_rsrc3.get(),
            properties: r.kernel_code_properties.get(),
            kernarg_preload: r.kernarg_preload.get(),
        }
    }
}

impl From<&KernelDescriptor> for RawDescriptor {
    fn from(d: &KernelDescriptor) -> Self {
        RawDescriptor {
            group_segment_fixed_size: d.group_segment_size.into(),
            private_segment_fixed_size: d.private_segment_size.into(),
            kernarg_size: d.kernarg_size.into(),
            kernel_code_entry_byte_offset: d.entry_offset.into(),
            compute_pgm_rsrc1: d.rsrc1.into(),
            compute_pgm_rsrc2: d.rsrc2.into(),
            compute_pgm_rsrc3: d.rsrc3.into(),
            kernel_code_properties: d.properties.into(),
            kernarg_preload: d.kernarg_preload.into(),
            ..RawDescriptor::default()
        }
    }
}

impl KernelDescriptor {
    /// From its 64 bytes; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        RawDescriptor::ref_from_prefix(bytes).ok().map(|(r, _)| r.into())
    }

    /// Its 64 bytes.
    pub fn emit(&self) -> [u8; DESCRIPTOR_SIZE] {
        let mut out = [0; DESCRIPTOR_SIZE];
        out.copy_from_slice(RawDescriptor::from(self).as_bytes());
        out
    }

    /// Waves of 32 work-items (`ENABLE_WAVEFRONT_SIZE32`).
    pub fn wave32(&self) -> bool {
        self.properties & 1 << 10 != 0
    }

    /// The stack may grow beyond `private_segment_size` (`USES_DYNAMIC_STACK`).
    pub fn uses_dynamic_stack(&self) -> bool {
        self.properties & 1 << 11 != 0
    }

    /// Dwords of kernel arguments in SGPRs, and the first of them.
    pub fn preload(&self) -> (u8, u16) {
        ((self.kernarg_preload & 0x7f) as u8, self.kernarg_preload >> 7)
    }

    /// What is in the user SGPRs, in the order of the ABI: what, first SGPR, SGPRs.
    pub fn user_sgprs(&self) -> impl Iterator<Item = (UserSgpr, u8, u8)> + use<> {
        let properties = self.properties;
        let (preload, _) = self.preload();
        let mut next = 0u8;
        UserSgpr::BY_BIT
            .into_iter()
            .enumerate()
            .filter(move |(bit, _)| properties >> *bit & 1 == 1)
            .map(|(_, s)| s)
            .chain((preload > 0).then_some((UserSgpr::KernargPreload, preload)))
            .map(move |(what, count)| {
                let first = next;
                next = next.saturating_add(count);
                (what, first, count)
            })
    }

    /// Whether the kernel finds this in SGPRs.
    pub fn has_user_sgpr(&self, what: UserSgpr) -> bool {
        self.user_sgprs().any(|s| s.0 == what)
    }

    /// `USER_SGPR` of `rsrc2`: where the workgroup ids come after. On gfx1100 to gfx1102 compilers
    /// make it larger than the sum of the user SGPRs (a workaround for a hardware fault).
    pub fn user_sgpr_count(&self) -> u8 {
        (self.rsrc2 >> 1 & 31) as u8
    }

    /// `SCRATCH_EN` of `rsrc2`.
    pub fn scratch_enabled(&self) -> bool {
        self.rsrc2 & 1 == 1
    }

    /// Which workgroup ids are in SGPRs.
    pub fn workgroup_ids(&self) -> [bool; 3] {
        [7, 8, 9].map(|bit| self.rsrc2 >> bit & 1 == 1)
    }

    /// Whether the workgroup info is in an SGPR.
    pub fn workgroup_info(&self) -> bool {
        self.rsrc2 >> 10 & 1 == 1
    }

    /// Work-item ids in VGPRs: 0 x, 1 x and y, 2 all.
    pub fn workitem_id(&self) -> u8 {
        (self.rsrc2 >> 11 & 3) as u8
    }

    /// LDS size already in `rsrc2`, in granules; compilers leave it 0.
    pub fn lds_granules(&self) -> u16 {
        (self.rsrc2 >> 15 & 0x1ff) as u16
    }

    /// `FLOAT_MODE` of `rsrc1`.
    pub fn float_mode(&self) -> u8 {
        (self.rsrc1 >> 12) as u8
    }
}
