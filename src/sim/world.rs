//! Callers, an application, a gate and providers on one virtual clock: the drill without sockets.
//!
//! Events come in the order of their instants and of their creation, so a run repeats bit for bit. The
//! gate is whatever implements [`GateModel`]; [`PassThrough`] is the gate that is switched off. The
//! network takes no time, but clients' timers fire a little late.

mod agenda;
mod calls;
mod tasks;

use std::time::Duration;

use rand_pcg::Pcg64;

use crate::dialect::MeterReading;
use crate::signal::{Mono, Tokens};
use crate::sim::app::tally::{Tally, Totals};
use crate::sim::app::{App, AppConfig};
use crate::sim::callers::{CallerConfig, People};
use crate::sim::config::ProviderConfig;
use crate::sim::layers::Stack;
use crate::sim::provider::{Provider, Reply};
use crate::sim::rng;

use agenda::{Agenda, Event, Numbered, Slots};
use calls::Original;
use tasks::{Caller, Surroundings, Task};

pub use crate::sim::callers::Patience;
pub use crate::sim::model::{GateEffect, GateModel, OfferedRequest, PassThrough};

/// Most effects that a gate may have after one event; more is a gate that spins.
const EFFECTS_MAX: usize = 100_000;

/// What a world is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct WorldConfig {
    /// The provider of each quota scope; at least one.
    pub providers: Vec<ScopeProvider>,
    /// Who asks; the main caller first.
    pub callers: Vec<CallerConfig>,
    /// The layers above the gate of callers that have none of their own.
    pub layers: Stack,
    /// The application around the questions of people.
    pub app: AppConfig,
    /// The seed of everything random.
    pub seed: u64,
}

/// A quota scope and who grants it.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopeProvider {
    /// The scope's name, as `to` of a caller has it.
    pub name: String,
    /// Its provider.
    pub provider: ProviderConfig,
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
}

/// An answer under way.
struct Answering {
    attempt: u64,
    scope: usize,
    reply: Reply,
    /// Nobody waits for it any more, and the provider has stopped.
    is_over: bool,
}

/// A run on the virtual clock. Call [`Self::run_until`] as far as the next thing that you want to do
/// (read counters, flip a flag through [`Self::gate_mut`], [`Self::stop`]), then go on.
pub struct World<G> {
    gate: G,
    providers: Vec<Provider>,
    callers: Vec<Caller>,
    app: App,
    /// What the callers of each scope counted.
    tallies: Vec<Tally>,
    seed: u64,
    timers: Pcg64,
    people: People,
    now: Mono,
    agenda: Agenda,
    answers: Slots<Answering>,
    originals: Numbered<Original>,
    /// The original of each request that waits for its answer.
    requests: Numbered<u64>,
    tasks: Numbered<Task>,
    attempted: u64,
    stopped: bool,
}

