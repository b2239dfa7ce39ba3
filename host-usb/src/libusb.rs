//! Bridges on this machine's USB ports, by libusb: rusb finds and opens them, transfers are libusb's own.

use crate::error::UsbError;
use crate::port::{Completion, Description, Port, Speed, Transfer};
use rusb::{Context, Device, DeviceHandle, UsbContext as _};
use std::sync::Arc;
use std::time::{Duration, Instant};
use transfers::Transfers;

mod transfers;

/// Identity of bridges with the patched or the open firmware.
const PATCHED: (u16, u16) = (0xadd1, 0x0001);
/// Identities under which bridges are found: these, and ASMedia's own, which are disk enclosures as a rule.
const IDS: [(u16, u16); 6] =
    [PATCHED, (0x174c, 0x2461), (0x174c, 0x2462), (0x174c, 0x2463), (0x174c, 0x2464), (0x174c, 0x246a)];
/// The interface of a bridge.
const INTERFACE: u8 = 0;
/// How often it is looked whether a device is there, where the system does not tell by itself.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// A device that answers nothing for so long is gone.
const ANSWERS: Duration = Duration::from_secs(1);
/// What lets a user open bridges on Linux.
const UDEV: &str = "echo 'SUBSYSTEM==\"usb\", ATTR{idVendor}==\"add1\", TAG+=\"uaccess\", MODE=\"0660\"' | sudo tee \
                    /etc/udev/rules.d/70-amdev-usb.rules && sudo udevadm control --reload, then plug it in again";

fn rusb_error(code: i32) -> rusb::Error {
    use libusb1_sys::constants as c;
    match code {
        c::LIBUSB_ERROR_ACCESS => rusb::Error::Access,
        c::LIBUSB_ERROR_NO_DEVICE => rusb::Error::NoDevice,
        c::LIBUSB_ERROR_NOT_FOUND => rusb::Error::NotFound,
        c::LIBUSB_ERROR_BUSY => rusb::Error::Busy,
        c::LIBUSB_ERROR_PIPE => rusb::Error::Pipe,
        c::LIBUSB_ERROR_NO_MEM => rusb::Error::NoMem,
        c::LIBUSB_ERROR_NOT_SUPPORTED => rusb::Error::NotSupported,
        c::LIBUSB_ERROR_INVALID_PARAM => rusb::Error::InvalidParam,
        _ => rusb::Error::Io,
    }
}

/// An error with what mends it.
fn error_of(error: rusb::Error, what: &str) -> UsbError {
    let text = match error {
        rusb::Error::NoDevice => return UsbError::Gone,
        rusb::Error::Access if cfg!(target_os = "linux") => {
            format!("{what}: no right to open the device; {UDEV}")
        }
        rusb::Error::Access => format!("{what}: no right to open the device; run as administrator"),
        rusb::Error::Busy => {
            format!(
                "{what}: another program has the device; end it, or unplug the enclosure and plug it in again"
            )
        }
        rusb::Error::NotSupported if cfg!(windows) => {
            format!("{what}: no driver that libusb can use; install WinUSB for the device with Zadig")
        }
        other => format!("{what}: {other}"),
    };
    UsbError::Refused(text)
}

/// Why an enclosure with ASMedia's own identity is not taken from its driver: it may have disks in use.
fn disks(description: &Description) -> String {
    let (vendor, product) = description.id;
    format!(
        "{vendor:04x}:{product:04x} at {place} has the identity of a disk enclosure, and the system's storage \
         driver has it; if a GPU and no disk is behind it, take it from that driver first: echo -n \
         {place}:1.0 | sudo tee /sys/bus/usb/devices/{place}:1.0/driver/unbind",
        place = description.place
    )
}

fn speed_of(speed: rusb::Speed) -> Speed {
    match speed {
        rusb::Speed::Low | rusb::Speed::Full => Speed::Low,
        rusb::Speed::High => Speed::High,
        rusb::Speed::Super => Speed::Super,
        rusb::Speed::SuperPlus => Speed::SuperPlus,
        _ => Speed::Unknown,
    }
}

/// Whether a device with this identity may be a bridge; what it answers decides.
fn may_be_bridge(id: (u16, u16)) -> bool {
    IDS.contains(&id)
}

fn context() -> Result<Context, UsbError> {
    Context::new().map_err(|e| match e {
        rusb::Error::Other | rusb::Error::Io | rusb::Error::NotSupported => UsbError::Refused(
            "this machine has no USB that can be used (no host controller, or /dev/bus/usb is missing)"
                .into(),
        ),
        e => error_of(e, "starting libusb"),
    })
}

