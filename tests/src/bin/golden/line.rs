//! One line a file, and the exit code of them all.

/// Prints a line; a closed pipe (`golden ... | head -1`) is no failure.
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($arg)*);
    }};
}

use std::path::Path;

use amdev_tests::verdict::Verdict;

/// What came of a file.
pub(crate) struct Line {
    /// Things that are equal or have a listed reason, and things compared.
    pub(crate) matched: usize,
    pub(crate) total: usize,
    /// Listed reasons that were needed: name and how often.
    pub(crate) deviations: Vec<(String, usize)>,
    /// What differs without a reason.
    pub(crate) differences: Vec<String>,
    /// Anything worth knowing.
    pub(crate) notes: Vec<String>,
}

impl From<Verdict> for Line {
    fn from(v: Verdict) -> Self {
        let mut differences = v.differences;
        if v.total == 0 {
            differences.push("there is nothing to compare in it".into());
        }
        Line {
            matched: v.matched,
            total: v.total,
            deviations: v.deviations.iter().map(|(k, places)| ((*k).to_owned(), places.len())).collect(),
            differences,
            notes: Vec::new(),
        }
    }
}

impl Line {
    /// A file that cannot be compared: nothing matches.
    pub(crate) fn failed(error: String) -> Self {
        Line { matched: 0, total: 1, deviations: vec![], differences: vec![error], notes: vec![] }
    }
}

/// Prints and counts.
pub(crate) struct Printer {
    show: usize,
    summary: bool,
    code: u8,
    files: usize,
    checked: usize,
    matched: usize,
    deviations: usize,
}

impl Printer {
    pub(crate) fn new(show: usize, summary: bool) -> Self {
        Printer { show, summary, code: 0, files: 0, checked: 0, matched: 0, deviations: 0 }
    }

    fn worst(&mut self, code: u8) {
        // Unreadable files weigh more than differences.
        self.code = self.code.max(code);
    }

    /// A file that was compared.
    pub(crate) fn line(&mut self, command: &str, file: &Path, line: &Line) {
        // A file without anything to compare proves nothing.
        let good = line.differences.is_empty() && line.matched == line.total && line.total > 0;
        let used: usize = line.deviations.iter().map(|(_, n)| n).sum();
        let mut text = format!("{command} {}: {}/{}", file.display(), line.matched, line.total);
        if used > 0 {
            text += &format!(", {used} by listed reasons");
        }
        if !good {
            text += &format!(", {} DIFFERENT", line.differences.len().max(1));
        }
        say!("{text}");
        for (name, n) in &line.deviations {
            say!("    {n} × {name}");
        }
        for note in &line.notes {
            say!("    {note}");
        }
        for d in line.differences.iter().take(self.show) {
            say!("    differs: {d}");
        }
        if line.differences.len() > self.show {
            say!("    … and {} more", line.differences.len() - self.show);
        }
        self.files += 1;
        self.checked += line.total;
        self.matched += line.matched;
        self.deviations += used;
        if !good {
            self.worst(1);
        }
    }

    /// Wrong usage, or a file that cannot be read.
    pub(crate) fn unreadable(&mut self, what: &str) {
        eprintln!("error: {what}");
        self.worst(2);
    }

    /// The last line; the exit code.
    pub(crate) fn finish(self, command: &str) -> u8 {
        if self.files > 1 {
            say!(
                "{} files: {}/{}, {} by listed reasons",
                self.files,
                self.matched,
                self.checked,
                self.deviations
            );
        }
        if self.summary {
            let Printer { checked, matched, deviations, .. } = self;
            say!("summary: golden-{command} checked={checked} matched={matched} deviations={deviations}");
        }
        self.code
    }
}
