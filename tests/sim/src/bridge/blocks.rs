//! The window into block memory that the vendor's firmware fills by SCSI writes.
//!
//! It is written once, then released by three flags and a pointer. Writes of more than 16 KiB come in
//! pieces of 64 KiB; each lies behind the one before until the four slot pointers are cleared. That the
//! window moves on is what the recorded boot shows (an image of several pieces is loaded from one
//! address); how hardware does it is not known.

use super::memory::BLOCKS_LEN;

/// Bytes of a sector.
pub(crate) const SECTOR: usize = 512;
/// Slots of block memory.
pub(crate) const SLOT: usize = 0x4000;
const PIECE: usize = 0x1_0000;

/// What makes the firmware take a SCSI write for block memory: `ASM24Controller.__init__` of the
/// reference driver.
const INIT: [(usize, u8); 10] = [
    (0x54b, 0x20),
    (0x54e, 0x04),
    (0x5a8, 0x02),
    (0x5f8, 0x04),
    (0x7ec, 0x01),
    (0x7ed, 0x00),
    (0x7ee, 0x00),
    (0x7ef, 0x00),
    (0xc422, 0x02),
    (0x0, 0x33),
];

/// Registers that release the window, with their values; then those that rewind it.
const RELEASE: [(usize, u8); 5] = [(0x171, 0xff), (0x172, 0xff), (0x173, 0xff), (0xce6e, 0), (0xce6f, 0)];
const REWIND: [usize; 4] = [0xce40, 0xce41, 0xce42, 0xce43];

#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    init: u16,
    released: u8,
    rewound: u8,
    held: bool,
    next: usize,
}

impl Blocks {
    /// A register was written.
    pub(crate) fn register(&mut self, at: usize, value: u8) {
        for (i, (reg, want)) in INIT.iter().enumerate() {
            if *reg == at {
                self.init = self.init & !(1 << i) | u16::from(*want == value) << i;
            }
        }
        if let Some(i) = RELEASE.iter().position(|r| *r == (at, value)) {
            self.released |= 1 << i;
            if self.released == 0x1f {
                self.held = false;
            }
        }
        if let (Some(i), 0) = (REWIND.iter().position(|r| *r == at), value) {
            self.rewound |= 1 << i;
            if self.rewound == 0xf {
                (self.next, self.rewound) = (0, 0);
            }
        }
    }

    /// Bytes that a SCSI write of this many sectors needs, or why it is none.
    pub(crate) fn length(&self, lba: u64, sectors: u32) -> Result<usize, String> {
        if lba != 0 {
            return Err(format!("block address {lba}: the window has only 0"));
        }
        match sectors {
            1..=32 | 128 => Ok(sectors as usize * SECTOR),
            n => Err(format!("{n} sectors: a write has 1 to 32, or 128")),
        }
    }

    /// Where the next write of `len` bytes goes, or why it cannot.
    pub(crate) fn place(&mut self, len: usize) -> Result<usize, String> {
        if self.init != (1 << INIT.len()) - 1 {
            let missing = INIT.iter().enumerate().find(|(i, _)| self.init & 1 << i == 0);
            let at = missing.map_or(0, |(_, (reg, _))| *reg);
            return Err(format!("block before the controller was set up: {at:#06x} has not its value"));
        }
        if self.held {
            return Err(
                "block while the window is held: 0x171..0x173 = 0xff and 0xCE6E..0xCE6F = 0 release it"
                    .into(),
            );
        }
        let at = self.next;
        if len <= SLOT && at != 0 {
            return Err(format!("small block while the window stands at {at:#x}: clear 0xCE40..0xCE43"));
        }
        if at + len > BLOCKS_LEN {
            return Err(format!("block at {at:#x} past the end of block memory: clear 0xCE40..0xCE43"));
        }
        if len > SLOT {
            self.next = at + PIECE;
        }
        (self.held, self.released, self.rewound) = (true, 0, 0);
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready() -> Blocks {
        let mut b = Blocks::default();
        INIT.iter().for_each(|(at, v)| b.register(*at, *v));
        b
    }

    fn release(b: &mut Blocks) {
        RELEASE.iter().for_each(|(at, v)| b.register(*at, *v));
    }

    #[test]
    fn pieces_of_64_kib_follow_each_other_until_the_slots_are_cleared() {
        let mut b = ready();
        for piece in 0..8 {
            assert_eq!(b.place(0x10000), Ok(piece * 0x10000));
            assert!(b.place(0x10000).unwrap_err().contains("held"));
            release(&mut b);
        }
        assert!(b.place(0x10000).unwrap_err().contains("past the end"));
        assert!(b.place(512).unwrap_err().contains("small block"));
        REWIND.iter().for_each(|at| b.register(*at, 0));
        assert_eq!(b.place(512), Ok(0));
        release(&mut b);
        assert_eq!(b.place(0x4000), Ok(0), "small ones do not move the window");
    }

    #[test]
    fn a_block_before_the_set_up_is_refused() {
        let mut b = Blocks::default();
        assert!(b.place(512).unwrap_err().contains("0x054b"));
        let mut b = ready();
        b.register(0x5a8, 3);
        assert!(b.place(512).unwrap_err().contains("0x05a8"));
    }

    #[test]
    fn lengths_are_1_to_32_sectors_or_128() {
        let b = Blocks::default();
        assert_eq!(b.length(0, 14), Ok(7168));
        assert_eq!(b.length(0, 128), Ok(65536));
        assert!(b.length(0, 0).is_err() && b.length(0, 33).is_err() && b.length(0, 129).is_err());
        assert!(b.length(8, 1).is_err());
    }
}
