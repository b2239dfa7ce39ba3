//! The controller's registers, as commands E4 and E5 reach them.

use super::machine::Machine;
use super::tlp;
use crate::violation::Rule;

/// PERST#: bit 0 holds what is behind the bridge in reset.
const PERST: usize = 0xb480;
/// State of the link's training; 0x78 is L0 on these bridges (`registers.h`).
const LTSSM: usize = 0xb450;
const LTSSM_UP: u8 = 0x78;
/// 0x19 trained, 0x10 not.
const LINK_SPEED: usize = 0xb455;
/// In the bank of PHY registers: generation in the low nibble, lanes in the high one.
const LINK_INFO: usize = 0x1_4092;

/// Registers that hosts are known to write: the recorded boot, its unit cases, the open firmware's
/// tools. 0xC422 is the size of a sector.
const WRITABLE: [std::ops::RangeInclusive<usize>; 8] = [
    0xb210..=0xb210,
    0xb217..=0xb223,
    0xb254..=0xb254,
    0xb296..=0xb296,
    0xb480..=0xb480,
    0xc422..=0xc422,
    0xce40..=0xce43,
    0xce6e..=0xce6f,
];

impl Machine {
    /// What the firmware sets up before a host comes.
    pub(crate) fn power_on_registers(&mut self) {
        for (at, value) in [(0xb213, 0x01), (0xb216, 0x20), (PERST, 0)] {
            self.memory.set(at, value);
        }
    }

    /// Command E4.
    pub(crate) fn xdata_read(&mut self, at: usize, len: usize) -> Vec<u8> {
        self.counts.reads += 1;
        let up = self.link_up();
        for (at, value) in [
            (LTSSM, if up { LTSSM_UP } else { 0 }),
            (LINK_SPEED, if up { 0x19 } else { 0x10 }),
            (LINK_INFO, if up { self.pcie.link_info() } else { 0 }),
        ] {
            self.memory.set(at, value);
        }
        self.memory.read(&self.gpu, at, len)
    }

    /// Command E5; false if no host is known to write there.
    pub(crate) fn xdata_write(&mut self, at: usize, value: u8) -> bool {
        self.counts.writes += 1;
        match at {
            tlp::TRIGGER => self.tlp_trigger(value),
            tlp::STATUS => self.tlp_acknowledge(value),
            PERST => {
                self.memory.set(at, value);
                self.set_perst(value & 1 != 0);
            }
            // The controller's own memory, and windows to block and queue memory.
            0..0x6000 | 0x8000..0x9000 | 0xa000..0xb000 | 0xb800..0xc000 | 0xf000..0x2_0000 => {
                self.memory.write(&self.gpu, at, value);
                self.blocks.register(at, value);
            }
            _ if WRITABLE.iter().any(|r| r.contains(&at)) => {
                self.memory.set(at, value);
                self.blocks.register(at, value);
            }
            _ => {
                self.violation(
                    Rule::UsbCommand,
                    format!("write of {value:#04x} to controller register {at:#06x}, which no driver is known to write"),
                );
                return false;
            }
        }
        true
    }
}
