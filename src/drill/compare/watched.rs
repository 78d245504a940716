//! Measures every control with the same yardstick: in bins of a few seconds, and over the steady overload.
//!
//! A request is admitted when an attempt is made for it before its answer, and shed when it is answered
//! without one. Sees what passes the gate; asks it nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::admission::Histogram;
use crate::drill::observed::{Open, Witness};
use crate::signal::{Mono, Tokens};
use crate::sim::provider::Reply;

/// Length of a bin: what goodput and recovery are judged in.
pub const BIN: Duration = Duration::from_secs(5);
/// Originals that are told apart in one span; with more their number is unknown.
const DISTINCT_MAX: usize = 1_000_000;

/// Distinct originals with an attempt, as far as they are told apart.
#[derive(Clone, Debug, Default)]
struct Distinct {
    seen: BTreeSet<u128>,
    is_full: bool,
}

impl Distinct {
    fn insert(&mut self, identity: u128) {
        if self.seen.len() < DISTINCT_MAX {
            self.seen.insert(identity);
        } else {
            self.is_full |= !self.seen.contains(&identity);
        }
    }

    fn count(&self) -> Option<u64> {
        (!self.is_full).then_some(self.seen.len() as u64)
    }
}

/// What was counted in one span of time.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Originals that arrived.
    pub originals: u64,
    /// Of those, originals served by their first request.
    pub served_at_first: u64,
    /// Originals that were served.
    pub served: u64,
    /// Tokens of those.
    pub tokens: Tokens,
    /// Requests that arrived.
    pub offered: u64,
    /// Requests that were answered without an attempt.
    pub shed: u64,
    /// Attempts.
    pub attempts: u64,
    /// Attempts that were answered with 429.
    pub refused: u64,
    /// Originals with an attempt; unknown when they were too many to be told apart.
    pub attempted: Option<u64>,
}

impl Counted {
    /// Attempts per original with an attempt; unknown without any.
    #[must_use]
    pub fn amplification(&self) -> Option<f64> {
        ratio(self.attempts, self.attempted?)
    }
}

/// A share or a mean; unknown where there is nothing to divide by.
#[must_use]
pub fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| Tokens(part).as_f64() / Tokens(whole).as_f64())
}

/// The witness of one control.
#[derive(Debug)]
pub struct Binned {
    /// The steady overload.
    steady: (Mono, Mono),
    bins: Vec<Counted>,
    in_bin: Distinct,
    whole: Counted,
    in_whole: Distinct,
    latency_admitted: Histogram,
    latency_offered: Histogram,
}

/// Everything that was seen.
#[derive(Clone, Debug)]
pub struct Seen {
    /// From the start, in bins.
    pub bins: Vec<Counted>,
    /// The steady overload.
    pub steady: Counted,
    /// Requests of the steady overload that got a result, from arrival to answer.
    pub latency_admitted: Histogram,
    /// All its requests, from arrival to answer.
    pub latency_offered: Histogram,
}

impl Binned {
    /// Counts nothing yet; `steady` is the span that is counted as a whole.
    #[must_use]
    pub fn new(steady: (Mono, Mono)) -> Self {
        Self {
            steady,
            bins: Vec::new(),
            in_bin: Distinct::default(),
            whole: Counted::default(),
            in_whole: Distinct::default(),
            latency_admitted: Histogram::default(),
            latency_offered: Histogram::default(),
        }
    }

    /// What was seen; ends the last bin.
    pub fn seen(&mut self) -> Seen {
        self.close_bin();
        self.whole.attempted = self.in_whole.count();
        Seen {
            bins: self.bins.clone(),
            steady: self.whole.clone(),
            latency_admitted: self.latency_admitted.clone(),
            latency_offered: self.latency_offered.clone(),
        }
    }

    fn close_bin(&mut self) {
        if let Some(bin) = self.bins.last_mut() {
            bin.attempted = self.in_bin.count();
        }
    }

    fn is_steady(&self, now: Mono) -> bool {
        (self.steady.0..self.steady.1).contains(&now)
    }

    /// Counts in the bin of this instant, another one if need be, and in the whole where it belongs
    /// to it.
    fn count(&mut self, now: Mono, change: impl Fn(&mut Counted)) {
        let place = place(now);
        if place >= self.bins.len() {
            self.close_bin();
            self.in_bin = Distinct::default();
            self.bins.resize(place + 1, Counted { attempted: Some(0), ..Counted::default() });
        }
        if let Some(bin) = self.bins.last_mut() {
            change(bin);
        }
        if self.is_steady(now) {
            change(&mut self.whole);
        }
    }
}

fn place(now: Mono) -> usize {
    usize::try_from(now.since_start().as_nanos() / BIN.as_nanos()).unwrap_or(usize::MAX)
}

impl Witness for Binned {
    fn offered(&mut self, open: &Open, now: Mono) {
        self.count(now, |counted| {
            counted.offered += 1;
            counted.originals += u64::from(open.is_first);
        });
    }

    fn attempted(&mut self, identity: u128, _: Option<&Open>, now: Mono) {
        self.count(now, |counted| counted.attempts += 1);
        self.in_bin.insert(identity);
        if self.is_steady(now) {
            self.in_whole.insert(identity);
        }
    }

    fn replied(&mut self, reply: &Reply, now: Mono) {
        if reply.outcome.status() == 429 {
            self.count(now, |counted| counted.refused += 1);
        }
    }

    fn answered(&mut self, open: &Open, status: u16, now: Mono) {
        let took = now.saturating_since(open.since);
        let is_served = status < 400;
        if self.is_steady(now) {
            self.latency_offered.observe(took);
            if is_served {
                self.latency_admitted.observe(took);
            }
        }
        if !open.attempted {
            self.count(now, |counted| counted.shed += 1);
        }
        if is_served {
            self.count(now, |counted| {
                counted.served += 1;
                counted.tokens += open.tokens;
            });
            let first_in = open.is_first.then(|| place(open.since));
            if let Some(bin) = first_in.and_then(|place| self.bins.get_mut(place)) {
                bin.served_at_first += 1;
            }
        }
    }
}
