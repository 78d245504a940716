//! Who begins work in the world, and when: open loops, crons, jobs; and tasks of several calls.

use std::time::Duration;

use crate::signal::Mono;
use crate::sim::app::Asked;
use crate::sim::arrivals::{Arrival, Arrivals};
use crate::sim::callers::CallerKind;
use crate::sim::callers::job::{After, Delivery, Item, Job};
use crate::sim::callers::{CallerConfig, Patience};
use crate::sim::layers::Stack;

use super::agenda::Event;
use super::calls::Opening;
use super::{GateModel, ScopeProvider, World};

/// A caller at work.
pub(super) struct Caller {
    pub(super) config: CallerConfig,
    pub(super) layers: Stack,
    /// The scopes that its fallbacks name.
    pub(super) fallbacks: Vec<usize>,
    pub(super) patience: Patience,
    /// The scope that it calls.
    pub(super) scope: usize,
    /// See [`Surroundings::tenants_before`].
    pub(super) tenants_before: usize,
    arrivals: Arrivals,
    /// The call that begins next, in an open loop.
    upcoming: Option<Arrival>,
    job: Option<Job>,
    idle_workers: u32,
}

/// Where a caller stands among the others.
#[derive(Clone, Copy)]
pub(super) struct Surroundings {
    /// Its place among the callers.
    pub(super) place: usize,
    /// The scope that it calls.
    pub(super) scope: usize,
    /// Tenants of the callers before it, so that the gate can tell all tenants apart.
    pub(super) tenants_before: usize,
}

impl Caller {
    pub(super) fn new(
        config: &CallerConfig,
        surroundings: Surroundings,
        layers: &Stack,
        scopes: &[ScopeProvider],
        seed: u64,
    ) -> Self {
        let Surroundings { place, scope, tenants_before } = surroundings;
        let job = config.job.as_ref();
        let layers = config.stack.as_ref().unwrap_or(layers);
        let named = |name: &String| scopes.iter().position(|scope| scope.name == *name);
        Self {
            layers: layers.clone(),
            fallbacks: layers.scopes().iter().map(|name| named(name).unwrap_or(scope)).collect(),
            patience: config.patience(),
            scope,
            tenants_before,
            arrivals: Arrivals::new(config, place, seed),
            upcoming: None,
            job: job.map(Job::new),
            idle_workers: job.map_or(0, |job| job.workers),
            config: config.clone(),
        }
    }
}

/// Several calls that belong together.
pub(super) struct Task {
    caller: usize,
    /// Calls that have not ended.
    open: u32,
    failed: bool,
    /// The item of a job that it works on.
    item: Option<Delivery>,
}

impl<G: GateModel> World<G> {
    /// Puts the first thing that a caller does on the agenda.
    pub(super) fn schedule_first(&mut self, caller: usize) {
        let config = &self.callers[caller].config;
        if config.job.is_some() {
            self.schedule_run(caller, 0);
        } else if let Some(cron) = &config.cron {
            let at = Mono::from_secs_f64(cron.at_s);
            self.agenda.schedule(at, Event::Begin { caller: small(caller) });
        } else {
            self.schedule_arrival(caller);
        }
    }

    fn schedule_arrival(&mut self, caller: usize) {
        let state = &mut self.callers[caller];
        state.upcoming = state.arrivals.next();
        if let Some(arrival) = state.upcoming {
            self.agenda.schedule(arrival.at, Event::Begin { caller: small(caller) });
        }
    }

    /// The next task of an open loop or of a cron begins.
    pub(super) fn begin_next(&mut self, caller: usize) {
        let state = &mut self.callers[caller];
        let arrival = if let Some(cron) = &state.config.cron {
            let at = self.now + Duration::from_secs_f64(cron.every_s);
            self.agenda.schedule(at, Event::Begin { caller: small(caller) });
            state.arrivals.call(self.now)
        } else {
            let Some(arrival) = state.upcoming.take() else { return };
            self.schedule_arrival(caller);
            arrival
        };
        self.begin(caller, arrival, None);
    }

    fn schedule_run(&mut self, caller: usize, run: u32) {
        let config = &self.callers[caller].config.job;
        let at_s = config.as_ref().and_then(|job| job.runs().nth(run as usize));
        if let Some(at_s) = at_s {
            let at = Mono::from_secs_f64(at_s);
            self.agenda.schedule(at, Event::Run { caller: small(caller), run });
        }
    }

