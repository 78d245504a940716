//! Runbook files: the shipped ones and the example are clean, broken ones say what and where.

use std::sync::Arc;

use chrono::NaiveDate;
use weir::admission::FlagValue;
use weir::diagnosis::{
    Book, Goto, Library, Refusal, Standing, Step, TRIAGE, Truth, diagnose_once, leading_to,
    snapshot_from_json,
};
use weir::runbook::{self, Problem, SHIPPED, Severity};

/// What the runbooks of causes lead to once the loop has to be taken down.
const RECOVERY: &str = "recovery";
/// What names causes, what goes on after a cure, and what is opened on purpose.
const WITHOUT_CAUSE: [&str; 3] = [TRIAGE, RECOVERY, runbook::ROLLBACK];
const EXAMPLE: &str = include_str!("data/tpm-exhausted.runbook.md");

fn today() -> NaiveDate {
    NaiveDate::from_ymd_opt(2026, 12, 1).expect("a date")
}

fn library() -> Arc<Library> {
    runbook::embedded()
}

fn lint(file: &str, text: &str) -> Vec<Problem> {
    let (sheet, mut problems) = runbook::read(file, text);
    if let Some(sheet) = sheet {
        problems.extend(runbook::lint(&sheet, &library(), today()));
    }
    problems
}

fn book(file: &str, text: &str) -> Book {
    let (sheet, problems) = runbook::read(file, text);
    sheet.unwrap_or_else(|| panic!("{}", words(&problems))).book
}

fn words(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_shipped_runbooks_are_clean() {
    for (file, text) in SHIPPED {
        let problems = lint(file, text);
        assert!(problems.is_empty(), "{}", words(&problems));
    }
}

#[test]
fn questions_may_be_left_open_and_flips_lead_on() {
    check(
        "\"cannot tell\"  = \"contradiction\"",
        "\"no idea\" = \"contradiction\"",
        "WRB025",
        "look-by-hand",
    );
    check("unknown   = \"look-by-hand\"", "unknown = \"recover\"", "WRB026", "which-limit");
    check("otherwise = \"not-this\"", "otherwise = \"recover\"", "WRB026", "which-limit");
}

#[test]
fn a_flip_that_did_not_help_is_not_offered_again() {
    let failed = EXAMPLE.split("## cut-retries").nth(1).expect("the step");
    let line = failed.lines().find(|line| line.starts_with("failed")).expect("a way out");
    check(line, "failed = \"cut-retries\"", "WRB024", "cut-retries");
}

#[test]
fn the_triage_leads_to_every_cause() {
    let library = library();
    let triage = library.triage();
    for book in library.books().filter(|book| !WITHOUT_CAUSE.contains(&book.id.as_str())) {
        let leading = leading_to(triage, &book.id);
        assert!(leading.contains(triage.entry.as_str()), "the triage does not lead to {}", book.id);
        assert!(book.cause.is_some(), "{} treats no cause", book.id);
    }
}

#[test]
fn recovery_treats_no_cause_and_is_reached_from_other_runbooks() {
    let library = library();
    let recovery = library.book(RECOVERY).expect("shipped");
    assert!(recovery.cause.is_none(), "what goes on after a cure is no cause");
    let goes_there = |book: &Book| {
        let target = Goto::Runbook(RECOVERY.to_owned());
        book.nodes.iter().any(|node| node.step.targets().contains(&&target))
    };
    let reached_from: Vec<&str> =
        library.books().filter(|book| goes_there(book)).map(|book| book.id.as_str()).collect();
    assert!(reached_from.len() > 1, "recovery is reached from {reached_from:?} only");
    assert!(!reached_from.contains(&TRIAGE), "the triage names causes");
}

#[test]
fn the_example_is_read_and_has_no_error() {
    let problems = lint("tpm-exhausted.runbook.md", EXAMPLE);
    let errors: Vec<_> = problems.iter().filter(|p| p.severity == Severity::Error).collect();
    assert!(errors.is_empty(), "{errors:?}");
    let (sheet, _) = runbook::read("tpm-exhausted.runbook.md", EXAMPLE);
    let book = sheet.expect("a sheet").book;
    assert_eq!(book.nodes.len(), 11);
    assert_eq!(book.entry, "which-limit");
}

#[test]
fn every_code_of_the_linter_is_in_the_table() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(folder.join("runbooks/README.md")).expect("a text");
    let mut codes = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(folder.join("src/runbook")).expect("the sources") {
        let path = entry.expect("a file").path();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        codes.extend(text.split("\"WRB").skip(1).map(|rest| format!("WRB{}", &rest[..3])));
    }
    assert!(codes.len() > 20, "{codes:?}");
    for code in &codes {
        assert!(readme.contains(&format!("| {code} |")), "{code} is not in runbooks/README.md");
    }
    let rows = readme.lines().filter(|line| line.starts_with("| WRB")).count();
    assert_eq!(rows, codes.len(), "the table has a code that nothing says");
}

