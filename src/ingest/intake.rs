//! Takes in the scrapes of one source: remembers every series, and counts those that are watched.
//!
//! Joins the reader of repeated scrapes, the memory of raw values and the book of increases. Watched
//! are whole metrics, by name; what they mean is not known here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::signal::promql::{Sample as Taken, is_stale_marker, stale_marker};
use crate::signal::{Labels, Memory, Mono, Point, RECENT, Restart, Round, SeriesBook, SeriesId};

use super::exposition::{Format, Repeat, Report, Sample, TooLarge};
use super::origin::RECENT_SCRAPES;
use super::page::SERIES_MAX;

/// The gauge that says when a process started.
const PROCESS_START: &str = "process_start_time_seconds";
/// The suffix of the series that says since when others count.
const CREATED: &str = "_created";
/// Suffixes of the series that a `_created` speaks of.
const COUNTING: [&str; 4] = ["_total", "_bucket", "_sum", "_count"];
/// Labels that tell the series of one histogram or summary apart.
const PART_LABELS: [&str; 2] = ["le", "quantile"];

/// The metrics that an [`Intake`] looks at which watches these: beside them what says when a process
/// started, and since when others count.
#[must_use]
pub fn looked_at(watched: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = watched.into_iter().collect();
    let created = |name: &String| {
        let family = COUNTING.iter().find_map(|suffix| name.strip_suffix(suffix))?;
        Some(format!("{family}{CREATED}"))
    };
    let births: Vec<String> = names.iter().filter_map(created).collect();
    names.extend(births);
    names.insert(PROCESS_START.to_owned());
    names
}

/// One source over time. Feed it scrapes in order of time.
#[derive(Debug)]
pub struct Intake {
    repeat: Repeat,
    memory: Memory,
    book: SeriesBook,
    watched: Watched,
    process_start: Option<SeriesId>,
    process_start_s: Option<f64>,
    /// Whether the memory is of watched series alone, and then the scrape as that sees it.
    remembers_watched_only: bool,
    seen: Vec<f64>,
}

/// The watched series of one source.
#[derive(Debug)]
struct Watched {
    names: BTreeSet<String>,
    /// How many numbers were given away so far.
    numbers: usize,
    /// What the book is fed, beside the numbers of the same series.
    points: Vec<Point>,
    ids: Vec<SeriesId>,
    /// Where each number stands in both.
    places: BTreeMap<SeriesId, usize>,
    births: BTreeMap<BirthKey, Birth>,
    /// Whose birth a `_created` tells.
    tellers: BTreeMap<SeriesId, BirthKey>,
}

/// Family and labels that series which count together share.
type BirthKey = (Box<str>, Labels);

/// The series that count together, and since when.

#[derive(Debug, Default)]
struct Birth {
    told_by: Option<SeriesId>,
    at_s: Option<f64>,
    series: Vec<SeriesId>,
}

impl Intake {
    /// An intake whose increases reach back `window`, and which watches the metrics of these names.
    #[must_use]
    pub fn new(window: Duration, names: impl IntoIterator<Item = String>) -> Self {
        let watched = Watched {
            names: names.into_iter().collect(),
            numbers: 0,
            points: Vec::new(),
            ids: Vec::new(),
            places: BTreeMap::new(),
            births: BTreeMap::new(),
            tellers: BTreeMap::new(),
        };
        Self {
            repeat: Repeat::new(),
            memory: Memory::new(),
            book: SeriesBook::new(window),
            watched,
            process_start: None,
            process_start_s: None,
            remembers_watched_only: false,
            seen: Vec::new(),
        }
    }

    /// The same intake, which remembers no series that is not watched: for a reader of what is watched,
    /// who would hold five minutes of all the others for nobody.
    #[must_use]
    pub const fn watched_only(mut self) -> Self {
        self.remembers_watched_only = true;
        self
    }

    /// The same intake, which also counts these metrics over spans longer than the window; see
    /// [`SeriesBook::with_spans`].
    #[must_use]
    pub fn with_spans(mut self, spans: BTreeMap<String, Duration>) -> Self {
        let spans = spans.into_iter().map(|(name, span)| (name.into_boxed_str(), span)).collect();
        self.book = self.book.with_spans(spans);
        self
    }

