//! What the gate has counted: monotonic counters by label, and latency histograms.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::counts::Counts;
use super::queue::{Lane, TenantId};
use super::refusal::Reason;
use super::tenants::Tenants;
use crate::dialect::Class;

/// Upper bounds of the latency buckets, in seconds: steps of a fifth from 5 ms to a minute, so
/// that a quantile is off by less than a tenth.
pub const LATENCY_BOUNDS: [f64; 46] = [
    0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.075, 0.09, 0.11, 0.13, 0.16, 0.2,
    0.25, 0.3, 0.36, 0.43, 0.52, 0.62, 0.75, 0.9, 1.1, 1.3, 1.6, 1.9, 2.2, 2.6, 3.0, 3.5, 4.0, 4.6,
    5.3, 6.1, 7.0, 8.0, 9.0, 10.0, 11.0, 13.0, 16.0, 20.0, 30.0, 45.0, 60.0,
];

/// Attempts up to which originals are told apart.
pub const REACHED_MAX: usize = 4;
/// Tenants that get a label of their own, per scope; the rest are `other`.
const TENANTS_MAX: usize = 20;
/// The name that tenants beyond the bound share.
const OTHER: &str = "other";
/// Codes of the provider that get a label of their own, per scope; the rest are `other`.
const CODES_MAX: usize = 32;

/// A latency histogram in the shape of a classic Prometheus histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Observations at or below each bound, not cumulative; the last is `+Inf`.
    pub buckets: [u64; LATENCY_BOUNDS.len() + 1],
    /// Sum of all observations in seconds.
    pub sum: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [0; LATENCY_BOUNDS.len() + 1], sum: 0.0 }
    }
}

impl Histogram {
    /// Adds an observation.
    pub fn observe(&mut self, value: Duration) {
        let seconds = value.as_secs_f64();
        let bucket = LATENCY_BOUNDS.partition_point(|bound| *bound < seconds);
        self.buckets[bucket] += 1;
        self.sum += seconds;
    }

    /// How many observations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// How the store of a shared budget answered one instance, by its shell's clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreCounters {
    /// Decisions, from question to answer or to giving up.
    pub took: Histogram,
    /// Questions without an answer in time.
    pub timeouts: u64,
    /// Questions that failed.
    pub errors: u64,
}

impl StoreCounters {
    /// It answered.
    pub fn answered(&mut self, took: Duration) {
        self.took.observe(took);
    }

    /// It was given up.
    pub fn timed_out(&mut self, took: Duration) {
        self.took.observe(took);
        self.timeouts += 1;
    }

    /// It could not be asked, or said that it cannot answer.
    pub const fn failed(&mut self) {
        self.errors += 1;
    }
}

/// One value of each lane.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PerLane<T>([T; 2]);

impl<T: Copy> PerLane<T> {
    /// The same for both.
    #[must_use]
    pub const fn both(value: T) -> Self {
        Self([value; 2])
    }
}

impl<T> PerLane<T> {
    /// Both, with their lanes.
    pub fn iter(&self) -> impl Iterator<Item = (Lane, &T)> {
        Lane::ALL.into_iter().zip(&self.0)
    }
}

impl PerLane<u64> {
    /// Both lanes together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.0[0] + self.0[1]
    }
}

impl<T> Index<Lane> for PerLane<T> {
    type Output = T;

    fn index(&self, lane: Lane) -> &T {
        &self.0[lane as usize]
    }
}

impl<T> IndexMut<Lane> for PerLane<T> {
    fn index_mut(&mut self, lane: Lane) -> &mut T {
        &mut self.0[lane as usize]
    }
}

/// Where in its life a request ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Waiting for quota.
    Queue,
    /// Waiting for a retry.
    Backoff,
    /// At the provider.
    Upstream,
}

impl Stage {
    /// The label's word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Backoff => "backoff",
            Self::Upstream => "upstream",
        }
    }
}

/// What the caller got from the provider in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Completion {
    /// A result.
    Success,
    /// The provider's refusal (429, quota).
    Refused,
    /// Any other answer, or none.
    Error,
}

impl Completion {
    /// The label's word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Refused => "refused",
            Self::Error => "error",
        }
    }
}

