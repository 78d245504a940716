//! Clients, a gate and a provider on one virtual clock: the drill without sockets.
//!
//! Events lie in a heap keyed by instant and by order of creation, so two events of one instant always
//! come in the same order and a run repeats bit for bit. The gate is whatever implements [`GateModel`];
//! [`PassThrough`] is the gate that is switched off. The network takes no time, but clients' timers fire a little late.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use rand::Rng;
use rand_pcg::Pcg64;

use crate::dialect::MeterReading;
use crate::signal::{Mono, Tokens};
use crate::sim::arrivals::{Arrival, Arrivals, ArrivalsConfig};
use crate::sim::config::ProviderConfig;
use crate::sim::layers::{Input, Journey, LayerCalls, Stack, Step};
use crate::sim::provider::{Call, CallKind, Provider, Reply};
use crate::sim::rng;

pub use crate::sim::model::{GateEffect, GateModel, OfferedRequest, PassThrough};

/// Most effects that a gate may have after one event; more is a gate that spins.
const EFFECTS_MAX: usize = 100_000;

/// How late a client's retry reaches the provider in a live drill, at least: a hop through loopback
/// sockets. In a storm it matters who comes first after a refill, so a clock without any lateness would
/// not repeat what sockets do; with these two, virtual and live attempts differ by 1%.
const TIMER_LATE_MIN: Duration = Duration::from_micros(500);
/// Up to this much more, uniformly: timers tick in milliseconds, and so do the waits of `epoll`.
const TIMER_LATE_SPREAD: Duration = Duration::from_millis(2);

/// What a world is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct WorldConfig {
    /// The provider.
    pub provider: ProviderConfig,
    /// The traffic.
    pub arrivals: ArrivalsConfig,
    /// The layers above the gate.
    pub layers: Stack,
    /// How long the people behind the originals wait.
    pub patience: Patience,
    /// The seed of everything random.
    pub seed: u64,
}

/// How long the people behind the originals wait. By default they all wait for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Patience {
    /// Every original has a deadline, which the gate is told: this long after its arrival, or up to
    /// twice as long.
    pub deadline: Option<Duration>,
    /// Share of the originals whose person leaves without a word.
    pub leaving_ratio: f64,
    /// They leave at any time up to this long after the arrival.
    pub leaves_within: Duration,
}

/// What happened since the start of the run, from the outside of the gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorldCounts {
    /// Originals that arrived.
    pub originals: u64,
    /// Originals that got their first attempt.
    pub originals_attempted: u64,
    /// Originals whose user got an answer.
    pub served: u64,
    /// Originals whose user did not.
    pub failed: u64,
    /// Of those, originals whose user left or had a deadline that came.
    pub left: u64,
    /// Requests that reached the gate.
    pub offered: u64,
    /// Requests that reached the provider.
    pub attempts: u64,
    /// Attempts that were answered with 429.
    pub provider_429: u64,
    /// Tokens that the provider charged.
    pub tokens: Tokens,
    /// Calls of each layer to the one below it.
    pub calls: LayerCalls,
}

struct Original {
    journey: Journey,
    arrival: Arrival,
    attempted: bool,
    deadline: Option<Mono>,
    /// The request that waits for its answer.
    request: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrival(Arrival),
    Timer {
        original: u64,
    },
    /// The person behind an original stops waiting.
    Leave {
        original: u64,
    },
    Reply {
        attempt: u64,
        reply: Reply,
    },
}

struct Scheduled {
    at: Mono,
    order: u64,
    event: Event,
}

