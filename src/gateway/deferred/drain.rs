//! Takes what waits, oldest first, and has it done: one line for each scope, each bounded.
//!
//! Knows nothing of quotas: the gate says "later", and then the whole scope waits, for the next in line
//! would hear the same. Who does the work is a trait, so that this file knows no HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::DeferredLane;
use super::coalesce::{self, Limits, first_load};
use super::item::{Answer, End, Item, UnixMs, Work};

/// How often an empty line is looked at without being told.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a line rests while its lane is switched off, or its store is in trouble.
const REST: Duration = Duration::from_millis(500);
/// The longest from one try of an item to the next, unless the provider asks for more.
const BACKOFF_MAX: Duration = Duration::from_mins(5);
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
/// The shortest rest of a scope after "later".
const HOLD_MIN: Duration = Duration::from_millis(50);
/// The longest: what held it may be over before the time that was named, for somebody raised a limit.
const HOLD_MAX: Duration = Duration::from_mins(1);
/// Between two counts of the store; longer where counting takes long.
const COUNT_EVERY: Duration = Duration::from_millis(500);
/// Of its time the store may spend so much on counting.
const COUNT_SHARE: u32 = 20;

/// What came of a try.
pub(in crate::gateway) enum Ran {
    /// Answered well.
    Done(Answer),
    /// It can never succeed, as it is.
    Dead(Answer),
    /// Not now.
    Later(Later),
}

/// Not now.
#[derive(Default)]
pub(in crate::gateway) struct Later {
    /// Not before so long has passed.
    pub(in crate::gateway) after: Duration,
    /// Attempts at the provider that it took.
    pub(in crate::gateway) attempts: u32,
    /// The others of its scope would hear the same.
    pub(in crate::gateway) holds_scope: bool,
    /// What the provider said.
    pub(in crate::gateway) said: Option<Answer>,
}

/// Whoever does the work.
pub(in crate::gateway) trait Runs: Send + Sync + 'static {
    /// Whether batch work is let through at all.
    fn is_open(&self) -> bool;
    /// First guess of the tokens of a request.
    fn tokens(&self, work: &Work) -> u64;
    /// One try.
    fn run<'a>(&'a self, work: &'a Work) -> BoxFuture<'a, Ran>;
    /// The last word on an item that was tried this often and never answered.
    fn used_up(&self, attempts: u32) -> Answer;
}

/// One scope's line.
struct Line {
    lane: Arc<DeferredLane>,
    runs: Arc<dyn Runs>,
    scope: String,
    /// What may be open at once: a scope that hangs holds up no other.
    permits: Arc<Semaphore>,
    /// When the scope may be asked again; the gate said so.
    held_until: std::sync::Mutex<Instant>,
    /// Inputs that go together just now: halved where a load was too large for the moment.
    load_max: AtomicUsize,
}

/// The drainer of one instance; it stops when it is dropped.
pub struct Drainer {
    end: CancellationToken,
    lines: JoinSet<()>,
}

impl Drainer {
    /// Begins to drain these scopes. Must be called within a Tokio runtime.
    pub(in crate::gateway) fn start(
        lane: &Arc<DeferredLane>,
        runs: &Arc<dyn Runs>,
        scopes: impl IntoIterator<Item = String>,
    ) -> Self {
        let end = CancellationToken::new();
        let mut lines = JoinSet::new();
        for scope in scopes {
            let one = Arc::new(Line {
                lane: Arc::clone(lane),
                runs: Arc::clone(runs),
                scope,
                permits: Arc::new(Semaphore::new(lane.concurrency)),
                held_until: std::sync::Mutex::new(Instant::now()),
                load_max: AtomicUsize::new(lane.limits.inputs),
            });
            lines.spawn(one.drain(end.clone()));
        }
        lines.spawn(count(Arc::clone(lane), end.clone()));
        Self { end, lines }
    }

    /// Takes nothing new; waits until `limit` for what is in hand.
    pub(in crate::gateway) async fn stop(mut self, limit: Instant) {
        self.end.cancel();
        let all = async { while self.lines.join_next().await.is_some() {} };
        let _ = tokio::time::timeout_at(limit.into(), all).await;
    }
}

