//! Checks of a small storm whose claims are right, and of claims that are not.

use super::*;
use crate::diagnosis::Standing;
use crate::runbook;

/// A tenth of the launch: 18 originals a second against a quota for 6.7.
const SMALL: &str = r#"
name = "small"
title = "a small storm"
duration_s = 40
onset_s = 10
max_attempts_configured = 3
[flags]
"admission.mode" = "off"
"retry.owner" = "client"
[provider]
requests = { per_minute = 600, start = 300 }
tokens = { per_minute = 120_000, capacity = 120_000, start = 3_600 }
[traffic]
tokens = { min = 300, max = 300 }
steps = [{ name = "calm", at_s = 0, rate = 6 }, { name = "storm", at_s = 10, rate = 18 }]
[expect]
cause = "nested-retries"
after_cure = "demand-over-capacity"
evidence = ["amplification[fast] > 3.3 for 3s"]
[[cures]]
plan = "contain"
why = "it is contained"
within_s = 15
back = ["amplification[fast] < 1.3"]
[[harms]]
flags = { "admission.mode" = "off" }
on = "cured"
why = "everything passes again"
worse = ["amplification"]
"#;

/// The small storm with other claims.
fn check(changes: &[(&str, &str)]) -> Checked {
    let text = changes.iter().fold(SMALL.to_owned(), |text, (from, to)| text.replacen(from, to, 1));
    let scenario = Scenario::parse("small.toml", &text).expect("it is right");
    run(&[scenario], &[1], &runbook::embedded()).expect("it plays").remove(0)
}

#[test]
fn what_is_claimed_rightly_passes_and_says_when() {
    let checked = check(&[]);
    assert!(checked.passed, "{checked:#?}");
    let after = |moment: &Moment| moment.after_s.expect("it came true");
    assert!((1.0..=15.0).contains(&after(&checked.evidence[0])));
    assert!((1.0..=15.0).contains(&after(&checked.cures[0].back[0])));
    let harm = &checked.harms[0].worse[0];
    assert!(harm.with > harm.without, "{harm:?}");
    assert_eq!(checked.verdict.expected, "nested-retries");
}

#[test]
fn a_wrong_claim_about_the_incident_fails_alone_and_a_verdict_only_when_asked() {
    let checked = check(&[
        (
            "amplification[fast] > 3.3 for 3s\"",
            "amplification > 1000\", \"log_bytes_per_request > 0\"",
        ),
        ("cause = \"nested-retries\"", "cause = \"healthy\""),
    ]);
    assert!(!checked.passed);
    let [impossible, unknown] = &checked.evidence[..] else { panic!("two were asked for") };
    assert!(!impossible.passed && impossible.after_s.is_none(), "{impossible:?}");
    assert!(
        !unknown.passed && unknown.last.contains("no-data"),
        "unknown is not true: {unknown:?}"
    );
    assert!(checked.cures[0].back[0].passed && checked.harms[0].worse[0].passed);
    assert!(!checked.verdicts_match());
}

#[test]
fn a_wrong_claim_about_a_flip_fails_alone() {
    let checked = check(&[
        ("amplification[fast] < 1.3", "amplification[fast] > 100"),
        ("worse = [\"amplification\"]", "worse = [\"amplification falls\", \"attempts_rps\"]"),
    ]);
    assert!(!checked.passed && checked.evidence[0].passed);
    assert!(!checked.cures[0].back[0].passed, "{checked:#?}");
    let worse: Vec<_> = checked.harms[0].worse.iter().map(|signal| signal.passed).collect();
    assert_eq!(worse, [false, true]);
}

#[test]
fn a_lost_source_is_judged_while_it_is_lost_and_comes_back() {
    let scenario = Scenario::load("lost-source").expect("it ships");
    let library = runbook::embedded();
    let back_at = scenario.lost.expect("a source is lost").back_at();
    let checked = run(std::slice::from_ref(&scenario), &[1], &library).expect("it plays").remove(0);
    assert!(checked.passed && checked.verdict.matches, "{checked:#?}");
    let verdict_at = |total| {
        let report = virtual_run::run(&scenario, &library, 1, total, &[]).expect("it plays");
        report.verdicts.last.expect("something is said")
    };
    let lost = verdict_at(back_at.saturating_sub(STILL_LOST));
    let is_named = lost.missing.iter().any(|missing| missing.reason.contains("gateway"));
    assert!(is_named, "what is missing, and from where: {:?}", lost.missing);
    assert_eq!(verdict_at(back_at + STAYS).cause, scenario.expect.after_cure);
    let report = virtual_run::run(&scenario, &library, 1, back_at, &[]).expect("it plays");
    let blind_s = scenario.lost.expect("a source is lost").from_s + 5.0;
    let stood = report.verdicts.stood().iter();
    let guessed: Vec<_> = stood
        .filter(|one| one.to.as_secs_f64() > blind_s && one.standing == Standing::Confirmed)
        .collect();
    assert!(guessed.is_empty(), "confirmed while nobody can know: {guessed:?}");
}

#[test]
fn seeds_come_in_order_and_give_the_same_bits() {
    let text = SMALL.replace("duration_s = 40", "duration_s = 30");
    let scenario = Scenario::parse("small.toml", &text).expect("it is right");
    let play = || run(std::slice::from_ref(&scenario), &[3, 1], &runbook::embedded());
    let (once, again) = (play().expect("it plays"), play().expect("it plays"));
    assert_eq!(once, again);
    assert_eq!(once.iter().map(|checked| checked.seed).collect::<Vec<_>>(), [3, 1]);
}
