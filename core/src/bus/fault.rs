//! Makes a working bus fail on demand, so that tests see what the driver does then.

use super::{Bus, BusError, Clock, Dma, Mmio, Window};

/// What shall go wrong. Accesses are numbered from 0, over all windows; a bulk or grouped access
/// counts once. Flushes and fences are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultPlan {
    /// This access fails with this error and does not reach the device; later ones work again.
    pub fail: Option<(u64, BusError)>,
    /// From this access on reads return all ones and writes vanish, as when the link is down.
    pub all_ones_from: Option<u64>,
    /// The value read by this access (its first dword) is exclusive-ored with the mask.
    pub corrupt_read: Option<(u64, u32)>,
    /// From this access on everything answers [`BusError::Gone`].
    pub gone_from: Option<u64>,
}

enum Verdict {
    Pass,
    AllOnes,
    Corrupt(u32),
}

/// A bus that fails as planned.
#[derive(Debug)]
pub struct Fault<B> {
    inner: B,
    plan: FaultPlan,
    next: u64,
}

impl<B> Fault<B> {
    /// Lets `inner` fail as `plan` says.
    pub fn new(inner: B, plan: FaultPlan) -> Self {
        Fault { inner, plan, next: 0 }
    }

    /// Replaces the plan; the numbering goes on.
    pub fn set_plan(&mut self, plan: FaultPlan) {
        self.plan = plan;
    }

    /// How many accesses were made: the number that the next one gets.
    pub fn accesses(&self) -> u64 {
        self.next
    }

    /// The bus below.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// The bus below.
    pub fn inner_mut(&mut self) -> &mut B {
        &mut self.inner
    }

    /// Takes the decorator off.
    pub fn into_inner(self) -> B {
        self.inner
    }

    fn is_gone(&self) -> bool {
        self.plan.gone_from.is_some_and(|n| self.next > n)
    }

    fn access(&mut self) -> Result<Verdict, BusError> {
        let n = self.next;
        self.next = n.saturating_add(1);
        if self.is_gone() {
            return Err(BusError::Gone);
        }
        match self.plan {
            FaultPlan { fail: Some((at, error)), .. } if at == n => Err(error),
            FaultPlan { all_ones_from: Some(from), .. } if n >= from => Ok(Verdict::AllOnes),
            FaultPlan { corrupt_read: Some((at, mask)), .. } if at == n => Ok(Verdict::Corrupt(mask)),
            _ => Ok(Verdict::Pass),
        }
    }

    fn write(&mut self, write: impl FnOnce(&mut B) -> Result<(), BusError>) -> Result<(), BusError> {
        match self.access()? {
            Verdict::AllOnes => Ok(()),
            _ => write(&mut self.inner),
        }
    }
}

impl<B: Mmio> Mmio for Fault<B> {
    fn window_len(&self, window: Window) -> u64 {
        self.inner.window_len(window)
    }
    fn read32(&mut self, window: Window, offset: u64) -> Result<u32, BusError> {
        match self.access()? {
            Verdict::AllOnes => Ok(u32::MAX),
            Verdict::Corrupt(mask) => Ok(self.inner.read32(window, offset)? ^ mask),
            Verdict::Pass => self.inner.read32(window, offset),
        }
    }
    fn write32(&mut self, window: Window, offset: u64, value: u32) -> Result<(), BusError> {
        self.write(|b| b.write32(window, offset, value))
    }
    fn read64(&mut self, window: Window, offset: u64) -> Result<u64, BusError> {
        match self.access()? {
            Verdict::AllOnes => Ok(u64::MAX),
            Verdict::Corrupt(mask) => Ok(self.inner.read64(window, offset)? ^ u64::from(mask)),
            Verdict::Pass => self.inner.read64(window, offset),
        }
    }
    fn write64(&mut self, window: Window, offset: u64, value: u64) -> Result<(), BusError> {
        self.write(|b| b.write64(window, offset, value))
    }
    fn read_bulk(&mut self, window: Window, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
        let verdict = self.access()?;
        if let Verdict::AllOnes = verdict {
            buf.fill(0xff);
            return Ok(());
        }
        self.inner.read_bulk(window, offset, buf)?;
        if let Verdict::Corrupt(mask) = verdict {
            for (byte, m) in buf.iter_mut().zip(mask.to_le_bytes()) {
                *byte ^= m;
            }
        }
        Ok(())
    }
    fn write_bulk(&mut self, window: Window, offset: u64, data: &[u8]) -> Result<(), BusError> {
        self.write(|b| b.write_bulk(window, offset, data))
    }
    fn zero(&mut self, window: Window, offset: u64, len: u64) -> Result<(), BusError> {
        self.write(|b| b.zero(window, offset, len))
    }
    fn read_group(&mut self, window: Window, offsets: &[u64], out: &mut [u32]) -> Result<(), BusError> {
        let verdict = self.access()?;
        if let Verdict::AllOnes = verdict {
            let n = offsets.len();
            out.iter_mut().take(n).for_each(|v| *v = u32::MAX);
            return Ok(());
        }
        self.inner.read_group(window, offsets, out)?;
        if let (Verdict::Corrupt(mask), Some(first)) = (verdict, out.first_mut()) {
            *first ^= mask;
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<(), BusError> {
        if self.is_gone() { Err(BusError::Gone) } else { self.inner.flush() }
    }
    fn fence(&mut self) -> Result<(), BusError> {
        if self.is_gone() { Err(BusError::Gone) } else { self.inner.fence() }
    }
}

/// DMA memory belongs to the host and stays usable when the device is gone.
impl<B: Dma> Dma for Fault<B> {
    delegate_dma!();
}

impl<B: Bus> Bus for Fault<B> {
    fn clock(&self) -> &dyn Clock {
        self.inner.clock()
    }
    fn wait_interrupt(&mut self, timeout_us: u64) -> Result<bool, BusError> {
        if self.is_gone() { Err(BusError::Gone) } else { self.inner.wait_interrupt(timeout_us) }
    }
    delegate_resets!();
    delegate_traits!();
}
