//! A short drill with two gateways as processes on one Redis, and without a Redis.
//!
//! Alone in its file, so that no other test takes the processor from it.

mod drill_support;

use std::path::{Path, PathBuf};
use std::process::Command;

use drill_support::{assert_between, assert_ledger_agrees, drill, sum};

/// Thirty originals a second against a quota for twenty that holds two seconds' worth: two gateways
/// that each believed all of it theirs would be refused ten times a second.
const SCENARIO: &str = r#"
name = "two-gateways"
title = "two gateways, one budget"
duration_s = 14
onset_s = 2
max_attempts_configured = 2
[flags]
"admission.mode" = "enforce"
"retry.owner" = "gateway"
[provider]
requests = { per_minute = 6_000 }
tokens = { per_minute = 360_000, capacity = 12_000, start = 0 }
latency = { base_ms = 20, spread_ms = 10 }
[gate]
instances = 2
shared = true
[traffic]
tokens = { min = 300, max = 300 }
steps = [{ name = "calm", at_s = 0, rate = 5 }, { name = "storm", at_s = 2, rate = 30 }]
[layers.sdk]
tries = 1
[expect]
cause = "demand-over-capacity"
after_cure = "healthy"
"#;

fn scenario() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("two-gateways.toml");
    std::fs::write(&path, SCENARIO).expect("the target folder can be written to");
    path
}

#[test]
fn two_gateways_share_a_budget_and_their_sums_are_the_ledger() {
    let path = scenario();
    let path = path.to_str().expect("a UTF-8 path");
    // Two tries more at once is what an interlock refuses: the drill has a token for its harms.
    let harm = ["--set", "retry.max_attempts=4@13s"];
    let report =
        drill(&[&[path, "--headless", "--set", "queue.max_age_s=2@8s"], &harm[..]].concat());
    assert_ledger_agrees(&report);
    assert_eq!(report["flags"][0]["value"], "2", "both took it, or the drill would have ended");
    assert_eq!(report["flags"][1]["value"], "4", "{report}");
    let remarks = report["remarks"].to_string();
    assert!(remarks.contains("sums over 2 gates"), "{remarks}");
    assert_between("refusals", sum(&report, "provider_429"), 0.0, 30.0);
    // At 0.95 of the quota it would be some 250.
    assert_between("attempts", sum(&report, "attempts"), 150.0, 320.0);
}

#[test]
fn without_a_redis_the_error_names_the_package() {
    let empty = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg("drill")
        .arg(scenario())
        .args(["--headless", "--json"])
        .env("PATH", empty.path())
        .output()
        .expect("weir starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("install the package `redis-server`"), "{errors}");
    assert!(errors.contains("--redis URL"), "{errors}");
}
