//! What is known of every source between two observations: its numbers, its state, its errors.
//!
//! Opens no socket and starts no task; the poller tells it what came.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::signal::Mono;

use super::super::assembler::{Assembler, ONLY, Page, SourceId, SourceRules};
use super::super::exposition::{BODY_BYTES_MAX, Format, TooLarge};
use super::super::observation::{Observation, SourceStatus};
use super::super::origin::Origin;
use super::super::page::degraded;
use super::super::prometheus::Answers;
use super::super::scrape::{ScrapeError, no_sample};
use super::{News, STALE_INTERVALS, SourceConfig, SourceFacts};

/// Instances that are named when several do not answer.
const NAMED_MAX: usize = 3;

/// What is known of the sources. Tell it what was heard, in order of time, and ask for observations.
#[derive(Debug)]
pub struct Ledger {
    assembler: Assembler,
    sources: Vec<Kept>,
}

/// One source between two observations.
#[derive(Debug)]
struct Kept {
    id: SourceId,
    status: SourceStatus,
    /// How long its numbers count by how often it is asked.
    stale_after: Duration,
    /// Why its instances are not known.
    undiscovered: Option<String>,
    instances: BTreeMap<String, Member>,
}

/// How one instance did last.
#[derive(Debug, Default)]
struct Member {
    error: Option<String>,
    degraded: Vec<(usize, String)>,
    samples: usize,
    took_s: f64,
    /// Whether it was ever asked.
    was_asked: bool,
}

impl Ledger {
    /// A ledger of these sources, which were not heard yet.
    pub fn new(sources: impl IntoIterator<Item = SourceFacts>) -> Self {
        let mut assembler = Assembler::new();
        let sources = sources.into_iter().map(|source| {
            let rules = rules_of(&source);
            let stale_after = rules.stale_after;
            let id = assembler.add(&source.name, rules);
            Kept {
                id,
                status: SourceStatus {
                    name: source.name,
                    url: source.url,
                    via: source.via,
                    last_good: None,
                    stale_after_s: stale_after.as_secs_f64(),
                    error: None,
                    degraded: Vec::new(),
                    warnings: Vec::new(),
                    instances: (0, 1),
                    took_s: 0.0,
                    samples: 0,
                    polls: 0,
                    failures: 0,
                },
                stale_after,
                undiscovered: None,
                instances: BTreeMap::new(),
            }
        });
        Self { sources: sources.collect(), assembler }
    }

    /// Takes in what was heard of the source at this place. Of one that there is not, nothing.
    pub fn take(&mut self, source: usize, news: &News, at: Mono) {
        let Some(kept) = self.sources.get_mut(source) else { return };
        match news {
            News::Instances(names) => {
                self.assembler.expect(kept.id, names.iter().map(String::as_str));
                kept.undiscovered = None;
                let mut before = std::mem::take(&mut kept.instances);
                let stay = names.iter().map(|name| {
                    let member = before.remove(name).unwrap_or_default();
                    (name.clone(), member)
                });
                kept.instances = stay.collect();
            }
            News::Undiscovered(why) => kept.undiscovered = Some(why.clone()),
            News::Answered(outcome) => {
                kept.answered(outcome, at);
                if let Ok(answers) = outcome {
                    self.assembler.answer(kept.id, Arc::clone(answers), at);
                }
                return;
            }
            News::Polled { instance, took, outcome } => {
                let Some(member) = kept.instances.get_mut(&**instance) else { return };
                kept.status.polls += 1;
                member.was_asked = true;
                member.took_s = took.as_secs_f64();
                let names = (kept.status.name.as_str(), &**instance);
                let page = outcome.as_ref().map_err(Clone::clone);
                match page.and_then(|page| read(&mut self.assembler, kept.id, names, page, at)) {
                    Ok((samples, bad)) => {
                        kept.status.last_good = Some(at);
                        member.error = None;
                        member.degraded = bad;
                        member.samples = samples;
                    }
                    Err(error) => {
                        self.assembler.fail(kept.id, instance, at);
                        kept.status.failures += 1;
                        member.error = Some(error);
                    }
                }
            }
        }
        kept.summarize();
    }

    /// Where a signal of a scope comes from, as of `at`.
    #[must_use]
    pub fn origin(&self, scope: &str, signal: &str, at: Mono) -> Origin {
        self.assembler.origin(scope, signal, at)
    }

