//! Every reserved range of the VRAM, in one place.
//!
//! The first 32 MiB are the *boot region*: what is set up once on a cold boot and survives warm
//! boots. The pool for everything else follows; the last 64 MiB are left to the firmware (discovery
//! table, stolen memory). Offsets are bytes from the start of the VRAM.

use core::fmt;
use core::ops::Range;

/// Length of the boot region in bytes.
pub const BOOT_LEN: u64 = 32 << 20;
/// Length of the tail that is never touched, in bytes.
pub const TAIL_LEN: u64 = 64 << 20;
/// Distance of the discovery table from the end of the VRAM (`DISCOVERY_TMR_OFFSET`, discovery.h).
pub const DISCOVERY_FROM_END: u64 = 64 << 10;
/// Length of the discovery table in bytes (`DISCOVERY_TMR_SIZE`, discovery.h).
pub const DISCOVERY_LEN: u64 = 10 << 10;
/// Length of one IH ring in bytes.
pub const IH_RING_LEN: u64 = 512 << 10;
/// Length of the PSP's ring in bytes.
pub const PSP_RING_LEN: u64 = 64 << 10;
/// Length of the PSP's message buffer in bytes (`PSP_1_MEG`, amdgpu_psp.h).
pub const PSP_MESSAGE_LEN: u64 = 1 << 20;
/// Length reserved for the trusted memory region; the size that `LOAD_TOC` asks for at most.
pub const TMR_LEN: u64 = 0x130_0000;
/// Length of the table through which the SMU hands out metrics, in bytes.
pub const SMU_TABLE_LEN: u64 = 0x4000;
const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

/// The reserved ranges cannot be laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LayoutError {
    /// The VRAM is too small for boot region and tail.
    #[error("{vram:#x} bytes of VRAM are too few: boot region and reserved tail take {need:#x}")]
    TooSmall {
        /// Size of the VRAM in bytes.
        vram: u64,
        /// What the reserved ranges take, in bytes.
        need: u64,
    },
    /// Two ranges overlap, or one leaves the VRAM.
    #[error("reserved range {first} collides with {second}")]
    Overlap {
        /// One range.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// No spare page of the boot region is left.
    #[error("the boot region has no spare page left")]
    BootRegionFull,
}

/// The VRAM of one device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The whole VRAM.
    pub vram: Range<u64>,
    /// Root page table (one page).
    pub root_page_table: Range<u64>,
    /// Where accesses outside the system aperture go.
    pub memscratch: Range<u64>,
    /// Where faulting accesses go.
    pub dummy_page: Range<u64>,
    /// The two interrupt rings.
    pub ih_ring: [Range<u64>; 2],
    /// Write pointers of the interrupt rings.
    pub ih_wptr: [Range<u64>; 2],
    /// PSP command buffer.
    pub psp_command: Range<u64>,
    /// PSP fence.
    pub psp_fence: Range<u64>,
    /// PSP ring.
    pub psp_ring: Range<u64>,
    /// Table shared with the SMU.
    pub smu_table: Range<u64>,
    /// Pages for page tables that are needed while booting.
    pub spare: Range<u64>,
    /// PSP message buffer; aligned to 1 MiB, the unit of the bootloader's address register.
    pub psp_message: Range<u64>,
    /// Trusted memory region; empty where the PSP reserves its own at power-on (MP0 14.x).
    pub tmr: Range<u64>,
    /// The whole boot region.
    pub boot: Range<u64>,
    /// What the memory manager hands out.
    pub pool: Range<u64>,
    /// Left to the firmware.
    pub tail: Range<u64>,
    /// The discovery table, inside the tail.
    pub discovery: Range<u64>,
}

impl Layout {
    /// Lays out a VRAM of `vram_len` bytes; `with_tmr` if the driver must provide the TMR.
    pub fn new(vram_len: u64, with_tmr: bool) -> Result<Self, LayoutError> {
        let need = BOOT_LEN + TAIL_LEN + (1 << 20);
        if vram_len < need || !vram_len.is_multiple_of(MIB) {
            return Err(LayoutError::TooSmall { vram: vram_len, need });
        }
        let mut at = 0;
        let mut take = |len: u64| {
            let range = at..at + len;
            at += len;
            range
        };
        let root_page_table = take(PAGE);
        let memscratch = take(PAGE);
        let dummy_page = take(PAGE);
        let ring0 = take(IH_RING_LEN);
        let wptr0 = take(PAGE);
        let ring1 = take(IH_RING_LEN);
        let wptr1 = take(PAGE);
        let psp_command = take(PAGE);
        let psp_fence = take(PAGE);
        let psp_ring = take(PSP_RING_LEN);
        let smu_table = take(SMU_TABLE_LEN);
        let message_at = at.next_multiple_of(MIB);
        let spare = at..message_at;
        let psp_message = message_at..message_at + PSP_MESSAGE_LEN;
        let tmr_len = if with_tmr { TMR_LEN } else { 0 };
        let tmr = psp_message.end..psp_message.end + tmr_len;
        let layout = Layout {
            vram: 0..vram_len,
            root_page_table,
            memscratch,
            dummy_page,
            ih_ring: [ring0, ring1],
            ih_wptr: [wptr0, wptr1],
            psp_command,
            psp_fence,
            psp_ring,
            smu_table,
            spare,
            psp_message,
            tmr,
            boot: 0..BOOT_LEN,
            pool: BOOT_LEN..vram_len - TAIL_LEN,
            tail: vram_len - TAIL_LEN..vram_len,
            discovery: vram_len - DISCOVERY_FROM_END..vram_len - DISCOVERY_FROM_END + DISCOVERY_LEN,
        };
        layout.check()?;
        Ok(layout)
    }

