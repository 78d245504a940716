//! Turns lines back into what was heard: the pages, answers and failures of every source.
//!
//! A page is written anew, with the series that the source's adapter reads and no others, so that the
//! code which reads polled pages reads it. Opens no file. Bounded: a series number beyond any that a
//! recorder gives is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use crate::ingest::exposition::Format;
use crate::ingest::prometheus::Answers;
use crate::ingest::{Adapter, News, looked_at};
use crate::signal::Mono;

use super::SERIES_TOTAL_MAX;
use super::column::{COLUMN_MAX, Cell, numbers};
use super::frame::from_nanoseconds;
use super::line::{AnsweredLine, FailedLine, Line, MarksLine, ScrapeLine, SeriesLine};
use super::names::metric_of;

/// Instances of one source.
const INSTANCES_MAX: usize = 10_000;
/// A first page comes in two parts, this far apart: what had left before, then what was there.
const BEFORE: Duration = Duration::from_nanos(1);

/// Something that was heard.
#[derive(Clone, Debug)]
pub struct Heard {
    /// The source's place in the header.
    pub source: usize,
    /// What.
    pub news: News,
    /// When.
    pub at: Mono,
}

/// What is known of the sources at one place of a recording.
#[derive(Debug)]
pub struct Decoder {
    sources: Vec<Source>,
    /// Series that may still be given a number.
    room: usize,
}

#[derive(Debug)]
struct Source {
    /// Names of the metrics that mean something to whoever is told.
    wanted: BTreeSet<String>,
    discovery: Vec<Heard>,
    answered: Vec<Heard>,
    members: BTreeMap<String, Member>,
}

#[derive(Debug, Default)]
struct Member {
    /// By number; a number that was not given has no name and is not there.
    series: Vec<Series>,
    /// Numbers of the series that mean something to whoever is told, in order.
    told: BTreeSet<u32>,
    newest: Option<ScrapeLine>,
    failed: Option<Heard>,
    /// Whoever is told has had a page of it.
    is_told: bool,
}

#[derive(Clone, Debug, Default)]
struct Series {
    /// Empty where the series means nothing to whoever is told.
    name: Box<str>,
    value: f64,
    is_there: bool,
    has_number: bool,
}

