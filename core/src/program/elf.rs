//! Tables of an ELF file, bounds-checked, over the structures of the `object` crate.

use object::LittleEndian as LE;
use object::elf::{self, FileHeader64, NoteHeader64, ProgramHeader64, SectionHeader64, Sym64};

use super::bytes::Bytes as _;
use super::{MAX_IMAGE, ProgramError};

/// A part of the image to be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment<'a> {
    /// Address, relative to the load address.
    pub vaddr: u64,
    /// Bytes in memory; those after `data` are zero.
    pub size: u64,
    /// Contents.
    pub data: &'a [u8],
    /// Offset of the contents in the file.
    pub offset: u64,
    /// Whether it holds code.
    pub executable: bool,
    /// Whether kernels write it.
    pub writable: bool,
    /// `p_flags`; 0 for sections.
    pub flags: u32,
    /// Alignment demanded.
    pub align: u64,
}

/// A section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the fields are those of the section header
pub struct Section<'a> {
    pub name: &'a str,
    pub kind: u32,
    pub flags: u64,
    pub addr: u64,
    pub offset: u64,
    pub size: u64,
    pub entsize: u64,
}

/// A note.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Note<'a> {
    /// Its owner.
    pub name: &'a str,
    /// Its type.
    pub kind: u32,
    /// Offset of its header in the file.
    pub offset: u64,
    /// Its description.
    pub data: &'a [u8],
}

impl Note<'_> {
    /// `NT_AMDGPU_METADATA`.
    pub fn is_metadata(&self) -> bool {
        self.name == "AMDGPU" && self.kind == 32
    }
}

/// A symbol that is defined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Symbol<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its address, relative to the load address.
    pub value: u64,
    /// Bytes of what it names.
    pub size: u64,
}

/// The tables of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tables<'a> {
    pub(super) data: &'a [u8],
    pub(super) header: &'a FileHeader64<LE>,
    segments: &'a [ProgramHeader64<LE>],
    sections: &'a [SectionHeader64<LE>],
    names: &'a [u8],
}

const MAX_SEGMENTS: usize = 256;
const MAX_SECTIONS: usize = 4096;
/// The longest name of a section or symbol, in bytes: template instances have names of some KiB.
const MAX_NAME: usize = 32 << 10;

impl<'a> Tables<'a> {
    pub(super) fn parse(data: &'a [u8], header: &'a FileHeader64<LE>) -> Result<Self, ProgramError> {
        let table = |what, offset: u64, count: usize, each: usize| ProgramError::OutOfFile {
            what,
            offset,
            size: count as u64 * each as u64,
            len: data.len() as u64,
        };
        let bad = |field, value: u64, why| Err(ProgramError::Field { field, value, why });
        let phnum = header.e_phnum.get(LE) as usize;
        let shnum = header.e_shnum.get(LE) as usize;
        if phnum > MAX_SEGMENTS {
            return bad("e_phnum", phnum as u64, "at most 256 program headers are read");
        }
        if shnum > MAX_SECTIONS {
            return bad("e_shnum", shnum as u64, "at most 4096 section headers are read");
        }
        let segments: &[ProgramHeader64<LE>] = if phnum == 0 {
            &[]
        } else {
            let size = header.e_phentsize.get(LE);
            if size as usize != size_of::<ProgramHeader64<LE>>() {
                return bad("e_phentsize", size as u64, "program headers have 56 bytes");
            }
            let offset = header.e_phoff.get(LE);
            data.read_slice_at(offset, phnum)
                .map_err(|()| table("the program header table", offset, phnum, size as usize))?
        };
        let sections: &[SectionHeader64<LE>] = if shnum == 0 {
            &[]
        } else {
            // Hand-assembled objects leave the entry size 0.
            let size = header.e_shentsize.get(LE);
            if size != 0 && size as usize != size_of::<SectionHeader64<LE>>() {
                return bad("e_shentsize", size as u64, "section headers have 64 bytes");
            }
            let offset = header.e_shoff.get(LE);
            data.read_slice_at(offset, shnum)
                .map_err(|()| table("the section header table", offset, shnum, 64))?
        };
        let index = header.e_shstrndx.get(LE).0 as usize;
        let names = match sections.get(index) {
            Some(s) if s.sh_type.get(LE) == elf::SHT_STRTAB => section_data(data, s).unwrap_or(&[]),
            // Names are only for people where segments say what to load.
            _ if segments.is_empty() && !sections.is_empty() => {
                return bad("e_shstrndx", index as u64, "it is not a string table");
            }
            _ => &[],
        };
        Ok(Tables { data, header, segments, sections, names })
    }

