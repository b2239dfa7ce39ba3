//! PCI configuration space of the simulated function: identity, BARs, power management, MSI,
//! PCI Express with function-level reset, resizable BAR.

use crate::config::Config;

const PM: usize = 0x48;
const PCIE: usize = 0x64;
const MSI: usize = 0xa0;
const REBAR: usize = 0x200;

/// Power management control: going from D3 to D0 does not reset the device.
const NO_SOFT_RESET: u16 = 1 << 3;
/// Command register: memory space, bus master.
const COMMAND: usize = 0x04;

/// Lengths of the two fixed windows (`device.json` of the traces; 256 registers pages of 4 KiB).
pub(crate) const BAR2_LEN: u64 = 2 << 20;
pub(crate) const BAR5_LEN: u64 = 1 << 20;
pub(crate) const ROM_LEN: u64 = 128 << 10;

/// What a configuration write asks the device to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConfigEvent {
    /// Function-level reset.
    Flr,
    /// BAR0 was resized to this many bytes.
    Bar0(u64),
}

pub(crate) struct ConfigSpace {
    bytes: Vec<u8>,
    mask: Vec<u8>,
    bar0: u64,
    max_bar0: u64,
}

impl ConfigSpace {
    pub(crate) fn new(config: &Config) -> ConfigSpace {
        let (chip, bar0, index) = (config.chip, config.bar0, config.index);
        let mut c = ConfigSpace { bytes: vec![0; 4096], mask: vec![0; 4096], bar0, max_bar0: chip.bar0 };
        c.put16(0x00, 0x1002);
        c.put16(0x02, config.device_id);
        c.put16(0x06, 0x0010); // capability list
        c.put32(0x08, 0x0300_0000 | u32::from(config.revision)); // VGA compatible display controller
        c.bytes[0x0c] = 0x10;
        c.put16(0x2c, 0x1002);
        c.put16(0x2e, 0x0e3b);
        c.bytes[0x34] = PM as u8;
        c.bytes[0x3d] = 1;
        c.mask16(COMMAND, 0x0547);
        c.mask[0x0c] = 0xff;
        c.mask[0x3c] = 0xff;
        // Windows: BAR0 64-bit prefetchable, BAR2 64-bit prefetchable, BAR4 I/O, BAR5 32-bit.
        c.put32(0x10, 0xc);
        c.put32(0x18, 0xc);
        c.put32(0x20, 0x1);
        c.size_bars();
        // Where a BIOS would have put them: 64 GiB apart for each device.
        let base = 0x78_0000_0000 + u64::from(index) * 0x10_0000_0000;
        c.set_bars(base, base + 0x8_0000_0000, 0xf000_0000 + index * 0x20_0000);
        // Memory space and bus mastering on, as firmware leaves a display controller.
        c.put16(COMMAND, 0x0007);
        // Power management, version 3.
        c.put16(PM, 0x01 | (PCIE as u16) << 8);
        c.put16(PM + 2, 0x0003);
        c.mask16(PM + 4, 0x0003);
        c.put16(PM + 4, NO_SOFT_RESET);
        // PCI Express endpoint, version 2, with FLR.
        c.put16(PCIE, 0x10 | (MSI as u16) << 8);
        c.put16(PCIE + 2, 0x0002);
        c.put32(PCIE + 4, 0x1000_8fa1);
        c.mask16(PCIE + 8, 0x7fff);
        c.put32(PCIE + 12, 0x0045_0d04); // 16 GT/s x16
        c.put16(PCIE + 18, 0x1104);
        // MSI, one vector, 64-bit addresses.
        c.put16(MSI, 0x05);
        c.put16(MSI + 2, 0x0080);
        c.mask16(MSI + 2, 0x0071);
        c.mask32(MSI + 4, 0xffff_fffc);
        c.mask32(MSI + 8, 0xffff_ffff);
        c.mask16(MSI + 12, 0xffff);
        // Extended: vendor-specific first, then resizable BAR.
        c.put32(0x100, 0x0001_000b | (REBAR as u32) << 20);
        c.put32(0x104, 0x0101_0001);
        c.put32(REBAR, 0x0001_0015);
        let sizes =
            (8..).take_while(|n| 1u64 << (n + 20) <= chip.bar0).fold(0u32, |set, n| set | 1 << (n + 4));
        c.put32(REBAR + 4, sizes);
        c.put32(REBAR + 8, 1 << 5 | (c.bar0.ilog2() - 20) << 8);
        c.mask32(REBAR + 8, 0x3f00);
        c
    }

    fn set_bars(&mut self, bar0: u64, bar2: u64, bar5: u32) {
        self.put32(0x10, bar0 as u32 | 0xc);
        self.put32(0x14, (bar0 >> 32) as u32);
        self.put32(0x18, bar2 as u32 | 0xc);
        self.put32(0x1c, (bar2 >> 32) as u32);
        self.put32(0x20, 0xe001);
        self.put32(0x24, bar5);
    }

