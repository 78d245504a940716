//! The default drill and what must come out of it, on the virtual clock.
//!
//! The bounds are those of the incident's arithmetic: 20,000 tokens/s carry 66.7 questions/s, 180/s
//! are asked, three layers of three tries multiply. `drill_live.rs` holds the live run against it.

mod drill_support;

use std::process::Command;

use drill_support::{assert_between, assert_ledger_agrees, drill, number, phases, sum};

use serde_json::Value;

const CONTAIN: [&str; 6] = [
    "--set",
    "admission.mode=enforce@30s",
    "--set",
    "retry.owner=gateway@30s",
    "--set",
    "retry.max_attempts=2@30s",
];

/// The phases from `from_s` on.
fn after(report: &Value, from_s: f64) -> Vec<&Value> {
    phases(report).iter().filter(|phase| number(phase, "from_s") >= from_s).collect()
}

#[test]
fn the_storm_is_staged_named_and_counted_exactly() {
    let report = drill(&["--virtual", "--for", "60s"]);
    assert_ledger_agrees(&report);
    let ledger_originals = report["ledger"]["originals"].as_f64().expect("a count");
    assert_between("originals", sum(&report, "originals"), ledger_originals, ledger_originals);
    let storm = &phases(&report)[1];
    assert_eq!(storm["name"], "storm");
    assert_between("amplification", number(storm, "amplification"), 6.0, 9.5);
    assert_between("attempts/s", number(storm, "attempts") / 50.0, 1_300.0, 1_800.0);
    assert_between("served/s", number(storm, "originals_served") / 50.0, 64.0, 72.0);
    assert_eq!(report["verdict"]["cause"], "nested-retries");
    assert_eq!(report["verdict"]["standing"], "confirmed");
    assert_between("named_after_s", number(&report, "named_after_s"), 0.0, 15.0);
    assert_between("verdict_after_s", number(&report, "verdict_after_s"), 0.0, 30.0);
    assert_eq!(report["verdict_final"]["cause"], "nested-retries", "nothing has cured it");
}

#[test]
fn containing_it_breaks_the_loop_and_says_that_demand_stays() {
    for scenario in ["launch-0900", "deaf-wrapper"] {
        let mut arguments = vec![scenario, "--virtual", "--for", "120s"];
        arguments.extend(CONTAIN);
        let report = drill(&arguments);
        assert_ledger_agrees(&report);
        for phase in after(&report, 45.0) {
            assert_between("amplification", number(phase, "amplification"), 0.99, 1.1);
            let refused = number(phase, "provider_429") / number(phase, "attempts");
            assert_between("provider 429 share", refused, 0.0, 0.02);
            let seconds = number(phase, "to_s") - number(phase, "from_s");
            let used = number(phase, "tokens_sent") / (20_000.0 * seconds);
            assert_between("token quota used", used, 0.92, 1.02);
            assert_between("oldest age", number(phase, "queue_oldest_age_max_s"), 0.0, 10.0);
            assert_between("admitted p95", number(phase, "latency_admitted_p95_s"), 0.1, 11.0);
            let served = number(phase, "originals_served") / number(phase, "originals");
            assert_between("served share", number(phase, "served_share"), served, served);
            assert_between("served share", served, 0.3, 0.42);
            if scenario == "launch-0900" {
                let asked = number(phase, "client_multiplication");
                assert_between("client multiplication", asked, 1.0, 1.3);
            }
        }
        if scenario == "launch-0900" {
            assert_eq!(report["verdict_final"]["cause"], "demand-over-capacity");
        }
    }
}

#[test]
fn a_shorter_queue_shortens_the_wait() {
    let mut arguments = vec!["--virtual", "--for", "120s"];
    arguments.extend(CONTAIN);
    arguments.extend(["--set", "queue.max_age_s=2@70s"]);
    let report = drill(&arguments);
    for phase in after(&report, 85.0) {
        assert_between("admitted p95", number(phase, "latency_admitted_p95_s"), 0.1, 3.0);
        assert_between("oldest age", number(phase, "queue_oldest_age_max_s"), 0.0, 2.0);
    }
}

#[test]
fn the_same_seed_gives_the_same_bits_and_another_does_not() {
    let of = |seed: &str| drill(&["--virtual", "--for", "30s", "--seed", seed]);
    assert_eq!(of("7"), of("7"));
    assert_ne!(of("7")["ledger"], of("8")["ledger"]);
}

#[test]
fn ten_simulated_minutes_are_played() {
    let report = drill(&["--virtual", "--for", "10m"]);
    assert_between("seconds", number(&report, "seconds"), 600.0, 600.0);
    assert!(sum(&report, "attempts") > 500_000.0);
}

#[test]
fn what_cannot_be_staged_is_refused_with_the_reason() {
    let cases: [(&[&str], i32, &str); 6] = [
        (&["no-such-scenario"], 1, "launch-0900"),
        (&["--virtual", "--set", "retry.max_attempts=9@1s"], 2, "from 1 to 4"),
        (&["--virtual", "--set", "retry.max_attempts=2"], 2, "FLAG=VALUE@TIME"),
        (&["--virtual", "--for", "10s", "--set", "retry.max_attempts=2@30s"], 1, "after the end"),
        (&["--for", "soon"], 2, "90s, 5m"),
        (&["--list", "--nonsense"], 2, "--nonsense"),
    ];
    for (arguments, code, words) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_weir"))
            .arg("drill")
            .args(arguments)
            .output()
            .expect("weir starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(words), "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty(), "{arguments:?} prints nothing else");
    }
}
