//! Broken code objects are refused with an error that names the problem, quickly and without harm.

use amdev_core::program::CodeObject;
use amdev_tests::fuzz::{alloc, relocatable};
use amdev_tests::{corpus, golden_facts, root};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

#[test]
fn every_malformed_object_is_treated_as_expected() {
    let objects = [root().join("corpus/co")];
    let verdict = golden_facts::judge_reject_path(&root().join("corpus/malformed"), &objects).unwrap();
    assert!(verdict.passed(), "{verdict}");
    assert_eq!(verdict.total, 35);
}

#[test]
fn a_good_object_is_noticed_among_those_to_be_rejected() {
    let good = root().join("corpus/co/vecadd.gfx1100.v5.O2.co");
    let verdict = golden_facts::judge_reject_path(&good, &[]).unwrap();
    assert!(!verdict.passed());
}

/// What the error of each file must name.
#[test]
fn errors_name_the_problem() {
    let cases = [
        ("00-empty.co", "empty"),
        ("03-truncated-phdrs.co", "program header table"),
        ("07-elf32.co", "EI_CLASS"),
        ("09-machine-x86.co", "e_machine"),
        ("10-mach-unknown.co", "0xfe"),
        ("11-shoff-past-eof.co", "section header table"),
        ("17-sym-entsize-zero.co", "sh_entsize"),
        ("21-load-past-eof.co", "PT_LOAD"),
        ("22-load-filesz-gt-memsz.co", "p_memsz"),
        ("24-load-memsz-4gib.co", "image"),
        ("26-load-overlap.co", "overlaps"),
        ("28-kd-misaligned.co", "multiple of 64"),
        ("32-entry-outside-image.co", "executable"),
        ("36-kernarg-4gib.co", "kernarg_size"),
        ("37-group-1gib.co", "LDS"),
        ("40-note-huge-map.co", "elements"),
        ("42-note-deep-nesting.co", "deep"),
        ("43-note-descsz-past-end.co", "description"),
        ("45-reloc-offset-outside.co", "relocation"),
        ("46-reloc-unknown-type.co", "type 99"),
    ];
    for (file, word) in cases {
        let bytes = corpus(&format!("malformed/{file}")).unwrap();
        let error = CodeObject::parse(&bytes).map(drop).expect_err(file).to_string();
        assert!(error.contains(word), "{file}: {error:?} does not name {word:?}");
    }
}

/// Cutting a good object anywhere, or changing any byte of its tables, never panics.
#[test]
fn no_prefix_and_no_changed_byte_panics() {
    let good = corpus("co/globals.gfx1100.v5.O2.co").unwrap();
    for len in 0..good.len() {
        assert!(CodeObject::parse(&good[..len]).is_err() || len > 3000, "prefix {len}");
    }
    for at in 0..good.len() {
        for value in [0, 0xff, good[at] ^ 0x80, good[at].wrapping_add(1)] {
            let mut bad = good.clone();
            bad[at] = value;
            if let Ok(object) = CodeObject::parse(&bad) {
                assert!(object.image_size() <= amdev_core::program::MAX_IMAGE);
                for kernel in object.kernels() {
                    kernel.unwrap();
                }
            }
        }
    }
}

/// The core has no allocator; what little there is comes from making the message.
#[test]
fn refusing_an_object_needs_next_to_no_memory() {
    let mut seen = 0;
    for entry in std::fs::read_dir(root().join("corpus/malformed")).unwrap() {
        let path = entry.unwrap().path();
        if !path.extension().is_some_and(|e| e == "co" || e == "gz") {
            continue;
        }
        let bytes = amdev_tests::read(&path).unwrap();
        let peak = alloc::peak(|| {
            if let Err(e) = CodeObject::parse(&bytes) {
                drop(e.to_string());
            }
        });
        assert!(peak < 4096, "{}: {peak} bytes", path.display());
        seen += 1;
    }
    assert!(seen >= 35, "{seen}");
}

/// An object with `count` more sections of a type and flags, and of a size that the file need not hold.
fn with_sections(count: u16, kind: u32, flags: u64, size: u64) -> Vec<u8> {
    let mut file = relocatable(&[]);
    let mut header = vec![0; 64];
    header[4..8].copy_from_slice(&kind.to_le_bytes());
    header[8..16].copy_from_slice(&flags.to_le_bytes());
    header[32..40].copy_from_slice(&size.to_le_bytes());
    for _ in 0..count {
        file.extend(&header);
    }
    let number = u16::from_le_bytes([file[60], file[61]]) + count;
    file[60..62].copy_from_slice(&number.to_le_bytes());
    file
}

/// `SHT_NOBITS`.
const NOBITS: u32 = 8;

#[test]
fn thousands_of_allocated_sections_are_refused_at_once() {
    let file = with_sections(4000, NOBITS, 2, 16);
    let started = Instant::now();
    let error = CodeObject::parse(&file).map(drop).unwrap_err().to_string();
    assert!(error.contains("allocated sections"), "{error}");
    // Without a bound this took minutes. Generous, since other programs may want the processor.
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    CodeObject::parse(&with_sections(200, NOBITS, 2, 16)).map(drop).unwrap();
}

#[test]
fn a_section_whose_end_overflows_is_not_left_out_but_refused() {
    for size in [u64::MAX, u64::MAX - 0x1000, 1 << 63] {
        let error = CodeObject::parse(&with_sections(1, NOBITS, 2, size)).map(drop).unwrap_err().to_string();
        assert!(error.contains("overflow") || error.contains("image"), "{error}");
    }
}

#[test]
fn a_relocatable_object_with_too_much_to_relocate_is_refused_at_once() {
    let many: Vec<_> = (0..2_000_000).map(|_| (0, 0, 0, 0)).collect();
    CodeObject::parse(&relocatable(&many[..10_000])).map(drop).unwrap();
    let file = relocatable(&many);
    let kernels = 1;
    let sections = 8;
    assert!(many.len() * kernels * sections < 1 << 26, "the file as it is would be read");
    // The same symbol table serves for more kernels: each symbol `k.kd` counts.
    let file = more_kernels(file, 100);
    let started = Instant::now();
    let error = CodeObject::parse(&file).map(drop).unwrap_err().to_string();
    assert!(error.contains("link it"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

/// Appends a symbol table with `count` times the kernel, in place of the file's own.
fn more_kernels(mut file: Vec<u8>, count: usize) -> Vec<u8> {
    let number = |b: &[u8], at: usize| u64::from_le_bytes(b[at..at + 8].try_into().unwrap()) as usize;
    // The sixth section is the symbol table; its third symbol is the kernel's.
    let header = number(&file, 40) + 6 * 64;
    let symbols = number(&file, header + 24);
    let kernel = file[symbols + 48..symbols + 72].to_vec();
    let mut table = file[symbols..symbols + 120].to_vec();
    (0..count).for_each(|_| table.extend(&kernel));
    let at = file.len() as u64;
    file[header + 24..header + 32].copy_from_slice(&at.to_le_bytes());
    file[header + 32..header + 40].copy_from_slice(&(table.len() as u64).to_le_bytes());
    file.extend(table);
    file
}
