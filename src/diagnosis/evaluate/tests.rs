//! What predicates say over one snapshot and over a history.

use super::*;
use crate::diagnosis::derive::complete;
use crate::diagnosis::history::Single;
use crate::diagnosis::ring::Ring;
use crate::signal::Snapshot;
use proptest::prelude::*;
use std::sync::Arc;

fn at(seconds: f64) -> Mono {
    Mono::from_secs_f64(seconds)
}

fn once(text: &str, signals: &[(&str, Value)]) -> Evidence {
    let mut snapshot = Snapshot::new("scope", 60.0);
    for (name, value) in signals {
        snapshot.set(name, value.clone(), &Arc::from("test"));
    }
    let predicate = Predicate::parse(text).expect(text);
    let done = complete(&snapshot);
    evaluate(&predicate, &mut Hold::default(), &Single(&done), at(0.0))
}

#[test]
fn predicates_are_true_false_or_unknown() {
    let number = Value::Number;
    let breaker = Value::Map(BTreeMap::from([("state".into(), Value::Text("open".into()))]));
    let codes = Value::Map(BTreeMap::from([("insufficient_quota".into(), number(9.0))]));
    let signals = [
        ("amplification", number(9.0)),
        ("max_attempts_configured", number(3.0)),
        ("originals_rps", number(4.0)),
        ("originals_rps_15m_ago", number(9.0)),
        ("breaker", breaker),
        ("error_codes", codes),
        ("failover_on_429", Value::Bool(false)),
    ];
    let check = |text: &str, expected: Truth| {
        assert_eq!(once(text, &signals).state, expected, "{text}");
    };
    check("amplification[1m] > 3 for 10m", Truth::True);
    check("amplification > max_attempts_configured * 1.1", Truth::True);
    check("amplification > max_attempts_configured * 3", Truth::False);
    check("amplification > reset_s", Truth::Unknown);
    check("originals_rps < originals_rps@15m * 0.7", Truth::True);
    check("originals_rps < originals_rps@1h * 0.7", Truth::Unknown);
    check("tpm_headroom < 5%", Truth::Unknown);
    check("breaker.state is open", Truth::True);
    check("breaker.state is not open", Truth::False);
    check("cooldown.state is open", Truth::Unknown);
    check("breaker.state < 3", Truth::Unknown);
    check("failover_on_429 is false", Truth::True);
    check("error_codes matching /insufficient_quota/ > 50%", Truth::True);
    check("error_codes matching /tokens/ > 1%", Truth::False);
}

#[test]
fn the_text_value_and_reason_are_kept() {
    let evidence = once("tpm_headroom[1m] < 5% for 30s", &[("tpm_remaining", Value::Number(1.0))]);
    assert_eq!(evidence.predicate, "tpm_headroom[1m] < 5% for 30s");
    assert_eq!(evidence.threshold, Some(0.05));
    assert_eq!(evidence.reason.as_deref(), Some("no-data: needs tpm_limit"));
}

/// Steps one predicate through (second, value) and returns the states as `T`, `F`, `?`, `p`.
fn play(text: &str, values: &[(f64, Option<f64>)]) -> String {
    let predicate = Predicate::parse(text).expect(text);
    let mut watch = Watch::default();
    watch.add(&predicate);
    let mut ring = Ring::new(watch.paths());
    let mut states = String::new();
    for (second, value) in values {
        let mut snapshot = Snapshot::new("scope", 10.0);
        if let Some(value) = value {
            snapshot.set("queue_depth", Value::Number(*value), &Arc::from("test"));
        }
        ring.push(Arc::new(complete(&snapshot)), at(*second));
        let evidence = watch.step(&ring, at(*second)).remove(0);
        states.push(match (evidence.state, evidence.pending) {
            (Truth::True, _) => 'T',
            (Truth::False, _) => 'F',
            (Truth::Unknown, true) => 'p',
            (Truth::Unknown, false) => '?',
        });
    }
    states
}

#[test]
fn for_counts_at_the_exact_deadline() {
    let high = |second| (second, Some(9.0));
    let text = "queue_depth > 5 for 3s";
    assert_eq!(play(text, &[high(0.0), high(2.999), high(3.0), high(4.0)]), "ppTT");
    assert_eq!(play(text, &[high(0.0), (2.0, Some(5.0)), high(3.0), high(6.0)]), "pFpT");
}

#[test]
fn clear_holds_on_until_its_bound() {
    let text = "queue_depth > 5 clear 2";
    let values = [9.0, 4.0, 2.5, 2.0, 4.0].map(Some);
    let steps: Vec<_> = [0.0, 1.0, 2.0, 3.0, 4.0].into_iter().zip(values).collect();
    assert_eq!(play(text, &steps), "TTTFF");
}

