//! The command line shared by `amdev` and `amdev-usb`.
//!
//! A binary registers its [`Backend`]s and calls [`run`]. Commands stand in [`cmd`], one file each;
//! what they need of a device is [`Session`].
#![forbid(unsafe_code)]

pub mod args;
pub mod argspec;
#[cfg(target_os = "linux")]
pub mod beside;
pub mod bus_session;
pub mod checks;
pub mod cmd;
pub mod discovery;
pub mod dtype;
pub mod error;
pub mod files;
pub mod generate;
pub mod group;
pub mod guard;
pub mod kernels;
pub mod output;
#[cfg(target_os = "linux")]
pub mod owner;
pub mod packets;
pub mod progress;
pub mod regnames;
pub mod session;
#[cfg(feature = "sim")]
pub mod sim;
pub mod spec;
pub mod trace_file;

use anyhow::Context as _;
use args::{Cli, Command};
use clap::{CommandFactory as _, FromArgMatches as _};
use error::{CliError, exit_code};
use group::Group;
use output::{Outcome, error_json, error_text};
use progress::{Bars, Progress, Silent};
use session::{Backend, OpenOptions, Sample, Session};
use spec::DeviceSpec;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Instant;

/// A program made of this command line.
pub struct Program {
    /// Name of the binary.
    pub name: &'static str,
    /// The ways it has to reach devices; the first that serves a device is taken.
    pub backends: Vec<Box<dyn Backend>>,
}

/// What a command has at hand.
pub struct Context<'a> {
    /// The binary.
    pub program: &'a Program,
    /// Options of every command.
    pub global: args::Global,
    /// Shows progress.
    pub progress: Box<dyn Progress>,
}

impl Context<'_> {
    /// Opens the device chosen, does `work` with it and releases it, whatever came out: the trace
    /// of a failure is what one wants to see. `flow` is the command, for the trace.
    pub fn with_session<T>(
        &mut self,
        flow: &str,
        synthetic_firmware: bool,
        work: impl FnOnce(&mut dyn Session, &mut dyn Progress) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let mut session = self.open(flow, synthetic_firmware)?;
        let result = work(session.as_mut(), self.progress.as_mut());
        // A simulated device that was misused says so: often that is why the work failed.
        let misuse = if result.is_err() { session.violations().unwrap_or_default() } else { Vec::new() };
        let released = session.release();
        let value = match result {
            Err(e) if !misuse.is_empty() => {
                return Err(e.context(format!("the simulated GPU saw {}", misuse.join("; "))));
            }
            other => other?,
        };
        released?;
        Ok(value)
    }

    /// How many devices the chosen one stands for (`count=8`).
    pub fn device_count(&self) -> anyhow::Result<usize> {
        Ok(self.backend()?.count(&self.global.device))
    }

    /// As [`Context::with_session`], with all devices that the chosen one stands for.
    pub fn with_group<T>(
        &mut self,
        flow: &str,
        synthetic_firmware: bool,
        work: impl FnOnce(&mut dyn Group, &mut dyn Progress) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let spec = &self.global.device;
        let options = self.open_options(flow, synthetic_firmware);
        let mut group =
            self.backend()?.open_group(spec, &options).with_context(|| format!("opening {spec}"))?;
        let result = work(group.as_mut(), self.progress.as_mut());
        let faults = if result.is_err() { group.faults() } else { Vec::new() };
        let result = result.map_err(|e| match faults.is_empty() {
            true => e,
            false => e.context(format!("besides what follows, {}", faults.join("; "))),
        });
        let mut misuse = Vec::new();
        for index in 0..if result.is_err() { group.count() } else { 0 } {
            let seen = group.member(index).ok().and_then(|m| m.violations()).unwrap_or_default();
            misuse.extend(seen.into_iter().map(|v| format!("GPU {index}: {v}")));
        }
        let released = group.release();
        let value = match result {
            Err(e) if !misuse.is_empty() => {
                return Err(e.context(format!("the simulated GPUs saw {}", misuse.join("; "))));
            }
            other => other?,
        };
        released?;
        Ok(value)
    }

    fn backend(&self) -> anyhow::Result<&dyn Backend> {
        let spec = &self.global.device;
        let found = self.program.backends.iter().find(|b| b.serves(spec)).ok_or_else(|| {
            let name = self.program.name;
            CliError::Device(match spec {
                DeviceSpec::Kfd(_) | DeviceSpec::SimKfd(_) => {
                    format!("{spec}: the way through the kernel's driver is not there yet; `{name} list` shows devices")
                }
                DeviceSpec::Pci(_) | DeviceSpec::VfioUser(_) => {
                    format!("{name} does not reach {spec}; `amdev`, on Linux, does")
                }
                _ => format!("{name} is built without support for {spec}"),
            })
        })?;
        Ok(found.as_ref())
    }

    fn open_options(&self, flow: &str, synthetic_firmware: bool) -> OpenOptions {
        OpenOptions {
            firmware: self.global.firmware.clone(),
            synthetic_firmware,
            trace: self.global.trace.clone(),
            flow: flow.to_owned(),
            timeout_s: self.global.timeout,
            leave_clocks: self.global.no_pin_clocks,
            force: self.global.force,
        }
    }

    /// A sample of the device chosen, where that is not opened for long; its trace is of one.
    fn smi(&self, traced: bool) -> Option<anyhow::Result<Sample>> {
        let mut options = self.open_options("smi", false);
        if !traced {
            options.trace = None;
        }
        match self.backend() {
            Ok(backend) => backend.smi(&self.global.device, &options),
            Err(e) => Some(Err(e)),
        }
    }

    fn open(&self, flow: &str, synthetic_firmware: bool) -> anyhow::Result<Box<dyn Session>> {
        let spec = &self.global.device;
        let backend = self.backend()?;
        if backend.count(spec) > 1 {
            let what = format!("{spec}: `{flow}` uses one device; count= is for `demo` and `boot`");
            return Err(CliError::Usage(what).into());
        }
        let options = self.open_options(flow, synthetic_firmware);
        if let Some(seconds) = self.global.wait {
            backend.wait_for(spec, seconds)?;
        }
        backend.open(spec, &options).with_context(|| format!("opening {spec}"))
    }
}

