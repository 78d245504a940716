//! What follows a refusal or a fault of the provider: a retry, a later answer, or its own words.

use std::time::Duration;

use rand::Rng;

use super::{Gate, Phase, chain};
use crate::admission::counters::{Completion, Denied};
use crate::admission::events::RequestId;
use crate::admission::identity::ChainEntry;
use crate::admission::retry::{Attempted, Fate, NextTry, judge_retry};
use crate::admission::settings::RetryOwner;
use crate::dialect::Class;
use crate::signal::Mono;

impl Gate {
    pub(super) fn retry_or_deliver(
        &mut self,
        id: RequestId,
        class: Class,
        fate: Fate,
        hint: Option<Duration>,
        now: Mono,
    ) {
        let place = self.requests[id].scope;
        match self.next_try(id, class, fate, hint, now) {
            NextTry::Retry { wait } => self.back_off(id, wait, now),
            NextTry::Defer { after, why } => {
                self.count_denied(place, why);
                self.defer(id, after, now);
            }
            NextTry::Final(why) => {
                self.count_denied(place, why);
                let outcome = match class {
                    Class::TransientRateLimit | Class::PermanentQuota => Completion::Refused,
                    _ => Completion::Error,
                };
                let request = &self.requests[id];
                let counters = &mut self.scopes[place].counters;
                counters.completed.add(outcome);
                let tenant = counters.tenant(request.tenant, &mut self.tenants);
                match outcome {
                    Completion::Refused => tenant.refused += 1,
                    _ => tenant.failed += 1,
                }
                let enforced = request.enforced;
                let owner = self.settings.retry_owner == RetryOwner::Gateway;
                self.deliver(id, enforced && owner);
            }
        }
        self.pump(place, now);
    }

    /// What is to be done about a request that was not served; a retry is paid for.
    fn next_try(
        &mut self,
        id: RequestId,
        class: Class,
        fate: Fate,
        hint: Option<Duration>,
        now: Mono,
    ) -> NextTry {
        let uniform = self.random.random::<f64>();
        let settings = &self.settings;
        let request = &self.requests[id];
        let scope = &mut self.scopes[request.scope];
        let original = &self.originals[request.original];
        let (attempts, waited) = (original.attempts, original.waited);
        let allowance = scope.retry_allowance(settings);
        let cost = scope.cost(&scope.estimator.reserve(&request.terms.guess));
        let start_by = scope.start_by(request.terms.deadline, request.waited(now), settings, now);
        let attempted = Attempted {
            is_ours: request.enforced && settings.retry_owner == RetryOwner::Gateway,
            class,
            fate,
            is_repeatable: request.terms.repeatable,
            // A try that found no connection is no attempt, but a try.
            attempts: attempts + (request.attempts - request.reached),
            attempts_max: if self.draining { 0 } else { settings.retry_max_attempts },
            waited,
            hint,
            start_by,
            deadline: request.terms.deadline,
            expected: scope.service_time(now),
            left: scope.retry_budget.left(&allowance, now),
            cost,
            may_defer: request.terms.deferrable && !self.draining,
        };
        let next = judge_retry(&attempted, uniform, now);
        if matches!(next, NextTry::Retry { .. })
            && let Err(denied) = scope.retry_budget.spend(&allowance, cost, now)
        {
            return NextTry::Final(denied);
        }
        next
    }

    pub(super) fn back_off(&mut self, id: RequestId, wait: Duration, now: Mono) {
        let until = now + wait;
        let request = self.request_mut(id);
        request.phase = Phase::Backoff { until };
        let original = request.original;
        let original = &mut self.originals[original];
        original.waited += wait;
        original.log(ChainEntry { wait, ..chain("backoff", now) });
        self.backoffs.insert((until, id));
    }

    fn count_denied(&mut self, place: usize, why: Denied) {
        self.scopes[place].counters.retries_denied.add(why);
    }

    /// A backoff is over: back to the head of its line, with the time that is left.
    pub(super) fn requeue(&mut self, id: RequestId, now: Mono) {
        let Some(request) = self.requests.get_mut(id) else { return };
        request.queued_since = now;
        let place = request.scope;
        self.back_to_queue(id, now);
        self.pump(place, now);
    }
}
