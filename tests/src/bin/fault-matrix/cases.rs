//! Which cases there are, and which of them make a sample.

use crate::proxy::Mishap;
use crate::recorded::{Access, Flow, Steps, accesses};
use crate::{death, messages, pool};
use amdev_cli::sim::{Assigned, SimBus};
use amdev_core::bus::Window;
use amdev_core::bus::fault::{Fault, FaultPlan};
use amdev_tests::gpus;
use std::collections::HashSet;
use std::fmt;
use std::time::Instant;

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Ones,
    Corrupt,
    Death,
    Message(Mishap),
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::Ones,
        Kind::Corrupt,
        Kind::Death,
        Kind::Message(Mishap::Lost),
        Kind::Message(Mishap::Late),
        Kind::Message(Mishap::Refused),
        Kind::Message(Mishap::Gone),
    ];

    fn name(self) -> &'static str {
        match self {
            Kind::Ones => "ones",
            Kind::Corrupt => "corrupt",
            Kind::Death => "death",
            Kind::Message(Mishap::Lost) => "lost",
            Kind::Message(Mishap::Late) => "late",
            Kind::Message(Mishap::Refused) => "refused",
            Kind::Message(Mishap::Gone) => "gone",
        }
    }
}

/// One case.
#[derive(Clone)]
struct Case {
    gpu: String,
    flow: Flow,
    kind: Kind,
    at: u64,
    /// What is done there.
    what: String,
    /// Bits that a corrupted read gets wrong.
    mask: u32,
    /// One of the last: a boot in real time may end before it.
    late: bool,
}

/// So many polls fewer a boot may need in real time.
const FEWER: u64 = 8;

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { gpu, flow, kind, at, what, mask, .. } = self;
        write!(f, "{gpu} {flow:?} boot, {} at {at} ({what})", kind.name())?;
        if *mask != 0 { write!(f, ", bits {mask:#x}") } else { Ok(()) }
    }
}

impl Case {
    fn run(&self) -> Result<(), String> {
        match self.kind {
            Kind::Ones => self.decorated(FaultPlan { all_ones_from: Some(self.at), ..FaultPlan::default() }),
            Kind::Corrupt => {
                self.decorated(FaultPlan { corrupt_read: Some((self.at, self.mask)), ..FaultPlan::default() })
            }
            Kind::Death => death::die(&self.gpu, self.flow, self.at, self.late),
            Kind::Message(mishap) => messages::fail(&self.gpu, self.flow, self.at, mishap),
        }
    }

    /// In this process, in virtual time.
    fn decorated(&self, plan: FaultPlan) -> Result<(), String> {
        let gpu =
            gpus::gpu(&format!("{},state={}", self.gpu, self.flow.state())).map_err(|e| e.to_string())?;
        let assigned = Assigned::of(&gpu);
        // Success or an error, both are fine.
        let _ = gpus::process(Fault::new(SimBus::new(gpu.clone()), plan));
        if self.kind == Kind::Ones {
            // Back on the bus after power was off: as new.
            gpu.unplug();
            gpu.plug();
        }
        let next = gpus::process(gpus::reopen(&gpu, &assigned));
        next.map(drop).map_err(|e| format!("the next boot: {e:#}; {:?}", gpu.violations()))
    }
}

fn what(a: &Access) -> String {
    let verb = if a.write { "write" } else { "read" };
    let stage = a.stage.map_or_else(|| "opening".to_owned(), |s| s.to_string());
    format!("{verb} of {} at {:#x}, stage {stage}", a.window, a.offset)
}

/// All cases of one kind on one boot, and whether each belongs to the sample. `known` is what other
/// boots have covered already.
type Known = HashSet<String>;

