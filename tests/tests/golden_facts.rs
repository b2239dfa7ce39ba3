//! Code objects are read as their recorded facts say.

use std::path::PathBuf;

use amdev_tests::{corpus, golden_facts, root};
use serde_json::Value;

fn dirs() -> Vec<PathBuf> {
    // Objects that may not be committed are used where they lie beside the repository.
    let beside = std::env::var_os("AMDEV_CORPUS_UNCOMMITTED").map(PathBuf::from);
    let beside = beside.unwrap_or_else(|| root().join("../../shared/corpus/uncommitted")).join("real");
    vec![root().join("corpus/co"), root().join("corpus/real/co"), beside]
}

fn check(name: &str) -> usize {
    let facts = corpus(name).unwrap();
    let (verdict, missing) = golden_facts::judge(&facts, &dirs()).unwrap();
    for file in &missing {
        println!("skipped: {file} is not here");
        assert!(file.starts_with("tinygrad."), "{file} should be here");
    }
    assert!(verdict.passed(), "{name}: {verdict}");
    verdict.matched
}

#[test]
fn all_own_objects_match_their_facts() {
    let mut objects = 0;
    for entry in std::fs::read_dir(root().join("corpus/facts")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        objects += check(&format!("facts/{name}"));
    }
    assert_eq!(objects, 163);
}

#[test]
fn all_real_objects_match_their_facts() {
    let objects = check("real/facts.json");
    assert!(objects >= 16, "{objects}");
}

#[test]
fn a_corrupted_fact_or_object_is_noticed() {
    let facts: Value = serde_json::from_slice(&corpus("facts/globals.json").unwrap()).unwrap();
    let changes: [(&str, Value); 8] = [
        ("/0/kernels/0/entry/vaddr", 6144.into()),
        ("/0/kernels/0/user_sgprs/1/1", 5.into()),
        ("/0/kernels/0/metadata/args/0/offset", 8.into()),
        ("/0/kernels/0/compute_pgm_rsrc3", 1.into()),
        ("/0/elf/image_sha256", "00".into()),
        ("/0/elf/image_sha256_relocated", "00".into()),
        ("/0/elf/relocations/3/sym", "other".into()),
        ("/0/elf/target", "gfx1031".into()),
    ];
    for (pointer, value) in changes {
        let mut changed = facts.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        let (verdict, _) = golden_facts::judge(changed.to_string().as_bytes(), &dirs()).unwrap();
        assert!(!verdict.passed(), "{pointer} was not noticed");
        assert_eq!(verdict.differences.len(), 1, "{verdict}");
    }
}
