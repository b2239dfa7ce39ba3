//! GMC: the two memory hubs. Apertures, L1 and L2 TLBs, VM context 0, invalidation, faults.

use super::wait::{Stage, Until};
use super::{Cx, Device, Hub};
use crate::bus::Bus;
use crate::error::Error;
use crate::fault::{self, VmFault};
use crate::reg::{Field, PerHub, Reg, f, r, ra};

/// First address that page tables translate: the range all devices share.
pub const VM_START: u64 = 0x2000_0000_0000;
/// Last address that page tables translate. Bit 47 is a sign bit.
pub const VM_END: u64 = 0x7fff_ffff_ffff;
/// `MTYPE_UC` (soc21_enum.h, soc24_enum.h): not cached.
const MTYPE_UC: u32 = 3;
/// An invalidation; Linux waits `usec_timeout`, 100 ms.
const INVALIDATE_US: u64 = 1_000_000;
/// The semaphore of an invalidation is held for some microseconds; Linux waits 100 ms for it.
const SEMAPHORE_US: u64 = 100_000;
/// Invalidation engine that Linux keeps for the GART; the others are for rings.
const ENGINE: usize = 17;
const ENGINES: usize = 18;
/// Levels of tables below the root: PDB1, PDB0 and PTB.
const TABLE_DEPTH: u32 = 3;

impl<B: Bus> Device<B> {
    fn hub_write(&mut self, hub: Hub, reg: PerHub<Reg>, value: u32) -> Result<(), Error> {
        self.write(reg[hub], value)
    }

    fn hub_pair(&mut self, hub: Hub, lo: PerHub<Reg>, hi: PerHub<Reg>, value: u64) -> Result<(), Error> {
        self.write_pair(lo[hub], hi[hub], value)
    }

    fn hub_update<const N: usize>(
        &mut self,
        hub: Hub,
        reg: PerHub<Reg>,
        fields: [(PerHub<Field>, u32); N],
    ) -> Result<(), Error> {
        self.update(reg[hub], &fields.map(|(field, value)| (field[hub], value)))
    }

    fn hub_fields<const N: usize>(
        &mut self,
        hub: Hub,
        reg: PerHub<Reg>,
        fields: [(PerHub<Field>, u32); N],
    ) -> Result<(), Error> {
        self.write_fields(reg[hub], &fields.map(|(field, value)| (field[hub], value)))
    }
}

/// Sets up MMHUB; GFXHUB follows when the graphics firmware runs.
pub async fn init<B: Bus>(cx: &mut Cx<'_, B>) -> Result<(), Error> {
    cx.enter(Stage::Gmc).await;
    init_hub(cx, Hub::Mm)
}

