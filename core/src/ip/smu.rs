//! SMU: power management. A mailbox of three registers: argument, message, response.

use super::wait::{Stage, Until};
use super::{Cx, Device};
use crate::bus::Bus;
use crate::error::Error;
use crate::reg::smu::{self, Clock, Message, Messages, Metric, Plane, Sensor, SmuError, Table};
use crate::reg::{Reg, r};

mod power;

pub use power::{SmuVersion, limits, power_limit, set_power_limit, set_range, unpin, version};

/// One message; Linux waits 2 s at most (`usec_timeout * 20`, smu_cmn.c), some need longer.
const MESSAGE_US: u64 = 10_000_000;
/// How long a dead SMU is given to answer.
const ALIVE_US: u64 = 100_000;
/// A mode-1 reset takes half a second (`SMU13_MODE1_RESET_WAIT_TIME_IN_MS`, smu_v13_0.h).
const MODE1_US: u64 = 500_000;
/// After this time registers that read as all ones are a reset that has begun.
const MODE1_ANSWER_US: u64 = 100_000;
/// The memory size becomes readable; `amdgpu_device_mode1_reset` waits 100 ms for it.
const RESPOND_US: u64 = 2_000_000;
/// Activity in % from which a clock counts as busy (`SMU_13_0_0_BUSY_THRESHOLD`, also of 13.0.7).
const BUSY_V13: u32 = 15;
/// The same (`SMU_14_0_2_BUSY_THRESHOLD`).
const BUSY_V14: u32 = 5;
/// Response "OK" (`SMU_RESP_OK`, smu_cmn.c).
const OK: u32 = 1;
/// Index that asks for the number of levels.
const LEVEL_COUNT: u32 = 0xff;
/// Bit 31 of a level: the clock has a fine-grained range.
const FINE_GRAINED: u32 = 1 << 31;

/// Clocks that are pinned, in the order in which they are set.
pub const CLOCKS: [Clock; 4] = [Clock::Gfx, Clock::Memory, Clock::Fabric, Clock::Soc];
/// The most levels a clock has (`NUM_GFXCLK_DPM_LEVELS`).
const MAX_LEVELS: usize = 16;

/// Frequencies in MHz that each of [`CLOCKS`] can run at.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DpmTable {
    levels: [heapless::Vec<u16, MAX_LEVELS>; 4],
}

impl DpmTable {
    /// A table that is known already, in the order of [`CLOCKS`], MHz; more than 16 levels of a clock
    /// are cut off.
    pub fn from_levels(levels: [&[u16]; 4]) -> Self {
        DpmTable { levels: levels.map(|l| l.iter().copied().take(MAX_LEVELS).collect()) }
    }

    /// Levels of the `index`-th of [`CLOCKS`], lowest first; empty before they were asked for.
    pub fn levels(&self, index: usize) -> &[u16] {
        self.levels.get(index).map_or(&[], |l| l.as_slice())
    }

    fn is_empty(&self) -> bool {
        self.levels.iter().all(|l| l.is_empty())
    }
}

/// Which level clocks are pinned to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// The lowest.
    Lowest,
    /// The highest.
    Highest,
}

/// What the SMU measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Metrics {
    /// Graphics clock in MHz.
    pub gfxclk_mhz: u16,
    /// Memory clock in MHz.
    pub memclk_mhz: u16,
    /// Fabric clock in MHz.
    pub fclk_mhz: u16,
    /// System clock in MHz.
    pub socclk_mhz: u16,
    /// Graphics activity in percent.
    pub gfx_activity: u16,
    /// Memory activity in percent.
    pub mem_activity: u16,
    /// Socket power in watts.
    pub power_w: u16,
    /// Edge temperature in degrees Celsius.
    pub edge_c: u16,
    /// Hotspot temperature in degrees Celsius.
    pub hotspot_c: u16,
    /// Memory temperature in degrees Celsius.
    pub mem_c: u16,
    /// Graphics voltage in millivolts.
    pub gfx_mv: u16,
    /// Fan speed in revolutions per minute.
    pub fan_rpm: u16,
    /// Number of the sample.
    pub counter: u32,
}

