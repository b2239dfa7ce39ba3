//! Measurements of a device that is booted.

use super::{BusSession, HostBus, State};
use crate::error::CliError;
use crate::session::{Measured, SmiReport};
use amdev_core::boot::MAGIC;
use amdev_core::bus::Bus;
use amdev_core::ip::smu::DpmTable;
use amdev_core::ip::{Device, smu};
use amdev_core::reg::r;

impl<B: HostBus> BusSession<B> {
    pub(super) fn measure(&mut self) -> anyhow::Result<SmiReport> {
        if let State::Running(runtime) = &mut self.state {
            let device = runtime.iface().device();
            let levels = smu::dpm(device).clone();
            // One at a time talks to the SMU.
            let served = device.bus.stop_serving();
            let report = report(device, &levels);
            if let Some((found, levels)) = served {
                device.bus.serve(found, levels);
            }
            return report;
        }
        let device = self.device.clone();
        let probe = self.probe()?;
        // Without its firmware, or with tables at an address of another driver, the SMU has nothing to
        // tell; setting it up is no business of a command that only looks.
        if probe.device.read(r::SCRATCH_REG7)? != MAGIC {
            return Err(CliError::Device(format!(
                "{device} is not booted by amdev; boot it first (`amdev --device {device} boot`)"
            ))
            .into());
        }
        report(&mut probe.device, &DpmTable::default())
    }
}

/// Asks the SMU between other work: one that does not answer soon does not hold that up.
pub(super) fn report_soon<B: Bus>(device: &mut Device<B>, levels: &DpmTable) -> anyhow::Result<SmiReport> {
    if device.run(async |cx| smu::is_alive(cx).await)? {
        return report(device, levels);
    }
    anyhow::bail!("the SMU does not answer its mailbox; reset the device and boot it anew")
}

fn report<B: Bus>(device: &mut Device<B>, levels: &DpmTable) -> anyhow::Result<SmiReport> {
    let (version, limit, m) = device.run(async |cx| {
        let version = smu::version(cx).await?;
        let limit = smu::power_limit(cx).await?;
        Ok((version, limit, smu::read_metrics(cx).await?))
    })?;
    let [debug, minor, major, _] = version.firmware.to_le_bytes();
    Ok(SmiReport {
        measured: Measured::Amdev,
        firmware: format!("{major}.{minor}.{debug}"),
        interface: version.interface,
        known_interface: version.known,
        levels_mhz: (0..smu::CLOCKS.len()).map(|i| levels.levels(i).to_vec()).collect(),
        gfxclk_mhz: m.gfxclk_mhz,
        memclk_mhz: m.memclk_mhz,
        fclk_mhz: m.fclk_mhz,
        socclk_mhz: m.socclk_mhz,
        gfx_activity: m.gfx_activity,
        mem_activity: m.mem_activity,
        power_w: m.power_w,
        power_limit_w: limit,
        edge_c: m.edge_c,
        hotspot_c: m.hotspot_c,
        mem_c: m.mem_c,
        gfx_mv: m.gfx_mv,
        fan_rpm: m.fan_rpm,
        counter: m.counter,
    })
}
