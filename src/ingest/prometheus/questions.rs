//! The texts that one poll asks, and their answers put back where they belong. Does no I/O.
//!
//! Many texts share a query: each is tagged with its number by `label_replace`, and they are joined
//! by `or`, so that a poll is a few requests whatever the adapter says, and all of a request holds for
//! one moment. A query is kept shorter than the shortest limit among servers.
//!
//! A poll asks twice. First about the source: what is there, what answers, what restarted. Then for
//! the numbers, in the form that this allows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::ingest::adapter::ast::Fold;
use crate::ingest::adapter::{Aggregates, Groups, Measure};
use crate::signal::Labels;

use super::answer::{Sample, Series};
use super::promql::{Writer, duration, folded};

/// Longest query, in bytes; `VictoriaMetrics` takes 16 KiB unless told otherwise.
const QUERY_BYTES_MAX: usize = 12_000;
/// The label that carries the number of a text.
const TAG: &str = "weir_text";
/// Most targets that are named when they are down.
const DOWN_MAX: usize = 8;
/// How much longer than the window restarts are looked for: two scrapes at least.
const RESTART_REACH: f64 = 1.5;
/// A sample may be older than asked for by this part of the window: more than one scrape, less than
/// two.
const SAMPLE_SLACK: f64 = 3.0;
/// What is looked back over to guess the scrape interval, in seconds.
const GUESS_S: u32 = 300;

/// What a text is asked for.
#[derive(Clone, Debug, PartialEq)]
enum Place {
    /// The moment that the server evaluates.
    Now,
    /// How many targets answer.
    Up,
    /// How many targets there are.
    All,
    /// Some of those that do not answer.
    Down,
    /// How many of those that answer did not where the window begins.
    Joined,
    /// The jobs of the targets.
    Jobs,
    /// Most scrapes of a target within the window.
    Scrapes,
    /// Most scrapes of a target within [`GUESS_S`].
    Guess,
    /// Newest sample of a metric, by scope.
    Present(String),
    /// How many series of a counter restarted within the window.
    Restarted(String),
    /// The series of a counter that were born within the window.
    Newborn(String),
    /// The answer to a leaf that reads a gauge.
    Gauge(String),
    /// The answer to a leaf that reads a counter.
    Counter(String),
}

/// Some of what a poll asks.
#[derive(Clone, Debug, Default)]
pub(super) struct Questions {
    texts: Vec<(Place, String)>,
}

/// What a server said at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Told {
    /// The moment, in seconds since 1970.
    pub(super) now_s: Option<f64>,
    /// Targets that answer.
    pub(super) up: Option<f64>,
    /// All targets.
    pub(super) all: Option<f64>,
    /// Labels of targets that do not answer.
    pub(super) down: Vec<Labels>,
    /// Jobs of the targets.
    pub(super) jobs: BTreeSet<String>,
    /// The scrape interval by the number of scrapes.
    pub(super) guess: Option<Duration>,
    /// The newest sample, in seconds since 1970.
    pub(super) newest_s: Option<f64>,
    /// Series in the answers.
    pub(super) series: usize,
    /// The numbers.
    pub(super) aggregates: Aggregates,
    /// Whether every increase was estimated.
    is_history: bool,
    joined: f64,
    restarted: BTreeSet<String>,
    scrapes: Option<f64>,
    has_increase: bool,
}

