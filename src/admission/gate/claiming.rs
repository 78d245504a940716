//! Asks the keeper of a scope's shared state before an attempt starts, and tells it how attempts end.
//!
//! While the keeper is silent the gate decides within a local share, lane by lane as configured, and
//! asks again once a second. Nobody waits for a silent keeper: the shell answers for it in time.

use rand::Rng;

use super::{Gate, Held, Phase};
use crate::admission::breaker::State;
use crate::admission::budget::Reservation;
use crate::admission::config::WithoutStore;
use crate::admission::events::{AttemptId, Effect, RequestId, ScopeId};
use crate::admission::keeping::{Keeping, PROBE_EVERY};
use crate::admission::queue::{Lane, Ticket};
use crate::admission::refusal::Reason;
use crate::admission::shared::{Claim, Demand, Mirror, Outcome, Report, Verdict};
use crate::signal::Mono;

impl Gate {
    /// From now on every scope's state is kept elsewhere: claims and reports come out as effects.
    #[must_use]
    pub fn with_keeper(mut self, now: Mono) -> Self {
        for scope in &mut self.scopes {
            scope.share(now);
        }
        self
    }

    /// Sends a claim for `next` if the keeper decides. `Ok`: it is sent, look at the next one;
    /// `Err`: not now, look again then. `None`: the gate decides itself.
    pub(super) fn ask_keeper(
        &mut self,
        next: &Ticket,
        demand: Demand,
        place: usize,
        now: Mono,
    ) -> Option<Result<(), Option<Mono>>> {
        let rules = self.scopes[place].rules(&self.settings);
        let scope = &mut self.scopes[place];
        let keeping = scope.keeping.as_mut()?;
        if keeping.lost_since().is_some() && !keeping.probe_is_due(now) {
            return None;
        }
        if let Err(wake) = keeping.may_ask(now) {
            return Some(Err(wake));
        }
        keeping.ask();
        let in_flight = scope.in_flight + keeping.asked() - 1;
        let claim = Claim {
            demand,
            limits: scope.limits(&self.settings),
            in_flight,
            in_flight_max: scope.config.concurrency,
            rules,
        };
        scope.queue.take(next.request);
        let request = self.request_mut(next.request);
        request.phase = Phase::Claiming;
        let attempt = AttemptId { request: next.request, number: request.attempts + 1 };
        let scope = ScopeId(place);
        self.effects.push_back(Effect::Claim { attempt, scope, claim: Box::new(claim) });
        Some(Ok(()))
    }

    /// The keeper's answer to a claim for `demand`; `None` when there is none in time.
    pub fn handle_verdict(
        &mut self,
        attempt: AttemptId,
        scope: ScopeId,
        demand: Demand,
        answer: Option<(Verdict, Mirror)>,
        now: Mono,
    ) {
        let now = self.clamp(now);
        let place = scope.0;
        let waits = self.requests.get(&attempt.request).is_some_and(|request| {
            matches!(request.phase, Phase::Claiming) && request.attempts + 1 == attempt.number
        });
        let Some((verdict, mirror)) = answer else {
            self.lose_keeper(place, now);
            if waits {
                self.back_to_queue(attempt.request);
            }
            self.refuse_closed_lanes(place, now);
            return self.pump(place, now);
        };
        self.found_keeper(place, now);
        match verdict {
            Verdict::Granted(receipt) if waits => {
                let ticket = self.ticket_of(attempt.request);
                let held = self.hold(&ticket, demand, Some(receipt), place, now);
                if let Some(keeping) = &mut self.scopes[place].keeping {
                    keeping.granted(demand.tokens(), now);
                }
                self.start(attempt.request, Some(held), now);
            }
            // Its caller has gone; what was reserved for it is given back.
            Verdict::Granted(receipt) => {
                let reservation = Reservation { demand, at: now };
                let held = Held { reservation, receipt: Some(receipt) };
                self.report(place, Some(held), None, Outcome::Neither, now);
            }
            Verdict::Wait { at_least, .. } => {
                if let Some(keeping) = &mut self.scopes[place].keeping {
                    keeping.wait(at_least, now);
                }
                if waits {
                    self.back_to_queue(attempt.request);
                }
            }
        }
        self.handle_mirror(scope, Some(mirror), now);
    }

    /// The keeper's answer to a report, or to a claim; `None` when there is none in time.
    pub fn handle_mirror(&mut self, scope: ScopeId, mirror: Option<Mirror>, now: Mono) {
        let now = self.clamp(now);
        let uniform = self.random.random::<f64>();
        let Some(known) = self.scopes.get_mut(scope.0) else { return };
        if let Some(mirror) = mirror {
            known.reflect(mirror, uniform, now);
        }
        self.pump(scope.0, now);
    }

