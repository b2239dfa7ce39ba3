//! Which files a command means.

use std::path::{Path, PathBuf};

/// The file's name without `.gz` and without the extension.
pub(crate) fn stem(path: &Path) -> String {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned()
}

/// The extension, `.gz` left out.
fn extension(path: &Path) -> String {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    name.rsplit_once('.').map_or("", |(_, extension)| extension).to_owned()
}

/// Files as given; of folders, and of folders in them, those with the extension whose stem fits.
/// A file that is not there but packed is that one.
///
/// # Errors
/// One line for each path that does not exist or cannot be read, and for folders without such files.
pub(crate) fn expand(
    paths: &[PathBuf],
    ext: &str,
    fits: &dyn Fn(&str) -> bool,
) -> (Vec<PathBuf>, Vec<String>) {
    let (mut files, mut errors) = (Vec::new(), Vec::new());
    for path in paths {
        if path.is_dir() {
            let before = files.len();
            if let Err(e) = walk(path, ext, fits, &mut files, 0) {
                errors.push(e);
            } else if files.len() == before {
                errors.push(format!("{}: no file in it fits this command", path.display()));
            }
        } else if path.is_file() {
            files.push(path.clone());
        } else {
            let packed = PathBuf::from(format!("{}.gz", path.display()));
            if packed.is_file() {
                files.push(packed);
            } else {
                errors.push(format!("{}: no such file", path.display()));
            }
        }
    }
    (files, errors)
}

/// Devices' folders stand beside each other in one; nothing stands deeper.
const DEEPEST: usize = 2;

fn walk(
    dir: &Path,
    ext: &str,
    fits: &dyn Fn(&str) -> bool,
    files: &mut Vec<PathBuf>,
    depth: usize,
) -> Result<(), String> {
    let error = |e: std::io::Error| format!("{}: {e}", dir.display());
    let mut entries: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(error)? {
        entries.push(entry.map_err(error)?.path());
    }
    entries.sort();
    for path in entries {
        if path.is_dir() {
            if depth < DEEPEST {
                walk(&path, ext, fits, files, depth + 1)?;
            }
        } else if extension(&path) == ext && fits(&stem(&path)) {
            files.push(path);
        }
    }
    Ok(())
}