/// Why a retry was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// All attempts of the original are spent.
    Attempts,
    /// The scope's retry budget is spent.
    Budget,
    /// The next attempt would start or end after the deadline.
    Deadline,
    /// What the scope may spend on retries in money is spent.
    Money,
    /// The client owns retries.
    Owner,
    /// The answer will not change.
    Permanent,
    /// What the scope may spend on retries in tokens is spent.
    Tokens,
    /// It may have been processed, and doing it twice may do harm.
    Unsafe,
    /// The provider asks for too long a wait, or all waits together are too long.
    Wait,
}

impl Denied {
    /// The label's word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::Budget => "budget",
            Self::Deadline => "deadline",
            Self::Money => "money",
            Self::Owner => "owner",
            Self::Permanent => "permanent",
            Self::Tokens => "tokens",
            Self::Unsafe => "unsafe",
            Self::Wait => "wait",
        }
    }
}

/// How an attempt ended, for the label `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// With an HTTP status.
    Status(u16),
    /// The attempt's own time-out.
    Timeout,
    /// The caller's deadline came first.
    Deadline,
    /// The connection broke.
    Transport,
    /// The caller went away.
    Cancelled,
}

/// A refusal of the provider, by what it said.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefusalKey {
    /// HTTP status.
    pub status: u16,
    /// The provider's own code.
    pub code: Arc<str>,
    /// The meter that it names, `none` if none.
    pub meter: &'static str,
}

/// What one tenant did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TenantCounters {
    /// Requests that arrived.
    pub offered: u64,
    /// Requests refused, by the gate or for good by the provider.
    pub refused: u64,
    /// Requests answered with an error that is no refusal.
    pub failed: u64,
    /// Tokens billed.
    pub tokens: f64,
}

/// Everything counted for one scope. Every field only grows.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Distinct originals that arrived, by lane.
    pub originals: PerLane<u64>,
    /// Originals that got one attempt at least, two at least, and so on; of the last, as many or more.
    pub originals_reached: [u64; REACHED_MAX],
    /// Originals answered with success.
    pub originals_served: u64,
    /// Requests that arrived, by lane.
    pub offered: PerLane<u64>,
    /// Requests let through, by lane.
    pub admitted: PerLane<u64>,
    /// Requests refused, by lane and reason.
    pub shed: Counts<(Lane, Reason)>,
    /// What would have been refused in shadow mode, by reason.
    pub would_shed: Counts<Reason>,
    /// Requests that the provider answered for good, by outcome.
    pub completed: Counts<Completion>,
    /// Requests whose caller went away, by stage.
    pub cancelled: Counts<Stage>,
    /// Requests put off for later, by lane.
    pub deferred: PerLane<u64>,
    /// Requests that became too late, by stage.
    pub expired: Counts<Stage>,
    /// First attempts.
    pub attempts_first: u64,
    /// Attempts after the first of their original, whoever asked for them.
    pub attempts_retry: u64,
    /// Attempts by what came of them.
    pub results: Counts<(Class, Ending)>,
    /// Tries for which there was no connection; nothing was sent, so they are no attempts.
    pub unreachable: u64,
    /// Refusals of the provider.
    pub refusals: BTreeMap<RefusalKey, u64>,
    /// Calls that went past an open breaker and succeeded: it is open for too long.
    pub served_while_open: u64,
    /// Requests that ask again for a known original.
    pub client_repeats: u64,
    /// Requests that carry a retry mark above zero.
    pub retry_marked: u64,
    /// Retries that the gate made itself.
    pub gate_retries: u64,
    /// Attempts after the first that succeeded.
    pub retry_successes: u64,
    /// Retries that were not made, by reason.
    pub retries_denied: Counts<Denied>,
    /// Sum of the hints on refusals, in seconds.
    pub hints_sum_s: f64,
    /// How many refusals carried a hint.
    pub hints: u64,
    /// First guesses, in tokens.
    pub tokens_estimated: f64,
    /// Reserved tokens.
    pub tokens_reserved: f64,
    /// Billed tokens.
    pub tokens_actual: f64,
    tenant_ids: SmallVec<[TenantId; TENANTS_MAX]>,
    tenants: Vec<(Arc<str>, TenantCounters)>,
    other_tenants: Option<(Arc<str>, TenantCounters)>,
    /// Waits in the queue, by lane.
    pub queue_wait: PerLane<Histogram>,
    /// Attempts, from head written to answer complete.
    pub attempt_duration: Histogram,
    /// Requests answered with a result, from arrival to its end. A quick refusal by the provider is not
    /// service and would hide how slow service is.
    pub admitted_latency: Histogram,
    /// All requests, from arrival to answer, refusals included.
    pub offered_latency: Histogram,
}

