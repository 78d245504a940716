//! How predicates read signals over time: from a live ring of snapshots, or from one snapshot that
//! stands for a window of constant values. Says why a value is unknown; never guesses one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::signal::{Mono, Quality, Snapshot, Value};

use super::change::{Change, ChangeWatch, InstanceCount};
use super::derive::Completed;
use super::predicate::Window;

/// How much history a live ring keeps: an hour, and a window more for `[..]@1h`.
const KEPT: Duration = Duration::from_mins(62);
/// Most readings per signal, whatever the polling rate.
const MAX_READINGS: usize = 4_000;
/// A reading older than this is stale whatever a snapshot holds. How long a number counts is known
/// where it was read: adapters bound the age of what they carry on, and the assembler leaves out a
/// source that was quiet for three of its intervals, which may be a minute each. A narrower limit
/// here would call good numbers stale.
pub const STALE_AFTER_S: f64 = 300.0;
/// Farthest that two samples of one series are apart: the widest interval that can be set.
const SPACING_MAX: Duration = Duration::from_mins(1);
const QUARTER: Duration = Duration::from_mins(15);
const HOUR: Duration = Duration::from_hours(1);

/// What the names of past values end with, and how long ago that was.
const PAST_NAMES: [(&str, Duration); 4] =
    [("_15m_ago", QUARTER), ("_1h_ago", HOUR), ("_baseline", HOUR), ("_baseline_s", HOUR)];
/// Signals that are relative to their own usual level, and whose level it is.
const RELATIVE: [(&str, &str); 2] =
    [("stage_slowdown", "stages_p95_s"), ("spend_rate_x_baseline", "spend_rate_x_baseline")];

/// Why a reading is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gap {
    /// No source gives it; the snapshot may say why.
    NoData(Option<String>),
    /// It was known and is too old now.
    Stale,
    /// Nothing to compare with: not watched for long enough, and no source gives the past value, or
    /// what has changed since, which makes the two no comparison.
    NoBaseline(Option<String>),
    /// Watched for less than half of the window.
    WarmingUp,
    /// Part of it is not counted, so that the truth may lie beyond the threshold.
    LowerBound,
    /// There is a value, but not of the kind that the predicate asks for.
    WrongKind,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoData(None) => f.write_str("no-data"),
            Self::NoData(Some(why)) => write!(f, "no-data: {why}"),
            Self::Stale => f.write_str("stale"),
            Self::NoBaseline(None) => f.write_str("no-baseline"),
            Self::NoBaseline(Some(why)) => write!(f, "no-baseline: {why}"),
            Self::WarmingUp => f.write_str("warming-up"),
            Self::LowerBound => f.write_str("no-data: counted in part only"),
            Self::WrongKind => f.write_str("no-data: not a number"),
        }
    }
}

/// A value and what to think of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Read<T> {
    /// The value.
    pub value: T,
    /// Where it came from.
    pub source: Arc<str>,
    /// Its age in seconds.
    pub age_s: f64,
    /// How far to trust it.
    pub quality: Quality,
}

/// Signals as a predicate sees them at one moment.
pub trait Readings {
    /// The number at a path over a window.
    ///
    /// # Errors
    /// [`Gap`] says why it is unknown.
    fn number(&self, path: &str, window: Window) -> Result<Read<f64>, Gap>;

    /// The same, `ago` before now.
    ///
    /// # Errors
    /// [`Gap`] says why it is unknown.
    fn number_ago(&self, path: &str, window: Window, ago: Duration) -> Result<Read<f64>, Gap>;

    /// The newest value at a path, whatever its kind.
    ///
    /// # Errors
    /// [`Gap`] says why it is unknown.
    fn value(&self, path: &str) -> Result<Read<Value>, Gap>;

    /// Whether the values stand still, so that whatever holds has held for as long as is asked.
    fn constant(&self) -> bool;
}

/// One snapshot that stands for its window.
#[derive(Clone, Copy, Debug)]
pub struct Single<'a>(pub &'a Completed);

impl Readings for Single<'_> {
    fn number(&self, path: &str, _window: Window) -> Result<Read<f64>, Gap> {
        newest(&self.0.snapshot, path)
    }

    fn number_ago(&self, path: &str, window: Window, ago: Duration) -> Result<Read<f64>, Gap> {
        if ago.as_secs_f64() <= self.0.snapshot.window_s {
            return self.number(path, window);
        }
        past_by_name(&self.0.snapshot, path, ago)
    }

    fn value(&self, path: &str) -> Result<Read<Value>, Gap> {
        newest_value(&self.0.snapshot, path)
    }

    fn constant(&self) -> bool {
        true
    }
}

