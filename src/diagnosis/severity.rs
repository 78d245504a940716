//! Orders the verdicts on several scopes, worst first. Judges nothing anew: standing, cause and what
//! the scope loses decide.

use std::cmp::Ordering;

use crate::signal::Snapshot;

use super::engine::{HEALTHY, INSUFFICIENT};
use super::verdict::{Standing, Toll, Verdict};

/// The cause that means the gate does what it is for.
const CONTAINED: &str = "demand-over-capacity";

/// How much a verdict asks for attention, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// No incident.
    Calm,
    /// It cannot be told, or the evidence contradicts itself.
    Open,
    /// Demand is above the quota and the gate keeps it out.
    Contained,
    /// An incident that is likely.
    Likely,
    /// An incident that is confirmed.
    Confirmed,
}

impl Severity {
    /// The severity of a verdict.
    #[must_use]
    pub fn of(verdict: &Verdict) -> Self {
        match (verdict.cause.as_str(), verdict.standing) {
            (INSUFFICIENT, _) => Self::Open,
            (HEALTHY, Standing::Confirmed | Standing::Likely) => Self::Calm,
            (CONTAINED, Standing::Confirmed | Standing::Likely) => Self::Contained,
            (_, Standing::Confirmed) => Self::Confirmed,
            (_, Standing::Likely) => Self::Likely,
            _ => Self::Open,
        }
    }
}

/// Worst first; between equals the one that loses more, and what is known before what is not.
#[must_use]
pub fn worst_first(left: &Verdict, right: &Verdict) -> Ordering {
    let more = |left: Option<f64>, right: Option<f64>| match (left, right) {
        (Some(left), Some(right)) => right.total_cmp(&left),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    };
    Severity::of(right)
        .cmp(&Severity::of(left))
        .then(more(left.toll.lost_originals_rps, right.toll.lost_originals_rps))
        .then(more(left.toll.refused_rps, right.toll.refused_rps))
        .then_with(|| left.scope.cmp(&right.scope))
}

/// What a scope loses, as far as its completed snapshot tells.
pub(super) fn toll(snapshot: &Snapshot) -> Toll {
    let number = |name: &str| snapshot.number(name);
    let lost = number("originals_rps")
        .zip(number("served_share"))
        .map(|(originals, served)| originals * (1.0 - served));
    let refusals = [number("provider_refused_rps"), number("gate_refused_rps")];
    let refused = refusals.iter().any(Option::is_some).then(|| refusals.iter().flatten().sum());
    Toll { lost_originals_rps: lost, refused_rps: refused }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn verdict(scope: &str, cause: &str, standing: Standing, lost: Option<f64>) -> Verdict {
        let toll = Toll { lost_originals_rps: lost, refused_rps: None };
        let (cause, scope) = (cause.to_owned(), scope.to_owned());
        Verdict { cause, standing, scope, toll, ..Verdict::empty() }
    }

    #[test]
    fn scopes_stand_worst_first() {
        use Standing::{CannotTell, Confirmed, Contradicted, Likely};
        let mut all = [
            verdict("h", HEALTHY, Confirmed, Some(0.0)),
            verdict("g", INSUFFICIENT, CannotTell, Some(900.0)),
            verdict("f", "tpm-exhausted", Contradicted, Some(901.0)),
            verdict("e", CONTAINED, Confirmed, Some(99.0)),
            verdict("d", "tpm-exhausted", Likely, Some(80.0)),
            verdict("c", "nested-retries", Confirmed, None),
            verdict("b", "rpm-exhausted", Confirmed, Some(0.0)),
            verdict("a", "nested-retries", Confirmed, Some(3.0)),
        ];
        all.sort_by(worst_first);
        let order: Vec<&str> = all.iter().map(|verdict| verdict.scope.as_str()).collect();
        assert_eq!(order, ["a", "b", "c", "d", "e", "f", "g", "h"]);
    }

    proptest! {
        #[test]
        fn the_order_is_total(picks in prop::collection::vec((0_usize..4, 0_usize..3, 0_u8..3), 3)) {
            let causes = [HEALTHY, INSUFFICIENT, CONTAINED, "nested-retries"];
            let standings = [Standing::Contradicted, Standing::Likely, Standing::Confirmed];
            let all: Vec<Verdict> = picks
                .iter()
                .enumerate()
                .map(|(index, (cause, standing, lost))| {
                    let lost = lost.checked_sub(1).map(f64::from);
                    verdict(&index.to_string(), causes[*cause], standings[*standing], lost)
                })
                .collect();
            let [a, b, c] = all.as_slice() else { unreachable!("three") };
            prop_assert_eq!(worst_first(a, b), worst_first(b, a).reverse());
            if worst_first(a, b).is_lt() && worst_first(b, c).is_lt() {
                prop_assert!(worst_first(a, c).is_lt());
            }
        }
    }
}
