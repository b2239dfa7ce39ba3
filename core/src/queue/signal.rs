//! Signals: 16-byte slots in which engines report a value and a time.
//!
//! A slot holds a 64-bit value at byte 0 and a 64-bit timestamp at byte 8. Engines store and compare
//! the low 32 bits of the value.

use crate::iface::{Buffer, Iface, IfaceError};

/// Size of a slot in bytes.
pub const SLOT_SIZE: u64 = 16;
/// Byte offset of the timestamp in a slot.
pub const TIMESTAMP_OFFSET: u64 = 8;
/// Clock ticks of a timestamp in one microsecond (100 MHz).
pub const TICKS_PER_US: u64 = 100;

/// A slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signal {
    slot: Buffer,
}

impl Signal {
    /// The `index`-th slot of a buffer.
    pub fn new(buffer: &Buffer, index: u32) -> Result<Signal, IfaceError> {
        Ok(Signal { slot: buffer.slice((index as u64).saturating_mul(SLOT_SIZE), SLOT_SIZE)? })
    }

    /// GPU address of the value.
    pub fn value_va(&self) -> u64 {
        self.slot.va
    }

    /// GPU address of the timestamp.
    pub fn timestamp_va(&self) -> u64 {
        self.slot.va.wrapping_add(TIMESTAMP_OFFSET)
    }

    /// Sets the value from the CPU and clears the timestamp.
    pub fn reset(&self, iface: &mut impl Iface, value: u32) -> Result<(), IfaceError> {
        iface.write64(&self.slot, 0, value as u64)?;
        iface.write64(&self.slot, TIMESTAMP_OFFSET, 0)
    }

    /// The value.
    pub fn value(&self, iface: &mut impl Iface) -> Result<u32, IfaceError> {
        iface.read32(&self.slot, 0)
    }

    /// The timestamp in microseconds.
    pub fn timestamp_us(&self, iface: &mut impl Iface) -> Result<f64, IfaceError> {
        Ok(ticks_to_us(iface.read64(&self.slot, TIMESTAMP_OFFSET)?))
    }

    /// Waits until the value has reached `target` (wrap-safe): polls `spins` times, then sleeps on
    /// the interrupt until `timeout_us` passed.
    pub fn wait(
        &self,
        iface: &mut impl Iface,
        target: u32,
        spins: u32,
        timeout_us: u64,
    ) -> Result<u32, IfaceError> {
        /// The longest sleep between looks at the value, should an interrupt be lost.
        const SLEEP_US: u64 = 20_000;
        let start = iface.now_us();
        let mut polls = 0u32;
        loop {
            let last = self.value(iface)?;
            if reached(last, target) {
                return Ok(last);
            }
            let waited = iface.now_us().saturating_sub(start);
            if waited >= timeout_us {
                return Err(IfaceError::Timeout {
                    what: "a signal's value",
                    expected: target as u64,
                    last: last as u64,
                    after_us: waited,
                });
            }
            polls = polls.saturating_add(1);
            if polls > spins {
                iface.wait(SLEEP_US.min(timeout_us - waited))?;
            }
        }
    }
}

/// Microseconds of a 100 MHz count.
pub fn ticks_to_us(ticks: u64) -> f64 {
    ticks as f64 / TICKS_PER_US as f64
}

/// Whether a timeline that stands at `value` has reached `target`. Right as long as the two are less
/// than 2^31 apart, also when the counter has wrapped in between.
pub const fn reached(value: u32, target: u32) -> bool {
    value.wrapping_sub(target) as i32 >= 0
}

/// A signal that only counts up: one step for each submission of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeline {
    /// Where the engines report.
    pub signal: Signal,
    next: u32,
    seen: u32,
}

impl Timeline {
    /// The last value before the counter has to start anew: engines compare unsigned, so a wait
    /// across the wrap would never end.
    const LAST: u32 = u32::MAX - 1;

    /// A timeline over a slot, which is reset to 0.
    pub fn new(iface: &mut impl Iface, signal: Signal) -> Result<Timeline, IfaceError> {
        signal.reset(iface, 0)?;
        Ok(Timeline { signal, next: 1, seen: 0 })
    }

    /// The value that the next submission will signal.
    pub fn next_value(&self) -> u32 {
        self.next
    }

    /// The value of the latest submission; 0 before the first.
    pub fn last_value(&self) -> u32 {
        self.next.wrapping_sub(1)
    }

    /// Takes the next value. Before the 32-bit counter would wrap, the caller has to wait for
    /// everything and [`Timeline::restart`]; until then this fails.
    pub fn advance(&mut self) -> Result<u32, IfaceError> {
        if self.next > Self::LAST {
            return Err(IfaceError::Hang(
                "the timeline counter is exhausted; wait for all work and restart it",
            ));
        }
        let value = self.next;
        self.next = self.next.wrapping_add(1);
        Ok(value)
    }

    /// Starts again at 0. Everything must be done.
    pub fn restart(&mut self, iface: &mut impl Iface) -> Result<(), IfaceError> {
        let last = self.last_value();
        let seen = self.poll(iface)?;
        if !reached(seen, last) {
            return Err(IfaceError::InUse { va: self.signal.value_va(), until: last as u64 });
        }
        self.signal.reset(iface, 0)?;
        (self.next, self.seen) = (1, 0);
        Ok(())
    }

    /// Takes everything submitted for done: nothing will signal any more.
    pub(crate) fn abandon(&mut self, iface: &mut impl Iface) -> Result<(), IfaceError> {
        let last = self.last_value();
        self.signal.reset(iface, last)?;
        self.seen = last;
        Ok(())
    }

    /// The value last seen, without looking again.
    pub fn seen(&self) -> u32 {
        self.seen
    }

    /// Looks at the value.
    pub fn poll(&mut self, iface: &mut impl Iface) -> Result<u32, IfaceError> {
        self.seen = self.signal.value(iface)?;
        Ok(self.seen)
    }

    /// Waits for one value; at once if it was already seen.
    pub fn wait(
        &mut self,
        iface: &mut impl Iface,
        target: u32,
        spins: u32,
        timeout_us: u64,
    ) -> Result<(), IfaceError> {
        if !reached(self.seen, target) {
            self.seen = self.signal.wait(iface, target, spins, timeout_us)?;
        }
        Ok(())
    }
}
