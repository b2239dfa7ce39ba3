//! The command line's grammar.

use crate::argspec::{ArgSpec, GRAMMAR};
use crate::dtype::parse_size;
use crate::error::EXIT_CODES;
use crate::spec::{self, DeviceSpec};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// AMD GPUs without a kernel driver.
#[derive(Parser, Debug)]
#[command(version, about = "Drives AMD GPUs without a kernel driver, and simulated ones", after_help = EXIT_CODES, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// The device; see [`spec`] for its forms.
    #[arg(long, help = DEVICE_HELP, long_help = DEVICE_LONG_HELP, global = true, env = "AMDEV_DEVICE", value_name = "DEV", default_value = spec::DEFAULT)]
    pub device: DeviceSpec,
    /// Directory with firmware files; may be repeated. The usual directories are searched after it.
    #[arg(long, global = true, env = "AMDEV_FIRMWARE", value_name = "DIR", value_delimiter = PATH_SEPARATOR)]
    pub firmware: Vec<PathBuf>,
    /// Write a trace of every access to the device, one JSON object a line.
    #[arg(long, global = true, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Print one JSON object on standard output.
    #[arg(long, global = true)]
    pub json: bool,
    /// Say more on standard error: -v stages and decisions, -vv waits and memory, -vvv every access.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Longest time for a copy or a kernel in seconds, by the device's clock and by this machine's.
    ///
    /// Without it a copy or a kernel may take 30 s by the device's clock. A simulated device's clock
    /// stands still while nothing happens, so that a simulated kernel may take longer than that by
    /// this machine's. Given, it bounds by this machine's clock all copies and kernels of the
    /// command together, `--repeat` included.
    #[arg(long, global = true, value_name = "S", value_parser = seconds)]
    pub timeout: Option<f64>,
    /// Leave the clocks as they are: they are pinned to their highest levels from boot to shutdown
    /// otherwise.
    #[arg(long, global = true)]
    pub no_pin_clocks: bool,
    /// Wait until the device is there (`usb:N` plugged in, `vfio-user:SOCKET` served), at most S seconds
    ///
    /// After an enclosure was unplugged, before its power is switched on, or while a server starts.
    /// Without S, a minute.
    #[arg(long, global = true, value_name = "S", value_parser = seconds, num_args = 0..=1,
          require_equals = true, default_missing_value = "60")]
    pub wait: Option<f64>,
    /// Take the device although it drives a screen or programs use it.
    #[arg(long, global = true)]
    pub force: bool,
}

const DEVICE_HELP: &str = "The device, for example sim:navi31 (see --help for all forms)";
const DEVICE_LONG_HELP: &str = "\
The device: sim:GPU[,key=value]..., sim-usb:GPU[,...], sim-kfd[:TARGET], pci:DDDD:BB:DD.F,
vfio-user:SOCKET, kfd:N, usb[:N].

GPU is navi31, navi32, navi33, navi44 or navi48; keys are state=cold|amdgpu|amdev|malformed,
bar=256M, count=8, fault=..., clock=virtual|real. A simulated device lives as long as the
command: what one command boots, the next one finds cold again.";

/// Separates directories in `AMDEV_FIRMWARE`, as in `PATH`.
const PATH_SEPARATOR: char = if cfg!(windows) { ';' } else { ':' };

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if s.is_finite() && s > 0.0 && s <= 86_400.0 => Ok(s),
        _ => Err("a number of seconds above 0, up to 86400, is expected".into()),
    }
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Boot, copy in, copy by SDMA, run a kernel, copy out, verify
    #[command(after_help = "\
Examples:
  amdev demo
  amdev --device sim:navi31,bar=256M demo
  amdev --firmware /usr/lib/firmware/amdgpu demo --elements 65536")]
    Demo(DemoArgs),
    /// List devices, and why one cannot be used
    #[command(after_help = "\
Examples:
  amdev list
  amdev list --json vfio-user:/tmp/gpu.sock
  amdev list sim:navi31,bar=256M,state=amdgpu")]
    List(ListArgs),
    /// Look at enclosures on USB: bridge firmware, USB speed, PCIe link, GPU
    #[command(after_help = "\
Examples:
  amdev-usb scan
  amdev-usb scan --json
  amdev-usb --device sim-usb:navi48,bridge=custom scan

Opens each enclosure and configures what is behind it, but does not touch the GPU's registers.
Exit code 3 if there is none that can be used.")]
    Scan,
    /// Check this machine: each check with the command that mends it
    #[command(after_help = "\