    /// Takes a scrape in. A page without a single sample but with bad lines is a failed scrape, for
    /// nothing says that it was a metrics page.
    ///
    /// # Errors
    ///
    /// When `body` is too large; nothing is taken in then. Bad lines are no error: see [`Report`].
    pub fn accept(&mut self, body: &[u8], format: Format, at: Mono) -> Result<Report, TooLarge> {
        let Self { repeat, memory, watched, process_start, .. } = self;
        let on_new = |id: SeriesId, sample: &Sample<'_>| {
            if id.index() < watched.numbers {
                watched.leave(id);
                memory.unwatch(id);
                *process_start = process_start.filter(|other| *other != id);
            }
            watched.numbers = watched.numbers.max(id.index() + 1);
            if sample.name == PROCESS_START && sample.labels.is_empty() {
                *process_start = Some(id);
            }
            if watched.meet(id, sample) {
                memory.watch(id);
            }
        };
        let mut report = repeat.read(body, format, on_new, at)?;
        let is_doubtful = report.problem_count > 0 || report.cut;
        if is_doubtful && repeat.values().iter().all(|value| is_stale_marker(*value)) {
            // A last line that may be cut is counted and dropped.
            report.samples = 0;
            memory.accept(&[], &[], at);
            return Ok(report);
        }
        let values = repeat.values();
        let mut restarts = watched.restarts(values);
        for restart in &restarts {
            if let Restart::Series(id) = restart
                && let Some(point) = watched.point(*id)
            {
                self.book.began_anew(&point.name, &point.labels);
            }
        }
        let start_s = process_start
            .map(|id| value_of(values, id))
            .filter(|start_s| !is_stale_marker(*start_s));
        if let (Some(before_s), Some(start_s)) = (self.process_start_s, start_s)
            && before_s.to_bits() != start_s.to_bits()
        {
            restarts.push(Restart::Process);
        }
        self.process_start_s = start_s.or(self.process_start_s);
        if self.remembers_watched_only {
            watched.pick(values, &mut self.seen);
            memory.accept(&self.seen, &restarts, at);
        } else {
            memory.accept(values, &restarts, at);
        }
        watched.refresh(values);
        let round = Round {
            points: &watched.points,
            process_start_s: start_s,
            is_complete: report.problem_count == 0 && !report.cut && report.samples <= SERIES_MAX,
        };
        self.book.accept(round, at);
        Ok(report)
    }

    /// Notes that a scrape failed: every series has a gap there.
    pub fn fail(&mut self, at: Mono) {
        self.memory.accept(&[], &[], at);
    }

    /// Raw values: of watched series for an hour, of the others for five minutes unless they are left
    /// out.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Increases and values of the watched series.
    #[must_use]
    pub const fn book(&self) -> &SeriesBook {
        &self.book
    }

    /// The values of a watched series in the last scrapes, oldest first; `None` where one did not have it.
    #[must_use]
    pub fn recent(&self, name: &str, labels: &Labels, until: Mono) -> Vec<Option<f64>> {
        let is_it = |point: &Point| *point.name == *name && point.labels == *labels;
        let Some((id, _)) = self.watched().find(|(_, point)| is_it(point)) else {
            return Vec::new();
        };
        let samples = self.memory.samples(id, until - RECENT, until);
        let first = samples.len().saturating_sub(RECENT_SCRAPES);
        let value = |sample: &Taken| (!is_stale_marker(sample.value)).then_some(sample.value);
        samples[first..].iter().map(value).collect()
    }

    /// The watched series by number.
    pub fn watched(&self) -> impl Iterator<Item = (SeriesId, &Point)> {
        self.watched.ids.iter().copied().zip(&self.watched.points)
    }

    /// Bytes held on the heap for reading and remembering, reserved ones included; those of the book
    /// are not among them.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.repeat.held_bytes() + self.memory.held_bytes()
    }
}

impl Watched {
    /// Whether the series is watched; then it is kept in mind.
    fn meet(&mut self, id: SeriesId, sample: &Sample<'_>) -> bool {
        let labels = || -> Labels {
            sample.labels.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect()
        };
        if let Some(family) = sample.name.strip_suffix(CREATED)
            && self.counts(family)
        {
            let key: BirthKey = (family.into(), labels());
            self.births.entry(key.clone()).or_default().told_by = Some(id);
            self.tellers.insert(id, key);
        }
        if !self.names.contains(sample.name.as_ref()) {
            return false;
        }
        let labels = labels();
        if let Some(key) = birth_key(&sample.name, &labels) {
            self.births.entry(key).or_default().series.push(id);
        }
        self.places.insert(id, self.ids.len());
        self.ids.push(id);
        self.points.push(Point { name: sample.name.as_ref().into(), labels, value: sample.value });
        true
    }