impl<G: GateModel> World<G> {
    /// A world at the start of its clock, from checked configurations.
    #[must_use]
    pub fn new(config: &WorldConfig, gate: G) -> Self {
        let seed = config.seed;
        let provider = |(place, scope): (usize, &ScopeProvider)| {
            // Providers draw from streams of their own, the first from the seed itself.
            Provider::new(&scope.provider, seed.wrapping_add(place as u64), Mono::START)
        };
        let mut tenants_before = 0;
        let caller = |(place, caller): (usize, &CallerConfig)| {
            let to = caller.to.as_deref();
            let scope = config.providers.iter().position(|scope| Some(&*scope.name) == to);
            let before = tenants_before;
            tenants_before += caller.tenants.len().max(1);
            let surroundings =
                Surroundings { place, scope: scope.unwrap_or(0), tenants_before: before };
            Caller::new(caller, surroundings, &config.layers, &config.providers, seed)
        };
        let mut world = Self {
            gate,
            providers: config.providers.iter().enumerate().map(provider).collect(),
            callers: config.callers.iter().enumerate().map(caller).collect(),
            app: App::new(&config.app, seed),
            tallies: vec![Tally::default(); config.providers.len()],
            seed,
            timers: rng::seeded(seed, rng::Stream::Timers),
            people: People::new(seed),
            now: Mono::START,
            agenda: Agenda::default(),
            answers: Slots::default(),
            originals: Numbered::default(),
            requests: Numbered::default(),
            tasks: Numbered::default(),
            attempted: 0,
            stopped: false,
        };
        for caller in 0..world.callers.len() {
            world.schedule_first(caller);
        }
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

    /// The provider of the first scope.
    #[must_use]
    pub fn provider(&self) -> &Provider {
        &self.providers[0]
    }

    /// The provider of each scope, in the order of the configuration.
    #[must_use]
    pub fn providers(&self) -> &[Provider] {
        &self.providers
    }

    /// The provider of each scope, to be looked at at this instant.
    pub fn providers_mut(&mut self) -> &mut [Provider] {
        &mut self.providers
    }

    /// The meters of each scope's provider at this instant.
    pub fn meters(&mut self) -> Vec<[MeterReading; 2]> {
        self.providers.iter_mut().map(|provider| provider.meters(self.now)).collect()
    }

    /// What the callers of each scope counted, in the order of the configuration.
    #[must_use]
    pub fn tallies(&self) -> &[Tally] {
        &self.tallies
    }

    /// The application.
    #[must_use]
    pub const fn app(&self) -> &App {
        &self.app
    }

    /// What happened so far in all scopes; phases are differences of two readings.
    #[must_use]
    pub fn counts(&self) -> WorldCounts {
        let mut counts =
            WorldCounts { originals_attempted: self.attempted, ..WorldCounts::default() };
        for tally in &self.tallies {
            let Totals { originals, served, failed, left, .. } = tally.totals;
            counts.originals += originals;
            counts.served += served;
            counts.failed += failed;
            counts.left += left;
        }
        counts.offered = self.requests.next();
        for ledger in self.providers.iter().map(Provider::ledger) {
            counts.attempts += ledger.attempts();
            counts.provider_429 += ledger.answered(429);
            counts.tokens += ledger.tokens();
        }
        counts
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
        self.stopped = true;
        let goes_on = |event: &Event| {
            matches!(event, Event::Leave { .. } | Event::GiveUp { .. } | Event::Reply { .. })
        };
        for event in self.agenda.split(goes_on) {
            match event {
                Event::Timer { original } | Event::Start { original } => self.end(original, false),
                _ => {}
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
    fn is_idle(&mut self) -> bool {
        self.originals.is_empty() && self.answers.iter_mut().all(|answering| answering.is_over)
    }

    fn next_instant(&self) -> Option<Mono> {
        self.agenda.next_at().into_iter().chain(self.gate.poll_timeout()).min()
    }

    /// Handles the earliest event, or the gate's timeout if that comes first.
    fn step(&mut self) {
        if let Some(event) = self.agenda.pop_due(self.now) {
            self.handle(event);
        } else {
            self.gate.handle_timeout(self.now);
            let again = self.gate.poll_timeout();
            assert!(again.is_none_or(|at| at > self.now), "the gate spins at {:?}", self.now);
        }
        self.carry_out();
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Begin { caller } => self.begin_next(caller as usize),
            Event::Start { original } => self.advance_from_start(original),
            Event::Timer { original } => self.timer_done(original),
            Event::Leave { original } => self.leave(original),
            Event::Reply { slot } => {
                let Some(answering) = self.answers.take(slot) else { return };
                self.replied(&answering);
            }
            Event::Run { caller, run } => self.begin_run(caller as usize, run),
            Event::GiveUp { request } => self.give_up(request),
            Event::PutBack { caller, item } => self.put_back(caller as usize, item),
            Event::Redeliver { caller, delivery } => self.redeliver(caller as usize, delivery),
        }
    }

    fn replied(&mut self, Answering { attempt, scope, reply, is_over }: &Answering) {
        if !is_over {
            self.providers[*scope].finish(reply.call);
            self.gate.handle_reply(*attempt, reply, self.now);
        }
    }

    /// The connection of an attempt is closed. A provider that goes on all the same has an answer that
    /// finds nobody.
    fn hang_up(&mut self, attempt: u64) {
        let answering = self.answers.iter_mut().find(|answering| answering.attempt == attempt);
        if let Some(answering) = answering {
            answering.is_over = !self.providers[answering.scope].hang_up(answering.reply.call);
        }
    }

    /// Carries out what the gate wants until it wants nothing more.
    fn carry_out(&mut self) {
        for _ in 0..EFFECTS_MAX {
            match self.gate.poll_effect() {
                None => return,
                Some(GateEffect::Attempt { attempt, identity, .. }) => {
                    self.attempt(attempt, identity);
                }
                Some(GateEffect::HangUp { attempt }) => self.hang_up(attempt),
                Some(GateEffect::Answer { request, answer }) => {
                    let Some(index) = self.requests.remove(request) else {
                        panic!("the gate answered request {request} that does not wait");
                    };
                    self.answered(index, answer);
                }
            }
        }
        panic!("the gate spins: {EFFECTS_MAX} effects at {:?}", self.now);
    }
}

#[cfg(test)]
mod tests;
