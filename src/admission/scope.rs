//! One quota scope: its budgets, queue, breaker and memory, and the judgement of a newcomer.
//!
//! One budget exists per scope, because deployments that share a provider's limit share its debt.

mod judging;
mod kept;
mod lanes;
mod ramping;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use self::ramping::Ramping;
use super::adaptive::{Adaptive, Pause};
use super::breaker::{Breaker, Spread, Thresholds};
use super::bucket::Bucket;
use super::budget::Budget;
use super::concurrency::Limiter;
use super::config::{Policy, ScopeConfig};
use super::counters::Counters;
use super::estimate::Estimator;
use super::identity::Attempted;
use super::keeping::Keeping;
use super::meter::Metered;
use super::queue::{Order, Policy as QueuePolicy, Queue, TenantId, Ticket};
use super::retry::{Allowance, Cost, RetryBudget, WINDOW};
use super::said::Said;
use super::settings::Settings;
use super::shared::Demand;
use super::smoothed::Smoothed;
use crate::dialect::{Meter, MeterReading};
use crate::signal::Mono;

/// Tenants with a bucket of their own when `tenant.cap_ratio` is below one; the rest share one.
const TENANTS_MAX: usize = 1_024;
/// Without knowing better, an attempt that takes longer is slow.
const SLOW: Duration = Duration::from_secs(10);
/// What was learned of service times is believed for so long after the last.
const SERVICE_KEPT: Duration = Duration::from_secs(30);
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

/// When a newcomer that is not refused may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// At once: nobody waits, and there is room.
    Now,
    /// When its turn comes.
    Later,
}

/// What a newcomer asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub ticket: Ticket,
    pub demand: Demand,
    /// When the caller's own deadline comes.
    pub deadline: Option<Mono>,
    /// Another request for the same original is under way.
    pub running: bool,
    /// Attempts that the original has had.
    pub attempts: u32,
    /// When the wait ends that the provider asked of it.
    pub not_before: Mono,
    /// Random number in 0..1, for the spread of Retry-After.
    pub uniform: f64,
}

/// The state of one quota scope.
#[derive(Debug)]
pub struct Scope {
    pub(super) config: ScopeConfig,
    /// The provider, by its number in this gate.
    pub(super) provider: usize,
    pub(super) budget: Budget,
    /// What batch work, and backfill within it, may take beside the reserved shares.
    batch: Option<Bucket>,
    backfill: Option<Bucket>,
    tenants: BTreeMap<TenantId, Bucket>,
    pub(super) estimator: Estimator,
    pub(super) queue: Queue,
    pub(super) breaker: Breaker,
    pub(super) adaptive: Adaptive,
    pub(super) permits: Limiter,
    pub(super) keeping: Option<Keeping>,
    /// When the keeper last heard of this instance.
    pub(super) reported_at: Mono,
    pub(super) retry_budget: RetryBudget,
    pub(super) attempted: Attempted,
    pub(super) counters: Counters,
    pub(super) readings: BTreeMap<Meter, DatedReading>,
    pub(super) said: Said,
    /// Until when the provider wants nobody to start, and when this instance wakes from that.
    pub(super) pause: Pause,
    pub(super) woken_at: Mono,
    pub(super) in_flight: u32,
    service: Smoothed,
    served_at: Mono,
    ramping: Option<Ramping>,
    pub(super) wake: Option<Mono>,
}

impl Scope {
    pub(super) fn new(
        config: ScopeConfig,
        provider: usize,
        settings: &Settings,
        now: Mono,
    ) -> Self {
        let budget = Budget::default();
        let mut queue = Queue::default();
        queue.set_policy(queue_policy(&config.policy, settings));
        let permits = Limiter::new(config.policy.permits, settings.max_in_flight);
        let thresholds =
            Thresholds { faults_in_row: config.policy.faults_in_row, ..Thresholds::default() };
        let breaker = Breaker::configured(thresholds, Spread::by_name(&config.name), now);
        let estimator = Estimator::new(config.counts_max_tokens);
        let mut scope = Self {
            config,
            provider,
            budget,
            batch: None,
            backfill: None,
            tenants: BTreeMap::new(),
            estimator,
            queue,
            breaker,
            adaptive: Adaptive::default(),
            permits,
            keeping: None,
            reported_at: now,
            retry_budget: RetryBudget::default(),
            attempted: Attempted::default(),
            counters: Counters::default(),
            readings: BTreeMap::new(),
            said: Said::default(),
            pause: Pause::default(),
            woken_at: now,
            in_flight: 0,
            service: Smoothed::at(0.0),
            served_at: now,
            ramping: None,
            wake: None,
        };
        scope.set_rates(settings, now);
        scope
    }

    /// Takes another configuration of the same scope. What was learned stays, but of what is learned in
    /// another way now.
    pub(super) fn reconfigure(&mut self, config: ScopeConfig, settings: &Settings, now: Mono) {
        if self.config.policy.permits != config.policy.permits {
            self.permits = Limiter::new(config.policy.permits, settings.max_in_flight);
            self.permits.begin_at(self.in_flight);
        }
        if self.config.counts_max_tokens != config.counts_max_tokens {
            self.estimator = Estimator::new(config.counts_max_tokens);
        }
        self.breaker.set_faults_in_row(config.policy.faults_in_row);
        self.config = config;
        self.set_rates(settings, now);
    }

