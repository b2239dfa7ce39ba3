//! What can be wrong with firmware files.

use core::fmt;

/// Name of a firmware file, without folder.
pub type FileName = heapless::String<48>;

/// An error that names the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FwError {
    /// The file.
    pub file: FileName,
    /// What is wrong with it.
    pub problem: Problem,
}

impl fmt::Display for FwError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "firmware {}: {}", self.file, self.problem)
    }
}

impl core::error::Error for FwError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.problem)
    }
}

/// What is wrong with a firmware file. Offsets are bytes from its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file ends before a header or list does.
    #[error("{field} needs {need} bytes, the file has {have}; install the package again")]
    TooShort {
        /// The header or list.
        field: &'static str,
        /// Bytes needed.
        need: u64,
        /// Bytes there are.
        have: u64,
    },
    /// The file's length is not what its header says: truncated or overlong.
    #[error("size_bytes is {size_bytes}, but the file has {have} bytes; install the package again")]
    Size {
        /// What the header says.
        size_bytes: u32,
        /// Bytes there are.
        have: u64,
    },
    /// The file is not as it was when its header was written.
    #[error(
        "crc32 is {header:#010x}, but the file has {found:#010x}: it is damaged; install the package again"
    )]
    Checksum {
        /// What the header says.
        header: u32,
        /// CRC-32 of what stands behind it.
        found: u32,
    },
    /// An image does not lie inside the file.
    #[error("{field}: {size:#x} bytes at offset {offset:#x} are outside the file, which has {have:#x}")]
    OutOfFile {
        /// The field with offset or size.
        field: &'static str,
        /// Offset of the image.
        offset: u64,
        /// Length of the image.
        size: u64,
        /// Bytes there are.
        have: u64,
    },
    /// A header version that is not known for this kind of file.
    #[error("header_version is {major}.{minor}, known for {kind} files is {supported}")]
    Version {
        /// The kind of file.
        kind: &'static str,
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
        /// What is known, in words.
        supported: &'static str,
    },
    /// A list is longer than any real file has it.
    #[error("{field} is {found}, at most {limit} are possible")]
    TooMany {
        /// The field with the count.
        field: &'static str,
        /// What it says.
        found: u32,
        /// What is possible.
        limit: u32,
    },
    /// A field has a value that makes no sense.
    #[error("{field} is {found:#x}, expected {expected}")]
    Value {
        /// The field.
        field: &'static str,
        /// What it says.
        found: u64,
        /// What is expected, in words.
        expected: &'static str,
    },
    /// The file lacks an image that the device needs.
    #[error("it has no {0} image, which this device needs; take the files of one firmware package")]
    Missing(&'static str),
    /// Reading failed.
    #[error("reading at offset {offset:#x} failed: {reason}")]
    Read {
        /// Where.
        offset: u64,
        /// Why, in a few words.
        reason: &'static str,
    },
}
