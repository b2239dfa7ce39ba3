//! What the commands need from a device. Each backend opens a [`Session`].

use crate::checks::Check;
use crate::error::CliError;
use crate::group::Group;
use crate::packets::PacketRow;
use crate::progress::Progress;
use crate::spec::DeviceSpec;
use amdev_core::bus::count::Counts;
use amdev_core::iface::QueueKind;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What opening a device may need.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Directories with firmware, searched before the usual ones.
    pub firmware: Vec<PathBuf>,
    /// Small synthetic images instead of AMD's where none are found (simulated devices only).
    pub synthetic_firmware: bool,
    /// File that gets a trace of every access.
    pub trace: Option<PathBuf>,
    /// What the trace is of: the command.
    pub flow: String,
    /// Deadline of a single wait for the device, in seconds; the driver's own when `None`.
    pub timeout_s: Option<f64>,
    /// Clocks are left as they are instead of being pinned from boot to shutdown.
    pub leave_clocks: bool,
    /// The device is taken although it drives a screen or programs use it.
    pub force: bool,
}

/// A way to reach devices: simulator, VFIO, USB...
pub trait Backend {
    /// Whether it serves this kind of device.
    fn serves(&self, spec: &DeviceSpec) -> bool;

    /// The devices it finds.
    fn list(&self) -> Vec<Found>;

    /// What of this machine decides whether such devices can be used.
    fn checks(&self) -> Vec<Check> {
        Vec::new()
    }

    /// What stands between this machine and such devices (enclosures on USB), looked at one by one; the
    /// device chosen if that is one of them. `None` if nothing does.
    fn scan(&self, chosen: Option<&DeviceSpec>) -> Option<anyhow::Result<Vec<Scanned>>> {
        let _ = chosen;
        None
    }

    /// Waits until a device is plugged in, at most so many seconds.
    fn wait_for(&self, spec: &DeviceSpec, seconds: f64) -> anyhow::Result<()> {
        let _ = (spec, seconds);
        Ok(())
    }

    /// Gives a device back to whom the host took it from; `None` if such devices are not taken from
    /// anybody. What was done, in a few words.
    fn give_back(&self, spec: &DeviceSpec) -> Option<anyhow::Result<String>> {
        let _ = spec;
        None
    }

    /// Measures without taking the device from whoever has it, and without waking it; `None` if such
    /// devices are simply opened.
    fn smi(&self, spec: &DeviceSpec, options: &OpenOptions) -> Option<anyhow::Result<Sample>> {
        let _ = (spec, options);
        None
    }

    /// Opens one.
    fn open(&self, spec: &DeviceSpec, options: &OpenOptions) -> anyhow::Result<Box<dyn Session>>;

    /// How many devices a spec names; a wrong one names one, and [`Backend::open`] says what is wrong.
    fn count(&self, spec: &DeviceSpec) -> usize {
        let _ = spec;
        1
    }

    /// Opens all of them.
    fn open_group(&self, spec: &DeviceSpec, options: &OpenOptions) -> anyhow::Result<Box<dyn Group>> {
        let _ = options;
        Err(CliError::Device(format!("{spec} is one device; it has no group")).into())
    }
}

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

/// How to boot.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootOptions {
    /// From nothing, even if a warm boot would do.
    pub cold: bool,
    /// Do not touch the device: collect the writes.
    pub dry_run: bool,
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

/// An argument as the kernel gets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KernelArg {
    /// By value.
    Value(Vec<u8>),
    /// A buffer's address.
    Buffer(DeviceBuffer),
}

/// An open device.
///
/// A method that a kind of device cannot have keeps its default, which says so.
pub trait Session {
    /// The device, as on the command line.
    fn device(&self) -> String;

    /// What it is: discovery.
    fn info(&mut self) -> anyhow::Result<Info> {
        self.unsupported("info")
    }

    /// In which state it is. Only reads.
    fn state(&mut self) -> anyhow::Result<DeviceState> {
        self.unsupported("release")
    }

    /// Brings it up.
    fn boot(&mut self, options: &BootOptions, progress: &mut dyn Progress) -> anyhow::Result<BootReport> {
        let _ = (options, progress);
        self.unsupported("boot")
    }

    /// Shuts it down, so that the next boot can be warm.
    fn fini(&mut self, progress: &mut dyn Progress) -> anyhow::Result<BootReport> {
        let _ = progress;
        self.unsupported("fini")
    }

