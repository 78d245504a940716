//! Recordings as a person has them: made by a drill, killed, replayed, judged, cut and attached.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir::incident::recording::{Damage, Reader, Replay};
use weir::runbook;

/// Recordings that are killed while they are written.
const KILLS: u32 = 100;
/// How long a recording may take to begin.
const PATIENCE: Duration = Duration::from_mins(1);

fn weir(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().expect("weir starts")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr)))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The recording of a virtual drill, and the report of the run that was recorded.
fn recorded(folder: &Path, seconds: &str) -> (PathBuf, Value) {
    let file = folder.join("drill.weir");
    let run = weir(&["drill", "--virtual", "--for", seconds, "--json", "--record", path(&file)]);
    (file, json(&run))
}

#[test]
fn a_replay_gives_the_verdict_that_the_run_gave() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, report) = recorded(folder.path(), "80s");
    let judged = weir(&["diagnose", "--recording", path(&file), "--json"]);
    assert_eq!(judged.status.code(), Some(10), "a cause was found");
    assert_eq!(json(&judged), report["verdict_final"]);
    let onset_s = report["onset_s"].as_f64().expect("a time");
    let confirmed_s = onset_s + report["verdict_after_s"].as_f64().expect("a time");
    for (at_s, standing) in [(confirmed_s, "confirmed"), (confirmed_s - 1.0, "likely")] {
        let at = format!("{at_s}s");
        let shown = json(&weir(&["replay", path(&file), "--json", "--at", &at]));
        let verdict = &shown["verdicts"][0];
        assert_eq!(
            (&verdict["cause"], &verdict["standing"]),
            (&Value::from("nested-retries"), &Value::from(standing),)
        );
        assert_eq!(shown["at_s"].as_f64(), Some(at_s));
    }
    let calm = weir(&["diagnose", "--recording", path(&file), "--at", "9s", "--json"]);
    assert_eq!(json(&calm)["cause"], "healthy");
    let late = weir(&["diagnose", "--recording", path(&file), "--at", "2h"]);
    assert!(text(&late.stderr).contains("it holds 1s to 80s"), "{}", text(&late.stderr));
}

#[test]
fn the_same_drill_makes_the_same_recording() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, _) = recorded(folder.path(), "15s");
    let first = std::fs::read(&file).expect("a file");
    std::fs::remove_file(&file).expect("it is there");
    recorded(folder.path(), "15s");
    assert!(first == std::fs::read(&file).expect("a file"));
}

#[test]
fn a_part_and_a_copy_without_names_say_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, _) = recorded(folder.path(), "200s");
    let (part, bare) = (folder.path().join("part.weir"), folder.path().join("bare.weir"));
    let done = weir(&[
        "recording",
        "cut",
        path(&file),
        "--from",
        "150s",
        "--to",
        "180s",
        "-o",
        path(&part),
    ]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let done = weir(&["recording", "anonymise", path(&file), "-o", path(&bare)]);
    assert!(text(&done.stdout).contains("names replaced"), "{}", text(&done.stdout));
    let judge = |file: &Path, at: &str| {
        json(&weir(&["diagnose", "--recording", path(file), "--at", at, "--json"]))
    };
    for at in ["150s", "163s", "180s"] {
        let whole = judge(&file, at);
        assert_eq!(judge(&part, at), whole, "{at}");
        let mut hidden = judge(&bare, at);
        assert_ne!(hidden["scope"], whole["scope"]);
        hidden["scope"] = whole["scope"].clone();
        assert_eq!(hidden, whole, "{at}");
    }
    assert!(!weir(&["diagnose", "--recording", path(&part), "--at", "140s"]).status.success());
    let info = json(&weir(&["recording", "info", path(&part), "--json"]));
    assert_eq!((info["from_s"].as_f64(), info["to_s"].as_f64()), (Some(150.0), Some(180.0)));
    assert_eq!(info["looks"], 31);
}

/// How many bytes of the drill's recording its header and its first look take.
fn to_the_first_look(folder: &Path) -> u64 {
    let (whole, _) = recorded(folder, "3s");
    let bytes = std::fs::read(&whole).expect("a recording");
    let cut = folder.join("cut.weir");
    let has_none = |length: &usize| {
        std::fs::write(&cut, &bytes[..*length]).expect("a file");
        Reader::open(&cut).and_then(|reader| reader.info()).is_err()
    };
    let lengths: Vec<usize> = (0..=bytes.len()).collect();
    u64::try_from(lengths.partition_point(has_none)).expect("a length")
}

