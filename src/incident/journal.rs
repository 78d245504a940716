//! The journal file: append-only, hash-chained, durable before a flip is sent.
//!
//! Several weirs may write to one file: each append takes the file's lock, reads what others have
//! added, continues the chain, and lets go. An unfinished last line is the trace of a crash and is
//! cut off at the next append, which says so; any other broken line is an error that names it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, Utc};
use etcetera::BaseStrategy;
use thiserror::Error;

use crate::flag::{Conclusion, FlipLog, Intent};

use super::chain::{Entry, Head};
use super::event::Event;

/// Longest line, its end included. The largest event is a flip of every flag, a few kilobytes.
pub const LINE_BYTES_MAX: usize = 256 << 10;

/// Why the journal cannot be read or written.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The system refused.
    #[error("journal {}: cannot {doing}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The chain does not hold.
    #[error(
        "journal {}, line {line}: {why}; keep the file as evidence and start a new one",
        path.display()
    )]
    Broken {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        why: String,
    },
    /// An event that does not fit into a line.
    #[error("journal {}: an entry of {bytes} bytes is longer than {LINE_BYTES_MAX}", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// There is no home directory to put it into.
    #[error("no place for the journal: {why}; set HOME or name a file")]
    NoPlace {
        /// What is missing.
        why: String,
    },
}

/// Where a journal stood: which one, and its last entry then. Written `JOURNAL:SEQ:HASH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Hash of its first entry.
    pub journal: String,
    /// Position of the last entry.
    pub seq: u64,
    /// Hash of the last entry.
    pub hash: String,
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { journal, seq, hash } = self;
        write!(f, "{journal}:{seq}:{hash}")
    }
}

impl Anchor {
    /// Reads one as it is written; `None` when it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let (journal, seq, hash) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
        let (journal, hash) = (journal.to_owned(), hash.to_owned());
        parts.next().is_none().then_some(Self { journal, seq, hash })
    }
}

/// What a journal says to anchors that were kept elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchored {
    /// Anchors of this journal that it holds.
    pub held: usize,
    /// Anchors of this journal that it does not hold.
    pub lost: Vec<Anchor>,
    /// Anchors of other journals: of other people, or of one that was here before this one.
    pub others: usize,
}

/// What was found when a journal was opened or checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// The end of the chain.
    pub head: Head,
    /// Bytes of an unfinished last line, 0 when there is none.
    pub torn_bytes: u64,
    /// Flips that were begun and have no outcome: reconcile them before flipping anything.
    pub open_flips: Vec<Event>,
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    tail: Tail,
}

/// How far the file has been read and found good.
#[derive(Clone, Debug, Default)]
struct Tail {
    bytes: u64,
    head: Head,
    /// Hash of the first entry: whose journal it is.
    first: Option<String>,
}

impl Tail {
    fn take(&mut self, head: Head) {
        if self.first.is_none() {
            self.first = Some(head.hash.clone());
        }
        self.head = head;
    }

    fn anchor(&self) -> Anchor {
        let Head { seq, hash } = self.head.clone();
        Anchor { journal: self.first.clone().unwrap_or_else(|| hash.clone()), seq, hash }
    }
}

impl Journal {
    /// Opens the journal at `path`, making file (mode 0600) and directory where needed, and checks
    /// all of it.
    ///
    /// # Errors
    /// [`JournalError::Broken`] names the first bad line.
    pub fn open(path: &Path) -> Result<(Self, Found), JournalError> {
        if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            let mut builder = std::fs::DirBuilder::new();
            builder.recursive(true).mode(0o700);
            builder.create(directory).map_err(cannot("make its directory", path))?;
        }
        let is_new = !path.exists();
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let file = options.open(path).map_err(cannot("open it", path))?;
        if is_new {
            sync_directory(path).map_err(cannot("make it durable", path))?;
        }
        let mut inner = Inner { file, tail: Tail::default() };
        let locked = Lock::shared(&inner.file).map_err(cannot("lock it", path))?;
        let found = read_on(path, &inner.file, &mut inner.tail, drop)?;
        drop(locked);
        Ok((Self { path: path.to_owned(), inner: Mutex::new(inner) }, found))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The end of the chain as this process knows it. Its hash, kept elsewhere, shows later
    /// whether the tail was cut.
    #[must_use]
    pub fn head(&self) -> Head {
        self.lock().tail.head.clone()
    }

    /// Appends one event; flips and their outcomes are on disk when this returns. Says where the journal
    /// stands with it, for somebody else to keep: that shows later whether the tail was cut.
    ///
    /// # Errors
    /// [`JournalError`]; a line that was written in part is cut off by the next append.
    pub fn append(&self, event: &Event, at: DateTime<Utc>) -> Result<Anchor, JournalError> {
        let nobody = |_: &Path| Ok(None::<std::convert::Infallible>);
        match self.append_unless(event, at, nobody)? {
            Ok(anchor) => Ok(anchor),
            Err(never) => match never {},
        }
    }

