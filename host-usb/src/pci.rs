//! PCI Express behind the bridge: nobody has configured it. Buses are numbered, windows opened, BAR0
//! resized and BARs placed; after a reset the same again.

use crate::controller::Controller;
use crate::error::UsbError;
use amdev_core::bus::Window;

// Offsets and bits of `pci_regs.h`.
const ID: u16 = 0x00;
const COMMAND: u16 = 0x04;
const CLASS: u16 = 0x08;
const HEADER_TYPE: u16 = 0x0e;
const BAR0: u16 = 0x10;
const BUSES: u16 = 0x18;
const MEMORY_BASE: u16 = 0x20;
const MEMORY_LIMIT: u16 = 0x22;
const PREFETCH_BASE: u16 = 0x24;
const PREFETCH_LIMIT: u16 = 0x26;
const PREFETCH_BASE_HIGH: u16 = 0x28;
const PREFETCH_LIMIT_HIGH: u16 = 0x2c;
const CAPABILITIES: u16 = 0x34;
const BRIDGE_CONTROL: u16 = 0x3e;
const BRIDGE_RESET: u32 = 1 << 6;
const EXTENDED: u16 = 0x100;
const CAP_EXPRESS: u8 = 0x10;
const EXT_REBAR: u32 = 0x15;
const IO_MEMORY_MASTER: u32 = 7;
const LINK_STATUS: u16 = 0x12;
const TYPE_BRIDGE: u32 = 1;
/// Display controllers, whatever they are called (class 0x03).
const CLASS_DISPLAY: u32 = 0x03;
const VENDOR_AMD: u32 = 0x1002;

/// Where the windows of the GPU are put: below 4 GiB, and for those that may be prefetched above, as the
/// reference driver has them.
const MEMORY_AT: u64 = 0x1000_0000;
const PREFETCH_AT: u64 = 32 << 30;
/// Windows start at multiples of this.
const BAR_ALIGN: u64 = 2 << 20;
/// The bus of a GPU behind the controller's own switch and the card's: known from the reference. A card
/// with more bridges gets more buses.
const USUAL_BUS: u8 = 4;
/// More bridges in a row than any card has.
const MAX_BUS: u8 = 16;
/// More capabilities than a function can have: a chain that is longer runs in a circle.
const MAX_CAPABILITIES: usize = 64;
/// A secondary bus reset lasts at least 1 ms; 100 ms later a function may be asked (PCI Express 6.6.1).
const RESET_US: u64 = 2_000;
const SETTLE_US: u64 = 100_000;

/// Generation and width of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkState {
    /// 1 for 2.5 GT/s, 4 for 16 GT/s.
    pub generation: u8,
    /// Lanes.
    pub lanes: u8,
}

impl std::fmt::Display for LinkState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PCIe {}.0 x{}", self.generation, self.lanes)
    }
}

/// The hierarchy, once it is configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pci {
    /// Bus of the GPU.
    pub bus: u8,
    /// Device id.
    pub device: u16,
    /// Revision.
    pub revision: u8,
    /// Address and length of each window.
    bars: [(u64, u64); 3],
}

fn index(window: Window) -> usize {
    match window {
        Window::Vram => 0,
        Window::Doorbells => 1,
        Window::Registers => 2,
    }
}

