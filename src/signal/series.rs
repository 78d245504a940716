//! Time series of one scraped source: what each counter gained over the window, what each gauge says.
//!
//! A [`SeriesBook`] keeps, for every series, a total that only grows: resets and restarts are
//! undone when a scrape is taken in, so a window's increase is one subtraction. Increases are made
//! per series and then summed, never the other way round: a sum over processes that come and go has
//! resets that nobody can see. Knows no metric by name.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use super::promql::is_stale_marker;
use super::{Mono, WATCHED, counter_increase};

/// A window may be this much longer than asked for before it counts as a gap without data.
const WINDOW_STRETCH: f64 = 1.5;
/// A series that was away this long is a new one, even if its process still runs: labels that come
/// and go must not fill the book, and few sources tell when their process started.
const FORGOTTEN_AFTER: Duration = WATCHED.saturating_mul(2);

/// The labels of one series, sorted by name. Copies share their text.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Labels(Arc<Packed>);

/// Names and values one after the other, so that a series costs three allocations, however many
/// labels it has.
#[derive(Default, PartialEq, Eq)]
struct Packed {
    text: Box<str>,
    /// Where each name and each value ends in `text`.
    ends: Box<[u32]>,
}

impl Labels {
    /// The value of a label; `None` when it is missing. An empty value is a missing label, as in
    /// Prometheus.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.iter().find(|(label, _)| *label == name)?;
        (!value.is_empty()).then_some(value)
    }

    /// Names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let Packed { text, ends } = &*self.0;
        let part = |begin: u32, end: u32| &text[begin as usize..end as usize];
        let mut begin = 0;
        ends.as_chunks().0.iter().map(move |[name_end, end]| {
            let label = (part(begin, *name_end), part(*name_end, *end));
            begin = *end;
            label
        })
    }

    /// Those labels whose name `is_kept`.
    #[must_use]
    pub fn filtered(&self, is_kept: impl Fn(&str) -> bool) -> Self {
        if self.iter().all(|(name, _)| is_kept(name)) {
            return self.clone();
        }
        Self::of_sorted(self.iter().filter(|(name, _)| is_kept(name)))
    }

    fn of_sorted<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let (mut text, mut ends) = (String::new(), Vec::new());
        for part in labels.flat_map(|(name, value)| [name, value]) {
            text.push_str(part);
            ends.push(u32::try_from(text.len()).expect("labels come from one line of text"));
        }
        Self(Arc::new(Packed { text: text.into(), ends: ends.into() }))
    }
}

impl PartialOrd for Labels {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Labels {
    fn cmp(&self, other: &Self) -> Ordering {
        self.iter().cmp(other.iter())
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<N: AsRef<str>, V: AsRef<str>> FromIterator<(N, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(labels: I) -> Self {
        let labels: Vec<_> = labels.into_iter().collect();
        let mut labels: Vec<_> =
            labels.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect();
        labels.sort_unstable();
        Self::of_sorted(labels.into_iter())
    }
}

/// One value of one series, as it was scraped.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Name of the metric.
    pub name: Box<str>,
    /// Its labels.
    pub labels: Labels,
    /// Its value.
    pub value: f64,
}

/// One scrape as the book takes it in.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// The values, in any order. Of equal series the first counts; a stale marker is no value.
    pub points: &'a [Point],
    /// When the scraped process started, in seconds since 1970, if it says so.
    pub process_start_s: Option<f64>,
    /// Whether every line could be read. A series that is missing from an incomplete scrape may
    /// have stood on a bad line, so its return is not a birth.
    pub is_complete: bool,
}

/// The span that increases are taken over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// The earlier scrape.
    pub from: Mono,
    /// The newest scrape.
    pub to: Mono,
}

impl Window {
    /// Its length in seconds, above zero.
    #[must_use]
    pub const fn seconds(self) -> f64 {
        self.to.saturating_since(self.from).as_secs_f64()
    }
}

#[derive(Debug)]
struct Track {
    value: f64,
    seen: Mono,
    /// The process that it counts in; none when it will begin anew.
    process: Option<u64>,
    total: f64,
    /// Totals at the moments when they changed, as far back as a span can still begin, oldest first.
    totals: VecDeque<(Mono, f64)>,
}