struct Mailbox {
    message: Reg,
    argument: Reg,
    response: Reg,
}

const MAIN: Mailbox =
    Mailbox { message: r::MP1_SMN_C2PMSG_66, argument: r::MP1_SMN_C2PMSG_82, response: r::MP1_SMN_C2PMSG_90 };
/// `smu_v14_0_2_set_ppt_funcs`: the debug mailbox.
const DEBUG: Mailbox =
    Mailbox { message: r::MP1_SMN_C2PMSG_75, argument: r::MP1_SMN_C2PMSG_53, response: r::MP1_SMN_C2PMSG_54 };

fn tell<B: Bus>(cx: &mut Cx<'_, B>, mailbox: &Mailbox, message: u32, argument: u32) -> Result<(), Error> {
    cx.write(mailbox.response, 0)?;
    cx.write(mailbox.argument, argument)?;
    cx.write(mailbox.message, message)
}

async fn exchange<B: Bus>(
    cx: &mut Cx<'_, B>,
    mailbox: &Mailbox,
    message: u32,
    argument: u32,
    timeout_us: u64,
) -> Result<(), Error> {
    // The mailbox takes no message before the last one is answered.
    cx.bus.keep_whole(true);
    let done = match tell(cx, mailbox, message, argument) {
        Ok(()) => answered(cx, mailbox, message, argument, timeout_us).await,
        Err(e) => Err(e),
    };
    cx.bus.keep_whole(false);
    done
}

async fn answered<B: Bus>(
    cx: &mut Cx<'_, B>,
    mailbox: &Mailbox,
    message: u32,
    argument: u32,
    timeout_us: u64,
) -> Result<(), Error> {
    let response = cx.wait_reg(mailbox.response, u32::MAX, Until::Differs(0), timeout_us).await?;
    if response == OK { Ok(()) } else { Err(Error::Smu { message, argument, response }) }
}

/// Sends a message and awaits "OK".
pub async fn send<B: Bus>(cx: &mut Cx<'_, B>, message: Message, argument: u32) -> Result<(), Error> {
    let number = cx.chip.smu()?.message(message)?;
    exchange(cx, &MAIN, number, argument, MESSAGE_US).await
}

/// Sends a message and reads its answer from the argument register.
pub async fn ask<B: Bus>(cx: &mut Cx<'_, B>, message: Message, argument: u32) -> Result<u32, Error> {
    send(cx, message, argument).await?;
    cx.read(MAIN.argument)
}

/// Whether the SMU answers. A deadline missed is an answer here, not an error.
pub async fn is_alive<B: Bus>(cx: &mut Cx<'_, B>) -> Result<bool, Error> {
    let version = cx.chip.smu()?.message(Message::GetSmuVersion)?;
    match exchange(cx, &MAIN, version, 0, ALIVE_US).await {
        Ok(()) => Ok(true),
        Err(Error::Timeout(_)) => Ok(false),
        // It answered, if not as asked.
        Err(Error::Smu { .. }) => Ok(true),
        Err(e) => Err(e),
    }
}

/// Tells the SMU where the shared table is and switches its features on.
pub async fn init<B: Bus>(cx: &mut Cx<'_, B>) -> Result<(), Error> {
    cx.enter(Stage::Smu).await;
    let table = cx.mc(cx.layout.smu_table.start);
    send(cx, Message::SetDriverDramAddrHigh, (table >> 32) as u32).await?;
    send(cx, Message::SetDriverDramAddrLow, table as u32).await?;
    send(cx, Message::EnableAllSmuFeatures, 0).await
}