impl Pci {
    /// Configures everything behind the bridge.
    ///
    /// # Errors
    /// [`UsbError::Unknown`] if no AMD GPU is found, or what went wrong on the way.
    pub fn configure(c: &mut dyn Controller) -> Result<Pci, UsbError> {
        let mut bus = 0;
        let (device, revision) = loop {
            let id = c.config_read(bus, ID, 4)?;
            let kind = c.config_read(bus, HEADER_TYPE, 1)? & 0x7f;
            if kind == TYPE_BRIDGE {
                open_bridge(c, bus)?;
                bus += 1;
                if bus > USUAL_BUS {
                    deepen(c, bus)?;
                }
                if bus >= MAX_BUS {
                    return Err(UsbError::Unknown(format!(
                        "{MAX_BUS} PCIe bridges in a row behind the bridge"
                    )));
                }
                continue;
            }
            let class = c.config_read(bus, CLASS, 4)?;
            let found = (id & 0xffff, class >> 24);
            if found != (VENDOR_AMD, CLASS_DISPLAY) {
                return Err(UsbError::Unknown(format!(
                    "behind the bridge is no AMD GPU but {:04x}:{:04x} of class {:#04x} on bus {bus}",
                    id & 0xffff,
                    id >> 16,
                    class >> 24
                )));
            }
            break ((id >> 16) as u16, class as u8);
        };
        resize_bar0(c, bus)?;
        let bars = place_bars(c, bus)?;
        c.config_write(bus, COMMAND, 1, IO_MEMORY_MASTER)?;
        let pci = Pci { bus, device, revision, bars };
        for window in [Window::Vram, Window::Doorbells, Window::Registers] {
            if pci.len(window) == 0 {
                return Err(UsbError::Unknown(format!("the GPU behind the bridge has no {window}")));
            }
        }
        Ok(pci)
    }

    /// Address of a window.
    pub fn base(&self, window: Window) -> u64 {
        self.bars.get(index(window)).map_or(0, |(base, _)| *base)
    }

    /// Its length in bytes.
    pub fn len(&self, window: Window) -> u64 {
        self.bars.get(index(window)).map_or(0, |(_, len)| *len)
    }

    /// The link to the card: that of the downstream port on bus 1.
    ///
    /// # Errors
    /// [`UsbError`]
    pub fn card_link(&self, c: &mut dyn Controller) -> Result<LinkState, UsbError> {
        let express = capability(c, 1, CAP_EXPRESS)?;
        let Some(at) = express else { return Ok(LinkState::default()) };
        let status = c.config_read(1, at + LINK_STATUS, 2)?;
        Ok(LinkState { generation: (status & 0xf) as u8, lanes: (status >> 4 & 0x3f) as u8 })
    }

    /// Resets the bus of the GPU, and configures it anew.
    ///
    /// # Errors
    /// [`UsbError`]
    pub fn reset(&self, c: &mut dyn Controller) -> Result<Pci, UsbError> {
        let above = self.bus.saturating_sub(1);
        let control = c.config_read(above, BRIDGE_CONTROL, 2)?;
        c.config_write(above, BRIDGE_CONTROL, 2, control | BRIDGE_RESET)?;
        c.link().port().wait_us(RESET_US);
        c.config_write(above, BRIDGE_CONTROL, 2, control & !BRIDGE_RESET)?;
        c.link().port().wait_us(SETTLE_US);
        Pci::configure(c)
    }
}

/// Lets a bridge lead to the bus below, forward memory and let the GPU master the bus.
fn open_bridge(c: &mut dyn Controller, bus: u8) -> Result<(), UsbError> {
    // All bus numbers at once: in between requests would go astray.
    write_buses(c, bus, USUAL_BUS.max(bus + 1))?;
    let half = |address: u64| (address >> 16) as u32 & 0xffff;
    for (at, size, value) in [
        (MEMORY_BASE, 2, half(MEMORY_AT)),
        (MEMORY_LIMIT, 2, 0xffff),
        (PREFETCH_BASE, 2, half(PREFETCH_AT)),
        (PREFETCH_LIMIT, 2, 0xffff),
        (PREFETCH_BASE_HIGH, 4, (PREFETCH_AT >> 32) as u32),
        (PREFETCH_LIMIT_HIGH, 4, u32::MAX),
        (COMMAND, 1, IO_MEMORY_MASTER),
    ] {
        c.config_write(bus, at, size, value)?;
    }
    Ok(())
}

