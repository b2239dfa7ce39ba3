//! PCI Express behind the bridge: four bridges in a row, the GPU on bus 4.
//!
//! Bus 0 and 1 are the ports of the ASM2464PD's own switch, 2 and 3 those of the switch on the graphics
//! card. Nothing has configured them: bus numbers, windows and commands are zero. The identities of
//! bus 0 and 1 are those that the recorded unit cases read; the order of the card's ports is that of
//! the open firmware's scan (`app/README.md`).

use super::config::BridgeConfig;
use crate::gpu::SimGpu;
use crate::pci::{BAR2_LEN, BAR5_LEN};

/// Completion status, as in a completion's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Success = 0,
    Unsupported = 1,
    Retry = 2,
    Abort = 4,
}

const COMMAND: usize = 0x04;
const BUSES: usize = 0x18;
const CONTROL: usize = 0x3e;
const EXPRESS: usize = 0x80;
const LINK_STATUS: usize = EXPRESS + 0x12;

/// Vendor and device, kind of port (5 upstream, 6 downstream).
const PORTS: [(u16, u16, u16); 4] =
    [(0x1b21, 0x2461, 5), (0x1002, 0x1479, 6), (0x1002, 0x1478, 5), (0x1002, 0x1479, 6)];

/// One bridge's configuration space.
struct Bridge {
    bytes: Vec<u8>,
    mask: Vec<u8>,
}

impl Bridge {
    fn new((vendor, device, kind): (u16, u16, u16), speed: u16, width: u16) -> Bridge {
        let mut b = Bridge { bytes: vec![0; 4096], mask: vec![0; 4096] };
        b.put16(0x00, vendor);
        b.put16(0x02, device);
        b.put16(0x06, 0x0010);
        // A PCI-to-PCI bridge; header type 1.
        b.bytes[0x0a] = 0x04;
        b.bytes[0x0b] = 0x06;
        b.bytes[0x0e] = 0x01;
        b.bytes[0x34] = EXPRESS as u8;
        // Prefetchable windows have 64 bits; there is no I/O window.
        b.put16(0x24, 0x0001);
        b.put16(0x26, 0x0001);
        b.bytes[EXPRESS] = 0x10;
        b.put16(EXPRESS + 2, 0x0002 | kind << 4);
        b.put16(EXPRESS + 0x0c, speed | width << 4);
        b.put16(LINK_STATUS, speed | width << 4);
        for (at, mask) in [(COMMAND, 0x0547u16), (CONTROL, 0x005f), (EXPRESS + 8, 0x7fff)] {
            b.mask[at..at + 2].copy_from_slice(&mask.to_le_bytes());
        }
        b.mask[BUSES..BUSES + 3].fill(0xff);
        for at in [0x20, 0x22, 0x24, 0x26] {
            b.mask[at..at + 2].copy_from_slice(&0xfff0u16.to_le_bytes());
        }
        b.mask[0x28..0x30].fill(0xff);
        b
    }

    fn put16(&mut self, at: usize, v: u16) {
        self.bytes[at..at + 2].copy_from_slice(&v.to_le_bytes());
    }

    fn get16(&self, at: usize) -> u64 {
        u64::from(u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]))
    }

    fn get32(&self, at: usize) -> u64 {
        self.get16(at) | self.get16(at + 2) << 16
    }

    fn memory(&self) -> bool {
        self.bytes[COMMAND] & 2 != 0
    }

    fn master(&self) -> bool {
        self.bytes[COMMAND] & 4 != 0
    }

    fn secondary(&self) -> u8 {
        self.bytes[BUSES + 1]
    }

    fn subordinate(&self) -> u8 {
        self.bytes[BUSES + 2]
    }

    /// Whether a memory request from above goes through.
    fn forwards(&self, addr: u64) -> bool {
        let base = self.get16(0x20) >> 4 << 20;
        let limit = (self.get16(0x22) >> 4 << 20) + 0xf_ffff;
        let pref_base = self.get32(0x28) << 32 | self.get16(0x24) >> 4 << 20;
        let pref_limit = (self.get32(0x2c) << 32 | self.get16(0x26) >> 4 << 20) + 0xf_ffff;
        self.memory() && ((base..=limit).contains(&addr) || (pref_base..=pref_limit).contains(&addr))
    }
}

