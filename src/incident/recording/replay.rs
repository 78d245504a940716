//! Plays a recording: what was known at any moment of it, as today's code understands it.
//!
//! Signals are computed anew from what the sources said. To know a moment, everything since the key
//! frame before it is read, a [`LEAD`] and what rates reach back; so each moment comes out the same,
//! however it is reached, and a part that was cut out says what the whole says. What lies farther back
//! is taken from the signals as they were shown then, one picture each quarter of a minute: they are
//! what minutes and hours are compared with, and the trends on the screen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::diagnosis::{Change, Library, Verdict};
use crate::incident::Diagnoses;
use crate::ingest::{
    Adapter, AdapterError, Adapters, Alerts, Ledger, News, Observation, SourceFacts, WINDOW,
};
use crate::signal::{Mono, Snapshot};

use super::decode::{Decoder, Heard, marked_page};
use super::error::RecordingError;
use super::frame::{FrameKind, from_nanoseconds};
use super::line::{AlertsLine, Header, Line, MarksLine, SourceLine};
use super::reader::{Entry, EventAt, Happened, Reader};

/// How long before a moment everything is computed anew: what a predicate with `for 30s` needs, and a
/// window more.
pub const LEAD: Duration = Duration::from_secs(40);
/// How far back signals as they were shown are read: the hour that trends and `@1h` reach back.
pub(super) const PAST: Duration = Duration::from_mins(62);
/// How long predicates may ask that something holds; the past is walked through, and not only
/// remembered, for as long.
const HOLD_MAX: Duration = Duration::from_mins(11);
/// A rate is taken over the scrapes that lie nearest to its window, which may be longer by this.
const WINDOW_STRETCH: f64 = 1.5;
/// Pictures of signals that are kept: what several jumps within some hours need.
const PICTURES_MAX: usize = 1_000;

/// What was known at one moment.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The signals and the sources.
    pub observation: Arc<Observation>,
    /// One verdict per quota scope.
    pub verdicts: Vec<Arc<Verdict>>,
    /// What changed beside the load so far.
    pub changes: Vec<Arc<Change>>,
    /// What an Alertmanager had said.
    pub alerts: Option<Arc<Alerts>>,
}

/// Snapshots over time, by quota scope, oldest first.
pub type Trends = BTreeMap<String, Vec<(Mono, Arc<Snapshot>)>>;

/// A moment, and what led up to it.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The moment.
    pub moment: Moment,
    /// The looks before it that were computed anew, by scope.
    pub lead: Trends,
    /// What was before those, as it was shown then.
    pub past: Trends,
}

/// Signals as they were shown, and where counters of rare events stood.
#[derive(Debug, Default)]
struct Picture {
    scopes: Vec<Arc<Snapshot>>,
    marks: Vec<MarksLine>,
}

/// A recording at one of its moments.
#[derive(Debug)]
pub struct Replay {
    reader: Reader,
    library: Arc<Library>,
    sources: Vec<SourceFacts>,
    events: Vec<EventAt>,
    alerts: Vec<(Mono, Arc<Alerts>)>,
    /// When they were shown again with nothing new but this: when they were asked for.
    asked: Vec<(Mono, Mono)>,
    /// Pictures of signals that were read, by the place of their frame.
    shown: BTreeMap<usize, Arc<Picture>>,
    decoder: Decoder,
    ledger: Ledger,
    diagnoses: Diagnoses,
    /// The frame that comes next.
    next: usize,
    at: Mono,
}

impl Replay {
    /// Opens the recording at `path`, to be judged by these runbooks.
    ///
    /// # Errors
    /// When it is no recording, was changed, or a source cannot be read as it was.
    pub fn open(path: &Path, library: Arc<Library>) -> Result<Self, RecordingError> {
        let reader = Reader::open(path)?;
        reader.whole()?;
        reader.span()?;
        let sources = sources_of(&reader)?;
        let Happened { events, alerts, asked } = reader.told()?;
        let told = |line: AlertsLine| (from_nanoseconds(line.at_ns), Arc::new(line.told()));
        Ok(Self {
            decoder: Decoder::new(adapters(&sources)),
            ledger: Ledger::new(sources.iter().cloned()),
            diagnoses: Diagnoses::new(Arc::clone(&library)),
            reader,
            library,
            sources,
            events,
            alerts: alerts.into_iter().map(told).collect(),
            asked,
            shown: BTreeMap::new(),
            next: 0,
            at: Mono::START,
        })
    }

