//! The last hour of every numeric signal of one scope, one slot a second, for the trends on screen.
//!
//! A second without a sample is a gap and stays one: it is never drawn as zero and never joined over.
//! When several seconds share a column the column shows the least and the most of them, never a mean,
//! which hides the spike.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::diagnosis::STALE_AFTER_S;
use crate::signal::promql::Sample;
use crate::signal::{Column, Mono, Snapshot, Value, columns};

/// Seconds kept.
pub const SLOTS_MAX: usize = 3_600;
/// Series kept per scope; a snapshot has fewer, a runaway label set would have more.
pub const SERIES_MAX: usize = 400;
/// A sample that comes later than this leaves a gap. Polling at 1 Hz jitters by less.
const GAP_AFTER_SLOTS: u64 = 3;
/// Longest time, in seconds, for which one back-filled sample stands: a server's widest step.
const STEP_MAX: u64 = 60;
/// Widths of a column in seconds.
const STEPS: [u64; 10] = [1, 2, 5, 10, 15, 20, 30, 60, 120, 300];

/// A ring of samples by signal.
#[derive(Clone, Debug, Default)]
pub struct History {
    newest: Option<u64>,
    oldest: u64,
    series: BTreeMap<String, VecDeque<Option<f32>>>,
}

/// The second that an instant lies in.
#[must_use]
pub const fn slot(at: Mono) -> u64 {
    at.since_start().as_secs()
}

impl History {
    /// Adds the numbers of a snapshot at `at`. Those that are stale are left out.
    pub fn push(&mut self, snapshot: &Snapshot, at: Mono) {
        let now = slot(at);
        let steps = match self.newest {
            None => {
                self.oldest = now;
                1
            }
            Some(newest) => now.saturating_sub(newest),
        };
        self.newest = Some(self.newest.unwrap_or(now).max(now));
        let numbers = numbers(snapshot);
        for name in numbers.keys() {
            if !self.series.contains_key(name) && self.series.len() < SERIES_MAX {
                self.series.insert(name.clone(), VecDeque::new());
            }
        }
        for (name, samples) in &mut self.series {
            append(samples, numbers.get(name).copied(), steps);
        }
    }

    /// The newest second.
    #[must_use]
    pub const fn newest(&self) -> Option<u64> {
        self.newest
    }

    /// Seconds from the first sample to the newest, within what is kept.
    #[must_use]
    pub fn len_s(&self) -> u64 {
        self.newest.map_or(0, |newest| (newest - self.oldest + 1).min(SLOTS_MAX as u64))
    }

    /// Takes in snapshots from before the first sample, oldest first. Each stands for the seconds of
    /// one step, the smallest distance between two of them; what lies between farther ones is a gap.
    /// What was sampled here is not replaced.
    pub fn fill(&mut self, samples: &[(Mono, Arc<Snapshot>)]) {
        let slots = || samples.iter().map(|(at, _)| slot(*at));
        let apart =
            slots().skip(1).zip(slots()).map(|(later, earlier)| later.saturating_sub(earlier));
        let step = apart.filter(|step| *step > 0).min().unwrap_or(1).min(STEP_MAX);
        let (Some(first), Some(last)) = (slots().min(), slots().max()) else { return };
        let newest = self.newest.unwrap_or(last);
        let live_from = if self.newest.is_some() { self.oldest } else { newest + 1 };
        let first = first.max((newest + 1).saturating_sub(SLOTS_MAX as u64));
        if first >= live_from {
            return;
        }
        let mut past: BTreeMap<String, BTreeMap<u64, f32>> = BTreeMap::new();
        for (at, snapshot) in samples {
            let end = slot(*at);
            for (name, number) in numbers(snapshot) {
                let seconds = past.entry(name).or_default();
                let stands = (end + 1).saturating_sub(step)..=end;
                let before = stands.filter(|second| (first..live_from).contains(second));
                seconds.extend(before.map(|second| (second, number)));
            }
        }
        let names: Vec<String> = past.keys().chain(self.series.keys()).cloned().collect();
        for name in names {
            if !self.series.contains_key(&name) && self.series.len() >= SERIES_MAX {
                continue;
            }
            let known = past.get(&name);
            let sample = |second: u64| match known.filter(|_| second < live_from) {
                Some(known) => known.get(&second).copied(),
                None => self.sample(&name, second),
            };
            let filled = (first..=newest).map(sample).collect();
            self.series.insert(name, filled);
        }
        (self.newest, self.oldest) = (Some(newest), first);
    }

