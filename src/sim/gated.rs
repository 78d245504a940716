//! The real admission gate in the simulated world: the same decisions, on the virtual clock.
//!
//! One gate or several side by side, each with every scope; a request goes to one of them by its number.
//! What is wrong with them ([`GateFaults`]) is carried out here, around the gate: it knows of nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use rand_pcg::Pcg64;

use crate::admission::{
    AttemptId, Demand, Effect, Gate, Lane as GateLane, Offer, RequestId, ScopeConfig, ScopeId,
    Settings, StoreCounters, guess_tokens,
};
use crate::signal::{Mono, Tokens};
use crate::sim::arrivals::Lane;
use crate::sim::gate::{GateConfig, GateFaults};
use crate::sim::layers::{AnswerSeen, Written};
use crate::sim::model::{GateEffect, GateModel, OfferedRequest};
use crate::sim::provider::{Outcome, Reply};
use crate::sim::rng;

mod head;
mod stall;
mod store;
#[cfg(test)]
mod tests;

use head::head;
use stall::Stalled;
use store::{Store, Told};

/// Bytes of a request's body per token: what the drill's clients send.
pub const BODY_BYTES_PER_TOKEN: u64 = 6;

#[derive(Debug)]
struct Waiting {
    world: u64,
    identity: u128,
    tokens: Tokens,
    /// The provider's last answer.
    answer: Option<Answer>,
}

/// An answer of the provider that is to be passed on.
#[derive(Clone, Copy, Debug)]
struct Answer {
    seen: AnswerSeen,
    /// What a good answer was charged.
    served: Option<Tokens>,
}

#[derive(Debug)]
struct Instance {
    gate: Gate,
    waiting: BTreeMap<RequestId, Waiting>,
}

/// [`Gate`] as a [`GateModel`].
#[derive(Debug)]
pub struct GatedWorld {
    /// At least one.
    instances: Vec<Instance>,
    store: Option<Store>,
    faults: GateFaults,
    leaks: Pcg64,
    stalled: Stalled,
    attempts: BTreeMap<u64, (usize, AttemptId)>,
    attempted: u64,
    effects: VecDeque<GateEffect>,
}

impl GatedWorld {
    /// One sound gate with one scope.
    #[must_use]
    pub fn new(scope: ScopeConfig, settings: Settings, seed: u64) -> Self {
        Self::configured(vec![scope], &GateConfig::default(), settings, seed)
    }

    /// The gates of a drill, from a checked configuration. `scopes` are what they believe.
    #[must_use]
    pub fn configured(
        mut scopes: Vec<ScopeConfig>,
        config: &GateConfig,
        settings: Settings,
        seed: u64,
    ) -> Self {
        let count = config.instances.max(1);
        if config.shared {
            for scope in &mut scopes {
                scope.policy.instances = count;
            }
        }
        let instance = |(number, settings)| {
            let gate = Gate::new(scopes.clone(), settings, seed ^ number, Mono::START);
            let gate = if config.has_store() { gate.with_keeper(Mono::START) } else { gate };
            Instance { gate, waiting: BTreeMap::new() }
        };
        let alike = std::iter::repeat_n(settings, count as usize);
        let instances: Vec<_> = (0..).zip(alike).map(instance).collect();
        let store = config.has_store().then(|| {
            Store::new(&scopes, instances.len(), config.shared, config.faults.clone(), seed)
        });
        Self {
            instances,
            store,
            faults: config.faults.clone(),
            leaks: rng::seeded(seed, rng::Stream::Leaks),
            stalled: Stalled::default(),
            attempts: BTreeMap::new(),
            attempted: 0,
            effects: VecDeque::new(),
        }
    }

