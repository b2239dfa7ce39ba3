//! What the driver makes of a device that fails: every register access of a boot, and every message of
//! a served device, failing in each way that it can.
//!
//! ```text
//! fault-matrix [--full] [--device sim:GPU] [--jobs N] [--only KIND]
//!
//!   ones      from this access on every read returns all ones
//!   corrupt   this read returns a wrong value: each bit of it alone, and all together
//!   death     the driver's process is killed at this access; the device lives on in its server
//!   lost, late, refused, gone
//!             this message to the server is lost, late or refused, or the server is gone
//! ```
//!
//! Each case has to end with success or an error: no panic, no hang. After each but `ones` and `gone`,
//! where nothing is left to boot, the next process must boot the device, copy, and shut it down.
//! Without `--full` a sample is made: each stage of the boot and each register at least once.

mod cases;
mod death;
mod messages;
mod pool;
mod proxy;
mod recorded;

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Lets a boot fail at every access.
#[derive(Parser)]
#[command(name = "fault-matrix")]
struct Cli {
    /// Every access and every message, instead of a sample.
    #[arg(long)]
    full: bool,
    /// A simulated device (sim:GPU); sim:navi31 and sim:navi48 when not given.
    #[arg(long, value_name = "DEV")]
    device: Vec<String>,
    /// Cases under way at the same time.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: u16,
    /// Only this kind of fault.
    #[arg(long, value_name = "KIND")]
    only: Vec<String>,
    #[command(subcommand)]
    role: Option<Role>,
}

/// What this program is as a process of its own.
#[derive(clap::Subcommand)]
enum Role {
    /// Serves a simulated GPU.
    #[command(hide = true)]
    Serve { gpu: String, socket: PathBuf },
    /// Boots a served GPU and dies on the way.
    #[command(hide = true)]
    Victim { socket: PathBuf, at: u64 },
}

const GPUS: [&str; 2] = ["navi31", "navi48"];

fn gpus(cli: &Cli) -> Result<Vec<String>, String> {
    if cli.device.is_empty() {
        return Ok(GPUS.map(String::from).to_vec());
    }
    let name = |device: &String| match device.strip_prefix("sim:") {
        Some(gpu) => amdev_sim::Config::new(gpu).map(|_| gpu.to_owned()).map_err(|e| e.to_string()),
        None => Err(format!("{device}: only simulated GPUs can be made to fail (sim:navi31)")),
    };
    cli.device.iter().map(name).collect()
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match &cli.role {
        Some(Role::Serve { gpu, socket }) => return death::serve(gpu, socket),
        Some(Role::Victim { socket, at }) => return death::victim(socket, *at),
        None => {}
    }
    let gpus = match gpus(&cli) {
        Ok(gpus) => gpus,
        Err(e) => {
            eprintln!("error: --device {e}");
            return ExitCode::from(2);
        }
    };
    match cases::run(&gpus, cli.full, cli.jobs.into(), &cli.only) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}