/// Where a configuration request ends.
enum Target {
    Bridge(usize),
    Gpu,
}

/// What a write did beside storing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    None,
    /// A command register changed: requests upstream may or may not pass.
    Command,
    /// The GPU's bus was reset.
    Reset,
}

/// The hierarchy.
pub(crate) struct Pcie {
    bridges: Vec<Bridge>,
    /// Upper halves of doorbells that came alone: the function rings with both when the lower comes.
    doorbells: std::collections::BTreeMap<u64, u32>,
    /// The GPU answers "retry" until its reset is over.
    settling: bool,
}

impl Pcie {
    pub(crate) fn new(config: &BridgeConfig) -> Pcie {
        // The controller has four lanes of 16 GT/s; the open firmware trains two.
        let lanes = if config.firmware == super::Firmware::Custom { 2 } else { 4 };
        let bridge = |(i, port): (usize, &(u16, u16, u16))| {
            let inside = i == 0 || i == 3;
            Bridge::new(*port, 4, if inside { 16 } else { lanes })
        };
        Pcie {
            bridges: PORTS.iter().enumerate().map(bridge).collect(),
            doorbells: Default::default(),
            settling: false,
        }
    }

    /// As after a reset of everything behind the bridge `above`.
    pub(crate) fn reset(&mut self, config: &BridgeConfig, above: Option<usize>) {
        let fresh = Pcie::new(config);
        let first = above.map_or(0, |a| a + 1);
        for (i, bridge) in fresh.bridges.into_iter().enumerate().skip(first) {
            self.bridges[i] = bridge;
        }
        self.doorbells.clear();
    }

    /// Generation and lanes of the link to the card, as the controller's PHY shows them.
    pub(crate) fn link_info(&self) -> u8 {
        let status = self.bridges[1].get16(LINK_STATUS);
        (status & 0xf) as u8 | (status >> 4 << 4) as u8
    }

    /// The GPU was reset together with its bus.
    pub(crate) fn settle(&mut self) {
        self.settling = true;
    }

    /// All bridges let requests of the GPU pass.
    pub(crate) fn masters(&self) -> bool {
        self.bridges.iter().all(Bridge::master)
    }

    fn route(&self, bus: u8, device: u8, function: u8) -> Option<Target> {
        // Each bus has one device: downstream ports lead to device 0 only.
        if device != 0 || function != 0 {
            return None;
        }
        if bus == 0 {
            return Some(Target::Bridge(0));
        }
        for (i, b) in self.bridges.iter().enumerate() {
            if bus < b.secondary() || bus > b.subordinate() || b.secondary() == 0 {
                return None;
            }
            if bus == b.secondary() {
                return Some(if i + 1 < self.bridges.len() { Target::Bridge(i + 1) } else { Target::Gpu });
            }
        }
        None
    }

    /// Reads the double word at `at`.
    pub(crate) fn config_read(&mut self, gpu: &SimGpu, bdf: (u8, u8, u8), at: u16) -> (Answer, u32) {
        let mut word = [0xff; 4];
        match self.route(bdf.0, bdf.1, bdf.2) {
            Some(Target::Bridge(i)) => {
                let at = usize::from(at);
                word.copy_from_slice(&self.bridges[i].bytes[at..at + 4]);
            }
            Some(Target::Gpu) if !gpu.present() => return (Answer::Unsupported, !0),
            Some(Target::Gpu) if self.retries(gpu) => return (Answer::Retry, !0),
            Some(Target::Gpu) => gpu.config_read(at, &mut word),
            None => return (Answer::Unsupported, !0),
        }
        (Answer::Success, u32::from_le_bytes(word))
    }

    /// After a reset of its bus a function may take until it is configured anew.
    fn retries(&mut self, gpu: &SimGpu) -> bool {
        self.settling = self.settling && gpu.lock().resetting;
        self.settling
    }