/// Resets the whole GPU through the SMU. Afterwards nothing is as it was: the secure OS is gone,
/// registers have their reset values, VRAM may be lost. PCI configuration space and BARs are
/// restored by the host ([`Bus::after_reset`]).
pub async fn mode1_reset<B: Bus>(cx: &mut Cx<'_, B>) -> Result<(), Error> {
    cx.enter(Stage::Reset).await;
    let (mailbox, number) = cx.chip.smu()?.mode1_reset();
    cx.bus.before_reset()?;
    let told = match mailbox {
        smu::Mailbox::Driver => match exchange(cx, &MAIN, number, 0, MODE1_ANSWER_US).await {
            // The device resets sooner than its answer was read.
            Err(Error::NotResponding { .. }) => Ok(()),
            Err(Error::Timeout(_)) => answered(cx, &MAIN, number, 0, MESSAGE_US).await,
            told => told,
        },
        // The SMU may reset before it answers here, so that nobody waits for it
        // (__smu_cmn_send_debug_msg).
        smu::Mailbox::Debug => tell(cx, &DEBUG, number, 0),
    };
    let passed = cx.delay(MODE1_US).await;
    cx.forget();
    cx.bus.after_reset()?;
    told.and(passed)?;
    // Until the memory controller is up again the size reads as all ones.
    cx.wait_reg(r::RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE, u32::MAX, Until::Differs(0), RESPOND_US).await?;
    cx.locate_vram()
}

/// Has the host reset the device from outside. Afterwards it is as after power-on: the firmware of
/// the board posts it again. Hosts that cannot do this say so, and nothing has changed then.
pub async fn bus_reset<B: Bus>(cx: &mut Cx<'_, B>) -> Result<(), Error> {
    cx.bus.reset_bus()?;
    cx.forget();
    cx.wait_reg(r::RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE, u32::MAX, Until::Differs(0), RESPOND_US).await?;
    cx.locate_vram()
}

/// Asks for the number of levels of a clock.
async fn ask_count<B: Bus>(cx: &mut Cx<'_, B>, clock: Clock) -> Result<u32, Error> {
    let argument = cx.chip.smu()?.clock(clock)? << 16 | LEVEL_COUNT;
    let count = ask(cx, Message::GetDpmFreqByIndex, argument).await? & !FINE_GRAINED;
    if count == 0 || count > MAX_LEVELS as u32 {
        return Err(Error::DpmLevels { clock, count, max: MAX_LEVELS as u32 });
    }
    Ok(count)
}

/// Asks for one level of a clock in MHz: over a slow bus the others would only cost.
async fn ask_level<B: Bus>(cx: &mut Cx<'_, B>, clock: Clock, level: Level) -> Result<u16, Error> {
    let index = match level {
        Level::Lowest => 0,
        Level::Highest => ask_count(cx, clock).await? - 1,
    };
    let argument = cx.chip.smu()?.clock(clock)? << 16 | index;
    Ok((ask(cx, Message::GetDpmFreqByIndex, argument).await? & !FINE_GRAINED) as u16)
}

/// Asks for the levels of all clocks, once.
async fn ask_levels<B: Bus>(cx: &mut Cx<'_, B>) -> Result<(), Error> {
    if !cx.dpm.is_empty() {
        return Ok(());
    }
    let message = Message::GetDpmFreqByIndex;
    let mut table = DpmTable::default();
    for (clock, levels) in CLOCKS.into_iter().zip(&mut table.levels) {
        let argument = cx.chip.smu()?.clock(clock)? << 16;
        let count = ask_count(cx, clock).await?;
        for level in 0..count {
            let mhz = ask(cx, message, argument | level).await? & !FINE_GRAINED;
            // Not more than `count`, which fits.
            let _ = levels.push(mhz as u16);
        }
    }
    cx.dpm = table;
    Ok(())
}

/// Pins all clocks to one level.
pub async fn set_clocks<B: Bus>(cx: &mut Cx<'_, B>, level: Level) -> Result<(), Error> {
    cx.enter(Stage::Clocks).await;
    let mut wanted = [None; CLOCKS.len()];
    if cx.bus.is_slow() && cx.dpm.is_empty() {
        for (mhz, clock) in wanted.iter_mut().zip(CLOCKS) {
            *mhz = Some(ask_level(cx, clock, level).await?);
        }
    } else {
        ask_levels(cx).await?;
        for (index, mhz) in wanted.iter_mut().enumerate() {
            let levels = cx.dpm.levels(index);
            *mhz = match level {
                Level::Lowest => levels.first(),
                Level::Highest => levels.last(),
            }
            .copied();
        }
    }
    for (clock, mhz) in CLOCKS.into_iter().zip(wanted) {
        let Some(mhz) = mhz else { continue };
        let argument = cx.chip.smu()?.clock(clock)? << 16 | u32::from(mhz);
        send(cx, Message::SetSoftMinByFreq, argument).await?;
        send(cx, Message::SetSoftMaxByFreq, argument).await?;
    }
    Ok(())
}