/// Apertures, TLBs and VM context 0 of a hub.
pub fn init_hub<B: Bus>(device: &mut Device<B>, hub: Hub) -> Result<(), Error> {
    use f::hub as fh;
    use r::hub as rh;

    // AGP is off: its bottom lies above its top.
    device.hub_write(hub, rh::MC_VM_AGP_BASE, 0)?;
    device.hub_write(hub, rh::MC_VM_AGP_BOT, 0xff_ffff)?;
    device.hub_write(hub, rh::MC_VM_AGP_TOP, 0)?;

    // The system aperture is the VRAM; both registers count 256 KiB.
    let (first, last) = (device.mc(0), device.mc(device.layout.vram_len() - 1));
    device.hub_write(hub, rh::MC_VM_SYSTEM_APERTURE_LOW_ADDR, (first >> 18) as u32)?;
    device.hub_write(hub, rh::MC_VM_SYSTEM_APERTURE_HIGH_ADDR, (last >> 18) as u32)?;
    let memscratch = device.layout.memscratch.start >> 12;
    device.hub_pair(
        hub,
        rh::MC_VM_SYSTEM_APERTURE_DEFAULT_ADDR_LSB,
        rh::MC_VM_SYSTEM_APERTURE_DEFAULT_ADDR_MSB,
        memscratch,
    )?;
    let dummy = device.layout.dummy_page.start >> 12;
    device.hub_pair(
        hub,
        rh::VM_L2_PROTECTION_FAULT_DEFAULT_ADDR_LO32,
        rh::VM_L2_PROTECTION_FAULT_DEFAULT_ADDR_HI32,
        dummy,
    )?;
    device.hub_update(
        hub,
        rh::VM_L2_PROTECTION_FAULT_CNTL2,
        [(fh::vm_l2_protection_fault_cntl2::ACTIVE_PAGE_MIGRATION_PTE_READ_RETRY, 1)],
    )?;

    {
        use fh::mc_vm_mx_l1_tlb_cntl as t;
        device.hub_update(
            hub,
            rh::MC_VM_MX_L1_TLB_CNTL,
            [
                (t::ENABLE_L1_TLB, 1),
                (t::SYSTEM_ACCESS_MODE, 3),
                (t::ENABLE_ADVANCED_DRIVER_MODEL, 1),
                (t::SYSTEM_APERTURE_UNMAPPED_ACCESS, 0),
                (t::ECO_BITS, 0),
                (t::MTYPE, MTYPE_UC),
            ],
        )?;
    }
    {
        use fh::vm_l2_cntl as t;
        device.hub_update(
            hub,
            rh::VM_L2_CNTL,
            [
                (t::ENABLE_L2_CACHE, 1),
                (t::ENABLE_L2_FRAGMENT_PROCESSING, 0),
                // The dummy page lies in VRAM: with 1 a faulting write would go to that address on
                // the bus, into whatever memory the host has there.
                (t::ENABLE_DEFAULT_PAGE_OUT_TO_SYSTEM_MEMORY, 0),
                (t::L2_PDE0_CACHE_TAG_GENERATION_MODE, 0),
                (t::PDE_FAULT_CLASSIFICATION, 0),
                (t::CONTEXT1_IDENTITY_ACCESS_MODE, 1),
                (t::IDENTITY_MODE_FRAGMENT_SIZE, 0),
            ],
        )?;
    }
    {
        use fh::vm_l2_cntl2 as t;
        device.hub_update(
            hub,
            rh::VM_L2_CNTL2,
            [(t::INVALIDATE_ALL_L1_TLBS, 1), (t::INVALIDATE_L2_CACHE, 1)],
        )?;
    }
    {
        use fh::vm_l2_cntl3 as t;
        device.hub_fields(
            hub,
            rh::VM_L2_CNTL3,
            [
                (t::BANK_SELECT, 9),
                (t::L2_CACHE_BIGK_FRAGMENT_SIZE, 6),
                (t::L2_CACHE_4K_ASSOCIATIVITY, 1),
                (t::L2_CACHE_BIGK_ASSOCIATIVITY, 1),
            ],
        )?;
    }
    device.hub_fields(hub, rh::VM_L2_CNTL4, [(fh::vm_l2_cntl4::L2_CACHE_4K_PARTITION_COUNT, 1)])?;
    device.hub_fields(hub, rh::VM_L2_CNTL5, [(fh::vm_l2_cntl5::WALKER_PRIORITY_CLIENT_ID, 0x1ff)])?;

    let root = device.layout.root_page_table.start;
    enable_context(device, hub, 0, root)?;

    // The identity aperture is off: its bottom lies above its top.
    device.hub_pair(
        hub,
        rh::VM_L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR_LO32,
        rh::VM_L2_CONTEXT1_IDENTITY_APERTURE_LOW_ADDR_HI32,
        0xf_ffff_ffff,
    )?;
    device.hub_pair(
        hub,
        rh::VM_L2_CONTEXT1_IDENTITY_APERTURE_HIGH_ADDR_LO32,
        rh::VM_L2_CONTEXT1_IDENTITY_APERTURE_HIGH_ADDR_HI32,
        0,
    )?;
    device.hub_pair(
        hub,
        rh::VM_L2_CONTEXT_IDENTITY_PHYSICAL_OFFSET_LO32,
        rh::VM_L2_CONTEXT_IDENTITY_PHYSICAL_OFFSET_HI32,
        0,
    )?;

    // Every engine may invalidate every page.
    let lo = ra::hub::VM_INVALIDATE_ENG_ADDR_RANGE_LO32[hub];
    let hi = ra::hub::VM_INVALIDATE_ENG_ADDR_RANGE_HI32[hub];
    for (&lo, &hi) in lo.iter().zip(&hi).take(ENGINES) {
        device.write_pair(lo, hi, 0x1f_ffff_ffff)?;
    }
    device.hub_on(hub, true);
    Ok(())
}

