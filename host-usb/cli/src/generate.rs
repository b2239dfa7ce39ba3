//! Reproducible buffer contents.
//!
//! The linear congruential generator is x' = x * 1664525 + 1013904223 (mod 2^32); element i uses
//! the (i+1)-th value after the seed.

use crate::dtype::{DType, parse_int};
use std::str::FromStr;

/// How a buffer is filled.
#[derive(Clone, PartialEq, Debug)]
pub enum Generator {
    /// Zeros.
    Zero,
    /// One value, as text: its type is known later.
    Const(String),
    /// start + step * i, wrapped to the type.
    Iota {
        /// First value.
        start: i64,
        /// Difference of neighbours.
        step: i64,
    },
    /// Raw output; 64-bit types take two, the low word first; small types the low bits.
    Lcg {
        /// Start of the sequence.
        seed: u32,
    },
    /// Output modulo `modulus`.
    LcgMod {
        /// Start of the sequence.
        seed: u32,
        /// Not 0.
        modulus: u32,
    },
    /// (x >> 8) * 2^-24: evenly in 0..1, exact in f32. Floats only.
    LcgUnit {
        /// Start of the sequence.
        seed: u32,
    },
    /// (x >> 24) % mod - mod/2: small integers around 0.
    LcgSmall {
        /// Start of the sequence.
        seed: u32,
        /// Not 0.
        modulus: u32,
    },
    /// (((x >> 20) & 0xff) - 128) / 8: small multiples of 1/8. Floats only.
    LcgEighth {
        /// Start of the sequence.
        seed: u32,
    },
}

/// Names and parameters, as `--help` shows them.
pub const GENERATORS: &str = "zero, const(value=V), iota(start=0,step=1), lcg(seed=S), lcg_mod(seed=S,mod=M), \
     lcg_unit(seed=S), lcg_small(seed=S,mod=M), lcg_eighth(seed=S)";

fn lcg(seed: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(seed), |x| Some(x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223))).skip(1)
}

impl Generator {
    /// `count` elements of type `dtype`.
    pub fn bytes(&self, dtype: DType, count: usize) -> Result<Vec<u8>, String> {
        let len = count.checked_mul(dtype.size()).ok_or_else(|| format!("{count} elements are too many"))?;
        let mut out = Vec::new();
        out.try_reserve_exact(len).map_err(|_| format!("{len} bytes do not fit into memory"))?;
        match *self {
            Generator::Zero => out.resize(len, 0),
            Generator::Const(ref value) => {
                let element = dtype.parse_value(value)?;
                (0..count).for_each(|_| out.extend_from_slice(&element));
            }
            Generator::Iota { start, step } => {
                let values = std::iter::successors(Some(start), |x| Some(x.wrapping_add(step)));
                values.take(count).for_each(|v| dtype.push_int(&mut out, v));
            }
            Generator::Lcg { seed } if dtype.size() == 8 => {
                lcg(seed).take(2 * count).for_each(|x| out.extend_from_slice(&x.to_le_bytes()));
            }
            Generator::Lcg { seed } => {
                lcg(seed).take(count).for_each(|x| out.extend_from_slice(&x.to_le_bytes()[..dtype.size()]));
            }
            Generator::LcgMod { seed, modulus } => {
                lcg(seed).take(count).for_each(|x| dtype.push_int(&mut out, i64::from(x % modulus)));
            }
            Generator::LcgSmall { seed, modulus } => {
                let half = i64::from(modulus / 2);
                let small = |x: u32| i64::from((x >> 24) % modulus) - half;
                lcg(seed).take(count).for_each(|x| dtype.push_int(&mut out, small(x)));
            }
            Generator::LcgUnit { .. } | Generator::LcgEighth { .. } if !dtype.is_float() => {
                return Err(format!("lcg_unit and lcg_eighth make fractions; {dtype} cannot hold them"));
            }
            Generator::LcgUnit { seed } => {
                let unit = |x: u32| f64::from(x >> 8) / f64::from(1 << 24);
                lcg(seed).take(count).for_each(|x| dtype.push_float(&mut out, unit(x)));
            }
            Generator::LcgEighth { seed } => {
                let eighth = |x: u32| (f64::from((x >> 20) & 0xff) - 128.0) / 8.0;
                lcg(seed).take(count).for_each(|x| dtype.push_float(&mut out, eighth(x)));
            }
        }
        Ok(out)
    }
}