/// `--timeout` for work of several parts: by this machine's clock they end in time together.
#[derive(Clone, Copy, Debug)]
pub struct Limit(Option<(Instant, f64)>);

impl Limit {
    /// So many seconds from now on, if any.
    pub fn new(seconds: Option<f64>) -> Self {
        Limit(seconds.map(|limit| (Instant::now(), limit)))
    }

    /// An error if the time is over or a signal asks for the end; `done` says how far the work came.
    pub fn check(&self, done: impl FnOnce() -> String) -> anyhow::Result<()> {
        if guard::stop_asked() {
            return Err(anyhow::Error::from(amdev_core::bus::BusError::Stopped).context(done()));
        }
        match self.0 {
            Some((start, limit)) if start.elapsed().as_secs_f64() > limit => {
                anyhow::bail!("--timeout: after {limit} s {}; give more time or less to do", done())
            }
            _ => Ok(()),
        }
    }
}

/// Runs the command that the process's arguments name.
pub fn run(program: &Program) -> ExitCode {
    let command = without_empty_variables(Cli::command().name(program.name).bin_name(program.name));
    let parsed = command.try_get_matches().and_then(|m| Cli::from_arg_matches(&m));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(e) if e.use_stderr() && asks_for_json(std::env::args_os()) => {
            let text = e.render().to_string();
            let text = text.trim().trim_start_matches("error: ").to_owned();
            return finish(Err(CliError::Usage(text).into()), true);
        }
        // Prints help and version to stdout, errors to stderr; exit code 2 for errors.
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
        }
    };
    let colour = use_colour();
    init_log(cli.global.verbose, colour);
    guard::watch_signals();
    let json = cli.global.json;
    // Lines of the log would tear a bar apart.
    let watched = std::io::stderr().is_terminal() && !json && cli.global.verbose == 0;
    let progress: Box<dyn Progress> = if watched { Box::new(Bars::new(colour)) } else { Box::new(Silent) };
    let result = files::check(&cli.global, &cli.command).map_err(anyhow::Error::from);
    let mut context = Context { program, global: cli.global, progress };
    let result = result.and_then(|()| execute(&mut context, cli.command));
    drop(context);
    finish(result, json)
}

/// A variable that is set but empty is as good as one that is not set.
fn without_empty_variables(mut command: clap::Command) -> clap::Command {
    for (argument, variable) in [("device", "AMDEV_DEVICE"), ("firmware", "AMDEV_FIRMWARE")] {
        if std::env::var_os(variable).is_some_and(|v| v.is_empty()) {
            command = command.mut_arg(argument, |a| a.env(None::<&str>));
        }
    }
    command
}

/// Whether `--json` stands among arguments that could not be understood otherwise.
fn asks_for_json(args: impl Iterator<Item = std::ffi::OsString>) -> bool {
    args.take_while(|a| a != "--").any(|a| a == "--json")
}

fn execute(context: &mut Context<'_>, command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Demo(args) => cmd::demo::run(context, &args),
        Command::List(args) => cmd::list::run(context, &args),
        Command::Scan => cmd::scan::run(context),
        Command::Doctor => cmd::doctor::run(context),
        Command::Report(args) => cmd::report::run(context, &args),
        Command::Info(args) => cmd::info::run(context, &args),
        Command::Boot(args) => cmd::boot::run(context, &args),
        Command::Fini => cmd::fini::run(context),
        Command::Reset => cmd::reset::run(context),
        Command::Release => cmd::release::run(context),
        Command::Run(args) => cmd::run::run(context, &args),
        Command::Copy(args) => cmd::copy::run(context, &args),
        Command::Regs(command) => cmd::regs::run(context, &command),
        Command::Ring(command) => cmd::ring::run(context, &command),
        Command::Fw(command) => cmd::fw::run(context, &command),
        Command::Smi(args) => cmd::smi::run(context, &args),
        Command::Completions { shell } => cmd::completions::run(context, shell),
    }
}

fn finish(result: anyhow::Result<Outcome>, json: bool) -> ExitCode {
    let (text, code) = match result {
        Ok(outcome) => {
            let code = if outcome.ok { 0 } else { outcome.code };
            let text = if json { outcome.into_json().to_string() + "\n" } else { outcome.text };
            (text, code)
        }
        Err(error) => {
            let code = exit_code(&error);
            if !json {
                let _ = writeln!(std::io::stderr(), "error: {}", error_text(&error));
            }
            (if json { error_json(&error, code).to_string() + "\n" } else { String::new() }, code)
        }
    };
    // A closed pipe (`amdev list | head -1`) is no failure of the command.
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            let _ = writeln!(std::io::stderr(), "error: standard output: {e}");
            ExitCode::from(1)
        }
        _ => ExitCode::from(code),
    }
}

fn use_colour() -> bool {
    let forbidden = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    !forbidden && std::io::stderr().is_terminal()
}

fn init_log(verbose: u8, colour: bool) {
    let level = match verbose {
        0 => tracing::Level::WARN,
        1 => tracing::Level::INFO,
        2 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_ansi(colour).with_target(false);
    // A closed or full standard error ends the notes, not the work.
    let log = log.log_internal_errors(false);
    // Fails only if a log exists already, as in tests that call this twice.
    let _ = log.with_writer(std::io::stderr).try_init();
}