    /// The least, the most and the newest sample of each of `width` columns that end at second `end`,
    /// newest at the right.
    ///
    /// Columns start at multiples of `step`, so that they do not flicker as time goes on.
    #[must_use]
    pub fn columns(&self, name: &str, width: usize, step: u64, end: u64) -> Vec<Option<Column>> {
        let step = step.max(1);
        let behind = (end / step + 1) * step;
        let first = behind.saturating_sub(width as u64 * step);
        // A sample lies just inside its second, so that it is never on the edge of a column.
        let inside = |second: u64| millis(second) + 1;
        let known = |second| Some(Sample { at_ms: inside(second), value: self.at(name, second)? });
        let samples: Vec<Sample> = (first..behind).filter_map(known).collect();
        let end_ms = millis(behind);
        columns(&samples, end_ms - millis(width as u64 * step), end_ms, width)
    }

    /// The sample of one second.
    #[must_use]
    pub fn at(&self, name: &str, second: u64) -> Option<f64> {
        self.sample(name, second).map(f64::from)
    }

    /// The first second that is kept.
    #[must_use]
    pub fn oldest(&self) -> Option<u64> {
        self.newest.map(|newest| newest + 1 - self.len_s())
    }

    /// Everything that is known of one second.
    pub fn moment(&self, second: u64) -> impl Iterator<Item = (&str, f64)> {
        self.series.keys().filter_map(move |name| Some((name.as_str(), self.at(name, second)?)))
    }

    /// What is known of the last `span_s` seconds, oldest first.
    #[must_use]
    pub fn recent(&self, name: &str, span_s: u64) -> Vec<(Mono, f64)> {
        let Some(newest) = self.newest else { return Vec::new() };
        let seconds = newest.saturating_sub(span_s)..=newest;
        let instant = |second| Mono::from_start(std::time::Duration::from_secs(second));
        seconds.filter_map(|second| Some((instant(second), self.at(name, second)?))).collect()
    }

    fn sample(&self, name: &str, second: u64) -> Option<f32> {
        let samples = self.series.get(name)?;
        let back = usize::try_from(self.newest?.checked_sub(second)?).ok()?;
        samples[samples.len().checked_sub(back + 1)?]
    }

    /// The narrowest step with which `width` columns reach back over the whole history, or over
    /// `span_max_s` of it.
    #[must_use]
    pub fn step(&self, width: usize, span_max_s: u64) -> u64 {
        let span = self.len_s().min(span_max_s).max(1);
        let wanted = span.div_ceil(width.max(1) as u64);
        STEPS.into_iter().find(|step| *step >= wanted).unwrap_or(STEPS[STEPS.len() - 1])
    }
}

/// A second in milliseconds, as far as they are counted.
fn millis(second: u64) -> i64 {
    i64::try_from(second.saturating_mul(1_000)).unwrap_or(i64::MAX)
}

fn append(samples: &mut VecDeque<Option<f32>>, sample: Option<f32>, steps: u64) {
    if steps == 0 {
        // Two samples in one second: the later one counts, unless it knows nothing.
        if let Some(newest) = samples.back_mut() {
            *newest = sample.or(*newest);
            return;
        }
    }
    let missing = steps.saturating_sub(1).min(SLOTS_MAX as u64);
    let filler = if steps < GAP_AFTER_SLOTS { sample } else { None };
    for _ in 0..missing {
        samples.push_back(filler);
    }
    samples.push_back(sample);
    while samples.len() > SLOTS_MAX {
        samples.pop_front();
    }
}

