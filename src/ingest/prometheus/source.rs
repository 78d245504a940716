//! Polls one source behind a query API, and fills in its last hour when the dashboard opens.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use crate::ingest::access::Access;
use crate::ingest::adapter::Adapter;
use crate::ingest::alerts::Alert;
use crate::signal::Labels;

use super::answer::{Data, Sample, Series};
use super::answers::{Answers, Circumstances};
use super::api::{self, PrometheusApi, Range, Reply};
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
const TARGETS_FOR: Duration = Duration::from_mins(1);
const TARGETS_FOR_WHILE_DOWN: Duration = Duration::from_secs(15);
/// Time limit of a look at the targets, which some servers answer with megabytes.
const TARGETS_TIMEOUT: Duration = Duration::from_secs(2);
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

/// What the requests of one poll said besides numbers.
#[derive(Clone, Debug, Default)]
struct Round {
    notices: Vec<String>,
    is_partial: bool,
}

impl Round {
    /// Keeps what is said, and gives the series.
    fn take(&mut self, reply: Reply<Data>) -> Vec<Series> {
        let answer = reply.answer;
        self.notices.extend(answer.warnings.into_iter().chain(answer.infos));
        self.is_partial |= answer.is_partial;
        match answer.data {
            Data::Vector(series) | Data::Matrix(series) => series,
            Data::Scalar(..) | Data::String(..) => Vec::new(),
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

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// The alerts of the server, whatever series they are about.
    ///
    /// # Errors
    ///
    /// When the request fails or takes longer than the source's limit.
    pub async fn alerts(&self) -> Result<Vec<Alert>, PrometheusError> {
        let reply = self.within(self.config.timeout, self.api.alerts()).await?;
        let read = |alert: &api::Alert| {
            let since = alert.active_at.as_deref();
            Alert::from_prometheus(&alert.labels, &alert.annotations, &alert.state, since)
        };
        Ok(reply.answer.data.iter().map(read).collect())
    }

    /// Asks once. Nothing is retried: the next poll is the next try.
    ///
    /// # Errors
    ///
    /// When a request fails or the whole takes longer than the source's limit.
    pub async fn poll(&self) -> Result<Answers, PrometheusError> {
        let (answers, due) = self.within(self.config.timeout, self.polled()).await?;
        // After the numbers are in hand, for the list of targets of a large server takes long.
        if let Some(jobs) = due {
            self.learn(&jobs).await;
        }
        Ok(answers)
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

    /// The numbers, and the jobs of which the targets should be looked up again.
    async fn polled(&self) -> Result<(Answers, Option<BTreeSet<String>>), PrometheusError> {
        let begun = Instant::now();
        self.learn_first().await;
        let writer = self.writer();
        let (mut told, mut round) = (Told::default(), Round::default());
        let about_source = Questions::about_source(writer);
        self.ask(&about_source, &mut told, &mut round).await?;
        let about_numbers = Questions::about_numbers(writer, &told);
        self.ask(&about_numbers, &mut told, &mut round).await?;
        told.finish(writer);
        let due = self.remember(&told);
        Ok((self.answers(told, writer.window, round, begun.elapsed()), due))
    }

    /// Asks for one moment: the server's now, which the first query tells all later ones.
    async fn ask(
        &self,
        questions: &Questions,
        told: &mut Told,
        round: &mut Round,
    ) -> Result<(), PrometheusError> {
        let queries = questions.queries();
        let mut waiting = queries.as_slice();
        if let (None, [first, rest @ ..]) = (told.now_s, waiting) {
            let series = round.take(self.api.query(first, None).await?);
            questions.put(told, numbers(&series));
            waiting = rest;
        }
        let now_s = told.now_s;
        let asked: Vec<_> = waiting.iter().map(|query| self.api.query(query, now_s)).collect();
        let replies = stream::iter(asked).buffered(REQUESTS_MAX);
        let replies: Vec<_> = replies.try_collect().await?;
        for reply in replies {
            questions.put(told, numbers(&round.take(reply)));
        }
        Ok(())
    }

    async fn history(
        &self,
        span: Duration,
        step: Duration,
    ) -> Result<Vec<(f64, Answers)>, PrometheusError> {
        let begun = Instant::now();
        self.learn_first().await;
        let writer = self.writer();
        let Data::Scalar(_, to_s) = self.api.query("time()", None).await?.answer.data else {
            let cause = "`time()` gives no number".to_owned();
            return Err(self.api.error(PrometheusErrorKind::Unreadable { cause }));
        };
        let step = step.max(STEP_MIN).max(self.interval()).max(span / STEPS_MAX);
        let steps = (span.as_secs_f64() / step.as_secs_f64()).floor();
        let from_s = to_s - steps * step.as_secs_f64();
        let range = Range { from_s, to_s, step };
        let questions = Questions::about_history(writer);
        let queries = questions.queries();
        let asked: Vec<_> =
            queries.iter().map(|query| self.api.query_range(query, range)).collect();
        let replies: Vec<_> = stream::iter(asked).buffered(REQUESTS_MAX).try_collect().await?;
        let mut round = Round::default();
        let series: Vec<Series> = replies.into_iter().flat_map(|reply| round.take(reply)).collect();
        let took = begun.elapsed();
        let mut moments = Vec::new();
        for (back, numbers) in by_step(&series, to_s, step.as_secs_f64()).into_iter().rev() {
            let mut told = Told::of_history();
            questions.put(&mut told, numbers);
            if told.newest_s.is_none() && told.all.is_none() {
                continue;
            }
            told.finish(writer);
            #[expect(clippy::cast_precision_loss, reason = "at most STEPS_MAX")]
            let ago_s = back as f64 * step.as_secs_f64();
            moments.push((ago_s, self.answers(told, writer.window, round.clone(), took)));
        }
        Ok(moments)
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

    fn writer(&self) -> Writer<'_> {
        Writer { adapter: &self.config.adapter, select: &self.config.select, window: self.window() }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn interval(&self) -> Duration {
        self.known().interval.unwrap_or(INTERVAL_GUESS)
    }

    /// A whole number of scrapes, so that a difference over it is between two of them.
    fn window(&self) -> Duration {
        let interval = self.interval();
        let scrapes = WINDOW_MIN.div_duration_f64(interval).ceil().max(f64::from(WINDOW_SCRAPES));
        self.config.window.unwrap_or_else(|| interval.mul_f64(scrapes))
    }

    /// Before the first poll the interval is not known, and with it the window.
    async fn learn_first(&self) {
        if self.known().asked.is_some() {
            return;
        }
        // Other jobs of the server may be scraped more seldom.
        let query = format!("count by (job) ({})", self.writer().metric("up"));
        let answered = self.api.query(&query, None).await;
        let series = answered.map(|reply| Round::default().take(reply)).unwrap_or_default();
        let jobs = series.iter().filter_map(|one| one.labels.get("job")).map(str::to_owned);
        self.learn(&jobs.collect()).await;
    }

    /// Asks the server for its targets. One that has none, as Thanos and Mimir, is no less a source.
    async fn learn(&self, jobs: &BTreeSet<String>) {
        self.known().asked = Some(Instant::now());
        let answered = tokio::time::timeout(TARGETS_TIMEOUT, self.api.targets()).await;
        let Ok(Ok(reply)) = answered else { return };
        let targets = reply.answer.data;
        let mut known = self.known();
        known.interval = targets.interval(jobs).or(known.interval);
        known.targets = Arc::new(targets);
    }

    /// Keeps what this poll says about the next ones. The jobs, where their targets should be looked
    /// up again.
    fn remember(&self, told: &Told) -> Option<BTreeSet<String>> {
        let mut known = self.known();
        let has_changed = known.down != told.down;
        known.down.clone_from(&told.down);
        known.interval = known.targets.interval(&told.jobs).or(told.guess).or(known.interval);
        let limit = if told.down.is_empty() { TARGETS_FOR } else { TARGETS_FOR_WHILE_DOWN };
        let is_old = known.asked.is_none_or(|asked| asked.elapsed() > limit);
        let is_due = is_old || (has_changed && !told.down.is_empty());
        is_due.then(|| told.jobs.clone())
    }
}

/// The one value of each series of a vector. Histograms are left out.
fn numbers(series: &[Series]) -> impl Iterator<Item = (Labels, f64)> + '_ {
    series.iter().filter_map(|series| match series.samples.last() {
        Some((_, Sample::Number(value))) => Some((series.labels.clone(), *value)),
        _ => None,
    })
}