    pub(super) fn is_relocatable(&self) -> bool {
        self.header.e_type.get(LE) == elf::ET_REL
    }

    pub(super) fn has_segments(&self) -> bool {
        !self.segments.is_empty()
    }

    /// Whether there is a symbol besides the empty first one.
    pub(super) fn has_symbols(&self) -> bool {
        self.sections.iter().any(|s| is_symbol_table(s) && s.sh_size.get(LE) > size_of::<Sym64<LE>>() as u64)
    }

    fn name(&self, s: &SectionHeader64<LE>) -> &'a str {
        string_at(self.names, s.sh_name.get(LE)).unwrap_or("")
    }

    pub(super) fn sections(&self) -> impl Iterator<Item = Section<'a>> + use<'a> {
        let tables = *self;
        self.named_sections().iter().map(move |s| Section {
            name: tables.name(s),
            kind: s.sh_type.get(LE).0,
            flags: s.sh_flags.get(LE).0,
            addr: s.sh_addr.get(LE),
            offset: s.sh_offset.get(LE),
            size: s.sh_size.get(LE),
            entsize: s.sh_entsize.get(LE),
        })
    }

    /// The sections without the empty first one, which hand-assembled objects leave out.
    pub(super) fn named_sections(&self) -> &'a [SectionHeader64<LE>] {
        match self.sections.split_first() {
            Some((first, rest)) if first.sh_type.get(LE) == elf::SHT_NULL => rest,
            _ => self.sections,
        }
    }

    /// Address of the `index`-th section in the image: its own, or, in relocatable objects, the next
    /// one with its alignment after all before it.
    pub(super) fn placed(&self, index: usize) -> Option<u64> {
        let wanted = self.sections.get(index)?;
        if wanted.sh_addr.get(LE) != 0 {
            return Some(wanted.sh_addr.get(LE));
        }
        let mut end = self.fixed_end();
        for (i, s) in self.sections.iter().enumerate() {
            if !is_loaded(s) || s.sh_addr.get(LE) != 0 {
                continue;
            }
            let start = place_after(s, &mut end)?;
            if i == index {
                return Some(start);
            }
        }
        None
    }

    /// End of the sections that have an address.
    fn fixed_end(&self) -> u64 {
        let fixed = self.sections.iter().filter(|s| is_loaded(s) && s.sh_addr.get(LE) != 0);
        fixed.map(|s| s.sh_addr.get(LE).saturating_add(s.sh_size.get(LE))).max().unwrap_or(0)
    }

    pub(super) fn section_address(&self, name: &str) -> Option<u64> {
        let index = self.sections.iter().position(|s| is_loaded(s) && self.name(s) == name)?;
        self.placed(index)
    }

    /// What to load, without regard to mistakes; [`Tables::check_image`] finds those.
    pub(super) fn segments(&self) -> impl Iterator<Item = Segment<'a>> + use<'a> {
        let tables = *self;
        let from_headers = self.segments.iter().filter(|p| p.p_type.get(LE) == elf::PT_LOAD).map(move |p| {
            let offset = p.p_offset.get(LE);
            let flags = p.p_flags.get(LE).0;
            Segment {
                vaddr: p.p_vaddr.get(LE),
                size: p.p_memsz.get(LE),
                data: tables.data.read_bytes_at(offset, p.p_filesz.get(LE)).unwrap_or(&[]),
                offset,
                executable: flags & 1 != 0,
                writable: flags & 2 != 0,
                flags,
                align: p.p_align.get(LE),
            }
        });
        // One pass, as `placed` does it for one section: objects may have thousands.
        let sections: &[SectionHeader64<LE>] = if self.segments.is_empty() { self.sections } else { &[] };
        let mut end = self.fixed_end();
        let from_sections = sections.iter().filter(|s| is_loaded(s)).map(move |s| {
            let (addr, size) = (s.sh_addr.get(LE), s.sh_size.get(LE));
            // Where nothing fits any more, the check of the image finds that the end overflows.
            let vaddr = if addr != 0 { addr } else { place_after(s, &mut end).unwrap_or(u64::MAX) };
            let flags = s.sh_flags.get(LE).0;
            Segment {
                vaddr,
                size,
                data: section_data(tables.data, s).unwrap_or(&[]),
                offset: s.sh_offset.get(LE),
                executable: flags & 4 != 0,
                writable: flags & 1 != 0,
                flags: 0,
                align: s.sh_addralign.get(LE),
            }
        });
        from_headers.chain(from_sections)
    }

    /// Checks everything that is loaded and returns the size of the image.
    pub(super) fn check_image(&self) -> Result<u64, ProgramError> {
        let len = self.data.len() as u64;
        for p in self.segments.iter().filter(|p| p.p_type.get(LE) == elf::PT_LOAD) {
            let (offset, size) = (p.p_offset.get(LE), p.p_filesz.get(LE));
            if self.data.read_bytes_at(offset, size).is_err() {
                return Err(ProgramError::OutOfFile { what: "a PT_LOAD segment", offset, size, len });
            }
            if size > p.p_memsz.get(LE) {
                let vaddr = p.p_vaddr.get(LE);
                return Err(ProgramError::Segment { vaddr, why: "p_filesz is larger than p_memsz" });
            }
        }
        for s in self.sections.iter().filter(|s| self.segments.is_empty() && is_loaded(s)) {
            let (offset, size) = (s.sh_offset.get(LE), s.sh_size.get(LE));
            if section_data(self.data, s).is_none() {
                return Err(ProgramError::OutOfFile { what: "an allocated section", offset, size, len });
            }
        }
        let loaded = self.segments().count();
        if loaded > MAX_SEGMENTS {
            return Err(ProgramError::Field {
                field: "number of allocated sections",
                value: loaded as u64,
                why: "at most 256 are loaded; link the object",
            });
        }
        let mut image = 0u64;
        let mut any = false;
        for (i, s) in self.segments().enumerate() {
            any = true;
            let why = |why| ProgramError::Segment { vaddr: s.vaddr, why };
            let end = s.vaddr.checked_add(s.size).ok_or(why("address and size overflow 64 bits"))?;
            image = image.max(end);
            if end > MAX_IMAGE {
                return Err(ProgramError::ImageTooLarge { size: end, max: MAX_IMAGE });
            }
            let overlaps = self.segments().take(i).any(|o| {
                s.size > 0 && o.size > 0 && s.vaddr < o.vaddr.saturating_add(o.size) && o.vaddr < end
            });
            if overlaps {
                return Err(why("it overlaps another one"));
            }
        }
        if any && image > 0 { Ok(image) } else { Err(ProgramError::NothingToLoad) }
    }

    /// Checks every symbol table.
    pub(super) fn check_symbols(&self) -> Result<(), ProgramError> {
        for s in self.sections.iter().filter(|s| is_symbol_table(s)) {
            let entsize = s.sh_entsize.get(LE);
            if entsize != size_of::<Sym64<LE>>() as u64 {
                return Err(ProgramError::Field {
                    field: "sh_entsize of a symbol table",
                    value: entsize,
                    why: "symbols have 24 bytes",
                });
            }
            let (offset, size) = (s.sh_offset.get(LE), s.sh_size.get(LE));
            let len = self.data.len() as u64;
            if section_data(self.data, s).is_none() {
                return Err(ProgramError::OutOfFile { what: "a symbol table", offset, size, len });
            }
            let link = s.sh_link.get(LE);
            let strings = self.sections.get(link as usize);
            if strings.is_none_or(|t| section_data(self.data, t).is_none()) {
                return Err(ProgramError::Field {
                    field: "sh_link of a symbol table",
                    value: link as u64,
                    why: "it is not a string table inside the file",
                });
            }
        }
        Ok(())
    }

    /// Symbols of the section with this number, and their strings.
    pub(super) fn symbol_table(&self, index: usize) -> Option<(&'a [Sym64<LE>], &'a [u8])> {
        let section = self.sections.get(index).filter(|s| is_symbol_table(s))?;
        let count = section.sh_size.get(LE) / size_of::<Sym64<LE>>() as u64;
        let symbols =
            self.data.read_slice_at(section.sh_offset.get(LE), usize::try_from(count).ok()?).ok()?;
        let strings = self.sections.get(section.sh_link.get(LE) as usize)?;
        Some((symbols, section_data(self.data, strings)?))
    }

    /// Address of a symbol: in relocatable objects its value is relative to its section.
    pub(super) fn symbol_address(&self, sym: &Sym64<LE>) -> Option<u64> {
        let value = sym.st_value.get(LE);
        if self.header.e_type.get(LE) != elf::ET_REL || sym.st_shndx.get(LE) == elf::SHN_ABS {
            return Some(value);
        }
        self.placed(sym.st_shndx.get(LE).0 as usize)?.checked_add(value)
    }

    fn table_symbols(&self, index: usize) -> impl Iterator<Item = Symbol<'a>> + use<'a> {
        let tables = *self;
        let (symbols, strings) = self.symbol_table(index).unwrap_or((&[], &[]));
        symbols.iter().filter(|s| s.st_shndx.get(LE) != elf::SHN_UNDEF).filter_map(move |s| {
            let name = string_at(strings, s.st_name.get(LE))?;
            Some(Symbol { name, value: tables.symbol_address(s)?, size: s.st_size.get(LE) })
        })
    }

    /// The table that names kernels: the complete one, else the one for dynamic linking.
    fn kernel_table(&self) -> usize {
        let has_kernels = |i: &usize| self.table_symbols(*i).any(|s| s.name.ends_with(".kd"));
        let of = |kind| {
            let matching = self.sections.iter().enumerate().filter(move |(_, s)| s.sh_type.get(LE) == kind);
            matching.map(|(i, _)| i).find(has_kernels)
        };
        of(elf::SHT_SYMTAB).or_else(|| of(elf::SHT_DYNSYM)).unwrap_or(usize::MAX)
    }

    /// Symbols `NAME.kd`, named `NAME`.
    pub(super) fn kernel_symbols(&self) -> impl Iterator<Item = Symbol<'a>> + use<'a> {
        self.table_symbols(self.kernel_table())
            .filter_map(|s| Some(Symbol { name: s.name.strip_suffix(".kd")?, ..s }))
    }

    /// Bytes of the function of this name.
    pub(super) fn function_size(&self, name: &str) -> Option<u64> {
        if name.is_empty() {
            return None;
        }
        self.table_symbols(self.kernel_table()).find(|s| s.name == name).map(|s| s.size)
    }

    /// Notes of the `PT_NOTE` segments, or of note sections where there are no segments.
    pub(super) fn notes(&self) -> impl Iterator<Item = Result<Note<'a>, ProgramError>> + use<'a> {
        let data = self.data;
        let by_section = self.segments.is_empty();
        let segments = self
            .segments
            .iter()
            .filter(|p| p.p_type.get(LE) == elf::PT_NOTE)
            .map(|p| (p.p_offset.get(LE), p.p_filesz.get(LE)));
        let sections = self
            .sections
            .iter()
            .filter(move |s| by_section && s.sh_type.get(LE) == elf::SHT_NOTE)
            .map(|s| (s.sh_offset.get(LE), s.sh_size.get(LE)));
        segments.chain(sections).flat_map(move |(offset, size)| notes_in(data, offset, size))
    }
}

