//! What every decorator passes on unchanged.

/// `Dma` as the inner bus has it.
macro_rules! delegate_dma {
    () => {
        fn dma_alloc(&mut self, len: u64) -> Result<DmaHandle, BusError> {
            self.inner.dma_alloc(len)
        }
        fn dma_pin(&mut self, cpu_addr: usize, len: u64) -> Result<DmaHandle, BusError> {
            self.inner.dma_pin(cpu_addr, len)
        }
        fn dma_free(&mut self, handle: DmaHandle) -> Result<(), BusError> {
            self.inner.dma_free(handle)
        }
        delegate_dma!(no_alloc);
    };
    (no_alloc) => {
        fn dma_len(&self, handle: DmaHandle) -> Result<u64, BusError> {
            self.inner.dma_len(handle)
        }
        fn dma_segment(&self, handle: DmaHandle, offset: u64) -> Result<Segment, BusError> {
            self.inner.dma_segment(handle, offset)
        }
        fn dma_read(&mut self, handle: DmaHandle, offset: u64, buf: &mut [u8]) -> Result<(), BusError> {
            self.inner.dma_read(handle, offset, buf)
        }
        fn dma_write(&mut self, handle: DmaHandle, offset: u64, data: &[u8]) -> Result<(), BusError> {
            self.inner.dma_write(handle, offset, data)
        }
        fn sync_for_device(&mut self, handle: DmaHandle, offset: u64, len: u64) -> Result<(), BusError> {
            self.inner.sync_for_device(handle, offset, len)
        }
        fn sync_for_cpu(&mut self, handle: DmaHandle, offset: u64, len: u64) -> Result<(), BusError> {
            self.inner.sync_for_cpu(handle, offset, len)
        }
        fn peer_vram_base(&self) -> Option<u64> {
            self.inner.peer_vram_base()
        }
        fn peer_vram_len(&self) -> u64 {
            self.inner.peer_vram_len()
        }
    };
}
