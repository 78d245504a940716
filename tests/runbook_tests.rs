//! Runbooks tested like code: every shipped one has tests that walk all its ways out and notice nearly
//! every change, and the tool that says so is itself held to a runbook of which everything is known.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir::diagnosis::Library;
use weir::runbook::{self, Mutation, Run, SHIPPED, Sheet, TestFile};

/// Percent of changes that may go unnoticed.
const SURVIVORS_MAX: usize = 10;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("runbooks")
}

/// The stem of every shipped runbook; each has tests.
fn shipped() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|(file, _)| file.trim_end_matches(runbook::SUFFIX))
}

fn run(tests: &TestFile, sheet: &Sheet, library: &Arc<Library>) -> Run {
    let open = |name: &str, library: &Arc<Library>| {
        let opened =
            weir::incident::recording::Replay::open(&folder().join(name), Arc::clone(library));
        opened.map_err(|error| error.to_string())
    };
    tests.run(library, &sheet.book.id, &open).expect("the tests can be run")
}

fn mutate(tests: &TestFile, sheet: &Sheet, library: &Arc<Library>) -> Mutation {
    let none = |name: &str, _: &Arc<Library>| Err(format!("{name}: there is no recording"));
    runbook::mutate(tests, sheet, library, &none).expect("the tests pass")
}

