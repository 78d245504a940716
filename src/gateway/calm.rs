//! For how long each scope has been calm: the wait before a rollback. Reads signals, not the gate.

use std::collections::BTreeMap;

use crate::flag::{AMPLIFICATION_CALM, CLIENT_MULTIPLICATION_CALM};
use crate::signal::{Mono, Snapshot};

/// Since when each scope has been calm.
#[derive(Debug, Default)]
pub struct Calm(BTreeMap<String, Mono>);

impl Calm {
    /// Takes the newest signals; what is not known to be calm begins anew.
    pub fn look(&mut self, snapshots: &[Snapshot], now: Mono) {
        let calm = |scope: &&Snapshot| is_calm(scope);
        let since = |scope: &Snapshot| {
            (scope.scope.clone(), self.0.get(&scope.scope).copied().unwrap_or(now))
        };
        self.0 = snapshots.iter().filter(calm).map(since).collect();
    }

    /// Seconds of calm; 0 for a scope that is not.
    #[must_use]
    pub fn seconds(&self, scope: &str, now: Mono) -> f64 {
        self.0.get(scope).map_or(0.0, |since| now.saturating_since(*since).as_secs_f64())
    }
}

/// Whoever asks nothing repeats nothing.
fn is_calm(scope: &Snapshot) -> bool {
    let below =
        |signal: &str, bound: f64| scope.number(signal).is_some_and(|number| number < bound);
    let is_quiet =
        ["offered_rps", "attempts_rps"].iter().all(|rate| scope.number(rate) == Some(0.0));
    is_quiet
        || below("amplification", AMPLIFICATION_CALM)
            && below("client_multiplication", CLIENT_MULTIPLICATION_CALM)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::signal::Value;

    fn scope(numbers: &[(&str, f64)]) -> Snapshot {
        let mut snapshot = Snapshot::new("s", 10.0);
        for (name, number) in numbers {
            snapshot.set(name, Value::Number(*number), &Arc::from("gateway"));
        }
        snapshot
    }

    #[test]
    fn calm_lasts_until_something_repeats_or_is_unknown() {
        let sound = [("amplification", 1.05), ("client_multiplication", 1.2), ("offered_rps", 9.0)];
        let quiet = [("offered_rps", 0.0), ("attempts_rps", 0.0)];
        let storm = [("amplification", 1.1), ("client_multiplication", 1.0)];
        let repeats = [("amplification", 1.0), ("client_multiplication", 1.3)];
        let half = [("amplification", 1.0)];
        let looks: [(&[(&str, f64)], f64); 9] = [
            (&sound, 0.0),
            (&sound, 1.0),
            (&quiet, 2.0),
            (&storm, 0.0),
            (&sound, 0.0),
            (&repeats, 0.0),
            (&quiet, 0.0),
            (&sound, 1.0),
            (&half, 0.0),
        ];
        let mut calm = Calm::default();
        for (second, (numbers, expected)) in (0_u32..).zip(looks) {
            let now = Mono::from_secs_f64(f64::from(second));
            calm.look(&[scope(numbers)], now);
            let found = calm.seconds("s", now);
            assert!((found - expected).abs() < 1e-9, "second {second}: {found}");
        }
    }
}
