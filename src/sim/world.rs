//! Clients, a gate and a provider on one virtual clock: the drill without sockets.
//!
//! Events lie in a heap keyed by instant and by order of creation, so two events of one instant always
//! come in the same order and a run repeats bit for bit. The gate is whatever implements [`GateModel`];
//! [`PassThrough`] is the gate that is switched off. The network takes no time, but clients' timers fire a little late.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use rand::Rng;
use rand_pcg::Pcg64;

use crate::dialect::MeterReading;
use crate::signal::{Mono, Tokens};
use crate::sim::arrivals::{Arrival, Arrivals, ArrivalsConfig, Lane};
use crate::sim::client::{AnswerSeen, Input, Journey, LayerCalls, LayersConfig, Step};
use crate::sim::config::ProviderConfig;
use crate::sim::provider::{Call, CallKind, Outcome, Provider, Reply};
use crate::sim::rng;

/// Most effects that a gate may have after one event; more is a gate that spins.
const EFFECTS_MAX: usize = 100_000;

/// How late a client's retry reaches the provider in a live drill, at least: a hop through loopback
/// sockets. In a storm it matters who comes first after a refill, so a clock without any lateness would
/// not repeat what sockets do; with these two, virtual and live attempts differ by 1%.
const TIMER_LATE_MIN: Duration = Duration::from_micros(500);
/// Up to this much more, uniformly: timers tick in milliseconds, and so do the waits of `epoll`.
const TIMER_LATE_SPREAD: Duration = Duration::from_millis(2);

/// A request that a client sent to the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferedRequest {
    /// Tells requests apart; every request gets exactly one answer.
    pub id: u64,
    /// The original.
    pub identity: u128,
    /// Its size.
    pub tokens: Tokens,
    /// Its lane.
    pub lane: Lane,
    /// Its tenant, as an index.
    pub tenant: usize,
    /// `x-stainless-retry-count`.
    pub retry_count: u32,
}

/// What a gate does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateEffect {
    /// Sends an attempt to the provider; its reply comes back under the same number.
    Attempt {
        /// Chosen by the gate, unique.
        attempt: u64,
        /// The original.
        identity: u128,
        /// Its size.
        tokens: Tokens,
    },
    /// Answers a request.
    Answer {
        /// `OfferedRequest::id`
        request: u64,
        /// What the client sees.
        answer: AnswerSeen,
    },
}

/// What stands between clients and provider.
pub trait GateModel {
    /// A request arrives.
    fn handle_request(&mut self, request: &OfferedRequest, now: Mono);
    /// The provider answered an attempt.
    fn handle_reply(&mut self, attempt: u64, reply: &Reply, now: Mono);
    /// A deadline may have passed; calling early is harmless.
    fn handle_timeout(&mut self, now: Mono);
    /// What to do; drained until `None` after every call above.
    fn poll_effect(&mut self) -> Option<GateEffect>;
    /// When `handle_timeout` is wanted next. After `handle_timeout(t)` it lies after `t`.
    fn poll_timeout(&self) -> Option<Mono>;
}

/// A gate that is switched off: one request, one attempt, one answer.
#[derive(Clone, Debug, Default)]
pub struct PassThrough {
    effects: VecDeque<GateEffect>,
}

impl GateModel for PassThrough {
    fn handle_request(&mut self, request: &OfferedRequest, _now: Mono) {
        let OfferedRequest { id, identity, tokens, .. } = *request;
        self.effects.push_back(GateEffect::Attempt { attempt: id, identity, tokens });
    }

    fn handle_reply(&mut self, attempt: u64, reply: &Reply, _now: Mono) {
        let answer = AnswerSeen::from(reply.outcome);
        self.effects.push_back(GateEffect::Answer { request: attempt, answer });
    }

    fn handle_timeout(&mut self, _now: Mono) {}

    fn poll_effect(&mut self) -> Option<GateEffect> {
        self.effects.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        None
    }
}

impl From<Outcome> for AnswerSeen {
    /// The provider's answer, passed on unchanged.
    fn from(outcome: Outcome) -> Self {
        Self {
            status: outcome.status(),
            should_retry: None,
            retry_after_ms: outcome.retry_after_ms(),
            retry_after_s: outcome.retry_after_s(),
        }
    }
}

