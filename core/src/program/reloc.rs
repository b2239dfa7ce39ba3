//! Relocations: what has to change in an image when its load address is known.
//!
//! Linked objects need only absolute addresses; relocatable ones also relative ones. Types: LLVM's
//! AMDGPUUsage ("Relocation Records").

use object::LittleEndian as LE;
use object::elf::{self, Rela64, Sym64};

use super::bytes::Bytes as _;
use super::elf::{Tables, string_at};
use super::{Name, ProgramError};

/// A relocation as the file has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relocation<'a> {
    /// Name of its section.
    pub section: &'a str,
    /// Address it applies to, relative to the load address.
    pub offset: u64,
    /// Its type (`R_AMDGPU_*`).
    pub kind: u32,
    /// The symbol it refers to, if any.
    pub symbol: Option<&'a str>,
    /// The symbol's address; `None` if it is undefined.
    pub symbol_value: Option<u64>,
    /// What is added.
    pub addend: i64,
    /// The symbol is undefined and nobody insists on it.
    weak: bool,
}

/// A change to the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patch {
    /// Address, relative to the load address.
    pub offset: u64,
    /// Bytes: 4 or 8.
    pub len: u8,
    /// The value; its low `len` bytes are stored, little-endian.
    pub value: u64,
}

impl Patch {
    /// The bytes to store.
    pub fn bytes(&self) -> ([u8; 8], usize) {
        (self.value.to_le_bytes(), self.len as usize)
    }
}

impl Relocation<'_> {
    /// Name of the type, as in LLVM.
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            0 => "R_AMDGPU_NONE",
            1 => "R_AMDGPU_ABS32_LO",
            2 => "R_AMDGPU_ABS32_HI",
            3 => "R_AMDGPU_ABS64",
            4 => "R_AMDGPU_REL32",
            5 => "R_AMDGPU_REL64",
            6 => "R_AMDGPU_ABS32",
            7 => "R_AMDGPU_GOTPCREL",
            8 => "R_AMDGPU_GOTPCREL32_LO",
            9 => "R_AMDGPU_GOTPCREL32_HI",
            10 => "R_AMDGPU_REL32_LO",
            11 => "R_AMDGPU_REL32_HI",
            13 => "R_AMDGPU_RELATIVE64",
            _ => "R_AMDGPU_?",
        }
    }

    /// The change when loaded at `base`; `None` for `R_AMDGPU_NONE`.
    fn patch(&self, base: u64) -> Result<Option<Patch>, ProgramError> {
        let offset = self.offset;
        let symbol = || match (self.symbol_value, self.weak) {
            (Some(v), _) => Ok(base.wrapping_add(v)),
            (None, true) => Ok(0),
            (None, false) => {
                Err(ProgramError::UndefinedSymbol { name: Name::new(self.symbol.unwrap_or("")) })
            }
        };
        let absolute = || Ok::<_, ProgramError>(symbol()?.wrapping_add_signed(self.addend));
        // S + A - P, signed
        let relative = || Ok::<_, ProgramError>(absolute()?.wrapping_sub(base.wrapping_add(offset)));
        let (len, value) = match self.kind {
            0 => return Ok(None),
            3 => (8, absolute()?),
            4 => {
                let value = relative()? as i64;
                if i32::try_from(value).is_err() {
                    return Err(ProgramError::RelocationOverflow { offset, value });
                }
                (4, value as u64)
            }
            5 => (8, relative()?),
            10 => (4, relative()? & 0xffff_ffff),
            11 => (4, relative()? >> 32),
            13 => (8, base.wrapping_add_signed(self.addend)),
            kind => return Err(ProgramError::RelocationType { kind, offset }),
        };
        Ok(Some(Patch { offset, len, value }))
    }
}

