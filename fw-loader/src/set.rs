//! All firmware of one device, ready to be loaded.

use amdev_core::firmware::{FirmwareError, FirmwareSource, FwType, Image, ImageId, SosComponent, UcodeStart};
use embedded_io::{ErrorType, Read, Seek, SeekFrom};
use heapless::Vec;

use crate::error::{FileName, FwError, Problem};
use crate::names::Versions;
use crate::parse::{File, FileKind, HEAD, Piece, Role};
use crate::types::{self, type_name};

/// The most files of a device.
pub const MAX_FILES: usize = 8;
/// The most images of the `LOAD_IP_FW` list.
pub const MAX_IMAGES: usize = 16;

/// A file of a set.
#[derive(Debug)]
pub struct SetFile<R> {
    /// Its name.
    pub name: FileName,
    /// Its checked header.
    pub file: File,
    /// Its length in bytes.
    pub len: u64,
    source: R,
}

#[derive(Clone, Copy, Debug)]
struct Loaded {
    file: u8,
    piece: Piece,
    ty: FwType,
}

/// The firmware of one device: open files and the ranges of their images. No image is in memory.
#[derive(Debug)]
pub struct FirmwareSet<R> {
    versions: Versions,
    files: Vec<SetFile<R>, MAX_FILES>,
    smu: Loaded,
    images: Vec<Loaded, MAX_IMAGES>,
    start: UcodeStart,
}

/// Why a set could not be opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError<E> {
    /// A file could not be opened.
    #[error("{0}")]
    Open(E),
    /// A file is not right.
    #[error("{0}")]
    File(#[from] FwError),
}

/// An image in a listing.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// The file it is in.
    pub file: &'a str,
    /// What and where it is.
    pub piece: Piece,
    /// Whether it is loaded into the device.
    pub loaded: bool,
}

impl<R: Read + Seek> FirmwareSet<R> {
    /// Opens and checks every file that a device needs; `open` gets its kind and its name.
    pub fn open<E>(
        versions: Versions,
        mut open: impl FnMut(FileKind, &str) -> Result<R, E>,
    ) -> Result<Self, OpenError<E>> {
        let mut files: Vec<SetFile<R>, MAX_FILES> = Vec::new();
        for kind in versions.files() {
            let name = versions.file_name(kind);
            let source = open(kind, &name).map_err(OpenError::Open)?;
            let file = SetFile::new(kind, name, source)?;
            // `Versions::files` has at most as many.
            let _ = files.push(file);
        }
        Ok(Self::plan(versions, files)?)
    }