impl Decoder {
    /// Knows the sources, whose series these adapters read, and nothing of them yet.
    pub fn new<'a>(adapters: impl IntoIterator<Item = &'a Adapter>) -> Self {
        let source = |adapter: &Adapter| Source {
            wanted: looked_at(adapter.metrics()),
            discovery: Vec::new(),
            answered: Vec::new(),
            members: BTreeMap::new(),
        };
        Self { sources: adapters.into_iter().map(source).collect(), room: SERIES_TOTAL_MAX }
    }

    /// Takes the next line; what was heard goes to `told`, unless nobody wants it.
    ///
    /// # Errors
    /// In words, when no recorder writes such a line.
    pub fn take(&mut self, line: Line, told: Option<&mut Vec<Heard>>) -> Result<(), String> {
        let mut heard = Vec::new();
        match line {
            Line::Instances(line) => {
                let source = self.source(line.s)?;
                if line.names.len() > INSTANCES_MAX {
                    return Err(format!("{} instances", line.names.len()));
                }
                let stay: BTreeSet<&String> = line.names.iter().collect();
                let mut room = 0;
                source.members.retain(|name, member| {
                    let stays = stay.contains(name);
                    room += if stays { 0 } else { member.series.len() };
                    stays
                });
                let at = from_nanoseconds(line.at_ns);
                let news = News::Instances(line.names);
                source.discovery = vec![Heard { source: line.s, news, at }];
                heard.clone_from(&source.discovery);
                self.room += room;
            }
            Line::Undiscovered(line) => {
                let one = failure(&line, News::Undiscovered(line.why.clone()));
                let source = self.source(line.s)?;
                source.discovery.truncate(1);
                source.discovery.push(one.clone());
                heard.push(one);
            }
            Line::Series(line) => {
                let room = self.room;
                self.room = self.member(line.s, &line.i)?.name(line, room)?;
            }
            Line::Scrape(line) => {
                let wants = told.is_some();
                let member = self.member(line.s, &line.i)?.0;
                member.scrape(line)?;
                if wants {
                    heard = member.pages();
                }
            }
            Line::Failed(line) => {
                let one = failure(&line, polled(&line));
                self.member(line.s, &line.i)?.0.failed = Some(one.clone());
                heard.push(one);
            }
            Line::Answered(line) => {
                let s = line.s;
                let one = answer(line)?;
                self.source(s)?.answered = vec![one.clone()];
                heard.push(one);
            }
            Line::Unanswered(line) => {
                let one = failure(&line, News::Answered(Err(line.why.clone())));
                let source = self.source(line.s)?;
                source.answered.truncate(1);
                source.answered.push(one.clone());
                heard.push(one);
            }
            Line::Recording(_)
            | Line::Look(_)
            | Line::Shown(_)
            | Line::Marks(_)
            | Line::Event(_)
            | Line::Alerts(_)
            | Line::AlertsAgain(_)
            | Line::LeftOut(_) => {}
        }
        if let Some(told) = told {
            told.append(&mut heard);
        }
        Ok(())
    }

    /// Everything that is known, for somebody who has been told nothing yet.
    pub fn everything(&mut self) -> Vec<Heard> {
        let mut heard = Vec::new();
        for source in &mut self.sources {
            heard.extend(source.discovery.iter().cloned());
            for member in source.members.values_mut() {
                heard.extend(member.pages());
                heard.extend(member.failed.clone());
            }
            heard.extend(source.answered.iter().cloned());
        }
        heard
    }

    fn source(&mut self, s: usize) -> Result<&mut Source, String> {
        self.sources.get_mut(s).ok_or_else(|| format!("there is no source {s}"))
    }

    fn member(&mut self, s: usize, instance: &str) -> Result<Naming<'_>, String> {
        let Source { wanted, members, .. } = self.source(s)?;
        if members.len() >= INSTANCES_MAX && !members.contains_key(instance) {
            return Err(format!("more than {INSTANCES_MAX} instances"));
        }
        Ok(Naming(members.entry(instance.to_owned()).or_default(), wanted))
    }
}

/// A member, and which of its series have to be known by name.
struct Naming<'a>(&'a mut Member, &'a BTreeSet<String>);

impl Naming<'_> {
    /// Says how much room is left.
    fn name(self, line: SeriesLine, mut room: usize) -> Result<usize, String> {
        let Self(member, wanted) = self;
        if line.n.len() != line.names.len() {
            return Err("as many names as numbers are expected".to_owned());
        }
        for (number, name) in numbers(&line.n).zip(line.names) {
            let number = within(number)?;
            let place = index(number);
            if place >= member.series.len() {
                let more = place + 1 - member.series.len();
                room = room.checked_sub(more).ok_or("more series than any recording has")?;
                member.series.resize(place + 1, Series::default());
            }
            let is_wanted = wanted.contains(metric_of(&name));
            let name = if is_wanted { name.into_boxed_str() } else { Box::default() };
            if is_wanted {
                member.told.insert(number);
            } else {
                member.told.remove(&number);
            }
            member.series[place] = Series { name, has_number: true, ..Series::default() };
        }
        Ok(room)
    }
}

impl Member {
    fn scrape(&mut self, line: ScrapeLine) -> Result<(), String> {
        if line.n.len() != line.v.len() {
            return Err("as many values as numbers are expected".to_owned());
        }
        for (number, cell) in numbers(&line.n).zip(&line.v) {
            let number = within(number)?;
            let one = self.numbered(number)?;
            #[expect(clippy::cast_precision_loss, reason = "what is written fits exactly")]
            match cell {
                Cell::More(more) => one.value += *more as f64,
                Cell::Is(value) => one.value = *value,
                Cell::Gone => {}
            }
            one.is_there = !matches!(cell, Cell::Gone);
        }
        for number in numbers(&line.gone) {
            let number = within(number)?;
            self.numbered(number)?.is_there = false;
        }
        self.failed = None;
        self.newest = Some(ScrapeLine { n: Vec::new(), v: Vec::new(), gone: Vec::new(), ..line });
        Ok(())
    }

