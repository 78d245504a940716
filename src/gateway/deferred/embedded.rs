//! The embedded store: an `SQLite` file of one instance, on a thread of its own.
//!
//! The file is in WAL mode with `synchronous=FULL`: what was answered with 202 is on disk, also after a
//! loss of power. One `fsync` serves all that came while the last one ran. An instance locks the file's
//! neighbour `.lock`; operators may read the database while it runs.

mod sql;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use futures_util::FutureExt as _;
use rusqlite::{Connection, ErrorCode};
use tokio::sync::{mpsc, oneshot};

use super::item::{Counts, DeadLetter, End, Item, ItemRef, NewItem, Print, Put, Seen, UnixMs};
use super::store::{Exchange, Store, StoreError};

/// Exchanges that wait for the thread; beyond that callers wait to get in.
const WAITING_MAX: usize = 1_024;
/// Exchanges that one transaction takes at most.
const TOGETHER_MAX: usize = 256;
/// The longest that an exchange may take: a disk that hangs must not keep callers for ever.
const EXCHANGE_MAX: Duration = Duration::from_secs(10);
/// The longest that somebody else's lock on the file is waited for.
const BUSY_MAX: Duration = Duration::from_secs(5);

/// Tells whoever waits; the argument is why the transaction as a whole failed, if it did.
type Tell = Box<dyn FnOnce(Option<&StoreError>) + Send>;
/// One exchange: does its part, says whether it could, and tells later, when that is on disk.
type Job = Box<dyn FnOnce(&Connection) -> (bool, Tell) + Send>;

/// The store in a file.
pub struct EmbeddedStore {
    jobs: mpsc::Sender<Job>,
}

impl EmbeddedStore {
    /// Opens or makes the file, of at most `bytes_max` bytes. What was in hand when its instance went
    /// away waits again.
    ///
    /// # Errors
    /// [`StoreError::Open`] where it cannot be, or where another instance has it.
    pub fn open(path: &Path, bytes_max: u64) -> Result<Self, StoreError> {
        let open = |why: String| StoreError::Open { place: path.display().to_string(), why };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| open(error.to_string()))?;
        }
        own(path).map_err(|error| open(error.to_string()))?;
        let lock = File::create(path.with_added_extension("lock"))
            .map_err(|error| open(error.to_string()))?;
        lock.try_lock().map_err(|_| {
            open("another instance has it; give every instance a file, or use redis".to_owned())
        })?;
        let connection = connect(path, bytes_max).map_err(|error| open(error.to_string()))?;
        let (jobs, waiting) = mpsc::channel(WAITING_MAX);
        std::thread::Builder::new()
            .name("weir-deferred".to_owned())
            .spawn(move || {
                work(&connection, waiting);
                drop(lock);
            })
            .map_err(|error| open(error.to_string()))?;
        Ok(Self { jobs })
    }

    fn exchange<T: Send + 'static>(
        &self,
        part: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Exchange<'_, T> {
        let exchange = async move {
            let (tell, told) = oneshot::channel();
            let job: Job = Box::new(move |connection| {
                let done = part(connection).map_err(|error| read(&error));
                let is_done = done.is_ok();
                let tell: Tell = Box::new(move |failed| {
                    let _ = tell.send(failed.map_or(done, |error| Err(error.clone())));
                });
                (is_done, tell)
            });
            let gone = || StoreError::Down("the exchange was cut off".to_owned());
            let exchange = async {
                self.jobs.send(job).await.map_err(|_| gone())?;
                told.await.map_err(|_| gone())?
            };
            let late = |_| {
                StoreError::Down(format!("no answer of the disk in {} s", EXCHANGE_MAX.as_secs()))
            };
            tokio::time::timeout(EXCHANGE_MAX, exchange).await.map_err(late)?
        };
        exchange.boxed()
    }
}

/// Makes the file for its user alone, before `SQLite` makes it for everybody: it holds what was asked.
fn own(path: &Path) -> std::io::Result<()> {
    let mut options = File::options();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

fn connect(path: &Path, bytes_max: u64) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_MAX)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let page = u64::try_from(page).unwrap_or(1).max(1);
    // SQLite counts pages in 32 bits.
    let pages = u32::try_from(bytes_max / page).unwrap_or(u32::MAX - 1);
    connection
        .pragma_update_and_check(None, "max_page_count", pages, |row| row.get::<_, i64>(0))?;
    connection.execute_batch(sql::SCHEMA)?;
    connection.execute_batch(sql::RECOVER)?;
    Ok(connection)
}

/// Does what comes, all that waits in one transaction, until nobody can ask any more.
fn work(connection: &Connection, mut waiting: mpsc::Receiver<Job>) {
    while let Some(first) = waiting.blocking_recv() {
        let mut jobs = vec![first];
        while jobs.len() < TOGETHER_MAX
            && let Ok(next) = waiting.try_recv()
        {
            jobs.push(next);
        }
        transact(connection, jobs);
    }
}

