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
//! Where a keeper has the state of the scopes, its answers come back through
//! [`Gate::handle_verdict`] and [`Gate::handle_mirror`].
//!
//! The life of a request:
//!
//! ```text
//!    +----------------------------v
//! offered --> queued <--> claiming --> upstream --> streaming --> done
//!    |          | ^                       |  |
//!    v          v +--------backoff--------+  v
//! refused    expired                      delivered refusal
//! ```
//!
//! Only with a keeper does a request claim; what need not wait is never queued.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use self::requests::{Finish, Held, Phase, Request, Requests, Terms};
use super::breaker::Reopening;
use super::config::ScopeConfig;
use super::estimate::Estimator;
use super::events::{AttemptId, Effect, Offer, RequestId};
#[cfg(doc)]
use super::identity::Attempted;
use super::identity::{ChainEntry, Identity, Key, Original, Originals};
use super::queue::Ticket;
use super::refusal::{Reason, Refusal};
use super::scope::{Ask, Scope, Turn};
use super::settings::{Mode, RetryOwner, Settings};
use super::shared::Demand;
use super::tenants::Tenants;
use crate::signal::Mono;

mod answering;
mod claiming;
mod ending;
mod hearing;
#[cfg(test)]
mod keeper_tests;
mod requests;
mod retrying;
mod starting;
mod steering;

pub use steering::OtherScopes;

/// How often some of the state is looked at for what is no longer needed.
const TIDY_EVERY: Duration = Duration::from_secs(1);
/// So many looks go through all of it.
const TIDY_ROUNDS: usize = 60;
/// Nothing is remembered for longer after the last request: then there is nothing left to look at.
const TIDY_FOR: Duration = Duration::from_mins(15);

/// The admission gate of one instance, all scopes.
#[derive(Debug)]
pub struct Gate {
    scopes: Vec<Scope>,
    settings: Settings,
    requests: Requests,
    originals: Originals,
    tenants: Tenants,
    /// Whose turn it is to probe, by provider.
    reopenings: Vec<Reopening>,
    /// When each scope wants to be looked at again; the same as its `wake`.
    wakes: BTreeSet<(Mono, usize)>,
    backoffs: BTreeSet<(Mono, RequestId)>,
    effects: VecDeque<Effect>,
    last_request: u64,
    /// The scope that was tidied last, and when the next are.
    tidied: usize,
    tidy_at: Option<Mono>,
    /// When the last request came.
    offered_at: Mono,
    latest: Mono,
    draining: bool,
    random: Pcg64Mcg,
}

