//! The admission gate as one state machine: requests in, decisions out.
//!
//! Reads no clock, sends nothing, knows no provider: `dialect` has already turned answers into
//! classes and hints. Drive it so:
//!
//! 1. tell it what happened with a `handle_*` method; `now` comes last and never runs backwards
//!    (an earlier `now` is taken for the latest one seen);
//! 2. take every [`Effect`] with [`Gate::poll_effect`] until `None`;
//! 3. sleep until [`Gate::poll_timeout`], then call [`Gate::handle_timeout`]. Calling it early is
//!    harmless.
//!
//! The life of a request:
//!
//! ```text
//! offered --> queued --> upstream --> streaming --> done
//!    |          | ^          |  |
//!    v          v +--backoff-+  v
//! refused    expired         delivered refusal
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::budget::Reservation;
use super::config::ScopeConfig;
use super::counters::{Completion, Denied, Ending, Stage};
use super::estimate::Estimator;
use super::events::{AttemptId, Effect, Head, Offer, RequestId};
#[cfg(doc)]
use super::identity::Originals;
use super::identity::{ChainEntry, Identity};
use super::queue::{Lane, Ticket};
use super::refusal::{Reason, Refusal};
use super::scope::{Ask, DatedReading, Scope, patience};
use super::settings::{Mode, RetryOwner, Settings};
use super::shared::{Demand, Receipt};
use crate::dialect::{Class, Meter, MeterReading};
use crate::signal::Mono;

mod hearing;
mod retrying;
mod steering;

#[derive(Clone, Copy, Debug)]
enum Phase {
    Queued,
    Backoff {
        until: Mono,
    },
    Upstream {
        started: Mono,
        held: Option<Held>,
        sent: bool,
    },
    Streaming {
        started: Mono,
        held: Option<Held>,
    },
    /// The final answer is the caller's to read; nothing is held.
    Answered,
}

/// What an attempt holds until it ends.
#[derive(Clone, Copy, Debug)]
struct Held {
    reservation: Reservation,
    /// The keeper's, where it was asked.
    receipt: Option<Receipt>,
}

#[derive(Debug)]
struct Request {
    scope: usize,
    identity: Identity,
    lane: Lane,
    tenant: Arc<str>,
    guess: Demand,
    arrived: Mono,
    queued_since: Mono,
    queued: Duration,
    deadline: Option<Mono>,
    enforced: bool,
    admitted: bool,
    /// Tries, those included that found no connection.
    attempts: u32,
    /// Tries that reached the provider.
    reached: u32,
    phase: Phase,
}

/// How a request came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finish {
    /// With a result.
    Served,
    /// With a refusal, ours or the provider's, or a fault.
    Refused,
    /// Its caller did not wait.
    Gone,
}

/// The admission gate of one instance, all scopes.
#[derive(Debug)]
pub struct Gate {
    scopes: Vec<Scope>,
    settings: Settings,
    requests: BTreeMap<RequestId, Request>,
    backoffs: BTreeSet<(Mono, RequestId)>,
    effects: VecDeque<Effect>,
    last_request: u64,
    latest: Mono,
    draining: bool,
    random: Pcg64Mcg,
}

impl Gate {
    /// A gate for these scopes, all idle. `seed` decides every jitter.
    #[must_use]
    pub fn new(scopes: Vec<ScopeConfig>, settings: Settings, seed: u64, now: Mono) -> Self {
        let scopes = scopes.into_iter().map(|config| Scope::new(config, &settings, now)).collect();
        Self {
            scopes,
            settings,
            requests: BTreeMap::new(),
            backoffs: BTreeSet::new(),
            effects: VecDeque::new(),
            last_request: 0,
            latest: now,
            draining: false,
            random: Pcg64Mcg::seed_from_u64(seed),
        }
    }

    /// The settings in force.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The scopes, in the order of the configuration.
    #[must_use]
    pub fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    /// Requests that are not answered yet.
    #[must_use]
    pub fn open_requests(&self) -> usize {
        self.requests.values().filter(|request| !matches!(request.phase, Phase::Answered)).count()
    }

