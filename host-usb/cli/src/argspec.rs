//! `--arg SPEC` of `run`.

use crate::dtype::{DType, parse_size};
use crate::generate::Generator;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The grammar, for `--help` and error texts.
pub const GRAMMAR: &str = "\
  TYPE=VALUE                         a value:            u32=7  f32=1.5
  in:TYPE:GEN:COUNT                  a generated input:  in:f32:iota:1024
  in:TYPE:@FILE                      an input file:      in:u32:@data.bin
  inout:TYPE:GEN:COUNT[:@OUTFILE]    input and output:   inout:f32:lcg_unit(seed=5):308
  inout:TYPE:@FILE[:@OUTFILE]
  out:TYPE:COUNT[:@OUTFILE]          an output (zeroed): out:u8:4096:@out.bin
TYPE is u8 to u64, i8 to i64, f16, f32 or f64; GEN is one of
  zero  const(value=V)  iota(start=0,step=1)  lcg(seed=S)  lcg_mod(seed=S,mod=M)
  lcg_unit(seed=S)  lcg_small(seed=S,mod=M)  lcg_eighth(seed=S)";

/// What a buffer is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Read by the kernel; must be unchanged afterwards.
    In,
    /// Written by the kernel.
    Out,
    /// Both.
    InOut,
}

/// Where a buffer's first contents come from.
#[derive(Clone, PartialEq, Debug)]
pub enum Source {
    /// `count` generated elements.
    Generated(Generator, usize),
    /// The bytes of a file.
    File(PathBuf),
}

/// One kernel argument.
#[derive(Clone, PartialEq, Debug)]
pub enum ArgSpec {
    /// Passed by value.
    Value {
        /// Its type.
        dtype: DType,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Passed as the address of a buffer.
    Buffer {
        /// What it is for.
        direction: Direction,
        /// Type of its elements.
        dtype: DType,
        /// First contents.
        source: Source,
        /// File that gets the contents after the run.
        save: Option<PathBuf>,
    },
}

impl ArgSpec {
    /// First contents of a buffer (or the value's bytes).
    pub fn initial(&self) -> Result<Vec<u8>, String> {
        match self {
            ArgSpec::Value { bytes, .. } => Ok(bytes.clone()),
            ArgSpec::Buffer { dtype, source: Source::Generated(generator, count), .. } => {
                generator.bytes(*dtype, *count)
            }
            ArgSpec::Buffer { dtype, source: Source::File(path), .. } => read_file(path, *dtype),
        }
    }
}

fn read_file(path: &Path, dtype: DType) -> Result<Vec<u8>, String> {
    let bytes = crate::files::read(path, crate::files::MAX_ARGUMENT)?;
    if bytes.is_empty() {
        return Err(format!("{}: the file is empty", path.display()));
    }
    if bytes.len() % dtype.size() != 0 {
        let (len, size) = (bytes.len(), dtype.size());
        return Err(format!("{}: {len} bytes are not a multiple of {size} ({dtype})", path.display()));
    }
    Ok(bytes)
}

fn count(text: &str) -> Result<usize, String> {
    match parse_size(text).map(usize::try_from) {
        Ok(Ok(n)) if n > 0 => Ok(n),
        Ok(_) => Err(format!("a buffer of {text} elements is not possible")),
        Err(_) => Err(format!("'{text}' is not a count of elements")),
    }
}

/// `@FILE` (a path may hold any character) or nothing.
fn save_file(text: Option<&str>) -> Result<Option<PathBuf>, String> {
    match text.map(|t| t.strip_prefix('@').filter(|p| !p.is_empty()).ok_or(t)) {
        None => Ok(None),
        Some(Ok(path)) => Ok(Some(path.into())),
        Some(Err(text)) => Err(format!("'{text}' should be @FILE, the file to save to")),
    }
}

/// Splits at the first ':'.
fn field(text: &str) -> (&str, Option<&str>) {
    text.split_once(':').map_or((text, None), |(a, b)| (a, Some(b)))
}

impl FromStr for ArgSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).map_err(|e| format!("{e}\nthe forms are\n{GRAMMAR}"))
    }
}