    /// The same, unless `why_not` finds a reason in the file. Nobody else writes in between.
    ///
    /// # Errors
    /// As [`Self::append`], and those of `why_not`.
    pub(super) fn append_unless<T>(
        &self,
        event: &Event,
        at: DateTime<Utc>,
        why_not: impl FnOnce(&Path) -> Result<Option<T>, JournalError>,
    ) -> Result<Result<Anchor, T>, JournalError> {
        let mut inner = self.lock();
        let Inner { file, tail } = &mut *inner;
        let locked = Lock::exclusive(file).map_err(cannot("lock it", &self.path))?;
        if let Some(reason) = why_not(&self.path)? {
            return Ok(Err(reason));
        }
        let torn_bytes = read_on(&self.path, file, tail, drop)?.torn_bytes;
        if torn_bytes > 0 {
            file.set_len(tail.bytes).map_err(cannot("cut its unfinished line", &self.path))?;
            self.write(file, tail, &Event::Torn { bytes: torn_bytes }, at)?;
        }
        self.write(file, tail, event, at)?;
        drop(locked);
        Ok(Ok(tail.anchor()))
    }

    fn write(
        &self,
        mut file: &File,
        tail: &mut Tail,
        event: &Event,
        at: DateTime<Utc>,
    ) -> Result<(), JournalError> {
        let mut head = tail.head.clone();
        let line =
            head.write(event, at).map_err(|error| cannot("write it", &self.path)(error.into()))?
                + "\n";
        if line.len() > LINE_BYTES_MAX {
            return Err(JournalError::TooLong { path: self.path.clone(), bytes: line.len() });
        }
        file.write_all(line.as_bytes()).map_err(cannot("write it", &self.path))?;
        if event.is_durable() {
            file.sync_data().map_err(cannot("make it durable", &self.path))?;
        }
        tail.bytes += line.len() as u64;
        tail.take(head);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        // The tail moves on only after a line was written in full, so it is right even if a
        // writer has panicked.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FlipLog for Journal {
    fn intent(&self, intent: &Intent) -> Result<Option<String>, String> {
        let anchor = self.append(&intent.into(), Utc::now());
        anchor.map(|anchor| Some(anchor.to_string())).map_err(|error| error.to_string())
    }

    fn conclusion(&self, conclusion: &Conclusion) -> Result<(), String> {
        self.append(&conclusion.into(), Utc::now()).map(drop).map_err(|error| error.to_string())
    }
}

/// Checks a journal from end to end without changing it.
///
/// # Errors
/// [`JournalError::Broken`] names the first bad line.
pub fn verify(path: &Path) -> Result<Found, JournalError> {
    read(path, drop)
}

/// Checks a journal as [`verify`] does, and shows `each` entry.
///
/// # Errors
/// As [`verify`]; what stands before the first bad line was shown.
pub fn read(path: &Path, each: impl FnMut(Entry)) -> Result<Found, JournalError> {
    let file = File::open(path).map_err(cannot("open it", path))?;
    read_on(path, &file, &mut Tail::default(), each)
}

/// Reads what was added to a journal, look by look.
#[derive(Debug)]
pub(super) struct Reader {
    path: PathBuf,
    tail: Tail,
}

impl Reader {
    /// From the first entry on.
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), tail: Tail::default() }
    }

    /// Shows `each` entry that was added, and says whether there was one. Where the file has not grown, it
    /// is not opened. A file that is not there yet has nothing in it.
    ///
    /// # Errors
    /// As [`verify`]; what was read before stays read.
    pub(super) fn read_on(&mut self, mut each: impl FnMut(Entry)) -> Result<bool, JournalError> {
        let path = &self.path;
        let len = match std::fs::metadata(path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.tail.bytes == 0 => 0,
            Err(error) => return Err(cannot("read it", path)(error)),
        };
        if len == self.tail.bytes {
            return Ok(false);
        }
        let before = self.tail.head.seq;
        let file = File::open(path).map_err(cannot("open it", path))?;
        walk(path, &file, &mut self.tail, |entry, _| each(entry))?;
        Ok(self.tail.head.seq > before)
    }
}

