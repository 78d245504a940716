//! One call's way through the world: begun, sent, answered, repeated, left, ended.

use std::time::Duration;

use rand::Rng;

use crate::signal::{Mono, Tokens};
use crate::sim::app::Pending;
use crate::sim::app::tally::{Course, Tally, Told};
use crate::sim::arrivals::Arrival;
use crate::sim::layers::{AnswerSeen, Input, Journey, Step};
use crate::sim::provider::{Call, CallKind};

use super::agenda::Event;
use super::{Answering, GateModel, OfferedRequest, World};

/// How late a client's retry reaches the provider in a live drill, at least: a hop through loopback
/// sockets. In a storm it matters who comes first after a refill, so a clock without any lateness would
/// not repeat what sockets do; with these two, virtual and live attempts differ by 1%.
const TIMER_LATE_MIN: Duration = Duration::from_micros(500);
/// Up to this much more, uniformly: timers tick in milliseconds, and so do the waits of `epoll`.
const TIMER_LATE_SPREAD: Duration = Duration::from_millis(2);
/// What the provider says to a call that can never succeed.
const POISONED_STATUS: u16 = 400;

/// A call that has not ended.
pub(super) struct Original {
    journey: Journey,
    arrival: Arrival,
    /// The scope that it is for, and the one that was asked last.
    scope: usize,
    asked: usize,
    backfill: bool,
    told: Told,
    course: Course,
    attempted: bool,
    deadline: Option<Mono>,
    /// The request that waits for its answer.
    request: Option<u64>,
    /// What the application waits for.
    pending: Option<Pending>,
    /// When the stages before it were through.
    started: Mono,
    /// It waits for its next try.
    waiting: bool,
    /// The task that it belongs to, if that has more than one call.
    pub(super) task: Option<u64>,
}

/// What a call is begun with.
#[derive(Clone, Copy)]
pub(super) struct Opening {
    pub(super) caller: usize,
    pub(super) arrival: Arrival,
    pub(super) round: u32,
    pub(super) is_last: bool,
    pub(super) task: Option<u64>,
    /// How long the stages before it take.
    pub(super) delay: Duration,
    pub(super) pending: Option<Pending>,
}

impl<G: GateModel> World<G> {
    /// Begins a call.
    pub(super) fn open(&mut self, opening: &Opening) {
        let Opening { caller, arrival, round, is_last, task, delay, pending } = *opening;
        let index = self.originals.next();
        let caller = &self.callers[caller];
        let told = Told {
            kind: caller.config.kind,
            source: (opening.caller, arrival.tenant),
            lane: arrival.lane,
            tokens: arrival.tokens + arrival.output,
            // What cannot succeed fails for the same reason, whichever call it is.
            fingerprint: if arrival.poisoned { u128::MAX } else { u128::from(index) },
            round,
            is_last,
        };
        let scope = caller.scope;
        let mut original = Original {
            journey: Journey::new(&caller.layers, self.seed, index),
            arrival,
            scope,
            asked: scope,
            backfill: caller.config.backfill,
            told,
            course: Course::new(self.now),
            attempted: false,
            deadline: None,
            request: None,
            pending,
            started: self.now + delay,
            waiting: false,
            task,
        };
        let waits = self.people.waits(&caller.patience, self.now);
        original.deadline = waits.deadline;
        if let Some(at) = waits.leaves_at {
            self.agenda.schedule(at, Event::Leave { original: index });
        }
        self.originals.push(original);
        self.tallies[scope].began(&told);
        if delay.is_zero() {
            self.advance(index, Input::Start);
        } else {
            self.agenda.schedule(self.now + delay, Event::Start { original: index });
        }
    }

    /// The person behind an original stops waiting; the layers below notice, or go on for nobody.
    pub(super) fn leave(&mut self, index: u64) {
        let Some(original) = self.originals.get_mut(index) else { return };
        original.course.is_orphan = true;
        self.tallies[original.scope].left();
        let is_over = original.deadline.is_some_and(|deadline| deadline <= self.now);
        if !self.callers[original.told.source.0].patience.noticed && !is_over {
            return;
        }
        if let Some(request) = original.request.take() {
            self.tallies[original.asked].hung_up();
            self.requests.remove(request);
            self.gate.handle_cancel(request, self.now);
        }
        self.end(index, false);
    }

    pub(super) fn advance_from_start(&mut self, index: u64) {
        self.advance(index, Input::Start);
    }

    pub(super) fn timer_done(&mut self, index: u64) {
        if let Some(original) = self.originals.get_mut(index) {
            original.waiting = false;
            self.tallies[original.scope].waited();
        }
        self.advance(index, Input::TimerDone);
    }