/// The last hour of one scope: every number that the predicates read, the newest snapshot, and what
/// changed beside the load.
#[derive(Clone, Debug)]
pub struct Ring {
    wanted: BTreeSet<String>,
    columns: BTreeMap<String, VecDeque<(Mono, f64)>>,
    newest: Arc<Completed>,
    changes: ChangeWatch,
    now: Mono,
    began: Option<Mono>,
}

impl Ring {
    /// An empty history that will keep the numbers at these paths.
    #[must_use]
    pub fn new(wanted: BTreeSet<String>) -> Self {
        Self {
            wanted,
            columns: BTreeMap::new(),
            newest: Arc::new(Completed::default()),
            changes: ChangeWatch::default(),
            now: Mono::START,
            began: None,
        }
    }

    /// Adds a snapshot taken at `at`; one that is not later than the last is dropped.
    pub fn push(&mut self, completed: Arc<Completed>, at: Mono) {
        if self.began.is_some() && at <= self.now {
            return;
        }
        self.began.get_or_insert(at);
        self.now = at;
        self.changes.step(&completed.snapshot, at);
        let horizon = at - KEPT;
        for path in &self.wanted {
            let number = newest(&completed.snapshot, path);
            let column = self.columns.entry(path.clone()).or_default();
            if let Ok(read) = number {
                column.push_back((at, read.value));
            }
            while column.len() > MAX_READINGS || column.front().is_some_and(|(t, _)| *t < horizon) {
                column.pop_front();
            }
        }
        self.newest = completed;
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

    /// The numbers of a signal, oldest first, for a trend line. Empty when it is not kept.
    pub fn series(&self, path: &str) -> impl Iterator<Item = (Mono, f64)> + '_ {
        self.columns.get(path).into_iter().flatten().copied()
    }

    /// The mean over the `span` that ends at `to`; the moment at its very beginning is outside.
    fn mean(&self, path: &str, span: Duration, to: Mono) -> Option<f64> {
        let column = self.columns.get(path)?;
        let first = column.partition_point(|(at, _)| *at + span <= to);
        let (mut sum, mut count) = (0.0, 0.0);
        for (_, value) in column.range(first..).take_while(|(at, _)| *at <= to) {
            sum += value;
            count += 1.0;
        }
        (count > 0.0).then(|| sum / count)
    }

    /// From one sample to the next at `to`, at most [`SPACING_MAX`]: a past that a server told is as
    /// far apart as it scrapes. Zero where nobody can say.
    fn spacing(&self, path: &str, to: Mono) -> Duration {
        let Some(column) = self.columns.get(path) else { return Duration::ZERO };
        let next = column.partition_point(|(at, _)| *at <= to);
        // At the newest sample, the one step that there was stands for the one to come.
        let later = next.min(column.len().saturating_sub(1));
        let Some(earlier) = later.checked_sub(1) else { return Duration::ZERO };
        column[later].0.saturating_since(column[earlier].0).min(SPACING_MAX)
    }

    fn watched(&self) -> Duration {
        self.began.map_or(Duration::ZERO, |began| self.now.saturating_since(began))
    }

    fn meta(&self, path: &str, value: f64) -> Read<f64> {
        newest(&self.newest.snapshot, path).map_or_else(
            |_| Read {
                value,
                source: Arc::from("history"),
                age_s: 0.0,
                quality: Quality::Inferred,
            },
            |read| Read { value, ..read },
        )
    }
}

impl Readings for Ring {
    fn number(&self, path: &str, window: Window) -> Result<Read<f64>, Gap> {
        if let Some((of, ago)) = past_of(path) {
            self.holds(of, ago)?;
        }
        let Window::Span(span) = window else {
            return newest(&self.newest.snapshot, path).map_err(|gap| self.older(path, gap));
        };
        let Some(mean) = self.mean(path, span, self.now) else {
            let gap = Gap::NoData(self.newest.snapshot.absent.get(root(path)).cloned());
            return Err(self.older(path, gap));
        };
        if self.watched() < span / 2 {
            return Err(Gap::WarmingUp);
        }
        Ok(self.meta(path, mean))
    }

    fn number_ago(&self, path: &str, window: Window, ago: Duration) -> Result<Read<f64>, Gap> {
        let fast = Duration::from_secs_f64(self.newest.snapshot.window_s.clamp(1.0, 60.0));
        let span = match window {
            Window::Fast => (fast / 4).max(self.spacing(path, self.now - ago)),
            Window::Span(span) => span,
        };
        self.holds(path, ago + span)?;
        let to = self.now - ago;
        if self.watched() >= ago
            && let Some(mean) = self.mean(path, span, to)
        {
            return Ok(self.meta(path, mean));
        }
        past_by_name(&self.newest.snapshot, path, ago)
    }

    fn value(&self, path: &str) -> Result<Read<Value>, Gap> {
        newest_value(&self.newest.snapshot, path)
    }

    fn constant(&self) -> bool {
        false
    }
}