    /// Resets it.
    fn reset(&mut self, progress: &mut dyn Progress) -> anyhow::Result<BootReport> {
        let _ = progress;
        self.unsupported("reset")
    }

    /// Allocates VRAM.
    fn alloc(&mut self, len: u64) -> anyhow::Result<DeviceBuffer> {
        let _ = len;
        self.unsupported("run")
    }

    /// Gives VRAM back.
    fn free(&mut self, buffer: DeviceBuffer) -> anyhow::Result<()> {
        let _ = buffer;
        self.unsupported("run")
    }

    /// Copies from the host into VRAM through SDMA; nanoseconds by the device's clock.
    fn upload(&mut self, to: DeviceBuffer, data: &[u8]) -> anyhow::Result<u64> {
        let _ = (to, data);
        self.unsupported("copy")
    }

    /// Copies from VRAM to the host through SDMA; nanoseconds.
    fn download(&mut self, from: DeviceBuffer, data: &mut [u8]) -> anyhow::Result<u64> {
        let _ = (from, data);
        self.unsupported("copy")
    }

    /// Copies from VRAM to VRAM through SDMA; nanoseconds.
    fn copy(&mut self, to: DeviceBuffer, from: DeviceBuffer, len: u64) -> anyhow::Result<u64> {
        let _ = (to, from, len);
        self.unsupported("copy")
    }

    /// Loads a code object; `kernel` chooses one where it has several.
    fn load(&mut self, image: &[u8], kernel: Option<&str>) -> anyhow::Result<KernelInfo> {
        let _ = (image, kernel);
        self.unsupported("run")
    }

    /// Runs the loaded kernel and waits for its end; nanoseconds.
    fn run(&mut self, grid: [u32; 3], block: [u32; 3], args: &[KernelArg]) -> anyhow::Result<u64> {
        let _ = (grid, block, args);
        self.unsupported("run")
    }

    /// A queue's ring.
    fn ring(&mut self, kind: QueueKind) -> anyhow::Result<RingImage> {
        let _ = kind;
        self.unsupported("ring dump")
    }

    /// Reads a register by its name or dword address.
    fn reg_read(&mut self, name: &str) -> anyhow::Result<RegValue> {
        let _ = name;
        self.unsupported("regs")
    }

    /// Writes a register.
    fn reg_write(&mut self, name: &str, value: u32) -> anyhow::Result<RegValue> {
        let _ = (name, value);
        self.unsupported("regs")
    }

    /// Names of the registers of a block, or of all.
    fn reg_names(&mut self, block: Option<&str>) -> anyhow::Result<Vec<String>> {
        let _ = block;
        self.unsupported("regs")
    }

    /// What its power management measures.
    fn smi(&mut self) -> anyhow::Result<SmiReport> {
        self.unsupported("smi")
    }

    /// What decides which firmware it needs.
    fn firmware_versions(&mut self) -> anyhow::Result<amdev_fw::Versions> {
        self.unsupported("fw list")
    }

    /// What was done to the device so far.
    fn counts(&self) -> Counts {
        Counts::default()
    }

    /// What was done over USB so far; `None` for other ways to a device.
    fn usb_counts(&self) -> Option<UsbCounts> {
        None
    }

    /// Misuse that a simulated device saw, a line each; `None` if the device does not watch.
    fn violations(&mut self) -> Option<Vec<String>> {
        None
    }

    /// Ends the session: what it allocated is given back, the trace is complete. A booted device
    /// is shut down so that the next boot is warm; another one stays as it is.
    fn release(self: Box<Self>) -> anyhow::Result<()> {
        Ok(())
    }

    /// The error of a method that this kind of device does not have.
    #[doc(hidden)]
    fn unsupported_error(&self, command: &'static str) -> anyhow::Error {
        let why = "this kind of device has no such function".to_owned();
        CliError::Unsupported { device: self.device(), command, why }.into()
    }
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

trait Unsupported {
    fn unsupported<T>(&self, command: &'static str) -> anyhow::Result<T>;
}

impl<S: Session + ?Sized> Unsupported for S {
    fn unsupported<T>(&self, command: &'static str) -> anyhow::Result<T> {
        Err(self.unsupported_error(command))
    }
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
