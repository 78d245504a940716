//! What the shell reports of an attempt: sent, answered, failed, read to its end, given up.

use std::borrow::Cow;
use std::time::Duration;

use rand::Rng;

use super::{Gate, Held, Phase, chain};
use crate::admission::counters::{Completion, Ending, Stage};
use crate::admission::events::{AttemptId, Head, RequestId};
use crate::admission::gate::Finish;
use crate::admission::identity::ChainEntry;
use crate::admission::retry::{Fate, backoff};
use crate::admission::scope::{DatedReading, Scope};
use crate::admission::shared::{Demand, Outcome};
use crate::dialect::{Class, Meter, MeterReading};
use crate::signal::Mono;

/// Longest pause of a scope that a hint can ask for: a skewed clock can ask for days.
const PAUSE_MAX: Duration = Duration::from_hours(1);

impl Gate {
    /// The head of an attempt's request is written to an open connection: it counts from now on.
    pub fn handle_sent(&mut self, attempt: AttemptId, now: Mono) {
        let now = self.clamp(now);
        let Some(request) = self.upstream(attempt) else { return };
        let Phase::Upstream { sent, started, .. } = &mut request.phase else { return };
        if *sent {
            return;
        }
        (*sent, *started) = (true, now);
        request.reached += 1;
        let (original, place, own_retry) = (request.original, request.scope, request.attempts > 1);
        let scope = &mut self.scopes[place];
        let original = &mut self.originals[original];
        let is_first = scope.attempted.count(original, now);
        scope.counters.attempted(is_first, original.attempts);
        scope.counters.gate_retries += u64::from(own_retry);
        original.log(chain("attempt", now));
    }

    /// The head of an answer has arrived. A success is delivered; report its end with
    /// [`Self::handle_end`]. A refusal or fault ends the attempt here.
    pub fn handle_head(&mut self, attempt: AttemptId, head: &Head, now: Mono) {
        let now = self.clamp(now);
        let uniform = self.random.random::<f64>();
        let Some(request) = self.upstream(attempt) else { return };
        let Phase::Upstream { started, held, .. } = request.phase else { return };
        let place = request.scope;
        let (original, enforced) = (request.original, request.enforced);
        let tries = request.attempts;
        let scope = &mut self.scopes[place];
        let ending = Ending::Status(head.status);
        scope.counters.results.add((head.class, ending));
        learn_meters(scope, &head.meters, now);
        let original = &mut self.originals[original];
        original.log(ChainEntry {
            status: Some(head.status),
            code: head.code.clone().map(Cow::Owned),
            hint: head.hint,
            ..chain("answer", now)
        });
        let asked = head.hint.filter(|_| head.class != Class::Success);
        original.not_before = now + asked.unwrap_or_default().min(PAUSE_MAX);
        let again = original.attempts > 1;
        let outcome = outcome_of(head, tries, uniform);
        self.heard(place, &outcome, enforced, started, now);
        if head.class == Class::Success {
            let scope = &mut self.scopes[place];
            scope.counters.retry_successes += u64::from(again || tries > 1);
            self.request_mut(attempt.request).phase = Phase::Streaming { started, held };
            // What it cost follows at its end; until then what was granted stands.
            let granted = estimated(held.filter(|held| held.receipt.is_some()));
            self.report(place, held, granted, outcome, &head.meters, now);
            return self.deliver(attempt.request, false);
        }
        let scope = &mut self.scopes[place];
        if matches!(head.status, 429 | 503) || head.class == Class::PermanentQuota {
            let meter = head.meter.map_or("none", Meter::word);
            scope.counters.refused(head.status, head.code.as_deref().unwrap_or("none"), meter);
            if let Some(hint) = head.hint {
                scope.counters.hints += 1;
                scope.counters.hints_sum_s += hint.as_secs_f64();
            }
        }
        // A refusal was not worked on; after any other fault nobody knows.
        let unprocessed = matches!(head.class, Class::TransientRateLimit | Class::PermanentQuota)
            || matches!(head.status, 503 | 529);
        let fate = if unprocessed { Fate::Unprocessed } else { Fate::Unknown };
        let charged = estimated(held.filter(|_| fate == Fate::Unknown));
        self.end_attempt(attempt.request, charged, outcome, &head.meters, now);
        let class = if head.forbids_retry { Class::BadRequest } else { head.class };
        self.retry_or_deliver(attempt.request, class, fate, head.hint, now);
    }

    /// The attempt ended without an answer. `Ending::Timeout` and `Ending::Transport` are the
    /// provider's fault.
    pub fn handle_failed(&mut self, attempt: AttemptId, ending: Ending, now: Mono) {
        let now = self.clamp(now);
        let Some(request) = self.upstream(attempt) else { return };
        let Phase::Upstream { started, held, sent } = request.phase else { return };
        let (place, enforced) = (request.scope, request.enforced);
        let scope = &mut self.scopes[place];
        scope.counters.unreachable += u64::from(!sent);
        if sent {
            let class = match ending {
                Ending::Deadline => Class::DeadlineExpired,
                _ => Class::TemporaryOverload,
            };
            scope.counters.results.add((class, ending));
        }
        let is_slow = self.scopes[place].is_slow(now.saturating_since(started), now);
        let outcome = match ending {
            // The caller's impatience says nothing about the provider.
            Ending::Deadline if !is_slow => Outcome::Neither,
            Ending::Deadline | Ending::Timeout => Outcome::Fault { overload: sent },
            _ => Outcome::Fault { overload: false },
        };
        self.heard(place, &outcome, enforced, started, now);
        // A request that was sent and never answered was probably worked on, and is charged.
        self.end_attempt(attempt.request, estimated(held.filter(|_| sent)), outcome, &[], now);
        let fate = if sent { Fate::Unknown } else { Fate::Unprocessed };
        self.retry_or_deliver(attempt.request, Class::TemporaryOverload, fate, None, now);
    }

