//! Errors of code objects.

use core::fmt;

use super::msgpack::MsgPackError;
use crate::iface::Target;

/// A name from a file, shortened to 64 bytes, so that errors need no lifetime.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Name(heapless::String<64>);

impl Name {
    /// A copy of the start of `s`.
    pub fn new(s: &str) -> Self {
        let mut out = heapless::String::new();
        for c in s.chars() {
            if out.push(c).is_err() {
                break;
            }
        }
        Name(out)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0.escape_debug())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a code object cannot be used. Offsets are bytes from the start of the file, addresses are
/// relative to the load address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// Nothing at all.
    #[error("the file is empty")]
    Empty,
    /// The file ends too early.
    #[error("{what} at offset {offset:#x} (length {size:#x}) ends after the file's {len:#x} bytes")]
    OutOfFile {
        /// What lies there.
        what: &'static str,
        /// First byte.
        offset: u64,
        /// Length in bytes.
        size: u64,
        /// Length of the file in bytes.
        len: u64,
    },
    /// A field of the ELF header or of another structure with a value that cannot be.
    #[error("field {field} is {value:#x}: {why}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What it should be.
        why: &'static str,
    },
    /// No such processor.
    #[error("e_flags names an unknown processor (number {mach:#x})")]
    UnknownProcessor {
        /// `EF_AMDGPU_MACH`.
        mach: u8,
    },
    /// The object is for another GPU.
    #[error("the code object is for {object}, the device is {device}; compile it with -mcpu={device}")]
    WrongTarget {
        /// What the object is for.
        object: &'static str,
        /// What the device is.
        device: Target,
    },
    /// A segment that cannot be loaded.
    #[error("the segment at address {vaddr:#x} cannot be loaded: {why}")]
    Segment {
        /// Its address.
        vaddr: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// The memory image would be too large.
    #[error("the memory image would have {size:#x} bytes, at most {max:#x} are allowed")]
    ImageTooLarge {
        /// Bytes it would have.
        size: u64,
        /// The limit.
        max: u64,
    },
    /// Nothing to load.
    #[error("the file has nothing to load (no PT_LOAD segment and no allocated section)")]
    NothingToLoad,
    /// A relocation type that is not used in loaded objects.
    #[error("relocation type {kind} at {offset:#x} is not supported")]
    RelocationType {
        /// The type.
        kind: u32,
        /// Address it applies to.
        offset: u64,
    },
    /// A relocation outside the image.
    #[error("the relocation at {offset:#x} lies outside the image of {size:#x} bytes")]
    RelocationOutside {
        /// Address it applies to.
        offset: u64,
        /// Size of the image.
        size: u64,
    },
    /// A relocated value does not fit.
    #[error("the relocation at {offset:#x} overflows its 32 bits (value {value:#x})")]
    RelocationOverflow {
        /// Address it applies to.
        offset: u64,
        /// The value.
        value: i64,
    },
    /// A relocation names a symbol that nothing defines.
    #[error("symbol {name} is undefined; link the object with what defines it")]
    UndefinedSymbol {
        /// The symbol.
        name: Name,
    },
    /// A symbol number outside the symbol table, or one without a table.
    #[error("symbol number {index} does not exist")]
    NoSymbol {
        /// The number.
        index: u32,
    },
    /// A broken note.
    #[error("the note at offset {offset:#x}: {why}")]
    Note {
        /// Offset in the file.
        offset: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// Metadata that is not MessagePack, or not of kernels.
    #[error("the kernel metadata {0}")]
    Metadata(#[from] MsgPackError),
    /// No kernel of that name.
    #[error("the code object has no kernel {name}")]
    NoKernel {
        /// The name asked for.
        name: Name,
    },
    /// Nothing to run.
    #[error("the code object has no kernel")]
    NoKernels,
    /// Several kernels, none of them named.
    #[error("the code object has {count} kernels; name one of them ({first}, ...)")]
    SeveralKernels {
        /// How many there are.
        count: usize,
        /// Name of the first.
        first: Name,
    },
    /// A kernel that cannot be used.
    #[error("kernel {name}: {field} is {value:#x}: {why}")]
    Kernel {
        /// Its name.
        name: Name,
        /// The field of its descriptor, or the address.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// More LDS than a workgroup can have.
    #[error("kernel {name} needs {need} bytes of LDS, a workgroup can have {max}")]
    TooMuchLds {
        /// Its name.
        name: Name,
        /// Bytes needed.
        need: u64,
        /// Bytes there are.
        max: u64,
    },
    /// A user SGPR that this driver cannot fill.
    #[error("kernel {name} asks for {what} in SGPRs, which is not available")]
    UserSgpr {
        /// Its name.
        name: Name,
        /// What it asks for.
        what: &'static str,
    },
    /// The wrong number of arguments.
    #[error("kernel {name} takes {takes} arguments, {given} were given")]
    ArgCount {
        /// Its name.
        name: Name,
        /// Arguments it takes.
        takes: usize,
        /// Arguments given.
        given: usize,
    },
    /// An argument of the wrong size.
    #[error("argument {index} of kernel {name} has {size} bytes, {given} were given")]
    ArgSize {
        /// The kernel.
        name: Name,
        /// Number of the argument, from 0.
        index: usize,
        /// Its size in bytes.
        size: u32,
        /// Bytes given.
        given: usize,
    },
    /// An argument outside the kernel argument segment.
    #[error("an argument of kernel {name} at byte {offset} does not lie in the segment of {size} bytes")]
    ArgOutside {
        /// The kernel.
        name: Name,
        /// Its offset in bytes.
        offset: u32,
        /// Bytes of the segment.
        size: u64,
    },
    /// The kernel's metadata says nothing of its arguments.
    #[error("the code object has no metadata of kernel {name}; give the arguments with their offsets")]
    NoMetadata {
        /// The kernel.
        name: Name,
    },
    /// The kernel demands another workgroup size.
    #[error("kernel {name} was compiled for blocks of {}x{}x{}; use that", size[0], size[1], size[2])]
    BlockSize {
        /// The kernel.
        name: Name,
        /// What it demands.
        size: [u32; 3],
    },
    /// The kernel does not allow so many work-items in a workgroup.
    #[error("kernel {name} allows {max} work-items in a block, not {given}")]
    BlockTooLarge {
        /// The kernel.
        name: Name,
        /// What it allows.
        max: u64,
        /// What was asked for.
        given: u64,
    },
}