fn of_accesses(gpu: &str, flow: Flow, kind: Kind, known: &mut Known) -> anyhow::Result<Vec<(Case, bool)>> {
    let settings = if kind == Kind::Death { ",delays=off" } else { "" };
    let mut steps = Steps::default();
    let mut last = None;
    let mut out = Vec::new();
    for (n, a) in accesses(gpu, flow, settings)?.iter().enumerate() {
        let at = match kind {
            // Processes in real time poll more or less often: what counts is what is polled.
            Kind::Death => steps.of(a.window, a.offset, a.write),
            Kind::Corrupt if a.write => continue,
            _ => n as u64,
        };
        if last.replace(at) == Some(at) {
            continue;
        }
        let place = if a.window == Window::Registers { a.offset } else { 0 };
        // Deaths are dear: there a register counts for all GPUs and boots, a stage for each boot.
        let scope = if kind == Kind::Death { String::new() } else { gpu.to_owned() };
        let register = known.insert(format!("{scope}{}{:?}{place}", kind.name(), a.window));
        let stage = known.insert(format!("{gpu}{flow:?}{}{:?}", kind.name(), a.stage));
        let case = Case { gpu: gpu.to_owned(), flow, kind, at, what: what(a), mask: 0, late: false };
        if kind != Kind::Corrupt {
            out.push((case, register || stage));
            continue;
        }
        // Each bit alone, and all together; in the sample another one each time.
        let sampled = if at % 5 == 4 { u32::MAX } else { 1 << (at * 7 % 32) };
        for mask in (0..32).map(|bit| 1 << bit).chain([u32::MAX]) {
            out.push((Case { mask, ..case.clone() }, (register || stage) && mask == sampled));
        }
    }
    let end = last.unwrap_or_default();
    for (case, _) in &mut out {
        case.late = case.at.saturating_add(FEWER) > end;
    }
    Ok(out)
}

fn of_messages(gpu: &str, flow: Flow, kind: Kind, known: &mut Known) -> anyhow::Result<Vec<(Case, bool)>> {
    let seen = messages::seen(gpu, flow).map_err(anyhow::Error::msg)?;
    let total = seen.len();
    let each = |(at, (command, region, offset)): (usize, &(u16, u32, u64))| {
        let first = known.insert(format!("{gpu}{}{command}.{region}", kind.name()));
        let what = format!("message {command}, region {region} at {offset:#x}");
        let spread = at % (total / 4).max(1) == total / 8;
        (Case { gpu: gpu.to_owned(), flow, kind, at: at as u64, what, mask: 0, late: false }, first || spread)
    };
    Ok(seen.iter().enumerate().map(each).collect())
}

/// Runs them; true if all went as they should.
pub(crate) fn run(gpus: &[String], full: bool, jobs: usize, only: &[String]) -> anyhow::Result<bool> {
    // What panics is told with its case.
    std::panic::set_hook(Box::new(|_| ()));
    if let Some(unknown) = only.iter().find(|name| !Kind::ALL.iter().any(|k| k.name() == *name)) {
        let known: Vec<_> = Kind::ALL.iter().map(|k| k.name()).collect();
        anyhow::bail!("--only {unknown}: the kinds are {}", known.join(", "));
    }
    let mut good = true;
    let (mut done, mut all) = (0, 0);
    for kind in Kind::ALL {
        if !only.is_empty() && !only.iter().any(|name| name == kind.name()) {
            continue;
        }
        let start = Instant::now();
        let mut known = HashSet::new();
        let mut cases = Vec::new();
        let mut total = 0;
        for gpu in gpus {
            for flow in Flow::ALL {
                let found = match kind {
                    Kind::Message(_) => of_messages(gpu, flow, kind, &mut known)?,
                    _ => of_accesses(gpu, flow, kind, &mut known)?,
                };
                total += found.len();
                cases.extend(found.into_iter().filter(|c| full || c.1).map(|c| c.0));
            }
        }
        // A lost message is waited for until its deadline: that costs time, but no work.
        let jobs = if kind == Kind::Message(Mishap::Lost) { jobs * 4 } else { jobs };
        let failures = pool::run(&cases, jobs, Case::run);
        for f in &failures {
            println!("FAILED {}: {}", f.case, f.why);
        }
        good &= failures.is_empty();
        done += cases.len();
        all += total;
        let (n, bad) = (cases.len(), failures.len());
        println!("summary: fault-matrix-{} checked={n} matched={} deviations=0", kind.name(), n - bad);
        println!("{:8} {n} of {total}, {bad} failed, in {:.1} s", kind.name(), start.elapsed().as_secs_f64());
    }
    println!("{done} of {all} cases");
    Ok(good)
}
