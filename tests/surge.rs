//! The golden surge that ships: kept as it is, and closed to each way of breaking the gate.

use std::path::Path;

use weir::drill::surge::{Figures, GateFile, Gated, Measure, State, read_quality};

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/gates")
}

/// The surge from its first seed, with something in its text replaced.
fn play(replaced: Option<(&str, &str)>) -> Gated {
    let text = std::fs::read_to_string(folder().join("surge.toml")).expect("it ships");
    let mut text = text.replace("seeds = [1, 2, 3, 4, 5]", "seeds = [1]");
    if let Some((from, to)) = replaced {
        assert!(text.contains(from), "`{from}` is in the file");
        text = text.replace(from, to);
    }
    let gate = GateFile::parse("surge.toml", &text, &folder()).expect("right");
    gate.judge(&gate.play().expect("it plays"), &Figures::new(), true)
}

fn broken(gated: &Gated) -> Vec<Measure> {
    let bounds = gated.runs[0].bounds.iter();
    bounds.filter(|bound| bound.state != State::Kept).map(|bound| bound.measure).collect()
}

#[test]
fn the_gate_as_it_is_keeps_every_bound() {
    let gated = play(None);
    assert!(gated.passed, "{:#?}", gated.runs[0].bounds);
    assert_eq!(gated.runs[0].bounds.len(), 15, "every figure has a bound");
}

#[test]
fn a_gate_that_is_off_breaks_what_only_a_gate_can_keep() {
    let broken = broken(&play(Some(("\"enforce\"", "\"off\""))));
    for measure in
        [Measure::Amplification, Measure::EarlyRetries, Measure::PermanentRetries, Measure::CostUsd]
    {
        assert!(broken.contains(&measure), "{measure:?} holds: {broken:?}");
    }
}

#[test]
fn layers_that_retry_on_their_own_are_refused_too_much() {
    let broken =
        broken(&play(Some(("\"retry.owner\" = \"gateway\"", "\"retry.owner\" = \"client\""))));
    assert!(broken.contains(&Measure::ShedShare), "{broken:?}");
}

#[test]
fn instances_that_share_nothing_spend_a_budget_each() {
    let broken = broken(&play(Some(("shared = true", "shared = false"))));
    for measure in [Measure::Amplification, Measure::CostUsd] {
        assert!(broken.contains(&measure), "{measure:?} holds: {broken:?}");
    }
}

#[test]
fn the_example_of_an_applications_word_keeps_the_bounds_of_quality() {
    let figures = read_quality(&folder().join("answers.jsonl")).expect("right");
    assert_eq!(figures.len(), Measure::OF_QUALITY.len(), "all three are told");
    let gate = GateFile::load(&folder().join("surge.toml")).expect("right");
    let of_quality =
        gate.bounds.iter().filter(|bound| Measure::OF_QUALITY.contains(&bound.measure));
    for bound in of_quality {
        assert_eq!(bound.judge(&figures).state, State::Kept, "{}", bound.measure.word());
    }
}
