//! Watches the gate from outside, between the clients and the provider, and counts what it sees.
//!
//! A request is admitted when an attempt is made for it before its answer, and shed when it is
//! answered without one. Changes nothing of what passes, and asks the gate nothing. What is counted is
//! up to a [`Witness`].

use std::collections::BTreeMap;

use super::metrics_text;
use crate::admission::Histogram;
use crate::gateway::Tally;
use crate::signal::{Mono, Tokens};
use crate::sim::model::{GateEffect, GateModel, OfferedRequest};
use crate::sim::provider::Reply;
use crate::sim::world::WorldCounts;

/// What a whole run came to, its drain included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Originals that arrived.
    pub originals: u64,
    /// Originals for which at least one attempt was made, whatever scopes it went to. Unknown where
    /// only each scope's provider counts.
    pub originals_attempted: Option<u64>,
    /// Originals that were served.
    pub served: u64,
    /// Requests that arrived at the gate.
    pub offered: u64,
    /// Requests that were let through.
    pub admitted: u64,
    /// Requests that were refused.
    pub shed: u64,
    /// Attempts that began when nobody waited for them any more: the caller had left, or its deadline
    /// had come. Unknown where no one sees both ends.
    pub unwanted_attempts: Option<u64>,
    /// Latency of let-through requests that got a result, by bucket of `LATENCY_BOUNDS`.
    pub latency_admitted: Vec<u64>,
    /// Latency of all answered requests, by the same buckets.
    pub latency_offered: Vec<u64>,
}

impl From<&Tally> for Totals {
    /// By the gate's own word, where nobody stands beside it. Where there are several, an original may
    /// be counted more than once.
    fn from(tally: &Tally) -> Self {
        Self {
            originals: tally.originals,
            originals_attempted: None,
            served: tally.originals_served,
            offered: tally.offered,
            admitted: tally.admitted,
            shed: tally.shed + tally.expired,
            unwanted_attempts: None,
            latency_admitted: tally.latency_admitted.clone(),
            latency_offered: tally.latency_offered.clone(),
        }
    }
}

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    /// Its original.
    pub identity: u128,
    /// Its size.
    pub tokens: Tokens,
    /// When it arrived.
    pub since: Mono,
    /// Whether it is its original's first.
    pub is_first: bool,
    /// When its client stops waiting, where it says so.
    pub deadline: Option<Mono>,
    /// Whether an attempt was made for it.
    pub attempted: bool,
}

/// What counts what is seen. Every call has the instant at which it happened.
pub(super) trait Witness {
    /// A request arrived.
    fn offered(&mut self, open: &Open, now: Mono);
    /// An attempt begins, for a request as it stood before, or for none that waits any more.
    fn attempted(&mut self, identity: u128, open: Option<&Open>, now: Mono);
    /// The provider's answer was delivered.
    fn replied(&mut self, reply: &Reply, now: Mono);
    /// A request was answered.
    fn answered(&mut self, open: &Open, status: u16, now: Mono);
}

/// A gate, and a witness of what passes it.
#[derive(Debug)]
pub struct Observed<G, W> {
    gate: G,
    witness: W,
    open: BTreeMap<u64, Open>,
    /// The newest request that each original has open.
    current: BTreeMap<u128, u64>,
    /// The instant of the last call: effects belong to it.
    now: Mono,
}

impl<G, W> Observed<G, W> {
    /// Watches `gate` from now on.
    pub(super) const fn new(gate: G, witness: W) -> Self {
        Self { gate, witness, open: BTreeMap::new(), current: BTreeMap::new(), now: Mono::START }
    }

    /// The gate.
    pub(super) const fn gate(&self) -> &G {
        &self.gate
    }

    /// The gate, to flip its flags. Effects that this has are of `now`.
    pub(super) const fn gate_mut(&mut self, now: Mono) -> &mut G {
        self.now = now;
        &mut self.gate
    }

    /// The witness.
    pub(super) const fn witness(&self) -> &W {
        &self.witness
    }

    /// The witness, to take what it has counted.
    pub(super) const fn witness_mut(&mut self) -> &mut W {
        &mut self.witness
    }

    fn close(&mut self, request: u64) -> Option<Open> {
        let open = self.open.remove(&request)?;
        if self.current.get(&open.identity) == Some(&request) {
            self.current.remove(&open.identity);
        }
        Some(open)
    }
}

impl<G: GateModel, W: Witness> GateModel for Observed<G, W> {
    fn handle_request(&mut self, request: &OfferedRequest, now: Mono) {
        self.now = now;
        let OfferedRequest { id, identity, tokens, deadline, is_first, .. } = *request;
        let open = Open { identity, tokens, since: now, is_first, deadline, attempted: false };
        self.witness.offered(&open, now);
        self.open.insert(id, open);
        self.current.insert(identity, id);
        self.gate.handle_request(request, now);
    }

    fn handle_reply(&mut self, attempt: u64, reply: &Reply, now: Mono) {
        self.now = now;
        self.witness.replied(reply, now);
        self.gate.handle_reply(attempt, reply, now);
    }

    fn handle_cancel(&mut self, request: u64, now: Mono) {
        self.now = now;
        self.close(request);
        self.gate.handle_cancel(request, now);
    }

    fn handle_timeout(&mut self, now: Mono) {
        self.now = now;
        self.gate.handle_timeout(now);
    }

    fn poll_effect(&mut self) -> Option<GateEffect> {
        let effect = self.gate.poll_effect()?;
        match &effect {
            GateEffect::Attempt { identity, .. } => {
                let waiting = self.current.get(identity).and_then(|id| self.open.get_mut(id));
                self.witness.attempted(*identity, waiting.as_deref(), self.now);
                if let Some(open) = waiting {
                    open.attempted = true;
                }
            }
            GateEffect::HangUp { .. } => {}
            GateEffect::Answer { request, answer } => {
                if let Some(open) = self.close(*request) {
                    self.witness.answered(&open, answer.status, self.now);
                }
            }
        }
        Some(effect)
    }

