//! The store that is a file in [flagd's format](https://flagd.dev/reference/flag-definitions/), for any
//! service that reads its flags with `OpenFeature`.
//!
//! The file is replaced as a whole: written beside it, made durable, renamed. A lock keeps other weirs
//! out meanwhile, and nobody else: an editor, Git or Kubernetes may write at any time. Hence the
//! revision follows from what the flags contain. A missing file is never made, for that would hide a
//! wrong path. `.NAME.weir-lock` stays beside the file; Git should ignore it.

mod document;
mod object;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{TimeDelta, Utc};
use futures_util::future::BoxFuture;

use crate::admission::{Settings, flag};
use crate::flag::flip::on_disk;
use crate::flag::store::{Author, Capabilities, CompareAndSet, FlagEvent, Store, StoreError};
use crate::flag::types::{FlagTable, Outcome, Plan};

use document::{Document, Entry};

use super::http::TIMEOUT;

/// What weir's flags are called in the file, before their key.
pub const FLAGD_PREFIX: &str = "weir.";

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// From one try for the lock to the next.
const LOCK_EVERY: Duration = Duration::from_millis(10);

/// Flags in one local file of flagd's format.
#[derive(Clone, Debug)]
pub struct FlagdFile {
    name: String,
    at: Arc<Place>,
}

#[derive(Debug)]
struct Place {
    path: PathBuf,
    prefix: String,
    base: Settings,
}

impl FlagdFile {
    /// The flags called `prefix` and their key, usually [`FLAGD_PREFIX`], in the file at `path`, over
    /// the values of `base`. Reads nothing yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, prefix: &str, base: Settings) -> Self {
        let path = path.into();
        let name = format!("flagd file {}", path.display());
        Self { name, at: Arc::new(Place { path, prefix: prefix.to_owned(), base }) }
    }

    /// Does `work` where waiting for the disk holds nothing up.
    async fn away<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Place) -> T + Send + 'static,
    ) -> Result<T, String> {
        let at = Arc::clone(&self.at);
        on_disk(move || Ok(work(&at))).await
    }

    fn error(&self, why: String) -> StoreError {
        StoreError::File { path: self.at.path.display().to_string(), why }
    }
}

impl Store for FlagdFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            compare_and_set: CompareAndSet::Advisory,
            all_or_none: true,
            timer: false,
            restores: true,
            audit: false,
            effective: false,
            comment: true,
        }
    }

    fn list(&self) -> BoxFuture<'_, Result<FlagTable, StoreError>> {
        Box::pin(async move {
            let read = self.away(|at| at.read(&at.path)?.table(&at.base)).await;
            read.and_then(|table| table).map_err(|why| self.error(why))
        })
    }

    fn apply<'a>(&'a self, plan: &'a Plan, author: &'a Author) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let (plan, author) = (plan.clone(), author.clone());
            let changed = self.away(move |at| at.change(&plan, &author)).await;
            match changed {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(why)) => Outcome::Refused { why: self.error(why).to_string() },
                Err(why) => Outcome::Unknown { why },
            }
        })
    }

    /// None: the file tells the last change of each flag, and what was before is in Git, if anywhere.
    fn events(&self, _since: u64) -> BoxFuture<'_, Result<Vec<FlagEvent>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

impl Place {
    fn read(&self, path: &Path) -> Result<Document, String> {
        let mut text = String::new();
        let read = File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
        match read {
            Ok(length) if length as u64 > FILE_BYTES_MAX => {
                Err(format!("is larger than {FILE_BYTES_MAX} bytes; is it the right one?"))
            }
            Ok(_) => Document::parse(&text, &self.prefix),
            Err(error) => Err(cannot_be_read(&error)),
        }
    }