#[test]
fn a_lost_scrape_is_unknown_and_does_not_start_over() {
    let text = "queue_depth > 5 for 3s";
    let high = |second| (second, Some(9.0));
    assert_eq!(play(text, &[high(0.0), (2.0, None), high(4.0)]), "p?T");
    assert_eq!(play(text, &[high(0.0), (20.0, None), (40.0, None), high(41.0)]), "p??p");
}

/// The evidence of one predicate after `play` of one signal a second, for each of them.
fn after(text: &str, seconds: u32, signals: &[(&str, &dyn Fn(f64) -> f64)]) -> Evidence {
    let mut watch = Watch::default();
    watch.add(&Predicate::parse(text).expect(text));
    let mut ring = Ring::new(watch.paths()).following(&watch.movers());
    let mut last = None;
    for second in (0..seconds).map(f64::from) {
        let mut snapshot = Snapshot::new("scope", 10.0);
        for (name, value) in signals {
            snapshot.set(name, Value::Number(value(second)), &Arc::from("test"));
        }
        ring.push(Arc::new(complete(&snapshot)), at(second));
        last = watch.step(&ring, at(second)).pop();
    }
    last.expect("stepped")
}

#[test]
fn a_trend_is_told_with_its_levels() {
    let grows = |t: f64| t / 10.0;
    let rising = "queue_oldest_age_s rising 10m";
    let evidence = after(rising, 700, &[("queue_oldest_age_s", &grows)]);
    assert_eq!((evidence.state, evidence.pending), (Truth::True, false), "{evidence:?}");
    assert_eq!(evidence.reason.as_deref(), Some("from 17.4 to 62.5"));
    let falling = after("queue_oldest_age_s falling 10m", 700, &[("queue_oldest_age_s", &grows)]);
    assert_eq!(falling.state, Truth::False);
    let early = after(rising, 400, &[("queue_oldest_age_s", &grows)]);
    assert_eq!((early.state, early.reason.as_deref()), (Truth::Unknown, Some("warming-up")));
    let held =
        after("queue_oldest_age_s rising 5m for 10m", 700, &[("queue_oldest_age_s", &grows)]);
    assert!(held.pending, "{held:?}");
}

#[test]
fn an_order_is_told_with_the_seconds_between() {
    let step = |when: f64| move |t: f64| if t < when { 1.0 } else { 9.0 };
    let (early, late) = (step(100.0), step(114.0));
    let signals: [(&str, &dyn Fn(f64) -> f64); 2] =
        [("latency_p50_s", &early), ("provider_429_rps", &late)];
    let yes = after("latency_p50_s rose before provider_429_rps", 200, &signals);
    assert_eq!(yes.state, Truth::True, "{yes:?}");
    let seen = "latency_p50_s rose 14 s before provider_429_rps rose";
    assert_eq!(yes.reason.as_deref(), Some(seen));
    let no = after("provider_429_rps rose before latency_p50_s", 200, &signals);
    assert_eq!((no.state, no.reason.as_deref()), (Truth::False, Some(seen)));
}

#[test]
fn one_snapshot_has_no_trend_and_no_order() {
    let signals = [("latency_p95_s", Value::Number(9.0)), ("attempts_rps", Value::Number(9.0))];
    for text in ["latency_p95_s rising 10m", "latency_p95_s rose before attempts_rps"] {
        let evidence = once(text, &signals);
        let found = (evidence.state, evidence.reason.as_deref());
        assert_eq!(found, (Truth::Unknown, Some("no-baseline")), "{text}");
    }
    let absent = once("latency_p95_s rose before reset_s", &signals);
    assert_eq!(absent.reason.as_deref(), Some("no-data"));
}

#[test]
fn counts_over_time_are_asked_like_anything_else() {
    let bars = [("1", 60.0), ("2", 40.0)].map(|(key, n)| (key.to_owned(), Value::Number(n)));
    let signals = [
        ("attempts_histogram", Value::Map(BTreeMap::from(bars))),
        ("breaker_opens_per_hour", Value::Number(5.0)),
    ];
    assert_eq!(once("retried_originals_share > 30%", &signals).state, Truth::True);
    assert_eq!(once("retried_originals_share > 50%", &signals).state, Truth::False);
    assert_eq!(once("breaker_opens_per_hour > 3", &signals).state, Truth::True);
}

proptest! {
    #[test]
    fn no_value_panics(
        value in any::<f64>(),
        other in any::<f64>(),
        name in prop::sample::select(vec!["attempts_rps", "tpm_remaining", "amplification"]),
    ) {
        let signals = [
            (name, Value::Number(value)),
            ("originals_rps", Value::Number(other)),
            ("tpm_limit", Value::Number(other)),
        ];
        for text in ["amplification > 3", "tpm_headroom < 5%", "originals_rps > tpm_limit * -2"] {
            once(text, &signals);
        }
    }
}
