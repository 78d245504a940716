//! Distrusts counters that cannot all be true: where one counter holds the refusals of provider and gate,
//! neither is known. Knows no cause.
//!
//! One number alone proves nothing: answers come a while after their attempt, and what waited may be
//! refused long after it was offered. Only where the other side lacks what one has too much of, it is
//! counted on the wrong one.

use crate::signal::{Quality, Snapshot};

/// More than so many answers to an attempt are not its own.
const ANSWERS_MAX: f64 = 1.5;
/// Less than this share of what was kept out is no count of it.
const COUNTED_MIN: f64 = 0.5;
/// Shares of the whole below this decide nothing.
const SLIGHT: f64 = 0.05;
/// Attempts without an answer above this share are more than those on their way.
const UNANSWERED: f64 = 0.05;

const OF_PROVIDER: [&str; 2] = ["provider_429_rps", "provider_503_rps"];
const OF_GATE: [&str; 2] = ["gate_429_rps", "gate_503_rps"];
const OTHER_ANSWERS: [&str; 4] =
    ["success_rps", "provider_5xx_other_rps", "provider_4xx_other_rps", "timeout_rps"];

/// Takes counters of refusals out that others contradict, and says so in words.
pub(super) fn distrust(snapshot: &mut Snapshot, notes: &mut Vec<String>) {
    let Some(flow) = Flow::of(snapshot) else { return };
    let why = if flow.provider_has_the_gates() {
        "requests that never became an attempt are counted as refused by the provider"
    } else if flow.gate_has_the_providers() {
        "attempts without an answer are counted as refused by the gate"
    } else {
        return;
    };
    for name in OF_PROVIDER.into_iter().chain(OF_GATE) {
        if snapshot.signals.remove(name).is_some() {
            notes.push(format!("{name} is not believed: {why}"));
            snapshot.absent.insert(name.to_owned(), why.to_owned());
        }
    }
}

/// What came in and what became of it, per second.
struct Flow {
    offered: f64,
    /// Never let through, whatever the gate counts.
    kept_out: f64,
    refused_by_gate: f64,
    attempts: f64,
    refused_by_provider: f64,
    other_answers: f64,
}

impl Flow {
    /// `None` when what came in and went on is not known exactly.
    fn of(snapshot: &Snapshot) -> Option<Self> {
        let exact = |name: &str| {
            let reading = snapshot.get(name).filter(|one| one.quality != Quality::LowerBound)?;
            reading.value.as_number()
        };
        let sum = |names: &[&str]| names.iter().filter_map(|name| snapshot.number(name)).sum();
        let (offered, admitted) = (exact("offered_rps")?, exact("admitted_rps")?);
        snapshot.number("success_rps")?;
        Some(Self {
            offered,
            kept_out: (offered - admitted).max(0.0),
            refused_by_gate: sum(&OF_GATE),
            attempts: exact("attempts_rps")?,
            refused_by_provider: sum(&OF_PROVIDER),
            other_answers: sum(&OTHER_ANSWERS),
        })
    }

    /// The gate keeps requests out and counts none, the provider answers more than it was asked.
    fn provider_has_the_gates(&self) -> bool {
        self.kept_out > self.offered * SLIGHT
            && self.refused_by_gate < self.kept_out * COUNTED_MIN
            && self.refused_by_provider + self.other_answers > self.attempts * ANSWERS_MAX
    }

    /// The gate counts more than it keeps out, and attempts have no answer.
    fn gate_has_the_providers(&self) -> bool {
        let unanswered = self.attempts - self.refused_by_provider - self.other_answers;
        let too_many = self.refused_by_gate - self.kept_out;
        unanswered > self.attempts * UNANSWERED && too_many > unanswered * COUNTED_MIN
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::signal::Value;

    /// Whether the counters of refusals are believed; offered, admitted, gate's refusals, attempts,
    /// successes, provider's refusals.
    fn believed(rates: [f64; 6]) -> bool {
        let names = [
            "offered_rps",
            "admitted_rps",
            "gate_429_rps",
            "attempts_rps",
            "success_rps",
            "provider_429_rps",
        ];
        let mut snapshot = Snapshot::new("scope", 60.0);
        for (name, rate) in names.into_iter().zip(rates) {
            snapshot.set(name, Value::Number(rate), &Arc::from("test"));
        }
        let mut notes = Vec::new();
        distrust(&mut snapshot, &mut notes);
        let gone = snapshot.get("provider_429_rps").is_none();
        assert_eq!(gone, snapshot.get("gate_429_rps").is_none());
        assert_eq!(notes.len(), if gone { 2 } else { 0 }, "{notes:?}");
        !gone
    }

    #[test]
    fn what_adds_up_is_believed() {
        assert!(believed([20.0, 16.0, 4.0, 16.0, 10.0, 6.0]));
        assert!(believed([20.0, 20.0, 0.0, 50.0, 10.0, 40.0]), "the provider refuses tries");
        assert!(believed([20.0, 2.0, 18.0, 2.0, 2.0, 0.0]), "the gate refuses");
    }

    #[test]
    fn what_comes_late_is_believed() {
        assert!(believed([9.0, 0.0, 9.0, 0.0, 0.0, 5.0]), "answers of attempts from before");
        assert!(believed([0.0, 0.0, 9.0, 0.0, 0.0, 0.0]), "refused from the queue");
        assert!(believed([9.0, 9.0, 0.0, 9.0, 1.0, 0.0]), "attempts on their way");
    }

    #[test]
    fn a_refusal_on_the_wrong_side_is_found() {
        assert!(!believed([20.0, 10.0, 0.0, 10.0, 10.0, 10.0]), "the gate's, with the provider's");
        assert!(!believed([20.0, 20.0, 12.0, 20.0, 8.0, 0.0]), "the provider's, with the gate's");
    }
}
