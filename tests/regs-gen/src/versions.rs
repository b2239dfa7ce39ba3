//! Which tables there are and which serves a version: the contents of `versions.txt`.

use std::sync::OnceLock;

/// A version of an IP block: major, minor, revision.
pub type Version = (u8, u8, u8);

/// The text this module parses.
pub const TEXT: &str = include_str!("../versions.txt");

/// A table: one pair of headers as one block's registers.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// `gc`, `mp0`, `mp1`, `nbio`, `mmhub`, `osssys`, `hdp` or `sdma`.
    pub block: &'static str,
    /// The version the headers are of.
    pub version: Version,
    /// Headers below `asic_reg`, without `_offset.h` and `_sh_mask.h`.
    pub header: &'static str,
}

impl TableSpec {
    /// The header's name without its folder, for example `gc_11_0_0`.
    pub fn header_name(&self) -> &'static str {
        self.header.rsplit('/').next().unwrap_or(self.header)
    }
}

/// Versions that another version's table serves.
#[derive(Clone, Debug)]
pub struct Alias {
    /// The block.
    pub block: &'static str,
    /// The versions: all that start with these numbers.
    pub prefix: Vec<u8>,
    /// The version whose table serves them.
    pub to: Version,
    /// Why.
    pub why: &'static str,
}

/// A register that a header lacks.
#[derive(Clone, Debug)]
pub struct Extra {
    /// The block.
    pub block: &'static str,
    /// Version of the table.
    pub version: Version,
    /// Name, without prefix.
    pub name: &'static str,
    /// Base address index.
    pub segment: u8,
    /// Dword offset from the base.
    pub offset: u32,
    /// Why.
    pub why: &'static str,
}

/// The contents of `versions.txt`.
#[derive(Clone, Debug, Default)]
pub struct Versions {
    /// Every table, in order.
    pub tables: Vec<TableSpec>,
    /// Every alias, in order.
    pub aliases: Vec<Alias>,
    /// Every additional register.
    pub extras: Vec<Extra>,
}

/// Parses `11.0.3` or a prefix of it.
pub fn numbers(text: &str) -> Result<Vec<u8>, String> {
    text.split('.').map(|n| n.parse().map_err(|_| format!("`{text}` is not a version"))).collect()
}

fn version(text: &str) -> Result<Version, String> {
    match numbers(text)?.as_slice() {
        &[a, b, c] => Ok((a, b, c)),
        _ => Err(format!("`{text}` is not a version of three numbers")),
    }
}

/// Whether a version starts with the given numbers.
pub fn starts_with(version: Version, prefix: &[u8]) -> bool {
    [version.0, version.1, version.2].starts_with(prefix)
}

fn parse_number(text: &str) -> Result<u32, String> {
    let n = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    n.map_err(|_| format!("`{text}` is not a number"))
}

/// Parses the text of a versions file.
pub fn parse(text: &'static str) -> Result<Versions, String> {
    let mut out = Versions::default();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (head, why) = match line.split_once(" : ") {
            Some((h, w)) => (h, w.trim()),
            None => (line, ""),
        };
        let words: Vec<&str> = head.split_whitespace().collect();
        let result = (|| {
            match *words.as_slice() {
                ["table", block, v, header] => {
                    out.tables.push(TableSpec { block, version: version(v)?, header });
                }
                ["alias", block, from, "->", to] => out.aliases.push(Alias {
                    block,
                    prefix: if from == "*" { Vec::new() } else { numbers(from)? },
                    to: version(to)?,
                    why,
                }),
                ["extra", block, v, name, segment, offset] => out.extras.push(Extra {
                    block,
                    version: version(v)?,
                    name,
                    segment: parse_number(segment)?.try_into().map_err(|_| "segment above 255".to_owned())?,
                    offset: parse_number(offset)?,
                    why,
                }),
                _ => return Err("expected `table`, `alias` or `extra` with its arguments".to_owned()),
            }
            Ok(())
        })();
        result.map_err(|e: String| format!("versions.txt:{}: {e}", i + 1))?;
    }
    for alias in &out.aliases {
        if !out.tables.iter().any(|t| t.block == alias.block && t.version == alias.to) {
            return Err(format!(
                "versions.txt: alias of {} to {:?}, which has no table",
                alias.block, alias.to
            ));
        }
    }
    Ok(out)
}

/// The checked-in versions file.
pub fn versions() -> &'static Versions {
    static VERSIONS: OnceLock<Versions> = OnceLock::new();
    VERSIONS.get_or_init(|| parse(TEXT).unwrap_or_else(|e| panic!("{e}")))
}

impl Versions {
    /// The table that serves a version of a block: aliases first, then the version itself, then
    /// MAJOR.MINOR.0, then MAJOR.0.0.
    ///
    /// `mp` means `mp0` and `nbif` means `nbio`.
    pub fn select(&self, block: &str, version: Version) -> Option<&TableSpec> {
        let block = match block {
            "mp" => "mp0",
            "nbif" => "nbio",
            other => other,
        };
        let alias = self.aliases.iter().find(|a| a.block == block && starts_with(version, &a.prefix));
        let wanted = alias.map_or(version, |a| a.to);
        let order = [wanted, (wanted.0, wanted.1, 0), (wanted.0, 0, 0)];
        order.iter().find_map(|v| self.tables.iter().find(|t| t.block == block && t.version == *v))
    }
}
