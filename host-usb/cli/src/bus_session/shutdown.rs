//! The end of a session: queues are taken down, the device is left in order.

use super::stages::Stages;
use super::{BusSession, HostBus, State};
use crate::progress::Progress;
use crate::session::BootReport;
use anyhow::Context as _;

/// What work under way gets to end by itself once the user wants the end.
const GRACE_US: u64 = 500_000;

impl<B: HostBus> BusSession<B> {
    /// Takes the queues down and frees what the session allocated. Queues are taken down also after an
    /// error; what they used is not given to anyone then.
    fn stop(&mut self) -> anyhow::Result<()> {
        let loaded = self.loaded.take();
        let buffers = std::mem::take(&mut self.buffers);
        let State::Running(runtime) = &mut self.state else { return Ok(()) };
        let ended = match runtime.iface_ref().bus().host().stop_asked() {
            true => runtime.cancel(GRACE_US).map(drop),
            false => runtime.synchronize(),
        };
        let mut freed = ended.map_err(anyhow::Error::from);
        if let (Ok(()), Some(loaded)) = (&freed, loaded) {
            freed = runtime.unload(loaded.program).map_err(Into::into);
        }
        if freed.is_ok() {
            let mut left = buffers.into_iter().flatten();
            freed = left.try_for_each(|buffer| runtime.free(buffer)).map_err(Into::into);
        }
        let down = runtime.release();
        freed?;
        Ok(down?)
    }

    /// From booted to found: whatever goes wrong in it, the rest is done as well, and the first error told.
    pub(super) fn shut_down(&mut self, progress: &mut dyn Progress) -> anyhow::Result<BootReport> {
        if let Some(bus) = self.bus_mut() {
            bus.host_mut().finishing(true);
        }
        let stopped = self.stop().context("taking the queues down");
        let State::Running(runtime) = std::mem::replace(&mut self.state, State::Lost) else {
            return Err(Self::lost());
        };
        let mut gpu = runtime.into_iface();
        gpu.device().bus.stop_serving();
        let before = gpu.bus().counts();
        let mut stages = Stages::new(progress);
        let done = gpu.fini(&mut |e| stages.event(e)).context("shutting the device down");
        let counts = gpu.bus().counts().since(&before);
        let mut probe = gpu.into_probe();
        probe.device.bus.host_mut().finishing(false);
        self.state = State::Found(probe);
        stopped.and(done)?;
        Ok(BootReport {
            path: "fini".into(),
            why: "asked for".into(),
            stages: stages.finish(),
            counts,
            ..BootReport::default()
        })
    }
}
