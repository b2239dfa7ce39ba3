//! The committed seeds of every fuzz target, and all small code objects, go through the targets'
//! bodies: what fuzzing found stays found.

use amdev_tests::fuzz::{self, MEMORY_LIMIT, TARGETS, alloc};
use amdev_tests::root;
use std::path::{Path, PathBuf};

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

fn files(dir: &Path) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut out: Vec<_> = listed.map(|e| e.unwrap().path()).filter(|p| p.is_file()).collect();
    out.sort();
    out
}

fn replay(target: &str, path: &Path) {
    let bytes = amdev_tests::read(path).unwrap();
    let result = std::panic::catch_unwind(|| fuzz::run(target, &bytes));
    assert!(result.is_ok(), "{target} fails on {}", path.display());
}

#[test]
fn every_target_passes_its_seeds() {
    let mut count = 0;
    for target in TARGETS {
        let seeds = files(&root().join("fuzz/seeds").join(target.name));
        assert!(seeds.len() >= 5, "{} has {} seeds", target.name, seeds.len());
        // A fuzzer's first input, which no file holds.
        fuzz::run(target.name, &[]);
        seeds.iter().for_each(|seed| replay(target.name, seed));
        count += seeds.len();
    }
    amdev_tests::summary("fuzz-seeds", count, count, 0);
}

/// There is one program for each body and the other way round.
#[test]
fn every_body_is_a_fuzz_target() {
    let programs = files(&root().join("fuzz/fuzz_targets"));
    let mut names: Vec<_> =
        programs.iter().map(|p| p.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    let mut expected: Vec<_> = TARGETS.iter().map(|t| t.name.to_owned()).collect();
    names.sort();
    expected.sort();
    assert_eq!(names, expected);
    let manifest = std::fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
    for name in names {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is not built");
        let program = std::fs::read_to_string(root().join(format!("fuzz/fuzz_targets/{name}.rs"))).unwrap();
        assert!(program.contains(&format!("run(\"{name}\", data)")), "{name} runs another body");
    }
}

#[test]
fn all_code_objects_pass_the_body_of_their_target() {
    let all = ["co", "malformed", "real/co"].map(|d| files(&root().join("corpus").join(d))).concat();
    let small = |p: &&PathBuf| p.extension().is_some_and(|e| e == "co");
    let objects: Vec<_> = all.iter().filter(small).collect();
    assert!(objects.len() > 100, "{}", objects.len());
    objects.iter().for_each(|o| replay("code_object", o));
}

#[test]
fn memory_is_counted() {
    let peak = alloc::peak(|| drop(std::hint::black_box(vec![0u8; MEMORY_LIMIT])));
    assert!((MEMORY_LIMIT..MEMORY_LIMIT + 4096).contains(&peak), "{peak}");
    let peak = alloc::peak(|| {
        for _ in 0..10 {
            drop(std::hint::black_box(vec![0u8; 1 << 20]));
        }
    });
    assert!((1 << 20..1 << 21).contains(&peak), "one after the other is no more: {peak}");
}
