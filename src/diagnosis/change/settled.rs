//! When a value has become another: once a second, newer reading says so too.
//!
//! A snapshot is made every second, a source may be asked once a minute. In between the same reading
//! comes again, a little older each time: that confirms nothing.

use crate::diagnosis::history::STALE_AFTER_S;
use crate::signal::{Mono, Quality, Reading, Snapshot};

/// By how much a reading has to be later than another to be another: the age that a server reports
/// moves by the time that its answer takes.
const NEWER_BY_S: f64 = 0.5;

/// When a reading was taken, in seconds of the run's clock; negative before it began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken(f64);

impl Taken {
    /// Of a reading that a snapshot of `at` holds.
    pub(super) fn of(reading: &Reading, at: Mono) -> Self {
        Self(at.as_secs_f64() - reading.age_s)
    }

    /// Of what was read at a moment.
    pub(super) fn at(read_at: Mono) -> Self {
        Self(read_at.as_secs_f64())
    }

    /// Whether it is another reading than the earlier one, not the same told again.
    pub(super) fn is_newer_than(self, earlier: Self) -> bool {
        self.0 - earlier.0 > NEWER_BY_S
    }
}

/// A value and the other one that was read since, once.
#[derive(Clone, Debug)]
pub(super) struct Settled<T> {
    value: T,
    candidate: Option<Candidate<T>>,
}

#[derive(Clone, Debug)]
struct Candidate<T> {
    value: T,
    taken: Taken,
    since: Mono,
}

impl<T: Clone + PartialEq> Settled<T> {
    pub(super) const fn new(value: T) -> Self {
        Self { value, candidate: None }
    }

    /// What it was and since when it is another, once another came in two readings in a row.
    pub(super) fn step(&mut self, seen: T, taken: Taken, at: Mono) -> Option<(T, Mono)> {
        if seen == self.value {
            self.candidate = None;
            return None;
        }
        let Some(candidate) = self.candidate.take().filter(|one| one.value == seen) else {
            self.candidate = Some(Candidate { value: seen, taken, since: at });
            return None;
        };
        if taken.is_newer_than(candidate.taken) {
            return Some((std::mem::replace(&mut self.value, seen), candidate.since));
        }
        self.candidate = Some(candidate);
        None
    }
}

/// A reading that is not old.
pub(super) fn fresh<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a Reading> {
    snapshot.get(name).filter(|reading| reading.age_s <= STALE_AFTER_S)
}

pub(super) fn number(reading: &Reading) -> Option<f64> {
    reading.value.as_number().filter(|number| number.is_finite())
}

/// A number that was counted or told, not inferred, and is not old; and when it was read.
pub(super) fn exact(snapshot: &Snapshot, name: &str, at: Mono) -> Option<(f64, Taken)> {
    let reading = fresh(snapshot, name).filter(|reading| reading.quality == Quality::Exact)?;
    Some((number(reading)?, Taken::of(reading, at)))
}
