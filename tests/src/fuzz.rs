//! What the fuzz targets check: for each a function that takes any bytes and panics if a property
//! does not hold.
//!
//! `tests/fuzz` runs them under libFuzzer; `tests/fuzz_seeds.rs` replays the committed seeds in every
//! test run, with the stable toolchain. No panic alone is never the property: what is accepted must be
//! within its bounds, and survive being written and read again.

pub mod alloc;
mod arguments;
mod discovery;
mod firmware;
mod linked;
mod metadata;
mod object;
mod packets;
mod plain;
mod records;
mod relocatable;
mod simulator;

pub use discovery::mend;
pub use firmware::{Format, describe, formats, sample};
pub use linked::{Linked, LinkedKernel};
pub use metadata::Tree;
pub use records::{COMMAND, DESCRIPTOR, DISPATCH, FRAME, IH_ENTRY, IH_SPAN, MQD};
pub use relocatable::relocatable;

/// A target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is that of its folder of seeds and of its program.
    pub name: &'static str,
    /// Its body.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "code_object", run: object::run },
    Target { name: "firmware", run: firmware::run },
    Target { name: "discovery", run: discovery::run },
    Target { name: "metadata", run: metadata::run },
    Target { name: "records", run: records::run },
    Target { name: "packets", run: packets::run },
    Target { name: "arguments", run: arguments::run },
    Target { name: "sim_isa", run: simulator::instructions },
    Target { name: "sim_queues", run: simulator::queues },
];

/// What one input may have allocated at a time, in bytes.
pub const MEMORY_LIMIT: usize = 16 << 20;

/// Runs a target's body and panics if it needs more than [`MEMORY_LIMIT`]. The limit holds where
/// [`alloc::Counting`] is the allocator.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("no target {name}"));
    let peak = alloc::peak(|| (target.run)(data));
    assert!(peak <= MEMORY_LIMIT, "{name}: {peak} bytes were allocated at a time");
}

/// Little-endian dwords of bytes; an incomplete one at the end is dropped.
fn dwords(data: &[u8]) -> Vec<u32> {
    data.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}
