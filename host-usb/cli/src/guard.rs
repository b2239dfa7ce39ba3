//! A bus that ends the work when the user, or the machine, asks for it.

use crate::bus_session::HostBus;
use amdev_core::bus::{Bus, BusError, Clock, Dma, Mmio};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by SIGINT, SIGTERM and SIGHUP.
fn stop() -> &'static Arc<AtomicBool> {
    static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    STOP.get_or_init(Arc::default)
}

/// From now on SIGINT, SIGTERM and SIGHUP (its terminal is closed) end the work under way, so that the
/// device is shut down in order; the second one ends the process at once.
pub fn watch_signals() {
    let armed = Arc::new(AtomicBool::new(false));
    let mut signals = vec![signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];
    #[cfg(unix)]
    if !is_ignored(signal_hook::consts::SIGHUP) {
        signals.push(signal_hook::consts::SIGHUP);
    }
    for signal in signals {
        // In this order: the first signal finds the second flag not yet set. Where a handler cannot be
        // installed the signal ends the process, as it does without.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&armed));
        let _ = signal_hook::flag::register(signal, Arc::clone(&armed));
        let _ = signal_hook::flag::register(signal, Arc::clone(stop()));
    }
}

/// Whether the parent had a signal ignored, as `nohup` does; where that cannot be known, it is left to the
/// system.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).is_none_or(|m| m >> (signal - 1) & 1 != 0)
}

/// Whether a signal asks for the end.
pub fn stop_asked() -> bool {
    stop().load(Ordering::Relaxed)
}

/// Microseconds that the machine has slept since it was switched on.
#[cfg(target_os = "linux")]
fn slept_us() -> i64 {
    use rustix::time::{ClockId, clock_gettime};
    let us = |t: rustix::time::Timespec| t.tv_sec * 1_000_000 + t.tv_nsec / 1000;
    us(clock_gettime(ClockId::Boottime)) - us(clock_gettime(ClockId::Monotonic))
}

/// Elsewhere a machine that slept is noticed by registers that read as all ones.
#[cfg(not(target_os = "linux"))]
fn slept_us() -> i64 {
    0
}

/// Between the two clocks as much as that may be between their reading.
const ASLEEP_US: i64 = 500_000;

/// See the module. Once asked for, the end stays asked for: each wait is an error then, but for those of
/// the shutdown, and of what cannot be left half-way ([`Bus::keep_whole`]).
pub struct Guarded<B> {
    inner: B,
    stop: Arc<AtomicBool>,
    /// How many things are under way that must not be left half-way: a reset, the bootloader, a message.
    whole: u32,
    /// What is done now is part of the end, or short and not to be broken off.
    finishing: bool,
    slept_us: i64,
    asleep: Cell<bool>,
}

impl<B> Guarded<B> {
    /// Guards a bus that was just opened.
    pub fn new(inner: B) -> Self {
        Guarded::stopped_by(inner, Arc::clone(stop()))
    }

    /// The same, with a flag of the caller in the place of signals.
    pub fn stopped_by(inner: B, stop: Arc<AtomicBool>) -> Self {
        let asleep = Cell::new(false);
        Guarded { inner, stop, whole: 0, finishing: false, slept_us: slept_us(), asleep }
    }

    /// What ends the work: every wait flushes before it sleeps, every submission has a fence.
    fn check(&self) -> Result<(), BusError> {
        if self.whole == 0 && !self.finishing && self.stop.load(Ordering::Relaxed) {
            return Err(BusError::Stopped);
        }
        if self.asleep.get() || slept_us() - self.slept_us > ASLEEP_US {
            self.asleep.set(true);
            return Err(BusError::Slept);
        }
        Ok(())
    }
}

impl<B: Mmio> Mmio for Guarded<B> {
    amdev_core::delegate_windows!();
    fn flush(&mut self) -> Result<(), BusError> {
        self.check()?;
        self.inner.flush()
    }
    fn fence(&mut self) -> Result<(), BusError> {
        // Work that never has to be waited for, as over a slow bus, has no other moment.
        self.check()?;
        self.inner.fence()
    }
}

impl<B: Dma> Dma for Guarded<B> {
    amdev_core::delegate_dma!();
}

impl<B: Bus> Bus for Guarded<B> {
    fn clock(&self) -> &dyn Clock {
        self.inner.clock()
    }
    fn wait_interrupt(&mut self, timeout_us: u64) -> Result<bool, BusError> {
        self.check()?;
        self.inner.wait_interrupt(timeout_us)
    }
    fn before_reset(&mut self) -> Result<(), BusError> {
        self.inner.before_reset()?;
        self.keep_whole(true);
        Ok(())
    }
    fn after_reset(&mut self) -> Result<(), BusError> {
        self.keep_whole(false);
        self.inner.after_reset()
    }
    fn keep_whole(&mut self, on: bool) {
        self.whole = if on { self.whole + 1 } else { self.whole.saturating_sub(1) };
    }
    fn reset_bus(&mut self) -> Result<(), BusError> {
        self.inner.reset_bus()
    }
    amdev_core::delegate_traits!();
}

impl<B: HostBus> HostBus for Guarded<B> {
    fn violations(&self) -> Option<Vec<String>> {
        self.inner.violations()
    }
    fn synthetic_firmware_allowed(&self) -> bool {
        self.inner.synthetic_firmware_allowed()
    }
    fn bound_real_time(&mut self, limit_us: u64) {
        self.inner.bound_real_time(limit_us);
    }
    fn sizes(&self) -> amdev_core::runtime::Sizes {
        self.inner.sizes()
    }
    fn usb_counts(&self) -> Option<crate::session::UsbCounts> {
        self.inner.usb_counts()
    }
    fn stop_asked(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
    fn finishing(&mut self, on: bool) -> bool {
        std::mem::replace(&mut self.finishing, on)
    }
    fn may_be_asked(&self) -> bool {
        self.inner.may_be_asked()
    }
    fn asked(&mut self) -> Option<Box<dyn std::io::Write>> {
        self.inner.asked()
    }
    fn close(self) -> anyhow::Result<()> {
        self.inner.close()
    }
    fn pci_id(&mut self) -> (u16, u8) {
        self.inner.pci_id()
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::*;
    use crate::sim::SimBus;
    use amdev_core::bus::Window;
    use amdev_sim::{Config, SimGpu};

    #[test]
    fn a_machine_that_slept_meanwhile_has_lost_the_devices_state() {
        let mut bus = Guarded::new(SimBus::new(SimGpu::new(Config::new("navi31").unwrap())));
        bus.flush().unwrap();
        // As if the machine had slept for two seconds since the device was opened.
        bus.slept_us -= 2_000_000;
        assert_eq!(bus.flush(), Err(BusError::Slept));
        assert_eq!(bus.wait_interrupt(1000), Err(BusError::Slept), "and it stays so");
        // What is left to do is to read and to give back.
        assert!(bus.read32(Window::Registers, 0xde3 * 4).is_ok());
        let mut fresh = Guarded::new(SimBus::new(SimGpu::new(Config::new("navi31").unwrap())));
        fresh.slept_us -= ASLEEP_US / 2;
        assert!(fresh.flush().is_ok(), "the clocks are not read at once");
    }
}