    /// Carries the plan out under the lock. `Err` says why nothing was stored.
    fn change(&self, plan: &Plan, author: &Author) -> Result<Outcome, String> {
        // A ConfigMap mounts a link: the file is replaced where it really lies.
        let target = self.path.canonicalize().map_err(|error| cannot_be_read(&error))?;
        let _lock = lock(&target)?;
        if self.path.canonicalize().ok().as_ref() != Some(&target) {
            return Err("was exchanged in this moment; look again".to_owned());
        }
        let is_read_only = target.metadata().is_ok_and(|found| found.permissions().readonly());
        if is_read_only {
            return Err(format!("is read-only; {ELSEWHERE}"));
        }
        let mut document = self.read(&target)?;
        let current = document.table(&self.base)?;
        if document.is_of_request(&plan.request_id) {
            return Ok(Outcome::applied(current.revision));
        }
        let as_planned = plan.changes.iter().all(|change| {
            current.get(&change.key).is_some_and(|flag| *flag.stored() == change.from)
        });
        if current.revision != plan.revision || !as_planned {
            return Ok(Outcome::Conflict { current });
        }
        self.put(&mut document, plan, author)?;
        let revision = document.revision();
        match replace(&target, &document.render()?) {
            Ok(()) => Ok(Outcome::applied(revision)),
            Err(Unwritten::Nothing(error)) => {
                Err(format!("cannot be written: {error}; {ELSEWHERE}"))
            }
            Err(Unwritten::NotDurable(error)) => Ok(Outcome::Unknown {
                why: format!("it was replaced, and may not outlive a power cut: {error}"),
            }),
        }
    }

    fn put(&self, document: &mut Document, plan: &Plan, author: &Author) -> Result<(), String> {
        let now = Utc::now();
        let span = plan.ttl_s.and_then(|ttl_s| TimeDelta::try_seconds(i64::try_from(ttl_s).ok()?));
        let entry = Entry {
            by: author.actor.clone(),
            at: now,
            reason: plan.reason.clone(),
            incident: author.incident.clone(),
            expires: span.and_then(|span| now.checked_add_signed(span)),
            number: document.next_number(),
            request_id: plan.request_id.clone(),
        };
        for change in &plan.changes {
            let fits = || {
                let def = flag(&change.key)?;
                Ok((def, def.check(change.to.clone())?, self.base.get(def.key)?))
            };
            let (def, to, base) = fits()
                .map_err(|error: crate::admission::FlagError| format!("is not changed: {error}"))?;
            let to = (!change.drops_override).then_some(&to);
            document.change(def, &base, to, &entry)?;
        }
        document.sign(&entry)
    }
}

const ELSEWHERE: &str = "if it comes from Git or a ConfigMap, change it there";

fn cannot_be_read(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "does not exist; correct the path, or put {\"flags\": {}} there".to_owned()
        }
        io::ErrorKind::InvalidData => "is not text in UTF-8; is it the right one?".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}

/// A hidden file beside `target`.
fn beside(target: &Path, ending: &str) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.{ending}"))
}

/// Keeps other weirs out until the file is dropped. The lock is a file of its own, for the target
/// itself is replaced.
fn lock(target: &Path) -> Result<File, String> {
    let cannot = |error: io::Error| format!("cannot be locked: {error}; {ELSEWHERE}");
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    let lock = options.open(beside(target, "weir-lock")).map_err(cannot)?;
    let begun = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if begun.elapsed() < TIMEOUT => {
                std::thread::sleep(LOCK_EVERY);
            }
            Err(TryLockError::WouldBlock) => {
                return Err("is being changed by another weir; look again".to_owned());
            }
            Err(TryLockError::Error(error)) => return Err(cannot(error)),
        }
    }
}

/// Why a file was not replaced for good.
enum Unwritten {
    /// It is as before.
    Nothing(io::Error),
    /// It is replaced, and the folder could not be made durable.
    NotDurable(io::Error),
}

/// Replaces `target` as a whole: readers see the old text or the new.
fn replace(target: &Path, text: &str) -> Result<(), Unwritten> {
    let new = beside(target, "weir-new");
    let write = || {
        // What a crash has left behind; the lock is held.
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().create_new(true).write(true).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.set_permissions(target.metadata()?.permissions())?;
        file.sync_all()?;
        std::fs::rename(&new, target)
    };
    if let Err(error) = write() {
        let _ = std::fs::remove_file(&new);
        return Err(Unwritten::Nothing(error));
    }
    let folder = target.parent().unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(Unwritten::NotDurable)
}
