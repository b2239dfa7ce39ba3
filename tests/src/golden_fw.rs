//! Judges firmware slicing against the reference's (`golden/fw.json`).

use std::path::PathBuf;

/// Folders with unpacked firmware packages: what `AMDEV_FIRMWARE` names (separated by `:`), then
/// what `tests/fetch.sh firmware` has fetched, newest first. Each holds the files themselves.
pub fn firmware_dirs() -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> =
        std::env::var_os("AMDEV_FIRMWARE").iter().flat_map(std::env::split_paths).collect();
    let fetched = crate::root().join("../target/fetch/firmware");
    let mut packages: Vec<PathBuf> =
        std::fs::read_dir(fetched).into_iter().flatten().flatten().map(|e| e.path()).collect();
    packages.sort();
    dirs.extend(packages.into_iter().rev());
    dirs.into_iter()
        .map(|d| {
            let inner = d.join("amdgpu");
            if inner.is_dir() { inner } else { d }
        })
        .filter(|d| d.is_dir())
        .collect()
}
