//! Opens a recording: finds its frames by their heads, and reads the lines of those that are asked for.
//!
//! Never panics on any file, holds one frame in memory at a time, and says where what is wrong. A file
//! that ends inside a frame is one whose writer was killed: what is before is good.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, Utc};
use memchr::{memchr, memchr_iter};

use crate::ingest::SERIES_MAX;
use crate::signal::Mono;

use super::error::RecordingError;
use super::frame::{BadHead, FrameKind, HEAD_BYTES, Head, from_nanoseconds};
use super::line::{AlertsLine, EventLine, Header, Line, Told};
use super::{BYTES_MAX, SOURCES_MAX};

/// Frames of one recording: a day of looks, with what stands beside them.
const FRAMES_MAX: usize = 1 << 19;
/// Events and alerts of one recording that are kept in memory.
const EVENTS_MAX: usize = 20_000;
/// Looks of an Alertmanager without anything new that are kept in memory: a day of one each second.
const ASKED_MAX: usize = 86_400;
/// Parts, told by their commas, of a line that is no column: what a query API answers about every
/// series that may be kept.
const PARTS_MAX: usize = 2 * SERIES_MAX;
/// How the lines begin whose columns are bounded where they are read.
const COLUMNS: [&[u8]; 3] = [b"{\"series\":", b"{\"scrape\":", b"{\"marks\":"];

/// One frame, by its place in the file.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Where its head begins.
    pub offset: u64,
    /// Its head.
    pub head: Head,
}

/// Why the end of a file is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It ends inside a frame: the writer was killed.
    Torn {
        /// Bytes that are not read.
        bytes: u64,
    },
    /// Some bytes are not those that were written.
    Changed {
        /// Where the bad frame begins.
        offset: u64,
        /// What is wrong.
        why: String,
    },
}

/// Something that happened, with its moment.
#[derive(Clone, Debug, PartialEq)]
pub struct EventAt {
    /// When.
    pub at: Mono,
    /// When, on the calendar.
    pub wall: DateTime<Utc>,
    /// What.
    pub told: Told,
}

/// What a recording is, in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    /// Its length.
    pub bytes: u64,
    /// The first moment that is shown.
    pub from: Mono,
    /// The last one.
    pub to: Mono,
    /// Looks in between.
    pub looks: usize,
    /// Frames.
    pub frames: usize,
    /// What happened, in order.
    pub events: Vec<EventAt>,
    /// Why its end is not read.
    pub damage: Option<Damage>,
}

/// An open recording.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    file: File,
    bytes: u64,
    header: Header,
    entries: Vec<Entry>,
    damage: Option<Damage>,
}

impl Reader {
    /// Opens the recording at `path`. Frames that follow a bad one are not read: see
    /// [`Self::damage`], and [`Self::whole`] where that is an error.
    ///
    /// # Errors
    /// [`RecordingError::Foreign`] when it is something else, in words that say what.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let io = |doing| move |source| RecordingError::Io { path: path.to_owned(), doing, source };
        let file = File::open(path).map_err(io("open it"))?;
        let metadata = file.metadata().map_err(io("read it"))?;
        if !metadata.is_file() {
            return Err(foreign(path, "it is no file"));
        }
        let bytes = metadata.len();
        let (entries, damage) = scan(path, &file, bytes).map_err(|stop| match stop {
            Stop::Io(source) => io("read it")(source),
            Stop::Error(error) => error,
        })?;
        let mut reader =
            Self { path: path.to_owned(), file, bytes, header: Header::default(), entries, damage };
        let first = reader.entries.first().map(|entry| entry.head.kind);
        let is_first = first == Some(FrameKind::Header);
        let line = if is_first { reader.lines(0)?.next().transpose()? } else { None };
        let Some(Line::Recording(header)) = line else {
            return Err(foreign(path, "it has no header"));
        };
        if header.sources.len() > SOURCES_MAX {
            return Err(foreign(path, "its header has more sources than any"));
        }
        reader.header = *header;
        Ok(reader)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The first line.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Why its end is not read.
    #[must_use]
    pub const fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// Nothing, where no byte was changed. An end inside a frame is no fault.
    ///
    /// # Errors
    /// [`RecordingError::Damaged`] where one was.
    pub fn whole(&self) -> Result<(), RecordingError> {
        match &self.damage {
            Some(Damage::Changed { offset, why }) => Err(self.damaged(*offset, why)),
            Some(Damage::Torn { .. }) | None => Ok(()),
        }
    }

