//! Why a cause, why not another, what contributes and what follows: over verdicts of whole snapshots.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, json};
use weir::diagnosis::{
    Explanation, Expr, Facts, Library, Role, Standing, Truth, Verdict, Way, explain,
    explanation_to_json, judge_once, snapshot_from_json,
};
use weir::runbook::{self, SHIPPED};

/// A storm over an empty token meter: retries, and what they do to the meter.
fn storm() -> serde_json::Value {
    json!({
        "window_s": 60, "originals_rps": 10, "offered_rps": 80, "attempts_rps": 80, "success_rps": 9,
        "provider_429_rps": 71, "provider_503_rps": 0, "gate_429_rps": 0, "gate_503_rps": 0,
        "max_attempts_configured": 3, "tpm_limit": 1000, "tpm_remaining": 0, "rpm_limit": 900,
        "rpm_remaining": 800,
    })
}

/// The shipped runbooks, where the named ones feed others.
fn library(feeds: &[(&str, &str)]) -> Arc<Library> {
    let fed = |name: &str, text: &str| {
        let id = name.trim_end_matches(runbook::SUFFIX);
        let list: Vec<String> = feeds
            .iter()
            .filter(|(from, _)| *from == id)
            .map(|(_, to)| format!("\"{to}\""))
            .collect();
        let line = format!("[cause]\nfeeds = [{}]\n", list.join(", "));
        if list.is_empty() { text.to_owned() } else { text.replacen("[cause]\n", &line, 1) }
    };
    let without = |text: &str| -> String {
        text.lines()
            .filter(|line| !line.starts_with("feeds "))
            .fold(String::new(), |all, line| all + line + "\n")
    };
    let texts: Vec<(&str, String)> =
        SHIPPED.iter().map(|(name, text)| (*name, fed(name, &without(text)))).collect();
    let files = texts.iter().map(|(name, text)| (*name, text.as_str()));
    Arc::new(runbook::assemble(files).expect("they fit together"))
}

fn judged(library: &Arc<Library>, json: &serde_json::Value) -> (Verdict, Facts) {
    let object: &Map<_, _> = json.as_object().expect("an object");
    judge_once(library, &snapshot_from_json(object, "test").0)
}

fn role(library: &Arc<Library>, json: &serde_json::Value, cause: &str) -> Role {
    let (verdict, _) = judged(library, json);
    verdict.also.iter().find(|other| other.cause == cause).expect("it is ranked").role
}

fn explained(json: &serde_json::Value, cause: &str) -> Explanation {
    let library = runbook::embedded();
    let (verdict, facts) = judged(&library, json);
    explain(&library, &facts, &verdict, cause).expect("a cause")
}

#[test]
fn what_the_named_cause_feeds_is_a_consequence_and_what_it_does_not_feed_contributes() {
    let cause = "tpm-exhausted";
    let named = judged(&library(&[]), &storm()).0;
    assert_eq!((named.cause.as_str(), named.standing), ("nested-retries", Standing::Confirmed));
    let check = |feeds: &[(&str, &str)], expected: Role| {
        assert_eq!(role(&library(feeds), &storm(), cause), expected, "{feeds:?}");
    };
    check(&[], Role::Contributing);
    check(&[("nested-retries", cause)], Role::Consequence);
    check(&[("hard-quota", cause)], Role::Contributing);
    // Through a cause that does not stand nothing is explained.
    check(&[("nested-retries", "hard-quota"), ("hard-quota", cause)], Role::Contributing);
    // Each feeds the other: a loop is no mere consequence.
    check(&[("nested-retries", cause), (cause, "nested-retries")], Role::Contributing);
}

#[test]
fn beside_no_incident_and_below_likely_nothing_contributes() {
    let calm = json!({"originals_rps": 9, "offered_rps": 9, "attempts_rps": 9, "success_rps": 9,
        "provider_429_rps": 0, "provider_503_rps": 0, "provider_5xx_other_rps": 0,
        "provider_4xx_other_rps": 0, "timeout_rps": 0, "gate_429_rps": 0, "gate_503_rps": 0});
    for json in [calm, json!({})] {
        let (verdict, _) = judged(&library(&[]), &json);
        assert!(verdict.also.iter().all(|other| other.role == Role::Other), "{}", verdict.cause);
    }
    let (verdict, _) = judged(&library(&[("nested-retries", "rpm-exhausted")]), &storm());
    let unlikely = verdict.also.iter().filter(|other| other.standing < Standing::Likely);
    assert!(unlikely.clone().count() > 0);
    assert!(unlikely.into_iter().all(|other| other.role == Role::Other));
}

