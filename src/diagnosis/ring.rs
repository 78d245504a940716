//! The last hour of one scope: what predicates ask of time is answered from here. Knows no predicate
//! and judges nothing.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::signal::{Mono, Quality, Value};

use super::change::{Change, ChangeWatch, InstanceCount};
use super::derive::Completed;
use super::history::{
    Course, Gap, Read, Readings, Sequence, newest, newest_value, past_by_name, past_of,
};
use super::onset::{Onset, Onsets, sense};
use super::openings::Openings;
use super::predicate::{Heading, MAX_PAST, Moved, Window};
use super::trend;

/// How much history is kept: what a window can reach, and a sample before it.
const KEPT: Duration = MAX_PAST.saturating_add(SPACING_MAX);
/// Most readings per signal, whatever the polling rate.
const MAX_READINGS: usize = 4_000;
/// Farthest that two samples of one series are apart: the widest interval that can be set.
const SPACING_MAX: Duration = Duration::from_mins(1);
/// How much of a window has to be known, in fifths.
const FIFTHS: u32 = 4;

/// When a snapshot was taken, and how long before that it stands for.
#[derive(Clone, Copy, Debug)]
struct Tick {
    at: Mono,
    covers: Duration,
}

/// The numbers at one path.
#[derive(Clone, Debug)]
struct Column {
    path: String,
    /// One for each tick; not a number where nothing was known.
    numbers: VecDeque<f64>,
    newest: Option<Read<f64>>,
    /// Numbers that are known.
    known: usize,
}

/// The last hour of one scope: every number that the predicates read, the newest snapshot, what
/// changed beside the load, and when the key signals moved.
#[derive(Clone, Debug)]
pub struct Ring {
    ticks: VecDeque<Tick>,
    /// By path.
    columns: Vec<Column>,
    newest: Arc<Completed>,
    changes: ChangeWatch,
    onsets: Onsets,
    openings: Openings,
    now: Mono,
    began: Option<Mono>,
}

impl Ring {
    /// An empty history that will keep the numbers at these paths.
    #[must_use]
    pub fn new(wanted: BTreeSet<String>) -> Self {
        let column = |path| Column { path, numbers: VecDeque::new(), newest: None, known: 0 };
        Self {
            ticks: VecDeque::new(),
            columns: wanted.into_iter().map(column).collect(),
            newest: Arc::new(Completed::default()),
            changes: ChangeWatch::default(),
            onsets: Onsets::default(),
            openings: Openings::default(),
            now: Mono::START,
            began: None,
        }
    }

    /// Follows the moves of the signals at these paths too, beside those of the key signals.
    #[must_use]
    pub fn following(mut self, paths: &BTreeSet<String>) -> Self {
        self.onsets.follow(paths);
        self
    }

    /// Adds a snapshot taken at `at`; one that is not later than the last is dropped.
    pub fn push(&mut self, mut completed: Arc<Completed>, at: Mono) {
        if self.began.is_some() && at <= self.now {
            return;
        }
        self.openings.step(&mut completed, at);
        let covers = self.covers(completed.snapshot.window_s, at);
        self.began.get_or_insert(at);
        self.now = at;
        self.changes.step(&completed.snapshot, at);
        self.onsets.step(&completed.snapshot, at);
        self.ticks.push_back(Tick { at, covers });
        for column in &mut self.columns {
            column.newest = newest(&completed.snapshot, &column.path).ok();
            column.known += usize::from(column.newest.is_some());
            column.numbers.push_back(column.newest.as_ref().map_or(f64::NAN, |read| read.value));
        }
        let horizon = at - KEPT;
        while self.ticks.len() > MAX_READINGS
            || self.ticks.front().is_some_and(|tick| tick.at < horizon)
        {
            self.ticks.pop_front();
            for column in &mut self.columns {
                let gone = column.numbers.pop_front();
                column.known -= usize::from(gone.is_some_and(|number| !number.is_nan()));
            }
        }
        self.newest = completed;
    }

    /// How long before `at` a snapshot stands for: since the one before, unless that is longer than
    /// its own window and than the step before, which makes it a gap.
    fn covers(&self, window_s: f64, at: Mono) -> Duration {
        let Some(last) = self.ticks.back() else { return Duration::ZERO };
        let since = at.saturating_since(last.at);
        let before = self.ticks.len().checked_sub(2).and_then(|place| self.ticks.get(place));
        let usual = before.map_or(since, |before| last.at.saturating_since(before.at));
        let window = Duration::try_from_secs_f64(window_s).unwrap_or_default();
        since.min(usual.max(window)).min(SPACING_MAX)
    }

    /// Takes how many instances give the numbers of `scope`, before the snapshot of `at` is added.
    pub fn instances(&mut self, scope: &str, told: &InstanceCount<'_>, at: Mono) {
        self.changes.instances(scope, told, at);
    }

    /// The newest snapshot, completed.
    #[must_use]
    pub fn newest(&self) -> &Completed {
        &self.newest
    }