    fn size_bars(&mut self) {
        let bar0 = !(self.bar0 - 1);
        self.mask32(0x10, bar0 as u32);
        self.mask32(0x14, (bar0 >> 32) as u32);
        let bar2 = !(BAR2_LEN - 1);
        self.mask32(0x18, bar2 as u32);
        self.mask32(0x1c, (bar2 >> 32) as u32);
        self.mask32(0x20, !0xff);
        self.mask32(0x24, !(BAR5_LEN as u32 - 1));
        self.mask32(0x30, !(ROM_LEN as u32 - 1) | 1);
    }

    fn put16(&mut self, at: usize, v: u16) {
        self.bytes[at..at + 2].copy_from_slice(&v.to_le_bytes());
    }

    fn put32(&mut self, at: usize, v: u32) {
        self.bytes[at..at + 4].copy_from_slice(&v.to_le_bytes());
    }

    fn mask16(&mut self, at: usize, v: u16) {
        self.mask[at..at + 2].copy_from_slice(&v.to_le_bytes());
    }

    fn mask32(&mut self, at: usize, v: u32) {
        self.mask[at..at + 4].copy_from_slice(&v.to_le_bytes());
    }

    pub(crate) fn bar0(&self) -> u64 {
        self.bar0
    }

    /// Power state: D0 to D3. Below D0 only configuration space answers, and nothing is sent.
    fn power_state(&self) -> u8 {
        self.bytes[PM + 4] & 3
    }

    /// Memory space accesses are answered.
    pub(crate) fn memory_enabled(&self) -> bool {
        self.bytes[COMMAND] & 2 != 0 && self.power_state() == 0
    }

    /// The device may master the bus: DMA and MSI.
    pub(crate) fn bus_master(&self) -> bool {
        self.bytes[COMMAND] & 4 != 0 && self.power_state() == 0
    }

    pub(crate) fn read(&self, offset: usize, buf: &mut [u8]) {
        for (i, b) in buf.iter_mut().enumerate() {
            *b = self.bytes.get(offset + i).copied().unwrap_or(0xff);
        }
    }

    pub(crate) fn write(&mut self, offset: usize, data: &[u8]) -> Option<ConfigEvent> {
        let mut event = None;
        for (i, b) in data.iter().enumerate() {
            let at = offset + i;
            let Some(mask) = self.mask.get(at).copied() else { continue };
            // Device control, bit 15: initiate function-level reset; reads as 0.
            if at == PCIE + 9 && b & 0x80 != 0 {
                event = Some(ConfigEvent::Flr);
            }
            self.bytes[at] = self.bytes[at] & !mask | b & mask;
            if at == REBAR + 9 {
                let want = 1u64.checked_shl(u32::from(b & 0x3f) + 20).unwrap_or(0);
                if (1 << 28..=self.max_bar0).contains(&want) && want != self.bar0 {
                    self.bar0 = want;
                    self.size_bars();
                    event = Some(ConfigEvent::Bar0(want));
                }
            }
        }
        event
    }

    /// After a reset: memory and bus mastering off, BARs, MSI and power state forgotten.
    pub(crate) fn reset(&mut self) {
        self.set_bars(0, 0, 0);
        self.put16(COMMAND, 0);
        self.put16(MSI + 2, 0x0080);
        self.put16(PM + 4, NO_SOFT_RESET);
        self.put16(PCIE + 8, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> ConfigSpace {
        ConfigSpace::new(&Config::parse("navi31,bar=256M").unwrap())
    }

    fn r32(c: &ConfigSpace, at: usize) -> u32 {
        let mut b = [0; 4];
        c.read(at, &mut b);
        u32::from_le_bytes(b)
    }

    #[test]
    fn a_sleeping_device_answers_to_configuration_alone_and_wakes_as_it_was() {
        let mut c = space();
        c.write(PM + 4, &[3, 0]);
        assert!(!c.memory_enabled() && !c.bus_master());
        assert_eq!((r32(&c, 0), r32(&c, PM + 4) & 0xff), (0x744c_1002, 0xb));
        c.write(PM + 4, &[0, 0]);
        assert!(c.memory_enabled() && c.bus_master());
    }

    #[test]
    fn identity_is_an_amd_display_controller() {
        let c = space();
        assert_eq!((r32(&c, 0), r32(&c, 8) >> 16), (0x744c_1002, 0x0300));
    }

    #[test]
    fn bar_sizing_shows_the_length_and_keeps_the_type_bits() {
        let mut c = space();
        c.write(0x10, &[0xff; 4]);
        assert_eq!(r32(&c, 0x10), 0xf000_000c);
        c.write(0x24, &[0xff; 4]);
        assert_eq!(r32(&c, 0x24), 0xfff0_0000);
    }

    #[test]
    fn resizing_bar0_follows_the_capability() {
        let mut c = space();
        assert_eq!(r32(&c, REBAR + 4) >> 4, 0xff00, "256 MiB to 32 GiB");
        let event = c.write(REBAR + 8, &(15u32 << 8).to_le_bytes());
        assert_eq!(event, Some(ConfigEvent::Bar0(32 << 30)));
        c.write(0x10, &[0xff; 8]);
        assert_eq!((r32(&c, 0x10), r32(&c, 0x14)), (0xc, 0xffff_fff8));
    }

    #[test]
    fn flr_is_asked_for_in_device_control() {
        assert_eq!(space().write(PCIE + 8, &0x8000u16.to_le_bytes()), Some(ConfigEvent::Flr));
    }
}