impl Scheduled {
    const fn key(&self) -> (Mono, u64) {
        (self.at, self.order)
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// A run on the virtual clock. Call [`Self::run_until`] as far as the next thing that you want to do
/// (read counters, flip a flag through [`Self::gate_mut`], [`Self::stop`]), then go on.
pub struct World<G> {
    gate: G,
    provider: Provider,
    arrivals: Option<Arrivals>,
    layers: Stack,
    patience: Patience,
    seed: u64,
    timers: Pcg64,
    departures: Pcg64,
    now: Mono,
    events: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    /// Replies that are under way.
    replies: u64,
    originals: BTreeMap<u64, Original>,
    /// The original of each request that waits for its answer.
    requests: BTreeMap<u64, u64>,
    counts: WorldCounts,
}

impl<G: GateModel> World<G> {
    /// A world at the start of its clock, from checked configurations.
    #[must_use]
    pub fn new(config: &WorldConfig, gate: G) -> Self {
        let mut world = Self {
            gate,
            provider: Provider::new(&config.provider, config.seed, Mono::START),
            arrivals: Some(Arrivals::new(config.arrivals.clone(), config.seed)),
            layers: config.layers.clone(),
            patience: config.patience,
            seed: config.seed,
            timers: rng::seeded(config.seed, rng::Stream::Timers),
            departures: rng::seeded(config.seed, rng::Stream::Departures),
            now: Mono::START,
            events: BinaryHeap::new(),
            scheduled: 0,
            replies: 0,
            originals: BTreeMap::new(),
            requests: BTreeMap::new(),
            counts: WorldCounts::default(),
        };
        world.schedule_arrival();
        world
    }

    /// The virtual instant.
    #[must_use]
    pub const fn now(&self) -> Mono {
        self.now
    }

    /// The gate.
    #[must_use]
    pub const fn gate(&self) -> &G {
        &self.gate
    }

    /// The gate, to flip its flags. Effects that this has are carried out by the next `run_until`.
    pub const fn gate_mut(&mut self) -> &mut G {
        &mut self.gate
    }

    /// The provider.
    #[must_use]
    pub const fn provider(&self) -> &Provider {
        &self.provider
    }

    /// The provider's meters at this instant.
    pub fn meters(&mut self) -> [MeterReading; 2] {
        self.provider.meters(self.now)
    }

    /// What happened so far; phases are differences of two readings.
    #[must_use]
    pub fn counts(&self) -> WorldCounts {
        let ledger = self.provider.ledger();
        WorldCounts {
            attempts: ledger.attempts(),
            provider_429: ledger.answered(429),
            tokens: ledger.tokens(),
            ..self.counts
        }
    }

    /// Runs everything up to and including `until`.
    pub fn run_until(&mut self, until: Mono) {
        self.carry_out();
        while let Some(at) = self.next_instant().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.step();
        }
        self.now = self.now.max(until);
    }

    /// No new originals; those that wait for their next try fail now, requests in flight go on.
    pub fn stop(&mut self) {
        self.arrivals = None;
        let events = std::mem::take(&mut self.events).into_vec();
        for Reverse(scheduled) in events {
            match scheduled.event {
                Event::Arrival(_) => {}
                Event::Timer { original } => self.end(original, false),
                Event::Leave { .. } | Event::Reply { .. } => self.events.push(Reverse(scheduled)),
            }
        }
    }

    /// After [`Self::stop`]: runs until nothing is open, at most for `bound`. Whether it got there.
    pub fn drain(&mut self, bound: Duration) -> bool {
        let end = self.now + bound;
        self.carry_out();
        while let Some(at) = self.next_instant().filter(|at| *at <= end) {
            if self.is_idle() {
                break;
            }
            self.now = self.now.max(at);
            self.step();
        }
        self.is_idle()
    }

    /// Nothing is open, at the clients or at the provider.
    fn is_idle(&self) -> bool {
        self.originals.is_empty() && self.replies == 0
    }

    fn next_instant(&self) -> Option<Mono> {
        let event = self.events.peek().map(|Reverse(scheduled)| scheduled.at);
        let timeout = self.gate.poll_timeout();
        event.into_iter().chain(timeout).min()
    }

    /// Handles the earliest event, or the gate's timeout if that comes first.
    fn step(&mut self) {
        let event_is_due = self.events.peek().is_some_and(|Reverse(event)| event.at <= self.now);
        if event_is_due && let Some(Reverse(scheduled)) = self.events.pop() {
            self.handle(scheduled.event);
        } else {
            self.gate.handle_timeout(self.now);
            let again = self.gate.poll_timeout();
            assert!(again.is_none_or(|at| at > self.now), "the gate spins at {:?}", self.now);
        }
        self.carry_out();
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival(arrival) => {
                self.schedule_arrival();
                self.counts.originals += 1;
                let journey = Journey::new(&self.layers, self.seed, arrival.index);
                let deadline = self.patience(arrival.index);
                let original =
                    Original { journey, arrival, attempted: false, deadline, request: None };
                self.originals.insert(arrival.index, original);
                self.advance(arrival.index, Input::Start);
            }
            Event::Timer { original } => self.advance(original, Input::TimerDone),
            Event::Leave { original } => self.leave(original),
            Event::Reply { attempt, reply } => {
                self.replies -= 1;
                self.provider.finish(reply.call);
                self.gate.handle_reply(attempt, &reply, self.now);
            }
        }
    }