    /// Tells the keeper how an attempt ended that it had granted.
    pub(super) fn report(
        &mut self,
        place: usize,
        held: Option<Held>,
        charged: Option<Demand>,
        outcome: Outcome,
        now: Mono,
    ) {
        let rules = self.scopes[place].rules(&self.settings);
        let scope = &mut self.scopes[place];
        let Some(held) = held.filter(|_| scope.keeper_answers()) else { return };
        let report = Report {
            receipt: held.receipt,
            reserved: held.reservation.demand,
            charged,
            outcome,
            readings: scope.fresh_readings(now),
            limits: scope.limits(&self.settings),
            in_flight: scope.in_flight,
            rules,
        };
        scope.reported_at = now;
        let scope = ScopeId(place);
        self.effects.push_back(Effect::Report { scope, report: Box::new(report) });
    }

    /// An instance whose calls are long must not seem dead.
    pub(super) fn renew_lease(&mut self, place: usize, now: Mono) {
        if self.scopes[place].lease_due().is_some_and(|due| due <= now) {
            let reservation = Reservation { demand: Demand::default(), at: now };
            let held = Held { reservation, receipt: None };
            self.report(place, Some(held), None, Outcome::Neither, now);
        }
    }

    pub(super) fn ticket_of(&self, id: RequestId) -> Ticket {
        let request = &self.requests[&id];
        let scope = &self.scopes[request.scope];
        let patience = scope.patience(request.deadline, &self.settings, request.arrived);
        Ticket {
            request: id,
            lane: request.lane,
            backfill: request.backfill,
            tenant: request.tenant,
            weight: request.weight,
            arrived: request.arrived,
            deadline: request.arrived + patience,
            tokens: scope.estimator.reserve(&request.guess).tokens(),
        }
    }

    /// Back to the head of its tenant's line, with its place and its deadline.
    pub(super) fn back_to_queue(&mut self, id: RequestId) {
        let ticket = self.ticket_of(id);
        let request = self.request_mut(id);
        request.phase = Phase::Queued;
        let place = request.scope;
        self.scopes[place].queue.push_front(ticket);
    }

    fn lose_keeper(&mut self, place: usize, now: Mono) {
        let scope = &mut self.scopes[place];
        if scope.keeping.as_mut().is_some_and(|keeping| keeping.unheard(now)) {
            scope.set_rates(&self.settings, now);
        }
    }

    fn found_keeper(&mut self, place: usize, now: Mono) {
        let scope = &mut self.scopes[place];
        if scope.keeping.as_mut().is_some_and(Keeping::answered) {
            scope.set_rates(&self.settings, now);
        }
    }

    /// Lanes that do not work without the keeper refuse what waits in them.
    fn refuse_closed_lanes(&mut self, place: usize, now: Mono) {
        for lane in Lane::ALL {
            let scope = &self.scopes[place];
            if scope.without_keeper(lane) != Some(WithoutStore::Closed) {
                continue;
            }
            while let Some(ticket) = self.scopes[place].queue.head_of(lane) {
                self.scopes[place].queue.remove(ticket.request);
                let refusal = Reason::StoreLost.refusal(Some(PROBE_EVERY), false);
                self.refuse(ticket.request, refusal, now);
            }
        }
    }

    /// What an answer or a fault says about the provider, for breaker, rate and pause. Where the
    /// keeper answers, it hears by the report and all instances obey its mirror.
    pub(super) fn heard(
        &mut self,
        place: usize,
        outcome: &Outcome,
        enforced: bool,
        started: Mono,
        now: Mono,
    ) {
        let uniform = self.random.random::<f64>();
        let scope = &mut self.scopes[place];
        if enforced && let Outcome::Throttled { pause, meter } = outcome {
            scope.pause(*pause, *meter, uniform, now);
        }
        if enforced {
            // By the time to the answer's head: how long the answer then is says nothing about load.
            let took = now.saturating_since(started);
            scope.permits.ended(took, outcome.crowding(), scope.in_flight, now);
        }
        if !scope.keeper_answers() {
            let was = scope.breaker.state(now);
            scope.hear(outcome, enforced, started, &self.settings, now);
            if was != State::Closed && scope.breaker.state(now) == State::Closed {
                scope.begin_ramp(1.0, &self.settings, now);
            }
            if !matches!(scope.breaker.state(now), State::HalfOpen { probe: Some(_) }) {
                self.reopenings[scope.provider].ended(place);
            }
        }
    }
}
