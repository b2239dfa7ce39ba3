//! What can be set: ranges of clocks and the power limit; and which firmware it is.

use super::{CLOCKS, FINE_GRAINED, LEVEL_COUNT, MAX_LEVELS, ask, ask_levels, send};
use crate::bus::Bus;
use crate::error::Error;
use crate::ip::{Cx, Stage};
use crate::reg::smu::{Clock, Message};

/// `POWER_SOURCE_AC` (smu13_driver_if_v13_0_0.h and the others alike).
const POWER_SOURCE_AC: u32 = 0;

/// Versions of the firmware.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SmuVersion {
    /// Version of the firmware: program, major, minor and debug number, a byte each.
    pub firmware: u32,
    /// Version of its interface with the driver.
    pub interface: u32,
    /// The version that the layout of tables is known of. With another one the firmware takes the same
    /// messages; numbers in tables may stand elsewhere.
    pub known: u32,
}

/// Asks the firmware for its versions.
pub async fn version<B: Bus>(cx: &mut Cx<'_, B>) -> Result<SmuVersion, Error> {
    cx.enter(Stage::Smu).await;
    let known = cx.chip.smu()?.driver_if_version;
    let firmware = ask(cx, Message::GetSmuVersion, 0).await?;
    let interface = ask(cx, Message::GetDriverIfVersion, 0).await?;
    Ok(SmuVersion { firmware, interface, known })
}

fn known_levels<B: Bus>(cx: &Cx<'_, B>, clock: Clock) -> Result<(u16, u16), Error> {
    let index = CLOCKS.iter().position(|c| *c == clock);
    let levels = index.map_or(&[][..], |index| cx.dpm.levels(index));
    match (levels.first(), levels.last()) {
        (Some(&low), Some(&high)) => Ok((low, high)),
        _ => Err(Error::DpmLevels { clock, count: 0, max: MAX_LEVELS as u32 }),
    }
}

/// Lets a clock of [`CLOCKS`] run between two frequencies in MHz.
///
/// # Errors
/// [`Error::BadValue`] where the range is empty or not inside of what the clock can do.
pub async fn set_range<B: Bus>(cx: &mut Cx<'_, B>, clock: Clock, min: u16, max: u16) -> Result<(), Error> {
    cx.enter(Stage::Clocks).await;
    ask_levels(cx).await?;
    let (low, high) = known_levels(cx, clock)?;
    if min > max || min < low || max > high {
        return Err(Error::BadValue {
            what: "the range of a clock (lower limit << 16 | upper limit, MHz)",
            value: u64::from(min) << 16 | u64::from(max),
            need: "limits between its lowest and its highest level, the lower one first",
        });
    }
    let id = cx.chip.smu()?.clock(clock)? << 16;
    send(cx, Message::SetSoftMinByFreq, id | u32::from(min)).await?;
    send(cx, Message::SetSoftMaxByFreq, id | u32::from(max)).await
}

/// Lets every clock run at whatever the firmware thinks right, as before any was pinned.
pub async fn unpin<B: Bus>(cx: &mut Cx<'_, B>) -> Result<(), Error> {
    ask_levels(cx).await?;
    for clock in CLOCKS {
        let (low, high) = known_levels(cx, clock)?;
        set_range(cx, clock, low, high).await?;
    }
    Ok(())
}

/// The limits in MHz that a clock has at all: [`Message::GetMinDpmFreq`] and [`Message::GetMaxDpmFreq`].
pub async fn limits<B: Bus>(cx: &mut Cx<'_, B>, clock: Clock) -> Result<(u16, u16), Error> {
    let id = cx.chip.smu()?.clock(clock)? << 16;
    let low = ask(cx, Message::GetMinDpmFreq, id).await? & !FINE_GRAINED;
    let high = ask(cx, Message::GetMaxDpmFreq, id).await? & !FINE_GRAINED;
    Ok((low as u16, high as u16))
}

/// The power limit in watts (`smu_v13_0_get_current_power_limit`).
pub async fn power_limit<B: Bus>(cx: &mut Cx<'_, B>) -> Result<u32, Error> {
    cx.enter(Stage::Smu).await;
    ask(cx, Message::GetPptLimit, POWER_SOURCE_AC << 16).await
}

/// Sets the power limit in watts (`smu_v13_0_set_power_limit`); what it was. The firmware refuses what
/// the board cannot take ([`Error::Smu`]).
pub async fn set_power_limit<B: Bus>(cx: &mut Cx<'_, B>, watts: u32) -> Result<u32, Error> {
    if watts == 0 || watts > 0xffff {
        return Err(Error::BadValue {
            what: "a power limit in watts",
            value: watts.into(),
            need: "between 1 and 65535",
        });
    }
    let old = power_limit(cx).await?;
    send(cx, Message::SetPptLimit, watts).await?;
    Ok(old)
}

/// The number that asks for a count of levels is no level itself.
const _: () = assert!(MAX_LEVELS < LEVEL_COUNT as usize);
