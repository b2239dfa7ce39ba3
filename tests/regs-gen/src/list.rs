//! The list of registers that core uses: the syntax of `registers.txt`, and its expansion against
//! the headers into ids, families, hub pairs and fields.

use crate::headers::{Header, HeaderField, HeaderReg};
use crate::versions::{TableSpec, Version, numbers, starts_with};
use std::collections::HashSet;

/// The blocks, in the order of core's `Block`.
pub const BLOCKS: [&str; 8] = ["gc", "mp0", "mp1", "nbio", "mmhub", "osssys", "hdp", "sdma"];

/// A header name of a role, perhaps limited to some versions.
#[derive(Clone, Debug)]
pub struct Alternative {
    /// The versions, by their first numbers; all if empty.
    pub versions: Vec<u8>,
    /// Name without prefix.
    pub name: String,
}

/// One register of core.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Index into [`BLOCKS`].
    pub block: usize,
    /// Name in core.
    pub name: String,
    /// Its names in the headers.
    pub alternatives: Vec<Alternative>,
    /// Index of the entry whose fields it uses (its own, or the first of its family).
    pub owner: usize,
    /// A prefix its field names lose.
    pub strip: Option<String>,
    select: Select,
}

#[derive(Clone, Debug)]
pub(crate) enum Select {
    All,
    Names(Vec<String>),
}

/// Registers that differ by numbers.
#[derive(Clone, Debug)]
pub struct Family {
    /// Name without the numbers.
    pub name: String,
    /// Length of each dimension; `None` if a range does not begin at 0.
    pub dims: Option<Vec<usize>>,
    /// The entries, last number fastest.
    pub members: Vec<usize>,
}

/// The same register in both memory hubs.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Name without `GC` or `MM`.
    pub name: String,
    /// Entries of GC (one, or a family's).
    pub gc: Vec<usize>,
    /// Entries of MMHUB.
    pub mm: Vec<usize>,
    /// The dimensions if it is a family.
    pub dims: Option<Vec<usize>>,
}

/// A field of core.
#[derive(Clone, Debug)]
pub struct FieldEntry {
    /// The entry that owns it.
    pub owner: usize,
    /// Name, without the prefix stripped.
    pub name: String,
    /// Place in each table; `None` where the version lacks it.
    pub places: Vec<Option<(u8, u8)>>,
}

/// Everything core gets.
#[derive(Debug, Default)]
pub struct Model {
    /// Registers, grouped by block.
    pub entries: Vec<Entry>,
    /// Families.
    pub families: Vec<Family>,
    /// Hub pairs.
    pub pairs: Vec<Pair>,
    /// Fields, grouped by owner.
    pub fields: Vec<FieldEntry>,
    /// For each entry and table of its block, the register; indexed like the tables given.
    pub places: Vec<Vec<Option<(u8, u32)>>>,
}

/// A table's specification with its parsed headers.
pub struct Table<'a> {
    /// What it is.
    pub spec: &'a TableSpec,
    /// What the headers say.
    pub header: &'a Header,
}

/// `*` any text, `?` any one character.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|i| matches(rest, &name[i..])),
        Some((b'?', rest)) => !name.is_empty() && matches(rest, &name[1..]),
        Some((c, rest)) => name.first() == Some(c) && matches(rest, &name[1..]),
    }
}

/// Sorts `X2` before `X10`.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut out = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (head, tail) = rest.split_at(text);
        let digits = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (number, tail) = tail.split_at(digits);
        out.push((head.to_owned(), number.parse().unwrap_or(0)));
        rest = tail;
    }
    out
}

pub(crate) struct Line {
    pub(crate) number: usize,
    pub(crate) section: String,
    pub(crate) name: String,
    pub(crate) alternatives: Vec<(Vec<u8>, String)>,
    pub(crate) select: Select,
    pub(crate) strip: Option<String>,
    pub(crate) each: bool,
}

