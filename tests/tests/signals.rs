//! A signal at each wait of a boot and of a shutdown: the work ends, nothing is reset for it, and the next
//! process finds a device that it can boot as before.

use amdev_cli::bus_session::{BusSession, HostBus};
use amdev_cli::guard::Guarded;
use amdev_cli::progress::Silent;
use amdev_cli::session::{BootOptions, BootReport, OpenOptions, Session as _};
use amdev_cli::sim::SimBus;
use amdev_core::bus::{Bus, BusError, Clock, Dma, Mmio};
use amdev_sim::bridge::{Bridge, BridgeConfig};
use amdev_sim::{Config, SimGpu};
use amdev_usb::sim::SimPort;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// What a mode-1 reset takes at least (see `smu::mode1_reset`).
const MODE1_US: u64 = 500_000;

/// When the signal comes, and what was done.
#[derive(Clone, Default)]
struct Plan {
    stop: Arc<AtomicBool>,
    waits: Arc<AtomicU64>,
    at: Arc<AtomicU64>,
    /// Begin and end of resets by the device's clock.
    resets: Arc<Mutex<Vec<(u64, u64)>>>,
}

impl Plan {
    /// The signal comes in this wait, counted from now on; in none where it is 0.
    fn at(&self, wait: u64) {
        self.waits.store(0, Relaxed);
        self.at.store(wait, Relaxed);
    }

    fn wait(&self) {
        if self.waits.fetch_add(1, Relaxed) + 1 == self.at.load(Relaxed) {
            self.stop.store(true, Relaxed);
        }
    }

    fn resets(&self) -> Vec<(u64, u64)> {
        self.resets.lock().unwrap().clone()
    }
}

/// A bus on which a signal comes as planned.
struct Signalled<B> {
    inner: B,
    plan: Plan,
}

impl<B: Mmio> Mmio for Signalled<B> {
    amdev_core::delegate_windows!();
    fn flush(&mut self) -> Result<(), BusError> {
        self.plan.wait();
        self.inner.flush()
    }
    fn fence(&mut self) -> Result<(), BusError> {
        self.plan.wait();
        self.inner.fence()
    }
}

impl<B: Dma> Dma for Signalled<B> {
    amdev_core::delegate_dma!();
}

impl<B: Bus> Bus for Signalled<B> {
    fn clock(&self) -> &dyn Clock {
        self.inner.clock()
    }
    fn wait_interrupt(&mut self, timeout_us: u64) -> Result<bool, BusError> {
        self.plan.wait();
        self.inner.wait_interrupt(timeout_us)
    }
    fn before_reset(&mut self) -> Result<(), BusError> {
        let now = self.clock().now_us();
        self.plan.resets.lock().unwrap().push((now, now));
        self.inner.before_reset()
    }
    fn after_reset(&mut self) -> Result<(), BusError> {
        let now = self.clock().now_us();
        self.plan.resets.lock().unwrap().last_mut().unwrap().1 = now;
        self.inner.after_reset()
    }
    fn reset_bus(&mut self) -> Result<(), BusError> {
        self.plan.resets.lock().unwrap().push((0, u64::MAX));
        self.inner.reset_bus()
    }
    amdev_core::delegate_traits!();
}

impl<B: HostBus> HostBus for Signalled<B> {
    fn violations(&self) -> Option<Vec<String>> {
        self.inner.violations()
    }
    fn synthetic_firmware_allowed(&self) -> bool {
        true
    }
    fn sizes(&self) -> amdev_core::runtime::Sizes {
        self.inner.sizes()
    }
    fn pci_id(&mut self) -> (u16, u8) {
        self.inner.pci_id()
    }
}

/// A process that opens the device.
fn process<B: HostBus>(inner: B) -> (BusSession<Guarded<Signalled<B>>>, Plan) {
    let plan = Plan::default();
    let bus = Guarded::stopped_by(Signalled { inner, plan: plan.clone() }, Arc::clone(&plan.stop));
    let options = OpenOptions { synthetic_firmware: true, ..OpenOptions::default() };
    (BusSession::new(bus, "device".into(), &options).unwrap(), plan)
}