/// What a world is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct WorldConfig {
    /// The provider.
    pub provider: ProviderConfig,
    /// The traffic.
    pub arrivals: ArrivalsConfig,
    /// The layers above the gate.
    pub layers: LayersConfig,
    /// The seed of everything random.
    pub seed: u64,
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
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrival(Arrival),
    Timer { original: u64 },
    Reply { attempt: u64, reply: Reply },
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
    layers: LayersConfig,
    seed: u64,
    timers: Pcg64,
    now: Mono,
    events: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
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
            layers: config.layers,
            seed: config.seed,
            timers: rng::seeded(config.seed, rng::Stream::Timers),
            now: Mono::START,
            events: BinaryHeap::new(),
            scheduled: 0,
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
                Event::Reply { .. } => self.events.push(Reverse(scheduled)),
            }
        }
    }

    /// After [`Self::stop`]: runs until nothing is open, at most for `bound`. Whether it got there.
    pub fn drain(&mut self, bound: Duration) -> bool {
        let end = self.now + bound;
        self.carry_out();
        while let Some(at) = self.next_instant().filter(|at| *at <= end) {
            if self.originals.is_empty() && self.events.is_empty() {
                break;
            }
            self.now = self.now.max(at);
            self.step();
        }
        self.originals.is_empty() && self.events.is_empty()
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
                let original = Original { journey, arrival, attempted: false };
                self.originals.insert(arrival.index, original);
                self.advance(arrival.index, Input::Start);
            }
            Event::Timer { original } => self.advance(original, Input::TimerDone),
            Event::Reply { attempt, reply } => {
                self.provider.finish(reply.call);
                self.gate.handle_reply(attempt, &reply, self.now);
            }
        }
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
        match original.journey.next(input) {
            Step::Send(place) => {
                let Arrival { tokens, lane, tenant, .. } = original.arrival;
                self.counts.calls.count(&place);
                let id = self.counts.offered;
                self.counts.offered += 1;
                self.requests.insert(id, index);
                let identity = u128::from(index);
                let retry_count = place.retry_count;
                let request = OfferedRequest { id, identity, tokens, lane, tenant, retry_count };
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
        self.schedule(self.now + reply.latency, Event::Reply { attempt, reply });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The default drill of the design's section 7.
    fn launch_config(seed: u64) -> WorldConfig {
        WorldConfig {
            provider: toml::from_str(
                "requests = { per_minute = 6000, start = 3000 }\n\
                 tokens = { per_minute = 1_200_000, start = 36_000 }",
            )
            .expect("fits"),
            arrivals: toml::from_str(
                "tokens = { min = 300, max = 300 }\n\
                 steps = [{ name = 'calm', at_s = 0, rate = 60 }, { name = 'storm', at_s = 10, rate = 180 }]",
            )
            .expect("fits"),
            layers: LayersConfig::default(),
            seed,
        }
    }

    fn launch(seed: u64) -> World<PassThrough> {
        World::new(&launch_config(seed), PassThrough::default())
    }

    /// Counts from one second to another.
    fn between(world: &mut World<PassThrough>, from_s: f64, to_s: f64) -> [f64; 4] {
        world.run_until(Mono::from_secs_f64(from_s));
        let before = world.counts();
        world.run_until(Mono::from_secs_f64(to_s));
        let after = world.counts();
        let rate = |count: u64| {
            f64::from(u32::try_from(count).expect("a test is short")) / (to_s - from_s)
        };
        [
            rate(after.attempts - before.attempts),
            rate(after.served - before.served),
            rate(after.originals_attempted - before.originals_attempted),
            rate(after.originals - before.originals),
        ]
    }

    #[test]
    fn the_storm_has_the_numbers_of_the_design() {
        for seed in [1, 2, 3] {
            let mut world = launch(seed);
            let [calm_attempts, calm_served, _, calm_originals] = between(&mut world, 0.0, 10.0);
            assert!(calm_attempts <= calm_originals * 1.01, "the calm needs no retries");
            assert!((50.0..70.0).contains(&calm_served), "{calm_served} served/s in the calm");
            let [early, _, early_originals, _] = between(&mut world, 15.0, 17.0);
            assert!(early / early_originals > 3.3, "amplification six seconds after onset");
            let [attempts, served, originals, _] = between(&mut world, 30.0, 120.0);
            assert!((1_500.0..1_800.0).contains(&attempts), "{attempts} attempts/s");
            assert!((65.0..67.5).contains(&served), "{served} served/s");
            let amplification = attempts / originals;
            assert!((8.0..9.4).contains(&amplification), "amplification {amplification}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let run = |seed| {
            let mut world = launch(seed);
            let mut counts = Vec::new();
            for tenth in 1..=200_u32 {
                world.run_until(Mono::from_secs_f64(f64::from(tenth) / 10.0));
                counts.push(world.counts());
            }
            counts
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5).last(), run(6).last());
    }

    #[test]
    fn stop_and_drain_account_for_every_original() {
        let mut world = launch(4);
        world.run_until(Mono::from_secs_f64(25.0));
        world.stop();
        assert!(world.drain(Duration::from_secs(30)), "requests in flight end");
        let counts = world.counts();
        assert_eq!(counts.originals, counts.served + counts.failed);
        assert_eq!(counts.originals_attempted, world.provider().ledger().originals());
        assert_eq!((counts.offered, counts.calls.sdk), (counts.attempts, counts.attempts));
        assert_eq!(world.provider().in_flight(), 0);
    }

    /// A gate that refuses everything at once and tells the client to stop.
    #[derive(Default)]
    struct Closed(VecDeque<GateEffect>);

    impl GateModel for Closed {
        fn handle_request(&mut self, request: &OfferedRequest, _now: Mono) {
            let answer =
                AnswerSeen { status: 429, should_retry: Some(false), ..AnswerSeen::default() };
            self.0.push_back(GateEffect::Answer { request: request.id, answer });
        }

        fn handle_reply(&mut self, _attempt: u64, _reply: &Reply, _now: Mono) {}

        fn handle_timeout(&mut self, _now: Mono) {}

        fn poll_effect(&mut self) -> Option<GateEffect> {
            self.0.pop_front()
        }

        fn poll_timeout(&self) -> Option<Mono> {
            None
        }
    }

    #[test]
    fn a_told_stop_leaves_only_people_and_deaf_wrappers_to_repeat() {
        let multiplication = |deaf| {
            let mut config = launch_config(1);
            config.layers.wrapper.deaf = deaf;
            let mut world = World::new(&config, Closed::default());
            world.run_until(Mono::from_secs_f64(60.0));
            assert_eq!(world.counts().attempts, 0, "nothing reaches the provider");
            let offered = Tokens(world.counts().offered).as_f64();
            offered / Tokens(world.counts().originals).as_f64()
        };
        let (obeying, deaf) = (multiplication(false), multiplication(true));
        assert!((1.15..1.25).contains(&obeying), "one in five resubmits, not {obeying}");
        assert!((3.4..3.7).contains(&deaf), "three wrapper tries each time, not {deaf}");
    }
}
