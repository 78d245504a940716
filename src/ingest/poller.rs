//! Scrapes every source at its pace and publishes one immutable observation per interval.
//!
//! One task per source, so that a source that hangs delays nobody, and a scrape begins only after the
//! last one of its source has ended. A failure costs one round: the source's error and age are
//! published, its last numbers stay until they are too old, and it is tried again at the next tick.

use std::future::Future;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::signal::Mono;

use super::adapter::Adapter;
use super::assembler::Assembler;
use super::observation::{Observation, SourceStatus};
use super::parsed::ParsedScrape;
use super::scrape::{ScrapeError, Scraper, Target};

/// Scrapes start within this share of the interval, each source at a moment of its own.
const JITTER_SHARE: f64 = 0.2;
/// The observation is published at this share of the interval, when a healthy round is in.
const PUBLISH_SHARE: f64 = 0.45;
/// A source is stale after so many intervals without an answer.
const STALE_INTERVALS: u32 = 3;
/// Results that may wait for the publisher, per source.
const RESULTS_MAX: usize = 4;

/// One source to poll.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// Where and how.
    pub target: Target,
    /// How it is read.
    pub adapter: Arc<Adapter>,
}

/// What to poll, and how often.
#[derive(Clone, Debug)]
pub struct PollConfig {
    /// The sources, in the order of the screen.
    pub sources: Vec<SourceConfig>,
    /// From scrape to scrape.
    pub interval: Duration,
    /// What rates are taken over, in seconds.
    pub window_s: f64,
    /// The moment that is [`Mono::START`].
    pub origin: Instant,
}

/// The running tasks. Dropping it stops them.
#[derive(Debug)]
pub struct Poller {
    _tasks: JoinSet<()>,
}

impl Poller {
    /// Starts polling over HTTP. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// When the HTTP client cannot be built.
    pub fn spawn(
        config: PollConfig,
        observations: watch::Sender<Option<Arc<Observation>>>,
    ) -> Result<Self, ScrapeError> {
        let scraper = Scraper::new()?;
        let fetch = move |target: Arc<Target>| {
            let scraper = scraper.clone();
            async move { scraper.scrape(&target).await }
        };
        Ok(Self::spawn_with(config, fetch, observations))
    }

    /// Starts polling with another way to fetch. The target's timeout holds for it too.
    pub fn spawn_with<F, R>(
        config: PollConfig,
        fetch: F,
        observations: watch::Sender<Option<Arc<Observation>>>,
    ) -> Self
    where
        F: Fn(Arc<Target>) -> R + Clone + Send + 'static,
        R: Future<Output = Result<ParsedScrape, ScrapeError>> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        let (results, inbox) = mpsc::channel(RESULTS_MAX * config.sources.len().max(1));
        let start = Instant::now();
        for (index, source) in config.sources.iter().enumerate() {
            let pace = Pace {
                start: start + jitter(&source.target.name, config.interval),
                interval: config.interval,
                origin: config.origin,
            };
            let target = Arc::new(source.target.clone());
            tasks.spawn(poll(index, target, pace, fetch.clone(), results.clone()));
        }
        tasks.spawn(publish(config, start, inbox, observations));
        Self { _tasks: tasks }
    }
}

/// A part of the interval that is the same for a name in every run, so that many watchers of the
/// same sources do not all ask at once, and a run can be repeated.
fn jitter(name: &str, interval: Duration) -> Duration {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
    let share = f64::from(u8::try_from(hash % 256).unwrap_or_default()) / 256.0;
    interval.mul_f64(JITTER_SHARE * share)
}

/// When a source is scraped, and from where time counts.
#[derive(Clone, Copy)]
struct Pace {
    start: Instant,
    interval: Duration,
    origin: Instant,
}

/// What one try came to.
struct Polled {
    index: usize,
    at: Mono,
    took: Duration,
    outcome: Result<ParsedScrape, ScrapeError>,
}

async fn poll<F, R>(
    index: usize,
    target: Arc<Target>,
    pace: Pace,
    fetch: F,
    results: mpsc::Sender<Polled>,
) where
    F: Fn(Arc<Target>) -> R,
    R: Future<Output = Result<ParsedScrape, ScrapeError>>,
{
    let mut ticks = interval_at(pace.start, pace.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let begun = Instant::now();
        let outcome = tokio::time::timeout(target.timeout, fetch(Arc::clone(&target))).await;
        let outcome = outcome.unwrap_or_else(|_| {
            let source_name = target.name.clone();
            Err(ScrapeError::Timeout { source_name, limit: target.timeout })
        });
        let ended = Instant::now();
        let polled = Polled {
            index,
            at: Mono::from_start(ended.saturating_duration_since(pace.origin)),
            took: ended.saturating_duration_since(begun),
            outcome,
        };
        if results.send(polled).await.is_err() {
            return;
        }
    }
}

/// Takes results in and publishes, until nobody listens any more.
async fn publish(
    config: PollConfig,
    start: Instant,
    mut inbox: mpsc::Receiver<Polled>,
    observations: watch::Sender<Option<Arc<Observation>>>,
) {
    let mut ledger = Ledger::new(&config);
    let first = start + config.interval.mul_f64(PUBLISH_SHARE);
    let mut ticks = interval_at(first, config.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            Some(polled) = inbox.recv() => ledger.take(polled),
            now = ticks.tick() => {
                let at = Mono::from_start(now.saturating_duration_since(config.origin));
                if observations.send(Some(Arc::new(ledger.observation(at)))).is_err() {
                    return;
                }
            }
        }
    }
}

/// The state of every source between two observations.
struct Ledger {
    assembler: Assembler,
    adapters: Vec<Arc<Adapter>>,
    statuses: Vec<SourceStatus>,
}

impl Ledger {
    fn new(config: &PollConfig) -> Self {
        let status = |source: &SourceConfig| SourceStatus {
            name: source.target.name.clone(),
            url: source.target.url.clone(),
            last_good: None,
            error: None,
            degraded: Vec::new(),
            warnings: Vec::new(),
            instances: (0, 1),
            took_s: 0.0,
            samples: 0,
            polls: 0,
            failures: 0,
        };
        let stale_after = config.interval.saturating_mul(STALE_INTERVALS);
        Self {
            assembler: Assembler::new(config.window_s).with_stale_after(stale_after),
            adapters: config.sources.iter().map(|source| Arc::clone(&source.adapter)).collect(),
            statuses: config.sources.iter().map(status).collect(),
        }
    }

    fn take(&mut self, polled: Polled) {
        let status = &mut self.statuses[polled.index];
        status.polls += 1;
        status.took_s = polled.took.as_secs_f64();
        match polled.outcome {
            Ok(scrape) => {
                let adapter = &self.adapters[polled.index];
                self.assembler.accept(&status.name, adapter, &scrape, polled.at);
                status.last_good = Some(polled.at);
                status.error = None;
                status.degraded = scrape.degraded();
                status.samples = scrape.points.len();
            }
            Err(error) => {
                status.failures += 1;
                status.error = Some(error.to_string());
            }
        }
    }

    fn observation(&self, at: Mono) -> Observation {
        Observation {
            at,
            wall: Utc::now(),
            scopes: self.assembler.snapshots(at).into_iter().map(Arc::new).collect(),
            sources: self.statuses.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
