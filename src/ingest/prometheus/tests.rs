//! What becomes of a server's answers, with answers written by hand: text in, signals out.

use std::sync::Arc;
use std::time::Duration;

use super::answers::{Answers, Circumstances};
use super::promql::Writer;
use super::questions::{Questions, Told};
use super::select::Select;
use super::targets::Targets;
use crate::ingest::Adapter;
use crate::signal::{Labels, Quality, Snapshot, Value};

const WINDOW: Duration = Duration::from_secs(10);

/// A gateway with a lazy counter, a gauge, a histogram and lists.
const ADAPTER: &str = r#"
[adapter]
title = "x"
about = "x"
role = "gateway"
verified = "run"
lazy = ["lazy_total"]
unset = ["None"]

[signals.offered_rps]
value = 'rate(all_total)'
quality = "exact"

[signals.shed_rps]
value = 'rate(lazy_total{code = "429"})'
quality = "exact"

[signals.admitted_rps]
value = 'offered_rps - shed_rps'
quality = "exact"

[signals.queue_depth]
value = 'sum(depth)'
quality = "exact"

[signals.latency_p95_s]
value = 'quantile(0.95, took)'
quality = "inferred"

[signals.cooldown]
quality = "exact"
parts = { in_cooldown = 'count(state == 1)', total = 'count(state)' }

[signals.tenants]
quality = "exact"
[signals.tenants.rows]
by = "tenant"
of = 'all_total'
parts = { share_requests = { value = 'rate(all_total)', share = true } }
"#;

/// Everything but what a case is about: one target that answers, and all metrics.
const HEALTHY: &[(&str, &str, f64)] = &[
    ("vector(time())", "", 1_000.0),
    ("sum(up)", "", 1.0),
    ("count(up)", "", 1.0),
    ("max(count_over_time(up[10s]))", "", 10.0),
    ("max(timestamp(all_total))", "", 999.5),
    ("max(timestamp(depth))", "", 999.5),
    ("max(timestamp(state))", "", 999.5),
    ("max(timestamp(took_bucket))", "", 999.5),
    ("sum(all_total - all_total offset 10s)", "", 400.0),
    ("sum by (tenant) (all_total - all_total offset 10s)", "tenant=a", 300.0),
    ("sum by (tenant) (all_total - all_total offset 10s)", "tenant=None", 100.0),
    ("sum(increase(all_total[10s]))", "", 444.4),
    ("sum((depth > -9.223372036854775807e18 < 9.223372036854775807e18))", "", 3.0),
    ("count((state > -9.223372036854775807e18 < 9.223372036854775807e18))", "", 4.0),
    ("sum by (le) (took_bucket - took_bucket offset 10s)", "le=1", 10.0),
    ("sum by (le) (took_bucket - took_bucket offset 10s)", "le=+Inf", 20.0),
];

const ALL_UP: &str = "sum(up)";
const NEWBORN: &str =
    "(lazy_total unless lazy_total offset 10s) and on (job, instance) (up offset 10s == 1)";
const NEWBORN_BEGAN: &str = "(min_over_time(lazy_total[10s]) unless lazy_total offset 10s) and \
                             on (job, instance) (up offset 10s == 1)";
const JOINED: &str = "count(up == 1 unless (up offset 10s == 1 and \
                      timestamp(up offset 10s) > time() - 13.333 and \
                      timestamp(up) > time() - 3.333))";
const RESTARTED: &str = "count(resets(lazy_total[15s]) > 0)";

struct Case<'a> {
    changes: &'a [(&'a str, &'a str, f64)],
    without: &'a [&'a str],
    is_partial: bool,
}