/// Switches a VM context of a hub on, with the root page table at a VRAM offset.
pub fn enable_context<B: Bus>(device: &mut Device<B>, hub: Hub, vmid: u8, root: u64) -> Result<(), Error> {
    use f::hub::vm_context_cntl as t;
    use ra::hub as rah;
    let nth = |pair: PerHub<[Reg; 16]>| {
        pair[hub].get(usize::from(vmid)).copied().ok_or(Error::BadValue {
            what: "a VMID",
            value: vmid.into(),
            need: "at most 15",
        })
    };
    let start =
        (nth(rah::VM_CONTEXT_PAGE_TABLE_START_ADDR_LO32)?, nth(rah::VM_CONTEXT_PAGE_TABLE_START_ADDR_HI32)?);
    let end =
        (nth(rah::VM_CONTEXT_PAGE_TABLE_END_ADDR_LO32)?, nth(rah::VM_CONTEXT_PAGE_TABLE_END_ADDR_HI32)?);
    let base =
        (nth(rah::VM_CONTEXT_PAGE_TABLE_BASE_ADDR_LO32)?, nth(rah::VM_CONTEXT_PAGE_TABLE_BASE_ADDR_HI32)?);
    device.write_pair(start.0, start.1, VM_START >> 12)?;
    device.write_pair(end.0, end.1, VM_END >> 12)?;
    // Bit 0 marks the address as valid.
    device.write_pair(base.0, base.1, root | 1)?;
    let cntl = nth(rah::VM_CONTEXT_CNTL)?;
    let fields = [
        (t::ENABLE_CONTEXT, 1),
        (t::PAGE_TABLE_DEPTH, TABLE_DEPTH),
        (t::RANGE_PROTECTION_FAULT_ENABLE_INTERRUPT, 1),
        (t::RANGE_PROTECTION_FAULT_ENABLE_DEFAULT, 1),
        (t::DUMMY_PAGE_PROTECTION_FAULT_ENABLE_INTERRUPT, 1),
        (t::DUMMY_PAGE_PROTECTION_FAULT_ENABLE_DEFAULT, 1),
        (t::PDE0_PROTECTION_FAULT_ENABLE_INTERRUPT, 1),
        (t::PDE0_PROTECTION_FAULT_ENABLE_DEFAULT, 1),
        (t::VALID_PROTECTION_FAULT_ENABLE_INTERRUPT, 1),
        (t::VALID_PROTECTION_FAULT_ENABLE_DEFAULT, 1),
        (t::READ_PROTECTION_FAULT_ENABLE_INTERRUPT, 1),
        (t::READ_PROTECTION_FAULT_ENABLE_DEFAULT, 1),
        (t::WRITE_PROTECTION_FAULT_ENABLE_INTERRUPT, 1),
        (t::WRITE_PROTECTION_FAULT_ENABLE_DEFAULT, 1),
        (t::EXECUTE_PROTECTION_FAULT_ENABLE_INTERRUPT, 1),
        (t::EXECUTE_PROTECTION_FAULT_ENABLE_DEFAULT, 1),
    ]
    .map(|(field, value)| (field[hub], value));
    let value = device.regs.merge(cntl, device.chip.vm_context_fixed, &fields)?;
    device.write(cntl, value)
}

/// Whether a hub's VM context 0 is switched on.
pub fn is_context_on<B: Bus>(device: &mut Device<B>, hub: Hub) -> Result<bool, Error> {
    let [cntl, ..] = ra::hub::VM_CONTEXT_CNTL[hub];
    let value = device.read(cntl)?;
    Ok(device.regs.get(value, f::hub::vm_context_cntl::ENABLE_CONTEXT[hub])? != 0)
}

/// Finds out which hubs translate, for a device that was booted before this program came to it.
pub fn attach<B: Bus>(device: &mut Device<B>) -> Result<(), Error> {
    for hub in [Hub::Mm, Hub::Gc] {
        let on = is_context_on(device, hub)?;
        device.hub_on(hub, on);
    }
    Ok(())
}

/// The raw fault status of a hub; 0 if no fault is latched.
pub fn fault_status<B: Bus>(device: &mut Device<B>, hub: Hub) -> Result<u32, Error> {
    device.read(r::hub::VM_L2_PROTECTION_FAULT_STATUS[hub])
}

/// Makes page table changes take effect: what the CPU wrote reaches memory, and the hub forgets
/// what it knew of a VMID.
///
/// A hub that is off has nothing to forget, so that only the HDP is flushed.
pub async fn flush_tlb<B: Bus>(cx: &mut Cx<'_, B>, hub: Hub, vmid: u8) -> Result<(), Error> {
    cx.flush_hdp()?;
    invalidate(cx, hub, vmid).await
}

/// [`flush_tlb`] for both hubs, with one HDP flush.
pub async fn flush_tlbs<B: Bus>(cx: &mut Cx<'_, B>, vmid: u8) -> Result<(), Error> {
    cx.flush_hdp()?;
    invalidate(cx, Hub::Gc, vmid).await?;
    invalidate(cx, Hub::Mm, vmid).await
}

