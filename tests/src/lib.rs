//! Shared helpers of the tests: where the data lies and how to read it.

pub mod e2e;
pub mod fuzz;
pub mod golden_cases;
pub mod golden_device;
pub mod golden_facts;
pub mod golden_fw;
pub mod golden_messages;
pub mod golden_program;
pub mod golden_pt;
pub mod golden_queues;
pub mod golden_regs;
pub mod golden_sim;
pub mod golden_tlsf;
pub mod golden_usb;
pub mod gpus;
pub mod replay;
pub mod table_memory;
pub mod usb;
pub mod usb_order;
pub mod verdict;

use std::io::Read;
use std::path::{Path, PathBuf};

/// The folder of this crate.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Reads a file; where it does not exist but `NAME.gz` does, that one, decompressed. A name that
/// ends in `.gz` is decompressed too.
pub fn read(path: impl AsRef<Path>) -> std::io::Result<Vec<u8>> {
    let path = path.as_ref();
    let gz = PathBuf::from(format!("{}.gz", path.display()));
    let (path, packed) = if path.exists() {
        (path, path.extension().is_some_and(|e| e == "gz"))
    } else {
        (gz.as_path(), true)
    };
    let bytes =
        std::fs::read(path).map_err(|e| std::io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
    if !packed {
        return Ok(bytes);
    }
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(bytes.as_slice()).read_to_end(&mut out)?;
    Ok(out)
}

/// Reads a file below `golden/`, for example `navi31/boot.jsonl`.
pub fn golden(name: &str) -> std::io::Result<Vec<u8>> {
    read(root().join("golden").join(name))
}

/// Reads a file below `corpus/`, for example `cases/vecadd.json`.
pub fn corpus(name: &str) -> std::io::Result<Vec<u8>> {
    read(root().join("corpus").join(name))
}

/// Prints a row for the summary table of `tests/run.sh`: how many things were compared, how many
/// are equal, how many differ for a listed reason. `name` has no spaces.
pub fn summary(name: &str, checked: usize, matched: usize, deviations: usize) {
    println!("summary: {name} checked={checked} matched={matched} deviations={deviations}");
}
