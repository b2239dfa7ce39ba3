//! Files that the command line reads and writes: what a person names may be anything.

use crate::args::{Command, Global, RingCommand, RunArgs};
use crate::argspec::{ArgSpec, Source};
use crate::error::CliError;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The largest code object that is read, in bytes: libraries with many kernels have some 100 MiB.
pub const MAX_CODE_OBJECT: u64 = 512 << 20;
/// The largest `@FILE` of an argument in bytes.
pub const MAX_ARGUMENT: u64 = 4 << 30;
/// How a trace begins; a file that begins otherwise is not overwritten by one.
const TRACE_START: &[u8] = br#"{"op":"header""#;

/// Reads a file whole.
///
/// # Errors
/// Where it is no regular file (reading a FIFO or a terminal may never end), has more than `max`
/// bytes, does not fit into memory, or cannot be read. The text names the file.
pub fn read(path: &Path, max: u64) -> Result<Vec<u8>, String> {
    let named = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    // Before it is opened: opening a FIFO waits for its writer.
    is_regular(&std::fs::metadata(path).map_err(|e| named(&e))?).map_err(|e| named(&e))?;
    let file = File::open(path).map_err(|e| named(&e))?;
    let meta = file.metadata().map_err(|e| named(&e))?;
    is_regular(&meta).map_err(|e| named(&e))?;
    let too_large = || named(&format!("it has more than the {max} bytes that are read at most"));
    if meta.len() > max {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    let len = usize::try_from(meta.len()).unwrap_or(usize::MAX);
    bytes.try_reserve_exact(len).map_err(|_| named(&format!("no memory for its {len} bytes")))?;
    // It may grow meanwhile, and files of /proc and /sys tell no length.
    file.take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(|e| named(&e))?;
    if bytes.len() as u64 > max { Err(too_large()) } else { Ok(bytes) }
}

fn is_regular(meta: &std::fs::Metadata) -> Result<(), &'static str> {
    if meta.is_file() {
        Ok(())
    } else if meta.is_dir() {
        Err("it is a directory, a file is needed")
    } else {
        Err("it is no regular file (a FIFO, device or socket); save what it gives in a file first")
    }
}

/// Files that a command reads and writes, by its arguments.
#[derive(Debug, Default)]
struct Named<'a> {
    inputs: Vec<(&'static str, &'a Path)>,
    outputs: Vec<(&'static str, &'a Path)>,
}

impl<'a> Named<'a> {
    fn of(global: &'a Global, command: &'a Command) -> Self {
        let mut named = Named::default();
        match command {
            Command::Info(args) => {
                named.inputs.extend(args.discovery.as_deref().map(|p| ("the discovery table", p)));
            }
            Command::Run(args) => named.run(args),
            Command::Ring(RingCommand::Dump(args)) => {
                named.inputs.extend(args.file.as_deref().map(|p| ("the ring", p)));
            }
            Command::Report(args) => named.outputs.push(("the report", &args.output)),
            _ => {}
        }
        named.outputs.extend(global.trace.as_deref().map(|p| ("the trace", p)));
        named
    }

    fn run(&mut self, args: &'a RunArgs) {
        self.inputs.push(("the code object", &args.file));
        for spec in &args.args {
            let ArgSpec::Buffer { source, save, .. } = spec else { continue };
            let save = save.as_deref();
            self.outputs.extend(save.map(|p| ("an output", p)));
            // The contents of an argument may go back to where they came from.
            if let Source::File(path) = source
                && save != Some(path)
            {
                self.inputs.push(("an input", path));
            }
        }
    }
}

/// Checks what a command will write before anything is done: no output may overwrite an input or
/// another output, and all must be possible to write.
///
/// # Errors
/// Naming the file.
pub fn check(global: &Global, command: &Command) -> Result<(), CliError> {
    for dir in &global.firmware {
        is_directory(dir).map_err(|e| CliError::Firmware(format!("--firmware {}: {e}", dir.display())))?;
    }
    let named = Named::of(global, command);
    for (i, (what, path)) in named.outputs.iter().enumerate() {
        let usage = |text: String| CliError::Usage(format!("{what} {}: {text}", path.display()));
        let others = named.inputs.iter().chain(named.outputs.iter().take(i));
        if let Some((other, _)) = others.into_iter().find(|(_, p)| same_file(path, p)) {
            return Err(usage(format!("it is {other} as well; give each a file of its own")));
        }
        writable(path).map_err(|e| usage(e.to_string()))?;
        if *what == "the trace" {
            if path.as_os_str() == "-" {
                return Err(usage("a trace goes to a file; name one (./- is a file of that name)".into()));
            }
            is_replaceable(path).map_err(usage)?;
        }
    }
    Ok(())
}

/// Whether a directory is one.
///
/// # Errors
/// Why it is none.
pub fn is_directory(path: &Path) -> Result<(), String> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => Err("it is no directory".into()),
        Err(e) => Err(e.to_string()),
    }
}