fn is_stopped(error: &anyhow::Error) -> bool {
    error.chain().any(|e| e.to_string().contains(&BusError::Stopped.to_string()))
}

/// A boot in the first process that sees no signal; its resets, and how often it waited.
fn boots<B: HostBus>(inner: B, end: End) -> (BootReport, Vec<(u64, u64)>, u64) {
    let (mut session, plan) = process(inner);
    let report = session.boot(&BootOptions::default(), &mut Silent).unwrap();
    let waits = plan.waits.load(Relaxed);
    assert_eq!(session.violations(), Some(vec![]));
    if end == End::InOrder {
        Box::new(session).release().unwrap();
    }
    (report, plan.resets(), waits)
}

/// How a process ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    InOrder,
    /// It is killed.
    Dead,
}

/// A signal in a wait of a boot. False if the boot had fewer.
fn stopped_boot<B: HostBus>(inner: B, wait: u64, may_reset: bool) -> bool {
    let (mut session, plan) = process(inner);
    plan.at(wait);
    let booted = session.boot(&BootOptions::default(), &mut Silent);
    let came = plan.stop.load(Relaxed);
    match &booted {
        Err(e) => assert!(came && is_stopped(e), "wait {wait}: {e:?}"),
        // It came in the last wait, after which nothing asks any more.
        Ok(_) => assert!(plan.waits.load(Relaxed) <= wait, "wait {wait}: the signal was not heard"),
    }
    let resets = plan.resets();
    assert!(may_reset || resets.is_empty(), "wait {wait}: {resets:?}");
    for (begin, end) in resets {
        assert!(end >= begin + MODE1_US, "wait {wait}: the reset took {} us", end - begin);
    }
    Box::new(session).release().unwrap_or_else(|e| panic!("wait {wait}: {e:?}"));
    came
}

fn cold(name: &str) -> SimGpu {
    SimGpu::new(Config::parse(name).unwrap())
}

#[test]
fn a_signal_ends_a_warm_boot_and_the_next_one_is_warm_again() {
    for (name, before) in
        [("navi31", End::InOrder), ("navi48", End::InOrder), ("navi31", End::Dead), ("navi48", End::Dead)]
    {
        let gpu = cold(name);
        boots(SimBus::new(gpu.clone()), before);
        let (report, _, waits) = boots(SimBus::new(gpu.clone()), before);
        assert_eq!(report.path, "warm", "{}", report.why);
        assert!(waits > 20, "{name}: {waits} waits");
        for wait in 1..waits + 4 {
            let came = stopped_boot(SimBus::new(gpu.clone()), wait, false);
            assert!(came || wait > waits / 2, "{name}: no wait {wait} of {waits}");
            let (report, resets, _) = boots(SimBus::new(gpu.clone()), before);
            assert_eq!((report.path.as_str(), resets.len()), ("warm", 0), "{name}, {wait}: {}", report.why);
        }
    }
}

#[test]
fn a_signal_ends_a_cold_boot_but_no_reset_and_no_bootloader_that_has_begun() {
    for name in ["navi31,state=amdgpu", "navi48,state=amdgpu", "navi31", "navi48"] {
        let (_, resets, waits) = boots(SimBus::new(cold(name)), End::InOrder);
        assert_eq!(resets.len(), usize::from(name.contains("state")), "{name}");
        // Every one of the first, where resets are; then each eleventh.
        for wait in (1..40).chain((40..waits).step_by(11)) {
            let gpu = cold(name);
            stopped_boot(SimBus::new(gpu.clone()), wait, true);
            let (report, ..) = boots(SimBus::new(gpu.clone()), End::InOrder);
            let (again, ..) = boots(SimBus::new(gpu), End::InOrder);
            assert_eq!(again.path, "warm", "{name}, {wait}, after {}: {}", report.path, again.why);
        }
    }
}

