//! Polls one source behind a query API, and fills in its last hour when the dashboard opens.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use crate::ingest::access::Access;
use crate::ingest::adapter::Adapter;
use crate::signal::Labels;

use super::answer::{Data, Sample, Series};
use super::answers::{Answers, Circumstances};
use super::api::{PrometheusApi, Range, Reply};
use super::error::{PrometheusError, PrometheusErrorKind};
use super::promql::Writer;
use super::questions::{Questions, Told, by_step};
use super::select::Select;
use super::targets::Targets;

/// Shortest window of rates.
const WINDOW_MIN: Duration = Duration::from_secs(10);
/// Scrapes that a window spans at least, so that one that was missed leaves enough for a rate.
const WINDOW_SCRAPES: u32 = 4;
/// The scrape interval where neither the targets nor `up` tell it.
const INTERVAL_GUESS: Duration = Duration::from_secs(15);
/// Requests of one poll that are under way together.
const REQUESTS_MAX: usize = 4;
/// How long the list of targets is believed; shorter while some are down, for the reason may change.
const TARGETS_FOR: Duration = Duration::from_secs(60);
const TARGETS_FOR_WHILE_DOWN: Duration = Duration::from_secs(15);
/// Shortest step of history.
const STEP_MIN: Duration = Duration::from_secs(15);
/// Most steps of history.
const STEPS_MAX: u32 = 480;
/// Time limit of one look at history, which a server works on for longer than on a poll.
const BACKFILL_TIMEOUT: Duration = Duration::from_secs(30);

/// One source behind a query API.
#[derive(Clone, Debug)]
pub struct PrometheusConfig {
    /// Its name on screen and in errors.
    pub name: String,
    /// Where the API is, path prefix included: `http://prometheus:9090`.
    pub url: String,
    /// Which series are its.
    pub select: Select,
    /// How they are read.
    pub adapter: Arc<Adapter>,
    /// How weir proves itself to the server.
    pub access: Access,
    /// Limit of a whole poll.
    pub timeout: Duration,
    /// What rates are taken over; by itself at least 10 s and 4 scrapes.
    pub window: Option<Duration>,
}

/// Asks for everything that its adapter needs.
#[derive(Debug)]
pub struct PrometheusSource {
    config: PrometheusConfig,
    api: PrometheusApi,
    known: Mutex<Known>,
}

/// What is remembered from poll to poll.
#[derive(Clone, Debug, Default)]
struct Known {
    interval: Option<Duration>,
    targets: Arc<Targets>,
    asked: Option<Instant>,
    down: Vec<Labels>,
}

/// What the requests of one poll came to.
#[derive(Default)]
struct Round {
    series: Vec<Series>,
    notices: Vec<String>,
    is_partial: bool,
}

impl Round {
    fn take(&mut self, reply: Reply<Data>) {
        let answer = reply.answer;
        self.notices.extend(answer.warnings.into_iter().chain(answer.infos));
        self.is_partial |= answer.is_partial;
        match answer.data {
            Data::Vector(series) | Data::Matrix(series) => self.series.extend(series),
            Data::Scalar(..) | Data::String(..) => {}
        }
    }
}

impl PrometheusSource {
    /// A source; nothing is asked yet.
    ///
    /// # Errors
    ///
    /// When the address is none or the HTTP client cannot be made.
    pub fn new(config: PrometheusConfig) -> Result<Self, PrometheusError> {
        let api = PrometheusApi::new(&config.name, &config.url, config.access.clone())?;
        Ok(Self { config, api, known: Mutex::default() })
    }

    /// Asks once. Nothing is retried: the next poll is the next try.
    ///
    /// # Errors
    ///
    /// When a request fails or the whole takes longer than the source's limit.
    pub async fn poll(&self) -> Result<Answers, PrometheusError> {
        self.within(self.config.timeout, self.polled()).await
    }

    /// What polls of the last `span` would have said, oldest first, each with its age in seconds.
    /// Moments without any data are left out. Steps are made long enough for the server.
    ///
    /// # Errors
    ///
    /// When a request fails or the whole takes too long.
    pub async fn backfill(
        &self,
        span: Duration,
        step: Duration,
    ) -> Result<Vec<(f64, Answers)>, PrometheusError> {
        self.within(BACKFILL_TIMEOUT, self.history(span, step)).await
    }

