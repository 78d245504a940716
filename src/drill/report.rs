//! What a drill has shown: phases as differences of two readings, the verdicts, the ledger.
//!
//! Pure. The same report comes from the live and from the virtual run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::observed::Totals;
use super::phases::Phase;
use crate::admission::LATENCY_BOUNDS;
use crate::diagnosis::{HEALTHY, INSUFFICIENT, Standing, Verdict};
use crate::gateway::Tally;
use crate::signal::{Bucket, histogram_quantile};
use crate::sim::ledger::Ledger;

/// One phase of the report. Counts are of this phase alone; times are seconds since the start.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseReport {
    /// Its name.
    pub name: String,
    /// Its nominal start.
    pub from_s: f64,
    /// Its end; the last one's includes the drain.
    pub to_s: f64,
    /// Distinct originals that arrived.
    pub originals: u64,
    /// Originals with at least one attempt in this phase.
    pub originals_attempted: u64,
    /// Originals answered with success.
    pub originals_served: u64,
    /// Served originals over originals.
    pub served_share: Option<f64>,
    /// Requests that arrived at the gate.
    pub offered: u64,
    /// Requests let through.
    pub admitted: u64,
    /// Requests that the gate refused, those that waited too long included.
    pub shed: u64,
    /// Requests answered with success.
    pub completed: u64,
    /// Requests that reached the provider.
    pub attempts: u64,
    /// 429 answers of the provider.
    pub provider_429: u64,
    /// Tokens that the provider billed.
    pub tokens_sent: u64,
    /// Attempts over originals with an attempt.
    pub amplification: Option<f64>,
    /// Requests over originals.
    pub client_multiplication: Option<f64>,
    /// 95th percentile of let-through requests that got a result, arrival to end.
    pub latency_admitted_p95_s: Option<f64>,
    /// 95th percentile of all requests, arrival to answer.
    pub latency_offered_p95_s: Option<f64>,
    /// Greatest age of the oldest waiting request.
    pub queue_oldest_age_max_s: f64,
}

/// What the simulated provider has counted by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerReport {
    /// Distinct originals that reached it.
    pub originals: u64,
    /// Requests that reached it.
    pub attempts: u64,
    /// Requests that it answered with 429.
    pub provider_429: u64,
    /// Tokens that it charged.
    pub tokens_sent: u64,
    /// See [`Ledger::early_repeats`].
    pub early_repeats: Option<u64>,
    /// See [`Ledger::final_repeats`].
    pub final_repeats: Option<u64>,
}

impl LedgerReport {
    /// Before anything has come.
    pub(super) const NOTHING: Self = Self {
        originals: 0,
        attempts: 0,
        provider_429: 0,
        tokens_sent: 0,
        early_repeats: Some(0),
        final_repeats: Some(0),
    };

    /// Adds what one quota scope's provider counted.
    pub(super) fn add(&mut self, ledger: &Ledger) {
        let both = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        self.originals += ledger.originals();
        self.attempts += ledger.attempts();
        self.provider_429 += ledger.answered(429);
        self.tokens_sent += ledger.tokens().0;
        self.early_repeats = both(self.early_repeats, ledger.early_repeats());
        self.final_repeats = both(self.final_repeats, ledger.final_repeats());
    }
}

/// Readings at the two ends of a phase.
#[derive(Clone, Debug)]
pub struct Span {
    /// The phase.
    pub phase: Phase,
    /// When it really ended, since the start of the run.
    pub ended: Duration,
    /// Totals at its start.
    pub before: Tally,
    /// Totals at its end, read with a mark, as those at its start were.
    pub after: Tally,
    /// Greatest age of the oldest waiting request seen in between.
    pub oldest_age_max_s: f64,
}

/// When which verdict came.
#[derive(Clone, Debug, Default)]
pub struct Verdicts {
    /// The first confirmed cause, and when.
    pub confirmed: Option<(Duration, Verdict)>,
    /// The latest verdict.
    pub last: Option<Verdict>,
    /// Since when each cause stood on top, first time only.
    named: Vec<(String, Duration)>,
    /// What was said for how long, in order; a change of the cause or of its standing begins the next.
    stood: Vec<Stood>,
}

/// A verdict, from the look at which it was first given to the last at which it still was.
#[derive(Clone, Debug, PartialEq)]
pub struct Stood {
    /// The cause.
    pub cause: String,
    /// How sure.
    pub standing: Standing,
    /// The first look.
    pub from: Duration,
    /// The last one.
    pub to: Duration,
}

impl Verdicts {
    /// Takes note of the verdict at an instant of the run.
    pub fn see(&mut self, verdict: &Verdict, at: Duration) {
        self.last = Some(verdict.clone());
        match self.stood.last_mut() {
            Some(last) if last.cause == verdict.cause && last.standing == verdict.standing => {
                last.to = at;
            }
            _ => self.stood.push(Stood {
                cause: verdict.cause.clone(),
                standing: verdict.standing,
                from: at,
                to: at,
            }),
        }
        if verdict.cause == HEALTHY || verdict.cause == INSUFFICIENT {
            return;
        }
        let on_top = matches!(verdict.standing, Standing::Likely | Standing::Confirmed);
        if on_top && !self.named.iter().any(|(cause, _)| *cause == verdict.cause) {
            self.named.push((verdict.cause.clone(), at));
        }
        if verdict.standing == Standing::Confirmed && self.confirmed.is_none() {
            self.confirmed = Some((at, verdict.clone()));
        }
    }

