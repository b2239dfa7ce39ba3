//! Element types of kernel arguments and buffers: parsing and showing of values.

use half::f16;
use std::fmt;
use std::str::FromStr;

/// An element type. Values are little endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum DType {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F16,
    F32,
    F64,
}

use DType::*;

const ALL: [(DType, &str); 11] = [
    (U8, "u8"),
    (U16, "u16"),
    (U32, "u32"),
    (U64, "u64"),
    (I8, "i8"),
    (I16, "i16"),
    (I32, "i32"),
    (I64, "i64"),
    (F16, "f16"),
    (F32, "f32"),
    (F64, "f64"),
];

impl DType {
    /// Size of an element in bytes.
    pub fn size(self) -> usize {
        match self {
            U8 | I8 => 1,
            U16 | I16 | F16 => 2,
            U32 | I32 | F32 => 4,
            U64 | I64 | F64 => 8,
        }
    }

    /// True for f16, f32 and f64.
    pub fn is_float(self) -> bool {
        matches!(self, F16 | F32 | F64)
    }

    /// Name as on the command line.
    pub fn name(self) -> &'static str {
        ALL.iter().find(|(t, _)| *t == self).map_or("?", |(_, n)| n)
    }

    /// Appends an integer, wrapped to the type's width or converted to a float.
    pub fn push_int(self, out: &mut Vec<u8>, value: i64) {
        match self {
            F16 | F32 | F64 => self.push_float(out, value as f64),
            _ => out.extend_from_slice(&value.to_le_bytes()[..self.size()]),
        }
    }

    /// Appends a float, rounded to the type; integer types truncate.
    pub fn push_float(self, out: &mut Vec<u8>, value: f64) {
        match self {
            F16 => out.extend_from_slice(&f16::from_f64(value).to_le_bytes()),
            F32 => out.extend_from_slice(&(value as f32).to_le_bytes()),
            F64 => out.extend_from_slice(&value.to_le_bytes()),
            _ => self.push_int(out, value as i64),
        }
    }

    /// The bytes of a value written by a person: decimal or `0x`, `_` between digits, for floats
    /// also `1e-3`, `inf`, `nan`.
    pub fn parse_value(self, text: &str) -> Result<Vec<u8>, String> {
        let plain = text.replace('_', "");
        let mut out = Vec::with_capacity(8);
        if self.is_float() {
            let value: f64 = plain.parse().map_err(|_| format!("'{text}' is not a number of type {self}"))?;
            // A short decimal must become the nearest value of the type, in one rounding.
            match self {
                F32 => out.extend_from_slice(&plain.parse::<f32>().unwrap_or(value as f32).to_le_bytes()),
                _ => self.push_float(&mut out, value),
            }
            return Ok(out);
        }
        let value = parse_int(&plain).ok_or_else(|| format!("'{text}' is not an integer"))?;
        let bits = 8 * self.size() as u32;
        let (low, high) = match self {
            I8 | I16 | I32 | I64 => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
            _ => (0, (1i128 << bits) - 1),
        };
        if value < low || value > high {
            return Err(format!("{text} does not fit into {self} ({low} to {high})"));
        }
        out.extend_from_slice(&value.to_le_bytes()[..self.size()]);
        Ok(out)
    }

    /// One element as a person reads it; `bytes` are exactly [`DType::size`] long.
    pub fn show(self, bytes: &[u8]) -> String {
        let mut raw = [0u8; 8];
        let n = bytes.len().min(8);
        raw[..n].copy_from_slice(&bytes[..n]);
        let bits = u64::from_le_bytes(raw);
        match self {
            U8 | U16 | U32 | U64 => bits.to_string(),
            I8 => (bits as i8).to_string(),
            I16 => (bits as i16).to_string(),
            I32 => (bits as i32).to_string(),
            I64 => (bits as i64).to_string(),
            F16 => f16::from_bits(bits as u16).to_string(),
            F32 => f32::from_bits(bits as u32).to_string(),
            F64 => f64::from_bits(bits).to_string(),
        }
    }

    /// One element's bits in hexadecimal, most significant digit first.
    pub fn show_bits(self, bytes: &[u8]) -> String {
        bytes.iter().rev().map(|b| format!("{b:02x}")).collect()
    }
}

