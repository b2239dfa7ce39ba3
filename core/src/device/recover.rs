//! A booted GPU whose queues hang: what its registers say, and how the queues come to work again.

use super::gpu::{Gpu, Place};
use crate::boot::Rung;
use crate::bus::Bus;
use crate::error::Error;
use crate::fault::Fault;
use crate::hang::QueueState;
use crate::iface::{HwQueue, Iface as _, IfaceError, QueueKind};
use crate::ip::{Cx, Stage, Until, gfx, gmc, sdma};
use crate::reg::r;

/// How long the compute engine may take to come to rest after its reset.
const IDLE_US: u64 = 1_000_000;

/// Pipe and number of a compute queue, from [`HwQueue::id`].
pub(super) fn place_of(queue: &HwQueue) -> (u8, u8) {
    ((queue.id >> 8) as u8, queue.id as u8)
}

/// Takes every queue in use down; compute and DMA engines are fit to take new ones afterwards.
async fn take_down<B: Bus>(cx: &mut Cx<'_, B>) -> Result<Rung, Error> {
    cx.enter(Stage::Queue).await;
    let mut rung = Rung::Queue;
    let used = cx.queues.compute;
    for pipe in 0..cx.chip.mec_pipes {
        for queue in 0..cx.chip.mec_queues {
            if used >> (u32::from(pipe) * 8 + u32::from(queue)) & 1 == 0 {
                continue;
            }
            match gfx::deactivate(cx, pipe, queue).await {
                Ok(()) => {}
                // The queue does not let go: its engine is reset below.
                Err(Error::Timeout(_)) => rung = Rung::Mec,
                Err(e) => return Err(e),
            }
        }
    }
    let engines = cx.queues.sdma.map(|used| used != 0);
    for (engine, used) in (0u8..).zip(cx.queues.sdma) {
        for queue in 0..8 {
            if used >> queue & 1 != 0 {
                match sdma::deactivate(cx, engine, queue).await {
                    // An engine in the middle of a packet stops with its reset only.
                    Ok(()) | Err(Error::Timeout(_)) => {}
                    Err(e) => return Err(e),
                }
            }
        }
    }
    sdma::soft_reset(cx, engines).await?;
    cx.queues.sdma = Default::default();
    if rung == Rung::Mec {
        cx.enter(Stage::MecReset).await;
        gfx::reset_mec(cx).await?;
        gfx::start_mec(cx).await?;
        cx.queues.compute = 0;
        // An engine that is still busy without a queue will serve no other.
        cx.wait_reg(r::CP_STAT, u32::MAX, Until::Equal(0), IDLE_US).await?;
    }
    sdma::init(cx).await?;
    gmc::clear_faults(cx)?;
    Ok(rung)
}

impl<B: Bus> Gpu<'_, B> {
    /// Serves the interrupts that have arrived, also where the MSI that announces them was lost.
    pub(super) fn serve_interrupts(&mut self) -> Result<(), Error> {
        let mut error = None;
        let overflowed = crate::ip::ih::service(&mut self.probe.device, &mut |entry| {
            error = error.or(crate::fault::EngineFault::of(entry));
        })?;
        self.engine_fault = self.engine_fault.or(error);
        if overflowed {
            self.overflowed = self.overflowed.saturating_add(1);
        }
        Ok(())
    }

    /// An error that the hardware has reported: a memory fault first, since it is why waves stop.
    pub(super) fn reported(&mut self) -> Result<Option<Fault>, Error> {
        self.serve_interrupts()?;
        if let Some(fault) = self.take_fault()? {
            // What it led to is no error of its own.
            self.engine_fault = None;
            return Ok(Some(Fault::Memory(fault)));
        }
        Ok(self.engine_fault.take().map(Fault::Engine))
    }

    pub(super) fn registers_of(&mut self, queue: &HwQueue) -> Result<QueueState, Error> {
        let device = &mut self.probe.device;
        match queue.kind {
            QueueKind::Compute => {
                let (pipe, number) = place_of(queue);
                gfx::queue_state(device, pipe, number)
            }
            QueueKind::Sdma => sdma::queue_state(device, 0, 0),
        }
    }

    pub(super) fn restart_all(&mut self) -> Result<Rung, IfaceError> {
        let rung = self.probe.device.run(async |cx| take_down(cx).await)?;
        self.engine_fault = None;
        let slots = self.queues.clone();
        for slot in &slots {
            let pointers = slot.queue.pointers;
            // All bytes of both pointers: a stale upper half would make the engine run off.
            let zeros = [0; 0x100];
            let len = usize::try_from(pointers.size).unwrap_or(0).min(zeros.len());
            self.write(&pointers, 0, zeros.get(..len).unwrap_or(&[]))?;
        }
        self.fence()?;
        self.flush_hdp()?;
        for slot in &slots {
            match (slot.queue.kind, slot.mqd, slot.eop) {
                (QueueKind::Compute, Some(mqd), Some(eop)) => {
                    let Place::Vram(mqd_at) = Place::of(mqd.handle) else {
                        return Err(IfaceError::BadQueue {
                            kind: QueueKind::Compute,
                            why: "its MQD is not contiguous",
                        });
                    };
                    let (pipe, number) = place_of(&slot.queue);
                    let (ring, pointers) = (slot.queue.ring, slot.queue.pointers);
                    self.activate_compute(&ring, &pointers, &eop, (mqd.va, mqd_at), pipe, number)?;
                }
                (QueueKind::Compute, ..) => {}
                (QueueKind::Sdma, ..) => {
                    let (ring, pointers) = (slot.queue.ring, slot.queue.pointers);
                    self.activate_sdma(&ring, &pointers)?;
                }
            }
        }
        Ok(rung)
    }
}
