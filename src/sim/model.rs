//! What stands between clients and provider in the simulated world, and the gate that is switched off.
//!
//! Whoever implements [`GateModel`] can be put there: the real gate (`gated`), a control to hold it
//! against (`controls`), or [`PassThrough`].

use std::collections::VecDeque;

use crate::signal::{Mono, Tokens};
use crate::sim::arrivals::Lane;
use crate::sim::layers::AnswerSeen;
use crate::sim::provider::Reply;

/// A request that a client sent to the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferedRequest {
    /// Tells requests apart; every request gets exactly one answer.
    pub id: u64,
    /// The original.
    pub identity: u128,
    /// The quota scope that it goes to, as an index.
    pub scope: usize,
    /// The size of its request.
    pub tokens: Tokens,
    /// The size of its answer, where there will be one.
    pub output: Tokens,
    /// Its lane.
    pub lane: Lane,
    /// It is its original's first.
    pub is_first: bool,
    /// In the batch lane: whether it stands behind production ingest.
    pub backfill: bool,
    /// Its tenant, as an index over the tenants of all callers.
    pub tenant: usize,
    /// `x-stainless-retry-count`.
    pub retry_count: u32,
    /// When its client stops waiting, where it says so.
    pub deadline: Option<Mono>,
}

/// What a gate does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateEffect {
    /// Sends an attempt to the provider; its reply comes back under the same number.
    Attempt {
        /// Chosen by the gate, unique.
        attempt: u64,
        /// The original.
        identity: u128,
        /// Its size.
        tokens: Tokens,
    },
    /// Closes the connection of an attempt whose client has gone; no reply is wanted.
    HangUp {
        /// The attempt's number.
        attempt: u64,
    },
    /// Answers a request.
    Answer {
        /// `OfferedRequest::id`
        request: u64,
        /// What the client sees.
        answer: AnswerSeen,
    },
}

/// What stands between clients and provider.
pub trait GateModel {
    /// A request arrives.
    fn handle_request(&mut self, request: &OfferedRequest, now: Mono);
    /// The provider answered an attempt.
    fn handle_reply(&mut self, attempt: u64, reply: &Reply, now: Mono);
    /// The client of a request has gone; it wants no answer any more, and must not get one.
    fn handle_cancel(&mut self, request: u64, now: Mono);
    /// A deadline may have passed; calling early is harmless.
    fn handle_timeout(&mut self, now: Mono);
    /// What to do; drained until `None` after every call above.
    fn poll_effect(&mut self) -> Option<GateEffect>;
    /// Whether the application may answer from its cache, where that is a flag of the gate's.
    fn may_cache(&self) -> bool {
        true
    }
    /// When `handle_timeout` is wanted next. After `handle_timeout(t)` it lies after `t`.
    fn poll_timeout(&self) -> Option<Mono>;
}

/// A gate that is switched off: one request, one attempt, one answer.
#[derive(Clone, Debug, Default)]
pub struct PassThrough {
    effects: VecDeque<GateEffect>,
}

impl GateModel for PassThrough {
    fn handle_request(&mut self, request: &OfferedRequest, _now: Mono) {
        let OfferedRequest { id, identity, tokens, .. } = *request;
        self.effects.push_back(GateEffect::Attempt { attempt: id, identity, tokens });
    }

    fn handle_reply(&mut self, attempt: u64, reply: &Reply, _now: Mono) {
        let answer = AnswerSeen::from(reply);
        self.effects.push_back(GateEffect::Answer { request: attempt, answer });
    }

    fn handle_cancel(&mut self, request: u64, _now: Mono) {
        self.effects.push_back(GateEffect::HangUp { attempt: request });
    }

    fn handle_timeout(&mut self, _now: Mono) {}

    fn poll_effect(&mut self) -> Option<GateEffect> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        None
    }
}
