//! The guided walk of one incident: what it offers, what it freezes, and that it never jumps.

use std::sync::Arc;

use chrono::DateTime;
use weir::diagnosis::{Diagnoser, Facts, Goto, Truth, first_step};
use weir::runbook::{self, Offer, Stuck, Walk};
use weir::signal::{Mono, Snapshot, Value};

const STORM: [(&str, f64); 14] = [
    ("originals_rps", 180.0),
    ("offered_rps", 1_600.0),
    ("attempts_rps", 1_600.0),
    ("success_rps", 66.0),
    ("provider_429_rps", 1_534.0),
    ("provider_503_rps", 0.0),
    ("gate_429_rps", 0.0),
    ("gate_503_rps", 0.0),
    ("amplification", 8.9),
    ("max_attempts_configured", 3.0),
    ("client_multiplication", 8.9),
    ("tpm_headroom", 0.0),
    ("rpm_headroom", 0.9),
    ("retry_header_share", 0.6),
];

fn at(seconds: u32) -> Mono {
    Mono::from_secs_f64(f64::from(seconds))
}

/// A diagnosis after a minute of these numbers.
fn diagnoser(numbers: &[(&str, f64)]) -> Diagnoser {
    let mut diagnoser = Diagnoser::new(runbook::embedded());
    step(&mut diagnoser, numbers, 0);
    diagnoser
}

fn step(diagnoser: &mut Diagnoser, numbers: &[(&str, f64)], from: u32) {
    let mut snapshot = Snapshot::new("scope", 10.0);
    for (name, number) in numbers {
        snapshot.set(name, Value::Number(*number), &Arc::from("gateway"));
    }
    for second in from..from + 60 {
        diagnoser.step(&snapshot, at(second));
    }
}

fn position(walk: &Walk) -> (String, String) {
    let (book, node) = walk.position();
    (book.to_owned(), node.to_owned())
}

/// Follows the evidence until a person is needed.
fn follow(walk: &mut Walk, facts: &Facts) {
    while walk.advance(facts, at(60)).is_ok() {}
}

#[test]
fn the_walk_leads_from_the_first_question_to_a_flip() {
    let diagnoser = diagnoser(&STORM);
    let mut walk = Walk::start(runbook::embedded());
    follow(&mut walk, diagnoser.facts());
    let passed: Vec<&str> = walk.trail().iter().map(|step| step.node.as_str()).collect();
    assert_eq!(passed, ["who", "words", "pressure", "where"]);
    assert_eq!(position(&walk), ("nested-retries".to_owned(), "one-owner".to_owned()));
    let view = walk.view(diagnoser.facts()).expect("a step");
    let Offer::Flip { action, guard, verified } = view.offer else { panic!("a flip") };
    assert_eq!(action.flag, "retry.owner");
    assert_eq!((guard, verified), (Truth::True, Truth::False));
    assert!(view.node.prose.contains("x-should-retry"), "{}", view.node.prose);
}

#[test]
fn the_first_step_is_where_a_person_is_needed_and_a_flip_is_left_to_make() {
    let diagnoser = diagnoser(&STORM);
    let library = runbook::embedded();
    let first = |is_so: &dyn Fn(&str) -> bool| {
        let found =
            first_step(&library, "nested-retries", diagnoser.facts(), |flag, _| is_so(flag));
        found.map(|(book, node)| format!("{}/{}", book.id, node.id)).expect("a step")
    };
    assert_eq!(first(&|_| false), "nested-retries/one-owner", "the question before is decided");
    assert_eq!(first(&|flag| flag == "retry.owner"), "nested-retries/few-tries");
    assert!(first_step(&library, "nothing", diagnoser.facts(), |_, _| false).is_none());
}

#[test]
fn passed_steps_are_frozen_and_marked_when_they_have_changed() {
    let mut diagnoser = diagnoser(&STORM);
    let mut walk = Walk::start(runbook::embedded());
    follow(&mut walk, diagnoser.facts());
    assert!(walk.changed(0, diagnoser.facts()).is_empty());
    let mut calm = STORM;
    calm[2].1 = 182.0;
    calm[4].1 = 0.0;
    calm[8].1 = 1.01;
    calm[10].1 = 1.01;
    step(&mut diagnoser, &calm, 60);
    let here = position(&walk);
    assert_eq!(walk.changed(0, diagnoser.facts()), ["provider_refuses"]);
    assert_eq!(position(&walk), here, "the walk moved by itself");
    // Its guard is gone, which is what the flip was for.
    walk.acted(Truth::True, "alice", diagnoser.facts(), at(120)).expect("it was flipped before");
}

