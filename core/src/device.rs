//! A whole GPU over a [`Bus`]: found, booted, and an [`Iface`](crate::iface::Iface) for queues and programs.
//!
//! ```text
//! Probe::open(bus)        reads the discovery table, chooses tables and chip data
//!   .boot(firmware, ..)   runs the IP machines; gives a Ready
//!   .into_gpu(ready, ..)  adds the memory manager: a Gpu
//! Gpu  ── Iface ──►  runtime::Runtime: copies and kernels
//! Gpu::fini()             takes queues and translation down
//! Gpu::into_probe()       gives the Probe back
//! ```

use crate::boot;
use crate::bus::Bus;
use crate::chip;
use crate::discovery::{self, DiscoverError, IpList};
use crate::error::Error;
use crate::firmware::FirmwareSource;
use crate::iface::{IpVersions, Properties, Target};
use crate::ip::{Device, Event};
use crate::layout::Ready;
use crate::mm::{Block, PteFormat, VirtualRange, Vm, VmConfig, VmError};
use crate::reg::tables::{self, UnsupportedVersion};
use crate::reg::{Block as IpBlock, RegFile};

mod gpu;
mod page_tables;

pub use gpu::Gpu;

/// Why a device cannot be opened.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The discovery table is missing or broken.
    #[error(transparent)]
    Discovery(#[from] DiscoverError),
    /// A block of the device is not in the table.
    #[error(transparent)]
    Missing(#[from] discovery::DiscoveryError),
    /// There are no register tables for the version of a block.
    #[error("{missing}; the device has {versions}")]
    Unsupported {
        /// The block that is missing.
        missing: UnsupportedVersion,
        /// All blocks that a boot needs.
        versions: BlockVersions,
    },
    /// No row of [`crate::chip`] describes the GPU.
    #[error("{}; the device has {versions}", Error::UnknownChip { gc: *gc })]
    UnknownChip {
        /// Version of its graphics block.
        gc: discovery::Version,
        /// All blocks that a boot needs.
        versions: BlockVersions,
    },
    /// The registers do not answer as they should.
    #[error(transparent)]
    Device(#[from] Error),
}

/// Blocks that a boot needs.
const NEEDED: [IpBlock; 7] =
    [IpBlock::Gc, IpBlock::Mp0, IpBlock::Mp1, IpBlock::Nbio, IpBlock::Mmhub, IpBlock::Osssys, IpBlock::Hdp];

/// Versions of the blocks that a boot needs, for messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockVersions([Option<discovery::Version>; 7]);

impl BlockVersions {
    /// Those of a device.
    pub fn of(ips: &IpList) -> Self {
        BlockVersions(NEEDED.map(|block| ips.version(block)))
    }
}

impl core::fmt::Display for BlockVersions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (i, (block, version)) in NEEDED.iter().zip(self.0).enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            match version {
                Some((major, minor, revision)) => write!(f, "{comma}{block} {major}.{minor}.{revision}")?,
                None => write!(f, "{comma}no {block}")?,
            }
        }
        Ok(())
    }
}

/// A device that was found and understood, but not (or no longer) booted.
#[derive(Debug)]
pub struct Probe<B> {
    /// The device in the hands of the IP machines.
    pub device: Device<B>,
    /// What its discovery table says.
    pub ips: IpList,
}

/// Register tables and base addresses of a device, by its discovery table.
pub fn registers(ips: &IpList) -> Result<RegFile, OpenError> {
    let mut regs = RegFile::new();
    for block in NEEDED {
        let version = ips.require(block)?;
        let bases = ips.bases(block, 0).unwrap_or_default();
        let table = tables::for_version(block, version)
            .map_err(|missing| OpenError::Unsupported { missing, versions: BlockVersions::of(ips) })?;
        regs.set(table, bases);
    }
    Ok(regs)
}

/// What kernels and queues must know of a GPU.
pub fn properties(ips: &IpList) -> Properties {
    let gc = ips.gc.unwrap_or_default();
    let target = ips.gfx_target().map(|t| Target::new(t.major, t.minor, t.stepping)).unwrap_or_default();
    // A compute unit has two SIMDs from gfx10 on.
    let simd_per_cu = 2;
    Properties {
        target,
        simd_count: gc.max_cus().saturating_mul(simd_per_cu),
        simd_per_cu,
        array_count: gc.sa_per_se.saturating_mul(gc.num_se),
        arrays_per_engine: gc.sa_per_se,
        max_scratch_slots_per_cu: gc.max_scratch_slots_per_cu,
        max_waves_per_simd: gc.max_waves_per_simd,
        lds_kib: gc.lds_size_kib,
        xcc_count: 1,
    }
}

impl<B: Bus> Probe<B> {
    /// Finds out what a device is. Only reads.
    pub fn open(mut bus: B) -> Result<Self, OpenError> {
        let (size, ips) = discovery::discover(&mut bus)?;
        let gc = ips.require(IpBlock::Gc)?;
        let chip = chip::find(gc).ok_or(OpenError::UnknownChip { gc, versions: BlockVersions::of(&ips) })?;
        let device = Device::new(bus, registers(&ips)?, chip, size.bytes())?;
        Ok(Probe { device, ips })
    }

    /// Boots the device from whatever state it is in; `progress` is told the stages.
    pub fn boot(
        &mut self,
        firmware: &mut dyn FirmwareSource,
        options: boot::Options,
        progress: &mut dyn FnMut(&Event),
    ) -> Result<boot::Report, Error> {
        self.device.run_with(progress, async |cx| boot::boot(cx, firmware, options).await)
    }

    /// Resets the device without booting it.
    pub fn reset(&mut self, progress: &mut dyn FnMut(&Event)) -> Result<(), Error> {
        self.device.run_with(progress, async |cx| boot::reset(cx).await)
    }

    /// Adds the memory manager. `boot_blocks` and `pool_blocks` are storage for allocator state:
    /// each live allocation takes a slot and each gap between them another. Devices that lend the
    /// same `va` share their virtual addresses.
    pub fn into_gpu<'s>(
        mut self,
        ready: Ready,
        boot_blocks: &'s mut [Block],
        pool_blocks: &'s mut [Block],
        va: &'s (dyn VirtualRange + Sync + 's),
    ) -> Result<Gpu<'s, B>, VmError<Error>> {
        let layout = &self.device.layout;
        let config = VmConfig {
            format: if self.device.chip.gc.0 >= 12 { PteFormat::Gfx12 } else { PteFormat::Gfx11 },
            va_base: crate::mm::vm::VA_BASE,
            boot: layout.boot.clone(),
            pool: layout.pool.clone(),
        };
        let vm = Vm::new(&mut self.device, &config, boot_blocks, pool_blocks, va)?.boot_done();
        let version = |block| self.ips.version(block).unwrap_or_default();
        let versions = IpVersions {
            gc: version(IpBlock::Gc),
            sdma: version(IpBlock::Sdma),
            nbio: version(IpBlock::Nbio),
        };
        let properties = properties(&self.ips);
        Ok(Gpu::new(self, ready, vm, properties, versions))
    }
}
