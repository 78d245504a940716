//! The first mover: when the key signals of a scope changed, in order. Reads no clock and judges no
//! cause; a gap or a new source is no move.

mod cusum;
mod keys;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::signal::{Mono, Snapshot};

use self::cusum::{Move, Tracker};
pub(super) use self::keys::sense;
use self::keys::{KEYS, rank};

use super::history::{Gap, Sequence, newest};
use super::predicate::{Heading, Moved};

/// Most onsets that are told at once.
pub const ONSETS_MAX: usize = 16;
/// How long an onset is news.
const NEWS: Duration = Duration::from_mins(15);
/// For so long before a move a signal has to have been watched to say that it had not moved yet.
const LOOKBACK: Duration = Duration::from_mins(1);
/// For so long after a move another may show that was earlier.
const LATE_ALARM: Duration = Duration::from_secs(15);

/// A signal that left its usual level.
#[derive(Clone, Debug, PartialEq)]
pub struct Onset {
    /// The signal, or a dotted path into a record.
    pub signal: Arc<str>,
    /// Which way it went.
    pub way: Heading,
    /// When it began to.
    pub at: Mono,
    /// Seconds from then to the reading that was last when this was told.
    pub ago_s: f64,
    /// Its level before.
    pub from: f64,
    /// The level that it got to.
    pub to: f64,
}

impl Onset {
    /// By how much it grew or shrank; `None` from or to zero.
    #[must_use]
    pub fn factor(&self) -> Option<f64> {
        (self.from > 0.0 && self.to > 0.0).then(|| self.to / self.from)
    }
}

impl fmt::Display for Onset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { signal, way, from, to, .. } = self;
        write!(f, "{signal} {} {} -> {}", way.moved(), Short(*from), Short(*to))?;
        match self.factor() {
            Some(factor) if factor >= 1.0 => write!(f, " (x{factor:.1})"),
            _ => Ok(()),
        }
    }
}

/// A number in three digits or so.
pub(super) struct Short(pub f64);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number) = *self;
        if number.abs() >= 100.0 || number == 0.0 {
            write!(f, "{number:.0}")
        } else if number.abs() >= 1.0 {
            write!(f, "{number:.1}")
        } else {
            write!(f, "{number:.3}")
        }
    }
}

/// The moves of the signals of one scope. Call [`Self::step`] with every snapshot, in order of time.
#[derive(Clone, Debug)]
pub(super) struct Onsets {
    trackers: BTreeMap<Arc<str>, Tracker>,
    now: Mono,
}

impl Default for Onsets {
    fn default() -> Self {
        let tracker = |key: &keys::Key| (Arc::from(key.signal), Tracker::new(key.sense));
        Self { trackers: KEYS.iter().map(tracker).collect(), now: Mono::START }
    }
}

impl Onsets {
    /// Follows the signals at these paths as well.
    pub(super) fn follow(&mut self, paths: &BTreeSet<String>) {
        for path in paths {
            let fresh = || Tracker::new(sense(path));
            self.trackers.entry(Arc::from(path.as_str())).or_insert_with(fresh);
        }
    }

    /// Takes the next snapshot, completed.
    pub(super) fn step(&mut self, snapshot: &Snapshot, at: Mono) {
        self.now = at;
        for (path, tracker) in &mut self.trackers {
            tracker.step(newest(snapshot, path).ok().as_ref(), at);
        }
    }

    /// Where each signal first went each way within [`NEWS`], oldest first, at most [`ONSETS_MAX`].
    pub(super) fn recent(&self) -> Vec<Onset> {
        let since = self.now - NEWS;
        let mut found = Vec::new();
        for (signal, tracker) in &self.trackers {
            let (place, told) = rank(signal);
            for way in [Heading::Up, Heading::Down] {
                let first = first_of(tracker, way, since);
                if let Some(one) = first.filter(|_| told.is_none_or(|only| only == way)) {
                    found.push((one.at, place, self.onset(signal, one)));
                }
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.cmp(&b.1)));
        found.into_iter().map(|(_, _, onset)| onset).take(ONSETS_MAX).collect()
    }

