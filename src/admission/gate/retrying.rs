//! What follows a refusal or a fault of the provider: a pause of the scope, a retry, or its answer.

use std::time::Duration;

use rand::Rng;

use super::{Gate, Phase, chain};
use crate::admission::counters::{Completion, Denied};
use crate::admission::events::RequestId;
use crate::admission::identity::ChainEntry;
use crate::admission::queue::Ticket;
use crate::admission::retry::{WAITS_MAX, backoff};
use crate::admission::scope::patience;
use crate::admission::settings::RetryOwner;
use crate::dialect::{Class, Meter, MeterReading};
use crate::signal::Mono;

/// Longest pause of a scope that a hint can ask for. A skewed clock can ask for hours; past a
/// minute a person should look.
const PAUSE_MAX: Duration = Duration::from_mins(1);

impl Gate {
    pub(super) fn retry_or_deliver(
        &mut self,
        id: RequestId,
        class: Class,
        hint: Option<Duration>,
        meter: Option<Meter>,
        now: Mono,
    ) {
        let uniform = self.random.random::<f64>();
        let request = &self.requests[&id];
        let place = request.scope;
        let wait = backoff(request.attempts, hint, uniform);
        if class == Class::TransientRateLimit && request.enforced {
            self.pause(place, hint, wait, meter, now);
        }
        match self.may_retry(id, class, wait, now) {
            Ok(wait) => {
                let until = now + wait;
                let request = self.request_mut(id);
                request.phase = Phase::Backoff { until };
                let identity = request.identity;
                if let Some(original) = self.scopes[place].originals.get_mut(identity) {
                    original.waited += wait;
                    original.log(ChainEntry { wait, ..chain("backoff", now) });
                }
                self.backoffs.insert((until, id));
            }
            Err(denied) => {
                let counters = &mut self.scopes[place].counters;
                *counters.retries_denied.entry(denied).or_default() += 1;
                let outcome = match class {
                    Class::TransientRateLimit | Class::PermanentQuota => Completion::Refused,
                    _ => Completion::Error,
                };
                *counters.completed.entry(outcome).or_default() += 1;
                let enforced = self.requests[&id].enforced;
                let owner = self.settings.retry_owner == RetryOwner::Gateway;
                self.deliver(id, enforced && owner);
            }
        }
        self.pump(place, now);
    }

    /// A throttle pauses the scope and not only the request: the others would be refused too.
    fn pause(
        &mut self,
        place: usize,
        hint: Option<Duration>,
        wait: Option<Duration>,
        meter: Option<Meter>,
        now: Mono,
    ) {
        let scope = &mut self.scopes[place];
        let span = wait.or(hint).unwrap_or(PAUSE_MAX).min(PAUSE_MAX);
        let until = now + span;
        scope.paused_until = Some(scope.paused_until.map_or(until, |set| set.max(until)));
        // It was refused, so there was less than we thought.
        match meter {
            Some(meter) => scope.budget.believe(
                &[MeterReading { remaining: Some(0.0), ..MeterReading::unknown(meter) }],
                now,
            ),
            None => {}
        }
        scope.budget.hold(until, now);
    }

    fn may_retry(
        &mut self,
        id: RequestId,
        class: Class,
        wait: Option<Duration>,
        now: Mono,
    ) -> Result<Duration, Denied> {
        let settings = &self.settings;
        let request = &self.requests[&id];
        if !request.enforced || settings.retry_owner == RetryOwner::Client {
            return Err(Denied::Owner);
        }
        if !class.is_retryable() {
            return Err(Denied::Permanent);
        }
        let scope = &mut self.scopes[request.scope];
        let (attempts, waited) = scope
            .originals
            .get_mut(request.identity)
            .map_or((request.reached, Duration::ZERO), |o| (o.attempts, o.waited));
        // A try that found no connection is no attempt, but a try.
        let attempts = attempts + (request.attempts - request.reached);
        if attempts >= settings.retry_max_attempts || self.draining {
            return Err(Denied::Attempts);
        }
        let wait = wait.filter(|wait| waited + *wait <= WAITS_MAX).ok_or(Denied::Deadline)?;
        let too_late = request.arrived + patience(request.deadline, settings, request.arrived);
        let expected = Duration::try_from_secs_f64(scope.service_time_s.unwrap_or(0.0))
            .unwrap_or(Duration::ZERO);
        let unfinished = request.deadline.is_some_and(|end| now + wait + expected > end);
        if now + wait >= too_late || unfinished {
            return Err(Denied::Deadline);
        }
        if !scope.retry_budget.spend(settings.retry_budget_ratio, now) {
            return Err(Denied::Budget);
        }
        Ok(wait)
    }

    /// A backoff is over: back to the head of the lane, with the time that is left.
    pub(super) fn requeue(&mut self, id: RequestId, now: Mono) {
        let settings = &self.settings;
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.phase = Phase::Queued;
        request.queued_since = now;
        let scope = &mut self.scopes[request.scope];
        scope.queue.push_front(Ticket {
            request: id,
            lane: request.lane,
            arrived: request.arrived,
            deadline: request.arrived + patience(request.deadline, settings, request.arrived),
            tokens: scope.estimator.reserve(&request.guess).tokens(),
        });
        let place = request.scope;
        self.pump(place, now);
    }
}
