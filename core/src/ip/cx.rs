//! A device in the hands of a machine: stages, waits, delays.

use super::access::Device;
use super::wait::{Event, Missed, Slot, Stage, Target, Until, Verdict, Wait};
use crate::bus::{Bus, BusError};
use crate::error::Error;
use crate::reg::Reg;
use core::fmt;
use core::future::Future;
use core::ops::{Deref, DerefMut};
use core::pin::Pin;
use core::task::{Context, Poll};

/// A device in the hands of a running machine.
pub struct Cx<'a, B> {
    device: &'a mut Device<B>,
    slot: &'a Slot,
    stage: Stage,
}

impl<B> fmt::Debug for Cx<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cx").field("stage", &self.stage).field("slot", self.slot).finish_non_exhaustive()
    }
}

impl<B> Deref for Cx<'_, B> {
    type Target = Device<B>;
    fn deref(&self) -> &Device<B> {
        self.device
    }
}

impl<B> DerefMut for Cx<'_, B> {
    fn deref_mut(&mut self) -> &mut Device<B> {
        self.device
    }
}

impl<'a, B: Bus> Cx<'a, B> {
    /// Puts a device into the hands of a machine that will publish its waits in `slot`.
    pub fn new(device: &'a mut Device<B>, slot: &'a Slot) -> Self {
        Cx { device, slot, stage: Stage::Probe }
    }

    /// Enters a stage; the one before is over.
    pub async fn enter(&mut self, stage: Stage) {
        let now = self.device.bus.clock().now_us();
        self.device.close_stage(now);
        self.stage = stage;
        self.device.open = Some((stage, now, self.device.counters()));
        self.slot.publish_event(Event { stage: Some(stage), at_us: now, counters: self.device.counters() });
        Yield(false).await;
    }

    /// Ends the last stage.
    pub fn end(&mut self) {
        let now = self.device.bus.clock().now_us();
        self.device.close_stage(now);
        self.slot.publish_event(Event { stage: None, at_us: now, counters: self.device.counters() });
    }

    /// Attributes the waits that follow to another stage, without entering it; the one before.
    pub(crate) fn attribute(&mut self, stage: Stage) -> Stage {
        core::mem::replace(&mut self.stage, stage)
    }

    /// The stage that waits are attributed to.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Waits until the masked value of a register is `until`; the value read.
    pub async fn wait_reg(
        &mut self,
        reg: Reg,
        mask: u32,
        until: Until,
        timeout_us: u64,
    ) -> Result<u32, Error> {
        let stage = self.stage;
        self.wait(Wait { target: Target::Reg(reg), mask, until, timeout_us, interval_us: 10, stage }).await
    }

    /// Lets time pass.
    pub async fn delay(&mut self, us: u64) -> Result<(), Error> {
        let stage = self.stage;
        self.wait(Wait {
            target: Target::Time,
            mask: 0,
            until: Until::Equal(0),
            timeout_us: us,
            interval_us: us.max(1),
            stage,
        })
        .await?;
        Ok(())
    }

    /// Waits by a record; the value that ended it.
    pub async fn wait(&mut self, wait: Wait) -> Result<u32, Error> {
        WaitFuture { cx: self, wait, armed: false }.await
    }
}

struct Yield(bool);

impl Future for Yield {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if core::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

struct WaitFuture<'c, 'a, B> {
    cx: &'c mut Cx<'a, B>,
    wait: Wait,
    armed: bool,
}

impl<B: Bus> Future for WaitFuture<'_, '_, B> {
    type Output = Result<u32, Error>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let slot = this.cx.slot;
        let device = &mut *this.cx.device;
        let sleep = slot.take_sleep();
        if sleep > 0 {
            // What was posted must be on its way before the device is given time for it.
            if let Err(e) = device.bus.flush() {
                return Poll::Ready(Err(e.into()));
            }
            device.bus.clock().wait_us(sleep);
        }
        let now = device.bus.clock().now_us();
        if !this.armed {
            this.armed = true;
            slot.arm(this.wait, now);
        }
        match slot.verdict(now) {
            Verdict::Wait => Poll::Pending,
            Verdict::Missed(last) => {
                slot.disarm();
                let is_reg = matches!(this.wait.target, Target::Reg(_));
                let error = if is_reg && last == u32::MAX {
                    Error::NotResponding { stage: this.wait.stage }
                } else {
                    Error::Timeout(Missed { wait: this.wait, last })
                };
                Poll::Ready(Err(error))
            }
            Verdict::Look => {
                let value = match device.look(this.wait.target) {
                    Ok(value) => value,
                    Err(e) => {
                        slot.disarm();
                        return Poll::Ready(Err(e));
                    }
                };
                // All ones are never an answer: a device that is gone satisfies any "bit is set".
                let gone = matches!(this.wait.target, Target::Reg(_)) && value == u32::MAX;
                if !gone && this.wait.is_over(value) {
                    slot.disarm();
                    return Poll::Ready(Ok(value));
                }
                slot.looked(&this.wait, now, value);
                Poll::Pending
            }
        }
    }
}

/// Whether an error ends all work on the device, so that nothing else is tried: it does not answer any
/// more, or the host says that it is over.
pub(crate) fn ends_all(error: &Error) -> bool {
    matches!(error, Error::NotResponding { .. }) || is_told_by_host(error)
}

/// Whether the host says that it is over: the device is gone, its state was lost, or the user wants it.
pub(crate) fn is_told_by_host(error: &Error) -> bool {
    matches!(error, Error::Bus(BusError::Gone | BusError::Stopped | BusError::Slept))
}
