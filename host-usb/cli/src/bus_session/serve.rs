//! The bus of a session: it watches what is done, and answers who asks what the device measures.
//!
//! The owner of a device is the only one that may talk to the SMU: its mailbox serves one at a time, and
//! a VFIO group, a vfio-user server or a USB interface lets nobody else in. So `smi` in another process
//! asks the owner, who looks between two accesses of its own. While it uses the mailbox itself (boot,
//! shutdown, reset) it answers nobody.

use super::{HostBus, smi};
use crate::session::SmiReport;
use crate::trace_file::TraceFile;
use amdev_core::bus::count::{Count, Counts};
use amdev_core::bus::trace::Trace;
use amdev_core::bus::window::SmallBar;
use amdev_core::bus::{Bus, BusError, Clock, Dma, Mmio};
use amdev_core::device::Found;
use amdev_core::ip::smu::DpmTable;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// How often is looked whether somebody asks: seldom enough to cost nothing.
const LISTEN: Duration = Duration::from_millis(10);

/// A device's bus with everything that watches it. The trace stands next to the device: it shows what
/// really goes over the bus, index registers for VRAM beyond a small BAR included.
pub(crate) struct Watched<B: HostBus> {
    inner: SmallBar<Count<Trace<B, TraceFile>>>,
    serves: Option<(Found, DpmTable)>,
    listened: Instant,
}

impl<B: HostBus> Watched<B> {
    pub(super) fn new(bus: B, trace: TraceFile) -> Self {
        let inner = SmallBar::new(Count::new(Trace::new(bus, trace)), 0);
        Watched { inner, serves: None, listened: Instant::now() }
    }

    /// The host's part of it.
    pub(super) fn host(&self) -> &B {
        self.inner.inner().inner().inner()
    }

    /// The host's part of it.
    pub(super) fn host_mut(&mut self) -> &mut B {
        self.inner.inner_mut().inner_mut().inner_mut()
    }

    pub(super) fn trace(&mut self) -> &mut TraceFile {
        self.inner.inner_mut().inner_mut().sink_mut()
    }

    pub(super) fn counts(&self) -> Counts {
        self.inner.inner().counts()
    }

    pub(super) fn set_vram_len(&mut self, vram_len: u64) {
        self.inner.set_vram_len(vram_len);
    }

    pub(super) fn into_parts(self) -> (B, TraceFile) {
        self.inner.into_inner().into_inner().into_parts()
    }

    /// From now on, until [`Watched::stop_serving`], nobody else uses the mailbox: who asks is answered.
    pub(super) fn serve(&mut self, found: Found, levels: DpmTable) {
        self.serves = Some((found, levels));
    }

    /// Answers nobody any more; what [`Watched::serve`] was given.
    pub(super) fn stop_serving(&mut self) -> Option<(Found, DpmTable)> {
        self.serves.take()
    }

    /// Answers who has asked. What goes wrong is theirs to know, and no error of the work.
    fn listen(&mut self) {
        if self.serves.is_none() || self.listened.elapsed() < LISTEN || !self.host().may_be_asked() {
            return;
        }
        if let (Some((found, levels)), Some(mut who)) =
            (&self.serves, self.inner.inner_mut().inner_mut().inner_mut().asked())
        {
            // The SMU is not left in the middle of a message.
            let before = self.inner.inner_mut().inner_mut().inner_mut().finishing(true);
            let mut device = found.clone().on(&mut self.inner).device;
            let answer = match smi::report_soon(&mut device, levels) {
                Ok(report) => Answer::Report(report),
                Err(e) => Answer::Error(crate::output::error_text(&e)),
            };
            self.inner.inner_mut().inner_mut().inner_mut().finishing(before);
            let sent = serde_json::to_vec(&answer).map_err(Into::into).and_then(|text| who.write_all(&text));
            match sent {
                Ok(()) => tracing::debug!("told another process what the device measures"),
                Err(e) => tracing::debug!("another process asked what the device measures, and left: {e}"),
            }
        }
        self.listened = Instant::now();
    }
}

/// What an owner answers.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answer {
    /// A sample.
    Report(SmiReport),
    /// Why there is none.
    Error(String),
}

impl<B: HostBus> Mmio for Watched<B> {
    amdev_core::delegate_windows!();
    fn flush(&mut self) -> Result<(), BusError> {
        self.inner.flush()?;
        self.listen();
        Ok(())
    }
    fn fence(&mut self) -> Result<(), BusError> {
        self.inner.fence()?;
        // Work that ends at once has no other wait: each submission has a fence.
        self.listen();
        Ok(())
    }
}

