//! One call's way over real sockets: begun, sent, answered, repeated, left, ended.
//!
//! The tally is told the same things at the same moments as by the virtual world. What is dropped half
//! way, because its person has left, takes itself out of the gauges.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{sleep, sleep_until, timeout};

use super::Clients;
use super::wire::{Original, exchange, model_of};
use crate::drill::budget::Reservation;
use crate::signal::Mono;
use crate::sim::app::Pending;
use crate::sim::app::tally::{Course, Tally, Told};
use crate::sim::arrivals::Arrival;
use crate::sim::callers::Waits;
use crate::sim::layers::{Input, Journey, Place, Stack, Step};

/// How long a request may take whose client would wait for ever: as long as the OpenAI SDK waits.
const REQUEST_TIMEOUT_MAX: Duration = Duration::from_mins(10);

/// What a call is begun with.
#[derive(Clone, Copy)]
pub(super) struct Opening {
    pub(super) caller: usize,
    pub(super) arrival: Arrival,
    pub(super) round: u32,
    pub(super) is_last: bool,
    /// How long the stages before it take.
    pub(super) delay: Duration,
    pub(super) pending: Option<Pending>,
}

/// A call that has not ended.
struct Open<'a> {
    clients: &'a Clients,
    scope: usize,
    layers: &'a Stack,
    told: Told,
    original: Original,
    course: Mutex<Course>,
}

/// Takes one call to its end; whether its person got an answer.
pub(super) async fn make(clients: &Clients, opening: Opening) -> bool {
    let Opening { caller, arrival, round, is_last, delay, pending } = opening;
    let config = &clients.callers[caller];
    let patience = config.patience();
    let layers = config.stack.as_ref().unwrap_or(&clients.config.scenario.layers);
    let scope = clients.scope_of(config);
    let now = clients.now();
    let (index, told, waits) = {
        let mut counts = clients.counts();
        let index = counts.next;
        counts.next += 1;
        let told = Told {
            kind: config.kind,
            source: (caller, arrival.tenant),
            lane: arrival.lane,
            tokens: arrival.tokens + arrival.output,
            fingerprint: if arrival.poisoned { u128::MAX } else { u128::from(index) },
            round,
            is_last,
        };
        counts.tallies[scope].began(&told);
        (index, told, counts.people.waits(&patience, now))
    };
    let open = Open {
        clients,
        scope,
        layers,
        told,
        original: Original::new(clients, caller, &arrival, index, waits.deadline),
        course: Mutex::new(Course::new(now)),
    };
    let journey = Journey::new(layers, clients.config.seed, index);
    let started = now + delay;
    let served = open.until_answered_or_left(journey, delay, waits, patience.noticed).await;
    let ended = clients.now();
    let mut counts = clients.counts();
    counts.tallies[scope].ended(&told, &open.course(), served, ended);
    if let Some(pending) = pending {
        counts.app.answered(pending, served, ended.saturating_since(started), ended);
    }
    served
}

