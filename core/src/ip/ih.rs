//! IH: interrupt rings. Every block sends its interrupts as 32-byte entries into a ring in VRAM.
//!
//! Pointers count *bytes*. The IH writes its write pointer into memory after the entries, so that
//! what lies before it has arrived; bit 0 of the pointer says that the ring overflowed.

use super::soc;
use super::wait::Stage;
use super::{Cx, Device};
use crate::bus::Bus;
use crate::error::Error;
use crate::layout::IH_RING_LEN;
use crate::reg::{f, r};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Length of an entry in bytes.
pub const ENTRY_LEN: usize = 32;
/// Memory space of the rings: 4 = memory controller addresses (`ih_v6_0_rb_cntl`).
const MC_SPACE_MC: u32 = 4;
/// `RB_SIZE`: the logarithm of the ring's length in dwords (`ih_v6_0_rb_cntl`).
const RB_SIZE: u32 = (IH_RING_LEN / 4).trailing_zeros();

/// An interrupt (`amdgpu_ih_decode_iv_helper`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Block that sent it (`soc21_ih_clientid`).
    pub client: u8,
    /// Reason, by client.
    pub source: u8,
    /// Ring of the engine: queue in bits 4 to 6, pipe in 0 to 1, ME in 2 to 3.
    pub ring: u8,
    /// VMID.
    pub vmid: u8,
    /// True if the VMID is MMHUB's.
    pub vmid_mm: bool,
    /// Time in clocks of 100 MHz, 48 bits.
    pub timestamp: u64,
    /// Process address space id.
    pub pasid: u16,
    /// Die.
    pub node: u8,
    /// Data, by source.
    pub data: [u32; 4],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy)]
#[repr(C)]
struct RawEntry([U32; 8]);

impl Entry {
    /// Reads an entry; `None` unless there are 32 bytes.
    pub fn parse(bytes: &[u8]) -> Option<Entry> {
        let RawEntry(d) = RawEntry::read_from_bytes(bytes).ok()?;
        let [d0, d1, d2, d3, data @ ..] = d.map(|v| v.get());
        Some(Entry {
            client: d0 as u8,
            source: (d0 >> 8) as u8,
            ring: (d0 >> 16) as u8,
            vmid: (d0 >> 24) as u8 & 0xf,
            vmid_mm: d0 >> 31 != 0,
            timestamp: u64::from(d1) | u64::from(d2 & 0xffff) << 32,
            pasid: d3 as u16,
            node: (d3 >> 16) as u8,
            data,
        })
    }

    /// The bytes of the entry.
    pub fn emit(&self) -> [u8; ENTRY_LEN] {
        let d0 = u32::from(self.client)
            | u32::from(self.source) << 8
            | u32::from(self.ring) << 16
            | u32::from(self.vmid & 0xf) << 24
            | u32::from(self.vmid_mm) << 31;
        let d3 = u32::from(self.pasid) | u32::from(self.node) << 16;
        let [a, b, c, d] = self.data;
        let words = [d0, self.timestamp as u32, (self.timestamp >> 32) as u32 & 0xffff, d3, a, b, c, d];
        zerocopy::transmute!(RawEntry(words.map(U32::new)))
    }
}

/// Which entries a look at the ring has to go through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// First byte.
    pub from: u32,
    /// Byte after the last; smaller than `from` if the ring wraps.
    pub to: u32,
    /// Entries were lost.
    pub overflow: bool,
}

/// Decides what to read of a ring of `len` bytes (a power of two).
///
/// `wptr` is the pointer from memory, `overflow` whether the hardware's has its overflow bit set.
/// After an overflow the oldest entry that is whole follows the one at the write pointer.
pub fn span(rptr: u32, wptr: u32, overflow: bool, len: u32) -> Span {
    let mask = len.wrapping_sub(1) & !3;
    let to = wptr & mask;
    let from = if overflow { to.wrapping_add(ENTRY_LEN as u32) & mask } else { rptr & mask };
    Span { from, to, overflow }
}

