//! Memory management: physical VRAM, virtual addresses, and the page tables between them.
//!
//! - [`tlsf`]: the allocator for both kinds of addresses; its storage is lent by the caller.
//! - [`pte`]: page-table entries as data, and their formats.
//! - [`walk`]: walks tables and tells what they map; knows nothing of policy.
//! - [`vm`]: one device's address space: what is mapped where, with which pages, from which memory.
//!
//! Virtual addresses come from one [`vm::VaRange`], which several devices may share, so that a
//! buffer has the same address on each.

pub mod pte;
pub mod tlsf;
pub mod vm;
pub mod walk;

pub use pte::PteFormat;
pub use tlsf::{Block, Tlsf, TlsfError};
pub use vm::{
    AllocOptions, Allocation, Booting, MapFlags, Running, VaRange, VirtualRange, Vm, VmConfig, VmError,
};
pub use walk::{Flush, Space, TableMemory};
