//! A walk as a file that another weir can open: versioned JSON, text in and text out. Opens no file
//! and reads no clock; a text that is broken, foreign or of a later format is refused with a remedy.
//!
//! It names every runbook with the hash of its text, so that a reader whose runbooks differ is told,
//! and a step that is gone is replaced by the nearest one that is known, never guessed.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Frozen, HandOver, MAX_EVIDENCE, MAX_HAND_OVERS, MAX_NOTES, MAX_TRAIL, Walk};
use crate::diagnosis::{Library, TRIAGE};

/// Largest file of a walk in bytes.
pub const MAX_WALK_BYTES: usize = 16 * 1024 * 1024;
/// What the file says it is.
const KIND: &str = "weir-walk";
/// The format that this weir writes and reads.
const FORMAT: u64 = 1;

/// Why a walk could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WalkFileError {
    /// More than a walk can be.
    #[error("the file is larger than 16 MiB: no walk is; check which file it is")]
    TooLarge,
    /// It ends too early.
    #[error(
        "the file ends in the middle of a value, at line {line}; fetch it again from whoever saved it"
    )]
    Truncated {
        /// The last line.
        line: usize,
    },
    /// No JSON, or not as a walk has it.
    #[error("line {line}: {why}; fetch it again from whoever saved it")]
    Broken {
        /// The line.
        line: usize,
        /// What is wrong there.
        why: String,
    },
    /// JSON of something else.
    #[error("it is no walk: `kind` is not `weir-walk`; name a file that weir saved at a hand-over")]
    Foreign,
    /// Written by a newer weir.
    #[error(
        "it is of format {found}, this weir reads format {FORMAT}; open it with the weir that saved it, or a newer one"
    )]
    Later {
        /// The format.
        found: u64,
    },
    /// More of something than a walk holds.
    #[error("it holds {found} {what}, a walk holds {max}; it was not saved by weir")]
    TooMuch {
        /// Of what.
        what: &'static str,
        /// How many.
        found: usize,
        /// How many there may be.
        max: usize,
    },
}

/// Enough to tell what a text is, whatever else it holds.
#[derive(Deserialize)]
#[serde(expecting = "the object of a walk")]
struct Head {
    kind: Option<String>,
    format: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "the object of a walk")]
struct Page {
    kind: String,
    format: u64,
    saved_at: DateTime<Utc>,
    saved_by: String,
    scope: String,
    runbooks: BTreeMap<String, String>,
    position: Place,
    notes: Vec<String>,
    handed_over: Vec<HandOver>,
    trail: Vec<Frozen>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with runbook and node")]
struct Place {
    runbook: String,
    node: String,
}

impl Walk {
    /// The walk as the text of a file, saved by a person at an instant.
    #[must_use]
    pub fn write(&self, by: &str, at: DateTime<Utc>) -> String {
        let books = self.library.books();
        let page = Page {
            kind: KIND.to_owned(),
            format: FORMAT,
            saved_at: at,
            saved_by: by.to_owned(),
            scope: self.scope.clone(),
            runbooks: books.map(|book| (book.id.clone(), book.digest.clone())).collect(),
            position: Place { runbook: self.book.clone(), node: self.node.clone() },
            notes: self.notes.clone(),
            handed_over: self.hand_overs.clone(),
            trail: self.trail.clone(),
        };
        // Strings, numbers and instants of four-digit years: there is nothing in it that fails.
        serde_json::to_string_pretty(&page).map_or_else(|_| String::new(), |text| text + "\n")
    }

