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
use crate::ip::{Cx, Device, Event, Slot};
use crate::layout::Ready;
use crate::mm::{Block, PteFormat, Running, VirtualRange, Vm, VmConfig, VmError};
use crate::reg::tables::{self, UnsupportedVersion};
use crate::reg::{Block as IpBlock, RegFile};

mod gpu;
mod page_tables;
mod queues;
mod recover;

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
    ladder: boot::Ladder,
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

/// What was found out of a device, apart from the bus it was found on.
///
/// [`Probe::open`] drops a bus that it fails on. A host whose bus must be released, or whose trace
/// must be completed, lends it: `Probe::open(&mut bus)?.detach().on(bus)`.
#[derive(Clone, Debug)]
pub struct Found {
    device: Device<()>,
    ips: IpList,
}

impl Found {
    /// Puts the bus to what was found on it.
    pub fn on<B>(self, bus: B) -> Probe<B> {
        Probe { device: self.device.with_bus(bus).0, ips: self.ips, ladder: boot::Ladder::default() }
    }
}

impl<B> Probe<B> {
    /// What was found, without the bus.
    pub fn detach(self) -> Found {
        Found { device: self.device.with_bus(()).0, ips: self.ips }
    }
}

impl<B: Bus> Probe<B> {
    /// Finds out what a device is. Only reads. The bus is dropped on an error; see [`Found`] for
    /// hosts that need it back.
    pub fn open(mut bus: B) -> Result<Self, OpenError> {
        let found = match bus.is_slow() {
            true => discovery::discover_sparse(&mut bus),
            false => discovery::discover(&mut bus),
        };
        let (size, ips) = found?;
        let gc = ips.require(IpBlock::Gc)?;
        let chip = chip::find(gc).ok_or(OpenError::UnknownChip { gc, versions: BlockVersions::of(&ips) })?;
        let device = Device::new(bus, registers(&ips)?, chip, size.bytes())?;
        Ok(Probe { device, ips, ladder: boot::Ladder::default() })
    }

    /// Boots the device from whatever state it is in; `progress` is told the stages.
    pub fn boot(
        &mut self,
        firmware: &mut dyn FirmwareSource,
        options: boot::Options,
        progress: &mut dyn FnMut(&Event),
    ) -> Result<boot::Report, Error> {
        let ladder = &mut self.ladder;
        self.device.run_with(progress, async |cx| boot::boot_telling(cx, firmware, options, ladder).await)
    }

    /// [`Probe::boot`] as a machine for [`crate::ip::drive`], which boots several devices at once on
    /// one thread; `report` is set where it succeeds.
    pub async fn boot_in(
        &mut self,
        slot: &Slot,
        firmware: &mut dyn FirmwareSource,
        options: boot::Options,
        report: &mut Option<boot::Report>,
    ) -> Result<(), Error> {
        let mut cx = Cx::new(&mut self.device, slot);
        *report = Some(boot::boot_telling(&mut cx, firmware, options, &mut self.ladder).await?);
        cx.end();
        Ok(())
    }

    /// In which state the device is found, and with that which path a boot takes. Only reads.
    pub fn state(&mut self) -> Result<boot::Reason, Error> {
        self.device.run(async |cx| boot::state(cx))
    }

    /// Resets the device without booting it.
    pub fn reset(&mut self, progress: &mut dyn FnMut(&Event)) -> Result<(), Error> {
        let ladder = &mut self.ladder;
        self.device.run_with(progress, async |cx| boot::reset(cx, ladder).await)
    }

    /// Shuts a device down that was booted, so that the next boot can be warm; see [`boot::fini`].
    pub fn fini(&mut self, progress: &mut dyn FnMut(&Event)) -> Result<(), Error> {
        self.device.run_with(progress, async |cx| boot::fini(cx, &mut |_| ()).await)
    }

    /// The resets that the last [`Probe::boot`] or [`Probe::reset`] tried, also if it failed.
    pub fn ladder(&self) -> boot::Ladder {
        self.ladder
    }

    /// Makes the memory manager for [`Probe::with_memory`]. `boot_blocks` and `pool_blocks` are
    /// storage for allocator state: each live allocation takes a slot and each gap between them
    /// another. Devices that lend the same `va` share their virtual addresses.
    pub fn memory<'s>(
        &mut self,
        boot_blocks: &'s mut [Block],
        pool_blocks: &'s mut [Block],
        va: &'s (dyn VirtualRange + Sync + 's),
    ) -> Result<Vm<'s, Running>, VmError<Error>> {
        let layout = &self.device.layout;
        let config = VmConfig {
            format: if self.device.chip.gc.0 >= 12 { PteFormat::Gfx12 } else { PteFormat::Gfx11 },
            va_base: crate::mm::vm::VA_BASE,
            boot: layout.boot.clone(),
            pool: layout.pool.clone(),
        };
        let stock = if self.device.bus.is_slow() { layout.stock() } else { 0..0 };
        let vm = Vm::new(&mut self.device, &config, boot_blocks, pool_blocks, va)?;
        Ok(vm.with_stock(stock).boot_done())
    }

    /// Adds the memory manager that [`Probe::memory`] made for this device.
    pub fn with_memory(self, ready: Ready, vm: Vm<'_, Running>) -> Gpu<'_, B> {
        let version = |block| self.ips.version(block).unwrap_or_default();
        let versions = IpVersions {
            gc: version(IpBlock::Gc),
            sdma: version(IpBlock::Sdma),
            nbio: version(IpBlock::Nbio),
        };
        let properties = properties(&self.ips);
        Gpu::new(self, ready, vm, properties, versions)
    }

    /// [`Probe::memory`] and [`Probe::with_memory`] in one, for who needs no bus after an error.
    pub fn into_gpu<'s>(
        mut self,
        ready: Ready,
        boot_blocks: &'s mut [Block],
        pool_blocks: &'s mut [Block],
        va: &'s (dyn VirtualRange + Sync + 's),
    ) -> Result<Gpu<'s, B>, VmError<Error>> {
        let vm = self.memory(boot_blocks, pool_blocks, va)?;
        Ok(self.with_memory(ready, vm))
    }
}