impl Case<'_> {
    const HEALTHY: Self = Self { changes: &[], without: &[], is_partial: false };

    /// What a server with these texts and numbers makes weir say.
    fn answers(&self) -> (Arc<Adapter>, Answers) {
        let adapter = Arc::new(Adapter::parse("x", "x.toml", ADAPTER).expect("it is right"));
        let select = Select::default();
        let writer = Writer { adapter: &adapter, select: &select, window: WINDOW };
        let mut told = Told::default();
        self.ask(&Questions::about_source(writer), &mut told);
        let about_numbers = Questions::about_numbers(writer, &told);
        self.ask(&about_numbers, &mut told);
        told.finish(writer);
        let circumstances = Circumstances {
            adapter: &adapter,
            select: &select,
            targets: &Targets::default(),
            interval: Duration::from_secs(1),
            window: WINDOW,
            is_partial: self.is_partial,
            notices: vec!["said by the server".to_owned()],
            took: Duration::ZERO,
        };
        let answers = Answers::new(told, circumstances);
        (adapter, answers)
    }

    fn ask(&self, questions: &Questions, told: &mut Told) {
        let changed = |text: &str| self.changes.iter().any(|(of, ..)| *of == text);
        let kept = HEALTHY.iter().filter(|(text, ..)| {
            !changed(text) && !self.without.iter().any(|part| text.contains(part))
        });
        let known: Vec<_> = kept.chain(self.changes).collect();
        let mut series = Vec::new();
        for (number, text) in questions.texts().enumerate() {
            for (_, labels, value) in known.iter().filter(|(of, ..)| *of == text) {
                let labels = labels.split_once('=').into_iter();
                let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
                let tag = ("weir_text".to_owned(), number.to_string());
                series.push((labels.chain([tag]).collect::<Labels>(), *value));
            }
        }
        questions.put(told, series);
    }

    fn snapshot(&self) -> Snapshot {
        let (adapter, answers) = self.answers();
        let mut snapshot = Snapshot::new("", 10.0);
        answers.fill(&mut snapshot, &Arc::from("gateway"), &adapter, None, answers.age_s());
        snapshot
    }
}

#[test]
fn numbers_come_out_as_from_a_page() {
    let snapshot = Case::HEALTHY.snapshot();
    for (path, expected) in [
        ("offered_rps", 40.0),
        // Lazy: none of it on a page that has the rest.
        ("shed_rps", 0.0),
        ("admitted_rps", 40.0),
        ("queue_depth", 3.0),
        // Beyond the last bucket.
        ("latency_p95_s", 1.0),
        // There are states, and none of them is 1.
        ("cooldown.in_cooldown", 0.0),
        ("cooldown.total", 4.0),
    ] {
        assert_eq!(snapshot.number(path), Some(expected), "{path}: {:?}", snapshot.absent);
    }
    let reading = snapshot.get("latency_p95_s").expect("known");
    assert_eq!(reading.quality, Quality::LowerBound);
    assert_eq!(snapshot.get("offered_rps").expect("known").quality, Quality::Exact);
    assert!((snapshot.get("offered_rps").expect("known").age_s - 0.5).abs() < 1e-9);
    // `None` is nobody, and no row; it is in no share either.
    let Some(Value::List(rows)) = snapshot.value("tenants") else { panic!("a list") };
    assert_eq!(rows.len(), 1, "{rows:?}");
}

#[test]
fn what_is_missing_is_unknown_and_says_why() {
    for (case, signal, why) in [
        (
            Case { without: &["all_total"], ..Case::HEALTHY },
            "offered_rps",
            "gateway: does not export all_total",
        ),
        (
            Case { without: &["depth"], ..Case::HEALTHY },
            "queue_depth",
            "gateway: does not export depth",
        ),
        (
            Case { without: &["sum((depth"], ..Case::HEALTHY },
            "queue_depth",
            "gateway: shows no depth, or placeholders only",
        ),
        (
            Case { without: &["took_bucket - "], ..Case::HEALTHY },
            "latency_p95_s",
            "gateway: no took observed in the window",
        ),
        (
            Case { changes: &[("max(count_over_time(up[10s]))", "", 1.0)], ..Case::HEALTHY },
            "offered_rps",
            "gateway: warming up: a rate needs two scrapes within the window",
        ),
        (
            Case { changes: &[("max(count_over_time(up[10s]))", "", 1.0)], ..Case::HEALTHY },
            "shed_rps",
            "gateway: warming up: a rate needs two scrapes within the window",
        ),
        (
            Case { without: &["timestamp("], ..Case::HEALTHY },
            "queue_depth",
            "gateway: Prometheus has none of the metrics of adapter x with {}: check `select`",
        ),
        (
            Case {
                changes: &[(ALL_UP, "", 0.0), ("topk(8, up == 0)", "instance=i-7", 0.0)],
                ..Case::HEALTHY
            },
            "queue_depth",
            "gateway: Prometheus cannot scrape i-7: its last scrape failed",
        ),
    ] {
        let snapshot = case.snapshot();
        assert_eq!(snapshot.absent.get(signal).map(String::as_str), Some(why), "{signal}");
        assert!(!snapshot.signals.contains_key(signal), "{signal}");
    }
}