Examples:
  amdev doctor
  amdev --firmware DIR doctor --json

Exit code 1 if something is missing that every device needs.")]
    Doctor,
    /// Write versions, checks and a trace of the device's boot into one file, for a bug report
    #[command(after_help = "\
Examples:
  amdev report
  amdev --device vfio-user:/tmp/gpu.sock report --output report.txt
  amdev report --no-boot        only look at the device

The file names firmware folders, PCI devices and kernel version of this machine; read it before
you send it.")]
    Report(ReportArgs),
    /// Show what the discovery table says of a device, or of a table in a file
    #[command(after_help = "\
Examples:
  amdev info
  amdev info --discovery table.bin

amdgpu shows its GPU's table as root: cp /sys/kernel/debug/dri/0/amdgpu_discovery table.bin")]
    Info(InfoArgs),
    /// Bring the device up
    #[command(after_help = "\
Examples:
  amdev boot
  amdev --device sim:navi31 --firmware DIR boot --cold
  amdev boot --dry-run          print what would be written
  amdev --trace boot.jsonl boot  record every access

At its end the command shuts the device down in order, so that the next boot is warm. A simulated
device lives as long as the command: what this boots, the next command finds cold.

--dry-run reads the device's discovery table and state and leaves it alone; what is printed is what
a simulated GPU of the same kind, in the same state, was written.")]
    Boot(BootArgs),
    /// Shut the device down, so that the next boot can be warm
    #[command(after_help = "Example:\n  amdev fini\n
Every command does so at its end; what a process that died left is shut down by `release`. A simulated
device is booted first.")]
    Fini,
    /// Reset the device
    #[command(after_help = "Example:\n  amdev --device sim:navi31,state=amdgpu reset")]
    Reset,
    /// Give the device back: to the driver it was taken from, or to the next process
    #[command(after_help = "\
Examples:
  amdev --device pci:0000:03:00.0 release
  amdev --device vfio-user:/tmp/gpu.sock release

Ends what a process left running on the device: queues of a process that died are taken down and
translation is switched off, as after `fini`. A device that nobody uses stays as it is.")]
    Release,
    /// Run a kernel of a code object
    #[command(after_help = format!("\
Arguments (--arg, in the kernel's order):
{GRAMMAR}

What a kernel does outside its buffers is noticed in pages of 4 KiB, as on a GPU.

Examples:
  amdev run tests/corpus/co/fill.gfx1100.v5.O2.co --grid 4 --block 256 --arg out:u32:1024 --arg u32=7 --arg u32=1000
  amdev run tests/corpus/co/saxpy.gfx1100.v5.O2.co --grid 3 --block 128 \\
      --arg 'inout:f32:lcg_unit(seed=5):308' --arg 'in:f32:lcg_unit(seed=14):308' \\
      --arg f32=0.3 --arg u32=300"))]
    Run(RunArgs),
    /// Copy host to VRAM to VRAM to host through SDMA, verify, show rates
    #[command(after_help = "Example:\n  amdev copy --size 16M --repeat 4")]
    Copy(CopyArgs),
    /// Read, write and dump registers
    #[command(
        subcommand,
        after_help = "\
Examples:
  amdev regs read SCRATCH_REG7
  amdev regs write SCRATCH_REG1 0x1234
  amdev regs dump MMHUB"
    )]
    Regs(RegsCommand),
    /// Rings, taken apart into packets
    #[command(
        subcommand,
        after_help = "\
Examples:
  amdev ring dump
  amdev ring dump --queue sdma --last 8
  amdev ring dump --file ring.bin --queue compute"
    )]
    Ring(RingCommand),
    /// Show clocks, power, temperatures and activity
    #[command(after_help = "\
Examples:
  amdev smi
  amdev --device vfio-user:/tmp/gpu.sock smi --watch
  amdev smi --watch --count 5 --json

The device must have been booted by amdev, or be driven by amdgpu; a simulated one is booted
first. Nothing is set. A process that has the device is asked, which takes up to 5 s while it boots
or resets. Between samples nobody is hindered from taking the device. One that sleeps is not woken:
`asleep` is its state of power then.")]
    Smi(SmiArgs),
    /// Firmware images: what a GPU needs, what a directory has
    #[command(
        subcommand,
        after_help = "\
Examples:
  amdev fw list
  amdev fw check /usr/lib/firmware/amdgpu"
    )]
    Fw(FwCommand),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  amdev completions bash > /etc/bash_completion.d/amdev")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// `demo`
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// Elements of each vector; rounded up to whole workgroups of 256.
    #[arg(long, default_value = "4096", value_parser = elements)]
    pub elements: u32,
}