/// Breaks the example in one place and expects one code, at a line that holds `at`.
fn check(from: &str, to: &str, code: &str, at: &str) {
    assert!(EXAMPLE.contains(from), "{from}");
    let text = EXAMPLE.replacen(from, to, 1);
    let problems = lint("broken.runbook.md", &text);
    let found = problems.iter().find(|problem| problem.code == code);
    let Some(problem) = found else { panic!("{code} for {to:?}: {problems:?}") };
    let line = text.lines().nth(problem.line - 1).expect("a line of the file");
    assert!(line.contains(at), "{problem}\nis said of: {line}");
    assert!(!problem.remedy.is_empty(), "{problem}");
}

#[test]
fn what_is_broken_is_named_with_its_line() {
    check("entry        = \"which-limit\"", "entry = \"nowhere\"", "WRB001", "entry");
    check("confirm  = \"enter\"", "confirmed = \"enter\"", "WRB002", "confirmed");
    check("ttl      = \"30m\"\n", "", "WRB030", "kind");
    check("< 0.05 for 30s clear 0.15", "<= 0.05 for 30s", "WRB010", "tpm_out");
    check("\"tpm_headroom[1m] <", "\"tpm_room[1m] <", "WRB011", "tpm_room");
    check("tpm_headroom        = \"ratio\"", "tpm_headroom = \"tok\"", "WRB011", "tpm_headroom");
    check("for 30s clear 0.15", "for 30s clear 0.01", "WRB012", "tpm_out");
    check("verify   = \"calm\"", "verify = \"calmer\"", "WRB013", "cut-retries");
}

#[test]
fn ways_out_and_guard_rails_are_checked() {
    check("[evidence]", "[evidence]\nspare = \"reset_s > 1\"", "WRB014", "spare");
    check("goto = \"why\"", "goto = \"whi\"", "WRB020", "whi");
    check("unknown   = \"look-by-hand\"", "# none", "WRB021", "kind");
    check("otherwise = \"not-this\"", "# none", "WRB022", "kind");
}

#[test]
fn the_sentence_of_a_cause_names_who_it_is() {
    let set = serde_json::json!({
        "window_s": 60, "tenants": [
            { "id": "globex", "share_tokens": 0.1, "refused_share": 0.4 },
            { "id": "acme", "share_tokens": 0.85, "refused_share": 0.1 },
        ],
        "originals_rps": 30, "attempts_rps": 30, "provider_429_rps": 10, "provider_503_rps": 0,
        "gate_429_rps": 0, "gate_503_rps": 0, "amplification": 1.0, "max_attempts_configured": 2,
    });
    let (snapshot, _) = snapshot_from_json(set.as_object().expect("an object"), "test");
    let verdict = diagnose_once(&library(), &snapshot);
    assert_eq!(verdict.cause, "tenant-starvation", "{:?}", verdict.path);
    assert_eq!(verdict.say, "Tenant acme takes 85% of the tokens, others are refused or wait.");
}

#[test]
fn a_flip_is_refused_for_its_guard_and_for_its_interlocks() {
    let example = book("tpm-exhausted.runbook.md", EXAMPLE);
    let action = |node: &str| match &example.node(node).expect("a node").step {
        Step::Action(action) => action.clone(),
        other => panic!("{other:?}"),
    };
    let enforced = |key: &str, value: &FlagValue| {
        key == "admission.mode" && *value == FlagValue::Word("enforce".to_owned())
    };
    let (safe, unsafe_one) = (action("cut-retries"), action("recover"));
    assert!(safe.safe && !unsafe_one.safe);
    assert_eq!(safe.refusal(Truth::False, enforced), Some(Refusal::GuardFalse));
    assert_eq!(safe.refusal(Truth::Unknown, |_, _| false), None, "the safe way is always open");
    assert_eq!(unsafe_one.refusal(Truth::Unknown, enforced), Some(Refusal::GuardUnknown));
    assert_eq!(unsafe_one.refusal(Truth::True, enforced), None);
    let refused = unsafe_one.refusal(Truth::True, |_, _| false).expect("an open interlock");
    assert_eq!(
        refused.to_string(),
        "it needs admission.mode = enforce first, stored and on every instance"
    );
}