    /// The gate is going down.
    #[must_use]
    pub const fn is_draining(&self) -> bool {
        self.draining
    }

    /// Ends a span of time and begins the next; see [`Originals::mark`]. Sum over all scopes.
    pub fn mark(&mut self) -> u64 {
        self.scopes.iter_mut().map(|scope| scope.originals.mark()).sum()
    }

    /// The next thing to do; drain until `None`.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to call [`Self::handle_timeout`] at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        debug_assert!(self.effects.is_empty(), "effects must be drained before sleeping");
        let backoff = self.backoffs.first().map(|(until, _)| *until);
        self.scopes.iter().filter_map(|scope| scope.wake).chain(backoff).min()
    }

    /// A request arrives. Its decision comes as an effect, at once or later.
    ///
    /// # Panics
    /// Never for a scope of this gate's configuration.
    pub fn handle_request(&mut self, offer: &Offer, now: Mono) -> RequestId {
        let now = self.clamp(now);
        self.last_request += 1;
        let id = RequestId(self.last_request);
        let uniform = self.random.random::<f64>();
        let settings = &self.settings;
        let enforced =
            settings.mode == Mode::Enforce && falls_within(offer.identity, settings.enforced_ratio);
        let scope = &mut self.scopes[offer.scope.0];
        let counters = &mut scope.counters;
        *counters.offered.entry(offer.lane).or_default() += 1;
        counters.retry_marked += u64::from(offer.retry_mark > 0);
        counters.tenant(&offer.tenant).offered += 1;
        let (original, new) = scope.originals.arrive(offer.identity, id.0, now);
        if new {
            *counters.originals.entry(offer.lane).or_default() += 1;
        } else {
            counters.client_repeats += 1;
        }
        let ask = Ask {
            lane: offer.lane,
            demand: scope.estimator.reserve(&offer.guess),
            deadline: offer.deadline,
            running: original.running > 0,
            attempts: original.attempts,
            uniform,
        };
        original.running += 1;
        original.requests += 1;
        original.log(chain("request", now));
        self.requests.insert(
            id,
            Request {
                scope: offer.scope.0,
                identity: offer.identity,
                lane: offer.lane,
                tenant: Arc::clone(&offer.tenant),
                guess: offer.guess,
                arrived: now,
                queued_since: now,
                queued: Duration::ZERO,
                deadline: offer.deadline,
                enforced,
                admitted: false,
                attempts: 0,
                reached: 0,
                phase: Phase::Queued,
            },
        );
        if self.draining {
            self.refuse(id, Reason::Draining.refusal(Some(Duration::from_secs(1)), true), now);
        } else if enforced {
            self.enqueue(id, &ask, &offer.tenant, now);
        } else {
            if settings.mode == Mode::Shadow {
                scope.judge_in_shadow(&ask, settings, now);
            }
            self.start(id, None, now);
        }
        id
    }

    fn enqueue(&mut self, id: RequestId, ask: &Ask, tenant: &Arc<str>, now: Mono) {
        let settings = &self.settings;
        let request = &self.requests[&id];
        let place = request.scope;
        let scope = &mut self.scopes[place];
        let forbid = settings.retry_owner == RetryOwner::Gateway;
        if let Err(refusal) = scope.judge(ask, settings, now) {
            return self.refuse(id, refusal, now);
        }
        // Where the gate owns retries, a repeat by the client is one more: it spends the scope's budget.
        if forbid && ask.attempts > 0 && !scope.retry_budget.spend(settings.retry_budget_ratio, now)
        {
            *scope.counters.retries_denied.entry(Denied::Budget).or_default() += 1;
            return self.refuse(id, Reason::RetryBudget.refusal(None, forbid), now);
        }
        if !scope.tenant_has_share(tenant, ask.demand.tokens(), settings, now) {
            return self.refuse(id, Reason::TenantCap.refusal(None, forbid), now);
        }
        // With no patience at all, what need not wait may still start at this instant.
        let patience = patience(ask.deadline, settings, now).max(Duration::from_nanos(1));
        let ticket = Ticket {
            request: id,
            lane: ask.lane,
            arrived: now,
            deadline: now + patience,
            tokens: ask.demand.tokens(),
        };
        scope.queue.push_back(ticket);
        self.pump(place, now);
    }

    /// The head of an attempt's request is written to an open connection: it counts from now on.
    pub fn handle_sent(&mut self, attempt: AttemptId, now: Mono) {
        let now = self.clamp(now);
        let Some(request) = self.upstream(attempt) else { return };
        let Phase::Upstream { sent, started, .. } = &mut request.phase else { return };
        if *sent {
            return;
        }
        (*sent, *started) = (true, now);
        request.reached += 1;
        let (identity, place, own_retry) = (request.identity, request.scope, request.attempts > 1);
        let scope = &mut self.scopes[place];
        if scope.originals.attempted(identity, now) {
            scope.counters.attempts_first += 1;
            scope.counters.originals_attempted += 1;
        } else {
            scope.counters.attempts_retry += 1;
        }
        scope.counters.gate_retries += u64::from(own_retry);
        if let Some(original) = scope.originals.get_mut(identity) {
            original.log(chain("attempt", now));
        }
    }

    /// The head of an answer has arrived. A success is delivered; report its end with
    /// [`Self::handle_end`]. A refusal or fault ends the attempt here.
    pub fn handle_head(&mut self, attempt: AttemptId, head: &Head, now: Mono) {
        let now = self.clamp(now);
        let Some(request) = self.upstream(attempt) else { return };
        let Phase::Upstream { started, held, .. } = request.phase else { return };
        let place = request.scope;
        let (identity, enforced) = (request.identity, request.enforced);
        let retried = request.attempts;
        let scope = &mut self.scopes[place];
        let ending = Ending::Status(head.status);
        *scope.counters.results.entry((head.class, ending)).or_default() += 1;
        learn_meters(scope, &head.meters, now);
        if let Some(original) = scope.originals.get_mut(identity) {
            original.log(ChainEntry {
                status: Some(head.status),
                code: head.code.clone(),
                hint: head.hint,
                ..chain("answer", now)
            });
        }
        let throttled = head.class == Class::TransientRateLimit;
        // What passes unmetered says nothing about our rate.
        if enforced && scope.adaptive.answered(throttled, now) {
            scope.set_rates(&self.settings, now);
        }
        if head.class == Class::Success {
            scope.breaker.succeeded(now);
            let again = scope.originals.get_mut(identity).is_some_and(|o| o.attempts > 1);
            scope.counters.retry_successes += u64::from(again || retried > 1);
            self.request_mut(attempt.request).phase = Phase::Streaming { started, held };
            return self.deliver(attempt.request, false);
        }
        if matches!(head.status, 429 | 503) || head.class == Class::PermanentQuota {
            let meter = head.meter.map_or("none", Meter::word);
            scope.counters.refused(head.status, head.code.as_deref().unwrap_or("none"), meter);
            if let Some(hint) = head.hint {
                scope.counters.hints += 1;
                scope.counters.hints_sum_s += hint.as_secs_f64();
            }
        }
        match head.class {
            Class::TemporaryOverload => scope.breaker.failed(now),
            Class::PermanentQuota => scope.breaker.exhausted(now),
            _ => scope.breaker.succeeded(now),
        }
        self.end_attempt(attempt.request, None, now);
        self.retry_or_deliver(attempt.request, head.class, head.hint, head.meter, now);
    }

    /// The attempt ended without an answer. `Ending::Timeout` and `Ending::Transport` are the
    /// provider's fault.
    pub fn handle_failed(&mut self, attempt: AttemptId, ending: Ending, now: Mono) {
        let now = self.clamp(now);
        let Some(request) = self.upstream(attempt) else { return };
        let (Phase::Upstream { held, sent, .. }, place) = (request.phase, request.scope) else {
            return;
        };
        let scope = &mut self.scopes[place];
        scope.breaker.failed(now);
        scope.counters.unreachable += u64::from(!sent);
        if sent {
            let class = Class::TemporaryOverload;
            *scope.counters.results.entry((class, ending)).or_default() += 1;
        }
        // A request that was sent and never answered was probably billed.
        let charged = held.filter(|_| sent).map(|held| held.reservation.demand);
        self.end_attempt(attempt.request, charged, now);
        self.retry_or_deliver(attempt.request, Class::TemporaryOverload, None, None, now);
    }

    /// A delivered success has been read to its end. `used` is what its `usage` says.
    pub fn handle_end(&mut self, request: RequestId, used: Option<Demand>, now: Mono) {
        let now = self.clamp(now);
        let Some(known) = self.requests.get(&request) else { return };
        let place = known.scope;
        match known.phase {
            Phase::Streaming { held, .. } => {
                let identity = known.identity;
                let scope = &mut self.scopes[place];
                if let Some(used) = used {
                    scope.estimator.learn(&known.guess, &used);
                    scope.counters.tokens_actual += used.tokens();
                    scope.counters.tenant(&known.tenant).tokens += used.tokens();
                }
                let charged = used
                    .map(|used| scope.estimator.charge(&known.guess, &used))
                    .or(held.map(|held| held.reservation.demand));
                *scope.counters.completed.entry(Completion::Success).or_default() += 1;
                if let Some(original) = scope.originals.get_mut(identity) {
                    if !original.served {
                        scope.counters.originals_served += 1;
                    }
                    original.served = true;
                    let tokens = used.map(|used| used.tokens());
                    original.log(ChainEntry { tokens, ..chain("served", now) });
                }
                self.end_attempt(request, charged, now);
                self.finish(request, Finish::Served, now);
                self.pump(place, now);
            }
            Phase::Answered => self.finish(request, Finish::Refused, now),
            _ => {}
        }
    }

    /// A delivered success broke off at the provider's side.
    pub fn handle_broken(&mut self, request: RequestId, now: Mono) {
        let now = self.clamp(now);
        let Some(known) = self.requests.get(&request) else { return };
        let (place, identity) = (known.scope, known.identity);
        let Phase::Streaming { held, .. } = known.phase else {
            return self.handle_end(request, None, now);
        };
        let scope = &mut self.scopes[place];
        scope.breaker.failed(now);
        *scope.counters.completed.entry(Completion::Error).or_default() += 1;
        if let Some(original) = scope.originals.get_mut(identity) {
            original.log(chain("broken", now));
        }
        // What it cost is not known; the estimate stands.
        self.end_attempt(request, held.map(|held| held.reservation.demand), now);
        self.finish(request, Finish::Refused, now);
        self.pump(place, now);
    }

    /// The caller has gone. Everything that the request held is free again.
    pub fn handle_cancel(&mut self, request: RequestId, now: Mono) {
        let now = self.clamp(now);
        let Some(known) = self.requests.get(&request) else { return };
        let (place, phase) = (known.scope, known.phase);
        let stage = match phase {
            Phase::Answered => return self.finish(request, Finish::Refused, now),
            Phase::Queued => {
                self.scopes[place].queue.remove(request);
                Stage::Queue
            }
            Phase::Backoff { until } => {
                self.backoffs.remove(&(until, request));
                Stage::Backoff
            }
            Phase::Upstream { sent, held, .. } => {
                let scope = &mut self.scopes[place];
                scope.breaker.abandoned(now);
                if sent {
                    let key = (Class::Cancelled, Ending::Cancelled);
                    *scope.counters.results.entry(key).or_default() += 1;
                }
                let charged = held.filter(|_| sent).map(|held| held.reservation.demand);
                self.end_attempt(request, charged, now);
                Stage::Upstream
            }
            Phase::Streaming { held, .. } => {
                self.end_attempt(request, held.map(|held| held.reservation.demand), now);
                Stage::Upstream
            }
        };
        *self.scopes[place].counters.cancelled.entry(stage).or_default() += 1;
        self.finish(request, Finish::Gone, now);
        self.pump(place, now);
    }

    /// A deadline, a backoff or a refill may be due.
    pub fn handle_timeout(&mut self, now: Mono) {
        let now = self.clamp(now);
        while let Some((until, id)) = self.backoffs.first().copied() {
            if until > now {
                break;
            }
            self.backoffs.remove(&(until, id));
            self.requeue(id, now);
        }
        for place in 0..self.scopes.len() {
            if self.scopes[place].wake.is_some_and(|wake| wake <= now) {
                self.pump(place, now);
            }
        }
    }

    fn clamp(&mut self, now: Mono) -> Mono {
        self.latest = self.latest.max(now);
        self.latest
    }

    fn request_mut(&mut self, id: RequestId) -> &mut Request {
        self.requests.get_mut(&id).expect("looked up in this call")
    }

    /// The request of an attempt that is still the current one.
    fn upstream(&mut self, attempt: AttemptId) -> Option<&mut Request> {
        self.requests.get_mut(&attempt.request).filter(|request| {
            request.attempts == attempt.number && matches!(request.phase, Phase::Upstream { .. })
        })
    }

    /// Starts as many of the queue as may start, and sets the next wake-up.
    fn pump(&mut self, place: usize, now: Mono) {
        loop {
            while let Some(id) = self.scopes[place].queue.overdue(now) {
                self.expire(id, place, now);
            }
            let scope = &self.scopes[place];
            let Some((lane, id)) = Lane::ALL
                .into_iter()
                .find_map(|lane| scope.queue.head(lane).map(|head| (lane, head)))
            else {
                self.scopes[place].wake = None;
                return;
            };
            let demand = scope.estimator.reserve(&self.requests[&id].guess);
            if let Err(wake) = scope.may_start(lane, &demand, &self.settings, now) {
                let scope = &mut self.scopes[place];
                scope.wake = wake.into_iter().chain(scope.queue.next_deadline()).min();
                return;
            }
            let scope = &mut self.scopes[place];
            scope.queue.remove(id);
            scope.paused_until = None;
            let reservation = scope.budget.reserve(demand, now);
            let held = Held { reservation, receipt: None };
            if lane == Lane::Batch
                && let Some(batch) = &mut scope.batch
            {
                batch.take(demand.tokens(), now);
            }
            scope.counters.tokens_reserved += demand.tokens();
            let request = self.request_mut(id);
            let waited = now.saturating_since(request.queued_since);
            request.queued += waited;
            let counters = &mut self.scopes[place].counters;
            counters.queue_wait.entry(lane).or_default().observe(waited);
            self.start(id, Some(held), now);
        }
    }

    /// Lets a request go upstream.
    fn start(&mut self, id: RequestId, held: Option<Held>, now: Mono) {
        let request = self.requests.get_mut(&id).expect("only known requests are started");
        request.attempts += 1;
        let newly_admitted = !std::mem::replace(&mut request.admitted, true);
        request.phase = Phase::Upstream { started: now, held, sent: false };
        let attempt = AttemptId { request: id, number: request.attempts };
        let scope = &mut self.scopes[request.scope];
        scope.in_flight += 1;
        scope.breaker.started(now);
        scope.counters.tokens_estimated += request.guess.tokens();
        if newly_admitted {
            *scope.counters.admitted.entry(request.lane).or_default() += 1;
            if let Some(original) = scope.originals.get_mut(request.identity)
                && !std::mem::replace(&mut original.admitted, true)
            {
                scope.retry_budget.admitted(now);
            }
        }
        self.effects.push_back(Effect::Send { attempt });
    }

    /// Gives back what an attempt held. `charged`: what it cost, `None` for nothing.
    fn end_attempt(&mut self, id: RequestId, charged: Option<Demand>, now: Mono) {
        let request = self.request_mut(id);
        let (Phase::Upstream { started, held, .. } | Phase::Streaming { started, held }) =
            request.phase
        else {
            return;
        };
        request.phase = Phase::Answered;
        let place = request.scope;
        let scope = &mut self.scopes[place];
        scope.in_flight = scope.in_flight.saturating_sub(1);
        let took = now.saturating_since(started);
        scope.counters.attempt_duration.observe(took);
        if charged.is_some() {
            scope.served_in(took.as_secs_f64());
        }
        if let Some(held) = held {
            scope.budget.settle(&held.reservation, charged, now);
        }
    }

    fn deliver(&mut self, id: RequestId, forbid_retry: bool) {
        let request = &self.requests[&id];
        self.effects.push_back(Effect::Deliver {
            request: id,
            forbid_retry,
            attempts: request.reached,
            queued: request.queued,
        });
    }

    fn expire(&mut self, id: RequestId, place: usize, now: Mono) {
        let scope = &mut self.scopes[place];
        scope.queue.remove(id);
        *scope.counters.expired.entry(Stage::Queue).or_default() += 1;
        let forbid = self.settings.retry_owner == RetryOwner::Gateway;
        self.answer_refusal(id, Reason::QueueExpired.refusal(None, forbid), now);
    }

    fn refuse(&mut self, id: RequestId, refusal: Refusal, now: Mono) {
        let request = &self.requests[&id];
        let counters = &mut self.scopes[request.scope].counters;
        *counters.shed.entry((request.lane, refusal.reason)).or_default() += 1;
        counters.tenant(&request.tenant).refused += 1;
        self.answer_refusal(id, refusal, now);
    }

    fn answer_refusal(&mut self, id: RequestId, refusal: Refusal, now: Mono) {
        let request = &self.requests[&id];
        let scope = &mut self.scopes[request.scope];
        if let Some(original) = scope.originals.get_mut(request.identity) {
            original.log(ChainEntry {
                status: Some(refusal.reason.status()),
                code: Some(format!("weir_{}", refusal.reason.word())),
                hint: refusal.retry_after,
                ..chain("refused", now)
            });
        }
        self.effects.push_back(Effect::Refuse { request: id, refusal });
        self.finish(id, Finish::Refused, now);
    }

    fn finish(&mut self, id: RequestId, how: Finish, now: Mono) {
        let Some(request) = self.requests.remove(&id) else { return };
        let scope = &mut self.scopes[request.scope];
        if let Some(original) = scope.originals.get_mut(request.identity) {
            original.running = original.running.saturating_sub(1);
            original.touched = now;
        }
        let took = now.saturating_since(request.arrived);
        if how != Finish::Gone {
            scope.counters.offered_latency.observe(took);
        }
        if how == Finish::Served {
            scope.counters.admitted_latency.observe(took);
        }
    }
}

