//! Turns what a source has added up by itself into signals, as [`super::fill`] does with series.

use std::sync::Arc;

use crate::signal::Snapshot;

use super::aggregated::Aggregates;
use super::evaluate::{Evaluation, Unknown};
use super::model::Adapter;
use super::{Source, put};

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
        let said = match silent {
            Some(why) => Err(Unknown::Nothing(why.to_owned())),
            None => evaluation.entry(entry),
        };
        put(snapshot, &source, signal, said);
    }
}