    /// The gate, or the first of them.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.instances[0].gate
    }

    /// Every gate, in order of its number.
    pub fn gates(&self) -> impl Iterator<Item = &Gate> + Clone {
        self.instances.iter().map(|instance| &instance.gate)
    }

    /// Every gate, for readings that leave a mark.
    pub fn marking(&mut self) -> impl Iterator<Item = &mut Gate> {
        self.instances.iter_mut().map(|instance| &mut instance.gate)
    }

    /// Calls of an instance that are open at the provider, whatever its gate believes.
    #[must_use]
    pub fn open_calls(&self, instance: usize) -> u64 {
        self.attempts.values().filter(|(of, _)| *of == instance).count() as u64
    }

    /// How an instance's questions to the store of the shared budget went, where there is one.
    #[must_use]
    pub fn store_counters(&self, instance: usize) -> Option<&StoreCounters> {
        self.store.as_ref().map(|store| store.counters(instance))
    }

    /// How late the event loop is.
    #[must_use]
    pub const fn loop_lag(&self, now: Mono) -> Duration {
        self.stalled.lag(now)
    }

    /// Flips flags.
    pub fn apply(&mut self, settings: &Settings, now: Mono) {
        for place in 0..self.instances.len() {
            self.instances[place].gate.apply(settings.clone(), now);
            self.translate(place, now);
        }
    }

    /// Refuses what waits, as a gateway does that is going down.
    pub fn drain(&mut self, now: Mono) {
        for place in 0..self.instances.len() {
            self.instances[place].gate.drain(now);
            self.translate(place, now);
        }
    }

    fn translate(&mut self, place: usize, now: Mono) {
        while let Some(effect) = self.instances[place].gate.poll_effect() {
            match effect {
                Effect::Send { attempt } => self.send(place, attempt, now),
                Effect::Deliver { request, forbid_retry, .. } => {
                    self.deliver(place, request, forbid_retry, now);
                }
                Effect::Claim { attempt, scope, claim } => {
                    if let Some(store) = &mut self.store {
                        store.claim(place, scope, attempt, claim, now);
                    }
                }
                Effect::Report { scope, report } => {
                    if let Some(store) = &mut self.store {
                        store.report(place, scope, report, now);
                    }
                }
                // This world has no place for later.
                Effect::Defer { .. } => {}
                Effect::Refuse { request, refusal } => {
                    let waiting = self.instances[place].waiting.remove(&request);
                    let Some(waiting) = waiting else { continue };
                    let answer = AnswerSeen {
                        status: refusal.reason.status(),
                        should_retry: refusal.forbid_retry.then_some(false),
                        retry_after: refusal.retry_after_header().map(Written::from),
                        ..AnswerSeen::default()
                    };
                    self.effects.push_back(GateEffect::Answer { request: waiting.world, answer });
                }
            }
        }
    }

    fn send(&mut self, place: usize, attempt: AttemptId, now: Mono) {
        let instance = &mut self.instances[place];
        let Some(waiting) = instance.waiting.get(&attempt.request) else { return };
        instance.gate.handle_sent(attempt, now);
        self.attempted += 1;
        self.attempts.insert(self.attempted, (place, attempt));
        self.effects.push_back(GateEffect::Attempt {
            attempt: self.attempted,
            identity: waiting.identity,
            tokens: waiting.tokens,
        });
    }

    fn deliver(&mut self, place: usize, request: RequestId, forbid_retry: bool, now: Mono) {
        let instance = &mut self.instances[place];
        let Some(waiting) = instance.waiting.remove(&request) else { return };
        let unanswered = AnswerSeen { status: 502, ..AnswerSeen::default() };
        let unanswered = Answer { seen: unanswered, served: None };
        let Answer { seen: mut answer, served } = waiting.answer.unwrap_or(unanswered);
        if forbid_retry {
            answer.should_retry = Some(false);
        }
        self.effects.push_back(GateEffect::Answer { request: waiting.world, answer });
        let ratio = self.faults.leak_ratio(now);
        if served.is_some() && ratio > 0.0 && self.leaks.random::<f64>() < ratio {
            return;
        }
        let billed = served.filter(|_| self.faults.reads_usage());
        let billed = billed.map(|tokens| Demand { input: tokens.as_f64(), output: 0.0 });
        instance.gate.handle_end(request, billed, now);
    }

    /// Offers a request to its gate.
    fn offer(&mut self, request: &OfferedRequest, now: Mono) {
        let bytes = request.tokens.0.saturating_mul(BODY_BYTES_PER_TOKEN);
        let guess = guess_tokens(usize::try_from(bytes).unwrap_or(usize::MAX), 0);
        // Identities are counted up in the world and hashed behind sockets: spread them alike.
        let identity = request.identity.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        let factor = self.faults.estimate_factor;
        let offer = Offer {
            scope: ScopeId(request.scope),
            identity,
            lane: match request.lane {
                Lane::Interactive => GateLane::Interactive,
                Lane::Batch => GateLane::Batch,
            },
            tenant: Arc::from(format!("tenant-{}", request.tenant)),
            guess: Demand { input: guess.input * factor, output: guess.output * factor },
            backfill: request.backfill,
            weight: 1.0,
            repeatable: true,
            deferrable: false,
            deadline: request.deadline,
            retry_mark: request.retry_count,
        };
        let place = usize::try_from(request.id % self.instances.len() as u64)
            .expect("a remainder is below the number of instances");
        let instance = &mut self.instances[place];
        let id = instance.gate.handle_request(&offer, now);
        let waiting = Waiting {
            world: request.id,
            identity: request.identity,
            tokens: request.tokens,
            answer: None,
        };
        instance.waiting.insert(id, waiting);
        self.translate(place, now);
    }

    /// What the store has said by `now` reaches the gates.
    fn hear_store(&mut self, now: Mono) {
        while let Some((place, scope, told)) = self.store.as_mut().and_then(|store| store.due(now))
        {
            let gate = &mut self.instances[place].gate;
            match told {
                Told::Verdict { attempt, demand, answer } => {
                    gate.handle_verdict(attempt, scope, demand, answer, now);
                }
                Told::Mirror(mirror) => gate.handle_mirror(scope, mirror, now),
            }
            self.translate(place, now);
        }
    }
}

