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
    /// Serves a GPU behind a simulated ASM2464PD USB bridge to a usbredir client (QEMU's usb-redir),
    /// one after another, until SIGTERM.
    ///
    /// Prints a line when a client can connect, and at the end a line of JSON: usb_commands,
    /// usb_transfers and bytes at the wire, counts of the GPU, and what was done wrong. SIGUSR1 pulls
    /// the cable, and plugs it in again.
    #[cfg(target_os = "linux")]
    Usb {
        /// GPU[,key=value]... as for serve, without map; pcie=on|off, and fault=usb-stall:N, usb-short:N,
        /// usb-late:N, usb-lost:N, usb-unplug:N (at a command), tlp-error:N, tlp-lost:N, tlp-crs:N,
        /// tlp-ur:N, tlp-ca:N, link-down:N (at a PCIe request).
        #[arg(long)]
        gpu: String,
        /// What runs on the bridge: the vendor's firmware with its identity patched, or the open one.
        #[arg(long, value_enum, default_value = "patched")]
        bridge: BridgeName,
        /// Path of the socket.
        #[arg(long)]
        socket: std::path::PathBuf,
    },
}

#[cfg(target_os = "linux")]
#[derive(Clone, Copy, clap::ValueEnum)]
enum BridgeName {
    Patched,
    Custom,
}

fn main() -> ExitCode {
    match Cli::parse().command {
        #[cfg(target_os = "linux")]
        Command::Usb { gpu, bridge, socket } => {
            use amdev_sim::bridge::Firmware;
            use amdev_sim::bridge::redir::{RedirError, options, serve};
            let firmware = match bridge {
                BridgeName::Patched => Firmware::Patched,
                BridgeName::Custom => Firmware::Custom,
            };
            let ready = || println!("serving {gpu} on {}", socket.display());
            match options(&gpu, firmware).and_then(|config| serve(config, &socket, ready)) {
                Ok(()) => ExitCode::SUCCESS,
                Err(e) => {
                    eprintln!("error: {e}");
                    ExitCode::from(if matches!(e, RedirError::Serve(_)) { 1 } else { 2 })
                }
            }
        }
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