    /// Whether a metric that counts for this family is watched.
    fn counts(&self, family: &str) -> bool {
        COUNTING.iter().any(|suffix| self.names.contains(&format!("{family}{suffix}")))
    }

    /// The number now belongs to another series.
    fn leave(&mut self, id: SeriesId) {
        if let Some(key) = self.tellers.remove(&id) {
            self.leave_birth(&key, id);
        }
        let Some(place) = self.places.remove(&id) else { return };
        self.ids.swap_remove(place);
        let point = self.points.swap_remove(place);
        if let Some(moved) = self.ids.get(place) {
            self.places.insert(*moved, place);
        }
        if let Some(key) = birth_key(&point.name, &point.labels) {
            self.leave_birth(&key, id);
        }
    }

    fn leave_birth(&mut self, key: &BirthKey, id: SeriesId) {
        let Some(birth) = self.births.get_mut(key) else { return };
        birth.series.retain(|other| *other != id);
        birth.told_by = birth.told_by.filter(|other| *other != id);
        if birth.told_by.is_none() && birth.series.is_empty() {
            self.births.remove(key);
        }
    }

    fn point(&self, id: SeriesId) -> Option<&Point> {
        self.points.get(*self.places.get(&id)?)
    }

    /// The series whose `_created` moved.
    fn restarts(&mut self, values: &[f64]) -> Vec<Restart> {
        let mut restarts = Vec::new();
        for birth in self.births.values_mut() {
            let Some(told_by) = birth.told_by else { continue };
            let at_s = value_of(values, told_by);
            if is_stale_marker(at_s) {
                continue;
            }
            if birth.at_s.is_some_and(|before_s| before_s.to_bits() != at_s.to_bits()) {
                restarts.extend(birth.series.iter().copied().map(Restart::Series));
            }
            birth.at_s = Some(at_s);
        }
        restarts
    }

    /// The values of watched series alone, those of the others as gaps.
    fn pick(&self, values: &[f64], picked: &mut Vec<f64>) {
        let length = self.ids.iter().map(|id| id.index() + 1).max().unwrap_or_default();
        picked.clear();
        picked.resize(length, stale_marker());
        for id in &self.ids {
            picked[id.index()] = value_of(values, *id);
        }
    }

    fn refresh(&mut self, values: &[f64]) {
        for (point, id) in self.points.iter_mut().zip(&self.ids) {
            point.value = value_of(values, *id);
        }
    }
}

/// What a watched series counts together with; `None` when it is no counter.
fn birth_key(name: &str, labels: &Labels) -> Option<BirthKey> {
    let family = COUNTING.iter().find_map(|suffix| name.strip_suffix(suffix))?;
    Some((family.into(), labels.filtered(|label| !PART_LABELS.contains(&label))))
}