pub(crate) fn parse_line(number: usize, section: &str, line: &str) -> Result<Line, String> {
    let (left, right) = match line.split_once(" = ") {
        Some((l, r)) => (l.trim(), Some(r.trim())),
        None => (line, None),
    };
    let (name, alternatives, rest) = match right {
        None => {
            let (name, rest) = left.split_once(' ').ok_or("no fields given (`*`, `-` or names)")?;
            (name, Vec::new(), rest.trim())
        }
        Some(right) => {
            let mut alternatives = Vec::new();
            let mut rest = right;
            loop {
                let (word, tail) = rest.split_once(' ').ok_or("no fields given (`*`, `-` or names)")?;
                let (versions, name) = match word.strip_prefix('@').and_then(|w| w.split_once(':')) {
                    Some((v, n)) => (numbers(v)?, n),
                    None => (Vec::new(), word),
                };
                alternatives.push((versions, name.to_owned()));
                rest = tail.trim();
                match rest.strip_prefix("| ") {
                    Some(more) => rest = more.trim(),
                    None => break (left, alternatives, rest),
                }
            }
        }
    };
    let mut names = Vec::new();
    let (mut all, mut strip, mut each) = (false, None, false);
    for word in rest.split_whitespace() {
        match word {
            "*" => all = true,
            "-" => {}
            "each" => each = true,
            _ => match word.strip_prefix("strip=") {
                Some(s) => strip = Some(s.to_owned()),
                None => names.push(word.to_owned()),
            },
        }
    }
    Ok(Line {
        number,
        section: section.to_owned(),
        name: name.to_owned(),
        alternatives,
        select: if all { Select::All } else { Select::Names(names) },
        strip,
        each,
    })
}

/// Pieces of text and the ranges between them.
type Ranges<'a> = (Vec<&'a str>, Vec<(u32, u32)>);

/// The ranges `{a..b}` in a name: pieces of text between them and the ranges themselves.
fn ranges(name: &str) -> Result<Ranges<'_>, String> {
    let (mut texts, mut out, mut rest) = (Vec::new(), Vec::new(), name);
    while let Some((head, tail)) = rest.split_once('{') {
        let (range, tail) = tail.split_once('}').ok_or("`{` without `}`")?;
        let (a, b) = range.split_once("..").ok_or("a range is written {0..7}")?;
        let parse = |t: &str| t.parse::<u32>().map_err(|_| format!("`{t}` is not a number"));
        texts.push(head);
        out.push((parse(a)?, parse(b)?));
        rest = tail;
    }
    texts.push(rest);
    Ok((texts, out))
}

pub(crate) fn substitute(text: &str, numbers: &[u32]) -> String {
    numbers
        .iter()
        .enumerate()
        .fold(text.to_owned(), |t, (i, n)| t.replace(&format!("{{{i}}}"), &n.to_string()))
}

