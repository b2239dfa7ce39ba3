//! Firmware images of AMD GPUs: found, decompressed, validated and sliced.
//!
//! [`Versions`] says which files a device needs and what they are called, [`FirmwareSet::open`]
//! opens and checks them through `embedded-io` and is the `FirmwareSource` that the core loads
//! from. On small targets it holds open files and ranges, no image.
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

mod error;
mod names;
mod parse;
mod set;
pub mod types;
pub mod wire;

pub use error::{FileName, FwError, Problem};
pub use names::{Versions, is_kicker};
pub use parse::{File, FileKind, HEAD, MAX_FILE, MAX_PIECES, Piece, Role};
pub use set::{BadSeek, FirmwareSet, Listed, MAX_FILES, MAX_IMAGES, Memory, OpenError, SetFile};

#[cfg(feature = "std")]
mod emit;
#[cfg(feature = "std")]
pub mod files;
#[cfg(feature = "std")]
mod pinned;
#[cfg(feature = "std")]
pub mod synthetic;

#[cfg(feature = "std")]
pub use emit::{EmitError, Repr};
#[cfg(feature = "std")]
pub use files::{FindError, SearchPath, Source};
#[cfg(feature = "std")]
pub use pinned::{PINNED, Pinned};