fn parse(text: &str) -> Result<ArgSpec, String> {
    let (head, rest) = field(text);
    let direction = match (head, rest) {
        ("in", Some(_)) => Direction::In,
        ("out", Some(_)) => Direction::Out,
        ("inout", Some(_)) => Direction::InOut,
        _ => {
            let Some((dtype, value)) = text.split_once('=') else {
                return Err(format!("'{text}' is neither TYPE=VALUE nor a buffer"));
            };
            let dtype: DType = dtype.parse()?;
            return Ok(ArgSpec::Value { dtype, bytes: dtype.parse_value(value)? });
        }
    };
    let (dtype, Some(rest)) = field(rest.unwrap_or_default()) else {
        return Err(format!("'{text}' ends after the type"));
    };
    let dtype: DType = dtype.parse()?;
    let (source, save) = match (direction, rest.strip_prefix('@')) {
        (Direction::Out, Some(_)) => {
            return Err(format!("'{text}' lacks the count: out:{dtype}:COUNT:@FILE"));
        }
        (Direction::Out, None) => {
            let (n, save) = field(rest);
            (Source::Generated(Generator::Zero, count(n)?), save_file(save)?)
        }
        (_, Some(paths)) => {
            let (path, save) = paths.split_once(":@").map_or((paths, None), |(a, b)| (a, Some(b)));
            // A name that is empty or that holds the separator again: which file is meant, nobody knows.
            if path.is_empty() || save.is_some_and(|s| s.is_empty() || s.contains(":@")) {
                return Err(format!("'{text}' lacks a file's name, or has one file too many"));
            }
            (Source::File(path.into()), save.map(Into::into))
        }
        (_, None) => {
            let (generator, Some(rest)) = field(rest) else {
                return Err(format!("'{text}' lacks the count of elements"));
            };
            let (n, save) = field(rest);
            (Source::Generated(generator.parse()?, count(n)?), save_file(save)?)
        }
    };
    if direction == Direction::In && save.is_some() {
        return Err(format!("'{text}' is an input; only out and inout can be saved"));
    }
    Ok(ArgSpec::Buffer { direction, dtype, source, save })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(direction: Direction, dtype: DType, source: Source, save: Option<&str>) -> ArgSpec {
        ArgSpec::Buffer { direction, dtype, source, save: save.map(Into::into) }
    }

    #[test]
    fn every_form_of_the_grammar_parses() {
        let iota = Generator::Iota { start: 0, step: 1 };
        let unit = Generator::LcgUnit { seed: 5 };
        for (text, expected) in [
            ("u32=7", ArgSpec::Value { dtype: DType::U32, bytes: vec![7, 0, 0, 0] }),
            ("f32=1.5", ArgSpec::Value { dtype: DType::F32, bytes: vec![0, 0, 0xc0, 0x3f] }),
            ("in:f32:iota:1024", buffer(Direction::In, DType::F32, Source::Generated(iota, 1024), None)),
            (
                "inout:f32:lcg_unit(seed=5):308",
                buffer(Direction::InOut, DType::F32, Source::Generated(unit.clone(), 308), None),
            ),
            (
                "inout:f32:lcg_unit(seed=5):308:@y.bin",
                buffer(Direction::InOut, DType::F32, Source::Generated(unit, 308), Some("y.bin")),
            ),
            ("in:u32:@file", buffer(Direction::In, DType::U32, Source::File("file".into()), None)),
            ("in:u32:@C:\\a.bin", buffer(Direction::In, DType::U32, Source::File("C:\\a.bin".into()), None)),
            ("inout:i8:@a:@b", buffer(Direction::InOut, DType::I8, Source::File("a".into()), Some("b"))),
            (
                "out:f32:1024",
                buffer(Direction::Out, DType::F32, Source::Generated(Generator::Zero, 1024), None),
            ),
            (
                "out:u8:4K:@file",
                buffer(Direction::Out, DType::U8, Source::Generated(Generator::Zero, 4096), Some("file")),
            ),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_wrong_argument_says_what_is_wrong_and_shows_the_grammar() {
        for (text, word) in [
            ("7", "neither"),
            ("u33=7", "unknown type"),
            ("u8=256", "does not fit"),
            ("in:f32", "ends after the type"),
            ("in:f32:iota", "lacks the count"),
            ("in:f32:iota:0", "not possible"),
            ("in:f32:iota:x", "count of elements"),
            ("in:f32:iota:4:@f", "is an input"),
            ("out:f32:@f", "lacks the count"),
            ("out:f32:4:f", "@FILE"),
            ("in:f32:@", "lacks a file's name"),
            ("inout:i8:@:@a:@b", "lacks a file's name"),
            ("inout:i8:@a:@", "lacks a file's name"),
            ("inout:i8:@a:@b:@c", "one file too many"),
            ("inout:f32:iota:4:@", "@FILE"),
            ("out:f32:4:@", "@FILE"),
            ("in:f32:what:4", "unknown generator"),
        ] {
            let error = text.parse::<ArgSpec>().expect_err(text);
            assert!(error.contains(word) && error.contains("in:TYPE:GEN:COUNT"), "{text}: {error}");
        }
    }

    #[test]
    fn a_file_must_hold_whole_elements() {
        let dir = std::env::temp_dir();
        let path = dir.join(format!("amdev-argspec-{}.bin", std::process::id()));
        std::fs::write(&path, [1, 2, 3, 4, 5, 6]).unwrap();
        let spec = |t: &str| format!("in:{t}:@{}", path.display()).parse::<ArgSpec>().unwrap();
        assert_eq!(spec("u16").initial(), Ok(vec![1, 2, 3, 4, 5, 6]));
        let error = spec("u32").initial().unwrap_err();
        assert!(error.contains("6 bytes are not a multiple of 4"), "{error}");
        std::fs::remove_file(&path).unwrap();
        assert!(spec("u16").initial().is_err());
    }
}