fn notes_in(data: &[u8], start: u64, size: u64) -> impl Iterator<Item = Result<Note<'_>, ProgramError>> {
    let len = data.len() as u64;
    let end = start.checked_add(size).filter(|e| *e <= len);
    let mut error =
        end.is_none().then_some(ProgramError::OutOfFile { what: "a note segment", offset: start, size, len });
    let end = end.unwrap_or(start);
    let mut at = start;
    core::iter::from_fn(move || {
        if let Some(e) = error.take() {
            return Some(Err(e));
        }
        // Less than a header is padding.
        if end.saturating_sub(at) < size_of::<NoteHeader64<LE>>() as u64 {
            return None;
        }
        let note = note_at(data, at, end);
        at = match &note {
            Ok((_, next)) => *next,
            Err(_) => end,
        };
        Some(note.map(|(n, _)| n))
    })
}

/// The note at an offset, and where the next one starts.
fn note_at(data: &[u8], offset: u64, end: u64) -> Result<(Note<'_>, u64), ProgramError> {
    let bad = |why| ProgramError::Note { offset, why };
    let header: &NoteHeader64<LE> = data.read_at(offset).map_err(|()| bad("its header is cut off"))?;
    let head = offset.saturating_add(size_of::<NoteHeader64<LE>>() as u64);
    let (name_len, desc_len) = (header.n_namesz.get(LE) as u64, header.n_descsz.get(LE) as u64);
    let desc = head.saturating_add(name_len.next_multiple_of(4));
    let desc_end = desc.saturating_add(desc_len);
    if desc_end > end {
        return Err(bad("its description ends after its segment"));
    }
    let name = data.read_bytes_at(head, name_len).map_err(|()| bad("its name is cut off"))?;
    let name = name.split(|b| *b == 0).next().unwrap_or(&[]);
    let note = Note {
        name: core::str::from_utf8(name).unwrap_or(""),
        kind: header.n_type.get(LE).0,
        offset,
        data: data.read_bytes_at(desc, desc_len).map_err(|()| bad("its description is cut off"))?,
    };
    Ok((note, desc.saturating_add(desc_len.next_multiple_of(4))))
}

