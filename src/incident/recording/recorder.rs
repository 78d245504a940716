//! Makes a recording: takes what is heard and looked at, and writes one batch of frames per look.
//!
//! The first trouble ends the recording and is told once; whoever records goes on without it.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::diagnosis::Verdict;
use crate::flag::wire::SnapshotBody;
use crate::ingest::{Alerts, News, Observation, Witness, looked_at};
use crate::signal::{Mono, Snapshot};

use super::error::RecordingError;
use super::frame::{self, FrameKind, nanoseconds};
use super::line::{
    AlertsAgainLine, AlertsLine, EventLine, Header, LeftOutLine, Line, LookLine, ShownLine,
    SourceLine, Told, bare_url,
};
use super::replay::adapter_of;
use super::shorthand::Shorthand;
use super::writer::FileWriter;
use super::{KEY_EVERY, SERIES_TOTAL_MAX, SHOWN_EVERY, SPAN_MAX};

/// Bytes of lines that wait for a look; then they are written without one.
const PENDING_BYTES_MAX: usize = 64 << 20;

/// What was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The file.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// From the first look to the last.
    pub span: Duration,
}

/// A recording under way.
#[derive(Debug)]
pub struct Recorder {
    file: FileWriter,
    shorthand: Shorthand,
    /// By source, the metrics that are counted over a span of their own.
    marked: Vec<BTreeSet<String>>,
    pending: Vec<u8>,
    pending_from: Option<Mono>,
    events: Vec<u8>,
    first: Option<Mono>,
    newest: Option<(Mono, DateTime<Utc>)>,
    key_at: Option<Mono>,
    shown_at: Option<Mono>,
    verdicts: BTreeMap<String, (String, String)>,
    alerts: Option<Arc<Alerts>>,
    /// Whether each source answered when it was looked at last.
    answered: BTreeMap<String, bool>,
    trouble: Option<RecordingError>,
}

