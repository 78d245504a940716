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
fn what_signals_prints_and_a_gateway_answers_is_diagnosed_too() {
    let plain: Json = serde_json::from_str(STORM).expect("an object");
    let rows: serde_json::Map<String, Json> = plain
        .as_object()
        .expect("an object")
        .iter()
        .filter(|(name, _)| *name != "window_s")
        .map(|(name, value)| {
            let row = serde_json::json!({
                "value": value, "quality": "exact", "source": "gw-a", "age_s": 1.0, "note": null,
            });
            (name.clone(), row)
        })
        .collect();
    let printed = serde_json::json!({
        "scope": "openai/acct-1", "window_s": 60.0, "signals": rows,
        "absent": [{ "name": "reset_s", "why": "the provider sends no reset" }],
    });
    let mut answered = printed.clone();
    answered["absent"] = serde_json::json!({ "reset_s": "the provider sends no reset" });
    let answered = serde_json::json!({ "scopes": [answered] });
    for document in [printed.to_string(), answered.to_string()] {
        let output = weir(&["diagnose", "--snapshot", "-", "--json"], &document);
        assert_eq!(output.status.code(), Some(10), "{}", String::from_utf8_lossy(&output.stderr));
        let verdict: Json = serde_json::from_slice(&output.stdout).expect("one document");
        assert_eq!(verdict["cause"], "nested-retries");
        assert_eq!(verdict["scope"], "openai/acct-1");
    }
    let half = printed.to_string().replacen("\"quality\":\"exact\"", "\"quality\":7", 1);
    let output = weir(&["diagnose", "--snapshot", "-"], &half);
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("-:1: `signals`: ") && words.contains("weir signals --json"), "{words}");
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
    assert!(String::from_utf8_lossy(&shown.stdout).starts_with("Triage: "));
    let raw = weir(&["runbook", "show", "triage", "--raw"], "");
    assert!(String::from_utf8_lossy(&raw.stdout).starts_with("# Triage: "));
    let lint = weir(&["runbook", "lint"], "");
    assert_eq!(lint.status.code(), Some(0), "{}", String::from_utf8_lossy(&lint.stdout));
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tpm-exhausted.test.toml");
    let told = weir(&["runbook", "format"], "");
    assert!(String::from_utf8_lossy(&told.stdout).contains("[[case.expect]]"));
    let test = weir(&["runbook", "test", data, "--json"], "");
    let result: Json = serde_json::from_slice(&test.stdout).expect("one document");
    assert_eq!((test.status.code(), &result["expectations"]), (Some(0), &Json::from(5)));
}

#[test]
fn a_neighbour_that_cannot_be_read_is_left_out_of_a_test_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    for file in ["tpm-exhausted.runbook.md", "tpm-exhausted.test.toml"] {
        std::fs::copy(format!("{data}/{file}"), dir.path().join(file)).expect("copied");
    }
    std::fs::write(dir.path().join("half.runbook.md"), "# half a thought").expect("written");
    let tests = dir.path().join("tpm-exhausted.test.toml");
    let output = weir(&["runbook", "test", tests.to_str().expect("text")], "");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("half.runbook.md:1: error WRB001"), "{said}");
    assert!(said.starts_with("left out"), "{said}");
}

#[test]
fn every_verdict_says_how_complete_it_is_and_where_to_fetch_the_rest() {
    let output = weir(&["diagnose", "--snapshot", "-"], STORM);
    let text = String::from_utf8(output.stdout).expect("text");
    let line = text.lines().find(|line| line.starts_with("used ")).expect("a completeness line");
    assert!(line.contains(" signals; missing: "), "{line}");
    assert!(line.contains("timeout_share (needs timeout_rps)"), "{line}");
    let hint = "  retry_header_share: the client's log or metrics";
    assert!(text.contains(hint), "{text}");
    let output = weir(&["diagnose", "--snapshot", "-", "--json"], STORM);
    let verdict: Json = serde_json::from_slice(&output.stdout).expect("one document");
    let missing = verdict["missing"].as_array().expect("a list");
    let (used, of) = (verdict["used"].as_u64(), verdict["of"].as_u64());
    assert_eq!(of.zip(used).map(|(of, used)| of - used), Some(missing.len() as u64));
    for one in missing {
        assert!(one["fetch"].as_str().is_some_and(|text| !text.is_empty()), "{one}");
    }
    let roles = ["contributing", "consequence", "other"];
    for other in verdict["also"].as_array().expect("a list") {
        assert!(roles.iter().any(|role| other["role"] == *role), "{other}");
        assert!(other["for"].is_u64() && other["against"].is_u64() && other["unknown"].is_u64());
    }
}

