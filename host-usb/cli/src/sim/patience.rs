//! This machine's time for devices whose own clock may hardly move.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long this machine waits for a simulated device.
pub(super) struct Patience {
    limit_us: u64,
    until: Cell<Instant>,
    /// What the device's clock is set forward: each time the limit passes, as much as was waited, so
    /// that whatever waits for the device finds that its time is over.
    ahead_us: Cell<u64>,
}

impl Patience {
    pub(super) fn new(limit_us: u64) -> Self {
        Patience { limit_us, until: Cell::new(Self::after(limit_us)), ahead_us: Cell::new(0) }
    }

    fn after(us: u64) -> Instant {
        Instant::now() + Duration::from_micros(us)
    }

    pub(super) fn ahead_us(&self) -> u64 {
        if Instant::now() >= self.until.get() {
            self.until.set(Self::after(self.limit_us));
            self.ahead_us.set(self.ahead_us.get().saturating_add(self.limit_us));
        }
        self.ahead_us.get()
    }
}

#[cfg(test)]
mod tests {
    use super::super::SimBus;
    use crate::bus_session::HostBus as _;
    use amdev_core::bus::Clock as _;
    use amdev_sim::{Config, SimGpu};
    use std::time::Duration;

    #[test]
    fn a_device_whose_clock_stands_still_is_late_by_this_machines_clock() {
        let mut bus = SimBus::new(SimGpu::new(Config::new("navi31").unwrap()));
        std::thread::sleep(Duration::from_millis(2));
        let before = bus.now_us();
        assert!(before < 1_000, "its own clock moves with accesses only: {before}");
        bus.bound_real_time(1_000);
        std::thread::sleep(Duration::from_millis(2));
        let late = bus.now_us();
        assert!((1_000..2_000).contains(&late), "{late}");
        std::thread::sleep(Duration::from_millis(2));
        assert!(bus.now_us() >= 2_000, "and again");
    }
}