impl Recorder {
    /// Begins a recording at `path`, where no file may be.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn create(path: &Path, header: Header) -> Result<Self, RecordingError> {
        let marked = header.sources.iter().map(counted_long).collect();
        let mut file = FileWriter::create(path)?;
        let mut first = Vec::new();
        let mut lines = Vec::new();
        put(&mut lines, &Line::Recording(Box::new(header)));
        frame::write(FrameKind::Header, (Mono::START, Mono::START), &lines, &mut first)
            .ok_or_else(|| too_large(path))?;
        file.append(&first)?;
        Ok(Self {
            file,
            shorthand: Shorthand::default(),
            marked,
            pending: Vec::new(),
            pending_from: None,
            events: Vec::new(),
            first: None,
            newest: None,
            key_at: None,
            shown_at: None,
            verdicts: BTreeMap::new(),
            alerts: None,
            answered: BTreeMap::new(),
            trouble: None,
        })
    }

    /// A source was heard.
    pub fn hear(&mut self, source: usize, news: &News, at: Mono) {
        if self.trouble.is_some() {
            return;
        }
        for line in self.shorthand.heard(source, news, at) {
            put(&mut self.pending, &line);
        }
        self.pending_from.get_or_insert(at);
        if self.shorthand.series() > SERIES_TOTAL_MAX {
            let limit = format!("{SERIES_TOTAL_MAX} series at a time");
            self.end(RecordingError::Full { path: self.file.path().to_owned(), limit });
        } else if self.pending.len() > PENDING_BYTES_MAX {
            let mut frames = Vec::new();
            self.changes(FrameKind::Part, at, &mut frames);
            self.append(&frames);
        }
    }

    /// Scrapes could not be taken in.
    pub fn left_out(&mut self, count: u64) {
        if self.trouble.is_some() {
            return;
        }
        put(&mut self.pending, &Line::LeftOut(LeftOutLine { count }));
    }

    /// What is known was put together: everything since the last look is written.
    pub fn look<S: Borrow<Snapshot>>(&mut self, scopes: &[S], at: Mono, wall: DateTime<Utc>) {
        if self.trouble.is_some() || self.newest.is_some_and(|(newest, _)| at <= newest) {
            return;
        }
        let first = *self.first.get_or_insert(at);
        self.newest = Some((at, wall));
        if at.saturating_since(first) > SPAN_MAX {
            let limit = format!("{} h", SPAN_MAX.as_secs() / 3_600);
            self.end(RecordingError::Full { path: self.file.path().to_owned(), limit });
            return;
        }
        let mut frames = Vec::new();
        if !self.events.is_empty() {
            let events = std::mem::take(&mut self.events);
            self.frame(FrameKind::Events, (at, at), &events, &mut frames);
        }
        let is_due = |before: Option<Mono>, every: Duration| {
            before.is_none_or(|before| at.saturating_since(before) >= every)
        };
        if !scopes.is_empty() && is_due(self.shown_at, SHOWN_EVERY) {
            self.shown_at = Some(at);
            let mut lines = Vec::new();
            put(&mut lines, &Line::Shown(shown(scopes, at)));
            for line in self.shorthand.marks(&self.marked) {
                put(&mut lines, &line);
            }
            self.frame(FrameKind::Shown, (at, at), &lines, &mut frames);
        }
        put(&mut self.pending, &Line::Look(LookLine { at_ns: nanoseconds(at), wall }));
        self.changes(FrameKind::More, at, &mut frames);
        // Not at first: what was heard since the start is everything.
        if is_due(self.key_at.or(self.first), KEY_EVERY) {
            self.key_at = Some(at);
            let mut lines = Vec::new();
            for line in self.shorthand.everything(at) {
                put(&mut lines, &line);
            }
            self.frame(FrameKind::Key, (at, at), &lines, &mut frames);
        }
        self.append(&frames);
    }

    /// Something happened at a time of the calendar.
    pub fn tell(&mut self, told: Told, wall: DateTime<Utc>) {
        let at = self.newest.map_or(Mono::START, |(at, then)| match wall - then {
            later if later >= TimeDelta::zero() => at + later.to_std().unwrap_or_default(),
            earlier => at - (-earlier).to_std().unwrap_or_default(),
        });
        self.event(bare(told), at, wall);
    }

    fn event(&mut self, told: Told, at: Mono, wall: DateTime<Utc>) {
        if self.trouble.is_some() {
            return;
        }
        let event = EventLine { at_ns: nanoseconds(at), wall, told };
        put(&mut self.events, &Line::Event(event));
    }

    /// A verdict was shown. Only what is new about it is kept.
    pub fn judge(&mut self, verdict: &Verdict, at: Mono, wall: DateTime<Utc>) {
        let now = (verdict.cause.clone(), verdict.standing.word().to_owned());
        let was = self.verdicts.insert(verdict.scope.clone(), now.clone());
        if was.as_ref() != Some(&now) {
            let (cause, standing) = now;
            let told = Told::Verdict { scope: verdict.scope.clone(), cause, standing };
            self.event(told, at, wall);
        }
    }

    /// Alerts were shown. Only what is new about them is kept, if only when they were asked for.
    pub fn alert(&mut self, alerts: &Arc<Alerts>, at: Mono) {
        let known = self.alerts.replace(Arc::clone(alerts));
        let is_same = |known: &Arc<Alerts>| Arc::ptr_eq(known, alerts) || known == alerts;
        if self.trouble.is_some() || known.as_ref().is_some_and(is_same) {
            return;
        }
        let again =
            known.filter(|known| Alerts { at: alerts.at, ..Alerts::clone(known) } == **alerts);
        let line = match (again, alerts.at) {
            (Some(_), Some(asked)) => Line::AlertsAgain(AlertsAgainLine {
                at_ns: nanoseconds(at),
                asked_ns: nanoseconds(asked),
            }),
            _ => Line::Alerts(Box::new(AlertsLine::new(alerts, at))),
        };
        put(&mut self.events, &line);
    }

    /// What ended it early.
    #[must_use]
    pub const fn trouble(&self) -> Option<&RecordingError> {
        self.trouble.as_ref()
    }

    #[cfg(test)]
    pub(super) const fn waiting_bytes(&self) -> usize {
        self.pending.len() + self.events.len()
    }

    /// Ends it, with what happened since the last look.
    ///
    /// # Errors
    /// What ended it early, or that it cannot be made durable.
    pub fn finish(mut self) -> Result<Taken, RecordingError> {
        if let Some((at, _)) = self.newest
            && !self.events.is_empty()
            && self.trouble.is_none()
        {
            let (events, mut frames) = (std::mem::take(&mut self.events), Vec::new());
            self.frame(FrameKind::Events, (at, at), &events, &mut frames);
            self.append(&frames);
        }
        if let Some(trouble) = self.trouble {
            return Err(trouble);
        }
        let span =
            self.newest.zip(self.first).map(|((newest, _), first)| newest.saturating_since(first));
        let taken = Taken {
            path: self.file.path().to_owned(),
            bytes: self.file.bytes(),
            span: span.unwrap_or_default(),
        };
        self.file.close()?;
        Ok(taken)
    }

    /// What waits, as a frame that ends at `at`.
    fn changes(&mut self, kind: FrameKind, at: Mono, frames: &mut Vec<u8>) {
        let mut lines = std::mem::take(&mut self.pending);
        let from = self.pending_from.take().unwrap_or(at).min(at);
        self.frame(kind, (from, at), &lines, frames);
        if self.trouble.is_none() {
            lines.clear();
            self.pending = lines;
        }
    }

    /// Ends it early: nothing is kept that will not be written.
    fn end(&mut self, trouble: RecordingError) {
        self.trouble.get_or_insert(trouble);
        (self.pending, self.events) = (Vec::new(), Vec::new());
        self.shorthand = Shorthand::default();
    }

    fn frame(&mut self, kind: FrameKind, span: (Mono, Mono), lines: &[u8], frames: &mut Vec<u8>) {
        if frame::write(kind, span, lines, frames).is_none() {
            self.end(too_large(self.file.path()));
        }
    }

    fn append(&mut self, frames: &[u8]) {
        if self.trouble.is_none()
            && let Err(error) = self.file.append(frames)
        {
            self.end(error);
        }
    }
}

