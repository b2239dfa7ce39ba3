//! `-vv` and `-vvv`: what is done to a device, on standard error.

use amdev_core::bus::trace::Event;
use tracing::{Level, debug, enabled, trace};

/// Says what is done as far as somebody asked: waits, doorbells and memory with `-vv`, each access
/// with `-vvv`.
pub(super) struct Log {
    waits: bool,
    accesses: bool,
}

impl Default for Log {
    fn default() -> Self {
        Log { waits: enabled!(Level::DEBUG), accesses: enabled!(Level::TRACE) }
    }
}

impl Log {
    /// Whether anything is said.
    pub(super) fn is_on(&self) -> bool {
        self.waits
    }

    /// Says one event; `name` gives names to dword addresses.
    pub(super) fn event(&self, event: &Event<'_>, name: impl Fn(u32) -> String) {
        if self.waits {
            Self::wait(event, &name);
        }
        if self.accesses {
            Self::access(event, &name);
        }
    }

    fn wait(event: &Event<'_>, name: &impl Fn(u32) -> String) {
        match *event {
            Event::RegRead { addr, indirect, n, first, value, waited_us } if n > 1 => {
                let name = name(indirect.unwrap_or(addr));
                debug!(
                    "waited {waited_us} us for {name}: {n} reads, {first:#x} at first, {value:#x} at last"
                );
            }
            Event::Doorbell { offset, data } => {
                let value = data.iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b));
                debug!("doorbell {offset:#x} = {value:#x}");
            }
            Event::Sleep { us } => debug!("waited {us} us"),
            Event::WaitInterrupt { came: true } => debug!("an interrupt came"),
            Event::WaitInterrupt { came: false } => debug!("waited for an interrupt, none came"),
            Event::DmaAlloc { handle, len } => {
                debug!("{len:#x} bytes of host memory for the device: {handle}")
            }
            Event::DmaFree { handle } => debug!("host memory {handle} given back"),
            Event::Failed { error } => debug!("an access failed: {error}"),
            Event::Mark { name } => debug!("{name}"),
            _ => {}
        }
    }

    fn access(event: &Event<'_>, name: &impl Fn(u32) -> String) {
        match *event {
            Event::RegRead { addr, indirect, n: 1, value, .. } => {
                trace!("read {} = {value:#010x}", name(indirect.unwrap_or(addr)));
            }
            Event::RegWrite { addr, indirect: Some(target), value } => {
                trace!("write {} = {value:#010x} (for {})", name(addr), name(target));
            }
            Event::RegWrite { addr, value, .. } => trace!("write {} = {value:#010x}", name(addr)),
            Event::VramRead { addr, data } => trace!("read VRAM {addr:#x}+{:#x}", data.len()),
            Event::VramWrite { addr, data } => trace!("write VRAM {addr:#x}+{:#x}", data.len()),
            Event::VramZero { addr, len } => trace!("zero VRAM {addr:#x}+{len:#x}"),
            Event::Fence => trace!("fence"),
            _ => {}
        }
    }
}