    /// A delivered success has been read to its end. `used` is what its `usage` says.
    pub fn handle_end(&mut self, request: RequestId, used: Option<Demand>, now: Mono) {
        let now = self.clamp(now);
        let Some(known) = self.requests.get(request) else { return };
        let place = known.scope;
        match known.phase {
            Phase::Streaming { held, .. } => {
                let scope = &mut self.scopes[place];
                if let Some(used) = used {
                    scope.estimator.learn(&known.terms.guess, &used);
                    scope.counters.tokens_actual += used.tokens();
                    scope.counters.tenant(known.tenant, &mut self.tenants).tokens += used.tokens();
                }
                let charged = used
                    .map(|used| scope.estimator.charge(&known.terms.guess, &used))
                    .or(estimated(held));
                scope.counters.completed.add(Completion::Success);
                let original = &mut self.originals[known.original];
                let was_served = std::mem::replace(&mut original.served, true);
                scope.counters.originals_served += u64::from(!was_served);
                let tokens = used.map(|used| used.tokens());
                original.log(ChainEntry { tokens, ..chain("served", now) });
                self.end_attempt(request, charged, Outcome::Neither, &[], now);
                self.finish(request, Finish::Served, now);
                self.pump(place, now);
            }
            Phase::Answered => self.finish(request, Finish::Refused, now),
            _ => {}
        }
    }

    /// A delivered success broke off at the provider's side.
    pub fn handle_broken(&mut self, request: RequestId, now: Mono) {
        let now = self.clamp(now);
        let Some(known) = self.requests.get(request) else { return };
        let (place, original, enforced) = (known.scope, known.original, known.enforced);
        let tenant = known.tenant;
        let Phase::Streaming { started, held } = known.phase else {
            return self.handle_end(request, None, now);
        };
        let outcome = Outcome::Fault { overload: false };
        self.heard(place, &outcome, enforced, started, now);
        let scope = &mut self.scopes[place];
        scope.counters.completed.add(Completion::Error);
        scope.counters.tenant(tenant, &mut self.tenants).failed += 1;
        self.originals[original].log(chain("broken", now));
        // What it cost is not known; the estimate stands.
        self.end_attempt(request, estimated(held), outcome, &[], now);
        self.finish(request, Finish::Refused, now);
        self.pump(place, now);
    }

    /// The caller has gone. Everything that the request held is free again.
    pub fn handle_cancel(&mut self, request: RequestId, now: Mono) {
        let now = self.clamp(now);
        let Some(known) = self.requests.get(request) else { return };
        let (place, phase, enforced) = (known.scope, known.phase, known.enforced);
        let stage = match phase {
            Phase::Answered => return self.finish(request, Finish::Refused, now),
            Phase::Queued => {
                self.scopes[place].queue.remove(request);
                Stage::Queue
            }
            // Its answer finds nobody and is given back.
            Phase::Claiming => Stage::Queue,
            Phase::Backoff { until } => {
                self.backoffs.remove(&(until, request));
                Stage::Backoff
            }
            Phase::Upstream { started, sent, held } => {
                self.heard(place, &Outcome::Neither, enforced, started, now);
                let scope = &mut self.scopes[place];
                if sent {
                    let key = (Class::Cancelled, Ending::Cancelled);
                    scope.counters.results.add(key);
                }
                let charged = estimated(held.filter(|_| sent));
                self.end_attempt(request, charged, Outcome::Neither, &[], now);
                Stage::Upstream
            }
            Phase::Streaming { held, .. } => {
                self.end_attempt(request, estimated(held), Outcome::Neither, &[], now);
                Stage::Upstream
            }
        };
        self.scopes[place].counters.cancelled.add(stage);
        self.finish(request, Finish::Gone, now);
        self.pump(place, now);
    }
}

/// What an answer says about the provider.
fn outcome_of(head: &Head, tries: u32, uniform: f64) -> Outcome {
    match head.class {
        Class::Success => Outcome::Good,
        Class::TransientRateLimit => {
            let unhinted = || match head.meter {
                // How many calls are open is the permits' matter.
                Some(Meter::Concurrency) => Duration::ZERO,
                _ => backoff(tries, None, uniform).unwrap_or_default(),
            };
            let pause = head.hint.unwrap_or_else(unhinted).min(PAUSE_MAX);
            Outcome::Throttled { pause, meter: head.meter }
        }
        // "Slow Down": too fast a rise of the rate, whatever its status.
        Class::TemporaryOverload if head.code.as_deref() == Some("slow_down") => {
            let pause = head.hint.unwrap_or_default().min(PAUSE_MAX);
            Outcome::Throttled { pause, meter: None }
        }
        Class::TemporaryOverload => {
            Outcome::Fault { overload: matches!(head.status, 429 | 503 | 529) }
        }
        Class::PermanentQuota => Outcome::Exhausted,
        _ => Outcome::Neither,
    }
}

fn learn_meters(scope: &mut Scope, meters: &[MeterReading], now: Mono) {
    scope.budget.believe(meters, now);
    for reading in meters {
        let dated = DatedReading { reading: *reading, at: now };
        scope.readings.insert(reading.meter, dated);
    }
}

/// What an attempt cost that ended without its bill: what was reserved.
fn estimated(held: Option<Held>) -> Option<Demand> {
    held.map(|held| held.reservation.demand)
}
