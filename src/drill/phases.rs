//! Cuts a run into phases: one at each step of the traffic, at each flip, and once it has settled.

use std::time::Duration;

use thiserror::Error;

use crate::admission::{FlagError, FlagValue, flag};
use crate::signal::parse_duration;

/// How long after a flip its effect is no longer counted as the flip itself.
const SETTLING: Duration = Duration::from_secs(15);

/// A flag that is set at an instant of the run: `FLAG=VALUE@30s`.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedFlip {
    /// When.
    pub at: Duration,
    /// The flag.
    pub key: String,
    /// Its new value.
    pub value: FlagValue,
}

/// Why a timed flip cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FlipError {
    /// Not of the shape.
    #[error("`{0}` is not FLAG=VALUE@TIME, such as admission.mode=enforce@30s")]
    Shape(String),
    /// The flag or its value.
    #[error(transparent)]
    Flag(#[from] FlagError),
}

impl std::str::FromStr for TimedFlip {
    type Err = FlipError;

    fn from_str(text: &str) -> Result<Self, FlipError> {
        let shape = || FlipError::Shape(text.to_owned());
        let (change, at) = text.rsplit_once('@').ok_or_else(shape)?;
        let (key, value) = change.split_once('=').ok_or_else(shape)?;
        let at = parse_duration(at).ok_or_else(shape)?;
        Ok(Self { at, key: key.to_owned(), value: flag(key)?.parse(value)? })
    }
}

/// One phase, by its nominal times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Its name: a step's, or `flip@30s`, or `settled@45s`.
    pub name: String,
    /// Its nominal start.
    pub from: Duration,
    /// Its nominal end.
    pub to: Duration,
}

/// The phases of a run of `total`, from the steps of its traffic and its flips.
///
/// Flips at one instant share a phase. A phase that would begin at or after the end is left out.
#[must_use]
pub fn phases(steps: &[(Duration, String)], flips: &[TimedFlip], total: Duration) -> Vec<Phase> {
    let mut starts: Vec<(Duration, String)> = steps.to_vec();
    if starts.iter().all(|(at, _)| !at.is_zero()) {
        starts.push((Duration::ZERO, "start".to_owned()));
    }
    for flip in flips {
        for (at, word) in [(flip.at, "flip"), (flip.at + SETTLING, "settled")] {
            starts.push((at, format!("{word}@{}s", at.as_secs_f64())));
        }
    }
    starts.retain(|(at, _)| *at < total);
    starts.sort_by_key(|(at, _)| *at);
    // Later ones name the phase: a flip at a step's instant is a flip.
    starts.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            kept.1 = std::mem::take(&mut later.1);
        }
        same
    });
    let ends = starts.iter().skip(1).map(|(at, _)| *at).chain([total]).collect::<Vec<_>>();
    starts.into_iter().zip(ends).map(|((from, name), to)| Phase { name, from, to }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn flips_are_checked_against_the_flag_table() {
        let flip: TimedFlip = "retry.max_attempts=2@30s".parse().expect("valid");
        assert_eq!((flip.at, flip.value), (seconds(30), FlagValue::Number(2.0)));
        for bad in ["retry.max_attempts=2", "=@1s", "retry.owner=nobody@1s", "x=1@1s"] {
            assert!(bad.parse::<TimedFlip>().is_err(), "{bad}");
        }
    }

    #[test]
    fn phases_partition_the_run() {
        let steps = [(seconds(0), "calm".to_owned()), (seconds(10), "storm".to_owned())];
        let flips: Vec<TimedFlip> =
            ["admission.mode=enforce@30s", "retry.owner=gateway@30s", "queue.max_age_s=2@110s"]
                .iter()
                .map(|text| text.parse().expect("valid"))
                .collect();
        let cut = phases(&steps, &flips, seconds(120));
        let names: Vec<_> = cut.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(names, ["calm", "storm", "flip@30s", "settled@45s", "flip@110s"]);
        assert_eq!(cut[0].from, Duration::ZERO);
        assert_eq!(cut.last().map(|phase| phase.to), Some(seconds(120)));
        assert!(cut.windows(2).all(|pair| pair[0].to == pair[1].from));
    }
}
