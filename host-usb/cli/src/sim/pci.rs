//! Configuration space of a device over a reset: what the reset loses and the host gives back.
//!
//! A mode-1 reset takes the whole function down: BARs, command register, MSI and the sizes of
//! resizable BARs are lost with everything else, and nobody but the host knows them.

/// Access to a function's configuration space.
pub(super) trait ConfigSpace {
    fn read(&self, offset: u16, buf: &mut [u8]);
    fn write(&self, offset: u16, data: &[u8]);

    fn read16(&self, offset: u16) -> u16 {
        let mut buf = [0; 2];
        self.read(offset, &mut buf);
        u16::from_le_bytes(buf)
    }

    fn read32(&self, offset: u16) -> u32 {
        let mut buf = [0; 4];
        self.read(offset, &mut buf);
        u32::from_le_bytes(buf)
    }
}

// Offsets and capability ids of `pci_regs.h`.
const COMMAND: u16 = 0x04;
const CACHE_LINE: u16 = 0x0c;
const BAR0: u16 = 0x10;
const ROM: u16 = 0x30;
const CAPABILITIES: u16 = 0x34;
const INTERRUPT_LINE: u16 = 0x3c;
const CAP_PM: u8 = 0x01;
const CAP_MSI: u8 = 0x05;
const CAP_EXP: u8 = 0x10;
const EXTENDED: u16 = 0x100;
const EXT_REBAR: u16 = 0x15;
/// More capabilities than a function can have: a chain that is longer runs in a circle.
const MAX_CAPABILITIES: usize = 64;

/// What has to be written after a reset, in this order: sizes of BARs, BARs, capabilities, and the
/// command register last, which lets accesses through again.
#[derive(Clone, Debug, Default)]
pub(super) struct Saved(Vec<(u16, Vec<u8>)>);

impl Saved {
    /// Reads what a reset loses.
    pub(super) fn of(space: &dyn ConfigSpace) -> Self {
        let mut saved = Saved::default();
        for control in rebar_controls(space) {
            saved.keep(space, control, 4);
        }
        for bar in 0..6 {
            saved.keep(space, BAR0 + 4 * bar, 4);
        }
        saved.keep(space, ROM, 4);
        saved.keep(space, CACHE_LINE, 1);
        saved.keep(space, INTERRUPT_LINE, 1);
        for (id, at) in capabilities(space) {
            match id {
                CAP_PM => saved.keep(space, at + 4, 2),
                // Device control; bit 15, which asks for a function-level reset, reads as 0.
                CAP_EXP => saved.keep(space, at + 8, 2),
                CAP_MSI => {
                    // Address and data before the flag that switches the messages on.
                    let wide = space.read16(at + 2) & 0x80 != 0;
                    saved.keep(space, at + 4, if wide { 10 } else { 6 });
                    saved.keep(space, at + 2, 2);
                }
                _ => {}
            }
        }
        saved.keep(space, COMMAND, 2);
        saved
    }

    fn keep(&mut self, space: &dyn ConfigSpace, offset: u16, len: usize) {
        let mut bytes = vec![0; len];
        space.read(offset, &mut bytes);
        self.0.push((offset, bytes));
    }

    /// Writes it back.
    pub(super) fn restore(&self, space: &dyn ConfigSpace) {
        for (offset, bytes) in &self.0 {
            space.write(*offset, bytes);
        }
    }
}

/// Whether the function answers no memory accesses (bit 1 of the command register).
pub(super) fn is_memory_off(space: &dyn ConfigSpace) -> bool {
    space.read16(COMMAND) & 2 == 0
}

/// Bus address of the 64-bit window BAR0; `None` if it has none.
pub(super) fn bar0(space: &dyn ConfigSpace) -> Option<u64> {
    let low = space.read32(BAR0);
    let base = u64::from(space.read32(BAR0 + 4)) << 32 | u64::from(low & !0xf);
    Some(base).filter(|base| *base != 0)
}

/// Capabilities: id and offset.
fn capabilities(space: &dyn ConfigSpace) -> Vec<(u8, u16)> {
    let mut found = Vec::new();
    let mut at = space.read16(CAPABILITIES) & 0xfc;
    while at != 0 && found.len() < MAX_CAPABILITIES {
        let [id, next] = space.read16(at).to_le_bytes();
        found.push((id, at));
        at = u16::from(next) & 0xfc;
    }
    found
}

/// Offsets of the control registers of resizable BARs.
fn rebar_controls(space: &dyn ConfigSpace) -> Vec<u16> {
    let mut at = EXTENDED;
    for _ in 0..MAX_CAPABILITIES {
        let header = space.read32(at);
        if header == 0 || header == u32::MAX {
            break;
        }
        if header as u16 == EXT_REBAR {
            // The first control register tells how many there are.
            let count = (space.read32(at + 8) >> 5 & 7) as u16;
            return (0..count).map(|i| at + 8 + 8 * i).collect();
        }
        at = (header >> 20) as u16 & 0xffc;
        if at < EXTENDED {
            break;
        }
    }
    Vec::new()
}
