//! `weir report`: from a recording, with a journal beside it, and from sources that answer now.

mod pages;

use std::path::Path;
use std::process::{Command, Output};

use chrono::{DateTime, TimeDelta, Utc};
use weir::flag::wire::{EventChangeRow, WireOnExpire, WireValue};
use weir::incident::{Event, Journal};

fn weir(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .current_dir(folder)
        .env("XDG_STATE_HOME", folder.join("state"))
        .env("TZ", "UTC")
        .env_remove("WEIR_JOURNAL")
        .output()
        .expect("weir starts")
}

fn report(folder: &Path, arguments: &[&str]) -> String {
    let output = weir(folder, &[&["report"], arguments].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn record(folder: &Path, seconds: &str) {
    let sets = ["--set", "admission.mode=enforce@30s", "--set", "retry.owner=gateway@30s"];
    let run = ["drill", "--virtual", "--for", seconds, "--record", "storm.weir"];
    let output = weir(folder, &[&run[..], &sets].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn second(second: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::seconds(second)
}

fn flip(id: &str, plan: &str, (from, to): (Option<&str>, Option<&str>)) -> Event {
    let word = |word: &str| WireValue::Word(word.to_owned());
    Event::Flip {
        request_id: id.to_owned(),
        plan: plan.to_owned(),
        revision: 4,
        actor: "ann|e".to_owned(),
        incident: None,
        reason: "storm | since *nine*".to_owned(),
        changes: vec![EventChangeRow {
            key: "retry.owner".to_owned(),
            base: word("gateway"),
            from: from.map(word),
            to: to.map(word),
        }],
        ttl_s: None,
        on_expire: WireOnExpire::Remind,
        verify: String::new(),
        store: None,
        notes: Box::default(),
    }
}

#[test]
fn the_report_of_a_drill_is_the_same_text_every_time() {
    let folder = tempfile::tempdir().expect("a folder");
    record(folder.path(), "60s");
    let text = report(folder.path(), &["--recording", "storm.weir"]);
    insta::assert_snapshot!("report-launch-0900", text);
    assert_eq!(report(folder.path(), &["--recording", "storm.weir", "-o", "report.md"]), "");
    let written = std::fs::read_to_string(folder.path().join("report.md")).expect("written");
    assert_eq!(written, text);
}

#[test]
fn a_report_may_end_earlier_and_says_what_was_known_then() {
    let folder = tempfile::tempdir().expect("a folder");
    record(folder.path(), "40s");
    let calm = report(folder.path(), &["--recording", "storm.weir", "--at", "9s"]);
    assert!(calm.contains("**OK: healthy"), "{calm}");
    assert!(!calm.contains("nested-retries"), "{calm}");
    let late = weir(folder.path(), &["report", "--recording", "storm.weir", "--at", "1h"]);
    assert_eq!(late.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&late.stderr).contains("it holds 1s to 40s"));
}

#[test]
fn flips_of_a_journal_stand_with_who_why_and_what_became_of_them() {
    let folder = tempfile::tempdir().expect("a folder");
    record(folder.path(), "40s");
    let file = folder.path().join("journal.jsonl");
    let (journal, _) = Journal::open(&file).expect("a new file");
    let outcome = |id: &str, end: &str| Event::Outcome {
        request_id: id.to_owned(),
        plan: "contain".to_owned(),
        end: end.to_owned(),
        say: "stored at revision 5".to_owned(),
    };
    let note = Event::Note { actor: "bob".to_owned(), text: "paged\nthe <provider>".to_owned() };
    for (at, event) in [
        (20, flip("one", "contain", (Some("client"), None))),
        (21, outcome("one", "applied")),
        (25, note),
        (30, flip("two", "undo contain", (None, Some("client")))),
        (31, outcome("two", "applied")),
        (32, flip("three", "contain", (Some("client"), None))),
        (33, outcome("three", "refused")),
        (500, flip("later", "contain", (Some("client"), None))),
    ] {
        journal.append(&event, second(at)).expect("written");
    }
    let arguments = ["--recording", "storm.weir", "--journal", "journal.jsonl"];
    let text = report(folder.path(), &arguments);
    for line in [
        "| 00:00:20Z | ann\\|e | contain: `retry.owner client -> base` | storm \\| since \\*nine\\* \
         | applied: stored at revision 5 | unknown | 00:00:30Z by ann\\|e |",
        "undo contain: `retry.owner base -> client`",
        "| refused: stored at revision 5 | unknown | no |",
        "note by bob: paged the \\<provider>",
        "- `retry.owner` = `client`, by ann\\|e at 00:00:30Z",
        "- `journal.jsonl`: 8 entries, the chain holds",
        "- no outcome: flip contain by ann|e at revision 4",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("00:08:20Z"), "what came after the recording is left out: {text}");
    let whole = std::fs::read_to_string(&file).expect("it is there");
    std::fs::write(&file, whole.replacen("stored at", "stored AT", 1)).expect("written");
    let text = report(folder.path(), &arguments);
    assert!(text.contains("**the chain is broken**") && text.contains("line 2"), "{text}");
}

#[test]
fn the_incident_of_now_is_told_from_the_sources() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = "# TYPE weir_originals_total counter\nweir_originals_total{scope=\"a/b/c\"} 5\n";
    let url = pages::serve(move || Some(page.as_bytes().to_vec()));
    let config = format!(
        "environment = \"staging\"\n[[source]]\nname = \"gateway\"\nadapter = \"weir\"\nurl = \"{url}\"\n"
    );
    std::fs::write(folder.path().join("weir.toml"), config).expect("written");
    let text = report(folder.path(), &["-c", "weir.toml", "--for", "3s"]);
    for line in [
        "# Incident report: weir, staging",
        "## Scope `a/b/c`",
        "insufficient-evidence",
        "Unknown: no flag store is configured; add \\[flags\\].",
        "there is no journal at",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let neither = weir(folder.path(), &["report"]);
    assert_eq!(neither.status.code(), Some(2));
}
