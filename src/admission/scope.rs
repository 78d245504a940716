//! One quota scope: its budgets, queue, breaker and memory, and the judgement of a newcomer.
//!
//! One budget exists per scope, because deployments that share a provider's limit share its debt.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::adaptive::Adaptive;
use super::breaker::{Breaker, State};
use super::bucket::Bucket;
use super::budget::{Ahead, Budget};
use super::config::ScopeConfig;
use super::counters::Counters;
use super::estimate::Estimator;
use super::identity::Originals;
use super::queue::{Lane, Queue};
use super::refusal::{Reason, Refusal};
use super::retry::RetryBudget;
use super::said::Said;
use super::settings::{RetryOwner, Settings};
use super::shared::Demand;
use crate::dialect::{Meter, MeterReading};
use crate::signal::Mono;

/// Tenants with a bucket of their own when `tenant.cap_ratio` is below one; the rest share one.
const TENANTS_MAX: usize = 1_024;
/// Weight of the newest attempt in the mean service time.
const SERVICE_TIME_GAIN: f64 = 0.1;
/// Retry-After is spread over this share, so that refused clients do not come back in step.
const COME_BACK_SPREAD: f64 = 0.25;
/// A wait beyond this is not worth a number.
const COME_BACK_MAX: Duration = Duration::from_hours(1);

/// A reading of a provider's meter, with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct DatedReading {
    /// What the provider said.
    pub reading: MeterReading,
    /// When.
    pub at: Mono,
}

/// What a newcomer asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub lane: Lane,
    pub demand: Demand,
    /// When the caller's own deadline comes.
    pub deadline: Option<Mono>,
    /// Another request for the same original is under way.
    pub running: bool,
    /// Attempts that the original has had.
    pub attempts: u32,
    /// Random number in 0..1, for the spread of Retry-After.
    pub uniform: f64,
}

/// The state of one quota scope.
#[derive(Debug)]
pub struct Scope {
    pub(super) config: ScopeConfig,
    pub(super) budget: Budget,
    pub(super) batch: Option<Bucket>,
    pub(super) tenants: BTreeMap<Arc<str>, Bucket>,
    pub(super) estimator: Estimator,
    pub(super) queue: Queue,
    pub(super) breaker: Breaker,
    pub(super) adaptive: Adaptive,
    pub(super) retry_budget: RetryBudget,
    pub(super) originals: Originals,
    pub(super) counters: Counters,
    pub(super) readings: BTreeMap<Meter, DatedReading>,
    pub(super) said: Said,
    pub(super) paused_until: Option<Mono>,
    pub(super) in_flight: u32,
    pub(super) service_time_s: Option<f64>,
    pub(super) wake: Option<Mono>,
}

impl Scope {
    pub(super) fn new(config: ScopeConfig, settings: &Settings, now: Mono) -> Self {
        let budget = Budget::default();
        let estimator = Estimator::new(config.counts_max_tokens);
        let mut scope = Self {
            config,
            budget,
            batch: None,
            tenants: BTreeMap::new(),
            estimator,
            queue: Queue::default(),
            breaker: Breaker::new(now),
            adaptive: Adaptive::default(),
            retry_budget: RetryBudget::default(),
            originals: Originals::default(),
            counters: Counters::default(),
            readings: BTreeMap::new(),
            said: Said::default(),
            paused_until: None,
            in_flight: 0,
            service_time_s: None,
            wake: None,
        };
        scope.set_rates(settings, now);
        scope
    }

    /// Applies the share of the quota that settings and the adaptive factor leave.
    pub(super) fn set_rates(&mut self, settings: &Settings, now: Mono) {
        let factor = if settings.adaptive { self.adaptive.factor() } else { 1.0 };
        self.budget.set(&self.config.allowances(settings.rate_factor), factor, now);
        let share = settings.rate_factor * factor;
        let batch_share = share * (1.0 - settings.interactive_reserved_ratio);
        match (&mut self.batch, self.config.tpm) {
            (Some(batch), Some(tpm)) => {
                batch.set_rate(tpm * batch_share / 60.0, self.config.burst, now);
            }
            (batch, tpm) => {
                let burst = self.config.burst;
                *batch = tpm.map(|tpm| Bucket::new(tpm * batch_share / 60.0, burst, now));
            }
        }
        if settings.tenant_cap_ratio >= 1.0 {
            self.tenants.clear();
        }
    }

