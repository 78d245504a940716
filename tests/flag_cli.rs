//! `weir flag` and `weir audit` as a shell sees them: output, exit codes, journal.
//!
//! The admin API behind them is the fake of `fake_admin`.

mod fake_admin;
mod storm_signals;

use std::path::Path;

use fake_admin::{Fake, TOKEN};
use serde_json::Value;
use tokio::process::Command;
use weir::diagnosis::snapshot_from_json;

/// A finished run.
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}

struct Shell {
    fake: Fake,
    home: tempfile::TempDir,
}

impl Shell {
    async fn new() -> Self {
        Self { fake: Fake::start().await, home: tempfile::tempdir().expect("a directory") }
    }

    async fn weir(&self, args: &[&str]) -> Ran {
        let output = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(args)
            .env_clear()
            .env("HOME", self.home.path())
            .env("USER", "alice")
            .env("WEIR_ADMIN_URL", &self.fake.url)
            .env("WEIR_ADMIN_TOKEN", TOKEN)
            .stdin(std::process::Stdio::null())
            .output()
            .await
            .expect("the binary runs");
        Ran {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).expect("UTF-8"),
            err: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    fn journal(&self) -> std::path::PathBuf {
        self.home.path().join(Path::new(".local/state/weir/journal.jsonl"))
    }
}

#[tokio::test]
async fn contain_from_a_script_and_its_traces() {
    let shell = Shell::new().await;
    let set = shell.weir(&["flag", "set", "contain", "--reason", "storm", "--yes", "--json"]).await;
    assert_eq!(set.code, Some(0), "{}", set.err);
    let set = set.json();
    assert_eq!((set["end"].as_str(), set["revision"].as_u64()), (Some("applied"), Some(42)));
    assert_eq!((set["effective_on"].as_u64(), set["instances"].as_u64()), (Some(1), Some(1)));

    let events = shell.weir(&["flag", "events", "--json"]).await.json();
    assert_eq!(events["events"][0]["actor"], "alice");
    assert_eq!(events["events"][0]["reason"], "storm");

    let again = shell.weir(&["flag", "set", "contain", "--reason", "storm", "--yes"]).await;
    assert_eq!((again.code, shell.fake.changes()), (Some(0), 1), "{}", again.out);

    let kept = shell.weir(&["audit", "verify", "--gateway", &shell.fake.url, "--json"]).await;
    assert_eq!(kept.code, Some(0), "{}", kept.err);
    assert_eq!(kept.json()["gateway"]["held"], 1, "the flip was anchored: {}", kept.out);
    let audit = shell.weir(&["audit", "verify", "--json"]).await;
    assert_eq!(audit.code, Some(0), "{}", audit.err);
    assert_eq!(audit.json()["entries"], 2, "one flip, one outcome");

    let text = std::fs::read_to_string(shell.journal()).expect("it was written");
    assert!(!text.contains(TOKEN), "the token is in the journal");
    std::fs::write(shell.journal(), text.replace("storm", "dream")).expect("the disk is there");
    let audit = shell.weir(&["audit", "verify"]).await;
    assert_eq!(audit.code, Some(1));
    assert!(audit.err.contains("journal.jsonl, line 1:"), "{}", audit.err);
}

#[tokio::test]
async fn an_ill_gate_is_opened_from_a_shell_too_and_all_safe_leaves_it_alone() {
    let shell = Shell::new().await;
    let set = async |change: &str| {
        shell.weir(&["flag", "set", change, "--reason", "storm", "--yes"]).await.code
    };
    assert_eq!(set("contain").await, Some(0));
    let shadow = ["flag", "plan", "admission.mode=shadow", "--json"];
    let refused = |ran: &Ran| ran.json()["refused"].as_str().map(str::to_owned);
    assert!(refused(&shell.weir(&shadow).await).is_some(), "nothing says that the gate is ill");
    let ill = serde_json::json!({
        "window_s": 10, "originals_rps": 25, "offered_rps": 60, "attempts_rps": 2, "success_rps": 2,
        "provider_429_rps": 0, "provider_503_rps": 0, "shed_rps": 58, "rpm_limit": 6000,
        "error_codes": { "gate:weir_concurrency": 290 }, "inflight_gauge": 31,
        "inflight_limit": 32, "inflight_actual": 3, "tpm_headroom": 0.9, "rpm_headroom": 0.95,
    });
    let ill = snapshot_from_json(ill.as_object().expect("an object"), "gateway").0;
    shell.fake.give(&ill);
    let plan = shell.weir(&shadow).await;
    assert_eq!(refused(&plan), None, "{}", plan.out);
    assert!(
        plan.out.contains("our own gate is the confirmed refuser: leaked-permits"),
        "{}",
        plan.out
    );
    let safe = shell.weir(&["flag", "safe", "--yes"]).await;
    assert_eq!(safe.code, Some(0), "{}", safe.err);
    assert!(safe.out.contains("(the gate itself refuses)"), "{}", safe.out);
}

#[tokio::test]
async fn a_journal_whose_end_was_cut_is_found_by_what_the_gateway_keeps() {
    let shell = Shell::new().await;
    for change in ["retry.owner=gateway", "admission.mode=enforce"] {
        let set = shell.weir(&["flag", "set", change, "--reason", "storm", "--yes"]).await;
        assert_eq!(set.code, Some(0), "{}", set.err);
    }
    let verify = ["audit", "verify", "--gateway", &shell.fake.url];
    let whole = shell.weir(&verify).await;
    assert!(whole.out.contains("has 2 of its flips, all are in the chain"), "{}", whole.out);
    let text = std::fs::read_to_string(shell.journal()).expect("it was written");
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    std::fs::write(shell.journal(), lines[..2].concat()).expect("the disk is there");
    let chain = shell.weir(&["audit", "verify"]).await;
    assert_eq!(chain.code, Some(0), "what is left is a chain: {}", chain.err);
    let cut = shell.weir(&verify).await;
    assert_eq!(cut.code, Some(1), "{}", cut.out);
    assert!(cut.err.contains("has seen entry 3 of this journal"), "{}", cut.err);
}

#[tokio::test]
async fn nothing_is_sent_that_nobody_has_confirmed() {
    let shell = Shell::new().await;
    let check = async |args: &[&str], code: i32, part: &str| {
        let ran = shell.weir(args).await;
        assert_eq!(ran.code, Some(code), "{args:?}: {}{}", ran.out, ran.err);
        let said = format!("{}{}", ran.out, ran.err);
        assert!(said.contains(part), "{args:?}: {said}");
        assert_eq!(shell.fake.changes(), 0, "{args:?}");
    };
    let storm = &["flag", "set", "contain", "--reason", "storm"];
    check(storm, 2, "--yes").await;
    check(&[storm as &[_], &["--dry-run"]].concat(), 0, "off -> enforce").await;
    check(&["flag", "set", "contain", "--yes"], 1, "needs a reason").await;
    check(&[storm as &[_], &["--yes", "--if-revision", "40"]].concat(), 1, "revision 41, not 40")
        .await;
    check(&["flag", "set", "retry.owner=me", "--yes"], 2, "gateway, client").await;
    check(&["flag", "set", "retry.max=1", "--yes"], 2, "no flag `retry.max`").await;
    check(&["flag", "undo", "--yes"], 0, "nothing to change").await;
    check(&["flag", "undo", "9", "--yes"], 1, "no event 9").await;
    let up = &["flag", "set", "retry.max_attempts=4", "--reason", "more", "--yes"];
    check(up, 1, "admission.mode is enforce").await;
}

#[tokio::test]
async fn the_way_back_into_the_storm_shows_the_evidence_against_it() {
    let shell = Shell::new().await;
    let safe = shell.weir(&["flag", "safe", "--yes"]).await;
    assert_eq!(safe.code, Some(0), "{}", safe.err);
    let shown = shell.weir(&["flag", "undo", "--dry-run"]).await;
    assert!(shown.out.contains("F amplification < 1.1: 9.30"), "{}", shown.out);
    assert_eq!(shell.fake.changes(), 1, "a look changes nothing");
    let undo = shell.weir(&["flag", "undo", "--yes"]).await;
    assert_eq!(undo.code, Some(0), "it warns, and the person decides: {}", undo.out);
    assert_eq!(shell.fake.changes(), 2);
}

#[tokio::test]
async fn undo_twice_takes_back_the_change_before() {
    let shell = Shell::new().await;
    let stored = async |key: &str| {
        shell.weir(&["flag", "get", key, "--json"]).await.json()["override"].clone()
    };
    for change in ["retry.max_attempts=2", "cache.enabled=true"] {
        let set = shell.weir(&["flag", "set", change, "--reason", "calm", "--yes"]).await;
        assert_eq!(set.code, Some(0), "{}{}", set.out, set.err);
    }
    let undo = &["flag", "undo", "--yes", "--reason", "enough"];
    let first = shell.weir(undo).await;
    assert_eq!(first.code, Some(0), "{}{}", first.out, first.err);
    assert_eq!(stored("cache.enabled").await, Value::Null);
    let second = shell.weir(&[undo as &[_], &["--dry-run"]].concat()).await;
    assert!(second.out.contains("plan undo 1 "), "{}{}", second.out, second.err);
    assert!(second.out.contains("retry.max_attempts 2 -> 3"), "{}", second.out);
}

#[tokio::test]
async fn without_a_token_nothing_is_asked_and_without_a_name_the_system_has_one() {
    let shell = Shell::new().await;
    let bare = async |token: &str, args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(args).env_clear().env("HOME", shell.home.path());
        command.env("WEIR_ADMIN_URL", &shell.fake.url).env("WEIR_ADMIN_TOKEN", token);
        let output = command.stdin(std::process::Stdio::null()).output().await.expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = bare("", &["flag", "list", "--url", "http://127.0.0.1:1"]).await;
    assert_eq!(code, Some(1));
    assert!(
        said.contains("WEIR_ADMIN_TOKEN is not set") && said.contains("--token-file"),
        "{said}"
    );
    let (code, said) = bare("x", &["flag", "list", "--url", "http://127.0.0.1:1"]).await;
    assert!(code == Some(1) && said.contains("weir admin 127.0.0.1:1 did not"), "{said}");
    let (code, said) = bare(TOKEN, &["flag", "safe", "--yes"]).await;
    assert_eq!(code, Some(0), "{said}");
    let events = shell.weir(&["flag", "events", "--json"]).await.json();
    let actor = events["events"][0]["actor"].as_str().expect("a name").to_owned();
    assert!(!actor.is_empty() && actor != "unknown", "{actor}");
}

#[tokio::test]
async fn a_flip_tells_its_truth_also_when_nobody_reads_it() {
    let shell = Shell::new().await;
    let run = async |redirect: &str, arguments: &str| {
        let script = format!("{} flag {arguments} {redirect}", env!("CARGO_BIN_EXE_weir"));
        let mut command = Command::new("sh");
        command.args(["-c", &script]).env("HOME", shell.home.path()).env("USER", "alice");
        command.env("WEIR_ADMIN_URL", &shell.fake.url).env("WEIR_ADMIN_TOKEN", TOKEN);
        let output = command.output().await.expect("a shell");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run("> /dev/full", "list").await;
    assert_eq!(code, Some(1));
    assert_eq!(said.matches("No space left").count(), 1, "{said}");
    assert!(!said.contains("panicked"), "{said}");
    let (code, said) = run("> /dev/full", "safe --yes").await;
    assert!(code == Some(1) && said.contains("nothing was sent"), "{said}");
    assert_eq!(shell.fake.changes(), 0);
    let (code, said) = run("> /dev/full", "safe --yes --json").await;
    assert!(code == Some(1) && said.contains("the flip was: stored at revision 42"), "{said}");
    assert_eq!(shell.fake.changes(), 1);
}

/// Runs `weir` on a terminal, types one line once it asks, and returns its exit code.
fn on_a_terminal(shell: &Shell, args: &[&str], typed: &str) -> u32 {
    use std::io::{Read, Write};
    let size = portable_pty::PtySize::default();
    let pair = portable_pty::native_pty_system().openpty(size).expect("a terminal");
    let mut command = portable_pty::CommandBuilder::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args);
    command.env_clear();
    command.env("HOME", shell.home.path());
    command.env("USER", "alice");
    command.env("WEIR_ADMIN_URL", &shell.fake.url);
    command.env("WEIR_ADMIN_TOKEN", TOKEN);
    let mut child = pair.slave.spawn_command(command).expect("the binary runs");
    drop(pair.slave);
    let mut reader = pair.master.try_clone_reader().expect("a terminal");
    let mut writer = pair.master.take_writer().expect("a terminal");
    let mut shown = Vec::new();
    let mut byte = [0];
    while !shown.ends_with(b"anything else cancels: ") {
        match reader.read(&mut byte) {
            Ok(1) => shown.push(byte[0]),
            _ => panic!("it never asked: {}", String::from_utf8_lossy(&shown)),
        }
    }
    writeln!(writer, "{typed}").expect("a terminal");
    // What it says afterwards must be read, or it waits for room to say it.
    let _ = reader.read_to_end(&mut shown);
    child.wait().expect("it ends").exit_code()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_terminal_only_the_word_that_is_asked_for_sends() {
    let shell = Shell::new().await;
    let contain = ["flag", "set", "contain", "--reason", "storm"];
    let riskier = ["flag", "set", "cache.enabled=true", "--reason", "trial"];
    let check = |args: &[&str], typed: &str, code: u32, changes: usize| {
        let ran = tokio::task::block_in_place(|| on_a_terminal(&shell, args, typed));
        assert_eq!((ran, shell.fake.changes()), (code, changes), "{args:?} `{typed}`");
    };
    for typed in ["", "y", "yes", "contain"] {
        check(&contain, typed, 2, 0);
    }
    check(&contain, "apply", 0, 1);
    check(&riskier, "apply", 2, 1);
    check(&riskier, "cache.enabled", 0, 2);
}

#[tokio::test]
async fn a_refusal_of_the_service_fails_and_is_written_down() {
    let shell = Shell::new().await;
    shell.fake.refuse("interlock of the gate");
    let set = shell.weir(&["flag", "set", "contain", "--reason", "storm", "--yes", "--json"]).await;
    assert_eq!(set.code, Some(1));
    assert_eq!(set.json()["end"], "refused");
    let text = std::fs::read_to_string(shell.journal()).expect("it was written");
    assert!(text.contains("interlock of the gate"), "{text}");
}

#[tokio::test]
async fn reading_needs_no_journal_and_prints_one_document() {
    let shell = Shell::new().await;
    let list = shell.weir(&["flag", "list", "--json"]).await.json();
    assert_eq!(list["revision"], 41);
    assert_eq!(list["flags"][0]["key"], "admission.mode");
    let one = shell.weir(&["flag", "get", "retry.owner", "--json"]).await.json();
    assert_eq!((&one["override"], &one["base"]), (&Value::Null, &Value::from("client")));
    let none = shell.weir(&["flag", "get", "retry"]).await;
    assert_eq!(none.code, Some(2));
    assert!(none.err.contains("flags are: admission.mode"), "{}", none.err);
    let plan = shell.weir(&["flag", "plan", "contain", "--json"]).await.json();
    assert_eq!((&plan["risky"], &plan["refused"]), (&Value::Bool(false), &Value::Null));
    let shown = shell.weir(&["flag", "list"]).await;
    assert!(shown.out.starts_with("revision 41 in weir admin "), "{}", shown.out);
    assert!(!shell.journal().exists());
}

const SCOPE: &str = "openai/acct-1/embed";

#[tokio::test]
async fn a_forecast_is_in_the_document_with_how_earlier_ones_did() {
    let shell = Shell::new().await;
    let plan = ["flag", "plan", "contain", "--json"];
    let blind = shell.weir(&plan).await.json();
    let scope = &blind["forecast"]["scopes"][0];
    assert!(scope["refused"].as_str().is_some_and(|why| why.contains("originals_rps")), "{blind}");
    assert_eq!(scope["measures"], serde_json::json!([]), "{blind}");
    assert_eq!(scope["earlier"], serde_json::json!([]), "nothing is known yet");
    assert_eq!(blind["forecast"]["earlier_trouble"], Value::Null);

    // A session of before has looked back at one of this store, and at one of another.
    let file = weir::incident::place_beside(&shell.journal());
    let place = shell.fake.url.trim_start_matches("http://");
    for store in [format!("weir admin {place}"), "weir admin 127.0.0.1:1".to_owned()] {
        weir::incident::keep(&file, &looked_back(store)).expect("the disk is there");
    }
    let told = shell.weir(&plan).await.json();
    let earlier = told["forecast"]["scopes"][0]["earlier"].as_array().expect("a list");
    assert_eq!(earlier.len(), 1, "{told}");
    assert_eq!((&earlier[0]["plan"], &earlier[0]["off"]), (&"contain".into(), &0.5.into()));
    let row = &earlier[0]["measures"][0];
    assert_eq!(
        (&row["measure"], &row["came"], &row["held"]),
        (&"shed_rps".into(), &20.0.into(), &false.into())
    );
    let text = shell.weir(&plan[..3]).await.out;
    let said = "last time (contain, 1970-01-01 00:00:00Z) 0 of 1 within their range; shed/s 10 \
                foretold, 20 came: off by 50%";
    assert!(text.contains(said), "{text}");

    // A damaged file is told, and stops nothing.
    let lines = std::fs::read_to_string(&file).expect("written");
    std::fs::write(&file, format!("{{]\n{lines}{{\"v\":1,")).expect("the disk is there");
    let damaged = shell.weir(&plan).await;
    assert_eq!(damaged.code, Some(0), "{}", damaged.err);
    let trouble = &damaged.json()["forecast"]["earlier_trouble"];
    assert!(trouble.as_str().is_some_and(|said| said.contains("line 1")), "{trouble}");
    let text = shell.weir(&plan[..3]).await.out;
    assert!(text.contains("1 damaged lines are left out") && text.contains("off by 50%"), "{text}");

    let mut storm = weir::signal::Snapshot::new(SCOPE, 10.0);
    for (name, value) in storm_signals::STORM {
        storm.set(name, weir::signal::Value::Number(value), &std::sync::Arc::from("gateway"));
    }
    shell.fake.give(&storm);
    let dry = ["flag", "set", "contain", "--reason", "storm", "--dry-run", "--json"];
    let told = shell.weir(&dry).await.json();
    let forecast = &told["forecast"];
    assert_eq!(forecast["horizon_s"], 60.0);
    let scope = &forecast["scopes"][0];
    assert_eq!((&scope["scope"], &scope["refused"]), (&SCOPE.into(), &Value::Null), "{told}");
    assert!(scope["assumptions"].as_array().is_some_and(|list| !list.is_empty()), "{told}");
    let measures = scope["measures"].as_array().expect("a list");
    let measure = |name: &str| measures.iter().find(|row| row["measure"] == name).expect(name);
    let amplification = measure("amplification");
    assert_eq!((&amplification["unit"], &amplification["now"]), (&"ratio".into(), &9.0.into()));
    for row in measures {
        for side in ["without", "with"] {
            let at = |end: &str| row[side][end].as_f64().expect("a number");
            assert!(at("low") <= at("middle") && at("middle") <= at("high"), "{row}");
        }
    }
    let middle = |side: &str| amplification[side]["middle"].as_f64().expect("a number");
    assert!(middle("without") > 3.0 && middle("with") < 1.1, "{amplification}");
    assert_eq!(measure("admitted_rps")["unit"], "1/s");
    assert_eq!(scope["earlier"].as_array().map(Vec::len), Some(1), "{told}");
}

fn looked_back(store: String) -> weir::flag::Hindsight {
    use weir::flag::{Came, Hindsight, Measure, Range, Record};
    let foretold = Range { low: 8.0, middle: 10.0, high: 12.0 };
    Hindsight {
        at: chrono::DateTime::UNIX_EPOCH,
        request_id: "id-1".to_owned(),
        plan: "contain".to_owned(),
        scope: SCOPE.to_owned(),
        store: Some(store),
        environment: None,
        record: Record { rows: vec![Came { measure: Measure::Shed, foretold, came: 20.0 }] },
    }
}