    /// What changed beside the load, oldest first.
    #[must_use]
    pub fn changes(&self) -> impl DoubleEndedIterator<Item = &Arc<Change>> {
        self.changes.recent()
    }

    /// When the key signals moved within the last quarter of an hour, the first mover first.
    #[must_use]
    pub fn onsets(&self) -> Vec<Onset> {
        self.onsets.recent()
    }

    /// The numbers of a signal, oldest first, for a trend line. Empty when it is not kept.
    pub fn series(&self, path: &str) -> impl Iterator<Item = (Mono, f64)> + '_ {
        let numbers = self.column(path).into_iter().flat_map(|column| &column.numbers);
        let moments = self.ticks.iter().map(|tick| tick.at);
        moments.zip(numbers.copied()).filter(|(_, number)| !number.is_nan())
    }

    fn column(&self, path: &str) -> Option<&Column> {
        let place = self.columns.binary_search_by(|column| column.path.as_str().cmp(path)).ok()?;
        self.columns.get(place)
    }

    /// The first tick after `moment`.
    fn after(&self, moment: Mono) -> usize {
        self.ticks.partition_point(|tick| tick.at <= moment)
    }

    /// The mean of what is known from one moment to another; the first itself is outside.
    fn mean(&self, column: &Column, from: Mono, to: Mono) -> Option<f64> {
        let (first, end) = (self.after(from), self.after(to));
        let known = column.numbers.range(first..end.max(first)).filter(|number| !number.is_nan());
        let (sum, count) = known.fold((0.0, 0.0), |(sum, count), one| (sum + one, count + 1.0));
        (count > 0.0).then(|| sum / count)
    }

    /// The mean over the `span` that ends at `to`, and how much of it is known; the moment at its
    /// very beginning is outside.
    fn window(&self, column: &Column, span: Duration, to: Mono) -> Option<(f64, Duration)> {
        // Seconds of the clock before its start are no part of any window.
        let from = to - span;
        let first = if span > to.since_start() { 0 } else { self.after(from) };
        let (mut sum, mut count, mut covered) = (0.0, 0.0, Duration::ZERO);
        for (tick, number) in self.ticks.range(first..).zip(column.numbers.range(first..)) {
            let begins = (tick.at - tick.covers).max(from);
            // The tick after the end tells of the time before it, but its number is not in the mean.
            let is_after = tick.at > to;
            if !number.is_nan() {
                covered += tick.at.min(to).saturating_since(begins);
                if !is_after {
                    sum += number;
                    count += 1.0;
                }
            }
            if is_after {
                break;
            }
        }
        (count > 0.0).then(|| (sum / count, covered))
    }

    /// From one sample to the next at `to`, at most [`SPACING_MAX`]: a past that a server told is as
    /// far apart as it scrapes. Zero where nobody can say.
    fn spacing(&self, column: &Column, to: Mono) -> Duration {
        let known = |place: &usize| column.numbers.get(*place).is_some_and(|n| !n.is_nan());
        let next = self.after(to);
        let mut before = (0..next).rev().filter(known);
        let earlier = before.next();
        // At the newest sample, the one step that there was stands for the one to come.
        let (earlier, later) = match (next..self.ticks.len()).find(known) {
            Some(later) => (earlier, Some(later)),
            None => (before.next(), earlier),
        };
        let Some((earlier, later)) = earlier.zip(later) else { return Duration::ZERO };
        self.ticks[later].at.saturating_since(self.ticks[earlier].at).min(SPACING_MAX)
    }

    fn watched(&self) -> Duration {
        self.began.map_or(Duration::ZERO, |began| self.now.saturating_since(began))
    }

    /// Whether the time of watching could fill enough of `span`.
    fn warmed_up(&self, span: Duration) -> Result<(), Gap> {
        if self.watched() * 5 < span * FIFTHS { Err(Gap::WarmingUp(None)) } else { Ok(()) }
    }

    /// Whether the past of `path`, as far back as `reach`, can be compared with now.
    fn holds(&self, path: &str, reach: Duration) -> Result<(), Gap> {
        // Before the run's clock began there was no change that we know of.
        let since = if self.now.since_start() > reach { self.now - reach } else { Mono::START };
        let Some(change) = self.changes.voiding(path, since) else { return Ok(()) };
        let ago = ago(self.now.saturating_since(change.at));
        Err(Gap::NoBaseline(Some(format!("{} changed {ago} ago", change.what.name()))))
    }

    /// Why there is no number now: what was once known and is not now is stale rather than absent.
    fn gap(&self, path: &str) -> Gap {
        let known = self.column(path).is_some_and(|column| column.known > 0);
        match newest(&self.newest.snapshot, path) {
            Err(Gap::NoData(_)) if known => Gap::Stale(None),
            Err(gap) => gap,
            Ok(_) => Gap::NoData(None),
        }
    }

    /// Means of equal parts of the last `span`, none shorter than what a reading is taken over.
    fn levels(&self, column: &Column, span: Duration) -> Result<Vec<Option<f64>>, Gap> {
        let window_s = self.newest.snapshot.window_s.clamp(1.0, SPACING_MAX.as_secs_f64());
        let each_s = (span / trend::LEVELS).as_secs_f64().max(window_s);
        let count = (1..=trend::LEVELS)
            .rev()
            .find(|count| f64::from(*count) * each_s <= span.as_secs_f64() + 1e-6)
            .filter(|count| *count >= trend::LEVELS_MIN)
            .ok_or_else(|| {
                let span_s = span.as_secs();
                Gap::Thin(format!("{span_s} s hold too few readings over {window_s:.0} s"))
            })?;
        let each = span / count;
        let level = |place: u32| {
            let (from, to) =
                (self.now - each * (count - place), self.now - each * (count - place - 1));
            self.mean(column, from, to)
        };
        Ok((0..count).map(level).collect())
    }
}