/// Keeps the counts fresh and forgets what is over.
async fn count(lane: Arc<DeferredLane>, end: CancellationToken) {
    while !end.is_cancelled() {
        let began = Instant::now();
        if let Ok(counts) = lane.heard(lane.store.counts().await) {
            lane.counted.store(Arc::new(counts));
        }
        let _ = lane.heard(lane.store.tidy(UnixMs::now()).await);
        let rest = COUNT_EVERY.max(began.elapsed() * COUNT_SHARE);
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            () = end.cancelled() => {}
        }
    }
}

impl Line {
    async fn drain(self: Arc<Self>, end: CancellationToken) {
        let mut open = JoinSet::new();
        while !end.is_cancelled() {
            while open.try_join_next().is_some() {}
            let rest = if self.runs.is_open() { self.held() } else { REST };
            if !rest.is_zero() {
                self.wait(rest, &end).await;
                continue;
            }
            let permit = tokio::select! {
                permit = Arc::clone(&self.permits).acquire_owned() => permit,
                () = end.cancelled() => break,
            };
            // Nobody closes the semaphore.
            let Ok(permit) = permit else { break };
            let companions = self.load_max.load(Ordering::Relaxed).saturating_sub(1);
            let store = &self.lane.store;
            let claimed = store.claim(self.scope.clone(), companions, UnixMs::now()).await;
            match self.lane.heard(claimed) {
                Ok(items) if items.is_empty() => {
                    drop(permit);
                    tokio::select! {
                        () = self.lane.came.notified() => {}
                        () = self.wait(LOOK_EVERY, &end) => {}
                    }
                }
                Ok(items) => {
                    open.spawn(Arc::clone(&self).have_done(items, permit));
                }
                Err(_) => {
                    drop(permit);
                    self.wait(REST, &end).await;
                }
            }
        }
        while open.join_next().await.is_some() {}
    }

