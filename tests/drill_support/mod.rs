//! Runs `weir drill --json` and reads its report.

use std::process::Command;

use serde_json::Value;

pub fn drill(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg("drill")
        .args(arguments)
        .arg("--json")
        .output()
        .expect("weir starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON document")
}

pub fn phases(report: &Value) -> &Vec<Value> {
    report["phases"].as_array().expect("phases")
}

pub fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} is a number in {value}"))
}

pub fn sum(report: &Value, key: &str) -> f64 {
    phases(report).iter().map(|phase| number(phase, key)).sum()
}

pub fn assert_between(what: &str, value: f64, low: f64, high: f64) {
    assert!((low..=high).contains(&value), "{what} is {value}, wanted {low} to {high}");
}

/// Provider and gate, counted apart, must say the same to the last request.
pub fn assert_ledger_agrees(report: &Value) {
    for (ours, theirs) in
        [("attempts", "attempts"), ("provider_429", "provider_429"), ("tokens_sent", "tokens_sent")]
    {
        let counted = report["ledger"][theirs].as_f64().expect("a count");
        assert_between(ours, sum(report, ours), counted, counted);
    }
}