impl Witness for Recorder {
    fn heard(&mut self, source: usize, news: &News, at: Mono) {
        self.hear(source, news, at);
    }

    fn observed(&mut self, observation: &Arc<Observation>) {
        for source in &observation.sources {
            let answers = source.error.is_none();
            let was = self.answered.insert(source.name.clone(), answers).unwrap_or(true);
            let text = match &source.error {
                Some(error) if was => format!("{} is down: {error}", source.name),
                None if !was => format!("{} answers", source.name),
                _ => continue,
            };
            let told = bare(Told::Notice(text));
            self.event(told, observation.at, observation.wall);
        }
        self.look(&observation.scopes, observation.at, observation.wall);
    }
}

/// The metrics of a source that are counted over a span of their own, and what says that a process
/// began anew. None where the adapter cannot be read: whoever replays says so.
fn counted_long(source: &SourceLine) -> BTreeSet<String> {
    let spans = adapter_of(source).map(|adapter| adapter.spans()).unwrap_or_default();
    if spans.is_empty() { BTreeSet::new() } else { looked_at(spans.into_keys()) }
}

/// Signals without reasons and notes, which say nothing about a distant past.
fn shown<S: Borrow<Snapshot>>(scopes: &[S], at: Mono) -> ShownLine {
    let body = |snapshot: &S| {
        let mut body = SnapshotBody::from(snapshot.borrow());
        body.absent.clear();
        for row in body.signals.values_mut() {
            row.note = None;
        }
        body
    };
    ShownLine { at_ns: nanoseconds(at), scopes: scopes.iter().map(body).collect() }
}

fn bare(told: Told) -> Told {
    match told {
        Told::Notice(text) => Told::Notice(bare_url(&text)),
        other => other,
    }
}

/// Appends a line. All of ours are plain data, which always becomes JSON.
pub(super) fn put(lines: &mut Vec<u8>, line: &Line) {
    let begin = lines.len();
    if serde_json::to_writer(&mut *lines, line).is_err() {
        lines.truncate(begin);
        return;
    }
    lines.push(b'\n');
}

fn too_large(path: &Path) -> RecordingError {
    let limit = format!("{} MiB in one frame", frame::PACKED_BYTES_MAX >> 20);
    RecordingError::Full { path: path.to_owned(), limit }
}