impl Questions {
    /// About the source: what is there, what answers, what restarted.
    pub(super) fn about_source(writer: Writer<'_>) -> Self {
        let up = writer.metric("up");
        let mut texts = vec![
            (Place::Now, "vector(time())".to_owned()),
            (Place::Up, format!("sum({up})")),
            (Place::All, format!("count({up})")),
            (Place::Down, format!("topk({DOWN_MAX}, {up} == 0)")),
            (Place::Joined, format!("count({up} == 1 unless {})", seen_twice(writer, &up))),
            (Place::Jobs, format!("count by (job) ({up})")),
            (Place::Scrapes, format!("max({})", writer.over_window("count_over_time", &up))),
            (Place::Guess, format!("max(count_over_time({up}[{GUESS_S}s]))")),
        ];
        let scope: Vec<String> = writer.adapter.scope.iter().map(|by| by.label.clone()).collect();
        let metrics: BTreeSet<String> = writer.adapter.metrics().collect();
        for metric in metrics {
            let newest = format!("timestamp({})", writer.metric(&metric));
            texts.push((Place::Present(metric), folded(Fold::Max, &scope, &newest)));
        }
        // A difference reaches back to the last sample before the window: a restart between that one
        // and the first inside shows in a longer look only.
        let longer = duration(writer.window.mul_f64(RESTART_REACH));
        for metric in counters(writer) {
            let resets = format!("resets({}[{longer}])", writer.metric(&metric));
            texts.push((Place::Restarted(metric), format!("count({resets} > 0)")));
        }
        Self { texts }
    }

    /// For the numbers of a source of which this is known.
    pub(super) fn about_numbers(writer: Writer<'_>, told: &Told) -> Self {
        let up = writer.metric("up");
        let window = duration(writer.window);
        let mut texts = Vec::new();
        for metric in counters(writer) {
            let series = writer.metric(&metric);
            // `increase` counts what came after the first value; a difference counts nothing of a
            // series that has no earlier value, so all that it has counted is missing there.
            let missing = if told.is_estimated(&metric) {
                writer.over_window("min_over_time", &series)
            } else {
                series.clone()
            };
            let was_scraped = format!("on (job, instance) ({up} offset {window} == 1)");
            let text = format!("({missing} unless {series} offset {window}) and {was_scraped}");
            texts.push((Place::Newborn(metric), text));
        }
        texts.extend(leaves(writer, |metric| told.is_estimated(metric)));
        Self { texts }
    }

    /// For history: all in one, with what is cheap to work out for many moments.
    pub(super) fn about_history(writer: Writer<'_>) -> Self {
        let mut questions = Self::about_source(writer);
        questions.texts.retain(|(place, _)| !matches!(place, Place::Restarted(_) | Place::Guess));
        questions.texts.extend(leaves(writer, |_| true));
        questions
    }

    /// The texts, in order of their numbers.
    #[cfg(test)]
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(|(_, text)| text.as_str())
    }

    /// The queries to send.
    pub(super) fn queries(&self) -> Vec<String> {
        let mut queries: Vec<String> = Vec::new();
        for (number, (_, text)) in self.texts.iter().enumerate() {
            let tagged = format!("label_replace({text}, \"{TAG}\", \"{number}\", \"\", \"\")");
            match queries.last_mut() {
                Some(last) if last.len() + tagged.len() < QUERY_BYTES_MAX => {
                    last.push_str(" or ");
                    last.push_str(&tagged);
                }
                _ => queries.push(tagged),
            }
        }
        queries
    }

    /// Puts series with one value each where they belong.
    pub(super) fn put(&self, told: &mut Told, answers: impl IntoIterator<Item = (Labels, f64)>) {
        for (labels, value) in answers {
            let number = labels.get(TAG).and_then(|number| number.parse::<usize>().ok());
            if let Some((place, _)) = number.and_then(|number| self.texts.get(number)) {
                told.series += 1;
                told.take(place, labels.filtered(|label| label != TAG), value);
            }
        }
    }
}

/// The targets that answered both now and where the window begins: a server that stood still answers
/// with samples from before, and no difference of those is one over the window.
fn seen_twice(writer: Writer<'_>, up: &str) -> String {
    let window = duration(writer.window);
    let window_s = writer.window.as_secs_f64();
    let slack_s = window_s / SAMPLE_SLACK;
    let oldest_s = window_s + slack_s;
    format!(
        "({up} offset {window} == 1 and timestamp({up} offset {window}) > time() - {oldest_s:.3} \
         and timestamp({up}) > time() - {slack_s:.3})"
    )
}

