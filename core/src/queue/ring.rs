//! Rings: memory from which an engine fetches packets, with a write position of 64 bits that never
//! wraps and read pointers that the engine reports.
//!
//! # Fullness
//! Read pointers are taken modulo the ring size, since some engines report them that way and others
//! count on. One dword of a ring therefore always stays free: read pointer equal to write position
//! means empty. With several XCCs each has a read pointer, and the one furthest behind counts.
//!
//! # Wrap
//! PM4 packets may be split at the ring's end. SDMA packets may not: the rest of the ring is filled
//! with zeros (one-dword NOPs) and the packet starts at offset 0. A packet that ends exactly at the
//! ring's end stays where it is.

use crate::iface::{HwQueue, Iface, IfaceError, QueueKind};
use crate::queue::QueueError;
use crate::queue::pm4::{self, op};
use crate::queue::sdma::{self, INDIRECT_DWORDS};

/// Size of a ring in bytes.
pub const RING_SIZE: u64 = 16 << 20;
/// Size of a compute ring over USB in bytes.
pub const COMPUTE_RING_USB: u64 = 0x2000;
/// Size of an SDMA ring over USB in bytes.
pub const SDMA_RING_USB: u64 = 0x200;
/// Size of the memory for read and write pointers in bytes.
pub const POINTERS_SIZE: u64 = 0x100;
/// Size of a compute queue's end-of-pipe memory in bytes.
pub const EOP_SIZE: u64 = 0x1000;
/// The most XCCs that serve one ring.
pub const MAX_XCCS: usize = 8;

/// How long one sleep lasts while waiting for space.
const SPACE_SLEEP_US: u64 = 1_000;
/// Looks at the read pointer before sleeping.
const SPACE_SPINS: u32 = 64;

/// A ring and the hardware queues that serve it.
#[derive(Clone, Debug)]
pub struct Ring {
    queues: heapless::Vec<HwQueue, MAX_XCCS>,
    kind: QueueKind,
    /// Bytes.
    size: u64,
    /// Bytes ever written.
    put: u64,
    /// Bytes ever consumed, as far as known.
    read: u64,
}

impl Ring {
    /// A ring served by one queue, or by one for each XCC, all freshly made.
    pub fn new(queues: &[HwQueue]) -> Result<Ring, QueueError> {
        let first = queues
            .first()
            .ok_or(QueueError::BadRing { kind: QueueKind::Compute, why: "it has no hardware queue" })?;
        let bad = |why| QueueError::BadRing { kind: first.kind, why };
        let size = first.ring.size;
        if !size.is_power_of_two() || !(0x100..=1 << 30).contains(&size) {
            return Err(bad("its size is not a power of two between 256 bytes and 1 GiB"));
        }
        if queues.iter().any(|q| q.ring != first.ring || q.kind != first.kind) {
            return Err(bad("its queues do not share one ring"));
        }
        let kind = first.kind;
        let queues = heapless::Vec::from_slice(queues).map_err(|_| bad("it has more than 8 queues"))?;
        Ok(Ring { queues, kind, size, put: 0, read: 0 })
    }

    /// Continues at a write position instead of 0, with everything before it consumed; in the
    /// ring's unit.
    pub fn with_put(mut self, put: u64) -> Ring {
        self.put = put.saturating_mul(self.unit());
        self.read = self.put;
        self
    }

    /// What the ring's engine executes.
    pub fn kind(&self) -> QueueKind {
        self.kind
    }

