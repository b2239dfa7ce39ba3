//! Bridges as devices of the command line: `usb[:N]` and `sim-usb:GPU`.

use crate::bus::UsbBus;
use crate::controller::{self, Controller};
use crate::error::UsbError;
use crate::pci::Pci;
use crate::port::{Description, Port};
use amdev_cli::bus_session::BusSession;
#[cfg(feature = "libusb")]
use amdev_cli::checks::{Check, State};
use amdev_cli::error::CliError;
use amdev_cli::guard::Guarded;
#[cfg(all(feature = "libusb", target_os = "linux"))]
use amdev_cli::session::Sample;
use amdev_cli::session::{Backend, Found, OpenOptions, Scanned, Session};
use amdev_cli::spec::DeviceSpec;

/// A session over a bus.
fn session(
    bus: Result<UsbBus, UsbError>,
    spec: &DeviceSpec,
    options: &OpenOptions,
) -> anyhow::Result<Box<dyn Session>> {
    let bus = bus.map_err(|e| CliError::Device(format!("{spec}: {e}")))?;
    Ok(Box::new(BusSession::new(Guarded::new(bus), spec.to_string(), options)?))
}

/// Opens a port for a session, which this process alone has; on Linux others learn who that is, and can ask it
/// what the GPU measures.
#[cfg(all(feature = "libusb", target_os = "linux"))]
fn owned(
    port: crate::libusb::LibusbPort,
    spec: &DeviceSpec,
    options: &OpenOptions,
) -> anyhow::Result<Box<dyn Session>> {
    use amdev_cli::owner::{Key, Owner};
    let owner = Owner::of(&Key::usb(&port.description().place));
    let owner = owner.map_err(|e| CliError::Device(format!("{spec}: {e}")))?;
    session(bus(Box::new(port)).map(|bus| bus.owned_by(Some(owner))), spec, options)
}

#[cfg(all(feature = "libusb", not(target_os = "linux")))]
fn owned(
    port: crate::libusb::LibusbPort,
    spec: &DeviceSpec,
    options: &OpenOptions,
) -> anyhow::Result<Box<dyn Session>> {
    session(bus(Box::new(port)), spec, options)
}

/// Recognises the bridge and configures what is behind it.
///
/// # Errors
/// [`UsbError`]
pub fn bus(port: Box<dyn Port>) -> Result<UsbBus, UsbError> {
    UsbBus::new(controller::open(port)?)
}

fn named(device: String, description: &Description) -> Scanned {
    let (vendor, product) = description.id;
    let words = [description.manufacturer.as_str(), description.product.as_str()];
    let name = words.into_iter().filter(|w| !w.is_empty()).collect::<Vec<_>>().join(" ");
    Scanned {
        device,
        enclosure: format!("{name} ({vendor:04x}:{product:04x})").trim_start().into(),
        usb: format!("port {}, {}", description.place, description.speed),
        ..Scanned::default()
    }
}

/// Opens a bridge and what is behind it, as far as that goes.
fn look(device: String, port: Box<dyn Port>) -> Scanned {
    let mut scanned = named(device, port.description());
    let mut bridge = match controller::open(port) {
        Ok(bridge) => bridge,
        Err(e) => {
            scanned.problem = Some(e.to_string());
            return scanned;
        }
    };
    if let Err(e) = look_behind(bridge.as_mut(), &mut scanned) {
        scanned.problem = Some(e.to_string());
    }
    if let Err(e) = bridge.link_mut().port_mut().release() {
        scanned.problem.get_or_insert(e.to_string());
    }
    scanned
}

fn look_behind(bridge: &mut dyn Controller, scanned: &mut Scanned) -> Result<(), UsbError> {
    scanned.firmware = Some(bridge.firmware().to_string());
    controller::link_up(bridge)?;
    let pci = Pci::configure(bridge)?;
    scanned.link = Some(pci.card_link(bridge)?.to_string());
    let vram = pci.len(amdev_core::bus::Window::Vram) >> 20;
    scanned.gpu = Some(format!(
        "1002:{:04x} revision {:02x} on bus {}, {vram} MiB in BAR0",
        pci.device, pci.revision, pci.bus
    ));
    Ok(())
}

/// The simulated bridge with a simulated GPU.
#[cfg(feature = "sim")]
#[derive(Debug, Default)]
pub struct SimUsbBackend;

#[cfg(feature = "sim")]
impl SimUsbBackend {
    fn port(spec: &DeviceSpec, options: &OpenOptions) -> anyhow::Result<Box<dyn Port>> {
        let DeviceSpec::SimUsb(text) = spec else {
            return Err(CliError::Device(format!("{spec} is no simulated bridge")).into());
        };
        let config = amdev_sim::bridge::BridgeConfig::parse(text)
            .map_err(|e| CliError::Usage(format!("{spec}: {e}")))?;
        let bridge = crate::sim::prepare(config, options)?;
        Ok(Box::new(crate::sim::SimPort::new(bridge)))
    }
}

#[cfg(feature = "sim")]
impl Backend for SimUsbBackend {
    fn serves(&self, spec: &DeviceSpec) -> bool {
        matches!(spec, DeviceSpec::SimUsb(_))
    }

    fn list(&self) -> Vec<Found> {
        Vec::new()
    }

    fn scan(&self, chosen: Option<&DeviceSpec>) -> Option<anyhow::Result<Vec<Scanned>>> {
        let spec = chosen.filter(|spec| self.serves(spec))?;
        let port = SimUsbBackend::port(spec, &OpenOptions::default());
        Some(port.map(|port| vec![look(spec.to_string(), port)]))
    }

    fn open(&self, spec: &DeviceSpec, options: &OpenOptions) -> anyhow::Result<Box<dyn Session>> {
        session(bus(SimUsbBackend::port(spec, options)?), spec, options)
    }
}