fn write_buses(c: &mut dyn Controller, bus: u8, last: u8) -> Result<(), UsbError> {
    c.config_write(bus, BUSES, 4, u32::from(bus + 1) << 8 | u32::from(last) << 16)
}

/// A bus more than usual: the bridges above lead there, too.
fn deepen(c: &mut dyn Controller, last: u8) -> Result<(), UsbError> {
    (0..last).try_for_each(|bus| write_buses(c, bus, last))
}

/// Offset of a capability in the first 256 bytes.
fn capability(c: &mut dyn Controller, bus: u8, id: u8) -> Result<Option<u16>, UsbError> {
    let mut at = (c.config_read(bus, CAPABILITIES, 1)? & 0xfc) as u16;
    for _ in 0..MAX_CAPABILITIES {
        if at == 0 {
            break;
        }
        let [found, next] = (c.config_read(bus, at, 2)? as u16).to_le_bytes();
        if found == id {
            return Ok(Some(at));
        }
        at = u16::from(next & 0xfc);
    }
    Ok(None)
}

/// Makes BAR0 as large as it can be, so that it shows the whole VRAM.
fn resize_bar0(c: &mut dyn Controller, bus: u8) -> Result<(), UsbError> {
    let mut at = EXTENDED;
    for _ in 0..MAX_CAPABILITIES {
        let header = c.config_read(bus, at, 4)?;
        if header == 0 || header == u32::MAX {
            break;
        }
        if header & 0xffff == EXT_REBAR {
            // Sizes in bits 31:4, from 1 MiB on; the size's logarithm goes into bits 13:8.
            let sizes = c.config_read(bus, at + 4, 4)? >> 4;
            let control = c.config_read(bus, at + 8, 4)?;
            if let Some(size) = sizes.checked_ilog2() {
                c.config_write(bus, at + 8, 4, control & !0x3f00 | size << 8)?;
            }
        }
        at = (header >> 20) as u16 & 0xffc;
        if at < EXTENDED {
            break;
        }
    }
    Ok(())
}

/// Finds out what each BAR needs and puts it somewhere; address and length of BAR0, BAR2 and BAR5.
fn place_bars(c: &mut dyn Controller, bus: u8) -> Result<[(u64, u64); 3], UsbError> {
    let mut next = [MEMORY_AT, PREFETCH_AT];
    let mut found = [(0, 0); 3];
    let mut bar = 0u16;
    while bar < 6 {
        let at = BAR0 + 4 * bar;
        let was = c.config_read(bus, at, 4)?;
        let (is_io, is_wide, is_prefetch) = (was & 1 != 0, was & 4 != 0, was & 8 != 0);
        if !is_io {
            c.config_write(bus, at, 4, u32::MAX)?;
            let low = c.config_read(bus, at, 4)? & !0xf;
            let high = if is_wide {
                c.config_write(bus, at + 4, 4, u32::MAX)?;
                c.config_read(bus, at + 4, 4)?
            } else {
                u32::MAX
            };
            let len = (!(u64::from(high) << 32 | u64::from(low))).wrapping_add(1);
            if low != 0 || is_wide && high != 0 {
                let place = &mut next[usize::from(is_prefetch)];
                // Larger ones than what is aligned for: to a multiple of their own length.
                let base = place.next_multiple_of(len.max(1));
                *place = base + len.next_multiple_of(BAR_ALIGN);
                c.config_write(bus, at, 4, base as u32)?;
                if is_wide {
                    c.config_write(bus, at + 4, 4, (base >> 32) as u32)?;
                }
                let slot = match bar {
                    0 => Some(0),
                    2 => Some(1),
                    5 => Some(2),
                    _ => None,
                };
                if let Some(slot) = slot.and_then(|s: usize| found.get_mut(s)) {
                    *slot = (base, len);
                }
            }
        }
        bar += if is_wide && !is_io { 2 } else { 1 };
    }
    Ok(found)
}
