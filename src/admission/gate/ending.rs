//! The ends of attempts and requests: what was held is given back, and the caller hears.

use std::borrow::Cow;
use std::time::Duration;

use super::{Finish, Gate, Phase, chain};
use crate::admission::counters::Stage;
use crate::admission::events::{Effect, RequestId, ScopeId};
use crate::admission::identity::{ChainEntry, SERVED_MAX};
use crate::admission::queue::Lane;
use crate::admission::refusal::{Reason, Refusal};
use crate::admission::settings::RetryOwner;
use crate::admission::shared::{Demand, Outcome};
use crate::dialect::MeterReading;
use crate::signal::Mono;

impl Gate {
    /// Gives back what an attempt held, and says how it ended. `charged`: what it cost, `None` for
    /// nothing.
    pub(super) fn end_attempt(
        &mut self,
        id: RequestId,
        charged: Option<Demand>,
        outcome: Outcome,
        meters: &[MeterReading],
        now: Mono,
    ) {
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
            scope.served_in(took.as_secs_f64(), now);
        }
        if let Some(held) = held {
            scope.budget.settle(&held.reservation, charged, now);
        }
        self.report(place, held, charged, outcome, meters, now);
    }

    pub(super) fn deliver(&mut self, id: RequestId, forbid_retry: bool) {
        let request = &self.requests[id];
        self.effects.push_back(Effect::Deliver {
            request: id,
            forbid_retry,
            attempts: request.reached,
            queued: request.queued,
        });
    }

    pub(super) fn expire(&mut self, id: RequestId, place: usize, now: Mono) {
        let scope = &mut self.scopes[place];
        scope.queue.remove(id);
        scope.counters.expired.add(Stage::Queue);
        if self.requests[id].terms.deferrable {
            return self.defer(id, Duration::ZERO, now);
        }
        let forbid = self.settings.retry_owner == RetryOwner::Gateway;
        self.answer_refusal(id, Reason::QueueExpired.refusal(None, forbid), now);
    }

    pub(super) fn refuse(&mut self, id: RequestId, refusal: Refusal, now: Mono) {
        let request = &self.requests[id];
        if request.terms.deferrable && refusal.reason.passes() {
            return self.defer(id, refusal.retry_after.unwrap_or_default(), now);
        }
        let counters = &mut self.scopes[request.scope].counters;
        counters.shed.add((request.terms.lane, refusal.reason));
        counters.tenant(request.tenant, &mut self.tenants).refused += 1;
        self.answer_refusal(id, refusal, now);
    }

    /// Puts a request off that cannot be answered in time and may be answered later.
    pub(super) fn defer(&mut self, id: RequestId, not_before: Duration, now: Mono) {
        let request = &self.requests[id];
        let scope = &mut self.scopes[request.scope];
        scope.counters.deferred[request.terms.lane] += 1;
        self.originals[request.original].log(chain("deferred", now));
        self.effects.push_back(Effect::Defer { request: id, not_before });
        self.finish(id, Finish::Deferred, now);
    }

    /// A request of this lane was stored for later before the gate saw it: it is counted as put off now,
    /// and as an original when it comes.
    ///
    /// # Panics
    /// Never for a scope of this gate's configuration.
    pub fn count_deferred(&mut self, scope: ScopeId, lane: Lane) {
        self.scopes[scope.0].counters.deferred[lane] += 1;
    }

    pub(super) fn answer_refusal(&mut self, id: RequestId, refusal: Refusal, now: Mono) {
        let request = &self.requests[id];
        self.originals[request.original].log(ChainEntry {
            status: Some(refusal.reason.status()),
            code: Some(Cow::Borrowed(refusal.reason.code())),
            hint: refusal.retry_after,
            ..chain("refused", now)
        });
        self.effects.push_back(Effect::Refuse { request: id, refusal });
        self.finish(id, Finish::Refused, now);
    }

    pub(super) fn finish(&mut self, id: RequestId, how: Finish, now: Mono) {
        let Some(request) = self.requests.remove(id) else { return };
        self.tenants.leave(request.tenant, now);
        let scope = &mut self.scopes[request.scope];
        let original = &mut self.originals[request.original];
        original.running = original.running.saturating_sub(1);
        original.touched = now;
        let took = now.saturating_since(request.arrived);
        if how != Finish::Gone {
            scope.counters.offered_latency.observe(took);
        }
        if how == Finish::Served {
            scope.counters.admitted_latency.observe(took);
        }
        self.originals.rest(request.original, SERVED_MAX);
    }
}
