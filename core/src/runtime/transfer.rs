//! Copies: by SDMA, and between the caller's memory and the GPU's.

use super::hang::Submission;
use super::{COMMANDS, Runtime, Ticket};
use crate::iface::{AllocFlags, Buffer, Iface, QueueKind};
use crate::queue::QueueError;
use crate::queue::sdma::{Sdma, SdmaConfig};

impl<I: Iface> Runtime<I> {
    /// Copies between GPU addresses by SDMA.
    pub fn copy(&mut self, dst: &Buffer, src: &Buffer, len: u64) -> Result<Ticket, QueueError> {
        dst.check(0, len)?;
        src.check(0, len)?;
        self.submit_sdma(|q| q.copy(dst.va, src.va, len).map(drop))
    }

    /// Fills memory with a dword by SDMA; the length is a multiple of 4.
    pub fn fill(&mut self, dst: &Buffer, value: u32) -> Result<Ticket, QueueError> {
        // What fits into one submission.
        const STEP: u64 = 64 * SdmaConfig::MAX_FILL;
        let mut at = 0;
        loop {
            let len = (dst.size - at).min(STEP);
            let ticket = self.submit_sdma(|q| q.fill(dst.va.wrapping_add(at), len, value).map(drop))?;
            at += len;
            if at >= dst.size {
                return Ok(ticket);
            }
        }
    }

    fn submit_sdma(
        &mut self,
        encode: impl FnOnce(&mut Sdma<'_, '_>) -> Result<(), QueueError>,
    ) -> Result<Ticket, QueueError> {
        let (before, value) = self.begin()?;
        let mut commands = [0; COMMANDS];
        let mut q = Sdma::new(&self.sdma_config, &mut commands);
        let signal = self.timeline.signal;
        q.wait(signal.value_va(), before)?;
        encode(&mut q)?;
        q.signal(signal.value_va(), value, true, true)?;
        let from = self.sdma.put();
        let done = self.sdma.submit_sdma(&mut self.iface, q.dwords(), self.sizes.timeout_us);
        let (to, kernel) = (self.sdma.put(), None);
        self.finish(done, Submission { value, kind: QueueKind::Sdma, from, to, kernel })
    }

    /// Writes bytes of the caller into GPU memory: directly where the CPU reaches it, else through
    /// staging memory, one half being filled while the other is copied.
    pub fn write(&mut self, dst: &Buffer, data: &[u8]) -> Result<(), QueueError> {
        dst.check(0, data.len() as u64)?;
        if dst.flags.contains(AllocFlags::CPU_ACCESS) {
            // What was submitted before may still read or write it.
            self.synchronize()?;
            return Ok(self.iface.write(dst, 0, data)?);
        }
        let half = self.staging.size / 2;
        let mut at = 0u64;
        for (i, chunk) in data.chunks(usize::try_from(half).unwrap_or(0x1000).max(1)).enumerate() {
            let part = self.staging_half(i)?;
            self.iface.write(&part, 0, chunk)?;
            let len = chunk.len() as u64;
            let ticket = self.copy(&dst.slice(at, len)?, &part, len)?;
            self.mark_half(i, ticket);
            at = at.saturating_add(len);
        }
        Ok(())
    }

    /// Reads GPU memory into memory of the caller, after everything submitted before.
    pub fn read(&mut self, src: &Buffer, out: &mut [u8]) -> Result<(), QueueError> {
        src.check(0, out.len() as u64)?;
        if src.flags.contains(AllocFlags::CPU_ACCESS) {
            self.synchronize()?;
            return Ok(self.iface.read(src, 0, out)?);
        }
        if let Some((_, bell)) = self.bell {
            return self.read_armed(src, out, bell);
        }
        if self.sizes.readable < self.staging.size {
            return self.read_small(src, out);
        }
        let half = usize::try_from(self.staging.size / 2).unwrap_or(0x1000).max(1);
        let total = out.len() as u64;
        let start = |i: usize| (i as u64).saturating_mul(half as u64);
        let mut chunks = out.chunks_mut(half).enumerate().peekable();
        if chunks.peek().is_some() {
            self.fetch(src, 0, start(0), total.min(half as u64))?;
        }
        while let Some((i, chunk)) = chunks.next() {
            // The next piece is under way while this one is taken out.
            if let Some((_, next)) = chunks.peek() {
                self.fetch(src, i + 1, start(i + 1), next.len() as u64)?;
            }
            let part = self.staging_half(i)?;
            self.iface.read(&part, 0, chunk)?;
        }
        Ok(())
    }

    /// [`Runtime::read`] where the transport carries staging memory once the device has rung its bell.
    fn read_armed(&mut self, src: &Buffer, out: &mut [u8], bell: u64) -> Result<(), QueueError> {
        let step = usize::try_from(self.staging.size).unwrap_or(0x1000).max(1);
        self.staging_half(1)?;
        for (i, chunk) in out.chunks_mut(step).enumerate() {
            let (at, len) = ((i as u64).saturating_mul(step as u64), chunk.len() as u64);
            self.staging_half(0)?;
            let part = self.staging.slice(0, len)?;
            self.iface.arm_read(&part, len)?;
            let from = src.slice(at, len)?.va;
            let ticket = self.submit_sdma(|q| {
                q.copy(part.va, from, len)?;
                q.fence(bell, 1).map(drop)
            })?;
            self.mark_half(0, ticket);
            self.wait(ticket, self.sizes.timeout_us)?;
            self.iface.read(&part, 0, chunk)?;
        }
        Ok(())
    }

    /// [`Runtime::read`] where the host sees the start of its staging memory only.
    fn read_small(&mut self, src: &Buffer, out: &mut [u8]) -> Result<(), QueueError> {
        let step = usize::try_from(self.sizes.readable).unwrap_or(0x1000).max(1);
        self.staging_half(1)?;
        for (i, chunk) in out.chunks_mut(step).enumerate() {
            let (at, len) = ((i as u64).saturating_mul(step as u64), chunk.len() as u64);
            let part = self.staging_half(0)?.slice(0, len)?;
            let ticket = self.copy(&part, &src.slice(at, len)?, len)?;
            self.mark_half(0, ticket);
            self.wait(ticket, self.sizes.timeout_us)?;
            self.iface.read(&part, 0, chunk)?;
        }
        Ok(())
    }

    fn fetch(&mut self, src: &Buffer, i: usize, at: u64, len: u64) -> Result<(), QueueError> {
        let part = self.staging_half(i)?;
        let ticket = self.copy(&part, &src.slice(at, len)?, len)?;
        self.mark_half(i, ticket);
        Ok(())
    }

    /// One half of the staging memory, no longer in use.
    fn staging_half(&mut self, i: usize) -> Result<Buffer, QueueError> {
        let half = self.staging.size / 2;
        let part = self.staging.slice(half.saturating_mul((i % 2) as u64), half)?;
        let busy = self.staging_busy.get(i % 2).copied().unwrap_or(0);
        if busy != 0 {
            self.wait(Ticket(busy), self.sizes.timeout_us)?;
        }
        Ok(part)
    }

    fn mark_half(&mut self, i: usize, ticket: Ticket) {
        if let Some(busy) = self.staging_busy.get_mut(i % 2) {
            *busy = ticket.0;
        }
    }
}
