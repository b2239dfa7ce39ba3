//! The `amdev-sim` command: the simulated GPU for other processes.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Simulated AMD GPUs for drivers in other processes.
#[derive(Parser)]
#[command(name = "amdev-sim", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serves a GPU over a vfio-user socket, one client after another, until SIGTERM.
    ///
    /// Prints a line when clients can connect, and at the end a line of JSON: what the GPU was asked
    /// to do and what was done wrong (`counts`, `violations`).
    #[cfg(target_os = "linux")]
    Serve {
        /// GPU[,key=value]... with navi31, navi32, navi33, navi44 or navi48; keys: state, bar, fault,
        /// delays=on|off, seed, scratch7, and map=off to keep clients from mapping VRAM (BAR0): slower,
        /// but the simulator then sees HDP flushes that are forgotten, and TLB invalidations.
        #[arg(long)]
        gpu: String,
        /// Path of the socket.
        #[arg(long)]
        socket: std::path::PathBuf,
    },
}

fn main() -> ExitCode {
    match Cli::parse().command {
        #[cfg(target_os = "linux")]
        Command::Serve { gpu, socket } => {
            use amdev_sim::serve::{Options, ServeError, serve};
            let ready = || println!("serving {gpu} on {}", socket.display());
            match Options::parse(&gpu).and_then(|options| serve(options, &socket, ready)) {
                Ok(()) => ExitCode::SUCCESS,
                Err(e) => {
                    eprintln!("error: {e}");
                    ExitCode::from(match e {
                        ServeError::Gpu(_) | ServeError::Key(_) => 2,
                        ServeError::Socket { .. } | ServeError::System(..) => 1,
                    })
                }
            }
        }
    }
}