    fn numbered(&mut self, number: u32) -> Result<&mut Series, String> {
        let one = self.series.get_mut(index(number)).filter(|one| one.has_number);
        one.ok_or_else(|| format!("series {number} has no name"))
    }

    fn told(&self) -> impl Iterator<Item = &Series> {
        self.told.iter().map(|number| &self.series[index(*number)])
    }

    /// The newest page as it is told. Before the first comes what had left by then, so that a series
    /// which returns is not taken for a new one.
    fn pages(&mut self) -> Vec<Heard> {
        let Some(newest) = &self.newest else { return Vec::new() };
        let had_left = self.told().any(|one| !one.is_there);
        let heard = |body: String, at: Mono| Heard {
            source: newest.s,
            news: News::Polled {
                instance: Arc::from(newest.i.as_str()),
                took: Duration::from_nanos(newest.took_ns),
                outcome: Ok((body.into_bytes(), Format::Text)),
            },
            at,
        };
        let at = from_nanoseconds(newest.at_ns);
        let mut pages = Vec::new();
        if !std::mem::replace(&mut self.is_told, true) && had_left && at > Mono::START {
            pages.push(heard(self.body(|_| true), at - BEFORE));
        }
        let mut body = self.body(|one| one.is_there);
        for bad in &newest.bad {
            body.push_str(bad);
            body.push('\n');
        }
        if newest.cut {
            body.push_str("cut");
        }
        pages.push(heard(body, at));
        pages
    }

    fn body(&self, is_on_it: impl Fn(&Series) -> bool) -> String {
        let mut body = String::new();
        for one in self.told().filter(|one| is_on_it(one)) {
            put_sample(&mut body, &one.name, one.value);
        }
        body
    }
}

/// The page that marks stand for, with nothing else on it.
pub fn marked_page(line: &MarksLine) -> Heard {
    let mut body = String::new();
    for (name, cell) in line.names.iter().zip(&line.v) {
        #[expect(clippy::cast_precision_loss, reason = "what is written fits exactly")]
        let value = match cell {
            Cell::More(more) => *more as f64,
            Cell::Is(value) => *value,
            Cell::Gone => continue,
        };
        put_sample(&mut body, name, value);
    }
    let outcome = Ok((body.into_bytes(), Format::Text));
    let instance = Arc::from(line.i.as_str());
    let news = News::Polled { instance, took: Duration::ZERO, outcome };
    Heard { source: line.s, news, at: from_nanoseconds(line.at_ns) }
}

fn put_sample(body: &mut String, name: &str, value: f64) {
    body.push_str(name);
    // Writing to a string does not fail.
    let _ = match value {
        f64::INFINITY => body.write_str(" +Inf\n"),
        f64::NEG_INFINITY => body.write_str(" -Inf\n"),
        value => writeln!(body, " {value}"),
    };
}

fn within(number: Option<u32>) -> Result<u32, String> {
    number
        .filter(|number| usize::try_from(*number).is_ok_and(|number| number < COLUMN_MAX))
        .ok_or_else(|| format!("a series number beyond {COLUMN_MAX}"))
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn failure(line: &FailedLine, news: News) -> Heard {
    Heard { source: line.s, news, at: from_nanoseconds(line.at_ns) }
}

fn polled(line: &FailedLine) -> News {
    News::Polled {
        instance: Arc::from(line.i.as_str()),
        took: Duration::from_nanos(line.took_ns),
        outcome: Err(line.why.clone()),
    }
}

fn answer(line: AnsweredLine) -> Result<Heard, String> {
    let answers = Answers::from_json(line.answers).map_err(|error| error.to_string())?;
    let news = News::Answered(Ok(Arc::new(answers)));
    Ok(Heard { source: line.s, news, at: from_nanoseconds(line.at_ns) })
}
