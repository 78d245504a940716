//! The verdict second by second, over a storm in the shape of the default drill: 60 originals a
//! second, then 180, a token meter that gives 66.7 a second, layers that multiply.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir::diagnosis::{Diagnoser, Heading, Standing, Verdict, verdict_to_json};
use weir::runbook;
use weir::signal::{Mono, Snapshot, Value};

const ONSET_S: i32 = 10;
const WINDOW_S: i32 = 10;
const TPM_LIMIT: f64 = 1_200_000.0;
const TOKENS: f64 = 300.0;
const REFILL: f64 = 20_000.0;

/// What happened in one second.
#[derive(Clone, Copy, Default)]
struct Second {
    originals: f64,
    offered: f64,
    admitted: f64,
    attempted_originals: f64,
    attempts: f64,
    success: f64,
    tokens_left: f64,
}

/// Seconds of the drill; `cure_s` is when the plan `contain` lands, if it does.
fn seconds(total: i32, cure_s: Option<i32>) -> Vec<Second> {
    let mut level = 36_000.0;
    let mut seconds = Vec::new();
    for t in 0..total {
        let since_onset = f64::from(t - ONSET_S);
        let originals = if t < ONSET_S { 60.0 } else { 180.0 };
        let cured = cure_s.is_some_and(|cure| t >= cure);
        level = f64::min(level + REFILL, TPM_LIMIT);
        let fits = (level / TOKENS).floor();
        let attempts = if cured {
            67.0
        } else if t < ONSET_S {
            60.0
        } else {
            (180.0 + 250.0 * (since_onset - 1.0).max(0.0)).min(1_680.0)
        };
        let success = f64::min(if cured { 65.3 } else { attempts }, fits);
        level -= success * TOKENS;
        let (offered, admitted) = if cured { (190.0, 66.0) } else { (attempts, attempts) };
        let attempted_originals = if cured { 65.5 } else { originals };
        seconds.push(Second {
            originals,
            offered,
            admitted,
            attempted_originals,
            attempts,
            success,
            tokens_left: level,
        });
    }
    seconds
}

/// What ingest makes of the last ten seconds.
fn snapshot(seconds: &[Second], cured: bool) -> Snapshot {
    let recent = &seconds[seconds.len().saturating_sub(WINDOW_S.unsigned_abs() as usize)..];
    let span: f64 = recent.iter().map(|_| 1.0).sum();
    let rate = |part: fn(&Second) -> f64| recent.iter().map(part).sum::<f64>() / span;
    let refused = rate(|s| s.attempts - s.success);
    let shed = rate(|s| s.offered - s.admitted);
    let left = seconds.last().map_or(0.0, |second| second.tokens_left);
    let numbers = [
        ("originals_rps", rate(|s| s.originals)),
        ("offered_rps", rate(|s| s.offered)),
        ("admitted_rps", rate(|s| s.admitted)),
        ("shed_rps", shed),
        ("gate_429_rps", shed),
        ("gate_503_rps", 0.0),
        ("attempts_rps", rate(|s| s.attempts)),
        ("success_rps", rate(|s| s.success)),
        ("provider_429_rps", refused),
        ("provider_429_tokens_rps", refused),
        ("provider_503_rps", 0.0),
        ("provider_5xx_other_rps", 0.0),
        ("provider_4xx_other_rps", 0.0),
        ("timeout_rps", 0.0),
        ("amplification", rate(|s| s.attempts) / rate(|s| s.attempted_originals)),
        ("max_attempts_configured", if cured { 2.0 } else { 3.0 }),
        ("tpm_limit", TPM_LIMIT),
        ("tpm_remaining", left),
        ("rpm_limit", 6_000.0),
        ("rpm_remaining", 4_000.0),
        ("tokens_per_request", TOKENS),
        ("queue_oldest_age_s", if cured { 9.8 } else { 0.0 }),
        ("latency_p95_s", if cured { 10.2 } else { 1.0 }),
        ("provider_latency_p95_s", 0.4),
    ];
    let mut snapshot = Snapshot::new("openai/acct-1/embed", f64::from(WINDOW_S));
    let source = Arc::from("gateway");
    for (name, number) in numbers {
        snapshot.set(name, Value::Number(number), &source);
    }
    let mut codes = BTreeMap::new();
    if refused > 0.0 {
        codes.insert("rate_limit_exceeded:tokens".to_owned(), Value::Number(refused * span));
    }
    if shed > 0.0 {
        codes.insert("gate:weir_queue_full".to_owned(), Value::Number(shed * span));
    }
    snapshot.set("error_codes", Value::Map(codes), &source);
    snapshot
}

