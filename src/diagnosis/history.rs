//! How predicates read signals: from a live history, or from one snapshot that stands for a window of
//! constant values. Says why a value is unknown; never guesses one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::signal::{Quality, Reading, Snapshot, Value};

use super::derive::Completed;
use super::predicate::{Heading, Moved, Window};

/// A reading older than this is stale whatever a snapshot holds. How long a number counts is known
/// where it was read: adapters bound the age of what they carry on, and the assembler leaves out a
/// source that was quiet for three of its intervals, which may be a minute each. A narrower limit
/// here would call good numbers stale.
pub const STALE_AFTER_S: f64 = 300.0;
pub(super) const QUARTER: Duration = Duration::from_mins(15);
pub(super) const HOUR: Duration = Duration::from_hours(1);
/// What the names of past values end with, and how long ago that was.
const PAST_NAMES: [(&str, Duration); 4] =
    [("_15m_ago", QUARTER), ("_1h_ago", HOUR), ("_baseline", HOUR), ("_baseline_s", HOUR)];
/// Signals that are relative to their own usual level, and whose level it is.
const RELATIVE: [(&str, &str); 2] =
    [("stage_slowdown", "stages_p95_s"), ("spend_rate_x_baseline", "spend_rate_x_baseline")];
/// Signals in a row of which each is absent because another is.
const CHAIN_MAX: usize = 4;

/// Why a reading is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gap {
    /// No source gives it; the snapshot may say why.
    NoData(Option<String>),
    /// It was known and is too old now, or its source has gone quiet.
    Stale(Option<String>),
    /// Known for less than four fifths of the window, or for too little of it to see a trend.
    Thin(String),
    /// Its source was asked and could not say.
    SourceError(String),
    /// Nothing to compare with: not watched for long enough, and no source gives the past value, or
    /// what has changed since, which makes the two no comparison.
    NoBaseline(Option<String>),
    /// Not watched for four fifths of the window yet, or a source has only just begun.
    WarmingUp(Option<String>),
    /// Part of it is not counted, so that the truth may lie beyond the threshold.
    LowerBound,
    /// There is a value, but not of the kind that the predicate asks for.
    WrongKind,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let because = |word: &str, f: &mut fmt::Formatter<'_>, why: &Option<String>| match why {
            None => f.write_str(word),
            Some(why) => write!(f, "{word}: {why}"),
        };
        match self {
            Self::NoData(why) => because("no-data", f, why),
            Self::Stale(why) => because("stale", f, why),
            Self::Thin(why) => write!(f, "thin: {why}"),
            Self::SourceError(why) => write!(f, "source-error: {why}"),
            Self::NoBaseline(why) => because("no-baseline", f, why),
            Self::WarmingUp(why) => because("warming-up", f, why),
            Self::LowerBound => f.write_str("no-data: counted in part only"),
            Self::WrongKind => f.write_str("no-data: not a number"),
        }
    }
}

impl Gap {
    /// Why a signal is not in a snapshot, as far as the snapshot says. What is derived from others is
    /// unknown for the reason for which they are.
    pub(super) fn absent(snapshot: &Snapshot, signal: &str) -> Self {
        let said = snapshot.absent.get(signal);
        let mut deepest = said;
        for _ in 0..CHAIN_MAX {
            let part = deepest.and_then(|why| why.strip_prefix("needs ")?.split(", ").next());
            let Some(why) = part.and_then(|part| snapshot.absent.get(part)) else { break };
            deepest = Some(why);
        }
        match deepest {
            Some(why) if deepest != said => match Self::said(why.clone()) {
                Self::NoData(_) => Self::NoData(said.cloned()),
                gap => gap,
            },
            Some(why) => Self::said(why.clone()),
            None => Self::NoData(None),
        }
    }