impl Track {
    /// Drops totals that no window which begins at `oldest` or later needs.
    fn forget(&mut self, oldest: Mono) {
        while self.totals.get(1).is_some_and(|(next, _)| *next <= oldest) {
            self.totals.pop_front();
        }
    }
}

/// The series of one source over the last window. Feed it scrapes in order of time.
#[derive(Debug)]
pub struct SeriesBook {
    window: Duration,
    /// Metrics that are counted over a longer span, and how long.
    spans: BTreeMap<Box<str>, Duration>,
    /// When the first scrape was taken.
    began: Option<Mono>,
    families: BTreeMap<Box<str>, BTreeMap<Labels, Track>>,
    rounds: VecDeque<Mono>,
    process_start_s: Option<f64>,
    /// Counts the processes seen behind this source.
    process: u64,
    was_complete: bool,
}

impl SeriesBook {
    /// A book whose increases reach back `window`.
    #[must_use]
    pub const fn new(window: Duration) -> Self {
        Self {
            window,
            spans: BTreeMap::new(),
            began: None,
            families: BTreeMap::new(),
            rounds: VecDeque::new(),
            process_start_s: None,
            process: 0,
            was_complete: false,
        }
    }

    /// The same book, which also counts these metrics over spans longer than the window. Meant for
    /// counters of rare events: each change is kept for as long.
    #[must_use]
    pub fn with_spans(mut self, spans: BTreeMap<Box<str>, Duration>) -> Self {
        self.spans = spans;
        self
    }

    /// Takes a scrape in. One that is not later than the newest is ignored.
    pub fn accept(&mut self, round: Round<'_>, at: Mono) {
        if self.newest().is_some_and(|newest| at <= newest) {
            return;
        }
        let restarted = match (self.process_start_s, round.process_start_s) {
            (Some(before), Some(now)) => before.to_bits() != now.to_bits(),
            _ => false,
        };
        self.process += u64::from(restarted);
        self.process_start_s = round.process_start_s.or(self.process_start_s);
        // A series that is new in a process whose earlier scrape did not have it started at 0 since
        // then. In the very first scrape, nobody knows when it counted what it shows.
        let newborn_counts = !self.rounds.is_empty() && self.was_complete;
        for point in round.points.iter().filter(|point| !is_stale_marker(point.value)) {
            self.point(point, newborn_counts, at);
        }
        self.was_complete = round.is_complete;
        self.began.get_or_insert(at);
        self.rounds.push_back(at);
        self.forget(at);
    }

    /// How far back increases of a metric reach.
    fn reach(&self, name: &str) -> Duration {
        let span = self.spans.get(name).copied().unwrap_or_default();
        self.window.mul_f64(WINDOW_STRETCH).max(span)
    }

    /// Notes that a series counts from zero since the newest scrape: its `_created` moved.
    pub fn began_anew(&mut self, name: &str, labels: &Labels) {
        let track = self.families.get_mut(name).and_then(|family| family.get_mut(labels));
        if let Some(track) = track {
            track.process = None;
        }
    }

    fn point(&mut self, point: &Point, newborn_counts: bool, at: Mono) {
        let oldest = at - self.reach(&point.name);
        if !self.families.contains_key(&point.name) {
            self.families.insert(point.name.clone(), BTreeMap::new());
        }
        let Some(family) = self.families.get_mut(&point.name) else { return };
        if let Some(track) = family.get_mut(&point.labels) {
            if track.seen == at {
                return;
            }
            let restarted = track.process != Some(self.process);
            let gained = counter_increase(track.value, point.value, restarted);
            track.value = point.value;
            track.seen = at;
            track.process = Some(self.process);
            // A counter that stands still, as most do, costs no room. NaN is a change.
            if gained != 0.0 {
                // First, so that the deque does not grow for a moment and keep the room for good.
                track.forget(oldest);
                track.total += gained;
                track.totals.push_back((at, track.total));
            }
        } else {
            let total =
                if newborn_counts { counter_increase(0.0, point.value, false) } else { 0.0 };
            let track = Track {
                value: point.value,
                seen: at,
                process: Some(self.process),
                total,
                totals: VecDeque::from([(at, total)]),
            };
            family.insert(point.labels.clone(), track);
        }
    }