    fn may_cache(&self) -> bool {
        self.gate.may_cache()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.gate.poll_timeout()
    }
}

/// Counts a whole run.
#[derive(Debug, Default)]
pub(super) struct Count {
    offered: u64,
    admitted: u64,
    shed: u64,
    unwanted_attempts: u64,
    latency_admitted: Histogram,
    latency_offered: Histogram,
    provider_latency: metrics_text::Histogram,
}

impl Count {
    /// How long the answers took that the provider has delivered.
    pub(super) const fn provider_latency(&self) -> &metrics_text::Histogram {
        &self.provider_latency
    }

    /// Everything so far; the clients know about their originals.
    pub(super) fn totals(&self, clients: &WorldCounts) -> Totals {
        Totals {
            originals: clients.originals,
            originals_attempted: Some(clients.originals_attempted),
            served: clients.served,
            offered: self.offered,
            admitted: self.admitted,
            shed: self.shed,
            unwanted_attempts: Some(self.unwanted_attempts),
            latency_admitted: self.latency_admitted.buckets.to_vec(),
            latency_offered: self.latency_offered.buckets.to_vec(),
        }
    }
}

impl Witness for Count {
    fn offered(&mut self, _: &Open, _: Mono) {
        self.offered += 1;
    }

    fn attempted(&mut self, _: u128, open: Option<&Open>, now: Mono) {
        let is_late = |open: &Open| open.deadline.is_some_and(|due| due <= now);
        self.unwanted_attempts += u64::from(open.is_none_or(is_late));
        self.admitted += u64::from(open.is_some_and(|open| !open.attempted));
    }

    fn replied(&mut self, reply: &Reply, _: Mono) {
        self.provider_latency.observe(reply.latency);
    }

    fn answered(&mut self, open: &Open, status: u16, now: Mono) {
        let took = now.saturating_since(open.since);
        self.latency_offered.observe(took);
        if status < 400 {
            self.latency_admitted.observe(took);
        }
        self.shed += u64::from(!open.attempted);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::sim::arrivals::Lane;
    use crate::sim::layers::AnswerSeen;

    /// A gate that does what a test tells it to.
    #[derive(Default)]
    struct Told(VecDeque<GateEffect>);

    impl GateModel for Told {
        fn handle_request(&mut self, _: &OfferedRequest, _: Mono) {}
        fn handle_reply(&mut self, _: u64, _: &Reply, _: Mono) {}
        fn handle_cancel(&mut self, _: u64, _: Mono) {}
        fn handle_timeout(&mut self, _: Mono) {}
        fn poll_effect(&mut self) -> Option<GateEffect> {
            self.0.pop_front()
        }
        fn poll_timeout(&self) -> Option<Mono> {
            None
        }
    }

    fn at(seconds: f64) -> Mono {
        Mono::from_secs_f64(seconds)
    }

    fn ask(observed: &mut Observed<Told, Count>, id: u64, deadline_s: Option<f64>, second: f64) {
        let request = OfferedRequest {
            id,
            identity: u128::from(id),
            scope: 0,
            tokens: Tokens(1),
            output: Tokens(0),
            lane: Lane::Interactive,
            is_first: true,
            backfill: false,
            tenant: 0,
            retry_count: 0,
            deadline: deadline_s.map(at),
        };
        observed.handle_request(&request, at(second));
    }

    fn act(observed: &mut Observed<Told, Count>, effect: GateEffect, second: f64) {
        observed.gate_mut(at(second)).0.push_back(effect);
        assert_eq!(observed.poll_effect(), Some(effect));
    }

    fn attempt(identity: u128) -> GateEffect {
        GateEffect::Attempt { attempt: 0, identity, tokens: Tokens(1) }
    }

    fn answer(request: u64, status: u16) -> GateEffect {
        GateEffect::Answer { request, answer: AnswerSeen { status, ..AnswerSeen::default() } }
    }

    #[test]
    fn a_request_is_let_through_refused_or_neither() {
        let mut observed = Observed::new(Told::default(), Count::default());
        for id in 0..3 {
            ask(&mut observed, id, None, 0.0);
        }
        act(&mut observed, attempt(0), 0.0);
        act(&mut observed, attempt(0), 1.0);
        act(&mut observed, answer(0, 200), 2.0);
        act(&mut observed, answer(1, 429), 2.0);
        observed.handle_cancel(2, at(3.0));
        let totals = observed.witness().totals(&WorldCounts::default());
        assert_eq!((totals.offered, totals.admitted, totals.shed), (3, 1, 1));
        assert_eq!(totals.latency_offered.iter().sum::<u64>(), 2);
        assert_eq!(totals.latency_admitted.iter().sum::<u64>(), 1);
        assert_eq!((totals.unwanted_attempts, observed.open.len()), (Some(0), 0));
    }

    #[test]
    fn an_attempt_that_nobody_waits_for_is_counted() {
        let unwanted = |second, leaves: bool| {
            let mut observed = Observed::new(Told::default(), Count::default());
            ask(&mut observed, 0, Some(5.0), 0.0);
            if leaves {
                observed.handle_cancel(0, at(1.0));
            }
            act(&mut observed, attempt(0), second);
            observed.witness().totals(&WorldCounts::default()).unwanted_attempts
        };
        assert_eq!(unwanted(4.999, false), Some(0));
        assert_eq!(unwanted(5.0, false), Some(1), "its deadline has come");
        assert_eq!(unwanted(2.0, true), Some(1), "its caller has left");
    }
}
