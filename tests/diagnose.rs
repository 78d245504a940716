//! Verdicts on the public incidents, and over time in the shape of the default drill.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use weir::diagnosis::{
    Diagnoser, INSUFFICIENT, Standing, Verdict, diagnose_once, snapshot_from_json, verdict_to_json,
};
use weir::runbook;
use weir::signal::{Mono, Snapshot, Value};

const INCIDENTS: &str = include_str!("data/incidents.jsonl");

/// The causes that must be named right on every full set.
const FIRST: [&str; 8] = [
    "nested-retries",
    "tpm-exhausted",
    "rpm-exhausted",
    "retry-backlog",
    "provider-overload",
    "hard-quota",
    "demand-over-capacity",
    "healthy",
];

fn cases() -> impl Iterator<Item = Json> {
    INCIDENTS.lines().map(|line| serde_json::from_str(line).expect("a line of JSON"))
}

fn verdict(case: &Json, set: &str) -> Verdict {
    let object = case[set].as_object().expect("a set of signals");
    let (snapshot, strangers) = snapshot_from_json(object, "case");
    assert_eq!(strangers, Vec::<String>::new(), "{}", case["id"]);
    diagnose_once(&runbook::embedded(), &snapshot)
}

fn word<'a>(case: &'a Json, key: &str) -> &'a str {
    case[key].as_str().expect("a word")
}

/// One line per case and set that is not a plain hit, and the counts.
fn table() -> String {
    let mut table = String::new();
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for case in cases() {
        for set in ["sparse", "full"] {
            let verdict = verdict(&case, set);
            let cause = word(&case, "cause");
            let outcome = match verdict.cause.as_str() {
                named if named == cause => "hit",
                INSUFFICIENT => "insufficient",
                _ => "wrong",
            };
            let confirmed = verdict.standing == Standing::Confirmed;
            *counts.entry((set, outcome)).or_default() += 1;
            if confirmed {
                let key = if outcome == "hit" { "hit, confirmed" } else { "wrong, confirmed" };
                *counts.entry((set, key)).or_default() += 1;
            }
            if outcome != "hit" || !confirmed {
                let (id, named, standing) = (word(&case, "id"), verdict.cause, verdict.standing);
                let _ =
                    writeln!(table, "{id} {set:6} {outcome:12} {cause:22} -> {named} {standing}");
            }
        }
    }
    for ((set, outcome), count) in counts {
        let _ = writeln!(table, "{set:6} {outcome:18} {count}");
    }
    table
}

#[test]
fn full_sets_of_the_first_causes_are_named_right() {
    for case in cases().filter(|case| FIRST.contains(&word(case, "cause"))) {
        let verdict = verdict(&case, "full");
        assert_eq!(verdict.cause, word(&case, "cause"), "{}\n{}", case["id"], table());
    }
}

#[test]
fn sparse_sets_of_the_first_causes_are_right_or_open() {
    for case in cases().filter(|case| FIRST.contains(&word(case, "cause"))) {
        let named = verdict(&case, "sparse").cause;
        let fine = named == word(&case, "cause") || named == INSUFFICIENT;
        assert!(fine, "{}: {named}\n{}", case["id"], table());
    }
}

#[test]
fn no_wrong_cause_is_confirmed_and_none_that_is_excluded_is_named() {
    for case in cases() {
        for set in ["sparse", "full"] {
            let verdict = verdict(&case, set);
            let right = verdict.cause == word(&case, "cause");
            let confirmed = verdict.standing == Standing::Confirmed;
            assert!(right || !confirmed, "{} {set}: {}\n{}", case["id"], verdict.cause, table());
            let excluded = case["not"].as_array().expect("a list");
            let named = excluded.iter().any(|cause| cause == verdict.cause.as_str());
            assert!(!named, "{} {set}: {}\n{}", case["id"], verdict.cause, table());
        }
    }
}