async fn invalidate<B: Bus>(cx: &mut Cx<'_, B>, hub: Hub, vmid: u8) -> Result<(), Error> {
    let outer = cx.attribute(Stage::Tlb);
    let result = request(cx, hub, vmid).await;
    cx.attribute(outer);
    result
}

async fn request<B: Bus>(cx: &mut Cx<'_, B>, hub: Hub, vmid: u8) -> Result<(), Error> {
    use f::hub::vm_invalidate_eng_req as t;
    if !cx.is_hub_on(hub) {
        return Ok(());
    }
    if vmid > 15 {
        return Err(Error::BadValue { what: "a VMID", value: vmid.into(), need: "at most 15" });
    }
    let (sem, req, ack) = (
        ra::hub::VM_INVALIDATE_ENG_SEM[hub][ENGINE],
        ra::hub::VM_INVALIDATE_ENG_REQ[hub][ENGINE],
        ra::hub::VM_INVALIDATE_ENG_ACK[hub][ENGINE],
    );
    // A power-gated MMHUB may lose the acknowledge; the semaphore, taken by reading 1, keeps it on
    // (gmc_v11_0_flush_gpu_tlb).
    if hub == Hub::Mm {
        match cx.wait_reg(sem, 1, Until::Equal(1), SEMAPHORE_US).await {
            // Nobody holds it for so long but a process that died in between: it is taken away.
            Err(Error::Timeout(_)) => {
                cx.write(sem, 0)?;
                cx.wait_reg(sem, 1, Until::Equal(1), INVALIDATE_US).await?;
            }
            other => {
                other?;
            }
        }
    }
    let bit = 1u32 << vmid;
    let fields = [
        (t::PER_VMID_INVALIDATE_REQ, bit),
        (t::FLUSH_TYPE, 0),
        (t::INVALIDATE_L2_PTES, 1),
        (t::INVALIDATE_L2_PDE0, 1),
        (t::INVALIDATE_L2_PDE1, 1),
        (t::INVALIDATE_L2_PDE2, 1),
        (t::INVALIDATE_L1_PTES, 1),
        (t::CLEAR_PROTECTION_FAULT_STATUS_ADDR, 0),
    ]
    .map(|(field, value)| (field[hub], value));
    cx.write_fields(req, &fields)?;
    let done = cx.wait_reg(ack, bit, Until::Equal(bit), INVALIDATE_US).await;
    if hub == Hub::Mm {
        // Also after a missed deadline: held, it would end every later invalidation too.
        cx.write(sem, 0)?;
    }
    done?;
    if hub == Hub::Mm {
        // The private TLBs of multimedia blocks need a request of their own; reading it back makes
        // sure that it has arrived.
        cx.update(
            r::MMVM_L2_BANK_SELECT_RESERVED_CID2,
            &[(f::mmvm_l2_bank_select_reserved_cid2::RESERVED_CACHE_PRIVATE_INVALIDATION, 1)],
        )?;
        cx.read(r::MMVM_L2_BANK_SELECT_RESERVED_CID2)?;
    }
    Ok(())
}

/// Clears a latched fault.
pub fn clear_fault<B: Bus>(device: &mut Device<B>, hub: Hub) -> Result<(), Error> {
    use f::hub::vm_l2_protection_fault_cntl as c;
    // The bit reacts to an edge (`gmc_v11_0_process_interrupt` sets it; it stays where it is put).
    for bit in [1, 0] {
        device.hub_update(
            hub,
            r::hub::VM_L2_PROTECTION_FAULT_CNTL,
            [(c::CLEAR_PROTECTION_FAULT_STATUS_ADDR, bit)],
        )?;
    }
    Ok(())
}

/// [`clear_fault`] for both hubs.
pub fn clear_faults<B: Bus>(device: &mut Device<B>) -> Result<(), Error> {
    [Hub::Mm, Hub::Gc].into_iter().try_for_each(|hub| clear_fault(device, hub))
}

/// The fault that a hub has latched, if any. It is cleared, so that the next one can be seen.
pub fn take_fault<B: Bus>(device: &mut Device<B>, hub: Hub) -> Result<Option<VmFault>, Error> {
    let hi = r::hub::VM_L2_PROTECTION_FAULT_ADDR_HI32[hub];
    let lo = r::hub::VM_L2_PROTECTION_FAULT_ADDR_LO32[hub];
    let page = device.read_pair(lo, hi)?;
    let status = fault_status(device, hub)?;
    if status == 0 {
        return Ok(None);
    }
    clear_fault(device, hub)?;
    Ok(Some(fault::decode(&device.regs, hub, status, page)?))
}
