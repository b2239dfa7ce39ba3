//! The deviations file: what may differ from the reference, how often, and why.

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The most entries the file may have, over all GPUs.
pub const MAX_ENTRIES: usize = 15;

/// A row of a trace, or of ours, that a deviation speaks of.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, tag = "do", rename_all = "lowercase")]
pub enum Row {
    /// A write of ours that the trace lacks.
    Extra {
        /// Register, by core's name.
        register: String,
        /// Its value, if it is always the same.
        #[serde(default, with = "hex_option")]
        value: Option<u32>,
        /// Register of the trace's next write, if that matters.
        before: Option<String>,
    },
    /// Writes of the trace, one after the other, that we do not make.
    Missing {
        /// Registers and, where it matters, values.
        rows: Vec<MissingRow>,
    },
    /// A write with another value.
    Value {
        /// Register.
        register: String,
        /// Bits that differ.
        #[serde(with = "hex")]
        mask: u32,
        /// Those bits in our value.
        #[serde(with = "hex")]
        ours: u32,
        /// Those bits in the reference's.
        #[serde(with = "hex")]
        theirs: u32,
    },
    /// A value that both ways stands for another: our mark for the reference's.
    Translate {
        /// Register.
        register: String,
        /// Our value.
        #[serde(with = "hex")]
        ours: u32,
        /// The reference's.
        #[serde(with = "hex")]
        theirs: u32,
    },
    /// The answer to a read that the trace lacks.
    Answer {
        /// Register.
        register: String,
        /// What is answered.
        #[serde(with = "hex")]
        value: u32,
    },
    /// The trace ends where the reference gives up; we go on.
    Continues {},
    /// A message to the PSP without the 4 bytes that the reference writes beyond its end.
    Message {},
}

/// A row that is missing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MissingRow {
    /// Register.
    pub register: String,
    /// Value, if it matters.
    #[serde(default, with = "hex_option")]
    pub value: Option<u32>,
}

/// One deviation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Short name.
    pub id: String,
    /// Number of the reference's fault that it mends.
    pub fault: Option<u32>,
    /// Why.
    pub reason: String,
    /// Where that is written.
    pub source: String,
    /// Which rows.
    pub rows: Vec<Row>,
    /// How often, by trace (`*` stands for any text; the first pattern that matches counts, in the
    /// order of their names).
    pub counts: BTreeMap<String, usize>,
}

/// All deviations.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deviations {
    /// The entries.
    pub entries: Vec<Entry>,
}

fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => glob(rest, text) || (!text.is_empty() && glob(pattern, &text[1..])),
        (Some((a, p)), Some((b, t))) if a == b => glob(p, t),
        _ => false,
    }
}

impl Entry {
    /// How often it must apply in a trace.
    pub fn expected(&self, trace: &str) -> usize {
        self.counts
            .iter()
            .find(|(pattern, _)| glob(pattern.as_bytes(), trace.as_bytes()))
            .map_or(0, |(_, count)| *count)
    }
}

impl Deviations {
    /// Reads and checks the file.
    pub fn load() -> anyhow::Result<Self> {
        let path = crate::root().join("deviations.json");
        let text = crate::read(&path)?;
        let all: Deviations =
            serde_json::from_slice(&text).with_context(|| format!("in {}", path.display()))?;
        ensure!(all.entries.len() <= MAX_ENTRIES, "more than {MAX_ENTRIES} deviations");
        for (i, entry) in all.entries.iter().enumerate() {
            let id = &entry.id;
            ensure!(!entry.rows.is_empty() && !entry.counts.is_empty(), "deviation {id} is empty");
            ensure!(!entry.reason.is_empty() && !entry.source.is_empty(), "deviation {id} has no reason");
            if all.entries[..i].iter().any(|e| &e.id == id) {
                bail!("deviation {id} is listed twice");
            }
        }
        Ok(all)
    }

    /// Compares what applied in a trace with what must apply; a line for each that does not fit.
    pub fn check(&self, trace: &str, used: &BTreeMap<String, usize>) -> Vec<String> {
        self.entries
            .iter()
            .filter_map(|entry| {
                let (expected, actual) = (entry.expected(trace), used.get(&entry.id).copied().unwrap_or(0));
                (expected != actual).then(|| {
                    format!("deviation {} applied {actual} times in {trace}, listed are {expected}", entry.id)
                })
            })
            .collect()
    }
}

fn parse(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|e| format!("{text}: {e}"))
}

mod hex {
    use serde::{Deserialize, Deserializer, de::Error};
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u32, D::Error> {
        super::parse(&String::deserialize(d)?).map_err(D::Error::custom)
    }
}

mod hex_option {
    use serde::{Deserialize, Deserializer, de::Error};
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u32>, D::Error> {
        let text = Option::<String>::deserialize(d)?;
        text.map(|t| super::parse(&t)).transpose().map_err(D::Error::custom)
    }
}
