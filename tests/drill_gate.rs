//! `weir drill --gate` and `--check` as a pipeline uses them: exit codes, one document, errors with
//! their place.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Eighteen originals a second for half a minute against a quota for 6.7, the gate being the only one
/// that retries.
const GATE: &str = r#"title = "small & quick"
[scenario]
name = "small"
title = "a small surge"
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
after_cure = "healthy"
[bounds]
amplification = { max = 1.1 }
early_retries = { max = 0 }
"#;

fn drill(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.current_dir(folder).arg("drill").args(arguments).output().expect("weir starts")
}

/// Runs a gate of this text: exit code, standard output, standard error.
fn gate(text: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("gate.toml"), text).expect("written");
    std::fs::write(folder.path().join("q.jsonl"), "{\"grounded_share\": 0.5}\n").expect("written");
    let mut all = vec!["--gate", "gate.toml"];
    all.extend(arguments);
    let output = drill(folder.path(), &all);
    let junit = std::fs::read_to_string(folder.path().join("gate.xml")).unwrap_or_default();
    let out = String::from_utf8(output.stdout).expect("text") + &junit;
    (output.status.code(), out, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn bounds_that_are_kept_end_well_and_those_that_break_do_not() {
    let (code, table, errors) = gate(GATE, &[]);
    assert_eq!(code, Some(0), "{table}{errors}");
    assert!(
        table.contains("ok   amplification") && table.contains("every bound is kept"),
        "{table}"
    );

    let strict = GATE.replace("{ max = 1.1 }", "{ max = 0.5 }");
    let (code, out, _) = gate(&strict, &["--junit", "gate.xml"]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("FAIL amplification") && out.contains("the gate is closed"), "{out}");
    assert!(
        out.contains("<testsuites name=\"small &amp; quick\" tests=\"2\" failures=\"1\""),
        "{out}"
    );
    assert!(out.contains("<failure type=\"broken\" message=\"amplification is 1"), "{out}");
}

#[test]
fn json_is_one_document_and_the_same_each_time() {
    let play = || gate(GATE, &["--json"]).1;
    let text = play();
    let document: Value = serde_json::from_str(&text).expect("one document");
    assert_eq!(document["passed"], true);
    assert_eq!(document["virtual"], true);
    let bound = &document["runs"][0]["bounds"][1];
    assert_eq!((&bound["measure"], &bound["state"]), (&"early_retries".into(), &"kept".into()));
    assert_eq!(text, play());
}

#[test]
fn quality_is_unknown_until_the_application_says_it() {
    let asks = |min: &str| format!("{GATE}[quality]\ngrounded_share = {{ min = {min} }}\n");
    let (code, table, _) = gate(&asks("0.4"), &[]);
    assert_eq!(code, Some(1));
    assert!(table.contains("unknown"), "{table}");
    assert_eq!(gate(&asks("0.4"), &["--quality", "q.jsonl"]).0, Some(0));
    assert_eq!(gate(&asks("0.6"), &["--quality", "q.jsonl"]).0, Some(1));
}

#[test]
fn a_file_that_cannot_be_used_is_told_from_a_bound_that_breaks() {
    for (from, to, words) in [
        ("rate = 18", "rate = -18", "gate.toml:16:"),
        ("amplification", "amplify", "`bounds.amplify`: no such figure"),
        ("[bounds]", "bounds", "gate.toml:"),
    ] {
        let (code, out, errors) = gate(&GATE.replacen(from, to, 1), &[]);
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.starts_with("error: ") && errors.contains(words), "{errors}");
        assert_eq!(out, "");
    }
    let missing = gate(GATE, &["--quality", "no.json"]);
    assert_eq!(missing.0, Some(2));
    assert!(missing.2.contains("cannot read no.json"), "{}", missing.2);
    let folder = tempfile::tempdir().expect("a folder");
    for arguments in [&["--gate", "none.toml"][..], &["--junit", "x.xml"], &["--all"]] {
        assert_eq!(drill(folder.path(), arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_scenario_that_does_not_show_what_it_says_fails_its_check() {
    let folder = tempfile::tempdir().expect("a folder");
    let scenario = GATE.split("[bounds]").next().expect("a scenario").replace("scenario.", "");
    let scenario = scenario.split("[scenario]\n").nth(1).expect("its keys").to_owned();
    let write = |evidence: &str| {
        let text = format!("{scenario}evidence = ['{evidence}']\n");
        std::fs::write(folder.path().join("mine.toml"), text).expect("written");
    };
    let check = |more: &[&str]| {
        let mut all = vec!["mine.toml", "--check", "--json"];
        all.extend(more);
        let output = drill(folder.path(), &all);
        let code = output.status.code();
        (code, output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    write("shed_rps[fast] > 2");
    let (code, out, errors) = check(&["--seeds", "2"]);
    assert_eq!(code, Some(0), "{errors}");
    let document: Value = serde_json::from_slice(&out).expect("one document");
    assert_eq!(document["runs"].as_array().map(Vec::len), Some(2));
    assert_eq!(document["runs"][1]["seed"], 2);
    write("amplification[fast] > 1000");
    assert_eq!(check(&[]).0, Some(1), "what is impossible never appears");
    write("amplification[fast]");
    let (code, out, errors) = check(&[]);
    assert_eq!((code, out), (Some(1), Vec::new()));
    assert!(errors.contains("mine.toml:") && errors.contains("`expect.evidence`"), "{errors}");
}
