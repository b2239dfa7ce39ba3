//! The firmware of an open device: AMD's from files, or synthetic images for simulated devices.

use super::{HostBus, Watched};
use crate::error::CliError;
use crate::session::OpenOptions;
use amdev_core::device::Probe;
use amdev_core::discovery::IpList;
use amdev_core::firmware::FirmwareSource;
use amdev_fw::files::{SearchPath, Source};
use amdev_fw::{FirmwareSet, Versions, synthetic};

/// Where synthetic images come from.
const SYNTHETIC: &str = "synthetic images (no AMD firmware is installed; only a simulated GPU takes them)";

/// Firmware, and where it came from.
pub(super) struct Firmware {
    set: FirmwareSet<Source>,
    origin: String,
}

pub(super) fn versions<B: HostBus>(probe: &mut Probe<Watched<B>>) -> anyhow::Result<Versions> {
    let (device, revision) = probe.device.bus.host_mut().pci_id();
    Ok(Versions::of(&probe.ips, device, revision)?)
}

/// Names of the files that a device needs.
pub(super) fn names<B: HostBus>(
    probe: &mut Probe<Watched<B>>,
    _: &OpenOptions,
) -> anyhow::Result<Vec<String>> {
    let versions = versions(probe)?;
    Ok(versions.files().iter().map(|kind| versions.file_name(*kind).to_string()).collect())
}

/// The firmware of a device with this PCI device id and revision, and where it came from;
/// `synthetic` if the device takes images that nobody signed.
pub(crate) fn firmware_of(
    ips: &IpList,
    (device, revision): (u16, u8),
    options: &OpenOptions,
    synthetic: bool,
) -> anyhow::Result<(FirmwareSet<Source>, String)> {
    let versions = Versions::of(ips, device, revision)?;
    let path = SearchPath::given_or_system(&options.firmware);
    let error = match FirmwareSet::from_dirs(versions, &path) {
        Ok(set) => {
            let origin = folder(&set);
            return Ok((set, origin));
        }
        Err(e) => e,
    };
    if !(synthetic && options.synthetic_firmware && options.firmware.is_empty()) {
        return Err(CliError::Firmware(error.to_string()).into());
    }
    let set = synthetic::set(versions)?;
    Ok((set, SYNTHETIC.into()))
}

impl Firmware {
    /// Finds a device's firmware: in the directories given, else where Linux has it, else (only if
    /// the device and the command allow it) synthetic.
    pub(super) fn find<B: HostBus>(
        probe: &mut Probe<Watched<B>>,
        options: &OpenOptions,
    ) -> anyhow::Result<Self> {
        let id = probe.device.bus.host_mut().pci_id();
        let synthetic = probe.device.bus.host().synthetic_firmware_allowed();
        let (set, origin) = firmware_of(&probe.ips, id, options, synthetic)?;
        tracing::info!("firmware: {origin}");
        // What is simulated in this process is known to be; what another one serves is not.
        if origin == SYNTHETIC && probe.device.bus.host().violations().is_none() {
            tracing::warn!("the device is taken for a simulated one: {origin}; a real GPU refuses them");
        }
        Ok(Firmware { set, origin })
    }

    pub(super) fn source(&mut self) -> &mut dyn FirmwareSource {
        &mut self.set
    }

    pub(super) fn describe(&self) -> String {
        self.origin.clone()
    }
}

/// The folder of the first file; all are usually in one.
fn folder(set: &FirmwareSet<Source>) -> String {
    let first = set.files().first().and_then(|f| f.source().path().parent());
    first.map_or_else(|| "files".into(), |p| p.display().to_string())
}