/// Parts that fail leave no trace; if the whole fails everybody is told that nothing was stored.
fn transact(connection: &Connection, jobs: Vec<Job>) {
    let mut tells: Vec<Tell> = Vec::with_capacity(jobs.len());
    let run = || -> rusqlite::Result<()> {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for job in jobs {
            connection.execute_batch("SAVEPOINT part")?;
            let (is_done, tell) = job(connection);
            tells.push(tell);
            // A full disk can undo the whole transaction by itself: then nobody's part is there.
            if connection.is_autocommit() {
                return Err(rusqlite::Error::SqliteFailure(
                    rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL),
                    None,
                ));
            }
            if !is_done {
                connection.execute_batch("ROLLBACK TO part")?;
            }
            connection.execute_batch("RELEASE part")?;
        }
        connection.execute_batch("COMMIT")
    };
    let failed = run().err().map(|error| read(&error));
    if failed.is_some() && !connection.is_autocommit() {
        let _ = connection.execute_batch("ROLLBACK");
    }
    // Jobs that were not begun are dropped with their channels, which says as much.
    for tell in tells {
        tell(failed.as_ref());
    }
}

fn read(error: &rusqlite::Error) -> StoreError {
    let words = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full(words),
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::DatabaseBusy
            | ErrorCode::CannotOpen
            | ErrorCode::ReadOnly,
        ) => StoreError::Down(words),
        _ => StoreError::Refused(words),
    }
}

impl Store for EmbeddedStore {
    fn put(&self, item: NewItem) -> Exchange<'_, Put> {
        self.exchange(move |connection| sql::put(connection, &item))
    }

    fn look(&self, owner: Print, ticket: String) -> Exchange<'_, Option<Seen>> {
        self.exchange(move |connection| sql::look(connection, &owner, &ticket))
    }

    fn claim(&self, scope: String, companions: usize, now: UnixMs) -> Exchange<'_, Vec<Item>> {
        self.exchange(move |connection| sql::claim(connection, &scope, companions, now))
    }

    fn keep(&self, _scope: String, _items: Vec<ItemRef>) -> Exchange<'_, ()> {
        // Nobody else has the file.
        std::future::ready(Ok(())).boxed()
    }

    fn end(&self, ends: Vec<(ItemRef, End)>, kept_for: Duration) -> Exchange<'_, ()> {
        self.exchange(move |connection| sql::end(connection, &ends, kept_for))
    }

    fn counts(&self) -> Exchange<'_, Vec<Counts>> {
        self.exchange(sql::counts)
    }

    fn dead_letters(&self, max: usize) -> Exchange<'_, Vec<DeadLetter>> {
        self.exchange(move |connection| sql::dead_letters(connection, max))
    }

    fn requeue(&self, item: String) -> Exchange<'_, bool> {
        self.exchange(move |connection| sql::requeue(connection, &item))
    }

    fn delete(&self, item: String) -> Exchange<'_, bool> {
        self.exchange(move |connection| sql::delete(connection, &item))
    }

    fn tidy(&self, now: UnixMs) -> Exchange<'_, ()> {
        self.exchange(move |connection| sql::tidy(connection, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_that_fails_leaves_no_trace_and_harms_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = EmbeddedStore::open(&folder.path().join("a.db"), 1 << 30).expect("it opens");
        let insert = |connection: &Connection, number: i64| {
            connection.execute("INSERT INTO number (n) VALUES (?1)", [number])
        };
        let made = |connection: &Connection| {
            connection.execute_batch("CREATE TABLE number (n INTEGER UNIQUE) STRICT")
        };
        store.exchange(made).await.expect("made");
        let good = |number| store.exchange(move |connection| insert(connection, number));
        let bad = store.exchange(move |connection| {
            insert(connection, 7)?;
            insert(connection, 1)
        });
        let (first, bad, second) = tokio::join!(good(1), bad, good(2));
        assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
        assert!(matches!(bad, Err(StoreError::Refused(_))), "{bad:?}");
        let sum = store.exchange(|connection| {
            connection.query_row("SELECT sum(n) FROM number", [], |row| row.get::<_, i64>(0))
        });
        assert_eq!(sum.await, Ok(3));
    }

    #[tokio::test]
    async fn a_file_is_of_one_instance_and_of_its_user() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("below").join("a.db");
        let store = EmbeddedStore::open(&path, 1 << 30).expect("it opens");
        let second = EmbeddedStore::open(&path, 1 << 30).err().expect("it is taken").to_string();
        assert!(second.contains("another instance has it"), "{second}");
        #[cfg(unix)]
        {
            let mode = std::fs::metadata(&path).expect("it is there").permissions();
            assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o077, 0);
        }
        drop(store);
    }
}
