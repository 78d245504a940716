//! Turns what is heard of the sources into lines: what changed, and from time to time everything.
//!
//! Opens no file and reads no clock. Reads each page once more, with what reads polled pages, so that
//! it knows the series by number; a series that stands still costs a comparison and no byte.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::ingest::News;
use crate::ingest::exposition::{Format, Repeat, Report};
use crate::signal::promql::is_stale_marker;
use crate::signal::{Mono, WATCHED, as_integer};

use super::column::{Cell, Distances};
use super::frame::nanoseconds;
use super::line::{
    AnsweredLine, FailedLine, InstancesLine, Line, MarksLine, ScrapeLine, SeriesLine, bare_url,
};
use super::names::{metric_of, text_of};

/// Lines of a page that could not be read and are kept as they stood there.
const BAD_LINES_MAX: usize = 8;
/// Characters that are kept of such a line.
const BAD_LINE_CHARS_MAX: usize = 200;
/// A series that has been gone for so long is a new one when it returns, as for the counters that are
/// made of it.
const FORGOTTEN_AFTER: Duration = WATCHED.saturating_mul(2);

/// What was heard of every source so far.
#[derive(Debug, Default)]
pub struct Shorthand {
    sources: BTreeMap<usize, Source>,
    /// Series that have a number, all instances together.
    series: usize,
}

#[derive(Debug, Default)]
struct Source {
    instances: Option<Line>,
    undiscovered: Option<Line>,
    members: BTreeMap<String, Member>,
    answered: Option<Line>,
    unanswered: Option<Line>,
}

/// One instance.
#[derive(Debug, Default)]
struct Member {
    repeat: Repeat,
    series: Vec<Series>,
    /// The newest page, without its numbers.
    newest: Option<ScrapeLine>,
    failed: Option<Line>,
}

#[derive(Debug, Default)]
struct Series {
    name: String,
    /// As it was written last; a series without a number begins at zero.
    value: f64,
    is_there: bool,
    /// Its number was given in the lines since the last key frame, or in that.
    is_named: bool,
    left: Mono,
}

impl Shorthand {
    /// The lines that this makes.
    pub fn heard(&mut self, s: usize, news: &News, at: Mono) -> Vec<Line> {
        let at_ns = nanoseconds(at);
        let failed = |i: &str, took: Duration, why: &str| FailedLine {
            s,
            i: i.to_owned(),
            at_ns,
            took_ns: nanoseconds(Mono::from_start(took)),
            why: bare_url(why),
        };
        let source = self.sources.entry(s).or_default();
        match news {
            News::Instances(names) => {
                let stay: BTreeSet<&String> = names.iter().collect();
                source.members.retain(|name, member| {
                    let stays = stay.contains(name);
                    self.series -= if stays { 0 } else { member.series.len() };
                    stays
                });
                for name in names {
                    source.members.entry(name.clone()).or_default();
                }
                let line = Line::Instances(InstancesLine { s, at_ns, names: names.clone() });
                source.instances = Some(line.clone());
                source.undiscovered = None;
                vec![line]
            }
            News::Undiscovered(why) => {
                let line = Line::Undiscovered(failed("", Duration::ZERO, why));
                source.undiscovered = Some(line.clone());
                vec![line]
            }
            News::Polled { instance, took, outcome } => {
                // Nobody listens to an instance that the source does not have.
                let Some(member) = source.members.get_mut(&**instance) else { return Vec::new() };
                let place = Place { s, instance, took: *took, at };
                let before = member.series.len();
                let lines = match outcome {
                    Ok((body, format)) => member.scrape(&place, body, *format),
                    Err(why) => Err(why.clone()),
                };
                self.series += member.series.len() - before;
                lines.unwrap_or_else(|why| {
                    let line = Line::Failed(failed(instance, *took, &why));
                    member.failed = Some(line.clone());
                    vec![line]
                })
            }
            News::Answered(Ok(answers)) => {
                let line = Line::Answered(AnsweredLine { s, at_ns, answers: answers.to_json() });
                source.answered = Some(line.clone());
                source.unanswered = None;
                vec![line]
            }
            News::Answered(Err(why)) => {
                let line = Line::Unanswered(failed("", Duration::ZERO, why));
                source.unanswered = Some(line.clone());
                vec![line]
            }
        }
    }

    /// How many series have a number, all instances together.
    pub const fn series(&self) -> usize {
        self.series
    }

    /// Where the counters stand whose metrics are named, source by source.
    pub fn marks(&self, wanted: &[BTreeSet<String>]) -> Vec<Line> {
        let sources =
            self.sources.iter().filter_map(|(s, source)| Some((s, source, wanted.get(*s)?)));
        let marked = sources.filter(|(.., wanted)| !wanted.is_empty());
        let members = marked.flat_map(|(s, source, wanted)| {
            source.members.iter().map(move |(instance, member)| (*s, instance, member, wanted))
        });
        let line = |(s, instance, member, wanted): (usize, &String, &Member, &BTreeSet<String>)| {
            let at_ns = member.newest.as_ref()?.at_ns;
            let is_wanted = |one: &&Series| one.is_there && wanted.contains(metric_of(&one.name));
            let (names, v) = member
                .series
                .iter()
                .filter(is_wanted)
                .map(|one| (one.name.clone(), between(0.0, one.value)))
                .unzip();
            Some(Line::Marks(MarksLine { s, i: instance.clone(), at_ns, names, v }))
        };
        members.filter_map(line).collect()
    }