    /// The hardware queues.
    pub fn queues(&self) -> &[HwQueue] {
        &self.queues
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that one step of the pointers stands for.
    pub fn unit(&self) -> u64 {
        match self.kind {
            QueueKind::Compute => 4,
            QueueKind::Sdma => 1,
        }
    }

    /// Write position in the ring's unit: what doorbells are told.
    pub fn put(&self) -> u64 {
        self.put / self.unit()
    }

    /// A position in the ring. Its size is never 0, which the compiler cannot know.
    fn wrap(&self, at: u64) -> u64 {
        at.checked_rem(self.size).unwrap_or(0)
    }

    /// Reads back what was submitted at a position (in the ring's unit, counted without wrapping).
    pub(crate) fn read_back(
        &self,
        iface: &mut impl Iface,
        from: u64,
        out: &mut [u32],
    ) -> Result<(), IfaceError> {
        let Some(ring) = self.queues.first().map(|q| q.ring) else { return Ok(()) };
        let mut at = self.wrap(from.saturating_mul(self.unit()));
        for word in out {
            *word = iface.read32(&ring, at)?;
            at = self.wrap(at.saturating_add(4));
        }
        Ok(())
    }

    /// Where a read pointer stands that may be given modulo the ring, counted without wrapping: not
    /// before `from`, and both in the ring's unit.
    pub(crate) fn position(&self, read: u64, from: u64) -> u64 {
        let unit = self.unit();
        let ahead = read.wrapping_sub(from).wrapping_mul(unit);
        // A pointer before `from` is less than half a ring behind it.
        let ahead = self.wrap(ahead);
        from.saturating_add(if ahead > self.size / 2 { 0 } else { ahead / unit })
    }

    /// Looks at the read pointers and returns the bytes not yet consumed.
    pub fn used(&mut self, iface: &mut impl Iface) -> Result<u64, QueueError> {
        let mut used = 0;
        for q in &self.queues {
            let read = iface.read64(&q.pointers, q.read_ptr as u64)?;
            let read = self.wrap(read.wrapping_mul(self.unit()));
            used = used.max(self.wrap(self.wrap(self.put).wrapping_sub(read)));
        }
        self.read = self.put - used.min(self.put);
        Ok(used)
    }

    /// Everything submitted was seen to be done: spares a look at the read pointers.
    pub fn note_idle(&mut self) {
        self.read = self.put;
    }

    /// Bytes that are free as far as known without looking.
    fn known_free(&self) -> u64 {
        (self.size - 4).saturating_sub(self.put - self.read)
    }

    /// Waits until `needed` bytes are free.
    fn reserve(&mut self, iface: &mut impl Iface, needed: u64, timeout_us: u64) -> Result<(), QueueError> {
        if needed > self.size - 4 {
            return Err(QueueError::SubmissionTooLarge { kind: self.kind, needed, size: self.size });
        }
        if needed <= self.known_free() {
            return Ok(());
        }
        let start = iface.now_us();
        let mut looks = 0u32;
        loop {
            self.used(iface)?;
            if needed <= self.known_free() {
                return Ok(());
            }
            let waited_us = iface.now_us().saturating_sub(start);
            if waited_us >= timeout_us {
                return Err(QueueError::RingFull {
                    kind: self.kind,
                    needed,
                    free: self.known_free(),
                    read: self.read / self.unit(),
                    put: self.put(),
                    waited_us,
                });
            }
            looks = looks.saturating_add(1);
            if looks > SPACE_SPINS {
                iface.wait(SPACE_SLEEP_US.min(timeout_us - waited_us))?;
            }
        }
    }

    /// Appends dwords at the write position, which may wrap. Space was reserved.
    fn append(&mut self, iface: &mut impl Iface, dwords: &[u32]) -> Result<(), QueueError> {
        let Some(ring) = self.queues.first().map(|q| q.ring) else { return Ok(()) };
        let at = self.wrap(self.put);
        let fits = ((self.size - at) / 4) as usize;
        let (now, rest) = dwords.split_at_checked(fits).unwrap_or((dwords, &[]));
        iface.write_dwords(&ring, at, now)?;
        if !rest.is_empty() {
            iface.write_dwords(&ring, 0, rest)?;
        }
        self.put += dwords.len() as u64 * 4;
        Ok(())
    }

    /// Appends zeros up to a distance in bytes.
    fn append_zeros(&mut self, iface: &mut impl Iface, bytes: u64) -> Result<(), QueueError> {
        let zeros = [0u32; 64];
        let mut left = (bytes / 4) as usize;
        while left > 0 {
            let n = left.min(zeros.len());
            self.append(iface, zeros.get(..n).unwrap_or(&zeros))?;
            left -= n;
        }
        Ok(())
    }

    /// Publishes what was appended: write-pointer memory, fence, HDP flush, doorbells.
    fn kick(&mut self, iface: &mut impl Iface) -> Result<(), QueueError> {
        let put = self.put();
        for q in &self.queues {
            iface.write64(&q.pointers, q.write_ptr as u64, put)?;
        }
        iface.fence()?;
        iface.flush_hdp()?;
        for q in &self.queues {
            iface.ring_doorbell(q, put)?;
        }
        Ok(())
    }

    fn expect(&self, kind: QueueKind) -> Result<(), QueueError> {
        if self.kind == kind {
            Ok(())
        } else {
            Err(QueueError::BadRing { kind: self.kind, why: "the packets are for another kind of engine" })
        }
    }

    /// Submits PM4 packets; waits up to `timeout_us` for space.
    ///
    /// With several XCCs the packets are put into an indirect buffer inside the ring, because
    /// `PRED_EXEC` has no effect in a ring itself.
    pub fn submit_pm4(
        &mut self,
        iface: &mut impl Iface,
        dwords: &[u32],
        timeout_us: u64,
    ) -> Result<(), QueueError> {
        self.expect(QueueKind::Compute)?;
        let len = dwords.len() as u64;
        if self.queues.len() <= 1 {
            self.reserve(iface, len * 4, timeout_us)?;
            self.append(iface, dwords)?;
            return self.kick(iface);
        }
        // INDIRECT_BUFFER (4 dwords), then a NOP header that covers padding and packets.
        const HEAD: u64 = 5;
        let ring_dwords = self.size / 4;
        let start = self.wrap(self.put + HEAD * 4) / 4;
        let pad = if start + len > ring_dwords { ring_dwords - start } else { 0 };
        let skip = pad + len;
        if skip as usize > pm4::MAX_BODY {
            return Err(QueueError::PacketTooLong(skip as usize));
        }
        self.reserve(iface, (HEAD + skip) * 4, timeout_us)?;
        let base = self.queues.first().map_or(0, |q| q.ring.va);
        let [lo, hi, size] = pm4::indirect_body(base.wrapping_add(self.wrap((start + pad) * 4)), len as u32)?;
        let head = [
            pm4::header(op::opcode::INDIRECT_BUFFER, 3),
            lo,
            hi,
            size,
            pm4::header(op::opcode::NOP, skip as usize),
        ];
        self.append(iface, &head)?;
        self.append_zeros(iface, pad * 4)?;
        self.append(iface, dwords)?;
        self.kick(iface)
    }

    /// Submits `len` dwords of PM4 packets that lie at `va`, by reference.
    pub fn submit_pm4_indirect(
        &mut self,
        iface: &mut impl Iface,
        va: u64,
        len: u32,
        timeout_us: u64,
    ) -> Result<(), QueueError> {
        self.expect(QueueKind::Compute)?;
        let [lo, hi, size] = pm4::indirect_body(va, len)?;
        let packet = [pm4::header(op::opcode::INDIRECT_BUFFER, 3), lo, hi, size];
        self.reserve(iface, packet.len() as u64 * 4, timeout_us)?;
        self.append(iface, &packet)?;
        self.kick(iface)
    }

    /// Submits SDMA packets; waits up to `timeout_us` for space.
    pub fn submit_sdma(
        &mut self,
        iface: &mut impl Iface,
        dwords: &[u32],
        timeout_us: u64,
    ) -> Result<(), QueueError> {
        for len in sdma::decode::lengths(dwords) {
            len?;
        }
        let lengths = sdma::decode::lengths(dwords).map(|l| l.unwrap_or(0));
        self.submit_sdma_packets(iface, dwords, lengths, timeout_us)
    }

    /// Submits SDMA packets whose lengths in dwords the caller knows.
    pub fn submit_sdma_packets(
        &mut self,
        iface: &mut impl Iface,
        dwords: &[u32],
        lengths: impl Iterator<Item = usize>,
        timeout_us: u64,
    ) -> Result<(), QueueError> {
        self.expect(QueueKind::Sdma)?;
        let to_end = self.size - self.wrap(self.put);
        let (mut sum, mut tail, mut fits) = (0usize, 0usize, true);
        for len in lengths {
            sum = sum.saturating_add(len);
            fits = fits && sum as u64 * 4 <= to_end;
            if fits {
                tail = sum;
            }
        }
        if sum != dwords.len() {
            return Err(QueueError::BadPackets { sum, len: dwords.len() });
        }
        let bytes = |n: usize| n as u64 * 4;
        let rest = sum - tail;
        // Over USB a submission that starts at offset 0 can be gathered into one transfer; if the
        // ring is too small for that, it is split like any other.
        let whole = iface.align_submissions() && rest > 0 && to_end + bytes(sum) <= self.size - 4;
        if whole {
            tail = 0;
        }
        let (first, second) = dwords.split_at_checked(tail).unwrap_or((dwords, &[]));
        let needed = if second.is_empty() { bytes(tail) } else { to_end + bytes(second.len()) };
        self.reserve(iface, needed, timeout_us)?;
        self.append(iface, first)?;
        if !second.is_empty() {
            self.append_zeros(iface, to_end - bytes(tail))?;
            self.append(iface, second)?;
        }
        self.kick(iface)
    }

    /// Submits `len` dwords of SDMA packets that lie at `va`, by reference. The packet in the ring
    /// is made to end at a multiple of 8 dwords, as the engine demands.
    pub fn submit_sdma_indirect(
        &mut self,
        iface: &mut impl Iface,
        va: u64,
        len: u32,
        timeout_us: u64,
    ) -> Result<(), QueueError> {
        self.expect(QueueKind::Sdma)?;
        let packet = sdma::indirect(va, len)?;
        let to_end = self.size - self.wrap(self.put);
        let end = self.put / 4 + INDIRECT_DWORDS as u64;
        let mut pad = (end.next_multiple_of(8) - end) * 4;
        if pad + INDIRECT_DWORDS as u64 * 4 > to_end {
            pad = to_end + 8; // to offset 0, and there 2 dwords before 6
        }
        self.reserve(iface, pad + INDIRECT_DWORDS as u64 * 4, timeout_us)?;
        self.append_zeros(iface, pad)?;
        self.append(iface, &packet)?;
        self.kick(iface)
    }

    /// Waits until the engine has fetched everything.
    pub fn drain(&mut self, iface: &mut impl Iface, timeout_us: u64) -> Result<(), QueueError> {
        let start = iface.now_us();
        while self.used(iface)? != 0 {
            let after_us = iface.now_us().saturating_sub(start);
            if after_us >= timeout_us {
                return Err(QueueError::Iface(IfaceError::Timeout {
                    what: "the read pointer of a ring",
                    expected: self.put(),
                    last: self.read / self.unit(),
                    after_us,
                }));
            }
            iface.wait(SPACE_SLEEP_US.min(timeout_us - after_us))?;
        }
        Ok(())
    }
}