/// Switches both rings off, for a device that was not reset: what another driver has set up still
/// writes into the memory where its rings were (`ih_v6_0_toggle_ring_interrupts`, ih_v6_0.c).
pub fn switch_off<B: Bus>(device: &mut Device<B>) -> Result<(), Error> {
    use f::{ih_rb_cntl as c0, ih_rb_cntl_ring1 as c1};
    device.update(r::IH_RB_CNTL, &[(c0::RB_ENABLE, 0), (c0::ENABLE_INTR, 0)])?;
    device.update(r::IH_RB_CNTL_RING1, &[(c1::RB_ENABLE, 0)])
}

/// Sets up both rings and switches interrupts on.
pub async fn init<B: Bus>(cx: &mut Cx<'_, B>) -> Result<(), Error> {
    use f::{ih_doorbell_rptr as d0, ih_doorbell_rptr_ring1 as d1, ih_rb_cntl as c0, ih_rb_cntl_ring1 as c1};
    cx.enter(Stage::Ih).await;

    let base = cx.mc(cx.layout.ih_ring[0].start) >> 8;
    cx.write_pair(r::IH_RB_BASE, r::IH_RB_BASE_HI, base)?;
    cx.write_fields(
        r::IH_RB_CNTL,
        &[
            (c0::MC_SPACE, MC_SPACE_MC),
            (c0::WPTR_OVERFLOW_CLEAR, 1),
            (c0::RB_SIZE, RB_SIZE),
            // Without it the write pointer in memory, which `service` reads, never moves.
            (c0::WPTR_WRITEBACK_ENABLE, 1),
            (c0::MC_SNOOP, 1),
            (c0::WPTR_OVERFLOW_ENABLE, 1),
            (c0::RPTR_REARM, 1),
        ],
    )?;
    let wptr = cx.mc(cx.layout.ih_wptr[0].start);
    cx.write_pair(r::IH_RB_WPTR_ADDR_LO, r::IH_RB_WPTR_ADDR_HI, wptr)?;
    cx.write(r::IH_RB_WPTR, 0)?;
    cx.write(r::IH_RB_RPTR, 0)?;
    cx.write_fields(r::IH_DOORBELL_RPTR, &[(d0::OFFSET, soc::DOORBELL_IH * 2), (d0::ENABLE, 1)])?;

    let base = cx.mc(cx.layout.ih_ring[1].start) >> 8;
    cx.write_pair(r::IH_RB_BASE_RING1, r::IH_RB_BASE_HI_RING1, base)?;
    cx.write_fields(
        r::IH_RB_CNTL_RING1,
        &[
            (c1::MC_SPACE, MC_SPACE_MC),
            (c1::WPTR_OVERFLOW_CLEAR, 1),
            (c1::RB_SIZE, RB_SIZE),
            (c1::MC_SNOOP, 1),
            (c1::RB_FULL_DRAIN_ENABLE, 1),
        ],
    )?;
    cx.write(r::IH_RB_WPTR_RING1, 0)?;
    cx.write(r::IH_RB_RPTR_RING1, 0)?;
    cx.write_fields(r::IH_DOORBELL_RPTR_RING1, &[(d1::OFFSET, soc::DOORBELL_IH * 2 + 2), (d1::ENABLE, 1)])?;

    // Page faults come in storms (client 18 is the VMC); the IH thins them out.
    cx.update(r::IH_STORM_CLIENT_LIST_CNTL, &[(f::ih_storm_client_list_cntl::CLIENT18_IS_STORM_CLIENT, 1)])?;
    cx.update(r::IH_INT_FLOOD_CNTL, &[(f::ih_int_flood_cntl::FLOOD_CNTL_ENABLE, 1)])?;
    cx.update(r::IH_MSI_STORM_CTRL, &[(f::ih_msi_storm_ctrl::DELAY, 3)])?;

    // The overflow is cleared by an edge: left at 1 the bit would hide the first one.
    cx.update(r::IH_RB_CNTL, &[(c0::RB_ENABLE, 1), (c0::ENABLE_INTR, 1), (c0::WPTR_OVERFLOW_CLEAR, 0)])?;
    cx.update(r::IH_RB_CNTL_RING1, &[(c1::RB_ENABLE, 1), (c1::WPTR_OVERFLOW_CLEAR, 0)])?;
    soc::route(cx, soc::ROUTE_IH)
}

