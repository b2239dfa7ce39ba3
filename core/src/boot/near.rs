//! Boots over a slow bus: what would be written word by word into VRAM goes another way.
//!
//! Images for the PSP lie in memory of the host, which a bridge has close at hand, and are read through
//! MMHUB; pages of tables are filled with zeros by DMA, which reaches VRAM by its address in the memory
//! controller and needs no tables for it.

use crate::bus::{Bus, DmaHandle, Window};
use crate::error::Error;
use crate::ip::psp::MessageBuffer;
use crate::ip::{Cx, Device, Hub, Stage, Target, Until, Wait, gmc, sdma, soc};
use crate::layout::{Booting, Ready};
use crate::mm::PteFormat;
use crate::mm::pte::{Entry, Kind, Level, Mtype, PteFlags};
use crate::queue::QueueError;
use crate::queue::sdma::{Sdma, SdmaConfig};

/// Memory for an image: the block memory of an ASM2464PD is as large.
const MESSAGE_LEN: u64 = 512 << 10;
/// Page and alignment of its mapping.
const HUGE: u64 = Level::Pdb0.covers();
/// A fill of half a MiB takes microseconds.
const SCRUB_US: u64 = 1_000_000;
/// Places in the scrubber's page: its ring, then pointers as in a queue's memory, then its fence.
const RING_LEN: u32 = 0x100;
const READ_PTR: u64 = 0x800;
const WRITE_PTR: u64 = 0x840;
const FENCE: u64 = 0x880;
/// What the fence becomes.
const DONE: u32 = 1;

/// Host memory that was lent to the PSP.
#[derive(Debug)]
#[must_use]
pub(super) struct Near(Option<DmaHandle>);

fn format<B>(device: &Device<B>) -> PteFormat {
    if device.chip.gc.0 >= 12 { PteFormat::Gfx12 } else { PteFormat::Gfx11 }
}

/// On a slow bus, puts the PSP's message buffer into memory of the host. It is mapped where page tables
/// begin, by one huge page: three entries in all.
pub(super) fn lend<B: Bus>(cx: &mut Cx<'_, B>, booting: &mut Booting) -> Result<Near, Error> {
    if !cx.bus.is_slow() {
        return Ok(Near(None));
    }
    let handle = cx.bus.dma_alloc(MESSAGE_LEN)?;
    let segment = cx.bus.dma_segment(handle, 0)?;
    if !segment.addr.is_multiple_of(HUGE) || segment.len < MESSAGE_LEN {
        cx.bus.dma_free(handle)?;
        return Ok(Near(None));
    }
    let format = format(cx);
    let (directory, table) = (booting.page()?, booting.page()?);
    let page = Entry {
        kind: Kind::Page,
        addr: segment.addr,
        flags: PteFlags::VALID | PteFlags::RWX | PteFlags::SYSTEM | PteFlags::SNOOPED,
        mtype: Mtype::UNCACHED,
        fragment: (HUGE.trailing_zeros() - 12) as u8,
    };
    let bad = |_| Error::BadValue {
        what: "the bus address of the PSP's message buffer",
        value: segment.addr,
        need: "a multiple of 2 MiB below 2^44",
    };
    let root = cx.layout.root_page_table.start;
    // Nothing is looked up in the other entries of these pages: only this address is used for now.
    cx.vram_write64(table, format.encode(Level::Pdb0, &page).map_err(bad)?)?;
    cx.vram_write64(directory, format.table(Level::Pdb1, table).map_err(bad)?)?;
    cx.vram_write64(root, format.table(Level::Pdb2, directory).map_err(bad)?)?;
    cx.flush_hdp()?;
    cx.message = MessageBuffer::Dma { handle, va: gmc::VM_START, len: MESSAGE_LEN as u32 };
    Ok(Near(Some(handle)))
}

/// Takes it back.
pub(super) async fn take_back<B: Bus>(cx: &mut Cx<'_, B>, near: Near) -> Result<(), Error> {
    let Near(Some(handle)) = near else { return Ok(()) };
    cx.message = MessageBuffer::Vram;
    let root = cx.layout.root_page_table.start;
    cx.vram_write64(root, 0)?;
    gmc::flush_tlb(cx, Hub::Mm, 0).await?;
    Ok(cx.bus.dma_free(handle)?)
}

/// Fills the stock of table pages with zeros by DMA, and on a cold boot the root table: nobody writes to
/// its other entries.
pub(super) async fn scrub<B: Bus>(cx: &mut Cx<'_, B>, ready: Ready, cold: bool) -> Result<(), Error> {
    cx.enter(Stage::Scrub).await;
    let page = cx.layout.scrub_page().start;
    let ranges = [cx.layout.root_page_table.clone(), cx.layout.stock()];
    // The engine itself writes its read pointer.
    cx.vram_write64(page + WRITE_PTR, 0)?;
    cx.vram_write(page + FENCE, &[0; 4])?;
    // These packets are the same in all versions from 6 on.
    let config = SdmaConfig { version: (6, 0, 0), notify: crate::iface::Notify::Own };
    let mut commands = [0; RING_LEN as usize / 4];
    let mut q = Sdma::new(&config, &mut commands);
    let encoded = ranges
        .iter()
        .skip(usize::from(!cold))
        .try_for_each(|r| q.fill(cx.mc(r.start), r.end - r.start, 0).map(drop))
        .and_then(|()| q.fence(cx.mc(page + FENCE), DONE).map(drop));
    let too_long = |_: QueueError| Error::State("the ranges to be scrubbed do not fit into its ring");
    encoded.map_err(too_long)?;
    let len = q.dwords().len() as u64 * 4;
    let mut at = page;
    for dword in q.dwords() {
        cx.vram_write(at, &dword.to_le_bytes())?;
        at += 4;
    }
    let queue = sdma::SdmaQueue {
        ring: cx.mc(page),
        len: RING_LEN,
        rptr: cx.mc(page + READ_PTR),
        wptr: cx.mc(page + WRITE_PTR),
        doorbell: soc::DOORBELL_SDMA0,
    };
    cx.flush_hdp()?;
    sdma::unstop(cx, 0)?;
    sdma::activate(cx, ready, 0, 0, &queue)?;
    cx.vram_write(page + WRITE_PTR, &(len as u32).to_le_bytes())?;
    cx.flush_hdp()?;
    cx.bus.write64(Window::Doorbells, u64::from(soc::DOORBELL_SDMA0) * 8, len)?;
    let stage = cx.stage();
    let done = cx
        .wait(Wait {
            target: Target::Vram(page + FENCE),
            mask: u32::MAX,
            until: Until::Equal(DONE),
            timeout_us: SCRUB_US,
            interval_us: 100,
            stage,
        })
        .await;
    sdma::deactivate(cx, 0, 0).await?;
    done?;
    for r in ranges {
        cx.bus.scrubbed(Window::Vram, r.start, r.end - r.start);
    }
    Ok(())
}