#[test]
fn a_signal_during_a_shutdown_changes_nothing() {
    for name in ["navi31", "navi48"] {
        let gpu = cold(name);
        let mut waits = u64::MAX;
        let mut wait = 0;
        while wait <= waits {
            let (mut session, plan) = process(SimBus::new(gpu.clone()));
            session.boot(&BootOptions::default(), &mut Silent).unwrap();
            let buffer = session.alloc(1 << 16).unwrap();
            session.upload(buffer, &[7; 1 << 16]).unwrap();
            plan.at(wait);
            // Both ways: the command for it, and the end of any other.
            if wait % 2 == 1 {
                session.fini(&mut Silent).unwrap_or_else(|e| panic!("{name}, wait {wait}: {e:?}"));
            }
            Box::new(session).release().unwrap_or_else(|e| panic!("{name}, wait {wait}: {e:?}"));
            if wait == 0 {
                waits = plan.waits.load(Relaxed);
                assert!(waits > 10, "{waits}");
            }
            let (report, resets, _) = boots(SimBus::new(gpu.clone()), End::InOrder);
            assert_eq!(report.path, "warm", "{name}, wait {wait}: {}", report.why);
            assert!(report.why.contains("in order") && resets.is_empty(), "wait {wait}: {}", report.why);
            wait += 1;
        }
    }
}

#[test]
fn a_signal_ends_copies_over_usb_and_the_next_boot_is_warm() {
    for firmware in ["patched", "custom"] {
        let bridge = Bridge::new(BridgeConfig::parse(&format!("navi48,bridge={firmware}")).unwrap());
        let open = || amdev_usb::backend::bus(Box::new(SimPort::new(bridge.clone()))).unwrap();
        boots(open(), End::InOrder);
        let mut stopped = 0;
        for wait in 0..12 {
            let (mut session, plan) = process(open());
            session.boot(&BootOptions::default(), &mut Silent).unwrap();
            let buffer = session.alloc(200_000).unwrap();
            plan.at(wait);
            plan.stop.store(wait == 0, Relaxed);
            let mut back = vec![0; 200_000];
            let done =
                session.upload(buffer, &vec![3; 200_000]).and_then(|_| session.download(buffer, &mut back));
            match done {
                Ok(_) => assert!(back.iter().all(|b| *b == 3)),
                Err(e) => {
                    assert!(is_stopped(&e), "{firmware}, wait {wait}: {e:?}");
                    stopped += 1;
                }
            }
            Box::new(session).release().unwrap_or_else(|e| panic!("{firmware}, wait {wait}: {e:?}"));
            let (report, ..) = boots(open(), End::InOrder);
            assert!(report.why.contains("in order"), "{firmware}, wait {wait}: {}", report.why);
        }
        assert!(stopped > 3, "{firmware}: {stopped} copies were stopped");
    }
}

#[test]
fn a_signal_ends_boots_and_shutdowns_over_usb() {
    for firmware in ["patched", "custom"] {
        let bridge = Bridge::new(BridgeConfig::parse(&format!("navi48,bridge={firmware}")).unwrap());
        let open = || amdev_usb::backend::bus(Box::new(SimPort::new(bridge.clone()))).unwrap();
        boots(open(), End::InOrder);
        let (report, _, waits) = boots(open(), End::InOrder);
        assert_eq!(report.path, "warm", "{}", report.why);
        for wait in (1..waits).step_by(5) {
            stopped_boot(open(), wait, false);
            let (mut session, plan) = process(open());
            let report = session.boot(&BootOptions::default(), &mut Silent).unwrap();
            assert_eq!((report.path.as_str(), plan.resets().len()), ("warm", 0), "{wait}: {}", report.why);
            plan.at(wait);
            Box::new(session).release().unwrap_or_else(|e| panic!("wait {wait}: {e:?}"));
            let (report, ..) = boots(open(), End::InOrder);
            assert!(report.why.contains("in order"), "{firmware}, wait {wait}: {}", report.why);
        }
    }
}
