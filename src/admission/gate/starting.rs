//! Lets waiting requests start, as many as may, and says when to look again.

use super::{Gate, Held, Phase};
use crate::admission::events::{AttemptId, Effect, RequestId};
use crate::admission::keeping::Keeping;
use crate::admission::queue::{Lane, Ticket};
use crate::admission::shared::{Demand, Receipt};
use crate::signal::Mono;

impl Gate {
    /// Starts as many of the queue as may start, and sets the next wake-up.
    pub(super) fn pump(&mut self, place: usize, now: Mono) {
        let wake = loop {
            while let Some(id) = self.scopes[place].queue.overdue(now) {
                self.expire(id, place, now);
            }
            let scope = &self.scopes[place];
            let Some(head) = scope.queue.head() else { break None };
            let demand = scope.estimator.reserve(&self.requests[head.request].terms.guess);
            let (next, demand) = match scope.may_start(&head, &demand, &self.settings, now) {
                Ok(()) => (head, demand),
                Err(wake) => match self.instead_of(&head, place, now) {
                    Some(Ok(other)) => other,
                    Some(Err(other)) => break wake.into_iter().chain(other).min(),
                    None => break wake,
                },
            };
            if let Err(wake) = self.turn_to_probe(place, now) {
                break Some(wake);
            }
            if let Some(wake) = self.ask_keeper(&next, demand, place, now) {
                match wake {
                    Ok(()) => continue,
                    Err(wake) => break wake,
                }
            }
            self.scopes[place].queue.take(next.request);
            let reserved = self.hold(&next, demand, None, place, now);
            self.start(next.request, Some(reserved), now);
        };
        let scope = &self.scopes[place];
        let deadline = scope.queue.next_deadline();
        let probe = scope.keeping.as_ref().and_then(Keeping::next_probe);
        let timers = [deadline, scope.lease_due(), scope.ramp_due(), probe].into_iter().flatten();
        let wake = wake.into_iter().chain(timers).min();
        self.set_wake(place, wake);
    }

    /// Of one provider's scopes only one probes at a time, so that they do not all come back at once.
    pub(super) fn turn_to_probe(&self, place: usize, now: Mono) -> Result<(), Mono> {
        let scope = &self.scopes[place];
        match scope.breaker.probe_due(now) {
            Some(due) if self.settings.breaker && !scope.keeper_answers() => {
                self.reopenings[scope.provider].permits(place, due, now)
            }
            _ => Ok(()),
        }
    }

    /// Whose turn it is when the head waits for its own lane's share only.
    /// `None` where there is nobody else; `Err` is when that one may start.
    pub(super) fn instead_of(
        &self,
        head: &Ticket,
        place: usize,
        now: Mono,
    ) -> Option<Result<(Ticket, Demand), Option<Mono>>> {
        let scope = &self.scopes[place];
        let other = scope.queue.head_of(Lane::Interactive).filter(|_| head.lane == Lane::Batch)?;
        let demand = scope.estimator.reserve(&self.requests[other.request].terms.guess);
        let may = scope.may_start(&other, &demand, &self.settings, now);
        Some(may.map(|()| (other, demand)))
    }

    /// Debits the scope for an attempt that starts now, and counts its wait.
    pub(super) fn hold(
        &mut self,
        ticket: &Ticket,
        demand: Demand,
        receipt: Option<Receipt>,
        place: usize,
        now: Mono,
    ) -> Held {
        let scope = &mut self.scopes[place];
        let reservation = scope.budget.reserve(demand, now);
        scope.debit_lane(ticket, now);
        scope.counters.tokens_reserved += demand.tokens();
        let request = self.request_mut(ticket.request);
        let waited = now.saturating_since(request.queued_since);
        request.queued += waited;
        let counters = &mut self.scopes[place].counters;
        counters.queue_wait[ticket.lane].observe(waited);
        Held { reservation, receipt }
    }

    pub(super) fn set_wake(&mut self, place: usize, wake: Option<Mono>) {
        let old = std::mem::replace(&mut self.scopes[place].wake, wake);
        if old != wake {
            if let Some(old) = old {
                self.wakes.remove(&(old, place));
            }
            self.wakes.extend(wake.map(|wake| (wake, place)));
        }
    }

    /// Lets a request go upstream.
    pub(super) fn start(&mut self, id: RequestId, held: Option<Held>, now: Mono) {
        let request = self.requests.get_mut(id).expect("only known requests are started");
        request.attempts += 1;
        let newly_admitted = !std::mem::replace(&mut request.admitted, true);
        request.phase = Phase::Upstream { started: now, held, sent: false };
        let attempt = AttemptId { request: id, number: request.attempts };
        let scope = &mut self.scopes[request.scope];
        scope.in_flight += 1;
        if scope.breaker.probe_due(now).is_some() {
            self.reopenings[scope.provider].began(request.scope, now);
        }
        scope.breaker.started(now);
        scope.counters.tokens_estimated += request.terms.guess.tokens();
        if newly_admitted {
            scope.counters.admitted[request.terms.lane] += 1;
            let original = &mut self.originals[request.original];
            if !std::mem::replace(&mut original.admitted, true) {
                scope.retry_budget.admitted(now);
            }
        }
        self.effects.push_back(Effect::Send { attempt });
    }
}
