//! `--device DEV`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The forms of `DEV`, for `--help` and error texts.
pub const FORMS: &str = "\
sim:GPU[,key=value]...  sim-usb:GPU[,bridge=patched|custom,...]  sim-kfd[:TARGET]  \
pci:DDDD:BB:DD.F  vfio-user:SOCKET  kfd:N  usb[:N]";

/// The device used when nothing else is chosen.
pub const DEFAULT: &str = "sim:navi31";

/// A PCI function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PciAddress {
    /// Domain (segment).
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device, 0 to 31.
    pub device: u8,
    /// Function, 0 to 7.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{}", self.domain, self.bus, self.device, self.function)
    }
}

impl FromStr for PciAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hex = |digits: &str, max: u32| {
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
            plain.then(|| u32::from_str_radix(digits, 16).ok()).flatten().filter(|v| *v <= max)
        };
        let parse = || {
            let (rest, function) = text.rsplit_once('.')?;
            let mut parts = rest.rsplit(':');
            let (device, bus) = (parts.next()?, parts.next()?);
            let domain = parts.next().unwrap_or("0");
            if parts.next().is_some() {
                return None;
            }
            Some(PciAddress {
                domain: hex(domain, u32::MAX)?,
                bus: hex(bus, 0xff)? as u8,
                device: hex(device, 0x1f)? as u8,
                function: hex(function, 7)? as u8,
            })
        };
        parse().ok_or_else(|| format!("'{text}' is not a PCI address like 0000:03:00.0"))
    }
}

/// A device as a person names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeviceSpec {
    /// A simulated GPU: model and keys, which the simulator itself parses.
    Sim(String),
    /// A simulated GPU behind a simulated USB bridge.
    SimUsb(String),
    /// A simulated kernel driver with GPUs of a target.
    SimKfd(Option<String>),
    /// A PCI device through VFIO or sysfs.
    Pci(PciAddress),
    /// A device served over a vfio-user socket.
    VfioUser(PathBuf),
    /// A node of the kernel's compute driver.
    Kfd(u32),
    /// The n-th bridge on USB.
    Usb(u32),
}

impl FromStr for DeviceSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, body) = text.split_once(':').map_or((text, None), |(s, b)| (s, Some(b)));
        let body = body.filter(|b| !b.is_empty());
        let needed = |what: &str| {
            body.map(str::to_owned).ok_or_else(|| format!("'{text}' lacks {what}; the forms are {FORMS}"))
        };
        let number = |digits: &str| {
            digits.parse::<u32>().map_err(|_| format!("'{digits}' in '{text}' is not a device number"))
        };
        Ok(match scheme {
            "sim" => DeviceSpec::Sim(needed("the GPU, for example sim:navi31")?),
            "sim-usb" => DeviceSpec::SimUsb(needed("the GPU, for example sim-usb:navi48")?),
            "sim-kfd" => DeviceSpec::SimKfd(body.map(str::to_owned)),
            "pci" => DeviceSpec::Pci(needed("the address, for example pci:0000:03:00.0")?.parse()?),
            "vfio-user" => DeviceSpec::VfioUser(needed("the socket's path")?.into()),
            "kfd" => DeviceSpec::Kfd(number(&needed("the node's number, for example kfd:1")?)?),
            "usb" => DeviceSpec::Usb(body.map_or(Ok(0), number)?),
            _ => return Err(format!("'{text}' is not a device; the forms are {FORMS}")),
        })
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceSpec::Sim(body) => write!(f, "sim:{body}"),
            DeviceSpec::SimUsb(body) => write!(f, "sim-usb:{body}"),
            DeviceSpec::SimKfd(None) => f.write_str("sim-kfd"),
            DeviceSpec::SimKfd(Some(target)) => write!(f, "sim-kfd:{target}"),
            DeviceSpec::Pci(address) => write!(f, "pci:{address}"),
            DeviceSpec::VfioUser(path) => write!(f, "vfio-user:{}", path.display()),
            DeviceSpec::Kfd(n) => write!(f, "kfd:{n}"),
            DeviceSpec::Usb(n) => write!(f, "usb:{n}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_parses_and_prints_itself() {
        for text in [
            "sim:navi31",
            "sim:navi31,state=amdgpu,bar=256M,count=8,fault=hang:sos,clock=virtual",
            "sim-usb:navi48,bridge=custom",
            "sim-kfd",
            "sim-kfd:gfx942",
            "pci:0000:03:00.0",
            "vfio-user:/tmp/gpu.sock",
            "kfd:1",
            "usb:2",
        ] {
            assert_eq!(text.parse::<DeviceSpec>().map(|d| d.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("usb".parse(), Ok(DeviceSpec::Usb(0)));
        let short = PciAddress { domain: 0, bus: 0xc3, device: 0x1f, function: 7 };
        assert_eq!("pci:c3:1f.7".parse(), Ok(DeviceSpec::Pci(short)));
        assert_eq!(DEFAULT.parse(), Ok(DeviceSpec::Sim("navi31".into())));
    }

    #[test]
    fn a_wrong_device_is_refused_with_the_forms() {
        for (text, word) in [
            ("navi31", "the forms are"),
            ("sim", "lacks the GPU"),
            ("sim:", "lacks the GPU"),
            ("pci:03:20.0", "PCI address"),
            ("pci:03:00", "PCI address"),
            ("pci:0:0:03:00.0", "PCI address"),
            ("pci:+3:00.0", "PCI address"),
            ("kfd:one", "device number"),
            ("usb:-1", "device number"),
        ] {
            let error = text.parse::<DeviceSpec>().expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
