//! What the callers of one quota scope counted by themselves: the clients' word, beside the gate's and
//! the provider's.
//!
//! Fed alike by the virtual world and by the clients behind sockets. Everything is bounded.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::admission::Histogram;
use crate::signal::{Mono, Tokens};
use crate::sim::arrivals::Lane;
use crate::sim::callers::CallerKind;
use crate::sim::callers::job::ItemCounts;
use crate::sim::layers::{LayerCalls, Place};

use super::commonest::Commonest;
use super::sync::BusiestSecond;
use super::walk::Walk;

/// Callers and tenants that are told apart; the rest are counted together.
pub const SOURCES_MAX: usize = 200;

/// What is known of a call from the moment it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its caller's kind.
    pub kind: CallerKind,
    /// Its caller's place, and its tenant's among the caller's.
    pub source: (usize, usize),
    /// Its lane.
    pub lane: Lane,
    /// What it is charged when it succeeds.
    pub tokens: Tokens,
    /// The same for calls that are the same, whoever makes them.
    pub fingerprint: u128,
    /// Its place in a task of calls one after the other, from 0.
    pub round: u32,
    /// Whether it is the last of its task.
    pub is_last: bool,
}

/// How a call fared until its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    /// When it began.
    pub began: Mono,
    /// When the first of its requests failed.
    pub first_failure: Option<Mono>,
    /// Whether it was tried again after that.
    pub retried: bool,
    /// Its way over the scopes.
    pub walk: Walk,
    /// Whether the person behind it has gone.
    pub is_orphan: bool,
}

impl Course {
    /// A call that begins.
    #[must_use]
    pub fn new(now: Mono) -> Self {
        let walk = Walk::default();
        Self { began: now, first_failure: None, retried: false, walk, is_orphan: false }
    }
}

/// What one kind of caller did, or what was done in one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindCounts {
    /// Requests.
    pub calls: u64,
    /// Of those, answered with 429 or 503.
    pub refused: u64,
    /// Tokens of those that succeeded.
    pub tokens: Tokens,
}

/// What one tenant of one caller did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Requests.
    pub calls: u64,
    /// Tokens of those that succeeded.
    pub tokens: Tokens,
}

/// Totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Calls that began.
    pub originals: u64,
    /// Of those, calls that are not a further round of a task.
    pub chains: u64,
    /// Calls whose person got an answer.
    pub served: u64,
    /// Of those, the last of their task.
    pub final_answers: u64,
    /// Calls whose person did not.
    pub failed: u64,
    /// Of those, calls whose person left or had a deadline that came.
    pub left: u64,
    /// Answers that came when nobody waited any more.
    pub undelivered: u64,
    /// Calls that were tried again and have ended.
    pub retried: u64,
    /// Of those, calls that gave up.
    pub gave_up: u64,
    /// From the first failure of those to their giving up, together.
    pub gave_up_s: f64,
    /// Requests whose caller hung up.
    pub hung_up: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Of those, requests of the commonest few fingerprints.
    pub failures_of_few: u64,
    /// Calls that were sent at all and have ended.
    pub walked: u64,
    /// Moves of those from one scope to another.
    pub hops: u64,
    /// Scopes that those asked, together.
    pub distinct: u64,
    /// What those spent on their first scope before they moved on, together.
    pub wasted_s: f64,
    /// Calls that moved on at least once and have ended.
    pub fell_back: u64,
    /// Of those, calls that were served.
    pub fell_back_served: u64,
    /// Tasks of several calls that were served in every one.
    pub tasks_done: u64,
    /// Tasks of several calls that were not.
    pub tasks_failed: u64,
}

/// The callers' counters of one scope.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Totals.
    pub totals: Totals,
    /// Calls of each layer of a caller to the one below it, by the caller's place.
    pub calls: Vec<LayerCalls>,
    /// Requests without an answer yet.
    pub in_flight: u64,
    /// Calls that wait for their next try.
    pub waiting: u64,
    /// Calls that have not ended.
    pub open: u64,
    /// Of those, calls whose person has gone.
    pub orphans: u64,
    /// From the beginning of a call to its end.
    pub latency: Histogram,
    /// From a failure to the next try.
    pub retry_wait: Histogram,
    lanes: [KindCounts; 2],
    kinds: [KindCounts; CallerKind::ALL.len()],
    sources: BTreeMap<(usize, usize), SourceCounts>,
    others: SourceCounts,
    items: BTreeMap<usize, ItemCounts>,
    retries: BusiestSecond,
    failures: Commonest,
    /// Since when every answer has been a failure.
    dead_since: Option<Mono>,
}

