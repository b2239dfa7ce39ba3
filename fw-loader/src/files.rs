//! Firmware files in folders: where they are looked for, unpacked and checked.

use std::path::{Path, PathBuf};

use embedded_io::{ErrorType, Read, Seek, SeekFrom};

use crate::{FirmwareSet, Memory, OpenError, Versions};

mod check;
mod unpack;

pub use check::{FileReport, Pin, check, sha256_hex};
pub use unpack::unpack;

/// Why a file could not be found or read.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// It is in none of the folders.
    #[error(
        "firmware amdgpu/{name} is in none of {}; install firmware-amd-graphics (Debian), amd-gpu-firmware (Fedora) or linux-firmware, or name a folder with --firmware DIR",
        list(.dirs)
    )]
    NotFound {
        /// Name of the file.
        name: String,
        /// The folders tried, in order.
        dirs: Vec<PathBuf>,
    },
    /// Its name is there, but as a folder, a device, or a link to nothing.
    #[error("{}: no regular file; put the firmware file itself there", .path.display())]
    NotRegular {
        /// What has the name.
        path: PathBuf,
    },
    /// It is there but cannot be read.
    #[error("{}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is too large for a firmware file.
    #[error("{}: more than 16 MiB, which no firmware file has", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be decompressed.
    #[error("{}: cannot be decompressed: {reason}", .path.display())]
    Unpack {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

fn list(dirs: &[PathBuf]) -> String {
    let dirs: Vec<String> = dirs.iter().map(|d| d.display().to_string()).collect();
    dirs.join(", ")
}

/// Folders with firmware files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SearchPath {
    dirs: Vec<PathBuf>,
}

impl SearchPath {
    /// The folders that Linux's firmware loader searches, in its order: `updates/KERNEL`,
    /// `updates`, `KERNEL`, then the base folder, each below `/lib/firmware`; then
    /// `/usr/lib/firmware` for systems without that link.
    pub fn system() -> Self {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self::below(&[Path::new("/lib/firmware"), Path::new("/usr/lib/firmware")], release.trim())
    }

    /// The same order below other base folders; without a kernel release if it is empty.
    pub fn below(bases: &[&Path], kernel_release: &str) -> Self {
        let mut dirs = Vec::new();
        for base in bases {
            let updates = base.join("updates");
            if !kernel_release.is_empty() {
                dirs.push(updates.join(kernel_release));
            }
            dirs.push(updates);
            if !kernel_release.is_empty() {
                dirs.push(base.join(kernel_release));
            }
            dirs.push(base.to_path_buf());
        }
        SearchPath { dirs: dirs.into_iter().map(|d| d.join("amdgpu")).collect() }
    }

    /// Only these folders; each holds the files itself or in a folder `amdgpu`.
    pub fn only<P: AsRef<Path>>(dirs: &[P]) -> Self {
        let both = |d: &P| [d.as_ref().to_path_buf(), d.as_ref().join("amdgpu")];
        SearchPath { dirs: dirs.iter().flat_map(both).collect() }
    }

    /// These folders if there are any, else the system's: what `--firmware DIR` means.
    pub fn given_or_system<P: AsRef<Path>>(dirs: &[P]) -> Self {
        if dirs.is_empty() { Self::system() } else { Self::only(dirs) }
    }

    /// The folders, in the order in which they are searched.
    pub fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// Finds a file: plain in any folder, else as `.zst`, else as `.xz`, as Linux does.
    pub fn find(&self, name: &str) -> Result<PathBuf, FindError> {
        for suffix in ["", ".zst", ".xz"] {
            let name = format!("{name}{suffix}");
            if let Some(path) = self.dirs.iter().map(|d| d.join(&name)).find(|p| p.is_file()) {
                return Ok(path);
            }
        }
        let names = ["", ".zst", ".xz"].map(|suffix| format!("{name}{suffix}"));
        let mut places = names.iter().flat_map(|name| self.dirs.iter().map(move |d| d.join(name)));
        // What has the name and is no file: nobody means to have no firmware by it.
        if let Some(path) = places.find(|p| p.symlink_metadata().is_ok()) {
            return Err(FindError::NotRegular { path });
        }
        Err(FindError::NotFound { name: name.to_owned(), dirs: self.dirs.clone() })
    }

    /// Finds and opens a file; a compressed one is unpacked into memory.
    pub fn open(&self, name: &str) -> Result<Source, FindError> {
        Source::open(self.find(name)?)
    }
}

/// An open firmware file.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Plain(std::fs::File),
    Memory(Memory<Vec<u8>>),
}

impl Source {
    /// Opens a file; one whose name ends in `.xz` or `.zst` is unpacked into memory.
    pub fn open(path: PathBuf) -> Result<Self, FindError> {
        let read = |source| FindError::Read { path: path.clone(), source };
        // Before it is opened: opening a FIFO waits for its writer.
        if !std::fs::metadata(&path).map_err(read)?.is_file() {
            return Err(FindError::NotRegular { path });
        }
        let file = std::fs::File::open(&path).map_err(read)?;
        if file.metadata().map_err(read)?.len() > crate::MAX_FILE {
            return Err(FindError::TooLarge { path });
        }
        let packed = path.extension().is_some_and(|e| e == "xz" || e == "zst");
        let inner = if packed { Inner::Memory(Memory::new(unpack(&path)?)) } else { Inner::Plain(file) };
        Ok(Source { path, inner })
    }

    /// A file that is in memory, under a name for messages.
    pub fn from_bytes(name: impl Into<PathBuf>, bytes: Vec<u8>) -> Self {
        Source { path: name.into(), inner: Inner::Memory(Memory::new(bytes)) }
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl ErrorType for Source {
    type Error = std::io::Error;
}

impl Read for Source {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, std::io::Error> {
        match &mut self.inner {
            Inner::Plain(file) => std::io::Read::read(file, buf),
            Inner::Memory(memory) => memory.read(buf).map_err(std::io::Error::other),
        }
    }
}

impl Seek for Source {
    fn seek(&mut self, pos: SeekFrom) -> Result<u64, std::io::Error> {
        match &mut self.inner {
            Inner::Plain(file) => std::io::Seek::seek(file, pos.into()),
            Inner::Memory(memory) => memory.seek(pos).map_err(std::io::Error::other),
        }
    }
}

impl FirmwareSet<Source> {
    /// Opens and checks every file that a device needs.
    pub fn from_dirs(versions: Versions, path: &SearchPath) -> Result<Self, OpenError<FindError>> {
        FirmwareSet::open(versions, |_, name| path.open(name))
    }
}