#[test]
fn whatever_was_whole_when_the_recorder_was_killed_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = runbook::embedded();
    let one_look = to_the_first_look(folder.path());
    for round in 0..KILLS {
        let file = folder.path().join(format!("{round}.weir"));
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["drill", "--virtual", "--for", "12h", "--record", path(&file)])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("weir starts");
        // Another length each time, so that it is caught at another place of its work.
        let wanted = one_look + u64::from(round * round) % 4_000;
        let until = Instant::now() + PATIENCE;
        while std::fs::metadata(&file).map_or(0, |file| file.len()) < wanted {
            assert!(Instant::now() < until, "it does not record");
            std::thread::yield_now();
        }
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        let info = Reader::open(&file).expect("a recording").info().expect("a look");
        assert!(!matches!(info.damage, Some(Damage::Changed { .. })), "{:?}", info.damage);
        let mut replay = Replay::open(&file, Arc::clone(&library)).expect("it opens");
        replay.seek(info.to).expect("the last look");
        std::fs::remove_file(&file).expect("it is there");
    }
}

#[test]
fn a_runbook_test_takes_a_recording() {
    let folder = tempfile::tempdir().expect("a folder");
    recorded(folder.path(), "40s");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("runbooks/nested-retries.runbook.md");
    std::fs::copy(source, folder.path().join("nested-retries.runbook.md")).expect("a runbook");
    let run = |evidence: &str| {
        let test = folder.path().join("a.test.toml");
        let case = format!(
            "runbook = \"nested-retries.runbook.md\"\n[[case]]\nname = \"the storm\"\n\
             recording = \"drill.weir\"\n[[case.expect]]\nat = \"35s\"\nevidence = {{ {evidence} }}\n"
        );
        std::fs::write(&test, case).expect("a file");
        weir(&["runbook", "test", path(&test)])
    };
    let good = run("marked_retries = \"true\"");
    assert!(good.status.success(), "{}{}", text(&good.stdout), text(&good.stderr));
    let bad = run("one_each = \"true\"");
    assert_eq!(bad.status.code(), Some(1), "{}", text(&bad.stderr));
    assert!(text(&bad.stdout).contains("a.test.toml:"), "{}", text(&bad.stdout));
}

#[test]
fn errors_name_the_file_and_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("x.weir");
    std::fs::write(&file, "{}").expect("a file");
    for arguments in [
        &["replay", path(&file), "--json"][..],
        &["diagnose", "--recording", path(&file)],
        &["recording", "info", path(&file)],
        &["drill", "--virtual", "--for", "2s", "--record", path(&file)],
    ] {
        let output = weir(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("x.weir") && output.stdout.is_empty(), "{arguments:?}: {said}");
    }
    assert_eq!(std::fs::read(&file).expect("a file"), b"{}", "nothing is written over");
}

#[test]
fn a_screen_of_a_recording_is_printed_without_a_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, _) = recorded(folder.path(), "40s");
    let draw = |arguments: &[&str]| {
        let output = weir(&[&["replay", path(&file), "--at", "35s"], arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let overview = draw(&["--screen", "overview", "--size", "80x24"]);
    assert_eq!(overview.lines().count(), 24);
    assert!(overview.contains("INCIDENT nested-retries"), "{overview}");
    assert!(
        overview.lines().all(|line| line.chars().count() <= 80) && !overview.contains('\u{1b}')
    );
    let diagnosis = draw(&["--screen", "diagnose", "--format", "ansi"]);
    assert!(diagnosis.contains("\u{1b}[") && diagnosis.lines().count() == 40, "{diagnosis}");
    let image = draw(&["--screen", "overview", "--format", "svg", "--theme", "light"]);
    assert!(image.starts_with("<svg ") && image.trim_end().ends_with("</svg>"));
    assert!(image.contains("fill=\"#fafafa\"") && image.contains("nested-retries"));
    assert_eq!(draw(&["--screen", "overview", "--format", "svg", "--theme", "light"]), image);
    for (arguments, words) in [
        (["--at=35s", "--screen=cockpit"], "name one of diagnose, flags, "),
        (["--at=35s", "--size=80x24"], "--screen"),
        (["--screen=overview", "--size=0x9"], "is no size"),
        (["--screen=overview", "--theme=mauve"], "name one of dark, light"),
    ] {
        let refused = weir(&[&["replay", path(&file)][..], &arguments].concat());
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains(words), "{arguments:?}: {said}");
    }
}
