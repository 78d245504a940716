//! What one poll came to: numbers with their age, and what is to be said about them. Does no I/O.

mod wire;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::ingest::adapter::{self, Adapter, Aggregates, Answered};
use crate::ingest::origin::HowRead;
use crate::signal::Snapshot;

use super::questions::Told;
use super::select::Select;
use super::targets::{INSTANCE, Targets};

/// Scrapes that may be missed before numbers are no longer now.
const STALE_SCRAPES: u32 = 3;
/// Most warnings of one poll.
const WARNINGS_MAX: usize = 16;

/// One poll, complete: signals can be made of it at any later time.
#[derive(Clone, Debug, PartialEq)]
pub struct Answers {
    aggregates: Aggregates,
    silent: Option<String>,
    caveat: Option<String>,
    warnings: Vec<String>,
    instances: Option<(usize, usize)>,
    series: usize,
    age_s: f64,
    window: Duration,
    fresh_for: Duration,
    took: Duration,
}

/// What a poll knows besides the numbers.
pub(super) struct Circumstances<'a> {
    pub(super) adapter: &'a Adapter,
    pub(super) select: &'a Select,
    pub(super) targets: &'a Targets,
    pub(super) interval: Duration,
    pub(super) window: Duration,
    pub(super) is_partial: bool,
    /// Warnings and infos of the answers.
    pub(super) notices: Vec<String>,
    pub(super) took: Duration,
}

impl Answers {
    pub(super) fn new(told: Told, of: Circumstances<'_>) -> Self {
        let instances = told.up.zip(told.all).map(|(up, all)| (count(up), count(all)));
        let down: Vec<String> = told
            .down
            .iter()
            .map(|labels| {
                let name = labels.get(INSTANCE).unwrap_or("a target");
                let why =
                    of.targets.error_of(labels).unwrap_or_else(|| "its last scrape failed".into());
                format!("Prometheus cannot scrape {name}: {why}")
            })
            .collect();
        let is_there =
            of.adapter.metrics().any(|metric| told.aggregates.present.contains_key(&metric));
        let silent = match instances {
            Some((0, 1)) => down.first().cloned(),
            Some((0, all)) if all > 0 => {
                Some(format!("none of {all} instances can be scraped; {}", down.join("; ")))
            }
            _ if !is_there => Some(format!(
                "Prometheus has none of the metrics of adapter {} with {}: check `select`",
                of.adapter.name, of.select
            )),
            _ => None,
        };
        let mut doubts = Vec::new();
        if let Some((up, all)) = instances.filter(|(up, all)| up < all) {
            doubts.push(format!("{up} of {all} instances"));
        }
        if of.is_partial {
            doubts.push("a part of the data is missing".to_owned());
        }
        let mut warnings = of.notices;
        warnings.extend(down);
        warnings.dedup();
        warnings.truncate(WARNINGS_MAX);
        Self {
            silent,
            caveat: (!doubts.is_empty()).then(|| doubts.join("; ")),
            warnings,
            instances,
            series: told.series,
            age_s: told
                .now_s
                .zip(told.newest_s)
                .map_or(0.0, |(now, newest)| (now - newest).max(0.0)),
            aggregates: told.aggregates,
            window: of.window,
            fresh_for: of.interval.saturating_mul(STALE_SCRAPES),
            took: of.took,
        }
    }

    /// Age of the newest sample when it was asked for, in seconds by the server's clock.
    #[must_use]
    pub const fn age_s(&self) -> f64 {
        self.age_s
    }

    /// What increases are taken over.
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// How old the newest sample may be before the numbers are no longer now.
    #[must_use]
    pub const fn fresh_for(&self) -> Duration {
        self.fresh_for
    }

    /// What the server said about its answer, and the instances that it cannot scrape.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Instances that were scraped last, and all of them; `None` where the server has no `up`.
    #[must_use]
    pub const fn instances(&self) -> Option<(usize, usize)> {
        self.instances
    }

    /// Series in the answers.
    #[must_use]
    pub const fn series(&self) -> usize {
        self.series
    }

    /// How long the poll took.
    #[must_use]
    pub const fn took(&self) -> Duration {
        self.took
    }

    /// The quota scopes that the source tells apart; empty when it does not.
    #[must_use]
    pub fn scopes(&self, adapter: &Adapter) -> BTreeSet<String> {
        self.aggregates.scopes(adapter)
    }

    /// How a signal of `scope` was read; see [`adapter::readings_of_answers`].
    ///
    /// # Errors
    ///
    /// With the reason why nothing can be said.
    pub(in crate::ingest) fn readings(
        &self,
        name: &Arc<str>,
        adapter: &Adapter,
        scope: Option<&str>,
        signal: &str,
    ) -> Result<Vec<HowRead>, String> {
        adapter::readings_of_answers(&self.answered(name, adapter, 0.0), scope, signal)
    }

    fn answered<'a>(
        &'a self,
        name: &'a Arc<str>,
        adapter: &'a Adapter,
        age_s: f64,
    ) -> Answered<'a> {
        let (silent, caveat) = (self.silent.as_deref(), self.caveat.as_deref());
        Answered { name, adapter, aggregates: &self.aggregates, silent, caveat, age_s }
    }

    /// Writes what the source called `name` says about `scope` into `snapshot`, where nobody said it
    /// before. `age_s` is the age of its newest sample now.
    pub fn fill(
        &self,
        snapshot: &mut Snapshot,
        name: &Arc<str>,
        adapter: &Adapter,
        scope: Option<&str>,
        age_s: f64,
    ) {
        adapter::fill_answered(snapshot, &self.answered(name, adapter, age_s), scope);
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of targets")]
fn count(number: f64) -> usize {
    number.max(0.0) as usize
}
