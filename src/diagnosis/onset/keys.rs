//! The signals whose moves tell the story of an incident, and what counts as a move of each.

use crate::signal::{Unit, definition};

use super::super::history::root;
use super::super::predicate::Heading;

/// What counts as a move of a signal: the level grows or shrinks by `factor`, where both levels are
/// taken `floor` higher than they are, so that near zero only an absolute move of about the floor counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::diagnosis) struct Sense {
    pub(in crate::diagnosis) factor: f64,
    pub(in crate::diagnosis) floor: f64,
}

/// A key signal: its name, what a move is, and the direction that alone is worth telling.
pub(super) struct Key {
    pub(super) signal: &'static str,
    pub(super) sense: Sense,
    pub(super) told: Option<Heading>,
}

const fn key(signal: &'static str, factor: f64, floor: f64, told: Option<Heading>) -> Key {
    Key { signal, sense: Sense { factor, floor }, told }
}

/// In the order in which load goes through the house, which is how moves of one moment are listed.
///
/// Rates and latencies move by half; what is nearly fixed (attempts per original, the size of
/// prompts) moves by three tenths. A full meter is no news when it fills up again, and refusals,
/// timeouts and opened breakers are news when they come.
#[rustfmt::skip]
pub(super) const KEYS: &[Key] = &[
    key("originals_rps", 1.5, 1.0, None),
    key("offered_rps", 1.5, 1.0, None),
    key("tokens_per_request", 1.3, 20.0, None),
    key("attempts_rps", 1.5, 1.0, None),
    key("amplification", 1.3, 0.2, None),
    key("tpm_headroom", 1.5, 0.1, Some(Heading::Down)),
    key("rpm_headroom", 1.5, 0.1, Some(Heading::Down)),
    key("provider_429_rps", 2.0, 0.5, Some(Heading::Up)),
    key("provider_503_rps", 2.0, 0.5, Some(Heading::Up)),
    key("provider_5xx_other_rps", 2.0, 0.5, Some(Heading::Up)),
    key("timeout_rps", 2.0, 0.5, Some(Heading::Up)),
    key("unreachable_rps", 2.0, 0.5, Some(Heading::Up)),
    key("gate_refused_rps", 2.0, 0.5, Some(Heading::Up)),
    key("breaker_opens_per_hour", 1.5, 1.0, Some(Heading::Up)),
    key("inflight_actual", 1.5, 4.0, None),
    key("provider_latency_p95_s", 1.5, 0.2, None),
    key("queue_oldest_age_s", 1.5, 2.0, None),
    key("latency_p95_s", 1.5, 0.2, None),
];

/// What counts as a move of the signal at a path, in the table or not.
pub(in crate::diagnosis) fn sense(path: &str) -> Sense {
    if let Some(key) = KEYS.iter().find(|key| key.signal == path) {
        return key.sense;
    }
    let floor = match definition(root(path)).map(|known| known.unit) {
        Some(Unit::PerSecond | Unit::PerMinute | Unit::Minutes | Unit::Percent) => 1.0,
        Some(Unit::Seconds) => 0.2,
        Some(Unit::Count) => 2.0,
        Some(Unit::Tokens) => 20.0,
        Some(Unit::Ratio | Unit::Hours | Unit::Usd | Unit::Text | Unit::Record) | None => 0.1,
    };
    Sense { factor: 1.5, floor }
}

/// Which direction of a signal is told, and its place among those of one moment.
pub(super) fn rank(signal: &str) -> (usize, Option<Heading>) {
    let place = KEYS.iter().position(|key| key.signal == signal);
    place.map_or((KEYS.len(), None), |place| (place, KEYS[place].told))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_a_signal_and_stands_there_once() {
        for (place, key) in KEYS.iter().enumerate() {
            assert!(definition(key.signal).is_some(), "{}", key.signal);
            assert_eq!(rank(key.signal).0, place, "{}", key.signal);
            assert!(key.sense.factor > 1.0 && key.sense.floor > 0.0, "{}", key.signal);
        }
    }
}
