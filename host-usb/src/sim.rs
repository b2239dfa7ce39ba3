//! The simulated bridge as a port, and as a device: `sim-usb:GPU`.

use crate::backend;
use crate::error::UsbError;
use crate::port::{Completion, Description, End, Port, Speed, Transfer};
use amdev_cli::session::{BootOptions, OpenOptions, Session as _};
use amdev_cli::{bus_session::BusSession, progress::Silent};
use amdev_sim::bridge::usb::{self, Status, UsbPort};
use amdev_sim::bridge::{Bridge, BridgeConfig, Firmware};
use amdev_sim::{Config, State};
use anyhow::Context as _;

/// A host controller's port with the simulated bridge in it. Time is the bridge's.
pub struct SimPort {
    bridge: Bridge,
    description: Description,
}

impl SimPort {
    /// Plugs it in.
    pub fn new(bridge: Bridge) -> Self {
        let (product, settings) = match bridge.config().firmware {
            Firmware::Patched => ("USB 3.2 PCIe TinyEnclosure", vec![(8, 6, 0x50), (8, 6, 0x62)]),
            Firmware::Custom => ("custom v0.1", vec![(0xff, 0xff, 0xff); 2]),
        };
        let description = Description {
            place: "simulated".into(),
            id: (0xadd1, 0x0001),
            manufacturer: "tiny".into(),
            product: product.into(),
            serial: "00000001".into(),
            speed: Speed::SuperPlus,
            settings,
        };
        SimPort { bridge, description }
    }

    fn control(&mut self, request_type: u8, request: u8, value: u16, index: u16) -> Result<(), UsbError> {
        let setup = usb::Setup { request_type, request, value, index, length: 0 };
        let id = self.bridge.submit(usb::Transfer::Control { setup, data: Vec::new() });
        loop {
            match self.bridge.poll() {
                Some(c) if c.id == id => return answer(c.status),
                Some(_) => {}
                None if self.bridge.wait() => {}
                None => return answer(Status::Timeout),
            }
        }
    }
}

fn answer(status: Status) -> Result<(), UsbError> {
    match status {
        Status::Success => Ok(()),
        Status::Io => Err(UsbError::Gone),
        other => Err(UsbError::Refused(format!("the simulated bridge ends a request as {other:?}"))),
    }
}

impl Port for SimPort {
    fn description(&self) -> &Description {
        &self.description
    }

    fn select(&mut self, alternate: u8, streams: u32, endpoints: &[u8]) -> Result<(), UsbError> {
        self.control(0x00, 9, 1, 0)?;
        self.control(0x01, 11, alternate.into(), 0)?;
        if endpoints.is_empty() { Ok(()) } else { answer(self.bridge.alloc_streams(endpoints, streams)) }
    }

    fn submit(&mut self, transfer: Transfer) -> Result<u64, UsbError> {
        Ok(self.bridge.submit(match transfer {
            Transfer::Control { setup: s, data } => {
                let setup = usb::Setup {
                    request_type: s.request_type,
                    request: s.request,
                    value: s.value,
                    index: s.index,
                    length: s.length,
                };
                usb::Transfer::Control { setup, data }
            }
            Transfer::Out { endpoint, stream, data } => usb::Transfer::Out { endpoint, stream, data },
            Transfer::In { endpoint, stream, length } => usb::Transfer::In { endpoint, stream, length },
        }))
    }

    fn reap(&mut self, timeout_us: u64) -> Result<Option<Completion>, UsbError> {
        let deadline = self.bridge.now_ns() + timeout_us * 1000;
        loop {
            if let Some(c) = self.bridge.poll() {
                let end = match c.status {
                    Status::Success => End::Done,
                    Status::Stall => End::Stalled,
                    Status::Cancelled => End::Cancelled,
                    Status::Io => End::Gone,
                    Status::Babble => End::Overflow,
                    Status::Invalid | Status::Timeout => End::Failed,
                };
                return Ok(Some(Completion { id: c.id, end, actual: c.actual, data: c.data }));
            }
            let now = self.bridge.now_ns();
            if now >= deadline {
                return Ok(None);
            }
            // Something ends by itself before the deadline, or the time passes.
            match self.bridge.next_ns() {
                Some(at) if at <= deadline && self.bridge.wait() => {}
                _ => self.bridge.pass(deadline - now),
            }
        }
    }

    fn cancel(&mut self, id: u64) {
        self.bridge.cancel(id);
    }

    fn clear_halt(&mut self, endpoint: u8) -> Result<(), UsbError> {
        self.control(0x02, 1, 0, endpoint.into())
    }

    fn reset(&mut self) -> Result<(), UsbError> {
        self.bridge.reset();
        if self.bridge.present() { Ok(()) } else { Err(UsbError::Gone) }
    }

    fn is_present(&mut self) -> bool {
        self.bridge.present()
    }

    fn now_us(&self) -> u64 {
        self.bridge.now_ns() / 1000
    }

    fn wait_us(&self, us: u64) {
        self.bridge.pass(us.saturating_mul(1000));
    }

    fn release(&mut self) -> Result<(), UsbError> {
        Ok(())
    }

    fn violations(&self) -> Option<Vec<String>> {
        Some(self.bridge.violations().iter().map(ToString::to_string).collect())
    }
}

/// A bridge whose GPU is in the state that its description names. What this driver leaves behind comes
/// about by running it before: to its end (`state=amdev`), or not (`state=malformed`).
///
/// # Errors
/// Where making the state failed.
pub fn prepare(config: BridgeConfig, options: &OpenOptions) -> anyhow::Result<Bridge> {
    let state = config.gpu.state;
    let (State::Amdev | State::Malformed) = state else { return Ok(Bridge::new(config)) };
    let faults = config.faults.clone();
    let gpu_faults = config.gpu.faults.clone();
    let gpu = Config { state: State::Cold, faults: Vec::new(), ..config.gpu.clone() };
    let bridge = Bridge::new(BridgeConfig { gpu, faults: Vec::new(), ..config });
    let before = || -> anyhow::Result<()> {
        let bus = backend::bus(Box::new(SimPort::new(bridge.clone())))?;
        // It is not to be seen in the trace, and takes whatever firmware there is.
        let options = OpenOptions { synthetic_firmware: true, trace: None, ..options.clone() };
        let mut session = Box::new(BusSession::new(bus, "sim-usb".into(), &options)?);
        session.boot(&BootOptions::default(), &mut Silent)?;
        if state == State::Amdev { session.release() } else { Ok(()) }
    };
    before().with_context(|| format!("making the state {state:?} of the device"))?;
    bridge.take_violations();
    bridge.gpu().start_anew(gpu_faults);
    bridge.start_anew(faults);
    Ok(bridge)
}