/// Which of these anchors, in whatever order, are of this journal, and which of those it does not hold:
/// then lines were cut or forged although the chain is whole.
///
/// # Errors
/// As [`verify`].
pub fn check_anchors(path: &Path, anchors: &[Anchor]) -> Result<Anchored, JournalError> {
    let file = File::open(path).map_err(cannot("open it", path))?;
    let mut tail = Tail::default();
    // By place and hash: a journal that was cut and written on has other entries at the same places.
    let mut open: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
    for anchor in anchors {
        open.entry(anchor.seq).or_default().insert(&anchor.hash);
    }
    walk(path, &file, &mut tail, |_, head| {
        open.get_mut(&head.seq).map(|hashes| hashes.remove(head.hash.as_str()));
    })?;
    let is_open = |anchor: &&Anchor| {
        open.get(&anchor.seq).is_some_and(|hashes| hashes.contains(anchor.hash.as_str()))
    };
    let (own, others): (Vec<&Anchor>, Vec<&Anchor>) =
        anchors.iter().partition(|anchor| Some(&anchor.journal) == tail.first.as_ref());
    let (lost, held): (Vec<&Anchor>, Vec<&Anchor>) = own.into_iter().partition(is_open);
    let lost = lost.into_iter().cloned().collect();
    Ok(Anchored { held: held.len(), lost, others: others.len() })
}

/// Whether some entry of the journal has this hash: an anchor that was kept elsewhere. When it is
/// missing although the chain holds, the tail was cut or the whole file was forged.
///
/// # Errors
/// As [`verify`].
pub fn contains_hash(path: &Path, hash: &str) -> Result<bool, JournalError> {
    let file = File::open(path).map_err(cannot("open it", path))?;
    let mut found = false;
    walk(path, &file, &mut Tail::default(), |_, head| found |= head.hash == hash)?;
    Ok(found)
}

/// `$XDG_STATE_HOME/weir/journal.jsonl`, usually `~/.local/state/weir/journal.jsonl`.
///
/// # Errors
/// [`JournalError::NoPlace`] without a home directory.
pub fn default_path() -> Result<PathBuf, JournalError> {
    let dirs = etcetera::base_strategy::Xdg::new()
        .map_err(|error| JournalError::NoPlace { why: error.to_string() })?;
    let state = dirs.state_dir().unwrap_or_else(|| dirs.home_dir().join(".local/state"));
    Ok(state.join("weir").join("journal.jsonl"))
}

/// Reads what lies behind `tail`, and which flips in it are still open.
fn read_on(
    path: &Path,
    file: &File,
    tail: &mut Tail,
    mut each: impl FnMut(Entry),
) -> Result<Found, JournalError> {
    let mut open = BTreeMap::new();
    let torn_bytes = walk(path, file, tail, |entry, _| {
        match &entry.event {
            Event::Flip { request_id, .. } => {
                open.insert((request_id.clone(), entry.seq), entry.event.clone());
            }
            Event::Outcome { request_id, end, .. } if end != "unsettled" => {
                open.retain(|(flip, _), _| flip != request_id);
            }
            _ => {}
        }
        each(entry);
    })?;
    Ok(Found { head: tail.head.clone(), torn_bytes, open_flips: open.into_values().collect() })
}

/// Checks the lines behind `tail` and moves it on. Returns the bytes of an unfinished last line.
fn walk(
    path: &Path,
    file: &File,
    tail: &mut Tail,
    mut each: impl FnMut(Entry, &Head),
) -> Result<u64, JournalError> {
    let broken = |line: u64, why: &str| JournalError::Broken {
        path: path.to_owned(),
        line,
        why: why.to_owned(),
    };
    let len = file.metadata().map_err(cannot("read it", path))?.len();
    if len < tail.bytes {
        return Err(broken(tail.head.seq, "the file was cut after this weir has read it"));
    }
    let mut reader = BufReader::new(file);
    reader.seek(SeekFrom::Start(tail.bytes)).map_err(cannot("read it", path))?;
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = LINE_BYTES_MAX as u64;
        let read = reader.by_ref().take(limit).read_until(b'\n', &mut line);
        let bytes = read.map_err(cannot("read it", path))? as u64;
        // One entry a line from the first on, so the line's number is the entry's.
        let number = tail.head.seq + 1;
        let Some(text) = line.strip_suffix(b"\n") else {
            return if bytes == limit {
                Err(broken(number, "the line is longer than any that weir writes"))
            } else {
                Ok(bytes)
            };
        };
        let text = std::str::from_utf8(text).map_err(|_| broken(number, "it is not UTF-8"))?;
        let mut head = tail.head.clone();
        let entry = head.read(text).map_err(|why| broken(number, &why))?;
        tail.bytes += bytes;
        tail.take(head);
        each(entry, &tail.head);
    }
}

/// The file's lock, let go at the end of the scope, whichever way it is left.
pub(super) struct Lock(File);

impl Lock {
    pub(super) fn exclusive(file: &File) -> io::Result<Self> {
        let file = file.try_clone()?;
        file.lock()?;
        Ok(Self(file))
    }

    fn shared(file: &File) -> io::Result<Self> {
        let file = file.try_clone()?;
        file.lock_shared()?;
        Ok(Self(file))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file would release it as well; there is nobody to tell.
        let _ = self.0.unlock();
    }
}

/// A new name in a directory is durable only once the directory is.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn cannot(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    move |source| JournalError::Io { path: path.to_owned(), doing, source }
}

#[cfg(test)]
mod tests;
