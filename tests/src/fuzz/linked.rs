//! A linked code object from its plain representation, as a linker lays it out.

use amdev_core::program::KernelDescriptor;

use super::Tree;

/// A kernel of a [`Linked`] object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkedKernel {
    /// Its name.
    pub name: String,
    /// Its descriptor; the entry is filled in when it is written.
    pub descriptor: KernelDescriptor,
    /// Its instructions.
    pub code: Vec<u8>,
}

/// A shared object with kernels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Linked {
    /// `e_flags`: the processor and its features.
    pub flags: u32,
    /// Code object version, 3 to 6.
    pub version: u8,
    /// The kernels.
    pub kernels: Vec<LinkedKernel>,
    /// What the note says.
    pub metadata: Option<Tree>,
}

/// Distance between the file offset of the code and its address: segments start in pages of their own.
const PAGE: u64 = 0x1000;
/// ELF header and three program headers.
const HEADERS: usize = 64 + 3 * 56;

#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn align(&mut self, to: usize) -> u64 {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
        self.0.len() as u64
    }

    fn halves(&mut self, values: &[u16]) {
        values.iter().for_each(|v| self.0.extend(v.to_le_bytes()));
    }

    fn words(&mut self, values: &[u32]) {
        values.iter().for_each(|v| self.0.extend(v.to_le_bytes()));
    }

    fn longs(&mut self, values: &[u64]) {
        values.iter().for_each(|v| self.0.extend(v.to_le_bytes()));
    }
}

/// Appends a string; returns where it starts.
fn string(table: &mut Vec<u8>, s: &str) -> u32 {
    let at = table.len() as u32;
    table.extend(s.bytes());
    table.push(0);
    at
}

impl Linked {
    /// Writes the file.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Out(vec![0; HEADERS]);
        let note = out.align(4);
        if let Some(tree) = &self.metadata {
            let mut desc = Vec::new();
            tree.emit(&mut desc);
            out.words(&[7, desc.len() as u32, 32]); // NT_AMDGPU_METADATA
            out.0.extend(b"AMDGPU\0\0");
            out.0.extend(desc);
        }
        let note_end = out.align(4);

        let rodata = out.align(64);
        let rodata_len = 64 * self.kernels.len() as u64;
        let text = (rodata + rodata_len).next_multiple_of(256);
        let mut code = Vec::new();
        let mut symbols = Out(vec![0; 24]);
        let mut strings = vec![0];
        for (n, kernel) in self.kernels.iter().enumerate() {
            code.resize(code.len().next_multiple_of(256), 0);
            let entry = text + PAGE + code.len() as u64;
            let descriptor = rodata + 64 * n as u64;
            code.extend(&kernel.code);
            let entry_offset = (entry - descriptor) as i64;
            out.0.extend(KernelDescriptor { entry_offset, ..kernel.descriptor }.emit());
            let name = string(&mut strings, &kernel.name);
            let kd = string(&mut strings, &format!("{}.kd", kernel.name));
            // Global function of section 3, global object of section 2.
            for (name, info, section, value, len) in
                [(name, 0x12, 3, entry, kernel.code.len() as u64), (kd, 0x11, 2, descriptor, 64)]
            {
                symbols.words(&[name]);
                symbols.0.extend([info, 0]);
                symbols.halves(&[section]);
                symbols.longs(&[value, len]);
            }
        }
        out.align(256);
        out.0.extend(&code);
        let text_len = code.len() as u64;

        let mut names = vec![0];
        let symtab = out.align(8);
        out.0.extend(&symbols.0);
        let strtab = out.0.len() as u64;
        out.0.extend(&strings);
        // Name, type, flags, address, offset, size, link and info, alignment, entry size.
        let mut sections = vec![
            ("", 0, 0, 0, 0, 0, 0, 0, 0),
            (".note", 7, 2, note, note, note_end - note, 0, 4, 0),
            (".rodata", 1, 2, rodata, rodata, rodata_len, 0, 64, 0),
            (".text", 1, 6, text + PAGE, text, text_len, 0, 256, 0),
            (".symtab", 2, 0, 0, symtab, symbols.0.len() as u64, 5 | 1 << 32, 8, 24),
            (".strtab", 3, 0, 0, strtab, strings.len() as u64, 0, 1, 0),
        ];
        let offsets: Vec<u32> = sections.iter().map(|s| string(&mut names, s.0)).collect();
        let own = string(&mut names, ".shstrtab");
        sections.push((".shstrtab", 3, 0, 0, out.0.len() as u64, names.len() as u64, 0, 1, 0));
        out.0.extend(&names);
        let table = out.align(8);
        for (n, (_, kind, flags, addr, offset, size, link_info, align, entsize)) in
            sections.iter().enumerate()
        {
            out.words(&[offsets.get(n).copied().unwrap_or(own), *kind]);
            out.longs(&[*flags, *addr, *offset, *size, *link_info, *align, *entsize]);
        }

        let mut head = Out(vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 64, self.version - 2, 0, 0, 0, 0, 0, 0, 0]);
        head.halves(&[3, 224]); // ET_DYN, EM_AMDGPU
        head.words(&[1]);
        head.longs(&[0, 64, table]);
        head.words(&[self.flags]);
        head.halves(&[64, 56, 3, 64, sections.len() as u16, sections.len() as u16 - 1]);
        // PT_LOAD readable, PT_LOAD readable and executable, PT_NOTE.
        for (kind, flags, offset, addr, size, align) in [
            (1, 4, 0, 0, rodata + rodata_len, PAGE),
            (1, 5, text, text + PAGE, text_len, PAGE),
            (4, 4, note, note, note_end - note, 4),
        ] {
            head.words(&[kind, flags]);
            head.longs(&[offset, addr, addr, size, size, align]);
        }
        out.0[..HEADERS].copy_from_slice(&head.0);
        out.0
    }
}