    /// What is known at `at`, which is `wall` on the calendar.
    #[must_use]
    pub fn observation(&self, at: Mono, wall: DateTime<Utc>) -> Observation {
        Observation {
            at,
            wall,
            scopes: self.assembler.snapshots(at).into_iter().map(Arc::new).collect(),
            sources: self.sources.iter().map(|kept| kept.status.clone()).collect(),
        }
    }
}

/// How long the numbers of a source count, by how often and how patiently it is asked.
pub(in crate::ingest) fn rules(source: &SourceConfig) -> SourceRules {
    rules_of(&SourceFacts::from(source))
}

fn rules_of(source: &SourceFacts) -> SourceRules {
    let SourceFacts { interval, adapter, timeout, .. } = source;
    // A page that takes long is not old while it is waited for.
    let patience = timeout.saturating_add(*interval);
    SourceRules {
        adapter: Arc::clone(adapter),
        window: source.window(),
        stale_after: interval.saturating_mul(STALE_INTERVALS).max(patience),
    }
}

/// Puts a page into the assembler: its samples and its bad lines.
fn read(
    assembler: &mut Assembler,
    id: SourceId,
    (source, instance): (&str, &str),
    (body, format): &(Vec<u8>, Format),
    at: Mono,
) -> Result<(usize, Vec<(usize, String)>), String> {
    let page = Page { body, format: *format };
    let report = assembler.accept(id, instance, page, at).map_err(|TooLarge { .. }| {
        let source_name = source.to_owned();
        ScrapeError::TooLarge { source_name, limit: BODY_BYTES_MAX }.to_string()
    })?;
    no_sample(source, report.samples, &report)
        .map_or_else(|| Ok((report.samples, degraded(&report))), |error| Err(error.to_string()))
}

impl Kept {
    /// Notes how a query API answered. Where it did not, what it said last stays until it is too old.
    fn answered(&mut self, outcome: &Result<Arc<Answers>, String>, at: Mono) {
        let status = &mut self.status;
        status.polls += 1;
        match outcome {
            Ok(answers) => {
                status.last_good = Some(at);
                let stale_after = self.stale_after.max(answers.fresh_for());
                status.stale_after_s = stale_after.as_secs_f64();
                status.error = None;
                status.warnings = answers.warnings().to_vec();
                status.instances = answers.instances().unwrap_or((1, 1));
                status.took_s = answers.took().as_secs_f64();
                status.samples = answers.series();
            }
            Err(error) => {
                status.failures += 1;
                status.error = Some(error.clone());
            }
        }
    }

    /// Makes one line of what the instances say.
    fn summarize(&mut self) {
        let asked = || self.instances.values().filter(|one| one.was_asked);
        let down: Vec<&str> = asked().filter_map(|one| one.error.as_deref()).collect();
        let status = &mut self.status;
        let all = self.instances.len();
        status.instances = (asked().count() - down.len(), all);
        status.took_s = asked().map(|one| one.took_s).fold(0.0, f64::max);
        status.samples = asked().map(|one| one.samples).sum();
        let instances = self.instances.iter().filter(|(_, one)| one.was_asked);
        let bad = instances.flat_map(|(name, one)| one.degraded.iter().map(move |bad| (name, bad)));
        let named = |(name, (line, reason)): (&String, &(usize, String))| {
            let of = if name == ONLY { String::new() } else { format!(" ({name})") };
            (*line, format!("{reason}{of}"))
        };
        status.degraded = bad.map(named).collect();
        status.warnings.clear();
        status.error = None;
        match (&self.undiscovered, down.as_slice()) {
            (Some(why), _) if all == 0 => status.error = Some(format!("{}: {why}", status.name)),
            (None, _) if all == 0 => {
                let name = &status.name;
                status.error = Some(format!("{name}: has no instance: was it scaled to none?"));
            }
            (_, []) => {}
            (_, [only]) if all == 1 => status.error = Some((*only).to_owned()),
            (_, down) if down.len() == all => {
                status.error = Some(format!("none of {all} instances answers: {}", down[0]));
            }
            (_, down) => {
                let named = down.iter().take(NAMED_MAX).map(|error| (*error).to_owned());
                status.warnings.extend(named);
            }
        }
        if let Some(why) = self.undiscovered.as_ref().filter(|_| all > 0) {
            status.warnings.push(format!("instances as of before: {why}"));
        }
    }
}
