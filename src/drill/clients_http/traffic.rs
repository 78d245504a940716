//! Who begins work, and when, on the machine's clock: open loops, crons, jobs; and tasks of several
//! calls.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use super::Clients;
use super::call::{self, Opening};
use crate::signal::Mono;
use crate::sim::app::{Asked, Pending};
use crate::sim::arrivals::{Arrival, Arrivals};
use crate::sim::callers::CallerKind;
use crate::sim::callers::job::{After, Delivery, Job, JobConfig};

/// Begins the work of one caller until its time is over.
pub(super) async fn run(clients: Arc<Clients>, caller: usize) {
    let config = &clients.callers[caller];
    let arrivals = Arrivals::new(config, caller, clients.config.seed);
    let state = Arc::new(Caller { place: caller, arrivals: Mutex::new(arrivals) });
    if let Some(job) = config.job.clone() {
        run_job(&clients, &state, job).await;
    } else if let Some(cron) = config.cron {
        let every = Duration::from_secs_f64(cron.every_s);
        let mut at = Mono::from_secs_f64(cron.at_s);
        while clients.reaches(at).await {
            let arrival = state.arrivals().call(at);
            tokio::spawn(begin(Arc::clone(&clients), Arc::clone(&state), arrival, false));
            at = at + every;
        }
    } else {
        loop {
            let arrival = state.arrivals().next();
            let Some(arrival) = arrival else { return };
            if !clients.reaches(arrival.at).await {
                return;
            }
            tokio::spawn(begin(Arc::clone(&clients), Arc::clone(&state), arrival, false));
        }
    }
}

/// A caller at work.
struct Caller {
    place: usize,
    arrivals: Mutex<Arrivals>,
}

impl Caller {
    fn arrivals(&self) -> MutexGuard<'_, Arrivals> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clients {
    /// Waits until an instant; whether work may still begin then.
    async fn reaches(&self, at: Mono) -> bool {
        if at.since_start() >= self.config.duration {
            return false;
        }
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            () = sleep_until(self.instant(at)) => true,
        }
    }
}

/// Takes a task to its end: through the application where a person asks. Whether all of it was served.
async fn begin(clients: Arc<Clients>, caller: Arc<Caller>, first: Arrival, is_item: bool) -> bool {
    let config = &clients.callers[caller.place];
    let (mut delay, mut pending) = (Duration::ZERO, None);
    if config.kind == CallerKind::User && !is_item {
        let may_cache = clients.may_cache.load(Ordering::Relaxed);
        let now = clients.now();
        let app = &mut clients.counts().app;
        if !app.is_bare() {
            match app.ask(first.tenant, may_cache, now) {
                Asked::Kept(_) => return true,
                Asked::Call(took, asked) => (delay, pending) = (took, Some(asked)),
            }
        }
    }
    if !config.has_tasks() {
        return chain(&clients, caller.place, first, delay, pending).await;
    }
    let mut calls = JoinSet::new();
    for call in 0..config.fan_out {
        let arrival = if call == 0 { first } else { caller.arrivals().call(clients.now()) };
        let (clients, place, pending) = (Arc::clone(&clients), caller.place, pending.take());
        calls.spawn(async move { chain(&clients, place, arrival, delay, pending).await });
    }
    let mut is_done = true;
    while let Some(served) = calls.join_next().await {
        is_done &= served.unwrap_or(false);
    }
    let scope = clients.scope_of(config);
    clients.counts().tallies[scope].task_ended(is_done);
    is_done
}

/// Makes the calls of a task that come one after the other.
async fn chain(
    clients: &Clients,
    caller: usize,
    arrival: Arrival,
    delay: Duration,
    pending: Option<Pending>,
) -> bool {
    let rounds = clients.callers[caller].calls_per_task;
    for round in 0..rounds {
        if round > 0 && clients.stop.is_cancelled() {
            return false;
        }
        let (delay, pending) = if round == 0 { (delay, pending) } else { (Duration::ZERO, None) };
        let is_last = round + 1 == rounds;
        let opening = Opening { caller, arrival, round, is_last, delay, pending };
        if !call::make(clients, opening).await {
            return false;
        }
    }
    true
}

/// A job and its workers.
struct Work {
    clients: Arc<Clients>,
    caller: Arc<Caller>,
    config: JobConfig,
    job: Mutex<Job>,
    /// There is something to take.
    listed: Notify,
}

async fn run_job(clients: &Arc<Clients>, caller: &Arc<Caller>, config: JobConfig) {
    let work = Arc::new(Work {
        clients: Arc::clone(clients),
        caller: Arc::clone(caller),
        job: Mutex::new(Job::new(&config)),
        config,
        listed: Notify::new(),
    });
    for _ in 0..work.config.workers {
        tokio::spawn(worker(Arc::clone(&work)));
    }
    for at_s in work.config.runs() {
        if !clients.reaches(Mono::from_secs_f64(at_s)).await {
            return;
        }
        work.on_job(Job::begin_run);
        work.listed.notify_waiters();
    }
}

impl Work {
    /// Changes the list, and tells the tally what became of it.
    fn on_job<T>(&self, change: impl FnOnce(&mut Job) -> T) -> T {
        let mut job = self.job.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut job);
        let place = self.caller.place;
        let scope = self.clients.scope_of(&self.clients.callers[place]);
        self.clients.counts().tallies[scope].set_items(place, job.counts());
        changed
    }

    /// Lists an item again after a while.
    fn later(self: &Arc<Self>, after_s: f64, relist: impl FnOnce(&mut Job) + Send + 'static) {
        let work = Arc::clone(self);
        tokio::spawn(async move {
            sleep(Duration::from_secs_f64(after_s)).await;
            work.on_job(relist);
            work.listed.notify_waiters();
        });
    }
}

/// Takes items one after the other until the time of new work is over.
async fn worker(work: Arc<Work>) {
    let clients = &work.clients;
    while !clients.is_over() {
        let listed = work.listed.notified();
        tokio::pin!(listed);
        // Before the list is looked at, so that nothing is missed in between.
        listed.as_mut().enable();
        let Some(item) = work.on_job(Job::take) else {
            tokio::select! {
                () = clients.stop.cancelled() => return,
                () = listed => continue,
            }
        };
        work_on(&work, item).await;
    }
}

async fn work_on(work: &Arc<Work>, delivery: Delivery) {
    let item = delivery.item;
    if let Some(after_s) = work.config.redeliver_s {
        work.later(after_s, move |job| {
            job.redeliver(delivery);
        });
    }
    let arrival = work.caller.arrivals().item(item, work.clients.now());
    let task = begin(Arc::clone(&work.clients), Arc::clone(&work.caller), arrival, true);
    let is_done = task.await;
    if work.on_job(|job| job.finish(delivery, is_done)) == After::PutBack {
        work.later(work.config.requeue_after_s, move |job| job.put_back(item));
    }
}