impl Ring {
    /// Whether the past of `path`, as far back as `reach`, can be compared with now.
    fn holds(&self, path: &str, reach: Duration) -> Result<(), Gap> {
        // Before the run's clock began there was no change that we know of.
        let since = if self.now.since_start() > reach { self.now - reach } else { Mono::START };
        let Some(change) = self.changes.voiding(path, since) else { return Ok(()) };
        let ago = ago(self.now.saturating_since(change.at));
        Err(Gap::NoBaseline(Some(format!("{} changed {ago} ago", change.what.name()))))
    }

    /// What was once known and is not now is stale rather than absent.
    fn older(&self, path: &str, gap: Gap) -> Gap {
        let known = self.columns.get(path).is_some_and(|column| !column.is_empty());
        if known && matches!(gap, Gap::NoData(_)) { Gap::Stale } else { gap }
    }
}

/// The signal whose past a path holds by its name, and how long ago that was.
fn past_of(path: &str) -> Option<(&str, Duration)> {
    let relative = RELATIVE.iter().find(|(name, _)| *name == path);
    relative.map(|(_, of)| (*of, HOUR)).or_else(|| {
        PAST_NAMES.iter().find_map(|(suffix, ago)| Some((root(path).strip_suffix(suffix)?, *ago)))
    })
}