    /// Finds the images to load, in the order in which the PSP takes them.
    fn plan(versions: Versions, files: Vec<SetFile<R>, MAX_FILES>) -> Result<Self, FwError> {
        let find = |kind: FileKind, ty: FwType| -> Option<Loaded> {
            let (index, file) = files.iter().enumerate().find(|(_, f)| f.file.kind == kind)?;
            Some(Loaded { file: index as u8, piece: file.file.piece(Role::Ip(ty))?, ty })
        };
        let need = |kind: FileKind, ty: FwType| {
            let missing = || FwError {
                file: versions.file_name(kind),
                problem: Problem::Missing(type_name(ty).unwrap_or("firmware")),
            };
            find(kind, ty).ok_or_else(missing)
        };
        let smu = need(FileKind::Smu, types::SMU)?;

        let mut images = Vec::new();
        let mut put = |image: Loaded| {
            // The lists below have fewer entries than fit.
            let _ = images.push(image);
        };
        if let Some(th1) = find(FileKind::Sdma, types::SDMA_UCODE_TH1) {
            put(th1);
        }
        put(need(FileKind::Sdma, types::SDMA_UCODE_TH0)?);
        let engines = [
            (FileKind::Pfp, types::RS64_PFP, types::RS64_PFP_P0_STACK),
            (FileKind::Me, types::RS64_ME, types::RS64_ME_P0_STACK),
            (FileKind::Mec, types::RS64_MEC, types::RS64_MEC_P0_STACK),
        ];
        for (kind, program, stack) in engines {
            if files.iter().any(|f| f.file.kind == kind) {
                put(need(kind, program)?);
                put(need(kind, stack)?);
            }
        }
        put(need(FileKind::Imu, types::IMU_I)?);
        put(need(FileKind::Imu, types::IMU_D)?);
        put(need(FileKind::Rlc, types::RLC_IRAM)?);
        put(need(FileKind::Rlc, types::RLC_DRAM_BOOT)?);
        for ty in [types::RLC_P, types::RLC_V] {
            if let Some(image) = find(FileKind::Rlc, ty) {
                put(image);
            }
        }
        // RLC_G is last: the autoload starts after it.
        put(need(FileKind::Rlc, types::RLC_G)?);

        let start_of = |kind| files.iter().find(|f| f.file.kind == kind).and_then(|f| f.file.ucode_start);
        let start = UcodeStart {
            pfp: start_of(FileKind::Pfp),
            me: start_of(FileKind::Me),
            mec: start_of(FileKind::Mec),
        };
        let set = FirmwareSet { versions, files, smu, images, start };
        for file in &set.files {
            if let Some(component) = file.file.missing_component() {
                return Err(FwError { file: file.name.clone(), problem: Problem::Missing(component) });
            }
        }
        Ok(set)
    }

    /// What the set is for.
    pub fn versions(&self) -> Versions {
        self.versions
    }

    /// The files, in the order in which they are needed.
    pub fn files(&self) -> &[SetFile<R>] {
        &self.files
    }

    /// Every image of every file, also those that are not loaded.
    pub fn list(&self) -> impl Iterator<Item = Listed<'_>> {
        self.files.iter().enumerate().flat_map(move |(index, file)| {
            file.file.pieces.iter().map(move |piece| Listed {
                file: &file.name,
                piece: *piece,
                loaded: matches!(piece.role, Role::Sos(_))
                    || self
                        .images
                        .iter()
                        .chain([&self.smu])
                        .any(|l| l.file as usize == index && l.piece == *piece),
            })
        })
    }

    /// File and range of an image.
    pub fn locate(&self, id: ImageId) -> Option<(&str, Piece)> {
        let (file, piece) = self.range(id)?;
        Some((&self.files.get(file)?.name, piece))
    }

    fn sos_piece(&self, component: SosComponent) -> Option<(usize, Piece)> {
        let (index, file) = self.files.iter().enumerate().find(|(_, f)| f.file.kind == FileKind::Sos)?;
        Some((index, file.file.piece(Role::Sos(component))?))
    }

    fn range(&self, id: ImageId) -> Option<(usize, Piece)> {
        let of = |l: &Loaded| (l.file as usize, l.piece);
        match id {
            ImageId::Sos(component) => self.sos_piece(component),
            ImageId::Smu => Some(of(&self.smu)),
            ImageId::Ip(index) => self.images.get(index as usize).map(of),
        }
    }
}

impl<R> SetFile<R> {
    /// Where its bytes come from.
    pub fn source(&self) -> &R {
        &self.source
    }
}

impl<R: Read + Seek> SetFile<R> {
    fn new(kind: FileKind, name: FileName, mut source: R) -> Result<Self, FwError> {
        let parsed = source
            .seek(SeekFrom::End(0))
            .map_err(|_| Problem::Read { offset: 0, reason: "its length is not known" })
            .and_then(|len| {
                let mut head = [0; HEAD];
                let head_len = len.min(HEAD as u64) as usize;
                let head = head.get_mut(..head_len).unwrap_or(&mut []);
                read_at(&mut source, 0, head)?;
                let file =
                    File::parse_with(kind, head, len, |offset, buf| read_at(&mut source, offset, buf))?;
                Ok((file, len))
            });
        match parsed {
            Ok((file, len)) => Ok(SetFile { name, file, len, source }),
            Err(problem) => Err(FwError { file: name, problem }),
        }
    }
}