    /// Applies the share of the quota that settings, the rate factor and a silent keeper leave.
    pub(super) fn set_rates(&mut self, settings: &Settings, now: Mono) {
        self.adaptive.freeze(!settings.adaptive);
        let share = settings.rate_factor * self.ramp_level();
        let allowances = self.config.allowances(share * self.local_share());
        self.budget.set(&allowances, self.adaptive.factor(), now);
        let share = share * self.instance_share() * self.adaptive.factor();
        let rate = self.lane_rate().map(|rate| rate * share);
        let batch = 1.0 - settings.interactive_reserved_ratio;
        let backfill = (1.0 - self.config.policy.ingest_reserved).min(batch);
        let burst = self.config.burst;
        for (bucket, share) in [(&mut self.batch, batch), (&mut self.backfill, backfill)] {
            match (bucket.as_mut(), rate) {
                (Some(bucket), Some(rate)) => bucket.set_rate(rate * share, burst, now),
                (_, rate) => *bucket = rate.map(|rate| Bucket::new(rate * share, burst, now)),
            }
        }
        self.permits.set_ceiling(settings.max_in_flight);
        self.queue.set_policy(queue_policy(&self.config.policy, settings));
        if settings.tenant_cap_ratio >= 1.0 {
            self.tenants.clear();
        }
    }

    /// Looks at what a decision will need, and uses none of it.
    ///
    /// With thousands of scopes all of it is far from the processor. A decision comes from one part to
    /// the next and would wait for each; looks that do not depend on each other wait together.
    pub(super) fn touch(&self, now: Mono) {
        let Self { config, budget, queue, breaker, permits, adaptive, .. } = self;
        for meter in budget.meters() {
            black_box(meter.touched());
        }
        black_box((
            (config.tpm, config.rpm, config.input_tpm, config.output_tpm, config.tpd),
            config.policy.faults_in_row,
            (self.in_flight, self.woken_at, self.wake.is_some(), self.keeping.is_some()),
            (self.batch.is_some(), self.tenants.is_empty(), queue.is_empty(), self.provider),
            (breaker.reason(), breaker.is_closed(), permits.limit(), adaptive.factor()),
            (self.retry_budget.touched(now), self.ramping.is_some()),
            self.estimator.touched(),
            self.counters.touched(),
        ));
    }

    /// Gives memory up that is not needed any more.
    pub(super) fn tidy(&mut self, now: Mono) {
        self.budget.tidy(now);
        self.attempted.tidy(now);
        // A full bucket says no more than a new one.
        self.tenants.retain(|_, bucket| bucket.headroom(now) < 1.0);
    }

    pub(super) fn served_in(&mut self, seconds: f64, now: Mono) {
        self.service.learn(seconds);
        self.served_at = now;
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

    /// What the provider should have left of a whole meter, by our own count or by that of all
    /// instances, and how many seconds ago that was so; unknown until the keeper has answered.
    #[must_use]
    pub fn own_left(&self, meter: &Metered, now: Mono) -> Option<(f64, f64)> {
        let Some(keeping) = &self.keeping else { return Some((meter.own_left(now), 0.0)) };
        let (mirror, at) = keeping.mirror()?;
        let same = |known: &&Metered| {
            let (a, b) = (known.limit(), meter.limit());
            (a.meter, a.window) == (b.meter, b.window)
        };
        let place = self.budget.meters().iter().position(|known| same(&known))?;
        // The keeper counts what is left of our share; the rest of the quota nobody has used.
        let kept_back = meter.quota() - meter.limit().amount;
        let left = mirror.left.get(place)? + kept_back.max(0.0);
        Some((left, now.saturating_since(*at).as_secs_f64()))
    }

    /// How far reservations lie from charges of late, as a share of the charge.
    #[must_use]
    pub fn estimate_error(&self) -> Option<f64> {
        self.estimator.error()
    }

    /// Time left of the pause that the provider has asked for.
    #[must_use]
    pub const fn pause_left(&self, now: Mono) -> Duration {
        self.pause.left(now)
    }

    /// The dealings with the keeper of the scope's state, where it has one.
    #[must_use]
    pub const fn keeping(&self) -> Option<&Keeping> {
        self.keeping.as_ref()
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
        self.retry_budget.left(&self.retry_allowance(settings), now).retries
    }

    /// What retries of this scope may spend.
    pub(super) fn retry_allowance(&self, settings: &Settings) -> Allowance {
        let per_window = |per_minute: f64| per_minute * WINDOW.as_secs_f64() / 60.0;
        Allowance {
            ratio: settings.retry_budget_ratio,
            tokens_max: self.config.policy.retry_tpm.map(per_window),
            usd_max: self.config.policy.retry_usd_per_minute.map(per_window),
        }
    }

    /// What an attempt costs, as far as its price is known.
    pub(super) fn cost(&self, demand: &Demand) -> Cost {
        let tokens = demand.tokens();
        let price = self.config.usd_per_million_tokens.unwrap_or(0.0);
        Cost { tokens, usd: tokens * price / 1e6 }
    }

    /// Retries that the scope has spent, the clients' repeats among them.
    #[must_use]
    pub const fn retries_used(&self) -> u64 {
        self.retry_budget.used()
    }

    /// What was attempted of late.
    #[must_use]
    pub const fn attempted(&self) -> &Attempted {
        &self.attempted
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

fn queue_policy(policy: &Policy, settings: &Settings) -> QueuePolicy {
    let depth_max = settings.queue_max_depth as usize;
    QueuePolicy {
        batch_share: policy.batch_trickle,
        backfill_share: policy.backfill_trickle,
        order: if policy.adaptive_lifo {
            Order::NewestWhenHalfFull { depth_max }
        } else {
            Order::OldestFirst
        },
    }
}