    /// A run of a job begins.
    pub(super) fn begin_run(&mut self, caller: usize, run: u32) {
        self.schedule_run(caller, run + 1);
        if let Some(job) = &mut self.callers[caller].job {
            job.begin_run();
        }
        self.feed(caller);
    }

    pub(super) fn put_back(&mut self, caller: usize, item: Item) {
        if let Some(job) = &mut self.callers[caller].job {
            job.put_back(item);
        }
        self.feed(caller);
    }

    pub(super) fn redeliver(&mut self, caller: usize, delivery: Delivery) {
        if let Some(job) = &mut self.callers[caller].job {
            job.redeliver(delivery);
        }
        self.feed(caller);
    }

    /// Gives every idle worker of a job its next item.
    fn feed(&mut self, caller: usize) {
        while !self.stopped {
            let state = &mut self.callers[caller];
            let Some(job) = state.job.as_mut().filter(|_| state.idle_workers > 0) else { break };
            let Some(delivery) = job.take() else { break };
            state.idle_workers -= 1;
            let redeliver_s = state.config.job.as_ref().and_then(|job| job.redeliver_s);
            if let Some(seconds) = redeliver_s {
                let at = self.now + Duration::from_secs_f64(seconds);
                let caller = small(caller);
                self.agenda.schedule(at, Event::Redeliver { caller, delivery });
            }
            let arrival = state.arrivals.item(delivery.item, self.now);
            self.begin(caller, arrival, Some(delivery));
        }
        self.report_items(caller);
    }

    fn report_items(&mut self, caller: usize) {
        let state = &self.callers[caller];
        if let Some(job) = &state.job {
            self.tallies[state.scope].set_items(caller, job.counts());
        }
    }

    /// Begins a task with its first call: through the application where a person asks.
    fn begin(&mut self, caller: usize, first: Arrival, item: Option<Delivery>) {
        let state = &self.callers[caller];
        let (calls, rounds) = (state.config.fan_out, state.config.calls_per_task);
        let is_question = state.config.kind == CallerKind::User && item.is_none();
        let (mut delay, mut pending) = (Duration::ZERO, None);
        if is_question && !self.app.is_bare() {
            match self.app.ask(first.tenant, self.gate.may_cache(), self.now) {
                Asked::Kept(_) => return,
                Asked::Call(took, asked) => (delay, pending) = (took, Some(asked)),
            }
        }
        let has_parts = state.config.has_tasks() || item.is_some();
        let task =
            has_parts.then(|| self.tasks.push(Task { caller, open: calls, failed: false, item }));
        let is_last = rounds == 1;
        for call in 0..calls {
            let arrivals = &mut self.callers[caller].arrivals;
            let arrival = if call == 0 { first } else { arrivals.call(self.now) };
            let pending = pending.take();
            self.open(&Opening { caller, arrival, round: 0, is_last, task, delay, pending });
        }
    }

    /// One call of a task has ended: its next round begins, or the task may be over.
    pub(super) fn call_ended(&mut self, task: u64, arrival: &Arrival, round: u32, served: bool) {
        let Some(state) = self.tasks.get_mut(task) else { return };
        let caller = state.caller;
        let config = &self.callers[caller].config;
        let next = round + 1;
        if served && next < config.calls_per_task && !self.stopped {
            let opening = Opening {
                caller,
                arrival: Arrival { at: self.now, ..*arrival },
                round: next,
                is_last: next + 1 == config.calls_per_task,
                task: Some(task),
                delay: Duration::ZERO,
                pending: None,
            };
            self.open(&opening);
            return;
        }
        state.failed |= !served;
        state.open -= 1;
        if state.open > 0 {
            return;
        }
        let Some(Task { failed, item, .. }) = self.tasks.remove(task) else { return };
        if config.has_tasks() {
            self.tallies[self.callers[caller].scope].task_ended(!failed);
        }
        if let Some(item) = item {
            self.item_ended(caller, item, !failed);
        }
    }

    fn item_ended(&mut self, caller: usize, delivery: Delivery, is_done: bool) {
        let state = &mut self.callers[caller];
        state.idle_workers += 1;
        let (Some(job), Some(config)) = (&mut state.job, &state.config.job) else { return };
        if job.finish(delivery, is_done) == After::PutBack {
            let at = self.now + Duration::from_secs_f64(config.requeue_after_s);
            let caller = small(caller);
            self.agenda.schedule(at, Event::PutBack { caller, item: delivery.item });
        }
        self.feed(caller);
    }
}

/// Callers are few.
fn small(caller: usize) -> u32 {
    u32::try_from(caller).unwrap_or(u32::MAX)
}