    /// The frames, the header's first.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// From the first moment that is shown to the last.
    ///
    /// # Errors
    /// [`RecordingError::Empty`] when it ends before.
    pub fn span(&self) -> Result<(Mono, Mono), RecordingError> {
        let from = from_nanoseconds(self.header.from_ns);
        let mut looks = self.looks().filter(|at| *at >= from);
        let empty = || RecordingError::Empty { path: self.path.clone() };
        let first = looks.next().ok_or_else(empty)?;
        Ok((first, looks.last().unwrap_or(first)))
    }

    /// How a person names a moment: the time since the recording's zero.
    #[must_use]
    pub fn since_zero(&self, at: Mono) -> Duration {
        at.saturating_since(from_nanoseconds(self.header.zero_ns))
    }

    /// The moment that a person names so.
    #[must_use]
    pub fn moment(&self, since_zero: Duration) -> Mono {
        from_nanoseconds(self.header.zero_ns) + since_zero
    }

    pub(super) fn outside(&self, at: Mono) -> RecordingError {
        let (from, to) = self.span().unwrap_or_default();
        RecordingError::Outside {
            path: self.path.clone(),
            at: self.since_zero(at),
            from: self.since_zero(from),
            to: self.since_zero(to),
        }
    }

    /// The moments of the looks, those that lead up to the first that is shown included.
    pub fn looks(&self) -> impl Iterator<Item = Mono> {
        let more = self.entries.iter().filter(|entry| entry.head.kind == FrameKind::More);
        more.map(|entry| entry.head.to)
    }

    /// The lines of the frame at this place in [`Self::entries`], one after the other.
    ///
    /// # Errors
    /// [`RecordingError::Damaged`] when they are not what was written.
    pub(super) fn lines(
        &self,
        place: usize,
    ) -> Result<impl Iterator<Item = Result<Line, RecordingError>> + '_, RecordingError> {
        let entry = self.entries[place];
        let plain = self.plain(&entry)?;
        let (mut begin, mut number) = (0, 0);
        Ok(std::iter::from_fn(move || {
            loop {
                let rest = plain.get(begin..).filter(|rest| !rest.is_empty())?;
                let text = &rest[..memchr(b'\n', rest).unwrap_or(rest.len())];
                begin += text.len() + 1;
                number += 1;
                if !text.is_empty() {
                    return Some(line_of(text).map_err(|why| {
                        self.damaged(entry.offset, &format!("line {number} of the frame: {why}"))
                    }));
                }
            }
        }))
    }

    fn plain(&self, entry: &Entry) -> Result<Vec<u8>, RecordingError> {
        let packed = self.bytes_of(entry.offset + HEAD_BYTES as u64, entry.head.packed_bytes)?;
        entry.head.unpack(&packed).map_err(|why| self.damaged(entry.offset, why))
    }

    /// Nothing, where a frame is what was written.
    pub(super) fn check(&self, entry: &Entry) -> Result<(), RecordingError> {
        self.plain(entry).map(drop)
    }

    /// A frame as it stands in the file, its head included.
    pub(super) fn raw(&self, entry: &Entry) -> Result<Vec<u8>, RecordingError> {
        self.bytes_of(entry.offset, HEAD_BYTES + entry.head.packed_bytes)
    }

    fn bytes_of(&self, offset: u64, length: usize) -> Result<Vec<u8>, RecordingError> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset).map_err(|source| RecordingError::Io {
            path: self.path.clone(),
            doing: "read it",
            source,
        })?;
        Ok(bytes)
    }

    pub(super) fn damaged(&self, offset: u64, why: &str) -> RecordingError {
        let before = self.entries.iter().take_while(|entry| entry.offset < offset);
        let looks = before.filter(|entry| entry.head.kind == FrameKind::More);
        let whole_until = looks.last().map_or(Mono::START, |entry| entry.head.to);
        RecordingError::Damaged {
            path: self.path.clone(),
            offset,
            why: why.to_owned(),
            whole_until: self.since_zero(whole_until),
        }
    }

    /// What happened, and alerts as they were shown.
    ///
    /// # Errors
    /// [`RecordingError::Damaged`] when a frame of them is bad.
    pub(super) fn told(&self) -> Result<Happened, RecordingError> {
        let mut happened = Happened::default();
        let frames = self.entries.iter().enumerate();
        'frames: for (place, _) in frames.filter(|(_, entry)| entry.head.kind == FrameKind::Events)
        {
            for line in self.lines(place)? {
                if !happened.take(line?) {
                    break 'frames;
                }
            }
        }
        happened.events.sort_by_key(|event| event.at);
        Ok(happened)
    }

    /// What it is, in numbers, after every frame was read.
    ///
    /// # Errors
    /// [`RecordingError::Empty`] without a look.
    pub fn info(&self) -> Result<Info, RecordingError> {
        let (from, to) = self.span()?;
        let mut damage = self.damage.clone();
        for entry in &self.entries {
            if let Err(RecordingError::Damaged { offset, why, .. }) = self.plain(entry) {
                damage = Some(Damage::Changed { offset, why });
                break;
            }
        }
        Ok(Info {
            bytes: self.bytes,
            from,
            to,
            looks: self.looks().filter(|at| *at >= from).count(),
            frames: self.entries.len(),
            events: self.told().map(|happened| happened.events).unwrap_or_default(),
            damage,
        })
    }
}