#[test]
fn every_test_file_passes_walks_every_way_out_and_notices_nearly_every_change() {
    let library = runbook::embedded();
    let mut wrong: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for stem in shipped() {
        let path = folder().join(format!("{stem}.test.toml"));
        let text = std::fs::read_to_string(&path).expect("a readable file");
        let tests = TestFile::read(&format!("{stem}.test.toml"), &text).expect("a test file");
        let name = format!("{stem}{}", runbook::SUFFIX);
        assert_eq!(tests.runbook(), name, "{stem} tests another runbook");
        let (file, text) = SHIPPED.iter().find(|(file, _)| *file == name).expect("shipped");
        let sheet = runbook::read(file, text).0.expect("a sheet");
        let found = run(&tests, &sheet, &library);
        let wrong = wrong.entry(stem.to_owned()).or_default();
        wrong.extend(found.failures.iter().map(|f| format!("{}: {}: {}", f.place, f.case, f.what)));
        wrong.extend(found.coverage.uncovered().map(|exit| format!("not covered: {exit}")));
        if found.failures.is_empty() {
            let mutation = mutate(&tests, &sheet, &library);
            if mutation.survivors.len() * 100 > mutation.mutants * SURVIVORS_MAX {
                let lines = mutation.survivors.iter().map(|s| format!("{}: {}", s.line, s.what));
                wrong.extend(lines);
            }
        }
    }
    wrong.retain(|_, found| !found.is_empty());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

const SMALL: &str = include_str!("data/small.runbook.md");
const SMALL_TEST: &str = include_str!("data/small.test.toml");

/// Runs `test` against the small runbook.
fn small(test: &str) -> (TestFile, Sheet, Arc<Library>) {
    let files = SHIPPED.iter().copied().chain([("small.runbook.md", SMALL)]);
    let library = Arc::new(runbook::assemble(files).expect("the small runbook loads"));
    let sheet = runbook::read("small.runbook.md", SMALL).0.expect("a sheet");
    (TestFile::read("small.test.toml", test).expect("a test file"), sheet, library)
}

fn without(part: &str) -> String {
    assert!(SMALL_TEST.contains(part), "{part}");
    SMALL_TEST.replacen(part, "", 1)
}

fn failures(test: &str) -> Vec<String> {
    let (tests, sheet, library) = small(test);
    let failures = run(&tests, &sheet, &library).failures;
    failures.iter().map(|f| format!("{}: {}: {}", f.place, f.case, f.what)).collect()
}

fn uncovered(test: &str) -> Vec<String> {
    let (tests, sheet, library) = small(test);
    run(&tests, &sheet, &library).coverage.uncovered().map(ToString::to_string).collect()
}

fn survivors(test: &str) -> Vec<String> {
    let (tests, sheet, library) = small(test);
    let mutation = mutate(&tests, &sheet, &library);
    mutation.survivors.iter().map(|s| format!("{}: {}", s.line, s.what)).collect()
}

#[test]
fn the_small_runbook_is_covered_and_nothing_in_it_can_change() {
    assert_eq!(failures(SMALL_TEST), Vec::<String>::new());
    assert_eq!(uncovered(SMALL_TEST), Vec::<String>::new());
    assert_eq!(survivors(SMALL_TEST), Vec::<String>::new());
    let (tests, sheet, library) = small(SMALL_TEST);
    let mutation = mutate(&tests, &sheet, &library);
    assert_eq!((mutation.killed(), mutation.left_out), (mutation.mutants, 0));
    assert!(mutation.mutants > 20, "{mutation:?}");
    let none = |name: &str, _: &Arc<Library>| Err(format!("{name}: there is no recording"));
    let warnings = runbook::lint_thresholds(&tests, &sheet, &library, &none);
    assert_eq!(warnings, Ok(Vec::new()));
}

#[test]
fn what_does_not_come_out_is_named_with_file_and_line() {
    let check = |from: &str, to: &str, words: &str| {
        assert!(SMALL_TEST.contains(from), "{from}");
        let failures = failures(&SMALL_TEST.replacen(from, to, 1));
        assert!(failures.iter().any(|failure| failure.contains(words)), "{words}: {failures:?}");
        assert!(failures.iter().all(|failure| failure.starts_with("small.test.toml:")));
    };
    check("\"ask\", \"done\"]", "\"ask\"]", "path is [\"which\", \"cut\", \"ask\", \"done\"]");
    check("standing = \"confirmed\"", "standing = \"likely\"", "cause small is confirmed");
    check(
        "\"hard-quota\" = \"cannot-tell\"",
        "\"hard-quota\" = \"likely\"",
        "hard-quota is cannot-tell",
    );
    check("causes = {", "causes = { \"nobody\" = \"likely\",", "`nobody` is no cause");
    check("verdict = \"", "verdict = \"not-", "expected not-");
    check("ask = \"calm\"", "ask = \"rough\"", "`ask` has no answer `rough`; it has `calm`");
    check("cut = \"undo\"", "escalate = \"undo\"", "path is");
    check("from = \"cut\"", "from = \"cup\"", "there is no node `cup`");
    check(
        "holds  = 2.1",
        "holds  = 1.9",
        "pin storm: at holds = 1.9: false after 30 s, expected true",
    );
    check(
        "storm = \"pending\"",
        "storm = \"true\"",
        "`storm` is pending:held 5 s of 30 s, expected true",
    );
    check("full = \"unknown:no-data\"", "full = \"unknown:stale\"", "`full` is unknown:no-data");
    check(
        "verify = { cut = \"false\" }",
        "verify = { cut = \"true\" }",
        "verify of `cut` is false",
    );
}

#[test]
fn a_test_that_is_taken_away_leaves_a_way_uncovered() {
    let failed = "acted = { cut = \"failed\" }\npath = [\"cut\", \"escalate\"]\n";
    assert_eq!(uncovered(&without(failed)), ["cut: failed -> escalate"]);
    let refuse = "refuse = \"cut\"\n";
    assert_eq!(uncovered(&without(refuse)), ["cut: guard refuses (storm)"]);
    // A path that does not come out covers nothing.
    let test = SMALL_TEST.replacen("path = [\"cut\", \"escalate\"]", "path = [\"cut\"]", 1);
    assert_eq!(uncovered(&test), ["cut: failed -> escalate"]);
}

#[test]
fn a_test_that_is_taken_away_lets_a_change_survive() {
    let check = |part: &str, words: &str| {
        assert!(SMALL_TEST.contains(part), "{part}");
        let survivors = survivors(&SMALL_TEST.replace(part, ""));
        assert!(survivors.iter().any(|s| s.contains(words)), "{words}: {survivors:?}");
    };
    check("after  = \"30s\"\n", "`for` doubled");
    check("stays  = 1.6\nclears = 1.4\n", "`clear` dropped");
    check("refuse = \"cut\"\n", "cut, guard `storm`: replaced by true");
    check("verify = { cut = \"false\" }\n", "cut, verify `calm and full`: replaced by true");
    check("standing = \"likely\"\n", "cause, tentative `full`: removed");
    let (tests, sheet, library) =
        small(&without("[[pin]]\nevidence = \"full\"\nholds = 0.9\nfails = 0.7\n"));
    let none = |name: &str, _: &Arc<Library>| Err(format!("{name}: there is no recording"));
    let warnings = runbook::lint_thresholds(&tests, &sheet, &library, &none).expect("they pass");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!((warnings[0].code, warnings[0].key.as_str()), ("WRB050", "full"));
    assert!(SMALL.lines().nth(warnings[0].line - 1).is_some_and(|line| line.starts_with("full")));
}

#[test]
fn tests_that_do_not_pass_are_not_mutated() {
    let broken = SMALL_TEST.replacen("holds  = 2.1", "holds  = 1.9", 1);
    let (tests, sheet, library) = small(&broken);
    let none = |name: &str, _: &Arc<Library>| Err(format!("{name}: there is no recording"));
    let error = runbook::mutate(&tests, &sheet, &library, &none).expect_err("a pin fails");
    assert!(error.contains("do not pass"), "{error}");
}