    pub(super) fn answered(&mut self, index: u64, answer: AnswerSeen) {
        if let Some(original) = self.originals.get_mut(index) {
            original.request = None;
            self.tallies[original.asked].answered(&original.told, answer.status, self.now);
            if answer.status >= 400 {
                original.course.first_failure.get_or_insert(self.now);
            }
        }
        self.advance(index, Input::Answer(answer));
    }

    /// Moves one original's journey on.
    fn advance(&mut self, index: u64, input: Input) {
        let Some(original) = self.originals.get_mut(index) else { return };
        match original.journey.next(input, self.now) {
            Step::Send(place) => {
                let is_retry = original.course.first_failure.is_some();
                original.course.retried |= is_retry;
                let caller = &self.callers[original.told.source.0];
                original.asked = place.scope.map_or(original.scope, |to| caller.fallbacks[to]);
                let is_first = original.course.walk.distinct() == 0;
                original.course.walk.sent(original.asked, self.now);
                self.tallies[original.scope].called(&original.told, &place);
                self.tallies[original.asked].sent(&original.told, is_retry, self.now);
                let id = self.requests.push(index);
                original.request = Some(id);
                if let Some(patience) = caller.layers.request_timeout() {
                    self.agenda.schedule(self.now + patience, Event::GiveUp { request: id });
                }
                let Arrival { tokens, output, lane, tenant, .. } = original.arrival;
                let request = OfferedRequest {
                    id,
                    identity: u128::from(index),
                    scope: original.asked,
                    tokens,
                    output,
                    lane,
                    is_first,
                    backfill: original.backfill,
                    tenant: caller.tenants_before + tenant,
                    retry_count: place.retry_count(),
                    deadline: original.deadline,
                };
                self.gate.handle_request(&request, self.now);
            }
            // A client that is being stopped makes no further try.
            Step::Wait(_) if self.stopped => self.end(index, false),
            Step::Wait(wait) => {
                original.waiting = true;
                self.tallies[original.scope].waits(wait);
                let late = self.timer_lateness();
                self.agenda.schedule(self.now + wait + late, Event::Timer { original: index });
            }
            Step::Served => self.end(index, true),
            Step::Failed => self.end(index, false),
        }
    }

    /// A client stops waiting for the answer to a request, if it still does.
    pub(super) fn give_up(&mut self, request: u64) {
        let Some(index) = self.requests.remove(request) else { return };
        self.gate.handle_cancel(request, self.now);
        if let Some(original) = self.originals.get_mut(index) {
            original.request = None;
            original.course.first_failure.get_or_insert(self.now);
            self.tallies[original.asked].answered(&original.told, 0, self.now);
        }
        self.advance(index, Input::TimedOut);
    }

    fn timer_lateness(&mut self) -> Duration {
        TIMER_LATE_MIN + TIMER_LATE_SPREAD.mul_f64(self.timers.random::<f64>())
    }

    pub(super) fn end(&mut self, index: u64, served: bool) {
        let Some(original) = self.originals.remove(index) else { return };
        let tally: &mut Tally = &mut self.tallies[original.scope];
        if original.waiting {
            tally.waited();
        }
        tally.ended(&original.told, &original.course, served, self.now);
        if let Some(pending) = original.pending {
            let took = self.now.saturating_since(original.started);
            self.app.answered(pending, served, took, self.now);
        }
        if let Some(task) = original.task {
            self.call_ended(task, &original.arrival, original.told.round, served);
        }
    }

    /// An attempt reaches the provider.
    pub(super) fn attempt(&mut self, attempt: u64, identity: u128) {
        let original = u64::try_from(identity).ok();
        let Some(original) = original.and_then(|index| self.originals.get_mut(index)) else {
            panic!("the gate makes an attempt for original {identity}, whose caller has gone");
        };
        self.attempted += u64::from(!original.attempted);
        original.attempted = true;
        let Arrival { tokens, output, poisoned, .. } = original.arrival;
        let kind =
            if output == Tokens(0) { CallKind::Embeddings } else { CallKind::ChatCompletions };
        let scope = original.asked;
        let provider = &mut self.providers[scope];
        let reply = if poisoned {
            provider.reject(identity, kind, POISONED_STATUS, self.now)
        } else {
            let call = Call::new(identity, tokens + output, kind);
            provider.handle_request(&call, self.now)
        };
        let at = self.now + reply.latency;
        let slot = self.answers.put(Answering { attempt, scope, reply, is_over: false });
        self.agenda.schedule(at, Event::Reply { slot });
    }
}