impl Reason {
    pub(super) const fn refusal(
        self,
        retry_after: Option<Duration>,
        forbid_retry: bool,
    ) -> Refusal {
        Refusal { reason: self, retry_after, forbid_retry: forbid_retry || self.is_final() }
    }
}

fn chain(what: &'static str, at: Mono) -> ChainEntry {
    ChainEntry {
        at,
        what,
        status: None,
        code: None,
        hint: None,
        wait: Duration::ZERO,
        tokens: None,
    }
}

/// Whether an original belongs to the enforced share: by identity, so that it stays on its side.
fn falls_within(identity: Identity, ratio: f64) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "a fraction needs no more than 53 bits")]
    let fraction = (identity >> 64) as f64 / (u64::MAX as f64);
    ratio >= 1.0 || fraction < ratio
}

fn learn_meters(scope: &mut Scope, meters: &[MeterReading], now: Mono) {
    scope.budget.believe(meters, now);
    for reading in meters {
        let dated = DatedReading { reading: *reading, at: now };
        scope.readings.insert(reading.meter, dated);
    }
}

/// First guess for a body, re-exported beside the offer that carries it.
#[must_use]
pub fn guess_tokens(body_bytes: usize, output_tokens: u64) -> Demand {
    Estimator::guess(body_bytes, output_tokens)
}
