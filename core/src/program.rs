//! Code objects: ELF files with kernels for one processor.
//!
//! [`CodeObject::parse`] checks the whole file before anything of it is used: headers, segments,
//! symbols, notes, relocations and every kernel's descriptor. Nothing is allocated; the caller copies
//! [`CodeObject::segments`] into GPU memory, applies [`CodeObject::patches`] there, and picks a
//! [`Kernel`] by name.
//!
//! Files without program headers are loaded by their sections: relocatable objects, images made for
//! tests, and tinygrad's hand-assembled ones, whose only descriptor stands at the start of `.rodata`.
//!
//! Layouts: ELF, and LLVM's AMDGPUUsage.

use bytes::Bytes as _;
use object::LittleEndian as LE;
use object::elf::FileHeader64;

use crate::iface::Target;

mod bytes;
pub mod descriptor;
mod elf;
mod error;
pub mod isa;
pub mod kernarg;
mod kernel;
pub mod metadata;
pub mod msgpack;
mod reloc;

pub use descriptor::{KernelDescriptor, UserSgpr};
pub use elf::{Note, Section, Segment, Symbol};
pub use error::{Name, ProgramError};
pub use isa::{Feature, Isa};
pub use kernarg::{DispatchPacket, HiddenValues, SgprSources};
pub use kernel::Kernel;
pub use metadata::{Arg, KernelMetadata, Metadata, ValueKind};
pub use reloc::{Patch, Relocation};

use elf::Tables;

/// The largest memory image that is accepted, in bytes.
pub const MAX_IMAGE: u64 = 1 << 30;

/// The most kernel arguments a kernel can have, in bytes.
pub const MAX_KERNARG: u32 = 1 << 20;

/// The largest product of kernels, relocations and sections of a relocatable object: some tenths of a
/// second. Objects of compilers stay far below.
const MAX_RELOCATABLE_WORK: u64 = 1 << 26;

/// Scratch for each work-item of kernels whose stack grows as they run, in bytes: the limit that HIP
/// sets by default (`hipLimitStackSize`).
pub const DYNAMIC_STACK: u32 = 1024;

/// A code object whose structure has been checked.
#[derive(Clone, Copy, Debug)]
pub struct CodeObject<'a> {
    tables: Tables<'a>,
    /// `None` only for hand-assembled objects that do not say it.
    isa: Option<Isa>,
    version: u8,
    image_size: u64,
}

impl<'a> CodeObject<'a> {
    /// Checks a file. Whatever is wrong with it is named.
    pub fn parse(data: &'a [u8]) -> Result<CodeObject<'a>, ProgramError> {
        if data.is_empty() {
            return Err(ProgramError::Empty);
        }
        let header: &FileHeader64<LE> = data.read_at(0).map_err(|()| ProgramError::OutOfFile {
            what: "the ELF header",
            offset: 0,
            size: size_of::<FileHeader64<LE>>() as u64,
            len: data.len() as u64,
        })?;
        let bad = |field, value: u64, why| Err(ProgramError::Field { field, value, why });
        let ident = &header.e_ident;
        if ident.magic != object::elf::ELFMAG {
            return bad("EI_MAG", u32::from_be_bytes(ident.magic) as u64, "not an ELF file (0x7f454c46)");
        }
        if ident.class != object::elf::ELFCLASS64 {
            return bad("EI_CLASS", ident.class.0 as u64, "only 64-bit ELF files (2) are supported");
        }
        let machine = header.e_machine.get(LE).0;
        let kind = header.e_type.get(LE).0;
        // Hand-assembled: no type, machine or program headers.
        let minimal = machine == 0 && kind == 0 && header.e_phnum.get(LE) == 0;
        if ident.data != object::elf::ELFDATA2LSB && !(minimal && ident.data.0 == 0) {
            return bad("EI_DATA", ident.data.0 as u64, "only little-endian ELF files (1) are supported");
        }
        let (isa, version) = if minimal {
            (None, 0)
        } else {
            if machine != object::elf::EM_AMDGPU.0 {
                return bad("e_machine", machine as u64, "not a code object for AMD GPUs (0xe0)");
            }
            if ident.os_abi.0 != 64 {
                return bad("EI_OSABI", ident.os_abi.0 as u64, "not an HSA code object (0x40)");
            }
            if kind != object::elf::ET_DYN.0 && kind != object::elf::ET_REL.0 {
                return bad("e_type", kind as u64, "neither a shared (3) nor a relocatable object (1)");
            }
            let abi = ident.abi_version;
            if !(1..=4).contains(&abi) {
                return bad(
                    "EI_ABIVERSION",
                    abi as u64,
                    "only code object versions 3 to 6 (1 to 4) are supported",
                );
            }
            let flags = header.e_flags.get(LE).0;
            let isa =
                Isa::from_flags(flags, abi).ok_or(ProgramError::UnknownProcessor { mach: flags as u8 })?;
            (Some(isa), abi + 2)
        };
        let tables = Tables::parse(data, header)?;
        let mut object = CodeObject { tables, isa, version, image_size: 0 };
        object.image_size = object.tables.check_image()?;
        object.tables.check_symbols()?;
        for note in object.notes() {
            let note = note?;
            if note.is_metadata() {
                msgpack::Reader::check(note.data)?;
            }
        }
        // As far from address 0 as every image is: a 32-bit distance to an absolute address (of a symbol
        // that nobody defines) fits nowhere.
        for patch in object.patches(crate::mm::vm::VA_BASE) {
            patch?;
        }
        object.check_work()?;
        let mut kernels = 0usize;
        for kernel in object.bare_kernels() {
            kernel?.check(&object)?;
            kernels = kernels.saturating_add(1);
        }
        for k in object.kernel_metadata() {
            let k = k?;
            for arg in k.args() {
                arg?;
            }
            let named = k.kernel_name();
            if let Some(symbol) = object.tables.kernel_symbols().find(|s| Some(s.name) == named) {
                object.kernel_at(symbol.name, symbol.value)?.check_metadata(&k)?;
            }
        }
        // A library of device functions has no kernel; what has no segments either is no code object.
        if kernels == 0 && !object.tables.has_segments() {
            return Err(ProgramError::NoKernels);
        }
        Ok(object)
    }

    /// An error if a relocatable object is so large that its kernels cannot be found in reasonable
    /// time: each descriptor is relocated by itself, since nothing is stored.
    fn check_work(&self) -> Result<(), ProgramError> {
        if !self.tables.is_relocatable() {
            return Ok(());
        }
        let count = |n: usize| (n as u64).max(1);
        let work = count(self.tables.kernel_symbols().count())
            .saturating_mul(count(self.relocations().count()))
            .saturating_mul(count(self.sections().count()));
        if work > MAX_RELOCATABLE_WORK {
            return Err(ProgramError::Field {
                field: "kernels times relocations times sections of a relocatable object",
                value: work,
                why: "it is too large to be loaded as it is; link it",
            });
        }
        Ok(())
    }

    /// The file's bytes.
    pub fn data(&self) -> &'a [u8] {
        self.tables.data
    }

