//! The texts that one poll asks, and their answers put back where they belong. Does no I/O.
//!
//! Many texts share a query: each is tagged with its number by `label_replace`, and they are joined
//! by `or`, so that a poll is a few requests whatever the adapter says, and all of a request holds for
//! one moment. A query is kept shorter than the shortest limit among servers.

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
    /// The jobs of the targets.
    Jobs,
    /// Most scrapes of a target within the window.
    Scrapes,
    /// Most scrapes of a target within [`GUESS_S`].
    Guess,
    /// Newest sample of a metric, by scope.
    Present(String),
    /// The series of a metric that were born inside the window.
    Newborn(String),
    /// The answer to a leaf that reads a gauge.
    Gauge(String),
    /// The answer to a leaf that reads a counter.
    Counter(String),
}

/// Everything that a poll asks.
#[derive(Clone, Debug)]
pub(super) struct Questions {
    texts: Vec<(Place, String)>,
}

/// What a server said at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Told {
    /// The moment, in seconds since 1970.
    pub(super) now_s: Option<f64>,
    /// Targets that answer, and all of them.
    pub(super) up: Option<f64>,
    pub(super) all: Option<f64>,
    pub(super) down: Vec<Labels>,
    pub(super) jobs: BTreeSet<String>,
    /// Most scrapes of a target in the window.
    pub(super) scrapes: Option<f64>,
    /// The scrape interval by the number of scrapes.
    pub(super) guess: Option<Duration>,
    /// The newest sample, in seconds since 1970.
    pub(super) newest_s: Option<f64>,
    /// Whether any counter was seen twice.
    has_increase: bool,
    /// Series in the answers.
    pub(super) series: usize,
    pub(super) aggregates: Aggregates,
}

impl Questions {
    /// All that the adapter needs. The texts about newborn series cost the server most; for history
    /// they are left out.
    pub(super) fn new(writer: Writer<'_>, with_newborn: bool) -> Self {
        let up = writer.metric("up");
        let window = duration(writer.window);
        let mut texts = vec![
            (Place::Now, "vector(time())".to_owned()),
            (Place::Up, format!("sum({up})")),
            (Place::All, format!("count({up})")),
            (Place::Down, format!("topk({DOWN_MAX}, {up} == 0)")),
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
        let leaves = writer.adapter.leaves();
        let counted = leaves.iter().filter(|leaf| leaf.measure == Measure::Increases);
        let counted: BTreeSet<&str> = counted.map(|leaf| &*leaf.of.metric).collect();
        for metric in counted.into_iter().filter(|_| with_newborn) {
            let series = writer.metric(metric);
            let first = writer.over_window("min_over_time", &series);
            let was_scraped = format!("on (job, instance) ({up} offset {window} == 1)");
            let text = format!("({first} unless {series} offset {window}) and {was_scraped}");
            texts.push((Place::Newborn(metric.to_owned()), text));
        }
        for leaf in &leaves {
            if let Some(text) = writer.leaf(leaf) {
                let place = match leaf.measure {
                    Measure::Values => Place::Gauge,
                    Measure::Rates | Measure::Increases => Place::Counter,
                };
                texts.push((place(leaf.to_string()), text));
            }
        }
        Self { texts }
    }

    /// The queries to send. The first one tells the moment that the others have to be asked for.
    pub(super) fn queries(&self) -> Vec<String> {
        let mut queries = vec![String::new()];
        for (number, (_, text)) in self.texts.iter().enumerate() {
            let tagged = format!("label_replace({text}, \"{TAG}\", \"{number}\", \"\", \"\")");
            match queries.last_mut() {
                Some(last) if last.is_empty() => *last = tagged,
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
    pub(super) fn told(
        &self,
        window: Duration,
        answers: impl IntoIterator<Item = (Labels, f64)>,
    ) -> Told {
        let mut told = Told::default();
        for (labels, value) in answers {
            let number = labels.get(TAG).and_then(|number| number.parse::<usize>().ok());
            let Some((place, _)) = number.and_then(|number| self.texts.get(number)) else {
                continue;
            };
            told.series += 1;
            told.take(place, labels.filtered(|label| label != TAG), value);
        }
        // Without any `up`, an increase of anything shows that there were two scrapes.
        let is_known = told.scrapes.map_or(told.has_increase, |scrapes| scrapes >= 2.0);
        told.aggregates.window_s = is_known.then_some(window.as_secs_f64());
        told
    }
}

impl Told {
    fn take(&mut self, place: &Place, labels: Labels, value: f64) {
        let add = |groups: &mut BTreeMap<String, Groups>, key: &str| {
            groups.entry(key.to_owned()).or_default().push((labels.clone(), value));
        };
        match place {
            Place::Now => self.now_s = Some(value),
            Place::Up => self.up = Some(value),
            Place::All => self.all = Some(value),
            Place::Down => self.down.push(labels),
            Place::Jobs => self.jobs.extend(labels.get("job").map(str::to_owned)),
            Place::Scrapes => self.scrapes = Some(value),
            Place::Guess if value >= 2.0 => {
                let interval = Duration::try_from_secs_f64(f64::from(GUESS_S) / value);
                self.guess = interval.ok();
            }
            Place::Guess => {}
            Place::Present(metric) => {
                self.newest_s = self.newest_s.into_iter().chain([value]).reduce(f64::max);
                add(&mut self.aggregates.present, metric);
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
    series: Vec<Series>,
    to_s: f64,
    step_s: f64,
) -> BTreeMap<u64, Vec<(Labels, f64)>> {
    let mut steps: BTreeMap<u64, Vec<(Labels, f64)>> = BTreeMap::new();
    for Series { labels, samples } in series {
        for (at_s, sample) in samples {
            let back = ((to_s - at_s) / step_s).round();
            if let (Sample::Number(value), 0.0..=1e9) = (sample, back) {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "0..=1e9"
                )]
                steps.entry(back as u64).or_default().push((labels.clone(), value));
            }
        }
    }
    steps
}
