//! From a boot to queues, and the boot as a report.

use super::firmware::Firmware;
use super::{BOOT_SLOTS, BusSession, HostBus, LATE_US, SLOTS, State, Watched, slots};
use crate::session::{BootReport, Reset, Stage};
use amdev_core::boot::{self, Ladder, Outcome};
use amdev_core::error::Error;
use amdev_core::ip::smu;
use amdev_core::layout::Ready;
use amdev_core::mm::VaRange;
use amdev_core::runtime::{Runtime, Sizes};
use anyhow::Context as _;

impl<B: HostBus> BusSession<B> {
    /// Gives a device that was booted its memory manager, queues and pools. Where that fails it is
    /// shut down and can be booted again.
    pub(super) fn start(&mut self, ready: Ready, va: &'static VaRange<'static>) -> anyhow::Result<()> {
        let bus = self.bus().map(Watched::host);
        let sizes = bus.map_or_else(Sizes::default, |bus| bus.sizes());
        let sizes = Sizes { timeout_us: self.timeout_us(), ..sizes };
        let State::Found(mut probe) = std::mem::replace(&mut self.state, State::Lost) else {
            return Err(Self::lost());
        };
        let vm = match probe.memory(slots(BOOT_SLOTS), slots(SLOTS), va) {
            Ok(vm) => vm,
            Err(e) => {
                // The news is why there is no memory; the same below.
                probe.device.bus.host_mut().finishing(true);
                let _ = probe.fini(&mut |_| ());
                probe.device.bus.host_mut().finishing(false);
                self.state = State::Found(probe);
                return Err(e).context("setting up the memory manager");
            }
        };
        let mut gpu = probe.with_memory(ready, vm);
        if self.options.timeout_s.is_some() {
            let bus = &mut gpu.device().bus;
            let limit_us = sizes.timeout_us + sizes.timeout_us / 4 + LATE_US;
            bus.host_mut().bound_real_time(limit_us);
        }
        match Runtime::new(&mut gpu, sizes) {
            Ok(runtime) => {
                let runtime = runtime.map_iface(|_| ());
                if let Some(found) = self.found.clone() {
                    let levels = smu::dpm(gpu.device()).clone();
                    gpu.device().bus.serve(found, levels);
                }
                self.state = State::Running(runtime.map_iface(|()| gpu));
                Ok(())
            }
            Err(e) => {
                gpu.device().bus.host_mut().finishing(true);
                let _ = gpu.fini(&mut |_| ());
                gpu.device().bus.host_mut().finishing(false);
                self.state = State::Found(gpu.into_probe());
                Err(e).context("setting up queues")
            }
        }
    }
}

/// What a boot did, without what it cost.
pub(super) fn boot_report(report: &boot::Report, fw: &Firmware, stages: Vec<Stage>) -> BootReport {
    let mut why = report.reason.to_string();
    if report.ladder.iter().next().is_some() {
        why += &format!("; {}", report.ladder);
    }
    if let Some(e) = report.warm_error {
        why += &format!(" ({e})");
    }
    BootReport {
        path: report.path.to_string(),
        why,
        firmware: Some(fw.describe()),
        stages,
        reset_done: report.reset_done,
        resets: resets(&report.ladder),
        ..BootReport::default()
    }
}

/// The rungs of a ladder, for people and programs.
pub(super) fn resets(ladder: &Ladder) -> Vec<Reset> {
    let tried = |(rung, outcome): (boot::Rung, Outcome)| Reset {
        reset: rung.to_string(),
        outcome: outcome.to_string(),
        helped: outcome == Outcome::Helped,
    };
    ladder.iter().map(tried).collect()
}

/// An error with the resets that were tried before it.
pub(super) fn with_ladder(error: Error, ladder: Ladder, what: &str) -> anyhow::Error {
    let tried = match ladder.iter().next() {
        None => what.to_owned(),
        Some(_) => format!("{what} (resets tried: {ladder})"),
    };
    anyhow::Error::new(error).context(tried)
}

/// Why a device did not boot.
pub(super) fn boot_failed(error: Error, ladder: Ladder) -> anyhow::Error {
    with_ladder(error, ladder, "booting the device")
}
