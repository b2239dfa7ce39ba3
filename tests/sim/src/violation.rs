//! Misuse of the device, by name. A correct driver causes none.

use serde::Serialize;
use std::fmt;

/// What was done wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Rule {
    /// An engine needed VRAM that the CPU wrote and did not flush through the HDP.
    StaleHdp,
    /// A page table entry changed and no TLB invalidation on that hub followed before its use.
    StaleTlb,
    /// A register that this IP version does not have.
    UnknownRegister,
    /// A write to a read-only register.
    ReadOnlyRegister,
    /// A doorbell for a queue that is not active, or outside every doorbell range.
    DoorbellBeforeActivation,
    /// The write pointer overtook the read pointer.
    RingOverrun,
    /// Memory freed or overwritten while an engine still used it.
    MemoryInUse,
    /// Firmware, TMR or discovery memory overwritten.
    FirmwareOverwritten,
    /// Access while a reset was running.
    AccessDuringReset,
    /// A component or image in the wrong order, of the wrong kind or left out.
    FirmwareOrder,
    /// A firmware image whose header or size is wrong.
    FirmwareImage,
    /// A PSP command, frame or ring pointer that is malformed.
    PspProtocol,
    /// An SMU message while the previous one was not answered, or an unknown one.
    SmuProtocol,
    /// An engine was started before its firmware was there.
    EngineBeforeFirmware,
    /// A packet that the command processor or SDMA does not accept.
    MalformedPacket,
    /// An instruction that the target does not have.
    IllegalInstruction,
    /// A queue description (HQD, MQD, ring base, size) that does not fit together.
    QueueSetup,
    /// Two hardware structures (rings, tables, buffers) overlap in memory.
    OverlappingStructures,
    /// DMA to system memory that is not mapped for the device.
    UnmappedDma,
    /// Memory that the CPU read before the device had finished (a fence not awaited).
    FenceNotAwaited,
    /// A command, vendor request or block that no bridge firmware takes.
    UsbCommand,
    /// A transfer on a stream or endpoint that nobody gave it for.
    UsbStream,
    /// A PCIe request that the bridge cannot send, or that was sent too early.
    TlpMalformed,
    /// A PCIe memory request that no bridge or device takes.
    TlpNowhere,
    /// A PCIe request while the link is down.
    LinkDown,
    /// An access of a size or alignment that the window does not support.
    BadAccess,
    /// Anything else that hardware would not forgive.
    Other,
}

/// One misuse.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Violation {
    /// Which rule was broken.
    pub rule: Rule,
    /// Register, address, packet: what a person needs to find the place.
    pub detail: String,
}

impl Violation {
    /// A violation of `rule`.
    pub fn new(rule: Rule, detail: impl Into<String>) -> Self {
        Violation { rule, detail: detail.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.detail)
    }
}