/// Devices that may be bridges, in the order of their ports.
fn candidates(context: &Context) -> Result<Vec<Device<Context>>, UsbError> {
    let devices = match context.devices() {
        Ok(devices) => devices,
        // A machine without USB has no devices.
        Err(rusb::Error::NotFound | rusb::Error::NotSupported) => return Ok(Vec::new()),
        Err(e) => return Err(error_of(e, "listing USB devices")),
    };
    let fits = |d: &Device<Context>| {
        d.device_descriptor().is_ok_and(|d| may_be_bridge((d.vendor_id(), d.product_id())))
    };
    let mut found: Vec<_> = devices.iter().filter(fits).collect();
    found.sort_by_key(place);
    Ok(found)
}

fn place(device: &Device<Context>) -> String {
    let ports = device.port_numbers().unwrap_or_default();
    let ports: Vec<String> = ports.iter().map(u8::to_string).collect();
    format!("{}-{}", device.bus_number(), ports.join("."))
}

fn describe(device: &Device<Context>, handle: Option<&DeviceHandle<Context>>) -> Description {
    let descriptor = device.device_descriptor().ok();
    let string = |read: fn(&DeviceHandle<Context>, &rusb::DeviceDescriptor) -> rusb::Result<String>| {
        handle.zip(descriptor.as_ref()).and_then(|(h, d)| read(h, d).ok()).unwrap_or_default()
    };
    let settings = device.config_descriptor(0).map_or_else(
        |_| Vec::new(),
        |config| {
            let interface = config.interfaces().find(|i| i.number() == INTERFACE);
            let each = interface.into_iter().flat_map(|i| {
                i.descriptors()
                    .map(|d| (d.class_code(), d.sub_class_code(), d.protocol_code()))
                    .collect::<Vec<_>>()
            });
            each.collect()
        },
    );
    Description {
        place: place(device),
        id: descriptor.as_ref().map_or((0, 0), |d| (d.vendor_id(), d.product_id())),
        manufacturer: string(DeviceHandle::read_manufacturer_string_ascii),
        product: string(DeviceHandle::read_product_string_ascii),
        serial: string(DeviceHandle::read_serial_number_string_ascii),
        speed: speed_of(device.speed()),
        settings,
    }
}

/// A device that may be a bridge, and why it cannot be opened, if so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// What its descriptors say; strings are empty where it cannot be opened.
    pub description: Description,
    /// Why it cannot be opened.
    pub problem: Option<UsbError>,
}

/// The devices that may be bridges, by their ports: the order in which [`open`] counts.
///
/// # Errors
/// Where the system's USB cannot be used at all.
pub fn list() -> Result<Vec<Listed>, UsbError> {
    let context = context()?;
    let look = |device: &Device<Context>| match device.open() {
        Ok(handle) => Listed { description: describe(device, Some(&handle)), problem: None },
        Err(e) => Listed {
            description: describe(device, None),
            problem: Some(error_of(e, &format!("opening USB device {}", place(device)))),
        },
    };
    Ok(candidates(&context)?.iter().map(look).collect())
}

/// Opens the `index`-th of [`list`].
///
/// # Errors
/// [`UsbError::Refused`] if there are not so many, or with what the user can do.
pub fn open(index: u32) -> Result<LibusbPort, UsbError> {
    let context = context()?;
    let found = candidates(&context)?;
    let Some(device) = found.get(index as usize) else {
        return Err(UsbError::Refused(match found.len() {
            0 => "no ASM2464PD bridge is plugged in; see `amdev-usb doctor`, or wait for one with --wait"
                .into(),
            n => format!("there are {n} bridges: the last is usb:{}", n - 1),
        }));
    };
    LibusbPort::new(device)
}