/// A repeatable factor between 0.88 and 1.12 for one key of one case.
fn shake(seed: u64) -> f64 {
    let mixed = seed
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .rotate_left(31)
        .wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let unit = f64::from(u32::try_from(mixed >> 32).expect("32 bits")) / f64::from(u32::MAX);
    0.88 + 0.24 * unit
}

#[test]
fn shaken_numbers_keep_the_verdict() {
    let (mut all, mut kept, mut wrong) = (0, 0, String::new());
    for seed in 0..40_u64 {
        for (number, mut case) in (1..).zip(cases()) {
            let id = word(&case, "id").to_owned();
            let cause = word(&case, "cause").to_owned();
            let set = case["full"].as_object_mut().expect("a set of signals");
            for (place, (_, value)) in (1..).zip(set.iter_mut()) {
                if let Some(plain) = value.as_f64() {
                    *value = (plain * shake(seed * 1_000_003 + number * 1_009 + place)).into();
                }
            }
            let verdict = verdict(&case, "full");
            all += 1;
            if verdict.cause == cause {
                kept += 1;
            } else {
                let _ = writeln!(wrong, "{id} {cause} -> {} {}", verdict.cause, verdict.standing);
            }
        }
    }
    assert!(kept * 100 >= all * 93, "{kept} of {all}\n{wrong}");
}

/// Full sets with one key taken out, as case, key and verdict.
fn without_one_key() -> Vec<(Json, String, Verdict)> {
    let mut verdicts = Vec::new();
    for case in cases() {
        let keys: Vec<String> = case["full"].as_object().expect("a set").keys().cloned().collect();
        for key in keys {
            let mut less = case.clone();
            less["full"].as_object_mut().expect("a set").remove(&key);
            let verdict = verdict(&less, "full");
            verdicts.push((case.clone(), key, verdict));
        }
    }
    verdicts
}

#[test]
fn a_lost_key_confirms_no_wrong_cause() {
    for (case, key, verdict) in without_one_key() {
        let id = word(&case, "id");
        let wrong = verdict.cause != word(&case, "cause");
        let confirmed = verdict.standing == Standing::Confirmed;
        assert!(!(wrong && confirmed), "{id} without {key}: {}", verdict.cause);
    }
}

/// Takes the counters out of a set and puts their sum in as one.
fn merge(set: &mut serde_json::Map<String, Json>, counters: &[&str], into: &str) {
    let mut sum = 0.0;
    for counter in counters {
        let old = set.remove(*counter);
        sum += old.as_ref().and_then(Json::as_f64).unwrap_or(0.0);
    }
    set.insert(into.to_owned(), sum.into());
}

#[test]
fn one_counter_for_429_and_503_confirms_no_wrong_cause() {
    let provider = ["provider_429_rps", "provider_503_rps"];
    let gate = ["gate_429_rps", "gate_503_rps"];
    let all = [provider, gate].concat();
    let mergings: [&[(&[&str], &str)]; 3] =
        [&[(&provider, provider[0]), (&gate, gate[0])], &[(&all, provider[0])], &[(&all, gate[0])]];
    let mut wrong = String::new();
    for (merging, case) in mergings.iter().flat_map(|merging| cases().map(move |c| (merging, c))) {
        for rest_reads_zero in [false, true] {
            let mut merged = case.clone();
            let set = merged["full"].as_object_mut().expect("a set");
            for (counters, into) in *merging {
                merge(set, counters, into);
            }
            if rest_reads_zero {
                for counter in &all {
                    set.entry(*counter).or_insert(0.into());
                }
            }
            let verdict = verdict(&merged, "full");
            let right = verdict.cause == word(&case, "cause");
            if !right && verdict.standing == Standing::Confirmed {
                let (id, cause, named) = (&case["id"], &case["cause"], verdict.cause);
                let into: Vec<&str> = merging.iter().map(|(_, into)| *into).collect();
                let _ = writeln!(wrong, "{id} {cause} -> {named}: {into:?}, {rest_reads_zero}");
            }
        }
    }
    assert_eq!(wrong, "");
}