/// Why another process's bridge is left alone: who has it, where that can be known.
#[cfg(all(feature = "libusb", target_os = "linux"))]
fn taken(description: &Description) -> Option<String> {
    let owner = amdev_cli::owner::Key::usb(&description.place).owner()?;
    Some(format!("in use by {owner}; wait until it ends, or stop it"))
}

#[cfg(all(feature = "libusb", not(target_os = "linux")))]
fn taken(_: &Description) -> Option<String> {
    None
}

#[cfg(feature = "libusb")]
fn port(spec: &DeviceSpec) -> anyhow::Result<crate::libusb::LibusbPort> {
    let DeviceSpec::Usb(index) = spec else {
        return Err(CliError::Device(format!("{spec} is no USB bridge")).into());
    };
    Ok(crate::libusb::open(*index).map_err(|e| CliError::Device(format!("{spec}: {e}")))?)
}

/// Bridges on this machine's USB ports.
#[cfg(feature = "libusb")]
#[derive(Debug, Default)]
pub struct UsbBackend;

#[cfg(feature = "libusb")]
impl Backend for UsbBackend {
    fn serves(&self, spec: &DeviceSpec) -> bool {
        matches!(spec, DeviceSpec::Usb(_))
    }

    /// By their descriptors; only [`Backend::scan`] opens what is behind them.
    fn list(&self) -> Vec<Found> {
        let listed = crate::libusb::list().unwrap_or_default();
        let found = listed.into_iter().enumerate().map(|(index, l)| {
            let scanned = named(format!("usb:{index}"), &l.description);
            let name = format!("{}, {}", scanned.enclosure, scanned.usb);
            let problem = l.problem.map(|e| e.to_string()).or_else(|| taken(&l.description));
            Found { device: scanned.device, name, problem }
        });
        found.collect()
    }

    fn checks(&self) -> Vec<Check> {
        const NAME: &str = "USB bridges";
        let listed = match crate::libusb::list() {
            Ok(listed) => listed,
            Err(e) => {
                let remedy = "needed for --device usb only";
                return vec![Check::mend(State::Warning, NAME, e.to_string(), remedy)];
            }
        };
        if listed.is_empty() {
            let remedy = "plug an ASM2464PD enclosure in and switch its power on, then `amdev-usb scan`";
            return vec![Check::mend(State::Warning, NAME, "none is plugged in", remedy)];
        }
        let each = listed.into_iter().enumerate().map(|(index, l)| {
            let scanned = named(format!("usb:{index}"), &l.description);
            let name = format!("bridge usb:{index}");
            let found = format!("{}, {}", scanned.enclosure, scanned.usb);
            match l.problem {
                Some(e) => Check::mend(State::Warning, name, found, e.to_string()),
                None if l.description.speed < crate::port::Speed::Super => Check::mend(
                    State::Warning,
                    name,
                    found,
                    "use a USB 3 port and a cable for 10 Gbit/s: the vendor's firmware needs streams",
                ),
                None => Check::good(name, found),
            }
        });
        each.collect()
    }

    fn scan(&self, chosen: Option<&DeviceSpec>) -> Option<anyhow::Result<Vec<Scanned>>> {
        let wanted = match chosen {
            Some(DeviceSpec::Usb(index)) => Some(*index),
            Some(_) => return None,
            None => None,
        };
        Some(scan_usb(wanted))
    }

    fn wait_for(&self, spec: &DeviceSpec, seconds: f64) -> anyhow::Result<()> {
        let DeviceSpec::Usb(index) = spec else { return Ok(()) };
        let timeout = std::time::Duration::try_from_secs_f64(seconds)
            .map_err(|e| CliError::Usage(format!("--wait {seconds}: {e}")))?;
        match crate::libusb::wait_for(*index, timeout, amdev_cli::guard::stop_asked) {
            Ok(true) => Ok(()),
            Ok(false) => Err(amdev_core::bus::BusError::Stopped.into()),
            Err(e) => Err(CliError::Device(e.to_string()).into()),
        }
    }

    #[cfg(target_os = "linux")]
    fn smi(&self, spec: &DeviceSpec, options: &OpenOptions) -> Option<anyhow::Result<Sample>> {
        use amdev_cli::owner::Key;
        if !self.serves(spec) {
            return None;
        }
        // Opened only: the interface stays with who has it.
        let port = match port(spec) {
            Ok(port) => port,
            Err(e) => return Some(Err(e)),
        };
        let key = Key::usb(&port.description().place);
        Some(amdev_cli::beside::sample(&key, |look| {
            session(bus(Box::new(port)).map(|bus| bus.owned_by(Some(look))), spec, options)
        }))
    }

    fn open(&self, spec: &DeviceSpec, options: &OpenOptions) -> anyhow::Result<Box<dyn Session>> {
        owned(port(spec)?, spec, options)
    }
}

#[cfg(feature = "libusb")]
fn scan_usb(wanted: Option<u32>) -> anyhow::Result<Vec<Scanned>> {
    let listed = match crate::libusb::list() {
        Ok(listed) => listed,
        Err(e) => return Err(CliError::Device(e.to_string()).into()),
    };
    let mut found = Vec::new();
    for (index, l) in (0u32..).zip(listed) {
        if wanted.is_some_and(|w| w != index) {
            continue;
        }
        let device = format!("usb:{index}");
        if let Some(problem) = taken(&l.description) {
            found.push(Scanned { problem: Some(problem), ..named(device, &l.description) });
            continue;
        }
        found.push(match crate::libusb::open(index) {
            Ok(port) => look(device, Box::new(port)),
            Err(e) => Scanned { problem: Some(e.to_string()), ..named(device, &l.description) },
        });
    }
    Ok(found)
}
