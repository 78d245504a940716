//! Changes a runbook in one place after the other and asks whether its tests notice. A change that no
//! test notices is a line of the runbook that could be wrong without anybody knowing.
//!
//! A mutant changes the book in memory only. Predicates are evaluated once, all of a file's variants
//! beside the originals in one pass over each case; what a mutant then costs is the walk over the
//! expectations whose evidence it alters, until the first that fails.

use std::sync::Arc;

use crate::diagnosis::{Facts, Library, Predicate, TRIAGE, Truth};

use super::check::Open;
use super::judge::Moment;
use super::mutants::{Change, mutants};
use super::pin::Pin;
use super::problem::{Findings, Problem};
use super::sheet::Sheet;
use super::suite::TestFile;

/// Most mutants of one file.
const MAX_MUTANTS: usize = 2_000;

/// A change that no test notices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// Its line in the runbook.
    pub line: usize,
    /// What was changed.
    pub what: String,
    /// How a test would notice.
    pub remedy: &'static str,
    /// The evidence whose threshold it moved.
    threshold_of: Option<String>,
}

/// What became of the mutants of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// Changes that no test noticed, in the order of lines.
    pub survivors: Vec<Survivor>,
    /// How many there were.
    pub mutants: usize,
    /// How many more were not tried, because there are too many.
    pub left_out: usize,
}

impl Mutation {
    /// How many were noticed.
    #[must_use]
    pub fn killed(&self) -> usize {
        self.mutants - self.survivors.len()
    }
}

/// Tries every mutant of a sheet against its tests, which must pass as they are.
///
/// # Errors
/// A sentence when the tests cannot be run, or do not pass.
pub fn mutate(
    tests: &TestFile,
    sheet: &Sheet,
    library: &Arc<Library>,
    open: Open<'_>,
) -> Result<Mutation, String> {
    let all = mutants(sheet);
    let left_out = all.len().saturating_sub(MAX_MUTANTS);
    let tried = &all[..all.len() - left_out];
    let variants = tried.iter().enumerate().filter_map(|(place, mutant)| match &mutant.change {
        Change::Predicate { predicate, .. } => Some((hidden(place), (**predicate).clone())),
        Change::Book(_) => None,
    });
    let bench = Bench::new(tests, sheet, library, variants, open)?;
    let mut survivors = Vec::new();
    for (place, mutant) in tried.iter().enumerate() {
        let (noticed, threshold_of) = match &mutant.change {
            Change::Predicate { name, threshold, predicate } => (
                bench.notices_predicate(name, &hidden(place), predicate),
                threshold.then(|| name.clone()),
            ),
            Change::Book(book) => match library.with((**book).clone()) {
                Ok(changed) => (bench.notices(&changed), None),
                // What cannot be loaded cannot be overlooked.
                Err(_) => (true, None),
            },
        };
        if !noticed {
            let (line, what, remedy) = (mutant.line, mutant.what.clone(), mutant.remedy);
            survivors.push(Survivor { line, what, remedy, threshold_of });
        }
    }
    survivors.sort_by_key(|survivor| survivor.line);
    Ok(Mutation { survivors, mutants: tried.len(), left_out })
}

/// Warns of thresholds that could be moved by a quarter without a test noticing.
///
/// # Errors
/// A sentence when the tests cannot be run, or do not pass.
pub fn lint_thresholds(
    tests: &TestFile,
    sheet: &Sheet,
    library: &Arc<Library>,
    open: Open<'_>,
) -> Result<Vec<Problem>, String> {
    let mut findings = Findings::new(&sheet.file);
    let mut named: Vec<String> = Vec::new();
    for survivor in mutate(tests, sheet, library, open)?.survivors {
        let Some(name) = survivor.threshold_of.filter(|name| !named.contains(name)) else {
            continue;
        };
        let what = "no pin and no test tells the threshold from one a quarter away";
        let remedy = "add a [[pin]] with `holds` and `fails` on its two sides";
        findings.warning("WRB050", survivor.line, &name, what, remedy);
        named.push(name);
    }
    Ok(findings.found)
}