/// Address of a section placed after `end`, which becomes its own end; `None` beyond 64 bits.
fn place_after(s: &SectionHeader64<LE>, end: &mut u64) -> Option<u64> {
    let align = s.sh_addralign.get(LE).clamp(1, 1 << 20);
    let start = end.checked_next_multiple_of(align)?;
    *end = start.checked_add(s.sh_size.get(LE))?;
    Some(start)
}

fn is_symbol_table(s: &SectionHeader64<LE>) -> bool {
    matches!(s.sh_type.get(LE), elf::SHT_SYMTAB | elf::SHT_DYNSYM)
}

/// Allocated contents (`SHF_ALLOC`), zeros included.
fn is_loaded(s: &SectionHeader64<LE>) -> bool {
    s.sh_flags.get(LE).0 & 2 != 0 && matches!(s.sh_type.get(LE), elf::SHT_PROGBITS | elf::SHT_NOBITS)
}

/// Contents of a section; `None` if they do not lie in the file.
pub(super) fn section_data<'a>(data: &'a [u8], s: &SectionHeader64<LE>) -> Option<&'a [u8]> {
    if s.sh_type.get(LE) == elf::SHT_NOBITS {
        return Some(&[]);
    }
    data.read_bytes_at(s.sh_offset.get(LE), s.sh_size.get(LE)).ok()
}

/// A string of a string table; `None` if it does not end there, is longer than [`MAX_NAME`] or not UTF-8.
pub(super) fn string_at(table: &[u8], offset: u32) -> Option<&str> {
    let rest = table.get(offset as usize..)?;
    let rest = rest.get(..MAX_NAME).unwrap_or(rest);
    let end = rest.iter().position(|b| *b == 0)?;
    core::str::from_utf8(rest.get(..end)?).ok()
}