impl Readings for Ring {
    fn number(&self, path: &str, window: Window) -> Result<Read<f64>, Gap> {
        if let Some((of, ago)) = past_of(path) {
            self.holds(of, ago)?;
        }
        let Some(column) = self.column(path) else {
            // The newest is there though its past is not kept; a mean of it would be no mean.
            let read = newest(&self.newest.snapshot, path);
            return read.and_then(|read| match window {
                Window::Fast => Ok(read),
                Window::Span(_) => Err(Gap::NoData(None)),
            });
        };
        let Window::Span(span) = window else {
            return column.newest.clone().ok_or_else(|| self.gap(path));
        };
        let (mean, covered) = self.window(column, span, self.now).ok_or_else(|| self.gap(path))?;
        self.warmed_up(span)?;
        enough(covered, span)?;
        Ok(column.told(mean))
    }

    fn number_ago(&self, path: &str, window: Window, ago: Duration) -> Result<Read<f64>, Gap> {
        let fast = Duration::from_secs_f64(self.newest.snapshot.window_s.clamp(1.0, 60.0));
        let to = self.now - ago;
        let column = self.column(path);
        let spacing = column.map_or(Duration::ZERO, |column| self.spacing(column, to));
        let span = match window {
            Window::Fast => (fast / 4).max(spacing),
            Window::Span(span) => span,
        };
        self.holds(path, ago + span)?;
        let mean = column
            .filter(|_| self.watched() >= ago)
            .and_then(|column| Some((column, self.window(column, span, to)?)));
        let own = match mean {
            None => Err(Gap::NoBaseline(None)),
            Some((column, (mean, _))) if window == Window::Fast => Ok(column.told(mean)),
            Some((column, (mean, covered))) => enough(covered, span).map(|()| column.told(mean)),
        };
        own.or_else(|gap| past_by_name(&self.newest.snapshot, path, ago).map_err(|_| gap))
    }

    fn value(&self, path: &str) -> Result<Read<Value>, Gap> {
        newest_value(&self.newest.snapshot, path)
    }

    fn trend(&self, path: &str, way: Heading, span: Duration) -> Result<Read<Course>, Gap> {
        let column = self.column(path).filter(|column| column.known > 0);
        let column = column.ok_or_else(|| self.gap(path))?;
        let read = column.newest.as_ref().ok_or_else(|| self.gap(path))?;
        if read.quality == Quality::LowerBound {
            return Err(Gap::LowerBound);
        }
        self.warmed_up(span)?;
        self.holds(path, span)?;
        let covered =
            self.window(column, span, self.now).map_or(Duration::ZERO, |(_, known)| known);
        if covered * 2 < span {
            return Err(thin(covered, span));
        }
        let value = trend::judge(&self.levels(column, span)?, way, sense(path).floor)?;
        let Read { source, age_s, quality, .. } = read.clone();
        Ok(Read { value, source, age_s, quality })
    }

    fn sequence(&self, first: &Moved, then: &Moved) -> Result<Sequence, Gap> {
        self.onsets.sequence(first, then).map_err(|gap| {
            // That a signal has no level yet is less to the point than why it has none at all.
            let absent = |turn: &&Moved| newest(&self.newest.snapshot, &turn.signal).is_err();
            match [first, then].into_iter().find(absent) {
                Some(turn) if matches!(gap, Gap::WarmingUp(_)) => self.gap(&turn.signal),
                _ => gap,
            }
        })
    }

    fn constant(&self) -> bool {
        false
    }
}

impl Column {
    /// A mean of it, with where its newest number came from.
    fn told(&self, value: f64) -> Read<f64> {
        match &self.newest {
            Some(read) => Read { value, ..read.clone() },
            None => {
                Read { value, source: Arc::from("history"), age_s: 0.0, quality: Quality::Inferred }
            }
        }
    }
}

fn enough(covered: Duration, span: Duration) -> Result<(), Gap> {
    if covered * 5 >= span * FIFTHS { Ok(()) } else { Err(thin(covered, span)) }
}

fn thin(covered: Duration, span: Duration) -> Gap {
    Gap::Thin(format!("{} s of {} s are known", covered.as_secs(), span.as_secs()))
}

/// A distance in the words of a reason.
fn ago(distance: Duration) -> String {
    match distance.as_secs() {
        seconds @ 0..90 => format!("{seconds} s"),
        seconds @ 90..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests;