    /// Drops what no window can begin at any more, and series that are gone: with their process, or
    /// for [`FORGOTTEN_AFTER`].
    fn forget(&mut self, at: Mono) {
        let Self { spans, families, rounds, .. } = self;
        let reach = self.window.mul_f64(WINDOW_STRETCH);
        while rounds.front().is_some_and(|round| *round < at - reach) {
            rounds.pop_front();
        }
        let process = Some(self.process);
        families.retain(|name, family| {
            let oldest = at - spans.get(name).map_or(reach, |span| reach.max(*span));
            family.retain(|_, track| {
                let away = at.saturating_since(track.seen);
                let may_return = track.process == process && away < FORGOTTEN_AFTER;
                may_return || track.seen >= oldest
            });
            for track in family.values_mut() {
                track.forget(oldest);
            }
            !family.is_empty()
        });
    }

    /// When the newest scrape was taken.
    #[must_use]
    pub fn newest(&self) -> Option<Mono> {
        self.rounds.back().copied()
    }

    /// The span between the newest scrape and the one that lies nearest to a window before it; with
    /// fewer scrapes, as long as there is. `None` with one scrape, or after a gap.
    #[must_use]
    pub fn window(&self) -> Option<Window> {
        let to = self.newest()?;
        let wanted = to - self.window;
        let distance = |at: Mono| at.saturating_since(wanted).max(wanted.saturating_since(at));
        let from = *self.rounds.iter().filter(|at| **at < to).min_by_key(|at| distance(**at))?;
        Some(Window { from, to })
    }