    /// Why a newcomer must be refused now, or `Ok` when it may wait its turn.
    pub(super) fn judge(&self, ask: &Ask, settings: &Settings, now: Mono) -> Result<(), Refusal> {
        let gate_owns = settings.retry_owner == RetryOwner::Gateway;
        let refuse = |reason: Reason, retry_after: Option<Duration>| {
            let spread = 1.0 + COME_BACK_SPREAD * ask.uniform;
            Err(Refusal {
                reason,
                retry_after: retry_after.map(|wait| wait.min(COME_BACK_MAX).mul_f64(spread)),
                forbid_retry: reason.is_final() || gate_owns,
            })
        };
        #[expect(clippy::cast_precision_loss, reason = "bounded by the flag table")]
        if ask.demand.tokens() > settings.max_request_tokens as f64 {
            return refuse(Reason::TooLarge, None);
        }
        if ask.lane == Lane::Batch && !settings.batch_lane {
            return refuse(Reason::LaneOff, None);
        }
        if ask.running {
            return refuse(Reason::InProgress, Some(Duration::from_secs(1)));
        }
        // Who owns retries counts them; a client that owns them is not ours to stop.
        if gate_owns && ask.attempts >= settings.retry_max_attempts {
            return refuse(Reason::Attempts, None);
        }
        if settings.breaker
            && let State::Open { until } = self.breaker.state(now)
        {
            return refuse(Reason::Breaker, Some(until.saturating_since(now)));
        }
        // Whoever need not wait needs no place to wait in.
        let starts_now =
            self.queue.is_empty() && self.may_start(ask.lane, &ask.demand, settings, now).is_ok();
        if self.queue.len() >= settings.queue_max_depth as usize && !starts_now {
            return refuse(Reason::QueueFull, Some(self.expected_wait(ask, settings, now).0));
        }
        let (wait, reason) = self.expected_wait(ask, settings, now);
        let patience = patience(ask.deadline, settings, now);
        if wait > patience {
            return refuse(reason, Some(wait.saturating_sub(patience)));
        }
        Ok(())
    }

    /// How long a newcomer would wait for its turn, and what for.
    ///
    /// Little's law per limit: what is ahead over the rate at which it leaves; the longest binds.
    fn expected_wait(&self, ask: &Ask, settings: &Settings, now: Mono) -> (Duration, Reason) {
        let (depth, tokens) = self.queue.ahead(ask.lane);
        #[expect(clippy::cast_precision_loss, reason = "bounded by queue.max_depth")]
        let depth = depth as f64;
        let ahead = Ahead { requests: depth, tokens };
        let by_budget = match self.budget.wait(&ask.demand, &ahead, now) {
            Ok((wait, meter)) => (wait, Reason::of(meter.unwrap_or(Meter::Requests))),
            Err(meter) => (Duration::MAX, Reason::of(meter)),
        };
        let paused = self.paused_until.map_or(Duration::ZERO, |until| until.saturating_since(now));
        let permits = f64::from(settings.max_in_flight);
        let before = (depth + f64::from(self.in_flight) + 1.0 - permits).max(0.0);
        let by_permits = self.service_time_s.unwrap_or(0.0) * before / permits;
        let by_permits = Duration::try_from_secs_f64(by_permits).unwrap_or(Duration::MAX);
        [by_budget, (paused, Reason::Paused), (by_permits, Reason::Concurrency)]
            .into_iter()
            .max_by_key(|(wait, _)| *wait)
            .expect("three candidates")
    }