/// The numbers of a snapshot, those one level inside a map by dotted name, and the breaker as
/// 0 closed, 1 half-open, 2 open.
fn numbers(snapshot: &Snapshot) -> BTreeMap<String, f32> {
    let mut found = BTreeMap::new();
    for (name, reading) in &snapshot.signals {
        if reading.age_s > STALE_AFTER_S {
            continue;
        }
        match &reading.value {
            Value::Number(number) => {
                insert(&mut found, name.clone(), *number);
            }
            Value::Map(map) => {
                for (part, value) in map {
                    let number = match value {
                        Value::Number(number) => Some(*number),
                        Value::Text(state) if name == "breaker" => breaker_level(state),
                        _ => None,
                    };
                    if let Some(number) = number {
                        insert(&mut found, format!("{name}.{part}"), number);
                    }
                }
            }
            _ => {}
        }
    }
    found
}

#[expect(clippy::cast_possible_truncation, reason = "trends are drawn, not computed with")]
fn insert(found: &mut BTreeMap<String, f32>, name: String, number: f64) {
    if number.is_finite() {
        found.insert(name, number as f32);
    }
}

/// The height of a breaker's state in a strip.
fn breaker_level(state: &str) -> Option<f64> {
    match state {
        "closed" => Some(0.0),
        "half_open" | "half-open" => Some(1.0),
        "open" => Some(2.0),
        _ => None,
    }
}

