//! The surge of a scenario: where it begins, where it is steady, and where it ends.
//!
//! A scenario whose traffic never falls again gets an end: the first step's rate returns.

use std::time::Duration;

use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::sim::arrivals::RateStep;

/// How long a surge lasts that has no end of its own.
const SURGE: Duration = Duration::from_mins(1);
/// How long is looked for recovery: two windows of a quota per minute.
const AFTER: Duration = Duration::from_mins(2);
/// The overload counts as steady once the surge has lasted so long, or a quarter of its length.
const SETTLING: Duration = Duration::from_secs(15);

/// Why there is nothing to compare.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SurgeError {
    /// The traffic never rises.
    #[error(
        "the traffic has no surge to compare controls by; give it a step with a higher rate than the first"
    )]
    None,
    /// The run ends before the surge.
    #[error("the run ends at {total_s} s, but the surge only at {to_s} s; ask for more with --for")]
    CutOff {
        /// The end of the run.
        total_s: f64,
        /// The end of the surge.
        to_s: f64,
    },
}

/// When the surge is, in time since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Surge {
    /// It begins.
    #[serde(rename = "from_s", serialize_with = "seconds")]
    pub from: Duration,
    /// The overload counts as steady from here to the end of the surge.
    #[serde(rename = "steady_from_s", serialize_with = "seconds")]
    pub steady_from: Duration,
    /// It ends.
    #[serde(rename = "to_s", serialize_with = "seconds")]
    pub to: Duration,
    /// The end of the run.
    #[serde(skip)]
    pub total: Duration,
}

fn seconds<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64())
}

impl Surge {
    /// The surge that these steps make, and the steps with its end.
    ///
    /// # Errors
    /// There is none, or it would not end within `total`.
    pub fn of(
        steps: &[RateStep],
        total: Option<Duration>,
    ) -> Result<(Self, Vec<RateStep>), SurgeError> {
        let calm = steps.first().ok_or(SurgeError::None)?;
        let rises = steps.iter().position(|step| step.rate > calm.rate).ok_or(SurgeError::None)?;
        let from = Duration::from_secs_f64(steps[rises].at_s);
        let falls = steps[rises..].iter().find(|step| step.rate <= calm.rate);
        let mut steps = steps.to_vec();
        let to = if let Some(falls) = falls {
            Duration::from_secs_f64(falls.at_s)
        } else {
            // Later steps belong to the surge only as far as it goes.
            let last = steps.last().map_or(from, |step| Duration::from_secs_f64(step.at_s));
            let to = from.max(last) + SURGE;
            let rate = calm.rate;
            let (name, at_s) = ("after".to_owned(), to.as_secs_f64());
            steps.push(RateStep { name, at_s, rate, ..RateStep::default() });
            to
        };
        let total = total.unwrap_or(to + AFTER);
        if total <= to {
            let (total_s, to_s) = (total.as_secs_f64(), to.as_secs_f64());
            return Err(SurgeError::CutOff { total_s, to_s });
        }
        let steady_from = from + SETTLING.min(to.saturating_sub(from) / 4);
        Ok((Self { from, steady_from, to, total }, steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(rates: &[(u32, f64)]) -> Vec<RateStep> {
        let step = |(at_s, rate): &(u32, f64)| RateStep {
            name: "step".to_owned(),
            at_s: f64::from(*at_s),
            rate: *rate,
            ..RateStep::default()
        };
        rates.iter().map(step).collect()
    }

    fn check(rates: &[(u32, f64)], expected_s: [u64; 4], steps_after: usize) {
        let (surge, steps) = Surge::of(&steps(rates), None).expect("there is a surge");
        let [from, steady_from, to, total] = expected_s.map(Duration::from_secs);
        assert_eq!(surge, Surge { from, steady_from, to, total }, "{rates:?}");
        assert_eq!(steps.len(), steps_after, "{rates:?}");
    }

    #[test]
    fn a_surge_without_an_end_gets_one() {
        check(&[(0, 60.0), (10, 180.0)], [10, 25, 70, 190], 3);
        check(&[(0, 60.0), (10, 180.0), (30, 200.0)], [10, 25, 90, 210], 4);
    }

    #[test]
    fn an_end_of_its_own_is_kept() {
        check(&[(0, 60.0), (10, 180.0), (30, 60.0)], [10, 15, 30, 150], 3);
        check(&[(0, 60.0), (10, 180.0), (30, 0.0), (40, 90.0)], [10, 15, 30, 150], 4);
    }

    #[test]
    fn no_surge_and_no_end_of_it_are_refused_with_a_remedy() {
        let error = |rates: &[(u32, f64)], total: Option<u64>| {
            let total = total.map(Duration::from_secs);
            Surge::of(&steps(rates), total).expect_err("refused").to_string()
        };
        assert!(error(&[(0, 60.0), (10, 60.0)], None).contains("a step with a higher rate"));
        assert!(error(&[], None).contains("a step with a higher rate"));
        let cut = error(&[(0, 60.0), (10, 180.0)], Some(70));
        assert!(cut.contains("at 70 s") && cut.contains("--for"), "{cut}");
    }
}