/// Whether two names are of one file, which need not exist yet.
fn same_file(a: &Path, b: &Path) -> bool {
    let full = |p: &Path| -> Option<PathBuf> {
        std::fs::canonicalize(p).ok().or_else(|| {
            let parent = p.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Some(std::fs::canonicalize(parent).ok()?.join(p.file_name()?))
        })
    };
    a == b || matches!((full(a), full(b)), (Some(a), Some(b)) if a == b) || linked(a, b)
}

/// Whether two names are hard links of one file.
#[cfg(unix)]
fn linked(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let file = |p: &Path| std::fs::metadata(p).ok().filter(|m| m.is_file()).map(|m| (m.dev(), m.ino()));
    file(a).is_some_and(|a| file(b) == Some(a))
}

#[cfg(not(unix))]
fn linked(_: &Path, _: &Path) -> bool {
    false
}

/// Whether a file can be written, without changing it.
fn writable(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Err(io::Error::other("it is a directory")),
        // Opening a FIFO waits for its reader.
        Ok(meta) if is_fifo(&meta) => Err(io::Error::other("it is a FIFO or a socket; name a file")),
        Ok(_) => OpenOptions::new().write(true).open(path).map(drop),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            OpenOptions::new().write(true).create_new(true).open(path)?;
            std::fs::remove_file(path)
        }
        Err(e) => Err(e),
    }
}

#[cfg(unix)]
fn is_fifo(meta: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    meta.file_type().is_fifo() || meta.file_type().is_socket()
}

#[cfg(not(unix))]
fn is_fifo(_: &std::fs::Metadata) -> bool {
    false
}

/// A trace takes the place of another trace or of nothing.
fn is_replaceable(path: &Path) -> Result<(), String> {
    let Ok(meta) = std::fs::metadata(path) else { return Ok(()) };
    if !meta.is_file() || meta.len() == 0 {
        return Ok(());
    }
    let mut start = Vec::new();
    let read = File::open(path).and_then(|f| f.take(TRACE_START.len() as u64).read_to_end(&mut start));
    if read.is_ok() && start == TRACE_START {
        return Ok(());
    }
    Err("it exists and is no trace; delete it or name another file".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser as _;

    /// A folder of a test's own.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("amdev-files-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
        fn file(&self, name: &str, contents: &[u8]) -> String {
            let path = self.0.join(name);
            std::fs::write(&path, contents).unwrap();
            path.to_str().unwrap().to_owned()
        }
        fn path(&self, name: &str) -> String {
            self.0.join(name).to_str().unwrap().to_owned()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn checked(args: &[&str]) -> Result<(), String> {
        let cli = Cli::try_parse_from(["amdev"].iter().chain(args)).unwrap();
        check(&cli.global, &cli.command).map_err(|e| e.to_string())
    }

    #[test]
    fn only_a_regular_file_of_limited_size_is_read() {
        let dir = Folder::new("read");
        let file = dir.file("f", b"12345");
        assert_eq!(read(Path::new(&file), 5), Ok(b"12345".to_vec()));
        for (path, max, word) in [
            (file.as_str(), 4, "more than the 4 bytes"),
            (dir.0.to_str().unwrap(), 4, "directory"),
            ("/no/such/file", 4, "/no/such/file"),
        ] {
            let error = read(Path::new(path), max).unwrap_err();
            assert!(error.contains(word) && error.contains(path), "{error}");
        }
        #[cfg(unix)]
        for path in ["/dev/zero", "/dev/null"] {
            let error = read(Path::new(path), 4).unwrap_err();
            assert!(error.contains("no regular file"), "{error}");
        }
    }

    #[test]
    fn an_output_overwrites_neither_input_nor_output() {
        let dir = Folder::new("clash");
        let (co, data, trace) =
            (dir.file("k.co", b"x"), dir.file("d", b"1234"), dir.file("t", b"{\"op\":\"header\",}\n"));
        let run = |more: &[&str]| {
            let mut args = vec!["run", co.as_str(), "--grid", "1", "--block", "1"];
            args.extend(more);
            checked(&args)
        };
        let (fresh, here) = (dir.path("new"), dir.path("../"));
        let detour = format!("{here}{}/k.co", dir.0.file_name().unwrap().to_str().unwrap());
        let out = |p: &str| format!("out:u8:4:@{p}");
        let inout = format!("inout:u8:@{data}:@{data}");
        assert_eq!(run(&["--arg", &out(&fresh), "--arg", &inout, "--trace", &trace]), Ok(()));
        assert!(!Path::new(&fresh).exists(), "the check leaves nothing behind");
        for (args, word) in [
            (vec!["--arg", &out(&detour)], "the code object as well"),
            (vec!["--arg", &out(&fresh), "--arg", &out(&fresh)], "an output as well"),
            (vec!["--trace", &co], "the code object as well"),
            (vec!["--trace", &data], "no trace"),
            (vec!["--arg", &out(&fresh), "--trace", &fresh], "an output as well"),
            (vec!["--arg", &out("/no/such/folder/f")], "/no/such/folder/f"),
            (vec!["--arg", &out(dir.0.to_str().unwrap())], "directory"),
        ] {
            let error = run(&args).expect_err(word);
            assert!(error.contains(word), "{args:?}: {error}");
        }
        assert_eq!(std::fs::read(&co).unwrap(), b"x");
    }
}
