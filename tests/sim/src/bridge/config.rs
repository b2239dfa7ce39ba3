//! What is simulated: the bridge's firmware, its faults, and the GPU behind it.

use crate::config::{Config, ConfigError, State};
use thiserror::Error;

/// What runs on the bridge's controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Firmware {
    /// The vendor's firmware with another identity: USB Attached SCSI with streams.
    #[default]
    Patched,
    /// The open firmware: vendor requests and bulk endpoints.
    Custom,
}

/// What goes wrong, at a command or a PCIe request counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BridgeFault {
    /// `usb-stall:N`: the endpoint that should answer command N halts.
    Stall(u64),
    /// `usb-short:N`: the answer to command N is cut in half.
    Short(u64),
    /// `usb-unplug:N`: the cable is pulled when command N arrives.
    Unplug(u64),
    /// `usb-late:N`: command N takes two seconds longer.
    Late(u64),
    /// `usb-lost:N`: command N is never answered.
    Lost(u64),
    /// `tlp-error:N`: the bridge reports an error for request N; the next try works.
    TlpError(u64),
    /// `tlp-lost:N`: request N never completes.
    TlpLost(u64),
    /// `tlp-crs:N`: request N completes as "configuration retry".
    TlpRetry(u64),
    /// `tlp-ur:N`: request N completes as "unsupported request".
    TlpUnsupported(u64),
    /// `tlp-ca:N`: request N completes as "completer abort".
    TlpAbort(u64),
    /// `link-down:N`: the PCIe link goes down before request N, and stays so until PERST# or power.
    LinkDown(u64),
}

/// A fault by its name on the command line.
type Make = fn(u64) -> BridgeFault;

impl BridgeFault {
    const NAMES: [(&'static str, Make); 11] = [
        ("usb-stall", BridgeFault::Stall),
        ("usb-short", BridgeFault::Short),
        ("usb-unplug", BridgeFault::Unplug),
        ("usb-late", BridgeFault::Late),
        ("usb-lost", BridgeFault::Lost),
        ("tlp-error", BridgeFault::TlpError),
        ("tlp-lost", BridgeFault::TlpLost),
        ("tlp-crs", BridgeFault::TlpRetry),
        ("tlp-ur", BridgeFault::TlpUnsupported),
        ("tlp-ca", BridgeFault::TlpAbort),
        ("link-down", BridgeFault::LinkDown),
    ];

    /// The fault that `NAME:N` describes, `None` if the name is none of a bridge.
    fn parse(text: &str) -> Option<Result<BridgeFault, BridgeConfigError>> {
        let (name, at) = text.split_once(':').unwrap_or((text, ""));
        let (_, make) = BridgeFault::NAMES.iter().find(|(n, _)| *n == name)?;
        Some(at.parse().map(make).map_err(|_| BridgeConfigError::Fault(text.into())))
    }
}

/// What is wrong with a description of a simulated bridge.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum BridgeConfigError {
    /// The GPU's part.
    #[error(transparent)]
    Gpu(#[from] ConfigError),
    /// Bad value of a key.
    #[error("'{1}' is no value for '{0}': bridge=patched|custom, pcie=on|off")]
    Value(String, String),
    /// A fault without its number.
    #[error("fault '{0}' needs the number of a command or PCIe request, for example usb-stall:17")]
    Fault(String),
    /// Several GPUs.
    #[error("a bridge has one GPU: leave 'count' away")]
    Count,
}

/// A simulated bridge's description.
#[derive(Clone, Debug)]
pub struct BridgeConfig {
    /// Its firmware.
    pub firmware: Firmware,
    /// PCIe power is on when the host comes. The open firmware leaves it off, and waits for request F3;
    /// behind it a GPU that was driven before is powered all the same.
    pub power: bool,
    /// Faults on demand.
    pub faults: Vec<BridgeFault>,
    /// The GPU at its end.
    pub gpu: Config,
}

impl BridgeConfig {
    /// A bridge with this firmware before this GPU, without faults.
    pub fn new(firmware: Firmware, gpu: Config) -> BridgeConfig {
        let power = firmware == Firmware::Patched || gpu.state != State::Cold;
        BridgeConfig { firmware, power, faults: Vec::new(), gpu }
    }

    /// Parses `GPU[,key=value]...`, as after `sim-usb:` on the command line: the keys of
    /// [`Config::parse`], `bridge=patched|custom` (patched if absent), `pcie=on|off`, and
    /// `fault=usb-…:N`, `tlp-…:N` or `link-down:N` of [`BridgeFault`].
    pub fn parse(text: &str) -> Result<BridgeConfig, BridgeConfigError> {
        let (mut firmware, mut power, mut faults) = (Firmware::Patched, None, Vec::new());
        let mut rest = Vec::new();
        for part in text.split(',') {
            match part.split_once('=') {
                Some(("bridge", "patched")) => firmware = Firmware::Patched,
                Some(("bridge", "custom")) => firmware = Firmware::Custom,
                Some(("pcie", "on")) => power = Some(true),
                Some(("pcie", "off")) => power = Some(false),
                Some((key @ ("bridge" | "pcie"), value)) => {
                    return Err(BridgeConfigError::Value(key.into(), value.into()));
                }
                Some(("fault", value)) => match BridgeFault::parse(value) {
                    Some(fault) => faults.push(fault?),
                    None => rest.push(part),
                },
                _ => rest.push(part),
            }
        }
        let gpu = Config::parse(&rest.join(","))?;
        if gpu.count != 1 {
            return Err(BridgeConfigError::Count);
        }
        let mut config = BridgeConfig { faults, ..BridgeConfig::new(firmware, gpu) };
        config.power = power.unwrap_or(config.power);
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_bridge_are_told_from_those_of_the_gpu() {
        let text = "navi48,bridge=custom,state=amdev,fault=usb-stall:17,fault=smu:3,fault=tlp-crs:2";
        let c = BridgeConfig::parse(text).unwrap();
        assert_eq!((c.firmware, c.power, c.gpu.chip.name), (Firmware::Custom, true, "navi48"));
        assert_eq!(c.faults, [BridgeFault::Stall(17), BridgeFault::TlpRetry(2)]);
        assert_eq!(c.gpu.faults.len(), 1);
        let off = BridgeConfig::parse("navi31,bridge=custom").unwrap();
        assert!(!off.power && BridgeConfig::parse("navi31").unwrap().power);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("navi48,bridge=stock", "patched|custom"),
            ("navi48,fault=usb-stall", "usb-stall:17"),
            ("navi48,fault=usb-stall:x", "usb-stall:17"),
            ("navi48,count=2", "one GPU"),
            ("navi99", "navi31"),
            ("navi48,fault=meteor", "meteor"),
        ] {
            let e = BridgeConfig::parse(text).unwrap_err().to_string();
            assert!(e.contains(word), "{text}: {e}");
        }
    }
}