fn play(total: i32, cure_s: Option<i32>) -> Vec<(i32, Verdict)> {
    let seconds = seconds(total, cure_s);
    let mut diagnoser = Diagnoser::new(runbook::embedded());
    (0..total)
        .map(|t| {
            let so_far = &seconds[..=usize::try_from(t).expect("positive")];
            let cured = cure_s.is_some_and(|cure| t >= cure);
            (t, diagnoser.step(&snapshot(so_far, cured), Mono::from_secs_f64(f64::from(t))))
        })
        .collect()
}

fn story(verdicts: &[(i32, Verdict)]) -> String {
    let line = |(t, v): &(i32, Verdict)| format!("{t:4} {} {}", v.cause, v.standing);
    verdicts.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_calm_is_healthy_though_the_meter_is_nearly_empty() {
    let verdicts = play(ONSET_S, None);
    for (t, verdict) in &verdicts {
        assert_eq!(verdict.cause, "healthy", "at {t}\n{}", story(&verdicts));
        assert!(verdict.notes.contains(&"at-limit".to_owned()), "at {t}: {:?}", verdict.notes);
    }
}

#[test]
fn the_storm_is_named_and_confirmed_in_time_and_never_looks_cured() {
    let verdicts = play(ONSET_S + 120, None);
    let story = story(&verdicts);
    let first = |wanted: Standing| {
        verdicts
            .iter()
            .find(|(_, v)| v.cause == "nested-retries" && v.standing >= wanted)
            .map_or(i32::MAX, |(t, _)| t - ONSET_S)
    };
    assert!(first(Standing::Likely) <= 15, "{story}");
    assert!(first(Standing::Confirmed) <= 30, "{story}");
    for (t, verdict) in &verdicts {
        let since = t - ONSET_S;
        let tpm_confirmed =
            verdict.cause == "tpm-exhausted" && verdict.standing == Standing::Confirmed;
        assert!(!tpm_confirmed, "at {since}\n{story}");
        if since >= 15 {
            assert_eq!(verdict.cause, "nested-retries", "at {since}\n{story}");
            assert_eq!(verdict.plan.as_deref(), Some("contain"));
        }
        if since >= 4 {
            assert_ne!(verdict.cause, "healthy", "at {since}\n{story}");
        }
    }
}

#[test]
fn after_the_cure_demand_is_above_capacity() {
    let verdicts = play(120, Some(30));
    let story = story(&verdicts);
    for (t, verdict) in verdicts.iter().filter(|(t, _)| *t >= 45) {
        assert_eq!(verdict.cause, "demand-over-capacity", "at {t}\n{story}");
        // What is proven is confirmed a window later.
        let wanted = if *t < 55 { Standing::Likely } else { Standing::Confirmed };
        assert!(verdict.standing >= wanted, "at {t}\n{story}");
    }
    assert!(verdicts.iter().skip(14).all(|(_, v)| v.cause != "healthy"), "{story}");
}

#[test]
fn the_first_mover_of_the_storm_is_the_load() {
    let verdicts = play(ONSET_S + 60, None);
    let (_, last) = verdicts.last().expect("played");
    let first = last.onsets.first().expect("the load tripled");
    assert_eq!((&*first.signal, first.way), ("originals_rps", Heading::Up), "{:?}", last.onsets);
    let off = first.at.as_secs_f64() - f64::from(ONSET_S);
    assert!((0.0..=2.0).contains(&off), "{off}");
    let times = last.onsets.iter().map(|one| one.at);
    assert!(times.is_sorted(), "{:?}", last.onsets);
    let refused = last.onsets.iter().position(|one| &*one.signal == "provider_429_rps");
    assert!(refused.is_some_and(|place| place > 0), "{:?}", last.onsets);
    let json = &verdict_to_json(last)["onsets"][0];
    assert_eq!(
        (json["signal"].as_str(), json["moved"].as_str()),
        (Some("originals_rps"), Some("rose"))
    );
    let ago = json["ago_s"].as_f64().expect("a number");
    assert!((57.0..=60.0).contains(&ago), "{ago}");
    assert!(json["from"].as_f64() < json["to"].as_f64());
    let calm = &verdicts[usize::try_from(ONSET_S).expect("positive") - 1].1;
    assert!(calm.onsets.is_empty(), "{:?}", calm.onsets);
}
