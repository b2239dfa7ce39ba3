//! Events as JSON lines.

use super::{Event, TraceSink};
use core::fmt::{self, Write as _};
use embedded_io::Write;

/// Names of registers by their dword address.
pub trait Names {
    /// Header prefix of the block (`gc`, `nbio`) and name in the headers (`regSCRATCH_REG7`).
    fn lookup(&self, addr: u32) -> Option<(&str, &str)>;
}

/// Without names: rows have addresses only.
impl Names for () {
    fn lookup(&self, _addr: u32) -> Option<(&str, &str)> {
        None
    }
}

impl<N: Names + ?Sized> Names for &N {
    fn lookup(&self, addr: u32) -> Option<(&str, &str)> {
        (**self).lookup(addr)
    }
}

/// SHA-256 of a slice.
pub type Digest = fn(&[u8]) -> [u8; 32];

/// Data up to this length stands in the row; of more the row has the digest.
const INLINE: usize = 64;

/// Writes one JSON object a line: first a header with device and flow, then a row for each event.
///
/// `op` is `r`/`w` (registers: `ip`, `name`, `addr` in dwords, `val`; a poll has `n`, `first` and
/// `us`; half of an RSMU access has `for` and `ind`), `vr`/`vw` (VRAM: `pa`, `len`, and `zero`,
/// `data` or `sha256`), `db` (doorbell: `off`, `data`), `sleep` (`us`), `fence`, `irq` (`came`),
/// `dma_alloc`/`dma_free` (`handle`, `len`), `error` (`text`), `mark` (`fn`). `i` numbers the rows.
pub struct JsonLines<W: Write, N> {
    out: W,
    names: N,
    digest: Option<Digest>,
    row: u64,
    error: Option<W::Error>,
}

impl<W: Write, N: Names> JsonLines<W, N> {
    /// Writes to `out` and starts with the header row. `device` and `flow` say what is traced
    /// (`navi31`, `boot`).
    ///
    /// `digest` is SHA-256 where the caller has it; without it a row with long data tells only
    /// the length.
    pub fn new(out: W, names: N, digest: Option<Digest>, device: &str, flow: &str) -> Self {
        let mut sink = JsonLines { out, names, digest, row: 0, error: None };
        let (device, flow) = (Text(device), Text(flow));
        sink.line(format_args!(
            "{{\"op\":\"header\",\"format\":1,\"driver\":\"amdev\",\"device\":{device},\"flow\":{flow}}}\n"
        ));
        sink
    }

    /// Ends the trace: the writer, or the first error that writing had.
    pub fn finish(mut self) -> Result<W, W::Error> {
        if self.error.is_none() {
            self.error = self.out.flush().err();
        }
        self.error.map_or(Ok(self.out), Err)
    }

    /// Whether every row so far was written.
    pub fn is_ok(&self) -> bool {
        self.error.is_none()
    }

    /// Other names from now on, for example when discovery has told the base addresses.
    pub fn set_names(&mut self, names: N) {
        self.names = names;
    }

    fn line(&mut self, text: fmt::Arguments<'_>) {
        if self.error.is_some() {
            return;
        }
        let mut line = Line { out: &mut self.out, error: None };
        // The only way to fail is the writer's, which `line` keeps.
        let _ = line.write_fmt(text);
        self.error = line.error;
    }

    fn row(&mut self, fields: fmt::Arguments<'_>) {
        let i = self.row;
        self.row += 1;
        self.line(format_args!("{{{fields},\"i\":{i}}}\n"));
    }

    fn reg(&mut self, op: &str, addr: u32, indirect: Option<u32>, value: u32, rest: fmt::Arguments<'_>) {
        // A row borrows the names while the writer is borrowed too: written without `self.row`.
        if self.error.is_some() {
            return;
        }
        let i = self.row;
        self.row += 1;
        let mut line = Line { out: &mut self.out, error: None };
        let _ = write_reg(&mut line, &self.names, op, addr, indirect, value)
            .and_then(|()| line.write_fmt(format_args!("{rest},\"i\":{i}}}\n")));
        self.error = line.error;
    }