    /// Writes the enabled bytes of the double word at `at`.
    pub(crate) fn config_write(
        &mut self,
        config: &BridgeConfig,
        gpu: &SimGpu,
        bdf: (u8, u8, u8),
        at: u16,
        data: &[u8],
    ) -> (Answer, Effect) {
        match self.route(bdf.0, bdf.1, bdf.2) {
            Some(Target::Bridge(i)) => {
                let b = &mut self.bridges[i];
                let (commanded, held) = (b.bytes[COMMAND], b.bytes[CONTROL] & 0x40);
                for (k, v) in data.iter().enumerate() {
                    let at = usize::from(at) + k;
                    b.bytes[at] = b.bytes[at] & !b.mask[at] | v & b.mask[at];
                }
                let (command, reset) = (b.bytes[COMMAND], b.bytes[CONTROL] & 0x40);
                if reset != 0 && held == 0 {
                    self.reset(config, Some(i));
                    self.settle();
                    gpu.reset_bus();
                    return (Answer::Success, Effect::Reset);
                }
                let effect = if command == commanded { Effect::None } else { Effect::Command };
                (Answer::Success, effect)
            }
            Some(Target::Gpu) if !gpu.present() => (Answer::Unsupported, Effect::None),
            Some(Target::Gpu) if self.retries(gpu) => (Answer::Retry, Effect::None),
            Some(Target::Gpu) => {
                gpu.config_write(at, data);
                (Answer::Success, Effect::None)
            }
            None => (Answer::Unsupported, Effect::None),
        }
    }

    /// The window and offset that a memory address leads to.
    pub(crate) fn claim(&self, gpu: &SimGpu, addr: u64) -> Result<(u8, u64), String> {
        if let Some(i) = self.bridges.iter().position(|b| !b.forwards(addr)) {
            return Err(format!("the bridge on bus {i} forwards nothing at {addr:#x}"));
        }
        if !gpu.present() {
            return Err("the GPU is gone".into());
        }
        let (words, enabled, bar0) = {
            let d = gpu.lock();
            let mut bytes = [0; 24];
            d.pci.read(0x10, &mut bytes);
            let word = |i: usize| u64::from(u32::from_le_bytes([0, 1, 2, 3].map(|k| bytes[4 * i + k])));
            ([0, 1, 2, 3, 4, 5].map(word), d.pci.memory_enabled(), d.pci.bar0())
        };
        if !enabled {
            return Err(format!("memory space of the GPU is off ({addr:#x})"));
        }
        let wide = |i: usize| words[i + 1] << 32 | words[i] & !0xf;
        for (bar, base, len) in [(0, wide(0), bar0), (2, wide(2), BAR2_LEN), (5, words[5] & !0xf, BAR5_LEN)] {
            if addr >= base && addr - base < len {
                return Ok((bar, addr - base));
            }
        }
        Err(format!("no window of the GPU is at {addr:#x}"))
    }