/// The `key=value` pairs in a generator's parentheses; a single bare value stands for `first`.
struct Params<'a> {
    name: &'a str,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Params<'a> {
    fn parse(text: &'a str, first: &'a str) -> Result<Self, String> {
        let (name, inner) = match text.split_once('(') {
            None => (text, ""),
            Some((name, rest)) => {
                (name, rest.strip_suffix(')').ok_or_else(|| format!("'{text}' lacks the closing ')'"))?)
            }
        };
        let pieces = inner.split(',').map(str::trim).filter(|p| !p.is_empty());
        let pairs = pieces
            .enumerate()
            .map(|(i, piece)| match piece.split_once('=') {
                Some((key, value)) => Ok((key.trim(), value.trim())),
                None if i == 0 => Ok((first, piece)),
                None => Err(format!("'{piece}' in '{text}' is not of the form key=value")),
            })
            .collect::<Result<_, String>>()?;
        Ok(Params { name, pairs })
    }

    fn take(&mut self, key: &str) -> Option<&'a str> {
        let at = self.pairs.iter().position(|(k, _)| *k == key)?;
        Some(self.pairs.remove(at).1)
    }

    fn int<T: TryFrom<i128>>(&mut self, key: &str, default: Option<T>) -> Result<T, String> {
        match (self.take(key), default) {
            (Some(text), _) => parse_int(&text.replace('_', ""))
                .and_then(|v| T::try_from(v).ok())
                .ok_or_else(|| format!("{key}={text} of generator {} is not a fitting integer", self.name)),
            (None, Some(value)) => Ok(value),
            (None, None) => Err(format!("generator {} needs {key}=…", self.name)),
        }
    }

    fn modulus(&mut self) -> Result<u32, String> {
        match self.int("mod", None)? {
            0 => Err(format!("mod=0 of generator {} divides by zero", self.name)),
            m => Ok(m),
        }
    }

    fn done(self) -> Result<(), String> {
        match self.pairs.first() {
            None => Ok(()),
            Some((key, _)) => Err(format!("generator {} has no (or only one) parameter '{key}'", self.name)),
        }
    }
}

impl FromStr for Generator {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let first = if text.starts_with("const") {
            "value"
        } else if text.starts_with("iota") {
            "start"
        } else {
            "seed"
        };
        let mut p = Params::parse(text.trim(), first)?;
        let generator = match p.name {
            "zero" => Generator::Zero,
            "const" => Generator::Const(p.take("value").ok_or("generator const needs value=…")?.to_owned()),
            "iota" => Generator::Iota { start: p.int("start", Some(0))?, step: p.int("step", Some(1))? },
            "lcg" => Generator::Lcg { seed: p.int("seed", None)? },
            "lcg_mod" => Generator::LcgMod { seed: p.int("seed", None)?, modulus: p.modulus()? },
            "lcg_unit" => Generator::LcgUnit { seed: p.int("seed", None)? },
            "lcg_small" => Generator::LcgSmall { seed: p.int("seed", None)?, modulus: p.modulus()? },
            "lcg_eighth" => Generator::LcgEighth { seed: p.int("seed", None)? },
            other => return Err(format!("unknown generator '{other}'; known are {GENERATORS}")),
        };
        p.done()?;
        Ok(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generators_parse_with_named_and_bare_parameters() {
        assert_eq!("lcg_unit(seed=5)".parse(), Ok(Generator::LcgUnit { seed: 5 }));
        assert_eq!("lcg(7)".parse(), Ok(Generator::Lcg { seed: 7 }));
        assert_eq!("iota".parse(), Ok(Generator::Iota { start: 0, step: 1 }));
        assert_eq!("iota(step=-2, start=0x10)".parse(), Ok(Generator::Iota { start: 16, step: -2 }));
        assert_eq!("const(1.5)".parse(), Ok(Generator::Const("1.5".into())));
        assert_eq!("lcg_mod(3,mod=5000)".parse(), Ok(Generator::LcgMod { seed: 3, modulus: 5000 }));
    }

    #[test]
    fn a_wrong_generator_says_what_is_wrong() {
        for (text, word) in [
            ("lcg", "needs seed"),
            ("lcg(seed=-1)", "fitting"),
            ("lcg_mod(seed=1,mod=0)", "zero"),
            ("lcg_mod(seed=1)", "needs mod"),
            ("lcg(seed=1,seed=2)", "seed"),
            ("zero(1)", "no (or only one) parameter"),
            ("const", "value"),
            ("lcg(seed=1", "closing"),
            ("random", "unknown generator"),
            ("iota(1,2)", "key=value"),
        ] {
            let error = text.parse::<Generator>().expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn fractions_do_not_go_into_integers() {
        assert!(Generator::LcgUnit { seed: 1 }.bytes(DType::U32, 4).is_err());
        assert!(Generator::LcgEighth { seed: 1 }.bytes(DType::I8, 4).is_err());
    }

    #[test]
    fn an_absurd_count_is_an_error() {
        assert!(Generator::Zero.bytes(DType::U64, usize::MAX).is_err());
        assert!(Generator::Zero.bytes(DType::U8, usize::MAX).is_err());
    }

    #[test]
    fn iota_wraps_and_lcg_eighth_is_exact() {
        let wrapped = Generator::Iota { start: 254, step: 1 }.bytes(DType::U8, 4);
        assert_eq!(wrapped, Ok(vec![254, 255, 0, 1]));
        // Seed 0: outputs 0x3c6ef35f, 0x47502932.
        let eighths = Generator::LcgEighth { seed: 0 }.bytes(DType::F32, 2).unwrap();
        let value = |x: u32| ((x >> 20 & 0xff) as f32 - 128.0) * 0.125;
        assert_eq!(eighths[..4], value(0x3c6e_f35f).to_le_bytes());
        assert_eq!(eighths[4..], value(0x4750_2932).to_le_bytes());
    }
}