fn value_of(values: &[f64], id: SeriesId) -> f64 {
    values.get(id.index()).copied().unwrap_or(stale_marker())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the watched counter `c` gained after these scrapes, by the book and by the memory.
    fn gains(scrapes: &[&str]) -> (f64, Option<f64>) {
        let mut intake = Intake::new(Duration::from_secs(10), ["c_total".to_owned()]);
        for (second, body) in (1..).zip(scrapes) {
            let at = Mono::from_secs_f64(f64::from(second));
            match *body {
                "" => intake.fail(at),
                body => {
                    intake.accept(body.as_bytes(), Format::Text, at).expect("small");
                }
            }
        }
        let window = intake.book().window().expect("two scrapes");
        let counted = intake.book().increases("c_total", window).map(|(_, gained)| gained).sum();
        let (id, _) = intake.watched().next().expect("one series");
        (counted, intake.memory().gain(id, Mono::START, Mono::from_secs_f64(99.0)))
    }

    #[test]
    fn restarts_of_all_kinds_are_undone() {
        const STARTED: &str = "process_start_time_seconds 5\nc_total 50\n";
        for (what, scrapes, expected) in [
            ("growth", [STARTED, STARTED, "process_start_time_seconds 5\nc_total 60\n"], 10.0),
            ("a failed scrape", [STARTED, "", "process_start_time_seconds 5\nc_total 60\n"], 10.0),
            ("a fall", [STARTED, STARTED, "process_start_time_seconds 5\nc_total 20\n"], 20.0),
            (
                "a new process above the old value",
                [STARTED, "", "process_start_time_seconds 7\nc_total 60\n"],
                60.0,
            ),
            (
                "a counter made anew",
                ["c_created 1\nc_total 50\n", "c_total 51\n", "c_total 60\nc_created 2\n"],
                61.0,
            ),
            (
                "another counter made anew",
                [
                    "c_created{x=\"1\"} 1\nc_total 50\n",
                    "c_total 51\n",
                    "c_total 60\nc_created{x=\"1\"} 2\n",
                ],
                10.0,
            ),
        ] {
            assert_eq!(gains(&scrapes), (expected, Some(expected)), "{what}");
        }
    }

    #[test]
    fn the_sum_of_rates_survives_a_churn_of_instances() {
        let scrapes: Vec<String> = (0..10_u32)
            .map(|n| match n {
                0..5 => format!("c_total{{pod=\"a\"}} {}\n", 1000 + 10 * n),
                _ => format!("c_total{{pod=\"b\"}} {}\n", 10 * (n - 5)),
            })
            .collect();
        let bodies: Vec<_> = scrapes.iter().map(String::as_str).collect();
        let (counted, first_pod) = gains(&bodies);
        assert_eq!((counted, first_pod), (80.0, Some(40.0)));
    }

    #[test]
    fn a_number_that_is_given_away_again_belongs_to_its_new_series_alone() {
        let mut intake = Intake::new(Duration::from_secs(10), ["c_total".to_owned()]);
        for round in 0..8_u32 {
            let series = |n: u32| {
                let x = 100 * round + n;
                format!("c_total{{x=\"{x}\"}} {x}\nc_created{{x=\"{x}\"}} 1\n")
            };
            // One series stays, so that the numbers of the others are not in order.
            let body: String = (0..9).map(series).chain(["c_total 1\n".to_owned()]).collect();
            let at = Mono::START + Duration::from_hours(3) * (round + 1);
            intake.accept(body.as_bytes(), Format::Text, at).expect("small");
        }
        let Watched { numbers, ids, points, places, births, tellers, .. } = &intake.watched;
        assert!(*numbers < 8 * 18, "{numbers} numbers for 8 times 18 series");
        assert_eq!((ids.len(), points.len()), (places.len(), places.len()));
        for (id, place) in places {
            assert_eq!(ids[*place], *id);
            let key = birth_key(&points[*place].name, &points[*place].labels).expect("a counter");
            assert_eq!(births[&key].series, [*id]);
        }
        for (id, key) in tellers {
            assert_eq!(births[key].told_by, Some(*id));
        }
        let newest = points.iter().filter(|point| !is_stale_marker(point.value));
        assert_eq!(newest.count(), 10);
    }

    #[test]
    fn of_watched_series_alone_the_same_is_remembered() {
        let mut all = Intake::new(Duration::from_secs(10), ["b".to_owned()]);
        let mut only = Intake::new(Duration::from_secs(10), ["b".to_owned()]).watched_only();
        for second in 1..9_u32 {
            let at = Mono::from_secs_f64(second.into());
            let body = match second {
                4 => "a 1\nc 3\n".to_owned(),
                _ => format!("a {second}\nb {}\nc {second}\n", 2 * second),
            };
            for intake in [&mut all, &mut only] {
                intake.accept(body.as_bytes(), Format::Text, at).expect("small");
            }
        }
        let samples = |intake: &Intake, id| {
            let samples =
                intake.memory().samples(SeriesId(id), Mono::START, Mono::from_secs_f64(9.0));
            samples.iter().map(|one| (one.at_ms, one.value.to_bits())).collect::<Vec<_>>()
        };
        assert_eq!(samples(&only, 1), samples(&all, 1));
        assert!(only.memory().gain(SeriesId(0), Mono::START, Mono::from_secs_f64(9.0)).is_none());
        assert_eq!(only.book().newest(), all.book().newest());
    }

    #[test]
    fn series_that_nobody_watches_are_remembered_too() {
        let mut intake = Intake::new(Duration::from_secs(10), []);
        intake.accept(b"a 1\nb 2\n", Format::Text, Mono::from_secs_f64(1.0)).expect("small");
        assert_eq!(intake.watched().count(), 0);
        assert!(!intake.book().has("a"));
        let samples = intake.memory().samples(SeriesId(1), Mono::START, Mono::from_secs_f64(1.0));
        assert_eq!(samples.len(), 1);
    }
}