impl GateModel for GatedWorld {
    fn handle_request(&mut self, request: &OfferedRequest, now: Mono) {
        let stall = self.faults.stall_now(now);
        if stall.is_zero() && self.stalled.next_due().is_none() {
            self.offer(request, now);
        } else {
            self.stalled.push(*request, stall, now);
        }
    }

    fn handle_reply(&mut self, attempt: u64, reply: &Reply, now: Mono) {
        let Some((place, attempt)) = self.attempts.remove(&attempt) else { return };
        let instance = &mut self.instances[place];
        if let Some(waiting) = instance.waiting.get_mut(&attempt.request) {
            let served = match reply.outcome {
                Outcome::Ok { tokens } => Some(tokens),
                _ => None,
            };
            waiting.answer = Some(Answer { seen: AnswerSeen::from(reply), served });
        }
        instance.gate.handle_head(attempt, &head(reply, self.faults.headers), now);
        self.translate(place, now);
    }

    fn handle_cancel(&mut self, request: u64, now: Mono) {
        if self.stalled.remove(|offered| offered.id == request) {
            return;
        }
        for place in 0..self.instances.len() {
            let instance = &mut self.instances[place];
            let waiting = instance.waiting.iter().find(|(_, waiting)| waiting.world == request);
            let Some(id) = waiting.map(|(id, _)| *id) else { continue };
            instance.waiting.remove(&id);
            // Its connection to the provider is closed: the answer finds nobody.
            let is_its = |(of, attempt): &(usize, AttemptId)| *of == place && attempt.request == id;
            let open: Vec<_> = self
                .attempts
                .iter()
                .filter(|(_, of)| is_its(of))
                .map(|(attempt, _)| *attempt)
                .collect();
            for attempt in open {
                self.attempts.remove(&attempt);
                self.effects.push_back(GateEffect::HangUp { attempt });
            }
            instance.gate.handle_cancel(id, now);
            return self.translate(place, now);
        }
    }

    fn handle_timeout(&mut self, now: Mono) {
        while let Some(request) = self.stalled.due(now) {
            self.offer(&request, now);
        }
        self.hear_store(now);
        for place in 0..self.instances.len() {
            self.instances[place].gate.handle_timeout(now);
            self.translate(place, now);
        }
    }

    fn may_cache(&self) -> bool {
        self.gate().settings().cache
    }

    fn poll_effect(&mut self) -> Option<GateEffect> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        let gates = self.instances.iter().filter_map(|instance| instance.gate.poll_timeout());
        let store = self.store.as_ref().and_then(Store::next_due);
        gates.chain(store).chain(self.stalled.next_due()).min()
    }
}