/// What happened, and alerts as they were shown, in order of the file.
#[derive(Debug, Default)]
pub(super) struct Happened {
    /// What happened.
    pub events: Vec<EventAt>,
    /// Alerts and silences, when they were new.
    pub alerts: Vec<AlertsLine>,
    /// When they were shown without anything new, and asked for.
    pub asked: Vec<(Mono, Mono)>,
}

impl Happened {
    /// Takes a line, and says whether there is room for more.
    fn take(&mut self, line: Line) -> bool {
        match line {
            Line::Event(EventLine { at_ns, wall, told }) => {
                self.events.push(EventAt { at: from_nanoseconds(at_ns), wall, told });
            }
            Line::Alerts(line) => self.alerts.push(*line),
            Line::AlertsAgain(line) if self.asked.len() < ASKED_MAX => {
                let (shown, asked) =
                    (from_nanoseconds(line.at_ns), from_nanoseconds(line.asked_ns));
                self.asked.push((shown, asked));
            }
            _ => {}
        }
        self.events.len() + self.alerts.len() < EVENTS_MAX
    }
}

/// Reads a line. What is built of one is not much larger than the longest that is written.
fn line_of(text: &[u8]) -> Result<Line, String> {
    let is_of_columns = COLUMNS.iter().any(|begin| text.starts_with(begin));
    if !is_of_columns && memchr_iter(b',', text).nth(PARTS_MAX).is_some() {
        return Err(format!("more than {PARTS_MAX} parts"));
    }
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

enum Stop {
    Io(std::io::Error),
    Error(RecordingError),
}

/// Hops from head to head.
fn scan(path: &Path, file: &File, bytes: u64) -> Result<(Vec<Entry>, Option<Damage>), Stop> {
    let mut entries = Vec::new();
    let mut offset = 0;
    while offset < bytes {
        let left = bytes - offset;
        let mut head = [0; HEAD_BYTES];
        let known = usize::try_from(left).map_or(HEAD_BYTES, |left| left.min(HEAD_BYTES));
        file.read_exact_at(&mut head[..known], offset).map_err(Stop::Io)?;
        if known < HEAD_BYTES {
            if entries.is_empty() {
                return Err(Stop::Error(foreign(path, beginning(&head[..known]))));
            }
            return Ok((entries, Some(Damage::Torn { bytes: left })));
        }
        let changed = |why: &str| Some(Damage::Changed { offset, why: why.to_owned() });
        match Head::read(&head) {
            Ok(one) => {
                let length = (HEAD_BYTES + one.packed_bytes) as u64;
                if length > left {
                    return Ok((entries, Some(Damage::Torn { bytes: left })));
                }
                if entries.len() == FRAMES_MAX || offset > 2 * BYTES_MAX {
                    return Ok((entries, changed("there are more frames than in any recording")));
                }
                entries.push(Entry { offset, head: one });
                offset += length;
            }
            Err(BadHead::Newer(version)) => {
                return Err(Stop::Error(RecordingError::Newer { path: path.to_owned(), version }));
            }
            Err(BadHead::Damaged(why)) => {
                if entries.is_empty() {
                    return Err(Stop::Error(foreign(path, why)));
                }
                return Ok((entries, changed(why)));
            }
            Err(BadHead::Foreign) if entries.is_empty() => {
                return Err(Stop::Error(foreign(path, beginning(&head))));
            }
            Err(BadHead::Foreign) => return Ok((entries, changed("there is no frame here"))),
        }
    }
    if entries.is_empty() {
        return Err(Stop::Error(foreign(path, "it is empty")));
    }
    Ok((entries, None))
}

/// What a file that begins like this is.
fn beginning(bytes: &[u8]) -> &'static str {
    match bytes {
        [0x1f, 0x8b, ..] => "it is compressed with gzip",
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            "it is compressed with zstd, but not by weir"
        }
        [b'{' | b'[', ..] => "it is JSON; a recording is compressed",
        [b'P', b'K', ..] => "it is a zip archive",
        _ if bytes.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) => {
            "it is text"
        }
        _ => "it begins with other bytes",
    }
}

fn foreign(path: &Path, what: &str) -> RecordingError {
    RecordingError::Foreign { path: path.to_owned(), what: what.to_owned() }
}
