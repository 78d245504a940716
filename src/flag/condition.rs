//! One question to the live signals, answered with true, false or unknown over all scopes.
//!
//! Flags act on every scope, so a condition holds only where it holds in each. Old readings and
//! bounds that prove nothing are unknown; unknown is never taken for false or true.

use std::fmt;
use std::sync::Arc;

use crate::signal::{Quality, Reading, Snapshot};

/// Oldest reading that still says something about now: a gate is polled each second, so this is
/// a source that has failed many times in a row.
const AGE_S_MAX: f64 = 15.0;

/// How a signal is compared with the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// `signal < bound`
    Below,
    /// `signal <= bound`
    AtMost,
    /// `signal >= bound`
    AtLeast,
    /// `signal > bound`
    Above,
}

/// A comparison of one signal with a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// The signal's name in the catalogue.
    pub signal: &'static str,
    /// How it is compared.
    pub compare: Compare,
    /// With what, in the signal's unit.
    pub bound: f64,
}

/// The answer to a condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// `None` when it cannot be told.
    pub holds: Option<bool>,
    /// The value that decided, or why there is none; names the scope where there are several.
    pub seen: String,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.compare {
            Compare::Below => "<",
            Compare::AtMost => "<=",
            Compare::AtLeast => ">=",
            Compare::Above => ">",
        };
        write!(f, "{} {sign} {}", self.signal, self.bound)
    }
}

/// Kleene's "and" of many answers: one false is false, else one unknown is unknown.
pub(super) fn all(answers: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    let mut unknown = false;
    for answer in answers {
        match answer {
            Some(false) => return Some(false),
            Some(true) => {}
            None => unknown = true,
        }
    }
    if unknown { None } else { Some(true) }
}

impl Condition {
    /// `signal < bound`
    pub(super) const fn below(signal: &'static str, bound: f64) -> Self {
        Self { signal, compare: Compare::Below, bound }
    }

    /// `signal <= bound`
    pub(super) const fn at_most(signal: &'static str, bound: f64) -> Self {
        Self { signal, compare: Compare::AtMost, bound }
    }

    /// `signal >= bound`
    pub(super) const fn at_least(signal: &'static str, bound: f64) -> Self {
        Self { signal, compare: Compare::AtLeast, bound }
    }

    /// `signal > bound`
    pub(super) const fn above(signal: &'static str, bound: f64) -> Self {
        Self { signal, compare: Compare::Above, bound }
    }

    /// Asks every scope. No scope at all is unknown.
    #[must_use]
    pub fn ask(&self, scopes: &[Arc<Snapshot>]) -> Finding {
        self.ask_of_last(scopes, AGE_S_MAX)
    }

    /// The same, of readings that may be so old: where nothing new can be heard.
    pub(super) fn ask_of_last(&self, scopes: &[Arc<Snapshot>], age_s_max: f64) -> Finding {
        let answers: Vec<Finding> =
            scopes.iter().map(|scope| self.ask_one(scope, age_s_max)).collect();
        let holds = all(answers.iter().map(|finding| finding.holds));
        let decisive =
            answers.into_iter().zip(scopes).find(|(finding, _)| finding.holds == holds).map(
                |(finding, scope)| match scopes.len() {
                    1 => finding.seen,
                    _ => format!("{} in {}", finding.seen, scope.scope),
                },
            );
        match decisive {
            Some(seen) => Finding { holds, seen },
            None => Finding { holds: None, seen: "no signals".to_owned() },
        }
    }

    fn ask_one(&self, scope: &Snapshot, age_s_max: f64) -> Finding {
        let unknown = |seen: String| Finding { holds: None, seen };
        let Some(reading) = scope.get(self.signal) else {
            let why = scope.absent.get(self.signal).map_or("no data", String::as_str);
            return unknown(format!("unknown, {why}"));
        };
        let Some(value) = reading.value.as_number() else {
            return unknown("unknown, not a number".to_owned());
        };
        if reading.age_s > age_s_max {
            return unknown(format!("unknown, {value:.2} is {:.0} s old", reading.age_s));
        }
        let old = if reading.age_s > AGE_S_MAX {
            format!(", {:.0} s ago", reading.age_s)
        } else {
            String::new()
        };
        Finding { holds: self.decide(value, reading), seen: format!("{value:.2}{old}") }
    }

    fn decide(&self, value: f64, reading: &Reading) -> Option<bool> {
        let holds = match self.compare {
            Compare::Below => value < self.bound,
            Compare::AtMost => value <= self.bound,
            Compare::AtLeast => value >= self.bound,
            Compare::Above => value > self.bound,
        };
        // "This or more" can prove that a value is high, never that it is low.
        let proves = reading.quality != Quality::LowerBound
            || holds == matches!(self.compare, Compare::AtLeast | Compare::Above);
        (proves && !value.is_nan()).then_some(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::Value;

    fn scope(name: &str, value: Option<(f64, Quality, f64)>) -> Arc<Snapshot> {
        let mut snapshot = Snapshot::new(name, 10.0);
        if let Some((value, quality, age_s)) = value {
            let reading = Reading {
                value: Value::Number(value),
                quality,
                source: "gateway".into(),
                age_s,
                note: None,
            };
            snapshot.signals.insert("amplification".to_owned(), reading);
        }
        Arc::new(snapshot)
    }

    #[test]
    fn unknown_is_neither_true_nor_false() {
        use Quality::{Exact, Inferred, LowerBound};
        let check = |values: &[Option<(f64, Quality, f64)>], expected: Option<bool>| {
            let scopes: Vec<_> = values.iter().map(|value| scope("s", *value)).collect();
            let found = Condition::below("amplification", 1.1).ask(&scopes);
            assert_eq!(found.holds, expected, "{values:?}: {}", found.seen);
        };
        check(&[], None);
        check(&[None], None);
        check(&[Some((1.0, Exact, 0.0))], Some(true));
        check(&[Some((1.1, Exact, 0.0))], Some(false));
        check(&[Some((1.0, Inferred, 0.0))], Some(true));
        check(&[Some((1.0, LowerBound, 0.0))], None);
        check(&[Some((2.0, LowerBound, 0.0))], Some(false));
        check(&[Some((1.0, Exact, 15.0))], Some(true));
        check(&[Some((1.0, Exact, 15.1))], None);
        check(&[Some((f64::NAN, Exact, 0.0))], None);
        check(&[Some((1.0, Exact, 0.0)), None], None);
        check(&[None, Some((9.0, Exact, 0.0))], Some(false));
    }

    #[test]
    fn a_lower_bound_proves_that_a_value_is_high() {
        let condition = Condition::above("amplification", 1.1);
        let ask = |value| condition.ask(&[scope("s", Some((value, Quality::LowerBound, 0.0)))]);
        assert_eq!(ask(2.0).holds, Some(true));
        assert_eq!(ask(1.0).holds, None);
    }

    #[test]
    fn the_scope_that_decides_is_named() {
        let scopes = [
            scope("calm", Some((1.0, Quality::Exact, 0.0))),
            scope("storm", Some((9.3, Quality::Exact, 0.0))),
        ];
        let found = Condition::below("amplification", 1.1).ask(&scopes);
        assert_eq!(found.seen, "9.30 in storm");
    }
}