    /// Whether the newest scrape, or one within reach of the window, had this metric.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.families.contains_key(name)
    }

    /// What each series of a counter gained over `window`.
    pub fn increases(&self, name: &str, window: Window) -> impl Iterator<Item = (&Labels, f64)> {
        self.families.get(name).into_iter().flatten().map(move |(labels, track)| {
            let before = track.totals.iter().rev().find(|(at, _)| *at <= window.from);
            // No total that early: the series was born inside the window, at 0.
            (labels, track.total - before.map_or(0.0, |(_, total)| *total))
        })
    }

    /// What each series of a counter gained in the `span` before the newest scrape, or since the
    /// first scrape where that is later; see [`Self::with_spans`].
    pub fn increases_over(
        &self,
        name: &str,
        span: Duration,
    ) -> impl Iterator<Item = (&Labels, f64)> {
        let to = self.newest().unwrap_or(Mono::START);
        self.increases(name, Window { from: to - span, to })
    }

    /// How long scrapes have been coming.
    #[must_use]
    pub fn seen_for(&self) -> Duration {
        let seen = self.newest().zip(self.began);
        seen.map_or(Duration::ZERO, |(newest, began)| newest.saturating_since(began))
    }

    /// What each series of a metric says in the newest scrape.
    pub fn values(&self, name: &str) -> impl Iterator<Item = (&Labels, f64)> {
        let newest = self.newest();
        let family = self.families.get(name).into_iter().flatten();
        family
            .filter(move |(_, track)| Some(track.seen) == newest)
            .map(|(labels, track)| (labels, track.value))
    }

    /// Every value that a label takes in metrics whose name begins with `prefix`.
    pub fn label_values<'a>(
        &'a self,
        prefix: &'a str,
        label: &'a str,
    ) -> impl Iterator<Item = &'a str> {
        self.families
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(move |(name, _)| name.starts_with(prefix))
            .flat_map(|(_, family)| family.keys())
            .filter_map(move |labels| labels.get(label))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scrape of metric `c`: time, process start, and values by label `p`.
    type Scrape<'a> = (f64, f64, &'a [(&'a str, f64)]);

    /// The sum of increases over the window after these scrapes, and the window's length.
    fn increase(scrapes: &[Scrape<'_>]) -> Option<(f64, f64)> {
        let mut book = SeriesBook::new(Duration::from_secs(10));
        for (at, start, values) in scrapes {
            let points: Vec<_> = values
                .iter()
                .map(|(label, value)| Point {
                    name: "c".into(),
                    labels: [("p", *label)].into_iter().collect(),
                    value: *value,
                })
                .collect();
            let round = Round { points: &points, process_start_s: Some(*start), is_complete: true };
            book.accept(round, Mono::from_secs_f64(*at));
        }
        let window = book.window()?;
        Some((book.increases("c", window).map(|(_, gained)| gained).sum(), window.seconds()))
    }

    #[test]
    fn increases_are_what_was_counted() {
        for (what, scrapes, expected) in [
            ("one scrape says nothing", &[(0.0, 1.0, &[("a", 5.0)][..])][..], None),
            (
                "two scrapes",
                &[(0.0, 1.0, &[("a", 5.0)]), (1.0, 1.0, &[("a", 7.0)])],
                Some((2.0, 1.0)),
            ),
            (
                "a new series of a known process starts at 0",
                &[(0.0, 1.0, &[]), (1.0, 1.0, &[("a", 7.0)])],
                Some((7.0, 1.0)),
            ),
            (
                "a counter that falls was reset",
                &[(0.0, 1.0, &[("a", 5.0)]), (1.0, 1.0, &[("a", 3.0)])],
                Some((3.0, 1.0)),
            ),
            (
                "a restart is seen even above the old value",
                &[(0.0, 1.0, &[("a", 5.0)]), (1.0, 2.0, &[("a", 9.0)])],
                Some((9.0, 1.0)),
            ),
            (
                "two resets within one window both count",
                &[(0.0, 1.0, &[("a", 5.0)]), (1.0, 2.0, &[("a", 4.0)]), (2.0, 3.0, &[("a", 4.0)])],
                Some((8.0, 2.0)),
            ),
            (
                "increases are summed, sums have no increase",
                &[(0.0, 1.0, &[("a", 100.0), ("b", 0.0)]), (1.0, 1.0, &[("b", 10.0)])],
                Some((10.0, 1.0)),
            ),
            (
                "a series that was missing for a while lost nothing",
                &[(0.0, 1.0, &[("a", 1.0)]), (1.0, 1.0, &[]), (2.0, 1.0, &[("a", 4.0)])],
                Some((3.0, 2.0)),
            ),
            (
                "a window reaches back ten seconds, no further",
                &[(0.0, 1.0, &[("a", 1.0)]), (3.0, 1.0, &[("a", 2.0)]), (12.5, 1.0, &[("a", 4.0)])],
                Some((2.0, 9.5)),
            ),
            (
                "after a gap there is no window",
                &[(0.0, 1.0, &[("a", 1.0)]), (60.0, 1.0, &[("a", 2.0)])],
                None,
            ),
        ] {
            assert_eq!(increase(scrapes), expected, "{what}");
        }
    }

    #[test]
    fn a_series_that_a_bad_line_hid_is_not_newborn() {
        let mut book = SeriesBook::new(Duration::from_secs(10));
        let round = Round { points: &[], process_start_s: None, is_complete: false };
        book.accept(round, Mono::START);
        let point = Point { name: "c".into(), labels: Labels::default(), value: 1e6 };
        book.accept(
            Round { points: &[point], process_start_s: None, is_complete: true },
            Mono::from_secs_f64(1.0),
        );
        let window = book.window().expect("two scrapes");
        let gained: Vec<_> = book.increases("c", window).map(|(_, gained)| gained).collect();
        assert_eq!(gained, [0.0]);
    }

    #[test]
    fn labels_that_come_and_go_do_not_fill_the_book() {
        let mut book = SeriesBook::new(Duration::from_secs(10));
        let every = Duration::from_mins(10);
        for round in 0..60 {
            let point = |label: u32| Point {
                name: "c".into(),
                labels: [("p", label.to_string())].into_iter().collect(),
                value: f64::from(round),
            };
            // One that stays, and one that is never seen again.
            let points = [point(0), point(round)];
            let round_of = Round { points: &points, process_start_s: None, is_complete: true };
            book.accept(round_of, Mono::START + every * round);
        }
        let kept = usize::try_from(FORGOTTEN_AFTER.as_secs() / every.as_secs()).expect("small");
        assert_eq!(book.label_values("c", "p").count(), 1 + kept);
        assert!(book.label_values("c", "p").any(|label| label == "0"));
    }

    #[test]
    fn a_gauge_that_left_the_scrape_is_unknown() {
        let mut book = SeriesBook::new(Duration::from_secs(10));
        let point = Point { name: "g".into(), labels: Labels::default(), value: 4.0 };
        for (at, points) in [(0.0, &[point][..]), (1.0, &[])] {
            let round = Round { points, process_start_s: None, is_complete: true };
            book.accept(round, Mono::from_secs_f64(at));
        }
        assert_eq!(book.values("g").count(), 0);
        assert!(book.has("g"));
    }
}