#[test]
fn a_number_that_came_as_something_else_is_unknown_and_no_zero() {
    let case = cases().find(|case| word(case, "id") == "C001").expect("a case");
    let told = |wrong: Json| {
        let mut object = case["full"].as_object().expect("signals").clone();
        object.insert("provider_429_rps".to_owned(), wrong);
        let (snapshot, _) = snapshot_from_json(&object, "case");
        let verdict = diagnose_once(&runbook::embedded(), &snapshot);
        (verdict.cause, verdict.standing)
    };
    let unknown = told(Json::Null);
    assert_eq!(told(json!("2.6")), unknown);
}

/// Traffic that is well: launches, deployments, a quiet night, a full meter, with sources missing.
fn healthy_set() -> impl Strategy<Value = Json> {
    let load = (0.5..500.0_f64, 0.2..4.0_f64, 0.0..0.008_f64, 1.0..1.15_f64);
    let room = (0.0..1.0_f64, 0.0..1.0_f64, 1.0..5_000.0_f64);
    let sources = prop::collection::vec(any::<bool>(), 4);
    (load, room, sources).prop_map(|((rate, growth, trickle, retried), room, known)| {
        let (tpm, rpm, deployed_min) = room;
        let attempts = rate * retried;
        let mut set = json!({
            "window_s": 60, "originals_rps": rate, "offered_rps": rate, "admitted_rps": rate,
            "shed_rps": 0, "attempts_rps": attempts, "success_rps": attempts * (1.0 - trickle),
            "provider_429_rps": attempts * trickle, "provider_503_rps": 0,
            "provider_5xx_other_rps": 0, "provider_4xx_other_rps": 0, "timeout_rps": 0,
            "max_attempts_configured": 3, "tpm_limit": 1_000_000, "tpm_remaining": tpm * 1e6,
            "rpm_limit": 6_000, "rpm_remaining": rpm * 6e3,
        });
        let groups = [
            json!({"gate_429_rps": 0, "gate_503_rps": 0, "queue_oldest_age_s": 0.3}),
            json!({"originals_rps_15m_ago": rate / growth, "originals_rps_1h_ago": rate / growth}),
            json!({"minutes_since_deploy": deployed_min, "tokens_per_request": 300}),
            json!({"latency_p95_s": 2.0, "provider_latency_p95_s": 1.8, "loop_lag_s": 0.002}),
        ];
        for (group, _) in groups.iter().zip(known).filter(|(_, known)| *known) {
            for (key, value) in group.as_object().expect("an object") {
                set[key] = value.clone();
            }
        }
        set
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn healthy_traffic_has_no_cause(set in healthy_set()) {
        let (snapshot, _) = snapshot_from_json(set.as_object().expect("an object"), "test");
        let verdict = diagnose_once(&runbook::embedded(), &snapshot);
        prop_assert_eq!(verdict.cause, "healthy");
    }

    #[test]
    fn no_number_panics(numbers in prop::collection::vec(any::<f64>(), 12)) {
        let names = [
            "originals_rps", "offered_rps", "attempts_rps", "success_rps", "provider_429_rps",
            "gate_429_rps", "tpm_limit", "tpm_remaining", "max_attempts_configured",
            "queue_oldest_age_s", "served_share", "window_s",
        ];
        let mut snapshot = Snapshot::new("scope", numbers[11]);
        for (name, number) in names.iter().zip(&numbers) {
            snapshot.set(name, Value::Number(*number), &Arc::from("test"));
        }
        let verdict = diagnose_once(&runbook::embedded(), &snapshot);
        prop_assert!(verdict.used <= verdict.of);
        let _ = verdict_to_json(&verdict).to_string();
        let mut diagnoser = Diagnoser::new(runbook::embedded());
        for second in 0..3_u32 {
            diagnoser.step(&snapshot, Mono::from_secs_f64(f64::from(second)));
        }
    }
}
