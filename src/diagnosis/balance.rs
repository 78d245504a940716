//! Distrusts counters that cannot all be true: where one counter holds refusals of the provider and of
//! the gate, neither is known. Knows no cause.

use crate::signal::{Quality, Snapshot};

/// Events a second are told apart from none above this share of what they are part of; two counters of
/// one page are a moment apart, and answers come a while after their attempt.
const BEYOND_DOUBT: f64 = 1.5;
/// Refusals below this share of what was offered decide nothing.
const SLIGHT: f64 = 0.05;

const OF_PROVIDER: [&str; 2] = ["provider_429_rps", "provider_503_rps"];
const OF_GATE: [&str; 2] = ["gate_429_rps", "gate_503_rps"];

/// Takes counters of refusals out that others contradict, and says so in words.
pub(super) fn distrust(snapshot: &mut Snapshot, notes: &mut Vec<String>) {
    if let Some((answers, attempts)) = answered_more_than_attempted(snapshot) {
        let why = format!(
            "{answers:.1} answers a second to {attempts:.1} attempts: other refusals are counted in it"
        );
        drop_all(snapshot, &OF_PROVIDER, &why, notes);
    }
    if let Some((refused, kept)) = refused_more_than_kept_out(snapshot) {
        let why = format!(
            "{refused:.1} refusals a second where {kept:.1} were kept out: others are counted in it"
        );
        drop_all(snapshot, &OF_GATE, &why, notes);
        // They have to be somebody's: a counter of nothing beside them is no proof of nothing.
        let silent = OF_PROVIDER.into_iter().filter(|name| snapshot.number(name) == Some(0.0));
        let silent: Vec<&str> = silent.collect();
        drop_all(snapshot, &silent, &why, notes);
    }
}

/// Refusals and successes of attempts, where there are more of them than attempts.
fn answered_more_than_attempted(snapshot: &Snapshot) -> Option<(f64, f64)> {
    let attempts = exact(snapshot, "attempts_rps")?;
    let answers = sum(snapshot, &OF_PROVIDER)? + snapshot.number("success_rps")?;
    (answers > attempts * BEYOND_DOUBT).then_some((answers, attempts))
}

/// The gate's refusals, where there are more of them than requests that it did not let through.
fn refused_more_than_kept_out(snapshot: &Snapshot) -> Option<(f64, f64)> {
    let (offered, admitted) = (exact(snapshot, "offered_rps")?, exact(snapshot, "admitted_rps")?);
    let refused = sum(snapshot, &OF_GATE)?;
    let kept = (offered - admitted).max(snapshot.number("shed_rps").unwrap_or(0.0)).max(0.0);
    (refused > kept * BEYOND_DOUBT + offered * SLIGHT).then_some((refused, kept))
}

/// The number, unless the truth may be higher.
fn exact(snapshot: &Snapshot, name: &str) -> Option<f64> {
    snapshot
        .get(name)
        .filter(|reading| reading.quality != Quality::LowerBound)
        .and_then(|reading| reading.value.as_number())
}

/// The sum of those that are known; `None` when none is.
fn sum(snapshot: &Snapshot, names: &[&str]) -> Option<f64> {
    names.iter().filter_map(|name| snapshot.number(name)).reduce(|sum, number| sum + number)
}

fn drop_all(snapshot: &mut Snapshot, names: &[&str], why: &str, notes: &mut Vec<String>) {
    for name in names {
        if snapshot.signals.remove(*name).is_some() {
            notes.push(format!("{name} is not believed: {why}"));
            snapshot.absent.insert((*name).to_owned(), why.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::signal::Value;

    /// The counters of refusals that are still known.
    fn left(numbers: &[(&str, f64)]) -> Vec<&'static str> {
        let mut snapshot = Snapshot::new("scope", 60.0);
        for (name, number) in numbers {
            snapshot.set(name, Value::Number(*number), &Arc::from("test"));
        }
        let mut notes = Vec::new();
        distrust(&mut snapshot, &mut notes);
        let all = OF_PROVIDER.into_iter().chain(OF_GATE);
        let left: Vec<&str> = all.filter(|name| snapshot.get(name).is_some()).collect();
        let dropped =
            numbers.iter().filter(|(name, _)| snapshot.absent.contains_key(*name)).count();
        assert_eq!(notes.len(), dropped, "{notes:?}");
        left
    }

    #[test]
    fn an_attempt_has_one_answer() {
        let counted = |refused: f64| {
            left(&[("attempts_rps", 10.0), ("success_rps", 8.0), ("provider_429_rps", refused)])
        };
        assert_eq!(counted(2.0), ["provider_429_rps"]);
        // As many again may be on their way from before the window.
        assert_eq!(counted(6.0), ["provider_429_rps"]);
        assert_eq!(counted(8.0), Vec::<&str>::new());
        let no_attempts = left(&[("success_rps", 8.0), ("provider_429_rps", 99.0)]);
        assert_eq!(no_attempts, ["provider_429_rps"], "nothing contradicts it");
    }

    #[test]
    fn the_gate_refuses_no_more_than_it_keeps_out() {
        let counted = |refused: f64, provider: f64| {
            left(&[
                ("offered_rps", 20.0),
                ("admitted_rps", 16.0),
                ("shed_rps", 4.0),
                ("gate_429_rps", refused),
                ("provider_429_rps", provider),
                ("provider_503_rps", 0.0),
            ])
        };
        let all = ["provider_429_rps", "provider_503_rps", "gate_429_rps"];
        assert_eq!(counted(4.0, 0.0), all);
        assert_eq!(counted(6.0, 0.0), all);
        assert_eq!(counted(12.0, 0.0), Vec::<&str>::new(), "whose the others are is not known");
        assert_eq!(counted(12.0, 3.0), ["provider_429_rps"]);
    }
}