/// Reads the list and resolves it against the tables.
pub fn build(text: &str, tables: &[Table<'_>]) -> Result<Model, String> {
    let mut lines: Vec<Line> = Vec::new();
    let mut excludes: Vec<(String, String)> = Vec::new();
    let mut section = String::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fail = |e: String| format!("registers.txt:{}: {e}", i + 1);
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            if name != "hub" && !BLOCKS.contains(&name) {
                return Err(fail(format!("unknown section {name}")));
            }
            section = name.to_owned();
        } else if let Some(pattern) = line.strip_prefix('!') {
            excludes.push((section.clone(), pattern.to_owned()));
        } else {
            lines.push(parse_line(i + 1, &section, line).map_err(fail)?);
        }
    }
    let mut model = Model::default();
    let mut problems = Vec::new();
    for (block, block_name) in BLOCKS.iter().enumerate() {
        let hub = match *block_name {
            "gc" => "GC",
            "mmhub" => "MM",
            _ => "",
        };
        let wanted = |l: &&Line| l.section == *block_name || (!hub.is_empty() && l.section == "hub");
        let is_glob = |l: &Line| l.name.contains(['*', '?']);
        // Names given explicitly are not taken by patterns.
        let mut seen: HashSet<String> = HashSet::new();
        for line in lines.iter().filter(wanted).filter(|l| !is_glob(l)) {
            for (numbers, name) in
                expand(&line.name).map_err(|e| format!("registers.txt:{}: {e}", line.number))?
            {
                let prefix = if line.section == "hub" { hub } else { "" };
                if !seen.insert(format!("{prefix}{name}")) {
                    return Err(format!("registers.txt:{}: {name} is listed twice", line.number));
                }
                seen.extend(line.alternatives.iter().map(|(_, a)| substitute(a, &numbers)));
            }
        }
        for line in lines.iter().filter(wanted) {
            let fail = |e: String| format!("registers.txt:{}: {e}", line.number);
            if is_glob(line) {
                let mut names: Vec<&str> = tables
                    .iter()
                    .filter(|t| t.spec.block == *block_name)
                    .flat_map(|t| &t.header.regs)
                    .map(|r| r.name.as_str())
                    .filter(|n| matches(line.name.as_bytes(), n.as_bytes()))
                    .filter(|n| {
                        !excludes.iter().any(|(s, p)| s == block_name && matches(p.as_bytes(), n.as_bytes()))
                    })
                    .collect();
                names.sort_by_cached_key(|n| natural(n));
                names.dedup();
                names.retain(|n| seen.insert((*n).to_owned()));
                if names.is_empty() {
                    problems.push(fail(format!("nothing matches {}", line.name)));
                }
                for name in names {
                    let owner = model.entries.len();
                    model.entries.push(Entry {
                        block,
                        name: name.to_owned(),
                        alternatives: vec![Alternative { versions: Vec::new(), name: name.to_owned() }],
                        owner,
                        strip: None,
                        select: line.select.clone(),
                    });
                }
                continue;
            }
            let in_hub = line.section == "hub";
            let prefix = if in_hub { hub } else { "" };
            let first = model.entries.len();
            let expanded = expand(&line.name).map_err(fail)?;
            for (numbers, name) in &expanded {
                let mut alternatives = Vec::new();
                if line.alternatives.is_empty() {
                    alternatives.push(Alternative { versions: Vec::new(), name: format!("{prefix}{name}") });
                }
                for (versions, alt) in &line.alternatives {
                    let alt = substitute(alt, numbers);
                    alternatives
                        .push(Alternative { versions: versions.clone(), name: format!("{prefix}{alt}") });
                }
                if in_hub {
                    // Before gfx10 neither hub marks its names.
                    let plain: Vec<Alternative> = alternatives
                        .iter()
                        .map(|a| Alternative {
                            versions: a.versions.clone(),
                            name: a.name.strip_prefix(prefix).unwrap_or(&a.name).to_owned(),
                        })
                        .collect();
                    alternatives.extend(plain);
                }
                let own = model.entries.len();
                model.entries.push(Entry {
                    block,
                    name: format!("{prefix}{name}"),
                    alternatives,
                    owner: if line.each { own } else { first },
                    strip: line.strip.as_ref().map(|s| substitute(s, numbers)),
                    select: line.select.clone(),
                });
            }
            let members: Vec<usize> = (first..model.entries.len()).collect();
            let (texts, dims) = ranges(&line.name).map_err(fail)?;
            let dims = (!dims.is_empty() && dims.iter().all(|d| d.0 == 0))
                .then(|| dims.iter().map(|d| d.1 as usize + 1).collect::<Vec<_>>());
            let family = join(&texts);
            if texts.len() > 1 {
                model.families.push(Family {
                    name: format!("{prefix}{family}"),
                    dims: dims.clone(),
                    members: members.clone(),
                });
            }
            if in_hub {
                match hub {
                    "GC" => model.pairs.push(Pair { name: family, gc: members, mm: Vec::new(), dims }),
                    _ => {
                        let pair = model.pairs.iter_mut().find(|p| p.name == family);
                        pair.ok_or_else(|| fail("hub pair without GC".into()))?.mm = members;
                    }
                }
            }
        }
    }
    resolve(&mut model, tables, &mut problems);
    if problems.is_empty() { Ok(model) } else { Err(problems.join("\n")) }
}

/// Joins the pieces between numbers, without doubled or hanging underscores.
fn join(texts: &[&str]) -> String {
    let mut out = String::new();
    for text in texts {
        let text = if out.ends_with('_') { text.trim_start_matches('_') } else { text };
        out.push_str(text);
    }
    out.trim_end_matches('_').to_owned()
}

