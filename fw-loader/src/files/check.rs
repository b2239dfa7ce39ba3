//! What `amdev fw list` and `amdev fw check` say about a device's files.

use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::{FindError, SearchPath};
use crate::error::Problem;
use crate::pinned::PINNED;
use crate::{File, FileKind, FileName, Versions};

/// How a file relates to the pinned versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pin {
    /// It is the file of these packages.
    Known(&'static [&'static str]),
    /// Files of this name are pinned, but not this one.
    Other,
    /// No file of this name is pinned.
    Unpinned,
}

/// One file that a device needs.
#[derive(Debug)]
pub struct FileReport {
    /// What it is for.
    pub kind: FileKind,
    /// Its name.
    pub name: FileName,
    /// Where it was found.
    pub path: Option<PathBuf>,
    /// Its length in bytes, unpacked.
    pub len: u64,
    /// SHA-256 of its unpacked contents, lower-case hexadecimal.
    pub sha256: String,
    /// How it relates to the pinned versions.
    pub pin: Pin,
    /// Its checked header and images, or what is wrong, in one line.
    pub file: Result<File, String>,
}

/// SHA-256 in lower-case hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// Looks at every file that a device needs; never fails as a whole.
pub fn check(versions: Versions, path: &SearchPath) -> Vec<FileReport> {
    versions.files().iter().map(|kind| check_file(versions, *kind, path)).collect()
}

fn check_file(versions: Versions, kind: FileKind, path: &SearchPath) -> FileReport {
    let name = versions.file_name(kind);
    let failed = |name: FileName, path, reason| FileReport {
        kind,
        name,
        path,
        len: 0,
        sha256: String::new(),
        pin: Pin::Unpinned,
        file: Err(reason),
    };
    let found = match path.find(&name) {
        Ok(found) => found,
        Err(e) => {
            let path = if let FindError::NotRegular { path } = &e { Some(path.clone()) } else { None };
            return failed(name, path, e.to_string());
        }
    };
    let bytes = match read_file(&found) {
        Ok(bytes) => bytes,
        Err(e) => return failed(name, Some(found), e.to_string()),
    };
    let sha256 = sha256_hex(&bytes);
    let mut pin = Pin::Unpinned;
    for pinned in PINNED.iter().filter(|p| p.file == name.as_str()) {
        if pinned.sha256 == sha256 {
            pin = Pin::Known(pinned.packages);
            break;
        }
        pin = Pin::Other;
    }
    let file = File::parse(kind, &bytes)
        .and_then(|file| intact(&file, &bytes).map(|()| file))
        .map_err(|p| format!("firmware {name}: {p}"));
    FileReport { kind, name, path: Some(found), len: bytes.len() as u64, sha256, pin, file }
}

/// Where the common header ends that `crc32` closes.
const CRC_FROM: usize = size_of::<crate::wire::CommonHeader>();

/// Whether a file has what a boot needs, and is as its maker left it. Nobody documents `crc32`: of
/// linux-firmware's files those of SOS, IMU, SDMA and the RS64 engines hold the CRC-32 (as of zlib) of
/// all bytes behind it there; those of SMU, RLC and TOC hold something else. 0 is none.
fn intact(file: &File, bytes: &[u8]) -> Result<(), Problem> {
    if let Some(component) = file.missing_component() {
        return Err(Problem::Missing(component));
    }
    let header = file.header.crc32.get();
    if header == 0 || matches!(file.kind, FileKind::Smu | FileKind::Rlc | FileKind::Toc) {
        return Ok(());
    }
    let found = crc32fast::hash(bytes.get(CRC_FROM..).unwrap_or_default());
    if found == header { Ok(()) } else { Err(Problem::Checksum { header, found }) }
}

/// The contents of a file, unpacked.
fn read_file(path: &std::path::Path) -> Result<Vec<u8>, super::FindError> {
    use embedded_io::Read;
    let mut source = super::Source::open(path.to_owned())?;
    let mut bytes = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        match source.read(&mut piece) {
            Ok(0) => return Ok(bytes),
            Ok(n) => bytes.extend_from_slice(piece.get(..n).unwrap_or(&[])),
            Err(e) => return Err(super::FindError::Read { path: path.to_owned(), source: e }),
        }
        // The length was checked before; the file may grow meanwhile.
        if bytes.len() as u64 > crate::MAX_FILE {
            return Err(super::FindError::TooLarge { path: path.to_owned() });
        }
    }
}