/// Warns of a test file that says nothing about its runbook.
#[must_use]
pub fn unusable_tests(runbook: &str, why: &str) -> Problem {
    let mut findings = Findings::new(runbook);
    let remedy = "correct the test file beside the runbook, or what it tests";
    findings.warning("WRB051", 1, "tests", why, remedy);
    findings.found.remove(0)
}

/// A name that no expression can hold, for the variant at this place.
fn hidden(place: usize) -> String {
    format!("\u{0}{place}")
}

/// The tests of one file, with the evidence of every moment and of every variant.
struct Bench<'a> {
    book: &'a str,
    library: &'a Library,
    moments: Vec<Moment<'a>>,
    pins: Vec<Pin>,
    own: &'a Sheet,
}

impl<'a> Bench<'a> {
    fn new(
        tests: &'a TestFile,
        sheet: &'a Sheet,
        library: &'a Arc<Library>,
        variants: impl Iterator<Item = (String, Predicate)>,
        open: Open<'_>,
    ) -> Result<Self, String> {
        let mut book = sheet.book.clone();
        book.evidence.extend(variants);
        let extended = library.with(book).map_err(|error| error.to_string())?;
        let moments = tests.moments(&Arc::new(extended), open)?;
        let bench =
            Self { book: &sheet.book.id, library, moments, pins: tests.pins()?, own: sheet };
        let fails = bench.moments.iter().any(|moment| bench.fails(moment, library, &moment.facts));
        let missed =
            sheet.book.evidence.iter().any(|(name, predicate)| bench.pinned(name, predicate));
        if fails || missed {
            return Err(format!(
                "{}: its tests do not pass; `weir runbook test` says which",
                tests.file_name()
            ));
        }
        Ok(bench)
    }

    fn fails(&self, moment: &Moment<'_>, library: &Library, facts: &Facts) -> bool {
        !moment.judge(library, self.book, facts).wrong.is_empty()
    }

    /// Whether an expectation fails with another runbook in the place of this one.
    fn notices(&self, changed: &Library) -> bool {
        self.moments.iter().any(|moment| self.fails(moment, changed, &moment.facts))
    }

    /// Whether a pin of this evidence fails on this predicate.
    fn pinned(&self, name: &str, predicate: &Predicate) -> bool {
        let mut pins = self.pins.iter().filter(|pin| pin.evidence() == name);
        pins.any(|pin| pin.check(predicate).is_ok_and(|wrong| !wrong.is_empty()))
    }

    /// Whether a pin or an expectation fails with another predicate under this name.
    fn notices_predicate(&self, name: &str, hidden: &str, predicate: &Predicate) -> bool {
        self.pinned(name, predicate)
            || self.moments.iter().any(|moment| {
                if !differs(&moment.facts, self.book, name, hidden) {
                    return false;
                }
                let facts = moment.facts.read_as(self.readers(name), (self.book, hidden));
                self.fails(moment, self.library, &facts)
            })
    }

    /// Who reads the evidence of this name: the runbook, and when it is the triage also those that
    /// have none of that name.
    fn readers<'b>(&'b self, name: &'b str) -> impl Iterator<Item = (&'b str, &'b str)> {
        let shared = self.book == TRIAGE;
        let books = self.library.books().filter(move |book| {
            book.id == self.own.book.id || (shared && !book.evidence.contains_key(name))
        });
        books.map(move |book| (book.id.as_str(), name))
    }
}

/// Whether a variant says something else than what it is a variant of.
fn differs(facts: &Facts, book: &str, name: &str, hidden: &str) -> bool {
    let (left, right) = (facts.seen(book, name), facts.seen(book, hidden));
    let why = |name: &str| facts.get(book, name).and_then(|evidence| evidence.reason);
    left != right || (left.state == Truth::Unknown && !left.pending && why(name) != why(hidden))
}