/// Decimal or `0x` hexadecimal, with a sign.
pub fn parse_int(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    // `from_str_radix` would take a second sign.
    if lower.starts_with(['+', '-']) {
        return None;
    }
    let value = match lower.strip_prefix("0x") {
        Some(hex) if !hex.starts_with(['+', '-']) => i128::from_str_radix(hex, 16).ok()?,
        Some(_) => return None,
        None => lower.parse().ok()?,
    };
    Some(if negative { -value } else { value })
}

/// A byte count with an optional suffix K, M, G, T (powers of 1024; `KiB` and the like too).
pub fn parse_size(text: &str) -> Result<u64, String> {
    let plain = text.replace('_', "");
    let upper = plain.to_ascii_uppercase();
    let trimmed = upper.strip_suffix("IB").or(upper.strip_suffix('B')).unwrap_or(&upper);
    let hex = trimmed.starts_with("0X");
    let (digits, shift) = match trimmed.chars().last() {
        Some('K') => (&trimmed[..trimmed.len() - 1], 10),
        Some('M') => (&trimmed[..trimmed.len() - 1], 20),
        Some('G') => (&trimmed[..trimmed.len() - 1], 30),
        Some('T') => (&trimmed[..trimmed.len() - 1], 40),
        // `0x1B` ends in a digit, not in "bytes".
        _ if hex => (upper.as_str(), 0),
        _ => (trimmed, 0),
    };
    let value = parse_int(digits).and_then(|v| u64::try_from(v).ok());
    value
        .and_then(|v| v.checked_mul(1 << shift))
        .ok_or_else(|| format!("'{text}' is not a size; write for example 4096, 64K, 256M or 1G"))
}

impl FromStr for DType {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        ALL.iter().find(|(_, n)| *n == text).map(|(t, _)| *t).ok_or_else(|| {
            format!("unknown type '{text}'; one of u8 u16 u32 u64 i8 i16 i32 i64 f16 f32 f64 is expected")
        })
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_against_their_type() {
        assert_eq!(U32.parse_value("0xDEAD_BEEF"), Ok(vec![0xef, 0xbe, 0xad, 0xde]));
        assert_eq!(I8.parse_value("-128"), Ok(vec![0x80]));
        assert_eq!(I64.parse_value("-1"), Ok(vec![0xff; 8]));
        assert_eq!(U64.parse_value("18446744073709551615"), Ok(vec![0xff; 8]));
        assert_eq!(F32.parse_value("0.30000001192092896"), Ok(0x3e99_999au32.to_le_bytes().to_vec()));
        assert_eq!(F16.parse_value("-2"), Ok(vec![0x00, 0xc0]));
        assert_eq!(F64.parse_value("1e-3"), Ok(1e-3f64.to_le_bytes().to_vec()));
        for (t, bad) in [
            (U8, "256"),
            (U8, "-1"),
            (I8, "128"),
            (U32, "1.5"),
            (F32, "x"),
            (U16, "0x"),
            (U16, "--1"),
            (U16, "0x-1"),
        ] {
            assert!(t.parse_value(bad).is_err(), "{t} {bad}");
        }
        assert_eq!(U8.parse_value("300"), Err("300 does not fit into u8 (0 to 255)".into()));
    }

    #[test]
    fn values_are_shown_in_their_type() {
        assert_eq!(I16.show(&[0xff, 0xff]), "-1");
        assert_eq!(F16.show(&[0x00, 0x3e]), "1.5");
        assert_eq!(F32.show(&0.310_453_8_f32.to_le_bytes()), "0.3104538");
        assert_eq!(F32.show_bits(&0x3e9e_f3cdu32.to_le_bytes()), "3e9ef3cd");
    }

    #[test]
    fn sizes_take_suffixes() {
        for (text, size) in [
            ("4096", 4096),
            ("64K", 65536),
            ("256M", 256 << 20),
            ("1GiB", 1 << 30),
            ("0x1B", 0x1b),
            ("512b", 512),
        ] {
            assert_eq!(parse_size(text), Ok(size), "{text}");
        }
        for bad in ["", "K", "-1", "1.5M", "99999999T"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
