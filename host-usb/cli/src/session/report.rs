//! What sessions tell: of devices, boots, registers, measurements.

use crate::packets::PacketRow;
use amdev_core::bus::count::Counts;
use amdev_core::iface::QueueKind;
use serde::{Deserialize, Serialize};

/// A device that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// What to write after `--device`.
    pub device: String,
    /// What it is.
    pub name: String,
    /// Why it cannot be used, if so.
    pub problem: Option<String>,
}

/// An enclosure that was looked at.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Scanned {
    /// What to write after `--device`.
    pub device: String,
    /// What it calls itself, and its identity.
    pub enclosure: String,
    /// Where it is plugged in, and at which speed it runs.
    pub usb: String,
    /// What runs on its bridge.
    pub firmware: Option<String>,
    /// The link to the card.
    pub link: Option<String>,
    /// The card.
    pub gpu: Option<String>,
    /// Why it cannot be used, if so.
    pub problem: Option<String>,
}

/// A part of a boot.
#[derive(Clone, Debug, Serialize)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// How long it took by the device's clock, in microseconds.
    pub us: u64,
}

/// A reset that was tried.
#[derive(Clone, Debug, Serialize)]
pub struct Reset {
    /// `queue reset`, `MEC reset`, `mode-1 reset` or `bus reset`.
    pub reset: String,
    /// What came of it.
    pub outcome: String,
    /// Whether the device could be booted afterwards.
    pub helped: bool,
}

/// What was done over USB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct UsbCounts {
    /// Commands: command blocks, and vendor requests.
    pub usb_commands: u64,
    /// Transfers.
    pub usb_transfers: u64,
}

impl UsbCounts {
    /// What was done since.
    pub fn since(&self, before: &UsbCounts) -> UsbCounts {
        UsbCounts {
            usb_commands: self.usb_commands.saturating_sub(before.usb_commands),
            usb_transfers: self.usb_transfers.saturating_sub(before.usb_transfers),
        }
    }
}

/// What a boot, fini or reset did.
#[derive(Clone, Debug, Default)]
pub struct BootReport {
    /// `cold`, `warm`, ...
    pub path: String,
    /// Why this path.
    pub why: String,
    /// Where the firmware came from.
    pub firmware: Option<String>,
    /// Its parts in order.
    pub stages: Vec<Stage>,
    /// What was done to the device.
    pub counts: Counts,
    /// What that took over USB.
    pub usb: Option<UsbCounts>,
    /// Whether the whole device was reset on the way.
    pub reset_done: bool,
    /// The resets that were tried, in order: which, and what came of it.
    pub resets: Vec<Reset>,
    /// With `dry_run`, the writes that would have been done, a line each.
    pub writes: Vec<String>,
}

/// An IP block of the discovery table.
#[derive(Clone, Debug, Serialize)]
pub struct IpInfo {
    /// Name, as Linux has it (`GC`).
    pub name: String,
    /// Instance.
    pub instance: u8,
    /// Version, `11.0.0`.
    pub version: String,
    /// Base addresses in dwords.
    pub bases: Vec<u64>,
    /// True if the harvest table switches it off.
    pub harvested: bool,
}

/// What a device is.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Info {
    /// Marketing or code name, where known.
    pub name: String,
    /// Target of code objects, `gfx1100`.
    pub target: String,
    /// VRAM in bytes; 0 if unknown (table from a file).
    pub vram_bytes: u64,
    /// Compute units by the table; some may be fused off inside a shader array.
    pub compute_units: u32,
    /// Shader engines.
    pub shader_engines: u32,
    /// Shader arrays per engine.
    pub arrays_per_engine: u32,
    /// Lanes of a wave.
    pub wave_size: u32,
    /// LDS of a workgroup in bytes.
    pub lds_bytes: u32,
    /// The blocks.
    pub ips: Vec<IpInfo>,
    /// Images a boot needs, in order.
    pub firmware: Vec<String>,
    /// Anything worth knowing (warnings of the parser).
    pub notes: Vec<String>,
}