impl<B: HostBus> Dma for Watched<B> {
    amdev_core::delegate_dma!();
}

impl<B: HostBus> Bus for Watched<B> {
    fn clock(&self) -> &dyn Clock {
        self.inner.clock()
    }

    fn wait_interrupt(&mut self, timeout_us: u64) -> Result<bool, BusError> {
        if self.serves.is_none() || !self.host().may_be_asked() {
            return self.inner.wait_interrupt(timeout_us);
        }
        // In pieces: who asks does not wait for the work's end.
        let mut left = timeout_us;
        loop {
            self.listen();
            let step = left.min(LISTEN.as_micros() as u64);
            let before = self.clock().now_us();
            if self.inner.wait_interrupt(step)? {
                return Ok(true);
            }
            // Hosts without interrupts return sooner.
            let passed = self.clock().now_us().saturating_sub(before);
            left -= step;
            if left == 0 || passed < step {
                return Ok(false);
            }
        }
    }

    amdev_core::delegate_resets!();
    amdev_core::delegate_traits!();
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::*;
    use crate::bus_session::BusSession;
    use crate::progress::Silent;
    use crate::session::{BootOptions, OpenOptions, Session as _};
    use crate::sim::SimBus;
    use amdev_sim::{Config, SimGpu};
    use std::sync::{Arc, Mutex};

    /// What those who asked have heard.
    type Heard = Arc<Mutex<Vec<Vec<u8>>>>;

    /// A bus on which somebody asks all the time.
    struct Asked {
        inner: SimBus,
        heard: Heard,
    }

    struct Asker(Heard, usize);

    impl std::io::Write for Asker {
        fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap()[self.1].extend_from_slice(data);
            Ok(data.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Mmio for Asked {
        amdev_core::delegate_windows!();
        fn flush(&mut self) -> Result<(), BusError> {
            self.inner.flush()
        }
        fn fence(&mut self) -> Result<(), BusError> {
            self.inner.fence()
        }
    }

    impl Dma for Asked {
        amdev_core::delegate_dma!();
    }

    impl Bus for Asked {
        fn clock(&self) -> &dyn Clock {
            self.inner.clock()
        }
        amdev_core::delegate_resets!();
        amdev_core::delegate_traits!();
    }

    impl HostBus for Asked {
        fn violations(&self) -> Option<Vec<String>> {
            self.inner.violations()
        }
        fn synthetic_firmware_allowed(&self) -> bool {
            true
        }
        fn may_be_asked(&self) -> bool {
            true
        }
        fn asked(&mut self) -> Option<Box<dyn std::io::Write>> {
            let mut heard = self.heard.lock().unwrap();
            heard.push(Vec::new());
            Some(Box::new(Asker(Arc::clone(&self.heard), heard.len() - 1)))
        }
        fn pci_id(&mut self) -> (u16, u8) {
            self.inner.pci_id()
        }
    }

    #[test]
    fn who_asks_is_answered_between_short_work_and_never_while_the_mailbox_is_used() {
        let heard = Heard::default();
        let inner = SimBus::new(SimGpu::new(Config::new("navi48").unwrap()));
        let bus = Asked { inner, heard: Arc::clone(&heard) };
        let options = OpenOptions { synthetic_firmware: true, ..OpenOptions::default() };
        let mut session = BusSession::new(bus, "sim:navi48".into(), &options).unwrap();
        session.boot(&BootOptions::default(), &mut Silent).unwrap();
        let asked = || heard.lock().unwrap().len();
        assert_eq!(asked(), 0, "nobody is heard during a boot");
        let buffer = session.alloc(4096).unwrap();
        let start = Instant::now();
        while asked() < 3 {
            assert!(start.elapsed() < Duration::from_secs(30), "only {} answers", asked());
            session.upload(buffer, &[7; 4096]).unwrap();
        }
        for answer in heard.lock().unwrap().iter() {
            match serde_json::from_slice(answer).unwrap() {
                Answer::Report(report) => {
                    assert!(report.power_limit_w > 0 && !report.levels_mhz[0].is_empty())
                }
                Answer::Error(why) => panic!("{why}"),
            }
        }
        // Seldom enough to cost little, and not while the session itself talks to the SMU.
        assert!(asked() as u128 <= 1 + start.elapsed().as_millis() / LISTEN.as_millis());
        std::thread::sleep(2 * LISTEN);
        let before = asked();
        session.smi().unwrap();
        session.fini(&mut Silent).unwrap();
        assert!(asked() <= before + 1, "only between taking down the queues and the rest");
        assert_eq!(session.violations(), Some(vec![]));
        Box::new(session).release().unwrap();
    }
}