    /// What was recorded.
    #[must_use]
    pub const fn header(&self) -> &Header {
        self.reader.header()
    }

    /// The file.
    #[must_use]
    pub const fn reader(&self) -> &Reader {
        &self.reader
    }

    /// From the first moment that is shown to the last.
    ///
    /// # Errors
    /// [`RecordingError::Empty`] when there is none.
    pub fn span(&self) -> Result<(Mono, Mono), RecordingError> {
        self.reader.span()
    }

    /// What happened, in order.
    #[must_use]
    pub fn events(&self) -> &[EventAt] {
        &self.events
    }

    /// Where it is.
    #[must_use]
    pub const fn at(&self) -> Mono {
        self.at
    }

    /// Goes to the last look at or before `at`.
    ///
    /// # Errors
    /// [`RecordingError::Outside`] before the first look or long after the last one;
    /// [`RecordingError::Damaged`] when what is needed is not what was written.
    pub fn seek(&mut self, at: Mono) -> Result<Arrival, RecordingError> {
        let (first, last) = self.span()?;
        // Whoever asks for the whole second of the last look means that look.
        if at < first || at > last + Duration::from_secs(1) {
            return Err(self.reader.outside(at));
        }
        let target = self.reader.looks().take_while(|look| *look <= at).last().unwrap_or(first);
        let lead_from = target - LEAD;
        let fed_from = lead_from - reach(&self.sources);
        self.decoder = Decoder::new(adapters(&self.sources));
        self.ledger = Ledger::new(self.sources.iter().cloned());
        let start = start_before(self.reader.entries(), fed_from);
        self.next = start;
        let is_from_the_start = self.entry_kind(self.next) != Some(FrameKind::Key);
        let past_end = if is_from_the_start { Mono::START } else { lead_from };
        let past = self.past(target, past_end)?;
        if !is_from_the_start {
            self.hear_marks(target, fed_from)?;
        }
        let mut lead = Trends::new();
        let mut is_fed = false;
        while self.next < self.reader.entries().len() {
            let entry = self.reader.entries()[self.next];
            let feeds = is_from_the_start || entry.head.to >= fed_from;
            if feeds && !is_fed {
                is_fed = true;
                let known = self.decoder.everything();
                self.hear(&known);
            }
            let begins = self.next == start;
            let Some(look) = self.frame(feeds, begins)? else { continue };
            self.at = look.0;
            if look.0 < past_end {
                continue;
            }
            if look.0 >= target {
                return Ok(Arrival { moment: self.moment(look), lead, past });
            }
            let observation = self.ledger.observation(look.0, look.1);
            self.diagnoses.see(&observation);
            extend(&mut lead, &observation.scopes, look.0);
        }
        Err(RecordingError::Empty { path: self.reader.path().to_owned() })
    }

    /// Goes to the next look; `None` at the end.
    ///
    /// # Errors
    /// [`RecordingError::Damaged`] when it is not what was written.
    pub fn step(&mut self) -> Result<Option<Moment>, RecordingError> {
        while self.next < self.reader.entries().len() {
            if let Some(look) = self.frame(true, false)? {
                self.at = look.0;
                return Ok(Some(self.moment(look)));
            }
        }
        Ok(None)
    }

    /// The runbooks that it is judged by.
    #[must_use]
    pub const fn library(&self) -> &Arc<Library> {
        &self.library
    }

    /// The diagnosis of one scope, as of where it is.
    pub fn diagnosis_of(&mut self, scope: &str) -> &crate::diagnosis::Diagnoser {
        self.diagnoses.of(scope)
    }