/// Waits until there are more than `index` devices that may be bridges; false if `stop` says before that
/// nobody waits any more.
///
/// # Errors
/// [`UsbError::Timeout`] after so long.
pub fn wait_for(index: u32, timeout: Duration, stop: impl Fn() -> bool) -> Result<bool, UsbError> {
    let deadline = Instant::now() + timeout;
    let context = context()?;
    // Where the system tells of new devices, they are looked at when it does; elsewhere now and then.
    let told = rusb::has_hotplug()
        .then(|| rusb::HotplugBuilder::new().enumerate(false).register(&context, Box::new(Arrival)));
    loop {
        if let Some(device) = candidates(&context)?.get(index as usize) {
            // The kernel tells of a device before udev has given the user his rights.
            let rights = Instant::now() + ANSWERS;
            while device.open().is_err_and(|e| e == rusb::Error::Access) && Instant::now() < rights {
                std::thread::sleep(Duration::from_millis(100));
            }
            return Ok(true);
        }
        if stop() {
            return Ok(false);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let what = format!("waiting for bridge usb:{index} to be plugged in");
            return Err(UsbError::Timeout { what, after_ms: timeout.as_millis() as u64 });
        }
        match &told {
            Some(Ok(_)) => match context.handle_events(Some(left.min(Duration::from_secs(1)))) {
                Ok(()) | Err(rusb::Error::Interrupted) => {}
                Err(e) => return Err(error_of(e, "waiting for USB devices")),
            },
            _ => std::thread::sleep(left.min(LOOK_AGAIN)),
        }
    }
}

/// Told of devices that come; what they are is looked at afterwards.
struct Arrival;

impl rusb::Hotplug<Context> for Arrival {
    fn device_arrived(&mut self, _: Device<Context>) {}
    fn device_left(&mut self, _: Device<Context>) {}
}

/// An open device.
pub struct LibusbPort {
    transfers: Transfers,
    handle: Arc<DeviceHandle<Context>>,
    description: Description,
    /// The system's driver was detached and gets the device back.
    detached: bool,
    claimed: bool,
    start: Instant,
}

impl LibusbPort {
    fn new(device: &Device<Context>) -> Result<Self, UsbError> {
        let what = format!("opening USB device {}", place(device));
        let handle = Arc::new(device.open().map_err(|e| error_of(e, &what))?);
        Ok(LibusbPort {
            transfers: Transfers::new(Arc::clone(&handle)),
            description: describe(device, Some(&handle)),
            handle,
            detached: false,
            claimed: false,
            start: Instant::now(),
        })
    }
}

impl Port for LibusbPort {
    fn description(&self) -> &Description {
        &self.description
    }

    fn select(&mut self, alternate: u8, streams: u32, endpoints: &[u8]) -> Result<(), UsbError> {
        if !self.claimed {
            // Not every system has drivers that can be detached.
            if self.handle.kernel_driver_active(INTERFACE).unwrap_or(false) {
                if self.description.id != PATCHED {
                    return Err(UsbError::Refused(disks(&self.description)));
                }
                self.handle
                    .detach_kernel_driver(INTERFACE)
                    .map_err(|e| error_of(e, "taking the device from the system's driver"))?;
                self.detached = true;
            }
            if self.handle.active_configuration().ok() != Some(1) {
                self.handle
                    .set_active_configuration(1)
                    .map_err(|e| error_of(e, "selecting configuration 1"))?;
            }
            self.handle
                .claim_interface(INTERFACE)
                .map_err(|e| error_of(e, "claiming the device's interface"))?;
            self.claimed = true;
        }
        self.handle
            .set_alternate_setting(INTERFACE, alternate)
            .map_err(|e| error_of(e, &format!("selecting alternate setting {alternate}")))?;
        if streams == 0 {
            return Ok(());
        }
        let got = transfers::alloc_streams(&self.handle, streams, endpoints);
        if got >= 0 && got.unsigned_abs() >= streams {
            return Ok(());
        }
        let why = if self.description.speed < Speed::Super {
            format!("the device runs as {}; use a USB 3 port and cable", self.description.speed)
        } else if cfg!(windows) {
            "Windows has no bulk streams; use a bridge with the open firmware".into()
        } else if got < 0 {
            format!("the system refuses them ({})", rusb_error(got))
        } else {
            format!("the host controller has only {got}")
        };
        Err(UsbError::Refused(format!("{streams} bulk streams are needed: {why}")))
    }

    fn submit(&mut self, transfer: Transfer) -> Result<u64, UsbError> {
        self.transfers.submit(transfer)
    }

    fn reap(&mut self, timeout_us: u64) -> Result<Option<Completion>, UsbError> {
        self.transfers.reap(Duration::from_micros(timeout_us))
    }

    fn cancel(&mut self, id: u64) {
        self.transfers.cancel(id);
    }

    fn clear_halt(&mut self, endpoint: u8) -> Result<(), UsbError> {
        self.handle.clear_halt(endpoint).map_err(|e| error_of(e, "clearing a halt"))
    }

