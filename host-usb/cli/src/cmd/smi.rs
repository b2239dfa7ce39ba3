//! `smi`: what the power management of a device measures.

use crate::args::SmiArgs;
use crate::output::{Outcome, table};
use crate::session::{BootOptions, Measured, Sample, SmiReport};
use crate::spec::DeviceSpec;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

pub(crate) fn run(context: &mut crate::Context<'_>, args: &SmiArgs) -> anyhow::Result<Outcome> {
    let json = context.global.json;
    if let Some(first) = context.smi(true) {
        // Nothing is held between samples: others take the device meanwhile, and give it back.
        let mut first = Some(first);
        return watch(json, args, &context.global.device.to_string(), || {
            first.take().or_else(|| context.smi(false)).unwrap_or_else(|| anyhow::bail!("no device any more"))
        });
    }
    let simulated = matches!(context.global.device, DeviceSpec::Sim(_) | DeviceSpec::SimUsb(_));
    context.with_session("smi", simulated, |session, progress| {
        if simulated {
            // It exists since this moment only.
            session.boot(&BootOptions::default(), progress)?;
        }
        watch(json, args, &session.device(), || Ok(Sample::Report(session.smi()?)))
    })
}

fn watch(
    json: bool,
    args: &SmiArgs,
    device: &str,
    mut sample: impl FnMut() -> anyhow::Result<Sample>,
) -> anyhow::Result<Outcome> {
    let mut left = if args.watch { args.count.unwrap_or(u64::MAX) } else { 1 };
    let mut last = sample()?;
    loop {
        left -= 1;
        if left == 0 || !show(json, device, &last) {
            return Ok(Outcome::new(text(device, &last), value(device, &last)));
        }
        loop {
            if pause(Duration::from_secs_f64(args.interval)) {
                return Ok(Outcome::new(text(device, &last), value(device, &last)));
            }
            match sample() {
                Ok(next) => {
                    last = next;
                    break;
                }
                // The signal may come in the middle of a sample as well as between two.
                Err(_) if crate::guard::stop_asked() => {
                    return Ok(Outcome::new(text(device, &last), value(device, &last)));
                }
                // Who watches sees it come back: its owner may be resetting it, or the cable be out.
                Err(e) if left > 1 => {
                    left -= 1;
                    if !show_error(json, device, &e) {
                        return Err(e);
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }
}

/// Prints a sample; false once nobody reads.
fn show(json: bool, device: &str, sample: &Sample) -> bool {
    let line = if json { value(device, sample).to_string() } else { line(sample) };
    writeln!(std::io::stdout(), "{line}").is_ok()
}

/// Prints what is in the place of a sample; false once nobody reads.
fn show_error(json: bool, device: &str, error: &anyhow::Error) -> bool {
    let error = crate::output::error_text(error);
    let line = if json {
        json!({ "device": device, "error": error }).to_string()
    } else {
        format!("no sample: {error}")
    };
    writeln!(std::io::stdout(), "{line}").is_ok()
}

/// Waits until the next sample; true if a signal asks for the end.
fn pause(time: Duration) -> bool {
    let until = Instant::now() + time;
    loop {
        if crate::guard::stop_asked() {
            return true;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        // In pieces: who asks for the end does not wait for the next look.
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}

fn value(device: &str, sample: &Sample) -> Value {
    match sample {
        Sample::Report(report) => json!(report),
        Sample::Asleep(state) => json!({ "device": device, "asleep": state }),
    }
}

/// One sample on one line.
fn line(sample: &Sample) -> String {
    let r = match sample {
        Sample::Report(report) => report,
        Sample::Asleep(state) => return format!("asleep ({state})"),
    };
    format!(
        "{:>5} MHz  memory {:>5} MHz  {:>3} % busy  memory {:>3} %  {:>4} W of {} W  {:>3} C  hotspot {:>3} C  fan {} rpm",
        r.gfxclk_mhz,
        r.memclk_mhz,
        r.gfx_activity,
        r.mem_activity,
        r.power_w,
        r.power_limit_w,
        r.edge_c,
        r.hotspot_c,
        r.fan_rpm
    )
}

fn text(device: &str, sample: &Sample) -> String {
    match sample {
        Sample::Report(report) => report_text(device, report),
        Sample::Asleep(state) => {
            format!("{device} sleeps ({state}) and is not woken; it measures again once something uses it\n")
        }
    }
}

fn report_text(device: &str, r: &SmiReport) -> String {
    let row = |what: &str, value: String| vec![what.to_owned(), value];
    let clock = |now: u16, levels: &[u16]| {
        let range = match (levels.first(), levels.last()) {
            (Some(low), Some(high)) => format!(" ({low} to {high})"),
            _ => String::new(),
        };
        format!("{now} MHz{range}")
    };
    let levels = |i: usize| r.levels_mhz.get(i).map_or(&[][..], |l| l.as_slice());
    let rows = [
        row("graphics clock", clock(r.gfxclk_mhz, levels(0))),
        row("memory clock", clock(r.memclk_mhz, levels(1))),
        row("fabric clock", clock(r.fclk_mhz, levels(2))),
        row("system clock", clock(r.socclk_mhz, levels(3))),
        row("graphics activity", format!("{} %", r.gfx_activity)),
        row("memory activity", format!("{} %", r.mem_activity)),
        row("power", format!("{} W of {} W", r.power_w, r.power_limit_w)),
        row("edge, hotspot, memory", format!("{} C, {} C, {} C", r.edge_c, r.hotspot_c, r.mem_c)),
        row("graphics voltage", format!("{} mV", r.gfx_mv)),
        row("fan", format!("{} rpm", r.fan_rpm)),
        row("sample", r.counter.to_string()),
    ];
    let by = match r.measured {
        Measured::Amdev => "",
        Measured::Owner => ", told by the process that has the device",
        Measured::Amdgpu => ", told by amdgpu",
    };
    let mut out = format!("{device}: SMU firmware {}", r.firmware);
    let _ = match r.measured {
        Measured::Amdgpu => writeln!(out, "{by}"),
        _ => writeln!(out, ", interface {:#x}{by}", r.interface),
    };
    if r.interface != r.known_interface {
        let _ = writeln!(
            out,
            "note: numbers are read as in interface {:#x}; with this firmware some may be wrong",
            r.known_interface
        );
    }
    out + &table(&["what", "value"], &rows)
}
