//! A predicate changed in one respect: its threshold, its direction, its order, `for`, `clear`. Knows no
//! file.

use std::time::Duration;

use crate::diagnosis::{Bound, Heading, Op, Predicate, Test};
use crate::signal::{Unit, definition};

/// How far a threshold is moved, as a share of it.
const SHIFT: f64 = 0.25;
/// How far a threshold of zero is moved: a share, and anything else.
const STEP_OF_SHARE: f64 = 0.05;
const STEP: f64 = 1.0;

/// A predicate changed in one respect: how, whether that is its threshold, and to what.
pub(super) fn changed(predicate: &Predicate) -> Vec<(String, bool, Predicate)> {
    let mut found = Vec::new();
    let with = |test: Test| Predicate { test, ..predicate.clone() };
    if let Test::Compare { left, op, bound } = &predicate.test {
        let (number, what) = match bound {
            Bound::Fixed(number) => (*number, "threshold"),
            Bound::Scaled { times, .. } => (*times, "factor"),
        };
        for moved in moved(number, step_of(&left.signal)) {
            let bound = match bound {
                Bound::Fixed(_) => Bound::Fixed(moved),
                Bound::Scaled { operand, .. } => {
                    Bound::Scaled { operand: operand.clone(), times: moved }
                }
            };
            let test = Test::Compare { left: left.clone(), op: *op, bound };
            found.push((format!("{what} {number} -> {moved}"), true, with(test)));
        }
        let test = Test::Compare { left: left.clone(), op: turned(*op), bound: bound.clone() };
        found.push(("comparison turned round".to_owned(), true, with(test)));
    }
    if let Test::Codes { patterns, op, share } = &predicate.test {
        for moved in moved(*share, STEP_OF_SHARE) {
            let test = Test::Codes { patterns: patterns.clone(), op: *op, share: moved };
            found.push((format!("share {share} -> {moved}"), true, with(test)));
        }
        let (patterns, op) = (patterns.clone(), turned(*op));
        let test = Test::Codes { patterns, op, share: *share };
        found.push(("comparison turned round".to_owned(), true, with(test)));
    }
    if let Test::Is { path, word, negated } = &predicate.test {
        let test = Test::Is { path: path.clone(), word: word.clone(), negated: !negated };
        found.push(("`is` turned round".to_owned(), true, with(test)));
    }
    if let Test::Trend { signal, way, span } = &predicate.test {
        let test = Test::Trend { signal: signal.clone(), way: turned_way(*way), span: *span };
        found.push(("the move turned round".to_owned(), false, with(test)));
    }
    if let Test::Order { first, then } = &predicate.test {
        let test = Test::Order { first: then.clone(), then: first.clone() };
        found.push(("the order turned round".to_owned(), false, with(test)));
    }
    if !predicate.hold.is_zero() {
        let hold = |hold| Predicate { hold, ..predicate.clone() };
        found.push(("`for` dropped".to_owned(), false, hold(Duration::ZERO)));
        found.push(("`for` doubled".to_owned(), false, hold(predicate.hold * 2)));
    }
    let threshold = match &predicate.test {
        Test::Compare { bound: Bound::Fixed(number), .. } => Some(*number),
        Test::Codes { share, .. } => Some(*share),
        _ => None,
    };
    if let Some(clear) = predicate.clear
        && threshold.is_none_or(|number| (number - clear).abs() > f64::EPSILON)
    {
        let changed = Predicate { clear: None, ..predicate.clone() };
        found.push(("`clear` dropped".to_owned(), false, changed));
    }
    found
}

fn moved(number: f64, step: f64) -> [f64; 2] {
    if number.abs() < f64::EPSILON {
        [-step, step]
    } else {
        // Rounded, so that reports do not show the noise of the last digit.
        [1.0 - SHIFT, 1.0 + SHIFT].map(|factor| (number * factor * 1e9).round() / 1e9)
    }
}

fn step_of(path: &str) -> f64 {
    let root = path.split('.').next().unwrap_or(path);
    let share =
        path.ends_with("_share") || definition(root).is_some_and(|known| known.unit == Unit::Ratio);
    if share { STEP_OF_SHARE } else { STEP }
}

const fn turned(op: Op) -> Op {
    match op {
        Op::Below => Op::Above,
        Op::Above => Op::Below,
    }
}

const fn turned_way(way: Heading) -> Heading {
    match way {
        Heading::Up => Heading::Down,
        Heading::Down => Heading::Up,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn how(text: &str) -> Vec<String> {
        let predicate = Predicate::parse(text).expect(text);
        changed(&predicate).into_iter().map(|(how, ..)| how).collect()
    }

    #[test]
    fn a_predicate_is_changed_in_every_respect_that_it_has() {
        assert_eq!(
            how("tpm_headroom[1m] < 5% for 30s clear 15%"),
            [
                "threshold 0.05 -> 0.0375",
                "threshold 0.05 -> 0.0625",
                "comparison turned round",
                "`for` dropped",
                "`for` doubled",
                "`clear` dropped",
            ]
        );
        assert_eq!(
            how("originals_rps < originals_rps@15m * 0.8"),
            ["factor 0.8 -> 0.6", "factor 0.8 -> 1", "comparison turned round"]
        );
        assert_eq!(how("breaker.state is open"), ["`is` turned round"]);
        assert_eq!(how("queue_depth rising 5m"), ["the move turned round"]);
        assert_eq!(how("queue_depth rose before served_share"), ["the order turned round"]);
        assert_eq!(
            how("error_codes matching /a/ > 50%"),
            ["share 0.5 -> 0.375", "share 0.5 -> 0.625", "comparison turned round"]
        );
        assert_eq!(how("queue_depth > 0")[..2], ["threshold 0 -> -1", "threshold 0 -> 1"]);
        assert_eq!(how("cache.wrong_share > 0")[1], "threshold 0 -> 0.05");
        assert!(!how("queue_depth > 5 clear 5").iter().any(|how| how.contains("clear")));
    }
}
