//! The metrics page of a drill's callers: one text, behind sockets and on the virtual clock.
//!
//! Writes what the models of `sim` counted; counts nothing itself. Where there are several quota scopes
//! every sample says of which it is; what the application around the questions counted belongs to the
//! scope of the main caller.

use std::fmt::Display;
use std::time::Duration;

use super::metrics_text::MetricsText;
use crate::admission::{Histogram, LATENCY_BOUNDS};
use crate::signal::Mono;
use crate::sim::app::tally::{KindCounts, Tally, Totals};
use crate::sim::app::{App, SourceCounts, StageCounts};
use crate::sim::callers::CallerConfig;
use crate::sim::callers::job::ItemCounts;
use crate::sim::layers::{CLASSIC_LAYERS, LayerCalls, Stack};

/// What nobody deployed of late was deployed so long before the start.
const LONG_AGO: Duration = Duration::from_hours(72);

/// What the page says beside the counters.
#[derive(Clone, Copy, Debug)]
pub struct ClientFacts<'a> {
    /// When the callers' process started, in seconds since 1970.
    pub started_epoch_s: f64,
    /// When something new was deployed; `None`: [`LONG_AGO`] before the start.
    pub deployed: Option<Duration>,
    /// The full name of every quota scope, in the order of the tallies.
    pub scopes: &'a [String],
    /// Every caller, the main one first.
    pub callers: &'a [CallerConfig],
    /// The layers of those that have none of their own.
    pub layers: &'a Stack,
}

/// The page as of `now`, from the tally of each scope and the application.
#[must_use]
pub fn render(tallies: &[Tally], app: &App, facts: &ClientFacts<'_>, now: Mono) -> String {
    let mut page = Page { text: MetricsText::default(), facts, several: tallies.len() > 1 };
    page.text.single("process_start_time_seconds", "gauge", facts.started_epoch_s);
    page.deployment(now);
    page.totals(tallies);
    page.layers(tallies);
    page.states(tallies, now);
    page.kinds(tallies);
    page.lanes(tallies);
    page.sources(tallies);
    page.items(tallies);
    page.histogram("simcli_latency_seconds", tallies, |tally| &tally.latency);
    page.histogram("simcli_retry_wait_seconds", tallies, |tally| &tally.retry_wait);
    page.cache(app);
    page.stages(app.stages());
    page.quality(app);
    page.text.into_text()
}

/// The layers of all callers with their calls and those of the layer above, outermost first. Layers of
/// one name are counted together, whoever calls through them. Those of a list bear their place in front,
/// so that a reader who sorts names has them from the outside inward.
#[must_use]
pub fn layer_calls(tally: &Tally, facts: &ClientFacts<'_>) -> Vec<(String, u64, u64)> {
    let mut layers: Vec<(String, u64, u64)> = Vec::new();
    for (calls, caller) in tally.calls.iter().zip(facts.callers) {
        let stack = caller.stack.as_ref().unwrap_or(facts.layers);
        for (place, (name, own, above)) in calls.by_layer(stack).enumerate() {
            let is_classic = CLASSIC_LAYERS.contains(&name);
            let name = if is_classic { name.to_owned() } else { format!("{}. {name}", place + 1) };
            match layers.iter_mut().find(|(known, ..)| *known == name) {
                Some((_, own_sum, above_sum)) => {
                    *own_sum += own;
                    *above_sum += above;
                }
                None => layers.push((name, own, above)),
            }
        }
    }
    layers
}

