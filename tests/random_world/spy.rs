//! Stands between the world and the gate: writes down what passes, and what must not have passed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weir::signal::{Mono, Tokens};
use weir::sim::arrivals::Lane;
use weir::sim::gated::GatedWorld;
use weir::sim::model::{GateEffect, GateModel, OfferedRequest};
use weir::sim::provider::{Outcome, Reply};

/// Breaches that are kept; one is enough to fail.
const BREACHES_MAX: usize = 10;

#[derive(Clone, Copy, Debug)]
struct Asked {
    request: OfferedRequest,
    since: Mono,
    attempts: u32,
    /// The provider said that it will never take it.
    is_hopeless: bool,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    started: Mono,
    request: u64,
    tenant: usize,
    lane: Lane,
}

/// A charge of the provider, when its attempt started.
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    pub at: Mono,
    pub tokens: Tokens,
    pub tenant: usize,
    pub lane: Lane,
}

/// The gate, and what it was seen to do.
#[derive(Debug)]
pub struct Spy {
    pub gate: GatedWorld,
    /// Longest that a request may wait for its first attempt.
    wait_max: Duration,
    now: Mono,
    asked: BTreeMap<u64, Asked>,
    /// The request that each original has open.
    current: BTreeMap<u128, u64>,
    attempts: BTreeMap<u64, Attempt>,
    /// What the provider charged, in the order in which it answered.
    pub charges: Vec<Charge>,
    /// Tokens of originals that arrived, by tenant and lane.
    pub offered: BTreeMap<(usize, Lane), f64>,
    next_original: u128,
    /// Meters' refusals.
    pub throttled: u64,
    /// Most attempts that were open at a time, those left out whose people have gone.
    pub open_max: usize,
    /// What must not happen, in words.
    pub breaches: Vec<String>,
}

impl Spy {
    pub fn new(gate: GatedWorld, wait_max: Duration) -> Self {
        Self {
            gate,
            wait_max,
            now: Mono::START,
            asked: BTreeMap::new(),
            current: BTreeMap::new(),
            attempts: BTreeMap::new(),
            charges: Vec::new(),
            offered: BTreeMap::new(),
            next_original: 0,
            throttled: 0,
            open_max: 0,
            breaches: Vec::new(),
        }
    }

    /// Requests that have neither been answered nor given up.
    pub fn open(&self) -> usize {
        self.asked.len()
    }

    fn breach(&mut self, words: &str) {
        if self.breaches.len() < BREACHES_MAX {
            self.breaches.push(format!("at {:?}: {words}", self.now));
        }
    }

    fn attempted(&mut self, attempt: u64, identity: u128) {
        let asked = self.current.get(&identity).and_then(|id| self.asked.get_mut(id));
        let Some(asked) = asked else {
            return self.breach(&format!("an attempt for {identity}, for which nobody waits"));
        };
        asked.attempts += 1;
        let Asked { request, attempts, is_hopeless, since } = *asked;
        if attempts == 1 && self.now > since + self.wait_max {
            self.breach(&format!("the first attempt of {identity} after a wait that is too long"));
        }
        if request.deadline.is_some_and(|deadline| self.now > deadline) {
            self.breach(&format!("attempt {attempts} of {identity} after its deadline"));
        }
        if is_hopeless {
            self.breach(&format!("attempt {attempts} of {identity}, which can never succeed"));
        }
        let OfferedRequest { id, tenant, lane, .. } = request;
        self.attempts.insert(attempt, Attempt { started: self.now, request: id, tenant, lane });
        let waited_for: BTreeSet<u64> =
            self.attempts.values().map(|attempt| attempt.request).collect();
        let open = waited_for.iter().filter(|id| self.asked.contains_key(id)).count();
        self.open_max = self.open_max.max(open);
    }

    fn gone(&mut self, request: u64) {
        if let Some(asked) = self.asked.remove(&request) {
            self.current.remove(&asked.request.identity);
        } else {
            self.breach(&format!("request {request} ends twice"));
        }
    }
}

impl GateModel for Spy {
    fn handle_request(&mut self, request: &OfferedRequest, now: Mono) {
        self.now = now;
        if request.identity >= self.next_original {
            self.next_original = request.identity + 1;
            *self.offered.entry((request.tenant, request.lane)).or_default() +=
                request.tokens.as_f64();
        }
        let asked = Asked { request: *request, since: now, attempts: 0, is_hopeless: false };
        self.asked.insert(request.id, asked);
        self.current.insert(request.identity, request.id);
        self.gate.handle_request(request, now);
    }

    fn handle_reply(&mut self, attempt: u64, reply: &Reply, now: Mono) {
        self.now = now;
        if let Some(made) = self.attempts.remove(&attempt) {
            let Attempt { started: at, request, tenant, lane } = made;
            let asked = self.asked.get_mut(&request);
            match reply.outcome {
                Outcome::Ok { tokens } => {
                    self.charges.push(Charge { at, tokens, tenant, lane });
                }
                Outcome::RateLimited { .. } => self.throttled += 1,
                Outcome::TooLarge { .. } | Outcome::InsufficientQuota => {
                    if let Some(asked) = asked {
                        asked.is_hopeless = true;
                    }
                }
                _ => {}
            }
        }
        self.gate.handle_reply(attempt, reply, now);
    }

    fn handle_cancel(&mut self, request: u64, now: Mono) {
        self.now = now;
        self.gone(request);
        self.gate.handle_cancel(request, now);
    }

    fn handle_timeout(&mut self, now: Mono) {
        self.now = now;
        self.gate.handle_timeout(now);
    }

    fn poll_effect(&mut self) -> Option<GateEffect> {
        let effect = self.gate.poll_effect()?;
        match &effect {
            GateEffect::Attempt { attempt, identity, .. } => self.attempted(*attempt, *identity),
            GateEffect::HangUp { .. } => {}
            GateEffect::Answer { request, .. } => self.gone(*request),
        }
        Some(effect)
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.gate.poll_timeout()
    }
}
