//! Polls every source at its pace and publishes one immutable observation per interval.
//!
//! One task per instance of a source, so that one that hangs delays nobody, and a scrape begins only
//! after the last one of its instance has ended. A failure costs one round: the error and the age
//! are published, the last numbers stay until they are too old, and it is tried again at the next
//! tick.

mod ledger;
mod news;
mod origins;

use std::collections::BTreeMap;
use std::future::Future;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::signal::Mono;

use super::adapter::Adapter;
use super::assembler::ONLY;
use super::discovery::{Discovery, Instance};
use super::exposition::Format;
use super::observation::Observation;
use super::prometheus::PrometheusSource;
use super::scrape::{ScrapeError, Scraper, Target};
pub use ledger::Ledger;
pub(super) use ledger::rules;
pub use news::{News, SourceFacts, Witness};
use origins::Ask;
pub use origins::Origins;

/// Scrapes start within this share of the interval, at one of so many moments. Not each at its own: to
/// wake an idle process costs more than to read a page, so instances share a few wake-ups.
const JITTER_SHARE: f64 = 0.2;
const JITTER_MOMENTS: u32 = 4;
/// The observation is published at this share of the interval, when a healthy round is in.
const PUBLISH_SHARE: f64 = 0.45;
/// An instance is stale after so many intervals without an answer.
const STALE_INTERVALS: u32 = 3;
/// Rates are taken over so many intervals at least.
const WINDOW_INTERVALS: u32 = 4;
/// Results that may wait for the publisher, per source.
const RESULTS_MAX: usize = 4;
/// Instances are looked up again after so long.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(30);

/// One source to poll.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// Its name on screen and in errors.
    pub name: String,
    /// Its address as it is shown.
    pub url: String,
    /// How it is read.
    pub adapter: Arc<Adapter>,
    /// From one time that it is asked to the next.
    pub interval: Duration,
    /// How long one answer may take.
    pub timeout: Duration,
    /// Where its numbers are.
    pub road: Road,
}

/// How the numbers of a source are reached.
#[derive(Clone, Debug)]
pub enum Road {
    /// By the metrics pages of its instances.
    Pages {
        /// How a page is asked for; each instance has an address of its own.
        target: Box<Target>,
        /// The pages.
        instances: Discovery,
    },
    /// By the query API of a server that has scraped them.
    Queries(Arc<PrometheusSource>),
}

impl SourceConfig {
    /// A source with one page, at the target's address, asked once a second.
    #[must_use]
    pub fn page(target: Target, adapter: Arc<Adapter>) -> Self {
        let only = Instance { name: ONLY.to_owned(), url: target.url.clone() };
        Self {
            name: target.name.clone(),
            url: target.url.clone(),
            adapter,
            interval: Duration::from_secs(1),
            timeout: target.timeout,
            road: Road::Pages {
                target: Box::new(target),
                instances: Discovery::Static(vec![only]),
            },
        }
    }
}

/// What to poll, and how often an observation is wanted.
#[derive(Clone, Debug)]
pub struct PollConfig {
    /// The sources, in the order of the screen.
    pub sources: Vec<SourceConfig>,
    /// From observation to observation.
    pub interval: Duration,
    /// The moment that is [`Mono::START`].
    pub origin: Instant,
    /// Who is answered where numbers come from.
    pub origins: Origins,
}

/// The running tasks. Dropping it stops them.
#[derive(Debug)]
pub struct Poller {
    _tasks: JoinSet<()>,
}

/// The body of a page and its dialect, or why there is none.
pub type Fetched = Result<(Vec<u8>, Format), ScrapeError>;

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
        Self::spawn_witnessed(config, observations, None)
    }

    /// The same, with somebody who is told everything that is heard.
    ///
    /// # Errors
    ///
    /// When the HTTP client cannot be built.
    pub fn spawn_witnessed(
        config: PollConfig,
        observations: watch::Sender<Option<Arc<Observation>>>,
        witness: Option<Box<dyn Witness>>,
    ) -> Result<Self, ScrapeError> {
        let scraper = Scraper::new()?;
        let fetch = move |target: Arc<Target>| {
            let scraper = scraper.clone();
            async move { scraper.fetch(&target).await }
        };
        Ok(Self::begin(config, fetch, observations, witness))
    }

    /// Starts polling with another way to fetch. The target's timeout holds for it too.
    pub fn spawn_with<F, R>(
        config: PollConfig,
        fetch: F,
        observations: watch::Sender<Option<Arc<Observation>>>,
    ) -> Self
    where
        F: Fn(Arc<Target>) -> R + Clone + Send + 'static,
        R: Future<Output = Fetched> + Send + 'static,
    {
        Self::begin(config, fetch, observations, None)
    }

    /// The same, with somebody who is told everything that is heard.
    pub fn begin<F, R>(
        config: PollConfig,
        fetch: F,
        observations: watch::Sender<Option<Arc<Observation>>>,
        witness: Option<Box<dyn Witness>>,
    ) -> Self
    where
        F: Fn(Arc<Target>) -> R + Clone + Send + 'static,
        R: Future<Output = Fetched> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        let (results, inbox) = mpsc::channel(RESULTS_MAX * config.sources.len().max(1));
        let start = Instant::now();
        for (index, source) in config.sources.iter().enumerate() {
            let pace = Pace { start, interval: source.interval, origin: config.origin };
            let results = results.clone();
            match source.road.clone() {
                Road::Pages { target, instances } => {
                    tasks.spawn(supervise(index, (target, instances), pace, fetch.clone(), results))
                }
                Road::Queries(queries) => tasks.spawn(ask(index, queries, pace, results)),
            };
        }
        let asks = config.origins.listen();
        tasks.spawn(publish(config, start, (inbox, asks), (observations, witness)));
        Self { _tasks: tasks }
    }
}

