//! A runbook as it was read, with the lines that the linter and the tests name. Judges nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::NaiveDate;

use crate::diagnosis::{Book, Expr};

use super::format::Bounds;

/// A runbook as it was read, with what the linter needs beside it.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// The file's name.
    pub file: String,
    /// The runbook.
    pub book: Book,
    /// What the file says above its first step, Markdown.
    pub intro: String,
    /// The scope's parts that are asked at the start.
    pub scope: Vec<String>,
    /// The alerts that it opens on.
    pub opens_on: Vec<String>,
    pub(super) signals: Vec<(String, String, usize)>,
    pub(super) evidence_lines: BTreeMap<String, usize>,
    pub(super) entry_line: usize,
    pub(super) targets: Vec<(String, usize)>,
    pub(super) exprs: Vec<(Expr, usize)>,
    pub(super) previews: Vec<(String, usize)>,
    pub(super) flags: BTreeMap<String, Bounds>,
    pub(super) reviewed: Option<NaiveDate>,
    pub(super) review_every: Duration,
    pub(super) reviewed_line: usize,
    pub(super) plan_line: usize,
    pub(super) feeds: Vec<(String, usize)>,
    pub(super) asked_at: Vec<(String, usize)>,
}

impl Sheet {
    /// The date of the last review.
    #[must_use]
    pub const fn reviewed(&self) -> Option<NaiveDate> {
        self.reviewed
    }

    /// The line of an expression, the first from `from` on.
    pub(super) fn expr_line(&self, expr: &Expr, from: usize) -> usize {
        let lines = self.exprs.iter().filter(|(known, line)| known == expr && *line >= from);
        lines.map(|(_, line)| *line).min().unwrap_or(from)
    }
}