#[test]
fn doubts_are_kept_and_shown() {
    let reading = |case: &Case<'_>| {
        let snapshot = case.snapshot();
        let reading = snapshot.get("offered_rps").expect("known").clone();
        (reading.value.as_number().expect("a number"), reading.quality, reading.note)
    };
    for (case, value, quality, part) in [
        // A counter that restarted, a target that was not scraped, no `up` at all: an estimate.
        (
            Case { changes: &[("count(resets(all_total[15s]) > 0)", "", 1.0)], ..Case::HEALTHY },
            44.44,
            Quality::Inferred,
            "estimated: a restart",
        ),
        (
            Case { changes: &[(JOINED, "", 1.0)], ..Case::HEALTHY },
            44.44,
            Quality::Inferred,
            "estimated: a restart",
        ),
        (Case { without: &["up)", "up["], ..Case::HEALTHY }, 44.44, Quality::Inferred, "estimated"),
        (
            Case { changes: &[("count(up)", "", 3.0)], ..Case::HEALTHY },
            40.0,
            Quality::LowerBound,
            "1 of 3 instances",
        ),
        (
            Case { is_partial: true, ..Case::HEALTHY },
            40.0,
            Quality::LowerBound,
            "a part of the data is missing",
        ),
    ] {
        let (got, got_quality, note) = reading(&case);
        assert!((got - value).abs() < 1e-9, "{part}: {got}");
        assert_eq!(got_quality, quality, "{part}");
        assert!(note.is_some_and(|note| note.contains(part)), "{part}");
    }
    let (_, answers) = Case::HEALTHY.answers();
    assert_eq!(answers.warnings(), ["said by the server"]);
    assert_eq!(answers.instances(), Some((1, 1)));
}

#[test]
fn all_that_a_newborn_series_has_counted_is_counted() {
    // A difference knows nothing of a series without an earlier value: all of it is added.
    let changes = [(NEWBORN, "code=429", 500.0), (NEWBORN, "code=503", 5.0)];
    let counted = Case { changes: &changes, ..Case::HEALTHY }.snapshot();
    assert_eq!(counted.number("shed_rps"), Some(50.0));
    // An estimate knows what came after its first value: that one is added.
    let changes = [
        (RESTARTED, "", 1.0),
        (NEWBORN_BEGAN, "code=429", 7.0),
        ("sum(increase(lazy_total{code=\"429\"}[10s]))", "", 493.0),
    ];
    let estimated = Case { changes: &changes, ..Case::HEALTHY }.snapshot();
    assert_eq!(estimated.number("shed_rps"), Some(50.0));
    assert_eq!(estimated.get("shed_rps").expect("known").quality, Quality::Inferred);
}

#[test]
fn queries_fit_every_server_and_hold_every_text() {
    let shipped = crate::ingest::Adapters::shipped();
    for name in shipped.names() {
        let adapter = shipped.get(&name).expect("listed");
        let select: Select = r#"job="litellm",namespace="prod""#.parse().expect("matchers");
        let writer = Writer { adapter: &adapter, select: &select, window: WINDOW };
        for questions in [Questions::about_source(writer), Questions::about_history(writer)] {
            let queries = questions.queries();
            assert!(queries.iter().all(|query| query.len() < 16 * 1024), "{name}");
            let tags: usize =
                queries.iter().map(|query| query.matches("\"weir_text\"").count()).sum();
            assert_eq!(tags, questions.texts().count(), "{name}");
            assert!(queries[0].starts_with("label_replace(vector(time())"), "{name}");
        }
    }
}

#[test]
fn a_number_is_told_down_to_what_was_asked() {
    let (adapter, answers) = Case::HEALTHY.answers();
    let name = Arc::from("prometheus");
    let read = |signal| answers.readings(&name, &adapter, None, signal).expect("it answered");
    let readings = read("offered_rps");
    let [reading] = &readings[..] else { panic!("{readings:?}") };
    assert_eq!(reading.outcome, Ok(Value::Number(40.0)));
    let [group] = &reading.series[..] else { panic!("{reading:?}") };
    assert_eq!((group.name.as_str(), group.value), ("sum(increase(all_total))", Some(400.0)));
    let made = read("admitted_rps");
    assert_eq!(made[0].signals, ["offered_rps", "shed_rps"]);
    assert_eq!(made[0].expressions[0].1, "offered_rps - shed_rps");
    let rows = read("tenants");
    let values: Vec<_> = rows[0].series.iter().map(|one| one.value).collect();
    assert_eq!(values, [Some(300.0), Some(100.0)]);
}