impl Tally {
    /// A call begins.
    pub fn began(&mut self, told: &Told) {
        self.calls_of(told).begin();
        self.totals.originals += 1;
        self.totals.chains += u64::from(told.round == 0);
        self.open += 1;
    }

    fn calls_of(&mut self, told: &Told) -> &mut LayerCalls {
        let caller = told.source.0;
        if self.calls.len() <= caller {
            self.calls.resize(caller + 1, LayerCalls::default());
        }
        &mut self.calls[caller]
    }

    /// The layers of a call make a request, whichever scope it goes to.
    pub fn called(&mut self, told: &Told, place: &Place) {
        self.calls_of(told).count(place);
    }

    /// A request goes out to this scope, as a try after the first or not.
    pub fn sent(&mut self, told: &Told, is_retry: bool, now: Mono) {
        self.in_flight += 1;
        for counts in self.of_kind_and_lane(told) {
            counts.calls += 1;
        }
        self.source(told.source).calls += 1;
        if is_retry {
            self.retries.count(now);
        }
    }

    /// A request to this scope was answered with this status; 0 stands for no answer at all.
    pub fn answered(&mut self, told: &Told, status: u16, now: Mono) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let is_refused = status == 429 || status == 503;
        let is_good = (1..400).contains(&status);
        for counts in self.of_kind_and_lane(told) {
            counts.refused += u64::from(is_refused);
            counts.tokens += if is_good { told.tokens } else { Tokens(0) };
        }
        if is_good {
            self.source(told.source).tokens += told.tokens;
            self.dead_since = None;
            return;
        }
        self.dead_since.get_or_insert(now);
        self.totals.failures += 1;
        self.totals.failures_of_few += u64::from(self.failures.count(told.fingerprint, now));
    }

    /// The caller of a request to this scope hangs up.
    pub const fn hung_up(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.totals.hung_up += 1;
    }

    /// A call waits before its next try.
    pub fn waits(&mut self, wait: Duration) {
        self.waiting += 1;
        self.retry_wait.observe(wait);
    }

    /// Such a wait is over.
    pub const fn waited(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// The person behind a call leaves; the call may go on without.
    pub const fn left(&mut self) {
        self.totals.left += 1;
        self.totals.failed += 1;
        self.orphans += 1;
    }

    /// A call ends.
    pub fn ended(&mut self, told: &Told, course: &Course, served: bool, now: Mono) {
        let totals = &mut self.totals;
        self.open = self.open.saturating_sub(1);
        self.latency.observe(now.saturating_since(course.began));
        if course.is_orphan {
            self.orphans = self.orphans.saturating_sub(1);
            totals.undelivered += u64::from(served);
        } else {
            totals.served += u64::from(served);
            totals.failed += u64::from(!served);
            totals.final_answers += u64::from(served && told.is_last);
        }
        if course.retried {
            totals.retried += 1;
            if !served && !course.is_orphan {
                let since = course.first_failure.unwrap_or(course.began);
                totals.gave_up += 1;
                totals.gave_up_s += now.saturating_since(since).as_secs_f64();
            }
        }
        let walk = &course.walk;
        if walk.distinct() > 0 {
            totals.walked += 1;
            totals.hops += u64::from(walk.hops());
            totals.distinct += u64::from(walk.distinct());
            totals.wasted_s += walk.wasted().as_secs_f64();
            totals.fell_back += u64::from(walk.hops() > 0);
            totals.fell_back_served += u64::from(walk.hops() > 0 && served);
        }
    }

    /// A task of several calls ends.
    pub const fn task_ended(&mut self, is_done: bool) {
        if is_done {
            self.totals.tasks_done += 1;
        } else {
            self.totals.tasks_failed += 1;
        }
    }

    /// What became of a caller's items so far.
    pub fn set_items(&mut self, caller: usize, counts: ItemCounts) {
        self.items.insert(caller, counts);
    }

    const fn of_kind_and_lane(&mut self, told: &Told) -> [&mut KindCounts; 2] {
        [&mut self.kinds[told.kind as usize], &mut self.lanes[told.lane as usize]]
    }

    fn source(&mut self, source: (usize, usize)) -> &mut SourceCounts {
        if self.sources.len() >= SOURCES_MAX && !self.sources.contains_key(&source) {
            return &mut self.others;
        }
        self.sources.entry(source).or_default()
    }

    /// What each kind of caller did.
    pub fn kinds(&self) -> impl Iterator<Item = (CallerKind, &KindCounts)> {
        CallerKind::ALL.into_iter().zip(&self.kinds)
    }

    /// What was done in each lane.
    pub fn lanes(&self) -> impl Iterator<Item = (Lane, &KindCounts)> {
        [Lane::Interactive, Lane::Batch].into_iter().zip(&self.lanes)
    }

    /// What each tenant of each caller did, and what all beyond the bound did.
    #[must_use]
    pub const fn sources(&self) -> (&BTreeMap<(usize, usize), SourceCounts>, &SourceCounts) {
        (&self.sources, &self.others)
    }

    /// What became of the items of all jobs; `None` without a job.
    #[must_use]
    pub fn items(&self) -> Option<ItemCounts> {
        let sum = |a: ItemCounts, b: &ItemCounts| ItemCounts {
            listed: a.listed + b.listed,
            begun: a.begun + b.begun,
            duplicates: a.duplicates + b.duplicates,
            done: a.done + b.done,
            given_up: a.given_up + b.given_up,
            skipped_runs: a.skipped_runs + b.skipped_runs,
        };
        (!self.items.is_empty()).then(|| self.items.values().fold(ItemCounts::default(), sum))
    }

    /// Share of the last seconds' retries that fell into the busiest second; `None` with too few.
    #[must_use]
    pub fn retry_sync_share(&self, now: Mono) -> Option<f64> {
        self.retries.share(now)
    }

    /// How long every answer has been a failure; zero while some are not.
    #[must_use]
    pub fn dead_for(&self, now: Mono) -> Duration {
        self.dead_since.map_or(Duration::ZERO, |since| now.saturating_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(round: u32, is_last: bool) -> Told {
        let (kind, source, lane) = (CallerKind::Agent, (0, 0), Lane::Interactive);
        Told { kind, source, lane, tokens: Tokens(10), fingerprint: 1, round, is_last }
    }

    fn at(seconds: f64) -> Mono {
        Mono::from_secs_f64(seconds)
    }

    #[test]
    fn rounds_of_a_task_are_calls_of_one_original() {
        let mut tally = Tally::default();
        for round in 0..6 {
            let told = told(round, round == 5);
            tally.began(&told);
            tally.ended(&told, &Course::new(at(0.0)), true, at(1.0));
        }
        let Totals { originals, chains, served, final_answers, .. } = tally.totals;
        assert_eq!((originals, chains, served, final_answers, tally.open), (6, 1, 6, 1, 0));
    }

    #[test]
    fn who_gives_up_is_told_from_who_was_left() {
        let mut tally = Tally::default();
        let retried =
            Course { first_failure: Some(at(1.0)), retried: true, ..Course::new(at(0.0)) };
        for served in [true, false] {
            tally.began(&told(0, true));
            tally.ended(&told(0, true), &retried, served, at(4.0));
        }
        tally.began(&told(0, true));
        tally.left();
        let orphan = Course { is_orphan: true, ..retried };
        tally.ended(&told(0, true), &orphan, true, at(9.0));
        let Totals { retried, gave_up, gave_up_s, failed, served, undelivered, .. } = tally.totals;
        assert_eq!((retried, gave_up, failed, served, undelivered), (3, 1, 2, 1, 1));
        assert!((gave_up_s - 3.0).abs() < 1e-9);
        assert_eq!((tally.open, tally.orphans), (0, 0));
    }

    #[test]
    fn a_scope_is_dead_while_every_answer_is_a_failure() {
        let mut tally = Tally::default();
        tally.answered(&told(0, true), 503, at(5.0));
        tally.answered(&told(0, true), 0, at(9.0));
        assert_eq!(tally.dead_for(at(12.0)), Duration::from_secs(7));
        tally.answered(&told(0, true), 200, at(12.0));
        assert_eq!(tally.dead_for(at(13.0)), Duration::ZERO);
        let of_agents = tally.kinds().find(|(kind, _)| *kind == CallerKind::Agent);
        assert_eq!(
            of_agents.map(|(_, counts)| (counts.refused, counts.tokens)),
            Some((1, Tokens(10)))
        );
    }

    #[test]
    fn sources_beyond_the_bound_are_counted_together() {
        let mut tally = Tally::default();
        for tenant in 0..SOURCES_MAX + 5 {
            let told = Told { source: (0, tenant), ..told(0, true) };
            tally.sent(&told, false, at(0.0));
        }
        let (sources, others) = tally.sources();
        assert_eq!((sources.len(), others.calls), (SOURCES_MAX, 5));
    }
}
