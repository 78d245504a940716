//! Turns what a source has added up by itself into signals, as [`super::fill`] does with series.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::signal::{Quality, Snapshot};

use super::aggregated::Aggregates;
use super::evaluate::{Evaluation, Found, Unknown};
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
    let Answered { name, adapter, age_s, .. } = *answered;
    let source = Source { name, adapter, instances: &[], expected: 0, age_s };
    let evaluation = answered.evaluation(scope);
    for (signal, entry) in &adapter.signals {
        put(snapshot, &source, signal, || {
            Ok(answered.doubted(entry, evaluation.clone()?.entry(entry)?))
        });
    }
}

impl<'a> Answered<'a> {
    /// The answers, to be evaluated for a scope.
    ///
    /// # Errors
    ///
    /// With the reason why nothing can be said.
    pub(super) fn evaluation(&self, scope: Option<&'a str>) -> Result<Evaluation<'a>, Unknown> {
        let Answered { adapter, aggregates, silent, caveat, .. } = *self;
        if let Some(why) = silent {
            return Err(Unknown::Nothing(why.to_owned()));
        }
        let answers = Some(aggregates);
        Ok(Evaluation { adapter, instances: &[], caveat, answers, scope, row: None })
    }

    /// What was found, marked as an estimate where it rests on one.
    pub(super) fn doubted(&self, entry: &Entry, mut found: Found) -> Found {
        if reads_any(self.adapter, entry, &self.aggregates.extrapolated) {
            found.quality = Quality::Inferred;
            let note = found.note.take().map(|note| format!("{note}; {ESTIMATE}"));
            found.note = note.or_else(|| Some(ESTIMATE.to_owned()));
        }
        found
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