/// A part of the interval that is the same for a name in every run, so that many watchers of the
/// same sources do not all ask at once, and a run can be repeated.
fn jitter(name: &str, interval: Duration) -> Duration {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
    let moment = u32::try_from(hash % u64::from(JITTER_MOMENTS)).unwrap_or_default();
    interval.mul_f64(JITTER_SHARE) * moment / JITTER_MOMENTS
}

/// When a source is scraped, and from where time counts.
#[derive(Clone, Copy)]
struct Pace {
    start: Instant,
    interval: Duration,
    origin: Instant,
}

/// What the publisher is told.
struct Told {
    /// The source's place in the configuration.
    index: usize,
    at: Mono,
    news: News,
}

/// Asks a query API at its pace. Its own time limit holds.
async fn ask(index: usize, source: Arc<PrometheusSource>, pace: Pace, results: mpsc::Sender<Told>) {
    let mut ticks = interval_at(pace.start, pace.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let answers = source.poll().await;
        let news = News::Answered(answers.map(Arc::new).map_err(|error| error.to_string()));
        let at = Mono::from_start(Instant::now().saturating_duration_since(pace.origin));
        if results.send(Told { index, at, news }).await.is_err() {
            return;
        }
    }
}

/// Keeps one polling task per instance of a source, whatever instances it has.
async fn supervise<F, R>(
    index: usize,
    (target, instances): (Box<Target>, Discovery),
    pace: Pace,
    fetch: F,
    results: mpsc::Sender<Told>,
) where
    F: Fn(Arc<Target>) -> R + Clone + Send + 'static,
    R: Future<Output = Fetched> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let mut running: BTreeMap<Instance, AbortHandle> = BTreeMap::new();
    let mut lookups = interval_at(pace.start, DISCOVERY_INTERVAL);
    lookups.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        lookups.tick().await;
        let found = instances.instances().await;
        let at = Mono::from_start(Instant::now().saturating_duration_since(pace.origin));
        let news = match &found {
            Ok(found) => News::Instances(found.iter().map(|one| one.name.clone()).collect()),
            Err(error) => News::Undiscovered(error.to_string()),
        };
        if results.send(Told { index, at, news }).await.is_err() {
            return;
        }
        let Ok(found) = found else { continue };
        // A set keeps its ended tasks until somebody asks for them.
        while tasks.try_join_next().is_some() {}
        running.retain(|instance, task| {
            let stays = found.contains(instance) && !task.is_finished();
            if !stays {
                task.abort();
            }
            stays
        });
        for instance in found {
            let target = target_of(&target, &instance);
            let start = Instant::now().max(pace.start) + jitter(&target.name, pace.interval);
            let name = Arc::from(instance.name.as_str());
            running.entry(instance).or_insert_with(|| {
                let pace = Pace { start, ..pace };
                let poll = poll((index, name), target, pace, fetch.clone(), results.clone());
                tasks.spawn(poll)
            });
        }
        if matches!(instances, Discovery::Static(_)) {
            std::future::pending::<()>().await;
        }
    }
}

/// The target of one instance. The only one of a source goes by the source's name.
fn target_of(source: &Target, instance: &Instance) -> Arc<Target> {
    let name = match instance.name.as_str() {
        ONLY => source.name.clone(),
        name => format!("{} {name}", source.name),
    };
    Arc::new(Target { name, url: instance.url.clone(), ..source.clone() })
}

async fn poll<F, R>(
    (index, instance): (usize, Arc<str>),
    target: Arc<Target>,
    pace: Pace,
    fetch: F,
    results: mpsc::Sender<Told>,
) where
    F: Fn(Arc<Target>) -> R,
    R: Future<Output = Fetched>,
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
        let took = ended.saturating_duration_since(begun);
        let at = Mono::from_start(ended.saturating_duration_since(pace.origin));
        let outcome = outcome.map_err(|error| error.to_string());
        let news = News::Polled { instance: Arc::clone(&instance), took, outcome };
        if results.send(Told { index, at, news }).await.is_err() {
            return;
        }
    }
}

/// Who is told observations, and who all that they are made of.
type Listeners = (watch::Sender<Option<Arc<Observation>>>, Option<Box<dyn Witness>>);

/// Takes results in and publishes, until nobody listens any more.
async fn publish(
    config: PollConfig,
    start: Instant,
    (mut inbox, mut asks): (mpsc::Receiver<Told>, mpsc::Receiver<Ask>),
    (observations, mut witness): Listeners,
) {
    let mut ledger = Ledger::new(config.sources.iter().map(SourceFacts::from));
    let first = start + config.interval.mul_f64(PUBLISH_SHARE);
    let mut ticks = interval_at(first, config.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            Some(Told { index, at, news }) = inbox.recv() => {
                if let Some(witness) = &mut witness {
                    witness.heard(index, &news, at);
                }
                ledger.take(index, &news, at);
            }
            Some(Ask { scope, signal, answer }) = asks.recv() => {
                let at = Mono::from_start(Instant::now().saturating_duration_since(config.origin));
                // Whoever asked may be gone.
                let _ = answer.send(ledger.origin(&scope, &signal, at));
            }
            now = ticks.tick() => {
                let at = Mono::from_start(now.saturating_duration_since(config.origin));
                let observation = Arc::new(ledger.observation(at, Utc::now()));
                if let Some(witness) = &mut witness {
                    witness.observed(&observation);
                }
                if observations.send(Some(observation)).is_err() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
