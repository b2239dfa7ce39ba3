//! Several devices on buses of one kind.

use super::stages::Stages;
use super::{BusSession, Firmware, HostBus, boot_failed, boot_report, virtual_range};
use crate::error::CliError;
use crate::group::{Group, GroupBoot, Shared};
use crate::progress::{Progress, Silent};
use crate::session::{BootOptions, DeviceBuffer, Session};
use amdev_core::boot;
use amdev_core::bus::Bus as _;
use amdev_core::iface::{AllocFlags, Buffer, Iface as _};
use amdev_core::ip::{Slot, Task, drive};
use amdev_core::mm::VaRange;
use anyhow::Context as _;

/// Devices of one machine. Their buses must be able to reach each other's VRAM where copies between
/// them are asked for.
pub struct BusGroup<B: HostBus> {
    members: Vec<BusSession<B>>,
    va: &'static VaRange<'static>,
}

/// Faults of a device that are told at once: one for each hub, and one of its engines.
const MOST_FAULTS: usize = 3;

impl<B: HostBus> BusGroup<B> {
    /// Puts open devices together.
    pub fn new(members: Vec<BusSession<B>>) -> anyhow::Result<Self> {
        Ok(BusGroup { members, va: virtual_range()? })
    }

    fn get(&mut self, index: usize) -> anyhow::Result<&mut BusSession<B>> {
        let count = self.members.len();
        self.members.get_mut(index).with_context(|| format!("there is no GPU {index}, only {count}"))
    }

    /// By the clock of all devices.
    fn now_us(&self) -> u64 {
        self.members.iter().filter_map(|m| m.bus()).map(|bus| bus.clock().now_us()).max().unwrap_or(0)
    }

    fn core_buffer(&mut self, shared: Shared) -> anyhow::Result<Buffer> {
        self.get(shared.owner)?.buffer(shared.buffer)
    }

    /// Maps a buffer of another device for `by`.
    fn map(&mut self, by: usize, shared: Shared) -> anyhow::Result<Buffer> {
        let buffer = self.core_buffer(shared)?;
        let segment = self.get(shared.owner)?.runtime()?.iface().peer_segment(&buffer)?;
        self.get(by)?.runtime()?.iface().map_peer(&buffer, &[segment])?;
        Ok(buffer)
    }
}

impl<B: HostBus> Group for BusGroup<B> {
    fn count(&self) -> usize {
        self.members.len()
    }

    fn member(&mut self, index: usize) -> anyhow::Result<&mut dyn Session> {
        Ok(self.get(index)?)
    }

    fn boot(&mut self, options: &BootOptions, progress: &mut dyn Progress) -> anyhow::Result<GroupBoot> {
        if options.dry_run {
            return Err(CliError::Usage("boot --dry-run: choose one device, without count=".into()).into());
        }
        let leave_clocks = self.members.iter().any(|m| m.options.leave_clocks);
        let core_options = boot::Options { cold: options.cold, leave_clocks, ..boot::Options::default() };
        let mut probes = Vec::new();
        let mut images = Vec::new();
        let mut before = Vec::new();
        for member in &mut self.members {
            let open = member.options.clone();
            let probe = member.probe()?;
            images.push(Firmware::find(probe, &open)?);
            before.push(probe.device.bus.counts());
        }
        let since = self.now_us();
        for member in &mut self.members {
            probes.push(member.probe()?);
        }
        let slots: Vec<Slot> = probes.iter().map(|_| Slot::new()).collect();
        let mut reports: Vec<Option<boot::Report>> = vec![None; probes.len()];
        let mut silent: Vec<Silent> = probes.iter().map(|_| Silent).collect();
        // All pass through the same stages: those of the first are shown.
        let mut watched: Vec<&mut dyn Progress> = silent.iter_mut().map(|s| s as &mut dyn Progress).collect();
        if let Some(first) = watched.first_mut() {
            *first = progress;
        }
        let mut stages: Vec<Stages<'_>> = watched.into_iter().map(Stages::new).collect();
        let mut futures = Vec::new();
        for (((probe, fw), slot), report) in probes.iter_mut().zip(&mut images).zip(&slots).zip(&mut reports)
        {
            futures.push(Box::pin(probe.boot_in(slot, fw.source(), core_options, report)));
        }
        let mut tasks: Vec<Task<'_>> =
            futures.iter_mut().zip(&slots).map(|(f, slot)| Task::new(f.as_mut(), slot)).collect();
        drive(&mut tasks, &mut |index, event| {
            if let Some(stages) = stages.get_mut(index) {
                stages.event(event);
            }
        });
        let results: Vec<_> = tasks.iter().map(Task::result).collect();
        drop(tasks);
        drop(futures);
        drop(probes);
        let mut out = GroupBoot { reports: Vec::new(), us: self.now_us() - since };
        let mut failed = None;
        let parts = results.into_iter().zip(reports).zip(stages).zip(images).zip(before);
        for (index, (member, ((((result, report), stages), fw), before))) in
            self.members.iter_mut().zip(parts).enumerate()
        {
            let gpu = || format!("GPU {index}");
            let probe = member.probe()?;
            let Some(report) = report else {
                if let Some(Err(e)) = result {
                    failed = failed.or(Some(boot_failed(e, probe.ladder()).context(gpu())));
                }
                continue;
            };
            let counts = probe.device.bus.counts().since(&before);
            let mut done = boot_report(&report, &fw, stages.finish());
            done.counts = counts;
            out.reports.push(done);
            // Also where another one failed: what runs is shut down in the end.
            if let Err(e) = member.start(report.ready, self.va) {
                failed = failed.or(Some(e.context(gpu())));
            }
        }
        failed.map_or(Ok(out), Err)
    }

