//! How large what a runtime allocates is, by the way to the device.

use crate::queue::pool::{KERNARG_POOL, KERNARG_POOL_USB, SIGNAL_POOL, SIGNAL_POOL_USB};
use crate::queue::ring::{COMPUTE_RING_USB, RING_SIZE, SDMA_RING_USB};

/// What one entry of a [`crate::mm::pte::Level::Pdb0`] maps.
const HUGE_PAGE: u64 = 2 << 20;

/// Sizes of what a [`Runtime`](super::Runtime) allocates, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Ring of the compute queue.
    pub compute_ring: u64,
    /// Ring of the SDMA queue.
    pub sdma_ring: u64,
    /// Kernel arguments.
    pub kernargs: u64,
    /// Staging memory of the host, used in two halves.
    pub staging: u64,
    /// Length of the staging memory's mapping, if it is more than the memory itself: over USB one huge
    /// page takes an entry where its 4 KiB pages would take one each.
    pub staging_span: u64,
    /// How much of the staging memory the host can read, from its start on.
    pub readable: u64,
    /// The page of host memory that the host gives after the one for signals has a bell at this byte: a dword
    /// that the device writes when it has filled staging memory, so that the transport carries that.
    pub bell: Option<u64>,
    /// Signals.
    pub signals: u64,
    /// Puts signals into a page of the host's memory that begins with so many bytes of somebody else's.
    pub host_page: Option<u64>,
    /// Puts the SDMA ring and the queues' pointers there, too: for a bridge that writes a byte of that page
    /// with less effort than a dword of VRAM.
    pub queues_in_page: bool,
    /// How long a submission may take before a wait gives up, in microseconds.
    pub timeout_us: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes::DEFAULT
    }
}

impl Sizes {
    /// For a GPU on the host's own bus.
    pub const DEFAULT: Sizes = Sizes {
        compute_ring: RING_SIZE,
        sdma_ring: RING_SIZE,
        kernargs: KERNARG_POOL,
        staging: 4 << 20,
        staging_span: 0,
        readable: 4 << 20,
        bell: None,
        signals: SIGNAL_POOL,
        host_page: None,
        queues_in_page: false,
        timeout_us: 30_000_000,
    };

    /// For a GPU behind a USB bridge, whose own memory is all there is on the host's side: staging as
    /// large as its block memory, of which the bridge lets the host read the start, mapped as a huge page,
    /// and the page of its own queues from `first` on, which takes in those of the GPU if `queues_in_page`.
    pub fn usb(staging: u64, readable: u64, first: u64, queues_in_page: bool) -> Self {
        Sizes {
            compute_ring: COMPUTE_RING_USB,
            sdma_ring: SDMA_RING_USB,
            kernargs: KERNARG_POOL_USB,
            staging,
            staging_span: HUGE_PAGE,
            readable,
            signals: SIGNAL_POOL_USB,
            host_page: Some(first),
            queues_in_page,
            ..Sizes::DEFAULT
        }
    }
}
