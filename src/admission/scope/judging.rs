//! Judges a newcomer, and whether the next of the queue may start. Changes nothing but in shadow mode.

use std::time::Duration;

use super::{Ask, COME_BACK_MAX, COME_BACK_SPREAD, SERVICE_KEPT, SLOW, Scope, Turn, seconds};
use crate::admission::breaker::{OpenReason, State};
use crate::admission::config::WithoutStore;
use crate::admission::keeping::{Keeping, PROBE_EVERY};
use crate::admission::queue::{Ahead, Lane, Ticket};
use crate::admission::refusal::{Reason, Refusal};
use crate::admission::settings::{RetryOwner, Settings};
use crate::admission::shared::Demand;
use crate::admission::smoothed::Smoothed;
use crate::dialect::Meter;
use crate::signal::Mono;

impl Scope {
    /// Why a newcomer must be refused now, or when it may start.
    pub(in crate::admission) fn judge(
        &self,
        ask: &Ask,
        settings: &Settings,
        now: Mono,
    ) -> Result<Turn, Refusal> {
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
            let is_dead = self.breaker.reason() == Some(OpenReason::AccountDead);
            let reason = if is_dead { Reason::AccountDead } else { Reason::Breaker };
            return refuse(reason, Some(until.saturating_since(now)));
        }
        if self.is_above_the_quota(&ask.demand) {
            return refuse(Reason::TooLarge, None);
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

    /// Whether a request takes more than the provider's whole limit: no wait will make it fit. First
    /// guesses are up to twice too high.
    fn is_above_the_quota(&self, demand: &Demand) -> bool {
        let doubt = if self.estimator.error().is_some() { 1.0 } else { 2.0 };
        let minutes = [
            (self.config.tpm, demand.tokens()),
            (self.config.input_tpm, demand.input),
            (self.config.output_tpm, demand.output),
            (self.config.tpd, demand.tokens()),
        ];
        minutes.into_iter().any(|(quota, amount)| quota.is_some_and(|quota| amount > quota * doubt))
    }

    /// How long a newcomer would wait for its turn, and what for.
    ///
    /// Little's law per limit: what is ahead over the rate at which it leaves; the longest binds.
    pub(super) fn expected_wait(&self, ask: &Ask, now: Mono) -> (Duration, Reason) {
        let ahead = self.queue.ahead(&ask.ticket);
        let why = self.keeping.as_ref().and_then(|keeping| keeping.why(ask.ticket.lane));
        let by_budget = self.keeper_wait(&ask.demand, &ahead, now).map_or_else(
            || match self.budget.wait(&ask.demand, &ahead, now) {
                Ok((wait, meter)) => (wait, Reason::of(meter.unwrap_or(Meter::Requests))),
                Err(meter) => (Duration::MAX, Reason::of(meter)),
            },
            |(wait, meter)| (wait, why.map_or(Reason::of(meter), Reason::bound_by)),
        );
        let by_lane = self.lane_wait(&ask.ticket, &ahead, now).unwrap_or(Duration::MAX);
        let lanes_meter = if self.is_by_tokens() { Meter::Tokens } else { Meter::Requests };
        let paused = self.woken_at.saturating_since(now);
        let permits = f64::from(self.permits_now());
        let before = (ahead.requests + f64::from(self.in_flight) + 1.0 - permits).max(0.0);
        let by_permits = self.service_time(now).as_secs_f64() * before / permits;
        let by_permits = seconds(by_permits);
        // Until a pause is over, the budget's wait is the pause's.
        let by_budget = if paused.is_zero() { by_budget } else { (by_budget.0, Reason::Paused) };
        let mut longest = by_budget;
        let others = [
            (by_lane, Reason::of(lanes_meter)),
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
    pub(in crate::admission) fn patience(
        &self,
        deadline: Option<Mono>,
        settings: &Settings,
        now: Mono,
    ) -> Duration {
        self.start_by(deadline, Duration::ZERO, settings, now).saturating_since(now)
    }

    /// When it is too late to start for a request that has `waited` in the queue so far. Time at the
    /// provider is no waiting.
    pub(in crate::admission) fn start_by(
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
    pub(in crate::admission) fn service_time(&self, now: Mono) -> Duration {
        self.recent_service(now).map_or(Duration::ZERO, |service| seconds(service.mean()))
    }

    /// How long an attempt takes at the least, zero while unknown: who has less time need not start.
    pub(super) fn soonest_service(&self, now: Mono) -> Duration {
        self.recent_service(now).map_or(Duration::ZERO, |service| seconds(service.low()))
    }

    /// Whether an attempt without an answer has taken longer than answers take.
    pub(in crate::admission) fn is_slow(&self, took: Duration, now: Mono) -> bool {
        let usual = self.recent_service(now).map(|service| seconds(service.high()));
        took > usual.map_or(SLOW, |usual| usual * 2)
    }

    /// What is known of service times. It is forgotten when nothing is served any more, so that
    /// whoever was refused for it gets another try.
    pub(super) fn recent_service(&self, now: Mono) -> Option<&Smoothed> {
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
    pub(in crate::admission) fn may_start(
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
        let wait = wait.max(self.lane_wait(ticket, &Ahead::default(), now).ok_or(None)?);
        if wait.is_zero() { Ok(()) } else { Err(Some(now + wait)) }
    }

    /// In shadow mode: what enforcement would have said. Keeps the budget as if it had enforced,
    /// with the debt standing for the queue.
    pub(in crate::admission) fn judge_in_shadow(
        &mut self,
        ask: &Ask,
        settings: &Settings,
        now: Mono,
    ) {
        // What is only counted asks no keeper: this instance's own share stands for it.
        let keeping = self.keeping.take();
        let judged = self.judge(ask, settings, now);
        self.keeping = keeping;
        if let Err(refusal) = judged {
            self.counters.would_shed.add(refusal.reason);
        } else {
            let held = self.budget.reserve(ask.demand, now);
            self.budget.settle(&held, Some(ask.demand), now);
        }
    }
}