    fn vram(&mut self, op: &str, addr: u64, data: &[u8]) {
        let len = data.len();
        if data.iter().all(|b| *b == 0) {
            self.row(format_args!("\"op\":\"{op}\",\"pa\":{addr},\"len\":{len},\"zero\":true"));
        } else if len <= INLINE {
            let data = Hex(data);
            self.row(format_args!("\"op\":\"{op}\",\"pa\":{addr},\"len\":{len},\"data\":\"{data}\""));
        } else if let Some(digest) = self.digest {
            let sha = digest(data);
            let sha = Hex(&sha);
            self.row(format_args!("\"op\":\"{op}\",\"pa\":{addr},\"len\":{len},\"sha256\":\"{sha}\""));
        } else {
            self.row(format_args!("\"op\":\"{op}\",\"pa\":{addr},\"len\":{len}"));
        }
    }
}

fn write_reg(
    out: &mut dyn fmt::Write,
    names: &dyn Names,
    op: &str,
    addr: u32,
    indirect: Option<u32>,
    value: u32,
) -> fmt::Result {
    write!(out, "{{\"op\":\"{op}\",")?;
    if let Some((ip, name)) = names.lookup(addr) {
        write!(out, "\"ip\":{},\"name\":{},", Text(ip), Text(name))?;
    }
    write!(out, "\"addr\":{addr},\"val\":{value}")?;
    if let Some(ind) = indirect {
        if let Some((_, name)) = names.lookup(ind) {
            write!(out, ",\"for\":{}", Text(name))?;
        }
        write!(out, ",\"ind\":{ind}")?;
    }
    Ok(())
}

impl<W: Write, N: Names> TraceSink for JsonLines<W, N> {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::RegRead { addr, indirect, n: 1, value, .. } => {
                self.reg("r", addr, indirect, value, format_args!(""));
            }
            Event::RegRead { addr, indirect, n, first, value, waited_us } => {
                let rest = format_args!(",\"n\":{n},\"first\":{first},\"us\":{waited_us}");
                self.reg("r", addr, indirect, value, rest);
            }
            Event::RegWrite { addr, indirect, value } => {
                self.reg("w", addr, indirect, value, format_args!(""));
            }
            Event::VramRead { addr, data } => self.vram("vr", addr, data),
            Event::VramWrite { addr, data } => self.vram("vw", addr, data),
            Event::VramZero { addr, len } => {
                self.row(format_args!("\"op\":\"vw\",\"pa\":{addr},\"len\":{len},\"zero\":true"));
            }
            Event::Doorbell { offset, data } => {
                let data = Hex(data);
                self.row(format_args!("\"op\":\"db\",\"off\":{offset},\"data\":\"{data}\""));
            }
            Event::Fence => self.row(format_args!("\"op\":\"fence\"")),
            Event::Sleep { us } => self.row(format_args!("\"op\":\"sleep\",\"us\":{us}")),
            Event::WaitInterrupt { came } => self.row(format_args!("\"op\":\"irq\",\"came\":{came}")),
            Event::DmaAlloc { handle, len } => {
                self.row(format_args!("\"op\":\"dma_alloc\",\"handle\":{},\"len\":{len}", handle.0));
            }
            Event::DmaFree { handle } => {
                self.row(format_args!("\"op\":\"dma_free\",\"handle\":{}", handle.0));
            }
            Event::Failed { error } => {
                // The texts of `BusError` need no escapes.
                self.row(format_args!("\"op\":\"error\",\"text\":\"{error}\""));
            }
            Event::Mark { name } => self.row(format_args!("\"op\":\"mark\",\"fn\":{}", Text(name))),
        }
    }
}

/// Text in quotes, escaped as JSON wants it.
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c < ' ' => write!(f, "\\u{:04x}", c as u32)?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// A formatted line on its way to the writer.
struct Line<'a, W: Write> {
    out: &'a mut W,
    error: Option<W::Error>,
}

impl<W: Write> fmt::Write for Line<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.out.write_all(text.as_bytes()).map_err(|e| {
            self.error = Some(e);
            fmt::Error
        })
    }
}
