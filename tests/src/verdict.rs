//! What a comparison with golden data came to.

use std::collections::BTreeMap;
use std::fmt;

/// Result of comparing this driver with recorded behaviour of the reference.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Rows that are equal, or differ by a listed fault of the reference.
    pub matched: usize,
    /// Rows compared.
    pub total: usize,
    /// Addresses that are equal, of all that need not be.
    pub equal_addresses: (usize, usize),
    /// What differs without a listed reason, one line each.
    pub differences: Vec<String>,
    /// Listed faults of the reference (number or case) that were met, with the places.
    pub deviations: BTreeMap<&'static str, Vec<String>>,
}

impl Verdict {
    /// Whether everything that was compared is equal or has a listed reason.
    pub fn passed(&self) -> bool {
        self.differences.is_empty() && self.matched == self.total && self.total > 0
    }

    /// Counts a row; `differences` are those found in it.
    pub fn row(&mut self, place: &str, differences: Vec<String>) {
        self.total += 1;
        if differences.is_empty() {
            self.matched += 1;
        }
        self.differences.extend(differences.into_iter().map(|d| format!("{place}: {d}")));
    }

    /// Notes that a listed fault explains what is seen at a place.
    pub fn deviation(&mut self, fault: &'static str, place: &str) {
        let places = self.deviations.entry(fault).or_default();
        if places.last().is_none_or(|p| p != place) {
            places.push(place.to_owned());
        }
    }

    /// Counts an address that may, but need not, equal the reference's.
    pub fn address(&mut self, equal: bool) {
        self.equal_addresses.0 += usize::from(equal);
        self.equal_addresses.1 += 1;
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (equal, all) = self.equal_addresses;
        writeln!(f, "{} of {} rows match; {equal} of {all} addresses equal", self.matched, self.total)?;
        for (fault, places) in &self.deviations {
            writeln!(f, "deviation {fault}: {} places, first {}", places.len(), places[0])?;
        }
        for d in &self.differences {
            writeln!(f, "DIFFERENT {d}")?;
        }
        Ok(())
    }
}