    /// A store of four bytes into the doorbell window. Doorbells have eight: an upper half waits for its
    /// lower one, which rings with what was stored above it last. The reference driver relies on it.
    pub(crate) fn doorbell(&mut self, offset: u64, value: u32) -> Option<(u64, u64)> {
        if offset % 8 == 4 {
            self.doorbells.insert(offset - 4, value);
            return None;
        }
        let upper = self.doorbells.get(&offset).copied().unwrap_or(0);
        Some((offset, u64::from(upper) << 32 | u64::from(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rig() -> (BridgeConfig, SimGpu, Pcie) {
        let config = BridgeConfig::parse("navi48").unwrap();
        let gpu = SimGpu::new(config.gpu.clone());
        gpu.lock().pci.reset();
        let pcie = Pcie::new(&config);
        (config, gpu, pcie)
    }

    #[test]
    fn a_bus_is_reached_when_every_bridge_above_leads_there() {
        let (config, gpu, mut p) = rig();
        assert_eq!(p.config_read(&gpu, (0, 0, 0), 0), (Answer::Success, 0x2461_1b21));
        assert_eq!(p.config_read(&gpu, (1, 0, 0), 0).0, Answer::Unsupported);
        let expect = [0x1479_1002, 0x1478_1002, 0x1479_1002, 0x7550_1002];
        for bus in 0..4u8 {
            let data = [0, bus + 1, 4, 0];
            assert_eq!(p.config_write(&config, &gpu, (bus, 0, 0), 0x18, &data).0, Answer::Success);
            let read = p.config_read(&gpu, (bus + 1, 0, 0), 0);
            assert_eq!(read, (Answer::Success, expect[usize::from(bus)]));
        }
        assert_eq!(p.config_read(&gpu, (4, 1, 0), 0).0, Answer::Unsupported);
        assert_eq!(p.config_read(&gpu, (5, 0, 0), 0).0, Answer::Unsupported);
        assert_eq!(p.config_read(&gpu, (9, 0, 0), 0).0, Answer::Unsupported);
    }

    #[test]
    fn windows_and_commands_decide_over_memory_requests() {
        let (config, gpu, mut p) = rig();
        for bus in 0..4u8 {
            for (at, data) in [
                (0x18, vec![0, bus + 1, 4, 0]),
                (0x20, vec![0x00, 0x10, 0xff, 0xff]),
                (0x24, vec![0, 0, 0xff, 0xff]),
                (0x28, vec![8, 0, 0, 0]),
                (0x2c, vec![0xff; 4]),
            ] {
                p.config_write(&config, &gpu, (bus, 0, 0), at, &data);
            }
        }
        for (at, data) in [(0x10u16, 0u32), (0x14, 8), (0x18, 0), (0x1c, 12), (0x24, 0x1000_0000), (4, 7)] {
            p.config_write(&config, &gpu, (4, 0, 0), at, &data.to_le_bytes());
        }
        assert!(p.claim(&gpu, 0x1000_0000).unwrap_err().contains("bus 0"), "commands are off");
        assert!(!p.masters());
        for bus in 0..4u8 {
            let (_, effect) = p.config_write(&config, &gpu, (bus, 0, 0), 4, &[7]);
            assert_eq!(effect, Effect::Command);
        }
        assert!(p.masters());
        assert_eq!(p.claim(&gpu, 0x1000_378c), Ok((5, 0x378c)));
        assert_eq!(p.claim(&gpu, 0x8_0000_1000), Ok((0, 0x1000)));
        assert_eq!(p.claim(&gpu, 0xc_0000_0800), Ok((2, 0x800)));
        assert!(p.claim(&gpu, 0x2000_0000).unwrap_err().contains("no window"));
        assert!(p.claim(&gpu, 0x20_0000).unwrap_err().contains("bus 0"));
    }

    #[test]
    fn a_secondary_bus_reset_unconfigures_what_is_below_and_the_gpu_asks_for_a_retry() {
        let (config, gpu, mut p) = rig();
        for bus in 0..4u8 {
            p.config_write(&config, &gpu, (bus, 0, 0), 0x18, &[0, bus + 1, 4, 0]);
        }
        let (_, effect) = p.config_write(&config, &gpu, (3, 0, 0), 0x3e, &[0x40, 0]);
        assert_eq!(effect, Effect::Reset);
        assert_eq!(p.config_read(&gpu, (4, 0, 0), 0).0, Answer::Retry);
        gpu.advance_us(1_000_000);
        assert_eq!(p.config_read(&gpu, (4, 0, 0), 0), (Answer::Success, 0x7550_1002));
        p.config_write(&config, &gpu, (0, 0, 0), 0x3e, &[0x40, 0]);
        assert_eq!(p.config_read(&gpu, (2, 0, 0), 0).0, Answer::Unsupported);
    }

    #[test]
    fn a_doorbell_rings_with_its_lower_half() {
        let (_, _, mut p) = rig();
        assert_eq!(p.doorbell(0x804, 2), None);
        assert_eq!(p.doorbell(0x800, 3), Some((0x800, 0x2_0000_0003)));
        assert_eq!(p.doorbell(0x800, 4), Some((0x800, 0x2_0000_0004)), "the upper half stays");
        assert_eq!(p.doorbell(0x10, 1), Some((0x10, 1)));
    }
}
