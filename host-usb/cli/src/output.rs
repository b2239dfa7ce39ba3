//! What a command prints: text for people, one JSON object for programs.

use serde_json::{Value, json};
use std::fmt::Write as _;

/// The result of a command.
#[derive(Debug)]
pub struct Outcome {
    /// For people.
    pub text: String,
    /// With `--json`.
    pub json: Value,
    /// False if a result is wrong.
    pub ok: bool,
    /// The exit code of a result that is wrong.
    pub code: u8,
}

impl Outcome {
    /// A good result.
    pub fn new(text: impl Into<String>, json: Value) -> Self {
        Outcome { text: text.into(), json, ok: true, code: 1 }
    }

    /// Marks the result as right or wrong.
    pub fn with_ok(mut self, ok: bool) -> Self {
        self.ok = ok;
        self
    }

    /// Marks the result as wrong, with an exit code of its own.
    pub fn with_code(mut self, code: u8) -> Self {
        (self.ok, self.code) = (false, code);
        self
    }

    /// The JSON object, with `ok` in it.
    pub fn into_json(self) -> Value {
        let mut value = self.json;
        if let Value::Object(map) = &mut value {
            map.insert("ok".into(), json!(self.ok));
        }
        value
    }
}

/// An error and its causes, each said once: many errors already name their cause.
fn causes(error: &anyhow::Error) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    for mut cause in error.chain().map(ToString::to_string) {
        // `opening X`, `X: why not`.
        if let Some((subject, rest)) = cause.split_once(": ")
            && said.last().is_some_and(|s| s.ends_with(subject))
        {
            cause = rest.to_owned();
        }
        if !said.iter().any(|s| s.contains(&cause)) {
            said.push(cause);
        }
    }
    said
}

/// An error in one line, outermost context first.
pub fn error_text(error: &anyhow::Error) -> String {
    causes(error).join(": ")
}

/// The JSON object of an error.
pub fn error_json(error: &anyhow::Error, code: u8) -> Value {
    let mut said = causes(error).into_iter();
    let outermost = said.next().unwrap_or_default();
    let causes: Vec<String> = said.collect();
    json!({ "ok": false, "error": outermost, "causes": causes, "exit_code": code })
}

/// A table with aligned columns; columns whose header ends in `>` are right-aligned.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let right: Vec<bool> = header.iter().map(|h| h.ends_with('>')).collect();
    let names: Vec<String> = header.iter().map(|h| h.trim_end_matches('>').to_owned()).collect();
    let width = |i: usize| {
        let cells = rows.iter().filter_map(|r| r.get(i)).chain(names.get(i));
        cells.map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut out = String::new();
    for row in std::iter::once(&names).chain(rows) {
        let mut line = String::new();
        for (i, cell) in row.iter().enumerate() {
            let w = widths.get(i).copied().unwrap_or(0);
            let sep = if i == 0 { "" } else { "  " };
            let _ = match right.get(i) {
                Some(true) => write!(line, "{sep}{cell:>w$}"),
                _ => write!(line, "{sep}{cell:<w$}"),
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// Microseconds as a person reads them.
pub fn micros(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{}.{:03} ms", us / 1_000, us % 1_000),
        _ => format!("{}.{:03} s", us / 1_000_000, us / 1_000 % 1_000),
    }
}

/// Bytes as a person reads them.
pub fn bytes(n: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if n >> shift != 0 {
            let tenths = ((n >> (shift - 10)) * 10) >> 10;
            return if tenths.is_multiple_of(10) {
                format!("{} {unit}", tenths / 10)
            } else {
                format!("{}.{} {unit}", tenths / 10, tenths % 10)
            };
        }
    }
    format!("{n} B")
}

/// Bytes per second, from bytes and nanoseconds.
pub fn rate(bytes_moved: u64, ns: u64) -> String {
    if ns == 0 {
        return "-".into();
    }
    let per_second = u128::from(bytes_moved) * 1_000_000_000 / u128::from(ns);
    format!("{}/s", bytes(u64::try_from(per_second).unwrap_or(u64::MAX)))
}

/// SHA-256 in hexadecimal.
pub fn sha256(data: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    Sha256::digest(data).iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align_and_do_not_trail_spaces() {
        let rows = vec![vec!["gmc".into(), "1.5 ms".into()], vec!["psp bootloader".into(), "20 ms".into()]];
        assert_eq!(
            table(&["stage", "time>"], &rows),
            "stage             time\ngmc             1.5 ms\npsp bootloader   20 ms\n"
        );
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(micros(999), "999 us");
        assert_eq!(micros(20_050), "20.050 ms");
        assert_eq!(micros(1_500_000), "1.500 s");
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(24560 << 20), "23.9 GiB");
        assert_eq!(bytes(256 << 20), "256 MiB");
        assert_eq!(rate(1 << 20, 1_000_000), "1000 MiB/s");
        assert_eq!(rate(1, 0), "-");
    }

    #[test]
    fn a_cause_that_an_error_names_itself_is_said_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("reading the disk: {0}")]
        struct Outer(#[source] std::io::Error);
        let error = anyhow::Error::new(Outer(std::io::Error::other("no such disk"))).context("booting");
        assert_eq!(error_text(&error), "booting: reading the disk: no such disk");
        let twice = anyhow::anyhow!("usb:1: no such device").context("opening usb:1");
        assert_eq!(error_text(&twice), "opening usb:1: no such device");
        assert_eq!(error_json(&error, 1)["causes"], json!(["reading the disk: no such disk"]));
    }

    #[test]
    fn errors_in_json_keep_their_causes() {
        use anyhow::Context as _;
        let error = Err::<(), _>(std::io::Error::other("no such disk")).context("writing").unwrap_err();
        let json = error_json(&error, 1);
        assert_eq!(json["error"], "writing");
        assert_eq!(json["causes"][0], "no such disk");
        assert_eq!(json["ok"], false);
    }
}
