//! What sources behind query APIs would have shown in the time before the first poll.
//!
//! Asks each of them once, for everything at a coarse step, and puts the answers together as the
//! assembler does with polls. A source that cannot say leaves a gap, and why is told. Pages have no
//! past.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::signal::{Mono, Snapshot};

use super::assembler::{Assembler, SourceId};
use super::poller::{Road, SourceConfig, rules};
use super::prometheus::Answers;

/// From one moment of the past to the next; servers that scrape more seldom take longer steps.
const STEP: Duration = Duration::from_secs(15);

/// The time before the first poll.
#[derive(Debug, Default)]
pub struct Past {
    /// By quota scope, oldest first.
    pub scopes: BTreeMap<String, Vec<(Mono, Arc<Snapshot>)>>,
    /// What could not be had, in words that name the source.
    pub troubles: Vec<String>,
}

/// Whether any of the sources has a past.
#[must_use]
pub fn has_past(sources: &[SourceConfig]) -> bool {
    sources.iter().any(|source| matches!(source.road, Road::Queries(_)))
}

/// The last `span` of the sources that have a past, which ends `now`. Moments before
/// [`Mono::START`] are left out.
pub async fn past(sources: &[SourceConfig], span: Duration, now: Mono) -> Past {
    let asked = sources.iter().filter_map(|source| match &source.road {
        Road::Queries(queries) => {
            let queries = Arc::clone(queries);
            Some(async move { (source, queries.backfill(span, STEP).await) })
        }
        Road::Pages { .. } => None,
    });
    let mut past = Past::default();
    let mut histories = Vec::new();
    for (source, answered) in join_all(asked.collect::<Vec<_>>()).await {
        match answered {
            Ok(history) => histories.push((source, history)),
            Err(error) => past.troubles.push(format!("{error}; the last hour stays empty")),
        }
    }
    past.scopes = together(histories, now);
    past
}

/// Puts the answers of several sources into snapshots, each as of its moment.
fn together(
    histories: Vec<(&SourceConfig, Vec<(f64, Answers)>)>,
    now: Mono,
) -> BTreeMap<String, Vec<(Mono, Arc<Snapshot>)>> {
    let mut assembler = Assembler::new();
    let mut moments: BTreeMap<Mono, Vec<(SourceId, Arc<Answers>)>> = BTreeMap::new();
    for (source, history) in histories {
        let id = assembler.add(&source.name, rules(source));
        for (ago_s, answers) in history {
            let ago = Duration::try_from_secs_f64(ago_s).unwrap_or(Duration::MAX);
            let is_in_reach = now.since_start() >= ago;
            if is_in_reach {
                moments.entry(now - ago).or_default().push((id, Arc::new(answers)));
            }
        }
    }
    let mut scopes: BTreeMap<String, Vec<(Mono, Arc<Snapshot>)>> = BTreeMap::new();
    for (at, answers) in moments {
        for (id, answers) in answers {
            assembler.answer(id, answers, at);
        }
        for snapshot in assembler.snapshots(at) {
            let samples = scopes.entry(snapshot.scope.clone()).or_default();
            samples.push((at, Arc::new(snapshot)));
        }
    }
    scopes
}