    /// Whether the next of the queue may start now; the instant to look again at otherwise.
    /// `Err(None)`: only another event can change it.
    pub(super) fn may_start(
        &self,
        lane: Lane,
        demand: &Demand,
        settings: &Settings,
        now: Mono,
    ) -> Result<(), Option<Mono>> {
        if let Some(until) = self.paused_until.filter(|until| *until > now) {
            return Err(Some(until));
        }
        if settings.breaker {
            self.breaker.permits(now).map_err(Some)?;
        }
        if self.in_flight >= settings.max_in_flight {
            return Err(None);
        }
        let (mut wait, _) = self.budget.wait(demand, &Ahead::default(), now).map_err(|_| None)?;
        if lane == Lane::Batch
            && let Some(batch) = &self.batch
        {
            wait = wait.max(batch.wait(demand.tokens(), 0.0, now).ok_or(None)?);
        }
        if wait.is_zero() { Ok(()) } else { Err(Some(now + wait)) }
    }

    /// Debits a tenant's share; false when it has none left.
    pub(super) fn tenant_has_share(
        &mut self,
        tenant: &Arc<str>,
        tokens: f64,
        settings: &Settings,
        now: Mono,
    ) -> bool {
        let Some(tpm) = self.config.tpm.filter(|_| settings.tenant_cap_ratio < 1.0) else {
            return true;
        };
        let known = self.tenants.contains_key(tenant) || self.tenants.len() < TENANTS_MAX;
        let key = if known { Arc::clone(tenant) } else { Arc::from("other") };
        let rate = tpm * settings.rate_factor * settings.tenant_cap_ratio / 60.0;
        let bucket =
            self.tenants.entry(key).or_insert_with(|| Bucket::new(rate, self.config.burst, now));
        let slack = rate * settings.queue_max_age_s;
        if bucket.level(now) + slack < tokens {
            return false;
        }
        bucket.take(tokens, now);
        true
    }

    /// In shadow mode: what enforcement would have said. Keeps the budget as if it had enforced,
    /// with the debt standing for the queue.
    pub(super) fn judge_in_shadow(&mut self, ask: &Ask, settings: &Settings, now: Mono) {
        if let Err(refusal) = self.judge(ask, settings, now) {
            *self.counters.would_shed.entry(refusal.reason).or_default() += 1;
        } else {
            let held = self.budget.reserve(ask.demand, now);
            self.budget.settle(&held, Some(ask.demand), now);
        }
    }

    pub(super) fn served_in(&mut self, seconds: f64) {
        let mean = self.service_time_s.get_or_insert(seconds);
        *mean += SERVICE_TIME_GAIN * (seconds - *mean);
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.config.name
    }

    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &ScopeConfig {
        &self.config
    }

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Who waits.
    #[must_use]
    pub const fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The breaker.
    #[must_use]
    pub const fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Our own view of the meters.
    #[must_use]
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The provider's view of the meters, newest reading of each.
    #[must_use]
    pub const fn readings(&self) -> &BTreeMap<Meter, DatedReading> {
        &self.readings
    }

    /// What the provider says in passing.
    #[must_use]
    pub const fn said(&self) -> &Said {
        &self.said
    }

    /// Permits in use.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The adaptive rate factor.
    #[must_use]
    pub const fn adaptive_factor(&self) -> f64 {
        self.adaptive.factor()
    }

    /// Retries that the scope may still make now.
    #[must_use]
    pub fn retries_left(&self, settings: &Settings, now: Mono) -> f64 {
        self.retry_budget.left(settings.retry_budget_ratio, now)
    }

    /// Retries that the scope has spent, the clients' repeats among them.
    #[must_use]
    pub const fn retries_used(&self) -> u64 {
        self.retry_budget.used()
    }

    /// The originals.
    #[must_use]
    pub const fn originals(&self) -> &Originals {
        &self.originals
    }
}

/// How long a request that arrives now may wait before it is too late to start.
pub(super) fn patience(deadline: Option<Mono>, settings: &Settings, now: Mono) -> Duration {
    let queue = Duration::try_from_secs_f64(settings.queue_max_age_s).unwrap_or(Duration::MAX);
    deadline.map_or(queue, |deadline| queue.min(deadline.saturating_since(now)))
}
