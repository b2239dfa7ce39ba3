//! Lets the device's time pass while nobody accesses it.

use crate::gpu::SimGpu;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The thread sleeps at least that long: a queue that waits for memory looks again so often.
const SHORTEST: Duration = Duration::from_micros(50);

#[derive(Default)]
struct Plan {
    /// When the thread looks next; `None`: when it is told to.
    wake: Option<Instant>,
    /// Something earlier came up.
    again: bool,
}

struct Shared {
    plan: Mutex<Plan>,
    earlier: Condvar,
}

/// Wakes when the device has something to do, and sleeps otherwise.
pub(super) struct Ticker {
    gpu: SimGpu,
    shared: Arc<Shared>,
}

impl Ticker {
    pub(super) fn start(gpu: SimGpu) -> Ticker {
        let shared = Arc::new(Shared { plan: Mutex::default(), earlier: Condvar::new() });
        let ticker = Ticker { gpu: gpu.clone(), shared: Arc::clone(&shared) };
        std::thread::spawn(move || run(&gpu, &shared));
        ticker
    }

    /// Something was done to the device: it may have to be looked after sooner.
    pub(super) fn touched(&self) {
        let Some(ns) = self.gpu.next_due() else { return };
        let due = Instant::now() + Duration::from_nanos(ns);
        let mut plan = self.shared.plan.lock().unwrap_or_else(PoisonError::into_inner);
        if !plan.again && plan.wake.is_none_or(|wake| due + SHORTEST < wake) {
            plan.again = true;
            self.shared.earlier.notify_one();
        }
    }
}

fn run(gpu: &SimGpu, shared: &Shared) {
    loop {
        let next = gpu.run_due();
        let mut plan = shared.plan.lock().unwrap_or_else(PoisonError::into_inner);
        plan.wake = next.map(|ns| Instant::now() + Duration::from_nanos(ns).max(SHORTEST));
        while !plan.again {
            plan = match plan.wake {
                None => shared.earlier.wait(plan).unwrap_or_else(PoisonError::into_inner),
                Some(wake) => {
                    let left = wake.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    shared.earlier.wait_timeout(plan, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        plan.again = false;
        // What comes up while the device runs must not be measured by a moment that has passed: the
        // device may have answered already that it has nothing to do.
        plan.wake = None;
        drop(plan);
        // A moment for the thread that serves the client to take the device.
        std::thread::yield_now();
    }
}
