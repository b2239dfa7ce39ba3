//! `smi`: what the power management of a device measures.

use crate::args::SmiArgs;
use crate::output::{Outcome, table};
use crate::session::{BootOptions, Session, SmiReport};
use crate::spec::DeviceSpec;
use serde_json::json;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

pub(crate) fn run(context: &mut crate::Context<'_>, args: &SmiArgs) -> anyhow::Result<Outcome> {
    let simulated = matches!(context.global.device, DeviceSpec::Sim(_) | DeviceSpec::SimUsb(_));
    let json = context.global.json;
    context.with_session("smi", simulated, |session, progress| {
        if simulated {
            // It exists since this moment only.
            session.boot(&BootOptions::default(), progress)?;
        }
        let mut left = if args.watch { args.count.unwrap_or(u64::MAX) } else { 1 };
        loop {
            let report = session.smi()?;
            left -= 1;
            if left == 0 {
                return Ok(Outcome::new(text(session, &report), json!(report)));
            }
            // A closed pipe ends the watching.
            let line = if json { json!(report).to_string() } else { line(&report) };
            if writeln!(std::io::stdout(), "{line}").is_err() {
                return Ok(Outcome::new(String::new(), json!(report)));
            }
            let until = Instant::now() + Duration::from_secs_f64(args.interval);
            loop {
                if crate::guard::stop_asked() {
                    return Ok(Outcome::new(text(session, &report), json!(report)));
                }
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                // In pieces: who asks for the end does not wait for the next look.
                std::thread::sleep(left.min(Duration::from_millis(100)));
            }
        }
    })
}

/// One sample on one line.
fn line(r: &SmiReport) -> String {
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

fn text(session: &dyn Session, r: &SmiReport) -> String {
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
    let mut out =
        format!("{}: SMU firmware {}, interface {:#x}\n", session.device(), r.firmware, r.interface);
    if r.interface != r.known_interface {
        let _ = writeln!(
            out,
            "note: numbers are read as in interface {:#x}; with this firmware some may be wrong",
            r.known_interface
        );
    }
    out + &table(&["what", "value"], &rows)
}