fn elements(text: &str) -> Result<u32, String> {
    match parse_size(text) {
        Ok(n @ 1..=0x0100_0000) => Ok(n as u32),
        _ => Err("between 1 and 16M elements are possible".into()),
    }
}

/// `list`
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Devices to look at beyond those that are found (a socket can be anywhere).
    #[arg(value_name = "DEV")]
    pub devices: Vec<DeviceSpec>,
}

/// `report`
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// The file; an existing one is not overwritten.
    #[arg(short, long, value_name = "FILE", default_value = "amdev-report.txt")]
    pub output: PathBuf,
    /// Do not boot the device: only its discovery table is read.
    #[arg(long)]
    pub no_boot: bool,
}

/// `info`
#[derive(Args, Debug)]
pub struct InfoArgs {
    /// A discovery table to read instead of the device's.
    #[arg(long, value_name = "FILE")]
    pub discovery: Option<PathBuf>,
}

/// `boot`
#[derive(Args, Debug)]
pub struct BootArgs {
    /// From nothing, even if a warm boot would do.
    #[arg(long)]
    pub cold: bool,
    /// Print the writes that would be done, and do none.
    #[arg(long)]
    pub dry_run: bool,
}

/// `run`
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The code object (an ELF file for the GPU's target).
    pub file: PathBuf,
    /// The kernel, if the file has several.
    #[arg(long, value_name = "NAME")]
    pub kernel: Option<String>,
    /// Number of workgroups.
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = dimensions)]
    pub grid: [u32; 3],
    /// Work-items of a workgroup.
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = dimensions)]
    pub block: [u32; 3],
    /// An argument; repeat in the kernel's order. See below.
    #[arg(long = "arg", value_name = "SPEC")]
    pub args: Vec<ArgSpec>,
    /// How often to run. Buffers keep their contents in between.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
}

/// `copy`
#[derive(Args, Debug)]
pub struct CopyArgs {
    /// Bytes to copy: 4096, 64K, 16M, 1G.
    #[arg(long, value_parser = parse_size, default_value = "1M")]
    pub size: u64,
    /// How often.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
}

/// `smi`
#[derive(Args, Debug)]
pub struct SmiArgs {
    /// A line for each sample, until it is stopped; with --json each line is an object.
    #[arg(long)]
    pub watch: bool,
    /// Seconds between samples.
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub interval: f64,
    /// So many samples only.
    #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
}

/// `regs`
#[derive(Subcommand, Debug)]
pub enum RegsCommand {
    /// Read a register and show its fields
    #[command(
        after_help = "Examples:\n  amdev regs read SCRATCH_REG7\n  amdev regs read gc.GRBM_STATUS 0x2004"
    )]
    Read {
        /// Names in the Linux headers, with or without block, `reg` or `mm`; or dword addresses.
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Write a register, and show what it reads afterwards
    #[command(after_help = "Example:\n  amdev regs write SCRATCH_REG1 0x1234")]
    Write {
        /// Name in the Linux headers; or a dword address.
        name: String,
        /// The value, decimal or 0x.
        #[arg(value_parser = register_value)]
        value: u32,
    },
    /// Read every known register of a block
    #[command(after_help = "Examples:\n  amdev regs dump MMHUB\n  amdev --json regs dump gc")]
    Dump {
        /// The block: GC, MMHUB, OSSSYS, HDP, NBIO, MP0, MP1.
        ip: String,
    },
}

/// `ring`
#[derive(Subcommand, Debug)]
pub enum RingCommand {
    /// Show the packets of the queues, or of a file with a ring's dwords
    #[command(after_help = "\
Examples:
  amdev ring dump                                 after a copy and a kernel
  amdev --json ring dump --queue sdma --last 8
  amdev ring dump --file ring.bin --queue compute

The device is booted, copies, runs the demo's kernel, and its rings are read back.")]
    Dump(RingDumpArgs),
}

/// `ring dump`
#[derive(Args, Debug)]
pub struct RingDumpArgs {
    /// Only this queue.
    #[arg(long, value_enum)]
    pub queue: Option<QueueName>,
    /// Only the last packets.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub last: Option<u32>,
    /// Dwords (little endian) of a ring of `--queue`, instead of a device's.
    #[arg(long, value_name = "FILE", requires = "queue")]
    pub file: Option<PathBuf>,
}