#[test]
fn a_step_that_nothing_leads_to_is_named() {
    check("otherwise = \"not-this\"", "otherwise = \"why\"", "WRB023", "not-this");
}

#[test]
fn flips_stay_within_their_bounds() {
    check("set      = 1024", "set      = 256", "WRB032", "cap-tokens");
    check("flag     = \"admission.mode\"", "flag = \"queue.max_depth\"", "WRB031", "tokens-mode");
    check("set      = \"enforce\"", "set      = \"loose\"", "WRB032", "tokens-mode");
    check("[undo]\nset      = 1\ngoto     = \"tokens-mode\"\n", "", "WRB033", "recover");
    check("on_expire = \"revert\"", "on_expire = \"remind\"", "WRB034", "recover");
    check("needs    = { \"admission.mode\" = \"enforce\" }", "", "WRB035", "recover");
    check("on_expire = \"remind\"", "on_expire = \"revert\"", "WRB036", "cut-retries");
    check(
        "direction = \"safe\"           # lint",
        "direction = \"unsafe\" # lint",
        "WRB037",
        "cut-retries",
    );
    check("[undo]\nset      = 1\n", "[undo]\nset      = 2\n", "WRB038", "recover");
    check("reviewed     = 2026-11-01", "reviewed = 2026-01-01", "WRB040", "reviewed");
    check("reviewed     = 2026-11-01", "reviewed = 2099-01-01", "WRB040", "reviewed");
}

#[test]
fn a_timer_leaves_time_to_look() {
    check("ttl      = \"30m\"", "ttl = \"0s\"", "WRB039", "cut-retries");
    check("ttl      = \"30m\"", "ttl = \"25h\"", "WRB039", "cut-retries");
    check("ttl      = \"30m\"", "ttl = \"1m\"", "WRB039", "cut-retries");
}

#[test]
fn a_threshold_can_be_passed_and_missed() {
    let spare = |predicate: &str| {
        check("[evidence]", &format!("[evidence]\nspare = \"{predicate}\""), "WRB018", "spare");
    };
    for predicate in [
        "tpm_headroom > 5",
        "tpm_headroom < 500%",
        "queue_oldest_age_s < 0",
        "provider_429_rps > -1",
        "latency_p95_s > 5%",
        "error_codes matching /a/ > 100%",
    ] {
        spare(predicate);
    }
}

#[test]
fn text_that_is_no_runbook_is_refused_with_words() {
    for text in
        ["", "# Title", "```toml weir.runbook\nid = 3\n```", "```toml weir.runbook\n[[[\n```"]
    {
        let (_, problems) = runbook::read("x.runbook.md", text);
        assert_eq!(problems[0].code, "WRB001", "{text:?}");
        assert!(problems[0].to_string().starts_with("x.runbook.md:"), "{}", problems[0]);
    }
}

const EXAMPLE_TEST: &str = include_str!("data/tpm-exhausted.test.toml");

fn run_example(test: &str) -> Result<Vec<String>, String> {
    let files = SHIPPED.iter().copied().chain([("example.runbook.md", EXAMPLE)]);
    let library = Arc::new(runbook::assemble(files).expect("the example loads"));
    let tests = runbook::TestFile::read("example.test.toml", test)?;
    let none = |name: &str, _: &Arc<Library>| Err(format!("{name}: this test has no recording"));
    let failures = tests.run(&library, "llm-tpm-exhausted", &none)?.failures;
    Ok(failures.iter().map(|f| format!("{}: {}: {}", f.place, f.case, f.what)).collect())
}

#[test]
fn the_example_passes_its_tests() {
    assert_eq!(run_example(EXAMPLE_TEST), Ok(Vec::new()));
}

#[test]
fn a_failing_expectation_says_where_and_what() {
    let test = EXAMPLE_TEST.replacen("storm = \"true\"", "storm = \"false\"", 1);
    let failures = run_example(&test).expect("it runs");
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].starts_with("example.test.toml:20: retry storm"), "{}", failures[0]);
    assert!(failures[0].contains("`storm` is true, expected false"), "{}", failures[0]);
    let test = EXAMPLE_TEST.replacen("0.4x240", "0.4y240", 1);
    let error = run_example(&test).expect_err("no notation");
    assert!(error.starts_with("example.test.toml:8: `tpm_headroom`"), "{error}");
}

