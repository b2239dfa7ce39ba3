//! The contract between the engines (command processors, SDMA, shader cores) and the device that
//! hosts them: memory through the translator, registers, interrupts, time and violations.
//!
//! An engine never touches VRAM or system memory directly; every access goes through
//! [`Env::read`] or [`Env::write`] with the hub and VMID it is made for.

use crate::violation::Violation;

/// Which memory hub translates an access.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hub {
    /// GFXHUB: CP, SDMA from gfx11 on, shader cores.
    Gc,
    /// MMHUB: PSP, IH, everything else.
    Mm,
}

/// What an access does; decides which permission bits are checked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Execute,
    /// An atomic: needs read and write permission.
    Atomic,
}

/// Who makes an access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Access {
    /// The hub.
    pub hub: Hub,
    /// The virtual memory context, 0 to 15.
    pub vmid: u8,
    /// UTCL2 client id, as the fault status register reports it (gfx11 numbering).
    pub client: u16,
    /// What it does.
    pub kind: Kind,
}

/// The access was refused; the device has already latched the fault and raised the interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemFault {
    /// Faulting address.
    pub va: u64,
}

/// An entry for an interrupt ring, before the IH adds its own fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interrupt {
    /// IH client id (`soc21_ih_clientid`).
    pub client: u8,
    /// Source id.
    pub source: u8,
    /// Ring id.
    pub ring: u8,
    /// VMID.
    pub vmid: u8,
    /// True for MMHUB's VMIDs.
    pub vmid_mm: bool,
    /// Process address space id.
    pub pasid: u16,
    /// Node id.
    pub node: u8,
    /// Source data.
    pub data: [u32; 4],
}

/// What an engine can do to the rest of the device.
pub trait Env {
    /// Reads memory at a GPU virtual address.
    fn read(&mut self, who: Access, va: u64, buf: &mut [u8]) -> Result<(), MemFault>;

    /// Writes memory at a GPU virtual address.
    fn write(&mut self, who: Access, va: u64, data: &[u8]) -> Result<(), MemFault>;

    /// Reads a register by its absolute dword address, as an engine does (no posting, no RSMU).
    fn reg_read(&mut self, addr: u32) -> u32;

    /// Writes a register by its absolute dword address.
    fn reg_write(&mut self, addr: u32, value: u32);

    /// Absolute dword address of a register by its name in the headers, without the `reg`/`mm`
    /// prefix (`COMPUTE_PGM_LO`), of instance 0; `None` if this GPU has no such register.
    fn reg_addr(&self, name: &str) -> Option<u32>;

    /// Lowest bit and width of a field (`PQ_SIZE` style upper-case names as in the headers).
    fn field(&self, reg: &str, field: &str) -> Option<(u8, u8)>;

    /// The engine goes on to the packet at this position of its ring, in the unit of its write pointer.
    fn executing(&mut self, position: u64) {
        let _ = position;
    }

    /// Sends an interrupt to the IH.
    fn interrupt(&mut self, interrupt: Interrupt);

    /// The 100 MHz reference clock counter.
    fn clock_100mhz(&self) -> u64;

    /// Lets device time pass: an engine says how long its work took, in nanoseconds.
    fn spend_ns(&mut self, ns: u64);

    /// Reports a misuse.
    fn violation(&mut self, violation: Violation);
}

/// How far an engine came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Nothing left to do: read pointer equals write pointer.
    Idle,
    /// Work was done and more is pending.
    Busy,
    /// The packet at the read pointer waits for memory or a register that has not got its value.
    Waiting,
    /// Stopped for good: a fault, an illegal instruction or a malformed packet. Only a reset helps.
    Halted,
}