/// A distance in the words of a reason.
fn ago(distance: Duration) -> String {
    match distance.as_secs() {
        seconds @ 0..90 => format!("{seconds} s"),
        seconds @ 90..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

fn root(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

fn newest_value(snapshot: &Snapshot, path: &str) -> Result<Read<Value>, Gap> {
    let no_data = || Gap::NoData(snapshot.absent.get(root(path)).cloned());
    let value = snapshot.value(path).ok_or_else(no_data)?;
    let reading = snapshot.get(path).or_else(|| snapshot.get(root(path))).ok_or_else(no_data)?;
    if reading.age_s > STALE_AFTER_S {
        return Err(Gap::Stale);
    }
    Ok(Read {
        value: value.clone(),
        source: Arc::clone(&reading.source),
        age_s: reading.age_s,
        quality: reading.quality,
    })
}

fn newest(snapshot: &Snapshot, path: &str) -> Result<Read<f64>, Gap> {
    let read = newest_value(snapshot, path)?;
    match read.value {
        Value::Number(value) if value.is_finite() => {
            Ok(Read { value, source: read.source, age_s: read.age_s, quality: read.quality })
        }
        _ => Err(Gap::WrongKind),
    }
}

/// The past value that a source gives under a name of its own (`X_15m_ago`, `X_1h_ago`, `X_baseline`).
fn past_by_name(snapshot: &Snapshot, path: &str, ago: Duration) -> Result<Read<f64>, Gap> {
    let suffixes: &[&str] = match ago {
        QUARTER => &["_15m_ago"],
        HOUR => &["_1h_ago", "_baseline"],
        _ => &[],
    };
    suffixes
        .iter()
        .find_map(|suffix| newest(snapshot, &format!("{path}{suffix}")).ok())
        .ok_or(Gap::NoBaseline(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::derive::complete;

    fn at(seconds: f64) -> Mono {
        Mono::from_secs_f64(seconds)
    }

    fn completed(numbers: &[(&str, f64)]) -> Arc<Completed> {
        let mut snapshot = Snapshot::new("scope", 10.0);
        for (name, number) in numbers {
            snapshot.set(name, Value::Number(*number), &Arc::from("test"));
        }
        Arc::new(complete(&snapshot))
    }

    fn span(seconds: u64) -> Window {
        Window::Span(Duration::from_secs(seconds))
    }

    #[test]
    fn a_ring_reads_means_and_the_past() {
        let mut ring = Ring::new(BTreeSet::from(["queue_depth".to_owned()]));
        for second in 0..=120_u32 {
            let depth = f64::from(second);
            ring.push(completed(&[("queue_depth", depth)]), at(depth));
        }
        let value = |read: Result<Read<f64>, Gap>| read.expect("known").value;
        assert!((value(ring.number("queue_depth", Window::Fast)) - 120.0).abs() < 1e-9);
        assert!((value(ring.number("queue_depth", span(10))) - 115.5).abs() < 1e-9);
        let ago = ring.number_ago("queue_depth", span(10), Duration::from_mins(1));
        assert!((value(ago) - 55.5).abs() < 1e-9);
        let hour = ring.number_ago("queue_depth", Window::Fast, HOUR);
        assert_eq!(hour.expect_err("too young"), Gap::NoBaseline(None));
        assert_eq!(ring.series("queue_depth").count(), 121);
    }

    #[test]
    fn what_a_snapshot_holds_counts_at_every_interval_that_can_be_set() {
        for (age_s, expected) in [(15.0, Ok(1.0)), (60.0, Ok(1.0)), (301.0, Err(Gap::Stale))] {
            let mut snapshot = Snapshot::new("scope", 10.0);
            snapshot.set("queue_depth", Value::Number(1.0), &Arc::from("test"));
            snapshot.signals.get_mut("queue_depth").expect("set").age_s = age_s;
            let done = Arc::new(complete(&snapshot));
            let mut ring = Ring::new(BTreeSet::from(["queue_depth".to_owned()]));
            ring.push(Arc::clone(&done), at(0.0));
            for readings in [&ring as &dyn Readings, &Single(&done)] {
                let read = readings.number("queue_depth", Window::Fast).map(|read| read.value);
                assert_eq!(read, expected, "{age_s} s old");
            }
        }
    }

    #[test]
    fn a_past_with_wide_steps_is_found() {
        for step in [15_u32, 60] {
            let mut ring = Ring::new(BTreeSet::from(["queue_depth".to_owned()]));
            for second in (0..3_640).step_by(step as usize).chain(3_640..=3_647) {
                let depth = f64::from(second);
                ring.push(completed(&[("queue_depth", depth)]), at(depth));
            }
            let hour = ring.number_ago("queue_depth", Window::Fast, HOUR).map(|read| read.value);
            // 47 s: the sample before it, whose step it lies in.
            assert_eq!(hour, Ok(f64::from(47 / step * step)), "every {step} s");
        }
    }

    #[test]
    fn gaps_say_why() {
        let mut ring = Ring::new(BTreeSet::from(["queue_depth".to_owned()]));
        ring.push(completed(&[("queue_depth", 1.0)]), at(0.0));
        let gap = |ring: &Ring, window| ring.number("queue_depth", window).expect_err("unknown");
        assert_eq!(gap(&ring, span(60)), Gap::WarmingUp);
        ring.push(completed(&[]), at(1.0));
        assert_eq!(gap(&ring, Window::Fast), Gap::Stale);
        let other = ring.number("reset_s", Window::Fast).expect_err("unknown");
        assert_eq!(other, Gap::NoData(None));
    }

    #[test]
    fn a_change_voids_the_past_until_it_is_older_than_distance_and_window() {
        let mut ring = Ring::new(BTreeSet::from(["tpm_headroom".to_owned()]));
        let push = |ring: &mut Ring, second: u32, limit: f64| {
            let numbers =
                [("tpm_headroom", 0.5), ("tpm_limit", limit), ("tpm_headroom_1h_ago", 0.7)];
            ring.push(completed(&numbers), at(f64::from(second)));
        };
        let ask = |ring: &Ring| {
            let read = ring.number_ago("tpm_headroom", span(60), QUARTER);
            read.map(|read| read.value).map_err(|gap| gap.to_string())
        };
        for second in 0..1_200 {
            push(&mut ring, second, 900.0);
        }
        assert_eq!(ask(&ring), Ok(0.5));
        for second in 1_200..1_922 {
            push(&mut ring, second, 450.0);
        }
        let why = "no-baseline: tpm_limit changed 12 min ago".to_owned();
        assert_eq!(ask(&ring), Err(why.clone()));
        // What a source gives under the name of the past is no better.
        let named = ring.number("tpm_headroom_1h_ago", Window::Fast).expect_err("void");
        assert_eq!(named.to_string(), why);
        assert!(ring.number("tpm_headroom", span(60)).is_ok(), "now is now");
        for second in 1_922..2_160 {
            push(&mut ring, second, 450.0);
        }
        assert!(ask(&ring).is_err(), "the window still reaches back before the change");
        push(&mut ring, 2_160, 450.0);
        assert_eq!(ask(&ring), Ok(0.5));
    }

    #[test]
    fn history_is_bounded() {
        let mut ring = Ring::new(BTreeSet::from(["queue_depth".to_owned()]));
        for second in 0..8_000_u32 {
            ring.push(completed(&[("queue_depth", 1.0)]), at(f64::from(second)));
        }
        assert!(ring.series("queue_depth").count() <= 3_721);
    }

    #[test]
    fn a_single_snapshot_stands_for_its_window() {
        let done = completed(&[
            ("originals_rps", 4.0),
            ("originals_rps_15m_ago", 9.0),
            ("tokens_per_request", 5.0),
            ("tokens_per_request_baseline", 2.0),
        ]);
        let single = Single(&done);
        let ago = |name: &str, seconds| {
            single.number_ago(name, Window::Fast, Duration::from_secs(seconds)).map(|r| r.value)
        };
        assert_eq!(ago("originals_rps", 10), Ok(4.0));
        assert_eq!(ago("originals_rps", 900), Ok(9.0));
        assert_eq!(ago("tokens_per_request", 3_600), Ok(2.0));
        assert_eq!(ago("tokens_per_request", 60), Err(Gap::NoBaseline(None)));
    }
}
