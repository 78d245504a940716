//! The real admission gate in the simulated world: the same decisions, on the virtual clock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::admission::{
    AttemptId, Demand, Effect, Gate, Head, Lane as GateLane, Offer, RequestId, ScopeConfig,
    ScopeId, Settings, guess_tokens,
};
use crate::dialect::{Class, Meter};
use crate::signal::{Mono, Tokens};
use crate::sim::arrivals::Lane;
use crate::sim::layers::{AnswerSeen, Written};
use crate::sim::provider::{Outcome, Reply};
use crate::sim::world::{GateEffect, GateModel, OfferedRequest};

/// Bytes of a request's body per token: what the drill's clients send.
const BODY_BYTES_PER_TOKEN: u64 = 6;

#[derive(Debug)]
struct Waiting {
    world: u64,
    identity: u128,
    tokens: Tokens,
    /// The provider's last answer, to be passed on.
    answer: Option<Outcome>,
}

/// [`Gate`] as a [`GateModel`].
#[derive(Debug)]
pub struct GatedWorld {
    gate: Gate,
    waiting: BTreeMap<RequestId, Waiting>,
    attempts: BTreeMap<u64, AttemptId>,
    attempted: u64,
    effects: VecDeque<GateEffect>,
}

impl GatedWorld {
    /// A gate with one scope.
    #[must_use]
    pub fn new(scope: ScopeConfig, settings: Settings, seed: u64) -> Self {
        Self::with_scopes(vec![scope], settings, seed)
    }

    /// A gate with these scopes, in the order of the world's providers.
    #[must_use]
    pub fn with_scopes(scopes: Vec<ScopeConfig>, settings: Settings, seed: u64) -> Self {
        Self {
            gate: Gate::new(scopes, settings, seed, Mono::START),
            waiting: BTreeMap::new(),
            attempts: BTreeMap::new(),
            attempted: 0,
            effects: VecDeque::new(),
        }
    }

    /// The gate.
    #[must_use]
    pub const fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The gate, for readings that leave a mark.
    pub const fn marking(&mut self) -> &mut Gate {
        &mut self.gate
    }

    /// Flips flags.
    pub fn apply(&mut self, settings: Settings, now: Mono) {
        self.gate.apply(settings, now);
        self.translate(now);
    }

    /// Refuses what waits, as a gateway does that is going down.
    pub fn drain(&mut self, now: Mono) {
        self.gate.drain(now);
        self.translate(now);
    }

    fn translate(&mut self, now: Mono) {
        while let Some(effect) = self.gate.poll_effect() {
            match effect {
                Effect::Send { attempt } => {
                    let Some(waiting) = self.waiting.get(&attempt.request) else { continue };
                    self.gate.handle_sent(attempt, now);
                    self.attempted += 1;
                    self.attempts.insert(self.attempted, attempt);
                    self.effects.push_back(GateEffect::Attempt {
                        attempt: self.attempted,
                        identity: waiting.identity,
                        tokens: waiting.tokens,
                    });
                }
                Effect::Deliver { request, forbid_retry, .. } => {
                    let Some(waiting) = self.waiting.remove(&request) else { continue };
                    let outcome = waiting.answer.unwrap_or(Outcome::ServerError { status: 502 });
                    let billed = match outcome {
                        Outcome::Ok { tokens } => {
                            Some(Demand { input: tokens.as_f64(), output: 0.0 })
                        }
                        _ => None,
                    };
                    self.gate.handle_end(request, billed, now);
                    let mut answer = AnswerSeen::from(outcome);
                    if forbid_retry {
                        answer.should_retry = Some(false);
                    }
                    self.effects.push_back(GateEffect::Answer { request: waiting.world, answer });
                }
                // This world has no keeper and no place for later.
                Effect::Claim { .. } | Effect::Report { .. } | Effect::Defer { .. } => {}
                Effect::Refuse { request, refusal } => {
                    let Some(waiting) = self.waiting.remove(&request) else { continue };
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
}

impl GateModel for GatedWorld {
    fn handle_request(&mut self, request: &OfferedRequest, now: Mono) {
        let bytes = request.tokens.0.saturating_mul(BODY_BYTES_PER_TOKEN);
        // Identities are counted up in the world and hashed behind sockets: spread them alike.
        let identity = request.identity.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        let offer = Offer {
            scope: ScopeId(request.scope),
            identity,
            lane: match request.lane {
                Lane::Interactive => GateLane::Interactive,
                Lane::Batch => GateLane::Batch,
            },
            tenant: Arc::from(format!("tenant-{}", request.tenant)),
            guess: guess_tokens(usize::try_from(bytes).unwrap_or(usize::MAX), 0),
            backfill: request.backfill,
            weight: 1.0,
            repeatable: true,
            deferrable: false,
            deadline: request.deadline,
            retry_mark: request.retry_count,
        };
        let id = self.gate.handle_request(&offer, now);
        let waiting = Waiting {
            world: request.id,
            identity: request.identity,
            tokens: request.tokens,
            answer: None,
        };
        self.waiting.insert(id, waiting);
        self.translate(now);
    }

    fn handle_reply(&mut self, attempt: u64, reply: &Reply, now: Mono) {
        let Some(attempt) = self.attempts.remove(&attempt) else { return };
        if let Some(waiting) = self.waiting.get_mut(&attempt.request) {
            waiting.answer = Some(reply.outcome);
        }
        self.gate.handle_head(attempt, &head(reply), now);
        self.translate(now);
    }

    fn handle_cancel(&mut self, request: u64, now: Mono) {
        let waiting = self.waiting.iter().find(|(_, waiting)| waiting.world == request);
        let Some(id) = waiting.map(|(id, _)| *id) else { return };
        self.waiting.remove(&id);
        self.gate.handle_cancel(id, now);
        self.translate(now);
    }

    fn handle_timeout(&mut self, now: Mono) {
        self.gate.handle_timeout(now);
        self.translate(now);
    }

    fn may_cache(&self) -> bool {
        self.gate.settings().cache
    }

    fn poll_effect(&mut self) -> Option<GateEffect> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.gate.poll_timeout()
    }
}

/// What `dialect` reads from the answer that the simulated provider writes for this outcome.
fn head(reply: &Reply) -> Head {
    let outcome = reply.outcome;
    let (class, code, meter) = match outcome {
        Outcome::Ok { .. } => (Class::Success, None, None),
        Outcome::RateLimited { meter, .. } => {
            (Class::TransientRateLimit, Some("rate_limit_exceeded"), Some(meter))
        }
        Outcome::ConcurrencyCap { .. } => {
            (Class::TransientRateLimit, Some("rate_limit_exceeded"), Some(Meter::Concurrency))
        }
        Outcome::TooLarge { .. } => (Class::BadRequest, Some("rate_limit_exceeded"), None),
        Outcome::InsufficientQuota => (Class::PermanentQuota, Some("insufficient_quota"), None),
        Outcome::Rejected { .. } => (Class::BadRequest, Some("invalid_request"), None),
        Outcome::ServerError { .. } | Outcome::Timeout => {
            (Class::TemporaryOverload, Some("server_error"), None)
        }
    };
    let hint = match (outcome.retry_after_ms(), outcome.retry_after_s()) {
        (Some(ms), _) => Some(Duration::from_millis(ms)),
        (None, seconds) => seconds.map(Duration::from_secs),
    };
    Head {
        status: outcome.status(),
        class,
        hint,
        code: code.map(str::to_owned),
        meter,
        forbids_retry: false,
        meters: reply.meters.to_vec(),
    }
}
