//! Hardware queues of a booted GPU: their memory, set up and taken back.

use super::gpu::{Gpu, Place, READ_PTR, Slot, WRITE_PTR};
use crate::bus::{Bus, Window};
use crate::iface::{AllocFlags, Buffer, IfaceError, QueueKind, QueueRequest};
use crate::ip::{gfx, sdma, soc};
use crate::queue::mqd::{ComputeQueue, Mqd};

/// Index of the first compute doorbell, in units of 8 bytes (`AMDGPU_NAVI10_DOORBELL_MEC_RING0`).
const DOORBELL_MEC_RING0: u32 = 3;
/// Compute queues with doorbells of their own (`MEC_RING0` to `MEC_RING7`).
const MAX_COMPUTE: u8 = 8;

impl<B: Bus> Gpu<'_, B> {
    pub(super) fn create_compute(&mut self, request: &QueueRequest) -> Result<Slot, IfaceError> {
        let kind = QueueKind::Compute;
        let bad = |why| IfaceError::BadQueue { kind, why };
        let eop = request.eop.ok_or(bad("a compute queue needs end-of-pipe memory"))?;
        // Only pipe 0 of the MEC is started ([`gfx::init`]).
        let pipe = 0;
        let used = self.probe.device.queues.compute;
        let index = (0..self.probe.device.chip.mec_queues.min(MAX_COMPUTE))
            .find(|index| used & 1u32.checked_shl((*index).into()).unwrap_or(0) == 0)
            .ok_or(IfaceError::NoQueue(kind))?;
        let mqd = self.alloc_mqd()?;
        let doorbell = DOORBELL_MEC_RING0 + u32::from(index);
        if let Err(e) = self.start_compute(request, (pipe, index), (mqd, eop)) {
            self.stop_compute(pipe, index, mqd);
            return Err(e);
        }
        let id = u32::from(pipe) << 8 | u32::from(index);
        Ok(Slot { queue: Self::hw_queue(request, id, doorbell), mqd: Some(mqd), eop: Some(eop) })
    }

    fn start_compute(
        &mut self,
        request: &QueueRequest,
        (pipe, index): (u8, u8),
        (mqd, eop): (Buffer, Buffer),
    ) -> Result<(), IfaceError> {
        let Place::Vram(mqd_at) = Place::of(mqd.handle) else {
            let kind = QueueKind::Compute;
            return Err(IfaceError::BadQueue { kind, why: "its MQD is not contiguous" });
        };
        let at = (mqd.va, mqd_at);
        self.activate_compute(&request.ring, &request.pointers, &eop, at, pipe, index)
    }

    /// Takes back what is left of a compute queue that could not be set up. What comes out is not the
    /// news: the caller has the error that led here.
    fn stop_compute(&mut self, pipe: u8, index: u8, mqd: Buffer) {
        let device = &mut self.probe.device;
        // An error may come after the queue was switched on; it is not given the memory of others then.
        let bit = 1u32.checked_shl(u32::from(pipe) * 8 + u32::from(index)).unwrap_or(0);
        let is_off = device.queues.compute & bit == 0
            || device.run(async |cx| gfx::deactivate(cx, pipe, index).await).is_ok();
        if is_off {
            let _ = self.free_mqd(&mqd);
        }
    }

    /// Memory for an MQD, which is mostly zeros.
    fn alloc_mqd(&mut self) -> Result<Buffer, IfaceError> {
        let flags = AllocFlags::UNCACHED | AllocFlags::CPU_ACCESS;
        let (a, page) = self.vm.valloc_clean(&mut self.probe.device, Self::map_flags(flags))?;
        Ok(Buffer { va: a.va, size: a.size, handle: Place::Vram(page).handle(), base: 0, flags })
    }

    pub(super) fn free_mqd(&mut self, mqd: &Buffer) -> Result<(), IfaceError> {
        let Place::Vram(page) = Place::of(mqd.handle) else {
            return Err(IfaceError::NotAllocated { va: mqd.va });
        };
        Ok(self.vm.vfree_clean(&mut self.probe.device, mqd.va, page)?)
    }

    /// Loads a compute queue into the hardware; `mqd` is the address and the VRAM offset of its
    /// description.
    pub(super) fn activate_compute(
        &mut self,
        ring: &Buffer,
        pointers: &Buffer,
        eop: &Buffer,
        mqd: (u64, u64),
        pipe: u8,
        index: u8,
    ) -> Result<(), IfaceError> {
        let bad = |why| IfaceError::BadQueue { kind: QueueKind::Compute, why };
        let len = u32::try_from(ring.size).map_err(|_| bad("its ring is larger than 4 GiB"))?;
        let eop_len = u32::try_from(eop.size).map_err(|_| bad("its EOP memory is larger than 4 GiB"))?;
        let queue = ComputeQueue {
            mqd: mqd.0,
            ring: ring.va,
            len,
            rptr: pointers.va + u64::from(READ_PTR),
            wptr: pointers.va + u64::from(WRITE_PTR),
            eop: eop.va,
            eop_len,
            doorbell: DOORBELL_MEC_RING0 + u32::from(index),
        };
        let image = Mqd::compute(&self.probe.device.regs, &queue)?;
        Ok(gfx::activate(&mut self.probe.device, self.ready, pipe, index, &image, mqd.1)?)
    }

    pub(super) fn create_sdma(&mut self, request: &QueueRequest) -> Result<Slot, IfaceError> {
        let kind = QueueKind::Sdma;
        if self.probe.device.queues.sdma[0] & 1 != 0 {
            return Err(IfaceError::NoQueue(kind));
        }
        if let Err(e) = self.activate_sdma(&request.ring, &request.pointers) {
            // It may be on already, and its ring goes back to whom it belongs.
            let _ = self.probe.device.run(async |cx| sdma::deactivate(cx, 0, 0).await);
            return Err(e);
        }
        Ok(Slot { queue: Self::hw_queue(request, 0, soc::DOORBELL_SDMA0), mqd: None, eop: None })
    }

    pub(super) fn activate_sdma(&mut self, ring: &Buffer, pointers: &Buffer) -> Result<(), IfaceError> {
        let kind = QueueKind::Sdma;
        let len = u32::try_from(ring.size)
            .map_err(|_| IfaceError::BadQueue { kind, why: "its ring is larger than 4 GiB" })?;
        let q = sdma::SdmaQueue {
            ring: ring.va,
            len,
            rptr: pointers.va + u64::from(READ_PTR),
            wptr: pointers.va + u64::from(WRITE_PTR),
            doorbell: soc::DOORBELL_SDMA0,
        };
        sdma::unstop(&mut self.probe.device, 0)?;
        Ok(sdma::activate(&mut self.probe.device, self.ready, 0, 0, &q)?)
    }

    /// Memory that only this driver writes, while the queue lives.
    pub(super) fn let_cache(&mut self, buffer: &Buffer, offset: u64, len: u64) {
        let at = buffer.base.saturating_add(offset);
        let bus = &mut self.probe.device.bus;
        match Place::of(buffer.handle) {
            Place::Vram(pa) => bus.cacheable(Window::Vram, pa.saturating_add(at), len),
            // Until it is freed.
            Place::Host(dma) => bus.dma_cacheable(dma, at, len),
            Place::Scattered => {}
        }
    }

    /// Its memory goes to others.
    pub(super) fn end_cache(&mut self, buffer: &Buffer) {
        if let Place::Vram(pa) = Place::of(buffer.handle) {
            let at = pa.saturating_add(buffer.base);
            self.probe.device.bus.uncacheable(Window::Vram, at, buffer.size);
        }
    }
}