    /// Draws how long the person behind an original waits; the deadline that the gate is told.
    fn patience(&mut self, original: u64) -> Option<Mono> {
        let Patience { deadline, leaving_ratio, leaves_within } = self.patience;
        let deadline = deadline.map(|shortest| {
            self.now + shortest + shortest.mul_f64(self.departures.random::<f64>())
        });
        let leaves = (leaving_ratio > 0.0 && self.departures.random::<f64>() < leaving_ratio)
            .then(|| self.now + leaves_within.mul_f64(self.departures.random::<f64>()));
        if let Some(at) = deadline.into_iter().chain(leaves).min() {
            self.schedule(at, Event::Leave { original });
        }
        deadline
    }

    fn leave(&mut self, index: u64) {
        let Some(original) = self.originals.get(&index) else { return };
        if let Some(request) = original.request {
            self.requests.remove(&request);
            self.gate.handle_cancel(request, self.now);
        }
        self.counts.left += 1;
        self.end(index, false);
    }

    fn schedule_arrival(&mut self) {
        if let Some(arrival) = self.arrivals.as_mut().and_then(Iterator::next) {
            self.schedule(arrival.at, Event::Arrival(arrival));
        }
    }

    fn schedule(&mut self, at: Mono, event: Event) {
        self.events.push(Reverse(Scheduled { at, order: self.scheduled, event }));
        self.scheduled += 1;
    }

    /// Moves one original's journey on.
    fn advance(&mut self, index: u64, input: Input) {
        let Some(original) = self.originals.get_mut(&index) else { return };
        match original.journey.next(input, self.now) {
            Step::Send(place) => {
                let Arrival { tokens, lane, tenant, .. } = original.arrival;
                self.counts.calls.count(&place);
                let id = self.counts.offered;
                self.counts.offered += 1;
                self.requests.insert(id, index);
                let identity = u128::from(index);
                let (retry_count, deadline) = (place.retry_count(), original.deadline);
                original.request = Some(id);
                let request =
                    OfferedRequest { id, identity, tokens, lane, tenant, retry_count, deadline };
                self.gate.handle_request(&request, self.now);
            }
            // A client that is being stopped makes no further try.
            Step::Wait(_) if self.arrivals.is_none() => self.end(index, false),
            Step::Wait(wait) => {
                let late = self.timer_lateness();
                self.schedule(self.now + wait + late, Event::Timer { original: index });
            }
            Step::Served => self.end(index, true),
            Step::Failed => self.end(index, false),
        }
    }

    fn timer_lateness(&mut self) -> Duration {
        TIMER_LATE_MIN + TIMER_LATE_SPREAD.mul_f64(self.timers.random::<f64>())
    }

    fn end(&mut self, index: u64, served: bool) {
        if self.originals.remove(&index).is_some() {
            self.counts.served += u64::from(served);
            self.counts.failed += u64::from(!served);
        }
    }

    /// Carries out what the gate wants until it wants nothing more.
    fn carry_out(&mut self) {
        for _ in 0..EFFECTS_MAX {
            match self.gate.poll_effect() {
                None => return,
                Some(GateEffect::Attempt { attempt, identity, tokens }) => {
                    self.attempt(attempt, identity, tokens);
                }
                Some(GateEffect::Answer { request, answer }) => {
                    let Some(index) = self.requests.remove(&request) else {
                        panic!("the gate answered request {request} that does not wait");
                    };
                    if let Some(original) = self.originals.get_mut(&index) {
                        original.request = None;
                    }
                    self.advance(index, Input::Answer(answer));
                }
            }
        }
        panic!("the gate spins: {EFFECTS_MAX} effects at {:?}", self.now);
    }

    fn attempt(&mut self, attempt: u64, identity: u128, tokens: Tokens) {
        let original =
            u64::try_from(identity).ok().and_then(|index| self.originals.get_mut(&index));
        if let Some(original) = original
            && !original.attempted
        {
            original.attempted = true;
            self.counts.originals_attempted += 1;
        }
        let call = Call { identity, tokens, kind: CallKind::Embeddings };
        let reply = self.provider.handle_request(&call, self.now);
        self.replies += 1;
        self.schedule(self.now + reply.latency, Event::Reply { attempt, reply });
    }
}

#[cfg(test)]
mod tests;
