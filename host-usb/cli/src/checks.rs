//! Checks of a machine: what `doctor` shows and `report` keeps.

use crate::output::table;
use serde::Serialize;

/// How a check came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Good,
    /// Some devices or commands will not work, or work slowly.
    Warning,
    /// Nothing of this kind can work.
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: String,
    /// How it came out.
    pub state: State,
    /// What was found.
    pub found: String,
    /// The command that mends it; empty where nothing is to be mended.
    pub remedy: String,
}

impl Check {
    /// A check that came out well.
    pub fn good(name: impl Into<String>, found: impl Into<String>) -> Self {
        Check { name: name.into(), state: State::Good, found: found.into(), remedy: String::new() }
    }

    /// A check that found something to mend.
    pub fn mend(
        state: State,
        name: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Check { name: name.into(), state, found: found.into(), remedy: remedy.into() }
    }
}

/// The checks as a table, each remedy on a line of its own below its check.
pub fn text(checks: &[Check]) -> String {
    let mut rows = Vec::new();
    for check in checks {
        let state = match check.state {
            State::Good => "good",
            State::Warning => "warning",
            State::Bad => "BAD",
        };
        rows.push(vec![state.into(), check.name.clone(), check.found.clone()]);
        if !check.remedy.is_empty() {
            rows.push(vec![String::new(), String::new(), format!("-> {}", check.remedy)]);
        }
    }
    table(&["state", "check", "found"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_stands_below_its_check() {
        let checks = [
            Check::good("page size", "4 KiB"),
            Check::mend(State::Bad, "IOMMU", "off", "add intel_iommu=on to the kernel's command line"),
        ];
        let text = text(&checks);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[2].starts_with("BAD") && lines[3].trim_start().starts_with("-> add intel_iommu"));
        assert_eq!(lines[2].find("off"), lines[3].find("->"));
    }
}