#[test]
fn a_directory_adds_and_replaces_runbooks() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).expect("a writable directory");
    };
    write("own.runbook.md", EXAMPLE);
    write("notes.md", "not a runbook");
    let healthy =
        SHIPPED.iter().find(|(file, _)| *file == "healthy.runbook.md").expect("shipped").1;
    write("healthy.runbook.md", &healthy.replace("# No incident", "# All is well"));
    let library = runbook::load_dir(dir.path()).expect("both load");
    assert!(library.book("llm-tpm-exhausted").is_some());
    assert_eq!(library.book("healthy").map(|book| book.title.as_str()), Some("All is well"));
    write(
        "unfit.runbook.md",
        &EXAMPLE.replacen("direction = \"safe\"", "direction = \"unsafe\"", 1),
    );
    let words = runbook::load_dir(dir.path()).expect_err("one is unfit").to_string();
    assert!(words.contains("unfit.runbook.md:") && words.contains("error WRB037"), "{words}");
    std::fs::remove_file(dir.path().join("unfit.runbook.md")).expect("it was written");
    write("broken.runbook.md", "# nothing");
    let words = runbook::load_dir(dir.path()).expect_err("one is broken").to_string();
    assert!(words.contains("broken.runbook.md:1: error WRB001"), "{words}");
    let words = runbook::load_dir(&dir.path().join("none")).expect_err("no directory").to_string();
    assert!(words.contains("none: "), "{words}");
}

const TEAM: &str = r#"# Our proxy's cache is cold

```toml weir.runbook
id           = "cold-cache"
format       = 1
owner        = "search"
reviewed     = 2026-11-01
review_every = "90d"
entry        = "warm"

[evidence]
cold = "cache.hit_ratio[fast] < 20%"

[cause]
say         = "The cache is cold: {cache.hit_ratio} of requests are hits."
requires    = ["cold", "provider_429"]
asked_at    = ["pressure"]
pages_owner = true
```

## warm — Warm it

```toml weir.node
kind    = "end"
outcome = "unresolved"
say     = "Run the warm-up job."
```
"#;

#[test]
fn a_team_adds_a_cause_of_its_own_without_a_triage_of_its_own() {
    let with = |text: &str| {
        let files = SHIPPED.iter().copied().chain([("cold-cache.runbook.md", text)]);
        runbook::assemble(files).map(Arc::new).map_err(|error| error.to_string())
    };
    let library = with(TEAM).expect("it fits");
    let set = serde_json::json!({
        "window_s": 60, "originals_rps": 30, "attempts_rps": 40, "provider_429_rps": 20,
        "provider_503_rps": 0, "gate_429_rps": 0, "gate_503_rps": 0, "cache": { "hit_ratio": 0.05 },
    });
    let (snapshot, _) = snapshot_from_json(set.as_object().expect("an object"), "test");
    let verdict = diagnose_once(&library, &snapshot);
    let named = (verdict.cause.as_str(), verdict.standing, verdict.pages_owner);
    assert_eq!(named, ("cold-cache", Standing::Confirmed, true), "{:?}", verdict.path);
    let none = diagnose_once(&runbook::embedded(), &snapshot);
    assert_ne!(none.cause, "cold-cache");
    let nowhere = TEAM.replace("\"pressure\"", "\"who\"");
    let wrong = with(&nowhere).expect_err("it ranks nothing");
    assert!(wrong.contains("`cold-cache`: asked_at: `who` is no rank node"), "{wrong}");
    let told = words(&lint("cold-cache.runbook.md", &nowhere));
    let line = nowhere.lines().position(|line| line.starts_with("asked_at")).expect("a line") + 1;
    assert!(told.contains(&format!("cold-cache.runbook.md:{line}: error WRB016")), "{told}");
    assert!(told.contains("pressure"), "the remedy names the nodes that rank: {told}");
    let error =
        library.with(book("cold-cache.runbook.md", &nowhere)).expect_err("it ranks nothing");
    let told = runbook::unfit("cold-cache.runbook.md", &error).to_string();
    assert!(told.starts_with("cold-cache.runbook.md:1: error WRB017"), "{told}");
}
