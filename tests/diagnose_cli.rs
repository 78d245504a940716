//! `weir diagnose` and `weir runbook` as programs call them: documents on stdout, exit codes.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value as Json;

fn weir(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

const STORM: &str = r#"{"window_s":60,"originals_rps":1,"offered_rps":1,"attempts_rps":8.6,
"success_rps":0.9,"provider_429_rps":7.7,"provider_503_rps":0,"gate_429_rps":0,"gate_503_rps":0,
"max_attempts_configured":3,"rpm_limit":500,"rpm_remaining":0}"#;
const HEALTHY: &str = r#"{"originals_rps":9,"offered_rps":9,"attempts_rps":9,"success_rps":9,
"provider_429_rps":0,"provider_503_rps":0,"provider_5xx_other_rps":0,"provider_4xx_other_rps":0,
"timeout_rps":0,"gate_429_rps":0,"gate_503_rps":0}"#;

#[test]
fn one_snapshot_is_one_document_and_its_exit_code() {
    let check = |input: &str, cause: &str, code: i32| {
        let output = weir(&["diagnose", "--snapshot", "-", "--json"], input);
        assert_eq!(output.status.code(), Some(code), "{cause}");
        let verdict: Json = serde_json::from_slice(&output.stdout).expect("one document");
        assert_eq!(verdict["cause"], cause);
        for field in
            ["standing", "scope", "path", "evidence", "also", "missing", "used", "of", "runbook"]
        {
            assert!(!verdict[field].is_null(), "{cause}: {field}");
        }
        let evidence = &verdict["evidence"][0];
        assert!(evidence["predicate"].is_string() && evidence["state"].is_string(), "{evidence}");
    };
    check(STORM, "nested-retries", 10);
    check(HEALTHY, "healthy", 0);
    check("{}", "insufficient-evidence", 11);
}

#[test]
fn json_lines_give_a_line_each_in_order() {
    let input = format!("{}\n\n{}\n", STORM.replace('\n', ""), HEALTHY.replace('\n', ""));
    let output = weir(&["diagnose", "--snapshot", "-", "--json"], &input);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).expect("text");
    let causes: Vec<Json> = text
        .lines()
        .map(|line| serde_json::from_str::<Json>(line).expect("a document")["cause"].clone())
        .collect();
    assert_eq!(causes, ["nested-retries", "healthy"]);
}

#[test]
fn people_read_the_verdict_first() {
    let output = weir(&["diagnose", "--snapshot", "-"], STORM);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.starts_with("nested-retries  confirmed"), "{text}");
    assert!(text.contains("  T amplification[fast] > max_attempts_configured * 1.1"), "{text}");
    assert!(text.contains("next: plan contain"), "{text}");
}

#[test]
fn bad_input_names_file_and_line() {
    let output = weir(&["diagnose", "--snapshot", "-"], "{\"attempts_rps\": 1}\nnonsense\n");
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8(output.stderr).expect("text");
    assert!(words.contains("-:2:"), "{words}");
}

#[test]
fn runbooks_are_listed_shown_linted_and_tested() {
    let listed = weir(&["runbook", "list"], "");
    assert!(String::from_utf8_lossy(&listed.stdout).contains("nested-retries"));
    let shown = weir(&["runbook", "show", "triage"], "");
    assert!(String::from_utf8_lossy(&shown.stdout).starts_with("# Triage"));
    let lint = weir(&["runbook", "lint"], "");
    assert_eq!(lint.status.code(), Some(0), "{}", String::from_utf8_lossy(&lint.stdout));
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tpm-exhausted.test.toml");
    let test = weir(&["runbook", "test", data, "--json"], "");
    let result: Json = serde_json::from_slice(&test.stdout).expect("one document");
    assert_eq!((test.status.code(), &result["expectations"]), (Some(0), &Json::from(5)));
}