    fn onset(&self, signal: &Arc<str>, one: &Move) -> Onset {
        Onset {
            signal: Arc::clone(signal),
            way: one.way,
            at: one.at,
            ago_s: self.now.saturating_since(one.at).as_secs_f64(),
            from: one.from,
            to: one.to,
        }
    }

    /// Whether `first` happened before `then`, as of the earliest move of either that is news.
    ///
    /// Both are looked for in the same stretch of time, which begins before that move, so that an
    /// order does not turn round when the older of the two is news no more, and so that the answers
    /// for `a before b` and `b before a` are never both "yes".
    ///
    /// # Errors
    /// [`Gap`] when neither moved, when they moved together, or when one may have moved unseen.
    pub(super) fn sequence(&self, first: &Moved, then: &Moved) -> Result<Sequence, Gap> {
        let found = |turn: &Moved| self.trackers.get(turn.signal.as_str());
        let no_data = |turn: &Moved| Gap::NoData(Some(format!("{} is not followed", turn.signal)));
        let early = found(first).ok_or_else(|| no_data(first))?;
        let late = found(then).ok_or_else(|| no_data(then))?;
        let news = self.now - NEWS;
        let news = [first_of(early, first.way, news), first_of(late, then.way, news)];
        let Some(anchor) = news.into_iter().flatten().map(|one| one.at).min() else {
            return Err(self.unmoved([(first, early), (then, late)]));
        };
        let since = anchor - NEWS;
        match (first_of(early, first.way, since), first_of(late, then.way, since)) {
            (Some(a), Some(b)) => compare((first, a), (then, b)),
            (Some(_), None) => Err(Gap::NoData(Some(format!("not seen yet that {then}")))),
            (None, Some(b)) => {
                let steady = early.steady_since(self.now).is_some_and(|s| s + LOOKBACK <= b.at);
                if !steady {
                    let why = format!("{} was not watched before {then}", first.signal);
                    return Err(Gap::WarmingUp(Some(why)));
                }
                let may_follow = self.now.saturating_since(b.at) < LATE_ALARM;
                if may_follow || early.is_restless(first.way) {
                    return Err(Gap::WarmingUp(Some(format!("{} may yet", first.signal))));
                }
                Ok(Sequence {
                    holds: false,
                    seen: format!("{then}, {} did not move", first.signal),
                })
            }
            (None, None) => Err(self.unmoved([(first, early), (then, late)])),
        }
    }

    fn unmoved(&self, both: [(&Moved, &Tracker); 2]) -> Gap {
        let unsteady = both.iter().find(|(_, tracker)| tracker.steady_since(self.now).is_none());
        match unsteady {
            Some((turn, _)) => Gap::WarmingUp(Some(format!("{} has no usual level", turn.signal))),
            None => Gap::NoData(Some("neither has moved".to_owned())),
        }
    }
}

fn first_of(tracker: &Tracker, way: Heading, since: Mono) -> Option<&Move> {
    tracker.moves().find(|one| one.way == way && one.at >= since)
}

fn compare(first: (&Moved, &Move), then: (&Moved, &Move)) -> Result<Sequence, Gap> {
    let holds = first.1.at < then.1.at;
    let (early, late) = if holds { (first, then) } else { (then, first) };
    let apart = late.1.at.saturating_since(early.1.at);
    let spacing = early.1.spacing.max(late.1.spacing);
    if apart <= spacing {
        return Err(Gap::Thin(format!("they moved within {:.0} s", spacing.as_secs_f64())));
    }
    if late.1.watched > early.1.at {
        let why = format!("{} was not watched when {}", late.0.signal, early.0);
        return Err(Gap::WarmingUp(Some(why)));
    }
    let seen = format!("{} {:.0} s before {}", early.0, apart.as_secs_f64(), late.0);
    Ok(Sequence { holds, seen })
}

#[cfg(test)]
mod tests;