pub(crate) fn expand(name: &str) -> Result<Vec<(Vec<u32>, String)>, String> {
    let (texts, dims) = ranges(name)?;
    let mut out: Vec<(Vec<u32>, String)> =
        vec![(Vec::new(), texts.first().copied().unwrap_or("").to_owned())];
    for (i, &(from, to)) in dims.iter().enumerate() {
        let text = texts.get(i + 1).copied().unwrap_or("");
        out = out
            .into_iter()
            .flat_map(|(numbers, head)| {
                (from..=to).map(move |n| {
                    let mut numbers = numbers.clone();
                    numbers.push(n);
                    (numbers, format!("{head}{n}{text}"))
                })
            })
            .collect();
    }
    Ok(out)
}

impl Entry {
    /// The register of this role in a table's header.
    pub fn find<'h>(&self, header: &'h Header, version: Version) -> Option<&'h HeaderReg> {
        self.alternatives
            .iter()
            .filter(|a| starts_with(version, &a.versions))
            .find_map(|a| header.get(&a.name))
    }

    fn fields(&self, reg: &HeaderReg) -> Vec<HeaderField> {
        let renamed = reg.fields.iter().map(|f| {
            let name = self.strip.as_deref().and_then(|s| f.name.strip_prefix(s)).unwrap_or(&f.name);
            HeaderField { name: name.to_owned(), ..f.clone() }
        });
        match &self.select {
            Select::All => renamed.collect(),
            Select::Names(names) => renamed.filter(|f| names.contains(&f.name)).collect(),
        }
    }
}

fn resolve(model: &mut Model, tables: &[Table<'_>], problems: &mut Vec<String>) {
    // Per owner: field name, place per table.
    type Fields = Vec<(String, Vec<Option<(u8, u8)>>)>;
    let mut owned: Vec<Fields> = vec![Vec::new(); model.entries.len()];
    let mut seen: Vec<Vec<Option<Vec<HeaderField>>>> = vec![vec![None; tables.len()]; model.entries.len()];
    for entry in &model.entries {
        let mut places = vec![None; tables.len()];
        for (t, table) in tables.iter().enumerate() {
            if BLOCKS[entry.block] != table.spec.block {
                continue;
            }
            let Some(reg) = entry.find(table.header, table.spec.version) else { continue };
            places[t] = Some((reg.segment, reg.offset));
            let mut fields = entry.fields(reg);
            fields.sort_by(|a, b| (a.lsb, &a.name).cmp(&(b.lsb, &b.name)));
            if let Some(before) = &seen[entry.owner][t] {
                if *before != fields {
                    let differs = |a: &[HeaderField], b: &[HeaderField]| {
                        let only: Vec<_> =
                            a.iter().filter(|f| !b.contains(f)).map(|f| f.name.clone()).collect();
                        only.join(" ")
                    };
                    problems.push(format!(
                        "{} differs from its family in {}: [{}] instead of [{}]",
                        entry.name,
                        table.spec.header,
                        differs(&fields, before),
                        differs(before, &fields)
                    ));
                }
                continue;
            }
            for f in &fields {
                let list = &mut owned[entry.owner];
                let at = list.iter().position(|(n, _)| *n == f.name).unwrap_or_else(|| {
                    list.push((f.name.clone(), vec![None; tables.len()]));
                    list.len() - 1
                });
                list[at].1[t] = Some((f.lsb, f.width));
            }
            seen[entry.owner][t] = Some(fields);
        }
        if places.iter().all(Option::is_none) {
            problems.push(format!("{} ({}) exists in no version", entry.name, BLOCKS[entry.block]));
        }
        if let Select::Names(names) = &entry.select {
            let known = &owned[entry.owner];
            problems.extend(
                names
                    .iter()
                    .filter(|n| !known.iter().any(|(k, _)| k == *n))
                    .map(|n| format!("{}.{n} exists in no version", entry.name)),
            );
        }
        model.places.push(places);
    }
    for (owner, list) in owned.into_iter().enumerate() {
        model.fields.extend(list.into_iter().map(|(name, places)| FieldEntry { owner, name, places }));
    }
}