/// The metrics of which increases are asked for.
fn counters(writer: Writer<'_>) -> BTreeSet<String> {
    let leaves = writer.adapter.leaves().into_iter();
    let counted = leaves.filter(|leaf| leaf.measure != Measure::Values && leaf.span.is_none());
    counted.map(|leaf| leaf.of.metric.into()).collect()
}

fn leaves(writer: Writer<'_>, restarted: impl Fn(&str) -> bool) -> Vec<(Place, String)> {
    let text = |leaf: &crate::ingest::adapter::Leaf| {
        let place = match leaf.measure {
            Measure::Values => Place::Gauge,
            Measure::Rates | Measure::Increases => Place::Counter,
        };
        // What cannot be said in PromQL gets no answer, and its signals are unknown.
        let text = writer.leaf(leaf, restarted(&leaf.of.metric))?;
        Some((place(leaf.to_string()), text))
    };
    writer.adapter.leaves().iter().filter_map(text).collect()
}

impl Told {
    /// Of a moment that has passed, of which every increase is estimated.
    pub(super) fn of_history() -> Self {
        Self { is_history: true, ..Self::default() }
    }

    /// Whether the increases of a counter cannot be counted from scrape to scrape: some of its series
    /// restarted, or some targets were not scraped where the window begins.
    fn is_estimated(&self, metric: &str) -> bool {
        self.is_history
            || self.all.is_none()
            || self.joined > 0.0
            || self.restarted.contains(metric)
    }

    /// What the numbers are worth, once all are in.
    pub(super) fn finish(&mut self, writer: Writer<'_>) {
        // Without any `up`, an increase of anything shows that there were two scrapes.
        let is_known = self.scrapes.map_or(self.has_increase, |scrapes| scrapes >= 2.0);
        self.aggregates.window_s = is_known.then_some(writer.window.as_secs_f64());
        let estimated = counters(writer).into_iter().filter(|metric| self.is_estimated(metric));
        self.aggregates.extrapolated = estimated.collect();
    }

    fn take(&mut self, place: &Place, labels: Labels, value: f64) {
        let add = |groups: &mut BTreeMap<String, Groups>, key: &str| {
            groups.entry(key.to_owned()).or_default().push((labels.clone(), value));
        };
        match place {
            Place::Now => self.now_s = Some(value),
            Place::Up => self.up = Some(value),
            Place::All => self.all = Some(value),
            Place::Down => self.down.push(labels),
            Place::Joined => self.joined = value,
            Place::Jobs => self.jobs.extend(labels.get("job").map(str::to_owned)),
            Place::Scrapes => self.scrapes = Some(value),
            Place::Guess if value >= 2.0 => {
                self.guess = Duration::try_from_secs_f64(f64::from(GUESS_S) / value).ok();
            }
            Place::Guess => {}
            Place::Present(metric) => {
                self.newest_s = self.newest_s.into_iter().chain([value]).reduce(f64::max);
                add(&mut self.aggregates.present, metric);
            }
            Place::Restarted(metric) => {
                self.restarted.insert(metric.clone());
            }
            Place::Newborn(metric) => add(&mut self.aggregates.newborn, metric),
            Place::Gauge(leaf) => add(&mut self.aggregates.groups, leaf),
            Place::Counter(leaf) => {
                self.has_increase = true;
                add(&mut self.aggregates.groups, leaf);
            }
        }
    }
}

/// The numbers of series by moment, in steps of `step_s` before `to_s`. Histograms are left out.
pub(super) fn by_step(
    series: &[Series],
    to_s: f64,
    step_s: f64,
) -> BTreeMap<u64, Vec<(Labels, f64)>> {
    let mut moments: BTreeMap<u64, Vec<(Labels, f64)>> = BTreeMap::new();
    for Series { labels, samples } in series {
        for (at_s, sample) in samples {
            let back = ((to_s - at_s) / step_s).round();
            if let (Sample::Number(value), 0.0..=1e9) = (sample, back) {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "matched to be within 0..=1e9"
                )]
                moments.entry(back as u64).or_default().push((labels.clone(), *value));
            }
        }
    }
    moments
}