    /// Everything that is known as of `at`, for somebody who has seen no line before.
    pub fn everything(&mut self, at: Mono) -> Vec<Line> {
        let mut lines = Vec::new();
        for (s, source) in &mut self.sources {
            lines.extend([&source.instances, &source.undiscovered].into_iter().flatten().cloned());
            for (instance, member) in &mut source.members {
                lines.extend(member.everything(*s, instance, at));
                lines.extend(member.failed.clone());
            }
            lines.extend([&source.answered, &source.unanswered].into_iter().flatten().cloned());
        }
        lines
    }
}

/// Of whom and when.
struct Place<'a> {
    s: usize,
    instance: &'a str,
    took: Duration,
    at: Mono,
}

impl Member {
    fn scrape(
        &mut self,
        place: &Place<'_>,
        body: &[u8],
        format: Format,
    ) -> Result<Vec<Line>, String> {
        let Self { repeat, series, .. } = self;
        let on_new = |id: crate::signal::SeriesId,
                      sample: &crate::ingest::exposition::Sample<'_>| {
            if series.len() <= id.index() {
                series.resize_with(id.index() + 1, Series::default);
            }
            let name = text_of(&sample.name, sample.labels.iter().map(|(l, v)| (l, v)));
            series[id.index()] = Series { name, ..Series::default() };
        };
        let report =
            repeat.read(body, format, on_new, place.at).map_err(|error| error.to_string())?;
        let mut named = SeriesLine {
            s: place.s,
            i: place.instance.to_owned(),
            n: Vec::new(),
            names: Vec::new(),
        };
        let (mut new, mut changed, mut cells) =
            (Distances::default(), Distances::default(), Vec::new());
        for ((number, one), value) in (0_u32..).zip(&mut self.series).zip(self.repeat.values()) {
            if is_stale_marker(*value) {
                if std::mem::take(&mut one.is_there) {
                    one.left = place.at;
                    changed.push(number);
                    cells.push(Cell::Gone);
                }
                continue;
            }
            if one.is_there && one.value.to_bits() == value.to_bits() {
                continue;
            }
            if !std::mem::replace(&mut one.is_named, true) {
                new.push(number);
                named.names.push(one.name.clone());
                one.value = 0.0;
            }
            changed.push(number);
            cells.push(between(one.value, *value));
            (one.value, one.is_there) = (*value, true);
        }
        named.n = new.all;
        let head = ScrapeLine {
            s: place.s,
            i: place.instance.to_owned(),
            at_ns: nanoseconds(place.at),
            took_ns: nanoseconds(Mono::from_start(place.took)),
            n: Vec::new(),
            v: Vec::new(),
            gone: Vec::new(),
            bad: bad_lines(body, &report),
            cut: report.cut,
        };
        self.newest = Some(head.clone());
        self.failed = None;
        let first = (!named.names.is_empty()).then_some(Line::Series(named));
        let scrape = Line::Scrape(ScrapeLine { n: changed.all, v: cells, ..head });
        Ok(first.into_iter().chain([scrape]).collect())
    }

    fn everything(&mut self, s: usize, instance: &str, at: Mono) -> Vec<Line> {
        let Some(head) = self.newest.clone() else { return Vec::new() };
        let (mut known, mut gone) = (Distances::default(), Distances::default());
        let (mut names, mut cells) = (Vec::new(), Vec::new());
        for (number, one) in (0_u32..).zip(&mut self.series) {
            let is_forgotten = !one.is_there && at.saturating_since(one.left) >= FORGOTTEN_AFTER;
            one.is_named = !one.name.is_empty() && !is_forgotten;
            if !one.is_named {
                continue;
            }
            known.push(number);
            names.push(one.name.clone());
            cells.push(between(0.0, one.value));
            if !one.is_there {
                gone.push(number);
            }
        }
        let n = known.all.clone();
        let series = SeriesLine { s, i: instance.to_owned(), n, names };
        let scrape = ScrapeLine { n: known.all, v: cells, gone: gone.all, ..head };
        vec![Line::Series(series), Line::Scrape(scrape)]
    }
}

/// How one value becomes another.
fn between(before: f64, now: f64) -> Cell {
    match (as_integer(before), as_integer(now)) {
        (Some(before), Some(now)) => Cell::More(now - before),
        _ => Cell::Is(now),
    }
}

/// The first lines of a page that could not be read, as they stood there.
fn bad_lines(body: &[u8], report: &Report) -> Vec<String> {
    let line = |number: usize| {
        let line = body.split(|byte| *byte == b'\n').nth(number.checked_sub(1)?)?;
        let text = String::from_utf8_lossy(line);
        Some(text.chars().take(BAD_LINE_CHARS_MAX).collect())
    };
    let first = report.problems.iter().take(BAD_LINES_MAX);
    first.filter_map(|problem| line(problem.line)).collect()
}