/// Goes through the entries of ring 0 that have arrived and gives their room back. True if entries
/// were lost before these.
pub fn service<B: Bus>(device: &mut Device<B>, handle: &mut dyn FnMut(&Entry)) -> Result<bool, Error> {
    use f::ih_rb_cntl as c;
    let mut pointer = [0; 8];
    let at = device.layout.ih_wptr[0].start;
    device.vram_read(at, &mut pointer)?;
    let wptr = u64::from_le_bytes(pointer) as u32;
    let status = device.read(r::IH_RB_WPTR)?;
    if status == u32::MAX {
        return Err(Error::NotResponding { stage: Stage::Interrupt });
    }
    let overflow = device.regs.get(status, f::ih_rb_wptr::RB_OVERFLOW)? != 0;
    if overflow {
        // The bit is cleared by an edge; left at 1 it would hide the next overflow.
        let cntl = device.read(r::IH_RB_CNTL)?;
        for bit in [1, 0] {
            let value = device.regs.merge(r::IH_RB_CNTL, cntl, &[(c::WPTR_OVERFLOW_CLEAR, bit)])?;
            device.write(r::IH_RB_CNTL, value)?;
        }
    }
    let rptr = if overflow { 0 } else { device.read(r::IH_RB_RPTR)? };
    let len = IH_RING_LEN as u32;
    let span = span(rptr, wptr, overflow, len);
    let ring = device.layout.ih_ring[0].start;
    let mut next = span.from;
    let mut left = len / ENTRY_LEN as u32;
    while next != span.to && left > 0 {
        let mut bytes = [0; ENTRY_LEN];
        device.vram_read(ring + u64::from(next), &mut bytes)?;
        if let Some(entry) = Entry::parse(&bytes) {
            handle(&entry);
        }
        next = next.wrapping_add(ENTRY_LEN as u32) & (len - 1);
        left -= 1;
    }
    device.write(r::IH_RB_RPTR, span.to)?;
    Ok(overflow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_entries_in_a_256_kib_ring_end_at_byte_0x40() {
        assert_eq!(span(0, 0x40, false, 256 << 10), Span { from: 0, to: 0x40, overflow: false });
    }

    #[test]
    fn after_an_overflow_at_0x20_reading_goes_on_at_byte_0x40() {
        assert_eq!(span(0, 0x21, true, 256 << 10), Span { from: 0x40, to: 0x20, overflow: true });
    }

    #[test]
    fn flag_bits_above_the_ring_length_are_no_part_of_the_pointer() {
        assert_eq!(
            span(0x1220, 0x8_1240, false, 512 << 10),
            Span { from: 0x1220, to: 0x1240, overflow: false }
        );
    }

    #[test]
    fn rb_size_is_the_logarithm_of_the_ring_length_in_dwords() {
        assert_eq!(RB_SIZE, 17);
    }

    #[test]
    fn an_entry_survives_emit_and_parse() {
        let entry = Entry {
            client: 0x14,
            source: 0xb5,
            ring: 0x14,
            vmid: 7,
            vmid_mm: true,
            timestamp: 0xabcd_1234_5678,
            pasid: 0x8001,
            node: 3,
            data: [1, 2, 0xffff_ffff, 4],
        };
        let bytes = entry.emit();
        assert_eq!(bytes[..4], [0x14, 0xb5, 0x14, 0x87]);
        assert_eq!(Entry::parse(&bytes), Some(entry));
        assert_eq!(Entry::parse(&bytes[..31]), None);
    }
}