#[test]
fn all_explains_every_cause_once() {
    let args =
        ["diagnose", "--snapshot", "-", "--json", "--explain", "all", "--explain", "healthy"];
    let listed = weir(&args, STORM);
    let verdict: Json = serde_json::from_slice(&listed.stdout).expect("one document");
    let explained = verdict["explain"].as_array().expect("a list");
    let causes: std::collections::BTreeSet<&str> =
        explained.iter().filter_map(|one| one["cause"].as_str()).collect();
    assert_eq!(causes.len(), explained.len());
    assert!(causes.len() > 25, "{causes:?}");
    let primary: Vec<&Json> = explained.iter().filter(|one| one["role"] == "primary").collect();
    assert_eq!(primary.len(), 1);
    assert_eq!(primary[0]["cause"], verdict["cause"]);
}

#[test]
fn a_cause_is_explained_in_words_and_as_json() {
    let args =
        ["diagnose", "--snapshot", "-", "--explain", "rpm-exhausted", "--explain", "hard-quota"];
    let output = weir(&args, STORM);
    assert_eq!(output.status.code(), Some(10));
    let text = String::from_utf8(output.stdout).expect("text");
    for words in ["why not rpm-exhausted: ", "why not hard-quota: ", "  requires (all must be T)"] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    let output = weir(&[&args[..], &["--json"]].concat(), STORM);
    let verdict: Json = serde_json::from_slice(&output.stdout).expect("one document");
    let explained = verdict["explain"].as_array().expect("a list");
    assert_eq!(explained.len(), 2);
    for key in ["cause", "standing", "role", "for", "against", "unknown", "way", "grounds", "turns"]
    {
        assert!(!explained[0][key].is_null(), "{key}");
    }
    let ground = &explained[0]["grounds"][0];
    assert_eq!(ground["kind"], "requires");
    assert!(ground["evidence"][0]["predicate"].is_string());
    assert_eq!(weir(&["diagnose", "--snapshot", "-", "--json"], STORM).stdout.len(), {
        let mut bare = verdict.clone();
        bare.as_object_mut().expect("an object").remove("explain");
        bare.to_string().len() + 1
    });
}

#[test]
fn a_cause_that_is_not_there_names_those_that_are() {
    let output = weir(&["diagnose", "--snapshot", "-", "--explain", "moon-phase"], STORM);
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8(output.stderr).expect("text");
    assert!(words.contains("there is no cause `moon-phase`"), "{words}");
    assert!(words.contains("nested-retries") && words.contains("tpm-exhausted"), "{words}");
}

#[test]
fn a_saved_walk_is_shown_and_a_file_that_is_none_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("incident.walk.json");
    let name = file.to_str().expect("text");
    let library = weir::runbook::embedded();
    let zero = chrono::DateTime::UNIX_EPOCH;
    let mut walk = weir::runbook::Walk::start(library).of("openai/acct-1", zero);
    let facts = weir::diagnosis::Facts::default();
    walk.advance(&facts, weir::signal::Mono::START).expect("a decision");
    walk.hand_over("ann", "ben", "nothing known yet", weir::signal::Mono::START).expect("room");
    std::fs::write(&file, walk.write("ann", zero)).expect("written");
    let shown = weir(&["runbook", "walk", name], "");
    let text = String::from_utf8(shown.stdout).expect("text");
    assert_eq!(shown.status.code(), Some(0), "{}", String::from_utf8_lossy(&shown.stderr));
    for words in [
        "walk of openai/acct-1 at triage/",
        "1 1970-01-01T00:00:00Z triage/who Who refused?",
        "handed over by ann to ben",
        "why this step",
        "it tells apart:",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    std::fs::write(&file, &walk.write("ann", zero)[..90]).expect("written");
    let refused = weir(&["runbook", "walk", name], "");
    assert_eq!(refused.status.code(), Some(1));
    let words = String::from_utf8(refused.stderr).expect("text");
    assert!(words.contains("incident.walk.json: the file ends in the middle"), "{words}");
}
