//! One quota scope: its budgets, queue, breaker and memory, and the judgement of a newcomer.
//!
//! One budget exists per scope, because deployments that share a provider's limit share its debt.

mod kept;
mod ramping;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use self::ramping::Ramping;
use super::adaptive::{Adaptive, Pause};
use super::breaker::{Breaker, Spread, State, Thresholds};
use super::bucket::Bucket;
use super::budget::Budget;
use super::concurrency::Limiter;
use super::config::{Policy, ScopeConfig, WithoutStore};
use super::counters::Counters;
use super::estimate::Estimator;
use super::identity::Originals;
use super::keeping::{Keeping, PROBE_EVERY};
use super::meter::Metered;
use super::queue::{Ahead, Lane, Order, Policy as QueuePolicy, Queue, TenantId, Ticket};
use super::refusal::{Reason, Refusal};
use super::retry::{Allowance, Cost, RetryBudget, WINDOW};
use super::said::Said;
use super::settings::{RetryOwner, Settings};
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
    pub(super) originals: Originals,
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
            originals: Originals::default(),
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

    /// What lanes are measured by, per second: tokens where they are limited, else requests.
    fn lane_rate(&self) -> Option<f64> {
        let ScopeConfig { tpm, input_tpm, rpm, .. } = &self.config;
        tpm.or(*input_tpm).or(*rpm).map(|per_minute| per_minute / 60.0)
    }

    /// What one request takes of a lane's share.
    pub(super) fn lane_amount(&self, tokens: f64) -> f64 {
        if self.is_by_tokens() { tokens } else { 1.0 }
    }

    /// Whether lanes are measured by tokens.
    const fn is_by_tokens(&self) -> bool {
        self.config.tpm.is_some() || self.config.input_tpm.is_some()
    }

    /// Takes a request that starts off its lane's share.
    pub(super) fn debit_lane(&mut self, ticket: &Ticket, now: Mono) {
        let amount = self.lane_amount(ticket.tokens);
        if ticket.lane == Lane::Batch
            && let Some(batch) = &mut self.batch
        {
            batch.take(amount, now);
        }
        if ticket.backfill
            && let Some(backfill) = &mut self.backfill
        {
            backfill.take(amount, now);
        }
    }

    /// Why a newcomer must be refused now, or when it may start.
    pub(super) fn judge(&self, ask: &Ask, settings: &Settings, now: Mono) -> Result<Turn, Refusal> {
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
        if ask.ticket.lane == Lane::Batch && !settings.batch_lane {
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
        if self.without_keeper(ask.ticket.lane) == Some(WithoutStore::Closed) {
            return refuse(Reason::StoreLost, Some(PROBE_EVERY));
        }
        if ask.deadline.is_some_and(|deadline| now + self.soonest_service(now) > deadline) {
            return refuse(Reason::Deadline, None);
        }
        // Whoever need not wait needs no place to wait in.
        if self.queue.is_empty()
            && self.may_start(&ask.ticket, &ask.demand, settings, now).is_ok()
            && self.keeping.is_none()
        {
            return Ok(Turn::Now);
        }
        let (wait, reason) = self.expected_wait(ask, now);
        if self.queue.len() >= settings.queue_max_depth as usize {
            return refuse(Reason::QueueFull, Some(wait));
        }
        let patience = self.patience(ask.deadline, settings, now);
        if wait > patience {
            return refuse(reason, Some(wait.saturating_sub(patience)));
        }
        Ok(Turn::Later)
    }

    /// How long a newcomer would wait for its turn, and what for.
    ///
    /// Little's law per limit: what is ahead over the rate at which it leaves; the longest binds.
    fn expected_wait(&self, ask: &Ask, now: Mono) -> (Duration, Reason) {
        let ahead = self.queue.ahead(&ask.ticket);
        let why = self.keeping.as_ref().and_then(|keeping| keeping.why(ask.ticket.lane));
        let by_budget = self.keeper_wait(&ask.demand, &ahead, now).map_or_else(
            || match self.budget.wait(&ask.demand, &ahead, now) {
                Ok((wait, meter)) => (wait, Reason::of(meter.unwrap_or(Meter::Requests))),
                Err(meter) => (Duration::MAX, Reason::of(meter)),
            },
            |(wait, meter)| (wait, why.map_or(Reason::of(meter), Reason::bound_by)),
        );
        let by_lane = self.lane_wait(&ask.ticket, ahead.tokens, ahead.requests, now);
        let by_lane = by_lane.unwrap_or(Duration::MAX);
        let paused = self.woken_at.saturating_since(now);
        let permits = f64::from(self.permits_now());
        let before = (ahead.requests + f64::from(self.in_flight) + 1.0 - permits).max(0.0);
        let by_permits = self.service_time(now).as_secs_f64() * before / permits;
        let by_permits = seconds(by_permits);
        let mut longest = by_budget;
        let others = [
            (by_lane, Reason::QuotaTokens),
            (paused, Reason::Paused),
            (by_permits, Reason::Concurrency),
        ];
        for other in others {
            if other.0 > longest.0 {
                longest = other;
            }
        }
        longest
    }

    /// How long a request that arrives now may wait before it is too late to start: its own deadline
    /// leaves time for the service.
    pub(super) fn patience(
        &self,
        deadline: Option<Mono>,
        settings: &Settings,
        now: Mono,
    ) -> Duration {
        self.start_by(deadline, Duration::ZERO, settings, now).saturating_since(now)
    }

    /// When it is too late to start for a request that has `waited` in the queue so far. Time at the
    /// provider is no waiting.
    pub(super) fn start_by(
        &self,
        deadline: Option<Mono>,
        waited: Duration,
        settings: &Settings,
        now: Mono,
    ) -> Mono {
        let queue = Duration::try_from_secs_f64(settings.queue_max_age_s).unwrap_or(Duration::MAX);
        let by_age = now + queue.saturating_sub(waited);
        let service = self.service_time(now);
        deadline.map_or(by_age, |deadline| by_age.min(deadline - service))
    }

    /// How long an attempt takes of late, zero while unknown.
    pub(super) fn service_time(&self, now: Mono) -> Duration {
        self.recent_service(now).map_or(Duration::ZERO, |service| seconds(service.mean()))
    }

    /// How long an attempt takes at the least, zero while unknown: who has less time need not start.
    fn soonest_service(&self, now: Mono) -> Duration {
        self.recent_service(now).map_or(Duration::ZERO, |service| seconds(service.low()))
    }

    /// Whether an attempt without an answer has taken longer than answers take.
    pub(super) fn is_slow(&self, took: Duration, now: Mono) -> bool {
        let usual = self.recent_service(now).map(|service| seconds(service.high()));
        took > usual.map_or(SLOW, |usual| usual * 2)
    }

    /// What is known of service times. It is forgotten when nothing is served any more, so that
    /// whoever was refused for it gets another try.
    fn recent_service(&self, now: Mono) -> Option<&Smoothed> {
        let is_recent = now.saturating_since(self.served_at) <= SERVICE_KEPT;
        Some(&self.service).filter(|service| service.is_known() && is_recent)
    }

    /// Calls that may be open at the same time.
    #[must_use]
    pub fn permits_now(&self) -> u32 {
        let own = self.permits.limit();
        let limit = match (&self.keeping, self.config.concurrency) {
            // The keeper counts the calls of all instances.
            (Some(_), _) if self.keeper_answers() => None,
            (Some(keeping), limit) => limit.map(|limit| limit / keeping.instances()),
            (None, limit) => limit,
        };
        limit.map_or(own, |limit| own.min(limit)).max(1)
    }

    /// Whether the next of the queue may start now; the instant to look again at otherwise.
    /// `Err(None)`: only another event can change it.
    pub(super) fn may_start(
        &self,
        ticket: &Ticket,
        demand: &Demand,
        settings: &Settings,
        now: Mono,
    ) -> Result<(), Option<Mono>> {
        if self.woken_at > now {
            return Err(Some(self.woken_at));
        }
        // Where a keeper decides, it answers for the breaker too.
        if settings.breaker && !self.keeper_answers() {
            self.breaker.permits(now).map_err(Some)?;
        }
        if self.without_keeper(ticket.lane) == Some(WithoutStore::Closed) {
            return Err(None);
        }
        let asked = self.keeping.as_ref().map_or(0, Keeping::asked);
        if self.in_flight + asked >= self.permits_now() {
            return Err(None);
        }
        let wait = if self.keeper_answers() {
            Duration::ZERO
        } else {
            self.budget.wait(demand, &Ahead::default(), now).map_err(|_| None)?.0
        };
        let wait = wait.max(self.lane_wait(ticket, 0.0, 0.0, now).ok_or(None)?);
        if wait.is_zero() { Ok(()) } else { Err(Some(now + wait)) }
    }

    /// Time until a lane's own share allows a request behind others of it; `None` when never.
    fn lane_wait(
        &self,
        ticket: &Ticket,
        tokens: f64,
        requests: f64,
        now: Mono,
    ) -> Option<Duration> {
        let ahead = if self.lane_amount(1.0).to_bits() == self.lane_amount(2.0).to_bits() {
            requests
        } else {
            tokens
        };
        let mut wait = Duration::ZERO;
        let lanes = [
            self.batch.as_ref().filter(|_| ticket.lane == Lane::Batch),
            self.backfill.as_ref().filter(|_| ticket.backfill),
        ];
        for bucket in lanes.into_iter().flatten() {
            wait = wait.max(bucket.wait(self.lane_amount(ticket.tokens), ahead, now)?);
        }
        Some(wait)
    }

    /// Debits a tenant's share; false when it has none left.
    pub(super) fn tenant_has_share(
        &mut self,
        tenant: TenantId,
        tokens: f64,
        settings: &Settings,
        now: Mono,
    ) -> bool {
        let Some(rate) = self.lane_rate().filter(|_| settings.tenant_cap_ratio < 1.0) else {
            return true;
        };
        let amount = self.lane_amount(tokens);
        let known = self.tenants.contains_key(&tenant) || self.tenants.len() < TENANTS_MAX;
        let key = if known { tenant } else { TenantId(u32::MAX) };
        let share = settings.rate_factor * settings.tenant_cap_ratio * self.instance_share();
        let rate = rate * share;
        let bucket =
            self.tenants.entry(key).or_insert_with(|| Bucket::new(rate, self.config.burst, now));
        let slack = rate * settings.queue_max_age_s;
        if bucket.level(now) + slack < amount {
            return false;
        }
        bucket.take(amount, now);
        true
    }

    /// Every tenant begins anew: the cap is another.
    pub(super) fn forget_tenant_shares(&mut self) {
        self.tenants.clear();
    }

    /// In shadow mode: what enforcement would have said. Keeps the budget as if it had enforced,
    /// with the debt standing for the queue.
    pub(super) fn judge_in_shadow(&mut self, ask: &Ask, settings: &Settings, now: Mono) {
        // What is only counted asks no keeper: this instance's own share stands for it.
        let keeping = self.keeping.take();
        let judged = self.judge(ask, settings, now);
        self.keeping = keeping;
        if let Err(refusal) = judged {
            *self.counters.would_shed.entry(refusal.reason).or_default() += 1;
        } else {
            let held = self.budget.reserve(ask.demand, now);
            self.budget.settle(&held, Some(ask.demand), now);
        }
    }

    /// Gives memory up that is not needed any more.
    pub(super) fn tidy(&mut self, now: Mono) {
        self.budget.tidy(now);
        self.originals.tidy(now);
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

    /// The originals.
    #[must_use]
    pub const fn originals(&self) -> &Originals {
        &self.originals
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