    /// Opens the text of a file on the runbooks of this weir. `zero` is the calendar's time at the
    /// zero of the run that goes on with it. What does not fit any more stands in
    /// [`Walk::remarks`].
    ///
    /// # Errors
    /// [`WalkFileError`] says what is wrong with the text, and what to do.
    pub fn read(
        text: &str,
        library: Arc<Library>,
        zero: DateTime<Utc>,
    ) -> Result<Self, WalkFileError> {
        if text.len() > MAX_WALK_BYTES {
            return Err(WalkFileError::TooLarge);
        }
        let head: Head = serde_json::from_str(text).map_err(|error| broken(&error, text))?;
        if head.kind.as_deref() != Some(KIND) {
            return Err(WalkFileError::Foreign);
        }
        if let Some(found) = head.format.filter(|found| *found > FORMAT) {
            return Err(WalkFileError::Later { found });
        }
        let page: Page = serde_json::from_str(text).map_err(|error| broken(&error, text))?;
        bounded(&page)?;
        let mut walk = Self::start(library).of(&page.scope, zero);
        walk.notes = page.notes;
        walk.hand_overs = page.handed_over;
        walk.trail = page.trail;
        walk.settle(&page.position);
        walk.compare(&page.runbooks);
        Ok(walk)
    }

    /// Stands where the file says, or at the last step of the trail that this weir knows.
    fn settle(&mut self, place: &Place) {
        let known = |walk: &Self, book: &str, node: &str| walk.knows(book, node);
        if known(self, &place.runbook, &place.node) {
            (self.book, self.node) = (place.runbook.clone(), place.node.clone());
            return;
        }
        let near = self.trail.iter().rev().find(|step| known(self, &step.book, &step.node));
        let near = near.map(|step| (step.book.clone(), step.node.clone()));
        if let Some((book, node)) = near {
            (self.book, self.node) = (book, node);
        }
        self.remarks.push(format!(
            "step `{}` of runbook `{}` is not here: opened at `{}` of `{}` instead",
            place.node, place.runbook, self.node, self.book
        ));
    }

    /// Says which runbooks are not the ones that the walk was made with.
    fn compare(&mut self, then: &BTreeMap<String, String>) {
        let passed = |id: &str| id == TRIAGE || self.trail.iter().any(|step| step.book == id);
        let mut remarks = Vec::new();
        let mut others = 0_usize;
        for (id, digest) in then {
            let now = self.library.book(id).map(|book| &book.digest);
            let what = match now {
                Some(now) if now == digest => continue,
                Some(_) => "differs from the one this walk was made with",
                None => "is not loaded here; add it to go on in it",
            };
            if passed(id) || *id == self.book {
                remarks.push(format!("runbook `{id}` {what}"));
            } else {
                others += 1;
            }
        }
        if others > 0 {
            remarks.push(format!("{others} runbooks that were not walked differ or are missing"));
        }
        self.remarks.extend(remarks);
    }
}

fn broken(error: &serde_json::Error, text: &str) -> WalkFileError {
    let line = error.line();
    // A number that ends behind its point is no end to the parser.
    let last = text.lines().next_back().unwrap_or_default();
    let at_end = line >= text.lines().count() && error.column() >= last.len();
    if error.is_eof() || (error.is_syntax() && at_end) {
        return WalkFileError::Truncated { line };
    }
    // The position is said once, in front.
    let why = error.to_string();
    let why = why.split(" at line ").next().unwrap_or(&why).to_owned();
    WalkFileError::Broken { line, why }
}

fn bounded(page: &Page) -> Result<(), WalkFileError> {
    let notes = page.notes.len() + page.trail.iter().map(|step| step.notes.len()).sum::<usize>();
    let evidence = page.trail.iter().map(|step| step.evidence.len()).max().unwrap_or(0);
    let counts = [
        ("steps", page.trail.len(), MAX_TRAIL),
        ("notes", notes, MAX_NOTES),
        ("hand-overs", page.handed_over.len(), MAX_HAND_OVERS),
        ("pieces of evidence in one step", evidence, MAX_EVIDENCE),
    ];
    match counts.into_iter().find(|(_, found, max)| found > max) {
        Some((what, found, max)) => Err(WalkFileError::TooMuch { what, found, max }),
        None => Ok(()),
    }
}