    async fn within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, PrometheusError>>,
    ) -> Result<T, PrometheusError> {
        let late = |_| self.api.error(PrometheusErrorKind::Timeout(limit));
        tokio::time::timeout(limit, work).await.map_err(late)?
    }

    async fn polled(&self) -> Result<Answers, PrometheusError> {
        let begun = Instant::now();
        if self.known().interval.is_none() {
            self.learn(&BTreeSet::new()).await;
        }
        let window = self.window();
        let questions = Questions::new(self.writer(window), true);
        let queries = questions.queries();
        let mut round = Round::default();
        // The first query tells the moment, and all others are about it.
        let (first, rest) = queries.split_first().map_or(("", &[][..]), |(f, r)| (f.as_str(), r));
        round.take(self.api.query(first, None).await?);
        let told = questions.told(window, newest(&round.series));
        let asked: Vec<_> = rest.iter().map(|query| self.api.query(query, told.now_s)).collect();
        let replies = stream::iter(asked).buffered(REQUESTS_MAX);
        let replies: Vec<_> = replies.try_collect().await?;
        replies.into_iter().for_each(|reply| round.take(reply));
        let told = questions.told(window, newest(&round.series));
        self.remember(&told).await;
        Ok(self.answers(told, window, round, begun.elapsed()))
    }

    async fn history(
        &self,
        span: Duration,
        step: Duration,
    ) -> Result<Vec<(f64, Answers)>, PrometheusError> {
        let begun = Instant::now();
        if self.known().interval.is_none() {
            self.learn(&BTreeSet::new()).await;
        }
        let window = self.window();
        let questions = Questions::new(self.writer(window), false);
        let Data::Scalar(_, to_s) = self.api.query("time()", None).await?.answer.data else {
            let cause = "`time()` gives no number".to_owned();
            return Err(self.api.error(PrometheusErrorKind::Unreadable { cause }));
        };
        let step = step.max(STEP_MIN).max(self.interval()).max(span / STEPS_MAX);
        let range = Range { from_s: to_s - span.as_secs_f64(), to_s, step }.clamped();
        let step_s = range.step.as_secs_f64();
        // Steps count from the first one, so that the last is now.
        let range =
            Range { from_s: to_s - (span.as_secs_f64() / step_s).floor() * step_s, ..range };
        let queries = questions.queries();
        let asked: Vec<_> =
            queries.iter().map(|query| self.api.query_range(query, range)).collect();
        let replies: Vec<_> = stream::iter(asked).buffered(REQUESTS_MAX).try_collect().await?;
        let mut round = Round::default();
        replies.into_iter().for_each(|reply| round.take(reply));
        let steps = by_step(std::mem::take(&mut round.series), to_s, step_s);
        let moments = steps.into_iter().rev().map(|(back, series)| {
            let told = questions.told(window, series);
            #[expect(clippy::cast_precision_loss, reason = "a number of steps")]
            let ago_s = back as f64 * step_s;
            (ago_s, told)
        });
        let there = moments.filter(|(_, told)| told.newest_s.is_some() || told.all.is_some());
        let took = begun.elapsed();
        Ok(there
            .map(|(ago_s, told)| {
                (
                    ago_s,
                    self.answers(
                        told,
                        window,
                        Round {
                            series: Vec::new(),
                            notices: round.notices.clone(),
                            is_partial: round.is_partial,
                        },
                        took,
                    ),
                )
            })
            .collect())
    }

    fn answers(&self, told: Told, window: Duration, round: Round, took: Duration) -> Answers {
        let mut notices = round.notices;
        notices.sort();
        notices.dedup();
        let targets = Arc::clone(&self.known().targets);
        Answers::new(
            told,
            Circumstances {
                adapter: &self.config.adapter,
                select: &self.config.select,
                targets: &targets,
                interval: self.interval(),
                window,
                is_partial: round.is_partial,
                notices,
                took,
            },
        )
    }

    fn writer(&self, window: Duration) -> Writer<'_> {
        Writer { adapter: &self.config.adapter, select: &self.config.select, window }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn interval(&self) -> Duration {
        self.known().interval.unwrap_or(INTERVAL_GUESS)
    }

    fn window(&self) -> Duration {
        let by_itself = self.interval().saturating_mul(WINDOW_SCRAPES).max(WINDOW_MIN);
        self.config.window.unwrap_or(by_itself)
    }

    /// Asks the server for its targets. One that has none, as Thanos and Mimir, is no less a source.
    async fn learn(&self, jobs: &BTreeSet<String>) {
        let targets = self.api.targets().await.map(|reply| reply.answer.data).unwrap_or_default();
        let mut known = self.known();
        known.interval = targets.interval(jobs).or(known.interval);
        known.targets = Arc::new(targets);
        known.asked = Some(Instant::now());
    }

    /// Keeps what this poll says about the next ones.
    async fn remember(&self, told: &Told) {
        let is_due = {
            let mut known = self.known();
            let has_changed = known.down != told.down;
            known.down.clone_from(&told.down);
            let limit = if told.down.is_empty() { TARGETS_FOR } else { TARGETS_FOR_WHILE_DOWN };
            let is_first = known.interval.is_none();
            if known.targets.interval(&told.jobs).is_none() {
                known.interval = told.guess.or(known.interval);
            }
            let is_old = known.asked.is_none_or(|asked| asked.elapsed() > limit);
            is_old || is_first || (has_changed && !told.down.is_empty())
        };
        if is_due {
            self.learn(&told.jobs).await;
        }
    }
}

/// The one value of each series of vectors. Histograms are left out.
fn newest(series: &[Series]) -> impl Iterator<Item = (Labels, f64)> + '_ {
    series.iter().filter_map(|series| match series.samples.last() {
        Some((_, Sample::Number(value))) => Some((series.labels.clone(), *value)),
        _ => None,
    })
}