    async fn wait(&self, rest: Duration, end: &CancellationToken) {
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            () = end.cancelled() => {}
        }
    }

    fn held(&self) -> Duration {
        let until = self.held_until.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        until.saturating_duration_since(Instant::now())
    }

    fn hold(&self, rest: Duration) {
        let until = Instant::now() + rest.max(HOLD_MIN);
        let mut held = self.held_until.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *held = until.max(*held);
    }

    /// Has claimed items done, in loads; says meanwhile that they are in hand.
    async fn have_done(self: Arc<Self>, mut items: Vec<Item>, permit: OwnedSemaphorePermit) {
        let second = items.iter().filter(|item| item.is_second).count() as u64;
        self.lane.did(&self.scope, |did| did.second_runs += second);
        let keys: Vec<_> = items.iter().map(|item| item.key.clone()).collect();
        let keep = async {
            loop {
                tokio::time::sleep(self.lane.keep_every).await;
                let _ =
                    self.lane.heard(self.lane.store.keep(self.scope.clone(), keys.clone()).await);
            }
        };
        let work = async {
            // A store may bring what does not go together; each load is of one kind.
            items.sort_by_key(|item| item.work.together);
            let mut rest = &items[..];
            while !rest.is_empty() {
                let inputs = self.load_max.load(Ordering::Relaxed);
                let limits = Limits { inputs, ..self.lane.limits };
                let kind = rest[0].work.together;
                let alike = rest.iter().take_while(|item| item.work.together == kind);
                let alike = alike.take(if kind.is_some() { usize::MAX } else { 1 });
                let works = alike.map(|item| &item.work);
                let (load, others) =
                    rest.split_at(first_load(works, limits, |work| self.runs.tokens(work)));
                self.have_load_done(load).await;
                rest = others;
            }
        };
        tokio::select! {
            () = work => {}
            () = keep => {}
        }
        drop(permit);
    }

    fn have_load_done<'a>(&'a self, load: &'a [Item]) -> BoxFuture<'a, ()> {
        async move {
            // A load is refused for one of its parts, and nobody says which: halves find it.
            if let Some(refused) = self.try_load(load).await {
                if let [only] = load {
                    self.store_ends(&[only], |_| End::Dead(refused.clone())).await;
                    return;
                }
                let (first, second) = load.split_at(load.len() / 2);
                self.have_load_done(first).await;
                self.have_load_done(second).await;
            }
        }
        .boxed()
    }

    /// Tries a load and stores what came of it; what can never succeed is returned.
    async fn try_load(&self, load: &[Item]) -> Option<Answer> {
        let works: Vec<&Work> = load.iter().map(|item| &item.work).collect();
        let joined = if load.len() > 1 { coalesce::join(&works) } else { None };
        let all: Vec<&Item> = load.iter().collect();
        let Some(joined) = joined else {
            // Alone, or not to be joined after all.
            for item in load {
                match self.runs.run(&item.work).await {
                    Ran::Done(answer) => {
                        self.store_ends(&[item], |_| End::Done(answer.clone())).await;
                    }
                    Ran::Dead(answer) if load.len() == 1 => return Some(answer),
                    Ran::Dead(answer) => {
                        self.store_ends(&[item], |_| End::Dead(answer.clone())).await;
                    }
                    Ran::Later(later) => self.put_back(&[item], later).await,
                }
            }
            return None;
        };
        match self.runs.run(&joined.work).await {
            Ran::Done(answer) => {
                let Some(parts) = joined.split(&answer) else {
                    tracing::warn!(
                        scope = self.scope,
                        "an answer that cannot be split; singly then"
                    );
                    return Some(answer);
                };
                let limit = self.lane.limits.inputs;
                let _ = self.load_max.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
                    Some((now * 2).min(limit))
                });
                self.lane.did(&self.scope, |did| did.joined += load.len() as u64 - 1);
                self.store_ends(&all, |place| End::Done(parts[place].clone())).await;
                None
            }
            Ran::Dead(answer) => Some(answer),
            Ran::Later(later) => {
                if later.attempts == 0 {
                    // A smaller load may fit where this one has to wait.
                    self.load_max.store((load.len() / 2).max(1), Ordering::Relaxed);
                }
                self.put_back(&all, later).await;
                None
            }
        }
    }

    async fn put_back(&self, items: &[&Item], later: Later) {
        let Later { after, attempts, holds_scope, said } = later;
        let after = if holds_scope { after.min(HOLD_MAX) } else { after };
        if holds_scope {
            self.hold(after);
        }
        // Items that were put back together come back apart.
        let spread = uuid::Uuid::new_v4().as_bytes()[0];
        let jitter = 1.0 + f64::from(spread) / 1_024.0;
        let max = self.lane.attempts_max;
        let ends = |place: usize| {
            let attempts = items[place].attempts + attempts;
            if attempts >= max {
                return End::Dead(said.clone().unwrap_or_else(|| self.runs.used_up(attempts)));
            }
            let tried = BACKOFF_FIRST * 2_u32.saturating_pow(attempts.saturating_sub(1).min(16));
            let own = if attempts == 0 { Duration::ZERO } else { tried.min(BACKOFF_MAX) };
            let not_before = UnixMs::now().plus(after.max(own).mul_f64(jitter));
            End::Back { not_before, attempts }
        };
        self.store_ends(items, ends).await;
    }

    /// Until it is stored, or the process ends: then it is done again.
    async fn store_ends(&self, items: &[&Item], end: impl Fn(usize) -> End) {
        let ends: Vec<_> =
            items.iter().enumerate().map(|(place, item)| (item.key.clone(), end(place))).collect();
        loop {
            let stored = self.lane.store.end(ends.clone(), self.lane.result_ttl).await;
            if self.lane.heard(stored).is_ok() {
                break;
            }
            tokio::time::sleep(REST).await;
        }
        self.lane.did(&self.scope, |did| {
            for (_, end) in &ends {
                match end {
                    End::Done(_) => did.completed += 1,
                    End::Dead(_) => did.dead += 1,
                    End::Back { .. } => did.put_back += 1,
                }
            }
        });
    }
}
