//! Complete register tables of the supported IP versions, and the generator of core's tables.
//!
//! [`Db`] is the complete database: every register that the Linux headers name, with its place and
//! fields. [`versions`] says which header serves which IP version. The binary `regs-gen` writes
//! both this database and core's tables from the headers:
//!
//! ```text
//! cargo run -p amdev-regs --bin regs-gen -- --linux LINUX-SOURCE            # writes
//! cargo run -p amdev-regs --bin regs-gen -- --linux LINUX-SOURCE --check    # compares
//! ```
//!
//! `LINUX-SOURCE` is an unpacked Linux 6.12 (Debian's `linux-source-6.12`, for example). What core
//! gets is listed in `registers.txt`, the versions in `versions.txt`.

mod db;
pub mod emit;
pub mod headers;
pub mod list;
mod roles;
pub mod smu;
pub mod versions;

pub use db::{Db, Field, Register};
pub use roles::{CoreName, core_name};
