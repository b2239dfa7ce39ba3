//! `--trace FILE`: rows on disk, with the names of registers.

use amdev_core::bus::trace::{Event, JsonLines, Names, TraceSink};
use amdev_core::discovery::{IpList, MEMSIZE_REG, MM_DATA_REG, MM_INDEX_HI_REG, MM_INDEX_REG};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

mod log;
use log::Log;

/// Names of a device's registers by dword address.
#[derive(Debug, Default)]
pub struct RegNames(HashMap<u32, (&'static str, String)>);

impl RegNames {
    /// The registers that have fixed places, known before discovery.
    pub fn fixed() -> Self {
        let fixed = [
            (MEMSIZE_REG, "mmRCC_CONFIG_MEMSIZE"),
            (MM_INDEX_REG, "regBIF_BX_PF0_MM_INDEX"),
            (MM_DATA_REG, "regBIF_BX_PF0_MM_DATA"),
            (MM_INDEX_HI_REG, "regBIF_BX_PF0_MM_INDEX_HI"),
        ];
        RegNames(fixed.into_iter().map(|(addr, name)| (addr, ("nbio", name.to_owned()))).collect())
    }

    /// The registers of the blocks in a discovery table.
    pub fn of(list: &IpList) -> Self {
        let mut names = Self::fixed();
        crate::regnames::each_register(list, |block, name, addr| {
            // The first name of an address wins; later ones are aliases.
            names.0.entry(addr).or_insert_with(|| (block, name));
        });
        names
    }
}

impl Names for RegNames {
    fn lookup(&self, addr: u32) -> Option<(&str, &str)> {
        self.0.get(&addr).map(|(ip, name)| (*ip, name.as_str()))
    }
}

/// Bytes that are gathered before they are written.
const GATHER: usize = 64 << 10;
/// How long rows are gathered at most.
const GATHER_TIME: Duration = Duration::from_millis(100);

/// A file that gets whole lines, soon: whatever ends the process, what stands in the file is a
/// trace up to a moment before.
pub struct Disk {
    file: File,
    gathered: Vec<u8>,
    /// Bytes of `gathered` up to the last end of a line.
    whole: usize,
    written: Instant,
    /// The file still has what was in it before.
    old: bool,
}

impl Disk {
    /// An older trace stays in the file until there is something to write.
    fn open(path: &Path) -> std::io::Result<Self> {
        let file = File::options().write(true).create(true).truncate(false).open(path)?;
        let gathered = Vec::with_capacity(2 * GATHER);
        Ok(Disk { file, gathered, whole: 0, written: Instant::now(), old: true })
    }

    fn write_lines(&mut self) -> std::io::Result<()> {
        self.written = Instant::now();
        // A device (/dev/null) has no length.
        if std::mem::take(&mut self.old) && self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        let lines = self.gathered.drain(..std::mem::take(&mut self.whole));
        self.file.write_all(lines.as_slice())
    }
}

/// An error of the file system.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct DiskError(#[from] std::io::Error);

impl embedded_io::Error for DiskError {
    fn kind(&self) -> embedded_io::ErrorKind {
        embedded_io::ErrorKind::Other
    }
}

impl embedded_io::ErrorType for Disk {
    type Error = DiskError;
}

impl embedded_io::Write for Disk {
    fn write(&mut self, buf: &[u8]) -> Result<usize, DiskError> {
        if let Some(end) = buf.iter().rposition(|b| *b == b'\n') {
            self.whole = self.gathered.len() + end + 1;
        }
        self.gathered.extend_from_slice(buf);
        let line_ended = self.whole == self.gathered.len();
        if self.gathered.len() >= GATHER || (line_ended && self.written.elapsed() >= GATHER_TIME) {
            self.write_lines()?;
        }
        Ok(buf.len())
    }
    fn flush(&mut self) -> Result<(), DiskError> {
        self.whole = self.gathered.len();
        // The first line tells of whom the trace is. Where nothing was done to the device there is no
        // trace, and an older one is worth more.
        let lines = self.gathered.iter().filter(|b| **b == b'\n').count();
        if self.old && lines < 2 && self.file.metadata()?.len() > 0 {
            self.gathered.clear();
            self.whole = 0;
            return Ok(());
        }
        self.write_lines()?;
        Ok(self.file.flush()?)
    }
}

impl Drop for Disk {
    /// A session that broke off writes what it has.
    fn drop(&mut self) {
        let _ = embedded_io::Write::flush(self);
    }
}

/// Receives what is done to a device: a file if one was asked for, and a list of the writes for a
/// dry run.
#[derive(Default)]
pub struct TraceFile {
    file: Option<(PathBuf, JsonLines<Disk, RegNames>)>,
    names: RegNames,
    writes: Option<Vec<String>>,
    log: Log,
}

impl TraceFile {
    /// Opens the file, or creates it.
    pub fn create(path: &Path, device: &str, flow: &str) -> std::io::Result<Self> {
        let disk = Disk::open(path)?;
        let digest = |data: &[u8]| Sha256::digest(data).into();
        let lines = JsonLines::new(disk, RegNames::fixed(), Some(digest), device, flow);
        Ok(TraceFile { file: Some((path.to_owned(), lines)), ..TraceFile::default() })
    }

    /// Discovery has told where registers are.
    pub fn discovered(&mut self, list: &IpList) {
        if let Some((_, lines)) = &mut self.file {
            lines.set_names(RegNames::of(list));
        }
        if self.log.is_on() {
            self.names = RegNames::of(list);
        }
    }

    /// Lists writes from now on, with the names of this device's registers.
    pub fn collect_writes(&mut self, list: &IpList) {
        self.names = RegNames::of(list);
        self.writes = Some(Vec::new());
    }

    /// The writes so far; the list ends.
    pub fn take_writes(&mut self) -> Vec<String> {
        self.writes.take().unwrap_or_default()
    }

    /// Writes the rest.
    pub fn finish(self) -> anyhow::Result<()> {
        if let Some((path, lines)) = self.file {
            lines.finish().map_err(|e| anyhow::anyhow!("writing the trace {}: {e}", path.display()))?;
        }
        Ok(())
    }

    fn name(&self, addr: u32) -> String {
        self.names.lookup(addr).map_or_else(|| format!("{addr:#x}"), |(_, n)| n.to_owned())
    }

    fn describe_write(&self, event: &Event<'_>) -> Option<String> {
        let name = |addr| self.name(addr);
        Some(match *event {
            Event::RegWrite { addr, indirect: Some(target), value } => {
                format!("register {} = {value:#010x}  (for {})", name(addr), name(target))
            }
            Event::RegWrite { addr, value, .. } => format!("register {} = {value:#010x}", name(addr)),
            Event::VramWrite { addr, data } => format!("vram {addr:#x}: {} bytes", data.len()),
            Event::VramZero { addr, len } => format!("vram {addr:#x}: {len} bytes of zeros"),
            Event::Doorbell { offset, .. } => format!("doorbell {offset:#x}"),
            Event::Sleep { us } => format!("wait {us} us"),
            _ => return None,
        })
    }
}

impl TraceSink for TraceFile {
    fn event(&mut self, event: Event<'_>) {
        if self.writes.is_some()
            && let Some(line) = self.describe_write(&event)
            && let Some(writes) = &mut self.writes
        {
            writes.push(line);
        }
        self.log.event(&event, |addr| self.name(addr));
        if let Some((_, lines)) = &mut self.file {
            lines.event(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use embedded_io::Write as _;

    #[test]
    fn what_was_written_of_an_unfinished_trace_ends_with_a_whole_line() {
        let path = std::env::temp_dir().join(format!("amdev-disk-{}.jsonl", std::process::id()));
        let mut disk = Disk::open(&path).unwrap();
        let row = [b'x'; 999];
        for _ in 0..150 {
            disk.write_all(&row).unwrap();
            disk.write_all(b"\n").unwrap();
        }
        disk.write_all(b"cut").unwrap();
        // A process that dies here loses what was gathered.
        std::mem::forget(disk);
        let text = std::fs::read(&path).unwrap();
        // Nothing is done to the next device: it has a header only.
        let mut disk = Disk::open(&path).unwrap();
        disk.write_all(b"{\"op\":\"header\"}\n").unwrap();
        drop(disk);
        assert!(std::fs::read(&path).unwrap() == text, "the older trace is still there");
        let mut disk = Disk::open(&path).unwrap();
        disk.write_all(b"{\"op\":\"header\"}\n{}\n").unwrap();
        drop(disk);
        assert_eq!(std::fs::read(&path).unwrap(), b"{\"op\":\"header\"}\n{}\n");
        assert!(text.len() >= 64 << 10 && text.len().is_multiple_of(1000), "{}", text.len());
        std::fs::remove_file(&path).unwrap();
    }
}
