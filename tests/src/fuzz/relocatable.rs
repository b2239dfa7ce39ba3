//! A relocatable object, made by hand.

use amdev_core::program::KernelDescriptor;

/// Name, type, flags, content, link, info, alignment, entry size.
type RawSection = (&'static str, u32, u64, Vec<u8>, u32, u32, u64, u64);

/// A relocatable object: `.text` with 256 bytes of code, `.rodata` with one descriptor, `.data` with
/// 32 bytes, relocations of `.data` and `.rodata`, and separate string tables for sections and symbols.
pub fn relocatable(data_relocations: &[(u64, u32, u32, i64)]) -> Vec<u8> {
    let mut strtab = vec![0u8];
    let string = |table: &mut Vec<u8>, s: &str| {
        let at = table.len() as u32;
        table.extend(s.bytes());
        table.push(0);
        at
    };
    let symbol = |name: u32, info: u8, section: u16, value: u64, size: u64| {
        let mut s = name.to_le_bytes().to_vec();
        s.extend([info, 0]);
        s.extend(section.to_le_bytes());
        s.extend(value.to_le_bytes());
        s.extend(size.to_le_bytes());
        s
    };
    let mut symtab = vec![0; 24];
    symtab.extend(symbol(string(&mut strtab, "k"), 0x12, 1, 0, 256)); // 1
    symtab.extend(symbol(string(&mut strtab, "k.kd"), 0x11, 2, 0, 64)); // 2
    symtab.extend(symbol(string(&mut strtab, "missing"), 0x10, 0, 0, 0)); // 3
    symtab.extend(symbol(string(&mut strtab, "table"), 0x11, 3, 8, 8)); // 4
    let rela = |list: &[(u64, u32, u32, i64)]| -> Vec<u8> {
        list.iter()
            .flat_map(|(offset, kind, sym, addend)| {
                let info = u64::from(*sym) << 32 | u64::from(*kind);
                [offset.to_le_bytes(), info.to_le_bytes(), addend.to_le_bytes()].concat()
            })
            .collect()
    };
    // As compilers do it: the entry is relative to the field's own descriptor.
    let descriptor = KernelDescriptor { kernarg_size: 8, properties: 1 << 3, ..Default::default() };
    let sections: Vec<RawSection> = vec![
        (".text", 1, 6, vec![0x7f; 256], 0, 0, 256, 0),
        (".rodata", 1, 2, descriptor.emit().to_vec(), 0, 0, 64, 0),
        (".data", 1, 3, vec![0; 32], 0, 0, 16, 0),
        (".rela.data", 4, 0x40, rela(data_relocations), 6, 3, 8, 24),
        (".rela.rodata", 4, 0x40, rela(&[(16, 5, 1, 16)]), 6, 2, 8, 24),
        (".symtab", 2, 0, symtab, 7, 1, 8, 24),
        (".strtab", 3, 0, strtab, 0, 0, 1, 0),
        (".shstrtab", 3, 0, Vec::new(), 0, 0, 1, 0),
    ];
    let mut names = vec![0u8];
    let mut body = vec![0u8; 64];
    let mut headers = vec![0u8; 64];
    let count = sections.len();
    let offsets: Vec<u32> = sections.iter().map(|s| string(&mut names, s.0)).collect();
    for (i, (_, kind, flags, content, link, info, align, entsize)) in sections.into_iter().enumerate() {
        let content = if i + 1 == count { names.clone() } else { content };
        body.resize(body.len().next_multiple_of(8), 0);
        for word in [offsets[i], kind] {
            headers.extend(word.to_le_bytes());
        }
        for word in [flags, 0, body.len() as u64, content.len() as u64] {
            headers.extend(word.to_le_bytes());
        }
        for word in [link, info] {
            headers.extend(word.to_le_bytes());
        }
        for word in [align, entsize] {
            headers.extend(word.to_le_bytes());
        }
        body.extend(content);
    }
    body.resize(body.len().next_multiple_of(8), 0);
    let table = body.len() as u64;
    body.extend(headers);
    let mut ident = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 64, 3, 0, 0, 0, 0, 0, 0, 0];
    ident.extend(1u16.to_le_bytes());
    ident.extend(224u16.to_le_bytes());
    ident.extend(1u32.to_le_bytes());
    for word in [0u64, 0, table] {
        ident.extend(word.to_le_bytes());
    }
    ident.extend(0x41u32.to_le_bytes());
    for half in [64u16, 56, 0, 64, count as u16 + 1, count as u16] {
        ident.extend(half.to_le_bytes());
    }
    body[..64].copy_from_slice(&ident);
    body
}
