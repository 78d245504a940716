//! A walk as a file: what one weir wrote the next one opens, whole, or says why not.

use std::sync::Arc;

use chrono::{DateTime, TimeZone, Utc};
use proptest::prelude::*;
use weir::diagnosis::{Diagnoser, Facts, Goto, Library, Truth};
use weir::runbook::{self, MAX_WALK_BYTES, SHIPPED, Stuck, Walk, WalkFileError};
use weir::signal::{Mono, Snapshot, Value};

fn zero() -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2026, 11, 29, 8, 0, 0).single().expect("a valid instant")
}

fn at(seconds: u32) -> Mono {
    Mono::from_secs_f64(f64::from(seconds))
}

fn facts(numbers: &[(&'static str, f64)]) -> Facts {
    let mut snapshot = Snapshot::new("scope", 10.0);
    for (name, number) in numbers {
        snapshot.set(name, Value::Number(*number), &Arc::from("gateway"));
    }
    let mut diagnoser = Diagnoser::new(runbook::embedded());
    for second in 0..20 {
        diagnoser.step(&snapshot, at(second));
    }
    diagnoser.facts().clone()
}

fn storm() -> Facts {
    facts(&[
        ("originals_rps", 180.0),
        ("offered_rps", 1_600.0),
        ("attempts_rps", 1_600.0),
        ("success_rps", 66.0 + 1.0 / 3.0),
        ("provider_429_rps", 1_534.0),
        ("provider_503_rps", 0.0),
        ("gate_429_rps", 0.0),
        ("gate_503_rps", 0.0),
        ("max_attempts_configured", 3.0),
        ("tpm_headroom", 0.0),
        ("rpm_headroom", 0.9),
        ("retry_header_share", 0.6),
    ])
}

/// A walk into the storm's runbook, with everything in it that a file has to hold.
fn walked() -> Walk {
    let facts = storm();
    let mut walk = Walk::start(runbook::embedded()).of("openai/acct-1/embed", zero());
    while walk.advance(&facts, at(60)).is_ok() {}
    walk.note("paged the owner", "alice").expect("room");
    walk.acted(Truth::False, "alice", &facts, at(61)).expect("a flip");
    walk.skip(&Goto::Node("wait".to_owned()), "contain did all three", "bob", &facts, at(62))
        .expect("a node");
    walk.note("still \"loud\" \u{1f4a5}\n", "bob").expect("room");
    walk.hand_over("bob", "carol", "watch the meter", at(63)).expect("room");
    walk.observe(&super_calm(), at(64));
    walk
}

fn super_calm() -> Facts {
    facts(&[("originals_rps", 9.0), ("attempts_rps", 9.0), ("provider_429_rps", 0.0)])
}

fn saved() -> String {
    walked().write("bob", zero())
}

fn opened(text: &str) -> Result<Walk, WalkFileError> {
    Walk::read(text, runbook::embedded(), zero())
}

#[test]
fn what_was_written_is_opened_whole() {
    let walk = walked();
    assert!(walk.trail().len() > 4 && walk.trail()[0].changed_at.is_some());
    let again = opened(&saved()).expect("a walk");
    assert_eq!(again, walk);
    assert_eq!(again.remarks(), [""; 0]);
    assert_eq!(again.hand_overs()[0].to, "carol");
    assert_eq!(again.trail()[0].at, zero() + chrono::TimeDelta::seconds(60));
    assert_eq!(again.write("bob", zero()), saved());
}

#[test]
fn a_file_that_is_no_walk_is_refused_with_words() {
    let check = |text: &str, expected: &str| {
        let said = opened(text).expect_err(text).to_string();
        assert!(said.contains(expected), "{text}: {said}");
        assert!(said.contains("; "), "no remedy: {said}");
    };
    check("", "ends in the middle");
    check("nonsense", "line 1: expected ident");
    check("{}", "it is no walk");
    check("7", "expected the object of a walk");
    check(&saved().replacen("\"trail\": [", "\"trail\": [7, ", 1), "expected the object of a step");
    check("{\"kind\": \"weir-recording\", \"format\": 1}", "it is no walk");
    check("{\"kind\": \"weir-walk\", \"format\": 2, \"more\": []}", "it is of format 2");
    check("{\"kind\": \"weir-walk\", \"format\": 1}", "missing field");
    check(&saved().replace("\"skipped\"", "\"sliced\""), "unknown field `sliced`");
    check(&saved().replace("\"state\": \"true\"", "\"state\": \"yes\""), "unknown variant `yes`");
    check(&saved().replace("2026-11-29T08:01:00Z", "yesterday"), "line ");
}

#[test]
fn its_size_is_bounded_on_both_sides() {
    let padded = |bytes: usize| {
        let text = saved();
        let pad = bytes - text.len();
        text + &" ".repeat(pad)
    };
    assert!(opened(&padded(MAX_WALK_BYTES)).is_ok());
    assert_eq!(opened(&padded(MAX_WALK_BYTES + 1)), Err(WalkFileError::TooLarge));
    let facts = storm();
    let mut walk = Walk::start(runbook::embedded());
    let mut held = 0;
    while walk.note("x", "alice").is_ok() {
        held += 1;
    }
    assert_eq!(held, 200);
    assert!(opened(&walk.write("alice", zero())).is_ok());
    let more =
        walk.write("alice", zero()).replacen("\"alice: x\"", "\"alice: x\", \"one more\"", 1);
    assert!(matches!(opened(&more), Err(WalkFileError::TooMuch { found: 201, max: 200, .. })));
    while walk.hand_over("a", "b", "c", at(1)).is_ok() {}
    assert_eq!(walk.hand_overs().len(), 50);
    assert!(matches!(walk.note("x", "alice"), Err(Stuck::Full { max: 200, .. })));
    let long = "é".repeat(3_000);
    walk.skip(&Goto::Runbook("healthy".to_owned()), &long, "alice", &facts, at(1)).expect("there");
    assert_eq!(walk.trail()[0].answer.len(), 2_000);
}

/// The shipped runbooks with one file changed by `change`, or without it.
fn other_library(name: &str, change: &dyn Fn(&str) -> Option<String>) -> Arc<Library> {
    let mut texts: Vec<(&str, String)> = Vec::new();
    for (file, text) in SHIPPED {
        let changed = if *file == format!("{name}.runbook.md") {
            change(text)
        } else {
            Some((*text).to_owned())
        };
        texts.extend(changed.map(|text| (*file, text)));
    }
    let files = texts.iter().map(|(name, text)| (*name, text.as_str()));
    Arc::new(runbook::assemble(files).expect("they fit together"))
}

#[test]
fn runbooks_that_differ_and_steps_that_are_gone_are_said() {
    let renamed =
        |text: &str| Some(text.replace("## wait ", "## hold ").replace("\"wait\"", "\"hold\""));
    let library = other_library("nested-retries", &renamed);
    let mut walk = Walk::read(&saved(), library, zero()).expect("a walk");
    let (book, node) = walk.position();
    assert_eq!((book, node != "wait"), ("nested-retries", true), "the last step that is known");
    let remarks = walk.remarks().join("\n");
    assert!(remarks.contains("step `wait` of runbook `nested-retries` is not here"), "{remarks}");
    assert!(remarks.contains("runbook `nested-retries` differs from the one"), "{remarks}");
    assert_eq!(walk.trail().len(), walked().trail().len(), "what was passed stays");
    assert!(walk.why(&Facts::default()).is_some());
    assert!(walk.back());

    let elsewhere = saved().replace("\"runbook\": \"nested-retries\"", "\"runbook\": \"ours\"");
    let mut walk = opened(&elsewhere).expect("a walk");
    assert_eq!(walk.position().0, "triage");
    let passed_here = walk.trail().iter().filter(|step| step.book == "triage").count();
    assert!(walk.back(), "steps of a lost runbook are passed over");
    assert_eq!(walk.trail().len(), passed_here - 1);

    let other = other_library("probe-spend", &|text| Some(format!("{text}\n")));
    let walk = Walk::read(&saved(), other, zero()).expect("a walk");
    assert_eq!(walk.remarks(), ["1 runbooks that were not walked differ or are missing"]);
}

#[test]
fn a_passed_step_says_since_when_it_would_be_answered_otherwise() {
    let (storm, calm) = (storm(), super_calm());
    let mut walk = Walk::start(runbook::embedded()).of("scope", zero());
    walk.advance(&storm, at(10)).expect("a decision");
    walk.observe(&storm, at(11));
    assert_eq!(walk.trail()[0].changed_at, None);
    let here = (walk.position().0.to_owned(), walk.position().1.to_owned());
    walk.observe(&calm, at(20));
    walk.observe(&calm, at(30));
    assert_eq!(walk.trail()[0].changed_at, Some(zero() + chrono::TimeDelta::seconds(20)));
    assert_eq!((walk.position().0.to_owned(), walk.position().1.to_owned()), here);
    walk.observe(&storm, at(40));
    assert_eq!(walk.trail()[0].changed_at, None);
}

#[test]
fn why_names_what_is_told_apart_and_how_names_people() {
    let facts = storm();
    let walk = Walk::start(runbook::embedded());
    let why = walk.why(&facts).expect("a step");
    assert_eq!(why.place, "triage/who");
    let gate = &why.forks[0];
    assert_eq!(
        (gate.when.as_str(), gate.state),
        ("gate_refuses and gate_refuses_more", Some("false"))
    );
    assert!(gate.leads.iter().any(|cause| cause == "gate-refuses-wrongly"), "{:?}", gate.leads);
    assert!(
        why.evidence
            .iter()
            .any(|(name, _, state)| { name == "provider_refuses" && *state == Some(Truth::True) })
    );
    let clock = |at: DateTime<Utc>| at.to_rfc3339();
    let how = walked().how(None).lines(&clock).join("\n");
    for words in [
        "said by alice",
        "skipped: contain did all three, said by bob",
        "was 0.9",
        "said by people and not by signals: 2 steps",
        "handed over by bob to carol",
        "note by alice: paged the owner",
        "its evidence says otherwise since",
    ] {
        assert!(how.contains(words), "{words}\n{how}");
    }
}

#[derive(Clone, Debug)]
enum Move {
    Advance,
    Answer(usize),
    Act(u8),
    Skip(String, String),
    Back,
    Note(String),
    HandOver(String),
    Observe,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        Just(Move::Advance),
        Just(Move::Advance),
        Just(Move::Advance),
        (0_usize..3).prop_map(Move::Answer),
        (0_u8..3).prop_map(Move::Act),
        (prop::sample::select(vec!["tpm-exhausted", "hard-quota", "triage"]), "\\PC{0,40}")
            .prop_map(|(book, reason)| Move::Skip(book.to_owned(), reason)),
        Just(Move::Back),
        "\\PC{0,40}".prop_map(Move::Note),
        "\\PC{0,40}".prop_map(Move::HandOver),
        Just(Move::Observe),
    ];
    prop::collection::vec(one, 0..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_round_trip_is_the_identity(
        moves in moves(),
        numbers in prop::collection::vec(0.0_f64..5_000.0, 6),
        nanos in 0_i64..2_000_000_000_000_000,
    ) {
        let names = ["originals_rps", "attempts_rps", "success_rps", "provider_429_rps", "tpm_limit",
            "tpm_remaining"];
        let given: Vec<(&str, f64)> = names.into_iter().zip(numbers).collect();
        let (first, second) = (facts(&given), storm());
        let zero = zero() + chrono::TimeDelta::nanoseconds(nanos);
        let mut walk = Walk::start(runbook::embedded()).of("a \"scope\"", zero);
        for (second_no, one) in (0..).zip(&moves) {
            let (facts, at) = (if second_no % 3 == 0 { &second } else { &first }, at(second_no));
            // What cannot be done here is refused and changes nothing.
            let _ = match one {
                Move::Advance => walk.advance(facts, at),
                Move::Answer(place) => walk.answer(*place, "ann", facts, at),
                Move::Act(0) => walk.acted(Truth::True, "ann", facts, at),
                Move::Act(1) => walk.acted(Truth::False, "ann", facts, at),
                Move::Act(_) => walk.acted(Truth::Unknown, "ann", facts, at),
                Move::Skip(book, why) => walk.skip(&Goto::Runbook(book.clone()), why, "ann", facts, at),
                Move::Back => { walk.back(); Ok(()) }
                Move::Note(text) => walk.note(text, "ann"),
                Move::HandOver(text) => walk.hand_over("ann", "ben", text, at),
                Move::Observe => { walk.observe(facts, at); Ok(()) }
            };
        }
        let text = walk.write("ann", zero);
        let again = Walk::read(&text, runbook::embedded(), zero);
        prop_assert_eq!(again, Ok(walk));
    }

    #[test]
    fn no_text_panics(
        place in any::<prop::sample::Index>(),
        junk in "\\PC{0,80}",
    ) {
        let text = saved();
        let bound = |at: prop::sample::Index| {
            let wanted = at.index(text.len());
            (0..=wanted).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0)
        };
        let _ = opened(&junk);
        let middle = bound(place);
        let _ = opened(&format!("{}{junk}{}", &text[..middle], &text[middle..]));
    }
}

#[test]
fn every_cut_is_told_from_a_broken_file() {
    let text = saved();
    // Without the last brace and what stands behind it.
    let ends = (0..text.trim_end().len()).filter(|end| text.is_char_boundary(*end));
    for end in ends {
        let found = opened(&text[..end]);
        assert!(matches!(found, Err(WalkFileError::Truncated { .. })), "{end}: {:?}", found.err());
    }
}
