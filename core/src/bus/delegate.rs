//! What every decorator passes on unchanged, for decorators here and in hosts. The bus inside is
//! their field `inner`.

/// The windows of [`Mmio`](crate::bus::Mmio) as the inner bus has them: all of it but flush and fence.
#[macro_export]
macro_rules! delegate_windows {
    () => {
        fn window_len(&self, window: $crate::bus::Window) -> u64 {
            self.inner.window_len(window)
        }
        fn read32(&mut self, window: $crate::bus::Window, offset: u64) -> Result<u32, $crate::bus::BusError> {
            self.inner.read32(window, offset)
        }
        fn write32(
            &mut self,
            window: $crate::bus::Window,
            offset: u64,
            value: u32,
        ) -> Result<(), $crate::bus::BusError> {
            self.inner.write32(window, offset, value)
        }
        fn read64(&mut self, window: $crate::bus::Window, offset: u64) -> Result<u64, $crate::bus::BusError> {
            self.inner.read64(window, offset)
        }
        fn write64(
            &mut self,
            window: $crate::bus::Window,
            offset: u64,
            value: u64,
        ) -> Result<(), $crate::bus::BusError> {
            self.inner.write64(window, offset, value)
        }
        fn read_bulk(
            &mut self,
            window: $crate::bus::Window,
            offset: u64,
            buf: &mut [u8],
        ) -> Result<(), $crate::bus::BusError> {
            self.inner.read_bulk(window, offset, buf)
        }
        fn write_bulk(
            &mut self,
            window: $crate::bus::Window,
            offset: u64,
            data: &[u8],
        ) -> Result<(), $crate::bus::BusError> {
            self.inner.write_bulk(window, offset, data)
        }
        fn zero(
            &mut self,
            window: $crate::bus::Window,
            offset: u64,
            len: u64,
        ) -> Result<(), $crate::bus::BusError> {
            self.inner.zero(window, offset, len)
        }
        fn read_group(
            &mut self,
            window: $crate::bus::Window,
            offsets: &[u64],
            out: &mut [u32],
        ) -> Result<(), $crate::bus::BusError> {
            self.inner.read_group(window, offsets, out)
        }
    };
}

/// [`Dma`](crate::bus::Dma) as the inner bus has it; `no_alloc` leaves out what makes and frees memory.
#[macro_export]
macro_rules! delegate_dma {
    () => {
        fn dma_alloc(&mut self, len: u64) -> Result<$crate::bus::DmaHandle, $crate::bus::BusError> {
            self.inner.dma_alloc(len)
        }
        fn dma_pin(
            &mut self,
            cpu_addr: usize,
            len: u64,
        ) -> Result<$crate::bus::DmaHandle, $crate::bus::BusError> {
            self.inner.dma_pin(cpu_addr, len)
        }
        fn dma_free(&mut self, handle: $crate::bus::DmaHandle) -> Result<(), $crate::bus::BusError> {
            self.inner.dma_free(handle)
        }
        $crate::delegate_dma!(no_alloc);
    };
    (no_alloc) => {
        fn dma_len(&self, handle: $crate::bus::DmaHandle) -> Result<u64, $crate::bus::BusError> {
            self.inner.dma_len(handle)
        }
        fn dma_segment(
            &self,
            handle: $crate::bus::DmaHandle,
            offset: u64,
        ) -> Result<$crate::bus::Segment, $crate::bus::BusError> {
            self.inner.dma_segment(handle, offset)
        }
        fn dma_read(
            &mut self,
            handle: $crate::bus::DmaHandle,
            offset: u64,
            buf: &mut [u8],
        ) -> Result<(), $crate::bus::BusError> {
            self.inner.dma_read(handle, offset, buf)
        }
        fn dma_write(
            &mut self,
            handle: $crate::bus::DmaHandle,
            offset: u64,
            data: &[u8],
        ) -> Result<(), $crate::bus::BusError> {
            self.inner.dma_write(handle, offset, data)
        }
        fn sync_for_device(
            &mut self,
            handle: $crate::bus::DmaHandle,
            offset: u64,
            len: u64,
        ) -> Result<(), $crate::bus::BusError> {
            self.inner.sync_for_device(handle, offset, len)
        }
        fn sync_for_cpu(
            &mut self,
            handle: $crate::bus::DmaHandle,
            offset: u64,
            len: u64,
        ) -> Result<(), $crate::bus::BusError> {
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

/// The resets of [`Bus`](crate::bus::Bus) as the inner bus has them.
#[macro_export]
macro_rules! delegate_resets {
    () => {
        fn keep_whole(&mut self, on: bool) {
            self.inner.keep_whole(on);
        }
        fn reset_bus(&mut self) -> Result<(), $crate::bus::BusError> {
            self.inner.reset_bus()
        }
        fn before_reset(&mut self) -> Result<(), $crate::bus::BusError> {
            self.inner.before_reset()
        }
        fn after_reset(&mut self) -> Result<(), $crate::bus::BusError> {
            self.inner.after_reset()
        }
    };
}

/// What [`Bus`](crate::bus::Bus) tells of the transport, as the inner bus has it.
#[macro_export]
macro_rules! delegate_traits {
    () => {
        fn is_slow(&self) -> bool {
            self.inner.is_slow()
        }
        fn cacheable(&mut self, window: $crate::bus::Window, offset: u64, len: u64) {
            self.inner.cacheable(window, offset, len);
        }
        fn scrubbed(&mut self, window: $crate::bus::Window, offset: u64, len: u64) {
            self.inner.scrubbed(window, offset, len);
        }
        fn uncacheable(&mut self, window: $crate::bus::Window, offset: u64, len: u64) {
            self.inner.uncacheable(window, offset, len);
        }
        fn dma_cacheable(&mut self, handle: $crate::bus::DmaHandle, offset: u64, len: u64) {
            self.inner.dma_cacheable(handle, offset, len);
        }
        fn dma_arm(
            &mut self,
            handle: $crate::bus::DmaHandle,
            offset: u64,
            len: u64,
        ) -> Result<bool, $crate::bus::BusError> {
            self.inner.dma_arm(handle, offset, len)
        }
    };
}