impl Counters {
    /// Counts a refusal of the provider; codes beyond a bound share the label `other`.
    pub fn refused(&mut self, status: u16, code: &str, meter: &'static str) {
        let key = |code: Arc<str>| RefusalKey { status, code, meter };
        let exact = key(Arc::from(code));
        if let Some(count) = self.refusals.get_mut(&exact) {
            *count += 1;
        } else if self.refusals.len() < CODES_MAX {
            self.refusals.insert(exact, 1);
        } else {
            *self.refusals.entry(key(Arc::from("other"))).or_default() += 1;
        }
    }

    /// Counts an attempt, and which of its original it is, from 1.
    pub(super) fn attempted(&mut self, is_first: bool, number: u32) {
        self.attempts_first += u64::from(is_first);
        self.attempts_retry += u64::from(!is_first);
        let place = (number as usize).checked_sub(1);
        if let Some(reached) = place.and_then(|place| self.originals_reached.get_mut(place)) {
            *reached += 1;
        }
    }

    /// Originals that got their first attempt.
    #[must_use]
    pub const fn originals_attempted(&self) -> u64 {
        self.originals_reached[0]
    }

    /// The counters of a tenant; those beyond a bound share the name `other`.
    pub(super) fn tenant(&mut self, tenant: TenantId, names: &mut Tenants) -> &mut TenantCounters {
        let known = self.tenant_ids.iter().position(|known| *known == tenant);
        let place = known.unwrap_or(self.tenant_ids.len());
        if place == TENANTS_MAX {
            let new = || (Arc::from(OTHER), TenantCounters::default());
            return &mut self.other_tenants.get_or_insert_with(new).1;
        }
        if place == self.tenants.len() {
            self.tenant_ids.push(tenant);
            self.tenants.push((Arc::from(names.keep(tenant)), TenantCounters::default()));
        }
        &mut self.tenants[place].1
    }

    /// The first tenants to arrive, in that order, and `other`.
    pub fn tenants(&self) -> impl Iterator<Item = (&Arc<str>, &TenantCounters)> {
        self.tenants.iter().chain(&self.other_tenants).map(|(name, counts)| (name, counts))
    }

    /// Something of each part that an arrival or a refusal counts in, only to have looked at it.
    pub(super) fn touched(&self) -> impl Copy + use<> {
        (
            (self.offered.total(), self.originals.total(), self.admitted.total()),
            (self.client_repeats, self.retry_marked, self.shed.total(), self.tokens_estimated),
            (self.offered_latency.sum, self.offered_latency.buckets[0]),
            (self.queue_wait[Lane::Interactive].sum, self.queue_wait[Lane::Interactive].buckets[0]),
            (self.tenant_ids.last().copied(), self.tenants.len(), self.other_tenants.is_some()),
        )
    }

    /// All attempts.
    #[must_use]
    pub const fn attempts(&self) -> u64 {
        self.attempts_first + self.attempts_retry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observation_on_a_bound_belongs_to_it() {
        let mut histogram = Histogram::default();
        histogram.observe(Duration::from_millis(5));
        histogram.observe(Duration::from_millis(6));
        histogram.observe(Duration::from_hours(1));
        assert_eq!((histogram.buckets[0], histogram.buckets[1]), (1, 1));
        assert_eq!(histogram.buckets[LATENCY_BOUNDS.len()], 1);
        assert_eq!(histogram.count(), 3);
    }

    #[test]
    fn labels_of_a_hostile_provider_are_bounded() {
        let mut counters = Counters::default();
        for n in 0..1_000 {
            counters.refused(429, &format!("code-{n}"), "none");
        }
        assert!(counters.refusals.len() <= CODES_MAX + 1);
        assert_eq!(counters.refusals.values().sum::<u64>(), 1_000);
    }
}