    fn moment(&mut self, (at, wall): (Mono, DateTime<Utc>)) -> Moment {
        let observation = Arc::new(self.ledger.observation(at, wall));
        let (verdicts, changes) = self.diagnoses.step(&observation);
        Moment { observation, verdicts, changes, alerts: self.alerts_at(at) }
    }

    fn alerts_at(&self, at: Mono) -> Option<Arc<Alerts>> {
        let shown = self.alerts.iter().take_while(|(shown, _)| *shown <= at).last();
        let (shown, alerts) = shown?;
        let again = self.asked.iter().take_while(|(again, _)| *again <= at).last();
        Some(match again.filter(|(again, _)| again >= shown) {
            Some((_, asked)) => Arc::new(Alerts { at: Some(*asked), ..Alerts::clone(alerts) }),
            None => Arc::clone(alerts),
        })
    }

    /// Reads the next frame. Gives the look that it ends with, if it has one. What is in a key frame
    /// is known already, but where reading begins.
    fn frame(
        &mut self,
        feeds: bool,
        begins: bool,
    ) -> Result<Option<(Mono, DateTime<Utc>)>, RecordingError> {
        let place = self.next;
        self.next += 1;
        let entry = self.reader.entries()[place];
        let is_read = match entry.head.kind {
            FrameKind::More | FrameKind::Part => true,
            FrameKind::Key => begins,
            FrameKind::Header | FrameKind::Shown | FrameKind::Events => false,
        };
        if !is_read {
            return Ok(None);
        }
        let mut look = None;
        let mut heard = Vec::new();
        for line in self.reader.lines(place)? {
            let line = line?;
            if let Line::Look(line) = &line {
                look = Some((from_nanoseconds(line.at_ns), line.wall));
            }
            let told = if feeds { Some(&mut heard) } else { None };
            let taken = self.decoder.take(line, told);
            taken.map_err(|why| self.reader.damaged(entry.offset, &why))?;
            // Line by line: all pages of a frame are more than it says itself.
            for one in heard.drain(..) {
                self.ledger.take(one.source, &one.news, one.at);
            }
        }
        Ok(look)
    }

    fn hear(&mut self, heard: &[Heard]) {
        for one in heard {
            self.ledger.take(one.source, &one.news, one.at);
        }
    }

    fn entry_kind(&self, place: usize) -> Option<FrameKind> {
        self.reader.entries().get(place).map(|entry| entry.head.kind)
    }

    /// The signals as they were shown in the hour before `target`, up to `end`. The diagnosis begins
    /// with them.
    fn past(&mut self, target: Mono, end: Mono) -> Result<Trends, RecordingError> {
        let wanted = self.pictures(target - PAST, end);
        if self.shown.len() > PICTURES_MAX {
            self.shown.retain(|place, _| wanted.contains(place));
        }
        let mut past = Trends::new();
        let mut walked = Vec::new();
        for place in wanted {
            let at = self.reader.entries()[place].head.to;
            let scopes = self.picture(place)?.scopes.clone();
            if at + HOLD_MAX < target {
                extend(&mut past, &scopes, at);
            } else {
                walked.push((at, scopes));
            }
        }
        self.diagnoses = Diagnoses::new(Arc::clone(&self.library));
        self.diagnoses.begin_earlier(&past);
        for (at, scopes) in walked {
            for snapshot in &scopes {
                self.diagnoses.of(&snapshot.scope).see(snapshot, None, at);
            }
            extend(&mut past, &scopes, at);
        }
        Ok(past)
    }

    /// Lets the counters be counted that reach back farther than the scrapes that are read.
    fn hear_marks(&mut self, target: Mono, end: Mono) -> Result<(), RecordingError> {
        let mut instances: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for place in self.pictures(target - PAST, end) {
            let picture = self.picture(place)?;
            let mut there: BTreeMap<usize, Vec<String>> = BTreeMap::new();
            for mark in &picture.marks {
                there.entry(mark.s).or_default().push(mark.i.clone());
            }
            let at = self.reader.entries()[place].head.to;
            for (source, names) in there {
                if instances.get(&source) != Some(&names) {
                    self.ledger.take(source, &News::Instances(names.clone()), at);
                    instances.insert(source, names);
                }
            }
            let heard: Vec<Heard> = picture.marks.iter().map(marked_page).collect();
            self.hear(&heard);
        }
        Ok(())
    }