impl Gate {
    /// A gate for these scopes, all idle. `seed` decides every jitter.
    #[must_use]
    pub fn new(scopes: Vec<ScopeConfig>, settings: Settings, seed: u64, now: Mono) -> Self {
        let mut providers = BTreeMap::new();
        let scopes: Vec<_> = scopes
            .into_iter()
            .map(|config| {
                let next = providers.len();
                let provider = *providers.entry(config.provider().to_owned()).or_insert(next);
                Scope::new(config, provider, &settings, now)
            })
            .collect();
        Self {
            reopenings: vec![Reopening::default(); providers.len()],
            scopes,
            settings,
            requests: Requests::default(),
            originals: Originals::default(),
            tenants: Tenants::default(),
            wakes: BTreeSet::new(),
            backoffs: BTreeSet::new(),
            effects: VecDeque::new(),
            last_request: 0,
            tidied: 0,
            tidy_at: None,
            offered_at: now,
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
        self.requests.iter().filter(|request| !matches!(request.phase, Phase::Answered)).count()
    }

    /// The gate is going down.
    #[must_use]
    pub const fn is_draining(&self) -> bool {
        self.draining
    }

    /// The original with this number, or the one that the request with this number asked for, if it is
    /// remembered.
    #[must_use]
    pub fn original(&self, id: u64) -> Option<&Original> {
        self.originals.by_id(id)
    }

    /// Ends a span of time and begins the next; see [`Attempted::mark`]. Sum over all scopes.
    pub fn mark(&mut self) -> u64 {
        self.scopes.iter_mut().map(|scope| scope.attempted.mark()).sum()
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
        let wake = self.wakes.first().map(|(at, _)| *at);
        wake.into_iter().chain(backoff).chain(self.tidy_at).min()
    }

    /// A request arrives. Its decision comes as an effect, at once or later.
    ///
    /// # Panics
    /// Never for a scope of this gate's configuration.
    pub fn handle_request(&mut self, offer: &Offer, now: Mono) -> RequestId {
        let now = self.clamp(now);
        self.last_request += 1;
        let id = RequestId(self.last_request);
        self.offered_at = now;
        self.tidy_at.get_or_insert(now + TIDY_EVERY);
        let uniform = self.random.random::<f64>();
        let settings = &self.settings;
        let enforced =
            settings.mode == Mode::Enforce && falls_within(offer.identity, settings.enforced_ratio);
        let scope = &mut self.scopes[offer.scope.0];
        let key = Key { scope: offer.scope.0, identity: offer.identity };
        self.originals.touch(key);
        let tenant = self.tenants.enter(&offer.tenant, now);
        scope.touch(now);
        let (place, new) = self.originals.arrive(key, id.0, now);
        let original = &mut self.originals[place];
        let counters = &mut scope.counters;
        counters.offered[offer.lane] += 1;
        counters.retry_marked += u64::from(offer.retry_mark > 0);
        counters.tenant(tenant, &mut self.tenants).offered += 1;
        if new {
            counters.originals[offer.lane] += 1;
        } else {
            counters.client_repeats += 1;
        }
        let demand = scope.estimator.reserve(&offer.guess);
        let ask = Ask {
            ticket: Ticket {
                request: id,
                lane: offer.lane,
                backfill: offer.backfill,
                tenant,
                weight: offer.weight,
                arrived: now,
                // Set when it is queued.
                deadline: now,
                tokens: demand.tokens(),
            },
            demand,
            deadline: offer.deadline,
            running: original.running > 0,
            attempts: original.attempts,
            not_before: original.not_before,
            uniform,
        };
        original.running += 1;
        original.requests += 1;
        original.log(chain("request", now));
        self.requests.insert(
            id,
            Request {
                scope: offer.scope.0,
                original: place,
                tenant,
                terms: Terms {
                    lane: offer.lane,
                    backfill: offer.backfill,
                    weight: offer.weight,
                    guess: offer.guess,
                    repeatable: offer.repeatable,
                    deferrable: offer.deferrable,
                    deadline: offer.deadline,
                },
                arrived: now,
                queued_since: now,
                queued: Duration::ZERO,
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
            self.enqueue(id, &ask, now);
        } else {
            if settings.mode == Mode::Shadow {
                scope.judge_in_shadow(&ask, settings, now);
            }
            self.start(id, None, now);
        }
        id
    }

    fn enqueue(&mut self, id: RequestId, ask: &Ask, now: Mono) {
        let settings = &self.settings;
        let place = self.requests[id].scope;
        let scope = &mut self.scopes[place];
        let forbid = settings.retry_owner == RetryOwner::Gateway;
        let turn = match scope.judge(ask, settings, now) {
            Ok(turn) => turn,
            Err(refusal) => return self.refuse(id, refusal, now),
        };
        // Whoever asks again waits for as long as the provider wanted, as our own retries do.
        let wait = ask.not_before.saturating_since(now);
        if wait > scope.patience(ask.deadline, settings, now) {
            return self.refuse(id, Reason::Paused.refusal(Some(wait), forbid), now);
        }
        // Where the gate owns retries, a repeat by the client is one more: it spends the scope's budget,
        // once nothing else stands against it.
        let is_retry = forbid && ask.attempts > 0;
        let (allowance, cost) = (scope.retry_allowance(settings), scope.cost(&ask.demand));
        if is_retry && let Err(denied) = scope.retry_budget.left(&allowance, now).covers(cost) {
            scope.counters.retries_denied.add(denied);
            return self.refuse(id, Reason::RetryBudget.refusal(None, forbid), now);
        }
        if !scope.tenant_has_share(ask.ticket.tenant, ask.demand.tokens(), settings, now) {
            return self.refuse(id, Reason::TenantCap.refusal(None, forbid), now);
        }
        if is_retry {
            let _ = scope.retry_budget.spend(&allowance, cost, now);
        }
        if !wait.is_zero() {
            return self.back_off(id, wait, now);
        }
        if turn == Turn::Now && self.turn_to_probe(place, now).is_ok() {
            let held = self.hold(&ask.ticket, ask.demand, None, place, now);
            return self.start(id, Some(held), now);
        }
        let scope = &mut self.scopes[place];
        let settings = &self.settings;
        // With no patience at all, what need not wait may still start at this instant.
        let patience = scope.patience(ask.deadline, settings, now).max(Duration::from_nanos(1));
        scope.queue.push_back(Ticket { deadline: now + patience, ..ask.ticket });
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
        if self.tidy_at.is_some_and(|at| at <= now) {
            self.tidy(now);
        }
        while let Some((at, place)) = self.wakes.first().copied() {
            if at > now {
                break;
            }
            self.set_wake(place, None);
            self.greet_keeper(place, now);
            self.scopes[place].look_at_ramp(&self.settings, now);
            self.pump(place, now);
        }
    }

    /// What nobody uses any more gives its memory back, a sixtieth of it every second.
    fn tidy(&mut self, now: Mono) {
        let share = |all: usize| all.div_ceil(TIDY_ROUNDS);
        for _ in 0..share(self.scopes.len()) {
            self.tidied = (self.tidied + 1) % self.scopes.len();
            self.scopes[self.tidied].tidy(now);
        }
        self.originals.tidy(now);
        self.tenants.sweep(share(self.tenants.numbers()), now);
        self.tidy_at = (now < self.offered_at + TIDY_FOR).then_some(now + TIDY_EVERY);
    }

    fn clamp(&mut self, now: Mono) -> Mono {
        self.latest = self.latest.max(now);
        self.latest
    }

    fn request_mut(&mut self, id: RequestId) -> &mut Request {
        &mut self.requests[id]
    }

    /// The request of an attempt that is still the current one.
    fn upstream(&mut self, attempt: AttemptId) -> Option<&mut Request> {
        self.requests.get_mut(attempt.request).filter(|request| {
            request.attempts == attempt.number && matches!(request.phase, Phase::Upstream { .. })
        })
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

/// First guess for a body, re-exported beside the offer that carries it.
#[must_use]
pub fn guess_tokens(body_bytes: usize, output_tokens: u64) -> Demand {
    Estimator::guess(body_bytes, output_tokens)
}