#[test]
fn the_named_cause_says_what_would_take_it_down() {
    let found = explained(&storm(), "nested-retries");
    assert_eq!((&found.way, found.role), (&Way::Named, None));
    let main = |turn: &&weir::diagnosis::Tipping| turn.text.starts_with("excess or ");
    let turn = found.turns.iter().find(main).expect("its main ground");
    assert_eq!((turn.state, turn.wanted), (Truth::True, Truth::False));
    let bound = |lever: &weir::diagnosis::Lever| {
        assert!(!lever.alone && lever.evidence.predicate.starts_with("amplification[fast] >"));
        assert_eq!(lever.evidence.value, Some(8.0));
        lever.evidence.threshold.expect("a bound")
    };
    // Above what one layer may make, and above two: both have to end.
    let bounds: Vec<f64> = turn.levers.iter().take(2).map(bound).collect();
    assert!((bounds[0] - 3.3).abs() < 1e-9 && (bounds[1] - 2.0).abs() < 1e-9, "{bounds:?}");
}

#[test]
fn another_cause_says_where_the_way_left_it_and_what_it_lacks() {
    let found = explained(&storm(), "rpm-exhausted");
    assert_eq!(found.standing, Standing::RuledOut);
    assert!(matches!(&found.way, Way::Left { .. } | Way::Weighed { .. }), "{:?}", found.way);
    let lacks = &found.turns[0];
    assert_eq!((lacks.state, lacks.wanted), (Truth::False, Truth::True));
    assert!(!lacks.levers.is_empty());

    let meter = explained(&storm(), "tpm-exhausted");
    let Way::Left { node, answer, wanted, .. } = meter.way else { panic!("{:?}", meter.way) };
    assert_eq!((node.as_str(), answer.as_str()), ("pressure", "nested-retries is confirmed"));
    assert_eq!(wanted[0].state, Truth::False, "a cause stands there");

    let gate = explained(&storm(), "gate-refuses-wrongly");
    let Way::Left { node, wanted, answer, .. } = gate.way else { panic!("{:?}", gate.way) };
    assert_eq!((node.as_str(), answer.as_str()), ("who", "the provider refuses"));
    assert_eq!(wanted[0].when, "gate_refuses and gate_refuses_more");
    assert_eq!(wanted[0].state, Truth::False);
}

#[test]
fn what_is_unknown_is_named_as_what_would_decide() {
    let found = explained(&json!({"attempts_rps": 9, "provider_429_rps": 5}), "tpm-exhausted");
    assert_eq!(found.standing, Standing::CannotTell);
    let turn = &found.turns[0];
    assert_eq!(turn.state, Truth::Unknown);
    assert!(turn.levers.iter().all(|lever| lever.evidence.state == Truth::Unknown));
    assert!(turn.levers.iter().any(|lever| lever.evidence.signal == "tpm_headroom"));
}

#[test]
fn an_unknown_cause_is_not_explained() {
    let library = runbook::embedded();
    let (verdict, facts) = judged(&library, &storm());
    assert_eq!(explain(&library, &facts, &verdict, "moon-phase"), None);
}

proptest! {
    /// A lever that is said to suffice alone does: its ground turns when only it is turned. And the
    /// counts and standing are those of the ranking.
    #[test]
    fn explanations_agree_with_the_verdict(
        numbers in prop::collection::btree_map(
            prop::sample::select(vec![
                "originals_rps", "offered_rps", "attempts_rps", "success_rps", "provider_429_rps",
                "provider_503_rps", "gate_429_rps", "tpm_limit", "tpm_remaining", "rpm_limit",
                "rpm_remaining", "max_attempts_configured", "queue_oldest_age_s",
            ]),
            0.0_f64..200.0,
            0..13,
        ),
    ) {
        let library = runbook::embedded();
        let (verdict, facts) = judged(&library, &json!(numbers));
        for ranked in &verdict.also {
            let found = explain(&library, &facts, &verdict, &ranked.cause).expect("a cause");
            prop_assert_eq!(found.standing, ranked.standing, "{}", &ranked.cause);
            prop_assert_eq!(found.role, Some(ranked.role));
            prop_assert_eq!(found.evidence_for, ranked.evidence_for);
            let open = found.standing < Standing::Confirmed;
            prop_assert!(!open || !found.turns.is_empty(), "{} lacks nothing", &ranked.cause);
            for turn in &found.turns {
                prop_assert!(turn.state != turn.wanted, "{} {}", &ranked.cause, &turn.text);
                for lever in &turn.levers {
                    prop_assert!(lever.evidence.state != lever.wanted);
                    let expr = Expr::parse(&turn.text).expect("it was printed from one");
                    let now = expr.eval(&mut |name| {
                        if name == lever.evidence.name {
                            lever.wanted
                        } else {
                            facts.seen(&ranked.cause, name).state
                        }
                    });
                    prop_assert!(!(open && lever.alone) || now == turn.wanted, "{lever:?}");
                    prop_assert!(open || !lever.alone || now != turn.state, "{lever:?}");
                }
            }
            let json = explanation_to_json(&found).to_string();
            prop_assert!(json.len() < 200_000);
        }
    }
}
