//! Memory that an interface gives to rings, and a record of what was done to it.

use amdev_core::iface::{
    AllocFlags, Buffer, BufferHandle, HwQueue, Iface, IfaceError, IpVersions, Properties, QueueKind,
    QueueRequest,
};
use amdev_core::reg::RegFile;

/// What an interface was asked to do, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Bytes of a ring were written.
    Ring,
    /// The memory of a write pointer was written.
    WritePointer(u64),
    /// The CPU's writes were ordered.
    Fence,
    /// The HDP was flushed.
    Hdp,
    /// A doorbell was rung.
    Doorbell(u64),
}

/// A ring and its pointers in ordinary memory, with a clock that only moves when one waits.
#[derive(Debug)]
pub struct Memory {
    /// Contents of the ring.
    pub ring: Vec<u8>,
    pointers: Vec<u8>,
    /// What was done.
    pub events: Vec<Event>,
    /// Submissions start at the ring's start rather than being split.
    pub align: bool,
    /// Bytes by which the read pointer moves on with each wait.
    pub consume: u64,
    now: u64,
    regs: RegFile,
    props: Properties,
}

const RING: BufferHandle = BufferHandle(1);
const POINTERS: BufferHandle = BufferHandle(2);
/// Where pointers stand: a write pointer for all, then a read pointer for each queue.
const WRITE: u32 = 0;

impl Memory {
    /// A ring of `size` bytes full of `fill`; everything before `put` (in the ring's unit) is read.
    pub fn new(size: u64, fill: u32, put: u64) -> Memory {
        let mut pointers = vec![0; 0x100];
        for slot in pointers.chunks_exact_mut(8).skip(1) {
            slot.copy_from_slice(&put.to_le_bytes());
        }
        Memory {
            ring: (0..size / 4).flat_map(|_| fill.to_le_bytes()).collect(),
            pointers,
            events: Vec::new(),
            align: false,
            consume: 0,
            now: 0,
            regs: RegFile::new(),
            props: Properties::default(),
        }
    }

    /// Hardware queues that serve the ring at `va`.
    pub fn queues(&self, kind: QueueKind, va: u64, count: u32) -> Vec<HwQueue> {
        let size = self.ring.len() as u64;
        let ring = Buffer { va, size, handle: RING, ..Buffer::default() };
        let pointers = Buffer { va: 0x2000_0000_0000, size: 0x100, handle: POINTERS, ..Buffer::default() };
        let queue = |id| HwQueue {
            kind,
            id,
            ring,
            pointers,
            read_ptr: 8 * (id + 1),
            write_ptr: WRITE,
            doorbell: u64::from(id) * 8,
        };
        (0..count).map(queue).collect()
    }

    /// Dwords of the ring.
    pub fn dwords(&self) -> Vec<u32> {
        self.ring.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect()
    }

    /// Where the `queue`-th reader is.
    pub fn set_read(&mut self, queue: usize, value: u64) {
        self.pointers[8 * (queue + 1)..][..8].copy_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, buffer: &Buffer) -> &mut Vec<u8> {
        if buffer.handle == RING { &mut self.ring } else { &mut self.pointers }
    }
}

impl Iface for Memory {
    fn properties(&self) -> &Properties {
        &self.props
    }
    fn versions(&self) -> IpVersions {
        IpVersions::default()
    }
    fn regs(&self) -> &RegFile {
        &self.regs
    }
    fn align_submissions(&self) -> bool {
        self.align
    }
    fn alloc(&mut self, _: u64, _: AllocFlags) -> Result<Buffer, IfaceError> {
        Err(IfaceError::Unsupported("allocate"))
    }
    fn free(&mut self, _: Buffer) -> Result<(), IfaceError> {
        Err(IfaceError::Unsupported("free"))
    }
    fn read(&mut self, buffer: &Buffer, offset: u64, out: &mut [u8]) -> Result<(), IfaceError> {
        buffer.check(offset, out.len() as u64)?;
        let at = (buffer.base + offset) as usize;
        out.copy_from_slice(&self.bytes(buffer)[at..at + out.len()]);
        Ok(())
    }
    fn write(&mut self, buffer: &Buffer, offset: u64, data: &[u8]) -> Result<(), IfaceError> {
        buffer.check(offset, data.len() as u64)?;
        let at = (buffer.base + offset) as usize;
        self.bytes(buffer)[at..at + data.len()].copy_from_slice(data);
        self.events.push(match (buffer.handle, data.try_into()) {
            (RING, _) => Event::Ring,
            (_, Ok(bytes)) => Event::WritePointer(u64::from_le_bytes(bytes)),
            (_, Err(_)) => return Err(IfaceError::Unsupported("write a pointer in parts")),
        });
        Ok(())
    }
    fn create_queue(&mut self, _: &QueueRequest) -> Result<HwQueue, IfaceError> {
        Err(IfaceError::Unsupported("create queues"))
    }
    fn destroy_queue(&mut self, _: &HwQueue) -> Result<(), IfaceError> {
        Ok(())
    }
    fn fence(&mut self) -> Result<(), IfaceError> {
        self.events.push(Event::Fence);
        Ok(())
    }
    fn flush_hdp(&mut self) -> Result<(), IfaceError> {
        self.events.push(Event::Hdp);
        Ok(())
    }
    fn ring_doorbell(&mut self, _: &HwQueue, value: u64) -> Result<(), IfaceError> {
        self.events.push(Event::Doorbell(value));
        Ok(())
    }
    fn now_us(&self) -> u64 {
        self.now
    }
    fn wait(&mut self, timeout_us: u64) -> Result<bool, IfaceError> {
        self.now += timeout_us.max(1);
        for slot in self.pointers.chunks_exact_mut(8).skip(1) {
            let read = u64::from_le_bytes((&*slot).try_into().unwrap()) + self.consume;
            slot.copy_from_slice(&read.to_le_bytes());
        }
        Ok(false)
    }
}