    fn reset(&mut self) -> Result<(), UsbError> {
        // libusb claims the interface again.
        match self.handle.reset() {
            // It came back as another device, or not at all.
            Err(rusb::Error::NotFound) => Err(UsbError::Gone),
            done => done.map_err(|e| error_of(e, "resetting the device")),
        }
    }

    fn is_present(&mut self) -> bool {
        // GET_STATUS of the device, which every device answers.
        const GET_STATUS_TYPE: u8 = 0x80;
        const GET_STATUS: u8 = 0;
        let deadline = Instant::now() + ANSWERS;
        loop {
            let mut status = [0; 2];
            match self.handle.read_control(GET_STATUS_TYPE, GET_STATUS, 0, 0, &mut status, LOOK_AGAIN) {
                Ok(_) | Err(rusb::Error::Pipe) => return true,
                Err(rusb::Error::NoDevice) => return false,
                Err(_) if Instant::now() > deadline => return false,
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn now_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    fn wait_us(&self, us: u64) {
        std::thread::sleep(Duration::from_micros(us));
    }

    fn release(&mut self) -> Result<(), UsbError> {
        if std::mem::take(&mut self.claimed) {
            self.handle
                .release_interface(INTERFACE)
                .map_err(|e| error_of(e, "giving the device's interface back"))?;
        }
        if std::mem::take(&mut self.detached) {
            self.handle
                .attach_kernel_driver(INTERFACE)
                .map_err(|e| error_of(e, "giving the device back to the system's driver"))?;
        }
        Ok(())
    }
}

/// What is left of an error on the way: the device goes back to the system's driver. Nobody is left to be told
/// if that fails; [`Port::release`] tells.
impl Drop for LibusbPort {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::End;

    #[test]
    fn statuses_of_libusb_are_told_apart() {
        use libusb1_sys::constants as c;
        for (status, end) in [
            (c::LIBUSB_TRANSFER_COMPLETED, End::Done),
            (c::LIBUSB_TRANSFER_ERROR, End::Failed),
            (c::LIBUSB_TRANSFER_TIMED_OUT, End::Cancelled),
            (c::LIBUSB_TRANSFER_CANCELLED, End::Cancelled),
            (c::LIBUSB_TRANSFER_STALL, End::Stalled),
            (c::LIBUSB_TRANSFER_NO_DEVICE, End::Gone),
            (c::LIBUSB_TRANSFER_OVERFLOW, End::Overflow),
        ] {
            assert_eq!(transfers::end_of(status), end);
        }
    }

    #[test]
    fn errors_say_what_mends_them() {
        let text = |e| error_of(e, "opening USB device 2-1").to_string();
        if cfg!(target_os = "linux") {
            assert!(text(rusb::Error::Access).contains("/etc/udev/rules.d"));
        }
        let description = Description {
            place: "2-1".into(),
            id: (0x174c, 0x2464),
            manufacturer: String::new(),
            product: String::new(),
            serial: String::new(),
            speed: Speed::Super,
            settings: Vec::new(),
        };
        assert!(
            disks(&description)
                .contains("echo -n 2-1:1.0 | sudo tee /sys/bus/usb/devices/2-1:1.0/driver/unbind")
        );
        assert!(text(rusb::Error::Busy).contains("another program"));
        assert_eq!(error_of(rusb::Error::NoDevice, "x"), UsbError::Gone);
        assert!(
            may_be_bridge((0xadd1, 1)) && may_be_bridge((0x174c, 0x2464)) && !may_be_bridge((0x8087, 0x26))
        );
    }

    #[test]
    fn a_bridge_that_is_not_there_is_told_of() {
        // Whatever is plugged in here, there are not so many.
        let e = open(1000).err().unwrap().to_string();
        let waited = wait_for(1000, Duration::from_millis(50), || false).unwrap_err();
        let start = Instant::now();
        let ended = wait_for(1000, Duration::from_secs(60), || true);
        assert!(start.elapsed() < Duration::from_secs(5));
        match list() {
            Ok(_) => {
                assert_eq!(ended, Ok(false), "who asks for the end does not wait");
                assert!(e.contains("bridge"), "{e}");
                assert!(matches!(waited, UsbError::Timeout { .. }), "{waited}");
            }
            // Nor does every machine have USB.
            Err(none) => assert_eq!((e, waited.to_string()), (none.to_string(), none.to_string())),
        }
    }
}