/// All relocations that apply to loaded parts.
pub(super) fn relocations<'a>(
    tables: Tables<'a>,
) -> impl Iterator<Item = Result<Relocation<'a>, ProgramError>> + use<'a> {
    let relocatable = tables.header.e_type.get(LE) == elf::ET_REL || !tables.has_segments();
    let names = tables.sections();
    tables.named_sections().iter().zip(names).flat_map(move |(section, info)| {
        let kind = section.sh_type.get(LE);
        let target = if relocatable { tables.placed(section.sh_info.get(LE) as usize) } else { Some(0) };
        // In linked objects only those count that are loaded themselves; the linker may leave others.
        let counts = if relocatable { target.is_some() } else { info.flags & 2 != 0 };
        let (mut error, entries): (_, &[Rela64<LE>]) = match kind {
            elf::SHT_REL if counts => (
                Some(ProgramError::Field {
                    field: "sh_type of a section",
                    value: elf::SHT_REL.0 as u64,
                    why: "relocations without addends are not used for AMD GPUs",
                }),
                &[],
            ),
            elf::SHT_RELA if counts => {
                let each = size_of::<Rela64<LE>>() as u64;
                let count = usize::try_from(info.size / each).unwrap_or(usize::MAX);
                match tables.data.read_slice_at(info.offset, count) {
                    _ if info.entsize != each => (
                        Some(ProgramError::Field {
                            field: "sh_entsize of a relocation section",
                            value: info.entsize,
                            why: "relocations have 24 bytes",
                        }),
                        &[],
                    ),
                    Ok(entries) => (None, entries),
                    Err(()) => (
                        Some(ProgramError::OutOfFile {
                            what: "a relocation section",
                            offset: info.offset,
                            size: info.size,
                            len: tables.data.len() as u64,
                        }),
                        &[],
                    ),
                }
            }
            _ => (None, &[]),
        };
        let symbols = tables.symbol_table(section.sh_link.get(LE) as usize);
        let base = target.unwrap_or(0);
        let mut entries = entries.iter();
        core::iter::from_fn(move || {
            if let Some(e) = error.take() {
                return Some(Err(e));
            }
            entries.next().map(|r| relocation(&tables, info.name, base, symbols, r))
        })
    })
}

fn relocation<'a>(
    tables: &Tables<'a>,
    section: &'a str,
    base: u64,
    symbols: Option<(&'a [Sym64<LE>], &'a [u8])>,
    r: &Rela64<LE>,
) -> Result<Relocation<'a>, ProgramError> {
    let index = r.r_sym(LE, false);
    let mut out = Relocation {
        section,
        offset: base.wrapping_add(r.r_offset.get(LE)),
        kind: r.r_type(LE, false).0,
        symbol: None,
        symbol_value: None,
        addend: r.r_addend.get(LE),
        weak: false,
    };
    if index == 0 {
        out.weak = true; // no symbol: S is 0
        return Ok(out);
    }
    let (table, strings) = symbols.ok_or(ProgramError::NoSymbol { index })?;
    let sym = table.get(index as usize).ok_or(ProgramError::NoSymbol { index })?;
    out.symbol = Some(string_at(strings, sym.st_name.get(LE)).unwrap_or(""));
    if sym.st_shndx.get(LE) == elf::SHN_UNDEF {
        out.weak = sym.st_bind() == elf::STB_WEAK;
    } else {
        out.symbol_value = Some(tables.symbol_address(sym).ok_or(ProgramError::NoSymbol { index })?);
    }
    Ok(out)
}

/// Changes to an image of `size` bytes loaded at `base`.
pub(super) fn patches<'a>(
    tables: Tables<'a>,
    base: u64,
    size: u64,
) -> impl Iterator<Item = Result<Patch, ProgramError>> + use<'a> {
    relocations(tables).filter_map(move |r| match r.and_then(|r| r.patch(base)) {
        Ok(Some(p)) => {
            let end = p.offset.checked_add(p.len as u64);
            if end.is_some_and(|e| e <= size) {
                Some(Ok(p))
            } else {
                Some(Err(ProgramError::RelocationOutside { offset: p.offset, size }))
            }
        }
        Ok(None) => None,
        Err(e) => Some(Err(e)),
    })
}
