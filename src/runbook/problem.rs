//! What is wrong with a runbook: where, by which rule, and what to do about it.

use std::fmt;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file works; somebody should look at it.
    Warning,
    /// The file must not be used.
    Error,
}

impl Severity {
    /// The word used in output.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One finding in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file's name as it was given.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The rule (`WRB010`).
    pub code: &'static str,
    /// How bad.
    pub severity: Severity,
    /// The key or name that it is about.
    pub key: String,
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, code, severity, key, what, remedy } = self;
        write!(f, "{file}:{line}: {} {code} `{key}`: {what}; {remedy}", severity.word())
    }
}

/// Collects the findings of one file.
#[derive(Debug)]
pub(super) struct Findings<'a> {
    file: &'a str,
    pub(super) found: Vec<Problem>,
}

impl<'a> Findings<'a> {
    pub(super) const fn new(file: &'a str) -> Self {
        Self { file, found: Vec::new() }
    }

    pub(super) fn error(
        &mut self,
        code: &'static str,
        line: usize,
        key: &str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(Severity::Error, code, line, key, what.into(), remedy.into());
    }

    pub(super) fn warning(
        &mut self,
        code: &'static str,
        line: usize,
        key: &str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(Severity::Warning, code, line, key, what.into(), remedy.into());
    }

    fn add(
        &mut self,
        severity: Severity,
        code: &'static str,
        line: usize,
        key: &str,
        what: String,
        remedy: String,
    ) {
        let (file, key) = (self.file.to_owned(), key.to_owned());
        self.found.push(Problem { file, line, code, severity, key, what, remedy });
    }
}
