//! Watches a gate from outside and measures every control with the same yardstick.
//!
//! A request is admitted when an attempt is made for it before its answer, and shed when it is answered
//! without one. Changes nothing of what passes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::admission::Histogram;
use crate::signal::{Mono, Tokens};
use crate::sim::model::{GateEffect, GateModel, OfferedRequest};
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

#[derive(Clone, Copy, Debug)]
struct Open {
    identity: u128,
    tokens: Tokens,
    since: Mono,
    /// The bin in which its original arrived, where this is the original's first request.
    first_in: Option<usize>,
    attempted: bool,
}

/// A gate, and what came of its requests.
#[derive(Debug)]
pub struct Watched<G> {
    gate: G,
    /// The steady overload.
    steady: (Mono, Mono),
    open: BTreeMap<u64, Open>,
    /// The request that each original has open; layers ask one after the other.
    current: BTreeMap<u128, u64>,
    /// The number of the next original: they are counted up in the order in which they arrive.
    next_original: u128,
    bins: Vec<Counted>,
    in_bin: Distinct,
    whole: Counted,
    in_whole: Distinct,
    latency_admitted: Histogram,
    latency_offered: Histogram,
    /// The instant of the last call: effects belong to it.
    now: Mono,
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

impl<G: GateModel> Watched<G> {
    /// Watches `gate`; `steady` is the span that is counted as a whole.
    #[must_use]
    pub fn new(gate: G, steady: (Mono, Mono)) -> Self {
        Self {
            gate,
            steady,
            open: BTreeMap::new(),
            current: BTreeMap::new(),
            next_original: 0,
            bins: Vec::new(),
            in_bin: Distinct::default(),
            whole: Counted::default(),
            in_whole: Distinct::default(),
            latency_admitted: Histogram::default(),
            latency_offered: Histogram::default(),
            now: Mono::START,
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

    fn is_steady(&self) -> bool {
        (self.steady.0..self.steady.1).contains(&self.now)
    }

    /// Moves on to `now`, into another bin if it lies there.
    fn at(&mut self, now: Mono) {
        self.now = now;
        let place = place(now);
        if place >= self.bins.len() {
            self.close_bin();
            self.in_bin = Distinct::default();
            self.bins.resize(place + 1, Counted { attempted: Some(0), ..Counted::default() });
        }
    }

    /// Counts in the bin of this instant, and in the whole where it belongs to it.
    fn count(&mut self, change: impl Fn(&mut Counted)) {
        if let Some(bin) = self.bins.last_mut() {
            change(bin);
        }
        if self.is_steady() {
            change(&mut self.whole);
        }
    }

    fn attempted(&mut self, identity: u128) {
        self.count(|counted| counted.attempts += 1);
        self.in_bin.insert(identity);
        if self.is_steady() {
            self.in_whole.insert(identity);
        }
        if let Some(open) = self.current.get(&identity).and_then(|id| self.open.get_mut(id)) {
            open.attempted = true;
        }
    }

    fn answered(&mut self, request: u64, status: u16) {
        let Some(open) = self.open.remove(&request) else { return };
        self.current.remove(&open.identity);
        let took = self.now.saturating_since(open.since);
        let is_served = status < 400;
        if self.is_steady() {
            self.latency_offered.observe(took);
            if is_served {
                self.latency_admitted.observe(took);
            }
        }
        if !open.attempted {
            self.count(|counted| counted.shed += 1);
        }
        if is_served {
            self.count(|counted| {
                counted.served += 1;
                counted.tokens += open.tokens;
            });
            if let Some(bin) = open.first_in.and_then(|place| self.bins.get_mut(place)) {
                bin.served_at_first += 1;
            }
        }
    }
}

fn place(now: Mono) -> usize {
    usize::try_from(now.since_start().as_nanos() / BIN.as_nanos()).unwrap_or(usize::MAX)
}

impl<G: GateModel> GateModel for Watched<G> {
    fn handle_request(&mut self, request: &OfferedRequest, now: Mono) {
        self.at(now);
        let is_first = request.identity >= self.next_original;
        self.count(|counted| {
            counted.offered += 1;
            counted.originals += u64::from(is_first);
        });
        if is_first {
            self.next_original = request.identity + 1;
        }
        let open = Open {
            identity: request.identity,
            tokens: request.tokens,
            since: now,
            first_in: is_first.then(|| place(now)),
            attempted: false,
        };
        self.open.insert(request.id, open);
        self.current.insert(request.identity, request.id);
        self.gate.handle_request(request, now);
    }

    fn handle_reply(&mut self, attempt: u64, reply: &Reply, now: Mono) {
        self.at(now);
        if reply.outcome.status() == 429 {
            self.count(|counted| counted.refused += 1);
        }
        self.gate.handle_reply(attempt, reply, now);
    }

    fn handle_cancel(&mut self, request: u64, now: Mono) {
        self.at(now);
        if let Some(open) = self.open.remove(&request) {
            self.current.remove(&open.identity);
        }
        self.gate.handle_cancel(request, now);
    }

    fn handle_timeout(&mut self, now: Mono) {
        self.at(now);
        self.gate.handle_timeout(now);
    }

    fn poll_effect(&mut self) -> Option<GateEffect> {
        let effect = self.gate.poll_effect()?;
        match &effect {
            GateEffect::Attempt { identity, .. } => self.attempted(*identity),
            GateEffect::Answer { request, answer } => self.answered(*request, answer.status),
        }
        Some(effect)
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.gate.poll_timeout()
    }
}
