//! Turns what a source has added up by itself into signals, as [`super::fill`] does with series.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::signal::{Quality, Snapshot};

use super::aggregated::Aggregates;
use super::evaluate::{Evaluation, Unknown};
use super::model::{Adapter, Entry, Reading};
use super::{Source, put};

/// What is said of counts that are not counted from scrape to scrape.
const ESTIMATE: &str = "estimated: a restart or a missing scrape in the window";

/// One source that adds up by itself, as the assembler knows it.
pub(in crate::ingest) struct Answered<'a> {
    pub(in crate::ingest) name: &'a Arc<str>,
    pub(in crate::ingest) adapter: &'a Adapter,
    pub(in crate::ingest) aggregates: &'a Aggregates,
    /// Why nothing can be said, although there was an answer.
    pub(in crate::ingest) silent: Option<&'a str>,
    /// What is missing from the numbers: some instances, or a part of the answer.
    pub(in crate::ingest) caveat: Option<&'a str>,
    /// Seconds since its newest sample.
    pub(in crate::ingest) age_s: f64,
}

/// Writes what the source says about `scope` into `snapshot`, where nobody said it before.
pub(in crate::ingest) fn fill_answered(
    snapshot: &mut Snapshot,
    answered: &Answered<'_>,
    scope: Option<&str>,
) {
    let Answered { name, adapter, aggregates, silent, caveat, age_s } = *answered;
    let source = Source { name, adapter, instances: &[], expected: 0, age_s };
    let answers = Some(aggregates);
    let evaluation = Evaluation { adapter, instances: &[], caveat, answers, scope, row: None };
    for (signal, entry) in &adapter.signals {
        put(snapshot, &source, signal, || {
            let mut found = match silent {
                Some(why) => return Err(Unknown::Nothing(why.to_owned())),
                None => evaluation.entry(entry)?,
            };
            if reads_any(adapter, entry, &aggregates.extrapolated) {
                found.quality = Quality::Inferred;
                let note = found.note.take().map(|note| format!("{note}; {ESTIMATE}"));
                found.note = note.or_else(|| Some(ESTIMATE.to_owned()));
            }
            Ok(found)
        });
    }
}

/// Whether an entry reads one of these metrics, by itself or through signals that it refers to.
fn reads_any(adapter: &Adapter, entry: &Entry, metrics: &BTreeSet<String>) -> bool {
    if metrics.is_empty() {
        return false;
    }
    let Entry::Readings(readings) = entry else { return false };
    entry.metrics().iter().any(|metric| metrics.contains(metric))
        || readings
            .iter()
            .flat_map(Reading::signals)
            .filter_map(|signal| adapter.signals.get(signal))
            .any(|entry| reads_any(adapter, entry, metrics))
}
