//! Broken code objects are refused with an error that names the problem, quickly and without harm.

use amdev_core::program::CodeObject;
use amdev_tests::{corpus, golden_facts, root};

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