/// The state at a height.
#[must_use]
pub fn breaker_word(level: f64) -> Option<&'static str> {
    let words = ["closed", "half_open", "open"];
    words.into_iter().find(|word| breaker_level(word) == Some(level))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn history(samples: &[(f64, Option<f64>)]) -> History {
        let mut history = History::default();
        for (at, value) in samples {
            let mut snapshot = Snapshot::new("s", 10.0);
            if let Some(value) = value {
                snapshot.set("x", Value::Number(*value), &Arc::from("gateway"));
            }
            history.push(&snapshot, Mono::from_secs_f64(*at));
        }
        history
    }

    fn most(history: &History, width: usize, step: u64, end: u64) -> Vec<Option<f64>> {
        let columns = history.columns("x", width, step, end);
        columns.into_iter().map(|column| Some(column?.max)).collect()
    }

    #[test]
    fn newest_is_at_the_right_and_gaps_stay_gaps() {
        let history = history(&[(0.0, Some(1.0)), (1.0, Some(2.0)), (2.0, None), (3.0, Some(4.0))]);
        let columns = most(&history, 6, 1, 3);
        assert_eq!(columns, [None, None, Some(1.0), Some(2.0), None, Some(4.0)]);
    }

    #[test]
    fn a_late_poll_is_no_gap_but_an_outage_is() {
        let late = history(&[(0.0, Some(1.0)), (2.1, Some(3.0))]);
        assert_eq!(most(&late, 3, 1, 2), [Some(1.0), Some(3.0), Some(3.0)]);
        let outage = history(&[(0.0, Some(1.0)), (4.0, Some(3.0))]);
        assert_eq!(most(&outage, 5, 1, 4), [Some(1.0), None, None, None, Some(3.0)]);
    }

    #[test]
    fn a_column_shows_its_least_and_its_largest_sample() {
        let history =
            history(&[(0.0, Some(1.0)), (1.0, Some(9.0)), (2.0, Some(2.0)), (3.0, Some(3.0))]);
        let columns = history.columns("x", 2, 2, 3);
        let edges = columns.iter().map(|column| column.map(|column| (column.min, column.max)));
        assert_eq!(edges.collect::<Vec<_>>(), [Some((1.0, 9.0)), Some((2.0, 3.0))]);
    }

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let mut history = History::default();
        let mut snapshot = Snapshot::new("s", 10.0);
        snapshot.set("x", Value::Number(1.0), &Arc::from("gateway"));
        for second in 0..4_000_u32 {
            history.push(&snapshot, Mono::from_secs_f64(f64::from(second)));
        }
        assert_eq!(history.len_s(), SLOTS_MAX as u64);
        assert_eq!(history.at("x", 3_999 - 3_599), Some(1.0));
        assert_eq!(history.at("x", 3_999 - 3_600), None);
        assert_eq!(history.step(60, u64::MAX), 60);
    }

    #[test]
    fn a_clock_that_jumps_an_age_costs_an_hour_of_gaps_at_most() {
        let history = history(&[(0.0, Some(1.0)), (9e9, Some(2.0))]);
        assert_eq!(history.at("x", 9_000_000_000), Some(2.0));
        assert_eq!(history.at("x", 8_999_999_999), None);
    }

    #[test]
    fn old_readings_are_gaps() {
        let mut snapshot = Snapshot::new("s", 10.0);
        snapshot.set("x", Value::Number(1.0), &Arc::from("gateway"));
        snapshot.signals.get_mut("x").unwrap().age_s = STALE_AFTER_S + 1.0;
        let mut history = History::default();
        history.push(&snapshot, Mono::START);
        assert_eq!(most(&history, 1, 1, 0), [None]);
    }

    #[test]
    fn a_number_that_is_told_every_minute_is_no_gap() {
        let mut history = History::default();
        for second in 0..120_u32 {
            let mut snapshot = Snapshot::new("s", 10.0);
            snapshot.set("x", Value::Number(1.0), &Arc::from("prometheus"));
            snapshot.signals.get_mut("x").unwrap().age_s = f64::from(second % 60);
            history.push(&snapshot, Mono::from_secs_f64(f64::from(second)));
        }
        assert!((0..120).all(|second| history.at("x", second) == Some(1.0)));
    }

    fn past(samples: &[(f64, f64)]) -> Vec<(Mono, Arc<Snapshot>)> {
        let sample = |(at, value): &(f64, f64)| {
            let mut snapshot = Snapshot::new("s", 10.0);
            snapshot.set("x", Value::Number(*value), &Arc::from("prometheus"));
            (Mono::from_secs_f64(*at), Arc::new(snapshot))
        };
        samples.iter().map(sample).collect()
    }

    #[test]
    fn the_past_lies_before_what_was_sampled_and_its_gaps_stay_gaps() {
        let mut history = history(&[(20.0, Some(7.0)), (21.0, Some(8.0))]);
        history.fill(&past(&[(2.0, 1.0), (5.0, 2.0), (14.0, 3.0), (20.0, 99.0)]));
        let seconds: Vec<_> = (0..22).map(|second| history.at("x", second)).collect();
        let (one, two, three) = (Some(1.0), Some(2.0), Some(3.0));
        assert_eq!(seconds[..9], [None, None, one, two, two, two, None, None, None]);
        assert_eq!(seconds[9..15], [None, None, None, three, three, three]);
        // 20 was sampled here; the server's word on 18 and 19 stands.
        assert_eq!(seconds[15..], [None, None, None, Some(99.0), Some(99.0), Some(7.0), Some(8.0)]);
        assert_eq!(history.len_s(), 20);
        history.push(&past(&[(0.0, 9.0)])[0].1, Mono::from_secs_f64(22.0));
        assert_eq!((history.at("x", 22), history.at("x", 14)), (Some(9.0), three));
    }

    #[test]
    fn the_past_may_come_first_and_is_bounded() {
        let mut early = History::default();
        early.fill(&past(&[(10.0, 1.0), (20.0, 2.0)]));
        assert_eq!(
            (early.at("x", 20), early.at("x", 11), early.newest()),
            (Some(2.0), Some(2.0), Some(20))
        );
        let mut history = history(&[(9_000.0, Some(7.0))]);
        history.fill(&past(&[(0.0, 1.0), (1.0, 1.0), (8_999.0, 2.0)]));
        assert_eq!((history.at("x", 8_999), history.at("x", 1)), (Some(2.0), None));
        assert_eq!(history.len_s(), SLOTS_MAX as u64);
        history.fill(&past(&[(9_001.0, 1.0)]));
        assert_eq!(history.at("x", 9_001), None);
    }

    #[test]
    fn series_are_bounded() {
        let mut snapshot = Snapshot::new("s", 10.0);
        for index in 0..SERIES_MAX + 5 {
            snapshot.set(&format!("x{index}"), Value::Number(1.0), &Arc::from("gateway"));
        }
        let mut history = History::default();
        history.push(&snapshot, Mono::START);
        assert_eq!(history.series.len(), SERIES_MAX);
    }
}
