//! What the commands need from a device. Each backend opens a [`Session`].

use crate::checks::Check;
use crate::error::CliError;
use crate::group::Group;
use crate::progress::Progress;
use crate::spec::DeviceSpec;
use amdev_core::bus::count::Counts;
use amdev_core::iface::QueueKind;
use std::path::PathBuf;

mod report;

pub use report::*;

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

/// How to boot.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootOptions {
    /// From nothing, even if a warm boot would do.
    pub cold: bool,
    /// Do not touch the device: collect the writes.
    pub dry_run: bool,
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

trait Unsupported {
    fn unsupported<T>(&self, command: &'static str) -> anyhow::Result<T>;
}

impl<S: Session + ?Sized> Unsupported for S {
    fn unsupported<T>(&self, command: &'static str) -> anyhow::Result<T> {
        Err(self.unsupported_error(command))
    }
}
