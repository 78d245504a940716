//! Asks the keeper of a scope's shared state before an attempt starts, and tells it how attempts end.
//!
//! While the keeper is silent the gate decides within a local share, lane by lane as configured, and
//! asks again once a second. Nobody waits for a silent keeper: the shell answers for it in time.

use std::time::Duration;

use rand::Rng;

use super::{Gate, Held, Phase};
use crate::admission::breaker::State;
use crate::admission::budget::Reservation;
use crate::admission::config::WithoutStore;
use crate::admission::events::{AttemptId, Effect, RequestId, ScopeId};
use crate::admission::keeping::{Keeping, PROBE_EVERY};
use crate::admission::queue::{Lane, Ticket};
use crate::admission::refusal::Reason;
use crate::admission::settings::{Mode, RetryOwner};
use crate::admission::shared::{Claim, Demand, Mirror, Outcome, Receipt, Report, Verdict};
use crate::dialect::MeterReading;
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
        if !scope.keeper_answers() {
            return None;
        }
        // Open calls are told as a number, so where they are limited one claim goes at a time.
        let claims_max = if scope.config.concurrency.is_some() { 1 } else { u32::MAX };
        let keeping = scope.keeping.as_mut()?;
        if let Err(wake) = keeping.may_ask(next.lane, claims_max, now) {
            return Some(Err(wake));
        }
        keeping.ask();
        let claim = Claim {
            demand,
            limits: scope.limits(&self.settings),
            in_flight: scope.in_flight,
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
        let id = attempt.request;
        if let Some(keeping) = self.scopes.get_mut(scope.0).and_then(|one| one.keeping.as_mut()) {
            keeping.back();
        }
        let waits = self.requests.get(id).is_some_and(|request| {
            matches!(request.phase, Phase::Claiming) && request.attempts + 1 == attempt.number
        });
        let (verdict, mirror) = answer.unzip();
        match verdict {
            Some(Verdict::Granted(receipt)) => {
                let started = waits && self.start_granted(id, demand, receipt, now);
                if !started {
                    let reservation = Reservation { demand, at: now };
                    let held = Held { reservation, receipt: Some(receipt) };
                    self.report(scope.0, Some(held), None, Outcome::Neither, &[], now);
                }
            }
            Some(Verdict::Wait { at_least, why }) if waits => {
                let lane = self.requests[id].terms.lane;
                if let Some(keeping) = &mut self.scopes[scope.0].keeping {
                    keeping.wait(lane, at_least, why, now);
                }
                self.wait_on(id, now);
            }
            None if waits => self.wait_on(id, now),
            Some(Verdict::Wait { .. }) | None => {}
        }
        self.handle_mirror(scope, mirror, now);
    }

    /// Starts a request whose claim was granted, unless it is too late for it: then false.
    fn start_granted(
        &mut self,
        id: RequestId,
        demand: Demand,
        receipt: Receipt,
        now: Mono,
    ) -> bool {
        let ticket = self.ticket_of(id, now);
        let place = self.requests[id].scope;
        if self.draining || ticket.deadline <= now {
            self.wait_on(id, now);
            return false;
        }
        let held = self.hold(&ticket, demand, Some(receipt), place, now);
        if let Some(keeping) = &mut self.scopes[place].keeping {
            keeping.granted(demand.tokens(), now);
        }
        self.start(id, Some(held), now);
        true
    }

    /// A request whose claim has brought nothing: back to its place, unless waiting is over.
    fn wait_on(&mut self, id: RequestId, now: Mono) {
        if self.draining {
            let refusal = Reason::Draining.refusal(Some(Duration::from_secs(1)), true);
            self.refuse(id, refusal, now);
        } else if self.settings.mode == Mode::Off {
            self.start(id, None, now);
        } else {
            self.back_to_queue(id, now);
        }
    }

    /// The keeper's answer to a report or to a claim; `None` when there is none in time.
    pub fn handle_mirror(&mut self, scope: ScopeId, mirror: Option<Mirror>, now: Mono) {
        let now = self.clamp(now);
        let uniform = self.random.random::<f64>();
        let place = scope.0;
        let Some(known) = self.scopes.get_mut(place) else { return };
        let Some(keeping) = known.keeping.as_mut() else { return };
        if let Some(mirror) = mirror {
            let was_silent = keeping.heard();
            known.reflect(mirror, uniform, &self.settings, now);
            if was_silent {
                self.tell_untold(place, now);
            }
        } else if keeping.unheard(now) {
            let is_short = keeping.is_short();
            known.set_rates(&self.settings, now);
            if is_short {
                // The others have used what this instance saved up: its share begins with nothing.
                known.budget.hold(now, now);
            }
        } else if keeping.is_gone(now) {
            self.refuse_closed_lanes(place, now);
        }
        self.pump(place, now);
    }

    /// Tells the keeper how an attempt ended, and what its answer's headers said.
    pub(super) fn report(
        &mut self,
        place: usize,
        held: Option<Held>,
        charged: Option<Demand>,
        outcome: Outcome,
        meters: &[MeterReading],
        now: Mono,
    ) {
        let Some(held) = held else { return };
        let scope = &mut self.scopes[place];
        if scope.keeper_answers() {
            let readings = scope.readings_of_ours(meters);
            return self.send_report(place, held, charged, outcome, readings, now);
        }
        // What was granted is charged there already.
        let unknown = charged.filter(|_| held.receipt.is_none());
        if let (Some(keeping), Some(charged)) = (&mut scope.keeping, unknown) {
            keeping.used_without(charged, now);
        }
    }

    /// A keeper that answers again is told what was used without it of late.
    fn tell_untold(&mut self, place: usize, now: Mono) {
        let scope = &mut self.scopes[place];
        scope.set_rates(&self.settings, now);
        let since = now - scope.config.burst;
        let untold = scope.keeping.as_mut().map(|keeping| keeping.take_untold(since));
        for charged in untold.into_iter().flatten() {
            let reservation = Reservation { demand: Demand::default(), at: now };
            let held = Held { reservation, receipt: None };
            self.send_report(place, held, Some(charged), Outcome::Neither, Vec::new(), now);
        }
    }

    fn send_report(
        &mut self,
        place: usize,
        held: Held,
        charged: Option<Demand>,
        outcome: Outcome,
        readings: Vec<MeterReading>,
        now: Mono,
    ) {
        let scope = &mut self.scopes[place];
        scope.reported_at = now;
        // What is asked for may have been granted by now.
        let asked = scope.keeping.as_ref().map_or(0, Keeping::asked);
        let report = Report {
            receipt: held.receipt,
            reserved: held.reservation.demand,
            charged,
            outcome,
            readings,
            limits: scope.limits(&self.settings),
            in_flight: scope.in_flight + asked,
            rules: scope.rules(&self.settings),
        };
        let scope = ScopeId(place);
        self.effects.push_back(Effect::Report { scope, report: Box::new(report) });
    }

    /// An instance whose calls are long must not seem dead, and a silent keeper is asked now and then
    /// whether it is there: both by a report that moves nothing.
    pub(super) fn greet_keeper(&mut self, place: usize, now: Mono) {
        let scope = &mut self.scopes[place];
        let is_due = scope.lease_due().is_some_and(|due| due <= now);
        let probes = scope.keeping.as_mut().filter(|keeping| keeping.probe_is_due(now));
        if let Some(keeping) = probes {
            keeping.probe();
        } else if !is_due {
            return;
        }
        let reservation = Reservation { demand: Demand::default(), at: now };
        let held = Held { reservation, receipt: None };
        self.send_report(place, held, None, Outcome::Neither, Vec::new(), now);
    }

    /// The ticket with which a request waits again: its place, and the time that is left.
    pub(super) fn ticket_of(&self, id: RequestId, now: Mono) -> Ticket {
        let request = &self.requests[id];
        let scope = &self.scopes[request.scope];
        Ticket {
            request: id,
            lane: request.terms.lane,
            backfill: request.terms.backfill,
            tenant: request.tenant,
            weight: request.terms.weight,
            arrived: request.arrived,
            deadline: scope.start_by(
                request.terms.deadline,
                request.waited(now),
                &self.settings,
                now,
            ),
            tokens: scope.estimator.reserve(&request.terms.guess).tokens(),
        }
    }

    /// Back to the head of its tenant's line.
    pub(super) fn back_to_queue(&mut self, id: RequestId, now: Mono) {
        let ticket = self.ticket_of(id, now);
        let request = self.request_mut(id);
        request.phase = Phase::Queued;
        let place = request.scope;
        self.scopes[place].queue.push_front(ticket);
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
                let forbid = self.settings.retry_owner == RetryOwner::Gateway;
                let refusal = Reason::StoreLost.refusal(Some(PROBE_EVERY), forbid);
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
        if *outcome != Outcome::Neither {
            // By the time to the answer's head: how long the answer then is says nothing about load.
            let took = now.saturating_since(started);
            let crowding = outcome.crowding();
            if enforced {
                scope.permits.ended(took, crowding, scope.in_flight, now);
            } else {
                scope.permits.passed_by(crowding, now);
            }
        }
        if *outcome == Outcome::Good && scope.breaker.is_parked_since(started, now) {
            let obeyed = self.settings.breaker && self.settings.mode == Mode::Enforce;
            scope.counters.served_while_open += u64::from(obeyed);
        }
        if !scope.keeper_answers() {
            scope.hear(outcome, enforced, started, &self.settings, now);
            if !matches!(scope.breaker.state(now), State::HalfOpen { probe: Some(_) }) {
                self.reopenings[scope.provider].ended(place);
            }
        }
    }
}
