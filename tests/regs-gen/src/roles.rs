//! Which names of the headers core calls by another name.

use crate::list::{Alternative, BLOCKS, expand, parse_line, substitute};
use crate::versions::{Version, starts_with};

/// What core calls a register of the headers, and the prefix its field names lose there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoreName {
    /// Name in core.
    pub name: String,
    /// Prefix of field names in the headers that core leaves out.
    pub strip: Option<String>,
}

/// Core's name for a register of the headers (without prefix) in a version of a block: the same
/// name, unless `registers.txt` gives a role to it.
pub fn core_name(block: &str, version: Version, name: &str) -> CoreName {
    for role in roles() {
        let hit = role.blocks.contains(&block)
            && role.names.iter().any(|a| a.name == name && starts_with(version, &a.versions));
        if hit {
            return CoreName { name: role.core.clone(), strip: role.strip.clone() };
        }
    }
    CoreName { name: name.to_owned(), strip: None }
}

struct Role {
    blocks: &'static [&'static str],
    core: String,
    names: Vec<Alternative>,
    strip: Option<String>,
}

/// The roles of the checked-in list.
fn roles() -> &'static [Role] {
    static ROLES: std::sync::OnceLock<Vec<Role>> = std::sync::OnceLock::new();
    ROLES.get_or_init(|| {
        let mut out = Vec::new();
        let mut section = String::new();
        for (i, line) in include_str!("../registers.txt").lines().enumerate() {
            let line = line.trim();
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                section = name.to_owned();
            }
            if !line.contains(" = ") || line.starts_with('#') {
                continue;
            }
            let Ok(line) = parse_line(i + 1, &section, line) else { continue };
            let hubs: &[&str] = if line.section == "hub" { &["GC", "MM"] } else { &[""] };
            for hub in hubs {
                let block = match *hub {
                    "GC" => "gc",
                    "MM" => "mmhub",
                    _ => line.section.as_str(),
                };
                let Some(at) = BLOCKS.iter().position(|b| *b == block) else { continue };
                for (numbers, name) in expand(&line.name).unwrap_or_default() {
                    out.push(Role {
                        blocks: &BLOCKS[at..=at],
                        core: format!("{hub}{name}"),
                        names: line
                            .alternatives
                            .iter()
                            .map(|(versions, alt)| Alternative {
                                versions: versions.clone(),
                                name: format!("{hub}{}", substitute(alt, &numbers)),
                            })
                            .collect(),
                        strip: line.strip.as_ref().map(|s| substitute(s, &numbers)),
                    });
                }
            }
        }
        out
    })
}