    /// The ELF header.
    pub fn header(&self) -> &'a FileHeader64<LE> {
        self.tables.header
    }

    /// The processor it is for; `None` if a hand-assembled object does not say it.
    pub fn isa(&self) -> Option<&Isa> {
        self.isa.as_ref()
    }

    /// Code object version, 3 to 6; 0 if a hand-assembled object does not say it.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// An error naming both if a device with this target cannot run it.
    pub fn check_target(&self, device: Target) -> Result<(), ProgramError> {
        match &self.isa {
            Some(isa) if !isa.runs_on(device) => Err(ProgramError::WrongTarget { object: isa.name, device }),
            _ => Ok(()),
        }
    }

    /// Bytes of memory the object needs.
    pub fn image_size(&self) -> u64 {
        self.image_size
    }

    /// What has to be copied where, in the order of the file. Memory between segments and behind
    /// their data is zero.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'a>> + use<'a> {
        self.tables.segments()
    }

    /// Copies a part of the memory image, before relocation, into `out`.
    pub fn read_image(&self, address: u64, out: &mut [u8]) {
        out.fill(0);
        let end = address.saturating_add(out.len() as u64);
        for s in self.segments() {
            let s_end = s.vaddr.saturating_add(s.data.len() as u64);
            let (from, to) = (s.vaddr.max(address), s_end.min(end));
            if from >= to {
                continue;
            }
            let source = s.data.get((from - s.vaddr) as usize..(to - s.vaddr) as usize);
            let target = out.get_mut((from - address) as usize..(to - address) as usize);
            if let (Some(source), Some(target)) = (source, target) {
                crate::slices::copy(target, source);
            }
        }
    }

    /// The sections, without the empty first one.
    pub fn sections(&self) -> impl Iterator<Item = Section<'a>> + use<'a> {
        self.tables.sections()
    }

    /// The notes.
    pub fn notes(&self) -> impl Iterator<Item = Result<Note<'a>, ProgramError>> + use<'a> {
        self.tables.notes()
    }

    /// The metadata notes; linked objects may have several.
    pub fn metadata(&self) -> impl Iterator<Item = Result<Metadata<'a>, ProgramError>> + use<'a> {
        self.notes().filter_map(|n| match n {
            Ok(n) => n.is_metadata().then_some(Ok(Metadata { data: n.data })),
            Err(e) => Some(Err(e)),
        })
    }

    /// The relocations.
    pub fn relocations(&self) -> impl Iterator<Item = Result<Relocation<'a>, ProgramError>> + use<'a> {
        reloc::relocations(self.tables)
    }

    /// What has to be changed in the image when it is loaded at `base`.
    pub fn patches(&self, base: u64) -> impl Iterator<Item = Result<Patch, ProgramError>> + use<'a> {
        reloc::patches(self.tables, base, self.image_size)
    }

    /// The kernels, in the order of the symbol table.
    pub fn kernels(&self) -> impl Iterator<Item = Result<Kernel<'a>, ProgramError>> + use<'a> {
        let object = *self;
        // Metadata mostly has the order of the symbols: look there first, so that objects with
        // thousands of kernels are read once and not once for each kernel.
        let mut ahead = self.kernel_metadata();
        self.bare_kernels().map(move |kernel| {
            let mut kernel = kernel?;
            kernel.code_size = object.tables.function_size(kernel.name);
            let mut next = ahead.next().transpose()?;
            if next.and_then(|k| k.kernel_name()) != Some(kernel.name) {
                ahead = object.kernel_metadata();
                next = find_metadata(&mut ahead, kernel.name)?;
            }
            kernel.metadata = next;
            Ok(kernel)
        })
    }

    /// The kernels without metadata and code size.
    fn bare_kernels(&self) -> impl Iterator<Item = Result<Kernel<'a>, ProgramError>> + use<'a> {
        let object = *self;
        let symbols = self.tables.kernel_symbols().map(move |s| object.kernel_at(s.name, s.value));
        // Without any symbol: the one descriptor at the start of `.rodata`.
        let fallback = (!self.tables.has_segments() && !self.tables.has_symbols())
            .then(|| object.tables.section_address(".rodata").map(|va| object.kernel_at("", va)))
            .flatten();
        symbols.chain(fallback)
    }

    /// Metadata of all kernels, of all notes.
    fn kernel_metadata(&self) -> impl Iterator<Item = Result<KernelMetadata<'a>, ProgramError>> + use<'a> {
        self.metadata().flat_map(|m| {
            let (kernels, error) = match m {
                Ok(m) => (Some(m.kernels()), None),
                Err(e) => (None, Some(Err(e))),
            };
            error.into_iter().chain(kernels.into_iter().flatten().map(|k| k.map_err(ProgramError::from)))
        })
    }

    /// The kernel of this name (without `.kd`). An object without symbols has one kernel without a
    /// name, which any name finds.
    pub fn kernel(&self, name: &str) -> Result<Kernel<'a>, ProgramError> {
        for kernel in self.bare_kernels() {
            let mut kernel = kernel?;
            if kernel.name == name || kernel.name.is_empty() {
                kernel.code_size = self.tables.function_size(kernel.name);
                kernel.metadata = find_metadata(&mut self.kernel_metadata(), kernel.name)?;
                return Ok(kernel);
            }
        }
        Err(ProgramError::NoKernel { name: Name::new(name) })
    }

    /// The only kernel; an error that names one if there are several.
    pub fn only_kernel(&self) -> Result<Kernel<'a>, ProgramError> {
        let mut found = None;
        let mut count = 0usize;
        for kernel in self.kernels() {
            let kernel = kernel?;
            count = count.saturating_add(1);
            found.get_or_insert(kernel);
        }
        match found {
            Some(k) if count == 1 => Ok(k),
            Some(k) => Err(ProgramError::SeveralKernels { count, first: Name::new(k.name) }),
            None => Err(ProgramError::NoKernels),
        }
    }

    fn kernel_at(&self, name: &'a str, vaddr: u64) -> Result<Kernel<'a>, ProgramError> {
        let fault = |field, value, why| ProgramError::Kernel { name: Name::new(name), field, value, why };
        let bytes = self
            .tables
            .segments()
            .find_map(|s| {
                let at = usize::try_from(vaddr.checked_sub(s.vaddr)?).ok()?;
                s.data.get(at..at.checked_add(descriptor::DESCRIPTOR_SIZE)?)
            })
            .ok_or_else(|| {
                fault("address of the descriptor", vaddr, "it lies outside the loaded file contents")
            })?;
        let mut raw = [0; descriptor::DESCRIPTOR_SIZE];
        raw.copy_from_slice(bytes);
        if self.tables.is_relocatable() {
            // The entry is a relative relocation there: the same for every load address.
            for patch in self.patches(0) {
                let patch = patch?;
                let (value, len) = patch.bytes();
                let at = patch.offset.checked_sub(vaddr).and_then(|at| usize::try_from(at).ok());
                let to = at.and_then(|at| raw.get_mut(at..at.checked_add(len)?));
                if let (Some(to), Some(value)) = (to, value.get(..len)) {
                    to.copy_from_slice(value);
                }
            }
        }
        let descriptor = KernelDescriptor::parse(&raw).unwrap_or_default();
        let mut entry = vaddr.wrapping_add_signed(descriptor.entry_offset);
        if descriptor.entry_offset == 0 && !self.tables.has_segments() && !self.tables.has_symbols() {
            // Images made without linking leave the offset 0 and start at `.text`.
            entry = self.tables.section_address(".text").unwrap_or(entry);
        }
        Ok(Kernel {
            name,
            descriptor_vaddr: vaddr,
            descriptor,
            entry,
            code_size: None,
            metadata: None,
            isa: self.isa,
        })
    }
}

/// The metadata of one kernel, and `all` stands behind it.
fn find_metadata<'a>(
    all: &mut impl Iterator<Item = Result<KernelMetadata<'a>, ProgramError>>,
    name: &str,
) -> Result<Option<KernelMetadata<'a>>, ProgramError> {
    for k in all {
        let k = k?;
        if k.kernel_name() == Some(name) {
            return Ok(Some(k));
        }
    }
    Ok(None)
}