    /// The reason that the words of a source stand for.
    fn said(why: String) -> Self {
        const FAILED: [&str; 6] =
            ["cannot scrape", "can be scraped", "failed", "no answer", "unreachable", "timed out"];
        if let Some(quiet) = why.strip_prefix("stale: ") {
            return Self::Stale(Some(quiet.to_owned()));
        }
        if why.contains("warming up") {
            return Self::WarmingUp(Some(why));
        }
        if FAILED.iter().any(|word| why.contains(word)) {
            return Self::SourceError(why);
        }
        Self::NoData(Some(why))
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

/// What a signal did over a span.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    /// Its level at the beginning.
    pub from: f64,
    /// Its level at the end.
    pub to: f64,
    /// Whether it went the way that was asked for, all through.
    pub holds: bool,
}

/// Which of two signals moved first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Whether it was the one that was asked for.
    pub holds: bool,
    /// What was seen, in words.
    pub seen: String,
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

    /// What the signal at a path did over the last `span`, and whether it went `way` all through.
    ///
    /// # Errors
    /// [`Gap`] says why that cannot be told.
    fn trend(&self, path: &str, way: Heading, span: Duration) -> Result<Read<Course>, Gap>;

    /// Whether `first` happened before `then`.
    ///
    /// # Errors
    /// [`Gap`] says why that cannot be told.
    fn sequence(&self, first: &Moved, then: &Moved) -> Result<Sequence, Gap>;

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

    fn trend(&self, path: &str, _way: Heading, _span: Duration) -> Result<Read<Course>, Gap> {
        newest(&self.0.snapshot, path)?;
        Err(Gap::NoBaseline(None))
    }

    fn sequence(&self, first: &Moved, then: &Moved) -> Result<Sequence, Gap> {
        newest(&self.0.snapshot, &first.signal)?;
        newest(&self.0.snapshot, &then.signal)?;
        Err(Gap::NoBaseline(None))
    }

    fn constant(&self) -> bool {
        true
    }
}

pub(super) fn root(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

/// The value at a path and the reading that it is part of.
fn fresh<'a>(snapshot: &'a Snapshot, path: &str) -> Result<(&'a Value, &'a Reading), Gap> {
    let (value, reading) = match snapshot.get(path) {
        Some(reading) => (&reading.value, reading),
        None => snapshot
            .value(path)
            .zip(snapshot.get(root(path)))
            .ok_or_else(|| Gap::absent(snapshot, root(path)))?,
    };
    if reading.age_s > STALE_AFTER_S {
        return Err(Gap::Stale(None));
    }
    Ok((value, reading))
}

fn read_of<T>(value: T, reading: &Reading) -> Read<T> {
    let source = Arc::clone(&reading.source);
    Read { value, source, age_s: reading.age_s, quality: reading.quality }
}

pub(super) fn newest_value(snapshot: &Snapshot, path: &str) -> Result<Read<Value>, Gap> {
    let (value, reading) = fresh(snapshot, path)?;
    Ok(read_of(value.clone(), reading))
}

pub(super) fn newest(snapshot: &Snapshot, path: &str) -> Result<Read<f64>, Gap> {
    let (value, reading) = fresh(snapshot, path)?;
    match value {
        Value::Number(value) if value.is_finite() => Ok(read_of(*value, reading)),
        _ => Err(Gap::WrongKind),
    }
}

/// The past value that a source gives under a name of its own (`X_15m_ago`, `X_1h_ago`, `X_baseline`).
pub(super) fn past_by_name(
    snapshot: &Snapshot,
    path: &str,
    ago: Duration,
) -> Result<Read<f64>, Gap> {
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

/// The signal whose past a path holds by its name, and how long ago that was.
pub(super) fn past_of(path: &str) -> Option<(&str, Duration)> {
    let relative = RELATIVE.iter().find(|(name, _)| *name == path);
    relative.map(|(_, of)| (*of, HOUR)).or_else(|| {
        PAST_NAMES.iter().find_map(|(suffix, ago)| Some((root(path).strip_suffix(suffix)?, *ago)))
    })
}