fn read_at<R: Read + Seek>(source: &mut R, offset: u64, buf: &mut [u8]) -> Result<(), Problem> {
    let fail = |reason| Problem::Read { offset, reason };
    source.seek(SeekFrom::Start(offset)).map_err(|_| fail("the offset cannot be reached"))?;
    source.read_exact(buf).map_err(|e| match e {
        embedded_io::ReadExactError::UnexpectedEof => fail("the file ends there; did it change?"),
        embedded_io::ReadExactError::Other(_) => fail("the storage reports an error"),
    })
}

impl<R: Read + Seek> FirmwareSource for FirmwareSet<R> {
    fn sos(&self, component: SosComponent) -> Option<Image<'_>> {
        let (_, piece) = self.sos_piece(component)?;
        Some(Image { id: ImageId::Sos(component), len: piece.len, types: &[] })
    }

    fn smu(&self) -> Option<Image<'_>> {
        let Loaded { piece, ty, .. } = &self.smu;
        Some(Image { id: ImageId::Smu, len: piece.len, types: core::slice::from_ref(ty) })
    }

    fn ip_image(&self, index: u8) -> Option<Image<'_>> {
        let Loaded { piece, ty, .. } = self.images.get(index as usize)?;
        Some(Image { id: ImageId::Ip(index), len: piece.len, types: core::slice::from_ref(ty) })
    }

    fn ucode_start(&self) -> UcodeStart {
        self.start
    }

    fn read(&mut self, id: ImageId, offset: u32, buf: &mut [u8]) -> Result<(), FirmwareError> {
        let fail = |reason| FirmwareError { id, offset, reason };
        let (file, piece) = self.range(id).ok_or(fail("there is no such image"))?;
        let end = (offset as u64).saturating_add(buf.len() as u64);
        if end > piece.len as u64 {
            return Err(fail("the range ends after the image"));
        }
        let file = self.files.get_mut(file).ok_or(fail("there is no such file"))?;
        read_at(&mut file.source, piece.offset as u64 + offset as u64, buf).map_err(|problem| match problem {
            Problem::Read { reason, .. } => fail(reason),
            _ => fail("the file cannot be read"),
        })
    }
}

/// A file that is in memory, as a source.
#[derive(Clone, Debug)]
pub struct Memory<B> {
    bytes: B,
    at: u64,
}

impl<B: AsRef<[u8]>> Memory<B> {
    /// A source over these bytes.
    pub const fn new(bytes: B) -> Self {
        Memory { bytes, at: 0 }
    }
}

/// Seeking to before the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a position before the start")]
pub struct BadSeek;

impl embedded_io::Error for BadSeek {
    fn kind(&self) -> embedded_io::ErrorKind {
        embedded_io::ErrorKind::InvalidInput
    }
}

impl<B> ErrorType for Memory<B> {
    type Error = BadSeek;
}

impl<B: AsRef<[u8]>> Read for Memory<B> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, BadSeek> {
        let bytes = self.bytes.as_ref();
        let rest = usize::try_from(self.at).ok().and_then(|at| bytes.get(at..)).unwrap_or(&[]);
        let n = rest.len().min(buf.len());
        if let (Some(to), Some(from)) = (buf.get_mut(..n), rest.get(..n)) {
            to.copy_from_slice(from);
        }
        self.at += n as u64;
        Ok(n)
    }
}

impl<B: AsRef<[u8]>> Seek for Memory<B> {
    fn seek(&mut self, pos: SeekFrom) -> Result<u64, BadSeek> {
        let at = match pos {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(d) => (self.bytes.as_ref().len() as u64).checked_add_signed(d),
            SeekFrom::Current(d) => self.at.checked_add_signed(d),
        };
        self.at = at.ok_or(BadSeek)?;
        Ok(self.at)
    }
}