/// A counter: its name, or a part of it, and where it lies.
type Counter<T> = (&'static str, fn(&T) -> u64);

const COUNTS: [Counter<Totals>; 19] = [
    ("simcli_originals_total", |totals| totals.originals),
    ("simcli_served_total", |totals| totals.served),
    ("simcli_failed_total", |totals| totals.failed),
    ("simcli_left_total", |totals| totals.left),
    ("simcli_undelivered_total", |totals| totals.undelivered),
    ("simcli_chains_total", |totals| totals.chains),
    ("simcli_final_answers_total", |totals| totals.final_answers),
    ("simcli_retried_total", |totals| totals.retried),
    ("simcli_gave_up_total", |totals| totals.gave_up),
    ("simcli_hung_up_total", |totals| totals.hung_up),
    ("simcli_failures_total", |totals| totals.failures),
    ("simcli_failures_of_few_total", |totals| totals.failures_of_few),
    ("simcli_walked_total", |totals| totals.walked),
    ("simcli_fallback_hops_total", |totals| totals.hops),
    ("simcli_scopes_asked_total", |totals| totals.distinct),
    ("simcli_fell_back_total", |totals| totals.fell_back),
    ("simcli_fell_back_served_total", |totals| totals.fell_back_served),
    ("simcli_tasks_done_total", |totals| totals.tasks_done),
    ("simcli_tasks_failed_total", |totals| totals.tasks_failed),
];

/// Counters by kind of caller and by lane.
const KIND_COUNTS: [Counter<KindCounts>; 3] = [
    ("calls", |counts| counts.calls),
    ("refused", |counts| counts.refused),
    ("tokens", |counts| counts.tokens.0),
];

const ITEM_COUNTS: [Counter<ItemCounts>; 6] = [
    ("simcli_items_listed_total", |counts| counts.listed),
    ("simcli_items_begun_total", |counts| counts.begun),
    ("simcli_items_duplicate_total", |counts| counts.duplicates),
    ("simcli_items_done_total", |counts| counts.done),
    ("simcli_items_given_up_total", |counts| counts.given_up),
    ("simcli_runs_skipped_total", |counts| counts.skipped_runs),
];

/// The page under construction.
struct Page<'a> {
    text: MetricsText,
    facts: &'a ClientFacts<'a>,
    several: bool,
}