/// A queue by its name.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueName {
    /// PM4 packets.
    Compute,
    /// SDMA packets.
    Sdma,
}

/// `fw`
#[derive(Subcommand, Debug)]
pub enum FwCommand {
    /// The images that the device needs, and where they were found
    #[command(after_help = "Examples:\n  amdev fw list\n  amdev --device sim:navi48 --firmware DIR fw list")]
    List,
    /// Check the images of a directory: headers, sizes, versions
    #[command(after_help = "Example:\n  amdev fw check /usr/lib/firmware/amdgpu")]
    Check {
        /// The directory.
        dir: PathBuf,
    },
}

fn register_value(text: &str) -> Result<u32, String> {
    crate::dtype::parse_int(&text.replace('_', ""))
        .and_then(|v| u32::try_from(v).ok())
        .ok_or_else(|| format!("'{text}' is not a 32-bit value"))
}

fn dimensions(text: &str) -> Result<[u32; 3], String> {
    let mut out = [1; 3];
    let parts: Vec<&str> = text.split([',', 'x']).collect();
    if parts.len() > 3 {
        return Err("at most three dimensions: X,Y,Z".into());
    }
    for (to, part) in out.iter_mut().zip(&parts) {
        *to = part.trim().parse().ok().filter(|n| *n > 0).ok_or("each dimension is a number from 1 on")?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        fn check(command: &clap::Command) {
            for command in command.get_subcommands() {
                let help = command.get_after_help().map(|h| h.to_string()).unwrap_or_default();
                assert!(help.contains("Example"), "{}", command.get_name());
                check(command);
            }
        }
        check(&Cli::command());
    }

    #[test]
    fn every_example_is_understood() {
        fn examples(command: &clap::Command, found: &mut Vec<String>) {
            let help = command.get_after_help().map(|h| h.to_string()).unwrap_or_default();
            let joined = help.replace("\\\n", " ");
            found.extend(joined.lines().filter_map(|l| l.strip_prefix("  amdev ")).map(str::to_owned));
            command.get_subcommands().for_each(|c| examples(c, found));
        }
        let mut found = Vec::new();
        examples(&Cli::command(), &mut found);
        assert!(found.len() > 30, "{}", found.len());
        for line in found {
            // An explanation stands two spaces behind the command; what follows `>` is the shell's.
            let command = line.split(" > ").next().unwrap_or_default();
            let command =
                if command.contains('\'') { command } else { command.split("  ").next().unwrap_or(command) };
            let words = command.split_whitespace().map(|w| w.trim_matches('\''));
            let parsed = Cli::try_parse_from(std::iter::once("amdev").chain(words));
            if let Err(e) = parsed {
                assert!(!e.use_stderr(), "{line}: {e}");
            }
        }
    }

    #[test]
    fn global_options_stand_before_or_after_the_command() {
        let cli = parse("amdev --json --device usb:1 boot --cold --timeout 2.5 -vv").unwrap();
        assert_eq!(cli.global.device, DeviceSpec::Usb(1));
        assert!(cli.global.json && cli.global.verbose == 2 && cli.global.timeout == Some(2.5));
        assert!(matches!(cli.command, Command::Boot(BootArgs { cold: true, dry_run: false })));
    }

    #[test]
    fn run_takes_dimensions_and_arguments_in_order() {
        let cli = parse("amdev run k.co --grid 3,2 --block 16x16 --arg out:u32:960 --arg u32=40").unwrap();
        let Command::Run(run) = cli.command else { panic!("run expected") };
        assert_eq!((run.grid, run.block, run.args.len(), run.repeat), ([3, 2, 1], [16, 16, 1], 2, 1));
    }

    #[test]
    fn wrong_usage_is_refused() {
        for line in [
            "amdev",
            "amdev run k.co --block 1",
            "amdev run k.co --grid 0 --block 1",
            "amdev run k.co --grid 1,1,1,1 --block 1",
            "amdev run k.co --grid 1 --block 1 --arg u32",
            "amdev run k.co --grid 1 --block 1 --repeat 0",
            "amdev --device moon demo",
            "amdev --timeout -1 demo",
            "amdev --timeout nan demo",
            "amdev demo --elements 0",
            "amdev copy --size 12Q",
            "amdev regs write SCRATCH_REG7 0x100000000",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