#[test]
fn flips_questions_and_skips_are_kept_with_their_names() {
    let diagnoser = diagnoser(&STORM);
    let facts = diagnoser.facts();
    let library = runbook::embedded();
    let mut walk = Walk::start_in(Arc::clone(&library), "nested-retries").expect("shipped");
    follow(&mut walk, facts);
    walk.note("paged the owner", "alice").expect("room");
    walk.acted(Truth::False, "alice", facts, at(61)).expect("a flip");
    let step = walk.trail().last().expect("a step");
    assert_eq!(step.answer, "retry.owner = gateway: did not help");
    assert_eq!(step.notes, ["alice: paged the owner"]);
    walk.skip(&Goto::Node("wait".to_owned()), "plan contain did all three", "bob", facts, at(62))
        .expect("a node");
    assert!(walk.trail().last().is_some_and(|step| step.skipped));
    let view = walk.view(facts).expect("a step");
    let Offer::Ask { answers, .. } = view.offer else { panic!("a question") };
    assert_eq!(answers[0].0, "yes, calm");
    walk.answer(9, "bob", facts, at(63)).expect_err("there is no tenth answer");
    walk.answer(0, "bob", facts, at(63)).expect("an answer");
    assert!(matches!(walk.view(facts).expect("a step").offer, Offer::Ended { .. }));
    assert!(matches!(walk.advance(facts, at(64)), Err(Stuck::Wants { .. })));
    assert!(walk.back());
    assert_eq!(position(&walk).1, "wait");
    assert_eq!(walk.notes(), ["bob answered, and it was taken back: yes, calm"]);
    assert!(walk.back());
    let taken_back = "bob skipped, and it was taken back: plan contain did all three";
    assert_eq!(walk.notes().last().map(String::as_str), Some(taken_back));
    walk.skip(&Goto::Node("wait".to_owned()), "as before", "bob", facts, at(65)).expect("a node");
    let lost = walk.skip(&Goto::Node("nowhere".to_owned()), "", "bob", facts, at(65));
    assert_eq!(lost, Err(Stuck::NoTarget { target: "nowhere".to_owned() }));
}

#[test]
fn a_flip_that_nobody_made_is_recorded_as_that() {
    let diagnoser = diagnoser(&STORM);
    let mut walk = Walk::start_in(runbook::embedded(), "nested-retries").expect("shipped");
    assert!(walk.without("alice", diagnoser.facts(), at(60)).is_err(), "a question is no flip");
    follow(&mut walk, diagnoser.facts());
    walk.without("alice", diagnoser.facts(), at(61)).expect("a flip");
    let step = walk.trail().last().expect("a step");
    assert_eq!(
        (&*step.answer, step.by.as_deref()),
        ("retry.owner = gateway: not made", Some("alice"))
    );
    assert_eq!(position(&walk).1, "few-tries");
}

#[test]
fn back_from_steps_that_are_all_gone_changes_nothing() {
    let diagnoser = diagnoser(&STORM);
    let mut walk = Walk::start_in(runbook::embedded(), "nested-retries").expect("shipped");
    assert!(!walk.back(), "there is no step before the first");
    follow(&mut walk, diagnoser.facts());
    assert!(!walk.trail().is_empty());
    let page = walk.write("alice", DateTime::UNIX_EPOCH).replace("nested-retries", "gone");
    let mut lost = Walk::read(&page, runbook::embedded(), DateTime::UNIX_EPOCH).expect("a walk");
    let (trail, here) = (lost.trail().to_vec(), position(&lost));
    assert!(trail.iter().all(|step| step.book == "gone"), "{trail:?}");
    assert!(!lost.back());
    assert_eq!((lost.trail(), position(&lost)), (&trail[..], here));
}

#[test]
fn a_walk_without_evidence_reaches_the_honest_end() {
    let diagnoser = Diagnoser::new(runbook::embedded());
    let mut walk = Walk::start(runbook::embedded());
    follow(&mut walk, diagnoser.facts());
    let view = walk.view(diagnoser.facts()).expect("a step");
    let Offer::Ended { cause, .. } = view.offer else { panic!("an end") };
    assert_eq!(cause, Some("insufficient-evidence"));
}