    /// The ranges that must not overlap, in ascending order, with their names.
    pub fn ranges(&self) -> [(&'static str, Range<u64>); 16] {
        [
            ("root page table", self.root_page_table.clone()),
            ("memscratch page", self.memscratch.clone()),
            ("dummy page", self.dummy_page.clone()),
            ("IH ring 0", self.ih_ring[0].clone()),
            ("IH ring 0 write pointer", self.ih_wptr[0].clone()),
            ("IH ring 1", self.ih_ring[1].clone()),
            ("IH ring 1 write pointer", self.ih_wptr[1].clone()),
            ("PSP command buffer", self.psp_command.clone()),
            ("PSP fence", self.psp_fence.clone()),
            ("PSP ring", self.psp_ring.clone()),
            ("SMU table", self.smu_table.clone()),
            ("spare boot pages", self.spare.clone()),
            ("PSP message buffer", self.psp_message.clone()),
            ("TMR", self.tmr.clone()),
            ("pool", self.pool.clone()),
            ("reserved tail with discovery table", self.tail.clone()),
        ]
    }

    fn check(&self) -> Result<(), LayoutError> {
        let mut last: (&'static str, u64) = ("start of VRAM", 0);
        for (name, range) in self.ranges() {
            if range.start < last.1 || range.end < range.start || range.end > self.vram.end {
                return Err(LayoutError::Overlap { first: last.0, second: name });
            }
            last = (name, range.end);
        }
        if self.tmr.end > self.boot.end {
            return Err(LayoutError::Overlap { first: "TMR", second: "pool" });
        }
        if self.discovery.start < self.tail.start {
            return Err(LayoutError::Overlap { first: "pool", second: "discovery table" });
        }
        Ok(())
    }

    /// Pages of the boot region for page tables, on a slow bus: DMA fills them with zeros at once.
    pub fn stock(&self) -> Range<u64> {
        self.spare.start..self.scrub_page().start
    }

    /// The page with the ring of that DMA queue: the last spare one.
    pub(crate) fn scrub_page(&self) -> Range<u64> {
        self.spare.end.saturating_sub(PAGE).max(self.spare.start)..self.spare.end
    }

    /// Length of the VRAM in bytes.
    pub fn vram_len(&self) -> u64 {
        self.vram.end
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<36} {:>12} {:>12} {:>11}", "VRAM range", "start", "end", "KiB")?;
        let mut at = 0;
        for (name, range) in self.ranges() {
            if range.is_empty() {
                continue;
            }
            if range.start > at {
                row(f, "-", &(at..range.start))?;
            }
            row(f, name, &range)?;
            at = range.end;
        }
        Ok(())
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, range: &Range<u64>) -> fmt::Result {
    writeln!(
        f,
        "{name:<36} {:>#12x} {:>#12x} {:>11}",
        range.start,
        range.end,
        (range.end - range.start) >> 10
    )
}

/// Proof that the device is booting, and the only source of boot pages.
///
/// Pages of the boot region can be taken only while this exists; the end of the boot turns it into
/// [`Ready`], which what comes after the boot asks for.
#[derive(Debug)]
pub struct Booting {
    spare: Range<u64>,
}

/// Proof that the device has booted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready(());

impl Booting {
    pub(crate) fn new(layout: &Layout) -> Self {
        Booting { spare: layout.spare.clone() }
    }

    /// Takes a page of the boot region; its offset in VRAM. The content is undefined.
    pub fn page(&mut self) -> Result<u64, LayoutError> {
        let page = self.spare.start;
        if self.spare.end.saturating_sub(page) < PAGE {
            return Err(LayoutError::BootRegionFull);
        }
        self.spare.start += PAGE;
        Ok(page)
    }

    pub(crate) fn finish(self) -> Ready {
        Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAVI31: u64 = 24560 << 20;

    #[test]
    fn navi31_has_the_addresses_of_the_golden_am_state() {
        let l = Layout::new(NAVI31, true).unwrap();
        assert_eq!(l.root_page_table.start, 0);
        assert_eq!(l.memscratch.start, 0x1000);
        assert_eq!(l.dummy_page.start, 0x2000);
        assert_eq!((l.ih_ring[0].start, l.ih_wptr[0].start), (0x3000, 0x83000));
        assert_eq!((l.ih_ring[1].start, l.ih_wptr[1].start), (0x84000, 0x104000));
        assert_eq!((l.psp_command.start, l.psp_fence.start), (0x105000, 0x106000));
        assert_eq!((l.psp_ring.start, l.smu_table.start), (0x107000, 0x117000));
        assert_eq!((l.psp_message.start, l.tmr.clone()), (0x200000, 0x300000..0x1600000));
        assert_eq!(l.pool, 0x200_0000..0x200_0000 + (0x5_fb00_0000 - 0x200_0000));
        assert_eq!(l.discovery, 0x5_feff_0000..0x5_feff_2800);
    }

    #[test]
    fn without_a_tmr_of_the_driver_the_message_buffer_stays_where_it_is() {
        let l = Layout::new(16304 << 20, false).unwrap();
        assert_eq!(l.psp_message.start, 0x200000);
        assert!(l.tmr.is_empty());
    }

    #[test]
    fn a_vram_of_64_mib_is_refused() {
        assert!(matches!(Layout::new(64 << 20, true), Err(LayoutError::TooSmall { .. })));
    }

    #[test]
    fn boot_pages_run_out_with_an_error() {
        let l = Layout::new(NAVI31, true).unwrap();
        let mut b = Booting::new(&l);
        let count = (l.spare.end - l.spare.start) / PAGE;
        assert_eq!(b.page(), Ok(l.spare.start));
        for _ in 1..count {
            b.page().unwrap();
        }
        assert_eq!(b.page(), Err(LayoutError::BootRegionFull));
    }
}
