//! Compares recorded facts with this driver and the simulator, a file a line.

mod files;
mod line;
mod run;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

const AFTER: &str = "\
A file may be packed (.gz); a folder stands for all files in it that fit the command.

Exit code: 0 everything is equal or has a listed reason, 1 something differs, 2 wrong usage or
unreadable files, 3 not possible yet.

Examples:
  golden replay tests/golden/navi31
  golden replay --firmware /lib/firmware/amdgpu tests/golden/navi48/boot.jsonl.gz
  golden sim tests/golden/navi31
  golden psp tests/golden/navi31/psp.json
  golden fw tests/golden/fw.json.gz --firmware /lib/firmware
  golden facts tests/corpus/facts --objects tests/corpus/co
  golden cases tests/corpus/cases --objects tests/corpus/co --device sim:navi31
  golden reject tests/corpus/malformed";

#[derive(Parser)]
#[command(name = "golden", about = "Compares recorded facts with this driver and its simulator", after_help = AFTER)]
struct Args {
    /// How many differences of a file are shown.
    #[arg(long, global = true, default_value_t = 5, value_name = "N")]
    show: usize,
    /// Print a `summary:` line at the end, as tests/run.sh reads it.
    #[arg(long, global = true)]
    summary: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Args)]
struct Plain {
    /// Files or folders.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(clap::Args)]
struct WithFirmware {
    /// Folder with the firmware files, or with an `amdgpu` folder that has them.
    #[arg(long, value_name = "DIR")]
    firmware: Vec<PathBuf>,
    /// Files or folders.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(clap::Args)]
struct WithObjects {
    /// Files or folders.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Folder with the code objects.
    #[arg(long, required = true, num_args = 1.., value_name = "DIR")]
    objects: Vec<PathBuf>,
    /// Device to run on; the simulated GPU of each object's target if not given.
    #[arg(long, value_name = "DEV")]
    device: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Traces of the reference driver (*.jsonl): this driver makes the same accesses. The device's
    /// description lies beside the trace; the flow is in the file's name.
    Replay(WithFirmware),
    /// Traces of the reference driver (*.jsonl), driven into the simulator: they run through, and the
    /// misuse reported is that of the reference's known faults.
    Sim(WithFirmware),
    /// PSP messages (psp.json, psp_fw2025.json, reset_psp.json).
    Psp(Plain),
    /// SMU messages (smu.json).
    Smu(Plain),
    /// Memory queue descriptors (mqd.json).
    Mqd(Plain),
    /// VM faults (faults.json).
    Faults(Plain),
    /// Scratch sizes (scratch.json).
    Scratch(Plain),
    /// Registers (regs_used.json, with device.json beside it).
    Regs(Plain),
    /// Firmware slices (fw.json).
    Fw(WithFirmware),
    /// Page tables (pt.json).
    Pt(Plain),
    /// The allocator (tlsf.json).
    Tlsf(Plain),
    /// Packets and rings (queues.json).
    Queues(Plain),
    /// Programs (program.json).
    Program(Plain),
    /// The simulated USB bridge (usb.json, with boot_usb_cdbs.txt of each GPU in the folders beside it).
    Usb(Plain),
    /// Facts on code objects.
    Facts(WithObjects),
    /// Kernels run through the whole driver, every buffer compared.
    Cases(WithObjects),
    /// Broken code objects. `expected.json` beside a file says what must happen; without it, the
    /// file must be rejected.
    Reject(Plain),
}

impl Command {
    fn name(&self) -> &'static str {
        match self {
            Command::Replay(_) => "replay",
            Command::Sim(_) => "sim",
            Command::Psp(_) => "psp",
            Command::Smu(_) => "smu",
            Command::Mqd(_) => "mqd",
            Command::Faults(_) => "faults",
            Command::Scratch(_) => "scratch",
            Command::Regs(_) => "regs",
            Command::Fw(_) => "fw",
            Command::Pt(_) => "pt",
            Command::Tlsf(_) => "tlsf",
            Command::Queues(_) => "queues",
            Command::Program(_) => "program",
            Command::Usb(_) => "usb",
            Command::Facts(_) => "facts",
            Command::Cases(_) => "cases",
            Command::Reject(_) => "reject",
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut out = line::Printer::new(args.show, args.summary);
    let none: &[PathBuf] = &[];
    match &args.command {
        Command::Replay(a) => run::replay(&mut out, &a.files, &a.firmware),
        Command::Sim(a) => run::sim(&mut out, &a.files, &a.firmware),
        Command::Psp(a) => run::device_file(&mut out, "psp", &a.files),
        Command::Smu(a) => run::device_file(&mut out, "smu", &a.files),
        Command::Mqd(a) => run::device_file(&mut out, "mqd", &a.files),
        Command::Faults(a) => run::device_file(&mut out, "faults", &a.files),
        Command::Regs(a) => run::device_file(&mut out, "regs_used", &a.files),
        Command::Fw(a) => run::firmware(&mut out, &a.files, &a.firmware),
        Command::Scratch(a) => run::plain(&mut out, "scratch", &a.files, none),
        Command::Pt(a) => run::plain(&mut out, "pt", &a.files, none),
        Command::Tlsf(a) => run::plain(&mut out, "tlsf", &a.files, none),
        Command::Queues(a) => run::plain(&mut out, "queues", &a.files, none),
        Command::Program(a) => run::plain(&mut out, "program", &a.files, none),
        Command::Usb(a) => run::usb(&mut out, &a.files),
        Command::Facts(a) => run::plain(&mut out, "facts", &a.files, &a.objects),
        Command::Cases(a) => run::cases(&mut out, &a.files, &a.objects, a.device.as_deref()),
        Command::Reject(a) => run::reject(&mut out, &a.files),
    }
    ExitCode::from(out.finish(args.command.name()))
}