impl Open<'_> {
    fn course(&self) -> Course {
        *self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_course(&self, change: impl FnOnce(&mut Course)) {
        change(&mut self.course.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Tells the tally of the call's scope something.
    fn tell<T>(&self, what: impl FnOnce(&mut Tally, Mono) -> T) -> T {
        self.tell_of(self.scope, what)
    }

    /// Tells the tally of a scope something.
    fn tell_of<T>(&self, scope: usize, what: impl FnOnce(&mut Tally, Mono) -> T) -> T {
        let now = self.clients.now();
        what(&mut self.clients.counts().tallies[scope], now)
    }

    /// The walk to its end, unless its person leaves and the layers notice.
    async fn until_answered_or_left(
        &self,
        journey: Journey,
        delay: Duration,
        waits: Waits,
        noticed: bool,
    ) -> bool {
        let walk = self.walk(journey, delay);
        let Some(leaves_at) = waits.leaves_at else { return walk.await };
        tokio::pin!(walk);
        tokio::select! {
            served = &mut walk => return served,
            () = sleep_until(self.clients.instant(leaves_at)) => {}
        }
        self.tell(|tally, _| tally.left());
        self.on_course(|course| course.is_orphan = true);
        let is_over = waits.deadline.is_some_and(|deadline| deadline <= self.clients.now());
        if noticed || is_over { false } else { walk.await }
    }

    async fn walk(&self, mut journey: Journey, delay: Duration) -> bool {
        if !delay.is_zero() && !self.rest(delay).await {
            return false;
        }
        let mut step = journey.next(Input::Start, self.clients.now());
        loop {
            let input = match step {
                Step::Send(place) => match self.send(place).await {
                    Some(input) => input,
                    None => return false,
                },
                Step::Wait(_) if self.clients.stop.is_cancelled() => return false,
                Step::Wait(wait) => {
                    self.tell(|tally, _| tally.waits(wait));
                    let _waiting = Waiting(self);
                    if !self.rest(wait).await {
                        return false;
                    }
                    Input::TimerDone
                }
                Step::Served => return true,
                Step::Failed => return false,
            };
            step = journey.next(input, self.clients.now());
        }
    }

    /// `None` when the request did not fit into the budget any more and was not sent.
    async fn send(&self, place: Place) -> Option<Input> {
        let to = place.scope.and_then(|to| self.clients.scope_named(&self.layers.scopes()[to]));
        let model = to.map(|scope| model_of(scope, &self.clients.scopes[scope]));
        let asked = to.unwrap_or(self.scope);
        let reservation = self.permit(place, asked)?;
        let in_flight = InFlight { open: self, asked, is_answered: false };
        let (target, now) = (self.clients.next_target(), self.clients.now());
        let request = self.original.request(target, place.mark, model.as_deref(), now);
        let patience = self.layers.request_timeout().unwrap_or(REQUEST_TIMEOUT_MAX);
        let answer =
            timeout(patience.min(REQUEST_TIMEOUT_MAX), exchange(&self.clients.http, request));
        let (input, status, tries) = match answer.await {
            Ok(Some((seen, tries))) => (Input::Answer(seen), seen.status, tries),
            Ok(None) => (Input::TransportError, 0, None),
            Err(_) => (Input::TimedOut, 0, None),
        };
        in_flight.answered(status);
        self.clients.counts().budget.settle(reservation, tries);
        Some(input)
    }

    /// `to`: the scope that is asked.
    fn permit(&self, place: Place, to: usize) -> Option<Reservation> {
        let now = self.clients.now();
        let mut is_retry = false;
        self.on_course(|course| {
            is_retry = course.first_failure.is_some();
            course.retried |= is_retry;
            course.walk.sent(to, now);
        });
        let mut counts = self.clients.counts();
        let Some(reservation) = counts.budget.reserve(self.original.tokens) else {
            self.clients.stop.cancel();
            return None;
        };
        counts.tallies[self.scope].called(&self.told, &place);
        counts.tallies[to].sent(&self.told, is_retry, now);
        Some(reservation)
    }

    /// Whether the wait ended before the callers were stopped.
    async fn rest(&self, wait: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.clients.stop.cancelled() => false,
            () = sleep(wait) => true,
        }
    }
}

/// A request under way; dropped without an answer, its caller has hung up.
struct InFlight<'a> {
    open: &'a Open<'a>,
    /// The scope that it went to.
    asked: usize,
    is_answered: bool,
}

impl InFlight<'_> {
    fn answered(mut self, status: u16) {
        self.is_answered = true;
        let open = self.open;
        open.tell_of(self.asked, |tally, now| tally.answered(&open.told, status, now));
        if !(1..400).contains(&status) {
            let now = open.clients.now();
            open.on_course(|course| {
                course.first_failure.get_or_insert(now);
            });
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.open.tell_of(self.asked, |tally, _| tally.hung_up());
        }
    }
}

/// A wait under way.
struct Waiting<'a>(&'a Open<'a>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.tell(|tally, _| tally.waited());
    }
}