    /// The places of the pictures from one moment up to another.
    fn pictures(&self, begin: Mono, end: Mono) -> BTreeSet<usize> {
        let entries = self.reader.entries().iter().enumerate();
        entries
            .filter(|(_, entry)| entry.head.kind == FrameKind::Shown)
            .filter(|(_, entry)| entry.head.to >= begin && entry.head.to < end)
            .map(|(place, _)| place)
            .collect()
    }

    fn picture(&mut self, place: usize) -> Result<Arc<Picture>, RecordingError> {
        if let Some(known) = self.shown.get(&place) {
            return Ok(Arc::clone(known));
        }
        let mut picture = Picture::default();
        for line in self.reader.lines(place)? {
            match line? {
                Line::Shown(line) => {
                    let bodies = line.scopes.into_iter();
                    picture.scopes.extend(bodies.map(|body| Arc::new(Snapshot::from(body))));
                }
                Line::Marks(line) => picture.marks.push(line),
                _ => {}
            }
        }
        let picture = Arc::new(picture);
        self.shown.insert(place, Arc::clone(&picture));
        Ok(picture)
    }
}

/// Where reading begins to know everything at `at`: at the last key frame before it, or at the
/// beginning, where nothing is known.
pub(super) fn start_before(entries: &[Entry], at: Mono) -> usize {
    let keys = || entries.iter().enumerate().filter(|(_, entry)| entry.head.kind == FrameKind::Key);
    let before = keys().take_while(|(_, entry)| entry.head.to <= at).last();
    // A part that was cut out begins with a key frame.
    let changes = |entry: &Entry| matches!(entry.head.kind, FrameKind::More | FrameKind::Part);
    let more = entries.iter().position(changes);
    let cut = keys().next().filter(|(key, _)| more.is_some_and(|more| *key < more));
    before.or(cut).map_or(0, |(place, _)| place)
}

/// How far back a snapshot reaches into what the sources said, but for counters that are counted over
/// longer: of those there are marks.
pub(super) fn reach(sources: &[SourceFacts]) -> Duration {
    let of = |source: &SourceFacts| {
        source.window().mul_f64(WINDOW_STRETCH).saturating_add(source.interval)
    };
    sources.iter().map(of).max().unwrap_or(WINDOW)
}

fn extend(trends: &mut Trends, scopes: &[Arc<Snapshot>], at: Mono) {
    for snapshot in scopes {
        let samples = trends.entry(snapshot.scope.clone()).or_default();
        samples.push((at, Arc::clone(snapshot)));
    }
}

fn adapters(sources: &[SourceFacts]) -> impl Iterator<Item = &Adapter> {
    sources.iter().map(|source| &*source.adapter)
}

/// The sources of a recording, as they were read.
pub(super) fn sources_of(reader: &Reader) -> Result<Vec<SourceFacts>, RecordingError> {
    reader.header().sources.iter().map(|line| facts(reader.path(), line)).collect()
}

fn facts(path: &Path, line: &SourceLine) -> Result<SourceFacts, RecordingError> {
    let wrong = |why: String| RecordingError::Source {
        path: path.to_owned(),
        name: line.name.clone(),
        why,
    };
    let adapter = adapter_of(line).map_err(|error| wrong(error.to_string()))?;
    Ok(SourceFacts {
        name: line.name.clone(),
        url: line.url.clone(),
        via: line.via.clone(),
        adapter,
        interval: line.interval(),
        timeout: line.timeout(),
    })
}

/// The adapter that a source is read by: its own file's, else the one that ships with weir.
pub(super) fn adapter_of(line: &SourceLine) -> Result<Arc<Adapter>, AdapterError> {
    match &line.adapter_file {
        Some(text) => {
            let file = format!("{}.toml", line.adapter);
            Ok(Arc::new(Adapter::parse(&line.adapter, &file, text)?))
        }
        None => Adapters::shipped().get(&line.adapter),
    }
}