/// Lets the SMU write its metrics into the shared table and reads them.
pub async fn read_metrics<B: Bus>(cx: &mut Cx<'_, B>) -> Result<Metrics, Error> {
    cx.enter(Stage::Metrics).await;
    let interface = cx.chip.smu()?;
    send(cx, Message::TransferTableSmu2Dram, interface.table(Table::SmuMetrics)?).await?;
    let mut table = [0; 512];
    let at = cx.layout.smu_table.start;
    let Some(bytes) = table.get_mut(..usize::from(interface.metrics_size)) else {
        return Err(Error::BadValue {
            what: "the SMU's metrics length",
            value: interface.metrics_size.into(),
            need: "at most 512",
        });
    };
    cx.vram_read(at, bytes)?;
    Ok(decode_metrics(interface, bytes)?)
}

fn decode_metrics(interface: &Messages, table: &[u8]) -> Result<Metrics, SmuError> {
    let value = |metric| interface.read_metric(table, metric, 0);
    let temperature =
        |sensor| interface.read_metric(table, Metric::AvgTemperature, interface.sensor(sensor)?);
    let gfx_activity = value(Metric::AverageGfxActivity)?;
    let mem_activity = value(Metric::AverageUclkActivity)?;
    // As Linux shows them: an idle clock with its deep sleep counted, a busy one without.
    let busy = if interface.version.0 >= 14 { BUSY_V14 } else { BUSY_V13 };
    let clock = |activity, idle, at_work| value(if activity <= busy { idle } else { at_work });
    let now = |clock| interface.read_metric(table, Metric::CurrClock, interface.clock(clock)?);
    // All but clocks and the counter are 16 bits wide, and no clock has more MHz.
    Ok(Metrics {
        gfxclk_mhz: clock(
            gfx_activity,
            Metric::AverageGfxclkFrequencyPostDs,
            Metric::AverageGfxclkFrequencyPreDs,
        )? as u16,
        memclk_mhz: clock(
            mem_activity,
            Metric::AverageMemclkFrequencyPostDs,
            Metric::AverageMemclkFrequencyPreDs,
        )? as u16,
        fclk_mhz: now(Clock::Fabric)? as u16,
        socclk_mhz: now(Clock::Soc)? as u16,
        gfx_activity: gfx_activity as u16,
        mem_activity: mem_activity as u16,
        power_w: value(Metric::AverageSocketPower)? as u16,
        edge_c: temperature(Sensor::Edge)? as u16,
        hotspot_c: temperature(Sensor::Hotspot)? as u16,
        mem_c: temperature(Sensor::Memory)? as u16,
        gfx_mv: interface.read_metric(table, Metric::AvgVoltage, interface.plane(Plane::Gfx)?)? as u16,
        fan_rpm: value(Metric::AvgFanRpm)? as u16,
        counter: value(Metric::MetricsCounter)?,
    })
}

/// The clock levels known so far; they are asked for with the first [`set_clocks`].
pub fn dpm<B: Bus>(device: &Device<B>) -> &DpmTable {
    &device.dpm
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_smu_13_stand_at_the_offsets_of_its_driver_interface() {
        let chip = crate::chip::find((11, 0, 0)).unwrap();
        let mut table = [0; 392];
        table[0x38..0x3a].copy_from_slice(&2525u16.to_le_bytes());
        table[0x74..0x76].copy_from_slice(&315u16.to_le_bytes());
        table[0x78..0x7c].copy_from_slice(&[54, 0, 71, 0]);
        table[0x50..0x54].copy_from_slice(&0x1_0002u32.to_le_bytes());
        let m = decode_metrics(chip.smu().unwrap(), &table).unwrap();
        assert_eq!(
            (m.gfxclk_mhz, m.power_w, m.edge_c, m.hotspot_c, m.counter),
            (2525, 315, 54, 71, 0x1_0002)
        );
    }
}
