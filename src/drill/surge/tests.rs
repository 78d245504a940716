//! Figures of runs whose reports are made by hand, and of one that is played.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::admission::LATENCY_BOUNDS;

const GATE: &str = r#"
title = "a small surge"
for_s = 30
usd_per_million_tokens = 2.0
[scenario]
name = "small"
title = "18 originals a second against a quota for 6.7"
duration_s = 30
onset_s = 10
max_attempts_configured = 3
[scenario.flags]
"admission.mode" = "enforce"
"retry.owner" = "gateway"
[scenario.provider]
requests = { per_minute = 600, start = 300 }
tokens = { per_minute = 120_000, capacity = 120_000, start = 3_600 }
[scenario.traffic]
tokens = { min = 300, max = 300 }
steps = [{ name = "calm", at_s = 0, rate = 6 }, { name = "storm", at_s = 10, rate = 18 }]
[scenario.expect]
cause = "demand-over-capacity"
after_cure = "demand-over-capacity"
[bounds]
amplification = { max = 1.1 }
early_retries = { max = 0 }
unwanted_attempts = { max = 0 }
permanent_retries = { max = 0 }
"#;

fn gate(text: &str) -> GateFile {
    GateFile::parse("g.toml", text, Path::new("")).expect("right")
}

fn report(totals: Totals, ledger: Option<LedgerReport>) -> Report {
    Report {
        scenario: "small".to_owned(),
        seed: 1,
        total: Duration::from_secs(30),
        onset: Duration::from_secs(10),
        phases: Vec::new(),
        totals,
        verdicts: crate::drill::Verdicts::default(),
        flags: Vec::new(),
        ledger,
        virtual_clock: true,
        remarks: Vec::new(),
    }
}

#[test]
fn figures_are_of_originals_requests_and_the_ledger() {
    let mut latency = vec![0; LATENCY_BOUNDS.len() + 1];
    latency[0] = 100;
    let totals = Totals {
        originals: 100,
        originals_attempted: None,
        served: 40,
        offered: 400,
        admitted: 100,
        shed: 300,
        unwanted_attempts: Some(2),
        latency_admitted: latency.clone(),
        latency_offered: latency,
    };
    let ledger = LedgerReport {
        originals: 50,
        attempts: 60,
        provider_429: 20,
        tokens_sent: 500_000,
        early_repeats: Some(3),
        final_repeats: Some(4),
    };
    let figures = gate(GATE).figures(&report(totals, Some(ledger)));
    for (measure, expected) in [
        (Measure::AcceptanceShare, 0.5),
        (Measure::ServedShare, 0.4),
        (Measure::ShedShare, 0.75),
        (Measure::Amplification, 1.2),
        (Measure::LatencyAdmittedP95, 0.95 * LATENCY_BOUNDS[0]),
        (Measure::LatencyOfferedP99, 0.99 * LATENCY_BOUNDS[0]),
        (Measure::UnwantedAttempts, 2.0),
        (Measure::EarlyRetries, 3.0),
        (Measure::PermanentRetries, 4.0),
        (Measure::CostUsd, 1.0),
    ] {
        let figure = figures.get(&measure).expect("known");
        assert!((figure - expected).abs() < 1e-9, "{}: {figure}", measure.word());
    }
}

#[test]
fn what_nobody_counted_is_unknown_and_does_not_pass() {
    let gate = gate(GATE);
    let figures = gate.figures(&report(Totals::default(), None));
    assert_eq!(figures.get(&Measure::UnwantedAttempts), Some(&0.0), "nobody leaves");
    for unknown in [Measure::ServedShare, Measure::Amplification, Measure::EarlyRetries] {
        assert!(!figures.contains_key(&unknown), "{}", unknown.word());
    }
    let gated = gate.judge(&[figures], &Figures::new(), true);
    assert!(!gated.passed);
    let states: Vec<_> = gated.runs[0].bounds.iter().map(|bound| bound.state).collect();
    assert_eq!(states, [State::Unknown, State::Unknown, State::Kept, State::Unknown]);
}

#[test]
fn a_bound_may_be_asked_on_the_virtual_clock_alone() {
    let text = GATE.replace(
        "unwanted_attempts = { max = 0 }",
        "unwanted_attempts = { max = 0, live = false }",
    );
    let asked = |on_virtual_clock| {
        let gated = gate(&text).judge(&[Figures::new()], &Figures::new(), on_virtual_clock);
        gated.runs[0].bounds.iter().any(|bound| bound.measure == Measure::UnwantedAttempts)
    };
    assert_eq!((asked(true), asked(false)), (true, false));
}

#[test]
fn the_word_of_the_application_decides_about_quality() {
    let gate = gate(&format!("{GATE}[quality]\ngrounded_share = {{ min = 0.9 }}"));
    let mut run: Figures = gate.bounds.iter().map(|bound| (bound.measure, 0.0)).collect();
    run.insert(Measure::GroundedShare, 0.95);
    let state = |run: &Figures, quality: &Figures| {
        let gated = gate.judge(std::slice::from_ref(run), quality, true);
        gated.runs[0].bounds.last().map(|bound| bound.state)
    };
    assert_eq!(state(&run, &Figures::new()), Some(State::Kept), "by the signals");
    let file = Figures::from([(Measure::GroundedShare, 0.8)]);
    assert_eq!(state(&run, &file), Some(State::Broken), "by the file");
    run.remove(&Measure::GroundedShare);
    assert_eq!(state(&run, &Figures::new()), Some(State::Unknown));
}

#[test]
fn a_gate_that_owns_retries_keeps_what_a_storm_of_layers_breaks() {
    let owned = gate(GATE);
    let kept = owned.judge(&owned.play().expect("it plays"), &Figures::new(), true);
    assert!(kept.passed, "{kept:#?}");
    let open = GATE.replace("\"enforce\"", "\"off\"").replace("\"gateway\"", "\"client\"");
    let deaf = "[scenario.layers.sdk]\nobeys_hints = false\nbase_s = 0.001\n[bounds]";
    let open = gate(&open.replace("[bounds]", deaf));
    let broken = open.judge(&open.play().expect("it plays"), &Figures::new(), true);
    let state = |measure| {
        let bounds = &broken.runs[0].bounds;
        bounds.iter().find(|bound| bound.measure == measure).map(|bound| bound.state)
    };
    assert_eq!(state(Measure::Amplification), Some(State::Broken));
    assert_eq!(state(Measure::EarlyRetries), Some(State::Broken), "the SDK reads no hints");
    assert_eq!(state(Measure::PermanentRetries), Some(State::Kept));
}