    /// What was said for how long, in order.
    #[must_use]
    pub fn stood(&self) -> &[Stood] {
        &self.stood
    }

    /// When the confirmed cause first stood on top.
    #[must_use]
    pub fn named_at(&self) -> Option<Duration> {
        let (_, verdict) = self.confirmed.as_ref()?;
        self.named.iter().find(|(cause, _)| *cause == verdict.cause).map(|(_, at)| *at)
    }
}

/// Of the verdicts about several scopes the one to act on: a cause before nothing, the surer first.
pub(super) fn gravest(verdicts: Vec<Verdict>) -> Option<Verdict> {
    let gravity = |verdict: &Verdict| match verdict.cause.as_str() {
        HEALTHY => (0, Standing::RuledOut),
        INSUFFICIENT => (1, Standing::RuledOut),
        _ => (2, verdict.standing),
    };
    // Of equals the first scope's.
    verdicts.into_iter().rev().max_by_key(gravity)
}

/// Everything that a drill has shown.
#[derive(Clone, Debug)]
pub struct Report {
    /// Name of the scenario.
    pub scenario: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Length of the run without the drain.
    pub total: Duration,
    /// When the incident began.
    pub onset: Duration,
    /// The phases.
    pub phases: Vec<PhaseReport>,
    /// The run as a whole.
    pub totals: Totals,
    /// The verdicts.
    pub verdicts: Verdicts,
    /// Flags that were set: when, which, to what.
    pub flags: Vec<(Duration, String, String)>,
    /// The provider's own count; `None` when it cannot be asked.
    pub ledger: Option<LedgerReport>,
    /// On the virtual clock.
    pub virtual_clock: bool,
    /// Anything that makes the counts less than exact, in words.
    pub remarks: Vec<String>,
}

impl PhaseReport {
    /// The report of one phase.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "token counts are whole and far below 2^53"
    )]
    pub fn of(span: &Span) -> Self {
        let (before, after) = (&span.before, &span.after);
        let grown = |read: fn(&Tally) -> u64| read(after).saturating_sub(read(before));
        let originals = grown(|tally| tally.originals);
        let originals_served = grown(|tally| tally.originals_served);
        let offered = grown(|tally| tally.offered);
        let attempts = grown(|tally| tally.attempts);
        let originals_attempted = after.originals_attempted.unwrap_or(0);
        let p95 = |read: fn(&Tally) -> &Vec<u64>| quantile(0.95, read(before), read(after));
        Self {
            name: span.phase.name.clone(),
            from_s: span.phase.from.as_secs_f64(),
            to_s: span.ended.as_secs_f64(),
            originals,
            originals_attempted,
            originals_served,
            served_share: ratio(originals_served, originals),
            offered,
            admitted: grown(|tally| tally.admitted),
            shed: grown(|tally| tally.shed + tally.expired),
            completed: grown(|tally| tally.completed),
            attempts,
            provider_429: grown(|tally| tally.provider_429),
            tokens_sent: (after.tokens_sent - before.tokens_sent).max(0.0).round() as u64,
            amplification: ratio(attempts, originals_attempted),
            client_multiplication: ratio(offered, originals),
            latency_admitted_p95_s: p95(|tally| &tally.latency_admitted),
            latency_offered_p95_s: p95(|tally| &tally.latency_offered),
            queue_oldest_age_max_s: span.oldest_age_max_s,
        }
    }
}

/// How several gates are counted, where there are several.
pub(super) fn side_by_side(instances: u32) -> Option<String> {
    let words = format!(
        "phases are sums over {instances} gates: an original that reached two of them counts twice"
    );
    (instances > 1).then_some(words)
}

/// What a drain that came to its bound means.
pub(super) fn unfinished(bound: Duration) -> String {
    let seconds = bound.as_secs();
    format!(
        "work was still under way {seconds} s after the clients had stopped: the counts are not final"
    )
}

/// Unknown, not zero, where there is nothing to divide by.
#[expect(clippy::cast_precision_loss, reason = "counts of one drill")]
pub(super) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// A quantile of what came to the buckets of `LATENCY_BOUNDS` in between; unknown without anything.
#[expect(clippy::cast_precision_loss, reason = "counts of one drill")]
pub(super) fn quantile(q: f64, before: &[u64], after: &[u64]) -> Option<f64> {
    let mut below = 0.0;
    let bounds = LATENCY_BOUNDS.iter().copied().chain([f64::INFINITY]);
    let buckets: Vec<Bucket> = bounds
        .enumerate()
        .map(|(place, le)| {
            let was = before.get(place).copied().unwrap_or(0);
            below += after.get(place).copied().unwrap_or(0).saturating_sub(was) as f64;
            Bucket { le, count: below }
        })
        .collect();
    let estimate = histogram_quantile(q, buckets).value;
    estimate.is_finite().then_some(estimate)
}