impl Page<'_> {
    /// One sample of the scope at this place.
    fn sample(&mut self, name: &str, scope: usize, labels: &[(&str, &str)], value: impl Display) {
        let named = self.facts.scopes.get(scope).filter(|_| self.several);
        let scope = named.map(|name| ("scope", name.as_str()));
        let all: Vec<_> = scope.into_iter().chain(labels.iter().copied()).collect();
        self.text.sample(name, &all, value);
    }

    /// One counter of every scope.
    fn each<T: Display>(
        &mut self,
        (name, kind): (&str, &str),
        tallies: &[Tally],
        value: impl Fn(&Tally) -> T,
    ) {
        self.text.family(name, kind);
        for (scope, tally) in tallies.iter().enumerate() {
            self.sample(name, scope, &[], value(tally));
        }
    }

    fn totals(&mut self, tallies: &[Tally]) {
        for (name, count) in COUNTS {
            self.each((name, "counter"), tallies, |tally| count(&tally.totals));
        }
        let gave_up = ("simcli_gave_up_seconds_total", "counter");
        self.each(gave_up, tallies, |tally| tally.totals.gave_up_s);
        let wasted = ("simcli_wasted_seconds_total", "counter");
        self.each(wasted, tallies, |tally| tally.totals.wasted_s);
    }

    fn layers(&mut self, tallies: &[Tally]) {
        let name = "simcli_layer_calls_total";
        self.text.family(name, "counter");
        for (scope, tally) in tallies.iter().enumerate() {
            for (layer, calls, _) in layer_calls(tally, self.facts) {
                self.sample(name, scope, &[("layer", &layer)], calls);
            }
        }
        let name = "simcli_layer_callers_total";
        self.text.family(name, "counter");
        for (scope, tally) in tallies.iter().enumerate() {
            for (layer, _, above) in layer_calls(tally, self.facts) {
                self.sample(name, scope, &[("layer", &layer)], above);
            }
        }
        let name = "simcli_requests_total";
        self.each((name, "counter"), tallies, |tally| {
            tally.calls.iter().map(LayerCalls::requests).sum::<u64>()
        });
    }

    /// How long ago something new was deployed, once there was something.
    fn deployment(&mut self, now: Mono) {
        let now = now.since_start();
        let ago = match self.facts.deployed {
            Some(at) if at <= now => now.saturating_sub(at),
            _ => now + LONG_AGO,
        };
        self.text.single("simcli_deployment_age_seconds", "gauge", ago.as_secs_f64());
    }

    fn states(&mut self, tallies: &[Tally], now: Mono) {
        self.each(("simcli_in_flight", "gauge"), tallies, |tally| tally.in_flight);
        self.each(("simcli_waiting", "gauge"), tallies, |tally| tally.waiting);
        self.each(("simcli_open", "gauge"), tallies, |tally| tally.open);
        self.each(("simcli_orphans", "gauge"), tallies, |tally| tally.orphans);
        let dead = |tally: &Tally| tally.dead_for(now).as_secs_f64();
        self.each(("simcli_dead_seconds", "gauge"), tallies, dead);
        self.text.family("simcli_retry_sync_ratio", "gauge");
        for (scope, tally) in tallies.iter().enumerate() {
            if let Some(share) = tally.retry_sync_share(now) {
                self.sample("simcli_retry_sync_ratio", scope, &[], share);
            }
        }
        self.deadlines();
    }

    /// How long the least patient caller of each scope waits, where one has a deadline.
    fn deadlines(&mut self) {
        let facts = self.facts;
        self.text.family("simcli_deadline_seconds", "gauge");
        for (scope, name) in facts.scopes.iter().enumerate() {
            let of_scope = |caller: &&CallerConfig| match &caller.to {
                Some(to) => name.ends_with(&format!("/{to}")),
                None => scope == 0,
            };
            let deadlines = facts.callers.iter().filter(of_scope);
            let least = deadlines.filter_map(|caller| caller.deadline_s).reduce(f64::min);
            if let Some(least) = least {
                self.sample("simcli_deadline_seconds", scope, &[], least);
            }
        }
    }

    fn kinds(&mut self, tallies: &[Tally]) {
        for (name, read) in KIND_COUNTS {
            let name = format!("simcli_kind_{name}_total");
            self.text.family(&name, "counter");
            for (scope, tally) in tallies.iter().enumerate() {
                for (kind, counts) in tally.kinds().filter(|(_, counts)| counts.calls > 0) {
                    self.sample(&name, scope, &[("kind", kind.word())], read(counts));
                }
            }
        }
    }

    fn lanes(&mut self, tallies: &[Tally]) {
        for (name, read) in KIND_COUNTS {
            let name = format!("simcli_lane_{name}_total");
            self.text.family(&name, "counter");
            for (scope, tally) in tallies.iter().enumerate() {
                for (lane, counts) in tally.lanes() {
                    self.sample(&name, scope, &[("lane", lane.word())], read(counts));
                }
            }
        }
    }

    /// Calls and tokens by caller and tenant.
    fn sources(&mut self, tallies: &[Tally]) {
        let facts = self.facts;
        let callers = facts.callers;
        let label = |(caller, tenant): (usize, usize)| {
            let caller = callers.get(caller);
            caller.map_or_else(String::new, |caller| {
                escaped(&format!("{}/{}", caller.name, caller.tenant_name(tenant)))
            })
        };
        for (name, of_tokens) in
            [("simcli_caller_calls_total", false), ("simcli_caller_tokens_total", true)]
        {
            self.text.family(name, "counter");
            for (scope, tally) in tallies.iter().enumerate() {
                let (sources, others) = tally.sources();
                let named = sources.iter().map(|(source, counts)| (label(*source), counts));
                let rest = (others.calls > 0).then(|| ("other".to_owned(), others));
                for (label, counts) in named.chain(rest) {
                    let value = if of_tokens { counts.tokens.0 } else { counts.calls };
                    self.sample(name, scope, &[("caller", &label)], value);
                }
            }
        }
    }

    fn items(&mut self, tallies: &[Tally]) {
        let all: Vec<_> = tallies.iter().map(Tally::items).collect();
        for (name, read) in ITEM_COUNTS {
            self.text.family(name, "counter");
            for (scope, counts) in all.iter().enumerate() {
                if let Some(counts) = counts {
                    self.sample(name, scope, &[], read(counts));
                }
            }
        }
    }

    fn histogram(&mut self, name: &str, tallies: &[Tally], of: fn(&Tally) -> &Histogram) {
        self.text.family(name, "histogram");
        for (scope, tally) in tallies.iter().enumerate() {
            self.buckets(name, scope, &[], of(tally));
        }
    }

    fn buckets(&mut self, name: &str, scope: usize, labels: &[(&str, &str)], from: &Histogram) {
        let mut below = 0;
        let bounds = LATENCY_BOUNDS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(from.buckets) {
            below += count;
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.sample(&format!("{name}_bucket"), scope, &labels, below);
        }
        self.sample(&format!("{name}_sum"), scope, labels, from.sum);
        self.sample(&format!("{name}_count"), scope, labels, below);
    }

    /// The scope of the main caller, whose questions go through the application.
    fn home(&self) -> usize {
        let to = self.facts.callers.first().and_then(|caller| caller.to.as_deref());
        let is_it = |scope: &String| to.is_some_and(|to| scope.ends_with(&format!("/{to}")));
        self.facts.scopes.iter().position(is_it).unwrap_or(0)
    }

    fn cache(&mut self, app: &App) {
        let Some(cache) = app.cache() else { return };
        let (home, counts) = (self.home(), cache.counts());
        for (name, count) in [
            ("simcli_cache_lookups_total", counts.lookups),
            ("simcli_cache_hits_total", counts.hits),
            ("simcli_cache_wrong_hits_total", counts.wrong),
            ("simcli_cache_cross_tenant_hits_total", counts.cross_tenant),
            ("simcli_cache_corpus_mismatch_hits_total", counts.corpus_mismatch),
            ("simcli_cache_error_hits_total", counts.error_bodies),
        ] {
            self.text.family(name, "counter");
            self.sample(name, home, &[], count);
        }
        self.text.family("simcli_cache_age_seconds", "histogram");
        self.buckets("simcli_cache_age_seconds", home, &[], cache.ages());
    }

    fn stages(&mut self, stages: &[StageCounts]) {
        if stages.is_empty() {
            return;
        }
        let home = self.home();
        self.text.family("simcli_stage_seconds", "histogram");
        for stage in stages {
            let labels = [("stage", stage.name.as_str())];
            self.buckets("simcli_stage_seconds", home, &labels, &stage.latency);
        }
        self.text.family("simcli_stage_usual_p95_seconds", "gauge");
        for stage in stages {
            if let Some(usual) = stage.usual_p95 {
                let labels = [("stage", stage.name.as_str())];
                let name = "simcli_stage_usual_p95_seconds";
                self.sample(name, home, &labels, usual.as_secs_f64());
            }
        }
        self.app_sources(home, stages);
    }

    fn app_sources(&mut self, home: usize, stages: &[StageCounts]) {
        let counts: [Counter<SourceCounts>; 2] = [
            ("simcli_source_slowest_total", |source| source.slowest),
            ("simcli_source_given_up_total", |source| source.given_up),
        ];
        for (name, count) in counts {
            self.text.family(name, "counter");
            for stage in stages {
                for source in &stage.sources {
                    let source_name = escaped(&source.name);
                    let labels = [("stage", stage.name.as_str()), ("source", &source_name)];
                    self.sample(name, home, &labels, count(source));
                }
            }
        }
        self.text.family("simcli_source_seconds", "histogram");
        for stage in stages {
            for source in &stage.sources {
                let source_name = escaped(&source.name);
                let labels = [("stage", stage.name.as_str()), ("source", &source_name)];
                self.buckets("simcli_source_seconds", home, &labels, &source.latency);
            }
        }
    }

    fn quality(&mut self, app: &App) {
        let Some(judged) = app.quality() else { return };
        let home = self.home();
        for (name, count) in [
            ("simcli_judged_total", judged.judged),
            ("simcli_citations_valid_total", judged.citation_valid),
            ("simcli_grounded_total", judged.grounded),
        ] {
            self.text.family(name, "counter");
            self.sample(name, home, &[], count);
        }
        self.text.family("simcli_coverage_total", "counter");
        self.sample("simcli_coverage_total", home, &[], judged.coverage);
    }
}

/// A label's value as the exposition wants it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