    fn alloc_shared(&mut self, owner: usize, len: u64) -> anyhow::Result<Shared> {
        let member = self.get(owner)?;
        let buffer = member.runtime()?.alloc(len, AllocFlags::CONTIGUOUS)?;
        let id = member.buffers.len();
        member.buffers.push(Some(buffer));
        Ok(Shared { owner, buffer: DeviceBuffer { va: buffer.va, len, id } })
    }

    fn peer_copy(&mut self, by: usize, to: Shared, from: Shared, len: u64) -> anyhow::Result<u64> {
        let what = || format!("GPU {by} copies from GPU {} to GPU {}", from.owner, to.owner);
        let (to_buffer, from_buffer) = (self.core_buffer(to)?, self.core_buffer(from)?);
        let mut mapped: Vec<Buffer> = Vec::new();
        let mut done = Ok(0);
        for shared in [to, from] {
            if shared.owner != by && !mapped.iter().any(|b| b.va == shared.buffer.va) {
                match self.map(by, shared) {
                    Ok(buffer) => mapped.push(buffer),
                    Err(e) => done = Err(e),
                }
            }
        }
        if done.is_ok() {
            // After an error the mapping stays: the engine may still be at it.
            let what = || format!("copying {len} bytes between GPUs by the SDMA queue");
            let copied = self.get(by)?.timed(what, |rt| Ok(Some(rt.copy(&to_buffer, &from_buffer, len)?)));
            done = Ok(copied.with_context(what)?);
        }
        for buffer in &mapped {
            self.get(by)?.runtime()?.iface().unmap_peer(buffer)?;
        }
        if to.owner != by {
            // What came in through the window waits in the HDP of its owner.
            self.get(to.owner)?.runtime()?.iface().flush_hdp()?;
        }
        done.with_context(what)
    }

    fn faults(&mut self) -> Vec<String> {
        let mut faults = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate() {
            let Ok(runtime) = member.runtime() else { continue };
            // Bounded: a device that is gone, or out of its mind, reports for ever.
            for _ in 0..MOST_FAULTS {
                match runtime.iface().take_error() {
                    Ok(Some(fault)) => faults.push(format!("GPU {index} reported {fault}")),
                    Ok(None) => break,
                    Err(e) => {
                        faults.push(format!("GPU {index} cannot be asked for faults: {e}"));
                        break;
                    }
                }
            }
        }
        faults
    }

    fn release(self: Box<Self>) -> anyhow::Result<()> {
        let mut result = Ok(());
        for (index, member) in self.members.into_iter().enumerate() {
            let released = Box::new(member).release().with_context(|| format!("GPU {index}"));
            result = result.and(released);
        }
        result
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::*;
    use crate::session::OpenOptions;
    use crate::sim::SimBackend;
    use amdev_core::ip::smu;
    use amdev_core::reg::smu::Message;

    #[test]
    fn a_fault_of_any_gpu_is_told_with_its_hub() {
        let options = OpenOptions { synthetic_firmware: true, ..OpenOptions::default() };
        let mut group = SimBackend::group("navi48,count=3", &options).unwrap();
        group.boot(&BootOptions::default(), &mut Silent).unwrap();
        assert!(group.faults().is_empty());
        // The SMU of another one than the one that works is told to put its tables where nothing is.
        let device = group.get(2).unwrap().runtime().unwrap().iface().device();
        let lost = device.run(async |cx| {
            smu::send(cx, Message::SetDriverDramAddrHigh, 0x30).await?;
            smu::read_metrics(cx).await
        });
        assert!(lost.is_err(), "{lost:?}");
        let faults = group.faults();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(
            faults[0].starts_with("GPU 2 reported memory fault at MM hub: write of 0x3000117000"),
            "{faults:?}"
        );
        assert!(group.faults().is_empty(), "told once");
        Box::new(group).release().unwrap();
    }
}
