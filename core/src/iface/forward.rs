//! A borrowed interface is one too.

use super::*;

impl<T: Iface + ?Sized> Iface for &mut T {
    fn properties(&self) -> &Properties {
        (**self).properties()
    }
    fn versions(&self) -> IpVersions {
        (**self).versions()
    }
    fn regs(&self) -> &RegFile {
        (**self).regs()
    }
    fn notify(&self) -> Notify {
        (**self).notify()
    }
    fn arm_read(&mut self, buffer: &Buffer, len: u64) -> Result<bool, IfaceError> {
        (**self).arm_read(buffer, len)
    }
    fn align_submissions(&self) -> bool {
        (**self).align_submissions()
    }
    fn alloc(&mut self, size: u64, flags: AllocFlags) -> Result<Buffer, IfaceError> {
        (**self).alloc(size, flags)
    }
    fn free(&mut self, buffer: Buffer) -> Result<(), IfaceError> {
        (**self).free(buffer)
    }
    fn map_peer(&mut self, buffer: &Buffer, segments: &[crate::bus::Segment]) -> Result<(), IfaceError> {
        (**self).map_peer(buffer, segments)
    }
    fn unmap_peer(&mut self, buffer: &Buffer) -> Result<(), IfaceError> {
        (**self).unmap_peer(buffer)
    }
    fn peer_segment(&mut self, buffer: &Buffer) -> Result<crate::bus::Segment, IfaceError> {
        (**self).peer_segment(buffer)
    }
    fn read(&mut self, buffer: &Buffer, offset: u64, out: &mut [u8]) -> Result<(), IfaceError> {
        (**self).read(buffer, offset, out)
    }
    fn write(&mut self, buffer: &Buffer, offset: u64, data: &[u8]) -> Result<(), IfaceError> {
        (**self).write(buffer, offset, data)
    }
    fn read32(&mut self, buffer: &Buffer, offset: u64) -> Result<u32, IfaceError> {
        (**self).read32(buffer, offset)
    }
    fn read64(&mut self, buffer: &Buffer, offset: u64) -> Result<u64, IfaceError> {
        (**self).read64(buffer, offset)
    }
    fn write64(&mut self, buffer: &Buffer, offset: u64, value: u64) -> Result<(), IfaceError> {
        (**self).write64(buffer, offset, value)
    }
    fn write_dwords(&mut self, buffer: &Buffer, offset: u64, dwords: &[u32]) -> Result<(), IfaceError> {
        (**self).write_dwords(buffer, offset, dwords)
    }
    fn create_queue(&mut self, request: &QueueRequest) -> Result<HwQueue, IfaceError> {
        (**self).create_queue(request)
    }
    fn destroy_queue(&mut self, queue: &HwQueue) -> Result<(), IfaceError> {
        (**self).destroy_queue(queue)
    }
    fn fence(&mut self) -> Result<(), IfaceError> {
        (**self).fence()
    }
    fn flush_hdp(&mut self) -> Result<(), IfaceError> {
        (**self).flush_hdp()
    }
    fn ring_doorbell(&mut self, queue: &HwQueue, value: u64) -> Result<(), IfaceError> {
        (**self).ring_doorbell(queue, value)
    }
    fn now_us(&self) -> u64 {
        (**self).now_us()
    }
    fn take_error(&mut self) -> Result<Option<crate::fault::Fault>, IfaceError> {
        (**self).take_error()
    }
    fn queue_state(&mut self, queue: &HwQueue) -> Result<Option<crate::hang::QueueState>, IfaceError> {
        (**self).queue_state(queue)
    }
    fn restart_queues(&mut self) -> Result<crate::boot::Rung, IfaceError> {
        (**self).restart_queues()
    }
    fn wait(&mut self, timeout_us: u64) -> Result<bool, IfaceError> {
        (**self).wait(timeout_us)
    }
}