/// In which state a device is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceState {
    /// As after power-on.
    Cold,
    /// Another driver has set it up.
    Foreign,
    /// This driver has set it up and left it in order.
    InOrder,
    /// This driver has set it up, and the process that used it did not shut it down.
    Disorder,
    /// A version of this driver with another layout has set it up.
    OtherLayout(u32),
}

impl std::fmt::Display for DeviceState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DeviceState::Cold => f.write_str("as after power-on"),
            DeviceState::Foreign => f.write_str("set up by another driver"),
            DeviceState::InOrder => f.write_str("left in order by this driver"),
            DeviceState::Disorder => f.write_str("left in disorder by a process that did not shut it down"),
            DeviceState::OtherLayout(version) => {
                write!(f, "set up by a version of this driver with layout {version}")
            }
        }
    }
}

/// A queue's ring, read back.
#[derive(Clone, Debug)]
pub struct RingImage {
    /// What it executes.
    pub kind: QueueKind,
    /// Its size in bytes.
    pub size: u64,
    /// Read pointer, in the queue's own unit.
    pub read: u64,
    /// Write pointer, in the queue's own unit.
    pub write: u64,
    /// Its packets since it was last filled from the start.
    pub packets: Vec<PacketRow>,
    /// What ended the list early.
    pub error: Option<String>,
}

/// Memory on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceBuffer {
    /// GPU virtual address.
    pub va: u64,
    /// Length in bytes.
    pub len: u64,
    /// The session's own number for it.
    pub id: usize,
}

/// A kernel that was loaded.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KernelInfo {
    /// Its name.
    pub name: String,
    /// Sizes of its explicit arguments in bytes, in order, where the metadata tells them.
    pub arg_sizes: Vec<u32>,
    /// Static LDS in bytes.
    pub lds_bytes: u32,
    /// Scratch per lane in bytes.
    pub scratch_bytes: u32,
    /// Vector registers.
    pub vgprs: u32,
    /// Scalar registers.
    pub sgprs: u32,
    /// Lanes of a wave.
    pub wave_size: u32,
}

/// Who has measured.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measured {
    /// This process.
    #[default]
    Amdev,
    /// The process that owns the device.
    Owner,
    /// Its kernel driver, amdgpu.
    Amdgpu,
}

/// What `smi` finds.
#[derive(Clone, Debug)]
pub enum Sample {
    /// What is measured.
    Report(SmiReport),
    /// The device sleeps, in this state of power (`D3cold`), and is left to.
    Asleep(String),
}

/// A sample of what the power management measures.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SmiReport {
    /// Who has measured.
    pub measured: Measured,
    /// Version of its firmware, `78.135.0`.
    pub firmware: String,
    /// Version of the firmware's interface; 0 if it is not known.
    pub interface: u32,
    /// The version that these numbers are known of.
    pub known_interface: u32,
    /// Levels in MHz of the graphics, memory, fabric and system clock, lowest first.
    pub levels_mhz: Vec<Vec<u16>>,
    /// Graphics clock.
    pub gfxclk_mhz: u16,
    /// Memory clock.
    pub memclk_mhz: u16,
    /// Fabric clock.
    pub fclk_mhz: u16,
    /// System clock.
    pub socclk_mhz: u16,
    /// Graphics activity in percent.
    pub gfx_activity: u16,
    /// Memory activity in percent.
    pub mem_activity: u16,
    /// Power in watts.
    pub power_w: u16,
    /// Power limit in watts.
    pub power_limit_w: u32,
    /// Temperature of the die's edge in degrees Celsius.
    pub edge_c: u16,
    /// Temperature of the hottest point.
    pub hotspot_c: u16,
    /// Temperature of the memory.
    pub mem_c: u16,
    /// Graphics voltage in millivolts.
    pub gfx_mv: u16,
    /// Fan speed in revolutions per minute.
    pub fan_rpm: u16,
    /// Number of the sample.
    pub counter: u32,
}

/// A register's value, taken apart.
#[derive(Clone, Debug, Serialize)]
pub struct RegValue {
    /// Block.
    pub block: String,
    /// Name.
    pub name: String,
    /// Dword address.
    pub addr: u32,
    /// The value.
    pub value: u32,
    /// Fields: name and value.
    pub fields: Vec<(String, u32)>,
}
