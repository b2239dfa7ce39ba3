//! SOC: the bus interface. Doorbell aperture and routing, power of the host data path.

use super::wait::Stage;
use super::{Cx, Device};
use crate::bus::Bus;
use crate::error::Error;
use crate::reg::{f, r, ra};

/// Where doorbells of one engine go (`nbio_v4_3_gc_doorbell_init` and its siblings).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DoorbellRoute {
    /// Entry of the routing table.
    pub port: u8,
    /// AXI id of the engine.
    pub awid: u32,
    /// Upper address bits of the engine.
    pub address_31_28: u32,
    /// First doorbell, in dwords; 0 with size 0: any.
    pub offset: u32,
    /// Number of doorbells.
    pub size: u32,
}

/// Index of the interrupt rings' doorbells, in units of 8 bytes (`AMDGPU_NAVI10_DOORBELL_IH`).
pub const DOORBELL_IH: u32 = 0x178;
/// Index of the first SDMA doorbell (`AMDGPU_NAVI10_DOORBELL_sDMA_ENGINE0`).
pub const DOORBELL_SDMA0: u32 = 0x100;

/// Doorbells of the graphics command processor.
pub const ROUTE_CP: DoorbellRoute = DoorbellRoute { port: 0, awid: 3, address_31_28: 3, offset: 0, size: 0 };
/// Doorbells of the interrupt rings.
pub const ROUTE_IH: DoorbellRoute =
    DoorbellRoute { port: 1, awid: 0, address_31_28: 0, offset: DOORBELL_IH * 2, size: 2 };
/// Doorbells of the DMA engines.
pub const ROUTE_SDMA: DoorbellRoute =
    DoorbellRoute { port: 2, awid: 0xe, address_31_28: 3, offset: DOORBELL_SDMA0 * 2, size: 4 };
/// Doorbells of the MEC.
pub const ROUTE_MEC: DoorbellRoute = DoorbellRoute { port: 3, awid: 6, address_31_28: 3, offset: 0, size: 0 };

/// Opens the doorbell aperture.
pub async fn init<B: Bus>(cx: &mut Cx<'_, B>) -> Result<(), Error> {
    cx.enter(Stage::Soc).await;
    // Function 2 (USB) must take part in soft resets.
    cx.update(r::RCC_DEV0_EPF2_STRAP2, &[(f::rcc_dev0_epf2_strap2::STRAP_NO_SOFT_RESET_DEV0_F2, 0)])?;
    cx.write(r::RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN, 1)
}

/// Sets an entry of the doorbell routing table.
pub fn route<B: Bus>(device: &mut Device<B>, route: DoorbellRoute) -> Result<(), Error> {
    use f::s2a_doorbell_entry_ctrl as e;
    let reg = ra::S2A_DOORBELL_ENTRY_CTRL.get(usize::from(route.port)).copied().ok_or(Error::BadValue {
        what: "a doorbell port",
        value: route.port.into(),
        need: "at most 15",
    })?;
    device.update(
        reg,
        &[
            (e::ENABLE, 1),
            (e::AWID, route.awid),
            (e::AWADDR_31_28_VALUE, route.address_31_28),
            (e::RANGE_OFFSET, route.offset),
            (e::RANGE_SIZE, route.size),
        ],
    )
}

/// Lets the memories of the host data path sleep when idle.
pub fn clock_gating<B: Bus>(device: &mut Device<B>) -> Result<(), Error> {
    use f::hdp_mem_power_ctrl as p;
    device.update(r::HDP_MEM_POWER_CTRL, &[(p::ATOMIC_MEM_POWER_CTRL_EN, 1), (p::ATOMIC_MEM_POWER_DS_EN, 1)])
}
